//! Bounds and masks text and JSON, and formats times: what every row and document is written with.
//!
//! Transcripts are masked with masks as long as the secret, like those of `redact`: a history rebuilt from a redacted
//! journal has the same entries.

use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use serde_json::value::RawValue;

use super::record_event::Params;
use crate::secrets::{Masker, redacted, redacted_json};

/// Longest payload of an event that is stored whole, in characters. Source: the contract of the history.
pub(super) const PREVIEW_CHARS_MAX: usize = 1_500;

/// Longest excerpt of the payload of a tool or turn, in characters. Source: the contract of the history.
pub(super) const EXCERPT_CHARS_MAX: usize = 4_000;

/// Bytes inspected beyond a cut, so that a secret across the cut is still recognized.
pub(super) const BEYOND_CUT_BYTES: usize = 1_000;

static MASKER: LazyLock<Masker> = LazyLock::new(|| Masker::new(&[]).expect("BUG: there is no pattern"));

pub(super) fn masked_json(json: String) -> String {
    MASKER.json(&json).unwrap_or(json)
}

/// Masks parameters; returns `None` if they have no secret.
pub(super) fn masked_params(params: Params<'_>) -> Option<Box<RawValue>> {
    RawValue::from_string(MASKER.json(params.written()?.get())?).ok()
}

pub(super) fn masked_text(text: &str) -> String {
    redacted(text).unwrap_or_else(|| text.to_owned())
}

/// Masks an incomplete text; its last word may be the beginning of a secret, and is left out.
pub(super) fn masked_so_far(text: &str) -> String {
    let masked = masked_text(text);
    masked[..masked.rfind(char::is_whitespace).map_or(0, |at| at + 1)].trim_end().to_owned()
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

/// A value up to `bytes_max` of JSON; a longer one is replaced with its end as text.
pub(super) fn bounded(value: &Value, bytes_max: usize) -> Value {
    let written = value.to_string();
    match tail(&written, bytes_max) {
        (_, 0) => value.clone(),
        (tail, cut_bytes) => serde_json::json!({ "truncated_by_bytes": cut_bytes, "tail": tail }),
    }
}

/// The end of a text, and the number of bytes cut off before it.
pub(super) fn tail(text: &str, bytes_max: usize) -> (&str, usize) {
    let from = text.ceil_char_boundary(text.len().saturating_sub(bytes_max));
    (&text[from..], from)
}

/// Formats microseconds since the Unix epoch as RFC 3339 in UTC, truncated to milliseconds.
#[must_use]
pub(crate) fn rfc3339_millis(at_us: u64) -> String {
    // A record may contain any number; the year 9999 is the last printable one.
    let at = Duration::from_micros(at_us.min(253_402_300_799_999_999));
    humantime::format_rfc3339_millis(UNIX_EPOCH + at).to_string()
}

/// Milliseconds between the times of two records.
pub(super) fn latency_ms(from_us: u64, to_us: u64) -> u64 {
    to_us.saturating_sub(from_us) / 1_000
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

    #[test]
    fn end_is_kept_without_splitting_characters() {
        let check = |text: &str, bytes_max, expect| assert_eq!(tail(text, bytes_max), expect);
        check("abc", 3, ("abc", 0));
        check("abc", 2, ("bc", 1));
        check("aüc", 2, ("c", 3));
        check("", 0, ("", 0));
        let value = serde_json::json!({ "a": "bcdef" });
        assert_eq!(bounded(&value, 13), value);
        assert_eq!(bounded(&value, 4), serde_json::json!({ "truncated_by_bytes": 9, "tail": "ef\"}" }));
    }

    #[test]
    fn known_times() {
        let check = |at_us: u64, expect: &str| assert_eq!(rfc3339_millis(at_us), expect);
        check(7_999, "1970-01-01T00:00:00.007Z");
        check(1_767_225_600_000_000, "2026-01-01T00:00:00.000Z");
        check(u64::MAX, "9999-12-31T23:59:59.999Z");
    }
}
