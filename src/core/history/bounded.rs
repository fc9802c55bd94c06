//! Limits: maps and sets bounded in entries and bytes; and texts, bounded and masked, that every row and document is written
//! with.
//!
//! Transcripts are masked with masks as long as the secret, like those of `redact`: a history rebuilt from a redacted
//! journal has the same entries.

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha1::{Digest as _, Sha1};

use super::record_event::Params;
use crate::secrets::{Masker, redacted, redacted_json};

/// A value that can estimate its size in memory.
pub(super) trait Weigh {
    /// Approximate bytes; exact for parts that a peer controls, a small constant for the rest.
    fn weight(&self) -> usize;

    /// Whether values of this type can be lightened or spare.
    const HAS_SPARE: bool = false;

    /// Drops details, before any entry is evicted for its size.
    fn lighten(&mut self) {}

    /// Whether it is evicted before other entries.
    fn is_spare(&self) -> bool {
        false
    }
}

impl Weigh for String {
    fn weight(&self) -> usize {
        size_of::<String>() + self.len()
    }
}

/// Parsed JSON takes far more memory than its text. The parser limits its depth.
impl Weigh for Value {
    fn weight(&self) -> usize {
        let held = match self {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(Weigh::weight).sum(),
            Value::Object(members) => members.iter().map(|(name, value)| name.weight() + value.weight()).sum(),
        };
        size_of::<Value>() + held
    }
}

impl Weigh for () {
    fn weight(&self) -> usize {
        0
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn weight(&self) -> usize {
        self.as_ref().map_or(size_of::<usize>(), T::weight)
    }
}

impl<T: Weigh> Weigh for Vec<T> {
    fn weight(&self) -> usize {
        size_of::<Vec<T>>() + self.iter().map(T::weight).sum::<usize>()
    }
}

impl<A: Weigh, B: Weigh> Weigh for (A, B) {
    fn weight(&self) -> usize {
        self.0.weight() + self.1.weight()
    }
}

/// Limit of a map without a limit of its own, in bytes.
const BYTES_MAX: usize = 2 << 20;

/// A map of at most [`Bounded::MAX`] entries and so many bytes. Beyond that, entries are evicted and returned to the
/// caller of `insert`: spare ones first, and each time the oldest. An entry that is too large by itself is returned at
/// once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(K, V)>", into = "Vec<(K, V)>")]
#[serde(
    bound = "K: Ord + Clone + Weigh + Serialize + serde::de::DeserializeOwned, V: Clone + Weigh + Serialize + serde::de::DeserializeOwned"
)]
pub(super) struct Bounded<K: Ord + Clone + Weigh, V: Clone + Weigh> {
    entries: BTreeMap<K, V>,
    oldest_first: VecDeque<K>,
    bytes: usize,
    bytes_max: usize,
}

impl<K: Ord + Clone + Weigh, V: Clone + Weigh> Default for Bounded<K, V> {
    fn default() -> Self {
        Bounded::with_bytes_max(BYTES_MAX)
    }
}

impl<K: Ord + Clone + Weigh, V: Clone + Weigh> From<Vec<(K, V)>> for Bounded<K, V> {
    fn from(entries: Vec<(K, V)>) -> Self {
        let mut bounded = Bounded::default();
        entries.into_iter().for_each(|(key, value)| drop(bounded.insert(key, value)));
        bounded
    }
}

impl<K: Ord + Clone + Weigh, V: Clone + Weigh> From<Bounded<K, V>> for Vec<(K, V)> {
    fn from(mut bounded: Bounded<K, V>) -> Vec<(K, V)> {
        bounded.take_all()
    }
}

/// Each entry stores its key twice.
fn weight<K: Weigh, V: Weigh>(key: &K, value: &V) -> usize {
    2 * key.weight() + value.weight()
}

impl<K: Ord + Clone + Weigh, V: Clone + Weigh> Bounded<K, V> {
    /// Most entries.
    pub(super) const MAX: usize = 4_096;

