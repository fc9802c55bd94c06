//! Open calls: requests to one side that have no response yet, and the purpose of each response.
//!
//! A response is matched to its call once; the call says whether the response is secret, who receives it, and what it
//! settles.
//!
//! Callers choose ids, so two open calls may share one. A response then completes the oldest call of a connected
//! client, and is as secret as any of the calls with that id.
//!
//! Codex skips an ambiguous line: a batch, text before a message, or a message with a repeated member. Another server may
//! process it and answer with any of the ids in it ([`ids_in`]).

use std::collections::{BTreeSet, VecDeque};
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::as_json::compiled_in::CompiledIn;
use super::assembly::ThreadCall;
use super::context::{Lease, TurnSent};
use super::model::{GivenVariables, OverruledRow, Verdict};
use super::purpose::Purpose;
use super::verdict::Awaited;
use crate::invariants::holds;
use crate::protocol::{Event, Method, ThreadSettings, request_line};
use crate::wire::{Conn, Members, RpcId, elements};

/// Open calls in one direction. If there are more, the oldest one that nothing depends on is evicted.
pub(super) const CALLS_MAX: usize = 4_096;

/// Completed secret calls whose ids are remembered until they are reused.
const ANSWERED_MAX: usize = 256;

/// Longest remembered id, in bytes of JSON.
const ID_BYTES_MAX: usize = 1_024;

/// How long the calls of a departed client are tracked; no server takes longer to answer.
const LEFT_MAX: Duration = Duration::from_secs(3_600);

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Calls {
    /// Prefix of the ids of our own calls.
    own_ids: String,
    own_made: u64,
    pub(super) to_server: OpenCalls,
    pub(super) to_client: OpenCalls,
}

/// The calls of all connections in one direction, oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct OpenCalls {
    made: u64,
    calls: VecDeque<OpenCall>,
    /// Ids in ambiguous lines: a response to one is secret.
    suspected: Vec<(Conn, RpcId)>,
    /// Completed secret calls, oldest first: a second response is as secret as the first.
    answered: VecDeque<(Conn, RpcId, Awaited)>,
    /// Connections of which a secret call could not be remembered: every response on them counts as secret.
    overflowed: BTreeSet<Conn>,
}

/// Identifies an open call of one direction. A later call has a greater key; the default is before all calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct CallKey(u64);

/// The side that made a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Caller {
    /// The connected client, or the server.
    Peer,
    /// A client that has left, and when.
    Departed(Duration),
    /// The relay itself.
    Relay,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OpenCall {
    pub(super) key: CallKey,
    conn: Conn,
    id: RpcId,
    pub(super) caller: Caller,
    pub(super) method: Option<Method>,
    /// The thread of the turn that it starts, or that its client leaves.
    pub(super) thread_id: Option<String>,
    /// What the turn that it starts chooses for its thread, if the server accepts it.
    pub(super) chosen: Option<Box<(String, ThreadSettings)>>,
    /// The secret part of the response.
    pub(super) secret: Option<Awaited>,
    /// The turn it starts, if that turn carries context.
    pub(super) turn: Option<TurnSent>,
    /// Context that the response settles.
    pub(super) lease: Option<Lease>,
    /// It reads a thread with its turns, and the server has not yet told its client that this is deprecated: the parameter that the
    /// notice names.
    #[serde(with = "crate::engine::as_json::compiled_in")]
    reads_whole: Option<CompiledIn>,
    /// Facts about the thread to read from the response.
    pub(super) asked: Option<ThreadCall>,
    pub(super) purpose: Option<Purpose>,
    /// The denial that it overrules.
    pub(super) overrules: Option<Box<OverruledRow>>,
    /// The variables that it gives to a thread.
    pub(super) gives: Option<Box<GivenVariables>>,
    /// The raw id of a request that only the attached client can answer.
    pub(super) for_client_alone: Option<Box<RawValue>>,
}

/// The parameter by which a call reads a thread with its turns; `None` if it does not. Servers since 0.169 tell its client that this
/// is deprecated, and name the parameter.
fn reads_whole<'a>(method: Option<Method>, params: impl Fn() -> Option<Members<'a>>) -> Option<&'static str> {
    let has = |name: &str| params().and_then(|params| params.get(name)).is_some_and(|value| value.get() == "true");
    match method {
        Some(Method::ThreadRead) => has("includeTurns").then_some("includeTurns"),
        Some(Method::ThreadResume | Method::ThreadFork) => (!has("excludeTurns")).then_some("excludeTurns"),
        Some(_) | None => None,
    }
}

