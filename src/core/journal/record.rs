//! The record format: one line of JSON, written and parsed here.
//!
//! Pure: bytes in, bytes out.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::segment::Previous;
use crate::engine::{Form, Note, Omitted};
use crate::wire::{Conn, LineEnd, Side};

/// Version of the record format. Readers accept this one and all earlier ones.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`] at the time of writing.
    pub journal: u32,
    pub session: String,
    /// The run of the server, 12 hex digits.
    pub generation: String,
    /// The number of the segment in that run, from 1.
    pub segment: u32,
    /// Microseconds since the Unix epoch.
    pub at: u64,
    /// The server command, secrets masked.
    pub argv: Vec<String>,
    pub cwd: String,
    pub codex: ServerOrigin,
    /// The server runs since an earlier generation: a hub has taken it over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// The version of codex-shim that wrote it.
    pub shim: String,
    /// The previous segment. Headers of older versions lack it, and so does the first segment of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
}

/// The origin of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerOrigin {
    /// The program that was started.
    pub path: String,
}

/// Who wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The client or the server.
    Side(Side),
    /// codex-shim.
    Shim,
}

/// A record, borrowed from its line.
#[derive(Debug)]
pub enum Record<'a> {
    /// The first record of a segment.
    Header(Header),
    /// A line that passed.
    Line {
        /// Microseconds since the Unix epoch.
        at_us: u64,
        conn: Conn,
        from: Origin,
        /// The receiver, if codex-shim wrote it.
        to: Option<Side>,
        /// It was sent in place of the line before it.
        replaces: bool,
        content: Content<'a>,
        /// Credentials in it are overwritten.
        masked: bool,
        end: LineEnd,
    },
    /// An action or observation of codex-shim.
    Event {
        /// Microseconds since the Unix epoch.
        at_us: u64,
        event: Cow<'a, str>,
        /// Its other members.
        data: Option<&'a RawValue>,
    },
    /// Lines that could not be written.
    Gap {
        /// Microseconds since the Unix epoch.
        at_us: u64,
        lines: u64,
        reason: Cow<'a, str>,
    },
}

/// The recorded part of a line.
#[derive(Debug)]
pub enum Content<'a> {
    /// The whole line, which is JSON.
    Json(&'a RawValue),
    /// The whole line, which is UTF-8 but not JSON.
    Text(Cow<'a, str>),
    /// The whole line, which is not UTF-8.
    Bytes(Vec<u8>),
    /// Nothing but its outline.
    Omitted {
        /// `secret` or `size`; `same` if the record that it refers to is missing.
        reason: Cow<'a, str>,
        /// Its length in bytes.
        line_bytes: u64,
        /// Its method, if it had one.
        method: Option<Cow<'a, str>>,
        id: Option<&'a RawValue>,
    },
}

impl Content<'_> {
    /// The line's bytes without its `\n`; `None` if they are not recorded.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Content::Json(line) => Some(line.get().as_bytes()),
            Content::Text(text) => Some(text.as_bytes()),
            Content::Bytes(bytes) => Some(bytes),
            Content::Omitted { .. } => None,
        }
    }
}

/// Why a line of a journal is not a valid record.
#[derive(Debug)]
pub enum RecordError {
    /// It is not valid JSON, or lacks a member.
    Malformed(serde_json::Error),
    /// Its format is newer than [`FORMAT`].
    Newer(u32),
    /// The kind of record is unknown.
    UnknownKind,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Malformed(_) => f.write_str("malformed record"),
            RecordError::Newer(format) => {
                write!(f, "record format {format} is newer than {FORMAT}, the newest that this codex-shim reads")
            }
            RecordError::UnknownKind => f.write_str("record of an unknown kind"),
        }
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RecordError::Malformed(error) => Some(error),
            RecordError::Newer(_) | RecordError::UnknownKind => None,
        }
    }
}

