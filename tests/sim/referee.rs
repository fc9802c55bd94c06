//! The referee: each side's expected input, and the end of each request, by the contract alone.
//!
//! It sees the engine's input in the same order. Of the engine's output it reads only the subject of each commit and
//! the mark behind each line. The actual output is compared with its expectations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use codex_shim::testing::engine::{ApiCallId, ApiReply, LedgerEntry, RequestSource, RequestStatus, Token};
use codex_shim::testing::wire::{Conn, Side};
use serde_json::Value;

use super::asked::{Asked, Decider, Deciding, End, Over, PassedLate, Sent, Shown, State};
use super::happened::{Event, Happened};
use super::held::Held;
use super::lines::{Message, is_odd, marks_envelope, or_nothing, shown, without_envelope};
use super::rows::Rows;
use super::rules::{Does, Ruled, Threads};
use super::side::Said;
use super::world::HOLD_MAX;

/// Time after which policy answers, if it does.
pub const EXPIRES_AFTER: Duration = Duration::from_millis(400);

/// Policy's answer.
const BY_POLICY: &str = r#"{"decision":"decline"}"#;

/// The subject of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Opening,
    Answer,
    Decision,
    Expiry,
}

#[derive(Debug, Default)]
pub struct Referee {
    pub happened: Happened,
    generation: String,
    pub habits: Habits,
    pub threads: Threads,
    pub held: Held,
    /// The last commit has failed, so the next one is not waited for.
    pub is_distrusting: bool,
    pub asked: BTreeMap<u64, Asked>,
    /// Rows that a later row of the same request has replaced.
    earlier: Vec<(u64, Asked)>,
    pub commits: BTreeMap<Token, (u64, String, About)>,
    /// Requests and answers that wait for their commit, with their deadlines.
    holds: BTreeMap<Token, Duration>,
    /// Marks behind answers.
    marks: BTreeMap<Token, (u64, String)>,
    /// The lines that the server and the client must receive, in order.
    to_server: VecDeque<ToServer>,
    to_client: VecDeque<Due>,
    /// Answers that are to be sent to the server, and are not on their way.
    pub ours: Vec<Vec<u8>>,
    /// Withheld requests that are to be sent to the client, likewise.
    late: Vec<Due>,
    /// How many of the lines that the client has received were recorded long before.
    pub heard_late: BTreeSet<usize>,
    heard: usize,
    /// The caller whose answer was taken back last before it was on its way.
    pub taken_of: Option<ApiCallId>,
    /// The server gets no more lines.
    is_deaf: bool,
    /// The shim has found a defect in itself.
    pub has_defect: bool,
    follower: Follower,
    /// Losing answers: the request's name and the answer.
    pub lost: Vec<(String, String)>,
    pub replies: BTreeMap<ApiCallId, Reply>,
    /// The number of each side's lines that the engine has received.
    read: [usize; 2],
    /// Answers that were passed on late.
    passed_late: u64,
}

/// A line that the server must receive, and its number among the answers that were passed on late, if it is one.
#[derive(Debug, PartialEq, Eq)]
struct ToServer {
    line: Vec<u8>,
    late: Option<u64>,
}

impl From<Vec<u8>> for ToServer {
    fn from(line: Vec<u8>) -> ToServer {
        ToServer { line, late: None }
    }
}

/// A line that the client must receive, and the row of its request.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    line: Vec<u8>,
    row: Option<String>,
    /// It was withheld at first.
    is_late: bool,
}

impl Due {
    fn new(line: Vec<u8>, row: Option<String>) -> Due {
        Due { line, row, is_late: false }
    }
}

/// The reply that an API caller must receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Kept,
    NotKept,
    NotOpen,
    Invalid,
    Broken,
}

/// The thread of whose turn the server has got what goes ahead of it.
#[derive(Debug, Default)]
pub struct Follower(Option<Value>);

impl Follower {
    /// What goes ahead of a turn is followed by that turn.
    pub fn follows(&mut self, message: Option<&Message<'_>>, happened: &mut Happened) -> Result<(), String> {
        let (method, thread) = message
            .map_or((None, None), |message| (message.method.as_deref(), Some(message.params["threadId"].clone())));
        if let Some(of) = self.0.take()
            && (method != Some("turn/start") || thread.as_ref() != Some(&of))
        {
            return Err(format!("1: what goes ahead of a turn of {of} is followed by {method:?}"));
        }
        if method == Some("thread/inject_items") {
            happened.count(Event::FragmentAhead);
            self.0 = thread;
        }
        Ok(())
    }
}

