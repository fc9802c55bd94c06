//! Starts a relay: the child first, so that our own setup does not delay it, then the session.

use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::child::{Server, Spawned};
use super::command::ServerCommand;
use super::direction::Direction;
use super::event_loop::{Clock, Relay, Scratch};
use super::follow_pty::Watched;
use super::hooks::Hooks;
use super::inbox::{self, ApiCallers};
use super::notices::Notices;
use super::opening::{Opening, RecordKept};
use super::pipes::{Sink, Source};
use super::recorder::Recorder;
use super::reload;
use super::serve_loop::{Lifecycle, PauseEnd, Wanted};
use super::signals::Signals;
use crate::capture::Whose;
use crate::config::{Complaint, Environment, Settings};
use crate::context_engine::FragmentReader;
use crate::control::Published;
use crate::engine::{Engine, EngineSettings, Exit, Input, ServerOwner, Token};
use crate::index::TranscriptFiles;
use crate::journal::IndexedTo;
use crate::launch;
use crate::store::Place;
use crate::wire::Side;

#[derive(Debug)]
pub(crate) enum RelayError {
    Start {
        program: PathBuf,
        source: io::Error,
    },
    /// A pipe or a signal handler could not be set up.
    SetUp {
        what: &'static str,
        source: io::Error,
    },
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayError::Start { program, source } => write!(f, "start {}: {source}", program.display()),
            RelayError::SetUp { what, source } => write!(f, "set up {what}: {source}"),
        }
    }
}

impl std::error::Error for RelayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RelayError::Start { source, .. } | RelayError::SetUp { source, .. } => Some(source),
        }
    }
}

/// Replaces this process with `command`; returns only if that fails.
#[must_use]
pub(crate) fn become_server(command: &ServerCommand) -> RelayError {
    let source = command.to_process(&[0, 1, 2]).exec();
    RelayError::Start { program: command.program.clone(), source }
}

