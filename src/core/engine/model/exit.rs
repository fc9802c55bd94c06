//! How the server ends, and what ends it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::note::Note;

/// A signal forwarded to the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Signal {
    Terminate,
    /// SIGTERM while our launcher has it blocked. The child inherits the mask and may not see the signal until it
    /// unblocks it.
    BlockedTerminate,
    Interrupt,
    HangUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// Our exit status: the child's, or 128 + n if signal n killed it.
    pub fn status(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }

    pub(in crate::engine) fn note(self) -> Note {
        let (exit_code, signal) = match self {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        Note::GenerationEnded { exit_code, signal }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit status {code}"),
            Exit::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}
