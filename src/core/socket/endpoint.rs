//! A socket at a path, bound again if its files are gone.
//!
//! Cleaners of `/tmp` and hasty users remove sockets of running programs. Nobody can connect to such a socket any more, and a
//! second process would not find the first one. What another program has put in the place of a socket stays.
//!
//! *Locking.* As for [`bind_at`].

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::leftovers::remove_leftovers;
use super::{Bound, Occupant, SocketError, SocketFiles, bind_at, hidden_dir, resolve_at};
use crate::os;
use crate::os::descriptors::{claim, inherited, share};

/// How often to look after the files of a socket that is listened on.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Why a socket is not back.
#[derive(Debug, thiserror::Error)]
pub enum Displaced {
    #[error(
        "{what} is in the place of the socket {}; move it away, and the socket is back within {LOOK_EVERY:?}",
        .path.display()
    )]
    ByOther { path: PathBuf, what: &'static str },
    #[error("the socket {} is gone with its folder", .path.display())]
    NoFolder { path: PathBuf },
    #[error("the socket {} is gone: {source}", .path.display())]
    NotBound { path: PathBuf, source: SocketError },
}

/// The fault of a socket, before and now.
#[derive(Debug, PartialEq, Eq)]
pub struct FaultChange {
    pub ended: Option<String>,
    pub new: Option<String>,
}

/// A socket of ours that lasts: what listens on it, and why nobody can connect to it. Dropping an `L` removes its files.
#[derive(Debug)]
pub struct LastingSocket<L> {
    path: PathBuf,
    /// The folder that has to be there.
    folder: PathBuf,
    listener: Option<L>,
    /// As last reported.
    fault: Option<String>,
}

impl<L> LastingSocket<L> {
    pub fn new(path: PathBuf, folder: PathBuf, listener: Option<L>) -> LastingSocket<L> {
        LastingSocket { path, folder, listener, fault: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn listener(&self) -> Option<&L> {
        self.listener.as_ref()
    }

    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Looks after the socket: binds it again if its files are not in place. Nobody can connect to the old listener any more.
    /// Returns the fault if it has changed; call it again later.
    pub fn look<E: std::fmt::Display>(
        &mut self,
        is_in_place: impl FnOnce(&L) -> bool,
        bind: impl FnOnce(&Path) -> Result<L, E>,
    ) -> Option<FaultChange> {
        let fault = if self.listener.as_ref().is_some_and(is_in_place) {
            None
        } else if !self.folder.is_dir() {
            // A folder that was moved away may come back as it was.
            Some(Displaced::NoFolder { path: self.path.clone() }.to_string())
        } else {
            // What is left of it, and its lock, would be in the way, or stay for good.
            self.listener = None;
            match bind(&self.path) {
                Ok(listener) => {
                    tracing::info!(path = %self.path.display(), "a socket is back");
                    self.listener = Some(listener);
                    None
                }
                Err(error) => Some(error.to_string()),
            }
        };
        self.has_fault(fault)
    }

    /// The listener, for a new owner.
    fn leave(&mut self) -> Option<L> {
        self.listener.take()
    }

    /// Stops to listen. A socket that nobody misses has no fault.
    pub fn close(&mut self) -> Option<FaultChange> {
        self.listener = None;
        self.has_fault(None)
    }

    fn has_fault(&mut self, fault: Option<String>) -> Option<FaultChange> {
        let ended = std::mem::replace(&mut self.fault, fault);
        (ended != self.fault).then(|| FaultChange { ended, new: self.fault.clone() })
    }
}

/// The files of a socket, and another descriptor of what listens there. Dropping it removes the files.
#[derive(Debug)]
struct OwnFiles(SocketFiles, UnixListener);

impl Drop for OwnFiles {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).remove();
    }
}

/// An endpoint as another process has written it down.
#[derive(Debug, Serialize, Deserialize)]
pub struct EndpointState {
    listener: RawFd,
    files: SocketFiles,
    short_name: String,
}

impl EndpointState {
    /// Claims the descriptor, so that no other program inherits it.
    ///
    /// # Errors
    ///
    /// There is no such descriptor.
    pub fn claim(&self) -> os::Result<()> {
        claim(self.listener)
    }
}

