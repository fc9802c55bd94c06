//! The transcript of a thread for readers: finished entries only.
//!
//! The server reports an entry when it happens, and again whenever a client reads the thread. Two entries with the same
//! identity are one, as far as remembered. Keys are masked in entries and in stored state; ids of diffs and errors
//! derive from the text before masking.
//!
//! The `codex/event/*` notifications of early 2026 are ignored, because current notifications report the same.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::activity::StatusKind;
use super::approval::{Ask, Asked, End};
use super::bounded::{Bounded, Weigh};
use super::diff::{Came, Diffs, digest};
use super::failure::{Failure, STREAM_CLOSED};
use super::item::{Item, ItemKind};
use super::masked::{masked_json, masked_params};
use super::object::Object;
use super::reading::ThreadRead;
use super::recent::{Met, Recent};
use super::record_event::{MethodMessage, Params, RecordEvent, Seen};
use super::time::rfc3339_millis;
use super::usage::Usage;
use crate::protocol::Method;

/// Longest plan stored until the end of its turn, in bytes; a longer one is left out.
const PLAN_BYTES_MAX: usize = 64 << 10;

/// A line of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub thread_id: String,
    /// Entries of one thread with the same identity are one.
    pub identity: String,
    /// The entry as JSON.
    pub json: String,
}

/// State between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Transcript {
    /// Running turns, by thread and turn.
    turns: Bounded<(String, String), Turn>,
    /// Calls whose response has a thread, by call id.
    reads: Bounded<String, String>,
    asked: Asked,
    diffs: Diffs,
    /// Emitted entries, by thread and identity.
    given: Recent,
    /// Ended turns.
    ended: Recent,
    /// Turns recorded from beginning to end: a thread read adds nothing to them.
    whole: Recent,
    /// Texts recorded live, by thread, role and text.
    #[serde(rename = "told")]
    seen_live: Recent,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Turn {
    began_us: u64,
    known: Known,
    /// Its thread is idle, so it has ended; the outcome is not known yet.
    is_over: bool,
    /// Number of its items so far.
    items: u64,
    /// It reports its compaction by an item, so other reports are ignored.
    compacts: bool,
    plan: Option<String>,
    usage: Option<Usage>,
}

/// How much of a running turn was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Known {
    Whole,
    /// Something is missing.
    #[default]
    Part,
}

/// The place of an entry.
#[derive(Clone, Copy)]
struct Spot<'a> {
    at_us: u64,
    event: &'a str,
    thread_id: &'a str,
    turn_id: Option<&'a str>,
    /// The turn's name, unique within the thread.
    turn: &'a str,
}

impl Spot<'_> {
    fn object(&self, role: &str, item_id: Option<&str>) -> Object {
        let object = Object::new().with("ts", rfc3339_millis(self.at_us)).with("role", role);
        object.with_some("item_id", item_id).with("event", self.event).with_some("turn_id", self.turn_id)
    }
}

impl Weigh for Turn {
    fn weight(&self) -> usize {
        size_of::<Turn>() + self.plan.weight()
    }
}

impl Transcript {
    /// Processes a record, and appends the new entries.
    pub(super) fn take(&mut self, seen: &Seen<'_>, entries: &mut Vec<Entry>) {
        match &seen.event {
            RecordEvent::Notification(message) => self.message(seen.at_us, message, entries),
            RecordEvent::ServerRequest { message, id } => {
                let mut gone = Vec::new();
                let masked = masked_params(message.params);
                let params = masked.as_deref().map_or(message.params, Params::Written);
                let message = MethodMessage {
                    method: message.method.clone(),
                    known: message.known,
                    params,
                    place: message.place.clone(),
                };
                self.asked.asked(&message, id, &mut gone);
                gone.iter().for_each(|ask| self.resolved(seen.at_us, ask, &End::not_followed(), entries));
            }
            RecordEvent::ClientRequest { message, id } => {
                if matches!(message.known, Some(Method::ThreadResume | Method::ThreadRead | Method::ThreadFork)) {
                    self.reads.insert(id.to_string(), message.method.clone().into_owned());
                }
            }
            RecordEvent::Response { id, result, error: _ } => {
                if !self.reads.is_empty()
                    && let (Some(method), Some(result)) = (self.reads.remove(&id.to_string()), result)
                {
                    self.read(seen.at_us, &method, result, entries);
                }
            }
            RecordEvent::ShimEvent { event, data } => {
                if let Some((ask, end)) = self.asked.noted(event, *data) {
                    self.resolved(seen.at_us, &ask, &end, entries);
                }
            }
            RecordEvent::Gap { .. } => {
                for (key, turn) in self.turns.take_all() {
                    self.turns.insert(key, Turn { known: Known::Part, ..turn });
                }
            }
            RecordEvent::Generation(_) | RecordEvent::Other => {}
        }
    }

