//! An event of the record, as it is stored.

use std::fmt;

use super::bounded::{PREVIEW_CHARS_MAX, cut, preview};
use super::record_event::MethodMessage;
use crate::journal::Position;
use crate::protocol::ItemPlace;

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
