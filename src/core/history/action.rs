//! Actions: what an agent does, as one line per item for display.
//!
//! Derived from tool rows alone, so nothing extra is stored.

use std::collections::HashMap;

use serde_json::Value;

use super::bounded::start_of;
use super::review::REVIEW;
use super::rows::{Phase, ToolEvent, ToolRow};
use crate::engine::{UNANSWERED, one_line, without_shell};
use crate::protocol::{Word, named};

/// Longest command, path or name in a summary, in characters. Source: session-manager.
const TARGET_CHARS_MAX: usize = 80;

/// Longest error in a summary, in characters. Source: session-manager.
const ERROR_CHARS_MAX: usize = 120;

named! {
    /// The kind of an action.
    pub open enum ActionKind {
        Command = "command",
        FileChange = "file_change",
        /// A call of any other tool.
        Tool = "tool",
        /// A request for permission.
        Approval = "approval",
        /// A question to the user.
        UserInput = "user_input",
    }
}

named! {
    /// The progress of an action.
    pub open enum ActionStatus {
        /// In progress.
        Running = "running",
        /// Waiting for a human.
        Pending = "pending",
        /// Completed; for a request: answered, whatever the answer was.
        Completed = "completed",
        Failed = "failed",
        Declined = "declined",
        /// Its turn was interrupted.
        Interrupted = "interrupted",
        /// No longer needed.
        Cancelled = "cancelled",
        /// Not answered in time.
        Timeout = "timeout",
    }
}

impl ActionStatus {
    fn of(event: ToolEvent) -> ActionStatus {
        match event {
            ToolEvent::RequestApproval | ToolEvent::RequestUserInput => ActionStatus::Pending,
            ToolEvent::Started | ToolEvent::OutputDelta => ActionStatus::Running,
            ToolEvent::ApprovalDecision
            | ToolEvent::UserInputSubmitted
            | ToolEvent::Completed
            | ToolEvent::Overruled => ActionStatus::Completed,
            ToolEvent::Failed => ActionStatus::Failed,
            ToolEvent::Interrupted => ActionStatus::Interrupted,
            ToolEvent::Cancelled => ActionStatus::Cancelled,
            ToolEvent::Declined => ActionStatus::Declined,
            ToolEvent::Timeout => ActionStatus::Timeout,
        }
    }

    /// Whether the status is final.
    fn is_end(self) -> bool {
        match self {
            ActionStatus::Running | ActionStatus::Pending => false,
            ActionStatus::Completed
            | ActionStatus::Failed
            | ActionStatus::Declined
            | ActionStatus::Interrupted
            | ActionStatus::Cancelled
            | ActionStatus::Timeout
            | ActionStatus::Newer(_) => true,
        }
    }
}

/// An action of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    pub action_kind: ActionKind,
    /// One-line summary.
    pub summary_text: String,
    pub status: ActionStatus,
    /// Microseconds since the Unix epoch.
    pub started_at_us: u64,
    /// Microseconds since the Unix epoch, if ended.
    pub ended_at_us: Option<u64>,
    pub session_id: String,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
}

/// Describes an action in the past tense: `ran cargo test (exit 1)`, `declined: rm -rf build`. `what` is its command,
/// file or tool name, followed by `(exit N)` if it failed with a status.
#[must_use]
pub fn action_in_words(kind: &str, status: &str, what: &str) -> String {
    let (runs, ran, run) = match kind {
        "command" => ("runs ", "ran ", ""),
        "file_change" => ("changes ", "changed ", "change "),
        _ => ("calls ", "called ", "call "),
    };
    let has_run = what.ends_with(')') && what.contains(" (exit ");
    match status {
        "running" | "pending" => format!("{runs}{what}"),
        "completed" => format!("{ran}{what}"),
        "failed" if has_run => format!("{ran}{what}"),
        "timeout" => format!("timed out: {run}{what}"),
        status => format!("{status}: {run}{what}"),
    }
}

/// A decision on a request in the past tense, to follow `Approval` or `User input`: `given`, `declined`, `cancelled`. `accepted` is
/// the word for consent.
pub fn decided(decision: Option<&str>, accepted: &str) -> String {
    match (decision, decision.and_then(Word::named)) {
        (None, _) | (_, Some(Word::Accept)) => accepted.to_owned(),
        (_, Some(Word::AcceptForSession)) => format!("{accepted} for the session"),
        (_, Some(Word::Decline)) => "declined".to_owned(),
        (_, Some(Word::Cancel)) => "cancelled".to_owned(),
        (Some(UNANSWERED), None) => "not given".to_owned(),
        (Some(other), None) => format!("decision: {}", one_line(other)),
    }
}

