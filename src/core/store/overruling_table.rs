//! The ledger's record of denials of codex's own reviewer that a person overruled.

use rusqlite::{Transaction, params};

use super::request_table::RunIds;
use crate::engine::{LedgerEntry, OverruledRow};
use crate::history::rfc3339_millis;

pub(super) const TABLE: &str = "
CREATE TABLE codex_overrulings (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    process_generation TEXT NOT NULL,
    review_id TEXT NOT NULL,
    thread_id TEXT,
    turn_id TEXT,
    item_id TEXT,
    source TEXT NOT NULL,
    by TEXT NOT NULL,
    payload_json TEXT
) STRICT;
";

/// Stores an entry about an overruled denial; does nothing for any other entry.
pub(super) fn keep(transaction: &Transaction<'_>, run: &RunIds, entry: &LedgerEntry) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT INTO codex_overrulings
        (at, process_generation, review_id, thread_id, turn_id, item_id, source, by, payload_json)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let LedgerEntry::DenialOverruled(row) = entry else { return Ok(()) };
    let OverruledRow { review_id, place, at_us, source, by, payload } = &**row;
    let values = params![
        rfc3339_millis(*at_us),
        run.generation,
        review_id,
        place.thread_id,
        place.turn_id,
        place.item_id,
        source.name(),
        by,
        payload,
    ];
    transaction.prepare_cached(SQL)?.execute(values).map(drop)
}
