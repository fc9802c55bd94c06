//! A message, parsed in the bytes of its line.
//!
//! [`Body::parse`] reads a line once and borrows from it. Parsing is total: a line that is not JSON, not an object or
//! not a message becomes a value too. This module never interprets a message.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::splice::string_end;

/// Limit of nested arrays and objects for which a line counts as JSON that any reader can parse. Common parsers stop at
/// 128 levels (serde_json) or 1,000 (CPython's `json`); a record adds one level around the line.
pub(super) const DEPTH_MAX: usize = 120;

/// The content of a line.
#[derive(Debug)]
pub enum Body<'a> {
    /// A JSON object, the usual case.
    Message(Message<'a>),
    /// Another JSON value: a batch, a number, a string.
    OtherJson,
    /// UTF-8, but not exactly one JSON value.
    Text,
    /// Not UTF-8.
    Bytes,
}

/// The members of a message, in any order. The last of several members with the same name counts.
#[derive(Debug, Default)]
pub struct Message<'a> {
    /// `id` as it was written; JSON `null` counts as present.
    pub id: Option<&'a RawValue>,
    /// `method`, unescaped, if it is a string.
    pub method: Option<Cow<'a, str>>,
    /// `params`, unparsed.
    pub params: Option<&'a RawValue>,
    /// `result`, unparsed.
    pub result: Option<&'a RawValue>,
    /// `error`, unparsed.
    pub error: Option<&'a RawValue>,
    /// A member of this struct occurs more than once.
    pub repeated_member: bool,
}

impl<'a> Body<'a> {
    /// Parses one line without its `\n`. Accepts white space around the value, as the server does.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Body<'a> {
        let Some(text) = utf8(line) else { return Body::Bytes };
        let mut parser = serde_json::Deserializer::from_str(text);
        let body = match parser.deserialize_any(BodyVisitor) {
            Ok(body) => body,
            Err(_) => return Body::Text,
        };
        match parser.end() {
            Ok(()) => body,
            Err(_) => Body::Text,
        }
    }
}

/// The text of bytes that are UTF-8. For a line that is not ASCII, the check of the standard library would take half as long as
/// everything else that the relay's thread does with the line.
pub(super) fn utf8(bytes: &[u8]) -> Option<&str> {
    simdutf8::basic::from_utf8(bytes).ok()
}

impl Message<'_> {
    /// Whether this is a request: it has an id and a method.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.id.is_some() && self.method.is_some()
    }

    /// The error of an error response; a `null` does not count.
    #[must_use]
    pub fn refusal(&self) -> Option<&RawValue> {
        self.error.filter(|error| error.get() != "null")
    }

    /// Whether this is a response: it has an id and no method.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.id.is_some() && self.method.is_none() && (self.result.is_some() || self.error.is_some())
    }
}

/// Whether a line of JSON can be embedded in a record verbatim: the value fills the whole line, the line has no raw
/// `\n` or `\r` (readers of text files end a line there), and it is not nested deeper than common parsers accept.
#[must_use]
pub fn stands_verbatim(line: &[u8]) -> bool {
    let bounded = match (line.first(), line.last()) {
        (Some(first), Some(last)) => !first.is_ascii_whitespace() && !last.is_ascii_whitespace(),
        (None, _) | (_, None) => false,
    };
    bounded && memchr::memchr2(b'\n', b'\r', line).is_none() && depth_is_ordinary(line)
}

/// Whether valid JSON nests at most [`DEPTH_MAX`] deep.
fn depth_is_ordinary(json: &[u8]) -> bool {
    // Each level needs an opening bracket, and counting those is cheap.
    if json.len() <= 2 * DEPTH_MAX || openings(json) <= DEPTH_MAX {
        return true;
    }
    let (mut depth, mut at) = (0usize, 0usize);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => at = string_end(json, at + 1),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return false;
        }
        at += 1;
    }
    true
}

