//! Recognizes the usual notification without building a [`super::Message`].
//!
//! Most lines of a busy session are deltas, which are only recorded and forwarded. For these it is enough to know the method
//! and that the line is valid JSON, which one pass over the bytes can tell. Every other line is left to
//! [`super::Body::parse`].
//!
//! Deltas of one message have the same bytes up to the delta. [`Glance`] keeps these bytes and how far the scan had come after
//! them, and does not scan them again.

use std::ops::Range;

use super::message::{DEPTH_MAX, utf8};

/// Recognizes plain notifications, one line after the other.
#[derive(Debug, Default)]
pub struct Glance {
    /// The start of an earlier plain notification, up to its last string.
    start: Vec<u8>,
    /// The state of the scan at its end.
    then: Checkpoint,
}

/// Maximum length of `start`, in bytes.
const START_BYTES_MAX: usize = 1_024;

impl Glance {
    /// Whether a line is a plain notification: one JSON object that can be recorded verbatim, with a `method` and no
    /// `id`, `result` or `error`, without a repeated member and without `\u` escapes. `is_wanted` decides on the method, so
    /// that the scan of any other line ends there; its answer to a method must always be the same. `false` says nothing about
    /// the line.
    pub fn is_plain_notification(&mut self, line: &[u8], is_wanted: impl FnOnce(&str) -> bool) -> bool {
        let mut scan = Scan::of(line);
        if !self.start.is_empty() && begins_with(line, &self.start) {
            return scan.resume(self.start.len(), &self.then, is_wanted).is_some() && scan.is_text_to_end();
        }
        scan.start_bytes_max = START_BYTES_MAX;
        if scan.notification(is_wanted, None).is_none() || !scan.is_text_to_end() {
            return false;
        }
        self.start.clear();
        if let Some((at, then)) = scan.last_string.take() {
            self.start.extend_from_slice(&line[..at]);
            self.then = then;
        }
        true
    }
}

/// Whether `line` begins with `start`. The C library of a static binary compares byte by byte, which would be a third of the
/// instructions of a line.
fn begins_with(line: &[u8], start: &[u8]) -> bool {
    const BLOCK: usize = size_of::<u128>();
    let Some(line) = line.get(..start.len()) else { return false };
    let (Some(line_end), Some(start_end)) = (line.last_chunk::<BLOCK>(), start.last_chunk::<BLOCK>()) else {
        return line == start;
    };
    let (blocks, of_start) = (line.as_chunks::<BLOCK>().0, start.as_chunks::<BLOCK>().0);
    line_end == start_end && blocks.iter().zip(of_start).all(|(left, right)| left == right)
}

/// A plain notification, see [`Glance::is_plain_notification`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainNotification<'a> {
    pub method: &'a str,
    /// `params` as they were written.
    pub params: Option<&'a str>,
}

impl<'a> PlainNotification<'a> {
    /// Recognizes a line without its `\n`. `None` says nothing about it. `on_member` gets the members of `params` as they are
    /// written, also if the line turns out to be another one.
    pub fn of(line: &'a [u8], mut on_member: impl FnMut(&'a str, &'a str)) -> Option<PlainNotification<'a>> {
        let text = utf8(line)?;
        let mut scan = Scan::of(line);
        let mut take = |name, value| {
            if let (Some(name), Some(value)) = (text.get::<Range<usize>>(name), text.get::<Range<usize>>(value)) {
                on_member(name, value);
            }
        };
        scan.notification(|_| true, Some(&mut take))?;
        if scan.at < line.len() {
            return None;
        }
        let Parts { method, params } = scan.found;
        Some(PlainNotification { method: text.get(method?)?, params: params.and_then(|params| text.get(params)) })
    }
}

/// The places of a notification's parts in its line, as far as they are scanned.
#[derive(Debug, Clone, Default)]
struct Parts {
    method: Option<Range<usize>>,
    params: Option<Range<usize>>,
}

/// Gets the places of a member's name and value.
type OnMember<'a> = &'a mut dyn FnMut(Range<usize>, Range<usize>);

/// The depth of a message's members: [`DEPTH_MAX`] includes the message itself.
const MESSAGE_DEPTH: usize = 1;

/// The open brackets within a member of the message.
#[derive(Debug, Clone, Copy, Default)]
struct Brackets {
    /// One bit for each bracket, the innermost last: 1 for an object.
    brackets: u128,
    depth: usize,
}

/// The state of a scan at the beginning of a string.
#[derive(Debug, Clone, Default)]
struct Checkpoint {
    found: Parts,
    open: Brackets,
    is_ascii: bool,
}

/// A position in a text that is valid JSON up to there.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// No string so far has a byte above 0x7f. Outside of strings no such byte is valid.
    is_ascii: bool,
    found: Parts,
    /// The place after the opening quotation mark of the last noted string that is a value.
    last_string: Option<(usize, Checkpoint)>,
    /// Strings that begin later are not noted.
    start_bytes_max: usize,
}

