//! Output for people: colours on terminals only, and untrusted text escaped.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime};

use unicode_width::UnicodeWidthStr as _;

use super::FAILED;
use crate::config::Environment;
use crate::engine::visible;
use crate::history::Activity;

/// Emphasis of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
    /// Less than the text beside it.
    Faint,
    /// More than the text below it.
    Strong,
}

/// The capabilities of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Screen {
    /// A terminal with colours.
    Coloured,
    /// A terminal without colours.
    Plain,
    /// A file or another program.
    None,
}

impl Screen {
    pub(super) fn of_stdout(environment: &Environment) -> Screen {
        if !std::io::stdout().is_terminal() {
            return Screen::None;
        }
        let dumb = environment.get("TERM").is_none_or(|term| term == "dumb");
        if dumb || environment.get("NO_COLOR").is_some() { Screen::Plain } else { Screen::Coloured }
    }

    pub(super) fn of_stdout_plain() -> Screen {
        if std::io::stdout().is_terminal() { Screen::Plain } else { Screen::None }
    }

    pub(super) fn without_colours(self) -> Screen {
        match self {
            Screen::Coloured | Screen::Plain => Screen::Plain,
            Screen::None => Screen::None,
        }
    }

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

/// Columns of the terminal; `None` if stdout is not one, or its size is unknown.
pub(super) fn columns(to: Screen) -> Option<usize> {
    match to {
        Screen::None => None,
        Screen::Coloured | Screen::Plain => {
            let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
            Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
        }
    }
}

/// Rows of the terminal on stdout; `None` if it is not one, or its size is unknown.
pub(super) fn rows() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

/// Columns of the terminal on stderr; `None` if it is not one.
pub(super) fn columns_of_stderr() -> Option<usize> {
    let stderr = std::io::stderr();
    let size = stderr.is_terminal().then(|| rustix::termios::tcgetwinsize(stderr).ok()).flatten()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Narrowest column for indented text.
const ROOM_MIN: usize = 20;

/// Wraps text that begins at column `first` between words and indents further lines. A command in backticks counts as one word,
/// so that it can be copied; the terminal breaks words that are too long.
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

/// A state: in words on a terminal, else as in JSON.
pub(super) fn state(state: Activity, to: Screen) -> &'static str {
    match (to, state) {
        (Screen::Coloured | Screen::Plain, Activity::WaitingPermission) => "waits for permission",
        (Screen::Coloured | Screen::Plain, Activity::WaitingInput) => "waits for input",
        (Screen::Coloured | Screen::Plain | Screen::None, state) => state.name(),
    }
}

/// Prints text to stdout; returns the exit status.
pub(super) fn print(text: &str) -> i32 {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => 0,
        // The reader has closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => 0,
        Err(_) => FAILED,
    }
}

/// Escapes untrusted text: replaces control characters and line breaks, and makes bidirectional and invisible characters
/// visible.
pub(super) fn plain(text: &str) -> String {
    visible(&text.replace(|char: char| char.is_control(), "\u{fffd}")).into_owned()
}

/// RFC 3339 to the second, limited to years that it can express.
pub(super) fn time(at: SystemTime) -> String {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_seconds(at.min(SystemTime::UNIX_EPOCH + LAST)).to_string()
}

/// The age of something: to the second below an hour, coarser above.
pub(super) fn age(at: SystemTime, now: SystemTime) -> String {
    let seconds = now.duration_since(at).unwrap_or_default().as_secs();
    let coarse = match seconds {
        0..3_600 => seconds,
        3_600..86_400 => seconds / 60 * 60,
        86_400.. => seconds / 3_600 * 3_600,
    };
    humantime::format_duration(Duration::from_secs(coarse)).to_string()
}

/// A number and its unit; `None` if it is 0.
pub(super) fn counted(count: u64, one: &str, many: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {many}")),
    }
}

/// A duration: to the millisecond below a second, else to the second.
pub(super) fn lasted(took: Duration) -> String {
    let coarse = match took.as_secs() {
        0 => Duration::from_millis(took.as_millis() as u64),
        seconds => Duration::from_secs(seconds),
    };
    humantime::format_duration(coarse).to_string()
}

#[cfg(test)]
mod tests {
    use crate::engine::deceives;

    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("a\x1b[31m\nb\u{9b}"), "a\u{fffd}[31m\u{fffd}b\u{fffd}");
        assert_eq!(plain("rm \u{202e}gpj.a\u{2069}"), r"rm \u{202e}gpj.a\u{2069}");
        for char in (0..=0x10_ffff).filter_map(char::from_u32) {
            let shown = plain(&char.to_string());
            assert!(!shown.chars().any(|char| char.is_control() || deceives(char)), "{char:?}: {shown:?}");
        }
    }

    #[test]
    fn lines_wrap_between_words() {
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
    fn precision_of_ages_falls_with_age() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let check = |seconds, expect: &str| assert_eq!(age(now - Duration::from_secs(seconds), now), expect);
        check(0, "0s");
        check(62, "1m 2s");
        check(3_700, "1h 1m");
        check(90_061, "1day 1h");
    }
}
