//! Masks secrets in stored rows.
//!
//! *Locking.* Rows are read and masked without a lock. Changes are written in short transactions, each row only if it still
//! has the value that was read. In a live session that is all; in a stopped one the file is then rebuilt, so that no
//! deleted or overwritten data stays in it.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params_from_iter};

use super::database::{self, DatabaseError, Life};
use super::ledger::LEDGER_FILE;
use super::ledger_writer::form;
use crate::secrets::{InPieces, Masker, Pieces};

/// Most rows that one transaction changes.
const BATCH_ROWS: usize = 100;

/// The longest wait for a relay's lock.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

/// The longest that a relay may wait while the log of a database is truncated.
const WIPE_WAIT_MAX: Duration = Duration::from_millis(50);

/// Attempts to truncate it.
const WIPE_TRIES: u32 = 20;

/// Whether to change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunMode {
    Apply,
    /// Only count.
    DryRun,
}

pub(crate) struct MaskedTable {
    pub(crate) name: &'static str,
    pub(crate) json: &'static [&'static str],
    pub(crate) text: &'static [&'static str],
    /// An SQL condition that selects the rows.
    pub(crate) only: &'static str,
    /// For pieces of a longer text in the first JSON column: SQL for the condition that selects their rows, and for what
    /// they belong to.
    pub(crate) pieces: Option<(&'static str, &'static str)>,
}

const LEDGER: [MaskedTable; 6] = [
    MaskedTable {
        name: "codex_pending_requests",
        json: &["request_payload_json", "resolved_payload_json", "changes_json", "item_json"],
        text: &["error_message", "summary"],
        only: "1",
        pieces: None,
    },
    MaskedTable { name: "codex_request_answers", json: &["payload_json"], text: &[], only: "1", pieces: None },
    MaskedTable { name: "codex_context_commands", json: &["command_json"], text: &[], only: "1", pieces: None },
    MaskedTable { name: "codex_context_deliveries", json: &[], text: &["text"], only: "1", pieces: None },
    MaskedTable { name: "codex_threads", json: &[], text: &["beginning"], only: "1", pieces: None },
    MaskedTable { name: "codex_fragment_states", json: &[], text: &["text"], only: "1", pieces: None },
];

/// A relay decides open requests by their stored rows, so these stay unchanged.
const OF_A_LIVE_LEDGER: &str = "status NOT IN ('pending', 'expired')";

/// Masks the secrets in the ledger in `session_dir`. Returns how many rows had any. A missing ledger is not an error.
///
/// # Errors
///
/// The fault of the ledger, as text for the user.
pub(crate) fn redact_ledger(session_dir: &Path, masker: &Masker, life: Life, mode: RunMode) -> Result<u64, String> {
    let path = session_dir.join(LEDGER_FILE);
    if !path.exists() {
        return Ok(0);
    }
    let opened = match mode {
        RunMode::Apply => database::open_as_is(&path, form(BUSY_WAIT_MAX)).map(Some),
        RunMode::DryRun => database::open_read_only(&path, life, BUSY_WAIT_MAX),
    };
    let Some(mut connection) = opened.map_err(|error| error.to_string())? else { return Ok(0) };
    let [mut requests, answers, commands, deliveries, threads, fragments] = LEDGER;
    if life == Life::Live {
        requests.only = OF_A_LIVE_LEDGER;
    }
    // A file that is only read may have an older schema without some of the tables.
    let is_there = |table: &MaskedTable| connection.table_exists(None, table.name).unwrap_or(true);
    let tables: Vec<MaskedTable> =
        [requests, answers, commands, deliveries, threads, fragments].into_iter().filter(is_there).collect();
    let masked = mask_tables(&mut connection, &tables, masker, mode);
    let done = masked.and_then(|rows| {
        if mode == RunMode::Apply {
            wipe(&connection, life)?;
        }
        Ok(rows)
    });
    done.map_err(|source| DatabaseError::Sqlite { path, source }.to_string())
}

/// Masks the secrets in some tables; returns how many rows had any.
pub(crate) fn mask_tables(
    connection: &mut Connection,
    tables: &[MaskedTable],
    masker: &Masker,
    mode: RunMode,
) -> rusqlite::Result<u64> {
    if mode == RunMode::Apply {
        // Overwritten values must not stay in free pages of the file.
        connection.pragma_update(None, "secure_delete", "ON")?;
    }
    let mut rows = 0;
    for table in tables {
        let pieces = pieces(connection, table, masker)?;
        rows += mask_table(connection, table, masker, &pieces, mode)?;
    }
    Ok(rows)
}

