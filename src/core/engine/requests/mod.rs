//! State machine for the server's requests to a human, with every way in which one can end.
//!
//! A request is open until its one end: answered by the client, an API caller or policy; withdrawn by the server;
//! expired; or orphaned when the server ends. The first answer wins, as decided here, not in a database; the answer
//! stored is the answer sent. An end is final, with two exceptions, in which an answer was never sent: that of an API caller could
//! not be stored, or the server did not want an answer any more before the first byte was written ([`recall`]).
//!
//! If the server repeats a request id after an answer was written, the request gets a new row: either the answer
//! crossed the repeated line and the server ignores a second answer, or the server needs one.
//!
//! In a hub the server sends a request to each client that is subscribed to its thread, always with the same id, which it
//! never uses again. So there a line with a known id is one more delivery of that request, and the request has one row.
//!
//! A request is stored before the client sees it, and an answer before the server does. Each waits at most [`HOLD_MAX`]
//! for the ledger; after a timeout nothing waits until a commit succeeds again.

pub(super) mod answer;
mod before;
mod checked;
mod ended;
mod in_progress;
mod items;
mod kind;
mod names;
mod open;
mod own;
mod recall;
mod ruled;
mod runner_up;
mod server_facts;
mod unread;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::attached_client::Clients;
use super::lines::{Seen, form, kept_answer};
use super::model::{
    ApiReply, Decision, Effect, GivenRow, Injection, LedgerEntry, LinkEffect, Note, Now, Order, OwnLine, Passage,
    RequestEnd, RequestRow, RequestSource, RequestStatus, ServerOwner, Token, Unready, Verdict,
};
use super::rules::Rule;
use super::workspaces::Workspaces;
use crate::invariants::holds;
use crate::protocol::{ItemPlace, says_all};
use crate::wire::{Body, Conn, Message, RpcId, Side};

pub use answer::Persist;
pub(super) use answer::{Caller, decided};
pub use answer::{GivenAnswer, decisions, valid};
pub use answer::{UNANSWERED, answers_nothing};
use before::{Again, Replaced};
pub use before::{AnswerBefore, OpenBefore, request_digest};
use ended::{EndedRequests, LateAnswer};
use items::About;
pub(super) use items::{Items, with_item};
use kind::summary;
pub use kind::{Need, Subject, command_line, field_order, permissions_in_words, without_shell, without_system_shell};
pub use kind::{RequestKind, RequestType};
use names::request_name;
pub(super) use open::ErrorText;
use open::{ByPolicy, Commit, Decider, Deciding, Request, RequestState, Withheld, opened_note};
pub(super) use own::{NotAsked, OwnOutcome};
use recall::{Dispatch, PassedLate};
use ruled::RuledRequest;
use unread::Unread;

/// How long a direction is held for the ledger. Source: the contract.
const HOLD_MAX: Duration = Duration::from_millis(250);

/// Open requests; beyond that, requests go to the client without a row.
const OPEN_MAX: usize = 10_000;

/// Replaces a secret answer.
pub(super) const OMITTED: &str = r#"{"omitted":"secret"}"#;

/// Settings for requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestSettings {
    /// Withhold requests from the client.
    pub hold: bool,
    /// Time until policy answers, by request type.
    pub expiry: Vec<(RequestType, Duration)>,
    /// Time until the user's hook runs for a pending request, if one is set.
    pub notify_after: Option<Duration>,
    /// Rules of the user, in the order of the settings file.
    pub rules: Vec<Rule>,
}

/// All requests of one run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Requests {
    #[serde(skip)]
    settings: RequestSettings,
    owner: ServerOwner,
    /// The newest connection.
    last_conn: Conn,
    /// The run, once the session is open and rows can be stored.
    generation: Option<String>,
    #[serde(with = "crate::engine::as_json::pairs")]
    open: HashMap<RpcId, Request>,
    /// Requests opened so far.
    arrivals: u64,
    /// Rows of an earlier hub that are open, or whose answers the server may not have got, and that the server has not asked
    /// for again; the newest row of an id comes first.
    before: Vec<OpenBefore>,
    /// The ledger has been read. Only for a hub it may have rows of this run then.
    is_read: bool,
    /// What is to be stored until then.
    #[serde(skip)]
    unread: Unread,
    ended: EndedRequests,
    /// Assigned names and how often each was used.
    names: HashMap<String, u64>,
    /// Commits without a result yet.
    #[serde(skip)]
    commits: HashMap<Token, Commit>,
    /// Answers not yet written, by mark.
    dispatches: HashMap<Token, Dispatch>,
    /// Answers that are passed on although another one holds or the request has ended, not yet written.
    passed_late: PassedLate,
    /// Policy answers not yet written.
    by_policy: HashMap<Token, ByPolicy>,
    /// Held directions and their deadlines.
    #[serde(skip)]
    holds: Vec<(Token, Duration)>,
    /// The last commit succeeded, so the next one is waited for.
    is_trusted: bool,
    tokens: Token,
    /// The number of the last question of ours: the time in seconds since the Unix epoch.
    #[serde(default)]
    last_own: u64,
    #[serde(skip)]
    own_outcomes: Vec<(RpcId, OwnOutcome)>,
    #[serde(skip)]
    explanations: Vec<Explanation>,
    /// Where models may write.
    pub(super) workspaces: Workspaces,
    /// The server asks before the model types into a running program.
    asks_about_input: bool,
}

