//! The promises that are checked on the remains of a run: the input and output of the sides, the files, the ledger's
//! rows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use codex_shim::testing::engine::RequestStatus;
use codex_shim::testing::history::{Fold, Rows as HistoryRows, Seen, SessionActivity};
use codex_shim::testing::index::{Follower, HISTORY_FILE, Next, Patience};
use codex_shim::testing::journal::{Origin, Position, Record};
use codex_shim::testing::wire::Side;
use rusqlite::Connection;

use super::asked::Asked;
use super::client::Client;
use super::hub::Others;
use super::referee::Referee;
use super::rows::Rows;
use super::server::Server;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// At an arbitrary point.
    Killed,
    /// With the child, and with everything in flight.
    ChildGone,
    /// By itself, with nothing in flight.
    Rest,
}

/// The remains of a run.
#[derive(Debug)]
pub struct Life<'a> {
    pub generation: &'a str,
    pub client: &'a Client,
    pub server: &'a Server,
    pub referee: &'a Referee,
    pub rows: &'a Rows,
    /// Lines that are counted as missing and not marked yet.
    pub unmarked_lines: u64,
    pub ending: Ending,
}

/// Checks the remains of a run.
pub fn life(life: &Life<'_>, journal: &Path) -> Result<(), String> {
    if life.ending == Ending::Rest {
        life.referee.server_has_all(&life.client.mouth.said)?;
        life.referee.client_has_all(&life.server.mouth.said)?;
    }
    on_record(life, journal)?;
    rows(life)?;
    lost_answers(life)?;
    match life.ending {
        Ending::Killed => Ok(()),
        Ending::ChildGone | Ending::Rest => life.referee.all_are_told(),
    }
}

/// Promise 2: received lines are on record, or counted as missing.
fn on_record(life: &Life<'_>, journal: &Path) -> Result<(), String> {
    let mut recorded = Recorded::read(journal, life.generation, life.unmarked_lines)?;
    let to_client = life.client.ear.heard.iter().enumerate();
    let to_client = to_client.map(|(index, line)| (line, life.referee.heard_late.contains(&index)));
    let to_server = life.server.ear.heard.iter().map(|line| (line, false));
    recorded.has(0, Side::Client, to_client)?;
    recorded.has(0, Side::Server, to_server)
}

/// The lines on record for each side of each connection, in order.
#[derive(Debug, Default)]
pub struct Recorded {
    lines: BTreeMap<(u32, Side), Vec<Vec<u8>>>,
    /// Lines that are counted as missing.
    missing: u64,
    /// Lines that were received and are not on record.
    unrecorded: u64,
}

impl Recorded {
    /// Reads a run. A line that was sent in place of another follows that, on the same connection.
    pub fn read(journal: &Path, generation: &str, missing: u64) -> Result<Recorded, String> {
        let mut recorded = Recorded { missing, ..Recorded::default() };
        let mut last = None;
        for bytes in records(journal, generation) {
            let text = String::from_utf8_lossy(&bytes);
            let record = Record::parse(&bytes).map_err(|error| format!("2: {text} is no record: {error}"))?;
            let mut side = None;
            match record {
                Record::Gap { lines, .. } => recorded.missing += lines,
                Record::Line { conn, from, to, replaces, content, .. } => {
                    let to = match from {
                        Origin::Side(Side::Client) => Side::Server,
                        Origin::Side(Side::Server) => Side::Client,
                        Origin::Shim => to.unwrap_or(Side::Server),
                    };
                    if replaces && last != Some((conn, to)) {
                        return Err(format!("2: on record ahead of the line that it replaces: {text}"));
                    }
                    side = (from != Origin::Shim).then_some((conn, to));
                    let line = content.bytes().unwrap_or_default().to_vec();
                    recorded.lines.entry((conn.0, to)).or_default().push(line);
                }
                Record::Header(_) | Record::Event { .. } => {}
            }
            last = side;
        }
        Ok(recorded)
    }

