//! Inputs of the engine.

use std::time::Duration;

use super::LiveSettings;
use super::assembly::{Assembled, Remembered};
use super::effect::Note;
use super::ledger::{ContextChange, RequestSource};
use super::requests::answer::GivenAnswer;
use super::shutdown::{Exit, Signal};
use crate::wire::Side;

/// Identifies something that the engine waits for.
pub type Token = u64;

/// Identifies an API call that waits for a reply.
pub type ApiCallId = u64;

/// The time of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the Unix epoch, for the record; the wall clock may jump.
    pub unix_us: u64,
    /// Monotonic time since the relay started, for deadlines.
    pub elapsed: Duration,
}

/// Everything that can happen to a relay, besides [`super::Incoming`] lines.
#[derive(Debug)]
pub enum Input {
    /// The child is running.
    ServerStarted {
        pid: u32,
    },
    /// A side closed its stream, and its output has been forwarded or is lost.
    Closed {
        from: Side,
    },
    /// The client disconnected while some of its output was still queued.
    ClientDisconnected,
    /// Server output became blocked on the client (reading from the server stops), or unblocked.
    OutputWaits(bool),
    /// The attached client disconnected, or an admitted client never connected.
    Detached,
    ServerExited(Exit),
    /// We received a signal.
    Signalled(Signal),
    /// The session directory is open for this run of the child.
    SessionOpened {
        /// 12 hex digits.
        generation: String,
    },
    /// The buffer of the user's terminal commands changed.
    Context(ContextChange),
    Configured(Box<LiveSettings>),
    /// Context that earlier runs sent to threads.
    Remembered(Box<Remembered>),
    OwnsCompaction(bool),
    /// The context engine answered, or will not answer, for a hold.
    Consulted {
        token: Token,
        assembled: Option<Box<Assembled>>,
    },
    /// Current fragment states, in the order of the settings; an entry is `None` if it could not be read.
    FragmentsRead {
        token: Token,
        states: Vec<Option<String>>,
    },
    /// Release a hold; no line was read since [`super::Effect::ReleaseHeld`].
    ReleaseHeld(Token),
    /// Release all holds: their writer is gone.
    ReleaseAllHeld,
    /// An event outside the engine that goes on record.
    Noted(Box<Note>),
    /// A commit succeeded or failed.
    Committed {
        token: Token,
        /// Whether it succeeded.
        done: bool,
    },
    /// Everything up to a mark has been written.
    Written(Token),
    /// An API call arrived.
    ApiRequest {
        api_call: ApiCallId,
        request: ApiRequest,
        /// Our lines can reach the server.
        server_listens: bool,
    },
    /// The index caught up with the journal again.
    IndexRecovered,
    /// A deadline passed.
    Tick,
}

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
    /// Attach as the client of a server that the relay owns.
    Attach,
    /// Stop the server and keep it stopped.
    Stop,
    /// Start the server.
    Start,
    /// Call a method of the server.
    Rpc {
        method: String,
        /// The parameters, as JSON.
        params: Option<String>,
    },
}