/// What a run does by its settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct Habits {
    /// Requests are hidden from the client.
    pub hides: bool,
    pub expires: bool,
    pub has_rules: bool,
    /// Turns wait for fragments.
    pub gathers: bool,
}

impl Referee {
    pub fn new(generation: String, habits: Habits) -> Referee {
        Referee { generation, habits, ..Referee::default() }
    }

    /// The engine receives a line of a side, the next that the side has sent. Returns whether it waits for its context.
    pub fn reads(
        &mut self,
        now: Duration,
        from: Side,
        (line, is_last): (&[u8], bool),
        said: &[Said],
    ) -> Result<bool, String> {
        let next = &mut self.read[from as usize];
        let said = said.get(*next);
        *next += 1;
        let said = match said {
            Some(said) if said.bytes == line => said,
            // It has stopped in the middle of the line.
            Some(said) if is_last && said.bytes.starts_with(line) => &said.cut(line.len()),
            Some(_) | None => {
                let line = shown(line);
                return Err(format!("1: the engine got a line that the {} did not say then: {line}", from.name()));
            }
        };
        self.happened.add(Event::OddLine, u64::from(is_odd(line)));
        let message = Message::read(line);
        let mut waits = false;
        match (from, &message) {
            (Side::Client, message) => match message.as_ref().and_then(Message::answer) {
                Some((id, payload)) if self.asked.contains_key(&id) => self.client_answers(now, id, line, payload),
                Some(_) | None => {
                    let is_taken = |message| self.held.takes(now, Conn::OWN, line, message);
                    waits = self.habits.gathers && message.as_ref().is_some_and(is_taken);
                    if !waits {
                        self.to_server.push_back(line.to_vec().into());
                    }
                }
            },
            (Side::Server, None) => self.to_client.push_back(Due::new(line.to_vec(), None)),
            (Side::Server, Some(message)) => self.server_says(now, message, said),
        }
        self.happened.add(Event::HeldLine, u64::from(waits));
        Ok(waits)
    }

    /// A queue of lines that waited for their context is released.
    pub fn released(&mut self, now: Duration, token: Token) {
        let lines = self.held.release(now, token);
        self.happened.add(Event::ReleasedLine, lines.len() as u64);
        self.to_server.extend(lines.into_iter().map(|(_, line)| line.into()));
    }

    fn server_says(&mut self, now: Duration, message: &Message<'_>, said: &Said) {
        let params = &message.params;
        let mut row = None;
        match (message.method.as_deref(), message.id.as_ref().and_then(Value::as_u64)) {
            (None, _) if message.is_ours() => return,
            (None, _) => self.learns_thread(message),
            (Some("serverRequest/resolved"), _) => {
                let id = params["requestId"].as_u64().expect("the server names it");
                self.over(id, Over::Resolved);
            }
            (Some("turn/completed"), _) => {
                let turn = &params["turn"]["id"];
                let of_turn: Vec<u64> =
                    self.asked.iter().filter(|(_, asked)| asked.turn == *turn).map(|(id, _)| *id).collect();
                of_turn.into_iter().for_each(|id| self.over(id, Over::Withdrawn));
            }
            (Some(method), Some(id)) if method.ends_with("requestApproval") => {
                match self.asked.get(&id) {
                    Some(asked) if asked.line != said.bytes => self.gives_way(id),
                    Some(asked) if asked.is_repeatable() => return self.repeated(now, id),
                    Some(_) | None => {}
                }
                let (unconfirmed, name) = self.next_row(id);
                row = Some(name.clone());
                self.happened.count(Event::Request);
                let ruling = self.ruling(params);
                let is_held = (self.habits.hides || ruling.does == Some(Does::Hold)) && !self.is_distrusting;
                let is_hidden = is_held || ruling.answers();
                let declines = |does: Does| Deciding::new(Decider::Rule(does), does.payload().to_owned());
                let declined = ruling.does.filter(|does| *does == Does::Decline).map(declines);
                let asked = Asked {
                    name,
                    arrival: self.earlier.len() + self.asked.len(),
                    turn: params["turnId"].clone(),
                    line: said.bytes.clone(),
                    expires_at: self.habits.expires.then(|| now + EXPIRES_AFTER),
                    shown: if is_hidden { Shown::NotYet } else { Shown::Yes },
                    is_held,
                    rule: Ruled::new(now, &ruling),
                    ruling,
                    state: declined.map_or(State::Pending, |deciding| State::Deciding(Box::new(deciding))),
                    is_open: true,
                    is_excused: self.is_distrusting,
                    sent: None,
                    told: None,
                    is_begun: false,
                    is_written: false,
                    has_reached_server: false,
                    unconfirmed,
                    may_wait: false,
                    passed_late: Vec::new(),
                    was_late: false,
                    overtaken: Vec::new(),
                    end: None,
                };
                self.asked.insert(id, asked);
                if is_hidden {
                    self.happened.count(Event::HiddenRequest);
                    return;
                }
            }
            _ => {}
        }
        self.to_client.push_back(Due::new(said.plain.as_ref().unwrap_or(&said.bytes).clone(), row));
    }

