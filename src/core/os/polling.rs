//! Waiting until one of several descriptors is ready.
//!
//! A signal ends a wait early, with [`Errno::INTR`](super::Errno::INTR).
//!
//! macOS reports that a peer is gone only if something is asked for, [`PollFlags::HUP`] at least; on Linux that flag changes nothing. macOS
//! cannot wait for `/dev/tty` and some other devices: they are reported as invalid.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::Timespec;
pub use rustix::event::{PollFd, PollFlags};

use super::Result;
#[cfg(target_os = "linux")]
use super::portable::is_portable;

/// Detects a peer that has closed the end in use, also a socket whose peer has only shut down its writing half.
pub fn half_closed() -> PollFlags {
    #[cfg(target_os = "linux")]
    if !is_portable() {
        return PollFlags::RDHUP;
    }
    // On macOS it means either.
    PollFlags::HUP
}

/// The longest wait: macOS counts milliseconds in 32 bits, and refuses more.
const WAIT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// Waits until a descriptor is ready, `wait_max` at most, and returns how many are; after [`WAIT_MAX`], 24 days, none. macOS counts whole
/// milliseconds, rounded up.
#[inline]
pub fn poll(fds: &mut [PollFd<'_>], wait_max: Option<Duration>) -> Result<usize> {
    let timeout = wait_max.and_then(|wait_max| Timespec::try_from(wait_max.min(WAIT_MAX)).ok());
    rustix::event::poll(fds, timeout.as_ref())
}

/// As [`poll`], for one descriptor. Returns what it is ready for: nothing after `wait_max`.
pub fn poll_one(fd: &impl AsFd, flags: PollFlags, wait_max: Option<Duration>) -> Result<PollFlags> {
    let mut fds = [PollFd::new(fd, flags)];
    poll(&mut fds, wait_max)?;
    Ok(fds[0].revents())
}
