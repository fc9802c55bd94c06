//! `codex-shim fleet send` and `fleet interrupt`: message the model of a host's session, or stop it.

use clap::Args;
use serde_json::Value;

use super::super::requests::print_json;
use super::super::screen;
use super::super::{CliError, Done, NO_SUCH_THREAD};
use super::{Format, Target, connect, not_answered, text, with_host};
use crate::config::Environment;
use crate::fleet::{AskError, Question, VERSION};

/// Send a message to the model of a session on a host
///
/// The message joins the running turn, or starts one.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if the server of the session refused, or a request is
pending, or 2 if the message is empty, or 3 if there is no such host or
session, or 4 if the host is offline or the session is not running.

Examples:
  codex-shim fleet send build-7/work 'now run the tests'
  codex-shim fleet send build-7/work 'go on' --json | jq -r .turn_id")]
pub(in crate::cli) struct SendArguments {
    /// Session: HOST/SESSION
    #[arg(value_name = "SESSION", add = super::complete::sessions())]
    session: Target,
    /// The message
    #[arg(value_name = "TEXT")]
    text: String,
    /// Id of the thread [default: that of the last turn]
    #[arg(long, value_name = "THREAD")]
    thread: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run_send(arguments: &SendArguments, environment: &Environment) -> Done {
    let (host, session) = of_session(&arguments.session)?;
    if arguments.text.trim().is_empty() {
        return Err(CliError::usage("the message is empty"));
    }
    let (message, thread) = (arguments.text.clone(), arguments.thread.clone());
    let question = Question::Send { v: VERSION, session, text: message, thread };
    let turn = called(environment, host, &question, arguments.thread.as_deref())?;
    if arguments.format.as_json {
        return Ok(print_json(&with_host(host, &turn)));
    }
    let what = if turn["steered"] == true { "sent to running turn" } else { "started turn" };
    let line = format!("host {host}: {what} {} in thread {}", text(&turn, "turn_id"), text(&turn, "thread_id"));
    Ok(screen::print(&format!("{}\n", screen::plain(&line))))
}

/// Stop the running turn of a session on a host
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if no turn is running or the server refused, or 3 if there
is no such host or session, or 4 if the host is offline or the session is not
running.

Examples:
  codex-shim fleet interrupt build-7/work")]
pub(in crate::cli) struct InterruptArguments {
    /// Session: HOST/SESSION
    #[arg(value_name = "SESSION", add = super::complete::sessions())]
    session: Target,
    /// Id of the thread [default: that of the last turn]
    #[arg(long, value_name = "THREAD")]
    thread: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run_interrupt(arguments: &InterruptArguments, environment: &Environment) -> Done {
    let (host, session) = of_session(&arguments.session)?;
    let question = Question::Interrupt { v: VERSION, session, thread: arguments.thread.clone() };
    let document = called(environment, host, &question, arguments.thread.as_deref())?;
    if arguments.format.as_json {
        return Ok(print_json(&with_host(host, &document)));
    }
    Ok(screen::print("interrupted\n"))
}

/// The document of a call; `thread` is the one that the user named.
fn called(environment: &Environment, host: &str, question: &Question, thread: Option<&str>) -> Result<Value, CliError> {
    let client = connect(environment)?;
    client.ask(host, question).map_err(|error| match (&error, thread) {
        (AskError::Failed(failure), Some(thread)) if failure.code == "thread_not_found" => {
            let why = format!("host {host}: the server does not know thread `{thread}`");
            CliError::exits(NO_SUCH_THREAD, screen::plain(&why))
        }
        (AskError::Failed(failure), None) if failure.code == "thread_not_found" => {
            CliError::failed(format!("host {host}: no turn has run in this session yet; name a thread with --thread"))
        }
        (AskError::Failed(failure), _) if failure.code == "pending_structured_request" => {
            let remedy = "answer it first; `codex-shim fleet requests` lists it";
            CliError::failed(format!("host {host}: {}", failure.message)).with_remedy(remedy)
        }
        (_, _) => not_answered(&client, host, &error),
    })
}

fn of_session(target: &Target) -> Result<(&str, String), CliError> {
    match target {
        Target { host, session: None, last } => Ok((host, last.clone())),
        Target { .. } => Err(CliError::usage("a session is named by its host and its own name, as in HOST/SESSION")),
    }
}
