//! Turns the stored events of a session into those of a timeline. Pure.
//!
//! An event becomes the record that it was made of, as far as it is still known, and the fold of the local views reads that. An
//! event has at most the beginning of its parameters: a text that was cut ends with a mark.
//!
//! An event does not name the request that it opens. If two requests are open at once, their outcomes are therefore entries of
//! their own, and no outcome is ascribed to the wrong request. The same holds if a request may be open that is not known here.

use serde_json::{Map, Value, json};

use super::follow::Reader;
use super::wire::{EventMessage, Gap};
use crate::api::{EventDocument, GapPayload};
use crate::engine::RequestKind;
use crate::history::{ApprovalDocument, Content, Seen, UiContent, UiEvent, UiFold, UiKind, mended};
use crate::journal::{Generation, Position, Record, SegmentName};
use crate::protocol::{Listed, Method, PLACE_MEMBERS};
use crate::sessions::entry::Happening;
use crate::sessions::timeline::SessionEvent;
use crate::text::parsed_us;

/// The end of a text that the host has cut.
pub(super) const CUT: &str = " … (the rest stays on the host)";

/// The state between two messages.
#[derive(Default)]
pub(super) struct Feed {
    reader: Reader,
    ui: UiFold,
    generation: Option<String>,
    open: Vec<Open>,
    /// Requests that were open at once and have ended since.
    ended: usize,
    asked: u64,
    /// The beginning of the ids of this run's requests, once it is known. It names the run of the server, which is another one than
    /// that of a hub.
    ids: Option<String>,
    /// Such beginnings of earlier runs.
    earlier: Vec<String>,
    /// Whether the session is a hub; `None` at the level `summary`.
    is_hub: Option<bool>,
    /// Whether each request that can be open is in `open`: nothing is missing since the run began. Otherwise, an
    /// outcome may belong to a request that is not known here, so no request gets it.
    is_whole: bool,
}

/// A request without an outcome.
struct Open {
    id: String,
    thread: Option<String>,
    turn: Option<String>,
    item: Option<String>,
}

/// Whose an outcome is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// That of an open request.
    Known,
    /// That of a request of another run.
    OfOtherRun,
    /// Perhaps that of a request that is not known here.
    Unknown,
}

/// Open requests that are remembered.
const OPEN_MAX: usize = 500;

/// Earlier runs that are remembered.
const EARLIER_MAX: usize = 8;

/// Ends of the names of notifications that are not known here.
const OF_NOTIFICATIONS: [&str; 5] = ["ed", "elta", "progress", "arning", "otice"];

/// Why the outcome of a request is not known.
const MISSING: &str = "unknown, as events are missing";
const MIXED: &str = "unknown, as its outcome cannot be told from others";
const TOO_MANY: &str = "unknown, as too many requests are open";

/// Shown as the answerer of a request whose outcome may be any of several entries.
const ONE_OF_SEVERAL: &str = "one of the outcomes below";

/// The place of a stored message in a timeline.
pub(super) fn place(number: u64) -> Position {
    let generation = Generation::parse("000000000000").expect("BUG: these are 12 hex digits");
    Position { segment: SegmentName { generation, number: 1 }, offset: number }
}

