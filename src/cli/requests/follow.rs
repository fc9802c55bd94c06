//! `codex-shim requests -f`: prints requests as they arrive, and again as they end.
//!
//! Each round looks at the sessions anew, so it survives relays that come and go. A request ends when its session no longer lists it;
//! while a relay does not answer, its requests stay as they were. The tool asks such a relay less often, because it delays the others.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use super::super::screen::{Clock, Screen, Tone};
use super::super::select_session;
use super::super::table::{Cell, Column, Table};
use super::super::{CliError, Done, FAILED};
use super::list::{HasSession, Listed, RequestsArguments, by, name_all, outcome_cell, sessions};
use super::{id_of, one, rows, text};
use crate::config::Environment;
use crate::store::{Found, WhichRequests};

/// The pause between two rounds, less than a second.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The pause after a relay has not answered.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Narrowest column of names, so that rows which are printed later stay aligned.
const NAME_COLUMNS: usize = 10;

/// Narrowest column of outcomes: `withdrawn`.
const OUTCOME_COLUMNS: usize = 9;

pub(super) fn follow(arguments: &RequestsArguments, environment: &Environment) -> Done {
    let name = arguments.common.session.name();
    let named = select_session::is_named(name, environment);
    let mut found = sessions(name, WhichRequests::Pending, environment)?;
    let wanted = found.first().filter(|_| named).map(|session| session.id.clone());
    let mut printer = Printer::new(arguments, if named { HasSession::No } else { HasSession::Yes }, environment);
    let mut pending = Pending::default();
    loop {
        let changed = pending.look(found, environment)?;
        put(&printer.text(&changed))?;
        if is_unread_within(LOOK_EVERY) {
            return Ok(0);
        }
        let is_wanted = |session: &Found| match &wanted {
            Some(id) => session.id == *id,
            None => session.live,
        };
        found = select_session::all_quietly(environment)?;
        found.retain(is_wanted);
    }
}

/// Waits; returns early, and true, if the reader of our output is gone.
fn is_unread_within(pause: Duration) -> bool {
    let (stdout, began) = (io::stdout(), Instant::now());
    loop {
        let left = pause.saturating_sub(began.elapsed());
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut end = [PollFd::new(&stdout, PollFlags::empty())];
        match poll(&mut end, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return end[0].revents().intersects(PollFlags::ERR | PollFlags::HUP),
            Err(_) if left.is_zero() => return false,
            // A signal that does not end us.
            Err(_) => {}
        }
    }
}

/// Prints and flushes text. The exit status is 0 if the reader has closed the pipe.
fn put(text: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| CliError::quiet(if error.kind() == io::ErrorKind::BrokenPipe { 0 } else { FAILED }))
}

/// The requests that were pending in the last round.
#[derive(Debug, Default)]
struct Pending {
    /// By session and request.
    known: BTreeMap<(String, String), (Found, Value)>,
    /// Sessions that have not answered, and when to ask them again.
    silent: HashMap<String, Instant>,
}

/// A request that has arrived or ended.
type Change = (Found, Value);

impl Pending {
    /// The requests of these sessions that are new, and all that have ended, oldest first.
    fn look(&mut self, found: Vec<Found>, environment: &Environment) -> Result<Vec<Change>, CliError> {
        let all = select_session::all_quietly(environment)?;
        self.silent.retain(|id, _| all.iter().any(|session| session.id == *id && session.live));
        let is_due = |session: &Found| self.silent.get(&session.id).is_none_or(|at| *at <= Instant::now());
        let asked: Vec<Found> = found.into_iter().filter(is_due).collect();
        let looked = select_session::at_once(&asked, |session| rows(session, WhichRequests::Pending));
        let (mut changed, mut listed) = (Vec::new(), HashMap::new());
        for (session, rows) in asked.iter().zip(looked) {
            match rows {
                Ok(rows) => {
                    self.silent.remove(&session.id);
                    for row in &rows {
                        let key = (session.id.clone(), id_of(row).to_owned());
                        if let Entry::Vacant(entry) = self.known.entry(key) {
                            entry.insert((session.clone(), row.clone()));
                            changed.push((session.clone(), row.clone()));
                        }
                    }
                    listed.insert(session.id.clone(), rows);
                }
                Err(error) => {
                    if self.silent.insert(session.id.clone(), Instant::now() + ASK_AGAIN_AFTER).is_none() {
                        error.report();
                    }
                }
            }
        }
        changed.extend(self.ended(&all, &listed));
        changed.sort_by(|(_, one), (_, other)| changed_at(one).cmp(changed_at(other)));
        Ok(changed)
    }

