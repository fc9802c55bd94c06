//! Checks of all requests between two inputs.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::open::{ANSWERED_BEFORE_MAX, Commit, Request, RequestState};
use super::{OPEN_MAX, Requests};
use crate::engine::model::Token;
use crate::invariants::holds;
use crate::wire::{Conn, RpcId};

/// Questions of ours, which have no limit here; the budget has one for the turns that wait for them.
const OWN_MAX: usize = 1_024;

impl Requests {
    pub(in crate::engine) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// How many answers are not yet written.
    pub(in crate::engine) fn on_their_way(&self) -> usize {
        self.dispatches.len() + self.by_policy.len() + self.passed_late.marks().count()
    }

    /// How many requests are remembered.
    pub(in crate::engine) fn count(&self) -> usize {
        self.open.len() + self.ended.names.len() + self.before.len() + self.commits.len()
    }

    /// Checks all requests.
    pub(in crate::engine) fn check(&self) {
        holds!("requests.open-within-limit", self.open.len() <= OPEN_MAX + OWN_MAX);
        holds!("requests.relay-has-read-its-ledger", self.is_read || self.owner.outlives_us());
        holds!("requests.nothing-unread-once-read", !self.is_read || self.unread.is_empty());
        holds!("requests.unread-bytes-are-those-of-its-orders", self.unread.is_summed());
        self.check_tokens();
        self.ended.check(|id| self.open.contains_key(id));
        let arrivals: HashSet<u64> = self.open.values().map(|request| request.arrival).collect();
        holds!("requests.arrivals-differ", arrivals.len() == self.open.len());
        let names: HashSet<&str> = self.open.values().map(|request| &*request.row.request_id).collect();
        holds!("requests.rows-have-names-of-their-own", names.len() == self.open.len());
        let is_open = |name: &str| names.contains(name);
        holds!("requests.earlier-rows-are-not-open", !self.before.iter().any(|row| is_open(&row.request_id)));
        holds!("requests.earlier-rows-only-in-hubs", self.before.is_empty() || self.owner.outlives_us());
        for (id, request) in &self.open {
            holds!("requests.arrival-was-counted", (1..=self.arrivals).contains(&request.arrival));
            holds!("requests.row-has-its-id", request.has_id(id));
            holds!("requests.answered-before-within-limit", request.answered_before.len() <= ANSWERED_BEFORE_MAX);
            holds!("requests.replaced-in-a-hub", request.replaced.is_empty() || self.owner.has_many_clients());
            holds!("requests.relay-asks-on-one-connection", {
                self.owner.has_many_clients() || request.conns == [Conn::OWN]
            });
            holds!("requests.asked-on-known-connections", request.conns.iter().all(|conn| *conn <= self.last_conn));
            holds!("requests.rule-checks-with-a-known-token", request.check_token() <= self.tokens);
            request.check(self.last_conn);
            self.check_decision(id, request);
        }
    }

    fn check_tokens(&self) {
        let is_issued = |token: &Token| (1..=self.tokens).contains(token);
        holds!("requests.commits-have-issued-tokens", self.commits.keys().all(is_issued));
        holds!("requests.answers-have-issued-marks", self.dispatches.keys().all(is_issued));
        holds!("requests.policy-has-issued-marks", self.by_policy.keys().all(is_issued));
        holds!("requests.late-answers-have-issued-marks", self.passed_late.marks().all(is_issued));
        holds!("requests.holds-have-issued-tokens", self.holds.iter().all(|(token, _)| is_issued(token)));
        holds!("requests.mark-is-about-one-answer", {
            !self.by_policy.keys().any(|mark| self.dispatches.contains_key(mark))
        });
        holds!("requests.late-mark-is-about-one-answer", {
            !self
                .passed_late
                .marks()
                .any(|mark| self.dispatches.contains_key(mark) || self.by_policy.contains_key(mark))
        });
        let held: HashSet<Token> = self.holds.iter().map(|(token, _)| *token).collect();
        holds!("requests.nothing-is-held-twice", held.len() == self.holds.len());
        let opens = |commit: &Commit| match commit {
            Commit::Opens { request_id } => Some(request_id.clone()),
            Commit::GoesOn { .. } | Commit::Decides(_) | Commit::Expires(_) => None,
        };
        let opening: Vec<String> = self.commits.values().filter_map(opens).collect();
        let names: HashSet<&String> = opening.iter().collect();
        holds!("requests.row-is-stored-once", names.len() == opening.len());
    }

