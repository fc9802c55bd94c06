//! Redacts and prunes a history from a command.
//!
//! *Locking.* Short transactions beside the index of a live session; for a stopped session the caller holds the index lock.

use super::model::{EVENTS, Numbered, Pruned, TOOLS, TURNS};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension as _, params};

use super::database::{form, masked_state};
use super::{client_uses, threads, usage};
use crate::config::RetentionBounds;
use crate::history::rfc3339_millis;
use crate::journal::{Generation, Position, SegmentName};
use crate::secrets::Masker;
use crate::store::{DatabaseError, DatabaseForm, Life, MaskedTable, RunMode, mask_tables, open_for, wipe};

/// The longest wait for an index's lock. A relay that deletes old rows on a busy machine holds it for seconds, and a user who masks a
/// secret would rather wait than begin again.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(60);

const TABLES: [MaskedTable; 6] = [
    MaskedTable {
        pieces: Some((
            "delta_count IS NOT NULL",
            "event_type || '/' || IFNULL(thread_id, '') || '/' || IFNULL(item_id, '')",
        )),
        ..MaskedTable::new("codex_events", &["payload_preview"], &[])
    },
    MaskedTable {
        pieces: Some(("event_type = 'output_delta'", "IFNULL(thread_id, '') || '/' || IFNULL(item_id, '')")),
        ..MaskedTable::new(
            "codex_tool_events",
            &["raw_payload_json"],
            &["command", "cwd", "file_path", "diff_summary", "error_message"],
        )
    },
    MaskedTable::new("codex_turn_events", &["raw_payload_json"], &["output_preview", "error_message"]),
    MaskedTable::new("codex_transcript_entries", &["entry"], &[]),
    MaskedTable::new("codex_usage_turns", &[], &["client", "model"]),
    MaskedTable::new("codex_threads", &[], &["title", "cwd", "branch", "remote", "model", "client_name"]),
];

const CHECKPOINT: &str = "SELECT generation, segment FROM codex_event_checkpoints";

const STATES: &str = "SELECT session_id, state FROM codex_event_checkpoints";

const SET_STATE: &str = "UPDATE codex_event_checkpoints SET state = ?2 WHERE session_id = ?1";

/// Opens a history if it exists.
fn open(path: &Path, life: Life, mode: RunMode) -> Result<Option<Connection>, String> {
    open_for(path, DatabaseForm { busy_wait_max: BUSY_WAIT_MAX, ..form() }, life, mode)
        .map_err(|error| error.to_string())
}

fn fault(path: &Path) -> impl Fn(rusqlite::Error) -> String {
    move |source| DatabaseError::Sqlite { path: path.to_owned(), source }.to_string()
}

/// The segment before which everything is indexed in the history at `path`; `None` if nothing is. The history may have a
/// running index.
///
/// # Errors
///
/// The fault of the history, as text for the user.
pub fn indexed_before(path: &Path) -> Result<Option<SegmentName>, String> {
    let Some(connection) = open(path, Life::Live, RunMode::DryRun)? else { return Ok(None) };
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?));
    let found = connection.query_row(CHECKPOINT, [], read).optional().map_err(fault(path))?;
    Ok(found.and_then(|(generation, number)| Some(SegmentName { generation: Generation::parse(&generation)?, number })))
}

/// The position of the journal up to which the history at `path` was read; `None` before its first commit. Nobody else uses the file.
///
/// # Errors
///
/// The fault of the history, as text for the user.
pub fn read_to(path: &Path) -> Result<Option<Position>, String> {
    const READ_TO: &str = "SELECT generation, segment, byte_offset FROM codex_event_checkpoints";
    let Some(connection) = open(path, Life::Stopped, RunMode::DryRun)? else { return Ok(None) };
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?, row.get::<_, i64>(2)?));
    let found = connection.query_row(READ_TO, [], read).optional().map_err(fault(path))?;
    Ok(found.and_then(|(generation, number, offset)| {
        let segment = SegmentName { generation: Generation::parse(&generation)?, number };
        Some(Position { segment, offset: u64::try_from(offset).ok()? })
    }))
}

/// Masks the secrets in the history at `path`. Returns how many rows had any. The state in memory of a running index is not
/// changed. A missing history is not an error.
///
/// # Errors
///
/// The fault of the history, as text for the user.
pub fn redact_history(path: &Path, masker: &Masker, life: Life, mode: RunMode) -> Result<u64, String> {
    let Some(mut connection) = open(path, life, mode)? else { return Ok(0) };
    let mut work = || -> rusqlite::Result<u64> {
        // A file that is only read may have an older schema without some of the tables.
        let is_there = |table: &MaskedTable| connection.table_exists(None, table.name).unwrap_or(true);
        let tables: Vec<MaskedTable> = TABLES.into_iter().filter(is_there).collect();
        let mut rows = mask_tables(&mut connection, &tables, masker, mode)?;
        rows += client_uses::redact(&connection, masker, mode)?;
        if life == Life::Stopped {
            rows += mask_states(&connection, masker, mode)?;
        }
        if mode == RunMode::Apply {
            wipe(&connection, life)?;
        }
        Ok(rows)
    };
    work().map_err(fault(path))
}

