//! The arguments of the tools for the history.

use clap::Args;

use super::super::requests::Common;

/// Print what happened, event by event
///
/// One line each: when, its number, what, in which thread, and what matters of it. Events that belong together, such as the
/// pieces of an answer, are one. Whatever is missing is said where it is missing. Of a session that has stopped, what is
/// left is indexed first.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With -f it goes on with what happens, also beyond a restart of the relay, until it is interrupted.
With --json: one document as `GET /sessions/self/codex-events` gives it; with -f, one event a line, as the stream gives them.
Lines that are missing (`event_gap`) are told whatever --type and --thread say.

Exit status: 0 it could be told, 1 it could not, 3 there is no such session.

Examples:
  codex-shim events                                     the last 50
  codex-shim events -f --type 'item/*' --type turn/completed
  codex-shim events --since 0 --thread 0192abcd --json | jq -r '.events[].event_type'")]
pub(in crate::cli) struct EventsArguments {
    /// Begin behind the event of this number; 0 is the beginning
    #[arg(long, value_name = "N")]
    pub(super) since: Option<u64>,
    /// The last so many; without it 50, with -f 10. With --since the first so many, and all without it
    #[arg(short = 'n', value_name = "LIMIT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: Option<u64>,
    /// Go on with what happens
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Only events of this type, or whose type begins so: `item/*`; can be given again
    #[arg(long = "type", value_name = "T")]
    pub(super) types: Vec<String>,
    /// Only of the thread whose id begins so
    #[arg(long, value_name = "THREAD")]
    pub(super) thread: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Print what was done last
///
/// One line for each command, change of files, call of a tool, approval and question, in the state that it is in now; what
/// was done last comes last.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With -f each is printed again when its state changes, until it is interrupted.
With --json: one document as `GET /sessions/self/activity-actions` gives it; with -f, one action a line.

Examples:
  codex-shim tail
  codex-shim tail -n 3 -f
  codex-shim tail --json | jq -r '.actions[] | select(.status == \"failed\") | .summary_text'")]
pub(in crate::cli) struct TailArguments {
    /// How many
    #[arg(short = 'n', value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=200))]
    pub(super) limit: u64,
    /// Go on with what is done
    #[arg(short, long)]
    pub(super) follow: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// List all sessions with what they do
///
/// One line each, those that wait for you first, then live ones: name, state, for how long, what was done last, and what it
/// waits for.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim children
  codex-shim children --json | jq -r '.children[] | select(.pending_requests > 0) | .session_id'")]
pub(in crate::cli) struct ChildrenArguments {
    /// Only this session, or the one whose name begins so
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Print one JSON document
    #[arg(long = "json")]
    pub(super) as_json: bool,
}

/// Print what was said and done in a thread
///
/// Finished things only, in their order: what the user and the model said, commands with how they ended, how much was
/// changed, what was asked and answered.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0 it could be told, 1 it could not, or there is no such thread, 3 there is no such session.

Examples:
  codex-shim transcript latest
  codex-shim transcript 0192abcd --session work
  codex-shim transcript latest --json | jq -r 'select(.role == \"assistant\") | .text'")]
pub(in crate::cli) struct TranscriptArguments {
    /// The thread, a beginning of its id that no other has, or `latest`: that which spoke last
    #[arg(value_name = "THREAD")]
    pub(super) thread: String,
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Print one JSON document a line: the entries as they are kept
    #[arg(long = "json")]
    pub(super) as_json: bool,
}
