//! The player: decides the replies of a server that repeats a tape.
//!
//! *Matching.* A client's request is matched to an unmatched request of its connection on the tape: an equal one; else one
//! that differs only in ids, paths and times; else, unless differences are errors, the one of the same method with the
//! fewest differences. Among equals, the first is taken. If the tape has a request only once and the client repeats it, it
//! gets the same response again. A line that is not a message gets no reply, as from a real server.
//!
//! *Release.* A response is sent when its request is matched. Every other line of the server is sent once the lines of
//! clients that it belongs to ([`Script`]) are matched and all earlier lines of the same thread and connection are sent. So
//! a client may change the order of its requests or omit a read-only one, and a turn that waits for an answer also waits for
//! it here. A line that waits for a client that never came is sent, at the latest, with the next turn of its own client.
//!
//! *Ids in parameters.* A message that names a request of its client (a part of the results of a search, a cancellation) has the
//! id that the client has given to that request.
//!
//! *Requests to several clients.* The first answer counts as the one on the tape, whichever client gives it. An answer of
//! another client to the same request has no effect, as with a real server.
//!
//! *Requests that resolve themselves.* If codex-shim gave the answer in the recording (an API caller's, or a policy's),
//! nothing waits for the client. A client that answers such a request must give the same answer, or it differs: the
//! tape continues with the recorded one. The client's own late answer in the recording had no effect, so it may be
//! omitted.
//!
//! Pure: the player has no clock, and its decisions depend only on the tape and the clients' lines.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::mapping::{Compared, Difference, Mapping, Values};
use super::script::{Script, only_looks};
use super::tape::{EntryKind, ShimAnswer, TapeEntry};
use crate::protocol::{self, Event, Method};
use crate::wire::{Body, Conn, LineEnd, RpcId, Side};

/// JSON-RPC error code of a request that is not on the tape. Source: the range that JSON-RPC 2.0 reserves for servers,
/// without the codes that codex uses itself.
const NOT_ON_TAPE: i32 = -32_050;

/// Limit of the tape's lines that a client's line is compared with.
const CANDIDATES_MAX: usize = 256;

/// Limit of the differences in memory.
const DIFFERENCES_MAX: usize = 1_000;

/// A line that the player sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlayedLine {
    /// The connection on the tape whose client gets it.
    pub conn: Conn,
    /// The line, with its `\n` unless the tape had none.
    pub bytes: Vec<u8>,
    /// The delay after the client's line on the tape, in microseconds.
    pub after_us: u64,
}

/// Whether a difference from the tape is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// A difference is reported and ends the playing.
    Strict,
    /// A difference is tolerated if possible.
    Lenient,
}

/// Plays one tape once, to a client for each of its connections.
#[derive(Debug)]
pub struct Player {
    script: Arc<Script>,
    strictness: Strictness,
    /// By index of an entry: whether a client's line is matched, or a server's line sent.
    done: Vec<bool>,
    /// The connections that have a client or had one.
    taken: BTreeSet<Conn>,
    /// The server's requests that codex-shim answered on the tape and the client has not answered yet.
    resolve_themselves: BTreeSet<usize>,
    /// Which client answered a request.
    answered_by: BTreeMap<RpcId, Conn>,
    /// The ids of the clients' requests, by those on the tape.
    requested: BTreeMap<(Conn, RpcId), Box<RawValue>>,
    /// The last matched line of each connection that moves a thread.
    moved_to: BTreeMap<Conn, usize>,
    /// The clients' unmatched lines. An answer is that of any connection.
    unmatched: BTreeMap<(Option<Conn>, Sort), VecDeque<usize>>,
    /// The server's unsent lines, by connection and thread.
    waiting: BTreeMap<(Conn, Option<String>), VecDeque<usize>>,
    mapping: Mapping,
    differences: Vec<(Conn, Difference)>,
}

