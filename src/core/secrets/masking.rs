//! Masks secrets in stored data without moving a byte.
//!
//! A [`Masker`] finds the shapes of [`super::secret_spans`] and the user's patterns. Its output is as long as its input, as text
//! and as JSON, and so is every decoded string of that JSON: byte counts are the same before and after. Masked text does not
//! change if it is masked again.
//!
//! Never changes the protocol's own parts (kinds, methods, ids, and numbers without a secret name), nor what a record says
//! about its line.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use regex::bytes::Regex;

use super::members::{Member, Members};
use super::table::KEPT;
use super::{may_hold, merged, secret_spans};
use crate::protocol::Encoding;
use crate::wire::{Token, TokenKind, tokens};

/// Levels of escaped JSON inside a text that are searched.
const NESTED_MAX: u32 = 2;

/// Searches of one text. A finding of one pass rarely leads to another in the next.
const PASSES_MAX: usize = 8;

/// The kind of text to mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Value,
    /// A journal record.
    Record,
}

#[derive(Debug)]
pub struct Masker {
    patterns: Vec<Regex>,
}

/// Strings that were written in pieces, by the text they belong to. A secret may span several pieces.
#[derive(Debug, Default)]
pub struct Pieces(HashMap<String, Whole>);

/// The joined text of several pieces, and the range of each in it, by the number of the piece.
#[derive(Debug, Default)]
struct Whole {
    text: Vec<u8>,
    pieces: Vec<(u64, Range<usize>)>,
}

/// Spans to mask, by the number of their piece.
pub type InPieces = HashMap<u64, Vec<Range<usize>>>;

impl Pieces {
    /// Appends the text of the piece in `json` to `whole`; adds nothing if `json` has no piece.
    pub fn add(&mut self, whole: String, number: u64, json: &str) {
        if let Some(place) = PieceAt::find(json) {
            self.0.entry(whole).or_default().add(number, &place.text(json));
        }
    }
}

impl Whole {
    fn add(&mut self, number: u64, piece: &[u8]) {
        let from = self.text.len();
        self.text.extend_from_slice(piece);
        self.pieces.push((number, from..self.text.len()));
    }

    /// Divides sorted `spans` of the text among its pieces.
    fn divided(&self, spans: &[Range<usize>]) -> impl Iterator<Item = (u64, Vec<Range<usize>>)> {
        self.pieces.iter().map(|(number, piece)| {
            let first = spans.partition_point(|span| span.end <= piece.start);
            let near = spans[first..].iter().take_while(|span| span.start < piece.end);
            let within =
                near.map(|span| span.start.max(piece.start) - piece.start..span.end.min(piece.end) - piece.start);
            (*number, within.collect())
        })
    }
}

/// Position of a piece's text in JSON.
#[derive(Debug, PartialEq, Eq)]
struct PieceAt {
    /// The string that holds it.
    string: Range<usize>,
    /// Offset of the text in the decoded string, if the string holds escaped JSON; `None` if the whole string is the text.
    within_from: Option<usize>,
    is_base64: bool,
}

impl PieceAt {
    /// A string that is Base64 from its start to its end.
    const BASE64: PieceAt = PieceAt { string: 0..0, within_from: None, is_base64: true };

    /// Search the first string that is named as the text of a piece, or the string that is all of `json`. In a truncated excerpt of
    /// parameters or of a text, finds the part that its `preview` holds.
    fn find(json: &str) -> Option<PieceAt> {
        let (mut named, mut cut) = ("", None);
        for token in tokens(json) {
            let written = &json[token.range.clone()];
            match token.kind {
                TokenKind::Name => named = written,
                TokenKind::Text => {
                    let is_base64 =
                        named == Encoding::Base64.member() && BASE64_STANDARD.decode(written.trim_matches('"')).is_ok();
                    if is_base64 || named == Encoding::Plain.member() || token.range == (0..json.len()) {
                        return Some(PieceAt { string: token.range, within_from: None, is_base64 });
                    }
                    if named == "\"preview\"" {
                        cut = Some(token.range);
                    }
                    named = "";
                }
                TokenKind::Number => named = "",
            }
        }
        let string = cut.filter(|_| json.starts_with("{\"truncated\":true,"))?;
        let said = JsonString::of(&json[string.clone()]).text();
        if !said.starts_with('{') {
            return Some(PieceAt { string, within_from: None, is_base64: false });
        }
        let behind = |name: &str| Some(said.find(&format!("{name}:\""))? + name.len() + 2);
        let delta = behind(Encoding::Plain.member());
        let from = delta.or_else(|| behind(Encoding::Base64.member())).or_else(|| behind("\"deltaBase64\""))?;
        Some(PieceAt { string, within_from: Some(from), is_base64: delta.is_none() })
    }

    fn text(&self, json: &str) -> Vec<u8> {
        let said = JsonString::of(&json[self.string.clone()]).text();
        match self.within_from {
            _ if self.is_base64 => self.decoded(&said).map_or(Vec::new(), |(_, bytes)| bytes),
            Some(from) => unescaped(&said[from..]).into_owned().into_bytes(),
            None => said.into_owned().into_bytes(),
        }
    }

    /// The range of the Base64 in the decoded string `said`, up to the last complete group of four, and its bytes.
    fn decoded(&self, said: &str) -> Option<(Range<usize>, Vec<u8>)> {
        let from = self.within_from.unwrap_or(0);
        let is_sign = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        let length = said.get(from..)?.bytes().take_while(is_sign).count();
        let range = from..from + length / 4 * 4;
        let bytes = BASE64_STANDARD.decode(said.get(range.clone())?).ok()?;
        Some((range, bytes))
    }

    /// Masks the secrets that `masker` finds in the decoded Base64, and the spans `in_delta` of it.
    fn masked_base64(&self, masker: &Masker, written: &str, in_delta: &[Range<usize>]) -> Option<String> {
        let string = JsonString::of(written);
        let (range, bytes) = self.decoded(&string.text())?;
        let spans = merged(masker.spans(&bytes).into_iter().chain(in_delta.iter().cloned()).collect());
        let bytes = masked_bytes(&bytes, &spans)?;
        // Escaped Base64 characters take more space than the new ones would; such a string is not masked here.
        let [at] = &string.written_spans(&[range])[..] else { return None };
        let inner = written.strip_prefix('"')?;
        let encoded = BASE64_STANDARD.encode(bytes);
        (at.len() == encoded.len()).then(|| format!("\"{}{encoded}{}", &inner[..at.start], &inner[at.end..]))
    }

    /// Maps `spans` of the text to spans of the decoded string `said`.
    fn spans_in(&self, said: &str, spans: &[Range<usize>]) -> Vec<Range<usize>> {
        let Some(from) = self.within_from else { return spans.to_vec() };
        let spans = JsonString::of_inner(&said[from..]).written_spans(spans);
        spans.into_iter().map(|span| from + span.start..from + span.end).collect()
    }
}

impl Masker {
    /// Search the built-in shapes and these patterns. The error says which pattern is not a valid regular expression, and why.
    pub fn new(patterns: &[String]) -> Result<Masker, String> {
        let compiled = |pattern: &String| {
            Regex::new(pattern).map_err(|why| format!("`{pattern}` is not a valid regular expression:\n{why}"))
        };
        Ok(Masker { patterns: patterns.iter().map(compiled).collect::<Result<_, _>>()? })
    }

