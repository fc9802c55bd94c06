//! The index's thread: reads, folds, commits, and reports.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{broadcast, watch};

use super::database::{Database, Fate, FoldedAgain, peek};
use super::epochs::{Numbers, digest};
use super::follow::{Batch, Follower, Patience, Scope, Unindexed, read};
use super::maintenance::prune;
use super::model::{Pruned, Reached, check_next};
use super::pace::{LongLines, STAND_BACK, Storm};
use super::search::fill_search;
use super::shared::{IndexNotice, IndexSettings, IndexShared, IndexState, LiveEvent, Marks, Notify, Woken};
use super::sums::SumsOfSession;
use super::transcripts::{TranscriptFiles, Transcripts};
use crate::config::RetentionBounds;
use crate::history::{EntryRows, SessionActivity};
use crate::invariants::{self, holds};
use crate::journal::Position;
use crate::journal::wall_clock::{Clock, SYSTEM};
use crate::os::limits::lower_thread_priority;
use crate::os::{allocator, clocks};
use crate::store::{IndexLock, WitnessFile, empty_log, expired_sessions, remove_expired, remove_leftovers};

/// The shortest pause between two reads.
const READ_PAUSE_MIN: Duration = Duration::from_millis(20);

/// The pause between two reads while records arrive and no reader waits.
const READ_PAUSE_ACTIVE: Duration = Duration::from_millis(40);

/// The longest pause between two reads of an idle journal.
const READ_PAUSE_MAX: Duration = Duration::from_millis(250);

/// After this long without a new record, the thread waits until the journal grows.
const REST_AFTER: Duration = Duration::from_secs(1);

/// The interval between two checks of the database's file.
const STAMP_EVERY: Duration = Duration::from_secs(1);

/// The delay of the first pruning: a session may consist of many short runs.
pub(super) const PRUNE_FIRST_AFTER: Duration = Duration::from_secs(2);

/// The interval at which one expired session is deleted.
pub(super) const SESSIONS_EVERY: Duration = Duration::from_secs(300);

/// The pause before an unusable database is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// How long a relay's index waits for a process that rewrites the session before it reports that.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// The stack of the thread, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// The thread's niceness: it yields to the relay, and still gets a quarter of a busy core.
const NICE: i32 = 5;

/// A handle to the index's thread.
#[derive(Debug, Clone)]
pub struct Index(Arc<IndexShared>);

impl Index {
    /// Starts the thread.
    pub fn start(settings: IndexSettings, marks: Marks, notify: Notify) -> io::Result<Index> {
        let shared = Arc::new(IndexShared::default());
        let indexer = Indexer::new(settings, marks, notify, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("index".to_owned()).stack_size(STACK_BYTES);
        let broken = invariants::shared();
        thread.spawn(move || {
            broken.join();
            indexer.run();
        })?;
        Ok(Index(shared))
    }

    /// Indexes the journal of a session without a relay, up to `until` or to its end. The caller holds the [`IndexLock`]. A
    /// relay that starts meanwhile indexes its own records. If the result stops before the end, [`IndexState::fault`] says
    /// why.
    #[must_use]
    pub fn catch_up(
        settings: IndexSettings,
        until: Option<Position>,
        marks: Marks,
        notify: Notify,
    ) -> (IndexState, Arc<SessionActivity>) {
        let shared = Arc::new(IndexShared::default());
        let mut indexer = Indexer::new(settings, marks, notify, Arc::clone(&shared));
        indexer.scope = Scope { patience: Patience::None, until };
        indexer.lock = Lock::OfOurCaller;
        while indexer.step() == Progress::More {}
        // A reader of ours that stays open would keep the log, and a checksum is of the file alone.
        indexer.indexed.iter_mut().for_each(|indexed| empty_log(indexed.database.connection()));
        let state = shared.state.borrow().clone();
        (state, shared.activity())
    }

    /// The progress of the index, to read or await.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<IndexState> {
        self.0.state.subscribe()
    }

    /// Events that arrive while nothing can be indexed.
    #[must_use]
    pub fn live(&self) -> broadcast::Receiver<Arc<LiveEvent>> {
        self.0.live.subscribe()
    }

    /// The current activity of the session and its threads, as far as the journal was read.
    #[must_use]
    pub fn activity(&self) -> Arc<SessionActivity> {
        self.0.activity()
    }

