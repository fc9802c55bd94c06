//! Requests that the server of a hub asks before the hub has read its ledger.
//!
//! They wait for nothing: a client gets them and may answer. Once the ledger is read, a request that an earlier hub had already
//! gets its row. An answer in that row is sent, unless another one goes to the server already, which then replaces it in the row.
//! Until then the ledger is not told what became of an answer, because the name of the row may be that of another request.

use std::collections::VecDeque;

use super::before::{AnswerBefore, OpenBefore};
use super::open::{
    Commit, ErrorText, LateAnswer, Replaced, Request, State, WITHDRAWN, Why, later_entry, opened_note, request_name,
};
use super::{Requests, resolve};
use crate::engine::attached_client::Clients;
use crate::engine::interface::{ApiReply, Effect, Note, Now};
use crate::engine::ledger::{LedgerEntry, Order, RequestEnd, RequestSource, RequestStatus};
use crate::engine::verdict::Verdict;
use crate::wire::{Conn, Message, RpcId};

/// Requests remembered that have ended before the ledger is read; beyond that, the oldest have no row if their names are taken.
const EARLY_MAX: usize = 256;

/// The error of an answer that has replaced one of an earlier hub.
const REPLACED: ErrorText =
    ("answer_replaced", "an earlier hub had stored another answer, which the server may have got");
const REPLACED_SENT: ErrorText =
    ("answer_replaced", "an earlier hub had sent another answer, which the server had not confirmed");

/// A request that has ended before the ledger is read.
#[derive(Debug)]
pub(super) struct EndedEarly {
    id: RpcId,
    request: Request,
    /// `None` if the server asks anew under its id, as it has not got the answer.
    why: Option<Why>,
}

/// The rows in the ledger from the run of an earlier hub.
struct Rows<'a> {
    ended: &'a [String],
    /// The newest come first.
    rows: &'a [OpenBefore],
    /// Rows of requests that have ended since. A further request of the same id is not theirs.
    taken: Vec<&'a str>,
}

impl<'a> Rows<'a> {
    fn of(&self, id: &RpcId) -> Option<&'a OpenBefore> {
        let row = self.rows.iter().find(|row| row.rpc_id().as_ref() == Some(id))?;
        (!self.taken.contains(&&*row.request_id)).then_some(row)
    }

    fn has(&self, name: &str) -> bool {
        self.ended.iter().any(|ended| ended == name) || self.rows.iter().any(|row| row.request_id == name)
    }
}

/// The end of a request whose answer goes to the server, although the ledger has another one.
fn replaces(end: &RequestEnd, answer: &AnswerBefore, verdict: &Verdict) -> RequestEnd {
    let is_same = end.payload.as_ref() == Some(&answer.payload) && matches!(verdict, Verdict::Open);
    let error = if answer.is_dispatched { REPLACED_SENT } else { REPLACED };
    RequestEnd { instead: true, error: end.error.or((!is_same).then_some(error)), ..end.clone() }
}

impl Requests {
    /// The ledger has been read: the names of the requests that have ended under another hub, and the rows that are open or
    /// whose answers the server may not have got.
    pub(in crate::engine) fn remember(
        &mut self,
        now: Now,
        ended: &[String],
        mut rows: Vec<OpenBefore>,
        clients: &Clients,
        effects: &mut Vec<Effect>,
    ) {
        // If the ledger is opened once more, its rows are those of this run.
        if std::mem::replace(&mut self.is_read, true) {
            return;
        }
        ended.iter().chain(rows.iter().map(|row| &row.request_id)).for_each(|name| self.name_is_used(name));
        let mut before = Rows { ended, rows: &rows, taken: Vec::new() };
        for early in std::mem::take(&mut self.ended_early) {
            self.place_ended(now, early, &mut before, effects);
        }
        for id in self.ids_where(|_| true) {
            self.place_open(now, &id, &before, clients, effects);
        }
        let is_known = |id: &RpcId| self.open.contains_key(id) || self.ended.names.contains_key(id);
        rows.retain(|row| row.rpc_id().is_some_and(|id| !is_known(&id)));
        self.before = rows;
    }

    /// The server asks anew under the id of an answered request. Returns the earlier rows of the same, and what else it has asked.
    pub(super) fn followed(
        &mut self,
        id: &RpcId,
        mut answered: Request,
        message: &Message<'_>,
    ) -> (VecDeque<String>, VecDeque<Replaced>) {
        let before = if self.is_hub && !answered.is_repeated_by(message) {
            (VecDeque::new(), answered.asked())
        } else {
            (answered.followed_by(message), VecDeque::new())
        };
        if !self.is_read {
            self.ends_early(id, answered, None);
        }
        before
    }

