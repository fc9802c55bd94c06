//! Open requests, their names in the ledger, and their ends other than an answer.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::answer::CheckedAnswer;
use super::before::{Replaced, RequestDigest, request_digest};
use super::ended::LateAnswer;
use super::items::is_same_item;
use super::kind::{RequestKind, summary};
use super::ruled::{AppliedRule, Ruled};
use super::{HOLD_MAX, Requests, answer, inject, read, resolve, response_line};
use crate::engine::attached_client::Clients;
use crate::engine::lines::Seen;
use crate::engine::model::{
    ApiCallId, ApiReply, Decision, Effect, GivenRow, LedgerEntry, LinkEffect, Note, Now, Passage, RequestEnd,
    RequestRow, RequestSource, RequestStatus, Token, Verdict,
};
use crate::invariants::holds;
use crate::protocol::{ItemPlace, says_all};
use crate::wire::{Conn, Members, Message, RpcId};

/// Unconfirmed answered rows of one request; the oldest is evicted first.
pub(super) const ANSWERED_BEFORE_MAX: usize = 16;

/// Withdrawn requests remembered for one open id; the oldest is evicted first.
pub(super) const REPLACED_MAX: usize = 16;

/// Why a request ended, or was mentioned after its end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Why {
    /// The server sent `serverRequest/resolved`.
    Confirmed,
    /// Its item completed.
    ItemCompleted,
    /// Its turn ended.
    TurnOver,
    ServerExited,
}

/// An error code and its explanation.
pub(in crate::engine) type ErrorText = (&'static str, &'static str);

/// The error of a request without a timely answer.
pub(super) const EXPIRED: ErrorText = ("request_expired", "nobody answered in time");

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) row: RequestRow,
    /// Its place in the order of arrival, which the wall clock does not tell.
    pub(super) arrival: u64,
    /// The connections on which the server sent it.
    pub(super) conns: Vec<Conn>,
    pub(super) kind: RequestKind,
    pub(super) params: Option<Box<RawValue>>,
    /// How much of an answer may be recorded.
    pub(super) verdict: Verdict,
    pub(super) expires_at: Option<Duration>,
    /// Set if the client has not received the request; holds its line until the row is stored.
    pub(super) withheld: Option<Withheld>,
    /// The client is not asked at all.
    pub(super) is_held: bool,
    /// We have asked it, see [`super::own`].
    #[serde(default)]
    pub(super) is_ours: bool,
    /// The rule that is about to answer.
    pub(super) rule: Option<Box<Ruled>>,
    /// When the user's hook runs; `None` if it already ran.
    pub(super) notify_at: Option<Duration>,
    /// Earlier rows of the same request whose answers the server has not confirmed, oldest first.
    pub(super) answered_before: VecDeque<String>,
    /// Withdrawn requests of the same id, of which a hub may still get copies.
    pub(super) replaced: VecDeque<Replaced>,
    pub(super) answered: Option<AnsweredOver>,
    /// The connection of its answer has closed, and nothing shows that the server got the answer.
    pub(super) may_be_lost: bool,
    /// Its row could not be stored at once, and is retried.
    pub(super) is_unstored: bool,
    /// An answer that was given up may still be stored, and is to be replaced then.
    pub(super) is_stored_late: bool,
    /// The answer that the ledger gets.
    pub(super) end: Option<Box<RequestEnd>>,
    pub(super) state: RequestState,
}

/// How an answer goes to the server of a hub.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct AnsweredOver {
    /// `None` as long as an answer of ours waits for a connection.
    pub(super) over: Option<Conn>,
    /// The newest connection at that time.
    pub(super) newest: Conn,
}

/// An answer of policy on its way to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ByPolicy {
    pub(super) id: RpcId,
    pub(super) end: RequestEnd,
    /// As in [`AnsweredOver`].
    pub(super) over: Option<Conn>,
}

/// A request that the client has not received.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Withheld {
    /// Withheld unless its row cannot be stored, as then only the client could answer, or unless a rule gives up, or nothing is decided any
    /// more.
    Until(Vec<u8>),
    /// Withheld permanently.
    Kept,
}

/// The state of an open request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RequestState {
    Pending,
    /// An answer of an API caller or a rule is being stored.
    #[serde(skip)]
    Deciding(Box<Deciding>),
    /// An answer will be sent to the server.
    Answered,
    Sent,
    /// No timely answer; policy will answer.
    Expired,
}

