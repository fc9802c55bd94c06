//! Reads a tape: a journal file, finished or cut off, of this format or an older one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::journal::reader::{Reader, Step};
use crate::journal::{Content, Header, Origin, Position, Record, RecordError, SegmentName, reference, resolved};
use crate::protocol::thread_id;
use crate::wire::{Body, Conn, LineEnd, Members, Message, RpcId, Side};

/// Buffer of a reader, in bytes; it grows for a longer record.
const READ_BYTES: usize = 256 << 10;

/// What some editors write at the start of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// How much is read first of a record that another one refers to.
const REFERRED_BYTES: usize = 2 << 10;

/// Why a tape cannot be read.
#[derive(Debug)]
pub enum TapeError {
    /// The file cannot be opened or read.
    Io { path: PathBuf, source: io::Error },
    /// A line is not a valid record.
    Record {
        path: PathBuf,
        /// The line number, from 1.
        line: u64,
        source: RecordError,
    },
    /// The first line is not the header of a journal.
    NotATape { path: PathBuf },
}

impl fmt::Display for TapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TapeError::Io { path, source } if source.kind() == io::ErrorKind::NotFound => {
                write!(f, "{} does not exist; `codex-shim tape export` writes a tape", path.display())
            }
            TapeError::Io { path, source } => write!(f, "read {}: {source}", path.display()),
            TapeError::Record { path, line, source } => write!(f, "{}, line {line}: {source}", path.display()),
            TapeError::NotATape { path } => write!(
                f,
                "{} is not a tape: a tape is a recording that `codex-shim tape export` writes, and its first line begins with \
                 {{\"journal\":",
                path.display()
            ),
        }
    }
}

impl std::error::Error for TapeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TapeError::Io { source, .. } => Some(source),
            TapeError::Record { source, .. } => Some(source),
            TapeError::NotATape { .. } => None,
        }
    }
}

/// The next part of a tape.
#[derive(Debug)]
pub enum TapeStep<'a> {
    /// A line of the file, without its `\n`.
    Record {
        /// The line number, from 1.
        line: u64,
        bytes: &'a [u8],
    },
    /// A rest without a `\n`: a record that was cut off.
    Torn,
    End,
}

/// Reads a tape from start to end, a record at a time.
#[derive(Debug)]
pub struct TapeReader {
    path: PathBuf,
    input: BufReader<File>,
    line: u64,
    /// The header was read.
    has_begun: bool,
    /// The place of the record in the buffer, in bytes.
    offset: u64,
    buffer: Vec<u8>,
    /// The record in the buffer, if that only refers to another one.
    resolved: Vec<u8>,
}

impl TapeReader {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<TapeReader, TapeError> {
        let input = File::open(path).map_err(|source| TapeError::Io { path: path.to_owned(), source })?;
        Ok(TapeReader {
            path: path.to_owned(),
            input: BufReader::with_capacity(READ_BYTES, input),
            line: 1,
            has_begun: false,
            offset: 0,
            buffer: Vec::new(),
            resolved: Vec::new(),
        })
    }

    /// The error for a file without a whole first record.
    #[must_use]
    pub fn not_a_tape(&self) -> TapeError {
        TapeError::NotATape { path: self.path.clone() }
    }

    /// The next record.
    ///
    /// # Errors
    ///
    /// If the file cannot be read; for the first line, also if it is not a header.
    pub fn step(&mut self) -> Result<TapeStep<'_>, TapeError> {
        loop {
            self.read_line()?;
            // An editor may have added blank lines.
            if !self.buffer.ends_with(b"\n") || !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        let failed = |source| TapeError::Io { path: self.path.clone(), source };
        match self.buffer.split_last() {
            None => Ok(TapeStep::End),
            Some((b'\n', bytes)) => {
                if !self.has_begun {
                    check_first(&self.path, self.line, bytes)?;
                    self.has_begun = true;
                }
                // A journal refers to a record in the same file; an exported tape has each line in full.
                match reference(bytes).map(|at| self.referred(at).map(|full| resolved(bytes, &full))) {
                    Some(Ok(Some(resolved))) => {
                        self.resolved = resolved;
                        Ok(TapeStep::Record { line: self.line, bytes: &self.resolved })
                    }
                    Some(Err(error)) => Err(failed(error)),
                    Some(Ok(None)) | None => Ok(TapeStep::Record { line: self.line, bytes }),
                }
            }
            Some(_) => Ok(TapeStep::Torn),
        }
    }

