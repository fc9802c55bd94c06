//! The index's thread: reads on, folds, commits, and says so.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{broadcast, watch};

use super::batch::{Batch, Scope, read};
use super::committed::{Database, Reached};
use super::follow::{Follower, Patience};
use super::lock::{IndexLock, LOCK_FILE};
use super::retention::prune;
use super::shared::{IndexState, LiveEvent, Shared, Woken};
use super::stamp::Fate;
use crate::config::RetentionBounds;
use crate::history::{ActivityFold, Fold, Rows};
use crate::journal::{IndexedTo, Position, SegmentName};
use crate::store::{SeqMark, SeqWish};

/// The history's name in the session's folder.
pub const HISTORY_FILE: &str = "history.db";

/// The shortest pause between two looks.
const LOOK_MIN: Duration = Duration::from_millis(20);

/// The longest pause between two looks while nothing happens.
const LOOK_MAX: Duration = Duration::from_millis(250);

/// How often the database's file is looked at.
const STAMP_EVERY: Duration = Duration::from_secs(1);

/// How often what is beyond the bounds is looked for; batches follow each other for as long as there is something.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// How long a database is left alone that could not be used.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// How long another process may index this session before that is said.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Numbers that are reserved at a time. Source: the contract.
const RESERVE: u64 = 10_000;

/// The stack of the thread, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// How nice the thread is: it gives way to the relay.
const NICE: i32 = 10;

/// Has numbers of events reserved.
pub type Marks = Box<dyn FnMut(SeqWish) -> Result<SeqMark, String> + Send>;

/// What an index is told at its beginning.
#[derive(Debug, Clone)]
pub struct IndexSettings {
    /// The session's id.
    pub session_id: String,
    /// Its folder.
    pub session_dir: PathBuf,
    /// Its journal's folder.
    pub journal_dir: PathBuf,
    /// How much is kept.
    pub retention: RetentionBounds,
    /// Told how far it is.
    pub indexed_to: IndexedTo,
}

impl IndexSettings {
    /// Where the history is.
    #[must_use]
    pub fn history_path(&self) -> PathBuf {
        self.session_dir.join(HISTORY_FILE)
    }
}

/// What the index tells whoever started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tidings {
    /// Nothing can be indexed, and why.
    Failed(String),
    /// Nothing can be indexed until the ledger can be used, and why it cannot.
    AwaitsLedger(String),
    /// All that waited is indexed.
    Recovered,
    /// A file that was no database any more was set aside.
    SetAside(PathBuf),
}

/// Tells [`Tidings`].
pub type Tell = Box<dyn FnMut(Tidings) + Send>;

/// The way to the index's thread.
#[derive(Debug, Clone)]
pub struct Index(Arc<Shared>);

impl Index {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// That of starting it.
    pub fn start(settings: IndexSettings, marks: Marks, tell: Tell) -> io::Result<Index> {
        let shared = Arc::new(Shared::default());
        let indexer = Indexer::new(settings, marks, tell, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("index".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || indexer.run())?;
        Ok(Index(shared))
    }

    /// Indexes all that is recorded of a session in which no relay runs, up to `until`: a relay may start meanwhile, and
    /// what it records is for its own index. Gives how far it came; where that is not the end, [`IndexState::fault`] tells
    /// why.
    #[must_use]
    pub fn catch_up(
        settings: IndexSettings,
        lock: IndexLock,
        until: Position,
        marks: Marks,
        tell: Tell,
    ) -> (IndexState, Arc<ActivityFold>) {
        let shared = Arc::new(Shared::default());
        let mut indexer = Indexer::new(settings, marks, tell, Arc::clone(&shared));
        indexer.scope = Scope { patience: Patience::None, until: Some(until) };
        indexer.lock = Some(lock);
        while indexer.step() == Looked::More {}
        let state = shared.state.borrow().clone();
        (state, shared.activity())
    }

    /// How far it is, to be looked at and to be waited for.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<IndexState> {
        self.0.state.subscribe()
    }