    /// The text with its secrets masked; `None` if it has none.
    #[must_use]
    pub fn text(&self, text: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(text.as_bytes())?).into_owned())
    }

    /// Like [`Masker::text`], for bytes that may not be UTF-8.
    #[must_use]
    pub fn bytes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        masked_bytes(bytes, &self.spans(bytes))
    }

    /// JSON with the secrets in its strings masked; `None` if it has none. Invalid JSON is masked as text.
    #[must_use]
    pub fn json(&self, json: &str) -> Option<String> {
        self.json_piece(json, &[])
    }

    /// Like [`Masker::json`], and also masks the spans `in_delta` of the piece in it.
    #[must_use]
    pub fn json_piece(&self, json: &str, in_delta: &[Range<usize>]) -> Option<String> {
        if in_delta.is_empty() && serde_json::from_str::<serde::de::IgnoredAny>(json).is_err() {
            return self.text(json);
        }
        self.strings(json, Of::Value, in_delta)
    }

    /// A journal record, without its `\n`, with the secrets in its line masked, and the spans `in_delta` of the piece in it;
    /// `None` if there are none.
    #[must_use]
    pub fn record(&self, record: &str, in_delta: &[Range<usize>]) -> Option<String> {
        self.strings(record, Of::Record, in_delta)
    }

    /// Search the secrets in joined pieces, and returns their spans in each piece.
    #[must_use]
    pub fn in_pieces(&self, pieces: &Pieces) -> InPieces {
        let found = pieces.0.values().flat_map(|whole| whole.divided(&self.spans(&whole.text)).collect::<Vec<_>>());
        found.filter(|(_, spans)| !spans.is_empty()).collect()
    }

    /// Spans of unmasked secrets, sorted and not adjacent. Escaped JSON in the text is searched too. Beside a mask a word may look
    /// like a secret that did not before, so the masked text is searched as well, until nothing is found in it.
    fn spans(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut spans = self.spans_within(text, NESTED_MAX);
        for _ in 1..PASSES_MAX {
            let Some(masked) = masked_bytes(text, &spans) else { break };
            let more = self.spans_within(&masked, NESTED_MAX);
            if more.is_empty() {
                break;
            }
            spans = merged(spans.into_iter().chain(more).collect());
        }
        spans
    }

    fn spans_within(&self, text: &[u8], nested_max: u32) -> Vec<Range<usize>> {
        let mut spans = secret_spans(text);
        for pattern in &self.patterns {
            spans.extend(pattern.find_iter(text).map(|found| found.range()));
        }
        if nested_max > 0
            && memchr::memchr(b'\\', text).is_some()
            && let Ok(escaped) = std::str::from_utf8(text)
        {
            let inner = JsonString::of_inner(escaped);
            let found = self.spans_within(inner.text().as_bytes(), nested_max - 1);
            spans.extend(inner.written_spans(&found));
        }
        spans.retain(|span| !span.is_empty() && !is_masked(&text[span.clone()]));
        merged(spans)
    }

    fn strings(&self, json: &str, of: Of, in_delta: &[Range<usize>]) -> Option<String> {
        let has = |name: &str| memchr::memmem::find(json.as_bytes(), name.as_bytes()).is_some();
        let may_have_piece =
            !in_delta.is_empty() || has(Encoding::Base64.member().trim_matches('"')) || has("deltaBase64");
        let piece_at = if may_have_piece { PieceAt::find(json) } else { None };
        let (mut members, mut in_lines) = (Members::of(json), InPieces::new());
        // The member of a record.
        let mut top = "";
        rewritten(json, |Token { kind, range }, written| {
            let Member { name, depth, is_secret } = members.next(&Token { kind, range: range.clone() });
            let is_of_record = of == Of::Record && depth == 1;
            if is_of_record && kind == TokenKind::Name {
                top = name;
            }
            // In a record, only these members can hold a secret below the top level.
            let is_kept = of == Of::Record && !matches!(top, "line" | "data" | "argv" | "codex");
            let piece = piece_at.as_ref().filter(|piece| piece.string == range);
            let string = JsonString::of(written);
            match kind {
                TokenKind::Name if name == "lines" => in_lines.extend(self.in_lines(json, range.end)),
                TokenKind::Name | TokenKind::Text | TokenKind::Number => {}
            }
            match kind {
                TokenKind::Number => return (is_secret && !is_of_record && !is_kept).then(|| other_digits(written)),
                TokenKind::Name if is_of_record || is_kept || is_word(name) => return None,
                TokenKind::Text if is_of_record => match top {
                    "text" | "line" | "cwd" => {}
                    "base64" => return PieceAt::BASE64.masked_base64(self, written, &[]),
                    _ => return None,
                },
                TokenKind::Text if is_kept || KEPT.contains(&name) => return None,
                TokenKind::Text if name.ends_with("ase64") => return PieceAt::BASE64.masked_base64(self, written, &[]),
                TokenKind::Name | TokenKind::Text => {}
            }
            let text = string.text();
            let is_secret = is_secret && !is_of_record;
            if let Some(piece) = piece.filter(|piece| piece.is_base64 && !is_secret) {
                // A key may happen to be valid Base64; patterns of the user are not looked for in it.
                return piece
                    .masked_base64(self, written, in_delta)
                    .or_else(|| string.masked(&secret_spans(text.as_bytes())));
            }
            if is_secret && !text.is_empty() && !is_masked(text.as_bytes()) {
                return string.masked(std::slice::from_ref(&(0..text.len())));
            }
            let mut spans = self.spans(text.as_bytes());
            spans.extend(piece.map_or(Vec::new(), |piece| piece.spans_in(&text, in_delta)));
            spans.extend(in_lines.remove(&(range.start as u64)).unwrap_or_default());
            string.masked(&merged(spans))
        })
    }

    /// The spans to mask in the lines of output at `from`, by the position of each line's string. A secret may begin in one
    /// line and end in another.
    fn in_lines(&self, json: &str, from: usize) -> Vec<(u64, Vec<Range<usize>>)> {
        let Some(list) = json[from..].trim_start_matches([':', ' ']).strip_prefix('[') else { return Vec::new() };
        let (mut whole, mut seen_to) = (Whole::default(), 0);
        for token in tokens(list) {
            let is_next = list[seen_to..token.range.start].bytes().all(|byte| matches!(byte, b',' | b' '));
            if !is_next || token.kind != TokenKind::Text {
                break;
            }
            let at = json.len() - list.len() + token.range.start;
            whole.add(at as u64, JsonString::of(&list[token.range.clone()]).text().as_bytes());
            whole.text.push(b'\n');
            seen_to = token.range.end;
        }
        whole.divided(&self.spans(&whole.text)).collect()
    }
}

/// Whether a name is one of the protocol's.
fn is_word(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
}

