//! Queries on a history: its events, tool and turn rows, and transcripts.
//!
//! *Locking.* Each query uses a connection of its own and reads the last commit; the index never waits for it. A few
//! connections are kept for later queries.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params};
use serde_json::Value;
use serde_json::value::RawValue;

use super::model::{self, Cause, Epoch, Numbered, last_row};
use crate::api::{Cursor, EventDocument, EventPage, GapReason, RowPage, ToolRowDocument, TurnRowDocument};
use crate::files;
use crate::history::{Action, KeptTool, Phase, ToolRow, actions};
use crate::protocol::of_name;
use crate::store::is_corrupt;

/// How long a reader waits if the whole file is locked.
const BUSY_WAIT_MAX: Duration = Duration::from_millis(100);

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
            let (earliest, latest) = transaction.prepare_cached(&model::EVENTS.bounds())?.query_row([], bounds)?;
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
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.and_then(|value| u64::try_from(value).ok()))
}

/// The epoch of the numbers; `None` before the index has written one.
fn epoch(connection: &Connection) -> rusqlite::Result<Option<Epoch>> {
    connection.prepare_cached(EPOCH)?.query_row([], epoch_in).optional()
}

/// The epoch in a row of `codex_event_epochs`.
pub(super) fn epoch_in(row: &Row<'_>) -> rusqlite::Result<Epoch> {
    let cause: String = row.get(2)?;
    Ok(Epoch {
        id: row.get(0)?,
        after_seq: number(row, 1)?.unwrap_or(0),
        cause: of_name(&cause).unwrap_or(Cause::OtherHistory),
        promised: number(row, 3)?.unwrap_or(0),
    })
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
        key: Some(format!("{generation}:{segment}:{offset}")),
        generation: Some(generation),
        delta_count: number(row, 11)?,
        persisted: true,
        epoch: epoch.map(str::to_owned),
    })
}

impl EventPage {
    /// The answer if the history cannot be read at all.
    #[must_use]
    pub fn unreadable(since: Option<u64>) -> EventPage {
        EventPage {
            events: Vec::new(),
            earliest_seq: None,
            latest_seq: None,
            next_seq: next_seq(None, since),
            history_gap: true,
            gap_reason: Some(GapReason::PersistenceError),
            epoch: None,
        }
    }
}

/// The start of a page for a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    /// The page starts after this number; `None` for the last rows.
    pub(super) from: Option<u64>,
    /// The reason, if the cursor does not belong to this history.
    other_history: Option<GapReason>,
}

impl Begun {
    /// The start of the page for a reader.
    pub(super) fn of(since: Option<&Cursor>, around: &Around) -> Begun {
        match since.map(|cursor| begin(cursor, around)) {
            Some((from, other_history)) => Begun { from: Some(from), other_history },
            None => Begun { from: None, other_history: None },
        }
    }

    /// One more than the next cursor, and the gap to report, for a page with these first and last numbers.
    pub(super) fn end(self, first: Option<u64>, last: Option<u64>, around: &Around) -> (u64, Option<GapReason>) {
        let Begun { from, other_history } = self;
        let gap_reason = other_history.or_else(|| gap(from, first, around));
        let next = match other_history {
            // An empty page must not skip the next event.
            Some(GapReason::NewEpoch | GapReason::CursorAhead) => last.unwrap_or(around.last) + 1,
            Some(GapReason::Retention | GapReason::PersistenceError | GapReason::JournalGap | GapReason::Newer(_))
            | None => next_seq(last, from),
        };
        (next, gap_reason)
    }
}

/// Facts about a table besides the rows of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Around {
    /// The lowest number in the table, or the next one if the table is empty.
    pub(super) earliest: Option<u64>,
    /// The last issued number.
    pub(super) last: u64,
    /// The number before the last stretch that the journal lacks.
    pub(super) last_gap_after: Option<u64>,
    /// Some recorded lines are not indexed.
    pub(super) is_behind: bool,
    /// `None` while the database is being created.
    pub(super) epoch: Option<Epoch>,
}

