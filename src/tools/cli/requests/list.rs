//! `codex-shim requests`: the inbox of all live sessions, or the requests of one session; pending ones, or all with their outcomes.
//!
//! A relay that does not answer is reported and hides no other.

use std::collections::{BTreeSet, HashMap};

use clap::Args;

use super::super::filter::FilterFlag;
use super::super::hub_tool::Down;
use super::super::offline::{damage_of_ledger, request, requests};
use super::super::screen::{self, Clock, Screen, Times, Tone, counted};
use super::super::select_session::{self, Common};
use super::super::since::{Since, SinceFlag};
use super::super::table::{Cell, Column, Table};
use super::super::{CliError, Done, say};
use super::{follow, print_json};
use crate::api::{Request, RequestList, WhichRequests};
use crate::config::Environment;
use crate::control::{RequestOrigin, session_of_request};
use crate::engine::answers_nothing;
use crate::history::Filter;
use crate::hub;
use crate::requests::answer::outcome_word;
use crate::requests::view::answer_until;
use crate::sessions::inbox;
use crate::sessions::request_names::ShortNames;
use crate::sessions::search::{facts_of_threads, request_passes};
use crate::store::{ChoiceError, Found, Otherwise, full_name, label};

/// List the requests that wait for your answer, in all sessions
///
/// Oldest first: how long a request has been waiting, its name, the folder and the client that ask, its kind, and what it is about,
/// with `!` if it looks risky. `show` and `respond` take the name from anywhere.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Requests of a hub that is down are listed too: they wait at its server.
With a session (or CODEX_SHIM_SESSION) it lists the requests of that session
only, live or stopped. With --all it lists stopped sessions too.

With -f it prints a request when it arrives and again when it ends, until you
interrupt it. With --json it prints one document; with -f and --json, one
request per line.

Examples:
  codex-shim requests
  codex-shim requests work
  codex-shim requests --here             of the project that you are in
  codex-shim requests -f
  codex-shim requests --all              answered ones too: by whom and when
  codex-shim requests --all --since 7d
  codex-shim requests --all --filter 'status:declined by:tui'
  codex-shim requests --json | jq -r '.requests[] | .name, .summary'")]
pub(in crate::cli) struct RequestsArguments {
    #[command(flatten)]
    pub(super) common: Common,
    /// Every stored request, whatever its status
    #[arg(long)]
    all: bool,
    /// Only those of threads that work in this folder or its repository
    #[arg(long = "here")]
    pub(super) is_here: bool,
    #[command(flatten)]
    pub(super) filter: FilterFlag,
    #[command(flatten)]
    since: SinceFlag,
    /// Keep printing requests as they arrive and end
    #[arg(short, long, conflicts_with = "all")]
    follow: bool,
    #[command(flatten)]
    pub(super) times: Times,
}

pub(in crate::cli) fn run_requests(arguments: &RequestsArguments, environment: &Environment) -> Done {
    let (which, is_recent) = which(arguments.all, &arguments.since)?;
    if arguments.follow {
        return follow::follow(arguments, environment);
    }
    let name = arguments.common.session.name();
    let named = select_session::is_named(name, environment);
    let sessions = sessions(name, which, environment)?;
    let each: Vec<&Found> = sessions.iter().collect();
    let filter = arguments.filter.get(environment)?;
    if which == WhichRequests::All {
        each.iter().filter_map(|session| damage_of_ledger(session)).for_each(|damage| say(&damage));
    }
    let (listed, silent) = inbox(&each, |session| meant(session, which, &filter));
    let status = select_session::failed(each.len(), silent.into_iter().map(|(_, error)| error))?;
    let listed = listed.into_iter().map(|(session, row)| ListedRequest::of(session, row));
    let is_meant =
        |listed: &ListedRequest<'_>| is_recent(&listed.row.requested_at) && (!arguments.is_here || listed.is_here());
    let mut listed: Vec<ListedRequest<'_>> = listed.filter(is_meant).collect();
    name_all(&mut listed);
    say_if_down(sessions.iter().map(|session| {
        let is_its = |one: &&ListedRequest<'_>| one.session.id == session.id && one.row.is_pending();
        (session, listed.iter().filter(is_its).count())
    }));
    if arguments.common.as_json {
        let requests = listed.iter().map(ListedRequest::document).collect();
        return Ok(status.max(print_json(&RequestList { requests })));
    }
    let has_session = if named { HasSession::No } else { HasSession::Yes };
    let lines = listed.iter().map(|ListedRequest { name, place, row, .. }| (&**name, &**place, row)).collect();
    let nothing = |screen| match arguments.is_here {
        true => format!("{} in this folder", none(which)),
        false => nothing(&sessions, named, which, screen, environment),
    };
    Ok(status.max(print_table(lines, which, has_session, &arguments.times, environment, nothing)))
}

