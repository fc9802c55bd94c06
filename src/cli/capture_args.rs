//! The arguments of the tools that keep terminal commands as context.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::complete;
use super::session_args::SessionFlag;

#[derive(Debug, Args)]
pub(super) struct ExecArguments {
    #[command(flatten)]
    pub(super) session: SessionFlag,
    /// Only for this thread: its id, a unique beginning of it, or `latest`
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    pub(super) thread: Option<String>,
    /// Keep nothing
    #[arg(long)]
    pub(super) private: bool,
    /// Command and its arguments
    #[arg(
        trailing_var_arg = true,
        required = true,
        value_names = ["CMD", "ARG"],
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(super) words: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ShellName {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub(super) struct HookArguments {
    /// The shell
    #[arg(value_enum)]
    pub(super) shell: ShellName,
}

#[derive(Debug, Args)]
pub(super) struct ShellArguments {
    /// bash, zsh or fish: a path, or a name on PATH [default: $SHELL]
    #[arg(value_name = "SHELL", value_hint = ValueHint::ExecutablePath)]
    pub(super) shell: Option<PathBuf>,
    #[command(flatten)]
    pub(super) session: SessionFlag,
}

#[derive(Debug, Args)]
pub(super) struct WatchPtyArguments {
    /// File with the events; it may be created later
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Print each command as one JSON document per line
    #[arg(long)]
    pub(super) json: bool,
    /// Keep the commands of the agent, too
    #[arg(long)]
    pub(super) all: bool,
    #[command(flatten)]
    pub(super) session: SessionFlag,
}

#[derive(Debug, Args)]
pub(super) struct HookedArguments {
    #[arg(value_enum)]
    pub(super) shell: ShellName,
    #[arg(long, allow_hyphen_values = true)]
    pub(super) exit_code: i64,
    #[arg(long, allow_hyphen_values = true)]
    pub(super) cwd: OsString,
    #[arg(long, default_value = "")]
    pub(super) began: String,
    #[arg(long, default_value = "")]
    pub(super) ended: String,
    #[arg(long, default_value = "")]
    pub(super) took: String,
    #[arg(long)]
    pub(super) key: String,
    #[arg(long)]
    pub(super) again: bool,
}

#[derive(Debug, Args)]
pub(super) struct HookSupervisorArguments {
    #[arg(last = true, required = true)]
    pub(super) words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(super) struct TerminalLeaderArguments {
    #[arg(long)]
    pub(super) unread_to: Option<std::os::fd::RawFd>,
    #[arg(last = true, required = true)]
    pub(super) words: Vec<OsString>,
}
