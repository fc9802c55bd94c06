//! `codex-shim requests -f`: prints requests as they arrive, and again as they end.
//!
//! Each round looks at the sessions anew, so it survives relays that come and go. A request ends when its session no longer lists it;
//! while a relay does not answer, its requests stay as they were. The tool asks such a relay less often, because it delays the others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::offline::{request, requests};
use super::super::screen::{self, Clock, Screen, Tone};
use super::super::select_session;
use super::super::table::{Cell, Column, Table};
use super::super::{CliError, Done};
use super::list::{
    HasSession, ListedRequest, RequestsArguments, asks_cell, by, may_wait, name_all, outcome_cell, passes, sessions,
};
use crate::api::{Request, WhichRequests};
use crate::config::Environment;
use crate::control::sort_by_arrival;
use crate::os::polling::is_unread_within;
use crate::store::Found;

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
    let filter = arguments.filter.get(environment)?;
    let mut pending = Pending::default();
    loop {
        let mut changed = pending.look(found, environment)?;
        changed.retain(|(session, row)| !arguments.is_here || ListedRequest::of(session, row.clone()).is_here());
        let mut passing = Vec::new();
        for (session, row) in changed {
            if passes(&session, &row, &filter)? {
                passing.push((session, row));
            }
        }
        let changed = passing;
        screen::put(&printer.text(&changed))?;
        if is_unread_within(&io::stdout(), LOOK_EVERY) {
            return Ok(0);
        }
        let is_wanted = |session: &Found| match &wanted {
            Some(id) => session.id == *id,
            None => may_wait(session),
        };
        found = select_session::all_quietly(environment)?;
        found.retain(is_wanted);
    }
}

/// The requests that were pending in the last round.
#[derive(Debug, Default)]
struct Pending {
    /// By session and request.
    known: HashMap<(String, String), Known>,
    /// Requests that have been known.
    arrivals: u64,
    /// Sessions that have not answered, and when to ask them again.
    silent: HashMap<String, Instant>,
}

#[derive(Debug)]
struct Known {
    /// The place in the order in which requests became known, and so in that of their session.
    number: u64,
    session: Found,
    row: Request,
}

/// A request that has arrived or ended.
type RequestChange = (Found, Request);

/// Puts changes in order, oldest first. Requests of a session stay in their order, whatever the clock was set to.
fn sort(changed: &mut Vec<RequestChange>) {
    let ended = |row: &Request| row.resolved_at.is_some().then(|| row.request_id.clone());
    sort_by_arrival(changed, |(session, row)| (session.id.clone(), ended(row)), |(_, row)| changed_at(row).to_owned());
}

impl Pending {
    /// The requests of these sessions that are new, and all that have ended, oldest first.
    fn look(&mut self, found: Vec<Found>, environment: &Environment) -> Result<Vec<RequestChange>, CliError> {
        let all = select_session::all_quietly(environment)?;
        self.silent.retain(|id, _| all.iter().any(|session| session.id == *id && session.live));
        let is_due = |session: &Found| self.silent.get(&session.id).is_none_or(|at| *at <= Instant::now());
        let asked: Vec<Found> = found.into_iter().filter(is_due).collect();
        let looked = select_session::at_once(&asked, |session| requests(session, WhichRequests::Pending));
        let (mut changed, mut listed) = (Vec::new(), HashMap::new());
        for (session, rows) in asked.iter().zip(looked) {
            match rows {
                Ok(rows) => {
                    self.silent.remove(&session.id);
                    for row in &rows {
                        let key = (session.id.clone(), row.request_id.clone());
                        if let Entry::Vacant(entry) = self.known.entry(key) {
                            self.arrivals += 1;
                            let (session, row) = (session.clone(), row.clone());
                            changed.push((session.clone(), row.clone()));
                            entry.insert(Known { number: self.arrivals, session, row });
                        }
                    }
                    listed.insert(session.id.clone(), rows);
                }
                Err(error) => {
                    if self.silent.insert(session.id.clone(), Instant::now() + ASK_AGAIN_AFTER).is_none() {
                        CliError::from(error).report();
                    }
                }
            }
        }
        changed.extend(self.ended(&all, &listed));
        sort(&mut changed);
        Ok(changed)
    }