    /// The child has ended, so running turns have failed.
    pub(super) fn run_ended(&mut self, at_us: u64, entries: &mut Vec<Entry>) {
        for ((thread_id, turn_id), turn) in self.turns.take_all() {
            let name = turn_name(&turn_id, Some(&turn));
            let (thread_id, turn_id) = (&*thread_id, Some(&*turn_id));
            let spot = Spot { at_us, event: "generation_ended", thread_id, turn_id, turn: &name };
            self.rest(spot, &turn, entries);
            if !turn.is_over {
                let object = spot.object("status", None).with("status", "failed").with("error_code", STREAM_CLOSED);
                self.push(spot, &format!("{name}//status"), object, entries);
            }
        }
        // Call ids start over.
        self.reads = Bounded::default();
    }

    fn message(&mut self, at_us: u64, message: &MethodMessage<'_>, entries: &mut Vec<Entry>) {
        let (Some(thread_id), None) = (message.place.thread_id.as_deref(), &message.place.delta) else { return };
        let turn_id = message.place.turn_id.as_deref();
        let key = turn_id.map(|turn_id| (thread_id.to_owned(), turn_id.to_owned()));
        match (message.known, key) {
            (Some(Method::TurnStarted), Some(key)) => self.turn_started(at_us, key, entries),
            (Some(Method::ItemStarted), Some(key)) => self.item_started(at_us, key, message, entries),
            (Some(Method::PlanUpdated), Some(key)) => {
                let plan = message.params.written().map(|params| masked_json(params.get().to_owned()));
                let plan = plan.filter(|plan| plan.len() <= PLAN_BYTES_MAX);
                let changed = self.turns.change(&key, |turn| turn.plan = plan);
                let gone = changed.map(|((), gone)| gone).unwrap_or_default();
                self.unreported(at_us, &message.method, gone, entries);
            }
            (Some(Method::TokenUsageUpdated), Some(key)) => {
                if let Some(usage) = Usage::of(message.params) {
                    self.turns.change(&key, |turn| turn.usage = Some(usage));
                }
            }
            (Some(Method::ThreadStatusChanged), _) => self.thread_status(thread_id, message),
            (Some(method @ (Method::ItemCompleted | Method::DiffUpdated | Method::ThreadCompacted)), key)
            | (Some(method @ (Method::Error | Method::TurnCompleted)), key) => {
                let turn = key.as_ref().and_then(|key| self.turns.get(key));
                let name = turn_id.map(|turn_id| turn_name(turn_id, turn)).unwrap_or_default();
                let spot = Spot { at_us, event: &message.method, thread_id, turn_id, turn: &name };
                match Some(method) {
                    Some(Method::ItemCompleted) => self.item_completed(spot, message, entries),
                    Some(Method::DiffUpdated) => self.diff(spot, message, entries),
                    Some(Method::ThreadCompacted) => self.compacted(spot, entries),
                    Some(Method::Error) => self.error(spot, message, entries),
                    _ => self.turn_completed(spot, message, entries),
                }
            }
            _ => {}
        }
    }

    fn turn_started(&mut self, at_us: u64, key: (String, String), entries: &mut Vec<Entry>) {
        // A thread runs one turn at a time, so any other turn has ended unreported.
        let others = self.turns.take_if(|(thread_id, turn_id), _| *thread_id == key.0 && *turn_id != key.1);
        self.unreported(at_us, Method::TurnStarted.name(), others, entries);
        if self.turns.get(&key).is_none() {
            let gone = self.turns.insert(key, Turn { began_us: at_us, known: Known::Whole, ..Turn::default() });
            self.unreported(at_us, Method::TurnStarted.name(), gone, entries);
        }
    }