/// The number before the page of a cursor, and the reason if that is not the cursor itself. If the cursor does not belong
/// to this history, the oldest page has every event that its reader can lack.
fn begin(cursor: &Cursor, around: &Around) -> (u64, Option<GapReason>) {
    let Some(epoch) = &around.epoch else { return (cursor.seq, Some(GapReason::PersistenceError)) };
    if cursor.epoch.as_ref().is_some_and(|of| *of != epoch.id) {
        return (0, Some(GapReason::NewEpoch));
    }
    if cursor.seq > around.last.max(epoch.promised) {
        return (0, Some(GapReason::CursorAhead));
    }
    if cursor.seq > around.last {
        // The database is being rebuilt and does not have that number yet.
        return (cursor.seq, Some(GapReason::PersistenceError));
    }
    match epoch.cause {
        Cause::First | Cause::StartLost => (cursor.seq, None),
        Cause::JournalShorter
        | Cause::MachineRestarted
        | Cause::Copied
        | Cause::OtherHistory
        | Cause::OtherEvents
        | Cause::OtherVersion => (cursor.seq, (cursor.seq < epoch.after_seq).then_some(GapReason::NewEpoch)),
    }
}

/// The gap to report for a cursor. `first` is the first number of the page, if any.
fn gap(since: Option<u64>, first: Option<u64>, around: &Around) -> Option<GapReason> {
    let Around { earliest, last_gap_after, is_behind, .. } = *around;
    // Without a cursor, the page itself is the position.
    let since = since.or(first.map(|first| first.saturating_sub(1)));
    let is_before = |seq: u64| since.is_some_and(|since| since < seq);
    if earliest.is_some_and(|earliest| is_before(earliest.saturating_sub(1))) {
        return Some(GapReason::Retention);
    }
    if is_behind {
        return Some(GapReason::PersistenceError);
    }
    last_gap_after.filter(|after| is_before(after + 1)).map(|_| GapReason::JournalGap)
}

/// One more than the next cursor.
fn next_seq(last: Option<u64>, since: Option<u64>) -> u64 {
    last.map_or_else(|| since.map_or(1, |since| since.saturating_add(1)), |last| last + 1)
}

/// A row of a table that is returned as it is.
pub trait TableRow: Sized {
    const TABLE: Numbered;

    /// Reads a row with all columns in the order of the table. A column of JSON is parsed, and loses the suffix of its name.
    fn of(row: &Row<'_>) -> rusqlite::Result<Self>;

    fn id(&self) -> u64;
}

impl TableRow for ToolRowDocument {
    const TABLE: Numbered = model::TOOLS;

    fn of(row: &Row<'_>) -> rusqlite::Result<ToolRowDocument> {
        Ok(ToolRowDocument {
            id: number(row, 0)?.unwrap_or(0),
            session_id: row.get(1)?,
            thread_id: row.get(2)?,
            turn_id: row.get(3)?,
            item_id: row.get(4)?,
            request_id: row.get(5)?,
            event_type: row.get(6)?,
            item_type: row.get(7)?,
            phase: row.get(8)?,
            command: row.get(9)?,
            cwd: row.get(10)?,
            exit_code: row.get(11)?,
            file_path: row.get(12)?,
            diff_summary: row.get(13)?,
            approval_decision: row.get(14)?,
            latency_ms: row.get(15)?,
            final_status: row.get(16)?,
            error_code: row.get(17)?,
            error_message: row.get(18)?,
            raw_payload: json_in(row, 19)?,
            created_at: row.get(20)?,
        })
    }

    fn id(&self) -> u64 {
        self.id
    }
}

impl TableRow for TurnRowDocument {
    const TABLE: Numbered = model::TURNS;

    fn of(row: &Row<'_>) -> rusqlite::Result<TurnRowDocument> {
        Ok(TurnRowDocument {
            id: number(row, 0)?.unwrap_or(0),
            session_id: row.get(1)?,
            thread_id: row.get(2)?,
            turn_id: row.get(3)?,
            event_type: row.get(4)?,
            status: row.get(5)?,
            latency_ms: row.get(6)?,
            delta_chars: row.get(7)?,
            output_preview: row.get(8)?,
            input_tokens: row.get(9)?,
            output_tokens: row.get(10)?,
            error_code: row.get(11)?,
            error_message: row.get(12)?,
            raw_payload: json_in(row, 13)?,
            created_at: row.get(14)?,
        })
    }

