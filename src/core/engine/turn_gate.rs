//! Holds back turns until their context is ready.
//!
//! A turn and all later messages of its thread wait until the context engine and the fragments have answered, or the
//! deadline passes. Each line's deadline counts from when it was read, even if it waited behind another line. A
//! released line takes the normal path: it is judged, recorded and forwarded only then.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::assembly::{Assembled, Consultation, thread_of};
use super::context::{TURN_CHARS_MAX, TurnStart};
use super::model::{ApiCallId, LateLine, Token, Unready};
use super::{ApiReply, Effect, Engine, LinkEffect, Note, Now};
use crate::invariants::holds;
use crate::protocol::{Event, Method, cwd_in};
use crate::wire::{Body, Conn, Line, LineEnd, Members, RpcId, Side};

impl Engine {
    /// Holds a client line if it must wait; returns whether it was held.
    pub(super) fn hold_if_needed(
        &mut self,
        now: Now,
        conn: Conn,
        line: Line<'_>,
        body: &Body<'_>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Body::Message(message) = body else { return false };
        if message.method.is_none() || (!self.assembly.is_set() && self.assembly.holds.is_empty()) {
            return false;
        }
        let event = &Event::of(message);
        if self.assembly.holds.is_empty()
            && !matches!(event.method, Some(Method::TurnStart | Method::ThreadCompactStart))
        {
            return false;
        }
        let Some(thread_id) = thread_of(event) else { return false };
        if self.threads.find(&thread_id).is_some_and(|thread| !thread.description().kind.is_user()) {
            return false;
        }
        let needed = match self.assembly.holds.holds(&thread_id) {
            true => None,
            false => match self.awaited(now.elapsed, &thread_id, line.bytes, event, effects) {
                Some(needed) => Some(needed),
                None => return false,
            },
        };
        self.queue(now, &thread_id, Queued::ClientLine(conn, line.bytes.to_vec(), line.end), needed, effects);
        true
    }

    /// Queues a message for the answers that it needs, or else behind the held lines of its thread.
    fn queue(
        &mut self,
        now: Now,
        thread_id: &str,
        queued: Queued,
        needed: Option<(Awaited, HoldQuery)>,
        effects: &mut Vec<Effect>,
    ) {
        let held = Held { queued, read_at: now.elapsed };
        match needed {
            Some((awaited, wanted)) => self.hold(now, thread_id, awaited, wanted, VecDeque::from([held]), effects),
            None => {
                self.assembly.holds.push(thread_id, held);
                self.release_ready(now, effects);
            }
        }
    }

