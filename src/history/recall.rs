//! Restores the text of open streams, which a stored fold lacks.
//!
//! A server may stream a key in pieces, and only the whole key can be recognized. So a fold is stored without the text
//! of open streams; the index reads that text again from the journal before it continues.

use super::fold::Fold;
use super::record_event::Seen;
use crate::journal::Position;

/// A stored fold whose text is being read again.
#[derive(Debug)]
pub(crate) struct Recall {
    fold: Fold,
    /// The first records of streams whose text is complete again.
    met: Vec<Position>,
}

impl Recall {
    /// Starts from a stored fold.
    #[must_use]
    pub(crate) fn of(fold: Fold) -> Recall {
        Recall { fold, met: Vec::new() }
    }

    /// The first record that is needed; `None` if nothing is missing.
    #[must_use]
    pub(crate) fn begins(&self) -> Option<&Position> {
        self.fold.streamed_since()
    }

    /// Processes a record that the fold had processed before it was stored.
    pub(crate) fn take(&mut self, at: &Position, seen: &Seen<'_>) {
        self.fold.recall(at, seen, &mut self.met);
    }

    /// The fold with the restored text.
    #[must_use]
    pub(crate) fn finish(self) -> Fold {
        self.fold
    }
}