/// A lasting socket whose listener is elsewhere. Dropping it removes its files; open connections stay open.
#[derive(Debug)]
pub struct Endpoint {
    socket: LastingSocket<OwnFiles>,
    runtime_dir: Option<PathBuf>,
    short_name: String,
    /// Sockets of killed processes beside it were removed.
    has_tidied: bool,
}

impl Endpoint {
    /// Binds a socket as [`bind_at`] does. Returns its listener, and the path to connect to.
    pub fn bind(
        path: &Path,
        runtime_dir: Option<&Path>,
        short_name: String,
    ) -> Result<(Endpoint, UnixListener, PathBuf), SocketError> {
        let Bound { listener, path: connect_path, files } = bind_at(path, runtime_dir, &short_name)?;
        let files = match listener.try_clone() {
            Ok(second) => OwnFiles(files, second),
            Err(source) => {
                files.remove();
                return Err(SocketError::Io { action: "listen on", path: path.to_owned(), source });
            }
        };
        Ok((Endpoint::of(path, files, runtime_dir, short_name), listener, connect_path))
    }

    fn of(path: &Path, files: OwnFiles, runtime_dir: Option<&Path>, short_name: String) -> Endpoint {
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let socket = LastingSocket::new(path.to_owned(), folder, Some(files));
        Endpoint { socket, runtime_dir: runtime_dir.map(Path::to_owned), short_name, has_tidied: false }
    }

    /// The state for another process; `None` if nothing listens now.
    pub fn state(&self) -> Option<EndpointState> {
        let OwnFiles(files, listener) = self.socket.listener()?;
        let (files, short_name) = (files.clone(), self.short_name.clone());
        Some(EndpointState { listener: listener.as_raw_fd(), files, short_name })
    }

    /// Has the program that this process becomes inherit the socket.
    pub fn share(&self) -> os::Result<()> {
        self.socket.listener().map_or(Ok(()), |OwnFiles(_, listener)| share(listener))
    }

    /// Leaves the socket to the program that this process becomes: it stays open.
    pub fn leave(mut self) {
        self.socket.leave().into_iter().for_each(std::mem::forget);
    }

    /// Goes on with the socket of another process. Returns what [`Endpoint::bind`] does.
    pub fn taken_over(
        path: &Path,
        runtime_dir: Option<&Path>,
        state: EndpointState,
    ) -> Result<(Endpoint, UnixListener, PathBuf), SocketError> {
        let EndpointState { listener, files, short_name } = state;
        let failed = |source| SocketError::Io { action: "take over", path: path.to_owned(), source };
        let listener = inherited(listener).ok_or(io::ErrorKind::NotFound.into()).map_err(failed)?;
        let listener = UnixListener::from(listener);
        let second = listener.try_clone().map_err(failed)?;
        let connect_path = resolve_at(path).map_err(failed)?;
        Ok((Endpoint::of(path, OwnFiles(files, second), runtime_dir, short_name), listener, connect_path))
    }

    /// Looks after the socket as [`LastingSocket::look`] does, and the first time removes sockets of killed processes beside it. Returns
    /// the new listener, as `adopt` has taken it, if there is one.
    pub fn look<T>(&mut self, adopt: impl FnOnce(UnixListener) -> io::Result<T>) -> (Option<T>, Option<FaultChange>) {
        // No start waits for it.
        if !std::mem::replace(&mut self.has_tidied, true) {
            hidden_dir().iter().for_each(|dir| remove_leftovers(dir));
        }
        let (runtime_dir, short_name) = (self.runtime_dir.as_deref(), &self.short_name);
        let mut adopted = None;
        let change = self.socket.look(
            |files| files.0.are_in_place(),
            |path| {
                let Bound { listener, files, .. } = bind_again(path, runtime_dir, short_name)?;
                let second = listener.try_clone().map_err(|source| {
                    let (action, path) = ("listen on", path.to_owned());
                    Displaced::NotBound { path: path.clone(), source: SocketError::Io { action, path, source } }
                })?;
                let files = OwnFiles(files, second);
                // Without a listener, its files must go again.
                let listener = adopt(listener).map_err(|source| {
                    let (action, path) = ("listen on", path.to_owned());
                    Displaced::NotBound { path: path.clone(), source: SocketError::Io { action, path, source } }
                })?;
                adopted = Some(listener);
                Ok::<_, Displaced>(files)
            },
        );
        (adopted, change)
    }
}

