//! Terminals.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pty::OpenptFlags;

use super::Result;

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

/// Makes a terminal the one that controls our session, which we lead and which has none.
pub(crate) fn control(terminal: impl AsFd) -> Result<()> {
    rustix::process::ioctl_tiocsctty(terminal)
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