/// The thread of a turn that a call starts, and what it chooses for that thread.
fn chosen<'a>(
    method: Option<Method>,
    params: impl Fn() -> Option<Members<'a>>,
) -> Option<Box<(String, ThreadSettings)>> {
    if method != Some(Method::TurnStart) {
        return None;
    }
    let params = params()?;
    Some(Box::new((params.text("threadId")?, ThreadSettings::of(&params)?)))
}

#[derive(Debug)]
pub(super) struct Completed {
    pub(super) call: Option<Box<OpenCall>>,
    pub(super) verdict: Verdict,
}

impl Calls {
    pub(super) fn new(own_ids: String) -> Calls {
        Calls { own_ids, own_made: 0, to_server: OpenCalls::default(), to_client: OpenCalls::default() }
    }

    /// Opens a call of our own on a connection and returns its line. `params` is JSON.
    pub(super) fn call_server(
        &mut self,
        conn: Conn,
        method: &str,
        params: Option<&str>,
        purpose: Purpose,
    ) -> (CallKey, Vec<u8>) {
        self.own_made += 1;
        let id = format!("{}{}", self.own_ids, self.own_made);
        let line = request_line(&id, method, params);
        let key = self.to_server.insert(conn, RpcId::Text(id), Caller::Relay, Method::of(method));
        if let Some(call) = self.to_server.get_mut(key) {
            call.purpose = Some(purpose);
            let params = || params.and_then(Members::of_text);
            call.reads_whole = reads_whole(call.method, params);
            call.chosen = chosen(call.method, params);
            if call.method == Some(Method::ThreadUnsubscribe) {
                call.thread_id = params().and_then(|params| params.text("threadId"));
            }
        }
        (key, line)
    }

    /// Checks the calls of both directions.
    pub(super) fn check(&self) {
        self.to_server.check();
        self.to_client.check();
        holds!("calls.own-are-counted", self.own_made <= self.to_server.made);
        for call in self.to_server.iter() {
            holds!("calls.own-have-ids-of-ours", call.purpose.is_none() || self.is_own(&call.id));
            holds!("calls.own-are-the-relays", call.purpose.is_none() || call.caller == Caller::Relay);
            holds!("calls.only-the-server-asks-a-client-alone", call.for_client_alone.is_none());
            let starts = matches!(call.method, Some(Method::TurnStart | Method::TurnSteer));
            holds!("calls.only-turns-carry-words", call.turn.is_none() || starts);
            let carries = starts || call.method == Some(Method::ThreadInjectItems);
            holds!("calls.only-turns-and-items-carry-context", call.lease.is_none() || carries);
            let overrules = call.method == Some(Method::ThreadApproveDenied);
            holds!("calls.only-approvals-overrule", call.overrules.is_none() || overrules);
            holds!("calls.only-turns-choose-settings", call.chosen.is_none() || call.method == Some(Method::TurnStart));
        }
        for call in self.to_client.iter() {
            holds!("calls.server-carries-no-context", call.lease.is_none() && call.turn.is_none());
            holds!("calls.server-calls-are-not-ours", call.purpose.is_none() && call.caller != Caller::Relay);
            holds!("calls.server-settles-no-thread", call.asked.is_none() && call.overrules.is_none());
            holds!("calls.server-gives-no-variables", call.gives.is_none());
        }
    }

    pub(super) fn is_own(&self, id: &RpcId) -> bool {
        match id {
            RpcId::Text(text) => text.starts_with(&self.own_ids),
            RpcId::Integer(_) | RpcId::Other(_) => false,
        }
    }
}

impl OpenCalls {
    fn check(&self) {
        holds!("calls.within-limit", self.calls.len() <= CALLS_MAX);
        holds!("calls.suspected-within-limit", self.suspected.len() <= CALLS_MAX);
        holds!("calls.answered-within-limit", self.answered.len() <= ANSWERED_MAX);
        holds!("calls.keys-rise", self.calls.iter().is_sorted_by(|one, next| one.key < next.key));
        holds!("calls.keys-were-made", self.calls.back().is_none_or(|call| call.key <= self.last_key()));
    }

    /// The connections of all calls.
    pub(super) fn conns(&self) -> impl Iterator<Item = Conn> {
        self.calls.iter().map(|call| call.conn)
    }

