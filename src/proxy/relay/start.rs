//! Starts a relay: the child first, so that our own setup does not delay it, then the session.

use super::core::{CoreState, bypass_settings, engine_settings, fragment_reader, stall_settings};
use super::hook_watch::HookWatch;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::budget::BudgetWatch;
use super::child::{SIGNALS, Server, ServerCommand, Spawned};
use super::core::{Clock, Core};
use super::direction::Direction;
use super::guard::{Environments, Guard};
use super::hooks::Hooks;
use super::inbox::{self, ApiCallers, Outbox};
use super::notices::Notices;
use super::on_pipes::Relay;
use super::pair::Pair;
use super::pipes::{PipeSource, Sink};
use super::program_check::ProgramChecker;
use super::recorder::Recorder;
use super::reload;
use super::serve::Lifecycle;
use super::server_environment::ServerEnvironment;
use super::session::{Opening, RecordKept};
use crate::capture::Whose;
use crate::config::{Complaint, ContextScope, Environment, Settings};
use crate::control::Published;
use crate::driver::Driver;
use crate::engine::{Engine, Exit, ServerOwner, broken_in_words};
use crate::index::TranscriptFiles;
use crate::journal::IndexedTo;
use crate::os::launch;
use crate::os::signals::Signals;
use crate::store::{Place, Session, StoreError};
use crate::wire::Side;

#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("start {}: {source}", .program.display())]
    Start { program: PathBuf, source: io::Error },
    /// A pipe or a signal handler could not be set up.
    #[error("set up {what}: {source}")]
    SetUp { what: &'static str, source: io::Error },
    /// The session of a hub.
    #[error(transparent)]
    Session(#[from] StoreError),
}

/// Replaces this process with `command`; returns only if that fails.
#[must_use]
pub fn become_server(command: &ServerCommand) -> RelayError {
    let source = command.to_process(&[0, 1, 2]).exec();
    RelayError::Start { program: command.program.clone(), source }
}

/// Relays between our stdin and stdout and `command` until that has ended. Reports `complaints` on stderr.
///
/// Call this from a thread that lives as long as the process: on Linux the child is killed with it.
///
/// # Errors
///
/// If the server could not be started; nothing has been read or written then.
pub fn run(
    command: &ServerCommand,
    settings: &Settings,
    environment: &Environment,
    complaints: &[Complaint],
) -> Result<Exit, RelayError> {
    let stdio = || -> Result<(PipeSource, Sink), RelayError> {
        Ok((PipeSource::stdin().map_err(set_up("stdin"))?, Sink::stdout().map_err(set_up("stdout"))?))
    };
    let ends = |input, output| {
        let (source, sink) = stdio()?;
        Ok((Direction::new(Side::Client, source, input), Direction::new(Side::Server, output, sink)))
    };
    let mut relay = prepare(command, settings, environment, complaints, ServerOwner::Client, ends)?;
    let exit = relay.run();
    relay.finish();
    Ok(exit)
}

pub(super) fn set_up(what: &'static str) -> impl FnOnce(io::Error) -> RelayError {
    move |source| RelayError::SetUp { what, source }
}

pub(super) fn spawn(command: &ServerCommand) -> Result<Spawned, RelayError> {
    Server::spawn(command).map_err(|source| RelayError::Start { program: command.program.clone(), source })
}

/// Starts the child and opens the session. `ends` makes the two directions of its stdin and stdout.
pub(super) fn prepare(
    command: &ServerCommand,
    settings: &Settings,
    environment: &Environment,
    complaints: &[Complaint],
    server_owner: ServerOwner,
    ends: impl FnOnce(Sink, PipeSource) -> Result<(Direction<PipeSource, Sink>, Direction<PipeSource, Sink>), RelayError>,
) -> Result<Relay, RelayError> {
    launch::keep_descriptors();
    launch::ignore_file_size_signal();
    let clock = Clock::start();
    let signals = Signals::listen(&SIGNALS).map_err(set_up("signal handlers"))?;
    let Spawned { server, input, output } = spawn(command)?;
    let (from_client, from_server) = ends(input, output)?;
    let start = Start {
        settings,
        environment,
        complaints,
        server_owner,
        place: place(command, environment),
        codex_path: command.program.to_string_lossy().into_owned(),
        child_pid: server.pid(),
        server_path: command.path.clone(),
        hub: None,
    };
    Ok(Relay {
        core: start.core(clock, signals)?,
        lifecycle: Lifecycle::Client,
        server,
        driver: Driver::new(Pair { from_client, from_server }),
        client_disconnected: false,
        output_waits: false,
        exit_grace: settings.exit_grace.value,
        drain: None,
        feeder: None,
        frames: Vec::new(),
    })
}

/// What a session is opened with.
pub struct Start<'a> {
    pub settings: &'a Settings,
    pub environment: &'a Environment,
    pub complaints: &'a [Complaint],
    pub server_owner: ServerOwner,
    pub place: Place,
    pub codex_path: String,
    pub child_pid: u32,
    /// The server's PATH, if it differs from ours.
    pub server_path: Option<OsString>,
    pub hub: Option<OfHub>,
}

/// The session of a hub, and its server.
pub struct OfHub {
    pub session: Session,
    /// The run of the server, which may be older than the hub: requests belong to that run.
    pub server_run: String,
    /// Another hub has started the server.
    pub adopted: bool,
    /// The state of the program that ran in this process before.
    pub before: Option<Box<CoreState<Engine>>>,
}

