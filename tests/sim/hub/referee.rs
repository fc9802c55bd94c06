//! The referee of a hub: what each connection must carry, and the end of each request, by the rules of the design alone.
//!
//! It sees the engine's input in the same order. Of the engine's output it reads the subject of each commit and the mark
//! behind each message.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use codex_shim::testing::engine::{ApiCallId, ApiReply, LedgerEntry, OpenBefore, RequestSource, RequestStatus, Token};
use codex_shim::testing::wire::{Conn, Side};
use serde_json::Value;

use super::super::asked::{Decider, Shown};
use super::super::happened::{Event, Happened};
use super::super::held::Held;
use super::super::lines::{Message, is_odd, marks_envelope, or_nothing, shown, without_envelope};
use super::super::referee::{About, EXPIRES_AFTER, Follower};
use super::super::rules::{Ruling, Threads};
use super::super::side::Said;
use super::super::world::HOLD_MAX;
use super::asked::{Asked, Over, State};
use super::client::PROBE;
use super::ledger::Ledger;
use super::wire::HowEnded;

/// Policy's answer.
const BY_POLICY: &str = r#"{"decision":"decline"}"#;

/// The hub's answer to the response to its `initialize`.
const INITIALIZED: &[u8] = br#"{"method":"initialized"}"#;

/// A row of the ledger, in the order of their opening.
pub type RowNumber = usize;

/// What a hub does by its settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct Habits {
    pub expires: bool,
    pub has_rules: bool,
    /// Turns wait for fragments.
    pub gathers: bool,
    /// It has taken over its server.
    pub adopts: bool,
}

#[derive(Debug, Default)]
pub struct Referee {
    pub happened: Happened,
    /// The run of the server.
    generation: String,
    pub habits: Habits,
    /// The last token before the hub has found a defect in itself, if it has.
    pub defect_after: Option<Token>,
    threads: Threads,
    pub held: Held,
    /// The ledger is open.
    pub is_loaded: bool,
    /// The last commit has failed, so the next one is not waited for.
    pub is_distrusting: bool,
    /// The newest connection.
    pub newest: u32,
    pub rows: Vec<Asked>,
    /// The current row of each request, by its id.
    pub open: BTreeMap<u64, RowNumber>,
    /// Rows of an earlier hub that were open, or whose answers the server may not have got.
    before: BTreeMap<u64, OpenBefore>,
    /// Requests that are over, with their last row.
    over: BTreeMap<u64, RowNumber>,
    ended_turns: BTreeSet<String>,
    pub commits: BTreeMap<Token, (RowNumber, About)>,
    /// All entries that were ordered.
    ordered: BTreeSet<Token>,
    holds: BTreeMap<Token, Duration>,
    /// What a client still gets of a server that is gone waits for nothing.
    is_server_gone: bool,
    marks: BTreeMap<Token, RowNumber>,
    pub wires: BTreeMap<u32, Wire>,
    /// Answers of ours on their way to the server, which takes them from any connection.
    pub ours: Vec<Ours>,
    /// Withheld requests that are to be sent to clients, and are not on their way.
    pub late: Vec<Late>,
    /// Rows whose answers are still here, and must be taken back now.
    unwanted: BTreeSet<RowNumber>,
    /// The same of answers that were passed on although another one holds, by their marks.
    unwanted_late: BTreeSet<Token>,
    /// Answers that did not win: the row and the answer.
    lost: Vec<(RowNumber, String)>,
    replies: BTreeMap<ApiCallId, Reply>,
    /// The caller whose answer was taken back last before it was on its way.
    pub taken_of: Option<ApiCallId>,
    /// The terminal commands in a turn whose response is awaited, by connection and call.
    carried: BTreeMap<(u32, String), BTreeSet<String>>,
    /// Commands that a turn has delivered.
    delivered: BTreeSet<String>,
}

/// What a connection must carry.
#[derive(Debug, Default)]
pub struct Wire {
    /// How many messages of each side the engine has received.
    read: [usize; 2],
    to_server: VecDeque<Due>,
    to_client: VecDeque<Due>,
    /// What each side has received, and whether it was withheld at first.
    got: [Vec<(Vec<u8>, bool)>; 2],
    record: OnRecord,
    pub has_left: bool,
    /// The server is gone from it, and nothing waits for it any more.
    is_deaf: bool,
    /// The server has answered the client's `initialize`, and the hub has read that.
    pub is_initialized: bool,
    follower: Follower,
    /// The code of a close frame, and the side that is to get it.
    close: Option<(Side, u16)>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum OnRecord {
    #[default]
    NotYet,
    Probe,
    Yes,
}

/// A message that a side must receive, and the row of its request.
#[derive(Debug)]
struct Due {
    line: Vec<u8>,
    row: Option<RowNumber>,
    /// It is an answer with this mark behind it.
    mark: Option<Token>,
    /// The record leaves it out.
    is_unrecorded: bool,
    /// It was withheld at first.
    is_late: bool,
}

/// A withheld request for some clients.
#[derive(Debug)]
pub struct Late {
    pub line: Vec<u8>,
    pub number: RowNumber,
    pub conns: Vec<u32>,
}

/// An answer of ours.
#[derive(Debug)]
pub struct Ours {
    line: Vec<u8>,
    row: RowNumber,
    /// It waits on a connection, with this mark behind it.
    mark: Option<Token>,
    /// That connection is gone.
    is_lost: bool,
}

impl Ours {
    pub fn new(line: Vec<u8>, row: RowNumber) -> Ours {
        Ours { line, row, mark: None, is_lost: false }
    }
}

/// Whether an answer is sent again if it is lost with its connection: that of policy or a rule is, while the server wants it.
fn is_resent(rows: &[Asked], open: &BTreeMap<u64, RowNumber>, number: RowNumber) -> bool {
    rows[number].is_by_policy() && open.get(&rows[number].id) == Some(&number)
}

/// The reply that an API caller must receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    Kept,
    NotKept,
    NotOpen,
    NotReady,
    Invalid,
    Broken,
    /// Of no interest here, but exactly one.
    Any,
}

impl Referee {
    pub fn new(generation: String, habits: Habits) -> Referee {
        let threads = Threads::of(habits.adopts);
        Referee { generation, habits, threads, ..Referee::default() }
    }

