//! The user's terminal in raw mode while a program runs in one of ours; restored afterwards.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::getpgrp;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    OptionalActions, Termios, Winsize, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, ttyname,
};

#[derive(Debug)]
pub(crate) struct Terminal {
    before: Termios,
    /// A non-blocking description of stdout that only we use; `None` if it cannot be opened.
    screen: Option<OwnedFd>,
}

impl Terminal {
    /// The terminal, if stdin and stdout are the same one and we are in its foreground.
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

    /// The mode that it had.
    pub(super) fn before(&self) -> &Termios {
        &self.before
    }

    pub(super) fn size(&self) -> Option<Winsize> {
        tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin())).ok()
    }

    /// Whether we are in its foreground now.
    pub(super) fn is_ours(&self) -> bool {
        is_in_foreground()
    }

    /// Makes it forward every key and display output unchanged.
    pub(super) fn pass_through(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(tcsetattr(stdin(), OptionalActions::Now, &raw)?)
    }

    /// Restores its mode if we are in its foreground: in the background, the kernel would stop us.
    pub(super) fn give_back(&self) {
        if !self.is_ours() {
            return;
        }
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }

    /// The descriptor to write to. Only a description of our own may be non-blocking.
    pub(super) fn screen(&self) -> BorrowedFd<'_> {
        match &self.screen {
            Some(screen) => screen.as_fd(),
            None => stdout(),
        }
    }
}

/// Whether the terminal on our stdin accepts control calls from us, also because it has no foreground.
fn is_in_foreground() -> bool {
    tcgetpgrp(stdin()).map_or(true, |group| group == getpgrp())
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.give_back();
    }
}
