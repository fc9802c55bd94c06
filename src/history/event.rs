//! Event rows: one per record that belongs in a history.

use std::fmt;

use serde_json::Value;

use super::record_event::{MethodMessage, Params};
use crate::engine::{redacted, redacted_json};
use crate::journal::Position;

/// Longest payload of an event that is stored whole, in characters. Source: the contract of the history.
pub(super) const PREVIEW_CHARS_MAX: usize = 1_500;

/// Longest excerpt of the payload of a tool or turn, in characters. Source: the contract of the history.
pub(super) const EXCERPT_CHARS_MAX: usize = 4_000;

/// Bytes inspected beyond a cut, so that a secret across the cut is still recognized.
pub(super) const BEYOND_CUT_BYTES: usize = 1_000;

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
        let owned = |part: &Option<std::borrow::Cow<'_, str>>| part.as_deref().map(str::to_owned);
        EventRow {
            key,
            at_us,
            event_type: message.method.clone().into_owned(),
            thread_id: owned(&message.place.thread_id),
            turn_id: owned(&message.place.turn_id),
            item_id: owned(&message.place.item_id),
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

/// Parameters as JSON, bounded and masked.
pub(super) fn preview(params: Params<'_>, chars_max: usize) -> String {
    match params {
        Params::Written(raw) => cut(raw.get(), chars_max),
        Params::None => "null".to_owned(),
        Params::Omitted(reason) => format!("{{\"omitted\":{}}}", Value::from(reason)),
    }
}

/// Bounds and masks JSON; if it is too long, returns an object with its start as text.
pub(super) fn cut(json: &str, chars_max: usize) -> String {
    if json.len() <= chars_max || (json.len() <= 4 * chars_max && json.chars().count() <= chars_max) {
        let masked = redacted_json(json);
        return match masked {
            Some(masked) if masked.chars().count() > chars_max => cut_text(&masked, chars_max, json),
            Some(masked) => masked,
            None => json.to_owned(),
        };
    }
    // Far enough to keep every character that counts.
    let seen = &json[..json.floor_char_boundary(4 * chars_max + BEYOND_CUT_BYTES)];
    match redacted_json(seen) {
        Some(masked) => cut_text(&masked, chars_max, json),
        None => cut_text(seen, chars_max, json),
    }
}

fn cut_text(text: &str, chars_max: usize, original: &str) -> String {
    let preview = Value::from(start_of(text, chars_max));
    let original_chars = original.chars().count();
    format!("{{\"truncated\":true,\"preview\":{preview},\"original_chars\":{original_chars}}}")
}

/// Wraps masked text as JSON; if it is too long, returns an object with its start.
pub(super) fn cut_plain(text: &str, chars_max: usize) -> String {
    match start_of(text, chars_max).len() == text.len() {
        true => Value::from(text).to_string(),
        false => cut_text(text, chars_max, text),
    }
}

/// The start of untrusted text, masked.
pub(super) fn masked_start(text: &str, chars_max: usize) -> String {
    let seen = &text[..text.floor_char_boundary(4 * chars_max + BEYOND_CUT_BYTES)];
    match redacted(seen) {
        Some(masked) => start_of(&masked, chars_max).to_owned(),
        None => start_of(seen, chars_max).to_owned(),
    }
}

/// At most `chars_max` characters of a text.
pub(super) fn start_of(text: &str, chars_max: usize) -> &str {
    let end = text.char_indices().nth(chars_max).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    #[test]
    fn base64_output_is_masked_in_rows() {
        let delta = |text: &str| format!(r#"{{"processId":"p","deltaBase64":"{}"}}"#, BASE64_STANDARD.encode(text));
        let key = "use sk-abcdefghijklmnopqrst";
        assert_eq!(cut(&delta(&format!("{key} now")), 1_000), delta("use [redacted] now"));
        let long = cut(&delta(&format!("{key} {}", "x".repeat(9_000))), 100);
        let start = BASE64_STANDARD.encode("use [redacted] x");
        assert!(long.contains(&start[..20]) && long.contains("\"truncated\":true"), "{long}");
    }

    #[test]
    fn payload_is_bounded_and_masked() {
        let check = |json: &str, expect: &str| assert_eq!(cut(json, 20), expect);
        check(r#"{"a":1}"#, r#"{"a":1}"#);
        check(r#"{"a":"ääääääääää"}"#, r#"{"a":"ääääääääää"}"#);
        check(
            r#"{"a":"äääääääääääää"}"#,
            r#"{"truncated":true,"preview":"{\"a\":\"ääääääääääääää","original_chars":21}"#
                .replace("ääääääääääääää", "äääääääääääää\\\"")
                .as_str(),
        );
        let long = format!(r#"{{"a":"Bearer {}"}}"#, "x".repeat(99));
        check(&long, r#"{"truncated":true,"preview":"{\"a\":\"Bearer [redact","original_chars":114}"#);
        assert_eq!(cut(r#"{"api_key":"hunter22"}"#, 100), r#"{"api_key":"[redacted]"}"#);
    }
}
