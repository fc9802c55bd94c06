//! Requests that were open when an earlier hub ended, or whose answers it may not have sent. The server that it has left behind
//! may have had an answer since.
//!
//! If somebody resumes the thread, the server says in which state the thread is, and then asks for its open requests again. A thread
//! that rests runs no turn, so it has no open requests. The state of one that works proves nothing: a server that names no
//! reason to wait (`activeFlags`) may still ask again. Then a row stays open until the server asks for it, says that it is resolved,
//! ends its turn, or the thread rests.
//!
//! If the server asks again for a request whose answer is stored, it has not got that answer, which is then sent. An answer that the
//! ledger does not have whole cannot be sent: its row is open again. If it asks before the ledger is read, see [`super::unread`].

use std::collections::{HashSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::open::{SERVER_EXITED, Why, later_entry, withdrawn};
use super::own::{is_own, own_of_hub_ends};
use super::{Explanation, RequestKind, Requests, answer, inject, read, resolve, resolved_note};
use crate::engine::model::{Effect, GivenRow, LedgerEntry, Now, RequestEnd, RequestSource, RequestStatus, Verdict};
use crate::protocol::ItemPlace;
use crate::wire::{Conn, Members, Message, RpcId};

/// Identifies the method and the parameters of a request.
pub(super) type RequestDigest = [u8; 32];

/// A request that gave way to another one of the same id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Replaced {
    pub(super) digest: RequestDigest,
    /// The connections on which the server sent it.
    pub(super) conns: Vec<Conn>,
    /// No client was to see it.
    #[serde(default)]
    pub(super) is_withheld: bool,
}

/// The digest of a request with these parameters, as written.
#[must_use]
pub fn request_digest(method: &str, params: Option<&str>) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(method);
    if let Some(params) = params {
        digest.update([0]);
        digest.update(params);
    }
    digest.finalize().into()
}

/// An answer that an earlier hub has stored, and that the server has not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerBefore {
    /// The answer as stored, from the client or as sent.
    pub payload: String,
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub source: RequestSource,
    pub by: String,
    /// Why it declines, for the model.
    pub reason: Option<String>,
    /// The earlier hub had written it to the server.
    pub is_dispatched: bool,
}

/// A request that the server asks for again under another hub, with the name of its row.
#[derive(Debug)]
pub(super) enum Again {
    /// The stored answer is sent.
    Answered(String, AnswerBefore),
    /// It has no answer, or none that can be sent, so anyone may answer.
    Pending(String),
}

/// A row of the ledger that was open, or whose answer the server may not have got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenBefore {
    pub request_id: String,
    /// The server's id, as written.
    pub rpc_request_id: String,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    /// Whether it waits for a human: then its thread works as long as it is open, even without a turn.
    pub is_for_human: bool,
    /// Of the method and the parameters; see [`request_digest`].
    pub digest: [u8; 32],
    /// `None` if the row is open.
    pub answer: Option<AnswerBefore>,
}

impl AnswerBefore {
    /// The line for the server; `None` if the ledger has only a part of the answer.
    pub(super) fn line(&self, rpc_request_id: &str, verdict: &Verdict) -> Option<Vec<u8>> {
        match verdict {
            Verdict::Open => {}
            Verdict::Masked(_) | Verdict::Secret => return None,
        }
        let payload: &RawValue = serde_json::from_str(&self.payload).ok()?;
        // A client may have refused to answer, and the ledger has its error as the only member.
        let members = Members::of(payload).filter(|_| self.source == RequestSource::Client);
        let refusal = members.as_ref().and_then(|members| members.get("error").filter(|_| members.iter().count() == 1));
        let (member, value) = refusal.map_or(("result", payload), |error| ("error", error));
        Some(format!("{{\"id\":{rpc_request_id},\"{member}\":{value}}}").into_bytes())
    }

