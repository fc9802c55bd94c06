//! Tables: heads and a limited width on a terminal, plain aligned columns for other programs.
//!
//! A row is one line. On a terminal it is never wider than the screen: the widest column that may be cut is shortened with `…`.
//! On a narrow terminal nothing is cut: a row continues on further lines. Output to a file or another program has no heads and
//! full cells.

use unicode_width::UnicodeWidthStr as _;

use super::screen::{self, Screen, Tone};
use crate::text::cut;

/// Columns between two cells.
const GAP: usize = 2;

/// On a narrower terminal a row continues on further lines.
const NARROW: usize = 60;

/// Narrowest width that a column is cut to, unless its head is wider.
const CUT_MIN: usize = 8;

#[derive(Debug, Clone)]
pub(super) struct Column {
    head: String,
    side: Side,
    cut: Cut,
    width_min: usize,
    is_spare: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// Whether a column may be shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Only as a last resort: names that people copy, and numbers.
    Last,
    First,
}

impl Column {
    /// A column that keeps its width: ids, states, times.
    pub(super) fn whole(head: impl Into<String>) -> Column {
        Column { head: head.into(), side: Side::Left, cut: Cut::Last, width_min: 0, is_spare: false }
    }

    /// [`Column::whole`], right-aligned.
    pub(super) fn number(head: impl Into<String>) -> Column {
        Column { head: head.into(), side: Side::Right, cut: Cut::Last, width_min: 0, is_spare: false }
    }

    /// A text column that may be shortened.
    pub(super) fn text(head: impl Into<String>) -> Column {
        Column { head: head.into(), side: Side::Left, cut: Cut::First, width_min: 0, is_spare: false }
    }

    /// Marks a column that is left out if the terminal is too narrow; the last such column goes first.
    pub(super) fn spare(self) -> Column {
        Column { is_spare: true, ..self }
    }

    /// Sets a minimum width, for rows that are printed one by one.
    pub(super) fn at_least(self, width_min: usize) -> Column {
        Column { width_min, ..self }
    }
}

/// A cell; its text is escaped here.
pub(super) type Cell = (Tone, String);

/// A table that is printed at once or row by row.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    to: Screen,
    columns_max: Option<usize>,
    /// Widest cell of each column so far.
    widths: Vec<usize>,
    has_head: bool,
    /// Columns left out from then on.
    left_out: Vec<bool>,
}

impl Table {
    /// An empty table for stdout.
    pub(super) fn new(columns: Vec<Column>, to: Screen) -> Table {
        Table::within(columns, to, screen::columns(to))
    }

    /// An empty table with a maximum width.
    pub(super) fn within(columns: Vec<Column>, to: Screen, columns_max: Option<usize>) -> Table {
        let widths = columns.iter().map(|column| column.width_min).collect();
        let left_out = vec![false; columns.len()];
        Table { columns, to, columns_max, widths, has_head: false, left_out }
    }

    /// A whole table; empty if there are no rows.
    pub(super) fn of(columns: Vec<Column>, rows: Vec<Vec<Cell>>, to: Screen) -> String {
        Table::new(columns, to).add(rows)
    }

    /// Formats further rows, with the heads before the first ones on a terminal.
    pub(super) fn add(&mut self, rows: Vec<Vec<Cell>>) -> String {
        if rows.is_empty() {
            return String::new();
        }
        let mut rows: Vec<Vec<Cell>> = rows
            .into_iter()
            .map(|row| row.into_iter().map(|(tone, cell)| (tone, screen::plain(&cell))).collect())
            .collect();
        if self.to != Screen::None && !self.has_head {
            rows.insert(0, self.columns.iter().map(|column| (Tone::Faint, column.head.clone())).collect());
        }
        self.has_head = true;
        for (index, width) in self.widths.iter_mut().enumerate() {
            let widest = rows.iter().filter_map(|row| row.get(index)).map(|(_, cell)| cell.width()).max();
            *width = (*width).max(widest.unwrap_or(0));
        }
        self.leave_out();
        if let Some(columns_max) = self.columns_max.filter(|columns_max| *columns_max < NARROW) {
            let lines = self.flowed(columns_max);
            let mut text = String::new();
            for row in &rows {
                for (number, line) in lines.iter().enumerate() {
                    text.push_str(&self.part(row, line, if number == 0 { 0 } else { GAP }, columns_max));
                }
            }
            return text;
        }
        let widths = self.fitted();
        rows.iter().map(|row| self.line(row, &widths)).collect()
    }