/// JSON in which `instead` replaces strings and numbers; everything else stands as it was written. `None` if nothing changes.
fn rewritten(json: &str, mut instead: impl FnMut(Token, &str) -> Option<String>) -> Option<String> {
    let (mut out, mut kept_to) = (None::<String>, 0);
    for token in tokens(json) {
        let range = token.range.clone();
        let Some(new) = instead(token, &json[range.clone()]).filter(|new| *new != json[range.clone()]) else {
            continue;
        };
        let out = out.get_or_insert_with(|| String::with_capacity(json.len()));
        out.push_str(&json[kept_to..range.start]);
        out.push_str(&new);
        kept_to = range.end;
    }
    out.map(|out| out + &json[kept_to..])
}

/// Replaces the first digit with 1 and the others with 0, because JSON forbids leading zeros.
pub(super) fn other_digits(written: &str) -> String {
    let mut digits = std::iter::once('1').chain(std::iter::repeat('0'));
    written.chars().map(|char| if char.is_ascii_digit() { digits.next().unwrap_or('0') } else { char }).collect()
}

/// The bytes with masks as long as the secrets; `None` if there are none.
fn masked_bytes(bytes: &[u8], spans: &[Range<usize>]) -> Option<Vec<u8>> {
    let mut masked = bytes.to_vec();
    for span in spans {
        let mut signs = mask_signs(span);
        let bytes = masked[span.clone()].iter_mut().filter(|byte| !stays(**byte));
        bytes.zip(&mut signs).for_each(|(byte, sign)| *byte = sign);
    }
    (!spans.is_empty()).then_some(masked)
}

/// The text with a word in place of everything that looks like a secret; `None` if nothing does.
#[must_use]
pub fn redacted(text: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&redacted_bytes(text.as_bytes())?).into_owned())
}

fn redacted_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    let spans = secret_spans(bytes);
    if spans.is_empty() {
        return None;
    }
    let mut kept_to = 0;
    let mut masked = Vec::with_capacity(bytes.len());
    for span in &spans {
        masked.extend_from_slice(&bytes[kept_to..span.start]);
        masked.extend_from_slice(MASK.as_bytes());
        kept_to = span.end;
    }
    masked.extend_from_slice(&bytes[kept_to..]);
    Some(masked)
}

/// JSON in which every text that looks like a secret is masked, and every text under a name that says so; everything else
/// stands as it was written. `None` if nothing was masked. `json` may end anywhere, as what was cut off does; a string that
/// was cut off and has a secret ends in quotation marks afterwards.
#[must_use]
pub fn redacted_json(json: &str) -> Option<String> {
    if !may_hold(json.as_bytes()) {
        return None;
    }
    let mut members = Members::of(json);
    rewritten(json, |token, written| {
        let Member { name, is_secret, .. } = members.next(&token);
        let text = JsonString::of(written).text();
        let masked = match token.kind {
            TokenKind::Number | TokenKind::Text if is_secret && !text.is_empty() => Some(MASK.to_owned()),
            TokenKind::Number => None,
            // A key may look like Base64.
            TokenKind::Text if name.ends_with("ase64") => redacted_base64(&text).or_else(|| redacted(&text)),
            TokenKind::Name | TokenKind::Text => redacted(&text),
        };
        masked.map(|masked| serde_json::Value::from(masked).to_string())
    })
}

/// Base64 with the secrets in its bytes masked; `None` if it has none. Of Base64 that was cut off, the last incomplete group is
/// left out.
fn redacted_base64(text: &str) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(&text.as_bytes()[..text.len() / 4 * 4]).ok()?;
    Some(BASE64_STANDARD.encode(redacted_bytes(&bytes)?))
}

/// Replaces a secret. The mask is the same for every secret, so equal texts stay equal.
pub(super) const MASK: &str = "[redacted]";

/// Whether a text has a mask in place of a secret.
#[must_use]
pub fn has_mask(text: &str) -> bool {
    text.contains(MASK)
}

/// What stands for a value of this many bytes, as long as that.
#[must_use]
pub fn mask_of(bytes: usize) -> String {
    mask_signs(&(0..bytes)).take(bytes).map(char::from).collect()
}

/// The characters of a mask as long as `span`: the word if it fits, then stars.
pub(super) fn mask_signs(span: &Range<usize>) -> impl Iterator<Item = u8> + use<> {
    let word = if span.len() >= MASK.len() { MASK } else { "" };
    word.bytes().chain(std::iter::repeat(b'*'))
}

/// Replaces a one-byte character that was escaped with two bytes, so that JSON inside the text stays JSON.
const ESCAPED_BYTE: (char, &str) = ('/', "\\/");

/// Replace escaped characters of two, three and four UTF-8 bytes, with their escapes.
const ESCAPED: [(char, &str); 3] = [('\u{b7}', "\\u00b7"), ('\u{2022}', "\\u2022"), ('\u{1f512}', "\\ud83d\\udd12")];

/// A JSON string in its escaped form.
pub(super) struct JsonString<'a> {
    written: &'a str,
}

impl<'a> JsonString<'a> {
    pub(super) fn of(written: &'a str) -> JsonString<'a> {
        let inner = written.strip_prefix('"').unwrap_or(written);
        JsonString::of_inner(inner.strip_suffix('"').unwrap_or(inner))
    }

    /// Wraps text without its quotation marks.
    pub(super) fn of_inner(written: &'a str) -> JsonString<'a> {
        JsonString { written }
    }

    /// Yields the escaped form of each character, the character, and which of `spans` of the decoded text it is in.
    fn units<'b>(&self, spans: &'b [Range<usize>]) -> impl Iterator<Item = (&'a str, char, Option<&'b Range<usize>>)> {
        let (mut rest, mut at, mut spans) = (self.written, 0, spans);
        std::iter::from_fn(move || {
            let first = rest.chars().next()?;
            let (length, char) = if first == '\\' { escape(rest) } else { (first.len_utf8(), first) };
            let (written, behind) = rest.split_at(length);
            while let [span, next @ ..] = spans
                && span.end <= at
            {
                spans = next;
            }
            rest = behind;
            at += char.len_utf8();
            Some((written, char, spans.first().filter(|span| span.start < at)))
        })
    }

    pub(super) fn text(&self) -> Cow<'a, str> {
        let backslash = |rest: &str| memchr::memchr(b'\\', rest.as_bytes());
        let (mut text, mut rest) = (String::new(), self.written);
        while let Some(at) = backslash(rest) {
            let (plain, escaped) = rest.split_at(at);
            let (length, char) = escape(escaped);
            text.reserve(self.written.len());
            text.push_str(plain);
            text.push(char);
            rest = &escaped[length..];
        }
        if rest.len() == self.written.len() { Cow::Borrowed(rest) } else { Cow::Owned(text + rest) }
    }

    /// Maps `spans` of the decoded text to spans of the escaped form.
    pub(super) fn written_spans(&self, spans: &[Range<usize>]) -> Vec<Range<usize>> {
        let (mut found, mut at, mut last) = (Vec::<Range<usize>>::new(), 0, None);
        if spans.is_empty() {
            return found;
        }
        for (written, _, within) in self.units(spans) {
            let end = at + written.len();
            match found.last_mut().filter(|_| within.is_some() && within == last) {
                Some(found) => found.end = end,
                None => found.extend(within.map(|_| at..end)),
            }
            (at, last) = (end, within);
        }
        found
    }

