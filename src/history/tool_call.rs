//! The action of an item, as shown in a tool row.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::bounded::Weigh;
use super::event::{EXCERPT_CHARS_MAX, masked_start};
use super::record_event::{Params, name};
use crate::protocol::RequestKind;
use crate::wire::{Members, elements, text};

/// Item types that are not tools: text, reasoning, plans and markers. Every other type is a tool, even an unknown one.
const NO_TOOLS: [&str; 8] = [
    "userMessage",
    "agentMessage",
    "reasoning",
    "plan",
    "hookPrompt",
    "contextCompaction",
    "enteredReviewMode",
    "exitedReviewMode",
];

pub(super) fn is_tool(item_type: &str) -> bool {
    !NO_TOOLS.contains(&item_type)
}

/// The action of an item, masked and bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToolCall {
    /// The item type of the protocol.
    pub(super) item_type: Option<String>,
    pub(super) command: Option<String>,
    pub(super) cwd: Option<String>,
    /// The first changed file.
    pub(super) file_path: Option<String>,
    /// The size of the change and the number of files.
    pub(super) diff_summary: Option<String>,
}

impl Weigh for ToolCall {
    fn weight(&self) -> usize {
        let ToolCall { item_type, command, cwd, file_path, diff_summary } = self;
        [item_type, command, cwd, file_path, diff_summary].map(Weigh::weight).into_iter().sum()
    }
}

impl ToolCall {
    /// Reads it from an item.
    pub(super) fn of_item(item_type: String, item: &Members<'_>) -> ToolCall {
        let changes = item.get("changes").and_then(elements);
        ToolCall {
            item_type: Some(name(item_type.into()).into_owned()),
            command: item.get("command").and_then(command),
            cwd: item.text("cwd").as_deref().map(bounded),
            file_path: changes
                .iter()
                .flatten()
                .find_map(|change| Members::of(change)?.text("path"))
                .map(|path| bounded(&path)),
            diff_summary: changes.filter(|changes| !changes.is_empty()).map(|changes| diff_summary(&changes)),
        }
    }

    /// Reads it from a request about an item.
    pub(super) fn of_request(kind: RequestKind, params: Params<'_>) -> ToolCall {
        let item_type = match kind {
            RequestKind::Command | RequestKind::OldCommand => Some("commandExecution"),
            RequestKind::FileChange | RequestKind::OldPatch => Some("fileChange"),
            RequestKind::Permissions | RequestKind::UserInput | RequestKind::Elicitation | RequestKind::Other => None,
        };
        let item_type = item_type.map(str::to_owned);
        let Some(params) = params.written().and_then(Members::of) else {
            return ToolCall { item_type, ..ToolCall::default() };
        };
        let changed = params.get("fileChanges").and_then(Members::of);
        ToolCall {
            item_type,
            command: params.get("command").and_then(command),
            cwd: params.text("cwd").as_deref().map(bounded),
            file_path: changed.and_then(|changed| changed.iter().next().map(|(path, _)| bounded(path))),
            diff_summary: None,
        }
    }

    /// Fills missing members from `other`.
    pub(super) fn or(self, other: &ToolCall) -> ToolCall {
        ToolCall {
            item_type: self.item_type.or_else(|| other.item_type.clone()),
            command: self.command.or_else(|| other.command.clone()),
            cwd: self.cwd.or_else(|| other.cwd.clone()),
            file_path: self.file_path.or_else(|| other.file_path.clone()),
            diff_summary: self.diff_summary.or_else(|| other.diff_summary.clone()),
        }
    }
}

/// A command as one line; until early 2026 it may be a list of words.
fn command(written: &RawValue) -> Option<String> {
    let line = text(written).or_else(|| {
        let words: Vec<String> = elements(written)?.into_iter().filter_map(text).collect();
        Some(words.join(" "))
    })?;
    Some(bounded(&line))
}

fn bounded(text: &str) -> String {
    masked_start(text, EXCERPT_CHARS_MAX)
}

/// For example `+3 -1 in 2 files`.
fn diff_summary(changes: &[&RawValue]) -> String {
    let (mut added, mut removed) = (0, 0);
    for change in changes.iter().filter_map(|change| Members::of(change)) {
        let kind = change.get("kind");
        let kind = kind.and_then(|kind| text(kind).or_else(|| Members::of(kind)?.text("type")));
        let diff = change.text("diff").unwrap_or_default();
        match kind.as_deref() {
            // The diff is the content of the file.
            Some("add") => added += diff.lines().count(),
            Some("delete") => removed += diff.lines().count(),
            // Lines before the first hunk name the files.
            Some(_) | None => {
                let hunks = || diff.lines().skip_while(|line| !line.starts_with("@@"));
                added += hunks().filter(|line| line.starts_with('+')).count();
                removed += hunks().filter(|line| line.starts_with('-')).count();
            }
        }
    }
    let files = if changes.len() == 1 { "file" } else { "files" };
    format!("+{added} -{removed} in {} {files}", changes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("BUG: a test gives JSON")
    }

    fn in_words(does: &ToolCall) -> String {
        let ToolCall { item_type, command, cwd, file_path, diff_summary } = does;
        let parts = [item_type, command, cwd, file_path, diff_summary];
        parts.map(|part| part.as_deref().unwrap_or("~")).join("|")
    }

    #[test]
    fn items_describe_their_action() {
        let check = |item: &str, expect: &str| {
            let members = Members::of(raw(item)).expect("BUG: a test gives objects");
            assert_eq!(in_words(&ToolCall::of_item("x".to_owned(), &members)), expect);
        };
        check(r#"{"command":"ls","cwd":"/w"}"#, "x|ls|/w|~|~");
        check(r#"{"command":["ls","-l"],"cwd":7}"#, "x|ls -l|~|~|~");
        check(r#"{"command":"TOKEN=hunter22 ls"}"#, "x|TOKEN=[redacted] ls|~|~|~");
        check(r#"{"command":null,"changes":[]}"#, "x|~|~|~|~");
        check(r#"{"changes":[{"path":"/a","kind":{"type":"add"},"diff":"a\nb\n"}]}"#, "x|~|~|/a|+2 -0 in 1 file");
        check(
            r#"{"changes":[{"path":"/a","kind":"delete","diff":"a"},{"path":"/b","kind":{"type":"update","move_path":null},"diff":"--- a\n+++ b\n@@ -1,2 +1 @@\n-x\n--y\n+z\n w\n"}]}"#,
            "x|~|~|/a|+1 -3 in 2 files",
        );
        let long = format!(r#"{{"command":"{}"}}"#, "ä".repeat(EXCERPT_CHARS_MAX + 1));
        check(&long, &format!("x|{}|~|~|~", "ä".repeat(EXCERPT_CHARS_MAX)));
    }

    #[test]
    fn requests_describe_their_action() {
        let check = |kind, params: &str, expect: &str| {
            assert_eq!(in_words(&ToolCall::of_request(kind, Params::Written(raw(params)))), expect);
        };
        check(RequestKind::Command, r#"{"command":"ls","cwd":"/w"}"#, "commandExecution|ls|/w|~|~");
        check(RequestKind::OldCommand, r#"{"command":["ls","-l"]}"#, "commandExecution|ls -l|~|~|~");
        check(RequestKind::OldPatch, r#"{"fileChanges":{"/a":{},"/b":{}}}"#, "fileChange|~|~|/a|~");
        check(RequestKind::UserInput, "[]", "~|~|~|~|~");
        assert_eq!(in_words(&ToolCall::of_request(RequestKind::FileChange, Params::None)), "fileChange|~|~|~|~");
    }
}
