//! Output for people: colours on terminals only, untrusted text escaped, lines that fit the terminal, and times in the local zone or,
//! with `--utc`, in UTC.

use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use clap::Args;
use textwrap::core::{Word, display_width};
use textwrap::{WordSeparator, WordSplitter, WrapAlgorithm};
use unicode_width::UnicodeWidthChar as _;

use super::{CliError, FAILED};
use crate::capture::terminal_size;
use crate::config::Environment;
use crate::control::local_time::Zone;
use crate::engine::visible;
use crate::history::Activity;
use crate::history::micros_of;
use crate::os::terminals;

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

/// The capabilities of stdout or stderr.
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
        Screen::of(std::io::stdout().is_terminal(), environment)
    }

    /// The capabilities of stderr.
    pub(super) fn of_stderr(environment: &Environment) -> Screen {
        Screen::of(std::io::stderr().is_terminal(), environment)
    }

    fn of(is_terminal: bool, environment: &Environment) -> Screen {
        if !is_terminal {
            return Screen::None;
        }
        let dumb = environment.get("TERM").is_none_or(|term| term == "dumb");
        if dumb || environment.get("NO_COLOR").is_some() { Screen::Plain } else { Screen::Coloured }
    }

    pub(super) fn of_stdout_plain() -> Screen {
        if std::io::stdout().is_terminal() { Screen::Plain } else { Screen::None }
    }

    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match (self, tone) {
            (Screen::Plain | Screen::None, _) | (Screen::Coloured, Tone::Plain) => return text.to_owned(),
            // Blanks have no colour, and a line that begins with them is one that is indented.
            (Screen::Coloured, _) if text.trim_start_matches(' ').is_empty() => return text.to_owned(),
            (Screen::Coloured, Tone::Good) => "32",
            (Screen::Coloured, Tone::Warning) => "33",
            (Screen::Coloured, Tone::Bad) => "31",
            (Screen::Coloured, Tone::Faint) => "2",
            (Screen::Coloured, Tone::Strong) => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Columns of the terminal; `None` if stdout is not one.
pub(super) fn columns(to: Screen) -> Option<usize> {
    match to {
        Screen::None => None,
        Screen::Coloured | Screen::Plain => terminal_size(std::io::stdout()).map(|size| usize::from(size.ws_col)),
    }
}

/// Rows of the terminal on stdout; `None` if it is not one.
pub(super) fn rows() -> Option<usize> {
    terminal_size(std::io::stdout()).map(|size| usize::from(size.ws_row))
}

/// Columns of the terminal on stderr; `None` if it is not one.
pub(super) fn columns_of_stderr() -> Option<usize> {
    terminal_size(std::io::stderr()).map(|size| usize::from(size.ws_col))
}

/// Narrowest column for text beside its label.
const ROOM_MIN: usize = 20;

/// Text whose lines fit a terminal of `columns_max`; text that fits stays as it is.
///
/// A line breaks between words. Cells with two blanks between them keep their columns: the rest of the last cell stays below its
/// beginning if there is room, else on lines of its own. A command in backticks and a path stay whole, so that they can be copied;
/// the terminal breaks one that is longer than a line.
pub(super) fn fitted(text: &str, columns_max: Option<usize>) -> String {
    let Some(columns_max) = columns_max else { return text.to_owned() };
    let lines: Vec<String> = text.split('\n').map(|line| fitted_line(line, columns_max)).collect();
    lines.join("\n")
}

fn fitted_line(line: &str, columns_max: usize) -> String {
    if display_width(line) <= columns_max {
        return line.to_owned();
    }
    let bare = anstream::adapter::strip_str(line).to_string();
    let indent = bare.len() - bare.trim_start_matches(' ').len();
    let hang_max = columns_max.saturating_sub(ROOM_MIN);
    let cells: Vec<usize> = cells(&bare).skip(usize::from(indent > 0)).collect();
    if let Some(hang) = cells.iter().copied().filter(|column| *column <= hang_max).max() {
        return wrapped(line, hang, columns_max);
    }
    let (indent, text) = (indent.min(hang_max), line.trim_start_matches(' '));
    let hang = if indent == 0 && cells.is_empty() { 0 } else { indent + 2 };
    match text.split_once("  ").filter(|_| !cells.is_empty()) {
        None => wrapped(&format!("{:indent$}{text}", ""), hang, columns_max),
        Some((term, about)) => {
            let about = format!("{:indent$}{}", "", about.trim_start_matches(' '), indent = indent + 4);
            let term = wrapped(&format!("{:indent$}{term}", ""), hang, columns_max);
            format!("{term}\n{}", wrapped(&about, indent + 4, columns_max))
        }
    }
}

/// The columns at which the cells of a line begin, without the first one of a line that is not indented.
fn cells(line: &str) -> impl Iterator<Item = usize> {
    let begins =
        line.match_indices("  ").map(|(at, _)| at + line[at..].len() - line[at..].trim_start_matches(' ').len());
    let mut begins: Vec<usize> = begins.map(|at| display_width(&line[..at])).collect();
    begins.dedup();
    begins.into_iter()
}

/// A line broken between words; further lines are indented by `hang`, or by less if a word then fits.
pub(super) fn wrapped(line: &str, hang: usize, columns_max: usize) -> String {
    let longest = words(line).map(|word| display_width(word.word)).filter(|width| *width <= columns_max).max();
    let hang = " ".repeat(hang.min(columns_max - longest.unwrap_or(0)));
    let options = textwrap::Options::new(columns_max)
        .break_words(false)
        .subsequent_indent(&hang)
        .word_separator(WordSeparator::Custom(words))
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::fill(line, options)
}

/// Words end at a blank, except in a command in backticks, and between two wide characters.
fn words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let is_wide = |char: char| char.width() == Some(2);
    let (mut from, mut before, mut is_command) = (0, None, false);
    let mut ends = line.char_indices().filter_map(move |(at, char)| {
        let is_end =
            !is_command && (before == Some(' ') && char != ' ' || before.is_some_and(is_wide) && is_wide(char));
        is_command ^= char == '`';
        before = Some(char);
        is_end.then_some(at)
    });
    let words = std::iter::from_fn(move || {
        let to = ends.next().unwrap_or(line.len());
        let word = &line[std::mem::replace(&mut from, to)..to];
        (!word.is_empty()).then(|| Word::from(word))
    });
    Box::new(words)
}

