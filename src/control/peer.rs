//! The user and process at the other end of a connection.

use std::fmt;

use tokio::net::UnixStream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    uid: u32,
    pid: Option<i32>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "uid {}, pid {pid}", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

/// The peer, if its user is our own or root.
pub(super) fn trusted(stream: &UnixStream) -> Option<Peer> {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw() => {
            Some(Peer { uid: peer.uid(), pid: peer.pid() })
        }
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), "another user at the control socket: closed");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "the control socket's peer is unknown: closed");
            None
        }
    }
}
