//! `codex-shim hub status`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::super::screen::{self, Clock, Screen, Times, Tone, counted};
use super::super::table::{Column, Table};
use super::super::{CliError, Done, FAILED, NOT_RUNNING, complete, offline, select_session};
use super::{Down, Hub};
use crate::config::{Environment, SessionName};
use crate::control::client::{self, Answer, ClientError};
use crate::history::rfc3339_millis;
use crate::hub::sockets::{Answerer, answerer, default_socket, own_socket};
use crate::hub::{self, process};
use crate::socket::{self, LOOK_EVERY, Peer, connect};

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
        let server = left.as_ref().map_or(Value::Null, |(hub, _)| server_on_record(&hub.found.dir));
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

/// The server of a session, by its record; null if it does not run.
fn server_on_record(dir: &Path) -> Value {
    process::recorded(dir).map_or(Value::Null, |server| {
        json!({
            "pid": server.pid,
            "version": server.version,
            "socket": server.socket,
            "started_at": rfc3339_millis(server.started_at_us),
        })
    })
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
    server: Value,
    connections: Value,
    /// Codex has changed since the server started.
    outdated: bool,
    /// The sockets on which the hub listens.
    sockets: Vec<PathBuf>,
    /// Why its control socket does not answer.
    silent: Option<String>,
    /// All faults, also that it does not answer.
    pub(in crate::cli) faults: Vec<Fault>,
}

impl Status {
    /// Looks at a hub.
    pub(in crate::cli) fn of(hub: &Hub, environment: &Environment) -> Status {
        let (document, silent) = match asked(hub) {
            Ok(answer) => match answer.document::<Value>() {
                Ok(document) => (document, None),
                Err(why) => (Value::Null, Some(why)),
            },
            Err(error) => (Value::Null, Some(error.why(&hub.found))),
        };
        let server = match document.get("server") {
            Some(server) if !server.is_null() => server.clone(),
            Some(_) | None => server_on_record(&hub.found.dir),
        };
        let (sockets, mut faults) = sockets(hub, &document, environment);
        faults.extend(silent.as_ref().map(|why| {
            let (what, remedy) = why.split_once("; ").unwrap_or((why, ""));
            Fault {
                socket: None,
                what: format!("it does not answer: {what}"),
                remedy: remedy.to_owned(),
                may_pass: true,
            }
        }));
        if let Some(pid) = server["pid"].as_u64().filter(|_| server["draining"] == true) {
            let told = hub::draining(pid as u32, &hub.command("restart --server"));
            let (what, remedy) = told.split_once("; ").unwrap_or((&told, ""));
            faults.push(Fault { socket: None, what: what.to_owned(), remedy: remedy.to_owned(), may_pass: false });
        }
        Status {
            connections: connections_of(&document),
            outdated: process::recorded(&hub.found.dir).is_some_and(|server| server.is_outdated()),
            server,
            sockets,
            silent,
            faults,
        }
    }
}

/// How long the control socket of a hub that runs may be missing: at its start, or until it is bound again.
const SOCKET_WAIT_MAX: Duration = Duration::from_secs(3);

/// Pause between two attempts.
const SOCKET_LOOK_WAIT: Duration = Duration::from_millis(50);

/// The response of the hub. It is asked again while nobody listens on its socket.
fn asked(hub: &Hub) -> Result<Answer, ClientError> {
    let began = Instant::now();
    loop {
        match client::get(&hub.found.dir, "/sessions/self") {
            Err(error) if error.is_nobody() && began.elapsed() < SOCKET_WAIT_MAX && hub.found.is_still_live() => {
                std::thread::park_timeout(SOCKET_LOOK_WAIT);
            }
            answer => return answer,
        }
    }
}

/// The connections, each with the folders of its users' threads.
fn connections_of(document: &Value) -> Value {
    let mut connections = document["connections"].as_array().cloned().unwrap_or_default();
    let threads = document["threads"].as_array().map(Vec::as_slice).unwrap_or_default();
    let folder_of = |id: &Value| {
        let thread = threads.iter().find(|thread| thread["thread_id"] == *id && thread["kind"] == "user")?;
        thread["place"]["folder"].as_str().map(str::to_owned)
    };
    for connection in &mut connections {
        let folders: BTreeSet<String> =
            connection["threads"].as_array().into_iter().flatten().filter_map(folder_of).collect();
        connection["folders"] = json!(folders);
    }
    Value::from(connections)
}

/// The sockets on which a hub listens, and the faults of the others.
fn sockets(hub: &Hub, document: &Value, environment: &Environment) -> (Vec<PathBuf>, Vec<Fault>) {
    let listens = |path: &Path| {
        let listener = socket::resolve_at(path).and_then(|path| Peer::of(&connect(&path)?));
        listener.is_ok_and(|peer| peer.is_ours() && (peer.pid.is_none() || peer.pid == hub.pid()))
    };
    let Some(told) = document["sockets"].as_array() else {
        // It does not answer, or is of an older version.
        let known = [default_socket(&environment.codex_home_resolved()), own_socket(&hub.found.dir)];
        return (known.into_iter().filter(|path| listens(path)).collect(), Vec::new());
    };
    let (mut sockets, mut faults) = (Vec::new(), Vec::new());
    for told in told {
        let path = PathBuf::from(told["path"].as_str().unwrap_or_default());
        if listens(&path) {
            sockets.push(path);
            continue;
        }
        let fault =
            told["fault"].as_str().map_or_else(|| format!("nothing listens on {}", path.display()), str::to_owned);
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
        }
        rows.extend(self.sockets.iter().map(|socket| ("socket", socket.display().to_string())));
        let connections = self.connections.as_array().map_or(0, Vec::len) as u64;
        rows.push(("clients", counted(connections, "connection", "connections").unwrap_or_else(|| "none".to_owned())));
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
        let Some(pid) = self.server["pid"].as_u64() else { return "none".to_owned() };
        let version = self.server["version"].as_str().map(|version| format!("codex {version}"));
        let since = self.server["started_at"].as_str().and_then(|at| clock.age(at)).map(|since| format!("for {since}"));
        let adopted = (self.server["adopted"] == true).then(|| "taken over from another hub".to_owned());
        let parts = [version, Some(format!("pid {pid}")), since, adopted];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
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
        let row = |connection: &Value| {
            let client = &connection["client"];
            let words = [&client["name"], &client["version"]].map(|word| word.as_str().unwrap_or_default());
            let folders = connection["folders"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let folders: Vec<&str> = folders.collect();
            let since = connection["since"].as_str().map(|at| clock.cell(at, to)).unwrap_or_default();
            let waiting = bytesize::ByteSize(connection["waiting_bytes"].as_u64().unwrap_or_default());
            let cells = [
                connection["conn"].to_string(),
                words.join(" ").trim().to_owned(),
                folders.join(", "),
                connection["terminal"].as_str().unwrap_or_default().to_owned(),
                connection["transport"].as_str().unwrap_or_default().to_owned(),
                since,
                connection["threads"].as_array().map_or(0, Vec::len).to_string(),
                waiting.to_string(),
            ];
            cells.map(|cell| (Tone::Plain, cell)).to_vec()
        };
        let connections = self.connections.as_array().map(Vec::as_slice).unwrap_or_default();
        Table::of(columns, connections.iter().map(row).collect(), to)
    }
}
