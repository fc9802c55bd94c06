//! Arbitrary texts with a key at an arbitrary place: the key goes, everything else stays, and what is masked stays as it is.

#![no_main]

#[allow(dead_code, unreachable_pub, reason = "the tests use more of it")]
#[path = "../../tests/it/key_forms.rs"]
mod key_forms;

use std::sync::LazyLock;

use codex_shim::testing::secrets::{Masker, Pieces, redacted, redacted_json};
use key_forms::{KEY_FORMS, Random};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static MASKER: LazyLock<Masker> = LazyLock::new(|| Masker::new(&[]).expect("no pattern"));

/// Fewest signs of a key that tell it.
const PART_BYTES: usize = 12;

fuzz_target!(|data: &[u8]| {
    let Some(([form, place, pieces], rest)) = data.split_first_chunk() else { return };
    let text = String::from_utf8_lossy(rest);
    stays_masked(&text);
    let (_, bytes) = (redacted_json(&text), MASKER.bytes(rest));
    assert!(bytes.is_none_or(|bytes| bytes.len() == rest.len()));
    let key = Random(u64::from(*form) + 7).key(KEY_FORMS[usize::from(*form) % KEY_FORMS.len()].form);
    if holds_part(&text, &key) {
        // No one could tell the copy from other text.
        return;
    }
    let at = text.floor_char_boundary(text.len() * usize::from(*place) / 255);
    let text = format!("{} {key} {}", &text[..at], &text[at..]);
    stays_masked(&text);
    let json = json!({ "output": text }).to_string();
    let masked = [
        redacted(&text),
        MASKER.text(&text),
        redacted_json(&json),
        MASKER.json(&json),
        Some(in_pieces(&text, usize::from(*pieces) + 1)),
    ];
    for masked in masked {
        let masked = masked.unwrap_or_else(|| text.clone());
        assert!(!holds_part(&masked, &key), "{key} in {text:?}: {masked:?}");
    }
});

/// A part of a key that is no mark of its kind, in a text.
fn holds_part(text: &str, key: &str) -> bool {
    let parts = key.as_bytes()[key.len() / 3..].windows(PART_BYTES);
    let parts = parts.filter(|part| part.iter().all(u8::is_ascii_alphanumeric));
    parts.map(|part| std::str::from_utf8(part).expect("ASCII")).any(|part| text.contains(part))
}

/// Masked text has everything that is not a secret. Masks as long as the secrets do not change if they are masked again; others
/// move what stands behind them, so that more may look like a secret.
fn stays_masked(text: &str) {
    if let Some(masked) = redacted(text) {
        is_rest(text, &masked);
    }
    if let Some(masked) = MASKER.text(text) {
        assert_eq!(masked.len(), text.len(), "{text:?} {masked:?}");
        let differs = text.bytes().zip(masked.bytes()).filter(|(one, other)| one != other);
        differs.for_each(|(_, sign)| assert!(b"[redacted]*".contains(&sign), "{text:?} {masked:?}"));
        let again = MASKER.text(&masked);
        assert!(again.is_none() || again.as_ref() == Some(&masked), "{text:?} {masked:?} {again:?}");
    }
}

/// The parts between masks stand in the text, in the same order.
fn is_rest(text: &str, masked: &str) {
    let mut rest = text;
    for (number, part) in masked.split("[redacted]").enumerate() {
        let at = if number == 0 { rest.starts_with(part).then_some(0) } else { rest.find(part) };
        let at = at.unwrap_or_else(|| panic!("{part:?} of {masked:?} is not in {text:?}"));
        rest = &rest[at + part.len()..];
    }
}

/// The text masked in pieces, as deltas of a stream are.
fn in_pieces(text: &str, bytes: usize) -> String {
    let mut pieces = Pieces::default();
    let (mut all, mut from) = (Vec::new(), 0);
    while from < text.len() {
        let to = text.ceil_char_boundary(from + bytes);
        all.push(json!({ "delta": text[from..to] }).to_string());
        from = to;
    }
    let numbered = || all.iter().zip(0_u64..);
    numbered().for_each(|(json, number)| pieces.add("x".to_owned(), number, json));
    let spans = MASKER.in_pieces(&pieces);
    let masked = numbered().map(|(json, number)| {
        let in_delta = spans.get(&number).map_or(&[][..], Vec::as_slice);
        let masked = MASKER.json_piece(json, in_delta).unwrap_or_else(|| json.clone());
        let masked: Value = serde_json::from_str(&masked).expect("masked JSON is JSON");
        masked["delta"].as_str().expect("a text").to_owned()
    });
    let masked: String = masked.collect();
    assert_eq!(masked.len(), text.len(), "{text:?} {masked:?}");
    masked
}
