//! Queries for tool events, turn events and transcripts.

use std::time::UNIX_EPOCH;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use serde_json::{Map, Value};

use super::database::last_row;
use super::epochs::Epoch;
use super::maintenance;
use super::query::{Around, Begun, Cursor, GapReason, History, HistoryError, epoch, number};
use crate::history::{Action, KeptTool, Phase, ToolRow, actions, of_name};

/// A table whose rows are returned unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// `codex_tool_events`
    Tools,
    /// `codex_turn_events`
    Turns,
}

/// A page of such rows.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct RowPage {
    /// The rows, in order.
    pub events: Vec<Value>,
    /// The lowest stored number.
    pub earliest_id: Option<u64>,
    /// The highest stored number.
    pub latest_id: Option<u64>,
    /// One more than the next cursor.
    pub next_id: u64,
    /// The page lacks something after the cursor.
    pub history_gap: bool,
    pub gap_reason: Option<GapReason>,
    /// The epoch of all numbers of this history; `null` if the index has not begun it.
    pub epoch: Option<String>,
}

const TOOLS_NEWEST_FIRST: &str = "SELECT * FROM codex_tool_events ORDER BY id DESC LIMIT 5000";

pub(super) const LAST_TOOLS: &str = "SELECT * FROM codex_tool_events ORDER BY id DESC LIMIT ?1";

const THREADS: &str = "
    SELECT thread_id FROM (SELECT thread_id, MAX(id) AS last FROM codex_transcript_entries GROUP BY thread_id)
    ORDER BY last DESC";

/// Most rows searched for a thread's last action.
const LAST_ACTION_ROWS: i64 = 200;

pub(super) const TRANSCRIPT_NEWEST_FIRST: &str =
    "SELECT entry FROM codex_transcript_entries WHERE thread_id = ?1 ORDER BY id DESC";

pub(super) const TRANSCRIPT: &str = "SELECT entry FROM codex_transcript_entries WHERE thread_id = ?1 ORDER BY id";

impl Table {
    fn name(self) -> &'static str {
        match self {
            Table::Tools => "codex_tool_events",
            Table::Turns => "codex_turn_events",
        }
    }

    /// Queries the lowest and the highest number.
    fn bounds(self) -> &'static str {
        match self {
            Table::Tools => maintenance::TOOLS.bounds,
            Table::Turns => maintenance::TURNS.bounds,
        }
    }

    pub(super) fn after(self) -> &'static str {
        match self {
            Table::Tools => "SELECT * FROM codex_tool_events WHERE id > ?1 ORDER BY id LIMIT ?2",
            Table::Turns => "SELECT * FROM codex_turn_events WHERE id > ?1 ORDER BY id LIMIT ?2",
        }
    }

    pub(super) fn last(self) -> &'static str {
        match self {
            Table::Tools => "SELECT * FROM (SELECT * FROM codex_tool_events ORDER BY id DESC LIMIT ?1) ORDER BY id",
            Table::Turns => "SELECT * FROM (SELECT * FROM codex_turn_events ORDER BY id DESC LIMIT ?1) ORDER BY id",
        }
    }
}

impl History {
    /// At most `limit` rows after the cursor `since`, or the last ones, like [`History::events`]. Only events report
    /// journal gaps.
    pub fn rows(
        &self,
        table: Table,
        since: Option<&Cursor>,
        limit: u64,
        opened: u64,
        is_behind: bool,
    ) -> Result<RowPage, HistoryError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(opened, |connection| {
            let connection = connection.unchecked_transaction()?;
            let bounds = |row: &Row<'_>| Ok((number(row, 0)?, number(row, 1)?));
            let (earliest, latest) = connection.prepare_cached(table.bounds())?.query_row([], bounds)?;
            let around = around(&connection, table, earliest, is_behind)?;
            let begun = Begun::of(since, &around);
            let events: Vec<Value> = match begun.from {
                Some(since) => {
                    let since = i64::try_from(since).unwrap_or(i64::MAX);
                    let mut select = connection.prepare_cached(table.after())?;
                    select.query_map(params![since, limit], document)?.collect::<Result<_, _>>()?
                }
                None => {
                    let mut select = connection.prepare_cached(table.last())?;
                    select.query_map(params![limit], document)?.collect::<Result<_, _>>()?
                }
            };
            let id = |event: Option<&Value>| event.and_then(|event| event["id"].as_u64());
            let (next_id, gap_reason) = begun.end(id(events.first()), id(events.last()), &around);
            Ok(RowPage {
                events,
                earliest_id: earliest,
                latest_id: latest,
                next_id,
                history_gap: gap_reason.is_some(),
                gap_reason,
                epoch: around.epoch.map(|epoch| epoch.id),
            })
        })
    }

    /// The `limit` most recently changed actions.
    pub fn actions(&self, limit: u64, opened: u64) -> Result<Vec<Action>, HistoryError> {
        self.read(opened, |connection| {
            let mut select = connection.prepare_cached(TOOLS_NEWEST_FIRST)?;
            let mut failed = None;
            let rows = select.query_map([], kept_tool)?.map_while(|row| row.map_err(|error| failed = Some(error)).ok());
            let found = actions(rows.flatten(), usize::try_from(limit).unwrap_or(usize::MAX));
            failed.map_or(Ok(found), Err)
        })
    }

    /// The last action in each of `threads`, if it is recent.
    pub fn last_actions(&self, threads: &[String], opened: u64) -> Result<Vec<Option<Action>>, HistoryError> {
        self.read(opened, |connection| {
            let mut select = connection.prepare_cached(LAST_TOOLS)?;
            let rows = select.query_map([LAST_ACTION_ROWS], kept_tool)?.collect::<Result<Vec<_>, _>>()?;
            let last = |thread: &String| {
                let of_thread = rows.iter().flatten().filter(|kept| kept.row.thread_id.as_deref() == Some(thread));
                actions(of_thread.cloned(), 1).pop()
            };
            Ok(threads.iter().map(last).collect())
        })
    }

    /// The threads with a transcript, the most recent first.
    pub fn threads(&self, opened: u64) -> Result<Vec<String>, HistoryError> {
        self.read(opened, |connection| connection.prepare_cached(THREADS)?.query_map([], |row| row.get(0))?.collect())
    }

    /// The end of a thread's transcript, as JSON, oldest first: as many whole entries as fit into `bytes_max`.
    pub fn transcript_end(&self, thread_id: &str, bytes_max: usize, opened: u64) -> Result<Vec<String>, HistoryError> {
        self.read(opened, |connection| {
            let mut select = connection.prepare_cached(TRANSCRIPT_NEWEST_FIRST)?;
            let mut rows = select.query([thread_id])?;
            let (mut entries, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let entry: String = row.get(0)?;
                bytes += entry.len();
                if bytes > bytes_max {
                    break;
                }
                entries.push(entry);
            }
            entries.reverse();
            Ok(entries)
        })
    }

    /// A thread's transcript, as JSON, oldest first.
    pub fn transcript(&self, thread_id: &str, opened: u64) -> Result<Vec<String>, HistoryError> {
        self.read(opened, |connection| {
            let mut select = connection.prepare_cached(TRANSCRIPT)?;
            select.query_map([thread_id], |row| row.get(0))?.collect()
        })
    }
}

