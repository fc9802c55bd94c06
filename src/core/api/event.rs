//! Events: the numbered rows of the history, in pages and in a stream.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::parameter::{EpochId, Limit, Parameter, query};
use crate::protocol::{named, of_name};

/// Largest number of events or rows in a page. Source: the contract.
pub const EVENTS_MAX: u64 = 500;

query! {
    /// The events after a cursor, or the last ones.
    EventsQuery -> EventPage<Verbatim<EventDocument>> = "codex-events" {
        since_seq: u64,
        since_epoch: EpochId,
        limit: Limit<EVENTS_MAX>,
    }
}

impl EventsQuery {
    /// At most `limit` events after the cursor, or the last ones.
    pub fn after(cursor: Option<&Cursor>, limit: u64) -> EventsQuery {
        EventsQuery {
            since_seq: cursor.map(|cursor| cursor.seq),
            since_epoch: cursor.and_then(|cursor| cursor.epoch.clone()).map(EpochId),
            limit: Some(Limit(limit)),
        }
    }
}

query! {
    /// The events after a cursor, and those that follow: a stream of documents.
    EventStreamQuery -> EventDocument = "codex-events/stream" {
        since_seq: u64,
        since_epoch: EpochId,
        mode: StreamMode,
    }
}

named! {
    /// The form of a stream's events.
    pub enum StreamMode {
        Events = "events",
        /// The records of the journal.
        Raw = "raw",
        /// What a timeline shows.
        Ui = "ui",
    }
}

impl Parameter for StreamMode {
    fn read(text: &str) -> Result<StreamMode, String> {
        of_name(text).ok_or_else(|| "there is events, raw and ui".to_owned())
    }
}

/// A reader's position in a history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The last number that the reader has; 0 before it has one.
    pub seq: u64,
    /// The epoch of that number, if the reader knows it.
    pub epoch: Option<String>,
}

impl Cursor {
    /// The cursor in the parameters of a query.
    pub fn of(seq: Option<u64>, epoch: Option<EpochId>) -> Option<Cursor> {
        seq.map(|seq| Cursor { seq, epoch: epoch.map(|EpochId(epoch)| epoch) })
    }
}

impl From<u64> for Cursor {
    fn from(seq: u64) -> Cursor {
        Cursor { seq, epoch: None }
    }
}

/// The type of the event in the place of events that are missing.
const GAP: &str = "event_gap";

/// An event. A gap of a stream and an event of a fleet have fewer members.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventDocument {
    pub session_id: String,
    /// Its number; `null` if it is not indexed yet.
    pub seq: Option<u64>,
    /// When it happened, RFC 3339.
    pub timestamp: String,
    /// The method, or a name of ours.
    pub event_type: String,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
    /// Its payload, possibly shortened.
    pub payload_preview: Box<RawValue>,
    /// The run of the server.
    pub generation: Option<String>,
    /// The number of deltas that were joined.
    pub delta_count: Option<u64>,
    /// The position of its record, the same before and after the event has a number.
    pub key: Option<String>,
    /// Whether it is stored in the history.
    pub persisted: bool,
    /// The epoch of its number; `null` for an event without a number.
    pub epoch: Option<String>,
}

impl EventDocument {
    /// Whether it stands in the place of events that are missing.
    pub fn is_gap(&self) -> bool {
        self.event_type == GAP
    }

    /// Its payload, or the default of the type if that is of another form.
    pub fn payload<T: DeserializeOwned + Default>(&self) -> T {
        serde_json::from_str(self.payload_preview.get()).unwrap_or_default()
    }

    /// What the event says of the start of a run, if it is one.
    pub fn starts(&self) -> Option<RunPayload> {
        (self.event_type == "generation_started").then(|| self.payload())
    }
}

/// The payload of a gap: events of a stream, or lines that the journal lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GapPayload {
    pub after_seq: Option<u64>,
    #[serde(skip_serializing)]
    pub lines: Option<u64>,
    pub reason: Option<String>,
    pub up_to_seq: Option<u64>,
}

/// The payload of `generation_started`. At the level `summary` of a fleet it says only whether a hub has taken over a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RunPayload {
    pub adopted: bool,
    pub hub: bool,
    pub pid: Option<u64>,
}

