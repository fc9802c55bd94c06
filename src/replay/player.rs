//! The player: decides the replies of a server that repeats a tape.
//!
//! *Matching.* A client's request is matched to an unmatched request of the tape: an equal one; else one that differs
//! only in ids, paths and times; else, unless differences are errors, the one of the same method with the fewest
//! differences. Among equals, the first is taken. If the tape has a request only once and the client repeats it, it
//! gets the same response again. A line that is not a message gets no reply, as from a real server.
//!
//! *Release.* A response is sent when its request is matched. Every other line of the server belongs to a line of the
//! client: the last earlier one that moves its thread (starts it or a turn of it, answers one of its requests), else
//! the last one that moves any thread. It is sent once that line is matched and all earlier lines of the same thread
//! are sent. So a client may change the order of its requests or omit a read-only one, and a turn that waits for an
//! answer also waits for it here.
//!
//! *Requests that resolve themselves.* If codex-shim gave the answer in the recording (an API caller's, or a policy's),
//! nothing waits for the client. A client that answers such a request must give the same answer, or it differs: the
//! tape continues with the recorded one. The client's own late answer in the recording had no effect, so it may be
//! omitted.
//!
//! Pure: the player has no clock, and its decisions depend only on the tape and the client's lines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;
use serde_json::value::RawValue;

use super::mapping::{Compared, Difference, Mapping, Values};
use super::tape::{Entry, EntryKind, ShimAnswer, Tape};
use crate::wire::{Body, LineEnd, RpcId, Side};

/// JSON-RPC error code of a request that is not on the tape. Source: the range that JSON-RPC 2.0 reserves for servers,
/// without the codes that codex uses itself.
const NOT_ON_TAPE: i32 = -32_050;

/// Limit of the tape's lines that a client's line is compared with.
const CANDIDATES_MAX: usize = 256;

/// A line that the player sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
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

/// Plays one tape to one client.
#[derive(Debug)]
pub struct Player {
    entries: Vec<Entry>,
    strictness: Strictness,
    /// By index of an entry: whether a client's line is matched, or a server's line sent.
    done: Vec<bool>,
    /// For a client's request, its response; for a server's line, the client's line that it belongs to.
    linked: Vec<Option<usize>>,
    /// The server's requests that codex-shim answered on the tape and the client has not answered yet.
    resolve_themselves: BTreeSet<usize>,
    /// The client's unmatched lines, by kind.
    unmatched: BTreeMap<Sort, VecDeque<usize>>,
    /// The server's unsent lines, by thread.
    waiting: BTreeMap<Option<String>, VecDeque<usize>>,
    mapping: Mapping,
    differences: Vec<Difference>,
}