    pub(super) fn with_bytes_max(bytes_max: usize) -> Self {
        Bounded { entries: BTreeMap::new(), oldest_first: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Inserts a value; returns the previous value of the key and evicted entries.
    pub(super) fn insert(&mut self, key: K, value: V) -> Vec<(K, V)> {
        let added = weight(&key, &value);
        if added > self.bytes_max {
            let before = self.remove(&key).map(|before| (key.clone(), before));
            return before.into_iter().chain([(key, value)]).collect();
        }
        self.bytes += added;
        let mut gone = Vec::new();
        match self.entries.insert(key.clone(), value) {
            Some(before) => {
                self.bytes -= weight(&key, &before);
                gone.push((key.clone(), before));
            }
            None => self.oldest_first.push_back(key.clone()),
        }
        gone.extend(self.evict(&key));
        gone
    }

    /// Changes the value of a key, if present; returns the result and evicted entries.
    pub(super) fn change<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> Option<(R, Vec<(K, V)>)> {
        let value = self.entries.get_mut(key)?;
        let before = value.weight();
        let given = change(value);
        self.bytes = self.bytes + value.weight() - before;
        Some((given, self.evict(key)))
    }

    /// Changes all values without making any of them larger.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&mut V)) {
        for value in self.entries.values_mut() {
            let before = value.weight();
            change(value);
            self.bytes = self.bytes + value.weight() - before;
        }
    }

    /// Makes room after a change at `changed`, which is not spare now.
    fn evict(&mut self, changed: &K) -> Vec<(K, V)> {
        if V::HAS_SPARE {
            self.lighten(changed);
        }
        let mut gone = Vec::new();
        while self.oldest_first.len() > Self::MAX || self.bytes > self.bytes_max {
            let is_spare = |key: &&K| *key != changed && self.entries.get(key).is_some_and(V::is_spare);
            let spare = if V::HAS_SPARE { self.oldest_first.iter().find(is_spare) } else { None };
            let Some(meant) = spare.or(self.oldest_first.front()).cloned() else { break };
            gone.extend(self.remove(&meant).map(|value| (meant, value)));
        }
        gone
    }

    /// Lightens entries while there are too many bytes, spare ones first.
    fn lighten(&mut self, changed: &K) {
        for is_spare in [true, false] {
            for key in &self.oldest_first {
                if self.bytes <= self.bytes_max {
                    return;
                }
                let value = self.entries.get_mut(key).filter(|_| key != changed);
                let Some(value) = value.filter(|value| value.is_spare() == is_spare) else { continue };
                let before = value.weight();
                value.lighten();
                self.bytes = self.bytes + value.weight() - before;
            }
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.entries.remove(key)?;
        self.bytes -= weight(key, &value);
        match self.oldest_first.front() == Some(key) {
            true => drop(self.oldest_first.pop_front()),
            false => self.oldest_first.retain(|kept| kept != key),
        }
        Some(value)
    }

    /// Removes matching entries, oldest first.
    pub(super) fn take_if(&mut self, mut is_meant: impl FnMut(&K, &V) -> bool) -> Vec<(K, V)> {
        let meant: Vec<K> = self
            .oldest_first
            .iter()
            .filter(|key| self.entries.get(key).is_some_and(|value| is_meant(key, value)))
            .cloned()
            .collect();
        meant.into_iter().filter_map(|key| Some((key.clone(), self.remove(&key)?))).collect()
    }

    /// Removes all entries, oldest first.
    pub(super) fn take_all(&mut self) -> Vec<(K, V)> {
        let empty = Bounded::with_bytes_max(self.bytes_max);
        let Bounded { mut entries, oldest_first, .. } = std::mem::replace(self, empty);
        oldest_first.into_iter().filter_map(|key| entries.remove(&key).map(|value| (key, value))).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.oldest_first.iter().filter_map(|key| self.entries.get_key_value(key))
    }
}

/// Capacity of most sets; a state has several of them and is stored often.
const RECENT_MAX: usize = 128;

/// The most recently seen things, at most `MAX`, stored as digests that do not reveal them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Recent<const MAX: usize = RECENT_MAX>(VecDeque<u64>);

/// Whether something is new, as far as remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    First,
    Again,
}

impl<const MAX: usize> Weigh for Recent<MAX> {
    fn weight(&self) -> usize {
        self.0.len() * size_of::<u64>()
    }
}

impl<const MAX: usize> Recent<MAX> {
    /// Remembers something, identified by its parts.
    pub(super) fn meet(&mut self, parts: &[&str]) -> Met {
        if self.knows(parts) {
            return Met::Again;
        }
        if self.0.len() == MAX {
            self.0.pop_front();
        }
        self.0.push_back(digest(parts));
        Met::First
    }

    /// Whether something is remembered.
    pub(super) fn knows(&self, parts: &[&str]) -> bool {
        !self.0.is_empty() && self.0.contains(&digest(parts))
    }