/// A decline reason for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Explanation {
    pub(super) thread_id: String,
    /// The running turn to send it to; `None` if the turn ends.
    pub(super) turn_id: Option<String>,
    pub(super) reason: String,
}

impl Requests {
    pub(super) fn new(settings: RequestSettings, server_owner: ServerOwner, tokens_before: Token) -> Requests {
        Requests {
            settings,
            owner: server_owner,
            last_conn: Conn::OWN,
            generation: None,
            open: HashMap::new(),
            arrivals: 0,
            before: Vec::new(),
            is_read: !server_owner.outlives_us(),
            unread: Unread::default(),
            ended: EndedRequests::default(),
            names: HashMap::new(),
            commits: HashMap::new(),
            dispatches: HashMap::new(),
            passed_late: PassedLate::default(),
            by_policy: HashMap::new(),
            holds: Vec::new(),
            is_trusted: true,
            tokens: tokens_before,
            last_own: 0,
            own_outcomes: Vec::new(),
            explanations: Vec::new(),
            workspaces: Workspaces::default(),
            asks_about_input: false,
        }
    }

    /// Replaces the settings; open requests keep their expiry.
    pub(super) fn configure(&mut self, settings: RequestSettings) {
        self.settings = settings;
    }

    /// The session is open; requests are stored from now on.
    pub(super) fn session_opened(&mut self, generation: String) {
        self.generation = Some(generation);
    }

    pub(super) fn last_token(&self) -> Token {
        self.tokens
    }

    pub(super) fn newest_connection(&self) -> Conn {
        self.last_conn
    }

    pub(super) fn connected(&mut self, conn: Conn) {
        holds!("connections.numbers-rise", conn > self.last_conn);
        self.last_conn = conn;
    }

    /// A connection has closed; the server may not have read the answers that went over it.
    pub(super) fn disconnected(&mut self, conn: Conn) {
        for request in self.open.values_mut() {
            request.may_be_lost |= request.answered.is_some_and(|answered| answered.over == Some(conn));
        }
    }

    /// The next deadline.
    pub(super) fn due(&self) -> Option<Duration> {
        let held = self.holds.iter().map(|(_, until)| *until);
        if self.open.is_empty() {
            return held.min();
        }
        let expiry = self.open.values().filter(|request| matches!(request.state, RequestState::Pending));
        let expiry = expiry.filter_map(|request| request.expires_at);
        // The hook gets the row, which a request has once the ledger is read.
        let notify =
            self.open.values().filter(|request| self.is_read && matches!(request.state, RequestState::Pending));
        let notify = notify.filter_map(|request| request.notify_at);
        let ruled = self
            .open
            .values()
            .filter_map(|request| [request.rule_due(), request.runner_up_due()].into_iter().flatten().min());
        held.chain(expiry).chain(notify).chain(ruled).min()
    }

    /// Number of requests waiting for a human.
    pub(super) fn pending(&self) -> usize {
        self.open.values().filter(|request| request.is_pending()).count()
    }