/// The number of `[` and `{` bytes, including those in strings. The two differ in one bit. The inner counter is a byte,
/// for as many bytes as cannot overflow it, so that the compiler can vectorize the loop.
fn openings(json: &[u8]) -> usize {
    let in_chunk = |chunk: &[u8]| chunk.iter().map(|byte| u8::from(*byte | 0x20 == b'{')).sum::<u8>();
    json.chunks(usize::from(u8::MAX)).map(|chunk| usize::from(in_chunk(chunk))).sum()
}

struct BodyVisitor;

impl<'de> Visitor<'de> for BodyVisitor {
    type Value = Body<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Body<'de>, A::Error> {
        let mut message = Message::default();
        while let Some(member) = map.next_key::<Member>()? {
            let seen_before = match member {
                Member::Id => message.id.replace(map.next_value()?).is_some(),
                Member::Method => {
                    let Method(method) = map.next_value()?;
                    let seen_before = message.method.is_some();
                    message.method = method;
                    seen_before
                }
                Member::Params => message.params.replace(map.next_value()?).is_some(),
                Member::Result => message.result.replace(map.next_value()?).is_some(),
                Member::Error => message.error.replace(map.next_value()?).is_some(),
                Member::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            message.repeated_member |= seen_before;
        }
        Ok(Body::Message(message))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Body<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Body::OtherJson)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Body<'de>, E> {
        Ok(Body::OtherJson)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Body<'de>, E> {
        Ok(Body::OtherJson)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Body<'de>, E> {
        Ok(Body::OtherJson)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Body<'de>, E> {
        Ok(Body::OtherJson)
    }

    fn visit_str<E>(self, _: &str) -> Result<Body<'de>, E> {
        Ok(Body::OtherJson)
    }

    fn visit_unit<E>(self) -> Result<Body<'de>, E> {
        Ok(Body::OtherJson)
    }
}

enum Member {
    Id,
    Method,
    Params,
    Result,
    Error,
    Unknown,
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Member, D::Error> {
        struct MemberVisitor;
        impl Visitor<'_> for MemberVisitor {
            type Value = Member;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Member, E> {
                Ok(match name {
                    "id" => Member::Id,
                    "method" => Member::Method,
                    "params" => Member::Params,
                    "result" => Member::Result,
                    "error" => Member::Error,
                    _ => Member::Unknown,
                })
            }
        }
        deserializer.deserialize_identifier(MemberVisitor)
    }
}

/// A method name; `None` if the value is not a string.
struct Method<'a>(Option<Cow<'a, str>>);

impl<'de> Deserialize<'de> for Method<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Method<'de>, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let plain = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        Ok(Method(match plain {
            Some(plain) if !plain.contains('\\') => Some(Cow::Borrowed(plain)),
            Some(_) => serde_json::from_str::<String>(raw).ok().map(Cow::Owned),
            None => None,
        }))
    }
}

// Request ids, with the protocol's rules for equality.

/// The id of a request. The JSON type is part of it: `92` and `"92"` are different ids.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum RpcId {
    /// An integer that fits the protocol's `int64`.
    Integer(i64),
    /// A string, unescaped.
    Text(String),
    /// Any other JSON value in the place of an id, as it was written.
    Other(String),
}

impl RpcId {
    /// The id `null`, which answers an unreadable line.
    #[must_use]
    pub fn null() -> RpcId {
        RpcId::Other("null".to_owned())
    }

    /// Reads an id from its JSON text.
    #[must_use]
    pub fn from_raw(raw: &RawValue) -> RpcId {
        let text = raw.get();
        if let Ok(integer) = serde_json::from_str::<i64>(text) {
            return RpcId::Integer(integer);
        }
        match serde_json::from_str::<String>(text) {
            Ok(text) => RpcId::Text(text),
            Err(_) => RpcId::Other(text.to_owned()),
        }
    }
}

