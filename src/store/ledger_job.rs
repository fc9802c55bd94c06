//! Jobs of the ledger's thread, and their results.

use std::fmt;
use std::sync::mpsc::SyncSender;

use serde_json::Value;
use tokio::sync::oneshot;

use super::assembly_table::KeptFragment;
use super::context_table::{KeptDelivery, NewCommand, WhichCommands};
use super::request_table::WhichRequests;
use super::seq_mark::{SeqMark, SeqWish};
use crate::engine::{GivenRow, Order, WaitingCommand};

/// A stored request.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptRequest {
    pub row: Value,
    /// Its answers, as JSON, oldest first.
    pub answers: Vec<Value>,
}

/// Why the ledger did not store or return something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerError {
    /// The ledger cannot be used now.
    Unavailable(String),
    /// This session has never seen the thread.
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

/// The channel for a job's result.
pub(super) type Reply<T> = oneshot::Sender<Result<T, LedgerError>>;

/// A job of the ledger's thread.
#[derive(Debug)]
pub(super) enum Job {
    Order(Order),
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