impl Feed {
    /// Appends the events of a message, which the server has stored under `number` at `stored_us`.
    pub(super) fn take(
        &mut self,
        (number, stored_us): (u64, u64),
        message: &EventMessage,
        out: &mut Vec<SessionEvent>,
    ) {
        if !self.reader.is_new(message) {
            return;
        }
        if let Some(gap) = &message.gap {
            let at_us = stored_us;
            let unsure = self.unsure(at_us);
            self.tell(number, at_us, unsure, out);
            if gap.after_epoch.is_some() {
                self.ui = UiFold::default();
            }
            let what = Happening::Gap { lines: 0, reason: words(gap, message.seq) };
            out.push(SessionEvent { at: place(number), at_us, what });
        }
        let Some(event) = message.document() else { return };
        let at_us = parsed_us(&event.timestamp).unwrap_or_default();
        let starts = event.starts();
        let is_adopted = starts.as_ref().is_some_and(|run| run.adopted);
        if is_adopted {
            // The server has not ended, and may repeat requests that were open.
            let unsure = self.unsure(at_us);
            self.tell(number, at_us, unsure, out);
        }
        let mut tell = |what| out.push(SessionEvent { at: place(number), at_us, what });
        let mut records = Vec::new();
        if let Some(generation) = event.generation.as_ref().filter(|now| self.generation.as_ref() != Some(now)) {
            // A new run ends the requests that were open.
            (self.open, self.ended, self.is_whole) = (Vec::new(), 0, false);
            let before = [self.generation.replace(generation.clone()), self.ids.take_if(|_| !is_adopted)];
            if starts.is_some() && !is_adopted {
                self.earlier.extend(before.into_iter().flatten());
                self.earlier.drain(..self.earlier.len().saturating_sub(EARLIER_MAX));
            }
            let codex = json!({ "path": "codex" });
            let mut head = json!({ "journal": 1, "session": message.session, "generation": generation, "segment": 1, "at": at_us,
                "argv": [], "cwd": "/", "codex": codex, "shim": "0" });
            if is_adopted {
                head["adopted"] = json!(true);
            }
            records.push(head);
        }
        let whose = match &*event.event_type {
            "request_resolved" => self.whose(&event.payload()),
            _ => Whose::Unknown,
        };
        match &*event.event_type {
            // No request of this run is before it, unless its server is older.
            "generation_started" => {
                self.is_whole = !is_adopted;
                self.is_hub = starts.and_then(|run| run.pid.map(|_| run.hub));
                tell(Happening::Run { generation: event.generation.clone().unwrap_or_default() });
            }
            "event_gap" => {
                let GapPayload { lines, reason, .. } = event.payload();
                let reason = reason.unwrap_or_else(|| "the host knows why".to_owned());
                tell(Happening::Gap { lines: lines.unwrap_or(0), reason });
            }
            "request_resolved" if whose != Whose::Known || self.open.len() != 1 => {
                tell(Happening::Ui(Box::new(outcome(at_us, event.payload()))));
            }
            _ => {}
        }
        records.extend(self.records(at_us, event, whose));
        self.tell(number, at_us, records, out);
    }

    /// Appends what these records tell.
    fn tell(&mut self, number: u64, at_us: u64, records: Vec<Value>, out: &mut Vec<SessionEvent>) {
        for record in records {
            let text = record.to_string();
            let Ok(record) = Record::parse(text.as_bytes()) else { continue };
            let mut told = Vec::new();
            self.ui.take(&Seen::of(&record, None), &mut told);
            out.extend(told.into_iter().map(|told| SessionEvent {
                at: place(number),
                at_us,
                what: Happening::Ui(Box::new(told)),
            }));
        }
    }

    /// Whose the outcome is. One of an earlier run ends no request of this one. The beginning of its id is that of a run of the server;
    /// for a hub, that run is learned by the first outcome.
    fn whose(&mut self, data: &Value) -> Whose {
        let id = data["request_id"].as_str().unwrap_or_default();
        let Some((run, _)) = id.split_once('-') else { return Whose::Unknown };
        let is_own = self.ids.as_deref().or(self.generation.as_deref()) == Some(run);
        if !is_own && (self.ids.is_some() || self.is_hub == Some(false) || self.earlier.iter().any(|of| of == run)) {
            return Whose::OfOtherRun;
        }
        match (self.is_whole, is_own, self.open.is_empty()) {
            (false, _, _) => Whose::Unknown,
            // This run has no request that could have ended.
            (true, false, true) => {
                self.earlier.push(run.to_owned());
                self.earlier.drain(..self.earlier.len().saturating_sub(EARLIER_MAX));
                Whose::OfOtherRun
            }
            (true, _, _) => {
                self.ids = Some(run.to_owned());
                Whose::Known
            }
        }
    }

    /// Events are missing here: how the open requests end will not be known, and further requests may be open.
    fn unsure(&mut self, at_us: u64) -> Vec<Value> {
        (self.ended, self.is_whole) = (0, false);
        self.open.drain(..).map(|open| ended(at_us, &open.id, unknown(MISSING))).collect()
    }

