//! The command line and the tools.
//!
//! Messages for users, hints and exit codes exist only here. A relay's stdout belongs to the server; only tools print to it.

mod args;
mod attach_tool;
mod capture_args;
mod clock;
mod complete;
mod completions;
mod config_tool;
mod context_args;
mod context_tool;
mod demo;
mod dispatch;
mod doctor;
mod exec_tool;
mod fragments_args;
mod fragments_tool;
mod help;
mod history;
mod hook_tool;
mod kept_back;
mod numbers;
mod offline;
mod prune_tool;
mod redact_tool;
mod replay_tool;
mod requests;
mod screen;
mod select_session;
mod session_args;
mod sessions_tool;
mod shell_tool;
mod status_tool;
mod table;
mod tape_args;
mod tape_export;
mod tape_file;
mod tape_tool;
mod tui_tool;
mod watch_tool;
mod wrap;

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, Write as _};

use clap::{CommandFactory as _, Parser as _};

use crate::config::{Complaint, Environment, Flags, Settings};
use crate::engine::Exit;
use crate::launch;
use crate::relay::locate::{self, Codex, LocateError};
use crate::relay::{self, RelayError, ServerCommand};
use args::{Arguments, RunArguments, Tool};
use dispatch::Invocation;
use screen::Screen;

/// Exit status: the tool failed.
const FAILED: i32 = 1;
/// Exit status: an argument is not valid; clap uses the same.
const USAGE: i32 = 2;
/// Exit status: no such session, or the name is ambiguous.
const NO_SUCH_SESSION: i32 = 3;
/// Exit status: no such request.
const NO_SUCH_REQUEST: i32 = 3;
/// Exit status: the tool needs a relay and none is running.
const NOT_RUNNING: i32 = 4;
/// Exit status of shells for a command that cannot be run.
const CANNOT_RUN: i32 = 126;
/// Exit status of shells for an unknown command.
const NOT_FOUND: i32 = 127;

/// Runs the command line; returns the exit status.
#[must_use]
pub(crate) fn main() -> i32 {
    launch::wait_for_children();
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    let environment = Environment::of_process();
    if let Some(shell) = environment.get(completions::VARIABLE)
        && let Some(status) = completions::answer(&shell.to_string_lossy(), &args, Arguments::command)
    {
        return status;
    }
    match dispatch::decide(&name, &args, std::io::stdin().is_terminal()) {
        Invocation::Help => print_help(&[], true),
        Invocation::Relay { codex_args } => relay_codex(codex_args, Flags::default(), relay::run, &environment),
        Invocation::BecomeCodex { codex_args } => become_codex(codex_args, &environment),
        Invocation::Tool => match Arguments::try_parse() {
            Ok(Arguments { tool: Tool::Run(run) }) => run_server(run, relay::run, &environment),
            Ok(Arguments { tool: Tool::Serve(serve) }) => run_server(serve.into_run(), relay::serve, &environment),
            Ok(Arguments { tool: Tool::Attach(attach) }) => attach_tool::run(&attach, &environment),
            Ok(Arguments { tool: Tool::Sessions(sessions) }) => sessions_tool::run(&sessions, &environment),
            Ok(Arguments { tool: Tool::Status(status) }) => status_tool::run(&status, &environment),
            Ok(Arguments { tool: Tool::Context(context) }) => context_tool::run(context, &environment),
            Ok(Arguments { tool: Tool::Exec(exec) }) => exec_tool::run(&exec, &environment),
            Ok(Arguments { tool: Tool::Hook(hook) }) => hook_tool::run_hook(&hook),
            Ok(Arguments { tool: Tool::Hooked(hooked) }) => hook_tool::run_hooked(hooked, &environment),
            Ok(Arguments { tool: Tool::Shell(shell) }) => shell_tool::run(&shell, &environment),
            Ok(Arguments { tool: Tool::WatchPty(watch) }) => watch_tool::run(&watch, &environment),
            Ok(Arguments { tool: Tool::TerminalLeader(leader) }) => {
                crate::capture::lead(&leader.words, leader.unread_to)
            }
            Ok(Arguments { tool: Tool::HookSupervisor(supervisor) }) => relay::supervise_hook(&supervisor.words),
            Ok(Arguments { tool: Tool::Requests(list) }) => requests::run_requests(&list, &environment),
            Ok(Arguments { tool: Tool::Show(show) }) => requests::run_show(&show, &environment),
            Ok(Arguments { tool: Tool::Respond(respond) }) => requests::run_respond(&respond, &environment),
            Ok(Arguments { tool: Tool::Send(send) }) => requests::run_send(send, &environment),
            Ok(Arguments { tool: Tool::Interrupt(interrupt) }) => requests::run_interrupt(interrupt, &environment),
            Ok(Arguments { tool: Tool::Wait(wait) }) => requests::run_wait(&wait, &environment),
            Ok(Arguments { tool: Tool::Prune(prune) }) => prune_tool::run(&prune, &environment),
            Ok(Arguments { tool: Tool::Redact(redact) }) => redact_tool::run(&redact, &environment),
            Ok(Arguments { tool: Tool::Events(events) }) => history::run_events(&events, &environment),
            Ok(Arguments { tool: Tool::Tail(tail) }) => history::run_tail(&tail, &environment),
            Ok(Arguments { tool: Tool::Children(children) }) => history::run_children(&children, &environment),
            Ok(Arguments { tool: Tool::Transcript(thread) }) => history::run_transcript(&thread, &environment),
            Ok(Arguments { tool: Tool::Fragments(fragments) }) => fragments_tool::run(&fragments, &environment),
            Ok(Arguments { tool: Tool::Tui(tui) }) => tui_tool::run(&tui, &environment),
            Ok(Arguments { tool: Tool::Config(config) }) => config_tool::run(&config, &environment),
            Ok(Arguments { tool: Tool::Doctor(doctor) }) => doctor::run(&doctor, &environment),
            Ok(Arguments { tool: Tool::Wrap(wrap) }) => wrap::run_wrap(&wrap, &environment),
            Ok(Arguments { tool: Tool::Unwrap(unwrap) }) => wrap::run_unwrap(&unwrap, &environment),
            Ok(Arguments { tool: Tool::Completions(completions) }) => {
                completions::run(&completions, Arguments::command())
            }
            Ok(Arguments { tool: Tool::Demo(demo) }) => demo::run(&demo, &environment),
            Ok(Arguments { tool: Tool::Tape(tape) }) => tape_tool::run(tape, &environment),
            Ok(Arguments { tool: Tool::Replay(replay) }) => replay_tool::run(&replay, &environment),
            Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
                let is_short = args.iter().any(|arg| arg == "-h");
                print_help(&args, !is_short)
            }
            Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let help = help::render(Arguments::command(), &args, false, screen::columns_of_stderr());
                let _ = write!(anstream::stderr(), "{help}");
                USAGE
            }
            // The version goes to stdout with status 0, a usage error to stderr with 2.
            Err(error) if !error.use_stderr() => {
                let _ = error.print();
                error.exit_code()
            }
            Err(error) => {
                let status = error.exit_code();
                let text = help::usage_error(error, Arguments::command(), &args, screen::columns_of_stderr());
                let _ = write!(anstream::stderr(), "{text}");
                status
            }
        },
    }
}