    /// Whether no caller of the control socket waits for an answer.
    pub(super) fn are_at_rest(&self) -> bool {
        self.calls.iter().filter_map(|call| call.purpose.as_ref()).all(|purpose| purpose.caller().is_none())
    }

    /// Opens the call of a peer. Returns `None` if it cannot be remembered.
    pub(super) fn open(&mut self, conn: Conn, event: &Event<'_>, secret: Option<Awaited>) -> Option<CallKey> {
        let raw = event.id?;
        if raw.get().len() > ID_BYTES_MAX {
            self.overflowed.extend(secret.is_some().then_some(conn));
            return None;
        }
        let id = RpcId::from_raw(raw);
        if secret.is_none() {
            self.answered.retain(|(on, answered, _)| *on != conn || *answered != id);
        }
        let key = self.insert(conn, id, Caller::Peer, event.method);
        let Some(call) = self.get_mut(key) else {
            self.overflowed.extend(secret.is_some().then_some(conn));
            return None;
        };
        let params = || event.params.and_then(Members::of);
        call.reads_whole = reads_whole(event.method, params);
        if let Some(Method::TurnStart | Method::TurnSteer | Method::ThreadUnsubscribe) = event.method {
            call.thread_id = params().and_then(|params| params.text("threadId"));
        }
        call.chosen = chosen(event.method, params);
        call.secret = secret;
        Some(key)
    }

    fn insert(&mut self, conn: Conn, id: RpcId, caller: Caller, method: Option<Method>) -> CallKey {
        self.made += 1;
        let key = CallKey(self.made);
        if self.calls.len() >= CALLS_MAX {
            let Some(oldest) = self.calls.iter().position(OpenCall::can_be_forgotten) else { return key };
            self.calls.remove(oldest);
        }
        self.calls.push_back(OpenCall {
            key,
            conn,
            id,
            caller,
            method,
            thread_id: None,
            chosen: None,
            secret: None,
            turn: None,
            lease: None,
            reads_whole: None,
            asked: None,
            purpose: None,
            overrules: None,
            gives: None,
            for_client_alone: None,
        });
        key
    }

    /// The server tells the client of a connection that something is deprecated. Returns who made the first call to read a thread whole
    /// whose parameter the notice names.
    pub(super) fn deprecated(&mut self, conn: Conn, params: Option<&RawValue>) -> Option<Caller> {
        let summary = params.and_then(Members::of)?.text("summary")?;
        let is_named = |call: &OpenCall| call.reads_whole.is_some_and(|name| summary.contains(name));
        let call = self.calls.iter_mut().find(|call| call.conn == conn && is_named(call))?;
        call.reads_whole = None;
        Some(call.caller)
    }

    /// Marks responses to this id as secret. Returns `false` if there is no room left; then every response on the connection
    /// is secret.
    pub(super) fn suspect(&mut self, conn: Conn, id: RpcId) -> bool {
        let suspected = (conn, id);
        if self.suspected.contains(&suspected) {
            return true;
        }
        if self.suspected.len() >= CALLS_MAX {
            self.overflowed.insert(conn);
            return false;
        }
        self.suspected.push(suspected);
        true
    }

    /// Marks every response on a connection as secret from now on.
    pub(super) fn suspect_all(&mut self, conn: Conn) {
        self.overflowed.insert(conn);
    }

    /// Whether a secret call of a connection could not be remembered.
    pub(super) fn has_overflowed(&self, conn: Conn) -> bool {
        self.overflowed.contains(&conn)
    }

    pub(super) fn get_mut(&mut self, key: CallKey) -> Option<&mut OpenCall> {
        self.calls.iter_mut().rev().find(|call| call.key == key)
    }

    /// The call overrules a denial.
    pub(super) fn overrules(&mut self, key: Option<CallKey>, row: Option<OverruledRow>) {
        if let Some(call) = key.and_then(|key| self.get_mut(key)) {
            call.overrules = row.map(Box::new);
        }
    }

    /// The key of the last call, open or not.
    pub(super) fn last_key(&self) -> CallKey {
        CallKey(self.made)
    }

    /// Removes a call that was not forwarded.
    pub(super) fn forget(&mut self, key: CallKey) {
        self.calls.retain(|call| call.key != key);
    }

    /// The other calls with the id of this one.
    pub(super) fn same_id(&mut self, key: Option<CallKey>) -> impl Iterator<Item = &mut OpenCall> {
        let id = self.calls.iter().find(|call| Some(call.key) == key).map(|call| (call.conn, call.id.clone()));
        let has_id = move |call: &OpenCall| id.as_ref().is_some_and(|(conn, id)| call.conn == *conn && call.id == *id);
        self.calls.iter_mut().filter(move |call| Some(call.key) != key && has_id(call))
    }

