//! A tape in the player's form: which lines belong together, and which clients it has.
//!
//! A line of the server that is not a response belongs to a line of its own client: the last earlier one that moves its
//! thread (starts or resumes it, starts a turn of it, answers one of its requests), else the last one that moves any thread.
//! With several clients it may also belong to a later line of another client that drives the thread, such as an answer.
//! Resuming a thread drives nothing: other clients notice nothing of it.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::tape::{EntryKind, Tape, TapeEntry};
use crate::protocol::Method;
use crate::wire::{Body, Conn, Members, RpcId, Side};

/// A tape to be played, any number of times.
#[derive(Debug)]
pub struct Script {
    pub(super) entries: Vec<TapeEntry>,
    /// For a client's request, the index of its response.
    pub(super) responses: Vec<Option<usize>>,
    /// For a server's line, the clients' lines that it belongs to.
    pub(super) causes: Vec<Causes>,
    /// The clients' answers that no line waits for: to requests that the tape omits, that codex-shim answered, or that another
    /// client had answered.
    pub(super) not_awaited: BTreeSet<usize>,
    /// The connections, in the order of their first lines.
    pub(super) clients: Vec<TapeClient>,
}

/// The clients' lines that a server's line belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Causes {
    pub(super) own: Option<usize>,
    /// A later line of another client.
    pub(super) other: Option<usize>,
}

/// A client on a tape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TapeClient {
    pub(super) conn: Conn,
    /// Its name in `initialize`.
    pub(super) name: Option<String>,
    /// The index of its `initialize`.
    pub(super) greeting: Option<usize>,
    /// It has sent more than `initialize`, so it was not only a probe.
    pub(super) has_stayed: bool,
}

impl Script {
    /// Reads how the lines of a tape belong together.
    #[must_use]
    pub fn of(tape: Tape) -> Script {
        let mut reading = TapeReading::default();
        for (index, entry) in tape.entries.iter().enumerate() {
            reading.add(index, entry, &tape.entries);
        }
        let TapeReading { responses, causes, not_awaited, clients, .. } = reading;
        Script { entries: tape.entries, responses, causes, not_awaited, clients }
    }

    /// The connection for a client of this name: the first of its name that is not `taken`, and if the tape has no client of
    /// its name, the first that is not taken. A probe is taken only if the tape has nothing else.
    pub(super) fn choose(&self, name: Option<&str>, taken: &BTreeSet<Conn>) -> Option<Conn> {
        let has_clients = self.clients.iter().any(|client| client.has_stayed);
        let clients = || self.clients.iter().filter(|client| client.has_stayed || !has_clients);
        let has_name = |client: &&TapeClient| name.is_some() && client.name.as_deref() == name;
        let is_known = clients().any(|client| has_name(&client));
        let mut free = clients().filter(|client| !taken.contains(&client.conn) && (!is_known || has_name(client)));
        free.next().map(|client| client.conn)
    }
}

/// The name of a client, by its `initialize`; `None` for any other line.
pub(super) fn name_of(line: &[u8]) -> Option<String> {
    let Body::Message(message) = Body::parse(line) else { return None };
    if message.method.as_deref() != Some(Method::Initialize.name()) {
        return None;
    }
    Members::of(Members::of(message.params?)?.get("clientInfo")?)?.text("name")
}

/// Whether a line only greets the server.
pub(super) fn is_greeting(method: Option<&str>) -> bool {
    method == Some(Method::Initialize.name()) || method == Some(Method::Initialized.name())
}

/// Whether a request is read-only, judged by the last word of its method.
pub(super) fn only_looks(method: &str) -> bool {
    matches!(last_word(method), "list" | "read" | "get" | "search" | "searchOccurrences" | "status")
}

/// Whether a line concerns only the client that sends it, judged by the last word of its method.
fn only_joins(method: &str) -> bool {
    only_looks(method) || is_greeting(Some(method)) || matches!(last_word(method), "resume" | "unsubscribe")
}

fn last_word(method: &str) -> &str {
    method.rsplit('/').next().unwrap_or_default()
}

/// The state while a tape is read.
#[derive(Default)]
struct TapeReading {
    responses: Vec<Option<usize>>,
    causes: Vec<Causes>,
    not_awaited: BTreeSet<usize>,
    clients: Vec<TapeClient>,
    unanswered: BTreeMap<(Conn, RpcId), usize>,
    /// Open requests of the server, by their last deliveries.
    asked: BTreeMap<RpcId, usize>,
    /// Which client answered a request.
    settled: BTreeMap<RpcId, Conn>,
    /// The lines that move a thread for their own client, and those that do for all.
    moves: BTreeMap<Conn, Moves>,
    drives: BTreeMap<Conn, Moves>,
}

