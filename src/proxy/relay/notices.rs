//! Notices for the user: each is one line on stderr, written once. A pipe, a socket or a
//! terminal that is full gets no notice, and holds the relay up for 0.1 s at most; on macOS a named pipe and `/dev/tty` never get one, because
//! they may block. `status` shows the faults from then on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::pipes::{Sink, WriteEnd as _};
use crate::control::Published;
use crate::os::descriptors::{has_room_within, taken_at_once_bytes};

/// Limit of a notice in bytes; a pipe of Linux accepts this much at once or nothing.
const NOTICE_BYTES_MAX: usize = 4_000;

/// How long a terminal may take nothing, as while another process writes to it.
const FULL_WAIT_MAX: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Notices {
    /// With whether a write to it may block.
    stderr: Option<(Sink, bool)>,
    pub(super) published: Arc<Published>,
    gap_reported: bool,
}

impl Notices {
    pub fn new(published: Arc<Published>) -> Notices {
        Notices { stderr: Sink::stderr().ok(), published, gap_reported: false }
    }

    /// Reports faults from other threads.
    pub(super) fn reporter(&self) -> impl Fn(&str) + Send + use<> {
        let published = Arc::clone(&self.published);
        move |what| Notices::new(Arc::clone(&published)).report(what)
    }

    /// Reports that the thread for `what` could not be started.
    pub(super) fn started<T>(&self, started: io::Result<T>, what: &str, without: &str) -> Option<T> {
        started.map_err(|error| self.report(&format!("start a thread for {what}: {error}; {without}"))).ok()
    }

    /// Reports a fault on stderr, in the log and in `status`.
    pub fn report(&self, what: &str) {
        self.published.fault(what);
        self.tell(what);
    }

    /// The same without `status`, which has the fault already.
    pub(super) fn tell(&self, what: &str) {
        tracing::warn!("{what}");
        self.write(what);
    }

    /// Writes a line to stderr that is not a fault.
    pub fn info(&self, what: &str) {
        tracing::info!("{what}");
        self.write(what);
    }

    fn write(&self, what: &str) {
        let mut line = format!("codex-shim: {}", what.replace('\n', " "));
        line.truncate(line.floor_char_boundary(NOTICE_BYTES_MAX));
        line.push('\n');
        let Some((stderr, may_block)) = &self.stderr else { return };
        if !may_block {
            let _ = stderr.write(line.as_bytes());
            return;
        }
        for piece in line.as_bytes().chunks(taken_at_once_bytes()) {
            if !has_room_within(stderr, FULL_WAIT_MAX) || stderr.write(piece) != Ok(piece.len()) {
                return;
            }
        }
    }

    /// Reports a gap in the journal, but only the first one.
    pub(super) fn journal_failed(&mut self, error: &dyn std::error::Error) {
        if !std::mem::replace(&mut self.gap_reported, true) {
            self.report(&format!("{error}; relaying goes on; the journal will mark the unrecorded lines as a gap"));
        }
    }
}
