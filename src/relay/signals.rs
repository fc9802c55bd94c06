//! Signals that reach us, as something that the loop can poll; other threads wake the loop the same way.
//!
//! A signal that was ignored when we were started, as under `nohup`, stays ignored, and the child inherits that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::engine::Signal;

use crate::capture::is_ignored;

/// What we listen for, from before the child is started.
#[derive(Debug)]
pub(super) struct Signals {
    wake: UnixStream,
    /// The other end of it.
    waking: UnixStream,
    passed_on: [(Signal, Arc<AtomicBool>); 3],
    child: Arc<AtomicBool>,
}

/// What has arrived since the last look.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// Signals to pass on.
    pub(super) signals: Vec<Signal>,
    /// A child may have changed its state.
    pub(super) child: bool,
}

impl Signals {
    /// Installs the handlers.
    pub(super) fn listen() -> io::Result<Signals> {
        let (wake, woken_by_handler) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken_by_handler.set_nonblocking(true)?;
        unblock();
        let listen_for = |number| -> io::Result<Arc<AtomicBool>> {
            let seen = Arc::new(AtomicBool::new(false));
            if !is_ignored(number) || number == SIGCHLD {
                // Handlers run in the order of registration: the flag is set before the loop is woken.
                signal_hook::flag::register(number, Arc::clone(&seen))?;
                signal_hook::low_level::pipe::register(number, woken_by_handler.try_clone()?)?;
            }
            Ok(seen)
        };
        Ok(Signals {
            passed_on: [
                (Signal::Terminate, listen_for(SIGTERM)?),
                (Signal::Interrupt, listen_for(SIGINT)?),
                (Signal::HangUp, listen_for(SIGHUP)?),
            ],
            child: listen_for(SIGCHLD)?,
            wake,
            waking: woken_by_handler,
        })
    }

    /// What wakes the loop when a byte is written to it; a write never waits.
    pub(super) fn waker(&self) -> io::Result<UnixStream> {
        self.waking.try_clone()
    }

    /// Takes what has arrived.
    pub(super) fn take(&self) -> Arrived {
        use std::io::Read as _;
        let mut bytes = [0; 64];
        while matches!((&self.wake).read(&mut bytes), Ok(read) if read == bytes.len()) {}
        let took = |seen: &AtomicBool| seen.swap(false, Ordering::SeqCst);
        Arrived {
            signals: self.passed_on.iter().filter(|(_, seen)| took(seen)).map(|(signal, _)| *signal).collect(),
            child: took(&self.child),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Ignores SIGXFSZ, so that a limit on the size of files is an error of a write and not our end.
#[expect(unsafe_code, reason = "no safe interface sets a signal's disposition to `ignore`")]
pub(super) fn ignore_file_size_signal() {
    // SAFETY: SIG_IGN is a valid disposition for SIGXFSZ, and no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Gives SIGXFSZ its default back, in a child that has not become its program yet.
#[expect(unsafe_code, reason = "no safe interface sets a signal's disposition")]
pub(super) fn restore_file_size_signal() {
    // SAFETY: `signal` is async-signal-safe, and SIG_DFL is a valid disposition for SIGXFSZ.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
}

/// Lets through what a launcher may have blocked in us: without SIGCHLD the child's end would not be seen.
#[expect(unsafe_code, reason = "no safe interface changes the signal mask")]
fn unblock() {
    // SAFETY: an all-zero `sigset_t` is valid to be initialised by `sigemptyset`; the numbers are those of signals; no old
    // mask is asked for.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for number in [SIGTERM, SIGINT, SIGHUP, SIGCHLD] {
            libc::sigaddset(&raw mut set, number);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}
