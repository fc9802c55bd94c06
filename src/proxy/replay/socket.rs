//! The socket at which a tape is played, as codex places its own: one that only our user can reach.
//!
//! In a folder that only we can enter, the socket is at the path itself; otherwise it is in such a folder, and a link to it is
//! at the path. A stale socket or link of ours is replaced; anything else is an error that names it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::files;
use crate::os::identity::own_uid;
use crate::socket::{self, Occupant, Peer, SocketError};
use crate::websocket::Listener;

/// Rights that let others replace a socket, unless the folder is sticky.
const WRITABLE_BY_OTHERS: u32 = 0o022;

const STICKY: u32 = 0o1000;

/// Rights that let others enter a folder.
const OPEN_TO_OTHERS: u32 = 0o077;

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("listen on {}: the folder {why}", .path.display())]
    Untrusted { path: PathBuf, why: &'static str },
    #[error("listen on {}: {what} is in the way; remove it or choose another path", .path.display())]
    InTheWay { path: PathBuf, what: &'static str },
    #[error("{} listens on {}; end it or choose another path", by(*.pid), .path.display())]
    Answered { path: PathBuf, pid: Option<u32> },
    #[error("{action} {}: {source}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Socket(#[from] SocketError),
}

fn by(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another program".to_owned(), |pid| format!("another program (pid {pid})"))
}

/// Listens at `path`.
pub(super) fn bind(path: &Path, runtime_dir: Option<&Path>) -> Result<Listener, BindError> {
    let failed = |action| move |source| BindError::Io { action, path: path.to_owned(), source };
    let path = &std::path::absolute(path).map_err(failed("resolve"))?;
    let folder = path.parent().ok_or(BindError::InTheWay { path: path.clone(), what: "a folder" })?;
    let is_private = is_private(path, folder)?;
    check_free(path)?;
    let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, path.as_os_str().as_encoded_bytes());
    let short_name = format!("tape-{}-{}.sock", name.simple(), std::process::id());
    let bound = match is_private {
        true => socket::bind_at(path, runtime_dir, &short_name)?,
        false => socket::bind_behind_link(path, runtime_dir, &short_name)?,
    };
    Ok(Listener::new(path.clone(), bound.listener, bound.files, None))
}

/// Whether only we can enter the folder; it is created if necessary.
fn is_private(path: &Path, folder: &Path) -> Result<bool, BindError> {
    let failed = |action| move |source| BindError::Io { action, path: folder.to_owned(), source };
    match files::create_folder(folder) {
        Ok(()) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("create")(error)),
    }
    let there = std::fs::metadata(folder).map_err(failed("look at"))?;
    let untrusted = |why| Err(BindError::Untrusted { path: path.to_owned(), why });
    let is_ours = there.uid() == own_uid();
    let is_sticky = there.mode() & STICKY != 0;
    if !there.is_dir() {
        return untrusted("is a file");
    }
    if !is_ours && !is_sticky {
        return untrusted("belongs to another user");
    }
    if there.mode() & WRITABLE_BY_OTHERS != 0 && !is_sticky {
        return untrusted("can be written to by others; `chmod 700` it");
    }
    Ok(is_ours && there.mode() & OPEN_TO_OTHERS == 0)
}

/// Checks that nothing answers at `path`, and that only a stale socket or link of ours is there.
fn check_free(path: &Path) -> Result<(), BindError> {
    let answered = |pid| Err(BindError::Answered { path: path.to_owned(), pid });
    match Occupant::of(path)? {
        Occupant::Nothing | Occupant::Stale => Ok(()),
        Occupant::Listener(stream) => answered(stream.and_then(|stream| Peer::of(&stream).ok()?.pid)),
        Occupant::Other(what) => Err(BindError::InTheWay { path: path.to_owned(), what }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it exists").mode() & 0o777
    }

    #[test]
    fn socket_is_for_its_owner_alone() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = root.path().join("new/s.sock");
        let listener = bind(&path, None).expect("it can be bound");
        assert_eq!((mode(path.parent().expect("a folder")), mode(&path)), (0o700, 0o600));
        assert!(UnixStream::connect(&path).is_ok());
        let error = bind(&path, None).expect_err("it listens").to_string();
        let expect = format!("another program (pid {}) listens on {}; end it", std::process::id(), path.display());
        assert!(error.starts_with(&expect), "{error}");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn open_folder_has_a_link() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let (open, runtime) = (root.path().join("open"), root.path().join("run"));
        fs::create_dir(&open).expect("a folder");
        fs::create_dir(&runtime).expect("a folder");
        fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("it is ours");
        let path = open.join("s.sock");
        let listener = bind(&path, Some(&runtime)).expect("it can be bound");
        let socket = fs::read_link(&path).expect("a link");
        assert_eq!((mode(socket.parent().expect("a folder")), mode(&socket)), (0o700, 0o600));
        assert!(UnixStream::connect(&path).is_ok());
        assert!(matches!(bind(&path, Some(&runtime)), Err(BindError::Answered { .. })));
        drop(listener);
        assert!(fs::symlink_metadata(&path).is_err() && !socket.exists());
        fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("it is ours");
        let error = bind(&path, Some(&runtime)).expect_err("anybody could replace it").to_string();
        assert!(error.ends_with("can be written to by others; `chmod 700` it"), "{error}");
    }

    #[test]
    fn only_stale_sockets_are_replaced() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = root.path().join("s.sock");
        drop(UnixListener::bind(&path).expect("it can be bound"));
        drop(bind(&path, None).expect("nothing listens"));
        symlink(root.path().join("gone"), &path).expect("a link");
        drop(bind(&path, None).expect("nothing listens"));
        fs::write(&path, "precious").expect("a file");
        let error = bind(&path, None).expect_err("a file is in the way").to_string();
        assert!(error.contains("s.sock: a file that is not a socket is in the way"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "precious");
    }
}
