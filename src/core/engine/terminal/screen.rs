//! The screen: where text goes, what moves and erases it, and what has scrolled off.
//!
//! Behaves as xterm with these deviations. A new screen is empty and the cursor is in its first line, wherever it stood on
//! the real one. Nothing that a full-screen program draws on the alternate screen is kept; a note stands for it. Tab stops
//! are every eight columns. At the end of a full line, an erasure to its end erases nothing, as in tmux. A new size does not
//! break lines anew.
//!
//! Memory: the rows, whose size is limited, and the last [`KEPT_BYTES`] or so of what has scrolled off. Time: each byte costs
//! at most a move of one line, or of the list of lines.

use std::collections::VecDeque;

use unicode_width::UnicodeWidthChar as _;

use super::parser::{Piece, Sequence};
use super::row::Row;

/// How much of the end of an output is kept, in bytes; the model sees far less of it.
pub const KEPT_BYTES: usize = 64 << 10;

/// Replaces what a program drew on the alternate screen.
const NOTE: &str = "[a full-screen program; its screen is not kept]";

/// Largest size of a terminal that is taken as it is.
const COLUMNS_MAX: u16 = 1_000;
const ROWS_MAX: u16 = 500;

/// Size of the screen if that of the terminal is not known, as for a file: far larger than a real one, so that a line is
/// rarely broken.
const UNKNOWN_COLUMNS: usize = 2_048;
const UNKNOWN_ROWS: usize = 100;

/// How far a program can move the cursor to the right there, beyond what it wrote: programs address a column that no
/// terminal has to reach the last one.
const UNKNOWN_REACH: usize = 255;

const TAB_COLUMNS: usize = 8;

/// DEC's line drawing characters, for `` ` `` to `~`.
const DRAWING: [char; 31] = [
    '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─', '⎼', '⎽', '├', '┤', '┴',
    '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

/// What is left of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remains {
    pub text: String,
    /// The beginning, or the drawing of a full-screen program, is missing.
    pub is_cut: bool,
}

/// `column` is the number of columns if the last one was written to and the next character goes to the next line.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    row: usize,
    column: usize,
}

#[derive(Debug)]
pub struct Screen {
    columns: usize,
    /// The last column that a program can move to, beyond what it wrote.
    reach: usize,
    rows: VecDeque<Row>,
    /// What has scrolled off, with the line ends.
    above: String,
    kept_bytes: usize,
    is_cut: bool,
    cursor: Cursor,
    saved: Cursor,
    /// The lines that scroll, the first and the last.
    scrolls: (usize, usize),
    modes: Modes,
    /// Whether G0 and G1 are line drawing characters, and which of the two is in use.
    drawing: [bool; 2],
    shift: usize,
    is_alternate: bool,
    note_stands: bool,
    last_char: Option<char>,
}

#[derive(Debug, Clone, Copy)]
struct Modes {
    wraps: bool,
    inserts: bool,
    /// Lines are counted from the first one that scrolls.
    is_relative: bool,
    /// A line feed also returns to the first column.
    returns: bool,
}

impl Modes {
    fn new(returns: bool) -> Modes {
        Modes { wraps: true, inserts: false, is_relative: false, returns }
    }
}

impl Screen {
    /// The screen of a terminal of this size, or of one that nobody knows: then a line feed also returns to the first column,
    /// since the output comes from a pipe or a file, in which no terminal's driver has added the return.
    ///
    /// Of what scrolls off, the last `kept_bytes` are kept.
    #[must_use]
    pub fn new(size: Option<Size>, kept_bytes: usize) -> Screen {
        let (columns, rows, reach) = match size {
            Some(size) => within_limits(size),
            None => (UNKNOWN_COLUMNS, UNKNOWN_ROWS, UNKNOWN_REACH),
        };
        Screen {
            columns,
            reach,
            rows: std::iter::repeat_with(Row::default).take(rows).collect(),
            above: String::new(),
            kept_bytes,
            is_cut: false,
            cursor: Cursor::default(),
            saved: Cursor::default(),
            scrolls: (0, rows - 1),
            modes: Modes::new(size.is_none()),
            drawing: [false; 2],
            shift: 0,
            is_alternate: false,
            note_stands: false,
            last_char: None,
        }
    }

    /// The terminal has a new size.
    pub fn resize(&mut self, size: Size) {
        let (columns, rows, reach) = within_limits(size);
        (self.columns, self.reach) = (columns, reach);
        while self.rows.len() > rows {
            if self.cursor.row + 1 < self.rows.len() {
                self.rows.pop_back();
            } else {
                self.scroll_off(0);
                self.rows.pop_front();
                self.cursor.row -= 1;
            }
        }
        self.rows.resize_with(rows, Row::default);
        self.scrolls = (0, rows - 1);
        self.saved = Cursor { row: self.saved.row.min(rows - 1), column: self.saved.column.min(columns) };
        self.settle();
    }

