//! The agent of a host: a process beside the relays. It ships events, describes the host, and answers questions.
//!
//! *Tasks.* One lists the sessions, and starts a follower for each that has something to ship and another for its pending requests; one
//! claims the name of the host and describes it; one lists the pending requests in the server; one accepts questions; one gives the
//! answers that have waited. They run on one thread; calls to relays block on threads of a bounded pool.
//!
//! *Names.* Of several agents with one name, one works, see [`claim`]. The others do nothing but wait.
//!
//! *Memory.* At most [`PAGES_MAX`] pages of events and [`QUESTIONS_MAX`] questions are in memory at a time, whatever waits in the
//! histories. Events that the server does not have stay there.

mod announce;
mod answers;
mod claim;
mod cursors;
mod later;
mod page;
mod pending;
mod serve;
mod ship;
mod told;
mod usage;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use async_nats::jetstream;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;

use super::connection::{AtFirst, ConnectError, Connection, Link, Member};
use super::wire::PendingRow;
use crate::config::{Environment, Flags, Settings};
use crate::control::runtime_of_calls;
use crate::files::Folder;
use crate::os::signals::Signals;
use crate::sessions::door::Door;
use crate::sessions::stopped::Read;
use crate::store::Found;
use claim::Standing;
pub use cursors::NameFile;
use cursors::{Absent, Cursor, Cursors};
use ship::Ended;
use told::{Told, Trouble};

/// Held while an agent runs; its file is in the agent's folder.
const LOCK_FILE: &str = "agent.lock";

/// Pages of events in memory.
const PAGES_MAX: usize = 4;

/// Questions that are answered at the same time. Further ones are refused.
const QUESTIONS_MAX: usize = 16;

/// Threads for calls that block.
const THREADS_MAX: usize = QUESTIONS_MAX + PAGES_MAX + later::GIVEN_AT_ONCE_MAX + 4;

/// Interval at which the sessions are listed.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// After so long a stopped session that could not be read is tried again.
const UNREADABLE_FOR: Duration = Duration::from_secs(600);

/// Interval at which changed cursors are written.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// How long the end waits until the connection has written its messages.
const END_WAIT_MAX: Duration = Duration::from_secs(1);

/// Options of an agent.
#[derive(Debug)]
pub struct AgentOptions {
    pub home: PathBuf,
    pub member: Member,
    /// Prints a line for the user.
    pub say: fn(&str),
}

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("an agent runs already for this home")]
    Running,
    #[error("open {}: {source}", .path.display())]
    Home { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("set up {what}: {source}")]
    SetUp { what: &'static str, source: io::Error },
}

/// The value of a mutex. A task that panicked leaves no half of a change.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of all tasks.
struct Shared {
    home: PathBuf,
    member: Member,
    connection: Connection,
    jetstream: jetstream::Context,
    say: fn(&str),
    /// Identifies this agent.
    id: String,
    started_at: SystemTime,
    cursors: Mutex<Cursors>,
    cursors_changed: Notify,
    /// Held while the cursors are written, so that older ones never replace newer ones.
    saving: tokio::sync::Mutex<()>,
    pages: Semaphore,
    questions: Arc<Semaphore>,
    /// The pending requests of each live session.
    pending: Mutex<BTreeMap<String, Vec<PendingRow>>>,
    pending_changed: Notify,
    /// The sessions of the last listing.
    found: Mutex<Vec<Found>>,
    /// Something in the description of the host has changed.
    host_changed: Notify,
    /// Whether this agent has the name of the host.
    standing: watch::Sender<Standing>,
    told: Mutex<Told>,
}

impl Shared {
    /// Reads the history of a session, live or stopped, with the settings as they are now.
    fn read(&self, session: &Found) -> Read {
        let (settings, _) = Settings::load(Flags::default(), &Environment::of_process());
        Read::through(Door { retention: settings.retention(), say: self.say }, session.clone())
    }

    fn put_cursor(&self, session: &str, cursor: Cursor) {
        locked(&self.cursors).sessions.insert(session.to_owned(), cursor);
        self.cursors_changed.notify_one();
    }

    /// Writes the cursors as they are now.
    async fn save_cursors(&self) {
        let _one = self.saving.lock().await;
        let (cursors, home) = (locked(&self.cursors).clone(), self.home.clone());
        match tokio::task::spawn_blocking(move || cursors.save(&home)).await {
            Ok(Err(error)) => {
                let message = format!("write the cursors: {error}; after a restart events are shipped again");
                self.tell(Trouble::Cursors, &message);
            }
            Ok(Ok(())) => self.mended(&Trouble::Cursors),
            Err(_) => {}
        }
    }

