//! Items of the protocol: their text and kind, their document, and their action as shown in a tool row.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::bounded::{EXCERPT_CHARS_MAX, Weigh, bounded, masked_json, masked_start, tail};
use super::entry::{Content, ItemDocument, PlanDocument, Said};
use super::record_event::{Params, name};
use crate::engine::RequestKind;
use crate::protocol::change::{ChangeSize, FileChange};
use crate::protocol::{CommandText, first_own_change};
use crate::wire::Members;

/// Longest command output that is stored whole, in bytes; of a longer one the end is stored. Also the limit of any
/// other tool input or output, as JSON.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Longest command output that is looked at, in bytes: far more than what is stored, so that a secret that begins before that is still
/// recognized.
const OUTPUT_READ_BYTES_MAX: usize = 1 << 20;

/// The kind of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    User,
    Assistant,
    Reasoning,
    Plan,
    Compaction,
    /// Text put before the model or the user by a hook or a review.
    Aside,
    Command,
    FileChange,
    /// Anything else is a tool, even of an unknown type.
    Tool,
}

impl ItemKind {
    /// The kind of an item type.
    fn of(item_type: &str) -> ItemKind {
        match item_type {
            "userMessage" => ItemKind::User,
            "agentMessage" => ItemKind::Assistant,
            "reasoning" => ItemKind::Reasoning,
            "plan" => ItemKind::Plan,
            "contextCompaction" => ItemKind::Compaction,
            "hookPrompt" | "enteredReviewMode" | "exitedReviewMode" => ItemKind::Aside,
            "commandExecution" => ItemKind::Command,
            "fileChange" => ItemKind::FileChange,
            _ => ItemKind::Tool,
        }
    }

    pub(super) fn is_tool(self) -> bool {
        match self {
            ItemKind::Command | ItemKind::FileChange | ItemKind::Tool => true,
            ItemKind::User
            | ItemKind::Assistant
            | ItemKind::Reasoning
            | ItemKind::Plan
            | ItemKind::Compaction
            | ItemKind::Aside => false,
        }
    }

    /// The speaker or entry type; `None` for tools.
    pub(super) fn role(self) -> Option<&'static str> {
        match self {
            ItemKind::User => Some("user"),
            ItemKind::Assistant => Some("assistant"),
            ItemKind::Reasoning => Some("reasoning"),
            ItemKind::Plan => Some("plan"),
            ItemKind::Compaction => Some("context_compacted"),
            ItemKind::Command => Some("command"),
            ItemKind::FileChange => Some("file_change"),
            ItemKind::Aside | ItemKind::Tool => None,
        }
    }
}

/// What stands for a message that codex hides. The journal has its text.
pub const HIDDEN: &str = "(codex hides this message)";