/// Who gave an answer that is being stored.
#[derive(Debug)]
pub(super) enum Decider {
    Api(ApiCallId, RequestSource),
    Rule(AppliedRule),
}

/// An answer that is being stored.
#[derive(Debug)]
pub(super) struct Deciding {
    pub(super) decider: Decider,
    pub(super) answer: CheckedAnswer,
    /// The person or tool that gave it.
    pub(super) by: String,
    /// A later answer of the client, sent if the first cannot be stored.
    pub(super) runner_up: Option<(Vec<u8>, GivenRow)>,
    /// When the later answer has waited long enough.
    pub(super) runner_up_due: Option<Duration>,
    /// Why the server no longer needs an answer, if so.
    pub(super) over: Option<Why>,
}

/// The purpose of a commit.
#[derive(Debug)]
pub(super) enum Commit {
    /// A new row; its request is forwarded whatever the result.
    Opens {
        request_id: String,
    },
    /// The client's answer, likewise.
    GoesOn {
        request_id: String,
    },
    Decides(RpcId),
    /// The expiry of a request.
    Expires(RpcId),
}

impl Request {
    /// A pending request that the server has sent on one connection.
    pub(super) fn new(row: RequestRow, arrival: u64, conn: Conn, params: Option<&RawValue>) -> Request {
        Request {
            arrival,
            conns: vec![conn],
            kind: row.kind,
            params: params.map(ToOwned::to_owned),
            verdict: answer::verdict(row.kind, params.map_or("", RawValue::get)),
            expires_at: None,
            notify_at: None,
            withheld: None,
            is_held: false,
            is_ours: false,
            rule: None,
            answered_before: VecDeque::new(),
            replaced: VecDeque::new(),
            answered: None,
            may_be_lost: false,
            is_unstored: false,
            is_stored_late: false,
            end: None,
            state: RequestState::Pending,
            row,
        }
    }

    /// Whether a request line with the same id repeats this request, so that one answer serves both: it asks for the same, and
    /// the request has no answer yet, or the server will read the answer after this line.
    pub(super) fn is_same_as(&self, message: &Message<'_>) -> bool {
        match self.state {
            RequestState::Pending | RequestState::Deciding(_) | RequestState::Expired | RequestState::Answered => {
                self.is_repeated_by(message)
            }
            RequestState::Sent => false,
        }
    }

    /// Whether a line of a hub's server with the same id is a copy for one more client. The server asks a client that has come
    /// after the answer only if it has not read the answer.
    pub(super) fn is_copied_on(&self, conn: Conn, message: &Message<'_>) -> bool {
        let may_be_copy = match self.state {
            RequestState::Pending | RequestState::Deciding(_) | RequestState::Expired => true,
            // The answer is still here, and will be read.
            RequestState::Answered if !self.may_be_lost => true,
            RequestState::Answered | RequestState::Sent => self.answered.is_none_or(|answered| conn <= answered.newest),
        };
        may_be_copy && self.is_repeated_by(message)
    }

    /// Whether a line of a hub's server is a copy, for one more client, of a withdrawn request of the same id.
    fn late_copy(&mut self, conn: Conn, message: &Message<'_>) -> Option<&Replaced> {
        if self.replaced.is_empty() {
            return None;
        }
        let digest = digest_of(message);
        let copied = self.replaced.iter_mut().find(|one| one.digest == digest && !one.conns.contains(&conn))?;
        copied.conns.push(conn);
        Some(copied)
    }

    /// Whether a client has seen only an earlier request with this id, so that its answer is meant for that one.
    pub(super) fn is_unseen_on(&self, conn: Conn) -> bool {
        !self.replaced.is_empty() && !self.conns.contains(&conn)
    }

    /// An answer goes to the server over a connection.
    pub(super) fn is_answered(&mut self, over: Option<Conn>, newest: Conn) {
        let is_first = !matches!(self.state, RequestState::Answered | RequestState::Sent);
        holds!("requests.first-answer-stays", is_first && self.answered.is_none());
        self.state = RequestState::Answered;
        self.answered = Some(AnsweredOver { over, newest });
    }

    /// When a client's answer that waits for another to be stored is sent; never if the server does not want it any more.
    pub(super) fn runner_up_due(&self) -> Option<Duration> {
        match &self.state {
            RequestState::Deciding(deciding) if deciding.over.is_none() => deciding.runner_up_due,
            RequestState::Deciding(_)
            | RequestState::Pending
            | RequestState::Answered
            | RequestState::Sent
            | RequestState::Expired => None,
        }
    }

