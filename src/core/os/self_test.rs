//! Whether the calls of this room answer as they should on the system that this program runs on.

use std::os::unix::net::UnixStream;

use super::peers::Peer;
use super::processes::{self, ProcessIdentity};
use super::{clocks, confinement, descriptors, polling, sockets, terminals};

/// What does not answer as it should, in words.
pub fn failures() -> Vec<&'static str> {
    let own = std::process::id();
    let tests: [(&str, fn(u32) -> bool); 9] = [
        ("the program of a process", |own| {
            let exe = std::env::current_exe().and_then(std::fs::canonicalize);
            processes::program(own).is_some_and(|program| exe.is_ok_and(|exe| exe == program))
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
        ("a socket that does not wait", |_| {
            let Ok((ours, theirs)) = UnixStream::pair() else { return false };
            let mut read = Vec::with_capacity(8);
            sockets::receive(&ours, &mut read).is_err()
                && sockets::send(&theirs, b"x") == Ok(1)
                && polling::poll_one(&ours, polling::PollFlags::IN, None).is_ok()
                && sockets::receive(&ours, &mut read) == Ok(1)
        }),
        ("a terminal", |_| {
            let Ok((ours, theirs)) = terminals::pair() else { return false };
            descriptors::write(&theirs, b"x").is_ok()
                && polling::poll_one(&ours, polling::PollFlags::IN, None).is_ok_and(|found| !found.is_empty())
                && terminals::size(&theirs).is_ok()
        }),
    ];
    let failed = tests.into_iter().filter(|(_, test)| !test(own)).map(|(name, _)| name);
    let is_still = clocks::since_boot() == std::time::Duration::ZERO;
    failed.chain(is_still.then_some("the time since the boot")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_answer_as_they_should() {
        assert_eq!(failures(), [""; 0]);
    }
}
