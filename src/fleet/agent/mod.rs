//! The agent of a host: a process beside the relays. It ships events, describes the host, and answers questions.
//!
//! *Tasks.* One lists the sessions and starts a follower for each that has something to ship; one describes the host; one accepts
//! questions; one gives the answers that have waited. They run on one thread; calls to relays block on threads of a bounded pool.
//!
//! *Memory.* At most [`PAGES_MAX`] pages of events and [`QUESTIONS_MAX`] questions are in memory at a time, whatever waits in the
//! histories. Events that the server does not have stay there.

mod announce;
mod answers;
mod cursors;
mod later;
mod page;
mod serve;
mod ship;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_nats::jetstream;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use super::connection::{AtFirst, ConnectError, Connection, Link, Member};
use super::wire::PendingRow;
use crate::control::runtime_of_calls;
use crate::files::{Access, Folder};
use crate::index::{Cursor as Seen, SessionUsage};
use crate::launch::Signals;
use crate::store::Found;
use cursors::{Cursor, Cursors};

/// Held while an agent runs; its file is in the agent's folder.
const LOCK_FILE: &str = "agent.lock";

/// Pages of events in memory.
const PAGES_MAX: usize = 4;

/// Questions that are answered at the same time. Further ones are refused.
const QUESTIONS_MAX: usize = 16;

/// Threads for calls that block.
const THREADS_MAX: usize = QUESTIONS_MAX + PAGES_MAX + 4;

/// Interval at which the sessions are listed.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// Interval at which changed cursors are written.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// How long the end waits until the connection has written its messages.
const END_WAIT_MAX: Duration = Duration::from_secs(1);

/// Reads the page of at most so many events after a cursor, in JSON, as a relay would give it.
pub(crate) type ReadPage = Box<dyn Fn(&Seen, u64) -> Result<String, String> + Send>;

/// How stopped sessions are read. The tools know, which stand above this room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadStopped {
    /// Opens the history of a stopped session; `None` if a relay runs by now, or without a recording.
    pub(crate) open: fn(&Found) -> Result<Option<ReadPage>, String>,
    /// The usage from a time on, in microseconds since the Unix epoch.
    pub(crate) usage: fn(&Found, Option<u64>) -> Result<SessionUsage, String>,
}

/// Options of an agent.
#[derive(Debug)]
pub(crate) struct AgentOptions {
    pub(crate) home: PathBuf,
    pub(crate) member: Member,
    pub(crate) stopped: ReadStopped,
    /// Prints a line for the user.
    pub(crate) say: fn(&str),
}

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("an agent runs already for this home")]
    Running,
    #[error("open {}: {source}", .path.display())]
    Home { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("set up {what}: {source}")]
    SetUp { what: &'static str, source: io::Error },
}

/// State of all tasks.
struct Shared {
    home: PathBuf,
    member: Member,
    connection: Connection,
    jetstream: jetstream::Context,
    stopped: ReadStopped,
    say: fn(&str),
    /// Identifies this agent.
    id: String,
    started_at: SystemTime,
    cursors: Mutex<Cursors>,
    cursors_changed: Notify,
    pages: Semaphore,
    questions: Arc<Semaphore>,
    /// The pending requests of each live session.
    pending: Mutex<BTreeMap<String, Vec<PendingRow>>>,
    pending_changed: Notify,
    /// The sessions of the last listing.
    found: Mutex<Vec<Found>>,
    /// The last problem that the user has read.
    told: Mutex<Option<String>>,
}

impl Shared {
    fn cursors(&self) -> MutexGuard<'_, Cursors> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<String, Vec<PendingRow>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self) -> MutexGuard<'_, Vec<Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_cursor(&self, session: &str, cursor: Cursor) {
        self.cursors().put(session, cursor);
        self.cursors_changed.notify_one();
    }

    /// Replaces the pending requests of a session.
    fn put_pending(&self, session: &str, rows: Vec<PendingRow>) {
        let mut pending = self.pending();
        let before = match rows.is_empty() {
            true => pending.remove(session),
            false => pending.insert(session.to_owned(), rows),
        };
        let has_changed = before.as_ref() != pending.get(session);
        drop(pending);
        if has_changed {
            self.pending_changed.notify_one();
        }
    }

    /// Prints a problem once, until it changes or ends.
    fn tell(&self, problem: Option<String>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == problem {
            return;
        }
        match &problem {
            Some(problem) => (self.say)(problem),
            None => (self.say)("events are shipped again"),
        }
        *told = problem;
    }

    fn all_sessions(&self) -> Vec<Found> {
        // A folder that cannot be read now may be readable later.
        Found::all(&self.home).unwrap_or_default()
    }
}

/// An agent that is ready to run.
pub(crate) struct Agent {
    options: AgentOptions,
    cursors: Cursors,
    signals: Signals,
    _lock: File,
}

impl Agent {
    /// # Errors
    ///
    /// Another agent runs, or the home cannot be used.
    pub(crate) fn start(options: AgentOptions) -> Result<Agent, AgentError> {
        let signals = Signals::listen(&[SIGTERM, SIGINT, SIGHUP])
            .map_err(|source| AgentError::SetUp { what: "signal handlers", source })?;
        let lock = lock(&options.home)?;
        let failed = |source| AgentError::Home { path: options.home.join(cursors::FOLDER), source };
        let cursors = Cursors::load(&options.home, &options.member.host, SystemTime::now()).map_err(failed)?;
        Ok(Agent { options, cursors, signals, _lock: lock })
    }

