//! Waiting until one of several descriptors is ready.
//!
//! A signal ends a wait early, with [`Errno::INTR`](super::Errno::INTR).
//!
//! macOS reports that a peer is gone only if something is asked for, [`PollFlags::HUP`] at least; on Linux that flag changes nothing. For a
//! socket it means there that either half is closed, and it is reported for an end that is not read only if the peer is gone when the
//! call begins, so [`poll`] calls again now and then.
//!
//! macOS cannot wait for `/dev/tty`, `/dev/null` and some other devices: they are reported as invalid, and a poll with one of them
//! does not wait at all.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
pub use rustix::event::{PollFd, PollFlags};

use super::Result;
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

/// How late macOS may report the end of a peer that is not read.
const HANG_UP_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Waits until a descriptor is ready, `wait_max` at most, and returns how many are; after [`WAIT_MAX`], 24 days, none. macOS counts whole
/// milliseconds, rounded up, and reports up to [`HANG_UP_LOOK_EVERY`] late that a peer is gone if only that is asked for.
#[inline]
pub fn poll(fds: &mut [PollFd<'_>], wait_max: Option<Duration>) -> Result<usize> {
    if is_portable() && fds.iter().any(asks_for_hang_up_alone) {
        return poll_again_and_again(fds, wait_max);
    }
    poll_once(fds, wait_max)
}

/// As [`poll`], for one descriptor. Returns what it is ready for: nothing after `wait_max`.
pub fn poll_one(fd: &impl AsFd, flags: PollFlags, wait_max: Option<Duration>) -> Result<PollFlags> {
    let mut fds = [PollFd::new(fd, flags)];
    poll(&mut fds, wait_max)?;
    Ok(fds[0].revents())
}

/// Whether the reader of a pipe or a socket is gone. A peer that has only ended its own writing still reads.
pub fn is_unread(fd: &impl AsFd) -> bool {
    // This is the end of the other half on macOS, too.
    let found = poll_one(fd, PollFlags::OUT, Some(Duration::ZERO));
    found.is_ok_and(|found| found.intersects(PollFlags::ERR | PollFlags::HUP))
}

/// Waits for `pause`; returns true early if the reader of `fd` is gone.
pub fn is_unread_within(fd: &impl AsFd, pause: Duration) -> bool {
    let began = Instant::now();
    loop {
        let left = pause.saturating_sub(began.elapsed());
        let found = poll_one(fd, PollFlags::HUP, Some(left)).unwrap_or(PollFlags::empty());
        if found.intersects(PollFlags::ERR | PollFlags::HUP) && is_unread(fd) {
            return true;
        }
        if left.is_zero() {
            return false;
        }
        if !found.is_empty() {
            // It cannot be waited for.
            std::thread::park_timeout(left);
        }
    }
}

#[inline]
fn poll_once(fds: &mut [PollFd<'_>], wait_max: Option<Duration>) -> Result<usize> {
    let wait_max = wait_max.map(|wait_max| wait_max.min(WAIT_MAX));
    #[cfg(all(target_os = "linux", debug_assertions))]
    if is_portable() {
        return super::portable::poll(fds, wait_max);
    }
    let timeout = wait_max.and_then(|wait_max| Timespec::try_from(wait_max).ok());
    rustix::event::poll(fds, timeout.as_ref())
}

/// Each call sees a peer that is gone by then. A call that waits sees it only as long as there is nothing to read. Source:
/// `poll_nocancel` of xnu, which drops the only event of a descriptor once bytes have come.
fn poll_again_and_again(fds: &mut [PollFd<'_>], wait_max: Option<Duration>) -> Result<usize> {
    let began = Instant::now();
    loop {
        let left = wait_max.map(|wait_max| wait_max.saturating_sub(began.elapsed()));
        let ready = poll_once(fds, Some(left.map_or(HANG_UP_LOOK_EVERY, |left| left.min(HANG_UP_LOOK_EVERY))))?;
        if ready > 0 || left.is_some_and(|left| left <= HANG_UP_LOOK_EVERY) {
            return Ok(ready);
        }
    }
}

const _: () = assert!(size_of::<PollFd<'_>>() == size_of::<libc::pollfd>());

#[expect(unsafe_code, reason = "rustix does not show what a descriptor is polled for")]
fn asks_for_hang_up_alone(fd: &PollFd<'_>) -> bool {
    // SAFETY: it is what the kernel reads and writes, so it is laid out as a `pollfd`.
    let raw: &libc::pollfd = unsafe { &*std::ptr::from_ref(fd).cast() };
    raw.events == libc::POLLHUP
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn departed_peer_shows_behind_unread_bytes() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(b"unread").expect("it has room");
        let leaves = std::thread::spawn(move || {
            std::thread::park_timeout(Duration::from_millis(50));
            drop(theirs);
        });
        let found = poll_one(&ours, half_closed(), Some(PATIENCE)).expect("a poll");
        assert!(!found.is_empty(), "it is not seen");
        leaves.join().expect("it ends");
        assert!(is_unread(&ours));
    }

    #[test]
    fn peer_that_only_ends_its_writing_still_reads() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        theirs.shutdown(std::net::Shutdown::Write).expect("it is open");
        assert!(!is_unread(&ours));
        assert!(!is_unread_within(&ours, Duration::from_millis(50)));
        drop(theirs);
        assert!(is_unread_within(&ours, PATIENCE));
    }

    #[test]
    fn pause_lasts_on_a_device_too() {
        let (null, pause) = (std::fs::File::create("/dev/null").expect("it is there"), Duration::from_millis(100));
        let began = Instant::now();
        assert!(!is_unread_within(&null, pause));
        assert!(began.elapsed() >= pause);
    }

    #[test]
    fn hang_up_alone_is_waited_for_as_long_as_asked() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let (began, wait_max) = (Instant::now(), Duration::from_millis(1_100));
        assert_eq!(poll_one(&ours, PollFlags::HUP, Some(wait_max)), Ok(PollFlags::empty()));
        assert!(began.elapsed() >= wait_max);
    }
}
