//! `codex-shim fleet agent`: the process beside the relays of a host. It gets the functions that read stopped sessions from here.

use std::time::{Duration, SystemTime};

use clap::Args;

use super::super::offline::{self, OfflineSession, Past};
use super::super::requests::kept_request;
use super::super::{CliError, Done, say};
use crate::api::{Cursor, Moment, RequestDocument, SessionUsage, UsageQuery};
use crate::config::{Environment, FleetLevel};
use crate::fleet::{Agent, AgentError, AgentOptions, ReadPage, ReadStopped};
use crate::store::Found;

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
    let options = AgentOptions { home, member, stopped: ReadStopped { open, usage, request }, say };
    let agent = Agent::start(options).map_err(not_started)?;
    say(&begins);
    agent.run().map(|()| 0).map_err(not_started)
}

fn not_started(error: AgentError) -> CliError {
    CliError::failed(error.to_string())
}

/// The history of a stopped session; `None` without a recording, or if a relay runs by now.
fn past(session: &Found) -> Result<Option<OfflineSession>, String> {
    let door = offline::door(&Environment::of_process());
    match OfflineSession::open(session, door).map_err(|error| error.to_string())? {
        Past::Stopped(past) => Ok(Some(past)),
        Past::Live | Past::NothingRecorded => Ok(None),
    }
}

fn open(session: &Found) -> Result<Option<ReadPage>, String> {
    let Some(past) = past(session)? else { return Ok(None) };
    let page = move |after: &Cursor, limit: u64| {
        Ok(past.history.events(Some(after), limit, 0, false).map_err(|error| error.to_string())?.verbatim())
    };
    Ok(Some(Box::new(page)))
}

fn request(session: &Found, id: &str) -> Result<Option<RequestDocument>, String> {
    kept_request(session, id).map_err(|error| error.to_string())
}

fn usage(session: &Found, query: &UsageQuery) -> Result<SessionUsage, String> {
    let is_before = |Moment(at_us)| session.last_used < SystemTime::UNIX_EPOCH + Duration::from_micros(at_us);
    if query.since.is_some_and(is_before) {
        return Ok(SessionUsage::default());
    }
    let Some(past) = past(session)? else { return Ok(SessionUsage::default()) };
    past.history.usage(query, 0).map_err(|error| error.to_string())
}