    /// Ends turns without a reported end, or evicted because too many are running.
    fn unreported(&mut self, at_us: u64, event: &str, turns: Vec<((String, String), Turn)>, entries: &mut Vec<Entry>) {
        for ((thread_id, turn_id), turn) in turns {
            let name = turn_name(&turn_id, Some(&turn));
            let spot = Spot { at_us, event, thread_id: &thread_id, turn_id: Some(&turn_id), turn: &name };
            self.rest(spot, &turn, entries);
        }
    }

    /// An item may be the first record of a turn; one after the end of its turn does not restart it.
    fn item_started(
        &mut self,
        at_us: u64,
        key: (String, String),
        message: &MethodMessage<'_>,
        entries: &mut Vec<Entry>,
    ) {
        if self.turns.get(&key).is_none() && !self.ended.knows(&[&key.0, &key.1]) {
            let gone = self.turns.insert(key.clone(), Turn { began_us: at_us, ..Turn::default() });
            self.unreported(at_us, Method::ItemStarted.name(), gone, entries);
        }
        let is_compaction = || item(message).is_some_and(|item| item.kind == ItemKind::Compaction);
        self.turns.change(&key, |turn| turn.compacts |= is_compaction());
    }

    fn thread_status(&mut self, thread_id: &str, message: &MethodMessage<'_>) {
        if !StatusKind::of(message.params).is_some_and(|status| matches!(status.kind.as_str(), "idle" | "notLoaded")) {
            return;
        }
        for (key, turn) in self.turns.take_if(|(of, _), _| of == thread_id) {
            self.turns.insert(key, Turn { is_over: true, ..turn });
        }
    }

    fn item_completed(&mut self, spot: Spot<'_>, message: &MethodMessage<'_>, entries: &mut Vec<Entry>) {
        let Some(item) = item(message) else { return };
        if let Some(turn_id) = spot.turn_id {
            self.turns.change(&(spot.thread_id.to_owned(), turn_id.to_owned()), |turn| {
                turn.items += 1;
                turn.compacts |= item.kind == ItemKind::Compaction;
            });
        }
        if let (Some(role), Some(text)) = (item.kind.role(), item.text()) {
            self.seen_live.meet(&[spot.thread_id, role, &text]);
        }
        self.item(spot, &item, entries);
    }

    fn item(&mut self, spot: Spot<'_>, item: &Item, entries: &mut Vec<Entry>) {
        let item = item.masked();
        let (role, text) = (item.kind.role().unwrap_or("tool"), item.text());
        let spot = Spot { at_us: item.at_us().unwrap_or(spot.at_us), ..spot };
        let object = spot.object(role, item.id());
        let object = match item.kind {
            ItemKind::Assistant | ItemKind::Reasoning | ItemKind::Plan if text.is_none() => return,
            ItemKind::Assistant | ItemKind::Reasoning | ItemKind::Plan => object.with_some("text", text),
            ItemKind::User => object.with("text", text.unwrap_or_default()).with_some("content", item.content_types()),
            ItemKind::Aside => object.with("item_type", item.item_type()).with_some("text", text),
            ItemKind::Compaction => object,
            ItemKind::Command | ItemKind::FileChange | ItemKind::Tool => item.describe(object),
        };
        let identity = format!("{}/{}/{role}", spot.turn, item.id().unwrap_or_default());
        self.push(spot, &identity, object, entries);
    }

    fn diff(&mut self, spot: Spot<'_>, message: &MethodMessage<'_>, entries: &mut Vec<Entry>) {
        let params: Value = message.params.read().unwrap_or_default();
        let (Some(turn_id), Some(text)) = (spot.turn_id, params["diff"].as_str()) else { return };
        let Some(snapshot) = self.diffs.take(spot.thread_id, turn_id, text) else { return };
        if snapshot.came == Came::First {
            let object = spot.object("diff", None).with("diff_id", &snapshot.diff_id);
            let object = object.with_some("supersedes", snapshot.supersedes).with("text", text);
            self.push(spot, &snapshot.diff_id, object, entries);
        }
    }

    /// Handles the compaction notification, which items have duplicated since early 2026.
    fn compacted(&mut self, spot: Spot<'_>, entries: &mut Vec<Entry>) {
        let key = (spot.thread_id.to_owned(), spot.turn_id.unwrap_or_default().to_owned());
        if !self.turns.get(&key).is_some_and(|turn| turn.compacts) {
            let identity = format!("{}/@{}/context_compacted", spot.turn, spot.at_us);
            self.push(spot, &identity, spot.object("context_compacted", None), entries);
        }
    }

