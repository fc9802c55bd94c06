//! The user's terminal, while a program runs in one of ours: it passes on every key, and is given back as it was.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::getpgrp;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    OptionalActions, Termios, Winsize, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, ttyname,
};

/// The terminal on our stdin and stdout.
#[derive(Debug)]
pub(crate) struct Terminal {
    before: Termios,
    /// A description of our own of what is on stdout, which never blocks; `None` where there is none to be had.
    screen: Option<OwnedFd>,
}

impl Terminal {
    /// It, where both are one, and where it is ours to use: in the background it is somebody else's.
    #[must_use]
    pub(crate) fn of_process() -> Option<Terminal> {
        if !isatty(stdin()) || !isatty(stdout()) || !is_in_foreground() {
            return None;
        }
        let before = tcgetattr(stdin()).ok()?;
        let again = ttyname(stdout(), Vec::new()).and_then(|name| {
            rustix::fs::open(name, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
        });
        Some(Terminal { before, screen: again.ok() })
    }

    /// How it was.
    pub(super) fn before(&self) -> &Termios {
        &self.before
    }

    /// How large it is.
    pub(super) fn size(&self) -> Option<Winsize> {
        tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin())).ok()
    }

    /// Whether it is ours to use now.
    pub(super) fn is_ours(&self) -> bool {
        is_in_foreground()
    }

    /// Has it pass on every key, and change nothing that is shown.
    pub(super) fn pass_through(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(tcsetattr(stdin(), OptionalActions::Now, &raw)?)
    }

    /// Gives it back as it was, where it is ours: whoever sets somebody else's is stopped.
    pub(super) fn give_back(&self) {
        if !self.is_ours() {
            return;
        }
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }

    /// Where it is written to. Only a description of our own is never waited for.
    pub(super) fn screen(&self) -> BorrowedFd<'_> {
        match &self.screen {
            Some(screen) => screen.as_fd(),
            None => stdout(),
        }
    }
}

/// Whether the terminal on our stdin takes orders from us. One that is nobody's does.
fn is_in_foreground() -> bool {
    tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp())
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.give_back();
    }
}