    fn id(&self) -> u64 {
        self.id
    }
}

/// The JSON in a column; `null` if it has none.
fn json_in(row: &Row<'_>, column: usize) -> rusqlite::Result<Value> {
    let json = row.get_ref(column)?.as_str_or_null()?;
    Ok(json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default())
}

pub(super) const LAST_TOOLS: &str = "SELECT * FROM codex_tool_events ORDER BY id DESC LIMIT ?1";

const THREADS: &str = "
    SELECT thread_id FROM (SELECT thread_id, MAX(id) AS last FROM codex_transcript_entries GROUP BY thread_id)
    ORDER BY last DESC";

const LATEST_THREAD: &str = "SELECT thread_id FROM codex_transcript_entries ORDER BY id DESC LIMIT 1";

/// The threads that a person speaks in come first.
const THREADS_OF_PERSONS_FIRST: &str = "
    SELECT thread_id FROM (SELECT thread_id, MAX(id) AS last FROM codex_transcript_entries GROUP BY thread_id)
    LEFT JOIN codex_threads USING (thread_id)
    ORDER BY IFNULL(kind, 'user') <> 'user', last DESC";

/// Most rows searched for the last action.
const LAST_ACTION_ROWS: i64 = 200;

/// Most rows searched for actions.
const ACTION_ROWS_MAX: i64 = 5_000;

pub(super) const TRANSCRIPT_NEWEST_FIRST: &str =
    "SELECT entry FROM codex_transcript_entries WHERE thread_id = ?1 ORDER BY place_us DESC, id DESC";

pub(super) const TRANSCRIPT: &str =
    "SELECT entry FROM codex_transcript_entries WHERE thread_id = ?1 ORDER BY place_us, id";

/// The same in a history that an older version writes, which has no places.
const ARRIVED_NEWEST_FIRST: &str = "SELECT entry FROM codex_transcript_entries WHERE thread_id = ?1 ORDER BY id DESC";

const ARRIVED: &str = "SELECT entry FROM codex_transcript_entries WHERE thread_id = ?1 ORDER BY id";

impl History {
    /// At most `limit` rows after the cursor `since`, or the last ones, like [`History::events`]. Only events report
    /// journal gaps.
    pub fn rows<T: TableRow>(
        &self,
        since: Option<&Cursor>,
        limit: u64,
        opened: u64,
        is_behind: bool,
    ) -> Result<RowPage<T>, HistoryError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(opened, |connection| {
            let connection = connection.unchecked_transaction()?;
            let bounds = |row: &Row<'_>| Ok((number(row, 0)?, number(row, 1)?));
            let (earliest, latest) = connection.prepare_cached(&T::TABLE.bounds())?.query_row([], bounds)?;
            let around = around(&connection, &T::TABLE, earliest, is_behind)?;
            let begun = Begun::of(since, &around);
            let events: Vec<T> = match begun.from {
                Some(since) => {
                    let since = i64::try_from(since).unwrap_or(i64::MAX);
                    let mut select = connection.prepare_cached(&T::TABLE.after())?;
                    select.query_map(params![since, limit], T::of)?.collect::<Result<_, _>>()?
                }
                None => {
                    let mut select = connection.prepare_cached(&T::TABLE.last())?;
                    select.query_map(params![limit], T::of)?.collect::<Result<_, _>>()?
                }
            };
            let (first, last) = (events.first().map(T::id), events.last().map(T::id));
            let (next_id, gap_reason) = begun.end(first, last, &around);
            Ok(RowPage {
                events,
                earliest_id: earliest,
                latest_id: latest,
                next_id,
                history_gap: gap_reason.is_some(),
                gap_reason,
                epoch: around.epoch.map(|epoch| epoch.id),
            })
        })
    }

    /// The `limit` most recently changed actions.
    pub fn actions(&self, limit: u64, opened: u64) -> Result<Vec<Action>, HistoryError> {
        self.read(opened, |connection| {
            let mut select = connection.prepare_cached(LAST_TOOLS)?;
            let mut failed = None;
            let rows_max =
                i64::try_from(limit).unwrap_or(i64::MAX).saturating_mul(LAST_ACTION_ROWS).min(ACTION_ROWS_MAX);
            let rows = select
                .query_map([rows_max], kept_tool)?
                .map_while(|row| row.map_err(|error| failed = Some(error)).ok());
            let found = actions(rows.flatten(), usize::try_from(limit).unwrap_or(usize::MAX));
            failed.map_or(Ok(found), Err)
        })
    }

    /// The last action in each of `threads`, if it is recent.
    pub fn last_actions(&self, threads: &[String], opened: u64) -> Result<Vec<Option<Action>>, HistoryError> {
        self.read(opened, |connection| {
            let mut select = connection.prepare_cached(LAST_TOOLS)?;
            let rows = select.query_map([LAST_ACTION_ROWS], kept_tool)?.collect::<Result<Vec<_>, _>>()?;
            let last = |thread: &String| {
                let of_thread = rows.iter().flatten().filter(|kept| kept.row.thread_id.as_deref() == Some(thread));
                actions(of_thread.cloned(), 1).pop()
            };
            Ok(threads.iter().map(last).collect())
        })
    }