    /// Runs until a signal ends it.
    ///
    /// # Errors
    ///
    /// It could not begin.
    pub(crate) fn run(self) -> Result<(), AgentError> {
        let set_up = |what| move |source| AgentError::SetUp { what, source };
        let Agent { options, cursors, signals, _lock } = self;
        let end = signals.first().map_err(set_up("a thread"))?;
        let runtime = runtime_of_calls(THREADS_MAX).map_err(set_up("a runtime"))?;
        let done = runtime.block_on(async move {
            let shared = Arc::new(connect(options, cursors).await?);
            tokio::select! {
                () = list(&shared) => {}
                () = save(&shared) => {}
                () = announce::announce(&shared) => {}
                () = serve::serve(&shared) => {}
                () = later::give(&shared) => {}
                () = tell_of_link(&shared) => {}
                _ = end => {}
            }
            let _ = tokio::time::timeout(END_WAIT_MAX, shared.connection.client.flush()).await;
            if let Err(error) = shared.cursors().save(&shared.home) {
                (shared.say)(&format!("write the cursors: {error}"));
            }
            Ok(())
        });
        // Calls that wait for a relay do not delay the end.
        runtime.shutdown_background();
        done
    }
}

async fn connect(options: AgentOptions, cursors: Cursors) -> Result<Shared, AgentError> {
    let AgentOptions { home, member, stopped, say } = options;
    let connection = member.connect(&member.host, AtFirst::Wait).await?;
    let jetstream = jetstream::context::ContextBuilder::new()
        .ack_timeout(ship::ACK_WAIT_MAX)
        .timeout(ship::ACK_WAIT_MAX)
        .max_ack_inflight(PAGES_MAX * page::PAGE_EVENTS_MAX as usize + 8)
        .build(connection.client.clone());
    Ok(Shared {
        home,
        member,
        connection,
        jetstream,
        stopped,
        say,
        id: uuid::Uuid::now_v7().to_string(),
        started_at: SystemTime::now(),
        cursors: Mutex::new(cursors),
        cursors_changed: Notify::new(),
        pages: Semaphore::new(PAGES_MAX),
        questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
        pending: Mutex::default(),
        pending_changed: Notify::new(),
        found: Mutex::default(),
        told: Mutex::default(),
    })
}

/// A session that was or is followed.
struct Followed {
    task: JoinHandle<()>,
    /// Its last use when the follower was started.
    last_used: SystemTime,
}

/// Lists the sessions, and follows those with unshipped events.
async fn list(shared: &Arc<Shared>) {
    let mut followed: HashMap<String, Followed> = HashMap::new();
    loop {
        let own = Arc::clone(shared);
        let found = tokio::task::spawn_blocking(move || own.all_sessions()).await.unwrap_or_default();
        followed.retain(|id, follower| !follower.task.is_finished() || found.iter().any(|session| session.id == *id));
        shared.found().clone_from(&found);
        {
            let mut cursors = shared.cursors();
            cursors.retain(|id| found.iter().any(|session| session.id == id));
        }
        for session in found {
            let is_due = match followed.get(&session.id) {
                Some(follower) if !follower.task.is_finished() => false,
                Some(follower) => session.live || follower.last_used != session.last_used,
                None => session.live || shared.cursors().concern(&session.id, session.last_used),
            };
            if is_due {
                let last_used = session.last_used;
                let id = session.id.clone();
                let task = tokio::spawn(ship::follow(Arc::clone(shared), session));
                followed.insert(id, Followed { task, last_used });
            }
        }
        tokio::time::sleep(LIST_EVERY).await;
    }
}

/// Writes the cursors after they have changed.
async fn save(shared: &Arc<Shared>) {
    loop {
        shared.cursors_changed.notified().await;
        let (cursors, home) = (shared.cursors().clone(), shared.home.clone());
        let saved = tokio::task::spawn_blocking(move || cursors.save(&home)).await;
        if let Ok(Err(error)) = saved {
            shared.tell(Some(format!("write the cursors: {error}; after a restart events are shipped again")));
        }
        tokio::time::sleep(SAVE_EVERY).await;
    }
}

/// Tells the user whether the server is reached, and what it refuses; repeats nothing.
async fn tell_of_link(shared: &Arc<Shared>) {
    let Connection { mut link, mut refusal, mut trouble, .. } = shared.connection.clone();
    let mut told = String::new();
    loop {
        let message = tokio::select! {
            changed = link.changed() => changed.map(|()| match *link.borrow_and_update() {
                Link::Up => "connected".to_owned(),
                Link::Down => "the connection to the server is lost; trying again".to_owned(),
            }),
            changed = trouble.changed() => changed.map(|()| {
                let why = trouble.borrow_and_update().clone().unwrap_or_default();
                format!("the server is not reached: {why}; trying again")
            }),
            changed = refusal.changed() => changed.map(|()| {
                let why = refusal.borrow_and_update().clone().unwrap_or_default();
                format!("the server refuses something: {why}; `codex-shim fleet check` says what these credentials may do")
            }),
        };
        // Without a sender the connection has ended.
        let Ok(message) = message else { return std::future::pending().await };
        if message != told {
            (shared.say)(&message);
            told = message;
        }
    }
}

/// Locks the home for one agent.
fn lock(home: &Path) -> Result<File, AgentError> {
    let path = home.join(cursors::FOLDER);
    let failed = |source| AgentError::Home { path: path.clone(), source };
    let folder = Folder::make_home(home).and_then(|_| Folder::make(&path)).map_err(failed)?;
    let lock = folder.open(LOCK_FILE, Access::Create).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(AgentError::Running),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}
