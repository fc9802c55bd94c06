//! Events for a simple user interface, so that it need not parse the protocol: zero or more per record.
//!
//! Pieces are emitted as they arrive and never joined here.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::activity::{Activity, ActivityFold, ThreadActivity};
use super::approval::{Ask, Asked, End, Wanted};
use super::bounded::Bounded;
use super::diff::Diffs;
use super::failure::{Failure, STREAM_CLOSED};
use super::in_progress::{InProgress, Operation};
use super::item::{Item, ItemKind, OUTPUT_BYTES_MAX};
use super::object::{Object, bounded};
use super::record_event::{MethodMessage, Params, Place, RecordEvent, Seen};
use super::time::rfc3339_millis;
use super::transcript::{item, steps};
use super::usage::Usage;
use crate::protocol::Method;
use crate::wire::RpcId;

/// Prefix of the ids of our own calls, whose responses are not the client's.
const OWN_IDS: &str = "codex-shim:";

/// The kind of a UI event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UiKind {
    /// The activity of a thread changed.
    Activity,
    /// A user message.
    Message,
    /// A piece of the model's answer.
    AssistantDelta,
    /// The complete answer.
    AssistantFinalize,
    /// A piece of the model's reasoning.
    ReasoningDelta,
    /// The complete reasoning.
    ReasoningFinalize,
    /// The files changed by a turn so far.
    Diff,
    /// A request for permission opened or ended.
    Approval,
    /// A question to the user opened or ended.
    UserInput,
    ToolBegin,
    /// A piece of tool output.
    ToolDelta,
    ToolEnd,
    /// The model's plan.
    Plan,
    /// Token usage.
    TokenCount,
    /// A turn or a compaction began or ended.
    Status,
    Error,
    /// The client received a result.
    RpcResponse,
    /// The client received an error.
    RpcError,
}

impl UiKind {
    /// The name in a document.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            UiKind::Activity => "activity",
            UiKind::Message => "message",
            UiKind::AssistantDelta => "assistant_delta",
            UiKind::AssistantFinalize => "assistant_finalize",
            UiKind::ReasoningDelta => "reasoning_delta",
            UiKind::ReasoningFinalize => "reasoning_finalize",
            UiKind::Diff => "diff",
            UiKind::Approval => "approval",
            UiKind::UserInput => "user_input",
            UiKind::ToolBegin => "tool_begin",
            UiKind::ToolDelta => "tool_delta",
            UiKind::ToolEnd => "tool_end",
            UiKind::Plan => "plan",
            UiKind::TokenCount => "token_count",
            UiKind::Status => "status",
            UiKind::Error => "error",
            UiKind::RpcResponse => "rpc_response",
            UiKind::RpcError => "rpc_error",
        }
    }
}

/// A UI event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UiEvent {
    pub kind: UiKind,
    /// The event as JSON: `{"type",…}`.
    pub json: String,
}

/// State between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UiFold {
    generation: Option<String>,
    activity: ActivityFold,
    /// The last emitted activity by thread.
    #[serde(rename = "told")]
    emitted: Bounded<String, Activity>,
    /// Methods and threads of open calls, by call id.
    calls: Bounded<String, (String, Option<String>)>,
    asked: Asked,
    items: InProgress,
    diffs: Diffs,
    /// Turns that report their compaction by an item, by thread.
    compacting: Bounded<String, String>,
}

/// The place of an event.
#[derive(Clone, Copy)]
struct Spot<'a> {
    at_us: u64,
    thread_id: Option<&'a str>,
    turn_id: Option<&'a str>,
    item_id: Option<&'a str>,
}

impl<'a> Spot<'a> {
    fn of(at_us: u64, place: &'a Place<'_>) -> Spot<'a> {
        Spot {
            at_us,
            thread_id: place.thread_id.as_deref(),
            turn_id: place.turn_id.as_deref(),
            item_id: place.item_id.as_deref(),
        }
    }

    fn object(&self, kind: UiKind) -> Object {
        Object::new()
            .with("type", kind.name())
            .with("ts", rfc3339_millis(self.at_us))
            .with_some("thread_id", self.thread_id)
            .with_some("turn_id", self.turn_id)
            .with_some("item_id", self.item_id)
    }

    fn emit(&self, kind: UiKind, more: impl FnOnce(Object) -> Object, out: &mut Vec<UiEvent>) {
        out.push(UiEvent { kind, json: more(self.object(kind)).finish() });
    }

    fn status(&self, subject: &str, status: &str, out: &mut Vec<UiEvent>) {
        self.emit(UiKind::Status, |object| object.with("subject", subject).with("status", status), out);
    }
}