/// A stored row of `codex_tool_events`.
#[derive(Debug, Clone)]
pub struct KeptTool {
    pub session_id: String,
    pub row: ToolRow,
}

/// The `limit` most recently changed actions, one per item and request, most recent last. `rows` come newest first.
pub fn actions(rows: impl Iterator<Item = KeptTool>, limit: usize) -> Vec<Action> {
    let mut known: HashMap<Identity, usize> = HashMap::new();
    let mut drafts: Vec<Draft> = Vec::new();
    for KeptTool { session_id, row } in rows {
        let identity = Identity::of(&session_id, &row);
        match known.get(&identity) {
            Some(index) => drafts[*index].has_older(row),
            None if drafts.len() < limit => {
                known.insert(identity, drafts.len());
                drafts.push(Draft::of(session_id, row));
            }
            None => {}
        }
    }
    drafts.into_iter().rev().map(Draft::into_action).collect()
}

/// Identifies the rows of one action.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    Request(String),
    /// An item, or a request without a name; the last member distinguishes them.
    Place(String, Option<String>, Option<String>, Option<String>, bool),
}

impl Identity {
    fn of(session_id: &str, row: &ToolRow) -> Identity {
        match row.request_id.clone() {
            Some(request_id) => Identity::Request(request_id),
            None => {
                let (thread_id, turn_id, item_id) = (row.thread_id.clone(), row.turn_id.clone(), row.item_id.clone());
                Identity::Place(session_id.to_owned(), thread_id, turn_id, item_id, is_request(row))
            }
        }
    }
}

fn is_request(row: &ToolRow) -> bool {
    row.request_id.is_some() || row.phase == Phase::Pre
}

/// An action; its older rows may not have been read yet.
struct Draft {
    session_id: String,
    /// The newest row, or the end; older rows fill in missing columns.
    row: ToolRow,
    /// The name of the tool, or the question.
    name: Option<String>,
    is_input: bool,
    started_us: u64,
}

impl Draft {
    fn of(session_id: String, row: ToolRow) -> Draft {
        let (name, is_input, started_us) = (name(&row), is_input(row.event_type), began_us(&row));
        Draft { session_id, row, name, is_input, started_us }
    }

    fn has_older(&mut self, mut older: ToolRow) {
        self.started_us = self.started_us.min(began_us(&older));
        self.name = self.name.take().or_else(|| name(&older));
        self.is_input |= is_input(older.event_type);
        let is_end = |row: &ToolRow| ActionStatus::of(row.event_type).is_end();
        // Output may arrive after the end.
        if is_end(&older) && !is_end(&self.row) {
            std::mem::swap(&mut self.row, &mut older);
        }
        let fill = |column: &mut Option<String>, older: Option<String>| *column = column.take().or(older);
        fill(&mut self.row.item_type, older.item_type);
        fill(&mut self.row.command, older.command);
        fill(&mut self.row.file_path, older.file_path);
        fill(&mut self.row.diff_summary, older.diff_summary);
    }

    fn into_action(self) -> Action {
        let status = ActionStatus::of(self.row.event_type);
        let kind = match (is_request(&self.row), self.row.item_type.as_deref()) {
            (true, _) if self.is_input => ActionKind::UserInput,
            (true, _) => ActionKind::Approval,
            (false, Some("commandExecution")) => ActionKind::Command,
            (false, Some("fileChange")) => ActionKind::FileChange,
            (false, Some(_) | None) => ActionKind::Tool,
        };
        Action {
            action_kind: kind,
            summary_text: self.summary(kind),
            status,
            started_at_us: self.started_us,
            ended_at_us: status.is_end().then_some(self.row.at_us),
            session_id: self.session_id,
            thread_id: self.row.thread_id,
            turn_id: self.row.turn_id,
            item_id: self.row.item_id,
        }
    }

