//! The arguments of `codex-shim fragments`.

use clap::Args;

use super::clock::Times;
use super::session_args::SessionWord;

/// Show the fragments that each thread has been sent
///
/// Fragments are set in config.toml, under [[fragments]]. A thread gets each one whole, and again once it has changed.
/// `developer_addition` is the developer text of a context engine.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim fragments
  codex-shim fragments work
  codex-shim fragments --json | jq -r '.threads[].fragments[].name'")]
pub(super) struct FragmentsArguments {
    #[command(flatten)]
    pub(super) session: SessionWord,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) times: Times,
}
