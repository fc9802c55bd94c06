//! Reads the journal's records, each with the line that the client got in its place.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use memchr::memmem::Finder;

use super::model::Reached;
use crate::engine::{message_without_context, without_context};
use crate::history::{Fold, Recall, Rows, Seen, add_use};
use crate::journal::reader::{Reader, Step};
use crate::journal::{Content, Origin, Position, Record, SegmentName};
use crate::wire::Side;

/// In JSON, every line that may contain text of ours has this escape, followed by `e` or `E`.
static MARK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\\u001"));

/// A record of a hub names its connection before the side.
const CONN: &[u8] = b",\"conn\":";

/// Precedes every line from the server.
const BY_SERVER: &[u8] = b",\"from\":\"server\",";

/// Capacity of the buffer for a record that may be replaced, between two reads, in bytes.
const HELD_BYTES_MAX: usize = 64 << 10;

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
        /// Whether the record's line is from the server and may contain text of ours.
        may_contain_ours: bool,
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

    /// Gives back the memory of long records that were returned.
    pub(super) fn rest(&mut self) {
        self.reader.rest();
        if self.held.capacity() > HELD_BYTES_MAX {
            self.held = Vec::new();
        }
    }

    /// Returns the next record, if it is complete. On an error the position stays.
    pub fn next(&mut self, patience: Patience) -> io::Result<Next<'_>> {
        let (at, length) = match self.reader.step()? {
            Step::Record { at, bytes } if may_contain_ours(bytes) => {
                self.held.clear();
                self.held.extend_from_slice(bytes);
                (at, None)
            }
            Step::Record { at, bytes } => (at, Some(bytes.len())),
            Step::Lost { at } => return Ok(Next::Lost { at }),
            Step::End => return Ok(Next::End),
        };
        if length.is_some() {
            return Ok(Next::Record { at, bytes: self.reader.last(), successor: None, may_contain_ours: false });
        }
        let behind = self.reader.position().cloned();
        let replaces = match self.reader.step()? {
            Step::Record { bytes, .. } => Some(is_replacement(bytes)),
            Step::Lost { .. } => Some(false),
            Step::End => None,
        };
        match (replaces, patience) {
            (Some(true), _) => {
                let successor = Some(self.reader.last());
                Ok(Next::Record { at, bytes: &self.held, successor, may_contain_ours: true })
            }
            (None, Patience::Some) => {
                self.go_to(Some(at));
                Ok(Next::End)
            }
            (Some(false), _) | (None, Patience::None) => {
                self.go_to(behind);
                Ok(Next::Record { at, bytes: &self.held, successor: None, may_contain_ours: true })
            }
        }
    }
}