    /// For example `Started: cargo test`, `Failed: cargo test (exit 101)` or `Approval given: cargo test`.
    fn summary(&self, kind: ActionKind) -> String {
        let decision = self.row.approval_decision.as_deref();
        let is_review = self.row.item_type.as_deref() == Some(REVIEW);
        let subject = match kind {
            ActionKind::Approval if is_review => "Auto-review",
            ActionKind::Approval => "Approval",
            ActionKind::UserInput => "User input",
            ActionKind::Command | ActionKind::FileChange | ActionKind::Tool | ActionKind::Newer(_) => "",
        };
        let verb = match self.row.event_type {
            ToolEvent::RequestApproval | ToolEvent::RequestUserInput => "requested".to_owned(),
            ToolEvent::ApprovalDecision => decided(decision, "given"),
            ToolEvent::UserInputSubmitted => decided(decision, "submitted"),
            ToolEvent::Completed if is_review => "approved".to_owned(),
            ToolEvent::Declined if is_review => "denied".to_owned(),
            ToolEvent::Overruled => "overruled".to_owned(),
            ToolEvent::Started => "started".to_owned(),
            ToolEvent::OutputDelta => "output update".to_owned(),
            ToolEvent::Completed => "completed".to_owned(),
            ToolEvent::Failed => "failed".to_owned(),
            ToolEvent::Interrupted => "interrupted".to_owned(),
            ToolEvent::Cancelled => "cancelled".to_owned(),
            ToolEvent::Declined => "declined".to_owned(),
            ToolEvent::Timeout => "timed out".to_owned(),
        };
        let verb = if subject.is_empty() { capital(&verb) } else { format!("{subject} {verb}") };
        let what = self.target(kind).map(|target| format!(": {target}")).unwrap_or_default();
        let exit = self.row.exit_code.filter(|code| *code != 0).map(|code| format!(" (exit {code})"));
        let error = self.row.error_message.as_deref().or(self.row.error_code.as_deref());
        let is_told = |event| event == ToolEvent::Failed || is_review && event == ToolEvent::Declined;
        let error = error.filter(|_| is_told(self.row.event_type));
        let error = error.map(|error| format!(": {}", short(error, ERROR_CHARS_MAX)));
        [verb, what, exit.unwrap_or_default(), error.unwrap_or_default()].concat()
    }

    /// The object of the action.
    fn target(&self, kind: ActionKind) -> Option<String> {
        let command = || self.row.command.as_deref().map(|command| short(&without_shell(command), TARGET_CHARS_MAX));
        let file = || {
            let path = short(self.row.file_path.as_deref()?, TARGET_CHARS_MAX);
            let much = self.row.diff_summary.as_deref().map(|much| format!(" ({much})"));
            Some(format!("{path}{}", much.unwrap_or_default()))
        };
        let item_type = || self.row.item_type.as_deref().map(|item_type| short(item_type, TARGET_CHARS_MAX));
        let name = || self.name.as_deref().map(|name| short(name, TARGET_CHARS_MAX));
        match kind {
            ActionKind::Command => command().or_else(item_type),
            ActionKind::FileChange => file().or_else(item_type),
            ActionKind::Tool | ActionKind::Newer(_) => name().or_else(item_type),
            ActionKind::Approval => command().or_else(file).or_else(name).or_else(item_type),
            ActionKind::UserInput => name(),
        }
    }
}

fn is_input(event: ToolEvent) -> bool {
    matches!(event, ToolEvent::RequestUserInput | ToolEvent::UserInputSubmitted)
}

fn began_us(row: &ToolRow) -> u64 {
    row.at_us.saturating_sub(row.latency_ms.unwrap_or_default().saturating_mul(1_000))
}

/// The tool name or question, if the payload is stored whole.
fn name(row: &ToolRow) -> Option<String> {
    // The columns have these already.
    if !is_request(row) && matches!(row.item_type.as_deref(), Some("commandExecution" | "fileChange")) {
        return None;
    }
    let params: Value = serde_json::from_str(row.raw_payload_json.as_deref()?).ok()?;
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let item = &params["item"];
    let tool = text(&item["tool"]).map(|tool| match text(&item["server"]) {
        Some(server) => format!("{server}.{tool}"),
        None => tool,
    });
    let about = ["query", "path"].iter().find_map(|member| text(&item[*member]));
    let about = about.map(|about| match text(&item["type"]) {
        Some(item_type) => format!("{item_type} {about}"),
        None => about,
    });
    let asked = || text(&params["questions"][0]["question"]).or_else(|| text(&params["message"]));
    let wanted = || {
        let wanted = params["permissions"].as_object()?.iter().filter(|(_, value)| !value.is_null());
        let wanted: Vec<&str> = wanted.map(|(name, _)| name.as_str()).collect();
        (!wanted.is_empty()).then(|| wanted.join(", "))
    };
    tool.or(about).or_else(asked).or_else(wanted)
}