    /// Reads the next line, or the rest of one that was incomplete, since the tape may still be written.
    fn read_line(&mut self) -> Result<(), TapeError> {
        if self.buffer.last() == Some(&b'\n') {
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
            self.line += 1;
        }
        let failed = |source| TapeError::Io { path: self.path.clone(), source };
        if !self.has_begun && self.buffer.is_empty() {
            if self.offset == 0 && self.input.fill_buf().map_err(failed)?.starts_with(BYTE_ORDER_MARK) {
                self.input.consume(BYTE_ORDER_MARK.len());
                self.offset += BYTE_ORDER_MARK.len() as u64;
            }
            // A large file of another kind may be one line.
            if !matches!(self.input.fill_buf().map_err(failed)?, [] | [b'{' | b'\n' | b'\r' | b' ' | b'\t', ..]) {
                return Err(self.not_a_tape());
            }
        }
        self.input.read_until(b'\n', &mut self.buffer).map_err(failed)?;
        Ok(())
    }

    /// The record at an offset before the current one, without its `\n`; empty if there is none, as in a pipe.
    fn referred(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; REFERRED_BYTES];
        loop {
            let room = usize::try_from(self.offset.saturating_sub(at)).unwrap_or(usize::MAX);
            bytes.truncate(room);
            match self.input.get_ref().read_exact_at(&mut bytes, at) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::NotSeekable | io::ErrorKind::UnexpectedEof) => {
                    return Ok(Vec::new());
                }
                Err(error) => return Err(error),
            }
            match memchr::memchr(b'\n', &bytes) {
                Some(newline) => {
                    bytes.truncate(newline);
                    return Ok(bytes);
                }
                None if bytes.len() == room => return Ok(Vec::new()),
                None => bytes.resize(bytes.len() * 8, 0),
            }
        }
    }
}

/// Checks that the first record is a header of a supported version.
fn check_first(path: &Path, line: u64, bytes: &[u8]) -> Result<(), TapeError> {
    match Record::parse(bytes) {
        Ok(Record::Header(_)) => Ok(()),
        Err(source @ RecordError::Newer(_)) => Err(TapeError::Record { path: path.to_owned(), line, source }),
        Ok(_) | Err(_) => Err(TapeError::NotATape { path: path.to_owned() }),
    }
}

/// A line of a tape, in the player's form.
#[derive(Debug, Clone)]
pub struct TapeEntry {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    /// The connection that it was on. A tape of a relay on pipes has only [`Conn::OWN`], one of a hub never has it.
    pub conn: Conn,
    /// The sender.
    pub from: Side,
    /// The line without its `\n`; `None` if the tape omits it.
    pub bytes: Option<Vec<u8>>,
    /// Credentials in it are masked.
    pub masked: bool,
    pub end: LineEnd,
    pub kind: EntryKind,
    /// The thread that the line belongs to.
    pub thread: Option<String>,
    /// For a request of the server: the answer that codex-shim gave in the client's place.
    pub shim_answer: Option<ShimAnswer>,
}

/// An answer that codex-shim gave to a request of the server: an API caller's, or that of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShimAnswer {
    /// The line; `None` if the tape omits it.
    pub bytes: Option<Vec<u8>>,
    /// Credentials in it are masked.
    pub masked: bool,
}

/// The kind of a line, by the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    Request {
        method: String,
        id: RpcId,
    },
    Notification {
        method: String,
    },
    /// The response to a request of the other side.
    Response {
        /// The request's id.
        id: RpcId,
    },
    Other,
}

impl EntryKind {
    /// Classifies a line.
    #[must_use]
    pub fn of(line: &[u8]) -> EntryKind {
        match Body::parse(line) {
            Body::Message(message) => EntryKind::of_message(&message),
            Body::OtherJson | Body::Text | Body::Bytes => EntryKind::Other,
        }
    }

    fn of_message(message: &Message<'_>) -> EntryKind {
        match (message.method.as_deref(), message.id) {
            (Some(method), Some(id)) => EntryKind::Request { method: method.to_owned(), id: RpcId::from_raw(id) },
            (Some(method), None) => EntryKind::Notification { method: method.to_owned() },
            (None, Some(id)) => EntryKind::Response { id: RpcId::from_raw(id) },
            (None, None) => EntryKind::Other,
        }
    }

