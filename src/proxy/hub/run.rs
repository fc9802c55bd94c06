//! The hub's run: takes the session and the sockets, adopts or starts the server, and serves until a signal ends it.
//!
//! The order matters. The default socket is claimed before anything else, since another hub or daemon there means that this one
//! must not start. It listens only once the server does, and the socket in the session folder comes last: whoever finds that one
//! answering knows that the hub is complete.

use super::options::{DefaultSocket, HubOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use uuid::Uuid;

use super::bypass;
use super::down::Down;
use super::entrances::{EntranceError, Entrances};
use super::handover::{self, Attempt, StateTaken};
use super::on_sockets::{Ending, Hub, Reach};
use super::process::{self, ServerError, ServerProcess, StartOptions};
use super::sockets::{Claim, ClaimError};
use crate::config::{Complaint, Environment};
use crate::driver::Host as _;
use crate::engine::{Engine, ServerOwner};
use crate::os::launch;
use crate::os::limits;
use crate::os::processes;
use crate::os::signals::Signals;
use crate::relay::{Clock, Core, CoreState, OfHub, RelayError, Start};
use crate::socket::Callers;
use crate::store::{Found, Session, StoreError};

/// Initial delay before a server that ended by itself is restarted.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);

const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// A run of this length resets the back-off.
const BACK_OFF_FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("cannot find the state folder: set HOME or CODEX_SHIM_HOME")]
    NoHome,
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Session(#[from] StoreError),
    /// A hub with a name has left its server running.
    #[error("{0}")]
    ServerLeft(String),
    #[error("session {0} is in use; see `codex-shim status {0}`, or choose another name")]
    SessionInUse(String),
    #[error(transparent)]
    Entrance(#[from] EntranceError),
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The program before has left nothing with which to go on.
    #[error("{0}")]
    NotTakenOver(String),
    /// The record of the earlier hub's server is missing.
    #[error("the record of the server is missing")]
    NoServer,
    #[error("set up {what}: {source}")]
    SetUp { what: &'static str, source: io::Error },
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// A model can change the server's program.
    #[error("{0}")]
    InReach(String),
}

/// Runs a hub until SIGTERM, SIGINT or SIGHUP. They leave the server running.
///
/// # Errors
///
/// Something else answers on the default socket, or the server could not be started.
pub fn run(options: HubOptions, environment: &Environment, complaints: &[Complaint]) -> Result<(), HubError> {
    let set_up = |what| move |source| HubError::SetUp { what, source };
    // Its descriptors are not those of our launcher.
    let before = options.state.map(handover::take_over);
    launch::keep_descriptors();
    launch::ignore_file_size_signal();
    // Each client takes two.
    if let Err(error) = limits::raise_descriptors() {
        tracing::info!(%error, "raise the limit of descriptors");
    }
    let home = options.settings.home.value.clone().ok_or(HubError::NoHome)?;
    let signals = Signals::listen(&[SIGTERM, SIGINT, SIGHUP, SIGCHLD]).map_err(set_up("signal handlers"))?;
    let start = HubStart { options: &options, environment, complaints, home: &home };
    let hub = match before {
        Some(Ok(before)) => Some(start.goes_on(before, signals)?),
        // Its sockets are open in this process, so only another one can begin anew.
        Some(Err(why)) => return Err(HubError::NotTakenOver(why)),
        None => start.begins(signals)?,
    };
    hub.map_or(Ok(()), |hub| serve(hub, &options))
}

/// The inputs of a start.
struct HubStart<'a> {
    options: &'a HubOptions,
    environment: &'a Environment,
    complaints: &'a [Complaint],
    home: &'a Path,
}

impl HubStart<'_> {
    /// Begins without connections; `None` if a signal came first.
    fn begins(&self, signals: Signals) -> Result<Option<Hub>, HubError> {
        let HubOptions { codex_home, default_socket, runtime_dir, .. } = self.options;
        let claim = match default_socket {
            DefaultSocket::Claimed => Some(Claim::take(codex_home, self.home, runtime_dir.as_deref())?),
            DefaultSocket::LeftAlone => None,
        };
        let session = open_session(self.options, self.home)?;
        let generation = session.next_generation()?.to_string();
        let Some(server) = adopt_or_start(self.options, &session.dir, &generation, &signals)? else { return Ok(None) };
        let entrances = Entrances::open(self.options, self.home, &session.dir, claim)?;
        let restart = self.restart(&session.id);
        let (core, callers) = self.core(session, &server, (Clock::start(), signals), None)?;
        let mut hub = Hub::new(core, server, entrances, callers, restart);
        hub.server_started();
        Ok(Some(hub))
    }

    /// Goes on with the connections of the hub that has run in this process before.
    fn goes_on(&self, before: StateTaken, signals: Signals) -> Result<Hub, HubError> {
        let StateTaken { core: before, links, listeners, is_adopted } = before;
        let inherited_children = processes::inherited_children();
        let place = super::place(&self.options.codex_home, self.options.session.as_ref());
        let (session_id, lock) = before.lock();
        let session = Session::taken_over(self.home, session_id.to_owned(), lock, &place)?;
        let server = process::taken_over(&session.dir, is_adopted).ok_or(HubError::NoServer)?;
        let entrances = Entrances::taken_over(self.options, self.home, &session.dir, listeners);
        let restart = self.restart(&session.id);
        let stood_still = before.age();
        let (mut core, callers) = self.core(session, &server, (before.clock(), signals), Some(before.into()))?;
        core.clients_changed(links.clients());
        tracing::info!(ms = stood_still.as_millis(), "took over from the program before");
        Ok(Hub::with_links(core, server, entrances, callers, (restart, links)).reaps(inherited_children))
    }

    /// The command that replaces the server. Its notices are read in any shell.
    fn restart(&self, session_id: &str) -> String {
        let place = super::place(&self.options.codex_home, self.options.session.as_ref());
        super::down::command_in(&self.environment.codex_home_by_default(), "restart --server", &place, session_id)
    }

    fn core(
        &self,
        session: Session,
        server: &ServerProcess,
        (clock, signals): (Clock, Signals),
        before: Option<Box<CoreState<Engine>>>,
    ) -> Result<(Core, Callers), HubError> {
        let HubStart { options, environment, complaints, home } = self;
        let session_id = session.id.clone();
        let start = Start {
            settings: &options.settings,
            environment,
            complaints,
            server_owner: ServerOwner::Hub,
            place: super::place(&options.codex_home, options.session.as_ref()),
            codex_path: options.command.program.to_string_lossy().into_owned(),
            child_pid: server.pid,
            server_path: options.command.path.clone(),
            hub: Some(OfHub { session, server_run: server.generation.clone(), adopted: server.adopted, before }),
        };
        let core = start.core(clock, signals)?;
        if let Err(error) =
            bypass::watch(core.bypass_watch(), options.codex_home.clone(), home.to_path_buf(), session_id)
        {
            core.notices.report(&format!("cannot look for what goes past the hub: {error}; on_bypass does not run"));
        }
        Ok((core, Callers::new(&options.settings.trusted_cgroups(), Some(server.pid))))
    }
}

