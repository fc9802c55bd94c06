//! One read of the journal, and the rows that it folds to.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::committed::Reached;
use super::follow::{Follower, Next, Patience};
use crate::history::{Fold, Rows, Seen};
use crate::journal::{Position, Record, SegmentName};

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
            Ok(Next::Record { at, bytes, successor }) => {
                records += 1;
                bytes_read += bytes.len();
                take(batch.get_or_insert_with(begun), &at, bytes, successor);
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
    if records > 0 {
        *read_at = Instant::now();
    }
    if is_all && is_silent && (records == 0 || *patience == Patience::None) && (records > 0 || fold.awaits_silence()) {
        let batch = batch.get_or_insert_with(begun);
        batch.fold.silence(u64::MAX, &mut batch.rows);
    }
    Ok(batch.map(|batch| Batch { is_all, ..batch }))
}

fn take(batch: &mut Batch, at: &Position, bytes: &[u8], successor: Option<&[u8]>) {
    let Batch { fold, rows, .. } = batch;
    if successor.is_none()
        && let Some(seen) = Seen::of_message(bytes)
    {
        fold.take(at, &seen, rows);
        return;
    }
    // The relay writes only valid records, so something else has changed the file.
    let Ok(record) = Record::parse(bytes) else {
        fold.unreadable(at, rows);
        return;
    };
    let successor = successor.and_then(|bytes| Record::parse(bytes).ok());
    let replaced_by = successor.as_ref().and_then(Record::line_bytes);
    fold.take(at, &Seen::of(&record, replaced_by), rows);
}
