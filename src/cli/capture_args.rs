//! The arguments of what keeps a terminal as context.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(super) struct ExecArguments {
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Only for this thread
    #[arg(long, value_name = "THREAD")]
    pub(super) thread: Option<String>,
    /// Keep nothing
    #[arg(long)]
    pub(super) private: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD [ARG]")]
    pub(super) words: Vec<OsString>,
}

/// A shell, by its name.
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
    /// The shell: bash, zsh or fish, as a path or a name on PATH
    #[arg(value_name = "SHELL")]
    pub(super) shell: Option<PathBuf>,
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct WatchPtyArguments {
    /// The file with the events; it need not be there yet
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Print each command that is read as one JSON document a line
    #[arg(long)]
    pub(super) json: bool,
    /// Also take what the agent ran
    #[arg(long)]
    pub(super) all: bool,
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
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
pub(super) struct HookKeeperArguments {
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