    /// The referee of the next server. Clients of the last one still get what waits for them.
    pub fn next(self, generation: String, habits: Habits) -> Referee {
        let last = |wire: Wire| {
            let due = |due: Due| Due { row: None, is_unrecorded: true, ..due };
            let to_client = wire.to_client.into_iter().map(due).collect();
            Wire { to_client, has_left: true, record: wire.record, close: wire.close, ..Wire::default() }
        };
        let wires = self.wires.into_iter().map(|(conn, wire)| (conn, last(wire))).collect();
        Referee { wires, newest: self.newest, ..Referee::new(generation, habits) }
    }

    /// The ledger is open, with these rows. If the server asks again for a request whose answer is stored, it gets that answer, unless
    /// another one is on its way already, which then replaces it.
    pub fn loaded(&mut self, rows: &[OpenBefore]) {
        self.is_loaded = true;
        let mut newest = BTreeMap::new();
        for row in rows {
            newest.entry(row.rpc_request_id.parse::<u64>().expect("ids are numbers")).or_insert(row);
        }
        for (id, row) in newest {
            match self.open.get(&id).or_else(|| self.over.get(&id)).copied() {
                Some(number) if row.answer.is_some() => self.finds_stored(number, row),
                Some(_) => {}
                None => drop(self.before.insert(id, row.clone())),
            }
        }
    }

    /// The server needs no answer any more to these requests of an earlier hub. It may still deliver them on slow connections.
    fn over_before(&mut self, is_over: impl Fn(u64, &OpenBefore) -> bool) {
        let over: Vec<(u64, OpenBefore)> = self.before.extract_if(.., |id, row| is_over(*id, row)).collect();
        for (id, row) in over {
            self.happened.count(Event::OverBefore);
            let mut asked = Asked::new(id, Vec::new(), row.turn_id.unwrap_or_default());
            (asked.name, asked.state) = (Some(row.request_id), State::Answered);
            match row.answer {
                Some(answer) => asked.ends(RequestStatus::Resolved, answer.source, Some(answer.payload)),
                None => asked.ends(RequestStatus::Resolved, RequestSource::Server, None),
            }
            self.rows.push(asked);
            self.over.insert(id, self.rows.len() - 1);
        }
    }

    /// The row of a request that the server has asked before the ledger was open has an answer.
    fn finds_stored(&mut self, number: RowNumber, row: &OpenBefore) {
        let asked = &mut self.rows[number];
        match std::mem::replace(&mut asked.state, State::Pending) {
            state @ (State::Answered | State::PolicySpoke) => {
                self.happened.count(Event::ReplacedStored);
                (asked.state, asked.name) = (state, Some(row.request_id.clone()));
                asked.is_answer_excused = true;
                asked.overtaken.extend(row.answer.as_ref().map(|answer| answer.payload.clone()));
            }
            // The server has ended it.
            state if asked.end.is_some() => asked.state = state,
            State::Deciding { by, runner_up, is_over, .. } => {
                self.replies.extend(by.caller().map(|api_call| (api_call, Reply::NotOpen)));
                runner_up.into_iter().for_each(|(_, payload)| self.loses(number, payload));
                self.commits.retain(|_, (of, about)| *of != number || *about != About::Decision);
                self.has_stored(number, row);
                if is_over.is_some() {
                    self.ours.pop();
                    let id = self.rows[number].id;
                    self.open.remove(&id);
                    self.over.insert(id, number);
                }
            }
            State::Pending | State::Expired => {
                self.commits.retain(|_, (of, about)| *of != number || *about != About::Expiry);
                self.has_stored(number, row);
            }
        }
    }

    /// The row of a request has an answer, which is on its way to the server.
    fn has_stored(&mut self, number: RowNumber, row: &OpenBefore) {
        let Some(answer) = &row.answer else { return };
        self.happened.count(Event::StoredAnswerSent);
        let asked = &mut self.rows[number];
        asked.name = Some(row.request_id.clone());
        asked.was_sent = answer.is_dispatched;
        asked.state = State::Answered;
        (asked.payload, asked.answered_at) = (Some(answer.payload.clone()), self.newest);
        asked.ends(RequestStatus::Resolved, answer.source, Some(answer.payload.clone()));
        asked.rule = None;
        if asked.shown == Shown::NotYet {
            asked.shown = Shown::Never;
        }
        // A client's refusal is stored as the only member of an answer.
        let refusal = answer.payload.strip_prefix("{\"error\":").and_then(|rest| rest.strip_suffix('}'));
        let (member, value) = refusal.map_or(("result", &*answer.payload), |error| ("error", error));
        self.ours.push(Ours::new(format!("{{\"id\":{},\"{member}\":{value}}}", asked.id).into_bytes(), number));
    }

    pub fn connected(&mut self, conn: Conn) {
        if conn != Conn::OWN {
            self.newest = conn.0;
        }
        let got = self.wires.remove(&conn.0).map(|wire| wire.got).unwrap_or_default();
        let record = if conn == Conn::OWN { OnRecord::Yes } else { OnRecord::NotYet };
        self.wires.insert(conn.0, Wire { got, record, ..Wire::default() });
    }

    /// A connection has lost one of its sides.
    pub fn disconnected(&mut self, conn: Conn) {
        for number in self.open.values() {
            let asked = &mut self.rows[*number];
            asked.may_be_lost |= matches!(asked.state, State::Answered) && asked.over == Some(conn.0);
        }
        self.carried.retain(|(of, _), _| *of != conn.0);
        if self.held.lines().any(|(of, _)| *of == conn) {
            // What it has written goes on, and what waits with it.
            let lines = self.held.take_all();
            self.go_on(lines);
        }
        if let Some(wire) = self.wires.get_mut(&conn.0) {
            wire.has_left = true;
        }
    }

    /// The hub writes to a side that is gone.
    pub fn is_gone(&mut self, conn: Conn, side: Side) {
        if let Some(wire) = self.wires.get_mut(&conn.0).filter(|_| side == Side::Server) {
            wire.is_deaf = true;
        }
    }

    /// A side ends a connection, perhaps with a close frame, which goes to the other side.
    pub fn ends(&mut self, conn: Conn, from: Side, end: Option<HowEnded>) {
        if let (Some(wire), Some(HowEnded::Closed(code))) = (self.wires.get_mut(&conn.0), end) {
            let to = if from == Side::Client { Side::Server } else { Side::Client };
            wire.close = Some((to, code));
        }
    }