    /// The threads with a transcript, those of persons before others, the most recent first.
    pub fn threads(&self, opened: u64) -> Result<Vec<String>, HistoryError> {
        self.read(opened, |connection| {
            let select = connection.prepare_cached(THREADS_OF_PERSONS_FIRST);
            // A history that an older version writes does not know who threads are.
            let mut select = select.or_else(|_| connection.prepare_cached(THREADS))?;
            select.query_map([], |row| row.get(0))?.collect()
        })
    }

    /// The thread of the last entry of all transcripts, whatever it is for.
    pub fn latest_thread(&self, opened: u64) -> Result<Option<String>, HistoryError> {
        self.read(opened, |connection| {
            connection.prepare_cached(LATEST_THREAD)?.query_row([], |row| row.get(0)).optional()
        })
    }

    /// The end of a thread's transcript, as JSON, oldest first: as many whole entries as fit into `bytes_max`.
    pub fn transcript_end(&self, thread_id: &str, bytes_max: usize, opened: u64) -> Result<Vec<String>, HistoryError> {
        self.read(opened, |connection| {
            let [in_order, by_arrival] = [TRANSCRIPT_NEWEST_FIRST, ARRIVED_NEWEST_FIRST];
            let mut select = connection.prepare_cached(in_order).or_else(|_| connection.prepare_cached(by_arrival))?;
            let mut rows = select.query([thread_id])?;
            let (mut entries, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let entry: String = row.get(0)?;
                bytes += entry.len();
                if bytes > bytes_max {
                    break;
                }
                entries.push(entry);
            }
            entries.reverse();
            Ok(entries)
        })
    }

    /// A thread's transcript, as JSON, oldest first.
    pub fn transcript(&self, thread_id: &str, opened: u64) -> Result<Vec<String>, HistoryError> {
        self.read(opened, |connection| {
            let [in_order, by_arrival] = [TRANSCRIPT, ARRIVED];
            let mut select = connection.prepare_cached(in_order).or_else(|_| connection.prepare_cached(by_arrival))?;
            select.query_map([thread_id], |row| row.get(0))?.collect()
        })
    }
}

/// Facts about a table besides the rows of a page.
fn around(
    connection: &Connection,
    table: &Numbered,
    earliest: Option<u64>,
    is_behind: bool,
) -> rusqlite::Result<Around> {
    let last = last_row(connection, table.name)?;
    let epoch = epoch(connection)?.map(|epoch| {
        // An older version's row numbers did not start with the epoch.
        let is_older = earliest.is_some_and(|earliest| earliest <= epoch.after_seq);
        let after_seq = if is_older { 0 } else { epoch.after_seq };
        // A database that is being rebuilt does not know its last row number.
        let promised = if is_behind { u64::MAX } else { 0 };
        Epoch { after_seq, promised, ..epoch }
    });
    let last = last.unwrap_or_else(|| epoch.as_ref().map_or(0, |epoch| epoch.after_seq));
    // An empty table still has a last number.
    let earliest = earliest.or((last > 0).then_some(last + 1));
    Ok(Around { earliest, last, last_gap_after: None, is_behind, epoch })
}

