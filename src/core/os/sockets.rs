//! Unix sockets that no other program inherits, and that never block or raise a signal.
//!
//! Linux does this with flags of the calls that create a socket or write to it. macOS has none of these flags, so the socket is
//! changed after it was created: a program that another thread starts in between inherits it, and holds it until it exits.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::descriptors::{close_at_exec, never_block};
use super::portable::is_portable;
use super::{Errno, Result};

/// Connects without waiting, to a socket that never blocks.
///
/// # Errors
///
/// [`io::ErrorKind::WouldBlock`] if too many clients wait there to be accepted, and on macOS also if the socket is bound and its process
/// does not listen; [`io::ErrorKind::ConnectionRefused`] if nobody listens.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (socket, address) = (new(SocketType::STREAM)?, SocketAddrUnix::new(path)?);
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(socket.into()),
        // macOS has one error for both.
        Err(Errno::CONNREFUSED | Errno::AGAIN) if is_portable() => {
            let error = if is_bound(&address)? { Errno::AGAIN } else { Errno::CONNREFUSED };
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a process has bound a stream socket at this address: one of another type is told that it is of the wrong type, before the
/// clients that wait are counted. Source: `unp_connect` of xnu; Linux does the same.
fn is_bound(address: &SocketAddrUnix) -> io::Result<bool> {
    Ok(rustix::net::connect(new(SocketType::DGRAM)?, address) == Err(Errno::PROTOTYPE))
}

fn new(kind: SocketType) -> io::Result<OwnedFd> {
    let create = |flags| rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
    #[cfg(target_os = "linux")]
    if !is_portable() {
        return Ok(create(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?);
    }
    let socket = create(SocketFlags::empty())?;
    close_at_exec(&socket)?;
    never_block(&socket)?;
    Ok(socket)
}

/// Writes as much as fits now: on Linux to any socket, elsewhere to one that never blocks. A reader that is gone is an error and no signal: on macOS if the
/// socket was given to [`without_signal`], and in any case because the runtime ignores SIGPIPE.
#[inline]
pub fn send(socket: &impl AsFd, bytes: &[u8]) -> Result<usize> {
    #[cfg(target_os = "linux")]
    if !is_portable() {
        return rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
    // macOS ignores a flag not to wait, so the socket is one that never blocks.
    rustix::net::send(socket, bytes, SendFlags::empty())
}

/// Reads what is there now into the free room of `buffer`, also from a socket that blocks.
#[inline]
pub fn receive(socket: &impl AsFd, buffer: &mut Vec<u8>) -> Result<usize> {
    rustix::net::recv(socket, spare_capacity(buffer), RecvFlags::DONTWAIT).map(|(taken, _)| taken)
}

/// Makes writes to a socket of ours raise no signal. Not for one that other processes share, because the option is the socket's.
pub fn without_signal(socket: impl Into<OwnedFd>) -> OwnedFd {
    let socket = socket.into();
    #[cfg(target_vendor = "apple")]
    // The runtime ignores the signal too.
    let _ = rustix::net::sockopt::set_socket_nosigpipe(&socket, true);
    socket
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::FdFlags;
    use std::os::unix::net::UnixListener;

    #[test]
    fn new_sockets_never_block_and_are_not_inherited() {
        let socket = new(SocketType::STREAM).expect("a socket");
        assert!(rustix::fs::fcntl_getfl(&socket).expect("flags").contains(rustix::fs::OFlags::NONBLOCK));
        assert!(rustix::io::fcntl_getfd(&socket).expect("flags").contains(FdFlags::CLOEXEC));
    }

    #[test]
    fn busy_listener_is_told_from_a_dead_one() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("s");
        let failure = |path: &Path| connect(path).map(drop).expect_err("nobody accepts").kind();
        assert_eq!(failure(&path), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).expect("it can be bound");
        rustix::net::listen(&listener, 0).expect("it listens");
        let mut waiting = Vec::new();
        let full = loop {
            match connect(&path) {
                Ok(client) => waiting.push(client),
                Err(error) => break error.kind(),
            }
        };
        assert_eq!((full, waiting.is_empty()), (io::ErrorKind::WouldBlock, false));
        let address = SocketAddrUnix::new(&path).expect("it is short");
        assert!(is_bound(&address).expect("a socket"));
        drop(listener);
        assert_eq!(failure(&path), io::ErrorKind::ConnectionRefused);
        assert!(!is_bound(&address).expect("a socket"));
    }

    #[test]
    fn reader_that_is_gone_is_an_error() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let ours = without_signal(ours);
        assert_eq!(send(&ours, b"ab"), Ok(2));
        drop(theirs);
        assert_eq!(send(&ours, b"ab"), Err(Errno::PIPE));
    }
}
