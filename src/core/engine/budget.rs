//! Budgets: a turn that would begin beyond one waits for a person.
//!
//! What is spent belongs to all sessions of a home, so it is looked up outside of the engine, when a turn is to begin. Within the budget
//! the turn goes on. Beyond it, a question of our own is asked: it has a row like every request, no client gets it, and neither a policy nor a
//! rule answers it. Whoever answers it lets the turn go on, or refuses it, and then its client gets an error.
//!
//! While the budget is looked up, all later messages of the thread wait too, so that their order stays. While a person is asked, only
//! messages wait that begin a turn. A released line takes the normal path, as in [`super::turn_gate`]. If the budget cannot be looked up
//! or the question cannot be stored, the turn goes on, because a fault of ours must not stop the user.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api_calls::thread_in;
use super::assembly::thread_of;
use super::attached_client::OWN_NAME;
use super::lines::{form, own_free_line};
use super::model::{ApiCallId, LateLine, Token, Unready, Verdict, Warning};
use super::requests::OwnAnswer;
use super::turn_gate::{LINE_BYTES_MAX, Queued, flush_late};
use super::{ApiReply, Decision, Effect, Engine, LinkEffect, Now, Passage};
use crate::protocol::{Event, Method, named};
use crate::wire::{Body, Conn, Line, LineEnd, RpcId, Side};

/// How long a turn waits until the budget is looked up.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(3);

/// How often the budget is looked up while a turn runs, for `on_budget`.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Bytes of all held lines. A turn beyond that is refused.
const HELD_BYTES_MAX: usize = 16 << 20;

/// Threads whose turns are held. A turn beyond that is refused.
const THREADS_MAX: usize = 256;

/// Words of the prompt that a question quotes, in characters.
const PROMPT_CHARS_MAX: usize = 100;

/// The code of the error that a client gets for a turn that was stopped. Source: JSON-RPC leaves these to servers.
const STOPPED: i32 = -32_000;

named! {
    /// A limit of `[budget]`.
    pub enum BudgetLimit {
        /// Of all sessions on one day.
        Day = "tokens_per_day",
        /// Of one client on one day.
        Client = "per_client",
        /// Of the last turn of a thread.
        Turn = "per_turn",
    }
}

/// The limits of a user, in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetLimits {
    pub per_day: Option<u64>,
    pub per_client: Option<u64>,
    pub per_turn: Option<u64>,
}

impl BudgetLimits {
    /// Whether there is one.
    #[must_use]
    pub fn are_set(&self) -> bool {
        *self != BudgetLimits::default()
    }
}

named! {
    /// What a person decides about a turn beyond the budget.
    pub enum BudgetAnswer {
        Continue = "continue once",
        Stop = "stop",
    }
}

/// The turn for which the budget is looked up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BudgetQuery {
    pub thread_id: Option<String>,
    /// The name of the client that wants it, as in the usage.
    pub client: Option<String>,
}

impl BudgetQuery {
    /// Whether the turn may not begin because of this limit.
    #[must_use]
    pub fn has_reached(&self, spent: &Spent) -> bool {
        let is_its = match spent.limit {
            BudgetLimit::Client => self.client.is_some() && self.client == spent.client,
            BudgetLimit::Day | BudgetLimit::Turn => true,
        };
        is_its && spent.used >= spent.most
    }
}

/// A limit, and what is used of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    pub limit: BudgetLimit,
    /// The client, of a limit that is one client's.
    pub client: Option<String>,
    /// In tokens.
    pub used: u64,
    pub most: u64,
}

impl Spent {
    /// As `on_budget` and other documents have it.
    #[must_use]
    pub fn document(&self, day: &str) -> Value {
        let Spent { limit, client, used, most } = self;
        let percent = self.percent();
        json!({ "limit": limit, "client": client, "day": day, "used_tokens": used, "limit_tokens": most, "percent": percent })
    }

    /// How much of the limit is used.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let percent = (u128::from(self.used) * 100).checked_div(u128::from(self.most)).unwrap_or(100);
        u64::try_from(percent).unwrap_or(u64::MAX)
    }

    /// The limit that an answer suggests instead: half as much again, and more than is used.
    fn more(&self) -> u64 {
        self.most.saturating_add(self.most / 2).max(self.used.saturating_add(self.used / 4)).max(1)
    }

    /// In words.
    fn what(&self) -> String {
        let Spent { limit, client, used, most } = self;
        let (used, most) = (grouped(*used), grouped(*most));
        match (limit, client) {
            (BudgetLimit::Day, _) => format!("{used} of the {most} tokens for today are used"),
            (BudgetLimit::Client, client) => {
                let client = client.as_deref().unwrap_or("this client");
                format!("{client} has used {used} of its {most} tokens for today")
            }
            (BudgetLimit::Turn, _) => {
                format!("the last turn of this thread used {used} tokens, and the limit is {most}")
            }
        }
    }
}

