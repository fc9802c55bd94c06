//! Queries on a history.
//!
//! *Locking.* Each query uses a connection of its own and reads the last commit; the index never waits for it. A few
//! connections are kept for later queries.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params};
use serde_json::value::RawValue;

use crate::files;
use crate::store::is_corrupt;

use super::epochs::{Cause, Epoch};
use super::page::{Around, Begun, Cursor, EventDocument, EventPage};

/// How long a reader waits if the whole file is locked.
const BUSY_WAIT_MAX: Duration = Duration::from_millis(100);

pub(super) const BOUNDS: &str = "SELECT (SELECT MIN(seq) FROM codex_events), (SELECT MAX(seq) FROM codex_events)";

pub(super) const LAST_SEQ: &str = "SELECT last_seq FROM codex_event_checkpoints";

pub(super) const EPOCH: &str = "SELECT epoch, after_seq, cause, promised FROM codex_event_epochs";

pub(super) const LAST_GAP: &str = "SELECT MAX(after_seq) FROM codex_event_gaps";

pub(super) const EVENTS_AFTER: &str = "
    SELECT seq, session_id, timestamp, event_type, thread_id, turn_id, item_id, payload_preview, generation, segment,
        byte_offset, delta_count
    FROM codex_events WHERE seq > ?1 ORDER BY seq LIMIT ?2";

pub(super) const LAST_EVENTS: &str = "
    SELECT * FROM (
        SELECT seq, session_id, timestamp, event_type, thread_id, turn_id, item_id, payload_preview, generation, segment,
            byte_offset, delta_count
        FROM codex_events ORDER BY seq DESC LIMIT ?1
    ) ORDER BY seq";

/// Why a history cannot be read.
#[derive(Debug)]
pub struct HistoryError {
    path: PathBuf,
    source: rusqlite::Error,
}

impl HistoryError {
    /// Whether the file is corrupt.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        is_corrupt(&self.source)
    }
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read {}: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for HistoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Most idle connections that are kept.
const CONNECTIONS_KEPT_MAX: usize = 2;

/// A history, for queries.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    kept: Mutex<Vec<Kept>>,
}

/// A connection, and the number of the database that it belongs to.
#[derive(Debug)]
struct Kept {
    opened: u64,
    connection: Connection,
}

impl History {
    /// The history in the file at `path`, which may not exist yet.
    #[must_use]
    pub fn new(path: &Path) -> History {
        History { path: path.to_owned(), kept: Mutex::default() }
    }

    /// At most `limit` events after the cursor `since`, or the last ones. `opened` is the number of the database;
    /// `is_behind` says that some recorded lines are not indexed. A cursor of another history gets the oldest page.
    pub fn events(
        &self,
        since: Option<&Cursor>,
        limit: u64,
        opened: u64,
        is_behind: bool,
    ) -> Result<EventPage, HistoryError> {
        self.read(opened, |connection| {
            let transaction = connection.unchecked_transaction()?;
            let bounds = |row: &Row<'_>| Ok((number(row, 0)?, number(row, 1)?));
            let (earliest, latest) = transaction.prepare_cached(BOUNDS)?.query_row([], bounds)?;
            let given = |row: &Row<'_>| number(row, 0);
            let last = transaction.prepare_cached(LAST_SEQ)?.query_row([], given).optional()?.flatten();
            let epoch = epoch(&transaction)?;
            let last = last.unwrap_or_else(|| epoch.as_ref().map_or(0, |epoch| epoch.after_seq));
            let around = Around {
                // An empty table still has a last number.
                earliest: earliest.or((last > 0).then_some(last + 1)),
                last,
                last_gap_after: transaction.prepare_cached(LAST_GAP)?.query_row([], given)?,
                is_behind,
                epoch,
            };
            let begun = Begun::of(since, &around);
            let epoch = around.epoch.as_ref().map(|epoch| epoch.id.clone());
            let events = rows(&transaction, begun.from, limit, epoch.as_deref())?;
            let first = events.first().and_then(|event| event.seq);
            let last_of_page = events.last().and_then(|event| event.seq);
            let (next_seq, gap_reason) = begun.end(first, last_of_page, &around);
            Ok(EventPage {
                events,
                earliest_seq: earliest,
                latest_seq: latest,
                next_seq,
                history_gap: gap_reason.is_some(),
                gap_reason,
                epoch,
            })
        })
    }

    /// Runs a query on a kept connection or a new one.
    pub(super) fn read<T>(
        &self,
        opened: u64,
        ask: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, HistoryError> {
        let failed = |source| HistoryError { path: self.path.clone(), source };
        let connection = match self.take(opened) {
            Some(connection) => connection,
            None => self.connect().map_err(failed)?,
        };
        // After a failure the connection is dropped: the next one may open a readable file.
        let asked = ask(&connection).map_err(failed)?;
        let mut kept = self.kept();
        if kept.len() < CONNECTIONS_KEPT_MAX {
            kept.push(Kept { opened, connection });
        }
        Ok(asked)
    }

    /// A kept connection to the database number `opened`; connections to others are closed.
    fn take(&self, opened: u64) -> Option<Connection> {
        let mut kept = self.kept();
        kept.retain(|kept| kept.opened == opened);
        kept.pop().map(|kept| kept.connection)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let refused = |error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
        let file = files::database(&self.path).map_err(refused)?;
        let connection = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NOFOLLOW)?;
        connection.busy_timeout(BUSY_WAIT_MAX)?;
        Ok(connection)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A non-negative number.
pub(super) fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.and_then(|value| u64::try_from(value).ok()))
}

/// The epoch of the numbers; `None` before the index has written one.
pub(super) fn epoch(connection: &Connection) -> rusqlite::Result<Option<Epoch>> {
    let read = |row: &Row<'_>| {
        let cause: String = row.get(2)?;
        Ok(Epoch {
            id: row.get(0)?,
            after_seq: number(row, 1)?.unwrap_or(0),
            cause: Cause::of_name(&cause).unwrap_or(Cause::OtherHistory),
            promised: number(row, 3)?.unwrap_or(0),
        })
    };
    connection.prepare_cached(EPOCH)?.query_row([], read).optional()
}

fn rows(
    connection: &Connection,
    after: Option<u64>,
    limit: u64,
    epoch: Option<&str>,
) -> rusqlite::Result<Vec<EventDocument>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let event = |row: &Row<'_>| event(row, epoch);
    match after {
        Some(after) => {
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            connection.prepare_cached(EVENTS_AFTER)?.query_map(params![after, limit], event)?.collect()
        }
        None => connection.prepare_cached(LAST_EVENTS)?.query_map(params![limit], event)?.collect(),
    }
}

fn event(row: &Row<'_>, epoch: Option<&str>) -> rusqlite::Result<EventDocument> {
    let generation: String = row.get(8)?;
    let (segment, offset): (i64, i64) = (row.get(9)?, row.get(10)?);
    let payload: String = row.get(7)?;
    Ok(EventDocument {
        session_id: row.get(1)?,
        seq: number(row, 0)?,
        timestamp: row.get(2)?,
        event_type: row.get(3)?,
        thread_id: row.get(4)?,
        turn_id: row.get(5)?,
        item_id: row.get(6)?,
        payload_preview: RawValue::from_string(payload).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        key: format!("{generation}:{segment}:{offset}"),
        generation,
        delta_count: number(row, 11)?,
        persisted: true,
        epoch: epoch.map(str::to_owned),
    })
}