    /// The columns of each line of a row: as many as fit, the others on further lines.
    fn flowed(&self, columns_max: usize) -> Vec<Vec<usize>> {
        let mut lines: Vec<Vec<usize>> = vec![Vec::new()];
        let mut taken = 0;
        for column in (0..self.columns.len()).filter(|column| !self.left_out[*column] && self.widths[*column] > 0) {
            if taken > 0 && taken + GAP + self.widths[column] > columns_max {
                lines.push(Vec::new());
            }
            let line = lines.last_mut().expect("BUG: there is a line");
            taken = self.widths[column] + if line.is_empty() { 0 } else { taken + GAP };
            line.push(column);
        }
        lines
    }

    /// One line of a row that continues on further lines; empty if its cells say nothing.
    fn part(&self, row: &[Cell], columns: &[usize], indent: usize, columns_max: usize) -> String {
        let mut line = " ".repeat(indent);
        for column in columns {
            let (tone, cell) = &row[*column];
            let padding = " ".repeat(self.widths[*column].saturating_sub(cell.width()) + GAP);
            let (before, after) = match self.columns[*column].side {
                Side::Right => (&padding[GAP..], &padding[..GAP]),
                Side::Left => ("", &*padding),
            };
            line.push_str(&format!("{before}{}{after}", self.to.paint(*tone, cell)));
        }
        match columns.iter().all(|column| matches!(&*row[*column].1, "" | "-")) {
            true => String::new(),
            false => screen::wrapped(line.trim_end(), indent, columns_max) + "\n",
        }
    }

    /// Leaves out spare columns until the others fit; on a narrow terminal, until those that keep their width fit on one line.
    fn leave_out(&mut self) {
        let Some(columns_max) = self.columns_max else { return };
        loop {
            let least = self.columns.iter().zip(&self.widths).zip(&self.left_out).filter(|(_, left_out)| !**left_out);
            let least = least.map(|((column, width), _)| match column.cut {
                Cut::First if columns_max < NARROW => 0,
                Cut::First => (*width).min(CUT_MIN.max(column.head.width())),
                Cut::Last => *width,
            });
            let least: Vec<usize> = least.filter(|width| *width > 0).collect();
            if least.iter().sum::<usize>() + GAP * least.len().saturating_sub(1) <= columns_max {
                return;
            }
            let spare = (0..self.columns.len()).rev().find(|at| self.columns[*at].is_spare && !self.left_out[*at]);
            let Some(spare) = spare else { return };
            self.left_out[spare] = true;
        }
    }

    /// Widths that fit: the widest column that may be cut is shortened first.
    fn fitted(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.widths.clone();
        for (width, left_out) in widths.iter_mut().zip(&self.left_out) {
            *width = if *left_out { 0 } else { *width };
        }
        let Some(columns_max) = self.columns_max else { return widths };
        let gaps = GAP * widths.iter().filter(|width| **width > 0).count().saturating_sub(1);
        for cut in [Cut::First, Cut::Last] {
            let least = |index: usize| CUT_MIN.max(self.columns[index].head.width());
            loop {
                let over = (widths.iter().sum::<usize>() + gaps).saturating_sub(columns_max);
                let candidates = (0..widths.len()).filter(|index| self.columns[*index].cut == cut);
                let widest =
                    candidates.filter(|index| widths[*index] > least(*index)).max_by_key(|index| widths[*index]);
                match widest {
                    Some(index) if over > 0 => {
                        // Two wide columns are cut in turn, so that neither loses everything.
                        let next = (0..widths.len())
                            .filter(|other| *other != index && self.columns[*other].cut == cut)
                            .map(|other| widths[other])
                            .max()
                            .unwrap_or(0)
                            .clamp(least(index), widths[index] - 1);
                        widths[index] = next.max(widths[index].saturating_sub(over));
                    }
                    Some(_) | None => break,
                }
            }
        }
        widths
    }

