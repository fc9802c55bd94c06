//! What was said and done in a session, a page at a time: for whoever reads back further than the journal reaches.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::query::{History, HistoryError};

/// The most stretches that the journal lacks that are told.
const LACKING_MAX: i64 = 100;

pub(super) const SAID_BEFORE: &str = "
    SELECT id, thread_id, entry FROM codex_transcript_entries WHERE id < ?1 ORDER BY id DESC LIMIT ?2";

pub(super) const SAID_AFTER: &str = "
    SELECT id, thread_id, entry FROM codex_transcript_entries WHERE id > ?1 AND id < ?3 ORDER BY id LIMIT ?2";

pub(super) const LAST_SAID: &str = "SELECT MAX(id) FROM codex_transcript_entries";

pub(super) const SAID_FROM: &str = "
    SELECT id, json_extract(entry, '$.ts') FROM codex_transcript_entries WHERE id >= ?1 ORDER BY id LIMIT 1";

pub(super) const AFTER_SEQ: &str = "SELECT after_seq FROM codex_event_epochs WHERE cause <> 'start_lost'";

pub(super) const FIRST_EVENT: &str = "SELECT MIN(seq) FROM codex_events";

/// Each with the time of the last event in front of it.
pub(super) const LACKING: &str = "
    SELECT lines, reason, (SELECT timestamp FROM codex_events WHERE seq <= after_seq ORDER BY seq DESC LIMIT 1)
    FROM codex_event_gaps ORDER BY id DESC LIMIT ?1";

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
    /// The number of the first line of the transcripts that was said at a time, RFC 3339, or later; `None` where none was.
    /// Lines are taken to be in the order of their times: one that was learned of late stands where it was learned of.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] where the file cannot be read.
    pub fn said_from(&self, at: &str, opened: u64) -> Result<Option<u64>, HistoryError> {
        self.read(opened, |connection| said_from(connection, at).map(|found| found.map(i64::unsigned_abs)))
    }

    /// At most `limit` lines of the transcripts on one side of the number `id`, the nearest to it, and none from the number
    /// `end` on; oldest first.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] where the file cannot be read.
    pub fn said(&self, side: Side, id: u64, end: u64, limit: u64, opened: u64) -> Result<Vec<Said>, HistoryError> {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.read(opened, |connection| {
            let said = |row: &Row<'_>| {
                let id: i64 = row.get(0)?;
                Ok(Said { id: id.unsigned_abs(), thread_id: row.get(1)?, entry: row.get(2)? })
            };
            let (id, end, limit) = (whole(id), whole(end), whole(limit));
            match side {
                Side::Before => {
                    let mut select = connection.prepare_cached(SAID_BEFORE)?;
                    let mut found: Vec<Said> =
                        select.query_map(params![id.min(end), limit], said)?.collect::<Result<_, _>>()?;
                    found.reverse();
                    Ok(found)
                }
                Side::After => {
                    let mut select = connection.prepare_cached(SAID_AFTER)?;
                    select.query_map(params![id, limit, end], said)?.collect()
                }
            }
        })
    }

    /// The stretches that the journal lacks, oldest first: the last of them, where there are many. What is known of none of
    /// them any more, when it was, is left out.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] where the file cannot be read.
    pub fn lacking(&self, opened: u64) -> Result<Vec<Lacking>, HistoryError> {
        self.read(opened, |connection| {
            let lacking = |row: &Row<'_>| {
                Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?))
            };
            let mut select = connection.prepare_cached(LACKING)?;
            let rows = select.query_map([LACKING_MAX], lacking)?.collect::<rusqlite::Result<Vec<_>>>()?;
            let mut found = Vec::new();
            for (lines, reason, at) in rows.into_iter().rev() {
                let Some(at) = at else { continue };
                // What was said at that time stands in front of it, too.
                let behind = said_from(connection, &format!("{at}~"))?;
                let after_id = match behind {
                    Some(behind) => behind.saturating_sub(1),
                    None => last_said(connection)?.unwrap_or_default(),
                };
                found.push(Lacking { after_id: after_id.unsigned_abs(), lines, reason, at });
            }
            Ok(found)
        })
    }

    /// The position of the first stored event in its epoch; 1 if every event is stored.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] where the file cannot be read.
    pub fn first_seq(&self, opened: u64) -> Result<Option<u64>, HistoryError> {
        self.read(opened, |connection| {
            let first: Option<i64> = connection.prepare_cached(FIRST_EVENT)?.query_row([], |row| row.get(0))?;
            // One that another version wrote has no epoch.
            let after: Option<i64> = connection.query_row(AFTER_SEQ, [], |row| row.get(0)).optional().unwrap_or(None);
            Ok(first.map(|first| first.saturating_sub(after.unwrap_or(0)).unsigned_abs()))
        })
    }
}

fn last_said(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(LAST_SAID)?.query_row([], |row| row.get(0))
}

/// Looks in the middle of what is left again and again: one row each.
fn said_from(connection: &Connection, at: &str) -> rusqlite::Result<Option<i64>> {
    let Some(last) = last_said(connection)? else { return Ok(None) };
    let mut select = connection.prepare_cached(SAID_FROM)?;
    // What is in front of `low` was said before, what is from `high` on was not.
    let (mut low, mut high) = (0, last.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        let looked = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?));
        let found = select.query_row([middle], looked).optional()?;
        match found.filter(|(id, _)| *id < high) {
            Some((id, said_at)) if said_at.as_deref().is_none_or(|said_at| said_at < at) => low = id.saturating_add(1),
            Some(_) | None => high = middle,
        }
    }
    Ok((low <= last).then_some(low))
}
