//! `codex-shim fleet hosts`, `sessions` and `requests`.

use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::requests::{HasSession, none, print_json, print_table, which};
use super::super::screen::{self, Clock, Screen, Times, Tone};
use super::super::since::SinceFlag;
use super::super::table::{Column, Table};
use super::super::{CliError, Done, say, sessions_tool};
use super::{Format, ask, complain, connect, failed, hosts_of, known, not_read, tell, text, with_host};
use crate::api::{ListedSession, Request};
use crate::config::Environment;
use crate::control::sort_by_arrival;
use crate::fleet::{AskError, Client, Host, PendingDocument, PendingRow, Question, VERSION, is_cut_off};
use crate::sessions::request_names::ShortNames;

/// List the hosts of the fleet
///
/// A host is online if its agent has written to the server within the last 30 seconds.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim fleet hosts
  codex-shim fleet hosts --json | jq -r '.hosts[] | select(.online).host'")]
pub(in crate::cli) struct HostsArguments {
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    times: Times,
}

pub(super) fn run_hosts(arguments: &HostsArguments, environment: &Environment) -> Done {
    let hosts = hosts_of(&connect(environment)?)?;
    for host in hosts.iter().filter(|host| host.is_online && host.document.others) {
        tell(format!(
            "two agents run as host {}, and only one of them ships and answers; give one another name with fleet.host",
            host.name()
        ));
    }
    if arguments.format.as_json {
        let document = |host: &Host| {
            let mut document = json!(host.document);
            document["online"] = json!(host.is_online);
            document["seen_at"] = json!(host.seen_at);
            document
        };
        return Ok(print_json(&json!({ "hosts": hosts.iter().map(document).collect::<Vec<_>>() })));
    }
    if hosts.is_empty() {
        say("no hosts yet; start `codex-shim fleet agent` on each");
    }
    let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    Ok(screen::print(&hosts_table(&hosts, &clock, to, screen::columns(to))))
}

fn hosts_table(hosts: &[Host], clock: &Clock, to: Screen, columns_max: Option<usize>) -> String {
    let columns = vec![
        Column::whole("HOST"),
        Column::whole("STATE"),
        Column::number("SESSIONS"),
        Column::number("PENDING"),
        Column::whole(clock.head("SEEN")).spare(),
        Column::whole("LEVEL").spare(),
        Column::whole("VERSION").spare(),
    ];
    let cells = |host: &Host| {
        let (state, tone) = match (host.is_online, host.document.others) {
            (true, true) => ("two agents", Tone::Bad),
            (true, false) => ("online", Tone::Good),
            (false, _) => ("offline", Tone::Bad),
        };
        vec![
            (Tone::Strong, host.document.host.clone()),
            (tone, state.to_owned()),
            (Tone::Plain, host.document.sessions.to_string()),
            (if host.document.pending > 0 { Tone::Warning } else { Tone::Plain }, host.document.pending.to_string()),
            (Tone::Faint, clock.cell(&host.seen_at, to)),
            (Tone::Faint, host.document.level.clone()),
            (Tone::Faint, host.document.version.clone()),
        ]
    };
    Table::within(columns, to, columns_max).add(hosts.iter().map(cells).collect())
}

/// List the sessions of all hosts
#[derive(Debug, Args)]
#[command(after_long_help = "\
With HOST it lists those of one host. A host that does not answer is named on
stderr and hides no other.

Exit status: 0, or 1 if a host that is online has not answered, or 3 if there
is no such host, or 4 if HOST is offline.

Examples:
  codex-shim fleet sessions
  codex-shim fleet sessions build-7
  codex-shim fleet sessions --json | jq '.sessions[] | select(.live)'")]
pub(in crate::cli) struct SessionsArguments {
    /// Only those of this host
    #[arg(value_name = "HOST", add = super::complete::hosts())]
    host: Option<String>,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    times: Times,
}

