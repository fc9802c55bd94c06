//! What goes to the ledger and what comes from it, as the engine sees it.

use serde::Serialize;

use super::context::{Carrier, Command};

/// The row of a command in the ledger; rows grow by age.
pub type RowId = i64;

/// A command that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingCommand {
    /// Its row.
    pub row: RowId,
    /// The thread that it is for; `None` for whichever has the next turn.
    pub thread_id: Option<String>,
    /// Older commands that were forgotten for want of room, and are still counted.
    pub forgotten_before: u64,
    /// The command.
    pub command: Command,
}

/// What has become of the buffer in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextChange {
    /// These came behind what was there.
    Added(Vec<WaitingCommand>),
    /// These are gone.
    Cleared(Vec<RowId>),
    /// This one is gone for want of room; the next one that waits for the same thread counts it.
    Forgotten {
        /// The one that is gone.
        row: RowId,
        /// The one that counts it.
        counted_by: RowId,
    },
    /// How threads began, as far as earlier runs have kept it: id and words.
    Beginnings(Vec<(String, String)>),
}

/// What is to be kept in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerEntry {
    /// Context was sent.
    Sent(Box<Delivery>),
    /// What was sent has come to an end.
    Settled {
        /// Which delivery of this run.
        delivery: u64,
        /// How it ended.
        outcome: Outcome,
        /// The commands that are done with.
        delete: Vec<RowId>,
    },
    /// The turn that a delivery belongs to is known.
    TurnNamed {
        /// Which delivery of this run.
        delivery: u64,
        /// Its turn.
        turn_id: String,
    },
    /// There is a thread.
    ThreadSeen {
        /// Its id.
        thread_id: String,
    },
    /// A thread whose first message may be one that carried context.
    ThreadBegan {
        /// Its id.
        thread_id: String,
        /// What the user wrote, or the start of it.
        words: String,
    },
}

/// Context that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its number in this run, from 1.
    pub number: u64,
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    /// The thread.
    pub thread_id: String,
    /// How it was sent, never `auto` or `off`.
    pub carrier: Carrier,
    /// What the model was shown.
    pub text: String,
}

/// How a delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The server has taken it.
    Delivered,
    /// The server has refused it; it waits again.
    Refused,
    /// The server ended before it had answered; it waits again.
    ServerExited,
}

impl Outcome {
    /// The name that it has in the ledger.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Delivered => "delivered",
            Outcome::Refused => "refused",
            Outcome::ServerExited => "server_exited",
        }
    }
}
