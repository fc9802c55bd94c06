//! `codex-shim rules`: the rules of the settings, how often each has decided, and what they would do with a command or a
//! request. Nothing is decided here.

mod backtest;
mod past;
mod suggest;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;
use serde_json::json;

use super::requests::{named, print_json};
use super::screen::{self, Clock, Screen, Times, Tone};
use super::since::{Since, SinceFlag};
use super::table::{Cell, Column, Table};
use super::{CliError, Done, FAILED};
use super::{complete, say, select_session};
use crate::api::RequestDocument;
use crate::config::{Complaint, Environment, Flags, Settings, conditions};
use crate::engine::{Asked, Decides, Does, Matcher, Miss, RequestKind, Rule, RulePlace, Words, asked};
use crate::relay::{ServerEnvironment, program_in_time};
use crate::store::{Found, RuleUse, rule_uses};

/// The limit of a relay for the same check.
const CHECK_MAX: Duration = Duration::from_millis(250);

/// The shell of a command that is only tried.
const SHELL: [&str; 2] = ["/bin/bash", "-lc"];

/// List the rules that decide on requests, and try them
///
/// Rules are in config.toml: `[[rules]]`. They are off until you write one. The first one that matches decides.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
The counts are those of all stored sessions: MATCHED requests, and how many of
them the rule ANSWERED. A rule that holds a request leaves the answer to you.

Exit status: 0, or 1 if a rule is not valid or a session cannot be read.

Examples:
  codex-shim rules
  codex-shim rules --since 7d
  codex-shim rules --json | jq '.rules[] | select(.matched == 0).name'
  codex-shim rules test -- git status"
)]
pub(super) struct RulesArguments {
    #[command(subcommand)]
    tool: Option<RulesTool>,
    #[command(flatten)]
    since: SinceFlag,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    times: Times,
}

#[derive(Debug, Subcommand)]
enum RulesTool {
    /// Tell what the rules would do with a command or a request, and why
    ///
    /// A single word is taken as a whole shell line. The tool takes for granted that the thread began in the folder of the
    /// command, in a sandbox that writes nowhere else, with codex 0.169. PATH, HOME and SHELL are those of this terminal; a
    /// relay uses those of its server.
    #[command(after_long_help = "\
Exit status: 0, or 2 if an argument is not valid, or 3 if there is no such
request.

Examples:
  codex-shim rules test -- git status
  codex-shim rules test --cwd /home/me/proj -- 'git status && make'
  codex-shim rules test --request latest")]
    Test(TestArguments),
    /// Compare rules with the answers of people
    ///
    /// Goes through the requests on record and lists each one that a rule would have answered otherwise than you did. As in a relay,
    /// the first rule that matches decides. Requests without an answer are counted and not compared.
    #[command(after_long_help = "\
ANSWERS are those that the rule would have answered for certain. UNKNOWN are
commands that a rule accepts if their program and folder are what their names
say, which the ledger does not have.

Exit status: 0, or 1 if a session cannot be read, or 2 if a rule is not valid.

Examples:
  codex-shim rules backtest --since 30d
  codex-shim rules backtest --rule 'no rm -rf'
  codex-shim rules backtest --with proposed.toml --json | jq .otherwise")]
    Backtest(backtest::BacktestArguments),
    /// Print rules that agree with all answers of people so far
    ///
    /// One for each command that people accepted in a folder, never declined, and never saw with a warning, and for requests that they
    /// always declined. Read them and copy the ones that you want into config.toml: nothing is changed.
    #[command(after_long_help = "\
Exit status: 0, or 1 if a session cannot be read.

Examples:
  codex-shim rules suggest
  codex-shim rules suggest --min 10 --since 90d > proposed.toml
  codex-shim rules backtest --with proposed.toml")]
    Suggest(suggest::SuggestArguments),
}

#[derive(Debug, Args)]
struct TestArguments {
    /// The command, as codex would run it in a shell
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "request", conflicts_with = "request")]
    words: Vec<String>,
    /// Folder of the command [default: the current folder]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "request")]
    cwd: Option<PathBuf>,
    /// A request instead: its id, a unique beginning of it, or `latest`
    #[arg(long, value_name = "REQUEST", add = complete::requests())]
    request: Option<String>,
    /// Session of the request: its name, the beginning or end of its id, or `latest`
    #[arg(long, value_name = "SESSION", requires = "request", add = complete::sessions())]
    session: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &RulesArguments, environment: &Environment) -> Done {
    match &arguments.tool {
        None => list(arguments, environment),
        Some(RulesTool::Test(test)) => run_test(test, environment),
        Some(RulesTool::Backtest(arguments)) => backtest::run(arguments, environment),
        Some(RulesTool::Suggest(arguments)) => suggest::run(arguments, environment),
    }
}

