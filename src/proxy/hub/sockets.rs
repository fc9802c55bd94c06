//! The sockets that clients connect to: the one at which codex looks for a server, and one in the session folder.
//!
//! Codex's own, [`default_socket`], is taken only if nothing answers there. A stale socket or link of ours is replaced; anything
//! else is an error that names it.
//!
//! *Locking.* A [`Claim`] holds an flock on the folder of the default socket until its listener is dropped, so two hubs cannot
//! both find a stale socket and replace each other's. On a file system without flock it does without. The caller of
//! [`bind_own`] holds the session's lock.
//!
//! Nothing here reads or writes a connection.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use uuid::Uuid;

use crate::files;
use crate::os::fs::lock_folder;
use crate::os::identity::own_uid;
use crate::os::processes::ProcessIdentity;
use crate::socket::{self, Displaced, Occupant, Peer, SocketError};
use crate::store::Found;
use crate::websocket::Listener;

/// The hub's socket in the session folder.
pub const CODEX_SOCKET: &str = "codex.sock";

/// The folder of the default socket in the home of codex.
const DEFAULT_FOLDER: &str = "app-server-control";

/// The name of the default socket.
const DEFAULT_NAME: &str = "app-server-control.sock";

/// The option of a codex that runs as its own daemon.
const DAEMON_OPTION: &str = "--managed-daemon";

/// Rights that let others replace a socket.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The socket at which codex 0.135 and later look for a server.
#[must_use]
pub fn default_socket(codex_home: &Path) -> PathBuf {
    codex_home.join(DEFAULT_FOLDER).join(DEFAULT_NAME)
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error("the folder {} does not exist; run codex once, or set CODEX_HOME to its folder", .codex_home.display())]
    NoCodexHome { codex_home: PathBuf },
    #[error("listen in {}: the folder {why}", .folder.display())]
    Untrusted { folder: PathBuf, why: &'static str },
    #[error("listen on {}: {what} is in the way; remove it and start again", .path.display())]
    InTheWay { path: PathBuf, what: &'static str },
    /// A server listens there.
    #[error("{by} listens on {}; {}", .path.display(), by.remedy())]
    Answered { path: PathBuf, by: Answerer },
    /// Another hub holds the claim, and does not listen yet.
    #[error("another codex-shim hub is about to listen on {}; see `codex-shim hub status`", .path.display())]
    AnotherStarts { path: PathBuf },
    #[error("{action} {}: {source}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// The process that listens on the default socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answerer {
    /// A hub, and its session if that is in our home.
    Hub { pid: u32, session: Option<String> },
    /// The daemon that codex starts by itself.
    Daemon { pid: u32 },
    /// A codex that somebody has started.
    Server { pid: u32 },
    /// Another program, if the system says which one.
    Other { pid: Option<u32>, program: Option<String> },
}

impl Answerer {
    /// The process at the other end of this connection. `home` has the sessions of hubs.
    fn of(stream: &UnixStream, home: &Path) -> Answerer {
        let Some(pid) = Peer::of(stream).ok().and_then(|peer| peer.pid) else {
            return Answerer::Other { pid: None, program: None };
        };
        let sessions = Found::all(home).unwrap_or_default();
        let is_it = |found: &&Found| found.live && found.holder.as_ref().is_some_and(|holder| holder.pid == pid);
        if let Some(found) = sessions.iter().find(is_it) {
            return Answerer::Hub { pid, session: Some(found.id.clone()) };
        }
        let identity = ProcessIdentity::of(pid);
        let program = identity.as_ref().and_then(ProcessIdentity::program);
        let name = program.and_then(|program| Some(program.file_name()?.to_string_lossy().into_owned()));
        let arguments = identity.as_ref().map(ProcessIdentity::arguments).unwrap_or_default();
        match name {
            Some(name) if name.starts_with("codex-shim") => Answerer::Hub { pid, session: None },
            Some(name) if is_codex(&name) && arguments.iter().any(|word| word == DAEMON_OPTION) => {
                Answerer::Daemon { pid }
            }
            Some(name) if is_codex(&name) => Answerer::Server { pid },
            program => Answerer::Other { pid: Some(pid), program },
        }
    }

    /// How to end it.
    pub fn remedy(&self) -> String {
        match self {
            Answerer::Hub { session: Some(session), .. } => {
                format!("stop it with `codex-shim hub stop --session {session}`")
            }
            Answerer::Hub { session: None, pid } => {
                format!("stop it with `codex-shim hub stop`, with the CODEX_SHIM_HOME that it has, or `kill {pid}`")
            }
            Answerer::Daemon { .. } => "stop it with `codex app-server daemon stop`".to_owned(),
            // `daemon stop` refuses to end a server that it has not started.
            Answerer::Server { pid } => format!("end it with `kill -INT {pid}`"),
            Answerer::Other { .. } => "end it, or run the hub with --no-default-socket".to_owned(),
        }
    }
}

/// Whether a program of this name is a codex. One that was replaced since it started has ` (deleted)` after its name.
fn is_codex(name: &str) -> bool {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    name == "codex" || name.starts_with("codex-")
}

impl fmt::Display for Answerer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answerer::Hub { pid, session: Some(session) } => {
                write!(f, "another codex-shim hub (session {session}, pid {pid})")
            }
            Answerer::Hub { pid, session: None } => write!(f, "another codex-shim hub (pid {pid})"),
            Answerer::Daemon { pid } => write!(f, "the daemon of codex (pid {pid})"),
            Answerer::Server { pid } => write!(f, "a codex app-server (pid {pid})"),
            Answerer::Other { pid: Some(pid), program: Some(program) } => write!(f, "{program} (pid {pid})"),
            Answerer::Other { pid: Some(pid), program: None } => write!(f, "another program (pid {pid})"),
            Answerer::Other { pid: None, .. } => f.write_str("another program"),
        }
    }
}

