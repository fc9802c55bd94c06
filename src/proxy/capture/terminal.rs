//! The user's terminal while a program runs in one of ours: its raw mode, and keys typed ahead.
//!
//! Keys that a program did not read go to the next reader of the user's terminal, as if the program had run there. They are
//! in the program's own terminal and must move to the user's. The only way is to make the kernel take them as typed, one by
//! one (`TIOCSTI`). Some systems forbid that; then one message says how many keys were lost.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use crate::engine::terminal::Size;
use crate::os::descriptors::{self, stdin, stdout};
use crate::os::terminals::{self, Termios, Winsize};

#[derive(Debug)]
pub struct Terminal {
    before: Termios,
    /// A non-blocking description of stdout that only we use; `None` if it cannot be opened.
    screen: Option<OwnedFd>,
}

impl Terminal {
    /// The terminal, if stdin and stdout are the same one and we are in its foreground.
    #[must_use]
    pub fn of_process() -> Option<Terminal> {
        if !stdin().is_terminal() || !stdout().is_terminal() || !is_in_foreground() {
            return None;
        }
        let before = terminals::mode(stdin()).ok()?;
        Some(Terminal { before, screen: terminals::open_to_write(stdout()).ok() })
    }

    /// The mode that it had.
    pub(super) fn before(&self) -> &Termios {
        &self.before
    }

    pub(super) fn size(&self) -> Option<Winsize> {
        terminal_size(stdout()).or_else(|| terminal_size(stdin()))
    }

    /// Its size, if it knows it.
    #[must_use]
    pub fn screen_size(&self) -> Option<Size> {
        let size = self.size().filter(|size| size.ws_col > 0 && size.ws_row > 0)?;
        Some(Size { columns: size.ws_col, rows: size.ws_row })
    }

    /// Whether we are in its foreground now.
    pub(super) fn is_ours(&self) -> bool {
        is_in_foreground()
    }

    /// Makes it forward every key and display output unchanged.
    pub(super) fn pass_through(&self) -> io::Result<()> {
        Ok(terminals::set_mode(stdin(), &terminals::raw(&self.before))?)
    }

    /// Restores its mode if we are in its foreground: in the background, the kernel would stop us.
    pub(super) fn give_back(&self) {
        if !self.is_ours() {
            return;
        }
        let _ = terminals::set_mode(stdin(), &self.before);
    }

    /// The descriptor to write to. Only a description of our own may be non-blocking.
    pub(super) fn screen(&self) -> BorrowedFd<'_> {
        match &self.screen {
            Some(screen) => screen.as_fd(),
            None => stdout(),
        }
    }
}

/// The size of a terminal; `None` if it is not one. Serial lines and some CI systems report 0 columns and 0 rows.
pub fn terminal_size(terminal: impl AsFd) -> Option<Winsize> {
    let size = terminals::size(terminal).ok()?;
    let (ws_col, ws_row) = usual_size(size.ws_col, size.ws_row);
    Some(Winsize { ws_col, ws_row, ..size })
}

/// The columns and rows that a terminal reports, with those of a VT100 for a 0.
pub fn usual_size(columns: u16, rows: u16) -> (u16, u16) {
    const COLUMNS: u16 = 80;
    const ROWS: u16 = 24;
    (if columns == 0 { COLUMNS } else { columns }, if rows == 0 { ROWS } else { rows })
}

/// Whether the terminal on our stdin accepts control calls from us, also because it has no foreground.
fn is_in_foreground() -> bool {
    terminals::has_us_in_foreground(stdin()).unwrap_or(true)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Most bytes that are handed on: a terminal itself holds no more than 4 KiB.
const AHEAD_BYTES_MAX: usize = 16 << 10;

/// The pipe through which the leader of a terminal reports unread keys.
#[derive(Debug)]
pub(super) struct TypeAhead(OwnedFd);

impl TypeAhead {
    /// Takes the descriptor whose number our parent named.
    pub(super) fn inherited(number: RawFd) -> Option<TypeAhead> {
        descriptors::inherited(number).map(TypeAhead)
    }

    /// Reports the keys left in the terminal on our stdin.
    pub(super) fn report(self) {
        let unread = terminals::unread();
        // A pipe holds more than a terminal, so this does not block; an error means that the reader is gone.
        let _ = File::from(self.0).write_all(&unread);
    }
}

/// The keys that the leader has reported.
pub(super) fn received_keys(reader: std::io::PipeReader) -> Vec<u8> {
    let mut received = Vec::new();
    // Another process may have inherited the other end; do not wait for it.
    let is_quick = descriptors::never_block(&reader).is_ok();
    if is_quick {
        let _ = reader.take(AHEAD_BYTES_MAX as u64).read_to_end(&mut received);
    }
    received
}