#[derive(Debug, Serialize)]
struct RuleDocument<'a> {
    #[serde(skip)]
    rule: &'a Rule,
    name: &'a str,
    action: &'static str,
    /// The members of `match`, in the syntax of the file.
    conditions: String,
    matched: u64,
    answered: u64,
    last_at: Option<&'a str>,
}

fn list(arguments: &RulesArguments, environment: &Environment) -> Done {
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    let rules = &settings.rules.value;
    let sessions = select_session::listed(None, environment)?;
    let since = arguments.since.get().map(Since::rfc3339).unwrap_or_default();
    let (uses, unread) = uses(&sessions, &since);
    let documents: Vec<RuleDocument<'_>> = rules.iter().map(|rule| document(rule, &uses)).collect();
    let invalid: Vec<String> = complaints.iter().filter(|one| one.is_about_rules()).map(ToString::to_string).collect();
    let printed = match arguments.json {
        true => print_json(&json!({ "rules": documents, "invalid": invalid })),
        false => {
            let (clock, to) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
            screen::print(&as_list(&documents, &clock, to))
        }
    };
    unread.iter().for_each(|why| say(why));
    complaints.iter().map(Complaint::to_string).for_each(|complaint| say(&complaint));
    Ok(if unread.is_empty() && complaints.is_empty() { printed } else { FAILED })
}

fn document<'a>(rule: &'a Rule, uses: &'a [RuleUse]) -> RuleDocument<'a> {
    let of_rule = || uses.iter().filter(|of| of.rule == rule.name());
    RuleDocument {
        rule,
        name: rule.name(),
        action: rule.action().name(),
        conditions: conditions(rule),
        matched: of_rule().map(|of| of.matched).sum(),
        answered: of_rule().map(|of| of.answered).sum(),
        last_at: of_rule().map(|of| of.last_at.as_str()).max(),
    }
}

/// How often rules decided in each session since that time, and which sessions could not be read.
fn uses(sessions: &[Found], since: &str) -> (Vec<RuleUse>, Vec<String>) {
    let (mut all, mut unread) = (Vec::new(), Vec::new());
    let read = select_session::at_once(sessions, |session| rule_uses(&session.dir, session.live, since));
    for (session, read) in sessions.iter().zip(read) {
        match read {
            Ok(uses) => all.extend(uses),
            Err(error) => unread.push(format!("session {}: {error}", session.name())),
        }
    }
    (all, unread)
}

fn as_list(documents: &[RuleDocument<'_>], clock: &Clock, to: Screen) -> String {
    if documents.is_empty() {
        return "no rules are set: every request asks you; add [[rules]] to config.toml\n".to_owned();
    }
    let columns = vec![
        Column::whole("NAME"),
        Column::whole("ACTION"),
        Column::number("MATCHED"),
        Column::number("ANSWERED"),
        Column::whole(clock.head("LAST")).spare(),
        Column::text("REQUESTS"),
    ];
    let row = |of: &RuleDocument<'_>| {
        let last = of.last_at.map_or_else(|| "never".to_owned(), |at| clock.cell(at, to));
        vec![
            (Tone::Strong, of.name.to_owned()),
            (tone(of.action), of.action.to_owned()),
            (Tone::Plain, of.matched.to_string()),
            (Tone::Plain, of.answered.to_string()),
            (Tone::Faint, last),
            (Tone::Plain, in_words(of.rule)),
        ]
    };
    Table::of(columns, documents.iter().map(row).collect::<Vec<Vec<Cell>>>(), to)
}