    /// Opens a request, and decides whether and when its line goes to the client, unless it is withheld already.
    pub(super) fn opened(
        &mut self,
        seen: &Seen<'_>,
        message: &Message<'_>,
        about: About<'_>,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) {
        let (Some(raw_id), Some(method), Some(generation)) =
            (message.id, message.method.as_deref(), self.generation.clone())
        else {
            return;
        };
        let (now, id) = (seen.now, RpcId::from_raw(raw_id));
        if self.is_known(seen, message, &id, decision, effects) {
            return;
        }
        self.recall_other(&id, message, effects);
        self.passed_late.recall(&id, effects);
        // From now on, a response with this id answers this request.
        let (answered_before, mut replaced) = self.before(now, &id, message, effects);
        let params = message.params.map(read).unwrap_or_default();
        let kind = RequestKind::asked(method, &params);
        let Some(kind) = kind.filter(|_| self.open.len() < OPEN_MAX) else { return };
        let item = about.item.filter(|_| kind == RequestKind::Command && !says_all(method)).map(read);
        let shown = with_item(params, item.as_ref());
        let before = self.asked_again(now, &id, message, &mut replaced, effects);
        let ruled = match before {
            Some(Again::Answered(..)) => RuledRequest::default(),
            Some(Again::Pending(_)) | None => self.ruling(kind, message, &shown, about),
        };
        // Without a row, only the client could answer.
        let is_answered = matches!(before, Some(Again::Answered(..)));
        let is_held = (self.settings.hold || ruled.holds()) && kind.is_for_human() && self.is_trusted && !is_answered;
        let is_withheld = is_held || ruled.answers();
        let (name, answer) = match before {
            Some(Again::Answered(name, answer)) => (name, Some(answer)),
            Some(Again::Pending(name)) => (name, None),
            None => (self.free_name(request_name(&generation, &id, raw_id.get())), None),
        };
        let expiry = self.expiry(kind);
        let row = RequestRow {
            request_id: name.clone(),
            rpc_request_id: raw_id.get().to_owned(),
            place: ItemPlace::of(message.params),
            kind,
            method: method.to_owned(),
            requested_at_us: now.unix_us,
            expires_at_us: expiry.map(|after| now.unix_us + after.as_micros() as u64),
            payload: message.params.map(|params| params.get().to_owned()),
            changes: about.changes.map(|changes| changes.get().to_owned()),
            item: item.map(|item| item.to_string()),
            summary: summary(kind, method, &shown, about.changes.map(read).as_ref()),
            late: !self.is_trusted && !decision.is_withheld(),
            rule: ruled.rule_name(),
        };
        self.arrivals += 1;
        let request = Request {
            expires_at: expiry.map(|after| now.elapsed + after),
            notify_at: self.notify_at(now, kind).filter(|_| !ruled.answers()),
            withheld: is_withheld.then(|| Withheld::Until(seen.line.to_vec())),
            is_held,
            answered_before,
            replaced,
            ..Request::new(row.clone(), self.arrivals, seen.conn, message.params)
        };
        let earlier = self.open.insert(id.clone(), request);
        holds!("requests.opens-in-an-empty-place", earlier.is_none());
        let Some(answer) = answer else {
            self.store_opened(now, &id, decision, effects);
            return self.rule_begins(now, &id, ruled, decision, effects);
        };
        effects.push(opened_note(&row, is_withheld, true));
        self.send_stored(&id, answer, effects);
    }

    /// The client answers: decides whether and when its answer goes to the server.
    pub(super) fn client_answers(
        &mut self,
        seen: &Seen<'_>,
        message: &Message<'_>,
        client: &str,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) {
        if self.open.is_empty() && self.ended.names.is_empty() {
            return;
        }
        // A message with neither result nor error, or with both, is not an answer; the server may interpret it as it
        // likes.
        let answers = message.result.is_some() != message.refusal().is_some();
        let Some(id) = message.id.filter(|_| answers && !message.repeated_member).map(RpcId::from_raw) else {
            return;
        };
        let now = seen.now;
        let given = |request_id: &str| GivenRow {
            request_id: request_id.to_owned(),
            at_us: now.unix_us,
            source: RequestSource::Client,
            by: client.to_owned(),
            payload: kept_answer(seen, message),
        };
        let Some(request) = self.open.get_mut(&id) else {
            if let Some((request_id, late_answer)) = self.ended.names.get(&id) {
                effects.push(Effect::keep(LedgerEntry::AnswerLost(Box::new(given(request_id)))));
                match late_answer {
                    LateAnswer::Withhold => decision.line = Passage::Withhold,
                    LateAnswer::Forward => self.passes_late(id, decision),
                }
            }
            return;
        };
        let given = given(&request.row.request_id);
        if request.is_unseen_on(seen.conn) {
            effects.push(Effect::keep(LedgerEntry::AnswerLost(Box::new(given))));
            decision.line = Passage::Withhold;
            return;
        }
        match &mut request.state {
            // The client can only answer a request that it received.
            RequestState::Pending if request.withheld.is_none() => {}
            RequestState::Deciding(deciding) if deciding.runner_up.is_none() && request.withheld.is_none() => {
                deciding.runner_up = Some((seen.line.to_vec(), given));
                deciding.runner_up_due = Some(now.elapsed + HOLD_MAX);
                decision.line = Passage::Withhold;
                return;
            }
            RequestState::Pending
            | RequestState::Deciding(_)
            | RequestState::Answered
            | RequestState::Sent
            | RequestState::Expired => {
                effects.push(Effect::keep(LedgerEntry::AnswerLost(Box::new(given))));
                // Without an answer the server would wait for ever; it ignores a second one.
                match request.may_be_lost {
                    true => self.passes_late(id, decision),
                    false => decision.line = Passage::Withhold,
                }
                return;
            }
        }
        request.is_answered(Some(seen.conn), self.last_conn);
        let request_id = request.row.request_id.clone();
        let end = RequestEnd { late: !self.is_trusted, ..RequestEnd::answered(given, RequestStatus::Resolved) };
        let end = request.ended(end);
        request.end = Some(Box::new(end.clone()));
        effects.push(resolved_note(&end, false));
        let entry = LedgerEntry::RequestEnded(Box::new(end));
        let token = self.keep_first(entry, Commit::GoesOn { request_id }, effects);
        self.await_dispatch(token, &id);
        decision.mark = Some(token);
        self.hold(now, token, decision);
    }