    /// Masks `spans` of the decoded text, which stays as long as it is in both forms; returns `None` if there are none.
    pub(super) fn masked(&self, spans: &[Range<usize>]) -> Option<String> {
        if spans.is_empty() {
            return None;
        }
        let mut out = String::with_capacity(self.written.len() + 2);
        out.push('"');
        let (mut signs, mut last) = (mask_signs(&(0..0)), None);
        for (written, char, within) in self.units(spans) {
            if let Some(span) = within.filter(|_| within != last) {
                signs = mask_signs(span);
            }
            last = within;
            match (written.len(), char.len_utf8()) {
                _ if within.is_none() || u8::try_from(char).is_ok_and(stays) => out.push_str(written),
                (2, _) if written.starts_with('\\') => out.push_str(ESCAPED_BYTE.1),
                (6, 1) => out.push_str(&format!("\\u{:04x}", signs.next().unwrap_or_default())),
                (6 | 12, bytes) if written.starts_with('\\') => out.push_str(ESCAPED[bytes - 2].1),
                (_, bytes) => out.extend(signs.by_ref().take(bytes).map(char::from)),
            }
        }
        out.push('"');
        Some(out)
    }
}

/// Decodes JSON escapes anywhere in a text.
pub fn unescaped(text: &str) -> Cow<'_, str> {
    JsonString::of_inner(text).text()
}