    /// A side gets a close frame, behind all messages that were for it.
    pub fn heard_close(&mut self, conn: Conn, side: Side, code: Option<u16>) -> Result<(), String> {
        let wire = self.wires.get_mut(&conn.0).expect("BUG: it was connected");
        let waits = if side == Side::Client { wire.to_client.front() } else { wire.to_server.front() };
        if let Some(due) = waits {
            let line = shown(&due.line);
            return Err(format!("1: the {} gets a close frame and never got {line}", side.name()));
        }
        match wire.close.take() {
            Some((to, due)) if to == side && Some(due) == code => {
                self.happened.count(Event::CloseFrame);
                Ok(())
            }
            due => Err(format!("1: the {} gets the close frame {code:?} and was to get {due:?}", side.name())),
        }
    }

    /// Everything that its client had written must have reached the server, unless the server has closed the connection, or
    /// has not read for too long. `hears` says so of the client and of the server.
    pub fn removed(&mut self, conn: Conn, hears: [bool; 2]) -> Result<(), String> {
        let (rows, open, marks) = (&self.rows, &self.open, &self.marks);
        self.ours.retain(|ours| {
            // The hub hears next that it was not written.
            let is_lost_now = ours.mark.is_some_and(|mark| marks.contains_key(&mark));
            rows[ours.row].over != Some(conn.0) || is_lost_now && is_resent(rows, open, ours.row)
        });
        let Some(wire) = self.wires.get_mut(&conn.0) else { return Ok(()) };
        if let Some((to, code)) = wire.close.take().filter(|(to, _)| hears[*to as usize]) {
            return Err(format!("1: the {} never got the close frame {code}", to.name()));
        }
        let due = wire.to_server.front().filter(|_| hears[Side::Server as usize]);
        due.map_or(Ok(()), |due| Err(format!("1: the server never got {}", shown(&due.line))))
    }

    /// Whether the server has answered a client that is on record. It takes its name from the first one.
    pub fn has_had_client(&self) -> bool {
        let is_client = |conn: u32, wire: &Wire| conn != Conn::OWN.0 && wire.is_initialized;
        self.wires.iter().any(|(conn, wire)| is_client(*conn, wire) && wire.record == OnRecord::Yes)
    }

    /// A client is read only while nothing of it waits for the server.
    pub fn nothing_waits_for_server(&self, conn: Conn) -> Result<(), String> {
        let due = self.wires.get(&conn.0).and_then(|wire| wire.to_server.front());
        due.map_or(Ok(()), |due| {
            let line = shown(&due.line);
            Err(format!("6: read although the server has not taken what came before, on connection {}: {line}", conn.0))
        })
    }

    /// A client for which more waits is disconnected. The next message does not count.
    pub fn client_is_fast_enough(&self, conn: Conn, bytes_max: usize) -> Result<(), String> {
        let waiting = self.wires.get(&conn.0).into_iter().flat_map(|wire| &wire.to_client);
        let bytes: usize = waiting.skip(1).map(|due| due.line.len()).sum();
        match bytes > bytes_max {
            true => Err(format!("6: too much waits for the client of connection {}: {bytes} bytes", conn.0)),
            false => Ok(()),
        }
    }

    /// The engine receives a message of a side, the next that the side has sent.
    pub fn reads(
        &mut self,
        now: Duration,
        conn: Conn,
        from: Side,
        line: &[u8],
        said: Option<&Said>,
    ) -> Result<bool, String> {
        let Some(said) = said.filter(|said| said.bytes == line) else {
            return Err(format!("1: the engine got a message that the {} did not send: {}", from.name(), shown(line)));
        };
        let wire = self.wires.get_mut(&conn.0).expect("BUG: it is connected");
        wire.read[from as usize] += 1;
        self.happened.add(Event::OddLine, u64::from(is_odd(line)));
        let message = Message::read(line);
        let mut waits = false;
        match (from, message) {
            (Side::Client, message) => match message.as_ref().and_then(Message::answer) {
                Some((id, payload)) if self.open.contains_key(&id) || self.over.contains_key(&id) => {
                    self.is_unrecorded(conn, None);
                    self.client_answers((now, conn), id, line, payload);
                }
                Some(_) | None => {
                    let is_taken = |message| self.held.takes(now, conn, line, message);
                    waits = self.habits.gathers && message.as_ref().is_some_and(is_taken);
                    if !waits {
                        let is_unrecorded = self.is_unrecorded(conn, message.as_ref());
                        self.expect_at_server(conn, line, None, is_unrecorded);
                    }
                }
            },
            (Side::Server, None) => {
                let is_unrecorded = self.wires[&conn.0].record != OnRecord::Yes;
                self.expect_at_client(conn, line, None, is_unrecorded);
            }
            (Side::Server, Some(message)) => {
                let is_unrecorded = self.wires[&conn.0].record != OnRecord::Yes;
                self.server_says(now, conn, &message, said, is_unrecorded);
            }
        }
        self.happened.add(Event::HeldLine, u64::from(waits));
        Ok(waits)
    }

    /// Whether a client's line is left out of the record: those of a probe are.
    fn is_unrecorded(&mut self, conn: Conn, message: Option<&Message<'_>>) -> bool {
        let wire = self.wires.get_mut(&conn.0).expect("BUG: it is connected");
        let is_probes = match (wire.record, message.and_then(|message| message.method.as_deref())) {
            (OnRecord::NotYet, Some("initialize")) => {
                message.is_some_and(|message| message.params["clientInfo"]["name"] == PROBE)
            }
            (OnRecord::Probe, Some("initialized")) => true,
            _ => false,
        };
        wire.record = if is_probes { OnRecord::Probe } else { OnRecord::Yes };
        is_probes
    }

    /// A queue of lines that waited for their context is released.
    pub fn released(&mut self, now: Duration, token: Token) {
        let lines = self.held.release(now, token);
        self.go_on(lines);
    }

    /// Lines that waited for their context go to the server.
    fn go_on(&mut self, lines: Vec<(Conn, Vec<u8>)>) {
        self.happened.add(Event::ReleasedLine, lines.len() as u64);
        for (conn, line) in lines {
            let is_unrecorded = self.is_unrecorded(conn, Message::read(&line).as_ref());
            self.expect_at_server(conn, &line, None, is_unrecorded);
        }
    }

    fn expect_at_server(&mut self, conn: Conn, line: &[u8], row: Option<RowNumber>, is_unrecorded: bool) {
        let wire = self.wires.get_mut(&conn.0).expect("BUG: it is connected");
        wire.to_server.push_back(Due { line: line.to_vec(), row, mark: None, is_unrecorded, is_late: false });
    }

