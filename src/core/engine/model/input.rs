//! What can happen to a session.

use super::api::ApiRequest;
use super::exit::{Exit, Signal};
use super::ids::{ApiCallId, Token};
use super::ledger::ContextChange;
use super::note::Note;
use super::peer::{Peer, RefusedPeer};
use crate::engine::BudgetFound;
use crate::engine::LiveSettings;
use crate::engine::assembly::{Assembled, Remembered};
use crate::wire::{Conn, Line, Side};

/// Input from a side.
#[derive(Debug, Clone, Copy)]
pub enum Incoming<'a> {
    Line(Line<'a>),
    /// A piece (not the last) of a line over [`crate::wire::LINE_BYTES_MAX`].
    Piece,
    /// The last piece of such a line.
    LastPiece {
        /// Length of the whole line in bytes, without the `\n`.
        line_bytes: u64,
    },
}

/// Everything that can happen to a relay, besides [`Incoming`] lines.
#[derive(Debug)]
pub enum Input {
    /// The server is running.
    ServerStarted {
        pid: u32,
        /// It was started by another hub.
        adopted: bool,
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
    /// A client of the hub connected, or, for [`Conn::OWN`], the hub itself.
    Connected {
        conn: Conn,
        peer: Peer,
    },
    /// A client of the hub or its connection to the server is gone.
    Disconnected {
        conn: Conn,
    },
    /// We received a signal.
    Signalled(Signal),
    /// The session directory is open for this run of the child.
    SessionOpened {
        /// 12 hex digits.
        generation: String,
    },
    /// A peer at one of our sockets was refused, because it is confined.
    PeerRefused(RefusedPeer),
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
    /// The path of a checked program, or why a rule may not accept it.
    ProgramChecked {
        token: Token,
        checked: Result<String, String>,
    },
    /// The budget, looked up for a turn that waits.
    BudgetLookedUp {
        token: Token,
        found: BudgetFound,
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
    /// An answer of ours, with this mark, goes to the server of a hub over this connection.
    SentOver {
        mark: Token,
        conn: Conn,
    },
    /// Everything up to a mark has been written.
    Written(Token),
    /// The connection with this mark has ended before the mark was reached.
    NotWritten(Token),
    /// The answer before this mark was taken back; nothing of it has been written.
    Recalled(Token),
    /// An API call arrived.
    ApiRequest {
        api_call: ApiCallId,
        request: ApiRequest,
        /// Our lines can reach the server.
        server_listens: bool,
    },
    /// An invariant of codex-shim has failed: its name.
    Broken(String),
    /// The index caught up with the journal again.
    IndexRecovered,
    /// A deadline passed.
    Tick,
}