/// The parameters of the question about a turn.
fn question(spent: &Spent, thread_id: &str, prompt: Option<&str>) -> Value {
    let of_turn = prompt.map(|prompt| format!(" The turn: {prompt}")).unwrap_or_default();
    let raised = spent.more();
    json!({
        "threadId": thread_id,
        "budget": { "limit": spent.limit, "client": spent.client, "used": spent.used, "most": spent.most },
        "questions": [{
            "id": QUESTION,
            "header": "Budget",
            "question": format!("Let the next turn begin? {}.{of_turn}", capitalized(&spent.what())),
            "isOther": true,
            "isSecret": false,
            "options": [
                { "label": BudgetAnswer::Continue, "description": "This turn begins. The next one is asked about again." },
                { "label": raised.to_string(), "description": "The limit in tokens from now on, until midnight. Another number is valid too." },
                { "label": BudgetAnswer::Stop, "description": "The client gets an error, and no turn begins." },
            ],
        }],
    })
}

/// The id of the only question.
pub(super) const QUESTION: &str = "budget";

/// What an answer decides: a word, or a new limit in tokens. `None` if it is none of these.
pub(super) fn decided(result: &Value) -> Option<(BudgetAnswer, Option<u64>)> {
    let [text] = result["answers"][QUESTION]["answers"].as_array()?.as_slice() else { return None };
    let text = text.as_str()?.trim();
    if let Some(word) = crate::protocol::of_name(text) {
        return Some((word, None));
    }
    let digits: String = text.chars().filter(|char| !matches!(char, ',' | '_' | ' ' | '\u{202f}')).collect();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let raised = digits.parse().ok().filter(|raised| is_number && *raised > 0)?;
    Some((BudgetAnswer::Continue, Some(raised)))
}

/// The limit that a stored answer has raised to; `None` if it has not.
#[must_use]
pub fn raised_to(answer: &Value) -> Option<u64> {
    decided(answer)?.1
}

/// A number with commas between groups of three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().collect::<String>() + chars.as_str()).unwrap_or_default()
}

/// The turns that wait for the budget.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Budget {
    #[serde(skip)]
    is_set: bool,
    held: Vec<HeldThread>,
    /// Threads in which a person lets one more turn begin.
    let_on: BTreeSet<String>,
    /// When it is looked up again while a turn runs.
    #[serde(skip)]
    next_look: Option<Duration>,
}

/// The messages of a thread that wait.
#[derive(Debug, Serialize, Deserialize)]
struct HeldThread {
    thread_id: String,
    state: State,
    /// The first one would begin a turn.
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
    Asks(RpcId),
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
    pub(super) fn of_setting(is_set: bool) -> Budget {
        Budget { is_set, ..Budget::default() }
    }

    pub(super) fn configure(&mut self, is_set: bool) {
        self.is_set = is_set;
    }

    /// Whether a message waits for what comes at once.
    pub(super) fn is_looking(&self) -> bool {
        self.held.iter().any(|held| !matches!(held.state, State::Asks(_)))
    }

    pub(super) fn due(&self) -> Option<Duration> {
        let looks = self.held.iter().filter_map(|held| match held.state {
            State::Looks { due, .. } => Some(due),
            State::Goes(_) | State::Asks(_) => None,
        });
        looks.chain(self.next_look).min()
    }

    fn of(&mut self, thread_id: &str) -> Option<&mut HeldThread> {
        self.held.iter_mut().find(|held| held.thread_id == thread_id)
    }

    /// Whether one more message can wait.
    fn has_room(&self, bytes: usize) -> bool {
        let held: usize = self.held.iter().flat_map(|held| &held.waiting).map(Waiting::bytes).sum();
        self.held.len() < THREADS_MAX && held.saturating_add(bytes) <= HELD_BYTES_MAX && bytes <= LINE_BYTES_MAX
    }
}

