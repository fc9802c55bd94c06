//! `codex-shim fleet`: the agent of this host, and the tools over the sessions of all hosts.
//!
//! The tools have the words, exit codes and documents of the local ones, with the host in front.

mod agent;
mod answer;
mod check;
mod complete;
mod key;
mod list;
mod tail;
mod talk;
mod usage;
mod views;
mod wait;

use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::screen;
use super::{CliError, Done, FAILED, NO_SUCH_REQUEST, NO_SUCH_SESSION, NOT_RUNNING, USAGE, say};
use crate::config::{Environment, Flags, Settings};
use crate::fleet::{AskError, Client, ClientError, ConnectError, Failure, Host, Member, Question, name_of, text};
pub(super) use views::{session_named, views};

/// Exit status: no such host.
const NO_SUCH_HOST: i32 = 3;

#[derive(Debug, Subcommand)]
pub(super) enum FleetTool {
    Agent(agent::AgentArguments),
    Check(check::CheckArguments),
    Hosts(list::HostsArguments),
    Sessions(list::SessionsArguments),
    Requests(list::RequestsArguments),
    Show(answer::ShowArguments),
    Respond(answer::RespondArguments),
    Send(talk::SendArguments),
    Interrupt(talk::InterruptArguments),
    Tail(tail::TailArguments),
    Usage(usage::UsageArguments),
    Key(key::KeyArguments),
}

pub(super) fn run(tool: FleetTool, environment: &Environment) -> Done {
    match tool {
        FleetTool::Agent(agent) => agent::run(&agent, environment),
        FleetTool::Check(check) => check::run(&check, environment),
        FleetTool::Hosts(hosts) => list::run_hosts(&hosts, environment),
        FleetTool::Sessions(sessions) => list::run_sessions(&sessions, environment),
        FleetTool::Requests(requests) => list::run_requests(&requests, environment),
        FleetTool::Show(show) => answer::run_show(&show, environment),
        FleetTool::Respond(respond) => answer::run_respond(&respond, environment),
        FleetTool::Send(send) => talk::run_send(&send, environment),
        FleetTool::Interrupt(interrupt) => talk::run_interrupt(&interrupt, environment),
        FleetTool::Tail(tail) => tail::run(&tail, environment),
        FleetTool::Usage(usage) => usage::run(&usage, environment),
        FleetTool::Key(key) => key::run(&key),
    }
}

/// How a tool of the fleet prints.
#[derive(Debug, Clone, Args)]
struct Format {
    /// Print one JSON document
    #[arg(long = "json")]
    as_json: bool,
}

/// This machine in the fleet, by the settings.
fn member(environment: &Environment) -> Result<Member, CliError> {
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    for complaint in
        complaints.iter().map(ToString::to_string).filter(|complaint| complaint.to_lowercase().contains("fleet"))
    {
        say(&complaint);
    }
    Member::of(&settings.fleet).map_err(not_connected)
}

fn connect(environment: &Environment) -> Result<Client, CliError> {
    Client::connect(&member(environment)?).map_err(not_read)
}

fn not_connected(error: ConnectError) -> CliError {
    CliError::failed(error.to_string())
}

fn not_read(error: ClientError) -> CliError {
    CliError::failed(error.to_string())
}

/// The host with this name.
fn known(client: &Client, name: &str) -> Result<Host, CliError> {
    let host = client.host(name).map_err(not_read)?;
    complain(client);
    host.ok_or_else(|| {
        let message = format!("no host `{name}` was ever in this fleet");
        exits(NO_SUCH_HOST, message).with_remedy("see `codex-shim fleet hosts`")
    })
}

/// All hosts. The tool reports messages that are not valid.
fn hosts_of(client: &Client) -> Result<Vec<Host>, CliError> {
    let hosts = client.hosts().map_err(not_read);
    complain(client);
    hosts
}

/// Says what was dropped.
fn complain(client: &Client) {
    client.complaints().into_iter().for_each(tell);
}

/// Asks a host; an error says since when it is offline.
fn ask(client: &Client, host: &str, question: &Question) -> Result<Value, CliError> {
    client.ask(host, question).map_err(|error| not_answered(client, host, &error))
}

fn not_answered(client: &Client, host: &str, error: &AskError) -> CliError {
    let AskError::Offline = error else { return failed(host, error) };
    known(client, host).map_or_else(|error| error, |host| offline(&host))
}

/// The host is away.
fn offline(host: &Host) -> CliError {
    exits(NOT_RUNNING, host.offline()).with_remedy("start `codex-shim fleet agent` there")
}

