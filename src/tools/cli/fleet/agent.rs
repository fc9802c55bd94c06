//! `codex-shim fleet agent`: the process beside the relays of a host.

use clap::Args;

use super::super::{CliError, Done, say};
use crate::config::{Environment, FleetLevel};
use crate::fleet::{Agent, AgentError, AgentOptions};

/// Ship this host's events to the fleet, and answer its questions
///
/// Runs beside the relays until a signal ends it. Events that relays record while it or the server is away follow later, oldest
/// first. The setting `fleet.level` says what leaves the machine; secrets are masked at each level.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A session that has ended before the first start of an agent is not shipped.

Exit status: 0 after a signal, or 1 if another agent runs for this home, or if
the settings in `[fleet]` are not valid.

Examples:
  codex-shim fleet agent
  CODEX_SHIM_FLEET_HOST=build-7 codex-shim fleet agent")]
pub(in crate::cli) struct AgentArguments {}

pub(super) fn run(_: &AgentArguments, environment: &Environment) -> Done {
    let member = super::member(environment)?;
    let home = environment.shim_home().value.ok_or_else(CliError::no_home)?;
    let what = match member.level {
        FleetLevel::Summary => "no output, no diff and no message text leaves it",
        FleetLevel::Full => "everything leaves it, secrets masked",
    };
    let begins = format!("host {} ships its events to {}: {what}", member.host, member.url);
    let agent = Agent::start(AgentOptions { home, member, say }).map_err(not_started)?;
    say(&begins);
    agent.run().map(|()| 0).map_err(not_started)
}

fn not_started(error: AgentError) -> CliError {
    CliError::failed(error.to_string())
}