    /// The answers that the first line of a hold waits for, and the query for the context engine.
    fn awaited(
        &self,
        read_at: Duration,
        thread_id: &str,
        line: &[u8],
        event: &Event<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<(Awaited, HoldQuery)> {
        match (event.method?, event.id.map(RpcId::from_raw)?) {
            (_, RpcId::Other(_)) => None,
            (Method::ThreadCompactStart, _) => {
                Some((self.assembly.awaited_by_compaction(read_at)?, HoldQuery::Compaction))
            }
            (Method::TurnStart, _) => {
                let turn = TurnStart::read(line, event)?;
                let awaited = self.assembly.awaited(read_at)?;
                if line.len() > LINE_BYTES_MAX {
                    // The turn uses the last known fragment states.
                    let is_asked = awaited.engine_due.is_some();
                    effects.extend(is_asked.then(|| not_asked("assemble", thread_id, Duration::ZERO, "line_too_long")));
                    return None;
                }
                let params = Members::of(event.params?)?;
                let prompt = turn.said_text().to_owned();
                Some((awaited, HoldQuery::Context { prompt, model: params.text("model"), cwd: cwd_in(&params) }))
            }
            _ => None,
        }
    }

    /// Starts a hold and requests the answers that its first line waits for.
    fn hold(
        &mut self,
        now: Now,
        thread_id: &str,
        awaited: Awaited,
        wanted: HoldQuery,
        queue: VecDeque<Held>,
        effects: &mut Vec<Effect>,
    ) {
        let token = self.assembly.holds.begin(thread_id, awaited, queue);
        if self.assembly.holds.is_given_up(token) {
            if awaited.engine_due.is_some() {
                effects.push(not_asked(wanted.method(), thread_id, Duration::ZERO, "given_up"));
            }
            return self.release_ready(now, effects);
        }
        if awaited.engine_due.is_some() {
            self.open_thread(thread_id, effects);
        }
        let thread_id = thread_id.to_owned();
        match wanted {
            HoldQuery::Compaction => {
                effects.extend(
                    awaited
                        .engine_due
                        .map(|due| Effect::Consult(Box::new(Consultation::Compact { token, due, thread_id }))),
                );
            }
            HoldQuery::Context { prompt, model, cwd } => {
                let thread = self.threads.of(&thread_id);
                let cwd = cwd.or_else(|| thread.description().cwd.clone());
                let model = model.or_else(|| thread.description().model.clone());
                let tools = thread.tools.clone();
                let taken = prompt.chars().count() + self.context.envelope_bytes_max();
                let room_chars = TURN_CHARS_MAX.saturating_sub(taken);
                if let Some(due) = awaited.engine_due {
                    let assemble = Consultation::Assemble { token, due, thread_id, prompt, room_chars, model, tools };
                    effects.push(Effect::Consult(Box::new(assemble)));
                }
                if awaited.fragments_due.is_some() {
                    self.assembly.holds.reads_in(token, cwd.clone());
                    effects.push(Effect::RunFragments(token, cwd));
                }
            }
        }
    }

    /// Queues input of an API caller as a client line would be, and its other calls behind lines already held. Returns
    /// the message if it need not wait.
    pub(super) fn hold_api_request(
        &mut self,
        now: Now,
        thread_id: &str,
        queued: Queued,
        effects: &mut Vec<Effect>,
    ) -> Option<Queued> {
        let needed = match (self.assembly.holds.holds(thread_id), self.assembly.awaited(now.elapsed), &queued) {
            (true, _, _) => None,
            (false, Some(awaited), Queued::ApiInput { text, .. }) => Some((awaited, HoldQuery::by_api_caller(text))),
            (false, _, _) => return Some(queued),
        };
        self.queue(now, thread_id, queued, needed, effects);
        None
    }

    /// Emits the release of each hold that is ready.
    pub(super) fn release_ready(&mut self, now: Now, effects: &mut Vec<Effect>) {
        effects.extend(
            self.assembly
                .holds
                .ready(now.elapsed)
                .into_iter()
                .map(|token| Effect::Link(LinkEffect::ReleaseHeld(token))),
        );
    }

    /// Gives up all holds: their writer is gone.
    pub(super) fn release_all_held(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.assembly.holds.give_up_all();
        self.release_ready(now, effects);
    }

    /// Processes all held lines now, without their context.
    pub(super) fn process_all_held(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.assembly.holds.give_up_all();
        for token in self.assembly.holds.tokens() {
            self.release_held(now, token, effects);
        }
    }

    /// Releases the lines of a hold, up to the next one that must wait.
    pub(super) fn release_held(&mut self, now: Now, token: super::Token, effects: &mut Vec<Effect>) {
        let Some(hold) = self.assembly.holds.take(token) else { return self.release_for_budget(now, token, effects) };
        let Hold { thread_id, mut queue, prepared, is_given_up, .. } = hold;
        let mut prepared = Some(prepared);
        let mut late = Vec::new();
        while let Some(held) = queue.pop_front() {
            let at_hand = match prepared.take() {
                Some(prepared) => prepared,
                None if is_given_up => {
                    if let Some((awaited, wanted)) = self.still_awaited(now, &thread_id, &held, effects)
                        && awaited.engine_due.is_some()
                    {
                        let waited = now.elapsed.saturating_sub(held.read_at);
                        effects.push(not_asked(wanted.method(), &thread_id, waited, "given_up"));
                    }
                    Prepared::default()
                }
                None => match self.still_awaited(now, &thread_id, &held, effects) {
                    None => Prepared::default(),
                    Some((awaited, wanted)) => {
                        flush_late(&mut late, effects);
                        queue.push_front(held);
                        return self.hold(now, &thread_id, awaited, wanted, queue, effects);
                    }
                },
            };
            if let Some(api_call) = held.queued.api_call().filter(|_| self.is_safe()) {
                self.refuse_caller(api_call, effects);
                continue;
            }
            match held.queued {
                Queued::ClientLine(conn, bytes, end) => {
                    let body = Body::parse(&bytes);
                    let decision = self.decide(now, (conn, Side::Client), &bytes, &body, Some(at_hand), effects);
                    late.push(LateLine { conn, bytes, end, decision });
                }
                Queued::ApiInput { api_call, text } => {
                    flush_late(&mut late, effects);
                    self.send_input(now, api_call, &text, thread_id.clone(), Some(at_hand), effects);
                }
                Queued::Interrupt { api_call } => {
                    flush_late(&mut late, effects);
                    self.interrupt_behind(now, api_call, thread_id.clone(), effects);
                }
                Queued::Rpc { api_call, method, params, by } => {
                    flush_late(&mut late, effects);
                    self.call_server(api_call, (&method, params.as_deref()), &by, effects);
                }
            }
        }
        flush_late(&mut late, effects);
    }

    /// The answers that a queued message still needs after waiting behind others. Answers past their deadline are not
    /// requested.
    fn still_awaited(
        &self,
        now: Now,
        thread_id: &str,
        held: &Held,
        effects: &mut Vec<Effect>,
    ) -> Option<(Awaited, HoldQuery)> {
        let (awaited, wanted) = match &held.queued {
            Queued::ClientLine(_, bytes, _) => match Body::parse(bytes) {
                Body::Message(message) => {
                    self.awaited(held.read_at, thread_id, bytes, &Event::of(&message), effects)?
                }
                Body::OtherJson | Body::Text | Body::Bytes => return None,
            },
            Queued::ApiInput { text, .. } => (self.assembly.awaited(held.read_at)?, HoldQuery::by_api_caller(text)),
            Queued::Interrupt { .. } | Queued::Rpc { .. } => return None,
        };
        let in_time = awaited.not_overdue(now.elapsed);
        if awaited.engine_due.is_some() && in_time.engine_due.is_none() {
            effects.push(not_asked(wanted.method(), thread_id, now.elapsed.saturating_sub(held.read_at), "timeout"));
        }
        (!in_time.is_nothing()).then_some((in_time, wanted))
    }

    /// The server has ended: API callers in the queues get an error.
    pub(super) fn assembly_ended(&mut self, effects: &mut Vec<Effect>) {
        for hold in self.assembly.holds.take_all() {
            let callers = hold.queue.iter().filter_map(|held| held.queued.api_call());
            effects.extend(
                callers.map(|api_call| Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotReady(Unready::Ended)))),
            );
        }
    }
}