impl Engine {
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
        if !self.budget.is_set && self.budget.held.is_empty() {
            return false;
        }
        let Body::Message(message) = body else { return false };
        let event = &Event::of(message);
        let starts = event.id.is_some() && event.method.is_some_and(Method::starts_turn);
        let Some(thread_id) = message.method.as_ref().and_then(|_| thread_of(event)) else { return false };
        let waits = match self.budget.of(&thread_id) {
            Some(HeldThread { state: State::Looks { .. } | State::Goes(_), .. }) => true,
            Some(HeldThread { state: State::Asks(_), .. }) => starts,
            None => starts && self.budget.is_set && !self.budget.let_on.remove(&thread_id),
        };
        if !waits {
            return false;
        }
        if !self.budget.has_room(line.bytes.len()) {
            let why = "too many turns wait for an answer about the budget: `codex-shim requests` lists them";
            self.refuse(conn, line.bytes, line.end, why, effects);
            return true;
        }
        let waiting = Waiting::Line { conn, bytes: line.bytes.to_vec(), end: line.end, starts };
        let client = self.clients.of(conn).name.name.clone();
        self.wait(now, thread_id, waiting, client, effects);
        true
    }

    /// The same for a call at the control socket that begins a turn. Returns it if it need not wait.
    pub(super) fn hold_api_call_for_budget(
        &mut self,
        now: Now,
        thread_id: &str,
        queued: Queued,
        effects: &mut Vec<Effect>,
    ) -> Option<Queued> {
        let is_held = self.budget.of(thread_id).is_some();
        if !is_held && (!self.budget.is_set || self.budget.let_on.remove(thread_id)) {
            return Some(queued);
        }
        let api_call = queued.api_call();
        let asked = self.budget.of(thread_id).and_then(|held| match &held.state {
            State::Asks(id) => Some(id.clone()),
            State::Looks { .. } | State::Goes(_) => None,
        });
        let reply = match asked {
            Some(id) => self.requests.gated(&id),
            None if !self.budget.has_room(queued.bytes()) => Some(ApiReply::NotReady(Unready::NotReading)),
            None => None,
        };
        match (reply, api_call) {
            (Some(reply), Some(api_call)) => effects.push(Effect::Link(LinkEffect::Reply(api_call, reply))),
            // As in the usage.
            _ => self.wait(now, thread_id.to_owned(), Waiting::Api(queued), Some(OWN_NAME.to_owned()), effects),
        }
        None
    }

    /// The thread of a call of the control socket, if it would begin a turn.
    pub(super) fn turn_of_api_call(method: &str, params: Option<&str>) -> Option<String> {
        Method::of(method).filter(|method| method.starts_turn())?;
        params.and_then(thread_in)
    }

    /// Adds a message to those of its thread, and has the budget looked up if it is the first.
    fn wait(
        &mut self,
        now: Now,
        thread_id: String,
        waiting: Waiting,
        client: Option<String>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(held) = self.budget.of(&thread_id) {
            return held.waiting.push_back(waiting);
        }
        let token = self.assembly.holds.next_token();
        let state = State::Looks { token, due: now.elapsed + LOOK_WAIT_MAX };
        let query = BudgetQuery { thread_id: Some(thread_id.clone()), client };
        self.budget.held.push(HeldThread { thread_id, state, waiting: VecDeque::from([waiting]) });
        effects.push(Effect::LookAtBudget(Some(token), query));
    }

    /// The budget was looked up for a turn: a limit that is reached, if one is.
    pub(super) fn budget_looked_up(&mut self, now: Now, token: Token, spent: Option<Spent>, effects: &mut Vec<Effect>) {
        let is_its = |held: &HeldThread| matches!(held.state, State::Looks { token: of, .. } if of == token);
        let Some(at) = self.budget.held.iter().position(is_its) else { return };
        let asked = spent.map(|spent| {
            let held = &self.budget.held[at];
            let prompt = held.waiting.front().and_then(prompt_of);
            let params = question(&spent, &held.thread_id, prompt.as_deref());
            self.requests.ask_own(now, &held.thread_id, &params, effects)
        });
        let Some(asked) = asked else {
            self.budget.held[at].state = State::Goes(token);
            return effects.push(Effect::Link(LinkEffect::ReleaseHeld(token)));
        };
        let Some(id) = asked else {
            effects.push(Effect::Warn(Warning::BudgetNotAsked));
            self.budget.held[at].state = State::Goes(token);
            return effects.push(Effect::Link(LinkEffect::ReleaseHeld(token)));
        };
        let held = &mut self.budget.held[at];
        held.state = State::Asks(id.clone());
        let (callers, lines): (VecDeque<Waiting>, VecDeque<Waiting>) =
            std::mem::take(&mut held.waiting).into_iter().partition(|waiting| matches!(waiting, Waiting::Api(_)));
        let (starting, others) = lines.into_iter().partition(Waiting::starts);
        held.waiting = starting;
        let thread_id = held.thread_id.clone();
        for waiting in callers {
            if let Waiting::Api(queued) = waiting
                && let (Some(api_call), Some(gated)) = (queued.api_call(), self.requests.gated(&id))
            {
                effects.push(Effect::Link(LinkEffect::Reply(api_call, gated)));
            }
        }
        self.let_go(thread_id, others, effects);
    }

    /// Releases messages, which takes its turn as for other held lines.
    fn let_go(&mut self, thread_id: String, waiting: VecDeque<Waiting>, effects: &mut Vec<Effect>) {
        if !waiting.is_empty() {
            let token = self.assembly.holds.next_token();
            // The thread's own entry, if it has one, stays the first that is found.
            self.budget.held.push(HeldThread { thread_id, state: State::Goes(token), waiting });
            effects.push(Effect::Link(LinkEffect::ReleaseHeld(token)));
        }
    }

    /// Passes on the messages of a release with this token.
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

    /// Carries out the answers to questions of ours that are stored by now.
    pub(super) fn carry_out_own_answers(&mut self, effects: &mut Vec<Effect>) {
        for OwnAnswer { id, result, by } in self.requests.take_own_answers() {
            let is_its = |held: &HeldThread| matches!(&held.state, State::Asks(of) if *of == id);
            let Some(at) = self.budget.held.iter().position(is_its) else { continue };
            let HeldThread { thread_id, waiting, .. } = self.budget.held.remove(at);
            match decided(&result).map(|(word, _)| word) {
                Some(BudgetAnswer::Continue) if waiting.is_empty() => drop(self.budget.let_on.insert(thread_id)),
                Some(BudgetAnswer::Continue) => self.let_go(thread_id, waiting, effects),
                Some(BudgetAnswer::Stop) | None => {
                    let why = format!("the token budget is spent, and {by} has stopped this turn");
                    for waiting in waiting {
                        if let Waiting::Line { conn, bytes, end, .. } = waiting {
                            self.refuse(conn, &bytes, end, &why, effects);
                        }
                    }
                }
            }
        }
    }

    /// Answers a call of a client with an error. The call is on record and does not reach the server.
    fn refuse(&mut self, conn: Conn, bytes: &[u8], end: LineEnd, why: &str, effects: &mut Vec<Effect>) {
        let body = Body::parse(bytes);
        let record = Some(form(&Verdict::Open, &body, bytes));
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

    /// A client has left: its turns do not begin any more.
    pub(super) fn left_before_its_turn(&mut self, now: Now, conn: Conn, effects: &mut Vec<Effect>) {
        for held in &mut self.budget.held {
            let before = held.waiting.len();
            held.waiting.retain(|waiting| !waiting.is_of(conn));
            if let State::Asks(id) = &held.state
                && held.waiting.is_empty()
                && before > 0
            {
                self.requests.own_is_over(now, id, effects);
            }
        }
        let requests = &self.requests;
        self.budget.held.retain(|held| match &held.state {
            State::Asks(id) => requests.is_open(id),
            State::Looks { .. } | State::Goes(_) => !held.waiting.is_empty(),
        });
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
        if self.budget.is_set {
            self.budget.next_look = runs.then(|| now.elapsed + LOOK_EVERY);
            if !runs {
                effects.push(Effect::LookAtBudget(None, BudgetQuery::default()));
            }
        }
    }

    pub(super) fn budget_tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let is_over = |held: &HeldThread| match held.state {
            State::Looks { token, due } if due <= now.elapsed => Some(token),
            State::Looks { .. } | State::Goes(_) | State::Asks(_) => None,
        };
        for token in self.budget.held.iter().filter_map(is_over).collect::<Vec<_>>() {
            effects.push(Effect::Warn(Warning::BudgetNotLookedUp));
            self.budget_looked_up(now, token, None, effects);
        }
        if self.budget.next_look.is_some_and(|due| due <= now.elapsed) {
            self.budget.next_look = (self.budget.is_set && !self.threads.are_idle()).then(|| now.elapsed + LOOK_EVERY);
            effects.push(Effect::LookAtBudget(None, BudgetQuery::default()));
        }
    }
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
    let words = super::one_line(&words);
    let mut quoted: String = words.chars().take(PROMPT_CHARS_MAX).collect();
    if quoted.len() < words.len() {
        quoted.push('…');
    }
    (!quoted.is_empty()).then_some(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_other_clients_stop_no_turn() {
        let query = BudgetQuery { thread_id: None, client: Some("a".to_owned()) };
        let spent =
            |limit, client: Option<&str>, used| Spent { limit, client: client.map(str::to_owned), used, most: 10 };
        assert!(query.has_reached(&spent(BudgetLimit::Client, Some("a"), 10)));
        assert!(!query.has_reached(&spent(BudgetLimit::Client, Some("b"), 10)));
        assert!(!BudgetQuery::default().has_reached(&spent(BudgetLimit::Client, None, 10)));
        assert!(query.has_reached(&spent(BudgetLimit::Day, None, 10)));
        assert!(!query.has_reached(&spent(BudgetLimit::Day, None, 9)));
    }
}
