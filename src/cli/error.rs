//! Why a tool failed: one error for all tools, with the exit status, the message and the remedy.

use std::{fmt, slice};

use super::{FAILED, NOT_RUNNING, USAGE, say, screen};
use crate::store::{Found, full_name};

/// The exit status of a tool, or its error.
pub(super) type Done = Result<i32, CliError>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CliError {
    exit: i32,
    /// Empty if there is nothing to say: the reader of our output is gone.
    message: String,
    remedy: Option<String>,
}

impl CliError {
    pub(super) fn exits(exit: i32, message: impl Into<String>) -> CliError {
        CliError { exit, message: message.into(), remedy: None }
    }

    /// The message is one line, whatever text of others is in it.
    pub(super) fn failed(message: impl AsRef<str>) -> CliError {
        CliError::exits(FAILED, screen::plain(message.as_ref()))
    }

    /// The arguments are not valid, or do not fit. The message is one line.
    pub(super) fn usage(message: impl AsRef<str>) -> CliError {
        CliError::exits(USAGE, screen::plain(message.as_ref()))
    }

    /// The tool ends with this status and says nothing.
    pub(super) fn quiet(exit: i32) -> CliError {
        CliError::exits(exit, "")
    }

    pub(super) fn with_remedy(self, remedy: impl Into<String>) -> CliError {
        CliError { remedy: Some(remedy.into()), ..self }
    }

    /// The tool needs a relay, and none is running in this session.
    pub(super) fn not_running(session: &Found) -> CliError {
        CliError::exits(NOT_RUNNING, format!("session {} is not running", full_name(session, slice::from_ref(session))))
            .with_remedy("start your tool in its folder, or run `codex-shim sessions`")
    }

    pub(super) fn no_home() -> CliError {
        CliError::failed("cannot find the state folder: set HOME or CODEX_SHIM_HOME")
    }

    /// Prints the error; returns the exit status.
    pub(super) fn report(&self) -> i32 {
        if !self.message.is_empty() {
            say(&self.to_string());
        }
        self.exit
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl From<String> for CliError {
    fn from(message: String) -> CliError {
        CliError::failed(message)
    }
}
