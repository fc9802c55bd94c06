//! Converts `mode=ui` events to the texts of entries, and collects facts about threads.
//!
//! Pure.

use serde_json::Value;

use super::diff::{Diff, unified};
use super::entry::{Key, Kind};
use crate::control::request_view::answer_in_words;
use crate::engine::{permissions_in_words, without_shell};
use crate::history::action_in_words;
use crate::journal::Position;
use crate::protocol::Method;

/// An event with its position and time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SessionEvent {
    /// The record it came from.
    pub at: Position,
    /// In microseconds since the Unix epoch.
    pub at_us: u64,
    /// The event in its `mode=ui` form, or `run` or `gap`, which exist only in the journal.
    pub fields: Value,
}

/// Most threads with remembered facts.
const THREADS_MAX: usize = 64;

/// Longest remembered start of a message, in characters.
const SAID_CHARS_MAX: usize = 120;

/// Facts that are not entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// By thread; the most recently active thread is last.
    threads: Vec<(String, ThreadFacts)>,
}

/// Facts about a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ThreadFacts {
    /// The model it was started or resumed with.
    pub model: Option<String>,
    /// Context tokens of the last call, and the size of the context window.
    pub tokens: Option<(u64, Option<u64>)>,
    /// The start of the user's last message.
    pub said: Option<String>,
}

impl Facts {
    /// The facts of a thread, or of the most recently active one.
    #[must_use]
    pub(crate) fn of(&self, thread_id: Option<&str>) -> Option<&ThreadFacts> {
        let mut newest_first = self.threads.iter().rev();
        newest_first.find(|(id, _)| thread_id.is_none_or(|wanted| wanted == id)).map(|(_, facts)| facts)
    }

    /// Thread ids, the most recently active first.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &str> {
        self.threads.iter().rev().map(|(id, _)| id.as_str()).filter(|id| !id.is_empty())
    }

    /// Collects the facts in an event.
    pub(super) fn take(&mut self, fields: &Value) {
        let text = |member: &str| fields[member].as_str();
        match (text("type"), text("method")) {
            (Some("token_count"), _) => {
                if let Some(total) = fields["total"].as_u64() {
                    self.thread(text("thread_id")).tokens = Some((total, fields["context_window"].as_u64()));
                }
            }
            (Some("rpc_response"), Some(method)) if Method::of(method).is_some_and(Method::opens_thread) => {
                let result = &fields["result"];
                if let Some(model) = result["model"].as_str() {
                    self.thread(result["thread"]["id"].as_str().or(text("thread_id"))).model = Some(model.to_owned());
                }
            }
            (Some("message"), _) => {
                let said = text("text").unwrap_or_default().chars().take(SAID_CHARS_MAX).collect();
                self.thread(text("thread_id")).said = Some(said);
            }
            (Some(_) | None, _) => {}
        }
    }

    fn thread(&mut self, thread_id: Option<&str>) -> &mut ThreadFacts {
        let thread_id = thread_id.unwrap_or_default();
        let known = self.threads.iter().position(|(id, _)| id == thread_id);
        let entry = known.map_or_else(Default::default, |at| self.threads.remove(at));
        if self.threads.len() == THREADS_MAX {
            self.threads.remove(0);
        }
        self.threads.push((thread_id.to_owned(), entry.1));
        &mut self.threads.last_mut().expect("BUG: it was just put there").1
    }
}

/// The range of entries that a timeline accepts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Range {
    /// Exclusive lower bound.
    pub after: Option<Key>,
    /// Exclusive upper bound.
    pub before: Option<Key>,
}

/// The subject of a request on one line.
pub(super) fn asked(fields: &Value) -> String {
    let text = |member: &str| fields[member].as_str().filter(|text| !text.is_empty());
    let questions = || {
        let questions = fields["questions"].as_array()?.iter();
        Some(questions.filter_map(|question| question["question"].as_str()).collect::<Vec<_>>().join(" / "))
    };
    let what = match text("kind") {
        Some("command") => text("command").map(|command| format!("to run {}", without_shell(command))),
        Some("diff") => Some(format!("to change {}", changed(fields))),
        Some("permissions") => Some(format!("for {}", permissions_in_words(&fields["permissions"]).join(", "))),
        Some("questions") => questions(),
        Some(_) | None => text("message").map(str::to_owned),
    };
    let reason = text("reason").map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{}{reason}", what.unwrap_or_default())
}

/// The changed file, or the number of files.
fn changed(fields: &Value) -> String {
    let changes = fields["changes"].as_array().map_or(&[][..], Vec::as_slice);
    match changes {
        [one] => one["path"].as_str().unwrap_or_default().to_owned(),
        more => format!("{} files", more.len()),
    }
}

pub(super) fn title(kind: Kind, fields: &Value) -> String {
    let text = |member: &str| fields[member].as_str().unwrap_or_default();
    match fields["item_type"].as_str() {
        Some("commandExecution") => by_status("command", fields, &without_shell(text("command"))),
        _ if kind == Kind::Change => by_status("file_change", fields, &changed(fields)),
        Some(_) | None => {
            let name = [text("server"), text("tool")].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
            let name = if name.is_empty() { text("item_type").to_owned() } else { name.join(".") };
            let given = [&fields["arguments"], &fields["details"]].into_iter().find(|given| !given.is_null());
            by_status("tool", fields, &given.map_or(name.clone(), |given| format!("{name} {given}")))
        }
    }
}

/// An action in words that fit its status.
fn by_status(kind: &str, fields: &Value, action: &str) -> String {
    match fields["status"].as_str() {
        Some(status @ ("declined" | "cancelled" | "interrupted")) => action_in_words(kind, status, action),
        Some(_) | None => action.to_owned(),
    }
}

/// The body; `None` keeps the previous one.
pub(super) fn body(kind: Kind, fields: &Value) -> Option<String> {
    let error = fields["error_message"].as_str().map(|error| format!("{error}\n"));
    let result = match &fields["result"] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Some(fields["result"].to_string()),
    };
    let output = fields["output"].as_str().map(in_words);
    let result = result.map(|text| in_words(&text));
    match kind == Kind::Change {
        true => {
            let changes = unified(&fields["changes"])?;
            Some(format!("{}{}", error.unwrap_or_default(), changes.trim_end()))
        }
        false => match (output, error, result) {
            (None, None, None) => None,
            (output, error, result) => Some(format!(
                "{}{}{}",
                output.unwrap_or_default(),
                error.unwrap_or_default(),
                result.unwrap_or_default()
            )),
        },
    }
}

/// The answers to questions in words; any other text as it is.
pub(super) fn in_words(text: &str) -> String {
    let answers = serde_json::from_str::<Value>(text).ok().filter(|value| value["answers"].is_object());
    answers.map_or_else(|| text.to_owned(), |answers| answer_in_words(&answers))
}

/// The changed file of a diff, or the number of files.
pub(super) fn files_of_diff(text: &str) -> String {
    let diff = Diff::read(text, "");
    match &diff.files[..] {
        [] => String::new(),
        [one] => one.path.clone(),
        _ => diff.summary(),
    }
}
