//! `codex-shim fleet send` and `fleet interrupt`: message the model of a host's session, or stop it.

use std::time::{Instant, SystemTime};

use clap::Args;
use serde_json::Value;

use super::super::requests::{WaitFlags, print_json};
use super::super::screen;
use super::super::{CliError, Done, NO_SUCH_THREAD};
use super::views::named_among;
use super::wait::Before;
use super::{Format, HostTarget, ask, connect, exits, not_answered, text, with_host};
use crate::config::Environment;
use crate::fleet::{AskError, Client, Question, VERSION, found, front, session_rows};

/// Send a message to the model of a session on a host
///
/// The message joins the running turn, or starts one. With --wait, the end of the turn comes from the stored events. A host with
/// `fleet.level = "summary"` sends no texts, so the model's last message can then be read on the host only.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  the server accepted the message; with --wait: the turn completed
  1  it did not, or a request is pending; with --wait also: the turn failed,
     was interrupted, --timeout passed, or its end is not known
  2  the message is empty
  3  no such host, thread or session
  4  the host is offline, or the session is not running; with --wait also: a
     hub, or what may be one, has ended, and the turn may go on in its server

Examples:
  codex-shim fleet send build-7/work 'now run the tests'
  codex-shim fleet send build-7/work --wait 'summarize the diff' > summary.txt
  codex-shim fleet send build-7/work 'go on' --json | jq -r .turn_id")]
pub(in crate::cli) struct SendArguments {
    /// Session: HOST/SESSION
    #[arg(value_name = "SESSION", add = super::complete::sessions())]
    session: HostTarget,
    /// The message
    #[arg(value_name = "TEXT")]
    text: String,
    /// Id of the thread [default: that of the last turn]
    #[arg(long, value_name = "THREAD")]
    thread: Option<String>,
    #[command(flatten)]
    waiting: WaitFlags,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run_send(arguments: &SendArguments, environment: &Environment) -> Done {
    let (host, session) = of_session(&arguments.session)?;
    if arguments.text.trim().is_empty() {
        return Err(CliError::usage("the message is empty"));
    }
    let began = Instant::now();
    let client = connect(environment)?;
    // The subject of its events has the whole id of a session.
    let named = if arguments.waiting.is_on { Some(named(&client, host, &session)?) } else { None };
    let (session, since) = named.map_or((session, None), |(id, since)| (id, Some(since)));
    let before = since.map(|since| Before::read(&client, host, &session, since)).transpose()?;
    let (message, thread) = (arguments.text.clone(), arguments.thread.clone());
    let question = Question::Send { v: VERSION, session: session.clone(), text: message, thread };
    let turn = called(&client, host, &question, arguments.thread.as_deref())?;
    if let Some(before) = before {
        return before.wait(&turn, || arguments.waiting.left(began), arguments.format.as_json);
    }
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
    session: HostTarget,
    /// Id of the thread [default: that of the last turn]
    #[arg(long, value_name = "THREAD")]
    thread: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run_interrupt(arguments: &InterruptArguments, environment: &Environment) -> Done {
    let (host, session) = of_session(&arguments.session)?;
    let question = Question::Interrupt { v: VERSION, session, thread: arguments.thread.clone() };
    let client = connect(environment)?;
    let document = called(&client, host, &question, arguments.thread.as_deref())?;
    if arguments.format.as_json {
        return Ok(print_json(&with_host(host, &document)));
    }
    Ok(screen::print("interrupted\n"))
}

/// The document of a call; `thread` is the one that the user named.
fn called(client: &Client, host: &str, question: &Question, thread: Option<&str>) -> Result<Value, CliError> {
    client.ask(host, question).map_err(|error| match (&error, thread) {
        (AskError::Failed(failure), Some(thread)) if failure.code == "thread_not_found" => {
            exits(NO_SUCH_THREAD, format!("host {host}: the server does not know thread `{thread}`"))
        }
        (AskError::Failed(failure), None) if failure.code == "thread_not_found" => {
            CliError::failed(format!("host {host}: no turn has run in this session yet; name a thread with --thread"))
        }
        (AskError::Failed(failure), _) if failure.code == "pending_structured_request" => {
            let remedy = "answer it first; `codex-shim fleet requests` lists it";
            CliError::failed(format!("host {host}: {}", failure.message)).with_remedy(remedy)
        }
        (_, _) => not_answered(client, host, &error),
    })
}

/// The id of the session that the user names, and since when it runs.
fn named(client: &Client, host: &str, name: &str) -> Result<(String, SystemTime), CliError> {
    let document = ask(client, host, &Question::Sessions { v: VERSION })?;
    let all: Vec<_> = session_rows(&document).iter().map(|row| found(host, row)).collect();
    let session = named_among(all, &format!("{}/{name}", front(host)))?;
    let (_, own) = session.id.split_once('/').unwrap_or_default();
    Ok((own.to_owned(), session.last_used))
}

fn of_session(target: &HostTarget) -> Result<(&str, String), CliError> {
    match target {
        HostTarget { host, session: None, last } => Ok((host, last.clone())),
        HostTarget { .. } => {
            Err(CliError::usage("a session is named by its host and its own name, as in HOST/SESSION"))
        }
    }
}
