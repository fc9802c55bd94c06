//! Threads that the hub watches itself: it subscribes on its own connection, so that what happens there is on record and its
//! requests reach the ledger.
//!
//! The server sends the messages of a thread to its subscribers only. If the last client leaves while a turn runs, the hub
//! takes its place. It also does so before it starts a turn for an API caller in a thread that no client has open. It leaves
//! once the turn is over, or once a client subscribes.

use std::collections::BTreeSet;

use serde_json::json;
use serde_json::value::RawValue;

use super::api_calls::Purpose;
use super::{Effect, Engine, Now, free_line, inject};
use crate::protocol::{Event, Method};
use crate::wire::{Conn, Members};

/// Threads that the hub watches at once.
const WATCHED_MAX: usize = 256;

/// The threads that the hub has subscribed to on its own account.
#[derive(Debug, Default)]
pub(super) struct Watched(BTreeSet<String>);

impl Watched {
    /// The hub's connection has ended, and all its subscriptions with it.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The server has refused the subscription, or has unloaded the thread.
    pub(super) fn forget(&mut self, thread_id: &str) {
        self.0.remove(thread_id);
    }
}

impl Engine {
    /// Subscribes to a thread, unless somebody has.
    pub(super) fn watch(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        let can_watch = self.is_hub && self.is_initialized(Conn::OWN) && self.watched.0.len() < WATCHED_MAX;
        if !can_watch || self.clients.follow(thread_id) || !self.watched.0.insert(thread_id.to_owned()) {
            return;
        }
        let purpose = Purpose::Watch { thread_id: thread_id.to_owned() };
        let params = json!({ "threadId": thread_id, "excludeTurns": true });
        self.call_about(Method::ThreadResume, &params.to_string(), purpose, effects);
    }

    /// Asks for the state of the threads that waited for an answer when an earlier hub ended.
    pub(super) fn look_after_requests(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_hub || !self.is_initialized(Conn::OWN) {
            return;
        }
        for thread_id in self.requests.threads_before() {
            if self.clients.follow(&thread_id) {
                let params = json!({ "threadId": thread_id, "includeTurns": false });
                self.call_about(Method::ThreadRead, &params.to_string(), Purpose::Look, effects);
            } else {
                self.watch(&thread_id, effects);
            }
        }
    }

    /// The server responds with a thread.
    pub(super) fn thread_told(&mut self, now: Now, response: &Event<'_>, effects: &mut Vec<Effect>) {
        let thread = response.result.and_then(Members::of).and_then(|result| result.get("thread"));
        let Some(thread) = thread.and_then(Members::of) else { return };
        if let (Some(thread_id), Some(status)) = (thread.text("id"), thread.get("status")) {
            self.requests.thread_status(now, &thread_id, status, effects);
        }
    }

    /// Ends the hub's own subscription to a thread, if there is one.
    fn unwatch(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        let is_subscribed = self.clients.own().threads.contains(thread_id);
        if self.watched.0.remove(thread_id) || is_subscribed {
            let params = json!({ "threadId": thread_id });
            self.call_about(Method::ThreadUnsubscribe, &params.to_string(), Purpose::Unwatch, effects);
        }
    }

    fn call_about(&mut self, method: Method, params: &str, purpose: Purpose, effects: &mut Vec<Effect>) {
        let (_, line) = self.calls.call_server(Conn::OWN, method.name(), Some(params), purpose);
        effects.push(inject(Conn::OWN, vec![free_line(line)]));
    }

    /// A client has subscribed to a thread.
    pub(super) fn client_follows(&mut self, conn: Conn, thread_id: &str, effects: &mut Vec<Effect>) {
        if conn != Conn::OWN {
            self.unwatch(thread_id, effects);
        }
    }

    /// A client has left a thread.
    pub(super) fn client_left(&mut self, conn: Conn, thread_id: &str, effects: &mut Vec<Effect>) {
        if conn != Conn::OWN && self.threads.turn_in(thread_id).is_some() {
            self.watch(thread_id, effects);
        }
    }

    /// A turn is over: nothing more is expected in its thread.
    pub(super) fn watched_turn_completed(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        if self.watched.0.contains(thread_id) {
            self.unwatch(thread_id, effects);
        }
    }

