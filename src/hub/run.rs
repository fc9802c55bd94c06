//! The hub's run: takes the session and the sockets, adopts or starts the server, and serves until a signal ends it.
//!
//! The order matters. The default socket is claimed before anything else, since another hub or daemon there means that this one
//! must not start. It listens only once the server does, and the socket in the session folder comes last: whoever finds that one
//! answering knows that the hub is complete.

use std::io;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use uuid::Uuid;

use super::process::{self, ServerError, ServerProcess, StartOptions};
use super::sockets::{self, Claim, ClaimError, Listener};
use crate::config::{SessionName, Settings};
use crate::control::SocketError;
use crate::launch::{self, Signals};
use crate::relay::ServerCommand;
use crate::store::{Session, StoreError, open_log};

/// Whether the hub listens on the socket at which codex looks for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefaultSocket {
    Claimed,
    LeftAlone,
}

/// What a hub needs to know.
#[derive(Debug)]
pub(crate) struct HubOptions {
    /// `codex app-server` and its options, without `--listen`.
    pub command: ServerCommand,
    pub settings: Settings,
    /// The session that the user has named on the command line, not by a variable: a hub may be started from within a session.
    pub session: Option<SessionName>,
    pub default_socket: DefaultSocket,
    /// An absolute path.
    pub codex_home: PathBuf,
    /// Whether `CODEX_HOME` is set.
    pub codex_home_is_set: bool,
    /// The server's working directory.
    pub cwd: PathBuf,
    pub runtime_dir: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HubError {
    #[error("cannot find the state folder: set HOME or CODEX_SHIM_HOME")]
    NoHome,
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Session(#[from] StoreError),
    #[error("session {0} is in use; see `codex-shim status {0}`, or choose another name")]
    SessionInUse(String),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("set up {what}: {source}")]
    SetUp { what: &'static str, source: io::Error },
    #[error("the server has ended; see {}", .log.display())]
    ServerEnded { log: PathBuf },
}

/// Runs a hub until SIGTERM, SIGINT or SIGHUP. They leave the server running.
///
/// # Errors
///
/// Something else answers on the default socket, or the server could not be started.
pub(crate) fn run(options: HubOptions) -> Result<(), HubError> {
    let set_up = |what| move |source| HubError::SetUp { what, source };
    launch::keep_descriptors();
    launch::ignore_file_size_signal();
    let home = options.settings.home.value.clone().ok_or(HubError::NoHome)?;
    let runtime_dir = options.runtime_dir.as_deref();
    let signals = Signals::listen(&[SIGTERM, SIGINT, SIGHUP, SIGCHLD]).map_err(set_up("signal handlers"))?;
    let claim = match options.default_socket {
        DefaultSocket::Claimed => Some(Claim::take(&options.codex_home, &home, runtime_dir)?),
        DefaultSocket::LeftAlone => None,
    };
    let wanted = options.session.as_ref();
    let session = Session::open(&home, wanted, &super::place(&options.codex_home), Uuid::now_v7())?;
    if let Some(name) = wanted.filter(|name| name.to_string() != session.id) {
        return Err(HubError::SessionInUse(name.to_string()));
    }
    if let Err(error) = open_log(&session.dir) {
        tracing::warn!(%error, "open the log");
    }
    let Some(mut server) = server(&options, &session, &signals)? else { return Ok(()) };
    let mut listeners: Vec<Listener> = Vec::new();
    if let Some(claim) = claim {
        listeners.push(claim.listen()?);
    }
    listeners.push(sockets::bind_own(&session.dir, runtime_dir)?);
    serve(&mut server, &listeners, &signals, &session)
}

/// Adopts the server of this session, or starts one; `None` if a signal came first.
fn server(options: &HubOptions, session: &Session, signals: &Signals) -> Result<Option<ServerProcess>, HubError> {
    if let Some(server) = process::adopt(&session.dir) {
        tracing::info!(pid = server.pid, version = ?server.version, "adopted the server");
        return Ok(Some(server));
    }
    let mut starting = process::start(StartOptions {
        command: options.command.clone(),
        session_dir: session.dir.clone(),
        codex_home: options.codex_home_is_set.then(|| options.codex_home.clone()),
        cwd: options.cwd.clone(),
        runtime_dir: options.runtime_dir.clone(),
        generation: session.next_generation()?.to_string(),
    })?;
    loop {
        if let Some(server) = starting.poll()? {
            tracing::info!(pid = server.pid, version = ?server.version, "started the server");
            return Ok(Some(server));
        }
        if signals.take().iter().any(|signal| *signal != SIGCHLD) {
            return Ok(None);
        }
        std::thread::park_timeout(process::POLL_PAUSE);
    }
}

/// How often the server and the size of its log are looked at.
const LOOK_PAUSE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Serves clients until a signal comes. A client's connection is closed at once, as there is nothing behind it yet.
fn serve(
    server: &mut ServerProcess,
    listeners: &[Listener],
    signals: &Signals,
    session: &Session,
) -> Result<(), HubError> {
    loop {
        let mut ready: Vec<PollFd<'_>> =
            listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
        ready.push(PollFd::new(signals, PollFlags::IN));
        match poll(&mut ready, Some(&LOOK_PAUSE)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(HubError::SetUp { what: "the poll loop", source: error.into() }),
        }
        if signals.take().iter().any(|signal| *signal != SIGCHLD) {
            return Ok(());
        }
        for listener in listeners {
            while let Some(accepted) = listener.accept().unwrap_or_default() {
                tracing::info!(pid = accepted.pid, "closed a connection to {}", listener.path().display());
            }
        }
        if !server.is_alive() {
            return Err(HubError::ServerEnded { log: session.dir.join(process::SERVER_LOG) });
        }
        server.bound_log();
    }
}
