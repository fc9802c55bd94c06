//! `codex-shim fleet` in a binary without it.

use std::ffi::OsString;

use clap::Args;

use super::{CliError, Done};

/// Sessions, requests and events of many machines in one place
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_long_help = "\
Example:
  codex-shim fleet"
)]
pub(super) struct FleetArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

/// Reports that this binary does not have the tool.
pub(super) fn run(_: &FleetArguments) -> Done {
    Err(CliError::failed("this binary was built without the fleet")
        .with_remedy("install it with `--features fleet`, or use a package"))
}
