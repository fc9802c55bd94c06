//! Shared by the history tests: a journal reader that shares no code with the index, the database's rows through a
//! separate connection, a relay under load, and streams.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use codex_shim::testing::control::{self, client};
use rusqlite::Connection;
use rusqlite::types::Value as Cell;
use serde_json::Value;

use super::both_ends::http;
use super::shim::Home;
use super::{PATIENCE, eventually};

pub const EVENTS: &str = "/sessions/self/codex-events";

/// Our own notes that have an event each. Source: the contract.
const NOTES: [&str; 20] = [
    "conn_open",
    "conn_close",
    "generation_started",
    "generation_ended",
    "codex_version",
    "request_resolved",
    "rule_applied",
    "rule_refused",
    "sandboxed_peer",
    "in_reach",
    "context_delivered",
    "context_projected",
    "context_engine_started",
    "context_engine_ended",
    "context_engine_call",
    "context_engine_compacted",
    "native_compaction",
    "fragments_told",
    "fragment_failed",
    "event_persist_recovered",
];

/// The place of a record: generation, segment, offset.
pub type Place = (String, u64, u64);

/// The records of a journal from which events are made.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Types of the records that are one event each.
    pub whole: BTreeMap<Place, String>,
    /// Deltas, by the item that they belong to.
    pub pieces: BTreeMap<String, Vec<Place>>,
    /// All records.
    pub records: Vec<(Place, String)>,
}

pub fn key_of(place: &Place) -> String {
    format!("{}:{}:{}", place.0, place.1, place.2)
}

impl Recorded {
    pub fn read(session: &Path) -> Recorded {
        let mut recorded = Recorded::default();
        for path in segments(session) {
            let name = path.file_stem().expect("a name").to_str().expect("UTF-8").to_owned();
            let (generation, segment) = name.split_once('-').expect("GENERATION-SEGMENT");
            let text = fs::read(&path).expect("it can be read");
            let mut offset = 0;
            for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
                let place = (generation.to_owned(), segment.parse().expect("a number"), offset);
                offset += line.len() as u64;
                let line = std::str::from_utf8(&line[..line.len() - 1]).expect("UTF-8");
                recorded.take(place, line);
            }
        }
        recorded
    }

    fn take(&mut self, place: Place, line: &str) {
        self.records.push((place.clone(), line.to_owned()));
        let record: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no record: {line}"));
        if record.get("journal").is_some() || record["replaces"] == true {
            return;
        }
        if record.get("gap").is_some() {
            self.whole.insert(place, "event_gap".to_owned());
            return;
        }
        if let Some(name) = record["event"].as_str() {
            if NOTES.contains(&name) {
                self.whole.insert(place, name.to_owned());
            }
            return;
        }
        // A line with characters that JSON allows only between tokens is recorded as text.
        let text = record["text"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let line = record.get("line").or(text.as_ref()).unwrap_or(&record);
        let Some(method) = line["method"].as_str() else { return };
        let is_call = line.get("id").is_some() && (method.starts_with("turn/") || method.starts_with("thread/"));
        match record["from"].as_str().expect("a side") {
            "server" => match piece(method, &line["params"]) {
                Some(of) => self.pieces.entry(of).or_default().push(place),
                None => drop(self.whole.insert(place, method.to_owned())),
            },
            _ if record["to"] == "client" || !is_call => {}
            _ => drop(self.whole.insert(place, method.to_owned())),
        }
    }

    /// The existing runs, in order.
    pub fn generations(session: &Path) -> Vec<String> {
        let of = |path: PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
            name.split('-').next().unwrap_or_default().to_owned()
        };
        let names = segments(session).into_iter().map(of);
        let mut generations: Vec<String> = names.collect();
        generations.sort();
        generations.dedup();
        generations
    }

    pub fn piece_count(&self) -> usize {
        self.pieces.values().map(Vec::len).sum()
    }
}

/// The item that a delta belongs to.
fn piece(method: &str, params: &Value) -> Option<String> {
    if method.starts_with("codex/event/") {
        return early_piece(method, params);
    }
    let last = method.rsplit('/').next()?;
    let is_delta = last == "delta" || last.ends_with("Delta");
    let item = params["itemId"].as_str()?;
    params["delta"].as_str().filter(|_| is_delta)?;
    Some(format!("{}/{}/{item} {method}", params["threadId"], params["turnId"]))
}

