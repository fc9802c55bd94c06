//! Framing: the byte `\n` ends a line, and nothing else does.
//!
//! A [`Framer`] owns the bytes that were read from one side and are not forwarded yet. The caller appends input, takes
//! the complete frames, forwards their ranges, and then releases them.
//!
//! The framer never inspects a line and never delays a line whose `\n` has arrived.

use std::ops::Range;

use memchr::memchr;

use super::{Line, LineEnd};

/// The longest line that is buffered until its `\n`, in bytes without the `\n`. A longer line is forwarded in pieces,
/// without a look at its content. Source: the journal's contract, which omits lines over 64 MiB.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// Capacity that the buffer shrinks to once it is empty, in bytes. One read of a default Linux pipe returns at most 64
/// KiB; the rest is room for a line that straddles two reads.
const BUFFER_BYTES_KEPT: usize = 192 << 10;

/// A range of the input that can be forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A whole line; the range includes the `\n`, if the line has one.
    Line {
        /// Range in the buffer.
        range: Range<usize>,
        end: LineEnd,
    },
    /// A piece of a line over the limit, but not the last one.
    Piece {
        /// Range in the buffer.
        range: Range<usize>,
    },
    /// The last piece of a line over the limit.
    LastPiece {
        /// Range in the buffer.
        range: Range<usize>,
        /// Length of the whole line in bytes, without its `\n`.
        line_bytes: u64,
        end: LineEnd,
    },
}

/// Buffers the bytes of one side that are not forwarded yet.
#[derive(Debug)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Start of the incomplete line; all bytes before it are framed.
    unframed: usize,
    /// The incomplete line has no `\n` before this index.
    searched: usize,
    /// Number of bytes of the current long line that are framed as pieces.
    passed_bytes: u64,
    line_bytes_max: usize,
}

impl Default for Framer {
    fn default() -> Framer {
        Framer::new(LINE_BYTES_MAX)
    }
}

impl Framer {
    /// A framer that buffers lines of up to `line_bytes_max` bytes.
    #[must_use]
    pub fn new(line_bytes_max: usize) -> Framer {
        Framer { buffer: Vec::new(), unframed: 0, searched: 0, passed_bytes: 0, line_bytes_max }
    }

