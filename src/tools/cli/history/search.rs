//! `codex-shim search`: the commands, messages, changes and requests of all sessions that have some words, the newest first.
//!
//! Sessions are searched in their files: see [`crate::sessions::search`].

use std::fmt::Write as _;
use std::ops::Range;

use clap::Args;
use clap::builder::PossibleValuesParser;
use unicode_width::UnicodeWidthChar as _;

use super::super::filter;
use super::super::offline;
use super::super::progress::Progress;
use super::super::requests::print_json;
use super::super::screen::{self, Clock, Screen, Times, Tone};
use super::super::select_session::{self, SessionFlag, positive};
use super::super::since::SinceFlag;
use super::super::table::{Column, Table};
use super::super::{CliError, Done, USAGE, lines, say};
use crate::config::Environment;
use crate::history::{Excerpt, Filter, SearchKind, SearchQuery};
use crate::index::{Hit, Hits, Search};
use crate::protocol::of_name;
use crate::sessions::search::{AllHits, Searched};
use crate::store::{ChoiceError, Found};
use crate::text::{cut, width};

/// Search commands, messages, changes and requests of all sessions
///
/// The newest match comes first, with its session, its time and the line that matches. Only finished things are found, as in
/// `transcript`: of a command its line, folder and end of the output; of a change its paths and the changed lines; of a
/// request what it asked for.
#[derive(Debug, Args)]
#[command(after_long_help = "\
TEXT is one or more words, all of which must match, in any order and case. A
word can have any characters: --force, src/main.rs. Parts of names are words,
too: `bounds` finds RetentionBounds and events_bounds. \"A phrase\" in double
quotes matches as a whole; word* matches words that begin so. Put -- before a
TEXT that begins with a hyphen.

TEXT can also have tokens: kind: status: client: folder: thread: since: by:
with a value, as in `status:failed folder:~/proj`; tokens alone list the newest
matches. `codex-shim docs filters` has all of them. --regex reads no tokens.

--regex reads the entries one by one, the newest first:
`codex-shim docs search` has more on it.

Exit status: 0, also if nothing matches, or 1 if a session could not be
searched, or 2 if TEXT is not valid, or 3 if there is no such session.

Examples:
  codex-shim search rm build --kind command --since 7d
  codex-shim search '\"permission denied\"' -n 5
  codex-shim search -- --no-verify
  codex-shim search kind:request status:declined by:tui
  codex-shim search --regex 'rm +-[a-z]*f' --session work
  codex-shim search 'migrat*' --json | jq -r '.matches[].line'")]
pub(in crate::cli) struct SearchArguments {
    /// Words, "phrases", beginnings*, and tokens such as kind:command
    #[arg(value_name = "TEXT", required = true, add = filter::texts())]
    text: Vec<String>,
    /// Only this kind of entry; repeatable
    #[arg(long = "kind", value_name = "KIND", value_parser = kinds())]
    kinds: Vec<String>,
    #[command(flatten)]
    since: SinceFlag,
    /// TEXT is a regular expression
    #[arg(long)]
    regex: bool,
    /// Number of matches
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20, value_parser = positive)]
    limit: u64,
    /// Also threads that nobody speaks in: titles, sub-agents, reviews
    #[arg(long)]
    all_threads: bool,
    #[command(flatten)]
    session: SessionFlag,
    /// Print one JSON document
    #[arg(long = "json")]
    as_json: bool,
    #[command(flatten)]
    times: Times,
}

fn kinds() -> PossibleValuesParser {
    SearchKind::ALL.iter().map(|kind| kind.name()).into()
}

/// Searches the sessions.
pub(in crate::cli) fn run_search(arguments: &SearchArguments, environment: &Environment) -> Done {
    let search = meant(arguments, environment)?;
    let sessions = select_session::listed(arguments.session.name(), environment)?;
    // A session that was never used has nothing to find.
    let is_alone = arguments.session.name().is_some();
    let sessions: Vec<Found> =
        sessions.into_iter().filter(|session| is_alone || session.last_segment().is_some()).collect();
    let door = offline::door(environment);
    let each: Vec<&Found> = sessions.iter().collect();
    let ready =
        select_session::at_once(&each, |&session| Searched::ready(session, door, &search).map_err(CliError::from));
    let mut status = 0;
    let mut searched = Vec::new();
    for ready in ready {
        match ready {
            Ok(ready) => searched.push(ready),
            Err(error) if is_alone => return Err(error),
            Err(error) => status = status.max(error.report()),
        }
    }
    complete(&searched);
    let results = search_all(&searched, &search);
    let mut all = AllHits::default();
    for (searched, result) in searched.iter().zip(results) {
        match result {
            Ok(hits) => all.add(searched.session, hits),
            Err(error) if is_alone => return Err(error),
            Err(error) => status = status.max(error.report()),
        }
    }
    all.keep_newest(search.limit);
    let known = select_session::all_quietly(environment)?;
    if arguments.as_json {
        return Ok(status.max(print_json(&all.document(&known))));
    }
    let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    let all = Printed { all: &all };
    let printed = match to {
        Screen::None => screen::print_exactly(&all.table(&clock)),
        Screen::Coloured | Screen::Plain => screen::print(&all.text(&known, &clock, to)),
    };
    match sessions.len() {
        0 => say(&ChoiceError::NoSessions.to_string()),
        sessions => all.note(arguments, sessions).iter().for_each(|note| say(note)),
    }
    Ok(status.max(printed))
}

