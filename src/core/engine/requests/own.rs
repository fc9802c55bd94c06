//! Questions of our own: requests that no server has asked and no client gets. They have a row like all others and are answered at the
//! control socket. Their answers are carried out here and not sent to the server.

use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::ended::LateAnswer;
use super::names::request_name;
use super::open::{Commit, ErrorText, Request, RequestState, Withheld, opened_note};
use super::{RequestKind, Requests, resolve, summary};
use crate::engine::model::{
    ApiReply, Effect, LedgerEntry, Now, RequestEnd, RequestRow, RequestSource, RequestStatus, Warning,
};
use crate::protocol::{ItemPlace, Method};
use crate::wire::{Conn, RpcId};

/// Begins the ids of our questions. Those of servers are numbers.
const ID_PREFIX: &str = "budget-";

/// How long a question may take to be stored. Its turn waits for a person anyway.
const STORE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The hub that held the turn is gone.
const HUB_GONE: ErrorText =
    ("client_gone", "the hub that held the turn has ended, and with it the connection of its client");

/// The question could not be stored, and the turn was refused.
const NOT_STORED: ErrorText = ("not_stored", "the question could not be stored in time, so the turn was refused");

/// The outcome of a question of ours.
#[derive(Debug)]
pub(in crate::engine) enum OwnOutcome {
    /// This answer is stored.
    Answered { result: Value, by: String },
    /// The ledger has not stored the question in time, and perhaps nobody sees it.
    NotStored,
}

/// The reason against a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum NotAsked {
    /// The session has no ledger.
    NoLedger,
    /// The ledger was not read yet.
    NotRead,
}

/// Whether a JSON-RPC id, as written, is that of a question of ours.
pub(super) fn is_own(rpc_request_id: &str) -> bool {
    rpc_request_id.strip_prefix('"').is_some_and(|id| id.starts_with(ID_PREFIX))
}

impl Requests {
    /// Asks whether a turn may begin.
    pub(in crate::engine) fn ask_own(
        &mut self,
        now: Now,
        thread_id: &str,
        params: &Value,
        effects: &mut Vec<Effect>,
    ) -> Result<RpcId, NotAsked> {
        let generation = self.generation.clone().ok_or(NotAsked::NoLedger)?;
        if !self.is_read {
            return Err(NotAsked::NotRead);
        }
        // Also unique among those of an earlier hub, whose server goes on, and among those that a server has chosen itself.
        self.last_own = (now.unix_us / 1_000_000).max(self.last_own + 1);
        let (raw, id) = loop {
            let raw = format!("\"{ID_PREFIX}{}\"", self.last_own);
            let id = RpcId::from_raw(serde_json::from_str::<&RawValue>(&raw).expect("BUG: it is quoted"));
            if !self.open.contains_key(&id) && !self.ended.names.contains_key(&id) {
                break (raw, id);
            }
            self.last_own += 1;
        };
        let payload = serde_json::value::to_raw_value(params).expect("BUG: a value can be written");
        let (kind, method) = (RequestKind::UserInput, Method::BudgetQuestion.name());
        let row = RequestRow {
            request_id: self.free_name(request_name(&generation, &id, &raw)),
            rpc_request_id: raw,
            place: ItemPlace { thread_id: Some(thread_id.to_owned()), turn_id: None, item_id: None },
            kind,
            method: method.to_owned(),
            requested_at_us: now.unix_us,
            expires_at_us: None,
            payload: Some(payload.get().to_owned()),
            changes: None,
            item: None,
            summary: summary(kind, method, params, None),
            late: false,
            rule: None,
        };
        self.arrivals += 1;
        let request = Request {
            is_ours: true,
            is_held: true,
            withheld: Some(Withheld::Kept),
            notify_at: self.notify_at(now, kind),
            ..Request::new(row.clone(), self.arrivals, Conn::OWN, Some(&payload))
        };
        self.open.insert(id.clone(), request);
        effects.push(opened_note(&row, true, false));
        let request_id = row.request_id.clone();
        let token = self.keep_first(LedgerEntry::RequestOpened(Box::new(row)), Commit::Opens { request_id }, effects);
        self.holds.push((token, now.elapsed + STORE_WAIT_MAX));
        Ok(id)
    }

