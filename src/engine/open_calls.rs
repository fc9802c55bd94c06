//! Open calls: requests to one side that have no response yet, and what each response is for.
//!
//! A response finds its call once: whether it is secret, whose it is, and what it settles are fields of one value.
//!
//! Ids are chosen by the caller, so two open calls may have the same one. A response then completes the oldest call of a
//! client that is there, and is as secret as any of the calls with that id.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::value::RawValue;

use super::assembly::Asked;
use super::context::{Lease, OnTurn, TurnSent};
use super::secrets::{Awaited, Verdict};
use super::turns::Purpose;
use crate::protocol::{Event, Method, request_line};
use crate::wire::{Members, RpcId};

/// Open calls in one direction. If there are more, the oldest one that nothing depends on is forgotten.
pub(super) const CALLS_MAX: usize = 4_096;

/// Secret calls that were completed, and whose ids are remembered until they are used again.
const ANSWERED_MAX: usize = 256;

/// Longest id, in bytes of JSON, that is remembered.
const ID_BYTES_MAX: usize = 1_024;

/// How long a call of a client that has left is told apart: no server takes longer to answer.
const LEFT_MAX: Duration = Duration::from_secs(3_600);

/// The calls in both directions.
#[derive(Debug)]
pub(super) struct Calls {
    /// The ids of our own calls begin with this.
    own_ids: String,
    own_made: u64,
    pub(super) to_server: OpenCalls,
    pub(super) to_client: OpenCalls,
}

/// The calls in one direction, oldest first.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    made: u64,
    calls: VecDeque<OpenCall>,
    /// Ids in lines that cannot be read in one way only: a response to one is secret.
    suspected: Vec<RpcId>,
    /// Completed secret calls, oldest first: a second response is as secret as the first.
    answered: VecDeque<(RpcId, Awaited)>,
    /// A secret call could not be remembered: every response is taken as secret.
    overflowed: bool,
}

/// Names an open call of one direction. A later call has a greater key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallKey(u64);

/// The side that made a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// The client that is there, or the server.
    Peer,
    /// A client that has left, and when.
    Departed(Duration),
    /// The relay itself.
    Relay,
}

/// A request without a response.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) key: CallKey,
    id: RpcId,
    pub(super) caller: Caller,
    pub(super) method: Option<Method>,
    /// The thread of a turn that it starts.
    pub(super) thread_id: Option<String>,
    /// The secret part of the response.
    pub(super) secret: Option<Awaited>,
    /// A turn that carries something, or that a delivery belongs to.
    pub(super) turn: Option<TurnSent>,
    /// Context that the response settles.
    pub(super) lease: Option<Lease>,
    /// What else the response tells of its thread.
    pub(super) asked: Option<Asked>,
    /// What one of our own calls is for.
    pub(super) purpose: Option<Purpose>,
    /// The id as it was written, of a request that only the attached client can answer.
    pub(super) for_client_alone: Option<Box<RawValue>>,
}

/// What a response completes.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) call: Option<Box<OpenCall>>,
    pub(super) verdict: Verdict,
}

impl Calls {
    pub(super) fn new(own_ids: String) -> Calls {
        Calls { own_ids, own_made: 0, to_server: OpenCalls::default(), to_client: OpenCalls::default() }
    }

    /// Makes a call of our own; returns its line. `params` is JSON.
    pub(super) fn call_server(&mut self, method: &str, params: Option<&str>, purpose: Purpose) -> (CallKey, Vec<u8>) {
        self.own_made += 1;
        let id = format!("{}{}", self.own_ids, self.own_made);
        let line = request_line(&id, method, params);
        let key = self.to_server.insert(RpcId::Text(id), Caller::Relay, Method::of(method));
        if let Some(call) = self.to_server.get_mut(key) {
            call.purpose = Some(purpose);
        }
        (key, line)
    }

    /// Has a turn carry its context: returns the call that goes ahead of it, and the line in its place.
    pub(super) fn carry(&mut self, turn: CallKey, on_turn: OnTurn) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let OnTurn { ahead, instead, mut lease, sent } = on_turn;
        let ahead = ahead.map(|params| {
            let (key, line) = self.call_server(Method::ThreadInjectItems.name(), Some(&params), Purpose::Context);
            if let Some(call) = self.to_server.get_mut(key) {
                call.lease = lease.take();
            }
            line
        });
        if let Some(call) = self.to_server.get_mut(turn) {
            (call.turn, call.lease) = (sent, lease);
        }
        (ahead, instead)
    }

    /// Whether an id is one of our own.
    pub(super) fn is_own(&self, id: &RpcId) -> bool {
        match id {
            RpcId::Text(text) => text.starts_with(&self.own_ids),
            RpcId::Integer(_) | RpcId::Other(_) => false,
        }
    }
}

