//! The arguments of the tape tools.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::complete;
use super::numbers::whole;
use super::session_args::SessionWord;
use crate::replay::Pace;

#[derive(Debug, Subcommand)]
pub(super) enum TapeTool {
    /// Write the recording of a session as a tape without personal data
    ///
    /// Paths, names, ids and times are replaced, each by the same thing wherever it stands.
    #[command(after_long_help = "\
Examples:
  codex-shim tape export -o turn.jsonl
  codex-shim tape export work --thread 0192… --redact -o turn.jsonl
  codex-shim tape export work --generation 6b02d1 -o run.jsonl")]
    Export(ExportArguments),
    /// List the records of a tape or of a session
    #[command(after_long_help = "\
Examples:
  codex-shim tape show turn.jsonl
  codex-shim tape show work --method approval
  codex-shim tape show latest --follow --from server
  codex-shim tape show turn.jsonl --record 12      print that record in full")]
    Show(ShowArguments),
    /// Check whether a tape is complete
    #[command(after_long_help = "\
Exit status: 0 if it is, 1 if it is not or is not a tape.

Examples:
  codex-shim tape check turn.jsonl
  codex-shim tape check latest               the recording made last")]
    Check(CheckArguments),
}

#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Only this thread, and messages that belong to no thread
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    pub(super) thread: Option<String>,
    /// Run of the server: a unique beginning of its id [default: latest]
    #[arg(long, value_name = "GENERATION")]
    pub(super) generation: Option<String>,
    /// Mask text that looks like a key or a token
    #[arg(long)]
    pub(super) redact: bool,
    /// File to write
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// A tape, or a session: its name, a unique beginning of it, or `latest`
    #[arg(value_name = "FILE|SESSION", add = complete::sessions_and_files())]
    pub(super) source: Option<String>,
    /// Session, if the word could be taken for a file
    #[arg(long, value_name = "SESSION", conflicts_with = "source", add = complete::sessions())]
    pub(super) session: Option<String>,
    /// Only records of this side
    #[arg(long, value_name = "SIDE", value_parser = ["client", "server", "shim"])]
    pub(super) from: Option<String>,
    /// Only records of this kind
    #[arg(long, value_name = "KIND", value_parser = ["header", "request", "notification", "response", "text", "omitted", "event", "gap"])]
    pub(super) kind: Option<String>,
    /// Only records whose method contains WORD, in capitals or not
    #[arg(long, value_name = "WORD")]
    pub(super) method: Option<String>,
    /// Only this thread: its id, the beginning of it, or `latest`
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    pub(super) thread: Option<String>,
    /// Only record number N, in full
    #[arg(long, value_name = "N", value_parser = whole)]
    pub(super) record: Option<u64>,
    /// Keep printing records as they are written
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Print one JSON document per line
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// The tape, or `latest`
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArguments {
    /// The tape, or `latest`
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Speed: max, or N times as fast as it was recorded
    #[arg(long, value_name = "SPEED", default_value = "max")]
    pub(super) speed: Pace,
    /// Treat a difference from the tape as an error
    #[arg(long)]
    pub(super) strict: bool,
}
