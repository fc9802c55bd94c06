//! The tools that list all sessions: `codex-shim sessions`, and `codex-shim children`, which adds their activity and begins with those that
//! wait for a person.

use std::collections::BTreeSet;
use std::time::SystemTime;

use clap::Args;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::offline::{self, Door, Read};
use super::requests::{asks_cell, print_json};
use super::screen::{self, Screen, Tone};
use super::screen::{Clock, Times};
use super::select_session::SessionWord;
use super::table::{Cell, Column, Table};
use super::{Done, say, select_session};
use crate::api::{
    ActionDocument, ActionsQuery, Limit, ListedSession, ListedThread, Request, SessionDocument, ThreadDocument,
    WhichRequests,
};
use crate::config::Environment;
use crate::control;
use crate::engine::one_line;
use crate::history::{ActionKind, ActionStatus, Activity};
use crate::sessions::door::SessionError;
use crate::store::{ChoiceError, Found, label, short};

/// List sessions, live ones first
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim sessions
  codex-shim sessions --utc
  codex-shim sessions --json | jq -r '.sessions[] | select(.live).session_id'")]
pub(super) struct SessionsArguments {
    #[command(flatten)]
    session: SessionWord,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: Times,
}

#[derive(Serialize)]
struct Listing<'a> {
    sessions: &'a [SessionLine],
}

/// A session, with the threads of persons that are open in it.
#[derive(Debug, Serialize)]
struct SessionLine {
    #[serde(flatten)]
    session: ListedSession,
    threads: Vec<ThreadRow>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct ThreadRow {
    thread_id: String,
    /// The folder and the client: `proj (codex-tui)`.
    name: Option<String>,
    title: Option<String>,
    cwd: Option<String>,
    last_used_at: Option<String>,
}

/// Lists the sessions.
pub(super) fn run_sessions(arguments: &SessionsArguments, environment: &Environment) -> Done {
    let found = select_session::listed(arguments.session.name(), environment)?;
    let all = select_session::all_quietly(environment)?;
    let rows = rows(&found, &all);
    if arguments.json {
        return Ok(print_json(&Listing { sessions: &rows }));
    }
    if rows.is_empty() {
        say(&ChoiceError::NoSessions.to_string());
    }
    Ok(screen::print(&as_table(&rows, &Clock::of(&arguments.times), Screen::of_stdout(environment))))
}

/// The rows for `found`, with names that are unique in `all`.
fn rows(found: &[Found], all: &[Found]) -> Vec<SessionLine> {
    let states = select_session::at_once(found, state);
    let row =
        |(session, (state, threads))| SessionLine { session: control::listed_session(session, all, state), threads };
    found.iter().zip(states).map(row).collect()
}

/// The activity of a session, and the threads that are open in it. A live one is queried.
fn state(session: &Found) -> (Option<Activity>, Vec<ThreadRow>) {
    if !session.live {
        return (Some(Activity::Stopped), Vec::new());
    }
    match offline::live_state(session) {
        Ok(Some(document)) => (Some(document.state), open_threads(&document)),
        Ok(None) => (Some(Activity::Stopped), Vec::new()),
        Err(error) => {
            say(&error.to_string());
            (None, Vec::new())
        }
    }
}

fn open_threads(document: &SessionDocument) -> Vec<ThreadRow> {
    let open: Vec<String> =
        control::open_threads(document).into_iter().filter(|thread| thread.is_open).map(|thread| thread.id).collect();
    // A relay has one client, whose threads they all are.
    let is_open = |thread: &&ThreadDocument| match &document.hub {
        Some(_) => open.contains(&thread.thread_id),
        None => thread.identity.kind.is_user(),
    };
    let row = |ThreadDocument { thread_id, identity, .. }: &ThreadDocument| ThreadRow {
        thread_id: thread_id.clone(),
        name: identity.folder_and_client(),
        title: identity.title.clone(),
        cwd: identity.cwd.clone(),
        last_used_at: identity.last_used_at.clone(),
    };
    let mut threads: Vec<ThreadRow> = document.threads.iter().filter(is_open).map(row).collect();
    threads.sort();
    threads
}

fn as_table(rows: &[SessionLine], clock: &Clock, to: Screen) -> String {
    table_within(rows, clock, to, screen::columns(to))
}

fn table_within(rows: &[SessionLine], clock: &Clock, to: Screen, columns_max: Option<usize>) -> String {
    let mut columns = columns(clock);
    columns.insert(2, Column::whole("RELAY").spare());
    columns.insert(5, Column::number("PID").spare());
    Table::within(columns, to, columns_max).add(rows.iter().map(|row| as_cells(row, clock, to)).collect())
}

/// The columns of every table of sessions.
pub(super) fn columns(clock: &Clock) -> Vec<Column> {
    vec![
        Column::whole("SESSION"),
        Column::text("NAME"),
        Column::whole("STATE"),
        Column::whole(clock.head("SINCE")).spare(),
        Column::text("FOLDER").spare(),
    ]
}

/// The cells in these columns.
pub(super) fn cells_of(row: &ListedSession, clock: &Clock, to: Screen) -> Vec<Cell> {
    let [id, name] = select_session::name_cells(&row.session_id, &row.short_id, &row.name, to);
    let tone = if row.live { Tone::Good } else { Tone::Faint };
    vec![
        id,
        name,
        (tone, row.state.map_or("no answer", |state| screen::state(state, to)).to_owned()),
        (Tone::Faint, clock.cell(&row.since, to)),
        (Tone::Plain, row.cwd.clone().unwrap_or_else(|| "-".to_owned())),
    ]
}

/// Where a session works: of a hub, the folders of its threads.
fn folders(SessionLine { session, threads }: &SessionLine) -> String {
    let folders: BTreeSet<&str> = threads.iter().filter_map(|thread| thread.cwd.as_deref()).collect();
    match folders.len() {
        0 => session.cwd.clone().unwrap_or_else(|| "-".to_owned()),
        _ => folders.into_iter().collect::<Vec<_>>().join(", "),
    }
}

fn as_cells(whole: &SessionLine, clock: &Clock, to: Screen) -> Vec<Cell> {
    let row = &whole.session;
    let (life, tone) = if row.live { ("live", Tone::Good) } else { ("stopped", Tone::Faint) };
    let mut cells = cells_of(row, clock, to);
    cells.insert(2, (tone, life.to_owned()));
    cells.insert(5, (Tone::Faint, row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())));
    // Programs get one folder, because names may contain blanks.
    if to != Screen::None {
        cells[6].1 = folders(whole);
    }
    cells
}