/// Masks actions in progress in the checkpoints.
fn mask_states(connection: &Connection, masker: &Masker, mode: RunMode) -> rusqlite::Result<u64> {
    let mut select = connection.prepare(STATES)?;
    let states: Vec<(String, String)> =
        select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    let mut changed = 0;
    for (session_id, state) in states {
        if let Some(masked) = masked_state(&state, masker) {
            changed += 1;
            if mode == RunMode::Apply {
                connection.execute(SET_STATE, [session_id, masked])?;
            }
        }
    }
    Ok(changed)
}

/// Counts the rows over the bounds in the history at `path`, and deletes them if `mode` says so, in short transactions of
/// one batch. A missing history is not an error.
///
/// # Errors
///
/// The fault of the history, as text for the user.
pub fn prune_history(
    path: &Path,
    bounds: &RetentionBounds,
    now_us: u64,
    life: Life,
    mode: RunMode,
) -> Result<[Over; 3], String> {
    let Some(connection) = open(path, life, mode)? else { return Ok([Over::default(); 3]) };
    let mut over = over(&connection, bounds, now_us).map_err(fault(path))?;
    if mode == RunMode::DryRun {
        return Ok(over);
    }
    let mut went = Pruned::default();
    loop {
        let pruned = prune(&connection, bounds, now_us).map_err(fault(path))?;
        if pruned.rows() == 0 {
            break;
        }
        went.add(pruned);
    }
    for (over, rows) in over.iter_mut().zip([went.events, went.tool_events, went.turn_events]) {
        over.rows = rows;
    }
    Ok(over)
}

/// Most rows that one transaction deletes.
const BATCH_ROWS: i64 = 500;

impl Numbered {
    /// Queries the lowest and the highest number.
    pub(super) fn bounds(&self) -> String {
        let Numbered { name, number, .. } = self;
        format!("SELECT (SELECT MIN({number}) FROM {name}), (SELECT MAX({number}) FROM {name})")
    }

    /// Queries the time of the oldest row.
    pub(super) fn oldest(&self) -> String {
        let Numbered { name, number, time, .. } = self;
        format!("SELECT {time} FROM {name} ORDER BY {number} LIMIT 1")
    }

    /// Deletes the oldest rows: up to a number, or those before a time, at most so many. No remaining row is older than a
    /// deleted one, so the rest has no gap.
    pub(super) fn delete(&self) -> String {
        let Numbered { name, number, time, .. } = self;
        format!(
            "DELETE FROM {name} WHERE {number} <= (
            SELECT MAX({number}) FROM (SELECT {number}, {time} FROM {name} ORDER BY {number} LIMIT ?3)
            WHERE {number} <= ?1 OR {time} < ?2)"
        )
    }

    /// Counts the rows, and their bytes, that are not among the last so many, or are from before a time.
    fn over(&self) -> String {
        let Numbered { name, number, time, large: [first, second] } = self;
        format!(
            "SELECT COUNT(*), IFNULL(SUM(IFNULL(OCTET_LENGTH({first}), 0) + IFNULL(OCTET_LENGTH({second}), 0)), 0)
            FROM {name} WHERE {number} <= (
            SELECT MAX({number}) FROM {name} WHERE {number} <= (SELECT MAX({number}) FROM {name}) - ?1 OR {time} < ?2)"
        )
    }
}

/// Deletes one batch of the rows beyond the bounds at `now_us`, in microseconds since the Unix epoch. Returns what it
/// deleted, which is nothing once all rows are within the bounds.
///
/// The checkpoint keeps the last issued number even if all rows are deleted.
pub(super) fn prune(connection: &Connection, bounds: &RetentionBounds, now_us: u64) -> rusqlite::Result<Pruned> {
    let began = Instant::now();
    let before = rfc3339_millis(before_us(bounds, now_us));
    let mut pruned = Pruned {
        events: batch(connection, EVENTS, bounds.events_max, &before)?,
        tool_events: batch(connection, TOOLS, bounds.tool_events_max, &before)?,
        turn_events: batch(connection, TURNS, bounds.turn_events_max, &before)?,
        ..Pruned::default()
    };
    usage::keep_within_bound(connection)?;
    threads::keep_within_bound(connection)?;
    client_uses::keep_within_bound(connection)?;
    if pruned.rows() > 0 {
        pruned.took_ms = began.elapsed().as_millis() as u64;
    }
    Ok(pruned)
}

