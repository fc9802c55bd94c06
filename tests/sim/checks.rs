//! The promises, each looked at from what is left of a run: what the sides have said and got, the files, the ledger's rows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use codex_shim::engine::RequestStatus;
use codex_shim::history::{ActivityFold, Fold, Rows, Seen};
use codex_shim::index::{Follower, HISTORY_FILE, Next, Patience};
use codex_shim::journal::{Origin, Position, Record};
use codex_shim::wire::Side;
use rusqlite::Connection;
use serde_json::Value;

use super::world::Life;

/// Looks at what one run has left.
pub fn life(life: &Life<'_>, journal: &Path) -> Result<(), String> {
    to_server(life)?;
    to_client(life)?;
    on_record(life, journal)?;
    requests(life)
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

/// Whether a line is one that the shim made.
fn is_ours(line: &str) -> bool {
    parsed(line)["id"].as_str().is_some_and(|id| id.starts_with("codex-shim:"))
}

/// A line without what was put in front of the user's words.
fn plain(line: &str) -> Value {
    let mut value = parsed(line);
    let content = match value["method"].as_str() {
        Some("turn/start") => &mut value["params"]["input"],
        Some("item/started") => &mut value["params"]["item"]["content"],
        _ => return value,
    };
    if let Some(text) = content[0]["text"].as_str()
        && text.starts_with("\u{1e}CODEX_META ")
        && let Some((_, words)) = text.split_once('\u{1f}')
    {
        content[0]["text"] = Value::from(words);
    }
    value
}

fn is_same(said: &str, heard: &str) -> bool {
    said == heard || (said.starts_with('{') && plain(said) == plain(heard))
}

/// 1: what the client said has reached the server. Answers are looked at with the requests: some come too late, and some are of
/// other people.
fn to_server(life: &Life<'_>) -> Result<(), String> {
    let is_answer = |line: &str| {
        let line = parsed(line);
        line.is_object() && line.get("method").is_none()
    };
    let mut said = life.client.mouth.said.iter().filter(|line| !is_answer(line));
    for heard in life.server.ear.heard.iter().filter(|line| !is_ours(line) && !is_answer(line)) {
        match said.next() {
            Some(said) if is_same(said, heard) => {}
            said => return Err(format!("1: the server got\n    {heard}\n  and the client said\n    {said:?}")),
        }
    }
    match said.next().filter(|_| life.is_whole) {
        Some(line) => Err(format!("1: the server never got {line}")),
        None => Ok(()),
    }
}

/// 1: what the server said has reached the client, but for what the shim itself had asked for.
fn to_client(life: &Life<'_>) -> Result<(), String> {
    let mut said = life.server.mouth.said.iter();
    // Requests may be held back, and be told when nobody else is there to answer them.
    let mut held: Vec<&String> = Vec::new();
    let may_be_held = |line: &str| line.contains("requestApproval") || line.contains("serverRequest/resolved");
    'heard: for heard in &life.client.ear.heard {
        let before = said.clone();
        loop {
            match said.next() {
                Some(said) if is_same(said, heard) => {
                    if heard.contains("\\u001eCODEX_META") {
                        return Err(format!("1: the client sees an envelope: {heard}"));
                    }
                    continue 'heard;
                }
                Some(said) if is_ours(said) => {}
                Some(said) if may_be_held(said) => held.push(said),
                Some(_) | None => break,
            }
        }
        said = before;
        match held.iter().position(|said| is_same(said, heard)) {
            Some(index) => drop(held.remove(index)),
            None => return Err(format!("1: the client got {heard}, and the server did not say it then")),
        }
    }
    let missing = said.find(|line| life.is_whole && !is_ours(line) && !may_be_held(line));
    missing.map_or(Ok(()), |line| Err(format!("1: the client never got {line}")))
}

/// 2: what was received is on record, or counted as missing.
fn on_record(life: &Life<'_>, journal: &Path) -> Result<(), String> {
    let mut on_record: [BTreeMap<Vec<u8>, i64>; 2] = Default::default();
    let mut missing = life.unmarked_lines;
    for (at, bytes) in records(journal) {
        let record = Record::parse(&bytes).map_err(|error| format!("2: {at:?} is no record: {error}"))?;
        if at.segment.generation.as_str() != life.generation {
            continue;
        }
        match record {
            Record::Gap { lines, .. } => missing += lines,
            Record::Line { from, to, content, .. } => {
                let to = match from {
                    Origin::Side(Side::Client) => Side::Server,
                    Origin::Side(Side::Server) => Side::Client,
                    Origin::Shim => to.unwrap_or(Side::Server),
                };
                let line = content.bytes().unwrap_or_default().to_vec();
                *on_record[to as usize].entry(line).or_default() += 1;
            }
            Record::Header(_) | Record::Event { .. } => {}
        }
    }
    let mut unrecorded = 0;
    for (side, heard) in [(Side::Client, &life.client.ear.heard), (Side::Server, &life.server.ear.heard)] {
        for line in heard {
            match on_record[side as usize].get_mut(line.as_bytes()).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => unrecorded += 1,
            }
            if unrecorded > missing {
                return Err(format!("2: the {} got what is not on record: {line}", side.name()));
            }
        }
    }
    Ok(())
}