/// The event of a stream in the place of the events after `after_seq`, up to `up_to_seq` if that is known.
pub fn gap_event(reason: &str, after_seq: u64, up_to_seq: Option<u64>) -> Box<RawValue> {
    #[derive(Serialize)]
    struct GapEvent {
        event_type: &'static str,
        payload_preview: GapPayload,
        persisted: bool,
        seq: Option<u64>,
    }
    let (reason, after_seq) = (Some(reason.to_owned()), Some(after_seq));
    let payload_preview = GapPayload { after_seq, lines: None, reason, up_to_seq };
    let event = GapEvent { event_type: GAP, payload_preview, persisted: false, seq: None };
    to_raw_value(&event).expect("BUG: plain data is JSON")
}

/// A document with the text that it was read from. The text is passed on unchanged: a relay of another version may have written
/// more members.
#[derive(Debug, Clone)]
pub struct Verbatim<T> {
    pub text: Box<RawValue>,
    pub document: T,
}

impl<T: DeserializeOwned> Verbatim<T> {
    /// Reads a document.
    pub fn read(text: Box<RawValue>) -> serde_json::Result<Verbatim<T>> {
        let document = serde_json::from_str(text.get())?;
        Ok(Verbatim { text, document })
    }
}

impl<T> Serialize for Verbatim<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Verbatim<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Verbatim<T>, D::Error> {
        Verbatim::read(Deserialize::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

named! {
    /// Why a page lacks something.
    pub open enum GapReason {
        /// Retention has deleted it.
        Retention = "retention",
        /// It is recorded but not indexed yet.
        PersistenceError = "persistence_error",
        /// It could not be recorded, or its record is gone.
        JournalGap = "journal_gap",
        /// The cursor belongs to an earlier epoch.
        NewEpoch = "new_epoch",
        /// The cursor is a number that this history has not issued.
        CursorAhead = "cursor_ahead",
    }
}

impl GapReason {
    /// Whether the cursor is not of this history, so that its reader gets all of its events.
    pub fn is_other_history(self) -> bool {
        matches!(self, GapReason::NewEpoch | GapReason::CursorAhead)
    }
}

/// A page of events.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventPage<E = EventDocument> {
    /// The events, in order.
    pub events: Vec<E>,
    /// The lowest stored number.
    pub earliest_seq: Option<u64>,
    /// The highest stored number.
    pub latest_seq: Option<u64>,
    /// One more than the next cursor.
    pub next_seq: u64,
    /// The page lacks something after the cursor.
    #[serde(default)]
    pub history_gap: bool,
    #[serde(default)]
    pub gap_reason: Option<GapReason>,
    /// The epoch of all numbers of this history; `null` if it cannot be read, and relays of older versions omit it.
    pub epoch: Option<String>,
}

impl EventPage {
    /// The same with the text of each event.
    pub fn verbatim(self) -> EventPage<Verbatim<EventDocument>> {
        let text = |event: &EventDocument| to_raw_value(event).expect("BUG: plain data is JSON");
        let verbatim = |document: EventDocument| Verbatim { text: text(&document), document };
        EventPage {
            events: self.events.into_iter().map(verbatim).collect(),
            earliest_seq: self.earliest_seq,
            latest_seq: self.latest_seq,
            next_seq: self.next_seq,
            history_gap: self.history_gap,
            gap_reason: self.gap_reason,
            epoch: self.epoch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::NewerName;

    #[test]
    fn reason_of_a_newer_relay_is_a_gap() {
        let page = |reason: &str| {
            let text =
                format!(r#"{{"events":[],"earliest_seq":null,"latest_seq":null,"next_seq":1,"gap_reason":{reason}}}"#);
            serde_json::from_str::<EventPage<EventDocument>>(&text).expect("it can be read").gap_reason
        };
        assert_eq!(page("null"), None);
        assert_eq!(page(r#""new_epoch""#), Some(GapReason::NewEpoch));
        assert_eq!(page(r#""of-tomorrow""#), Some(GapReason::Newer(NewerName::of("of-tomorrow"))));
    }
}