/// Whether codex wants a message not to be shown that has this `moderation.display.mode`. Source: the schema of 0.171.
pub fn hides(display_mode: Option<&str>) -> bool {
    matches!(display_mode, Some("hide" | "block"))
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ThreadItem {
    pub(super) kind: ItemKind,
    members: Map<String, Value>,
    /// Bytes of the command's output before the part that is in `members`.
    output_cut_bytes: usize,
}

/// The member with the output of a command.
const OUTPUT: &str = "aggregatedOutput";

/// Members that give the item's status, or appear under other names.
const SAID: [&str; 20] = [
    "id",
    "type",
    "status",
    "startedAtMs",
    "completedAtMs",
    "durationMs",
    "command",
    "cwd",
    "exitCode",
    OUTPUT,
    "changes",
    "tool",
    "name",
    "server",
    "namespace",
    "arguments",
    "result",
    "error",
    "success",
    "processId",
];

impl ThreadItem {
    /// Parses the item of a notification; `None` if it has no type. A member that cannot be parsed hides no other.
    pub(super) fn read(params: Params<'_>) -> Option<ThreadItem> {
        ThreadItem::of_raw(params.members()?.get("item")?)
    }

    /// Parses an item.
    pub(super) fn of_raw(raw: &RawValue) -> Option<ThreadItem> {
        if let Ok(members) = serde_json::from_str(raw.get()) {
            return ThreadItem::of(members);
        }
        let members = Members::of(raw)?;
        let parsed = |(name, raw): (&str, &RawValue)| Some((name.to_owned(), serde_json::from_str(raw.get()).ok()?));
        ThreadItem::of(members.iter().filter_map(parsed).collect())
    }

    /// The masked item; masking comes first so that a later cut cannot split a key.
    pub(super) fn masked(&self) -> ThreadItem {
        let json = masked_json(serde_json::to_string(&self.members).expect("BUG: JSON becomes text without error"));
        let members = serde_json::from_str(&json).unwrap_or_default();
        ThreadItem { members, ..*self }
    }

    /// Builds an item from its members.
    pub(super) fn of(mut members: Map<String, Value>) -> Option<ThreadItem> {
        let kind = ItemKind::of(members.get("type")?.as_str()?);
        let mut output_cut_bytes = 0;
        if let Some(Value::String(output)) = members.get_mut(OUTPUT)
            && output.len() > OUTPUT_READ_BYTES_MAX
        {
            let (end, cut_bytes) = tail(output, OUTPUT_READ_BYTES_MAX);
            (*output, output_cut_bytes) = (end.to_owned(), cut_bytes);
        }
        Some(ThreadItem { kind, members, output_cut_bytes })
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.string("id")
    }

    /// The type in the protocol.
    pub(super) fn item_type(&self) -> &str {
        self.string("type").unwrap_or_default()
    }

    /// End time, or else start time, in microseconds since the Unix epoch.
    pub(super) fn at_us(&self) -> Option<u64> {
        let millis = |name: &str| self.members.get(name)?.as_u64();
        millis("completedAtMs").or_else(|| millis("startedAtMs")).map(|millis| millis.saturating_mul(1_000))
    }

    /// Whether it has the time of its end.
    pub(super) fn has_end(&self) -> bool {
        self.members.get("completedAtMs").is_some_and(Value::is_u64)
    }

    /// Whether it says that it is not finished.
    pub(super) fn is_in_progress(&self) -> bool {
        self.status() == Some("inProgress")
    }

    /// Adds a time that stands beside it, unless it has its own.
    pub(super) fn has_time(&mut self, name: &str, at_ms: Option<u64>) {
        if let Some(at_ms) = at_ms.filter(|_| !self.members.get(name).is_some_and(Value::is_u64)) {
            self.members.insert(name.to_owned(), at_ms.into());
        }
    }

    /// Its text; `None` if it has none or is of a kind without text.
    pub(super) fn text(&self) -> Option<String> {
        let texts = |name: &str, separator: &str| {
            let parts = self.members.get(name)?.as_array()?.iter();
            let texts: Vec<&str> = parts.filter_map(|part| part.as_str().or_else(|| part["text"].as_str())).collect();
            Some(texts.join(separator)).filter(|text| !text.is_empty())
        };
        match self.kind {
            ItemKind::User => texts("content", "\n"),
            ItemKind::Reasoning => texts("summary", "\n\n").or_else(|| texts("content", "\n\n")),
            ItemKind::Assistant if self.is_hidden() => Some(HIDDEN.to_owned()),
            ItemKind::Assistant | ItemKind::Plan => {
                self.string("text").filter(|text| !text.is_empty()).map(str::to_owned)
            }
            ItemKind::Aside => texts("fragments", "\n").or_else(|| self.string("review").map(str::to_owned)),
            ItemKind::Compaction | ItemKind::Command | ItemKind::FileChange | ItemKind::Tool => None,
        }
    }

    /// Whether codex wants the message not to be shown.
    fn is_hidden(&self) -> bool {
        hides(self.members.get("moderation").and_then(|moderation| moderation["display"]["mode"].as_str()))
    }

    /// The content types of a user message, unless it is only text.
    fn content_types(&self) -> Option<Vec<&str>> {
        let parts = self.members.get("content")?.as_array()?;
        let types: Vec<&str> = parts.iter().map(|part| part["type"].as_str().unwrap_or("unknown")).collect();
        types.iter().any(|part| *part != "text").then_some(types)
    }

    /// Its changes, as in the protocol.
    pub(super) fn changes(&self) -> Option<&Value> {
        self.members.get("changes").filter(|changes| changes.is_array())
    }

    pub(super) fn command(&self) -> Option<String> {
        command(self.members.get("command")?)
    }

    /// The working folder of its command.
    pub(super) fn cwd(&self) -> Option<&str> {
        self.string("cwd")
    }

    /// The start of its error message, masked.
    pub(super) fn error_excerpt(&self) -> Option<String> {
        let message = self.members.get("error")?.get("message")?.as_str()?;
        Some(masked_start(message, EXCERPT_CHARS_MAX))
    }

    pub(super) fn status(&self) -> Option<&str> {
        self.string("status")
    }

    pub(super) fn exit_code(&self) -> Option<i64> {
        self.members.get("exitCode")?.as_i64()
    }

    /// The input and output of a tool under uniform names.
    pub(super) fn document(&self) -> ItemDocument {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let member = |name: &str| self.members.get(name).filter(|value| !value.is_null());
        let whole = |name: &str| member(name).map(|value| bounded(value, OUTPUT_BYTES_MAX));
        let output = self.string(OUTPUT).map(|output| {
            let (end, cut_bytes) = tail(output, OUTPUT_BYTES_MAX);
            (end, self.output_cut_bytes + cut_bytes)
        });
        let error = member("error").map(|error| error.get("message").unwrap_or(error));
        let rest: Map<String, Value> = self
            .members
            .iter()
            .filter(|(name, value)| !SAID.contains(&name.as_str()) && !value.is_null())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let details = (self.kind == ItemKind::Tool && !rest.is_empty()).then_some(Value::Object(rest));
        ItemDocument {
            item_type: self.item_type().to_owned(),
            text: None,
            tool: owned(self.string("tool").or_else(|| self.string("name"))),
            server: owned(self.string("server").or_else(|| self.string("namespace"))),
            command: self.command(),
            cwd: owned(self.cwd()),
            arguments: whole("arguments"),
            changes: self.changes().cloned(),
            output: owned(output.map(|(output, _)| output)),
            output_truncated_by_bytes: output.map(|(_, cut_bytes)| cut_bytes as u64).filter(|cut| *cut > 0),
            result: whole("result"),
            details: details.map(|details| bounded(&details, OUTPUT_BYTES_MAX)),
            exit_code: member("exitCode").cloned(),
            duration_ms: member("durationMs").cloned(),
            status: owned(self.status()),
            is_error: self.is_error(),
            error_message: error.filter(|error| !error.is_null()).cloned(),
        }
    }

    /// Its content as an entry. Only an item without words has an empty text.
    pub(super) fn content(&self) -> Content<'static> {
        let text = || self.text().unwrap_or_default();
        let said = || Said { text: Some(text().into()), ..Said::default() };
        match self.kind {
            ItemKind::User => {
                let own = |part: &str| Cow::Owned(part.to_owned());
                let content = self.content_types().map(|types| types.into_iter().map(own).collect());
                Content::User(Said { content, ..said() })
            }
            ItemKind::Assistant => Content::Assistant(said()),
            ItemKind::Reasoning => Content::Reasoning(said()),
            ItemKind::Plan => Content::Plan(PlanDocument { text: Some(text()), ..PlanDocument::default() }),
            ItemKind::Aside => {
                let (item_type, text) = (self.item_type().to_owned(), self.text());
                Content::Tool(ItemDocument { item_type, text, ..ItemDocument::default() })
            }
            ItemKind::Compaction => Content::Compaction,
            ItemKind::Command => Content::Command(self.document()),
            ItemKind::FileChange => Content::FileChange(self.document()),
            ItemKind::Tool => Content::Tool(self.document()),
        }
    }

    /// Whether it failed, once that is known.
    fn is_error(&self) -> Option<bool> {
        let member = |name: &str| self.members.get(name).filter(|value| !value.is_null());
        let by_status = match self.status()? {
            "inProgress" => return None,
            status => matches!(status, "failed" | "declined" | "interrupted"),
        };
        let by_exit = member("exitCode").and_then(Value::as_i64).is_some_and(|exit_code| exit_code != 0);
        let by_success = member("success").and_then(Value::as_bool) == Some(false);
        Some(by_status || by_exit || by_success || member("error").is_some())
    }

    fn string(&self, name: &str) -> Option<&str> {
        self.members.get(name)?.as_str()
    }
}

