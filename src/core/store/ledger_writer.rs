//! The writer thread of a relay's ledger.
//!
//! It carries jobs out in order, all queued ones in one transaction. Entries that failed before precede new ones.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use rusqlite::{Connection, Transaction};

use super::context_table::{self, WhichCommands};
use super::database::{self, DatabaseError, DatabaseForm, Opened, SetAside};
use super::ledger::{Job, LEDGER_FILE, LedgerError};
use super::overruling_table;
use super::request_table::{self, RunIds};
use super::sums::renew_sum;
use super::witness;
use crate::api::RequestDocument;
use crate::engine::{ContextChange, Input, LedgerEntry, Order, Remembered, RowId, WaitingCommand};
use crate::invariants::holds;

/// Sends input to the engine.
pub(super) type Notify = Box<dyn Fn(Input) + Send>;

/// Reports that the ledger cannot be used.
pub(super) type ReportFault = Box<dyn Fn(&str) + Send>;

/// Most jobs in one transaction.
const JOBS_PER_TRANSACTION_MAX: usize = 256;

/// Most entries that wait for a retry.
const BACKLOG_MAX: usize = 1_024;

/// The pause before a retry.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The longest wait for another process's lock.
const BUSY_WAIT_MAX: Duration = Duration::from_millis(250);

/// The schema version that this program writes.
pub const LEDGER_FORM: usize = MIGRATIONS.len();

/// The schema, append-only.
pub(super) const MIGRATIONS: &[&str] = &[
    context_table::TABLES,
    request_table::TABLES,
    witness::SEQ_TABLES,
    context_table::BLOCKS_TABLE,
    context_table::ASSEMBLY_TABLES,
    witness::EPOCH_COLUMN,
    request_table::RULE_COLUMNS,
    overruling_table::TABLE,
    request_table::REASON_COLUMN,
];

pub(super) struct LedgerWriter {
    path: PathBuf,
    run: RunIds,
    notify: Notify,
    report_fault: ReportFault,
    connection: Option<Connection>,
    /// The engine has got the ledger's contents for this run, or is about to.
    is_loaded: bool,
    /// Commands up to this row were sent to the engine.
    sent_row: RowId,
    backlog: VecDeque<LedgerEntry>,
    retry_at: Option<Instant>,
    fault_reported: bool,
}

/// The ledger's contents for a new run.
struct Loaded {
    added: Vec<WaitingCommand>,
    beginnings: Vec<(String, String)>,
    remembered: Remembered,
}

/// The result of a job, valid once its transaction is committed.
enum Done {
    Pushed { waiting: usize, added: Vec<WaitingCommand>, forgotten: Vec<ContextChange> },
    ThreadNotFound(String),
    Cleared(Vec<RowId>),
    Committed(bool),
    Nothing,
}

impl LedgerWriter {
    /// `notify` sends input to the engine.
    pub(super) fn new(path: PathBuf, run: RunIds, notify: Notify, report_fault: ReportFault) -> LedgerWriter {
        LedgerWriter {
            path,
            run,
            notify,
            report_fault,
            connection: None,
            is_loaded: false,
            sent_row: 0,
            backlog: VecDeque::new(),
            retry_at: None,
            fault_reported: false,
        }
    }

    /// Carries out jobs until all senders are gone.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        // A missing file has nothing to load, and is created for the first entry.
        if self.path.exists()
            && let Err(error) = self.connected()
        {
            self.failed(&error);
        }
        loop {
            let first = match self.retry_at {
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => jobs.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            let mut together = match first {
                Ok(job) => vec![job],
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => {
                    if let Some(connection) = self.connection.take() {
                        database::empty_log(&connection);
                        drop(connection);
                        self.add_sum();
                    }
                    return;
                }
            };
            together.extend(jobs.try_iter().take(JOBS_PER_TRANSACTION_MAX));
            // A run begins between two transactions.
            let mut rest = together.into_iter();
            loop {
                let mut begun = None;
                let before: Vec<Job> = rest
                    .by_ref()
                    .map_while(|job| {
                        if let Job::BeginRun(generation) = job {
                            begun = Some(generation);
                            return None;
                        }
                        Some(job)
                    })
                    .collect();
                self.carry_out(before);
                let Some(generation) = begun else { break };
                self.begin_run(generation);
            }
        }
    }

