//! The end of a program's output, in bounded memory, without escape sequences.
//!
//! A read may cut a sequence anywhere. One that never ends hides only the rest of its own line.

use memchr::memchr;

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

/// Longest part of a sequence that is examined, in bytes.
const SEQUENCE_BYTES_MAX: usize = 1_024;

/// Distinguishes our marks from others.
const AID: &str = "aid=codex-shim.";

/// Private terminal modes of full-screen programs: the alternate screen in its three forms, and application cursor keys,
/// which programs set that draw on the ordinary screen, such as `top`.
const SCREEN_MODES: [&str; 4] = ["1049", "1047", "47", "1"];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Text without escape sequences.
    Text(&'a [u8]),
    /// A program starts to use the whole screen.
    FullScreenBegan,
    /// It stops using the whole screen.
    FullScreenEnded,
    /// A command begins, according to the shell's hook; its key.
    Began(String),
    /// A command has ended.
    Ended(String),
}

/// Splits output that arrives in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    /// The incomplete sequence.
    sequence: Vec<u8>,
}

impl Scanner {
    /// Processes the next bytes.
    pub(super) fn scan(&mut self, bytes: &[u8], mut emit: impl FnMut(Piece<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.sequence.is_empty() {
                let Some(at) = memchr(0x1b, rest) else {
                    emit(Piece::Text(rest));
                    return;
                };
                if at > 0 {
                    emit(Piece::Text(&rest[..at]));
                }
                self.sequence.push(0x1b);
                rest = &rest[at + 1..];
                continue;
            }
            let byte = rest[0];
            rest = &rest[1..];
            match self.goes_on(byte) {
                Next::More => {}
                Next::Whole => {
                    if let Some(piece) = meaning(&self.sequence) {
                        emit(piece);
                    }
                    self.sequence.clear();
                }
                Next::Line => {
                    self.sequence.clear();
                    emit(Piece::Text(b"\n"));
                }
                Next::Restart => {
                    self.sequence.clear();
                    self.sequence.push(0x1b);
                }
            }
        }
    }

    fn goes_on(&mut self, byte: u8) -> Next {
        if self.sequence.len() == SEQUENCE_BYTES_MAX {
            // Too long to understand: only its end matters now.
            self.sequence.remove(2);
        }
        self.sequence.push(byte);
        let ends_with_escape = self.sequence.len() > 2 && self.sequence[self.sequence.len() - 2] == 0x1b;
        match (self.sequence.get(1), byte) {
            (_, b'\n') => Next::Line,
            (Some(0x1b), _) => Next::Restart,
            (Some(b'['), 0x40..=0x7e) if self.sequence.len() > 2 => Next::Whole,
            (Some(b'['), _) => Next::More,
            (Some(b']' | b'P' | b'_' | b'^' | b'X'), 0x07) => Next::Whole,
            (Some(b']' | b'P' | b'_' | b'^' | b'X'), b'\\') if ends_with_escape => Next::Whole,
            (Some(b']' | b'P' | b'_' | b'^' | b'X'), _) => Next::More,
            (Some(b'(' | b')' | b'*' | b'+' | b'#' | b'%' | b' '), _) if self.sequence.len() == 2 => Next::More,
            (Some(_) | None, _) => Next::Whole,
        }
    }
}

/// The effect of a byte on a sequence.
enum Next {
    /// It continues.
    More,
    /// It is complete.
    Whole,
    /// It is invalid: its line has ended.
    Line,
    /// Another one begins.
    Restart,
}

fn meaning(sequence: &[u8]) -> Option<Piece<'static>> {
    let text = std::str::from_utf8(sequence).ok()?;
    if let Some(modes) = text.strip_prefix("\x1b[?") {
        let (modes, is_set) = match modes.as_bytes().last()? {
            b'h' => (&modes[..modes.len() - 1], true),
            b'l' => (&modes[..modes.len() - 1], false),
            _ => return None,
        };
        let takes = modes.split(';').any(|mode| SCREEN_MODES.contains(&mode));
        return takes.then_some(if is_set { Piece::FullScreenBegan } else { Piece::FullScreenEnded });
    }
    let mark = text.strip_prefix("\x1b]133;")?.trim_end_matches(['\x07', '\\', '\x1b']);
    let key = mark.split(';').find_map(|part| part.strip_prefix(AID))?.to_owned();
    match mark.as_bytes().first()? {
        b'C' => Some(Piece::Began(key)),
        b'D' => Some(Piece::Ended(key)),
        _ => None,
    }
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

    /// The pieces of an output, adjacent text joined; the same however the output is cut.
    fn check_scan(output: &str, expect: &str) {
        for cut in 1..=output.len() {
            let (mut scanner, mut told) = (Scanner::default(), String::new());
            for bytes in output.as_bytes().chunks(cut) {
                scanner.scan(bytes, |piece| match piece {
                    Piece::Text(text) => told.push_str(&String::from_utf8_lossy(text)),
                    Piece::FullScreenBegan => told.push('<'),
                    Piece::FullScreenEnded => told.push('>'),
                    Piece::Began(key) => told.push_str(&format!("({key}:")),
                    Piece::Ended(key) => told.push_str(&format!(":{key})")),
                });
            }
            assert_eq!(told, expect, "{output:?} by {cut}");
        }
    }

    #[test]
    fn escape_sequences_are_removed_from_text() {
        check_scan("plain\r\n", "plain\r\n");
        check_scan("a\x1b[1;31mred\x1b[0mb", "aredb");
        check_scan("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc");
        check_scan("a\x1b(Bb\x1b=c\x1bM", "abc");
        check_scan("a\x1b\x1b[1mb", "ab");
    }

    #[test]
    fn full_screen_modes_are_recognized() {
        check_scan("a\x1b[?1049hx\x1b[?1049lb", "a<x>b");
        check_scan("\x1b[?25;47h\x1b[?2004h\x1b[?1h\x1b=", "<<");
        check_scan("\x1b[?1049", "");
    }

    #[test]
    fn only_our_marks_are_recognized() {
        check_scan("$ \x1b]133;C;aid=codex-shim.7.1\x07out\x1b]133;D;0;aid=codex-shim.7.1\x07", "$ (7.1:out:7.1)");
        check_scan("\x1b]133;C;aid=codex-shim.7.1\x1b\\x", "(7.1:x");
        check_scan("\x1b]133;C\x07a\x1b]133;D;1;aid=kitty.3\x07b", "ab");
    }

    #[test]
    fn endless_sequence_hides_only_its_line() {
        check_scan("\x1b]0;no end\nnext", "\nnext");
        let long = format!("\x1bP{}\nnext", "x".repeat(5_000));
        let mut told = String::new();
        Scanner::default().scan(long.as_bytes(), |piece| {
            if let Piece::Text(text) = piece {
                told.push_str(&String::from_utf8_lossy(text));
            }
        });
        assert_eq!(told, "\nnext");
    }
}
