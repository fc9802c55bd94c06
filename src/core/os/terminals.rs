//! Terminals: new ones, their modes, sizes and foreground, and keys that nobody has read.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
/// Makes a terminal the one that controls our session, which we lead and which has none.
pub use rustix::process::ioctl_tiocsctty as control;
use rustix::pty::{grantpt, ptsname, unlockpt};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, tcflush, tcsetattr, ttyname,
};
/// A size is that of a terminal's screen; when it changes, the programs in it get SIGWINCH. The foreground is a process group.
pub use rustix::termios::{
    Termios, Winsize, tcgetattr as mode, tcgetpgrp as foreground, tcgetwinsize as size, tcsetpgrp as set_foreground,
    tcsetwinsize as set_size,
};

use super::descriptors::{read, stdin};
use super::polling::{PollFlags, poll_one};
use super::portable::is_portable;
use super::processes::process_group;
use super::{Errno, Result};

/// Most unread keys that are taken, in bytes: a terminal itself holds no more than 4 KiB.
const UNREAD_BYTES_MAX: usize = 16 << 10;

/// Our side of a new terminal, and the side of the programs in it. It does not become the one that controls us.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    // `posix_openpt` does no more, and has no flag for the third on macOS.
    let ours = rustix::fs::open("/dev/ptmx", flags, Mode::empty())?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = rustix::fs::open(ptsname(&ours, Vec::new())?, flags, Mode::empty())?;
    Ok((ours, theirs))
}

/// A descriptor to write to a terminal without waiting, and without side effects on others that have it open. Fails on macOS for one that
/// was opened as `/dev/tty`, which cannot be waited for.
pub fn open_to_write(terminal: impl AsFd) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let name = ttyname(terminal, Vec::new())?;
    if is_portable() && name.as_bytes() == b"/dev/tty" {
        return Err(Errno::NOTSUP);
    }
    rustix::fs::open(name, flags, Mode::empty())
}

/// Changes the mode at once. In the background of the terminal, the system stops us.
pub fn set_mode(terminal: impl AsFd, mode: &Termios) -> Result<()> {
    tcsetattr(terminal, OptionalActions::Now, mode)
}

/// The mode in which every key is forwarded, and output is displayed unchanged.
pub fn raw(mode: &Termios) -> Termios {
    let mut raw = mode.clone();
    raw.make_raw();
    raw
}

/// The mode without echo.
pub fn silent(mode: &Termios) -> Termios {
    let mut silent = mode.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent
}

/// Whether our process group is in the foreground of a terminal. Fails if it has no foreground.
pub fn has_us_in_foreground(terminal: impl AsFd) -> Result<bool> {
    Ok(process_group(None) == Some(foreground(terminal)?))
}

/// Discards the keys that nobody has read.
pub fn forget_unread(terminal: impl AsFd) -> Result<()> {
    tcflush(terminal, QueueSelector::IFlush)
}

/// Reads the keys left in the terminal on our stdin, which is ours. The caller ignores SIGTTOU.
pub fn unread() -> Vec<u8> {
    let Ok(mode) = mode(stdin()) else { return Vec::new() };
    // Only the foreground may read.
    if let Some(group) = process_group(None) {
        let _ = set_foreground(stdin(), group);
    }
    let mut at_once = raw(&mode);
    at_once.special_codes[SpecialCodeIndex::VMIN] = 0;
    at_once.special_codes[SpecialCodeIndex::VTIME] = 0;
    if set_mode(stdin(), &at_once).is_err() {
        return Vec::new();
    }
    let mut unread = read_all();
    if cfg!(target_os = "linux") && mode.local_modes.contains(LocalModes::ICANON) {
        // In line mode Linux stores the end-of-file key as a 0 byte.
        let end = mode.special_codes[SpecialCodeIndex::VEOF];
        unread.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = end);
    }
    unread
}

/// Reads what stdin has without waiting.
fn read_all() -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 4_096];
    while all.len() < UNREAD_BYTES_MAX
        && poll_one(&stdin(), PollFlags::IN, Some(Duration::ZERO)).is_ok_and(|found| !found.is_empty())
    {
        match read(stdin(), &mut buffer) {
            Ok(read @ 1..) => all.extend_from_slice(&buffer[..read]),
            Ok(0) | Err(_) => break,
        }
    }
    all
}

/// Inserts keys into the input of the terminal on our stdin, which is in raw mode, ahead of those that are there. Returns how many
/// bytes it did not take: all of them if the system forbids it, as Linux does by default from 6.2 on. `before` is the mode that other
/// readers use.
pub fn hand_back(mut keys: Vec<u8>, before: &Termios) -> usize {
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
#[expect(unsafe_code, reason = "no safe interface inserts a key into a terminal")]
fn is_taken(key: u8) -> bool {
    // SAFETY: TIOCSTI reads one byte through the pointer, and `key` outlives the call.
    unsafe { libc::ioctl(stdin().as_raw_fd(), libc::TIOCSTI, &raw const key) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::FdFlags;

    #[test]
    fn new_terminals_are_not_inherited() {
        let (ours, theirs) = pair().expect("a terminal");
        for side in [&ours, &theirs] {
            assert!(rustix::io::fcntl_getfd(side).expect("flags").contains(FdFlags::CLOEXEC));
        }
    }
}
