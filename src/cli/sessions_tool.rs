//! `codex-shim sessions`: lists the sessions, one line each.

use serde::Serialize;

use super::args::SessionsArguments;
use super::chosen;
use super::clock::Clock;
use super::say;
use super::screen::{self, Screen, Tone};
use super::table::{Cell, Column, Table};
use crate::config::Environment;
use crate::control::{SessionDocument, client};
use crate::history::Activity;
use crate::store::{ChoiceError, Found};

/// Relays that are asked at once.
const ASKED_AT_ONCE_MAX: usize = 16;

/// A session as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row {
    session_id: String,
    live: bool,
    /// What a live relay says of itself; `null` where it does not answer.
    state: Option<Activity>,
    /// When it was started; when it was last used, where it is not live.
    since: String,
    cwd: Option<String>,
    /// That of the relay, while there is one.
    pid: Option<u32>,
}

#[derive(Serialize)]
struct Listing<'a> {
    sessions: &'a [Row],
}

/// Lists the sessions.
pub(super) fn run(arguments: &SessionsArguments, environment: &Environment) -> i32 {
    let found = match chosen::listed(arguments.session.name(), environment) {
        Ok(found) => found,
        Err(error) => return error.told(),
    };
    let rows = rows(&found);
    if arguments.json {
        let text = serde_json::to_string(&Listing { sessions: &rows }).expect("BUG: plain data is JSON");
        return screen::print(&format!("{text}\n"));
    }
    if rows.is_empty() {
        say(&ChoiceError::NoSessions.to_string());
    }
    screen::print(&as_table(&rows, &Clock::of(&arguments.times), Screen::of_stdout(environment)))
}

fn rows(found: &[Found]) -> Vec<Row> {
    let asked = found.chunks(ASKED_AT_ONCE_MAX).flat_map(|some| {
        std::thread::scope(|scope| {
            let asked: Vec<_> = some.iter().map(|session| (session, scope.spawn(|| state(session)))).collect();
            let row = |(session, state): (&Found, std::thread::ScopedJoinHandle<'_, _>)| {
                row(session, state.join().unwrap_or_default())
            };
            asked.into_iter().map(row).collect::<Vec<_>>()
        })
    });
    asked.collect()
}

/// What a session does. A live one is asked.
fn state(session: &Found) -> Option<Activity> {
    if !session.live {
        return Some(Activity::Stopped);
    }
    let answer = match client::get(&session.dir, "/sessions/self") {
        Ok(answer) => answer,
        Err(_) if !session.is_still_live() => return Some(Activity::Stopped),
        Err(error) => {
            say(&error.told(session));
            return None;
        }
    };
    serde_json::from_slice(&answer.body).ok().map(|document: SessionDocument| document.state)
}

fn row(session: &Found, state: Option<Activity>) -> Row {
    let holder = session.holder.as_ref();
    let last_used = screen::time(session.last_used);
    let started = holder.and_then(|holder| humantime::parse_rfc3339(&holder.started_at).ok());
    Row {
        session_id: session.id.clone(),
        live: session.live,
        state,
        since: started.filter(|_| session.live).map_or(last_used, screen::time),
        cwd: holder.map(|holder| holder.place.cwd.clone()),
        pid: holder.filter(|_| session.live).map(|holder| holder.pid),
    }
}

fn as_table(rows: &[Row], clock: &Clock, to: Screen) -> String {
    let columns = vec![
        Column::whole("SESSION"),
        Column::whole("RELAY"),
        Column::whole("STATE"),
        Column::whole(clock.head("SINCE")),
        Column::number("PID"),
        Column::text("FOLDER"),
    ];
    Table::of(columns, rows.iter().map(|row| as_cells(row, clock, to)).collect(), to)
}

fn as_cells(row: &Row, clock: &Clock, to: Screen) -> Vec<Cell> {
    let unknown = || "-".to_owned();
    let (life, tone) = if row.live { ("live", Tone::Good) } else { ("stopped", Tone::Faint) };
    vec![
        (Tone::Strong, row.session_id.clone()),
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

    #[test]
    fn a_table_is_aligned_and_has_a_head_on_a_terminal_only() {
        let row = |id: &str, live: bool, pid| Row {
            session_id: id.to_owned(),
            live,
            state: Some(if live { Activity::Idle } else { Activity::Stopped }),
            since: "2026-01-02T03:04:05Z".to_owned(),
            cwd: Some("/work".to_owned()),
            pid,
        };
        let rows = [row("a", true, Some(7)), row("longer", false, None)];
        let clock = Clock::stopped("2026-01-02T03:04:07Z");
        assert_eq!(
            as_table(&rows, &clock, Screen::None),
            "a       live     idle     2026-01-02T03:04:05Z  7  /work\n\
             longer  stopped  stopped  2026-01-02T03:04:05Z  -  /work\n"
        );
        let shown = as_table(&rows, &clock, Screen::Plain);
        assert!(shown.starts_with("SESSION  RELAY    STATE    SINCE (UTC)  PID  FOLDER\n"), "{shown}");
        assert!(shown.contains("\na        live     idle     03:04:05       7  /work\n"), "{shown}");
        assert_eq!(as_table(&[], &clock, Screen::Plain), "");
    }
}
