//! What a front remembers of its client, to restore it on another connection: how it has initialized, the threads that it
//! follows, the turns that run there, its calls in flight, and the requests that it has not answered.
//!
//! A client waits for the end of a turn. If a turn has ended without a connection, the client gets a `turn/completed`, with the turn
//! as the server then shows it.
//!
//! Pure. Nothing here changes a message.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::json;
use serde_json::value::RawValue;

use crate::protocol::{Event, Method, request_line};
use crate::wire::{Body, Members, Message, PlainNotification, RpcId, elements, text};

/// Limits of the memory. Beyond one of them a broken connection is the end of the client.
const INITIALIZE_BYTES_MAX: usize = 1 << 20;
const CALLS_MAX: usize = 10_000;
const REQUESTS_MAX: usize = 10_000;
const THREADS_MAX: usize = 1_024;

/// Code of the error for a call that a break has left without an answer: JSON-RPC leaves it to the server.
const BROKE_CODE: i32 = -32_000;

/// The status of a turn that has not ended.
const IN_PROGRESS: &str = "inProgress";

const BROKE: &str =
    "codex-shim: the connection to the shared server broke before it answered; it may have carried this out";

/// The treatment of a message of the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reaction {
    /// Whether the client gets it.
    pub(super) is_shown: bool,
    /// Lines of ours for the server.
    pub(super) answers: Vec<Vec<u8>>,
    /// The end of a turn that the client has missed.
    pub(super) missed: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    initialize: Option<Remembered>,
    initialized: Option<Vec<u8>>,
    calls: BTreeMap<RpcId, CallInFlight>,
    threads: BTreeSet<String>,
    /// The turn that runs in each thread.
    turns: BTreeMap<String, String>,
    /// The client does not want to hear of the ends of turns.
    ignores_ends: bool,
    /// The requests of the server that the client has not answered, and the hash of each.
    asked: BTreeMap<RpcId, u64>,
    restoring: Option<Restoring>,
    /// Prefix of the ids of our own calls.
    own_ids: String,
    /// More came than is remembered.
    is_over_full: bool,
}

/// The client's `initialize`.
#[derive(Debug)]
struct Remembered {
    id: RpcId,
    line: Vec<u8>,
    is_answered: bool,
}

/// A call in flight.
#[derive(Debug)]
struct CallInFlight {
    /// Its id as it was written.
    id: Box<RawValue>,
    method: Option<Method>,
    thread_id: Option<String>,
}

/// Calls that the server has not answered since the connection came back, and the threads that it could not resume.
#[derive(Debug, Default)]
struct Restoring {
    awaits_initialize: bool,
    /// The thread of each of our own calls that resume one.
    resumes: BTreeMap<RpcId, String>,
    /// The thread of each of our own calls that read one, to see whether its turn has ended.
    reads: BTreeMap<RpcId, (String, ReadBy)>,
    failed: Vec<String>,
    /// Our own calls so far.
    made: usize,
}

/// How a thread is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadBy {
    /// By its turns, after so many pages of them.
    Turns { pages: usize },
    /// Whole, from a server that does not list turns. A newer one would tell the client that this is deprecated.
    Thread,
}

/// Turns of a page, newest first: the client's one is the last, unless others have used the thread since.
const TURNS_MAX: usize = 20;

/// Pages that are read to find a turn.
const PAGES_MAX: usize = 50;

impl Memory {
    /// `own_ids` is the prefix of the ids of our own calls.
    pub(super) fn new(own_ids: String) -> Memory {
        Memory { own_ids, ..Memory::default() }
    }

    /// A line that the client sends.
    pub(super) fn of_client(&mut self, line: &[u8]) {
        let Body::Message(message) = Body::parse(line) else { return };
        let event = Event::of(&message);
        match message.id {
            Some(id) if message.is_request() => self.called(&event, id, line),
            Some(id) if message.is_response() => drop(self.asked.remove(&RpcId::from_raw(id))),
            Some(_) => {}
            None if event.method == Some(Method::Initialized) && line.len() <= INITIALIZE_BYTES_MAX => {
                self.initialized.get_or_insert_with(|| line.to_vec());
            }
            None => {}
        }
    }