fn short(text: &str, chars_max: usize) -> String {
    let line = one_line(text);
    match start_of(&line, chars_max) {
        start if start.len() == line.len() => line,
        _ => format!("{}…", start_of(&line, chars_max - 1)),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::item::ToolCall;
    use crate::protocol::ItemPlace;
    use crate::protocol::of_name;

    /// Rows, oldest first: `TIME EVENT PHASE ITEM_TYPE ITEM REQUEST MORE`; `~` is a missing value.
    fn rows(actual: &str) -> Vec<KeptTool> {
        let part = |text: &str| (text != "~").then(|| text.to_owned());
        let row = |line: &str| {
            let mut parts = line.trim().splitn(7, ' ');
            let mut next = || parts.next().unwrap_or("~");
            let (at, event_type, phase, item_type, item, request) = (next(), next(), next(), next(), next(), next());
            let at_us = at.parse::<u64>().expect("BUG: a test gives times") * 1_000;
            let (thread_id, turn_id, item_id) = (part("t"), part("u"), part(item));
            let does = ToolCall { item_type: part(item_type), ..ToolCall::default() };
            let event = of_name(event_type).expect("BUG: a test names events");
            let phase = of_name(phase).unwrap_or(Phase::Running);
            let mut row = ToolRow::new(at_us, event, phase, &ItemPlace { thread_id, turn_id, item_id }, does);
            row.request_id = part(request);
            for pair in parts.next().unwrap_or_default().split(';').filter(|pair| !pair.is_empty()) {
                let (name, value) = pair.split_once('=').expect("BUG: a test gives pairs");
                match name {
                    "cmd" => row.command = part(value),
                    "file" => row.file_path = part(value),
                    "diff" => row.diff_summary = part(value),
                    "exit" => row.exit_code = value.parse().ok(),
                    "latency" => row.latency_ms = value.parse().ok(),
                    "decision" => row.approval_decision = part(value),
                    "error" => row.error_message = part(value),
                    "code" => row.error_code = part(value),
                    "raw" => row.raw_payload_json = part(value),
                    _ => panic!("BUG: {name} is no name"),
                }
            }
            KeptTool { session_id: "s".to_owned(), row }
        };
        actual.lines().filter(|line| !line.trim().is_empty()).map(row).collect()
    }

    fn check_limit(actual: &str, limit: usize, expect: &[&str]) {
        let actions = actions(rows(actual).into_iter().rev(), limit);
        let say = |action: &Action| {
            let ended = action.ended_at_us.map_or("-".to_owned(), |at_us| (at_us / 1_000).to_string());
            let Action { action_kind, summary_text, status, started_at_us, .. } = action;
            format!("{} {} {}..{ended} {summary_text}", action_kind.name(), status.name(), started_at_us / 1_000)
        };
        assert_eq!(actions.iter().map(say).collect::<Vec<_>>(), expect);
    }

    fn check(actual: &str, expect: &str) {
        check_limit(actual, 20, &[expect]);
    }

    #[test]
    fn a_command() {
        check(
            "5 started running commandExecution i ~ cmd=/bin/bash -lc 'cargo test'",
            "command running 5..- Started: cargo test",
        );
        check(
            "5 started running commandExecution i ~ cmd=ls
             6 output_delta running commandExecution i ~ cmd=ls",
            "command running 5..- Output update: ls",
        );
        check(
            "5 started running commandExecution i ~ cmd=ls
             9 failed post commandExecution i ~ cmd=ls;exit=101;latency=4",
            "command failed 5..9 Failed: ls (exit 101)",
        );
        check("9 completed post commandExecution i ~ cmd=ls;exit=0;latency=4", "command completed 5..9 Completed: ls");
        check("9 failed post commandExecution i ~ code=gone", "command failed 9..9 Failed: commandExecution: gone");
    }

    #[test]
    fn end_stays_final_despite_later_rows() {
        check(
            "5 started running commandExecution i ~ cmd=ls
             9 interrupted post commandExecution i ~ latency=4
             8 output_delta running commandExecution i ~",
            "command interrupted 5..9 Interrupted: ls",
        );
        // The newer of two ends.
        check(
            "5 failed post x i ~ error=a
             6 completed post x i ~",
            "tool completed 5..6 Completed: x",
        );
    }

    #[test]
    fn declined_action_is_never_described_as_run() {
        let check = |kind: &str, status: &str, what: &str, expect: &str| {
            assert_eq!(action_in_words(kind, status, what), expect);
        };
        check("command", "running", "make", "runs make");
        check("command", "completed", "make", "ran make");
        check("command", "failed", "make (exit 2)", "ran make (exit 2)");
        check("command", "failed", "make: no such sandbox", "failed: make: no such sandbox");
        check("command", "declined", "rm -rf build", "declined: rm -rf build");
        check("command", "interrupted", "sleep 9", "interrupted: sleep 9");
        check("command", "timeout", "sleep 9", "timed out: sleep 9");
        check("file_change", "declined", "/a (+3 -1)", "declined: change /a (+3 -1)");
        check("file_change", "failed", "/a", "failed: change /a");
        check("tool", "completed", "lab.sum", "called lab.sum");
        check("tool", "cancelled", "lab.sum", "cancelled: call lab.sum");
    }

    #[test]
    fn a_change_of_files() {
        check(
            "5 started running fileChange i ~ file=/a;diff=+3 -1 in 2 files
             6 declined post fileChange i ~",
            "file_change declined 5..6 Declined: /a (+3 -1 in 2 files)",
        );
    }

    #[test]
    fn other_tools_by_their_names() {
        check(
            r#"5 started running mcpToolCall i ~ raw={"item":{"server":"lab","tool":"sum"}}
               6 failed post mcpToolCall i ~ error=no;raw={"truncated":true}"#,
            "tool failed 5..6 Failed: lab.sum: no",
        );
        check(
            r#"5 started running webSearch i ~ raw={"item":{"type":"webSearch","query":"rust"}}"#,
            "tool running 5..- Started: webSearch rust",
        );
        check("5 started running newTool i ~ raw={", "tool running 5..- Started: newTool");
    }

    #[test]
    fn requests_stand_beside_their_items() {
        check_limit(
            "5 started running commandExecution i ~ cmd=ls
             6 request_approval pre commandExecution i g-0 cmd=ls
             8 approval_decision pre commandExecution i g-0 cmd=ls;decision=decline;latency=2
             9 declined post commandExecution i ~ cmd=ls;latency=4",
            20,
            &["approval completed 6..8 Approval declined: ls", "command declined 5..9 Declined: ls"],
        );
        check("6 request_approval pre fileChange i g-0 file=/a", "approval pending 6..- Approval requested: /a");
        check(
            "6 request_approval pre ~ ~ g-0 raw={\"permissions\":{\"network\":{},\"x\":null}}",
            "approval pending 6..- Approval requested: network",
        );
        check(
            "6 timeout pre fileChange i g-0 decision=decline",
            "approval timeout 6..6 Approval timed out: fileChange",
        );
        check(
            r#"6 request_user_input pre ~ i g-0 raw={"questions":[{"question":"Which?"}]}
               7 user_input_submitted pre ~ i g-0 latency=1"#,
            "user_input completed 6..7 User input submitted: Which?",
        );
        check(
            r#"6 request_user_input pre ~ i g-0 raw={"message":"Deploy?"}
               7 user_input_submitted pre ~ i g-0 decision=unanswered;latency=1"#,
            "user_input completed 6..7 User input not given: Deploy?",
        );
        check(
            r#"6 request_user_input pre ~ i g-0 raw={"message":"Deploy?"}
               7 user_input_submitted pre ~ i g-0 decision=cancel;latency=1"#,
            "user_input completed 6..7 User input cancelled: Deploy?",
        );
        check(
            "6 request_user_input pre ~ i g-0
             7 cancelled pre ~ i g-0 code=withdrawn_by_server",
            "user_input cancelled 6..7 User input cancelled",
        );
        // Without a name, requests are distinguished from the item by their place.
        check_limit(
            "5 started running commandExecution i ~ cmd=ls
             6 request_approval pre commandExecution i ~ cmd=ls
             9 failed post commandExecution i ~ code=x
             9 failed pre commandExecution i ~ code=x",
            20,
            &["command failed 5..9 Failed: ls: x", "approval failed 6..9 Approval failed: ls: x"],
        );
    }

    #[test]
    fn the_last_ones_oldest_first() {
        let actual = "1 started running x a ~
                    2 started running x b ~
                    3 started running x c ~
                    4 completed post x b ~";
        check_limit(actual, 2, &["tool running 3..- Started: x", "tool completed 2..4 Completed: x"]);
        check_limit(actual, 0, &[]);
    }

    #[test]
    fn texts_are_short() {
        let long = format!("5 failed post commandExecution i ~ cmd={};error={}", "x".repeat(200), "e".repeat(200));
        let text = format!("Failed: {}…: {}…", "x".repeat(79), "e".repeat(119));
        check(&long, &format!("command failed 5..5 {text}"));
    }
}