/// The requests that a rule matches, for a person.
fn in_words(rule: &Rule) -> String {
    let quoted = |words: &[String]| shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default();
    let place = |place: &Option<RulePlace>| match place {
        Some(RulePlace::Exactly(folder)) => format!(" in {folder}"),
        Some(RulePlace::Below(folder)) => format!(" below {folder}"),
        None => String::new(),
    };
    match rule.does() {
        Does::Accept(exact) => format!("run {} in {}", quoted(exact.argv()), exact.cwd()),
        Does::Decline { of, reason: _ } | Does::Hold { of } => match of {
            Matcher::Command { argv: Some(Words::All(all)), cwd } => format!("run {}{}", quoted(all), place(cwd)),
            Matcher::Command { argv: Some(Words::First(first)), cwd } => {
                format!("run {} …{}", quoted(first), place(cwd))
            }
            Matcher::Command { argv: None, cwd } => format!("run anything{}", place(cwd)),
            Matcher::FileChange { below: Some(folder) } => format!("change files below {folder}"),
            Matcher::FileChange { below: None } => "change files".to_owned(),
            Matcher::Permissions { cwd } => format!("get more permissions{}", place(cwd)),
            Matcher::Questions => "ask questions".to_owned(),
            Matcher::Elicitation => "ask for a tool server".to_owned(),
        },
    }
}

fn tone(action: &str) -> Tone {
    match action {
        "accept" => Tone::Good,
        "decline" => Tone::Bad,
        "hold" => Tone::Warning,
        _ => Tone::Plain,
    }
}

/// What the rules would do.
#[derive(Debug, Default, Serialize)]
struct TestDocument {
    /// `accept`, `decline`, `hold`, or `ask`.
    decision: &'static str,
    rule: Option<String>,
    /// The file of the accepted program.
    program: Option<String>,
    /// Why nobody but you decides.
    why: Option<String>,
    /// The facts that an accept needs and that are not known here.
    assumes: Option<&'static str>,
    rules: Vec<TriedRule>,
}

#[derive(Debug, Serialize)]
struct TriedRule {
    name: String,
    action: &'static str,
    matches: bool,
    why: Option<String>,
}

fn run_test(test: &TestArguments, environment: &Environment) -> Done {
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    let (what, found) = match &test.request {
        Some(name) => of_request(name, test.session.as_deref(), environment)?,
        None => of_command(&test.words, test.cwd.clone())?,
    };
    let document = tried(&settings, found, &ServerEnvironment::of(environment, None));
    complaints.iter().map(Complaint::to_string).for_each(|complaint| say(&complaint));
    if test.json {
        return Ok(print_json(&document));
    }
    let to = Screen::of_stdout(environment);
    Ok(screen::print(&as_answer(&what, &document, to)))
}

/// A stored request, as its relay has seen it.
fn of_request(
    name: &str,
    session: Option<&str>,
    environment: &Environment,
) -> Result<(String, Result<Asked, String>), CliError> {
    let (_, RequestDocument { request, .. }) = named(session, name, environment)?;
    let [item, changes] = [&request.item, &request.changes].map(|value| Some(value).filter(|value| !value.is_null()));
    let found = asked(request.kind(), &request.request_payload, item, changes);
    Ok((request.summary, found.ok_or_else(|| "no rule decides on this kind of request".to_owned())))
}

/// A command as codex would ask for it.
fn of_command(words: &[String], cwd: Option<PathBuf>) -> Result<(String, Result<Asked, String>), CliError> {
    let failed = |error: std::io::Error| CliError::failed(format!("find the current folder: {error}"));
    let cwd = match cwd {
        Some(cwd) => std::path::absolute(cwd).map_err(failed)?,
        None => std::env::current_dir().map_err(failed)?,
    };
    let no_nul = |_| CliError::usage("a command has no NUL character");
    let script = match words {
        [line] => line.clone(),
        words => shlex::try_join(words.iter().map(String::as_str)).map_err(no_nul)?,
    };
    let line = shlex::try_join(SHELL.into_iter().chain([script.as_str()])).map_err(no_nul)?;
    let params = json!({ "command": line, "cwd": cwd.to_string_lossy() });
    let found = asked(RequestKind::Command, &params, None, None);
    Ok((format!("{script} (in {})", cwd.display()), found.ok_or_else(String::new)))
}

