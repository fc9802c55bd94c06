//! `codex-shim redact`: masks secrets in stored sessions.

use std::error::Error as _;

use clap::Args;
use serde::Serialize;

use super::screen::{self, Screen, Tone};
use super::session_args::SessionWord;
use super::table::{Column, Table};
use super::{FAILED, USAGE, say, select_session};
use crate::config::{Environment, Flags, Settings};
use crate::engine::Masker;
use crate::index::TranscriptFiles;
use crate::keeping::{Masked, redact};
use crate::store::{Otherwise, RunMode};

/// Mask secrets in stored sessions
///
/// In the journal, history, ledger, transcripts and log of a session it masks text that looks like a key, a token or a
/// password, values whose name says so, and matches of your patterns. It prints counts, never a secret. Files of codex itself
/// stay as they are.
///
/// Beside a running relay, the segment that it writes and lines that are not indexed yet stay: redact again when it has ended.
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
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    dry_run: bool,
    sessions: usize,
    masked: &'a [Masked],
    /// Segments that a relay is using.
    segments_left: u64,
    faults: &'a [String],
}

/// Masks or counts secrets.
pub(super) fn run(arguments: &RedactArguments, environment: &Environment) -> i32 {
    let masker = match Masker::new(&arguments.patterns) {
        Ok(masker) => masker,
        Err(error) => {
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            say(&format!("{error}:\n{}", why.trim_end()));
            return USAGE;
        }
    };
    let found = match arguments.all {
        true => select_session::all(environment)
            .map(|found| found.into_iter().filter(|session| !session.dir.is_symlink()).collect()),
        false => {
            select_session::one(arguments.session.name(), Otherwise::None, environment).map(|session| vec![session])
        }
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => return error.report(),
    };
    let (settings, _) = Settings::load(Flags::default(), environment);
    let transcript_files = if settings.transcript_files.value { TranscriptFiles::Kept } else { TranscriptFiles::None };
    let mode = if arguments.dry_run { RunMode::DryRun } else { RunMode::Apply };
    let (mut masked, mut segments_left, mut faults) = (Vec::new(), 0, Vec::new());
    for session in &found {
        let (more, left, wrong) = redact(session, &masker, transcript_files, mode);
        masked.extend(more);
        segments_left += left;
        faults.extend(wrong);
    }
    let document =
        Document { dry_run: arguments.dry_run, sessions: found.len(), masked: &masked, segments_left, faults: &faults };
    let text = match arguments.json {
        true => format!("{}\n", serde_json::to_string(&document).expect("BUG: plain data is JSON")),
        false => as_table(&document, Screen::of_stdout(environment)),
    };
    let printed = screen::print(&text);
    faults.iter().for_each(|fault| say(fault));
    if faults.is_empty() { printed } else { FAILED }
}

fn as_table(document: &Document<'_>, to: Screen) -> String {
    let verb = if document.dry_run { "would be masked" } else { "masked" };
    let columns = vec![Column::whole("SESSION"), Column::number("MASKED"), Column::text("IN")];
    let cells = |found: &Masked| {
        let place = format!("{} {verb}", found.place.name());
        vec![(Tone::Strong, found.session_id.clone()), (Tone::Faint, found.masked.to_string()), (Tone::Faint, place)]
    };
    let mut text = Table::of(columns, document.masked.iter().map(cells).collect(), to);
    if text.is_empty() {
        text = "no secrets found\n".to_owned();
    }
    if document.segments_left > 0 {
        let told = format!(
            "{} journal segments were skipped: a relay is using them, or they are not indexed; redact again when it has ended",
            document.segments_left
        );
        text.push_str(&format!("{}\n", screen::wrapped(&told, 0, 0, screen::columns(to))));
    }
    text
}