    fn called(&mut self, event: &Event<'_>, id: &RawValue, line: &[u8]) {
        let key = RpcId::from_raw(id);
        if event.method == Some(Method::Initialize) && self.initialize.is_none() {
            self.is_over_full |= line.len() > INITIALIZE_BYTES_MAX;
            self.ignores_ends = event.params.is_some_and(|params| opts_out(params, Method::TurnCompleted));
            self.initialize = Some(Remembered { id: key, line: line.to_vec(), is_answered: false });
            return;
        }
        if self.calls.len() >= CALLS_MAX {
            self.is_over_full = true;
            return;
        }
        let thread_id = match event.method {
            Some(Method::ThreadUnsubscribe) => {
                event.params.and_then(Members::of).and_then(|params| params.text("threadId"))
            }
            Some(_) | None => None,
        };
        self.calls.insert(key, CallInFlight { id: id.to_owned(), method: event.method, thread_id });
    }

    /// A message of the server.
    pub(super) fn of_server(&mut self, line: &[u8]) -> Reaction {
        let shown = Reaction { is_shown: true, ..Reaction::default() };
        if let Some(PlainNotification { method, params }) = PlainNotification::of(line, |_, _| {}) {
            self.notified(Method::of(method), params);
            return shown;
        }
        let Body::Message(message) = Body::parse(line) else { return shown };
        let event = Event::of(&message);
        match message.id {
            None => {
                self.notified(event.method, message.params.map(RawValue::get));
                shown
            }
            Some(id) if message.is_request() => {
                Reaction { is_shown: self.is_asked(RpcId::from_raw(id), line), ..Reaction::default() }
            }
            Some(id) => self.answered(RpcId::from_raw(id), &message),
        }
    }

    fn notified(&mut self, method: Option<Method>, params: Option<&str>) {
        let params = || params.and_then(Members::of_text);
        match method {
            Some(Method::RequestResolved) => {
                if let Some(id) = params().and_then(|params| params.get("requestId").map(RpcId::from_raw)) {
                    self.asked.remove(&id);
                }
            }
            Some(Method::ThreadClosed) => {
                if let Some(thread_id) = params().and_then(|params| params.text("threadId")) {
                    self.threads.remove(&thread_id);
                    self.turns.remove(&thread_id);
                }
            }
            Some(Method::TurnStarted) if !self.ignores_ends => {
                let turn = params().and_then(|params| Some((params.text("threadId")?, turn_id(&params)?)));
                if let Some((thread_id, turn_id)) = turn.filter(|(thread_id, _)| self.threads.contains(thread_id)) {
                    self.turns.insert(thread_id, turn_id);
                }
            }
            Some(Method::TurnCompleted) => {
                if let Some(thread_id) = params().and_then(|params| params.text("threadId")) {
                    self.turns.remove(&thread_id);
                }
            }
            Some(_) | None => {}
        }
    }

    /// The server makes a request. Returns whether it is new to the client: after a break, the server repeats open
    /// requests.
    fn is_asked(&mut self, id: RpcId, line: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        let hash = hasher.finish();
        if self.asked.len() >= REQUESTS_MAX && !self.asked.contains_key(&id) {
            self.is_over_full = true;
            return true;
        }
        // Another server may have begun to count anew.
        self.asked.insert(id, hash) != Some(hash)
    }

    fn answered(&mut self, id: RpcId, message: &Message<'_>) -> Reaction {
        let mut reaction = Reaction { is_shown: true, ..Reaction::default() };
        if let Some(own) = self.answered_own(&id, message) {
            return own;
        }
        if let Some(initialize) = self.initialize.as_mut().filter(|initialize| initialize.id == id)
            && (!initialize.is_answered || self.restoring.as_ref().is_some_and(|restoring| restoring.awaits_initialize))
        {
            reaction.is_shown = !std::mem::replace(&mut initialize.is_answered, true);
            reaction.answers = self.resumes();
            return reaction;
        }
        if let Some(call) = self.calls.remove(&id) {
            self.subscribed(&call, message);
        }
        reaction
    }

