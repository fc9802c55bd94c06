//! What turns did.

use serde::{Deserialize, Serialize};

use super::happening::Seen;

/// A row of `codex_turn_events`, but for the session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnRow {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
}

/// Turns that run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turns {}

impl Turns {
    /// Takes a record, and appends what it says of turns.
    pub(super) fn take(&mut self, _seen: &Seen<'_>, _rows: &mut Vec<TurnRow>) {}

    /// The child is gone.
    pub(super) fn run_ended(&mut self, _at_us: u64, _rows: &mut Vec<TurnRow>) {}
}
