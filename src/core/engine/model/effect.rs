//! What the engine can have done: the decision on a line, and effects.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::api::ApiReply;
use super::exit::{Exit, Signal};
use super::ids::{ApiCallId, Token};
use super::ledger::{LedgerEntry, Order};
use super::note::Note;
use super::peer::ClientName;
use super::record::Form;
use super::warning::Warning;
use crate::engine::assembly::Consultation;
use crate::engine::budget::BudgetQuery;
use crate::engine::config_warning::ConfigWarning;
use crate::engine::rules::ProgramCheck;
use crate::wire::{Conn, LineEnd, Side};

/// What happens to a line, or to a piece of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Lines of ours, recorded and sent ahead of it.
    pub before: Vec<OwnLine>,
    /// How it is recorded; a piece is not.
    pub record: Option<Form>,
    /// Its direction waits here until the token is released.
    pub hold: Option<Token>,
    pub line: Passage,
    /// Report this token once it is written.
    pub mark: Option<Token>,
    /// Effects that follow it.
    pub then: Vec<Effect>,
}

impl Decision {
    pub(in crate::engine) fn is_withheld(&self) -> bool {
        matches!(self.line, Passage::Withhold)
    }
}

/// Whether a line goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Passage {
    /// Unchanged.
    #[default]
    Forward,
    /// This goes on instead, and is recorded after it.
    Replace(OwnLine),
    Withhold,
}

/// A line that we wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnLine {
    pub to: Side,
    /// How to record the line.
    pub form: Form,
    /// Without the `\n`.
    pub bytes: Vec<u8>,
}

/// A client line that was held.
#[derive(Debug, Clone, PartialEq)]
pub struct LateLine {
    pub conn: Conn,
    /// Without the `\n`.
    pub bytes: Vec<u8>,
    pub end: LineEnd,
    pub decision: Decision,
}

/// Lines to the server that go out in one write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    pub conn: Conn,
    pub lines: Vec<OwnLine>,
    /// Report this token once the lines are written.
    pub mark: Option<Token>,
}

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
    /// Look up what is spent of the budget. With a token, a turn waits for [`crate::engine::Input::BudgetLookedUp`].
    LookAtBudget(Option<Token>, BudgetQuery),
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
    /// Feed this back as [`crate::engine::Input::ReleaseHeld`] at once, before reading anything else.
    ReleaseHeld(Token),
    /// Carry out decisions on client lines that were held, as if they had been read now.
    PassHeld(Vec<LateLine>),
    /// Send and record lines to the server between two other lines.
    Inject(Injection),
    /// Send and record a line to a client between two other lines.
    Answer(Conn, OwnLine),
    /// Forward a withheld server line as it was written to these clients; it is already on record.
    PassLate { conns: Vec<Conn>, line: Vec<u8> },
    /// Take back the answer before this mark, ahead of all other effects and before anything more is written. If it is whole
    /// here, report [`crate::engine::Input::Recalled`].
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
    pub(in crate::engine) fn keep(entry: LedgerEntry) -> Effect {
        Effect::Order(Order::Keep(entry))
    }
}
