//! Reads the requests, answers and overrulings of a ledger for an audit: read-only, whether or not a relay writes to it.
//!
//! An entry is named by its place in the ledger only while this program runs: rebuilding the file renumbers its rows, though in the
//! same order.
//!
//! *Locking.* SQLite's own; each call reads the last commit. An entry may be gone from one call to the next, because the end of a
//! request that has expired is replaced by its answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::database::{self, DatabaseError, Life};
use super::ledger::{LEDGER_FILE, LedgerError};
use super::ledger_writer::LEDGER_FORM;
use crate::protocol::{Method, named};

/// The longest wait for another process's lock.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

named! {
    /// The kind of an entry. Entries with the same time are in this order.
    #[derive(PartialOrd, Ord)]
    pub enum AuditKind {
        Request = "request",
        Answer = "answer",
        /// The end of a request that no answer has won.
        End = "end",
        /// A person overruled a denial of codex's own reviewer.
        Overruling = "overruling",
    }
}

/// The place of an entry in a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditPlace {
    pub kind: AuditKind,
    row: i64,
}

/// An entry. Members that its kind does not have are `None`; what ends in `json` is as it was stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditEntry {
    /// RFC 3339.
    pub at: String,
    pub request_id: String,
    pub generation: Option<String>,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
    pub request_type: Option<String>,
    pub method: Option<String>,
    pub summary: Option<String>,
    pub payload_json: Option<String>,
    pub changes_json: Option<String>,
    pub expires_at: Option<String>,
    pub answer_id: Option<i64>,
    pub won: Option<bool>,
    pub answer_json: Option<String>,
    pub status: Option<String>,
    pub source: Option<String>,
    pub by: Option<String>,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    /// When the request ended, for any kind.
    pub ended_at: Option<String>,
}

#[derive(Debug)]
pub struct AuditLedger {
    connection: Connection,
    path: PathBuf,
}

impl AuditLedger {
    /// Opens the ledger in `session_dir`; `None` if it is missing or too old to have requests.
    pub fn open(session_dir: &Path) -> Result<Option<AuditLedger>, LedgerError> {
        const TABLE: &str = "SELECT 1 FROM sqlite_master WHERE name = 'codex_request_answers'";
        let path = session_dir.join(LEDGER_FILE);
        let failed = |error: DatabaseError| LedgerError::Unavailable(error.to_string());
        // A relay may start at any time, so the log beside the file counts.
        let opened = database::open_read_only(&path, Life::Live, BUSY_WAIT_MAX).map_err(failed)?;
        let Some(connection) = opened else { return Ok(None) };
        let ledger = AuditLedger { connection, path };
        let asked = |asked: rusqlite::Result<i64>| asked.map_err(|source| ledger.unavailable(source));
        let (found, known) =
            (asked(ledger.connection.pragma_query_value(None, "user_version", |row| row.get(0)))?, LEDGER_FORM as i64);
        if found > known {
            return Err(failed(DatabaseError::Newer { path: ledger.path, found, known }));
        }
        let has_table = ledger.connection.query_row(TABLE, [], |_| Ok(())).optional();
        let has_table = has_table.map_err(|source| ledger.unavailable(source))?.is_some();
        Ok(has_table.then_some(ledger))
    }

    /// Passes the time and place of each entry of a period to `take`: RFC 3339, both ends included. In no order, except that
    /// entries of one kind and time come in theirs.
    pub fn places(
        &self,
        (since, until): (&str, &str),
        mut take: impl FnMut(&str, AuditPlace),
    ) -> Result<(), LedgerError> {
        const REQUESTS: &str = "SELECT requested_at, rowid FROM codex_pending_requests
            WHERE requested_at BETWEEN ?1 AND ?2 ORDER BY rowid";
        const ANSWERS: &str = "SELECT at, id FROM codex_request_answers WHERE at BETWEEN ?1 AND ?2 ORDER BY id";
        const ENDS: &str = "SELECT resolved_at, rowid FROM codex_pending_requests AS request
            WHERE resolved_at BETWEEN ?1 AND ?2 AND NOT EXISTS (SELECT 1 FROM codex_request_answers AS answer
            WHERE answer.request_id = request.request_id AND answer.won) ORDER BY rowid";
        let read = |sql: &str, kind: AuditKind, take: &mut dyn FnMut(&str, AuditPlace)| -> rusqlite::Result<()> {
            let mut select = self.connection.prepare_cached(sql)?;
            let mut rows = select.query(params![since, until])?;
            while let Some(row) = rows.next()? {
                take(row.get_ref(0)?.as_str()?, AuditPlace { kind, row: row.get(1)? });
            }
            Ok(())
        };
        const OVERRULINGS: &str = "SELECT at, id FROM codex_overrulings WHERE at BETWEEN ?1 AND ?2 ORDER BY id";
        let read_all = |take: &mut dyn FnMut(&str, AuditPlace)| -> rusqlite::Result<()> {
            read(REQUESTS, AuditKind::Request, take)?;
            read(ANSWERS, AuditKind::Answer, take)?;
            read(ENDS, AuditKind::End, take)?;
            // A file that is only read may have an older schema without it.
            match self.connection.table_exists(None, "codex_overrulings")? {
                true => read(OVERRULINGS, AuditKind::Overruling, take),
                false => Ok(()),
            }
        };
        read_all(&mut take).map_err(|source| self.unavailable(source))
    }