    fn expect_at_client(&mut self, conn: Conn, line: &[u8], row: Option<RowNumber>, is_unrecorded: bool) {
        if conn != Conn::OWN {
            let wire = self.wires.get_mut(&conn.0).expect("BUG: it is connected");
            wire.to_client.push_back(Due { line: line.to_vec(), row, mark: None, is_unrecorded, is_late: false });
        }
    }

    pub fn expect_late_at_client(&mut self, conn: Conn, line: &[u8], number: RowNumber) {
        if let Some(wire) = self.wires.get_mut(&conn.0) {
            let (row, is_unrecorded) = (Some(number), false);
            wire.to_client.push_back(Due { line: line.to_vec(), row, mark: None, is_unrecorded, is_late: true });
        }
    }

    fn server_says(&mut self, now: Duration, conn: Conn, message: &Message<'_>, said: &Said, is_unrecorded: bool) {
        let params = &message.params;
        let mut row = None;
        match (message.method.as_deref(), message.id.as_ref()) {
            (None, Some(id)) => {
                if let Some(commands) = self.carried.remove(&(conn.0, id.to_string())) {
                    self.delivered.extend(commands.into_iter().filter(|_| message.succeeds()));
                }
                let thread = message.thread();
                if self.threads.learn(message) {
                    let rules = self.rows.iter_mut().filter_map(|asked| asked.rule.as_mut());
                    rules.for_each(|rule| rule.is_moved = true);
                }
                if message.names_server()
                    && let Some(wire) = self.wires.get_mut(&conn.0)
                {
                    wire.is_initialized = true;
                }
                self.thread_has_status(&thread["id"], &thread["status"]);
                if message.is_ours() {
                    if conn == Conn::OWN && message.names_server() {
                        self.expect_at_server(conn, INITIALIZED, None, false);
                    }
                    return;
                }
            }
            (Some("serverRequest/resolved"), _) => {
                let id = params["requestId"].as_u64().expect("the server names it");
                self.over(id, Over::ByServer);
                self.over_before(|of, _| of == id);
            }
            (Some("thread/status/changed"), _) => self.thread_has_status(&params["threadId"], &params["status"]),
            (Some("turn/completed"), _) => {
                let turn = params["turn"]["id"].as_str().expect("the server names it").to_owned();
                if self.ended_turns.insert(turn.clone()) {
                    let of_turn = self.open.iter().filter(|(_, number)| self.rows[**number].turn == turn);
                    let of_turn: Vec<u64> = of_turn.map(|(id, _)| *id).collect();
                    of_turn.into_iter().for_each(|id| self.over(id, Over::ByServer));
                    self.over_before(|_, row| row.turn_id.as_ref() == Some(&turn));
                }
            }
            (Some(method), Some(id)) if method.ends_with("requestApproval") => {
                let id = id.as_u64().expect("ids are small");
                row = self.asks(now, conn, id, (params, &said.bytes));
                // A slow client hears of a request after its end.
                let asked = row.or_else(|| self.over.get(&id).copied());
                if asked.is_some_and(|number| self.rows[number].shown != Shown::Yes) {
                    self.happened.count(Event::HiddenRequest);
                    return;
                }
            }
            _ => {}
        }
        self.expect_at_client(conn, said.plain.as_ref().unwrap_or(&said.bytes), row, is_unrecorded);
    }

    /// A thread that rests runs no turn. One that works may ask again, whatever the server says about it.
    fn thread_has_status(&mut self, thread: &Value, status: &Value) {
        if status["type"] == "idle" {
            self.over_before(|_, row| row.thread_id.as_deref() == thread.as_str());
        }
    }

    /// The server asks on a connection: for the first time, as one more delivery, or again because it has not got the answer.
    fn asks(&mut self, now: Duration, conn: Conn, id: u64, (params, line): (&Value, &[u8])) -> Option<RowNumber> {
        if self.over.contains_key(&id) {
            return None;
        }
        if let Some(number) = self.open.get(&id).copied() {
            let asked = &self.rows[number];
            let is_here = !asked.is_written && !asked.may_be_lost;
            if asked.is_open() || is_here || conn.0 <= asked.answered_at {
                self.happened.count(Event::Copy);
                let asked = &mut self.rows[number];
                if !asked.conns.contains(&conn.0) {
                    asked.conns.push(conn.0);
                }
                if conn != Conn::OWN && asked.shown == Shown::Yes {
                    self.copied(now, number);
                }
                return Some(number);
            }
            self.happened.count(Event::AskedAgain);
        }
        self.takes_back_late(id);
        self.happened.count(Event::Request);
        let before = self.before.remove(&id);
        let is_answered = before.as_ref().is_some_and(|row| row.answer.is_some());
        let decide = self.habits.has_rules && !self.is_distrusting && !is_answered;
        let ruling = if decide { Ruling::of(params, &self.threads) } else { Ruling::default() };
        let asked = Asked {
            conns: vec![conn.0],
            expires_at: self.habits.expires.then(|| now + EXPIRES_AFTER),
            is_excused: self.is_distrusting && conn != Conn::OWN,
            is_early: !self.is_loaded,
            is_for_hub: conn == Conn::OWN,
            ..Asked::new(id, line.to_vec(), params["turnId"].as_str().unwrap_or_default().to_owned())
        };
        self.rows.push(asked.ruled(now, ruling));
        let number = self.rows.len() - 1;
        self.open.insert(id, number);
        if let Some(row) = before {
            self.has_stored(number, &row);
        }
        Some(number)
    }

    /// One more delivery waits for the same commit.
    fn copied(&mut self, now: Duration, number: RowNumber) {
        let opening = self.commits.iter().find(|(_, (of, about))| *of == number && *about == About::Opening);
        if let Some((token, _)) = opening {
            self.rows[number].is_excused |= self.is_distrusting && !self.holds.contains_key(token);
            if !self.is_distrusting {
                self.holds.entry(*token).or_insert(now + HOLD_MAX);
            }
        }
    }

