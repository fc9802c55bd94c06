//! Quotation marks, as shells and JSON in a text write them, and the ends of commands among them.

use memchr::memmem;

/// A quotation mark, and how many backslashes stand in front of it where JSON stands in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quote {
    pub(super) byte: u8,
    pub(super) slashes: usize,
    /// How it is written if it is an apostrophe between apostrophes.
    within: Option<&'static [u8]>,
}

/// An apostrophe within a text of a shell that stands between apostrophes: `'\''` and `'"'"'`.
const WITHIN: [&[u8]; 2] = [b"'\\''", b"'\"'\"'"];

/// The one of [`WITHIN`] that a text begins with.
fn within(text: &[u8]) -> Option<&'static [u8]> {
    WITHIN.into_iter().find(|mark| text.starts_with(mark))
}

impl Quote {
    /// How many bytes it is written with.
    pub(super) fn bytes(self) -> usize {
        self.within.map_or(self.slashes + 1, <[u8]>::len)
    }

    /// Returns the end of the quoted text, and the length of the closing mark with its backslashes.
    pub(super) fn close_in(self, text: &[u8]) -> Option<(usize, usize)> {
        if let Some(mark) = self.within {
            return memmem::find(text, mark).map(|at| (at, mark.len()));
        }
        let mut from = 0;
        while let Some(at) = memchr::memchr(self.byte, &text[from..]).map(|found| from + found) {
            let inner = if self.byte == b'\'' && self.slashes == 0 { within(&text[at..]) } else { None };
            // `''` closes: an empty text and another one.
            if let Some(mark) = inner.filter(|mark| text.len() > at + mark.len()) {
                from = at + mark.len();
                continue;
            }
            let slashes = text[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
            let closes = if self.slashes == 0 { slashes % 2 == 0 } else { slashes <= self.slashes };
            if closes {
                let escapes = if self.slashes == 0 { 0 } else { slashes };
                return Some((at - escapes, escapes + 1));
            }
            from = at + 1;
        }
        None
    }
}

/// The quotation mark that a text begins with.
pub(super) fn quote_at(text: &[u8]) -> Option<Quote> {
    if let Some(mark) = within(text) {
        return Some(Quote { byte: b'\'', slashes: 0, within: Some(mark) });
    }
    let slashes = text.iter().take(8).take_while(|byte| **byte == b'\\').count();
    plain_quote(*text.get(slashes)?, slashes)
}

/// The quotation mark in front of `at`.
pub(super) fn quote_before(text: &[u8], at: usize) -> Option<Quote> {
    let byte = *text.get(at.checked_sub(1)?)?;
    let slashes = text[..at - 1].iter().rev().take(8).take_while(|byte| **byte == b'\\').count();
    plain_quote(byte, slashes)
}

fn plain_quote(byte: u8, slashes: usize) -> Option<Quote> {
    matches!(byte, b'"' | b'\'' | b'`').then_some(Quote { byte, slashes, within: None })
}

/// The quotation mark that is open at the end of a piece of a line.
pub(super) fn open_in(line: &[u8]) -> Option<Quote> {
    let mut open: Option<Quote> = None;
    for at in memchr::memchr2_iter(b'"', b'\'', line) {
        let Some(quote) = quote_before(line, at + 1) else { continue };
        open = match open {
            Some(opened) => Some(opened).filter(|opened| *opened != quote),
            // An apostrophe within a word opens nothing.
            None => {
                let front = &line[..at - quote.slashes];
                let begins = front.last().is_none_or(|last| last.is_ascii_whitespace() || b"=([{:,".contains(last));
                begins.then_some(quote)
            }
        };
    }
    open
}

/// Whether separators in quotation marks divide commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    Seen,
    Unseen,
}

/// Returns the end of the command that a text begins with: the end of its line, unless a `\\` stands there, or one of `separators`.
pub(super) fn command_end(text: &[u8], quotes: Quotes, separators: &[u8]) -> usize {
    let mut open = None;
    let is_end = |at: &usize| match (text[*at], open) {
        (b'\n', _) => quotes == Quotes::Unseen || !text[..*at].ends_with(b"\\"),
        (byte, Some(quote)) => {
            open = open.filter(|_| byte != quote);
            false
        }
        (quote @ (b'"' | b'\''), None) => {
            open = (quotes == Quotes::Seen).then_some(quote);
            false
        }
        (byte, None) => separators.contains(&byte),
    };
    (0..text.len()).find(is_end).unwrap_or(text.len())
}