/// Length of the escape at the start of `rest`, and the character it encodes.
fn escape(rest: &str) -> (usize, char) {
    let code = |at: usize| rest.get(at..at + 4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
    match rest.as_bytes().get(1) {
        Some(b'n') => (2, '\n'),
        Some(b't') => (2, '\t'),
        Some(b'r') => (2, '\r'),
        Some(b'b') => (2, '\u{8}'),
        Some(b'f') => (2, '\u{c}'),
        Some(b'u') => match code(2) {
            Some(high @ 0xd800..0xdc00) => {
                let low = rest.get(6..8).filter(|mark| *mark == "\\u").and_then(|_| code(8));
                match low {
                    Some(low @ 0xdc00..0xe000) => {
                        let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                        (12, char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
                    }
                    Some(_) | None => (6, char::REPLACEMENT_CHARACTER),
                }
            }
            Some(code) => (6, char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)),
            None => (2, 'u'),
        },
        Some(byte @ (b'"' | b'\\' | b'/')) => (2, char::from(*byte)),
        Some(_) | None => (1, '\\'),
    }
}

/// Whether a text is a mask or a part of one.
pub(super) fn is_masked(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let is_sign = |char: &char| {
        let is_escaped = ESCAPED.iter().chain([&ESCAPED_BYTE]).any(|(sign, _)| sign == char);
        !is_escaped && !u8::try_from(*char).is_ok_and(stays)
    };
    let signs: String = text.chars().filter(is_sign).collect();
    let word = signs.trim_end_matches('*');
    // A short secret may be part of the mask by coincidence: `red`.
    let is_part = || word.len() >= 4 || word.starts_with('[');
    MASK.ends_with(word) || (signs.len() == word.len() && is_part() && MASK.contains(word))
}

/// Layout is not secret, and envelope markers must stay findable.
fn stays(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | b'\t' | b' ' | 0x1e | 0x1f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn masker(patterns: &[&str]) -> Masker {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        Masker::new(&patterns).expect("BUG: a test's patterns are regular expressions")
    }

    /// Masks a record; its length stays the same, and masking it again changes nothing.
    fn check(patterns: &[&str], record: &str, expect: &str) {
        let masker = masker(patterns);
        let masked = masker.record(record, &[]).unwrap_or_else(|| record.to_owned());
        assert_eq!(masked, expect);
        assert_eq!(masked.len(), record.len());
        assert_eq!(masker.record(&masked, &[]), None);
        serde_json::from_str::<serde_json::Value>(&masked).expect("JSON");
    }

    #[test]
    fn every_byte_keeps_its_place() {
        check(
            &[],
            r#"{"at":1,"from":"client","line":{"a":"use sk-abcdefghijklmnopqrst now","password":"hunter22","n":7}}"#,
            r#"{"at":1,"from":"client","line":{"a":"use [redacted]************* now","password":"********","n":7}}"#,
        );
        check(
            &["b..r"],
            r#"{"at":1,"from":"server","text":"a bäör \u00e4 b\"\\r \ud83d\ude00"}"#,
            r#"{"at":1,"from":"server","text":"a ****** \u00e4 *\/\/* \ud83d\ude00"}"#,
        );
        check(
            &["é.😀"],
            r#"{"at":1,"from":"server","line":"\u00e9 \ud83d\ude00 \u0061"}"#,
            r#"{"at":1,"from":"server","line":"\u00b7 \ud83d\udd12 \u0061"}"#,
        );
    }

    #[test]
    fn secrets_that_go_on_in_the_next_line_are_masked() {
        let masker = masker(&["ab\ncd"]);
        let check = |lines: &str, expect: &str| {
            let json = |lines: &str| format!(r#"{{"preview":{{"lines":{lines},"truncated":false}}}}"#);
            assert_eq!(masker.json(&json(lines)), Some(json(expect)));
            assert_eq!(masker.json(&json(expect)), None);
        };
        check(r#"["x ab","cd y","ab"]"#, r#"["x **","** y","ab"]"#);
        check(
            r#"["-----BEGIN PRIVATE KEY-----","MIIExx","-----END PRIVATE KEY-----","z"]"#,
            r#"["[redacted] ******* ********","******","[redacte d]***** ********","z"]"#,
        );
    }

    #[test]
    fn numbers_under_secret_names_get_other_digits() {
        check(
            &[],
            r#"{"at":12345678901234,"from":"client","line":{"id":12345678901234,"password":924681357924681,"n":12345678901234}}"#,
            r#"{"at":12345678901234,"from":"client","line":{"id":12345678901234,"password":100000000000000,"n":12345678901234}}"#,
        );
    }

    #[test]
    fn json_in_a_text_is_looked_into() {
        check(
            &["a.b"],
            r#"{"at":1,"from":"server","text":"x {\"y\":\"a\\\"b, a\\\\\\\"b\"} a-b"}"#,
            r#"{"at":1,"from":"server","text":"x {\"y\":\"*\/\/*, *\/\/\/\/*\"} ***"}"#,
        );
    }

    #[test]
    fn what_the_protocol_is_made_of_stays() {
        let record =
            r#"{"at":1,"from":"server","line":{"method":"abc","id":"abc","params":{"threadId":"abc","abc":1}}}"#;
        check(&["abc", "from", "server", "line", "1"], record, record);
        let record = r#"{"at":1,"from":"shim","event":"abc","data":{"x":"-abc-"}}"#;
        check(&["abc"], record, &record.replace("-abc-", "-***-"));
        let record = r#"{"at":1,"from":"server","omitted":"secret","bytes":9,"method":"secret","id":"secret"}"#;
        check(&["secret"], record, record);
        let header =
            r#"{"journal":1,"session":"abc","argv":["abc"],"cwd":"/abc","codex":{"path":"/abc"},"shim":"abc"}"#;
        let masked =
            r#"{"journal":1,"session":"abc","argv":["***"],"cwd":"/***","codex":{"path":"/***"},"shim":"abc"}"#;
        check(&["abc"], header, masked);
        check(&["a@b"], r#"{"at":1,"from":"server","line":{"a@b":1}}"#, r#"{"at":1,"from":"server","line":{"***":1}}"#);
    }

    #[test]
    fn what_is_no_text_is_masked_too() {
        let line = |bytes: &[u8]| format!(r#"{{"at":1,"from":"server","base64":"{}"}}"#, BASE64_STANDARD.encode(bytes));
        check(&["k..9"], &line(b"\xff kay9\xfe"), &line(b"\xff ****\xfe"));
        let output = |bytes: &[u8]| {
            let encoded = BASE64_STANDARD.encode(bytes);
            format!(r#"{{"at":1,"from":"server","line":{{"params":{{"deltaBase64":"{encoded}"}}}}}}"#)
        };
        check(&["k..9"], &output(b"a kay9"), &output(b"a ****"));
        assert_eq!(
            masker(&[]).bytes(b"\xff sk-abcdefghijklmnopq\n").as_deref(),
            Some(&b"\xff [redacted]**********\n"[..])
        );
    }

    #[test]
    fn pieces_are_masked_as_one_text() {
        let masker = masker(&[]);
        let (mut pieces, texts) = (Pieces::default(), ["a sk-abc", "def\\nx", "ghijkl sk-", "", "abcdefghijklmnop."]);
        let records: Vec<String> = texts.iter().map(|text| format!(r#"{{"delta":"{text}","x":1}}"#)).collect();
        for (number, record) in (0..).zip(&records) {
            pieces.add("i".to_owned(), number, record);
            pieces.add("j".to_owned(), 100 + number, "{}");
        }
        let found = masker.in_pieces(&pieces);
        let none = Vec::new();
        let masked: Vec<String> = (0..)
            .zip(&records)
            .map(|(number, record)| {
                let spans = found.get(&number).unwrap_or(&none);
                masker.json_piece(record, spans).unwrap_or_else(|| record.clone())
            })
            .collect();
        let expect = ["a sk-abc", "def\\nx", "ghijkl ***", "", "[redacted]******."];
        let expect: Vec<String> = expect.iter().map(|text| format!(r#"{{"delta":"{text}","x":1}}"#)).collect();
        assert_eq!(masked, expect);
    }

    #[test]
    fn pieces_are_found_however_much_of_them_is_kept() {
        let check = |json: &str, expect: Option<&str>| {
            let text = PieceAt::find(json).map(|piece| String::from_utf8_lossy(&piece.text(json)).into_owned());
            assert_eq!(text.as_deref(), expect, "{json}");
        };
        check(r#"{"a":"x","delta":"y\n"}"#, Some("y\n"));
        check(r#"{"id":"0","msg":{"delta":"y"}}"#, Some("y"));
        check(r#""y\"""#, Some("y\""));
        check(r#"{"truncated":true,"preview":"y\"","original_chars":9}"#, Some("y\""));
        check(r#"{"truncated":true,"preview":"{\"a\":\"x\",\"delta\":\"y\\nz","original_chars":99}"#, Some("y\nz"));
        check(r#"{"truncated":true,"preview":"{\"a\":\"x\",\"del","original_chars":99}"#, None);
        let chunk = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
        check(&format!(r#"{{"msg":{{"chunk":"{}"}}}}"#, chunk(b"y\n")), Some("y\n"));
        let start = r#"{"truncated":true,"preview":"{\"msg\":{\"chunk\":\""#;
        check(&format!(r#"{start}{}eW","original_chars":99}}"#, chunk(b"one")), Some("one"));
        check(r#"{"chunk":"no base64"}"#, None);
        check(r#"{"preview":"y"}"#, None);
        check(r#"["y"]"#, None);
        check("7", None);
    }

    /// The key ends in a truncated piece, where it is escaped.
    #[test]
    fn the_start_of_a_long_piece_is_masked_with_the_end_of_the_one_before_it() {
        let masker = masker(&["ab.cd"]);
        let check = |pieces: [&str; 2], expect: [&str; 2]| {
            let mut whole = Pieces::default();
            (0..).zip(pieces).for_each(|(number, json)| whole.add("i".to_owned(), number, json));
            let found = masker.in_pieces(&whole);
            for (number, (json, expect)) in (0..).zip(pieces.into_iter().zip(expect)) {
                let masked = masker.json_piece(json, found.get(&number).map_or(&[][..], Vec::as_slice));
                assert_eq!(masked.as_deref(), Some(expect));
                assert_eq!((expect.len(), masker.json(expect)), (json.len(), None));
            }
        };
        check(
            [r#"{"delta":"x ab"}"#, r#"{"truncated":true,"preview":"{\"delta\":\"\\\"cd y","original_chars":99}"#],
            [r#"{"delta":"x **"}"#, r#"{"truncated":true,"preview":"{\"delta\":\"\/\/** y","original_chars":99}"#],
        );
        check([r#""x ab""#, r#""-cd y""#], [r#""x **""#, r#""*** y""#]);
        check(
            [r#""x ab""#, r#"{"truncated":true,"preview":"-cd y","original_chars":99}"#],
            [r#""x **""#, r#"{"truncated":true,"preview":"*** y","original_chars":99}"#],
        );
    }

    /// Output as an event reports it; output that is too long for its row is truncated.
    #[test]
    fn what_is_told_in_base64_is_masked_there() {
        let masker = masker(&["kay[0-9]{6}"]);
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let record = |text: &str| {
            let chunk = encode(text);
            format!(r#"{{"at":1,"from":"server","line":{{"params":{{"msg":{{"call_id":"c","chunk":"{chunk}"}}}}}}}}"#)
        };
        let own = masker.record(&record("a kay123456 ä"), &[]);
        assert_eq!(own.as_deref(), Some(&*record("a ********* ä")));
        assert_eq!(masker.record(own.as_deref().expect("it is masked"), &[]), None);
        let mut pieces = Pieces::default();
        let told = [record("a kay12"), record("3456 b")];
        (0..).zip(&told).for_each(|(number, told)| pieces.add("c".to_owned(), number, told));
        let found = masker.in_pieces(&pieces);
        let masked: Vec<_> = (0..).zip(&told).map(|(number, told)| masker.record(told, &found[&number])).collect();
        assert_eq!(masked, [Some(record("a *****")), Some(record("**** b"))]);
        let cut = |text: &str| {
            let start = serde_json::json!(format!(r#"{{"msg":{{"chunk":"{}a"#, encode(text)));
            format!(r#"{{"truncated":true,"preview":{start},"original_chars":9999}}"#)
        };
        assert_eq!(masker.json(&cut("x kay123456 yz")), Some(cut("x ********* yz")));
        assert_eq!(masker.json(&cut("x kay12345 y")), None);
        let cut = |text: &str| {
            let start = serde_json::json!(format!(r#"{{"processId":"p","deltaBase64":"{}a"#, encode(text)));
            format!(r#"{{"truncated":true,"preview":{start},"original_chars":9999}}"#)
        };
        assert_eq!(masker.json(&cut("x kay123456 yz")), Some(cut("x ********* yz")));
        assert_eq!(
            masker.json(r#"{"chunk":"AKIAABCDEFGHIJKLMNOP"}"#).as_deref(),
            Some(r#"{"chunk":"[redacted]**********"}"#)
        );
        // Output that is not UTF-8.
        let latin = |key: &str| [&b"caf\xe9 \xe8t\xe9 \xff\xfe "[..], &[b'.'; 300], key.as_bytes(), b" y"].concat();
        let chunk = |key: &str| format!(r#"{{"msg":{{"chunk":"{}"}}}}"#, BASE64_STANDARD.encode(latin(key)));
        let mut pieces = Pieces::default();
        pieces.add("c".to_owned(), 0, &chunk(" kay123456"));
        let found = masker.in_pieces(&pieces);
        assert_eq!(masker.json_piece(&chunk(" kay123456"), &found[&0]), Some(chunk(" *********")));
    }

    #[test]
    fn a_pattern_that_is_none_is_told() {
        let told = Masker::new(&["(".to_owned()]).expect_err("it is none");
        assert!(told.starts_with("`(` is not a valid regular expression:\nregex parse error:"), "{told}");
    }

    #[test]
    fn escapes_are_read_wherever_they_stand() {
        let check = |text: &str, expect: &str| assert_eq!(unescaped(text), expect);
        check("plain", "plain");
        check(r#"a\/b \u0061\n\"\ud800\"#, "a/b a\n\"\u{fffd}\\");
        check(r"\u00", "u00");
        check(r"\é\", "\\é\\");
    }

    proptest! {
        #[test]
        fn any_json_stays_as_long_and_json(text in "\\PC{0,40}", secret in "[a-z\"\\\\\n\u{e9}\u{1f600}]{1,12}", ascii in any::<bool>()) {
            let value = serde_json::json!({ "a": format!("{text}{secret}{text}"), "token": secret });
            let mut json = value.to_string();
            if ascii {
                json = json.chars().map(|char| match char.is_ascii() {
                    true => char.to_string(),
                    false => char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
                }).collect();
            }
            let masker = masker(&[&regex::escape(&secret)]);
            let masked = masker.json(&json).unwrap_or_else(|| json.clone());
            prop_assert_eq!(masked.len(), json.len());
            let after: serde_json::Value = serde_json::from_str(&masked).expect("JSON");
            prop_assert_eq!(after["a"].as_str().map(str::len), value["a"].as_str().map(str::len));
            if secret.bytes().any(|byte| byte.is_ascii_lowercase() && !MASK.as_bytes().contains(&byte)) {
                prop_assert!(!after["a"].as_str().unwrap_or_default().contains(&secret));
                prop_assert!(after["token"] != value["token"]);
            }
            prop_assert_eq!(masker.json(&masked), None);
        }
    }
}

/// Texts that hold a secret, and texts that only look as if they did. The secret stands at `@`.
#[cfg(test)]
mod cases {
    use super::{Masker, redacted, redacted_json};

    /// Values that are masked: with a sign in the middle, a word of one alphabet, one in letters and digits.
    const VALUES: [&str; 3] = ["Hunter2!Zq", "correcthorse", "a7Bq2Rt9XzK4"];

    /// A way to mask a text.
    type Masking<'a> = &'a dyn Fn(&str) -> Option<String>;

    /// Fails with every text of which something is left, each with what became of it.
    fn check_all(texts: &[&str], values: &[&str], ways: [Masking<'_>; 2], is_fit: fn(&str) -> bool) {
        let mut left = Vec::new();
        for text in texts {
            for value in values {
                let text = text.replace('@', value);
                for masked in ways.map(|masked| masked(&text).unwrap_or_default()) {
                    if masked.is_empty()
                        || masked.contains(&value[..value.len() - 3])
                        || masked.contains(&value[3..])
                        || !is_fit(&masked)
                    {
                        left.push(format!("{text} -> {masked}"));
                    }
                }
            }
        }
        assert!(left.is_empty(), "{} {left:#?}", left.len());
    }

    fn check_goes(texts: &[&str], values: &[&str]) {
        let masker = Masker::new(&[]).expect("no pattern");
        check_all(texts, values, [&redacted, &|text| masker.text(text)], |_| true);
    }

    /// The same of JSON, which stays JSON.
    fn check_json_goes(texts: &[&str], values: &[&str]) {
        let masker = Masker::new(&[]).expect("no pattern");
        let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
        check_all(texts, values, [&redacted_json, &|text| masker.json(text)], is_json);
    }

    fn check_stays(texts: &[&str]) {
        let changed: Vec<_> = texts.iter().filter_map(|text| Some(format!("{text} -> {}", redacted(text)?))).collect();
        assert!(changed.is_empty(), "{} {changed:#?}", changed.len());
    }

    fn check_json_stays(texts: &[&str]) {
        let changed: Vec<_> =
            texts.iter().filter_map(|text| Some(format!("{text} -> {}", redacted_json(text)?))).collect();
        assert!(changed.is_empty(), "{} {changed:#?}", changed.len());
    }

    #[test]
    fn values_in_nested_quotes_go() {
        check_goes(
            &[
                "sh -c \"DB_PASS='@' true\"",
                "sh -c \"export DB_PASS='@'; true\"",
                "sh -c 'DB_PASS=\"@\" true'",
                "sh -c 'DB_PASS='\\''@'\\'' true'",
                "sh -c 'DB_PASS='\"'\"'@'\"'\"' true'",
                "bash -lc \"TOKEN=\\\"@\\\" true\"",
                "python3 -c \"password='@'\"",
                "python3 -c \"password='@'; print(1)\"",
                "python3 -c 'password = \"@\"'",
                "python3 -c \"connect(host='h', password='@')\"",
                "node -e \"const apiKey='@'\"",
                "fish -c 'set -gx API_KEY @'",
                "fish -c \"set -gx API_KEY @; ls\"",
                "fish -c \"set -x API_KEY '@'\"",
                "set -gx API_KEY @",
                "setenv API_KEY @",
                "csh -c 'setenv API_KEY @'",
                "csh -c 'setenv API_KEY @; make'",
                "setx API_KEY @",
                "setx API_KEY \"@\" /M",
                "cmd /c \"set API_KEY=@\"",
                "PASSWORD=ab(@",
                "PASSWORD=@)x",
                "psql -c \"CREATE USER bob PASSWORD '@'\"",
                "psql -c \"ALTER USER bob WITH PASSWORD '@';\"",
                "mysql -e \"CREATE USER 'bob'@'h' IDENTIFIED BY '@'\"".replace("'bob'@'h'", "bob").as_str(),
                "psql -c 'ALTER USER bob PASSWORD '\\''@'\\'''",
                "{\"cmd\":\"sh -c \\\"DB_PASS='@' true\\\"\"}",
                "[\"bash\",\"-lc\",\"DB_PASS='@' true\"]",
                "ssh host \"API_KEY='@' ./deploy\"",
                "docker run -e \"API_KEY=@\" x",
            ],
            &["Hunter2!Zq", "correcthorse", "a7Bq2Rt9XzK4"],
        );
    }

    #[test]
    fn values_in_argument_arrays_go() {
        const TEXTS: [&str; 14] = [
            r#"["--password","@"]"#,
            r#"["--password", "@"]"#,
            r#"["mysql","-p@"]"#,
            r#"["mysql","-uroot","-p@","db"]"#,
            r#"["curl","-u","u:@"]"#,
            r#"["curl","-u","u:@","https://h"]"#,
            r#"["curl","--user","u:@","https://h"]"#,
            r#"["curl","-H","X-Api-Key: @","https://h"]"#,
            r#"["sshpass","-p","@","ssh","h"]"#,
            r#"["redis-cli","-a","@","ping"]"#,
            r#"["docker","login","-u","me","-p","@"]"#,
            r#"["bash","-lc","mysql -p@ db"]"#,
            r#"[["X-Api-Key","@"]]"#,
            r#"{"value":"@","name":"API_KEY"}"#,
        ];
        check_json_goes(&TEXTS, &VALUES);
        check_goes(&TEXTS, &VALUES);
        let escaped: Vec<String> =
            TEXTS.iter().map(|text| serde_json::json!({ "x": format!("run {text}") }).to_string()).collect();
        let escaped: Vec<&str> = escaped.iter().map(String::as_str).collect();
        check_json_goes(&escaped, &VALUES);
        check_json_goes(
            &[
                r#"{"command":["curl","-u","u:@","https://h"],"cwd":"/"}"#,
                r#"{"params":{"command":["mysql","-p@"]}}"#,
                r#"{"mcp":{"args":["--api-key","@"]}}"#,
                r#"{"a":[{"value":"@","name":"API_KEY"},{"name":"X","value":"open"}]}"#,
                r#"{"headers":[["X-Api-Key","@"],["Accept","x"]]}"#,
            ],
            &VALUES,
        );
    }

    #[test]
    fn other_arrays_stay() {
        check_json_stays(&[
            r#"["--password-stdin","login"]"#,
            r#"["psql","-p","5432"]"#,
            r#"["mkdir","-p","a/b/c"]"#,
            r#"{"value":"open-thing","name":"COLOUR"}"#,
            r#"["git","commit","-m","token parser"]"#,
            r#"{"required":["password","username"]}"#,
            r#"[["name","token"],["a","b"]]"#,
            r#"["curl","-o","out.txt","https://h:80/x"]"#,
        ]);
    }

    #[test]
    fn values_in_other_encodings_go() {
        check_goes(
            &[
                "{\n  \"password\":\n    \"@\"\n}",
                "%22password%22%3A%22@%22",
                "%7B%22password%22%3A%20%22@%22%7D",
                "&quot;password&quot;:&quot;@&quot;",
                "{&quot;password&quot;: &quot;@&quot;}",
                "&#34;password&#34;:&#34;@&#34;",
                r"\u0022password\u0022:\u0022@\u0022",
                r"{\u0022api_key\u0022: \u0022@\u0022}",
                "| DB_PASSWORD | @ |",
                "| Name | Value |\n|---|---|\n| DB_PASSWORD | @ |",
                " DB_PASSWORD | @\n",
                "│ DB_PASSWORD │ @ │",
                "String password = new String(\"@\");",
                "api_key: SecretStr(\"@\"),",
                "Content-Disposition: form-data; name=\"password\"\r\n\r\n@\r\n--x",
                "Content-Disposition: form-data; name=\"api_key\"\n\n@\n--x",
            ],
            &["Hunter2-Zq", "correcthorse", "a7Bq2Rt9XzK4"],
        );
        check_goes(&["password = f(\"@\")", "token: Token::new(\"@\"),"], &["Hunter2-Zq", "a7Bq2Rt9XzK4"]);
        check_goes(&["{\"password\":@}", "{\"password\": @, \"n\":1}", "password: @"], &["924681357924681"]);
        check_json_goes(
            &["{\"password\":@}", "{\"a\":{\"api_key\":@},\"n\":1}", "{\"password\":-@.5e3}"],
            &["924681357924681"],
        );
    }

    #[test]
    fn other_numbers_stay() {
        check_json_stays(&[r#"{"max_tokens":924681357924681}"#, r#"{"total_tokens":924681357924681,"tokens":5}"#]);
    }

    #[test]
    fn more_names_mean_secrets() {
        check_goes(
            &[
                "psk=@",
                "psk=\"@\"",
                "psw=@",
                "bindpw=@",
                "bindpw @",
                "rootpw @",
                "rootpw: @",
                "rootpw = @",
                "https://a.blob.core.windows.net/c?sv=2020&sig=@&se=2026",
                "https://maps.example.com/api?key=@&x=1",
                "https://h/api?x=1&key=@",
                "mot_de_passe=@",
                "mot de passe : @",
                "motdepasse: @",
                "contraseña: @",
                "contraseña=@",
                "senha=@",
                "Kennwort: @",
                "密码: @",
                "密码：@",
                "令牌：@",
                "令牌: @",
                "APIキー：@",
                "API密钥：@",
                "Your API key is: @",
                "The password is: @",
                "your new token is: @",
                "SetEnv DB_PASSWORD @",
                "    SetEnv API_KEY \"@\"",
                "fastcgi_param DB_PASSWORD @;",
                "fastcgi_param API_KEY \"@\";",
                "proxy_set_header X-Api-Key @;",
            ],
            &["Hunter2-Zq", "a7Bq2Rt9XzK4"],
        );
    }

    #[test]
    fn other_names_stay() {
        check_stays(&[
            "https://h/p?key=name&order=asc",
            "https://h/p?sort_key=name",
            "the api key is missing",
            "the password is needed",
            "the password is required",
            "the token is invalid",
            "pat=1",
            "otp: 12",
            "the signature sig=ok",
        ]);
    }

    #[test]
    fn options_of_more_commands_go() {
        check_goes(
            &[
                "mysql -e \"ALTER USER bob IDENTIFIED WITH mysql_native_password BY '@'\"",
                "aws configure set aws_secret_access_key @",
                "aws configure set aws_secret_access_key @ --profile x",
                "aws configure set profile.x.aws_session_token '@'",
                "npm config set //host/:_authToken @",
                "npm config set //host/:_authToken=@",
                "npm config set '//host/:_authToken' \"@\"",
                "yarn config set npmAuthToken @",
                "pip config set global.password @",
                "kubectl create secret generic s --from-literal=k=@",
                "kubectl create secret generic s --from-literal k=@ --from-literal=b=@",
                "kubectl -n x create secret generic s --from-literal='k=@'",
                "gh secret set N --body @",
                "gh secret set N -b @",
                "gh secret set N --body '@'",
                "openssl enc -aes-256-cbc -k @ -in a",
                "openssl enc -d -aes-256-cbc -in a -k '@'",
                "zip -P @ a.zip b",
                "unzip -P @ a.zip",
                "zip -r -P '@' a.zip b",
                "htpasswd -b f u @",
                "htpasswd -bc f u @",
                "htpasswd -nb u @",
                "ldapsearch -x -D cn=admin -w @ -b dc=x",
                "ldapmodify -w '@' -f x",
                "http -a u:@ https://h",
                "https --auth u:@ h",
                "xh -a u:@ h",
                "curl -b 'session=@' https://h",
                "curl -b session=@ https://h",
                "curl --cookie \"session=@; a=b\" https://h",
                "curl -b 'a=b; session=@' https://h",
                "git config x.token @",
                "git config --global github.token @",
                "git config --global user.password '@'",
                "wget --password @ h",
                "wget --http-password=@ h",
                "fly secrets set API=@",
                "heroku config:set API_KEY=@",
                "vault kv put secret/a password=@",
                "echo @ | docker login --password-stdin",
                "curl --oauth2-bearer @ h",
                "curl --pass @ h",
                "smbclient -U bob%@ //h/x",
                "mongo -u a -p @ db",
                "mongosh --username a -p @ h",
                "mysql -u root --password=@ db",
                "PGPASSWORD=@ psql",
                "sqlcmd -S h -U sa -P @",
                "plink -pw @ h",
                "pscp -pw @ a b",
                "keytool -storepass @ -keypass @",
                "az login --service-principal -u x -p @ --tenant t",
                "7z a -p@ a.7z b",
            ],
            &["Hunter2-Zq", "correcthorse", "a7Bq2Rt9XzK4"],
        );
    }

    #[test]
    fn other_options_stay() {
        check_stays(&[
            "aws configure set region eu-west-1",
            "npm config set registry https://r.io/",
            "git config user.name Bob",
            "git config --get x.token",
            "git config --list",
            "kubectl create secret generic s --from-file=k=./f",
            "kubectl create configmap s --from-file k",
            "gh secret set N < file",
            "openssl enc -kfile f",
            "zip -r a.zip b",
            "cp -P a b",
            "ldapsearch -x -W -b dc=x",
            "htpasswd f u",
            "curl -b cookies.txt h",
            "http h a==b",
            "sqlcmd -S h -i f",
            "curl -u bob:$PASSWORD https://h",
            "docker login -u me -p \"$PASSWORD\" r",
            "echo $TOKEN | docker login --password-stdin",
            "echo done | tee log",
            "fly secrets list",
            "vault kv get secret/a",
            "the openssl and zip tools, http and https",
            "7z x a.7z -o./out",
            "mongod --dbpath /x -p 27017",
        ]);
    }

    #[test]
    fn keys_of_more_makers_go() {
        let hex = |bytes: usize| "0a1b2c3d4e5f6789".repeat(8)[..bytes].to_owned();
        let word = |bytes: usize| "a7Bq2Rt9XzK4mN8pLs3Dv6Wy".repeat(8)[..bytes].to_owned();
        for (start, tail) in [
            ("sk-or-v1-", hex(64)),
            ("xsk-or-v1-", hex(64)),
            ("pul-", hex(40)),
            ("CCIPAT_", format!("{}_{}", word(22), hex(40))),
            ("CCIPRJ_", format!("{}_{}", word(22), hex(40))),
            ("rnd_", word(28)),
            ("fc-", hex(32)),
            ("sb_secret_", format!("{}_{}", word(22), word(8))),
            ("pcsk_", format!("{}_{}", word(5), word(63))),
            ("secret_", word(43)),
        ] {
            let key = format!("{start}{tail}");
            for (front, back) in [("", ""), ("use ", " now"), ("\"", "\""), ("k=", "\n"), ("\\n", "\\n")] {
                let text = format!("{front}{key}{back}");
                let masked = redacted(&text).unwrap_or_default();
                assert!(!masked.is_empty() && !masked.contains(&tail[4..]), "{text} {masked}");
            }
        }
    }

    #[test]
    fn words_like_keys_stay() {
        check_stays(&[
            "task-runner-abcdefghijklmnopqrstuvwx",
            "sk-button-primary-large",
            "class=\"sk-button-primary-large sk-cube-grid-animation\"",
            "disk-or-v1-something",
            "pul-request and fc-cache -f and rnd_seed_of_the_generator",
            "fc-list-of-all-fonts",
            "secret_manager_of_the_whole_company_of_ours",
            "sb_secret_key and pcsk_ and CCIPAT_",
        ]);
    }

    #[test]
    fn programs_and_prose_stay() {
        check_stays(&[
            "os.environ[\"API_KEY\"]",
            "key = os.environ[\"API_KEY\"]",
            "api_key = os.environ['API_KEY']",
            "token = os.getenv(\"API_KEY\")",
            "api_key = os.environ.get(\"API_KEY\", \"\")",
            "tokens = line.split(\",\")",
            "token = line.split(\",\")",
            "let token = line.split(\",\").next();",
            "proxy_pass = proxy_pass.decode('ascii')",
            "str_key = key.decode(\"utf-8\")",
            "auth = str(auth)",
            "let pass = pass.map(|pass| {",
            "let pass = pass.map(|pass| decode_utf8_lossy(pass));",
            "deps_key: &DEPS_KEY",
            "TOKEN = line.split(\",\")[1]",
            "api_key = os.environ[\"API_KEY\"] + x",
            "token = uuid.uuid5(\"a\", b)",
            "password = input(\"Password: \")",
            "token = getpass(\"Enter token\")",
            "token: Token::Ident(\"foo\")",
            "let token = Token::Ident(\"foo\");",
            "assert_eq!(token, Token::Ident(\"foo\"));",
            "invalid password: too short",
            "missing secret: DATABASE_URL",
            "token: identifier",
            "basic auth: enabled",
            "credentials: include",
            "credentials: 'include'",
            "fetch(url, { credentials: \"same-origin\" })",
            "passwd:x:1000:1000",
            "root:x:0:0:root:/root:/bin/bash",
            "STATUS_KEY=done",
            "private_key: /etc/ssl/key.pem",
            "private_key = \"/etc/ssl/key.pem\"",
            "ssl_key=./certs/key.pem",
            "ssl_key=certs/server.key",
            "TLS_KEY=~/x/tls.key",
            "error: invalid token: expected `;` but found `}`",
        ]);
        check_goes(
            &["password: @", "PASSWORD: @", "Password: @", "password=@", "token = @", "private_key: @", "ssl_key=@"],
            &["Hunter2!Zq", "a7Bq2Rt9XzK4"],
        );
        check_goes(&["password=@", "PASSWORD: @", "password: @"], &["correcthorse", "/Zq7/x9Kt2+q=="]);
    }

    #[test]
    fn environments_and_names_of_members_are_masked() {
        let key = format!("{}_{}", "ghp", "a7Bq2Rt9XzK4mN8pLs3Dv6Wya7Bq2Rt9XzK4");
        check_json_goes(
            &[
                r#"{"arguments":{"env":{"PLAIN":"@"}}}"#,
                r#"{"result":{"config":{"mcp_servers.a.env":{"PLAIN":"@"}}}}"#,
                r#"{"env":{"PLAIN":{"x":["@"]}}}"#,
                r#"{"http_headers":{"X-Any":"@"}}"#,
                r#"{"config":"{\"password\":\"@\"}"}"#,
                r#"{"config":"{\"env\":\"API_KEY=@\"}"}"#,
            ],
            &VALUES,
        );
        check_json_goes(
            &[r#"{"@":1}"#, r#"{"a":{"x @ y":"z"}}"#, r#"{"items":[{"id":"@","itemId":"@"}]}"#][..2],
            &[&key],
        );
        assert_eq!(redacted_json(&format!(r#"{{"id":"{key}"}}"#)).as_deref(), Some(r#"{"id":"[redacted]"}"#));
        check_json_stays(&[
            r#"{"env":{"browser":true,"n":1},"environment":"test"}"#,
            r#"{"env":"dev","envs":["a","b"]}"#,
        ]);
    }
}