    /// Whether a side has received only what is on record, but for what is missing, and in this order, but for lines that were
    /// withheld at first.
    pub fn has<'a>(
        &mut self,
        conn: u32,
        to: Side,
        got: impl Iterator<Item = (&'a Vec<u8>, bool)>,
    ) -> Result<(), String> {
        let recorded = self.lines.get(&(conn, to)).map(Vec::as_slice).unwrap_or_default();
        let mut left: BTreeMap<&Vec<u8>, i64> = BTreeMap::new();
        recorded.iter().for_each(|line| *left.entry(line).or_default() += 1);
        let mut in_order = recorded.iter();
        for (line, was_withheld) in got {
            let text = || String::from_utf8_lossy(line);
            match left.get_mut(line).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => self.unrecorded += 1,
            }
            if self.unrecorded > self.missing {
                let side = to.name();
                return Err(format!("2: the {side} got on connection {conn} what is not on record: {}", text()));
            }
            if self.missing == 0 && !was_withheld && !in_order.any(|recorded| recorded == line) {
                return Err(format!("2: on record in another order than the {} got it: {}", to.name(), text()));
            }
        }
        Ok(())
    }
}

/// Promise 3: each ended row has the referee's end. In a run that came to its end, each request has a row, and each row
/// an end.
fn rows(life: &Life<'_>) -> Result<(), String> {
    let by_name: BTreeMap<&String, &Asked> = life.referee.all_asked().map(|asked| (&asked.name, asked)).collect();
    for (name, row) in life.rows.of(life.generation) {
        let Some(asked) = by_name.get(name) else { return Err(format!("3: kept otherwise: {name} was never asked")) };
        let is_open = matches!(row.status, RequestStatus::Pending | RequestStatus::Expired);
        match &asked.end {
            _ if is_open && life.ending == Ending::Killed => {}
            _ if is_open => return Err(format!("3: open for ever: {name}: {row:?}")),
            Some(end) if end.status == row.status && Some(end.source) == row.source && end.payload == row.payload => {}
            _ if life.ending == Ending::Killed
                && row.payload.as_ref().is_some_and(|payload| asked.overtaken.contains(payload)) => {}
            end => return Err(format!("3: kept otherwise: {name} is {row:?}, and it was {end:?}")),
        }
        if asked.was_late && !row.late && life.ending != Ending::Killed {
            return Err(format!("3: not marked late: {name}: {row:?}"));
        }
    }
    let unkept = life.referee.all_asked().find(|asked| life.rows.get(&asked.name).is_none());
    match unkept.filter(|_| life.ending != Ending::Killed) {
        Some(asked) => Err(format!("3: not kept at all: {}", asked.name)),
        None => Ok(()),
    }
}

/// Promise 3: each answer of the client that was not forwarded is stored as lost.
fn lost_answers(life: &Life<'_>) -> Result<(), String> {
    let (kept, due) = (&life.rows.lost, &life.referee.lost);
    // An answer that is read while others wait for their order may be ahead of these.
    let mut left: Vec<_> = due.iter().collect();
    let is_due = |one: &_| left.iter().position(|due| *due == one).map(|at| left.swap_remove(at)).is_some();
    let are_due = kept.iter().map(is_due).filter(|is_due| !is_due).count() == 0;
    let is_right = are_due && (life.ending == Ending::Killed || kept.len() == due.len());
    if is_right { Ok(()) } else { Err(format!("3: lost answers: {kept:?} are kept, and there were {due:?}")) }
}

/// The compared parts of an event: its key, its type, and its number of joined deltas.
type Indexed = (String, String, Option<u64>);

/// The records of a run, or of all runs, read from the files independently of the reader under test. A torn record does
/// not count.
pub fn records(journal: &Path, generation: &str) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(journal).expect("the journal can be read").map(|file| file.expect("it is a file"));
    let of_run = files.filter(|file| file.file_name().to_string_lossy().starts_with(generation));
    let mut of_run: Vec<PathBuf> = of_run.map(|file| file.path()).collect();
    of_run.sort_unstable();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(path).expect("a segment can be read");
        let mut start = 0;
        let ends = memchr::memchr_iter(b'\n', &bytes);
        let lines = ends.map(|end| &bytes[std::mem::replace(&mut start, end + 1)..end]);
        lines.map(|line| in_full(line, &bytes)).collect::<Vec<_>>()
    };
    of_run.into_iter().flat_map(read).collect()
}

