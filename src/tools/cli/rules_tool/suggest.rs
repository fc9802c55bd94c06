//! `codex-shim rules suggest`: prints rules that agree with all answers of people so far, and changes nothing.

use clap::Args;
use serde_json::{Value, json};

use super::past;
use crate::config::{Environment, rule_in_file};
use crate::engine::{Does, PastRequest, Suggestion, suggestions};

use super::super::requests::print_json;
use super::super::screen::{self, Clock, Times};
use super::super::select_session::{SessionFlag, positive};
use super::super::since::SinceFlag;
use super::super::{Done, FAILED, say, select_session};

#[derive(Debug, Args)]
pub(super) struct SuggestArguments {
    /// Number of equal answers that a rule needs
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = positive)]
    min: u64,
    #[command(flatten)]
    session: SessionFlag,
    #[command(flatten)]
    since: SinceFlag,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: Times,
}

pub(super) fn run(arguments: &SuggestArguments, environment: &Environment) -> Done {
    let sessions = select_session::listed(arguments.session.name(), environment)?;
    let (requests, unread) = past::all(&sessions, arguments.since.get());
    let requests: Vec<PastRequest> = requests.into_iter().map(|request| request.past).collect();
    let found = suggestions(&requests, usize::try_from(arguments.min).unwrap_or(usize::MAX));
    unread.iter().for_each(|why| say(why));
    let printed = match arguments.json {
        true => print_json(&json!({ "rules": found.iter().map(document).collect::<Vec<_>>() })),
        false => screen::print(&as_file(&found, arguments.min, &Clock::of(&arguments.times))),
    };
    Ok(if unread.is_empty() { printed } else { FAILED })
}

fn document(of: &Suggestion) -> Value {
    json!({
        "name": of.rule.name(), "action": of.rule.action().name(), "toml": rule_in_file(&of.rule), "count": of.count,
        "by": of.by, "first_at": of.first_at, "last_at": of.last_at,
        "runs_files_of_model": risk(of) == Some(Risk::Repository),
    })
}

/// The rules as they stand in `config.toml`, each below what speaks for it.
fn as_file(found: &[Suggestion], min: u64, clock: &Clock) -> String {
    if found.is_empty() {
        return format!("# no request was answered {min} times in the same way and never otherwise\n");
    }
    let rule = |of: &Suggestion| {
        let (done, other) = match of.rule.does() {
            Does::Accept(_) => ("accepted", "declined"),
            Does::Decline { .. } | Does::Hold { .. } => ("declined", "accepted"),
        };
        let times = if of.count == 1 { "once".to_owned() } else { format!("{} times", of.count) };
        let by: Vec<&str> = of.by.iter().map(String::as_str).filter(|by| !by.is_empty()).collect();
        let by = if by.is_empty() { String::new() } else { format!(" by {}", by.join(", ")) };
        let period = format!("{} to {}", clock.text(&of.first_at), clock.text(&of.last_at));
        let evidence = screen::plain(&format!("{done} {times}{by}, {period}; never {other}"));
        let text = rule_in_file(&of.rule);
        match risk(of) {
            Some(Risk::Path) => {
                format!("# {evidence}\n# trust_path: the shell looks the program up on its PATH\n{text}")
            }
            // Nobody should take such a risk by copying a file.
            Some(Risk::Repository) => {
                let commented: String = text.lines().map(|line| format!("# {line}\n")).collect();
                format!(
                    "# {evidence}\n# Off, because it runs what files say that the model may have written:\n{commented}"
                )
            }
            None => format!("# {evidence}\n{text}"),
        }
    };
    found.iter().map(rule).collect::<Vec<_>>().join("\n")
}

/// The greatest danger that the user takes with a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Risk {
    Path,
    Repository,
}

fn risk(of: &Suggestion) -> Option<Risk> {
    let Does::Accept(exact) = of.rule.does() else { return None };
    let trust = exact.trust();
    let repository = trust.repository.then_some(Risk::Repository);
    repository.or_else(|| trust.path.then_some(Risk::Path))
}
