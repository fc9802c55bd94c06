//! Recognizes the usual notification without building a [`super::Message`].
//!
//! Most lines of a busy session are deltas, which are only recorded and forwarded. For these it is enough to know the method
//! and that the line is valid JSON, which one pass over the bytes can tell. Every other line is left to
//! [`super::Body::parse`].

use std::ops::Range;

use super::message::{DEPTH_MAX, utf8};

/// Whether a line is a plain notification: one JSON object that can be recorded verbatim, with a `method` and no
/// `id`, `result` or `error`, without a repeated member and without `\u` escapes. `is_wanted` decides on the method, so
/// that the scan of any other line ends there. `false` says nothing about the line.
pub fn plain_notification(line: &[u8], is_wanted: impl FnOnce(&str) -> bool) -> bool {
    let mut scan = Scan { bytes: line, at: 0, is_ascii: true };
    scan.notification(is_wanted, None).is_some() && scan.at == line.len() && (scan.is_ascii || utf8(line).is_some())
}

/// A [`plain_notification`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlainNotification<'a> {
    pub(crate) method: &'a str,
    /// `params` as they were written.
    pub(crate) params: Option<&'a str>,
}

impl<'a> PlainNotification<'a> {
    /// Recognizes a line without its `\n`. `None` says nothing about it. `on_member` gets the members of `params` as they are
    /// written, also if the line turns out to be another one.
    pub(crate) fn of(line: &'a [u8], mut on_member: impl FnMut(&'a str, &'a str)) -> Option<PlainNotification<'a>> {
        let text = utf8(line)?;
        let mut scan = Scan { bytes: line, at: 0, is_ascii: true };
        let mut take = |name, value| {
            if let (Some(name), Some(value)) = (text.get::<Range<usize>>(name), text.get::<Range<usize>>(value)) {
                on_member(name, value);
            }
        };
        let Found { method, params } = scan.notification(|_| true, Some(&mut take))?;
        if scan.at < line.len() {
            return None;
        }
        Some(PlainNotification { method: text.get(method)?, params: params.and_then(|params| text.get(params)) })
    }
}

/// The places of a notification's parts in its line.
struct Found {
    method: Range<usize>,
    params: Option<Range<usize>>,
}

/// Gets the places of a member's name and value.
type OnMember<'a> = &'a mut dyn FnMut(Range<usize>, Range<usize>);

/// The depth of a message's members: [`DEPTH_MAX`] includes the message itself.
const MESSAGE_DEPTH: usize = 1;

/// A position in a text that is valid JSON up to there.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// No string so far has a byte above 0x7f. Outside of strings no such byte is valid.
    is_ascii: bool,
}

/// The text does not continue as expected, or the scan does not handle how it continues.
type Scanned<T = ()> = Option<T>;

impl<'a> Scan<'a> {
    fn notification(
        &mut self,
        is_wanted: impl FnOnce(&str) -> bool,
        mut on_member: Option<OnMember<'_>>,
    ) -> Scanned<Found> {
        let mut is_wanted = Some(is_wanted);
        let (mut method_at, mut params) = (None, None);
        self.byte(b'{')?;
        loop {
            self.space()?;
            self.byte(b'"')?;
            let name = self.string()?;
            self.space()?;
            self.byte(b':')?;
            self.space()?;
            match name {
                b"method" => {
                    self.byte(b'"')?;
                    let method = self.string()?;
                    // Taken at most once: a repeated member ends the scan.
                    let is_wanted = is_wanted.take()?;
                    if method.contains(&b'\\') || !is_wanted(std::str::from_utf8(method).ok()?) {
                        return None;
                    }
                    method_at = Some(self.at - 1 - method.len()..self.at - 1);
                }
                b"params" if params.is_none() => {
                    let from = self.at;
                    match (&mut on_member, self.peek()?) {
                        (Some(on_member), b'{') => self.members(on_member)?,
                        (_, _) => self.value(MESSAGE_DEPTH)?,
                    }
                    params = Some(from..self.at);
                }
                b"params" | b"id" | b"result" | b"error" => return None,
                _ if name.contains(&b'\\') => return None,
                _ => self.value(MESSAGE_DEPTH)?,
            }
            self.space()?;
            match self.next()? {
                b',' => {}
                b'}' => return Some(Found { method: method_at?, params }),
                _ => return None,
            }
        }
    }

