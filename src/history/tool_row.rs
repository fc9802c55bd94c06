//! Tool rows: one per event of a tool.

use serde::{Deserialize, Serialize};

use super::tool_call::ToolCall;

/// An event of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolEvent {
    /// A human must approve the tool.
    RequestApproval,
    /// The decision on that.
    ApprovalDecision,
    /// A question to the user.
    RequestUserInput,
    /// The answer to that.
    UserInputSubmitted,
    Started,
    OutputDelta,
    Completed,
    Failed,
    /// Its turn was interrupted.
    Interrupted,
    /// The request is no longer needed.
    Cancelled,
    Declined,
    /// The request was not answered in time.
    Timeout,
}

impl ToolEvent {
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

    /// The name in a row. Source: the contract.
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

    /// Parses a name.
    #[must_use]
    pub fn of(name: &str) -> Option<ToolEvent> {
        ToolEvent::ALL.into_iter().find(|event| event.name() == name)
    }
}

/// A phase in the life of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before it runs, including every event of a request to a human.
    Pre,
    Running,
    /// After its end.
    Post,
}

impl Phase {
    /// The name in a row. Source: the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Pre => "pre",
            Phase::Running => "running",
            Phase::Post => "post",
        }
    }
}

/// A row of `codex_tool_events` without its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRow {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
    /// The request's name in the ledger.
    pub request_id: Option<String>,
    pub event_type: ToolEvent,
    /// The item type of the protocol.
    pub item_type: Option<String>,
    pub phase: Phase,
    /// The command, masked.
    pub command: Option<String>,
    /// The working folder.
    pub cwd: Option<String>,
    /// The exit status of a command.
    pub exit_code: Option<i64>,
    /// The first changed file.
    pub file_path: Option<String>,
    /// The size of the change, such as `+3 -1 in 2 files`.
    pub diff_summary: Option<String>,
    /// The decision as one word.
    pub approval_decision: Option<String>,
    /// Milliseconds from its start, or from the request, to its end.
    pub latency_ms: Option<u64>,
    /// The status at its end, in the protocol's word if there is one.
    pub final_status: Option<String>,
    /// The kind of failure in one word.
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    /// An excerpt of the recorded payload, as masked JSON; `None` if the payload was not recorded.
    pub raw_payload_json: Option<String>,
}

impl ToolRow {
    /// A row without optional columns.
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
