//! The process that has the id of a peer, and whether it is the one that connected.
//!
//! From Linux 6.5 on, the kernel gives a descriptor of the process that connected, and no other process has its id as long as that
//! one has not ended. Before, only times tell: a process that started after we accepted the connection is not the peer, and one
//! that has the same start time before and after a reading is the same process. A process that starts between the connect and
//! the accept then looks like the peer.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::clocks::since_boot;
use super::facts::{TICKS_IN_A_SECOND, started_ticks};
use super::polling::{PollFlags, poll_one};

/// Begins before anything is read of the process.
#[derive(Debug)]
pub(super) enum Holder {
    Descriptor(OwnedFd),
    Times(Times),
    /// The kernel has descriptors, and none of the peer, which has ended.
    Gone,
}

/// Readings about the process, made without a descriptor of it. Times are in ticks since the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pid: u32,
    accepted: u64,
    /// `None` if no process has this id, or it has ended.
    started: Option<u64>,
}

impl Holder {
    /// Of the peer of a connection that was just accepted.
    pub(super) fn of(stream: &impl AsFd, pid: u32) -> Holder {
        match super::peers::process_descriptor(stream) {
            Ok(descriptor) => Holder::Descriptor(descriptor),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                Holder::Times(Times { accepted: now(), pid, started: started_ticks(pid) })
            }
            Err(_) => Holder::Gone,
        }
    }

    /// Whether all that was read since [`Holder::of`] is about the process that connected; `pid` is its id as the socket names it
    /// now.
    pub(super) fn is_peer(&self, pid: Option<u32>) -> bool {
        match self {
            Holder::Descriptor(process) => is_alive(process),
            Holder::Times(times) => times.are_of_peer(pid, started_ticks(times.pid)),
            Holder::Gone => false,
        }
    }
}

impl Times {
    /// Whether the process is the peer, and the same one all the time. A program may connect in the tick in which it has started, so
    /// that tick counts.
    fn are_of_peer(&self, pid_now: Option<u32>, started_now: Option<u64>) -> bool {
        let Some(started) = self.started else { return false };
        pid_now == Some(self.pid) && started_now == Some(started) && started <= self.accepted
    }
}

/// The time since the boot, in ticks.
fn now() -> u64 {
    let now = since_boot();
    now.as_secs() * TICKS_IN_A_SECOND + u64::from(now.subsec_nanos()) * TICKS_IN_A_SECOND / 1_000_000_000
}

fn is_alive(process: &OwnedFd) -> bool {
    poll_one(process, PollFlags::IN, Some(Duration::ZERO)).is_ok_and(|found| found.is_empty())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_one_process_that_started_before_is_the_peer() {
        for (started, accepted, pid_now, started_now, expect) in [
            (Some(100), 200, Some(7), Some(100), true),
            (Some(200), 200, Some(7), Some(200), true),
            // It started after the accept, so it has taken the id of the peer.
            (Some(201), 200, Some(7), Some(201), false),
            // The peer has ended, before or after the reading.
            (None, 200, Some(7), None, false),
            (Some(100), 200, Some(7), None, false),
            // Another process has taken the id meanwhile.
            (None, 200, Some(7), Some(150), false),
            (Some(100), 200, Some(7), Some(101), false),
            (Some(100), 200, Some(7), Some(201), false),
            // The socket names another process, or none.
            (Some(100), 200, Some(8), Some(100), false),
            (Some(100), 200, None, Some(100), false),
        ] {
            let times = Times { pid: 7, accepted, started };
            assert_eq!(times.are_of_peer(pid_now, started_now), expect, "{times:?} {pid_now:?} {started_now:?}");
        }
    }

    /// As on a kernel before 6.5.
    #[test]
    fn times_of_a_running_process_are_its_own() {
        let mut child = Command::new("sleep").arg("600").spawn().expect("sleep runs");
        let pid = child.id();
        let times = Times { pid, accepted: now(), started: started_ticks(pid) };
        let holder = Holder::Times(times);
        assert!(holder.is_peer(Some(pid)), "{times:?}");
        // A connection that was accepted before it started.
        let early = Times { accepted: times.started.expect("it runs") - 1, ..times };
        assert!(!Holder::Times(early).is_peer(Some(pid)));
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert!(!holder.is_peer(Some(pid)));
    }
}