    /// The client answers: the first answer wins, and later ones are stored and not forwarded.
    fn client_answers(&mut self, now: Duration, id: u64, line: &[u8], payload: String) {
        let asked = self.asked.get_mut(&id).expect("it was looked for");
        match &mut asked.state {
            State::Pending if asked.is_open && asked.shown == Shown::Yes => {
                let is_excused = self.is_distrusting;
                asked.wins(RequestSource::Client, payload, is_excused);
                self.to_server.push_back(line.to_vec().into());
            }
            State::Deciding(deciding) if deciding.runner_up.is_none() && asked.shown == Shown::Yes => {
                self.happened.count(Event::RunnerUp);
                deciding.runner_up = Some((line.to_vec(), payload));
                deciding.due = Some(now + HOLD_MAX);
            }
            _ => {
                let goes_on = asked.may_wait && !asked.is_open;
                if goes_on {
                    self.passed_late += 1;
                    let number = self.passed_late;
                    asked.passed_late.push(PassedLate { number, mark: None, is_begun: false });
                    self.happened.count(Event::ForwardedLostAnswer);
                    self.to_server.push_back(ToServer { line: line.to_vec(), late: Some(number) });
                }
                self.loses(id, payload);
            }
        }
    }

    /// A repeated request whose answer is missing or in flight: it keeps its row and its wait.
    fn repeated(&mut self, now: Duration, id: u64) {
        self.happened.count(Event::RepeatedRequest);
        let asked = self.asked.get_mut(&id).expect("it was looked for");
        if asked.shown != Shown::Yes {
            return;
        }
        let is_its = |name: &String, about: &About| *name == asked.name && *about == About::Opening;
        let opening = self.commits.iter().find(|(_, (_, name, about))| is_its(name, about));
        if let Some((token, _)) = opening {
            asked.is_excused |= self.is_distrusting && !self.holds.contains_key(token);
            if !self.is_distrusting {
                self.holds.entry(*token).or_insert(now + HOLD_MAX);
            }
        }
        self.to_client.push_back(Due::new(asked.line.clone(), Some(asked.name.clone())));
    }

    /// The server asks for something else under the id of a request: nothing is an answer to that any more.
    fn gives_way(&mut self, id: u64) {
        let Some(asked) = self.asked.get_mut(&id).filter(|asked| asked.is_open) else { return };
        let withdrawn = End { status: RequestStatus::Resolved, source: RequestSource::Server, payload: None };
        match std::mem::replace(&mut asked.state, State::Answered) {
            State::Deciding(deciding) => {
                self.replies.extend(deciding.by.caller().map(|api_call| (api_call, Reply::NotOpen)));
                self.lost.extend(deciding.runner_up.map(|(_, payload)| (asked.name.clone(), payload)));
                asked.end = Some(withdrawn);
                asked.overtaken.push(deciding.payload);
            }
            State::Pending | State::Expired | State::PolicySpoke => asked.end = Some(withdrawn),
            State::Answered => {}
        }
        asked.is_open = false;
        self.takes_back(id);
    }