    fn begin_run(&mut self, generation: String) {
        self.run.own_run.clone_from(&generation);
        self.run.generation = generation;
        self.sent_row = 0;
        self.is_loaded = false;
        self.connection = None;
        if self.path.exists()
            && let Err(error) = self.connected()
        {
            self.failed(&error);
        }
    }

    /// Carries out jobs in one transaction, in order, after the backlog.
    fn carry_out(&mut self, mut jobs: Vec<Job>) {
        match self.together(&mut jobs) {
            Ok(outcomes) => {
                holds!("ledger.each-job-has-an-outcome", outcomes.len() == jobs.len());
                self.backlog.clear();
                self.works_again();
                jobs.into_iter().zip(outcomes).for_each(|(job, outcome)| self.answer(job, outcome));
            }
            Err(error) => {
                self.failed(&error);
                let unavailable = LedgerError::Unavailable(error.to_string());
                jobs.into_iter().for_each(|job| self.refuse(job, &unavailable));
            }
        }
    }

    /// Carries out all jobs, or none if one fails.
    fn together(&mut self, jobs: &mut [Job]) -> Result<Vec<Done>, DatabaseError> {
        // Without jobs it is a retry, which reads the ledger if it could not be read before.
        let only_ends = !jobs.is_empty() && jobs.iter().all(|job| matches!(job, Job::Finish(_)));
        if self.backlog.is_empty() && only_ends {
            return Ok(jobs.iter().map(|_| Done::Nothing).collect());
        }
        let mut sent_row = self.connected()?;
        let LedgerWriter { connection: Some(connection), backlog, run, path, .. } = self else {
            unreachable!("BUG: `connected` has opened it");
        };
        let done = database::at_once(connection, |transaction| {
            for entry in &*backlog {
                keep(transaction, run, entry)?;
            }
            jobs.iter_mut().map(|job| carry_out(transaction, run, job, &mut sent_row)).collect::<rusqlite::Result<_>>()
        });
        let done = done.map_err(|source| DatabaseError::Sqlite { path: path.clone(), source })?;
        self.sent_row = sent_row;
        Ok(done)
    }

    /// Opens the ledger unless it is open, and sends its contents to the engine. Returns the last row that was sent.
    fn connected(&mut self) -> Result<RowId, DatabaseError> {
        if self.connection.is_some() {
            return Ok(self.sent_row);
        }
        let Opened { mut connection, set_aside } = database::open(&self.path, form(BUSY_WAIT_MAX))?;
        let failed = |source| DatabaseError::Sqlite { path: self.path.clone(), source };
        // A file that is corrupt has nothing to say about what the engine knows.
        let is_whole = !matches!(set_aside, Some(SetAside::Database(_))) && self.sent_row == 0;
        match set_aside {
            None => {}
            Some(SetAside::Database(kept)) => {
                (self.report_fault)(&format!(
                    "{} was corrupt; it was renamed to {} and replaced by a new one",
                    self.path.display(),
                    kept.display()
                ));
                // The engine still refers to rows of the old file by their ids.
                connection.execute(SKIP_ROWS, [self.sent_row]).map_err(failed)?;
            }
            Some(SetAside::Log(kept)) => (self.report_fault)(&format!(
                "the log of {} was corrupt; its copy is {}; the last requests, answers and commands before this start may be \
                 missing",
                self.path.display(),
                kept.display()
            )),
        }
        let Loaded { added, beginnings, remembered } = self.load(&mut connection).map_err(failed)?;
        self.connection = Some(connection);
        holds!("ledger.commands-are-loaded-in-order", are_in_order(&added, self.sent_row));
        self.sent_row = added.last().map_or(self.sent_row, |last| last.row);
        // The engine's table of threads may have no room for all; beginnings are fewer and come first.
        (self.notify)(Input::Context(ContextChange::Beginnings(beginnings)));
        (self.notify)(Input::Remembered(Box::new(remembered)));
        self.is_loaded = true;
        let change = if is_whole { ContextChange::Loaded(added) } else { ContextChange::Added(added) };
        (self.notify)(Input::Context(change));
        Ok(self.sent_row)
    }