/// A state: in words on a terminal, else as in JSON.
pub(super) fn state(state: Activity, to: Screen) -> &'static str {
    match (to, state) {
        (Screen::Coloured | Screen::Plain, Activity::WaitingPermission) => "waits for permission",
        (Screen::Coloured | Screen::Plain, Activity::WaitingInput) => "waits for input",
        (Screen::Coloured | Screen::Plain | Screen::None, state) => state.name(),
    }
}

/// A state as the end of a sentence: `the session …`.
pub(super) fn sentence(state: Activity) -> &'static str {
    match state {
        Activity::WaitingPermission => "waits for permission",
        Activity::WaitingInput => "waits for input",
        Activity::Working => "is working",
        Activity::Thinking => "is thinking",
        Activity::Idle => "is idle",
        Activity::Stopped => "has stopped",
        Activity::Newer(_) => "is in a state that this version does not know",
    }
}

/// Prints text for a person to stdout, fitted to the terminal; returns the exit status.
#[must_use = "a tool whose output is lost ends with this status"]
pub(super) fn print(text: &str) -> i32 {
    print_exactly(&fitted(text, columns(Screen::of_stdout_plain())))
}

/// Prints text that is copied or read by a program to stdout; returns the exit status.
#[must_use = "a tool whose output is lost ends with this status"]
pub(super) fn print_exactly(text: &str) -> i32 {
    put(text).map_or_else(|error| error.report(), |()| 0)
}

/// Prints and flushes text.
///
/// # Errors
///
/// See [`unwritten`].
pub(super) fn put(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| unwritten(&error))
}

