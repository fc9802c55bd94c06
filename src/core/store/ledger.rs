//! The ledger: data that must survive any crash, committed with `synchronous=FULL` to `ledger.db` in the session's folder.
//!
//! In a relay one thread owns the file. Jobs from the relay and from the control socket reach it in order through one
//! bounded queue, and all queued jobs form one transaction. If no relay runs, commands open the file themselves.
//!
//! *Failure.* An unusable ledger is a fault like any other: the relay continues, callers get an error, and the relay's own
//! entries are retried, up to a bound.
//!
//! *Locking.* SQLite's own. The thread waits a bounded time for a command that writes.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use rusqlite::{Connection, Transaction};
use tokio::sync::oneshot;

use super::context_table::{self, NewCommand, WhichCommands};
use super::database::{self, DatabaseError, Life};
use super::ledger_writer::{LedgerWriter, form, kept_request};
use super::request_table::{self, PastRow, RuleUse, RunIds};
use super::sums::{Compared, Sums, renew_sum};
use super::witness::{self, SeqMark, SeqWish};
use crate::api::{DeliveryDocument, FragmentDocument, Request, RequestDocument, WhichRequests};
use crate::engine::{GivenRow, Input, Order, WaitingCommand};
use crate::invariants;

pub const LEDGER_FILE: &str = "ledger.db";

/// Most queued jobs.
const JOBS_MAX: usize = 1_024;

/// Stack of the thread, in bytes. SQLite needs little.
const STACK_BYTES: usize = 512 << 10;

/// A handle to the ledger's thread.
#[derive(Debug, Clone)]
pub struct Ledger(SyncSender<Job>);

impl Ledger {
    /// Starts the thread for the ledger in `session_dir`, whose lock we hold, with the session's id, the run of the server and our
    /// own. `notify` passes input to the engine;
    /// `report_fault` reports that the ledger cannot be used.
    pub fn start(
        session_dir: &Path,
        (session_id, generation, own_run): (String, String, String),
        notify: impl Fn(Input) + Send + 'static,
        report_fault: impl Fn(&str) + Send + 'static,
    ) -> io::Result<Ledger> {
        let (sender, jobs) = sync_channel(JOBS_MAX);
        let path = session_dir.join(LEDGER_FILE);
        let run = RunIds { session_id, generation, own_run };
        let writer = LedgerWriter::new(path, run, Box::new(notify), Box::new(report_fault));
        let thread = std::thread::Builder::new().name("ledger".to_owned()).stack_size(STACK_BYTES);
        let broken = invariants::shared();
        thread.spawn(move || {
            broken.join();
            writer.run(&jobs);
        })?;
        Ok(Ledger(sender))
    }

