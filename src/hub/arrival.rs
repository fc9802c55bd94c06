//! Clients of a hub whose handshake is not complete.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::websocket::{Accepting, Connecting};
use crate::engine::Peer;

/// A client whose handshake is not complete.
pub(super) struct Arrival {
    pub(super) peer: Peer,
    pub(super) since: Duration,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    /// Its request has not come whole.
    Asks(Accepting),
    /// The server has not responded.
    Waits(Accepting, Connecting),
    Gone,
}

impl Arrival {
    pub(super) fn interests(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        match &self.stage {
            Stage::Asks(accepting) => vec![(accepting.as_fd(), PollFlags::IN)],
            // The client waits for its response; that it leaves shows later.
            Stage::Waits(_, connecting) => vec![handshake_interest(connecting)],
            Stage::Gone => Vec::new(),
        }
    }
}

pub(super) fn handshake_interest(connecting: &Connecting) -> (BorrowedFd<'_>, PollFlags) {
    let mut flags = PollFlags::IN;
    flags.set(PollFlags::OUT, connecting.wants_write());
    (connecting.as_fd(), flags)
}

pub(super) fn poll_fd<'a>((fd, flags): (BorrowedFd<'a>, PollFlags)) -> PollFd<'a> {
    PollFd::from_borrowed_fd(fd, flags)
}