/// The same for a delta of early 2026.
fn early_piece(method: &str, params: &Value) -> Option<String> {
    let msg = &params["msg"];
    msg["delta"].as_str().or(msg["chunk"].as_str()).filter(|_| method.ends_with("_delta"))?;
    let first = |found: [&Value; 3]| found.into_iter().find(|value| value.is_string()).cloned().unwrap_or_default();
    let turn = first([&msg["turn_id"], &params["id"], &Value::Null]);
    let item = first([&msg["item_id"], &msg["call_id"], &msg["item"]["id"]]);
    Some(format!("{}/{turn}/{} {method}", params["conversationId"], item.as_str().unwrap_or_default()))
}

/// An event as the database stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub seq: u64,
    pub event_type: String,
    pub place: Place,
    pub pieces: Option<usize>,
    pub of: String,
}

pub fn history_path(session: &Path) -> PathBuf {
    session.join("history.db")
}

pub fn open(session: &Path) -> Connection {
    let connection = Connection::open(history_path(session)).expect("it can be opened");
    connection.busy_timeout(PATIENCE).expect("it can wait");
    connection
}

/// All events.
pub fn rows(session: &Path) -> rusqlite::Result<Vec<Row>> {
    let database = Connection::open(history_path(session))?;
    database.busy_timeout(PATIENCE)?;
    let mut select = database.prepare(
        "SELECT seq, event_type, generation, segment, byte_offset, delta_count, thread_id, turn_id, item_id
         FROM codex_events ORDER BY seq",
    )?;
    let number = |value: i64| u64::try_from(value).expect("a count");
    let rows = select.query_map([], |row| {
        let event_type: String = row.get(1)?;
        let id = |column| Ok::<_, rusqlite::Error>(Value::from(row.get::<_, Option<String>>(column)?));
        let item: Option<String> = row.get(8)?;
        Ok(Row {
            seq: number(row.get(0)?),
            of: format!("{}/{}/{} {event_type}", id(6)?, id(7)?, item.unwrap_or_default()),
            event_type,
            place: (row.get(2)?, number(row.get(3)?), number(row.get(4)?)),
            pieces: row.get::<_, Option<i64>>(5)?.map(|count| number(count) as usize),
        })
    })?;
    rows.collect()
}

/// Every row of every table, except in-progress state.
pub fn dump(session: &Path) -> BTreeMap<&'static str, Vec<Vec<Cell>>> {
    let database = open(session);
    let tables =
        ["codex_events", "codex_event_gaps", "codex_tool_events", "codex_turn_events", "codex_transcript_entries"];
    let dump = |table: &'static str| {
        let mut select = database.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).expect("there is one");
        let columns = select.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
        let rows = select.query_map([], row).expect("it can be read").collect::<Result<_, _>>().expect("rows");
        (table, rows)
    };
    tables.into_iter().map(dump).collect()
}

