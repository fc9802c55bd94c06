//! `codex-shim transcript`: the messages and actions of a thread.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::super::complete;
use super::super::offline::{self, Read};
use super::super::screen::{self, Screen, Tone};
use super::super::screen::{Clock, Times};
use super::super::select_session::SessionFlag;
use super::super::{CliError, Done};
use super::below::{Below, Detail, More, below, lines_of};
use super::entry::{Words, words};
use super::export::{self, Format};
use super::{LATEST, NotAThread, find, known, latest_of_all, read_of};
use crate::api::{Entry, Transcript, TranscriptDocument};
use crate::config::Environment;
use crate::control::recorded_threads;
use crate::store::{Found, label};

/// Print the conversation and the actions of a thread
///
/// Only finished things, in order: messages, commands and how they ended, file changes, approvals and their answers.
///
/// With --format or -o it is an export that you can hand on: what looks like a secret is masked, and your home folder is
/// written `~`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if the history cannot be read or the file cannot be
written, or 3 if there is no such thread or session.

Examples:
  codex-shim transcript
  codex-shim transcript work
  codex-shim transcript 0192abcd --session work
  codex-shim transcript latest --json | jq -r 'select(.role == \"user\").text'
  codex-shim transcript -o report.html
  codex-shim transcript --format md --full --diff > report.md")]
pub(in crate::cli) struct TranscriptArguments {
    /// Thread: its id, or a unique beginning of it; or a session, for its latest thread
    #[arg(value_name = "THREAD", default_value = "latest", add = complete::threads())]
    pub(super) thread: String,
    #[command(flatten)]
    pub(super) session: SessionFlag,
    /// For `latest`, take any thread, also those of agents and for titles
    #[arg(long)]
    all_threads: bool,
    /// Print one JSON document per line
    #[arg(long = "json", conflicts_with_all = ["format", "output", "full", "diff", "paths"])]
    as_json: bool,
    /// Export in this format [default: by the name of FILE, else text]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(super) format: Option<Format>,
    /// Export whole outputs, and the input and results of tools
    #[arg(long)]
    pub(super) full: bool,
    /// Export the diffs of all changes
    #[arg(long)]
    pub(super) diff: bool,
    /// Export paths as they are, with the names of home folders
    #[arg(long)]
    pub(super) paths: bool,
    /// File to write, for you alone [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "output")]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) times: Times,
}

impl TranscriptArguments {
    fn is_export(&self) -> bool {
        self.format.is_some() || self.output.is_some() || self.full || self.diff || self.paths
    }
}

/// Lines shown from the end of an output.
pub(super) const OUTPUT_LINES_MAX: usize = 5;

/// What a terminal shows.
const BRIEF: Detail = Detail { output_lines_max: Some(OUTPUT_LINES_MAX), has_diffs: false, more: More::None };

/// Prints or exports a transcript.
pub(in crate::cli) fn run_transcript(arguments: &TranscriptArguments, environment: &Environment) -> Done {
    let (mut read, thread) = chosen(arguments, environment)?;
    let TranscriptDocument { entries, .. } = read.query(&Transcript { thread_id: thread.clone() })?;
    if entries.is_empty() {
        return Err(CliError::failed(format!("no messages in thread {thread} yet")));
    }
    if arguments.is_export() {
        return export::run(arguments, &read.session, &thread, &entries, environment);
    }
    let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    if !arguments.as_json && to != Screen::None {
        screen::put(&head(&read.session, &thread, to))?;
    }
    for entry in &entries {
        let text = match (arguments.as_json, Entry::read(entry.get())) {
            (true, _) => format!("{entry}\n"),
            (false, Some(entry)) => in_words(&entry, &clock, to, &BRIEF),
            (false, None) => continue,
        };
        screen::put(&text)?;
    }
    Ok(0)
}

/// The thread, and the history that has it. The name of a session means its latest thread.
fn chosen(arguments: &TranscriptArguments, environment: &Environment) -> Result<(Read, String), CliError> {
    let (flag, name) = (arguments.session.name(), &*arguments.thread);
    if arguments.all_threads && name == LATEST {
        let mut read = offline::chosen(flag, environment)?;
        let thread = latest_of_all(&mut read)?;
        return Ok((read, thread));
    }
    let not_found = match read_of(flag, Some(name), environment)? {
        Err(not_found) => not_found,
        Ok(mut read) => match find(name, &known(&mut read)?) {
            Ok(thread) => return Ok((read, thread)),
            Err(not_found) => not_found.described(&[&read.session.dir]),
        },
    };
    match not_found {
        NotAThread::Unknown { .. } | NotAThread::InNone { .. } if flag.is_none() => {
            let Ok(mut read) = offline::chosen(Some(name), environment) else { return Err(not_found.into()) };
            let thread = find(LATEST, &known(&mut read)?)?;
            Ok((read, thread))
        }
        NotAThread::Unknown { .. } | NotAThread::InNone { .. } | NotAThread::Ambiguous { .. } => Err(not_found.into()),
    }
}

/// The line above a transcript on a terminal: where the thread works, whose it is and its title.
fn head(session: &Found, thread: &str, to: Screen) -> String {
    let identity = recorded_threads(&session.dir, &[thread.to_owned()]).remove(thread).unwrap_or_default();
    let words = identity.in_words().unwrap_or_else(|| label(session));
    format!("{}\n\n", to.paint(Tone::Strong, &screen::fitted(&screen::plain(&words), screen::columns(to))))
}