/// List all sessions with what they are doing
///
/// Sessions that wait for you come first, then other live ones. Each line has the name, the state and how long it has lasted,
/// the last action, and what the session is waiting for.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim children
  codex-shim children work
  codex-shim children --json | jq '.children[] | select(.pending_requests > 0)'")]
pub(super) struct ChildrenArguments {
    #[command(flatten)]
    session: SessionWord,
    /// Print one JSON document
    #[arg(long = "json")]
    as_json: bool,
}

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
    #[serde(serialize_with = "briefly")]
    waits_for: Vec<Request>,
    /// As in `activity-actions`.
    last_action: Option<ActionDocument>,
    /// The threads of persons: the open ones of a hub, and those of the current run of another session.
    threads: Vec<ChildThread>,
    /// Whether they have rows of their own.
    #[serde(skip)]
    lists_threads: bool,
    /// Why a part of this is unknown.
    error: Option<String>,
}

/// A thread of a listed session.
#[derive(Debug, Clone, Serialize)]
struct ChildThread {
    thread_id: String,
    /// The folder and the client: `proj (codex-tui)`, with the terminal where two would be alike.
    name: String,
    title: Option<String>,
    /// The beginning of its first message, if it has no title.
    first_words: Option<String>,
    activity_state: Activity,
    since: String,
    cwd: Option<String>,
    terminal: Option<String>,
    pending_requests: u64,
    last_action: Option<String>,
}

impl ChildThread {
    fn all(document: &SessionDocument) -> Vec<ChildThread> {
        let child = |ListedThread { name, thread, .. }: ListedThread<'_>| ChildThread {
            thread_id: thread.thread_id.clone(),
            name,
            title: thread.identity.title.clone(),
            first_words: thread.first_words.clone(),
            activity_state: thread.activity_state,
            since: thread.since.clone(),
            cwd: thread.identity.cwd.clone(),
            terminal: thread.identity.client.as_ref().and_then(|client| client.terminal.clone()),
            pending_requests: thread.pending,
            last_action: thread.last_action.clone(),
        };
        document.user_threads().into_iter().map(child).collect()
    }
}

