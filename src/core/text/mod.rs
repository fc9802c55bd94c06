//! Text for a terminal: width, wrapping, removal of everything that could steer the terminal, and times of day.
//!
//! Pure; the time zone is read once at the start and passed in. Everything that is drawn passes through [`plain`]; no other path
//! leads from a peer's bytes to the screen.

pub mod doc;
pub mod markdown;

use std::ops::Range;

use bytesize::ByteSize;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use crate::engine::terminal::without_sequences;
use crate::engine::{deceives, visible};

/// Distance between two tab stops, in columns.
const TAB_COLUMNS: usize = 8;

/// One line without escape sequences and control characters. Tabs become blanks up to the next tab stop, and characters that
/// reorder text become their code points.
///
/// If `\r` overprinted the line, only the last version remains, as on a terminal.
pub fn plain(line: &str) -> String {
    let line = line.trim_end_matches(['\r', '\n']);
    let line = line.rsplit('\r').next().unwrap_or(line);
    if !line.chars().any(|char| char.is_control() || deceives(char)) {
        return line.to_owned();
    }
    let shown: String = expanded(&without_sequences(line))
        .chars()
        .map(|char| if char.is_control() { '\u{fffd}' } else { char })
        .collect();
    visible(&shown).into_owned()
}

/// One line in which every character is visible: like [`plain`], but control characters become their code points, too. For all
/// that a person decides on, where no part may be left out.
pub fn exact(line: &str) -> String {
    let is_hidden = |char: char| (char.is_control() && char != '\t') || deceives(char);
    let mut shown = String::with_capacity(line.len());
    for char in line.chars() {
        match is_hidden(char) {
            true => shown.extend(char.escape_unicode()),
            false => shown.push(char),
        }
    }
    expanded(&shown)
}

/// [`exact`] for each line of a text.
pub fn exact_lines(text: &str) -> String {
    text.split('\n').map(exact).collect::<Vec<_>>().join("\n")
}

/// A line with its tabs expanded.
pub fn expanded(line: &str) -> String {
    let mut parts = line.split('\t');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    let mut column = width(&shown);
    for part in parts {
        let pad = TAB_COLUMNS - column % TAB_COLUMNS;
        shown.extend(std::iter::repeat_n(' ', pad));
        shown.push_str(part);
        column += pad + width(part);
    }
    shown
}

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The start of a text that fits in `columns`, with `…` if something is missing.
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

/// [`cut`], but between two words if there are two.
pub fn cut_words(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let fits = head(text, columns.saturating_sub(1));
    let ends_word = text[fits.len()..].starts_with(' ');
    let words = if ends_word { Some(fits) } else { fits.rfind(' ').map(|blank| &fits[..blank]) };
    match words.map(str::trim_end) {
        Some(words) if !words.is_empty() => format!("{words}…"),
        Some(_) | None => cut(text, columns),
    }
}

/// The end of a text that fits in `columns`, with `…` in front if something is missing; for paths, because their end matters
/// most.
pub fn cut_front(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut taken = 1;
    let mut from = text.len();
    for (at, grapheme) in text.grapheme_indices(true).rev() {
        taken += grapheme.width();
        if taken > columns {
            break;
        }
        from = at;
    }
    if columns == 0 { String::new() } else { format!("…{}", &text[from..]) }
}

/// Text in exactly `columns`: cut, or padded with blanks.
pub fn fitted(text: &str, columns: usize) -> String {
    let mut text = cut(text, columns);
    let pad = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', pad));
    text
}

/// The longest start of a text that fits in `columns`.
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

/// The rows of one plain line on a screen of `columns`, broken between words if possible. Rows after the first have `hang`
/// columns less.
pub fn breaks(line: &str, columns: usize, hang: usize) -> Vec<Range<usize>> {
    let mut rows = Vec::new();
    let mut from = 0;
    let mut room = columns.max(1);
    while width_exceeds(&line[from..], room) {
        let rest = &line[from..];
        let fits = head(rest, room);
        let is_word_before = |at: &usize| rest[..*at].contains(|char| char != ' ');
        let at = match fits.rfind(' ').filter(is_word_before) {
            _ if rest[fits.len()..].starts_with(' ') && !fits.is_empty() => fits.len() + 1,
            Some(blank) => blank + 1,
            // Not even one character fits: it gets its own row and is cut when it is drawn.
            None if fits.is_empty() => rest.graphemes(true).next().map_or(rest.len(), str::len),
            None => fits.len(),
        };
        rows.push(from..from + rest[..at].trim_end().len());
        from += at;
        room = columns.saturating_sub(hang).max(1);
    }
    if from < line.len() || line.is_empty() {
        rows.push(from..line.len());
    }
    rows
}

/// Whether a text is wider than `columns`; reads no further than necessary.
fn width_exceeds(text: &str, columns: usize) -> bool {
    text.len() > columns && head(text, columns).len() < text.len()
}

/// The rows that a text takes on a screen of `columns`.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut rows = Vec::new();
    for line in text.split('\n') {
        let line = plain(line);
        rows.extend(breaks(&line, columns, 0).into_iter().map(|row| line[row].to_owned()));
    }
    rows
}

