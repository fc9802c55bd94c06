//! Reads members of a JSON text with their positions, and replaces ranges of it while every other byte stays the same.
//!
//! Values are [`RawValue`]s borrowed from the line, one level at a time. Nothing here serializes a value.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of a JSON object in order, including repeated names.
#[derive(Debug, Default)]
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// The members of `value`; `None` if it is not a valid object.
    #[must_use]
    pub fn of(value: &'a RawValue) -> Option<Members<'a>> {
        if !value.get().starts_with('{') {
            return None;
        }
        serde_json::from_str(value.get()).ok()
    }

    /// The member of this name. The last of several counts, as for codex.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(seen, _)| seen == name).map(|(_, value)| *value)
    }

    /// The member of this name, if it is a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(text)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name<'de>, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

/// The elements of `value`; `None` if it is not a valid array.
#[must_use]
pub fn elements(value: &RawValue) -> Option<Vec<&RawValue>> {
    if !value.get().starts_with('[') {
        return None;
    }
    serde_json::from_str(value.get()).ok()
}

/// The unescaped text of `value`; `None` if it is not a string.
#[must_use]
pub fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// Edits of one line, in any order; they must not overlap.
#[derive(Debug)]
pub(crate) struct Splice<'a> {
    line: &'a [u8],
    edits: Vec<(Range<usize>, Vec<u8>)>,
}

impl<'a> Splice<'a> {
    #[must_use]
    pub(crate) fn of(line: &'a [u8]) -> Splice<'a> {
        Splice { line, edits: Vec::new() }
    }

    /// The range of `value` in the line that it was borrowed from.
    #[must_use]
    pub(crate) fn range_of(&self, value: &RawValue) -> Range<usize> {
        let value = value.get();
        let start = (value.as_ptr() as usize).wrapping_sub(self.line.as_ptr() as usize);
        debug_assert!(start <= self.line.len(), "BUG: the value was borrowed from another line");
        start..start + value.len()
    }

    /// Replaces a range with `bytes`; an empty range inserts them.
    pub(crate) fn replace(&mut self, range: Range<usize>, bytes: impl Into<Vec<u8>>) {
        self.edits.push((range, bytes.into()));
    }

    /// The edited line; `None` if there are no edits or they do not fit the line.
    #[must_use]
    pub(crate) fn apply(mut self) -> Option<Vec<u8>> {
        if self.edits.is_empty() {
            return None;
        }
        self.edits.sort_by_key(|(range, _)| (range.start, range.end));
        let more: usize = self.edits.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut line = Vec::with_capacity(self.line.len() + more);
        let mut from = 0;
        for (range, bytes) in &self.edits {
            line.extend_from_slice(self.line.get(from..range.start)?);
            line.extend_from_slice(bytes);
            from = range.end;
        }
        line.extend_from_slice(self.line.get(from..)?);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("BUG: a test gives JSON")
    }

    #[test]
    fn last_member_of_a_name_counts() {
        let members = Members::of(raw(r#"{"a":1,"b":[2],"\u0061":"x"}"#)).expect("an object");
        let all: Vec<(&str, &str)> = members.iter().map(|(name, value)| (name, value.get())).collect();
        assert_eq!(all, [("a", "1"), ("b", "[2]"), ("a", "\"x\"")]);
        assert_eq!(members.text("a").as_deref(), Some("x"));
        assert!(members.get("c").is_none() && members.text("b").is_none());
        assert!(Members::of(raw("[]")).is_none() && elements(raw("{}")).is_none());
    }

    #[test]
    fn bytes_outside_edits_stay() {
        let line = br#" {"a" : [ 1, "two"], "b":{}} "#;
        let value: &RawValue = serde_json::from_slice(line).expect("it is JSON");
        let members = Members::of(value).expect("an object");
        let array = elements(members.get("a").expect("it is there")).expect("an array");
        let mut splice = Splice::of(line);
        assert!(Splice::of(line).apply().is_none());
        let two = splice.range_of(array[1]);
        splice.replace(two.start + 1..two.start + 1, "not ");
        splice.replace(splice.range_of(array[0]), "0");
        let changed = splice.apply().expect("there are edits");
        assert_eq!(String::from_utf8_lossy(&changed), r#" {"a" : [ 0, "not two"], "b":{}} "#);
    }

    #[test]
    fn edits_that_do_not_fit_are_refused() {
        let mut splice = Splice::of(b"0123");
        splice.replace(0..3, "x");
        splice.replace(2..4, "y");
        assert_eq!(splice.apply(), None);
        let mut splice = Splice::of(b"0123");
        splice.replace(9..9, "x");
        assert_eq!(splice.apply(), None);
    }
}
