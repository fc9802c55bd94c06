//! An input field.

use std::ops::Range;

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
    let (lines, cursor) = wrap(field.text(), field.before_cursor(), room);
    let at = cursor.1;
    let from = at.saturating_sub(rows.saturating_sub(1));
    let pad = " ".repeat(width(mark));
    let mut shown = Typed::default();
    for (number, line) in lines.into_iter().enumerate().skip(from).take(rows) {
        let mark = if number == 0 { mark } else { &pad };
        shown.rows.push(vec![(mark.to_owned(), Role::Info), (line, Role::Plain)]);
    }
    shown.cursor = (width(mark) + cursor.0, at - from);
    shown
}

/// Rows of a text in a field of this width.
pub(in super::super) fn rows(text: &str, columns: usize) -> usize {
    wrap(text, text, columns).0.len()
}

/// The rows of a text, and the column and row of the cursor after its first part `before`.
fn wrap(text: &str, before: &str, columns: usize) -> (Vec<String>, (usize, usize)) {
    let visible_before = visible(before);
    let cursor_line = visible_before.matches('\n').count();
    // Tabs depend only on the text before them, so the start of a line has the same form as in the whole line.
    let cursor_at = expanded(visible_before.rsplit('\n').next().unwrap_or_default()).len();
    let (mut rows, mut cursor) = (Vec::new(), (0, 0));
    for (number, line) in visible(text).split('\n').enumerate() {
        let line = expanded(line);
        for row in breaks(&line, columns) {
            if number == cursor_line && row.start <= cursor_at {
                cursor = (width(&line[row.start..cursor_at.min(row.end)]), rows.len());
            }
            rows.push(line[row].to_owned());
        }
    }
    (rows, cursor)
}

/// The rows of one line: broken after a blank if possible, else between characters. Every character is in a row, so that the
/// cursor can be anywhere; a blank may hang over the end of a row.
fn breaks(line: &str, columns: usize) -> Vec<Range<usize>> {
    let columns_of = |char: char| char.width().unwrap_or(0);
    let mut rows = Vec::new();
    let (mut from, mut taken, mut after_blank) = (0, 0, None);
    for (at, char) in line.char_indices() {
        if taken + columns_of(char) > columns && at > from {
            let to = if char == ' ' { at + 1 } else { after_blank.unwrap_or(at) };
            rows.push(from..to);
            (from, after_blank) = (to, None);
            taken = line[to.min(at)..at].chars().map(columns_of).sum();
            if char == ' ' {
                taken = 0;
                continue;
            }
        }
        taken += columns_of(char);
        if char == ' ' {
            after_blank = Some(at + 1);
        }
    }
    rows.push(from..line.len());
    rows
}
