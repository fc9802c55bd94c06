//! Keys that were typed ahead of a program that did not read them: whoever reads the terminal next is to have them, as if
//! the program had run there.
//!
//! They stand in the terminal that the program ran in, and have to go back to the user's. There is one way: to have the
//! kernel take them as typed, one by one (`TIOCSTI`). Some systems allow that to nobody; then they are counted, and whoever
//! typed them is told.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr, tcsetpgrp,
};

/// The most that is handed on, in bytes: a terminal holds no more than 4 KiB itself.
const AHEAD_BYTES_MAX: usize = 16 << 10;

/// The way by which the leader of a terminal tells what was not read there.
#[derive(Debug)]
pub(super) struct Ahead(OwnedFd);

impl Ahead {
    /// That of the number which our parent has named.
    #[expect(unsafe_code, reason = "a descriptor that is inherited comes as a number")]
    pub(super) fn inherited(number: RawFd) -> Option<Ahead> {
        // Stdio is no such way, whoever says so.
        if number <= 2 {
            return None;
        }
        // SAFETY: the number was given to us on our command line by the one who opened it for us; nothing else in this
        // process has it, which has just begun. One that is not open is found out before it is used.
        let ahead = unsafe { OwnedFd::from_raw_fd(number) };
        match fcntl_getfd(&ahead).and_then(|_| fcntl_setfd(&ahead, FdFlags::CLOEXEC)) {
            Ok(()) => Some(Ahead(ahead)),
            Err(_) => {
                // Nothing is open under that number, so there is nothing to close.
                std::mem::forget(ahead);
                None
            }
        }
    }

    /// Takes what nobody has read from the terminal on our stdin, and tells it.
    pub(super) fn tell(self) {
        let unread = unread();
        // A pipe has room for more than a terminal holds; whoever does not read it any more wants none of it.
        let _ = File::from(self.0).write_all(&unread);
    }
}

/// What nobody has read from the terminal on our stdin, which is ours.
fn unread() -> Vec<u8> {
    let Ok(mode) = tcgetattr(stdin()) else { return Vec::new() };
    // Only those in front may read; whoever gives that away here has blocked the signal for it.
    let _ = tcsetpgrp(stdin(), getpgrp());
    let mut raw = mode.clone();
    raw.make_raw();
    raw.special_codes[SpecialCodeIndex::VMIN] = 0;
    raw.special_codes[SpecialCodeIndex::VTIME] = 0;
    if tcsetattr(stdin(), OptionalActions::Now, &raw).is_err() {
        return Vec::new();
    }
    let mut unread = read_all();
    if mode.local_modes.contains(LocalModes::ICANON) {
        // As a terminal that reads lines keeps the key for their end.
        let end = mode.special_codes[SpecialCodeIndex::VEOF];
        unread.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = end);
    }
    unread
}

/// What there is to be read from stdin without waiting.
fn read_all() -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 4_096];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    while all.len() < AHEAD_BYTES_MAX
        && poll(&mut [PollFd::new(&stdin(), PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready > 0)
    {
        match rustix::io::read(stdin(), &mut buffer) {
            Ok(read @ 1..) => all.extend_from_slice(&buffer[..read]),
            Ok(0) | Err(_) => break,
        }
    }
    all
}

/// What the leader has told.
pub(super) fn told(reader: std::io::PipeReader) -> Vec<u8> {
    let mut told = Vec::new();
    // Somebody who has inherited its other end is not waited for.
    let is_quick = rustix::io::ioctl_fionbio(&reader, true).is_ok();
    if is_quick {
        let _ = reader.take(AHEAD_BYTES_MAX as u64).read_to_end(&mut told);
    }
    told
}

/// Has the user's terminal, which passes on every key still, take these as typed, in front of what was typed since. Gives
/// how many bytes it does not take. `before` is how it reads for everybody else.
pub(super) fn hand_back(mut keys: Vec<u8>, before: &Termios) -> usize {
    if keys.is_empty() {
        return 0;
    }
    keys.extend(read_all());
    if before.input_modes.contains(InputModes::ICRNL) {
        keys.iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
    }
    let refused = keys.iter().position(|key| !is_taken(*key));
    refused.map_or(0, |at| keys.len() - at)
}

/// Whether the terminal on stdin takes a byte as typed.
#[expect(unsafe_code, reason = "no safe interface has a terminal take a key")]
fn is_taken(key: u8) -> bool {
    // SAFETY: TIOCSTI reads one byte through the pointer, which is to one that lives through the call.
    unsafe { libc::ioctl(stdin().as_raw_fd(), libc::TIOCSTI, &raw const key) == 0 }
}