pub(super) fn run_sessions(arguments: &SessionsArguments, environment: &Environment) -> Done {
    let client = connect(environment)?;
    let question = Question::Sessions { v: VERSION };
    let (rows, status) = rows_of(&client, arguments.host.as_deref(), &question, "sessions")?;
    if arguments.format.as_json {
        return Ok(status.max(print_json(&json!({ "sessions": rows }))));
    }
    let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    let mut columns = sessions_tool::columns(&clock);
    columns.insert(0, Column::whole("HOST"));
    let cells = |row: &Value| {
        let mut cells = sessions_tool::cells_of(&ListedSession::deserialize(row).ok()?, &clock, to);
        cells.insert(0, (Tone::Strong, text(row, "host").to_owned()));
        Some(cells)
    };
    Ok(status.max(screen::print(&Table::of(columns, rows.iter().filter_map(cells).collect(), to))))
}

/// The rows of all online hosts or of one, each with its host, and the exit status.
pub(super) fn rows_of(
    client: &Client,
    host: Option<&str>,
    question: &Question,
    member: &str,
) -> Result<(Vec<Value>, i32), CliError> {
    let rows = |host: &str, document: &Value| {
        let rows =
            document[member].as_array().into_iter().flatten().map(|row| with_host(host, row)).collect::<Vec<_>>();
        for problem in document["problems"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            tell(format!("host {host}: {problem}"));
        }
        if is_cut_off(document) {
            tell(format!("host {host} has more than fits into a reply; use the tools there"));
        }
        rows
    };
    if let Some(host) = host {
        return Ok((rows(host, &ask(client, host, question)?), 0));
    }
    let hosts = hosts_of(client)?;
    if hosts.is_empty() {
        say("no hosts yet; start `codex-shim fleet agent` on each");
    }
    for host in hosts.iter().filter(|host| !host.is_online) {
        tell(host.offline());
    }
    let online: Vec<String> = hosts.into_iter().filter(|host| host.is_online).map(|host| host.document.host).collect();
    let (mut all, mut worst) = (Vec::new(), 0);
    for (host, answered) in online.iter().zip(client.ask_all(&online, question)) {
        match answered {
            Ok(document) => all.extend(rows(host, &document)),
            // Its agent has ended less than 30 s ago.
            Err(AskError::Offline) => say(&screen::plain(&format!("host {host} has just gone offline"))),
            Err(error) => worst = worst.max(failed(host, &error).report()),
        }
    }
    Ok((all, worst))
}

/// List the requests that wait for an answer, on all hosts
///
/// Oldest first. `fleet show` and `fleet respond` take the name in the column REQUEST from anywhere.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With --all it asks each host for every request of its live sessions, answered
ones too.

Examples:
  codex-shim fleet requests
  codex-shim fleet requests build-7
  codex-shim fleet requests --all --since 1d
  codex-shim fleet requests --json | jq -r '.requests[] | .name, .summary'")]
pub(in crate::cli) struct RequestsArguments {
    /// Only those of this host
    #[arg(value_name = "HOST", add = super::complete::hosts())]
    host: Option<String>,
    /// Every stored request of live sessions, whatever its status
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    since: SinceFlag,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    times: Times,
}

pub(super) fn run_requests(arguments: &RequestsArguments, environment: &Environment) -> Done {
    let (which, is_recent) = which(arguments.all, &arguments.since)?;
    let client = connect(environment)?;
    let host = arguments.host.as_deref();
    let (mut rows, status) = match arguments.all {
        true => rows_of(&client, host, &Question::Requests { v: VERSION, all: true, session: None }, "requests")?,
        false => (pending_rows(&client, host)?, 0),
    };
    rows.retain(|row| is_recent(text(row, "requested_at")));
    let session = |row: &Value| (text(row, "host").to_owned(), text(&row["session"], "session_id").to_owned());
    sort_by_arrival(&mut rows, session, |row| text(row, "requested_at").to_owned());
    name_all(&mut rows);
    if arguments.format.as_json {
        return Ok(status.max(print_json(&json!({ "requests": rows }))));
    }
    let rows: Vec<Request> = rows.iter().filter_map(|row| Request::deserialize(row).ok()).collect();
    let nothing = |_| none(which).to_owned();
    Ok(status.max(print_table(lines(&rows), which, HasSession::Yes, &arguments.times, environment, nothing)))
}