#[derive(Deserialize)]
struct Raw<'a> {
    journal: Option<u32>,
    at: u64,
    #[serde(default)]
    conn: u32,
    #[serde(borrow)]
    from: Option<Cow<'a, str>>,
    #[serde(borrow)]
    to: Option<Cow<'a, str>>,
    replaces: Option<bool>,
    #[serde(borrow, default, deserialize_with = "present")]
    line: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    base64: Option<Cow<'a, str>>,
    same: Option<u64>,
    #[serde(borrow)]
    omitted: Option<Cow<'a, str>>,
    bytes: Option<u64>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    masked: Option<bool>,
    eol: Option<bool>,
    #[serde(borrow)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    gap: Option<RawGap<'a>>,
}

#[derive(Deserialize)]
struct RawGap<'a> {
    lines: u64,
    #[serde(borrow)]
    reason: Cow<'a, str>,
}

/// Distinguishes a `null` member from a missing one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The text before a side's line in its record, as [`append_head`] writes it.
const HEADS: [(&[u8], Side); 2] =
    [(b",\"from\":\"server\",\"line\":", Side::Server), (b",\"from\":\"client\",\"line\":", Side::Client)];

/// The record of a side's line that is JSON, as most are, recognized by the text around the line without parsing the line.
/// It is valid only if `line` is one JSON value; if it is not, use [`Record::parse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainRecord<'a> {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub conn: Conn,
    pub from: Side,
    pub line: &'a [u8],
}

impl<'a> PlainRecord<'a> {
    /// Recognizes a record, given without the `\n`.
    #[must_use]
    pub fn of(record: &'a [u8]) -> Option<PlainRecord<'a>> {
        let (at_us, rest) = number(record.strip_prefix(b"{\"at\":")?)?;
        let (conn, rest) = match rest.strip_prefix(b",\"conn\":") {
            Some(rest) => number(rest)?,
            None => (0, rest),
        };
        let conn = Conn(u32::try_from(conn).ok()?);
        let (line, from) = HEADS.iter().find_map(|(head, from)| Some((rest.strip_prefix(*head)?, *from)))?;
        Some(PlainRecord { at_us, conn, from, line: line.strip_suffix(b"}")? })
    }
}

/// The number at the start of `text`, and what follows it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // JSON numbers do not begin with 0, and 19 digits always fit into a u64.
    if text.first() == Some(&b'0') || !(1..20).contains(&digits) {
        return None;
    }
    let (digits, rest) = text.split_at(digits);
    Some((digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')), rest))
}

impl<'a> Record<'a> {
    /// The recorded line, if any.
    #[must_use]
    pub fn line_bytes(&self) -> Option<&[u8]> {
        match self {
            Record::Line { content, .. } => content.bytes(),
            Record::Header(_) | Record::Event { .. } | Record::Gap { .. } => None,
        }
    }

    /// Parses a record from its line, given without the `\n`.
    pub fn parse(line: &'a [u8]) -> Result<Record<'a>, RecordError> {
        let raw: Raw<'a> = serde_json::from_slice(line).map_err(RecordError::Malformed)?;
        if let Some(format) = raw.journal {
            if format > FORMAT {
                return Err(RecordError::Newer(format));
            }
            return serde_json::from_slice(line).map(Record::Header).map_err(RecordError::Malformed);
        }
        let at_us = raw.at;
        if let Some(gap) = raw.gap {
            return Ok(Record::Gap { at_us, lines: gap.lines, reason: gap.reason });
        }
        if let Some(event) = raw.event {
            return Ok(Record::Event { at_us, event, data: raw.data });
        }
        let from = match raw.from.as_deref() {
            Some("client") => Origin::Side(Side::Client),
            Some("server") => Origin::Side(Side::Server),
            Some("shim") => Origin::Shim,
            Some(_) | None => return Err(RecordError::UnknownKind),
        };
        let to = match raw.to.as_deref() {
            Some("client") => Some(Side::Client),
            Some("server") => Some(Side::Server),
            Some(_) | None => None,
        };
        let replaces = raw.replaces == Some(true);
        let end = if raw.eol == Some(false) { LineEnd::EndOfStream } else { LineEnd::Newline };
        let content = match (raw.line, raw.text, raw.base64, raw.omitted, raw.same) {
            (Some(line), ..) => Content::Json(line),
            (None, Some(text), ..) => Content::Text(text),
            (None, None, Some(base64), ..) => {
                Content::Bytes(BASE64_STANDARD.decode(base64.as_ref()).map_err(|_| RecordError::UnknownKind)?)
            }
            (None, None, None, Some(reason), _) => {
                Content::Omitted { reason, line_bytes: raw.bytes.unwrap_or_default(), method: raw.method, id: raw.id }
            }
            (None, None, None, None, Some(_)) => {
                Content::Omitted { reason: Cow::Borrowed("same"), line_bytes: 0, method: None, id: None }
            }
            (None, None, None, None, None) => return Err(RecordError::UnknownKind),
        };
        let conn = Conn(raw.conn);
        Ok(Record::Line { at_us, conn, from, to, replaces, content, masked: raw.masked == Some(true), end })
    }
}

/// Appends the first record of a segment.
pub(super) fn append_header(out: &mut Vec<u8>, header: &Header) {
    append_json(out, header);
    out.push(b'\n');
}

/// The origin of a line to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// Written by a side.
    By(Side),
    /// Written by codex-shim for a side.
    For(Side),
    /// Written by codex-shim for a side, in place of the line before it.
    InPlaceFor(Side),
}

/// At most 64 bytes, which take no call to append: the compiler replaces a copy of a constant size by a few instructions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Short {
    bytes: [u8; Short::BYTES_MAX],
    length: usize,
}

impl Short {
    const BYTES_MAX: usize = 64;

