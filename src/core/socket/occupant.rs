//! What is at the path of a socket that is to be bound.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{SocketError, resolve_at};
use crate::os::identity::own_uid;
use crate::os::sockets::connect;

/// What is at a path.
#[derive(Debug)]
pub enum Occupant {
    Nothing,
    /// A socket of our user, or a link to one, at which nobody listens.
    Stale,
    /// A process listens; `None` if it is too busy to accept a connection.
    Listener(Option<UnixStream>),
    /// Something that a socket must not replace, in words.
    Other(&'static str),
}

impl Occupant {
    /// Looks at a path. A process that listens there gets a connection.
    pub fn of(path: &Path) -> Result<Occupant, SocketError> {
        let failed = |action| move |source| SocketError::Io { action, path: path.to_owned(), source };
        let there = match std::fs::symlink_metadata(path) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Nothing),
            Err(error) => return Err(failed("look at")(error)),
        };
        if there.uid() != own_uid() {
            return Ok(Occupant::Other("another user's file"));
        }
        let mut socket = path.to_owned();
        if there.is_symlink() {
            socket = resolve_at(path).map_err(failed("read the link"))?;
            match std::fs::metadata(path) {
                Ok(target) if target.file_type().is_socket() => {}
                Ok(_) => return Ok(Occupant::Other("a link to a file that is not a socket")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Occupant::Stale),
                Err(error) => return Err(failed("look at")(error)),
            }
            if socket.is_relative() {
                socket = path.with_file_name(&socket);
            }
        } else if there.is_dir() {
            return Ok(Occupant::Other("a folder"));
        } else if !there.file_type().is_socket() {
            return Ok(Occupant::Other("a file that is not a socket"));
        }
        match connect(&socket) {
            Ok(stream) => Ok(Occupant::Listener(Some(stream))),
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                Ok(Occupant::Stale)
            }
            // It listens, and is too busy to accept.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Occupant::Listener(None)),
            Err(error) => Err(failed("connect to")(error)),
        }
    }
}