/// The query for the first line of a hold.
enum HoldQuery {
    Context { prompt: String, model: Option<String>, cwd: Option<String> },
    Compaction,
}

impl HoldQuery {
    /// The query for input of an API caller.
    fn by_api_caller(text: &str) -> HoldQuery {
        HoldQuery::Context { prompt: text.to_owned(), model: None, cwd: None }
    }

    /// The context engine call for this query.
    fn method(&self) -> &'static str {
        match self {
            HoldQuery::Context { .. } => "assemble",
            HoldQuery::Compaction => "compact",
        }
    }
}

/// Notes a context engine call that was not made because its line had waited for `waited`.
fn not_asked(method: &'static str, thread_id: &str, waited: Duration, outcome: &'static str) -> Effect {
    Effect::Note(Note::ContextEngineCall {
        method,
        thread_id: Some(thread_id.to_owned()),
        ms: waited.as_millis() as u64,
        request_bytes: 0,
        response_bytes: 0,
        outcome,
    })
}

pub(super) fn flush_late(late: &mut Vec<LateLine>, effects: &mut Vec<Effect>) {
    if !late.is_empty() {
        effects.push(Effect::Link(LinkEffect::PassHeld(std::mem::take(late))));
    }
}

/// Longest line that can be held, in bytes; a longer line passes at once.
pub(super) const LINE_BYTES_MAX: usize = 4 << 20;

/// Bytes of all held lines. Beyond this, the thread that added the last line is released at once.
const HELD_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
pub(super) enum Queued {
    ClientLine(Conn, Vec<u8>, LineEnd),
    /// Input from an API caller to the model.
    ApiInput {
        api_call: ApiCallId,
        text: String,
    },
    /// An API caller's request to interrupt a turn.
    Interrupt {
        api_call: ApiCallId,
    },
    /// A call of an API caller; `params` is JSON.
    Rpc {
        api_call: ApiCallId,
        method: String,
        params: Option<String>,
        by: String,
    },
}

/// A queued message and the time it was read.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) queued: Queued,
    pub(super) read_at: Duration,
}

impl Queued {
    /// The caller of the control socket that waits for it.
    pub(super) fn api_call(&self) -> Option<ApiCallId> {
        match self {
            Queued::ApiInput { api_call, .. } | Queued::Interrupt { api_call } | Queued::Rpc { api_call, .. } => {
                Some(*api_call)
            }
            Queued::ClientLine(..) => None,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Queued::ClientLine(_, line, _) => line.len(),
            Queued::ApiInput { text, .. } => text.len(),
            Queued::Interrupt { .. } => 0,
            Queued::Rpc { method, params, .. } => method.len() + params.as_ref().map_or(0, String::len),
        }
    }
}