/// Waits until everything recorded is indexed, and checks that each record is indexed once, in order and without a
/// hole. The session must be quiet meanwhile.
pub fn all_indexed_once(session: &Path) -> Vec<Row> {
    let mut recorded = Recorded::default();
    let indexed = || -> Option<usize> {
        let database = Connection::open(history_path(session)).ok()?;
        database.busy_timeout(PATIENCE).ok()?;
        let count = "SELECT COUNT(*) - COUNT(delta_count) + TOTAL(delta_count) FROM codex_events";
        Some(database.query_row(count, [], |row| row.get::<_, f64>(0)).ok()? as usize)
    };
    let (mut progress, mut before) = (Instant::now(), None);
    let mut bytes = 0;
    loop {
        let found = indexed();
        if std::mem::replace(&mut before, found) != found {
            progress = Instant::now();
        }
        // The assertions below report any errors.
        let now = journal_bytes(session);
        if std::mem::replace(&mut bytes, now) != now {
            recorded = Recorded::read(session);
        } else if progress.elapsed() > PATIENCE || found >= Some(recorded.piece_count() + recorded.whole.len()) {
            let rows = rows(session).expect("it can be read");
            check_indexed(&recorded, &rows);
            return rows;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn journal_bytes(session: &Path) -> u64 {
    segments(session).iter().map(|path| path.metadata().expect("it is there").len()).sum()
}

/// The files of the journal, in order; a segment that is being created has no name yet.
fn segments(session: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(session.join("journal")).expect("a folder").map(|file| file.expect("a file").path());
    let has_name = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jsonl");
    let mut files: Vec<PathBuf> = files.filter(has_name).collect();
    files.sort();
    files
}

fn check_indexed(recorded: &Recorded, rows: &[Row]) {
    for (row, seq) in rows.iter().zip(1..) {
        assert_eq!(row.seq, seq, "a hole or a double: {row:?}");
    }
    let whole: BTreeMap<Place, String> =
        rows.iter().filter(|row| row.pieces.is_none()).map(|row| (row.place.clone(), row.event_type.clone())).collect();
    let missing: Vec<_> = recorded.whole.iter().filter(|(place, _)| !whole.contains_key(place)).take(5).collect();
    assert!(missing.is_empty(), "not indexed: {missing:?}");
    let invented: Vec<_> = whole.iter().filter(|(place, _)| !recorded.whole.contains_key(place)).take(5).collect();
    assert!(invented.is_empty(), "of no record: {invented:?}");
    assert!(whole == recorded.whole, "types differ");
    assert_eq!(rows.iter().filter(|row| row.pieces.is_none()).count(), whole.len(), "an event twice");
    let mut groups: BTreeMap<&str, BTreeMap<&Place, usize>> = BTreeMap::new();
    for row in rows {
        if let Some(pieces) = row.pieces {
            let twice = groups.entry(&row.of).or_default().insert(&row.place, pieces);
            assert_eq!(twice, None, "a group twice: {row:?}");
        }
    }
    assert!(groups.keys().eq(recorded.pieces.keys()), "{:?}\n{:?}", groups.keys(), recorded.pieces.keys());
    for (of, groups) in groups {
        // Each group contains the deltas from its own place up to the next group.
        let pieces = &recorded.pieces[of];
        let starts: Vec<&&Place> = groups.keys().collect();
        let counted = starts.iter().enumerate().map(|(number, start)| {
            let end = starts.get(number + 1);
            pieces.iter().filter(|place| *place >= **start && end.is_none_or(|end| *place < **end)).count()
        });
        assert_eq!(counted.collect::<Vec<_>>(), groups.values().copied().collect::<Vec<_>>(), "{of}");
        assert_eq!(pieces.len(), groups.values().sum::<usize>(), "{of}");
    }
}

/// A page of events.
pub fn page(session: &Path, query: &str) -> Value {
    let (status, document) = http(session, &format!("GET {EVENTS}?{query}"), b"");
    assert_eq!(status, 200, "{document}");
    document
}

/// A relay in session `s` in front of `cat`: the server repeats every line of the client.
pub struct Echo {
    pub home: Home,
    pub session: PathBuf,
    pub relay: Child,
}

impl Echo {
    pub fn start(home: Home) -> Echo {
        Echo::start_with(home, &[])
    }

    pub fn start_with(home: Home, settings: &[(&str, &str)]) -> Echo {
        let mut command = home.shim(&["run", "--session", "s", "--", "cat"]);
        command.envs(settings.iter().copied()).stderr(Stdio::null());
        let relay = command.spawn().expect("the shim starts");
        let session = home.path().join("sessions/s");
        eventually("the control socket", || client::get(&session, "/healthz").ok());
        Echo { home, session, relay }
    }

    /// Passes lines, and checks that they come back unchanged.
    pub fn pass(&mut self, lines: &[String]) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let stdin = self.relay.stdin.as_mut().expect("stdin is open");
        let stdout = self.relay.stdout.as_mut().expect("stdout is piped");
        let mut back = vec![0; text.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| stdin.write_all(text.as_bytes()).expect("the relay reads"));
            stdout.read_exact(&mut back).expect("the lines come back");
        });
        assert!(back == text.as_bytes(), "altered");
    }

    pub fn end(mut self) -> Home {
        drop(self.relay.stdin.take());
        self.relay.stdout.as_mut().expect("stdout is piped").read_to_end(&mut Vec::new()).expect("it ends");
        assert!(self.relay.wait().expect("the shim ends").success());
        self.home
    }

    pub fn kill(mut self) -> Home {
        self.relay.kill().expect("it runs");
        self.relay.wait().expect("it was killed");
        self.home
    }
}

/// Pause of a client between two lines. A test build, whose index yields to every other process, keeps up with this
/// rate even on a busy machine.
const LOAD_EVERY: Duration = Duration::from_millis(4);

/// A client that sends lines one after the other, and checks each one that comes back, until it is stopped.
pub struct Load {
    passed: Arc<AtomicU64>,
    stop: SyncSender<()>,
    thread: JoinHandle<Echo>,
}

