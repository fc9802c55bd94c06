//! The sockets at which the clients of a hub connect, for as long as its server can be reached.
//!
//! A socket whose files are gone is bound again within [`crate::socket::LOOK_EVERY`]. Something else that has taken its place is never
//! removed: it is a fault, until it has gone.
//!
//! Nothing here accepts a connection.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::options::{DefaultSocket, HubOptions};
use super::sockets::{Claim, ClaimError, bind_own, bind_own_again, default_socket, own_socket};
use crate::api::SocketDocument;
use crate::os;
use crate::os::processes::ProcessIdentity;
use crate::socket::{Displaced, FaultChange, LastingSocket, Occupant, Peer, SocketError};
use crate::websocket::Listener;

/// All sockets of a hub.
pub(super) struct Entrances {
    all: Vec<Entrance>,
    /// Whether the hub listens at all.
    is_open: bool,
}

/// A socket of a hub.
struct Entrance {
    site: Site,
    socket: LastingSocket<Listener>,
    /// What listens there in our place, if something does.
    displaced_by: Option<Displacement>,
}

/// Another process that listens in the place of a socket.
#[derive(Debug)]
struct Displacement {
    /// The device and the number of the file there, and of the one that it leads to.
    files: [Option<(u64, u64)>; 2],
    process: Option<ProcessIdentity>,
    /// Looks since the last connection to it.
    looks: u32,
}

/// Looks at an unchanged file of a live process between two connections to it, which its program has to serve.
const LOOKS_MAX: u32 = 14;

/// Where a socket is, and what it takes to bind it.
enum Site {
    /// The socket at which codex looks for a server.
    Default { codex_home: PathBuf, home: PathBuf, runtime_dir: Option<PathBuf> },
    /// The one in the session folder.
    Session { dir: PathBuf, runtime_dir: Option<PathBuf> },
}

/// Why a hub cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum EntranceError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Displaced(#[from] Displaced),
}

impl Entrances {
    /// Listens at all sockets: the one of `claim`, if the hub has one, and the one in the session folder, which comes last.
    pub(super) fn open(
        options: &HubOptions,
        home: &Path,
        session_dir: &Path,
        claim: Option<Claim>,
    ) -> Result<Entrances, EntranceError> {
        let mut claim = claim;
        let listen = |site: &Site| match site {
            Site::Default { .. } => Ok::<_, EntranceError>(claim.take().map(Claim::listen).transpose()?),
            Site::Session { dir, runtime_dir } => Ok(Some(bind_own(dir, runtime_dir.as_deref())?)),
        };
        let sites = Site::all(options, home, session_dir);
        let listeners = sites.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
        let all = sites.into_iter().zip(listeners).map(|(site, listener)| Entrance::new(site, listener));
        Ok(Entrances { all: all.collect(), is_open: true })
    }

    /// Goes on with the listeners of the hub that has run in this process before.
    pub(super) fn taken_over(
        options: &HubOptions,
        home: &Path,
        session_dir: &Path,
        listeners: Vec<Option<Listener>>,
    ) -> Entrances {
        let sites = Site::all(options, home, session_dir);
        // The files of one that has no site are removed.
        let all = sites.into_iter().zip(listeners).map(|(site, listener)| Entrance::new(site, listener));
        Entrances { all: all.collect(), is_open: true }
    }

    /// The listener at each socket.
    pub(super) fn all_listeners(&self) -> impl Iterator<Item = Option<&Listener>> {
        self.all.iter().map(|entrance| entrance.socket.listener())
    }

    /// Has the program that this process becomes inherit the listeners.
    pub(super) fn share(&self) -> os::Result<()> {
        self.listeners().try_for_each(Listener::share)
    }

    /// Stops to listen, and removes the sockets. Returns the faults that have ended.
    pub(super) fn close(&mut self) -> Vec<FaultChange> {
        self.is_open = false;
        self.all.iter_mut().for_each(|entrance| entrance.displaced_by = None);
        self.all.iter_mut().filter_map(|entrance| entrance.socket.close()).collect()
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.all.iter().filter_map(|entrance| entrance.socket.listener())
    }

    /// Whether clients find every socket, and no fault says otherwise.
    pub(super) fn are_well(&self) -> bool {
        self.all.iter().all(|entrance| entrance.is_in_place() && entrance.socket.fault().is_none())
    }

    /// Listens again at each socket that clients do not find. Returns the faults that have changed. The last clients of the old
    /// listeners must have been accepted.
    pub(super) fn open_again(&mut self) -> Vec<FaultChange> {
        self.is_open = true;
        self.all.iter_mut().filter_map(Entrance::look).collect()
    }

    pub(super) fn documents(&self, closed: Option<&'static str>) -> Vec<SocketDocument> {
        let fault = |entrance: &Entrance| match self.is_open {
            true => entrance.socket.fault().map(str::to_owned),
            false => closed.map(|closed| format!("the socket {} is {closed}", entrance.socket.path().display())),
        };
        let document = |entrance: &Entrance| SocketDocument {
            path: entrance.socket.path().to_string_lossy().into_owned(),
            fault: fault(entrance),
        };
        self.all.iter().map(document).collect()
    }
}

impl Entrance {
    fn new(site: Site, listener: Option<Listener>) -> Entrance {
        let (path, folder) = match &site {
            // The folder of that socket is created if it is missing.
            Site::Default { codex_home, .. } => (default_socket(codex_home), codex_home),
            Site::Session { dir, .. } => (own_socket(dir), dir),
        };
        let socket = LastingSocket::new(path, folder.clone(), listener);
        Entrance { site, socket, displaced_by: None }
    }

