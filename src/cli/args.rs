//! Our own arguments. What belongs to codex never comes here: see [`super::dispatch`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};

pub(super) use super::capture_args::{
    ExecArguments, HookArguments, HookKeeperArguments, HookedArguments, ShellArguments, ShellName,
    TerminalLeaderArguments, WatchPtyArguments,
};
use super::completions::CompletionsArguments;
use super::doctor::DoctorArguments;
use super::fragments_args::FragmentsArguments;
use super::history::{ChildrenArguments, EventsArguments, TailArguments, TranscriptArguments};
use super::prune_tool::PruneArguments;
use super::redact_tool::RedactArguments;
use super::requests::{
    InterruptArguments, RequestsArguments, RespondArguments, SendArguments, ShowRequestArguments, WaitArguments,
};
use super::wrap::{UnwrapArguments, WrapArguments};
use crate::config::{SessionName, parse_bool, parse_duration};
use crate::replay::Pace;

/// Stand between a client and `codex app-server`: every line on record, your terminal shown to the model, no approval lost
///
/// Point any client of `codex app-server` at this program instead of codex. It starts the real one and passes every
/// byte on in both directions, after it has put the line on record. The client notices nothing and the server notices
/// nothing.
#[derive(Debug, Parser)]
#[command(name = "codex-shim", version, after_long_help = AFTER_HELP, arg_required_else_help = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) tool: Tool,
}

const AFTER_HELP: &str = "\
Ways to start a relay:
  codex-shim                        in front of `codex app-server`, where stdin is no terminal
  codex-shim [-c K=V] app-server …  the same, with every argument handed to codex as it is
  codex-shim run -- SERVER ARG…     in front of any server that speaks lines on stdio
  a link called `codex`             stands in for codex: app-server is relayed, all else becomes codex

Examples:
  codex-shim run --session work
  codex-shim run -- ssh host codex app-server
  CODEX_SHIM_OFF=1 codex-shim app-server     no relay at all: becomes codex at once
  codex-shim exec -- make                    the model will know of it; `hook` has it know all that you type
  codex-shim status                          is all well with the relay that runs here?
  codex-shim requests                        what waits for an answer; `respond` gives it
  codex-shim prune --dry-run                 what is kept longer than it need be
  codex-shim redact --all                    mask the secrets in what is stored
  codex-shim events -f                       what happens; `tail` is what is done, `transcript` what was said
  codex-shim tui                             all of it on the whole terminal

What was relayed is in $CODEX_SHIM_HOME (default: $XDG_STATE_HOME/codex-shim, else ~/.local/state/codex-shim),
in sessions/<session>/journal, one line of JSON a record.";

#[derive(Debug, Subcommand)]
pub(super) enum Tool {
    /// Relay in front of a server command
    #[command(after_long_help = "\
Examples:
  codex-shim run                                   in front of `codex app-server`
  codex-shim run --codex ~/bin/codex-0.169.0       in front of that one
  codex-shim run --session work -- my-server --x   in front of any server")]
    Run(RunArguments),
    /// Run a server with no client, driven through the control socket
    ///
    /// The server is initialized, and started again where it ends by itself. Threads are started with `rpc` at the control
    /// socket; then `send`, `interrupt`, `requests` and `respond` work as beside any client. A client may come and go with
    /// `attach`.
    #[command(after_long_help = "\
Examples:
  codex-shim serve --session bot &
  curl --unix-socket \"$S/control.sock\" http://shim/sessions/self/rpc -d '{\"method\":\"thread/start\",\"params\":{}}'
  codex-shim send --session bot 'say hello'")]
    Serve(RunArguments),
    /// Be the server of a client on stdin and stdout, with the server that `serve` runs
    ///
    /// Start it in the place of `codex app-server`. The client initializes as always, is answered what the server answered to
    /// `serve`, and finds the threads that there are; the server goes on when it leaves. One client is attached at a time.
    #[command(after_long_help = "\
Without --session: the session in CODEX_SHIM_SESSION, else the live one whose working directory or repository
holds ours, else the only live one.

Exit status: 0 the client has closed our stdin, 1 the server or the shim has ended, or a client is attached already,
3 there is no such session, 4 it is not running.

Examples:
  codex-shim attach
  codex-shim attach --session bot
  codex-shim send --session bot 'go on' ; codex-shim attach --session bot     thread/resume shows what came of it")]
    Attach(AttachArguments),
    /// List the sessions, live ones first
    ///
    /// One line each: id, live or stopped, what it does, since when, the relay's pid, the working directory.
    #[command(after_long_help = "\
Examples:
  codex-shim sessions
  codex-shim sessions --json | jq -r '.sessions[] | select(.live) | .session_id'")]
    Sessions(SessionsArguments),
    /// Tell whether all is well with a session
    ///
    /// The first line says it, the rest why: relay, server, client, versions, journal, faults, control socket.
    /// With --json, a live session's own document, as `GET /sessions/self` on its control socket gives it.
    #[command(after_long_help = "\
Without --session: the session in CODEX_SHIM_SESSION, else the live one whose working directory or repository
holds ours, else the only live one, else the one that was used last.

Exit status: 0 it could be told, 1 a relay runs and does not answer, 3 there is no such session.

Examples:
  codex-shim status
  codex-shim status --session work
  codex-shim status --json | jq .faults")]
    Status(StatusArguments),
    /// Show the model what you did in a terminal, with your next message
    #[command(
        subcommand,
        after_long_help = "\
Examples:
  codex-shim context show
  codex-shim context push --cmd 'cargo test' --exit-code 101 --output-file out.txt"
    )]
    Context(ContextTool),
    /// Run a command as always, and show the model what it did
    ///
    /// It runs in a terminal of its own and is shown as without us: colours, size, keys, job control, full-screen programs.
    /// Where stdin or stdout is no terminal it runs between pipes. The command, its status and the end of its output go to
    /// the model with your next message.
    #[command(after_long_help = "\
