//! How the tools reach a session, whether its relay runs or it has stopped.

use std::fmt;

use crate::config::RetentionBounds;

/// What a tool needs to open a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Door {
    /// How much a stopped session keeps, which applies when its history is brought up to date.
    pub(crate) retention: RetentionBounds,
    /// Tells the user something that does not stop the tool.
    pub(crate) say: fn(&str),
}

/// Why a session could not be read, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionError {
    why: String,
    is_unrecorded: bool,
}

impl SessionError {
    pub(crate) fn new(why: impl Into<String>) -> SessionError {
        SessionError { why: why.into(), is_unrecorded: false }
    }

    /// The session records nothing.
    pub(super) fn unrecorded(why: impl Into<String>) -> SessionError {
        SessionError { is_unrecorded: true, ..SessionError::new(why) }
    }

    pub(super) fn is_unrecorded(&self) -> bool {
        self.is_unrecorded
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}
