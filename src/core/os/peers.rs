//! Who is at the other end of a Unix socket, as the kernel says, and what it shows of that process later.
//!
//! Linux names the process that called `connect` or `listen`. macOS names the user so, and the process that has used the socket last.

use std::os::fd::{AsFd, AsRawFd as _, RawFd};
use std::time::Duration;
use std::{fmt, io};

use super::identity::own_uid;
use super::polling::{PollFlags, poll_one};
use super::portable::is_portable;

/// The process at the other end of a socket: on Linux the one that called `connect` or `listen`, on macOS the one that has used that end
/// last, such as a child that got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    /// `None` if the system does not say, or if the process is in another container.
    pub pid: Option<u32>,
}

impl Peer {
    #[cfg(target_os = "linux")]
    pub fn of(stream: &impl AsFd) -> io::Result<Peer> {
        // Read as plain numbers: a peer of another process namespace has the id 0, which is not a valid `Pid`.
        let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let length = option(stream.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, &mut cred)?;
        if length < size_of::<libc::ucred>() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Peer { uid: cred.uid, pid: u32::try_from(cred.pid).ok().filter(|pid| *pid != 0) })
    }

    #[cfg(target_vendor = "apple")]
    pub fn of(stream: &impl AsFd) -> io::Result<Peer> {
        let socket = stream.as_fd().as_raw_fd();
        let (mut uid, mut gid) = (libc::uid_t::MAX, libc::gid_t::MAX);
        #[expect(unsafe_code, reason = "no safe interface reads the credentials of a peer")]
        // SAFETY: the descriptor is open, and the two numbers outlive the call.
        let failed = unsafe { libc::getpeereid(socket, &raw mut uid, &raw mut gid) } != 0;
        if failed {
            return Err(io::Error::last_os_error());
        }
        let mut pid: libc::pid_t = 0;
        let known = option(socket, libc::SOL_LOCAL, libc::LOCAL_PEERPID, &mut pid).is_ok();
        Ok(Peer { uid, pid: u32::try_from(pid).ok().filter(|pid| known && *pid != 0) })
    }

    /// Whether it runs as our user.
    pub fn is_ours(&self) -> bool {
        self.uid == own_uid()
    }

    /// Whether it has closed its end and is therefore not named: macOS forgets it then, and Linux does not.
    pub fn has_left(&self, stream: &impl AsFd) -> bool {
        let is_forgotten = is_portable() && self.pid.is_none();
        is_forgotten && poll_one(stream, PollFlags::HUP, Some(Duration::ZERO)).is_ok_and(|found| !found.is_empty())
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "uid {}, pid {pid}", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

/// A descriptor of the process at the other end, which no later process with its id can have.
///
/// # Errors
///
/// The kernel does not know this option: Linux before 6.5.
#[cfg(target_os = "linux")]
pub(super) fn process_descriptor(stream: &impl AsFd) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{FromRawFd as _, OwnedFd};
    let mut descriptor: RawFd = -1;
    option(stream.as_fd().as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, &mut descriptor)?;
    if descriptor < 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    #[expect(unsafe_code, reason = "the kernel returns the descriptor as a number")]
    // SAFETY: the kernel has just opened this descriptor for us, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Source: `asm-generic/socket.h` of Linux 6.5.
#[cfg(target_os = "linux")]
const SO_PEERPIDFD: libc::c_int = 77;

/// Reads an option of a socket into `value`, a plain number or a struct of such. Returns the number of bytes read.
#[expect(unsafe_code, reason = "no safe interface reads the credentials of a peer")]
fn option<T: Copy>(socket: RawFd, level: i32, name: i32, value: &mut T) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).expect("BUG: an option is small");
    // SAFETY: the call writes at most `length` bytes, the size of `value`, and any bytes are valid for plain numbers.
    let failed = unsafe { libc::getsockopt(socket, level, name, (&raw mut *value).cast(), &raw mut length) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(length as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn peer_is_the_process_that_listens() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let _listener = UnixListener::bind(dir.path().join("s")).expect("it can be bound");
        let stream = UnixStream::connect(dir.path().join("s")).expect("it listens");
        let peer = Peer::of(&stream).expect("the kernel says");
        assert!(peer.is_ours());
        assert_eq!(peer.pid, Some(std::process::id()));
    }
}