impl UiFold {
    /// Processes a record, and appends its UI events.
    pub fn take(&mut self, seen: &Seen<'_>, out: &mut Vec<UiEvent>) {
        match &seen.event {
            RecordEvent::Generation(generation) => {
                if self.generation.as_ref() != Some(generation) {
                    self.run_ended(seen.at_us, out);
                    self.generation = Some(generation.clone());
                }
            }
            RecordEvent::Notification(message) => self.message(Spot::of(seen.at_us, &message.place), message, out),
            RecordEvent::ServerRequest { message, id } => {
                let mut gone = Vec::new();
                let ask = self.asked.asked(message, id, &mut gone);
                gone.iter().for_each(|ask| closed(seen.at_us, ask, &End::not_followed(), out));
                if let Some(ask) = ask {
                    let (does, params) = (self.items.of(&message.place), message.params.read().unwrap_or_default());
                    let spot = Spot::of(seen.at_us, &message.place);
                    spot.emit(kind(ask), |object| opened(object, ask, &params, does), out);
                }
            }
            RecordEvent::ClientRequest { message, id } => {
                let thread_id = message.place.thread_id.as_deref().map(str::to_owned);
                self.calls.insert(id.to_string(), (message.method.clone().into_owned(), thread_id));
            }
            RecordEvent::Response { id, result, error } => self.answered(seen.at_us, id, (*result, *error), out),
            RecordEvent::ShimEvent { event, data } => {
                if *event == "generation_ended" {
                    self.run_ended(seen.at_us, out);
                }
                if let Some((ask, end)) = self.asked.noted(event, *data) {
                    closed(seen.at_us, &ask, &end, out);
                }
            }
            RecordEvent::Gap { .. } | RecordEvent::Other => {}
        }
        self.activity.take(seen);
        match &seen.event {
            RecordEvent::Notification(message) | RecordEvent::ServerRequest { message, .. } => {
                let thread = message.place.thread_id.as_deref().and_then(|id| self.activity.thread_of(id, seen.at_us));
                self.emit_activity(seen.at_us, thread, out);
            }
            // The end of a request may affect any thread.
            RecordEvent::ShimEvent { .. } => self.emit_activity(seen.at_us, self.activity.threads(seen.at_us), out),
            RecordEvent::Generation(_)
            | RecordEvent::ClientRequest { .. }
            | RecordEvent::Response { .. }
            | RecordEvent::Gap { .. }
            | RecordEvent::Other => {}
        }
    }

    /// The child has ended.
    fn run_ended(&mut self, at_us: u64, out: &mut Vec<UiEvent>) {
        for thread in self.activity.threads(at_us) {
            if let Some(turn_id) = &thread.turn_id {
                let spot = Spot { at_us, thread_id: Some(&thread.thread_id), turn_id: Some(turn_id), item_id: None };
                let failed = |object: Object| {
                    object.with("subject", "turn").with("status", "failed").with("error_code", STREAM_CLOSED)
                };
                spot.emit(UiKind::Status, failed, out);
            }
        }
        self.activity.run_ended(at_us);
        for (thread_id, activity) in self.emitted.take_all() {
            if activity != Activity::Stopped {
                push_activity(at_us, &thread_id, None, Activity::Stopped, out);
            }
        }
        self.calls = Bounded::default();
        self.items = InProgress::default();
    }

    /// Emits changed activities. The duration of a silence is left to callers with a clock.
    fn emit_activity(&mut self, at_us: u64, threads: impl IntoIterator<Item = ThreadActivity>, out: &mut Vec<UiEvent>) {
        for thread in threads {
            let activity = match thread.activity {
                Activity::Thinking | Activity::Working => Activity::Working,
                waits @ (Activity::WaitingPermission | Activity::WaitingInput) => waits,
                rests @ (Activity::Idle | Activity::Stopped) => rests,
            };
            if self.emitted.get(&thread.thread_id) != Some(&activity) {
                push_activity(at_us, &thread.thread_id, thread.turn_id.as_deref(), activity, out);
                self.emitted.insert(thread.thread_id, activity);
            }
        }
    }

