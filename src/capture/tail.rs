//! The end of a program's output, in bounded memory.

use super::scan::{Piece, Scanner};
use crate::engine::{ContextBounds, Preview};

/// How much of the end is kept, in bytes; the model sees far less of it.
const TAIL_BYTES: usize = 64 << 10;

/// Replaces the output of a full-screen program.
const SCREEN_NOTE: &str = "[a full-screen program; its screen is not kept]";

/// If one in this many characters is not UTF-8, the output is binary.
const BROKEN_SHARE: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Tail {
    scanner: Scanner,
    kept: Kept,
}

/// The kept text, without escape sequences.
#[derive(Debug, Default)]
pub(super) struct Kept {
    bytes: Vec<u8>,
    seen_bytes: u64,
    is_cut: bool,
    screen_is_taken: bool,
}

impl Tail {
    /// Processes the next bytes.
    pub(crate) fn take(&mut self, written: &[u8]) {
        let kept = &mut self.kept;
        self.scanner.scan(written, |piece| kept.take(&piece));
    }

    /// Marks the output as truncated, because something before this point is missing.
    pub(crate) fn is_cut(&mut self) {
        self.kept.is_cut = true;
    }

    /// Whether there was no output.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.bytes.is_empty()
    }

    /// The preview of it for the model.
    #[must_use]
    pub(crate) fn preview(&self, bounds: &ContextBounds) -> Preview {
        self.kept.preview(bounds)
    }
}

impl Kept {
    pub(super) fn take(&mut self, piece: &Piece<'_>) {
        match piece {
            Piece::Text(text) if !self.screen_is_taken => self.text(text),
            Piece::FullScreenBegan if !self.screen_is_taken => {
                self.screen_is_taken = true;
                self.is_cut = true;
                let note = format!("{SCREEN_NOTE}\n");
                if !self.bytes.is_empty() && !self.bytes.ends_with(b"\n") {
                    self.text(b"\n");
                }
                if !self.bytes.ends_with(note.as_bytes()) {
                    self.text(note.as_bytes());
                }
            }
            Piece::FullScreenEnded => self.screen_is_taken = false,
            Piece::Text(_) | Piece::FullScreenBegan | Piece::Began(_) | Piece::Ended(_) => {}
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.seen_bytes += text.len() as u64;
        self.bytes.extend_from_slice(&text[text.len().saturating_sub(TAIL_BYTES)..]);
        // Compacted rarely, so that each byte moves at most once.
        if self.bytes.len() > 2 * TAIL_BYTES {
            self.bytes.drain(..self.bytes.len() - TAIL_BYTES);
        }
    }

    pub(super) fn preview(&self, bounds: &ContextBounds) -> Preview {
        let kept = &self.bytes[self.bytes.len().saturating_sub(TAIL_BYTES)..];
        if is_binary(kept) {
            let note = format!("[binary output of {} bytes; it is not kept]", self.seen_bytes);
            return Preview { lines: vec![note], truncated: true };
        }
        let mut text = String::with_capacity(kept.len());
        for line in String::from_utf8_lossy(kept).split('\n') {
            text.push_str(as_seen(line));
            text.push('\n');
        }
        let end = text.trim_end().len();
        text.truncate(end);
        let mut preview = Preview::of_output(&text, bounds);
        preview.truncated |= self.is_cut || self.seen_bytes > kept.len() as u64;
        preview
    }
}

/// The visible part of a line that was overwritten: the text after its last carriage return.
fn as_seen(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rsplit('\r').next().unwrap_or(line)
}

fn is_binary(bytes: &[u8]) -> bool {
    if memchr::memchr(0, bytes).is_some() {
        return true;
    }
    // The tail may begin in the middle of a character.
    let broken = String::from_utf8_lossy(bytes).chars().filter(|char| *char == char::REPLACEMENT_CHARACTER).count();
    broken > 4 && broken * BROKEN_SHARE > bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: &[u8], lines: &[&str], truncated: bool) {
        let mut tail = Tail::default();
        tail.take(written);
        let preview = tail.preview(&ContextBounds::default());
        assert_eq!((&*preview.lines, preview.truncated), (&*owned(lines), truncated));
    }

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn overwritten_lines_keep_their_last_state() {
        check(b"", &[], false);
        check(b"a\r\nb\r\n\r\n", &["a", "b"], false);
        check(b"10%\r20%\r100%\r\ndone\r\n", &["100%", "done"], false);
        check("\x1b[32mgrün\x1b[0m".as_bytes(), &["grün"], false);
    }

    #[test]
    fn full_screen_output_becomes_a_note() {
        check(b"\x1b[?1049h\x1b[2Jscreen\x1b[?1049l", &[SCREEN_NOTE], true);
        check(b"a\x1b[?1h\x1b[?1049hx\x1b[?1049l\x1b[?1lb\n", &["a", SCREEN_NOTE, "b"], true);
    }

    #[test]
    fn binary_output_becomes_a_note() {
        check(b"a\0b", &["[binary output of 3 bytes; it is not kept]"], true);
        let noise: Vec<u8> = (128..=255).collect();
        check(&noise, &["[binary output of 128 bytes; it is not kept]"], true);
    }

    #[test]
    fn tail_memory_is_bounded() {
        let mut tail = Tail::default();
        for number in 0..100_000 {
            tail.take(format!("line {number}\n").as_bytes());
        }
        assert!(tail.kept.bytes.len() <= 2 * TAIL_BYTES);
        let preview = tail.preview(&ContextBounds::default());
        assert_eq!((preview.lines.len(), preview.truncated), (20, true));
        assert_eq!(preview.lines[19], "line 99999");
        tail.take(&vec![b'x'; 1 << 20]);
        assert!(tail.kept.bytes.len() <= 2 * TAIL_BYTES);
    }
}