    /// The ledger entry when the server needs no answer any more, for whichever reason is known. It cannot have confirmed an
    /// answer that was not sent.
    pub(super) fn later_entry(&self, why: Option<Why>, request_id: String, at_us: u64) -> Option<Effect> {
        match why {
            Some(Why::ServerExited) => None,
            _ if !self.is_dispatched => Some(Effect::keep(LedgerEntry::RequestUncertain { request_id, at_us })),
            why => later_entry(&why?, request_id, at_us),
        }
    }
}

impl OpenBefore {
    pub(super) fn rpc_id(&self) -> Option<RpcId> {
        serde_json::from_str::<&RawValue>(&self.rpc_request_id).ok().map(RpcId::from_raw)
    }

    fn is_of(&self, place: &ItemPlace) -> bool {
        self.thread_id.is_some()
            && self.thread_id == place.thread_id
            && (self.turn_id.is_none() || self.turn_id == place.turn_id)
    }
}

impl Requests {
    /// Sends the answer that an earlier hub has stored. The client gets the request and then its end; an answer of its own in
    /// between is stored as lost.
    pub(super) fn send_stored(&mut self, id: &RpcId, answer: AnswerBefore, effects: &mut Vec<Effect>) {
        let last_conn = self.last_conn;
        let Some(request) = self.open.get_mut(id) else { return };
        let Some(line) = answer.line(&request.row.rpc_request_id, &request.verdict) else { return };
        let AnswerBefore { payload, at_us, source, by, reason, is_dispatched } = answer;
        let is_cancel = answer::is_cancel(request.kind, &request.row.method, &payload);
        let given = GivenRow { request_id: request.row.request_id.clone(), at_us, source, by, payload };
        let end = RequestEnd::answered(given, RequestStatus::Resolved);
        effects.push(resolved_note(&end, true));
        request.end = Some(Box::new(end));
        request.is_answered(None, last_conn);
        request.is_ruled();
        let verdict = request.verdict.clone();
        let (thread_id, turn_id) = (request.row.place.thread_id.clone(), request.row.place.turn_id.clone());
        if let (Some(reason), Some(thread_id)) = (reason, thread_id) {
            let turn_id = turn_id.filter(|_| !is_cancel);
            self.explanations.push(Explanation { thread_id, turn_id, reason });
        }
        self.tokens += 1;
        effects.push(inject(line, &verdict, self.tokens));
        self.await_dispatch(self.tokens, id);
        self.dispatches.get_mut(&self.tokens).into_iter().for_each(|dispatch| dispatch.was_sent = is_dispatched);
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
        if !self.before.is_empty() && rests(status) {
            let is_over = |row: &OpenBefore| {
                (row.is_for_human || row.turn_id.is_some()) && row.thread_id.as_deref() == Some(thread_id)
            };
            self.end_before(now, None, is_over, effects);
        }
    }

    pub(super) fn turn_before_completed(&mut self, now: Now, place: &ItemPlace, effects: &mut Vec<Effect>) {
        self.end_before(now, Some(Why::TurnOver), |row| row.is_of(place), effects);
    }

    pub(super) fn resolved_before(&mut self, now: Now, id: &RpcId, effects: &mut Vec<Effect>) {
        self.end_before(now, Some(Why::Confirmed), |row| row.rpc_id().as_ref() == Some(id), effects);
    }

    /// The server asks for one of them again, or for something else under its id, which withdraws it and adds it to `replaced`.
    pub(super) fn asked_again(
        &mut self,
        now: Now,
        id: &RpcId,
        message: &Message<'_>,
        replaced: &mut VecDeque<Replaced>,
        effects: &mut Vec<Effect>,
    ) -> Option<Again> {
        let is_of_id = |row: &mut OpenBefore| row.rpc_id().as_ref() == Some(id);
        let OpenBefore { request_id, digest, answer, .. } = self.before.extract_if(.., is_of_id).next()?;
        let (method, params) = (message.method.as_deref().unwrap_or_default(), message.params.map(RawValue::get));
        let is_same = request_digest(method, params) == digest;
        if !is_same {
            replaced.push_back(Replaced { digest, conns: Vec::new(), is_withheld: false });
        }
        match answer {
            Some(answer) if is_same => {
                let kind = RequestKind::asked(method, &message.params.map(read).unwrap_or_default())?;
                let verdict = answer::verdict(kind, params.unwrap_or_default());
                if answer.line("0", &verdict).is_some() {
                    return Some(Again::Answered(request_id, answer));
                }
                let by = answer.by;
                effects.push(Effect::keep(LedgerEntry::RequestReopened { request_id: request_id.clone(), by }));
                Some(Again::Pending(request_id))
            }
            None if is_same => Some(Again::Pending(request_id)),
            answer => {
                unwanted(now, None, request_id, answer, effects);
                None
            }
        }
    }

