//! One line of a screen: what stands in each of its columns.

use std::ops::Range;

/// A column that nothing was written to, or that was erased.
const BLANK: u32 = 0;

/// The second column of a wide character.
const SECOND_HALF: u32 = 1 << 30;

/// With the index of a cluster: a character with marks. All other cells are the code of a character.
const CLUSTER: u32 = 1 << 31;

/// Longest character with its marks, in bytes; a further mark takes a column of its own.
const CLUSTER_BYTES_MAX: usize = 64;

/// Clusters beyond the number of columns after which those that were overwritten are dropped.
const CLUSTERS_SPARE: usize = 16;

#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// The whole line, as long as it is plain ASCII that was written from left to right, as most lines are. Then there are no
    /// cells.
    plain: String,
    cells: Vec<u32>,
    clusters: Vec<String>,
    /// The terminal broke the line here; the next row belongs to it.
    pub(super) continues: bool,
}

impl Row {
    /// Columns up to the last one that was written to.
    pub(super) fn columns(&self) -> usize {
        self.plain.len() + self.cells.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.cells.iter().all(|cell| *cell == BLANK)
    }

    pub(super) fn clear(&mut self) {
        self.plain.clear();
        self.cells.clear();
        self.clusters.clear();
        self.continues = false;
    }

    /// Writes ASCII characters.
    pub(super) fn put_ascii(&mut self, column: usize, text: &str) {
        if self.cells.is_empty() && column == self.plain.len() {
            return self.plain.push_str(text);
        }
        self.split_up();
        let end = column + text.len();
        self.free(column, end);
        self.widen(end);
        self.cells[column..end].iter_mut().zip(text.bytes()).for_each(|(cell, byte)| *cell = byte.into());
    }

    /// Puts a plain line into cells.
    fn split_up(&mut self) {
        self.cells.extend(self.plain.bytes().map(u32::from));
        self.plain.clear();
    }

    /// Writes a character of one or two columns.
    pub(super) fn put(&mut self, column: usize, char: char, width: usize) {
        self.split_up();
        self.free(column, column + width);
        self.widen(column + width);
        self.cells[column] = char.into();
        self.cells[column + 1..column + width].fill(SECOND_HALF);
    }

    /// Adds a mark to the character that ends before `column`, if there is one that has room for it.
    pub(super) fn combine(&mut self, column: usize, mark: char) -> bool {
        self.split_up();
        let Some(mut at) = column.checked_sub(1) else { return false };
        if at > 0 && self.cells.get(at) == Some(&SECOND_HALF) {
            at -= 1;
        }
        match self.cells.get(at) {
            None | Some(&(BLANK | SECOND_HALF)) => false,
            Some(cell) if cell & CLUSTER != 0 => {
                let cluster = &mut self.clusters[(cell & !CLUSTER) as usize];
                let has_room = cluster.len() < CLUSTER_BYTES_MAX;
                if has_room {
                    cluster.push(mark);
                }
                has_room
            }
            Some(cell) => {
                let base = char::from_u32(*cell).unwrap_or(char::REPLACEMENT_CHARACTER);
                self.drop_overwritten();
                self.cells[at] = CLUSTER | self.clusters.len() as u32;
                self.clusters.push([base, mark].iter().collect());
                true
            }
        }
    }

    /// Inserts blank columns; what moves beyond `columns_max` is lost.
    pub(super) fn insert(&mut self, column: usize, count: usize, columns_max: usize) {
        self.split_up();
        if column >= self.cells.len() {
            return;
        }
        let count = count.min(columns_max - column);
        self.free(column, column);
        let kept = self.cells.len().min(columns_max - count).max(column);
        self.free(kept, kept);
        self.cells.truncate(kept);
        self.cells.splice(column..column, std::iter::repeat_n(BLANK, count));
    }

    /// Deletes columns; the rest of the line moves there.
    pub(super) fn delete(&mut self, column: usize, count: usize) {
        self.split_up();
        let end = (column + count).min(self.cells.len());
        if column < end {
            self.free(column, end);
            self.cells.drain(column..end);
        }
    }

