//! The server: its command line, and its process.
//!
//! The process runs in our process group, with our working directory, environment and stderr, and with the signal mask,
//! ignored signals and descriptors that our launcher gave us.

use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::pipes::{PipeSource, Sink};
use crate::config::DEPTH_VARIABLE;
use crate::engine::{Exit, Signal};
use crate::os::keeper::{self, Keeper};
use crate::os::launch;
use crate::os::processes::{self, Pid};
use crate::os::signals::Signal as KernelSignal;
use crate::secrets::masked_args;

/// A server command line.
#[derive(Debug, Clone)]
pub struct ServerCommand {
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
    pub fn to_process(&self, closed: &'static [RawFd]) -> Command {
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

/// A child that runs or has not been reaped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    keeper: Keeper,
    /// Once the child is reaped, its process id may belong to another process.
    reaped: bool,
}

/// A new child with our ends of its pipes.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) server: Server,
    pub(super) input: Sink,
    pub(super) output: PipeSource,
}

impl Server {
    /// Starts `command`, which gets SIGTERM when this process ends. The thread that lives as long as the process calls this: see
    /// [`keeper::spawn`].
    pub(super) fn spawn(command: &ServerCommand) -> io::Result<Spawned> {
        // Pipes replace its stdin and stdout, so only a closed stderr has to stay closed.
        let mut process = command.to_process(&[2]);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let (mut child, keeper) = keeper::spawn(&mut process, KernelSignal::TERM)?;
        let taken = "BUG: the stream was requested as a pipe";
        let input = Sink::of_child(OwnedFd::from(child.stdin.take().expect(taken)))?;
        let output = PipeSource::of_child(OwnedFd::from(child.stdout.take().expect(taken)))?;
        Ok(Spawned { server: Server { child, keeper, reaped: false }, input, output })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reaps the child if it has ended; returns its exit once.
    pub(super) fn try_reap(&mut self) -> Option<Exit> {
        if self.reaped {
            return None;
        }
        let exit = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => Exit::Code(1),
            },
            Err(error) => {
                tracing::error!(%error, "wait for the server");
                Exit::Code(1)
            }
        };
        self.reaped = true;
        self.keeper.reaped();
        Some(exit)
    }

    /// Forwards a signal; does nothing if the child is gone.
    pub(super) fn signal(&self, signal: Signal) {
        let number = match signal {
            Signal::Terminate | Signal::BlockedTerminate => KernelSignal::TERM,
            Signal::Interrupt => KernelSignal::INT,
            Signal::HangUp => KernelSignal::HUP,
        };
        if !self.reaped
            && let Err(error) = processes::signal(Pid::from_child(&self.child), number)
        {
            tracing::info!(%error, ?signal, "forward a signal to the server");
        }
    }

    pub(super) fn kill(&mut self) {
        if let Err(error) = self.child.kill() {
            tracing::info!(%error, "kill the server");
        }
    }
}

/// The signals that the loop listens for: those to forward, and the one that reports the child's end.
pub(super) const SIGNALS: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGCHLD];

/// The signal to forward to the child, if this is one.
pub(super) fn to_forward(number: i32) -> Option<Signal> {
    match number {
        SIGTERM if launch::was_blocked(SIGTERM) => Some(Signal::BlockedTerminate),
        SIGTERM => Some(Signal::Terminate),
        SIGINT => Some(Signal::Interrupt),
        SIGHUP => Some(Signal::HangUp),
        _ => None,
    }
}
