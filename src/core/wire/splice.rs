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
        Members::of_text(value.get())
    }

    /// The same of a text.
    #[must_use]
    pub fn of_text(value: &'a str) -> Option<Members<'a>> {
        if !value.starts_with('{') {
            return None;
        }
        serde_json::from_str(value).ok()
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

/// Levels of nested values that [`repeats_member`] looks at.
const LEVELS_MAX: usize = 32;

/// Whether an object anywhere in a value has two members of one name, since readers differ about which of them counts. A value
/// that is nested too deeply counts as one that has.
#[must_use]
pub fn repeats_member(value: &RawValue) -> bool {
    repeats_within(value, LEVELS_MAX)
}

fn repeats_within(value: &RawValue, levels: usize) -> bool {
    let below: Vec<&RawValue> = match (Members::of(value), elements(value)) {
        (Some(members), _) => {
            let mut names: Vec<&str> = members.iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            if names.windows(2).any(|pair| pair[0] == pair[1]) {
                return true;
            }
            members.iter().map(|(_, value)| value).collect()
        }
        (None, Some(elements)) => elements,
        (None, None) => return false,
    };
    below.into_iter().any(|value| levels == 0 || repeats_within(value, levels - 1))
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
                while let Some(MemberName(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// The members of an object in order, each value as it is written; nothing if `json` is not an object. Faster than
/// [`Members`], because `json` must be valid: of other input the members are unspecified, but it never causes a panic.
pub fn written_members(json: &str) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
    let bytes = json.as_bytes();
    let mut at = if json.starts_with('{') { 1 } else { json.len() };
    std::iter::from_fn(move || {
        at += bytes.get(at..)?.iter().position(|byte| *byte == b'"')?;
        let name = at + 1..string_end(bytes, at + 1);
        at = name.end + 1;
        at += bytes.get(at..)?.iter().position(|byte| !matches!(byte, b':' | b' ' | b'\t' | b'\n' | b'\r'))?;
        let value = at..value_end(bytes, at);
        at = value.end;
        let (name, value) = (json.get(name)?, json.get(value)?);
        let name = match name.contains('\\') {
            true => Cow::Owned(serde_json::from_str(&format!("\"{name}\"")).unwrap_or_default()),
            false => Cow::Borrowed(name),
        };
        Some((name, value))
    })
}

/// The end of the value that begins at `from` in valid JSON.
fn value_end(json: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0usize);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => at = string_end(json, at + 1),
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            b',' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
        if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
            return at.min(json.len());
        }
    }
    json.len()
}

struct MemberName<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for MemberName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MemberName<'de>, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = MemberName<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<MemberName<'de>, E> {
                Ok(MemberName(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<MemberName<'de>, E> {
                Ok(MemberName(Cow::Owned(name.to_owned())))
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
pub struct Splice<'a> {
    line: &'a [u8],
    edits: Vec<(Range<usize>, Vec<u8>)>,
}

impl<'a> Splice<'a> {
    #[must_use]
    pub fn of(line: &'a [u8]) -> Splice<'a> {
        Splice { line, edits: Vec::new() }
    }

    /// The range of `value` in the line that it was borrowed from.
    #[must_use]
    pub fn range_of(&self, value: &RawValue) -> Range<usize> {
        let value = value.get();
        let start = (value.as_ptr() as usize).wrapping_sub(self.line.as_ptr() as usize);
        debug_assert!(start <= self.line.len(), "BUG: the value was borrowed from another line");
        start..start + value.len()
    }

    /// Replaces a range with `bytes`; an empty range inserts them.
    pub fn replace(&mut self, range: Range<usize>, bytes: impl Into<Vec<u8>>) {
        self.edits.push((range, bytes.into()));
    }

    /// The edited line; `None` if there are no edits or they do not fit the line.
    #[must_use]
    pub fn apply(mut self) -> Option<Vec<u8>> {
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

// The strings and numbers of a JSON text with their positions, so that some can be replaced while all other bytes stay the same.

/// A string or a number in a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub kind: TokenKind,
    /// Range in the text, including the quotation marks of a string.
    pub range: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// The name of a member.
    Name,
    Text,
    Number,
}

/// The strings and numbers of `json`, in order. Input that is not valid JSON gives unspecified tokens, but never a
/// panic.
pub fn tokens(json: &str) -> impl Iterator<Item = Token> {
    let bytes = json.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let byte = *bytes.get(at)?;
            let from = at;
            match byte {
                b'"' => {
                    at = (string_end(bytes, at + 1) + 1).min(bytes.len());
                    let next = bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace());
                    let kind = if next == Some(&b':') { TokenKind::Name } else { TokenKind::Text };
                    return Some(Token { kind, range: from..at });
                }
                b'-' | b'0'..=b'9' => {
                    let is_part = |byte: &&u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                    at += bytes[at..].iter().take_while(is_part).count();
                    return Some(Token { kind: TokenKind::Number, range: from..at });
                }
                _ => at += 1,
            }
        }
    })
}

/// The index of the quotation mark that ends the string whose first character is at `from`; the length of `json` if the
/// string does not end.
pub(super) fn string_end(json: &[u8], mut from: usize) -> usize {
    while let Some(found) = json.get(from..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        from += found;
        if json[from] == b'"' {
            return from;
        }
        from += 2;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    fn repeated_members_are_found_at_every_level() {
        let check = |json: &str, expect: bool| assert_eq!(repeats_member(raw(json)), expect, "{json:.80}");
        for fine in ["7", "\"a\"", "[]", "{}", r#"{"a":{"a":1},"b":[{"a":1},{"a":2}]}"#] {
            check(fine, false);
        }
        for bad in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"b":1,"a":{"c":1,"c":2}}]"#,
            r#"{"a":[[{"b":1},{"b":1,"c":0,"b":1}]]}"#,
        ] {
            check(bad, true);
        }
        for deep in [100, 1_000_000] {
            check(&format!("{}{}", "[".repeat(deep), "]".repeat(deep)), true);
        }
    }

    #[test]
    fn written_members_are_those_that_a_parser_finds() {
        let check = |json: &str| {
            let written: Vec<(String, String)> =
                written_members(json).map(|(name, value)| (name.into_owned(), value.to_owned())).collect();
            let parsed = Members::of(raw(json)).unwrap_or_default();
            let parsed: Vec<(String, String)> =
                parsed.iter().map(|(name, value)| (name.to_owned(), value.get().to_owned())).collect();
            assert_eq!(written, parsed, "{json}");
        };
        check(r#"{"a":1,"b" : [2,{"x":"]}"}] , "c\"\u0061":"x\\\"y","d":-1.5e3 ,"e":null,"f":{}}"#);
        check("{\n\t\"a\"\r:\ttrue\n,\"b\":[[]],\"c\":\"\"}");
        ["{}", "{ }", "[1,2]", "7", "\"{\"", "{\"a\":1}"].into_iter().for_each(check);
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

    #[test]
    fn names_strings_and_numbers_are_found() {
        let json = r#"{"a":"x\"y", "b" : [-1.5e3,true,"z"],"c":{"d":null}}"#;
        let seen: Vec<String> = tokens(json).map(|token| format!("{:?} {}", token.kind, &json[token.range])).collect();
        assert_eq!(
            seen,
            [
                r#"Name "a""#,
                r#"Text "x\"y""#,
                r#"Name "b""#,
                "Number -1.5e3",
                r#"Text "z""#,
                r#"Name "c""#,
                r#"Name "d""#
            ]
        );
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[\\[\\]{}\",:\\\\ä0-9e.-]{0,80}") {
            let object = format!("{{{text}");
            prop_assert!(written_members(&object).count() <= text.len());
            for token in tokens(&text) {
                prop_assert!(text.get(token.range).is_some_and(|text| !text.is_empty()));
            }
        }
    }
}
