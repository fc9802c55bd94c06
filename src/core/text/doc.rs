//! A scrollable document: styled lines that are wrapped only in the visible part.
//!
//! Pure. A document is built once and holds its whole text in one string; drawing, scrolling and clamping touch no more
//! lines than a screen has rows, so ten megabytes scroll like ten lines. All text in it went through [`plain`].

use crate::text::{breaks, plain};

/// Longest single line, in bytes. A longer one continues on the next line, so that no line is slow to wrap. It is longer than
/// any paragraph that people write, because the row before the next line may be short.
const LINE_BYTES_MAX: usize = 65_536;

/// Lines of a document whose rows are counted one by one.
const COUNTED_LINES_MAX: usize = 200;

/// The role of a text; `view::paint` has the colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Ordinary text.
    Plain,
    /// Less important than the text beside it.
    Faint,
    /// More important.
    Strong,
    /// Something went well, or a line was added.
    Good,
    /// Something went wrong, or a line was removed.
    Bad,
    /// Needs a look.
    Warning,
    /// A name, a key, a place.
    Info,
    User,
    Model,
    /// Code inside a text.
    Code,
    /// A heading of the first level.
    Title,
    Heading,
    /// A heading below the second level.
    Subheading,
    Emphasis,
    Link,
    /// A bar or a tag.
    Reversed,
    /// A tag that needs a look.
    Badge,
}

/// A position in a document: a line, and a screen row within it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub line: usize,
    /// The row within the line.
    pub row: usize,
}

impl At {
    /// The start of a line.
    pub fn line(line: usize) -> At {
        At { line, row: 0 }
    }
}

/// Part of the screen that shows a document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    pub columns: usize,
    pub rows: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    from: usize,
    first_piece: usize,
    /// Blanks before each row of this line but the first.
    hang: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    to: usize,
    role: Role,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Doc {
    text: String,
    lines: Vec<Line>,
    pieces: Vec<Piece>,
}

/// A row on the screen: texts with their roles.
pub type Row = Vec<(String, Role)>;

impl Doc {
    /// Number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Appends text of one role. Line breaks in it start new lines.
    pub fn push(&mut self, text: &str, role: Role) {
        for line in text.split('\n') {
            self.push_pieces(&[(line, role)], 0);
        }
    }

    /// Appends one line of several pieces; `hang` indents its rows after the first.
    pub fn push_pieces(&mut self, pieces: &[(&str, Role)], hang: u16) {
        self.begin(hang);
        let mut from = self.text.len();
        for (text, role) in pieces {
            let text = plain(text);
            let mut rest = text.as_str();
            while self.text.len() - from + rest.len() > LINE_BYTES_MAX {
                let fits = rest.floor_char_boundary(LINE_BYTES_MAX - (self.text.len() - from).min(LINE_BYTES_MAX));
                // No word is broken, if there is a blank.
                let fits = rest[..fits].rfind(' ').map_or(fits, |blank| blank + 1);
                self.append(&rest[..fits], *role);
                rest = &rest[fits..];
                self.begin(hang);
                from = self.text.len();
            }
            self.append(rest, *role);
        }
    }

    /// Appends the lines of another document.
    pub fn extend(&mut self, other: &Doc) {
        let (text, pieces) = (self.text.len(), self.pieces.len());
        self.text.push_str(&other.text);
        let moved = |line: &Line| Line { from: line.from + text, first_piece: line.first_piece + pieces, ..*line };
        self.lines.extend(other.lines.iter().map(moved));
        self.pieces.extend(other.pieces.iter().map(|piece| Piece { to: piece.to + text, ..*piece }));
    }

    fn begin(&mut self, hang: u16) {
        self.lines.push(Line { from: self.text.len(), first_piece: self.pieces.len(), hang });
    }

    fn append(&mut self, text: &str, role: Role) {
        if !text.is_empty() {
            self.text.push_str(text);
            self.pieces.push(Piece { to: self.text.len(), role });
        }
    }

