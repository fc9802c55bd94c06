//! Threads that the hub watches itself: it subscribes on its own connection, so that what happens there is on record and its
//! requests reach the ledger.
//!
//! The server sends the messages of a thread to its subscribers only. If a turn runs and nobody has subscribed, because the last
//! client has left or the server begins a queued turn by itself, the hub subscribes. It also does so before it starts a turn for an
//! API caller in a thread that no client has open. It leaves once the turn is over, or once a client subscribes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::api_calls::turn_of;
use super::purpose::Purpose;
use super::{Effect, Engine, Now, ServerOwner, free_line, inject};
use crate::invariants::holds;
use crate::protocol::{Event, Method};
use crate::wire::{Conn, Members, Message};

/// Limit on each list of threads here.
const THREADS_MAX: usize = 1_024;

/// The threads that the hub has subscribed to on its own account, and what it knows about others.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Watched {
    ours: BTreeSet<String>,
    /// Threads that the server has reported as active.
    active: BTreeSet<String>,
    /// Threads whose client tells the time. The server asks exactly one subscriber, which must be that client.
    with_clock: BTreeSet<String>,
}

impl Watched {
    pub(super) fn check(&self, owner: ServerOwner) {
        let Watched { ours, active, with_clock } = self;
        let all = [ours, active, with_clock];
        holds!("watched.within-limit", all.iter().all(|threads| threads.len() <= THREADS_MAX));
        holds!("watched.only-in-hubs", owner.watches_threads() || (ours.is_empty() && with_clock.is_empty()));
        holds!("watched.leaves-clocks-to-their-clients", ours.is_disjoint(with_clock));
    }

    /// Whether the hub has subscribed to no thread.
    pub(super) fn has_no_subscription(&self) -> bool {
        self.ours.is_empty()
    }

    /// The hub's connection has ended, and all its subscriptions with it.
    pub(super) fn connection_ended(&mut self) {
        self.ours.clear();
    }

    /// The server has reported no thread as active.
    pub(super) fn are_idle(&self) -> bool {
        self.active.is_empty()
    }

    pub(super) fn server_ended(&mut self) {
        *self = Watched::default();
    }

    /// Whether the server has reported a thread as active.
    pub(super) fn is_active(&self, thread_id: &str) -> bool {
        self.active.contains(thread_id)
    }

    /// The server has refused the subscription.
    pub(super) fn refused(&mut self, thread_id: &str) {
        self.ours.remove(thread_id);
    }

    /// The server has unloaded the thread.
    pub(super) fn closed(&mut self, thread_id: &str) {
        self.ours.remove(thread_id);
        self.active.remove(thread_id);
    }
}

fn add(threads: &mut BTreeSet<String>, thread_id: &str) -> bool {
    threads.len() < THREADS_MAX && threads.insert(thread_id.to_owned())
}

impl Engine {
    /// Subscribes to a thread, unless somebody has.
    pub(super) fn watch(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        let can_watch = self.owner.watches_threads()
            && self.is_initialized(Conn::OWN)
            && !self.watched.with_clock.contains(thread_id);
        if !can_watch || self.clients.has_subscriber(thread_id) || !add(&mut self.watched.ours, thread_id) {
            return;
        }
        self.resume(thread_id, effects);
    }

    /// Loads a thread into the server, which takes a turn in no other. The client of a relay does that itself.
    pub(super) fn load(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        if self.owner.watches_threads() {
            self.watch(thread_id, effects);
        } else if self.clients.own().is_served() && !self.clients.has_subscriber(thread_id) {
            self.resume(thread_id, effects);
        }
    }

    fn resume(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        let purpose = Purpose::Watch { thread_id: thread_id.to_owned() };
        let params = json!({ "threadId": thread_id, "excludeTurns": true });
        self.call_about(Method::ThreadResume, &params.to_string(), purpose, effects);
    }

    /// Ends the hub's own subscription to a thread, if there is one.
    fn unwatch(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        let is_subscribed = self.clients.own_mut().threads.remove(thread_id);
        if self.watched.ours.remove(thread_id) || is_subscribed {
            self.unsubscribe(thread_id, effects);
        }
    }

    fn unsubscribe(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        let params = json!({ "threadId": thread_id });
        self.call_about(Method::ThreadUnsubscribe, &params.to_string(), Purpose::Unwatch, effects);
    }

    fn call_about(&mut self, method: Method, params: &str, purpose: Purpose, effects: &mut Vec<Effect>) {
        let (_, line) = self.calls.call_server(Conn::OWN, method.name(), Some(params), purpose);
        effects.push(inject(Conn::OWN, vec![free_line(line)]));
    }

    /// Reads the turn that was running when the hub subscribed: nobody was sent how it began.
    fn read_running_turn(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        let params = json!({ "threadId": thread_id, "itemsView": "full", "sortDirection": "desc", "limit": 1 });
        self.call_about(Method::ThreadTurnsList, &params.to_string(), Purpose::Look, effects);
    }

    /// Whether something happens in a thread that has to be on record.
    fn is_running(&self, thread_id: &str) -> bool {
        self.watched.active.contains(thread_id) || self.threads.turn_in(thread_id).is_some()
    }

    /// Whether an API caller waits for a turn of this thread.
    fn starts_turn(&self, thread_id: &str) -> bool {
        self.calls
            .to_server
            .iter()
            .any(|call| matches!(&call.purpose, Some(Purpose::Turn { thread_id: of, .. }) if of == thread_id))
    }

    /// The hub's own connection is initialized: takes the place of clients that have left meanwhile, and looks after the requests
    /// that were open when an earlier hub ended.
    pub(super) fn watch_all(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_initialized(Conn::OWN) {
            return;
        }
        let running: BTreeSet<String> =
            self.threads.running().map(str::to_owned).chain(self.watched.active.iter().cloned()).collect();
        running.iter().for_each(|thread_id| self.watch(thread_id, effects));
        for thread_id in self.requests.threads_before() {
            if self.clients.has_subscriber(&thread_id) {
                let params = json!({ "threadId": thread_id, "includeTurns": false });
                self.call_about(Method::ThreadRead, &params.to_string(), Purpose::Look, effects);
            } else {
                self.watch(&thread_id, effects);
            }
        }
    }

