//! Starting a relay: the child first, so that our own preparations cost it no time, then what we keep.

use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::child::{Server, Spawned};
use super::command::ServerCommand;
use super::direction::Direction;
use super::event_loop::{Clock, Relay, Scratch};
use super::hooks::Hooks;
use super::inbox::{self, Askers};
use super::notices::Notices;
use super::pipes::{Sink, Source};
use super::recorder::{Opening, RecordKept, Recorder};
use super::signals::{self, Signals};
use crate::config::{Complaint, Environment, Settings};
use crate::control::Published;
use crate::engine::{Engine, EngineSettings, Exit};
use crate::store::Place;
use crate::wire::Side;

/// Why a relay could not be started.
#[derive(Debug)]
pub enum RelayError {
    /// The server could not be started.
    Start {
        /// Its program.
        program: PathBuf,
        /// What came of it.
        source: io::Error,
    },
    /// A pipe or a signal handler of ours could not be set up.
    SetUp {
        /// What it was.
        what: &'static str,
        /// What came of it.
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

/// Becomes the server: this process goes on as `command`. Returns only where that fails.
#[must_use]
pub fn become_server(command: &ServerCommand) -> RelayError {
    let source = command.to_process().exec();
    RelayError::Start { program: command.program.clone(), source }
}

/// Relays between our stdin and stdout and `command` until that has ended. `complaints` are told on stderr.
///
/// Call this from the thread that lives as long as the process: on Linux the child is ended with it.
///
/// # Errors
///
/// [`RelayError`] where the server could not be started; nothing has been read or written then.
pub fn run(
    command: &ServerCommand,
    settings: &Settings,
    environment: &Environment,
    complaints: &[Complaint],
) -> Result<Exit, RelayError> {
    let set_up = |what| move |source| RelayError::SetUp { what, source };
    signals::ignore_file_size_signal();
    let clock = Clock::start();
    let signals = Signals::listen().map_err(set_up("signal handlers"))?;
    let Spawned { server, input, output } =
        Server::spawn(command).map_err(|source| RelayError::Start { program: command.program.clone(), source })?;
    let from_client = Direction::new(Side::Client, Source::stdin().map_err(set_up("stdin"))?, input);
    let from_server = Direction::new(Side::Server, output, Sink::stdout().map_err(set_up("stdout"))?);
    let (outbox, inbox) = inbox::inbox(signals.waker().map_err(set_up("a way to be woken"))?);
    let published = Arc::new(Published::default());
    let notices = Notices::new(Arc::clone(&published));
    let fresh_id = Uuid::now_v7();
    let context = settings.context();
    let opening = Opening {
        home: settings.home.value.clone(),
        wanted: settings.session.value.clone(),
        record: if settings.record.value { RecordKept::Yes } else { RecordKept::No },
        bounds: settings.journal_bounds(),
        place: place(command, environment),
        fresh_id,
        codex_path: command.program.to_string_lossy().into_owned(),
        child_pid: server.pid(),
        runtime_dir: environment.runtime_dir(),
        context_bounds: context.bounds,
        outbox,
    };
    let recorder = Recorder::open(opening, Arc::clone(&published), &notices);
    for complaint in complaints {
        notices.say(&complaint.to_string());
    }
    let relay = Relay {
        clock,
        engine: Engine::new(EngineSettings {
            exit_grace: settings.exit_grace.value,
            context,
            requests: settings.requests(),
            own_ids: own_ids(fresh_id),
        }),
        recorder,
        notices,
        published,
        signals,
        inbox,
        askers: Askers::default(),
        hooks: Hooks::new(settings.on_pending.value.clone(), settings.on_idle.value.clone()),
        uncommitted: Vec::new(),
        server,
        from_client,
        from_server,
        client_left: false,
        drain: None,
        feeder: None,
        scratch: Scratch::default(),
    };
    Ok(relay.run())
}

/// What the ids of this run's own calls begin with; the low 32 bits of a UUIDv7 are random.
fn own_ids(fresh_id: Uuid) -> String {
    format!("codex-shim:{:08x}:", fresh_id.as_u128() as u32)
}

/// What the session of this start is found by.
fn place(command: &ServerCommand, environment: &Environment) -> Place {
    let cwd = std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
    let codex_home = environment.codex_home().to_string_lossy().into_owned();
    Place { cwd, codex_home, server: command.told() }
}