/// The requests of a session that pass a filter.
pub(super) fn meant(session: &Found, which: WhichRequests, filter: &Filter) -> Result<Vec<Request>, CliError> {
    let mut rows = requests(session, which)?;
    if !filter.is_empty() {
        let known = facts_of_threads(session)?;
        rows.retain(|row| request_passes(&known, filter, &whole(session, row)));
    }
    Ok(rows)
}

/// Whether a request passes a filter.
pub(super) fn passes(session: &Found, row: &Request, filter: &Filter) -> Result<bool, CliError> {
    Ok(filter.is_empty() || request_passes(&facts_of_threads(session)?, filter, &whole(session, row)))
}

/// The whole request, because a list may leave out its large members.
fn whole(session: &Found, row: &Request) -> Request {
    let whole = row.is_cut().then(|| request(session, &row.request_id).ok().flatten()).flatten();
    whole.map_or_else(|| row.clone(), |whole| whole.request)
}

/// The requests that are listed, and whether those that arrived at a time are among them.
pub(in crate::cli) fn which(all: bool, since: &SinceFlag) -> Result<(WhichRequests, impl Fn(&str) -> bool), CliError> {
    let since = since.get().map(Since::rfc3339);
    if since.is_some() && !all {
        return Err(CliError::usage("--since goes with --all: pending requests are listed whatever their age"));
    }
    let which = if all { WhichRequests::All } else { WhichRequests::Pending };
    Ok((which, move |at: &str| since.as_deref().is_none_or(|since| at >= since)))
}

/// The sessions whose requests are listed: the named one, or else all live ones. All requests are those of stopped sessions too.
pub(super) fn sessions(
    name: Option<&str>,
    which: WhichRequests,
    environment: &Environment,
) -> Result<Vec<Found>, CliError> {
    if select_session::is_named(name, environment) {
        return select_session::one(name, Otherwise::Latest, environment).map(|session| vec![session]);
    }
    let mut found = select_session::all(environment)?;
    found.retain(|session| which == WhichRequests::All || may_wait(session));
    Ok(found)
}

/// Whether requests of a session may be pending: its relay runs, or it is a hub that has left its server running.
pub(super) fn may_wait(session: &Found) -> bool {
    session.live || hub::Down::with_server(session).is_some()
}

/// Says on stderr how to answer requests of hubs that are down: how many wait in each session.
pub(super) fn say_if_down<'a>(waiting: impl Iterator<Item = (&'a Found, usize)>) {
    for (session, count) in waiting {
        let Some(waits) = counted(count as u64, "request waits", "requests wait") else { continue };
        if let Some(down) = Down::of(session) {
            let name = session.name();
            say(&format!("{waits} in session {name}: {}; {}, and then you can answer", down.what(), down.remedy()));
        }
    }
}

/// There are no requests, in words.
pub(in crate::cli) fn none(which: WhichRequests) -> &'static str {
    if which == WhichRequests::All { "no requests yet" } else { "no requests are pending" }
}

