//! `codex-shim redact`: secrets in what is stored are masked.

use std::error::Error as _;

use clap::Args;
use serde::Serialize;

use super::screen::{self, plain};
use super::{FAILED, USAGE, chosen, say};
use crate::config::{Environment, Flags, Settings};
use crate::engine::Masker;
use crate::index::TranscriptFiles;
use crate::keeping::{Masked, redact};
use crate::store::{Deed, Otherwise};

/// Mask secrets in what is stored already
///
/// Journal, history, ledger, transcripts and log of a session: what looks like a key, a token or a password, values whose name
/// says so, and what the patterns match. Each secret is written over with as many bytes, and what was overwritten before goes
/// from the files of the databases too. Codex's own files are not touched. Counts are printed, never a secret.
///
/// Beside a relay that runs, what it has in hand stays: the segment that it writes, and what is not indexed. Redact again once
/// it has ended.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A pattern is a regular expression, matched in text as it was before it became JSON. What the protocol is made of (methods,
kinds, ids, numbers) stays, whatever a pattern matches.

Without --session and --all: the session in CODEX_SHIM_SESSION, else the live one whose working directory or repository
holds ours, else the only live one.

Exit status: 0 it is done, also where there was nothing to mask, 1 not all could be done, 2 a pattern is none,
3 there is no such session.

Examples:
  codex-shim redact --all --dry-run
  codex-shim redact --session work
  codex-shim redact --all --pattern 'hunter2' --pattern '[a-z.]+@corp[.]example'")]
pub(super) struct RedactArguments {
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION", conflicts_with = "all")]
    session: Option<String>,
    /// All sessions
    #[arg(long)]
    all: bool,
    /// Mask what this matches, too; can be given more than once
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
    /// Segments that their relay has in hand.
    segments_left: u64,
    faults: &'a [String],
}

/// Masks them, or counts.
pub(super) fn run(arguments: &RedactArguments, environment: &Environment) -> i32 {
    let masker = match Masker::new(&arguments.patterns) {
        Ok(masker) => masker,
        Err(error) => {
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            say(&format!("{error}: {}", why.replace('\n', " ")));
            return USAGE;
        }
    };
    let found = match arguments.all {
        true => chosen::all(environment)
            .map(|found| found.into_iter().filter(|session| !session.dir.is_symlink()).collect()),
        false => chosen::one(arguments.session.as_deref(), Otherwise::None, environment).map(|session| vec![session]),
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => return error.told(),
    };
    let (settings, _) = Settings::load(Flags::default(), environment);
    let transcript_files = if settings.transcript_files.value { TranscriptFiles::Kept } else { TranscriptFiles::None };
    let deed = if arguments.dry_run { Deed::Looked } else { Deed::Done };
    let (mut masked, mut segments_left, mut faults) = (Vec::new(), 0, Vec::new());
    for session in &found {
        let (more, left, wrong) = redact(session, &masker, transcript_files, deed);
        masked.extend(more);
        segments_left += left;
        faults.extend(wrong);
    }
    let document =
        Document { dry_run: arguments.dry_run, sessions: found.len(), masked: &masked, segments_left, faults: &faults };
    let text = match arguments.json {
        true => format!("{}\n", serde_json::to_string(&document).expect("BUG: plain data is JSON")),
        false => as_table(&document),
    };
    let printed = screen::print(&text);
    faults.iter().for_each(|fault| say(fault));
    if faults.is_empty() { printed } else { FAILED }
}

fn as_table(document: &Document<'_>) -> String {
    let verb = if document.dry_run { "would be masked" } else { "masked" };
    let width = document.masked.iter().map(|found| plain(&found.session_id).chars().count()).max().unwrap_or(0);
    let line = |found: &Masked| {
        let id = plain(&found.session_id);
        format!("{id:width$}  {:>6} {} {verb}\n", found.masked, found.place.name())
    };
    let mut text: String = document.masked.iter().map(line).collect();
    if text.is_empty() {
        text = "there is nothing to mask\n".to_owned();
    }
    if document.segments_left > 0 {
        text.push_str(&format!(
            "{} journal segments are in the hands of a relay, or not indexed: redact again once it has ended\n",
            document.segments_left
        ));
    }
    text
}
