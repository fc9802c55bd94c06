//! The session of a relay: opens it, and starts what serves it: ledger, index, context engine, control socket, and the thread
//! that follows an `agent_pty`.
//!
//! None of them makes the relay wait: each has a thread of its own. A part that cannot start is reported, and the relay goes
//! on without it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::deciders;
use super::guard::Guard;
use super::hook_watch::HookWatch;
use super::inbox::Outbox;
use super::notices::Notices;
use super::recorder::SessionState;
use super::stalled;
use crate::api;
use crate::capture::{Watch, Whose};
use crate::config::{ContextScope, RetentionBounds, SessionName, resolved};
use crate::context_engine::{ContextEngine, Conversations, WorkerSettings};
use crate::control::{self, ControlSocket, SessionInfo, SocketFault, Stores, client, new_commands, open_threads};
use crate::engine::{ContextBounds, ContextEngineSettings, Input, PushedCommand};
use crate::index::{Index, IndexNotice, IndexSettings, Marks, Notify, TranscriptFiles};
use crate::journal::wall_clock::Jump;
use crate::journal::{Bounds, FORMAT, Generation, Header, IndexedTo, NoGeneration, Previous, ServerOrigin, Writer};
use crate::socket::{Callers, EndpointState};
use crate::store::{Ledger, Place, Session, StoreError, in_scope, open_log};

/// How long the index waits for the ledger to reserve its numbers.
const RESERVE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Whether the session has a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKept {
    Yes,
    No,
}

/// The parameters with which the session is opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) home: Option<PathBuf>,
    pub(super) wanted: Option<SessionName>,
    pub(super) record: RecordKept,
    pub(super) bounds: Bounds,
    pub(super) retention: RetentionBounds,
    /// Whether transcripts are also written as files.
    pub(super) transcript_files: TranscriptFiles,
    /// How far the index has read; the index sets it for the journal's writer thread.
    pub(super) indexed_to: IndexedTo,
    pub(super) place: Place,
    /// The id of a new session.
    pub(super) fresh_id: Uuid,
    pub(super) codex_path: String,
    pub(super) child_pid: u32,
    pub(super) runtime_dir: Option<PathBuf>,
    pub(super) context_bounds: ContextBounds,
    /// Cgroups whose processes may call although they are confined.
    pub(super) trusted_cgroups: Vec<PathBuf>,
    /// The `agent_pty` events to follow.
    pub(super) watched: Option<(PathBuf, Whose)>,
    /// Which threads of a hub get these commands; `None` is whichever speaks next.
    pub(super) scope: Option<ContextScope>,
    pub(super) context_engine: Option<ContextEngineSettings>,
    /// As in [`super::start::OfHub`].
    pub(super) server_run: Option<String>,
    /// The server was started by another hub.
    pub(super) adopted: bool,
    pub(super) stalls: HookWatch,
    pub(super) guard: Guard,
    pub(super) outbox: Outbox,
}

pub(super) struct OpenedSession {
    pub(super) writer: Option<Box<Writer>>,
    pub(super) parts: SessionParts,
}

/// Everything of a session except its journal.
#[derive(Debug, Default)]
pub(super) struct SessionParts {
    pub(super) session_id: String,
    /// See [`SessionState`].
    pub(super) generation: String,
    pub(super) own_run: String,
    /// Held until the process ends.
    pub(super) session: Option<&'static Session>,
    pub(super) ledger: Option<Ledger>,
    pub(super) index: Option<Index>,
    pub(super) context_engine: Option<ContextEngine>,
    /// The control socket's files; removed at the end.
    pub(super) control_socket: Option<ControlSocket>,
}

/// How long a hub may take to say which threads it has.
const THREADS_WAIT_MAX: Duration = Duration::from_secs(5);

/// The commands, each for the threads of the hub that get it.
fn for_threads(
    session_dir: &Path,
    commands: &[PushedCommand],
    scope: ContextScope,
) -> Result<Vec<PushedCommand>, String> {
    let session = client::ask(session_dir, &api::State, THREADS_WAIT_MAX);
    let threads = open_threads(&session.map_err(|error| format!("the threads of the hub: {error}"))?);
    let for_each = |(command, cwd): (&PushedCommand, &str)| {
        let cwd = resolved(Path::new(cwd));
        let threads = in_scope(&threads, &cwd, scope).map(|thread| Some(thread.id.clone()));
        threads.map(|thread_id| PushedCommand { thread_id, ..command.clone() }).collect::<Vec<_>>()
    };
    // What ran nobody knows where is of no project.
    let known = commands.iter().filter_map(|command| Some((command, command.cwd.as_deref()?)));
    Ok(known.flat_map(for_each).collect())
}