/// The message for an empty list.
fn nothing(sessions: &[Found], named: bool, which: WhichRequests, to: Screen, environment: &Environment) -> String {
    let is_all = which == WhichRequests::All;
    match sessions {
        [session] if named => {
            let name = screen::plain(&select_session::heading(session, to, environment));
            match is_all {
                true => format!("session {name} has had no requests"),
                false => format!("no requests are pending in session {name}"),
            }
        }
        _ => {
            if select_session::all_quietly(environment).is_ok_and(|all| all.is_empty()) {
                say(&ChoiceError::NoSessions.to_string());
            }
            none(which).to_owned()
        }
    }
}

/// A request in a list.
#[derive(Debug, Clone)]
pub(super) struct ListedRequest<'a> {
    pub(super) session: &'a Found,
    pub(super) row: Request,
    /// The short name of the request.
    pub(super) name: String,
    /// The folder and the client that ask.
    pub(super) place: String,
    /// The same with the terminal of the client.
    exact_place: String,
}

impl<'a> ListedRequest<'a> {
    pub(super) fn of(session: &'a Found, row: Request) -> ListedRequest<'a> {
        let origin = RequestOrigin::of(session, &row);
        ListedRequest { session, row, name: String::new(), place: origin.name, exact_place: origin.exact_name }
    }

    /// Whether the thread that asks works in the folder of the caller.
    pub(super) fn is_here(&self) -> bool {
        select_session::is_here(&RequestOrigin::of(self.session, &self.row).cwd)
    }

    /// The row, with its names and its session.
    pub(super) fn document(&self) -> Request {
        let session = Some(session_of_request(self.session, &self.row));
        Request { name: Some(self.name.clone()), session, ..self.row.clone() }
    }
}

/// Gives the requests names that are unique among them, and so the sessions.
pub(super) fn name_all(listed: &mut [ListedRequest<'_>]) {
    let ids: Vec<String> = listed.iter().map(|listed| listed.row.request_id.clone()).collect();
    let names = ShortNames::among(ids.iter().map(String::as_str));
    let mut sessions: Vec<&Found> = listed.iter().map(|listed| listed.session).collect();
    sessions.sort_by(|one, other| one.id.cmp(&other.id));
    sessions.dedup_by(|one, other| one.id == other.id);
    let all: Vec<Found> = sessions.into_iter().cloned().collect();
    let mut of_place: HashMap<String, BTreeSet<String>> = HashMap::new();
    for one in listed.iter() {
        // A session that is named by itself is one place, however many threads it has.
        let by_itself = one.place == label(one.session);
        let thread = one.row.thread_id.as_deref().filter(|_| !by_itself).unwrap_or_default();
        of_place.entry(one.place.clone()).or_default().insert(format!("{} {thread}", one.session.id));
    }
    for session in &all {
        of_place.entry(label(session)).or_default().insert(format!("{} ", session.id));
    }
    for (listed, id) in listed.iter_mut().zip(&ids) {
        listed.name = names.of(id).to_owned();
        if of_place.get(&listed.place).is_some_and(|alike| alike.len() > 1) {
            let by_itself = listed.place == label(listed.session);
            listed.place = if by_itself { full_name(listed.session, &all) } else { listed.exact_place.clone() };
        }
    }
}

/// Whether a table names the session of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum HasSession {
    Yes,
    No,
}

/// The position of the session in a table.
const SESSION_COLUMN: usize = 2;

/// Prints a table of requests, each with its name and the place that asks, or that there are none.
pub(in crate::cli) fn print_table(
    lines: Vec<(&str, &str, &Request)>,
    which: WhichRequests,
    has_session: HasSession,
    times: &Times,
    environment: &Environment,
    nothing: impl FnOnce(Screen) -> String,
) -> i32 {
    let (clock, to) = (Clock::of(times), Screen::of_stdout(environment));
    screen::print(&match lines.is_empty() {
        true => format!("{}\n", nothing(to)),
        false => table(lines.into_iter(), which, has_session, &clock, to, screen::columns(to)),
    })
}

/// A table of requests, each with its name and the place that asks: pending ones, or all with their outcomes.
pub(in crate::cli) fn table<'a>(
    lines: impl Iterator<Item = (&'a str, &'a str, &'a Request)>,
    which: WhichRequests,
    has_session: HasSession,
    clock: &Clock,
    to: Screen,
    columns_max: Option<usize>,
) -> String {
    let is_all = which == WhichRequests::All;
    let age = |row: &Request| clock.age(&row.requested_at).unwrap_or_else(|| "-".to_owned());
    let mut columns = vec![
        if is_all { Column::whole("AGE").spare() } else { Column::whole("AGE") },
        Column::whole("REQUEST"),
        Column::text("WHO ASKS"),
        Column::whole("KIND").spare(),
        Column::text("WHAT IT ASKS"),
    ];
    if is_all {
        let more = [Column::whole("OUTCOME"), Column::whole("BY").spare(), Column::whole(clock.head("AT")).spare()];
        columns.splice(4..4, more);
    }
    let cells = |(name, place, row): (&str, &str, &Request)| {
        let left = if is_all { String::new() } else { left(row, clock) };
        let mut cells = vec![
            (Tone::Faint, format!("{}{left}", age(row))),
            (Tone::Warning, name.to_owned()),
            (Tone::Plain, place.to_owned()),
            (Tone::Faint, row.kind().name().to_owned()),
            asks_cell(row, Tone::Strong),
        ];
        if is_all {
            let at = (Tone::Faint, clock.cell(row.resolved_at.as_deref().unwrap_or("-"), to));
            cells.splice(4..4, [outcome_cell(row), (Tone::Faint, by(row)), at]);
        }
        cells
    };
    let mut cells: Vec<Vec<Cell>> = lines.map(cells).collect();
    if has_session == HasSession::No {
        columns.remove(SESSION_COLUMN);
        cells.iter_mut().for_each(|row| drop(row.remove(SESSION_COLUMN)));
    }
    Table::within(columns, to, columns_max).add(cells)
}

/// How long a request can still be answered, if not for ever: ` (48s left)`.
fn left(row: &Request, clock: &Clock) -> String {
    answer_until(row).map(|until| format!(" ({} left)", clock.left(until))).unwrap_or_default()
}

/// What a request asks. One with warnings is marked, because a table may cut off the words that are dangerous.
pub(in crate::cli) fn asks_cell(row: &Request, otherwise: Tone) -> Cell {
    match row.has_warnings() {
        true => (Tone::Bad, format!("! {}", row.summary)),
        false => (otherwise, row.summary.clone()),
    }
}

/// The outcome in one word, which fits the narrowest terminal; `show` prints the whole answer.
pub(super) fn outcome_cell(row: &Request) -> (Tone, String) {
    let tone = match &*row.status {
        "pending" => Tone::Warning,
        "resolved" if row.is_withdrawn() || answers_nothing(&row.resolved_payload) => Tone::Faint,
        "resolved" => Tone::Good,
        _ => Tone::Bad,
    };
    (tone, outcome_word(row).to_owned())
}

/// The source of the answer, without its process; `show` prints both.
pub(super) fn by(row: &Request) -> String {
    row.resolution_source.clone().unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use serde_json::json;

    use super::*;

    fn rows() -> Vec<Request> {
        let row = |id: &str, at: &str, method: &str, summary: &str| {
            json!({
                "request_id": format!("6b02d1a90c4e-{id}"), "process_generation": "6b02d1a90c4e", "status": "pending",
                "requested_at": at, "request_method": method, "summary": summary,
            })
            .into()
        };
        let done = Request {
            status: "resolved".to_owned(),
            resolved_payload: json!({ "decision": "decline" }),
            resolution_source: Some("cli".to_owned()),
            resolved_by: Some("uid 0".to_owned()),
            resolved_at: Some("2026-01-02T03:04:06.000Z".to_owned()),
            ..row("1", "2026-01-02T03:04:05.000Z", "item/fileChange/requestApproval", "change a")
        };
        vec![row("0", "2026-01-02T03:03:05.000Z", "item/commandExecution/requestApproval", "run x\u{1b}[31m"), done]
    }

    fn now() -> Clock {
        Clock::stopped("2026-01-02T03:04:07Z")
    }

    fn session() -> Found {
        Found {
            dir: PathBuf::from("work"),
            id: "work".to_owned(),
            live: true,
            holder: None,
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        }
    }

    fn listed(session: &Found) -> Vec<ListedRequest<'_>> {
        let mut listed: Vec<ListedRequest<'_>> =
            rows().into_iter().map(|row| ListedRequest::of(session, row)).collect();
        name_all(&mut listed);
        listed
    }

