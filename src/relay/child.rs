//! The child: started in our process group, with our working directory, environment and stderr, and with the signal mask, ignored
//! signals and descriptors that our launcher gave us.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal as KernelSignal, kill_process};

use super::command::ServerCommand;
use super::pipes::{Sink, Source};
use crate::engine::{Exit, Signal};

/// A child that runs, or has not been reaped yet.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    /// It was waited for: its process id may be another's by now.
    reaped: bool,
}

/// A child that was just started, with our ends of its pipes.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) server: Server,
    pub(super) input: Sink,
    pub(super) output: Source,
}

impl Server {
    /// Starts `command`. On Linux the child gets SIGTERM when the calling *thread* ends, so this is called from the one
    /// that lives as long as the process.
    #[expect(unsafe_code, reason = "`pre_exec` is the only way to run code in the child")]
    pub(super) fn spawn(command: &ServerCommand) -> io::Result<Spawned> {
        // Its stdin and stdout are pipes of ours.
        let mut process = command.to_process(&[libc::STDERR_FILENO]);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let parent = rustix::process::getpid();
        // SAFETY: the closure makes plain system calls, which are async-signal-safe, and allocates nothing.
        unsafe {
            process.pre_exec(move || end_with_parent(parent));
        }
        let mut child = process.spawn()?;
        let taken = "BUG: the stream was asked to be piped";
        let input = Sink::of_child(OwnedFd::from(child.stdin.take().expect(taken)))?;
        let output = Source::of_child(OwnedFd::from(child.stdout.take().expect(taken)))?;
        Ok(Spawned { server: Server { child, reaped: false }, input, output })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the child ended, if it has; reaps it, and says so once.
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

    /// Passes a signal on. A child that is gone already is no error.
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
            tracing::info!(%error, ?signal, "pass a signal on to the server");
        }
    }

    pub(super) fn kill(&mut self) {
        if let Err(error) = self.child.kill() {
            tracing::info!(%error, "kill the server");
        }
    }
}

/// Asks for SIGTERM at the parent's death.
#[cfg(target_os = "linux")]
fn end_with_parent(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(KernelSignal::TERM))?;
    // The parent may have died before the request was made.
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent(_parent: Pid) -> io::Result<()> {
    Ok(())
}
