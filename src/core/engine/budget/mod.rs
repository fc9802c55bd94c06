//! Budgets: a turn that would begin beyond one waits for a person.
//!
//! What is spent belongs to all sessions of a home, so it is looked up outside of the engine, when a turn is to begin. Within the budget
//! the turn goes on. Beyond it, a question of our own is asked: it has a row like every request, no client gets it, and neither a policy nor a
//! rule answers it. Whoever answers it lets the turn go on, or refuses it, and then its client gets an error.
//!
//! While the budget is looked up, all later messages of the thread wait too, so that their order stays. While a person is asked, only
//! messages wait that begin a turn. A released line takes the normal path, as in [`super::turn_gate`].
//!
//! A turn begins only if the budget is known to allow it, because a command of the model can lock our files, which a reader can do, and
//! so delay our reads and writes. If the usage cannot be read, we ask a person; if the ledger does not store the question, we refuse the
//! turn. A session without a ledger cannot ask, so its turns begin.

mod checked;
mod question;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::attached_client::OWN_NAME;
use super::lines::{event_in, form, own_free_line};
use super::model::{ApiCallId, LateLine, Token, Unready, Verdict, Warning};
use super::requests::{ErrorText, NotAsked, OwnOutcome};
use super::turn_gate::{Queued, flush_late};
use super::{ApiReply, Decision, Effect, Engine, LinkEffect, Now, Passage};
use crate::protocol::{Event, Method, OTHER_THREAD_ID, starts_turn};
use crate::secrets::redacted;
use crate::wire::{Body, Conn, Line, LineEnd, Members, RpcId, Side};

pub(super) use question::decided;
pub use question::{BudgetAnswer, BudgetFound, BudgetLimit, BudgetLimits, BudgetQuery, Spent, grouped, raised_to};

use question::question;

/// How long a turn waits until the budget is looked up.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(15);

/// How often the budget is looked up while a turn runs, for `on_budget`.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Bytes of all held lines. A call beyond that is refused.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Threads whose turns are held. A turn beyond that is refused.
const THREADS_MAX: usize = 256;

/// How long a turn may begin that a person lets on before its caller has sent it again.
const LET_ON_MAX: Duration = Duration::from_secs(600);

/// Why a question ended without an answer.
const CLIENT_GONE: ErrorText = ("client_gone", "the client that wanted the turn has left");
const ALLOWED_AGAIN: ErrorText = ("budget_allows", "the budget allows the turn by now, so it has begun");
const WITHDRAWN_BY_CALLER: ErrorText = ("turn_interrupted", "the turn was interrupted before it began");

/// Words of the prompt that a question quotes, in characters.
const PROMPT_CHARS_MAX: usize = 100;

/// The code of the error that a client gets for a turn that was stopped. Source: JSON-RPC leaves these to servers.
const STOPPED: i32 = -32_000;

/// What the engine has to do about the user's budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetUse {
    /// A turn beyond it waits for a person.
    pub asks: bool,
    /// The user is told when most of it is used.
    pub tells: bool,
}

/// The turns that wait for the budget.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Budget {
    #[serde(skip)]
    wanted: BudgetUse,
    held: Vec<HeldThread>,
    /// Threads in which a person lets one more turn begin, and until when.
    let_on: BTreeMap<String, Duration>,
    /// When it is looked up again: while a turn runs or a person is asked.
    #[serde(skip)]
    next_look: Option<Duration>,
}