    fn drawn(
        listed: &[ListedRequest<'_>],
        which: WhichRequests,
        has_session: HasSession,
        columns_max: Option<usize>,
    ) -> String {
        let lines = listed.iter().map(|listed| (&*listed.name, &*listed.place, &listed.row));
        let to = if columns_max.is_some() { Screen::Plain } else { Screen::None };
        table(lines, which, has_session, &now(), to, columns_max)
    }

    #[test]
    fn pending_requests_are_listed() {
        let session = session();
        let shown = |has_session| drawn(&listed(&session), WhichRequests::Pending, has_session, None);
        let expect =
            "1m 2s  0c4e-0  work  command      run x\u{fffd}[31m\n2s     0c4e-1  work  file change  change a\n";
        assert_eq!(shown(HasSession::Yes), expect);
        assert_eq!(shown(HasSession::No), expect.replace("  work", ""));
    }

    #[test]
    fn outcomes_of_all_requests_are_listed() {
        let session = session();
        let expect = "\
1m 2s  0c4e-0  command      pending   -    -                     run x\u{fffd}[31m
2s     0c4e-1  file change  declined  cli  2026-01-02T03:04:06Z  change a
";
        assert_eq!(drawn(&listed(&session), WhichRequests::All, HasSession::No, None), expect);
    }

    #[test]
    fn outcomes_stay_whole_on_narrow_terminals() {
        let session = session();
        let mut listed = listed(&session);
        listed[1].row.summary = "change ".repeat(20);
        listed[1].row.resolved_by = Some("uid 0, pid 12345".to_owned());
        for columns_max in [40, 80] {
            let shown = drawn(&listed, WhichRequests::All, HasSession::Yes, Some(columns_max));
            assert!(shown.contains("declined") && !shown.contains("uid"), "{shown}");
        }
    }

    #[test]
    fn dangerous_requests_are_marked_where_their_words_are_cut_off() {
        let session = session();
        let mut listed = listed(&session);
        let of_row = |listed: &ListedRequest<'_>| {
            drawn(std::slice::from_ref(listed), WhichRequests::Pending, HasSession::Yes, Some(60))
        };
        listed[0].row.summary = format!("run cargo build {} | sudo sh", "x".repeat(60));
        assert!(of_row(&listed[0]).contains(" run cargo"), "{}", of_row(&listed[0]));
        listed[0].row.warnings = Some(vec!["it runs a script from the network as root".to_owned()]);
        let shown = of_row(&listed[0]);
        assert!(shown.contains("! run cargo") && !shown.contains("sudo"), "{shown}");
    }

    #[test]
    fn request_has_the_name_of_its_session() {
        let session = session();
        let document = listed(&session)[0].document();
        let session = document.session.expect("it has a session");
        assert_eq!((document.name.as_deref(), &*session.name), (Some("0c4e-0"), "work"));
        assert_eq!(document.request_id, "6b02d1a90c4e-0");
    }
}
