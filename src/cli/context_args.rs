//! The arguments of `codex-shim context`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::clock::Times;
use super::complete;
use super::numbers::signed;
use super::session_args::{SessionFlag, SessionWord};

#[derive(Debug, Subcommand)]
pub(super) enum ContextTool {
    /// Show the commands and output that the next message will carry
    ///
    /// Each command has a number for `context drop`. With --last it prints what the model saw with the last message.
    #[command(after_long_help = "\
Examples:
  codex-shim context show
  codex-shim context show --last
  codex-shim context show --json | jq -r '.commands[].cmd'")]
    Show(ContextShowArguments),
    /// Show the model a command with your next message
    ///
    /// It keeps only the end of the output. If no client is running, the command waits for the next start of the session.
    #[command(after_long_help = "\
Examples:
  codex-shim context push --cmd 'make' --exit-code 2 --output-file out.txt
  uname -a | codex-shim context push --cmd 'uname -a' --output-file -")]
    Push(ContextPushArguments),
    /// Remove one command, so that the model does not see it
    #[command(after_long_help = "\
Exit status: 0, or 1 if no such command is waiting.

Examples:
  codex-shim context drop 17              the number that `context show` prints
  codex-shim context drop latest          the last command")]
    Drop(ContextDropArguments),
    /// Remove all commands, so that the model does not see them
    #[command(after_long_help = "\
Examples:
  codex-shim context clear
  codex-shim context clear work")]
    Clear(ContextClearArguments),
}

#[derive(Debug, Args)]
pub(super) struct ContextShowArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Print what the model saw last, exactly
    #[arg(long)]
    pub(super) last: bool,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) times: Times,
}

#[derive(Debug, Args)]
pub(super) struct ContextPushArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// The command, as it was typed
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) cmd: OsString,
    /// Its exit status
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = signed)]
    pub(super) exit_code: Option<i64>,
    /// Folder that it ran in [default: the current folder]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) cwd: Option<PathBuf>,
    /// File with its output; `-` reads stdin
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output_file: Option<PathBuf>,
    /// Only for this thread: its id, a unique beginning of it, or `latest`
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    pub(super) thread: Option<String>,
    /// When it ran, in milliseconds since 1970 [default: now]
    #[arg(long, value_name = "MS", allow_hyphen_values = true, value_parser = signed)]
    pub(super) ts: Option<i64>,
    /// An id of your own for this command
    #[arg(long, value_name = "ID")]
    pub(super) block_id: Option<String>,
    /// An id of your own for the shell
    #[arg(long, value_name = "ID")]
    pub(super) shell_id: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ContextDropArguments {
    /// Number of the command in `context show`, or `latest`
    #[arg(value_name = "N")]
    pub(super) command: String,
    #[command(flatten)]
    pub(super) session: SessionFlag,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ContextClearArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}
