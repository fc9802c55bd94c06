//! `codex-shim hub status`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::super::drift_tool::Outlook;
use super::super::screen::{self, Clock, Screen, Times, Tone, counted};
use super::super::table::{Column, Table};
use super::super::{CliError, Done, FAILED, NOT_RUNNING, complete, offline, select_session};
use super::{Down, Hub};
use crate::api::{ConnectionDocument, EnvironmentDocument, ServerDocument, SessionDocument, State, ThreadDocument};
use crate::config::{Environment, SessionName};
use crate::control::client::{self, ANSWER_WAIT_MAX, Unanswered};
use crate::history::rfc3339_millis;
use crate::hub::bypass::{self, Bypass};
use crate::hub::sockets::{Answerer, answerer, default_socket, own_socket};
use crate::hub::{self, process};
use crate::os::processes;
use crate::os::sockets::connect;
use crate::socket::{self, LOOK_EVERY, Peer};

/// Width of the label column.
const LABEL_COLUMNS: usize = 9;

/// Show a hub: its server, its sockets and its clients
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  the hub runs
  1  it runs, but does not answer, does not listen on a socket, or has a server
     that is shutting down
  4  no hub runs

Examples:
  codex-shim hub status
  codex-shim hub status --json | jq '.connections[].client.name'")]
pub(super) struct StatusArguments {
    /// Name of the hub's session [default: the one of this CODEX_HOME]
    #[arg(long, id = "session", value_name = "NAME", add = complete::sessions())]
    session: Option<SessionName>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: Times,
}

pub(super) fn run_status(arguments: &StatusArguments, environment: &Environment) -> Done {
    let Some(hub) = Hub::running(arguments.session.as_ref(), environment)? else {
        return not_running(arguments, environment);
    };
    let status = Status::of(&hub, environment);
    let text = if arguments.json { status.json(&hub) } else { status.screen(&hub, arguments, environment) };
    let printed = if arguments.json { screen::print_exactly(&text) } else { screen::print(&text) };
    Ok(if status.faults.is_empty() { printed } else { FAILED })
}

/// Says that no hub runs, and which server does.
fn not_running(arguments: &StatusArguments, environment: &Environment) -> Done {
    let hubs = Hub::all(arguments.session.as_ref(), environment)?;
    let left = hubs.iter().find_map(|hub| Some((hub, Down::of(&hub.found).filter(|down| down.server.is_some())?)));
    let pending = left.as_ref().map_or(Ok(0), |(hub, _)| offline::pending(&hub.found))?;
    if arguments.json {
        let server = left.as_ref().and_then(|(hub, _)| server_on_record(&hub.found.dir));
        let document = json!({ "running": false, "server": server, "pending_requests": pending });
        return Ok(NOT_RUNNING.max(screen::print_exactly(&format!("{document}\n"))));
    }
    let told = match left {
        Some((_, down)) => {
            let waits = counted(pending, "request waits", "requests wait").map(|waits| format!("; {waits} there"));
            format!("{}{}; {}\n", down.what(), waits.unwrap_or_default(), down.remedy())
        }
        None => match others_running(environment)?.as_slice() {
            [] => match unknown_hub(environment) {
                Some(by) => format!("no hub is running in this state folder, but {by}\n"),
                None => match hubs.first().and_then(|hub| Down::of(&hub.found)) {
                    Some(down) => format!("{}; {}\n", down.what(), down.remedy()),
                    None => "no hub is running; `codex-shim hub start` starts one\n".to_owned(),
                },
            },
            names => format!("no hub is running in this session; there are others: {}\n", names.join(", ")),
        },
    };
    Ok(NOT_RUNNING.max(screen::print(&told)))
}

/// A hub without a session here that answers where codex looks for a server, in words: its session folder may have been removed.
fn unknown_hub(environment: &Environment) -> Option<String> {
    let codex_home = environment.codex_home_resolved();
    let by = answerer(&codex_home, &environment.shim_home().value?).ok()??;
    let is_unknown = matches!(by, Answerer::Hub { session: None, .. });
    is_unknown.then(|| format!("{by} listens on {}; {}", default_socket(&codex_home).display(), by.remedy()))
}

/// The sessions of all hubs that run.
fn others_running(environment: &Environment) -> Result<Vec<String>, CliError> {
    let hubs = select_session::all_quietly(environment)?
        .into_iter()
        .filter(|found| found.live && found.holder.as_ref().is_some_and(|holder| hub::is_hub(&holder.place)));
    Ok(hubs.map(|found| found.id).collect())
}