/// Binds a socket of ours whose files are gone, as [`bind_at`] does, but leaves a socket at which somebody listens alone.
pub fn bind_again(path: &Path, runtime_dir: Option<&Path>, short_name: &str) -> Result<Bound, Displaced> {
    let path = path.to_owned();
    let not_bound = |source| Displaced::NotBound { path: path.clone(), source };
    match Occupant::of(&path).map_err(not_bound)? {
        Occupant::Nothing | Occupant::Stale => bind_at(&path, runtime_dir, short_name).map_err(not_bound),
        Occupant::Listener(_) => Err(Displaced::ByOther { path, what: "a socket of another process" }),
        Occupant::Other(what) => Err(Displaced::ByOther { path, what }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    struct Lab {
        root: tempfile::TempDir,
        endpoint: Endpoint,
        /// The listener that clients of the path reach, as far as the owner of the endpoint knows.
        listener: Option<UnixListener>,
    }

    impl Lab {
        fn new() -> Lab {
            let root = tempfile::tempdir().expect("BUG: a temporary folder");
            std::fs::create_dir(root.path().join("s")).expect("a folder");
            let path = root.path().join("s/x.sock");
            let (endpoint, listener, _) =
                Endpoint::bind(&path, Some(root.path()), "x.sock".to_owned()).expect("a socket");
            Lab { root, endpoint, listener: Some(listener) }
        }

        fn path(&self) -> PathBuf {
            self.root.path().join("s/x.sock")
        }

        /// Looks after the socket; the faults that ended and began.
        fn look(&mut self, adopt: impl FnOnce(UnixListener) -> io::Result<UnixListener>) -> [String; 2] {
            let (listener, change) = self.endpoint.look(adopt);
            self.listener = listener.or(self.listener.take());
            let FaultChange { ended, new } = change.unwrap_or(FaultChange { ended: None, new: None });
            [ended, new].map(|fault| fault.unwrap_or_default().replace(&*self.root.path().to_string_lossy(), ""))
        }

        fn answers(&self) -> bool {
            let Some(listener) = &self.listener else { return false };
            let connected = UnixStream::connect(self.path()).is_ok();
            listener.set_nonblocking(true).expect("it can be set");
            connected && listener.accept().is_ok()
        }
    }

    #[test]
    fn listener_of_a_moved_folder_waits_for_it() {
        let mut lab = Lab::new();
        let [here, away] = ["s", "away"].map(|name| lab.root.path().join(name));
        std::fs::rename(&here, &away).expect("rename");
        let gone = "the socket /s/x.sock is gone with its folder";
        assert_eq!(lab.look(Ok), ["", gone]);
        assert_eq!(lab.look(Ok), ["", ""]);
        std::fs::rename(&away, &here).expect("rename");
        assert!(lab.answers());
        assert_eq!(lab.look(|_| panic!("it listens")), [gone, ""]);
        // A new folder in its place.
        std::fs::rename(&here, &away).expect("rename");
        std::fs::create_dir(&here).expect("a folder");
        assert_eq!(lab.look(Ok), ["", ""]);
        assert!(lab.answers());
    }

    #[test]
    fn first_look_removes_what_killed_processes_have_left() {
        let mut lab = Lab::new();
        let left = hidden_dir().expect("a folder").join(format!("left-{}.sock", std::process::id()));
        let file = std::fs::File::create(&left).expect("a file");
        file.set_modified(std::time::SystemTime::now() - Duration::from_hours(2)).expect("it can be set");
        assert_eq!(lab.look(Ok), ["", ""]);
        assert!(!left.exists());
    }

    #[test]
    fn socket_without_a_listener_is_bound_again() {
        let mut lab = Lab::new();
        std::fs::remove_file(lab.path()).expect("it is there");
        let fails = |_| Err(io::Error::other("no descriptors"));
        let fault = "the socket /s/x.sock is gone: listen on /s/x.sock: no descriptors";
        assert_eq!(lab.look(fails), ["", fault]);
        assert!(lab.path().symlink_metadata().is_err());
        assert_eq!(lab.look(fails), ["", ""]);
        assert_eq!(lab.look(Ok), [fault, ""]);
        assert!(lab.answers());
    }
}