/// The messages of a thread that wait.
#[derive(Debug, Serialize, Deserialize)]
struct HeldThread {
    thread_id: String,
    state: State,
    /// The first one would begin a turn, unless it is about to be released.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug, Serialize, Deserialize)]
enum State {
    /// The budget is looked up, until a deadline.
    #[serde(skip)]
    Looks { token: Token, due: Duration },
    /// It is about to be released.
    #[serde(skip)]
    Goes(Token),
    /// A person is asked.
    Asks {
        id: RpcId,
        /// The budget is looked up once more.
        #[serde(skip)]
        again: Option<Token>,
        /// The client that wanted the turn has left while an answer is being stored: it counts for no other turn.
        #[serde(default)]
        is_void: bool,
    },
}

impl State {
    /// Whether it waits for a person, not for what comes at once.
    fn asks(&self) -> bool {
        matches!(self, State::Asks { .. })
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Waiting {
    Line {
        conn: Conn,
        bytes: Vec<u8>,
        end: LineEnd,
        starts: bool,
    },
    /// Nobody waits for long at the control socket, so these wait only while the budget is looked up.
    #[serde(skip)]
    Api(Queued),
}

impl Waiting {
    fn bytes(&self) -> usize {
        match self {
            Waiting::Line { bytes, .. } => bytes.len(),
            Waiting::Api(queued) => queued.bytes(),
        }
    }

    fn starts(&self) -> bool {
        match self {
            Waiting::Line { starts, .. } => *starts,
            Waiting::Api(_) => true,
        }
    }

    fn is_of(&self, of: Conn) -> bool {
        matches!(self, Waiting::Line { conn, .. } if *conn == of)
    }
}

impl Budget {
    pub(super) fn of(wanted: BudgetUse) -> Budget {
        Budget { wanted, ..Budget::default() }
    }

    /// Whether a message waits for what comes at once.
    pub(super) fn is_looking(&self) -> bool {
        self.held.iter().any(|held| !held.state.asks())
    }

    pub(super) fn due(&self) -> Option<Duration> {
        let looks = self.held.iter().filter_map(|held| match held.state {
            State::Looks { due, .. } => Some(due),
            State::Goes(_) | State::Asks { .. } => None,
        });
        looks.chain(self.next_look).min()
    }

    /// The entry of a thread in which a message would wait: of two, the one that is released at once.
    fn entry(&self, thread_id: &str) -> Option<usize> {
        let of_thread = |held: &&(usize, &HeldThread)| held.1.thread_id == thread_id;
        let entries: Vec<(usize, &HeldThread)> = self.held.iter().enumerate().filter(|held| of_thread(&held)).collect();
        let at_once = entries.iter().find(|(_, held)| !held.state.asks());
        at_once.or(entries.first()).map(|(at, _)| *at)
    }

    /// The question about a thread.
    fn question_about(&self, thread_id: &str) -> Option<&RpcId> {
        self.held.iter().find_map(|held| match &held.state {
            State::Asks { id, .. } if held.thread_id == thread_id => Some(id),
            State::Asks { .. } | State::Looks { .. } | State::Goes(_) => None,
        })
    }

    /// Whether one more message can wait. A single one always can, since a line has a limit of its own.
    fn has_room(&self, bytes: usize) -> bool {
        let held: usize = self.held.iter().flat_map(|held| &held.waiting).map(Waiting::bytes).sum();
        self.held.len() < THREADS_MAX && (held == 0 || held.saturating_add(bytes) <= HELD_BYTES_MAX)
    }

    /// Whether a person has let the next turn of a thread begin, which counts once.
    fn lets_on(&mut self, now: Now, thread_id: &str) -> bool {
        self.let_on.remove(thread_id).is_some_and(|until| until > now.elapsed)
    }
}

impl Engine {
    pub(super) fn configure_budget(&mut self, now: Now, wanted: BudgetUse, effects: &mut Vec<Effect>) {
        let is_new = std::mem::replace(&mut self.budget.wanted, wanted) != wanted;
        // The limits may have changed, too.
        if is_new || self.budget.held.iter().any(|held| held.state.asks()) {
            self.ask_again(now, effects);
        }
    }

    /// Holds a line of a client if it begins a turn and there is a budget, or if it has to wait behind such a line. Returns whether it
    /// is held, or refused.
    pub(super) fn hold_for_budget(
        &mut self,
        now: Now,
        conn: Conn,
        line: Line<'_>,
        body: &Body<'_>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if !self.budget.wanted.asks && self.budget.held.is_empty() {
            return false;
        }
        let Body::Message(message) = body else { return false };
        let Some(method) = message.method.as_deref() else { return false };
        let event = &Event::of(message);
        let thread_id = event.params.and_then(thread_in).unwrap_or_default();
        let starts = event.id.is_some() && self.would_start(method, &thread_id);
        let entry = self.budget.entry(&thread_id);
        let asks = entry.is_some_and(|at| self.budget.held[at].state.asks());
        let waits = match entry {
            Some(_) if !asks => true,
            Some(_) => starts,
            None => starts && self.budget.wanted.asks && !self.budget.lets_on(now, &thread_id),
        };
        if !waits {
            return false;
        }
        // A notification has no order to keep.
        if !self.budget.has_room(line.bytes.len()) && event.id.is_some() {
            let why = "too much waits for the token budget, so this is refused; send it again later. `codex-shim requests` lists the \
                       questions about turns";
            self.refuse(conn, line.bytes, line.end, why, effects);
            return true;
        }
        self.wait(now, thread_id, Waiting::Line { conn, bytes: line.bytes.to_vec(), end: line.end, starts }, effects);
        true
    }

    /// Whether a call begins a turn of a person. Words for a turn that runs join it, and nobody would know what to answer about a title.
    fn would_start(&self, method: &str, thread_id: &str) -> bool {
        let joins = method == Method::TurnStart.name() && self.threads.turn_in(thread_id).is_some();
        starts_turn(method) && !joins && !self.is_aside(Some(thread_id))
    }

    /// The same as [`Engine::hold_for_budget`] for a call at the control socket. Returns it if it need not wait.
    pub(super) fn hold_api_call_for_budget(
        &mut self,
        now: Now,
        thread_id: &str,
        queued: Queued,
        effects: &mut Vec<Effect>,
    ) -> Option<Queued> {
        let method = match &queued {
            Queued::Rpc { method, .. } => method,
            Queued::ApiInput { .. } | Queued::Interrupt { .. } | Queued::ClientLine(..) => Method::TurnStart.name(),
        };
        if !self.would_start(method, thread_id) {
            return Some(queued);
        }
        let entry = self.budget.entry(thread_id);
        if entry.is_none() && (!self.budget.wanted.asks || self.budget.lets_on(now, thread_id)) {
            return Some(queued);
        }
        let asks = entry.is_some_and(|at| self.budget.held[at].state.asks());
        let gated = self.budget.question_about(thread_id).filter(|_| asks).and_then(|id| self.requests.gated(id));
        let reply = match gated {
            Some(gated) => {
                self.ask_again(now, effects);
                Some(gated)
            }
            None if !self.budget.has_room(queued.bytes()) => Some(ApiReply::NotReady(Unready::NotReading)),
            None => None,
        };
        match (reply, queued.api_call()) {
            (Some(reply), Some(api_call)) => effects.push(Effect::Link(LinkEffect::Reply(api_call, reply))),
            _ => self.wait(now, thread_id.to_owned(), Waiting::Api(queued), effects),
        }
        None
    }

    /// The thread of a call of the control socket, if it would begin a turn.
    pub(super) fn turn_of_api_call(method: &str, params: Option<&str>) -> Option<String> {
        let params = starts_turn(method).then(|| params.and_then(|params| serde_json::from_str(params).ok()))?;
        Some(params.and_then(thread_in).unwrap_or_default())
    }

    /// Adds a message to those of its thread, and has the budget looked up if nobody does yet.
    fn wait(&mut self, now: Now, thread_id: String, waiting: Waiting, effects: &mut Vec<Effect>) {
        match self.budget.entry(&thread_id) {
            Some(at) => {
                self.budget.held[at].waiting.push_back(waiting);
                if self.budget.held[at].state.asks() {
                    self.look_again_for(at, effects);
                }
            }
            None => {
                let waiting = VecDeque::from([waiting]);
                self.budget.held.push(HeldThread { thread_id, state: State::Goes(0), waiting });
                self.look_for(now, self.budget.held.len() - 1, effects);
            }
        }
    }

    /// Has the budget looked up for the first message of an entry.
    fn look_for(&mut self, now: Now, at: usize, effects: &mut Vec<Effect>) {
        let token = self.assembly.holds.next_token();
        self.budget.held[at].state = State::Looks { token, due: now.elapsed + LOOK_WAIT_MAX };
        effects.push(Effect::LookAtBudget(Some(token), self.query_for(at)));
    }

    /// Has it looked up once more while a person is asked.
    fn look_again_for(&mut self, at: usize, effects: &mut Vec<Effect>) {
        let token = self.assembly.holds.next_token();
        if let State::Asks { again, .. } = &mut self.budget.held[at].state {
            *again = Some(token);
            effects.push(Effect::LookAtBudget(Some(token), self.query_for(at)));
        }
    }

    fn query_for(&self, at: usize) -> BudgetQuery {
        let HeldThread { thread_id, waiting, .. } = &self.budget.held[at];
        let client = match waiting.front() {
            Some(Waiting::Line { conn, .. }) => self.clients.of(*conn).name.name.clone(),
            // As in the usage.
            Some(Waiting::Api(_)) | None => Some(OWN_NAME.to_owned()),
        };
        BudgetQuery { thread_id: Some(thread_id.clone()), client }
    }

    /// The budget may allow by now what persons are asked about: it is another day, or a limit has changed.
    fn ask_again(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for at in 0..self.budget.held.len() {
            self.look_again_for(at, effects);
        }
        self.plan_next_look(now);
    }

    fn plan_next_look(&mut self, now: Now) {
        let asks = self.budget.held.iter().any(|held| held.state.asks());
        let runs = self.budget.wanted.tells && !self.threads.are_idle();
        self.budget.next_look = (asks || runs).then(|| now.elapsed + LOOK_EVERY);
    }

    /// The budget was looked up for a turn.
    pub(super) fn budget_looked_up(&mut self, now: Now, token: Token, found: BudgetFound, effects: &mut Vec<Effect>) {
        let of_token = |held: &HeldThread| match held.state {
            State::Looks { token: of, .. } => of == token,
            State::Asks { again, .. } => again == Some(token),
            State::Goes(_) => false,
        };
        let Some(at) = self.budget.held.iter().position(of_token) else { return };
        let found = if self.is_safe() { BudgetFound::Allows } else { found };
        match (&mut self.budget.held[at].state, found) {
            (State::Asks { .. }, BudgetFound::Allows) => self.is_allowed_again(now, at, effects),
            (State::Asks { again, .. }, BudgetFound::Reached(_) | BudgetFound::Unknown) => *again = None,
            (State::Looks { .. } | State::Goes(_), BudgetFound::Allows) => self.goes(at, effects),
            (State::Looks { .. } | State::Goes(_), BudgetFound::Reached(spent)) => {
                self.ask_about(now, at, Some(&spent), effects);
            }
            (State::Looks { .. } | State::Goes(_), BudgetFound::Unknown) => self.ask_about(now, at, None, effects),
        }
    }

    /// Releases the messages of an entry.
    fn goes(&mut self, at: usize, effects: &mut Vec<Effect>) {
        let token = self.assembly.holds.next_token();
        self.budget.held[at].state = State::Goes(token);
        effects.push(Effect::Link(LinkEffect::ReleaseHeld(token)));
    }

    /// Nobody has to be asked any more.
    fn is_allowed_again(&mut self, now: Now, at: usize, effects: &mut Vec<Effect>) {
        let State::Asks { id, again, .. } = &mut self.budget.held[at].state else { return };
        *again = None;
        let id = id.clone();
        // An answer that is being stored decides.
        if self.requests.own_is_over(now, &id, ALLOWED_AGAIN, effects) {
            self.goes(at, effects);
        }
    }

    fn ask_about(&mut self, now: Now, at: usize, spent: Option<&Spent>, effects: &mut Vec<Effect>) {
        let held = &self.budget.held[at];
        let prompt = held.waiting.front().and_then(prompt_of);
        let params = question(spent, &held.thread_id, prompt.as_deref());
        let id = match self.requests.ask_own(now, &held.thread_id, &params, effects) {
            Ok(id) => id,
            Err(NotAsked::NoLedger) => {
                effects.push(Effect::Warn(Warning::BudgetWithoutLedger));
                return self.goes(at, effects);
            }
            Err(NotAsked::NotRead) => {
                effects.push(Effect::Warn(Warning::BudgetNotAsked));
                return self.refuse_all(at, effects);
            }
        };
        let held = &mut self.budget.held[at];
        held.state = State::Asks { id: id.clone(), again: None, is_void: false };
        let (callers, lines): (VecDeque<Waiting>, VecDeque<Waiting>) =
            std::mem::take(&mut held.waiting).into_iter().partition(|waiting| matches!(waiting, Waiting::Api(_)));
        let (starting, others) = lines.into_iter().partition(Waiting::starts);
        held.waiting = starting;
        let thread_id = held.thread_id.clone();
        let callers = callers.iter().filter_map(|waiting| match waiting {
            Waiting::Api(queued) => queued.api_call(),
            Waiting::Line { .. } => None,
        });
        for (api_call, gated) in callers.filter_map(|api_call| Some((api_call, self.requests.gated(&id)?))) {
            effects.push(Effect::Link(LinkEffect::Reply(api_call, gated)));
        }
        self.let_go(thread_id, others, effects);
        self.plan_next_look(now);
    }

    /// Releases messages that do not begin a turn.
    fn let_go(&mut self, thread_id: String, waiting: VecDeque<Waiting>, effects: &mut Vec<Effect>) {
        if !waiting.is_empty() {
            self.budget.held.push(HeldThread { thread_id, state: State::Goes(0), waiting });
            self.goes(self.budget.held.len() - 1, effects);
        }
    }

    /// Passes on the messages of a release with this token. Only the first one may begin a turn without another look.
    pub(super) fn release_for_budget(&mut self, now: Now, token: Token, effects: &mut Vec<Effect>) {
        let is_its = |held: &HeldThread| matches!(held.state, State::Goes(of) if of == token);
        let Some(at) = self.budget.held.iter().position(is_its) else { return };
        let HeldThread { thread_id, waiting, .. } = self.budget.held.remove(at);
        let (mut late, mut is_first) = (Vec::new(), true);
        for waiting in waiting {
            let goes = std::mem::take(&mut is_first) && waiting.starts();
            match waiting {
                Waiting::Line { conn, bytes, end, .. } => {
                    let (line, body) = (Line { bytes: &bytes, end }, Body::parse(&bytes));
                    if (!goes && self.hold_for_budget(now, conn, line, &body, effects))
                        || self.hold_if_needed(now, conn, line, &body, effects)
                    {
                        continue;
                    }
                    let decision = self.decide(now, (conn, Side::Client), &bytes, &body, None, effects);
                    late.push(LateLine { conn, bytes, end, decision });
                }
                Waiting::Api(queued) => {
                    flush_late(&mut late, effects);
                    let queued = match goes {
                        true => Some(queued),
                        false => self.hold_api_call_for_budget(now, &thread_id, queued, effects),
                    };
                    if let Some(queued) = queued {
                        self.api_turn(now, &thread_id, queued, effects);
                    }
                }
            }
        }
        flush_late(&mut late, effects);
    }

    /// Begins the turn of an API caller, behind the lines of its thread that wait for their context.
    pub(super) fn api_turn(&mut self, now: Now, thread_id: &str, queued: Queued, effects: &mut Vec<Effect>) {
        if let Some(api_call) = queued.api_call().filter(|_| self.is_safe()) {
            return self.refuse_caller(api_call, effects);
        }
        // The connection may have been lost meanwhile.
        if let Some(api_call) = queued.api_call().filter(|_| !self.is_initialized(Conn::OWN)) {
            let reply = ApiReply::NotReady(self.unready(true));
            return effects.push(Effect::Link(LinkEffect::Reply(api_call, reply)));
        }
        match self.hold_api_request(now, thread_id, queued, effects) {
            Some(Queued::ApiInput { api_call, text }) => {
                self.send_input(now, api_call, &text, thread_id.to_owned(), None, effects);
            }
            Some(Queued::Rpc { api_call, method, params, by }) => {
                self.call_server(api_call, (&method, params.as_deref()), &by, effects);
            }
            Some(Queued::Interrupt { .. } | Queued::ClientLine(..)) | None => {}
        }
    }

    /// Carries out the answers to questions of ours that are stored by now. An answer is about the first turn that waits.
    pub(super) fn carry_out_own_outcomes(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for (id, outcome) in self.requests.take_own_outcomes() {
            let is_its = |held: &HeldThread| matches!(&held.state, State::Asks { id: of, .. } if *of == id);
            let Some(at) = self.budget.held.iter().position(is_its) else { continue };
            let OwnOutcome::Answered { result, by } = outcome else {
                self.refuse_all(at, effects);
                continue;
            };
            let (decision, is_empty) = (decided(&result), self.budget.held[at].waiting.is_empty());
            let is_void = matches!(self.budget.held[at].state, State::Asks { is_void: true, .. });
            match (decision, is_empty) {
                (Some((BudgetAnswer::Continue, None) | (BudgetAnswer::Stop, _)) | None, _) if is_void => {
                    self.looks_anew(now, at, is_empty, effects);
                }
                (Some((BudgetAnswer::Continue, None)), false) => self.goes(at, effects),
                (Some((BudgetAnswer::Continue, None)), true) => {
                    let HeldThread { thread_id, .. } = self.budget.held.remove(at);
                    self.budget.let_on.insert(thread_id, now.elapsed + LET_ON_MAX);
                }
                (Some((BudgetAnswer::Continue, Some(_))), is_empty) => {
                    self.looks_anew(now, at, is_empty, effects);
                    self.ask_again(now, effects);
                }
                (Some((BudgetAnswer::Stop, _)) | None, _) => {
                    let why = format!("the token budget is spent, and {by} has stopped this turn");
                    if let Some(Waiting::Line { conn, bytes, end, .. }) = self.budget.held[at].waiting.pop_front() {
                        self.refuse(conn, &bytes, end, &why, effects);
                    }
                    let is_empty = self.budget.held[at].waiting.is_empty();
                    self.looks_anew(now, at, is_empty, effects);
                }
            }
            self.plan_next_look(now);
        }
    }

    /// Refuses the turns of an entry, because we can ask nobody.
    fn refuse_all(&mut self, at: usize, effects: &mut Vec<Effect>) {
        let HeldThread { thread_id, waiting, .. } = self.budget.held.remove(at);
        let why = "the token budget does not allow this turn, and the question about it cannot be stored: `codex-shim status` says why; \
                   send it again later";
        let mut others = VecDeque::new();
        for waiting in waiting {
            match waiting {
                Waiting::Line { conn, bytes, end, starts: true } => self.refuse(conn, &bytes, end, why, effects),
                Waiting::Line { .. } => others.push_back(waiting),
                Waiting::Api(queued) => effects.extend(queued.api_call().map(|api_call| {
                    Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotReady(Unready::NotReading)))
                })),
            }
        }
        self.let_go(thread_id, others, effects);
    }

