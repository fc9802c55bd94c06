//! Our own arguments. What belongs to codex never comes here: see [`super::dispatch`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::config::{SessionName, parse_bool, parse_duration};

/// Stand between a client and `codex app-server`: change not one byte, have every line on record
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
  codex-shim status                          is all well with the relay that runs here?

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
    /// Print every setting with its source
    #[command(after_long_help = "\
Settings come from flags, then CODEX_SHIM_* variables, then config.toml in our home, then defaults.

Examples:
  codex-shim config
  CODEX_SHIM_EXIT_GRACE=3s codex-shim config --json")]
    Config(ConfigArguments),
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
pub(super) struct SessionsArguments {
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
}