    const fn of(text: &[u8]) -> Short {
        let mut bytes = [0; Short::BYTES_MAX];
        bytes.split_at_mut(text.len()).0.copy_from_slice(text);
        Short { bytes, length: text.len() }
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.length;
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
    }
}

/// The first members of a line's record, the same for all lines of one time and connection.
pub(super) fn start(at_us: u64, conn: Conn) -> Short {
    let mut bytes = [0; Short::BYTES_MAX];
    let mut rest = &mut bytes[..];
    // The formatter of the standard library takes ten times as long for a number.
    let mut append = |name: &[u8], number: u64| {
        rest.write_all(name).expect("BUG: the longest numbers fit");
        serde_json::to_writer(&mut rest, &number).expect("BUG: the longest numbers fit");
    };
    append(b"{\"at\":", at_us);
    if conn != Conn::OWN {
        append(b",\"conn\":", u64::from(conn.0));
    }
    let length = Short::BYTES_MAX - rest.len();
    Short { bytes, length }
}

/// Appends the part of a line's record before the line, after its [`start`]. For [`Form::Verbatim`] the line itself follows, then
/// [`append_tail`].
pub(super) fn append_head(out: &mut Vec<u8>, start: &Short, written: Written, form: &Form, line: &[u8]) {
    start.append_to(out);
    let origin = match written {
        Written::By(Side::Client) => const { &Short::of(b",\"from\":\"client\",") },
        Written::By(Side::Server) => const { &Short::of(b",\"from\":\"server\",") },
        Written::For(Side::Client) => const { &Short::of(b",\"from\":\"shim\",\"to\":\"client\",") },
        Written::For(Side::Server) => const { &Short::of(b",\"from\":\"shim\",\"to\":\"server\",") },
        Written::InPlaceFor(Side::Client) => {
            const { &Short::of(b",\"from\":\"shim\",\"to\":\"client\",\"replaces\":true,") }
        }
        Written::InPlaceFor(Side::Server) => {
            const { &Short::of(b",\"from\":\"shim\",\"to\":\"server\",\"replaces\":true,") }
        }
    };
    origin.append_to(out);
    match form {
        Form::Verbatim => out.extend_from_slice(b"\"line\":"),
        Form::Text => {
            out.extend_from_slice(b"\"text\":");
            append_json(out, &String::from_utf8_lossy(line));
        }
        Form::Base64 => {
            out.extend_from_slice(b"\"base64\":\"");
            out.extend_from_slice(BASE64_STANDARD.encode(line).as_bytes());
            out.push(b'"');
        }
        Form::Masked(masked) => {
            match masked.is_verbatim {
                true => {
                    out.extend_from_slice(b"\"line\":");
                    out.extend_from_slice(masked.text.as_bytes());
                }
                false => {
                    out.extend_from_slice(b"\"text\":");
                    append_json(out, &masked.text);
                }
            }
            out.extend_from_slice(b",\"masked\":true");
        }
        Form::Omitted(omitted) => append_omitted(out, omitted),
    }
}

/// Appends the record of a line of the server that is the same as in the record at `offset`.
pub(super) fn append_reference(out: &mut Vec<u8>, start: &Short, offset: u64) {
    start.append_to(out);
    out.extend_from_slice(SAME);
    append_json(out, &offset);
    out.extend_from_slice(b"}\n");
}

/// The text between the start of a reference and the offset.
const SAME: &[u8] = b",\"from\":\"server\",\"same\":";

/// The offset in a record that [`append_reference`] has written, given without the `\n`.
pub fn reference(record: &[u8]) -> Option<u64> {
    // No other record ends in a digit and a brace within so few bytes.
    if record.len() > SAME.len() + 80 || !record.ends_with(b"}") {
        return None;
    }
    let rest = record.strip_prefix(start_of(record)?)?.strip_prefix(SAME)?;
    let (offset, end) = number(rest)?;
    (end == b"}").then_some(offset)
}

/// The [`start`] of the record of a line of the server.
pub(super) fn start_of(record: &[u8]) -> Option<&[u8]> {
    let (_, rest) = number(record.strip_prefix(b"{\"at\":")?)?;
    let rest = match rest.strip_prefix(b",\"conn\":") {
        Some(rest) => number(rest)?.1,
        None => rest,
    };
    rest.starts_with(b",\"from\":\"server\",").then(|| &record[..record.len() - rest.len()])
}

/// Appends the part of a line's record after the line.
pub(super) fn append_tail(out: &mut Vec<u8>, end: LineEnd) {
    let tail = match end {
        LineEnd::Newline => const { &Short::of(b"}\n") },
        LineEnd::EndOfStream => const { &Short::of(b",\"eol\":false}\n") },
    };
    tail.append_to(out);
}

/// Appends the record of an action or observation of codex-shim.
pub(super) fn append_note(out: &mut Vec<u8>, at_us: u64, note: &Note) {
    #[derive(Serialize)]
    struct EventRecord<'a> {
        at: u64,
        from: &'static str,
        #[serde(flatten)]
        note: &'a Note,
    }
    append_json(out, &EventRecord { at: at_us, from: "shim", note });
    out.push(b'\n');
}