    fn load(&self, connection: &mut Connection) -> rusqlite::Result<Loaded> {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        database::at_once(connection, |transaction| {
            context_table::end_earlier_deliveries(transaction, &self.run.own_run)?;
            request_table::orphan_earlier(transaction, &self.run, since_epoch.as_micros() as u64)?;
            Ok(Loaded {
                added: context_table::waiting_after(transaction, self.sent_row)?,
                beginnings: context_table::beginnings(transaction)?,
                remembered: Remembered {
                    requests: request_table::ended_in(transaction, &self.run.generation)?,
                    open_requests: request_table::open_in(transaction, &self.run.generation)?,
                    ..context_table::remembered(transaction)?
                },
            })
        })
    }

    /// Sends a job's result after the commit, to the engine first.
    fn answer(&mut self, job: Job, done: Done) {
        // A caller may have stopped waiting, so errors of `send` are ignored.
        match (job, done) {
            (Job::Push(_, reply), Done::Pushed { waiting, added, forgotten }) => {
                (self.notify)(Input::Context(ContextChange::Added(added)));
                forgotten.into_iter().for_each(|change| (self.notify)(Input::Context(change)));
                let _ = reply.send(Ok(waiting));
            }
            (Job::Push(_, reply), Done::ThreadNotFound(thread_id)) => {
                let _ = reply.send(Err(LedgerError::ThreadNotFound(thread_id)));
            }
            (Job::Question(question), _) => question.answer(Ok(())),
            (Job::Clear(which, reply), Done::Cleared(mut rows)) => {
                let count = rows.len();
                // Another process may have deleted it from the file since the relay read it.
                if let WhichCommands::One(row) = which {
                    rows = vec![row];
                }
                (self.notify)(Input::Context(ContextChange::Cleared(rows)));
                let _ = reply.send(Ok(count));
            }
            (Job::Order(Order::Commit(token, _)), Done::Committed(done)) => {
                (self.notify)(Input::Committed { token, done });
            }
            // Its entry follows in an order of its own.
            (Job::Order(Order::Read(..)), _) => {}
            (Job::Order(order), _) => {
                if let Some(token) = order.token() {
                    (self.notify)(Input::Committed { token, done: true });
                }
            }
            (Job::BeginRun(_), _) => {}
            (Job::Finish(done), _) => {
                // Closing merges the log into the file only without a reader.
                self.connection.take().iter().for_each(database::empty_log);
                self.add_sum();
                let _ = done.try_send(());
            }
            (Job::Push(..) | Job::Clear(..), _) => unreachable!("BUG: each job has a result of its own kind"),
        }
    }

    /// Reports a failure to the job's caller; entries without a caller are retried.
    fn refuse(&mut self, job: Job, why: &LedgerError) {
        match job {
            // Its entry follows in an order of its own.
            Job::Order(Order::Read(..)) if self.is_loaded => {}
            Job::Order(order) => {
                let token = order.token();
                match order {
                    Order::Keep(entry) | Order::KeepFirst(_, entry) => self.retry_later(entry),
                    Order::Commit(..) | Order::Read(..) => {}
                }
                if let Some(token) = token {
                    (self.notify)(Input::Committed { token, done: false });
                }
            }
            Job::Push(_, reply) => drop(reply.send(Err(why.clone()))),
            Job::Clear(_, reply) => drop(reply.send(Err(why.clone()))),
            Job::Question(question) => question.answer(Err(why)),
            Job::BeginRun(_) => {}
            // Waiting would not help.
            Job::Finish(done) => drop(done.try_send(())),
        }
    }

