//! The request tools: list, show, respond, send, interrupt and wait.
//!
//! If a relay is running it is queried, and only it can decide. Otherwise requests can still be read from the ledger.

mod follow;
mod list;
mod names;
mod respond;
mod send;
mod show;
mod turn_end;

use serde::Serialize;

use super::{CliError, Done};
use super::{screen, select_session};
use crate::config::Environment;
use crate::requests::answer as body;
use crate::store::{Found, Otherwise};
#[cfg(all(test, feature = "fleet"))]
pub(super) use list::table;
#[cfg(feature = "fleet")]
pub(super) use list::{HasSession, none, print_table, which};
pub(super) use list::{RequestsArguments, asks_cell, run_requests};
pub(super) use names::named;
#[cfg(feature = "fleet")]
pub(super) use respond::{By, GivenFlags, SureFlag, make_sure, verdict};
pub(super) use respond::{RespondArguments, run_respond};
pub(super) use send::{InterruptArguments, SendArguments, WaitArguments, run_interrupt, run_send, run_wait};
pub(super) use show::{ShowRequestArguments, run_show};
#[cfg(feature = "fleet")]
pub(super) use show::{outcome, question, ways};
#[cfg(feature = "fleet")]
pub(super) use turn_end::{PendingTurn, ToldOf, TurnEnd, TurnProgress, WaitFlags, wait_for};

/// A session to read from, live or stopped.
pub(super) fn readable(flag: Option<&str>, environment: &Environment) -> Result<Found, CliError> {
    select_session::latest(flag, Otherwise::Latest, environment)
}

/// A session with a running relay.
fn running(flag: Option<&str>, environment: &Environment) -> Result<Found, CliError> {
    let session = select_session::one(flag, Otherwise::None, environment)?;
    if session.live { Ok(session) } else { Err(CliError::not_running(&session)) }
}

#[must_use = "a tool whose output is lost ends with this status"]
pub(super) fn print_json(document: &impl Serialize) -> i32 {
    let text = serde_json::to_string(document).expect("BUG: plain data is JSON");
    screen::print_exactly(&format!("{text}\n"))
}