impl Load {
    pub fn start(mut echo: Echo) -> Load {
        let passed = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = sync_channel(1);
        let count = Arc::clone(&passed);
        let thread = std::thread::spawn(move || {
            for number in 0.. {
                echo.pass(&[line(number)]);
                count.fetch_add(1, Ordering::SeqCst);
                if stopped.recv_timeout(LOAD_EVERY) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            echo
        });
        Load { passed, stop, thread }
    }

    /// Waits until `lines` more lines have come back.
    pub fn more(&self, lines: u64) {
        let until = self.passed.load(Ordering::SeqCst) + lines;
        eventually("more lines", || (self.passed.load(Ordering::SeqCst) >= until).then_some(()));
    }

    pub fn end(self) -> Echo {
        self.stop.send(()).expect("it runs");
        self.thread.join().expect("every line came back as it was")
    }
}

/// One of many lines: deltas of three items, other notifications, calls, answers, and text that needs a second look.
pub fn line(number: u64) -> String {
    let mixed = crate::kills::spread(number);
    let fill = "x".repeat((mixed >> 32) as usize % 120);
    let place = format!(r#""threadId":"t","turnId":"u","itemId":"i{}""#, number / 40 % 3);
    match mixed % 12 {
        0..=5 => format!(r#"{{"method":"item/agentMessage/delta","params":{{{place},"delta":"{fill}"}}}}"#),
        6 => format!(r#"{{"method":"item/reasoning/summaryTextDelta","params":{{{place},"delta":"{number} "}}}}"#),
        7 => format!(r#"{{"method":"item/x","params":{{{place},"fill":"\u001e{fill}"}}}}"#),
        8 => format!(r#"{{"method":"thread/x","params":{{"threadId":"t","number":{number},"fill":"{fill}"}}}}"#),
        9 => format!(r#"{{"id":{number},"method":"turn/x","params":{{"threadId":"t"}}}}"#),
        10 => format!(r#"{{"id":{number},"result":{{"fill":"{fill}"}}}}"#),
        _ => format!(r#"{{"method":"other","params":{{"fill":"{fill}"}}}}"#),
    }
}

/// One message of a stream.
#[derive(Debug, Clone)]
pub struct Sent {
    pub id: Option<String>,
    pub text: String,
}

impl Sent {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    /// Its number, if it has one.
    pub fn seq(&self) -> Option<u64> {
        self.json()["seq"].as_u64()
    }
}

/// A stream of events, read as a browser does.
pub struct Stream {
    from: BufReader<UnixStream>,
}

impl Stream {
    /// `query` follows the `?`.
    pub fn open(session: &Path, query: &str, last_id: Option<&str>) -> Stream {
        let mut stream = UnixStream::connect(control::resolve(session).expect("a socket")).expect("it answers");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let last_id = last_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        // HTTP/1.0 sends the body without chunks.
        let request = format!("GET {EVENTS}/stream?{query} HTTP/1.0\r\nHost: shim\r\n{last_id}\r\n");
        stream.write_all(request.as_bytes()).expect("it is read");
        Stream { from: BufReader::new(stream) }
    }

    /// Reads only the status.
    pub fn status(mut self) -> u16 {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it is answered");
        line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    /// Reads the head of the response.
    pub fn begun(mut self) -> Stream {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.from.read_line(&mut head).expect("it is answered") > 0, "{head}");
        }
        assert!(head.contains(" 200 ") && head.contains("text/event-stream"), "{head}");
        self
    }

    /// The next event.
    pub fn next(&mut self) -> Sent {
        let (mut id, mut data) = (None, Vec::new());
        loop {
            let mut line = String::new();
            let read = self.from.read_line(&mut line).expect("an event comes");
            assert!(read > 0, "the stream has ended");
            assert!(!line.contains('\r'), "a line ends here for a reader of streams: {line:?}");
            let line = line.trim_end_matches('\n');
            match line.split_once(": ") {
                Some(("id", value)) => id = Some(value.to_owned()),
                Some(("data", value)) => data.push(value.to_owned()),
                _ if line.is_empty() && !data.is_empty() => return Sent { id, text: data.join("\n") },
                _ => {}
            }
        }
    }

    /// Continues to read in a thread until the stream ends; [`Collected::seen`] returns the messages so far.
    pub fn collected(mut self) -> Collected {
        let (sent, taken) = sync_channel(1_000_000);
        std::thread::spawn(move || {
            loop {
                let Ok(next) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.next())) else { return };
                if sent.send(next).is_err() {
                    return;
                }
            }
        });
        Collected { taken, seen: Vec::new() }
    }
}

/// The messages of a stream.
pub struct Collected {
    taken: std::sync::mpsc::Receiver<Sent>,
    seen: Vec<Sent>,
}

impl Collected {
    pub fn seen(&mut self) -> &[Sent] {
        self.seen.extend(self.taken.try_iter());
        &self.seen
    }
}