/// The text does not continue as expected, or the scan does not handle how it continues.
type Scanned<T = ()> = Option<T>;

impl<'a> Scan<'a> {
    fn of(bytes: &'a [u8]) -> Scan<'a> {
        Scan { bytes, at: 0, is_ascii: true, found: Parts::default(), last_string: None, start_bytes_max: 0 }
    }

    /// Whether the scan has reached the end, and all of the line is UTF-8.
    fn is_text_to_end(&self) -> bool {
        self.at == self.bytes.len() && (self.is_ascii || utf8(self.bytes).is_some())
    }

    fn notification(&mut self, is_wanted: impl FnOnce(&str) -> bool, on_member: Option<OnMember<'_>>) -> Scanned {
        self.byte(b'{')?;
        self.message_members(is_wanted, on_member)
    }

    /// Continues a scan in a string that begins at `at`.
    fn resume(&mut self, at: usize, then: &Checkpoint, is_wanted: impl FnOnce(&str) -> bool) -> Scanned {
        self.at = at;
        self.found = then.found.clone();
        self.is_ascii = then.is_ascii;
        self.string()?;
        self.value_within(then.open, MESSAGE_DEPTH, true)?;
        match self.is_last_member()? {
            true => Some(()),
            false => self.message_members(is_wanted, None),
        }
    }

    /// Skips members of the message up to its end.
    fn message_members(
        &mut self,
        is_wanted: impl FnOnce(&str) -> bool,
        mut on_member: Option<OnMember<'_>>,
    ) -> Scanned {
        let mut is_wanted = Some(is_wanted).filter(|_| self.found.method.is_none());
        loop {
            self.space()?;
            self.byte(b'"')?;
            let name = self.plain_string()?;
            self.space()?;
            self.byte(b':')?;
            self.space()?;
            match name {
                b"method" => {
                    self.byte(b'"')?;
                    let method = self.plain_string()?;
                    // Taken at most once: a repeated member ends the scan.
                    let is_wanted = is_wanted.take()?;
                    if !is_wanted(std::str::from_utf8(method).ok()?) {
                        return None;
                    }
                    self.found.method = Some(self.at - 1 - method.len()..self.at - 1);
                }
                b"params" if self.found.params.is_none() => {
                    let from = self.at;
                    self.found.params = Some(from..from);
                    match (&mut on_member, self.peek()?) {
                        (Some(on_member), b'{') => self.members(on_member)?,
                        (_, _) => self.value(MESSAGE_DEPTH)?,
                    }
                    self.found.params = Some(from..self.at);
                }
                b"params" | b"id" | b"result" | b"error" => return None,
                _ => self.value(MESSAGE_DEPTH)?,
            }
            if self.is_last_member()? {
                return Some(());
            }
        }
    }

    /// Skips what follows a member of the message. Returns whether the message ends there, which it only does with a method.
    fn is_last_member(&mut self) -> Scanned<bool> {
        self.space()?;
        match self.next()? {
            b',' => Some(false),
            b'}' if self.found.method.is_some() => Some(true),
            _ => None,
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
        self.value_within(Brackets { brackets: 0, depth: outer_depth }, outer_depth, false)
    }

    /// Skips the rest of a value within `outer_depth` brackets, in which some are open. `has_ended` tells whether a value within
    /// them has just ended; else one begins.
    fn value_within(&mut self, mut open: Brackets, outer_depth: usize, mut has_ended: bool) -> Scanned {
        loop {
            if !has_ended && !self.begin_value(&mut open)? {
                continue;
            }
            has_ended = false;
            // A value has ended, or an empty bracket is about to.
            loop {
                if open.depth == outer_depth {
                    return Some(());
                }
                self.space()?;
                match (self.next()?, open.brackets & 1) {
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
                        open.brackets >>= 1;
                        open.depth -= 1;
                    }
                    _ => return None,
                }
            }
        }
    }

    /// Skips a value that has no parts, or a bracket, up to its first value or its end. Returns `false` if a value follows.
    fn begin_value(&mut self, open: &mut Brackets) -> Scanned<bool> {
        match self.next()? {
            b'"' => {
                if self.at <= self.start_bytes_max {
                    let then = Checkpoint { found: self.found.clone(), open: *open, is_ascii: self.is_ascii };
                    self.last_string = Some((self.at, then));
                }
                self.string()?;
            }
            bracket @ (b'{' | b'[') => {
                open.depth += 1;
                if open.depth > DEPTH_MAX {
                    return None;
                }
                open.brackets = open.brackets << 1 | u128::from(bracket == b'{');
                self.space()?;
                if self.peek()? != if bracket == b'{' { b'}' } else { b']' } {
                    if bracket == b'{' {
                        self.name()?;
                    }
                    return Some(false);
                }
            }
            b't' => self.rest(b"rue")?,
            b'f' => self.rest(b"alse")?,
            b'n' => self.rest(b"ull")?,
            first @ (b'-' | b'0'..=b'9') => self.number(first)?,
            _ => return None,
        }
        Some(true)
    }

    /// Skips the name of a member up to its value.
    fn name(&mut self) -> Scanned {
        self.byte(b'"')?;
        self.string()?;
        self.space()?;
        self.byte(b':')?;
        self.space()
    }

    /// As [`Scan::string`], for a string that must have no escapes.
    fn plain_string(&mut self) -> Scanned<&'a [u8]> {
        let from = self.at;
        self.at = plain_end(self.bytes, from, &mut self.is_ascii);
        self.byte(b'"')?;
        Some(&self.bytes[from..self.at - 1])
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

/// The index from `from` on of the first byte of a string that needs a closer look: its end, an escape, or a control character.
/// Clears `is_ascii` if there is a byte above 0x7f before it, and possibly if there is one shortly after it.
fn plain_end(bytes: &[u8], from: usize, is_ascii: &mut bool) -> usize {
    let (words, last) = bytes.get(from..).unwrap_or_default().as_chunks();
    let (mut index, mut all) = (0, 0);
    while let Some(word) = words.get(index) {
        let word = u64::from_le_bytes(*word);
        all |= word;
        let special = special_bytes(word);
        if special != 0 {
            *is_ascii &= all & HIGH_BITS == 0;
            return from + index * WORD_BYTES + (special.trailing_zeros() / u8::BITS) as usize;
        }
        index += 1;
        if index == SHORT_WORDS {
            for block in words[index..].as_chunks().0 {
                let (has_special, all_of_block) = look_at_block(block);
                if has_special {
                    break;
                }
                all |= u64::from(all_of_block);
                index += BLOCK_WORDS;
            }
        }
    }
    let length = last.iter().position(|byte| is_special(*byte)).unwrap_or(last.len());
    *is_ascii &= all & HIGH_BITS == 0 && last[..length].is_ascii();
    from + words.len() * WORD_BYTES + length
}

const WORD_BYTES: usize = size_of::<u64>();

/// Words of a string before blocks pay. Most strings are shorter.
const SHORT_WORDS: usize = 2;

const BLOCK_WORDS: usize = 4;

/// Whether one of the bytes is special, and all their bits. On its own the compiler turns this into vector instructions.
#[inline(never)]
fn look_at_block(block: &[[u8; WORD_BYTES]; BLOCK_WORDS]) -> (bool, u8) {
    let look = |(special, all), byte: &u8| (special | u8::from(is_special(*byte)), all | *byte);
    let (special, all) = block.as_flattened().iter().fold((0, 0), look);
    (special != 0, all)
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
        let (mut glance, mut seen) = (Glance::default(), None);
        let is_plain = glance.is_plain_notification(line, |method| {
            seen = Some(method.to_owned());
            true
        });
        assert!(!is_plain || glance.is_plain_notification(line, |_| true), "once more");
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
    fn each_byte_of_a_start_is_compared() {
        let line: Vec<u8> = (0..70).collect();
        for length in 0..=70 {
            let start = line[..length].to_vec();
            assert!(begins_with(&line, &start), "{length}");
            assert!(!begins_with(&start[..length.saturating_sub(1)], &start) || length == 0, "{length}");
            for at in 0..length {
                let mut other = line.clone();
                other[at] ^= 1;
                assert!(!begins_with(&other, &start), "{at} of {length}");
            }
        }
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
        assert!(!Glance::default().is_plain_notification(br#"{"method":"m"}"#, |_| false));
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
        fn an_earlier_line_changes_no_answer(
            before in json(), after in json(), starts in "[^{}\\[\\]]{0,20}", ends in prop::collection::vec("[\"}\\],:{]{0,6}|,\"(method|params|id)\":", 2),
        ) {
            let mut glance = Glance::default();
            for (value, end) in [&before, &after].into_iter().zip(&ends) {
                for line in [
                    format!(r#"{{"method":"m","params":{{"a":"{starts}","b":{value}}}}}"#),
                    format!(r#"{{"params":{{"a":["{starts}"{end},{value}]}},"method":"m"{end}}}"#),
                    format!(r#"{{"method":"m","params":{{"a":"x{end}","b":[{{"c":"{starts}{end}"#),
                ] {
                    let alone = Glance::default().is_plain_notification(line.as_bytes(), |_| true);
                    prop_assert_eq!(glance.is_plain_notification(line.as_bytes(), |_| true), alone, "{}", line);
                }
            }
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
