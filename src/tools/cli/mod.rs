//! The command line and the tools, with the error that all tools share: exit status, message and remedy.
//!
//! Messages for users, hints and exit codes exist only here. A relay's stdout belongs to the server; only tools print to it.
//! Arguments that belong to codex are never parsed: see [`dispatch`].

mod audit;
mod backup_tool;
mod blame_tool;
mod capture_tools;
mod complete;
mod config_tool;
mod context_tool;
mod demo;
mod dispatch;
mod docs_tool;
mod doctor;
mod drift_tool;
mod filter;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(not(feature = "fleet"))]
mod fleet_left_out;
mod front_tool;
mod help;
mod history;
mod hub_tool;
mod keeping_tools;
mod kept_back;
mod notify_tool;
mod offline;
mod output_file;
mod progress;
mod qr_code;
mod relay_tools;
mod requests;
mod reviews_tool;
mod rules_tool;
mod screen;
mod select_session;
mod sessions_tool;
mod since;
mod status_tool;
mod table;
mod tape_export;
mod tape_tool;
mod threads;
mod tui_tool;
mod usage_tool;
mod web_tool;
mod wrap;

use std::ffi::OsString;
use std::fmt;
use std::io::{IsTerminal as _, Write as _};

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::config::Environment;
use crate::os::launch;
use crate::relay;
use crate::sessions::selection::SelectionError;
use crate::store::Found;
use dispatch::Invocation;
use hub_tool::Down;
use screen::Screen;

/// Exit status: the tool failed.
const FAILED: i32 = 1;
/// Exit status: an argument is not valid; clap uses the same.
const USAGE: i32 = 2;
/// Exit status: no such session, or the name is ambiguous.
const NO_SUCH_SESSION: i32 = 3;
/// Exit status: no such request.
const NO_SUCH_REQUEST: i32 = 3;
/// No thread of the session has this name.
const NO_SUCH_THREAD: i32 = 3;
/// Exit status: the tool needs a relay and none is running.
const NOT_RUNNING: i32 = 4;
/// Exit status of shells for a command that cannot be run.
const CANNOT_RUN: i32 = 126;
/// Exit status of shells for an unknown command.
const NOT_FOUND: i32 = 127;

/// Transparent proxy for `codex app-server` that records every message, shares your terminal context, and keeps approvals
/// durable
///
/// Point any Codex client at codex-shim instead of codex. It starts the real codex, records each message, and forwards it
/// unchanged in both directions.
#[derive(Debug, Parser)]
#[command(
    name = "codex-shim",
    version,
    after_long_help = AFTER_HELP,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 80
)]
struct Arguments {
    #[command(subcommand)]
    tool: Tool,
}

const AFTER_HELP: &str = "\
Ways to start a relay:
  codex-shim                        relay `codex app-server` (stdin: a client)
  codex-shim [-c K=V] app-server …  the same; codex gets every argument
  codex-shim run -- SERVER ARG…     relay any server that speaks on stdio
  codex (a link to codex-shim)      relay app-server; else run the real codex

Examples:
  codex-shim demo                   see what it does, with nothing installed
  codex-shim wrap vscode            put it in front of the VS Code extension
  codex-shim status                 is the relay in this folder healthy?
  codex-shim requests               what is waiting for an answer?
  codex-shim respond latest decline --reason 'use make clean'
  codex-shim send --wait 'run the tests'
  codex-shim exec cargo test        run it, and show the model its output
  codex-shim tail -f                what the agent does, as it does it
  codex-shim tui                    everything, live
  codex-shim web                    the same in a browser, or on a phone
  CODEX_SHIM_OFF=1 codex app-server     no relay: run the real codex

`codex-shim COMMAND --help` explains a command and has examples of it.

Sessions are stored in $CODEX_SHIM_HOME (default: $XDG_STATE_HOME/codex-shim,
else ~/.local/state/codex-shim).";

