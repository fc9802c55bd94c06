//! `codex-shim children`: all sessions with their activity, those that wait for a person first.

use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Value, json};

use super::super::offline::{self, OfflineError, OfflineSession};
use super::super::requests::print_json;
use super::super::screen::{self, Screen, Tone};
use super::super::table::{Cell, Column, Table};
use super::super::{say, select_session};
use super::actions::{age, words};
use super::args::ChildrenArguments;
use crate::config::{Environment, RetentionBounds};
use crate::control::{SessionDocument, client};
use crate::history::{Action, Activity};
use crate::store::{ChoiceError, Found, label, short};

/// Sessions queried at the same time.
const LOOKED_AT_ONCE_MAX: usize = 16;

/// A listed session.
#[derive(Debug, Clone, Serialize)]
struct Child {
    session_id: String,
    /// The shortest name that every tool takes.
    short_id: String,
    /// The folder and the client: `proj (vscode)`.
    name: String,
    live: bool,
    /// `null` if the relay does not answer.
    activity_state: Option<Activity>,
    since: Option<String>,
    cwd: Option<String>,
    pending_requests: u64,
    /// Pending requests, oldest first.
    waits_for: Vec<Value>,
    /// As in `activity-actions`.
    last_action: Option<Value>,
    /// Why a part of this is unknown.
    error: Option<String>,
}

/// Lists the sessions.
pub(in crate::cli) fn run_children(arguments: &ChildrenArguments, environment: &Environment) -> i32 {
    let found = match select_session::listed(arguments.session.name(), environment) {
        Ok(found) => found,
        Err(error) => return error.report(),
    };
    let retention = offline::retention(environment);
    let mut children: Vec<Child> = found.chunks(LOOKED_AT_ONCE_MAX).flat_map(|some| all(some, retention)).collect();
    let everything = match select_session::all_quietly(environment) {
        Ok(everything) => everything,
        Err(error) => return error.report(),
    };
    for child in &mut children {
        if let Some(session) = everything.iter().find(|session| session.id == child.session_id) {
            child.short_id = short(session, &everything).to_owned();
        }
    }
    // The sort is stable and keeps the order otherwise.
    children.sort_by_key(|child| (child.pending_requests == 0, !child.live));
    if arguments.as_json {
        return print_json(&json!({ "children": children }));
    }
    if children.is_empty() {
        say(&ChoiceError::NoSessions.to_string());
    }
    let to = Screen::of_stdout(environment);
    screen::print(&table(&children, SystemTime::now(), to, screen::columns(to)))
}

fn all(some: &[Found], retention: RetentionBounds) -> Vec<Child> {
    std::thread::scope(|scope| {
        let looking: Vec<_> = some.iter().map(|session| (session, scope.spawn(|| look(session, retention)))).collect();
        let child = |(session, look): (&Found, std::thread::ScopedJoinHandle<'_, Child>)| {
            look.join().unwrap_or_else(|_| Child::of(session))
        };
        looking.into_iter().map(child).collect()
    })
}

impl Child {
    /// The facts known without a query.
    fn of(session: &Found) -> Child {
        Child {
            session_id: session.id.clone(),
            short_id: session.id.clone(),
            name: label(session),
            live: session.live,
            activity_state: None,
            since: None,
            cwd: session.holder.as_ref().map(|holder| holder.place.cwd.clone()),
            pending_requests: 0,
            waits_for: Vec::new(),
            last_action: None,
            error: None,
        }
    }
}

fn look(session: &Found, retention: RetentionBounds) -> Child {
    if session.is_still_live() {
        match live(session) {
            Ok(child) => return child,
            // It may have exited meanwhile.
            Err(why) if session.is_still_live() => {
                return Child { live: true, error: Some(why), ..Child::of(session) };
            }
            Err(_) => {}
        }
    }
    let stopped = Child {
        live: false,
        activity_state: Some(Activity::Stopped),
        since: Some(screen::time(session.last_used)),
        ..Child::of(session)
    };
    match OfflineSession::open(session, retention).map(|past| past.history.actions(1, 0)) {
        Ok(Ok(actions)) => Child { last_action: actions.last().map(Action::document), ..stopped },
        Ok(Err(why)) => Child { error: Some(why.to_string()), ..stopped },
        Err(OfflineError::NothingRecorded) => stopped,
        Err(OfflineError::Failed(why)) => Child { error: Some(why), ..stopped },
        Err(OfflineError::Live) => Child { live: true, activity_state: None, ..stopped },
    }
}

