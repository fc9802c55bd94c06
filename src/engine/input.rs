//! What can happen to a relay.

use std::time::Duration;

use super::LiveSettings;
use super::assembly::consultation::{Assembled, Remembered};
use super::effect::Note;
use super::ledger::{ContextChange, RequestSource};
use super::requests::answer::GivenAnswer;
use super::shutdown::{Exit, Signal};
use super::token::{ApiCallId, Token};
use crate::wire::{Line, Side};

/// When something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the Unix epoch, for the record; the wall clock may jump.
    pub unix_us: u64,
    /// Time since the relay began, for deadlines; never goes back.
    pub elapsed: Duration,
}

/// Everything that can happen to a relay.
#[derive(Debug)]
pub enum Input<'a> {
    /// The child runs.
    ServerStarted {
        /// Its process id.
        pid: u32,
    },
    /// A side wrote a line.
    Line {
        /// Who wrote it.
        from: Side,
        /// The line.
        line: Line<'a>,
    },
    /// A side wrote a piece of a line that is over [`crate::wire::LINE_BYTES_MAX`], and not the last one.
    Piece {
        /// Who wrote it.
        from: Side,
    },
    /// A side wrote the last piece of such a line.
    LongLine {
        /// Who wrote it.
        from: Side,
        /// The length of the whole line in bytes, without the `\n`.
        line_bytes: u64,
    },
    /// A side has closed its stream, and all that it wrote has been handed on or can no longer be.
    Closed {
        /// Who closed it.
        from: Side,
    },
    /// The client is gone, though not all that it wrote has been handed on.
    ClientDisconnected,
    /// Whether the server's output waits for the client to take some, and nothing more is read from the server meanwhile. Told when
    /// it changes.
    OutputWaits(bool),
    /// The client that had attached itself is gone, or it never came.
    Detached,
    /// The child was reaped.
    ServerExited(Exit),
    /// We were sent a signal.
    Signalled(Signal),
    /// There is a session, and this is its run of the child.
    SessionOpened {
        /// 12 hex digits.
        generation: String,
    },
    /// The buffer of what the user did in a terminal has changed.
    Context(ContextChange),
    /// Settings have changed.
    Configured(Box<LiveSettings>),
    /// What earlier runs have told threads.
    Remembered(Box<Remembered>),
    /// Whether the context engine owns compaction.
    OwnsCompaction(bool),
    /// The context engine has answered, or will not: lines wait for that.
    Consulted {
        /// Which.
        token: Token,
        /// What it has assembled, where it has.
        assembled: Option<Box<Assembled>>,
    },
    /// What fragments say now, in the order of the settings; `None` for one that could not be had.
    FragmentsRead {
        /// Which lines wait for it.
        token: Token,
        /// What they say.
        states: Vec<Option<String>>,
    },
    /// Lines that have waited go on now, and nothing was read since that was said.
    ReleaseHeld(Token),
    /// Nothing is to wait any longer: whoever wrote it has ended.
    ReleaseAllHeld,
    /// Something has happened beside the relay that goes on record.
    Noted(Box<Note>),
    /// What was to be committed is, or could not be.
    Committed {
        /// Which.
        token: Token,
        /// It is.
        done: bool,
    },
    /// All up to a mark has been written.
    Written(Token),
    /// Somebody at the side wants something.
    ApiRequest {
        /// Who.
        api_call: ApiCallId,
        /// What.
        request: ApiRequest,
        /// Lines of ours can reach the server.
        server_listens: bool,
    },
    /// What is recorded is all indexed again.
    IndexRecovered,
    /// Time has passed.
    Tick,
}

/// What somebody at the side wants.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiRequest {
    /// To answer a request.
    Respond {
        /// Which.
        request_id: String,
        /// How.
        given: Box<GivenAnswer>,
        /// Through what.
        source: RequestSource,
        /// Who it is.
        by: String,
    },
    /// To say something to the model.
    Input {
        /// What.
        text: String,
        /// In which thread; `None` is that of the last turn.
        thread_id: Option<String>,
    },
    /// To interrupt a turn.
    Interrupt {
        /// In which thread, likewise.
        thread_id: Option<String>,
    },
    /// To be the client of a server that is ours.
    Attach,
    /// To have the server end, and not be started again.
    Stop,
    /// To have the server started.
    Start,
    /// To call the server.
    Rpc {
        /// The method.
        method: String,
        /// The parameters, as JSON.
        params: Option<String>,
    },
}