    /// Sets the request's previous row aside; returns the number of unconfirmed answers to it, and the name of the next
    /// row.
    fn next_row(&mut self, id: u64) -> (usize, String) {
        let mut unconfirmed = 0;
        if let Some(mut before) = self.asked.remove(&id) {
            self.happened.count(Event::RequestAgain);
            for late in before.passed_late.extract_if(.., |late| !late.is_begun) {
                self.happened.count(Event::TakenBack);
                self.to_server.retain(|due| due.late != Some(late.number));
            }
            unconfirmed = if before.is_open { before.unconfirmed + 1 } else { 0 };
            self.earlier.push((id, before));
        }
        let name = format!("{}-{id}", self.generation);
        match self.earlier.iter().filter(|(of, _)| *of == id).count() {
            0 => (unconfirmed, name),
            count => (unconfirmed, format!("{name}.{}", count + 1)),
        }
    }

    /// Every row of the run.
    pub fn all_asked(&self) -> impl Iterator<Item = &Asked> {
        self.earlier.iter().map(|(_, asked)| asked).chain(self.asked.values())
    }

    /// Whether a line answers a request with more than one row.
    pub fn is_second(&self, line: &[u8]) -> bool {
        let answered = Message::read(line).as_ref().and_then(Message::answer);
        answered.is_some_and(|(id, _)| self.earlier.iter().any(|(of, _)| *of == id))
    }

    fn loses(&mut self, id: u64, payload: String) {
        self.happened.count(Event::LostAnswer);
        self.lost.push((self.asked[&id].name.clone(), payload));
    }

    /// An API caller answers.
    pub fn side_answers(&mut self, api_call: ApiCallId, request_id: &str, decision: &str) {
        if self.has_defect {
            self.replies.insert(api_call, Reply::Broken);
            return;
        }
        let asked = self.asked.values_mut().find(|asked| asked.name == request_id && asked.is_open);
        let reply = match asked {
            Some(asked) if matches!(asked.state, State::Pending) => match decision {
                "accept" | "decline" | "cancel" => {
                    let payload = format!("{{\"decision\":\"{decision}\"}}");
                    asked.state = State::Deciding(Box::new(Deciding::new(Decider::Caller(api_call), payload)));
                    return;
                }
                _ => Reply::Invalid,
            },
            Some(_) | None => Reply::NotOpen,
        };
        self.replies.insert(api_call, reply);
    }

    /// An entry is on its way to the ledger, and its commit will be reported.
    pub fn ordered(
        &mut self,
        now: Duration,
        token: Token,
        entry: &LedgerEntry,
        is_waited_for: bool,
    ) -> Result<(), String> {
        let (name, about) = match entry {
            LedgerEntry::RequestOpened(row) => (&row.request_id, About::Opening),
            LedgerEntry::RequestEnded(end) if is_waited_for => (&end.request_id, About::Decision),
            LedgerEntry::RequestEnded(end) => (&end.request_id, About::Answer),
            LedgerEntry::RequestExpired { request_id, .. } => (request_id, About::Expiry),
            _ => return Ok(()),
        };
        let Some((id, asked)) = self.asked.iter().find(|(_, asked)| asked.name == *name) else { return Ok(()) };
        if let LedgerEntry::RequestEnded(end) = entry
            && let Some(by) = end.by.as_deref().filter(|by| by.starts_with("rule:"))
        {
            asked.ruling.allows(&asked.name, by, end.payload.as_deref())?;
        }
        self.commits.insert(token, (*id, name.clone(), about));
        let waits = match about {
            About::Opening | About::Answer => !self.is_distrusting,
            About::Decision => false,
            About::Expiry => true,
        };
        if waits {
            self.holds.insert(token, now + HOLD_MAX);
        }
        Ok(())
    }

    /// The ledger reports whether an entry is stored.
    pub fn committed(&mut self, now: Duration, token: Token, done: bool) {
        if self.commits.get(&token).is_some_and(|(.., about)| *about == About::Decision) {
            self.rules_tire(now);
        }
        self.is_distrusting = !done;
        let was_waited_for = self.holds.remove(&token).is_some();
        let Some((id, name, about)) = self.commits.remove(&token) else { return };
        if self.asked.get(&id).is_none_or(|asked| asked.name != name) {
            // Another request has this id now; what waited for this row goes on.
            if was_waited_for && !done {
                self.goes_on(id, &name, about);
            }
            return;
        }
        match (about, done) {
            (About::Opening, true) => {
                if self.asked[&id].rule.is_none() {
                    self.settles(id);
                }
            }
            (About::Opening | About::Answer, false) if was_waited_for => self.goes_on(id, &name, about),
            (About::Opening | About::Answer, _) => {}
            (About::Decision, _) => self.decided(id, done),
            (About::Expiry, _) => self.policy_answers(id, !done),
        }
    }