    /// The response to a call of ours.
    fn answered_own(&mut self, id: &RpcId, message: &Message<'_>) -> Option<Reaction> {
        let restoring = self.restoring.as_mut()?;
        if let Some(thread_id) = restoring.resumes.remove(id) {
            if message.refusal().is_some() {
                self.threads.remove(&thread_id);
                restoring.failed.push(thread_id);
                return Some(Reaction::default());
            }
            if !self.turns.contains_key(&thread_id) {
                return Some(Reaction::default());
            }
            return Some(Reaction {
                answers: vec![restoring.read(&self.own_ids, thread_id, ReadBy::Turns { pages: 0 }, None)],
                ..Reaction::default()
            });
        }
        let (thread_id, by) = restoring.reads.remove(id)?;
        let asked_for = self.turns.get(&thread_id);
        if let Some(turn) = asked_for.and_then(|turn_id| turn_shown(turn_id, by, message)) {
            return Some(Reaction { missed: self.missed(&thread_id, turn), ..Reaction::default() });
        }
        let next = match by {
            ReadBy::Turns { .. } if message.refusal().is_some() => Some((ReadBy::Thread, None)),
            ReadBy::Turns { pages } if asked_for.is_some() && pages + 1 < PAGES_MAX => {
                let cursor = message.result.and_then(Members::of).and_then(|page| page.text("nextCursor"));
                cursor.map(|cursor| (ReadBy::Turns { pages: pages + 1 }, Some(cursor)))
            }
            ReadBy::Turns { .. } | ReadBy::Thread => None,
        };
        let next = next.map(|(by, cursor)| restoring.read(&self.own_ids, thread_id, by, cursor));
        Some(Reaction { answers: next.into_iter().collect(), ..Reaction::default() })
    }

    /// The end of a thread's turn, if it has ended.
    fn missed(&mut self, thread_id: &str, turn: &RawValue) -> Option<Vec<u8>> {
        if Members::of(turn)?.text("status")? == IN_PROGRESS {
            return None;
        }
        self.turns.remove(thread_id);
        let (method, thread_id) = (Method::TurnCompleted.name(), json!(thread_id));
        Some(format!(r#"{{"method":"{method}","params":{{"threadId":{thread_id},"turn":{turn}}}}}"#).into_bytes())
    }

    /// The response to a call that begins or ends a subscription.
    fn subscribed(&mut self, call: &CallInFlight, message: &Message<'_>) {
        let Some(result) = message.result else { return };
        match (call.method, &call.thread_id) {
            (Some(Method::ThreadUnsubscribe), Some(thread_id)) => {
                self.threads.remove(thread_id);
                self.turns.remove(thread_id);
            }
            (Some(method), _) if method.opens_thread() => {
                let thread = Members::of(result).and_then(|result| result.get("thread").and_then(Members::of));
                if let Some(thread_id) = thread.and_then(|thread| thread.text("id")) {
                    self.is_over_full |= self.threads.len() >= THREADS_MAX && !self.threads.contains(&thread_id);
                    if !self.is_over_full {
                        self.threads.insert(thread_id);
                    }
                }
            }
            (_, _) => {}
        }
    }

    /// Whether a call has no answer yet.
    pub(super) fn awaits_answers(&self) -> bool {
        !self.calls.is_empty() || self.initialize.as_ref().is_some_and(|initialize| !initialize.is_answered)
    }

    /// Whether everything is remembered that another connection needs.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_over_full
    }

    /// The connection broke. Returns the answers to the calls in flight. A call that initializes is repeated instead.
    pub(super) fn broke(&mut self) -> Vec<Vec<u8>> {
        self.restoring = None;
        let error = json!({ "code": BROKE_CODE, "message": BROKE });
        let calls = std::mem::take(&mut self.calls).into_values();
        calls.map(|call| format!("{{\"id\":{},\"error\":{error}}}", call.id).into_bytes()).collect()
    }

    /// There is another connection. Returns the first lines for it.
    pub(super) fn restore(&mut self) -> Vec<Vec<u8>> {
        let Some(initialize) = &self.initialize else { return Vec::new() };
        self.restoring = Some(Restoring { awaits_initialize: true, ..Restoring::default() });
        vec![initialize.line.clone()]
    }

    /// The lines that follow the server's answer to `initialize`.
    fn resumes(&mut self) -> Vec<Vec<u8>> {
        let Some(restoring) = self.restoring.as_mut().filter(|restoring| restoring.awaits_initialize) else {
            return Vec::new();
        };
        restoring.awaits_initialize = false;
        restoring.made = self.threads.len();
        let mut lines: Vec<Vec<u8>> = self.initialized.iter().cloned().collect();
        for (number, thread_id) in self.threads.iter().enumerate() {
            let id = format!("{}{number}", self.own_ids);
            let params = json!({ "threadId": thread_id, "excludeTurns": true }).to_string();
            lines.push(request_line(&id, Method::ThreadResume.name(), Some(&params)));
            restoring.resumes.insert(RpcId::Text(id), thread_id.clone());
        }
        lines
    }

    /// Whether the server has not answered all that restores the client.
    pub(super) fn is_restoring(&self) -> bool {
        self.restoring.as_ref().is_some_and(|restoring| {
            restoring.awaits_initialize || !restoring.resumes.is_empty() || !restoring.reads.is_empty()
        })
    }

    /// Ends the restoration. Returns the threads that the server did not resume.
    pub(super) fn restored(&mut self) -> Vec<String> {
        let Restoring { resumes, mut failed, .. } = self.restoring.take().unwrap_or_default();
        failed.extend(resumes.into_values());
        failed
    }
}

impl Restoring {
    /// A call of ours that reads a thread.
    fn read(&mut self, own_ids: &str, thread_id: String, by: ReadBy, cursor: Option<String>) -> Vec<u8> {
        let id = format!("{own_ids}{}", self.made);
        self.made += 1;
        let (method, params) = match by {
            ReadBy::Turns { .. } => {
                let (order, view) = ("desc", "full");
                let mut params =
                    json!({ "threadId": thread_id, "limit": TURNS_MAX, "sortDirection": order, "itemsView": view });
                if let Some(cursor) = cursor {
                    params["cursor"] = json!(cursor);
                }
                (Method::ThreadTurnsList, params)
            }
            ReadBy::Thread => (Method::ThreadRead, json!({ "threadId": thread_id, "includeTurns": true })),
        };
        let line = request_line(&id, method.name(), Some(&params.to_string()));
        self.reads.insert(RpcId::Text(id), (thread_id, by));
        line
    }
}

/// A turn, as a response shows it.
fn turn_shown<'a>(turn_id: &str, by: ReadBy, message: &Message<'a>) -> Option<&'a RawValue> {
    let result = Members::of(message.result?)?;
    let turns = match by {
        ReadBy::Turns { .. } => result.get("data"),
        ReadBy::Thread => result.get("thread").and_then(Members::of).and_then(|thread| thread.get("turns")),
    };
    let is_it = |turn: &&RawValue| Members::of(turn).and_then(|turn| turn.text("id")).as_deref() == Some(turn_id);
    turns.and_then(elements)?.into_iter().find(is_it)
}

