//! An engine of a hub with a real ledger and a server.

use std::collections::VecDeque;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::super::request_table::{RunIds, answers, ended_in, keep, open_in, rows};
use super::super::{database, ledger_writer};
use crate::api::WhichRequests;
use crate::engine::{
    ApiRequest, AssemblySettings, ContextSettings, Effect, Engine, EngineSettings, Incoming, Input, LedgerEntry,
    LinkEffect, Now, Order, Passage, Peer, Remembered, RequestSettings, RequestSource, RequestType, Rule, ServerOwner,
    Token, Transport,
};
use crate::protocol::Method;
use crate::wire::{Conn, Line, LineEnd, Side};

pub(super) const COMMAND: &str = Method::CommandApproval.name();
pub(super) const QUESTION: &str = Method::UserInput.name();

/// How long a line waits for the ledger.
pub(super) const HOLD_MS: u64 = 250;

pub(super) fn run() -> RunIds {
    RunIds { session_id: "s".to_owned(), generation: "g".to_owned(), own_run: "g".to_owned() }
}

pub(super) fn params(method: &str, item: &str) -> String {
    match method {
        _ if method == QUESTION => {
            format!(r#"{{"threadId":"t","turnId":"u","itemId":"{item}","questions":[{{"id":"a","isSecret":true}}]}}"#)
        }
        _ => format!(r#"{{"threadId":"t","turnId":"u","itemId":"{item}","command":"/bin/ls -l","cwd":"/p"}}"#),
    }
}

pub(super) fn answer(method: &str, word: &str) -> String {
    match method {
        _ if method == QUESTION => format!(r#"{{"answers":{{"a":{{"answers":["{word}"]}}}}}}"#),
        _ => format!(r#"{{"decision":"{word}"}}"#),
    }
}

/// The ledger and the server, which outlive a hub, and the hub that runs.
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) elapsed_ms: u64,
    pub(super) ledger: Connection,
    pub(super) orders: VecDeque<Order>,
    /// Lines for the server that wait for a commit.
    pub(super) held: Vec<(Token, String, Option<Token>)>,
    /// Answers that the server has got.
    pub(super) got: Vec<Value>,
    /// Calls of ours that the server has got.
    pub(super) calls: Vec<String>,
    pub(super) replies: Vec<String>,
    pub(super) warnings: usize,
}

impl World {
    pub(super) fn new(rules: Vec<Rule>, expiry: Vec<(RequestType, Duration)>) -> World {
        World::of(ServerOwner::Hub, rules, expiry)
    }

    pub(super) fn of(owner: ServerOwner, rules: Vec<Rule>, expiry: Vec<(RequestType, Duration)>) -> World {
        let mut ledger = Connection::open_in_memory().expect("BUG: a database in memory");
        database::at_once(&mut ledger, |transaction| {
            ledger_writer::MIGRATIONS.iter().try_for_each(|sql| transaction.execute_batch(sql))
        })
        .expect("BUG: our own SQL");
        let engine = engine(owner, rules, expiry);
        let mut world = World {
            engine,
            elapsed_ms: 0,
            ledger,
            orders: VecDeque::new(),
            held: Vec::new(),
            got: Vec::new(),
            calls: Vec::new(),
            replies: Vec::new(),
            warnings: 0,
        };
        world.handle(Input::SessionOpened { generation: "g".to_owned() });
        for conn in (0..3).filter(|_| owner == ServerOwner::Hub) {
            let peer =
                Peer { transport: Transport::WebSocket, pid: None, terminal: None, variables: Default::default() };
            world.handle(Input::Connected { conn: Conn(conn), peer });
        }
        if owner == ServerOwner::Hub {
            world.read(0, Side::Server, r#"{"id":"own:1","result":{"userAgent":"x/0.169.0"}}"#);
        }
        for conn in if owner == ServerOwner::Hub { 1..3 } else { 0..1 } {
            world.resumes(conn);
        }
        world
    }

    /// A client greets the server and resumes the thread.
    fn resumes(&mut self, conn: u32) {
        let info = format!(r#"{{"clientInfo":{{"name":"client {conn}","version":"1"}}}}"#);
        self.read(conn, Side::Client, &format!(r#"{{"id":1,"method":"initialize","params":{info}}}"#));
        self.read(conn, Side::Server, r#"{"id":1,"result":{"userAgent":"x/0.169.0"}}"#);
        let thread = r#"{"thread":{"id":"t"},"cwd":"/p","sandbox":{"type":"readOnly"}}"#;
        self.read(conn, Side::Client, r#"{"id":2,"method":"thread/resume","params":{"threadId":"t"}}"#);
        self.read(conn, Side::Server, &format!(r#"{{"id":2,"result":{thread}}}"#));
    }

    /// One more client connects to a hub.
    pub(super) fn client_joins(&mut self, conn: u32) {
        let peer = Peer { transport: Transport::WebSocket, pid: None, terminal: None, variables: Default::default() };
        self.handle(Input::Connected { conn: Conn(conn), peer });
        self.resumes(conn);
    }

    pub(super) fn now(&self) -> Now {
        Now { unix_us: 1_000 * (1_000 + self.elapsed_ms), elapsed: Duration::from_millis(self.elapsed_ms) }
    }

    /// Stores what an earlier hub has.
    pub(super) fn stored(&mut self, entries: &[LedgerEntry]) {
        database::at_once(&mut self.ledger, |transaction| {
            entries.iter().try_for_each(|entry| keep(transaction, &run(), entry).map(drop))
        })
        .expect("it is stored");
    }

    pub(super) fn handle(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.engine.handle(self.now(), input, &mut effects);
        self.carry_out(effects);
    }

    pub(super) fn read(&mut self, conn: u32, from: Side, line: &str) {
        let mut effects = Vec::new();
        let bytes = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
        let decision = self.engine.read(self.now(), Conn(conn), from, Incoming::Line(bytes), &mut effects);
        let decision = decision.expect("BUG: nothing is held");
        effects.extend(decision.then);
        match (from, decision.line, decision.hold) {
            (Side::Client, Passage::Forward, None) => self.server_gets(line, decision.mark),
            (Side::Client, Passage::Forward, Some(hold)) => self.held.push((hold, line.to_owned(), decision.mark)),
            (Side::Client, Passage::Replace(_) | Passage::Withhold, _) | (Side::Server, ..) => {}
        }
        self.carry_out(effects);
    }

    pub(super) fn server_gets(&mut self, line: &str, mark: Option<Token>) {
        let message: Value = serde_json::from_str(line).expect("BUG: our own lines are JSON");
        match message["method"].as_str() {
            None => self.got.push(message),
            Some(method) => self.calls.push(format!("{method} {}", message["params"])),
        }
        mark.into_iter().for_each(|mark| self.handle(Input::Written(mark)));
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other effects reach neither the server nor the ledger")]
    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Order(order) => self.orders.push_back(order),
                Effect::Link(LinkEffect::Inject(injection)) => {
                    let lines = injection.lines.iter().map(|line| String::from_utf8_lossy(&line.bytes).into_owned());
                    let lines: Vec<String> = lines.collect();
                    lines.iter().for_each(|line| self.server_gets(line, None));
                    injection.mark.into_iter().for_each(|mark| self.handle(Input::Written(mark)));
                }
                Effect::Link(LinkEffect::Release(token)) => {
                    let (free, held): (Vec<_>, Vec<_>) =
                        std::mem::take(&mut self.held).into_iter().partition(|(hold, ..)| *hold == token);
                    self.held = held;
                    free.into_iter().for_each(|(_, line, mark)| self.server_gets(&line, mark));
                }
                Effect::Link(LinkEffect::Reply(_, reply)) => self.replies.push(format!("{reply:?}")),
                Effect::CheckProgram(token, _) => {
                    self.handle(Input::ProgramChecked { token, checked: Ok("/bin/ls".to_owned()) });
                }
                Effect::Warn(_) => self.warnings += 1,
                Effect::Link(LinkEffect::Recall(token)) => {
                    let waiting = self.held.len();
                    self.held.retain(|(_, _, mark)| *mark != Some(token));
                    if self.held.len() < waiting {
                        self.handle(Input::Recalled(token));
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn ledger_works(&mut self) {
        while let Some(order) = self.orders.pop_front() {
            let (token, is_asked, entry) = match order {
                Order::Read(..) => continue,
                Order::Keep(entry) => (None, false, entry),
                Order::KeepFirst(token, entry) => (Some(token), false, entry),
                Order::Commit(token, entry) => (Some(token), true, entry),
            };
            let changed = database::at_once(&mut self.ledger, |transaction| keep(transaction, &run(), &entry));
            let done = changed.expect("it is stored") > 0 || !is_asked;
            token.into_iter().for_each(|token| self.handle(Input::Committed { token, done }));
        }
    }

    /// The ledger is read and carries out its orders.
    pub(super) fn ledger_is_read(&mut self) {
        let (requests, open_requests) = database::at_once(&mut self.ledger, |transaction| {
            Ok((ended_in(transaction, "g")?, open_in(transaction, "g")?))
        })
        .expect("it can be read");
        self.handle(Input::Remembered(Box::new(Remembered { requests, open_requests, ..Remembered::default() })));
        self.ledger_works();
    }

    pub(super) fn time_passes(&mut self, ms: u64) {
        self.elapsed_ms += ms;
        self.handle(Input::Tick);
    }

    pub(super) fn server_asks(&mut self, conn: u32, method: &str, item: &str) {
        self.read(conn, Side::Server, &format!(r#"{{"id":5,"method":"{method}","params":{}}}"#, params(method, item)));
    }

    pub(super) fn server_resolves(&mut self) {
        self.server_resolves_on(1);
    }

    pub(super) fn server_resolves_on(&mut self, conn: u32) {
        let line = r#"{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":5}}"#;
        self.read(conn, Side::Server, line);
    }

    pub(super) fn client_answers(&mut self, conn: u32, method: &str, word: &str) {
        self.read(conn, Side::Client, &format!(r#"{{"id":5,"result":{}}}"#, answer(method, word)));
    }

    pub(super) fn api_answers(&mut self, request_id: &str, method: &str, word: &str) {
        let request = ApiRequest::Respond {
            request_id: request_id.to_owned(),
            given: Box::new(serde_json::from_str(&answer(method, word)).expect("BUG: it is an answer")),
            source: RequestSource::Api,
            by: "me".to_owned(),
        };
        self.handle(Input::ApiRequest { api_call: 9, request, server_listens: true });
    }

    /// The rows, with the answers of each.
    pub(super) fn rows(&mut self) -> Vec<(Value, Vec<Value>)> {
        database::at_once(&mut self.ledger, |transaction| {
            let rows = rows(transaction, WhichRequests::All)?;
            rows.into_iter()
                .map(|row| {
                    let answers = answers(transaction, &row.request_id)?;
                    Ok((json!(row), answers.into_iter().map(|answer| json!(answer)).collect()))
                })
                .collect()
        })
        .expect("they can be read")
    }
}

pub(super) fn engine(server_owner: ServerOwner, rules: Vec<Rule>, expiry: Vec<(RequestType, Duration)>) -> Engine {
    Engine::new(EngineSettings {
        budget: Default::default(),
        exit_grace: Duration::from_secs(10),
        context: ContextSettings::default(),
        assembly: AssemblySettings::default(),
        requests: RequestSettings { rules, expiry, ..RequestSettings::default() },
        server_owner,
        own_ids: "own:".to_owned(),
        tokens_before: 0,
    })
}
