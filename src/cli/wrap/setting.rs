//! One member of a settings file, set without touching any other byte.
//!
//! Pure. The files are JSON as people write it: with comments, and commas at the ends.

use std::ops::Range;

/// Why a member cannot be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// The file is not what such a file is.
    Unreadable,
    /// Something that is no object stands where one of these names leads.
    NoObject(String),
}

/// The text with `value` as the member that `names` lead to, whatever was there. An empty text is one with nothing set.
pub(super) fn with_member(text: &str, names: &[&str], value: &str) -> Result<String, NoPlace> {
    let quoted = serde_json::Value::from(value).to_string();
    if text.trim().is_empty() {
        return Ok(format!("{}\n", nested(names, &quoted, 0)));
    }
    let bytes = text.as_bytes();
    let mut at = skip_blank(bytes, 0);
    for (depth, name) in names.iter().enumerate() {
        if bytes.get(at) != Some(&b'{') {
            return Err(if depth == 0 { NoPlace::Unreadable } else { NoPlace::NoObject(names[depth - 1].to_owned()) });
        }
        match member(text, at, name).ok_or(NoPlace::Unreadable)? {
            Member::There(range) if depth + 1 == names.len() => {
                return Ok(format!("{}{quoted}{}", &text[..range.start], &text[range.end..]));
            }
            Member::There(range) => at = range.start,
            Member::NotThere { is_empty } => {
                let inserted = nested_member(&names[depth..], &quoted, depth + 1);
                let comma = if is_empty { "" } else { "," };
                let indent = "  ".repeat(depth + 1);
                let rest = &text[at + 1..];
                // What follows on the same line stays there.
                let gap = if is_empty { format!("\n{}", "  ".repeat(depth)) } else { String::new() };
                return Ok(format!("{}\n{indent}{inserted}{comma}{gap}{rest}", &text[..=at]));
            }
        }
    }
    Err(NoPlace::Unreadable)
}

/// The value, as it is written, of the member that `names` lead to; `None` where there is none.
pub(super) fn value_of<'a>(text: &'a str, names: &[&str]) -> Option<&'a str> {
    place_of(text, names).map(|range| &text[range])
}

/// The text with another value, as it is to be written, of the member that `names` lead to; `None` where there is none.
pub(super) fn with_value(text: &str, names: &[&str], value: &str) -> Option<String> {
    place_of(text, names).map(|range| format!("{}{value}{}", &text[..range.start], &text[range.end..]))
}

/// The text without the member that `names` lead to; `None` where it does not stand as [`with_member`] has written it.
pub(super) fn without_member(text: &str, names: &[&str]) -> Option<String> {
    let range = place_of(text, names)?;
    let key = format!("{}: ", serde_json::Value::from(*names.last()?));
    let before = text[..range.start].strip_suffix(&key)?.trim_end();
    let rest = &text[range.end..];
    match rest.strip_prefix(',') {
        Some(rest) => Some(format!("{before}{rest}")),
        None => before.ends_with('{').then(|| format!("{before}{rest}")),
    }
}

fn place_of(text: &str, names: &[&str]) -> Option<Range<usize>> {
    let mut found = None;
    let mut at = skip_blank(text.as_bytes(), 0);
    for name in names {
        if text.as_bytes().get(at) != Some(&b'{') {
            return None;
        }
        match member(text, at, name)? {
            Member::There(range) => {
                at = range.start;
                found = Some(range);
            }
            Member::NotThere { .. } => return None,
        }
    }
    found
}

fn nested(names: &[&str], quoted: &str, depth: usize) -> String {
    match names {
        [] => quoted.to_owned(),
        _ => {
            let (inner, outer) = ("  ".repeat(depth + 1), "  ".repeat(depth));
            format!("{{\n{inner}{}\n{outer}}}", nested_member(names, quoted, depth + 1))
        }
    }
}

fn nested_member(names: &[&str], quoted: &str, depth: usize) -> String {
    match names {
        [] => String::new(),
        [name, rest @ ..] => format!("{}: {}", serde_json::Value::from(*name), nested(rest, quoted, depth)),
    }
}

/// A member of an object.
enum Member {
    /// Its value stands here.
    There(Range<usize>),
    NotThere {
        /// The object has no member at all.
        is_empty: bool,
    },
}

/// Looks for a member in the object that begins at `at`; `None` where the text breaks off or is something else.
fn member(text: &str, at: usize, name: &str) -> Option<Member> {
    let bytes = text.as_bytes();
    let mut at = skip_blank(bytes, at + 1);
    let mut is_empty = true;
    loop {
        match bytes.get(at)? {
            b'}' => return Some(Member::NotThere { is_empty }),
            b',' => at = skip_blank(bytes, at + 1),
            b'"' => {
                is_empty = false;
                let end = string_end(bytes, at)?;
                let key: String = serde_json::from_str(&text[at..end]).ok()?;
                at = skip_blank(bytes, end);
                if bytes.get(at)? != &b':' {
                    return None;
                }
                let start = skip_blank(bytes, at + 1);
                let end = value_end(bytes, start)?;
                if key == name {
                    return Some(Member::There(start..end));
                }
                at = skip_blank(bytes, end);
            }
            _ => return None,
        }
    }
}