    /// The known requests that are not pending any more; forgets them.
    fn ended(&mut self, all: &[Found], listed: &HashMap<String, Vec<Value>>) -> Vec<Change> {
        let mut ended = Vec::new();
        let is_missing = |session: &str, request: &str| match listed.get(session) {
            Some(rows) => !rows.iter().any(|row| id_of(row) == request),
            // The session has stopped or was deleted.
            None => !all.iter().any(|found| found.id == session && found.live),
        };
        let missing: Vec<(String, String)> =
            self.known.keys().filter(|(session, request)| is_missing(session, request)).cloned().collect();
        for key in missing {
            let Some((session, row)) = self.known.get(&key) else { continue };
            let row = match all.iter().find(|found| found.id == key.0).map(|found| one(found, &key.1)) {
                Some(Ok(Some(mut document))) => document["request"].take(),
                // The relay answers later, or the next one does.
                Some(Err(_)) => continue,
                Some(Ok(None)) | None => gone(row),
            };
            // The server of a hub outlives it, and its requests stay pending.
            if row["status"] != "pending" {
                ended.push((session.clone(), row));
                self.known.remove(&key);
            }
        }
        ended
    }
}

/// The row of a request that was deleted with its session.
fn gone(row: &Value) -> Value {
    let mut row = row.clone();
    row["status"] = json!("gone");
    row
}

/// When a request ended or, if it is pending, when it arrived.
fn changed_at(row: &Value) -> &str {
    row["resolved_at"].as_str().unwrap_or_else(|| text(row, "requested_at"))
}

/// How changes are printed.
struct Printer {
    clock: Clock,
    as_json: bool,
    has_session: HasSession,
    table: Table,
    to: Screen,
}

impl Printer {
    fn new(arguments: &RequestsArguments, has_session: HasSession, environment: &Environment) -> Printer {
        let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
        let mut columns = vec![
            Column::whole(clock.head("TIME")).spare(),
            Column::whole("REQUEST").at_least(NAME_COLUMNS),
            Column::text("SESSION"),
            Column::whole("OUTCOME").at_least(OUTCOME_COLUMNS),
            Column::whole("BY").spare(),
            Column::text("WHAT IT ASKS"),
        ];
        if has_session == HasSession::No {
            columns.remove(2);
        }
        Printer { table: Table::new(columns, to), clock, as_json: arguments.common.as_json, has_session, to }
    }

    fn text(&mut self, changed: &[Change]) -> String {
        let mut listed: Vec<Listed<'_>> =
            changed.iter().map(|(session, row)| Listed::of(session, row.clone())).collect();
        name_all(&mut listed);
        if self.as_json {
            return listed.iter().map(|listed| format!("{}\n", listed.document())).collect();
        }
        self.clock.go_on();
        let cells = listed.iter().map(|listed| self.cells(listed)).collect();
        self.table.add(cells)
    }

    fn cells(&self, listed: &Listed<'_>) -> Vec<Cell> {
        let row = &listed.row;
        let mut cells =
            vec![(Tone::Faint, self.clock.cell(changed_at(row), self.to)), (Tone::Warning, listed.name.clone())];
        if self.has_session == HasSession::Yes {
            cells.push((Tone::Plain, listed.place.clone()));
        }
        cells.extend([outcome_cell(row), (Tone::Faint, by(row)), (Tone::Strong, text(row, "summary").to_owned())]);
        cells
    }
}
