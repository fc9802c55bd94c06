//! An input field.

use unicode_width::UnicodeWidthChar as _;

use super::super::doc::{Role, Row};
use super::super::field::Field;
use super::super::text::{expanded, width};
use crate::engine::visible;

/// The rows of a field, with the cursor's position.
#[derive(Debug, Clone, Default)]
pub(super) struct Typed {
    pub(super) rows: Vec<Row>,
    /// Column and row.
    pub(super) cursor: (usize, usize),
}

/// At most `rows` rows of a field around the cursor.
pub(super) fn typed(mark: &str, field: &Field, columns: usize, rows: usize) -> Typed {
    let room = columns.saturating_sub(width(mark) + 1).max(1);
    // The cursor follows the last row before it.
    let before = wrap(field.before_cursor(), room);
    let at = before.len() - 1;
    let from = at.saturating_sub(rows.saturating_sub(1));
    let pad = " ".repeat(width(mark));
    let mut shown = Typed::default();
    for (number, line) in wrap(field.text(), room).into_iter().enumerate().skip(from).take(rows) {
        let mark = if number == 0 { mark } else { &pad };
        shown.rows.push(vec![(mark.to_owned(), Role::Info), (line, Role::Plain)]);
    }
    shown.cursor = (width(mark) + before.last().map_or(0, |line| width(line)), at - from);
    shown
}

/// Rows of a text in a field of this width.
pub(in super::super) fn rows(text: &str, columns: usize) -> usize {
    wrap(text, columns).len()
}

/// Wraps by characters, so that the cursor's position is that of the next character.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in visible(text).split('\n') {
        let (mut taken, mut rest) = (0, String::new());
        for char in expanded(line).chars() {
            let char_columns = char.width().unwrap_or(0);
            if taken + char_columns > columns {
                lines.push(std::mem::take(&mut rest));
                taken = 0;
            }
            rest.push(char);
            taken += char_columns;
        }
        lines.push(rest);
    }
    lines
}
