//! Our own arguments, and the text of `--help`. Arguments that belong to codex never come here: see [`super::dispatch`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};

pub(super) use super::capture_args::{
    ExecArguments, HookArguments, HookSupervisorArguments, HookedArguments, ShellArguments, ShellName,
    TerminalLeaderArguments, WatchPtyArguments,
};
use super::clock::Times;
use super::completions::CompletionsArguments;
pub(super) use super::context_args::{
    ContextClearArguments, ContextDropArguments, ContextPushArguments, ContextShowArguments, ContextTool,
};
use super::doctor::DoctorArguments;
use super::fragments_args::FragmentsArguments;
use super::history::{ChildrenArguments, EventsArguments, TailArguments, TranscriptArguments};
use super::prune_tool::PruneArguments;
use super::redact_tool::RedactArguments;
use super::requests::{
    InterruptArguments, RequestsArguments, RespondArguments, SendArguments, ShowRequestArguments, WaitArguments,
};
use super::session_args::SessionWord;
pub(super) use super::tape_args::{CheckArguments, ExportArguments, ReplayArguments, ShowArguments, TapeTool};
use super::wrap::{UnwrapArguments, WrapArguments};
use crate::config::{SessionName, parse_bool, parse_duration};

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
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) tool: Tool,
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
  CODEX_SHIM_OFF=1 codex app-server     no relay: run the real codex

`codex-shim COMMAND --help` explains a command and has examples of it.

Sessions are stored in $CODEX_SHIM_HOME (default: $XDG_STATE_HOME/codex-shim,
else ~/.local/state/codex-shim).";

#[derive(Debug, Subcommand)]
pub(super) enum Tool {
    /// Relay a server command on stdin and stdout
    #[command(after_long_help = "\
Settings that these options set also come from CODEX_SHIM_* variables and
config.toml; see `codex-shim config`.

Exit status: that of the server, or 128 + n if signal n ended it; 127 if there
is no such server.

Examples:
  codex-shim run                                 relay `codex app-server`
  codex-shim run --codex ~/bin/codex-0.169.0     relay that codex
  codex-shim run --session work -- my-server -x  relay any server
  codex-shim run -- ssh host codex app-server    relay a codex on another host")]
    Run(RunArguments),
    /// Run a server without a client, driven by commands
    ///
    /// codex-shim initializes the server, and restarts it if it dies. Then `send`, `requests`, `respond` and `interrupt` work
    /// as they do beside any client. A client can come and go with `attach`.
    #[command(after_long_help = "\
If the name of the session is in use, the session is called NAME.2, NAME.3, and
so on; the first line on stderr says which name it got.

Examples:
  codex-shim serve bot &
  codex-shim send --session bot --new --wait 'say hello'
  curl --unix-socket \"$S/control.sock\" -d '{\"method\":\"model/list\"}' \\
    http://shim/sessions/self/rpc")]
    Serve(ServeArguments),
    /// Connect a client on stdin/stdout to a server started by `serve`
    ///
    /// Start it in place of `codex app-server`. The client initializes as always and finds the threads that exist. The server
    /// keeps running when the client leaves. One client can be attached at a time.
    #[command(after_long_help = "\
Exit status:
  0  the client closed stdin
  1  the server ended, or another client is attached
  3  no such session
  4  the session is not running

Examples:
  codex-shim attach
  codex-shim attach bot")]
    Attach(AttachArguments),
    /// List sessions, live ones first
    #[command(after_long_help = "\
Examples:
  codex-shim sessions
  codex-shim sessions --utc
  codex-shim sessions --json | jq -r '.sessions[] | select(.live).session_id'")]
    Sessions(SessionsArguments),
    /// Show whether a session is healthy
    ///
    /// The first line is the verdict. The rest is what it is based on: relay, server, client, versions, journal, faults. With
    /// --json it prints the document that `GET /sessions/self` returns.
    #[command(after_long_help = "\
Without SESSION: the session in CODEX_SHIM_SESSION, else the live session
whose folder or repository contains the current folder, else the only live
session, else the session used last.

Exit status:
  0  the status is known, also that of a stopped session
  1  a relay is running and does not answer
  3  no such session

Examples:
  codex-shim status
  codex-shim status work
  codex-shim status --json | jq .faults")]
    Status(StatusArguments),
    /// Show the model what you did in a terminal, with your next message
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  codex-shim context show
  codex-shim context push --cmd 'make' --exit-code 2 --output-file out.txt
  codex-shim context drop latest"
    )]
    Context(ContextTool),
    /// Run a command and show the model what it printed
    ///
    /// The command runs in a terminal of its own and looks as it does without codex-shim: colours, size, keys, job control,
    /// full-screen programs. If stdin or stdout is not a terminal, it runs between pipes. The command, its status and the end
    /// of its output go to the model with your next message.
    #[command(after_long_help = "\
