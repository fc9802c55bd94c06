//! Events for a simple user interface, so that it need not parse the protocol: zero or more per record.
//!
//! Pieces are emitted as they arrive and never joined here.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::activity::{Activity, SessionActivity, ThreadActivity};
use super::bounded::{Bounded, bounded, rfc3339_millis};
use super::conversation::{Call, Change, Conversation, Purpose, Step};
use super::deliveries::Deliveries;
use super::entry::{
    AUTO_REVIEW, ApprovalDocument, Content, EndDocument, Ended, Entry, ErrorDocument, ItemDocument, OVERRULED,
    PlanDocument, ReviewDocument, TurnDiff,
};
use super::item::{ItemKind, OUTPUT_BYTES_MAX, ThreadItem, ToolDetails};
use super::record_event::{MethodMessage, RecordEvent, Seen};
use super::request::{End, Request};
use super::review::Overruled;
use super::turn::{Turn, TurnEnd};
use crate::engine::{Need, Subject};
use crate::protocol::change::FileChange;
use crate::protocol::{self, ItemPlace, Method, ThreadDescription, ThreadKind};
use crate::wire::RpcId;

/// Prefix of the ids of our own calls, whose responses are not the client's.
const OWN_IDS: &str = "codex-shim:";

/// The kind of a UI event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Codex's own reviewer began to decide on an action, or decided; or a person overruled it.
    AutoReview,
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
    fn of(content: &Content<'_>) -> UiKind {
        match content {
            Content::User(_) => UiKind::Message,
            Content::Assistant(_) => UiKind::AssistantFinalize,
            Content::Reasoning(_) => UiKind::ReasoningFinalize,
            Content::Plan(_) => UiKind::Plan,
            Content::Command(_) | Content::FileChange(_) | Content::Tool(_) => UiKind::ToolEnd,
            Content::Diff(_) => UiKind::Diff,
            Content::Approval(_) => UiKind::Approval,
            Content::Status(_) | Content::Compaction | Content::Other(_) => UiKind::Status,
            Content::Error(_) => UiKind::Error,
            Content::Usage(_) => UiKind::TokenCount,
        }
    }

    /// Whether more of the same follows.
    pub fn is_piece(self) -> bool {
        matches!(self, UiKind::AssistantDelta | UiKind::ReasoningDelta | UiKind::ToolDelta)
    }
}

