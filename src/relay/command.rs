//! A server to start, as a command line.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::config::DEPTH_VARIABLE;
use crate::engine::masked_args;
use crate::launch;

/// A server to start.
#[derive(Debug, Clone)]
pub(crate) struct ServerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its name as the caller gave it, which becomes its `argv[0]`.
    pub name: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// How many of us stand before it, with this one.
    pub depth: u32,
    /// Its PATH, if not ours.
    pub path: Option<OsString>,
}

impl ServerCommand {
    /// The process to start or to become. It inherits what our launcher gave us; of the standard streams, those in `closed` are
    /// closed if our launcher has closed them.
    pub(super) fn to_process(&self, closed: &'static [RawFd]) -> Command {
        let mut process = Command::new(&self.program);
        process.arg0(&self.name).args(&self.args).env(DEPTH_VARIABLE, self.depth.to_string());
        process.envs(self.path.iter().map(|path| ("PATH", path)));
        launch::hand_down(&mut process, closed);
        process
    }

    /// The whole command line, secrets masked.
    pub(super) fn told(&self) -> Vec<String> {
        let program = [self.program.to_string_lossy().into_owned()];
        program.into_iter().chain(masked_args(&self.args)).collect()
    }
}