    /// The method, if there is one.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        match self {
            EntryKind::Request { method, .. } | EntryKind::Notification { method } => Some(method),
            EntryKind::Response { .. } | EntryKind::Other => None,
        }
    }
}

/// A tape, read for playing.
#[derive(Debug)]
pub struct Tape {
    pub header: Header,
    /// The lines in order, as the clients sent and received them, without codex-shim's own.
    pub entries: Vec<TapeEntry>,
}

impl Tape {
    /// Reads the tape at `path`, without a record that was cut off at the end.
    ///
    /// # Errors
    ///
    /// If it is not a valid tape.
    pub fn load(path: &Path) -> Result<Tape, TapeError> {
        let mut reader = TapeReader::open(path)?;
        let mut header = None;
        let mut lines = Lines::default();
        while let TapeStep::Record { line, bytes } = reader.step()? {
            let record =
                Record::parse(bytes).map_err(|source| TapeError::Record { path: path.to_owned(), line, source })?;
            match record {
                Record::Header(first) => header = header.or(Some(first)),
                record @ (Record::Line { .. } | Record::Event { .. } | Record::Gap { .. }) => lines.add(record),
            }
        }
        let header = header.ok_or_else(|| TapeError::NotATape { path: path.to_owned() })?;
        Ok(Tape { header, entries: lines.finish() })
    }

    /// Reads a run of a server from its journal, as far as it has come; `None` if it is gone.
    pub fn of_run(journal: &Path, first: SegmentName) -> io::Result<Option<Tape>> {
        let generation = first.generation.clone();
        let mut reader = Reader::new(journal, Some(Position { segment: first, offset: 0 }));
        let (mut header, mut lines) = (None, Lines::default());
        while let Step::Record { at, bytes } = reader.step()? {
            if at.segment.generation != generation {
                break;
            }
            match Record::parse(bytes) {
                Ok(Record::Header(first)) => header = header.or(Some(first)),
                Ok(record @ (Record::Line { .. } | Record::Event { .. } | Record::Gap { .. })) => lines.add(record),
                Err(_) => {}
            }
        }
        Ok(header.map(|header| Tape { header, entries: lines.finish() }))
    }

    /// The connections of the clients, in the order of their first lines.
    #[must_use]
    pub fn connections(&self) -> Vec<Conn> {
        let mut all = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.from == Side::Client) {
            if !all.contains(&entry.conn) {
                all.push(entry.conn);
            }
        }
        all
    }
}

/// The lines of a tape while it is read.
#[derive(Default)]
struct Lines {
    entries: Vec<TapeEntry>,
    /// Calls of codex-shim itself.
    own_calls: HashSet<(Conn, RpcId)>,
    asked: ServerRequests,
}

impl Lines {
    fn add(&mut self, record: Record<'_>) {
        match record {
            Record::Line { at_us, conn, from: Origin::Side(from), content, masked, end, .. } => {
                let entry = TapeEntry { masked, ..entry(at_us, conn, from, &content, end) };
                let is_withheld = from == Side::Server
                    && matches!(&entry.kind, EntryKind::Response { id } if self.own_calls.contains(&(conn, id.clone())));
                if !is_withheld {
                    self.asked.learn(&entry, self.entries.len());
                    self.entries.push(entry);
                }
            }
            Record::Line {
                at_us, conn, from: Origin::Shim, to: Some(Side::Client), replaces, content, end, ..
            } => {
                let entry = entry(at_us, conn, Side::Server, &content, end);
                match self.entries.last_mut().filter(|_| replaces) {
                    Some(replaced) => *replaced = entry,
                    // An answer in the server's place goes to the client.
                    None if !replaces => self.entries.push(entry),
                    None => {}
                }
            }
            Record::Line {
                at_us,
                conn,
                from: Origin::Shim,
                to: Some(Side::Server),
                replaces: false,
                content,
                masked,
                end,
                ..
            } => {
                let TapeEntry { kind, bytes, .. } = entry(at_us, conn, Side::Client, &content, end);
                match kind {
                    EntryKind::Request { id, .. } => drop(self.own_calls.insert((conn, id))),
                    EntryKind::Response { id } => {
                        for request in self.asked.answered_by_shim(&id) {
                            self.entries[request].shim_answer = Some(ShimAnswer { bytes: bytes.clone(), masked });
                        }
                    }
                    EntryKind::Notification { .. } | EntryKind::Other => {}
                }
            }
            Record::Event { event, data, .. } => {
                self.asked.next_is_held = event == "request_opened" && is_held(data);
            }
            Record::Line { from: Origin::Shim, .. } | Record::Gap { .. } | Record::Header(_) => {}
        }
    }