    /// Rebuilds the database if it is still the one with the number `opened`: a reader has found it corrupt.
    pub fn rebuild(&self, opened: u64) {
        self.0.broken(opened);
    }

    /// The relay has appended to the journal: `bytes` in this run.
    pub fn journal_grew(&self, bytes: u64) {
        self.0.journal_grew(bytes);
    }

    /// Whether it waits for the journal to grow.
    #[cfg(test)]
    pub(super) fn rests(&self) -> bool {
        self.0.rests()
    }

    /// Makes it read the journal now.
    pub fn wake(&self) {
        self.0.ask();
    }

    /// Stops the thread after its present step; the next start indexes the rest.
    pub fn end(&self) {
        self.0.end();
    }

    /// Waits until the thread has stopped and emptied the database's log, at most `wait_max`.
    pub fn await_end(&self, wait_max: Duration) {
        if !self.0.await_end(wait_max) {
            tracing::warn!("the index did not stop in time");
        }
    }

    /// Replaces the retention bounds.
    pub fn retain(&self, bounds: RetentionBounds) {
        self.0.retain(bounds);
    }
}

/// The result of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// There may be more.
    More,
    /// All available records were indexed.
    All,
    /// There was nothing new.
    Nothing,
    /// Nothing can be indexed now.
    Failed,
}

pub(super) enum Failure {
    /// The history or the journal cannot be used.
    History(String),
    /// No numbers can be reserved.
    Ledger(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::History(why)
    }
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Committed {
    Yes,
    /// The database was corrupt, and a new one is being built.
    Rebuilding,
}

pub(super) struct Indexer {
    pub(super) settings: IndexSettings,
    pub(super) marks: Marks,
    pub(super) notify: Notify,
    pub(super) shared: Arc<IndexShared>,
    pub(super) scope: Scope,
    pub(super) indexed: Option<Indexed>,
    /// Until it is stored.
    pub(super) folded_again: Option<FoldedAgain>,
    /// Reads the journal while nothing can be indexed.
    pub(super) unindexed: Option<Unindexed>,
    /// When to retry.
    pub(super) retry_at: Option<Instant>,
    pub(super) fault_told: bool,
    pub(super) prune_at: Instant,
    pub(super) sessions_at: Instant,
    pub(super) sums: SumsOfSession,
    pub(super) lock: Lock,
    pub(super) began: Instant,
    pub(super) transcripts: Option<Transcripts>,
    pub(super) transcript_fault_reported: bool,
    /// Outside the session's folder; `None` if that is not below a home.
    pub(super) witness: Option<WitnessFile>,
    pub(super) witness_fault_told: bool,
    pub(super) boot: Option<String>,
    pub(super) clock: &'static Clock,
}

/// The state of the index lock.
pub(super) enum Lock {
    NotTaken,
    Held(#[expect(dead_code, reason = "it is held until it is dropped")] IndexLock),
    /// Our caller holds it.
    OfOurCaller,
}

/// The open database and the position in the journal.
pub(super) struct Indexed {
    pub(super) database: Database,
    pub(super) reached: Reached,
    pub(super) follower: Follower,
    pub(super) numbers: Numbers,
    pub(super) stamp_at: Instant,
    pub(super) read_at: Instant,
}

impl Indexer {
    fn new(settings: IndexSettings, marks: Marks, notify: Notify, shared: Arc<IndexShared>) -> Indexer {
        let transcripts = match settings.transcript_files {
            TranscriptFiles::Kept => Some(Transcripts::new(&settings.session_dir)),
            TranscriptFiles::None => None,
        };
        let witness = WitnessFile::of_session(&settings.session_dir);
        Indexer {
            settings,
            marks,
            notify,
            shared,
            scope: Scope { patience: Patience::Some, until: None },
            indexed: None,
            folded_again: None,
            unindexed: None,
            retry_at: None,
            fault_told: false,
            prune_at: Instant::now() + PRUNE_FIRST_AFTER,
            sessions_at: Instant::now() + SESSIONS_EVERY,
            sums: SumsOfSession::new(Instant::now()),
            lock: Lock::NotTaken,
            began: Instant::now(),
            transcripts,
            transcript_fault_reported: false,
            witness,
            witness_fault_told: false,
            boot: clocks::boot_id(),
            clock: &SYSTEM,
        }
    }

