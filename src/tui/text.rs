//! Text of others as a terminal may show it: how wide it is, where it is broken, and nothing in it that could steer.
//!
//! Pure. Whatever is drawn comes through [`plain`]; no other way leads from a server's bytes to the screen.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::engine::{deceives, visible};

/// What a tab is shown as.
const TAB: &str = "    ";

/// One line without escape sequences and without what could steer a terminal; what turns the order of its letters is seen as its
/// number.
///
/// Of what was printed over itself by `\r` the last is left, as a terminal would show it.
#[must_use]
pub fn plain(line: &str) -> String {
    let line = line.trim_end_matches(['\r', '\n']);
    let line = line.rsplit('\r').next().unwrap_or(line);
    if !line.chars().any(|char| char.is_control() || deceives(char)) {
        return line.to_owned();
    }
    let shown = |char: char| match char {
        '\t' => TAB.to_owned(),
        _ if char.is_control() => "\u{fffd}".to_owned(),
        _ => char.to_string(),
    };
    visible(&anstream::adapter::strip_str(line).to_string().chars().map(shown).collect::<String>()).into_owned()
}

/// Columns that a text takes.
#[must_use]
pub fn width(text: &str) -> usize {
    text.width()
}

/// The start of a text that takes at most `columns`, with a mark where something is missing.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = head(text, columns.saturating_sub(1)).to_owned();
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// The longest start of a text that takes at most `columns`.
fn head(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    for (at, grapheme) in text.grapheme_indices(true) {
        taken += grapheme.width();
        if taken > columns {
            return &text[..at];
        }
    }
    text
}

/// The lines that a text takes on a screen of so many columns, broken between words where there are any.
#[must_use]
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let line = plain(line);
        let mut rest = line.as_str();
        while width(rest) > columns {
            let fits = head(rest, columns);
            let at = match fits.rfind(' ').filter(|at| *at > 0) {
                Some(blank) => blank + 1,
                // Not even one letter fits: it goes out alone all the same, and is cut where it is drawn.
                None if fits.is_empty() => rest.graphemes(true).next().map_or(rest.len(), str::len),
                None => fits.len(),
            };
            lines.push(rest[..at].trim_end().to_owned());
            rest = &rest[at..];
        }
        if !rest.is_empty() || line.is_empty() {
            lines.push(rest.to_owned());
        }
    }
    lines
}

/// A number of bytes or tokens in a few letters.
#[must_use]
pub fn short(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{:.1}k", number as f64 / 1e3),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

/// A time that has passed, in a few letters.
#[must_use]
pub fn lasted(us: u64) -> String {
    let seconds = us / 1_000_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A line that is being typed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Field {
    text: String,
    /// Where the cursor is, in bytes.
    at: usize,
}

/// What is typed may be a secret.
impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Field({} bytes)", self.text.len())
    }
}

/// Longest text that can be typed or pasted, in bytes: the control socket takes 1 MiB with what stands around it.
pub const TYPED_BYTES_MAX: usize = 900 << 10;

impl Field {
    /// One that holds a text, the cursor behind it.
    #[must_use]
    pub fn of(text: String) -> Field {
        let at = text.len();
        Field { text, at }
    }

    /// What was typed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What stands in front of the cursor.
    #[must_use]
    pub fn before_cursor(&self) -> &str {
        &self.text[..self.at]
    }

    /// What was typed; nothing is left.
    pub fn take(&mut self) -> String {
        self.at = 0;
        std::mem::take(&mut self.text)
    }

    /// Puts a text in at the cursor, without control characters but line ends; what is too much is left out.
    pub fn insert(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', TAB);
        let kept: String = text.chars().filter(|char| *char == '\n' || !char.is_control()).collect();
        let room = TYPED_BYTES_MAX.saturating_sub(self.text.len());
        let kept = &kept[..kept.floor_char_boundary(room)];
        self.text.insert_str(self.at, kept);
        self.at += kept.len();
    }

