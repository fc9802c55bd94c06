//! Pages of the stored transcripts, for readers that go back further than the journal.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::query::{History, HistoryError};

/// Most journal gaps that are returned.
const GAPS_MAX: i64 = 100;

pub(super) const LINES_BEFORE: &str = "
    SELECT id, thread_id, entry FROM codex_transcript_entries WHERE id < ?1 ORDER BY id DESC LIMIT ?2";

pub(super) const LINES_AFTER: &str = "
    SELECT id, thread_id, entry FROM codex_transcript_entries WHERE id > ?1 AND id < ?3 ORDER BY id LIMIT ?2";

pub(super) const LAST_LINE: &str = "SELECT MAX(id) FROM codex_transcript_entries";

pub(super) const LINE_FROM: &str = "
    SELECT id, json_extract(entry, '$.ts') FROM codex_transcript_entries WHERE id >= ?1 ORDER BY id LIMIT 1";

pub(super) const AFTER_SEQ: &str = "SELECT after_seq FROM codex_event_epochs WHERE cause <> 'start_lost'";

pub(super) const FIRST_EVENT: &str = "SELECT MIN(seq) FROM codex_events";

/// Each gap, with the time of the last event before it.
pub(super) const JOURNAL_GAPS: &str = "
    SELECT lines, reason, (SELECT timestamp FROM codex_events WHERE seq <= after_seq ORDER BY seq DESC LIMIT 1)
    FROM codex_event_gaps ORDER BY id DESC LIMIT ?1";

/// A line of a transcript, numbered across all threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptLine {
    pub id: u64,
    pub thread_id: String,
    /// The line, as JSON.
    pub entry: String,
}

/// A stretch that the journal lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalGap {
    /// The number of the last transcript line before it; 0 if there is none.
    pub after_id: u64,
    /// The number of lost lines; 0 if unknown.
    pub lines: u64,
    pub reason: String,
    /// The time of the last event before it, RFC 3339.
    pub at: String,
}

/// The direction to read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Towards older lines.
    Before,
    /// Towards newer lines.
    After,
}

impl History {
    /// The number of the first transcript line with a time of `at` (RFC 3339) or later, if any. Lines are assumed to be in
    /// order of time; a line that arrived late stands where it arrived.
    pub fn first_line_from(&self, at: &str, opened: u64) -> Result<Option<u64>, HistoryError> {
        self.read(opened, |connection| first_line_from(connection, at).map(|found| found.map(i64::unsigned_abs)))
    }

    /// At most `limit` transcript lines on one side of the number `id`, the nearest to it, all below the number `end`;
    /// oldest first.
    pub fn transcript_lines(
        &self,
        side: Side,
        id: u64,
        end: u64,
        limit: u64,
        opened: u64,
    ) -> Result<Vec<TranscriptLine>, HistoryError> {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.read(opened, |connection| {
            let transcript_lines = |row: &Row<'_>| {
                let id: i64 = row.get(0)?;
                Ok(TranscriptLine { id: id.unsigned_abs(), thread_id: row.get(1)?, entry: row.get(2)? })
            };
            let (id, end, limit) = (whole(id), whole(end), whole(limit));
            match side {
                Side::Before => {
                    let mut select = connection.prepare_cached(LINES_BEFORE)?;
                    let mut found: Vec<TranscriptLine> =
                        select.query_map(params![id.min(end), limit], transcript_lines)?.collect::<Result<_, _>>()?;
                    found.reverse();
                    Ok(found)
                }
                Side::After => {
                    let mut select = connection.prepare_cached(LINES_AFTER)?;
                    select.query_map(params![id, limit, end], transcript_lines)?.collect()
                }
            }
        })
    }

    /// The stretches that the journal lacks, oldest first; only the most recent if there are many. Stretches whose time is
    /// no longer known are left out.
    pub fn journal_gaps(&self, opened: u64) -> Result<Vec<JournalGap>, HistoryError> {
        self.read(opened, |connection| {
            let journal_gaps = |row: &Row<'_>| {
                Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?))
            };
            let mut select = connection.prepare_cached(JOURNAL_GAPS)?;
            let rows = select.query_map([GAPS_MAX], journal_gaps)?.collect::<rusqlite::Result<Vec<_>>>()?;
            let mut found = Vec::new();
            for (lines, reason, at) in rows.into_iter().rev() {
                let Some(at) = at else { continue };
                // Lines of that same time also precede the gap.
                let behind = first_line_from(connection, &format!("{at}~"))?;
                let after_id = match behind {
                    Some(behind) => behind.saturating_sub(1),
                    None => last_said(connection)?.unwrap_or_default(),
                };
                found.push(JournalGap { after_id: after_id.unsigned_abs(), lines, reason, at });
            }
            Ok(found)
        })
    }

    /// The position of the first stored event in its epoch; 1 if every event is stored.
    pub fn first_seq(&self, opened: u64) -> Result<Option<u64>, HistoryError> {
        self.read(opened, |connection| {
            let first: Option<i64> = connection.prepare_cached(FIRST_EVENT)?.query_row([], |row| row.get(0))?;
            // A history that another version wrote has no epoch.
            let after: Option<i64> = connection.query_row(AFTER_SEQ, [], |row| row.get(0)).optional().unwrap_or(None);
            Ok(first.map(|first| first.saturating_sub(after.unwrap_or(0)).unsigned_abs()))
        })
    }
}

fn last_said(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(LAST_LINE)?.query_row([], |row| row.get(0))
}

/// Binary search by time; each step reads one row.
fn first_line_from(connection: &Connection, at: &str) -> rusqlite::Result<Option<i64>> {
    let Some(last) = last_said(connection)? else { return Ok(None) };
    let mut select = connection.prepare_cached(LINE_FROM)?;
    // Lines below `low` are earlier, lines from `high` on are not.
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
