//! Retention: deletes the oldest rows of a history in small batches, and counts them.
//!
//! Each batch is one short transaction; readers never wait for it, and the index commits in between.

use std::time::Instant;

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::config::RetentionBounds;
use crate::history::rfc3339_millis;

/// Most rows that one transaction deletes.
const BATCH_ROWS: i64 = 500;

/// Permanently deleted data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pruned {
    pub events: u64,
    /// Rows of tool events.
    pub tool_events: u64,
    /// Rows of turn events.
    pub turn_events: u64,
    /// Whole sessions.
    pub sessions: u64,
    /// Size of those sessions, in bytes.
    pub session_bytes: u64,
    /// How long the deletion took, in milliseconds.
    pub took_ms: u64,
}

/// How the oldest rows of a table are deleted.
pub(super) struct Pruning {
    /// Queries the lowest and the highest number.
    pub(super) bounds: &'static str,
    /// Queries the time of the oldest row.
    pub(super) oldest: &'static str,
    /// Deletes the oldest rows: up to a number, or those before a time, at most so many. No remaining row is older than a
    /// deleted one, so the rest has no gap.
    pub(super) delete: &'static str,
}

pub(super) const EVENTS: Pruning = Pruning {
    bounds: "SELECT (SELECT MIN(seq) FROM codex_events), (SELECT MAX(seq) FROM codex_events)",
    oldest: "SELECT timestamp FROM codex_events ORDER BY seq LIMIT 1",
    delete: "DELETE FROM codex_events WHERE seq <= (
        SELECT MAX(seq) FROM (SELECT seq, timestamp FROM codex_events ORDER BY seq LIMIT ?3)
        WHERE seq <= ?1 OR timestamp < ?2)",
};

pub(super) const TOOLS: Pruning = Pruning {
    bounds: "SELECT (SELECT MIN(id) FROM codex_tool_events), (SELECT MAX(id) FROM codex_tool_events)",
    oldest: "SELECT created_at FROM codex_tool_events ORDER BY id LIMIT 1",
    delete: "DELETE FROM codex_tool_events WHERE id <= (
        SELECT MAX(id) FROM (SELECT id, created_at FROM codex_tool_events ORDER BY id LIMIT ?3)
        WHERE id <= ?1 OR created_at < ?2)",
};

pub(super) const TURNS: Pruning = Pruning {
    bounds: "SELECT (SELECT MIN(id) FROM codex_turn_events), (SELECT MAX(id) FROM codex_turn_events)",
    oldest: "SELECT created_at FROM codex_turn_events ORDER BY id LIMIT 1",
    delete: "DELETE FROM codex_turn_events WHERE id <= (
        SELECT MAX(id) FROM (SELECT id, created_at FROM codex_turn_events ORDER BY id LIMIT ?3)
        WHERE id <= ?1 OR created_at < ?2)",
};

/// Deletes one batch of the rows beyond the bounds at `now_us`, in microseconds since the Unix epoch. Returns what it
/// deleted, which is nothing once all rows are within the bounds.
///
/// The checkpoint keeps the last issued number even if all rows are deleted.
pub(super) fn prune(connection: &Connection, bounds: &RetentionBounds, now_us: u64) -> rusqlite::Result<Pruned> {
    let began = Instant::now();
    let before = rfc3339_millis(before_us(bounds, now_us));
    let mut pruned = Pruned {
        events: batch(connection, &EVENTS, bounds.events_max, &before)?,
        tool_events: batch(connection, &TOOLS, bounds.tool_events_max, &before)?,
        turn_events: batch(connection, &TURNS, bounds.turn_events_max, &before)?,
        ..Pruned::default()
    };
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
pub(crate) struct Over {
    pub rows: u64,
    /// Their size, in bytes.
    pub bytes: u64,
}

/// Rows beyond the bounds: events, tool events, turn events.
pub(super) fn over(connection: &Connection, bounds: &RetentionBounds, now_us: u64) -> rusqlite::Result<[Over; 3]> {
    let before = rfc3339_millis(before_us(bounds, now_us));
    let count = |sql: &str, rows_max: u64| {
        let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let (rows, bytes) = connection.query_row(sql, params![rows_max, before], read)?;
        Ok::<_, rusqlite::Error>(Over { rows: rows.try_into().unwrap_or(0), bytes: bytes.try_into().unwrap_or(0) })
    };
    Ok([
        count(OVER_EVENTS, bounds.events_max)?,
        count(OVER_TOOLS, bounds.tool_events_max)?,
        count(OVER_TURNS, bounds.turn_events_max)?,
    ])
}

const OVER_EVENTS: &str = "
    SELECT COUNT(*), IFNULL(SUM(OCTET_LENGTH(payload_preview)), 0) FROM codex_events WHERE seq <= (
        SELECT MAX(seq) FROM codex_events WHERE seq <= (SELECT MAX(seq) FROM codex_events) - ?1 OR timestamp < ?2)";

const OVER_TOOLS: &str = "
    SELECT COUNT(*), IFNULL(SUM(IFNULL(OCTET_LENGTH(raw_payload_json), 0) + IFNULL(OCTET_LENGTH(command), 0)), 0)
    FROM codex_tool_events WHERE id <= (
        SELECT MAX(id) FROM codex_tool_events
        WHERE id <= (SELECT MAX(id) FROM codex_tool_events) - ?1 OR created_at < ?2)";

const OVER_TURNS: &str = "
    SELECT COUNT(*), IFNULL(SUM(IFNULL(OCTET_LENGTH(raw_payload_json), 0) + IFNULL(OCTET_LENGTH(output_preview), 0)), 0)
    FROM codex_turn_events WHERE id <= (
        SELECT MAX(id) FROM codex_turn_events
        WHERE id <= (SELECT MAX(id) FROM codex_turn_events) - ?1 OR created_at < ?2)";

fn batch(connection: &Connection, pruning: &Pruning, rows_max: u64, before: &str) -> rusqlite::Result<u64> {
    let numbers = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?));
    let (Some(lowest), Some(highest)) = connection.prepare_cached(pruning.bounds)?.query_row([], numbers)? else {
        return Ok(0);
    };
    // Row numbers are consecutive from the lowest one.
    let last_gone = highest.saturating_sub(i64::try_from(rows_max).unwrap_or(i64::MAX));
    let oldest: String = connection.prepare_cached(pruning.oldest)?.query_row([], |row| row.get(0))?;
    if last_gone < lowest && *oldest >= *before {
        return Ok(0);
    }
    Ok(connection.prepare_cached(pruning.delete)?.execute(params![last_gone, before, BATCH_ROWS])? as u64)
}

impl Pruned {
    pub(super) fn rows(&self) -> u64 {
        self.events + self.tool_events + self.turn_events
    }

    pub(super) fn add(&mut self, more: Pruned) {
        self.events += more.events;
        self.tool_events += more.tool_events;
        self.turn_events += more.turn_events;
        self.sessions += more.sessions;
        self.session_bytes += more.session_bytes;
        self.took_ms += more.took_ms;
    }
}
