//! Everything that one record adds to the history.

use super::client_uses::ClientUseRows;
use super::entry_rows::EntryRows;
use super::event_row::EventRow;
use super::identity::ThreadIdentity;
use super::rows::{ToolRow, TurnRow};
use super::usage::{LimitRow, UsageRow};
use crate::journal::Position;

/// Rows derived from records.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// In order.
    pub events: Vec<EventRow>,
    /// Missing stretches of the journal.
    pub gaps: Vec<GapRow>,
    pub tools: Vec<ToolRow>,
    pub turns: Vec<TurnRow>,
    /// Transcript entries.
    pub entries: EntryRows,
    /// What turns and threads have used.
    pub usage: Vec<UsageRow>,
    pub limits: Vec<LimitRow>,
    /// Threads of which more is known.
    pub threads: Vec<(String, ThreadIdentity)>,
    /// Uses of the protocol by clients.
    pub uses: ClientUseRows,
    /// The first record that was counted, and its time, in microseconds since the Unix epoch.
    pub counted_from: Option<(Position, u64)>,
}

/// A missing stretch of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapRow {
    /// Number of events in the same batch that precede the gap.
    pub after_events: usize,
    /// Number of lines; 0 if unknown.
    pub lines: u64,
    pub reason: String,
}