fn print_help(args: &[OsString], is_long: bool) -> i32 {
    let help = help::render(Arguments::command(), args, is_long, screen::columns(Screen::of_stdout_plain()));
    // The stream drops the styles if stdout is not a terminal.
    match write!(anstream::stdout(), "{help}") {
        Ok(()) => 0,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => 0,
        Err(_) => FAILED,
    }
}

/// Runs a relay in front of a server, or connects a client to one.
type RunRelay = fn(&ServerCommand, &Settings, &Environment, &[Complaint]) -> Result<Exit, RelayError>;

fn run_server(run: RunArguments, how: RunRelay, environment: &Environment) -> i32 {
    let RunArguments { codex, session, record, exit_grace, server } = run;
    let flags = Flags { codex, session, record, exit_grace };
    let Some((program, args)) = server.split_first() else {
        return relay_codex(vec!["app-server".into()], flags, how, environment);
    };
    let (settings, complaints) = Settings::load(flags, environment);
    let command = locate::check_depth(environment).and_then(|()| {
        let path = locate::server(program, environment)?;
        Ok(server_command(path, program, args.to_vec(), environment))
    });
    relay(command, &settings, &complaints, how, environment)
}

fn relay_codex(codex_args: Vec<OsString>, flags: Flags, how: RunRelay, environment: &Environment) -> i32 {
    let (settings, complaints) = Settings::load(flags, environment);
    relay(codex_command(codex_args, &settings, environment), &settings, &complaints, how, environment)
}

fn relay(
    command: Result<ServerCommand, LocateError>,
    settings: &Settings,
    complaints: &[Complaint],
    how: RunRelay,
    environment: &Environment,
) -> i32 {
    let command = match command {
        Ok(command) => command,
        Err(error) => return not_found(&error),
    };
    if settings.off.value {
        return cannot_start(&relay::become_server(&command));
    }
    match how(&command, settings, environment, complaints) {
        Ok(exit) => exit.status(),
        Err(error) => cannot_start(&error),
    }
}

fn become_codex(codex_args: Vec<OsString>, environment: &Environment) -> i32 {
    let (settings, _) = Settings::load(Flags::default(), environment);
    match codex_command(codex_args, &settings, environment) {
        Ok(command) => cannot_start(&relay::become_server(&command)),
        Err(error) => not_found(&error),
    }
}

fn codex_command(
    args: Vec<OsString>,
    settings: &Settings,
    environment: &Environment,
) -> Result<ServerCommand, LocateError> {
    locate::check_depth(environment)?;
    let Codex { program, path, notice } = locate::codex(settings, environment)?;
    if let Some(notice) = notice {
        say(&notice);
    }
    let name = program.clone().into_os_string();
    Ok(ServerCommand { path, ..server_command(program, &name, args, environment) })
}

fn server_command(
    program: std::path::PathBuf,
    name: &OsStr,
    args: Vec<OsString>,
    environment: &Environment,
) -> ServerCommand {
    ServerCommand { program, name: name.to_owned(), args, depth: environment.depth() + 1, path: None }
}

fn not_found(error: &LocateError) -> i32 {
    say(&error.to_string());
    NOT_FOUND
}

fn cannot_start(error: &RelayError) -> i32 {
    say(&error.to_string());
    match error {
        RelayError::Start { source, .. } if source.kind() == std::io::ErrorKind::NotFound => NOT_FOUND,
        RelayError::Start { .. } => CANNOT_RUN,
        RelayError::SetUp { .. } => FAILED,
    }
}

/// Prints one line to stderr, escaped.
fn say(what: &str) {
    const BEGINNING: &str = "codex-shim: ";
    let columns_max = screen::columns_of_stderr();
    let text = format!("{BEGINNING}{}", lines(what));
    let lines: Vec<String> = text.split('\n').map(|line| screen::wrapped(line, 0, 0, columns_max)).collect();
    let _ = writeln!(std::io::stderr(), "{}", lines.join("\n"));
}

/// Several lines, each escaped by [`screen::plain`].
fn lines(text: &str) -> String {
    text.replace('\t', "    ").split('\n').map(screen::plain).collect::<Vec<_>>().join("\n")
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
}
