//! What was said and done in a session, a page at a time: for whoever reads back further than the journal reaches.

use rusqlite::{Row, params};

use super::query::{History, HistoryError};

/// The most stretches that the journal lacks that are told.
const LACKING_MAX: i64 = 100;

const SAID_BEFORE: &str = "
    SELECT id, thread_id, entry FROM codex_transcript_entries
    WHERE id < ?1 AND json_extract(entry, '$.ts') < ?2 ORDER BY id DESC LIMIT ?3";

const SAID_AFTER: &str = "
    SELECT id, thread_id, entry FROM codex_transcript_entries
    WHERE id > ?1 AND json_extract(entry, '$.ts') < ?2 ORDER BY id LIMIT ?3";

const FIRST_EVENT: &str = "SELECT MIN(seq) FROM codex_events";

/// Each with the time of the last event in front of it, and with what was said last by then.
const LACKING: &str = "
    SELECT lines, reason, timestamp, (SELECT MAX(id) FROM codex_transcript_entries
        WHERE json_extract(entry, '$.ts') <= timestamp)
    FROM (SELECT id, lines, reason, (SELECT timestamp FROM codex_events WHERE seq <= after_seq
        ORDER BY seq DESC LIMIT 1) AS timestamp FROM codex_event_gaps ORDER BY id DESC LIMIT ?2)
    WHERE timestamp < ?1 ORDER BY id";

/// A line of a transcript, with its place among those of all threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its number.
    pub id: u64,
    /// Its thread.
    pub thread_id: String,
    /// It, as JSON.
    pub entry: String,
}

/// A stretch that the journal lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// The number of what was said last in front of it; 0 where nothing was.
    pub after_id: u64,
    /// How many lines; 0 where nobody knows.
    pub lines: u64,
    /// Why.
    pub reason: String,
    /// When what is in front of it happened, RFC 3339.
    pub at: String,
}

/// On which side of a place one reads on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// In front of it.
    Before,
    /// Behind it.
    After,
}

impl History {
    /// At most `limit` lines of the transcripts that were said before a time, RFC 3339, on one side of the number `id`, the
    /// nearest to it; oldest first.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] where the file cannot be read.
    pub fn said(&self, side: Side, id: u64, before: &str, limit: u64, epoch: u64) -> Result<Vec<Said>, HistoryError> {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.read(epoch, |connection| {
            let said = |row: &Row<'_>| {
                let id: i64 = row.get(0)?;
                Ok(Said { id: id.unsigned_abs(), thread_id: row.get(1)?, entry: row.get(2)? })
            };
            let mut select = connection.prepare_cached(match side {
                Side::Before => SAID_BEFORE,
                Side::After => SAID_AFTER,
            })?;
            let mut found: Vec<Said> =
                select.query_map(params![whole(id), before, whole(limit)], said)?.collect::<Result<_, _>>()?;
            if side == Side::Before {
                found.reverse();
            }
            Ok(found)
        })
    }

    /// The stretches that the journal lacked before a time, RFC 3339, oldest first: the last of them, where there are many.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] where the file cannot be read.
    pub fn lacking(&self, before: &str, epoch: u64) -> Result<Vec<Lacking>, HistoryError> {
        self.read(epoch, |connection| {
            let lacking = |row: &Row<'_>| {
                let (lines, after_id): (i64, Option<i64>) = (row.get(0)?, row.get(3)?);
                Ok(Lacking {
                    after_id: after_id.unwrap_or_default().unsigned_abs(),
                    lines: lines.unsigned_abs(),
                    reason: row.get(1)?,
                    at: row.get(2)?,
                })
            };
            let mut select = connection.prepare_cached(LACKING)?;
            select.query_map(params![before, LACKING_MAX], lacking)?.collect()
        })
    }

    /// The number of the first event that is kept; 1 where none is gone.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] where the file cannot be read.
    pub fn first_seq(&self, epoch: u64) -> Result<Option<u64>, HistoryError> {
        self.read(epoch, |connection| {
            let first: Option<i64> = connection.prepare_cached(FIRST_EVENT)?.query_row([], |row| row.get(0))?;
            Ok(first.map(i64::unsigned_abs))
        })
    }
}