/// Queries the relay of a session.
fn live(session: &Found) -> Result<Child, String> {
    let get = |path: &str| client::get(&session.dir, path).map_err(|error| error.message(session));
    let document: SessionDocument = get("/sessions/self")?.document()?;
    let rows = match document.pending_requests {
        0 => Vec::new(),
        _ => {
            let listed: Value = get("/sessions/self/codex-pending-requests")?.document()?;
            listed["requests"].as_array().cloned().unwrap_or_default()
        }
    };
    let brief = |row: Value| {
        json!({
            "request_id": row["request_id"], "request_type": row["request_type"], "thread_id": row["thread_id"],
            "requested_at": row["requested_at"], "summary": row["summary"],
        })
    };
    // A session without a journal has no actions.
    let actions: Value = get("/sessions/self/activity-actions?limit=1")?.document().unwrap_or_default();
    Ok(Child {
        live: true,
        activity_state: Some(document.state),
        since: document.state_since.or(document.started_at),
        pending_requests: document.pending_requests,
        waits_for: rows.into_iter().map(brief).collect(),
        last_action: actions["actions"].as_array().and_then(|actions| actions.last().cloned()),
        ..Child::of(session)
    })
}

fn table(children: &[Child], now: SystemTime, to: Screen, columns_max: Option<usize>) -> String {
    let columns = vec![
        Column::whole("SESSION"),
        Column::text("NAME"),
        Column::whole("STATE"),
        Column::whole("FOR").spare(),
        Column::text("LAST ACTION").spare(),
        Column::text("WAITS FOR"),
    ];
    Table::within(columns, to, columns_max).add(children.iter().map(|child| cells(child, now, to)).collect())
}

fn cells(child: &Child, now: SystemTime, to: Screen) -> Vec<Cell> {
    let since = child.since.as_deref().and_then(|at| humantime::parse_rfc3339(at).ok());
    let (state, tone) = match child.activity_state {
        None => ("no answer", Tone::Bad),
        Some(state) => (state.name(), tone(state)),
    };
    let last = child.last_action.as_ref().map(|action| {
        let ago = age(action, now).map(|age| format!(" ({age} ago)")).unwrap_or_default();
        format!("{}{ago}", words(action))
    });
    vec![
        // Programs get the whole id. They get no name, because names contain blanks.
        (Tone::Strong, if to == Screen::None { &child.session_id } else { &child.short_id }.clone()),
        (Tone::Plain, if to == Screen::None { String::new() } else { child.name.clone() }),
        (tone, state.to_owned()),
        (Tone::Faint, since.map_or_else(|| "-".to_owned(), |since| screen::age(since, now))),
        (Tone::Faint, last.unwrap_or_else(|| "-".to_owned())),
        waiting(child),
    ]
}

/// The request that a session waits for, or the error of the query.
fn waiting(child: &Child) -> Cell {
    if let Some(why) = &child.error {
        return (Tone::Bad, format!("error: {why}"));
    }
    let first = child.waits_for.first().and_then(|row| row["summary"].as_str());
    let summary = first.map(|summary| match child.pending_requests {
        0 | 1 => summary.to_owned(),
        many => format!("{summary}, and {} more", many - 1),
    });
    (Tone::Warning, summary.unwrap_or_default())
}

fn tone(state: Activity) -> Tone {
    match state {
        Activity::WaitingPermission | Activity::WaitingInput => Tone::Warning,
        Activity::Working | Activity::Thinking => Tone::Good,
        Activity::Idle => Tone::Strong,
        Activity::Stopped => Tone::Faint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_is_one_line() {
        let now = humantime::parse_rfc3339("2026-01-02T03:06:07Z").expect("a time");
        let child = |id: &str, state: Option<Activity>| Child {
            session_id: id.to_owned(),
            short_id: id[..1].to_owned(),
            name: "proj (vscode)".to_owned(),
            live: true,
            activity_state: state,
            since: Some("2026-01-02T03:06:00.000Z".to_owned()),
            cwd: None,
            pending_requests: 0,
            waits_for: Vec::new(),
            last_action: None,
            error: None,
        };
        let waiting = Child {
            pending_requests: 2,
            waits_for: vec![json!({ "summary": "run make" }), json!({ "summary": "x" })],
            last_action: Some(json!({
                "action_kind": "command", "status": "completed", "summary_text": "Completed: ls", "started_at": "2026-01-02T03:06:01Z",
                "ended_at": "2026-01-02T03:06:05Z",
            })),
            ..child("a", Some(Activity::WaitingPermission))
        };
        let silent = Child { error: Some("why".to_owned()), ..child("long", None) };
        let expect = "\
a     waiting_permission  7s  ran ls (2s ago)  run make, and 1 more
long  no answer           7s  -                error: why
b     idle                7s  -
";
        let children = [waiting, silent, child("b", Some(Activity::Idle))];
        assert_eq!(table(&children, now, Screen::None, None), expect);
        let narrow = "\
SESSION  NAME      STATE       WAITS FOR
a        proj (v…  waiting_p…  run make…
l        proj (v…  no answer   error: w…
b        proj (v…  idle
";
        assert_eq!(table(&children, now, Screen::Plain, Some(40)), narrow);
    }
}
