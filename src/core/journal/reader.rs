//! Reads a journal's files, finished or live.
//!
//! A [`Reader`] has a [`Position`] and returns the record there, or reports that there is none yet. It holds no lock and
//! never affects the writer; it may be slow, and may resume from a stored position.
//!
//! *Torn records.* A last record without `\n` is not returned. In a segment with a successor it is skipped: nothing of it
//! was ever forwarded.
//!
//! *Bounds.* A segment that was removed or truncated before it was read is a [`Step::Lost`], never silence: segments of a
//! generation have consecutive numbers from 1, and each header names the previous segment and its length
//! ([`super::segment`]). A journal that begins with the first segment of a generation is not a loss: retention removes the
//! oldest generations.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memchr::memchr;

use super::segment::{Position, SegmentName};
use super::{record, segment, shared};
use crate::files::{self, Access};
use crate::os::{Errno, descriptors};

/// Size of one read, in bytes; the buffer grows temporarily for a longer record. Each relay has such a buffer.
const READ_BYTES: usize = 64 << 10;

/// How much is read first of a record that another one refers to.
const REFERRED_BYTES: usize = 2 << 10;

/// The result of one step of a reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A record, without its `\n`.
    Record {
        /// Its start.
        at: Position,
        /// Its bytes, for [`super::Record::parse`].
        bytes: &'a [u8],
    },
    /// A segment was removed before it was read to its end; reading continues with the next one.
    Lost {
        /// The position that reading had reached.
        at: Position,
    },
    /// Nothing more for now.
    End,
}

/// Reads a journal from a position on.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    /// The start of the next record; `None` before the first segment exists.
    next: Option<Position>,
    file: Option<File>,
    /// Bytes of the file from `next.offset - consumed` on.
    buffer: Vec<u8>,
    /// How much of the buffer was returned.
    consumed: usize,
    /// The last returned record's place in the buffer.
    given: Range<usize>,
    /// The last returned record, if a reference stands in its place.
    resolved: Option<Vec<u8>>,
    known_ends: Arc<[Position]>,
}

enum Filled {
    /// A whole record is in the buffer, its `\n` at this index.
    Record { newline: usize },
    /// The file ends before the record does.
    Short,
}

impl Reader {
    /// Reads the journal in the folder `dir` from `from`, or from its start.
    #[must_use]
    pub fn new(dir: &Path, from: Option<Position>) -> Reader {
        Reader {
            dir: dir.to_owned(),
            next: from,
            file: None,
            buffer: Vec::new(),
            consumed: 0,
            given: 0..0,
            resolved: None,
            known_ends: Arc::default(),
        }
    }

    /// Also reports a loss if a segment ends before one of these positions. A header names the length of the previous
    /// segment as found then, so it does not reveal an earlier truncation.
    #[must_use]
    pub fn with_known_ends(self, known_ends: Arc<[Position]>) -> Reader {
        Reader { known_ends, ..self }
    }