impl Player {
    /// A player at the beginning of a tape.
    #[must_use]
    pub fn new(script: Arc<Script>, strictness: Strictness) -> Player {
        let mut unmatched: BTreeMap<(Option<Conn>, Sort), VecDeque<usize>> = BTreeMap::new();
        let mut waiting: BTreeMap<(Conn, Option<String>), VecDeque<usize>> = BTreeMap::new();
        for (index, entry) in script.entries.iter().enumerate() {
            match (entry.from, &entry.kind) {
                (Side::Client, kind) if !script.not_awaited.contains(&index) => {
                    let sort = Sort::of(kind, entry.bytes.as_deref());
                    unmatched.entry(sort.of_conn(entry.conn)).or_default().push_back(index);
                }
                (Side::Client, _) => {}
                (Side::Server, EntryKind::Response { .. }) => {}
                (Side::Server, _) => waiting.entry((entry.conn, entry.thread.clone())).or_default().push_back(index),
            }
        }
        let mut done = vec![false; script.entries.len()];
        script.not_awaited.iter().for_each(|index| done[*index] = true);
        let answered = script.entries.iter().enumerate().filter(|(_, entry)| entry.shim_answer.is_some());
        Player {
            resolve_themselves: answered.map(|(index, _)| index).collect(),
            done,
            taken: BTreeSet::new(),
            answered_by: BTreeMap::new(),
            requested: BTreeMap::new(),
            moved_to: BTreeMap::new(),
            unmatched,
            waiting,
            script,
            strictness,
            mapping: Mapping::default(),
            differences: Vec::new(),
        }
    }

    /// Gives a connection of the tape to a client. Returns the server's lines before the client's first line.
    pub fn join(&mut self, conn: Conn) -> Vec<PlayedLine> {
        self.taken.insert(conn);
        self.release(Vec::new(), 0)
    }

    /// The connections that have a client or had one.
    pub(super) fn taken(&self) -> &BTreeSet<Conn> {
        &self.taken
    }

    /// The server's lines, to all clients, in reply to a line of the client of `conn`, given without its `\n`.
    pub fn take(&mut self, conn: Conn, line: &[u8]) -> Vec<PlayedLine> {
        let (kind, message) = (EntryKind::of(line), Body::parse(line));
        let (params, id) = match &message {
            Body::Message(message) => (message.params.or(message.result).or(message.error), message.id),
            Body::OtherJson | Body::Text | Body::Bytes => (None, None),
        };
        match (kind, id) {
            (EntryKind::Request { method, .. }, Some(id)) => self.request(conn, &method, id, params),
            (EntryKind::Notification { method }, _) => {
                let sort = Sort::Notification(method.clone());
                self.unanswered(conn, &method, params, &sort)
            }
            (EntryKind::Response { id }, _) => self.answer(conn, &id, params),
            (EntryKind::Request { .. } | EntryKind::Other, _) => {
                self.no_message(conn, line);
                Vec::new()
            }
        }
    }

    /// A connection whose client was sent the server's request of this id.
    pub(super) fn asked(&self, id: &RpcId) -> Option<Conn> {
        let found = (0..self.done.len()).rev().find(|index| self.is_asked(*index, id));
        found.map(|index| self.script.entries[index].conn)
    }

    fn is_asked(&self, index: usize, id: &RpcId) -> bool {
        let entry = &self.script.entries[index];
        let is_request = matches!(&entry.kind, EntryKind::Request { id: of, .. } if of == id);
        is_request && entry.from == Side::Server && self.done[index]
    }

    /// The clients' differences from the tape so far, except the lines that they never sent.
    pub fn differences(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().map(|(_, difference)| difference)
    }

    /// The differences of one client; they are not told again.
    pub(super) fn take_differences(&mut self, conn: Conn) -> Vec<Difference> {
        let mut told = Vec::new();
        for (of, difference) in std::mem::take(&mut self.differences) {
            if of == conn { told.push(difference) } else { self.differences.push((of, difference)) }
        }
        told
    }

    /// The lines of a connection that its client has not sent.
    #[must_use]
    pub fn unsent(&self, conn: Conn) -> Vec<Difference> {
        let unsent = self
            .script
            .entries
            .iter()
            .zip(&self.done)
            .filter(|(entry, done)| entry.from == Side::Client && entry.conn == conn && !**done);
        unsent
            .map(|(entry, _)| Difference {
                message: "the client never sent".to_owned(),
                place: String::new(),
                on_tape: Some(told(entry)),
                sent: None,
            })
            .collect()
    }

    /// Handles a line that is not a message; it gets no reply, whether it is on the tape or not.
    fn no_message(&mut self, conn: Conn, line: &[u8]) {
        let on_tape = self.unmatched.get_mut(&Sort::Other(line.to_vec()).of_conn(conn)).and_then(VecDeque::pop_front);
        match on_tape {
            Some(index) => self.done[index] = true,
            None => {
                let line = String::from_utf8_lossy(line).into_owned();
                self.differ(conn, "a line that is no message", Some(line));
            }
        }
    }