    fn error(&mut self, spot: Spot<'_>, message: &MethodMessage<'_>, entries: &mut Vec<Entry>) {
        let params: Value = message.params.read().unwrap_or_default();
        if params["willRetry"].as_bool() == Some(true) {
            return;
        }
        let Failure { message, code } = Failure::of(&params["error"]);
        let message = message.unwrap_or_default();
        let identity = match spot.turn_id {
            Some(_) => format!("{}/{}/error", spot.turn, digest(&message)),
            None => format!("/@{}/error", spot.at_us),
        };
        let object = spot.object("error", None).with("text", message).with_some("error_code", code);
        self.push(spot, &identity, object, entries);
    }

    fn turn_completed(&mut self, spot: Spot<'_>, message: &MethodMessage<'_>, entries: &mut Vec<Entry>) {
        let Some(turn_id) = spot.turn_id else { return };
        if let Some(turn) = self.turns.remove(&(spot.thread_id.to_owned(), turn_id.to_owned())) {
            self.rest(spot, &turn, entries);
            if turn.items > 0 && turn.known == Known::Whole {
                self.whole.meet(&[spot.thread_id, turn_id]);
            }
        }
        self.ended.meet(&[spot.thread_id, turn_id]);
        let params: Value = message.params.read().unwrap_or_default();
        self.status(spot, &params["turn"], entries);
    }

    fn status(&mut self, spot: Spot<'_>, turn: &Value, entries: &mut Vec<Entry>) {
        let Failure { message, code } = Failure::of(&turn["error"]);
        let object = spot.object("status", None).with("status", turn["status"].as_str().unwrap_or("completed"));
        let object = object.with_some("duration_ms", turn.get("durationMs"));
        let object = object.with_some("error_code", code).with_some("error_message", message);
        self.push(spot, &format!("{}//status", spot.turn), object, entries);
    }

    /// Emits the entries that belong to the end of a turn.
    fn rest(&mut self, spot: Spot<'_>, turn: &Turn, entries: &mut Vec<Entry>) {
        let plan = turn.plan.as_deref().and_then(|plan| serde_json::from_str::<Value>(plan).ok());
        if let Some(plan) = plan {
            let object = steps(spot.object("plan", None), &plan);
            self.push(spot, &format!("{}//plan", spot.turn), object, entries);
        }
        if let Some(usage) = turn.usage {
            let object = usage.describe(spot.object("token_usage", None));
            self.push(spot, &format!("{}//token_usage", spot.turn), object, entries);
        }
    }

    fn resolved(&mut self, at_us: u64, ask: &Ask, end: &End, entries: &mut Vec<Entry>) {
        let (Some(thread_id), Some(request_id)) = (&ask.thread_id, &ask.request_id) else { return };
        let turn_id = ask.turn_id.as_deref();
        let spot = Spot { at_us, event: "request_resolved", thread_id, turn_id, turn: "" };
        let object = ask.describe(spot.object("approval", ask.item_id.as_deref())).with_some("text", ask.text.as_ref());
        self.push(spot, &format!("/{request_id}/approval"), end.describe(object), entries);
    }

    /// A client has read a thread; adds the entries that were not recorded live.
    fn read(&mut self, at_us: u64, method: &str, result: &RawValue, entries: &mut Vec<Entry>) {
        let Some(read) = ThreadRead::of(result) else { return };
        for turn in read.turns {
            if self.whole.knows(&[&read.thread_id, &turn.turn_id]) {
                continue;
            }
            let (thread_id, turn_id) = (&*read.thread_id, Some(&*turn.turn_id));
            let at_us = turn.at_us.unwrap_or(at_us);
            let spot = Spot { at_us, event: method, thread_id, turn_id, turn: &turn.turn_id };
            // Until early 2026, items and turns got new ids when they were read again.
            let is_told = |item: &Item| match (item.kind.role(), item.text()) {
                (Some(role), Some(text)) => item.is_numbered() && self.seen_live.knows(&[thread_id, role, &text]),
                (_, _) => false,
            };
            let fresh: Vec<&Item> = turn.items.iter().filter(|item| !is_told(item)).collect();
            if fresh.is_empty() && !turn.items.is_empty() {
                continue;
            }
            fresh.into_iter().for_each(|item| self.item(spot, item, entries));
            self.status(spot, &turn.rest, entries);
        }
    }

