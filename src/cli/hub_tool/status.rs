//! `codex-shim hub status`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::super::screen::{self, Clock, Screen, Times, Tone, counted};
use super::super::table::{Column, Table};
use super::super::{CliError, Done, FAILED, NOT_RUNNING, complete, select_session};
use super::{Hub, codex_home};
use crate::config::{Environment, SessionName};
use crate::control::client;
use crate::history::rfc3339_millis;
use crate::hub::sockets::{CODEX_SOCKET, default_socket};
use crate::hub::{self, process};
use crate::socket::{self, Peer, connect};

/// Width of the label column.
const LABEL_COLUMNS: usize = 9;

/// Show a hub: its server, its sockets and its clients
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  the hub runs
  1  it runs and does not answer
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
    let (document, fault) = match client::get(&hub.found.dir, "/sessions/self") {
        Ok(answer) => match answer.document::<Value>() {
            Ok(document) => (document, None),
            Err(why) => (Value::Null, Some(why)),
        },
        Err(error) => (Value::Null, Some(error.why(&hub.found))),
    };
    let status = Status {
        server: match document.get("server") {
            Some(server) if !server.is_null() => server.clone(),
            Some(_) | None => server_on_record(&hub.found.dir),
        },
        connections: document.get("connections").cloned().unwrap_or(json!([])),
        outdated: process::recorded(&hub.found.dir).is_some_and(|server| server.is_outdated()),
        sockets: sockets(&hub, environment),
        fault,
    };
    let text = if arguments.json { status.json(&hub) } else { status.screen(&hub, arguments, environment) };
    let printed = if arguments.json { screen::print_exactly(&text) } else { screen::print(&text) };
    Ok(if status.fault.is_some() { FAILED } else { printed })
}

/// Says that no hub runs, and which server does.
fn not_running(arguments: &StatusArguments, environment: &Environment) -> Done {
    let hubs = Hub::all(arguments.session.as_ref(), environment)?;
    let mut servers = hubs.iter().map(|hub| server_on_record(&hub.found.dir)).filter(|server| !server.is_null());
    let server = servers.next().unwrap_or(Value::Null);
    if arguments.json {
        screen::print_exactly(&format!("{}\n", json!({ "running": false, "server": server })));
        return Ok(NOT_RUNNING);
    }
    let told = match server["pid"].as_u64() {
        Some(pid) => format!("no hub is running; its server (pid {pid}) is, and the next hub takes it over\n"),
        None => match others_running(environment)?.as_slice() {
            [] => "no hub is running; `codex-shim hub start` starts one\n".to_owned(),
            names => format!("no hub is running in this session; there are others: {}\n", names.join(", ")),
        },
    };
    screen::print(&told);
    Ok(NOT_RUNNING)
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

/// The sockets on which the hub listens.
fn sockets(hub: &Hub, environment: &Environment) -> Vec<PathBuf> {
    let default = default_socket(&codex_home(environment));
    let listener = socket::resolve_at(&default).and_then(|path| Peer::of(&connect(&path)?));
    let has_default = listener.is_ok_and(|peer| peer.pid.is_some() && peer.pid == hub.pid());
    let own = hub.listening().map(|_| hub.found.dir.join(CODEX_SOCKET));
    Some(default).filter(|_| has_default).into_iter().chain(own).collect()
}

/// The state of a hub that runs.
struct Status {
    server: Value,
    connections: Value,
    /// Codex has changed since the server started.
    outdated: bool,
    sockets: Vec<PathBuf>,
    /// Why it does not answer.
    fault: Option<String>,
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
            "fault": self.fault,
        });
        format!("{document}\n")
    }

    fn screen(&self, hub: &Hub, arguments: &StatusArguments, environment: &Environment) -> String {
        let (to, clock) = (Screen::of_stdout(environment), Clock::of(&arguments.times));
        let (verdict, tone) = match &self.fault {
            Some(why) => (format!("a hub runs but does not answer: {why}"), Tone::Bad),
            None => ("running".to_owned(), Tone::Good),
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
            let remedy = "`codex-shim hub restart --server` starts the new one".to_owned();
            rows.push(("", format!("codex has changed since; {remedy}")));
        }
        rows.extend(self.sockets.iter().map(|socket| ("socket", socket.display().to_string())));
        let connections = self.connections.as_array().map_or(0, Vec::len) as u64;
        rows.push(("clients", counted(connections, "connection", "connections").unwrap_or_else(|| "none".to_owned())));
        let mut text = format!("{}\n\n", to.paint(tone, &screen::plain(&verdict)));
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
            Column::whole("OVER").spare(),
            Column::whole("SINCE"),
            Column::number("THREADS"),
            Column::number("WAITING").spare(),
        ];
        let row = |connection: &Value| {
            let client = &connection["client"];
            let words = [&client["name"], &client["version"]].map(|word| word.as_str().unwrap_or_default());
            let since = connection["since"].as_str().map(|at| clock.cell(at, to)).unwrap_or_default();
            let waiting = bytesize::ByteSize(connection["waiting_bytes"].as_u64().unwrap_or_default());
            let cells = [
                connection["conn"].to_string(),
                words.join(" ").trim().to_owned(),
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
