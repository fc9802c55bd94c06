//! What tools print for a person: colours on a terminal only, and nothing that could steer it.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime};

use unicode_width::UnicodeWidthStr as _;

use crate::config::Environment;
use crate::engine::visible;

use super::FAILED;

/// How text is set off from other text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// As other text.
    Plain,
    Good,
    Warning,
    Bad,
    /// Less than what stands beside it.
    Faint,
    /// More than what stands below it.
    Strong,
}

/// What stdout can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Screen {
    /// A terminal that takes colours.
    Coloured,
    /// A terminal that does not, or is not to.
    Plain,
    /// No terminal: a file or another program.
    None,
}

impl Screen {
    /// That of our stdout.
    pub(super) fn of_stdout(environment: &Environment) -> Screen {
        if !std::io::stdout().is_terminal() {
            return Screen::None;
        }
        let dumb = environment.get("TERM").is_none_or(|term| term == "dumb");
        if dumb || environment.get("NO_COLOR").is_some() { Screen::Plain } else { Screen::Coloured }
    }

    /// That of our stdout, without colours.
    pub(super) fn of_stdout_plain() -> Screen {
        if std::io::stdout().is_terminal() { Screen::Plain } else { Screen::None }
    }

    /// The same without colours.
    pub(super) fn without_colours(self) -> Screen {
        match self {
            Screen::Coloured | Screen::Plain => Screen::Plain,
            Screen::None => Screen::None,
        }
    }

    /// `text` in a tone.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match (self, tone) {
            (Screen::Plain | Screen::None, _) | (Screen::Coloured, Tone::Plain) => return text.to_owned(),
            (Screen::Coloured, Tone::Good) => "32",
            (Screen::Coloured, Tone::Warning) => "33",
            (Screen::Coloured, Tone::Bad) => "31",
            (Screen::Coloured, Tone::Faint) => "2",
            (Screen::Coloured, Tone::Strong) => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Columns of the terminal; `None` if stdout is not one, or does not say.
pub(super) fn columns(to: Screen) -> Option<usize> {
    match to {
        Screen::None => None,
        Screen::Coloured | Screen::Plain => {
            let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
            Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
        }
    }
}

/// Columns of the terminal that stderr is; `None` if it is not one.
pub(super) fn columns_of_stderr() -> Option<usize> {
    let stderr = std::io::stderr();
    let size = stderr.is_terminal().then(|| rustix::termios::tcgetwinsize(stderr).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Least room for text behind an indent, in columns.
const ROOM_MIN: usize = 20;

/// Text that begins at column `first`, broken between words into lines below an indent. A command in backticks is one word, so
/// that it can be copied; the terminal breaks a word that fits no line.
pub(super) fn wrapped(text: &str, first: usize, indent: usize, columns_max: Option<usize>) -> String {
    let Some(columns_max) = columns_max else { return text.to_owned() };
    let indent = if indent + ROOM_MIN > columns_max { indent.min(2) } else { indent };
    let (mut wrapped, mut column, mut is_command) = (String::new(), first % columns_max, false);
    let words = text.split(|char: char| {
        is_command ^= char == '`';
        char == ' ' && !is_command
    });
    for (number, word) in words.enumerate() {
        let width = word.width();
        if number > 0 && column + 1 + width > columns_max && indent + width <= columns_max {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            column = indent;
        } else if number > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += width;
        column = if column > columns_max { column % columns_max } else { column };
    }
    wrapped
}

/// Prints what a tool was asked for; returns the status to exit with.
pub(super) fn print(text: &str) -> i32 {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => 0,
        // The reader of our output has had enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => 0,
        Err(_) => FAILED,
    }
}

/// Text that others wrote, without what could steer a terminal or break a line, and with what would have it read otherwise than it
/// stands there made visible.
pub(super) fn plain(text: &str) -> String {
    visible(&text.replace(|char: char| char.is_control(), "\u{fffd}")).into_owned()
}

/// A point in time, RFC 3339 to the second; of years that cannot be written so, the last one that can be.
pub(super) fn time(at: SystemTime) -> String {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_seconds(at.min(SystemTime::UNIX_EPOCH + LAST)).to_string()
}

/// How long ago something was, to the second below an hour and coarser above.
pub(super) fn age(at: SystemTime, now: SystemTime) -> String {
    let seconds = now.duration_since(at).unwrap_or_default().as_secs();
    let coarse = match seconds {
        0..3_600 => seconds,
        3_600..86_400 => seconds / 60 * 60,
        86_400.. => seconds / 3_600 * 3_600,
    };
    humantime::format_duration(Duration::from_secs(coarse)).to_string()
}

/// How long something took: to the millisecond below a second, else to the second.
pub(super) fn lasted(took: Duration) -> String {
    let coarse = match took.as_secs() {
        0 => Duration::from_millis(took.as_millis() as u64),
        seconds => Duration::from_secs(seconds),
    };
    humantime::format_duration(coarse).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::deceives;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(plain("a\x1b[31m\nb\u{9b}"), "a\u{fffd}[31m\u{fffd}b\u{fffd}");
        assert_eq!(plain("rm \u{202e}gpj.a\u{2069}"), r"rm \u{202e}gpj.a\u{2069}");
        for char in (0..=0x10_ffff).filter_map(char::from_u32) {
            let shown = plain(&char.to_string());
            assert!(!shown.chars().any(|char| char.is_control() || deceives(char)), "{char:?}: {shown:?}");
        }
    }

    #[test]
    fn lines_break_between_words() {
        let check = |text: &str, first, indent, columns_max, expect: &str| {
            assert_eq!(wrapped(text, first, indent, columns_max), expect);
        };
        check("one two three four five six", 4, 4, Some(24), "one two three four\n    five six");
        check("one two three four five six", 4, 4, None, "one two three four five six");
        check("say `codex-shim show latest` now", 0, 0, Some(26), "say\n`codex-shim show latest`\nnow");
        check("see /a/folder/that/is/longer/than/it now", 0, 0, Some(19), "see /a/folder/that/is/longer/than/it\nnow");
        check("   1. a  b", 0, 0, Some(30), "   1. a  b");
    }

    #[test]
    fn colours_are_for_terminals() {
        assert_eq!(Screen::Coloured.paint(Tone::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Screen::Plain.paint(Tone::Bad, "x"), "x");
        assert_eq!(Screen::None.paint(Tone::Bad, "x"), "x");
    }

    #[test]
    fn ages_are_as_fine_as_they_need_be() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let check = |seconds, expect: &str| assert_eq!(age(now - Duration::from_secs(seconds), now), expect);
        check(0, "0s");
        check(62, "1m 2s");
        check(3_700, "1h 1m");
        check(90_061, "1day 1h");
    }
}