    /// A client answers: the first answer wins; a later one is stored, and passed on only if the first one may be lost.
    fn client_answers(&mut self, (now, conn): (Duration, Conn), id: u64, line: &[u8], payload: String) {
        let Some(number) = self.open.get(&id).copied() else {
            return self.loses(self.over[&id], payload);
        };
        let is_excused = self.is_distrusting;
        let asked = &mut self.rows[number];
        match &mut asked.state {
            State::Pending if asked.shown == Shown::Yes => {
                asked.wins(RequestSource::Client, payload, is_excused, self.newest);
                asked.over = Some(conn.0);
                self.expect_at_server(conn, line, Some(number), false);
            }
            State::Deciding { runner_up, due, .. } if runner_up.is_none() && asked.shown == Shown::Yes => {
                self.happened.count(Event::RunnerUp);
                *due = Some(now + HOLD_MAX);
                *runner_up = Some((line.to_vec(), payload));
            }
            _ => {
                if asked.may_be_lost {
                    self.happened.count(Event::ForwardedLostAnswer);
                    self.expect_at_server(conn, line, None, false);
                }
                self.loses(number, payload);
            }
        }
    }

    fn loses(&mut self, number: RowNumber, payload: String) {
        self.happened.count(Event::LostAnswer);
        self.lost.push((number, payload));
    }

    /// A request is over. Whatever is asked or answered later changes nothing.
    fn over(&mut self, id: u64, why: Over) {
        let Some(number) = self.open.get(&id).copied() else { return };
        let asked = &mut self.rows[number];
        match (&mut asked.state, why) {
            (State::Deciding { is_over, .. }, why) => {
                self.happened.count(Event::OverWhileDeciding);
                is_over.get_or_insert(why);
                return;
            }
            (State::Answered, _) => {}
            (_, Over::ByServer) => asked.ends(RequestStatus::Resolved, RequestSource::Server, None),
            (_, Over::ServerGone) => asked.ends(RequestStatus::Orphaned, RequestSource::Policy, None),
        }
        self.open.remove(&id);
        self.over.insert(id, number);
        if why == Over::ByServer {
            self.takes_back(number);
        }
    }

    /// The server does not want an answer any more: nothing of it reaches the server, unless it has.
    fn takes_back(&mut self, number: RowNumber) {
        let is_heard =
            |conn: &Option<u32>| conn.and_then(|conn| self.wires.get(&conn)).is_none_or(|wire| !wire.is_deaf);
        let heard = self.wires.values().filter(|wire| !wire.is_deaf);
        let is_passed = heard.flat_map(|wire| &wire.to_server).any(|due| due.row == Some(number));
        let is_ours = |ours: &Ours| ours.row == number && !ours.is_lost;
        let is_ours = self.ours.iter().any(is_ours) && is_heard(&self.rows[number].over);
        if !is_passed && !is_ours {
            return;
        }
        self.unwanted.insert(number);
        self.ours.retain(|ours| ours.row != number);
        self.wires.values_mut().for_each(|wire| wire.to_server.retain(|due| due.row != Some(number)));
        let asked = &mut self.rows[number];
        if !asked.was_sent {
            asked.ends(RequestStatus::Resolved, RequestSource::Server, None);
            asked.overtaken.extend(asked.payload.clone());
        }
        if let Some(reply) = asked.told.and_then(|api_call| self.replies.get_mut(&api_call)) {
            // The caller has not heard yet that it would be sent.
            self.happened.count(Event::UnsentTakenBack);
            self.taken_of = asked.told;
            *reply = Reply::NotOpen;
        }
    }

    /// The server asks under this id again: no answer that was passed on late is meant for that.
    fn takes_back_late(&mut self, id: u64) {
        let is_its = |due: &Due| {
            let answered = || Message::read(&due.line).as_ref().and_then(Message::answer).map(|(of, _)| of);
            due.row.is_none() && due.mark.is_some() && answered() == Some(id)
        };
        for wire in self.wires.values_mut() {
            self.unwanted_late.extend(wire.to_server.iter().filter(|due| is_its(due)).filter_map(|due| due.mark));
            wire.to_server.retain(|due| !is_its(due));
        }
    }

    /// Checks that the hub has taken back what the server does not want any more.
    pub fn all_are_taken_back(&self) -> Result<(), String> {
        match (self.unwanted.first(), self.unwanted_late.first()) {
            (Some(number), _) => Err(format!("3: not taken back: the answer to {:?}", self.rows[*number].name)),
            (None, Some(mark)) => Err(format!("3: not taken back: the late answer with mark {mark}")),
            (None, None) => Ok(()),
        }
    }

    /// The server has ended, and every connection with it.
    pub fn server_ended(&mut self) {
        let all: Vec<u64> = self.open.keys().copied().collect();
        all.into_iter().for_each(|id| self.over(id, Over::ServerGone));
        self.holds.clear();
        self.held.clear();
        self.is_server_gone = true;
    }

    /// The name of an open request, or of one that is over; `None` if there is none of this number.
    pub fn name_of(&self, id: u64) -> Option<&str> {
        let number = self.open.get(&id).or_else(|| self.over.get(&id))?;
        self.rows[*number].name.as_deref()
    }

    /// A request whose answer is being stored.
    pub fn deciding(&self) -> Option<u64> {
        let is_deciding = |asked: &Asked| matches!(asked.state, State::Deciding { is_over: None, .. });
        self.open.iter().find(|(_, number)| is_deciding(&self.rows[**number])).map(|(id, _)| *id)
    }

    /// A request that waits for an answer and has a row.
    pub fn pending(&self) -> Option<&str> {
        let asked = self.open.values().map(|number| &self.rows[*number]);
        asked.filter(|asked| matches!(asked.state, State::Pending)).find_map(|asked| asked.name.as_deref())
    }

    pub fn last_id(&self) -> u64 {
        self.rows.iter().map(|asked| asked.id).max().unwrap_or_default()
    }

    /// A connection that carries an answer which the server has not confirmed, other than the hub's own if there is one.
    pub fn carrier(&self) -> Option<Conn> {
        let answered = self.open.values().map(|number| &self.rows[*number]);
        let over = answered.filter(|asked| matches!(asked.state, State::Answered)).filter_map(|asked| asked.over);
        over.max().map(Conn)
    }

    /// An API caller makes another call than an answer.
    pub fn calls(&mut self, api_call: ApiCallId) {
        self.replies.insert(api_call, Reply::Any);
    }

