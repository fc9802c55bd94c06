//! The ledgers of a home as one list of lines, oldest first.
//!
//! The order is total: by time, then session, then requests before answers, ends and overrulings, then as the ledger has them. Only the times
//! and places of the entries are in memory; each entry is read when its turn comes.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::line::AuditLine;
use crate::api::ThreadIdentityDocument;
use crate::control::{RequestOrigin, recorded_threads};
use crate::history::client_name;
use crate::history::micros_of;
use crate::history::{reviewed_action, rfc3339_millis};
use crate::protocol::change::{self, ChangeSize};
use crate::protocol::{CommandText, of_name};
use crate::requests::view::{ChangedFile, files};
use crate::secrets::Masker;
use crate::store::{AuditEntry, AuditKind, AuditLedger, AuditPlace, Found, LedgerError};

/// Most ledgers that are open at the same time; each has up to three files.
const OPEN_MAX: usize = 64;

/// A time at which something happens in a session, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AuditTime {
    at_us: u64,
    /// The number of the session in order of ids.
    session: u32,
    kind: AuditKind,
}

/// The ledgers of several sessions.
pub(super) struct Ledgers {
    /// In order of their ids.
    sessions: Vec<AuditedSession>,
    /// In total order.
    places: Vec<(AuditTime, AuditPlace)>,
    open: HashMap<u32, AuditLedger>,
    masker: Masker,
}

struct AuditedSession {
    found: Found,
    folder: Option<String>,
    client: Option<String>,
    /// The threads of entries so far.
    threads: HashMap<String, ThreadIdentityDocument>,
}

impl AuditedSession {
    /// Who a thread is, as the history says. A history that is gone or of an older version says nothing.
    fn thread(&mut self, thread_id: &str) -> ThreadIdentityDocument {
        if let Some(known) = self.threads.get(thread_id) {
            return known.clone();
        }
        let recorded = recorded_threads(&self.found.dir, &[thread_id.to_owned()]).remove(thread_id).unwrap_or_default();
        self.threads.entry(thread_id.to_owned()).or_insert(recorded).clone()
    }
}

/// A session whose ledger cannot be read, and why.
pub(super) type Unreadable = (String, String);

/// The name of expiry in `resolved_by`. Any other name from policy is the name of a rule.
const EXPIRY: &str = "expiry";

impl Ledgers {
    /// Reads the times and places of all entries of a period: RFC 3339, both ends included.
    pub(super) fn of(sessions: &[Found], period: (&str, &str)) -> (Ledgers, Vec<Unreadable>) {
        let mut sorted: Vec<&Found> = sessions.iter().collect();
        sorted.sort_by(|one, other| one.id.cmp(&other.id));
        let mut ledgers = Ledgers {
            sessions: Vec::new(),
            places: Vec::new(),
            open: HashMap::new(),
            masker: Masker::new(&[]).expect("BUG: there is no pattern"),
        };
        let mut unreadable = Vec::new();
        for session in sorted {
            match ledgers.add(session, period) {
                Ok(()) => {}
                Err(error) => unreadable.push((session.id.clone(), error.to_string())),
            }
        }
        // Entries of one moment keep the order of their ledger.
        ledgers.places.sort_by_key(|(moment, _)| *moment);
        (ledgers, unreadable)
    }

    fn add(&mut self, session: &Found, period: (&str, &str)) -> Result<(), LedgerError> {
        let Some(ledger) = AuditLedger::open(&session.dir)? else { return Ok(()) };
        let number = self.sessions.len() as u32;
        let from = self.places.len();
        let read = ledger.places(period, |at, place| {
            let moment = AuditTime { at_us: micros_of(at).unwrap_or_default(), session: number, kind: place.kind };
            self.places.push((moment, place));
        });
        if let Err(error) = read {
            self.places.truncate(from);
            return Err(error);
        }
        let holder = session.holder.as_ref();
        self.sessions.push(AuditedSession {
            found: session.clone(),
            threads: HashMap::new(),
            folder: holder.map(|holder| holder.place.cwd.clone()),
            client: holder.and_then(|holder| holder.client.as_deref()).map(|name| client_name(name).to_owned()),
        });
        Ok(())
    }