/// 3: a request is answered once, and what the server got is what is kept.
fn requests(life: &Life<'_>) -> Result<(), String> {
    if let Some(id) = life.server.answered_twice {
        return Err(format!("3: request {id} was answered twice"));
    }
    if !life.is_whole {
        return Ok(());
    }
    for (id, answer) in &life.server.answers {
        let named = life
            .rows
            .iter()
            .find(|(name, row)| name.starts_with(life.generation) && row.rpc_request_id == id.to_string());
        let Some((name, row)) = named else { return Err(format!("3: the answer to request {id} is not kept")) };
        let kept = row.payload.as_deref().map(parsed).unwrap_or_default();
        if row.status != RequestStatus::Resolved || kept != *answer {
            return Err(format!("3: {name} was answered with {answer}, and {row:?} is kept"));
        }
    }
    let open = life.rows.iter().find(|(_, row)| matches!(row.status, RequestStatus::Pending | RequestStatus::Expired));
    open.map_or(Ok(()), |(name, row)| Err(format!("3: {name} is open for ever: {row:?}")))
}

/// What is compared of an event: its key, its type, and of how many pieces it was joined.
type Indexed = (String, String, Option<u64>);

/// All records, with their places.
fn records(journal: &Path) -> Vec<(Position, Vec<u8>)> {
    let mut follower = Follower::new(journal, None);
    let mut records = Vec::new();
    // One that replaces another is given with that.
    loop {
        match follower.next(Patience::None).expect("the journal can be read") {
            Next::Record { at, bytes, successor } => {
                let behind = Position { offset: at.offset + bytes.len() as u64 + 1, ..at.clone() };
                records.push((at, bytes.to_vec()));
                records.extend(successor.map(|bytes| (behind, bytes.to_vec())));
            }
            Next::Lost { .. } => {}
            Next::End => return records,
        }
    }
}

/// Where records begin, without those that replace another.
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

/// 4 and 5: the database holds what one reading of the files gives, wherever that is interrupted; at `stops` the index was
/// before, and waited for no more pieces.
pub fn history(session: &Path, activity: &ActivityFold, stops: &[Position], cut: u64) -> Result<(), String> {
    let mut follower = Follower::new(&session.join("journal"), None);
    let (mut fold, mut rows) = (Fold::default(), Rows::default());
    let mut count = 0;
    loop {
        match follower.next(Patience::None).expect("the journal can be read") {
            Next::Record { at, bytes, successor } => {
                if stops.contains(&at) {
                    fold.silence(u64::MAX, &mut rows);
                }
                let record = Record::parse(bytes).expect("it was looked at");
                let successor = successor.map(|bytes| Record::parse(bytes).expect("it was looked at"));
                fold.take(&at, &Seen::of(&record, successor.as_ref().and_then(Record::line_bytes)), &mut rows);
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
    if found != expected {
        let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        let first = first.unwrap_or(found.len().min(expected.len()));
        let [one, other] = [found.get(first), expected.get(first)];
        return Err(format!("4: event {first} is {one:?}, and one reading gives {other:?}"));
    }
    let keys: BTreeSet<&String> = found.iter().map(|(key, ..)| key).collect();
    if keys.len() != found.len() {
        return Err("4: a record is indexed twice".to_owned());
    }
    for (table, count) in [("codex_tool_events", rows.tools.len()), ("codex_turn_events", rows.turns.len())] {
        let sql = format!("SELECT COUNT(*) FROM {table}");
        let found: i64 = database.query_row(&sql, [], |row| row.get(0)).expect("rows can be counted");
        if found != count as i64 {
            return Err(format!("4: {table} has {found} rows, and one reading gives {count}"));
        }
    }
    if activity != fold.activity() {
        return Err(format!("5: read live it is {activity:?}, and read again {:?}", fold.activity()));
    }
    Ok(())
}

/// Has the last event of a history stand in it once more.
pub fn index_again(session: &Path) {
    let database = Connection::open(session.join(HISTORY_FILE)).expect("there is a history");
    let sql = "INSERT INTO codex_events SELECT seq + 1, session_id, timestamp, event_type, thread_id, turn_id, item_id,
        payload_preview, generation, segment, byte_offset, delta_count FROM codex_events ORDER BY seq DESC LIMIT 1";
    database.execute(sql, []).expect("our own SQL");
}