Of a full-screen program and of binary output only that it was one is kept. What looks like a key or a password is masked.
The exit status is the command's, or 128 and the number of the signal that ended it, whatever becomes of the context.
With --private, or CODEX_SHIM_PRIVATE=1, the command runs and nothing is kept.

Examples:
  codex-shim exec -- cargo test
  codex-shim exec -- sh -c 'make 2>&1 | tail'
  codex-shim exec --session work -- git log")]
    Exec(ExecArguments),
    /// Print what a shell is to evaluate, so that the model knows what is typed there
    ///
    /// Each command goes to the model with your next message: its text, status, folder and time; not its output, for which
    /// there are `exec` and `shell`. Where no session is live nothing is kept, and nothing is said.
    #[command(after_long_help = "\
Examples, in the file that your shell reads at its start, or once by hand:
  bash (~/.bashrc), zsh (~/.zshrc):      eval \"$(codex-shim hook bash)\"      eval \"$(codex-shim hook zsh)\"
  fish (~/.config/fish/config.fish):     codex-shim hook fish | source

A leading space keeps a command out, as does CODEX_SHIM_PRIVATE=1 in front of it or in the shell.")]
    Hook(HookArguments),
    /// Open a shell whose commands the model knows, with their output
    ///
    /// Your own shell with your own settings, in a terminal of ours, with the hook loaded. It ends like any shell.
    #[command(after_long_help = "\
Without a name it is the shell in SHELL. A leading space keeps a command out, as does CODEX_SHIM_PRIVATE=1.

Examples:
  codex-shim shell
  codex-shim shell zsh --session work")]
    Shell(ShellArguments),
    /// Follow the events of an agent_pty, and show the model what was run there
    ///
    /// Runs until it is interrupted. Each block is kept once, also when it is started again. The setting agent_pty has a
    /// relay do the same.
    #[command(after_long_help = "\
Only what you ran yourself is taken (blocks whose id begins with `user:`), unless --all is given.

Examples:
  codex-shim watch-pty ~/.cache/app_server/conversations/ID/agent_pty/events.jsonl
  codex-shim watch-pty --all --session work events.jsonl")]
    WatchPty(WatchPtyArguments),
    /// What the hook of a shell starts
    #[command(hide = true)]
    Hooked(HookedArguments),
    /// What stands between `exec` and its command
    #[command(hide = true)]
    TerminalLeader(TerminalLeaderArguments),
    /// What stands between a relay and a command of `on_pending` or `on_idle`
    #[command(hide = true)]
    HookKeeper(HookKeeperArguments),
    // What these are for stands with their arguments.
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
    /// See what happens in a session, answer what it asks, and speak to it, on the whole terminal
    ///
    /// Without a session it lists them all, those first that wait for you. `?` or F1 shows every key.
    #[command(after_long_help = "\
