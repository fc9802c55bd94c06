//! Ledger entries and rows, as the engine sees them.

use super::ids::Token;
use crate::engine::assembly::SentFragment;
use crate::engine::context::Carrier;
use crate::engine::context::command::Command;
use crate::engine::requests::RequestKind;
use crate::protocol::{ItemPlace, named};
use serde::{Deserialize, Serialize};

/// The ledger row of a command; ids grow with age.
pub type RowId = i64;

/// A command that the model has not seen yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingCommand {
    pub row: RowId,
    /// The target thread; `None` for whichever thread has the next turn.
    pub thread_id: Option<String>,
    /// Number of older commands that were evicted and are still counted.
    pub forgotten_before: u64,
    pub command: Command,
}

/// A change of the command buffer in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextChange {
    /// The ledger was read for the first time: these are all.
    Loaded(Vec<WaitingCommand>),
    /// These were appended.
    Added(Vec<WaitingCommand>),
    /// These were removed.
    Cleared(Vec<RowId>),
    /// This one was evicted; the next one for the same thread counts it.
    Forgotten { row: RowId, counted_by: RowId },
    /// How threads began, as stored by earlier runs: thread id and first words.
    Beginnings(Vec<(String, String)>),
}

/// An entry to store in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerEntry {
    Sent(Box<Delivery>),
    /// A delivery ended.
    Settled {
        /// The number of the delivery in this run.
        delivery: u64,
        outcome: Outcome,
        /// Rows of commands to delete.
        delete: Vec<RowId>,
    },
    /// The turn of a delivery became known.
    TurnNamed {
        /// The number of the delivery in this run.
        delivery: u64,
        turn_id: String,
    },
    /// A thread exists.
    ThreadSeen {
        thread_id: String,
    },
    /// A thread whose first message may have carried context.
    ThreadBegan {
        thread_id: String,
        /// The start of the user's words.
        words: String,
    },
    /// Fragments were sent to a thread.
    FragmentsSent {
        thread_id: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
        sent: Vec<SentFragment>,
    },
    /// A thread saw the projection of an epoch.
    EpochShown {
        thread_id: String,
        epoch: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
    },
    /// A thread's history was compacted, so fragments and projections are due again.
    ThreadCompacted {
        thread_id: String,
    },
    /// The server opened a request.
    RequestOpened(Box<RequestRow>),
    /// A request ended.
    RequestEnded(Box<RequestEnd>),
    /// A request timed out.
    RequestExpired {
        request_id: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
    },
    /// An answer that was not the first.
    AnswerLost(Box<GivenRow>),
    /// An answer was written to the server.
    RequestDispatched {
        request_id: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
    },
    /// An answer is given up, and the request is open again, even if the ledger has stored that answer.
    RequestReopened {
        request_id: String,
        by: String,
    },
    /// The server confirmed the end of a request.
    RequestConfirmed {
        request_id: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
    },
    /// The turn ended before the server confirmed the answer.
    RequestUncertain {
        request_id: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
    },
    /// A request was forwarded before it was stored.
    RequestLate {
        request_id: String,
    },
    /// The server accepted that a denial of codex's own reviewer is overruled.
    DenialOverruled(Box<OverruledRow>),
    /// The subject of a request became known later.
    RequestShown {
        request_id: String,
        /// The changes, as JSON.
        changes: String,
        /// The new one-line summary.
        summary: String,
    },
}

/// An order to store an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Store it soon.
    Keep(LedgerEntry),
    /// Store it soon and report the result once; a failed entry is retried before later ones.
    KeepFirst(Token, LedgerEntry),
    /// Store it now or never, and report which.
    Commit(Token, LedgerEntry),
    /// Read the ledger, and report if it cannot be used. Store nothing: the order for the entry follows once it is read.
    Read(Token, LedgerEntry),
}