    /// The rows before a request with this id and these parameters, including this one.
    pub(super) fn followed_by(&mut self, message: &Message<'_>) -> VecDeque<String> {
        if !matches!(self.state, RequestState::Sent) || !self.is_repeated_by(message) {
            return VecDeque::new();
        }
        self.answered_before.push_back(self.row.request_id.clone());
        if self.answered_before.len() > ANSWERED_BEFORE_MAX {
            self.answered_before.pop_front();
        }
        std::mem::take(&mut self.answered_before)
    }

    /// The end that the ledger gets.
    pub(super) fn ended(&self, end: RequestEnd) -> RequestEnd {
        RequestEnd { instead: end.instead || self.is_stored_late, ..end }
    }

    pub(super) fn is_repeated_by(&self, message: &Message<'_>) -> bool {
        message.method.as_deref() == Some(&*self.row.method)
            && message.params.map(RawValue::get) == self.row.payload.as_deref()
    }

    pub(super) fn digest(&self) -> RequestDigest {
        request_digest(&self.row.method, self.row.payload.as_deref())
    }

    /// Earlier requests under its id, of which copies may still come to a hub.
    pub(super) fn asked(&self) -> VecDeque<Replaced> {
        let mut asked = self.replaced.clone();
        let (digest, conns, is_withheld) = (self.digest(), self.conns.clone(), self.withheld.is_some());
        asked.push_back(Replaced { digest, conns, is_withheld });
        if asked.len() > REPLACED_MAX {
            asked.pop_front();
        }
        asked
    }

    /// Whether no answer has been given, or it is not yet stored.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.state, RequestState::Pending | RequestState::Deciding(_) | RequestState::Expired)
    }
}

pub(super) fn digest_of(message: &Message<'_>) -> RequestDigest {
    request_digest(message.method.as_deref().unwrap_or_default(), message.params.map(RawValue::get))
}

/// Notes that a request has a row. `again`: of an earlier hub, which has stored the answer.
pub(super) fn opened_note(row: &RequestRow, held: bool, again: bool) -> Effect {
    let request_type = row.kind.request_type().name();
    Effect::Note(Note::RequestOpened { request_id: row.request_id.clone(), request_type, held, again })
}

pub(super) const WITHDRAWN: ErrorText = ("withdrawn_by_server", "the server does not want an answer any more");

pub(super) fn withdrawn(request_id: String, now: Now) -> RequestEnd {
    RequestEnd::unanswered(request_id, now.unix_us, RequestStatus::Resolved, RequestSource::Server, WITHDRAWN)
}
pub(super) const SERVER_EXITED: ErrorText = ("server_exited", "the server ended before there was an answer");

impl Requests {
    /// How long such a request waits for an answer.
    pub(super) fn expiry(&self, kind: RequestKind) -> Option<Duration> {
        let can_expire = kind.is_for_human() && !kind.needs_person();
        let expiry = self.settings.expiry.iter().find(|(of, _)| *of == kind.request_type() && can_expire);
        expiry.map(|(_, after)| *after)
    }

    /// When the user's hook runs for a request that is pending from now on.
    pub(super) fn notify_at(&self, now: Now, kind: RequestKind) -> Option<Duration> {
        self.settings.notify_after.filter(|_| kind.is_for_human()).map(|after| now.elapsed + after)
    }

    /// Stores a new row. Its line waits for that, unless it is withheld already.
    pub(super) fn store_opened(&mut self, now: Now, id: &RpcId, decision: &mut Decision, effects: &mut Vec<Effect>) {
        let Some(request) = self.open.get(id) else { return };
        let (row, is_withheld) = (request.row.clone(), request.withheld.is_some());
        effects.push(opened_note(&row, is_withheld, false));
        let request_id = row.request_id.clone();
        let token = self.keep_first(LedgerEntry::RequestOpened(Box::new(row)), Commit::Opens { request_id }, effects);
        if is_withheld {
            self.holds.push((token, now.elapsed + HOLD_MAX));
            decision.line = Passage::Withhold;
        } else if !decision.is_withheld() {
            // A withheld line waits for nothing.
            self.hold(now, token, decision);
        }
    }