    pub(super) fn forget(&mut self, parts: &[&str]) {
        if !self.0.is_empty() {
            let digest = digest(parts);
            self.0.retain(|known| *known != digest);
        }
    }
}

/// Stable across versions, because it is stored.
fn digest(parts: &[&str]) -> u64 {
    let mut sha1 = Sha1::new();
    for part in parts {
        sha1.update((part.len() as u64).to_le_bytes());
        sha1.update(part.as_bytes());
    }
    sha1.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

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
    RawValue::from_string(MASKER.json(params.written()?)?).ok()
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
        Params::Written(json) => cut(json, chars_max),
        Params::None => "null".to_owned(),
        Params::Omitted(reason) => format!("{{\"omitted\":{}}}", Value::from(reason)),
    }
}

/// Bounds and masks JSON; if it is too long, returns an object with its start as text.
pub(super) fn cut(json: &str, chars_max: usize) -> String {
    cut_with(json, chars_max, 0)
}

/// The same for JSON that has lost characters, and is too long without them, or has lost none.
pub(super) fn cut_with(json: &str, chars_max: usize, lost_chars: usize) -> String {
    let chars = || json.chars().count() + lost_chars;
    if json.len() <= chars_max || (json.len() <= 4 * chars_max && chars() <= chars_max) {
        let masked = redacted_json(json);
        return match masked {
            Some(masked) if masked.chars().count() > chars_max => cut_text(&masked, chars_max, chars()),
            Some(masked) => masked,
            None => json.to_owned(),
        };
    }
    // Far enough to keep every character that counts.
    let seen = &json[..json.floor_char_boundary(4 * chars_max + BEYOND_CUT_BYTES)];
    match redacted_json(seen) {
        Some(masked) => cut_text(&masked, chars_max, chars()),
        None => cut_text(seen, chars_max, chars()),
    }
}

fn cut_text(text: &str, chars_max: usize, original_chars: usize) -> String {
    let preview = Value::from(start_of(text, chars_max));
    format!("{{\"truncated\":true,\"preview\":{preview},\"original_chars\":{original_chars}}}")
}

