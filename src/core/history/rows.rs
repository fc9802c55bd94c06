//! Tool rows and turn rows.
//!
//! A tool gets a row for its start, one for each group of output, and one for its end: its own, or that of its turn if
//! the turn is interrupted, fails or is replaced without a reported end, or that of the child. A tool may outlive a
//! completed turn, as a background command does. A request to a human about a tool gets a row for its end if a note or the
//! end of the child tells it. Events in another dialect than today's give no rows, because they repeat what it reports.
//!
//! A turn gets a row for its start and one for its end, which is its own, that of the child, or the start of another turn in
//! its thread.

use super::bounded::{EXCERPT_CHARS_MAX, cut, cut_plain, latency_ms, masked_start, preview};
use super::conversation::{Change, Conversation, Step, Tool};
use super::groups::Group;
use super::item::{ThreadItem, ToolCall, tool_of_piece};
use super::request::{End, Request, RequestState};
use super::review::{Overruled, Review, is_review};
use super::turn::{Failure, OUTPUT_CHARS_MAX, STREAM_CLOSED, Turn, TurnEnd, TurnEvent};
use crate::engine::Need;
use crate::protocol::{Dialect, ItemPlace, named};

named! {
    /// An event of a tool.
    pub enum ToolEvent {
        /// A human must approve the tool.
        RequestApproval = "request_approval",
        /// The decision on that.
        ApprovalDecision = "approval_decision",
        /// A question to the user.
        RequestUserInput = "request_user_input",
        /// The answer to that.
        UserInputSubmitted = "user_input_submitted",
        Started = "started",
        OutputDelta = "output_delta",
        Completed = "completed",
        Failed = "failed",
        /// Its turn was interrupted.
        Interrupted = "interrupted",
        /// The request is no longer needed.
        Cancelled = "cancelled",
        Declined = "declined",
        /// The request was not answered in time.
        Timeout = "timeout",
        /// A person approved what codex's own reviewer had denied.
        Overruled = "overruled",
    }
}