/// Facts about a table besides the rows of a page.
fn around(connection: &Connection, table: Table, earliest: Option<u64>, is_behind: bool) -> rusqlite::Result<Around> {
    let last = last_row(connection, table.name())?;
    let epoch = epoch(connection)?.map(|epoch| {
        // An older version's row numbers did not start with the epoch.
        let is_older = earliest.is_some_and(|earliest| earliest <= epoch.after_seq);
        let after_seq = if is_older { 0 } else { epoch.after_seq };
        // A database that is being rebuilt does not know its last row number.
        let promised = if is_behind { u64::MAX } else { 0 };
        Epoch { after_seq, promised, ..epoch }
    });
    let last = last.unwrap_or_else(|| epoch.as_ref().map_or(0, |epoch| epoch.after_seq));
    // An empty table still has a last number.
    let earliest = earliest.or((last > 0).then_some(last + 1));
    Ok(Around { earliest, last, last_gap_after: None, is_behind, epoch })
}

/// A row as JSON. JSON columns are parsed, and lose the suffix of their name.
fn document(row: &Row<'_>) -> rusqlite::Result<Value> {
    let mut document = Map::new();
    for (index, name) in row.as_ref().column_names().enumerate() {
        let value = match row.get_ref(index)? {
            ValueRef::Integer(number) => Value::from(number),
            ValueRef::Real(number) => Value::from(number),
            ValueRef::Text(text) => Value::from(String::from_utf8_lossy(text)),
            ValueRef::Null | ValueRef::Blob(_) => Value::Null,
        };
        match (name.strip_suffix("_json"), value) {
            (Some(plain), Value::String(json)) => {
                document.insert(plain.to_owned(), serde_json::from_str(&json).unwrap_or_default());
            }
            (Some(plain), value) => drop(document.insert(plain.to_owned(), value)),
            (None, value) => drop(document.insert(name.to_owned(), value)),
        }
    }
    Ok(Value::Object(document))
}

/// A row of `codex_tool_events`; `None` if its event is unknown.
fn kept_tool(row: &Row<'_>) -> rusqlite::Result<Option<KeptTool>> {
    let text = |name: &str| row.get::<_, Option<String>>(name);
    let created_at: String = row.get("created_at")?;
    let at = humantime::parse_rfc3339(&created_at).unwrap_or(UNIX_EPOCH);
    let session_id = row.get("session_id")?;
    let Some(event_type) = of_name(&row.get::<_, String>("event_type")?) else { return Ok(None) };
    let row = ToolRow {
        at_us: at.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64,
        thread_id: text("thread_id")?,
        turn_id: text("turn_id")?,
        item_id: text("item_id")?,
        request_id: text("request_id")?,
        event_type,
        item_type: text("item_type")?,
        phase: text("phase")?.and_then(|phase| of_name(&phase)).unwrap_or(Phase::Running),
        command: text("command")?,
        cwd: text("cwd")?,
        exit_code: row.get("exit_code")?,
        file_path: text("file_path")?,
        diff_summary: text("diff_summary")?,
        approval_decision: text("approval_decision")?,
        latency_ms: row.get::<_, Option<i64>>("latency_ms")?.and_then(|value| u64::try_from(value).ok()),
        final_status: text("final_status")?,
        error_code: text("error_code")?,
        error_message: text("error_message")?,
        raw_payload_json: text("raw_payload_json")?,
    };
    Ok(Some(KeptTool { session_id, row }))
}