    fn message(&mut self, spot: Spot<'_>, message: &MethodMessage<'_>, out: &mut Vec<UiEvent>) {
        if let Some(delta) = message.place.delta.as_deref() {
            return piece(spot, message, delta, out);
        }
        match message.known {
            Some(Method::TurnStarted) => spot.status("turn", "in_progress", out),
            Some(Method::TurnCompleted) => turn_completed(spot, message.params, out),
            Some(Method::ItemStarted) => self.item_started(spot, message, out),
            Some(Method::ItemCompleted) => self.item_completed(spot, message, out),
            Some(Method::ReasoningSummaryPartAdded) => {
                let params: Value = message.params.read().unwrap_or_default();
                if params["summaryIndex"].as_u64().is_some_and(|index| index > 0) {
                    let more = |object: Object| object.with("part", "summary").with("delta", "\n\n");
                    spot.emit(UiKind::ReasoningDelta, more, out);
                }
            }
            Some(Method::ToolCallProgress | Method::TerminalInteraction | Method::PatchUpdated) => {
                let params: Value = message.params.read().unwrap_or_default();
                let progress = |object: Object| {
                    let object = object.with_some("delta", params["message"].as_str());
                    object.with_some("stdin", params["stdin"].as_str()).with_some("changes", params.get("changes"))
                };
                spot.emit(UiKind::ToolDelta, progress, out);
            }
            Some(Method::DiffUpdated) => self.diff(spot, message.params, out),
            Some(Method::PlanUpdated) => {
                let params: Value = message.params.read().unwrap_or_default();
                spot.emit(UiKind::Plan, |object| steps(object, &params), out);
            }
            Some(Method::TokenUsageUpdated) => {
                if let Some(usage) = Usage::of(message.params) {
                    spot.emit(UiKind::TokenCount, |object| usage.describe(object), out);
                }
            }
            Some(Method::ThreadCompacted) => {
                let by_item = spot.thread_id.and_then(|thread_id| self.compacting.get(&thread_id.to_owned()));
                if by_item.is_none() || by_item.map(String::as_str) != spot.turn_id {
                    spot.status("compaction", "completed", out);
                }
            }
            Some(Method::Error) => {
                let params: Value = message.params.read().unwrap_or_default();
                let Failure { message, code } = Failure::of(&params["error"]);
                let more = |object: Object| {
                    let object = object.with("message", message.unwrap_or_default()).with_some("error_code", code);
                    object.with("will_retry", params["willRetry"].as_bool() == Some(true))
                };
                spot.emit(UiKind::Error, more, out);
            }
            Some(Method::RequestResolved) => {
                if let Some(ask) = self.asked.over(message) {
                    closed(spot.at_us, &ask, &End::unknown(), out);
                }
            }
            _ => {}
        }
    }

    fn item_started(&mut self, spot: Spot<'_>, message: &MethodMessage<'_>, out: &mut Vec<UiEvent>) {
        let Some(item) = item(message) else { return };
        match item.kind {
            ItemKind::User | ItemKind::Assistant | ItemKind::Reasoning | ItemKind::Plan | ItemKind::Aside => {}
            ItemKind::Compaction => {
                if let (Some(thread_id), Some(turn_id)) = (spot.thread_id, spot.turn_id) {
                    self.compacting.insert(thread_id.to_owned(), turn_id.to_owned());
                }
                spot.status("compaction", "in_progress", out);
            }
            ItemKind::Command | ItemKind::FileChange | ItemKind::Tool => {
                self.items.started(&message.place, &item);
                spot.emit(UiKind::ToolBegin, |object| item.describe(object), out);
                // Until early 2026, a request came before the start of its item.
                if let Some(ask) = self.asked.about(&message.place) {
                    let does = self.items.of(&message.place);
                    spot.emit(kind(ask), |object| opened(object, ask, &Value::Null, does), out);
                }
            }
        }
    }

    fn item_completed(&mut self, spot: Spot<'_>, message: &MethodMessage<'_>, out: &mut Vec<UiEvent>) {
        let Some(item) = item(message) else { return };
        let said = |kind: UiKind, out: &mut Vec<UiEvent>| {
            spot.emit(kind, |object| object.with("text", item.text().unwrap_or_default()), out);
        };
        match item.kind {
            ItemKind::User => spot.emit(UiKind::Message, |object| message_object(object, &item), out),
            ItemKind::Assistant => said(UiKind::AssistantFinalize, out),
            ItemKind::Reasoning => said(UiKind::ReasoningFinalize, out),
            ItemKind::Plan => said(UiKind::Plan, out),
            ItemKind::Compaction => spot.status("compaction", "completed", out),
            ItemKind::Aside => {}
            ItemKind::Command | ItemKind::FileChange | ItemKind::Tool => {
                self.items.completed(&message.place);
                spot.emit(UiKind::ToolEnd, |object| item.describe(object), out);
            }
        }
    }

