//! The promises that are checked on the remains of a hub: the record, the ledger's rows, the history.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use codex_shim::testing::engine::RequestStatus;
use codex_shim::testing::index::HISTORY_FILE;
use codex_shim::testing::journal::{Origin, Record, SegmentName};
use codex_shim::testing::wire::Side;
use rusqlite::Connection;
use serde_json::Value;

use super::super::checks::{Ending, Recorded, records};
use super::ledger::Ledger;
use super::referee::Referee;

/// The message of which several are one event.
const PIECE: &str = "item/agentMessage/delta";

/// The remains of a run of a hub with one server.
pub struct Life<'a> {
    /// Of the journal.
    pub generation: String,
    pub referee: &'a Referee,
    pub ledger: &'a Ledger,
    /// Messages that are counted as missing and not marked yet.
    pub unmarked_lines: u64,
    pub ending: Ending,
}

pub fn life(life: &Life<'_>, journal: &Path) -> Result<(), String> {
    on_record(life, journal)?;
    rows(life)?;
    let (kept, due) = (&life.ledger.lost, life.referee.lost());
    if life.ending != Ending::Killed && kept.len() != due.len() {
        return Err(format!("3: lost answers: {kept:?} are kept, and there were {due:?}"));
    }
    // An answer that is read while others wait for their order may be ahead of these.
    let mut left = due.clone();
    for one in kept {
        match left.iter().position(|due| is_same(one, due)) {
            Some(at) => drop(left.swap_remove(at)),
            None => return Err(format!("3: lost answers: {kept:?} are kept, and there were {due:?}")),
        }
    }
    match life.ending {
        Ending::Killed => Ok(()),
        Ending::ChildGone | Ending::Rest => life.referee.all_are_told(),
    }
}

/// Whether a lost answer is the one that is due. Before a hub has opened its ledger, it does not know that the request has a row
/// already, and a later one for this time it was asked. Answers that are lost until then go to the first row.
fn is_same(kept: &(String, String), due: &(String, String)) -> bool {
    let is_row = due.0.strip_prefix(&kept.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    is_row && kept.1 == due.1
}

/// Promise 2: each message that a side has received is on record under its connection, or counted as missing.
fn on_record(life: &Life<'_>, journal: &Path) -> Result<(), String> {
    let mut recorded = Recorded::read(journal, &life.generation, life.unmarked_lines)?;
    for (conn, side, got) in life.referee.got() {
        recorded.has(conn, side, got.iter().map(|(line, was_withheld)| (line, *was_withheld)))?;
    }
    Ok(())
}

/// Promise 3: the rows of this hub's requests have the referee's ends, and no other row of this run has changed.
fn rows(life: &Life<'_>) -> Result<(), String> {
    // The hub has stored nothing.
    if life.ledger.is_loading() {
        return Ok(());
    }
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, asked) in life.referee.rows().iter().enumerate() {
        let Some(name) = asked.name.as_deref() else { continue };
        if last.insert(name, number).is_some() {
            return Err(format!("3: two requests have the name {name}"));
        }
        // The hub opened the ledger only after the request was over, and an earlier hub has stored its end.
        if asked.is_early && asked.end.as_ref().is_some_and(|end| end.payload.is_none()) && life.ledger.had_ended(name)
        {
            continue;
        }
        let row = life.ledger.get(name);
        match (row, &asked.end) {
            (None, _) if life.ending == Ending::Killed => {}
            (None, _) => return Err(format!("3: not kept at all: {name}")),
            (Some(row), Some(_)) if row.is_open() && life.ending == Ending::Killed => {}
            (Some(row), Some(_)) if row.is_open() => return Err(format!("3: open for ever: {name}: {row:?}")),
            (Some(row), None) if row.is_open() => {}
            (Some(row), Some(end))
                if end.status == row.status && Some(end.source) == row.source && end.payload == row.payload => {}
            (Some(row), None)
                if row.status == RequestStatus::Resolved && life.ending == Ending::Killed && asked.is_deciding() => {}
            (Some(row), _)
                if life.ending == Ending::Killed
                    && row.payload.as_ref().is_some_and(|payload| asked.overtaken.contains(payload)) => {}
            (Some(row), end) => return Err(format!("3: kept otherwise: {name} is {row:?}, and it was {end:?}")),
        }
        if asked.was_late && life.ending != Ending::Killed && row.is_some_and(|row| !row.late) {
            return Err(format!("3: not marked late: {name}: {row:?}"));
        }
    }
    let unnamed = life.referee.rows().iter().find(|asked| asked.name.is_none());
    match unnamed.filter(|_| life.ending != Ending::Killed) {
        Some(asked) => Err(format!("3: not kept at all: {asked:?}")),
        None => Ok(()),
    }
}

/// The messages of the server in the record of a run: by method, the different ones and all deliveries.
#[derive(Default)]
struct Sent {
    messages: BTreeMap<String, BTreeSet<Vec<u8>>>,
    deliveries: BTreeMap<String, u64>,
    has_gap: bool,
}

impl Sent {
    fn of(journal: &Path, generation: &str) -> Sent {
        let mut sent = Sent::default();
        for bytes in records(journal, generation) {
            match Record::parse(&bytes) {
                Ok(Record::Gap { .. }) => sent.has_gap = true,
                Ok(Record::Line { from: Origin::Side(Side::Server), content, .. }) => {
                    let line = content.bytes().unwrap_or_default().to_vec();
                    let message: Value = serde_json::from_slice(&line).unwrap_or_default();
                    if let Some(method) = message["method"].as_str() {
                        *sent.deliveries.entry(method.to_owned()).or_default() += 1;
                        sent.messages.entry(method.to_owned()).or_default().insert(line);
                    }
                }
                _ => {}
            }
        }
        sent
    }
}

/// Promise 4: the history has each message of the server once, however many connections delivered it. A request that was
/// asked again is one more message, alike to the byte, so it may count again. Runs with a gap do not count, since a connection
/// may be missing in their records.
pub fn counts(session: &Path) -> Result<(), String> {
    let journal = session.join("journal");
    let database = Connection::open(session.join(HISTORY_FILE)).expect("there is a history");
    let sql = "SELECT SUM(COALESCE(delta_count, 1)) FROM codex_events WHERE generation GLOB ?1 AND event_type = ?2";
    let mut select = database.prepare(sql).expect("our own SQL");
    let mut counted = |generation: &str, method: &str| -> u64 {
        let count: Option<i64> =
            select.query_row([generation, method], |row| row.get(0)).expect("events can be counted");
        count.unwrap_or_default() as u64
    };
    let names = SegmentName::list(&journal).expect("the journal can be read");
    let mut generations: Vec<String> = names.iter().map(|name| name.generation.to_string()).collect();
    generations.dedup();
    let (mut pieces, mut has_gap) = (0, false);
    for generation in &generations {
        let sent = Sent::of(&journal, generation);
        has_gap |= sent.has_gap;
        for (method, messages) in sent.messages.iter().filter(|_| !sent.has_gap) {
            let different = messages.len() as u64;
            if method == PIECE {
                pieces += different;
                continue;
            }
            let count = counted(generation, method);
            let most = if method.ends_with("requestApproval") { sent.deliveries[method] } else { different };
            if !(different..=most).contains(&count) {
                return Err(format!("4: counted otherwise: {count} × {method} in {generation}, {different} were sent"));
            }
        }
    }
    // A stream goes on under the next hub, and is one event.
    match counted("*", PIECE) {
        count if has_gap || count == pieces => Ok(()),
        count => Err(format!("4: counted otherwise: {count} × {PIECE}, {pieces} were sent")),
    }
}