    /// The known requests that are not pending any more; forgets them.
    fn ended(&mut self, all: &[Found], listed: &HashMap<String, Vec<Request>>) -> Vec<RequestChange> {
        let mut ended = Vec::new();
        let is_missing = |session: &str, request: &str| match listed.get(session) {
            Some(rows) => !rows.iter().any(|row| row.request_id == request),
            // The session has stopped or was deleted.
            None => !all.iter().any(|found| found.id == session && found.live),
        };
        let missing = self.known.iter().filter(|((session, request), _)| is_missing(session, request));
        let mut missing: Vec<(u64, (String, String))> =
            missing.map(|(key, known)| (known.number, key.clone())).collect();
        missing.sort_unstable();
        for (_, key) in missing {
            let Some(Known { session, row, .. }) = self.known.get(&key) else { continue };
            let row = match all.iter().find(|found| found.id == key.0).map(|found| request(found, &key.1)) {
                Some(Ok(Some(document))) => document.request,
                // The relay answers later, or the next one does.
                Some(Err(_)) => continue,
                Some(Ok(None)) | None => Request { status: "gone".to_owned(), ..row.clone() },
            };
            // The server of a hub outlives it, and its requests stay pending.
            if !row.is_pending() {
                ended.push((session.clone(), row));
                self.known.remove(&key);
            }
        }
        ended
    }
}

/// When a request ended or, if it is pending, when it arrived.
fn changed_at(row: &Request) -> &str {
    row.resolved_at.as_ref().unwrap_or(&row.requested_at)
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
            Column::text("WHO ASKS"),
            Column::whole("OUTCOME").at_least(OUTCOME_COLUMNS),
            Column::whole("BY").spare(),
            Column::text("WHAT IT ASKS"),
        ];
        if has_session == HasSession::No {
            columns.remove(2);
        }
        Printer { table: Table::new(columns, to), clock, as_json: arguments.common.as_json, has_session, to }
    }

    fn text(&mut self, changed: &[RequestChange]) -> String {
        let mut listed: Vec<ListedRequest<'_>> =
            changed.iter().map(|(session, row)| ListedRequest::of(session, row.clone())).collect();
        name_all(&mut listed);
        if self.as_json {
            return listed.iter().map(|listed| format!("{}\n", json!(listed.document()))).collect();
        }
        self.clock.go_on();
        let cells = listed.iter().map(|listed| self.cells(listed)).collect();
        self.table.add(cells)
    }

    fn cells(&self, listed: &ListedRequest<'_>) -> Vec<Cell> {
        let row = &listed.row;
        let mut cells =
            vec![(Tone::Faint, self.clock.cell(changed_at(row), self.to)), (Tone::Warning, listed.name.clone())];
        if self.has_session == HasSession::Yes {
            cells.push((Tone::Plain, listed.place.clone()));
        }
        cells.extend([outcome_cell(row), (Tone::Faint, by(row)), asks_cell(row, Tone::Strong)]);
        cells
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn session(id: &str) -> Found {
        Found {
            id: id.to_owned(),
            dir: id.into(),
            live: true,
            holder: None,
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        }
    }

    /// `a1 12:00` has arrived, and `a1 12:00 12:30` has ended.
    #[test]
    fn changes_are_in_order_of_arrival() {
        for (given, expect) in [
            (&["a1 12:00", "a2 12:05", "b1 12:01", "a0 11:00 12:02"][..], "a1 b1 a0 a2"),
            // The clock is set back, ahead, and back again.
            (&["a1 12:00", "a2 10:00", "a3 10:01"], "a1 a2 a3"),
            (&["a1 10:00", "a2 18:00", "a3 10:01", "b1 10:00", "b2 10:02"], "a1 b1 a2 a3 b2"),
            (&["a1 12:00", "a2 09:00", "b1 08:00", "a0 07:00 11:00"], "b1 a1 a2 a0"),
        ] {
            let change = |text: &&str| -> RequestChange {
                let words: Vec<&str> = text.split(' ').collect();
                let row = json!({ "request_id": words[0], "requested_at": words[1], "resolved_at": words.get(2) });
                (session(&words[0][..1]), row.into())
            };
            let mut changed: Vec<RequestChange> = given.iter().map(change).collect();
            sort(&mut changed);
            let order: Vec<&str> = changed.iter().map(|(_, row)| &*row.request_id).collect();
            assert_eq!(order.join(" "), expect, "{given:?}");
        }
    }
}