/// Where a value ends that begins at `at`.
fn value_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => string_end(bytes, at),
        b'{' | b'[' => {
            let mut depth = 0usize;
            loop {
                at = skip_blank(bytes, at);
                match bytes.get(at)? {
                    b'"' => at = string_end(bytes, at)?,
                    b'{' | b'[' => {
                        depth += 1;
                        at += 1;
                    }
                    b'}' | b']' => {
                        depth -= 1;
                        at += 1;
                        if depth == 0 {
                            return Some(at);
                        }
                    }
                    _ => at += 1,
                }
            }
        }
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b'/') || byte.is_ascii_whitespace();
            Some(at + bytes[at..].iter().position(ends).unwrap_or(bytes.len() - at))
        }
    }
}

/// Where a string ends whose quotation mark is at `at`.
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Where something stands again, behind white space and comments.
fn skip_blank(bytes: &[u8], mut at: usize) -> usize {
    loop {
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(byte), _) if byte.is_ascii_whitespace() => at += 1,
            (Some(b'/'), Some(b'/')) => {
                at = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| at + end);
            }
            (Some(b'/'), Some(b'*')) => {
                let rest = &bytes[at + 2..];
                at = memchr::memmem::find(rest, b"*/").map_or(bytes.len(), |end| at + 2 + end + 2);
            }
            // A mark of the byte order.
            (Some(0xef), Some(0xbb)) if at == 0 => at += 3,
            (Some(_) | None, _) => return at,
        }
    }
}

/// The names that lead to the setting of a tool for codex.
pub(super) fn names_of(target: &str) -> &'static [&'static str] {
    match target {
        "openclaw" => &["plugins", "entries", "codex", "config", "appServer", "command"],
        _ => &["chatgpt.cliExecutable"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, names: &[&str], expect: &str) {
        assert_eq!(with_member(text, names, "/x").as_deref(), Ok(expect));
    }

    #[test]
    fn a_member_is_set_and_nothing_else_changes() {
        check("", &["a"], "{\n  \"a\": \"/x\"\n}\n");
        check("{}", &["a"], "{\n  \"a\": \"/x\"\n}");
        check("{\n  \"b\": 1 // one\n}\n", &["a"], "{\n  \"a\": \"/x\",\n  \"b\": 1 // one\n}\n");
        check(
            "/* \"a\": 0 */ {\"b\":[1,{\"a\":2}], \"a\" : \"old\\\"\",}",
            &["a"],
            "/* \"a\": 0 */ {\"b\":[1,{\"a\":2}], \"a\" : \"/x\",}",
        );
        check("{\"a\":null}", &["a"], "{\"a\":\"/x\"}");
    }

    #[test]
    fn a_member_is_taken_out_again_and_nothing_else_changes() {
        for text in ["{\n  \"b\": 1 // one\n}\n", "{\"p\": {\n \"q\": {\"x\": 1}}}"] {
            let names: &[&str] = if text.contains('p') { &["p", "q", "r"] } else { &["a"] };
            let set = with_member(text, names, "/x").expect("it can be set");
            assert_eq!(value_of(&set, names), Some("\"/x\""));
            assert_eq!(without_member(&set, names).as_deref(), Some(text));
            assert_eq!(
                with_value(&set, names, "1").and_then(|text| value_of(&text, names).map(str::to_owned)).as_deref(),
                Some("1")
            );
        }
        assert_eq!(value_of("{}", &["a"]), None);
        // Somebody has put it elsewhere.
        assert_eq!(without_member("{\"b\": 1, \"a\": 2}", &["a"]), None);
    }

    #[test]
    fn objects_on_the_way_are_made() {
        check("{\"p\": {\"q\": {}}}", &["p", "q", "r"], "{\"p\": {\"q\": {\n      \"r\": \"/x\"\n    }}}");
        check("{}", &["p", "q"], "{\n  \"p\": {\n    \"q\": \"/x\"\n  }\n}");
        assert_eq!(with_member("{\"p\": 1}", &["p", "q"], "/x"), Err(NoPlace::NoObject("p".to_owned())));
        for broken in ["[1]", "{\"a\"", "{\"a\":", "{a:1}", "nonsense"] {
            assert!(with_member(broken, &["b"], "/x").is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn no_text_can_hurt(text in "[\\[\\]{}\",:/*\\\\a1 \n]{0,60}") {
            let _ = with_member(&text, &["a", "b"], "/x");
        }

        #[test]
        fn what_was_set_is_there_and_can_be_set_again(value in "[a-z]{0,6}") {
            let once = with_member("{\"z\": [1]}", &["a", "b"], &value).expect("it can be set");
            let read: serde_json::Value = serde_json::from_str(&once).expect("JSON");
            prop_assert_eq!(read["a"]["b"].as_str(), Some(&*value));
            prop_assert_eq!(with_member(&once, &["a", "b"], &value), Ok(once.clone()));
        }
    }
}