    /// Something before the output is missing.
    pub fn mark_cut(&mut self) {
        self.is_cut = true;
    }

    /// What stands on the screen, after what has scrolled off.
    #[must_use]
    pub fn remains(&self) -> Remains {
        let mut text = self.above.clone();
        let written = self.rows.iter().rposition(|row| !row.is_empty()).unwrap_or(0);
        let last = written.max(self.cursor.row);
        for (index, row) in self.rows.iter().enumerate().take(last + 1) {
            row.write_to(&mut text);
            if index < last && !row.continues {
                text.push('\n');
            }
        }
        let surplus = text.ceil_char_boundary(text.len().saturating_sub(self.kept_bytes));
        text.drain(..surplus);
        Remains { text, is_cut: self.is_cut || surplus > 0 }
    }

    /// Whether a full-screen program draws now.
    #[must_use]
    pub fn is_alternate(&self) -> bool {
        self.is_alternate
    }

    pub fn apply(&mut self, piece: &Piece<'_>) {
        if self.is_alternate {
            if let Piece::Sequence(sequence) = piece
                && sequence.prefix == Some(b'?')
            {
                self.private_mode(sequence);
            } else if *piece == (Piece::Escape { intermediate: None, last: b'c' }) {
                self.reset();
            }
            return;
        }
        match piece {
            Piece::Text(text) => self.print(text),
            Piece::Broken(_) => self.print("\u{fffd}"),
            Piece::Control(byte) => self.control(*byte),
            Piece::Escape { intermediate, last } => self.escape(*intermediate, *last),
            Piece::Sequence(sequence) => self.sequence(sequence),
            Piece::Command(_) => {}
        }
    }

    // Text.

    fn print(&mut self, text: &str) {
        self.note_stands = false;
        self.last_char = text.chars().next_back();
        if text.is_ascii() && self.modes.wraps && !self.modes.inserts && !self.drawing[self.shift] {
            self.print_ascii(text);
        } else {
            text.chars().for_each(|char| self.put(char));
        }
    }

