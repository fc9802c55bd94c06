//! New sockets and terminals that no other program inherits, and writes to sockets that raise no signal.
//!
//! Linux does this with flags of the call that creates a descriptor or writes to it. macOS has none of these flags, so the descriptor
//! is changed after it was created: a program that another thread starts in between inherits it, and holds it until it exits. For a
//! pipe, [`std::io::pipe`] does the same. All of this is here, and nothing here knows what a descriptor is for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::pty::OpenptFlags;

#[cfg(target_os = "linux")]
mod flags {
    use super::{OpenptFlags, SendFlags, SocketFlags};

    pub(super) const TERMINAL: OpenptFlags = OpenptFlags::CLOEXEC;
    pub(super) const SOCKET: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
    pub(super) const SEND: SendFlags = SendFlags::NOSIGNAL;
}

#[cfg(not(target_os = "linux"))]
mod flags {
    use super::{OpenptFlags, SendFlags, SocketFlags};

    pub(super) const TERMINAL: OpenptFlags = OpenptFlags::empty();
    pub(super) const SOCKET: SocketFlags = SocketFlags::empty();
    pub(super) const SEND: SendFlags = SendFlags::empty();
}

/// A Unix socket that never blocks.
pub(crate) fn unix_socket() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags::SOCKET, None)?;
    #[cfg(not(target_os = "linux"))]
    {
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
    }
    Ok(socket)
}

/// Our side of a new terminal, which does not become the one that controls us.
pub fn terminal() -> io::Result<OwnedFd> {
    let terminal = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | flags::TERMINAL)?;
    #[cfg(not(target_os = "linux"))]
    rustix::io::fcntl_setfd(&terminal, rustix::io::FdFlags::CLOEXEC)?;
    Ok(terminal)
}

/// Writes as much to a socket as fits now. A reader that is gone is an error and no signal: on macOS if the socket was given to
/// [`without_signal`], and in any case because the runtime ignores SIGPIPE.
pub(crate) fn send(socket: &impl AsFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    rustix::net::send(socket, bytes, SendFlags::DONTWAIT | flags::SEND)
}

/// Makes writes to a socket of ours raise no signal. Not for one that other processes share, because the option is the socket's.
pub(crate) fn without_signal(socket: impl Into<OwnedFd>) -> OwnedFd {
    let socket = socket.into();
    #[cfg(target_vendor = "apple")]
    // The runtime ignores the signal too.
    let _ = rustix::net::sockopt::set_socket_nosigpipe(&socket, true);
    socket
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn programs_inherit_no_new_descriptor() {
        for made in [unix_socket(), terminal()] {
            let flags = rustix::io::fcntl_getfd(made.expect("it can be made")).expect("it is open");
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn sockets_never_block_and_a_gone_reader_is_an_error() {
        let socket = unix_socket().expect("a socket");
        assert!(rustix::fs::fcntl_getfl(&socket).expect("flags").contains(rustix::fs::OFlags::NONBLOCK));
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let ours = without_signal(ours);
        assert_eq!(send(&ours, b"ab"), Ok(2));
        drop(theirs);
        assert_eq!(send(&ours, b"ab"), Err(Errno::PIPE));
    }
}
