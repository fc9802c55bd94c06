//! The arguments of the request tools.

use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use super::super::clock::Times;
use super::super::complete;
use super::super::session_args::{SessionFlag, SessionWord};
use crate::config::parse_duration;
use crate::control::answer::argument;
use crate::engine::Word;

/// The session and the output format, for tools whose first word is the session.
#[derive(Debug, Args)]
pub(in crate::cli) struct Common {
    #[command(flatten)]
    pub(in crate::cli) session: SessionWord,
    /// Print one JSON document
    #[arg(long = "json")]
    pub(in crate::cli) as_json: bool,
}

/// List the requests that are waiting for your answer
///
/// Oldest first: how long a request has been waiting, its name, its kind, and what it is about.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim requests
  codex-shim requests work
  codex-shim requests --all              answered ones too: by whom and when
  codex-shim requests --json | jq -r '.requests[].request_id'")]
pub(in crate::cli) struct RequestsArguments {
    #[command(flatten)]
    pub(in crate::cli) common: Common,
    /// Every stored request, whatever its status
    #[arg(long)]
    pub(in crate::cli) all: bool,
    #[command(flatten)]
    pub(in crate::cli) times: Times,
}

/// Show a request in full, and what became of it
///
/// The command and its folder, the file changes with their diffs, or the questions with their options; then who answered what
/// and when. With --json it prints what `GET /sessions/self/codex-requests/ID` returns.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A request is named by its id, by a unique beginning of it, by the part after
the `-` (`0` for `6b02d1a90c4e-0`), or by `latest`: the newest that waits.

Exit status: 0, or 3 if there is no such request or session.

Examples:
  codex-shim show
  codex-shim show 0
  codex-shim show 6b02d1a90c4e-0 --json | jq .answers")]
pub(in crate::cli) struct ShowRequestArguments {
    /// Request: its id, a unique beginning of it, or its number
    #[arg(value_name = "REQUEST", default_value = "latest", add = complete::requests())]
    pub(in crate::cli) request: String,
    #[command(flatten)]
    pub(in crate::cli) session: SessionFlag,
    /// Print one JSON document
    #[arg(long = "json")]
    pub(in crate::cli) as_json: bool,
    #[command(flatten)]
    pub(in crate::cli) times: Times,
}

impl ValueEnum for Word {
    fn value_variants<'a>() -> &'a [Word] {
        &[Word::Accept, Word::AcceptForSession, Word::Decline, Word::Cancel]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Word::Accept => "Allow it once",
            Word::AcceptForSession => "Allow it, and the same again in this session",
            Word::Decline => "Refuse it; the turn goes on",
            Word::Cancel => "Refuse it, and end the turn",
        };
        Some(PossibleValue::new(argument(*self)).help(help))
    }
}

/// Answer a request
///
/// The first answer wins, here or at the client; the output says whose it was. Without an answer on the command line it shows
/// the request and asks, if there is a terminal.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Decisions:
  accept               allow it once
  accept-for-session   allow it, and the same again in this session
  decline              refuse it; the turn goes on
  cancel               refuse it, and end the turn

Exit status:
  0  your answer won, or an identical one
  1  another answer won, or the relay refused yours
  2  not a valid answer to this request
  3  no such request or session
  4  the session is not running

Examples:
  codex-shim respond latest                     show it, and ask
  codex-shim respond 0 accept
  codex-shim respond 0 decline --reason 'use the staging database'
  codex-shim respond 2 --answer color=Red --answer size=L
  codex-shim respond 0 accept --json | jq -r .request.resolved_by
  codex-shim respond 0 --json '{\"decision\":\"acceptForSession\"}'")]
