//! The command line of a server.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::config::DEPTH_VARIABLE;
use crate::engine::masked_args;
use crate::launch;

/// A server command line.
#[derive(Debug, Clone)]
pub(crate) struct ServerCommand {
    pub program: PathBuf,
    /// The name as the caller gave it; it becomes `argv[0]`.
    pub name: OsString,
    pub args: Vec<OsString>,
    /// The number of codex-shim processes in front of the server, including this one.
    pub depth: u32,
    /// The server's PATH, if it differs from ours.
    pub path: Option<OsString>,
}

impl ServerCommand {
    /// The process to start or to become. It inherits what our launcher gave us. A standard stream in `closed` is
    /// closed if our launcher had closed it.
    pub(super) fn to_process(&self, closed: &'static [RawFd]) -> Command {
        let mut process = Command::new(&self.program);
        process.arg0(&self.name).args(&self.args).env(DEPTH_VARIABLE, self.depth.to_string());
        process.envs(self.path.iter().map(|path| ("PATH", path)));
        launch::hand_down(&mut process, closed);
        process
    }

    /// The whole command line with secrets masked.
    pub(super) fn masked(&self) -> Vec<String> {
        let program = [self.program.to_string_lossy().into_owned()];
        program.into_iter().chain(masked_args(&self.args)).collect()
    }
}