    fn push(&mut self, spot: Spot<'_>, identity: &str, object: Object, entries: &mut Vec<Entry>) {
        if self.given.meet(&[spot.thread_id, identity]) == Met::First {
            let thread_id = spot.thread_id.to_owned();
            entries.push(Entry { thread_id, identity: identity.to_owned(), json: masked_json(object.finish()) });
        }
    }
}

impl ItemKind {
    /// The speaker or entry type; `None` for tools.
    fn role(self) -> Option<&'static str> {
        match self {
            ItemKind::User => Some("user"),
            ItemKind::Assistant => Some("assistant"),
            ItemKind::Reasoning => Some("reasoning"),
            ItemKind::Plan => Some("plan"),
            ItemKind::Compaction => Some("context_compacted"),
            ItemKind::Command => Some("command"),
            ItemKind::FileChange => Some("file_change"),
            ItemKind::Aside | ItemKind::Tool => None,
        }
    }
}

/// The item of a notification.
pub(super) fn item(message: &MethodMessage<'_>) -> Option<Item> {
    #[derive(Deserialize)]
    struct Holds<'a> {
        #[serde(borrow)]
        item: &'a RawValue,
    }
    Item::read(message.params.read::<Holds<'_>>()?.item)
}

/// Adds the steps of a plan.
pub(super) fn steps(object: Object, plan: &Value) -> Object {
    let status = |status: &Value| match status.as_str() {
        Some("inProgress") => Value::from("in_progress"),
        Some(_) | None => status.clone(),
    };
    let steps: Vec<Value> = plan["plan"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|step| serde_json::json!({ "step": step["step"], "status": status(&step["status"]) }))
        .collect();
    object.with("steps", steps).with_some("explanation", plan["explanation"].as_str())
}