    /// The lines that clients have sent and received.
    fn finish(self) -> Vec<TapeEntry> {
        let Lines { mut entries, asked, .. } = self;
        let never_asked = asked.never_asked();
        let is_hub = entries.iter().any(|entry| entry.conn != Conn::OWN);
        let mut index = 0..;
        entries.retain(|entry| {
            let is_asked = index.next().is_none_or(|index| !never_asked.contains(&index));
            is_asked && (entry.conn != Conn::OWN) == is_hub
        });
        entries
    }
}

/// The server's requests, by the indexes of their entries: one for each client of a hub that was asked.
#[derive(Default)]
struct ServerRequests {
    /// Those that codex-shim has not answered.
    open: HashMap<RpcId, Vec<usize>>,
    /// Those of them that the client was not asked.
    held: HashMap<RpcId, Vec<usize>>,
    answered_while_held: HashSet<usize>,
    /// codex-shim has noted that it holds the request of the next line.
    next_is_held: bool,
}

impl ServerRequests {
    fn learn(&mut self, entry: &TapeEntry, index: usize) {
        match (entry.from, &entry.kind) {
            (Side::Server, EntryKind::Request { id, .. }) => {
                self.open.entry(id.clone()).or_default().push(index);
                // The note precedes the first of several deliveries.
                if std::mem::take(&mut self.next_is_held) || self.held.contains_key(id) {
                    self.held.entry(id.clone()).or_default().push(index);
                }
            }
            // A client that answers it was asked all the same: the ledger was too slow to keep it.
            (Side::Client, EntryKind::Response { id }) => drop(self.held.remove(id)),
            (Side::Client, EntryKind::Request { .. })
            | (Side::Server, EntryKind::Response { .. })
            | (Side::Client | Side::Server, EntryKind::Notification { .. } | EntryKind::Other) => {}
        }
    }

    /// The deliveries of the request that codex-shim has answered in the client's place.
    fn answered_by_shim(&mut self, id: &RpcId) -> Vec<usize> {
        self.answered_while_held.extend(self.held.remove(id).into_iter().flatten());
        self.open.remove(id).unwrap_or_default()
    }

    fn never_asked(self) -> HashSet<usize> {
        self.answered_while_held.into_iter().chain(self.held.into_values().flatten()).collect()
    }
}

/// Whether the client was not asked, by what codex-shim noted of a request.
fn is_held(data: Option<&RawValue>) -> bool {
    #[derive(Deserialize)]
    struct Opened {
        #[serde(default)]
        held: bool,
    }
    data.and_then(|data| serde_json::from_str(data.get()).ok()).is_some_and(|Opened { held }| held)
}

fn entry(at_us: u64, conn: Conn, from: Side, content: &Content<'_>, end: LineEnd) -> TapeEntry {
    let bytes = content.bytes().map(<[u8]>::to_vec);
    let (kind, thread) = match (&bytes, content) {
        (Some(bytes), _) => (EntryKind::of(bytes), thread_of(bytes)),
        (None, Content::Omitted { method, id, .. }) => {
            let id = id.map(RpcId::from_raw);
            let kind = match (method.as_deref(), id) {
                (Some(method), Some(id)) => EntryKind::Request { method: method.to_owned(), id },
                (Some(method), None) => EntryKind::Notification { method: method.to_owned() },
                (None, Some(id)) => EntryKind::Response { id },
                (None, None) => EntryKind::Other,
            };
            (kind, None)
        }
        (None, Content::Json(_) | Content::Text(_) | Content::Bytes(_)) => (EntryKind::Other, None),
    };
    TapeEntry { at_us, conn, from, bytes, masked: false, end, kind, thread, shim_answer: None }
}

/// The thread that a message belongs to: the one that its parameters or its result name.
#[must_use]
pub(super) fn thread_of(line: &[u8]) -> Option<String> {
    let Body::Message(message) = Body::parse(line) else { return None };
    let named = message.params.or(message.result).and_then(Members::of)?;
    thread_id(&named).or_else(|| Members::of(named.get("thread")?)?.text("id"))
}

