//! The promises about threads that are checked on the record: what each of them is, and that those of no person change nothing of
//! what a person sees of the session.

use std::collections::BTreeSet;
use std::path::Path;

use codex_shim::testing::history::{Activity, Fold, SessionActivity};
use codex_shim::testing::index::HISTORY_FILE;
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
            return Err(format!("9: in the history {thread} is {found:?}, and the server says {kind} in {folder}"));
        }
    }
    Ok(())
}

/// Promise 9: a message about a thread of no person leaves the activity of the session as it is, unless the thread waits for a
/// person. It sees a reading of the record, with the fold ahead of each record and after it.
pub struct Others {
    threads: BTreeSet<String>,
    canary: Canary,
    described: BTreeSet<String>,
    /// Calls on record that have no response: only what answers one of them tells of a thread.
    calls: BTreeSet<(u32, String)>,
    /// The message of the record that is being read.
    message: Value,
    /// It answers a call on record.
    is_answer: bool,
    /// The activity ahead of it, if it is about one of the threads.
    before: Option<SessionActivity>,
}

impl Others {
    pub fn new(threads: BTreeSet<String>, canary: Canary) -> Others {
        Others {
            threads,
            canary,
            described: BTreeSet::new(),
            calls: BTreeSet::new(),
            message: Value::Null,
            is_answer: false,
            before: None,
        }
    }

    pub fn before(&mut self, record: &Record<'_>, fold: &Fold) {
        self.message = record.line_bytes().and_then(|line| serde_json::from_slice(line).ok()).unwrap_or_default();
        let about = self.message["params"]["threadId"].as_str().filter(|thread| self.described.contains(*thread));
        self.before = about.map(|_| fold.activity());
        self.is_answer = false;
        match record {
            Record::Line { conn, .. } => {
                let call = (conn.0, self.message["id"].to_string());
                match self.message["method"].is_string() {
                    true => drop(self.calls.insert(call)),
                    false => self.is_answer = self.calls.remove(&call),
                }
            }
            Record::Header(_) | Record::Gap { .. } => self.calls.clear(),
            Record::Event { .. } => {}
        }
    }

    pub fn after(&mut self, fold: &Fold) -> Result<(), String> {
        if let Some(before) = &self.before {
            // Both at the time of the message: a turn of a person that falls silent ahead of it does so without it.
            let (before, after) = (before.session(fold.at_us()).0, fold.activity().session(fold.at_us()).0);
            if after != before && after.max(before) < Activity::WaitingInput {
                let (thread, message) = (&self.message["params"]["threadId"], &self.message);
                return Err(format!(
                    "9: the activity goes from {before} to {after} by {thread}, which is of no person: {message}"
                ));
            }
        }
        let result = self.is_answer.then_some(&self.message["result"]["thread"]);
        let objects = [Some(&self.message["params"]["thread"]), result];
        let ids = objects.into_iter().flatten().filter_map(|thread| thread["id"].as_str());
        self.described.extend(ids.filter(|id| self.threads.contains(*id)).map(str::to_owned));
        Ok(())
    }

    /// A record as the canary reads it.
    pub fn reads(&self, record: &[u8]) -> Vec<u8> {
        match self.canary {
            Canary::TakesOthersForPersons => {
                let text = String::from_utf8_lossy(record).replace("thread_title", "user");
                text.replace("ephemeral", "ephemera").into_bytes()
            }
            _ => record.to_vec(),
        }
    }
}