/// The right to listen on the default socket. Take it before the server is started, and listen once the server does: clients
/// that connect to a socket and hear nothing fail, while without a socket they start a daemon of their own.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    home: PathBuf,
    runtime_dir: Option<PathBuf>,
    /// The locked folder; `None` if its file system has no locks.
    lock: Option<File>,
}

impl Claim {
    /// Claims the default socket of `codex_home`, unless something answers there. `home` is that of codex-shim.
    pub fn take(codex_home: &Path, home: &Path, runtime_dir: Option<&Path>) -> Result<Claim, ClaimError> {
        let path = default_socket(codex_home);
        if !codex_home.is_dir() {
            return Err(ClaimError::NoCodexHome { codex_home: codex_home.to_owned() });
        }
        let folder = codex_home.join(DEFAULT_FOLDER);
        check_folder(&folder)?;
        let mut claim = Claim { path, home: home.to_owned(), runtime_dir: runtime_dir.map(Path::to_owned), lock: None };
        claim.lock = match lock_folder(&folder) {
            Ok(Some(lock)) => Some(lock),
            Ok(None) => {
                claim.check()?;
                return Err(ClaimError::AnotherStarts { path: claim.path });
            }
            Err(error) => {
                tracing::warn!(%error, folder = %folder.display(), "lock the folder of the default socket");
                None
            }
        };
        claim.check()?;
        Ok(claim)
    }

    /// Listens on the default socket, unless something answers there by now.
    pub fn listen(self) -> Result<Listener, ClaimError> {
        if self.check()? == PathState::Stale {
            let target = std::fs::read_link(&self.path).unwrap_or_default();
            if target.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"hub-")) {
                socket::remove_target(&self.path);
            }
            std::fs::remove_file(&self.path).map_err(self.io_error("remove"))?;
        }
        let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, self.path.as_os_str().as_encoded_bytes());
        let short_name = format!("hub-{}-{}.sock", name.simple(), std::process::id());
        match socket::bind_free(&self.path, self.runtime_dir.as_deref(), &short_name) {
            Ok(bound) => Ok(Listener::new(self.path, bound.listener, bound.files, self.lock)),
            // Codex has bound it since.
            Err(SocketError::Io { source, .. })
                if is_one_of(&source, &[io::ErrorKind::AddrInUse, io::ErrorKind::AlreadyExists]) =>
            {
                self.check()?;
                Err(self.io_error("bind")(source))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Finds out what the path of the socket holds.
    fn check(&self) -> Result<PathState, ClaimError> {
        let answered = |by| Err(ClaimError::Answered { path: self.path.clone(), by });
        match Occupant::of(&self.path)? {
            Occupant::Nothing => Ok(PathState::Free),
            Occupant::Stale => Ok(PathState::Stale),
            Occupant::Listener(Some(stream)) => answered(Answerer::of(&stream, &self.home)),
            Occupant::Listener(None) => answered(Answerer::Other { pid: None, program: None }),
            Occupant::Other(what) => Err(ClaimError::InTheWay { path: self.path.clone(), what }),
        }
    }

    fn io_error(&self, action: &'static str) -> impl FnOnce(io::Error) -> ClaimError {
        let path = self.path.clone();
        move |source| ClaimError::Io { action, path, source }
    }
}

/// The process that listens on the default socket, if there is one. `home` is that of codex-shim.
pub fn answerer(codex_home: &Path, home: &Path) -> Result<Option<Answerer>, ClaimError> {
    let path = default_socket(codex_home);
    match (Claim { path, home: home.to_owned(), runtime_dir: None, lock: None }).check() {
        Ok(PathState::Free | PathState::Stale) => Ok(None),
        Err(ClaimError::Answered { by, .. }) => Ok(Some(by)),
        Err(error) => Err(error),
    }
}

/// The state of a socket's path that can be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathState {
    Free,
    /// A socket or a link of ours at which nothing listens.
    Stale,
}