    /// The client gets a withheld request after all.
    pub fn shows(&mut self, id: u64) {
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.shown = Shown::Yes;
            self.late.push(Due { is_late: true, ..Due::new(asked.line.clone(), Some(asked.name.clone())) });
        }
    }

    /// A request or answer that waited for its commit proceeds without it.
    fn goes_on(&mut self, id: u64, name: &str, about: About) {
        let earlier = self.earlier.iter_mut().map(|(_, asked)| asked);
        let Some(asked) = earlier.chain(self.asked.values_mut()).find(|asked| asked.name == name) else { return };
        match (about, &mut asked.sent) {
            (About::Opening, _) => {
                asked.is_excused = true;
                if asked.shown == Shown::NotYet && asked.is_open {
                    self.happened.count(Event::LateShow);
                    asked.shown = Shown::Yes;
                    self.late.push(Due { is_late: true, ..Due::new(asked.line.clone(), Some(asked.name.clone())) });
                }
            }
            (About::Answer, Some(sent)) => sent.is_excused = true,
            (About::Answer, None) | (About::Decision, _) => {}
            (About::Expiry, _) => self.policy_answers(id, true),
        }
    }

    fn decided(&mut self, id: u64, done: bool) {
        let asked = self.asked.get_mut(&id).expect("it was asked");
        let State::Deciding(deciding) = std::mem::replace(&mut asked.state, State::Pending) else { return };
        let Deciding { by, payload, runner_up, due: _, over } = *deciding;
        let reply = if done { Reply::Kept } else { Reply::NotKept };
        self.replies.extend(by.caller().map(|api_call| (api_call, reply)));
        let is_open = over.is_none();
        match (done, over, runner_up) {
            (true, _, runner_up) => {
                self.happened.add(Event::AnswerByRule, u64::from(by.caller().is_none()));
                asked.is_open = is_open;
                asked.wins(by.source(), payload.clone(), false);
                (asked.told, asked.rule) = (by.caller(), None);
                if asked.shown == Shown::NotYet {
                    asked.shown = Shown::Never;
                }
                if is_open {
                    self.ours.push(format!("{{\"id\":{id},\"result\":{payload}}}").into_bytes());
                } else {
                    // It is stored, and the server needs it no more.
                    asked.sent = None;
                }
                runner_up.into_iter().for_each(|(_, payload)| self.loses(id, payload));
            }
            (false, None, Some((line, payload))) => {
                self.happened.count(Event::SentRunnerUp);
                asked.wins(RequestSource::Client, payload, true);
                self.ours.push(line);
            }
            (false, None, None) => self.rule_gives_up(id),
            (false, Some(why), runner_up) => {
                self.over(id, why);
                runner_up.into_iter().for_each(|(_, payload)| self.loses(id, payload));
            }
        }
    }

    fn policy_answers(&mut self, id: u64, is_excused: bool) {
        let asked = self.asked.get_mut(&id).expect("it was asked");
        if asked.is_open && matches!(asked.state, State::Expired) {
            asked.state = State::PolicySpoke;
            asked.sent = Some(Sent { payload: BY_POLICY.to_owned(), is_expiry: true, is_excused });
            self.ours.push(format!("{{\"id\":{id},\"result\":{BY_POLICY}}}").into_bytes());
        }
    }

    /// A line of ours goes to the server, followed by a mark.
    pub fn injects(&mut self, mark: Token, line: &[u8]) {
        if let Some(at) = self.ours.iter().position(|ours| ours == line) {
            self.to_server.push_back(self.ours.remove(at).into());
        }
        self.marked(mark, line);
    }

    /// A withheld line goes to the client.
    pub fn shows_late(&mut self, line: &[u8]) {
        if let Some(at) = self.late.iter().position(|due| due.line == line) {
            self.to_client.push_back(self.late.remove(at));
        }
    }

    /// A line goes to the server, followed by a mark.
    pub fn marked(&mut self, mark: Token, line: &[u8]) {
        let late = self.to_server.back().filter(|due| due.line == line).and_then(|due| due.late);
        if let Some((id, _)) = Message::read(line).as_ref().and_then(Message::answer)
            && let Some(asked) = self.asked.get_mut(&id)
        {
            match asked.passed_late.iter_mut().find(|of| Some(of.number) == late) {
                Some(of) => of.mark = Some(mark),
                None => drop(self.marks.insert(mark, (id, asked.name.clone()))),
            }
        }
    }

    /// A part of the line before a mark is written.
    pub fn begun(&mut self, mark: Token) {
        let passed_late = self.asked.values_mut().flat_map(|asked| &mut asked.passed_late);
        passed_late.filter(|late| late.mark == Some(mark)).for_each(|late| late.is_begun = true);
        if let Some((id, name)) = self.marks.get(&mark)
            && let Some(asked) = self.asked.get_mut(id).filter(|asked| asked.name == *name)
        {
            asked.is_begun = true;
        }
    }

    /// The server does not want an answer any more: nothing of it reaches the server, unless a part has.
    fn takes_back(&mut self, id: u64) {
        let Some(asked) = self.asked.get_mut(&id).filter(|asked| !asked.is_begun) else { return };
        let Some(Sent { payload, .. }) = asked.sent.take() else { return };
        self.happened.count(Event::TakenBack);
        asked.end = Some(End { status: RequestStatus::Resolved, source: RequestSource::Server, payload: None });
        asked.overtaken.push(payload.clone());
        let caller = asked.told.take();
        if self.not_to_server(id, &payload)
            && let Some(reply) = caller.and_then(|api_call| self.replies.get_mut(&api_call))
        {
            // The caller has not heard yet that it would be sent.
            self.taken_of = caller;
            self.happened.count(Event::UnsentTakenBack);
            *reply = Reply::NotOpen;
        }
    }

    /// An answer does not go to the server after all. Returns whether it was not on its way.
    fn not_to_server(&mut self, id: u64, payload: &str) -> bool {
        let is_its = |line: &[u8]| {
            let answer = Message::read(line).as_ref().and_then(Message::answer);
            answer.is_some_and(|(of, answer)| of == id && answer == payload)
        };
        if let Some(at) = self.ours.iter().rposition(|line| is_its(line)) {
            self.ours.remove(at);
            return true;
        }
        if let Some(at) = self.to_server.iter().rposition(|due| due.late.is_none() && is_its(&due.line)) {
            self.to_server.remove(at);
        }
        false
    }

    /// Everything up to a mark is written.
    pub fn written(&mut self, mark: Token) {
        if let Some((id, name)) = self.marks.remove(&mark)
            && let Some(asked) = self.asked.get_mut(&id).filter(|asked| asked.is_open && asked.name == name)
        {
            asked.is_written = true;
            if matches!(asked.state, State::PolicySpoke) {
                asked.state = State::Answered;
                let (status, source) = (RequestStatus::Resolved, RequestSource::Policy);
                asked.end = Some(End { status, source, payload: Some(BY_POLICY.to_owned()) });
            }
        }
    }

    /// Time has passed.
    pub fn ticks(&mut self, now: Duration) {
        let past: Vec<Token> = self.holds.iter().filter(|(_, until)| **until <= now).map(|(token, _)| *token).collect();
        for token in past {
            self.happened.count(Event::HoldUntilDeadline);
            self.is_distrusting = true;
            self.holds.remove(&token);
            let (id, name, about) = self.commits[&token].clone();
            self.goes_on(id, &name, about);
        }
        self.rules_tire(now);
        let tired = |asked: &Asked| match &asked.state {
            State::Deciding(deciding) => deciding.over.is_none() && deciding.due.is_some_and(|due| due <= now),
            _ => false,
        };
        let mut waiting: Vec<(&u64, &mut Asked)> = self.asked.iter_mut().filter(|(_, asked)| tired(asked)).collect();
        waiting.sort_by_key(|(_, asked)| asked.arrival);
        for (id, asked) in waiting {
            let State::Deciding(deciding) = std::mem::replace(&mut asked.state, State::Pending) else { continue };
            let Some((line, payload)) = deciding.runner_up else { continue };
            self.happened.count(Event::TiredRunnerUp);
            self.is_distrusting = true;
            self.replies.extend(deciding.by.caller().map(|api_call| (api_call, Reply::NotKept)));
            asked.overtaken.push(deciding.payload);
            asked.rule = None;
            asked.wins(RequestSource::Client, payload, true);
            self.ours.push(line);
            self.commits.retain(|_, (of, _, about)| of != id || !matches!(about, About::Decision));
        }
        for asked in self.asked.values_mut().filter(|asked| asked.is_overdue(now)) {
            self.happened.count(Event::Expiry);
            asked.state = State::Expired;
        }
    }

    /// Checks that nothing waits past its deadline.
    pub fn nothing_is_overdue(&self, now: Duration) -> Result<(), String> {
        self.held.nothing_is_overdue(now)?;
        match self.asked.values().find(|asked| asked.is_overdue(now)) {
            Some(asked) => Err(format!("6: waits past its expiry: {}", asked.name)),
            None => Ok(()),
        }
    }

    /// A request is over, or an answered one is mentioned again.
    fn over(&mut self, id: u64, why: Over) {
        let Some(asked) = self.asked.get_mut(&id).filter(|asked| asked.is_open) else { return };
        let is_about_earlier = matches!(why, Over::Resolved) && asked.unconfirmed > 0;
        asked.unconfirmed -= usize::from(is_about_earlier);
        match (&mut asked.state, why) {
            (State::Deciding(_) | State::Answered | State::PolicySpoke, Over::Resolved) if is_about_earlier => return,
            (State::Deciding(deciding), why) => {
                self.happened.count(Event::OverWhileDeciding);
                deciding.over.get_or_insert(why);
                return;
            }
            (State::Answered, _) => {}
            (_, Over::Resolved | Over::Withdrawn) => {
                asked.may_wait = is_about_earlier;
                let (status, source) = (RequestStatus::Resolved, RequestSource::Server);
                asked.end = Some(End { status, source, payload: None });
            }
            (_, Over::ServerGone) => {
                let (status, source) = (RequestStatus::Orphaned, RequestSource::Policy);
                asked.end = Some(End { status, source, payload: None });
            }
        }
        asked.is_open = false;
        if !matches!(why, Over::ServerGone) {
            self.takes_back(id);
        }
    }

    /// The server has sent its last line.
    pub fn server_ended(&mut self) {
        let all: Vec<u64> = self.asked.keys().copied().collect();
        all.into_iter().for_each(|id| self.over(id, Over::ServerGone));
        self.holds.clear();
        self.held.clear();
    }

    /// An API caller receives a reply.
    pub fn replied(&mut self, api_call: ApiCallId, reply: &ApiReply) -> Result<(), String> {
        let told = match reply {
            ApiReply::Kept => Reply::Kept,
            ApiReply::NotKept => Reply::NotKept,
            ApiReply::NotOpen => Reply::NotOpen,
            ApiReply::Invalid(_) => Reply::Invalid,
            // A caller that wants something else.
            ApiReply::Broken(_) if !self.replies.contains_key(&api_call) && self.has_defect => return Ok(()),
            ApiReply::Broken(_) => Reply::Broken,
            _ => return Ok(()),
        };
        match self.replies.remove(&api_call) {
            Some(due) if due == told => Ok(()),
            due => Err(format!("3: told wrongly: {told:?}, and it is {due:?}")),
        }
    }

    /// The client has received a line.
    pub fn client_got(&mut self, line: &[u8], rows: &Rows) -> Result<(), String> {
        let due = self.to_client.pop_front();
        if due.as_ref().is_some_and(|due| due.is_late) {
            self.heard_late.insert(self.heard);
        }
        self.heard += 1;
        let row = due.as_ref().filter(|due| due.line == line).and_then(|due| due.row.as_ref());
        let earlier = self.earlier.iter_mut().map(|(_, asked)| asked);
        let mut all = earlier.chain(self.asked.values_mut());
        if let Some(asked) = row.and_then(|row| all.find(|asked| asked.name == *row))
            && rows.get(&asked.name).is_none()
        {
            if !asked.is_excused {
                return Err(format!("3: the client sees {} before it is kept", asked.name));
            }
            asked.was_late = true;
        }
        let due = due.map(|due| due.line);
        match due {
            Some(due) if due == line => Ok(()),
            _ if marks_envelope(line) => Err(format!("1: the client sees an envelope: {}", shown(line))),
            due => Err(format!("1: the client got\n    {}\n  and was to get\n    {}", shown(line), or_nothing(due))),
        }
    }

    /// The server has received a line.
    pub fn server_got(&mut self, line: &[u8], rows: &Rows) -> Result<(), String> {
        let message = Message::read(line);
        self.follower.follows(message.as_ref(), &mut self.happened)?;
        if message.as_ref().is_some_and(Message::is_ours) {
            return Ok(());
        }
        let late = self.to_server.front().filter(|due| due.line == line).and_then(|due| due.late);
        if late.is_some() {
            let earlier = self.earlier.iter_mut().map(|(_, asked)| asked);
            let all = earlier.chain(self.asked.values_mut());
            all.for_each(|asked| asked.passed_late.retain(|of| Some(of.number) != late));
        } else if let Some((id, payload)) = message.as_ref().and_then(Message::answer)
            && self.asked.contains_key(&id)
        {
            self.answer_arrives(id, &payload, rows)?;
        }
        let bare = without_envelope(line);
        match self.to_server.pop_front().map(|due| due.line) {
            Some(due) if due == line => Ok(()),
            Some(due) if bare.as_ref() == Some(&due) => {
                self.happened.count(Event::Envelope);
                Ok(())
            }
            due => Err(format!("1: the server got\n    {}\n  and was to get\n    {}", shown(line), or_nothing(due))),
        }
    }

    /// The server receives the answer of the oldest answered row of its request.
    fn answer_arrives(&mut self, id: u64, payload: &str, rows: &Rows) -> Result<(), String> {
        let earlier = self.earlier.iter_mut().filter(|(of, _)| *of == id).map(|(_, asked)| asked);
        let mut all = earlier.chain(self.asked.get_mut(&id)).peekable();
        let mut last = None;
        while let Some(asked) = all.next() {
            let is_due = asked.sent.is_some() && !asked.has_reached_server;
            if is_due || all.peek().is_none() {
                last = Some(asked);
                break;
            }
        }
        last.expect("it was asked").answer_arrives(payload, rows)
    }

    /// Checks that nothing is in flight to the client.
    pub fn client_has_all(&self, said: &[Said]) -> Result<(), String> {
        let due = self.to_client.front().or(self.late.first()).map(|due| &due.line);
        let missing = due.or_else(|| said.get(self.read[1]).map(|said| &said.bytes));
        missing.map_or(Ok(()), |line| Err(format!("1: the client never got {}", shown(line))))
    }

    /// Checks that nothing is in flight to the server.
    pub fn server_has_all(&self, said: &[Said]) -> Result<(), String> {
        if self.is_deaf {
            return Ok(());
        }
        let due = self.to_server.front().map(|due| &due.line).or(self.ours.first());
        let due = due.or_else(|| self.held.lines().map(|(_, line)| line).next());
        let missing = due.or_else(|| said.get(self.read[0]).map(|said| &said.bytes));
        missing.map_or(Ok(()), |line| Err(format!("1: the server never got {}", shown(line))))
    }

    /// The server gets no more lines, and must have all that were for it.
    pub fn server_is_deaf(&mut self, said: &[Said]) -> Result<(), String> {
        self.server_has_all(said)?;
        self.is_deaf = true;
        Ok(())
    }

    /// Checks that every API caller has its reply.
    pub fn all_are_told(&self) -> Result<(), String> {
        let untold = self.replies.iter().next();
        untold.map_or(Ok(()), |(_, reply)| Err(format!("3: told wrongly: nothing, and it is {reply:?}")))
    }

    /// A request whose answer is being stored, or of whose answer a part is with the server.
    pub fn almost_answered(&self) -> Option<u64> {
        let is_begun = |asked: &Asked| asked.is_begun && !asked.has_reached_server;
        let is_almost =
            |asked: &Asked| is_begun(asked) || matches!(&asked.state, State::Deciding(of) if of.over.is_none());
        self.asked.iter().find(|(_, asked)| asked.is_open && is_almost(asked)).map(|(id, _)| *id)
    }

    /// A hidden pending request.
    pub fn hidden(&self) -> Option<u64> {
        self.asked.iter().rev().find(|(_, asked)| asked.is_open && asked.shown != Shown::Yes).map(|(id, _)| *id)
    }
}