    pub(super) fn erase(&mut self, columns: Range<usize>) {
        self.split_up();
        let end = columns.end.min(self.cells.len());
        if columns.start < end {
            self.free(columns.start, end);
            self.cells[columns.start..end].fill(BLANK);
        }
    }

    pub(super) fn truncate(&mut self, column: usize) {
        self.plain.truncate(column);
        self.free(column, column);
        self.cells.truncate(column);
        self.continues = false;
    }

    /// Adds the text, without blanks that nobody wrote at its end.
    pub(super) fn write_to(&self, text: &mut String) {
        text.push_str(&self.plain);
        let end = self.cells.iter().rposition(|cell| *cell != BLANK).map_or(0, |last| last + 1);
        for cell in &self.cells[..end] {
            match *cell {
                BLANK => text.push(' '),
                SECOND_HALF => {}
                cell if cell & CLUSTER != 0 => text.push_str(&self.clusters[(cell & !CLUSTER) as usize]),
                cell => text.push(char::from_u32(cell).unwrap_or(char::REPLACEMENT_CHARACTER)),
            }
        }
    }

    /// Erases the wide characters that only partly lie in the columns from `start` to `end`.
    fn free(&mut self, start: usize, end: usize) {
        for edge in [start, end] {
            if edge > 0 && self.cells.get(edge) == Some(&SECOND_HALF) {
                self.cells[edge - 1..=edge].fill(BLANK);
            }
        }
    }

    fn widen(&mut self, columns: usize) {
        if self.cells.len() < columns {
            self.cells.resize(columns, BLANK);
        }
    }

    /// Drops the clusters that no column has any more, once there are many.
    fn drop_overwritten(&mut self) {
        if self.clusters.len() <= self.cells.len() + CLUSTERS_SPARE {
            return;
        }
        let mut kept = Vec::new();
        for cell in self.cells.iter_mut().filter(|cell| **cell & CLUSTER != 0) {
            let cluster = std::mem::take(&mut self.clusters[(*cell & !CLUSTER) as usize]);
            *cell = CLUSTER | kept.len() as u32;
            kept.push(cluster);
        }
        self.clusters = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Row {
        let mut row = Row::default();
        for char in text.chars() {
            let width = if char > '\u{2e80}' { 2 } else { 1 };
            row.put(row.columns(), char, width);
        }
        row
    }

    fn check(row: &Row, expect: &str) {
        let mut text = String::new();
        row.write_to(&mut text);
        assert_eq!(text, expect, "{row:?}");
    }

    #[test]
    fn half_of_a_wide_character_is_erased() {
        let change = |expect: &str, change: fn(&mut Row)| {
            let mut row = row("a漢字b");
            change(&mut row);
            check(&row, expect);
        };
        change("axy字b", |row| row.put_ascii(1, "xy"));
        change("ax 字b", |row| row.put_ascii(1, "x"));
        change("a xy b", |row| row.put_ascii(2, "xy"));
        change("a 語 b", |row| row.put(2, '語', 2));
        change("a", |row| row.truncate(2));
        change("a字b", |row| row.delete(1, 2));
        change("a  b", |row| row.delete(2, 2));
        change("a   漢", |row| row.insert(1, 3, 6));
        change("a     ".trim_end(), |row| row.insert(2, 3, 6));
        change("a  字b", |row| row.erase(2..3));
    }

    #[test]
    fn marks_belong_to_their_character() {
        let mut row = row("e漢");
        assert!(row.combine(1, '\u{301}') && row.combine(3, '\u{302}') && row.combine(3, '\u{303}'));
        assert!(!row.combine(0, '\u{301}') && !row.combine(9, '\u{301}'));
        check(&row, "e\u{301}漢\u{302}\u{303}");
        for _ in 0..1_000 {
            row.put(0, 'e', 1);
            assert!(row.combine(1, '\u{301}'));
        }
        assert!(row.clusters.len() <= row.columns() + CLUSTERS_SPARE + 1);
        check(&row, "e\u{301}漢\u{302}\u{303}");
        while row.combine(1, '\u{301}') {}
        assert!(row.clusters.iter().all(|cluster| cluster.len() <= CLUSTER_BYTES_MAX + 4));
    }
}