    fn next(&self, line: usize) -> (usize, usize) {
        self.lines.get(line + 1).map_or((self.text.len(), self.pieces.len()), |next| (next.from, next.first_piece))
    }

    pub fn text_of(&self, line: usize) -> &str {
        self.lines.get(line).map_or("", |found| &self.text[found.from..self.next(line).0])
    }

    pub fn pieces_of(&self, line: usize) -> impl Iterator<Item = (&str, Role)> {
        let found = self.lines.get(line).copied();
        let (from, first) = found.map_or((0, 0), |found| (found.from, found.first_piece));
        let pieces = if found.is_some() { &self.pieces[first..self.next(line).1] } else { &[] };
        pieces.iter().scan(from, |at, piece| {
            let text = &self.text[*at..piece.to];
            *at = piece.to;
            Some((text, piece.role))
        })
    }

    fn breaks_of(&self, line: usize, columns: usize) -> Vec<std::ops::Range<usize>> {
        let hang = self.lines.get(line).map_or(0, |line| usize::from(line.hang));
        breaks(self.text_of(line), columns, hang.min(columns / 2))
    }

    /// Rows that a line takes.
    fn rows_of(&self, line: usize, columns: usize) -> usize {
        self.breaks_of(line, columns).len()
    }

    /// Rows that the first lines take, counted up to `rows_max`.
    pub fn rows(&self, columns: usize, rows_max: usize) -> usize {
        let mut rows = 0;
        for line in 0..self.len() {
            rows += self.rows_of(line, columns);
            if rows >= rows_max {
                return rows_max;
            }
        }
        rows
    }

    /// The visible rows from `at` on.
    pub fn window(&self, at: At, room: Room) -> Vec<Row> {
        let mut shown = Vec::with_capacity(room.rows);
        let mut skip = at.row;
        for line in at.line..self.len() {
            let hang = usize::from(self.lines[line].hang).min(room.columns / 2);
            let all = self.breaks_of(line, room.columns);
            for (number, range) in all.into_iter().enumerate().skip(std::mem::take(&mut skip)) {
                if shown.len() == room.rows {
                    return shown;
                }
                let mut row: Row = Vec::new();
                if number > 0 && hang > 0 {
                    row.push((" ".repeat(hang), Role::Plain));
                }
                let mut begins = 0;
                for (text, role) in self.pieces_of(line) {
                    let (from, to) = (range.start.max(begins), range.end.min(begins + text.len()));
                    if from < to {
                        row.push((text[from - begins..to - begins].to_owned(), role));
                    }
                    begins += text.len();
                }
                shown.push(row);
            }
        }
        shown
    }

    /// The position `rows` further down, but at most that of a full last screen.
    pub fn down(&self, from: At, rows: usize, room: Room) -> At {
        let mut at = from;
        let mut left = rows;
        while left > 0 && at.line < self.len() {
            let here = self.rows_of(at.line, room.columns);
            if at.row + left < here {
                at.row += left;
                left = 0;
            } else {
                left -= here.saturating_sub(at.row).min(left);
                at = At::line(at.line + 1);
            }
        }
        // A jump may have gone further down than scrolling does.
        at.min(self.end(room).max(from))
    }

    /// The position `rows` further up.
    pub fn up(&self, at: At, rows: usize, room: Room) -> At {
        let mut at = at;
        let mut left = rows;
        while left > at.row {
            if at.line == 0 {
                return At::default();
            }
            left -= at.row + 1;
            at.line -= 1;
            at.row = self.rows_of(at.line, room.columns).saturating_sub(1);
        }
        At { row: at.row - left, ..at }
    }

    /// The position of a full last screen.
    pub fn end(&self, room: Room) -> At {
        self.up(At::line(self.len()), room.rows, room)
    }