named! {
    /// A phase in the life of a tool.
    pub enum Phase {
        /// Before it runs, including every event of a request to a human and of a review.
        Pre = "pre",
        Running = "running",
        /// After its end.
        Post = "post",
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
    pub(super) fn new(at_us: u64, event_type: ToolEvent, phase: Phase, place: &ItemPlace, does: ToolCall) -> ToolRow {
        let ItemPlace { thread_id, turn_id, item_id } = place.clone();
        let ToolCall { item_type, command, cwd, file_path, diff_summary } = does;
        ToolRow {
            at_us,
            thread_id,
            turn_id,
            item_id,
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

/// Appends the tool rows of a step, except those of output.
pub(super) fn tool_rows(step: &Step<'_>, conversation: &Conversation, rows: &mut Vec<ToolRow>) {
    let at_us = step.at_us;
    // Work without a reported end; if an end arrives later, it gets another row.
    let lost = |row: ToolRow| ToolRow { error_code: Some(step.lost_code().to_owned()), ..row };
    rows.extend(step.lost.tools.iter().map(|(place, tool)| lost(tool_ended(place, tool, at_us, ToolEvent::Failed))));
    if let Change::ItemStarted { item, is_new: true } = &step.change {
        let does = ToolCall::of_item(item);
        rows.push(reported(step, |place| ToolRow::new(at_us, ToolEvent::Started, Phase::Running, place, does)));
    } else if let Change::ItemCompleted { item, tool, is_late: false } = &step.change
        && item.kind.is_tool()
        && step.message.is_some_and(|message| message.place.item_id.is_some())
    {
        rows.push(reported(step, |place| completed(item, tool.as_ref(), place, at_us)));
    } else if let Change::TurnEnded { end, tools, .. } = &step.change {
        let event = if end.event == TurnEvent::Interrupted { ToolEvent::Interrupted } else { ToolEvent::Failed };
        let Failure { message, code } = end.failure.excerpt();
        rows.extend(tools.iter().map(|(place, tool)| {
            let (error_code, error_message) = (code.clone(), message.clone());
            ToolRow { error_code, error_message, ..tool_ended(place, tool, at_us, event) }
        }));
    } else if let Change::Review { review, tool, is_told: false } = &step.change {
        rows.push(reported(step, |place| of_review(review, tool.as_ref(), place, at_us)));
    } else if let Change::Answered { call: Some(call), error: None, .. } = &step.change {
        rows.extend(call.overrules.iter().map(|it| of_overruled(it, call.thread_id.as_deref(), at_us)));
    } else if let Change::Asked(id) = &step.change {
        rows.extend(conversation.request(id).map(|request| {
            let event = match request.wanted.need() {
                Need::Permission => ToolEvent::RequestApproval,
                Need::Input => ToolEvent::RequestUserInput,
            };
            reported(step, |_| of_request(request, at_us, event))
        }));
    } else if let Change::Resolved(request, end) = &step.change {
        rows.extend(resolved(request, end, conversation, at_us));
    }
    rows.extend(step.lost.requests.iter().filter(|request| request.is_open()).map(|request| {
        lost(ToolRow {
            latency_ms: Some(latency_ms(request.at_us, at_us)),
            final_status: Some(ToolEvent::Failed.name().to_owned()),
            ..of_request(request, at_us, ToolEvent::Failed)
        })
    }));
}

/// The row of a group of pieces, if it is the output of a tool.
pub(super) fn output_row(group: &Group, conversation: &Conversation) -> Option<ToolRow> {
    let (Dialect::Now, Some(_)) = (group.dialect, &group.item_id) else { return None };
    let (thread_id, turn_id, item_id) = (group.thread_id.clone(), group.turn_id.clone(), group.item_id.clone());
    let place = ItemPlace { thread_id, turn_id, item_id };
    let does = match conversation.tool(&place) {
        Some(tool) => tool.does.clone(),
        None => {
            let item_type = tool_of_piece(&group.method)?;
            ToolCall { item_type: Some(item_type.to_owned()), ..ToolCall::default() }
        }
    };
    let row = ToolRow::new(group.first_us, ToolEvent::OutputDelta, Phase::Running, &place, does);
    Some(ToolRow { raw_payload_json: Some(cut_plain(&group.text, EXCERPT_CHARS_MAX, group.beyond.chars)), ..row })
}

/// A row with an excerpt of the message.
fn reported(step: &Step<'_>, row: impl FnOnce(&ItemPlace) -> ToolRow) -> ToolRow {
    let place = step.message.map(|message| message.place.owned()).unwrap_or_default();
    let payload = step.message.map(|message| preview(message.params, EXCERPT_CHARS_MAX));
    ToolRow { raw_payload_json: payload, ..row(&place) }
}

fn completed(item: &ThreadItem, tool: Option<&Tool>, place: &ItemPlace, at_us: u64) -> ToolRow {
    let event = match item.status() {
        Some("failed") => ToolEvent::Failed,
        Some("declined") => ToolEvent::Declined,
        Some(_) | None => ToolEvent::Completed,
    };
    let does = ToolCall::of_item(item);
    let does = tool.map_or(does.clone(), |tool| does.or(&tool.does));
    ToolRow {
        exit_code: item.exit_code(),
        latency_ms: tool.map(|tool| latency_ms(tool.started_us, at_us)),
        final_status: Some(item.status().unwrap_or(event.name()).to_owned()),
        error_message: item.error_excerpt(),
        ..ToolRow::new(at_us, event, Phase::Post, place, does)
    }
}

/// The row of a tool whose end is not its own.
fn tool_ended(place: &ItemPlace, tool: &Tool, at_us: u64, event: ToolEvent) -> ToolRow {
    let phase = if is_review(&tool.does) { Phase::Pre } else { Phase::Post };
    ToolRow {
        latency_ms: Some(latency_ms(tool.started_us, at_us)),
        final_status: Some(event.name().to_owned()),
        ..ToolRow::new(at_us, event, phase, place, tool.does.clone())
    }
}

/// The row of a review: its item is the review itself, and its payload names the item that it is about.
fn of_review(review: &Review, tool: Option<&Tool>, place: &ItemPlace, at_us: u64) -> ToolRow {
    let place = ItemPlace { item_id: Some(review.id().to_owned()), ..place.clone() };
    let event = review.event();
    let row = ToolRow::new(at_us, event, Phase::Pre, &place, review.does.clone());
    if !review.is_over() {
        return row;
    }
    ToolRow {
        approval_decision: Some(review.decision().to_owned()),
        latency_ms: review.took_ms().or(tool.map(|tool| latency_ms(tool.started_us, at_us))),
        final_status: Some(event.name().to_owned()),
        error_message: review.objection(),
        ..row
    }
}

fn of_overruled(overruled: &Overruled, thread_id: Option<&str>, at_us: u64) -> ToolRow {
    let Overruled { review_id, turn_id, does, .. } = overruled;
    let place = ItemPlace {
        thread_id: thread_id.map(str::to_owned),
        turn_id: turn_id.clone(),
        item_id: Some(review_id.clone()),
    };
    let event = ToolEvent::Overruled;
    ToolRow {
        approval_decision: Some(event.name().to_owned()),
        final_status: Some(ToolEvent::Completed.name().to_owned()),
        ..ToolRow::new(at_us, event, Phase::Pre, &place, does.clone())
    }
}

fn of_request(request: &Request, at_us: u64, event: ToolEvent) -> ToolRow {
    let row = ToolRow::new(at_us, event, Phase::Pre, &request.place, request.does.clone());
    ToolRow { request_id: request.request_id.clone(), ..row }
}

/// The row for the end of a request that our note tells, unless it ended with the child before.
fn resolved(request: &Request, end: &End, conversation: &Conversation, at_us: u64) -> Option<ToolRow> {
    if request.request_id.is_none() || request.state == RequestState::Cut {
        return None;
    }
    // The item may have started after the request.
    let mut request = request.clone();
    if let Some(tool) = conversation.tool_at(&request.place) {
        request.does = request.does.or(&tool.does);
    }
    let event = match (end.status.as_deref(), end.error_code.as_deref(), request.wanted.need()) {
        (Some("orphaned"), ..) => ToolEvent::Failed,
        (Some("expired"), ..) | (_, Some("request_expired"), _) => ToolEvent::Timeout,
        (_, Some("withdrawn_by_server"), _) => ToolEvent::Cancelled,
        (_, Some(_), _) => ToolEvent::Failed,
        (_, None, Need::Permission) => ToolEvent::ApprovalDecision,
        (_, None, Need::Input) => ToolEvent::UserInputSubmitted,
    };
    let is_answered = matches!(event, ToolEvent::ApprovalDecision | ToolEvent::UserInputSubmitted);
    let status = if is_answered { ToolEvent::Completed } else { event };
    // These tables use one word for everything left open by a dead child, noted or not.
    let error_code = end.error_code.as_deref().map(|code| if code == "server_exited" { STREAM_CLOSED } else { code });
    Some(ToolRow {
        approval_decision: end.decision.clone(),
        latency_ms: Some(latency_ms(request.at_us, at_us)),
        final_status: Some(status.name().to_owned()),
        error_code: error_code.map(str::to_owned),
        raw_payload_json: end.note.as_deref().map(|note| cut(note.get(), EXCERPT_CHARS_MAX)),
        ..of_request(&request, at_us, event)
    })
}

/// A row of `codex_turn_events` without its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub event_type: TurnEvent,
    /// The protocol's word for the event.
    pub status: String,
    /// Milliseconds from its start to its end.
    pub latency_ms: Option<u64>,
    /// Characters of streamed answers.
    pub delta_chars: u64,
    /// The start of its last answer, masked.
    pub output_preview: Option<String>,
    /// Input tokens, as far as reported.
    pub input_tokens: Option<u64>,
    /// Output tokens, as far as reported.
    pub output_tokens: Option<u64>,
    /// The kind of failure in one word.
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    /// An excerpt of the recorded payload, as masked JSON; `None` if the payload was not recorded.
    pub raw_payload_json: Option<String>,
}

/// Appends the turn rows of a step.
pub(super) fn turn_rows(step: &Step<'_>, rows: &mut Vec<TurnRow>) {
    // The outcome of a replaced or forgotten turn is unknown. If its end arrives later, it gets another row.
    for (thread_id, turn) in step.lost.turns.iter().filter(|(_, turn)| turn.is_reported()) {
        let row = ended(turn, step.at_us, &TurnEnd::unreported(step.lost_code()));
        rows.push(TurnRow { thread_id: thread_id.clone(), ..row });
    }
    let row = if let Change::TurnStarted { is_new: true } = step.change {
        row(&Turn::default(), step.at_us, TurnEvent::Started, "inProgress")
    } else if let Change::TurnEnded { end, turn, is_new: true, .. } = &step.change {
        ended(turn.as_deref().unwrap_or(&Turn::default()), step.at_us, end)
    } else {
        return;
    };
    let Some(message) = step.message else { return };
    rows.push(TurnRow {
        thread_id: message.place.thread_id.as_deref().map(str::to_owned),
        turn_id: message.place.turn_id.as_deref().map(str::to_owned).or(row.turn_id),
        raw_payload_json: Some(preview(message.params, EXCERPT_CHARS_MAX)),
        ..row
    });
}

fn ended(turn: &Turn, at_us: u64, end: &TurnEnd) -> TurnRow {
    // The last error is reported only for a turn that failed.
    let last = if end.event == TurnEvent::Failed { turn.error.clone() } else { Failure::default() };
    let Failure { message, code } = end.failure.excerpt();
    TurnRow {
        latency_ms: turn.started_us.map(|started_us| latency_ms(started_us, at_us)),
        error_code: code.or(last.code),
        error_message: message.or(last.message),
        ..row(turn, at_us, end.event, &end.status)
    }
}

fn row(turn: &Turn, at_us: u64, event_type: TurnEvent, status: &str) -> TurnRow {
    let output = turn.output();
    TurnRow {
        at_us,
        thread_id: None,
        turn_id: turn.id.clone(),
        event_type,
        status: status.to_owned(),
        latency_ms: None,
        delta_chars: turn.delta_chars,
        output_preview: (!output.is_empty()).then(|| masked_start(output, OUTPUT_CHARS_MAX)),
        input_tokens: turn.spent.map(|spent| spent.input),
        output_tokens: turn.spent.map(|spent| spent.output),
        error_code: None,
        error_message: None,
        raw_payload_json: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::properties::play;

    fn part(part: &Option<String>) -> &str {
        part.as_deref().unwrap_or("~")
    }

    /// Rows as `MS EVENT ITEM TYPE LATENCY STATUS`, then other columns.
    fn check(actual: &str, expect: &[&str]) {
        let (_, rows) = play(actual);
        let say = |row: &ToolRow| {
            let latency = row.latency_ms.map_or("~".to_owned(), |ms| ms.to_string());
            let status = part(&row.final_status);
            let (at_ms, event) = (row.at_us / 1_000, row.event_type.name());
            let mut said =
                format!("{at_ms} {event} {} {} {latency} {status}", part(&row.item_id), part(&row.item_type));
            for (name, value) in [("code", &row.error_code), ("error", &row.error_message)] {
                value.iter().for_each(|value| said += &format!(" {name}={value}"));
            }
            row.exit_code.iter().for_each(|code| said += &format!(" exit={code}"));
            said
        };
        assert_eq!(rows.tools.iter().map(say).collect::<Vec<_>>(), expect, "{actual}");
    }

    const STARTED: &str = "5 < item/started t/u/i {\"type\":\"commandExecution\",\"command\":\"ls\",\"cwd\":\"/w\"}\n";
    const BEGAN: &str = "5 started i commandExecution ~ ~";

    #[test]
    fn an_item_starts_and_ends() {
        let check = |end: &str, expect: &str| check(&format!("{STARTED}{end}"), &[BEGAN, expect]);
        let item = |more: &str| format!("9 < item/completed t/u/i {{\"type\":\"commandExecution\"{more}}}");
        check(&item(r#","status":"completed","exitCode":0"#), "9 completed i commandExecution 4 completed exit=0");
        check(&item(r#","status":"completed","exitCode":101"#), "9 completed i commandExecution 4 completed exit=101");
        check(&item(r#","status":"failed","exitCode":-1"#), "9 failed i commandExecution 4 failed exit=-1");
        check(&item(r#","status":"declined","exitCode":null"#), "9 declined i commandExecution 4 declined");
        check(&item(r#","status":"weird""#), "9 completed i commandExecution 4 weird");
        check(&item(""), "9 completed i commandExecution 4 completed");
        check(
            &item(r#","status":"failed","error":{"message":"Bearer abcdefghij"}"#),
            "9 failed i commandExecution 4 failed error=Bearer [redacted]",
        );
    }

    #[test]
    fn tool_types_are_recognized() {
        for item_type in ["userMessage", "agentMessage", "reasoning", "plan", "hookPrompt", "contextCompaction"] {
            check(&format!("5 < item/started t/u/i {{\"type\":\"{item_type}\"}}"), &[]);
            check(&format!("5 < item/completed t/u/i {{\"type\":\"{item_type}\"}}"), &[]);
        }
        check(
            "5 < item/completed t/u/i {\"type\":\"enteredReviewMode\"}\n6 < item/started t/u/j {\"type\":\"newTool\"}",
            &["6 started j newTool ~ ~"],
        );
        check("5 < item/started t/u/i", &[]);
        check("5 < item/completed t/u/~ {\"type\":\"newTool\"}", &[]);
        check("5 < codex/event/exec_command_begin t/u/i {\"msg\":{\"type\":\"exec_command_begin\"}}", &[]);
    }

    #[test]
    fn tool_may_be_seen_only_at_end() {
        check(
            "9 < item/completed t/u/i {\"type\":\"fileChange\",\"status\":\"completed\"}",
            &["9 completed i fileChange ~ completed"],
        );
    }

    #[test]
    fn an_item_starts_once() {
        check(&format!("{STARTED}{STARTED}"), &[BEGAN]);
        // Item ids are unique only within a turn.
        let other = STARTED.replace("t/u/i", "t/v/i");
        check(&format!("{STARTED}{other}"), &[BEGAN, BEGAN]);
    }

    #[test]
    fn open_tools_end_with_their_turn() {
        let late = "9 < item/completed t/u/i {\"type\":\"commandExecution\",\"status\":\"completed\"}";
        let end = |turn: &str| format!("{STARTED}7 < turn/completed t/u {turn}\n");
        check(
            &format!("{}{late}", end(r#"{"status":"interrupted","error":null}"#)),
            &[BEGAN, "7 interrupted i commandExecution 2 interrupted"],
        );
        check(
            &format!("{}{late}", end(r#"{"status":"failed","error":{"message":"no","codexErrorInfo":"other"}}"#)),
            &[BEGAN, "7 failed i commandExecution 2 failed code=other error=no"],
        );
        check(
            &format!("{}{late}", end(r#"{"status":"completed"}"#)),
            &[BEGAN, "9 completed i commandExecution 4 completed"],
        );
        // It may continue in the background, through other turns.
        check(
            &format!("{}8 < turn/started t/v\n{late}", end(r#"{"status":"completed"}"#)),
            &[BEGAN, "9 completed i commandExecution 4 completed"],
        );
        // The end of another thread or turn does not affect it.
        check(&format!("{STARTED}7 < turn/completed x/u {{\"status\":\"interrupted\"}}"), &[BEGAN]);
        check(&format!("{STARTED}7 < turn/completed t/v {{\"status\":\"interrupted\"}}"), &[BEGAN]);
    }

    #[test]
    fn open_tools_end_when_turn_is_replaced() {
        let begins = format!("4 < turn/started t/u\n{STARTED}");
        let next = "7 < turn/started t/v\n";
        let late = "9 < item/completed t/u/i {\"type\":\"commandExecution\",\"status\":\"completed\",\"exitCode\":0}";
        let failed = "7 failed i commandExecution 2 failed code=outcome_unknown";
        check(&format!("{begins}{next}"), &[BEGAN, failed]);
        // It ends once, whatever follows about its turn and the child.
        check(
            &format!("{begins}{next}8 < turn/completed t/u {{\"status\":\"interrupted\"}}\n9 ! generation_ended"),
            &[BEGAN, failed],
        );
        check(&format!("{begins}{next}{late}"), &[BEGAN, failed, "9 completed i commandExecution ~ completed exit=0"]);
        // The same holds for a turn that was not seen to start.
        check(&format!("{STARTED}{next}"), &[BEGAN, failed]);
        // A repeated start of the same turn replaces nothing, nor does a turn of another thread.
        check(&format!("{begins}7 < turn/started t/u\n7 < turn/started x/v"), &[BEGAN]);
    }

    #[test]
    fn open_tools_end_with_the_child() {
        let gone = "8 failed i commandExecution 3 failed code=app_server_stream_closed";
        check(&format!("{STARTED}8 ! generation_ended"), &[BEGAN, gone]);
        check(&format!("{STARTED}8 generation 00000000000a"), &[BEGAN, gone]);
        // Only once.
        check(&format!("{STARTED}8 ! generation_ended\n9 generation 00000000000a"), &[BEGAN, gone]);
    }

    #[test]
    fn output_rows_come_from_groups() {
        let output =
            |at: u64, text: &str| format!("{at} < item/commandExecution/outputDelta t/u/i {{\"delta\":\"{text}\"}}\n");
        let end = "300 < item/completed t/u/i {\"type\":\"commandExecution\",\"status\":\"completed\"}";
        let actual =
            [STARTED, &output(10, "a"), &output(20, "b"), &output(200, "TOKEN=hun"), &output(210, "ter22"), end];
        let (_, rows) = play(&actual.concat());
        let output = rows.tools.iter().filter(|row| row.event_type == ToolEvent::OutputDelta);
        let say =
            |row: &ToolRow| format!("{} {} {}", row.at_us / 1_000, part(&row.command), part(&row.raw_payload_json));
        assert_eq!(output.map(say).collect::<Vec<_>>(), [r#"10 ls "ab""#, r#"200 ls "TOKEN=[redacted]""#]);
        assert_eq!(rows.tools.last().map(|row| row.event_type), Some(ToolEvent::Completed));
    }

    #[test]
    fn output_type_comes_from_the_method() {
        let all = "5 < item/agentMessage/delta t/u/m {\"delta\":\"a\"}
                   5 < item/reasoning/summaryTextDelta t/u/r {\"delta\":\"a\"}
                   5 < item/plan/delta t/u/p {\"delta\":\"a\"}
                   5 < item/newTool/outputDelta t/u/n {\"delta\":\"a\"}
                   900 ! generation_ended";
        check(all, &["5 output_delta n newTool ~ ~"]);
    }

    #[test]
    fn long_output_is_cut() {
        let text = "x".repeat(EXCERPT_CHARS_MAX + 1);
        let actual = format!("5 < item/newTool/outputDelta t/u/n {{\"delta\":\"{text}\"}}\n900 ! generation_ended");
        let (_, rows) = play(&actual);
        let payload: serde_json::Value =
            serde_json::from_str(part(&rows.tools[0].raw_payload_json)).expect("it is JSON");
        assert_eq!(payload["original_chars"], EXCERPT_CHARS_MAX + 1);
        assert_eq!(payload["preview"].as_str().map(str::len), Some(EXCERPT_CHARS_MAX));
    }

    #[test]
    fn rows_describe_their_action() {
        let actual =
            format!("{STARTED}9 < item/completed t/u/i {{\"type\":\"commandExecution\",\"status\":\"completed\"}}");
        let (_, rows) = play(&actual);
        let done = |row: &ToolRow| [&row.command, &row.cwd, &row.thread_id, &row.turn_id].map(part).join(" ");
        assert_eq!(rows.tools.iter().map(done).collect::<Vec<_>>(), ["ls /w t u", "ls /w t u"]);
        assert!(rows.tools[1].raw_payload_json.as_deref().is_some_and(|raw| raw.contains("\"status\":\"completed\"")));
    }

    #[test]
    fn event_names_round_trip() {
        use crate::protocol::of_name;
        for event in [ToolEvent::RequestApproval, ToolEvent::OutputDelta, ToolEvent::Timeout] {
            assert_eq!(of_name(event.name()), Some(event));
        }
        assert_eq!(of_name::<ToolEvent>("x"), None);
    }

    #[test]
    fn background_command_survives_later_turns() {
        let actual = format!(
            "4 < turn/started t/u
             {STARTED}6 < turn/completed t/u {{\"status\":\"completed\"}}
             7 < turn/started t/v
             8 < turn/completed t/v {{\"status\":\"completed\"}}
             9 < item/commandExecution/outputDelta t/u/i {{\"delta\":\"a\"}}
             10 < turn/started t/w
             11 < item/completed t/u/i {{\"type\":\"commandExecution\",\"status\":\"completed\"}}"
        );
        check(
            &actual,
            &[BEGAN, "9 output_delta i commandExecution ~ ~", "11 completed i commandExecution 6 completed"],
        );
    }

    #[test]
    fn end_without_turn_id_ends_open_tools() {
        check(
            &format!("4 < turn/started t/u\n{STARTED}7 < turn/completed t {{\"status\":\"interrupted\"}}"),
            &[BEGAN, "7 interrupted i commandExecution 2 interrupted"],
        );
    }
}

#[cfg(test)]
mod request_tests {
    use super::*;
    use crate::history::properties::play;

    /// Rows of requests as `MS EVENT REQUEST TYPE LATENCY DECISION STATUS`, then other columns.
    fn check(actual: &str, expect: &[&str]) {
        let (_, rows) = play(actual);
        let part = |part: &Option<String>| part.clone().unwrap_or("~".to_owned());
        let say = |row: &ToolRow| {
            let latency = row.latency_ms.map_or("~".to_owned(), |ms| ms.to_string());
            let (at_ms, event, request) = (row.at_us / 1_000, row.event_type.name(), part(&row.request_id));
            let (decision, status) = (part(&row.approval_decision), part(&row.final_status));
            let mut said = format!("{at_ms} {event} {request} {} {latency} {decision} {status}", part(&row.item_type));
            let rest = [&row.command, &row.cwd, &row.file_path, &row.diff_summary, &row.error_code];
            rest.into_iter().flatten().for_each(|part| said += &format!(" {part}"));
            said
        };
        let requests = rows.tools.iter().filter(|row| row.phase.name() == "pre");
        assert_eq!(requests.map(say).collect::<Vec<_>>(), expect, "{actual}");
    }

    const OPENED: &str = "5 ! request_opened {\"request_id\":\"g-0\"}\n";
    const COMMAND: &str = "6 ?0 item/commandExecution/requestApproval t/u/i {\"command\":\"ls\",\"cwd\":\"/w\"}\n";
    const QUESTION: &str = "6 ?0 item/tool/requestUserInput t/u/i {\"questions\":[]}\n";
    const ASKED: &str = "6 request_approval g-0 commandExecution ~ ~ ~ ls /w";

    fn resolved(status: &str, decision: &str, error_code: &str) -> String {
        format!(
            "9 ! request_resolved {{\"request_id\":\"g-0\",\"status\":\"{status}\",\"decision\":{decision},\"error_code\":{error_code}}}\n"
        )
    }

    /// An answer was taken back, or a hub was killed before it had sent it: the request ends once more.
    #[test]
    fn end_whose_answer_was_not_sent_is_followed_by_another() {
        let accept = resolved("resolved", "\"accept\"", "null");
        let withdrawn = resolved("resolved", "null", "\"withdrawn_by_server\"").replace("9 !", "12 !");
        let decline = resolved("resolved", "\"decline\"", "null").replace("9 !", "12 !");
        let asked_again = format!("{OPENED}{COMMAND}").replace("5 !", "10 !").replace("6 ?", "10 ?");
        let other = asked_again.replace("\"ls\"", "\"rm\"");
        let accepted = "9 approval_decision g-0 commandExecution 3 accept completed ls /w";
        for (actual, last, not_sent) in [
            (format!("{OPENED}{COMMAND}{accept}{withdrawn}"), "resolved withdrawn_by_server", Some("accept")),
            (format!("{OPENED}{COMMAND}{accept}{asked_again}{decline}"), "decline", Some("accept")),
            // A hub that has not read its ledger gives another request this name.
            (format!("{OPENED}{COMMAND}{accept}{other}{decline}"), "decline", None),
        ] {
            let (_, rows) = play(&actual);
            let ends: Vec<serde_json::Value> = rows
                .entries
                .iter()
                .filter(|entry| entry.identity.contains("/approval"))
                .map(|entry| serde_json::from_str(entry.json).expect("it is JSON"))
                .collect();
            assert_eq!(ends[0]["decision"], "accept", "{actual}");
            let decisions = rows.tools.iter().filter(|row| row.approval_decision.is_some() || row.error_code.is_some());
            assert_eq!(decisions.count(), 2, "{actual}");
            if not_sent.is_some() {
                let end = &ends[1];
                let words = [&end["decision"], &end["status"], &end["error_code"]]
                    .map(|word| word.as_str().unwrap_or_default());
                assert!(words.iter().any(|word| last.contains(word) && !word.is_empty()), "{actual}: {end}");
                assert_eq!(end["not_sent"].as_str(), not_sent, "{actual}");
            } else {
                assert!(ends.iter().all(|end| end["not_sent"].is_null()), "{actual}: {ends:?}");
            }
        }
        // What follows an end without an answer is no correction.
        let actual = format!("{OPENED}{COMMAND}{}{withdrawn}", withdrawn.replace("12 !", "9 !"));
        check(&actual, &[ASKED, "9 cancelled g-0 commandExecution 3 ~ cancelled ls /w withdrawn_by_server"]);
        check(&format!("{OPENED}{COMMAND}{accept}"), &[ASKED, accepted]);
    }

    /// A hub was killed after it had stored an answer; whether or not it had recorded that, the next one sends the answer.
    #[test]
    fn end_that_the_next_hub_records_again_counts_once() {
        let accept = resolved("resolved", "\"accept\"", "null");
        let again = |note: &str| note.replace("\"request_id\"", "\"again\":true,\"request_id\"");
        let asked_again = format!("{}{}", again(OPENED), COMMAND).replace("5 !", "9 !").replace("6 ?", "9 ?");
        let decided = "9 approval_decision g-0 commandExecution 3 accept completed ls /w";
        for first in ["", accept.as_str()] {
            let actual = format!("{OPENED}{COMMAND}{first}{asked_again}{}", again(&accept));
            check(&actual, &[ASKED, decided]);
            let (_, rows) = play(&actual);
            let ends = rows.events.iter().filter(|event| event.event_type == "request_resolved").count();
            let entries = rows.entries.iter().filter(|entry| entry.identity.ends_with("/approval")).count();
            assert_eq!((ends, entries), (1, 1), "{actual}");
        }
        // The hub that was killed has recorded nothing of it.
        let actual = format!("{asked_again}{}", again(&accept));
        check(
            &actual,
            &[
                "9 request_approval g-0 commandExecution ~ ~ ~ ls /w",
                "9 approval_decision g-0 commandExecution 0 accept completed ls /w",
            ],
        );
    }

    /// The line of a request whose end is on record may be lost; then the next request is another one.
    #[test]
    fn gap_ends_the_wait_for_a_request_that_is_repeated() {
        let accept = resolved("resolved", "\"accept\"", "null");
        let again = OPENED.replace("\"request_id\"", "\"again\":true,\"request_id\"").replace("5 !", "9 !");
        let decided = "9 approval_decision g-0 commandExecution 3 accept completed ls /w";
        let next = COMMAND.replace("6 ?0", "9 ?1");
        check(
            &format!("{OPENED}{COMMAND}{accept}{again}9 # full\n{next}"),
            &[ASKED, decided, "9 request_approval ~ commandExecution ~ ~ ~ ls /w"],
        );
    }

    #[test]
    fn every_method_for_a_human() {
        check(&format!("{OPENED}{COMMAND}"), &[ASKED]);
        check("6 ?0 item/fileChange/requestApproval t/u/i", &["6 request_approval ~ fileChange ~ ~ ~"]);
        check("6 ?0 item/permissions/requestApproval t/u/i", &["6 request_approval ~ ~ ~ ~ ~"]);
        check(QUESTION, &["6 request_user_input ~ ~ ~ ~ ~"]);
        check("6 ?0 mcpServer/elicitation/request t/u", &["6 request_user_input ~ ~ ~ ~ ~"]);
        check(
            "6 ?0 execCommandApproval ~ {\"conversationId\":\"t\",\"callId\":\"i\",\"command\":[\"ls\"]}",
            &["6 request_approval ~ commandExecution ~ ~ ~ ls"],
        );
        check("6 ?0 applyPatchApproval ~ {\"fileChanges\":{\"/a\":{}}}", &["6 request_approval ~ fileChange ~ ~ ~ /a"]);
        for method in ["item/tool/call", "currentTime/read", "new/method"] {
            check(&format!("6 ?0 {method} t/u/i"), &[]);
        }
    }

    #[test]
    fn request_details_come_from_its_item() {
        let change = r#"{"type":"fileChange","changes":[{"path":"/a","kind":{"type":"add"},"diff":"x\n"}]}"#;
        check(
            &format!("5 < item/started t/u/i {change}\n6 ?0 item/fileChange/requestApproval t/u/i"),
            &["6 request_approval ~ fileChange ~ ~ ~ /a +1 -0 in 1 file"],
        );
        let command = r#"{"type":"commandExecution","command":"ls","cwd":"/w"}"#;
        check(
            &format!("5 < item/started t/u/i {command}\n6 ?0 item/commandExecution/requestApproval t/u/i"),
            &["6 request_approval ~ commandExecution ~ ~ ~ ls /w"],
        );
        check(
            &format!("5 < item/started t/u/i {command}\n6 ?0 execCommandApproval t/~/~ {{\"callId\":\"i\"}}"),
            &["6 request_approval ~ commandExecution ~ ~ ~ ls /w"],
        );
        check(
            &format!("5 < item/started x/u/i {command}\n6 ?0 item/commandExecution/requestApproval t/u/i"),
            &["6 request_approval ~ commandExecution ~ ~ ~"],
        );
        // A server may ask before it reports the item.
        check(
            &format!(
                "{OPENED}6 ?0 item/commandExecution/requestApproval t/u/i\n7 < item/started t/u/i {command}\n{}",
                resolved("resolved", "\"accept\"", "null")
            ),
            &[
                "6 request_approval g-0 commandExecution ~ ~ ~",
                "9 approval_decision g-0 commandExecution 3 accept completed ls /w",
            ],
        );
    }

    #[test]
    fn every_end() {
        let approval = |end: &str, expect: &str| check(&format!("{OPENED}{COMMAND}{end}"), &[ASKED, expect]);
        let about = "g-0 commandExecution 3";
        approval(
            &resolved("resolved", "\"accept\"", "null"),
            &format!("9 approval_decision {about} accept completed ls /w"),
        );
        approval(
            &resolved("resolved", "\"decline\"", "\"request_expired\""),
            &format!("9 timeout {about} decline timeout ls /w request_expired"),
        );
        approval(
            &resolved("expired", "null", "\"request_expired\""),
            &format!("9 timeout {about} ~ timeout ls /w request_expired"),
        );
        approval(
            &resolved("resolved", "null", "\"withdrawn_by_server\""),
            &format!("9 cancelled {about} ~ cancelled ls /w withdrawn_by_server"),
        );
        approval(
            &resolved("orphaned", "null", "\"server_exited\""),
            &format!("9 failed {about} ~ failed ls /w app_server_stream_closed"),
        );
        approval("9 ! generation_ended", &format!("9 failed {about} ~ failed ls /w app_server_stream_closed"));
        check(
            &format!("{OPENED}{QUESTION}{}", resolved("resolved", "null", "null")),
            &["6 request_user_input g-0 ~ ~ ~ ~", "9 user_input_submitted g-0 ~ 3 ~ completed"],
        );
    }

    #[test]
    fn one_end_each() {
        let answered = resolved("resolved", "\"accept\"", "null");
        let decided = "9 approval_decision g-0 commandExecution 3 accept completed ls /w";
        let check = |before: &str, after: &str| {
            check(&format!("{OPENED}{COMMAND}{before}{answered}{after}"), &[ASKED, decided]);
        };
        check("", &answered);
        check("", "9 < serverRequest/resolved t {\"requestId\":0}\n10 ! generation_ended");
        // The note may follow its line.
        check("8 < serverRequest/resolved t {\"requestId\":0}\n", "10 ! generation_ended");
        check("8 < turn/completed t/u {\"status\":\"interrupted\"}\n", "10 ! generation_ended");
    }

    #[test]
    fn request_without_note_has_not_failed() {
        let over = "8 < serverRequest/resolved t {\"requestId\":0}\n8 # full\n9 ! generation_ended";
        check(&format!("{OPENED}{COMMAND}{over}"), &[ASKED]);
    }

    #[test]
    fn without_notes_requests_get_no_end_row() {
        let asked = "6 request_approval ~ commandExecution ~ ~ ~ ls /w";
        let check = |over: &str| check(&format!("{COMMAND}{over}\n9 ! generation_ended"), &[asked]);
        check("8 < serverRequest/resolved t {\"requestId\":0}");
        check("8 < item/completed t/u/i {\"type\":\"commandExecution\"}");
        check("8 < turn/completed t/u");
    }

    #[test]
    fn id_type_distinguishes_requests() {
        check(
            &format!("{COMMAND}8 < serverRequest/resolved t {{\"requestId\":\"0\"}}\n9 ! generation_ended"),
            &[
                "6 request_approval ~ commandExecution ~ ~ ~ ls /w",
                "9 failed ~ commandExecution 3 ~ failed ls /w app_server_stream_closed",
            ],
        );
    }

    #[test]
    fn repeated_request_adds_no_row() {
        check(&format!("{OPENED}{COMMAND}{COMMAND}"), &[ASKED]);
        // A different request with the same id replaces it, and its end will never be reported.
        let next = COMMAND.replace("t/u/i", "t/u/j");
        let asked = "6 request_approval ~ commandExecution ~ ~ ~ ls /w";
        let gone = "6 failed ~ commandExecution 0 ~ failed ls /w outcome_unknown";
        check(&format!("{COMMAND}{next}"), &[asked, asked, gone]);
    }

    #[test]
    fn note_belongs_to_the_next_line() {
        check(&format!("{OPENED}5 # full\n{COMMAND}"), &["6 request_approval ~ commandExecution ~ ~ ~ ls /w"]);
        check(
            &format!("{OPENED}5 ?9 new/method t/u/i\n{COMMAND}"),
            &["6 request_approval ~ commandExecution ~ ~ ~ ls /w"],
        );
    }

    #[test]
    fn omitted_question_still_gets_rows() {
        let actual = format!("{OPENED}{QUESTION}");
        assert_eq!(play(&actual).1.tools.len(), 1);
        let line =
            r#"{"at":6000,"from":"server","omitted":"secret","bytes":9,"method":"item/tool/requestUserInput","id":0}"#;
        let record = crate::journal::Record::parse(line.as_bytes()).expect("BUG: a test gives records");
        let (mut fold, mut rows) = play(OPENED);
        let segment = crate::journal::SegmentName::parse("000000000001-001.jsonl").expect("BUG: the name is one");
        let at = crate::journal::Position { segment, offset: 9 };
        fold.take(&at, &crate::history::Seen::of(&record, None), &mut rows);
        let row = rows.tools.pop().expect("it is for a human");
        assert_eq!((row.request_id.as_deref(), row.thread_id), (Some("g-0"), None));
        assert_eq!(row.raw_payload_json.as_deref(), Some(r#"{"omitted":"secret"}"#));
    }
}

#[cfg(test)]
mod turn_rows_tests {
    use super::*;
    use crate::history::properties::play;

    /// Rows as `MS EVENT THREAD/TURN STATUS LATENCY CHARS PREVIEW TOKENS`, and the error.
    fn check(actual: &str, expect: &[&str]) {
        let (_, rows) = play(actual);
        let part = |part: &Option<String>| part.clone().unwrap_or("~".to_owned());
        let say = |row: &TurnRow| {
            let latency = row.latency_ms.map_or("~".to_owned(), |ms| ms.to_string());
            let tokens = row.input_tokens.zip(row.output_tokens).map_or("~".to_owned(), |(i, o)| format!("{i}+{o}"));
            let (at_ms, event, status) = (row.at_us / 1_000, row.event_type.name(), &row.status);
            let (thread_id, turn_id) = (part(&row.thread_id), part(&row.turn_id));
            let (chars, preview) = (row.delta_chars, part(&row.output_preview));
            let mut said =
                format!("{at_ms} {event} {thread_id}/{turn_id} {status} {latency} {chars} {preview} {tokens}");
            [&row.error_code, &row.error_message].into_iter().flatten().for_each(|part| said += &format!(" {part}"));
            said
        };
        assert_eq!(rows.turns.iter().map(say).collect::<Vec<_>>(), expect, "{actual}");
    }

    const STARTED: &str = "5 < turn/started t/u {\"status\":\"inProgress\"}\n";
    const BEGAN: &str = "5 started t/u inProgress ~ 0 ~ ~";
    const COMPLETED: &str = "9 < turn/completed t/u {\"status\":\"completed\",\"error\":null}\n";

    fn check_end(actual: &str, expect: &str) {
        check(&format!("{STARTED}{actual}"), &[BEGAN, expect]);
    }

    #[test]
    fn ends() {
        check_end(COMPLETED, "9 completed t/u completed 4 0 ~ ~");
        check_end("9 < turn/completed t/u {\"status\":\"interrupted\"}", "9 interrupted t/u interrupted 4 0 ~ ~");
        check_end("9 < turn/completed t/u {\"status\":\"weird\"}", "9 completed t/u weird 4 0 ~ ~");
        check_end("9 < turn/completed t/u", "9 completed t/u completed 4 0 ~ ~");
        let failed = |error: &str| format!("9 < turn/completed t/u {{\"status\":\"failed\",\"error\":{error}}}");
        check_end(
            &failed(r#"{"message":"Bearer abcdefghij","codexErrorInfo":"usageLimitExceeded"}"#),
            "9 failed t/u failed 4 0 ~ ~ usageLimitExceeded Bearer [redacted]",
        );
        check_end(
            &failed(r#"{"message":"no","codexErrorInfo":{"httpConnectionFailed":{"httpStatusCode":500}}}"#),
            "9 failed t/u failed 4 0 ~ ~ httpConnectionFailed no",
        );
        check_end(&failed("null"), "9 failed t/u failed 4 0 ~ ~");
        let gone = "9 failed t/u failed 4 0 ~ ~ app_server_stream_closed";
        check_end("9 ! generation_ended", gone);
        check_end("9 generation 00000000000a\n10 ! generation_ended", gone);
    }

    #[test]
    fn an_end_comes_once() {
        check_end(&format!("{COMPLETED}{COMPLETED}"), "9 completed t/u completed 4 0 ~ ~");
        check_end(&format!("{COMPLETED}10 ! generation_ended"), "9 completed t/u completed 4 0 ~ ~");
        check(&format!("{STARTED}{STARTED}"), &[BEGAN]);
        // A late record of it starts no turn.
        let late = "10 < item/agentMessage/delta t/u/m {\"delta\":\"a\"}
                    10 < item/completed t/a/m {\"type\":\"agentMessage\",\"text\":\"a\"}
                    11 ! generation_ended";
        check_end(&format!("{COMPLETED}{late}"), "9 completed t/u completed 4 0 ~ ~");
    }

    #[test]
    fn turns_without_recorded_start_get_rows() {
        check(COMPLETED, &["9 completed t/u completed ~ 0 ~ ~"]);
        check(
            &format!("6 < item/agentMessage/delta t/u/m {{\"delta\":\"Hi\"}}\n{COMPLETED}"),
            &["9 completed t/u completed ~ 2 Hi ~"],
        );
        check(
            "6 < item/started t/u/m {\"type\":\"reasoning\"}\n9 ! generation_ended",
            &["9 failed t/u failed ~ 0 ~ ~ app_server_stream_closed"],
        );
    }

    #[test]
    fn turns_of_several_threads() {
        let actual = "5 < turn/started a/0
                    6 < turn/started b/0
                    7 < item/agentMessage/delta b/0/m {\"delta\":\"Hi\"}
                    8 < turn/completed a/0 {\"status\":\"completed\"}
                    9 < turn/completed b/0 {\"status\":\"completed\"}
                    10 < turn/started a/0";
        check(
            actual,
            &[
                "5 started a/0 inProgress ~ 0 ~ ~",
                "6 started b/0 inProgress ~ 0 ~ ~",
                "8 completed a/0 completed 3 0 ~ ~",
                "9 completed b/0 completed 3 2 Hi ~",
                "10 started a/0 inProgress ~ 0 ~ ~",
            ],
        );
    }

    #[test]
    fn next_turn_ends_turn_without_end() {
        let next = "7 started t/v inProgress ~ 0 ~ ~";
        let lost = "7 failed t/u failed 2 0 ~ ~ outcome_unknown";
        check(
            &format!("{STARTED}7 < turn/started t/v\n9 ! generation_ended"),
            &[BEGAN, lost, next, "9 failed t/v failed 2 0 ~ ~ app_server_stream_closed"],
        );
        // Earlier facts are kept even if its start was not recorded.
        check(
            "6 < item/agentMessage/delta t/u/m {\"delta\":\"Hi\"}\n7 < turn/started t/v",
            &["7 failed t/u failed ~ 2 Hi ~ outcome_unknown", next],
        );
        // A repeated start, a turn of another thread, and an ended turn replace nothing.
        check(&format!("{STARTED}7 < turn/started t/u\n7 < turn/started s/v"), &[BEGAN, &next.replace("t/v", "s/v")]);
        let completed = "9 completed t/u completed 4 0 ~ ~";
        check(&format!("{STARTED}{COMPLETED}7 < turn/started t/v"), &[BEGAN, completed, next]);
        // The end may be reported late.
        check(
            &format!("{STARTED}7 < turn/started t/v\n{COMPLETED}"),
            &[BEGAN, lost, next, "9 completed t/u completed ~ 0 ~ ~"],
        );
    }

    #[test]
    fn answers() {
        let delta =
            |item: &str, text: &str| format!("6 < item/agentMessage/delta t/u/{item} {{\"delta\":\"{text}\"}}\n");
        let message =
            |text: &str| format!("7 < item/completed t/u/m {{\"type\":\"agentMessage\",\"text\":\"{text}\"}}\n");
        let check = |actual: &[&str], expect: &str| check_end(&format!("{}{COMPLETED}", actual.concat()), expect);
        check(&[&delta("m", "Hé"), &delta("m", "llo")], "9 completed t/u completed 4 5 Héllo ~");
        check(&[&delta("m", "a"), &delta("n", "b")], "9 completed t/u completed 4 2 b ~");
        check(&[&delta("m", "a"), &message("all")], "9 completed t/u completed 4 1 all ~");
        check(&[&message("all"), &message("")], "9 completed t/u completed 4 0 all ~");
        check(&[&message("all"), &delta("n", "b")], "9 completed t/u completed 4 1 b ~");
        check(&["6 < item/reasoning/textDelta t/u/r {\"delta\":\"a\"}\n"], "9 completed t/u completed 4 0 ~ ~");
        check(&["6 < item/completed t/u/r {\"type\":\"plan\",\"text\":\"a\"}\n"], "9 completed t/u completed 4 0 ~ ~");
        // A secret may span pieces.
        check(&[&delta("m", "Bearer abcd"), &delta("m", "efgh")], "9 completed t/u completed 4 15 Bearer [redacted] ~");
        let long = "ä".repeat(3_000);
        let cut = "ä".repeat(400);
        check(&[&message(&long)], &format!("9 completed t/u completed 4 0 {cut} ~"));
        check(&[&delta("m", &long)], &format!("9 completed t/u completed 4 3000 {cut} ~"));
    }

    #[test]
    fn turn_usage_is_summed() {
        let usage = |turn: &str, total: u64, last: u64| {
            let tokens = |count: u64| format!("{{\"inputTokens\":{count},\"outputTokens\":{}}}", count / 10);
            let usage = format!("{{\"total\":{},\"last\":{}}}", tokens(total), tokens(last));
            format!("6 < thread/tokenUsage/updated t/{turn} {{\"tokenUsage\":{usage}}}\n")
        };
        let check = |actual: &[String], expect: &str| check_end(&format!("{}{COMPLETED}", actual.concat()), expect);
        check(&[usage("u", 110, 10)], "9 completed t/u completed 4 0 ~ 10+1");
        // A turn calls the model several times.
        check(&[usage("u", 110, 10), usage("u", 130, 20)], "9 completed t/u completed 4 0 ~ 30+3");
        // A repetition without a call does not count; earlier usage is reported on resume.
        check(&[usage("u", 110, 10), usage("u", 110, 10)], "9 completed t/u completed 4 0 ~ 10+1");
        check(&[usage("z", 100, 50), usage("u", 100, 50), usage("u", 110, 10)], "9 completed t/u completed 4 0 ~ 10+1");
        let odd =
            "6 < thread/tokenUsage/updated t/u {\"tokenUsage\":{\"last\":{\"inputTokens\":1,\"outputTokens\":2}}}\n";
        check(&[odd.to_owned(), odd.to_owned()], "9 completed t/u completed 4 0 ~ 2+4");
        check(&["6 < thread/tokenUsage/updated t/u\n".to_owned()], "9 completed t/u completed 4 0 ~ ~");
    }

    #[test]
    fn errors_do_not_end_a_turn() {
        let error = |retries: &str| {
            format!("6 < error t/u {{\"error\":{{\"message\":\"no\",\"codexErrorInfo\":\"other\"}}{retries}}}\n")
        };
        let failed = "9 < turn/completed t/u {\"status\":\"failed\",\"error\":null}";
        check(&format!("{STARTED}{}", error("")), &[BEGAN]);
        check_end(&format!("{}{COMPLETED}", error("")), "9 completed t/u completed 4 0 ~ ~");
        check_end(&format!("{}{failed}", error(",\"willRetry\":false")), "9 failed t/u failed 4 0 ~ ~ other no");
        check_end(&format!("{}{failed}", error(",\"willRetry\":true")), "9 failed t/u failed 4 0 ~ ~");
    }

    #[test]
    fn rows_have_payload_excerpts() {
        let (_, rows) = play(&format!("{STARTED}{COMPLETED}{}", STARTED.replace("t/u", "t/v")));
        let raw = |row: &TurnRow| row.raw_payload_json.clone().unwrap_or_default();
        assert!(raw(&rows.turns[0]).contains("\"inProgress\"") && raw(&rows.turns[1]).contains("\"completed\""));
        let (_, rows) = play(&format!("{STARTED}9 ! generation_ended"));
        assert_eq!(rows.turns[1].raw_payload_json, None);
    }

    #[test]
    fn late_records_revive_no_ended_turn() {
        let turn = |id: &str| {
            let start = STARTED.replace("t/u", &format!("t/{id}"));
            format!("{start}{}", COMPLETED.replace("t/u", &format!("t/{id}")))
        };
        let late =
            ["item/started t/u/i {\"type\":\"commandExecution\"}", "item/agentMessage/delta t/u/m {\"delta\":\"a\"}"];
        for late in late {
            let others: String = (0..7).map(|number| turn(&format!("v{number}"))).collect();
            let (_, rows) = play(&format!("{}{others}9 < {late}\n9 < turn/started t/w", turn("u")));
            assert_eq!(rows.turns.len(), 17, "{late}");
            // A turn that was replaced has ended as well.
            let (_, rows) = play(&format!("{STARTED}{}9 < {late}\n9 < turn/started t/w", turn("v")));
            assert_eq!(rows.turns.len(), 5, "{late}");
        }
        // Only a message or the start of an item begins a turn that was not seen to start.
        check("6 < item/commandExecution/outputDelta t/u/i {\"delta\":\"a\"}\n9 ! generation_ended", &[]);
    }

    #[test]
    fn turn_of_an_idle_thread_awaits_its_end() {
        let idle = "7 < thread/status/changed t {\"status\":{\"type\":\"idle\"}}\n";
        let other = "8 < item/started t/z/i {\"type\":\"commandExecution\"}\n";
        let said = "6 < item/agentMessage/delta t/u/m {\"delta\":\"Hi\"}\n";
        check_end(&format!("{said}{idle}{other}{COMPLETED}"), "9 completed t/u completed 4 2 Hi ~");
        // If a gap may contain its end and the start of the next turn, it is replaced.
        let lost = "8 failed t/u failed 3 2 Hi ~ outcome_unknown";
        check(&format!("{STARTED}{said}{idle}7 # full\n{other}"), &[BEGAN, lost]);
    }

    #[test]
    fn end_without_id_ends_the_running_turn() {
        let end = "9 < turn/completed t {\"status\":\"interrupted\"}\n";
        check_end(end, "9 interrupted t/u interrupted 4 0 ~ ~");
        check_end(&format!("{end}{COMPLETED}"), "9 interrupted t/u interrupted 4 0 ~ ~");
        check(end, &[]);
    }

    #[test]
    fn unparsable_members_hide_nothing_else() {
        let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
        for odd in ["\"\\ud800\"", "1e999", &deep] {
            let check = |lines: &str, expect: &str| {
                let started =
                    r#"5 << turn/started {"threadId":"t","x":ODD,"turn":{"id":"u","x":ODD,"status":"inProgress"}}"#;
                check(&format!("{started}\n{lines}").replace("ODD", odd), &[BEGAN, expect]);
            };
            let usage = r#"6 << thread/tokenUsage/updated {"threadId":"t","turnId":"u","x":ODD,"tokenUsage":{"x":ODD,"last":{"inputTokens":1,"outputTokens":2,"x":ODD}}}"#;
            let error = r#"6 << error {"threadId":"t","turnId":"u","x":ODD,"error":{"message":"no","x":ODD,"codexErrorInfo":{"other":ODD}}}"#;
            let end = |members: &str| {
                format!(
                    r#"9 << turn/completed {{"threadId":"t","x":ODD,"turn":{{"id":"u","durationMs":ODD,{members}}}}}"#
                )
            };
            let interrupted = end(r#""status":"interrupted""#);
            check(&format!("{usage}\n{interrupted}"), "9 interrupted t/u interrupted 4 0 ~ 1+2");
            check(&format!("{error}\n{}", end(r#""status":"failed""#)), "9 failed t/u failed 4 0 ~ ~ other no");
            let failed = end(r#""status":"failed","error":{"x":ODD,"message":"no","codexErrorInfo":{"other":ODD}}"#);
            check(&failed, "9 failed t/u failed 4 0 ~ ~ other no");
        }
    }

    #[test]
    fn a_member_named_delta_makes_no_piece() {
        let params = r#"{"threadId":"t","turn":{"id":"u","status":"completed"},"delta":"a"}"#;
        let actual = format!("5 << turn/started {params}\n9 << turn/completed {params}");
        check(&actual, &[BEGAN, "9 completed t/u completed 4 0 ~ ~"]);
    }

    #[test]
    fn running_turns_are_evicted_last() {
        let others: String = (0..4_200).map(|number| format!("6 < thread/x x{number}\n")).collect();
        check_end(&format!("{others}{COMPLETED}"), "9 completed t/u completed 4 0 ~ ~");
        // Plans weigh apart from threads.
        let step = format!("{{\"plan\":[{{\"step\":\"{}\",\"status\":\"pending\"}}]}}", "x".repeat(62_000));
        let planned: String = (0..36)
            .map(|number| format!("6 < turn/started y{number}/a\n6 < turn/plan/updated y{number}/a {step}\n"))
            .collect();
        let (_, rows) = play(&format!("{STARTED}{planned}{COMPLETED}"));
        let (ends, starts): (Vec<&TurnRow>, Vec<&TurnRow>) =
            rows.turns.iter().partition(|row| row.event_type != TurnEvent::Started);
        assert_eq!((starts.len(), ends.len()), (37, 1));
    }
}