    /// The ledger stores one decision about a request at a time, and the request says so.
    fn check_decision(&self, id: &RpcId, request: &Request) {
        let decides = |commit: &&Commit| matches!(commit, Commit::Decides(of) if of == id);
        let decisions = self.commits.values().filter(decides).count();
        match request.state {
            RequestState::Deciding(_) => holds!("requests.decision-is-being-stored", decisions == 1),
            RequestState::Pending | RequestState::Answered | RequestState::Sent | RequestState::Expired => {
                holds!("requests.nothing-decided-is-stored", decisions == 0);
            }
        }
        let expires = |commit: &Commit| matches!(commit, Commit::Expires(of) if of == id);
        if self.commits.values().any(expires) {
            holds!("requests.stored-expiry-has-expired", matches!(request.state, RequestState::Expired));
        }
    }

    /// Nothing is left over for the end of an input.
    pub(in crate::engine) fn check_taken(&self) {
        holds!("requests.reasons-are-told", self.explanations.is_empty());
        holds!("requests.own-outcomes-are-carried-out", self.own_outcomes.is_empty());
    }

    /// No deadline is left that has passed.
    pub(in crate::engine) fn check_safe(&self) {
        for request in self.open.values().filter(|request| !request.is_ours) {
            holds!("requests.no-expiry-in-the-safe-state", request.expires_at.is_none());
            holds!("requests.no-rule-in-the-safe-state", request.rule.is_none());
            holds!("requests.nothing-held-in-the-safe-state", !request.is_held);
        }
        holds!(
            "requests.no-rules-in-the-safe-state",
            self.settings.rules.is_empty() && self.settings.expiry.is_empty()
        );
    }
}

impl Request {
    fn has_id(&self, id: &RpcId) -> bool {
        serde_json::from_str::<&RawValue>(&self.row.rpc_request_id).is_ok_and(|raw| RpcId::from_raw(raw) == *id)
    }

    fn check(&self, last_conn: Conn) {
        holds!("requests.kind-is-that-of-its-row", self.kind == self.row.kind);
        let (params, payload) = (self.params.as_deref().map(RawValue::get), self.row.payload.as_deref());
        holds!("requests.params-are-those-of-its-row", params == payload);
        holds!("requests.expires-only-as-its-row", self.expires_at.is_none() || self.row.expires_at_us.is_some());
        holds!("requests.expires-only-for-people", self.expires_at.is_none() || self.kind.is_for_human());
        holds!("requests.asked-on-some-connection", !self.conns.is_empty());
        let conns: HashSet<&Conn> = self.conns.iter().collect();
        holds!("requests.connections-differ", conns.len() == self.conns.len());
        if self.is_ours {
            holds!("requests.own-is-not-shown", self.withheld.is_some());
            holds!("requests.own-waits-for-a-person", self.expires_at.is_none() && self.rule.is_none());
        }
        let is_answered = matches!(self.state, RequestState::Answered | RequestState::Sent);
        holds!("requests.answered-has-an-answer", is_answered == self.answered.is_some());
        holds!("requests.lost-was-answered", !self.may_be_lost || self.answered.is_some());
        let is_known = |conn: Conn| conn <= last_conn;
        if let Some(answered) = self.answered {
            holds!("requests.answered-over-a-known-connection", answered.over.is_none_or(is_known));
            holds!("requests.answered-before-newer-connections", is_known(answered.newest));
        }
        if let RequestState::Deciding(deciding) = &self.state {
            holds!("requests.second-answer-waits-with-a-deadline", {
                deciding.runner_up.is_some() == deciding.runner_up_due.is_some()
            });
        }
        if let Some(end) = &self.end {
            holds!("requests.end-is-its-own", end.request_id == self.row.request_id);
        }
    }
}