    /// The records that an event may have been made of.
    fn records(&mut self, at_us: u64, event: EventDocument, whose: Whose) -> Vec<Value> {
        let method = Method::of(&event.event_type);
        let listed = method.map(Method::listed);
        let is_for_human = RequestKind::of(&event.event_type).is_some_and(RequestKind::is_for_human);
        let name = event.event_type.clone();
        match &*name {
            "event_gap" => {
                let lines = event.payload::<GapPayload>().lines.unwrap_or(0);
                let mut records = self.unsure(at_us);
                records.push(json!({ "at": at_us, "gap": { "lines": lines, "reason": "a gap" } }));
                records
            }
            "request_resolved" => self.resolved(at_us, mended(event.payload(), CUT), whose),
            // Calls of the client tell nothing without their answers.
            _ if listed == Some(Listed::ClientRequest) => Vec::new(),
            _ if is_for_human => {
                self.asked += 1;
                let id = format!("q{}", self.asked);
                let mut records = Vec::new();
                if self.open.len() == OPEN_MAX {
                    records.push(ended(at_us, &self.open.remove(0).id, unknown(TOO_MANY)));
                    (self.ended, self.is_whole) = (0, false);
                }
                let (thread, turn, item) = (event.thread_id.clone(), event.turn_id.clone(), event.item_id.clone());
                self.open.push(Open { id: id.clone(), thread, turn, item });
                let line = json!({ "id": id, "method": name, "params": params(event) });
                records.push(ours(at_us, "request_opened", json!({ "request_id": id })));
                records.push(json!({ "at": at_us, "from": "server", "line": line }));
                records
            }
            // Only the client can answer it, so no outcome follows.
            _ if listed == Some(Listed::ServerRequest) => {
                self.asked += 1;
                let line = json!({ "id": format!("q{}", self.asked), "method": name, "params": params(event) });
                vec![json!({ "at": at_us, "from": "server", "line": line })]
            }
            // A method always has a slash, or is known.
            _ if method.is_some() || name.contains('/') => {
                if may_be_request(method, &name) {
                    (self.ended, self.is_whole) = (0, false);
                }
                let mut records = self.over(at_us, method, &event);
                records.push(
                    json!({ "at": at_us, "from": "server", "line": { "method": name, "params": params(event) } }),
                );
                records
            }
            _ => vec![ours(at_us, &name, mended(event.payload(), CUT))],
        }
    }

    /// Ends the requests whose item or turn is over, unless each outcome can be assigned to its request.
    fn over(&mut self, at_us: u64, method: Option<Method>, event: &EventDocument) -> Vec<Value> {
        let is_over = |open: &Open| {
            open.thread == event.thread_id
                && match method {
                    Some(Method::ItemCompleted) => open.item.is_some() && open.item == event.item_id,
                    Some(Method::TurnCompleted) => open.turn.is_some() && open.turn == event.turn_id,
                    _ => false,
                }
        };
        if self.is_whole {
            return Vec::new();
        }
        let end = |open: Open| ended(at_us, &open.id, json!({ "status": "resolved", "source": ONE_OF_SEVERAL }));
        self.open.extract_if(.., |open| is_over(open)).map(end).collect()
    }

    /// The ends of open requests by the end of one: of itself if it is the only one, else of all of them once all have ended. If it may
    /// be that of another request, a request whose item or turn will end waits for that.
    fn resolved(&mut self, at_us: u64, data: Value, whose: Whose) -> Vec<Value> {
        match whose {
            Whose::OfOtherRun => Vec::new(),
            Whose::Unknown => {
                let is_without_end = |open: &mut Open| open.item.is_none() && open.turn.is_none();
                let over = self.open.extract_if(.., is_without_end);
                over.map(|open| ended(at_us, &open.id, unknown(MIXED))).collect()
            }
            Whose::Known => {
                self.ended += 1;
                if self.ended < self.open.len() {
                    return Vec::new();
                }
                let several = || json!({ "status": "resolved", "source": ONE_OF_SEVERAL });
                let data = if self.open.len() > 1 { several() } else { data };
                self.ended = 0;
                self.open.drain(..).map(|open| ended(at_us, &open.id, data.clone())).collect()
            }
        }
    }
}

/// Whether an event may be that of a request whose outcome will follow, and whose method is not known here. An event does not say
/// whether its message was a request; the name of a notification says that something has happened.
fn may_be_request(method: Option<Method>, name: &str) -> bool {
    method.is_none() && RequestKind::of(name).is_some() && !OF_NOTIFICATIONS.iter().any(|end| name.ends_with(end))
}

/// The data of an outcome that is not known.
fn unknown(why: &str) -> Value {
    json!({ "status": "unknown", "error_code": why })
}

/// A note of the relay.
fn ours(at_us: u64, name: &str, data: Value) -> Value {
    json!({ "at": at_us, "from": "shim", "event": name, "data": data })
}