    /// The same position, or the nearest valid one after a resize.
    pub fn clamped(&self, at: At, room: Room) -> At {
        let line = at.line.min(self.len().saturating_sub(1));
        At { line, row: at.row.min(self.rows_of(line, room.columns).saturating_sub(1)) }
    }

    /// How far the last row on the screen is down, in percent.
    pub fn percent(&self, at: At, room: Room) -> usize {
        if at >= self.end(room) {
            return 100;
        }
        // A long document counts lines, because counting rows would wrap every line.
        let (shown, all) = match self.len() {
            0..COUNTED_LINES_MAX => {
                let above: usize = (0..at.line).map(|line| self.rows_of(line, room.columns)).sum();
                (above + at.row + room.rows, self.rows(room.columns, usize::MAX))
            }
            lines => (at.line + room.rows, lines),
        };
        (shown * 100 / all.max(1)).min(99)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(rows: Vec<Row>) -> Vec<String> {
        rows.into_iter().map(|row| row.into_iter().map(|(text, _)| text).collect()).collect()
    }

    fn doc() -> Doc {
        let mut doc = Doc::default();
        doc.push("one\ntwo two two", Role::Plain);
        doc.push_pieces(&[("- ", Role::Info), ("a list of words\u{1b}[31m", Role::Plain)], 2);
        doc
    }

    #[test]
    fn only_visible_lines_are_wrapped() {
        let room = Room { columns: 8, rows: 4 };
        assert_eq!(texts(doc().window(At::default(), room)), ["one", "two two", "two", "- a list"]);
        assert_eq!(texts(doc().window(At { line: 1, row: 1 }, room)), ["two", "- a list", "  of", "  words"]);
        let row = &doc().window(At::line(2), room)[0];
        assert_eq!(row[..], [("- ".to_owned(), Role::Info), ("a list".to_owned(), Role::Plain)]);
    }

    #[test]
    fn scrolling_stays_inside_the_document() {
        let (doc, room) = (doc(), Room { columns: 8, rows: 3 });
        let end = doc.end(room);
        assert_eq!(texts(doc.window(end, room)), ["- a list", "  of", "  words"]);
        assert_eq!(doc.down(At::default(), 100, room), end);
        assert_eq!(doc.up(end, 1, room), At { line: 1, row: 1 });
        assert_eq!(doc.up(end, 100, room), At::default());
        assert_eq!(doc.down(At::default(), 2, room), At { line: 1, row: 1 });
        assert_eq!((doc.percent(At::default(), room), doc.percent(end, room)), (50, 100));
        assert_eq!(Doc::default().down(At::default(), 5, room), At::default());
        for rows in 0..7 {
            let down = doc.down(At::default(), rows, room);
            assert_eq!(doc.up(down, rows.min(3), room), At::default(), "{rows}");
        }
    }

    #[test]
    fn a_long_paragraph_has_no_short_row() {
        let mut doc = Doc::default();
        doc.push(&"word ".repeat(10_000), Role::Plain);
        let rows = texts(doc.window(At::default(), Room { columns: 44, rows: 1_200 }));
        assert!(rows.len() > 1_000);
        let short = rows[..rows.len() - 1].iter().filter(|row| row.trim_end().len() < 40).count();
        assert_eq!(short, 0);
    }

    #[test]
    fn a_long_line_is_shown_in_full() {
        let mut doc = Doc::default();
        doc.push(&"漢x".repeat(50_000), Role::Plain);
        let whole: String = (0..doc.len()).map(|line| doc.text_of(line)).collect();
        assert_eq!(whole, "漢x".repeat(50_000));
        assert!((0..doc.len()).all(|line| doc.text_of(line).len() <= LINE_BYTES_MAX));
        let mut both = Doc::default();
        both.push("front", Role::Bad);
        both.extend(&doc);
        assert_eq!((both.text_of(0), both.text_of(1)), ("front", doc.text_of(0)));
        assert_eq!(both.pieces_of(1).next().map(|(_, role)| role), Some(Role::Plain));
    }
}
