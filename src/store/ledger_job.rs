//! What the ledger's thread is told and asked, and what comes of it.

use std::fmt;
use std::sync::mpsc::SyncSender;

use serde_json::Value;
use tokio::sync::oneshot;

use super::assembly_table::KeptFragment;
use super::context_table::{KeptDelivery, NewCommand, WhichCommands};
use super::request_table::WhichRequests;
use super::seq_mark::{SeqMark, SeqWish};
use crate::engine::{GivenRow, LedgerEntry, Token, WaitingCommand};

/// Something to be kept.
#[derive(Debug)]
pub(crate) enum Order {
    /// Soon.
    Keep(LedgerEntry),
    /// Soon, and the engine is told whether it is; where it is not, it is tried again ahead of what comes later.
    KeepFirst(Token, LedgerEntry),
    /// Or not at all, and the engine is told which.
    Commit(Token, LedgerEntry),
}

/// A request as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptRequest {
    /// Its row, as JSON.
    pub row: Value,
    /// The answers to it, as JSON, oldest first.
    pub answers: Vec<Value>,
}

/// Why something could not be kept or told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerError {
    /// The ledger cannot be used now.
    Unavailable(String),
    /// There is no such thread, as far as this session has seen.
    ThreadNotFound(String),
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LedgerError::Unavailable(why) => write!(f, "the ledger is not available: {why}"),
            LedgerError::ThreadNotFound(thread_id) => write!(
                f,
                "unknown thread {thread_id}: it was not started or resumed in this session; without a thread, the next turn \
                 of any thread carries the command"
            ),
        }
    }
}

impl std::error::Error for LedgerError {}

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, LedgerError>>;

/// What the thread is told to do.
#[derive(Debug)]
pub(super) enum Job {
    Keep(LedgerEntry),
    KeepFirst(Token, LedgerEntry),
    Commit(Token, LedgerEntry),
    Requests(WhichRequests, Reply<Vec<Value>>),
    Request(String, Reply<Option<KeptRequest>>),
    AnswerLate(Box<GivenRow>, Reply<Option<Value>>),
    Push(Vec<NewCommand>, Reply<usize>),
    Waiting(Reply<Vec<WaitingCommand>>),
    Clear(WhichCommands, Reply<usize>),
    Deliveries(Reply<Vec<KeptDelivery>>),
    Fragments(Reply<Vec<KeptFragment>>),
    ReserveSeq(SeqWish, SyncSender<Result<SeqMark, LedgerError>>),
    BeginRun(String),
    Finish(SyncSender<()>),
}