/// Creates the folder, or checks that only we can write to it.
fn check_folder(folder: &Path) -> Result<(), ClaimError> {
    let failed = |action| move |source| ClaimError::Io { action, path: folder.to_owned(), source };
    match files::create_folder(folder) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("create")(error)),
    }
    let there = std::fs::metadata(folder).map_err(failed("look at"))?;
    let untrusted = |why| Err(ClaimError::Untrusted { folder: folder.to_owned(), why });
    if !there.is_dir() {
        return untrusted("is a file");
    }
    if there.uid() != own_uid() {
        return untrusted("belongs to another user");
    }
    if there.mode() & WRITABLE_BY_OTHERS != 0 {
        return untrusted("can be written to by others; `chmod 700` it");
    }
    Ok(())
}

fn is_one_of(error: &io::Error, kinds: &[io::ErrorKind]) -> bool {
    kinds.contains(&error.kind())
}

/// The hub's socket in the folder of its session.
#[must_use]
pub fn own_socket(session_dir: &Path) -> PathBuf {
    session_dir.join(CODEX_SOCKET)
}

/// Listens on [`own_socket`]. The caller holds the session's lock.
pub fn bind_own(session_dir: &Path, runtime_dir: Option<&Path>) -> Result<Listener, SocketError> {
    let path = own_socket(session_dir);
    let bound = socket::bind_at(&path, runtime_dir, &short_name_of(&path))?;
    Ok(Listener::new(path, bound.listener, bound.files, None))
}

/// [`bind_own`] for a socket whose files are gone; what another program has put in its place stays.
pub fn bind_own_again(session_dir: &Path, runtime_dir: Option<&Path>) -> Result<Listener, Displaced> {
    let path = own_socket(session_dir);
    let bound = socket::bind_again(&path, runtime_dir, &short_name_of(&path))?;
    Ok(Listener::new(path, bound.listener, bound.files, None))
}

