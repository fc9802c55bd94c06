//! An entry of a conversation: a message, an action, a request or the end of a turn, as a transcript has it.
//!
//! [`super::transcript`] makes it, and its JSON is stored as a line that is never changed; whoever reads a line gets the entry
//! back. The events of [`super::ui`] have the same contents, where a few members have another name. The type stands in this room, because the fold writes it; `api`
//! exports it to all others.
//!
//! A line that is handed on stays text, so it keeps members that only a later version knows.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::protocol::{named, of_name};

/// The kind of an approval that codex's own reviewer decided.
pub const AUTO_REVIEW: &str = "auto_review";

/// The decision of a person on a denial of codex's own reviewer.
pub const OVERRULED: &str = "overruled";

/// An entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry<'a> {
    /// RFC 3339.
    pub ts: Cow<'a, str>,
    pub item_id: Option<Cow<'a, str>>,
    /// The record that it was made of: a method of the protocol, or an event of ours.
    pub event: Cow<'a, str>,
    pub turn_id: Option<Cow<'a, str>>,
    pub content: Content<'a>,
}

/// Declares what an entry can have: each variant of [`Content`] with its document and with its role in JSON.
macro_rules! contents {
    ($($(#[$doc:meta])* $variant:ident $(($document:ty))? = $role:literal,)*) => {
        /// The content of an entry, by its role.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Content<'a> {
            $($(#[$doc])* $variant $(($document))?,)*
            /// Of a version that this one does not know: its role.
            #[serde(serialize_with = "nothing")]
            Other(Cow<'a, str>),
        }

        named! {
            /// The role of an entry that this version knows.
            pub(super) enum EntryRole { $($variant = $role,)* }
        }

        impl<'a> Content<'a> {
            fn read(role: &str, json: &str) -> Option<Content<'a>> {
                match of_name(role)? {
                    $(EntryRole::$variant => Some(Content::$variant $((serde_json::from_str::<$document>(json).ok()?))?),)*
                }
            }
        }

        impl Content<'_> {
            pub fn role(&self) -> &str {
                match self {
                    $(Content::$variant { .. } => $role,)*
                    Content::Other(role) => role,
                }
            }
        }
    };
}

contents! {
    User(Said<'a>) = "user",
    /// A message of the model.
    Assistant(Said<'a>) = "assistant",
    Reasoning(Said<'a>) = "reasoning",
    Plan(PlanDocument) = "plan",
    Command(ItemDocument) = "command",
    FileChange(ItemDocument) = "file_change",
    /// Any other tool, or a text that a hook or a review has added.
    Tool(ItemDocument) = "tool",
    /// The changes of a turn so far.
    Diff(TurnDiff<'a>) = "diff",
    /// A request that has ended, or a decision of codex's own reviewer.
    Approval(ApprovalDocument<'a>) = "approval",
    /// The end of a turn.
    Status(EndDocument) = "status",
    Error(ErrorDocument<'a>) = "error",
    Usage(Usage) = "token_usage",
    Compaction = "context_compacted",
}

documents! {
    /// An entry as JSON.
    struct EntryJson<'a> {
        ts: &'a str,
        role: &'a str,
        item_id?: &'a str,
        event: &'a str,
        turn_id?: &'a str,
        #[serde(flatten)]
        content: &'a Content<'a>,
    }
}

/// What all entries have.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(default)]
    ts: String,
    #[serde(borrow)]
    role: Cow<'a, str>,
    item_id: Option<String>,
    #[serde(default)]
    event: String,
    turn_id: Option<String>,
}

documents! {
    /// A message.
    #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
    pub struct Said<'a> {
        /// Of the user, in an event of `mode=ui`.
        #[serde(skip_deserializing)]
        role?: &'static str,
        text?: Cow<'a, str>,
        /// The types of its parts, unless all are text.
        content?: Vec<Cow<'a, str>>,
    }

    /// The model's plan: as it was written, or its steps.
    #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
    pub struct PlanDocument {
        text?: String,
        steps?: Vec<PlanStep>,
        explanation?: String,
    }

    /// A step of a plan, with the protocol's values.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    pub struct PlanStep {
        #[serde(default)]
        status: Value,
        #[serde(default)]
        step: Value,
    }

    /// A tool's input and output.
    #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
    pub struct ItemDocument {
        #[serde(default)]
        item_type: String,
        /// Of a text that a hook or a review has added.
        text?: String,
        tool?: String,
        server?: String,
        command?: String,
        cwd?: String,
        arguments?: Value,
        changes?: Value,
        output?: String,
        output_truncated_by_bytes?: u64,
        result?: Value,
        details?: Value,
        exit_code?: Value,
        duration_ms?: Value,
        status?: String,
        is_error?: bool,
        error_message?: Value,
    }

    #[derive(Debug, Clone, PartialEq, Deserialize)]
    pub struct TurnDiff<'a> {
        #[serde(default)]
        diff_id: Cow<'a, str>,
        supersedes?: Cow<'a, str>,
        text: Cow<'a, str>,
    }

    /// A request and how it ended. A decision of codex's own reviewer has the same members.
    #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
    pub struct ApprovalDocument<'a> {
        request_id?: Cow<'a, str>,
        #[serde(default)]
        kind: Cow<'a, str>,
        command?: Cow<'a, str>,
        cwd?: Cow<'a, str>,
        reason?: Cow<'a, str>,
        text?: Cow<'a, str>,
        status?: Cow<'a, str>,
        decision?: Cow<'a, str>,
        source?: Cow<'a, str>,
        error_code?: Cow<'a, str>,
        /// The answer with which it has ended before. It was not sent.
        not_sent?: Cow<'a, str>,
        review_id?: Cow<'a, str>,
        review?: Cow<'a, ReviewDocument>,
    }

    /// The end of a turn.
    #[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
    pub struct EndDocument {
        /// What has ended, in an event of `mode=ui`.
        #[serde(skip_deserializing)]
        subject?: Ended,
        status: String,
        duration_ms?: Value,
        error_code?: String,
        error_message?: String,
    }

    #[derive(Debug, Clone, PartialEq, Deserialize)]
    pub struct ErrorDocument<'a> {
        text?: Cow<'a, str>,
        /// The text, in an event of `mode=ui`.
        message?: Cow<'a, str>,
        error_code?: Cow<'a, str>,
        /// In an event of `mode=ui`: an entry tells only of errors that are final.
        will_retry?: bool,
    }
}

documents! {
    /// Tokens of a thread's last model call, which is the used part of its context window. As a document, it has no `all`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
    pub struct Usage {
        total?: u64,
        input_tokens?: u64,
        cached_input_tokens?: u64,
        output_tokens?: u64,
        reasoning_output_tokens?: u64,
        context_window?: u64,
        /// Tokens of all calls of the thread.
        thread_total?: u64,
        /// The same, by direction; needed only when it is reported.
        #[serde(skip)]
        all: Option<Tokens>,
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    pub(super) input: u64,
    pub(super) output: u64,
}

named! {
    /// The state of a review.
    pub open enum ReviewStatus {
        InProgress = "in_progress",
        Approved = "approved",
        Denied = "denied",
        TimedOut = "timed_out",
        Aborted = "aborted",
        /// A word of codex that the relay does not know.
        Unknown = "unknown",
    }
}

documents! {
    /// A review as a document.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    pub struct ReviewDocument {
        review_id: String,
        status: ReviewStatus,
        /// The kind of the action, in the protocol's word.
        action: String,
        /// The command, or the action in words.
        subject: String,
        cwd?: String,
        files?: Vec<String>,
        files_left_out?: usize,
        reason?: String,
        risk_level?: String,
        /// How clearly the user has authorized the action, in the reviewer's opinion.
        authorized?: String,
    }
}

named! {
    /// What has ended.
    pub enum Ended {
        Turn = "turn",
        Compaction = "compaction",
    }
}

fn nothing<S: Serializer>(_: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_unit()
}

impl Entry<'static> {
    /// Reads a line; `None` if it is not an entry.
    pub fn read(json: &str) -> Option<Entry<'static>> {
        let Head { ts, role, item_id, event, turn_id } = serde_json::from_str(json).ok()?;
        let content = Content::read(&role, json).unwrap_or_else(|| Content::Other(role.into_owned().into()));
        let [item_id, turn_id] = [item_id, turn_id].map(|id| id.map(Cow::Owned));
        Some(Entry { ts: ts.into(), item_id, event: event.into(), turn_id, content })
    }
}

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Entry { ts, item_id, event, turn_id, content } = self;
        let (item_id, turn_id) = (item_id.as_deref(), turn_id.as_deref());
        EntryJson { ts, role: content.role(), item_id, event, turn_id, content }.serialize(serializer)
    }
}