    fn diff(&mut self, spot: Spot<'_>, params: Params<'_>, out: &mut Vec<UiEvent>) {
        let params: Value = params.read().unwrap_or_default();
        let (Some(thread_id), Some(turn_id), Some(text)) = (spot.thread_id, spot.turn_id, params["diff"].as_str())
        else {
            return;
        };
        if let Some(snapshot) = self.diffs.take(thread_id, turn_id, text) {
            let more = |object: Object| {
                let object = object.with("diff_id", snapshot.diff_id).with_some("supersedes", snapshot.supersedes);
                object.with("text", text)
            };
            spot.emit(UiKind::Diff, more, out);
        }
    }

    fn answered(
        &mut self,
        at_us: u64,
        id: &RpcId,
        (result, error): (Option<&RawValue>, Option<&RawValue>),
        out: &mut Vec<UiEvent>,
    ) {
        let (method, thread_id) = self.calls.remove(&id.to_string()).unzip();
        let id = match id {
            RpcId::Text(text) if text.starts_with(OWN_IDS) => return,
            RpcId::Integer(integer) => Value::from(*integer),
            RpcId::Text(text) => Value::from(text.as_str()),
            RpcId::Other(raw) => serde_json::from_str(raw).unwrap_or_default(),
        };
        let thread_id = thread_id.flatten();
        let spot = Spot { at_us, thread_id: thread_id.as_deref(), turn_id: None, item_id: None };
        let called = |object: Object| object.with("id", id).with_some("method", method);
        match error {
            Some(error) => {
                let error: Value = serde_json::from_str(error.get()).unwrap_or_default();
                let more = |object: Object| {
                    called(object).with_some("code", error.get("code")).with_some("message", error.get("message"))
                };
                spot.emit(UiKind::RpcError, more, out);
            }
            None => {
                let result = result.filter(|result| result.get().len() <= OUTPUT_BYTES_MAX);
                spot.emit(UiKind::RpcResponse, |object| called(object).with_some("result", result), out);
            }
        }
    }
}

fn push_activity(at_us: u64, thread_id: &str, turn_id: Option<&str>, activity: Activity, out: &mut Vec<UiEvent>) {
    let spot = Spot { at_us, thread_id: Some(thread_id), turn_id, item_id: None };
    spot.emit(UiKind::Activity, |object| object.with("activity", activity.name()), out);
}

/// A piece of an item.
fn piece(spot: Spot<'_>, message: &MethodMessage<'_>, delta: &str, out: &mut Vec<UiEvent>) {
    let (kind, part) = match message.known {
        Some(Method::AgentMessageDelta) => (UiKind::AssistantDelta, None),
        Some(Method::ReasoningSummaryTextDelta) => (UiKind::ReasoningDelta, Some("summary")),
        Some(Method::ReasoningTextDelta) => (UiKind::ReasoningDelta, Some("content")),
        Some(Method::PlanDelta) => (UiKind::Plan, None),
        _ if message.method.starts_with("item/") => (UiKind::ToolDelta, None),
        _ => return,
    };
    spot.emit(kind, |object| object.with_some("part", part).with("delta", delta), out);
}

fn message_object(object: Object, item: &Item) -> Object {
    let object = object.with("role", "user").with("text", item.text().unwrap_or_default());
    object.with_some("content", item.content_types())
}

fn turn_completed(spot: Spot<'_>, params: Params<'_>, out: &mut Vec<UiEvent>) {
    let params: Value = params.read().unwrap_or_default();
    let turn = &params["turn"];
    let Failure { message, code } = Failure::of(&turn["error"]);
    let more = |object: Object| {
        object
            .with("subject", "turn")
            .with("status", turn["status"].as_str().unwrap_or("completed"))
            .with_some("duration_ms", turn.get("durationMs"))
            .with_some("error_code", code)
            .with_some("error_message", message)
    };
    spot.emit(UiKind::Status, more, out);
}

fn kind(ask: &Ask) -> UiKind {
    match ask.wanted {
        Wanted::Command | Wanted::Diff | Wanted::Permissions => UiKind::Approval,
        Wanted::Questions | Wanted::Elicitation => UiKind::UserInput,
    }
}