/// Relays between our stdin and stdout and `command` until that has ended. Reports `complaints` on stderr.
///
/// Call this from a thread that is_alive as long as the process: on Linux the child is killed with it.
///
/// # Errors
///
/// If the server could not be started; nothing has been read or written then.
pub(crate) fn run(
    command: &ServerCommand,
    settings: &Settings,
    environment: &Environment,
    complaints: &[Complaint],
) -> Result<Exit, RelayError> {
    let stdio = || -> Result<(Source, Sink), RelayError> {
        Ok((Source::stdin().map_err(set_up("stdin"))?, Sink::stdout().map_err(set_up("stdout"))?))
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

/// Runs `command` without a client on stdin and stdout: the relay initializes the server, API callers drive it through
/// the control socket, clients attach to it, and it is restarted if it ends by itself. Returns after a signal.
///
/// Call this from a thread that is_alive as long as the process.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn serve(
    command: &ServerCommand,
    settings: &Settings,
    environment: &Environment,
    complaints: &[Complaint],
) -> Result<Exit, RelayError> {
    let ends = |input, output| Ok((Direction::without_client_input(input), Direction::without_client_output(output)));
    let mut relay = prepare(command, settings, environment, complaints, ServerOwner::Relay, ends)?;
    relay.lifecycle = Lifecycle::Served { wanted: Wanted::Started, runs: true, signalled: false, waiting: Vec::new() };
    if let Some(id) = relay.recorder.session_id() {
        // Only the user needs the name to reach the session; a client does not.
        if let Some(wanted) = settings.session.value.as_ref().filter(|wanted| wanted.to_string() != id) {
            relay.notices.info(&format!(
                "session {wanted} is already in use by another codex-shim; this one is session {id}: `codex-shim status {id}`"
            ));
        }
        relay.notices.info(&format!(
            "serving session {id}; to reach it: `codex-shim send --session {id} --new TEXT`, `codex-shim tui {id}`, or \
             `codex-shim attach {id}` in place of `codex app-server`"
        ));
    }
    let mut back_off = BACK_OFF_MIN;
    loop {
        let began = relay.clock.now().elapsed;
        let exit = relay.run();
        let Lifecycle::Served { wanted, runs, signalled, .. } = &mut relay.lifecycle else {
            unreachable!("BUG: it was set above, and nothing changes the kind");
        };
        *runs = false;
        let (wanted, signalled) = (*wanted, *signalled);
        if wanted == Wanted::Stopped {
            relay.reply_to_waiting();
        }
        if signalled {
            relay.finish();
            return Ok(exit);
        }
        let pause_end = match wanted {
            Wanted::Stopped => relay.pause(None),
            Wanted::Started => {
                if relay.clock.now().elapsed - began >= BACK_OFF_FORGOTTEN_AFTER {
                    back_off = BACK_OFF_MIN;
                }
                relay.notices.report(&format!("the server has ended with {exit}; it restarts in {back_off:?}"));
                let pause_end = relay.pause(Some(back_off));
                back_off = (back_off * 2).min(BACK_OFF_MAX);
                pause_end
            }
        };
        if pause_end == PauseEnd::Signalled {
            relay.finish();
            return Ok(exit);
        }
        if matches!(relay.lifecycle, Lifecycle::Served { wanted: Wanted::Stopped, .. }) {
            // An API caller stopped the server during the back-off.
            relay.reply_to_waiting();
            if relay.pause(None) == PauseEnd::Signalled {
                relay.finish();
                return Ok(exit);
            }
        }
        let Spawned { server, input, output } = spawn(command)?;
        // A late report of the ledger on the previous run must not match a token of this one.
        let mut engine = engine(&relay.settings, ServerOwner::Relay, Uuid::now_v7(), relay.engine.last_token());
        // The context engine outlives the server.
        let owns = Input::OwnsCompaction(relay.engine.owns_compaction());
        engine.handle(relay.clock.now(), owns, &mut Vec::new());
        drop(relay.recorder.take_refused());
        let (from_client, from_server) = ends(input, output)?;
        if let Err(error) = relay.recorder.next_run(server.pid()) {
            relay.notices.report(&error.to_string());
        }
        (relay.server, relay.engine, relay.from_client, relay.from_server) = (server, engine, from_client, from_server);
        (relay.client_disconnected, relay.output_waits, relay.drain) = (false, false, None);
        relay.server_started();
    }
}

/// Initial delay before a server that ended by itself is restarted.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);

const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// A run of this length resets the back-off.
const BACK_OFF_FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

fn set_up(what: &'static str) -> impl FnOnce(io::Error) -> RelayError {
    move |source| RelayError::SetUp { what, source }
}

fn spawn(command: &ServerCommand) -> Result<Spawned, RelayError> {
    Server::spawn(command).map_err(|source| RelayError::Start { program: command.program.clone(), source })
}

fn engine(settings: &Settings, server_owner: ServerOwner, fresh_id: Uuid, tokens_before: Token) -> Engine {
    Engine::new(EngineSettings {
        exit_grace: settings.exit_grace.value,
        context: settings.context(),
        assembly: settings.assembly(),
        requests: settings.requests(),
        server_owner,
        own_ids: own_ids(fresh_id),
        tokens_before,
    })
}

/// Starts the child and opens the session. `ends` makes the two directions of its stdin and stdout.
fn prepare(
    command: &ServerCommand,
    settings: &Settings,
    environment: &Environment,
    complaints: &[Complaint],
    server_owner: ServerOwner,
    ends: impl FnOnce(Sink, Source) -> Result<(Direction, Direction), RelayError>,
) -> Result<Relay, RelayError> {
    launch::keep_descriptors();
    launch::ignore_file_size_signal();
    let clock = Clock::start();
    let signals = Signals::listen().map_err(set_up("signal handlers"))?;
    let Spawned { server, input, output } = spawn(command)?;
    let (from_client, from_server) = ends(input, output)?;
    let (outbox, inbox) = inbox::inbox(signals.waker().map_err(set_up("a way to be woken"))?);
    let published = Arc::new(Published::default());
    let notices = Notices::new(Arc::clone(&published));
    let fresh_id = Uuid::now_v7();
    let opening = Opening {
        home: settings.home.value.clone(),
        wanted: settings.session.value.clone(),
        record: if settings.record.value { RecordKept::Yes } else { RecordKept::No },
        bounds: settings.journal_bounds(),
        retention: settings.retention(),
        transcript_files: if settings.transcript_files.value { TranscriptFiles::Kept } else { TranscriptFiles::None },
        indexed_to: IndexedTo::default(),
        place: place(command, environment),
        fresh_id,
        codex_path: command.program.to_string_lossy().into_owned(),
        child_pid: server.pid(),
        runtime_dir: environment.runtime_dir(),
        context_bounds: settings.context().bounds,
        watched: watched(settings),
        context_engine: settings.assembly().context_engine,
        outbox,
    };
    let recorder = Recorder::open(opening, Arc::clone(&published), &notices);
    if let Ok(outbox) = recorder.outbox() {
        reload::start(settings, complaints, outbox, &published, &notices);
    }
    for complaint in complaints {
        notices.report(&complaint.to_string());
    }
    Ok(Relay {
        clock,
        engine: engine(settings, server_owner, fresh_id, 0),
        recorder,
        notices,
        published,
        signals,
        inbox,
        lifecycle: Lifecycle::Client,
        callers: ApiCallers::default(),
        settings: settings.clone(),
        fragments: FragmentReader::new(settings.assembly().fragments),
        hooks: Hooks::new(settings.on_pending.value.clone(), settings.on_idle.value.clone()),
        server,
        from_client,
        from_server,
        client_disconnected: false,
        output_waits: false,
        exit_grace: settings.exit_grace.value,
        drain: None,
        feeder: None,
        scratch: Scratch::default(),
    })
}

/// The prefix of the ids of this run's own calls; the low 32 bits of a UUIDv7 are random.
fn own_ids(fresh_id: Uuid) -> String {
    format!("codex-shim:{:08x}:", fresh_id.as_u128() as u32)
}

/// The `agent_pty` events to follow.
fn watched(settings: &Settings) -> Option<Watched> {
    let whose = if settings.agent_pty_all.value { Whose::All } else { Whose::Users };
    settings.agent_pty.value.clone().map(|path| Watched { path, whose })
}

/// The properties by which the session of this start is found.
fn place(command: &ServerCommand, environment: &Environment) -> Place {
    let cwd = std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
    let codex_home = environment.codex_home().to_string_lossy().into_owned();
    Place { cwd, codex_home, server: command.masked() }
}
