//! Whose it is to start the server and to end it.

use crate::engine::ApiCallId;

/// Whose it is to start the server and to end it.
#[derive(Debug)]
pub(super) enum Lifecycle {
    /// The client's.
    Client,
    /// Ours, as we are told at the side.
    Served {
        wanted: Wanted,
        /// It has been started, and its end has not been seen to.
        runs: bool,
        /// A signal has told us to end.
        signalled: bool,
        /// Who waits until it is as wanted.
        waiting: Vec<ApiCallId>,
    },
}

/// What is wanted of a server that is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Started,
    Stopped,
}

/// Why a rest is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rested {
    /// A signal came: we are to end.
    Signalled,
    /// The time is up, or the server is to be started.
    Enough,
}
