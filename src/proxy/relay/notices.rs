//! Notices for the user: each is one line on stderr, written once. A pipe or a socket that is full never blocks the
//! relay. `status` shows the faults from then on.

use std::io;
use std::sync::Arc;

use super::pipes::{Sink, WriteEnd as _};
use crate::control::Published;

/// Limit of a notice in bytes; a pipe accepts this much at once or nothing (`PIPE_BUF`).
const NOTICE_BYTES_MAX: usize = 4_000;

#[derive(Debug)]
pub struct Notices {
    stderr: Option<Sink>,
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
        if let Some(stderr) = &self.stderr {
            let _ = stderr.write(line.as_bytes());
        }
    }

    /// Reports a gap in the journal, but only the first one.
    pub(super) fn journal_failed(&mut self, error: &dyn std::error::Error) {
        if !std::mem::replace(&mut self.gap_reported, true) {
            self.report(&format!("{error}; relaying goes on; the journal will mark the unrecorded lines as a gap"));
        }
    }
}
