//! The text of streams, which a stored fold does not hold.
//!
//! A key may be streamed in pieces, and only the whole of it is seen for one. So a fold is stored without the text of what is
//! still being streamed; whoever takes it up again reads that text once more, from the records in which it stands.

use super::fold::Fold;
use super::happening::Seen;
use crate::journal::Position;

/// A stored fold whose text is being read again.
#[derive(Debug)]
pub struct Recall {
    fold: Fold,
    /// Where the streams begin whose first record was met: only their text is whole.
    met: Vec<Position>,
}

impl Recall {
    /// Of a fold as it was stored.
    #[must_use]
    pub fn of(fold: Fold) -> Recall {
        Recall { fold, met: Vec::new() }
    }

    /// The first record that is needed; `None` if nothing is missing.
    #[must_use]
    pub fn begins(&self) -> Option<&Position> {
        self.fold.streamed_since()
    }

    /// Takes a record that the fold has taken before it was stored.
    pub fn take(&mut self, at: &Position, seen: &Seen<'_>) {
        self.fold.recall(at, seen, &mut self.met);
    }

    /// The fold, with the text of all that was met.
    #[must_use]
    pub fn finish(self) -> Fold {
        self.fold
    }
}
