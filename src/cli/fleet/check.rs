//! `codex-shim fleet check`: makes the streams and buckets of a fleet.

use clap::Args;
use serde_json::json;

use super::super::requests::print_json;
use super::super::screen;
use super::super::{CliError, Done};
use super::{Format, connect};
use crate::config::Environment;

/// Make the streams and buckets of a fleet, once
#[derive(Debug, Args)]
#[command(after_long_help = "\
It needs the credentials of the administrator.

Exit status: 0, or 1 if the server refuses.

Examples:
  codex-shim fleet check --set-up
  codex-shim fleet check --set-up --replicas 3")]
pub(in crate::cli) struct CheckArguments {
    /// Make the streams and buckets
    #[arg(long, required = true)]
    set_up: bool,
    /// Copies of each stream in a cluster
    #[arg(long, value_name = "N", default_value = "1", requires = "set_up")]
    replicas: usize,
    #[command(flatten)]
    format: Format,
}

pub(super) fn run(arguments: &CheckArguments, environment: &Environment) -> Done {
    let made = connect(environment)?.set_up(arguments.replicas).map_err(CliError::failed)?;
    if arguments.format.as_json {
        return Ok(print_json(&json!({ "streams": made })));
    }
    Ok(screen::print(&made.iter().map(|name| format!("{name} is there\n")).collect::<String>()))
}