impl Order {
    /// The token of the report.
    pub fn token(&self) -> Option<Token> {
        match self {
            Order::Keep(_) => None,
            Order::KeepFirst(token, _) | Order::Commit(token, _) | Order::Read(token, _) => Some(*token),
        }
    }

    pub(in crate::engine) fn entry(&self) -> &LedgerEntry {
        let (Order::Keep(entry) | Order::KeepFirst(_, entry) | Order::Commit(_, entry) | Order::Read(_, entry)) = self;
        entry
    }

    pub(in crate::engine) fn entry_mut(&mut self) -> &mut LedgerEntry {
        let (Order::Keep(entry) | Order::KeepFirst(_, entry) | Order::Commit(_, entry) | Order::Read(_, entry)) = self;
        entry
    }
}

/// Bytes of an entry without its texts.
const ENTRY_BYTES: usize = 256;

impl LedgerEntry {
    /// The name of the request that it is about.
    pub(in crate::engine) fn request_id_mut(&mut self) -> Option<&mut String> {
        match self {
            LedgerEntry::RequestOpened(row) => Some(&mut row.request_id),
            LedgerEntry::RequestEnded(end) => Some(&mut end.request_id),
            LedgerEntry::AnswerLost(given) => Some(&mut given.request_id),
            LedgerEntry::RequestExpired { request_id, .. }
            | LedgerEntry::RequestDispatched { request_id, .. }
            | LedgerEntry::RequestReopened { request_id, .. }
            | LedgerEntry::RequestConfirmed { request_id, .. }
            | LedgerEntry::RequestUncertain { request_id, .. }
            | LedgerEntry::RequestLate { request_id }
            | LedgerEntry::RequestShown { request_id, .. } => Some(request_id),
            LedgerEntry::Sent(_)
            | LedgerEntry::Settled { .. }
            | LedgerEntry::TurnNamed { .. }
            | LedgerEntry::ThreadSeen { .. }
            | LedgerEntry::ThreadBegan { .. }
            | LedgerEntry::FragmentsSent { .. }
            | LedgerEntry::EpochShown { .. }
            | LedgerEntry::ThreadCompacted { .. }
            | LedgerEntry::DenialOverruled(_) => None,
        }
    }

    /// Its size in memory in bytes, if it is about a request.
    pub(in crate::engine) fn weight(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let texts = match self {
            LedgerEntry::RequestOpened(row) => {
                length(&row.payload) + length(&row.changes) + length(&row.item) + row.summary.len()
            }
            LedgerEntry::RequestEnded(end) => length(&end.payload) + length(&end.reason),
            LedgerEntry::AnswerLost(given) => given.payload.len(),
            LedgerEntry::RequestShown { changes, summary, .. } => changes.len() + summary.len(),
            LedgerEntry::RequestExpired { .. }
            | LedgerEntry::RequestDispatched { .. }
            | LedgerEntry::RequestReopened { .. }
            | LedgerEntry::RequestConfirmed { .. }
            | LedgerEntry::RequestUncertain { .. }
            | LedgerEntry::RequestLate { .. }
            | LedgerEntry::Sent(_)
            | LedgerEntry::Settled { .. }
            | LedgerEntry::TurnNamed { .. }
            | LedgerEntry::ThreadSeen { .. }
            | LedgerEntry::ThreadBegan { .. }
            | LedgerEntry::FragmentsSent { .. }
            | LedgerEntry::EpochShown { .. }
            | LedgerEntry::ThreadCompacted { .. }
            | LedgerEntry::DenialOverruled(_) => 0,
        };
        ENTRY_BYTES + texts
    }
}

/// A new request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRow {
    /// The request's name in the ledger.
    pub request_id: String,
    /// The JSON-RPC id, as written.
    pub rpc_request_id: String,
    /// Its thread, turn and item.
    pub place: ItemPlace,
    /// Determines the shape of the answer.
    pub kind: RequestKind,
    pub method: String,
    /// Microseconds since the Unix epoch.
    pub requested_at_us: u64,
    /// When policy answers it, in the same unit.
    pub expires_at_us: Option<u64>,
    /// The parameters, as written.
    pub payload: Option<String>,
    /// The changes to approve, as JSON.
    pub changes: Option<String>,
    /// The item of the command to approve, as JSON.
    pub item: Option<String>,
    /// One-line summary.
    pub summary: String,
    /// The request was forwarded before it was stored.
    pub late: bool,
    /// The rule that decides on it.
    pub rule: Option<String>,
}

