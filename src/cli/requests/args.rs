//! The arguments of the tools for requests.

use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use crate::config::parse_duration;
use crate::control::answer::Word;

/// Which session, and in what form it is told: the same for each of these tools.
#[derive(Debug, Args)]
pub(in crate::cli) struct Common {
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(in crate::cli) session: Option<String>,
    /// Print one JSON document
    #[arg(long = "json")]
    pub(in crate::cli) as_json: bool,
}

/// List what waits for an answer of yours
///
/// One line each, oldest first: how long it has waited, its name, what it is, and what it is about. Of a session that has
/// stopped, what its ledger says.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim requests
  codex-shim requests --all                     answered ones too, with who answered and when
  codex-shim requests --json | jq -r '.requests[].request_id'")]
pub(in crate::cli) struct RequestsArguments {
    /// Every request that is kept, whatever became of it
    #[arg(long)]
    pub(in crate::cli) all: bool,
    #[command(flatten)]
    pub(in crate::cli) common: Common,
}

/// Show a request whole, and what became of it
///
/// The command and where it runs, the changes with their diffs, the questions with their options; then who answered what
/// and when. With --json, the document of `GET /sessions/self/codex-requests/ID`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A request is named by its id, by a beginning of it that no other has, by what stands behind the generation in it (`0` for
`6b02d1a90c4e-0`), or by `latest`, the newest that waits.

Examples:
  codex-shim show latest
  codex-shim show 0
  codex-shim show 6b02d1a90c4e-0 --json | jq .answers")]
pub(in crate::cli) struct ShowRequestArguments {
    /// Its id, a unique beginning of it, what stands behind the generation, or `latest`
    #[arg(value_name = "REQUEST")]
    pub(in crate::cli) request: String,
    #[command(flatten)]
    pub(in crate::cli) common: Common,
}

impl ValueEnum for Word {
    fn value_variants<'a>() -> &'a [Word] {
        &[Word::Accept, Word::AcceptForSession, Word::Decline, Word::Cancel]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Word::Accept => PossibleValue::new("accept").help("Yes, this once"),
            Word::AcceptForSession => {
                PossibleValue::new("accept-for-session").help("Yes, and the same again in this session without asking")
            }
            Word::Decline => PossibleValue::new("decline").help("No; the model goes on without"),
            Word::Cancel => PossibleValue::new("cancel").help("No, and the turn ends"),
        })
    }
}

/// Answer a request
///
/// The first answer wins, whoever gives it: you here, or whoever sits at the client. What is printed says which it was. Told
/// only which request, it shows it and asks, where there is a terminal.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0 your answer is the one that holds, 1 another one does or it was refused, 2 it cannot be an answer to this
request, 3 there is no such request, 4 no relay runs.

Examples:
  codex-shim respond latest                               shows it and asks
  codex-shim respond 0 accept
  codex-shim respond 0 decline --reason 'use the staging database'
  codex-shim respond 2 --answer color=Red --answer size=L
  codex-shim respond 0 accept --json | jq -r .request.resolved_by
  codex-shim respond 0 --json '{\"decision\":\"acceptForSession\"}'")]
pub(in crate::cli) struct RespondArguments {
    /// Its id, a unique beginning of it, what stands behind the generation, or `latest`
    #[arg(value_name = "REQUEST")]
    pub(in crate::cli) request: String,
    /// The decision
    #[arg(value_name = "DECISION", value_enum)]
    pub(in crate::cli) word: Option<Word>,
    /// Why not, for the model to know; with decline and cancel
    #[arg(long, value_name = "TEXT", requires = "word", allow_hyphen_values = true)]
    pub(in crate::cli) reason: Option<String>,
    /// The answer to one question, or one field that an elicitation asks for; can be given again
    #[arg(long = "answer", value_name = "ID=TEXT", value_parser = parse_answer, conflicts_with = "word")]
    pub(in crate::cli) answers: Vec<(String, String)>,
    /// The answer as the control socket takes it; with or without one, print one JSON document
    #[arg(long = "json", value_name = "JSON", num_args = 0..=1)]
    pub(in crate::cli) json: Option<Option<String>>,
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(in crate::cli) session: Option<String>,
}

fn parse_answer(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((id, answer)) if !id.is_empty() => Ok((id.to_owned(), answer.to_owned())),
        Some(_) | None => Err("an answer is ID=TEXT; `codex-shim show REQUEST` lists the ids".to_owned()),
    }
}

/// Send a message to the model
///
/// The message joins the running turn, or starts one. The client sees it as if it came from elsewhere. While a request is
/// pending in the thread nothing is sent: answer the request first.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0 the server accepted the message (with --wait: the turn completed), 1 it did not, or a request is pending
(with --wait also: the turn failed, was interrupted, or --timeout passed), 4 no relay runs.

Examples:
  codex-shim send 'now run the tests'
  codex-shim send --wait 'summarize the diff' > summary.txt
  codex-shim send --new --wait --timeout 10m 'fix the build'
  git diff | codex-shim send - --json | jq -r .turn_id")]
pub(in crate::cli) struct SendArguments {
    /// The message; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    pub(in crate::cli) text: String,
    /// The thread: its id, a unique beginning of it, or `latest` [default: that of the last turn]
    #[arg(long, value_name = "THREAD", conflicts_with = "is_new")]
    pub(in crate::cli) thread: Option<String>,
    /// Start a new thread for the message
    #[arg(long = "new")]
    pub(in crate::cli) is_new: bool,
    /// Wait until the turn has ended, and print the model's last message
    #[arg(long)]
    pub(in crate::cli) wait: bool,
    /// Longest time to wait for the end of the turn, such as 90s or 10m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "wait")]
    pub(in crate::cli) timeout: Option<Duration>,
    #[command(flatten)]
    pub(in crate::cli) common: Common,
}

/// Stop the turn that runs
///
/// Also while a request waits in it; that is then withdrawn by the server.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0 it was interrupted, 1 no turn runs or the server refused, 4 no relay runs.

Examples:
  codex-shim interrupt
  codex-shim interrupt --thread 0192…")]
pub(in crate::cli) struct InterruptArguments {
    /// The thread: its id, a unique beginning of it, or `latest` [default: that of the last turn]
    #[arg(long, value_name = "THREAD")]
    pub(in crate::cli) thread: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) common: Common,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Goal {
    /// No turn runs, and no request waits
    Idle,
    /// A request waits
    Pending,
}

/// Wait until something is to be answered, or nothing is to be done
///
/// A session is idle while its server runs, no turn does, and no request waits.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0 it has come, 1 the time is over, 4 no relay runs, or it has ended.

Examples:
  codex-shim wait --for pending && codex-shim show latest
  codex-shim wait --for idle --timeout 10m")]
pub(in crate::cli) struct WaitArguments {
    /// For what
    #[arg(long = "for", value_name = "WHAT", value_enum)]
    pub(in crate::cli) goal: Goal,
    /// How long at most, and up to a second more where the relay does not answer; without it, for ever
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(in crate::cli) timeout: Option<Duration>,
    #[command(flatten)]
    pub(in crate::cli) common: Common,
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