documents! {
    /// A UI event, which becomes JSON as `{"type",…}`.
    #[derive(Debug, Clone)]
    pub struct UiEvent {
        #[serde(rename = "type")]
        kind: UiKind,
        #[serde(rename = "ts", serialize_with = "rfc3339")]
        at_us: u64,
        thread_id?: String,
        /// What its thread is for, unless a person speaks in it.
        thread_kind?: ThreadKind,
        turn_id?: String,
        item_id?: String,
        #[serde(flatten)]
        detail: UiContent,
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum UiContent {
    Activity {
        activity: Activity,
    },
    /// What an entry of the transcript tells, too.
    Entry(Box<Content<'static>>),
    /// A tool has begun.
    Begun(Box<ItemDocument>),
    Delta(Delta),
    Progress(Progress),
    Pending(Box<Pending>),
    Answer(Box<Answer>),
    Review(Box<ReviewDocument>),
    Overruled(Overruling),
}

documents! {
    #[derive(Debug, Clone)]
    pub struct Delta {
        part?: &'static str,
        delta: String,
    }

    #[derive(Debug, Clone)]
    pub struct Progress {
        delta?: String,
        stdin?: String,
        changes?: Value,
    }

    /// A person overruled a denial.
    #[derive(Debug, Clone)]
    pub struct Overruling {
        review_id: String,
        status: &'static str,
        subject: String,
    }

    #[derive(Debug, Clone)]
    pub struct Answer {
        id: Value,
        method?: String,
        code?: Value,
        message?: Value,
        result?: Box<RawValue>,
    }

    /// Everything needed to decide on a request.
    #[derive(Debug, Clone, Default)]
    pub struct Pending {
        status: &'static str,
        request_id?: String,
        kind?: Subject,
        command?: String,
        cwd?: String,
        reason?: String,
        changes?: Value,
        grant_root?: String,
        permissions?: Value,
        questions?: Value,
        message?: String,
        schema?: Value,
        server?: String,
        mode?: String,
        url?: String,
        decisions?: Vec<Value>,
        decisions_left_out?: usize,
    }
}

impl UiEvent {
    /// The event that an entry repeats.
    pub fn of_entry(entry: Entry<'static>, thread_id: &str, at_us: u64) -> UiEvent {
        let Entry { item_id, turn_id, content, .. } = entry;
        let [turn_id, item_id] = [turn_id, item_id].map(|id| id.map(Cow::into_owned));
        let (kind, thread_id) = (UiKind::of(&content), Some(thread_id.to_owned()));
        let detail = UiContent::Entry(Box::new(content));
        UiEvent { kind, at_us, thread_id, thread_kind: None, turn_id, item_id, detail }
    }
}

fn rfc3339<S: Serializer>(at_us: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339_millis(*at_us))
}

/// State between two records.
#[derive(Debug)]
pub struct UiFold {
    deliveries: Deliveries,
    conversation: Conversation,
    /// The last emitted activity by thread.
    emitted: Bounded<String, Activity>,
}

impl Default for UiFold {
    fn default() -> UiFold {
        UiFold { deliveries: Deliveries::default(), conversation: Conversation::of_ui(), emitted: Bounded::default() }
    }
}

impl UiFold {
    /// Processes a record, and appends its UI events.
    pub fn take(&mut self, seen: &Seen<'_>, out: &mut Vec<UiEvent>) {
        if !self.deliveries.is_first(seen) {
            return;
        }
        let step = self.conversation.take(Purpose::Ui, seen);
        let at_us = step.at_us;
        let mut view = View { at_us, place: ItemPlace::default(), conversation: &self.conversation, out };
        match step.message {
            Some(message) => {
                view.place = message.place.owned();
                view.message(message, &step);
            }
            None => view.change_without_message(&step),
        }
        if let Change::RunEnded = step.change {
            for (thread_id, activity) in self.emitted.take_all() {
                if activity != Activity::Stopped {
                    view.activity(thread_id, None, Activity::Stopped);
                }
            }
        }
        let threads = match &seen.event {
            RecordEvent::Notification(message) | RecordEvent::ServerRequest { message, .. } => {
                let thread_id = message.place.thread_id.as_deref();
                let thread = thread_id.and_then(|id| ThreadActivity::of(&self.conversation, id, at_us));
                thread.into_iter().collect()
            }
            // The end of a request may affect any thread.
            RecordEvent::ShimEvent { .. } => SessionActivity::of(&self.conversation).threads(at_us),
            RecordEvent::Generation(_)
            | RecordEvent::ClientRequest { .. }
            | RecordEvent::Response { .. }
            | RecordEvent::Gap { .. }
            | RecordEvent::Answer { .. }
            | RecordEvent::Other => Vec::new(),
        };
        // The duration of a silence is left to callers with a clock.
        for thread in threads {
            let activity = match thread.activity {
                Activity::Thinking | Activity::Working => Activity::Working,
                waits @ (Activity::WaitingPermission | Activity::WaitingInput) => waits,
                rests @ (Activity::Idle | Activity::Stopped | Activity::Newer(_)) => rests,
            };
            if self.emitted.get(&thread.thread_id) != Some(&activity) {
                view.activity(thread.thread_id.clone(), thread.turn_id, activity);
                self.emitted.insert(thread.thread_id, activity);
            }
        }
    }
}

/// Appends the events of a step.
struct View<'a> {
    at_us: u64,
    /// The place of the message.
    place: ItemPlace,
    conversation: &'a Conversation,
    out: &'a mut Vec<UiEvent>,
}

impl View<'_> {
    fn emit(&mut self, kind: UiKind, detail: UiContent) {
        self.emit_at(self.place.clone(), kind, detail);
    }

    fn emit_at(&mut self, place: ItemPlace, kind: UiKind, detail: UiContent) {
        let thread_kind = place.thread_id.as_deref().and_then(|id| self.thread_kind(id));
        let ItemPlace { thread_id, turn_id, item_id } = place;
        self.out.push(UiEvent { kind, at_us: self.at_us, thread_id, thread_kind, turn_id, item_id, detail });
    }

    /// The kind of a thread that no person speaks in.
    fn thread_kind(&self, thread_id: &str) -> Option<ThreadKind> {
        Some(self.conversation.identities.kind(thread_id)).filter(|kind| !kind.is_user())
    }

    fn tell(&mut self, content: Content<'static>) {
        self.emit(UiKind::of(&content), UiContent::Entry(Box::new(content)));
    }

    fn activity(&mut self, thread_id: String, turn_id: Option<String>, activity: Activity) {
        let place = ItemPlace { thread_id: Some(thread_id), turn_id, item_id: None };
        self.emit_at(place, UiKind::Activity, UiContent::Activity { activity });
    }

    fn status(&mut self, subject: Ended, status: &str) {
        self.tell(Content::Status(EndDocument { subject: Some(subject), ..EndDocument::of_status(status) }));
    }

    fn delta(&mut self, kind: UiKind, part: Option<&'static str>, delta: &str) {
        self.emit(kind, UiContent::Delta(Delta { part, delta: delta.to_owned() }));
    }

    /// Events of a step that is not of a message of the server.
    fn change_without_message(&mut self, step: &Step<'_>) {
        if let Change::RunEnded = step.change {
            for (thread_id, turn) in step.lost.turns.iter().filter(|(id, turn)| id.is_some() && turn.is_at_work()) {
                let Turn { id: Some(turn_id), .. } = &**turn else { continue };
                let end = TurnEnd::unreported(step.lost_code()).document();
                let end = Content::Status(EndDocument { subject: Some(Ended::Turn), ..end });
                let place = ItemPlace { thread_id: thread_id.clone(), turn_id: Some(turn_id.clone()), item_id: None };
                self.emit_at(place, UiKind::Status, UiContent::Entry(Box::new(end)));
            }
        } else if let Change::Resolved(request, end) = &step.change {
            self.closed(request, end.clone());
        } else if let Change::Answered { id, call, result, error } = &step.change {
            if let (Some(Call { thread_id, overrules: Some(overruled), .. }), None) = (call, error) {
                self.overruled(thread_id.clone(), overruled);
            }
            self.answered(id, call.as_ref(), (*result, *error));
        }
    }

    fn message(&mut self, message: &MethodMessage<'_>, step: &Step<'_>) {
        step.lost.requests.iter().for_each(|request| self.closed(request, End::not_followed()));
        match &step.change {
            Change::None | Change::RunEnded | Change::Answered { .. } => {}
            Change::TurnStarted { .. } => self.status(Ended::Turn, "in_progress"),
            Change::TurnEnded { end, .. } => {
                self.tell(Content::Status(EndDocument { subject: Some(Ended::Turn), ..end.document() }));
            }
            Change::Piece(delta) => self.piece(message, delta),
            Change::ItemStarted { item, .. } => self.item_started(item),
            Change::ItemCompleted { item, .. } => self.item_completed(item),
            Change::SummaryPart => self.delta(UiKind::ReasoningDelta, Some("summary"), "\n\n"),
            Change::Progress(params) => {
                let text = |name: &str| params[name].as_str().map(str::to_owned);
                let changes = params.get("changes").filter(|changes| !changes.is_null()).cloned();
                let progress = UiContent::Progress(Progress { delta: text("message"), stdin: text("stdin"), changes });
                self.emit(UiKind::ToolDelta, progress);
            }
            Change::Diff { text, snapshot } => {
                let (diff_id, supersedes) = (snapshot.diff_id.clone(), snapshot.supersedes.clone());
                let (diff_id, supersedes) = (diff_id.into(), supersedes.map(Cow::Owned));
                self.tell(Content::Diff(TurnDiff { diff_id, supersedes, text: text.clone().into() }));
            }
            Change::Plan => {
                let plan: Value = message.params.read().unwrap_or_default();
                self.tell(Content::Plan(PlanDocument::of(&plan)));
            }
            Change::Usage(usage) => self.tell(Content::Usage(*usage)),
            Change::Compacted { by_item: true } => {}
            Change::Compacted { by_item: false } => self.status(Ended::Compaction, "completed"),
            Change::Error { failure, will_retry } => {
                let message = Some(failure.message.clone().unwrap_or_default().into());
                let (error_code, will_retry) = (failure.code.clone().map(Cow::Owned), Some(*will_retry));
                self.tell(Content::Error(ErrorDocument { text: None, message, error_code, will_retry }));
            }
            Change::Asked(id) => {
                if let Some(request) = self.conversation.request(id) {
                    self.opened(request, &message.params.read().unwrap_or_default());
                }
            }
            Change::Review { review, .. } => {
                self.emit(UiKind::AutoReview, UiContent::Review(Box::new(review.document.clone())));
            }
            Change::Resolved(request, end) => self.closed(request, end.clone()),
        }
    }

    /// A piece of an item.
    fn piece(&mut self, message: &MethodMessage<'_>, delta: &str) {
        match message.known {
            Some(Method::AgentMessageDelta) => self.delta(UiKind::AssistantDelta, None, delta),
            Some(Method::ReasoningSummaryTextDelta) => self.delta(UiKind::ReasoningDelta, Some("summary"), delta),
            Some(Method::ReasoningTextDelta) => self.delta(UiKind::ReasoningDelta, Some("content"), delta),
            Some(Method::PlanDelta) => self.delta(UiKind::Plan, None, delta),
            _ if message.method.starts_with("item/") => self.delta(UiKind::ToolDelta, None, delta),
            _ => {}
        }
    }

    fn item_started(&mut self, item: &ThreadItem) {
        match item.kind {
            ItemKind::User | ItemKind::Assistant | ItemKind::Reasoning | ItemKind::Plan | ItemKind::Aside => {}
            ItemKind::Compaction => self.status(Ended::Compaction, "in_progress"),
            ItemKind::Command | ItemKind::FileChange | ItemKind::Tool => {
                self.emit(UiKind::ToolBegin, UiContent::Begun(Box::new(item.document())));
                // A request may come before the start of its item.
                if let Some(request) = self.conversation.request_about(&self.place) {
                    self.opened(request, &Value::Null);
                }
            }
        }
    }

    fn item_completed(&mut self, item: &ThreadItem) {
        match item.kind {
            ItemKind::Compaction => self.status(Ended::Compaction, "completed"),
            ItemKind::Aside => {}
            ItemKind::User
            | ItemKind::Assistant
            | ItemKind::Reasoning
            | ItemKind::Plan
            | ItemKind::Command
            | ItemKind::FileChange
            | ItemKind::Tool => {
                let mut content = item.content();
                if let Content::User(said) = &mut content {
                    said.role = Some("user");
                }
                self.tell(content);
            }
        }
    }

    fn answered(&mut self, id: &RpcId, call: Option<&Call>, (result, error): (Option<&RawValue>, Option<&RawValue>)) {
        let id = match id {
            RpcId::Text(text) if text.starts_with(OWN_IDS) => return,
            RpcId::Integer(integer) => Value::from(*integer),
            RpcId::Text(text) => Value::from(text.as_str()),
            RpcId::Other(raw) => serde_json::from_str(raw).unwrap_or_default(),
        };
        let method = call.map(|call| call.method.clone());
        let place = ItemPlace { thread_id: call.and_then(|call| call.thread_id.clone()), ..ItemPlace::default() };
        match error {
            Some(error) => {
                let error: Value = serde_json::from_str(error.get()).unwrap_or_default();
                let member = |name: &str| error.get(name).filter(|value| !value.is_null()).cloned();
                let (code, message) = (member("code"), member("message"));
                self.emit_at(
                    place,
                    UiKind::RpcError,
                    UiContent::Answer(Box::new(Answer { id, method, code, message, result: None })),
                );
            }
            None => {
                let is_opened = call.and_then(|call| Method::of(&call.method)).is_some_and(Method::opens_thread);
                let opened = result.filter(|_| is_opened).and_then(ThreadDescription::within);
                let is_shown = |result: &&RawValue| result.get().len() <= OUTPUT_BYTES_MAX && result.get() != "null";
                let result = result.filter(is_shown).map(RawValue::to_owned);
                let answer = UiContent::Answer(Box::new(Answer { id, method, code: None, message: None, result }));
                self.emit_at(place, UiKind::RpcResponse, answer);
                if let (Some((thread_id, _)), Some(event)) = (opened, self.out.last_mut()) {
                    let kind = self.conversation.identities.kind(&thread_id);
                    event.thread_kind = Some(kind).filter(|kind| !kind.is_user());
                }
            }
        }
    }

    fn overruled(&mut self, thread_id: Option<String>, overruled: &Overruled) {
        let Overruled { review_id, turn_id, text, .. } = overruled.clone();
        let place = ItemPlace { thread_id, turn_id, item_id: None };
        let detail = UiContent::Overruled(Overruling { review_id, status: OVERRULED, subject: text });
        self.emit_at(place, UiKind::AutoReview, detail);
    }

    fn opened(&mut self, request: &Request, params: &Value) {
        let details = self.conversation.tool_at(&request.place).and_then(|tool| tool.details.as_ref());
        let pending = Pending::of(request, params, details);
        self.emit(kind(request), UiContent::Pending(Box::new(pending)));
    }

    fn closed(&mut self, request: &Request, end: End) {
        let End { status, decision, source, error_code, not_sent, .. } = end;
        let resolved = ApprovalDocument {
            request_id: request.request_id.clone().map(Cow::Owned),
            kind: request.wanted.name().into(),
            status: status.map(Cow::Owned),
            decision: decision.map(Cow::Owned),
            source: source.map(Cow::Owned),
            error_code: error_code.map(Cow::Owned),
            not_sent: not_sent.map(Cow::Owned),
            ..ApprovalDocument::default()
        };
        self.emit_at(request.place.clone(), kind(request), UiContent::Entry(Box::new(Content::Approval(resolved))));
    }
}