/// What the arguments ask for.
fn meant(arguments: &SearchArguments, environment: &Environment) -> Result<Search, CliError> {
    let text = arguments.text.join(" ");
    let wrong = |why: &str| CliError::exits(USAGE, lines(&format!("TEXT: {why}")));
    let (query, filter) = if arguments.regex {
        (Some(SearchQuery::of_pattern(&text).map_err(|why| wrong(&why))?), Filter::default())
    } else {
        let filter = filter::read("TEXT", &text, environment)?;
        if filter.is_empty() {
            return Err(wrong("there is nothing to search for"));
        }
        (filter.query().cloned(), filter)
    };
    let mut kinds: Vec<SearchKind> = arguments.kinds.iter().filter_map(|kind| of_name(kind)).collect();
    kinds.dedup();
    let since = arguments.since.get().map(|since| (since.rfc3339(), since.micros() / 1_000));
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    Ok(Search { query, filter, kinds, since, all_threads: arguments.all_threads, limit })
}

/// Completes the search index of stopped sessions.
fn complete(searched: &[Searched<'_>]) {
    let total = searched.iter().map(Searched::lacks).sum();
    if total == 0 {
        return;
    }
    let progress = Progress::new("indexing", total);
    for searched in searched.iter().filter(|searched| searched.lacks() > 0) {
        // The search works all the same.
        if let Err(error) = offline::complete_search(searched.session, |entries| progress.advance(entries)) {
            progress.suspend(|| CliError::from(error).report());
        }
    }
}

fn search_all(searched: &[Searched<'_>], search: &Search) -> Vec<Result<Hits, CliError>> {
    let total = searched.iter().map(|searched| searched.history.read_by_search(search).unwrap_or(0)).sum();
    let progress = Progress::new("searching", total);
    select_session::at_once(searched, |searched| {
        searched.search(search, |entries| progress.advance(entries)).map_err(CliError::from)
    })
}

/// The matches as text.
struct Printed<'a> {
    all: &'a AllHits<'a>,
}

impl Printed<'_> {
    /// A line for each match, for other programs.
    fn table(&self, clock: &Clock) -> String {
        let columns = ["SESSION", "TIME", "KIND", "MATCH"].map(Column::whole);
        let row = |(session, hit): &(&Found, Hit)| {
            let Excerpt { head, line, .. } = &hit.excerpt;
            let head = head.as_ref().map(|head| format!("{head}: ")).unwrap_or_default();
            let cells =
                [session.id.clone(), clock.cell(&hit.at, Screen::None), hit.kind.to_string(), format!("{head}{line}")];
            cells.map(|cell| (Tone::Plain, cell)).to_vec()
        };
        Table::of(columns.into(), self.all.hits.iter().map(row).collect(), Screen::None)
    }

    /// The session, the time and the kind of each match, and below them its line, for people.
    fn text(&self, known: &[Found], clock: &Clock, to: Screen) -> String {
        let columns_max = screen::columns(to);
        let mut text = String::new();
        for (session, hit) in &self.all.hits {
            let [(_, id), _] = select_session::cells_of(&session.id, known, to);
            let title = self.all.thread(session, hit).and_then(|thread| thread.title.as_ref());
            let title = title.map(|title| format!(" · {title}")).unwrap_or_default();
            let place = screen::plain(&format!("{}{title}", self.all.origin(session, hit).name));
            let facts = format!("{place} · {} · {}", clock.text(&hit.at), hit.kind);
            let _ =
                writeln!(text, "{}  {}", to.paint(Tone::Strong, &screen::plain(&id)), to.paint(Tone::Faint, &facts));
            let sign = if hit.kind == SearchKind::Command { "$ " } else { "" };
            let indent = match &hit.excerpt.head {
                Some(head) => {
                    let head = Shown { text: head, marks: &[], columns_max };
                    let _ = writeln!(text, "  {}", to.paint(Tone::Faint, &format!("{sign}{}", head.text(2, to))));
                    "    ".to_owned()
                }
                None => format!("  {sign}"),
            };
            let Excerpt { line, marks, .. } = &hit.excerpt;
            let line = Shown { text: line, marks, columns_max };
            let _ = writeln!(text, "{indent}{}", line.text(indent.len(), to));
        }
        text
    }

    /// What a person should know about the result.
    fn note(&self, arguments: &SearchArguments, sessions: usize) -> Option<String> {
        let count = self.all.hits.len();
        let sessions = match sessions {
            1 => "1 session".to_owned(),
            sessions => format!("{sessions} sessions"),
        };
        let read = format!("{} entries of {sessions}, the newest first", self.all.read);
        match (arguments.regex, self.all.has_more) {
            (true, true) => Some(format!("read {read}, up to match number {count}; -n COUNT finds more")),
            (true, false) => Some(format!("read all {read}; matches: {count}")),
            (false, true) => Some(format!("these are the newest {count} matches; -n COUNT shows more")),
            (false, false) if count == 0 => Some(format!("no matches in {sessions}")),
            (false, false) => None,
        }
    }
}

