//! The text that a program's output leaves on a terminal's screen, with the lines that have scrolled off.
//!
//! Bytes go through the [`Parser`], and its pieces change a [`Screen`], whose text is what a person would read there in the
//! end: overwritten and erased text is gone, a line that the terminal broke is one line, and colours, titles, links and
//! pictures leave nothing.
//!
//! Neither ever fails, holds more than a bounded part of the output, or takes more than a bounded time for a byte.

use std::borrow::Cow;

mod parser;
mod row;
mod screen;

#[cfg(test)]
mod tests;

pub use parser::{Parser, Piece};
pub use screen::{KEPT_BYTES, Remains, Screen, Size};

/// The text without escape sequences and control characters other than tabs and line ends.
#[must_use]
pub fn without_controls(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    Parser::default().parse(text.as_bytes(), |piece| match piece {
        Piece::Text(text) => plain.extend(text.chars().filter(|char| !char.is_control())),
        Piece::Control(byte @ (b'\n' | b'\t')) => plain.push(char::from(byte)),
        Piece::Broken(_) | Piece::Control(_) | Piece::Escape { .. } | Piece::Sequence(_) | Piece::Command(_) => {}
    });
    plain
}

/// The text without escape sequences; of an unfinished one, the rest of its line is removed.
#[must_use]
pub fn without_sequences(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut lines = text.split('\n');
    let mut add = |line: &str| {
        Parser::default().parse(line.as_bytes(), |piece| match piece {
            Piece::Text(text) => plain.push_str(text),
            Piece::Control(byte) => plain.push(char::from(byte)),
            Piece::Broken(_) | Piece::Escape { .. } | Piece::Sequence(_) | Piece::Command(_) => {}
        });
    };
    add(lines.next().unwrap_or_default());
    for line in lines {
        add("\n");
        add(line);
    }
    Cow::Owned(plain)
}

/// What stands on the screen in the end, with all that has scrolled off, after a program has written `output` to a terminal of
/// which nothing is known.
#[must_use]
pub fn remains_of(output: &str) -> Cow<'_, str> {
    if !output.chars().any(|char| char.is_control() && !matches!(char, '\n' | '\t')) {
        return Cow::Borrowed(output);
    }
    let mut screen = Screen::new(None, usize::MAX);
    Parser::default().parse(output.as_bytes(), |piece| screen.apply(&piece));
    Cow::Owned(screen.remains().text)
}