    /// The ids of the sessions that have a ledger, sorted.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &str> {
        self.sessions.iter().map(|session| &*session.found.id)
    }

    /// The time of the last entry.
    pub(super) fn last_at(&self) -> Option<String> {
        self.places.last().map(|(moment, _)| rfc3339_millis(moment.at_us))
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The moment of the entry with this number.
    pub(super) fn moment(&self, number: usize) -> Option<AuditTime> {
        self.places.get(number).map(|(moment, _)| *moment)
    }

    /// The moment of a line; `None` if its session is not one of these.
    pub(super) fn moment_of(&self, line: &AuditLine) -> Option<AuditTime> {
        let session = self.number_of(line.get("session")?)?;
        Some(AuditTime { at_us: micros_of(line.get("at")?)?, session, kind: of_name(line.get("kind")?)? })
    }

    fn number_of(&self, session: &str) -> Option<u32> {
        self.sessions.binary_search_by(|other| other.found.id.as_str().cmp(session)).ok().map(|number| number as u32)
    }

    /// The line of the entry with this number; `None` if the entry is gone.
    pub(super) fn line(&mut self, number: usize) -> Result<Option<AuditLine>, LedgerError> {
        let (moment, place) = self.places[number];
        let Some(entry) = self.ledger(moment.session)?.map(|ledger| ledger.entry(place)).transpose()?.flatten() else {
            return Ok(None);
        };
        // The end of an expired request has been replaced by its answer.
        if micros_of(&entry.at).unwrap_or_default() != moment.at_us {
            return Ok(None);
        }
        let session = &mut self.sessions[moment.session as usize];
        let thread = entry.thread_id.as_deref().map(|thread_id| session.thread(thread_id));
        Ok(Some(self.line_of(moment.session, place.kind, &entry, thread)))
    }

    /// When a request ended, if it has; `None` if the request is unknown.
    pub(super) fn ended_at(&mut self, line: &AuditLine) -> Result<Option<Option<String>>, LedgerError> {
        let (Some(session), Some(request)) = (line.get("session"), line.get("request")) else { return Ok(None) };
        let Some(number) = self.number_of(session) else { return Ok(None) };
        Ok(self.ledger(number)?.map(|ledger| ledger.ended_at(request)).transpose()?.flatten())
    }

    fn ledger(&mut self, session: u32) -> Result<Option<&AuditLedger>, LedgerError> {
        if !self.open.contains_key(&session) {
            if self.open.len() >= OPEN_MAX {
                self.open.clear();
            }
            let Some(ledger) = AuditLedger::open(&self.sessions[session as usize].found.dir)? else { return Ok(None) };
            self.open.insert(session, ledger);
        }
        Ok(self.open.get(&session))
    }

    fn line_of(
        &self,
        session: u32,
        kind: AuditKind,
        entry: &AuditEntry,
        thread: Option<ThreadIdentityDocument>,
    ) -> AuditLine {
        let session = &self.sessions[session as usize];
        let mut line = AuditLine::new(kind.name(), &entry.at);
        line.set("session", Some(session.found.id.clone()));
        line.set("folder", session.folder.clone());
        line.set("client", session.client.clone());
        line.set("generation", entry.generation.clone());
        line.set("request", Some(entry.request_id.clone()));
        line.set("thread", entry.thread_id.clone());
        if let Some(thread) = thread {
            line.set("thread_title", thread.title.clone());
            line.set("thread_kind", thread.cwd.as_ref().map(|_| thread.kind.name().to_owned()));
            let RequestOrigin { name, cwd, .. } = RequestOrigin::of_thread(&session.found, thread);
            line.set("thread_name", Some(name));
            line.set("thread_folder", Some(cwd));
        }
        line.set("turn", entry.turn_id.clone());
        line.set("item", entry.item_id.clone());
        line.set("type", entry.request_type.clone());
        line.set("method", entry.method.clone());
        match kind {
            AuditKind::Request => self.asked(&mut line, entry),
            AuditKind::Answer => {
                line.set_number("answer_id", entry.answer_id.map(i64::unsigned_abs));
                line.set("won", entry.won.map(|won| won.to_string()));
                line.set("answer", self.json(&parsed(entry.answer_json.as_deref())));
                self.who(&mut line, entry);
            }
            AuditKind::End => {
                line.set("status", entry.status.clone());
                line.set("error_code", entry.error_code.clone());
                line.set("error", self.text(entry.error_message.as_deref()));
                self.who(&mut line, entry);
            }
            AuditKind::Overruling => {
                let action = &parsed(entry.payload_json.as_deref())["event"]["action"];
                line.set("summary", self.text(Some(&reviewed_action(action))));
                line.set("cwd", self.text(action["cwd"].as_str()));
                self.who(&mut line, entry);
            }
        }
        line
    }

    fn asked(&self, line: &mut AuditLine, entry: &AuditEntry) {
        let payload = parsed(entry.payload_json.as_deref());
        let changes = parsed(entry.changes_json.as_deref());
        let changed = files(change::of_request(&payload, &changes));
        let of_file = |file: &ChangedFile| {
            let ChangeSize { added, removed, .. } = file.size();
            json!({"change": file.kind, "path": file.path, "moved_to": file.moved_to, "added": added, "removed": removed})
        };
        let changed: Vec<Value> = changed.iter().map(of_file).collect();
        line.set("summary", self.text(entry.summary.as_deref()));
        line.set("command", self.text(command(&payload["command"]).as_deref()));
        line.set("cwd", self.text(payload["cwd"].as_str()));
        line.set("reason", self.text(payload["reason"].as_str()));
        line.set("files", if changed.is_empty() { None } else { self.json(&Value::Array(changed)) });
        line.set("expires_at", entry.expires_at.clone());
    }

    fn who(&self, line: &mut AuditLine, entry: &AuditEntry) {
        let by = entry.by.as_deref();
        let (uid, pid) = by.map_or((None, None), user_and_process);
        line.set("source", entry.source.clone());
        line.set("by", self.text(by));
        line.set_number("uid", uid);
        line.set_number("pid", pid);
        let is_rule = entry.source.as_deref() == Some("policy") && by != Some(EXPIRY);
        line.set("rule", self.text(by.filter(|_| is_rule)));
    }

    /// Masked text.
    fn text(&self, text: Option<&str>) -> Option<String> {
        text.map(|text| self.masker.text(text).unwrap_or_else(|| text.to_owned()))
    }

    /// Masked JSON.
    fn json(&self, value: &Value) -> Option<String> {
        let text = value.to_string();
        (!value.is_null()).then(|| self.masker.json(&text).unwrap_or(text))
    }
}