    fn run(mut self) {
        lower_priority();
        let mut pause = READ_PAUSE_MIN;
        let mut storm = Storm { measured_at: Instant::now(), appended_bytes: 0, stood_back: Duration::ZERO };
        let mut long_lines = LongLines::new(Instant::now());
        let mut changed_at = Instant::now();
        loop {
            // The index gives back its own memory after each step. A waiting reader does not wait for others.
            while !self.shared.has_readers() && long_lines.pass(Instant::now(), allocator::large_bytes()) {
                match self.shared.wait(STAND_BACK) {
                    Woken::Ends => return self.finish(),
                    Woken::Asked => break,
                    Woken::Due => {}
                }
            }
            let progress = self.step();
            pause = match progress {
                Progress::More => storm.stand_back(self.shared.appended_bytes()),
                Progress::All => READ_PAUSE_ACTIVE,
                Progress::Nothing | Progress::Failed => (pause * 2).clamp(READ_PAUSE_MIN, READ_PAUSE_MAX),
            };
            // A waiting reader should get new events soon.
            if self.shared.has_readers() {
                pause = pause.min(READ_PAUSE_MIN);
            }
            if progress != Progress::Nothing {
                changed_at = Instant::now();
                self.shared.end_rest();
            } else if changed_at.elapsed() >= REST_AFTER && self.may_rest() {
                let rested = self.shared.begin_rest();
                pause = if rested { self.until_maintenance() } else { Duration::ZERO };
            }
            if self.shared.wait(pause) == Woken::Ends {
                return self.finish();
            }
        }
    }

    fn finish(&mut self) {
        if let Some(mut indexed) = self.indexed.take() {
            empty_log(indexed.database.connection());
            drop(indexed);
            self.add_last_sums();
        }
        self.shared.set_ended();
    }

    /// Whether only new records, a reader or the next maintenance can give it work.
    fn may_rest(&self) -> bool {
        let is_settled = |indexed: &Indexed| !indexed.reached.fold.awaits_silence();
        self.unindexed.is_none() && self.retry_at.is_none() && self.indexed.as_ref().is_some_and(is_settled)
    }

    fn until_maintenance(&self) -> Duration {
        let sessions_at = self.settings.home.as_ref().map(|_| self.sessions_at);
        let due = sessions_at.map_or(self.prune_at, |at| at.min(self.prune_at));
        due.saturating_duration_since(Instant::now()).max(READ_PAUSE_MAX)
    }

    fn step(&mut self) -> Progress {
        match self.index() {
            Ok(looked) => looked,
            Err(why) => {
                self.failed(why);
                self.read_unindexed();
                Progress::Failed
            }
        }
    }

    /// Indexes the available records, up to a bound.
    fn index(&mut self) -> Result<Progress, Failure> {
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            self.read_unindexed();
            return Ok(Progress::Failed);
        }
        if !self.is_ours()? {
            return Ok(Progress::Nothing);
        }
        if self.indexed.is_none() {
            self.open()?;
        }
        self.check_file()?;
        let Some(indexed) = &mut self.indexed else { return Ok(Progress::Failed) };
        let follower = &mut indexed.follower;
        let batch = read(&indexed.reached.fold, follower, &mut indexed.read_at, &self.scope)
            .map_err(|error| format!("read {}: {error}", self.settings.journal_dir.display()))?;
        let Some(batch) = batch else {
            if self.is_disproved() {
                self.begin_other_epoch()?;
                return Ok(Progress::More);
            }
            self.recovered();
            self.remove_session();
            let pruned = self.prune()?;
            let progress = if pruned == Progress::Nothing { self.fill_search()? } else { pruned };
            return Ok(if progress == Progress::Nothing { self.add_sum() } else { progress });
        };
        let is_all = batch.is_all;
        if self.commit(batch)? == Committed::Yes {
            // Prunes here too, in case records never stop arriving.
            self.prune()?;
            if is_all && self.is_disproved() {
                self.begin_other_epoch()?;
            } else if is_all {
                self.recovered();
                return Ok(Progress::All);
            }
        }
        // A rebuild takes long; meanwhile readers get new events live.
        if self.unindexed.is_some() {
            self.read_unindexed();
        }
        Ok(Progress::More)
    }