/// The name of a turn in its thread. Until early 2026, turns were numbered from 0 in every run of the server.
fn turn_name(turn_id: &str, turn: Option<&Turn>) -> String {
    match turn {
        Some(turn) if turn_id.bytes().all(|byte| byte.is_ascii_digit()) => format!("{turn_id}@{}", turn.began_us),
        Some(_) | None => turn_id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tapes::{entries, records};

    /// A line of `expect` is the identity and content of an entry, without members that repeat the identity or the
    /// time.
    fn check(playbook: &str, expect: &str) {
        let actual = entries(&records(playbook)).into_iter().map(|entry| {
            let mut json: serde_json::Map<String, Value> = serde_json::from_str(&entry.json).expect("it is JSON");
            assert!(entry.thread_id == "t" || entry.thread_id == "f", "{entry:?}");
            ["ts", "role", "event", "turn_id", "item_id"].iter().for_each(|name| drop(json.remove(*name)));
            format!("{} {}", entry.identity, Value::Object(json))
        });
        let expect: Vec<&str> = expect.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(actual.collect::<Vec<_>>(), expect);
    }

    /// An item completed in turn `u`.
    fn item(members: &str) -> String {
        let params = format!(r#"{{"threadId":"t","turnId":"u","item":{{{members}}}}}"#);
        format!(r#"<< {{"method":"item/completed","params":{params}}}"#)
    }

    #[test]
    fn roles() {
        let said = |members: &str, expect: &str| check(&item(members), expect);
        said(r#""type":"agentMessage","id":"i","text":"a\nb""#, r#"u/i/assistant {"text":"a\nb"}"#);
        said(r#""type":"agentMessage","id":"i","text":"""#, "");
        said(r#""type":"plan","id":"i","text":"p""#, r#"u/i/plan {"text":"p"}"#);
        said(
            r#""type":"reasoning","id":"i","summary":["a","b"],"content":["c"]"#,
            r#"u/i/reasoning {"text":"a\n\nb"}"#,
        );
        said(r#""type":"reasoning","id":"i","summary":[],"content":["c"]"#, r#"u/i/reasoning {"text":"c"}"#);
        said(r#""type":"reasoning","id":"i","summary":[],"content":[]"#, "");
        said(r#""type":"contextCompaction","id":"i""#, "u/i/context_compacted {}");
        said(
            r#""type":"hookPrompt","id":"i","fragments":[{"text":"x","hookRunId":"h"}]"#,
            r#"u/i/tool {"item_type":"hookPrompt","text":"x"}"#,
        );
        said(
            r#""type":"fileChange","id":"i","status":"completed","changes":[{"path":"/a"}]"#,
            r#"u/i/file_change {"changes":[{"path":"/a"}],"is_error":false,"item_type":"fileChange","status":"completed"}"#,
        );
        said(
            r#""type":"mcpToolCall","id":"i","server":"s","tool":"w","arguments":{"a":1},"error":{"message":"no"},"status":"failed","durationMs":3"#,
            r#"u/i/tool {"arguments":{"a":1},"duration_ms":3,"error_message":"no","is_error":true,"item_type":"mcpToolCall","server":"s","status":"failed","tool":"w"}"#,
        );
        said(
            r#""type":"newThing","id":"i","what":"x","startedAtMs":1"#,
            r#"u/i/tool {"details":{"what":"x"},"item_type":"newThing"}"#,
        );
    }

    #[test]
    fn user_messages_list_text_and_images() {
        let said = |content: &str, expect: &str| {
            check(&item(&format!(r#""type":"userMessage","id":"i","content":[{content}]"#)), expect);
        };
        said(r#"{"type":"text","text":"a"},{"type":"text","text":"b"}"#, r#"u/i/user {"text":"a\nb"}"#);
        said(
            r#"{"type":"image","url":"data:image/png;base64,AAAA"},{"type":"text","text":"a"}"#,
            r#"u/i/user {"content":["image","text"],"text":"a"}"#,
        );
        said(r#"{"type":"localImage","path":"/a.png"}"#, r#"u/i/user {"content":["localImage"],"text":""}"#);
    }

    #[test]
    fn secrets_are_masked() {
        let said = r#""type":"agentMessage","id":"i","text":"export TOKEN=abcdefghijk""#;
        check(&item(said), r#"u/i/assistant {"text":"export TOKEN=[redacted]*"}"#);
    }

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let output = format!("{}b", "a".repeat(64 << 10));
        let line = item(&format!(
            r#""type":"commandExecution","id":"i","command":"ls","cwd":"/","status":"failed","exitCode":1,"aggregatedOutput":"{output}""#
        ));
        let entries = entries(&records(&line));
        let json: Value = serde_json::from_str(&entries[0].json).expect("it is JSON");
        assert_eq!(json["output"].as_str(), Some(&output[1..]));
        assert_eq!((json["output_truncated_by_bytes"].as_u64(), json["exit_code"].as_i64()), (Some(1), Some(1)));
    }

    #[test]
    fn same_entry_is_emitted_once() {
        let said = item(r#""type":"agentMessage","id":"i","text":"a""#);
        check(&format!("{said}\n{said}"), r#"u/i/assistant {"text":"a"}"#);
        let old = r#"<< {"method":"codex/event/agent_message","params":{"conversationId":"t","msg":{"type":"agent_message","message":"a"}}}"#;
        check(&format!("{old}\n{said}"), r#"u/i/assistant {"text":"a"}"#);
    }

    #[test]
    fn last_plan_and_usage_follow_turn_end() {
        check(
            r#"
            << {"method":"thread/tokenUsage/updated","params":{"threadId":"t","turnId":"before","tokenUsage":{"last":{},"total":{}}}}
            << {"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}
            << {"method":"turn/plan/updated","params":{"threadId":"t","turnId":"u","plan":[{"step":"a","status":"pending"}]}}
            << {"method":"turn/plan/updated","params":{"threadId":"t","turnId":"u","explanation":"e","plan":[{"step":"a","status":"inProgress"}]}}
            << {"method":"thread/tokenUsage/updated","params":{"threadId":"t","turnId":"u","tokenUsage":{"last":{"totalTokens":1},"total":{"totalTokens":1}}}}
            << {"method":"thread/tokenUsage/updated","params":{"threadId":"t","turnId":"u","tokenUsage":{"last":{"totalTokens":2},"total":{"totalTokens":3},"modelContextWindow":9}}}
            << {"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}
            << {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"failed","durationMs":5,"error":{"message":"m","codexErrorInfo":"other"}}}}
            generation_ended
            "#,
            r#"
            u//plan {"explanation":"e","steps":[{"status":"in_progress","step":"a"}]}
            u//token_usage {"context_window":9,"thread_total":3,"total":2}
            u//status {"duration_ms":5,"error_code":"other","error_message":"m","status":"failed"}
            "#,
        );
    }

    #[test]
    fn open_turn_fails_with_its_child() {
        let started = r#"<< {"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}"#;
        let failed = r#"u//status {"error_code":"app_server_stream_closed","status":"failed"}"#;
        let idle = r#"<< {"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}"#;
        let ended =
            r#"<< {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"completed"}}}"#;
        let item =
            r#"<< {"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"type":"x","id":"i"}}}"#;
        let next = r#"<< {"method":"turn/started","params":{"threadId":"t","turn":{"id":"v"}}}"#;
        check(&format!("{started}\ngeneration_ended\ngeneration_ended"), failed);
        check(&format!("{item}\ngeneration_ended"), failed);
        check(&format!("{started}\n{idle}\ngeneration_ended"), "");
        let odd = idle.replace(r#""idle""#, r#""idle","activeFlags":null"#);
        check(&format!("{started}\n{odd}\ngeneration_ended"), "");
        check(&format!("{started}\n{next}\n{idle}\ngeneration_ended"), "");
        // A record after the end of its turn does not restart it.
        check(&format!("{started}\n{ended}\n{item}\ngeneration_ended"), r#"u//status {"status":"completed"}"#);
        // A different outcome in a later read adds no second entry.
        let read = r#"{"thread":{"id":"t","turns":[{"id":"u","status":"interrupted","items":[]}]}}"#;
        let resumed = format!(
            r#">> {{"id":1,"method":"thread/resume","params":{{"threadId":"t"}}}}
            << {{"id":1,"result":{read}}}"#
        );
        check(&format!("{started}\ngeneration_ended\n{resumed}"), failed);
    }

    #[test]
    fn numbered_turns_of_two_runs_are_two() {
        let run = r#"generation_started
            << {"method":"turn/started","params":{"threadId":"t","turn":{"id":"0"}}}
            << {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"0","status":"completed"}}}
            generation_ended"#;
        check(
            &format!("{run}\n{run}"),
            r#"
            0@1001//status {"status":"completed"}
            0@1005//status {"status":"completed"}
            "#,
        );
    }

    #[test]
    fn errors_that_are_final() {
        let error = |retry: &str| {
            format!(
                r#"<< {{"method":"error","params":{{"threadId":"t","turnId":"u"{retry},"error":{{"message":"m"}}}}}}"#
            )
        };
        check(&error(r#","willRetry":true"#), "");
        check(
            &format!("{}\n{}", error(r#","willRetry":false"#), error("")),
            &format!(r#"u/{}/error {{"text":"m"}}"#, digest("m")),
        );
    }

    #[test]
    fn diffs_name_what_they_supersede() {
        let diff = |text: &str| {
            format!(r#"<< {{"method":"turn/diff/updated","params":{{"threadId":"t","turnId":"u","diff":"{text}"}}}}"#)
        };
        let id = |text: &str| format!("t:u:{}", digest(text));
        check(
            &[diff("a"), diff("a\\n"), diff("b"), diff("a")].join("\n"),
            &format!(
                "{a} {{\"diff_id\":\"{a}\",\"text\":\"a\"}}\n\
                 {b} {{\"diff_id\":\"{b}\",\"supersedes\":\"{a}\",\"text\":\"b\"}}",
                a = id("a"),
                b = id("b")
            ),
        );
    }

    #[test]
    fn compaction_is_emitted_once() {
        let compacted = r#"<< {"method":"thread/compacted","params":{"threadId":"t","turnId":"u"}}"#;
        let started = r#"<< {"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"type":"contextCompaction","id":"i"}}}"#;
        let item = item(r#""type":"contextCompaction","id":"i""#);
        check(compacted, "u/@1000/context_compacted {}");
        check(&format!("{started}\n{compacted}\n{item}"), "u/i/context_compacted {}");
        check(&format!("{started}\n{item}\n{compacted}"), "u/i/context_compacted {}");
    }

    #[test]
    fn requests_appear_after_they_end() {
        check(
            r#"
            generation_started
            request_opened {"request_id":"g-0","request_type":"request_approval"}
            << {"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"i","command":"ls","cwd":"/"}}
            request_opened {"request_id":"g-1","request_type":"request_user_input"}
            << {"id":1,"method":"item/tool/requestUserInput","params":{"threadId":"t","turnId":"u","itemId":"j","questions":[{"question":"Which?","isSecret":true}]}}
            << {"method":"serverRequest/resolved","params":{"threadId":"t","requestId":0}}
            request_resolved {"request_id":"g-0","status":"resolved","source":"api","decision":"decline","error_code":null}
            generation_ended
            request_resolved {"request_id":"g-1","status":"orphaned","source":"server","decision":null,"error_code":"server_exited"}
            request_resolved {"request_id":"g-1","status":"orphaned","source":"server","decision":null,"error_code":"server_exited"}
            "#,
            r#"
            /g-0/approval {"command":"ls","cwd":"/","decision":"decline","kind":"command","request_id":"g-0","source":"api","status":"resolved"}
            /g-1/approval {"error_code":"server_exited","kind":"questions","request_id":"g-1","source":"server","status":"orphaned","text":"Which?"}
            "#,
        );
    }

    const SAID: &str = r#"{"type":"userMessage","id":"i","content":[{"type":"text","text":"a"}],"completedAtMs":5}"#;

    #[test]
    fn reading_a_thread_adds_finished_turns() {
        let read = |method: &str, thread: &str| {
            format!(
                r#">> {{"id":"r","method":"{method}","params":{{"threadId":"t"}}}}
                << {{"id":"r","result":{{"thread":{thread}}}}}"#
            )
        };
        let turns = format!(
            r#"{{"id":"t","turns":[{{"id":"u","status":"completed","completedAt":2,"items":[{SAID}]}},
            {{"id":"v","status":"inProgress","items":[{SAID}]}}]}}"#
        )
        .replace('\n', "");
        let expect = r#"
            u/i/user {"text":"a"}
            u//status {"status":"completed"}
        "#;
        for method in ["thread/resume", "thread/read", "thread/fork"] {
            check(&read(method, &turns), expect);
        }
        check(&read("thread/list", &turns), "");
        check(&format!("{}\n{}", read("thread/read", &turns), read("thread/resume", &turns)), expect);
        check(&read("thread/read", r#"{"id":"t","turns":null}"#), "");
        check(&read("thread/read", "7"), "");
        // A fork's entries belong to the fork.
        let fork = turns.replace(r#"{"id":"t""#, r#"{"id":"f""#);
        check(
            &format!("{}\n{}", read("thread/read", &turns), read("thread/fork", &fork)),
            &format!("{expect}{expect}"),
        );
        let actual = entries(&records(&read("thread/read", &turns)));
        let times: Vec<&str> = actual.iter().map(|entry| &entry.json[7..31]).collect();
        assert_eq!(times, ["1970-01-01T00:00:00.005Z", "1970-01-01T00:00:02.000Z"]);
    }

    #[test]
    fn page_of_turns_is_emitted_oldest_first() {
        let turn =
            |id: &str, began: u64| format!(r#"{{"id":"{id}","status":"completed","startedAt":{began},"items":[]}}"#);
        check(
            &format!(
                r#">> {{"id":"r","method":"thread/resume","params":{{"threadId":"t"}}}}
                << {{"id":"r","result":{{"thread":{{"id":"t","turns":[]}},"initialTurnsPage":{{"data":[{},{}]}}}}}}"#,
                turn("v", 2),
                turn("u", 1)
            ),
            r#"
            u//status {"status":"completed"}
            v//status {"status":"completed"}
            "#,
        );
    }

    #[test]
    fn renamed_items_are_recognized_when_read_again() {
        let live = r#"
            << {"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}
            << {"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"agentMessage","id":"msg_1","text":"a"}}}
            << {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"completed"}}}"#;
        let read = |turn: &str, id: &str| {
            format!(
                r#"{live}
                >> {{"id":1,"method":"thread/resume","params":{{}}}}
                << {{"id":1,"result":{{"thread":{{"id":"t","turns":[{{"id":"{turn}","status":"completed","items":[{{"type":"agentMessage","id":"{id}","text":"a"}}]}}]}}}}}}"#
            )
        };
        let once = "u/msg_1/assistant {\"text\":\"a\"}\nu//status {\"status\":\"completed\"}";
        check(&read("u", "x"), once);
        check(&read("turn-1", "item-1"), once);
        // After a gap, the missing entries come from the thread read.
        let gap = read("u", "x").replacen("\n            << {\"method\":\"item", "\ngap\n<< {\"method\":\"item", 1);
        check(
            &gap,
            "u/msg_1/assistant {\"text\":\"a\"}\nu//status {\"status\":\"completed\"}\nu/x/assistant {\"text\":\"a\"}",
        );
    }
}
