//! Answers on their way to the server. Each has a mark, which the event loop reports once the answer is written.
//!
//! If the server asks for something else under the id of an answered request, or needs no answer any more, an answer that is still
//! here must not reach it. The event loop knows where the answer waits (for its commit, for a connection, or for room at the
//! server), and takes it back unless a part of it is written.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::open::{ByPolicy, RequestState, withdrawn};
use super::{Requests, answer, inject, resolve, response_line};
use crate::engine::model::{Decision, Effect, LedgerEntry, LinkEffect, Now, RequestEnd, Token, Verdict};
use crate::invariants::holds;
use crate::wire::{Conn, Message, RpcId};

/// An answer on its way to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Dispatch {
    pub(super) id: RpcId,
    pub(super) request_id: String,
    /// An earlier hub has sent it already.
    pub(super) was_sent: bool,
}

/// Late answers remembered; the oldest is evicted first, and then cannot be taken back.
const PASSED_LATE_MAX: usize = 64;

/// Answers that go to the server although another one holds or the request has ended, in case it still waits for one: the mark and
/// the id of each, oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct PassedLate(VecDeque<(Token, RpcId)>);

impl PassedLate {
    pub(super) fn add(&mut self, token: Token, id: RpcId) {
        self.0.push_back((token, id));
        if self.0.len() > PASSED_LATE_MAX {
            self.0.pop_front();
        }
    }

    pub(super) fn marks(&self) -> impl Iterator<Item = &Token> {
        self.0.iter().map(|(mark, _)| mark)
    }

    /// One of them is written.
    pub(super) fn forget(&mut self, token: Token) {
        self.0.retain(|(mark, _)| *mark != token);
    }

    /// The server asks under this id again: no earlier answer is meant for that.
    pub(super) fn recall(&mut self, id: &RpcId, effects: &mut Vec<Effect>) {
        self.0.retain(|(mark, of)| {
            if of == id {
                effects.push(Effect::Link(LinkEffect::Recall(*mark)));
            }
            of != id
        });
    }
}

impl Requests {
    /// The server does not want an answer to this request any more: takes back those that are not known to be written.
    pub(super) fn recall(&mut self, request_id: &str, effects: &mut Vec<Effect>) {
        let by_policy = self.by_policy.extract_if(|_, answer| answer.end.request_id == request_id);
        let mut marks: Vec<Token> = by_policy.map(|(token, _)| token).collect();
        marks.extend(self.dispatches.iter().filter(|(_, of)| of.request_id == request_id).map(|(token, _)| *token));
        marks.sort_unstable();
        effects.extend(marks.into_iter().map(|token| Effect::Link(LinkEffect::Recall(token))));
    }

    /// Everything up to the mark `token` was written.
    pub(in crate::engine) fn written(&mut self, now: Now, token: Token, effects: &mut Vec<Effect>) {
        self.passed_late.forget(token);
        // Until it is written, an expired request may still be orphaned.
        if let Some(ByPolicy { id, end, over }) = self.by_policy.remove(&token)
            && let Some(request) = self.open.get_mut(&id)
            && request.row.request_id == end.request_id
        {
            holds!("requests.policy-answers-what-has-expired", matches!(request.state, RequestState::Expired));
            request.is_answered(over, self.last_conn);
            request.end = Some(Box::new(end.clone()));
            self.dispatches.insert(token, Dispatch { id, request_id: end.request_id.clone(), was_sent: false });
            resolve(end, effects);
        }
        if let Some(Dispatch { id, request_id, was_sent: _ }) = self.dispatches.remove(&token) {
            if let Some(request) = self.open.get_mut(&id)
                && request.row.request_id == request_id
                && matches!(request.state, RequestState::Answered)
            {
                request.state = RequestState::Sent;
            }
            effects.push(Effect::keep(LedgerEntry::RequestDispatched { request_id, at_us: now.unix_us }));
        }
    }

    /// A client's answer goes to the server, which may still wait for one.
    pub(super) fn passes_late(&mut self, id: RpcId, decision: &mut Decision) {
        self.tokens += 1;
        decision.mark = Some(self.tokens);
        self.passed_late.add(self.tokens, id);
    }

    /// The server asks under this id. If it has asked for something else there, it gets no answer to that any more.
    pub(super) fn recall_other(&mut self, id: &RpcId, message: &Message<'_>, effects: &mut Vec<Effect>) {
        let other = self.open.get(id).filter(|before| !before.is_repeated_by(message));
        if let Some(name) = other.map(|before| before.row.request_id.clone()) {
            self.recall(&name, effects);
        }
    }

    /// An answer was taken back: its request ends without one, unless an earlier hub had sent it too. The row of a request that
    /// policy has answered has ended already.
    pub(in crate::engine) fn recalled(&mut self, now: Now, token: Token, effects: &mut Vec<Effect>) {
        if let Some(Dispatch { request_id, was_sent: false, .. }) = self.dispatches.remove(&token) {
            // The row may turn out to have an answer of an earlier hub, which this one has not replaced.
            let is_its =
                |of: &str, entry: &LedgerEntry| of == request_id && matches!(entry, LedgerEntry::RequestEnded(_));
            self.unread.forget(is_its).iter().for_each(|token| drop(self.commits.remove(token)));
            resolve(RequestEnd { instead: true, ..withdrawn(request_id, now) }, effects);
        }
    }

    /// An answer of ours goes to the server over a connection. If that closes, the answer may be lost.
    pub(in crate::engine) fn sent_over(&mut self, token: Token, conn: Conn) {
        if let Some(answer) = self.by_policy.get_mut(&token) {
            answer.over = Some(conn);
        } else if let Some(Dispatch { id, request_id, .. }) = self.dispatches.get(&token)
            && let Some(request) = self.open.get_mut(id).filter(|request| request.row.request_id == *request_id)
            && let Some(answered) = &mut request.answered
        {
            answered.over = Some(conn);
        }
    }

    /// An answer of ours was lost with its connection: that of policy or a rule is sent again, and any other may be given again.
    pub(in crate::engine) fn not_written(&mut self, token: Token, effects: &mut Vec<Effect>) {
        let by_policy = self.by_policy.get(&token).and_then(|answer| self.open.get(&answer.id));
        if let Some(request) = by_policy
            && let Some(result) = answer::by_policy(request.kind, &request.row.method)
        {
            effects.push(inject(response_line(&request.row.rpc_request_id, &result), &Verdict::Open, token));
        }
        if let Some(Dispatch { id, request_id, .. }) = self.dispatches.get(&token)
            && let Some(request) = self.open.get_mut(id).filter(|request| request.row.request_id == *request_id)
        {
            match request.ruled_answer() {
                Some(bytes) => {
                    // The server has not read all of it, and it is here again.
                    request.may_be_lost = false;
                    request.answered.iter_mut().for_each(|answered| answered.over = None);
                    effects.push(inject(bytes, &Verdict::Open, token));
                }
                None => request.may_be_lost = true,
            }
        }
    }
}