    /// Queues an order without waiting; returns it if the queue is full.
    pub fn hand(&self, order: Order) -> Result<(), Order> {
        match self.0.try_send(Job::Order(order)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(Job::Order(order)) | TrySendError::Disconnected(Job::Order(order))) => Err(order),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                unreachable!("BUG: an order is given back as it came")
            }
        }
    }

    /// Requests, oldest first.
    pub async fn requests(&self, which: WhichRequests) -> Result<Vec<Request>, LedgerError> {
        self.ask(move |transaction, _| request_table::rows(transaction, which)).await
    }

    /// One request with its answers; `None` if the id is unknown.
    pub async fn request(&self, request_id: String) -> Result<Option<RequestDocument>, LedgerError> {
        self.ask(move |transaction, _| kept_request(transaction, &request_id)).await
    }

    /// Like [`Ledger::request`], for a thread that may block; `None` also if the ledger cannot be read.
    #[must_use]
    pub fn request_blocking(&self, request_id: String) -> Option<RequestDocument> {
        let (question, answer) = Question::new(move |transaction, _| kept_request(transaction, &request_id));
        self.queue(Job::Question(question)).ok()?;
        answer.blocking_recv().ok()?.ok()?
    }

    /// Stores an answer that came too late, and returns the request.
    pub async fn answer_late(&self, given: GivenRow) -> Result<Option<Request>, LedgerError> {
        self.ask(move |transaction, _| request_table::answer_late(transaction, &given)).await
    }

    /// Appends commands to the queue and returns its length. An empty `pushed` only picks up what other processes have
    /// added.
    ///
    /// # Errors
    ///
    /// [`LedgerError`]; nothing is stored then.
    pub async fn push_context(&self, pushed: Vec<NewCommand>) -> Result<usize, LedgerError> {
        let (reply, answer) = oneshot::channel();
        self.queue(Job::Push(pushed, reply))?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Like [`Ledger::push_context`], for a thread that may block.
    pub fn push_context_blocking(&self, pushed: Vec<NewCommand>) -> Result<usize, LedgerError> {
        let (reply, answer) = oneshot::channel();
        self.queue(Job::Push(pushed, reply))?;
        answer.blocking_recv().unwrap_or_else(|_| Err(ended()))
    }

    /// The waiting commands, oldest first.
    pub async fn waiting_context(&self) -> Result<Vec<WaitingCommand>, LedgerError> {
        self.ask(|transaction, _| context_table::waiting_after(transaction, 0)).await
    }

    /// Deletes waiting commands; returns how many.
    pub async fn clear_context(&self, which: WhichCommands) -> Result<usize, LedgerError> {
        let (reply, answer) = oneshot::channel();
        self.queue(Job::Clear(which, reply))?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Stored deliveries, oldest first.
    pub async fn deliveries(&self) -> Result<Vec<DeliveryDocument>, LedgerError> {
        self.ask(|transaction, _| context_table::deliveries(transaction)).await
    }

    /// Fragments sent to threads, in the order in which they were sent.
    pub async fn fragments(&self) -> Result<Vec<FragmentDocument>, LedgerError> {
        self.ask(|transaction, _| context_table::fragments(transaction)).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        ask: impl Fn(&Transaction<'_>, &RunIds) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let (question, answer) = Question::new(ask);
        self.queue(Job::Question(question))?;
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Queues a job whose caller waits for its result.
    fn queue(&self, job: Job) -> Result<(), LedgerError> {
        self.0.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => LedgerError::Unavailable("its queue is full".to_owned()),
            TrySendError::Disconnected(_) => ended(),
        })
    }

    /// Reserves event numbers, so that they are never issued again; waits for the commit, at most `wait_max`.
    ///
    /// # Errors
    ///
    /// [`LedgerError`]; the caller must not assume that any number is reserved.
    pub fn reserve_seq(&self, wish: SeqWish, wait_max: Duration) -> Result<SeqMark, LedgerError> {
        let (reply, answer) = sync_channel(1);
        let reserve = move |transaction: &Transaction<'_>, run: &RunIds| {
            witness::reserve_seq(transaction, &run.session_id, &wish)
        };
        self.queue(Job::Question(Question::replying(reserve, move |reserved| drop(reply.send(reserved)))))?;
        let late = |_| LedgerError::Unavailable("it did not answer in time".to_owned());
        answer.recv_timeout(wait_max).map_err(late)?
    }

    /// Starts another run of the server: open requests of the previous run become orphaned, and waiting context is loaded
    /// again. False if the queue is full.
    #[must_use]
    pub fn begin_run(&self, generation: String) -> bool {
        self.0.try_send(Job::BeginRun(generation)).is_ok()
    }

    /// Waits until all queued entries are committed, and returns whether they are within `wait_max`.
    #[must_use]
    pub fn settles_within(&self, wait_max: Duration) -> bool {
        let (done, settled) = sync_channel(1);
        let question = Question::replying(
            |_, _| Ok(()),
            move |result| {
                let _ = done.try_send(result.is_ok());
            },
        );
        self.queue(Job::Question(question)).is_ok() && settled.recv_timeout(wait_max).unwrap_or(false)
    }

    /// Waits until all queued entries are committed, at most `wait_max`. The next start commits the rest.
    pub fn finish(&self, wait_max: Duration) {
        let (done, finished) = sync_channel(1);
        if self.0.try_send(Job::Finish(done)).is_ok() && finished.recv_timeout(wait_max).is_err() {
            tracing::warn!("the ledger did not commit all entries in time");
        }
    }
}