impl OpenCalls {
    /// Opens the call of a peer. `None` if it cannot be remembered.
    pub(super) fn open(&mut self, event: &Event<'_>, secret: Option<Awaited>) -> Option<CallKey> {
        let raw = event.id?;
        if raw.get().len() > ID_BYTES_MAX {
            self.overflowed |= secret.is_some();
            return None;
        }
        let id = RpcId::from_raw(raw);
        if secret.is_none() {
            self.answered.retain(|(answered, _)| *answered != id);
        }
        let key = self.insert(id, Caller::Peer, event.method);
        let Some(call) = self.get_mut(key) else {
            self.overflowed |= secret.is_some();
            return None;
        };
        if event.method == Some(Method::TurnStart) {
            call.thread_id = event.params.and_then(Members::of).and_then(|params| params.text("threadId"));
        }
        call.secret = secret;
        Some(key)
    }

    fn insert(&mut self, id: RpcId, caller: Caller, method: Option<Method>) -> CallKey {
        self.made += 1;
        let key = CallKey(self.made);
        if self.calls.len() >= CALLS_MAX {
            let Some(oldest) = self.calls.iter().position(OpenCall::can_be_forgotten) else { return key };
            self.calls.remove(oldest);
        }
        self.calls.push_back(OpenCall {
            key,
            id,
            caller,
            method,
            thread_id: None,
            secret: None,
            turn: None,
            lease: None,
            asked: None,
            purpose: None,
            for_client_alone: None,
        });
        key
    }

    /// Takes a response to this id as secret. Returns `false` if there is no room for that: then every response is.
    pub(super) fn suspect(&mut self, id: RpcId) -> bool {
        if self.suspected.contains(&id) {
            return true;
        }
        if self.suspected.len() >= CALLS_MAX {
            self.overflowed = true;
            return false;
        }
        self.suspected.push(id);
        true
    }

    /// Takes every response as secret from now on.
    pub(super) fn suspect_all(&mut self) {
        self.overflowed = true;
    }

    /// Whether a secret call could not be remembered.
    pub(super) fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    pub(super) fn get_mut(&mut self, key: CallKey) -> Option<&mut OpenCall> {
        self.calls.iter_mut().rev().find(|call| call.key == key)
    }

    /// The calls that were opened after `key`, oldest first.
    pub(super) fn later_than(&mut self, key: CallKey) -> impl Iterator<Item = &mut OpenCall> {
        self.calls.iter_mut().filter(move |call| call.key > key)
    }

    /// Forgets a call that was not forwarded.
    pub(super) fn forget(&mut self, key: CallKey) {
        self.calls.retain(|call| call.key != key);
    }

    /// The other calls with the id of this one.
    pub(super) fn same_id(&mut self, key: CallKey) -> impl Iterator<Item = &mut OpenCall> {
        let id = self.calls.iter().find(|call| call.key == key).map(|call| call.id.clone());
        self.calls.iter_mut().filter(move |call| call.key != key && Some(&call.id) == id.as_ref())
    }

    /// The client has left: marks its calls.
    pub(super) fn caller_left(&mut self, at: Duration) {
        for call in self.calls.iter_mut().filter(|call| call.caller == Caller::Peer) {
            call.caller = Caller::Departed(at);
        }
    }

    /// Whether a client that left within the last hour has an open call with the id of this one.
    pub(super) fn is_ambiguous(&mut self, key: CallKey, now: Duration) -> bool {
        for call in &mut self.calls {
            if matches!(call.caller, Caller::Departed(at) if now.saturating_sub(at) >= LEFT_MAX) {
                // It is told apart no longer.
                call.caller = Caller::Relay;
            }
        }
        self.same_id(key).any(|call| matches!(call.caller, Caller::Departed(_)))
    }

    /// Completes the call that a response is about.
    pub(super) fn complete(&mut self, response: &Event<'_>) -> Completed {
        let unknown = if self.overflowed { Verdict::Secret } else { Verdict::Open };
        let Some(id) = response.id.filter(|id| id.get().len() <= ID_BYTES_MAX).map(RpcId::from_raw) else {
            return Completed { call: None, verdict: unknown };
        };
        let (call, awaited) = match response.is_response() {
            true => self.settle(&id),
            false => (None, self.secret_of(&id)),
        };
        let verdict = match awaited {
            None => unknown,
            Some(_) if self.overflowed => Verdict::Secret,
            Some(awaited) => awaited.verdict(response),
        };
        Completed { call, verdict }
    }