/// Lists the sessions.
pub(super) fn run_children(arguments: &ChildrenArguments, environment: &Environment) -> Done {
    let found = select_session::listed(arguments.session.name(), environment)?;
    let door = offline::door(environment);
    let mut children = select_session::at_once(&found, |session| look(session, door));
    let everything = select_session::all_quietly(environment)?;
    for child in &mut children {
        if let Some(session) = everything.iter().find(|session| session.id == child.session_id) {
            child.short_id = short(session, &everything).to_owned();
        }
    }
    // The sort is stable and keeps the order otherwise.
    children.sort_by_key(|child| (child.pending_requests == 0, !child.live));
    if arguments.as_json {
        return Ok(print_json(&json!({ "children": children })));
    }
    if children.is_empty() {
        say(&ChoiceError::NoSessions.to_string());
    }
    let to = Screen::of_stdout(environment);
    Ok(screen::print(&children_table(&children, SystemTime::now(), to, screen::columns(to))))
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
            threads: Vec::new(),
            lists_threads: false,
            error: None,
        }
    }
}

fn look(session: &Found, door: Door) -> Child {
    let child = match live(session) {
        Ok(Some(child)) => child,
        Ok(None) => Child {
            live: false,
            activity_state: Some(Activity::Stopped),
            since: Some(screen::time(session.last_used)),
            ..Child::of(session)
        },
        Err(why) => return Child { live: true, error: Some(why.to_string()), ..Child::of(session) },
    };
    match Read::through(door, session.clone()).query_recorded(&LAST_ACTION) {
        Ok(last) => Child { last_action: last.and_then(|mut last| last.actions.pop()), ..child },
        // Its relay may not have what is only a further fact.
        Err(_) if child.live => child,
        Err(why) => Child { error: Some(why.to_string()), ..child },
    }
}

const LAST_ACTION: ActionsQuery = ActionsQuery { limit: Some(Limit(1)) };

/// Writes what tells requests apart.
fn briefly<S: Serializer>(requests: &[Request], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(requests.iter().map(|row| {
        json!({
            "request_id": row.request_id, "request_type": row.request_type, "requested_at": row.requested_at,
            "summary": row.summary, "thread_id": row.thread_id, "warnings": row.warnings,
        })
    }))
}

/// Queries the relay of a session; `None` if none is running.
fn live(session: &Found) -> Result<Option<Child>, SessionError> {
    let document = if session.is_still_live() { offline::live_state(session)? } else { None };
    let Some(document) = document else { return Ok(None) };
    let waits_for = match document.pending_requests {
        0 => Vec::new(),
        _ => offline::requests(session, WhichRequests::Pending)?,
    };
    Ok(Some(Child {
        live: true,
        threads: ChildThread::all(&document),
        lists_threads: !document.listed_threads().is_empty(),
        activity_state: Some(document.state),
        since: document.state_since.or(document.started_at),
        pending_requests: document.pending_requests,
        waits_for,
        ..Child::of(session)
    }))
}

fn children_table(children: &[Child], now: SystemTime, to: Screen, columns_max: Option<usize>) -> String {
    let columns = vec![
        Column::whole("SESSION"),
        Column::text("NAME"),
        Column::whole("STATE"),
        Column::whole("FOR").spare(),
        Column::text("LAST ACTION").spare(),
        Column::text("WAITS FOR"),
    ];
    Table::within(columns, to, columns_max).add(children.iter().flat_map(|child| child_rows(child, now, to)).collect())
}

/// The row of a session, and those of its threads below it.
fn child_rows(child: &Child, now: SystemTime, to: Screen) -> Vec<Vec<Cell>> {
    let threads =
        child.threads.iter().filter(|_| child.lists_threads).map(|thread| thread_cells(child, thread, now, to));
    std::iter::once(cells(child, now, to)).chain(threads).collect()
}

/// A row that says to programs which session and which thread it is.
fn thread_cells(child: &Child, thread: &ChildThread, now: SystemTime, to: Screen) -> Vec<Cell> {
    let about = thread.title.as_ref().or(thread.first_words.as_ref());
    let name = about.map_or(thread.name.clone(), |about| format!("{}: {}", thread.name, one_line(about)));
    let id = match to {
        Screen::None => format!("{}/{}", child.session_id, thread.thread_id),
        Screen::Plain | Screen::Coloured => String::new(),
    };
    let [id, name] = select_session::name_cells(&id, "", &format!("  {name}"), to);
    let is_its = |row: &&Request| row.thread_id.as_ref() == Some(&thread.thread_id);
    let asks = child.waits_for.iter().find(is_its).map(|row| asks(row, thread.pending_requests));
    // That it asks for something stands beside it.
    let last_action = thread.last_action.clone().filter(|_| thread.pending_requests == 0);
    vec![
        id,
        name,
        (tone(thread.activity_state), screen::state(thread.activity_state, to).to_owned()),
        (Tone::Faint, age_since(Some(&thread.since), now)),
        (Tone::Faint, last_action.unwrap_or_else(|| "-".to_owned())),
        asks.unwrap_or((Tone::Plain, String::new())),
    ]
}