// Selects the records that belong to one thread or one connection.

/// Selects the records of one thread and those of no thread, or of one connection. Call `look` for every record in order,
/// then ask for the results.
#[derive(Debug)]
pub struct Selection {
    thread: Option<String>,
    conn: Option<Conn>,
    keeps: Vec<bool>,
    seen_thread: bool,
    seen_conn: bool,
    /// Open requests of the clients, with their record numbers.
    by_client: BTreeMap<(Conn, RpcId), usize>,
    by_server: BTreeMap<(Conn, RpcId), usize>,
}

impl Selection {
    /// Selects the records of `thread` and of `conn`; `None` is any.
    #[must_use]
    pub fn new(thread: Option<String>, conn: Option<Conn>) -> Selection {
        Selection {
            seen_thread: thread.is_none(),
            seen_conn: conn.is_none(),
            thread,
            conn,
            keeps: Vec::new(),
            by_client: BTreeMap::new(),
            by_server: BTreeMap::new(),
        }
    }

    /// Reads the next record.
    pub fn look(&mut self, record: &[u8]) {
        let number = self.keeps.len();
        let parsed = Record::parse(record);
        let is_kept = parsed.as_ref().map_or(true, |record| self.is_of_conn(record));
        self.keeps.push(is_kept);
        if self.thread.is_some()
            && self.keeps[number]
            && let Ok(Record::Line { conn, from, to, replaces, content, .. }) = parsed
        {
            match (from, to) {
                (Origin::Side(side), _) => self.look_at_line(number, conn, side, &content),
                // A replacement belongs to the line that it replaces. Our own call is treated as the client's, our own
                // answer as the server's.
                (Origin::Shim, _) if replaces => {
                    self.keeps[number] = number.checked_sub(1).is_none_or(|replaced| self.keeps[replaced]);
                }
                (Origin::Shim, Some(Side::Server)) => self.look_at_line(number, conn, Side::Client, &content),
                (Origin::Shim, Some(Side::Client)) => self.look_at_line(number, conn, Side::Server, &content),
                (Origin::Shim, None) => {}
            }
        }
    }

    /// Whether a record is one of the wanted connection, or of none.
    fn is_of_conn(&mut self, record: &Record<'_>) -> bool {
        let Some(wanted) = self.conn else { return true };
        let conn = match record {
            // An answer of codex-shim is that to the request that every client got.
            Record::Line { from: Origin::Shim, to: Some(Side::Server), replaces: false, content, .. }
                if content.bytes().is_none_or(|line| matches!(EntryKind::of(line), EntryKind::Response { .. })) =>
            {
                return true;
            }
            Record::Line { conn, .. } => *conn,
            Record::Event { data, .. } => match conn_of(*data) {
                Some(conn) => conn,
                None => return true,
            },
            Record::Header(_) | Record::Gap { .. } => return true,
        };
        self.seen_conn |= conn == wanted;
        conn == wanted
    }

    fn look_at_line(&mut self, number: usize, conn: Conn, side: Side, content: &Content<'_>) {
        let (kind, thread) = match &content {
            Content::Omitted { method, id, .. } => (omitted_kind(method.as_deref(), id.map(RpcId::from_raw)), None),
            Content::Json(_) | Content::Text(_) | Content::Bytes(_) => {
                let line = content.bytes().unwrap_or_default();
                (EntryKind::of(line), thread_of(line))
            }
        };
        let is_wanted = thread.as_ref().map(|thread| self.thread.as_ref() == Some(thread));
        self.seen_thread |= is_wanted == Some(true);
        self.keeps[number] = is_wanted != Some(false);
        let (asked_here, asked_there) = match side {
            Side::Client => (&mut self.by_client, &mut self.by_server),
            Side::Server => (&mut self.by_server, &mut self.by_client),
        };
        match kind {
            EntryKind::Request { id, .. } => drop(asked_here.insert((conn, id), number)),
            EntryKind::Response { id } => {
                // An answer belongs to its request; either may name the thread.
                let asked_elsewhere =
                    || asked_there.keys().find(|(_, asked)| conn == Conn::OWN && *asked == id).cloned();
                let request =
                    Some((conn, id.clone())).filter(|key| asked_there.contains_key(key)).or_else(asked_elsewhere);
                if let Some(request) = request.and_then(|request| asked_there.remove(&request)) {
                    let keeps = self.keeps[request] && self.keeps[number];
                    self.keeps[request] = keeps;
                    self.keeps[number] = keeps;
                }
            }
            EntryKind::Notification { .. } | EntryKind::Other => {}
        }
    }