/// An entry as text.
pub(super) fn in_words(entry: &Entry<'_>, clock: &Clock, to: Screen, detail: &Detail) -> String {
    match words(entry) {
        Words::Message { tone, written: _, text } => {
            block(entry.content.role(), tone, &clock.text(&entry.ts), &text, to)
        }
        Words::TurnEnd { tone, line } => format!("{}\n", row(tone, &line, to)),
        Words::Action { tone, line } => {
            let rows: String = below(entry, detail).iter().map(|below| below_rows(below, to)).collect();
            format!("{}{rows}", row(tone, &line, to))
        }
    }
}

/// The role, and the text below it.
fn block(role: &str, tone: Tone, at: &str, said: &str, to: Screen) -> String {
    let mut text = format!("{}  {}\n", to.paint(tone, role), to.paint(Tone::Faint, &screen::plain(at)));
    let columns_max = screen::columns(to);
    let mut is_code = false;
    for line in said.lines() {
        let line = screen::plain(&line.replace('\t', "    "));
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        // Code is copied, so it keeps its lines.
        let columns_max = columns_max.filter(|_| !is_code && !is_fence);
        let indented = format!("  {line}");
        let wrapped = columns_max.map(|columns_max| screen::wrapped(&indented, 2 + hanging(&line), columns_max));
        for line in wrapped.unwrap_or(indented).lines() {
            let line = if tone == Tone::Faint { to.paint(tone, line) } else { line.to_owned() };
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text.push('\n');
    text
}

/// The columns of the blanks and the bullet or number before a text.
fn hanging(line: &str) -> usize {
    let text = line.trim_start_matches(' ');
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let mark = match () {
        () if text.starts_with("- ") || text.starts_with("* ") => 2,
        () if digits > 0 && text[digits..].starts_with(". ") => digits + 2,
        () => 0,
    };
    line.len() - text.len() + mark
}

fn row(tone: Tone, line: &str, to: Screen) -> String {
    let line = format!("  {}", to.paint(tone, &screen::plain(line)));
    format!("{}\n", screen::fitted(&line, screen::columns(to)))
}

/// A text below an action, indented.
fn below_rows(below: &Below<'_>, to: Screen) -> String {
    let mut told = String::new();
    let heads = [Some(&below.title).filter(|title| !title.is_empty()), below.missing.as_ref()];
    for head in heads.into_iter().flatten() {
        told.push_str(&row(Tone::Faint, &format!("  {head}"), to));
    }
    for (_, line) in lines_of(below) {
        let line = screen::plain(&line.replace('\t', "    "));
        told.push_str(&format!("    {}\n", to.paint(Tone::Faint, &line)));
    }
    told
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(entry: Value, expect: &str) {
        let json = entry.to_string();
        let read = Entry::read(&json).expect("BUG: a test gives entries");
        assert_eq!(in_words(&read, &Clock::stopped("2026-01-02T03:04:05Z"), Screen::None, &BRIEF), expect, "{entry}");
    }

    #[test]
    fn messages_stand_below_their_role() {
        let at = "2026-01-01T23:04:05.678Z";
        let expect = "user  2026-01-01 23:04:05 UTC\n  a\n      b\u{fffd}\n\n";
        check(json!({"role": "user", "ts": at, "text": "a\n\tb\u{1b}"}), expect);
        let steps = json!([{"step": "one", "status": "completed"}, {"step": "two", "status": "in_progress"}]);
        check(json!({"role": "plan", "ts": "T", "steps": steps}), "plan  T\n  [x] one\n  [>] two\n\n");
    }

    #[test]
    fn actions_are_one_line() {
        let output = "1\n2\n3\n4\n5\n6\n";
        check(
            json!({"role": "command", "command": "/bin/sh -c 'make x'", "exit_code": 2, "duration_ms": 12_345, "output": output}),
            "  $ make x (exit 2, 12s)\n    … 1 more above\n    2\n    3\n    4\n    5\n    6\n",
        );
        check(
            json!({"role": "command", "command": "/bin/bash -lc 'rm -rf build'", "status": "declined", "duration_ms": 125_000}),
            "  declined: rm -rf build (2m 5s)\n",
        );
        let changes = json!([
            {"path": "a", "kind": {"type": "update"}, "diff": "@@ -1 +1,2 @@\n-x\n+y\n+z\n"},
            {"path": "b", "kind": {"type": "add"}, "diff": "x\ny\n"},
        ]);
        check(
            json!({"role": "file_change", "changes": changes, "status": "declined"}),
            "  declined: change a (+2 -1), b (new, 2 lines)\n",
        );
        check(json!({"role": "tool", "server": "lab", "tool": "look", "status": "completed"}), "  called lab.look\n");
        let diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n";
        check(json!({"role": "diff", "text": diff}), "  diff of the turn so far: a (+1 -1)\n");
        let lookalike = "diff --git a/q b/q\n--- a/q\n+++ b/q\n@@ -1 +1 @@\n--- x\n+++ y\n";
        check(json!({"role": "diff", "text": lookalike}), "  diff of the turn so far: q (+1 -1)\n");
        let moved = "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n";
        let two = format!("{diff}{moved}");
        check(json!({"role": "diff", "text": two}), "  diff of the turn so far: a (+1 -1), old -> new (+0 -0)\n");
        check(
            json!({"role": "approval", "command": "make", "status": "resolved", "decision": "accept", "source": "cli"}),
            "  Approval given: make, by cli\n",
        );
        check(
            json!({"role": "status", "status": "failed", "error_code": "app_server_stream_closed"}),
            "  turn failed: app_server_stream_closed\n\n",
        );
    }
}