    /// A thread does something. If there are no clients at all, as after a restart of the hub, nobody else watches it.
    pub(super) fn thread_status_changed(&mut self, params: &RawValue, effects: &mut Vec<Effect>) {
        if !self.is_hub || self.clients.are_connected() {
            return;
        }
        let Some(params) = Members::of(params) else { return };
        let is_active = params.get("status").and_then(Members::of).and_then(|status| status.text("type"));
        if is_active.as_deref() == Some("active")
            && let Some(thread_id) = params.text("threadId")
        {
            self.watch(&thread_id, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{
        ApiRequest, AssemblySettings, ContextSettings, EngineSettings, Incoming, Input, Note, OpenBefore, Peer,
        Remembered, RequestSettings, ServerOwner, Transport,
    };
    use super::*;
    use crate::wire::{Line, LineEnd, Side};

    const NOW: Now = Now { unix_us: 1, elapsed: Duration::ZERO };

    struct Hub(Engine);

    impl Hub {
        /// A hub that is initialized.
        fn new() -> Hub {
            let engine = Engine::new(EngineSettings {
                exit_grace: Duration::from_secs(10),
                context: ContextSettings::default(),
                assembly: AssemblySettings::default(),
                requests: RequestSettings::default(),
                server_owner: ServerOwner::Hub,
                own_ids: "own:".to_owned(),
                tokens_before: 0,
            });
            let mut hub = Hub(engine);
            hub.handle(Input::SessionOpened { generation: "g".to_owned() });
            hub.connect(0);
            hub.read(r#"0<{"id":"own:1","result":{"userAgent":"x/0.169.0"}}"#);
            hub
        }

        fn connect(&mut self, conn: u32) {
            let peer = Peer { transport: Transport::WebSocket, pid: None };
            self.handle(Input::Connected { conn: Conn(conn), peer });
        }

        /// Connects a client that resumes thread `t`. Returns what the hub sends itself.
        fn join(&mut self, conn: u32) -> String {
            self.connect(conn);
            let initialize = r#"{"id":1,"method":"initialize","params":{"clientInfo":{"name":"tui","version":"2"}}}"#;
            self.read(&format!("{conn}>{initialize}"));
            self.read(&format!(r#"{conn}<{{"id":1,"result":{{"userAgent":"x/0.169.0"}}}}"#));
            self.read(&format!(r#"{conn}>{{"id":2,"method":"thread/resume","params":{{"threadId":"t"}}}}"#));
            self.read(&format!(r#"{conn}<{{"id":2,"result":{{"thread":{{"id":"t"}}}}}}"#))
        }

        fn handle(&mut self, input: Input) -> String {
            let mut effects = Vec::new();
            self.0.handle(NOW, input, &mut effects);
            sent(&effects)
        }

        /// `1>` is a line of the client of connection 1, `1<` one that the server sends on it. Returns what the hub sends itself.
        fn read(&mut self, step: &str) -> String {
            let (conn, line) = step.split_once(['<', '>']).expect("BUG: a step names its side");
            let from = if step.as_bytes()[conn.len()] == b'>' { Side::Client } else { Side::Server };
            let conn = Conn(conn.parse().expect("BUG: a step names its connection"));
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let mut effects = Vec::new();
            let decision = self.0.read(NOW, conn, from, Incoming::Line(line), &mut effects);
            effects.extend(decision.expect("BUG: nothing is held").then);
            sent(&effects)
        }

        fn turn(&mut self, conn: u32, step: &str) -> String {
            let params = r#"{"threadId":"t","turn":{"id":"u","status":"completed"}}"#;
            self.read(&format!(r#"{conn}<{{"method":"turn/{step}","params":{params}}}"#))
        }

        fn status(&mut self, status: &str) -> String {
            let params = format!(r#"{{"threadId":"t","status":{{"type":"{status}"}}}}"#);
            self.read(&format!(r#"0<{{"method":"thread/status/changed","params":{params}}}"#))
        }
    }

    /// The methods of the calls that the hub makes on its own connection.
    fn sent(effects: &[Effect]) -> String {
        let lines = effects.iter().flat_map(|effect| match effect {
            Effect::Inject(injection) if injection.conn == Conn::OWN => injection.lines.as_slice(),
            _ => &[],
        });
        let method = |line: &[u8]| {
            let line: serde_json::Value = serde_json::from_slice(line).expect("BUG: our own lines are JSON");
            let wanted = line["params"]["excludeTurns"].as_bool().unwrap_or_default();
            format!("{}{}", line["method"].as_str().unwrap_or("answer"), if wanted { "(no turns)" } else { "" })
        };
        lines.map(|line| method(&line.bytes)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn running_turn_is_watched_once_its_last_client_has_left() {
        let mut hub = Hub::new();
        assert_eq!(hub.join(1) + &hub.join(2), "");
        hub.turn(1, "started");
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(1) }), "");
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(2) }), "thread/resume(no turns)");
        assert_eq!(hub.read(r#"0<{"id":"own:2","result":{"thread":{"id":"t"}}}"#), "");
        assert_eq!(hub.turn(0, "completed"), "thread/unsubscribe");
    }

    #[test]
    fn idle_thread_is_not_watched() {
        let mut hub = Hub::new();
        hub.join(1);
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(1) }), "");
        assert_eq!(hub.status("idle"), "");
    }

    #[test]
    fn client_that_comes_ends_the_watch() {
        let mut hub = Hub::new();
        assert_eq!(hub.status("active"), "thread/resume(no turns)");
        assert_eq!(hub.status("active"), "", "it is watched already");
        assert_eq!(hub.join(1), "thread/unsubscribe");
        // The server answers both calls afterwards.
        hub.read(r#"0<{"id":"own:2","result":{"thread":{"id":"t"}}}"#);
        hub.read(r#"0<{"id":"own:3","result":{}}"#);
        assert_eq!(hub.0.subscriptions(Conn::OWN), [""; 0]);
        assert_eq!(hub.status("active"), "", "a client is there");
    }

    #[test]
    fn client_that_unsubscribes_leaves_the_turn_to_the_hub() {
        let mut hub = Hub::new();
        hub.join(1);
        hub.turn(1, "started");
        hub.read(r#"1>{"id":3,"method":"thread/unsubscribe","params":{"threadId":"t"}}"#);
        assert_eq!(hub.read(r#"1<{"id":3,"result":{"status":"unsubscribed"}}"#), "thread/resume(no turns)");
    }

    #[test]
    fn turn_of_an_api_caller_is_watched_if_nobody_else_does() {
        let mut hub = Hub::new();
        let send = |hub: &mut Hub| {
            let request = ApiRequest::Input { text: "x".to_owned(), thread_id: Some("t".to_owned()) };
            hub.handle(Input::ApiRequest { api_call: 7, request, server_listens: true })
        };
        assert_eq!(send(&mut hub), "thread/resume(no turns) turn/start");
        // The thread does not exist.
        hub.read(r#"0<{"id":"own:2","error":{"code":-32600,"message":"no rollout found for thread id t"}}"#);
        assert_eq!(send(&mut hub), "thread/resume(no turns) turn/start");
        hub.join(1);
        assert_eq!(send(&mut hub), "turn/start");
    }

    /// Two requests were open when an earlier hub ended, in threads `t` and `o`.
    fn taken_over() -> Hub {
        let mut hub = Hub::new();
        let row = |id: &str, thread: &str| OpenBefore {
            request_id: format!("g-{id}"),
            rpc_request_id: id.to_owned(),
            thread_id: Some(thread.to_owned()),
            turn_id: Some("u".to_owned()),
        };
        let open_requests = vec![row("5", "t"), row("6", "o")];
        let remembered = Remembered { open_requests, ..Remembered::default() };
        let asked = hub.handle(Input::Remembered(Box::new(remembered)));
        assert_eq!(asked, "thread/resume(no turns) thread/resume(no turns)");
        hub
    }

    /// What a line of the server ends.
    fn ended(hub: &mut Hub, line: &str) -> Vec<String> {
        let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
        let mut effects = Vec::new();
        let decision = hub.0.read(NOW, Conn::OWN, Side::Server, Incoming::Line(line), &mut effects);
        effects.extend(decision.expect("BUG: nothing is held").then);
        let note = |effect: &Effect| match effect {
            Effect::Note(Note::RequestResolved { request_id, .. }) => Some(request_id.clone()),
            _ => None,
        };
        effects.iter().filter_map(note).collect()
    }

    fn resumed(call: u32, thread: &str, status: &str) -> String {
        format!(r#"{{"id":"own:{call}","result":{{"thread":{{"id":"{thread}","status":{status}}}}}}}"#)
    }

    const WAITING: &str = r#"{"type":"active","activeFlags":["waitingOnApproval"]}"#;

    #[test]
    fn request_that_ended_without_a_hub_is_over() {
        let mut hub = taken_over();
        // The threads are asked for in the order of their ids.
        assert_eq!(ended(&mut hub, &resumed(2, "o", r#"{"type":"idle"}"#)), ["g-6"]);
        assert_eq!(ended(&mut hub, &resumed(3, "t", WAITING)), [""; 0]);
        let resolved = r#"{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":5}}"#;
        assert_eq!(ended(&mut hub, resolved), ["g-5"]);
    }

    #[test]
    fn request_that_is_asked_again_is_answered_by_an_api_caller() {
        let mut hub = taken_over();
        assert_eq!(ended(&mut hub, &resumed(3, "t", WAITING)), [""; 0]);
        let params = r#"{"threadId":"t","turnId":"u","itemId":"i"}"#;
        let again = format!(r#"{{"id":5,"method":"item/fileChange/requestApproval","params":{params}}}"#);
        hub.read(&format!("0<{again}"));
        assert!(hub.0.requests.threads_before().contains(&"o".to_owned()));
        assert!(!hub.0.requests.threads_before().contains(&"t".to_owned()));
        assert_eq!(hub.0.requests_pending(), 1);
    }

    #[test]
    fn state_of_a_thread_that_a_client_has_is_read() {
        let mut hub = Hub::new();
        hub.join(1);
        let row = OpenBefore {
            request_id: "g-5".to_owned(),
            rpc_request_id: "5".to_owned(),
            thread_id: Some("t".to_owned()),
            turn_id: None,
        };
        let remembered = Remembered { open_requests: vec![row], ..Remembered::default() };
        assert_eq!(hub.handle(Input::Remembered(Box::new(remembered))), "thread/read");
        assert_eq!(ended(&mut hub, &resumed(2, "t", r#"{"type":"active","activeFlags":[]}"#)), ["g-5"]);
    }

    #[test]
    fn relay_watches_nothing() {
        let mut hub = Hub::new();
        hub.0.is_hub = false;
        assert_eq!(hub.status("active"), "");
    }
}