/// On a narrower terminal, a line continues on further lines.
const NARROW: usize = 60;

/// How many of them.
const NARROW_LINES_MAX: usize = 6;

/// A line with marks, for a terminal.
struct Shown<'a> {
    text: &'a str,
    marks: &'a [Range<usize>],
    columns_max: Option<usize>,
}

impl Shown<'_> {
    /// The part of the line around its first mark that fits beside `indent` columns.
    fn text(&self, indent: usize, to: Screen) -> String {
        let mut parts = self.parts();
        let columns_max = match self.columns_max {
            None => usize::MAX,
            Some(columns_max) if columns_max < NARROW => columns_max * NARROW_LINES_MAX,
            Some(columns_max) => columns_max.saturating_sub(indent),
        };
        let whole: usize = parts.iter().map(|(_, part)| width(part)).sum();
        if let [(Tone::Plain, before), rest @ ..] = &mut parts[..]
            && whole > columns_max
            && !rest.is_empty()
        {
            // As much of what follows the mark as there is room for, but some text before it.
            let after: usize = rest.iter().map(|(_, part)| width(part)).sum();
            *before = end(before, columns_max.saturating_sub(after).max(columns_max / 3));
        }
        let (mut left, mut text) = (columns_max, String::new());
        for (tone, part) in parts {
            let part = cut(&part, left);
            left -= width(&part);
            text.push_str(&to.paint(tone, &part));
        }
        text
    }

    /// The line in parts, escaped: a plain one before each mark and one at the end.
    fn parts(&self) -> Vec<(Tone, String)> {
        let plain = |range: Range<usize>| screen::plain(&self.text[range].replace('\t', "    "));
        let (mut parts, mut at) = (Vec::new(), 0);
        for mark in self.marks {
            parts.push((Tone::Plain, plain(at..mark.start)));
            parts.push((Tone::Warning, plain(mark.clone())));
            at = mark.end;
        }
        parts.push((Tone::Plain, plain(at..self.text.len())));
        parts
    }
}

/// The end of a text that fits in `columns`, after `…` if something is missing.
fn end(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let kept = text.char_indices().rev().take_while(|(_, char)| {
        let columns = char.width().unwrap_or(0);
        let fits = columns <= left;
        left = left.saturating_sub(columns);
        fits
    });
    let from = kept.last().map_or(text.len(), |(at, _)| at);
    format!("…{}", &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_around_its_first_match() {
        let check = |line: &str, columns_max: Option<usize>, expect: &str| {
            let marks: Vec<Range<usize>> = line.match_indices("xy").map(|(at, found)| at..at + found.len()).collect();
            let shown = Shown { text: line, marks: &marks, columns_max };
            assert_eq!(shown.text(2, Screen::None), expect);
        };
        check("a\txy\u{1b}b", Some(80), "a    xy\u{fffd}b");
        let long = "a".repeat(99);
        check(&format!("{long}xy"), Some(80), &format!("…{}xy", "a".repeat(75)));
        check(&format!("xy{long}"), Some(80), &format!("xy{}…", "a".repeat(75)));
        check(&format!("{long}xy{long}"), Some(80), &format!("…{}xy{}…", "a".repeat(25), "a".repeat(49)));
        check(&format!("{long}xy{long}"), None, &format!("{long}xy{long}"));
        check(&format!("{long}xy"), Some(40), &format!("{long}xy"));
        check(&format!("{}xy", "密".repeat(50)), Some(80), &format!("…{}xy", "密".repeat(37)));
    }

    #[test]
    fn matches_are_marked_on_a_terminal_with_colours() {
        let shown = Shown { text: "rm -rf x", marks: &[0..2, 7..8], columns_max: None };
        assert_eq!(shown.text(0, Screen::Coloured), "\u{1b}[33mrm\u{1b}[0m -rf \u{1b}[33mx\u{1b}[0m");
    }
}