    /// The buffer, to which the caller appends input.
    pub fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// The bytes of a [`Frame`]'s range.
    #[must_use]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The line at `range`, without its `\n` if `end` includes one.
    #[must_use]
    pub fn line(&self, range: Range<usize>, end: LineEnd) -> Line<'_> {
        let bytes = &self.buffer[range];
        let bytes = match end {
            LineEnd::Newline => &bytes[..bytes.len() - 1],
            LineEnd::EndOfStream => bytes,
        };
        Line { bytes, end }
    }

    /// The next range that can be forwarded; `None` if the next line is incomplete.
    pub fn next_frame(&mut self) -> Option<Frame> {
        match memchr(b'\n', &self.buffer[self.searched..]) {
            Some(at) => Some(self.frame_to(self.searched + at + 1, LineEnd::Newline)),
            None => {
                self.searched = self.buffer.len();
                let over_long = self.passed_bytes > 0 || self.unfinished_bytes() > self.line_bytes_max;
                (over_long && self.unfinished_bytes() > 0).then(|| self.piece())
            }
        }
    }

    /// The rest of the input at the end of the stream, if any.
    pub fn last_frame(&mut self) -> Option<Frame> {
        (self.unfinished_bytes() > 0 || self.passed_bytes > 0)
            .then(|| self.frame_to(self.buffer.len(), LineEnd::EndOfStream))
    }

    /// Drops the framed bytes and keeps the incomplete line.
    pub fn release_framed(&mut self) {
        let unfinished = self.unfinished_bytes();
        if self.unframed > 0 {
            self.buffer.copy_within(self.unframed.., 0);
            self.buffer.truncate(unfinished);
            self.searched -= self.unframed;
            self.unframed = 0;
        }
        if unfinished == 0 && self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
    }

    /// The bytes of the line that has not come whole.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        self.buffer.len() - self.unframed
    }

    fn frame_to(&mut self, to: usize, end: LineEnd) -> Frame {
        let range = self.unframed..to;
        self.unframed = to;
        self.searched = to;
        let newline_bytes = match end {
            LineEnd::Newline => 1,
            LineEnd::EndOfStream => 0,
        };
        let line_bytes = self.passed_bytes + (range.len() - newline_bytes) as u64;
        if self.passed_bytes == 0 && line_bytes <= self.line_bytes_max as u64 {
            return Frame::Line { range, end };
        }
        self.passed_bytes = 0;
        Frame::LastPiece { range, line_bytes, end }
    }

    fn piece(&mut self) -> Frame {
        let range = self.unframed..self.buffer.len();
        self.unframed = range.end;
        self.passed_bytes += range.len() as u64;
        Frame::Piece { range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Feeds `chunks`; returns the forwarded bytes, and the frames as text: a line's own text, `P` for a piece, `E` for
    /// a last piece.
    fn run(chunks: &[&[u8]], line_bytes_max: usize) -> (Vec<u8>, String) {
        let mut framer = Framer::new(line_bytes_max);
        let (mut forwarded, mut kinds) = (Vec::new(), String::new());
        let mut take = |framer: &mut Framer, frame: Frame| {
            let (range, kind) = match frame {
                Frame::Line { range, end } => {
                    kinds.push_str(&String::from_utf8_lossy(framer.line(range.clone(), end).bytes));
                    (range, "|".to_owned())
                }
                Frame::Piece { range } => (range, "P|".to_owned()),
                Frame::LastPiece { range, line_bytes, .. } => (range, format!("E{line_bytes}|")),
            };
            kinds.push_str(&kind);
            forwarded.extend_from_slice(framer.bytes(range));
        };
        for chunk in chunks {
            framer.buffer_mut().extend_from_slice(chunk);
            while let Some(frame) = framer.next_frame() {
                take(&mut framer, frame);
            }
            framer.release_framed();
        }
        if let Some(frame) = framer.last_frame() {
            take(&mut framer, frame);
        }
        (forwarded, kinds)
    }

    fn check(chunks: &[&[u8]], line_bytes_max: usize, expect: &str) {
        let (forwarded, kinds) = run(chunks, line_bytes_max);
        assert_eq!(forwarded, chunks.concat());
        assert_eq!(kinds, expect);
    }

    #[test]
    fn newline_ends_a_line() {
        check(&[b"a\nb\r\n\nc"], 9, "a|b\r||c|");
    }

    #[test]
    fn line_across_reads_is_whole() {
        check(&[b"ab", b"c", b"\nd\n"], 9, "abc|d|");
    }

    #[test]
    fn only_a_newline_ends_a_line() {
        check(&["a\u{2028}b\u{85}c\u{0}d\x1ee\n".as_bytes()], 20, "a\u{2028}b\u{85}c\u{0}d\x1ee|");
    }

    #[test]
    fn line_over_the_limit_passes_in_pieces() {
        check(&[b"1234\n"], 4, "1234|");
        check(&[b"12345\n"], 4, "E5|");
        check(&[b"12345", b"678", b"9\nx\n"], 4, "P|P|E9|x|");
        check(&[b"12345", b"\n"], 4, "P|E5|");
        check(&[b"12345"], 4, "P|E5|");
    }

    #[test]
    fn buffer_shrinks_after_a_big_line() {
        let mut framer = Framer::default();
        framer.buffer_mut().resize(1 << 20, b'x');
        framer.buffer_mut().push(b'\n');
        assert!(framer.next_frame().is_some());
        framer.release_framed();
        assert!(framer.buffer_mut().capacity() <= BUFFER_BYTES_KEPT);
    }

    proptest! {
        #[test]
        fn chunking_changes_neither_bytes_nor_lines(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            cuts in proptest::collection::vec(0usize..200, 0..12),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                chunks.push(&bytes[from..cut]);
                from = cut;
            }
            let (forwarded, lines) = run(&chunks, 1000);
            prop_assert_eq!(&forwarded, &bytes);
            prop_assert_eq!(lines, run(&[&bytes], 1000).1);
            let (forwarded, _) = run(&chunks, 7);
            prop_assert_eq!(&forwarded, &bytes);
        }
    }
}