    /// Takes the index lock. Another holder releases it soon, and meanwhile records wait in the journal.
    fn is_ours(&mut self) -> Result<bool, String> {
        if matches!(self.lock, Lock::NotTaken) {
            let dir = &self.settings.session_dir;
            let taken =
                IndexLock::try_take(dir).map_err(|error| format!("lock the index in {}: {error}", dir.display()))?;
            let Some(lock) = taken else {
                if self.began.elapsed() < LOCK_WAIT_MAX {
                    return Ok(false);
                }
                return Err(format!(
                    "lock the index in {}: another process has held it for {LOCK_WAIT_MAX:?}",
                    dir.display()
                ));
            };
            self.lock = Lock::Held(lock);
        }
        Ok(true)
    }

    /// Checks from time to time, and at once if a reader doubts it, that the database's file is the one that was opened.
    fn check_file(&mut self) -> Result<(), Failure> {
        let Some(indexed) = &mut self.indexed else { return Ok(()) };
        if indexed.stamp_at.elapsed() < STAMP_EVERY && !self.shared.is_broken() {
            return Ok(());
        }
        indexed.stamp_at = Instant::now();
        let fate = indexed.database.fate();
        if fate == Fate::InPlace && !self.shared.is_broken() {
            return Ok(());
        }
        self.rebuild(fate)
    }

    /// Replaces a lost or corrupt database. Events that were sent live before are not sent again.
    fn rebuild(&mut self, fate: Fate) -> Result<(), Failure> {
        let Some(indexed) = self.indexed.take() else { return Ok(()) };
        self.unindexed.get_or_insert_with(|| Unindexed::new(&self.settings.journal_dir, Some(&indexed.reached)));
        match fate {
            Fate::Gone => {
                tracing::warn!("the history's file is gone; it is built again");
                indexed.database.leave().map_err(|error| error.to_string())?;
            }
            Fate::InPlace | Fate::Broken => self.set_aside(indexed.database)?,
        }
        self.open()
    }

    pub(super) fn set_aside(&mut self, database: Database) -> Result<(), String> {
        let kept = database.set_aside().map_err(|error| error.to_string())?;
        (self.notify)(IndexNotice::SetAside(kept));
        Ok(())
    }

    fn commit(&mut self, batch: Batch) -> Result<Committed, Failure> {
        self.learn_first_generation();
        let Some(Indexed { reached, follower, numbers, .. }) = &self.indexed else { return Ok(Committed::Rebuilding) };
        let before = reached.seq;
        let seq = before + batch.rows.events.len() as u64;
        let mut digests = reached.digest;
        for (event, seq) in batch.rows.events.iter().zip(before + 1..) {
            digests = digests.map(|before| digest(before, &event.key.0));
            let expected = numbers.expected.as_ref().filter(|expected| expected.seq == seq);
            if expected.is_some_and(|expected| !expected.is_met_by(Some(&event.key.0), digests)) {
                self.begin_other_epoch()?;
                return Ok(Committed::Rebuilding);
            }
        }
        let (position, reserved) = (follower.position().cloned(), reached.reserved);
        let next = Reached { fold: batch.fold, position, seq, reserved, digest: digests };
        let last_key = batch.rows.events.last().map(|event| event.key.0.clone()).or(numbers.last_key.clone());
        let last_rows = numbers.last_rows;
        let added = [batch.rows.tools.len() as u64, batch.rows.turns.len() as u64];
        let last_rows = [last_rows[0] + added[0], last_rows[1] + added[1]];
        self.write_witness(&next, last_key.as_ref(), last_rows[0].max(last_rows[1]));
        let next = Reached { reserved: self.reserve(seq)?, ..next };
        if let Some(Indexed { reached, numbers, .. }) = &self.indexed {
            check_next(&batch.rows, reached, &next);
            holds!("index.row-numbers-never-fall", (0..2).all(|at| last_rows[at] >= numbers.last_rows[at]));
        }
        let Some(Indexed { database, reached, numbers, .. }) = &mut self.indexed else {
            return Ok(Committed::Rebuilding);
        };
        match database.commit(&batch.rows, before, &next) {
            Ok(()) => *reached = next,
            Err(error) if error.is_broken() => {
                self.rebuild(Fate::Broken)?;
                return Ok(Committed::Rebuilding);
            }
            Err(error) => return Err(error.to_string().into()),
        }
        numbers.expected.take_if(|expected| expected.seq <= seq);
        numbers.last_key = last_key;
        numbers.last_rows = last_rows;
        let begun = reached.fold.open_since().or(reached.position.as_ref());
        begun.into_iter().for_each(|at| self.settings.indexed_to.reached(&at.segment));
        if self.unindexed.is_none() {
            self.shared.set_activity(reached.fold.activity());
        }
        self.shared.state.send_modify(|state| {
            state.position = reached.position.clone();
            state.last_seq = reached.seq;
        });
        self.complete_transcripts(Some(&batch.rows.entries));
        Ok(Committed::Yes)
    }

