//! The connections of a hub: their beginning and their end, and which of them go on record.
//!
//! A connection goes on record with the first line of its client. Codex's daemon only looks whether a server answers: it
//! sends `initialize` and `initialized`, and leaves. Such a probe gets its answer and leaves no trace.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::attached_client::{CurrentClient, VersionWatch, introduced};
use super::model::{Decision, Effect, Note, Now, Peer};
use super::open_calls::OpenCall;
use super::{ClientName, Engine};
use crate::protocol::{Event, Method};
use crate::wire::{Conn, Members, Side};

/// The client name with which codex's daemon looks whether a server answers.
pub const PROBE: &str = "codex_app_server_daemon";

/// Subscriptions that are remembered for each connection.
const SUBSCRIPTIONS_MAX: usize = 1_024;

/// Whether a connection is on record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum OnRecord {
    /// Its client has written nothing yet.
    #[default]
    NotYet,
    /// Its client may only be a probe.
    Probe,
    Yes,
}

impl CurrentClient {
    pub(super) fn has_few_subscriptions(&self) -> bool {
        self.threads.len() <= SUBSCRIPTIONS_MAX
    }
}

impl Engine {
    pub(super) fn connected(&mut self, conn: Conn, peer: Peer, effects: &mut Vec<Effect>) {
        match conn {
            Conn::OWN => self.initialize(effects),
            other => {
                self.requests.connected(other);
                self.clients.connected(other, peer);
            }
        }
    }

    /// Handles the end of a connection; the lines that its client wrote before still go to the server.
    pub(super) fn disconnected(&mut self, now: Now, conn: Conn, effects: &mut Vec<Effect>) {
        self.left_before_its_turn(now, conn, effects);
        if self.assembly.holds.holds_line_of(conn) {
            self.process_all_held(now, effects);
        }
        self.requests.disconnected(conn);
        drop(self.calls.to_client.take_all_of(conn));
        let calls = self.calls.to_server.take_all_of(conn);
        let starts_turn = |call: &&OpenCall| call.method == Some(Method::TurnStart);
        let starting: Vec<String> =
            calls.iter().filter(starts_turn).filter_map(|call| call.thread_id.clone()).collect();
        for lease in calls.iter().filter_map(|call| call.lease.as_ref()) {
            self.context.server_ended(lease, effects);
        }
        for purpose in calls.into_iter().filter_map(|call| call.purpose) {
            purpose.server_ended(effects);
        }
        if conn == Conn::OWN {
            self.interrupts.server_ended(effects);
            let own = self.clients.own_mut();
            (own.initialized_with, own.version) = (None, VersionWatch::Before);
            own.threads.clear();
            self.watched.connection_ended();
        } else if let Some(client) = self.clients.disconnected(conn) {
            if client.on_record == OnRecord::Yes {
                let ClientName { name, version } = client.name.clone();
                effects.push(Effect::Note(Note::ConnClose { conn, name, version }));
            }
            let mut left: BTreeMap<&String, bool> = client.threads.iter().map(|thread_id| (thread_id, false)).collect();
            left.extend(starting.iter().map(|thread_id| (thread_id, true)));
            for (thread_id, starts_turn) in left {
                self.client_left(conn, thread_id, starts_turn, effects);
            }
        }
    }

    /// Whether this is the connection of a client of the hub.
    pub fn is_connected(&self, conn: Conn) -> bool {
        self.clients.is_connected(conn)
    }

    /// How many clients of the hub are connected.
    pub fn connections(&self) -> usize {
        self.clients.count()
    }

    /// The client of a connection; `None` if that is not on record.
    pub fn client(&self, conn: Conn) -> Option<&ClientName> {
        let client = self.clients.of(conn);
        (client.on_record == OnRecord::Yes).then_some(&client.name)
    }

    /// Whether no turn is running and no request is open.
    pub fn is_idle(&self) -> bool {
        self.threads.are_idle() && self.watched.are_idle() && self.requests.pending() == 0
    }

    /// Whether the server has answered this connection's `initialize`, so that it takes further lines, and they are recorded.
    pub fn is_initialized(&self, conn: Conn) -> bool {
        self.clients.of(conn).version == VersionWatch::Done && self.is_on_record(conn)
    }

