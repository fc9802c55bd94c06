//! JSON strings with their escapes, and the mask characters that replace secrets.

use std::borrow::Cow;
use std::ops::Range;

/// Replaces a secret. The mask is the same for every secret, so equal texts stay equal.
pub(super) const MASK: &str = "[redacted]";

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

    /// Yields each character with the length of its escaped form in bytes.
    fn units(&self) -> impl Iterator<Item = (usize, char)> + use<'a> {
        let mut rest = self.written;
        std::iter::from_fn(move || {
            let first = rest.chars().next()?;
            let unit = if first == '\\' { escape(rest) } else { (first.len_utf8(), first) };
            rest = rest.get(unit.0..).unwrap_or_default();
            Some(unit)
        })
    }

    pub(super) fn text(&self) -> Cow<'a, [u8]> {
        if !self.written.contains('\\') {
            return Cow::Borrowed(self.written.as_bytes());
        }
        Cow::Owned(self.units().map(|(_, char)| char).collect::<String>().into_bytes())
    }

    /// Maps `spans` of the decoded text to spans of the escaped form.
    pub(super) fn written_spans(&self, spans: &[Range<usize>]) -> Vec<Range<usize>> {
        let (mut found, mut spans) = (Vec::new(), spans.iter().peekable());
        let (mut at, mut written_at) = (0, 0);
        let mut begun = None;
        for (length, char) in self.units() {
            let end = at + char.len_utf8();
            if spans.peek().is_some_and(|span| span.start < end && at < span.end) {
                begun.get_or_insert(written_at);
            }
            (at, written_at) = (end, written_at + length);
            if spans.peek().is_some_and(|span| span.end <= at) {
                spans.next();
                found.extend(begun.take().map(|begun| begun..written_at));
            }
        }
        found
    }

    /// Masks `spans` of the decoded text; returns `None` if there are none.
    pub(super) fn masked(&self, text: &[u8], spans: &[Range<usize>]) -> Option<String> {
        let (mut spans, mut span) = (spans.iter().cloned(), None);
        if spans.len() == 0 {
            return None;
        }
        let mut out = String::with_capacity(self.written.len() + 2);
        out.push('"');
        let (mut at, mut written_at, mut signs) = (0, 0, MaskSigns { word: b"" });
        for (length, char) in self.units() {
            while span.as_ref().is_none_or(|span: &Range<usize>| span.end <= at) {
                let Some(next) = spans.next() else { break };
                signs = MaskSigns::of(&next);
                span = Some(next);
            }
            let written = &self.written[written_at..written_at + length];
            let char_bytes = char.len_utf8();
            let is_in = span.as_ref().is_some_and(|span| span.start < at + char_bytes && at < span.end);
            match (is_in, length) {
                (false, _) => out.push_str(written),
                (true, _) if u8::try_from(char).is_ok_and(stays) => out.push_str(written),
                (true, 2) if written.starts_with('\\') => out.push_str(ESCAPED_BYTE.1),
                (true, 6) if char_bytes == 1 => out.push_str(&format!("\\u{:04x}", signs.next())),
                (true, 6 | 12) if written.starts_with('\\') => out.push_str(ESCAPED[char_bytes - 2].1),
                (true, _) => out.extend((0..char_bytes).map(|_| char::from(signs.next()))),
            }
            at += char_bytes;
            written_at += length;
        }
        debug_assert_eq!(at, text.len());
        out.push('"');
        Some(out)
    }
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
pub(super) fn stays(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | b'\t' | b' ' | 0x1e | 0x1f)
}

/// The characters of one mask: the word if it fits, then stars.
pub(super) struct MaskSigns {
    word: &'static [u8],
}

impl MaskSigns {
    pub(super) fn of(span: &Range<usize>) -> MaskSigns {
        MaskSigns { word: if span.len() >= MASK.len() { MASK.as_bytes() } else { b"" } }
    }

    pub(super) fn next(&mut self) -> u8 {
        match self.word {
            [first, rest @ ..] => {
                self.word = rest;
                *first
            }
            [] => b'*',
        }
    }
}