/// The lines of a client that moved a thread.
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

impl TapeReading {
    fn add(&mut self, index: usize, entry: &TapeEntry, entries: &[TapeEntry]) {
        self.responses.push(None);
        self.causes.push(Causes::default());
        self.meet(index, entry);
        match (entry.from, &entry.kind) {
            (Side::Client, EntryKind::Request { method, id }) => {
                self.unanswered.insert((entry.conn, id.clone()), index);
                if !only_looks(method) {
                    self.moved(index, entry, entry.thread.as_ref());
                }
            }
            (Side::Client, EntryKind::Response { id }) => {
                match self.asked.remove(id).map(|request| &entries[request]) {
                    Some(TapeEntry { bytes: None, .. } | TapeEntry { shim_answer: Some(_), .. }) => {
                        self.not_awaited.insert(index);
                        self.settled.insert(id.clone(), entry.conn);
                    }
                    None if self.settled.get(id).is_some_and(|by| *by != entry.conn) => {
                        self.not_awaited.insert(index);
                    }
                    request => {
                        self.settled.insert(id.clone(), entry.conn);
                        self.moved(index, entry, request.and_then(|request| request.thread.as_ref()));
                    }
                }
            }
            (Side::Client, EntryKind::Notification { .. }) => self.moved(index, entry, entry.thread.as_ref()),
            (Side::Client, EntryKind::Other) => {}
            (Side::Server, EntryKind::Response { id }) => {
                if let Some(request) = self.unanswered.remove(&(entry.conn, id.clone())) {
                    self.responses[request] = Some(index);
                    self.opened(request, entry, &entries[request]);
                }
            }
            (Side::Server, kind) => {
                if let EntryKind::Request { id, .. } = kind {
                    self.settled.remove(id);
                    self.asked.insert(id.clone(), index);
                }
                self.causes[index] = self.causes_of(entry);
            }
        }
    }

    /// Adds the client of a line.
    fn meet(&mut self, index: usize, entry: &TapeEntry) {
        if entry.from != Side::Client {
            return;
        }
        let known = self.clients.iter_mut().rev().find(|client| client.conn == entry.conn);
        let stays = !is_greeting(entry.kind.method());
        match known {
            Some(client) => client.has_stayed |= stays,
            None => {
                let name = entry.bytes.as_deref().and_then(name_of);
                let is_initialize = entry.kind.method() == Some(Method::Initialize.name());
                let greeting = is_initialize.then_some(index);
                self.clients.push(TapeClient { conn: entry.conn, name, greeting, has_stayed: stays });
            }
        }
    }

    fn moved(&mut self, index: usize, entry: &TapeEntry, thread: Option<&String>) {
        self.moves.entry(entry.conn).or_default().by(index, thread);
        if !entry.kind.method().is_some_and(only_joins) {
            self.drives.entry(entry.conn).or_default().by(index, thread);
        }
    }

    /// The response to a request may name the thread that it opened.
    fn opened(&mut self, request: usize, response: &TapeEntry, entry: &TapeEntry) {
        let method = entry.kind.method().unwrap_or_default();
        let Some(thread) = response.thread.as_ref().filter(|_| !only_looks(method)) else { return };
        let moves = self.moves.entry(entry.conn).or_default();
        moves.last_of.entry(thread.clone()).or_insert(request);
        if !only_joins(method) {
            let drives = self.drives.entry(entry.conn).or_default();
            drives.last_of.entry(thread.clone()).or_insert(request);
        }
    }

    fn causes_of(&self, entry: &TapeEntry) -> Causes {
        let thread = entry.thread.as_ref();
        let of_thread = |moves: &Moves| thread.and_then(|thread| moves.last_of.get(thread).copied());
        let own = self.moves.get(&entry.conn).and_then(|moves| of_thread(moves).or(moves.last));
        let others = || self.drives.iter().filter(|(conn, _)| **conn != entry.conn).map(|(_, moves)| moves);
        let is_known = self.moves.values().any(|moves| of_thread(moves).is_some());
        let other = match thread {
            Some(_) if is_known => others().filter_map(of_thread).max(),
            // The thread is new: another client may have started it.
            Some(_) => others().filter_map(|moves| moves.last).max(),
            None => None,
        };
        let last = self.moves.get(&entry.conn).and_then(|moves| if is_known { own } else { moves.last });
        Causes { own, other: other.filter(|other| Some(*other) > last) }
    }
}