    /// The caller withdraws a call. The other side may answer it all the same.
    pub(super) fn withdraw(&mut self, id: &RpcId) {
        self.settle(id);
    }

    fn settle(&mut self, id: &RpcId) -> (Option<Box<OpenCall>>, Option<Awaited>) {
        let awaited = self.secret_of(id);
        self.suspected.retain(|suspected| suspected != id);
        let of =
            |is_wanted: fn(Caller) -> bool| self.calls.iter().position(|call| call.id == *id && is_wanted(call.caller));
        let at = of(|caller| caller == Caller::Peer)
            .or_else(|| of(|caller| matches!(caller, Caller::Departed(_))))
            .or_else(|| of(|_| true));
        let call = at.and_then(|at| self.calls.remove(at)).map(Box::new);
        if let Some(awaited) = awaited.clone().filter(|_| !self.answered.iter().any(|(answered, _)| answered == id)) {
            if self.answered.len() == ANSWERED_MAX {
                self.answered.pop_front();
            }
            self.answered.push_back((id.clone(), awaited));
        }
        (call, awaited)
    }

    /// The secret part of a response to this id.
    fn secret_of(&self, id: &RpcId) -> Option<Awaited> {
        let suspected = self.suspected.contains(id).then_some(Awaited::Secret);
        let open = self.calls.iter().filter(|call| call.id == *id).filter_map(|call| call.secret.clone());
        let answered = self.answered.iter().filter(|(answered, _)| answered == id).map(|(_, awaited)| awaited.clone());
        Awaited::of_all(open.chain(suspected)).or_else(|| Awaited::of_all(answered))
    }

    /// Whether a response to any open call would be secret.
    pub(super) fn awaits_secret(&self) -> bool {
        self.overflowed || !self.suspected.is_empty() || self.calls.iter().any(|call| call.secret.is_some())
    }

    /// Ids of completed secret calls.
    pub(super) fn answered(&self) -> impl Iterator<Item = &RpcId> {
        self.answered.iter().map(|(id, _)| id)
    }

    /// The side that was called has ended: no response comes any more.
    pub(super) fn take_all(&mut self) -> VecDeque<OpenCall> {
        self.suspected.clear();
        std::mem::take(&mut self.calls)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenCall> {
        self.calls.iter_mut()
    }
}

impl OpenCall {
    /// Whether nothing but the response's way back depends on it.
    fn can_be_forgotten(&self) -> bool {
        self.secret.is_none() && self.lease.is_none() && self.for_client_alone.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Body;

    fn open(calls: &mut OpenCalls, id: usize) -> Option<CallKey> {
        let line = format!(r#"{{"id":{id},"method":"m"}}"#);
        let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("BUG: a message") };
        calls.open(&Event::of(&message), None)
    }

    fn complete(calls: &mut OpenCalls, id: usize) -> Option<Caller> {
        let line = format!(r#"{{"id":{id},"result":{{}}}}"#);
        let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("BUG: a message") };
        calls.complete(&Event::of(&message)).call.map(|call| call.caller)
    }

    #[test]
    fn oldest_calls_are_forgotten() {
        let mut calls = OpenCalls::default();
        (0..=CALLS_MAX).for_each(|id| assert!(open(&mut calls, id).is_some()));
        assert_eq!((complete(&mut calls, 0), complete(&mut calls, 1)), (None, Some(Caller::Peer)));
    }

    #[test]
    fn calls_of_a_client_that_left_are_told_apart_for_an_hour() {
        let mut calls = OpenCalls::default();
        open(&mut calls, 5);
        calls.caller_left(Duration::ZERO);
        let again = open(&mut calls, 5).expect("BUG: there is room");
        assert!(calls.is_ambiguous(again, LEFT_MAX - Duration::from_secs(1)));
        assert!(!calls.is_ambiguous(again, LEFT_MAX));
    }

    #[test]
    fn response_completes_the_call_of_the_client_that_is_there_first() {
        let mut calls = OpenCalls::default();
        open(&mut calls, 5);
        calls.caller_left(Duration::ZERO);
        open(&mut calls, 5);
        assert_eq!(complete(&mut calls, 5), Some(Caller::Peer));
        assert_eq!(complete(&mut calls, 5), Some(Caller::Departed(Duration::ZERO)));
        assert_eq!(complete(&mut calls, 5), None);
    }
}