The output of full-screen programs and binary output is not kept. Text that
looks like a key or a password is masked. With --private or
CODEX_SHIM_PRIVATE=1 nothing is kept. Options of codex-shim stand before CMD.

Exit status: that of the command, or 128 + n if signal n ended it.

Examples:
  codex-shim exec cargo test
  codex-shim exec ls -l
  codex-shim exec sh -c 'make 2>&1 | tail'
  codex-shim exec --session work -- git log")]
    Exec(ExecArguments),
    /// Print shell code that shows the model the commands you type
    ///
    /// The text, status, folder and time of each command go to the model with your next message. The output does not: `exec`
    /// and `shell` keep that. Without a live session it keeps nothing.
    #[command(after_long_help = "\
A leading space keeps a command out, and so does CODEX_SHIM_PRIVATE=1.

Examples, for the file that your shell reads when it starts:
  eval \"$(codex-shim hook bash)\"       ~/.bashrc
  eval \"$(codex-shim hook zsh)\"        ~/.zshrc
  codex-shim hook fish | source         ~/.config/fish/config.fish")]
    Hook(HookArguments),
    /// Open a shell whose commands and output the model sees
    ///
    /// It is your own shell with your own settings, in a terminal of codex-shim, with the hook loaded.
    #[command(after_long_help = "\
Without a name it is the shell in SHELL. A leading space keeps a command out,
and so does CODEX_SHIM_PRIVATE=1.

Examples:
  codex-shim shell
  codex-shim shell zsh --session work")]
    Shell(ShellArguments),
    /// Follow an agent_pty events file and keep its commands as context
    ///
    /// It runs until you interrupt it, and keeps each block once. The setting `agent_pty` makes a relay do the same.
    #[command(after_long_help = "\
Without --all only your own commands are kept: blocks whose id begins with
`user:`.

Examples:
  codex-shim watch-pty ~/.cache/agent_pty/events.jsonl
  codex-shim watch-pty --all --session work events.jsonl")]
    WatchPty(WatchPtyArguments),
    /// Started by the hook of a shell
    #[command(hide = true)]
    Hooked(HookedArguments),
    /// Runs between `exec` and its command
    #[command(hide = true)]
    TerminalLeader(TerminalLeaderArguments),
    /// Runs between a relay and a command of `on_pending` or `on_idle`
    #[command(hide = true)]
    HookSupervisor(HookSupervisorArguments),
    // Their texts are beside their arguments.
    Requests(RequestsArguments),
    Show(ShowRequestArguments),
    Respond(RespondArguments),
    Send(SendArguments),
    Interrupt(InterruptArguments),
    Wait(WaitArguments),
    Doctor(DoctorArguments),
    Wrap(WrapArguments),
    Unwrap(UnwrapArguments),
    Completions(CompletionsArguments),
    Prune(PruneArguments),
    Redact(RedactArguments),
    Events(EventsArguments),
    Tail(TailArguments),
    Children(ChildrenArguments),
    Transcript(TranscriptArguments),
    Fragments(FragmentsArguments),
    /// Watch sessions, answer requests and send messages, full screen
    ///
    /// Without SESSION it lists all sessions; those waiting for you come first. `?` or F1 shows the keys.
    #[command(after_long_help = "\