fn parsed(json: Option<&str>) -> Value {
    json.map_or(Value::Null, |json| serde_json::from_str(json).unwrap_or_else(|_| json.into()))
}

/// The command of a request, shell included.
fn command(value: &Value) -> Option<String> {
    Some(match CommandText::of(value)? {
        CommandText::Line(line) => line.to_owned(),
        CommandText::Words(words) => shlex::try_join(words.iter().copied()).unwrap_or_else(|_| words.join(" ")),
    })
}

/// The user and the process in `uid 1000, pid 7`, as the control socket names a caller.
fn user_and_process(by: &str) -> (Option<u64>, Option<u64>) {
    let Some(rest) = by.strip_prefix("uid ") else { return (None, None) };
    let (uid, pid) = rest.split_once(", pid ").map_or((rest, None), |(uid, pid)| (uid, Some(pid)));
    match uid.parse() {
        Ok(uid) => (Some(uid), pid.and_then(|pid| pid.parse().ok())),
        Err(_) => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_of_the_socket_have_a_user_and_a_process() {
        let check = |by: &str, expect: (Option<u64>, Option<u64>)| assert_eq!(user_and_process(by), expect, "{by}");
        check("uid 1000, pid 7", (Some(1_000), Some(7)));
        check("uid 0", (Some(0), None));
        check("vscode", (None, None));
        check("uid x, pid 7", (None, None));
    }

    #[test]
    fn commands_are_shown_as_they_were_asked() {
        assert_eq!(command(&json!("/bin/bash -lc 'a b'")).as_deref(), Some("/bin/bash -lc 'a b'"));
        assert_eq!(command(&json!(["/bin/sh", "-c", "a b"])).as_deref(), Some("/bin/sh -c 'a b'"));
        assert_eq!(command(&json!(7)), None);
    }
}