    /// The server repeated an open request. If its row is still being stored, the line waits for that again.
    fn repeated(&mut self, now: Now, request_id: String, decision: &mut Decision, effects: &mut Vec<Effect>) {
        let opens = |commit: &Commit| matches!(commit, Commit::Opens { request_id: of } if *of == request_id);
        let Some(token) = self.commits.iter().find(|(_, commit)| opens(commit)).map(|(token, _)| *token) else {
            // Only the hub itself had got the request when its row could not be stored.
            let is_unstored = |request: &Request| request.row.request_id == request_id && request.is_unstored;
            if self.owner.has_many_clients() && !self.is_trusted && self.open.values().any(is_unstored) {
                effects.push(Effect::keep(LedgerEntry::RequestLate { request_id }));
            }
            return;
        };
        if self.holds.iter().any(|(held, _)| *held == token) {
            decision.hold = Some(token);
            return;
        }
        if !self.is_trusted {
            effects.push(Effect::keep(LedgerEntry::RequestLate { request_id }));
        }
        self.hold(now, token, decision);
    }

    /// The changes behind a request became known after it.
    pub(in crate::engine) fn shown(&mut self, place: &ItemPlace, changes: &RawValue, effects: &mut Vec<Effect>) {
        let asked = self.open.values_mut().filter(|Request { kind, row, .. }| {
            *kind == RequestKind::FileChange && is_same_item(&row.place, place) && !says_all(&row.method)
        });
        for request in asked {
            let params = request.params.as_deref().map(read).unwrap_or_default();
            request.row.summary = summary(request.kind, &request.row.method, &params, Some(&read(changes)));
            effects.push(Effect::keep(LedgerEntry::RequestShown {
                request_id: request.row.request_id.clone(),
                changes: changes.get().to_owned(),
                summary: request.row.summary.clone(),
            }));
        }
    }

    /// The server sent `serverRequest/resolved`.
    pub(in crate::engine) fn server_resolved(&mut self, now: Now, params: &RawValue, effects: &mut Vec<Effect>) {
        if let Some(id) = Members::of(params).and_then(|params| params.get("requestId")).map(RpcId::from_raw) {
            self.end(now, &id, &Why::Confirmed, effects);
            self.resolved_before(now, &id, effects);
        }
    }

    /// An item completed, which ends requests about it. A server may report nothing more specific.
    pub(in crate::engine) fn item_completed(&mut self, now: Now, place: &ItemPlace, effects: &mut Vec<Effect>) {
        let of_item = |request: &Request| is_same_item(&request.row.place, place);
        for id in self.ids_where(of_item) {
            self.end(now, &id, &Why::ItemCompleted, effects);
        }
    }

    /// A turn completed, which ends its requests.
    pub(in crate::engine) fn turn_completed(&mut self, now: Now, place: &ItemPlace, effects: &mut Vec<Effect>) {
        let of_turn = |Request { row, is_ours, .. }: &Request| {
            place.thread_id.is_some()
                && !is_ours
                && row.place.thread_id == place.thread_id
                && (row.place.turn_id.is_none() || row.place.turn_id == place.turn_id)
        };
        for id in self.ids_where(of_turn) {
            self.end(now, &id, &Why::TurnOver, effects);
        }
        self.turn_before_completed(now, place, effects);
    }

    /// The server has ended, and all its output was processed.
    pub(in crate::engine) fn server_ended(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for id in self.ids_where(|_| true) {
            self.end(now, &id, &Why::ServerExited, effects);
        }
        self.server_ended_before(now, effects);
        for (token, _) in std::mem::take(&mut self.holds) {
            effects.push(Effect::Link(LinkEffect::Release(token)));
        }
    }

    /// Whether a request is not new: it is open, and repeated for a client that resumed the thread or for one more client, or it
    /// has ended, which a slow client of a hub hears later than the others.
    pub(super) fn is_known(
        &mut self,
        seen: &Seen<'_>,
        message: &Message<'_>,
        id: &RpcId,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let has_copies = self.owner.has_many_clients();
        if let Some(ended) = self.ended.repeated_by(id, message) {
            if ended.is_withheld {
                decision.line = Passage::Withhold;
            }
            return true;
        }
        if let Some(request) = self.open.get_mut(id).filter(|_| has_copies) {
            let is_withheld = request.withheld.is_some();
            if let Some(earlier) = request.late_copy(seen.conn, message) {
                if is_withheld || earlier.is_withheld {
                    decision.line = Passage::Withhold;
                }
                return true;
            }
        }
        let is_copy = |request: &&mut Request| match has_copies {
            true => request.is_copied_on(seen.conn, message),
            false => request.is_same_as(message),
        };
        let Some(request) = self.open.get_mut(id).filter(is_copy) else { return false };
        if request.withheld.is_some() {
            decision.line = Passage::Withhold;
        }
        if !request.conns.contains(&seen.conn) {
            request.conns.push(seen.conn);
        }
        if !decision.is_withheld() {
            let request_id = request.row.request_id.clone();
            self.repeated(seen.now, request_id, decision, effects);
        }
        true
    }