    fn is_in_place(&self) -> bool {
        self.socket.listener().is_some_and(Listener::is_in_place)
    }

    fn look(&mut self) -> Option<FaultChange> {
        if !self.is_in_place() && self.is_still_displaced() {
            return None;
        }
        let Entrance { site, socket, .. } = self;
        socket.look(Listener::is_in_place, |_| site.bind())
    }

    /// Whether the process that has taken our place still listens there: to find out what it is costs more.
    fn is_still_displaced(&mut self) -> bool {
        let path = self.socket.path();
        let files = [std::fs::symlink_metadata(path), std::fs::metadata(path)]
            .map(|file| file.ok().map(|file| (file.dev(), file.ino())));
        let has_fault = self.socket.fault().is_some();
        if let Some(by) = self.displaced_by.as_mut().filter(|by| has_fault && by.may_still_listen(files)) {
            by.looks += 1;
            return true;
        }
        let process = match Occupant::of(path) {
            Ok(Occupant::Listener(Some(stream))) => {
                Some(Peer::of(&stream).ok().and_then(|peer| ProcessIdentity::of(peer.pid?)))
            }
            Ok(Occupant::Listener(None)) => self.displaced_by.as_ref().map(|by| by.process.clone()),
            Ok(Occupant::Nothing | Occupant::Stale | Occupant::Other(_)) | Err(_) => None,
        };
        let now = process.map(|process| Displacement { files, process, looks: 0 });
        let is_same = |before: &Displacement, now: &Displacement| {
            before.process.is_some() && before.process == now.process && before.files == now.files
        };
        let before = std::mem::replace(&mut self.displaced_by, now);
        has_fault && before.as_ref().zip(self.displaced_by.as_ref()).is_some_and(|(before, now)| is_same(before, now))
    }
}

impl Displacement {
    /// Whether nothing speaks against it, and the last connection is not long ago.
    fn may_still_listen(&self, files: [Option<(u64, u64)>; 2]) -> bool {
        let is_alive = self.process.as_ref().is_some_and(ProcessIdentity::is_alive);
        is_alive && self.files == files && self.looks < LOOKS_MAX
    }
}

impl Site {
    /// Those of a hub. The one in the session folder comes last.
    fn all(options: &HubOptions, home: &Path, session_dir: &Path) -> Vec<Site> {
        let HubOptions { runtime_dir, codex_home, default_socket, .. } = options;
        let default = || Site::Default {
            codex_home: codex_home.clone(),
            home: home.to_owned(),
            runtime_dir: runtime_dir.clone(),
        };
        let default = (*default_socket == DefaultSocket::Claimed).then(default);
        let session = Site::Session { dir: session_dir.to_owned(), runtime_dir: runtime_dir.clone() };
        default.into_iter().chain([session]).collect()
    }

    fn bind(&self) -> Result<Listener, EntranceError> {
        match self {
            Site::Default { codex_home, home, runtime_dir } => {
                let claimed = Claim::take(codex_home, home, runtime_dir.as_deref()).and_then(Claim::listen);
                claimed.map_err(|error| {
                    if let ClaimError::InTheWay { path, what } = error {
                        Displaced::ByOther { path, what }.into()
                    } else {
                        error.into()
                    }
                })
            }
            Site::Session { dir, runtime_dir } => Ok(bind_own_again(dir, runtime_dir.as_deref())?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The entrance of a session folder, and the path of its socket.
    fn entrance(root: &Path) -> (Entrance, PathBuf) {
        let listener = bind_own(root, Some(root)).expect("a socket");
        let site = Site::Session { dir: root.to_owned(), runtime_dir: Some(root.to_owned()) };
        (Entrance::new(site, Some(listener)), own_socket(root))
    }

    #[test]
    fn closed_socket_has_no_fault() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let (entrance, path) = entrance(root.path());
        let mut entrances = Entrances { all: vec![entrance], is_open: true };
        std::fs::remove_file(&path).expect("it is there");
        std::fs::write(&path, "other").expect("write");
        let began: Vec<_> = entrances.open_again().into_iter().map(|change| change.new).collect();
        assert!(matches!(&began[..], [Some(_)]), "{began:?}");
        let ended: Vec<_> = entrances.close().into_iter().map(|change| change.ended).collect();
        assert_eq!(ended, began);
        assert_eq!(entrances.close(), []);
    }

    #[test]
    fn process_that_took_the_place_is_rarely_connected_to() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let (mut entrance, path) = entrance(root.path());
        std::fs::remove_file(&path).expect("it is there");
        let other = UnixListener::bind(&path).expect("a socket");
        other.set_nonblocking(true).expect("it can be set");
        let connections = |listener: &UnixListener| std::iter::from_fn(|| listener.accept().ok()).count();
        assert!(entrance.look().is_some_and(|change| change.new.is_some()));
        connections(&other);
        assert!((0..LOOKS_MAX).all(|_| entrance.look().is_none()));
        assert_eq!(connections(&other), 0);
        assert!(entrance.look().is_none());
        assert_eq!(connections(&other), 1);
        // Another file there.
        std::fs::remove_file(&path).expect("it is there");
        let another = UnixListener::bind(&path).expect("a socket");
        another.set_nonblocking(true).expect("it can be set");
        entrance.look();
        assert!(connections(&another) > 0);
        // It has gone.
        std::fs::remove_file(&path).expect("it is there");
        assert!(entrance.look().is_some_and(|change| change.new.is_none() && change.ended.is_some()));
        assert!(entrance.is_in_place());
    }
}