/// Adds everything needed for a decision.
fn opened(object: Object, ask: &Ask, params: &Value, does: Option<&Operation>) -> Object {
    let (item_command, item_cwd, changes) = match does {
        Some(Operation::Runs { command, cwd }) => (command.clone(), cwd.clone(), None),
        Some(Operation::Changes(changes)) => (None, None, serde_json::from_str(changes).ok()),
        None => (None, None, None),
    };
    let ask = Ask { command: ask.command.clone().or(item_command), cwd: ask.cwd.clone().or(item_cwd), ..ask.clone() };
    let member = |name: &str| params.get(name).map(|value| bounded(value, OUTPUT_BYTES_MAX));
    ask.describe(object.with("status", "pending"))
        .with_some("changes", changes.or_else(|| old_changes(params)))
        .with_some("grant_root", params["grantRoot"].as_str())
        .with_some("permissions", member("permissions"))
        .with_some("questions", member("questions"))
        .with_some("message", ask.text.as_ref().filter(|_| ask.wanted == Wanted::Elicitation))
        .with_some("schema", member("requestedSchema"))
        .with_some("server", params["serverName"].as_str())
        .with_some("mode", params["mode"].as_str())
        .with_some("url", params["url"].as_str())
        .with_some("decisions", Some(&ask.decisions).filter(|decisions| !decisions.is_empty()))
        .with_some("decisions_left_out", Some(ask.decisions_left_out).filter(|left_out| *left_out > 0))
}

/// The changes of a request until early 2026: an object by path.
fn old_changes(params: &Value) -> Option<Value> {
    let changes = params["fileChanges"].as_object()?.iter().map(|(path, change)| {
        let diff = ["unified_diff", "content"].into_iter().find_map(|name| change[name].as_str());
        serde_json::json!({ "path": path, "kind": { "type": change["type"] }, "diff": diff })
    });
    Some(changes.collect())
}

