//! Reads the journal's records, each with the line that the client got in its place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;

use crate::journal::reader::{Reader, Step};
use crate::journal::{Content, Origin, Position, Record};
use crate::wire::Side;

/// In JSON, every line that may contain text of ours has this escape, followed by `e` or `E`.
static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\\u001"));

/// Precedes every line from the server.
const BY_SERVER: &[u8] = b",\"from\":\"server\",";

#[derive(Debug)]
pub struct Follower {
    dir: PathBuf,
    reader: Reader,
    /// A record whose line the next one may replace.
    held: Vec<u8>,
    known_ends: Arc<[Position]>,
}

/// The next part of a journal.
#[derive(Debug)]
pub enum Next<'a> {
    /// A record, with its successor if that may replace its line.
    Record {
        /// The start of the record.
        at: Position,
        bytes: &'a [u8],
        /// The next record's bytes.
        successor: Option<&'a [u8]>,
    },
    /// A segment was deleted before it was read to its end.
    Lost {
        /// The position that reading had reached.
        at: Position,
    },
    /// Nothing more for now.
    End,
}

/// Whether to wait for a successor of the last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Wait: it may still arrive.
    Some,
    /// Do not wait: the journal has been silent for too long.
    None,
}

impl Follower {
    /// Follows the journal in the folder `dir` from `from`, or from its start.
    #[must_use]
    pub fn new(dir: &Path, from: Option<Position>) -> Follower {
        let known_ends = Arc::default();
        Follower { dir: dir.to_owned(), reader: Reader::new(dir, from), held: Vec::new(), known_ends }
    }

    /// Also reports a loss if the journal lacks one of these ends.
    pub(super) fn with_known_ends(mut self, known_ends: &[Position]) -> Follower {
        self.known_ends = known_ends.into();
        self.go_to(self.position().cloned());
        self
    }

    /// The start of the next record.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        self.reader.position()
    }

    /// Returns to an earlier position.
    pub(super) fn go_to(&mut self, position: Option<Position>) {
        self.reader = Reader::new(&self.dir, position).with_known_ends(Arc::clone(&self.known_ends));
    }

    /// Returns the next record, if it is complete. On an error the position stays.
    pub fn next(&mut self, patience: Patience) -> io::Result<Next<'_>> {
        let (at, length) = match self.reader.step()? {
            Step::Record { at, bytes } if may_be_replaced(bytes) => {
                self.held.clear();
                self.held.extend_from_slice(bytes);
                (at, None)
            }
            Step::Record { at, bytes } => (at, Some(bytes.len())),
            Step::Lost { at } => return Ok(Next::Lost { at }),
            Step::End => return Ok(Next::End),
        };
        if length.is_some() {
            return Ok(Next::Record { at, bytes: self.reader.last(), successor: None });
        }
        let behind = self.reader.position().cloned();
        let replaces = match self.reader.step()? {
            Step::Record { bytes, .. } => Some(is_replacement(bytes)),
            Step::Lost { .. } => Some(false),
            Step::End => None,
        };
        match (replaces, patience) {
            (Some(true), _) => Ok(Next::Record { at, bytes: &self.held, successor: Some(self.reader.last()) }),
            (None, Patience::Some) => {
                self.go_to(Some(at));
                Ok(Next::End)
            }
            (Some(false), _) | (None, Patience::None) => {
                self.go_to(behind);
                Ok(Next::Record { at, bytes: &self.held, successor: None })
            }
        }
    }
}

/// Whether the record's line is from the server and may contain text of ours.
fn may_be_replaced(record: &[u8]) -> bool {
    // The record's own fields precede the line.
    let Some(end) = memchr::memchr(b',', record) else { return false };
    record[end..].starts_with(BY_SERVER)
        && MARK.find_iter(record).any(|at| matches!(record.get(at + 5), Some(b'e' | b'E')))
}

fn is_replacement(record: &[u8]) -> bool {
    matches!(
        Record::parse(record),
        Ok(Record::Line {
            from: Origin::Shim,
            to: Some(Side::Client),
            replaces: true,
            content: Content::Json(_) | Content::Text(_) | Content::Bytes(_),
            ..
        })
    )
}