/// A record, or what it refers to in its segment with its own start.
fn in_full(record: &[u8], segment: &[u8]) -> Vec<u8> {
    const REFERS: &str = ",\"from\":\"server\",\"same\":";
    const STARTS: &str = ",\"from\":\"server\",";
    // A reference is short.
    const BYTES_MAX: usize = 120;
    if record.len() > BYTES_MAX {
        return record.to_vec();
    }
    let text = String::from_utf8_lossy(record);
    let reference =
        text.split_once(REFERS).filter(|(start, _)| start.starts_with("{\"at\":") && !start.contains("line"));
    let Some((start, offset)) =
        reference.and_then(|(start, rest)| Some((start, rest.strip_suffix('}')?.parse().ok()?)))
    else {
        return record.to_vec();
    };
    let full = segment.get(offset..).and_then(|rest| rest.split(|byte| *byte == b'\n').next()).unwrap_or_default();
    let full = String::from_utf8_lossy(full);
    let (_, rest) = full.split_once(STARTS).expect("it refers to a line of the server");
    format!("{start}{STARTS}{rest}").into_bytes()
}

/// The beginnings of records, without those that replace another.
pub fn places(journal: &Path) -> Vec<Position> {
    let mut follower = Follower::new(journal, None);
    let mut places = Vec::new();
    loop {
        match follower.next(Patience::None).expect("the journal can be read") {
            Next::Record { at, .. } => places.push(at),
            Next::Lost { .. } => {}
            Next::End => return places,
        }
    }
}

/// The result of a single reading of the files: the indexed events, and the activity of the session. `stops` are the
/// places where the index had stopped and given up waiting for more deltas; after `cut` records the fold is serialized
/// and restored.
fn one_reading(
    journal: &Path,
    stops: &[Position],
    cut: u64,
    mut others: Option<Others>,
) -> Result<(Fold, HistoryRows), String> {
    let mut follower = Follower::new(journal, None);
    let (mut fold, mut rows) = (Fold::default(), HistoryRows::default());
    let (mut count, mut read) = (0, 0);
    let mut stops = stops.iter().peekable();
    loop {
        match follower.next(Patience::None).expect("the journal can be read") {
            Next::Record { at, bytes, successor, .. } => {
                while stops.next_if(|stop| **stop <= at).is_some() {
                    fold.silence(u64::MAX, &mut rows);
                }
                read += 1 + usize::from(successor.is_some());
                let misread = others.as_ref().map(|others| others.reads(bytes));
                let record = Record::parse(misread.as_deref().unwrap_or(bytes)).expect("it was looked at");
                others.iter_mut().for_each(|others| others.before(&record, &fold));
                let successor = successor.map(|bytes| Record::parse(bytes).expect("it was looked at"));
                fold.take(&at, &Seen::of(&record, successor.as_ref().and_then(Record::line_bytes)), &mut rows);
                others.as_mut().map_or(Ok(()), |others| others.after(&fold))?;
                count += 1;
                if count == cut {
                    let kept = serde_json::to_string(&fold).expect("it can be kept");
                    fold = serde_json::from_str(&kept).expect("it can be read");
                }
            }
            Next::Lost { at } => fold.lost(&at, &mut rows),
            Next::End => break,
        }
    }
    fold.silence(u64::MAX, &mut rows);
    match records(journal, "").len() {
        recorded if recorded == read => Ok((fold, rows)),
        recorded => Err(format!("4: {read} records are read, and there are {recorded}")),
    }
}