impl PlanDocument {
    /// A line for each step; `None` for a plan as it was written.
    pub fn steps_in_words(&self) -> Option<String> {
        let line = |step: &PlanStep| {
            let mark = match step.status.as_str() {
                Some("completed") => "[x]",
                Some("in_progress") => "[>]",
                Some(_) | None => "[ ]",
            };
            format!("{mark} {}", step.step.as_str().unwrap_or_default())
        };
        Some(self.steps.as_ref()?.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

impl EndDocument {
    pub fn duration_ms(&self) -> Option<u64> {
        self.duration_ms.as_ref()?.as_u64()
    }

    /// The error in the server's words, or else its code.
    pub fn why(&self) -> Option<&str> {
        let texts = [&self.error_message, &self.error_code].into_iter();
        texts.filter_map(Option::as_deref).find(|text| !text.is_empty())
    }
}

impl ErrorDocument<'_> {
    pub fn text(&self) -> &str {
        self.text.as_deref().or(self.message.as_deref()).unwrap_or_default()
    }
}

impl ItemDocument {
    pub fn exit_code(&self) -> Option<i64> {
        self.exit_code.as_ref()?.as_i64()
    }

    pub fn duration_ms(&self) -> Option<u64> {
        self.duration_ms.as_ref()?.as_u64()
    }

    pub fn error(&self) -> Option<&str> {
        self.error_message.as_ref()?.as_str()
    }

    /// The name of a tool, or else the type of its item.
    pub fn name(&self) -> Cow<'_, str> {
        match (self.server.as_deref(), self.tool.as_deref()) {
            (Some(server), Some(tool)) if !server.is_empty() && !tool.is_empty() => format!("{server}.{tool}").into(),
            (Some(name), _) if !name.is_empty() => name.into(),
            (_, Some(name)) if !name.is_empty() => name.into(),
            (_, _) => self.item_type.as_str().into(),
        }
    }
}

impl<'a> ApprovalDocument<'a> {
    /// A decision of codex's own reviewer, or on one of its denials.
    pub(super) fn of_review(review_id: &'a str, text: &'a str, decision: &'a str) -> ApprovalDocument<'a> {
        ApprovalDocument {
            kind: AUTO_REVIEW.into(),
            text: Some(text.into()),
            status: Some("resolved".into()),
            decision: Some(decision.into()),
            review_id: Some(review_id.into()),
            ..ApprovalDocument::default()
        }
    }
}

impl Content<'_> {
    /// Whether it is a message of the model without words.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Content::Assistant(said) | Content::Reasoning(said) => said.text.as_deref() == Some(""),
            Content::Plan(plan) => plan.text.as_deref() == Some(""),
            Content::User(_)
            | Content::Command(_)
            | Content::FileChange(_)
            | Content::Tool(_)
            | Content::Diff(_)
            | Content::Approval(_)
            | Content::Status(_)
            | Content::Error(_)
            | Content::Usage(_)
            | Content::Compaction
            | Content::Other(_) => false,
        }
    }

    /// Of an action.
    pub fn item(&self) -> Option<&ItemDocument> {
        if let Content::Command(item) | Content::FileChange(item) | Content::Tool(item) = self {
            Some(item)
        } else {
            None
        }
    }
}