/// As [`unwritten`], for an error that may also be of what was read: only a full disk and a closed pipe are certainly of stdout.
pub(super) fn unread_or_unwritten(error: &std::io::Error) -> CliError {
    match error.kind() == ErrorKind::BrokenPipe || error.kind() == ErrorKind::StorageFull {
        true => unwritten(error),
        false => CliError::failed(error.to_string()),
    }
}

/// Ends a tool whose output was not written, and says so once. If the reader has closed the pipe, it wants no more: that is no failure.
pub(super) fn unwritten(error: &std::io::Error) -> CliError {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if error.kind() == ErrorKind::BrokenPipe {
        return CliError::quiet(0);
    }
    match IS_TOLD.swap(true, Ordering::Relaxed) {
        true => CliError::quiet(FAILED),
        false => CliError::failed(format!("write to stdout: {error}")),
    }
}

/// Prints text for a person to stderr, fitted to the terminal; returns the exit status.
pub(super) fn print_to_stderr(text: &str) -> i32 {
    match std::io::stderr().write_all(fitted(text, columns_of_stderr()).as_bytes()) {
        Ok(()) => 0,
        Err(_) => FAILED,
    }
}

/// Whether a person can read a question on stderr and type an answer on stdin.
pub(super) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Discards keys that were typed before a question appeared: they cannot be an answer to it.
pub(super) fn forget_typed_ahead() {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        // A terminal that is gone has no answer either.
        let _ = terminals::forget_unread(&stdin);
    }
}

/// Asks a question on stderr. Anything but `y` or `yes` is a no, and so is the end of the input.
pub(super) fn is_agreed(question: &str) -> Result<bool, String> {
    forget_typed_ahead();
    if print_to_stderr(question) != 0 {
        // Nobody has seen the question.
        return Ok(false);
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| format!("read the answer: {error}"))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
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

/// The flag of every tool that prints times.
#[derive(Debug, Default, Args)]
pub(super) struct Times {
    /// Print times in UTC instead of the local time zone
    #[arg(long)]
    utc: bool,
}

impl Times {
    pub(super) fn is_utc(&self) -> bool {
        self.utc
    }
}

/// The present, and the zone that times are printed in.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    zone: Zone,
    now: SystemTime,
}

impl Clock {
    /// The clock for the flags of a tool.
    pub(super) fn of(times: &Times) -> Clock {
        let zone = if times.utc { Zone::UTC } else { Zone::of_system() };
        Clock { zone, now: SystemTime::now() }
    }

    /// A stopped clock in UTC.
    #[cfg(test)]
    pub(super) fn stopped(now: &str) -> Clock {
        Clock { zone: Zone::UTC, now: humantime::parse_rfc3339(now).expect("BUG: a test names a time") }
    }

    /// Moves the clock to the present.
    pub(super) fn go_on(&mut self) {
        self.now = SystemTime::now();
    }

    /// The head of a time column: `SINCE (CEST)`.
    pub(super) fn head(&self, name: &str) -> String {
        format!("{name} ({})", self.zone.name(micros(self.now)))
    }

    /// A time for a column: short on a terminal, where [`Clock::head`] names the zone, else with its offset.
    pub(super) fn cell(&self, rfc3339: &str, to: Screen) -> String {
        match (micros_of(rfc3339), to) {
            (None, _) => plain(rfc3339),
            (Some(at_us), Screen::None) => self.zone.whole(at_us),
            (Some(at_us), Screen::Coloured | Screen::Plain) => self.zone.short(at_us, micros(self.now)),
        }
    }

    /// A time in a sentence: `14:03:22 CEST`.
    pub(super) fn text(&self, rfc3339: &str) -> String {
        match micros_of(rfc3339) {
            Some(at_us) => self.zone.named(at_us, micros(self.now)),
            None => plain(rfc3339),
        }
    }

    /// [`Clock::text`] of a system time.
    pub(super) fn text_of(&self, at: SystemTime) -> String {
        self.zone.named(micros(at), micros(self.now))
    }