    /// Records that nothing can be indexed now.
    fn failed(&mut self, failure: Failure) {
        let (why, notice) = match failure {
            Failure::History(why) => (why.clone(), IndexNotice::Failed(why)),
            Failure::Ledger(why) => (why.clone(), IndexNotice::AwaitsLedger(why)),
        };
        self.retry_at = Some(Instant::now() + RETRY_PAUSE);
        self.start_unindexed();
        // Uncommitted records will be read again.
        self.indexed = None;
        self.shared.state.send_modify(|state| {
            state.fault = Some(why);
            state.failed_commits += 1;
        });
        if !std::mem::replace(&mut self.fault_told, true) {
            (self.notify)(notice);
        }
    }

    /// Everything recorded is indexed.
    fn recovered(&mut self) {
        self.retry_at = None;
        self.unindexed = None;
        if let Some(Indexed { reached, .. }) = &self.indexed {
            self.shared.set_activity(reached.fold.activity());
        }
        if std::mem::take(&mut self.fault_told) {
            self.shared.state.send_modify(|state| state.fault = None);
            (self.notify)(IndexNotice::Recovered);
        }
    }

    /// Starts to read the journal without indexing it, from the checkpoint if that is known.
    fn start_unindexed(&mut self) {
        let Indexer { settings, indexed, folded_again, shared, .. } = self;
        self.unindexed.get_or_insert_with(|| {
            if let Some(indexed) = indexed {
                return Unindexed::new(&settings.journal_dir, Some(&indexed.reached));
            }
            let reached = peek(&settings.history_path(), &settings.session_id, &settings.journal_dir, folded_again);
            if let Some(reached) = &reached {
                // Readers of the history have its numbered events already, and must not get them again without a number.
                shared.state.send_modify(|state| {
                    state.position = reached.position.clone();
                    state.last_seq = reached.seq;
                });
            }
            Unindexed::new(&settings.journal_dir, reached.as_ref())
        });
    }

    /// Reads records that cannot be indexed, and sends them live.
    fn read_unindexed(&mut self) {
        self.start_unindexed();
        let Some(unindexed) = &mut self.unindexed else { return };
        while let Ok(Some(batch)) = read(&unindexed.fold, &mut unindexed.follower, &mut unindexed.read_at, &self.scope)
        {
            let is_all = batch.is_all;
            unindexed.fold = batch.fold;
            for event in batch.rows.events {
                let live = LiveEvent::of(&self.settings.session_id, event);
                // There may be no receiver.
                let _ = self.shared.live.send(Arc::new(live));
            }
            if is_all {
                break;
            }
        }
        self.shared.set_activity(unindexed.fold.activity());
    }
}

/// Lowers this thread's priority, where threads have one.
fn lower_priority() {
    if let Err(error) = lower_thread_priority(NICE) {
        tracing::debug!(%error, "lower the index's priority");
    }
}

/// An index that a test steps by hand.
#[cfg(any(test, feature = "testing"))]
pub struct Stepped(Indexer);

#[cfg(any(test, feature = "testing"))]
impl Stepped {
    pub fn new(settings: IndexSettings, marks: Marks, notify: Notify) -> (Index, Stepped) {
        let shared = Arc::new(IndexShared::default());
        let mut indexer = Indexer::new(settings, marks, notify, Arc::clone(&shared));
        indexer.scope.patience = Patience::None;
        indexer.lock = Lock::OfOurCaller;
        (Index(shared), Stepped(indexer))
    }

