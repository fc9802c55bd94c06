//! The journal's records, each with the line that a client got in its place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;

use crate::journal::reader::{Reader, Step};
use crate::journal::{Content, Origin, Position, Record};
use crate::wire::Side;

/// What stands, as JSON, in every line out of which something of ours may be taken, but for its last letter.
static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\\u001"));

/// What stands in front of every line of the server's.
const BY_SERVER: &[u8] = b",\"from\":\"server\",";

/// Follows a journal.
#[derive(Debug)]
pub struct Follower {
    dir: PathBuf,
    reader: Reader,
    /// A record that may be replaced by the next one.
    held: Vec<u8>,
    known_ends: Arc<[Position]>,
}

/// What comes next in a journal.
#[derive(Debug)]
pub enum Next<'a> {
    /// A record, and the one behind it where that may replace its line.
    Record {
        /// Where it begins.
        at: Position,
        /// Its bytes.
        bytes: &'a [u8],
        /// Those of the one behind it.
        successor: Option<&'a [u8]>,
    },
    /// A segment was removed before it was read to its end.
    Lost {
        /// Where reading had come to.
        at: Position,
    },
    /// Nothing more for now.
    End,
}

/// Whether more may come for what was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It may.
    Some,
    /// It has been silent for too long.
    None,
}

impl Follower {
    /// Follows the journal in the folder `dir` from `from` on, or all of it.
    #[must_use]
    pub fn new(dir: &Path, from: Option<Position>) -> Follower {
        let known_ends = Arc::default();
        Follower { dir: dir.to_owned(), reader: Reader::new(dir, from), held: Vec::new(), known_ends }
    }

    /// The same follower, which also reports a loss if the journal lacks one of these ends.
    pub(super) fn with_known_ends(mut self, known_ends: &[Position]) -> Follower {
        self.known_ends = known_ends.into();
        self.go_to(self.position().cloned());
        self
    }

    /// Where the next record begins.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        self.reader.position()
    }

    /// Goes to where it was before.
    pub(super) fn go_to(&mut self, position: Option<Position>) {
        self.reader = Reader::new(&self.dir, position).with_known_ends(Arc::clone(&self.known_ends));
    }

    /// Gives the next record, if there is one by now.
    ///
    /// # Errors
    ///
    /// That of reading the journal; the position stays.
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

/// Whether the line of a record is one of the server's out of which something may be taken.
fn may_be_replaced(record: &[u8]) -> bool {
    // What a record says of its line stands in front of it.
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