    /// Whether the messages of a connection are recorded. Those of a relay on pipes always are.
    pub(super) fn is_on_record(&self, conn: Conn) -> bool {
        conn == Conn::OWN || self.clients.of(conn).on_record == OnRecord::Yes
    }

    /// Whether the subscriptions of any client have changed since the last call.
    pub fn subscriptions_changed(&mut self) -> bool {
        std::mem::take(&mut self.subscriptions_changed)
    }

    /// The threads that a client has subscribed to.
    pub fn subscriptions(&self, conn: Conn) -> Vec<String> {
        self.clients.of(conn).threads.iter().cloned().collect()
    }

    /// A client of a hub gets the messages of a thread; returns whether that is new.
    pub(super) fn add_subscription(&mut self, conn: Conn, thread_id: &str) -> bool {
        let threads = &mut self.clients.of_mut(conn).threads;
        let is_new = !threads.contains(thread_id) && threads.len() < SUBSCRIPTIONS_MAX;
        if is_new {
            threads.insert(thread_id.to_owned());
            self.subscriptions_changed = true;
        }
        is_new
    }

    /// The server responds to a call that begins or ends a subscription.
    pub(super) fn subscribed(&mut self, conn: Conn, call: &OpenCall, response: &Event<'_>, effects: &mut Vec<Effect>) {
        let subscribes = call.method.is_some_and(|method| method.opens_thread() || method == Method::ThreadUnsubscribe);
        if !self.clients.own().is_served() || !subscribes {
            return;
        }
        match (call.method, response.result.and_then(Members::of)) {
            (Some(method), Some(result)) if method.opens_thread() => {
                let thread_id = result.get("thread").and_then(Members::of).and_then(|thread| thread.text("id"));
                if let Some(thread_id) = thread_id {
                    self.add_subscription(conn, &thread_id);
                    self.client_subscribed(conn, &thread_id, effects);
                }
            }
            (Some(Method::ThreadUnsubscribe), Some(_)) => {
                if let Some(thread_id) = &call.thread_id {
                    self.subscriptions_changed = true;
                    self.clients.of_mut(conn).threads.remove(thread_id);
                    self.client_left(conn, thread_id, false, effects);
                }
            }
            (_, _) => {}
        }
    }

    /// The server has unloaded a thread.
    pub(super) fn thread_closed(&mut self, params: &RawValue, effects: &mut Vec<Effect>) {
        if let Some(thread_id) = Members::of(params).and_then(|params| params.text("threadId")) {
            self.context.thread_closed(&thread_id, effects);
            self.clients.forget_thread(&thread_id);
            self.watched.closed(&thread_id);
            self.threads.closed(&thread_id);
            self.subscriptions_changed = true;
        }
    }

