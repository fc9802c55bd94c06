//! The arguments of the history tools.

use clap::Args;

use super::super::clock::Times;
use super::super::complete;
use super::super::numbers::{positive, up_to_200, whole};
use super::super::requests::Common;
use super::super::session_args::{SessionFlag, SessionWord};

/// Print what happened, one event per line
///
/// Each line has the time, the number, the type and the thread of an event, and what matters of it. Events that belong
/// together, such as the pieces of a message, are one. A line says where something is missing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With -f it keeps printing, also after the relay restarts, until you interrupt
it. With --json it prints what `GET /sessions/self/codex-events` returns; with
-f and --json, one event per line.

Exit status: 0, or 1 if events cannot be read, or 3 if there is no such
session.

Examples:
  codex-shim events                            the last 50
  codex-shim events work -f
  codex-shim events -f --type 'item/*' --type turn/completed
  codex-shim events --since 0 --thread latest --json | jq .events")]
pub(in crate::cli) struct EventsArguments {
    #[command(flatten)]
    pub(super) common: Common,
    /// Start after event number N; 0 starts at the first
    #[arg(long, value_name = "N", value_parser = whole)]
    pub(super) since: Option<u64>,
    /// Number of events [default: 50, with -f 10, with --since all]
    #[arg(short = 'n', value_name = "COUNT", value_parser = positive)]
    pub(super) limit: Option<u64>,
    /// Keep printing events as they happen
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Only events of type T; `item/*` matches a beginning; repeatable
    #[arg(long = "type", value_name = "T")]
    pub(super) types: Vec<String>,
    /// Only this thread: its id, a unique beginning of it, or `latest`
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    pub(super) thread: Option<String>,
    #[command(flatten)]
    pub(super) times: Times,
}

/// Print what the agent did last, and how it went
///
/// One line for each command, file change, tool call, approval and question, the newest last.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With -f it prints an action again when its status changes, until you interrupt
it. With --json it prints what `GET /sessions/self/activity-actions` returns;
with -f and --json, one action per line.

Examples:
  codex-shim tail
  codex-shim tail work -n 3 -f
  codex-shim tail --json | jq -r '.actions[] | select(.status == \"failed\")'")]
pub(in crate::cli) struct TailArguments {
    #[command(flatten)]
    pub(super) common: Common,
    /// Number of actions, 1 to 200
    #[arg(short = 'n', value_name = "COUNT", default_value_t = 10, value_parser = up_to_200)]
    pub(super) limit: u64,
    /// Keep printing actions as they happen
    #[arg(short, long)]
    pub(super) follow: bool,
    #[command(flatten)]
    pub(super) times: Times,
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
pub(in crate::cli) struct ChildrenArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Print one JSON document
    #[arg(long = "json")]
    pub(super) as_json: bool,
}

/// Print the conversation and the actions of a thread
///
/// Only finished things, in order: messages, commands and how they ended, file changes, approvals and their answers.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if there is no such thread, or 3 if there is no such
session.

Examples:
  codex-shim transcript
  codex-shim transcript 0192abcd --session work
  codex-shim transcript latest --json | jq -r 'select(.role == \"user\").text'")]
pub(in crate::cli) struct TranscriptArguments {
    /// Thread: its id, or a unique beginning of it
    #[arg(value_name = "THREAD", default_value = "latest", add = complete::threads())]
    pub(super) thread: String,
    #[command(flatten)]
    pub(super) session: SessionFlag,
    /// Print one JSON document per line
    #[arg(long = "json")]
    pub(super) as_json: bool,
    #[command(flatten)]
    pub(super) times: Times,
}
