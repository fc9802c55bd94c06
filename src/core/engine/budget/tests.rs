//! A hub whose turns wait for the budget, with a ledger and a look that answer when a test says so.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::model::{Effect, LinkEffect, Order, Peer, Transport, Variables};
use super::super::{ApiReply, Engine, EngineSettings, Incoming, Input, Now, Passage, ServerOwner};
use super::super::{ApiRequest, AssemblySettings, ContextSettings, RequestSettings, RequestSource};
use super::{BudgetFound, BudgetLimit, BudgetUse, HELD_BYTES_MAX, LOOK_WAIT_MAX, Spent, THREADS_MAX, Token};
use crate::wire::{Conn, Line, LineEnd, Side};

struct Hub {
    engine: Engine,
    elapsed: Duration,
    /// Ids of the calls that reached the server.
    begun: Vec<u64>,
    /// Ids of the calls that got an error of ours.
    refused: Vec<u64>,
    /// Looks without an answer.
    looks: Vec<Token>,
    /// Questions that are being stored, and answers.
    commits: Vec<Token>,
    questions: Vec<String>,
    replies: Vec<ApiReply>,
}

const SPENT: BudgetFound =
    BudgetFound::Reached(Spent { limit: BudgetLimit::Day, client: None, day: String::new(), used: 10, most: 10 });

impl Hub {
    fn new() -> Hub {
        let engine = Engine::new(EngineSettings {
            budget: BudgetUse { asks: true, tells: false },
            exit_grace: Duration::from_secs(10),
            context: ContextSettings::default(),
            assembly: AssemblySettings::default(),
            requests: RequestSettings::default(),
            server_owner: ServerOwner::Hub,
            own_ids: "codex-shim:".to_owned(),
            tokens_before: 0,
        });
        let (begun, refused, looks, commits) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (questions, replies, elapsed) = (Vec::new(), Vec::new(), Duration::ZERO);
        let mut hub = Hub { engine, elapsed, begun, refused, looks, commits, questions, replies };
        hub.handle(Input::SessionOpened { generation: "g".to_owned() });
        hub.handle(Input::Remembered(Box::default()));
        for conn in 1..=2 {
            hub.handle(Input::Connected { conn: Conn(conn), peer: peer() });
        }
        hub
    }

    fn now(&self) -> Now {
        Now { unix_us: 1, elapsed: self.elapsed }
    }

    fn handle(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.engine.handle(self.now(), input, &mut effects);
        self.carry_out(effects);
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only what concerns turns is looked at")]
    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::LookAtBudget(Some(token), _) => self.looks.push(token),
                Effect::Order(Order::KeepFirst(token, _) | Order::Commit(token, _)) => self.commits.push(token),
                Effect::Link(LinkEffect::ReleaseHeld(token)) => self.handle(Input::ReleaseHeld(token)),
                Effect::Link(LinkEffect::PassHeld(lines)) => {
                    for line in lines {
                        let forwards = line.decision.line != Passage::Withhold;
                        let bytes = line.bytes;
                        self.begun.extend(forwards.then(|| id_of(&bytes)));
                        self.carry_out(line.decision.then);
                    }
                }
                Effect::Link(LinkEffect::Answer(_, line)) => {
                    assert!(String::from_utf8_lossy(&line.bytes).contains("token budget"));
                    self.refused.push(id_of(&line.bytes));
                }
                Effect::Link(LinkEffect::Reply(_, reply)) => self.replies.push(reply),
                Effect::Note(note) => {
                    let note = serde_json::to_value(&note).expect("BUG: notes are plain data");
                    if note["event"] == "request_opened" {
                        self.questions.push(note["data"]["request_id"].as_str().unwrap_or_default().to_owned());
                    }
                }
                _ => {}
            }
        }
    }

    fn read(&mut self, conn: u32, message: &Value) {
        let bytes = message.to_string().into_bytes();
        let line = Incoming::Line(Line { bytes: &bytes, end: LineEnd::Newline });
        let mut effects = Vec::new();
        let decision = self.engine.read(self.now(), Conn(conn), Side::Client, line, &mut effects);
        self.carry_out(effects);
        if let Some(decision) = decision {
            self.begun.extend((decision.line != Passage::Withhold).then(|| id_of(&bytes)));
            self.carry_out(decision.then);
        }
    }

    fn turn(&mut self, conn: u32, id: u64, thread: &str, words: usize) {
        let input = json!([{ "type": "text", "text": "x".repeat(words) }]);
        let params = json!({ "threadId": thread, "input": input });
        self.read(conn, &json!({ "id": id, "method": "turn/start", "params": params }));
    }

    /// All looks so far end with this.
    fn look(&mut self, found: &BudgetFound) {
        for token in std::mem::take(&mut self.looks) {
            self.handle(Input::BudgetLookedUp { token, found: found.clone() });
        }
    }

    /// The ledger has stored all orders, or none.
    fn commit(&mut self, done: bool) {
        for token in std::mem::take(&mut self.commits) {
            self.handle(Input::Committed { token, done });
        }
    }

    fn answer(&mut self, words: &str) {
        let given = json!({ "answers": { "budget": words } }).to_string();
        let request = ApiRequest::Respond {
            request_id: self.questions.last().cloned().expect("a question"),
            given: serde_json::from_str(&given).expect("BUG: a test gives an answer"),
            source: RequestSource::Api,
            by: "me".to_owned(),
        };
        self.handle(Input::ApiRequest { api_call: 9, request, server_listens: true });
    }
}