/// A command.
pub(super) fn command(value: &Value) -> Option<String> {
    Some(match CommandText::of(value)? {
        CommandText::Line(line) => line.to_owned(),
        CommandText::Words(words) => words.join(" "),
    })
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
    pub(super) fn of_item(item: &ThreadItem) -> ToolCall {
        let changes = item.changes().map(FileChange::all).filter(|changes| !changes.is_empty());
        let path = changes.as_ref().and_then(|changes| changes.iter().find_map(|change| change.path));
        ToolCall {
            item_type: Some(name(item.item_type().into()).into_owned()),
            command: item.command().as_deref().map(excerpt),
            cwd: item.cwd().map(excerpt),
            file_path: path.map(excerpt),
            diff_summary: changes.as_deref().map(diff_summary),
        }
    }

    /// Reads it from a request about an item.
    pub(super) fn of_request(kind: RequestKind, params: Params<'_>) -> ToolCall {
        let item_type = kind.item_type().map(str::to_owned);
        let Some(params) = params.members() else {
            return ToolCall { item_type, ..ToolCall::default() };
        };
        ToolCall {
            item_type,
            command: params
                .get("command")
                .and_then(|raw| command(&serde_json::from_str(raw.get()).ok()?))
                .as_deref()
                .map(excerpt),
            cwd: params.text("cwd").as_deref().map(excerpt),
            file_path: first_own_change(&params).as_deref().map(excerpt),
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

pub(super) fn excerpt(text: &str) -> String {
    masked_start(text, EXCERPT_CHARS_MAX)
}

/// For example `+3 -1 in 2 files`.
fn diff_summary(changes: &[FileChange<'_>]) -> String {
    let sizes = changes.iter().map(|change| change.size());
    let ChangeSize { added, removed, .. } = sizes.fold(ChangeSize::default(), ChangeSize::plus);
    let files = if changes.len() == 1 { "file" } else { "files" };
    format!("+{added} -{removed} in {} {files}", changes.len())
}

/// The item type that the method of a piece names, if that is a tool's.
pub(super) fn tool_of_piece(method: &str) -> Option<&str> {
    let named = method.strip_prefix("item/")?.split('/').next()?;
    (ItemKind::of(named).is_tool()).then_some(named)
}

/// The command, working folder and changes of a tool in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolDetails {
    pub(super) command: Option<String>,
    pub(super) cwd: Option<String>,
    /// As JSON text; parsed, it would take many times the memory.
    pub(super) changes: Option<String>,
}

impl ToolDetails {
    pub(super) fn of(item: &ThreadItem) -> Option<ToolDetails> {
        let changes = item.changes().map(Value::to_string);
        let (command, cwd) = match &changes {
            Some(_) => (None, None),
            None => (item.command(), item.cwd().map(str::to_owned)),
        };
        (changes.is_some() || command.is_some()).then_some(ToolDetails { command, cwd, changes })
    }
}

impl Weigh for ToolDetails {
    fn weight(&self) -> usize {
        self.command.weight() + self.cwd.weight() + self.changes.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_words(does: &ToolCall) -> String {
        let ToolCall { item_type, command, cwd, file_path, diff_summary } = does;
        let parts = [item_type, command, cwd, file_path, diff_summary];
        parts.map(|part| part.as_deref().unwrap_or("~")).join("|")
    }

    #[test]
    fn message_that_codex_hides_is_not_shown() {
        for (moderation, expect) in [
            ("null", "secret"),
            (r#"{"moderated":true}"#, "secret"),
            (r#"{"moderated":true,"display":null}"#, "secret"),
            (r#"{"moderated":true,"display":{"mode":"show"}}"#, "secret"),
            (r#"{"moderated":true,"display":{"mode":"hide","replacement":{}}}"#, HIDDEN),
            (r#"{"moderated":true,"display":{"mode":"block","reason":"x"}}"#, HIDDEN),
        ] {
            for (item_type, text) in [("agentMessage", expect), ("plan", "secret")] {
                let params =
                    format!(r#"{{"item":{{"type":"{item_type}","text":"secret","moderation":{moderation}}}}}"#);
                let item = ThreadItem::read(Params::Written(&params)).expect("BUG: a test gives items");
                assert_eq!(item.text().as_deref(), Some(text), "{params}");
            }
        }
    }

    #[test]
    fn items_describe_their_action() {
        let check = |item: &str, expect: &str| {
            let params = format!(r#"{{"item":{{"type":"x",{}}}"#, &item[1..]);
            let item = ThreadItem::read(Params::Written(&params)).expect("BUG: a test gives items");
            assert_eq!(in_words(&ToolCall::of_item(&item)), expect);
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
        let hunk = "@@ -1,2 +1,2 @@\n--- x\n+++ y\n w\n";
        let changes = serde_json::json!([
            {"path": "/a", "kind": {"type": "add"}, "diff": "--- x\n@@ -1 +1 @@\n"},
            {"path": "/b", "kind": {"type": "update"}, "diff": hunk},
        ]);
        check(&format!(r#"{{"changes":{changes}}}"#), "x|~|~|/a|+3 -1 in 2 files");
        let long = format!(r#"{{"command":"{}"}}"#, "ä".repeat(EXCERPT_CHARS_MAX + 1));
        check(&long, &format!("x|{}|~|~|~", "ä".repeat(EXCERPT_CHARS_MAX)));
    }

    #[test]
    fn requests_describe_their_action() {
        let check = |kind, params: &str, expect: &str| {
            assert_eq!(in_words(&ToolCall::of_request(kind, Params::Written(params))), expect);
        };
        check(RequestKind::Command, r#"{"command":"ls","cwd":"/w"}"#, "commandExecution|ls|/w|~|~");
        check(RequestKind::Command, r#"{"command":["ls","-l"]}"#, "commandExecution|ls -l|~|~|~");
        check(RequestKind::FileChange, r#"{"fileChanges":{"/a":{},"/b":{}}}"#, "fileChange|~|~|/a|~");
        check(RequestKind::UserInput, "[]", "~|~|~|~|~");
        assert_eq!(in_words(&ToolCall::of_request(RequestKind::FileChange, Params::None)), "fileChange|~|~|~|~");
    }
}