/// Serves until a signal comes, and starts the server again whenever it has ended.
fn serve(mut hub: Hub, options: &HubOptions) -> Result<(), HubError> {
    let session_dir = hub.server.session_dir().to_owned();
    let session_dir = &*session_dir;
    let mut back_off = BACK_OFF_MIN;
    loop {
        let began = hub.core.clock.elapsed();
        match hub.run() {
            Ending::Signalled => {
                hub.finish();
                return Ok(());
            }
            Ending::HandOver => match hub.hand_over() {
                Attempt::Stays(same) => {
                    hub = *same;
                    continue;
                }
                Attempt::Signalled(same) => {
                    same.finish();
                    return Ok(());
                }
            },
            Ending::ServerEnded => {}
        }
        if hub.core.clock.elapsed() - began >= BACK_OFF_FORGOTTEN_AFTER {
            back_off = BACK_OFF_MIN;
        }
        let mut why = match hub.reach {
            Reach::SocketGone => "the server is replaced".to_owned(),
            Reach::Listening | Reach::Ended => {
                format!("the server has ended, see {}", session_dir.join(process::SERVER_LOG).display())
            }
        };
        hub.server_ended();
        loop {
            hub.core.notices.report(&format!("{why}; it restarts in {back_off:?}"));
            if hub.pause(back_off) {
                hub.finish();
                return Ok(());
            }
            back_off = (back_off * 2).min(BACK_OFF_MAX);
            match restart(options, session_dir, &mut hub) {
                Ok(Some(server)) => {
                    hub.next_server(server);
                    hub.server_started();
                    break;
                }
                Ok(None) => {
                    hub.finish();
                    return Ok(());
                }
                Err(error) => why = error.to_string(),
            }
        }
    }
}