    /// The server responds with a thread and its status.
    pub(super) fn thread_reported(&mut self, now: Now, conn: Conn, response: &Event<'_>, effects: &mut Vec<Effect>) {
        let thread = response.result.and_then(Members::of).and_then(|result| result.get("thread"));
        let Some(thread) = thread.and_then(Members::of) else { return };
        let (Some(thread_id), Some(status)) = (thread.text("id"), thread.get("status")) else { return };
        self.requests.thread_status(now, &thread_id, status, effects);
        let is_active = self.status_changed(&thread_id, status);
        if is_active && conn == Conn::OWN && self.watched.ours.contains(&thread_id) {
            self.read_running_turn(&thread_id, effects);
        }
        if is_active || self.starts_turn(&thread_id) {
            return;
        }
        // The end of its turn was sent to a client that has left.
        if conn == Conn::OWN {
            self.threads.turn_is_over(&thread_id);
        }
        if self.watched.ours.contains(&thread_id) {
            self.unwatch(&thread_id, effects);
        }
    }

    /// Remembers whether a thread is active; returns that.
    fn status_changed(&mut self, thread_id: &str, status: &RawValue) -> bool {
        let status = Members::of(status).and_then(|status| status.text("type"));
        let is_active = status.as_deref() == Some("active");
        if is_active {
            add(&mut self.watched.active, thread_id);
        } else {
            self.watched.active.remove(thread_id);
        }
        is_active
    }

    /// A client has subscribed to a thread.
    pub(super) fn client_subscribed(&mut self, conn: Conn, thread_id: &str, effects: &mut Vec<Effect>) {
        if conn != Conn::OWN {
            self.unstarted.forget(thread_id);
            self.unwatch(thread_id, effects);
        }
    }

    /// A client has left a thread, in which it may have been about to start a turn.
    pub(super) fn client_left(&mut self, conn: Conn, thread_id: &str, starts_turn: bool, effects: &mut Vec<Effect>) {
        self.unstarted.forget(thread_id);
        if conn != Conn::OWN && (starts_turn || self.is_running(thread_id)) {
            self.watch(thread_id, effects);
        }
    }

    /// A turn has started, which only subscribers are told. The server subscribes all its clients to the threads of sub-agents, and
    /// the hub, too; it leaves them to the clients.
    pub(super) fn turn_watched(&mut self, conn: Conn, message: &Message<'_>, effects: &mut Vec<Effect>) {
        let Some((thread_id, _)) = Some(message).filter(|_| self.owner.watches_threads()).and_then(turn_of) else {
            return;
        };
        if conn != Conn::OWN {
            if self.add_subscription(conn, &thread_id) {
                self.client_subscribed(conn, &thread_id, effects);
            }
            return;
        }
        let is_wanted = self.watched.ours.contains(&thread_id) || self.clients.own().threads.contains(&thread_id);
        if !is_wanted && self.clients.any_connected() {
            self.unsubscribe(&thread_id, effects);
        }
    }

    /// A turn is over: nothing more is expected in its thread, unless an API caller starts the next one.
    pub(super) fn watched_turn_completed(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        self.watched.active.remove(thread_id);
        if self.watched.ours.contains(thread_id) && !self.starts_turn(thread_id) {
            self.unwatch(thread_id, effects);
        }
    }

    /// The server has refused the turn of an API caller.
    pub(super) fn turn_refused(&mut self, thread_id: &str, effects: &mut Vec<Effect>) {
        if !self.is_running(thread_id) {
            self.watched_turn_completed(thread_id, effects);
        }
    }

    /// The server asks a client for the time.
    pub(super) fn time_is_asked(&mut self, params: Option<&RawValue>, effects: &mut Vec<Effect>) {
        let params = params.filter(|_| self.owner.watches_threads()).and_then(Members::of);
        if let Some(thread_id) = params.and_then(|params| params.text("threadId")) {
            add(&mut self.watched.with_clock, &thread_id);
            self.unwatch(&thread_id, effects);
        }
    }