    /// The server asks for something else under the id of this request, so an answer to this one must not reach it any more.
    /// Returns the withdrawn requests of this id.
    pub(super) fn replaced(
        &mut self,
        now: Now,
        id: &RpcId,
        before: Request,
        effects: &mut Vec<Effect>,
    ) -> VecDeque<Replaced> {
        let request_id = before.row.request_id.clone();
        let replaced = self.copied(&before);
        self.commits.retain(|_, commit| !matches!(commit, Commit::Decides(of) | Commit::Expires(of) if of == id));
        self.recall(&request_id, effects);
        // The ledger carries out orders in order, so this end replaces an answer that it is storing.
        let mut instead = before.is_stored_late;
        if let RequestState::Deciding(deciding) = before.state {
            instead = true;
            deciding.decider.reply(ApiReply::NotOpen, effects);
            let lost = deciding.runner_up.map(|(_, given)| LedgerEntry::AnswerLost(Box::new(given)));
            effects.extend(lost.map(Effect::keep));
        }
        let (status, source) = (RequestStatus::Resolved, RequestSource::Server);
        let end = RequestEnd::unanswered(request_id, now.unix_us, status, source, WITHDRAWN);
        resolve(RequestEnd { instead, ..end }, effects);
        replaced
    }

    /// Sends the policy answer after storing the expiry, whether or not that succeeded.
    pub(super) fn answer_by_policy(&mut self, now: Now, id: &RpcId, effects: &mut Vec<Effect>) {
        let Some(request) = self.open.get_mut(id) else { return };
        if !matches!(request.state, RequestState::Expired) {
            return;
        }
        let Some(result) = answer::by_policy(request.kind, &request.row.method) else { return };
        let bytes = response_line(&request.row.rpc_request_id, &result);
        let given = GivenRow {
            request_id: request.row.request_id.clone(),
            at_us: now.unix_us,
            source: RequestSource::Policy,
            by: "expiry".to_owned(),
            payload: result.to_string(),
        };
        let late = !self.is_trusted;
        let end = RequestEnd { error: Some(EXPIRED), late, ..RequestEnd::answered(given, RequestStatus::Resolved) };
        let end = request.ended(end);
        self.tokens += 1;
        let earlier = self.by_policy.insert(self.tokens, ByPolicy { id: id.clone(), end, over: None });
        holds!("requests.policy-has-a-new-mark", earlier.is_none());
        effects.push(inject(bytes, &Verdict::Open, self.tokens));
    }

    /// Forwards a request whose row was not stored in time, marked as late if anyone receives it.
    pub(super) fn forward_late(&mut self, request_id: String, clients: &Clients, effects: &mut Vec<Effect>) {
        let request = self.open.values_mut().find(|request| request.row.request_id == request_id);
        if let Some(request) = request
            && let Some(Withheld::Until(line)) = request.withheld.take_if(|held| matches!(held, Withheld::Until(_)))
        {
            let conns: Vec<Conn> = request.conns.iter().copied().filter(|conn| clients.listens(*conn)).collect();
            if conns.is_empty() {
                return;
            }
            effects.push(Effect::Link(LinkEffect::PassLate { conns, line }));
        }
        effects.push(Effect::keep(LedgerEntry::RequestLate { request_id }));
    }