What you type goes to the model only in the mode `chat`, which never answers a
request; ^R leads to the pending request. The last row names the mode and what
Enter does.

Exit status: 0, or 128 + n if signal n ended it; 2 without a terminal; 3 if
there is no such session.

Examples:
  codex-shim tui
  codex-shim tui work
  NO_COLOR=1 codex-shim tui work")]
    Tui(TuiArguments),
    /// Print every setting and where it comes from
    ///
    /// The output can be pasted into config.toml. A comment names the source of each setting.
    #[command(after_long_help = "\
A setting comes from a flag, else a CODEX_SHIM_* variable, else config.toml in
$CODEX_SHIM_HOME, else its default.

Exit status: 0, or 1 if a setting is not valid.

Examples:
  codex-shim config
  CODEX_SHIM_EXIT_GRACE=3s codex-shim config --json | jq .exit_grace")]
    Config(ConfigArguments),
    /// Show what codex-shim does, in a few seconds
    ///
    /// It needs nothing installed: it plays a bundled recording of the real codex behind a relay to a small client, and deletes
    /// everything afterwards.
    #[command(after_long_help = "\
Exit status: 0, or 1 if something does not work as promised.

Examples:
  codex-shim demo
  codex-shim demo --json | jq .held")]
    Demo(DemoArguments),
    /// Export, show and check recordings
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  codex-shim tape export work -o turn.jsonl
  codex-shim tape show turn.jsonl
  codex-shim tape check turn.jsonl"
    )]
    Tape(TapeTool),
    /// Play a recording as a server on stdin and stdout
    ///
    /// It matches the requests of a client to the tape by method and parameters; ids, paths and times may differ. Answers carry
    /// the client's ids. All other lines of the server are sent at the same places between the lines of the client.
    #[command(after_long_help = "\
A request that the tape lacks gets a JSON-RPC error that says so. Differences
are printed on stderr at the end.

Exit status: 0, or with --strict 1 if the client differs from the tape.

Examples:
  codex-shim replay fixtures/tapes/plain_turn.jsonl
  codex-shim replay --strict session.jsonl     a difference is an error
  codex-shim replay --speed 1 session.jsonl    as slowly as it was recorded
  codex-shim replay latest                     the recording made last")]
    Replay(ReplayArguments),
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// The real codex: a path, or a name on PATH
    #[arg(long, value_name = "PATH", conflicts_with = "server", value_hint = ValueHint::ExecutablePath)]
    pub(super) codex: Option<PathBuf>,
    /// Name of the session [default: the one that last ran in this folder]
    #[arg(long, id = "session", value_name = "NAME", add = super::complete::sessions())]
    pub(super) session: Option<SessionName>,
    /// Record messages: true or false [default: true]
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, action = ArgAction::Set)]
    pub(super) record: Option<bool>,
    /// Time that the server has to exit once its stdin is closed [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) exit_grace: Option<Duration>,
    /// Server command and its arguments [default: codex app-server]
    #[arg(last = true, value_name = "SERVER [ARG]", value_hint = ValueHint::CommandWithArguments)]
    pub(super) server: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// Name of the session [default: the one that last ran in this folder]
    #[arg(value_name = "NAME", conflicts_with = "session", add = super::complete::sessions())]
    name: Option<SessionName>,
    #[command(flatten)]
    run: RunArguments,
}

impl ServeArguments {
    pub(super) fn into_run(self) -> RunArguments {
        RunArguments { session: self.name.or(self.run.session), ..self.run }
    }
}

#[derive(Debug, Args)]
pub(super) struct AttachArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
}

#[derive(Debug, Args)]
pub(super) struct TuiArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
}

#[derive(Debug, Args)]
pub(super) struct SessionsArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) times: Times,
}

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) times: Times,
}

#[derive(Debug, Args)]
pub(super) struct DemoArguments {
    /// Print one JSON document at the end
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ConfigArguments {
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory as _;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
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