    /// The start of the next record; `None` before the first segment exists.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        self.next.as_ref()
    }

    /// The last returned record, until the next step.
    #[must_use]
    pub fn last(&self) -> &[u8] {
        self.resolved.as_deref().unwrap_or(&self.buffer[self.given.clone()])
    }

    /// Returns the next record, if it is complete. On an error the position stays, so the call can be repeated.
    pub fn step(&mut self) -> io::Result<Step<'_>> {
        loop {
            let Some(at) = self.next.clone() else {
                match SegmentName::list(&self.dir)?.into_iter().next() {
                    Some(first) if first.number == 1 => self.go_to(first),
                    Some(first) => {
                        let at = Position { segment: SegmentName { number: 1, ..first.clone() }, offset: 0 };
                        return Ok(self.lost(at, first));
                    }
                    None => return Ok(Step::End),
                }
                continue;
            };
            match self.fill(&at)? {
                Some(Filled::Record { newline }) => return self.give(at, newline),
                Some(Filled::Short) => {}
                None => match self.successor(&at.segment)? {
                    // Every record of the removed segment was read.
                    Some(after) if segment::ended_at(&self.dir, &at, &after)? && !self.lacks_end(&at, &after) => {
                        self.go_to(after);
                        continue;
                    }
                    Some(after) => return Ok(self.lost(at, after)),
                    None => return Ok(Step::End),
                },
            }
            let Some(after) = self.successor(&at.segment)? else {
                return Ok(Step::End);
            };
            // The writer may have appended between the read of the file and the listing of the folder; once the successor
            // exists it appends no more.
            match self.fill(&at)? {
                Some(Filled::Record { newline }) => return self.give(at, newline),
                Some(Filled::Short) | None
                    if !self.lacks_end(&at, &after) && !segment::is_broken(&self.dir, &at, &after)? =>
                {
                    self.go_to(after);
                }
                Some(Filled::Short) | None => return Ok(self.lost(at, after)),
            }
        }
    }

    /// Gives back the memory of long records that were returned. What follows them is read again.
    pub fn rest(&mut self) {
        if self.buffer.capacity() > 2 * READ_BYTES {
            self.forget_buffer();
        }
        self.resolved = None;
    }

    /// Whether a known end lies between `at`, the end of its segment, and the segment `next`.
    fn lacks_end(&self, at: &Position, next: &SegmentName) -> bool {
        self.known_ends.iter().any(|end| at < end && end.segment < *next)
    }

    fn lost(&mut self, at: Position, next: SegmentName) -> Step<'_> {
        self.go_to(next);
        Step::Lost { at }
    }

    fn give(&mut self, at: Position, newline: usize) -> io::Result<Step<'_>> {
        self.resolved = self.resolve(&at, self.consumed..newline)?;
        let from = std::mem::replace(&mut self.consumed, newline + 1);
        self.next = Some(Position { segment: at.segment.clone(), offset: at.offset + (newline + 1 - from) as u64 });
        self.given = from..newline;
        Ok(Step::Record { at, bytes: self.last() })
    }

    /// The record that the one in the buffer refers to, with the time and the connection of the reference. `None` if it is no
    /// reference, or if no record is there.
    fn resolve(&self, at: &Position, given: Range<usize>) -> io::Result<Option<Vec<u8>>> {
        let reference = &self.buffer[given.clone()];
        let Some(offset) = record::reference(reference).filter(|offset| *offset < at.offset) else { return Ok(None) };
        let back = usize::try_from(at.offset - offset).unwrap_or(usize::MAX);
        let read;
        let rest = match given.start.checked_sub(back) {
            Some(from) => &self.buffer[from..given.start],
            None => {
                read = self.read_back(offset, at.offset)?;
                &read
            }
        };
        let full = memchr(b'\n', rest).map(|newline| &rest[..newline]);
        Ok(full.and_then(|full| shared::resolved(reference, full)))
    }

    /// The bytes of the file from one offset to another, or as many as contain a record.
    fn read_back(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let mut bytes = vec![0; REFERRED_BYTES];
        loop {
            bytes.truncate(usize::try_from(to - from).unwrap_or(usize::MAX));
            match file.read_exact_at(&mut bytes, from) {
                Ok(()) => {}
                // The file is shorter than it was.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Vec::new()),
                Err(error) => return Err(error),
            }
            if memchr(b'\n', &bytes).is_some() || bytes.len() as u64 == to - from {
                return Ok(bytes);
            }
            bytes.resize(bytes.len() * 8, 0);
        }
    }

    fn go_to(&mut self, segment: SegmentName) {
        self.next = Some(Position { segment, offset: 0 });
        self.file = None;
        self.forget_buffer();
    }

    fn successor(&self, of: &SegmentName) -> io::Result<Option<SegmentName>> {
        Ok(SegmentName::list(&self.dir)?.into_iter().find(|name| name > of))
    }

    /// Loads the record at `at` into the buffer; `None` if the segment does not exist.
    fn fill(&mut self, at: &Position) -> io::Result<Option<Filled>> {
        if self.file.is_none() {
            match files::open(&self.dir.join(at.segment.to_string()), Access::Read) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        if let Some(found) = memchr(b'\n', &self.buffer[self.consumed..]) {
            return Ok(Some(Filled::Record { newline: self.consumed + found }));
        }
        // The writer may truncate and rewrite an incomplete record, so it is read again from its start.
        self.forget_buffer();
        let Some(file) = &self.file else { return Ok(None) };
        loop {
            let had = self.buffer.len();
            self.buffer.reserve(READ_BYTES.max(had));
            match descriptors::append_from(file, &mut self.buffer, at.offset + had as u64) {
                Ok(0) => {
                    self.buffer.clear();
                    return Ok(Some(Filled::Short));
                }
                Ok(_) => match memchr(b'\n', &self.buffer[had..]) {
                    Some(newline) if had == 0 => return Ok(Some(Filled::Record { newline })),
                    Some(found) => {
                        // The pieces may be from before and after a rewrite: read again at once, now that the record is
                        // complete.
                        self.buffer.truncate(had + found + 1);
                        file.read_exact_at(&mut self.buffer, at.offset)?;
                        let newline = memchr(b'\n', &self.buffer);
                        return Ok(Some(newline.map_or(Filled::Short, |newline| Filled::Record { newline })));
                    }
                    None => {}
                },
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn forget_buffer(&mut self) {
        self.consumed = 0;
        self.given = 0..0;
        self.buffer.clear();
        if self.buffer.capacity() > 2 * READ_BYTES {
            self.buffer = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Generation;
    use std::fs;

    fn name(number: u32) -> SegmentName {
        SegmentName { generation: Generation::after(None, 1, 0), number }
    }

    /// Reads to the end; records as they are, losses as `!`.
    fn drain(reader: &mut Reader) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            match reader.step().expect("BUG: the test's files can be read") {
                Step::Record { bytes, .. } => seen.push(String::from_utf8_lossy(bytes).into_owned()),
                Step::Lost { .. } => seen.push("!".to_owned()),
                Step::End => return seen,
            }
        }
    }

    #[test]
    fn live_journal_is_followed_over_segments() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = |number| dir.path().join(name(number).to_string());
        let mut reader = Reader::new(dir.path(), None);
        assert_eq!(drain(&mut reader), Vec::<String>::new());
        fs::write(path(1), "a\nb\ntor").expect("write");
        assert_eq!(drain(&mut reader), ["a", "b"]);
        fs::write(path(1), "a\nb\nn\nc\n").expect("write");
        assert_eq!(drain(&mut reader), ["n", "c"]);
        fs::write(path(1), "a\nb\nn\nc\nd\ntorn").expect("write");
        fs::write(path(2), "e\n").expect("write");
        assert_eq!(drain(&mut reader), ["d", "e"]);
        fs::write(path(4), "g\n").expect("write");
        fs::remove_file(path(2)).expect("remove");
        assert_eq!(drain(&mut reader), ["!", "g"]);
    }

    #[test]
    fn torn_record_is_not_mixed_with_its_replacement() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join(name(1).to_string());
        fs::write(&path, "aaa\nbbb\nOLDTORN").expect("write");
        let mut reader = Reader::new(dir.path(), None);
        assert!(matches!(reader.step(), Ok(Step::Record { bytes: b"aaa", .. })));
        fs::write(&path, "aaa\nbbb\nnew record\n").expect("write");
        assert_eq!(drain(&mut reader), ["bbb", "new record"]);
    }

    #[test]
    fn generation_without_first_segment_is_a_loss() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        fs::write(dir.path().join(name(1).to_string()), "a\n").expect("write");
        let later = SegmentName { generation: Generation::after(None, 2, 0), number: 2 };
        fs::write(dir.path().join(later.to_string()), "b\n").expect("write");
        assert_eq!(drain(&mut Reader::new(dir.path(), None)), ["a", "!", "b"]);
    }

    #[test]
    fn removed_segment_is_reported_at_a_stored_position() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = |number| dir.path().join(name(number).to_string());
        fs::write(path(1), "a\nb\n").expect("write");
        let mut reader = Reader::new(dir.path(), None);
        reader.step().expect("a record");
        let kept = reader.position().cloned();
        assert_eq!(drain(&mut Reader::new(dir.path(), kept.clone())), ["b"]);
        fs::remove_file(path(1)).expect("remove");
        fs::write(path(2), "c\n").expect("write");
        assert_eq!(drain(&mut Reader::new(dir.path(), kept)), ["!", "c"]);
    }

    #[test]
    fn journal_without_its_start_reports_a_loss() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        fs::write(dir.path().join(name(3).to_string()), "c\n").expect("write");
        assert_eq!(drain(&mut Reader::new(dir.path(), None)), ["!", "c"]);
    }

    #[test]
    fn record_longer_than_a_read_is_complete() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let long = "x".repeat(3 * READ_BYTES + 5);
        fs::write(dir.path().join(name(1).to_string()), format!("a\n{long}\nb\n")).expect("write");
        assert_eq!(drain(&mut Reader::new(dir.path(), None)), ["a", &long, "b"]);
    }
}