    /// A request has ended before the ledger is read.
    pub(super) fn ends_early(&mut self, id: &RpcId, request: Request, why: Option<Why>) {
        if self.ended_early.len() == EARLY_MAX {
            self.ended_early.pop_front();
        }
        self.ended_early.push_back(EndedEarly { id: id.clone(), request, why });
    }

    /// The answer of a request that has ended is written.
    pub(super) fn written_early(&mut self, id: &RpcId, request_id: &str) {
        let is_it = |early: &&mut EndedEarly| early.id == *id && early.request.row.request_id == request_id;
        if let Some(early) = self.ended_early.iter_mut().rev().find(is_it) {
            early.request.state = State::Sent;
        }
    }

    /// A request, or its answer, was forwarded before it was stored.
    pub(super) fn is_late(&mut self, request_id: String, effects: &mut Vec<Effect>) {
        if self.is_read {
            return effects.push(Effect::keep(LedgerEntry::RequestLate { request_id }));
        }
        let ended = self.ended_early.iter_mut().map(|early| &mut early.request);
        let late = self.open.values_mut().chain(ended).filter(|request| request.row.request_id == request_id);
        late.for_each(|request| request.row.late = true);
    }

    /// Gives a request its row.
    fn place_open(&mut self, now: Now, id: &RpcId, before: &Rows<'_>, clients: &Clients, effects: &mut Vec<Effect>) {
        let Some(request) = self.open.get(id) else { return };
        let is_late = request.row.late;
        match before.of(id) {
            Some(row) if row.digest == request.digest() => self.take_row(now, id, row, effects),
            row => {
                if before.has(&request.row.request_id) {
                    if let State::Deciding(_) = request.state {
                        // The ledger would store it in the row of the other request.
                        self.commits.retain(|_, commit| !matches!(commit, Commit::Decides(of) if of == id));
                        self.decided(now, id, false, clients, effects);
                    }
                    self.open_anew(id, effects);
                }
                self.withdraw_other(now, row, effects);
            }
        }
        if let Some(request) = self.open.get(id) {
            tell_way(now, request, &request.row.request_id, is_late, effects);
        }
    }

    /// The server asks for the same as under the earlier hub.
    fn take_row(&mut self, now: Now, id: &RpcId, row: &OpenBefore, effects: &mut Vec<Effect>) {
        let is_renamed = self.rename(id, &row.request_id) != row.request_id;
        let Some(request) = self.open.get_mut(id) else { return };
        if is_renamed {
            effects.push(opened_note(&request.row, request.withheld.is_some(), false));
        }
        let is_sent = matches!(request.state, State::Answered | State::Sent);
        let Some(answer) = &row.answer else {
            if is_sent && is_renamed {
                self.store_end(id, |end| end, effects);
            }
            return;
        };
        if is_sent {
            let verdict = request.verdict.clone();
            return self.store_end(id, |end| replaces(&end, answer, &verdict), effects);
        }
        if let Some(policy) = self.by_policy.values_mut().find(|policy| policy.end.request_id == row.request_id) {
            policy.end = replaces(&policy.end, answer, &request.verdict);
        } else if answer.line(&row.rpc_request_id, &request.verdict).is_some() {
            self.give_way(now, id, effects);
            self.send_stored(id, answer.clone(), effects);
        } else {
            let (request_id, by) = (row.request_id.clone(), answer.by.clone());
            effects.push(Effect::keep(LedgerEntry::RequestReopened { request_id, by }));
        }
    }

    /// Nobody else answers a request of which the ledger has an answer.
    fn give_way(&mut self, now: Now, id: &RpcId, effects: &mut Vec<Effect>) {
        self.commits.retain(|_, commit| !matches!(commit, Commit::Decides(of) | Commit::Expires(of) if of == id));
        let Some(request) = self.open.get_mut(id) else { return };
        if let State::Deciding(deciding) = std::mem::replace(&mut request.state, State::Pending) {
            deciding.decider.reply(ApiReply::NotOpen, effects);
            let lost = deciding.runner_up.map(|(_, given)| LedgerEntry::AnswerLost(Box::new(given)));
            effects.extend(lost.map(Effect::keep));
            if let Some(why) = deciding.over {
                // The answer of the earlier hub has reached the server.
                effects.extend(later_entry(&why, request.row.request_id.clone(), now.unix_us));
                self.forget(id, LateAnswer::Withhold);
            }
        }
    }