/// Whether the record's line is from the server and may contain text of ours.
fn may_contain_ours(record: &[u8]) -> bool {
    // The record's own fields precede the line.
    let Some(end) = memchr::memchr(b',', record) else { return false };
    let rest = match record[end..].strip_prefix(CONN) {
        Some(conn) => &conn[conn.iter().take_while(|byte| byte.is_ascii_digit()).count()..],
        None => &record[end..],
    };
    rest.starts_with(BY_SERVER) && MARK.find_iter(record).any(|at| matches!(record.get(at + 5), Some(b'e' | b'E')))
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

/// Most records in one transaction.
const BATCH_RECORDS: usize = 2_048;

/// Most bytes of records in one transaction.
const BATCH_BYTES: usize = 1 << 20;

/// After this long without a new record, none can replace the last one. Source: the contract.
const SILENCE: Duration = Duration::from_millis(250);

/// The part of a journal to read.
pub(super) struct Scope {
    pub(super) patience: Patience,
    /// Reading stops before the record at this position.
    pub(super) until: Option<Position>,
}

/// Reads the journal while nothing can be indexed.
pub(super) struct Unindexed {
    pub(super) fold: Fold,
    pub(super) follower: Follower,
    pub(super) read_at: Instant,
}

/// The result of one read.
pub(super) struct Batch {
    pub(super) fold: Fold,
    pub(super) rows: Rows,
    pub(super) is_all: bool,
}

impl Unindexed {
    /// Starts where the index has stopped or, if that is unknown, at the current run.
    pub(super) fn new(journal_dir: &Path, reached: Option<&Reached>) -> Unindexed {
        let read_at = Instant::now();
        match reached {
            Some(Reached { fold, position, .. }) => {
                Unindexed { fold: fold.clone(), follower: Follower::new(journal_dir, position.clone()), read_at }
            }
            None => {
                let segments = SegmentName::list(journal_dir).unwrap_or_default();
                let last = segments.last().map(|last| &last.generation);
                let first = segments.iter().find(|segment| Some(&segment.generation) == last);
                let from = first.map(|segment| Position { segment: segment.clone(), offset: 0 });
                Unindexed { fold: Fold::default(), follower: Follower::new(journal_dir, from), read_at }
            }
        }
    }
}

/// Folds the available records, up to a bound. On an error nothing is consumed.
pub(super) fn read(
    fold: &Fold,
    follower: &mut Follower,
    read_at: &mut Instant,
    scope: &Scope,
) -> io::Result<Option<Batch>> {
    let Scope { patience, until } = scope;
    let is_beyond = |at: &Position| until.as_ref().is_some_and(|until| at >= until);
    let from = follower.position().cloned();
    let mut batch: Option<Batch> = None;
    let begun = || Batch { fold: fold.clone(), rows: Rows::default(), is_all: false };
    let (mut records, mut bytes_read, mut is_all) = (0, 0, false);
    let is_silent = *patience == Patience::None || read_at.elapsed() >= SILENCE;
    while records < BATCH_RECORDS && bytes_read < BATCH_BYTES {
        // The next record may still replace the line of the last one.
        let stays = is_silent && (records == 0 || *patience == Patience::None);
        match follower.next(if stays { Patience::None } else { Patience::Some }) {
            Ok(Next::Record { at, .. }) if is_beyond(&at) => {
                follower.go_to(Some(at));
                is_all = true;
                break;
            }
            Ok(Next::Record { at, bytes, successor, may_contain_ours }) => {
                records += 1;
                bytes_read += bytes.len();
                let Batch { fold, rows, .. } = batch.get_or_insert_with(begun);
                take(fold, &at, (bytes, successor, may_contain_ours), rows);
            }
            Ok(Next::Lost { at }) => {
                records += 1;
                let batch = batch.get_or_insert_with(begun);
                batch.fold.lost(&at, &mut batch.rows);
            }
            Ok(Next::End) => {
                is_all = true;
                break;
            }
            Err(error) => {
                follower.go_to(from);
                return Err(error);
            }
        }
    }
    follower.rest();
    if records > 0 {
        *read_at = Instant::now();
    }
    if is_all && is_silent && (records == 0 || *patience == Patience::None) && (records > 0 || fold.awaits_silence()) {
        let batch = batch.get_or_insert_with(begun);
        batch.fold.silence(u64::MAX, &mut batch.rows);
    }
    Ok(batch.map(|batch| Batch { is_all, ..batch }))
}

/// A record, its successor, and whether its line may contain text of ours.
type Recorded<'a> = (&'a [u8], Option<&'a [u8]>, bool);

fn take(fold: &mut Fold, at: &Position, (bytes, successor, may_contain_ours): Recorded<'_>, rows: &mut Rows) {
    if !may_contain_ours && let Some(seen) = Seen::of_message(bytes) {
        fold.take(at, &seen, rows);
        return;
    }
    // The relay writes only valid records, so something else has changed the file.
    if decoded(bytes, successor, |seen| fold.take(at, seen, rows)).is_none() {
        fold.unreadable(at, rows);
    }
}

/// Decodes a record that `successor` may replace; `None` if it is not valid.
fn decoded<T>(bytes: &[u8], successor: Option<&[u8]>, take: impl FnOnce(&Seen<'_>) -> T) -> Option<T> {
    let record = Record::parse(bytes).ok()?;
    let successor = successor.and_then(|bytes| Record::parse(bytes).ok());
    Some(take(&Seen::of(&record, shown_line(&record, successor.as_ref()).as_deref())))
}

/// The line to show instead of a record's, without text of ours: the one that the client got or, while no client is attached,
/// would have got; and a message that we send for a user. `None` if the line is unchanged.
#[must_use]
pub fn shown_line<'a>(record: &'a Record<'_>, successor: Option<&'a Record<'_>>) -> Option<Cow<'a, [u8]>> {
    match (record, successor.and_then(Record::line_bytes)) {
        (_, Some(line)) => Some(Cow::Borrowed(line)),
        (Record::Line { from: Origin::Side(Side::Server), content, .. }, None) => {
            without_context(content.bytes()?).map(Cow::Owned)
        }
        (Record::Line { from: Origin::Shim, to: Some(Side::Server), replaces: false, content, .. }, None) => {
            message_without_context(content.bytes()?).map(Cow::Owned)
        }
        (Record::Line { .. } | Record::Header(_) | Record::Event { .. } | Record::Gap { .. }, None) => None,
    }
}

/// Most rows of usage, and of threads, that are held while a journal is folded again.
const ROWS_MAX: usize = 200_000;

/// The same for different uses of clients.
const USES_MAX: usize = 20_000;

/// Folds the journal from its start up to `next`. Of its rows, returns only those of usage, of threads and of the uses of clients.
pub(super) fn fold_again(journal_dir: &Path, next: &Position) -> io::Result<(Fold, Rows)> {
    let (mut fold, mut follower) = (Fold::default(), Follower::new(journal_dir, None));
    let mut used = Rows::default();
    let failed = |error: io::Error| io::Error::other(format!("read {}: {error}", journal_dir.display()));
    loop {
        let rows = &mut Rows::default();
        match follower.next(Patience::None).map_err(failed)? {
            Next::Record { at, bytes, successor, may_contain_ours } if at < *next => {
                take(&mut fold, &at, (bytes, successor, may_contain_ours), rows);
            }
            Next::Lost { at } if at < *next => fold.lost(&at, rows),
            Next::Record { .. } | Next::Lost { .. } | Next::End => return Ok((fold, used)),
        }
        if used.usage.len() < ROWS_MAX {
            used.usage.append(&mut rows.usage);
        }
        if used.threads.len() < ROWS_MAX {
            used.threads.append(&mut rows.threads);
        }
        for (key, of_key) in std::mem::take(&mut rows.uses) {
            add_use(&mut used.uses, USES_MAX, key, of_key);
        }
        used.limits = if rows.limits.is_empty() { used.limits } else { std::mem::take(&mut rows.limits) };
        used.counted_from = used.counted_from.or(rows.counted_from.take());
    }
}

/// The fold with the text that a checkpoint omits, read again from the journal up to `next`. Unreadable text is missing.
pub(super) fn recalled(fold: Fold, journal_dir: &Path, next: &Position) -> Fold {
    let mut recall = Recall::of(fold);
    let Some(from) = recall.begins().cloned() else { return recall.finish() };
    let mut follower = Follower::new(journal_dir, Some(from));
    loop {
        match follower.next(Patience::None) {
            Ok(Next::Record { at, bytes, successor, .. }) if at < *next => {
                decoded(bytes, successor, |seen| recall.take(&at, seen));
            }
            Ok(Next::Lost { .. }) => {}
            Ok(Next::Record { .. } | Next::End) => return recall.finish(),
            Err(error) => {
                tracing::warn!(%error, "read streamed text before the checkpoint again");
                return recall.finish();
            }
        }
    }
}