    /// Takes one step without waiting for the retry pause.
    pub fn step(&mut self) {
        self.0.retry_at = None;
        self.0.step();
    }
}

/// The interval between two prunings; while rows are left over, batches follow each other at once.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

impl Indexer {
    /// Completes the transcript files of the threads in `touched`, or of all threads.
    pub(super) fn complete_transcripts(&mut self, touched: Option<&EntryRows>) {
        let (Some(transcripts), Some(indexed)) = (&mut self.transcripts, &mut self.indexed) else { return };
        let connection = indexed.database.connection();
        let completed = match touched {
            Some(entries) => transcripts.complete(connection, entries.iter().map(|entry| entry.thread_id)),
            None => transcripts.complete_all(connection),
        };
        if let Err(error) = completed
            && !std::mem::replace(&mut self.transcript_fault_reported, true)
        {
            (self.notify)(IndexNotice::TranscriptFailed(error.to_string()));
        }
    }

    /// From time to time, deletes one expired session.
    pub(super) fn remove_session(&mut self) {
        if Instant::now() < self.sessions_at {
            return;
        }
        self.sessions_at = Instant::now() + SESSIONS_EVERY;
        let (now, ages_count) = self.now();
        if !ages_count {
            return;
        }
        let Some(home) = &self.settings.home else { return };
        let (began, age_max) = (Instant::now(), self.retention().session_age_max);
        remove_leftovers(home);
        let found = expired_sessions(home, now, age_max).unwrap_or_default();
        // This relay's own session is held, so it is spared.
        let removed = found.iter().find(|session| match remove_expired(home, &session.id, now, age_max) {
            Ok(Ok(left)) => {
                if !left.is_empty() {
                    tracing::info!(session = %session.id, ?left, "left in its folder: codex-shim did not create it");
                }
                true
            }
            Ok(Err(_used)) => false,
            Err(error) => {
                tracing::warn!(%error, session = %session.id, "delete an expired session");
                false
            }
        });
        if let Some(session) = removed {
            tracing::info!(session = %session.id, bytes = session.bytes, "expired session deleted");
            let took_ms = began.elapsed().as_millis() as u64;
            let pruned = Pruned { sessions: 1, session_bytes: session.bytes, took_ms, ..Pruned::default() };
            self.shared.state.send_modify(|state| state.pruned.add(pruned));
        }
    }

    /// The current bounds.
    fn retention(&self) -> RetentionBounds {
        self.shared.retention().unwrap_or(self.settings.retention)
    }

    /// The time, and whether ages count then; tells the user of a clock that was set.
    fn now(&mut self) -> (SystemTime, bool) {
        let now = self.clock.now();
        if let Some(jump) = self.clock.untold_jump() {
            (self.notify)(IndexNotice::ClockJumped(jump));
        }
        now
    }

    /// Deletes one batch of rows beyond the bounds.
    pub(super) fn prune(&mut self) -> Result<Progress, Failure> {
        let mut retention = self.retention();
        if Instant::now() < self.prune_at {
            return Ok(Progress::Nothing);
        }
        let (now, ages_count) = self.now();
        let Some(indexed) = &mut self.indexed else { return Ok(Progress::Nothing) };
        if !ages_count {
            retention.age_max = Duration::MAX;
        }
        let now_us = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let pruned = prune(indexed.database.connection(), &retention, now_us);
        let pruned = pruned.map_err(|source| indexed.database.error(source).to_string())?;
        if pruned.rows() == 0 {
            self.prune_at = Instant::now() + PRUNE_EVERY;
            return Ok(Progress::Nothing);
        }
        self.shared.state.send_modify(|state| state.pruned.add(pruned));
        Ok(Progress::All)
    }