/// Opens the session of the hub: the one with its name, or else the last one of a hub for this home without a name.
fn open_session(options: &HubOptions, home: &Path) -> Result<Session, HubError> {
    let place = super::place(&options.codex_home, options.session.as_ref());
    let wanted = match &options.session {
        Some(name) => Some(name.clone()),
        None => match last_session(home, &options.codex_home) {
            Some(found) if found.live => return Err(HubError::SessionInUse(found.id)),
            found => {
                if found.as_ref().is_none_or(|found| process::recorded(&found.dir).is_none()) {
                    refuse_second_server(home, &options.codex_home)?;
                }
                found.and_then(|found| found.id.parse().ok())
            }
        },
    };
    let session = Session::open(home, wanted.as_ref(), &place, Uuid::now_v7())?;
    match wanted.filter(|name| name.to_string() != session.id) {
        Some(name) => Err(HubError::SessionInUse(name.to_string())),
        None => Ok(session),
    }
}

/// A hub without a name never starts a second server for its home beside one that a hub with a name has left running. It does not
/// take that over by itself: whoever named it may not want it where codex looks for a server.
fn refuse_second_server(home: &Path, codex_home: &Path) -> Result<(), HubError> {
    let found = Found::all(home).unwrap_or_default();
    let mut of_home = found
        .iter()
        .filter(|found| found.holder.as_ref().is_some_and(|holder| super::is_hub_for(&holder.place, codex_home)));
    match of_home.find_map(|found| Some((found, Down::with_server(found)?))) {
        None => Ok(()),
        Some((found, down)) => {
            let (id, what, remedy) = (&found.id, down.what(), down.remedy());
            let stop = format!("`codex-shim hub stop --session {id}` ends it");
            Err(HubError::ServerLeft(format!("session {id} of this CODEX_HOME: {what}; {remedy}, and {stop}")))
        }
    }
}

/// The last session of a hub for this home without a name, however the home was spelled then; one whose server runs comes first.
fn last_session(home: &Path, codex_home: &Path) -> Option<Found> {
    let mut found = Found::all(home).unwrap_or_default();
    found.retain(|found| {
        let place = found.holder.as_ref().map(|holder| &holder.place);
        place.is_some_and(|place| super::is_hub_for(place, codex_home) && !super::has_name(place))
    });
    found.sort_by_key(|found| !found.live && process::recorded(&found.dir).is_none());
    found.into_iter().next()
}

/// Starts the server again; `None` if a signal came first.
fn restart(options: &HubOptions, session_dir: &Path, hub: &mut Hub) -> Result<Option<ServerProcess>, HubError> {
    hub.core.check_server_program().map_err(HubError::InReach)?;
    let generation = hub.core.recorder.next_generation()?;
    adopt_or_start(options, session_dir, &generation, &hub.core.signals)
}

/// Adopts the server of this session, or starts one; `None` if a signal came first.
fn adopt_or_start(
    options: &HubOptions,
    session_dir: &Path,
    generation: &str,
    signals: &Signals,
) -> Result<Option<ServerProcess>, HubError> {
    if let Some(server) = process::adopt(session_dir) {
        tracing::info!(pid = server.pid, version = ?server.version, "adopted the server");
        return Ok(Some(server));
    }
    let mut starting = process::start(StartOptions {
        command: options.command.clone(),
        session_dir: session_dir.to_owned(),
        codex_home: options.codex_home_is_set.then(|| options.codex_home.clone()),
        cwd: options.cwd.clone(),
        runtime_dir: options.runtime_dir.clone(),
        generation: generation.to_owned(),
    })?;
    loop {
        if let Some(server) = starting.poll()? {
            tracing::info!(pid = server.pid, version = ?server.version, "started the server");
            return Ok(Some(server));
        }
        if signals.take().iter().any(|signal| *signal != SIGCHLD) {
            return Ok(None);
        }
        std::thread::park_timeout(process::POLL_PAUSE);
    }
}