fn age_since(at: Option<&str>, now: SystemTime) -> String {
    let since = at.and_then(|at| humantime::parse_rfc3339(at).ok());
    since.map_or_else(|| "-".to_owned(), |since| screen::age(since, now))
}

/// A request, and how many others wait.
fn asks(row: &Request, pending: u64) -> Cell {
    let (tone, summary) = asks_cell(row, Tone::Warning);
    match pending {
        0 | 1 => (tone, summary),
        many => (tone, format!("{summary}, and {} more", many - 1)),
    }
}

fn cells(child: &Child, now: SystemTime, to: Screen) -> Vec<Cell> {
    let (state, tone) = match child.activity_state {
        None => ("no answer", Tone::Bad),
        Some(state) => (screen::state(state, to), tone(state)),
    };
    let is_request =
        |action: &&ActionDocument| action.action_kind == ActionKind::Approval && action.status == ActionStatus::Pending;
    let last = child.last_action.as_ref().filter(|action| !is_request(action)).map(|action| {
        let age = humantime::parse_rfc3339(action.changed_at()).ok().map(|at| screen::age(at, now));
        format!("{}{}", action.words(), age.map(|age| format!(" ({age} ago)")).unwrap_or_default())
    });
    let [id, name] = select_session::name_cells(&child.session_id, &child.short_id, &child.name, to);
    vec![
        id,
        name,
        (tone, state.to_owned()),
        (Tone::Faint, age_since(child.since.as_deref(), now)),
        (Tone::Faint, last.unwrap_or_else(|| "-".to_owned())),
        waiting(child),
    ]
}

/// The request that a session waits for, or the error of the query.
fn waiting(child: &Child) -> Cell {
    if let Some(why) = &child.error {
        return (Tone::Bad, format!("error: {why}"));
    }
    child.waits_for.first().map_or((Tone::Plain, String::new()), |row| asks(row, child.pending_requests))
}