/// A server, as a hub tells of it; its record alone does not say whether it was taken over.
#[derive(Debug, Clone, Serialize)]
struct Server {
    pid: u32,
    version: Option<String>,
    socket: String,
    started_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    adopted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    draining: Option<bool>,
}

impl From<ServerDocument> for Server {
    fn from(server: ServerDocument) -> Server {
        let ServerDocument { pid, version, socket, started_at, adopted, is_draining } = server;
        Server { pid, version, socket, started_at, adopted: Some(adopted), draining: Some(is_draining) }
    }
}

/// The server of a session, by its record, if it runs.
fn server_on_record(dir: &Path) -> Option<Server> {
    let server = process::recorded(dir)?;
    Some(Server {
        pid: server.pid,
        version: server.version,
        socket: server.socket.display().to_string(),
        started_at: rfc3339_millis(server.started_at_us),
        adopted: None,
        draining: None,
    })
}

/// A client, and the folders of its users' threads.
#[derive(Debug, Clone, Serialize)]
struct ConnectedClient {
    #[serde(flatten)]
    document: ConnectionDocument,
    folders: BTreeSet<String>,
}

/// A fault of a hub that runs.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Fault {
    /// The path of the socket that it is about.
    pub(in crate::cli) socket: Option<PathBuf>,
    pub(in crate::cli) what: String,
    pub(in crate::cli) remedy: String,
    /// It may go by itself within seconds.
    pub(super) may_pass: bool,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

/// The state of a hub that runs.
pub(in crate::cli) struct Status {
    server: Option<Server>,
    connections: Vec<ConnectedClient>,
    /// Codex has changed since the server started.
    outdated: bool,
    /// The sockets on which the hub listens.
    sockets: Vec<PathBuf>,
    /// Why its control socket does not answer.
    silent: Option<String>,
    /// Whose variables the commands of the threads get.
    environments: Vec<EnvironmentDocument>,
    /// The codex processes with threads that are not behind codex-shim.
    bypasses: Vec<Bypass>,
    /// All faults, also that it does not answer.
    pub(in crate::cli) faults: Vec<Fault>,
}

impl Status {
    /// Looks at a hub.
    pub(in crate::cli) fn of(hub: &Hub, environment: &Environment) -> Status {
        let (document, silent) = match asked(hub) {
            Ok(document) => (Some(document), None),
            Err(error) => (None, Some(error.why(&hub.found))),
        };
        let (sockets, mut faults) = sockets(hub, document.as_ref(), environment);
        faults.extend(silent.as_ref().map(|why| {
            let (what, remedy) = why.split_once("; ").unwrap_or((why, ""));
            Fault {
                socket: None,
                what: format!("it does not answer: {what}"),
                remedy: remedy.to_owned(),
                may_pass: true,
            }
        }));
        let threads = document.as_ref().map(|document| document.threads.clone()).unwrap_or_default();
        let told = document.and_then(|document| document.hub);
        let environments = told.as_ref().map(|hub| hub.environments.clone()).unwrap_or_default();
        let (server, connections) = told.map(|hub| (hub.server, hub.connections)).unzip();
        let server = server.map(Server::from).or_else(|| server_on_record(&hub.found.dir));
        if let Some(Server { pid, draining: Some(true), .. }) = server {
            let told = hub::draining(pid, &hub.command("restart --server"));
            let (what, remedy) = told.split_once("; ").unwrap_or((&told, ""));
            faults.push(Fault { socket: None, what: what.to_owned(), remedy: remedy.to_owned(), may_pass: false });
        }
        Status {
            connections: connections_of(connections.unwrap_or_default(), &threads),
            outdated: process::recorded(&hub.found.dir).is_some_and(|server| server.is_outdated()),
            server,
            sockets,
            silent,
            environments,
            bypasses: bypasses(Some(hub), environment),
            faults,
        }
    }
}

/// What goes past a hub, or past none.
pub(in crate::cli) fn bypasses(hub: Option<&Hub>, environment: &Environment) -> Vec<Bypass> {
    let Some(home) = environment.shim_home().value else { return Vec::new() };
    let since = hub.and_then(Hub::pid).and_then(processes::started_unix_s);
    let of_hub = hub.and_then(|hub| Some(hub.found.holder.as_ref()?.place.codex_home_resolved()));
    bypass::found(&of_hub.unwrap_or_else(|| environment.codex_home_resolved()), &home, since)
}

