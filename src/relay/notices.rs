//! What the user must know: one line on stderr, once, and on a pipe or a socket never at the cost of a wait. `status`
//! tells it from then on.

use std::sync::Arc;

use super::pipes::Sink;
use crate::control::Published;

/// Longest notice in bytes; a pipe takes this much at once or nothing (`PIPE_BUF`).
const NOTICE_BYTES_MAX: usize = 4_000;

/// Says each kind of fault once.
#[derive(Debug)]
pub(super) struct Notices {
    stderr: Option<Sink>,
    published: Arc<Published>,
    journal_told: bool,
}

impl Notices {
    pub(super) fn new(published: Arc<Published>) -> Notices {
        Notices { stderr: Sink::stderr().ok(), published, journal_told: false }
    }

    /// Reports a fault now. If stderr takes nothing, the log has it.
    pub(super) fn say(&self, what: &str) {
        tracing::warn!("{what}");
        self.published.fault(what);
        self.write(what);
    }

    /// Writes something to stderr that the user must know and that is not a fault.
    pub(super) fn inform(&self, what: &str) {
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

    /// Says that the journal has a gap, the first time.
    pub(super) fn journal_failed(&mut self, error: &dyn std::error::Error) {
        if !std::mem::replace(&mut self.journal_told, true) {
            self.say(&format!("{error}; relaying goes on, what is not recorded will be marked as a gap"));
        }
    }
}