/// Promises 4 and 5: the database equals a single reading of the files, wherever that reading is interrupted. Promise 9 is checked
/// in the same reading, if there are threads of no person.
pub fn history(
    session: &Path,
    activity: &SessionActivity,
    (stops, cut): (&[Position], u64),
    others: Option<Others>,
) -> Result<(), String> {
    let (fold, rows) = one_reading(&session.join("journal"), stops, cut, others)?;
    let expected: Vec<_> =
        rows.events.iter().map(|event| (event.key.to_string(), event.event_type.clone(), event.delta_count)).collect();
    let database = Connection::open(session.join(HISTORY_FILE)).expect("there is a history");
    let sql = "SELECT seq, generation || ':' || segment || ':' || byte_offset, event_type, delta_count
        FROM codex_events ORDER BY seq";
    let mut select = database.prepare(sql).expect("our own SQL");
    let read = |row: &rusqlite::Row<'_>| {
        let count = row.get::<_, Option<i64>>(3)?.map(|count| count as u64);
        Ok((row.get::<_, i64>(0)?, (row.get(1)?, row.get(2)?, count)))
    };
    let found: Vec<(i64, Indexed)> =
        select.query_map([], read).and_then(Iterator::collect).expect("events can be read");
    if let Some((at, _)) = found.iter().enumerate().find(|(index, (seq, _))| *seq != *index as i64 + 1) {
        return Err(format!("4: the numbers are not 1, 2, 3, …: {:?}", found[at]));
    }
    let found: Vec<_> = found.into_iter().map(|(_, event)| event).collect();
    let keys: BTreeSet<&String> = found.iter().map(|(key, ..)| key).collect();
    if keys.len() != found.len() {
        return Err("4: indexed twice: a record".to_owned());
    }
    if found != expected {
        let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        let first = first.unwrap_or(found.len().min(expected.len()));
        let [one, other] = [found.get(first), expected.get(first)];
        return Err(format!("4: event {first} is {one:?}, and one reading gives {other:?}"));
    }
    for (table, count) in [("codex_tool_events", rows.tools.len()), ("codex_turn_events", rows.turns.len())] {
        let sql = format!("SELECT COUNT(*) FROM {table}");
        let found: i64 = database.query_row(&sql, [], |row| row.get(0)).expect("rows can be counted");
        if found != count as i64 {
            return Err(format!("4: {table} has {found} rows, and one reading gives {count}"));
        }
    }
    if *activity != fold.activity() {
        return Err(format!("5: read live it is {activity:?}, and read again {:?}", fold.activity()));
    }
    Ok(())
}

/// Duplicates the last event of a history.
pub const INDEXED_AGAIN: &str = "INSERT INTO codex_events SELECT seq + 1, session_id, timestamp, event_type, thread_id,
    turn_id, item_id, payload_preview, generation, segment, byte_offset, delta_count FROM codex_events
    ORDER BY seq DESC LIMIT 1";

/// Deletes the last event.
pub const LAST_IS_GONE: &str = "DELETE FROM codex_events WHERE seq = (SELECT MAX(seq) FROM codex_events)";

/// Adds one to the number of the last event.
pub const LAST_IS_FURTHER: &str =
    "UPDATE codex_events SET seq = seq + 1 WHERE seq = (SELECT MAX(seq) FROM codex_events)";

/// Deletes a turn's row.
pub const A_TURN_IS_GONE: &str =
    "DELETE FROM codex_turn_events WHERE rowid = (SELECT MAX(rowid) FROM codex_turn_events)";

/// Damages a history.
pub fn spoil(session: &Path, sql: &str) {
    let database = Connection::open(session.join(HISTORY_FILE)).expect("there is a history");
    database.execute(sql, []).expect("our own SQL");
}

/// Promise 5: the activity of a session's threads, read from its files, agrees with the server.
pub fn activity(read: &SessionActivity, now_us: u64, server: &Server) -> Result<(), String> {
    let mut threads: BTreeMap<String, (Option<String>, u64)> = BTreeMap::new();
    for (thread, turn) in &server.running {
        threads.entry(thread.clone()).or_default().0 = Some(turn.clone());
    }
    for thread in server.waiting.values() {
        threads.entry(thread.clone()).or_default().1 += 1;
    }
    let does = |(turn, pending): &(Option<String>, u64)| turn.is_some() || *pending > 0;
    let read = read.threads(now_us).into_iter().map(|thread| (thread.thread_id, (thread.turn_id, thread.pending)));
    let read: BTreeMap<_, _> = read.filter(|(_, thread)| does(thread)).collect();
    match read == threads {
        true => Ok(()),
        false => Err(format!("5: it is not so: {read:?} is read, and the server has {threads:?}")),
    }
}