    /// The ledger stores the end of an answered request again. If the answer still waits for the first time, it now waits for
    /// this one.
    fn store_end(&mut self, id: &RpcId, change: impl FnOnce(RequestEnd) -> RequestEnd, effects: &mut Vec<Effect>) {
        let Some(request) = self.open.get_mut(id) else { return };
        let Some(end) = request.end.take().map(|end| change(*end)) else { return };
        request.end = Some(Box::new(end.clone()));
        let is_its = |commit: &Commit| matches!(commit, Commit::GoesOn { request_id } if *request_id == end.request_id);
        let waits = self.commits.iter().find(|(_, commit)| is_its(commit)).map(|(token, _)| *token);
        let entry = LedgerEntry::RequestEnded(Box::new(end));
        effects.push(match waits {
            Some(token) => {
                self.repeated_commits.push(token);
                Effect::Order(Order::KeepFirst(token, entry))
            }
            None => Effect::keep(entry),
        });
    }

    /// Tells the ledger what became of a request that has ended.
    fn place_ended(&mut self, now: Now, early: EndedEarly, before: &mut Rows<'_>, effects: &mut Vec<Effect>) {
        let EndedEarly { id, request, why } = early;
        let later = |name: String| why.and_then(|why| later_entry(&why, name, now.unix_us));
        let name = request.row.request_id.clone();
        let end = request.end.as_deref().cloned();
        let is_answered = end.is_some();
        let name = match before.of(&id) {
            Some(row) if row.digest == request.digest() => {
                before.taken.push(&row.request_id);
                let end = match (&row.answer, end) {
                    // The answer of the earlier hub has reached the server.
                    (Some(_), None) => return effects.extend(later(row.request_id.clone())),
                    (Some(answer), Some(end)) => Some(replaces(&end, answer, &request.verdict)),
                    (None, end) => {
                        end.or_else(|| Some(withdrawn(name.clone(), now))).filter(|_| name != row.request_id)
                    }
                };
                let end = end.map(|end| RequestEnd { request_id: row.request_id.clone(), ..end });
                effects.extend(end.map(|end| Effect::keep(LedgerEntry::RequestEnded(Box::new(end)))));
                row.request_id.clone()
            }
            row => {
                let name = if before.has(&name) { self.open_ended(now, &id, &request, end, effects) } else { name };
                self.withdraw_other(now, row, effects);
                name
            }
        };
        if let Some((ended, _)) = self.ended.names.get_mut(&id).filter(|_| why.is_some()) {
            name.clone_into(ended);
        }
        tell_way(now, &request, &name, request.row.late, effects);
        effects.extend(later(name).filter(|_| is_answered));
    }

    /// Opens a row for a request that has ended and whose name is taken; returns its name.
    fn open_ended(
        &mut self,
        now: Now,
        id: &RpcId,
        request: &Request,
        end: Option<RequestEnd>,
        effects: &mut Vec<Effect>,
    ) -> String {
        let mut row = request.row.clone();
        let Some(generation) = self.generation.clone() else { return row.request_id };
        let name = self.free_name(request_name(&generation, id, &row.rpc_request_id));
        row.late |= request.conns.iter().any(|conn| *conn != Conn::OWN);
        row.request_id.clone_from(&name);
        let request_type = row.kind.request_type().name();
        effects.push(Effect::Note(Note::RequestOpened {
            request_id: name.clone(),
            request_type,
            held: false,
            again: false,
        }));
        effects.push(Effect::keep(LedgerEntry::RequestOpened(Box::new(row))));
        let end = end.unwrap_or_else(|| withdrawn(name.clone(), now));
        resolve(RequestEnd { request_id: name.clone(), ..end }, effects);
        name
    }

    /// The server asks for something else under the id of an open request.
    fn withdraw_other(&mut self, now: Now, row: Option<&OpenBefore>, effects: &mut Vec<Effect>) {
        if let Some(row) = row.filter(|row| row.answer.is_none()) {
            // The ledger may have taken an answer to the other request for one to this.
            resolve(RequestEnd { instead: true, ..withdrawn(row.request_id.clone(), now) }, effects);
        }
    }
}

/// Tells the ledger whether a request was forwarded before it was stored, and whether its answer is written.
fn tell_way(now: Now, request: &Request, name: &str, is_late: bool, effects: &mut Vec<Effect>) {
    if is_late {
        effects.push(Effect::keep(LedgerEntry::RequestLate { request_id: name.to_owned() }));
    }
    if matches!(request.state, State::Sent) {
        let (request_id, at_us) = (name.to_owned(), now.unix_us);
        effects.push(Effect::keep(LedgerEntry::RequestDispatched { request_id, at_us }));
    }
}

fn withdrawn(request_id: String, now: Now) -> RequestEnd {
    RequestEnd::unanswered(request_id, now.unix_us, RequestStatus::Resolved, RequestSource::Server, WITHDRAWN)
}
