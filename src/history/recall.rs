//! The text of streams, which a stored fold does not hold.
//!
//! A server may stream a key in pieces, and only the whole key can be recognized. So a stored fold lacks all text that is still
//! being streamed; the index reads that text again, from the records in which it stands, before it goes on.

use super::fold::Fold;
use super::record_event::Seen;
use crate::journal::Position;

/// A stored fold whose text is being read again.
#[derive(Debug)]
pub(crate) struct Recall {
    fold: Fold,
    /// The first records of streams whose text is whole.
    met: Vec<Position>,
}

impl Recall {
    /// Of a fold as it was stored.
    #[must_use]
    pub(crate) fn of(fold: Fold) -> Recall {
        Recall { fold, met: Vec::new() }
    }

    /// The first record that is needed; `None` if nothing is missing.
    #[must_use]
    pub(crate) fn begins(&self) -> Option<&Position> {
        self.fold.streamed_since()
    }

    /// Takes a record that the fold has taken before it was stored.
    pub(crate) fn take(&mut self, at: &Position, seen: &Seen<'_>) {
        self.fold.recall(at, seen, &mut self.met);
    }

    /// The fold, with the text of all that was met.
    #[must_use]
    pub(crate) fn finish(self) -> Fold {
        self.fold
    }
}