    fn request(&mut self, conn: Conn, method: &str, id: &RawValue, params: Option<&RawValue>) -> Vec<PlayedLine> {
        let Some(index) = self.matched(conn, method, params, &Sort::Request(method.to_owned())) else {
            return vec![PlayedLine { conn, bytes: self.refused(conn, method, id, params), after_us: 0 }];
        };
        self.done(index);
        if let EntryKind::Request { id: on_tape, .. } = &self.script.entries[index].kind {
            self.requested.insert((conn, on_tape.clone()), id.to_owned());
        }
        let response = self.script.responses[index];
        let answer = match response {
            None => error(id, &format!("the tape ends before {method} was answered")),
            Some(response) => {
                self.done[response] = true;
                let entry = &self.script.entries[response];
                match (&entry.bytes, protocol::stand_in(method)) {
                    (Some(bytes), _) => answered(&mut self.mapping, bytes, id, entry.end),
                    (None, Some(result)) => stand_in(id, result),
                    (None, None) => error(id, &format!("the tape has the answer to {method} only as omitted")),
                }
            }
        };
        self.release(vec![(response.unwrap_or(index), answer)], index)
    }

    fn answer(&mut self, conn: Conn, id: &RpcId, result: Option<&RawValue>) -> Vec<PlayedLine> {
        let is_asked = |index: &usize| self.script.entries[*index].conn == conn && self.is_asked(*index, id);
        let request = (0..self.done.len()).rev().find(is_asked);
        if let Some(request) = request.filter(|request| self.resolve_themselves.remove(request)) {
            self.compare_with_shim_answer(conn, request, id, result);
            return Vec::new();
        }
        if self.answered_by.get(id).is_some_and(|by| *by != conn) {
            return Vec::new();
        }
        self.answered_by.insert(id.clone(), conn);
        self.unanswered(conn, &format!("the answer to request {id}"), result, &Sort::Response(id.clone()))
    }

    /// Compares the client's answer with codex-shim's recorded one.
    fn compare_with_shim_answer(&mut self, conn: Conn, request: usize, id: &RpcId, result: Option<&RawValue>) {
        let Some(ShimAnswer { bytes: Some(bytes), masked }) = &self.script.entries[request].shim_answer else { return };
        let values = if *masked { Values::MaybeMasked } else { Values::AsSent };
        let sent: Value = result.and_then(|result| serde_json::from_str(result.get()).ok()).unwrap_or(Value::Null);
        let message = format!("the answer to request {id}, which codex-shim answered on the tape,");
        let compared = self.mapping.clone().compare(&message, &params_of(bytes), &sent, values);
        self.differ_in(conn, compared.differences);
    }

    /// Handles a line that needs no reply of its own.
    fn unanswered(&mut self, conn: Conn, message: &str, params: Option<&RawValue>, sort: &Sort) -> Vec<PlayedLine> {
        match self.matched(conn, message, params, sort) {
            Some(index) => {
                self.done(index);
                self.release(Vec::new(), index)
            }
            None => {
                // If the tape has it with a difference, that difference is already reported.
                if self.unmatched.get(&sort.clone().of_conn(conn)).is_none_or(VecDeque::is_empty) {
                    self.differ(conn, message, params.map(|params| params.get().to_owned()));
                }
                Vec::new()
            }
        }
    }

    /// A client's line is matched.
    fn done(&mut self, index: usize) {
        self.done[index] = true;
        let entry = &self.script.entries[index];
        if !entry.kind.method().is_some_and(only_looks) {
            let moved_to = self.moved_to.entry(entry.conn).or_default();
            *moved_to = index.max(*moved_to);
        }
    }

    /// Finds the tape's line for a client's line, and stores their differences.
    fn matched(&mut self, conn: Conn, message: &str, params: Option<&RawValue>, sort: &Sort) -> Option<usize> {
        let key = sort.clone().of_conn(conn);
        let sent: Value = params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or(Value::Null);
        let mut closest: Option<(usize, Mapping, Compared)> = None;
        for (place, index) in self.unmatched.get(&key)?.iter().enumerate().take(CANDIDATES_MAX) {
            let mut mapping = self.mapping.clone();
            let entry = &self.script.entries[*index];
            // A line that the tape omits equals anything.
            let compared = match self.renamed(entry) {
                Some(bytes) => mapping.compare(message, &params_of(&bytes), &sent, entry.values()),
                None => Compared::default(),
            };
            let distance = |compared: &Compared| (compared.differences.len(), compared.learned);
            if closest.as_ref().is_none_or(|(_, _, best)| distance(&compared) < distance(best)) {
                let same = distance(&compared) == (0, 0);
                closest = Some((place, mapping, compared));
                if same {
                    break;
                }
            }
        }
        let (place, mapping, Compared { differences, .. }) = closest?;
        let accepted = differences.is_empty() || self.strictness == Strictness::Lenient;
        self.differ_in(conn, differences);
        if !accepted {
            return None;
        }
        self.mapping = mapping;
        self.unmatched.get_mut(&key)?.remove(place)
    }