impl Opening {
    /// Finds the session for this start, locks it, and serves its control socket.
    ///
    /// The process holds the lock until it ends, however it ends.
    pub(super) fn open(&self, notices: &Notices) -> Result<OpenedSession, StoreError> {
        let Some(home) = &self.home else {
            let source = io::Error::new(io::ErrorKind::NotFound, "neither CODEX_SHIM_HOME nor HOME is set");
            return Err(StoreError::Io { action: "find", path: "the state folder".into(), source });
        };
        let session = Session::open(home, self.wanted.as_ref(), &self.place, self.fresh_id)?;
        self.open_in(session, None, notices)
    }

    /// Serves a session whose lock we hold, maybe after another process of it.
    pub(super) fn open_in(
        &self,
        session: Session,
        before: Option<SessionState>,
        notices: &Notices,
    ) -> Result<OpenedSession, StoreError> {
        let bad = |error: NoGeneration| StoreError::taken_over(&session.dir, error);
        let (generation, own_run, writer, control) = match before {
            None => {
                let generation = session.next_generation()?;
                let writer = || self.writer(&session, generation.clone());
                let writer = (self.record == RecordKept::Yes).then(writer);
                (generation.clone(), generation.to_string(), writer, None)
            }
            Some(SessionState { generation, own_run, writer, control, .. }) => {
                let (dir, bounds, indexed) = (session.journal_dir.clone(), self.bounds, self.indexed_to.clone());
                let go_on = |state| Writer::taken_over(dir, state, bounds, indexed);
                let writer = writer.map(go_on).transpose().map_err(bad)?;
                (Generation::try_from(generation).map_err(bad)?, own_run, writer, control)
            }
        };
        if let Err(error) = open_log(&session.dir) {
            notices.report(&format!("open {}: {error}; this run has no log", session.dir.join("shim.log").display()));
        }
        let pid = std::process::id();
        tracing::info!(session = %session.id, %generation, pid, server = ?self.place.server, "relay started");
        let of_server = self.server_run.clone().unwrap_or_else(|| generation.to_string());
        let ledger = self.start_ledger(&session, (of_server.clone(), own_run.clone()), notices);
        if let Some(ledger) = &ledger {
            self.follow_pty(ledger.clone(), &session.dir, notices);
        }
        let index = match self.record {
            RecordKept::Yes => self.start_index(&session, ledger.clone(), notices),
            RecordKept::No => None,
        };
        let context_engine = self.start_context_engine(&session, index.clone(), notices);
        let stores = Stores { ledger: ledger.clone(), index: index.clone() };
        let control_socket = self.start_control((&session, &generation), control, stores, notices);
        if ledger.is_some() {
            self.outbox.try_post(Input::SessionOpened { generation: of_server });
        }
        notices.published.child_started(&generation.to_string(), self.child_pid);
        let session_id = session.id.clone();
        let session = Some(&*Box::leak(Box::new(session)));
        Ok(OpenedSession {
            writer: writer.map(Box::new),
            parts: SessionParts {
                session_id,
                generation: generation.to_string(),
                own_run,
                session,
                ledger,
                index,
                context_engine,
                control_socket,
            },
        })
    }

    fn start_ledger(&self, session: &Session, (of_server, own): (String, String), notices: &Notices) -> Option<Ledger> {
        let outbox = self.outbox.clone();
        let ids = (session.id.clone(), of_server, own);
        let started = Ledger::start(&session.dir, ids, move |input| outbox.post(input), notices.reporter());
        notices.started(started, "the ledger", "relaying goes on without it")
    }

    /// Adds the commands run in an `agent_pty`, if one is configured, to the ledger. A hub asks itself for its threads, as tools do.
    fn follow_pty(&self, ledger: Ledger, session_dir: &Path, notices: &Notices) {
        let Some((path, whose)) = &self.watched else { return };
        let bounds = self.context_bounds;
        let watch = Watch::new(path, *whose, bounds);
        let (published, report) = (Arc::clone(&notices.published), notices.reporter());
        let (scope, session_dir) = (self.scope, session_dir.to_path_buf());
        let follow = move || {
            watch.follow(
                |commands| {
                    let bounds = published.context_bounds().unwrap_or(bounds);
                    let commands = match scope {
                        None => commands.to_vec(),
                        Some(scope) => for_threads(&session_dir, commands, scope)?,
                    };
                    let commands = new_commands(commands, SystemTime::now(), &bounds)?;
                    ledger.push_context_blocking(commands).map(|_| ()).map_err(|error| error.to_string())
                },
                |why| report(&format!("{why}; relaying goes on")),
            );
        };
        let started = std::thread::Builder::new().name("watch-pty".to_owned()).spawn(follow);
        notices.started(started, &path.display().to_string(), "its commands are not recorded");
    }

