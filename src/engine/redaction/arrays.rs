//! Secrets in commands that are written as lists of words: `["mysql", "-px"]`.

use std::ops::Range;

use super::commands;
use super::quotes::quote_at;

/// Longest list that is read as a command, in bytes.
const LIST_BYTES_MAX: usize = 8 << 10;

/// Adds where secrets stand in lists of texts that are commands. A list that does not close is passed over.
pub(super) fn find(text: &[u8], spans: &mut Vec<Range<usize>>) {
    let mut at = 0;
    while let Some(open) = memchr::memchr(b'[', &text[at..]).map(|found| at + found) {
        let limit = text.len().min(open + LIST_BYTES_MAX);
        let (command, end) = command(&text[open..limit]);
        if !command.is_empty() {
            let mut found = Vec::new();
            commands::find(&command, &mut found);
            spans.extend(found.into_iter().map(|span| open + span.start..open + span.end));
        }
        at = open + end.max(1);
    }
}

/// The words of a list as a line of the same length, with a blank for all between them, and how much of the text was read. Blanks
/// and marks within a word are written as a sign that no command holds. The line is empty if the list is not one of texts.
fn command(list: &[u8]) -> (Vec<u8>, usize) {
    let mut line = Vec::new();
    let mut at = 1 + layout(&list[1..]);
    let mut words = 0;
    while let Some(quote) = quote_at(&list[at..]) {
        let from = at + quote.bytes();
        let Some((bytes, mark)) = list.get(from..).and_then(|rest| quote.close_in(rest)) else {
            return (Vec::new(), list.len());
        };
        line.resize(from, b' ');
        line.extend(list[from..from + bytes].iter().map(|byte| {
            let is_mark = byte.is_ascii_whitespace() || b"\"'`|;&<>()".contains(byte);
            if is_mark { WITHIN } else { *byte }
        }));
        words += 1;
        at = from + bytes + mark;
        at += layout(&list[at..]);
        match list.get(at) {
            Some(b',') => at += 1 + layout(&list[at + 1..]),
            Some(b']') if words > 1 => {
                line.resize(at, b' ');
                return (line, at + 1);
            }
            Some(_) | None => break,
        }
    }
    (Vec::new(), at)
}

/// What stands for a blank or a mark within a word.
const WITHIN: u8 = 1;

/// Returns the length of blanks and line ends, also as JSON in a text has them.
fn layout(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}