    /// Handles a request that the tape does not have again: repeats the earlier response if there is one, else refuses.
    fn refused(&mut self, conn: Conn, method: &str, id: &RawValue, params: Option<&RawValue>) -> Vec<u8> {
        let sent: Value = params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or(Value::Null);
        let of_method =
            |entry: &TapeEntry| entry.from == Side::Client && entry.conn == conn && entry.kind.method() == Some(method);
        let again = self.script.entries.iter().enumerate().find(|(index, entry)| {
            let same = |bytes: Cow<'_, [u8]>| {
                self.mapping.clone().compare(method, &params_of(&bytes), &sent, entry.values()).differences.is_empty()
            };
            of_method(entry) && self.done[*index] && self.renamed(entry).is_none_or(same)
        });
        if self.strictness == Strictness::Lenient
            && let Some((index, _)) = again
            && let Some(response) = self.script.responses[index]
        {
            let TapeEntry { bytes, end, .. } = &self.script.entries[response];
            match (bytes, protocol::stand_in(method)) {
                (Some(bytes), _) => return answered(&mut self.mapping, bytes, id, *end),
                (None, Some(result)) => return stand_in(id, result),
                (None, None) => {}
            }
        }
        let known = self.script.entries.iter().any(of_method);
        let why = match (self.strictness, known) {
            (Strictness::Strict, true) => format!("the tape has no {method} like this one"),
            (Strictness::Lenient, true) => format!("the tape has no further {method}"),
            (_, false) => format!("the tape has no {method}"),
        };
        if !self.differences.iter().any(|(of, difference)| *of == conn && difference.message == method) {
            self.differ(conn, method, Some(sent.to_string()));
        }
        error(id, &why)
    }

    /// The lines to send now that the client's line `cause` is matched, including `first`, in the tape's order.
    fn release(&mut self, first: Vec<(usize, Vec<u8>)>, cause: usize) -> Vec<PlayedLine> {
        let mut going = first;
        let (script, mut waiting) = (Arc::clone(&self.script), std::mem::take(&mut self.waiting));
        for ((conn, _), queue) in waiting.iter_mut().filter(|((conn, _), _)| self.taken.contains(conn)) {
            while let Some(index) = queue.pop_front_if(|index| self.may_go(*conn, *index)) {
                self.done[index] = true;
                let entry = &script.entries[index];
                // A line that the tape omits cannot be sent.
                if let Some(bytes) = self.renamed(entry) {
                    going.push((index, ended(mapped(&mut self.mapping, &bytes), entry.end)));
                }
            }
        }
        self.waiting = waiting;
        going.sort_by_key(|(index, _)| *index);
        let began_us = script.entries.get(cause).map_or(0, |entry| entry.at_us);
        let said = going.into_iter().map(|(index, bytes)| {
            let TapeEntry { conn, at_us, .. } = script.entries[index];
            PlayedLine { conn, bytes, after_us: at_us.saturating_sub(began_us) }
        });
        said.collect()
    }

    /// A line of the tape, with the client's own id for the request that its parameters name.
    fn renamed<'a>(&self, entry: &'a TapeEntry) -> Option<Cow<'a, [u8]>> {
        let line = entry.bytes.as_deref()?;
        if !entry.kind.method().and_then(Method::of).is_some_and(Method::names_client_request) {
            return Some(Cow::Borrowed(line));
        }
        let Body::Message(message) = Body::parse(line) else { return Some(Cow::Borrowed(line)) };
        let named = Event::of(&message).named_request();
        let own = named.and_then(|on_tape| self.requested.get(&(entry.conn, RpcId::from_raw(on_tape))));
        let (Some(on_tape), Some(own)) = (named, own) else { return Some(Cow::Borrowed(line)) };
        let mut renamed = line.to_vec();
        renamed.splice(range_of(line, on_tape), own.get().bytes());
        Some(Cow::Owned(renamed))
    }

    /// Whether the lines that a line of the server belongs to are matched.
    fn may_go(&self, conn: Conn, index: usize) -> bool {
        let causes = self.script.causes[index];
        let is_left_behind = |other: usize| {
            let has_client = self.taken.contains(&self.script.entries[other].conn);
            !has_client && self.moved_to.get(&conn).is_some_and(|moved_to| *moved_to > index)
        };
        causes.own.is_none_or(|own| self.done[own])
            && causes.other.is_none_or(|other| self.done[other] || is_left_behind(other))
    }

    fn differ(&mut self, conn: Conn, message: &str, sent: Option<String>) {
        let difference = Difference { message: message.to_owned(), place: String::new(), on_tape: None, sent };
        self.differ_in(conn, vec![difference]);
    }

    fn differ_in(&mut self, conn: Conn, differences: Vec<Difference>) {
        let room = DIFFERENCES_MAX.saturating_sub(self.differences.len());
        self.differences.extend(differences.into_iter().take(room).map(|difference| (conn, difference)));
    }
}