impl Start<'_> {
    /// Opens the session.
    pub fn core(self, clock: Clock, signals: Signals) -> Result<Core, RelayError> {
        let Start { settings, environment, complaints, server_owner, .. } = self;
        let has_many_clients = self.hub.is_some();
        let (outbox, inbox) = inbox::inbox(signals.waker().map_err(set_up("a way to be woken"))?);
        let published = Arc::new(Published::default());
        let notices = Notices::new(Arc::clone(&published));
        let fresh_id = Uuid::now_v7();
        published.stalls_after(settings.stalled_after.value);
        let environments = Environments {
            server: ServerEnvironment::of(environment, self.server_path.clone()),
            ours: ServerEnvironment::of(environment, None),
        };
        let codex = self.codex_path.clone().into();
        let guard = Guard::new(settings.clone(), environments, codex, Arc::clone(&published), outbox.clone());
        let hooks = Hooks::new(settings.on_pending.value.clone(), settings.on_idle.value.clone(), guard.clone());
        let before = self.hub.as_ref().and_then(|hub| hub.before.as_deref());
        // Before anything is started that a model might have changed.
        before.into_iter().for_each(|before| guard.learn(before.reach.clone()));
        let told = before.map(|before| (before.stalls.clone(), before.bypasses.clone()));
        let (told_of_stalls, told_of_bypasses) = told.unwrap_or_default();
        let stalls = HookWatch::new("on_stalled", stall_settings(settings), told_of_stalls, hooks.runner());
        let bypasses = HookWatch::new("on_bypass", bypass_settings(settings), told_of_bypasses, hooks.runner());
        let opening = self.opening(fresh_id, (stalls.clone(), guard.clone(), outbox));
        let of_engine = engine_settings(settings, server_owner, fresh_id, 0);
        let (recorder, engine) = match self.hub {
            None => (Recorder::open(opening, &notices), Engine::new(of_engine)),
            Some(OfHub { session, before: None, .. }) => {
                (Recorder::open_in(session, opening, None, &notices)?, Engine::new(of_engine))
            }
            Some(OfHub { session, before: Some(before), .. }) => {
                let CoreState { mut engine, arrival, session: session_before, published: published_before, .. } =
                    *before;
                arrival.iter().for_each(|sent| engine.check_arrival(sent));
                let recorder = Recorder::open_in(session, opening, Some(session_before), &notices)?;
                published.take_over(published_before);
                engine.taken_over(clock.now(), of_engine);
                engine.broken().into_iter().for_each(|name| notices.report(&broken_in_words(name)));
                published.context_waiting(engine.context_waiting() as u64);
                published.requests_pending(engine.requests_pending() as u64);
                recorder.publish_tally();
                (recorder, engine)
            }
        };
        reload::start(settings, complaints, recorder.outbox(), guard.clone(), &notices);
        for complaint in complaints {
            notices.report(&complaint.to_string());
        }
        Ok(Core {
            clock,
            engine,
            recorder,
            notices,
            published,
            signals,
            inbox,
            callers: ApiCallers::default(),
            settings: settings.clone(),
            fragments: fragment_reader(settings.assembly().fragments, &guard),
            programs: ProgramChecker::new(guard.clone()),
            budget: BudgetWatch::default(),
            guard,
            has_many_clients,
            introduced: false,
            reach_revision: 0,
            hooks,
            stalls,
            bypasses,
        })
    }

    /// The parameters of the session.
    fn opening(&self, fresh_id: Uuid, (stalls, guard, outbox): (HookWatch, Guard, Outbox)) -> Opening {
        let (settings, environment, hub) = (self.settings, self.environment, self.hub.as_ref());
        let whose = if settings.agent_pty_all.value { Whose::All } else { Whose::Users };
        Opening {
            home: settings.home.value.clone(),
            wanted: settings.session.value.clone(),
            record: if settings.record.value { RecordKept::Yes } else { RecordKept::No },
            bounds: settings.journal_bounds(),
            retention: settings.retention(),
            transcript_files: if settings.transcript_files.value {
                TranscriptFiles::Kept
            } else {
                TranscriptFiles::None
            },
            indexed_to: IndexedTo::default(),
            place: self.place.clone(),
            fresh_id,
            codex_path: self.codex_path.clone(),
            child_pid: self.child_pid,
            runtime_dir: environment.runtime_dir(),
            context_bounds: settings.context().bounds,
            trusted_cgroups: settings.trusted_cgroups(),
            watched: settings.agent_pty.value.clone().map(|path| (path, whose)),
            scope: Some(settings.context_scope.value)
                .filter(|scope| self.server_owner == ServerOwner::Hub && *scope != ContextScope::Session),
            context_engine: settings.assembly().context_engine,
            server_run: hub.map(|hub| hub.server_run.clone()),
            adopted: hub.is_some_and(|hub| hub.adopted),
            stalls,
            guard,
            outbox,
        }
    }
}

/// The properties by which the session of this start is found.
fn place(command: &ServerCommand, environment: &Environment) -> Place {
    let cwd = std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
    let codex_home = environment.codex_home().to_string_lossy().into_owned();
    Place { cwd, codex_home, server: command.masked() }
}
