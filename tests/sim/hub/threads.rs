//! The promises about threads that are checked on the record: what each of them is, and that those of no person change nothing of
//! what a person sees of the session.

use std::collections::BTreeSet;
use std::path::Path;

use codex_shim::testing::history::{Activity, Fold, Rows, Seen};
use codex_shim::testing::index::{Follower, HISTORY_FILE, Next, Patience};
use codex_shim::testing::journal::Record;
use rusqlite::Connection;
use serde_json::Value;

use super::super::canary::Canary;
use super::server::Server;

/// Forgets of all threads that no person speaks in them.
pub const ALL_OF_PERSONS: &str = "UPDATE codex_threads SET kind = 'user'";

/// Promise 9: the history has the kind and the folder of each thread that was described to a hub. A thread of which it has no folder
/// was only mentioned.
pub fn are_known(session: &Path, server: &Server) -> Result<(), String> {
    let database = Connection::open(session.join(HISTORY_FILE)).expect("there is a history");
    let sql = "SELECT kind, cwd FROM codex_threads WHERE thread_id = ?1 AND cwd IS NOT NULL";
    let mut select = database.prepare(sql).expect("our own SQL");
    for (thread, kind, folder) in server.described_threads() {
        let mut rows = select.query([thread]).expect("our own SQL");
        let Some(row) = rows.next().expect("rows can be read") else { continue };
        let found: (String, String) = (row.get_unwrap(0), row.get_unwrap(1));
        if (found.0.as_str(), found.1.as_str()) != (kind, folder) {
            return Err(format!("9: {thread} is {found:?} in the history, and the server says {kind} in {folder}"));
        }
    }
    Ok(())
}

/// Promise 9: a message about a thread of no person leaves the activity of the session as it is, unless the thread waits for a
/// person.
pub fn change_nothing(journal: &Path, others: &BTreeSet<String>, canary: Canary) -> Result<(), String> {
    let mut follower = Follower::new(journal, None);
    let (mut fold, mut rows) = (Fold::default(), Rows::default());
    let mut described = BTreeSet::new();
    loop {
        let Next::Record { at, bytes, successor, .. } = follower.next(Patience::None).expect("the journal can be read")
        else {
            return Ok(());
        };
        let bytes = read_by(canary, bytes);
        let record = Record::parse(&bytes).expect("it was looked at");
        let successor = successor.map(|bytes| Record::parse(bytes).expect("it was looked at"));
        let message: Value = record.line_bytes().and_then(|line| serde_json::from_slice(line).ok()).unwrap_or_default();
        let about = message["params"]["threadId"].as_str().filter(|thread| described.contains(*thread));
        let before = about.map(|_| fold.activity().session(fold.at_us()).0);
        fold.take(&at, &Seen::of(&record, successor.as_ref().and_then(Record::line_bytes)), &mut rows);
        if let (Some(thread), Some(before)) = (about, before) {
            let after = fold.activity().session(fold.at_us()).0;
            if after != before && after.max(before) < Activity::WaitingInput {
                return Err(format!("9: {thread} is of no person and makes {before} to {after}: {message}"));
            }
        }
        let object = [&message["params"]["thread"], &message["result"]["thread"]];
        let ids = object.into_iter().filter_map(|thread| thread["id"].as_str());
        described.extend(ids.filter(|id| others.contains(*id)).map(str::to_owned));
    }
}

/// A record as the canary reads it.
fn read_by(canary: Canary, record: &[u8]) -> Vec<u8> {
    match canary {
        Canary::TakesOthersForPersons => {
            let text = String::from_utf8_lossy(record).replace("thread_title", "user").replace("ephemeral", "ephemera");
            text.into_bytes()
        }
        _ => record.to_vec(),
    }
}
