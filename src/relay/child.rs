//! The child process: starts it in our process group, with our working directory, environment and stderr, and with the
//! signal mask, ignored signals and descriptors that our launcher gave us.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal as KernelSignal, kill_process};

use super::command::ServerCommand;
use super::pipes::{Sink, Source};
use crate::engine::{Exit, Signal};

/// A child that runs or has not been reaped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    /// Once the child is reaped, its process id may belong to another process.
    reaped: bool,
}

/// A new child with our ends of its pipes.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) server: Server,
    pub(super) input: Sink,
    pub(super) output: Source,
}

impl Server {
    /// Starts `command`. On Linux the child gets SIGTERM when the calling *thread* ends, so the thread that is_alive as
    /// long as the process calls this.
    #[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
    pub(super) fn spawn(command: &ServerCommand) -> io::Result<Spawned> {
        // Pipes replace its stdin and stdout, so only a closed stderr has to stay closed.
        let mut process = command.to_process(&[libc::STDERR_FILENO]);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let parent = rustix::process::getpid();
        // SAFETY: the closure makes plain system calls, which are async-signal-safe, and allocates nothing.
        unsafe {
            process.pre_exec(move || end_with_parent(parent));
        }
        let mut child = process.spawn()?;
        let taken = "BUG: the stream was requested as a pipe";
        let input = Sink::of_child(OwnedFd::from(child.stdin.take().expect(taken)))?;
        let output = Source::of_child(OwnedFd::from(child.stdout.take().expect(taken)))?;
        Ok(Spawned { server: Server { child, reaped: false }, input, output })
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
        Some(exit)
    }

    /// Forwards a signal; does nothing if the child is gone.
    pub(super) fn signal(&self, signal: Signal) {
        let number = match signal {
            Signal::Terminate | Signal::BlockedTerminate => KernelSignal::TERM,
            Signal::Interrupt => KernelSignal::INT,
            Signal::HangUp => KernelSignal::HUP,
        };
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).filter(|_| !self.reaped);
        if let Some(pid) = pid
            && let Err(error) = kill_process(pid, number)
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

/// Requests SIGTERM at the parent's death.
#[cfg(target_os = "linux")]
fn end_with_parent(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(KernelSignal::TERM))?;
    // The parent may have died before the request.
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent(_parent: Pid) -> io::Result<()> {
    Ok(())
}
