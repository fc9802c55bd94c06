//! The fold: records in, rows out.

use serde::{Deserialize, Serialize};

use super::activity::ActivityFold;
use super::event::{EventRow, Key};
use super::groups::{Group, Groups};
use super::record_event::{RecordEvent, Seen};
use super::tool_row::ToolRow;
use super::tools::Tools;
use super::transcript::{Entry, Transcript};
use super::turns::{TurnRow, Turns};
use crate::journal::Position;
use crate::protocol::Method;

/// Our own events that appear in a history. Source: the contract of the history.
const OURS: [&str; 14] = [
    "generation_started",
    "generation_ended",
    "codex_version",
    "request_resolved",
    "context_delivered",
    "context_projected",
    "context_engine_started",
    "context_engine_ended",
    "context_engine_call",
    "context_engine_compacted",
    "native_compaction",
    "fragments_told",
    "fragment_failed",
    "event_persist_recovered",
];

/// Rows derived from records.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// In order.
    pub events: Vec<EventRow>,
    /// Missing stretches of the journal.
    pub gaps: Vec<GapRow>,
    pub tools: Vec<ToolRow>,
    pub turns: Vec<TurnRow>,
    /// Transcript entries.
    pub entries: Vec<Entry>,
}

/// A missing stretch of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapRow {
    /// Number of events in the same batch that precede the gap.
    pub after_events: usize,
    /// Number of lines; 0 if unknown.
    pub lines: u64,
    pub reason: String,
}

/// State between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    generation: Option<String>,
    /// Time of the last record, in microseconds since the Unix epoch.
    at_us: u64,
    groups: Groups,
    tools: Tools,
    turns: Turns,
    transcript: Transcript,
    activity: ActivityFold,
}

impl Fold {
    /// Processes the record at `at`, and appends the resulting rows.
    pub fn take(&mut self, at: &Position, seen: &Seen<'_>, rows: &mut Rows) {
        self.at_us = seen.at_us;
        let mut over = Vec::new();
        self.groups.time(seen.at_us, &mut over);
        self.join(&mut over, rows);
        let mut event = None;
        match &seen.event {
            RecordEvent::Generation(generation) => {
                if self.generation.as_ref() != Some(generation) {
                    self.run_ended(seen.at_us, rows);
                    self.generation = Some(generation.clone());
                }
                return;
            }
            RecordEvent::Notification(message) | RecordEvent::ServerRequest { message, id: _ } => {
                let is_piece = self.groups.take(at, seen.at_us, message, &mut over);
                self.join(&mut over, rows);
                if !is_piece {
                    event = Some(EventRow::of(Key(at.clone()), seen.at_us, message));
                }
            }
            RecordEvent::ClientRequest { message, id: _ } => {
                if message.method.starts_with("turn/") || message.method.starts_with("thread/") {
                    event = Some(EventRow::of(Key(at.clone()), seen.at_us, message));
                }
            }
            RecordEvent::ShimEvent { event: name, data } => {
                if *name == "generation_ended" {
                    self.run_ended(seen.at_us, rows);
                }
                if OURS.contains(name) {
                    let payload = data.map_or("null", |data| data.get());
                    event = Some(EventRow::ours(Key(at.clone()), seen.at_us, name, payload));
                }
            }
            RecordEvent::Gap { lines, reason } => self.gap(at, *lines, reason, rows),
            RecordEvent::Response { .. } | RecordEvent::Other => {}
        }
        rows.events.extend(event);
        if let RecordEvent::Notification(message) = &seen.event
            && message.known == Some(Method::TurnStarted)
            && let Some(turn_id) = self.turns.replaced_by(&message.place)
        {
            let thread_id = message.place.thread_id.as_deref();
            self.tools.turn_replaced(seen.at_us, thread_id, turn_id, &mut rows.tools);
        }
        self.tools.take(seen, &mut rows.tools);
        self.turns.take(at, seen, &mut rows.turns);
        self.transcript.take(seen, &mut rows.entries);
        self.activity.take(seen);
    }

    /// A stretch of the journal is missing; reading continues at `at`.
    pub fn lost(&mut self, at: &Position, rows: &mut Rows) {
        self.gap(at, 0, "segment_removed", rows);
    }

    /// The record at `at` is unreadable.
    pub fn unreadable(&mut self, at: &Position, rows: &mut Rows) {
        self.gap(at, 1, "unreadable_record", rows);
    }

    /// No record was written up to `now_us`, in microseconds since the Unix epoch.
    pub fn silence(&mut self, now_us: u64, rows: &mut Rows) {
        let mut over = Vec::new();
        self.groups.silence(now_us, &mut over);
        self.join(&mut over, rows);
    }

    /// Whether [`Fold::silence`] would produce rows.
    #[must_use]
    pub fn awaits_silence(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The position of the first record with pending rows, unless that is the next record.
    #[must_use]
    pub fn open_since(&self) -> Option<&Position> {
        self.groups.first()
    }

    /// The position of the first record whose text is not stored.
    pub(super) fn streamed_since(&self) -> Option<&Position> {
        self.groups.first().into_iter().chain(self.turns.streamed_since()).min()
    }

    /// Takes the text of a record that was processed before the fold was stored.
    pub(super) fn recall(&mut self, at: &Position, seen: &Seen<'_>, met: &mut Vec<Position>) {
        if let RecordEvent::Notification(message) | RecordEvent::ServerRequest { message, id: _ } = &seen.event {
            self.groups.recall(at, message, met);
            self.turns.recall(at, message, met);
        }
    }

    /// Time of the last record, in microseconds since the Unix epoch.
    #[must_use]
    pub fn at_us(&self) -> u64 {
        self.at_us
    }

    /// The activity of the session and its threads.
    #[must_use]
    pub fn activity(&self) -> &ActivityFold {
        &self.activity
    }

    /// Emits the rows of closed groups.
    fn join(&self, over: &mut Vec<Group>, rows: &mut Rows) {
        for group in over.drain(..) {
            self.tools.output(&group, &mut rows.tools);
            rows.events.push(group.into_event());
        }
    }

    fn join_all(&mut self, rows: &mut Rows) {
        let mut over = Vec::new();
        self.groups.close_all(&mut over);
        self.join(&mut over, rows);
    }

    fn gap(&mut self, at: &Position, lines: u64, reason: &str, rows: &mut Rows) {
        self.join_all(rows);
        rows.gaps.push(GapRow { after_events: rows.events.len(), lines, reason: reason.to_owned() });
        let payload = serde_json::json!({ "lines": lines, "reason": reason }).to_string();
        rows.events.push(EventRow::ours(Key(at.clone()), self.at_us, "event_gap", &payload));
    }

    /// The child has ended: work in progress has no end of its own.
    fn run_ended(&mut self, at_us: u64, rows: &mut Rows) {
        self.join_all(rows);
        self.tools.run_ended(at_us, &mut rows.tools);
        self.turns.run_ended(at_us, &mut rows.turns);
        self.transcript.run_ended(at_us, &mut rows.entries);
        self.activity.run_ended(at_us);
    }
}
