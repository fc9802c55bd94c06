//! Delivers signals to us as a socket that the loop can poll; other threads wake the loop through the same socket.
//!
//! A signal that was ignored when we were started, as under `nohup`, stays ignored, and the child inherits that. A
//! signal that was blocked is unblocked for us and forwarded to the child, in which it is blocked as it would be
//! without us.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::engine::Signal;

use crate::launch::{is_ignored, unblock, was_blocked};

/// The signal handlers, installed before the child is started.
#[derive(Debug)]
pub(super) struct Signals {
    wake: UnixStream,
    /// The write end of `wake`.
    waking: UnixStream,
    forwarded: [(Signal, Arc<AtomicBool>); 3],
    child: Arc<AtomicBool>,
}

/// What has arrived since the last call.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// Signals to forward.
    pub(super) signals: Vec<Signal>,
    /// A child may have changed its state.
    pub(super) child: bool,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Signals> {
        let (wake, woken_by_handler) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken_by_handler.set_nonblocking(true)?;
        unblock(&[SIGTERM, SIGINT, SIGHUP, SIGCHLD]);
        let listen_for = |number| -> io::Result<Arc<AtomicBool>> {
            let seen = Arc::new(AtomicBool::new(false));
            if !is_ignored(number) || number == SIGCHLD {
                // Handlers run in the order of registration: the flag is set before the loop is woken.
                signal_hook::flag::register(number, Arc::clone(&seen))?;
                signal_hook::low_level::pipe::register(number, woken_by_handler.try_clone()?)?;
            }
            Ok(seen)
        };
        let terminate = if was_blocked(SIGTERM) { Signal::BlockedTerminate } else { Signal::Terminate };
        Ok(Signals {
            forwarded: [
                (terminate, listen_for(SIGTERM)?),
                (Signal::Interrupt, listen_for(SIGINT)?),
                (Signal::HangUp, listen_for(SIGHUP)?),
            ],
            child: listen_for(SIGCHLD)?,
            wake,
            waking: woken_by_handler,
        })
    }

    /// A write end that wakes the loop; a write to it never blocks.
    pub(super) fn waker(&self) -> io::Result<UnixStream> {
        self.waking.try_clone()
    }

    /// Takes everything that has arrived.
    pub(super) fn take(&self) -> Arrived {
        use std::io::Read as _;
        let mut bytes = [0; 64];
        while matches!((&self.wake).read(&mut bytes), Ok(read) if read == bytes.len()) {}
        let took = |seen: &AtomicBool| seen.swap(false, Ordering::SeqCst);
        Arrived {
            signals: self.forwarded.iter().filter(|(_, seen)| took(seen)).map(|(signal, _)| *signal).collect(),
            child: took(&self.child),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
