//! Waiting until one of several descriptors is ready.
//!
//! A signal ends a wait early, with [`Errno::INTR`](super::Errno::INTR).
//!
//! macOS cannot wait for `/dev/tty` and some other devices: their readiness is then not reported.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::Timespec;
pub use rustix::event::{PollFd, PollFlags};

use super::Result;
#[cfg(target_os = "linux")]
use super::portable::is_portable;

/// Detects a socket whose peer has only shut down its writing half. Only Linux can: elsewhere this is the same as no interest at
/// all, with which a poll still reports a peer that has closed both halves.
pub fn half_closed() -> PollFlags {
    #[cfg(target_os = "linux")]
    if !is_portable() {
        return PollFlags::RDHUP;
    }
    PollFlags::empty()
}

/// Waits until a descriptor is ready, `wait_max` at most, and returns how many are. macOS counts whole milliseconds, rounded up.
#[inline]
pub fn poll(fds: &mut [PollFd<'_>], wait_max: Option<Duration>) -> Result<usize> {
    // A time beyond the clock's range is as good as none.
    let timeout = wait_max.and_then(|wait_max| Timespec::try_from(wait_max).ok());
    rustix::event::poll(fds, timeout.as_ref())
}

/// As [`poll`], for one descriptor. Returns what it is ready for: nothing after `wait_max`.
pub fn poll_one(fd: &impl AsFd, flags: PollFlags, wait_max: Option<Duration>) -> Result<PollFlags> {
    let mut fds = [PollFd::new(fd, flags)];
    poll(&mut fds, wait_max)?;
    Ok(fds[0].revents())
}