pub(in crate::cli) struct RespondArguments {
    /// Request: its id, a unique beginning of it, its number, or `latest`
    #[arg(value_name = "REQUEST", add = complete::requests())]
    pub(in crate::cli) request: String,
    /// accept, accept-for-session, decline or cancel
    #[arg(value_name = "DECISION", value_enum, hide_possible_values = true)]
    pub(in crate::cli) word: Option<Word>,
    /// Reason to tell the model; with decline and cancel
    #[arg(long, value_name = "TEXT", requires = "word", allow_hyphen_values = true)]
    pub(in crate::cli) reason: Option<String>,
    /// Answer to a question, or value of a field of a form; repeatable
    #[arg(long = "answer", value_name = "ID=TEXT", value_parser = parse_answer, conflicts_with = "word")]
    pub(in crate::cli) answers: Vec<(String, String)>,
    /// Print JSON; with a value, send it as the whole answer
    #[arg(long = "json", value_name = "JSON", num_args = 0..=1)]
    pub(in crate::cli) json: Option<Option<String>>,
    #[command(flatten)]
    pub(in crate::cli) session: SessionFlag,
    #[command(flatten)]
    pub(in crate::cli) times: Times,
}

fn parse_answer(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((id, answer)) if !id.is_empty() => Ok((id.to_owned(), answer.to_owned())),
        Some(_) | None => Err("it must be ID=TEXT; `codex-shim show REQUEST` lists the ids".to_owned()),
    }
}

/// Send a message to the model
///
/// The message joins the running turn, or starts one. The client sees it as if it came from elsewhere. If a request is pending
/// in the thread, nothing is sent: answer the request first.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status:
  0  the server accepted the message; with --wait: the turn completed
  1  it did not, or a request is pending; with --wait also: the turn failed,
     was interrupted, or --timeout passed
  2  the message is empty
  3  no such thread or session
  4  the session is not running

Examples:
  codex-shim send 'now run the tests'
  codex-shim send --wait 'summarize the diff' > summary.txt
  codex-shim send --new --wait --timeout 10m 'fix the build'
  git diff | codex-shim send - --json | jq -r .turn_id")]
pub(in crate::cli) struct SendArguments {
    /// The message; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    pub(in crate::cli) text: String,
    /// Thread: its id, a beginning, or `latest` [default: that of the last turn]
    #[arg(long, value_name = "THREAD", conflicts_with = "is_new", add = complete::threads())]
    pub(in crate::cli) thread: Option<String>,
    /// Start a new thread for the message
    #[arg(long = "new")]
    pub(in crate::cli) is_new: bool,
    /// Wait until the turn has ended, and print the model's last message
    #[arg(long)]
    pub(in crate::cli) wait: bool,
    /// Longest time to wait, such as 90s or 10m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "wait")]
    pub(in crate::cli) timeout: Option<Duration>,
    #[command(flatten)]
    pub(in crate::cli) session: SessionFlag,
    /// Print one JSON document
    #[arg(long = "json")]
    pub(in crate::cli) as_json: bool,
}

/// Stop the running turn
///
/// A request that is pending in it is withdrawn by the server.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if no turn is running or the server refused, or 4 if the
session is not running.

Examples:
  codex-shim interrupt
  codex-shim interrupt work --thread latest")]
pub(in crate::cli) struct InterruptArguments {
    #[command(flatten)]
    pub(in crate::cli) common: Common,
    /// Thread: its id, a beginning, or `latest` [default: that of the last turn]
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    pub(in crate::cli) thread: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Goal {
    /// No turn is running, and no request is pending
    Idle,
    /// A request is pending
    Pending,
}

/// Wait until a request is pending or the session is idle
#[derive(Debug, Args)]
#[command(after_long_help = "\
A session is idle if no turn is running and no request is pending.

Exit status: 0, or 1 after --timeout, or 4 if the session is not running or
ends.

Examples:
  codex-shim wait --for pending && codex-shim show latest
  codex-shim wait work --for idle --timeout 10m")]
pub(in crate::cli) struct WaitArguments {
    #[command(flatten)]
    pub(in crate::cli) common: Common,
    /// Condition: a pending request, or an idle session
    #[arg(long = "for", value_name = "WHAT", value_enum)]
    pub(in crate::cli) goal: Goal,
    /// Longest time to wait, such as 90s or 10m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(in crate::cli) timeout: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_name_their_question() {
        let check = |text: &str, expect: Option<(&str, &str)>| {
            let expect = expect.map(|(id, answer)| (id.to_owned(), answer.to_owned()));
            assert_eq!(parse_answer(text).ok(), expect, "{text}");
        };
        check("a=b", Some(("a", "b")));
        check("a=b=c", Some(("a", "b=c")));
        check("a=", Some(("a", "")));
        check("=b", None);
        check("a", None);
    }
}