    fn print_ascii(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            if self.cursor.column >= self.columns {
                self.wrap();
            }
            let fits = rest.len().min(self.columns - self.cursor.column);
            let row = &mut self.rows[self.cursor.row];
            row.put_ascii(self.cursor.column, &rest[..fits]);
            self.cursor.column += fits;
            // If the line goes on, `wrap` says so.
            row.continues &= self.cursor.column < self.columns;
            rest = &rest[fits..];
        }
    }

    fn put(&mut self, char: char) {
        if char.is_control() {
            return;
        }
        let char = match char {
            '`'..='~' if self.drawing[self.shift] => DRAWING[usize::from(char as u8 - b'`')],
            char => char,
        };
        let width = char.width().unwrap_or(0);
        if width == 0 && self.rows[self.cursor.row].combine(self.cursor.column, char) {
            return;
        }
        let width = width.max(1);
        if self.cursor.column + width > self.columns {
            if self.modes.wraps {
                self.wrap();
            } else {
                self.cursor.column = self.columns - width;
            }
        }
        let row = &mut self.rows[self.cursor.row];
        if self.modes.inserts {
            row.insert(self.cursor.column, width, self.columns);
        }
        row.put(self.cursor.column, char, width);
        self.cursor.column += width;
        row.continues &= self.cursor.column < self.columns;
    }

    fn wrap(&mut self) {
        self.rows[self.cursor.row].continues = true;
        self.cursor.column = 0;
        self.line_feed();
    }

    // Movement.

    /// Puts the cursor into the last column if it stands behind it.
    fn settle(&mut self) {
        self.cursor.column = self.cursor.column.min(self.columns - 1);
    }

    fn control(&mut self, byte: u8) {
        match byte {
            0x08 => {
                self.settle();
                self.cursor.column = self.cursor.column.saturating_sub(1);
            }
            b'\t' => self.tab(1),
            // Line feed, vertical tab, form feed.
            0x0a..=0x0c => {
                self.note_stands = false;
                self.settle();
                self.line_feed();
                if self.modes.returns {
                    self.cursor.column = 0;
                }
            }
            b'\r' => self.cursor.column = 0,
            0x0e => self.shift = 1,
            0x0f => self.shift = 0,
            _ => {}
        }
    }

    fn tab(&mut self, count: usize) {
        let column = (self.cursor.column / TAB_COLUMNS).saturating_add(count).saturating_mul(TAB_COLUMNS);
        self.cursor.column = column.min(self.columns - 1);
    }

    fn line_feed(&mut self) {
        let (first, last) = self.scrolls;
        if self.cursor.row == last {
            self.scroll_up(first, last, 1);
        } else if self.cursor.row + 1 < self.rows.len() {
            self.cursor.row += 1;
        }
    }

    fn escape(&mut self, intermediate: Option<u8>, last: u8) {
        match (intermediate, last) {
            (None, b'7') => self.saved = self.cursor,
            (None, b'8') => self.cursor = self.saved,
            (None, b'D') => self.line_feed(),
            (None, b'E') => {
                self.cursor.column = 0;
                self.line_feed();
            }
            (None, b'M') if self.cursor.row == self.scrolls.0 => self.scroll_down(self.scrolls.0, self.scrolls.1, 1),
            (None, b'M') => self.cursor.row = self.cursor.row.saturating_sub(1),
            (None, b'c') => self.reset(),
            (Some(b'('), set) => self.drawing[0] = set == b'0',
            (Some(b')'), set) => self.drawing[1] = set == b'0',
            _ => {}
        }
    }

    fn reset(&mut self) {
        self.rows.iter_mut().for_each(Row::clear);
        self.soft_reset();
        (self.cursor, self.is_alternate) = (Cursor::default(), false);
    }

    fn soft_reset(&mut self) {
        (self.drawing, self.shift, self.saved) = ([false; 2], 0, Cursor::default());
        self.modes = Modes::new(self.modes.returns);
        self.scrolls = (0, self.rows.len() - 1);
    }

    fn sequence(&mut self, sequence: &Sequence) {
        let number = |index| sequence.number(index, 1);
        match (sequence.prefix, sequence.intermediate, sequence.last) {
            (Some(b'?'), None, b'h' | b'l') => self.private_mode(sequence),
            (None, None, b'h' | b'l') => self.mode(sequence),
            (None | Some(b'?'), None, b'J') => self.erase_display(sequence.number(0, 0)),
            (None | Some(b'?'), None, b'K') => self.erase_line(sequence.number(0, 0)),
            (None, Some(b'!'), b'p') => self.soft_reset(),
            (None, None, b'@' | b'P' | b'X' | b'L' | b'M' | b'S' | b'T') => self.edit(sequence.last, number(0)),
            (None, None, b'b') => self.repeat(number(0)),
            (None, None, b'r') => {
                let (first, last) = (number(0) - 1, sequence.number(1, self.rows.len()).min(self.rows.len()) - 1);
                if first < last {
                    self.scrolls = (first, last);
                    self.go_to(0, 0);
                }
            }
            (None, None, _) => self.go(sequence),
            _ => {}
        }
    }

    fn go(&mut self, sequence: &Sequence) {
        let Cursor { row, column } = self.cursor;
        let column = column.min(self.columns - 1);
        let (first, last) = self.scrolls;
        let count = sequence.number(0, 1);
        let up = row.saturating_sub(count).max(if row >= first { first } else { 0 });
        let down = (row + count).min(if row <= last { last } else { self.rows.len() - 1 });
        match sequence.last {
            b'A' => self.cursor = Cursor { row: up, column },
            b'B' | b'e' => self.cursor = Cursor { row: down, column },
            b'C' | b'a' => self.cursor.column = (column + count).min(self.last_column()),
            b'D' => self.cursor.column = column.saturating_sub(count),
            b'E' => self.cursor = Cursor { row: down, column: 0 },
            b'F' => self.cursor = Cursor { row: up, column: 0 },
            b'G' | b'`' => self.cursor.column = (count - 1).min(self.last_column()),
            b'H' | b'f' => self.go_to(count - 1, sequence.number(1, 1) - 1),
            b'd' => self.go_to(count - 1, column),
            b'I' => self.tab(count),
            b'Z' => self.cursor.column = column.div_ceil(TAB_COLUMNS).saturating_sub(count) * TAB_COLUMNS,
            b's' => self.saved = self.cursor,
            b'u' => self.cursor = self.saved,
            _ => {}
        }
    }

    /// Goes to a line as the program counts them.
    fn go_to(&mut self, row: usize, column: usize) {
        let (first, last) = if self.modes.is_relative { self.scrolls } else { (0, self.rows.len() - 1) };
        self.cursor.row = (first + row).min(last);
        self.cursor.column = column.min(self.last_column());
    }

    /// The last column that the cursor can move to in its line.
    fn last_column(&self) -> usize {
        self.reach.max(self.rows[self.cursor.row].columns()).min(self.columns - 1)
    }

    // Modes.

    fn mode(&mut self, sequence: &Sequence) {
        let is_set = sequence.last == b'h';
        for mode in sequence.numbers() {
            match mode {
                4 => self.modes.inserts = is_set,
                20 => self.modes.returns = is_set,
                _ => {}
            }
        }
    }

    fn private_mode(&mut self, sequence: &Sequence) {
        let is_set = sequence.last == b'h';
        if !is_set && sequence.last != b'l' {
            return;
        }
        for mode in sequence.numbers() {
            match mode {
                6 if !self.is_alternate => {
                    self.modes.is_relative = is_set;
                    self.go_to(0, 0);
                }
                7 if !self.is_alternate => self.modes.wraps = is_set,
                47 | 1047 | 1049 if is_set && !self.is_alternate => self.begin_alternate(),
                47 | 1047 | 1049 => self.is_alternate = is_set,
                _ => {}
            }
        }
    }

    fn begin_alternate(&mut self) {
        if !self.note_stands {
            if self.cursor.column > 0 || !self.rows[self.cursor.row].is_empty() {
                self.escape(None, b'E');
            }
            self.print_ascii(NOTE);
            self.escape(None, b'E');
            self.note_stands = true;
        }
        (self.is_alternate, self.is_cut) = (true, true);
    }

    // Changes of what stands there.

    fn erase_line(&mut self, which: usize) {
        let row = &mut self.rows[self.cursor.row];
        match which {
            0 if self.cursor.column < self.columns => row.truncate(self.cursor.column),
            1 => row.erase(0..self.cursor.column + 1),
            2 => row.clear(),
            _ => {}
        }
    }

    fn erase_display(&mut self, which: usize) {
        let row = self.cursor.row;
        match which {
            0 => self.rows.range_mut(row + 1..).for_each(Row::clear),
            1 => self.rows.range_mut(..row).for_each(Row::clear),
            2 => self.rows.iter_mut().for_each(Row::clear),
            3 => self.above.clear(),
            _ => {}
        }
        if which < 2 {
            self.erase_line(which);
        }
    }

    fn edit(&mut self, last: u8, count: usize) {
        self.settle();
        let Cursor { row, column } = self.cursor;
        let (first, bottom) = self.scrolls;
        let is_inside = (first..=bottom).contains(&row);
        if is_inside && matches!(last, b'L' | b'M') {
            // Another line follows now.
            self.rows[row.saturating_sub(1)].continues &= row == 0;
            self.rows[bottom].continues = false;
        }
        match last {
            b'@' => self.rows[row].insert(column, count, self.columns),
            b'P' => self.rows[row].delete(column, count),
            b'X' => self.rows[row].erase(column..column + count),
            b'L' if is_inside => self.scroll_down(row, bottom, count),
            b'M' if is_inside => self.delete_lines(row, bottom, count),
            b'S' => self.scroll_up(first, bottom, count),
            b'T' => self.scroll_down(first, bottom, count),
            _ => {}
        }
    }

    fn repeat(&mut self, count: usize) {
        if let Some(char) = self.last_char {
            for _ in 0..count.min(self.reach + 1) {
                self.put(char);
            }
        }
    }

    // Scrolling.

    /// Moves the lines from `first` to `last` up. Those that leave the screen at its top are kept.
    fn scroll_up(&mut self, first: usize, last: usize, count: usize) {
        if first > 0 {
            return self.delete_lines(first, last, count);
        }
        let count = count.min(last + 1);
        (0..count).for_each(|index| self.scroll_off(index));
        if last + 1 == self.rows.len() {
            self.rows.rotate_left(count);
            self.rows.range_mut(last + 1 - count..).for_each(Row::clear);
        } else {
            self.delete_lines(first, last, count);
        }
    }

    /// Keeps the text of a line that leaves the screen.
    fn scroll_off(&mut self, index: usize) {
        let row = &self.rows[index];
        row.write_to(&mut self.above);
        if !row.continues {
            self.above.push('\n');
        }
        // Cut rarely, so that each byte moves at most once.
        if self.above.len() > self.kept_bytes.saturating_mul(2) {
            let surplus = self.above.ceil_char_boundary(self.above.len() - self.kept_bytes);
            self.above.drain(..surplus);
            self.is_cut = true;
        }
    }

    fn delete_lines(&mut self, first: usize, last: usize, count: usize) {
        let count = count.min(last - first + 1);
        self.rows.make_contiguous()[first..=last].rotate_left(count);
        self.rows.range_mut(last + 1 - count..=last).for_each(Row::clear);
    }

    fn scroll_down(&mut self, first: usize, last: usize, count: usize) {
        let count = count.min(last - first + 1);
        self.rows.make_contiguous()[first..=last].rotate_right(count);
        self.rows.range_mut(first..first + count).for_each(Row::clear);
    }
}

/// The columns, the rows and the last column.
fn within_limits(size: Size) -> (usize, usize, usize) {
    // A wide character must fit, and a part of the lines must be able to scroll.
    let columns = usize::from(size.columns.clamp(2, COLUMNS_MAX));
    (columns, usize::from(size.rows.clamp(2, ROWS_MAX)), columns - 1)
}
