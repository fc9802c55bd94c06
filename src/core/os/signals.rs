//! Signals: which are ignored or blocked, and those to us as a socket that a loop can poll.
//!
//! Signals reach this program through handlers that only set a flag and write to that socket.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{SIG_IGN, SIG_UNBLOCK, SIGCHLD, SIGTSTP};
pub use rustix::process::{Signal, kill_current_process_group as raise_in_group};
use rustix::process::{getpid, kill_process};
use tokio::sync::oneshot;

use super::polling::{PollFlags, poll_one};
use super::{Result, launch};

/// Signals to us, as a socket that a loop can poll; other threads wake the loop through the same socket.
///
/// A signal that our launcher ignored, as under `nohup`, stays ignored. One that it blocked is unblocked for us.
#[derive(Debug)]
pub struct Signals {
    wake: UnixStream,
    /// The write end of `wake`.
    waking: UnixStream,
    seen: Vec<(i32, Arc<AtomicBool>)>,
}

impl Signals {
    pub fn listen(numbers: &[i32]) -> io::Result<Signals> {
        let (wake, waking) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waking.set_nonblocking(true)?;
        let mut seen = Vec::new();
        unblock(numbers);
        for number in numbers.iter().copied().filter(|number| !is_ignored(*number) || *number == SIGCHLD) {
            let flag = Arc::new(AtomicBool::new(false));
            // Handlers run in the order of registration: the flag is set before the loop is woken.
            signal_hook::flag::register(number, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(number, waking.try_clone()?)?;
            seen.push((number, flag));
        }
        Ok(Signals { wake, waking, seen })
    }

    /// A write end that wakes the loop; a write to it never blocks.
    pub fn waker(&self) -> io::Result<UnixStream> {
        self.waking.try_clone()
    }

    /// Takes the signals received since the last call, in the order of `listen`.
    pub fn take(&self) -> Vec<i32> {
        let mut bytes = [0; 64];
        while matches!((&self.wake).read(&mut bytes), Ok(read) if read == bytes.len()) {}
        let taken = self.seen.iter().filter(|(_, flag)| flag.swap(false, Ordering::SeqCst));
        taken.map(|(number, _)| *number).collect()
    }

    /// Waits for a signal on a thread of its own, for an asynchronous program; the receiver gets the first one.
    pub fn first(self) -> io::Result<oneshot::Receiver<()>> {
        let (signalled, first) = oneshot::channel();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            while self.take().is_empty() {
                // An interrupted wait is repeated.
                let _ = poll_one(&self, PollFlags::IN, None);
            }
            // Without a receiver the program is ending already.
            let _ = signalled.send(());
        })?;
        Ok(first)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Unblocks these signals in the calling thread and in the threads that it starts.
#[expect(unsafe_code, reason = "no safe interface changes the signal mask")]
pub fn unblock(numbers: &[i32]) {
    launch::launch();
    // SAFETY: an all-zero `sigset_t` is valid to be initialised by `sigemptyset`; the numbers are those of signals; the
    // old mask is not requested.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for number in numbers {
            libc::sigaddset(&raw mut set, *number);
        }
        libc::pthread_sigmask(SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Makes this program, and those that it starts without [`launch::hand_down`], ignore a signal.
pub fn ignore(number: i32) {
    launch::launch();
    set_disposition(number, SIG_IGN);
}

/// Sends a signal to this process.
pub fn raise(signal: Signal) -> Result<()> {
    kill_process(getpid(), signal)
}

/// Stops our process group as Ctrl-Z would: with the default action, which stops any program.
#[expect(unsafe_code, reason = "no safe interface takes a handler away and puts it back")]
pub fn stop_group() -> io::Result<()> {
    // SAFETY: an all-zero `sigaction` is valid and means the default action; both pointers refer to values that live through
    // the call.
    let ours = unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut ours: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(SIGTSTP, &raw const default, &raw mut ours) != 0 {
            return Err(io::Error::last_os_error());
        }
        ours
    };
    let stopped = raise_in_group(Signal::TSTP);
    // SAFETY: the value is the one that the kernel returned above.
    unsafe { libc::sigaction(SIGTSTP, &raw const ours, std::ptr::null_mut()) };
    Ok(stopped?)
}

#[expect(unsafe_code, reason = "no safe interface reads a signal's disposition")]
pub fn is_ignored(number: i32) -> bool {
    // SAFETY: an all-zero `sigaction` is a valid value to be overwritten; with no new action given, the call only reads
    // the old one into it, and is async-signal-safe.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(number, std::ptr::null(), &raw mut action) != 0 {
            return false;
        }
        action
    };
    action.sa_sigaction == SIG_IGN
}

#[expect(unsafe_code, reason = "no safe interface sets a signal's disposition")]
pub(super) fn set_disposition(number: i32, disposition: libc::sighandler_t) {
    // SAFETY: `signal` is async-signal-safe, and the disposition is only ever SIG_DFL or SIG_IGN.
    unsafe { libc::signal(number, disposition) };
}