    /// Starts the index. It reserves its numbers in the ledger.
    fn start_index(&self, session: &Session, ledger: Option<Ledger>, notices: &Notices) -> Option<Index> {
        let settings = IndexSettings {
            session_id: session.id.clone(),
            session_dir: session.dir.clone(),
            journal_dir: session.journal_dir.clone(),
            retention: self.retention,
            transcript_files: self.transcript_files,
            home: self.home.clone(),
            indexed_to: self.indexed_to.clone(),
        };
        let marks: Marks = Box::new(move |wanted_numbers| {
            let ledger = ledger.as_ref().ok_or_else(|| "there is no ledger to reserve numbers in".to_owned())?;
            ledger.reserve_seq(wanted_numbers, RESERVE_WAIT_MAX).map_err(|error| error.to_string())
        });
        let (outbox, report) = (self.outbox.clone(), notices.reporter());
        let tell: Notify = Box::new(move |notice| match notice {
            IndexNotice::Failed(why) => {
                report(&format!("{why}; relaying and recording go on, and the index catches up once it can"));
            }
            // The ledger reports its own fault.
            IndexNotice::AwaitsLedger(why) => tracing::warn!("the index waits: {why}"),
            IndexNotice::SetAside(kept) => {
                let kept = kept.display();
                report(&format!("history.db was damaged; it is kept as {kept} and rebuilt from the journal"));
            }
            IndexNotice::TranscriptFailed(why) => {
                report(&format!("{why}; the file is completed once that is possible; nothing else is affected"));
            }
            IndexNotice::ClockJumped(Jump { is_ahead, by }) => {
                let (by, way) = (
                    humantime::format_duration(Duration::from_secs(by.as_secs())),
                    if is_ahead { "ahead" } else { "back" },
                );
                report(&format!(
                    "the clock was set {way} by {by}; nothing is deleted because of its age until tomorrow"
                ));
            }
            IndexNotice::Recovered => outbox.post(Input::IndexRecovered),
        });
        let index = notices.started(Index::start(settings, marks, tell), "the index", "this run has no history")?;
        let watched =
            stalled::start(self.stalls.clone(), index.clone(), session.journal_dir.clone(), session.id.clone());
        notices.started(watched, "stalled turns", "on_stalled does not run");
        Some(index)
    }

    /// Starts the user's context engine, if one is configured.
    fn start_context_engine(
        &self,
        session: &Session,
        index: Option<Index>,
        notices: &Notices,
    ) -> Option<ContextEngine> {
        let permit = self.guard.permit(|_| deciders::CONTEXT_ENGINE.to_owned());
        let settings = WorkerSettings { engine: self.context_engine.clone()?, session_id: session.id.clone(), permit };
        let conversations = Conversations::new(&session.dir, &session.journal_dir, index);
        let outbox = self.outbox.clone();
        let post = Box::new(move |input| outbox.post(input));
        let started = ContextEngine::start(settings, conversations, post, notices.reporter());
        notices.started(started, "the context engine", "turns go on without it")
    }

    fn start_control(
        &self,
        (session, generation): (&Session, &Generation),
        before: Option<EndpointState>,
        stores: Stores,
        notices: &Notices,
    ) -> Option<ControlSocket> {
        const WITHOUT: &str = "relaying goes on without a control socket";
        let info = SessionInfo {
            session_id: session.id.clone(),
            session_dir: session.dir.clone(),
            journal_dir: session.journal_dir.clone(),
            generation: generation.to_string(),
            started_at: SystemTime::now(),
            runtime_dir: self.runtime_dir.clone(),
            context_bounds: self.context_bounds,
            callers: Callers::new(&self.trusted_cgroups, Some(self.child_pid)),
        };
        let (published, report) = (Arc::clone(&notices.published), notices.reporter());
        let report = move |fault: SocketFault<'_>| match fault {
            SocketFault::Began(what) => report(&format!("{what}; {WITHOUT}")),
            SocketFault::Ended(what) => published.fault_ended(&format!("{what}; {WITHOUT}")),
        };
        let outbox = self.outbox.clone();
        let ask: control::Ask = Box::new(move |request| outbox.forward(request));
        control::start(info, before, Arc::clone(&notices.published), stores, ask, report)
            .map_err(|error| notices.report(&format!("{error}; {WITHOUT}")))
            .ok()
    }

    pub(super) fn writer(&self, session: &Session, generation: Generation) -> Writer {
        let header = Header {
            journal: FORMAT,
            session: session.id.clone(),
            generation: generation.to_string(),
            segment: 0,
            at: 0,
            argv: self.place.server.clone(),
            cwd: self.place.cwd.clone(),
            codex: ServerOrigin { path: self.codex_path.clone() },
            adopted: self.adopted,
            shim: env!("CARGO_PKG_VERSION").to_owned(),
            previous: Previous::of_end(&session.journal_dir),
        };
        Writer::new(session.journal_dir.clone(), generation, header, self.bounds, self.indexed_to.clone())
    }
}