    pub(super) fn server_ended_before(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for row in self.before.drain(..).filter(|row| row.answer.is_none()) {
            let (status, source) = (RequestStatus::Orphaned, RequestSource::Policy);
            resolve(RequestEnd::unanswered(row.request_id, now.unix_us, status, source, SERVER_EXITED), effects);
        }
    }

    /// The server needs no answer to these any more.
    fn end_before(
        &mut self,
        now: Now,
        why: Option<Why>,
        is_over: impl Fn(&OpenBefore) -> bool,
        effects: &mut Vec<Effect>,
    ) {
        let over: Vec<OpenBefore> = self.before.extract_if(.., |row| is_over(row)).collect();
        for row in over {
            // A slow connection may still deliver it.
            if let Some(id) = row.rpc_id().filter(|id| !self.open.contains_key(id)) {
                self.ended.add_before(id, &row);
            }
            unwanted(now, why, row.request_id, row.answer, effects);
        }
    }

    /// Takes the rows of the ledger, newest first, but for those of requests that the server has asked for by now. Of the rows with
    /// the same id only the newest counts: the server had asked for it when it was done with the others.
    pub(super) fn take_before(
        &mut self,
        now: Now,
        rows: Vec<OpenBefore>,
        is_asked: impl Fn(&RpcId) -> bool,
        effects: &mut Vec<Effect>,
    ) {
        let mut ids = HashSet::new();
        for row in rows {
            let Some(id) = row.rpc_id() else { continue };
            // The turn was held by that hub.
            if is_own(&row.rpc_request_id) {
                if row.answer.is_none() {
                    resolve(own_of_hub_ends(row.request_id, now), effects);
                }
                continue;
            }
            let is_asked = is_asked(&id);
            match ids.insert(id) {
                true if is_asked => {}
                true => self.before.push(row),
                // Nothing will tell whether the server has got its answer.
                false => unwanted(now, Some(Why::TurnOver), row.request_id, row.answer, effects),
            }
        }
    }
}

/// The server needs no answer to the request of this row any more.
fn unwanted(now: Now, why: Option<Why>, request_id: String, answer: Option<AnswerBefore>, effects: &mut Vec<Effect>) {
    match answer {
        Some(answer) => effects.extend(answer.later_entry(why, request_id, now.unix_us)),
        None => resolve(withdrawn(request_id, now), effects),
    }
}

/// Whether a thread in this state runs no turn.
fn rests(status: &RawValue) -> bool {
    let status = Members::of(status).and_then(|status| status.text("type"));
    matches!(status.as_deref(), Some("idle" | "notLoaded" | "systemError"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_threads() {
        let check = |status: &str, expect| {
            let status: &RawValue = serde_json::from_str(status).expect("BUG: a test gives JSON");
            assert_eq!(rests(status), expect, "{status}");
        };
        for rests in ["idle", "notLoaded", "systemError", "i\\u0064le"] {
            check(&format!(r#"{{"type":"{rests}"}}"#), true);
        }
        check(r#"{"type":"active","activeFlags":["waitingOnApproval"]}"#, false);
        for unclear in [r#"{"type":"active","activeFlags":[]}"#, r#"{"type":"active"}"#, r#"{"type":"new"}"#, "{}", "7"]
        {
            check(unclear, false);
        }
    }
}
