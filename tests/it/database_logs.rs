//! The logs of a session's databases beside a reader: bounded while the session lives, and empty after its stop.

use std::fs;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::support::both_ends::Live;
use crate::support::eventually;
use crate::support::requests::{answer, command_asked, decision};
use crate::support::shim::Home;

/// The length that a log has at most once no reader holds it, in bytes.
const KEPT_BYTES: u64 = 4 << 20;

const HISTORY: &str = "history.db";
const LEDGER: &str = "ledger.db";

fn log_bytes(session: &Path, database: &str) -> u64 {
    fs::metadata(session.join(format!("{database}-wal"))).map_or(0, |log| log.len())
}

/// A reader that has read something, and holds nothing.
fn reader(session: &Path, database: &str) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let reader = Connection::open_with_flags(session.join(database), flags).expect("it is there");
    reads(&reader, "");
    reader
}

fn reads(reader: &Connection, before: &str) {
    reader.execute_batch(&format!("{before} SELECT count(*) FROM sqlite_schema")).expect("it can be read");
}

/// The model says something long.
fn says(live: &mut Live, number: u32) {
    let text = format!("{number} ").repeat(20_000);
    let item = serde_json::json!({ "type": "agentMessage", "id": format!("m{number}"), "text": text });
    let params = serde_json::json!({ "threadId": "t", "turnId": "u1", "item": item });
    live.say_plainly(&serde_json::json!({ "method": "item/completed", "params": params }).to_string());
}

/// Lets the log of the history grow while a reader holds it. Returns the number of the last message.
fn grows(live: &mut Live) -> u32 {
    let mut number = 0;
    while log_bytes(&live.session, HISTORY) < 2 * KEPT_BYTES {
        let before = log_bytes(&live.session, HISTORY);
        number += 1;
        says(live, number);
        eventually("an indexed message", || (log_bytes(&live.session, HISTORY) > before).then_some(()));
    }
    number
}

/// A live session with a history.
fn live(home: Home) -> Live {
    let mut live = Live::start_in(home).initialize();
    says(&mut live, 0);
    eventually("a history", || (log_bytes(&live.session, HISTORY) > 0).then_some(()));
    live
}

/// Stops the session once its index has nothing more to read.
fn ends_at_rest(live: Live) -> Home {
    eventually("an index at rest", || {
        let index = live.get("/sessions/self")["index"].clone();
        (!index["epoch"].is_null() && index["lag_lines"] == 0).then_some(())
    });
    live.end_quietly()
}

/// Stops the session and checks that a log is empty then. A relay that ends waits only a moment, says so, and leaves the log to the
/// next one.
fn is_empty_after(live: Live, database: &str) -> Home {
    let session = live.session.clone();
    let late = || fs::read_to_string(session.join("shim.log")).unwrap_or_default().matches("in time").count();
    let mut lates = late();
    let mut home = Some(ends_at_rest(live));
    eventually("an empty log", || {
        if log_bytes(&session, database) == 0 {
            return Some(());
        }
        let seen = std::mem::replace(&mut lates, late());
        assert!(lates > seen, "{} bytes of {database}-wal are left", log_bytes(&session, database));
        home = Some(ends_at_rest(Live::start_in(home.take()?).initialize()));
        None
    });
    home.expect("it was given back")
}

#[test]
fn log_of_the_history_shrinks_after_its_reader() {
    let mut live = live(Home::new());
    let reader = reader(&live.session, HISTORY);
    reads(&reader, "BEGIN;");
    let mut number = grows(&mut live);
    reader.execute_batch("ROLLBACK").expect("it is read");
    eventually("a short log", || {
        number += 1;
        says(&mut live, number);
        (log_bytes(&live.session, HISTORY) <= KEPT_BYTES).then_some(())
    });
    // The reader is still connected, so that SQLite by itself would leave the log.
    is_empty_after(live, HISTORY);
    drop(reader);
}

#[test]
fn log_that_a_reader_holds_at_the_stop_is_left_to_the_next_relay() {
    let mut first = live(Home::new());
    let reader = reader(&first.session, HISTORY);
    reads(&reader, "BEGIN;");
    grows(&mut first);
    let session = first.session.clone();
    let home = first.end_quietly();
    assert!(log_bytes(&session, HISTORY) >= 2 * KEPT_BYTES);
    reader.execute_batch("ROLLBACK").expect("it is read");
    let next = live(home);
    is_empty_after(next, HISTORY);
    drop(reader);
}

#[test]
fn log_of_the_ledger_is_empty_after_the_stop() {
    let mut live = live(Home::new());
    let id = live.asked(&command_asked("7", "t"), "7");
    let reader = reader(&live.session, LEDGER);
    live.answer_plainly(&answer("7", &decision("accept")));
    eventually("the answer", || (live.row(&id)["status"] == "resolved").then_some(()));
    assert!(log_bytes(&live.session, LEDGER) > 0);
    is_empty_after(live, LEDGER);
    drop(reader);
}
