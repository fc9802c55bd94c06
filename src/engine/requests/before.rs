//! Requests that were open when an earlier hub ended. The server that it has left behind may have had an answer since.
//!
//! If somebody resumes the thread, the server asks for its open requests again, and says in which state the thread is. A thread
//! that waits for nobody has no open requests for a human.

use serde_json::value::RawValue;

use super::open::{Commit, SERVER_EXITED, WITHDRAWN, request_name};
use super::{Requests, resolve};
use crate::engine::interface::{Effect, Note, Now};
use crate::engine::ledger::{LedgerEntry, RequestEnd, RequestSource, RequestStatus};
use crate::protocol::ItemPlace;
use crate::wire::{Conn, Members, RpcId, elements, text};

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
    /// Requests with these names have ended under another hub. If the server asks again, it has not got their answers. A request
    /// that it has asked again before this was known gets another row.
    pub(in crate::engine) fn remember(&mut self, ended: &[String], effects: &mut Vec<Effect>) {
        for name in ended {
            let numbered = name.rsplit_once('.').and_then(|(base, number)| Some((base, number.parse::<u64>().ok()?)));
            let (name, number) = match numbered {
                // A point also separates the text of an id; see [`request_name`].
                Some((base, number)) if !base.ends_with("-s") => (base, number),
                Some(_) | None => (name.as_str(), 1),
            };
            let used = self.names.entry(name.to_owned()).or_insert(0);
            *used = number.max(*used);
        }
        for id in self.ids_where(|request| ended.contains(&request.row.request_id)) {
            self.open_anew(&id, effects);
        }
    }

    /// Opens a row for a request whose name belongs to a row that has ended. A client may have got it by now.
    fn open_anew(&mut self, id: &RpcId, effects: &mut Vec<Effect>) {
        let (Some(generation), Some(request)) = (self.generation.clone(), self.open.get(id)) else { return };
        let name = self.free_name(request_name(&generation, id, &request.row.rpc_request_id));
        let Some(request) = self.open.get_mut(id) else { return };
        let before = std::mem::replace(&mut request.row.request_id, name.clone());
        request.row.late |= request.conns.iter().any(|conn| *conn != Conn::OWN);
        let (row, request_type) = (request.row.clone(), request.kind.request_type().name());
        let held = request.withheld.is_some();
        if let Some(end) = &mut request.end {
            end.request_id.clone_from(&name);
        }
        let end = request.end.clone();
        effects.push(Effect::Note(Note::RequestOpened { request_id: name.clone(), request_type, held }));
        self.commits.retain(|_, commit| !matches!(commit, Commit::Opens { request_id } if *request_id == before));
        for commit in self.commits.values_mut() {
            if let Commit::GoesOn { request_id } = commit
                && *request_id == before
            {
                request_id.clone_from(&name);
            }
        }
        let dispatched = self.dispatches.values_mut().map(|(_, of)| of);
        let by_policy = self.by_policy.values_mut().map(|answer| &mut answer.end.request_id);
        dispatched.chain(by_policy).filter(|of| **of == before).for_each(|of| of.clone_from(&name));
        let entry = LedgerEntry::RequestOpened(Box::new(row));
        self.keep_first(entry, Commit::Opens { request_id: name }, effects);
        effects.extend(end.map(|end| Effect::keep(LedgerEntry::RequestEnded(end))));
    }

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