    /// An API caller answers.
    pub fn api_answers(&mut self, api_call: ApiCallId, request_id: &str, decision: &str, server_listens: bool) {
        if self.defect_after.is_some() {
            self.replies.insert(api_call, Reply::Broken);
            return;
        }
        let is_named = |number: &&RowNumber| self.rows[**number].name.as_deref() == Some(request_id);
        let number = self.open.values().find(is_named).copied();
        let asked = number.map(|number| &mut self.rows[number]);
        let reply = match asked {
            Some(asked) if matches!(asked.state, State::Pending) => match decision {
                "accept" | "decline" | "cancel" if server_listens => {
                    let payload = format!("{{\"decision\":\"{decision}\"}}");
                    asked.state = State::deciding(Decider::Caller(api_call), payload);
                    return;
                }
                "accept" | "decline" | "cancel" => Reply::NotReady,
                _ => Reply::Invalid,
            },
            Some(_) | None => Reply::NotOpen,
        };
        self.replies.insert(api_call, reply);
    }

    /// The hub has read its ledger, in which a request has another name than it had until then. Whoever answers it by the old name may
    /// have meant another one: such an answer counts for nothing, unless it was stored.
    pub fn renamed(&mut self, before: &str, request_id: &str) {
        let Some(number) = self.rows.iter().rposition(|asked| asked.name.as_deref() == Some(before)) else { return };
        self.happened.count(Event::OpenedAnew);
        self.rows[number].name = Some(request_id.to_owned());
        if matches!(self.rows[number].state, State::Deciding { by: Decider::Caller(_), .. }) {
            self.commits.retain(|_, (of, about)| *of != number || *about != About::Decision);
            self.decided(number, false);
        }
    }

