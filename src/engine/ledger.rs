//! What goes to the ledger and what comes from it, as the engine sees it.

use serde::Serialize;

use super::assembly::consultation::SentFragment;
use super::context::carrier::Carrier;
use super::context::command::Command;
use crate::protocol::{RequestKind, RequestPlace};

/// The row of a command in the ledger; rows grow by age.
pub(crate) type RowId = i64;

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
    /// A thread was told fragments.
    FragmentsSent {
        /// Its id.
        thread_id: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
        /// Which.
        told: Vec<SentFragment>,
    },
    /// A thread was shown what a context engine shows once an epoch.
    EpochShown {
        /// Its id.
        thread_id: String,
        /// The epoch.
        epoch: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
    },
    /// A thread's history was made shorter: it is to be told and shown all of that anew.
    ThreadCompacted {
        /// Its id.
        thread_id: String,
    },
    /// The server asks something.
    RequestOpened(Box<RequestRow>),
    /// A request has come to its end.
    RequestEnded(Box<RequestEnd>),
    /// Nobody has answered in time.
    RequestExpired {
        /// Which.
        request_id: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
    },
    /// An answer that was not the first.
    AnswerLost(Box<GivenRow>),
    /// The answer has been written.
    RequestDispatched {
        /// Which.
        request_id: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
    },
    /// The server has confirmed the end.
    RequestConfirmed {
        /// Which.
        request_id: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
    },
    /// The turn ended before the server had confirmed the answer.
    RequestUncertain {
        /// Which.
        request_id: String,
        /// Microseconds since the Unix epoch.
        at_us: u64,
    },
    /// It went on before it was kept.
    RequestLate {
        /// Which.
        request_id: String,
    },
    /// What a request is about became known after it.
    RequestShown {
        /// Which.
        request_id: String,
        /// The changes, as JSON.
        changes: String,
        /// The line for it.
        summary: String,
    },
}

/// A request as it is kept at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRow {
    /// Its name in the ledger.
    pub request_id: String,
    /// Its id in the protocol, as it was written.
    pub rpc_request_id: String,
    /// Where it stands.
    pub place: RequestPlace,
    /// What its answer looks like.
    pub kind: RequestKind,
    /// Its method.
    pub method: String,
    /// Microseconds since the Unix epoch.
    pub requested_at_us: u64,
    /// When policy answers it, likewise.
    pub expires_at_us: Option<u64>,
    /// Its parameters, as they were written.
    pub payload: Option<String>,
    /// The changes that it is about, as JSON.
    pub changes: Option<String>,
    /// The command that it is about, as its item has it, as JSON.
    pub item: Option<String>,
    /// One line that says what it wants.
    pub summary: String,
    /// It went on before it was kept.
    pub late: bool,
}

/// What somebody has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenRow {
    /// To which request.
    pub request_id: String,
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    /// Where.
    pub source: RequestSource,
    /// Who.
    pub by: String,
    /// What, as JSON.
    pub payload: String,
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestEnd {
    /// Which.
    pub request_id: String,
    /// What it is now.
    pub status: RequestStatus,
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    /// Where it came from.
    pub source: RequestSource,
    /// Whom it came from.
    pub by: Option<String>,
    /// The answer, as JSON, where there was one.
    pub payload: Option<String>,
    /// A code for what went wrong, and what that means.
    pub error: Option<(&'static str, &'static str)>,
    /// The answer went on before it was kept.
    pub late: bool,
}

impl RequestEnd {
    /// By somebody's answer.
    #[must_use]
    pub fn answered(given: GivenRow, status: RequestStatus) -> RequestEnd {
        let GivenRow { request_id, at_us, source, by, payload } = given;
        let (by, payload) = (Some(by), Some(payload));
        RequestEnd { request_id, status, at_us, source, by, payload, error: None, late: false }
    }

    /// Without an answer.
    #[must_use]
    pub fn unanswered(
        request_id: String,
        at_us: u64,
        status: RequestStatus,
        source: RequestSource,
        error: (&'static str, &'static str),
    ) -> RequestEnd {
        RequestEnd { request_id, status, at_us, source, by: None, payload: None, error: Some(error), late: false }
    }
}

/// What has become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestStatus {
    /// It waits.
    Pending,
    /// It was answered, or is not to be any more.
    Resolved,
    /// Nobody has answered in time, and policy has not yet.
    Expired,
    /// Who asked is gone.
    Orphaned,
}

impl RequestStatus {
    /// Its name in the ledger.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RequestStatus::Pending => "pending",
            RequestStatus::Resolved => "resolved",
            RequestStatus::Expired => "expired",
            RequestStatus::Orphaned => "orphaned",
        }
    }
}

/// Where an end came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSource {
    /// The client.
    Client,
    /// A caller of the control socket that does not say what it is.
    Api,
    /// The command line: `codex-shim respond`.
    Cli,
    /// The terminal UI.
    Tui,
    /// A rule of ours.
    Policy,
    /// The server itself.
    Server,
}

impl RequestSource {
    /// Its name in the ledger.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RequestSource::Client => "client",
            RequestSource::Api => "api",
            RequestSource::Cli => "cli",
            RequestSource::Tui => "tui",
            RequestSource::Policy => "policy",
            RequestSource::Server => "server",
        }
    }
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
    /// Its answer can no longer be told from another one; it waits again.
    Unknown,
}

impl Outcome {
    /// The name that it has in the ledger.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Delivered => "delivered",
            Outcome::Refused => "refused",
            Outcome::ServerExited => "server_exited",
            Outcome::Unknown => "unknown",
        }
    }
}
