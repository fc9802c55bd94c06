//! An SVG of a terminal's screen, made from text with escape sequences for colours.

use std::ops::Range;

use unicode_width::UnicodeWidthChar as _;

/// Width and height of a cell.
pub(crate) const CELL: (f64, f64) = (8.4, 18.0);

/// Margin around the screen.
pub(crate) const MARGIN: f64 = 14.0;

/// Distance of the baseline from the top of a cell.
pub(crate) const BASELINE: f64 = CELL.1 * 0.75;

const BACKGROUND: &str = "#1b1d23";
const FOREGROUND: &str = "#d7dae0";

/// The style of characters.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Style {
    colour: Option<u8>,
    is_bold: bool,
    is_dim: bool,
    is_italic: bool,
    is_underlined: bool,
    is_reversed: bool,
}

/// Characters of one style, starting at a column.
#[derive(Debug, PartialEq)]
struct Run {
    column: usize,
    columns: usize,
    style: Style,
    text: String,
}

impl Style {
    /// Takes the codes between `ESC [` and `m`.
    fn take(&mut self, codes: &str) {
        let mut codes = codes.split(';').map(|code| code.parse::<u8>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                // A colour of the 256-colour table; its first eight are the ones below.
                38 => self.colour = codes.nth(1),
                0 => *self = Style::default(),
                1 => self.is_bold = true,
                2 => self.is_dim = true,
                3 => self.is_italic = true,
                4 => self.is_underlined = true,
                7 => self.is_reversed = true,
                22 => (self.is_bold, self.is_dim) = (false, false),
                23 => self.is_italic = false,
                24 => self.is_underlined = false,
                27 => self.is_reversed = false,
                colour @ 30..=37 => self.colour = Some(colour - 30),
                39 => self.colour = None,
                _ => {}
            }
        }
    }

    fn fill(self) -> &'static str {
        match self.colour {
            Some(1) => "#f0717a",
            Some(2) => "#8fcf7f",
            Some(3) => "#e7c46f",
            Some(4) => "#6fa8f0",
            Some(5) => "#c792ea",
            Some(6) => "#66c3cc",
            Some(_) | None => FOREGROUND,
        }
    }

    fn faint(self) -> &'static str {
        if self.is_dim { " opacity=\"0.6\"" } else { "" }
    }
}

/// The runs of a row. `style` is the style before the row, and after the call the one after it.
fn runs(row: &str, style: &mut Style) -> Vec<Run> {
    let (mut runs, mut column, mut rest) = (Vec::<Run>::new(), 0, row);
    while let Some(letter) = rest.chars().next() {
        if let Some((codes, behind)) = rest.strip_prefix("\x1b[").and_then(|codes| codes.split_once('m')) {
            style.take(codes);
            rest = behind;
            continue;
        }
        let columns = letter.width().unwrap_or(0);
        match runs.last_mut() {
            Some(run) if run.style == *style => {
                run.text.push(letter);
                run.columns += columns;
            }
            Some(_) | None => runs.push(Run { column, columns, style: *style, text: letter.to_string() }),
        }
        column += columns;
        rest = &rest[letter.len_utf8()..];
    }
    runs
}

/// A part of a run that every viewer spells alike: letters of one kind, without a blank at an end or two blanks in a row, since
/// viewers differ in which blanks they keep.
#[derive(Debug)]
struct Piece {
    kind: Kind,
    column: usize,
    columns: usize,
    /// Its bytes in the text of the run.
    bytes: Range<usize>,
}

/// Letters that have one width in whatever font shows them. A font that has ASCII may lack others.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Ascii,
    Other { columns: usize },
}

impl Run {
    fn pieces(&self) -> Vec<Piece> {
        let (mut pieces, mut column) = (Vec::<Piece>::new(), self.column);
        for (start, letter) in self.text.char_indices() {
            let (end, columns) = (start + letter.len_utf8(), letter.width().unwrap_or(0));
            let kind = if letter.is_ascii() { Kind::Ascii } else { Kind::Other { columns } };
            let gap_max = usize::from(kind == Kind::Ascii);
            match pieces.last_mut() {
                _ if letter == ' ' => {}
                Some(piece)
                    if columns == 0 || piece.kind == kind && column <= piece.column + piece.columns + gap_max =>
                {
                    piece.columns = column + columns - piece.column;
                    piece.bytes.end = end;
                }
                Some(_) | None => pieces.push(Piece { kind, column, columns, bytes: start..end }),
            }
            column += columns;
        }
        pieces
    }

    /// What is behind its letters: a background, and a line below them.
    fn rectangles(&self, top: f64) -> String {
        let (left, wide) = (left_of(self.column), self.columns as f64 * CELL.0);
        let (fill, faint) = (self.style.fill(), self.style.faint());
        let mut rectangles = String::new();
        for (is_there, top, high) in
            [(self.style.is_reversed, top, CELL.1), (self.style.is_underlined, top + BASELINE + 2.0, 1.0)]
        {
            if is_there {
                rectangles += &format!(
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{high}\" fill=\"{fill}\"{faint}/>\n"
                );
            }
        }
        rectangles
    }

    /// Its letters. A viewer stretches each piece to the width of its cells, whatever font it has.
    fn texts(&self, top: f64) -> String {
        let fill = if self.style.is_reversed { BACKGROUND } else { self.style.fill() };
        let faint = self.style.faint();
        let weight = if self.style.is_bold { " font-weight=\"bold\"" } else { "" };
        let italic = if self.style.is_italic { " font-style=\"italic\"" } else { "" };
        let text = |piece: Piece| {
            format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
                 fill=\"{fill}\"{weight}{faint}{italic}>{}</text>\n",
                left_of(piece.column),
                top + BASELINE,
                piece.columns as f64 * CELL.0,
                escaped(&self.text[piece.bytes])
            )
        };
        self.pieces().into_iter().map(text).collect()
    }
}

fn left_of(column: usize) -> f64 {
    MARGIN + column as f64 * CELL.0
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// An SVG of a screen.
pub(crate) fn svg(title: &str, screen: &str, columns: usize, rows: usize) -> String {
    let width = columns as f64 * CELL.0 + 2.0 * MARGIN;
    let height = rows as f64 * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <title>{}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n",
        escaped(title)
    );
    let mut style = Style::default();
    for (row, line) in screen.lines().enumerate().take(rows) {
        let top = MARGIN + row as f64 * CELL.1;
        for run in runs(line, &mut style) {
            svg += &run.rectangles(top);
            svg += &run.texts(top);
        }
    }
    svg + "</svg>\n"
}
