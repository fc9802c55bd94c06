//! The searched text of a transcript entry.
//!
//! The text is never stored, because the entry has it: the index and each search read it from the entry again.

use std::borrow::Cow;
use std::time::UNIX_EPOCH;

use serde_json::Value;

use super::entry::{ApprovalDocument, Content, Entry, EntryRole, ItemDocument};
use super::facts::OwnFacts;
use crate::engine::without_shell;
use crate::protocol::change::{FileChange, LineKind, shown};
use crate::protocol::{named, of_name};

/// Longest searched text of an entry, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Longest searched part of an output, in bytes: its end, where errors are. The same of the input and the result of a tool:
/// their beginning.
pub(super) const OUTPUT_BYTES_MAX: usize = 8 << 10;

named! {
    /// The kind of an entry, for a search.
    pub enum SearchKind {
        /// A command or another call of a tool, and the end of its output.
        Command = "command",
        /// A message of the user or of the model.
        Message = "message",
        /// A change of files: their paths, and the changed lines.
        Diff = "diff",
        /// A request to a human.
        Request = "request",
    }
}

/// An entry that can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Searchable {
    pub kind: SearchKind,
    pub entry: OwnFacts,
    /// Its time, RFC 3339.
    pub at: String,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
    pub text: String,
    /// The bytes at which a command or the path of a changed file begins. The lines after it belong to it.
    pub heads: Vec<usize>,
}

impl Searchable {
    /// Reads an entry; `None` if no search looks for it.
    pub fn of(json: &str) -> Option<Searchable> {
        if !may_be_found(json) {
            return None;
        }
        let Entry { ts, turn_id, item_id, content, event: _ } = Entry::read(json)?;
        let kind = kind_of(content.role())?;
        let Lines { text, heads } = Lines::of(&content)?;
        let [turn_id, item_id] = [turn_id, item_id].map(|id| id.map(Cow::into_owned));
        let entry = OwnFacts::of(kind, &content);
        let at = ts.into_owned();
        (!text.is_empty()).then_some(Searchable { kind, entry, at, turn_id, item_id, text, heads })
    }

    /// The first line, for a search without words.
    pub fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// Its time in milliseconds since 1970; 0 if that cannot be read.
    pub fn at_ms(&self) -> u64 {
        let at = humantime::parse_rfc3339(&self.at).ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        at.map_or(0, |at| u64::try_from(at.as_millis()).unwrap_or(0))
    }
}

/// The kind of an entry with this role. The diff of a turn repeats its changes of files.
pub(super) fn kind_of(role: &str) -> Option<SearchKind> {
    match of_name(role)? {
        EntryRole::User | EntryRole::Assistant | EntryRole::Plan => Some(SearchKind::Message),
        EntryRole::Command | EntryRole::Tool => Some(SearchKind::Command),
        EntryRole::FileChange => Some(SearchKind::Diff),
        EntryRole::Approval => Some(SearchKind::Request),
        EntryRole::Reasoning | EntryRole::Diff | EntryRole::Status | EntryRole::Error => None,
        EntryRole::Usage | EntryRole::Compaction => None,
    }
}

/// False if the role at the beginning of an entry says that no search looks for it: reasoning and diffs can be long.
fn may_be_found(json: &str) -> bool {
    let role = json.strip_prefix(r#"{"ts":""#).and_then(|rest| rest.split_once(r#"","role":""#));
    let role = role.filter(|(at, _)| !at.contains('"')).and_then(|(_, rest)| rest.split_once('"'));
    role.is_none_or(|(role, _)| kind_of(role).is_some())
}

/// The lines of a text, bounded.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) text: String,
    heads: Vec<usize>,
}

impl Lines {
    /// The searched lines of an entry; `None` if it is nothing that has some.
    pub(super) fn of(content: &Content<'_>) -> Option<Lines> {
        let mut lines = Lines::default();
        match content {
            Content::User(said) | Content::Assistant(said) => lines.add(said.text.as_deref()?),
            Content::Plan(plan) => lines.add(plan.text.as_deref()?),
            Content::Command(tool) | Content::Tool(tool) => lines.command(tool),
            Content::FileChange(tool) => lines.changes(tool.changes.as_ref()?),
            Content::Approval(request) => lines.request(request),
            Content::Reasoning(_) | Content::Diff(_) | Content::Status(_) | Content::Error(_) => {}
            Content::Usage(_) | Content::Compaction | Content::Other(_) => {}
        }
        Some(lines)
    }

    fn add(&mut self, text: &str) {
        let left = TEXT_BYTES_MAX.saturating_sub(self.text.len() + 1);
        let text = &text[..text.floor_char_boundary(left)];
        if !text.is_empty() {
            if !self.text.is_empty() {
                self.text.push('\n');
            }
            self.text.push_str(text);
        }
    }

    /// A line that names what follows.
    fn head(&mut self, text: &str) {
        let from = if self.text.is_empty() { 0 } else { self.text.len() + 1 };
        self.add(text);
        if self.text.len() > from {
            self.heads.push(from);
        }
    }

    fn command(&mut self, entry: &ItemDocument) {
        match &entry.command {
            Some(command) => self.head(&without_shell(command)),
            None => self.head(&entry.name()),
        }
        let texts = [&entry.text, &entry.cwd];
        texts.into_iter().flatten().for_each(|text| self.add(text));
        for value in [&entry.arguments, &entry.details, &entry.error_message, &entry.result].into_iter().flatten() {
            let mut left = OUTPUT_BYTES_MAX;
            self.values(value, &mut left);
        }
        if let Some(output) = &entry.output {
            let from = output.len().saturating_sub(OUTPUT_BYTES_MAX);
            self.add(&output[output.ceil_char_boundary(from)..]);
        }
    }

