//! `codex-shim prune` deletes stored data that is over its limits; `codex-shim redact` masks secrets in stored sessions.

use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;
use clap::Args;
use serde::Serialize;

use super::progress::Progress;
use super::requests::print_json;
use super::screen::{self, Screen, Tone};
use super::select_session::SessionWord;
use super::table::{Column, Table};
use super::{CliError, Done};
use super::{FAILED, USAGE, say, select_session};
use crate::config::{Environment, Flags, Settings, parse_duration};
use crate::index::TranscriptFiles;
use crate::keeping::{Bounds, DataKind, Deleted, Masked, PrunedSessions, bytes_to_read, prune, prune_sessions, redact};
use crate::secrets::Masker;
use crate::store::{Found, Otherwise, RunMode, full_name, short};

/// Delete stored data that is over its limits
///
/// Journal segments, rows of the history, and whole sessions. A running relay does this by itself; this does it now, for all
/// sessions. Data that is not indexed yet, or that a relay is using, stays, and so does any file that codex-shim did not
/// create. --dry-run names each file. At a terminal it shows what it would delete, and asks first.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The limits are the settings journal_bytes_max, journal_age_max, events_max,
tool_events_max, turn_events_max, history_age_max and session_age_max; see
`codex-shim config`. --older-than TIME sets the three ages to TIME: it deletes
sessions unused for so long, and in other sessions the records and rows older
than that. The limits of size and number stay.

Exit status: 0, or 1 if something could not be deleted, or 3 if there is no
such session.

Examples:
  codex-shim prune --dry-run
  codex-shim prune --older-than 7d         sessions unused for a week, too
  codex-shim prune work --older-than 1d
  codex-shim prune --json | jq .total.bytes")]
pub(super) struct PruneArguments {
    #[command(flatten)]
    session: SessionWord,
    /// Delete data older than this, such as 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    older_than: Option<Duration>,
    /// Delete nothing, only print the list
    #[arg(long)]
    dry_run: bool,
    /// Do not ask first
    #[arg(short, long)]
    yes: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct PruneDocument<'a> {
    dry_run: bool,
    went: &'a [Deleted],
    total: Total,
    /// Files that stay in the folders of deleted sessions because codex-shim did not create them.
    left: &'a [String],
    faults: &'a [String],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Total {
    count: u64,
    bytes: u64,
}

impl Total {
    fn of(went: &[Deleted]) -> Total {
        Total { count: went.iter().map(|went| went.count).sum(), bytes: went.iter().map(|went| went.bytes).sum() }
    }
}

/// Deletes the data, or lists it.
pub(super) fn run_prune(arguments: &PruneArguments, environment: &Environment) -> Done {
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    // With an invalid limit, prune could delete data that the user means to keep.
    if let Some(complaint) = complaints.first() {
        return Err(
            CliError::failed(format!("{}; nothing was deleted", complaint.mistake())).with_remedy("correct this first")
        );
    }
    let named = arguments.session.name();
    let found = match named {
        Some(name) => vec![select_session::one(Some(name), Otherwise::None, environment)?],
        None => select_session::all(environment)?,
    };
    let home = settings.home.value.as_deref().ok_or_else(CliError::no_home)?;
    let bounds = Bounds { journal: settings.journal_bounds(), retention: settings.retention() };
    let bounds = arguments.older_than.map_or(bounds, |age| bounds.older_than(age));
    let transcript_files = if settings.transcript_files.value { TranscriptFiles::Kept } else { TranscriptFiles::None };
    // A deleted session has no name any more.
    let all = select_session::all_quietly(environment)?;
    let only = named.and_then(|_| found.first()).map(|session| &*session.id);
    let pruned = |mode| pruned(home, &found, only, &bounds, transcript_files, mode);
    let is_asked = !arguments.dry_run && !arguments.yes && screen::can_ask();
    if is_asked && !is_prune_agreed(pruned(RunMode::DryRun), &all, environment)? {
        return Ok(screen::print_to_stderr("nothing was deleted\n"));
    }
    let mode = if arguments.dry_run { RunMode::DryRun } else { RunMode::Apply };
    let PrunedSessions { went, left, faults } = pruned(mode);
    let total = Total::of(&went);
    let document = PruneDocument { dry_run: arguments.dry_run, went: &went, total, left: &left, faults: &faults };
    let printed = if arguments.json {
        print_json(&document)
    } else {
        let printed = screen::print(&deleted_table(&document, &all, Screen::of_stdout(environment)));
        say_left(&left);
        printed
    };
    faults.iter().for_each(|fault| say(fault));
    Ok(if faults.is_empty() { printed } else { FAILED })
}

