//! Tool rows for requests to a human and their ends.
//!
//! Our own notes say how a request ended. A recording without notes, such as one of a server alone, shows at most that
//! it is over; such a request gets no row for its end.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::bounded::{Bounded, Weigh};
use super::event::{EXCERPT_CHARS_MAX, cut, preview};
use super::failure::{OUTCOME_UNKNOWN, STREAM_CLOSED};
use super::record_event::{MethodMessage, Params, Place};
use super::time::latency_ms;
use super::tool_call::ToolCall;
use super::tool_row::{Phase, ToolEvent, ToolRow};
use crate::protocol::{RequestKind, RequestType};
use crate::wire::{Members, RpcId};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// By the server's id.
    open: Bounded<String, Request>,
    /// The ledger name of the next request.
    next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Request {
    /// The ledger name; without it no note will follow.
    request_id: Option<String>,
    at_us: u64,
    thread_id: Option<String>,
    turn_id: Option<String>,
    item_id: Option<String>,
    wanted: Wanted,
    does: ToolCall,
    /// The server is done with it; only the note is missing.
    is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Wanted {
    Approval,
    Input,
}

#[derive(Deserialize)]
struct Opened {
    request_id: String,
}

#[derive(Deserialize)]
struct Resolved {
    request_id: String,
    status: Option<String>,
    decision: Option<String>,
    error_code: Option<String>,
}

impl Asked {
    /// Our note about the request that follows.
    pub(super) fn opened(&mut self, data: &RawValue) {
        self.next = Params::Written(data).read::<Opened>().map(|note| note.request_id);
    }

    /// Lines were lost, so a pending note does not belong to the next request.
    pub(super) fn gap(&mut self) {
        self.next = None;
    }

    /// Processes a server request. `item` is the tool call it is about, if known.
    pub(super) fn asked(
        &mut self,
        at_us: u64,
        message: &MethodMessage<'_>,
        id: String,
        item: Option<&ToolCall>,
        rows: &mut Vec<ToolRow>,
    ) {
        let request_id = self.next.take();
        let Some(kind) = RequestKind::of(&message.method) else { return };
        let (wanted, event) = match kind.request_type() {
            RequestType::Approval | RequestType::Permissions => (Wanted::Approval, ToolEvent::RequestApproval),
            RequestType::UserInput | RequestType::Elicitation => (Wanted::Input, ToolEvent::RequestUserInput),
            RequestType::Other => return,
        };
        let owned = |part: &Option<std::borrow::Cow<'_, str>>| part.as_deref().map(str::to_owned);
        let place = &message.place;
        let does = ToolCall::of_request(kind, message.params);
        let request = Request {
            request_id,
            at_us,
            thread_id: owned(&place.thread_id),
            turn_id: owned(&place.turn_id),
            item_id: owned(&place.item_id),
            wanted,
            does: item.map_or(does.clone(), |item| does.or(item)),
            is_over: false,
        };
        if self.open.get(&id).is_some_and(|open| request.is_again(open)) {
            return;
        }
        let row = request.row(at_us, event);
        rows.push(ToolRow { raw_payload_json: Some(preview(message.params, EXCERPT_CHARS_MAX)), ..row });
        // Its id is reused, or too many requests are open: rows record what was evicted.
        let gone = self.open.insert(id, request).into_iter().map(|(_, request)| request);
        rows.extend(gone.filter(|request| !request.is_over).map(|request| request.unreported(at_us, OUTCOME_UNKNOWN)));
    }

    /// Processes our note of an end. `does` returns the tool call of an open item.
    pub(super) fn resolved(
        &mut self,
        at_us: u64,
        data: &RawValue,
        does: impl Fn(&Place<'_>) -> Option<ToolCall>,
    ) -> Option<ToolRow> {
        let note: Resolved = Params::Written(data).read()?;
        let is_meant = |request: &Request| request.request_id.as_ref() == Some(&note.request_id);
        let (_, mut request) = self.open.take_if(|_, request| is_meant(request)).pop()?;
        // The item may have started after the request.
        if let Some(item) = does(&request.place()) {
            request.does = request.does.or(&item);
        }
        let event = match (note.status.as_deref(), note.error_code.as_deref(), request.wanted) {
            (Some("orphaned"), ..) => ToolEvent::Failed,
            (Some("expired"), ..) | (_, Some("request_expired"), _) => ToolEvent::Timeout,
            (_, Some("withdrawn_by_server"), _) => ToolEvent::Cancelled,
            (_, Some(_), _) => ToolEvent::Failed,
            (_, None, Wanted::Approval) => ToolEvent::ApprovalDecision,
            (_, None, Wanted::Input) => ToolEvent::UserInputSubmitted,
        };
        Some(ToolRow {
            approval_decision: note.decision,
            latency_ms: Some(latency_ms(request.at_us, at_us)),
            final_status: Some(final_status(event).to_owned()),
            // These tables use one word for everything left open by a dead child, noted or not.
            error_code: note
                .error_code
                .map(|code| if code == "server_exited" { STREAM_CLOSED.to_owned() } else { code }),
            raw_payload_json: Some(cut(data.get(), EXCERPT_CHARS_MAX)),
            ..request.row(at_us, event)
        })
    }

    /// The server reports that a request is resolved.
    pub(super) fn server_resolved(&mut self, params: Params<'_>) {
        let id = params.written().and_then(Members::of).and_then(|params| params.get("requestId"));
        let Some(id) = id.map(|id| RpcId::from_raw(id).to_string()) else { return };
        self.over(|open_id, _| *open_id == id);
    }

    /// An item completed, which ends requests about it; servers of early 2026 report nothing more specific.
    pub(super) fn item_over(&mut self, place: &Place<'_>) {
        let Some(item_id) = place.item_id.as_deref() else { return };
        let thread_id = place.thread_id.as_deref();
        self.over(|_, request| {
            request.item_id.as_deref() == Some(item_id) && request.thread_id.as_deref() == thread_id
        });
    }

    /// A turn ended, and its requests with it.
    pub(super) fn turn_over(&mut self, place: &Place<'_>) {
        let (Some(thread_id), turn_id) = (place.thread_id.as_deref(), place.turn_id.as_deref()) else { return };
        self.over(|_, request| {
            request.thread_id.as_deref() == Some(thread_id)
                && (request.turn_id.is_none() || request.turn_id.as_deref() == turn_id)
        });
    }

    /// The child has ended.
    pub(super) fn run_ended(&mut self, at_us: u64, rows: &mut Vec<ToolRow>) {
        self.next = None;
        let open = self.open.take_all().into_iter().map(|(_, request)| request);
        rows.extend(open.filter(|request| !request.is_over).map(|request| request.unreported(at_us, STREAM_CLOSED)));
    }

    fn over(&mut self, is_meant: impl Fn(&String, &Request) -> bool) {
        for (id, request) in self.open.take_if(|id, request| !request.is_over && is_meant(id, request)) {
            if request.request_id.is_some() {
                self.open.insert(id, Request { is_over: true, ..request });
            }
        }
    }
}

/// The final status in one word.
fn final_status(event: ToolEvent) -> &'static str {
    match event {
        ToolEvent::ApprovalDecision | ToolEvent::UserInputSubmitted => ToolEvent::Completed.name(),
        ToolEvent::RequestApproval
        | ToolEvent::RequestUserInput
        | ToolEvent::Started
        | ToolEvent::OutputDelta
        | ToolEvent::Completed
        | ToolEvent::Failed
        | ToolEvent::Interrupted
        | ToolEvent::Cancelled
        | ToolEvent::Declined
        | ToolEvent::Timeout => event.name(),
    }
}

impl Weigh for Request {
    fn weight(&self) -> usize {
        let Request { request_id, at_us: _, thread_id, turn_id, item_id, wanted: _, does, is_over: _ } = self;
        let names = [request_id, thread_id, turn_id, item_id].map(Weigh::weight);
        size_of::<Request>() + does.weight() + names.into_iter().sum::<usize>()
    }
}

impl Request {
    /// Whether this repeats `open` for a client that resumed; a repetition has no note of its own.
    fn is_again(&self, open: &Request) -> bool {
        self.request_id.is_none()
            && !open.is_over
            && self.wanted == open.wanted
            && self.thread_id == open.thread_id
            && self.item_id == open.item_id
    }

    fn place(&self) -> Place<'_> {
        let borrowed = |part: &'_ Option<String>| part.clone().map(std::borrow::Cow::Owned);
        Place {
            thread_id: borrowed(&self.thread_id),
            turn_id: borrowed(&self.turn_id),
            item_id: borrowed(&self.item_id),
            delta: None,
        }
    }

    /// The row for an end that was never reported.
    fn unreported(&self, at_us: u64, error_code: &str) -> ToolRow {
        ToolRow {
            latency_ms: Some(latency_ms(self.at_us, at_us)),
            final_status: Some(ToolEvent::Failed.name().to_owned()),
            error_code: Some(error_code.to_owned()),
            ..self.row(at_us, ToolEvent::Failed)
        }
    }

    fn row(&self, at_us: u64, event: ToolEvent) -> ToolRow {
        ToolRow {
            thread_id: self.thread_id.clone(),
            turn_id: self.turn_id.clone(),
            item_id: self.item_id.clone(),
            request_id: self.request_id.clone(),
            ..ToolRow::new(at_us, event, Phase::Pre, self.does.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::history::playbook::play;
    use crate::history::tool_row::ToolRow;

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
        // Servers of early 2026 ask before they report the item.
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
        let mut asked = super::Asked::default();
        asked.opened(serde_json::from_str(r#"{"request_id":"g-0"}"#).expect("BUG: a test gives JSON"));
        let crate::history::RecordEvent::ServerRequest { message, id } = crate::history::Seen::of(&record, None).event
        else {
            panic!("BUG: the record is of a request");
        };
        let mut rows = Vec::new();
        asked.asked(6, &message, id.to_string(), None, &mut rows);
        let row = rows.pop().expect("it is for a human");
        assert_eq!((row.request_id.as_deref(), row.thread_id), (Some("g-0"), None));
        assert_eq!(row.raw_payload_json.as_deref(), Some(r#"{"omitted":"secret"}"#));
    }
}