/// A row of `codex_tool_events` with all columns in the order of the table; `None` if its event is unknown.
///
/// A look-up of a column by its name compares it with the names of all columns, in each row.
pub(super) fn kept_tool(row: &Row<'_>) -> rusqlite::Result<Option<KeptTool>> {
    let text = |column: usize| row.get::<_, Option<String>>(column);
    let session_id = row.get(1)?;
    let Some(event_type) = of_name(row.get_ref(6)?.as_str()?) else { return Ok(None) };
    let created_at = row.get_ref(20)?.as_str()?;
    let at = humantime::parse_rfc3339(created_at).unwrap_or(UNIX_EPOCH);
    let row = ToolRow {
        at_us: at.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64,
        thread_id: text(2)?,
        turn_id: text(3)?,
        item_id: text(4)?,
        request_id: text(5)?,
        event_type,
        item_type: text(7)?,
        phase: row.get_ref(8)?.as_str_or_null()?.and_then(of_name).unwrap_or(Phase::Running),
        command: text(9)?,
        cwd: text(10)?,
        exit_code: row.get(11)?,
        file_path: text(12)?,
        diff_summary: text(13)?,
        approval_decision: text(14)?,
        latency_ms: row.get::<_, Option<i64>>(15)?.and_then(|value| u64::try_from(value).ok()),
        final_status: text(16)?,
        error_code: text(17)?,
        error_message: text(18)?,
        raw_payload_json: text(19)?,
    };
    Ok(Some(KeptTool { session_id, row }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_gets_its_gap_reason() {
        let around = Around { earliest: Some(11), last: 90, last_gap_after: Some(50), ..Around::default() };
        let check = |since, expect| assert_eq!(gap(since, Some(60), &around), expect, "{since:?}");
        check(Some(0), Some(GapReason::Retention));
        check(Some(9), Some(GapReason::Retention));
        check(Some(10), Some(GapReason::JournalGap));
        check(Some(50), Some(GapReason::JournalGap));
        check(Some(51), None);
        check(Some(u64::MAX), None);
        check(None, None);
        let behind = Around { is_behind: true, ..around.clone() };
        assert_eq!(gap(Some(0), None, &behind), Some(GapReason::Retention));
        assert_eq!(gap(Some(10), None, &behind), Some(GapReason::PersistenceError));
        assert_eq!(gap(Some(90), None, &behind), Some(GapReason::PersistenceError));
        assert_eq!(gap(Some(7), None, &Around::default()), None);
    }

    #[test]
    fn cursor_of_another_history_gets_the_oldest_page() {
        let epoch = |cause| Epoch { id: "b".to_owned(), after_seq: 20, cause, promised: 40 };
        let check = |seq: u64, of: Option<&str>, cause, expect| {
            let around = Around { last: 30, epoch: Some(epoch(cause)), ..Around::default() };
            let cursor = Cursor { seq, epoch: of.map(str::to_owned) };
            assert_eq!(begin(&cursor, &around), expect, "{cursor:?} {cause:?}");
        };
        check(25, None, Cause::Copied, (25, None));
        check(25, Some("b"), Cause::Copied, (25, None));
        check(25, Some("a"), Cause::Copied, (0, Some(GapReason::NewEpoch)));
        check(19, None, Cause::Copied, (19, Some(GapReason::NewEpoch)));
        check(20, None, Cause::Copied, (20, None));
        check(19, None, Cause::StartLost, (19, None));
        check(31, None, Cause::First, (31, Some(GapReason::PersistenceError)));
        check(41, None, Cause::First, (0, Some(GapReason::CursorAhead)));
        check(u64::MAX, Some("b"), Cause::First, (0, Some(GapReason::CursorAhead)));
        let begun = Around { last: 30, ..Around::default() };
        assert_eq!(begin(&Cursor::from(99), &begun), (99, Some(GapReason::PersistenceError)));
    }

    #[test]
    fn next_seq_follows_the_page() {
        assert_eq!((next_seq(Some(7), Some(3)), next_seq(None, Some(3)), next_seq(None, None)), (8, 4, 1));
        assert_eq!(next_seq(None, Some(u64::MAX)), u64::MAX);
    }
}

/// No query of a history scans or sorts more rows than it returns, judging by SQLite's own counters.
#[cfg(test)]
mod plan_tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::index::{database, search, transcripts};

    /// Rows per table: more than a query returns, and enough that a scan would show.
    const ROWS: i64 = 3_000;

    fn filled() -> Connection {
        let mut connection = Connection::open_in_memory().expect("memory");
        let form = database::form();
        form.migrations.iter().for_each(|migration| connection.execute_batch(migration).expect("our own SQL"));
        let transaction = connection.transaction().expect("a transaction");
        for row in 1..=ROWS {
            let thread = format!("t{}", row % 3);
            for (sql, words) in [
            (
                "INSERT INTO codex_events (seq, session_id, timestamp, event_type, thread_id, payload_preview, generation,
                    segment, byte_offset) VALUES (?1, 's', '2026-01-01T00:00:00.000Z', 'x', ?2, '{}', 'g', 1, ?1)",
                &thread,
            ),
            (
                "INSERT INTO codex_tool_events (session_id, thread_id, event_type, phase, created_at)
                    VALUES ('s', ?2, 'started', 'running', '2026-01-01T00:00:00.000Z' || substr(?1, 1, 0))",
                &thread,
            ),
            (
                "INSERT INTO codex_turn_events (session_id, thread_id, event_type, created_at)
                    VALUES ('s', ?2, 'started', '2026-01-01T00:00:00.000Z' || substr(?1, 1, 0))",
                &thread,
            ),
            (
                "INSERT INTO codex_transcript_entries (session_id, thread_id, identity, entry) VALUES ('s', ?2, ?1, '{}')",
                &thread,
            ),
            (
                "INSERT INTO codex_event_gaps (session_id, after_seq, lines, reason)
                    VALUES ('s', ?1, 1, 'x' || substr(?2, 1, 0))",
                &thread,
            ),
        ] {
            transaction.execute(sql, params![row, words]).expect("a row");
        }
        }
        transaction.commit().expect("rows");
        connection
    }

    /// Rows stepped over without an index, sorts, and rows returned or changed.
    fn cost(connection: &Connection, sql: &str, arguments: &[&dyn rusqlite::ToSql]) -> (i32, i32, usize) {
        let mut statement = connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let rows = match statement.column_count() {
            0 => statement.execute(arguments).expect("it can be carried out"),
            _ => {
                let mut rows = statement.query(arguments).expect("it can be asked");
                let mut count = 0;
                while rows.next().expect("a row").is_some() {
                    count += 1;
                }
                count
            }
        };
        (statement.get_status(StatementStatus::FullscanStep), statement.get_status(StatementStatus::Sort), rows)
    }

    #[test]
    fn no_question_reads_more_than_it_tells_of() {
        let connection = filled();
        let check = |sql: &str, arguments: &[&dyn rusqlite::ToSql], rows_told: usize| {
            let (scanned, sorts, rows) = cost(&connection, sql, arguments);
            assert_eq!(rows, rows_told, "{sql}");
            assert!(scanned as usize <= rows_told, "{scanned} rows are looked at one by one for {rows_told}: {sql}");
            assert_eq!(sorts, 0, "{sql}");
        };
        let last = ROWS - 1;
        check(LAST_SEQ, &[], 0);
        check(LAST_GAP, &[], 1);
        check(EVENTS_AFTER, &[&(ROWS / 2), &500], 500);
        check(EVENTS_AFTER, &[&last, &500], 1);
        for table in [model::TOOLS, model::TURNS] {
            check(&table.after(), &[&(ROWS / 2), &500], 500);
        }
        check(LAST_TOOLS, &[&200], 200);
        check(transcripts::LINES_BEFORE, &[&last, &300], 300);
        check(transcripts::LINES_AFTER, &[&(ROWS / 2), &300, &last], 300);
        check(transcripts::LINE_FROM, &[&(ROWS / 2)], 1);
        check(transcripts::LAST_LINE, &[], 1);
        check(transcripts::FIRST_EVENT, &[], 1);
        check(transcripts::JOURNAL_GAPS, &[&100], 100);
        check(TRANSCRIPT, &[&"t1"], ROWS as usize / 3);
        check(TRANSCRIPT_NEWEST_FIRST, &[&"t1"], ROWS as usize / 3);
        check(transcripts::ENTRY_AT, &[&"t1", &7], 1);
        check(transcripts::FIRST_WORDS, &[&"t1"], 0);
        check(search::UNFILLED, &[&(ROWS / 2), &256], 256);
        for pruning in [model::EVENTS, model::TOOLS, model::TURNS] {
            check(&pruning.bounds(), &[], 1);
            check(&pruning.oldest(), &[], 1);
            // A batch is visited twice: to find its end, and to delete it.
            let (scanned, _, rows) = cost(&connection, &pruning.delete(), &[&10, &"2025", &500]);
            assert!(rows == 10 && scanned <= 1_000, "{rows} {scanned}: {}", pruning.delete());
        }
        // Only the returned rows are sorted again.
        for (sql, rows_told) in [(LAST_EVENTS.to_owned(), 500), (model::TOOLS.last(), 500), (model::TURNS.last(), 500)]
        {
            let (scanned, _, rows) = cost(&connection, &sql, &[&500]);
            assert!(rows == rows_told && scanned as usize <= 2 * rows_told, "{rows} {scanned}: {sql}");
        }
    }

    #[test]
    fn a_scan_is_seen_for_one() {
        let (scanned, sorts, rows) =
            cost(&filled(), "SELECT seq FROM codex_events WHERE event_type = 'y' ORDER BY timestamp", &[]);
        assert!(scanned as i64 >= ROWS - 1 && sorts == 1 && rows == 0, "{scanned} {sorts} {rows}");
    }
}