impl TapeEntry {
    fn values(&self) -> Values {
        if self.masked { Values::MaybeMasked } else { Values::AsSent }
    }
}

/// The kind of a client's line; lines match only within a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    /// A request of this method.
    Request(String),
    /// A notification of this method.
    Notification(String),
    /// The response to the request of this id.
    Response(RpcId),
    /// A line that is not a message.
    Other(Vec<u8>),
}

impl Sort {
    fn of(kind: &EntryKind, line: Option<&[u8]>) -> Sort {
        match kind {
            EntryKind::Request { method, .. } => Sort::Request(method.clone()),
            EntryKind::Notification { method } => Sort::Notification(method.clone()),
            EntryKind::Response { id } => Sort::Response(id.clone()),
            EntryKind::Other => Sort::Other(line.unwrap_or_default().to_vec()),
        }
    }

    /// Lines of this kind that a client of `conn` may send.
    fn of_conn(self, conn: Conn) -> (Option<Conn>, Sort) {
        match self {
            Sort::Response(_) => (None, self),
            Sort::Request(_) | Sort::Notification(_) | Sort::Other(_) => (Some(conn), self),
        }
    }
}

pub(super) fn params_of(line: &[u8]) -> Value {
    let Body::Message(message) = Body::parse(line) else { return Value::Null };
    let params = message.params.or(message.result).or(message.error);
    params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or(Value::Null)
}

/// The bytes of a value in the line that it was read from.
fn range_of(line: &[u8], value: &RawValue) -> Range<usize> {
    let from = value.get().as_ptr().addr() - line.as_ptr().addr();
    from..from + value.get().len()
}

/// A response of the tape with the client's id.
pub(super) fn answered(mapping: &mut Mapping, bytes: &[u8], id: &RawValue, end: LineEnd) -> Vec<u8> {
    let mut line = mapped(mapping, bytes);
    let range = match Body::parse(&line) {
        Body::Message(message) => message.id.map(|on_tape| range_of(&line, on_tape)),
        Body::OtherJson | Body::Text | Body::Bytes => None,
    };
    if let Some(range) = range {
        line.splice(range, id.get().bytes());
    }
    ended(line, end)
}

/// Applies the pairs to a line; reserves the ids in it that stand for themselves.
fn mapped(mapping: &mut Mapping, line: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(line) {
        Ok(text) => {
            let said = mapping.applied(text);
            mapping.hold_ids(&said);
            said.into_bytes()
        }
        Err(_) => line.to_vec(),
    }
}

fn ended(mut line: Vec<u8>, end: LineEnd) -> Vec<u8> {
    if end == LineEnd::Newline {
        line.push(b'\n');
    }
    line
}

fn stand_in(id: &RawValue, result: &str) -> Vec<u8> {
    format!("{{\"id\":{},\"result\":{result}}}\n", id.get()).into_bytes()
}

pub(super) fn error(id: &RawValue, why: &str) -> Vec<u8> {
    let message = Value::String(format!("codex-shim replay: {why}"));
    format!("{{\"id\":{},\"error\":{{\"code\":{NOT_ON_TAPE},\"message\":{message}}}}}\n", id.get()).into_bytes()
}

