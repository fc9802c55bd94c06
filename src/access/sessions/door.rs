//! How the tools reach a session, whether its relay runs or it has stopped.

use crate::config::RetentionBounds;
use crate::control::client::Unanswered;
use crate::store::Found;

/// What a tool needs to open a session.
#[derive(Debug, Clone, Copy)]
pub struct Door {
    /// How much a stopped session keeps, which applies when its history is brought up to date.
    pub retention: RetentionBounds,
    /// Tells the user something that does not stop the tool.
    pub say: fn(&str),
}

/// Why a session could not be read, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct SessionError {
    why: String,
    /// That of the refusal; empty if there is none.
    code: String,
}

impl SessionError {
    pub fn new(why: impl Into<String>) -> SessionError {
        SessionError { why: why.into(), code: String::new() }
    }

    pub(super) fn of(session: &Found, error: &Unanswered) -> SessionError {
        SessionError { why: error.message(session), code: error.code().to_owned() }
    }

    /// The session records nothing.
    pub(super) fn unrecorded(why: impl Into<String>) -> SessionError {
        SessionError { why: why.into(), code: NOT_RECORDED.to_owned() }
    }

    /// The code of the refusal; empty if there is none.
    pub fn code(&self) -> &str {
        &self.code
    }
}

/// The code with which the relay of a session that records nothing refuses.
pub(super) const NOT_RECORDED: &str = "not_recorded";