#[derive(Debug, Subcommand)]
enum Tool {
    Run(relay_tools::RunArguments),
    Serve(relay_tools::ServeArguments),
    Attach(relay_tools::AttachArguments),
    Hub(hub_tool::HubArguments),
    Sessions(sessions_tool::SessionsArguments),
    Status(status_tool::StatusArguments),
    /// Show the model what you did in a terminal, with your next message
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  codex-shim context show
  codex-shim context push --cmd 'make' --exit-code 2 --output-file out.txt
  codex-shim context drop latest"
    )]
    Context(context_tool::ContextTool),
    Exec(capture_tools::ExecArguments),
    Hook(capture_tools::HookArguments),
    Shell(capture_tools::ShellArguments),
    WatchPty(capture_tools::WatchPtyArguments),
    /// Started by the hook of a shell
    #[command(hide = true)]
    Hooked(capture_tools::HookedArguments),
    /// Runs between `exec` and its command
    #[command(hide = true)]
    TerminalLeader(capture_tools::TerminalLeaderArguments),
    /// Runs between a relay and a command of `on_pending`, `on_idle`, `on_stalled`, `on_bypass` or
    /// `on_budget`
    #[command(hide = true)]
    HookSupervisor(capture_tools::HookSupervisorArguments),
    /// Used by the packages
    #[command(hide = true)]
    LoginFile(wrap::LoginFileArguments),
    Requests(requests::RequestsArguments),
    Show(requests::ShowRequestArguments),
    Respond(requests::RespondArguments),
    Send(requests::SendArguments),
    Interrupt(requests::InterruptArguments),
    Wait(requests::WaitArguments),
    Reviews(reviews_tool::ReviewsArguments),
    Overrule(reviews_tool::OverruleArguments),
    /// Try the commands that tell you when you are needed
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  codex-shim notify test
  codex-shim notify test pending"
    )]
    Notify(notify_tool::NotifyTool),
    Doctor(doctor::DoctorArguments),
    Wrap(wrap::WrapArguments),
    Unwrap(wrap::UnwrapArguments),
    Completions(complete::CompletionsArguments),
    Prune(keeping_tools::PruneArguments),
    Redact(keeping_tools::RedactArguments),
    Backup(backup_tool::BackupArguments),
    Restore(backup_tool::RestoreArguments),
    Events(history::EventsArguments),
    Tail(history::TailArguments),
    Children(sessions_tool::ChildrenArguments),
    Transcript(history::TranscriptArguments),
    Search(history::SearchArguments),
    Usage(usage_tool::UsageArguments),
    Blame(blame_tool::BlameArguments),
    Drift(drift_tool::DriftArguments),
    Fragments(context_tool::FragmentsArguments),
    /// Export every request and answer, and check such a file
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  codex-shim audit export -o audit.jsonl
  codex-shim audit verify audit.jsonl"
    )]
    Audit(audit::AuditTool),
    Tui(tui_tool::TuiArguments),
    Web(web_tool::WebArguments),
    /// Sessions, requests and events of many machines in one place
    #[cfg(feature = "fleet")]
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  codex-shim fleet agent
  codex-shim fleet requests
  codex-shim fleet respond build-7/0c4e-0 accept
  codex-shim fleet tail -f"
    )]
    Fleet(fleet::FleetTool),
    #[cfg(not(feature = "fleet"))]
    Fleet(fleet_left_out::FleetArguments),
    Docs(docs_tool::DocsArguments),
    Config(config_tool::ConfigArguments),
    Rules(rules_tool::RulesArguments),
    Demo(demo::DemoArguments),
    /// Export, show and check recordings
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  codex-shim tape export work -o turn.jsonl
  codex-shim tape show turn.jsonl
  codex-shim tape check turn.jsonl"
    )]
    Tape(tape_tool::TapeTool),
    Replay(tape_tool::ReplayArguments),
}

/// The commands of `codex-shim --help` in groups, each in the order in which a new user meets them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Start here", &["demo", "wrap", "unwrap", "doctor", "status", "sessions"]),
    (
        "Answer and talk",
        &[
            "tui",
            "web",
            "requests",
            "show",
            "respond",
            "rules",
            "reviews",
            "overrule",
            "send",
            "interrupt",
            "wait",
            "notify",
        ],
    ),
    ("Show the model your terminal", &["exec", "hook", "shell", "context", "watch-pty", "fragments"]),
    ("See what happened", &["tail", "events", "transcript", "search", "blame", "children", "usage", "drift", "audit"]),
    ("Relay a server", &["run", "serve", "attach", "hub", "fleet"]),
    ("Record and replay", &["tape", "replay"]),
    ("Settings and maintenance", &["config", "backup", "restore", "prune", "redact", "completions", "docs", "help"]),
];

