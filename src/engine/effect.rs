//! What the engine can have done, besides its decision on a line.

use std::time::Duration;

use super::assembly::Consultation;
use super::attached_client::ClientName;
use super::config_warning::ConfigWarning;
use super::interface::{ApiCallId, ApiReply, Injection, LateLine, Note, OwnLine, Token, Warning};
use super::ledger::{LedgerEntry, Order};
use super::rules::ProgramCheck;
use super::shutdown::{Exit, Signal};
use crate::wire::Conn;

/// Everything that the engine can have done, besides its decision on a line.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Record an event of our own.
    Note(Note),
    /// Store an entry in the ledger.
    Order(Order),
    /// Call or notify the context engine.
    Consult(Box<Consultation>),
    /// Read the fragments in this folder, or else in the relay's own.
    RunFragments(Token, Option<String>),
    /// Check the folder and the program of a command that a rule accepts.
    CheckProgram(Token, Box<ProgramCheck>),
    /// Run the user's hook for a pending request.
    NotifyPending(String),
    /// Run the user's hook for an idle session, with the outcome of the last turn as JSON.
    NotifyIdle(String),
    /// Warn the user.
    Warn(Warning),
    /// Publish what codex says about its configuration.
    PublishConfigWarning(Box<ConfigWarning>),
    Link(LinkEffect),
    Child(ChildEffect),
}

/// What is done on the links between clients and server.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkEffect {
    /// Release a held direction.
    Release(Token),
    /// Feed this back as [`super::Input::ReleaseHeld`] at once, before reading anything else.
    ReleaseHeld(Token),
    /// Carry out decisions on client lines that were held, as if they had been read now.
    PassHeld(Vec<LateLine>),
    /// Send and record lines to the server between two other lines.
    Inject(Injection),
    /// Send and record a line to the client of [`Conn::OWN`] between two other lines.
    Answer(OwnLine),
    /// Forward a withheld server line as it was written to these clients; it is already on record.
    PassLate { conns: Vec<Conn>, line: Vec<u8> },
    /// Take back the answer before this mark, ahead of all other effects and before anything more is written. If it is whole
    /// here, report [`super::Input::Recalled`].
    Recall(Token),
    /// Reply to an API caller.
    Reply(ApiCallId, ApiReply),
    /// Publish the name of the client. The record already has its `initialize`.
    Introduce(Conn, Box<ClientName>),
}

/// What is done to a server that is a child and talks on pipes.
#[derive(Debug, Clone, PartialEq)]
pub enum ChildEffect {
    CloseServerInput,
    CloseClientOutput,
    SignalServer(Signal),
    KillServer,
    /// Treat the server's output as closed once it is silent for `quiet_max`, or once the client reads nothing for
    /// `stall_max` while output is buffered.
    DrainServer {
        /// Silence that counts as the end.
        quiet_max: Duration,
        /// `None` is no limit.
        stall_max: Option<Duration>,
    },
    /// Exit with the status of the child.
    Finish(Exit),
}

impl Effect {
    /// Stores an entry in the ledger, without waiting.
    pub(super) fn keep(entry: LedgerEntry) -> Effect {
        Effect::Order(Order::Keep(entry))
    }
}