/// The note of a request's end.
fn ended(at_us: u64, id: &str, mut data: Value) -> Value {
    data["request_id"] = json!(id);
    ours(at_us, "request_resolved", data)
}

/// The event of an outcome whose request is not known.
fn outcome(at_us: u64, mut ended: ApprovalDocument<'static>) -> UiEvent {
    ended.status.get_or_insert("resolved".into());
    // The title of an outcome without a request.
    ended.kind = format!("request {}", ended.request_id.as_deref().unwrap_or_default()).into();
    let (kind, detail) = (UiKind::Approval, UiContent::Entry(Box::new(Content::Approval(ended))));
    UiEvent { kind, at_us, thread_id: None, thread_kind: None, turn_id: None, item_id: None, detail }
}

fn words(gap: &Gap, seq: u64) -> String {
    match gap.after_epoch {
        Some(_) => "the numbering of the host's events has begun anew".to_owned(),
        None => format!("events {} to {seq} ({})", gap.after_seq.saturating_add(1), gap.reason),
    }
}

/// The parameters of a message, with its thread, turn and item.
fn params(event: EventDocument) -> Value {
    let mut params = match mended(event.payload(), CUT) {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    for (id, names) in [event.thread_id, event.turn_id, event.item_id].into_iter().zip(PLACE_MEMBERS) {
        if let Some(id) = id.filter(|_| !names.iter().any(|name| params.contains_key(*name))) {
            params.insert(names[0].to_owned(), Value::from(id));
        }
    }
    Value::Object(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::timeline::Timeline;

    /// The titles and bodies of the entries after these events.
    fn shown(events: &[Value]) -> Vec<String> {
        let (mut feed, mut timeline) = (Feed::default(), Timeline::default());
        for (seq, event) in (1..).zip(events) {
            let mut event = event.clone();
            event["timestamp"] = json!("2026-01-02T03:04:05.000Z");
            if event["generation"].is_null() {
                event["generation"] = json!("0123456789ab");
            }
            let event = serde_json::value::RawValue::from_string(event.to_string()).ok();
            let (host, session, epoch) = ("h".to_owned(), "s".to_owned(), "e".to_owned());
            let message = EventMessage { v: 1, host, session, epoch, seq, event, gap: None };
            let mut told = Vec::new();
            // A message that is read twice is shown once.
            feed.take((seq, 0), &message, &mut told);
            feed.take((seq, 0), &message, &mut told);
            told.iter().for_each(|event| timeline.take(event));
        }
        let entry =
            |entry: crate::sessions::entry::Entry| format!("{}: {}|{}", entry.kind.name(), entry.title, entry.body);
        timeline.into_entries().into_iter().map(entry).collect()
    }

    fn event(event_type: &str, payload: Value) -> Value {
        json!({ "event_type": event_type, "thread_id": "t", "turn_id": "u", "payload_preview": payload })
    }

    #[test]
    fn events_become_the_entries_of_the_local_view() {
        let said = json!({ "type": "agentMessage", "id": "m", "text": "It ran." });
        let ran = json!({ "type": "commandExecution", "id": "c", "command": "make", "cwd": "/w", "status": "completed",
            "aggregatedOutput": "done\n", "exitCode": 0 });
        let events = [
            event("generation_started", json!({ "pid": 1 })),
            event("turn/started", json!({ "threadId": "t", "turn": { "id": "u" } })),
            event("item/completed", json!({ "item": ran })),
            event("item/completed", json!({ "item": said })),
            event("event_gap", json!({ "lines": 2, "reason": "disk full" })),
        ];
        let expect = [
            "server: run 0123456789ab begins|",
            "runs: make|done\n",
            "codex: |It ran.",
            "gap: 2 lines missing here: disk full|",
        ];
        assert_eq!(shown(&events), expect);
    }

    #[test]
    fn outcome_belongs_to_its_request() {
        let asks = |command: &str| {
            let params = json!({ "threadId": "t", "turnId": "u", "itemId": command, "command": command, "cwd": "/w" });
            event("item/commandExecution/requestApproval", params)
        };
        let ended = |id: &str, decision: &str| {
            let data = json!({ "request_id": id, "status": "resolved", "source": "tui", "decision": decision });
            json!({ "event_type": "request_resolved", "payload_preview": data })
        };
        let starts = || event("generation_started", json!({ "pid": 1 }));
        // A tool that only the client can call has no outcome.
        let calls = event("item/tool/call", json!({ "threadId": "t", "turnId": "u", "callId": "c", "tool": "x" }));
        let one = shown(&[starts(), calls, asks("make"), ended("0123456789ab-0", "accept")]);
        assert_eq!(one.last().map(String::as_str), Some("asks: to run make → accept (tui)|"), "{one:?}");
        let two = shown(&[
            starts(),
            asks("make"),
            asks("rm"),
            ended("0123456789ab-1", "decline"),
            ended("0123456789ab-0", "accept"),
            asks("ls"),
        ]);
        assert_eq!(two.len(), 6, "{two:?}");
        assert!(two.iter().any(|line| line.contains("0123456789ab-1") && line.contains("decline")), "{two:?}");
        let first = two.iter().find(|line| line.contains("make")).expect("it is there");
        assert!(!first.contains("decline") && !first.contains("accept"), "{two:?}");
    }

    #[test]
    fn outcome_behind_missing_events_belongs_to_no_request() {
        let asks = |command: &str| {
            let params = json!({ "threadId": "t", "turnId": "u", "itemId": command, "command": command, "cwd": "/w" });
            let mut asks = event("item/commandExecution/requestApproval", params);
            asks["item_id"] = json!(command);
            asks
        };
        let ended = |run: &str| {
            let data = json!({ "request_id": format!("{run}-0"), "status": "resolved", "source": "tui", "decision": "accept" });
            json!({ "event_type": "request_resolved", "payload_preview": data })
        };
        let ran = || {
            let item = json!({ "type": "commandExecution", "id": "ls", "command": "ls", "cwd": "/w", "status": "completed",
                "exitCode": 0 });
            let mut ran = event("item/completed", json!({ "threadId": "t", "turnId": "u", "item": item }));
            ran["item_id"] = json!("ls");
            ran
        };
        let starts = || event("generation_started", json!({ "pid": 1 }));
        let gap = || event("event_gap", json!({ "lines": 2, "reason": "disk full" }));
        let own = "asks: request 0123456789ab-0 → accept (tui)|";
        let after = ["asks: to run ls → resolved (one of the outcomes below)|", own, "runs: ls|"];
        // The outcome may be that of a request before the gap, or in it.
        let gapped = shown(&[starts(), asks("make"), gap(), asks("ls"), ended("0123456789ab"), ran()]);
        assert_eq!(gapped[1], "asks: to run make → unknown, as events are missing|", "{gapped:?}");
        assert_eq!(gapped[3..], after, "{gapped:?}");
        // The same for a reader that begins in the midst of a run.
        assert_eq!(shown(&[asks("ls"), ended("0123456789ab"), ran()]), after);
        // A new run has no earlier requests.
        let mut again = [starts(), ended("0123456789ab"), asks("make"), ended("0123456789ac")];
        again.iter_mut().for_each(|event| event["generation"] = json!("0123456789ac"));
        let both = shown(&[&[asks("ls"), gap()], &again[..]].concat());
        assert_eq!(both.last().map(String::as_str), Some("asks: to run make → accept (tui)|"), "{both:?}");
    }

    /// A request of a command in a turn; `None` is one of no turn.
    fn asked(run: &str, command: &str, turn: Option<&str>) -> Value {
        let params = json!({ "command": command, "cwd": "/w" });
        json!({ "event_type": "item/commandExecution/requestApproval", "generation": run, "thread_id": "t", "turn_id": turn,
            "payload_preview": params })
    }

    fn accepted(run: &str, id: &str) -> Value {
        let data = json!({ "request_id": id, "status": "resolved", "source": "tui", "decision": "accept" });
        json!({ "event_type": "request_resolved", "generation": run, "payload_preview": data })
    }

    #[test]
    fn outcome_in_a_hub_belongs_to_its_request() {
        let (hub, server, before) = ("0123456789ab", "0123456789aa", "0123456789a0");
        let (own, next) = (format!("{server}-0"), format!("{server}-1"));
        let of_before = accepted(hub, &format!("{before}-0"));
        let starts =
            |data: Value| json!({ "event_type": "generation_started", "generation": hub, "payload_preview": data });
        let requests = [
            of_before.clone(),
            asked(hub, "make", None),
            accepted(hub, &own),
            asked(hub, "ls", None),
            of_before.clone(),
            accepted(hub, &next),
        ];
        let after = |start: Value| shown(&[&[starts(start)], &requests[..]].concat());
        let of_other = format!("asks: request {before}-0 → accept (tui)|");
        let (make, ls) = ("asks: to run make → accept (tui)|", "asks: to run ls → accept (tui)|");
        // At both levels.
        for start in [json!({ "pid": 1, "hub": true }), json!({})] {
            assert_eq!(after(start)[1..], [&*of_other, make, ls, &*of_other]);
        }
        // A relay has its own run in the ids.
        let relay = shown(&[starts(json!({ "pid": 1 })), asked(hub, "make", None), accepted(hub, &own)]);
        assert_eq!(relay[1..], ["asks: to run make|".to_owned(), format!("asks: request {own} → accept (tui)|")]);
        // A server that a hub has taken over may have asked before.
        let adopted = json!({ "pid": 1, "hub": true, "adopted": true });
        let taken = shown(&[asked(server, "rm", None), starts(adopted), asked(hub, "make", None), accepted(hub, &own)]);
        let rest = [
            "asks: to run rm → unknown, as events are missing|".to_owned(),
            format!("server: run {hub} begins|"),
            format!("asks: to run make → {MIXED}|"),
            format!("asks: request {own} → accept (tui)|"),
        ];
        assert_eq!(taken, rest);
    }

    #[test]
    fn outcome_beside_an_unknown_request_belongs_to_none() {
        let run = "0123456789ab";
        let check = |method: &str, expect: &str| {
            let beside = event(method, json!({ "threadId": "t" }));
            let starts = event("generation_started", json!({ "pid": 1 }));
            let all = shown(&[starts, asked(run, "make", None), beside, accepted(run, "0123456789ab-1")]);
            let line = all.iter().find(|line| line.contains("make")).expect("it is there");
            assert_eq!(line, &format!("asks: to run make → {expect}|"), "{method}: {all:?}");
        };
        check("item/newTool/requestApproval", MIXED);
        check("newThing/pick", MIXED);
        // Notifications, and requests without outcomes.
        for method in ["hook/completed", "item/newTool/outputDelta", "newThing/updated", "account/newThing/read"] {
            check(method, "accept (tui)");
        }
    }

    #[test]
    fn forgotten_request_has_no_known_outcome() {
        let mut all = vec![event("generation_started", json!({ "pid": 1 }))];
        all.extend((0..=OPEN_MAX).map(|number| asked("0123456789ab", &format!("make {number}"), Some("u"))));
        let first = shown(&all).into_iter().find(|line| line.contains("make 0"));
        assert_eq!(first, Some(format!("asks: to run make 0 → {TOO_MANY}|")));
    }

    #[test]
    fn open_requests_have_no_known_outcome_behind_a_gap() {
        let (mut feed, mut timeline) = (Feed::default(), Timeline::default());
        let started =
            json!({ "event_type": "generation_started", "generation": "0123456789ab", "payload_preview": {} });
        let params = json!({ "threadId": "t", "turnId": "u", "itemId": "i", "command": "make", "cwd": "/w" });
        let asked = json!({ "event_type": "item/commandExecution/requestApproval", "generation": "0123456789ab", "payload_preview": params });
        let gap = Gap { reason: "retention".to_owned(), after_seq: 2, after_epoch: None };
        let messages = [(1, Some(started), None), (2, Some(asked), None), (9, None, Some(gap))];
        for (seq, event, gap) in messages {
            let event = event.and_then(|event| serde_json::value::RawValue::from_string(event.to_string()).ok());
            let (host, session, epoch) = ("h".to_owned(), "s".to_owned(), "e".to_owned());
            let mut told = Vec::new();
            feed.take((seq, 0), &EventMessage { v: 1, host, session, epoch, seq, event, gap }, &mut told);
            told.iter().for_each(|event| timeline.take(event));
        }
        assert!(!timeline.has_open());
        let titles: Vec<String> = timeline.into_entries().into_iter().map(|entry| entry.title).collect();
        assert_eq!(titles[1], "to run make → unknown, as events are missing", "{titles:?}");
    }

    #[test]
    fn cut_payloads_are_mended() {
        let long = json!({ "truncated": true, "preview": r#"{"item":{"type":"agentMessage","id":"m","text":"It r"# });
        assert_eq!(shown(&[event("item/completed", long)]), [format!("codex: |It r{CUT}")]);
    }
}