    /// The messages of an entry whose question is over wait for another look.
    fn looks_anew(&mut self, now: Now, at: usize, is_empty: bool, effects: &mut Vec<Effect>) {
        match is_empty {
            true => drop(self.budget.held.remove(at)),
            false => self.look_for(now, at, effects),
        }
    }

    /// Answers a call of a client with an error. The call is on record and does not reach the server.
    fn refuse(&mut self, conn: Conn, bytes: &[u8], end: LineEnd, why: &str, effects: &mut Vec<Effect>) {
        let body = Body::parse(bytes);
        let verdict = event_in(&body).map_or(Verdict::Open, |event| self.secrets.request(&event, bytes).0);
        let record = Some(form(&verdict, &body, bytes));
        let decision = Decision { record, line: Passage::Withhold, ..Decision::default() };
        let late = LateLine { conn, bytes: bytes.to_vec(), end, decision };
        effects.push(Effect::Link(LinkEffect::PassHeld(vec![late])));
        if let Body::Message(message) = &body
            && let Some(id) = message.id
        {
            let error = json!({ "code": STOPPED, "message": format!("codex-shim: {why}") });
            let answer = format!("{{\"id\":{},\"error\":{error}}}", id.get()).into_bytes();
            effects.push(Effect::Link(LinkEffect::Answer(conn, own_free_line(Side::Client, answer))));
        }
    }

