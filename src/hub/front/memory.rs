//! What a front remembers of its client, to restore it on another connection: how it has initialized, the threads that it
//! follows, its calls in flight, and the requests that it has not answered.
//!
//! Pure. Nothing here changes a message.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::json;
use serde_json::value::RawValue;

use crate::protocol::{Event, Method, request_line};
use crate::wire::{Body, Members, Message, PlainNotification, RpcId};

/// Limits on what is remembered. Beyond one of them a broken connection is the end of the client.
const INITIALIZE_BYTES_MAX: usize = 1 << 20;
const CALLS_MAX: usize = 10_000;
const REQUESTS_MAX: usize = 10_000;
const THREADS_MAX: usize = 1_024;

/// Code of the error for a call that a break has left without an answer: JSON-RPC leaves it to the server.
const BROKE_CODE: i32 = -32_000;

const BROKE: &str =
    "codex-shim: the connection to the shared server broke before it answered; it may have carried this out";

/// What to do about a message of the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reaction {
    /// Whether the client gets it.
    pub(super) is_shown: bool,
    /// Lines of ours for the server.
    pub(super) answers: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    initialize: Option<Remembered>,
    initialized: Option<Vec<u8>>,
    calls: BTreeMap<RpcId, Call>,
    threads: BTreeSet<String>,
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
struct Call {
    /// Its id as it was written.
    id: Box<RawValue>,
    method: Option<Method>,
    thread_id: Option<String>,
}

/// What the server has not answered since the connection came back.
#[derive(Debug, Default)]
struct Restoring {
    awaits_initialize: bool,
    /// The thread of each of our own calls.
    resumes: BTreeMap<RpcId, String>,
    failed: Vec<String>,
}

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
        self.calls.insert(key, Call { id: id.to_owned(), method: event.method, thread_id });
    }

    /// A message of the server.
    pub(super) fn of_server(&mut self, line: &[u8]) -> Reaction {
        let shown = Reaction { is_shown: true, answers: Vec::new() };
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
                }
            }
            Some(_) | None => {}
        }
    }

    /// The server makes a request. Returns whether the client does not have it yet: after a break, the server repeats those that
    /// are open.
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
        let mut reaction = Reaction { is_shown: true, answers: Vec::new() };
        if let Some(restoring) = &mut self.restoring
            && let Some(thread_id) = restoring.resumes.remove(&id)
        {
            if message.refusal().is_some() {
                self.threads.remove(&thread_id);
                restoring.failed.push(thread_id);
            }
            return Reaction::default();
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

    /// The response to a call that begins or ends a subscription.
    fn subscribed(&mut self, call: &Call, message: &Message<'_>) {
        let Some(result) = message.result else { return };
        match (call.method, &call.thread_id) {
            (Some(Method::ThreadUnsubscribe), Some(thread_id)) => drop(self.threads.remove(thread_id)),
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
        self.restoring.as_ref().is_some_and(|restoring| restoring.awaits_initialize || !restoring.resumes.is_empty())
    }

    /// Ends the restoration. Returns the threads that the server did not resume.
    pub(super) fn restored(&mut self) -> Vec<String> {
        let Restoring { resumes, mut failed, .. } = self.restoring.take().unwrap_or_default();
        failed.extend(resumes.into_values());
        failed
    }
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
        let Reaction { is_shown, answers } = memory.of_server(&START[1].as_bytes()[1..]);
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
        assert_eq!(memory.of_server(&START[1].as_bytes()[1..]), Reaction { is_shown: true, answers: Vec::new() });
        assert!(!memory.is_restoring());
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