    /// Adds some of the entries that the search index lacks.
    fn fill_search(&mut self) -> Result<Progress, Failure> {
        let Some(indexed) = &mut self.indexed else { return Ok(Progress::Nothing) };
        let filled = fill_search(indexed.database.connection()).map_err(|source| indexed.database.error(source));
        match filled {
            Ok(0) => Ok(Progress::Nothing),
            Ok(_) => Ok(Progress::All),
            Err(error) if error.is_broken() => self.rebuild(Fate::Broken).map(|()| Progress::More),
            Err(error) => Err(error.to_string().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RetentionBounds;
    use crate::index::tests::{Lab, told};
    use crate::journal::IndexedTo;
    use crate::journal::wall_clock::SetByHand;
    use crate::store::{Place, Session};

    const HOUR: Duration = Duration::from_secs(3_600);
    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn each_step_deletes_one_expired_session() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let place = Place { cwd: "/a".to_owned(), codex_home: "/c".to_owned(), server: vec!["codex".to_owned()] };
        let open = |name: &str| {
            let name = name.parse().expect("BUG: a test names a session well");
            Session::open(home.path(), Some(&name), &place, uuid::Uuid::now_v7()).expect("BUG: the folder is ours")
        };
        let own = open("own");
        ["a", "b"].into_iter().for_each(|name| drop(open(name)));
        let retention = RetentionBounds {
            events_max: 1,
            tool_events_max: 1,
            turn_events_max: 1,
            age_max: Duration::from_secs(1),
            session_age_max: Duration::ZERO,
        };
        let settings = IndexSettings {
            session_id: own.id.clone(),
            session_dir: own.dir.clone(),
            journal_dir: own.journal_dir.clone(),
            retention,
            transcript_files: TranscriptFiles::None,
            home: Some(home.path().to_owned()),
            indexed_to: IndexedTo::default(),
        };
        let shared = Arc::new(IndexShared::default());
        let marks: Marks = Box::new(|_| Ok(crate::store::SeqMark::default()));
        let mut indexer = Indexer::new(settings, marks, Box::new(|_| {}), Arc::clone(&shared));
        let left = || std::fs::read_dir(home.path().join("sessions")).expect("a folder").count();
        let mut look = || {
            indexer.sessions_at = Instant::now();
            indexer.step();
            (left(), shared.state.borrow().pruned.sessions)
        };
        assert_eq!([look(), look(), look()], [(2, 1), (1, 2), (1, 2)]);
        assert!(own.dir.exists());
        indexer.step();
    }

    /// What is left: events of the indexed session, and sessions.
    type Left = (usize, usize);

    /// 40 days after the last event and the last use of another session, `sets` sets the clock.
    #[track_caller]
    fn check_clock(sets: impl FnOnce(&SetByHand), left_on_that_day: Left) {
        let lab = Lab::new();
        let place = Place { cwd: "/a".to_owned(), codex_home: "/c".to_owned(), server: vec!["codex".to_owned()] };
        let open = |name: &str| {
            let name = name.parse().expect("BUG: a test names a session well");
            Session::open(lab.home(), Some(&name), &place, uuid::Uuid::now_v7()).expect("BUG: the folder is ours")
        };
        let _own = open("s");
        drop(open("other"));
        let (clock, hands) = SetByHand::new();
        let now_us = clock.now().0.duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_micros() as u64;
        lab.append(1, 1, &[told(now_us, "one"), told(now_us, "two")]);

        let settings = IndexSettings { home: Some(lab.home().to_owned()), ..lab.settings() };
        let mut indexer = Indexer::new(settings, lab.marks(), lab.notify(), Arc::default());
        indexer.clock = clock;
        let mut look = || {
            while indexer.step() != Progress::Nothing {}
            (indexer.prune_at, indexer.sessions_at) = (Instant::now(), Instant::now());
            while indexer.step() != Progress::Nothing {}
            let sessions = std::fs::read_dir(lab.home().join("sessions")).expect("a folder").count();
            (lab.events().len(), sessions)
        };
        assert_eq!(look(), (2, 2));
        hands.pass(DAY * 40);
        sets(&hands);
        assert_eq!(look(), left_on_that_day);
        hands.pass(DAY - HOUR);
        assert_eq!(look(), left_on_that_day);
        hands.pass(HOUR);
        assert_eq!(look(), (0, 1));
    }

    #[test]
    fn clock_set_ahead_deletes_no_row_or_session_for_a_day() {
        check_clock(|hands| hands.set_ahead(DAY * 400), (2, 2));
        check_clock(|hands| hands.set_ahead(HOUR + Duration::from_secs(1)), (2, 2));
    }

    #[test]
    fn clock_set_back_deletes_no_row_or_session_for_a_day() {
        check_clock(|hands| hands.set_back(HOUR + Duration::from_secs(1)), (2, 2));
    }

    #[test]
    fn clock_that_agrees_deletes_old_rows_and_sessions() {
        check_clock(|hands| hands.set_ahead(HOUR), (0, 1));
    }
}
