//! What was said and done in a thread, as a reader wants it: finished things only.

use serde::{Deserialize, Serialize};

use super::happening::Seen;

/// A line of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its thread.
    pub thread_id: String,
    /// What it is about: two entries of one thread that bear the same are one.
    pub identity: String,
    /// It, as JSON.
    pub json: String,
}

/// What a transcript has to remember from record to record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Transcript {}

impl Transcript {
    /// Takes a record, and appends what it adds to a transcript.
    pub(super) fn take(&mut self, _seen: &Seen<'_>, _rows: &mut Vec<Entry>) {}

    /// The child is gone.
    pub(super) fn run_ended(&mut self) {}
}