    /// What happens while it cannot be indexed.
    #[must_use]
    pub fn live(&self) -> broadcast::Receiver<Arc<LiveEvent>> {
        self.0.live.subscribe()
    }

    /// What the session and its threads do, as far as it was read.
    #[must_use]
    pub fn activity(&self) -> Arc<ActivityFold> {
        self.0.activity()
    }

    /// Has it look now.
    pub fn look(&self) {
        self.0.ask();
    }

    /// Has it end, wherever it is: what it has not come to is the next start's.
    pub fn end(&self) {
        self.0.end();
    }
}

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// There may be more.
    More,
    /// There was something, and that was all.
    All,
    /// There was nothing.
    Nothing,
    /// Nothing can be indexed now.
    Failed,
}

/// Why nothing can be indexed now.
enum Failure {
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

struct Indexer {
    settings: IndexSettings,
    marks: Marks,
    tell: Tell,
    shared: Arc<Shared>,
    scope: Scope,
    /// Held from where it could be had to the end.
    lock: Option<IndexLock>,
    began: Instant,
    indexed: Option<Indexed>,
    /// Reads on while nothing can be indexed.
    ahead: Option<Ahead>,
    /// When it is tried again.
    retry_at: Option<Instant>,
    fault_told: bool,
    prune_at: Instant,
}

/// What is indexed, and goes on.
struct Indexed {
    database: Database,
    reached: Reached,
    follower: Follower,
    reserved: u64,
    stamp_at: Instant,
    read_at: Instant,
}

/// What is read and cannot be indexed.
struct Ahead {
    fold: Fold,
    follower: Follower,
    read_at: Instant,
}

impl Indexer {
    fn new(settings: IndexSettings, marks: Marks, tell: Tell, shared: Arc<Shared>) -> Indexer {
        Indexer {
            settings,
            marks,
            tell,
            shared,
            scope: Scope { patience: Patience::Some, until: None },
            lock: None,
            began: Instant::now(),
            indexed: None,
            ahead: None,
            retry_at: None,
            fault_told: false,
            prune_at: Instant::now() + PRUNE_EVERY,
        }
    }

    fn run(mut self) {
        lower_priority();
        let mut pause = LOOK_MIN;
        loop {
            pause = match self.step() {
                Looked::More => Duration::ZERO,
                Looked::All => LOOK_MIN,
                Looked::Nothing | Looked::Failed => (pause * 2).clamp(LOOK_MIN, LOOK_MAX),
            };
            // Whoever reads along wants to see it soon.
            if self.shared.has_readers() {
                pause = pause.min(LOOK_MIN);
            }
            if self.shared.wait(pause) == Woken::Ends {
                return;
            }
        }
    }

    /// Looks once.
    fn step(&mut self) -> Looked {
        match self.index() {
            Ok(looked) => looked,
            Err(why) => {
                self.failed(why);
                self.read_ahead();
                Looked::Failed
            }
        }
    }

    /// Indexes what there is, up to a bound.
    fn index(&mut self) -> Result<Looked, Failure> {
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            self.read_ahead();
            return Ok(Looked::Failed);
        }
        if !self.holds_lock()? {
            return Ok(Looked::Nothing);
        }
        if self.indexed.is_none() {
            self.open()?;
        }
        self.look_at_file()?;
        let Some(indexed) = &mut self.indexed else { return Ok(Looked::Failed) };
        let follower = &mut indexed.follower;
        let batch = read(&indexed.reached.fold, follower, &mut indexed.read_at, &self.scope)
            .map_err(|error| format!("read {}: {error}", self.settings.journal_dir.display()))?;
        if batch.records == 0 && batch.rows == Rows::default() {
            self.recovered();
            return self.prune();
        }
        let looked = if batch.is_all { Looked::All } else { Looked::More };
        self.commit(batch)?;
        if looked == Looked::All {
            self.recovered();
        }
        Ok(looked)
    }