    /// Of the closed file, so that damage is noticed later.
    fn add_sum(&self) {
        if let Some(folder) = self.path.parent() {
            renew_sum(folder, LEDGER_FILE);
        }
    }

    fn retry_later(&mut self, entry: LedgerEntry) {
        if self.backlog.len() < BACKLOG_MAX {
            self.backlog.push_back(entry);
        } else {
            tracing::warn!("the ledger cannot be used and its backlog is full; an entry is lost");
        }
    }

    fn failed(&mut self, error: &DatabaseError) {
        let busy = matches!(error, DatabaseError::Sqlite { source, .. }
            if source.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy));
        if !busy {
            self.connection = None;
        }
        self.retry_at = Some(Instant::now() + RETRY_PAUSE);
        if !std::mem::replace(&mut self.fault_reported, true) {
            (self.report_fault)(&format!("{error}; relaying continues, and entries are retried"));
        }
    }

    fn works_again(&mut self) {
        if self.retry_at.take().is_some() {
            tracing::info!("the ledger can be used again");
        }
    }
}

/// Prevents row ids from being reused.
const SKIP_ROWS: &str = "INSERT INTO sqlite_sequence (name, seq) VALUES ('codex_context_commands', ?1)";

pub(super) fn form(busy_wait_max: Duration) -> DatabaseForm {
    DatabaseForm { migrations: MIGRATIONS, synchronous: "FULL", busy_wait_max }
}

/// Whether these commands come after a row, each after the one before.
fn are_in_order(commands: &[WaitingCommand], after: RowId) -> bool {
    let rows = commands.iter().map(|command| command.row);
    commands.first().is_none_or(|first| first.row > after) && rows.is_sorted_by(|one, next| one < next)
}

/// Stores an entry; returns how many rows of requests changed.
fn keep(transaction: &Transaction<'_>, run: &RunIds, entry: &LedgerEntry) -> rusqlite::Result<usize> {
    context_table::keep(transaction, &run.own_run, entry)?;
    overruling_table::keep(transaction, run, entry)?;
    request_table::keep(transaction, run, entry)
}

fn carry_out(
    transaction: &Transaction<'_>,
    run: &RunIds,
    job: &mut Job,
    sent_row: &mut RowId,
) -> rusqlite::Result<Done> {
    Ok(match job {
        Job::Order(Order::Keep(entry) | Order::KeepFirst(_, entry)) => {
            keep(transaction, run, entry)?;
            Done::Nothing
        }
        Job::Order(Order::Read(..)) => Done::Nothing,
        // `keep` changes no row if the request has already ended.
        Job::Order(Order::Commit(_, entry)) => {
            holds!("ledger.only-answers-may-fail", matches!(entry, LedgerEntry::RequestEnded(_)));
            Done::Committed(keep(transaction, run, entry)? > 0)
        }
        Job::Push(pushed, _) => {
            if let Some(thread_id) = context_table::unknown_thread(transaction, pushed)? {
                return Ok(Done::ThreadNotFound(thread_id));
            }
            let forgotten = context_table::push(transaction, pushed)?;
            let added = context_table::waiting_after(transaction, *sent_row)?;
            holds!("ledger.commands-are-added-in-order", are_in_order(&added, *sent_row));
            *sent_row = added.last().map_or(*sent_row, |last| last.row);
            Done::Pushed { waiting: context_table::waiting_after(transaction, 0)?.len(), added, forgotten }
        }
        Job::Clear(which, _) => Done::Cleared(context_table::clear(transaction, *which)?),
        Job::Question(question) => {
            question.ask(transaction, run)?;
            Done::Nothing
        }
        Job::BeginRun(_) | Job::Finish(_) => Done::Nothing,
    })
}

pub(super) fn kept_request(
    transaction: &Transaction<'_>,
    request_id: &str,
) -> rusqlite::Result<Option<RequestDocument>> {
    let Some(request) = request_table::row(transaction, request_id)? else { return Ok(None) };
    Ok(Some(RequestDocument { request, answers: request_table::answers(transaction, request_id)? }))
}