    /// The entry at a place; `None` if it is gone.
    pub fn entry(&self, place: AuditPlace) -> Result<Option<AuditEntry>, LedgerError> {
        // SQLite would prepare a statement again for each value of a bare parameter.
        const REQUEST: &str =
            "SELECT requested_at, request_id, process_generation, thread_id, turn_id, item_id, request_type,
            request_method, resolved_at, summary, request_payload_json, changes_json, expires_at
            FROM codex_pending_requests WHERE rowid = ?1 + 0";
        const ANSWER: &str =
            "SELECT at, answer.request_id, process_generation, thread_id, turn_id, item_id, request_type,
            request_method, resolved_at, id, won, payload_json, source, by FROM codex_request_answers AS answer
            LEFT JOIN codex_pending_requests AS request ON request.request_id = answer.request_id WHERE id = ?1 + 0";
        const END: &str =
            "SELECT resolved_at, request_id, process_generation, thread_id, turn_id, item_id, request_type,
            request_method, resolved_at, status, resolution_source, resolved_by, error_code, error_message
            FROM codex_pending_requests WHERE rowid = ?1 + 0 AND resolved_at IS NOT NULL";
        const OVERRULING: &str =
            "SELECT at, review_id, process_generation, thread_id, turn_id, item_id, NULL, NULL, NULL, payload_json,
            source, by FROM codex_overrulings WHERE id = ?1 + 0";
        let (sql, read): (_, fn(&Row<'_>) -> rusqlite::Result<AuditEntry>) = match place.kind {
            AuditKind::Request => (REQUEST, request),
            AuditKind::Answer => (ANSWER, answer),
            AuditKind::End => (END, end),
            AuditKind::Overruling => (OVERRULING, overruling),
        };
        let asked = self.connection.prepare_cached(sql);
        let asked = asked.and_then(|mut select| select.query_row([place.row], read).optional());
        asked.map_err(|source| self.unavailable(source))
    }

    /// When a request ended, if it has; `None` if the request is unknown.
    pub fn ended_at(&self, request_id: &str) -> Result<Option<Option<String>>, LedgerError> {
        const SQL: &str = "SELECT resolved_at FROM codex_pending_requests WHERE request_id = ?1";
        let asked = self.connection.prepare_cached(SQL);
        let asked = asked.and_then(|mut select| select.query_row([request_id], |row| row.get(0)).optional());
        asked.map_err(|source| self.unavailable(source))
    }

    fn unavailable(&self, source: rusqlite::Error) -> LedgerError {
        LedgerError::Unavailable(DatabaseError::Sqlite { path: self.path.clone(), source }.to_string())
    }
}

/// The members of all kinds of entries.
fn common(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        at: row.get(0)?,
        request_id: row.get(1)?,
        generation: row.get(2)?,
        thread_id: row.get(3)?,
        turn_id: row.get(4)?,
        item_id: row.get(5)?,
        request_type: row.get(6)?,
        method: row.get(7)?,
        ended_at: row.get(8)?,
        ..AuditEntry::default()
    })
}

fn request(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        summary: row.get(9)?,
        payload_json: row.get(10)?,
        changes_json: row.get(11)?,
        expires_at: row.get(12)?,
        ..common(row)?
    })
}

fn answer(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        answer_id: row.get(9)?,
        won: row.get(10)?,
        answer_json: row.get(11)?,
        source: row.get(12)?,
        by: row.get(13)?,
        ..common(row)?
    })
}

/// The request is the review.
fn overruling(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        method: Some(Method::ThreadApproveDenied.name().to_owned()),
        payload_json: row.get(9)?,
        source: row.get(10)?,
        by: row.get(11)?,
        ..common(row)?
    })
}

fn end(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        status: row.get(9)?,
        source: row.get(10)?,
        by: row.get(11)?,
        error_code: row.get(12)?,
        error_message: row.get(13)?,
        ..common(row)?
    })
}
