//! Requests that were open when an earlier hub ended. The server that it has left behind may have had an answer since.
//!
//! If somebody resumes the thread, the server asks for its open requests again, and says in which state the thread is. A thread
//! that waits for nobody has no open requests for a human.

use serde_json::value::RawValue;

use super::open::{SERVER_EXITED, WITHDRAWN};
use super::{Requests, resolve};
use crate::engine::interface::{Effect, Now};
use crate::engine::ledger::{RequestEnd, RequestSource, RequestStatus};
use crate::protocol::ItemPlace;
use crate::wire::{Members, RpcId, elements, text};

/// A row of the ledger that was open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenBefore {
    pub request_id: String,
    /// The server's id, as written.
    pub rpc_request_id: String,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    /// Whether it waits for a human, which the state of its thread tells.
    pub is_for_human: bool,
}

impl OpenBefore {
    fn rpc_id(&self) -> Option<RpcId> {
        serde_json::from_str::<&RawValue>(&self.rpc_request_id).ok().map(RpcId::from_raw)
    }

    fn is_of(&self, place: &ItemPlace) -> bool {
        self.thread_id.is_some()
            && self.thread_id == place.thread_id
            && (self.turn_id.is_none() || self.turn_id == place.turn_id)
    }
}

impl Requests {
    /// The server may have asked for some of them again before the ledger could be read.
    pub(in crate::engine) fn remember_open(&mut self, mut rows: Vec<OpenBefore>) {
        let is_known = |id: &RpcId| self.open.contains_key(id) || self.ended.names.contains_key(id);
        rows.retain(|row| row.rpc_id().is_some_and(|id| !is_known(&id)));
        self.before = rows;
    }

    /// The threads that may still wait for an answer.
    pub(in crate::engine) fn threads_before(&self) -> Vec<String> {
        let mut threads: Vec<String> = self.before.iter().filter_map(|row| row.thread_id.clone()).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// The server tells the state of a thread.
    pub(in crate::engine) fn thread_status(
        &mut self,
        now: Now,
        thread_id: &str,
        status: &RawValue,
        effects: &mut Vec<Effect>,
    ) {
        if !self.before.is_empty() && waits_for_nobody(status) {
            let is_over = |row: &OpenBefore| row.is_for_human && row.thread_id.as_deref() == Some(thread_id);
            self.end_before(now, is_over, effects);
        }
    }

    pub(super) fn turn_before_completed(&mut self, now: Now, place: &ItemPlace, effects: &mut Vec<Effect>) {
        self.end_before(now, |row| row.is_of(place), effects);
    }

    pub(super) fn resolved_before(&mut self, now: Now, id: &RpcId, effects: &mut Vec<Effect>) {
        self.end_before(now, |row| row.rpc_id().as_ref() == Some(id), effects);
    }

    /// The server asks for one of them again.
    pub(super) fn is_asked_again(&mut self, id: &RpcId) {
        self.before.retain(|row| row.rpc_id().as_ref() != Some(id));
    }

    pub(super) fn server_ended_before(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for row in self.before.drain(..) {
            let (status, source) = (RequestStatus::Orphaned, RequestSource::Policy);
            resolve(RequestEnd::unanswered(row.request_id, now.unix_us, status, source, SERVER_EXITED), effects);
        }
    }

    fn end_before(&mut self, now: Now, is_over: impl Fn(&OpenBefore) -> bool, effects: &mut Vec<Effect>) {
        let over: Vec<OpenBefore> = self.before.extract_if(.., |row| is_over(row)).collect();
        for row in over {
            // If the server asks again after all, that is another row.
            self.remember(std::slice::from_ref(&row.request_id), effects);
            let (status, source) = (RequestStatus::Resolved, RequestSource::Server);
            resolve(RequestEnd::unanswered(row.request_id, now.unix_us, status, source, WITHDRAWN), effects);
        }
    }
}

/// Whether a thread in this state has no open request for a human.
fn waits_for_nobody(status: &RawValue) -> bool {
    let Some(status) = Members::of(status) else { return false };
    match status.text("type").as_deref() {
        Some("active") => {
            let flags = status.get("activeFlags").and_then(elements);
            let waits = |flag: &&RawValue| text(flag).is_none_or(|flag| flag.starts_with("waitingOn"));
            flags.is_some_and(|flags| !flags.iter().any(waits))
        }
        Some("idle" | "notLoaded" | "systemError") => true,
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_threads() {
        let check = |status: &str, expect| {
            let status: &RawValue = serde_json::from_str(status).expect("BUG: a test gives JSON");
            assert_eq!(waits_for_nobody(status), expect, "{status}");
        };
        check(r#"{"type":"idle"}"#, true);
        check(r#"{"type":"active","activeFlags":[]}"#, true);
        check(r#"{"type":"active","activeFlags":["waitingOnApproval"]}"#, false);
        check(r#"{"type":"active","activeFlags":["x","waitingOnUserInput"]}"#, false);
        check(r#"{"type":"active","activeFlags":["wai\u0074ingOnApproval"]}"#, false);
        for unclear in [r#"{"type":"active"}"#, r#"{"type":"new"}"#, "{}", "7"] {
            check(unclear, false);
        }
    }
}