/// Runs the command line; returns the exit status.
#[must_use]
pub(crate) fn main() -> i32 {
    launch::wait_for_children();
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    let environment = Environment::of_process();
    if let Some(shell) = environment.get(complete::VARIABLE)
        && let Some(status) = complete::answer(&shell.to_string_lossy(), &args, Arguments::command)
    {
        return status;
    }
    let done = match dispatch::decide(&name, &args, std::io::stdin().is_terminal()) {
        Invocation::Help => Ok(print_help(&[], true)),
        Invocation::Relay { codex_args } => front_tool::run(codex_args, &environment),
        Invocation::BecomeCodex { codex_args } => relay_tools::become_codex(codex_args, &environment),
        Invocation::Tool => match frequent(&args).map_or_else(|| Arguments::try_parse().map(|all| all.tool), Ok) {
            Ok(tool) => tool.run(&environment),
            Err(error) => Ok(not_parsed(error, &args)),
        },
    };
    done.unwrap_or_else(|error| error.report())
}

/// A tool that is started often, and by programs: it is parsed without the arguments of all others. `None` for any other tool, and for
/// arguments that are not valid or ask for help.
fn frequent(args: &[OsString]) -> Option<Tool> {
    fn parsed<A: Args>(args: &[OsString]) -> Option<A> {
        let command = A::augment_args(clap::Command::new("codex-shim"));
        A::from_arg_matches(&command.try_get_matches_from(args).ok()?).ok()
    }
    // The name of the tool stands where a program has its own.
    match args.first()?.to_str()? {
        "run" => parsed(args).map(Tool::Run),
        "hooked" => parsed(args).map(Tool::Hooked),
        "terminal-leader" => parsed(args).map(Tool::TerminalLeader),
        "hook-supervisor" => parsed(args).map(Tool::HookSupervisor),
        _ => None,
    }
}

