//! `codex-shim transcript`: the messages and actions of a thread.

use std::fmt::Write as _;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::complete;
use super::super::screen::{self, Screen, Tone};
use super::super::screen::{Clock, Times};
use super::super::select_session::SessionFlag;
use super::super::{CliError, Done};
use super::{find, known, put, read_of};
use crate::config::Environment;
use crate::engine::{one_line, without_shell};
use crate::history::{action_in_words, decided};

/// Print the conversation and the actions of a thread
///
/// Only finished things, in order: messages, commands and how they ended, file changes, approvals and their answers.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if the history cannot be read, or 3 if there is no such
thread or session.

Examples:
  codex-shim transcript
  codex-shim transcript 0192abcd --session work
  codex-shim transcript latest --json | jq -r 'select(.role == \"user\").text'")]
pub(in crate::cli) struct TranscriptArguments {
    /// Thread: its id, or a unique beginning of it
    #[arg(value_name = "THREAD", default_value = "latest", add = complete::threads())]
    thread: String,
    #[command(flatten)]
    session: SessionFlag,
    /// Print one JSON document per line
    #[arg(long = "json")]
    as_json: bool,
    #[command(flatten)]
    times: Times,
}

/// Lines shown from the end of an output.
const OUTPUT_LINES_MAX: usize = 5;

/// Most files of a diff that are named; the rest is counted.
const DIFF_FILES_MAX: usize = 8;

#[derive(Deserialize)]
struct Transcript {
    entries: Vec<Box<RawValue>>,
}

/// Prints a transcript.
pub(in crate::cli) fn run_transcript(arguments: &TranscriptArguments, environment: &Environment) -> Done {
    let mut read = read_of(arguments.session.name(), Some(&arguments.thread), environment)??;
    let thread = find(&arguments.thread, &known(&mut read)?)?;
    let path = format!("/sessions/self/threads/{thread}/transcript");
    let told: Transcript = read.ask(&path, |past| {
        let entries = past.history.transcript(&thread, 0)?;
        Ok(Transcript { entries: entries.into_iter().filter_map(|entry| RawValue::from_string(entry).ok()).collect() })
    })?;
    if told.entries.is_empty() {
        return Err(CliError::failed(format!("no messages in thread {thread} yet")));
    }
    let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    for entry in &told.entries {
        let text = match arguments.as_json {
            true => format!("{entry}\n"),
            false => in_words(&serde_json::from_str(entry.get()).unwrap_or_default(), &clock, to),
        };
        put(&text)?;
    }
    Ok(0)
}

/// An entry in words; empty if it has nothing to read.
fn in_words(entry: &Value, clock: &Clock, to: Screen) -> String {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    let role = text("role");
    let status = Some(text("status")).filter(|status| !status.is_empty()).unwrap_or("completed");
    let ended = how_it_ended(entry);
    let at = clock.text(text("ts"));
    match role {
        "user" => block("user", Tone::Good, &at, text("text"), None, to),
        "assistant" => block("assistant", Tone::Strong, &at, text("text"), None, to),
        "reasoning" => block("reasoning", Tone::Faint, &at, text("text"), Some(Tone::Faint), to),
        "plan" => block("plan", Tone::Strong, &at, &plan(entry), None, to),
        "command" => {
            let command = one_line(&without_shell(text("command")));
            let line = match text("status") {
                status @ ("declined" | "cancelled") => format!("{}{ended}", action_in_words(role, status, &command)),
                _ => format!("$ {command}{ended}"),
            };
            format!("{}{}", row(Tone::Strong, &line, to), output(text("output"), to))
        }
        "file_change" => {
            let files: Vec<String> = changes(&entry["changes"]);
            row(Tone::Strong, &format!("{}{ended}", action_in_words(role, status, &files.join(", "))), to)
        }
        "tool" => {
            let name = [text("server"), text("tool")].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
            let name = if name.is_empty() { text("item_type").to_owned() } else { name.join(".") };
            let said = if text("text").is_empty() { String::new() } else { format!(": {}", one_line(text("text"))) };
            row(Tone::Strong, &format!("{}{ended}", action_in_words(role, status, &format!("{name}{said}"))), to)
        }
        "diff" => row(Tone::Faint, &format!("diff of the turn so far: {}", files_of(text("text"))), to),
        "approval" => {
            let what = [text("command"), text("text"), text("reason")].into_iter().find(|part| !part.is_empty());
            let (subject, accepted) = match text("kind") {
                "elicitation" | "questions" => ("User input", "submitted"),
                _ => ("Approval", "given"),
            };
            let decision = Some(decision(entry)).filter(|decision| !decision.is_empty());
            let code =
                [text("error_code"), text("status")].into_iter().find(|part| !part.is_empty() && *part != "resolved");
            let (verb, outcome) = match code {
                Some(code) if decision.is_none() => ("requested".to_owned(), format!(": {code}")),
                Some(_) | None => (decided(decision.as_deref(), accepted), String::new()),
            };
            let by = if text("source").is_empty() { String::new() } else { format!(", by {}", text("source")) };
            let what = what.map(|what| one_line(&without_shell(what))).unwrap_or_else(|| text("kind").to_owned());
            row(Tone::Warning, &format!("{subject} {verb}: {what}{outcome}{by}"), to)
        }
        "status" => {
            let tone = if text("status") == "completed" { Tone::Faint } else { Tone::Bad };
            let why = if text("error_message").is_empty() { text("error_code") } else { text("error_message") };
            let why = if why.is_empty() { String::new() } else { format!(": {}", one_line(why)) };
            format!("{}\n", row(tone, &format!("turn {}{}{why}", text("status"), took(entry)), to))
        }
        "error" => row(Tone::Bad, &format!("error: {}", one_line(text("text"))), to),
        "token_usage" => row(Tone::Faint, &format!("{} tokens in the last call", entry["total"]), to),
        "context_compacted" => row(Tone::Faint, "the context was compacted", to),
        other => row(Tone::Faint, other, to),
    }
}

