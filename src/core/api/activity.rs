//! What the threads of a session do now, what they did last, and the rows of tools and turns behind it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::event::{EVENTS_MAX, GapReason};
use super::parameter::{EpochId, Limit, query};
use super::session::ThreadDocument;
use crate::history::{Action, ActionKind, ActionStatus, Activity, action_in_words, rfc3339_millis};

/// The activity of the session and of its threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityDocument {
    pub activity_state: Activity,
    /// RFC 3339; `null` if not recorded.
    pub since: Option<String>,
    pub threads: Vec<ThreadDocument>,
}

/// Most actions in a document.
pub(super) const ACTIONS_MAX: u64 = 200;

query! {
    /// The actions that changed last.
    ActionsQuery -> ActionsDocument = "activity-actions" {
        limit: Limit<ACTIONS_MAX>,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionsDocument {
    /// The one that changed last comes last.
    pub actions: Vec<ActionDocument>,
}

/// An action of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionDocument {
    pub action_kind: ActionKind,
    /// RFC 3339; `null` while it runs.
    pub ended_at: Option<String>,
    pub item_id: Option<String>,
    pub session_id: String,
    pub source_provider: String,
    /// RFC 3339.
    pub started_at: String,
    pub status: ActionStatus,
    /// One-line summary.
    pub summary_text: String,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
}

impl From<Action> for ActionDocument {
    fn from(action: Action) -> ActionDocument {
        ActionDocument {
            action_kind: action.action_kind,
            ended_at: action.ended_at_us.map(rfc3339_millis),
            item_id: action.item_id,
            session_id: action.session_id,
            source_provider: "codex-app".to_owned(),
            started_at: rfc3339_millis(action.started_at_us),
            status: action.status,
            summary_text: action.summary_text,
            thread_id: action.thread_id,
            turn_id: action.turn_id,
        }
    }
}

impl From<Vec<Action>> for ActionsDocument {
    fn from(actions: Vec<Action>) -> ActionsDocument {
        ActionsDocument { actions: actions.into_iter().map(ActionDocument::from).collect() }
    }
}

impl ActionDocument {
    /// When it ended or, if it is running, when it began.
    pub fn changed_at(&self) -> &str {
        self.ended_at.as_deref().unwrap_or(&self.started_at)
    }

    /// The action in words. A status that the words do not imply comes first.
    pub fn words(&self) -> String {
        match (self.action_kind, self.summary_text.split_once(": ")) {
            (kind @ (ActionKind::Command | ActionKind::FileChange | ActionKind::Tool), Some((_, what))) => {
                action_in_words(kind.name(), self.status.name(), what)
            }
            (_, _) => self.summary_text.clone(),
        }
    }
}

query! {
    /// The rows of tools after a cursor, or the last ones.
    ToolRowsQuery -> RowPage<ToolRowDocument> = "tool-events" {
        since_id: u64,
        since_epoch: EpochId,
        limit: Limit<EVENTS_MAX>,
    }
}

query! {
    /// The rows of turns after a cursor, or the last ones.
    TurnRowsQuery -> RowPage<TurnRowDocument> = "turn-events" {
        since_id: u64,
        since_epoch: EpochId,
        limit: Limit<EVENTS_MAX>,
    }
}

/// A page of rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowPage<T> {
    /// The rows, in order.
    pub events: Vec<T>,
    /// The lowest stored number.
    pub earliest_id: Option<u64>,
    /// The highest stored number.
    pub latest_id: Option<u64>,
    /// One more than the next cursor.
    pub next_id: u64,
    /// The page lacks something after the cursor.
    pub history_gap: bool,
    pub gap_reason: Option<GapReason>,
    /// The epoch of all numbers of this history; `null` if the index has not begun it, and relays of older versions omit it.
    pub epoch: Option<String>,
}

/// A row of `codex_tool_events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRowDocument {
    pub approval_decision: Option<String>,
    pub command: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    pub cwd: Option<String>,
    pub diff_summary: Option<String>,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    pub event_type: String,
    pub exit_code: Option<i64>,
    pub file_path: Option<String>,
    pub final_status: Option<String>,
    pub id: u64,
    pub item_id: Option<String>,
    pub item_type: Option<String>,
    pub latency_ms: Option<i64>,
    pub phase: Option<String>,
    /// The parameters of the message, possibly shortened.
    pub raw_payload: Value,
    pub request_id: Option<String>,
    pub session_id: String,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
}

/// A row of `codex_turn_events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRowDocument {
    /// RFC 3339.
    pub created_at: String,
    pub delta_chars: Option<i64>,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    /// `started`, or how the turn ended.
    pub event_type: String,
    pub id: u64,
    pub input_tokens: Option<i64>,
    pub latency_ms: Option<i64>,
    pub output_preview: Option<String>,
    pub output_tokens: Option<i64>,
    /// The parameters of the message, possibly shortened.
    pub raw_payload: Value,
    pub session_id: String,
    pub status: Option<String>,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn document_names_match_the_contract() {
        let action = Action {
            action_kind: ActionKind::Command,
            summary_text: "Completed: ls".to_owned(),
            status: ActionStatus::Completed,
            started_at_us: 3_000,
            ended_at_us: Some(5_000),
            session_id: "s".to_owned(),
            thread_id: Some("t".to_owned()),
            turn_id: Some("u".to_owned()),
            item_id: Some("i".to_owned()),
        };
        let expect = json!({
            "source_provider": "codex-app", "action_kind": "command", "summary_text": "Completed: ls",
            "status": "completed", "started_at": "1970-01-01T00:00:00.003Z", "ended_at": "1970-01-01T00:00:00.005Z", "session_id": "s", "thread_id": "t",
            "turn_id": "u", "item_id": "i",
        });
        assert_eq!(json!(ActionDocument::from(action)), expect);
    }
}
