//! Reserves event numbers of a session, so that none is issued twice.

use rusqlite::{OptionalExtension as _, Transaction, params};

pub(super) const TABLES: &str = "
    CREATE TABLE codex_seq_marks (
        session_id TEXT PRIMARY KEY,
        reserved INTEGER NOT NULL,
        first_generation TEXT
    ) STRICT;
";

/// The epoch for which a witness was written outside the session's folder.
pub(super) const EPOCH_COLUMN: &str = "ALTER TABLE codex_seq_marks ADD COLUMN epoch TEXT";

const RESERVE: &str = "
    INSERT INTO codex_seq_marks (session_id, reserved, first_generation, epoch) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (session_id) DO UPDATE SET
        reserved = MAX(reserved, excluded.reserved),
        first_generation = COALESCE(first_generation, excluded.first_generation),
        epoch = COALESCE(excluded.epoch, epoch)";

const MARK: &str = "SELECT reserved, first_generation, epoch FROM codex_seq_marks WHERE session_id = ?1";

/// Numbers to reserve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeqWish {
    /// Reserves all numbers up to this one; 0 only reads the mark.
    pub up_to: u64,
    /// The run whose first record got number 1, if known.
    pub first_generation: Option<String>,
    /// The epoch of the history, if its witness was written.
    pub epoch: Option<String>,
}

/// The reserved numbers of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeqMark {
    /// No number above this one was ever issued.
    pub reserved: u64,
    /// The run whose first record got number 1.
    pub first_generation: Option<String>,
    /// The last epoch with a witness.
    pub epoch: Option<String>,
}

pub(super) fn reserve(transaction: &Transaction<'_>, session_id: &str, wish: &SeqWish) -> rusqlite::Result<SeqMark> {
    if wish.up_to > 0 {
        let up_to = i64::try_from(wish.up_to).unwrap_or(i64::MAX);
        transaction.prepare_cached(RESERVE)?.execute(params![session_id, up_to, wish.first_generation, wish.epoch])?;
    }
    let read = |row: &rusqlite::Row<'_>| {
        let reserved = row.get::<_, i64>(0)?.try_into().unwrap_or(0);
        Ok(SeqMark { reserved, first_generation: row.get(1)?, epoch: row.get(2)? })
    };
    Ok(transaction.prepare_cached(MARK)?.query_row([session_id], read).optional()?.unwrap_or_default())
}
