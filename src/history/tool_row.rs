//! What is told of a tool: a row each time that something happens to it.

use serde::{Deserialize, Serialize};

use super::tool_call::ToolCall;

/// What happened to a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolEvent {
    /// A human is asked whether it may run.
    RequestApproval,
    /// That was decided.
    ApprovalDecision,
    /// A human is asked something.
    RequestUserInput,
    /// That was answered.
    UserInputSubmitted,
    /// It runs.
    Started,
    /// It puts something out.
    OutputDelta,
    /// It has come to its end.
    Completed,
    /// It has not.
    Failed,
    /// Its turn was interrupted.
    Interrupted,
    /// What was asked is not to be answered any more.
    Cancelled,
    /// It was not allowed.
    Declined,
    /// What was asked was not answered in time.
    Timeout,
}

impl ToolEvent {
    /// All of them.
    pub const ALL: [ToolEvent; 12] = [
        ToolEvent::RequestApproval,
        ToolEvent::ApprovalDecision,
        ToolEvent::RequestUserInput,
        ToolEvent::UserInputSubmitted,
        ToolEvent::Started,
        ToolEvent::OutputDelta,
        ToolEvent::Completed,
        ToolEvent::Failed,
        ToolEvent::Interrupted,
        ToolEvent::Cancelled,
        ToolEvent::Declined,
        ToolEvent::Timeout,
    ];

    /// The name that it has in a row. Source: the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ToolEvent::RequestApproval => "request_approval",
            ToolEvent::ApprovalDecision => "approval_decision",
            ToolEvent::RequestUserInput => "request_user_input",
            ToolEvent::UserInputSubmitted => "user_input_submitted",
            ToolEvent::Started => "started",
            ToolEvent::OutputDelta => "output_delta",
            ToolEvent::Completed => "completed",
            ToolEvent::Failed => "failed",
            ToolEvent::Interrupted => "interrupted",
            ToolEvent::Cancelled => "cancelled",
            ToolEvent::Declined => "declined",
            ToolEvent::Timeout => "timeout",
        }
    }

    /// That of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<ToolEvent> {
        ToolEvent::ALL.into_iter().find(|event| event.name() == name)
    }
}

/// Where in the life of a tool something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before it runs: whatever happens to what a human is asked.
    Pre,
    /// While it runs.
    Running,
    /// At its end.
    Post,
}

impl Phase {
    /// The name that it has in a row. Source: the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Pre => "pre",
            Phase::Running => "running",
            Phase::Post => "post",
        }
    }
}

/// A row of `codex_tool_events`, but for the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRow {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    /// Its thread.
    pub thread_id: Option<String>,
    /// Its turn.
    pub turn_id: Option<String>,
    /// Its item.
    pub item_id: Option<String>,
    /// What a human is asked, by its name in the ledger.
    pub request_id: Option<String>,
    /// What happened.
    pub event_type: ToolEvent,
    /// The protocol's name for what the item is.
    pub item_type: Option<String>,
    /// Where in the life of the tool.
    pub phase: Phase,
    /// The command, secrets masked.
    pub command: Option<String>,
    /// Where it runs.
    pub cwd: Option<String>,
    /// The status that a command has ended with.
    pub exit_code: Option<i64>,
    /// The first file that is changed.
    pub file_path: Option<String>,
    /// How much is changed, such as `+3 -1 in 2 files`.
    pub diff_summary: Option<String>,
    /// What was decided, in a word.
    pub approval_decision: Option<String>,
    /// Milliseconds from its start, or from when it was asked, to its end.
    pub latency_ms: Option<u64>,
    /// At its end, in the protocol's word for that where there is one.
    pub final_status: Option<String>,
    /// Why it has failed, in a word.
    pub error_code: Option<String>,
    /// Why it has failed.
    pub error_message: Option<String>,
    /// An excerpt of what the row was made of, as JSON without secrets; `None` where the records hold nothing of it.
    pub raw_payload_json: Option<String>,
}

impl ToolRow {
    /// One of which no more is known than what is done.
    pub(super) fn new(at_us: u64, event_type: ToolEvent, phase: Phase, does: ToolCall) -> ToolRow {
        let ToolCall { item_type, command, cwd, file_path, diff_summary } = does;
        ToolRow {
            at_us,
            thread_id: None,
            turn_id: None,
            item_id: None,
            request_id: None,
            event_type,
            item_type,
            phase,
            command,
            cwd,
            exit_code: None,
            file_path,
            diff_summary,
            approval_decision: None,
            latency_ms: None,
            final_status: None,
            error_code: None,
            error_message: None,
            raw_payload_json: None,
        }
    }
}
