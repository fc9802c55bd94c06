//! Sessions as the tools read them, live or stopped: see [`crate::sessions::stopped`].

use super::{CliError, say, select_session};
use crate::config::{Environment, Flags, Settings};
pub(super) use crate::sessions::door::Door;
use crate::sessions::door::SessionError;
pub(super) use crate::sessions::stopped::{
    OfflineSession, Past, Read, answered, ask, complete_search, pending, relay_answer, settle,
};
use crate::store::{Found, Otherwise};

/// With the settings of the user.
pub(super) fn door(environment: &Environment) -> Door {
    Door { retention: Settings::load(Flags::default(), environment).0.retention(), say }
}

impl Read {
    /// The session that the flag selects.
    pub(super) fn chosen(flag: Option<&str>, environment: &Environment) -> Result<Read, CliError> {
        Ok(Read::of(select_session::latest(flag, Otherwise::Latest, environment)?, environment))
    }

    pub(super) fn of(session: Found, environment: &Environment) -> Read {
        Read::through(door(environment), session)
    }
}

impl From<SessionError> for CliError {
    fn from(error: SessionError) -> CliError {
        CliError::failed(error.to_string())
    }
}
