//! Sessions as the tools read them, live or stopped: see [`crate::sessions::stopped`].

use serde::de::DeserializeOwned;

use super::{CliError, say, select_session};
use crate::api::Command;
use crate::config::{Environment, Flags, Settings};
use crate::control::client::{self, Caller, Unanswered};
pub(super) use crate::sessions::door::Door;
use crate::sessions::door::SessionError;
pub(super) use crate::sessions::stopped::{
    Read, complete_search, damage_of_ledger, history_of, last_header, live_state, of_relay, pending, query,
    readable_state, remove_commands, request, requests, state, stored_state, stored_threads,
};
use crate::store::{Found, Otherwise};

/// Sends a command to a session whose relay must run; `in_words` has the tool's own words for some errors.
pub(super) fn command<T: DeserializeOwned>(
    session: &Found,
    command: &Command,
    in_words: impl FnOnce(&Unanswered) -> Option<CliError>,
) -> Result<T, CliError> {
    let sent = client::command(&session.dir, command, Caller::Tool).and_then(|reply| reply.document());
    sent.map_err(|error| {
        in_words(&error).unwrap_or_else(|| match &error {
            Unanswered::NoAnswer(_) if !session.is_still_live() => CliError::not_running(session),
            Unanswered::NoAnswer(_) | Unanswered::Refused(_) | Unanswered::Invalid(_) => {
                CliError::failed(error.message(session))
            }
        })
    })
}

/// With the settings of the user.
pub(super) fn door(environment: &Environment) -> Door {
    Door { retention: Settings::load(Flags::default(), environment).0.retention(), say }
}

/// The session that the flag selects.
pub(super) fn chosen(flag: Option<&str>, environment: &Environment) -> Result<Read, CliError> {
    Ok(read(select_session::latest(flag, Otherwise::Latest, environment)?, environment))
}

pub(super) fn read(session: Found, environment: &Environment) -> Read {
    Read::through(door(environment), session)
}

impl From<SessionError> for CliError {
    fn from(error: SessionError) -> CliError {
        CliError::failed(error.to_string())
    }
}