fn kind(request: &Request) -> UiKind {
    match request.wanted.need() {
        Need::Permission => UiKind::Approval,
        Need::Input => UiKind::UserInput,
    }
}

impl Pending {
    /// The request of an entry, as far as that has it.
    pub fn of_entry(entry: &Entry<'_>) -> Option<Pending> {
        let Content::Approval(request) = &entry.content else { return None };
        let own = |text: &Option<Cow<'_, str>>| text.as_deref().map(str::to_owned);
        (request.kind != AUTO_REVIEW).then(|| Pending {
            status: "pending",
            request_id: own(&request.request_id),
            kind: protocol::of_name(&request.kind),
            command: own(&request.command),
            reason: own(&request.reason),
            ..Pending::default()
        })
    }

    fn of(request: &Request, params: &Value, item: Option<&ToolDetails>) -> Pending {
        let text = |name: &str| params[name].as_str().map(str::to_owned);
        let member = |name: &str| {
            params.get(name).filter(|value| !value.is_null()).map(|value| bounded(value, OUTPUT_BYTES_MAX))
        };
        let changes = item.and_then(|item| serde_json::from_str(item.changes.as_deref()?).ok());
        let Request { request_id, wanted, command, cwd, reason, decisions, decisions_left_out, .. } = request.clone();
        Pending {
            status: "pending",
            request_id,
            kind: Some(wanted),
            command: command.or_else(|| item?.command.clone()),
            cwd: cwd.or_else(|| item?.cwd.clone()),
            reason,
            changes: changes.or_else(|| own_changes(params)),
            grant_root: text("grantRoot"),
            permissions: member("permissions"),
            questions: member("questions"),
            message: request.text.clone().filter(|_| wanted == Subject::Elicitation),
            schema: member("requestedSchema"),
            server: text("serverName"),
            mode: text("mode"),
            url: text("url"),
            decisions: Some(decisions).filter(|decisions| !decisions.is_empty()),
            decisions_left_out: Some(decisions_left_out).filter(|left_out| *left_out > 0),
        }
    }
}

