//! Who is at the other end of a Unix socket, as the kernel says.

use std::io;
use std::os::fd::AsFd;

/// The process that connected, or that listened when we connected. It may have ended since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    /// `None` if the kernel does not say.
    pub pid: Option<u32>,
}

impl Peer {
    #[cfg(target_os = "linux")]
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        let credentials = rustix::net::sockopt::socket_peercred(socket)?;
        let pid = u32::try_from(credentials.pid.as_raw_pid()).ok();
        Ok(Peer { uid: credentials.uid.as_raw(), pid })
    }

    #[cfg(target_vendor = "apple")]
    #[expect(unsafe_code, reason = "no safe interface returns the peer of a socket")]
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        use std::os::fd::AsRawFd as _;

        let fd = socket.as_fd().as_raw_fd();
        let (mut uid, mut gid) = (0, 0);
        // SAFETY: the descriptor is open, and both results are valid for writes.
        if unsafe { libc::getpeereid(fd, &raw mut uid, &raw mut gid) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut pid: libc::pid_t = 0;
        let mut length = size_of::<libc::pid_t>() as libc::socklen_t;
        // SAFETY: the descriptor is open, `pid` is valid for writes of `length` bytes, and `length` for writes.
        let status = unsafe {
            libc::getsockopt(fd, libc::SOL_LOCAL, libc::LOCAL_PEERPID, (&raw mut pid).cast(), &raw mut length)
        };
        let pid = if status == 0 { u32::try_from(pid).ok().filter(|pid| *pid > 0) } else { None };
        Ok(Peer { uid, pid })
    }
}
