//! The ledger of a session in which no relay runs.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::Value;

use super::assembly_table::{self, KeptFragment};
use super::context_table::{self, KeptDelivery, NewCommand, WhichCommands};
use super::database::{self, DatabaseError};
use super::ledger::LEDGER_FILE;
use super::ledger_job::{KeptRequest, LedgerError};
use super::ledger_writer::{form, kept_request};
use super::request_table::{self, WhichRequests};
use super::seq_mark::{self, SeqMark, SeqWish};
use crate::engine::WaitingCommand;

/// The longest wait for another process's lock.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Direct access to the ledger of a session without a relay.
#[derive(Debug)]
pub struct OfflineLedger {
    connection: Connection,
    path: PathBuf,
}

impl OfflineLedger {
    /// Opens the ledger in `session_dir`, creating it if it is missing.
    ///
    /// # Errors
    ///
    /// [`LedgerError`], also for a corrupt file: the next relay sets it aside.
    pub fn open(session_dir: &Path) -> Result<OfflineLedger, LedgerError> {
        let path = session_dir.join(LEDGER_FILE);
        let connection = database::open_as_is(&path, form(BUSY_WAIT_MAX))
            .map_err(|error| LedgerError::Unavailable(error.to_string()))?;
        Ok(OfflineLedger { connection, path })
    }

    /// See [`super::Ledger::push_context`].
    pub fn push_context(&mut self, pushed: Vec<NewCommand>) -> Result<usize, LedgerError> {
        self.within(|transaction| {
            if let Some(thread_id) = context_table::unknown_thread(transaction, &pushed)? {
                return Ok(Err(LedgerError::ThreadNotFound(thread_id)));
            }
            context_table::push(transaction, &pushed)?;
            Ok(Ok(context_table::waiting_after(transaction, 0)?.len()))
        })?
    }

    /// See [`super::Ledger::waiting_context`].
    pub fn waiting_context(&mut self) -> Result<Vec<WaitingCommand>, LedgerError> {
        self.within(|transaction| context_table::waiting_after(transaction, 0))
    }

    /// See [`super::Ledger::clear_context`].
    pub fn clear_context(&mut self, which: WhichCommands) -> Result<usize, LedgerError> {
        self.within(|transaction| context_table::clear(transaction, which).map(|rows| rows.len()))
    }

    /// See [`super::Ledger::requests`].
    pub fn requests(&mut self, which: WhichRequests) -> Result<Vec<Value>, LedgerError> {
        self.within(|transaction| request_table::rows(transaction, which))
    }

    /// The runs that have open requests. If nothing holds the session, these runs are over: see [`OfflineLedger::orphan`].
    pub fn open_runs(&self) -> Result<Vec<String>, LedgerError> {
        request_table::open_runs(&self.connection).map_err(|source| self.unavailable(source))
    }

    /// Marks the open requests of `runs` as orphaned. The caller knows that these runs are over, even if another relay
    /// holds the session by now.
    pub fn orphan(&mut self, runs: &[String]) -> Result<(), LedgerError> {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.within(|transaction| {
            request_table::orphan_runs(transaction, runs, since_epoch.as_micros() as u64).map(|_| ())
        })
    }

    /// See [`super::Ledger::request`].
    pub fn request(&mut self, request_id: &str) -> Result<Option<KeptRequest>, LedgerError> {
        self.within(|transaction| kept_request(transaction, request_id))
    }

    /// See [`super::Ledger::deliveries`].
    pub fn deliveries(&mut self) -> Result<Vec<KeptDelivery>, LedgerError> {
        self.within(context_table::deliveries)
    }

    /// See [`super::Ledger::fragments`].
    pub fn fragments(&mut self) -> Result<Vec<KeptFragment>, LedgerError> {
        self.within(assembly_table::fragments)
    }

    /// See [`super::Ledger::reserve_seq`].
    pub fn reserve_seq(&mut self, session_id: &str, wish: &SeqWish) -> Result<SeqMark, LedgerError> {
        self.within(|transaction| seq_mark::reserve(transaction, session_id, wish))
    }

    fn within<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, LedgerError> {
        let done = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        };
        done().map_err(|source| self.unavailable(source))
    }

    fn unavailable(&self, source: rusqlite::Error) -> LedgerError {
        LedgerError::Unavailable(DatabaseError::Sqlite { path: self.path.clone(), source }.to_string())
    }
}
