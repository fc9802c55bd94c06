//! Starting a relay: the child first, so that our own preparations cost it no time, then what we keep.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use super::child::{Server, Spawned};
use super::direction::Direction;
use super::event_loop::{Clock, Relay, Scratch};
use super::notices::Notices;
use super::pipes::{Sink, Source};
use super::signals::{self, Signals};
use crate::config::{Complaint, DEPTH_VARIABLE, Environment, Settings};
use crate::control::{self, Published, SocketFiles, Subject};
use crate::engine::{Engine, Exit, masked_args};
use crate::journal::{FORMAT, Generation, Header, ServerOrigin, Writer};
use crate::store::{Place, Session, StoreError, open_log};
use crate::wire::Side;

/// A server to start.
#[derive(Debug, Clone)]
pub struct ServerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its name as the caller gave it, which becomes its `argv[0]`.
    pub name: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// How many of us stand before it, with this one.
    pub depth: u32,
}

impl ServerCommand {
    pub(super) fn to_process(&self) -> Command {
        let mut process = Command::new(&self.program);
        process.arg0(&self.name).args(&self.args).env(DEPTH_VARIABLE, self.depth.to_string());
        process
    }

    /// The whole command line, secrets masked.
    fn told(&self) -> Vec<String> {
        let program = [self.program.to_string_lossy().into_owned()];
        program.into_iter().chain(masked_args(&self.args)).collect()
    }
}

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
    let published = Arc::new(Published::default());
    let notices = Notices::new(Arc::clone(&published));
    let (journal, socket_files) = match open_session(command, settings, environment) {
        Ok(opened) => {
            let socket_files = start_control(&opened, server.pid(), environment, &published, &notices);
            // The lock is never dropped: the process holds it to its end, whichever that is.
            std::mem::forget(opened.session);
            (opened.journal, socket_files)
        }
        Err(error) => {
            notices.say(&format!("{error}; relaying goes on, nothing is recorded"));
            (None, None)
        }
    };
    for complaint in complaints {
        notices.say(&complaint.to_string());
    }
    let relay = Relay {
        clock,
        engine: Engine::new(settings.exit_grace.value),
        journal,
        notices,
        published,
        socket_files,
        signals,
        server,
        reaped: false,
        from_client,
        from_server,
        drain: None,
        feeder: None,
        scratch: Scratch::default(),
    };
    Ok(relay.run())
}

/// The session that a start belongs to.
struct Opened {
    session: Session,
    generation: Generation,
    /// Where one is kept.
    journal: Option<Writer>,
}

/// Finds the session that this start belongs to.
fn open_session(command: &ServerCommand, settings: &Settings, environment: &Environment) -> Result<Opened, StoreError> {
    let Some(home) = &settings.home.value else {
        let source = io::Error::new(io::ErrorKind::NotFound, "neither CODEX_SHIM_HOME nor HOME is set");
        return Err(StoreError::Io { action: "find", path: "the state folder".into(), source });
    };
    let cwd = std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
    let codex_home = environment.codex_home().to_string_lossy().into_owned();
    let place = Place { cwd, codex_home, server: command.told() };
    let session = Session::open(home, settings.session.value.as_ref(), &place)?;
    if let Err(source) = open_log(&session.dir) {
        return Err(StoreError::Io { action: "open", path: session.dir.join("shim.log"), source });
    }
    let generation = session.next_generation()?;
    tracing::info!(session = %session.id, %generation, pid = std::process::id(), server = ?place.server, "relay started");
    let journal = settings.record.value.then(|| {
        let header = Header {
            journal: FORMAT,
            session: session.id.clone(),
            generation: generation.to_string(),
            segment: 0,
            at: 0,
            argv: place.server,
            cwd: place.cwd,
            codex: ServerOrigin { path: command.program.to_string_lossy().into_owned() },
            shim: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Writer::new(session.journal_dir.clone(), generation.clone(), header, settings.journal_bounds())
    });
    Ok(Opened { session, generation, journal })
}

/// Has a thread answer at the control socket, and waits for nothing of it.
fn start_control(
    opened: &Opened,
    child_pid: u32,
    environment: &Environment,
    published: &Arc<Published>,
    notices: &Notices,
) -> Option<SocketFiles> {
    const WITHOUT: &str = "relaying goes on without a control socket";
    let subject = Subject {
        session_id: opened.session.id.clone(),
        session_dir: opened.session.dir.clone(),
        journal_dir: opened.session.journal_dir.clone(),
        generation: opened.generation.to_string(),
        child_pid,
        started_at: SystemTime::now(),
        runtime_dir: environment.runtime_dir(),
    };
    let for_thread = Arc::clone(published);
    let say_fault = move |what: &str| Notices::new(for_thread).say(&format!("{what}; {WITHOUT}"));
    match control::start(subject, Arc::clone(published), say_fault) {
        Ok(files) => Some(files),
        Err(error) => {
            notices.say(&format!("{error}; {WITHOUT}"));
            None
        }
    }
}