/// An answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenRow {
    pub request_id: String,
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub source: RequestSource,
    pub by: String,
    /// The answer, as JSON.
    pub payload: String,
}

/// A denial of codex's own reviewer that a person overruled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverruledRow {
    pub review_id: String,
    /// Its item is the reviewed one.
    pub place: ItemPlace,
    /// Microseconds since the Unix epoch; 0 until the server has accepted the call.
    pub at_us: u64,
    pub source: RequestSource,
    pub by: String,
    /// The parameters of the call, as JSON; `None` if they are too long.
    pub payload: Option<String>,
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEnd {
    pub request_id: String,
    pub status: RequestStatus,
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub source: RequestSource,
    /// The name of the person or tool, if known.
    pub by: Option<String>,
    /// The answer, as JSON, if there was one.
    pub payload: Option<String>,
    /// An error code and its explanation.
    #[serde(with = "crate::engine::as_json::compiled_in")]
    pub error: Option<(&'static str, &'static str)>,
    /// The answer was forwarded before it was stored.
    pub late: bool,
    /// The file of the program that a rule accepted.
    pub program: Option<String>,
    /// Why it was declined, for the model.
    pub reason: Option<String>,
    /// It also replaces an earlier answer in the row, which does not count.
    pub instead: bool,
}

impl RequestEnd {
    /// The end of an answered request.
    pub fn answered(given: GivenRow, status: RequestStatus) -> RequestEnd {
        let GivenRow { request_id, at_us, source, by, payload } = given;
        let (by, payload) = (Some(by), Some(payload));
        let (error, late, program, reason, instead) = (None, false, None, None, false);
        RequestEnd { request_id, status, at_us, source, by, payload, error, late, program, reason, instead }
    }

    /// The end of an unanswered request.
    pub fn unanswered(
        request_id: String,
        at_us: u64,
        status: RequestStatus,
        source: RequestSource,
        error: (&'static str, &'static str),
    ) -> RequestEnd {
        let (by, payload, error) = (None, None, Some(error));
        let (late, program, reason, instead) = (false, None, None, false);
        RequestEnd { request_id, status, at_us, source, by, payload, error, late, program, reason, instead }
    }
}

named! {
    pub enum RequestStatus {
        /// Waiting for an answer.
        Pending = "pending",
        /// Answered, or no longer needed.
        Resolved = "resolved",
        /// Timed out, and policy has not answered yet.
        Expired = "expired",
        /// The server that asked is gone.
        Orphaned = "orphaned",
    }
}

named! {
    /// The source of an answer or an end.
    pub enum RequestSource {
        Client = "client",
        /// A caller of the control socket that does not identify itself.
        Api = "api",
        /// The command line: `codex-shim respond`.
        Cli = "cli",
        /// The terminal UI.
        Tui = "tui",
        /// The web page.
        Web = "web",
        /// A rule of ours.
        Policy = "policy",
        Server = "server",
    }
}

/// Context that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Number in this run, from 1.
    pub number: u64,
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub thread_id: String,
    /// The carrier, never `auto` or `off`.
    pub carrier: Carrier,
    /// The text that the model saw.
    pub text: String,
}

named! {
    /// How a delivery ended.
    pub enum Outcome {
        /// The server accepted it.
        Delivered = "delivered",
        /// The server rejected it; the commands wait again.
        Refused = "refused",
        /// The server ended before its response; the commands wait again.
        ServerExited = "server_exited",
        /// Its response became ambiguous; the commands wait again.
        Unknown = "unknown",
    }
}
