//! A listening socket for clients of our user.
//!
//! *Trust.* A connection of another user is closed before a byte of it is read.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
#[cfg(any(test, feature = "testing"))]
use std::path::Path;
use std::path::PathBuf;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::os;
use crate::os::descriptors::{inherited, share};
use crate::socket::{Peer, SocketFiles};

/// A socket on which we listen. Dropping it removes its files at once, unless another process has replaced them.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    files: SocketFiles,
    /// The lock of the claim, released after the files are removed.
    lock: Option<File>,
}

/// A listener as another process has written it down.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedListener {
    listener: RawFd,
    path: PathBuf,
    files: SocketFiles,
    lock: Option<RawFd>,
}

impl HandedListener {
    /// Opens the listener with its descriptors, which this process has inherited.
    ///
    /// # Errors
    ///
    /// There is no such descriptor.
    pub fn open(self) -> io::Result<Listener> {
        let HandedListener { listener, path, files, lock } = self;
        let listener = inherited(listener).ok_or(io::ErrorKind::NotFound)?;
        let lock = lock.map(|lock| inherited(lock).ok_or(io::ErrorKind::NotFound)).transpose()?;
        Ok(Listener { listener: listener.into(), path, files, lock: lock.map(File::from) })
    }
}

impl Serialize for Listener {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut state = serializer.serialize_struct("HandedListener", 4)?;
        state.serialize_field("listener", &self.listener.as_raw_fd())?;
        state.serialize_field("path", &self.path)?;
        state.serialize_field("files", &self.files)?;
        state.serialize_field("lock", &self.lock.as_ref().map(File::as_raw_fd))?;
        state.end()
    }
}

/// A connection of our user.
#[derive(Debug)]
pub struct Accepted {
    /// Non-blocking.
    pub stream: UnixStream,
    pub peer: Peer,
}

impl Listener {
    /// Clients connect to `path`. Dropping the listener removes `files`, which were created for it, and then releases `lock`.
    pub fn new(path: PathBuf, listener: UnixListener, files: SocketFiles, lock: Option<File>) -> Listener {
        Listener { listener, path, files, lock }
    }

    /// Has the program that this process becomes inherit what it needs to go on with it.
    pub fn share(&self) -> os::Result<()> {
        share(&self.listener)?;
        self.lock.as_ref().map_or(Ok(()), share)
    }

    /// The path that clients are told.
    #[cfg(any(test, feature = "testing"))]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether clients that connect to the path still come here.
    pub fn is_in_place(&self) -> bool {
        self.files.are_in_place()
    }

    /// Accepts the next connection of our user, if one waits. Those of others are closed.
    pub fn accept(&self) -> io::Result<Option<Accepted>> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // The client has gone again.
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            match Peer::of(&stream) {
                Ok(peer) if peer.is_ours() => {
                    stream.set_nonblocking(true)?;
                    return Ok(Some(Accepted { stream, peer }));
                }
                Ok(peer) => tracing::warn!(uid = peer.uid, "another user at {}: closed", self.path.display()),
                Err(error) => tracing::warn!(%error, "a client of an unknown user: closed"),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        std::mem::take(&mut self.files).remove();
    }
}