impl Held {
    /// Whether it is a turn of a client that would not have been held.
    fn is_too_long(&self) -> bool {
        matches!(&self.queued, Queued::ClientLine(_, line, _) if line.len() > LINE_BYTES_MAX)
    }

    fn bytes(&self) -> usize {
        self.queued.bytes()
    }
}

/// The context known when a turn is released.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// The context engine's answer.
    pub(super) assembled: Option<Assembled>,
    /// Current fragment states, in the order of the settings; an entry is `None` if it could not be read.
    pub(super) states: Option<Vec<Option<String>>>,
    /// The folder in which fragments were read, if known to differ from the relay's.
    pub(super) cwd: Option<String>,
}

/// The held lines of one thread.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) token: Token,
    pub(super) thread_id: String,
    pub(super) queue: VecDeque<Held>,
    pub(super) prepared: Prepared,
    /// Answers still missing.
    awaited: Awaited,
    /// Release without waiting for missing answers.
    pub(super) is_given_up: bool,
    /// The release effect was emitted.
    is_released: bool,
}

/// Deadlines of the answers that the first line of a hold waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Awaited {
    /// For the context engine; `None` if its answer is not expected or has arrived.
    pub(super) engine_due: Option<Duration>,
    /// For the fragments, likewise.
    pub(super) fragments_due: Option<Duration>,
}

impl Awaited {
    /// The answers whose deadline has not passed.
    pub(super) fn not_overdue(self, elapsed: Duration) -> Awaited {
        Awaited {
            engine_due: self.engine_due.filter(|due| *due > elapsed),
            fragments_due: self.fragments_due.filter(|due| *due > elapsed),
        }
    }

