//! Terminals.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pty::OpenptFlags;

/// Our side of a new terminal, which does not become the one that controls us.
pub fn terminal() -> io::Result<OwnedFd> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    #[cfg(target_os = "linux")]
    return Ok(rustix::pty::openpt(flags | OpenptFlags::CLOEXEC)?);
    #[cfg(not(target_os = "linux"))]
    {
        let terminal = rustix::pty::openpt(flags)?;
        super::descriptors::close_at_exec(&terminal)?;
        Ok(terminal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::FdFlags;

    #[test]
    fn new_terminals_are_not_inherited() {
        let terminal = terminal().expect("a terminal");
        assert!(rustix::io::fcntl_getfd(&terminal).expect("flags").contains(FdFlags::CLOEXEC));
    }
}