fn closed(at_us: u64, ask: &Ask, end: &End, out: &mut Vec<UiEvent>) {
    let spot = Spot {
        at_us,
        thread_id: ask.thread_id.as_deref(),
        turn_id: ask.turn_id.as_deref(),
        item_id: ask.item_id.as_deref(),
    };
    let more = |object: Object| {
        let object = object.with_some("request_id", ask.request_id.as_ref()).with("kind", ask.wanted.name());
        end.describe(object)
    };
    spot.emit(kind(ask), more, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tapes::{records, ui_events};

    /// A line of `expect` is the type and content of an event, without its place and time. Activity events are compared
    /// only if expected.
    fn check(playbook: &str, expect: &str) {
        let expect: Vec<&str> = expect.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let wants_activity = expect.iter().any(|line| line.starts_with("activity"));
        let actual = ui_events(&records(playbook)).into_iter();
        let actual = actual.filter(|event| wants_activity || event.kind != UiKind::Activity).map(|event| {
            let mut json: serde_json::Map<String, Value> = serde_json::from_str(&event.json).expect("it is JSON");
            ["type", "ts", "thread_id", "turn_id", "item_id"].iter().for_each(|name| drop(json.remove(*name)));
            format!("{} {}", event.kind.name(), Value::Object(json))
        });
        assert_eq!(actual.collect::<Vec<_>>(), expect);
    }

    /// A notification about item `i` of turn `u`.
    fn notification(method: &str, members: &str) -> String {
        let place = r#""threadId":"t","turnId":"u","itemId":"i""#;
        let comma = if members.is_empty() { "" } else { "," };
        format!(r#"<< {{"method":"{method}","params":{{{place}{comma}{members}}}}}"#)
    }

    #[test]
    fn pieces_are_not_joined() {
        let delta = r#""delta":"a""#;
        let piece = |method: &str, expect: &str| check(&notification(method, delta), expect);
        piece("item/agentMessage/delta", r#"assistant_delta {"delta":"a"}"#);
        piece("item/reasoning/summaryTextDelta", r#"reasoning_delta {"delta":"a","part":"summary"}"#);
        piece("item/reasoning/textDelta", r#"reasoning_delta {"delta":"a","part":"content"}"#);
        piece("item/plan/delta", r#"plan {"delta":"a"}"#);
        piece("item/commandExecution/outputDelta", r#"tool_delta {"delta":"a"}"#);
        piece("item/newThing/outputDelta", r#"tool_delta {"delta":"a"}"#);
        piece("thread/realtime/transcript/delta", "");
        piece("codex/event/agent_message_delta", "");
        let part = |index: &str| notification("item/reasoning/summaryPartAdded", &format!(r#""summaryIndex":{index}"#));
        check(&part("0"), "");
        check(&part("1"), r#"reasoning_delta {"delta":"\n\n","part":"summary"}"#);
        check(&notification("item/mcpToolCall/progress", r#""message":"m""#), r#"tool_delta {"delta":"m"}"#);
        check(
            &notification("item/commandExecution/terminalInteraction", r#""stdin":"y\n""#),
            r#"tool_delta {"stdin":"y\n"}"#,
        );
    }

    #[test]
    fn items_begin_and_end() {
        let item = |members: &str, begins: &str, ends: &str| {
            let members = format!(r#""item":{{"id":"i",{members}}}"#);
            check(&notification("item/started", &members), begins);
            check(&notification("item/completed", &members), ends);
        };
        item(r#""type":"agentMessage","text":"a""#, "", r#"assistant_finalize {"text":"a"}"#);
        item(r#""type":"reasoning","summary":["a"]"#, "", r#"reasoning_finalize {"text":"a"}"#);
        item(r#""type":"plan","text":"a""#, "", r#"plan {"text":"a"}"#);
        item(
            r#""type":"userMessage","content":[{"type":"text","text":"a"},{"type":"image"}]"#,
            "",
            r#"message {"content":["text","image"],"role":"user","text":"a"}"#,
        );
        item(
            r#""type":"contextCompaction""#,
            r#"status {"status":"in_progress","subject":"compaction"}"#,
            r#"status {"status":"completed","subject":"compaction"}"#,
        );
        ["hookPrompt", "enteredReviewMode", "exitedReviewMode"].iter().for_each(|aside| {
            item(&format!(r#""type":"{aside}""#), "", "");
        });
        item(
            r#""type":"webSearch","query":"q""#,
            r#"tool_begin {"details":{"query":"q"},"item_type":"webSearch"}"#,
            r#"tool_end {"details":{"query":"q"},"item_type":"webSearch"}"#,
        );
        check(
            &notification(
                "item/completed",
                r#""item":{"id":"i","type":"commandExecution","command":"ls","cwd":"/","status":"completed","exitCode":2,"durationMs":3,"aggregatedOutput":"x"}"#,
            ),
            r#"tool_end {"command":"ls","cwd":"/","duration_ms":3,"exit_code":2,"is_error":true,"item_type":"commandExecution","output":"x","status":"completed"}"#,
        );
    }

    #[test]
    fn turns_plans_diffs_errors_and_tokens() {
        check(
            &notification("turn/started", r#""turn":{"id":"u"}"#),
            r#"status {"status":"in_progress","subject":"turn"}"#,
        );
        check(
            &notification("turn/completed", r#""turn":{"id":"u","status":"interrupted","durationMs":4}"#),
            r#"status {"duration_ms":4,"status":"interrupted","subject":"turn"}"#,
        );
        check(
            &notification("turn/plan/updated", r#""plan":[{"step":"a","status":"inProgress"}]"#),
            r#"plan {"steps":[{"status":"in_progress","step":"a"}]}"#,
        );
        check(
            &notification("error", r#""willRetry":true,"error":{"message":"m","codexErrorInfo":"other"}"#),
            r#"error {"error_code":"other","message":"m","will_retry":true}"#,
        );
        check(
            &notification(
                "thread/tokenUsage/updated",
                r#""tokenUsage":{"last":{"totalTokens":2,"inputTokens":1},"total":{"totalTokens":3},"modelContextWindow":9}"#,
            ),
            r#"token_count {"context_window":9,"input_tokens":1,"thread_total":3,"total":2}"#,
        );
        let diff = |text: &str| notification("turn/diff/updated", &format!(r#""diff":"{text}""#));
        let id = |text: &str| format!("t:u:{}", crate::history::diff::digest(text));
        check(
            &[diff("a"), diff("a"), diff("b"), diff("a")].join("\n"),
            &format!(
                "diff {{\"diff_id\":\"{a}\",\"text\":\"a\"}}\n\
                 diff {{\"diff_id\":\"{b}\",\"supersedes\":\"{a}\",\"text\":\"b\"}}\n\
                 diff {{\"diff_id\":\"{a}\",\"supersedes\":\"{b}\",\"text\":\"a\"}}",
                a = id("a"),
                b = id("b")
            ),
        );
    }

    #[test]
    fn a_compaction_of_early_2026() {
        let completed = r#"status {"status":"completed","subject":"compaction"}"#;
        let item = r#""item":{"type":"contextCompaction","id":"i"}"#;
        check(&notification("thread/compacted", ""), completed);
        check(
            &[
                notification("item/started", item),
                notification("thread/compacted", ""),
                notification("item/completed", item),
            ]
            .join("\n"),
            &format!("status {{\"status\":\"in_progress\",\"subject\":\"compaction\"}}\n{completed}"),
        );
    }

    const ASKS: &str = r#"request_opened {"request_id":"g-0","request_type":"x"}
        << {"id":0,"method":"item/fileChange/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"i","reason":null}}"#;
    const BEGINS: &str = r#"<< {"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"id":"i","type":"fileChange","changes":[{"path":"/a"}]}}}"#;
    const ENDS: &str =
        r#"request_resolved {"request_id":"g-0","status":"resolved","source":"api","decision":"accept"}"#;

    #[test]
    fn approval_event_has_full_details() {
        let begins = r#"tool_begin {"changes":[{"path":"/a"}],"item_type":"fileChange"}"#;
        let decisions = r#""decisions":["accept","acceptForSession","decline","cancel"],"kind":"diff","request_id":"g-0","status":"pending""#;
        let whole = format!(r#"approval {{"changes":[{{"path":"/a"}}],{decisions}}}"#);
        let ends =
            r#"approval {"decision":"accept","kind":"diff","request_id":"g-0","source":"api","status":"resolved"}"#;
        check(&format!("{BEGINS}\n{ASKS}\n{ENDS}\n{ENDS}"), &format!("{begins}\n{whole}\n{ends}"));
        // A request before the start of its item is emitted again with the changes.
        check(&format!("{ASKS}\n{BEGINS}"), &format!("approval {{{decisions}}}\n{begins}\n{whole}"));
        // A repetition of an open request.
        let again = ASKS.lines().last().unwrap_or_default();
        check(&format!("{ASKS}\n{again}\n{ENDS}"), &format!("approval {{{decisions}}}\n{ends}"));
        // The details of a completed item are no longer shown.
        let done = BEGINS.replace("item/started", "item/completed");
        check(
            &format!("{BEGINS}\n{done}\n{ASKS}"),
            &format!("{begins}\n{}\napproval {{{decisions}}}", begins.replace("begin", "end")),
        );
    }

    /// A command request that offers `count` decisions of `bytes` bytes each.
    fn offers(count: usize, bytes: usize) -> String {
        let offered = |number: usize| format!(r#""{number}{}""#, "x".repeat(bytes));
        let offered: Vec<String> = (0..count).map(offered).collect();
        format!(
            r#"<< {{"id":"r","method":"item/commandExecution/requestApproval","params":{{"threadId":"t","turnId":"u","itemId":"i","command":"ls","availableDecisions":[{}]}}}}"#,
            offered.join(",")
        )
    }

    #[test]
    fn excess_decisions_are_cut_and_request_stays_open() {
        let check = |actual: &str, kept: usize, left_out: Option<u64>| {
            let actual = format!(
                "{actual}\n<< {{\"method\":\"serverRequest/resolved\",\"params\":{{\"threadId\":\"t\",\"requestId\":\"r\"}}}}"
            );
            let actual = ui_events(&records(&actual)).into_iter().filter(|event| event.kind == UiKind::Approval);
            let actual: Vec<Value> =
                actual.map(|event| serde_json::from_str(&event.json).expect("it is JSON")).collect();
            let status: Vec<&str> = actual.iter().filter_map(|event| event["status"].as_str()).collect();
            assert_eq!(status, ["pending", "resolved"]);
            let decisions = actual[0]["decisions"].as_array().expect("decisions are a list");
            assert_eq!((decisions.len(), actual[0]["decisions_left_out"].as_u64()), (kept, left_out));
            assert_eq!(decisions[kept - 4..], ["accept", "acceptForSession", "decline", "cancel"]);
        };
        check(&offers(64, 1), 68, None);
        check(&offers(65, 1), 68, Some(1));
        check(&offers(1, 3 << 20), 4, Some(1));
        check(&offers(3_000, 1_000), 68, Some(2_936));
        // Repeated decisions are listed once.
        let same = offers(1, 1).replace(r#""0x""#, &vec![r#""accept""#; 100_000].join(","));
        check(&same, 4, None);
    }

    #[test]
    fn reused_id_ends_the_earlier_request() {
        let asks = |name: &str| {
            let id = ASKS.lines().last().unwrap_or_default();
            format!("request_opened {{\"request_id\":\"{name}\",\"request_type\":\"x\"}}\n{id}")
        };
        let pending = |name: &str| {
            format!(
                r#"approval {{"decisions":["accept","acceptForSession","decline","cancel"],"kind":"diff","request_id":"{name}","status":"pending"}}"#
            )
        };
        let gone = r#"approval {"error_code":"outcome_unknown","kind":"diff","request_id":"g-0","status":"unknown"}"#;
        check(&format!("{}\n{}", asks("g-0"), asks("g-1")), &format!("{}\n{gone}\n{}", pending("g-0"), pending("g-1")));
    }

    #[test]
    fn other_request_methods_are_recognized() {
        let asked = |method: &str, members: &str, expect: &str| {
            check(&format!(r#"<< {{"id":"r","method":"{method}","params":{{{members}}}}}"#), expect);
        };
        let words = r#""decisions":["accept","acceptForSession","decline","cancel"]"#;
        asked(
            "execCommandApproval",
            r#""conversationId":"t","callId":"i","command":["ls","-l"],"cwd":"/""#,
            &format!(r#"approval {{"command":"ls -l","cwd":"/",{words},"kind":"command","status":"pending"}}"#),
        );
        asked(
            "applyPatchApproval",
            r#""conversationId":"t","callId":"i","fileChanges":{"/a":{"type":"add","content":"x"}}"#,
            &format!(
                r#"approval {{"changes":[{{"diff":"x","kind":{{"type":"add"}},"path":"/a"}}],{words},"kind":"diff","status":"pending"}}"#
            ),
        );
        asked(
            "item/permissions/requestApproval",
            r#""threadId":"t","permissions":{"network":{"enabled":true}}"#,
            r#"approval {"kind":"permissions","permissions":{"network":{"enabled":true}},"status":"pending"}"#,
        );
        asked(
            "item/tool/requestUserInput",
            r#""threadId":"t","questions":[{"id":"c","question":"Which?"}]"#,
            r#"user_input {"kind":"questions","questions":[{"id":"c","question":"Which?"}],"status":"pending"}"#,
        );
        asked(
            "mcpServer/elicitation/request",
            r#""threadId":"t","serverName":"lab","mode":"form","message":"Sure?","requestedSchema":{"type":"object"}"#,
            r#"user_input {"decisions":["accept","decline","cancel"],"kind":"elicitation","message":"Sure?","mode":"form","schema":{"type":"object"},"server":"lab","status":"pending"}"#,
        );
        asked("item/tool/call", r#""threadId":"t""#, "");
        asked("new/method", r#""threadId":"t""#, "");
    }

    #[test]
    fn unnamed_request_ends_when_server_resolves_it() {
        let ask = ASKS.lines().last().unwrap_or_default();
        check(
            &format!(
                "{ask}\n<< {{\"method\":\"serverRequest/resolved\",\"params\":{{\"threadId\":\"t\",\"requestId\":0}}}}"
            ),
            r#"
            approval {"decisions":["accept","acceptForSession","decline","cancel"],"kind":"diff","status":"pending"}
            approval {"kind":"diff","status":"resolved"}
            "#,
        );
    }

    #[test]
    fn answers_to_calls() {
        check(
            r#"
            >> {"id":1,"method":"a/b","params":{}}
            >> {"id":"1","method":"c/d"}
            << {"id":"1","error":{"code":-1,"message":"m"}}
            << {"id":1,"result":{"x":1}}
            << {"id":2,"result":{}}
            << {"id":"codex-shim:0a:c1","result":{}}
            "#,
            r#"
            rpc_error {"code":-1,"id":"1","message":"m","method":"c/d"}
            rpc_response {"id":1,"method":"a/b","result":{"x":1}}
            rpc_response {"id":2,"result":{}}
            "#,
        );
        let long = format!(r#"<< {{"id":1,"result":"{}"}}"#, "x".repeat(OUTPUT_BYTES_MAX));
        check(&long, r#"rpc_response {"id":1}"#);
    }

    #[test]
    fn activity_is_emitted_on_change() {
        let idle = r#"<< {"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}"#;
        let started = notification("turn/started", r#""turn":{"id":"u"}"#);
        let delta = notification("item/agentMessage/delta", r#""delta":"a""#);
        check(
            &format!(
                "generation_started\n{idle}\n{idle}\n{started}\n{delta}\n{ASKS}\n{ENDS}\ngeneration_ended\ngeneration_ended"
            ),
            r#"
            activity {"activity":"idle"}
            status {"status":"in_progress","subject":"turn"}
            activity {"activity":"working"}
            assistant_delta {"delta":"a"}
            approval {"decisions":["accept","acceptForSession","decline","cancel"],"kind":"diff","request_id":"g-0","status":"pending"}
            activity {"activity":"waiting_permission"}
            approval {"decision":"accept","kind":"diff","request_id":"g-0","source":"api","status":"resolved"}
            activity {"activity":"working"}
            status {"error_code":"app_server_stream_closed","status":"failed","subject":"turn"}
            activity {"activity":"stopped"}
            "#,
        );
    }
}