    /// Skips an object, and reports its members.
    fn members(&mut self, on_member: OnMember<'_>) -> Scanned {
        self.byte(b'{')?;
        self.space()?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.byte(b'"')?;
            let from = self.at;
            let name = from..from + self.string()?.len();
            self.space()?;
            self.byte(b':')?;
            self.space()?;
            let from = self.at;
            self.value(MESSAGE_DEPTH + 1)?;
            on_member(name, from..self.at);
            self.space()?;
            match self.next()? {
                b',' => self.space()?,
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Skips one value within `outer_depth` brackets.
    fn value(&mut self, outer_depth: usize) -> Scanned {
        // One bit for each open bracket, the innermost last: 1 for an object.
        let (mut open, mut depth) = (0u128, outer_depth);
        loop {
            // A value begins here.
            match self.next()? {
                b'"' => drop(self.string()?),
                bracket @ (b'{' | b'[') => {
                    depth += 1;
                    if depth > DEPTH_MAX {
                        return None;
                    }
                    open = open << 1 | u128::from(bracket == b'{');
                    self.space()?;
                    if self.peek()? != if bracket == b'{' { b'}' } else { b']' } {
                        if bracket == b'{' {
                            self.name()?;
                        }
                        continue;
                    }
                }
                b't' => self.rest(b"rue")?,
                b'f' => self.rest(b"alse")?,
                b'n' => self.rest(b"ull")?,
                first @ (b'-' | b'0'..=b'9') => self.number(first)?,
                _ => return None,
            }
            // A value has ended, or an empty bracket is about to.
            loop {
                if depth == outer_depth {
                    return Some(());
                }
                self.space()?;
                match (self.next()?, open & 1) {
                    (b',', 1) => {
                        self.space()?;
                        self.name()?;
                        break;
                    }
                    (b',', _) => {
                        self.space()?;
                        break;
                    }
                    (b'}', 1) | (b']', 0) => {
                        open >>= 1;
                        depth -= 1;
                    }
                    _ => return None,
                }
            }
        }
    }

    /// Skips the name of a member up to its value.
    fn name(&mut self) -> Scanned {
        self.byte(b'"')?;
        self.string()?;
        self.space()?;
        self.byte(b':')?;
        self.space()
    }

    /// Skips a string after its opening quotation mark, and returns what is between the marks.
    fn string(&mut self) -> Scanned<&'a [u8]> {
        let from = self.at;
        loop {
            self.at = plain_end(self.bytes, self.at, &mut self.is_ascii);
            match self.next()? {
                b'"' => return Some(&self.bytes[from..self.at - 1]),
                b'\\' => match self.next()? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    /// Skips the rest of a number.
    fn number(&mut self, first: u8) -> Scanned {
        let leading = if first == b'-' { self.next()? } else { first };
        match leading {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return None,
        }
        if self.peek()? == b'.' {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.peek()?, b'e' | b'E') {
            self.at += 1;
            if matches!(self.peek()?, b'+' | b'-') {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Some(())
    }

    fn some_digits(&mut self) -> Scanned {
        if !self.peek()?.is_ascii_digit() {
            return None;
        }
        self.digits();
        Some(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    /// Skips white space, except `\r`, with which a line cannot be recorded verbatim.
    fn space(&mut self) -> Scanned {
        while matches!(self.peek()?, b' ' | b'\t') {
            self.at += 1;
        }
        Some(())
    }

    fn rest(&mut self, word: &[u8]) -> Scanned {
        self.bytes[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    fn byte(&mut self, expected: u8) -> Scanned {
        (self.next()? == expected).then_some(())
    }

    fn next(&mut self) -> Scanned<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn peek(&self) -> Scanned<u8> {
        self.bytes.get(self.at).copied()
    }
}

/// The index from `at` on of the first byte of a string that needs a closer look: its end, an escape, or a control character.
/// Clears `is_ascii` if there is a byte above 0x7f before it, and possibly if there is one shortly after it.
fn plain_end(bytes: &[u8], from: usize, is_ascii: &mut bool) -> usize {
    let mut at = from;
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let word = u64::from_le_bytes(*word);
        *is_ascii &= word & HIGH_BITS == 0;
        let special = special_bytes(word);
        if special != 0 {
            return at + (special.trailing_zeros() / u8::BITS) as usize;
        }
        at += size_of::<u64>();
        if at - from == LONG_BYTES {
            at = skip_blocks(bytes, at, is_ascii);
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let length = rest.iter().position(|byte| is_special(*byte)).unwrap_or(rest.len());
    *is_ascii &= rest[..length].is_ascii();
    at + length
}

/// Length from which larger blocks pay, in bytes. Most strings are shorter.
const LONG_BYTES: usize = 64;

/// Skips blocks without a special byte. The compiler turns the loop into vector instructions.
fn skip_blocks(bytes: &[u8], mut at: usize, is_ascii: &mut bool) -> usize {
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<64>()) {
        let look = |(special, all), byte: &u8| (special | u8::from(is_special(*byte)), all | *byte);
        let (special, all) = block.iter().fold((0, 0), look);
        if special != 0 {
            break;
        }
        *is_ascii &= all.is_ascii();
        at += block.len();
    }
    at
}

fn is_special(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < FIRST_PRINTABLE)
}

const FIRST_PRINTABLE: u8 = 0x20;

/// The lowest bit of each byte.
const LOW_BITS: u64 = u64::MAX / 0xff;

const HIGH_BITS: u64 = LOW_BITS << 7;

/// The high bit of the first special byte of a word, which is its lowest; bits above that one have no meaning.
fn special_bytes(word: u64) -> u64 {
    // A byte below `limit` borrows from its high bit, which a byte above 0x7f had set before.
    let below = |word: u64, limit: u8| word.wrapping_sub(LOW_BITS * u64::from(limit)) & !word;
    let equals = |byte: u8| below(word ^ (LOW_BITS * u64::from(byte)), 1);
    (below(word, FIRST_PRINTABLE) | equals(b'"') | equals(b'\\')) & HIGH_BITS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::wire::{Body, Members, stands_verbatim};

    /// Whether `line` is a plain notification, which holds only if the parser agrees.
    fn is_plain(line: &[u8]) -> bool {
        let mut seen = None;
        let is_plain = plain_notification(line, |method| {
            seen = Some(method.to_owned());
            true
        });
        if is_plain {
            let text = String::from_utf8_lossy(line);
            let Body::Message(message) = Body::parse(line) else { panic!("{text}: not a message") };
            assert_eq!(message.method.as_deref(), seen.as_deref(), "{text}");
            assert!(message.id.is_none() && message.result.is_none() && message.error.is_none(), "{text}");
            assert!(!message.repeated_member && stands_verbatim(line), "{text}");
            let method = message.method.as_deref().unwrap_or_default();
            let params = message.params.map(RawValue::get);
            let mut members = Vec::new();
            let found = PlainNotification::of(line, |name, value| members.push((name.to_owned(), value)));
            assert_eq!(found, Some(PlainNotification { method, params }), "{text}");
            members
                .iter_mut()
                .for_each(|(name, _)| *name = serde_json::from_str(&format!("\"{name}\"")).expect("a name"));
            let parsed = Members::of_text(params.unwrap_or_default()).unwrap_or_default();
            let parsed: Vec<_> = parsed.iter().map(|(name, value)| (name.to_owned(), value.get())).collect();
            assert_eq!(members, parsed, "{text}");
        } else {
            assert_eq!(PlainNotification::of(line, |_, _| ()), None);
        }
        is_plain
    }

    fn check(line: &str, expect: bool) {
        assert_eq!(is_plain(line.as_bytes()), expect, "{line}");
    }

    #[test]
    fn usual_notifications_are_plain() {
        check(
            r#"{"method":"a/b","params":{"delta":"x","n":[1,-2.5e+3,0,{}],"t":true,"f":false,"z":null},"emittedAtMs":1}"#,
            true,
        );
        check(r#"{"params":{"d":"\"\\\/\b\f\n\r\t äöü 日本"},"method":"m"}"#, true);
        check("{ \"method\" :\t\"m\" , \"params\" : [ ] }", true);
        check(r#"{"method":"m"}"#, true);
        check(&format!(r#"{{"method":"m","params":{}{}}}"#, "[".repeat(119), "]".repeat(119)), true);
    }

    #[test]
    fn all_other_lines_are_left_to_the_parser() {
        for line in [
            "",
            "{",
            "{}",
            "[]",
            "{\"method\"",
            r#"{"id":1,"method":"m"}"#,
            r#"{"method":"m","id":1}"#,
            r#"{"method":"m","result":1}"#,
            r#"{"method":"m","error":1}"#,
            r#"{"method":"m","method":"m"}"#,
            r#"{"method":"m","params":1,"params":1}"#,
            r#"{"params":{}}"#,
            r#"{"method":1}"#,
            r#"{"m\u0065thod":"m"}"#,
            r#"{"method":"m","\u0069d":1}"#,
            r#"{"method":"a\n"}"#,
            r#"{"method":"m","params":"\u0041"}"#,
            r#"{"method":"m"} "#,
            r#" {"method":"m"}"#,
            r#"{"method":"m"}{}"#,
            "{\"method\":\"m\",\r\"params\":1}",
            "{\"method\":\"m\"}\r",
            "{\"method\":\"m\",\"params\":\"\u{1f}\"}",
            r#"{"method":"m","params":01}"#,
            r#"{"method":"m","params":1.}"#,
            r#"{"method":"m","params":.1}"#,
            r#"{"method":"m","params":-}"#,
            r#"{"method":"m","params":1e}"#,
            r#"{"method":"m","params":+1}"#,
            r#"{"method":"m","params":tru}"#,
            r#"{"method":"m","params":[1,]}"#,
            r#"{"method":"m","params":[,1]}"#,
            r#"{"method":"m","params":{"a":1,}}"#,
            r#"{"method":"m","params":{"a"}}"#,
            r#"{"method":"m","params":[1}}"#,
            r#"{"method":"m","params":{"a":1]}"#,
            r#"{"method":"m","params":{1:1}}"#,
            r#"{"method":"m",}"#,
            r#"{"method":"m","params":"\x"}"#,
            r#"{"method":"m","params":[}"#,
            r#"{"method":"m","params":{]}"#,
        ] {
            check(line, false);
        }
        check(&format!(r#"{{"method":"m","params":{}{}}}"#, "[".repeat(120), "]".repeat(120)), false);
        assert!(!is_plain(b"{\"method\":\"m\",\"params\":\"\xff\"}"));
        assert!(!plain_notification(br#"{"method":"m"}"#, |_| false));
    }

    /// JSON as text, sometimes broken.
    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{0,2})?([eE][+-]?[0-9]{0,2})?",
            "\"[ -~äé\u{2028}]{0,40}\"",
            "\"(\\\\[\"\\\\/bfnrtu]|[a-z0-9])*\"",
            Just("true".to_owned()),
            Just("null".to_owned()),
            "[ -~]{0,3}",
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let name = prop_oneof!["(id|method|params|result|error|x)", "[a-z]{0,20}"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|values| format!("[{}]", values.join(","))),
                prop::collection::vec((name, inner), 0..4).prop_map(|members| {
                    let members = members.into_iter().map(|(name, value)| format!("\"{name}\" : {value}"));
                    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_plain_is_so_for_the_parser(
            params in json(), more in prop_oneof![Just(String::new()), json().prop_map(|json| format!(",\"x\":{json}"))],
        ) {
            let line = format!(r#"{{"method":"m","params":{params}{more}}}"#);
            let is_valid = matches!(Body::parse(line.as_bytes()), Body::Message(_));
            let is_plain = is_plain(line.as_bytes());
            // Only these make the scan give up on a valid line.
            prop_assert!(is_plain || !is_valid || line.contains("\\u") || line.contains('\r'));
        }

        #[test]
        fn words_and_bytes_are_examined_alike(plain in "[a-zé]{0,150}", rest in "[ -~\\\\\"\u{0}-\u{ff}]{0,40}") {
            let bytes = plain + &rest;
            let mut is_ascii = true;
            let end = plain_end(bytes.as_bytes(), 0, &mut is_ascii);
            let first = bytes.bytes().position(is_special).unwrap_or(bytes.len());
            prop_assert_eq!(end, first);
            prop_assert!(!is_ascii || bytes.as_bytes()[..first].is_ascii());
        }

        #[test]
        fn json_like_text_is_plain_only_for_valid_lines(text in "[\\[\\]{}\",:\\\\u0-9a-f .-]{0,60}") {
            is_plain(text.as_bytes());
            is_plain(format!("{{\"method\":\"m\",\"params\":{text}}}").as_bytes());
        }
    }
}