fn peer() -> Peer {
    Peer { transport: Transport::WebSocket, pid: Some(7), terminal: None, variables: Variables::NONE }
}

fn id_of(line: &[u8]) -> u64 {
    let message: Value = serde_json::from_slice(line).expect("BUG: it is JSON");
    message["id"].as_u64().unwrap_or_default()
}

#[test]
fn no_turn_of_a_crowd_begins_beyond_the_budget() {
    let mut hub = Hub::new();
    let crowd = THREADS_MAX as u64 + 144;
    for id in 0..crowd {
        hub.turn(1, id, &format!("t{id}"), 1);
    }
    assert_eq!(hub.refused, (THREADS_MAX as u64..crowd).collect::<Vec<_>>());
    hub.look(&SPENT);
    hub.commit(true);
    assert!(hub.begun.is_empty() && hub.questions.len() == THREADS_MAX, "{:?}", hub.begun);
}

#[test]
fn long_turns_begin_in_order_or_are_refused() {
    for found in [BudgetFound::Allows, SPENT, BudgetFound::Unknown] {
        let mut hub = Hub::new();
        let half = HELD_BYTES_MAX / 2 - 1_000;
        for id in 1..=3 {
            hub.turn(1, id, "t", half);
        }
        // No line of the thread overtakes them, with or without room for it.
        let name = |id: u64, name: &str| json!({ "id": id, "method": "thread/name/set", "params": { "threadId": "t", "name": name } });
        hub.read(1, &name(4, &"x".repeat(half)));
        hub.read(1, &name(5, "x"));
        assert!(hub.begun.is_empty(), "{:?}", hub.begun);
        assert_eq!(hub.refused, [3, 4]);
        hub.look(&found);
        hub.look(&found);
        match found {
            BudgetFound::Allows => assert_eq!(hub.begun, [1, 2, 5]),
            // Other calls do not wait for a person.
            BudgetFound::Reached(_) | BudgetFound::Unknown => assert_eq!(hub.begun, [5]),
        }
    }
}

#[test]
fn nothing_begins_that_nobody_could_be_asked_about() {
    // The ledger cannot be written, or says nothing.
    for says in [true, false] {
        let mut hub = Hub::new();
        hub.turn(1, 1, "t", 1);
        hub.turn(2, 2, "t", 1);
        hub.look(&SPENT);
        if says {
            hub.commit(false);
        } else {
            hub.elapsed += Duration::from_secs(60);
            hub.handle(Input::Tick);
        }
        assert!(hub.begun.is_empty(), "{:?}", hub.begun);
        assert_eq!(hub.refused, [1, 2]);
        // The next one is looked at again.
        hub.turn(1, 3, "t", 1);
        hub.look(&BudgetFound::Allows);
        assert_eq!(hub.begun, [3]);
    }
}

#[test]
fn a_look_without_an_end_asks_a_person() {
    let mut hub = Hub::new();
    hub.turn(1, 1, "t", 1);
    hub.elapsed += LOOK_WAIT_MAX;
    hub.handle(Input::Tick);
    hub.commit(true);
    assert!(hub.begun.is_empty() && hub.questions.len() == 1);
    hub.answer("continue once");
    hub.commit(true);
    assert_eq!(hub.begun, [1]);
}

#[test]
fn an_answer_counts_for_the_turn_that_was_asked_about() {
    for words in ["continue once", "stop", "50"] {
        let mut hub = Hub::new();
        hub.turn(1, 1, "t", 1);
        hub.turn(2, 2, "t", 1);
        hub.look(&SPENT);
        hub.commit(true);
        // Its client leaves while the answer is being stored.
        hub.answer(words);
        hub.handle(Input::Disconnected { conn: Conn(1) });
        hub.looks.clear();
        hub.commit(true);
        assert!(hub.begun.is_empty() && hub.refused.is_empty(), "{words}: {:?} {:?}", hub.begun, hub.refused);
        hub.look(&BudgetFound::Allows);
        assert_eq!(hub.begun, [2], "{words}");
    }
}