fn tone(state: Activity) -> Tone {
    match state {
        Activity::WaitingPermission | Activity::WaitingInput => Tone::Warning,
        Activity::Working | Activity::Thinking => Tone::Good,
        Activity::Idle => Tone::Strong,
        Activity::Newer(_) => Tone::Plain,
        Activity::Stopped => Tone::Faint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, live: bool, pid: Option<u32>) -> SessionLine {
        let session = ListedSession {
            session_id: format!("0192aaaa-{id}"),
            short_id: id.to_owned(),
            name: "proj (vscode)".to_owned(),
            live,
            state: Some(if live { Activity::WaitingPermission } else { Activity::Stopped }),
            since: "2026-01-02T03:04:05Z".to_owned(),
            cwd: Some("/home/proj".to_owned()),
            pid,
        };
        SessionLine { session, threads: Vec::new() }
    }

    fn action(kind: &str, status: &str, summary: &str) -> ActionDocument {
        let action = json!({
            "action_kind": kind, "status": status, "summary_text": summary, "session_id": "s",
            "source_provider": "codex-app", "started_at": "2026-01-02T03:06:01Z", "ended_at": "2026-01-02T03:06:05Z",
        });
        serde_json::from_value(action).expect("an action")
    }

    #[test]
    fn hub_is_where_its_threads_work() {
        let thread = |cwd: &str| ThreadRow {
            thread_id: "t".to_owned(),
            name: None,
            title: None,
            cwd: Some(cwd.to_owned()),
            last_used_at: None,
        };
        let hub = SessionLine { threads: vec![thread("/b"), thread("/a"), thread("/b")], ..row("ab01", true, Some(7)) };
        let shown = |to| as_table(std::slice::from_ref(&hub), &Clock::stopped("2026-01-02T03:04:07Z"), to);
        assert!(shown(Screen::Plain).ends_with("  /a, /b\n") && shown(Screen::None).ends_with("  /home/proj\n"));
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
        let head = "SESSION  NAME           RELAY    STATE                 SINCE (UTC)  PID  FOLDER\n";
        assert!(shown.starts_with(head), "{shown}");
        assert!(
            shown.contains("\nab01     proj (vscode)  live     waits for permission  03:04:05       7  /home/proj\n")
        );
        assert_eq!(as_table(&[], &clock, Screen::Plain), "");
    }

    #[test]
    fn narrow_terminals_keep_the_name_and_state() {
        let rows = [row("ab01", true, Some(7))];
        let shown = table_within(&rows, &Clock::stopped("2026-01-02T03:04:07Z"), Screen::Plain, Some(40));
        assert_eq!(
            shown,
            "SESSION  NAME           RELAY\n  STATE\nab01     proj (vscode)  live\n  waits for permission\n"
        );
    }

    #[test]
    fn threads_of_a_hub_are_below_its_session() {
        let now = humantime::parse_rfc3339("2026-01-02T03:06:07Z").expect("a time");
        let thread = |id: &str, folder: &str, title: Option<&str>, pending: u64| ChildThread {
            thread_id: id.to_owned(),
            name: format!("{folder} (codex-tui)"),
            title: title.map(str::to_owned),
            first_words: title.is_none().then(|| "look at\nit".to_owned()),
            activity_state: if pending > 0 { Activity::WaitingPermission } else { Activity::Idle },
            since: "2026-01-02T03:06:00.000Z".to_owned(),
            cwd: None,
            terminal: None,
            pending_requests: pending,
            last_action: Some("Approval requested: make".to_owned()),
        };
        let threads = vec![thread("t1", "alpha", Some("Fix it"), 2), thread("t2", "beta", None, 0)];
        let hub = Child {
            session_id: "hub".to_owned(),
            short_id: "hub".to_owned(),
            name: ".codex".to_owned(),
            live: true,
            activity_state: Some(Activity::WaitingPermission),
            since: Some("2026-01-02T03:06:00.000Z".to_owned()),
            cwd: None,
            pending_requests: 2,
            waits_for: vec![
                json!({ "thread_id": "t1", "summary": "run make", "warnings": ["it overwrites a device"] }).into(),
                json!({ "thread_id": "t1", "summary": "x" }).into(),
            ],
            last_action: Some(action("approval", "pending", "Approval requested: make")),
            threads,
            lists_threads: true,
            error: None,
        };
        let rows = |child: &Child, to| children_table(std::slice::from_ref(child), now, to, None);
        let expect = "\
SESSION  NAME                            STATE                 FOR  LAST ACTION               WAITS FOR
hub      .codex                          waits for permission  7s   -                         ! run make, and 1 more
           alpha (codex-tui): Fix it     waits for permission  7s   -                         ! run make, and 1 more
           beta (codex-tui): look at it  idle                  7s   Approval requested: make
";
        assert_eq!(rows(&hub, Screen::Plain), expect);
        let programs = rows(&hub, Screen::None);
        assert!(programs.contains("\nhub/t1") && programs.contains("\nhub/t2"), "{programs}");
        let alone = Child { lists_threads: false, ..hub };
        assert_eq!(rows(&alone, Screen::Plain).lines().count(), 2);
        assert_eq!(serde_json::to_value(&alone).expect("plain data")["threads"][0]["title"], "Fix it");
    }

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
            threads: Vec::new(),
            lists_threads: false,
            error: None,
        };
        let waiting = Child {
            pending_requests: 2,
            waits_for: vec![json!({ "summary": "run make" }).into(), json!({ "summary": "x" }).into()],
            last_action: Some(action("command", "completed", "Completed: ls")),
            ..child("a", Some(Activity::WaitingPermission))
        };
        let silent = Child { error: Some("why".to_owned()), ..child("long", None) };
        let expect = "\
a     waiting_permission  7s  ran ls (2s ago)  run make, and 1 more
long  no answer           7s  -                error: why
b     idle                7s  -
";
        let children = [waiting, silent, child("b", Some(Activity::Idle))];
        assert_eq!(children_table(&children, now, Screen::None, None), expect);
        let narrow = "\
SESSION  NAME
  STATE                 FOR
  LAST ACTION      WAITS FOR
a        proj (vscode)
  waits for permission  7s
  ran ls (2s ago)  run make, and 1 more
l        proj (vscode)
  no answer             7s
  -                error: why
b        proj (vscode)
  idle                  7s
";
        assert_eq!(children_table(&children, now, Screen::Plain, Some(40)), narrow);
    }
}
