//! Items of the protocol, as transcripts and the UI use them.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::masked::masked_json;
use super::object::{Object, bounded, tail};

/// Longest command output that is stored whole, in bytes; of a longer one the end is stored. Also the limit of any
/// other tool input or output, as JSON.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 << 10;

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

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) kind: ItemKind,
    members: Map<String, Value>,
}

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
    "aggregatedOutput",
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

impl Item {
    /// Parses an item; `None` if it has no type.
    pub(super) fn read(raw: &RawValue) -> Option<Item> {
        Item::of(serde_json::from_str(raw.get()).ok()?)
    }

    /// The masked item; masking comes first so that a later cut cannot split a key.
    pub(super) fn masked(&self) -> Item {
        let json = masked_json(Value::Object(self.members.clone()).to_string());
        let members = serde_json::from_str(&json).unwrap_or_default();
        Item { kind: self.kind, members }
    }

    /// Builds an item from its members.
    pub(super) fn of(members: Map<String, Value>) -> Option<Item> {
        let kind = match members.get("type")?.as_str()? {
            "userMessage" => ItemKind::User,
            "agentMessage" => ItemKind::Assistant,
            "reasoning" => ItemKind::Reasoning,
            "plan" => ItemKind::Plan,
            "contextCompaction" => ItemKind::Compaction,
            "hookPrompt" | "enteredReviewMode" | "exitedReviewMode" => ItemKind::Aside,
            "commandExecution" => ItemKind::Command,
            "fileChange" => ItemKind::FileChange,
            _ => ItemKind::Tool,
        };
        Some(Item { kind, members })
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.string("id")
    }

    /// Whether its id is only its number in one reading of the thread. Source: the app-server of early 2026.
    pub(super) fn is_numbered(&self) -> bool {
        let number = self.id().and_then(|id| id.strip_prefix("item-")).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
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
            ItemKind::Assistant | ItemKind::Plan => {
                self.string("text").filter(|text| !text.is_empty()).map(str::to_owned)
            }
            ItemKind::Aside => texts("fragments", "\n").or_else(|| self.string("review").map(str::to_owned)),
            ItemKind::Compaction | ItemKind::Command | ItemKind::FileChange | ItemKind::Tool => None,
        }
    }

    /// The content types of a user message, unless it is only text.
    pub(super) fn content_types(&self) -> Option<Vec<&str>> {
        let parts = self.members.get("content")?.as_array()?;
        let types: Vec<&str> = parts.iter().map(|part| part["type"].as_str().unwrap_or("unknown")).collect();
        types.iter().any(|part| *part != "text").then_some(types)
    }

    /// Its changes, as in the protocol.
    pub(super) fn changes(&self) -> Option<&Value> {
        self.members.get("changes").filter(|changes| changes.is_array())
    }

    pub(super) fn command(&self) -> Option<String> {
        super::approval::command(self.members.get("command")?)
    }

    /// The working folder of its command.
    pub(super) fn cwd(&self) -> Option<&str> {
        self.string("cwd")
    }

    /// Adds the input and output of a tool under uniform names.
    pub(super) fn describe(&self, object: Object) -> Object {
        let member = |name: &str| self.members.get(name).filter(|value| !value.is_null());
        let whole = |name: &str| member(name).map(|value| bounded(value, OUTPUT_BYTES_MAX));
        let output = self.string("aggregatedOutput").map(|output| tail(output, OUTPUT_BYTES_MAX));
        let error = member("error").map(|error| error.get("message").unwrap_or(error));
        let rest: Map<String, Value> = self
            .members
            .iter()
            .filter(|(name, value)| !SAID.contains(&name.as_str()) && !value.is_null())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let details = (self.kind == ItemKind::Tool && !rest.is_empty()).then_some(Value::Object(rest));
        object
            .with("item_type", self.item_type())
            .with_some("tool", self.string("tool").or_else(|| self.string("name")))
            .with_some("server", self.string("server").or_else(|| self.string("namespace")))
            .with_some("command", self.command())
            .with_some("cwd", self.cwd())
            .with_some("arguments", whole("arguments"))
            .with_some("changes", self.changes())
            .with_some("output", output.map(|(output, _)| output))
            .with_some("output_truncated_by_bytes", output.map(|(_, cut_bytes)| cut_bytes).filter(|cut| *cut > 0))
            .with_some("result", whole("result"))
            .with_some("details", details.map(|details| bounded(&details, OUTPUT_BYTES_MAX)))
            .with_some("exit_code", member("exitCode"))
            .with_some("duration_ms", member("durationMs"))
            .with_some("status", self.string("status"))
            .with_some("is_error", self.is_error())
            .with_some("error_message", error)
    }

    /// Whether it failed, once that is known.
    fn is_error(&self) -> Option<bool> {
        let member = |name: &str| self.members.get(name).filter(|value| !value.is_null());
        let by_status = match self.string("status")? {
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