What is typed is said to the model only in the mode `chat`, which never answers a request; ^R leads to what waits.
The last row tells the mode, and what Enter does.

Exit status: 0 it was left, 128 and its number where a signal ended it, 2 there is no terminal, 3 there is no such
session.

Examples:
  codex-shim tui
  codex-shim tui work
  NO_COLOR=1 codex-shim tui work")]
    Tui(TuiArguments),
    /// Print every setting with its source
    #[command(after_long_help = "\
Settings come from flags, then CODEX_SHIM_* variables, then config.toml in our home, then defaults.

Examples:
  codex-shim config
  CODEX_SHIM_EXIT_GRACE=3s codex-shim config --json")]
    Config(ConfigArguments),
    /// Show what it does, in a few seconds, with nothing installed
    #[command(after_long_help = "\
A bundled recording of the real codex is played behind a relay to a small client. Nothing is left behind. What does not
come out as promised makes it fail.

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
  codex-shim tape check turn.jsonl"
    )]
    Tape(TapeTool),
    /// Play a recording as a server on stdin and stdout
    #[command(after_long_help = "\
A client's requests are matched to the tape by method and parameters; ids, paths and times may differ. Answers carry the
client's ids; everything else that the server said goes out where it stood between the client's lines. What the tape does
not have is answered with a JSON-RPC error that says so. Differences are told on stderr at the end.

Examples:
  codex-shim replay fixtures/tapes/plain_turn.jsonl
  codex-shim replay --strict session.jsonl          a difference is an error: it is shown, and the status is 1
  codex-shim replay --speed 1 session.jsonl         as slowly as it was recorded")]
    Replay(ReplayArguments),
}

#[derive(Debug, Subcommand)]
pub(super) enum ContextTool {
    /// List the commands that wait to be shown to the model
    ///
    /// They go with the next message of whichever client is relayed in the session. With --last, print what the model
    /// was shown with the last one.
    #[command(after_long_help = "\
Examples:
  codex-shim context show
  codex-shim context show --last
  codex-shim context show --json | jq -r '.commands[].cmd'")]
    Show(ContextShowArguments),
    /// Have a command shown to the model with the next message
    ///
    /// Of its output the end is kept. It works beside a client that runs, and where none does: then it waits for the next
    /// start of the session.
    #[command(after_long_help = "\
Examples:
  codex-shim context push --cmd 'cargo test' --exit-code 101 --output-file out.txt
  make 2>&1 | tee out.txt; codex-shim context push --cmd make --exit-code ${PIPESTATUS[0]} --output-file out.txt
  uname -a | codex-shim context push --cmd 'uname -a' --output-file -")]
    Push(ContextPushArguments),
    /// Forget the commands that wait
    #[command(after_long_help = "\
Examples:
  codex-shim context clear
  codex-shim context clear --session work")]
    Clear(ContextClearArguments),
}