impl Tool {
    fn run(self, environment: &Environment) -> Done {
        match self {
            Tool::Run(run) => relay_tools::run_run(run, environment),
            Tool::Serve(serve) => relay_tools::run_serve(serve, environment),
            Tool::Hub(hub) => hub_tool::run(hub, environment),
            Tool::Attach(attach) => relay_tools::run_attach(&attach, environment),
            Tool::Sessions(sessions) => sessions_tool::run_sessions(&sessions, environment),
            Tool::Status(status) => status_tool::run(&status, environment),
            Tool::Context(context) => context_tool::run(context, environment),
            Tool::Exec(exec) => capture_tools::run_exec(&exec, environment),
            Tool::Hook(hook) => Ok(capture_tools::run_hook(&hook)),
            Tool::Hooked(hooked) => Ok(capture_tools::run_hooked(hooked, environment)),
            Tool::Shell(shell) => capture_tools::run_shell(&shell, environment),
            Tool::WatchPty(watch) => capture_tools::run_watch_pty(&watch, environment),
            Tool::TerminalLeader(leader) => Ok(crate::capture::lead(&leader.words, leader.unread_to)),
            Tool::HookSupervisor(supervisor) => Ok(relay::supervise_hook(&supervisor.words)),
            Tool::Requests(list) => requests::run_requests(&list, environment),
            Tool::Show(show) => requests::run_show(&show, environment),
            Tool::Respond(respond) => requests::run_respond(&respond, environment),
            Tool::Send(send) => requests::run_send(send, environment),
            Tool::Interrupt(interrupt) => requests::run_interrupt(interrupt, environment),
            Tool::Wait(wait) => requests::run_wait(&wait, environment),
            Tool::Reviews(reviews) => reviews_tool::run_reviews(&reviews, environment),
            Tool::Overrule(overrule) => reviews_tool::run_overrule(&overrule, environment),
            Tool::Notify(notify) => notify_tool::run(&notify, environment),
            Tool::Prune(prune) => keeping_tools::run_prune(&prune, environment),
            Tool::Redact(redact) => keeping_tools::run_redact(&redact, environment),
            Tool::Backup(backup) => backup_tool::run_backup(&backup, environment),
            Tool::Restore(restore) => backup_tool::run_restore(&restore, environment),
            Tool::Events(events) => history::run_events(&events, environment),
            Tool::Tail(tail) => history::run_tail(&tail, environment),
            Tool::Children(children) => sessions_tool::run_children(&children, environment),
            Tool::Transcript(thread) => history::run_transcript(&thread, environment),
            Tool::Search(search) => history::run_search(&search, environment),
            Tool::Usage(usage) => usage_tool::run(&usage, environment),
            Tool::Blame(blame) => blame_tool::run(&blame, environment),
            Tool::Drift(drift) => drift_tool::run(&drift, environment),
            Tool::Fragments(fragments) => context_tool::run_fragments(&fragments, environment),
            Tool::Audit(audit) => audit::run(&audit, environment),
            Tool::Tui(tui) => tui_tool::run(&tui, environment),
            Tool::Web(web) => web_tool::run(web, environment),
            #[cfg(feature = "fleet")]
            Tool::Fleet(fleet) => fleet::run(fleet, environment),
            #[cfg(not(feature = "fleet"))]
            Tool::Fleet(fleet) => fleet_left_out::run(&fleet),
            Tool::Docs(docs) => docs_tool::run(&docs),
            Tool::Config(config) => Ok(config_tool::run(&config, environment)),
            Tool::Rules(rules) => rules_tool::run(&rules, environment),
            Tool::Doctor(doctor) => doctor::run(&doctor, environment),
            Tool::Wrap(wrap) => wrap::run_wrap(&wrap, environment),
            Tool::LoginFile(file) => wrap::run_login_file(&file),
            Tool::Unwrap(unwrap) => wrap::run_unwrap(&unwrap, environment),
            Tool::Completions(completions) => complete::run(&completions, Arguments::command()),
            Tool::Demo(demo) => demo::run(&demo, environment),
            Tool::Tape(tape) => tape_tool::run(tape, environment),
            Tool::Replay(replay) => tape_tool::run_replay(&replay, environment),
        }
    }
}

/// Prints the help, the version or a usage error; returns the exit status.
fn not_parsed(error: clap::Error, args: &[OsString]) -> i32 {
    if error.kind() == ErrorKind::DisplayHelp {
        return print_help(args, !args.iter().any(|arg| arg == "-h"));
    }
    let status = error.exit_code();
    if !error.use_stderr() {
        // The version goes to stdout.
        return match error.print() {
            Ok(()) => status,
            Err(error) => screen::unwritten(&error).report(),
        };
    }
    let columns = screen::columns_of_stderr();
    let text = match error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        true => help::render(Arguments::command(), args, false, columns),
        false => help::usage_error(error, Arguments::command(), args, columns),
    };
    let _ = write!(anstream::stderr(), "{text}");
    status
}

fn print_help(args: &[OsString], is_long: bool) -> i32 {
    let help = help::render(Arguments::command(), args, is_long, screen::columns(Screen::of_stdout_plain()));
    // The stream drops the styles if stdout is not a terminal.
    let mut stdout = anstream::stdout();
    match write!(stdout, "{help}").and_then(|()| stdout.flush()) {
        Ok(()) => 0,
        Err(error) => screen::unwritten(&error).report(),
    }
}

/// Prints one line to stderr, escaped.
fn say(what: &str) {
    let text = format!("codex-shim: {}", lines(what));
    let _ = writeln!(std::io::stderr(), "{}", screen::fitted(&text, screen::columns_of_stderr()));
}

/// Several lines, each escaped by [`screen::plain`].
fn lines(text: &str) -> String {
    text.replace('\t', "    ").split('\n').map(screen::plain).collect::<Vec<_>>().join("\n")
}