    /// Marks the calls of a client that has left while its connection to the server stays.
    pub(super) fn caller_left(&mut self, conn: Conn, at: Duration) {
        for call in self.calls.iter_mut().filter(|call| call.conn == conn && call.caller == Caller::Peer) {
            call.caller = Caller::Departed(at);
        }
    }

    /// Whether a client that left within the last hour has an open call with the same id.
    pub(super) fn is_ambiguous(&mut self, key: Option<CallKey>, now: Duration) -> bool {
        for call in &mut self.calls {
            if matches!(call.caller, Caller::Departed(at) if now.saturating_sub(at) >= LEFT_MAX) {
                // Too old to be tracked as the departed client's.
                call.caller = Caller::Relay;
            }
        }
        self.same_id(key).any(|call| matches!(call.caller, Caller::Departed(_)))
    }

    /// Completes the call that a response is about.
    pub(super) fn complete(&mut self, conn: Conn, response: &Event<'_>) -> Completed {
        let has_overflowed = self.has_overflowed(conn);
        let unknown = if has_overflowed { Verdict::Secret } else { Verdict::Open };
        let Some(id) = response.id.filter(|id| id.get().len() <= ID_BYTES_MAX).map(RpcId::from_raw) else {
            return Completed { call: None, verdict: unknown };
        };
        let (call, awaited) = match response.is_response() {
            true => self.settle(conn, &id),
            false => (None, self.secret_of(conn, &id)),
        };
        // A client of a hub may answer what only others were asked.
        let awaited = awaited.or_else(|| call.is_none().then(|| self.secret_on_any(&id)).flatten());
        let verdict = match awaited {
            None => unknown,
            Some(_) if has_overflowed => Verdict::Secret,
            Some(awaited) => awaited.verdict(response),
        };
        Completed { call, verdict }
    }

    /// Removes a call that its caller withdrew. The other side may still answer it.
    pub(super) fn withdraw(&mut self, conn: Conn, id: &RpcId) {
        self.settle(conn, id);
    }

    fn settle(&mut self, conn: Conn, id: &RpcId) -> (Option<Box<OpenCall>>, Option<Awaited>) {
        let awaited = self.secret_of(conn, id);
        self.suspected.retain(|(on, suspected)| *on != conn || suspected != id);
        let of = |is_wanted: fn(Caller) -> bool| {
            self.calls.iter().position(|call| call.conn == conn && call.id == *id && is_wanted(call.caller))
        };
        let at = of(|caller| caller == Caller::Peer)
            .or_else(|| of(|caller| matches!(caller, Caller::Departed(_))))
            .or_else(|| of(|_| true));
        let call = at.and_then(|at| self.calls.remove(at)).map(Box::new);
        if let Some(awaited) = awaited.clone().filter(|_| !self.answered(conn).any(|answered| answered == id)) {
            if self.answered.len() == ANSWERED_MAX {
                self.answered.pop_front();
            }
            self.answered.push_back((conn, id.clone(), awaited));
        }
        (call, awaited)
    }

    /// The secret part of a response to this id on any connection.
    fn secret_on_any(&self, id: &RpcId) -> Option<Awaited> {
        let open = self.calls.iter().filter(|call| call.id == *id).filter_map(|call| call.secret.clone());
        let answered = self.answered.iter().filter(|(_, answered, _)| answered == id);
        Awaited::of_all(open.chain(answered.map(|(_, _, awaited)| awaited.clone())))
    }

    /// The secret part of a response to this id.
    fn secret_of(&self, conn: Conn, id: &RpcId) -> Option<Awaited> {
        let is_suspected = self.suspected.iter().any(|(on, suspected)| *on == conn && suspected == id);
        let suspected = is_suspected.then_some(Awaited::Secret);
        let open = self.calls.iter().filter(|call| call.conn == conn && call.id == *id);
        let open = open.filter_map(|call| call.secret.clone());
        let answered = self.answered.iter().filter(|(on, answered, _)| *on == conn && answered == id);
        let answered = answered.map(|(_, _, awaited)| awaited.clone());
        Awaited::of_all(open.chain(suspected)).or_else(|| Awaited::of_all(answered))
    }