    /// Takes the lock, where it is free; a tool that indexes here is soon done.
    fn holds_lock(&mut self) -> Result<bool, String> {
        if self.lock.is_some() {
            return Ok(true);
        }
        let path = self.settings.session_dir.join(LOCK_FILE);
        self.lock = IndexLock::try_take(&self.settings.session_dir)
            .map_err(|error| format!("lock {}: {error}", path.display()))?;
        match self.lock {
            None if self.began.elapsed() >= LOCK_WAIT_MAX => {
                Err(format!("lock {}: another process has held it for {LOCK_WAIT_MAX:?}", path.display()))
            }
            None => Ok(false),
            Some(_) => Ok(true),
        }
    }

    /// Opens the database, and goes to where it has come.
    fn open(&mut self) -> Result<(), Failure> {
        let IndexSettings { session_id, journal_dir, .. } = &self.settings;
        let (database, set_aside) =
            Database::open(&self.settings.history_path(), session_id).map_err(|e| e.to_string())?;
        if let Some(kept) = set_aside {
            (self.tell)(Tidings::SetAside(kept));
        }
        let reached = database.load().map_err(|error| error.to_string())?;
        let mark = (self.marks)(SeqWish::default()).map_err(Failure::Ledger)?;
        let reached = match reached {
            Some(reached) => reached,
            None => Reached { seq: first_seq(journal_dir, &mark)?, ..Reached::default() },
        };
        let follower = Follower::new(journal_dir, reached.position.clone());
        let now = Instant::now();
        let epoch = self.shared.state.borrow().epoch + 1;
        self.shared.state.send_modify(|state| {
            state.epoch = epoch;
            state.position = reached.position.clone();
            state.last_seq = reached.seq;
        });
        if self.ahead.is_none() {
            self.shared.set_activity(reached.fold.activity());
        }
        self.indexed =
            Some(Indexed { database, reached, follower, reserved: mark.reserved, stamp_at: now, read_at: now });
        Ok(())
    }

    /// Looks whether the database's file is still there, every now and then.
    fn look_at_file(&mut self) -> Result<(), Failure> {
        let Some(indexed) = &mut self.indexed else { return Ok(()) };
        if indexed.stamp_at.elapsed() < STAMP_EVERY {
            return Ok(());
        }
        indexed.stamp_at = Instant::now();
        match indexed.database.fate() {
            Fate::InPlace => Ok(()),
            Fate::Gone => {
                self.indexed = None;
                tracing::warn!("the history's file is gone; it is built again");
                self.open()
            }
            Fate::Broken => {
                if let Some(indexed) = self.indexed.take() {
                    let kept = indexed.database.set_aside().map_err(|error| error.to_string())?;
                    (self.tell)(Tidings::SetAside(kept));
                }
                self.open()
            }
        }
    }

    fn commit(&mut self, batch: Batch) -> Result<(), Failure> {
        let Some(Indexed { database, reached, follower, reserved, .. }) = &mut self.indexed else { return Ok(()) };
        let before = reached.seq;
        let seq = before + batch.rows.events.len() as u64;
        if seq > *reserved {
            let first_generation = first_segment(&self.settings.journal_dir)
                .filter(|first| first.number == 1 && before == 0)
                .map(|first| first.generation.to_string());
            let wish = SeqWish { up_to: seq.next_multiple_of(RESERVE), first_generation };
            *reserved = (self.marks)(wish).map_err(Failure::Ledger)?.reserved;
        }
        let next = Reached { fold: batch.fold, position: follower.position().cloned(), seq };
        database.commit(&batch.rows, before, &next).map_err(|error| error.to_string())?;
        *reached = next;
        let begun = reached.fold.open_since().or(reached.position.as_ref());
        begun.into_iter().for_each(|at| self.settings.indexed_to.reached(&at.segment));
        if self.ahead.is_none() {
            self.shared.set_activity(reached.fold.activity());
        }
        self.shared.state.send_modify(|state| {
            state.position = reached.position.clone();
            state.last_seq = reached.seq;
        });
        Ok(())
    }