    /// Whether any record names the wanted thread.
    #[must_use]
    pub fn has_seen_thread(&self) -> bool {
        self.seen_thread
    }

    /// Whether any record is one of the wanted connection.
    #[must_use]
    pub fn has_seen_conn(&self) -> bool {
        self.seen_conn
    }

    /// Whether the record of this number, from 0, is selected.
    #[must_use]
    pub fn keeps(&self, number: usize) -> bool {
        self.keeps.get(number).copied().unwrap_or(false)
    }
}

/// The connection that an event names.
#[must_use]
pub(super) fn conn_of(data: Option<&RawValue>) -> Option<Conn> {
    #[derive(Deserialize)]
    struct Named {
        conn: u32,
    }
    data.and_then(|data| serde_json::from_str(data.get()).ok()).map(|Named { conn }| Conn(conn))
}

fn omitted_kind(method: Option<&str>, id: Option<RpcId>) -> EntryKind {
    match (method, id) {
        (Some(method), Some(id)) => EntryKind::Request { method: method.to_owned(), id },
        (None, Some(id)) => EntryKind::Response { id },
        (_, None) => EntryKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_with_its_request() {
        let records = [
            r#"{"journal":1,"session":"s","generation":"000000000001","segment":1,"at":0,"argv":[],"cwd":"/","codex":{"path":""},"shim":""}"#,
            r#"{"at":1,"from":"client","line":{"id":0,"method":"initialize"}}"#,
            r#"{"at":2,"from":"client","line":{"id":1,"method":"thread/start","params":{}}}"#,
            r#"{"at":3,"from":"server","line":{"id":1,"result":{"thread":{"id":"A"}}}}"#,
            r#"{"at":4,"from":"client","line":{"id":2,"method":"thread/start","params":{}}}"#,
            r#"{"at":5,"from":"server","line":{"id":2,"result":{"thread":{"id":"B"}}}}"#,
            r#"{"at":6,"from":"server","line":{"id":0,"method":"ask","params":{"threadId":"B"}}}"#,
            r#"{"at":7,"from":"client","line":{"id":0,"result":{}}}"#,
            r#"{"at":8,"from":"server","line":{"method":"note","params":{"threadId":"A"}}}"#,
            r#"{"at":9,"from":"server","text":"noise"}"#,
            r#"{"at":10,"from":"shim","to":"client","replaces":true,"text":"noise"}"#,
            r#"{"at":11,"from":"client","line":{"id":3,"method":"turn/start","params":{"threadId":"A"}}}"#,
            r#"{"at":12,"from":"shim","to":"server","replaces":true,"line":{"id":3,"method":"turn/start","params":{}}}"#,
            r#"{"at":13,"from":"shim","to":"server","line":{"id":"codex-shim:1","method":"x","params":{"threadId":"B"}}}"#,
            r#"{"at":14,"from":"server","line":{"id":"codex-shim:1","result":{}}}"#,
        ];
        let chosen = |thread: Option<&str>| {
            let mut selection = Selection::new(thread.map(str::to_owned), None);
            records.iter().for_each(|record| selection.look(record.as_bytes()));
            (0..records.len()).filter(|number| selection.keeps(*number)).collect::<Vec<_>>()
        };
        assert_eq!(chosen(Some("A")), [0, 1, 2, 3, 8, 9, 10, 11, 12]);
        assert_eq!(chosen(Some("B")), [0, 1, 4, 5, 6, 7, 9, 10, 13, 14]);
        assert_eq!(chosen(None).len(), records.len());
    }

    #[test]
    fn references_of_a_journal_are_resolved() {
        let header = r#"{"journal":1,"session":"s","generation":"000000000001","segment":1,"at":0,"argv":[],"cwd":"/","codex":{"path":""},"shim":""}"#;
        let full = format!(r#"{{"at":1,"conn":1,"from":"server","line":{{"method":"{}"}}}}"#, "m".repeat(20_000));
        let reference = |at: usize| format!(r#"{{"at":2,"conn":2,"from":"server","same":{at}}}"#);
        let (good, bad) = (reference(header.len() + 1), reference(3));
        let mut file = tempfile::NamedTempFile::new().expect("BUG: a temporary file");
        io::Write::write_all(&mut file, [header, &full, &good, &bad, ""].join("\n").as_bytes()).expect("it is written");
        let mut reader = TapeReader::open(file.path()).expect("a tape");
        let mut records = Vec::new();
        while let TapeStep::Record { bytes, .. } = reader.step().expect("it can be read") {
            records.push(String::from_utf8_lossy(bytes).into_owned());
        }
        assert_eq!(records[2], full.replace(r#""at":1,"conn":1"#, r#""at":2,"conn":2"#));
        assert_eq!((records.len(), &records[3]), (4, &bad));
    }

    /// What an editor adds is no part of a tape.
    #[test]
    fn blank_lines_and_a_byte_order_mark_are_skipped() {
        let header = r#"{"journal":1,"session":"s","generation":"000000000001","segment":1,"at":0,"argv":[],"cwd":"/","codex":{"path":""},"shim":""}"#;
        let line = r#"{"at":1,"from":"client","line":{"id":0,"method":"initialize"}}"#;
        for text in [
            format!("{header}\n{line}\n"),
            format!("\u{feff}{header}\n{line}\n"),
            format!("\n\n{header}\n \t\n\n{line}\n\n"),
            format!("\u{feff}\r\n{header}\r\n\r\n{line}\r\n  "),
        ] {
            let mut file = tempfile::NamedTempFile::new().expect("BUG: a temporary file");
            io::Write::write_all(&mut file, text.as_bytes()).expect("it is written");
            let tape = Tape::load(file.path()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert_eq!((&*tape.header.session, tape.entries.len()), ("s", 1), "{text:?}");
        }
        // The line in a message counts all of them.
        let mut file = tempfile::NamedTempFile::new().expect("BUG: a temporary file");
        io::Write::write_all(&mut file, format!("\n{header}\n\nx\n").as_bytes()).expect("it is written");
        assert!(matches!(Tape::load(file.path()), Err(TapeError::Record { line: 4, .. })));
    }

    #[test]
    fn one_client_is_selected_with_answers_of_codex_shim() {
        let records = [
            r#"{"journal":1,"session":"s","generation":"000000000001","segment":1,"at":0,"argv":[],"cwd":"/","codex":{"path":""},"shim":""}"#,
            r#"{"at":1,"from":"shim","event":"conn_open","data":{"conn":1,"name":"a"}}"#,
            r#"{"at":1,"conn":1,"from":"client","line":{"id":0,"method":"initialize"}}"#,
            r#"{"at":1,"from":"shim","event":"conn_open","data":{"conn":2,"name":"b"}}"#,
            r#"{"at":1,"conn":2,"from":"client","line":{"id":0,"method":"initialize"}}"#,
            r#"{"at":2,"from":"shim","to":"server","line":{"id":"codex-shim:1","method":"initialize"}}"#,
            r#"{"at":2,"from":"server","line":{"id":"codex-shim:1","result":{}}}"#,
            r#"{"at":3,"conn":1,"from":"server","line":{"id":0,"method":"ask","params":{"threadId":"T"}}}"#,
            r#"{"at":3,"conn":2,"from":"server","line":{"id":0,"method":"ask","params":{"threadId":"T"}}}"#,
            r#"{"at":4,"from":"shim","to":"server","line":{"id":0,"result":{"decision":"accept"}}}"#,
            r#"{"at":5,"from":"shim","event":"conn_close","data":{"conn":1}}"#,
        ];
        let mut selection = Selection::new(None, Some(Conn(2)));
        records.iter().for_each(|record| selection.look(record.as_bytes()));
        let kept: Vec<usize> = (0..records.len()).filter(|number| selection.keeps(*number)).collect();
        assert_eq!((kept, selection.has_seen_conn()), (vec![0, 3, 4, 8, 9], true));
        let mut lines = Lines::default();
        records.iter().for_each(|record| lines.add(Record::parse(record.as_bytes()).expect("a record")));
        let entries = lines.finish();
        assert_eq!(entries.iter().map(|entry| entry.conn.0).collect::<Vec<_>>(), [1, 2, 1, 2]);
        assert!(entries[2..].iter().all(|entry| entry.shim_answer.is_some()));
    }
}