    /// An API caller answers.
    pub(super) fn api_answers(
        &mut self,
        now: Now,
        caller: Caller,
        request_id: &str,
        given: &GivenAnswer,
        effects: &mut Vec<Effect>,
    ) {
        let Caller { api_call, source, by, server_listens } = caller;
        let found = self.open.iter_mut().find(|(_, request)| request.row.request_id == request_id);
        let Some((id, request)) = found else {
            effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotOpen)));
            return;
        };
        let answer = match (given.check(request.kind, &request.row.method, request.params.as_deref()), &request.state) {
            (_, RequestState::Deciding(_) | RequestState::Answered | RequestState::Sent | RequestState::Expired) => {
                effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotOpen)));
                return;
            }
            (Err(invalid), RequestState::Pending) => {
                effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::Invalid(invalid))));
                return;
            }
            // An answer that cannot be sent is rejected.
            (Ok(_), RequestState::Pending) if !server_listens && !request.is_ours => {
                effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotReady(Unready::NotReading))));
                return;
            }
            (Ok(answer), RequestState::Pending) => answer,
        };
        let id = id.clone();
        let payload = answer::kept(&request.verdict, &answer.result.to_string());
        let name = by.clone();
        let given = GivenRow { request_id: request_id.to_owned(), at_us: now.unix_us, source, by, payload };
        let reason = answer.reason.clone();
        let deciding = Deciding {
            decider: Decider::Api(api_call, source),
            answer,
            by: name,
            runner_up: None,
            runner_up_due: None,
            over: None,
        };
        holds!("requests.caller-answers-what-waits", matches!(request.state, RequestState::Pending));
        request.state = RequestState::Deciding(Box::new(deciding));
        let end = RequestEnd { reason, ..RequestEnd::answered(given, RequestStatus::Resolved) };
        let end = request.ended(end);
        let token = self.token(Commit::Decides(id));
        effects.push(Effect::Order(Order::Commit(token, LedgerEntry::RequestEnded(Box::new(end)))));
    }

    /// A commit succeeded or failed.
    pub(super) fn committed(
        &mut self,
        now: Now,
        token: Token,
        done: bool,
        clients: &Clients,
        effects: &mut Vec<Effect>,
    ) {
        if !done {
            self.unread.refused(token);
        }
        if matches!(self.commits.get(&token), Some(Commit::Decides(_))) {
            self.rules_tick(now, clients, effects);
        }
        self.is_trusted = done;
        let was_waited_for = self.release(token, effects);
        let opens = matches!(self.commits.get(&token), Some(Commit::Opens { .. }));
        match (self.commits.remove(&token), done) {
            (Some(Commit::GoesOn { request_id: _ }), true) => {}
            (Some(Commit::Opens { request_id }), true) => {
                effects.push(Effect::Note(Note::RequestCommitted { request_id: request_id.clone() }));
                let kept = self.open.values_mut().filter(|request| request.row.request_id == request_id);
                kept.filter(|request| request.rule.is_none()).for_each(|request| request.settle(clients, effects));
            }
            (Some(Commit::Opens { request_id }), false) if self.own_is_not_stored(now, &request_id, effects) => {}
            (Some(Commit::Opens { request_id } | Commit::GoesOn { request_id }), false) => {
                let request = self.open.values_mut().find(|request| request.row.request_id == request_id);
                request.into_iter().for_each(|request| request.is_unstored |= opens);
                if was_waited_for {
                    self.forward_late(request_id, clients, effects);
                }
            }
            (Some(Commit::Decides(id)), _) => self.decided(now, &id, done, clients, effects),
            (Some(Commit::Expires(id)), _) => self.answer_by_policy(now, &id, effects),
            (None, _) => {}
        }
    }

    /// Sends an answer of an API caller or a rule that was stored; otherwise the request is open again.
    fn decided(&mut self, now: Now, id: &RpcId, done: bool, clients: &Clients, effects: &mut Vec<Effect>) {
        let Some(request) = self.open.get_mut(id) else { return };
        let RequestState::Deciding(deciding) = std::mem::replace(&mut request.state, RequestState::Pending) else {
            return;
        };
        let Deciding { decider, answer, by, runner_up, runner_up_due: _, over } = *deciding;
        if !done {
            decider.reply(ApiReply::NotKept, effects);
            if let Some(why) = over {
                effects.extend(runner_up.map(|(_, given)| Effect::keep(LedgerEntry::AnswerLost(Box::new(given)))));
                self.end(now, id, &why, effects);
            } else if let Some((bytes, given)) = runner_up {
                let end = RequestEnd { late: true, ..RequestEnd::answered(given, RequestStatus::Resolved) };
                self.runner_up_wins(id, bytes, end, effects);
            } else {
                self.rule_gives_up(now, id, clients, effects);
            }
            return;
        }
        if let Some((_, given)) = runner_up {
            effects.push(Effect::keep(LedgerEntry::AnswerLost(Box::new(given))));
        }
        request.is_answered(None, self.last_conn);
        request.is_ruled();
        let row = &request.row;
        effects.push(Effect::Note(Note::RequestResolved {
            request_id: row.request_id.clone(),
            status: RequestStatus::Resolved.name(),
            source: decider.source().name(),
            decision: answer::decided(&answer::kept(&request.verdict, &answer.result.to_string())),
            error_code: None,
            again: false,
        }));
        effects.extend(decider.rule_applied(&row.request_id));
        if request.is_ours {
            self.own_is_answered(now, id, (answer.result, by), effects);
            return decider.reply(ApiReply::Kept, effects);
        }
        let verdict = request.verdict.clone();
        let (thread_id, turn_id) = (row.place.thread_id.clone(), row.place.turn_id.clone());
        let bytes = response_line(&row.rpc_request_id, &answer.result);
        if over.is_some() {
            let request_id = row.request_id.clone();
            effects.push(Effect::keep(LedgerEntry::RequestUncertain { request_id, at_us: now.unix_us }));
            self.forget(id, LateAnswer::Withhold);
        } else {
            self.tokens += 1;
            effects.push(inject(bytes, &verdict, self.tokens));
            self.await_dispatch(self.tokens, id);
        }
        if let (Some(reason), Some(thread_id)) = (answer.reason, thread_id) {
            let turn_id = turn_id.filter(|_| !answer.is_cancel && over.is_none());
            self.explanations.push(Explanation { thread_id, turn_id, reason });
        }
        decider.reply(ApiReply::Kept, effects);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes the decline reasons queued for the model.
    pub(super) fn take_explanations(&mut self) -> Vec<Explanation> {
        std::mem::take(&mut self.explanations)
    }

    /// Ends the request that has had this id: its rows that still wait to be confirmed, and the requests of which copies may still
    /// come.
    fn before(
        &mut self,
        now: Now,
        id: &RpcId,
        message: &Message<'_>,
        effects: &mut Vec<Effect>,
    ) -> (VecDeque<String>, VecDeque<Replaced>) {
        let of_ended = self.ended.forget(id);
        match self.open.remove(id) {
            Some(before) if before.is_pending() => (VecDeque::new(), self.replaced(now, id, before, effects)),
            Some(answered) if self.owner.has_many_clients() && !answered.is_repeated_by(message) => {
                (VecDeque::new(), answered.asked())
            }
            Some(mut answered) => (answered.followed_by(message), VecDeque::new()),
            None => (VecDeque::new(), of_ended),
        }
    }

    /// The requests under the id of this one, of which copies may still come.
    fn copied(&self, request: &Request) -> VecDeque<Replaced> {
        if self.owner.has_many_clients() { request.asked() } else { VecDeque::new() }
    }

    /// Closes a request.
    fn forget(&mut self, id: &RpcId, late_answer: LateAnswer) -> Option<Request> {
        let request = self.open.remove(id)?;
        // The next request of this id is not answered because this one has expired.
        self.commits.retain(|_, commit| !matches!(commit, Commit::Expires(of) if of == id));
        let asked = self.copied(&request);
        self.ended.add(id.clone(), request.row.request_id.clone(), late_answer, asked);
        Some(request)
    }

    fn ids_where(&self, wanted: impl Fn(&Request) -> bool) -> Vec<RpcId> {
        let mut found: Vec<(&RpcId, &Request)> = self.open.iter().filter(|(_, request)| wanted(request)).collect();
        found.sort_by_key(|(_, request)| request.arrival);
        found.into_iter().map(|(id, _)| id.clone()).collect()
    }

    fn keep_first(&mut self, entry: LedgerEntry, commit: Commit, effects: &mut Vec<Effect>) -> Token {
        let token = self.token(commit);
        effects.push(Effect::Order(Order::KeepFirst(token, entry)));
        token
    }

    fn token(&mut self, commit: Commit) -> Token {
        self.tokens += 1;
        let earlier = self.commits.insert(self.tokens, commit);
        holds!("requests.commit-has-a-new-token", earlier.is_none());
        self.tokens
    }

    /// Holds a line until its commit, if recent commits succeeded.
    fn hold(&mut self, now: Now, token: Token, decision: &mut Decision) {
        if self.is_trusted {
            self.holds.push((token, now.elapsed + HOLD_MAX));
            decision.hold = Some(token);
        }
    }

    /// Releases the line that waits for a commit; returns whether there was one.
    fn release(&mut self, token: Token, effects: &mut Vec<Effect>) -> bool {
        let held = self.holds.len();
        self.holds.retain(|(held, _)| *held != token);
        let was_held = self.holds.len() < held;
        if was_held {
            effects.push(Effect::Link(LinkEffect::Release(token)));
        }
        was_held
    }

    fn await_dispatch(&mut self, token: Token, id: &RpcId) {
        if let Some(request) = self.open.get(id) {
            let request_id = request.row.request_id.clone();
            let dispatch = Dispatch { id: id.clone(), request_id, was_sent: false };
            let earlier = self.dispatches.insert(token, dispatch);
            holds!("requests.answer-has-a-new-mark", earlier.is_none());
        }
    }
}