/// Deletes or lists the expired sessions of `home`, or only `only`, and the data over the bounds in the rest of the `found` ones.
fn pruned(
    home: &Path,
    found: &[Found],
    only: Option<&str>,
    bounds: &Bounds,
    transcript_files: TranscriptFiles,
    mode: RunMode,
) -> PrunedSessions {
    let mut pruned = prune_sessions(home, only, bounds, mode);
    let gone: Vec<String> = pruned.went.iter().map(|session| session.session_id.clone()).collect();
    let is_left = |session: &&Found| !gone.contains(&session.id) && (only.is_some() || !session.dir.is_symlink());
    for session in found.iter().filter(is_left) {
        match prune(session, bounds, transcript_files, mode) {
            Ok(more) => pruned.went.extend(more),
            Err(fault) => pruned.faults.push(fault),
        }
    }
    pruned
}

/// Shows on stderr what would be deleted, and asks. Agreed without a question if that is nothing.
fn is_prune_agreed(plan: PrunedSessions, all: &[Found], environment: &Environment) -> Result<bool, CliError> {
    let PrunedSessions { mut went, left, faults } = plan;
    if went.is_empty() {
        return Ok(true);
    }
    // The files may be thousands; --dry-run names them.
    went.iter_mut().for_each(|went| went.files.clear());
    let total = Total::of(&went);
    let document = PruneDocument { dry_run: true, went: &went, total, left: &left, faults: &faults };
    screen::print_to_stderr(&deleted_table(&document, all, Screen::of_stderr(environment)));
    say_left(&left);
    faults.iter().for_each(|fault| say(fault));
    Ok(screen::is_agreed("delete this? [y/N] ")?)
}

fn say_left(left: &[String]) {
    left.iter().for_each(|path| say(&format!("{path} stays: codex-shim did not create it")));
}

/// `all` sessions before anything was deleted.
fn deleted_table(document: &PruneDocument<'_>, all: &[Found], to: Screen) -> String {
    let PruneDocument { dry_run, went, total, .. } = document;
    if went.is_empty() {
        return "nothing to delete: everything is within its limits\n".to_owned();
    }
    let (what, count, size) = (Column::text("WHAT"), Column::number("COUNT"), Column::number("SIZE"));
    let columns = vec![Column::whole("SESSION"), Column::text("NAME"), what, count, size];
    let cells = |went: &Deleted| {
        let facts = [went.what.name().to_owned(), went.count.to_string(), ByteSize(went.bytes).to_string()];
        let facts = facts.into_iter().map(|cell| (Tone::Faint, cell));
        select_session::cells_of(&went.session_id, all, to).into_iter().chain(facts).collect()
    };
    let mut table = Table::of(columns, went.iter().map(cells).collect(), to);
    if *dry_run {
        let files = went.iter().flat_map(|went| &went.files);
        files.for_each(|file| table.push_str(&format!("{}\n", to.paint(Tone::Faint, &screen::plain(file)))));
    }
    let sessions = went.iter().filter(|went| went.what == DataKind::Session).count();
    let verb = if *dry_run { "would be deleted" } else { "deleted" };
    let whole = match sessions {
        0 => String::new(),
        sessions => format!("; {sessions} of {} sessions entirely", sessions_in(went)),
    };
    format!("{table}{} {verb}{whole}\n", ByteSize(total.bytes))
}

fn sessions_in(went: &[Deleted]) -> usize {
    let ids: std::collections::BTreeSet<&str> = went.iter().map(|went| &*went.session_id).collect();
    ids.len()
}

/// Mask secrets in stored sessions
///
/// In the journal, history, ledger, transcripts and log of a session it masks text that looks like a key, a token or a
/// password, values whose name says so, and matches of your patterns. It prints counts, never a secret. Files of codex itself
/// stay as they are.
///
/// Beside a running relay, the segment that it writes and lines that are not indexed yet stay: redact again when it has ended.
/// At a terminal it shows what it would mask, and asks first.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A pattern is a regular expression. It is matched against text as it was before
it became JSON. Methods, types, ids and numbers of the protocol stay, whatever
a pattern matches.

Without SESSION and --all: the session in CODEX_SHIM_SESSION, else the live
session whose folder or repository contains the current folder, else the only
live session.

Exit status: 0, or 1 if something could not be masked, or 2 if a pattern is
not valid, or 3 if there is no such session.

Examples:
  codex-shim redact --all --dry-run
  codex-shim redact work
  codex-shim redact --all --pattern hunter2 --pattern '[a-z.]+@corp[.]example'")]