/// Wraps masked text as JSON; if it is too long, returns an object with its start. `lost_chars` is as in [`cut_with`].
pub(super) fn cut_plain(text: &str, chars_max: usize, lost_chars: usize) -> String {
    match start_of(text, chars_max).len() == text.len() {
        true => Value::from(text).to_string(),
        false => cut_text(text, chars_max, text.chars().count() + lost_chars),
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

/// The number of bytes that [`bounded`] has cut off, and the end of the JSON that is left; `None` for a whole value.
pub fn cut_value(value: &Value) -> Option<(u64, &str)> {
    value.get("truncated_by_bytes")?.as_u64().zip(value.get("tail")?.as_str())
}

/// The end of a text, and the number of bytes cut off before it.
pub(super) fn tail(text: &str, bytes_max: usize) -> (&str, usize) {
    let from = text.ceil_char_boundary(text.len().saturating_sub(bytes_max));
    (&text[from..], from)
}

/// Formats microseconds since the Unix epoch as RFC 3339 in UTC, truncated to milliseconds.
#[must_use]
pub fn rfc3339_millis(at_us: u64) -> String {
    // A record may contain any number; the year 9999 is the last printable one.
    let at = Duration::from_micros(at_us.min(253_402_300_799_999_999));
    humantime::format_rfc3339_millis(UNIX_EPOCH + at).to_string()
}

/// The microseconds since 1970 of an RFC 3339 text; `None` if it is not one, or before 1970.
#[must_use]
pub fn micros_of(text: &str) -> Option<u64> {
    text.parse::<jiff::Timestamp>().ok().and_then(|at| u64::try_from(at.as_microsecond()).ok())
}

/// Milliseconds between the times of two records.
pub(super) fn latency_ms(from_us: u64, to_us: u64) -> u64 {
    to_us.saturating_sub(from_us) / 1_000
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    impl Weigh for usize {
        fn weight(&self) -> usize {
            size_of::<usize>()
        }
    }

    #[test]
    fn oldest_entry_is_evicted_and_map_is_storable() {
        let mut bounded: Bounded<usize, usize> = Bounded::default();
        (0..Bounded::<usize, usize>::MAX).for_each(|number| assert_eq!(bounded.insert(number, number), []));
        assert_eq!(bounded.insert(7, 70), [(7, 7)]);
        assert_eq!(bounded.insert(9_999, 1), [(0, 0)]);
        assert_eq!(bounded.remove(&7), Some(70));
        assert_eq!(bounded.take_if(|key, _| *key < 3), [(1, 1), (2, 2)]);
        let stored = serde_json::to_string(&bounded).expect("plain data");
        let again: Bounded<usize, usize> = serde_json::from_str(&stored).expect("as it was stored");
        assert_eq!(again, bounded);
        bounded.take_all();
        assert_eq!(bounded, Bounded::default());
    }

    #[test]
    fn oldest_entries_are_evicted_by_bytes() {
        let mut bounded: Bounded<usize, String> = Bounded::with_bytes_max(1_000);
        let text = |bytes: usize| "x".repeat(bytes);
        let keys = |gone: Vec<(usize, String)>| gone.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert!(keys(bounded.insert(1, text(300))).is_empty());
        assert!(keys(bounded.insert(2, text(300))).is_empty());
        assert!(keys(bounded.insert(3, text(100))).is_empty());
        // A replaced value no longer counts.
        assert_eq!(bounded.insert(1, text(301)), [(1, text(300))]);
        assert_eq!(keys(bounded.insert(4, text(600))), [1, 2]);
        // A changed value counts with its new size.
        let (given, gone) = bounded.change(&4, |value| std::mem::replace(value, text(900))).expect("it is there");
        assert_eq!((given, keys(gone)), (text(600), vec![3]));
        assert_eq!(bounded.change(&3, |_| ()), None);
        // An oversized value evicts nothing else.
        assert_eq!(keys(bounded.insert(5, text(1_000))), [5]);
        assert_eq!(bounded.insert(4, text(1_000)), [(4, text(900)), (4, text(1_000))]);
        assert_eq!(bounded, Bounded::with_bytes_max(1_000));
    }

    /// A value with details, spare if it has no name.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Detailed(&'static str, usize);

    impl Weigh for Detailed {
        fn weight(&self) -> usize {
            100 + self.1
        }

        const HAS_SPARE: bool = true;

        fn lighten(&mut self) {
            self.1 = 0;
        }

        fn is_spare(&self) -> bool {
            self.0.is_empty()
        }
    }

    #[test]
    fn details_go_first_then_spare_entries() {
        let mut bounded: Bounded<usize, Detailed> = Bounded::with_bytes_max(400);
        let details = |bounded: &Bounded<usize, Detailed>| -> Vec<(usize, usize)> {
            bounded.iter().map(|(key, value)| (*key, value.1)).collect()
        };
        bounded.insert(1, Detailed("a", 40));
        bounded.insert(2, Detailed("", 40));
        assert_eq!(bounded.insert(3, Detailed("", 0)), []);
        assert_eq!(details(&bounded), [(1, 40), (2, 0), (3, 0)]);
        assert_eq!(bounded.change(&3, |value| value.1 = 40), Some(((), Vec::new())));
        assert_eq!(details(&bounded), [(1, 0), (2, 0), (3, 40)]);
        // An entry is not evicted for its own change while another one is spare.
        assert_eq!(bounded.insert(4, Detailed("", 0)), [(2, Detailed("", 0))]);
        assert_eq!(details(&bounded), [(1, 0), (3, 0), (4, 0)]);
        bounded.change(&3, |value| value.0 = "c");
        bounded.change(&4, |value| value.0 = "d");
        assert_eq!(bounded.insert(5, Detailed("", 0)), [(1, Detailed("a", 0))]);
    }

    #[test]
    fn recently_seen_things_are_recognized() {
        let mut recent: Recent = Recent::default();
        assert_eq!((recent.meet(&["a", "b"]), recent.meet(&["a", "b"])), (Met::First, Met::Again));
        assert_eq!((recent.meet(&["ab", ""]), recent.meet(&["", "ab"])), (Met::First, Met::First));
        assert!(recent.knows(&["a", "b"]) && !recent.knows(&["a"]));
        (0..RECENT_MAX - 3).for_each(|number| assert_eq!(recent.meet(&[&number.to_string()]), Met::First));
        assert!(recent.knows(&["a", "b"]) && recent.0.len() == RECENT_MAX);
        recent.meet(&["one more"]);
        assert!(!recent.knows(&["a", "b"]) && recent.0.len() == RECENT_MAX);
        recent.forget(&["one more"]);
        assert!(!recent.knows(&["one more"]) && recent.0.len() == RECENT_MAX - 1);
    }

    #[test]
    fn a_digest_is_the_same_in_every_version() {
        assert_eq!(digest(&["thread", "turn"]), 0x88eaa89c495a291a);
    }

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