    fn line(&self, row: &[Cell], widths: &[usize]) -> String {
        let mut line = String::new();
        let (mut taken, mut gap) = (0, 0);
        let shown = row.iter().zip(&self.columns).zip(widths).zip(&self.left_out).filter(|(_, left_out)| !**left_out);
        for (((tone, cell), column), width) in shown.map(|(shown, _)| shown) {
            // No line is wider than the terminal, even if the columns do not fit.
            let room = self.columns_max.map_or(usize::MAX, |columns_max| columns_max.saturating_sub(taken + gap));
            let cell = if self.columns_max.is_some() { cut(cell, (*width).min(room)) } else { cell.clone() };
            let padding = width.saturating_sub(cell.width());
            let (before, after) = if column.side == Side::Right { (padding, 0) } else { (0, padding) };
            let before = before.min(room.saturating_sub(cell.width()));
            if !cell.is_empty() {
                line.push_str(&" ".repeat(gap + before));
                line.push_str(&self.to.paint(*tone, &cell));
                taken += gap + before + cell.width();
                gap = after + GAP;
            } else if *width > 0 {
                gap += padding + GAP;
            }
        }
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        let row = |id: &str, count: &str, text: &str| {
            vec![
                (Tone::Strong, id.to_owned()),
                (Tone::Faint, count.to_owned()),
                (Tone::Faint, text.to_owned()),
                (Tone::Warning, String::new()),
            ]
        };
        vec![row("work", "7", "run cargo test in the folder src"), row("longer-name", "12", "日本語\u{1b}[31m")]
    }

    fn columns() -> Vec<Column> {
        vec![Column::whole("SESSION"), Column::number("N"), Column::text("ACTION"), Column::text("")]
    }

    #[test]
    fn heads_and_limits_are_for_terminals() {
        let text = Table::within(columns(), Screen::None, None).add(rows());
        let expect = "work          7  run cargo test in the folder src\nlonger-name  12  日本語\u{fffd}[31m\n";
        assert_eq!(text, expect);
        let mut rows = rows();
        rows[0][2].1 = "run cargo test ".repeat(6);
        let text = Table::within(columns(), Screen::Plain, Some(60)).add(rows);
        let cut = "run cargo test run cargo test run cargo te…";
        assert_eq!(
            text,
            format!("SESSION       N  ACTION\nwork          7  {cut}\nlonger-name  12  日本語\u{fffd}[31m\n")
        );
        assert_eq!(Table::within(columns(), Screen::Plain, Some(60)).add(Vec::new()), "");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for columns_max in 13..90 {
            let mut rows = rows();
            rows[1][2].1 = "日本語 run cargo test ".repeat(6);
            let text = Table::within(columns(), Screen::Plain, Some(columns_max)).add(rows);
            for line in text.lines() {
                assert!(line.width() <= columns_max, "{columns_max}: {line:?}");
            }
        }
    }

    #[test]
    fn narrow_terminals_lose_spare_columns_and_no_text() {
        let columns = || {
            let (name, action) = (Column::whole("SESSION"), Column::text("ACTION"));
            vec![name, Column::number("N").spare(), action, Column::text("").spare()]
        };
        let check = |columns_max, expect: &str| {
            assert_eq!(Table::within(columns(), Screen::Plain, Some(columns_max)).add(rows()), expect);
        };
        let whole = "run cargo test in the folder src";
        check(49, &format!("SESSION       N  ACTION\nwork          7  {whole}\nlonger-name  12  日本語\u{fffd}[31m\n"));
        check(
            46,
            &format!("SESSION       N\n  ACTION\nwork          7\n  {whole}\nlonger-name  12\n  日本語\u{fffd}[31m\n"),
        );
        let wrapped = "run cargo\n  test in the\n  folder src";
        check(14, &format!("SESSION\n  ACTION\nwork\n  {wrapped}\nlonger-name\n  日本語\u{fffd}[31m\n"));
    }

    #[test]
    fn later_rows_align_with_earlier_ones() {
        let mut table = Table::within(columns(), Screen::Plain, None);
        let mut rows = rows();
        let second = rows.pop().expect("BUG: there are two");
        assert_eq!(table.add(vec![second]), "SESSION       N  ACTION\nlonger-name  12  日本語\u{fffd}[31m\n");
        assert_eq!(table.add(rows), "work          7  run cargo test in the folder src\n");
    }

    #[test]
    fn colours_have_no_width() {
        let text = Table::within(columns(), Screen::Coloured, Some(60)).add(rows());
        assert!(text.contains("\x1b[1mwork\x1b[0m          \x1b[2m7\x1b[0m"), "{text:?}");
    }
}