pub(super) struct RedactArguments {
    #[command(flatten)]
    session: SessionWord,
    /// All sessions
    #[arg(long, conflicts_with_all = ["session", "session_word"])]
    all: bool,
    /// Mask matches of this regular expression, too; repeatable
    #[arg(long = "pattern", value_name = "REGEX", allow_hyphen_values = true)]
    patterns: Vec<String>,
    /// Only count what would be masked
    #[arg(long)]
    dry_run: bool,
    /// Do not ask first
    #[arg(short, long)]
    yes: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct RedactDocument<'a> {
    dry_run: bool,
    sessions: usize,
    masked: &'a [Masked],
    /// Segments that a relay is using.
    segments_left: u64,
    faults: &'a [String],
}

/// Masks or counts secrets.
pub(super) fn run_redact(arguments: &RedactArguments, environment: &Environment) -> Done {
    let masker = Masker::new(&arguments.patterns).map_err(|error| CliError::exits(USAGE, error.trim_end()))?;
    let mut found = match arguments.all {
        true => select_session::all(environment)?,
        false => vec![select_session::one(arguments.session.name(), Otherwise::None, environment)?],
    };
    found.retain(|session| !arguments.all || !session.dir.is_symlink());
    let (settings, _) = Settings::load(Flags::default(), environment);
    let transcript_files = if settings.transcript_files.value { TranscriptFiles::Kept } else { TranscriptFiles::None };
    let all = select_session::all_quietly(environment)?;
    let redacted = |mode| Redacted::of(&found, &all, &masker, transcript_files, mode);
    let is_asked = !arguments.dry_run && !arguments.yes && screen::can_ask();
    if is_asked && !is_redact_agreed(&redacted(RunMode::DryRun), &all, environment)? {
        return Ok(screen::print_to_stderr("nothing was masked\n"));
    }
    let mode = if arguments.dry_run { RunMode::DryRun } else { RunMode::Apply };
    let redacted = redacted(mode);
    let document = redacted.document(mode);
    let printed = match arguments.json {
        true => print_json(&document),
        false => screen::print(&masked_table(&document, &all, &redacted.unread, Screen::of_stdout(environment))),
    };
    redacted.faults.iter().for_each(|fault| say(fault));
    Ok(if redacted.faults.is_empty() { printed } else { FAILED })
}

/// Shows on stderr what would be masked, and asks. Agreed without a question if that is nothing.
fn is_redact_agreed(plan: &Redacted, all: &[Found], environment: &Environment) -> Result<bool, CliError> {
    if plan.masked.is_empty() {
        return Ok(true);
    }
    let table = masked_table(&plan.document(RunMode::DryRun), all, &plan.unread, Screen::of_stderr(environment));
    screen::print_to_stderr(&table);
    plan.faults.iter().for_each(|fault| say(fault));
    Ok(screen::is_agreed("mask these? [y/N] ")?)
}

/// Masked or counted secrets of several sessions.
struct Redacted {
    sessions: usize,
    masked: Vec<Masked>,
    segments_left: u64,
    unread: Vec<Unread>,
    faults: Vec<String>,
}

impl Redacted {
    /// Masks or counts the secrets of the `found` sessions.
    fn of(
        found: &[Found],
        all: &[Found],
        masker: &Masker,
        transcript_files: TranscriptFiles,
        mode: RunMode,
    ) -> Redacted {
        let (mut masked, mut unread, mut segments_left, mut faults) = (Vec::new(), Vec::new(), 0, Vec::new());
        let progress = Progress::new("redacting", found.iter().map(bytes_to_read).sum());
        for session in found {
            let (more, left, wrong) = redact(session, masker, transcript_files, mode, &|bytes| progress.advance(bytes));
            unread.extend(Unread::of(session, left, all));
            masked.extend(more);
            segments_left += left;
            faults.extend(wrong);
        }
        Redacted { sessions: found.len(), masked, segments_left, unread, faults }
    }

    fn document(&self, mode: RunMode) -> RedactDocument<'_> {
        RedactDocument {
            dry_run: mode == RunMode::DryRun,
            sessions: self.sessions,
            masked: &self.masked,
            segments_left: self.segments_left,
            faults: &self.faults,
        }
    }
}

