//! The end of what a program's output leaves on a terminal's screen, in bounded memory.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};

use memchr::memchr2;

use crate::engine::terminal::{KEPT_BYTES, Parser, Piece, Remains, Screen, Size};
use crate::engine::{ContextBounds, Preview};

/// How much of the end of a file is read, in bytes: far more than is kept, because much of it may be drawn over.
const FILE_BYTES: u64 = 1 << 20;

/// Size of one read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// If one in this many characters is not UTF-8, the output is binary.
const BROKEN_SHARE: usize = 20;

/// An output that arrives in pieces of any size.
#[derive(Debug)]
pub struct Tail {
    parser: Parser,
    output: Output,
}

/// An output on its screen.
#[derive(Debug)]
pub(super) struct Output {
    screen: Screen,
    seen_bytes: u64,
    /// How many bytes the last NUL ended.
    nul_at: Option<u64>,
}

impl Default for Tail {
    /// The output comes from a pipe or a file.
    fn default() -> Tail {
        Tail::new(None)
    }
}

impl Tail {
    /// The output goes to a terminal of this size, if it is known.
    pub fn new(size: Option<Size>) -> Tail {
        Tail { parser: Parser::default(), output: Output::new(size) }
    }

    /// The end of an output in a file; a pipe is read to its end.
    pub fn of_file(mut file: File) -> io::Result<Tail> {
        let bytes = file.metadata()?.len();
        let mut tail = Tail::default();
        let skipped = bytes.saturating_sub(FILE_BYTES);
        if skipped == 0 {
            tail.read(file.take(if bytes == 0 { u64::MAX } else { FILE_BYTES }))?;
            return Ok(tail);
        }
        file.seek(SeekFrom::Start(skipped))?;
        let mut written = Vec::new();
        file.take(FILE_BYTES).read_to_end(&mut written)?;
        // The file is cut somewhere, also within a sequence. A line end or a return is usually behind it.
        let start = memchr2(b'\n', b'\r', &written).map(|at| at + 1).filter(|start| *start < written.len());
        let start = start.unwrap_or(0);
        tail.take(&written[start..]);
        tail.output.screen.mark_cut();
        Ok(tail)
    }

    /// Processes all that can be read.
    pub fn read(&mut self, mut from: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => self.take(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Processes the next bytes.
    pub fn take(&mut self, written: &[u8]) {
        let Tail { parser, output } = self;
        parser.parse(written, |piece| output.apply(&piece));
    }

    pub fn resize(&mut self, size: Size) {
        self.output.resize(size);
    }

    /// Whether there was no output.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.output.seen_bytes == 0
    }

    /// The preview of it for the model.
    #[must_use]
    pub fn preview(&self, bounds: &ContextBounds) -> Preview {
        self.output.preview(bounds)
    }
}

impl Output {
    pub(super) fn new(size: Option<Size>) -> Output {
        Output { screen: Screen::new(size, KEPT_BYTES), seen_bytes: 0, nul_at: None }
    }

    pub(super) fn apply(&mut self, piece: &Piece<'_>) {
        self.seen_bytes += match piece {
            Piece::Text(text) => text.len() as u64,
            Piece::Broken(bytes) => *bytes as u64,
            Piece::Control(_) => 1,
            Piece::Escape { .. } | Piece::Sequence(_) | Piece::Command(_) => 0,
        };
        if *piece == Piece::Control(0) && !self.screen.is_alternate() {
            self.nul_at = Some(self.seen_bytes);
        }
        self.screen.apply(piece);
    }

    pub(super) fn resize(&mut self, size: Size) {
        self.screen.resize(size);
    }

    pub(super) fn preview(&self, bounds: &ContextBounds) -> Preview {
        let Remains { mut text, is_cut } = self.screen.remains();
        if self.is_binary(&text) {
            let note = format!("[binary output of {} bytes; it is not kept]", self.seen_bytes);
            return Preview { lines: vec![note], truncated: true };
        }
        text.truncate(text.trim_end().len());
        Preview::of_remains(&Remains { text, is_cut }, bounds)
    }

    fn is_binary(&self, text: &str) -> bool {
        if self.nul_at.is_some_and(|at| self.seen_bytes - at < KEPT_BYTES as u64) {
            return true;
        }
        // The output may begin in the middle of a character.
        let broken = text.chars().filter(|char| *char == char::REPLACEMENT_CHARACTER).count();
        broken > 4 && broken * BROKEN_SHARE > text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str = "[a full-screen program; its screen is not kept]";

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
        check(b"a 1\nb 1\n\x1b[2A\x1b[Ka 2\n\x1b[Kb 2\n", &["a 2", "b 2"], false);
        check("\x1b[32mgr\u{fc}n\x1b[0m".as_bytes(), &["gr\u{fc}n"], false);
    }

    #[test]
    fn full_screen_output_becomes_a_note() {
        check(b"\x1b[?1049h\x1b[2Jscreen\x1b[?1049l", &[NOTE], true);
        check(b"a\x1b[?1h\x1b[?1049hx\0\x1b[?1049l\x1b[?1lb\n", &["a", NOTE, "b"], true);
    }

    #[test]
    fn binary_output_becomes_a_note() {
        check(b"a\0b", &["[binary output of 3 bytes; it is not kept]"], true);
        let noise: Vec<u8> = (128..=255).collect();
        check(&noise, &["[binary output of 128 bytes; it is not kept]"], true);
    }

    #[test]
    fn end_of_long_output_is_kept() {
        let mut tail = Tail::default();
        for number in 0..100_000 {
            tail.take(format!("line {number}\n").as_bytes());
        }
        let preview = tail.preview(&ContextBounds::default());
        assert_eq!((preview.lines.len(), preview.truncated), (20, true));
        assert_eq!(preview.lines[19], "line 99999");
        tail.take(&vec![b'x'; 1 << 20]);
        let preview = tail.preview(&ContextBounds::default());
        assert_eq!((preview.lines.len(), preview.lines[0].len()), (1, ContextBounds::default().preview_bytes_max));
    }

    #[test]
    fn long_files_begin_with_a_whole_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("output");
        let lines = |written: &[u8]| {
            std::fs::write(&path, written).expect("it is written");
            let tail = Tail::of_file(File::open(&path).expect("it opens")).expect("it can be read");
            let preview = tail.preview(&ContextBounds::default());
            (preview.lines.join("|"), preview.truncated)
        };
        assert_eq!(lines(b"a\r\nb"), ("a|b".to_owned(), false));
        // The end begins within a picture.
        let picture = [b"\x1bPq".as_slice(), &vec![b'~'; FILE_BYTES as usize], b"\x1b\\\nshown\n"].concat();
        assert_eq!(lines(&picture), ("shown".to_owned(), true));
        let progress = [b"1%\r".repeat(FILE_BYTES as usize), b"done\n".to_vec()].concat();
        assert_eq!(lines(&progress), ("done".to_owned(), true));
        let (line, is_cut) = lines(&[vec![b'x'; FILE_BYTES as usize], b"y\n".to_vec()].concat());
        assert!(line.ends_with("xy") && is_cut);
    }
}
