//! Whether the calls of this room answer as they should on the system that this program runs on.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::peers::Peer;
use super::polling::PollFlags;
use super::processes::{self, ProcessIdentity};
use super::{Errno, clocks, confinement, descriptors, fs, polling, sockets, terminals};

/// How long a test waits for what is there at once.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// No socket holds so many sends.
const SENDS_MAX: usize = 100_000;

/// What is tried, in words, and whether it answers as it should for this process.
type Test = (&'static str, fn(u32) -> bool);

/// What does not answer as it should, in words.
pub fn failures() -> Vec<&'static str> {
    let own = std::process::id();
    let tests: &[Test] = &[
        ("the program of a process", |own| {
            // It may have several names, and may have been replaced.
            let file = |path: PathBuf| path.metadata().ok().map(|facts| (facts.dev(), facts.ino()));
            let Some(exe) = std::env::current_exe().ok().and_then(file) else { return true };
            processes::program(own).and_then(file) == Some(exe)
        }),
        ("the arguments of a process", |own| {
            let first = std::env::args_os().next().unwrap_or_default();
            let of_own = processes::arguments(own).unwrap_or_default();
            of_own.split(|byte| *byte == 0).next() == Some(first.as_encoded_bytes())
        }),
        ("the parent of a process", |own| processes::parent(own) == Some(std::os::unix::process::parent_id())),
        ("the start of a process", |own| ProcessIdentity::of(own).is_some_and(|identity| identity.is_alive())),
        ("the list of processes", |own| processes::all().is_some_and(|all| all.contains(&own))),
        ("the process at the other end of a socket", |own| {
            let peer = UnixStream::pair().and_then(|(ours, _theirs)| Peer::of(&ours));
            peer.is_ok_and(|peer| peer.is_ours() && peer.pid == Some(own))
        }),
        ("how a caller is confined", |_| {
            let Ok((ours, _theirs)) = UnixStream::pair() else { return false };
            let of_peer = Peer::of(&ours).ok().and_then(|peer| confinement::Confinement::of_peer(&ours, peer));
            // It is this process, which is confined as much as itself.
            of_peer.is_some_and(|peer| confinement::Confinement::own().restriction_of(&peer).is_none())
        }),
        #[cfg(target_vendor = "apple")]
        ("that a caller has left", |_| {
            let Ok((ours, theirs)) = UnixStream::pair() else { return false };
            let peer = Peer::of(&ours);
            drop(theirs);
            peer.is_ok_and(|peer| confinement::Confinement::of_peer(&ours, peer).is_none())
        }),
        ("a socket that does not wait", |_| {
            let Ok((ours, theirs)) = UnixStream::pair() else { return false };
            let mut read = Vec::with_capacity(8);
            let is_empty = sockets::receive(&ours, &mut read).is_err();
            let is_passed = sockets::send(&theirs, b"x") == Ok(1)
                && polling::poll_one(&ours, PollFlags::IN, Some(WAIT_MAX)).is_ok_and(|found| !found.is_empty())
                && sockets::receive(&ours, &mut read) == Ok(1);
            let is_full = theirs.set_nonblocking(true).is_ok()
                && (0..SENDS_MAX).any(|_| sockets::send(&theirs, &[0; 4_096]) == Err(Errno::AGAIN));
            is_empty && is_passed && is_full
        }),
        ("a pipe whose reader is gone", |_| {
            let Ok((reading, writing)) = std::io::pipe() else { return false };
            drop(reading);
            let gone = polling::poll_one(&writing, PollFlags::HUP, Some(WAIT_MAX));
            gone.is_ok_and(|gone| gone.intersects(PollFlags::ERR | PollFlags::HUP))
        }),
        ("a lock on a folder", |_| fs::lock_folder(Path::new("/")).is_ok()),
        ("the boot", |_| {
            clocks::since_boot() > Duration::ZERO && clocks::boot_id().is_some() && clocks::booted_unix_s().is_some()
        }),
        ("a terminal", |_| {
            let Ok((ours, theirs)) = terminals::pair() else { return false };
            descriptors::write(&theirs, b"x") == Ok(1)
                && polling::poll_one(&ours, PollFlags::IN, Some(WAIT_MAX)).is_ok_and(|found| !found.is_empty())
                && descriptors::read(&ours, &mut [0]) == Ok(1)
                && terminals::size(&theirs).is_ok()
        }),
    ];
    tests.iter().filter(|(_, test)| !test(own)).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_answer_as_they_should() {
        assert_eq!(failures(), [""; 0]);
    }
}