/// Finds the secrets that span several pieces of a longer text.
fn pieces(connection: &Connection, table: &MaskedTable, masker: &Masker) -> rusqlite::Result<InPieces> {
    let (Some((only, whole)), Some(column)) = (table.pieces, table.json.first()) else { return Ok(InPieces::new()) };
    let select = format!("SELECT rowid, {whole}, {column} FROM {} WHERE {only} ORDER BY rowid", table.name);
    let mut select = connection.prepare(&select)?;
    let mut rows = select.query([])?;
    let mut pieces = Pieces::default();
    while let Some(row) = rows.next()? {
        let (number, whole, json): (i64, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        pieces.add(whole, number as u64, json.as_deref().unwrap_or_default());
    }
    Ok(masker.in_pieces(&pieces))
}

struct Change {
    rowid: i64,
    before: Vec<Option<String>>,
    after: Vec<Option<String>>,
}

fn mask_table(
    connection: &mut Connection,
    table: &MaskedTable,
    masker: &Masker,
    pieces: &InPieces,
    mode: RunMode,
) -> rusqlite::Result<u64> {
    let columns: Vec<&str> = table.json.iter().chain(table.text).copied().collect();
    let select = format!(
        "SELECT rowid, {} FROM {} WHERE rowid > ?1 AND ({}) ORDER BY rowid LIMIT {BATCH_ROWS}",
        columns.join(", "),
        table.name,
        table.only
    );
    let sets = columns.iter().map(|column| format!("{column} = ?")).collect::<Vec<_>>().join(", ");
    let wheres = columns.iter().map(|column| format!("{column} IS ?")).collect::<Vec<_>>().join(" AND ");
    let update = format!("UPDATE {} SET {sets} WHERE rowid = ? AND {wheres}", table.name);
    let (mut last, mut changed) = (i64::MIN, 0);
    loop {
        let mut read = 0;
        let mut changes = Vec::new();
        {
            let mut select = connection.prepare_cached(&select)?;
            let mut rows = select.query([last])?;
            while let Some(row) = rows.next()? {
                (last, read) = (row.get(0)?, read + 1);
                let before: Vec<Option<String>> =
                    (1..=columns.len()).map(|index| row.get(index)).collect::<rusqlite::Result<_>>()?;
                let in_piece = pieces.get(&(last as u64)).map_or(&[][..], Vec::as_slice);
                let masked = |(index, text): (usize, &String)| match index {
                    0 if !table.json.is_empty() => masker.json_piece(text, in_piece),
                    index if index < table.json.len() => masker.json(text),
                    _ => masker.text(text),
                };
                let after: Vec<Option<String>> = before
                    .iter()
                    .enumerate()
                    .map(|(index, text)| {
                        text.as_ref().map(|text| masked((index, text)).unwrap_or_else(|| text.clone()))
                    })
                    .collect();
                if after != before {
                    changes.push(Change { rowid: last, before, after });
                }
            }
        }
        changed += changes.len() as u64;
        if mode == RunMode::Apply && !changes.is_empty() {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for Change { rowid, before, after } in changes {
                let values = after.into_iter().chain([Some(rowid.to_string())]).chain(before);
                transaction.prepare_cached(&update)?.execute(params_from_iter(values))?;
            }
            transaction.commit()?;
        }
        if read < BATCH_ROWS {
            return Ok(changed);
        }
    }
}

/// Removes overwritten data from a database's files.
pub(crate) fn wipe(connection: &Connection, life: Life) -> rusqlite::Result<()> {
    if life == Life::Stopped {
        connection.execute_batch("VACUUM")?;
    }
    // Readers of the database finish quickly.
    connection.busy_timeout(WIPE_WAIT_MAX)?;
    let mut is_busy = true;
    for _ in 0..WIPE_TRIES {
        is_busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        if !is_busy {
            break;
        }
        // SQLite does not signal the end of a read, and a checkpoint may fail at once if it meets a reader.
        std::thread::sleep(WIPE_WAIT_MAX);
    }
    connection.busy_timeout(BUSY_WAIT_MAX)?;
    if is_busy {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        return Err(rusqlite::Error::SqliteFailure(
            busy,
            Some("a reader uses it, so its log still holds old values; try again".to_owned()),
        ));
    }
    Ok(())
}