    pub(super) fn is_nothing(self) -> bool {
        self.engine_due.is_none() && self.fragments_due.is_none()
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Holds {
    #[serde(skip)]
    holds: Vec<Hold>,
    #[serde(skip)]
    bytes: usize,
    last_token: Token,
}

impl Holds {
    /// Tokens continue after `tokens_before`, the last one of the previous engine.
    pub(super) fn new(tokens_before: Token) -> Holds {
        Holds { last_token: tokens_before, ..Holds::default() }
    }

    pub(super) fn check(&self) {
        let bytes: usize = self.holds.iter().flat_map(|hold| &hold.queue).map(Held::bytes).sum();
        holds!("held.bytes-are-those-of-its-lines", bytes == self.bytes);
        holds!("held.tokens-were-issued", self.holds.iter().all(|hold| (1..=self.last_token).contains(&hold.token)));
        let tokens: BTreeSet<Token> = self.holds.iter().map(|hold| hold.token).collect();
        holds!("held.tokens-differ", tokens.len() == self.holds.len());
        let threads: BTreeSet<&String> = self.holds.iter().map(|hold| &hold.thread_id).collect();
        holds!("held.thread-has-one-queue", threads.len() == self.holds.len());
        for hold in &self.holds {
            holds!("held.queue-has-something", !hold.queue.is_empty());
            holds!("held.lines-are-short-enough", !hold.queue.front().is_some_and(Held::is_too_long));
        }
    }

    /// The connections of all held lines.
    pub(super) fn conns(&self) -> impl Iterator<Item = Conn> {
        self.holds.iter().flat_map(|hold| &hold.queue).filter_map(|held| match held.queued {
            Queued::ClientLine(conn, ..) => Some(conn),
            Queued::ApiInput { .. } | Queued::Interrupt { .. } | Queued::Rpc { .. } => None,
        })
    }

    /// Whether no hold waits for an answer.
    pub(super) fn are_given_up(&self) -> bool {
        self.holds.iter().all(|hold| hold.is_given_up)
    }

    pub(super) fn last_token(&self) -> Token {
        self.last_token
    }

    /// A token for something that waits beside the holds.
    pub(super) fn next_token(&mut self) -> Token {
        self.last_token += 1;
        self.last_token
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Starts a hold with `queue`. If that exceeds the byte limit, the hold is ready at once.
    pub(super) fn begin(&mut self, thread_id: &str, awaited: Awaited, queue: VecDeque<Held>) -> Token {
        self.last_token += 1;
        self.bytes += queue.iter().map(Held::bytes).sum::<usize>();
        let is_given_up = self.bytes > HELD_BYTES_MAX;
        self.holds.push(Hold {
            token: self.last_token,
            thread_id: thread_id.to_owned(),
            queue,
            prepared: Prepared::default(),
            awaited,
            is_given_up,
            is_released: false,
        });
        self.last_token
    }

    /// Whether a hold was given up.
    pub(super) fn is_given_up(&self, token: Token) -> bool {
        self.holds.iter().any(|hold| hold.token == token && hold.is_given_up)
    }

    /// Whether lines of a thread are held.
    pub(super) fn holds(&self, thread_id: &str) -> bool {
        self.holds.iter().any(|hold| hold.thread_id == thread_id)
    }

    /// Whether a line of a connection is held.
    pub(super) fn holds_line_of(&self, conn: Conn) -> bool {
        let is_of_conn = |held: &Held| matches!(held.queued, Queued::ClientLine(of, ..) if of == conn);
        self.holds.iter().any(|hold| hold.queue.iter().any(is_of_conn))
    }

    /// Queues one more message of a held thread.
    pub(super) fn push(&mut self, thread_id: &str, held: Held) {
        let bytes = held.bytes();
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.thread_id == thread_id) else { return };
        hold.queue.push_back(held);
        self.bytes += bytes;
        if self.bytes > HELD_BYTES_MAX {
            hold.is_given_up = true;
        }
    }

    /// The context engine answered or failed. A late answer is dropped, but the hold still waits for its fragments.
    pub(super) fn consulted(&mut self, elapsed: Duration, token: Token, assembled: Option<Assembled>) {
        if let Some(hold) = self.of(token)
            && let Some(due) = hold.awaited.engine_due.take()
        {
            hold.prepared.assembled = assembled.filter(|_| elapsed <= due);
        }
    }

    /// Sets the folder in which the fragments of a hold are read.
    pub(super) fn reads_in(&mut self, token: Token, cwd: Option<String>) {
        if let Some(hold) = self.of(token) {
            hold.prepared.cwd = cwd;
        }
    }

    pub(super) fn fragments_read(&mut self, token: Token, states: Vec<Option<String>>) {
        if let Some(hold) = self.of(token)
            && hold.awaited.fragments_due.take().is_some()
        {
            hold.prepared.states = Some(states);
        }
    }

    /// Discards fragment states and stops waiting for them.
    pub(super) fn forget_fragments(&mut self) {
        for hold in &mut self.holds {
            hold.awaited.fragments_due = None;
            hold.prepared.states = None;
        }
    }

    /// Gives up all holds: their writer is gone.
    pub(super) fn give_up_all(&mut self) {
        self.holds.iter_mut().for_each(|hold| hold.is_given_up = true);
    }

    /// The holds that are ready now; each is returned once.
    pub(super) fn ready(&mut self, elapsed: Duration) -> Vec<Token> {
        let is_ready = |hold: &&mut Hold| !hold.is_released && hold.due_at() <= elapsed;
        let ready = self.holds.iter_mut().filter(is_ready);
        ready
            .map(|hold| {
                hold.is_released = true;
                hold.token
            })
            .collect()
    }

    /// All tokens, oldest hold first.
    pub(super) fn tokens(&self) -> Vec<Token> {
        self.holds.iter().map(|hold| hold.token).collect()
    }

    /// The next deadline.
    pub(super) fn due(&self) -> Option<Duration> {
        self.holds.iter().filter(|hold| !hold.is_released).map(Hold::due_at).min()
    }

    /// Removes a hold.
    pub(super) fn take(&mut self, token: Token) -> Option<Hold> {
        let index = self.holds.iter().position(|hold| hold.token == token)?;
        let hold = self.holds.remove(index);
        holds!("held.released-after-its-answers", hold.is_released || hold.is_given_up);
        self.bytes -= hold.queue.iter().map(Held::bytes).sum::<usize>();
        Some(hold)
    }

    /// Removes all holds: the server has ended.
    pub(super) fn take_all(&mut self) -> Vec<Hold> {
        self.bytes = 0;
        std::mem::take(&mut self.holds)
    }

    fn of(&mut self, token: Token) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.token == token)
    }
}

impl Hold {
    fn due_at(&self) -> Duration {
        let due = self.awaited.engine_due.max(self.awaited.fragments_due).filter(|_| !self.is_given_up);
        due.unwrap_or_default()
    }
}