/// The changes that a request has itself, in the form of an item's.
fn own_changes(params: &Value) -> Option<Value> {
    let changes = Some(protocol::own_changes(params)).filter(|changes| !changes.is_null())?;
    let one =
        |change: FileChange<'_>| json!({ "path": change.path, "kind": { "type": change.kind }, "diff": change.diff });
    Some(FileChange::all(changes).into_iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::properties::{records, ui_events};

    fn as_json<T: serde::de::DeserializeOwned>(event: &UiEvent) -> T {
        serde_json::from_str(&serde_json::to_string(event).expect("plain data")).expect("it is JSON")
    }

    fn name(kind: UiKind) -> String {
        serde_json::to_value(kind).expect("plain data").as_str().unwrap_or_default().to_owned()
    }

    /// A line of `expect` is the type and content of an event, without its place and time. Activity events are compared
    /// only if expected.
    fn check(playbook: &str, expect: &str) {
        let expect: Vec<&str> = expect.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let wants_activity = expect.iter().any(|line| line.starts_with("activity"));
        let actual = ui_events(&records(playbook)).into_iter();
        let actual = actual.filter(|event| wants_activity || event.kind != UiKind::Activity).map(|event| {
            let mut json: serde_json::Map<String, Value> = as_json(&event);
            ["type", "ts", "thread_id", "turn_id", "item_id"].iter().for_each(|name| drop(json.remove(*name)));
            format!("{} {}", name(event.kind), Value::Object(json))
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
    fn events_name_the_kind_of_a_thread_of_no_person() {
        let thread = |members: &str| format!(r#"{{"thread":{{"id":"t"{members}}}}}"#);
        for (members, expect) in [
            ("", Value::Null),
            (r#","threadSource":"user""#, Value::Null),
            (r#","ephemeral":true,"threadSource":"thread_title""#, "title".into()),
            (r#","source":{"subAgent":{"thread_spawn":{}}}"#, "subagent".into()),
            (r#","source":{"subAgent":{"other":"guardian"}}"#, "guardian".into()),
        ] {
            let thread = thread(members);
            let started = format!(r#"<< {{"method":"thread/started","params":{thread}}}"#);
            let said = notification("item/completed", r#""item":{"id":"i","type":"agentMessage","text":"x"}"#);
            let call = r#">> {"id":1,"method":"thread/resume","params":{"threadId":"t"}}"#;
            let answered = format!(r#"<< {{"id":1,"result":{thread}}}"#);
            for playbook in [format!("{started}\n{said}"), format!("{call}\n{answered}\n{said}")] {
                for event in ui_events(&records(&playbook)) {
                    let json: Value = as_json(&event);
                    assert_eq!(json["thread_kind"], expect, "{members} {json}");
                }
            }
        }
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
        let id = |text: &str| format!("t:u:{}", crate::history::diffs::digest(text));
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
            let actual: Vec<Value> = actual.map(|event| as_json(&event)).collect();
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
    fn renamed_request_ends_under_its_new_name() {
        let pending = r#"approval {"decisions":["accept","acceptForSession","decline","cancel"],"kind":"diff","request_id":"g-0","status":"pending"}"#;
        let renamed = r#"request_renamed {"request_id":"g-0.2","before":"g-0"}"#;
        let ends =
            r#"approval {"decision":"accept","kind":"diff","request_id":"g-0.2","source":"api","status":"resolved"}"#;
        let actual = format!("{ASKS}\n{renamed}\n{}", ENDS.replace("g-0", "g-0.2"));
        check(&actual, &format!("{pending}\n{ends}"));
        // The next request does not get the name.
        let next = ASKS.replace("\"id\":0", "\"id\":1").lines().last().unwrap_or_default().to_owned();
        let unnamed = pending.replace("\"request_id\":\"g-0\",", "");
        check(&format!("{ASKS}\n{renamed}\n{next}"), &format!("{pending}\n{unnamed}"));
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
    fn overruling_is_an_event() {
        let call = |id: &str, end: &str| {
            let action = r#"{"type":"command","command":"TOKEN=hunter22 ls"}"#;
            let event = format!(r#"{{"id":"r","turn_id":"u","action":{action}}}"#);
            let method = "thread/approveGuardianDeniedAction";
            format!(
                ">> {{\"id\":{id},\"method\":\"{method}\",\"params\":{{\"threadId\":\"t\",\"event\":{event}}}}}\n<< {{\"id\":{id},{end}}}"
            )
        };
        let overruled = r#"auto_review {"review_id":"r","status":"overruled","subject":"TOKEN=[redacted] ls"}"#;
        let method = r#""method":"thread/approveGuardianDeniedAction""#;
        // Of a client, and of ours.
        check(
            &call("1", r#""result":{}"#),
            &format!("{overruled}\nrpc_response {{\"id\":1,{method},\"result\":{{}}}}"),
        );
        check(&call("\"codex-shim:0a:c1\"", r#""result":{}"#), overruled);
        check(&call("\"codex-shim:0a:c1\"", r#""error":{"code":-1,"message":"m"}"#), "");
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