/// The ledger form of a client's answer.
pub(super) fn answered(message: &Message<'_>) -> String {
    match (message.refusal(), message.result) {
        (Some(error), _) => format!("{{\"error\":{}}}", error.get()),
        (None, Some(result)) => result.get().to_owned(),
        (None, None) => "null".to_owned(),
    }
}

/// The result of a request of this kind with these parameters, as stored in the ledger.
pub fn kept_result(kind: RequestKind, params: &str, result: &str) -> String {
    answer::kept(&answer::verdict(kind, params), result)
}

fn read(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// Sends our answer. The server takes it from any connection.
fn inject(bytes: Vec<u8>, verdict: &Verdict, mark: Token) -> Effect {
    let form = form(verdict, &Body::parse(&bytes), &bytes);
    Effect::Link(LinkEffect::Inject(Injection {
        conn: Conn::OWN,
        lines: vec![OwnLine { to: Side::Server, form, bytes }],
        mark: Some(mark),
    }))
}

fn response_line(raw_id: &str, result: &Value) -> Vec<u8> {
    format!("{{\"id\":{raw_id},\"result\":{result}}}").into_bytes()
}

/// Notes the end of a request and stores it.
fn resolve(end: RequestEnd, effects: &mut Vec<Effect>) {
    effects.push(resolved_note(&end, false));
    effects.push(Effect::keep(LedgerEntry::RequestEnded(Box::new(end))));
}

/// `again`: an earlier hub has stored this end.
fn resolved_note(end: &RequestEnd, again: bool) -> Effect {
    Effect::Note(Note::RequestResolved {
        request_id: end.request_id.clone(),
        status: end.status.name(),
        source: end.source.name(),
        decision: end.payload.as_deref().and_then(answer::decided),
        error_code: end.error.map(|(code, _)| code),
        again,
    })
}