/// A process that goes past the hub, in a line, and why.
pub(in crate::cli) fn bypass_line(bypass: &Bypass, since: Option<String>) -> String {
    let folder = bypass.folder.as_ref().map(|folder| format!("in {folder}"));
    let parts = [Some(format!("pid {}", bypass.pid)), bypass.terminal.clone(), folder, since];
    format!("{}: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "), bypass.why)
}

/// How long the control socket of a hub that runs may be missing: at its start, or until it is bound again.
const SOCKET_WAIT_MAX: Duration = Duration::from_secs(3);

/// Pause between two attempts.
const SOCKET_LOOK_WAIT: Duration = Duration::from_millis(50);

/// Asks the hub for its state, and repeats that while nobody listens on its socket.
fn asked(hub: &Hub) -> Result<SessionDocument, Unanswered> {
    let began = Instant::now();
    loop {
        match client::ask(&hub.found.dir, &State, ANSWER_WAIT_MAX) {
            Err(Unanswered::NoAnswer(error))
                if error.is_nobody() && began.elapsed() < SOCKET_WAIT_MAX && hub.found.is_still_live() =>
            {
                std::thread::park_timeout(SOCKET_LOOK_WAIT);
            }
            answer => return answer,
        }
    }
}

/// The connections, each with the folders of its users' threads.
fn connections_of(connections: Vec<ConnectionDocument>, threads: &[ThreadDocument]) -> Vec<ConnectedClient> {
    let folder_of = |id: &String| {
        let thread = threads.iter().find(|thread| thread.thread_id == *id && thread.identity.kind.is_user())?;
        Some(thread.identity.place.as_ref()?.folder.clone())
    };
    let with_folders = |document: ConnectionDocument| {
        let folders = document.threads.iter().filter_map(folder_of).collect();
        ConnectedClient { document, folders }
    };
    connections.into_iter().map(with_folders).collect()
}

/// The sockets on which a hub listens, and the faults of the others.
fn sockets(hub: &Hub, document: Option<&SessionDocument>, environment: &Environment) -> (Vec<PathBuf>, Vec<Fault>) {
    let listens = |path: &Path| {
        let listener = socket::resolve_at(path).and_then(|path| Peer::of(&connect(&path)?));
        listener.is_ok_and(|peer| peer.is_ours() && (peer.pid.is_none() || peer.pid == hub.pid()))
    };
    let told = document.and_then(|document| document.hub.as_ref()).map(|hub| &hub.sockets[..]).unwrap_or_default();
    if told.is_empty() {
        // It does not answer, or is of an older version.
        let known = [default_socket(&environment.codex_home_resolved()), own_socket(&hub.found.dir)];
        return (known.into_iter().filter(|path| listens(path)).collect(), Vec::new());
    }
    let (mut sockets, mut faults) = (Vec::new(), Vec::new());
    for told in told {
        let path = PathBuf::from(&told.path);
        if listens(&path) {
            sockets.push(path);
            continue;
        }
        let fault = told.fault.clone().unwrap_or_else(|| format!("nothing listens on {}", path.display()));
        let (what, remedy) = match fault.rsplit_once("; ") {
            Some((what, remedy)) => (what.to_owned(), remedy.to_owned()),
            None => (fault, format!("the hub looks every {LOOK_EVERY:?} whether it can listen there again")),
        };
        faults.push(Fault { socket: Some(path), what, remedy, may_pass: true });
    }
    (sockets, faults)
}

