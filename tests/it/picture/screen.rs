//! An SVG of a terminal's screen, made from text with escape sequences for colours.

use unicode_width::UnicodeWidthChar as _;

/// Width and height of a cell.
const CELL: (f64, f64) = (8.4, 18.0);

/// Margin around the screen.
const MARGIN: f64 = 14.0;

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

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// An SVG of a screen.
pub fn svg(title: &str, screen: &str, columns: usize, rows: usize) -> String {
    let width = columns as f64 * CELL.0 + 2.0 * MARGIN;
    let height = rows as f64 * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\" \
         xml:space=\"preserve\">\n<title>{title}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    let mut style = Style::default();
    for (row, line) in screen.lines().enumerate().take(rows) {
        let top = MARGIN + row as f64 * CELL.1;
        for run in runs(line, &mut style).iter().filter(|run| run.style.is_reversed || !run.text.trim().is_empty()) {
            let (left, wide) = (MARGIN + run.column as f64 * CELL.0, run.columns as f64 * CELL.0);
            let mut fill = run.style.fill();
            if run.style.is_reversed {
                svg += &format!(
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{}\" fill=\"{fill}\"/>\n",
                    CELL.1
                );
                fill = BACKGROUND;
            }
            let weight = if run.style.is_bold { " font-weight=\"bold\"" } else { "" };
            let faint = if run.style.is_dim { " opacity=\"0.6\"" } else { "" };
            let italic = if run.style.is_italic { " font-style=\"italic\"" } else { "" };
            let line = if run.style.is_underlined { " text-decoration=\"underline\"" } else { "" };
            svg += &format!(
                "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{wide:.1}\" fill=\"{fill}\"{weight}{faint}{italic}{line}>{}</text>\n",
                top + CELL.1 * 0.75,
                escaped(&run.text)
            );
        }
    }
    svg + "</svg>\n"
}