    /// Replaces the pending requests of a session.
    fn put_pending(&self, session: &str, rows: Vec<PendingRow>) {
        let mut pending = locked(&self.pending);
        let before = match rows.is_empty() {
            true => pending.remove(session),
            false => pending.insert(session.to_owned(), rows),
        };
        let has_changed = before.as_ref() != pending.get(session);
        drop(pending);
        if has_changed {
            self.pending_changed.notify_one();
            self.host_changed.notify_one();
        }
    }

    /// Waits until the server is reached and this agent has the name of the host.
    async fn is_only(&self) {
        let (mut link, mut standing) = (self.connection.link.clone(), self.standing.subscribe());
        loop {
            let _ = link.wait_for(|link| *link == Link::Up).await;
            let _ = standing.wait_for(|standing| *standing == Standing::Only).await;
            if *link.borrow() == Link::Up {
                return;
            }
        }
    }

    /// Prints a failure, unless the user knows of it.
    fn tell(&self, trouble: Trouble, message: &str) {
        if locked(&self.told).is_news(trouble, message) {
            (self.say)(message);
        }
    }

    /// Prints the end of a failure that the user knows of.
    fn mended(&self, trouble: &Trouble) {
        if locked(&self.told).ends(trouble)
            && let Some(message) = trouble.end()
        {
            (self.say)(&message);
        }
    }

    /// # Errors
    ///
    /// Why the sessions cannot be listed now.
    fn all_sessions(&self) -> Result<Vec<Found>, String> {
        Found::all(&self.home).map_err(|error| error.to_string())
    }
}

/// An agent that is ready to run.
pub struct Agent {
    options: AgentOptions,
    cursors: Cursors,
    signals: Signals,
    _lock: File,
}