/// A line of the tape in short form.
fn told(entry: &TapeEntry) -> String {
    match &entry.kind {
        EntryKind::Request { method, id } => format!("{method}, request {id}"),
        EntryKind::Notification { method } => method.clone(),
        EntryKind::Response { id } => format!("the answer to request {id}"),
        EntryKind::Other => "a line that is no message".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{FORMAT, Header, ServerOrigin};
    use crate::replay::tape::{Tape, thread_of};

    /// A tape from lines marked `>` client and `<` server, a millisecond apart; `>!METHOD ID` is an omitted line.
    fn tape(script: &[&str]) -> Tape {
        let header = Header {
            journal: FORMAT,
            session: String::new(),
            generation: String::new(),
            segment: 1,
            at: 0,
            argv: Vec::new(),
            cwd: String::new(),
            codex: ServerOrigin { path: String::new() },
            adopted: false,
            shim: String::new(),
            previous: None,
        };
        let entries = script.iter().zip(1u64..).map(|(line, number)| {
            let (side, text) = line.split_at(1);
            let from = if side == ">" { Side::Client } else { Side::Server };
            let bytes = text.as_bytes().to_vec();
            let (kind, thread) = (EntryKind::of(&bytes), thread_of(&bytes));
            TapeEntry {
                at_us: number * 1_000,
                conn: Conn::OWN,
                from,
                bytes: Some(bytes),
                masked: false,
                shim_answer: None,
                end: LineEnd::Newline,
                kind,
                thread,
            }
        });
        Tape { header, entries: entries.collect() }
    }

    fn playing(tape: Tape, strictness: Strictness) -> Player {
        let mut player = Player::new(Arc::new(Script::of(tape)), strictness);
        assert_eq!(player.join(Conn::OWN), []);
        player
    }

    const TURN: [&str; 12] = [
        r#">{"id":0,"method":"initialize","params":{"clientInfo":{"name":"a"}}}"#,
        r#"<{"id":0,"result":{"userAgent":"a/1"}}"#,
        r#">{"id":1,"method":"thread/start","params":{"cwd":"/tape"}}"#,
        r#"<{"id":1,"result":{"thread":{"id":"T"},"cwd":"/tape"}}"#,
        r#">{"id":2,"method":"turn/start","params":{"threadId":"T","input":[{"text":"hi"}]}}"#,
        r#"<{"id":2,"result":{"turn":{}}}"#,
        r#"<{"id":0,"method":"ask","params":{"threadId":"T"}}"#,
        r#">{"id":3,"method":"thread/list","params":{}}"#,
        r#"<{"id":3,"result":{"data":[]}}"#,
        r#"<{"method":"note","params":{"threadId":"T"}}"#,
        r#">{"id":0,"result":{"decision":"accept"}}"#,
        r#"<{"method":"turn/completed","params":{"threadId":"T"}}"#,
    ];

    /// Plays client lines against a tape; returns the replies to each, joined by ` | `.
    fn play(player: &mut Player, lines: &[&str]) -> Vec<String> {
        let said = |said: Vec<PlayedLine>| {
            let lines = said.iter().map(|said| String::from_utf8_lossy(&said.bytes).trim_end().to_owned());
            lines.collect::<Vec<_>>().join(" | ")
        };
        lines.iter().map(|line| said(player.take(Conn::OWN, line.as_bytes()))).collect()
    }

    #[test]
    fn a_client_that_does_the_same_gets_the_same() {
        let mut player = playing(tape(&TURN), Strictness::Strict);
        let lines: Vec<&str> = TURN.iter().filter_map(|line| line.strip_prefix('>')).collect();
        let said = play(&mut player, &lines);
        assert_eq!(said[2], format!("{} | {} | {}", &TURN[5][1..], &TURN[6][1..], &TURN[9][1..]));
        assert_eq!(said[3], &TURN[8][1..]);
        assert_eq!(said[4], &TURN[11][1..]);
        assert_eq!((player.differences().count(), player.unsent(Conn::OWN)), (0, vec![]));
    }

    #[test]
    fn ids_are_the_client_s_and_paths_are_mapped() {
        let mut player = playing(tape(&TURN), Strictness::Strict);
        let said = play(
            &mut player,
            &[
                r#"{"method":"initialize","id":"req-1","params":{"clientInfo":{"name":"a"}}}"#,
                r#"{"method":"thread/start","id":"req-2","params":{"cwd":"/now"}}"#,
            ],
        );
        assert_eq!(said[0], r#"{"id":"req-1","result":{"userAgent":"a/1"}}"#);
        assert_eq!(said[1], r#"{"id":"req-2","result":{"thread":{"id":"T"},"cwd":"/now"}}"#);
    }

    #[test]
    fn ids_in_parameters_are_the_client_s() {
        let tape = || {
            tape(&[
                r#">{"id":4,"method":"thread/search/stream","params":{"searchTerm":"a"}}"#,
                r#"<{"method":"thread/search/partial","params":{"data":[],"requestId":4}}"#,
                r#">{"id":"s","method":"thread/search/stream","params":{"searchTerm":"b"}}"#,
                r#">{"id":5,"method":"thread/search/cancel","params":{"requestId":"s"}}"#,
                r#"<{"id":5,"result":{}}"#,
                r#">{"id":6,"method":"thread/search/stream/cancel","params":{"requestId":4}}"#,
                r#"<{"id":6,"result":{}}"#,
                r#"<{"method":"thread/search/partial","params":{"requestId":"s","data":[1]}}"#,
                r#"<{"id":4,"result":{"data":[]}}"#,
                r#"<{"id":"s","result":{"data":[]}}"#,
                r#"<{"method":"serverRequest/resolved","params":{"requestId":4}}"#,
            ])
        };
        let cancel = |id: &str| format!(r#"{{"id":9,"method":"thread/search/cancel","params":{{"requestId":{id}}}}}"#);
        let searches = [
            r#"{"id":"x","method":"thread/search/stream","params":{"searchTerm":"a"}}"#,
            r#"{"id":7,"method":"thread/search/stream","params":{"searchTerm":"b"}}"#,
        ];
        let mut player = playing(tape(), Strictness::Strict);
        let said = play(&mut player, &searches);
        assert_eq!(
            said[0],
            r#"{"method":"thread/search/partial","params":{"data":[],"requestId":"x"}} | {"id":"x","result":{"data":[]}}"#
        );
        let said = play(
            &mut player,
            &[&cancel("7"), r#"{"id":8,"method":"thread/search/stream/cancel","params":{"requestId":"x"}}"#],
        );
        assert_eq!(said[0], r#"{"id":9,"result":{}}"#);
        assert_eq!(
            said[1],
            concat!(
                r#"{"id":8,"result":{}} | {"method":"thread/search/partial","params":{"requestId":7,"data":[1]}} | "#,
                r#"{"method":"serverRequest/resolved","params":{"requestId":4}}"#
            )
        );
        assert_eq!((player.differences().count(), player.unsent(Conn::OWN)), (0, vec![]));
        // Another request is a difference.
        let mut player = playing(tape(), Strictness::Strict);
        play(&mut player, &searches);
        assert!(play(&mut player, &[&cancel("\"x\"")])[0].contains("no thread/search/cancel like this one"));
    }

    #[test]
    fn masked_line_matches_what_was_sent() {
        let on_tape = [
            r#">{"id":1,"method":"thread/start","params":{"config":{"env":{"A":"[redacted]***","B":"***"}},"cwd":"/w"}}"#,
            r#"<{"id":1,"result":{"thread":{"id":"T"}}}"#,
        ];
        let sent = [r#"{"id":1,"method":"thread/start","params":{"config":{"env":{"A":"real","B":"x"}},"cwd":"/w"}}"#];
        let mut masked = tape(&on_tape);
        masked.entries[0].masked = true;
        let mut player = playing(masked, Strictness::Strict);
        assert_eq!(play(&mut player, &sent), [&on_tape[1][1..]]);
        let mut player = playing(tape(&on_tape), Strictness::Strict);
        play(&mut player, &sent);
        assert_eq!(player.differences().count(), 2);
    }

    #[test]
    fn a_look_may_be_left_out_and_an_answer_may_not() {
        let mut player = playing(tape(&TURN), Strictness::Lenient);
        let said = play(
            &mut player,
            &[
                r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"b"}}}"#,
                r#"{"id":1,"method":"thread/start","params":{"cwd":"/tape"}}"#,
                r#"{"id":2,"method":"turn/start","params":{"threadId":"T","input":[{"text":"other words"}]}}"#,
                r#"{"id":0,"result":{"decision":"decline"}}"#,
            ],
        );
        assert!(said[2].ends_with(&TURN[9][1..]), "{}", said[2]);
        assert!(!said[2].contains("turn/completed"));
        assert_eq!(said[3], &TURN[11][1..]);
        assert_eq!(player.differences().count(), 3);
        assert_eq!(player.unsent(Conn::OWN).len(), 1);
    }

    #[test]
    fn what_is_asked_again_is_answered_again_and_what_is_not_there_is_refused() {
        let mut player = playing(tape(&TURN), Strictness::Lenient);
        let said = play(
            &mut player,
            &[
                r#"{"id":7,"method":"thread/list","params":{}}"#,
                r#"{"id":8,"method":"thread/list","params":{}}"#,
                r#"{"id":9,"method":"model/list"}"#,
            ],
        );
        assert_eq!(said[0], r#"{"id":7,"result":{"data":[]}}"#);
        assert_eq!(said[1], r#"{"id":8,"result":{"data":[]}}"#);
        let refused = r#"{"id":9,"error":{"code":-32050,"message":"codex-shim replay: the tape has no model/list"}}"#;
        assert_eq!(said[2], refused);
    }

    #[test]
    fn a_strict_player_refuses_what_differs() {
        let mut player = playing(tape(&TURN), Strictness::Strict);
        let said = play(&mut player, &[r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"b"}}}"#]);
        assert!(said[0].contains("no initialize like this one"), "{}", said[0]);
        assert_eq!(player.differences().next().unwrap().place, "params.clientInfo.name");
    }

    #[test]
    fn the_same_is_looked_for_before_what_could_be_taken_for_it() {
        let tape = tape(&[
            r#">{"id":0,"method":"fs/read","params":{"path":"/p/a"}}"#,
            r#"<{"id":0,"result":"A"}"#,
            r#">{"id":1,"method":"fs/read","params":{"path":"/p/b"}}"#,
            r#"<{"id":1,"result":"B"}"#,
        ]);
        let mut player = playing(tape, Strictness::Strict);
        let said = play(
            &mut player,
            &[
                r#"{"id":0,"method":"fs/read","params":{"path":"/p/b"}}"#,
                r#"{"id":1,"method":"fs/read","params":{"path":"/p/a"}}"#,
            ],
        );
        assert_eq!(said, [r#"{"id":0,"result":"B"}"#, r#"{"id":1,"result":"A"}"#]);
    }

    #[test]
    fn two_threads_are_never_taken_for_each_other() {
        let thread = |letter: &str| format!("00000000-0000-7000-8000-00000000000{letter}");
        let start = |id: u32| format!(r#">{{"id":{id},"method":"thread/start","params":{{}}}}"#);
        let started = |id: u32, of: &str| format!(r#"<{{"id":{id},"result":{{"thread":{{"id":"{}"}}}}}}"#, thread(of));
        let turn = |id: u32, of: &str| {
            format!(r#">{{"id":{id},"method":"turn/start","params":{{"threadId":"{}","input":"go"}}}}"#, thread(of))
        };
        let note = |of: &str| format!(r#"<{{"method":"note","params":{{"threadId":"{}","i":"{of}"}}}}"#, thread(of));
        let script =
            [start(0), started(0, "a"), start(1), started(1, "b"), turn(2, "b"), note("b"), turn(3, "a"), note("a")];
        let mut player = playing(tape(&script.each_ref().map(String::as_str)), Strictness::Strict);
        let sent = [start(0), start(1), turn(2, "a"), turn(3, "b")];
        let said = play(&mut player, &sent.each_ref().map(|line| &line[1..]));
        assert!(said[2].contains(&note("a")[1..]) && !said[2].contains(&note("b")[1..]), "{}", said[2]);
        assert!(said[3].contains(&note("b")[1..]), "{}", said[3]);
        assert_eq!(player.differences().count(), 0);
    }

    #[test]
    fn lines_that_are_no_messages_and_requests_that_are_not_played_hold_nothing_up() {
        let mut tape = tape(&[
            r#">{"method":"initialized"}"#,
            ">",
            ">[1]",
            r#"<{"method":"first"}"#,
            r#"<{"id":0,"method":"attestation/generate"}"#,
            r#">{"id":0,"result":{}}"#,
            r#"<{"method":"second"}"#,
        ]);
        tape.entries[4].bytes = None;
        let mut player = playing(tape, Strictness::Strict);
        let said = play(&mut player, &[r#"{"method":"initialized"}"#, "", "[1]"]);
        assert_eq!(said, [r#"{"method":"first"} | {"method":"second"}"#, "", ""]);
        assert_eq!((player.differences().count(), player.unsent(Conn::OWN)), (0, vec![]));
    }

    #[test]
    fn what_the_tape_has_only_as_omitted_is_told() {
        let mut tape = tape(&TURN);
        tape.entries[1].bytes = None;
        let mut player = playing(tape, Strictness::Strict);
        let said = play(&mut player, &[&TURN[0][1..]]);
        assert!(said[0].contains("the answer to initialize only as omitted"), "{}", said[0]);
    }
}