fn failed(host: &str, error: &AskError) -> CliError {
    let (exit, message) = match error {
        AskError::Failed(Failure { code, message, .. }) => (exit_of(code), message.clone()),
        AskError::Offline => (NOT_RUNNING, format!("host {host} is offline")),
        AskError::TooSlow => (FAILED, format!("host {host}: {error}; it may still carry out what was asked")),
        AskError::Refused(_) => {
            (FAILED, format!("host {host}: {error}; `codex-shim fleet check` says what these credentials may do"))
        }
        AskError::Broken(_) => (FAILED, format!("host {host}: {error}")),
    };
    exits(exit, message)
}

/// An error of one line, whatever text of a host is in it.
fn exits(status: i32, message: impl AsRef<str>) -> CliError {
    CliError::exits(status, screen::plain(message.as_ref()))
}

/// Prints a line on stderr, whatever text of a host is in it.
fn tell(message: impl AsRef<str>) {
    say(&screen::plain(message.as_ref()));
}

/// A document of a host.
fn read<T: DeserializeOwned>(host: &str, document: &Value) -> Result<T, CliError> {
    serde_json::from_value(document.clone()).map_err(|error| not_valid(host, &error.to_string()))
}

fn not_valid(host: &str, why: &str) -> CliError {
    failed(host, &AskError::Broken(format!("its reply is not valid: {why}")))
}

fn exit_of(code: &str) -> i32 {
    match code {
        "session_not_found" | "ambiguous_session" => NO_SUCH_SESSION,
        "request_not_found" | "ambiguous_request" => NO_SUCH_REQUEST,
        "session_stopped" => NOT_RUNNING,
        "invalid_response" | "invalid_question" => USAGE,
        _ => FAILED,
    }
}

/// A session or request of a host: `HOST/SESSION`, `HOST/REQUEST` or `HOST/SESSION/REQUEST`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostTarget {
    host: String,
    session: Option<String>,
    last: String,
}

impl std::str::FromStr for HostTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<HostTarget, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (host, session, last) = match parts[..] {
            [host, last] => (host, None, last),
            [host, session, last] => (host, Some(session), last),
            _ => return Err("it must begin with the host, as in HOST/NAME".to_owned()),
        };
        if host.is_empty() || last.is_empty() || session == Some("") {
            return Err("a part of it is empty; it must be as in HOST/NAME".to_owned());
        }
        // The page and the terminal UI write a host like this if its name has other characters than those of a host name.
        let host = name_of(host).unwrap_or_else(|| host.to_owned());
        Ok(HostTarget { host, session: session.map(str::to_owned), last: last.to_owned() })
    }
}

/// A document with the host. The server has passed the question to this host, and what the reply says about that does not count.
fn with_host(host: &str, document: &Value) -> Value {
    let mut members = document.as_object().cloned().unwrap_or_default();
    members.insert("host".to_owned(), Value::from(host));
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_begin_with_their_host() {
        let check = |text: &str, expect: Option<(&str, Option<&str>, &str)>| {
            let target = text.parse::<HostTarget>().ok();
            let found = target.as_ref().map(|target| (&*target.host, target.session.as_deref(), &*target.last));
            assert_eq!(found, expect, "{text}");
        };
        check("h/api", Some(("h", None, "api")));
        check("h/api/0c4e-0", Some(("h", Some("api"), "0c4e-0")));
        check("b.c/api", Some(("b.c", None, "api")));
        check("ä/api", Some(("ä", None, "api")));
        check("~C3~A4/api", Some(("ä", None, "api")));
        for wrong in ["", "h", "h/", "/x", "h//x", "a/b/c/d"] {
            check(wrong, None);
        }
    }

    #[test]
    fn reply_cannot_name_its_host() {
        let document = serde_json::json!({ "host": "other", "ok": true });
        assert_eq!(with_host("h", &document), serde_json::json!({ "host": "h", "ok": true }));
    }

    #[test]
    fn failures_have_exit_codes_of_local_tools() {
        let check = |code: &str, expect: i32| {
            assert_eq!(failed("h", &AskError::Failed(Failure::new(code, "m"))).exit, expect, "{code}");
        };
        check("session_not_found", 3);
        check("request_not_found", 3);
        check("session_stopped", 4);
        check("invalid_response", 2);
        check("request_unavailable", 1);
        assert_eq!(failed("h", &AskError::Offline).exit, 4);
    }
}
