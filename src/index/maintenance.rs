//! Redacts and prunes a history from a command.
//!
//! *Locking.* Short transactions beside the index of a live session; for a stopped session the caller holds the index lock.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _};

use super::committed::masked_state;
use super::retention::{self, Over, Pruned};
use super::schema;
use crate::config::RetentionBounds;
use crate::engine::Masker;
use crate::journal::{Generation, SegmentName};
use crate::store::{
    DatabaseError, Form, Life, MaskedTable, RunMode, mask_tables, open_database_as_is, open_read_only, wipe,
};

/// The longest wait for an index's lock.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

const TABLES: [MaskedTable; 4] = [
    MaskedTable {
        name: "codex_events",
        json: &["payload_preview"],
        text: &[],
        only: "1",
        pieces: Some((
            "delta_count IS NOT NULL",
            "event_type || '/' || IFNULL(thread_id, '') || '/' || IFNULL(item_id, '')",
        )),
    },
    MaskedTable {
        name: "codex_tool_events",
        json: &["raw_payload_json"],
        text: &["command", "cwd", "file_path", "diff_summary", "error_message"],
        only: "1",
        pieces: Some(("event_type = 'output_delta'", "IFNULL(thread_id, '') || '/' || IFNULL(item_id, '')")),
    },
    MaskedTable {
        name: "codex_turn_events",
        json: &["raw_payload_json"],
        text: &["output_preview", "error_message"],
        only: "1",
        pieces: None,
    },
    MaskedTable { name: "codex_transcript_entries", json: &["entry"], text: &[], only: "1", pieces: None },
];

const CHECKPOINT: &str = "SELECT generation, segment FROM codex_event_checkpoints";

const STATES: &str = "SELECT session_id, state FROM codex_event_checkpoints";

const SET_STATE: &str = "UPDATE codex_event_checkpoints SET state = ?2 WHERE session_id = ?1";

/// Opens a history if it exists.
fn open(path: &Path, life: Life, mode: RunMode) -> Result<Option<Connection>, String> {
    let opened = match mode {
        RunMode::Apply if !path.exists() => Ok(None),
        RunMode::Apply => open_database_as_is(path, Form { busy_wait_max: BUSY_WAIT_MAX, ..schema::form() }).map(Some),
        RunMode::DryRun => open_read_only(path, life, BUSY_WAIT_MAX),
    };
    opened.map_err(|error| error.to_string())
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
pub(crate) fn indexed_before(path: &Path) -> Result<Option<SegmentName>, String> {
    let Some(connection) = open(path, Life::Live, RunMode::DryRun)? else { return Ok(None) };
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?));
    let found = connection.query_row(CHECKPOINT, [], read).optional().map_err(fault(path))?;
    Ok(found.and_then(|(generation, number)| Some(SegmentName { generation: Generation::parse(&generation)?, number })))
}

/// Masks the secrets in the history at `path`. Returns how many rows had any. The state in memory of a running index is not
/// changed. A missing history is not an error.
///
/// # Errors
///
/// The fault of the history, as text for the user.
pub(crate) fn redact_history(path: &Path, masker: &Masker, life: Life, mode: RunMode) -> Result<u64, String> {
    let Some(mut connection) = open(path, life, mode)? else { return Ok(0) };
    let mut work = || -> rusqlite::Result<u64> {
        let mut rows = mask_tables(&mut connection, &TABLES, masker, mode)?;
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
pub(crate) fn prune_history(
    path: &Path,
    bounds: &RetentionBounds,
    now_us: u64,
    life: Life,
    mode: RunMode,
) -> Result<[Over; 3], String> {
    let Some(connection) = open(path, life, mode)? else { return Ok([Over::default(); 3]) };
    let mut over = retention::over(&connection, bounds, now_us).map_err(fault(path))?;
    if mode == RunMode::DryRun {
        return Ok(over);
    }
    let mut went = Pruned::default();
    loop {
        let pruned = retention::prune(&connection, bounds, now_us).map_err(fault(path))?;
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
        let connection = open_database(&path, schema::form()).expect("a new history").connection;
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