/// Appends the record of lines that could not be written.
pub(super) fn append_gap(out: &mut Vec<u8>, at_us: u64, lines: u64, reason: &str) {
    #[derive(Serialize)]
    struct Gap<'a> {
        lines: u64,
        reason: &'a str,
    }
    #[derive(Serialize)]
    struct GapRecord<'a> {
        at: u64,
        gap: Gap<'a>,
    }
    append_json(out, &GapRecord { at: at_us, gap: Gap { lines, reason } });
    out.push(b'\n');
}

fn append_omitted(out: &mut Vec<u8>, omitted: &Omitted) {
    out.extend_from_slice(b"\"omitted\":");
    append_json(out, &omitted.reason);
    out.extend_from_slice(b",\"bytes\":");
    append_json(out, &omitted.line_bytes);
    if let Some(method) = &omitted.method {
        out.extend_from_slice(b",\"method\":");
        append_json(out, method);
    }
    if let Some(id) = &omitted.id {
        out.extend_from_slice(b",\"id\":");
        out.extend_from_slice(id.as_bytes());
    }
}

fn append_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("BUG: plain data goes into a Vec without error");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::OmittedReason;
    use crate::wire::Body;
    use proptest::prelude::*;

    fn recorded(form: &Form, line: &[u8], end: LineEnd) -> String {
        let mut out = Vec::new();
        append_head(&mut out, &start(17, Conn::OWN), Written::By(Side::Server), form, line);
        if *form == Form::Verbatim {
            out.extend_from_slice(line);
        }
        append_tail(&mut out, end);
        String::from_utf8(out).expect("BUG: records are UTF-8")
    }

    #[test]
    fn forms() {
        let check = |form, line: &[u8], end, expect| assert_eq!(recorded(&form, line, end), expect);
        check(Form::Verbatim, b"{ \"a\":1}", LineEnd::Newline, "{\"at\":17,\"from\":\"server\",\"line\":{ \"a\":1}}\n");
        check(
            Form::Text,
            b"x\"\r",
            LineEnd::EndOfStream,
            "{\"at\":17,\"from\":\"server\",\"text\":\"x\\\"\\r\",\"eol\":false}\n",
        );
        check(Form::Base64, b"\xff", LineEnd::Newline, "{\"at\":17,\"from\":\"server\",\"base64\":\"/w==\"}\n");
        let omitted = Omitted {
            reason: OmittedReason::Secret,
            line_bytes: 9,
            method: Some("account/read".to_owned()),
            id: Some("\"7\"".to_owned()),
        };
        check(
            Form::Omitted(Box::new(omitted)),
            b"",
            LineEnd::Newline,
            "{\"at\":17,\"from\":\"server\",\"omitted\":\"secret\",\"bytes\":9,\"method\":\"account/read\",\"id\":\"7\"}\n",
        );
    }

    #[test]
    fn longest_start_is_whole() {
        let mut out = Vec::new();
        start(u64::MAX, Conn(u32::MAX)).append_to(&mut out);
        start(0, Conn::OWN).append_to(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "{\"at\":18446744073709551615,\"conn\":4294967295{\"at\":0");
    }

    #[test]
    fn notes_and_gaps() {
        let mut out = Vec::new();
        append_note(&mut out, 5, &Note::GenerationEnded { exit_code: Some(0), signal: None });
        append_gap(&mut out, 6, 3, "no space");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "{\"at\":5,\"from\":\"shim\",\"event\":\"generation_ended\",\"data\":{\"exit_code\":0,\"signal\":null}}\n\
             {\"at\":6,\"gap\":{\"lines\":3,\"reason\":\"no space\"}}\n"
        );
    }

    #[test]
    fn own_lines_name_their_receiver() {
        for (written, side, replacing) in
            [(Written::For(Side::Server), Side::Server, false), (Written::InPlaceFor(Side::Client), Side::Client, true)]
        {
            let mut out = Vec::new();
            append_head(&mut out, &start(17, Conn::OWN), written, &Form::Text, b"x");
            append_tail(&mut out, LineEnd::Newline);
            match Record::parse(out.trim_ascii_end()) {
                Ok(Record::Line { from: Origin::Shim, to, replaces, .. }) => {
                    assert_eq!((to, replaces), (Some(side), replacing));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn null_is_a_valid_line() {
        let record = recorded(&Form::Verbatim, b"null", LineEnd::Newline);
        match Record::parse(record.trim_end().as_bytes()) {
            Ok(Record::Line { content, .. }) => assert_eq!(content.bytes(), Some(&b"null"[..])),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn newer_format_and_noise_are_errors() {
        assert!(matches!(Record::parse(br#"{"journal":2,"at":1}"#), Err(RecordError::Newer(2))));
        assert!(matches!(Record::parse(b"{\"at\":1"), Err(RecordError::Malformed(_))));
        assert!(matches!(Record::parse(br#"{"at":1,"from":"moon","line":1}"#), Err(RecordError::UnknownKind)));
    }

    #[test]
    fn plain_records_are_recognized() {
        let check = |record: &str, expect: Option<(u64, Side, &str)>| {
            let plain = PlainRecord::of(record.as_bytes());
            let plain = plain.map(|plain| (plain.at_us, plain.from, String::from_utf8_lossy(plain.line).into_owned()));
            assert_eq!(plain, expect.map(|(at_us, from, line)| (at_us, from, line.to_owned())), "{record}");
        };
        check(r#"{"at":17,"from":"server","line":{"a":1}}"#, Some((17, Side::Server, r#"{"a":1}"#)));
        check(r#"{"at":1767225600000000,"from":"client","line":7}"#, Some((1_767_225_600_000_000, Side::Client, "7")));
        // Not a single value: the caller notices.
        let more = r#"{"a":1},"eol":false"#;
        check(&format!(r#"{{"at":17,"from":"server","line":{more}}}"#), Some((17, Side::Server, more)));
        for other in [
            r#"{"at":017,"from":"server","line":7}"#,
            r#"{"at":,"from":"server","line":7}"#,
            r#"{"at":99999999999999999999,"from":"server","line":7}"#,
            r#"{"at":17, "from":"server","line":7}"#,
            r#"{"at":17,"from":"shim","to":"server","line":7}"#,
            r#"{"at":17,"from":"server","text":"x"}"#,
            r#"{"at":17,"from":"server","line":7"#,
            "",
        ] {
            check(other, None);
        }
    }

    proptest! {
        #[test]
        fn plain_recognition_agrees_with_parsing(
            line in prop_oneof![
                "[\\[\\]{}\",:\\\\u0-9 eol]{0,20}",
                "\\{\"[a-z]{0,5}\":\"[^\"\\\\\n]{0,10}\"\\}(,\"(eol|line|replaces|to)\":(false|true|7|\"client\"))?",
            ],
        ) {
            let record = format!("{{\"at\":17,\"from\":\"server\",\"line\":{line}}}");
            let plain = PlainRecord::of(record.as_bytes()).expect("it has the form");
            let is_value = matches!(Body::parse(plain.line), Body::Message(_) | Body::OtherJson);
            match Record::parse(record.as_bytes()) {
                Ok(Record::Line {
                    at_us: 17,
                    conn: Conn::OWN,
                    from: Origin::Side(Side::Server),
                    to: None,
                    replaces: false,
                    content: Content::Json(value),
                    masked: false,
                    end: LineEnd::Newline,
                }) if is_value => prop_assert_eq!(value.get().trim(), line.trim()),
                other => prop_assert!(!is_value, "{:?}", other),
            }
        }

        #[test]
        fn written_records_can_be_parsed(
            line in prop_oneof![
                proptest::collection::vec(any::<u8>().prop_filter("framing", |byte| *byte != b'\n'), 0..80),
                "[\\[\\]{}\",:\\\\u0-9 ]{0,20}".prop_map(String::into_bytes),
                "\\{\"[a-z\u{2028}]{0,5}\":\"[^\"\\\\\n]{0,10}\"\\}".prop_map(String::into_bytes),
            ],
            ended in any::<bool>(),
        ) {
            let form = match Body::parse(&line) {
                Body::Message(_) | Body::OtherJson if crate::wire::stands_verbatim(&line) => Form::Verbatim,
                Body::Message(_) | Body::OtherJson | Body::Text => Form::Text,
                Body::Bytes => Form::Base64,
            };
            let end = if ended { LineEnd::Newline } else { LineEnd::EndOfStream };
            let text = recorded(&form, &line, end);
            let body = text.strip_suffix('\n').expect("BUG: a record ends with a newline");
            prop_assert!(!body.contains(['\n', '\r']));
            match Record::parse(body.as_bytes()) {
                Ok(Record::Line {
                    at_us: 17,
                    conn: Conn::OWN,
                    from: Origin::Side(Side::Server),
                    to: None,
                    replaces: false,
                    content,
                    masked: false,
                    end: seen,
                }) => {
                    prop_assert_eq!(content.bytes(), Some(&line[..]));
                    prop_assert_eq!(seen, end);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
