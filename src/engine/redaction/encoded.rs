//! Texts in which quotation marks are written as escapes: `%22`, `&quot;`, `\u0022`.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// A text without such escapes, and the place of each of its bytes in the text that it was.
pub(super) struct Decoded {
    pub(super) text: Vec<u8>,
    /// One more than the bytes of the text: the last one is the end.
    places: Vec<usize>,
}

/// Escapes of which a text holds one if a quotation mark in it is written so.
const MARKS: [&str; 12] =
    ["%22", "%27", "&quot;", "&#34;", "&#39;", "&apos;", "&#x22;", "&#x27;", "\\u0022", "\\u0027", "\\x22", "\\x27"];

static MARKED: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let builder = AhoCorasick::builder().ascii_case_insensitive(true).build(MARKS);
    builder.expect("BUG: the marks are few and short")
});

/// Characters by their names in HTML.
const ENTITIES: [(&[u8], u8); 10] = [
    (b"&quot;", b'"'),
    (b"&#34;", b'"'),
    (b"&#x22;", b'"'),
    (b"&apos;", b'\''),
    (b"&#39;", b'\''),
    (b"&#x27;", b'\''),
    (b"&amp;", b'&'),
    (b"&lt;", b'<'),
    (b"&gt;", b'>'),
    (b"&#x3d;", b'='),
];

impl Decoded {
    /// `None` if no quotation mark is written as an escape.
    pub(super) fn of(text: &[u8]) -> Option<Decoded> {
        if !MARKED.is_match(text) {
            return None;
        }
        let mut decoded = Decoded { text: Vec::with_capacity(text.len()), places: Vec::with_capacity(text.len() + 1) };
        let mut at = 0;
        while at < text.len() {
            let (bytes, byte) = escape(&text[at..]).unwrap_or((1, text[at]));
            decoded.places.push(at);
            decoded.text.push(byte);
            at += bytes;
        }
        decoded.places.push(text.len());
        Some(decoded)
    }

    /// Where a span of the decoded text stands in the text.
    pub(super) fn place(&self, span: &Range<usize>) -> Range<usize> {
        self.places[span.start]..self.places[span.end]
    }
}

/// The length of the escape that a text begins with, and the character of one byte that it stands for.
fn escape(text: &[u8]) -> Option<(usize, u8)> {
    match text {
        [b'%', high, low, ..] => Some((3, hex([b'0', b'0', *high, *low])?)),
        [b'\\', b'u', digits @ ..] => Some((6, hex(*digits.first_chunk()?)?)),
        [b'\\', b'x', high, low, ..] => Some((4, hex([b'0', b'0', *high, *low])?)),
        [b'&', ..] => ENTITIES
            .into_iter()
            .find(|(name, _)| text.len() >= name.len() && text[..name.len()].eq_ignore_ascii_case(name))
            .map(|(name, byte)| (name.len(), byte)),
        _ => None,
    }
}

/// The visible character of one byte with a number in hexadecimal digits.
fn hex(digits: [u8; 4]) -> Option<u8> {
    let value =
        digits.into_iter().try_fold(0_u32, |value, digit| Some(value * 16 + char::from(digit).to_digit(16)?))?;
    u8::try_from(value).ok().filter(|byte| (b' '..=b'~').contains(byte))
}