    /// The status of a thread has changed, which all clients are told. It may run with no subscriber: a client has left a turn
    /// behind, or its queue.
    pub(super) fn thread_status_changed(&mut self, now: Now, params: &RawValue, effects: &mut Vec<Effect>) {
        let Some(params) = Some(params).filter(|_| self.owner.watches_threads()).and_then(Members::of) else { return };
        let (Some(thread_id), Some(status)) = (params.text("threadId"), params.get("status")) else { return };
        self.requests.thread_status(now, &thread_id, status, effects);
        if self.status_changed(&thread_id, status) {
            self.watch(&thread_id, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::LinkEffect;
    use std::time::Duration;

    use super::super::{
        AnswerBefore, ApiRequest, AssemblySettings, ContextChange, ContextSettings, EngineSettings, Incoming, Input,
        LedgerEntry, Note, OpenBefore, Order, OverruleFor, OwnLine, Passage, Peer, Remembered, RequestSettings,
        RequestSource, RequestType, ServerOwner, Transport, Variables, WaitingCommand, request_digest,
    };
    use super::*;
    use crate::wire::{Line, LineEnd, Side};

    const NOW: Now = Now { unix_us: 1, elapsed: Duration::ZERO };

    struct Hub(Engine);

    impl Hub {
        /// A hub that is initialized.
        fn new() -> Hub {
            Hub::with(RequestSettings::default())
        }

        fn with(requests: RequestSettings) -> Hub {
            let mut hub = Hub(Hub::engine(requests, ServerOwner::Hub));
            hub.handle(Input::SessionOpened { generation: "g".to_owned() });
            hub.connect(0);
            hub.read(r#"0<{"id":"own:1","result":{"userAgent":"x/0.169.0"}}"#);
            hub
        }

        fn engine(requests: RequestSettings, server_owner: ServerOwner) -> Engine {
            Engine::new(EngineSettings {
                budget: Default::default(),
                exit_grace: Duration::from_secs(10),
                context: ContextSettings::default(),
                assembly: AssemblySettings::default(),
                requests,
                server_owner,
                own_ids: "own:".to_owned(),
                tokens_before: 0,
            })
        }

        fn connect(&mut self, conn: u32) {
            let peer =
                Peer { transport: Transport::WebSocket, pid: None, terminal: None, variables: Default::default() };
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

    #[expect(clippy::wildcard_enum_match_arm, reason = "other effects send nothing")]
    /// The methods of the calls that the hub makes on its own connection.
    fn sent(effects: &[Effect]) -> String {
        let lines = effects.iter().flat_map(|effect| match effect {
            Effect::Link(LinkEffect::Inject(injection)) if injection.conn == Conn::OWN => injection.lines.as_slice(),
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
    fn thread_has_the_variables_of_the_client_that_found_it_alone() {
        let mut hub = Hub::new();
        let with = |hub: &mut Hub, conn: u32, terminal: &str| {
            let variables = Variables { pairs: vec![("A".to_owned(), conn.to_string())], decide: false };
            let terminal = Some(terminal.to_owned());
            let peer = Peer { transport: Transport::WebSocket, pid: None, terminal, variables };
            hub.handle(Input::Connected { conn: Conn(conn), peer });
            hub.read(&format!(r#"{conn}>{{"id":1,"method":"initialize","params":{{}}}}"#));
            hub.read(&format!(r#"{conn}<{{"id":1,"result":{{"userAgent":"x/0.169.0"}}}}"#));
        };
        let call = |hub: &mut Hub, conn: u32, method: &str, thread: &str| {
            hub.read(&format!(r#"{conn}>{{"id":2,"method":"thread/{method}","params":{{"threadId":"t"}}}}"#));
            hub.read(&format!(r#"{conn}<{{"id":2,"result":{{"thread":{{"id":"{thread}"}}}}}}"#));
        };
        let whose = |hub: &Hub| -> String {
            let given = hub.0.given_variables().into_iter();
            given.map(|(id, given)| format!("{id}:{} ", given.terminal.clone().unwrap_or_default())).collect()
        };
        with(&mut hub, 1, "one");
        call(&mut hub, 1, "start", "t");
        assert_eq!(whose(&hub), "t:one ");
        with(&mut hub, 2, "two");
        call(&mut hub, 2, "resume", "t");
        assert_eq!(whose(&hub), "t:one ", "another client follows it");
        call(&mut hub, 2, "fork", "f");
        assert_eq!(whose(&hub), "f:two t:one ");
        hub.handle(Input::Disconnected { conn: Conn(1) });
        hub.handle(Input::Disconnected { conn: Conn(2) });
        with(&mut hub, 3, "three");
        call(&mut hub, 3, "resume", "t");
        assert_eq!(whose(&hub), "f:two t:three ", "nobody followed it");
        hub.turn(3, "started");
        hub.handle(Input::Disconnected { conn: Conn(3) });
        with(&mut hub, 4, "four");
        call(&mut hub, 4, "resume", "t");
        assert_eq!(whose(&hub), "f:two t:three ", "a turn runs");
        hub.turn(4, "completed");
        hub.handle(Input::Disconnected { conn: Conn(4) });
        // A client without variables.
        hub.join(5);
        assert_eq!(whose(&hub), "f:two ");
        hub.read(r#"0<{"method":"thread/closed","params":{"threadId":"f"}}"#);
        assert_eq!(whose(&hub), "");
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
    fn overruled_denial_loads_its_thread() {
        let mut hub = Hub::new();
        let action = r#"{"type":"command","source":"shell","command":"ls","cwd":"/"}"#;
        let review = format!(
            r#"{{"threadId":"t","turnId":"u","reviewId":"r","review":{{"status":"denied"}},"action":{action}}}"#
        );
        // The hub reads the same for each of its clients.
        for conn in [1, 2] {
            assert_eq!(hub.join(conn), "");
            hub.read(&format!(r#"{conn}<{{"method":"item/autoApprovalReview/completed","params":{review}}}"#));
        }
        for conn in [1, 2] {
            hub.handle(Input::Disconnected { conn: Conn(conn) });
        }
        let overrule = |hub: &mut Hub| {
            let request = ApiRequest::Overrule {
                review_id: "r".to_owned(),
                applies: OverruleFor::NextTurn,
                source: RequestSource::Cli,
                by: "me".to_owned(),
            };
            hub.handle(Input::ApiRequest { api_call: 1, request, server_listens: true })
        };
        assert_eq!(overrule(&mut hub), "thread/resume(no turns) thread/approveGuardianDeniedAction");
        assert_eq!(overrule(&mut hub), "", "the first call has no answer yet");
    }

    #[test]
    fn refused_overruling_of_a_client_leaves_the_denial() {
        let mut hub = Hub::new();
        hub.join(1);
        let action = r#"{"type":"command","source":"shell","command":"ls","cwd":"/"}"#;
        let review = format!(
            r#"{{"threadId":"t","turnId":"u","reviewId":"r","review":{{"status":"denied"}},"action":{action}}}"#
        );
        hub.read(&format!(r#"1<{{"method":"item/autoApprovalReview/completed","params":{review}}}"#));
        let call = |id: u32| {
            let params = r#"{"threadId":"t","event":{"id":"r"}}"#;
            format!(r#"1>{{"id":{id},"method":"thread/approveGuardianDeniedAction","params":{params}}}"#)
        };
        let stands = |hub: &mut Hub| {
            let request = ApiRequest::Overrule {
                review_id: "r".to_owned(),
                applies: OverruleFor::NextTurn,
                source: RequestSource::Cli,
                by: "me".to_owned(),
            };
            !hub.handle(Input::ApiRequest { api_call: 1, request, server_listens: true }).is_empty()
        };
        hub.read(&call(3));
        hub.read(r#"1<{"id":3,"result":{}}"#);
        assert!(!stands(&mut hub));
        let mut hub = Hub::new();
        hub.join(1);
        hub.read(&format!(r#"1<{{"method":"item/autoApprovalReview/completed","params":{review}}}"#));
        hub.read(&call(3));
        hub.read(r#"1<{"id":3,"error":{"code":-32600,"message":"no"}}"#);
        assert!(stands(&mut hub));
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

    const ASKED: &str = "item/fileChange/requestApproval";

    /// Two requests were open when an earlier hub ended, in threads `t` and `o`.
    fn taken_over() -> Hub {
        let mut hub = Hub::new();
        let row = |id: &str, thread: &str| OpenBefore {
            request_id: format!("g-{id}"),
            rpc_request_id: id.to_owned(),
            thread_id: Some(thread.to_owned()),
            turn_id: Some("u".to_owned()),
            is_for_human: id != "7",
            digest: request_digest(ASKED, Some(r#"{"threadId":"t","turnId":"u","itemId":"i"}"#)),
            answer: None,
        };
        let open_requests = vec![row("5", "t"), row("6", "o"), row("7", "o")];
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
        let mut ended = Vec::new();
        for effect in effects {
            if let Effect::Note(Note::RequestResolved { request_id, .. }) = effect {
                ended.push(request_id);
            }
        }
        ended
    }

    fn resumed(call: u32, thread: &str, status: &str) -> String {
        format!(r#"{{"id":"own:{call}","result":{{"thread":{{"id":"{thread}","status":{status}}}}}}}"#)
    }

    const WAITING: &str = r#"{"type":"active","activeFlags":["waitingOnApproval"]}"#;

    #[test]
    fn request_that_ended_without_a_hub_is_over() {
        let mut hub = taken_over();
        // The threads are asked for in the order of their ids.
        assert_eq!(ended(&mut hub, &resumed(2, "o", r#"{"type":"idle"}"#)), ["g-6", "g-7"]);
        assert_eq!(ended(&mut hub, &resumed(3, "t", WAITING)), [""; 0]);
        let resolved = r#"{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":5}}"#;
        assert_eq!(ended(&mut hub, resolved), ["g-5"]);
    }

    /// A server that gives no reason to wait asks again after it has said that the thread works.
    #[test]
    fn working_thread_may_still_ask_again() {
        let works = r#"{"type":"active","activeFlags":[]}"#;
        let changed = |status: &str| {
            format!(r#"{{"method":"thread/status/changed","params":{{"threadId":"t","status":{status}}}}}"#)
        };
        let mut hub = taken_over();
        assert_eq!(ended(&mut hub, &resumed(3, "t", works)), [""; 0]);
        assert_eq!(ended(&mut hub, &changed(works)), [""; 0]);
        let params = r#"{"threadId":"t","turnId":"u","itemId":"i"}"#;
        assert_eq!(asked(&mut hub, &format!(r#"{{"id":5,"method":"{ASKED}","params":{params}}}"#)).1, ["opens g-5"]);
        assert_eq!(hub.0.requests_pending(), 1);
        let answer = Line { bytes: br#"{"id":5,"result":{"decision":"accept"}}"#, end: LineEnd::Newline };
        hub.join(1);
        let decision = hub.0.read(NOW, Conn(1), Side::Client, Incoming::Line(answer), &mut Vec::new());
        assert_eq!(decision.expect("BUG: nothing is held").line, Passage::Forward);
        // It does not ask again, and the turn of the request is over.
        let mut hub = taken_over();
        assert_eq!(ended(&mut hub, &resumed(3, "t", works)), [""; 0]);
        assert_eq!(ended(&mut hub, &changed(r#"{"type":"idle"}"#)), ["g-5"]);
        let mut hub = taken_over();
        assert_eq!(ended(&mut hub, &resumed(3, "t", works)), [""; 0]);
        let turn = r#"{"threadId":"t","turn":{"id":"u","status":"completed"}}"#;
        assert_eq!(ended(&mut hub, &format!(r#"{{"method":"turn/completed","params":{turn}}}"#)), ["g-5"]);
    }

    #[test]
    fn slow_copy_of_a_request_that_is_over_is_not_opened() {
        let mut hub = taken_over();
        let ask = |item: &str| {
            let params = format!(r#"{{"threadId":"t","turnId":"u","itemId":"{item}"}}"#);
            format!(r#"{{"id":5,"method":"{ASKED}","params":{params}}}"#)
        };
        let resolved = r#"{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":5}}"#;
        assert_eq!(ended(&mut hub, resolved), ["g-5"]);
        assert_eq!(asked(&mut hub, &ask("i")).1, [""; 0]);
        assert_eq!(hub.0.requests_pending(), 0);
        // A new one, and then a copy of the one before it.
        assert_eq!(asked(&mut hub, &ask("new")).1, ["opens g-5.2"]);
        hub.join(1);
        hub.read(&format!("1<{}", ask("i")));
        assert_eq!(hub.0.requests_pending(), 1);
    }

    /// The end of a turn comes over a slow connection, after the state of its thread has shown it.
    #[test]
    fn late_end_of_a_turn_ends_its_requests() {
        let mut hub = Hub::new();
        hub.handle(Input::Remembered(Box::default()));
        hub.join(1);
        hub.turn(1, "started");
        hub.read(&format!(r#"1<{{"id":5,"method":"{ASKED}","params":{{"threadId":"t","turnId":"u","itemId":"i"}}}}"#));
        assert_eq!(hub.0.requests_pending(), 1);
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(1) }), "thread/resume(no turns)");
        hub.join(2);
        hub.read(&format!("0<{}", resumed(2, "t", r#"{"type":"idle"}"#)));
        hub.turn(2, "completed");
        assert_eq!(hub.0.requests_pending(), 0);
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

    /// The lines for the server and the entries for the ledger that follow a line of the server.
    fn asked(hub: &mut Hub, line: &str) -> (Vec<String>, Vec<String>) {
        let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
        let mut effects = Vec::new();
        let decision = hub.0.read(NOW, Conn::OWN, Side::Server, Incoming::Line(line), &mut effects);
        effects.extend(decision.expect("BUG: nothing is held").then);
        follow(effects)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other effects and entries end no request")]
    fn follow(effects: Vec<Effect>) -> (Vec<String>, Vec<String>) {
        let (mut lines, mut entries) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::Link(LinkEffect::Inject(injection)) => {
                    let text = |line: &OwnLine| String::from_utf8_lossy(&line.bytes).into_owned();
                    lines.extend(injection.lines.iter().map(text).filter(|line| !line.contains("method")));
                }
                Effect::Order(order) => {
                    let (Order::Keep(entry) | Order::KeepFirst(_, entry) | Order::Commit(_, entry)) = order else {
                        continue;
                    };
                    entries.extend(match entry {
                        LedgerEntry::RequestOpened(row) => Some(format!("opens {}", row.request_id)),
                        LedgerEntry::RequestReopened { request_id, by } => {
                            Some(format!("reopens {request_id} of {by}"))
                        }
                        LedgerEntry::RequestUncertain { request_id, .. } => Some(format!("is unsure of {request_id}")),
                        LedgerEntry::RequestEnded(end) => {
                            Some(format!("ends {} {}", end.request_id, end.error.map_or("answered", |(code, _)| code)))
                        }
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        (lines, entries)
    }

    const QUESTION: &str = r#"{"threadId":"t","turnId":"u","questions":[{"id":"a","isSecret":true}]}"#;

    fn stored(method: &str, params: &str, payload: &str, source: RequestSource) -> Remembered {
        let answer = AnswerBefore {
            payload: payload.to_owned(),
            at_us: 1,
            source,
            by: "uid 0".to_owned(),
            reason: None,
            is_dispatched: false,
        };
        let row = OpenBefore {
            request_id: "g-5".to_owned(),
            rpc_request_id: "5".to_owned(),
            thread_id: Some("t".to_owned()),
            turn_id: Some("u".to_owned()),
            is_for_human: true,
            digest: request_digest(method, Some(params)),
            answer: Some(answer),
        };
        Remembered { requests: vec!["g-5".to_owned()], open_requests: vec![row], ..Remembered::default() }
    }

    /// The hub was killed between the commit of an answer and its sending.
    #[test]
    fn stored_answer_is_sent_when_asked_again() {
        const PARAMS: &str = r#"{"threadId":"t","turnId":"u","itemId":"i"}"#;
        const OTHER: &str = r#"{"threadId":"t","turnId":"u","itemId":"o"}"#;
        const USER_INPUT: &str = "item/tool/requestUserInput";
        let (api, client) = (RequestSource::Api, RequestSource::Client);
        let accept = r#"{"decision":"accept"}"#;
        let sent = r#"{"id":5,"result":{"decision":"accept"}}"#;
        let refused = r#"{"id":5,"error":{"code":1,"message":"no"}}"#;
        let omitted = r#"{"omitted":"secret"}"#;
        let reopened = ["reopens g-5 of uid 0", "opens g-5"].as_slice();
        for (method, params, payload, source, again, lines, entries) in [
            (ASKED, PARAMS, accept, api, PARAMS, [sent].as_slice(), [].as_slice()),
            (ASKED, PARAMS, accept, client, PARAMS, &[sent], &[]),
            (ASKED, PARAMS, r#"{"error":{"code":1,"message":"no"}}"#, client, PARAMS, &[refused], &[]),
            (ASKED, PARAMS, accept, api, OTHER, &[], &["is unsure of g-5", "opens g-5.2"]),
            (USER_INPUT, QUESTION, omitted, api, QUESTION, &[], reopened),
        ] {
            let line = format!(r#"{{"id":5,"method":"{method}","params":{again}}}"#);
            let mut hub = Hub::new();
            hub.handle(Input::Remembered(Box::new(stored(method, params, payload, source))));
            let (got, kept) = asked(&mut hub, &line);
            assert_eq!(
                (got, kept),
                (lines.iter().map(ToString::to_string).collect(), entries.iter().map(ToString::to_string).collect()),
                "{line}"
            );
        }
    }

    /// The server has asked twice under an id, and may have got neither answer.
    #[test]
    fn only_the_newest_answer_under_an_id_is_sent() {
        const PARAMS: &str = r#"{"threadId":"t","turnId":"u","itemId":"i"}"#;
        let answer = |word: &str| format!(r#"{{"decision":"{word}"}}"#);
        let of = |word: &str| stored(ASKED, PARAMS, &answer(word), RequestSource::Api);
        let mut remembered = of("decline");
        remembered.open_requests[0].request_id = "g-5.2".to_owned();
        remembered.open_requests.extend(of("accept").open_requests);
        let mut hub = Hub::new();
        let mut effects = Vec::new();
        hub.0.handle(NOW, Input::Remembered(Box::new(remembered)), &mut effects);
        assert_eq!(follow(effects).1, ["is unsure of g-5"]);
        let (sent, _) = asked(&mut hub, &format!(r#"{{"id":5,"method":"{ASKED}","params":{PARAMS}}}"#));
        assert_eq!(sent, [format!(r#"{{"id":5,"result":{}}}"#, answer("decline"))]);
        assert_eq!(hub.0.requests.threads_before(), [""; 0]);
    }

    /// The ledger is read after the server has asked again.
    #[test]
    fn stored_answer_is_sent_once_it_is_known() {
        const PARAMS: &str = r#"{"threadId":"t","turnId":"u","itemId":"i"}"#;
        let mut hub = Hub::new();
        hub.read(&format!(r#"0<{{"id":5,"method":"{ASKED}","params":{PARAMS}}}"#));
        let remembered = stored(ASKED, PARAMS, r#"{"decision":"accept"}"#, RequestSource::Api);
        let mut effects = Vec::new();
        hub.0.handle(NOW, Input::Remembered(Box::new(remembered)), &mut effects);
        // Its row is there already.
        let (sent, entries) = follow(effects);
        assert_eq!(
            (sent, entries),
            (vec![r#"{"id":5,"result":{"decision":"accept"}}"#.to_owned()], vec!["opens g-5".to_owned()])
        );
    }

    /// Another request under an open id is not the one that was open.
    #[test]
    fn other_parameters_withdraw_an_open_request() {
        let ask = |item: &str| {
            let params = format!(r#"{{"threadId":"t","turnId":"u","itemId":"{item}"}}"#);
            format!(r#"{{"id":5,"method":"{ASKED}","params":{params}}}"#)
        };
        let withdrawn = |name: &str| format!("ends {name} withdrawn_by_server");
        let mut hub = taken_over();
        let entries = asked(&mut hub, &ask("other")).1;
        assert_eq!(entries, [withdrawn("g-5"), "opens g-5.2".to_owned()]);
        let entries = asked(&mut hub, &ask("third")).1;
        assert_eq!(entries, [withdrawn("g-5.2"), "opens g-5.3".to_owned()]);
        assert_eq!(asked(&mut hub, &ask("third")).1, [""; 0]);
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
            is_for_human: true,
            digest: [0; 32],
            answer: None,
        };
        let remembered = Remembered { open_requests: vec![row], ..Remembered::default() };
        assert_eq!(hub.handle(Input::Remembered(Box::new(remembered))), "thread/read");
        assert_eq!(ended(&mut hub, &resumed(2, "t", r#"{"type":"active","activeFlags":[]}"#)), [""; 0]);
        let idle = r#"{"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}"#;
        assert_eq!(ended(&mut hub, idle), ["g-5"]);
    }

    #[test]
    fn idle_thread_is_left_again() {
        let mut hub = Hub::new();
        hub.join(1);
        hub.turn(1, "started");
        // The end of the turn was on its way to the client.
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(1) }), "thread/resume(no turns)");
        assert_eq!(hub.read(&format!("0<{}", resumed(2, "t", r#"{"type":"idle"}"#))), "thread/unsubscribe");
        assert!(hub.0.is_idle());
        let mut hub = taken_over();
        assert_eq!(hub.read(&format!("0<{}", resumed(2, "o", r#"{"type":"idle"}"#))), "thread/unsubscribe");
    }

    #[test]
    fn turn_that_runs_when_the_hub_comes_is_read() {
        let mut hub = Hub::new();
        hub.join(1);
        hub.turn(1, "started");
        hub.handle(Input::Disconnected { conn: Conn(1) });
        let came = format!("0<{}", resumed(2, "t", r#"{"type":"active","activeFlags":[]}"#));
        assert_eq!(hub.read(&came), "thread/turns/list");
        // A release may not have that call.
        assert_eq!(hub.read(r#"0<{"id":"own:3","error":{"code":-32600,"message":"unknown"}}"#), "");
        assert_eq!(hub.turn(0, "completed"), "thread/unsubscribe");
    }

    #[test]
    fn turn_that_an_earlier_hub_saw_start_is_watched() {
        let mut hub = Hub::new();
        hub.join(1);
        hub.connect(2);
        let initialize = r#"{"id":1,"method":"initialize","params":{"clientInfo":{"name":"tui","version":"2"}}}"#;
        hub.read(&format!("2>{initialize}"));
        hub.read(r#"2>{"id":3,"method":"thread/resume","params":{"threadId":"u"}}"#);
        let active = r#"{"type":"active","activeFlags":[]}"#;
        hub.read(&format!(r#"2<{{"id":3,"result":{{"thread":{{"id":"u","status":{active}}}}}}}"#));
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(2) }), "thread/resume(no turns)");
    }

    #[test]
    fn client_that_leaves_at_once_is_replaced_again() {
        let mut hub = Hub::new();
        hub.status("active");
        hub.read(&format!("0<{}", resumed(2, "t", WAITING)));
        assert_eq!(hub.join(1), "thread/unsubscribe");
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(1) }), "thread/resume(no turns)");
    }

    #[test]
    fn turn_that_its_client_left_before_the_start_is_watched() {
        let mut hub = Hub::new();
        hub.join(1);
        hub.read(r#"1>{"id":5,"method":"turn/start","params":{"threadId":"t","input":[]}}"#);
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(1) }), "thread/resume(no turns)");
    }

    #[test]
    fn new_connection_of_the_hub_watches_again() {
        let mut hub = Hub::new();
        hub.status("active");
        hub.handle(Input::Disconnected { conn: Conn::OWN });
        hub.connect(0);
        let sent = hub.read(r#"0<{"id":"own:3","result":{"userAgent":"x/0.169.0"}}"#);
        assert_eq!(sent, "initialized thread/resume(no turns)");
    }

    #[test]
    fn thread_of_a_sub_agent_is_left_to_its_clients() {
        let mut hub = Hub::new();
        assert_eq!(hub.turn(0, "started"), "", "there is nobody else");
        hub.join(1);
        let params = r#"{"threadId":"child","turn":{"id":"v"}}"#;
        let started = format!(r#"0<{{"method":"turn/started","params":{params}}}"#);
        assert_eq!(hub.read(&started), "thread/unsubscribe");
    }

    /// Threads by who has subscribed, each while a client of another thread is connected.
    #[test]
    fn running_thread_that_nobody_has_is_watched() {
        let resume = "thread/resume(no turns)";
        let started = r#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}"#;
        let check = |what: &str, expect: &str, before: &dyn Fn(&mut Hub)| {
            let mut hub = Hub::new();
            hub.connect(1);
            let initialize = r#"{"id":1,"method":"initialize","params":{"clientInfo":{"name":"tui","version":"2"}}}"#;
            hub.read(&format!("1>{initialize}"));
            before(&mut hub);
            assert_eq!(hub.status("active"), expect, "{what}");
        };
        check("nobody's", resume, &|_| {});
        check("a client's", "", &|hub| drop(hub.join(2)));
        check("of a client that has left it idle", resume, &|hub| {
            hub.join(2);
            hub.handle(Input::Disconnected { conn: Conn(2) });
        });
        check("of a client that has unsubscribed", resume, &|hub| {
            hub.join(2);
            hub.read(r#"2>{"id":3,"method":"thread/unsubscribe","params":{"threadId":"t"}}"#);
            hub.read(r#"2<{"id":3,"result":{"status":"unsubscribed"}}"#);
        });
        check("of a sub-agent, which the client is told of", "", &|hub| drop(hub.read(&format!("1<{started}"))));
        check("of a sub-agent whose client has left", "", &|hub| {
            hub.read(&format!("1<{started}"));
            assert_eq!(hub.handle(Input::Disconnected { conn: Conn(1) }), resume);
        });
        check("of a client that tells the time", "", &|hub| {
            hub.join(2);
            hub.read(r#"2<{"id":9,"method":"currentTime/read","params":{"threadId":"t"}}"#);
            hub.handle(Input::Disconnected { conn: Conn(2) });
        });
    }

    #[test]
    fn sub_agent_that_is_watched_is_left_to_the_client_that_is_told_of_it() {
        let mut hub = Hub::new();
        hub.join(1);
        let params = r#"{"threadId":"child","status":{"type":"active","activeFlags":[]}}"#;
        let status = format!(r#"0<{{"method":"thread/status/changed","params":{params}}}"#);
        assert_eq!(hub.read(&status), "thread/resume(no turns)");
        let started = r#"1<{"method":"turn/started","params":{"threadId":"child","turn":{"id":"v"}}}"#;
        assert_eq!(hub.read(started), "thread/unsubscribe");
        assert_eq!(hub.0.subscriptions(Conn(1)), ["child", "t"]);
    }

    #[test]
    fn thread_whose_client_tells_the_time_is_not_watched() {
        let mut hub = Hub::new();
        hub.join(1);
        hub.turn(1, "started");
        hub.read(r#"1<{"id":9,"method":"currentTime/read","params":{"threadId":"t"}}"#);
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(1) }), "");
    }

    #[test]
    fn turn_that_is_refused_ends_the_watch() {
        let mut hub = Hub::new();
        let request = ApiRequest::Input { text: "x".to_owned(), thread_id: Some("t".to_owned()) };
        let sent = hub.handle(Input::ApiRequest { api_call: 7, request, server_listens: true });
        assert_eq!(sent, "thread/resume(no turns) turn/start");
        assert_eq!(hub.read(&format!("0<{}", resumed(2, "t", r#"{"type":"idle"}"#))), "");
        let refused = r#"0<{"id":"own:3","error":{"code":-32600,"message":"no"}}"#;
        assert_eq!(hub.read(refused), "thread/unsubscribe");
    }

    #[test]
    fn policy_sends_a_lost_answer_again() {
        let expiry = vec![(RequestType::Approval, Duration::from_secs(1))];
        let mut hub = Hub::with(RequestSettings { expiry, ..RequestSettings::default() });
        hub.join(1);
        let params = r#"{"threadId":"t","turnId":"u","itemId":"i"}"#;
        hub.read(&format!(r#"1<{{"id":5,"method":"item/fileChange/requestApproval","params":{params}}}"#));
        hub.handle(Input::Committed { token: 1, done: true });
        let later = Now { unix_us: 2, elapsed: Duration::from_secs(2) };
        hub.0.handle(later, Input::Tick, &mut Vec::new());
        assert_eq!(hub.handle(Input::Committed { token: 2, done: true }), "answer");
        assert_eq!(hub.handle(Input::NotWritten(3)), "answer");
        hub.handle(Input::Written(3));
        assert_eq!(hub.handle(Input::NotWritten(3)), "", "it is with the server");
    }

    #[test]
    fn answer_over_a_lost_connection_may_be_repeated() {
        let expiry = vec![(RequestType::Approval, Duration::from_secs(1))];
        let mut hub = Hub::with(RequestSettings { expiry, ..RequestSettings::default() });
        hub.join(1);
        hub.join(2);
        let params = r#"{"threadId":"t","turnId":"u","itemId":"i"}"#;
        for conn in [1, 2] {
            hub.read(&format!(r#"{conn}<{{"id":5,"method":"item/fileChange/requestApproval","params":{params}}}"#));
        }
        hub.handle(Input::Committed { token: 1, done: true });
        let later = Now { unix_us: 2, elapsed: Duration::from_secs(2) };
        hub.0.handle(later, Input::Tick, &mut Vec::new());
        assert_eq!(hub.handle(Input::Committed { token: 2, done: true }), "answer");
        hub.handle(Input::SentOver { mark: 3, conn: Conn(1) });
        hub.handle(Input::Written(3));
        let forwards = |hub: &mut Hub| {
            let line = Line { bytes: br#"{"id":5,"result":{"decision":"accept"}}"#, end: LineEnd::Newline };
            let decision = hub.0.read(NOW, Conn(2), Side::Client, Incoming::Line(line), &mut Vec::new());
            matches!(decision.expect("BUG: nothing is held").line, Passage::Forward)
        };
        assert!(!forwards(&mut hub), "the server has an answer");
        hub.handle(Input::Disconnected { conn: Conn(1) });
        assert!(forwards(&mut hub), "the server may have none");
    }

    #[test]
    fn unsent_answer_is_not_lost_with_own_connection() {
        let mut hub = Hub::with(RequestSettings::default());
        hub.join(1);
        let params = r#"{"threadId":"t","turnId":"u","itemId":"i"}"#;
        hub.read(&format!(r#"1<{{"id":5,"method":"item/fileChange/requestApproval","params":{params}}}"#));
        hub.handle(Input::Committed { token: 1, done: true });
        let given = serde_json::from_str(r#"{"decision":"accept"}"#).expect("BUG: it is an answer");
        let (source, by) = (RequestSource::Api, "me".to_owned());
        let request = ApiRequest::Respond { request_id: "g-5".to_owned(), given: Box::new(given), source, by };
        hub.handle(Input::ApiRequest { api_call: 7, request, server_listens: true });
        assert_eq!(hub.handle(Input::Committed { token: 2, done: true }), "answer");
        hub.handle(Input::Disconnected { conn: Conn::OWN });
        let line = Line { bytes: br#"{"id":5,"result":{"decision":"decline"}}"#, end: LineEnd::Newline };
        let decision = hub.0.read(NOW, Conn(1), Side::Client, Incoming::Line(line), &mut Vec::new());
        assert_eq!(decision.expect("BUG: nothing is held").line, Passage::Withhold);
    }

    #[test]
    fn only_hubs_put_context_before_steered_words() {
        let pushed = || {
            let command = crate::engine::Command {
                cmd: "make".to_owned(),
                exit_code: None,
                cwd: None,
                block_id: None,
                ts: 1,
                preview: Default::default(),
                shell_id: None,
                provenance: Default::default(),
            };
            vec![WaitingCommand { row: 1, thread_id: None, forgotten_before: 0, command }]
        };
        let carries = |hub: &mut Hub, conn: u32, thread: &str| {
            hub.handle(Input::Context(ContextChange::Added(pushed())));
            let input = r#"[{"type":"image","url":"x"}]"#;
            let line = format!(
                r#"{{"id":9,"method":"turn/steer","params":{{"threadId":"{thread}","expectedTurnId":"u","input":{input}}}}}"#
            );
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let decision = hub.0.read(NOW, Conn(conn), Side::Client, Incoming::Line(line), &mut Vec::new());
            matches!(decision.expect("BUG: nothing is held").line, Passage::Replace(_))
        };
        let mut hub = Hub::new();
        hub.join(1);
        assert!(carries(&mut hub, 1, "t"));
        let mut hub = Hub::new();
        hub.join(1);
        hub.read(r#"1>{"id":3,"method":"thread/start","params":{"threadSource":"thread_title"}}"#);
        hub.read(r#"1<{"id":3,"result":{"thread":{"id":"title","threadSource":"thread_title"}}}"#);
        assert!(!carries(&mut hub, 1, "title"));
        let mut relay = Hub(Hub::engine(RequestSettings::default(), ServerOwner::Client));
        relay.read(r#"0>{"id":2,"method":"thread/resume","params":{"threadId":"t"}}"#);
        relay.read(r#"0<{"id":2,"result":{"thread":{"id":"t"}}}"#);
        assert!(!carries(&mut relay, 0, "t"));
    }

    /// The thread of the call that the hub makes for an API caller who names none; `None` if there is no such call.
    fn target(hub: &mut Hub, request: ApiRequest) -> Option<String> {
        let mut effects = Vec::new();
        hub.0.handle(NOW, Input::ApiRequest { api_call: 1, request, server_listens: true }, &mut effects);
        #[expect(clippy::wildcard_enum_match_arm, reason = "other effects send nothing")]
        let lines = effects.iter().flat_map(|effect| match effect {
            Effect::Link(LinkEffect::Inject(injection)) => injection.lines.as_slice(),
            _ => &[],
        });
        let call: serde_json::Value =
            serde_json::from_slice(&lines.last()?.bytes).expect("BUG: our own lines are JSON");
        call["params"]["threadId"].as_str().map(str::to_owned)
    }

    /// A thread whose description has these members starts, and a turn in it.
    fn runs(hub: &mut Hub, thread_id: &str, members: &str) {
        let thread = format!(r#"{{"id":"{thread_id}"{members}}}"#);
        hub.read(&format!(r#"1<{{"method":"thread/started","params":{{"thread":{thread}}}}}"#));
        let params = format!(r#"{{"threadId":"{thread_id}","turn":{{"id":"turn of {thread_id}"}}}}"#);
        hub.read(&format!(r#"1<{{"method":"turn/started","params":{params}}}"#));
    }

    #[test]
    fn threads_of_persons_alone_are_targets() {
        let input = || ApiRequest::Input { text: "go on".to_owned(), thread_id: None };
        let interrupt = || ApiRequest::Interrupt { thread_id: None };
        for members in [
            r#","threadSource":"thread_title","ephemeral":true"#,
            r#","source":{"subAgent":{"thread_spawn":{"depth":1,"parent_thread_id":"t"}}}"#,
            r#","source":{"subAgent":"review"}"#,
            r#","source":{"subAgent":{"other":"guardian"}}"#,
            r#","threadSource":"recap","ephemeral":true"#,
            r#","canAcceptDirectInput":false"#,
        ] {
            let mut hub = Hub::new();
            hub.join(1);
            runs(&mut hub, "t", r#","threadSource":"user""#);
            runs(&mut hub, "hidden", members);
            assert_eq!(target(&mut hub, input()).as_deref(), Some("t"), "{members}");
            assert_eq!(target(&mut hub, interrupt()).as_deref(), Some("t"), "{members}");
            // The hidden one is still there for those who name it.
            let named = ApiRequest::Interrupt { thread_id: Some("hidden".to_owned()) };
            assert_eq!(target(&mut hub, named).as_deref(), Some("hidden"), "{members}");
            // Without any other thread it is no target either.
            let mut alone = Hub::new();
            alone.join(1);
            runs(&mut alone, "hidden", members);
            assert_eq!(target(&mut alone, input()), None, "{members}");
        }
    }

    #[test]
    fn interruption_finds_the_running_turn() {
        let mut hub = Hub::new();
        hub.join(1);
        runs(&mut hub, "a", "");
        runs(&mut hub, "b", "");
        let interrupt = || ApiRequest::Interrupt { thread_id: None };
        assert_eq!(target(&mut hub, interrupt()).as_deref(), Some("b"));
        hub.read(r#"1<{"method":"turn/completed","params":{"threadId":"b","turn":{"id":"turn of b"}}}"#);
        assert_eq!(target(&mut hub, interrupt()).as_deref(), Some("a"));
        // A message goes to the thread in which somebody spoke last.
        let input = ApiRequest::Input { text: "go on".to_owned(), thread_id: None };
        assert_eq!(target(&mut hub, input).as_deref(), Some("b"));
    }

    #[test]
    fn relay_watches_nothing() {
        let mut relay = Hub(Hub::engine(RequestSettings::default(), ServerOwner::Client));
        assert_eq!(relay.status("active"), "");
    }
}
