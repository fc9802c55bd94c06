//! `codex-shim audit`: every request, answer and overruling of all sessions as a file whose lines are chained by hashes, and the check of
//! such a file.
//!
//! The ledgers are only read, in live sessions too. See `docs/audit.md` for the format.

mod csv;
mod export;
mod ledgers;
mod line;
mod verify;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::Done;
use super::select_session::SessionFlag;
use super::since::SinceFlag;
use crate::config::Environment;

#[derive(Debug, Subcommand)]
pub(super) enum AuditTool {
    Export(ExportArguments),
    Verify(VerifyArguments),
}

/// Write every request, answer and overruling as a chain of lines
///
/// Oldest first, over all sessions. Each line has the hash of the previous line, so every change of a line changes the last hash.
/// Secrets with a known shape are masked, and secret answers are never recorded.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0, or 1 if a ledger cannot be read or the file cannot be written,
or 3 if there is no such session.

Examples:
  codex-shim audit export -o audit.jsonl
  codex-shim audit export --since 7d --format csv -o week.csv
  codex-shim audit export | jq -r 'select(.won == false) | .by'")]
pub(super) struct ExportArguments {
    #[command(flatten)]
    session: SessionFlag,
    #[command(flatten)]
    since: SinceFlag,
    /// Format [default: by the name of FILE, else jsonl]
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<Format>,
    /// File to write, for you alone [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "output")]
    force: bool,
    /// Print one JSON document about the file
    #[arg(long = "json", requires = "output")]
    as_json: bool,
}

/// Check that a file is unchanged and agrees with the ledgers
///
/// Reports the first broken line, lines that the ledgers lack or that differ from them, and requests and answers of its period that
/// the file lacks. Sessions that were deleted since cannot be compared.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit status: 0 if the file is intact, or 1 if it is not or cannot be read.

Examples:
  codex-shim audit verify audit.jsonl
  codex-shim audit verify week.csv --json | jq .problems")]
pub(super) struct VerifyArguments {
    /// File that `audit export` has written
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The hash of the last line, if you have kept it elsewhere
    #[arg(long, value_name = "HASH")]
    last_hash: Option<String>,
    /// Print one JSON document
    #[arg(long = "json")]
    as_json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// One JSON document per line
    Jsonl,
    /// A table for a spreadsheet
    Csv,
}

impl Format {
    /// The format for the name of a file.
    fn of_name(path: Option<&Path>) -> Format {
        let extension = path.and_then(Path::extension).is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        if extension { Format::Csv } else { Format::Jsonl }
    }
}

/// Runs one of the tools.
pub(super) fn run(tool: &AuditTool, environment: &Environment) -> Done {
    match tool {
        AuditTool::Export(arguments) => export::run(arguments, environment),
        AuditTool::Verify(arguments) => verify::run(arguments, environment),
    }
}