    /// Expires requests and releases holds whose deadline passed.
    pub(in crate::engine) fn tick(&mut self, now: Now, clients: &Clients, effects: &mut Vec<Effect>) {
        let is_over = |(token, until): &(Token, Duration)| (*until <= now.elapsed).then_some(*token);
        for token in self.holds.iter().filter_map(is_over).collect::<Vec<_>>() {
            self.is_trusted = false;
            self.release(token, effects);
            match self.commits.get(&token) {
                Some(Commit::Opens { request_id } | Commit::GoesOn { request_id }) => {
                    let request_id = request_id.clone();
                    if !self.own_is_not_stored(now, &request_id, effects) {
                        self.forward_late(request_id, clients, effects);
                    }
                }
                Some(Commit::Expires(id)) => {
                    let id = id.clone();
                    // The answer is sent now; a late commit result must not send it again.
                    self.commits.remove(&token);
                    self.answer_by_policy(now, &id, effects);
                }
                Some(Commit::Decides(_)) | None => {}
            }
        }
        self.rules_tick(now, clients, effects);
        self.runners_up_tick(now, effects);
        for request in self.open.values_mut().filter(|request| matches!(request.state, RequestState::Pending)) {
            if self.is_read && request.notify_at.is_some_and(|at| at <= now.elapsed) {
                request.notify_at = None;
                effects.push(Effect::NotifyPending(request.row.request_id.clone()));
            }
        }
        let is_over = |request: &Request| {
            matches!(request.state, RequestState::Pending) && request.expires_at.is_some_and(|at| at <= now.elapsed)
        };
        // Oldest first, so that the order is deterministic.
        for id in self.ids_where(is_over) {
            let Some(request) = self.open.get_mut(&id) else { continue };
            request.state = RequestState::Expired;
            let request_id = request.row.request_id.clone();
            let entry = LedgerEntry::RequestExpired { request_id, at_us: now.unix_us };
            let token = self.keep_first(entry, Commit::Expires(id), effects);
            self.holds.push((token, now.elapsed + HOLD_MAX));
        }
    }

    /// Ends a request without an answer, or handles a later event about an answered one.
    pub(super) fn end(&mut self, now: Now, id: &RpcId, why: &Why, effects: &mut Vec<Effect>) {
        let Some(request) = self.open.get_mut(id) else { return };
        let request_id = request.row.request_id.clone();
        let (at_us, has_copies) = (now.unix_us, self.owner.has_many_clients());
        // The server of a hub resolves a request once, whichever of the answers it has got.
        let has_followed = !has_copies && !request.answered_before.is_empty();
        let policy_answers = self.by_policy.values().any(|answer| answer.end.request_id == request_id);
        // `serverRequest/resolved` confirms one answer of a client on pipes, the other ends confirm all.
        let confirmed = if matches!(why, Why::Confirmed) && !has_copies { 1 } else { usize::MAX };
        for request_id in request.answered_before.drain(..confirmed.min(request.answered_before.len())) {
            effects.extend(later_entry(why, request_id, at_us));
        }
        match (&mut request.state, why) {
            // The server confirmed the answer before this one.
            (RequestState::Deciding(_) | RequestState::Answered | RequestState::Sent, Why::Confirmed)
                if has_followed =>
            {
                return;
            }
            // Likewise, and policy's answer is on its way.
            (RequestState::Expired, Why::Confirmed) if has_followed && policy_answers => return,
            // The outcome depends on the pending commit.
            (RequestState::Deciding(deciding), _) => {
                // What came first has ended it.
                deciding.over.get_or_insert(*why);
                return;
            }
            // The server cannot have confirmed an answer that is still here.
            (RequestState::Answered, Why::Confirmed | Why::ItemCompleted) if !request.may_be_lost => {
                effects.push(Effect::keep(LedgerEntry::RequestUncertain { request_id, at_us }));
            }
            (RequestState::Answered | RequestState::Sent, _) => effects.extend(later_entry(why, request_id, at_us)),
            (RequestState::Pending | RequestState::Expired, Why::Confirmed | Why::ItemCompleted | Why::TurnOver) => {
                let (status, source) = (RequestStatus::Resolved, RequestSource::Server);
                resolve(request.ended(RequestEnd::unanswered(request_id, at_us, status, source, WITHDRAWN)), effects);
            }
            (RequestState::Pending | RequestState::Expired, Why::ServerExited) => {
                let (status, source) = (RequestStatus::Orphaned, RequestSource::Policy);
                let end = RequestEnd::unanswered(request_id, at_us, status, source, SERVER_EXITED);
                resolve(request.ended(end), effects);
            }
        }
        let may_wait = has_followed && matches!(why, Why::Confirmed);
        if let Some(request) = self.forget(id, if may_wait { LateAnswer::Forward } else { LateAnswer::Withhold }) {
            self.unread.over(&request.row.request_id, *why);
            if !matches!(why, Why::ServerExited) {
                self.recall(&request.row.request_id, effects);
            }
        }
    }
}

/// The ledger entry for an answered request when the server mentions it again. After the server's exit the row needs none.
pub(super) fn later_entry(why: &Why, request_id: String, at_us: u64) -> Option<Effect> {
    match why {
        Why::Confirmed | Why::ItemCompleted => Some(Effect::keep(LedgerEntry::RequestConfirmed { request_id, at_us })),
        Why::TurnOver => Some(Effect::keep(LedgerEntry::RequestUncertain { request_id, at_us })),
        Why::ServerExited => None,
    }
}