    /// Puts the connection on record ahead of its first line, unless the line may be a probe's. Such a line and its answer are
    /// left out of the record.
    pub(super) fn put_on_record(
        &mut self,
        conn: Conn,
        from: Side,
        event: Option<&Event<'_>>,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) {
        if conn == Conn::OWN {
            return;
        }
        let client = self.clients.of_mut(conn);
        let introduction = match (client.on_record, from) {
            (OnRecord::Yes, _) => return,
            (OnRecord::Probe | OnRecord::NotYet, Side::Server) => {
                decision.record = None;
                return;
            }
            (OnRecord::Probe, Side::Client) => {
                if event.is_some_and(|event| event.method == Some(Method::Initialized)) {
                    decision.record = None;
                    return;
                }
                client.introduction.take()
            }
            (OnRecord::NotYet, Side::Client) => {
                event.filter(|event| event.method == Some(Method::Initialize)).and_then(|event| introduced(event))
            }
        }
        .unwrap_or_default();
        let is_probe = client.on_record == OnRecord::NotYet && introduction.name.as_deref() == Some(PROBE);
        if is_probe {
            (client.on_record, client.introduction) = (OnRecord::Probe, Some(introduction));
            decision.record = None;
            return;
        }
        let has_stayed = std::mem::replace(&mut client.on_record, OnRecord::Yes) == OnRecord::Probe;
        let Peer { transport, pid, terminal, .. } = client.peer.clone();
        let ClientName { name, version } = introduction.clone();
        effects.push(Effect::Note(Note::ConnOpen { conn, name, version, transport, pid, terminal }));
        if has_stayed {
            self.introduce(conn, introduction, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::LinkEffect;
    use std::time::Duration;

    use super::super::{
        AssemblySettings, ContextSettings, EngineSettings, Incoming, Input, Remembered, RequestSettings, ServerOwner,
        Transport,
    };
    use super::*;
    use crate::wire::{Line, LineEnd};

    const PEER: Peer = Peer {
        transport: Transport::WebSocket,
        pid: Some(7),
        terminal: None,
        variables: crate::engine::Variables::NONE,
    };

    struct Hub(Engine);

    impl Hub {
        fn new() -> Hub {
            Hub::with(RequestSettings::default())
        }

        fn with(requests: RequestSettings) -> Hub {
            let mut engine = Engine::new(EngineSettings {
                budget: Default::default(),
                exit_grace: Duration::from_secs(10),
                context: ContextSettings::default(),
                assembly: AssemblySettings::default(),
                requests,
                server_owner: ServerOwner::Hub,
                own_ids: "codex-shim:".to_owned(),
                tokens_before: 0,
            });
            engine.handle(NOW, Input::SessionOpened { generation: "g".to_owned() }, &mut Vec::new());
            Hub(engine)
        }

        fn connect(&mut self, conn: u32) -> String {
            self.handle(Input::Connected { conn: Conn(conn), peer: PEER })
        }

        fn handle(&mut self, input: Input) -> String {
            let mut effects = Vec::new();
            self.0.handle(NOW, input, &mut effects);
            in_words(&effects)
        }

        /// `1>` is a line of the client of connection 1, `1<` one that the server sends on it.
        fn read(&mut self, step: &str) -> String {
            let (conn, line) = step.split_once(['<', '>']).expect("BUG: a step names its side");
            let from = if step.as_bytes()[conn.len()] == b'>' { Side::Client } else { Side::Server };
            let conn = Conn(conn.parse().expect("BUG: a step names its connection"));
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            let mut effects = Vec::new();
            let decision =
                self.0.read(NOW, conn, from, Incoming::Line(line), &mut effects).expect("BUG: nothing is held");
            let mut words = vec![in_words(&effects)];
            words.extend(decision.record.is_some().then(|| "record".to_owned()));
            words.extend(decision.hold.map(|token| format!("hold{token}")));
            words.push(format!("{:?}", decision.line).to_lowercase());
            words.push(in_words(&decision.then));
            words.retain(|word| !word.is_empty());
            words.join(" ")
        }
    }

    const NOW: Now = Now { unix_us: 1, elapsed: Duration::ZERO };

    #[expect(clippy::wildcard_enum_match_arm, reason = "new effects are shown in debug form")]
    fn in_words(effects: &[Effect]) -> String {
        let word = |effect: &Effect| match effect {
            Effect::Note(note) => serde_json::to_string(note).expect("BUG: notes are plain data"),
            Effect::Link(LinkEffect::Introduce(conn, client)) => {
                format!("{}:{}", conn.0, client.name.as_deref().unwrap_or("-"))
            }
            Effect::Link(LinkEffect::Inject(injection)) => {
                format!("inject{}({})", injection.conn.0, injection.lines.len())
            }
            Effect::Order(super::super::Order::Keep(entry)) => {
                format!("keep({})", format!("{entry:?}").split(['(', ' ']).next().unwrap_or_default())
            }
            Effect::Order(super::super::Order::KeepFirst(token, entry)) => {
                format!("first{token}({})", format!("{entry:?}").split(['(', ' ']).next().unwrap_or_default())
            }
            other => format!("{other:?}"),
        };
        effects.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn initialize(conn: u32, name: &str) -> String {
        format!(
            r#"{conn}>{{"id":1,"method":"initialize","params":{{"clientInfo":{{"name":"{name}","version":"2"}}}}}}"#
        )
    }

    #[test]
    fn connection_goes_on_record_with_its_first_line() {
        let mut hub = Hub::new();
        assert_eq!(hub.connect(1), "");
        assert_eq!(
            hub.read(&initialize(1, "tui")),
            r#"{"event":"conn_open","data":{"conn":1,"name":"tui","version":"2","transport":"websocket","pid":7}} record forward 1:tui"#
        );
        assert_eq!(
            hub.handle(Input::Disconnected { conn: Conn(1) }),
            r#"{"event":"conn_close","data":{"conn":1,"name":"tui","version":"2"}}"#
        );
        hub.connect(2);
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(2) }), "");
    }

    #[test]
    fn probe_leaves_no_trace() {
        let mut hub = Hub::new();
        hub.connect(1);
        assert_eq!(hub.read(&initialize(1, PROBE)), "forward");
        assert_eq!(hub.read(r#"1<{"id":1,"result":{"userAgent":"x/0.169.0"}}"#), "forward");
        assert_eq!(hub.read(r#"1<{"method":"configWarning","params":{}}"#), "forward");
        // A message that needs no parsing is left out as well, as those about the threads of other clients.
        let status = r#"1<{"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}"#;
        assert_eq!(hub.read(status), "forward");
        assert_eq!(hub.read(r#"1>{"method":"initialized"}"#), "forward");
        assert_eq!(hub.handle(Input::Disconnected { conn: Conn(1) }), "");
    }

    #[test]
    fn daemon_that_stays_goes_on_record() {
        let mut hub = Hub::new();
        hub.connect(1);
        hub.read(&initialize(1, PROBE));
        hub.read(r#"1<{"id":1,"result":{"userAgent":"x/0.169.0"}}"#);
        hub.read(r#"1>{"method":"initialized"}"#);
        assert!(!hub.0.is_initialized(Conn(1)), "a probe carries no answer of ours");
        let opened = hub.read(r#"1>{"id":2,"method":"thread/list"}"#);
        assert!(
            opened.starts_with(r#"{"event":"conn_open","data":{"conn":1,"name":"codex_app_server_daemon""#),
            "{opened}"
        );
        assert!(opened.ends_with("record forward"), "{opened}");
        assert!(hub.0.is_initialized(Conn(1)), "the server takes answers of ours from it");
    }

    #[test]
    fn calls_of_two_clients_with_one_id_are_told_apart() {
        let mut hub = Hub::new();
        for conn in 1..=2 {
            hub.connect(conn);
            hub.read(&initialize(conn, "tui"));
        }
        // The first client's call is secret, the second one's is not.
        hub.read(r#"1>{"id":5,"method":"getAuthStatus"}"#);
        hub.read(r#"2>{"id":5,"method":"thread/list"}"#);
        let line = br#"{"id":5,"result":{"authToken":"t"}}"#;
        let mut record = |conn| {
            let line = Line { bytes: line, end: LineEnd::Newline };
            let read = hub.0.read(NOW, Conn(conn), Side::Server, Incoming::Line(line), &mut Vec::new());
            format!("{:?}", read.expect("BUG: nothing is held").record)
        };
        assert!(record(2).contains("Verbatim"));
        assert!(record(1).contains("Omitted"));
    }

    const ASKED: &str =
        r#"<{"id":0,"method":"item/fileChange/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"i"}}"#;

    #[test]
    fn request_for_two_clients_has_one_row_and_one_answer() {
        let mut hub = Hub::new();
        hub.handle(Input::Remembered(Box::default()));
        for conn in 1..=3 {
            hub.connect(conn);
            hub.read(&initialize(conn, "tui"));
        }
        let first = hub.read(&format!("1{ASKED}"));
        assert!(first.contains("request_opened") && first.contains("first1(RequestOpened"), "{first}");
        // The second delivery waits for the same row.
        assert_eq!(hub.read(&format!("2{ASKED}")), "record hold1 forward");
        hub.handle(Input::Committed { token: 1, done: true });
        let answered = hub.read(r#"2>{"id":0,"result":{"decision":"accept"}}"#);
        assert!(answered.contains("request_resolved") && answered.ends_with("record hold2 forward"), "{answered}");
        hub.handle(Input::Committed { token: 2, done: true });
        hub.handle(Input::Written(2));
        assert_eq!(hub.read(r#"1>{"id":0,"result":{"decision":"decline"}}"#), "keep(AnswerLost) record withhold");
        // A slow client is asked after the answer.
        assert_eq!(hub.read(&format!("3{ASKED}")), "record forward");
        assert_eq!(hub.read(r#"3>{"id":0,"result":{"decision":"decline"}}"#), "keep(AnswerLost) record withhold");
        for conn in 1..=3 {
            let resolved =
                format!(r#"{conn}<{{"method":"serverRequest/resolved","params":{{"threadId":"t","requestId":0}}}}"#);
            hub.read(&resolved);
        }
        assert_eq!(hub.read(&format!("3{ASKED}")), "record forward");
        assert_eq!(hub.read(r#"3>{"id":0,"result":{"decision":"decline"}}"#), "keep(AnswerLost) record withhold");
    }

    /// A client reads slowly, so its copy of a request comes after the end of the request.
    #[test]
    fn late_copy_of_a_request_that_nobody_was_to_see_is_withheld() {
        for (hold, expect) in [(true, "record withhold"), (false, "record forward")] {
            let mut hub = Hub::with(RequestSettings { hold, ..RequestSettings::default() });
            hub.handle(Input::Remembered(Box::default()));
            for conn in 1..=2 {
                hub.connect(conn);
                hub.read(&initialize(conn, "tui"));
            }
            let shown = hub.read(&format!("1{ASKED}"));
            assert_eq!(shown.ends_with("withhold"), hold, "{shown}");
            hub.handle(Input::Committed { token: 1, done: true });
            hub.read(r#"1<{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":0}}"#);
            assert_eq!(hub.read(&format!("2{ASKED}")), expect);
        }
    }

    #[test]
    fn request_whose_answer_was_lost_is_asked_and_answered_again() {
        let mut hub = Hub::new();
        hub.handle(Input::Remembered(Box::default()));
        for conn in 1..=2 {
            hub.connect(conn);
            hub.read(&initialize(conn, "tui"));
            hub.read(&format!("{conn}{ASKED}"));
        }
        hub.handle(Input::Committed { token: 1, done: true });
        hub.read(r#"1>{"id":0,"result":{"decision":"accept"}}"#);
        hub.handle(Input::Committed { token: 2, done: true });
        assert_eq!(hub.read(r#"2>{"id":0,"result":{"decision":"accept"}}"#), "keep(AnswerLost) record withhold");
        hub.handle(Input::Disconnected { conn: Conn(1) });
        // The server may not have read the answer; it ignores a second one.
        assert_eq!(hub.read(r#"2>{"id":0,"result":{"decision":"accept"}}"#), "keep(AnswerLost) record forward");
        hub.connect(3);
        hub.read(&initialize(3, "tui"));
        let again = hub.read(&format!("3{ASKED}"));
        assert!(again.contains(r#""request_id":"g-0.2""#), "{again}");
    }

    #[test]
    fn resolved_request_that_was_asked_again_takes_no_answer() {
        let mut hub = Hub::new();
        hub.handle(Input::Remembered(Box::default()));
        for conn in 1..=2 {
            hub.connect(conn);
            hub.read(&initialize(conn, "tui"));
            hub.read(&format!("{conn}{ASKED}"));
        }
        hub.handle(Input::Committed { token: 1, done: true });
        hub.read(r#"1>{"id":0,"result":{"decision":"accept"}}"#);
        hub.handle(Input::Committed { token: 2, done: true });
        hub.handle(Input::Written(2));
        // The server asks a client that has come since, and only then reads the answer.
        hub.connect(3);
        hub.read(&initialize(3, "tui"));
        hub.read(&format!("3{ASKED}"));
        hub.read(r#"1<{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":0}}"#);
        assert_eq!(hub.read(r#"3>{"id":0,"result":{"decision":"accept"}}"#), "keep(AnswerLost) record withhold");
    }

    #[test]
    fn request_that_ended_under_another_hub_gets_another_name() {
        let mut hub = Hub::new();
        let requests = ["g-0", "g-0.2", "g-s.5"].map(str::to_owned).to_vec();
        let remembered = Remembered { requests, ..Remembered::default() };
        hub.handle(Input::Remembered(Box::new(remembered)));
        hub.connect(1);
        hub.read(&initialize(1, "tui"));
        let again = hub.read(&format!("1{ASKED}"));
        assert!(again.contains(r#""request_id":"g-0.3""#), "{again}");
    }

    #[test]
    fn request_asked_before_the_ledger_is_open_gets_a_row_of_its_own() {
        let mut hub = Hub::new();
        for conn in 1..=2 {
            hub.connect(conn);
            hub.read(&initialize(conn, "tui"));
            let line = format!("{conn}{ASKED}").replace("\"id\":0", &format!("\"id\":{conn}"));
            hub.read(&line);
        }
        hub.read(r#"2>{"id":2,"result":{"decision":"accept"}}"#);
        let requests = ["g-1", "g-2"].map(str::to_owned).to_vec();
        let remembered = hub.handle(Input::Remembered(Box::new(Remembered { requests, ..Remembered::default() })));
        for name in ["g-1.2", "g-2.2"] {
            assert!(remembered.contains(&format!(r#""request_id":"{name}""#)), "{remembered}");
        }
        // The answer goes along.
        assert_eq!(remembered.matches("(RequestOpened").count(), 2);
        assert!(remembered.ends_with("first3(RequestEnded)"), "{remembered}");
        hub.handle(Input::Committed { token: 1, done: true });
        let answered = hub.read(r#"1>{"id":1,"result":{"decision":"accept"}}"#);
        assert!(answered.contains(r#""request_id":"g-1.2""#), "{answered}");
    }

    #[test]
    fn client_that_sees_a_request_of_the_hub_before_it_is_stored_is_noted() {
        let mut hub = Hub::new();
        hub.handle(Input::Remembered(Box::default()));
        hub.connect(0);
        hub.connect(1);
        hub.read(&initialize(1, "tui"));
        hub.read(&format!("0{ASKED}"));
        hub.handle(Input::Committed { token: 1, done: false });
        assert_eq!(hub.read(&format!("1{ASKED}")), "keep(RequestLate) record forward");
    }

    #[test]
    fn secret_answer_to_a_request_that_others_were_asked_is_left_out() {
        let mut hub = Hub::new();
        for conn in 1..=2 {
            hub.connect(conn);
            hub.read(&initialize(conn, "tui"));
        }
        hub.read(
            r#"1<{"id":2,"method":"item/tool/requestUserInput","params":{"itemId":"c","questions":[{"isSecret":true}]}}"#,
        );
        let line = Line { bytes: br#"{"id":2,"result":{"answers":{"a":{"answers":["x"]}}}}"#, end: LineEnd::Newline };
        let read = hub.0.read(NOW, Conn(2), Side::Client, Incoming::Line(line), &mut Vec::new());
        assert!(format!("{:?}", read.expect("BUG: nothing is held").record).contains("Omitted"));
    }

    #[test]
    fn hub_itself_answers_nothing_for_a_client() {
        let mut hub = Hub::new();
        hub.connect(0);
        assert_eq!(hub.read(r#"0<{"id":3,"method":"currentTime/read","params":{}}"#), "record withhold");
    }

    #[test]
    fn turn_ends_once_for_all_subscribers() {
        let mut hub = Hub::new();
        let idle = |words: &str| words.contains("NotifyIdle");
        for conn in 1..=2 {
            hub.connect(conn);
            hub.read(&initialize(conn, "tui"));
        }
        let turn = |method: &str, id: &str| {
            format!(
                r#"<{{"method":"turn/{method}","params":{{"threadId":"t","turn":{{"id":"{id}","status":"completed"}}}}}}"#
            )
        };
        hub.read(&format!("1{}", turn("started", "a")));
        assert!(idle(&hub.read(&format!("1{}", turn("completed", "a")))));
        hub.read(&format!("1{}", turn("started", "b")));
        // The second client is behind; the end of the first turn is no news, and the second turn still runs.
        hub.read(&format!("2{}", turn("started", "a")));
        assert!(!idle(&hub.read(&format!("2{}", turn("completed", "a")))));
        assert_eq!(hub.0.threads.turn_in("t"), Some("b"));
    }

    #[test]
    fn context_of_a_turn_whose_client_left_is_kept() {
        let mut hub = Hub::new();
        hub.connect(1);
        hub.read(&initialize(1, "tui"));
        hub.read(r#"1>{"id":2,"method":"turn/start","params":{"threadId":"t","input":[{"type":"text","text":"x"}]}}"#);
        hub.handle(Input::Disconnected { conn: Conn(1) });
        // A later client may have the same number of calls open, and an answer to the departed one completes none of them.
        hub.connect(2);
        hub.read(&initialize(2, "tui"));
        assert_eq!(hub.read(r#"2<{"id":2,"result":{}}"#), "record forward");
    }
}