impl Status {
    fn json(&self, hub: &Hub) -> String {
        let document = json!({
            "running": true,
            "session_id": hub.found.id,
            "pid": hub.pid(),
            "started_at": hub.found.holder.as_ref().map(|holder| holder.started_at.clone()),
            "server": self.server,
            "outdated": self.outdated,
            "sockets": self.sockets,
            "connections": self.connections,
            "environments": self.environments,
            "bypasses": self.bypasses,
            "fault": self.silent,
            "faults": self.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        format!("{document}\n")
    }

    fn screen(&self, hub: &Hub, arguments: &StatusArguments, environment: &Environment) -> String {
        let (to, clock) = (Screen::of_stdout(environment), Clock::of(&arguments.times));
        let (verdict, tone) = match (&self.silent, &self.faults[..]) {
            (Some(why), _) => (format!("a hub runs but does not answer: {why}"), Tone::Bad),
            (None, []) => ("running".to_owned(), Tone::Good),
            (None, faults) => {
                let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
                (format!("a hub runs, but {}", faults.join("\nand ")), Tone::Bad)
            }
        };
        let since = hub.found.holder.as_ref().and_then(|holder| clock.age(&holder.started_at));
        let pid = hub.pid().map_or_else(String::new, |pid| format!("pid {pid}"));
        let mut rows = vec![
            ("session", hub.found.id.clone()),
            (
                "hub",
                [Some(pid), since.map(|since| format!("for {since}"))]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
            ("server", self.server(&clock)),
        ];
        if self.outdated {
            rows.push(("", hub::outdated(&hub.command("restart --server"))));
            let version = self.server.as_ref().and_then(|server| server.version.as_deref());
            rows.extend(Outlook::of_replaced(&hub.found, version, environment).map(|outlook| ("", outlook)));
        }
        rows.extend(self.sockets.iter().map(|socket| ("socket", socket.display().to_string())));
        let connections = self.connections.len() as u64;
        rows.push(("clients", counted(connections, "connection", "connections").unwrap_or_else(|| "none".to_owned())));
        for (at, (whose, threads)) in self.givers().into_iter().enumerate() {
            let threads = counted(threads, "thread", "threads").unwrap_or_default();
            rows.push((if at == 0 { "passes" } else { "" }, format!("{whose}, to the commands of {threads}")));
        }
        for (at, bypass) in self.bypasses.iter().enumerate() {
            let since = bypass.started_at.as_ref().and_then(|at| clock.age(at)).map(|since| format!("for {since}"));
            let line = format!("{}; {}", bypass_line(bypass, since), bypass.remedy);
            rows.push((if at == 0 { "past it" } else { "" }, line));
        }
        let verdict: Vec<String> = verdict.lines().map(|line| to.paint(tone, &screen::plain(line))).collect();
        let mut text = format!("{}\n\n", verdict.join("\n"));
        for (label, value) in rows {
            let label = to.paint(Tone::Faint, &format!("{label:LABEL_COLUMNS$}"));
            text.push_str(&format!("{label} {}\n", screen::plain(&value)));
        }
        let table = self.table(&clock, to);
        if table.is_empty() { text } else { format!("{text}\n{table}") }
    }

    fn server(&self, clock: &Clock) -> String {
        let Some(server) = &self.server else { return "none".to_owned() };
        let version = server.version.as_ref().map(|version| format!("codex {version}"));
        let since = clock.age(&server.started_at).map(|since| format!("for {since}"));
        let adopted = (server.adopted == Some(true)).then(|| "taken over from another hub".to_owned());
        let pid = server.pid;
        let parts = [version, Some(format!("pid {pid}")), since, adopted];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The variables that commands get and whose they are, each with the number of its threads.
    fn givers(&self) -> BTreeMap<String, u64> {
        let mut givers = BTreeMap::new();
        for environment in &self.environments {
            *givers.entry(environment.in_words()).or_default() += 1;
        }
        givers
    }

    /// One row per connection.
    fn table(&self, clock: &Clock, to: Screen) -> String {
        let columns = vec![
            Column::number("CONN"),
            Column::text("CLIENT"),
            Column::text("FOLDER"),
            Column::whole("TERMINAL").spare(),
            Column::whole("OVER").spare(),
            Column::whole("SINCE"),
            Column::number("THREADS"),
            Column::number("WAITING").spare(),
        ];
        let row = |ConnectedClient { document, folders }: &ConnectedClient| {
            let words =
                [&document.client.name, &document.client.version].map(|word| word.as_deref().unwrap_or_default());
            let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
            let cells = [
                document.conn.0.to_string(),
                words.join(" ").trim().to_owned(),
                folders.join(", "),
                document.terminal.clone().unwrap_or_default(),
                document.transport.to_string(),
                clock.cell(&document.since, to),
                document.threads.len().to_string(),
                bytesize::ByteSize(document.waiting_bytes).to_string(),
            ];
            cells.map(|cell| (Tone::Plain, cell)).to_vec()
        };
        Table::of(columns, self.connections.iter().map(row).collect(), to)
    }
}
