//! What `codex-shim fragments` is told on the command line.

use clap::Args;

/// Show what each thread has been told besides your words
///
/// Fragments are set in config.toml, under [[fragments]]. A thread is told each of them whole, and again once it has
/// changed. `developer_addition` is what a context engine has had the developer say.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim fragments
  codex-shim fragments --json | jq -r '.threads[] | .thread_id as $t | .fragments[] | [$t, .name, .at] | @tsv'")]
pub(super) struct FragmentsArguments {
    /// The session, or the beginning of its name
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}