    /// The day of a time in this clock's zone: `2026-01-02`; `None` if the text is not a time.
    pub(super) fn day(&self, rfc3339: &str) -> Option<String> {
        micros_of(rfc3339).map(|at_us| self.zone.day(at_us))
    }

    /// How long ago something was; `None` if the text is not a time.
    pub(super) fn age(&self, rfc3339: &str) -> Option<String> {
        micros_of(rfc3339).map(|at_us| self.age_of(SystemTime::UNIX_EPOCH + Duration::from_micros(at_us)))
    }

    /// How long it is until a time in microseconds since 1970: `48s`; `0s` if it is over.
    pub(super) fn left(&self, until_us: u64) -> String {
        age(self.now, SystemTime::UNIX_EPOCH + Duration::from_micros(until_us))
    }

    /// [`Clock::age`] of a system time.
    pub(super) fn age_of(&self, at: SystemTime) -> String {
        age(at, self.now)
    }
}

fn micros(at: SystemTime) -> u64 {
    let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
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
    fn lines_break_between_words() {
        let check = |text: &str, columns_max, expect: &str| assert_eq!(fitted(text, columns_max), expect, "{text:?}");
        check("name  one two three four five six", Some(28), "name  one two three four\n      five six");
        check("name  one two three four five six", None, "name  one two three four five six");
        check("say `codex-shim show latest` now", Some(26), "say\n`codex-shim show latest`\nnow");
        check("see /a/folder/that/is/longer/than/it now", Some(19), "see\n/a/folder/that/is/longer/than/it\nnow");
        check("   1. a  b", Some(30), "   1. a  b");
        check("  git diff | shim send --json", Some(24), "  git diff | shim send\n    --json");
        check("  日本語の文章です。日本語の文章です", Some(24), "  日本語の文章です。日本\n    語の文章です");
        check("one\n\ntwo three", Some(6), "one\n\ntwo\nthree");
    }

    #[test]
    fn indented_rows_under_a_coloured_label_stay_indented() {
        let row = |text: &str| format!("{} {text}", Screen::Coloured.paint(Tone::Faint, "    "));
        assert_eq!(fitted(&row("  one two three four five"), Some(27)), "       one two three four\n         five");
    }

    #[test]
    fn explanations_without_room_have_their_own_lines() {
        let check = |text: &str, expect: &str| assert_eq!(fitted(text, Some(40)), expect, "{text:?}");
        let text = "  shim status                is the relay in this folder well?";
        check(text, "  shim status\n      is the relay in this folder well?");
        let text = format!("socket      /{}", "x".repeat(36));
        check(&text, &format!("socket\n   /{}", "x".repeat(36)));
        let text = format!("{:30}→ install it, or name another one", "");
        check(&text, &format!("{:20}→ install it, or\n{:22}name another one", "", ""));
    }

    #[test]
    fn colours_take_no_columns() {
        let text = "\u{1b}[2mname\u{1b}[0m  one two three four five six";
        assert_eq!(fitted(text, Some(28)), "\u{1b}[2mname\u{1b}[0m  one two three four\n      five six");
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

#[cfg(test)]
mod clock_tests {
    use super::*;

    #[test]
    fn cells_have_an_offset_if_no_head_names_the_zone() {
        let clock = Clock::stopped("2026-01-02T03:04:05Z");
        let at = "2026-01-02T01:00:00.123Z";
        assert_eq!(clock.head("AT"), "AT (UTC)");
        assert_eq!(clock.cell(at, Screen::Plain), "01:00:00");
        assert_eq!(clock.cell(at, Screen::None), "2026-01-02T01:00:00Z");
        assert_eq!(clock.text(at), "01:00:00 UTC");
        assert_eq!(clock.age(at).as_deref(), Some("2h 4m"));
        assert_eq!((clock.cell("?\u{1b}", Screen::Plain), clock.age("?")), ("?\u{fffd}".to_owned(), None));
    }
}
