//! An entry of a transcript in words, for every way to print it.

use std::borrow::Cow;

use serde_json::Value;

use super::super::screen::Tone;
use crate::api::{ApprovalDocument, Content, Entry, ItemDocument, Said};
use crate::engine::{one_line, without_shell};
use crate::history::{action_in_words, decided};
use crate::protocol::change::{self, ChangeSize, File, FileChange, Form};

/// Most files of a diff that are named; the rest is counted.
const DIFF_FILES_MAX: usize = 8;

/// The words for an entry: text of others, as it was written.
pub(super) enum Words<'a> {
    Message {
        tone: Tone,
        written: Written,
        text: Cow<'a, str>,
    },
    /// One line.
    Action {
        tone: Tone,
        line: String,
    },
    /// One line.
    TurnEnd {
        tone: Tone,
        line: String,
    },
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
pub(super) fn words<'a>(entry: &'a Entry<'_>) -> Words<'a> {
    let message = |tone, written, text| Words::Message { tone, written, text };
    let said = |said: &'a Said<'_>| Cow::Borrowed(said.text.as_deref().unwrap_or_default());
    let action = |tone, line| Words::Action { tone, line };
    match &entry.content {
        Content::User(words) => message(Tone::Good, Written::Verbatim, said(words)),
        Content::Assistant(words) => message(Tone::Strong, Written::Markdown, said(words)),
        Content::Reasoning(words) => message(Tone::Faint, Written::Markdown, said(words)),
        Content::Plan(plan) => match plan.steps_in_words() {
            Some(steps) => message(Tone::Strong, Written::Verbatim, steps.into()),
            None => message(Tone::Strong, Written::Markdown, plan.text.as_deref().unwrap_or_default().into()),
        },
        Content::Command(item) | Content::FileChange(item) | Content::Tool(item) => {
            action(Tone::Strong, format!("{}{}", done(&entry.content, item), how_it_ended(&entry.content, item)))
        }
        Content::Diff(diff) => action(Tone::Faint, format!("diff of the turn so far: {}", files_of(&diff.text))),
        Content::Approval(request) => action(Tone::Warning, decision(request)),
        Content::Status(end) => {
            let tone = if end.status == "completed" { Tone::Faint } else { Tone::Bad };
            let took = end.duration_ms().map(|ms| format!(" in {}", duration(ms))).unwrap_or_default();
            let why = end.why().map(|why| format!(": {}", one_line(why))).unwrap_or_default();
            Words::TurnEnd { tone, line: format!("turn {}{took}{why}", end.status) }
        }
        Content::Error(error) => action(Tone::Bad, format!("error: {}", one_line(error.text()))),
        Content::Usage(usage) => {
            action(Tone::Faint, format!("{} tokens in the last call", usage.total.unwrap_or_default()))
        }
        Content::Compaction => action(Tone::Faint, "the context was compacted".to_owned()),
        Content::Other(role) => action(Tone::Faint, role.clone().into_owned()),
    }
}

/// An action in words that fit its status.
fn done(content: &Content<'_>, item: &ItemDocument) -> String {
    let status = item.status.as_deref().filter(|status| !status.is_empty());
    let what = if let Content::Command(_) = content {
        let command = one_line(&without_shell(item.command.as_deref().unwrap_or_default()));
        if !matches!(status, Some("declined" | "cancelled")) {
            return format!("$ {command}");
        }
        command
    } else if let Content::FileChange(_) = content {
        item.changes.as_ref().map(changes).unwrap_or_default().join(", ")
    } else {
        match item.text.as_deref().filter(|text| !text.is_empty()) {
            Some(text) => format!("{}: {}", item.name(), one_line(text)),
            None => item.name().into_owned(),
        }
    };
    action_in_words(content.role(), status.unwrap_or("completed"), &what)
}

/// How a request ended.
fn decision(request: &ApprovalDocument<'_>) -> String {
    let (subject, accepted) = match &*request.kind {
        "elicitation" | "questions" => ("User input", "submitted"),
        _ => ("Approval", "given"),
    };
    let code = request.error_code.as_deref().or(request.status.as_deref()).filter(|code| *code != "resolved");
    let (verb, outcome) = match (code, request.decision.as_deref()) {
        (Some(code), None) => ("requested".to_owned(), format!(": {code}")),
        (_, decision) => (decided(decision, accepted), String::new()),
    };
    let what = [&request.command, &request.text, &request.reason].into_iter().flatten().find(|text| !text.is_empty());
    let what = what.map_or_else(|| request.kind.to_string(), |what| one_line(&without_shell(what)));
    let by = request.source.as_ref().map(|source| format!(", by {source}")).unwrap_or_default();
    let before = request.not_sent.as_ref();
    let before = before.map(|answer| format!(" (the earlier answer, {answer}, was not sent)")).unwrap_or_default();
    format!("{subject} {verb}: {what}{outcome}{by}{before}")
}

/// ` (exit 1, 2s 300ms)`; empty if the action completed and took no time. Statuses without an exit code that
/// [`action_in_words`] puts in front are not repeated.
fn how_it_ended(content: &Content<'_>, item: &ItemDocument) -> String {
    let mut parts: Vec<String> = Vec::new();
    match (item.exit_code(), item.status.as_deref(), content) {
        (Some(code), ..) => parts.push(format!("exit {code}")),
        (None, Some(status @ ("failed" | "interrupted" | "timeout")), Content::Command(_)) => {
            parts.push(status.to_owned());
        }
        (None, ..) => {}
    }
    parts.extend(item.duration_ms().map(duration));
    parts.extend(item.error().map(one_line));
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
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
