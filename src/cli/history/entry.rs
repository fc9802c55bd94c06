//! An entry of a transcript in words, for every way to print it.

use std::borrow::Cow;

use serde_json::Value;

use super::super::screen::Tone;
use crate::engine::{one_line, without_shell};
use crate::history::{action_in_words, decided};
use crate::protocol::change::{self, ChangeSize, File, FileChange, Form};

/// Most files of a diff that are named; the rest is counted.
const DIFF_FILES_MAX: usize = 8;

/// The words for an entry: text of others, as it was written.
pub(super) enum Told<'a> {
    /// A message.
    Said { role: &'a str, tone: Tone, written: Written, text: Cow<'a, str> },
    /// An action, in one line.
    Did { tone: Tone, line: String },
    /// The end of a turn, in one line.
    EndedTurn { tone: Tone, line: String },
}

/// How a message was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// By a person, or by us: every sign stands for itself.
    Verbatim,
    /// By the model.
    Markdown,
}

/// The words for an entry.
pub(super) fn told(entry: &Value) -> Told<'_> {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    let role = text("role");
    let status = Some(text("status")).filter(|status| !status.is_empty()).unwrap_or("completed");
    let ended = how_it_ended(entry);
    let said = |role, tone, written, text| Told::Said { role, tone, written, text };
    let did = |tone, line| Told::Did { tone, line };
    match role {
        "user" => said("user", Tone::Good, Written::Verbatim, text("text").into()),
        "assistant" => said("assistant", Tone::Strong, Written::Markdown, text("text").into()),
        "reasoning" => said("reasoning", Tone::Faint, Written::Markdown, text("text").into()),
        "plan" => {
            let written = if entry["steps"].is_array() { Written::Verbatim } else { Written::Markdown };
            said("plan", Tone::Strong, written, plan(entry).into())
        }
        "command" => {
            let command = one_line(&without_shell(text("command")));
            did(
                Tone::Strong,
                match text("status") {
                    status @ ("declined" | "cancelled") => {
                        format!("{}{ended}", action_in_words(role, status, &command))
                    }
                    _ => format!("$ {command}{ended}"),
                },
            )
        }
        "file_change" => {
            let files: Vec<String> = changes(&entry["changes"]);
            did(Tone::Strong, format!("{}{ended}", action_in_words(role, status, &files.join(", "))))
        }
        "tool" => {
            let name = [text("server"), text("tool")].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
            let name = if name.is_empty() { text("item_type").to_owned() } else { name.join(".") };
            let said = if text("text").is_empty() { String::new() } else { format!(": {}", one_line(text("text"))) };
            did(Tone::Strong, format!("{}{ended}", action_in_words(role, status, &format!("{name}{said}"))))
        }
        "diff" => did(Tone::Faint, format!("diff of the turn so far: {}", files_of(text("text")))),
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
            let before = match text("not_sent") {
                "" => String::new(),
                answer => format!(" (the earlier answer, {answer}, was not sent)"),
            };
            did(Tone::Warning, format!("{subject} {verb}: {what}{outcome}{by}{before}"))
        }
        "status" => {
            let tone = if text("status") == "completed" { Tone::Faint } else { Tone::Bad };
            let why = if text("error_message").is_empty() { text("error_code") } else { text("error_message") };
            let why = if why.is_empty() { String::new() } else { format!(": {}", one_line(why)) };
            Told::EndedTurn { tone, line: format!("turn {}{}{why}", text("status"), took(entry)) }
        }
        "error" => did(Tone::Bad, format!("error: {}", one_line(text("text")))),
        "token_usage" => did(Tone::Faint, format!("{} tokens in the last call", entry["total"])),
        "context_compacted" => did(Tone::Faint, "the context was compacted".to_owned()),
        other => did(Tone::Faint, other.to_owned()),
    }
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

/// `src/a.rs (+3 -1)` for each file.
fn changes(changes: &Value) -> Vec<String> {
    let change = |change: FileChange<'_>| {
        let (path, counts) = (change.path.unwrap_or("a file"), change.size());
        match change.form() {
            Form::Added => format!("{path} (new, {} lines)", counts.added),
            Form::Deleted => format!("{path} (deleted)"),
            Form::Updated | Form::Turn | Form::Listed => format!("{path} ({})", in_signs(counts)),
        }
    };
    FileChange::all(changes).into_iter().map(change).collect()
}

/// `+3 -1`
fn in_signs(counts: ChangeSize) -> String {
    format!("+{} -{}", counts.added, counts.removed)
}

/// `a.rs (+1 -1), b.rs (+9 -2)`: the files of a unified diff, each with its counts.
fn files_of(diff: &str) -> String {
    let files = change::files(Form::Turn, diff);
    let of_file = |(file, counts): &(File<'_>, ChangeSize)| {
        format!("{} ({})", one_line(&file.name(str::to_owned)), in_signs(*counts))
    };
    let listed = || files.iter().take(DIFF_FILES_MAX).map(of_file).collect::<Vec<_>>().join(", ");
    match files.len() {
        _ if diff.is_empty() => "empty".to_owned(),
        0 => in_signs(ChangeSize::of(Form::Turn, diff)),
        many if many > DIFF_FILES_MAX => format!("{} and {} more files", listed(), many - DIFF_FILES_MAX),
        _ => listed(),
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
