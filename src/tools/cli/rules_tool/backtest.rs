//! `codex-shim rules backtest`: compares rules with the answers of people to the requests on record.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde::Serialize;
use serde_json::json;

use super::past::{self, Recorded};
use crate::config::{Environment, Flags, Settings, rules_in};
use crate::engine::{Rule, RuleAction, would_do};

use super::super::requests::print_json;
use super::super::screen::{self, Clock, Screen, Times, Tone, counted};
use super::super::select_session::SessionFlag;
use super::super::since::SinceFlag;
use super::super::table::{Cell, Column, Table};
use super::super::{CliError, Done, FAILED, say, select_session};

#[derive(Debug, Args)]
pub(super) struct BacktestArguments {
    /// Only this rule, alone
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// The rules of this file instead of yours: a proposal, with [[rules]]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    with: Option<PathBuf>,
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

/// How a rule would have done.
#[derive(Debug, Default, Serialize)]
struct RuleResult<'a> {
    name: &'a str,
    action: &'static str,
    /// Requests that it matches before any other rule.
    matched: u64,
    /// Those that it would have answered for certain.
    answers: u64,
    /// Those of which the ledger does not know all that the rule looks at.
    unknown: u64,
    /// Those that a person has answered in the same way.
    same: u64,
    /// Those that a person has answered otherwise.
    otherwise: u64,
}

/// A request that a rule would have answered otherwise than a person.
#[derive(Debug, Serialize)]
struct Otherwise<'a> {
    rule: &'a str,
    action: &'static str,
    /// Whether the rule would have answered it for certain.
    certain: bool,
    at: &'a str,
    session: &'a str,
    request_id: &'a str,
    cwd: Option<&'a str>,
    summary: &'a str,
    /// The answer of the person.
    answer: &'static str,
    by: &'a str,
}

pub(super) fn run(arguments: &BacktestArguments, environment: &Environment) -> Done {
    let rules = rules(arguments, environment)?;
    let sessions = select_session::listed(arguments.session.name(), environment)?;
    let (requests, unread) = past::all(&sessions, arguments.since.get());
    let (results, otherwise) = compared(&rules, &requests);
    unread.iter().for_each(|why| say(why));
    let printed = match arguments.json {
        true => print_json(&json!({"requests": requests.len(), "rules": results, "otherwise": otherwise})),
        false => {
            let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
            screen::print(&as_text(requests.len(), &results, &otherwise, &clock, to))
        }
    };
    Ok(if unread.is_empty() { printed } else { FAILED })
}

fn rules(arguments: &BacktestArguments, environment: &Environment) -> Result<Vec<Rule>, CliError> {
    let mut rules = match &arguments.with {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| CliError::usage(format!("read {}: {error}", file.display())))?;
            rules_in(&text, &file.display().to_string()).map_err(CliError::usage)?
        }
        None => {
            let (settings, complaints) = Settings::load(Flags::default(), environment);
            complaints.iter().filter(|one| one.is_about_rules()).for_each(|complaint| say(&complaint.to_string()));
            settings.rules.value
        }
    };
    if let Some(name) = &arguments.rule {
        let names: Vec<String> = rules.iter().map(|rule| format!("`{}`", rule.name())).collect();
        rules.retain(|rule| rule.name() == name);
        if rules.is_empty() {
            let known = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
            return Err(CliError::usage(format!("no rule is called `{name}`; the rules: {known}")));
        }
    }
    Ok(rules)
}

fn compared<'a>(rules: &'a [Rule], requests: &'a [Recorded]) -> (Vec<RuleResult<'a>>, Vec<Otherwise<'a>>) {
    let result =
        |rule: &'a Rule| RuleResult { name: rule.name(), action: rule.action().name(), ..RuleResult::default() };
    let (mut results, mut otherwise): (Vec<RuleResult<'a>>, _) = (rules.iter().map(result).collect(), Vec::new());
    for request in requests {
        let Some(would) = would_do(rules, &request.past) else { continue };
        let Some(result) = results.iter_mut().find(|result| result.name == would.rule.name()) else { continue };
        let holds = would.rule.action() == RuleAction::Hold;
        result.matched += 1;
        result.answers += u64::from(would.is_certain && !holds);
        result.unknown += u64::from(!would.is_certain);
        match (would.agrees(request.past.answer), request.past.answer) {
            (Some(true), _) => result.same += 1,
            (Some(false), Some(answer)) => {
                result.otherwise += 1;
                otherwise.push(Otherwise {
                    rule: would.rule.name(),
                    action: would.rule.action().name(),
                    certain: would.is_certain,
                    at: &request.past.at,
                    session: &request.session,
                    request_id: &request.request_id,
                    cwd: request.cwd.as_deref(),
                    summary: &request.summary,
                    answer: answer.name(),
                    by: &request.past.by,
                });
            }
            (_, _) => {}
        }
    }
    (results, otherwise)
}

fn as_text(
    requests: usize,
    results: &[RuleResult<'_>],
    otherwise: &[Otherwise<'_>],
    clock: &Clock,
    to: Screen,
) -> String {
    let requests = counted(requests as u64, "request is on record", "requests are on record");
    let Some(requests) = requests else { return "no request is on record in this period\n".to_owned() };
    if results.is_empty() {
        return format!("{requests}; no rules are set: give a proposal with --with FILE\n");
    }
    let columns = vec![
        Column::whole("RULE"),
        Column::whole("ACTION"),
        Column::number("MATCHED"),
        Column::number("ANSWERS"),
        Column::number("UNKNOWN"),
        Column::number("AS YOU"),
        Column::number("OTHERWISE"),
    ];
    let row = |of: &RuleResult<'_>| -> Vec<Cell> {
        let count = |count: u64| (Tone::Plain, count.to_string());
        let tone = if of.otherwise > 0 { Tone::Bad } else { Tone::Plain };
        vec![
            (Tone::Strong, of.name.to_owned()),
            (super::tone(of.action), of.action.to_owned()),
            count(of.matched),
            count(of.answers),
            count(of.unknown),
            count(of.same),
            (tone, of.otherwise.to_string()),
        ]
    };
    let mut text = format!("{requests}\n\n{}", Table::of(columns, results.iter().map(row).collect::<Vec<_>>(), to));
    if results.iter().any(|of| of.unknown > 0) {
        let unknown = "UNKNOWN: the ledger does not have the program's file, the folder's links and the sandbox of the thread, at which the rule looks too.";
        text.push_str(&screen::fitted(&format!("\n{unknown}\n"), screen::columns(to)));
    }
    for of in otherwise {
        let may = if of.certain { "would have" } else { "may have" };
        let done = if of.action == "accept" { "accepted" } else { "declined" };
        let place = of.cwd.map(|cwd| format!(" in {cwd}")).unwrap_or_default();
        let line = format!(
            "rule `{}` {may} {done} it; {} said {}",
            of.rule,
            if of.by.is_empty() { "you" } else { of.by },
            of.answer
        );
        let first = format!("{}  {}{place}", clock.text(of.at), of.summary);
        text.push_str(&format!("\n{}\n    {}\n", screen::plain(&first), to.paint(Tone::Bad, &screen::plain(&line))));
    }
    text
}
