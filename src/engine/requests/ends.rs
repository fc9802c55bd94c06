//! Ends of requests other than an answer, and later events about ended requests.

use std::time::Duration;

use serde_json::value::RawValue;

use super::items::is_same_item;
use super::open::{Commit, ErrorText, LateAnswer, Request, State, Why};
use super::{HOLD_MAX, Requests, resolved_note};
use crate::engine::attached_client::Audience;
use crate::engine::effect::Effect;
use crate::engine::input::Now;
use crate::engine::ledger::{LedgerEntry, RequestEnd, RequestSource, RequestStatus};
use crate::engine::token::Token;
use crate::protocol::RequestPlace;
use crate::wire::{Members, RpcId};

const WITHDRAWN: ErrorText = ("withdrawn_by_server", "the server does not want an answer any more");
const SERVER_EXITED: ErrorText = ("server_exited", "the server ended before there was an answer");

impl Requests {
    /// The server sent `serverRequest/resolved`.
    pub(in crate::engine) fn server_resolved(&mut self, now: Now, params: &RawValue, effects: &mut Vec<Effect>) {
        if let Some(id) = Members::of(params).and_then(|params| params.get("requestId")).map(RpcId::from_raw) {
            self.end(now, &id, &Why::Confirmed, effects);
        }
    }

    /// An item completed, which ends requests about it. Servers of early 2026 report nothing more specific.
    pub(in crate::engine) fn item_completed(&mut self, now: Now, place: &RequestPlace, effects: &mut Vec<Effect>) {
        let of_item = |request: &Request| is_same_item(&request.row.place, place);
        for id in self.ids_where(of_item) {
            self.end(now, &id, &Why::ItemCompleted, effects);
        }
    }

    /// A turn completed, which ends its requests.
    pub(in crate::engine) fn turn_completed(&mut self, now: Now, place: &RequestPlace, effects: &mut Vec<Effect>) {
        let of_turn = |Request { row, .. }: &Request| {
            place.thread_id.is_some()
                && row.place.thread_id == place.thread_id
                && (row.place.turn_id.is_none() || row.place.turn_id == place.turn_id)
        };
        for id in self.ids_where(of_turn) {
            self.end(now, &id, &Why::TurnOver, effects);
        }
    }

    /// The server has ended, and all its output was processed.
    pub(in crate::engine) fn server_ended(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for id in self.ids_where(|_| true) {
            self.end(now, &id, &Why::ServerExited, effects);
        }
        for (token, _) in std::mem::take(&mut self.holds) {
            effects.push(Effect::Release(token));
        }
    }

    /// Expires requests and releases holds whose deadline passed.
    pub(in crate::engine) fn tick(&mut self, now: Now, audience: Audience, effects: &mut Vec<Effect>) {
        let is_over = |(token, until): &(Token, Duration)| (*until <= now.elapsed).then_some(*token);
        for token in self.holds.iter().filter_map(is_over).collect::<Vec<_>>() {
            self.is_trusted = false;
            self.release(token, effects);
            match self.commits.get(&token) {
                Some(Commit::Opens { request_id } | Commit::GoesOn { request_id }) => {
                    let request_id = request_id.clone();
                    self.forward_late(request_id, audience, effects);
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
        for request in self.open.values_mut().filter(|request| matches!(request.state, State::Pending)) {
            if request.notify_at.is_some_and(|at| at <= now.elapsed) {
                request.notify_at = None;
                effects.push(Effect::NotifyPending(request.row.request_id.clone()));
            }
        }
        let is_over = |request: &Request| {
            matches!(request.state, State::Pending) && request.expires_at.is_some_and(|at| at <= now.elapsed)
        };
        // Oldest first, so that the order is deterministic.
        for id in self.ids_where(is_over) {
            let Some(request) = self.open.get_mut(&id) else { continue };
            request.state = State::Expired;
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
        let at_us = now.unix_us;
        let has_followed = !request.answered_before.is_empty();
        let policy_answers = self.by_policy.values().any(|(_, end)| end.request_id == request_id);
        // `serverRequest/resolved` confirms one answer, the other ends confirm all.
        let confirmed = if matches!(why, Why::Confirmed) { 1 } else { usize::MAX };
        for request_id in request.answered_before.drain(..confirmed.min(request.answered_before.len())) {
            effects.extend(later_entry(why, request_id, at_us));
        }
        match (&mut request.state, why) {
            // The server confirmed the answer before this one.
            (State::Deciding(_) | State::Answered | State::Sent, Why::Confirmed) if has_followed => return,
            // Likewise, and policy's answer is on its way.
            (State::Expired, Why::Confirmed) if has_followed && policy_answers => return,
            // The outcome depends on the pending commit.
            (State::Deciding(deciding), _) => {
                deciding.over = Some(*why);
                return;
            }
            (State::Answered | State::Sent, _) => effects.extend(later_entry(why, request_id, at_us)),
            (State::Pending | State::Expired, Why::Confirmed | Why::ItemCompleted | Why::TurnOver) => {
                let end = RequestEnd::unanswered(
                    request_id,
                    at_us,
                    RequestStatus::Resolved,
                    RequestSource::Server,
                    WITHDRAWN,
                );
                effects.push(resolved_note(&end));
                effects.push(Effect::keep(LedgerEntry::RequestEnded(Box::new(end))));
            }
            (State::Pending | State::Expired, Why::ServerExited) => {
                let end = RequestEnd::unanswered(
                    request_id,
                    at_us,
                    RequestStatus::Orphaned,
                    RequestSource::Policy,
                    SERVER_EXITED,
                );
                effects.push(resolved_note(&end));
                effects.push(Effect::keep(LedgerEntry::RequestEnded(Box::new(end))));
            }
        }
        let may_wait = has_followed && matches!(why, Why::Confirmed);
        self.forget(id, if may_wait { LateAnswer::Forward } else { LateAnswer::Withhold });
    }
}

/// The ledger entry for an answered request when the server mentions it again. After the server's exit the row needs none.
fn later_entry(why: &Why, request_id: String, at_us: u64) -> Option<Effect> {
    match why {
        Why::Confirmed | Why::ItemCompleted => Some(Effect::keep(LedgerEntry::RequestConfirmed { request_id, at_us })),
        Why::TurnOver => Some(Effect::keep(LedgerEntry::RequestUncertain { request_id, at_us })),
        Why::ServerExited => None,
    }
}