    /// Deletes what is beyond the bounds, a batch at a time.
    fn prune(&mut self) -> Result<Looked, Failure> {
        let Some(indexed) = &mut self.indexed else { return Ok(Looked::Nothing) };
        if Instant::now() < self.prune_at {
            return Ok(Looked::Nothing);
        }
        let pruned = prune(indexed.database.connection(), &self.settings.retention, now_us());
        let pruned = pruned.map_err(|source| indexed.database.error(source).to_string())?;
        if pruned.rows() == 0 {
            self.prune_at = Instant::now() + PRUNE_EVERY;
            return Ok(Looked::Nothing);
        }
        self.shared.state.send_modify(|state| state.pruned.add(pruned));
        Ok(Looked::All)
    }

    /// Nothing can be indexed now.
    fn failed(&mut self, failure: Failure) {
        let (why, tidings) = match failure {
            Failure::History(why) => (why.clone(), Tidings::Failed(why)),
            Failure::Ledger(why) => (why.clone(), Tidings::AwaitsLedger(why)),
        };
        self.retry_at = Some(Instant::now() + TRY_AGAIN_AFTER);
        self.ahead.get_or_insert_with(|| Ahead::new(&self.settings.journal_dir, self.indexed.as_ref()));
        // What was read and not committed is read again.
        self.indexed = None;
        self.shared.state.send_modify(|state| {
            state.fault = Some(why);
            state.failed_commits += 1;
        });
        if !std::mem::replace(&mut self.fault_told, true) {
            (self.tell)(tidings);
        }
    }

    /// All that is recorded is indexed.
    fn recovered(&mut self) {
        self.retry_at = None;
        self.ahead = None;
        if let Some(Indexed { reached, .. }) = &self.indexed {
            self.shared.set_activity(reached.fold.activity());
        }
        if std::mem::take(&mut self.fault_told) {
            self.shared.state.send_modify(|state| state.fault = None);
            (self.tell)(Tidings::Recovered);
        }
    }

    /// Reads what cannot be indexed, and tells it live.
    fn read_ahead(&mut self) {
        let ahead = self.ahead.get_or_insert_with(|| Ahead::new(&self.settings.journal_dir, self.indexed.as_ref()));
        while let Ok(batch) = read(&ahead.fold, &mut ahead.follower, &mut ahead.read_at, &self.scope) {
            let is_all = batch.is_all;
            ahead.fold = batch.fold;
            for event in batch.rows.events {
                let live = LiveEvent::of(&self.settings.session_id, event);
                // Nobody may read along.
                let _ = self.shared.live.send(Arc::new(live));
            }
            if is_all {
                break;
            }
        }
        self.shared.set_activity(ahead.fold.activity());
    }
}

impl Ahead {
    /// Where the index has stopped, or, where nothing is known of that, at the run that is under way.
    fn new(journal_dir: &Path, indexed: Option<&Indexed>) -> Ahead {
        let read_at = Instant::now();
        match indexed {
            Some(Indexed { reached: Reached { fold, position, .. }, .. }) => {
                Ahead { fold: fold.clone(), follower: Follower::new(journal_dir, position.clone()), read_at }
            }
            None => {
                let segments = SegmentName::list(journal_dir).unwrap_or_default();
                let last = segments.last().map(|last| &last.generation);
                let first = segments.iter().find(|segment| Some(&segment.generation) == last);
                let from = first.map(|segment| Position { segment: segment.clone(), offset: 0 });
                Ahead { fold: Fold::default(), follower: Follower::new(journal_dir, from), read_at }
            }
        }
    }
}

/// The number before that of the first event that is indexed.
fn first_seq(journal_dir: &Path, mark: &SeqMark) -> Result<u64, String> {
    let begins = first_segment(journal_dir);
    let is_first =
        |first: SegmentName| first.number == 1 && mark.first_generation.as_deref() == Some(first.generation.as_str());
    Ok(if mark.reserved == 0 || begins.is_some_and(is_first) { 0 } else { mark.reserved })
}

fn first_segment(journal_dir: &Path) -> Option<SegmentName> {
    SegmentName::list(journal_dir).ok()?.into_iter().next()
}

/// The wall clock, in microseconds since the Unix epoch.
fn now_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Has this thread give way to the others.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE) {
        tracing::debug!(%error, "lower the index's priority");
    }
}