/// A number of tokens in compact form.
pub fn short(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{:.1}k", number as f64 / 1e3).replace(".0k", "k"),
        _ => format!("{:.1}M", number as f64 / 1e6).replace(".0M", "M"),
    }
}

/// A number of bytes for a person.
pub fn bytes(count: u64) -> String {
    ByteSize(count).display().iec().to_string()
}

/// A duration in compact form.
pub fn lasted(us: u64) -> String {
    let seconds = us / 1_000_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Wraps a zone that was read elsewhere.
    pub fn new(zone: TimeZone) -> Zone {
        Zone(zone)
    }

    pub fn as_time_zone(&self) -> &TimeZone {
        &self.0
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn utc() -> Zone {
        Zone(TimeZone::UTC)
    }

    fn at(&self, us: u64) -> Zoned {
        let at = i64::try_from(us).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
        at.unwrap_or(Timestamp::MAX).to_zoned(self.0.clone())
    }

    /// `14:05:09`, of microseconds since the Unix epoch.
    pub fn time(&self, us: u64) -> String {
        self.at(us).strftime("%H:%M:%S").to_string()
    }

    /// `Thu 2026-01-01`
    pub fn day(&self, us: u64) -> String {
        self.at(us).strftime("%a %Y-%m-%d").to_string()
    }

    /// `2026-01-01 14:05:09 +01:00`
    pub fn whole(&self, us: u64) -> String {
        self.at(us).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
    }

    /// The zone as the user reads it: `local time, +01:00`.
    pub fn name(&self, us: u64) -> String {
        format!("local time, {}", self.at(us).strftime("%:z"))
    }
}

/// A time in RFC 3339, in microseconds since the Unix epoch.
pub fn parsed_us(text: &str) -> Option<u64> {
    let at: Timestamp = text.parse().ok()?;
    u64::try_from(at.as_microsecond()).ok()
}

#[cfg(test)]
mod tests {
    use jiff::tz::offset;

    use super::*;

    #[test]
    fn control_characters_are_removed() {
        let check = |line: &str, expect: &str| assert_eq!(plain(line), expect, "{line:?}");
        check("plain äöü 漢字", "plain äöü 漢字");
        check("\x1b[31mred\x1b[0m", "red");
        check("\x1b]52;c;aGk=\x07x", "x");
        check("a\tb", "a       b");
        check("\t\x1b[1mab\x1b[0m\tc", "        ab      c");
        check("12345678\tx", "12345678        x");
        check("10%\r50%\r100%\r\n", "100%");
        check("a\u{9b}31mb", "a\u{fffd}31mb");
        check("abc\u{202e}fed", r"abc\u{202e}fed");
        for char in (0..=0x2fff).filter_map(char::from_u32) {
            let shown = plain(&format!("<{char}>"));
            assert!(!shown.chars().any(|char| char.is_control() || deceives(char)), "{char:?}: {shown:?}");
        }
    }

    #[test]
    fn lines_wrap_by_width() {
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
        assert_eq!([7, 8, 2].map(|columns| cut_words("one two three", columns)), ["one…", "one two…", "o…"]);
        check("    abcdefgh", 6, &["    ab", "cdefgh"]);
        assert_eq!(cut_front("src/deep/name.rs", 9), "…/name.rs");
        assert_eq!(cut_front("abc", 0), "");
        assert_eq!(breaks("- one two", 6, 2), [0..5, 6..9]);
        check("one two six", 7, &["one two", "six"]);
        assert_eq!(fitted("ab", 4), "ab  ");
    }

    #[test]
    fn numbers_and_durations_are_compact() {
        let told = [0, 59, 61, 3_700, 90_000].map(|seconds| lasted(seconds * 1_000_000));
        assert_eq!(told, ["0s", "59s", "1m 01s", "1h 01m", "1d 01h"]);
        assert_eq!([999, 12_345, 2_000_000].map(short), ["999", "12.3k", "2M"]);
        assert_eq!([0, 1_536, 10 << 20].map(bytes), ["0 B", "1.5 KiB", "10.0 MiB"]);
    }

    #[test]
    fn times_are_read() {
        let read = ["1970-01-01T00:00:01.500Z", "2026-01-01T00:00:00Z", "", "x", "1969-01-01T00:00:00Z"].map(parsed_us);
        assert_eq!(read, [Some(1_500_000), Some(1_767_225_600_000_000), None, None, None]);
    }

    #[test]
    fn times_use_the_zone() {
        let zone = Zone::new(TimeZone::fixed(offset(5)));
        let us = 1_767_225_599_000_000;
        assert_eq!(zone.time(us), "04:59:59");
        assert_eq!(zone.day(us), "Thu 2026-01-01");
        assert_eq!(zone.whole(us), "2026-01-01 04:59:59 +05:00");
        assert_eq!(zone.name(us), "local time, +05:00");
        assert_eq!(Zone::utc().time(us), "23:59:59");
        let _ = zone.whole(u64::MAX);
    }
}
