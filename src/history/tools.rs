//! What tools did: commands, changes of files, calls of tools, and what a human was asked about them.

use serde::{Deserialize, Serialize};

use super::happening::Seen;

/// Where in the life of a tool something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Before it runs.
    Pre,
    /// While it runs.
    Running,
    /// At its end.
    Post,
}

/// A row of `codex_tool_events`, but for the session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolRow {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
}

/// Tools that are at work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tools {}

impl Tools {
    /// Takes a record, and appends what it says of tools.
    pub(super) fn take(&mut self, _seen: &Seen<'_>, _rows: &mut Vec<ToolRow>) {}

    /// The child is gone.
    pub(super) fn run_ended(&mut self, _at_us: u64, _rows: &mut Vec<ToolRow>) {}
}