impl Player {
    /// A player at the beginning of `tape`.
    #[must_use]
    pub fn new(tape: Tape, strictness: Strictness) -> Player {
        let entries = tape.entries;
        let Links { linked, not_awaited } = links(&entries);
        let mut unmatched: BTreeMap<Sort, VecDeque<usize>> = BTreeMap::new();
        let mut waiting: BTreeMap<Option<String>, VecDeque<usize>> = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            match (entry.from, &entry.kind) {
                (Side::Client, kind) if !not_awaited.contains(&index) => {
                    unmatched.entry(Sort::of(kind, entry.bytes.as_deref())).or_default().push_back(index);
                }
                (Side::Client, _) => {}
                (Side::Server, EntryKind::Response { .. }) => {}
                (Side::Server, _) => waiting.entry(entry.thread.clone()).or_default().push_back(index),
            }
        }
        let mut done = vec![false; entries.len()];
        not_awaited.iter().for_each(|index| done[*index] = true);
        let answered = entries.iter().enumerate().filter(|(_, entry)| entry.shim_answer.is_some());
        Player {
            resolve_themselves: answered.map(|(index, _)| index).collect(),
            done,
            linked,
            unmatched,
            waiting,
            entries,
            strictness,
            mapping: Mapping::default(),
            differences: Vec::new(),
        }
    }

    /// The server's lines before the client's first line.
    pub fn begin(&mut self) -> Vec<Said> {
        self.release(Vec::new(), 0)
    }

    /// The server's lines in reply to a line of the client, given without its `\n`.
    pub fn take(&mut self, line: &[u8]) -> Vec<Said> {
        let (kind, message) = (EntryKind::of(line), Body::parse(line));
        let (params, id) = match &message {
            Body::Message(message) => (message.params.or(message.result).or(message.error), message.id),
            Body::OtherJson | Body::Text | Body::Bytes => (None, None),
        };
        match (kind, id) {
            (EntryKind::Request { method, .. }, Some(id)) => self.request(&method, id, params),
            (EntryKind::Notification { method }, _) => self.notification(&method, params),
            (EntryKind::Response { id }, _) => self.answer(&id, params),
            (EntryKind::Request { .. } | EntryKind::Other, _) => {
                self.no_message(line);
                Vec::new()
            }
        }
    }

    /// The client's differences from the tape so far, except the lines that it never sent.
    #[must_use]
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// The lines of the tape that the client has not sent.
    #[must_use]
    pub fn unsent(&self) -> Vec<Difference> {
        let unsent = self.entries.iter().zip(&self.done).filter(|(entry, done)| entry.from == Side::Client && !**done);
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
    fn no_message(&mut self, line: &[u8]) {
        let on_tape = self.unmatched.get_mut(&Sort::Other(line.to_vec())).and_then(VecDeque::pop_front);
        match on_tape {
            Some(index) => self.done[index] = true,
            None => self.differ("a line that is no message", None, Some(String::from_utf8_lossy(line).into_owned())),
        }
    }

    fn request(&mut self, method: &str, id: &RawValue, params: Option<&RawValue>) -> Vec<Said> {
        let Some(index) = self.matched(method, params, &Sort::Request(method.to_owned())) else {
            return self.refused(method, id, params);
        };
        self.done[index] = true;
        let answer = match self.linked[index] {
            None => error(id, &format!("the tape ends before {method} was answered")),
            Some(answer) => {
                self.done[answer] = true;
                match &self.entries[answer].bytes {
                    Some(bytes) => Player::answered(&mut self.mapping, bytes, id, self.entries[answer].end),
                    None => error(id, &format!("the tape has the answer to {method} only as omitted")),
                }
            }
        };
        let at = self.linked[index].unwrap_or(index);
        self.release(vec![(at, answer)], index)
    }

    fn notification(&mut self, method: &str, params: Option<&RawValue>) -> Vec<Said> {
        self.unanswered(method, params, &Sort::Notification(method.to_owned()))
    }

    fn answer(&mut self, id: &RpcId, result: Option<&RawValue>) -> Vec<Said> {
        let is_asked = |index: usize| {
            let is_request = matches!(&self.entries[index].kind, EntryKind::Request { id: of, .. } if of == id);
            is_request && self.entries[index].from == Side::Server && self.done[index]
        };
        let request = (0..self.entries.len()).rev().find(|index| is_asked(*index));
        if let Some(request) = request.filter(|request| self.resolve_themselves.remove(request)) {
            self.compare_with_shim_answer(request, id, result);
            return Vec::new();
        }
        self.unanswered(&format!("the answer to request {id}"), result, &Sort::Response(id.clone()))
    }

    /// Compares the client's answer with codex-shim's recorded one.
    fn compare_with_shim_answer(&mut self, request: usize, id: &RpcId, result: Option<&RawValue>) {
        let Some(ShimAnswer { bytes: Some(bytes), masked }) = &self.entries[request].shim_answer else { return };
        let values = if *masked { Values::MaybeMasked } else { Values::AsSent };
        let sent: Value = result.and_then(|result| serde_json::from_str(result.get()).ok()).unwrap_or(Value::Null);
        let message = format!("the answer to request {id}, which codex-shim answered on the tape,");
        let compared = self.mapping.clone().compare(&message, &params_of(bytes), &sent, values);
        self.differences.extend(compared.differences);
    }

    /// Handles a line that needs no reply of its own.
    fn unanswered(&mut self, message: &str, params: Option<&RawValue>, sort: &Sort) -> Vec<Said> {
        match self.matched(message, params, sort) {
            Some(index) => {
                self.done[index] = true;
                self.release(Vec::new(), index)
            }
            None => {
                // If the tape has it with a difference, that difference is already reported.
                if self.unmatched.get(sort).is_none_or(VecDeque::is_empty) {
                    self.differ(message, None, params.map(|params| params.get().to_owned()));
                }
                Vec::new()
            }
        }
    }

    /// Finds the tape's line for a client's line, and stores their differences.
    fn matched(&mut self, message: &str, params: Option<&RawValue>, sort: &Sort) -> Option<usize> {
        let sent: Value = params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or(Value::Null);
        let mut closest: Option<(usize, Mapping, Compared)> = None;
        for (place, index) in self.unmatched.get(sort)?.iter().enumerate().take(CANDIDATES_MAX) {
            let mut mapping = self.mapping.clone();
            // A line that the tape omits equals anything.
            let compared = match &self.entries[*index].bytes {
                Some(bytes) => mapping.compare(message, &params_of(bytes), &sent, self.entries[*index].values()),
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
        self.differences.extend(differences);
        if !accepted {
            return None;
        }
        self.mapping = mapping;
        self.unmatched.get_mut(sort)?.remove(place)
    }

    /// Handles a request that the tape does not have again: repeats the earlier response if there is one, else refuses.
    fn refused(&mut self, method: &str, id: &RawValue, params: Option<&RawValue>) -> Vec<Said> {
        let sent: Value = params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or(Value::Null);
        let again = self.entries.iter().enumerate().find(|(index, entry)| {
            let same_method = entry.from == Side::Client && entry.kind.method() == Some(method);
            let same = |bytes| {
                self.mapping.clone().compare(method, &params_of(bytes), &sent, entry.values()).differences.is_empty()
            };
            same_method && self.done[*index] && entry.bytes.as_deref().is_some_and(same)
        });
        if self.strictness == Strictness::Lenient
            && let Some((index, _)) = again
            && let Some(answer) = self.linked[index]
            && let Some(bytes) = &self.entries[answer].bytes
        {
            let bytes = Player::answered(&mut self.mapping, bytes, id, self.entries[answer].end);
            return vec![Said { bytes, after_us: 0 }];
        }
        let known = self.entries.iter().any(|entry| entry.from == Side::Client && entry.kind.method() == Some(method));
        let why = match (self.strictness, known) {
            (Strictness::Strict, true) => format!("the tape has no {method} like this one"),
            (Strictness::Lenient, true) => format!("the tape has no further {method}"),
            (_, false) => format!("the tape has no {method}"),
        };
        if !self.differences.iter().any(|difference| difference.message == method) {
            self.differ(method, None, Some(sent.to_string()));
        }
        vec![Said { bytes: error(id, &why), after_us: 0 }]
    }

    /// The lines to send now that the client's line `cause` is matched, including `first`, in the tape's order.
    fn release(&mut self, first: Vec<(usize, Vec<u8>)>, cause: usize) -> Vec<Said> {
        let mut going = first;
        for queue in self.waiting.values_mut() {
            while let Some(&index) = queue.front() {
                if !self.linked[index].is_none_or(|line| self.done[line]) {
                    break;
                }
                queue.pop_front();
                self.done[index] = true;
                let entry = &self.entries[index];
                // A line that the tape omits cannot be sent.
                if let Some(bytes) = &entry.bytes {
                    going.push((index, ended(mapped(&mut self.mapping, bytes), entry.end)));
                }
            }
        }
        going.sort_by_key(|(index, _)| *index);
        let began_us = self.entries.get(cause).map_or(0, |entry| entry.at_us);
        going
            .into_iter()
            .map(|(index, bytes)| Said { bytes, after_us: self.entries[index].at_us.saturating_sub(began_us) })
            .collect()
    }

    /// A response of the tape with the client's id.
    fn answered(mapping: &mut Mapping, bytes: &[u8], id: &RawValue, end: LineEnd) -> Vec<u8> {
        let mut line = mapped(mapping, bytes);
        let range = match Body::parse(&line) {
            Body::Message(message) => message.id.map(|on_tape| {
                let from = on_tape.get().as_ptr().addr() - line.as_ptr().addr();
                from..from + on_tape.get().len()
            }),
            Body::OtherJson | Body::Text | Body::Bytes => None,
        };
        if let Some(range) = range {
            line.splice(range, id.get().bytes());
        }
        ended(line, end)
    }

    fn differ(&mut self, message: &str, on_tape: Option<String>, sent: Option<String>) {
        self.differences.push(Difference { message: message.to_owned(), place: String::new(), on_tape, sent });
    }
}

impl Entry {
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
}

/// How the lines of a tape belong together.
struct Links {
    /// For a client's request, its response; for a server's line, the client's line that it belongs to.
    linked: Vec<Option<usize>>,
    /// The client's answers that no line waits for: to requests that the tape omits, and to those that codex-shim
    /// answered.
    not_awaited: BTreeSet<usize>,
}

fn links(entries: &[Entry]) -> Links {
    let mut linked = vec![None; entries.len()];
    let mut not_awaited = BTreeSet::new();
    let mut unanswered: BTreeMap<RpcId, usize> = BTreeMap::new();
    let mut asked: BTreeMap<RpcId, usize> = BTreeMap::new();
    let mut moves = Moves::default();
    for (index, entry) in entries.iter().enumerate() {
        match (entry.from, &entry.kind) {
            (Side::Client, EntryKind::Request { method, id }) => {
                unanswered.insert(id.clone(), index);
                if !only_looks(method) {
                    moves.by(index, entry.thread.as_ref());
                }
            }
            (Side::Client, EntryKind::Response { id }) => match asked.remove(id).map(|request| &entries[request]) {
                Some(Entry { bytes: None, .. } | Entry { shim_answer: Some(_), .. }) => drop(not_awaited.insert(index)),
                request => moves.by(index, request.and_then(|request| request.thread.as_ref())),
            },
            (Side::Client, EntryKind::Notification { .. }) => moves.by(index, entry.thread.as_ref()),
            (Side::Client, EntryKind::Other) => {}
            (Side::Server, EntryKind::Response { id }) => {
                if let Some(request) = unanswered.remove(id) {
                    linked[request] = Some(index);
                    linked[index] = Some(request);
                    let method = entries[request].kind.method().unwrap_or_default();
                    if let (Some(thread), false) = (&entry.thread, only_looks(method)) {
                        moves.last_of.entry(thread.clone()).or_insert(request);
                    }
                }
            }
            (Side::Server, kind) => {
                if let EntryKind::Request { id, .. } = kind {
                    asked.insert(id.clone(), index);
                }
                let of_thread = entry.thread.as_ref().and_then(|thread| moves.last_of.get(thread).copied());
                linked[index] = of_thread.or(moves.last);
            }
        }
    }
    Links { linked, not_awaited }
}

/// The client's lines that moved a thread, while a tape is read.
#[derive(Default)]
struct Moves {
    last: Option<usize>,
    last_of: BTreeMap<String, usize>,
}

impl Moves {
    fn by(&mut self, index: usize, thread: Option<&String>) {
        self.last = Some(index);
        if let Some(thread) = thread {
            self.last_of.insert(thread.clone(), index);
        }
    }
}

/// Whether a request is read-only, judged by the last word of its method.
fn only_looks(method: &str) -> bool {
    matches!(method.rsplit('/').next(), Some("list" | "read" | "get" | "search" | "searchOccurrences" | "status"))
}

fn params_of(line: &[u8]) -> Value {
    let Body::Message(message) = Body::parse(line) else { return Value::Null };
    let params = message.params.or(message.result).or(message.error);
    params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or(Value::Null)
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

fn error(id: &RawValue, why: &str) -> Vec<u8> {
    let message = Value::String(format!("codex-shim replay: {why}"));
    format!("{{\"id\":{},\"error\":{{\"code\":{NOT_ON_TAPE},\"message\":{message}}}}}\n", id.get()).into_bytes()
}

/// A line of the tape in short form.
fn told(entry: &Entry) -> String {
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
    use crate::replay::tape::thread_of;

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
            Entry {
                at_us: number * 1_000,
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
        let said = |said: Vec<Said>| {
            let lines = said.iter().map(|said| String::from_utf8_lossy(&said.bytes).trim_end().to_owned());
            lines.collect::<Vec<_>>().join(" | ")
        };
        lines.iter().map(|line| said(player.take(line.as_bytes()))).collect()
    }

    #[test]
    fn a_client_that_does_the_same_gets_the_same() {
        let mut player = Player::new(tape(&TURN), Strictness::Strict);
        let lines: Vec<&str> = TURN.iter().filter_map(|line| line.strip_prefix('>')).collect();
        let said = play(&mut player, &lines);
        assert_eq!(said[2], format!("{} | {} | {}", &TURN[5][1..], &TURN[6][1..], &TURN[9][1..]));
        assert_eq!(said[3], &TURN[8][1..]);
        assert_eq!(said[4], &TURN[11][1..]);
        assert_eq!((player.differences(), player.unsent()), (&[][..], vec![]));
    }

    #[test]
    fn ids_are_the_client_s_and_paths_are_mapped() {
        let mut player = Player::new(tape(&TURN), Strictness::Strict);
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
    fn masked_line_matches_what_was_sent() {
        let on_tape = [
            r#">{"id":1,"method":"thread/start","params":{"config":{"env":{"A":"[redacted]***","B":"***"}},"cwd":"/w"}}"#,
            r#"<{"id":1,"result":{"thread":{"id":"T"}}}"#,
        ];
        let sent = [r#"{"id":1,"method":"thread/start","params":{"config":{"env":{"A":"real","B":"x"}},"cwd":"/w"}}"#];
        let mut masked = tape(&on_tape);
        masked.entries[0].masked = true;
        let mut player = Player::new(masked, Strictness::Strict);
        assert_eq!(play(&mut player, &sent), [&on_tape[1][1..]]);
        let mut player = Player::new(tape(&on_tape), Strictness::Strict);
        play(&mut player, &sent);
        assert_eq!(player.differences().len(), 2);
    }

    #[test]
    fn a_look_may_be_left_out_and_an_answer_may_not() {
        let mut player = Player::new(tape(&TURN), Strictness::Lenient);
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
        assert_eq!(player.differences().len(), 3);
        assert_eq!(player.unsent().len(), 1);
    }

    #[test]
    fn what_is_asked_again_is_answered_again_and_what_is_not_there_is_refused() {
        let mut player = Player::new(tape(&TURN), Strictness::Lenient);
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
        let mut player = Player::new(tape(&TURN), Strictness::Strict);
        let said = play(&mut player, &[r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"b"}}}"#]);
        assert!(said[0].contains("no initialize like this one"), "{}", said[0]);
        assert_eq!(player.differences()[0].place, "params.clientInfo.name");
    }

    #[test]
    fn the_same_is_looked_for_before_what_could_be_taken_for_it() {
        let tape = tape(&[
            r#">{"id":0,"method":"fs/read","params":{"path":"/p/a"}}"#,
            r#"<{"id":0,"result":"A"}"#,
            r#">{"id":1,"method":"fs/read","params":{"path":"/p/b"}}"#,
            r#"<{"id":1,"result":"B"}"#,
        ]);
        let mut player = Player::new(tape, Strictness::Strict);
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
        let mut player = Player::new(tape(&script.each_ref().map(String::as_str)), Strictness::Strict);
        let sent = [start(0), start(1), turn(2, "a"), turn(3, "b")];
        let said = play(&mut player, &sent.each_ref().map(|line| &line[1..]));
        assert!(said[2].contains(&note("a")[1..]) && !said[2].contains(&note("b")[1..]), "{}", said[2]);
        assert!(said[3].contains(&note("b")[1..]), "{}", said[3]);
        assert_eq!(player.differences(), []);
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
        let mut player = Player::new(tape, Strictness::Strict);
        let said = play(&mut player, &[r#"{"method":"initialized"}"#, "", "[1]"]);
        assert_eq!(said, [r#"{"method":"first"} | {"method":"second"}"#, "", ""]);
        assert_eq!((player.differences(), player.unsent()), (&[][..], vec![]));
    }

    #[test]
    fn what_the_tape_has_only_as_omitted_is_told() {
        let mut tape = tape(&TURN);
        tape.entries[1].bytes = None;
        let mut player = Player::new(tape, Strictness::Strict);
        let said = play(&mut player, &[&TURN[0][1..]]);
        assert!(said[0].contains("the answer to initialize only as omitted"), "{}", said[0]);
    }
}