    /// A client has left: its turns do not begin any more, and its other messages go on.
    pub(super) fn left_before_its_turn(&mut self, now: Now, conn: Conn, effects: &mut Vec<Effect>) {
        let mut late = Vec::new();
        for at in (0..self.budget.held.len()).rev() {
            let held = &mut self.budget.held[at];
            let loses_first = held.waiting.front().is_some_and(|first| first.is_of(conn));
            let (gone, kept): (VecDeque<Waiting>, VecDeque<Waiting>) =
                std::mem::take(&mut held.waiting).into_iter().partition(|waiting| waiting.is_of(conn));
            held.waiting = kept;
            if gone.is_empty() {
                continue;
            }
            for waiting in gone.into_iter().filter(|waiting| !waiting.starts()) {
                if let Waiting::Line { conn, bytes, end, .. } = waiting {
                    let body = Body::parse(&bytes);
                    let decision = self.decide(now, (conn, Side::Client), &bytes, &body, None, effects);
                    late.push(LateLine { conn, bytes, end, decision });
                }
            }
            let is_empty = self.budget.held[at].waiting.is_empty();
            let is_over = match &self.budget.held[at].state {
                State::Asks { id, .. } if loses_first => {
                    let id = id.clone();
                    let is_over = self.requests.own_is_over(now, &id, CLIENT_GONE, effects);
                    if let State::Asks { is_void, .. } = &mut self.budget.held[at].state {
                        *is_void |= !is_over;
                    }
                    is_over
                }
                State::Asks { .. } => false,
                State::Looks { .. } => loses_first,
                State::Goes(_) => is_empty,
            };
            if is_over {
                self.looks_anew(now, at, is_empty, effects);
            }
        }
        flush_late(&mut late, effects);
    }