impl fmt::Display for RpcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RpcId::Integer(integer) => write!(f, "{integer}"),
            RpcId::Text(text) => write!(f, "{text:?}"),
            RpcId::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(line: &str, expect: &str) {
        let seen = match Body::parse(line.as_bytes()) {
            Body::Message(message) => {
                let kind = match (message.is_request(), message.is_response()) {
                    (true, _) => "request",
                    (_, true) => "response",
                    (false, false) => "message",
                };
                let id = message.id.map_or("-", RawValue::get);
                let repeated = if message.repeated_member { " repeated" } else { "" };
                format!("{kind} {id} {}{repeated}", message.method.as_deref().unwrap_or("-"))
            }
            Body::OtherJson => "other".to_owned(),
            Body::Text => "text".to_owned(),
            Body::Bytes => "bytes".to_owned(),
        };
        assert_eq!(seen, expect, "{line}");
    }

    #[test]
    fn members_determine_the_kind() {
        check(r#"{"id":1,"method":"turn/start","params":{}}"#, "request 1 turn/start");
        check(r#"{"params":[{"id":7}],"method":"a\u0062c","id":"x"}"#, r#"request "x" abc"#);
        check(r#"{"method":"initialized"}"#, "message - initialized");
        check(r#"{"id":null,"error":{}}"#, "response null -");
        check(r#"{"id":1,"result":null}"#, "response 1 -");
        check(r#"{"id":1}"#, "message 1 -");
        check(r#"{"method":7,"id":1}"#, "message 1 -");
        check(" {\"method\":\"m\"} \r", "message - m");
    }

    #[test]
    fn non_objects_are_values_too() {
        for other in ["[]", "[{\"id\":1}]", "1e400", "-0", "\"x\"", "null", "true", "18446744073709551616"] {
            check(other, if other == "1e400" { "text" } else { "other" });
        }
        for text in ["", "{", "label", "01", "{\"a\":1}x", "{\"a\":\u{0}}", "nul"] {
            check(text, "text");
        }
        assert!(matches!(Body::parse(b"{\"a\":\"\xff\"}"), Body::Bytes));
    }

    #[test]
    fn odd_members_do_not_hide_the_message() {
        check(r#"{"id":1,"method":"a","method":"b"}"#, "request 1 b repeated");
        check(r#"{"id":1,"x":1e400,"method":"a","params":1e400}"#, "request 1 a");
        check(r#"{"id":1,"x":"\ud800","method":"a"}"#, "request 1 a");
        check("{\"method\":\"a\",\"params\":\"\u{2028}\"}", "message - a");
    }

    #[test]
    fn deep_nesting_is_parsed_safely() {
        let deep = format!(r#"{{"method":"a","params":{}{}}}"#, "[".repeat(20_000), "]".repeat(20_000));
        check(&deep, "message - a");
        assert!(!stands_verbatim(deep.as_bytes()));
        let flat = format!("[{}]", vec!["{\"a\":\"]]]]{{{{\\\"{\"}"; 500].join(","));
        check(&flat, "other");
        assert!(stands_verbatim(flat.as_bytes()));
    }

    #[test]
    fn only_a_whole_line_stands_verbatim() {
        assert!(stands_verbatim(b"{\"a\": \"b\"}"));
        for not in [&b""[..], b" {}", b"{}\r", b"{} ", b"{\r}"] {
            assert!(!stands_verbatim(not), "{not:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Body::parse(&bytes);
            let _ = stands_verbatim(&bytes);
        }

        #[test]
        fn json_like_text_never_panics(text in "[\\[\\]{}\",:\\\\u0-9a-f]{0,200}") {
            let _ = Body::parse(text.as_bytes());
            let _ = stands_verbatim(text.as_bytes());
        }
    }

    fn id(text: &str) -> RpcId {
        RpcId::from_raw(serde_json::from_str(text).expect("BUG: test ids are JSON"))
    }

    #[test]
    fn ids_compare_by_type_and_value() {
        assert_eq!(id("92"), RpcId::Integer(92));
        assert_ne!(id("92"), id("\"92\""));
        assert_eq!(id(r#""a""#), id(r#""\u0061""#));
        assert_eq!(id("9223372036854775808"), RpcId::Other("9223372036854775808".to_owned()));
        assert_eq!(id(r#""\ud800""#), RpcId::Other(r#""\ud800""#.to_owned()));
        assert_eq!(id("null").to_string(), "null");
        assert_eq!(id("\"92\"").to_string(), "\"92\"");
    }
}
