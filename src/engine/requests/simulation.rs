//! A seeded simulation: clients, callers, servers and a ledger act at random, with crashes between any two effects.
//!
//! Invariants: a request ends once and is never reopened, the server receives at most one answer, the sent answer is
//! the stored one, and after a crash no row of an earlier run is open. Half of the seeds have rules: no rule answers a request
//! that it does not match, and none accepts a command whose check has failed or of whose thread nothing is known.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::items::About;
use super::{Caller, GivenAnswer, RequestSettings, RequestType, Requests};
use crate::engine::attached_client::Clients;
use crate::engine::lines::Seen;
use crate::engine::model::{
    Decision, Effect, LedgerEntry, LinkEffect, Now, Order, Passage, RequestSource, RequestStatus, ServerOwner, Token,
    Verdict,
};
use crate::engine::rules::{Does, ExactCommand, Matcher, Rule, Trust, Words};
use crate::wire::{Body, Conn, Message};

/// Enough for about one second.
const SEEDS: u64 = 1_000;
const STEPS: usize = 120;

/// A pseudo-random generator: xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}

#[derive(Debug, Clone)]
struct Row {
    generation: u64,
    status: RequestStatus,
    payload: Option<String>,
    dispatched: bool,
    source: Option<RequestSource>,
}

/// The report owed after storing an entry.
#[derive(Debug, Clone, Copy)]
enum Told {
    Nothing,
    First(Token),
    Whether(Token),
}

/// A run, the ledger that outlives it, and the answers the server received.
struct World {
    dice: Dice,
    generation: u64,
    requests: Requests,
    clients: Clients,
    now: Now,
    rows: BTreeMap<String, Row>,
    /// Entries not yet stored.
    queue: VecDeque<(Told, LedgerEntry)>,
    /// Answers received by the server of this run, by raw request id.
    sent: BTreeMap<u64, String>,
    /// Held lines to the server, with their tokens.
    held: Vec<(Token, u64, String, Option<Token>)>,
    /// Answers of ours that the server has not read.
    on_their_way: VecDeque<(u64, String, Option<Token>)>,
    asked: u64,
    has_rules: bool,
    /// The commands of this run, by raw request id; `None` if its thread is not known.
    commands: BTreeMap<u64, (&'static str, bool)>,
    /// Checks without a result, and the successful ones.
    checks: VecDeque<Token>,
    has_passed: bool,
    /// The ledger sometimes fails or stalls.
    is_shaky: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let (is_shaky, has_rules) = (dice.roll(2) == 0, dice.roll(2) == 0);
        World {
            dice,
            generation: 0,
            requests: fresh(0, has_rules),
            has_rules,
            commands: BTreeMap::new(),
            checks: VecDeque::new(),
            has_passed: false,
            clients: Clients::new(ServerOwner::Client),
            now: Now { unix_us: 1, elapsed: Duration::ZERO },
            rows: BTreeMap::new(),
            queue: VecDeque::new(),
            sent: BTreeMap::new(),
            held: Vec::new(),
            on_their_way: VecDeque::new(),
            asked: 0,
            is_shaky,
        }
    }