    /// An entry is on its way to the ledger, and its commit will be reported.
    pub fn ordered(
        &mut self,
        now: Duration,
        token: Token,
        entry: &LedgerEntry,
        is_waited_for: bool,
    ) -> Result<(), String> {
        // The order for an entry follows once the ledger is read, whether or not its commit is still waited for.
        if !self.ordered.insert(token) {
            return Ok(());
        }
        let (name, about) = match entry {
            LedgerEntry::RequestOpened(row) => {
                let id: u64 = row.rpc_request_id.parse().expect("ids are numbers");
                let number = self.open.get(&id).copied();
                let asked = number.map(|number| &mut self.rows[number]);
                let Some(asked) = asked.filter(|asked| asked.name.is_none()) else {
                    return Err(format!("3: opened twice: {}", row.request_id));
                };
                let first = format!("{}-{id}", self.generation);
                if row.request_id.strip_prefix(&first).is_none_or(|rest| !rest.is_empty() && !rest.starts_with('.')) {
                    return Err(format!("3: the row of request {id} is named {}", row.request_id));
                }
                asked.name = Some(row.request_id.clone());
                (&row.request_id, About::Opening)
            }
            LedgerEntry::RequestEnded(end) if is_waited_for => (&end.request_id, About::Decision),
            LedgerEntry::RequestEnded(end) => (&end.request_id, About::Answer),
            LedgerEntry::RequestExpired { request_id, .. } => (request_id, About::Expiry),
            _ => return Ok(()),
        };
        let Some(number) = self.rows.iter().rposition(|asked| asked.name.as_ref() == Some(name)) else {
            return Err(format!("3: {name} was never asked"));
        };
        if let LedgerEntry::RequestEnded(end) = entry
            && let Some(by) = end.by.as_deref().filter(|by| by.starts_with("rule:"))
        {
            self.rows[number].ruling.allows(name, by, end.payload.as_deref())?;
        }
        self.commits.insert(token, (number, about));
        let waits = match about {
            About::Opening if self.rows[number].shown != Shown::Yes => true,
            About::Opening => !self.is_distrusting && !self.rows[number].is_for_hub,
            About::Answer => !self.is_distrusting,
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
        if self.commits.get(&token).is_some_and(|(_, about)| *about == About::Decision) {
            self.rules_tire(now);
        }
        self.is_distrusting = !done;
        let was_waited_for = self.holds.remove(&token).is_some();
        let Some((number, about)) = self.commits.remove(&token) else { return };
        match (about, done) {
            (About::Opening, true) => {
                if self.rows[number].rule.is_none() {
                    self.settles(number);
                }
            }
            (About::Opening, false) if was_waited_for || self.rows[number].is_for_hub => {
                self.rows[number].is_excused = true;
                if was_waited_for {
                    self.shows(number);
                }
            }
            (About::Answer, false) if was_waited_for => self.rows[number].is_answer_excused = true,
            (About::Opening | About::Answer, _) => {}
            (About::Decision, _) => self.decided(number, done),
            (About::Expiry, _) => self.policy_answers(number, !done),
        }
    }

    fn decided(&mut self, number: RowNumber, done: bool) {
        let asked = &mut self.rows[number];
        let State::Deciding { by, payload, runner_up, is_over, due: _ } =
            std::mem::replace(&mut asked.state, State::Pending)
        else {
            return;
        };
        let id = asked.id;
        let reply = if done { Reply::Kept } else { Reply::NotKept };
        self.replies.extend(by.caller().map(|api_call| (api_call, reply)));
        match (done, is_over, runner_up) {
            (true, _, runner_up) => {
                self.happened.add(Event::AnswerByRule, u64::from(by.caller().is_none()));
                asked.wins(by.source(), payload.clone(), false, self.newest);
                (asked.told, asked.rule) = (by.caller(), None);
                if asked.shown == Shown::NotYet {
                    asked.shown = Shown::Never;
                }
                if is_over.is_some() {
                    self.open.remove(&id);
                    self.over.insert(id, number);
                } else {
                    self.ours.push(Ours::new(format!("{{\"id\":{id},\"result\":{payload}}}").into_bytes(), number));
                }
                runner_up.into_iter().for_each(|(_, payload)| self.loses(number, payload));
            }
            (false, None, Some((line, payload))) => {
                self.happened.count(Event::SentRunnerUp);
                asked.wins(RequestSource::Client, payload, true, self.newest);
                self.ours.push(Ours::new(line, number));
            }
            (false, None, None) => self.rule_gives_up(number),
            (false, Some(why), runner_up) => {
                self.over(id, why);
                runner_up.into_iter().for_each(|(_, payload)| self.loses(number, payload));
            }
        }
    }

    fn policy_answers(&mut self, number: RowNumber, is_excused: bool) {
        let asked = &mut self.rows[number];
        if asked.end.is_none() && matches!(asked.state, State::Expired) {
            asked.state = State::PolicySpoke;
            asked.payload = Some(BY_POLICY.to_owned());
            asked.is_answer_excused |= is_excused;
            self.ours.push(Ours::new(format!("{{\"id\":{},\"result\":{BY_POLICY}}}", asked.id).into_bytes(), number));
        }
    }

    /// A message of ours goes to the server over a connection.
    pub fn injects(&mut self, conn: Conn, line: &[u8], mark: Option<Token>) {
        let Some(ours) = self.ours.iter_mut().find(|ours| ours.line == line) else { return };
        (ours.mark, ours.is_lost) = (mark, false);
        let number = ours.row;
        self.rows[number].over = Some(conn.0);
        self.marks.extend(mark.map(|mark| (mark, number)));
    }

    /// The message of a client that the engine has just read goes to the server, followed by a mark.
    pub fn marked(&mut self, conn: Conn, mark: Token, line: &[u8]) {
        let wire = self.wires.get_mut(&conn.0).expect("BUG: it is connected");
        if let Some(due) = wire.to_server.back_mut().filter(|due| due.line == line) {
            due.mark = Some(mark);
            self.marks.extend(due.row.map(|number| (mark, number)));
        }
    }

    /// The hub has taken back an answer. `unsent` is one that no connection took.
    pub fn recalled(&mut self, mark: Token, unsent: Option<&Vec<u8>>) -> Result<(), String> {
        if self.unwanted_late.remove(&mark) {
            self.happened.count(Event::TakenBack);
            return Ok(());
        }
        let id = unsent.and_then(|line| Message::read(line)?.answer()).map(|(id, _)| id);
        let unsent = id.and_then(|id| self.over.get(&id).or_else(|| self.open.get(&id))).copied();
        let number = self.marks.get(&mark).copied().or(unsent);
        let Some(asked) = number.map(|number| &self.rows[number]) else {
            return Err(format!("3: taken back after the server got it: mark {mark}"));
        };
        if number.is_some_and(|number| self.unwanted.remove(&number)) {
            self.happened.count(Event::TakenBack);
            self.marks.remove(&mark);
            return Ok(());
        }
        let why = if asked.has_reached_server { "after the server got it" } else { "although the server wants it" };
        Err(format!("3: taken back {why}: {:?}", asked.name))
    }

    /// The connection is gone on which an answer waited. Returns whether it is sent again, as that of policy or a rule is while the
    /// server wants it.
    pub fn not_written(&mut self, mark: Token) -> bool {
        let mut is_sent_again = false;
        for ours in self.ours.iter_mut().filter(|ours| ours.mark == Some(mark)) {
            let is_resent = is_resent(&self.rows, &self.open, ours.row);
            let asked = &mut self.rows[ours.row];
            if is_resent {
                self.happened.count(Event::SentAgain);
                // The server has not read all of it.
                (ours.mark, asked.over, asked.may_be_lost, is_sent_again) = (None, None, false, true);
            } else {
                ours.is_lost = true;
            }
        }
        self.wires.values_mut().for_each(|wire| wire.to_server.retain(|due| due.mark != Some(mark)));
        is_sent_again
    }

    /// Everything up to a mark is written.
    pub fn written(&mut self, mark: Token) {
        let Some(number) = self.marks.remove(&mark) else { return };
        let asked = &mut self.rows[number];
        asked.is_written = true;
        if matches!(asked.state, State::PolicySpoke) && asked.end.is_none() {
            (asked.state, asked.answered_at) = (State::Answered, self.newest);
            asked.ends(RequestStatus::Resolved, RequestSource::Policy, Some(BY_POLICY.to_owned()));
        }
    }

    /// Time has passed.
    pub fn ticks(&mut self, now: Duration) {
        let past: Vec<Token> = self.holds.iter().filter(|(_, until)| **until <= now).map(|(token, _)| *token).collect();
        for token in past {
            self.happened.count(Event::HoldUntilDeadline);
            self.is_distrusting = true;
            self.holds.remove(&token);
            let Some((number, about)) = self.commits.get(&token).copied() else { continue };
            match about {
                About::Opening => {
                    self.rows[number].is_excused = true;
                    self.shows(number);
                }
                About::Answer => self.rows[number].is_answer_excused = true,
                About::Expiry => self.policy_answers(number, true),
                About::Decision => {}
            }
        }
        self.rules_tire(now);
        for number in 0..self.rows.len() {
            let asked = &mut self.rows[number];
            let is_tired = match &asked.state {
                State::Deciding { due, is_over, .. } => is_over.is_none() && due.is_some_and(|due| due <= now),
                _ => false,
            };
            let State::Deciding { by, payload: earlier, runner_up: Some((line, payload)), .. } =
                (if is_tired { std::mem::replace(&mut asked.state, State::Answered) } else { continue })
            else {
                continue;
            };
            self.happened.count(Event::TiredRunnerUp);
            self.is_distrusting = true;
            self.replies.extend(by.caller().map(|api_call| (api_call, Reply::NotKept)));
            asked.overtaken.push(earlier);
            asked.rule = None;
            asked.wins(RequestSource::Client, payload, true, self.newest);
            self.ours.push(Ours::new(line, number));
            self.commits.retain(|_, (of, about)| *of != number || *about != About::Decision);
        }
        for asked in self.rows.iter_mut().filter(|asked| asked.is_overdue(now)) {
            self.happened.count(Event::Expiry);
            asked.state = State::Expired;
        }
    }

    pub fn nothing_is_overdue(&self, now: Duration) -> Result<(), String> {
        self.held.nothing_is_overdue(now)?;
        match self.rows.iter().find(|asked| asked.is_overdue(now)) {
            Some(asked) => Err(format!("6: waits past its expiry: {:?}", asked.name)),
            None => Ok(()),
        }
    }

    /// An API caller receives a reply.
    pub fn replied(&mut self, api_call: ApiCallId, reply: &ApiReply) -> Result<(), String> {
        let told = match reply {
            ApiReply::Kept => Reply::Kept,
            ApiReply::NotKept => Reply::NotKept,
            ApiReply::NotOpen => Reply::NotOpen,
            ApiReply::Invalid(_) => Reply::Invalid,
            ApiReply::NotReady(_) => Reply::NotReady,
            ApiReply::Broken(_) => Reply::Broken,
            _ => Reply::Any,
        };
        match self.replies.remove(&api_call) {
            Some(due) if due == told || due == Reply::Any => Ok(()),
            due => Err(format!("3: told wrongly: {told:?}, and it is {due:?}")),
        }
    }

    /// The client of a connection has received a message.
    pub fn client_got(&mut self, conn: Conn, line: &[u8], ledger: &Ledger) -> Result<(), String> {
        let wire = self.wires.get_mut(&conn.0).expect("BUG: it was connected");
        let due = wire.to_client.pop_front();
        let Some(due) = due.as_ref().filter(|due| due.line == line) else {
            if marks_envelope(line) {
                return Err(format!("1: a client sees an envelope: {}", shown(line)));
            }
            let due = or_nothing(due.map(|due| due.line));
            return Err(format!("1: client {} got\n    {}\n  and was to get\n    {due}", conn.0, shown(line)));
        };
        if !due.is_unrecorded {
            wire.got[Side::Client as usize].push((line.to_vec(), due.is_late));
        }
        if let Some(number) = due.row {
            let asked = &mut self.rows[number];
            let is_kept = asked.name.as_ref().is_some_and(|name| ledger.get(name).is_some());
            if self.is_server_gone {
                return Ok(());
            }
            if !is_kept && !asked.is_excused {
                return Err(format!("3: client {} sees {:?} before it is kept", conn.0, asked.name));
            }
            asked.was_late |= !is_kept;
        }
        Ok(())
    }

    /// The server has received a message on a connection.
    pub fn server_got(&mut self, conn: Conn, line: &[u8], ledger: &Ledger) -> Result<(), String> {
        let wire = self.wires.get_mut(&conn.0).expect("BUG: it was connected");
        wire.follower.follows(Message::read(line).as_ref(), &mut self.happened)?;
        let is_due = |due: &Due| due.line == line || without_envelope(line).is_some_and(|bare| bare == due.line);
        let row = match wire.to_server.front() {
            Some(due) if is_due(due) => {
                let due = wire.to_server.pop_front().expect("BUG: it was looked at");
                if !due.is_unrecorded {
                    wire.got[Side::Server as usize].push((line.to_vec(), false));
                }
                due.row
            }
            due => {
                wire.got[Side::Server as usize].push((line.to_vec(), false));
                match self.ours.iter().position(|ours| ours.line == line) {
                    Some(_) if !wire.is_initialized => {
                        return Err(format!("3: an answer goes where the server does not listen: {}", shown(line)));
                    }
                    Some(at) => Some(self.ours.remove(at).row),
                    None if Message::read(line).is_some_and(|message| message.is_ours()) => None,
                    None => {
                        let due = or_nothing(due.map(|due| due.line.clone()));
                        let got = shown(line);
                        return Err(format!("1: the server got on {}\n    {got}\n  and was to get\n    {due}", conn.0));
                    }
                }
            }
        };
        self.tells_context(conn, line)?;
        row.map_or(Ok(()), |number| self.answer_arrives(number, ledger))
    }

    /// The server receives the answer of a row: for the first time, and stored.
    fn answer_arrives(&mut self, number: RowNumber, ledger: &Ledger) -> Result<(), String> {
        let asked = &mut self.rows[number];
        let name = asked.name.clone().unwrap_or_default();
        if std::mem::replace(&mut asked.has_reached_server, true) {
            return Err(format!("3: answered twice: {name}"));
        }
        let row = ledger.get(&name);
        let is_policys = asked.payload.as_deref() == Some(BY_POLICY)
            && row.is_some_and(|row| row.status == RequestStatus::Expired || row.source == Some(RequestSource::Server));
        if row.is_some_and(|row| row.payload == asked.payload) || is_policys {
            return Ok(());
        }
        if !asked.is_answer_excused {
            return Err(format!("3: the server gets {:?} for {name} before it is kept: {row:?}", asked.payload));
        }
        asked.was_late |= !matches!(asked.state, State::PolicySpoke);
        Ok(())
    }

    /// A turn carries each terminal command once, whoever begins it.
    fn tells_context(&mut self, conn: Conn, line: &[u8]) -> Result<(), String> {
        if without_envelope(line).is_none() {
            return Ok(());
        }
        self.happened.count(Event::Envelope);
        // Nobody hears whether the server takes the turn of a client that has left, so its commands are offered again.
        if self.wires[&conn.0].has_left {
            return Ok(());
        }
        let commands = commands_in(line);
        let in_flight = self.carried.values().flatten();
        if let Some(twice) = in_flight.chain(&self.delivered).find(|command| commands.contains(*command)) {
            return Err(format!("7: the model is told twice of command {twice}: {}", shown(line)));
        }
        let id = Message::read(line).and_then(|message| message.id).unwrap_or_default();
        self.carried.insert((conn.0, id.to_string()), commands);
        Ok(())
    }

    /// Checks that nothing is in flight on open connections.
    pub fn all_has_arrived(&self) -> Result<(), String> {
        for wire in self.wires.values().filter(|wire| !wire.has_left) {
            if let Some(due) = wire.to_client.front() {
                return Err(format!("1: a client never got {}", shown(&due.line)));
            }
            if let Some(due) = wire.to_server.front() {
                return Err(format!("1: the server never got {}", shown(&due.line)));
            }
        }
        if let Some(late) = self.late.first() {
            return Err(format!("1: clients never got {}", shown(&late.line)));
        }
        let ours = self.ours.first();
        ours.map_or(Ok(()), |ours| Err(format!("1: the server never got {}", shown(&ours.line))))
    }

    pub fn all_are_told(&self) -> Result<(), String> {
        let untold = self.replies.values().find(|reply| **reply != Reply::Any);
        untold.map_or(Ok(()), |reply| Err(format!("3: told wrongly: nothing, and it is {reply:?}")))
    }

    /// The rows of this hub.
    pub fn rows(&self) -> &[Asked] {
        &self.rows
    }

    /// The answers that did not win, with the names of their requests.
    pub fn lost(&self) -> Vec<(String, String)> {
        let name = |number: &RowNumber| self.rows[*number].name.clone().unwrap_or_default();
        self.lost.iter().map(|(number, payload)| (name(number), payload.clone())).collect()
    }

    /// What each side of each connection has received, but for what the record leaves out: the messages, and whether they were
    /// withheld at first.
    pub fn got(&self) -> impl Iterator<Item = (u32, Side, &[(Vec<u8>, bool)])> {
        let sides = [Side::Client, Side::Server];
        self.wires
            .iter()
            .flat_map(move |(conn, wire)| sides.map(|side| (*conn, side, wire.got[side as usize].as_slice())))
    }
}

/// The numbers of the terminal commands in a turn.
pub fn commands_in(line: &[u8]) -> BTreeSet<String> {
    let text = shown(line);
    let number =
        |(at, start): (usize, &str)| text[at + start.len()..].chars().take_while(char::is_ascii_digit).collect();
    text.match_indices("cargo test ").map(number).collect()
}