fn tried(settings: &Settings, found: Result<Asked, String>, server: &ServerEnvironment) -> TestDocument {
    let rules = &settings.rules.value;
    let mut document = TestDocument { decision: "ask", ..TestDocument::default() };
    let asked = match found {
        Ok(asked) => asked.in_usual_thread(),
        Err(why) => return TestDocument { why: Some(why), ..document },
    };
    if matches!(asked, Asked::Command(_)) && rules.iter().any(|rule| matches!(rule.does(), Does::Accept(_))) {
        document.assumes = Some(ASSUMED);
    }
    for rule in rules {
        let checked = rule.check(&asked);
        let is_first = document.rule.is_none() && document.why.is_none();
        let mut tried = TriedRule {
            name: rule.name().to_owned(),
            action: rule.action().name(),
            matches: checked.is_ok(),
            why: checked.as_ref().err().map(Miss::to_string),
        };
        if let Some(decides) = checked.ok().filter(|_| is_first) {
            match program_of(decides, settings, server) {
                Ok(program) => {
                    document.decision = rule.action().name();
                    document.rule = Some(tried.name.clone());
                    document.program = program;
                }
                // As in a relay, no later rule decides then.
                Err(why) => {
                    tried.why = Some(why.clone());
                    document.why = Some(format!("rule `{}` does not accept it: {why}", rule.name()));
                }
            }
        }
        document.rules.push(tried);
    }
    if document.rule.is_none() && document.why.is_none() {
        document.why = Some(if rules.is_empty() { "no rules are set" } else { "no rule matches" }.to_owned());
    }
    document
}

/// The checked program of a rule that accepts; `None` for other rules.
fn program_of(decides: Decides<'_>, settings: &Settings, server: &ServerEnvironment) -> Result<Option<String>, String> {
    match decides {
        Decides::Accept(check) => program_in_time(*check, settings.clone(), server.clone(), CHECK_MAX).map(Some),
        Decides::Decline { .. } | Decides::Hold => Ok(None),
    }
}

/// See [`Asked::in_usual_thread`].
const ASSUMED: &str = "the thread began in the folder of the command, its sandbox is known, no model of its server may \
                       write elsewhere, the server has this tool's environment, and codex is 0.169 or newer";

fn as_answer(what: &str, document: &TestDocument, to: Screen) -> String {
    let rule = document.rule.as_deref().map(screen::plain).unwrap_or_default();
    let program = document.program.as_deref().map(|program| format!(", which runs {}", screen::plain(program)));
    let outcome = match document.decision {
        "accept" => format!("rule `{rule}` accepts it{}", program.unwrap_or_default()),
        "decline" => format!("rule `{rule}` declines it"),
        "hold" => format!("rule `{rule}` holds it: the client is not asked, `codex-shim respond` answers"),
        _ => format!("it asks you: {}", screen::plain(document.why.as_deref().unwrap_or_default())),
    };
    let outcome = screen::fitted(&format!("{}\n{outcome}", screen::plain(what)), screen::columns(to));
    let row = |tried: &TriedRule| -> Vec<Cell> {
        let (tone, matches) = if tried.matches { (Tone::Strong, "matches") } else { (Tone::Faint, "no") };
        vec![
            (Tone::Strong, tried.name.clone()),
            (Tone::Plain, tried.action.to_owned()),
            (tone, matches.to_owned()),
            (Tone::Plain, tried.why.clone().unwrap_or_default()),
        ]
    };
    let columns =
        vec![Column::whole("RULE"), Column::whole("ACTION"), Column::whole("MATCHES"), Column::text("WHY NOT")];
    let rows: Vec<Vec<Cell>> = document.rules.iter().map(row).collect();
    let assumed =
        document.assumes.map(|assumed| screen::fitted(&format!("\nAssumed: {assumed}.\n"), screen::columns(to)));
    format!("{outcome}\n{}{}", Table::of(columns, rows, to), assumed.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn single_word_is_a_shell_line() {
        let command = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let (_, found) = of_command(&words, Some(PathBuf::from("/p"))).expect("a command");
            let Ok(Asked::Command(command)) = found else { panic!("not a command: {found:?}") };
            command.plain.map(|plain| plain.argv).map_err(|why| why.to_string())
        };
        let argv = |words: &[&str]| Ok(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(command(&["git", "status"]), argv(&["git", "status"]));
        assert_eq!(command(&["git status"]), argv(&["git", "status"]));
        assert_eq!(command(&["git", "commit", "-m", "a b"]), argv(&["git", "commit", "-m", "a b"]));
        assert!(command(&["git status && make"]).is_err());
    }

    #[test]
    fn request_that_no_rule_may_decide_asks() {
        let params: Value = json!({ "kind": "writeStdin", "command": "/bin/bash -lc ls", "cwd": "/p" });
        assert!(asked(RequestKind::Command, &params, None, None).is_none());
        let (settings, _) = Settings::load(Flags::default(), &Environment::of(|_| None));
        let document =
            tried(&settings, Err("no rule decides on this kind of request".to_owned()), &ServerEnvironment::default());
        assert_eq!((document.decision, document.why.is_some()), ("ask", true));
    }
}