/// The role, and the text below it.
fn block(role: &str, tone: Tone, at: &str, said: &str, said_tone: Option<Tone>, to: Screen) -> String {
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
            let line = said_tone.map_or(line.to_owned(), |tone| to.paint(tone, line));
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

/// ` (exit 1, 2s 300ms)`; empty if the action completed and took no time. Statuses without an exit code that
/// [`action_in_words`] puts in front are not repeated.
fn how_it_ended(entry: &Value) -> String {
    let mut told: Vec<String> = Vec::new();
    match (entry["exit_code"].as_i64(), entry["status"].as_str()) {
        (Some(code), _) => told.push(format!("exit {code}")),
        (None, Some(status @ ("failed" | "interrupted" | "timeout"))) if entry["role"] == "command" => {
            told.push(status.to_owned());
        }
        (None, Some(_) | None) => {}
    }
    told.extend(entry["duration_ms"].as_u64().map(duration));
    told.extend(entry["error_message"].as_str().map(one_line));
    if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
}

fn took(entry: &Value) -> String {
    entry["duration_ms"].as_u64().map(|ms| format!(" in {}", duration(ms))).unwrap_or_default()
}

fn duration(ms: u64) -> String {
    // Milliseconds do not matter in long durations.
    let ms = if ms >= 10_000 { ms / 1_000 * 1_000 } else { ms };
    humantime::format_duration(std::time::Duration::from_millis(ms)).to_string()
}

fn output(text: &str, to: Screen) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let hidden = lines.len().saturating_sub(OUTPUT_LINES_MAX);
    let mut told = String::new();
    if hidden > 0 {
        told.push_str(&row(Tone::Faint, &format!("  … {hidden} more above"), to));
    }
    for line in &lines[hidden..] {
        let line = screen::plain(&line.replace('\t', "    "));
        told.push_str(&format!("    {}\n", to.paint(Tone::Faint, &line)));
    }
    told
}

/// `src/a.rs (+3 -1)` for each file.
fn changes(changes: &Value) -> Vec<String> {
    let change = |change: &Value| {
        let path = change["path"].as_str().unwrap_or("a file");
        let kind = change["kind"]["type"].as_str().or(change["kind"].as_str()).unwrap_or("update");
        let diff = change["diff"].as_str().unwrap_or_default();
        match kind {
            "add" => format!("{path} (new, {} lines)", diff.lines().count()),
            "delete" => format!("{path} (deleted)"),
            _ => format!("{path} ({})", lines_of(diff)),
        }
    };
    changes.as_array().into_iter().flatten().map(change).collect()
}

/// `+3 -1`
fn lines_of(diff: &str) -> String {
    let is_head = |line: &&str| line.starts_with("+++ ") || line.starts_with("--- ");
    let count = |sign: char| diff.lines().filter(|line| line.starts_with(sign) && !is_head(line)).count();
    format!("+{} -{}", count('+'), count('-'))
}

/// `a.rs (+1 -1), b.rs (+9 -2)`: the files of a unified diff, each with its counts.
fn files_of(diff: &str) -> String {
    let starts: Vec<usize> = memchr::memmem::find_iter(diff.as_bytes(), b"diff --git ")
        .filter(|at| *at == 0 || diff.as_bytes()[at - 1] == b'\n')
        .chain(std::iter::once(diff.len()))
        .collect();
    let of_file = |range: &[usize]| {
        let part = &diff[range[0]..range[1]];
        let named = |sign: &str| part.lines().find_map(|line| line.strip_prefix(sign));
        let path = named("+++ ").filter(|path| *path != "/dev/null").or_else(|| named("--- "));
        let path = path.map(|path| path.strip_prefix("b/").or(path.strip_prefix("a/")).unwrap_or(path));
        // A file that is only moved or made executable has no such lines.
        let path = path.or_else(|| part.lines().next().and_then(|line| line.rsplit(" b/").next()));
        format!("{} ({})", one_line(path.unwrap_or("a file")), lines_of(part))
    };
    match &starts[..] {
        _ if diff.is_empty() => "empty".to_owned(),
        [_] => lines_of(diff),
        starts => {
            let listed: Vec<String> = starts.windows(2).take(DIFF_FILES_MAX).map(of_file).collect();
            match (starts.len() - 1).saturating_sub(DIFF_FILES_MAX) {
                0 => listed.join(", "),
                more => format!("{} and {more} more files", listed.join(", ")),
            }
        }
    }
}

fn plan(entry: &Value) -> String {
    let step = |step: &Value| {
        let mark = match step["status"].as_str() {
            Some("completed") => "x",
            Some("in_progress") => ">",
            Some(_) | None => " ",
        };
        format!("[{mark}] {}\n", step["step"].as_str().unwrap_or_default())
    };
    match entry["steps"].as_array() {
        Some(steps) => steps.iter().map(step).collect(),
        None => entry["text"].as_str().unwrap_or_default().to_owned(),
    }
}

fn decision(entry: &Value) -> String {
    match &entry["decision"] {
        Value::String(decision) => decision.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => entry["decision"].to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(entry: Value, expect: &str) {
        assert_eq!(in_words(&entry, &Clock::stopped("2026-01-02T03:04:05Z"), Screen::None), expect, "{entry}");
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
        let moved = "diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n";
        let two = format!("{diff}{moved}");
        check(json!({"role": "diff", "text": two}), "  diff of the turn so far: a (+1 -1), new (+0 -0)\n");
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
