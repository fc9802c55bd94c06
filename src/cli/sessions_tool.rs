//! `codex-shim sessions`: lists the sessions, one line each.

use serde::Serialize;

use super::args::SessionsArguments;
use super::clock::Clock;
use super::say;
use super::screen::{self, Screen, Tone};
use super::select_session;
use super::table::{Cell, Column, Table};
use crate::config::Environment;
use crate::control::{SessionDocument, client};
use crate::history::Activity;
use crate::store::{ChoiceError, Found, label, short};

/// Relays queried at the same time.
const ASKED_AT_ONCE_MAX: usize = 16;

/// A listed session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    session_id: String,
    /// The shortest name that every tool takes.
    short_id: String,
    /// The folder and the client: `proj (vscode)`.
    name: String,
    live: bool,
    /// The state that a live relay reports; `null` if it does not answer.
    state: Option<Activity>,
    /// Start of a live session; last use of a stopped one.
    since: String,
    cwd: Option<String>,
    /// The relay's process id while it runs.
    pid: Option<u32>,
}

#[derive(Serialize)]
struct Listing<'a> {
    sessions: &'a [Row],
}

/// Lists the sessions.
pub(super) fn run(arguments: &SessionsArguments, environment: &Environment) -> i32 {
    let found = match select_session::listed(arguments.session.name(), environment) {
        Ok(found) => found,
        Err(error) => return error.report(),
    };
    let all = match select_session::all_quietly(environment) {
        Ok(all) => all,
        Err(error) => return error.report(),
    };
    let rows = rows(&found, &all);
    if arguments.json {
        let text = serde_json::to_string(&Listing { sessions: &rows }).expect("BUG: plain data is JSON");
        return screen::print(&format!("{text}\n"));
    }
    if rows.is_empty() {
        say(&ChoiceError::NoSessions.to_string());
    }
    screen::print(&as_table(&rows, &Clock::of(&arguments.times), Screen::of_stdout(environment)))
}

/// The rows for `found`, with names that are unique in `all`.
fn rows(found: &[Found], all: &[Found]) -> Vec<Row> {
    let asked = found.chunks(ASKED_AT_ONCE_MAX).flat_map(|some| {
        std::thread::scope(|scope| {
            let asked: Vec<_> = some.iter().map(|session| (session, scope.spawn(|| state(session)))).collect();
            let row = |(session, state): (&Found, std::thread::ScopedJoinHandle<'_, _>)| {
                row(session, all, state.join().unwrap_or_default())
            };
            asked.into_iter().map(row).collect::<Vec<_>>()
        })
    });
    asked.collect()
}

/// The activity of a session. A live one is queried.
fn state(session: &Found) -> Option<Activity> {
    if !session.live {
        return Some(Activity::Stopped);
    }
    let answer = match client::get(&session.dir, "/sessions/self") {
        Ok(answer) => answer,
        Err(_) if !session.is_still_live() => return Some(Activity::Stopped),
        Err(error) => {
            say(&error.message(session));
            return None;
        }
    };
    serde_json::from_slice(&answer.body).ok().map(|document: SessionDocument| document.state)
}

fn row(session: &Found, all: &[Found], state: Option<Activity>) -> Row {
    let holder = session.holder.as_ref();
    let last_used = screen::time(session.last_used);
    let started = holder.and_then(|holder| humantime::parse_rfc3339(&holder.started_at).ok());
    Row {
        session_id: session.id.clone(),
        short_id: short(session, all).to_owned(),
        name: label(session),
        live: session.live,
        state,
        since: started.filter(|_| session.live).map_or(last_used, screen::time),
        cwd: holder.map(|holder| holder.place.cwd.clone()),
        pid: holder.filter(|_| session.live).map(|holder| holder.pid),
    }
}

fn as_table(rows: &[Row], clock: &Clock, to: Screen) -> String {
    table_within(rows, clock, to, screen::columns(to))
}

fn table_within(rows: &[Row], clock: &Clock, to: Screen, columns_max: Option<usize>) -> String {
    let columns = vec![
        Column::whole("SESSION"),
        Column::text("NAME"),
        Column::whole("RELAY").spare(),
        Column::whole("STATE"),
        Column::whole(clock.head("SINCE")).spare(),
        Column::number("PID").spare(),
        Column::text("FOLDER").spare(),
    ];
    Table::within(columns, to, columns_max).add(rows.iter().map(|row| as_cells(row, clock, to)).collect())
}

fn as_cells(row: &Row, clock: &Clock, to: Screen) -> Vec<Cell> {
    let unknown = || "-".to_owned();
    let (life, tone) = if row.live { ("live", Tone::Good) } else { ("stopped", Tone::Faint) };
    vec![
        // Programs get the whole id. They get no name, because names contain blanks.
        (Tone::Strong, if to == Screen::None { &row.session_id } else { &row.short_id }.clone()),
        (Tone::Plain, if to == Screen::None { String::new() } else { row.name.clone() }),
        (tone, life.to_owned()),
        (Tone::Plain, row.state.map_or("no answer", Activity::name).to_owned()),
        (Tone::Faint, clock.cell(&row.since, to)),
        (Tone::Faint, row.pid.map_or_else(unknown, |pid| pid.to_string())),
        (Tone::Plain, row.cwd.clone().unwrap_or_else(unknown)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, live: bool, pid: Option<u32>) -> Row {
        Row {
            session_id: format!("0192aaaa-{id}"),
            short_id: id.to_owned(),
            name: "proj (vscode)".to_owned(),
            live,
            state: Some(if live { Activity::WaitingPermission } else { Activity::Stopped }),
            since: "2026-01-02T03:04:05Z".to_owned(),
            cwd: Some("/home/proj".to_owned()),
            pid,
        }
    }

    #[test]
    fn programs_get_whole_ids_and_terminals_short_ones() {
        let rows = [row("ab01", true, Some(7)), row("cb01", false, None)];
        let clock = Clock::stopped("2026-01-02T03:04:07Z");
        assert_eq!(
            as_table(&rows, &clock, Screen::None),
            "0192aaaa-ab01  live     waiting_permission  2026-01-02T03:04:05Z  7  /home/proj\n\
             0192aaaa-cb01  stopped  stopped             2026-01-02T03:04:05Z  -  /home/proj\n"
        );
        let shown = as_table(&rows, &clock, Screen::Plain);
        let head = "SESSION  NAME           RELAY    STATE               SINCE (UTC)  PID  FOLDER\n";
        assert!(shown.starts_with(head), "{shown}");
        assert!(
            shown.contains("\nab01     proj (vscode)  live     waiting_permission  03:04:05       7  /home/proj\n")
        );
        assert_eq!(as_table(&[], &clock, Screen::Plain), "");
    }

    #[test]
    fn narrow_terminals_keep_the_name_and_state() {
        let rows = [row("ab01", true, Some(7))];
        let shown = table_within(&rows, &Clock::stopped("2026-01-02T03:04:07Z"), Screen::Plain, Some(40));
        assert_eq!(shown, "SESSION  NAME         STATE\nab01     proj (vsco…  waiting_permission\n");
    }
}