#[derive(Debug, Args)]
pub(super) struct ContextShowArguments {
    /// What the model was shown last, as it saw it
    #[arg(long)]
    pub(super) last: bool,
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ContextPushArguments {
    /// What was typed
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) cmd: OsString,
    /// Its exit status
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(super) exit_code: Option<i64>,
    /// Where it ran; without it, here
    #[arg(long, value_name = "DIR")]
    pub(super) cwd: Option<PathBuf>,
    /// A file with its output; `-` is stdin
    #[arg(long, value_name = "FILE")]
    pub(super) output_file: Option<PathBuf>,
    /// Only for this thread
    #[arg(long, value_name = "THREAD")]
    pub(super) thread: Option<String>,
    /// When it ran, in milliseconds since 1970; without it, now
    #[arg(long, value_name = "MS")]
    pub(super) ts: Option<i64>,
    /// What you call it
    #[arg(long, value_name = "ID")]
    pub(super) block_id: Option<String>,
    /// What you call the shell
    #[arg(long, value_name = "ID")]
    pub(super) shell_id: Option<String>,
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ContextClearArguments {
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum TapeTool {
    /// Write a session's recording as a tape that is of no machine
    ///
    /// Paths, names, ids and times are replaced, each by the same thing wherever it stands. Without --generation, the
    /// last run of the session is written.
    #[command(after_long_help = "\
Examples:
  codex-shim tape export -o turn.jsonl
  codex-shim tape export work --thread 0192… --redact -o turn.jsonl")]
    Export(ExportArguments),
    /// List what is on a tape or in a session's journal
    #[command(after_long_help = "\
Examples:
  codex-shim tape show turn.jsonl
  codex-shim tape show work --method approval
  codex-shim tape show work --follow --from server
  codex-shim tape show turn.jsonl --record 12        that one in full")]
    Show(ShowArguments),
    /// Tell whether a tape is whole, and what it lacks
    #[command(after_long_help = "\
Examples:
  codex-shim tape check turn.jsonl")]
    Check(CheckArguments),
}

#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    /// The session, or a unique beginning of its name
    #[arg(value_name = "SESSION")]
    pub(super) place: Option<String>,
    /// The same
    #[arg(long, value_name = "SESSION", conflicts_with = "place")]
    pub(super) session: Option<String>,
    /// Only this thread, and what belongs to none
    #[arg(long, value_name = "THREAD")]
    pub(super) thread: Option<String>,
    /// This run of the server, as in the names of the journal's files
    #[arg(long, value_name = "GENERATION")]
    pub(super) generation: Option<String>,
    /// Mask what looks like a key or a token
    #[arg(long)]
    pub(super) redact: bool,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,
    /// Tell what was written as one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// A tape's file, or a session or a unique beginning of its name
    #[arg(value_name = "FILE|SESSION")]
    pub(super) source: Option<String>,
    /// The session, or a unique beginning of its name
    #[arg(long, value_name = "SESSION", conflicts_with = "source")]
    pub(super) session: Option<String>,
    /// Only what this side wrote: client, server or shim
    #[arg(long, value_name = "SIDE", value_parser = ["client", "server", "shim"])]
    pub(super) from: Option<String>,
    /// Only this kind
    #[arg(long, value_name = "KIND", value_parser = ["header", "request", "notification", "response", "text", "omitted", "event", "gap"])]
    pub(super) kind: Option<String>,
    /// Only where the method has this in it
    #[arg(long, value_name = "WORD")]
    pub(super) method: Option<String>,
    /// Only this thread
    #[arg(long, value_name = "THREAD")]
    pub(super) thread: Option<String>,
    /// Only the record of this number, in full
    #[arg(long, value_name = "N")]
    pub(super) record: Option<u64>,
    /// Go on with what is recorded from now on
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Print one JSON document a line
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// The tape
    pub(super) file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArguments {
    /// The tape
    pub(super) file: PathBuf,
    /// How fast: max, or a number of times as fast as it was recorded
    #[arg(long, value_name = "SPEED", default_value = "max")]
    pub(super) speed: Pace,
    /// Take a difference from the tape as an error
    #[arg(long)]
    pub(super) strict: bool,
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// The real codex, as a path or a name on PATH
    #[arg(long, value_name = "PATH", conflicts_with = "server")]
    pub(super) codex: Option<PathBuf>,
    /// The session to run in
    ///
    /// Without it, the session that last ran with the same working directory, CODEX_HOME and server, else a new one.
    /// Where another relay runs in that session, the name gets a number.
    #[arg(long, value_name = "NAME")]
    pub(super) session: Option<SessionName>,
    /// Keep a journal
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, action = ArgAction::Set)]
    pub(super) record: Option<bool>,
    /// How long the server may take to end after the client has closed our stdin
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) exit_grace: Option<Duration>,
    /// The server command; without it, `codex app-server`
    #[arg(last = true, value_name = "SERVER [ARG]")]
    pub(super) server: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(super) struct AttachArguments {
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct TuiArguments {
    /// The session, or the beginning of its name
    #[arg(value_name = "SESSION")]
    pub(super) place: Option<String>,
    /// The same
    #[arg(long, value_name = "SESSION", conflicts_with = "place")]
    pub(super) session: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct SessionsArguments {
    /// Only this session, or the one whose name begins so
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct DemoArguments {
    /// Print what was shown as one JSON document at the end
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
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    /// Looks through a command and all below it; returns how many there are.
    fn check_examples(command: &clap::Command, path: &str) -> usize {
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let (_, examples) = help.split_once("Example").unwrap_or_else(|| panic!("{path} has no example in its help"));
        assert!(examples.contains(path), "no example of {path} is of it:\n{examples}");
        let below = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
        1 + below.map(|below| check_examples(below, &format!("{path} {}", below.get_name()))).sum::<usize>()
    }

    #[test]
    fn every_command_has_an_example_of_it_in_its_help() {
        assert!(check_examples(&Arguments::command(), "codex-shim") > 30);
    }
}