/// The exit status of a tool, or its error.
pub(super) type Done = Result<i32, CliError>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CliError {
    exit: i32,
    /// Empty if there is nothing to say: the reader of our output is gone.
    message: String,
    remedy: Option<String>,
}

impl CliError {
    pub(super) fn exits(exit: i32, message: impl Into<String>) -> CliError {
        CliError { exit, message: message.into(), remedy: None }
    }

    /// The message is one line, whatever text of others is in it.
    pub(super) fn failed(message: impl AsRef<str>) -> CliError {
        CliError::exits(FAILED, screen::plain(message.as_ref()))
    }

    /// The arguments are not valid, or do not fit. The message is one line.
    pub(super) fn usage(message: impl AsRef<str>) -> CliError {
        CliError::exits(USAGE, screen::plain(message.as_ref()))
    }

    /// The tool ends with this status and says nothing.
    pub(super) fn quiet(exit: i32) -> CliError {
        CliError::exits(exit, "")
    }

    pub(super) fn with_remedy(self, remedy: impl Into<String>) -> CliError {
        CliError { remedy: Some(remedy.into()), ..self }
    }

    /// The tool needs a relay, and none is running in this session.
    pub(super) fn not_running(session: &Found) -> CliError {
        let not_running = format!("session {} is not running", session.name());
        match Down::of(session) {
            Some(down) => {
                CliError::exits(NOT_RUNNING, format!("{not_running}: {}", down.what())).with_remedy(down.remedy())
            }
            None => CliError::exits(NOT_RUNNING, not_running)
                .with_remedy("start your tool in its folder, or run `codex-shim sessions`"),
        }
    }

    pub(super) fn no_home() -> CliError {
        SelectionError::NoHome.into()
    }

    /// Prints the error; returns the exit status.
    pub(super) fn report(&self) -> i32 {
        if !self.message.is_empty() {
            say(&self.to_string());
        }
        self.exit
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl From<String> for CliError {
    fn from(message: String) -> CliError {
        CliError::failed(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_escaped() {
        assert_eq!(
            lines("turn/start\n  - \u{1b}[2J\n  + \u{202e}a\r"),
            "turn/start\n  - \u{fffd}[2J\n  + \\u{202e}a\u{fffd}"
        );
    }

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn frequent_tools_are_parsed_as_by_all_arguments() {
        let check = |line: &str, is_parsed: bool| {
            let args: Vec<OsString> = shlex::split(line).expect("BUG: words").into_iter().map(Into::into).collect();
            let whole = Arguments::try_parse_from([OsString::from("codex-shim")].iter().chain(&args));
            let whole = whole.ok().map(|whole| format!("{:?}", whole.tool));
            let alone = frequent(&args).map(|tool| format!("{tool:?}"));
            assert_eq!(alone.is_some(), is_parsed, "{line}");
            assert!(alone.is_none() || alone == whole, "{line}: {alone:?}, {whole:?}");
        };
        check("run -- codex app-server --help", true);
        check("run --session work --record false --exit-grace 2s -- server -x", true);
        check("run --codex /bin/codex", true);
        check("run", true);
        check("hooked bash --exit-code -1 --cwd /w --key k --as-typed", true);
        check("hooked zsh --exit-code=0 --cwd '/a b' --began 1 --ended 2 --key k", true);
        check("terminal-leader --unread-to 3 -- ls -l", true);
        check("hook-supervisor -- sh -c x", true);
        // These have their words from all arguments.
        check("run --help", false);
        check("run --version", false);
        check("run --sesion work", false);
        check("hooked bash", false);
        check("hook-supervisor", false);
        check("status --json", false);
    }

    /// Checks a command and its subcommands; returns the number of commands.
    fn check_examples(command: &clap::Command, path: &str) -> usize {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let (_, examples) = help.split_once("Example").unwrap_or_else(|| panic!("{path} has no example in its help"));
        assert!(examples.contains(path), "no example of {path} is of it:\n{examples}");
        let below = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
        1 + below.map(|below| check_examples(below, &format!("{path} {}", below.get_name()))).sum::<usize>()
    }

    #[test]
    fn every_help_has_an_example() {
        assert!(check_examples(&Arguments::command(), "codex-shim") > 30);
    }
}