/// Whether a client that initializes with these parameters opts out of a notification.
fn opts_out(params: &RawValue, method: Method) -> bool {
    let capabilities = Members::of(params).and_then(|params| params.get("capabilities").and_then(Members::of));
    let methods = capabilities.and_then(|capabilities| elements(capabilities.get("optOutNotificationMethods")?));
    methods.unwrap_or_default().into_iter().any(|name| text(name).as_deref() == Some(method.name()))
}

/// The turn that a notification is about.
fn turn_id(params: &Members<'_>) -> Option<String> {
    params.get("turn").and_then(Members::of)?.text("id")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays lines: `>` of the client, `<` of the server. Returns the lines that the client does not get.
    fn play(memory: &mut Memory, lines: &[&str]) -> Vec<String> {
        let mut swallowed = Vec::new();
        for line in lines {
            let (from, line) = line.split_at(1);
            match from {
                ">" => memory.of_client(line.as_bytes()),
                _ if memory.of_server(line.as_bytes()).is_shown => {}
                _ => swallowed.push(line.to_owned()),
            }
        }
        swallowed
    }

    fn texts(lines: Vec<Vec<u8>>) -> Vec<String> {
        lines.into_iter().map(|line| String::from_utf8(line).expect("it is text")).collect()
    }

    const START: [&str; 5] = [
        r#">{"id":0,"method":"initialize","params":{}}"#,
        r#"<{"id":0,"result":{}}"#,
        r#">{"method":"initialized"}"#,
        r#">{"id":1,"method":"thread/start","params":{}}"#,
        r#"<{"id":1,"result":{"thread":{"id":"t"}}}"#,
    ];

    #[test]
    fn threads_are_resumed_once_initialized() {
        let mut memory = Memory::default();
        assert!(play(&mut memory, &START).is_empty());
        assert!(memory.broke().is_empty());
        assert_eq!(texts(memory.restore()), [&START[0][1..]]);
        assert!(memory.is_restoring());
        let Reaction { is_shown, answers, .. } = memory.of_server(&START[1].as_bytes()[1..]);
        let answers = texts(answers);
        assert!(!is_shown);
        assert_eq!(answers[0], &START[2][1..]);
        let resume: serde_json::Value = serde_json::from_str(&answers[1]).expect("it is JSON");
        assert_eq!(resume["params"], json!({"threadId": "t", "excludeTurns": true}));
        let answer = format!(r#"<{{"id":{},"result":{{"thread":{{"id":"t"}}}}}}"#, resume["id"]);
        assert_eq!(play(&mut memory, &[&answer]), [&answer[1..]]);
        assert!(!memory.is_restoring() && memory.restored().is_empty());
        // The next break is the same.
        memory.broke();
        assert_eq!(memory.restore().len(), 1);
        assert_eq!(memory.of_server(&START[1].as_bytes()[1..]).answers.len(), 2);
        let refused = memory.of_server(format!(r#"{{"id":{},"error":{{}}}}"#, resume["id"]).as_bytes());
        assert_eq!((refused, memory.restored()), (Reaction::default(), vec!["t".to_owned()]));
    }

    #[test]
    fn left_threads_are_not_resumed() {
        for end in [
            &[r#">{"id":2,"method":"thread/unsubscribe","params":{"threadId":"t"}}"#, r#"<{"id":2,"result":{}}"#][..],
            &[r#"<{"method":"thread/closed","params":{"threadId":"t"}}"#],
        ] {
            let mut memory = Memory::default();
            play(&mut memory, &[&START, end].concat());
            memory.broke();
            memory.restore();
            assert_eq!(memory.of_server(&START[1].as_bytes()[1..]).answers.len(), 1, "{end:?}");
        }
    }

    #[test]
    fn calls_in_flight_get_an_error() {
        let mut memory = Memory::default();
        play(&mut memory, &START);
        play(&mut memory, &[r#">{"id":"x\u0061","method":"turn/start"}"#, r#">{"id":3,"method":"m"}"#]);
        play(&mut memory, &[r#"<{"id":3,"result":1}"#]);
        assert!(memory.awaits_answers());
        let errors = texts(memory.broke());
        assert!(errors.len() == 1 && errors[0].starts_with(r#"{"id":"x\u0061","error":{"code":-32000,"#), "{errors:?}");
        assert!(!memory.awaits_answers() && memory.broke().is_empty());
    }

    #[test]
    fn unanswered_initialize_is_repeated() {
        let mut memory = Memory::default();
        play(&mut memory, &START[..1]);
        assert!(memory.broke().is_empty());
        assert_eq!(texts(memory.restore()), [&START[0][1..]]);
        assert_eq!(memory.of_server(&START[1].as_bytes()[1..]), Reaction { is_shown: true, ..Reaction::default() });
        assert!(!memory.is_restoring());
    }

    #[test]
    fn turn_that_ended_meanwhile_is_told() {
        let started = r#"<{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u","items":[]}}}"#;
        let read = |is_listed: bool, turns: &str, expect: Option<&str>| {
            let mut memory = Memory::new("own:".to_owned());
            play(&mut memory, &START);
            play(&mut memory, &[started]);
            memory.broke();
            memory.restore();
            memory.of_server(&START[1].as_bytes()[1..]);
            let Reaction { answers, .. } = memory.of_server(br#"{"id":"own:0","result":{"thread":{"id":"t"}}}"#);
            let list = r#"{"id":"own:1","method":"thread/turns/list","params":{"itemsView":"full","limit":20,"sortDirection":"desc","threadId":"t"}}"#;
            assert_eq!((texts(answers), memory.is_restoring()), (vec![list.to_owned()], true));
            let shown = match is_listed {
                true => format!(r#"{{"id":"own:1","result":{{"data":[{turns}]}}}}"#),
                false => {
                    let refused = br#"{"id":"own:1","error":{"code":-32600,"message":"unknown variant"}}"#;
                    let Reaction { is_shown, answers, missed } = memory.of_server(refused);
                    let read = r#"{"id":"own:2","method":"thread/read","params":{"includeTurns":true,"threadId":"t"}}"#;
                    assert_eq!((is_shown, texts(answers), missed), (false, vec![read.to_owned()], None));
                    assert!(memory.is_restoring());
                    format!(r#"{{"id":"own:2","result":{{"thread":{{"id":"t","turns":[{turns}]}}}}}}"#)
                }
            };
            let Reaction { is_shown, missed, .. } = memory.of_server(shown.as_bytes());
            assert_eq!((is_shown, memory.is_restoring()), (false, false));
            assert_eq!(missed.map(|line| texts(vec![line])[0].clone()).as_deref(), expect, "{turns}");
        };
        // Servers that do not list turns are asked for the whole thread.
        let check = |turns: &str, expect: Option<&str>| [true, false].map(|is_listed| read(is_listed, turns, expect));
        check(
            r#"{"id":"s","status":"failed"},{"id":"u", "status":"completed","items":[1]}"#,
            Some(
                r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u", "status":"completed","items":[1]}}}"#,
            ),
        );
        check(r#"{"id":"u","status":"inProgress"}"#, None);
        check(r#"{"id":"s","status":"completed"}"#, None);
        let mut memory = Memory::default();
        let opt_out = r#"{"capabilities":{"optOutNotificationMethods":["x","turn/completed"]}}"#;
        memory.of_client(START[0][1..].replace("{}", opt_out).as_bytes());
        play(&mut memory, &START[1..]);
        play(&mut memory, &[started]);
        assert!(memory.turns.is_empty());
        let mut memory = Memory::default();
        play(&mut memory, &START);
        let ended = started.replace("started", "completed");
        play(&mut memory, &[started, &ended]);
        assert!(memory.turns.is_empty());
    }

    #[test]
    fn turn_is_looked_for_on_every_page() {
        let started = r#"<{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u","items":[]}}}"#;
        let restoring = || {
            let mut memory = Memory::new("own:".to_owned());
            play(&mut memory, &START);
            play(&mut memory, &[started]);
            memory.broke();
            memory.restore();
            memory.of_server(&START[1].as_bytes()[1..]);
            memory.of_server(br#"{"id":"own:0","result":{"thread":{"id":"t"}}}"#);
            memory
        };
        let page = |number: usize, turns: &str, next: &str| {
            format!(r#"{{"id":"own:{number}","result":{{"data":[{turns}],"nextCursor":{next}}}}}"#)
        };
        let other = r#"{"id":"s","status":"completed"}"#;
        let mut memory = restoring();
        let Reaction { answers, missed, .. } = memory.of_server(page(1, other, r#""c1""#).as_bytes());
        let list = r#"{"id":"own:2","method":"thread/turns/list","params":{"cursor":"c1","itemsView":"full","limit":20,"sortDirection":"desc","threadId":"t"}}"#;
        assert_eq!((texts(answers), missed, memory.is_restoring()), (vec![list.to_owned()], None, true));
        let ended = r#"{"id":"u","status":"completed"}"#;
        let Reaction { answers, missed, .. } = memory.of_server(page(2, ended, r#""c2""#).as_bytes());
        assert!(answers.is_empty() && missed.is_some() && !memory.is_restoring());
        // It goes on, or is nowhere.
        for (turns, next) in [(r#"{"id":"u","status":"inProgress"}"#, r#""c1""#), (other, "null")] {
            let mut memory = restoring();
            let Reaction { answers, missed, .. } = memory.of_server(page(1, turns, next).as_bytes());
            assert!(answers.is_empty() && missed.is_none() && !memory.is_restoring(), "{turns}");
        }
        let mut memory = restoring();
        let mut pages = 1;
        while !memory.of_server(page(pages, other, r#""c""#).as_bytes()).answers.is_empty() {
            pages += 1;
        }
        assert_eq!((pages, memory.is_restoring()), (PAGES_MAX, false));
    }

    #[test]
    fn request_is_shown_once_while_open() {
        let asked = r#"<{"id":0,"method":"item/tool/requestUserInput","params":{"threadId":"t"}}"#;
        let other = asked.replace("\"t\"", "\"u\"");
        let mut memory = Memory::default();
        play(&mut memory, &START);
        assert!(play(&mut memory, &[asked]).is_empty());
        memory.broke();
        assert_eq!(play(&mut memory, &[asked]), [&asked[1..]]);
        // Another server counts anew.
        assert!(play(&mut memory, &[&other]).is_empty());
        // Answered, and asked again: the answer was lost.
        assert!(play(&mut memory, &[r#">{"id":0,"result":{}}"#, &other]).is_empty());
        let resolved = r#"<{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":0}}"#;
        assert!(play(&mut memory, &[resolved, &other]).is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        for id in 0..=CALLS_MAX {
            memory.of_client(format!(r#"{{"id":{id},"method":"m"}}"#).as_bytes());
        }
        assert!(!memory.is_whole());
        assert_eq!(memory.broke().len(), CALLS_MAX);
    }
}