/// The requests with their names and sessions.
fn lines(rows: &[Request]) -> Vec<(&str, &str, &Request)> {
    fn place(row: &Request) -> &str {
        row.session.as_ref().map(|session| &*session.name).unwrap_or_default()
    }
    rows.iter().map(|row| (row.name.as_deref().unwrap_or_default(), place(row), row)).collect()
}

/// The pending requests of the hosts that are online, from their descriptions.
fn pending_rows(client: &Client, host: Option<&str>) -> Result<Vec<Value>, CliError> {
    let hosts = hosts_of(client)?;
    if let Some(named) = host {
        let host = known(client, named)?;
        if !host.is_online {
            return Err(super::offline(&host));
        }
    }
    let mut rows = Vec::new();
    let pending = client.pending().map_err(not_read)?;
    complain(client);
    for PendingDocument { host: of, requests, more, .. } in pending {
        let is_online = hosts.iter().any(|host| host.document.host == of && host.is_online);
        if host.is_some_and(|host| host != of) {
            continue;
        }
        if !is_online {
            if !requests.is_empty() {
                tell(format!("host {of} is offline; its requests are not listed"));
            }
            continue;
        }
        if more > 0 {
            tell(format!("host {of} has {more} more requests that are pending"));
        }
        rows.extend(requests.iter().map(|row| pending_row(&of, row)));
    }
    Ok(rows)
}

/// A row with the members of `codex-shim requests --json`, as far as a description has them.
fn pending_row(host: &str, row: &PendingRow) -> Value {
    let mut document = with_host(host, &json!(row));
    document["status"] = json!("pending");
    document["session"] = json!({ "session_id": row.session_id, "name": row.session_name, "live": true });
    document
}

/// Gives each request a name that the other tools take.
fn name_all(rows: &mut [Value]) {
    let ids: Vec<String> = rows.iter().map(|row| text(row, "request_id").to_owned()).collect();
    let names = ShortNames::among(ids.iter().map(String::as_str));
    for (row, id) in rows.iter_mut().zip(&ids) {
        row["name"] = json!(format!("{}/{}", text(row, "host"), names.of(id)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::requests::table;
    use super::*;
    use crate::api::WhichRequests;

    fn rows() -> Vec<Request> {
        let row = |host: &str, id: &str, summary: &str| {
            let row = PendingRow {
                session_id: "s".to_owned(),
                session_name: "work".to_owned(),
                request_id: format!("6b02d1a90c4e-{id}"),
                request_method: "item/commandExecution/requestApproval".to_owned(),
                request_type: json!("approval"),
                thread_id: None,
                requested_at: "2026-01-02T03:03:05.000Z".to_owned(),
                expires_at: None,
                summary: summary.to_owned(),
            };
            pending_row(host, &row)
        };
        let mut rows = vec![row("build-7", "0", "run make"), row("build-8", "1", "run ls")];
        name_all(&mut rows);
        rows.into_iter().map(Request::from).collect()
    }

    #[test]
    fn requests_name_their_host() {
        let clock = Clock::stopped("2026-01-02T03:04:07Z");
        let shown =
            |which, to, columns_max| table(lines(&rows()).into_iter(), which, HasSession::Yes, &clock, to, columns_max);
        let expect = "1m 2s  build-7/0c4e-0  work  command  run make\n1m 2s  build-8/0c4e-1  work  command  run ls\n";
        assert_eq!(shown(WhichRequests::Pending, Screen::None, None), expect);
        let narrow = shown(WhichRequests::All, Screen::Plain, Some(40));
        assert!(narrow.contains("build-7/0c4e-0") && narrow.contains("pending"), "{narrow}");
    }
}