/// Rows before this time are too old.
fn before_us(bounds: &RetentionBounds, now_us: u64) -> u64 {
    now_us.saturating_sub(u64::try_from(bounds.age_max.as_micros()).unwrap_or(u64::MAX))
}

/// Rows beyond a bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Over {
    pub rows: u64,
    /// Their size, in bytes.
    pub bytes: u64,
}

/// Rows beyond the bounds: events, tool events, turn events.
pub(super) fn over(connection: &Connection, bounds: &RetentionBounds, now_us: u64) -> rusqlite::Result<[Over; 3]> {
    let before = rfc3339_millis(before_us(bounds, now_us));
    let count = |table: Numbered, rows_max: u64| {
        let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let (rows, bytes) = connection.query_row(&table.over(), params![rows_max, before], read)?;
        Ok::<_, rusqlite::Error>(Over { rows: rows.try_into().unwrap_or(0), bytes: bytes.try_into().unwrap_or(0) })
    };
    Ok([
        count(EVENTS, bounds.events_max)?,
        count(TOOLS, bounds.tool_events_max)?,
        count(TURNS, bounds.turn_events_max)?,
    ])
}

fn batch(connection: &Connection, table: Numbered, rows_max: u64, before: &str) -> rusqlite::Result<u64> {
    let numbers = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?));
    let (Some(lowest), Some(highest)) = connection.prepare_cached(&table.bounds())?.query_row([], numbers)? else {
        return Ok(0);
    };
    // Row numbers are consecutive from the lowest one.
    let last_gone = highest.saturating_sub(i64::try_from(rows_max).unwrap_or(i64::MAX));
    let oldest: String = connection.prepare_cached(&table.oldest())?.query_row([], |row| row.get(0))?;
    if last_gone < lowest && *oldest >= *before {
        return Ok(0);
    }
    Ok(connection.prepare_cached(&table.delete())?.execute(params![last_gone, before, BATCH_ROWS])? as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open_database;

    /// A key that begins in one row and ends in the next: in the output of a command, and in an event that is stored
    /// truncated.
    #[test]
    fn key_split_over_two_rows_is_masked() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("history.db");
        let connection = open_database(&path, form()).expect("a new history").connection;
        let cut = |text: &str| {
            let preview = serde_json::Value::from(text);
            format!("{{\"truncated\":true,\"preview\":{preview},\"original_chars\":9000}}")
        };
        let outputs = ["\"a sk-abcdef\"".to_owned(), cut("ghijklmnopqrst b")];
        let events =
            [r#"{"itemId":"i","delta":"a sk-abcdef"}"#.to_owned(), cut(r#"{"itemId":"i","delta":"ghijklmnopqrst b"#)];
        for (number, (output, event)) in (1..).zip(outputs.iter().zip(&events)) {
            let tool = "INSERT INTO codex_tool_events (session_id, item_id, event_type, raw_payload_json, created_at)
                VALUES ('s', 'i', 'output_delta', ?1, 't')";
            connection.execute(tool, [output]).expect("a row");
            let insert = "INSERT INTO codex_events (seq, session_id, timestamp, event_type, item_id, payload_preview,
                generation, segment, byte_offset, delta_count) VALUES (?1, 's', 't', 'x/delta', 'i', ?2, 'g', 1, ?1, 2)";
            connection.execute(insert, rusqlite::params![number, event]).expect("a row");
        }
        drop(connection);
        let masker = Masker::new(&[]).expect("BUG: no pattern is wrong");
        let redact = || redact_history(&path, &masker, Life::Stopped, RunMode::Apply).expect("it can be redacted");
        assert_eq!((redact(), redact()), (4, 0));
        let connection = Connection::open(&path).expect("it is there");
        let all = "SELECT raw_payload_json FROM codex_tool_events UNION ALL SELECT payload_preview FROM codex_events";
        let mut select = connection.prepare(all).expect("our own SQL");
        let rows = select.query_map([], |row| row.get::<_, String>(0)).expect("rows");
        let rows: Vec<String> = rows.collect::<Result<_, _>>().expect("rows");
        let before: usize = outputs.iter().chain(&events).map(String::len).sum();
        assert_eq!(rows.iter().map(String::len).sum::<usize>(), before);
        for row in rows {
            assert!(
                !row.contains("abcdef") && !row.contains("ghijkl") && (row.contains("a ") || row.contains(" b")),
                "{row}"
            );
        }
    }
}
