//! Requests that have ended lately: late answers to them, and late copies of them for slow clients of a hub.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::before::{OpenBefore, Replaced};
use super::open::{REPLACED_MAX, digest_of};
use crate::invariants::holds;
use crate::wire::{Message, RpcId};

/// Ended requests remembered, to recognize late answers.
const ENDED_MAX: usize = 4_096;

/// The path of a client's answer to a request that has ended. The ledger keeps the answer as lost in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LateAnswer {
    Withhold,
    /// The server may still wait: it asked twice and confirmed only once.
    Forward,
}

/// Ended requests by id.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct EndedRequests {
    #[serde(with = "crate::engine::as_json::pairs")]
    pub(super) names: HashMap<RpcId, (String, LateAnswer)>,
    /// Earlier requests of a hub's server under these ids, of which copies may still come.
    #[serde(with = "crate::engine::as_json::pairs")]
    asked: HashMap<RpcId, VecDeque<Replaced>>,
    pub(super) oldest_first: VecDeque<RpcId>,
}

impl EndedRequests {
    pub(super) fn add(&mut self, id: RpcId, request_id: String, late_answer: LateAnswer, asked: VecDeque<Replaced>) {
        if !asked.is_empty() {
            self.asked.insert(id.clone(), asked);
        }
        if self.names.insert(id.clone(), (request_id, late_answer)).is_none() {
            self.oldest_first.push_back(id);
        }
        if self.oldest_first.len() > ENDED_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.names.remove(&oldest);
            self.asked.remove(&oldest);
        }
    }

    /// Adds a request of an earlier hub, unless this one knows a later request of its id.
    pub(super) fn add_before(&mut self, id: RpcId, row: &OpenBefore) {
        if !self.names.contains_key(&id) {
            let asked = Replaced { digest: row.digest, conns: Vec::new(), is_withheld: false };
            self.add(id, row.request_id.clone(), LateAnswer::Withhold, VecDeque::from([asked]));
        }
    }

    /// Returns what the server has asked under this id.
    pub(super) fn forget(&mut self, id: &RpcId) -> VecDeque<Replaced> {
        if self.names.remove(id).is_some() {
            self.oldest_first.retain(|ended| ended != id);
        }
        self.asked.remove(id).unwrap_or_default()
    }

    /// The ended request that a line of a hub's server only repeats.
    pub(super) fn repeated_by(&self, id: &RpcId, message: &Message<'_>) -> Option<&Replaced> {
        let digest = digest_of(message);
        self.asked.get(id)?.iter().rfind(|one| one.digest == digest)
    }

    /// Checks the lists against each other; `is_open` knows the open ones.
    pub(super) fn check(&self, is_open: impl Fn(&RpcId) -> bool) {
        let is_within_limit =
            self.names.len() <= ENDED_MAX && self.asked.values().all(|asked| asked.len() <= REPLACED_MAX + 1);
        holds!("requests.ended-lists-agree", self.names.len() == self.oldest_first.len());
        holds!("requests.ended-within-limit", is_within_limit);
        holds!("requests.ended-in-order-are-known", self.oldest_first.iter().all(|id| self.names.contains_key(id)));
        holds!("requests.ended-copies-have-ended", self.asked.keys().all(|id| self.names.contains_key(id)));
        holds!("requests.ended-is-not-open", !self.oldest_first.iter().any(is_open));
    }
}
