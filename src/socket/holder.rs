//! The process that has the id of a peer, and whether it is the one that connected.
//!
//! From Linux 6.5 on, the kernel gives a descriptor of the process that connected, and no other process has its id as long as that
//! one has not ended. Before, only times tell: a process that started after we accepted the connection is not the peer, and one
//! that has the same start time before and after a reading is the same process. A process that starts between the connect and
//! the accept then looks like the peer.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::os::polling::{PollFlags, poll_one};

/// Clock ticks in a second, as `/proc` counts. Source: `USER_HZ` of the architectures that Rust supports on Linux.
const TICKS_PER_SECOND: u64 = 100;

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
        match super::peer::process_descriptor(stream) {
            Ok(descriptor) => Holder::Descriptor(descriptor),
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                Holder::Times(Times { accepted: now(), pid, started: started(pid) })
            }
            Err(_) => Holder::Gone,
        }
    }

    /// Whether all that was read since [`Holder::of`] is about the process that connected; `pid` is its id as the socket names it
    /// now.
    pub(super) fn is_peer(&self, pid: Option<u32>) -> bool {
        match self {
            Holder::Descriptor(process) => is_alive(process),
            Holder::Times(times) => times.are_of_peer(pid, started(times.pid)),
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
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds * TICKS_PER_SECOND + nanos * TICKS_PER_SECOND / 1_000_000_000
}

/// When the process with this id started; `None` if there is none, or if it has ended.
fn started(pid: u32) -> Option<u64> {
    ticks_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The start time in `/proc/PID/stat`. The name of a process may contain anything, so the fields are counted from its end.
fn ticks_of(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    // The state is field 3 of proc(5), and the start time field 22.
    fields.nth(18)?.parse().ok()
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

    #[test]
    fn start_is_read_behind_any_name() {
        let line = |name: &str, state: &str| {
            let rest: Vec<String> =
                (4..30).map(|field| if field == 22 { "4711".to_owned() } else { "1".to_owned() }).collect();
            format!("7 ({name}) {state} {}", rest.join(" "))
        };
        for (name, state, expect) in [("sh", "S", Some(4_711)), (") S 1 (", "R", Some(4_711)), ("sh", "Z", None)] {
            assert_eq!(ticks_of(&line(name, state)), expect, "{name} {state}");
        }
        assert_eq!((ticks_of(""), ticks_of("7 (sh) S 1 2")), (None, None));
    }

    /// As on a kernel before 6.5.
    #[test]
    fn times_of_a_running_process_are_its_own() {
        let mut child = Command::new("sleep").arg("600").spawn().expect("sleep runs");
        let pid = child.id();
        let times = Times { pid, accepted: now(), started: started(pid) };
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
