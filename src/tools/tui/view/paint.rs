//! Styles, and the only way to put text on the screen.
//!
//! It uses the 16 colours of the terminal's theme and no backgrounds, so that light and dark themes both stay readable. No
//! meaning is carried by colour alone.

use std::ops::Range;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthChar as _;

use super::super::form::Field;
use super::super::model::Colours;
use super::super::pointing::{Spot, Target};
use crate::engine::visible;
use crate::text::doc::{Role, Row};
use crate::text::{cut, expanded, plain, width};

/// The screen during one drawing.
pub(super) struct Canvas<'a> {
    pub(super) buffer: &'a mut Buffer,
    pub(super) colours: Colours,
    /// Targets of the mouse.
    pub(super) spots: Vec<Spot>,
}

impl Canvas<'_> {
    /// Draws a row into an area, cut to its width and escaped.
    pub(super) fn row(&mut self, area: Rect, number: usize, row: &Row) {
        self.draw(area, number, row, Modifier::empty());
    }

    /// Draws the selected row of a list.
    pub(super) fn selected(&mut self, area: Rect, number: usize, row: &Row) {
        // One colour, because several reversed ones would look like patches.
        let plain: Row = row.iter().map(|(text, _)| (text.clone(), Role::Plain)).collect();
        self.draw(area, number, &filled(&plain, usize::from(area.width)), Modifier::REVERSED);
    }

    /// Draws rows below one another.
    pub(super) fn rows(&mut self, area: Rect, rows: &[Row]) {
        for (number, row) in rows.iter().enumerate().take(usize::from(area.height)) {
            self.row(area, number, row);
        }
    }

    fn draw(&mut self, area: Rect, number: usize, row: &Row, more: Modifier) {
        if number >= usize::from(area.height) || area.width == 0 {
            return;
        }
        let spans: Vec<Span<'_>> = cut_row(row, usize::from(area.width))
            .into_iter()
            .map(|(text, role)| Span::styled(plain(&text), style(role, self.colours).add_modifier(more)))
            .collect();
        self.buffer.set_line(area.x, area.y + number as u16, &Line::from(spans), area.width);
    }

    /// A line between two panes.
    pub(super) fn between(&mut self, area: Rect) {
        for number in 0..usize::from(area.height) {
            self.row(area, number, &vec![("│".to_owned(), Role::Faint)]);
        }
    }

    pub(super) fn spot(&mut self, area: Rect, target: Target) {
        if area.area() > 0 {
            self.spots.push(Spot { area, target });
        }
    }
}

pub(super) fn one(text: impl Into<String>, role: Role) -> Row {
    vec![(text.into(), role)]
}

pub(super) fn row_width(row: &Row) -> usize {
    row.iter().map(|(text, _)| width(text)).sum()
}

/// A row, cut to `columns`.
pub(super) fn cut_row(row: &Row, columns: usize) -> Row {
    let mut left = columns;
    let mut kept = Row::new();
    for (text, role) in row {
        let taken = width(text);
        if taken > left {
            kept.push((cut(text, left), *role));
            return kept;
        }
        kept.push((text.clone(), *role));
        left -= taken;
    }
    kept
}

/// A row, padded with blanks to `columns`.
pub(super) fn filled(row: &Row, columns: usize) -> Row {
    let mut row = cut_row(row, columns);
    let pad = columns.saturating_sub(row_width(&row));
    row.push((" ".repeat(pad), Role::Plain));
    row
}

/// A row with a left and a right part; the left part is cut first.
pub(super) fn both(left: &Row, right: &Row, columns: usize) -> Row {
    let mut row =
        filled(&cut_row(left, columns.saturating_sub(row_width(right) + 1)), columns.saturating_sub(row_width(right)));
    row.extend(right.iter().cloned());
    row
}

/// The title of a pane, as a line across it.
pub(super) fn title(left: &str, right: &Row, columns: usize, has_keys: bool) -> Row {
    let role = if has_keys { Role::Heading } else { Role::Faint };
    let mut row = vec![("── ".to_owned(), Role::Faint), (left.to_owned(), role), (" ".to_owned(), Role::Plain)];
    row = cut_row(&row, columns.saturating_sub(row_width(right) + 1));
    let rest = columns.saturating_sub(row_width(&row) + row_width(right) + usize::from(!right.is_empty()));
    row.push(("─".repeat(rest), Role::Faint));
    if !right.is_empty() {
        row.push((" ".to_owned(), Role::Plain));
        row.extend(right.iter().cloned());
    }
    row
}

fn style(role: Role, colours: Colours) -> Style {
    let style = Style::new();
    let coloured = |color: Color, otherwise: Modifier| match colours {
        Colours::Some => style.fg(color),
        Colours::None => style.add_modifier(otherwise),
    };
    match role {
        Role::Plain => style,
        Role::Faint => style.add_modifier(Modifier::DIM),
        Role::Strong => style.add_modifier(Modifier::BOLD),
        Role::Good => coloured(Color::Green, Modifier::empty()),
        Role::Bad => coloured(Color::Red, Modifier::BOLD),
        Role::Warning => coloured(Color::Yellow, Modifier::BOLD),
        Role::Info => coloured(Color::Cyan, Modifier::empty()),
        Role::User => coloured(Color::Blue, Modifier::empty()).add_modifier(Modifier::BOLD),
        Role::Model => coloured(Color::Magenta, Modifier::empty()).add_modifier(Modifier::BOLD),
        Role::Code => coloured(Color::Cyan, Modifier::empty()),
        Role::Title => style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
        Role::Heading => style.add_modifier(Modifier::BOLD),
        Role::Subheading => style.add_modifier(Modifier::BOLD | Modifier::ITALIC),
        Role::Emphasis => style.add_modifier(Modifier::ITALIC),
        Role::Link => style.add_modifier(Modifier::UNDERLINED | Modifier::DIM),
        Role::Reversed => style.add_modifier(Modifier::REVERSED),
        Role::Badge => coloured(Color::Yellow, Modifier::empty()).add_modifier(Modifier::REVERSED | Modifier::BOLD),
    }
}

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
pub(in super::super) fn typed_rows(text: &str, columns: usize) -> usize {
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
