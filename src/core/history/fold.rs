//! The fold: records in, rows out.

use super::event_row::{EventRow, Key};
use super::rows_of_record::{GapRow, Rows};

use serde::{Deserialize, Serialize};

use super::activity::SessionActivity;
use super::client_uses::ClientUses;
use super::conversation::{Change, Conversation, Purpose};
use super::deliveries::Deliveries;
use super::groups::{Group, Groups};
use super::meter::Meter;
use super::record_event::{RecordEvent, Seen};
use super::rows::{output_row, tool_rows, turn_rows};
use super::transcript::Transcript;
use crate::journal::Position;

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
    #[serde(default)]
    uses: ClientUses,
}

impl Fold {
    /// The version of the stored form, and of the rows that result from records. A fold of another version is built again
    /// from the journal.
    pub const FORM: u32 = 8;

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
        self.uses.take(seen, &self.conversation.identities, &mut rows.uses);
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
            | RecordEvent::Answer { .. }
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

    /// Checks the open items between two records.
    pub(crate) fn check(&self) {
        self.groups.check();
    }

    /// The position of the first record with pending rows, unless that is the next record.
    #[must_use]
    pub fn open_since(&self) -> Option<&Position> {
        self.groups.first()
    }

    /// Forgets the streams that began before `at`; their rows were emitted in a silence.
    pub fn forget_streams_before(&mut self, at: &Position) {
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
pub struct Recall {
    fold: Fold,
    /// Of the records that are read again.
    deliveries: Deliveries,
    /// The first records of streams whose text is complete again.
    met: Vec<Position>,
}

impl Recall {
    /// Starts from a stored fold.
    #[must_use]
    pub fn of(fold: Fold) -> Recall {
        Recall { deliveries: fold.deliveries.reading_again(), fold, met: Vec::new() }
    }

    /// The first record that is needed; `None` if nothing is missing.
    #[must_use]
    pub fn begins(&self) -> Option<&Position> {
        self.fold.streamed_since()
    }

    /// Processes a record that the fold had processed before it was stored.
    pub fn take(&mut self, at: &Position, seen: &Seen<'_>) {
        if self.deliveries.is_first(seen) {
            self.fold.recall(at, seen, &mut self.met);
        }
    }

    /// The fold with the restored text.
    #[must_use]
    pub fn finish(self) -> Fold {
        self.fold
    }
}
