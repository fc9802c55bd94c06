//! What a hub is started with.

use std::os::fd::RawFd;
use std::path::PathBuf;

use crate::config::{SessionName, Settings};
use crate::relay::ServerCommand;

/// Whether the hub listens on the socket at which codex looks for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultSocket {
    Claimed,
    LeftAlone,
}

/// The settings of a hub.
#[derive(Debug)]
pub struct HubOptions {
    /// `codex app-server` and its options, without `--listen`.
    pub command: ServerCommand,
    pub settings: Settings,
    /// The session that the user has named on the command line, not by a variable: a hub may be started from within a session.
    pub session: Option<SessionName>,
    pub default_socket: DefaultSocket,
    /// A resolved path.
    pub codex_home: PathBuf,
    /// Whether `CODEX_HOME` is set.
    pub codex_home_is_set: bool,
    /// The server's working directory.
    pub cwd: PathBuf,
    pub runtime_dir: Option<PathBuf>,
    /// The descriptor with the state of the hub that has run in this process before.
    pub state: Option<RawFd>,
}