    /// Whether a response to any open call of a connection would be secret.
    pub(super) fn awaits_secret(&self, conn: Conn) -> bool {
        self.has_overflowed(conn)
            || self.suspected.iter().any(|(on, _)| *on == conn)
            || self.calls.iter().any(|call| call.conn == conn && call.secret.is_some())
    }

    /// Ids of completed secret calls of a connection.
    pub(super) fn answered(&self, conn: Conn) -> impl Iterator<Item = &RpcId> {
        self.answered.iter().filter(move |(on, ..)| *on == conn).map(|(_, id, _)| id)
    }

    /// Removes and returns the calls of a connection that has closed.
    pub(super) fn take_all_of(&mut self, conn: Conn) -> VecDeque<OpenCall> {
        self.suspected.retain(|(on, _)| *on != conn);
        self.answered.retain(|(on, ..)| *on != conn);
        self.overflowed.remove(&conn);
        let calls = std::mem::take(&mut self.calls);
        let (of_conn, others): (VecDeque<_>, VecDeque<_>) = calls.into_iter().partition(|call| call.conn == conn);
        self.calls = others;
        of_conn
    }

    /// Removes all calls: the callee has ended.
    pub(super) fn take_all(&mut self) -> VecDeque<OpenCall> {
        self.suspected.clear();
        std::mem::take(&mut self.calls)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &OpenCall> {
        self.calls.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenCall> {
        self.calls.iter_mut()
    }
}

impl OpenCall {
    /// The epoch whose projection the call shows to a thread.
    pub(super) fn epoch_of(&self, thread_id: &str) -> Option<&str> {
        let turn = self.turn.as_ref().filter(|_| self.thread_id.as_deref() == Some(thread_id))?;
        turn.projected.as_ref()?.epoch.as_deref()
    }

    /// Whether evicting the call affects nothing but the routing of its response.
    fn can_be_forgotten(&self) -> bool {
        let carries_context = matches!(self.purpose, Some(Purpose::Fragments { .. }))
            || self.turn.as_ref().is_some_and(|turn| turn.projected.is_some());
        let is_bare = self.secret.is_none() && self.lease.is_none() && self.overrules.is_none();
        is_bare && self.for_client_alone.is_none() && !carries_context
    }
}

/// Ids remembered per line.
const IDS_MAX: usize = 256;

/// Elements of a batch that are inspected.
const ELEMENTS_MAX: usize = 10_000;

/// The ids that a response to a line may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ids {
    These(Vec<RpcId>),
    Unknown,
}

/// Matches an `id` member up to its value, in any notation, including escapes in the name.
static ID_MEMBER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)(?:^|\W)(?:i|\\u0*69)(?:d|\\u0*64)["']?\s*[:=]\s*"#).expect("BUG: it is a regular expression")
});

/// Finds all ids in a line.
pub(super) fn ids_in(line: &[u8]) -> Ids {
    let text = String::from_utf8_lossy(line);
    let ids = match serde_json::from_str::<&RawValue>(&text) {
        Ok(value) => of_messages(value),
        Err(_) => of_text(&text),
    };
    match ids {
        Some(ids) if ids.len() <= IDS_MAX && ids.iter().all(is_whole) => Ids::These(ids),
        Some(_) | None => Ids::Unknown,
    }
}

/// Whether an id is short enough and fully readable.
fn is_whole(id: &RpcId) -> bool {
    match id {
        RpcId::Integer(_) => true,
        RpcId::Text(text) | RpcId::Other(text) => {
            text.len() <= ID_BYTES_MAX && !text.contains(char::REPLACEMENT_CHARACTER)
        }
    }
}

/// The ids of a message or a batch, including all values of a repeated member.
fn of_messages(value: &RawValue) -> Option<Vec<RpcId>> {
    let (mut ids, mut open, mut seen) = (Vec::new(), vec![value], 0);
    while let Some(value) = open.pop() {
        seen += 1;
        if seen > ELEMENTS_MAX || ids.len() > IDS_MAX {
            return None;
        }
        match value.get().as_bytes().first() {
            Some(b'{') => {
                let members = Members::of(value)?;
                members.iter().filter(|(name, _)| *name == "id").for_each(|(_, id)| add(&mut ids, id));
            }
            Some(b'[') => open.extend(elements(value)?),
            Some(_) | None => {}
        }
    }
    Some(ids)
}

