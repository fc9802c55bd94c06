//! The fold: records in, rows out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::activity::SessionActivity;
use super::bounded::{PREVIEW_CHARS_MAX, cut, preview};
use super::conversation::{Change, Conversation, Purpose};
use super::deliveries::Deliveries;
use super::groups::{Group, Groups};
use super::identity::ThreadIdentity;
use super::meter::Meter;
use super::record_event::{MethodMessage, RecordEvent, Seen};
use super::rows::{ToolRow, TurnRow, output_row, tool_rows, turn_rows};
use super::transcript::{Entry, Transcript};
use super::usage::{LimitRow, UsageRow};
use crate::journal::Position;
use crate::protocol::ItemPlace;

/// Our own events that appear in a history. Source: the contract of the history.
const OURS: [&str; 21] = [
    "conn_open",
    "conn_close",
    "generation_started",
    "generation_ended",
    "codex_version",
    "request_resolved",
    "turn_not_started",
    "rule_applied",
    "rule_refused",
    "sandboxed_peer",
    "in_reach",
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
    /// What turns and threads have used.
    pub(crate) usage: Vec<UsageRow>,
    pub(crate) limits: Vec<LimitRow>,
    /// Threads of which more is known.
    pub(crate) threads: Vec<(String, ThreadIdentity)>,
    /// The first record that was counted, and its time, in microseconds since the Unix epoch.
    pub(crate) counted_from: Option<(Position, u64)>,
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

/// The position of an event's record, or of its first piece. It is unique within a session, even before the event has a
/// number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub Position);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { segment, offset } = &self.0;
        write!(f, "{}:{}:{offset}", segment.generation, segment.number)
    }
}

/// An event row without its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    pub key: Key,
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    /// The method, or the name of our own event.
    pub event_type: String,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
    /// The payload as JSON: bounded and masked.
    pub payload_preview: String,
    /// Number of joined pieces.
    pub delta_count: Option<u64>,
}

impl EventRow {
    /// The row of a message.
    pub(super) fn of(key: Key, at_us: u64, message: &MethodMessage<'_>) -> EventRow {
        let ItemPlace { thread_id, turn_id, item_id } = message.place.owned();
        EventRow {
            key,
            at_us,
            event_type: message.method.clone().into_owned(),
            thread_id,
            turn_id,
            item_id,
            payload_preview: preview(message.params, PREVIEW_CHARS_MAX),
            delta_count: None,
        }
    }

    /// The row of our own event. `payload` is JSON.
    pub(super) fn ours(key: Key, at_us: u64, event_type: &str, payload: &str) -> EventRow {
        EventRow {
            key,
            at_us,
            event_type: event_type.to_owned(),
            thread_id: None,
            turn_id: None,
            item_id: None,
            payload_preview: cut(payload, PREVIEW_CHARS_MAX),
            delta_count: None,
        }
    }
}

/// State between two records.
///
/// A server may stream a key in pieces, and only the whole key can be recognized. So a fold is stored without the text
/// of open streams; [`Recall`] reads it again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    /// Time of the last record, in microseconds since the Unix epoch.
    at_us: u64,
    #[serde(default)]
    deliveries: Deliveries,
    groups: Groups,
    conversation: Conversation,
    transcript: Transcript,
    meter: Meter,
}

impl Fold {
    /// The version of the stored form, and of the rows that result from records. A fold of another version is built again
    /// from the journal.
    pub(crate) const FORM: u32 = 7;

    /// Processes the record at `at`, and appends the resulting rows.
    pub fn take(&mut self, at: &Position, seen: &Seen<'_>, rows: &mut Rows) {
        let before_us = std::mem::replace(&mut self.at_us, seen.at_us);
        if !self.deliveries.is_first(seen) {
            return;
        }
        let mut over = Vec::new();
        self.groups.time(seen.at_us, &mut over);
        let event = self.event(at, seen, &mut over);
        if self.conversation.ends_run(&seen.event) {
            self.groups.close_all(&mut over);
        }
        // Tools that end now are still known.
        self.join(&mut over, rows);
        rows.events.extend(event);
        if let RecordEvent::Gap { lines, reason } = &seen.event {
            self.gap(at, *lines, reason, rows);
        }
        let step = self.conversation.take(Purpose::Rows(at), seen);
        tool_rows(&step, &self.conversation, &mut rows.tools);
        turn_rows(&step, &mut rows.turns);
        let identified = step.identified.as_ref();
        rows.threads
            .extend(identified.and_then(|id| Some((id.clone(), self.conversation.identities.get(id)?.clone()))));
        self.transcript.take(&step, &self.conversation, &mut rows.entries);
        if self.meter.begins() {
            rows.counted_from = Some((at.clone(), seen.at_us));
        }
        if !matches!(step.change, Change::Piece(_)) || !step.lost.turns.is_empty() {
            self.meter.take(seen, before_us, &step, &self.conversation, rows);
        }
    }