fn short_name_of(path: &Path) -> String {
    let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, path.as_os_str().as_encoded_bytes());
    format!("codex-{}-{}.sock", name.simple(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    /// A `CODEX_HOME`, and the home of codex-shim.
    struct Homes {
        root: tempfile::TempDir,
    }

    impl Homes {
        fn new() -> Homes {
            let root = tempfile::tempdir().expect("BUG: a temporary folder");
            fs::create_dir(root.path().join("codex")).expect("a folder");
            Homes { root }
        }

        fn codex_home(&self) -> PathBuf {
            self.root.path().join("codex")
        }

        /// The default socket, in its folder.
        fn socket(&self) -> PathBuf {
            let folder = self.codex_home().join(DEFAULT_FOLDER);
            match files::create_folder(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => created.expect("a folder"),
            }
            default_socket(&self.codex_home())
        }

        fn claim(&self) -> Result<Claim, ClaimError> {
            Claim::take(&self.codex_home(), &self.root.path().join("shim"), Some(self.root.path()))
        }

        fn listen(&self) -> Listener {
            self.claim().expect("nothing answers").listen().expect("it can be bound")
        }

        #[track_caller]
        fn check_refused(&self, expect: &str) {
            let error = self.claim().expect_err("it is refused").to_string();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn clients_of_our_user_are_accepted() {
        let homes = Homes::new();
        let listener = homes.listen();
        assert!(listener.accept().expect("it listens").is_none());
        let _client = UnixStream::connect(listener.path()).expect("it listens");
        let accepted = listener.accept().expect("it listens").expect("a client waits");
        assert_eq!(accepted.peer.pid, Some(std::process::id()));
        let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        assert_eq!(mode(listener.path()), 0o600);
        assert_eq!(mode(&homes.codex_home().join(DEFAULT_FOLDER)), 0o700);
        drop(listener);
        assert!(!homes.socket().exists());
    }

    #[test]
    fn live_socket_is_left_alone() {
        let homes = Homes::new();
        let theirs = UnixListener::bind(homes.socket()).expect("it can be bound");
        homes.check_refused(&format!("(pid {}) listens on ", std::process::id()));
        drop(theirs);
        let elsewhere = homes.root.path().join("elsewhere.sock");
        let _theirs = UnixListener::bind(&elsewhere).expect("it can be bound");
        fs::remove_file(homes.socket()).expect("it is stale");
        symlink(&elsewhere, homes.socket()).expect("a link");
        homes.check_refused("listens on ");
        assert_eq!(fs::read_link(homes.socket()).expect("it is there"), elsewhere);
    }

    #[test]
    fn stale_sockets_and_links_are_replaced() {
        let homes = Homes::new();
        drop(UnixListener::bind(homes.socket()).expect("it can be bound"));
        assert!(homes.listen().is_in_place());
        let elsewhere = homes.root.path().join("elsewhere.sock");
        symlink(&elsewhere, homes.socket()).expect("a link");
        assert!(homes.listen().is_in_place());
        drop(UnixListener::bind(&elsewhere).expect("it can be bound"));
        symlink("../../elsewhere.sock", homes.socket()).expect("a link");
        assert!(homes.listen().is_in_place());
        assert!(elsewhere.symlink_metadata().is_ok(), "the target of a link is not ours");
    }

    #[test]
    fn other_files_are_left_alone() {
        let homes = Homes::new();
        fs::write(homes.socket(), "precious").expect("a file");
        homes.check_refused("a file that is not a socket is in the way");
        let aside = homes.root.path().join("aside");
        fs::rename(homes.socket(), &aside).expect("it can be moved");
        symlink(&aside, homes.socket()).expect("a link");
        homes.check_refused("a link to a file that is not a socket is in the way");
        fs::remove_file(homes.socket()).expect("a link");
        fs::create_dir(homes.socket()).expect("a folder");
        homes.check_refused("a folder is in the way");
        assert_eq!(fs::read_to_string(aside).expect("it is there"), "precious");
    }

    #[test]
    fn second_hub_is_refused() {
        let homes = Homes::new();
        let first = homes.claim().expect("nothing answers");
        homes.check_refused("another codex-shim hub is about to listen on ");
        let listener = first.listen().expect("it can be bound");
        homes.check_refused("listens on ");
        drop(listener);
        drop(homes.listen());
    }

    #[test]
    fn socket_bound_since_the_claim_is_left_alone() {
        let homes = Homes::new();
        let claim = homes.claim().expect("nothing answers");
        let _theirs = UnixListener::bind(homes.socket()).expect("it can be bound");
        let error = claim.listen().expect_err("it is taken").to_string();
        assert!(error.contains("listens on "), "{error}");
        assert!(UnixStream::connect(homes.socket()).is_ok());
    }

    #[test]
    fn replaced_socket_stays_at_the_end() {
        let homes = Homes::new();
        let listener = homes.listen();
        fs::remove_file(homes.socket()).expect("it is there");
        let _theirs = UnixListener::bind(homes.socket()).expect("it can be bound");
        assert!(!listener.is_in_place());
        drop(listener);
        assert!(UnixStream::connect(homes.socket()).is_ok());
    }

    #[test]
    fn long_path_is_bound_behind_a_link() {
        let homes = Homes::new();
        let run = tempfile::tempdir().expect("BUG: a temporary folder");
        let long = homes.root.path().join("x".repeat(100));
        fs::create_dir(&long).expect("a folder");
        fs::create_dir(long.join("codex")).expect("a folder");
        let claim = Claim::take(&long.join("codex"), homes.root.path(), Some(run.path())).expect("nothing answers");
        let listener = claim.listen().expect("it can be bound");
        let short = fs::read_link(listener.path()).expect("a link");
        assert!(UnixStream::connect(&short).is_ok());
        drop(listener);
        assert!(short.symlink_metadata().is_err() && default_socket(&long.join("codex")).symlink_metadata().is_err());
        let session = long.join("session");
        files::create_folder(&session).expect("a folder");
        let listener = bind_own(&session, Some(run.path())).expect("it can be bound");
        assert!(fs::read_link(listener.path()).is_ok_and(|short| UnixStream::connect(short).is_ok()));
    }

    #[test]
    fn untrusted_folders_are_refused() {
        let homes = Homes::new();
        let folder = homes.socket().with_file_name("");
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("it is ours");
        homes.check_refused("can be written to by others");
        fs::remove_dir(&folder).expect("it is empty");
        fs::write(homes.codex_home().join(DEFAULT_FOLDER), "").expect("a file");
        homes.check_refused("is a file");
        fs::remove_dir_all(homes.codex_home()).expect("it is ours");
        homes.check_refused("does not exist; run codex once");
    }
}