fn masked_table(document: &RedactDocument<'_>, all: &[Found], unread: &[Unread], to: Screen) -> String {
    let verb = if document.dry_run { "would be masked" } else { "masked" };
    let columns = vec![Column::whole("SESSION"), Column::text("NAME"), Column::number("MASKED"), Column::text("IN")];
    let cells = |masked: &Masked| {
        let facts = [masked.masked.to_string(), format!("{} {verb}", masked.place.name())];
        let facts = facts.into_iter().map(|cell| (Tone::Faint, cell));
        select_session::cells_of(&masked.session_id, all, to).into_iter().chain(facts).collect()
    };
    let table = Table::of(columns, document.masked.iter().map(cells).collect(), to);
    let skipped: String = unread.iter().map(|unread| format!("{}\n", screen::plain(&unread.in_words()))).collect();
    let found = match (table.is_empty(), unread.is_empty()) {
        (false, _) => table,
        (true, true) => "no secrets found\n".to_owned(),
        (true, false) => "no secrets found in the rest\n".to_owned(),
    };
    skipped + &found
}

/// Segments of a session that were not looked at.
struct Unread {
    segments: u64,
    name: String,
    /// Names the session in a suggested command; `None` if its relay is running.
    stopped: Option<String>,
}

impl Unread {
    fn of(session: &Found, segments: u64, all: &[Found]) -> Option<Unread> {
        let stopped = (!session.live).then(|| short(session, all).to_owned());
        (segments > 0).then(|| Unread { segments, name: full_name(session, all), stopped })
    }

    /// What was not looked at, why, and what to do.
    fn in_words(&self) -> String {
        let Unread { segments, name, stopped } = self;
        let (count, was, it) = match segments {
            1 => ("1 journal segment".to_owned(), "was", "it"),
            many => (format!("{many} journal segments"), "were", "them"),
        };
        let then = match stopped {
            None => format!("its relay is using {it}; redact again when it has ended"),
            Some(session) => {
                format!("the history does not have {it} yet; run `codex-shim events {session}`, and redact again")
            }
        };
        format!("{count} of {name} {was} not looked at: {then}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store::{Holder, Place};

    #[test]
    fn skipped_journals_come_first() {
        let document =
            |segments_left| RedactDocument { dry_run: true, sessions: 1, masked: &[], segments_left, faults: &[] };
        let unread = |segments: u64, name: &str, stopped: Option<&str>| Unread {
            segments,
            name: name.to_owned(),
            stopped: stopped.map(str::to_owned),
        };
        let unread = [unread(2, "proj (vscode) ab01", None), unread(1, "proj cd02", Some("cd02"))];
        assert_eq!(masked_table(&document(0), &[], &[], Screen::None), "no secrets found\n");
        assert_eq!(
            masked_table(&document(3), &[], &unread, Screen::None),
            "2 journal segments of proj (vscode) ab01 were not looked at: its relay is using them; redact again when it has \
             ended\n1 journal segment of proj cd02 was not looked at: the history does not have it yet; run `codex-shim events \
             cd02`, and redact again\nno secrets found in the rest\n"
        );
    }

    #[test]
    fn people_get_names_that_tools_take() {
        let id = "0192aaaa-0000-7000-8000-00000000ab01";
        let place = Place { cwd: "/w/proj".to_owned(), codex_home: String::new(), server: Vec::new() };
        let client = Some("vscode".to_owned());
        let session = Found {
            id: id.to_owned(),
            dir: id.into(),
            live: false,
            holder: Some(Holder { pid: 1, started_at: String::new(), client, place }),
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        };
        let went =
            [Deleted { session_id: id.to_owned(), what: DataKind::Session, count: 1, bytes: 9, files: Vec::new() }];
        let total = Total { count: 1, bytes: 9 };
        let document = PruneDocument { dry_run: false, went: &went, total, left: &[], faults: &[] };
        let table = deleted_table(&document, &[session], Screen::Plain);
        let expect = "SESSION  NAME           WHAT     COUNT  SIZE\nab01     proj (vscode)  session      1   9 B\n";
        assert!(table.starts_with(expect), "{table}");
    }

    #[test]
    fn deleted_data_is_listed() {
        let went = |id: &str, what, count, bytes| {
            let files = if what == DataKind::Session { vec![format!("sessions/{id}/lock")] } else { Vec::new() };
            Deleted { session_id: id.to_owned(), what, count, bytes, files }
        };
        let went = [went("old", DataKind::Session, 1, 12_345), went("work", DataKind::JournalSegments, 2, 9)];
        let document = |went, dry_run| {
            let total = Total { count: 3, bytes: 12_354 };
            PruneDocument { dry_run, went, total, left: &[], faults: &[] }
        };
        assert_eq!(
            deleted_table(&document(&went, true), &[], Screen::None),
            "old   session           1  12.1 KiB\n\
             work  journal segments  2       9 B\n\
             sessions/old/lock\n\
             12.1 KiB would be deleted; 1 of 2 sessions entirely\n"
        );
        let nothing = "nothing to delete: everything is within its limits\n";
        assert_eq!(deleted_table(&document(&[], true), &[], Screen::None), nothing);
    }
}