    /// Takes away what stands in front of the cursor.
    pub fn backspace(&mut self) {
        let from = self.text[..self.at].grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
        self.text.replace_range(from..self.at, "");
        self.at = from;
    }

    /// Takes away the word in front of the cursor.
    pub fn backspace_word(&mut self) {
        let kept = self.text[..self.at].trim_end();
        let from = kept.rfind([' ', '\n']).map_or(0, |at| at + 1);
        self.text.replace_range(from..self.at, "");
        self.at = from;
    }

    /// Takes away all in front of the cursor.
    pub fn clear_before(&mut self) {
        self.text.replace_range(..self.at, "");
        self.at = 0;
    }

    /// Moves the cursor to the left.
    pub fn left(&mut self) {
        self.at = self.text[..self.at].grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
    }

    /// Moves the cursor to the right.
    pub fn right(&mut self) {
        self.at += self.text[self.at..].graphemes(true).next().map_or(0, str::len);
    }

    /// Moves the cursor to the start.
    pub fn home(&mut self) {
        self.at = 0;
    }

    /// Moves the cursor to the end.
    pub fn end(&mut self) {
        self.at = self.text.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        let check = |line: &str, expect: &str| assert_eq!(plain(line), expect, "{line:?}");
        check("plain äöü 漢字", "plain äöü 漢字");
        check("\x1b[31mred\x1b[0m", "red");
        check("\x1b]52;c;aGk=\x07x", "x");
        check("a\tb", "a    b");
        check("10%\r50%\r100%\r\n", "100%");
        check("a\u{9b}31mb", "a\u{fffd}31mb");
        check("abc\u{202e}fed", r"abc\u{202e}fed");
        for char in (0..=0x2fff).filter_map(char::from_u32) {
            let shown = plain(&format!("<{char}>"));
            assert!(!shown.chars().any(|char| char.is_control() || deceives(char)), "{char:?}: {shown:?}");
        }
    }

    #[test]
    fn lines_are_broken_by_width() {
        let check = |text: &str, columns, expect: &[&str]| assert_eq!(wrap(text, columns), expect, "{text:?}");
        check("one two three", 8, &["one two", "three"]);
        check("abcdefgh", 3, &["abc", "def", "gh"]);
        check("漢字漢字", 5, &["漢字", "漢字"]);
        check("漢", 1, &["漢"]);
        check("漢字", 1, &["漢", "字"]);
        check("a\n\nb", 4, &["a", "", "b"]);
        check("", 4, &[""]);
        check("👩‍👩‍👧x", 2, &["👩‍👩‍👧", "x"]);
        assert_eq!(cut("漢字漢字", 6), "漢字…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn a_field_is_edited() {
        let mut field = Field::default();
        field.insert("one two\x1b[31m");
        assert_eq!(field.text(), "one two[31m");
        field.backspace_word();
        field.insert("é👩‍👩‍👧");
        field.backspace();
        field.left();
        field.insert("x");
        assert_eq!(field.text(), "one xé");
        field.home();
        field.right();
        field.clear_before();
        assert_eq!((field.text(), field.before_cursor()), ("ne xé", ""));
        field.end();
        field.insert(&"y".repeat(TYPED_BYTES_MAX));
        assert_eq!(field.text().len(), TYPED_BYTES_MAX);
        assert_eq!(field.take().len(), TYPED_BYTES_MAX);
        assert_eq!(format!("{field:?}"), "Field(0 bytes)");
    }

    #[test]
    fn numbers_and_times_are_short() {
        let told = [0, 59, 61, 3_700, 90_000].map(|seconds| lasted(seconds * 1_000_000));
        assert_eq!(told, ["0s", "59s", "1m 01s", "1h 01m", "1d 01h"]);
        assert_eq!([999, 12_345, 2_000_000].map(short), ["999", "12.3k", "2.0M"]);
    }
}