impl Agent {
    /// # Errors
    ///
    /// Another agent runs, or the home cannot be used.
    pub fn start(options: AgentOptions) -> Result<Agent, AgentError> {
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
    pub fn run(self) -> Result<(), AgentError> {
        let set_up = |what| move |source| AgentError::SetUp { what, source };
        let Agent { options, cursors, signals, _lock } = self;
        let end = signals.first().map_err(set_up("a thread"))?;
        let runtime = runtime_of_calls(THREADS_MAX).map_err(set_up("a runtime"))?;
        let done = runtime.block_on(async move {
            let shared = Arc::new(connect(options, cursors).await?);
            tokio::select! {
                () = list(&shared) => {}
                () = save(&shared) => {}
                () = announce::hold(&shared) => {}
                () = announce::list_pending(&shared) => {}
                () = serve::serve(&shared) => {}
                () = later::give(&shared) => {}
                () = tell_of_link(&shared) => {}
                _ = end => {}
            }
            let _ = tokio::time::timeout(END_WAIT_MAX, shared.connection.client.flush()).await;
            if let Err(error) = locked(&shared.cursors).save(&shared.home) {
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
    let AgentOptions { home, member, say } = options;
    let connection = member.connect(&member.host, AtFirst::Wait).await?;
    let jetstream = connection.jetstream(PAGES_MAX * page::PAGE_EVENTS_MAX as usize + 8);
    Ok(Shared {
        home,
        member,
        connection,
        jetstream,
        say,
        id: uuid::Uuid::now_v7().to_string(),
        started_at: SystemTime::now(),
        cursors: Mutex::new(cursors),
        cursors_changed: Notify::new(),
        saving: tokio::sync::Mutex::default(),
        pages: Semaphore::new(PAGES_MAX),
        questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
        pending: Mutex::default(),
        pending_changed: Notify::new(),
        found: Mutex::default(),
        host_changed: Notify::new(),
        standing: watch::channel(Standing::Unsure).0,
        told: Mutex::default(),
    })
}

/// A session that was or is followed.
struct Followed {
    /// Ships its events.
    task: JoinHandle<Ended>,
    /// How the task has ended, and when that was noticed.
    ended: Option<(Ended, Instant)>,
    /// Lists its pending requests.
    pending: JoinHandle<()>,
    /// Its last use when the follower was started.
    last_used: SystemTime,
}

impl Followed {
    fn start(shared: &Arc<Shared>, session: &Found) -> Followed {
        let task = tokio::spawn(ship::follow(Arc::clone(shared), session.clone()));
        let pending = tokio::spawn(pending::watch(Arc::clone(shared), session.clone()));
        Followed { task, ended: None, pending, last_used: session.last_used }
    }

    /// Notes the end of its tasks.
    async fn look(&mut self) {
        if self.ended.is_none() && self.task.is_finished() {
            // A task that panicked is started again after a while.
            let ended = (&mut self.task).await.unwrap_or(Ended::Unreadable);
            self.ended = Some((ended, Instant::now()));
        }
    }

    /// Starts again what the session needs.
    fn goes_on(&mut self, shared: &Arc<Shared>, session: &Found) {
        if session.live && self.pending.is_finished() {
            self.pending = tokio::spawn(pending::watch(Arc::clone(shared), session.clone()));
        }
        let is_due = match self.ended {
            None => false,
            Some((Ended::Shipped, _)) => session.live || self.last_used != session.last_used,
            Some((Ended::Gone, _)) => true,
            Some((Ended::Unreadable, at)) => {
                session.live || self.last_used != session.last_used || at.elapsed() >= UNREADABLE_FOR
            }
        };
        if is_due {
            self.task = tokio::spawn(ship::follow(Arc::clone(shared), session.clone()));
            self.last_used = session.last_used;
            self.ended = None;
        }
    }
}

/// Lists the sessions, and follows those with unshipped events. A list that cannot be read changes nothing.
async fn list(shared: &Arc<Shared>) {
    let mut followed: HashMap<String, Followed> = HashMap::new();
    let mut absent = Absent::default();
    loop {
        let own = Arc::clone(shared);
        match tokio::task::spawn_blocking(move || own.all_sessions()).await {
            Ok(Ok(found)) => {
                shared.mended(&Trouble::Listing);
                listed(shared, &mut followed, &mut absent, &found).await;
            }
            Ok(Err(why)) => {
                shared.tell(
                    Trouble::Listing,
                    &format!("the sessions of this host cannot be listed: {why}; trying again"),
                );
            }
            Err(error) => tracing::warn!(%error, "the list of sessions"),
        }
        tokio::time::sleep(LIST_EVERY).await;
    }
}

async fn listed(shared: &Arc<Shared>, followed: &mut HashMap<String, Followed>, absent: &mut Absent, found: &[Found]) {
    let is_listed = |id: &str| found.iter().any(|session| session.id == id);
    for follower in followed.values_mut() {
        follower.look().await;
    }
    followed.retain(|id, follower| follower.ended.is_none() || is_listed(id));
    let has_changed = {
        let mut known = locked(&shared.found);
        let live = |sessions: &[Found]| sessions.iter().filter(|session| session.live).count();
        let has_changed = live(&known) != live(found);
        *known = found.to_vec();
        has_changed
    };
    if has_changed {
        shared.host_changed.notify_one();
    }
    {
        let mut cursors = locked(&shared.cursors);
        let gone = absent.looks(cursors.sessions.keys().map(String::as_str), is_listed, Instant::now());
        for session in gone {
            cursors.sessions.remove(&session);
            shared.cursors_changed.notify_one();
        }
    }
    for session in found {
        match followed.get_mut(&session.id) {
            Some(follower) => follower.goes_on(shared, session),
            None if session.live || locked(&shared.cursors).concern(&session.id, session.last_used) => {
                followed.insert(session.id.clone(), Followed::start(shared, session));
            }
            None => {}
        }
    }
}

/// Writes the cursors after they have changed.
async fn save(shared: &Arc<Shared>) {
    loop {
        shared.cursors_changed.notified().await;
        shared.save_cursors().await;
        tokio::time::sleep(SAVE_EVERY).await;
    }
}

/// Tells the user whether the server is reached, and what it refuses; repeats nothing.
async fn tell_of_link(shared: &Arc<Shared>) {
    let Connection { mut link, mut refusal, mut trouble, .. } = shared.connection.clone();
    loop {
        let goes_on = tokio::select! {
            changed = link.changed() => changed.map(|()| match *link.borrow_and_update() {
                Link::Up => {
                    shared.mended(&Trouble::Link);
                    shared.mended(&Trouble::Refusal);
                    (shared.say)("connected");
                }
                Link::Down => shared.tell(Trouble::Link, "the connection to the server is lost; trying again"),
            }),
            changed = trouble.changed() => changed.map(|()| {
                let why = trouble.borrow_and_update().clone().unwrap_or_default();
                shared.tell(Trouble::Link, &format!("the server is not reached: {why}; trying again"));
            }),
            changed = refusal.changed() => changed.map(|()| {
                let why = refusal.borrow_and_update().clone().unwrap_or_default();
                let remedy = "`codex-shim fleet check` says what these credentials may do";
                shared.tell(Trouble::Refusal, &format!("the server refuses something: {why}; {remedy}"));
            }),
        };
        // Without a sender the connection has ended.
        if goes_on.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Locks the home for one agent.
fn lock(home: &Path) -> Result<File, AgentError> {
    let path = home.join(cursors::FOLDER);
    let failed = |source| AgentError::Home { path: path.clone(), source };
    let folder = Folder::make_home(home).and_then(|_| Folder::make(&path)).map_err(failed)?;
    folder.lock(LOCK_FILE).map_err(failed)?.ok_or(AgentError::Running)
}
