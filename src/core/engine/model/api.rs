//! What API callers ask, and what they hear.

use std::path::PathBuf;

use super::ids::ApiCallId;
use super::ledger::RequestSource;
use crate::engine::requests::RequestType;
use crate::engine::requests::answer::{GivenAnswer, InvalidAnswer};

/// The request of an API caller.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiRequest {
    /// Answer a request of the server.
    Respond {
        request_id: String,
        given: Box<GivenAnswer>,
        source: RequestSource,
        /// The name of the person or tool that answers.
        by: String,
    },
    /// Send input to the model.
    Input {
        text: String,
        /// `None` is the thread of the last turn.
        thread_id: Option<String>,
    },
    /// Interrupt a turn.
    Interrupt {
        /// `None` is the thread of the last turn.
        thread_id: Option<String>,
    },
    /// Overrule a denial of codex's own reviewer.
    Overrule {
        review_id: String,
        applies: OverruleFor,
        source: RequestSource,
        /// The name of the person or tool that overrules it.
        by: String,
    },
    /// Attach as the client of a server that the relay owns.
    Attach,
    /// Stop the server and keep it stopped.
    Stop,
    /// Start the server.
    Start,
    /// Become another program, which goes on with all connections. Only a hub can.
    HandOver { program: PathBuf },
    /// Call a method of the server.
    Rpc {
        method: String,
        /// The parameters, as JSON.
        params: Option<String>,
        /// The name of the person or tool that calls.
        by: String,
    },
}

/// When the model may act on an approval that overrules a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverruleFor {
    /// In the turn of the denial, which must be running.
    ThisTurn,
    /// In that turn, or in the next one of its thread.
    NextTurn,
}

/// Reply to an API caller.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiReply {
    /// The answer is stored and will be sent.
    Kept,
    /// The answer could not be stored, so it was not sent.
    NotKept,
    Done,
    /// The client owns the server, so only the client can start or stop it.
    NotServed,
    /// The hub is about to become a program that another caller has named.
    HandsOver,
    /// The hub goes on by itself, for this reason.
    NotHandedOver(String),
    /// The request is not open, or somebody else has just answered it.
    NotOpen,
    /// The body is not a valid answer.
    Invalid(InvalidAnswer),
    /// The server cannot take the call, or has not answered it.
    NotReady(Unready),
    /// The thread is unknown, or there is no thread yet.
    ThreadNotFound,
    /// No turn is in progress in the thread.
    NoActiveTurn,
    /// A pending request blocks the thread.
    Gated {
        request_id: String,
        request_type: RequestType,
        /// Microseconds since the Unix epoch.
        requested_at_us: u64,
    },
    /// A turn started, or a running turn took the input.
    Turn {
        thread_id: String,
        turn_id: String,
        /// The turn was already running.
        steered: bool,
    },
    /// The server interrupts the running turn of this thread.
    Interrupted {
        thread_id: String,
    },
    /// A client may attach; its socket comes next.
    Admitted {
        /// The API call that identifies its socket.
        admission: ApiCallId,
    },
    /// Another client is attached.
    ClientAttached {
        /// The client's name for itself, if known.
        name: Option<String>,
    },
    /// The server's response, as JSON: `{"result":…}` or `{"error":…}`.
    Answered(String),
    /// An invariant of codex-shim has failed, so it does nothing for API callers: its name.
    Broken(String),
    /// The server accepted that a denial is overruled.
    Overruled {
        thread_id: String,
        /// The turn of the denial, if it was running.
        turn_id: Option<String>,
    },
    /// No review of this run with this id has denied anything.
    ReviewNotFound,
    /// The denial is overruled already.
    AlreadyOverruled,
    /// The turn of the denial is over.
    TurnOver {
        thread_id: String,
    },
}

/// Why the server does not answer a call. Unless it has ended, the call was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unready {
    /// It was started and is not initialized yet, which it will be without the caller.
    Starting,
    /// It takes its name from its first client, and has had none.
    WithoutClient,
    /// Its client has not initialized it.
    NotInitialized,
    /// It does not read, or has no connection.
    NotReading,
    /// Too many calls wait for it.
    Busy,
    /// It ended before it answered.
    Ended,
    /// It cannot be started, or the relay ends.
    Stopped,
}