/// Possible ids in text that is not valid JSON.
fn of_text(text: &str) -> Option<Vec<RpcId>> {
    let mut ids = Vec::new();
    for found in ID_MEMBER.find_iter(text).take(IDS_MAX + 1) {
        let mut values = serde_json::Deserializer::from_str(&text[found.end()..]).into_iter::<&RawValue>();
        match values.next() {
            Some(Ok(id)) => add(&mut ids, id),
            // For example a string in single quotation marks, or one that is cut off.
            Some(Err(_)) | None => return None,
        }
    }
    Some(ids)
}

fn add(ids: &mut Vec<RpcId>, raw: &RawValue) {
    let id = RpcId::from_raw(raw);
    // A server may answer `1.0` with `1`.
    if let RpcId::Other(written) = &id
        && let Ok(number) = written.parse::<f64>()
        && number.fract() == 0.0
        && number.abs() < 1e15
    {
        ids.push(RpcId::Integer(number as i64));
    }
    ids.push(id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Body;

    fn open(calls: &mut OpenCalls, id: usize) -> Option<CallKey> {
        let line = format!(r#"{{"id":{id},"method":"m"}}"#);
        let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("BUG: a message") };
        calls.open(Conn::OWN, &Event::of(&message), None)
    }

    fn complete(calls: &mut OpenCalls, id: usize) -> Option<Caller> {
        let line = format!(r#"{{"id":{id},"result":{{}}}}"#);
        let Body::Message(message) = Body::parse(line.as_bytes()) else { panic!("BUG: a message") };
        calls.complete(Conn::OWN, &Event::of(&message)).call.map(|call| call.caller)
    }

    #[test]
    fn oldest_calls_are_evicted() {
        let mut calls = OpenCalls::default();
        (0..=CALLS_MAX).for_each(|id| assert!(open(&mut calls, id).is_some()));
        assert_eq!((complete(&mut calls, 0), complete(&mut calls, 1)), (None, Some(Caller::Peer)));
    }

    #[test]
    fn departed_clients_calls_are_tracked_one_hour() {
        let mut calls = OpenCalls::default();
        open(&mut calls, 5);
        calls.caller_left(Conn::OWN, Duration::ZERO);
        let again = open(&mut calls, 5).expect("BUG: there is room");
        assert!(calls.is_ambiguous(Some(again), LEFT_MAX - Duration::from_secs(1)));
        assert!(!calls.is_ambiguous(Some(again), LEFT_MAX));
    }

    #[test]
    fn response_completes_connected_clients_call_first() {
        let mut calls = OpenCalls::default();
        open(&mut calls, 5);
        calls.caller_left(Conn::OWN, Duration::ZERO);
        open(&mut calls, 5);
        assert_eq!(complete(&mut calls, 5), Some(Caller::Peer));
        assert_eq!(complete(&mut calls, 5), Some(Caller::Departed(Duration::ZERO)));
        assert_eq!(complete(&mut calls, 5), None);
    }

    /// Compares the printed ids; `?` stands for any id.
    fn check(line: &str, expect: &[&str]) {
        let shown: Vec<String> = match ids_in(line.as_bytes()) {
            Ids::These(ids) => ids.iter().map(ToString::to_string).collect(),
            Ids::Unknown => vec!["?".to_owned()],
        };
        assert_eq!(shown, expect, "{line}");
    }

    #[test]
    fn batches_and_repeated_members_name_their_ids() {
        check(r#"[{"id":1,"params":{"id":9}},[{"id":"a"}],7,"id"]"#, &["\"a\"", "1"]);
        check(r#"{"id":1,"method":"x","\u0069d":2,"params":[{"id":9}]}"#, &["1", "2"]);
        check(r#"[{"id":1.0},{"id":null}]"#, &["null", "1", "1.0"]);
        check(r#"[{"method":"x"}]"#, &[]);
        check(&format!("[{}]", vec![r#"{"id":1}"#; 300].join(",")), &["?"]);
        check(&format!(r#"[{{"id":"{}"}}]"#, "x".repeat(2_000)), &["?"]);
        check(&format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)), &["?"]);
    }

    #[test]
    fn any_possible_id_in_text_is_found() {
        check(r#"label {"id":13,"method":"x"}"#, &["13"]);
        check(r#"it's {"i\u0064" : "a\"b"} {"ID":2} tail"#, &[r#""a\"b""#, "2"]);
        check(r#"{"id":1,"method":"x""#, &["1"]);
        check(r#"{id: 4, method: "x"}"#, &["4"]);
        check(r#"{'id': 'a'}"#, &["?"]);
        check(r#"{"id":"#, &["?"]);
        check("threadid: 4 and an idea", &[]);
    }
}