    fn step(&mut self) {
        let mut effects = Vec::new();
        let id = self.dice.roll(self.asked + 1);
        match self.dice.roll(15) {
            0..=2 => self.server_asks(&mut effects),
            3 | 4 => self.client_answers(id, &mut effects),
            5 | 6 => self.somebody_answers(id, &mut effects),
            7 | 8 => self.ledger_works(&mut effects),
            9 => {
                let params = format!(r#"{{"threadId":"t","requestId":{id}}}"#);
                let params = serde_json::from_str(&params).expect("BUG: it is JSON");
                self.requests.server_resolved(self.now, params, &mut effects);
            }
            10 => {
                // A working ledger is always in time.
                while !self.is_shaky && !self.queue.is_empty() {
                    let mut effects = Vec::new();
                    self.ledger_works(&mut effects);
                    self.carry_out(effects);
                }
                self.now.elapsed += Duration::from_millis(self.dice.roll(400));
                self.now.unix_us += 1;
                self.requests.tick(self.now, &self.clients, &mut effects);
            }
            11 | 12 => self.server_reads(&mut effects),
            13 => self.check_ends(&mut effects),
            _ if self.dice.roll(8) == 0 => return self.crash(),
            _ => {}
        }
        self.carry_out(effects);
    }

    fn server_reads(&mut self, effects: &mut Vec<Effect>) {
        if let Some((id, answer, mark)) = self.on_their_way.pop_front() {
            self.arrives(id, answer, mark, effects);
        }
    }

    fn server_asks(&mut self, effects: &mut Vec<Effect>) {
        let id = self.asked;
        self.asked += 1;
        let command = COMMANDS[self.dice.roll(COMMANDS.len() as u64) as usize];
        let is_known = self.dice.roll(4) > 0;
        let thread = if is_known { "t" } else { "unknown" };
        self.commands.insert(id, (command, is_known));
        let line = format!(
            r#"{{"id":{id},"method":"item/commandExecution/requestApproval","params":{{"threadId":"{thread}","turnId":"u","itemId":"i{id}","command":"{command}","cwd":"/p"}}}}"#
        );
        let body = Body::parse(line.as_bytes());
        let Body::Message(message) = &body else { panic!("no message") };
        let seen = Seen {
            now: self.now,
            conn: Conn::OWN,
            line: line.as_bytes(),
            verdict: Verdict::Open,
            body: &body,
            opened: None,
        };
        let mut decision = Decision::default();
        self.requests.opened(&seen, message, About::default(), &mut decision, effects);
        effects.extend(decision.then);
    }

    /// The check of a program ends.
    fn check_ends(&mut self, effects: &mut Vec<Effect>) {
        let Some(token) = self.checks.pop_front() else { return };
        let checked = if self.dice.roll(3) == 0 { Err("no".to_owned()) } else { Ok("/bin/ls".to_owned()) };
        self.has_passed |= checked.is_ok();
        self.requests.program_checked(self.now, token, checked, &self.clients, effects);
    }

    /// A rule answers only what it matches.
    fn check_rule(&self, by: &str, request_id: &str, payload: Option<&str>) {
        let id: u64 = request_id.rsplit('-').next().and_then(|id| id.parse().ok()).expect("BUG: ids are numbers here");
        let (command, is_known) = self.commands[&id];
        let expect = match by {
            "rule:list" => (LIST, r#"{"decision":"accept"}"#),
            "rule:no rm" => (REMOVE, r#"{"decision":"decline"}"#),
            other => panic!("{other} answers {id}"),
        };
        assert_eq!((command, payload), (expect.0, Some(expect.1)), "{by} answers {id}");
        assert!(by != "rule:list" || (is_known && self.has_passed), "{by} answers {id}");
    }

    fn client_answers(&mut self, id: u64, effects: &mut Vec<Effect>) {
        let answer = format!(r#"{{"decision":"{}"}}"#, ["accept", "decline"][self.dice.roll(2) as usize]);
        let line = format!(r#"{{"id":{id},"result":{answer}}}"#);
        let body = Body::parse(line.as_bytes());
        let Body::Message(message) = &body else { panic!("no message") };
        let asked = id < self.asked;
        let seen = Seen {
            now: self.now,
            conn: Conn::OWN,
            line: line.as_bytes(),
            verdict: Verdict::Open,
            body: &body,
            opened: None,
        };
        let mut decision = Decision::default();
        self.requests.client_answers(&seen, message, "c", &mut decision, effects);
        match (decision.line, decision.hold) {
            (Passage::Forward, Some(hold)) => self.held.push((hold, id, answer, decision.mark)),
            (Passage::Forward, None) if asked => self.arrives(id, answer, decision.mark, effects),
            (Passage::Forward | Passage::Replace(_) | Passage::Withhold, _) => {}
        }
    }

    fn somebody_answers(&mut self, id: u64, effects: &mut Vec<Effect>) {
        let name = format!("{}-{id}", self.generation);
        let word = ["accept", "decline"][self.dice.roll(2) as usize];
        let given: GivenAnswer =
            serde_json::from_str(&format!(r#"{{"decision":"{word}"}}"#)).expect("BUG: it is an answer");
        let (api_call, source, by) = (1, RequestSource::Api, "me".to_owned());
        let caller = Caller { api_call, source, by, server_listens: true };
        self.requests.api_answers(self.now, caller, &name, &given, effects);
    }

    /// The ledger stores the next entry, or fails to.
    fn ledger_works(&mut self, effects: &mut Vec<Effect>) {
        let fails = self.is_shaky && self.dice.roll(3) == 0;
        let Some((token, entry)) = self.queue.pop_front() else { return };
        match (token, fails) {
            (Told::Nothing, true) => self.queue.push_front((Told::Nothing, entry)),
            (Told::First(token), true) => {
                self.queue.push_front((Told::Nothing, entry));
                self.requests.committed(self.now, token, false, &self.clients, effects);
            }
            (Told::Whether(token), true) => self.requests.committed(self.now, token, false, &self.clients, effects),
            (Told::Nothing, false) => self.keep(entry),
            (Told::First(token) | Told::Whether(token), false) => {
                self.keep(entry);
                self.requests.committed(self.now, token, true, &self.clients, effects);
            }
        }
    }

    fn keep(&mut self, entry: LedgerEntry) {
        match entry {
            LedgerEntry::RequestOpened(row) => {
                let (generation, status) = (self.generation, RequestStatus::Pending);
                let fresh = Row { generation, status, payload: None, dispatched: false, source: None };
                self.rows.entry(row.request_id).or_insert(fresh);
            }
            LedgerEntry::RequestEnded(end) => {
                if let Some(row) = self.rows.get_mut(&end.request_id)
                    && (matches!(row.status, RequestStatus::Pending | RequestStatus::Expired) || end.instead)
                {
                    (row.status, row.payload, row.source) = (end.status, end.payload, Some(end.source));
                }
            }
            LedgerEntry::RequestExpired { request_id, .. } => {
                if let Some(row) = self.rows.get_mut(&request_id)
                    && row.status == RequestStatus::Pending
                {
                    row.status = RequestStatus::Expired;
                }
            }
            LedgerEntry::RequestDispatched { request_id, .. } => {
                if let Some(row) = self.rows.get_mut(&request_id)
                    && row.status == RequestStatus::Resolved
                {
                    row.dispatched = true;
                }
            }
            LedgerEntry::RequestReopened { request_id, by: _ } => {
                if let Some(row) = self.rows.get_mut(&request_id)
                    && (row.status, row.source) == (RequestStatus::Resolved, Some(RequestSource::Policy))
                {
                    (row.status, row.payload, row.source) = (RequestStatus::Pending, None, None);
                }
            }
            LedgerEntry::AnswerLost(_)
            | LedgerEntry::RequestConfirmed { .. }
            | LedgerEntry::RequestUncertain { .. }
            | LedgerEntry::RequestLate { .. }
            | LedgerEntry::DenialOverruled(_)
            | LedgerEntry::RequestShown { .. } => {}
            LedgerEntry::Sent(_)
            | LedgerEntry::Settled { .. }
            | LedgerEntry::TurnNamed { .. }
            | LedgerEntry::ThreadSeen { .. }
            | LedgerEntry::ThreadBegan { .. }
            | LedgerEntry::FragmentsSent { .. }
            | LedgerEntry::EpochShown { .. }
            | LedgerEntry::ThreadCompacted { .. } => panic!("requests have nothing to do with context"),
        }
    }

    /// Carries out effects in order, possibly not all of them.
    fn carry_out(&mut self, effects: Vec<Effect>) {
        let mut further = Vec::new();
        for effect in effects {
            if self.dice.roll(200) == 0 {
                return self.crash();
            }
            if let Effect::CheckProgram(token, _) = effect {
                self.checks.push_back(token);
            } else if let Effect::Order(Order::Commit(token, entry)) = effect {
                if let LedgerEntry::RequestEnded(end) = &entry
                    && end.source == RequestSource::Policy
                {
                    self.check_rule(end.by.as_deref().unwrap_or_default(), &end.request_id, end.payload.as_deref());
                }
                self.queue.push_back((Told::Whether(token), entry));
            } else if let Effect::Order(Order::KeepFirst(token, entry)) = effect {
                self.queue.push_back((Told::First(token), entry));
            } else if let Effect::Order(Order::Keep(entry)) = effect {
                self.queue.push_back((Told::Nothing, entry));
            } else if let Effect::Link(LinkEffect::Release(token)) = effect {
                let (free, held) = std::mem::take(&mut self.held).into_iter().partition(|(hold, ..)| *hold == token);
                self.held = held;
                let free: Vec<(Token, u64, String, Option<Token>)> = free;
                for (_, id, answer, mark) in free {
                    self.arrives(id, answer, mark, &mut further);
                }
            } else if let Effect::Link(LinkEffect::Inject(injection)) = effect {
                let bytes = &injection.lines[0].bytes;
                let Body::Message(message) = Body::parse(bytes) else { panic!("no message") };
                let (id, answer) = answer_in(&message);
                self.on_their_way.push_back((id, answer, injection.mark));
            } else if let Effect::Link(LinkEffect::Recall(token)) = effect {
                let waiting = self.held.len() + self.on_their_way.len();
                self.held.retain(|(.., mark)| *mark != Some(token));
                self.on_their_way.retain(|(.., mark)| *mark != Some(token));
                if self.held.len() + self.on_their_way.len() < waiting {
                    self.requests.recalled(self.now, token, &mut further);
                }
            }
        }
        if !further.is_empty() {
            self.carry_out(further);
        }
    }

    fn arrives(&mut self, id: u64, answer: String, mark: Option<Token>, effects: &mut Vec<Effect>) {
        let first = self.sent.insert(id, answer.clone());
        assert_eq!(first, None, "{id}: the server is answered twice");
        let row = self.rows.get(&format!("{}-{id}", self.generation));
        if !self.is_shaky
            && let Some(row) = row
        {
            // A policy answer is stored after it was sent. The expiry was stored before, and the server may have
            // withdrawn the request since.
            let by_policy = row.status == RequestStatus::Expired || row.source == Some(RequestSource::Server);
            assert!(by_policy || row.payload.as_ref() == Some(&answer), "{id}: {answer} is sent, {row:?} is kept");
        }
        if let Some(mark) = mark {
            self.requests.written(self.now, mark, effects);
        }
    }

    /// The process dies and another one starts.
    fn crash(&mut self) {
        let before = self.rows.clone();
        self.queue.clear();
        self.held.clear();
        self.on_their_way.clear();
        self.sent.clear();
        self.asked = 0;
        self.generation += 1;
        self.requests = fresh(self.generation, self.has_rules);
        self.commands.clear();
        (self.checks, self.has_passed) = (VecDeque::new(), false);
        for row in self.rows.values_mut().filter(|row| row.generation < self.generation) {
            if matches!(row.status, RequestStatus::Pending | RequestStatus::Expired) {
                row.status = RequestStatus::Orphaned;
            }
        }
        for (name, row) in &self.rows {
            let was = &before[name];
            let had_ended = matches!(was.status, RequestStatus::Resolved | RequestStatus::Orphaned);
            assert!(!had_ended || (was.status == row.status && was.payload == row.payload), "{name}: {was:?} {row:?}");
            assert!(row.generation == self.generation || row.status != RequestStatus::Pending, "{name}: {row:?}");
            assert!(!row.dispatched || row.status == RequestStatus::Resolved, "{name}: {row:?}");
        }
    }

    /// The server ends, and the ledger finishes its work.
    fn end(mut self) {
        let mut effects = Vec::new();
        // Lines held for a dead server reach nobody.
        self.held.clear();
        self.on_their_way.clear();
        self.requests.server_ended(self.now, &mut effects);
        self.carry_out(effects);
        self.is_shaky = false;
        while !self.queue.is_empty() {
            let mut effects = Vec::new();
            self.ledger_works(&mut effects);
            self.carry_out(effects);
        }
        for (name, row) in self.rows.iter().filter(|(_, row)| row.generation == self.generation) {
            let has_ended = matches!(row.status, RequestStatus::Resolved | RequestStatus::Orphaned);
            assert!(has_ended, "{name}: {row:?}");
        }
    }
}

const LIST: &str = "/bin/ls -l";
const REMOVE: &str = "rm x";
const COMMANDS: [&str; 4] = [LIST, REMOVE, "make", "id"];

fn rules() -> Vec<Rule> {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let list = ExactCommand::new(words(LIST), "/p".to_owned(), Trust::default(), None).expect("BUG: acceptable");
    let of = |line: &str| Matcher::Command { argv: Some(Words::First(words(line))), cwd: None };
    vec![
        Rule { name: "list".to_owned(), does: Does::Accept(list) },
        Rule { name: "no rm".to_owned(), does: Does::Decline { of: of("rm"), reason: None } },
        Rule { name: "make".to_owned(), does: Does::Hold { of: of("make") } },
    ]
}

fn fresh(generation: u64, has_rules: bool) -> Requests {
    let expiry = vec![(RequestType::Approval, Duration::from_millis(500))];
    let rules = if has_rules { rules() } else { Vec::new() };
    let settings = RequestSettings { expiry, rules, ..RequestSettings::default() };
    let mut requests = Requests::new(settings, ServerOwner::Client, 0);
    let thread = r#"{"thread":{"id":"t"},"cwd":"/p","sandbox":{"type":"readOnly"}}"#;
    requests.thread_opened(serde_json::from_str(thread).ok());
    requests.server_is(Some("0.169.0"));
    requests.session_opened(generation.to_string());
    requests
}

fn answer_in(message: &Message<'_>) -> (u64, String) {
    let id = message.id.and_then(|id| id.get().parse().ok()).expect("BUG: requests have numbers here");
    (id, message.result.expect("BUG: an answer of ours has a result").get().to_owned())
}

#[test]
fn random_runs_keep_the_invariants() {
    for seed in 1..=SEEDS {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
        world.end();
    }
}