    /// The oldest open request for a human in a thread.
    pub(in crate::engine) fn gate(&self, thread_id: &str) -> Option<&RequestRow> {
        let of_thread = self.open.values().filter(|request| {
            request.is_pending()
                && request.kind.is_for_human()
                && request.row.place.thread_id.as_deref() == Some(thread_id)
        });
        of_thread.min_by_key(|request| request.arrival).map(|request| &request.row)
    }

    /// The reply to an API caller whose input waits for this answer.
    pub(in crate::engine) fn gated(&self, id: &RpcId) -> Option<ApiReply> {
        let row = &self.open.get(id)?.row;
        Some(ApiReply::Gated {
            request_id: row.request_id.clone(),
            request_type: row.kind.request_type(),
            requested_at_us: row.requested_at_us,
        })
    }

    /// An answer to a question of ours is stored, and nobody else needs it.
    pub(super) fn own_is_answered(
        &mut self,
        now: Now,
        id: &RpcId,
        (result, by): (Value, String),
        effects: &mut Vec<Effect>,
    ) {
        if let Some(request) = self.forget(id, LateAnswer::Withhold) {
            let (request_id, at_us) = (request.row.request_id, now.unix_us);
            effects.push(Effect::keep(LedgerEntry::RequestDispatched { request_id: request_id.clone(), at_us }));
            effects.push(Effect::keep(LedgerEntry::RequestConfirmed { request_id, at_us }));
            self.own_outcomes.push((id.clone(), OwnOutcome::Answered { result, by }));
        }
    }

    /// The row of a question of ours could not be stored in time. A command of the model can keep it from that with a lock on a file that
    /// it may only read, so the turn does not go on. Returns whether it is one.
    pub(super) fn own_is_not_stored(&mut self, now: Now, request_id: &str, effects: &mut Vec<Effect>) -> bool {
        let is_its = |request: &Request| request.is_ours && request.row.request_id == request_id;
        let Some(id) = self.ids_where(is_its).pop() else { return false };
        self.forget(&id, LateAnswer::Withhold);
        effects.push(Effect::Warn(Warning::BudgetNotAsked));
        resolve(own_end(request_id.to_owned(), now, NOT_STORED), effects);
        self.own_outcomes.push((id, OwnOutcome::NotStored));
        true
    }

    /// Nobody waits for the answer to a question of ours any more. Returns false if an answer is being stored, which stays.
    pub(in crate::engine) fn own_is_over(
        &mut self,
        now: Now,
        id: &RpcId,
        why: ErrorText,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let is_decided = |request: &Request| !matches!(request.state, RequestState::Pending);
        if self.open.get(id).is_some_and(is_decided) {
            return false;
        }
        if let Some(request) = self.forget(id, LateAnswer::Withhold) {
            resolve(own_end(request.row.request_id, now, why), effects);
        }
        true
    }

    /// Takes the new outcomes.
    pub(in crate::engine) fn take_own_outcomes(&mut self) -> Vec<(RpcId, OwnOutcome)> {
        std::mem::take(&mut self.own_outcomes)
    }
}

/// The end of a question without an answer.
fn own_end(request_id: String, now: Now, why: ErrorText) -> RequestEnd {
    RequestEnd::unanswered(request_id, now.unix_us, RequestStatus::Orphaned, RequestSource::Policy, why)
}

/// The end of a question of an earlier hub.
pub(super) fn own_of_hub_ends(request_id: String, now: Now) -> RequestEnd {
    own_end(request_id, now, HUB_GONE)
}