    /// The texts and numbers in a value, one per line.
    pub(super) fn values(&mut self, value: &Value, left: &mut usize) {
        let text = match value {
            Value::Null | Value::Bool(_) => return,
            Value::Number(number) => &number.to_string(),
            Value::String(text) => text,
            Value::Array(values) => return values.iter().for_each(|value| self.values(value, left)),
            Value::Object(members) => return members.values().for_each(|value| self.values(value, left)),
        };
        let text = &text[..text.floor_char_boundary(*left)];
        *left -= text.len();
        self.add(text);
    }

    fn changes(&mut self, changes: &Value) {
        for change in FileChange::all(changes) {
            self.head(change.path.unwrap_or_default());
            self.add(change.moved_to.unwrap_or_default());
            let is_changed = |kind: &LineKind| matches!(kind, LineKind::Added | LineKind::Removed);
            shown(change.form(), change.diff.unwrap_or_default())
                .filter(|(kind, _)| is_changed(kind))
                .for_each(|(_, line)| self.add(&line));
        }
    }

    pub(super) fn request(&mut self, entry: &ApprovalDocument<'_>) {
        match &entry.command {
            Some(command) => self.head(&without_shell(command)),
            None => self.head(entry.text.as_deref().unwrap_or(&entry.kind)),
        }
        let text = entry.command.as_ref().and(entry.text.as_ref());
        [text, entry.reason.as_ref(), entry.cwd.as_ref()].into_iter().flatten().for_each(|text| self.add(text));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(mut entry: Value, expect: Option<(SearchKind, &str, &[usize])>) {
        entry["ts"] = json!("2026-01-02T03:04:05.678Z");
        let found = Searchable::of(&entry.to_string());
        let actual = found.as_ref().map(|found| (found.kind, &*found.text, &*found.heads));
        assert_eq!(actual, expect, "{entry}");
        assert!(found.is_none_or(|found| found.at_ms() == 1_767_323_045_678));
    }

    #[test]
    fn entries_have_the_text_that_people_look_for() {
        check(json!({"role": "user", "text": "a\nb"}), Some((SearchKind::Message, "a\nb", &[])));
        check(
            json!({"role": "command", "command": "/bin/bash -lc 'rm -rf x'", "cwd": "/w", "output": "gone\n"}),
            Some((SearchKind::Command, "rm -rf x\n/w\ngone\n", &[0])),
        );
        check(
            json!({"role": "tool", "server": "lab", "tool": "look", "arguments": {"a": ["b", 1, null]}, "result": "c"}),
            Some((SearchKind::Command, "lab.look\nb\n1\nc", &[0])),
        );
        let changes = json!([
            {"path": "/a", "kind": {"type": "update", "move_path": "/c"}, "diff": "--- a\n+++ b\n@@ -1 +1 @@\n-x\n same\n+y\n"},
            {"path": "/b", "kind": {"type": "add"}, "diff": "z\n"},
        ]);
        check(
            json!({"role": "file_change", "changes": changes}),
            Some((SearchKind::Diff, "/a\n/c\n-x\n+y\n/b\n+z", &[0, 12])),
        );
        let changes = json!([
            {"path": "/a", "kind": {"type": "update"}, "diff": "@@ -1 +1 @@\n--- old\n+++ new\n"},
            {"path": "/b", "kind": {"type": "delete"}, "diff": "--- x\n"},
        ]);
        check(
            json!({"role": "file_change", "changes": changes}),
            Some((SearchKind::Diff, "/a\n--- old\n+++ new\n/b\n---- x", &[0, 19])),
        );
        check(
            json!({"role": "approval", "kind": "command", "command": "ls", "reason": "why", "cwd": "/w"}),
            Some((SearchKind::Request, "ls\nwhy\n/w", &[0])),
        );
        check(
            json!({"role": "approval", "kind": "questions", "text": "Deploy?"}),
            Some((SearchKind::Request, "Deploy?", &[0])),
        );
    }

    #[test]
    fn other_entries_are_not_searched() {
        for role in ["reasoning", "diff", "status", "token_usage", "error", "new"] {
            check(json!({"role": role, "text": "a"}), None);
        }
        check(json!({"role": "user", "text": ""}), None);
        assert_eq!(Searchable::of("not JSON"), None);
        assert!(!may_be_found(r#"{"ts":"2026","role":"diff","text":"#) && may_be_found(r#"{"role":"user"}"#));
    }

    #[test]
    fn long_texts_are_bounded() {
        let text = |entry: Value| Searchable::of(&entry.to_string()).expect("it is found").text;
        let long = "é".repeat(TEXT_BYTES_MAX);
        assert!(text(json!({"role": "user", "text": long})).len() < TEXT_BYTES_MAX);
        let output = text(json!({"role": "command", "command": "c", "output": format!("{long}end")}));
        assert!(output.len() < OUTPUT_BYTES_MAX + 10 && output.ends_with("end"), "{}", output.len());
        let arguments = text(json!({"role": "tool", "tool": "t", "arguments": [long, long]}));
        assert!(arguments.len() < OUTPUT_BYTES_MAX + 10);
    }
}