fn ended() -> LedgerError {
    LedgerError::Unavailable("its thread has ended".to_owned())
}

// Jobs of the ledger's thread, and their results.

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

/// A question to the ledger. Its answer is sent after the commit, which may fail although the question was answered.
pub(super) struct Question(Box<dyn FnMut(QuestionStage<'_>) -> rusqlite::Result<()> + Send>);

/// What happens to a question: it is asked, and then answered.
pub(super) enum QuestionStage<'a> {
    Asked(&'a Transaction<'a>, &'a RunIds),
    Committed,
    Failed(&'a LedgerError),
}

impl Question {
    fn new<T: Send + 'static>(
        ask: impl Fn(&Transaction<'_>, &RunIds) -> rusqlite::Result<T> + Send + 'static,
    ) -> (Question, oneshot::Receiver<Result<T, LedgerError>>) {
        let (reply, answer) = oneshot::channel();
        // The caller may have stopped waiting.
        (Question::replying(ask, move |result| drop(reply.send(result))), answer)
    }

    fn replying<T: Send + 'static>(
        ask: impl Fn(&Transaction<'_>, &RunIds) -> rusqlite::Result<T> + Send + 'static,
        reply: impl FnOnce(Result<T, LedgerError>) + Send + 'static,
    ) -> Question {
        let (mut value, mut reply) = (None, Some(reply));
        Question(Box::new(move |stage| {
            let result = match stage {
                QuestionStage::Asked(transaction, run) => {
                    value = Some(ask(transaction, run)?);
                    return Ok(());
                }
                QuestionStage::Committed => value.take().map(Ok),
                QuestionStage::Failed(why) => Some(Err(why.clone())),
            };
            if let (Some(result), Some(reply)) = (result, reply.take()) {
                reply(result);
            }
            Ok(())
        }))
    }

    pub(super) fn ask(&mut self, transaction: &Transaction<'_>, run: &RunIds) -> rusqlite::Result<()> {
        (self.0)(QuestionStage::Asked(transaction, run))
    }

    pub(super) fn answer(mut self, done: Result<(), &LedgerError>) {
        let _ = (self.0)(done.map_or_else(QuestionStage::Failed, |()| QuestionStage::Committed));
    }
}

/// A job of the ledger's thread.
pub(super) enum Job {
    Order(Order),
    Question(Question),
    Push(Vec<NewCommand>, Reply<usize>),
    Clear(WhichCommands, Reply<usize>),
    BeginRun(String),
    Finish(SyncSender<()>),
}

/// How often each rule matched in the session of this folder since that time. Changes nothing.
///
/// # Errors
///
/// [`LedgerError::Unavailable`].
pub fn rule_uses(session_dir: &Path, is_live: bool, since: &str) -> Result<Vec<RuleUse>, LedgerError> {
    let uses = read_only(session_dir, is_live, |connection| request_table::rule_uses(connection, since))?;
    Ok(uses.unwrap_or_default())
}

/// The questions about a budget that were answered since a time, and their answers. Changes nothing.
///
/// # Errors
///
/// [`LedgerError::Unavailable`].
pub fn budget_answers(session_dir: &Path, is_live: bool, since: &str) -> Result<Vec<(String, String)>, LedgerError> {
    let answers = read_only(session_dir, is_live, |connection| request_table::budget_answers(connection, since))?;
    Ok(answers.unwrap_or_default())
}

/// Passes the requests of the session of this folder since a time to `take`, oldest first. Changes nothing.
///
/// # Errors
///
/// [`LedgerError::Unavailable`].
pub fn past_requests(
    session_dir: &Path,
    is_live: bool,
    since: &str,
    take: impl FnMut(PastRow),
) -> Result<(), LedgerError> {
    read_only(session_dir, is_live, |connection| request_table::past(connection, since, take)).map(drop)
}

/// The requests about items of the session of this folder that `is_meant` by their thread and their own id, oldest first, without what
/// they asked. Changes nothing.
///
/// # Errors
///
/// [`LedgerError::Unavailable`].
pub fn requests_of_items(
    session_dir: &Path,
    is_live: bool,
    is_meant: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Request>, LedgerError> {
    let found = read_only(session_dir, is_live, |connection| request_table::of_items(connection, is_meant))?;
    Ok(found.unwrap_or_default())
}

/// Reads the ledger of a folder; `None` if it has no ledger.
fn read_only<T>(
    session_dir: &Path,
    is_live: bool,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<Option<T>, LedgerError> {
    let life = if is_live { Life::Live } else { Life::Stopped };
    let path = session_dir.join(LEDGER_FILE);
    let opened = database::open_read_only(&path, life, BUSY_WAIT_MAX);
    let unavailable = |error: DatabaseError| LedgerError::Unavailable(error.to_string());
    let Some(connection) = opened.map_err(unavailable)? else { return Ok(None) };
    read(&connection).map(Some).map_err(|source| unavailable(DatabaseError::Sqlite { path, source }))
}

// The ledger of a session in which no relay runs.

/// The longest wait for another process's lock.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Direct access to the ledger of a session without a relay.
#[derive(Debug)]
pub struct OfflineLedger {
    connection: Connection,
    path: PathBuf,
    /// Dropped last.
    sum: RenewedSum,
}

/// Adds a checksum once the file is closed.
#[derive(Debug)]
struct RenewedSum {
    session_dir: PathBuf,
    /// The file has differed from its checksum, so that a new one would say that it is right.
    is_damaged: bool,
}

impl Drop for RenewedSum {
    fn drop(&mut self) {
        if !self.is_damaged {
            renew_sum(&self.session_dir, LEDGER_FILE);
        }
    }
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
        Ok(OfflineLedger {
            connection,
            path,
            sum: RenewedSum { session_dir: session_dir.to_owned(), is_damaged: false },
        })
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
    pub fn requests(&mut self, which: WhichRequests) -> Result<Vec<Request>, LedgerError> {
        self.within(|transaction| request_table::rows(transaction, which))
    }

    /// The runs that have open requests. If nothing holds the session, these runs are over: see [`OfflineLedger::orphan`].
    pub fn open_runs(&self) -> Result<Vec<String>, LedgerError> {
        request_table::open_runs(&self.connection).map_err(|source| self.unavailable(source))
    }

    /// Marks the open requests of `runs` as orphaned. The caller knows that these runs are over, even if another relay
    /// holds the session by now.
    pub fn orphan(&mut self, runs: &[String]) -> Result<(), LedgerError> {
        let dir = &self.sum.session_dir;
        let compared = Sums::read(dir).and_then(|sums| sums.compare(dir, LEDGER_FILE, &|_| {}));
        self.sum.is_damaged = matches!(compared, Ok(Compared::Differs));
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.within(|transaction| {
            request_table::orphan_runs(transaction, runs, since_epoch.as_micros() as u64).map(|_| ())
        })
    }

    /// Marks all open requests as orphaned, because the ledger was restored from a backup that is complete up to this time. Returns
    /// how many there were.
    pub fn orphan_restored(&mut self, complete_to: &str) -> Result<usize, LedgerError> {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.within(|transaction| {
            request_table::orphan_restored(transaction, complete_to, since_epoch.as_micros() as u64)
        })
    }

    /// Closes the ledger so that its file alone is complete.
    pub fn close(self) {
        database::empty_log(&self.connection);
    }

    /// See [`super::Ledger::request`].
    pub fn request(&mut self, request_id: &str) -> Result<Option<RequestDocument>, LedgerError> {
        self.within(|transaction| kept_request(transaction, request_id))
    }

    /// See [`super::Ledger::deliveries`].
    pub fn deliveries(&mut self) -> Result<Vec<DeliveryDocument>, LedgerError> {
        self.within(context_table::deliveries)
    }

    /// See [`super::Ledger::fragments`].
    pub fn fragments(&mut self) -> Result<Vec<FragmentDocument>, LedgerError> {
        self.within(context_table::fragments)
    }

    /// See [`super::Ledger::reserve_seq`].
    pub fn reserve_seq(&mut self, session_id: &str, wish: &SeqWish) -> Result<SeqMark, LedgerError> {
        self.within(|transaction| witness::reserve_seq(transaction, session_id, wish))
    }

    fn within<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, LedgerError> {
        database::at_once(&mut self.connection, work).map_err(|source| self.unavailable(source))
    }

    fn unavailable(&self, source: rusqlite::Error) -> LedgerError {
        LedgerError::Unavailable(DatabaseError::Sqlite { path: self.path.clone(), source }.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::engine::{Carrier, Command, ContextChange, Delivery, LedgerEntry, Outcome, Preview, Provenance, RowId};
    use crate::store::{Keep, OfflineLedger};

    fn command(cmd: &str) -> NewCommand {
        let preview = Preview::default();
        let command = Command {
            cmd: cmd.to_owned(),
            exit_code: None,
            cwd: None,
            block_id: None,
            ts: 1,
            preview,
            shell_id: None,
            provenance: Provenance::default(),
        };
        NewCommand { thread_id: None, command, keep: Keep::Always }
    }

    struct Run {
        ledger: Ledger,
        changes: Receiver<ContextChange>,
        faults: Receiver<String>,
        runtime: tokio::runtime::Runtime,
    }

    impl Run {
        fn start(dir: &Path, generation: &str) -> Run {
            let (notify, changes) = sync_channel(1_000);
            let (say, faults) = sync_channel(1_000);
            let notify = move |input| {
                if let Input::Context(change) = input {
                    notify.try_send(change).expect("BUG: a test takes every change");
                }
            };
            let say = move |what: &str| say.try_send(what.to_owned()).expect("BUG: a test takes every fault");
            let ledger =
                Ledger::start(dir, ("s".to_owned(), generation.to_owned(), generation.to_owned()), notify, say)
                    .expect("a thread");
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            Run { ledger, changes, faults, runtime }
        }

        fn keep(&self, entry: LedgerEntry) -> bool {
            self.ledger.hand(Order::Keep(entry)).is_ok()
        }

        fn push(&self, cmds: &[&str]) -> Result<usize, LedgerError> {
            self.runtime.block_on(self.ledger.push_context(cmds.iter().map(|cmd| command(cmd)).collect()))
        }

        fn waiting(&self) -> Vec<String> {
            let waiting = self.runtime.block_on(self.ledger.waiting_context()).expect("it can be read");
            waiting.into_iter().map(|waiting| waiting.command.cmd).collect()
        }

        /// The commands that the relay has received so far.
        fn sent(&self) -> Vec<(RowId, String)> {
            let added = self.changes.try_iter().filter_map(|change| match change {
                ContextChange::Loaded(added) | ContextChange::Added(added) => Some(added),
                ContextChange::Cleared(_) | ContextChange::Forgotten { .. } | ContextChange::Beginnings(_) => None,
            });
            added.flatten().map(|waiting| (waiting.row, waiting.command.cmd)).collect()
        }
    }

    fn cmds(sent: &[(RowId, String)]) -> Vec<&str> {
        sent.iter().map(|(_, cmd)| &**cmd).collect()
    }

    #[test]
    fn pushed_context_survives_runs_until_delivered() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let run = Run::start(dir.path(), "g1");
        assert_eq!(run.push(&["a", "b"]), Ok(2));
        assert_eq!(cmds(&run.sent()), ["a", "b"]);
        run.ledger.finish(Duration::from_secs(9));
        let run = Run::start(dir.path(), "g2");
        assert_eq!(run.push(&["c"]), Ok(3));
        let sent = run.sent();
        assert_eq!(cmds(&sent), ["a", "b", "c"]);
        let entry =
            LedgerEntry::Settled { delivery: 1, outcome: Outcome::Delivered, delete: vec![sent[0].0, sent[2].0] };
        assert!(run.keep(entry));
        assert_eq!(run.waiting(), ["b"]);
    }

    #[test]
    fn offline_push_reaches_the_next_run() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let mut tool = OfflineLedger::open(dir.path()).expect("it can be made");
        assert_eq!(tool.push_context(vec![command("a")]), Ok(1));
        let run = Run::start(dir.path(), "g1");
        assert_eq!(tool.push_context(vec![command("b")]), Ok(2));
        assert_eq!(run.push(&[]), Ok(2));
        assert_eq!(cmds(&run.sent()), ["a", "b"]);
        tool.clear_context(WhichCommands::All).expect("it can be cleared");
        assert_eq!(tool.waiting_context(), Ok(Vec::new()));
    }

    #[test]
    fn unknown_thread_is_rejected() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let run = Run::start(dir.path(), "g1");
        let push = |thread: &str| {
            let pushed = NewCommand { thread_id: Some(thread.to_owned()), ..command("a") };
            run.runtime.block_on(run.ledger.push_context(vec![command("x"), pushed]))
        };
        assert_eq!(push("t"), Err(LedgerError::ThreadNotFound("t".to_owned())));
        assert_eq!(run.waiting(), [""; 0]);
        assert!(run.keep(LedgerEntry::ThreadSeen { thread_id: "t".to_owned() }));
        assert_eq!(push("t"), Ok(2));
    }

    #[test]
    fn oldest_waiting_command_is_dropped_and_counted() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let run = Run::start(dir.path(), "g1");
        let many: Vec<String> = (0..203).map(|number| number.to_string()).collect();
        assert_eq!(run.push(&many.iter().map(String::as_str).collect::<Vec<_>>()), Ok(200));
        let waiting = run.runtime.block_on(run.ledger.waiting_context()).expect("it can be read");
        assert_eq!((&*waiting[0].command.cmd, waiting[0].forgotten_before), ("3", 3));
    }

    #[test]
    fn last_deliveries_are_kept_with_their_outcomes() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let send = |run: &Run, number| {
            let (thread_id, text) = ("t".to_owned(), format!("text {number}"));
            let delivery = Delivery { number, at_us: 1_000, thread_id, carrier: Carrier::Envelope, text };
            assert!(run.keep(LedgerEntry::Sent(Box::new(delivery))));
        };
        let sent = |run: &Run| run.runtime.block_on(run.ledger.deliveries()).expect("they can be read");
        let run = Run::start(dir.path(), "g1");
        (1..=22).for_each(|number| send(&run, number));
        let settled = LedgerEntry::Settled { delivery: 22, outcome: Outcome::Refused, delete: Vec::new() };
        assert!(run.keep(settled));
        assert!(run.keep(LedgerEntry::TurnNamed { delivery: 21, turn_id: "u".to_owned() }));
        let kept = sent(&run);
        assert_eq!((kept.len(), &*kept[0].text), (20, "text 3"));
        assert_eq!((&*kept[19].outcome, kept[18].turn_id.as_deref()), ("refused", Some("u")));
        assert_eq!((&*kept[0].at, &*kept[0].outcome), ("1970-01-01T00:00:00.001Z", "sent"));
        run.ledger.finish(Duration::from_secs(9));
        let run = Run::start(dir.path(), "g2");
        assert_eq!((&*sent(&run)[0].outcome, &*sent(&run)[19].outcome), ("unknown", "refused"));
    }

    #[test]
    fn unusable_ledger_reports_why_and_is_retried() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join(LEDGER_FILE);
        std::fs::create_dir(&path).expect("a folder in its place");
        let run = Run::start(dir.path(), "g1");
        assert!(run.keep(LedgerEntry::ThreadSeen { thread_id: "t".to_owned() }));
        let error = run.push(&["a"]).expect_err("it cannot be").to_string();
        assert!(error.contains("ledger.db is a folder, not a regular file"), "{error}");
        assert_eq!(run.faults.try_iter().count(), 1);
        std::fs::remove_dir(&path).expect("it is empty");
        let pushed = NewCommand { thread_id: Some("t".to_owned()), ..command("a") };
        assert_eq!(run.runtime.block_on(run.ledger.push_context(vec![pushed])), Ok(1));
    }

    #[test]
    fn corrupt_ledger_is_replaced_without_reusing_row_ids() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::write(dir.path().join(LEDGER_FILE), "broken ".repeat(99)).expect("write");
        let run = Run::start(dir.path(), "g1");
        assert_eq!(run.push(&["a"]), Ok(1));
        assert!(run.faults.try_iter().next().is_some_and(|fault| fault.contains("was corrupt")));
    }
}