    /// The event of a record, if it has one of its own.
    fn event(&mut self, at: &Position, seen: &Seen<'_>, over: &mut Vec<Group>) -> Option<EventRow> {
        let key = || Key(at.clone());
        match &seen.event {
            RecordEvent::Notification(message) | RecordEvent::ServerRequest { message, id: _ } => {
                let is_piece = self.groups.take(at, seen.at_us, message, over);
                (!is_piece).then(|| EventRow::of(key(), seen.at_us, message))
            }
            RecordEvent::ClientRequest { message, id: _ } => {
                let is_about_thread = message.method.starts_with("turn/") || message.method.starts_with("thread/");
                is_about_thread.then(|| EventRow::of(key(), seen.at_us, message))
            }
            RecordEvent::ShimEvent { event, data } => {
                let payload = data.map_or("null", |data| data.get());
                if *event == "request_resolved"
                    && data.is_some_and(|data| self.conversation.recorded_ends.repeats(data))
                {
                    return None;
                }
                OURS.contains(event).then(|| EventRow::ours(key(), seen.at_us, event, payload))
            }
            RecordEvent::Generation(_)
            | RecordEvent::Response { .. }
            | RecordEvent::Gap { .. }
            | RecordEvent::Other => None,
        }
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

    /// Forgets the streams that began before `at`; their rows were emitted in a silence.
    pub(crate) fn forget_streams_before(&mut self, at: &Position) {
        self.groups.forget_before(at);
    }

    /// The position of the first record whose text is not stored.
    fn streamed_since(&self) -> Option<&Position> {
        self.groups.first().into_iter().chain(self.conversation.streamed_since()).min()
    }

    /// Takes the text of a record that was processed before the fold was stored.
    fn recall(&mut self, at: &Position, seen: &Seen<'_>, met: &mut Vec<Position>) {
        if let RecordEvent::Notification(message) | RecordEvent::ServerRequest { message, id: _ } = &seen.event {
            self.groups.recall(at, message, met);
            self.conversation.recall(at, message, met);
        }
    }

    /// Time of the last record, in microseconds since the Unix epoch.
    #[must_use]
    pub fn at_us(&self) -> u64 {
        self.at_us
    }

    /// The activity of the session and its threads.
    #[must_use]
    pub fn activity(&self) -> SessionActivity {
        SessionActivity::of(&self.conversation)
    }

    /// Emits the rows of closed groups.
    fn join(&self, over: &mut Vec<Group>, rows: &mut Rows) {
        for group in over.drain(..) {
            rows.tools.extend(output_row(&group, &self.conversation));
            rows.events.push(group.into_event());
        }
    }

    fn gap(&mut self, at: &Position, lines: u64, reason: &str, rows: &mut Rows) {
        let mut over = Vec::new();
        self.groups.close_all(&mut over);
        self.join(&mut over, rows);
        self.conversation.gap();
        self.meter.gap();
        rows.gaps.push(GapRow { after_events: rows.events.len(), lines, reason: reason.to_owned() });
        let payload = serde_json::json!({ "lines": lines, "reason": reason }).to_string();
        rows.events.push(EventRow::ours(Key(at.clone()), self.at_us, "event_gap", &payload));
    }
}

/// A stored fold whose text is being read again.
#[derive(Debug)]
pub(crate) struct Recall {
    fold: Fold,
    /// Of the records that are read again.
    deliveries: Deliveries,
    /// The first records of streams whose text is complete again.
    met: Vec<Position>,
}

impl Recall {
    /// Starts from a stored fold.
    #[must_use]
    pub(crate) fn of(fold: Fold) -> Recall {
        Recall { deliveries: fold.deliveries.reading_again(), fold, met: Vec::new() }
    }

    /// The first record that is needed; `None` if nothing is missing.
    #[must_use]
    pub(crate) fn begins(&self) -> Option<&Position> {
        self.fold.streamed_since()
    }

    /// Processes a record that the fold had processed before it was stored.
    pub(crate) fn take(&mut self, at: &Position, seen: &Seen<'_>) {
        if self.deliveries.is_first(seen) {
            self.fold.recall(at, seen, &mut self.met);
        }
    }

    /// The fold with the restored text.
    #[must_use]
    pub(crate) fn finish(self) -> Fold {
        self.fold
    }
}