    /// An API caller interrupts a thread in which no turn runs: the turn that waits is refused. Returns whether one did.
    pub(super) fn withdraw_turn(&mut self, now: Now, thread_id: &str, effects: &mut Vec<Effect>) -> bool {
        let is_its = |held: &HeldThread| held.thread_id == thread_id && held.state.asks() && !held.waiting.is_empty();
        let Some(at) = self.budget.held.iter().position(is_its) else { return false };
        let State::Asks { id, .. } = &self.budget.held[at].state else { return false };
        let id = id.clone();
        if !self.requests.own_is_over(now, &id, WITHDRAWN_BY_CALLER, effects) {
            return false;
        }
        if let Some(Waiting::Line { conn, bytes, end, .. }) = self.budget.held[at].waiting.pop_front() {
            self.refuse(conn, &bytes, end, "this turn was interrupted before it began", effects);
        }
        let is_empty = self.budget.held[at].waiting.is_empty();
        self.looks_anew(now, at, is_empty, effects);
        true
    }

    /// The server has ended, and all open requests with it.
    pub(super) fn server_ended_before_turns(&mut self, effects: &mut Vec<Effect>) {
        let callers = self.budget.held.drain(..).flat_map(|held| held.waiting).filter_map(|waiting| match waiting {
            Waiting::Api(queued) => queued.api_call(),
            Waiting::Line { .. } => None,
        });
        let ended = |api_call: ApiCallId| Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotReady(Unready::Ended)));
        effects.extend(callers.map(ended));
        self.budget.let_on.clear();
    }

    /// A turn has begun or ended: `on_budget` may be due, now or while it runs.
    pub(super) fn look_at_budget(&mut self, now: Now, runs: bool, effects: &mut Vec<Effect>) {
        if self.budget.wanted.tells && !runs {
            effects.push(Effect::LookAtBudget(None, BudgetQuery::default()));
        }
        if self.budget.wanted.tells && self.budget.next_look.is_none() {
            self.plan_next_look(now);
        }
    }

    pub(super) fn budget_tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let is_over = |held: &HeldThread| match held.state {
            State::Looks { token, due } if due <= now.elapsed => Some(token),
            State::Looks { .. } | State::Goes(_) | State::Asks { .. } => None,
        };
        for token in self.budget.held.iter().filter_map(is_over).collect::<Vec<_>>() {
            effects.push(Effect::Warn(Warning::BudgetNotLookedUp));
            self.budget_looked_up(now, token, BudgetFound::Unknown, effects);
        }
        if self.budget.next_look.is_some_and(|due| due <= now.elapsed) {
            if self.budget.wanted.tells {
                effects.push(Effect::LookAtBudget(None, BudgetQuery::default()));
            }
            self.ask_again(now, effects);
        }
    }
}

/// The thread of a call, by the name that every spelling of its id has.
fn thread_in(params: &RawValue) -> Option<String> {
    let params = Members::of(params)?;
    let id = params.text("threadId").or_else(|| params.text(OTHER_THREAD_ID))?;
    Some(Uuid::try_parse(&id).map_or(id, |id| id.hyphenated().to_string()))
}

/// The first words that a turn would say.
fn prompt_of(waiting: &Waiting) -> Option<String> {
    let words = match waiting {
        Waiting::Api(Queued::ApiInput { text, .. }) => text.clone(),
        Waiting::Api(_) => return None,
        Waiting::Line { bytes, .. } => {
            let message: Value = serde_json::from_slice(bytes).ok()?;
            let input = message["params"]["input"].as_array()?;
            input.iter().filter_map(|item| item["text"].as_str()).collect::<Vec<_>>().join(" ")
        }
    };
    // A person sees it on other screens than that of the client.
    let words = redacted(&words).unwrap_or(words);
    let words = super::one_line(&words);
    let mut quoted: String = words.chars().take(PROMPT_CHARS_MAX).collect();
    if quoted.len() < words.len() {
        quoted.push('…');
    }
    (!quoted.is_empty()).then_some(quoted)
}
