//! Checks the server that all clients can share: which process answers where codex looks for a server, who is connected to the hub,
//! and which clients bypass it.
//!
//! A look at a socket is a handshake without a message, which a server takes for a probe.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::drift_tool::Outlook;
use super::super::hub_tool::{Fault, Hub, Status, bypass_line, bypasses};
use super::super::screen::counted;
use super::super::select_session;
use super::super::wrap::{self, Look};
use super::codex::{self, Ran};
use super::{Check, VERSION_WAIT_MAX};
use crate::api::{self, ClientDocument, SessionDocument};
use crate::config::{Environment, ServerChoice, Settings};
use crate::control::client;
use crate::engine::OWN_NAME;
use crate::hub::bypass::Bypass;
use crate::hub::sockets::{Answerer, answerer, default_socket};
use crate::hub::{self, Front};
use crate::os::processes::{self, ProcessIdentity};
use crate::store::{Found, label};

/// How long a server may take to answer a handshake. Codex itself waits about 15 s, and exits then.
const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(3);

/// Most clients that are named.
const NAMED_MAX: usize = 8;

const SERVER: &str = "shared server";
const CLIENTS: &str = "hub clients";
const HUB: &str = "hub";
const BYPASS: &str = "bypass";
const ENVIRONMENT: &str = "environment";

const START: &str = "start a hub with `codex-shim hub start`";

/// What the checks need to know.
struct Ground<'a> {
    settings: &'a Settings,
    home: &'a Path,
    sessions: Vec<Found>,
    /// What `wrap` has made, and not been changed since.
    wraps: Vec<Look>,
    /// Resolved.
    codex_home: PathBuf,
}

pub(super) fn checks(settings: &Settings, environment: &Environment, checks: &mut Vec<Check>) {
    let Some(home) = &settings.home.value else { return };
    let codex_home = environment.codex_home_resolved();
    let ground = Ground {
        settings,
        home,
        // If they cannot be read, another check says so.
        sessions: select_session::all_quietly(environment).unwrap_or_default(),
        wraps: wrap::looks(home).unwrap_or_default(),
        codex_home: codex_home.clone(),
    };
    let socket = default_socket(&codex_home);
    let hub = ground.hub();
    let found = answerer(&codex_home, home);
    let answers = matches!(found, Ok(Some(_)));
    let faults = hub.map(|hub| Status::of(&Hub { found: hub.clone() }, environment).faults).unwrap_or_default();
    let (of_socket, others): (Vec<Fault>, Vec<Fault>) =
        faults.into_iter().partition(|fault| fault.socket.as_ref() == Some(&socket));
    let broken = |name, fault: &Fault| Check::broken(name, &*fault.what, &*fault.remedy);
    checks.push(match (of_socket.first(), found) {
        (Some(fault), _) => broken(SERVER, fault),
        (None, Ok(Some(by))) => ground.answered(&by, &socket),
        (None, Ok(None)) => ground.silent(&socket, hub),
        (None, Err(error)) => Check::note(SERVER, error.to_string(), "correct that before you start a hub"),
    });
    if let Some(hub) = hub {
        checks.push(connected(hub));
        checks.extend(drift(hub, settings, environment));
        checks.extend(ground.other_path(hub));
    }
    checks.extend(others.iter().map(|fault| broken(HUB, fault)));
    if hub.is_some() || answers || ground.is_wanted() {
        checks.extend(ground.bypasses(bypasses(hub.map(|found| Hub { found: found.clone() }).as_ref(), environment)));
    }
}

impl Ground<'_> {
    /// The hub that runs for this `CODEX_HOME`: the one without a name, as clients do, before one with a name.
    fn hub(&self) -> Option<&Found> {
        let place = |session: &&Found| session.holder.as_ref().map(|holder| holder.place.clone());
        let is_its = |session: &&Found| {
            session.live && place(session).is_some_and(|place| hub::is_hub_for(&place, &self.codex_home))
        };
        let its = self.sessions.iter().filter(is_its);
        its.min_by_key(|session| place(session).is_some_and(|place| hub::has_name(&place)))
    }

    /// Whether the user has set something up that needs a hub.
    fn is_wanted(&self) -> bool {
        let is_of_hub = |look: &Look| match look {
            Look::AtLogin(..) => true,
            Look::AsMade(made) => made.is_shared,
            Look::Broken(_) | Look::Changed(..) => false,
        };
        self.settings.server.value == ServerChoice::Shared || self.wraps.iter().any(is_of_hub)
    }

    /// A process listens on the socket.
    fn answered(&self, by: &Answerer, socket: &Path) -> Check {
        let (at, who) = (socket.display(), by.to_string().replacen("another ", "a ", 1));
        if let Err(error) = Front::join(socket, None, Duration::ZERO, Instant::now() + HANDSHAKE_WAIT_MAX) {
            tracing::debug!(%error, "look at the shared server");
            let found = format!("{who} listens on {at} and does not answer; codex waits there for 15 s, and exits");
            return Check::broken(SERVER, found, by.remedy());
        }
        let version = |version: Option<String>| version.map(|version| format!(", {version}")).unwrap_or_default();
        match by {
            Answerer::Hub { session: Some(session), .. } => match document(&self.home.join("sessions").join(session)) {
                Some(document) => {
                    let codex = document.hub.and_then(|hub| hub.server.version);
                    let codex = codex.map(|version| format!("codex {version}"));
                    Check::ok(SERVER, format!("{who} answers on {at}{}", version(codex)))
                }
                None => {
                    let found = format!("{who} answers on {at}, but its control socket does not");
                    let of_hub = self.sessions.iter().find(|found| found.id == *session);
                    let place = of_hub.and_then(|found| Some(&found.holder.as_ref()?.place));
                    let command = place.map_or_else(
                        || "codex-shim hub restart".to_owned(),
                        |place| hub::command("restart", place, session),
                    );
                    Check::broken(SERVER, found, format!("replace it with `{command}`, which keeps its server"))
                }
            },
            Answerer::Hub { session: None, .. } => {
                Check::note(SERVER, format!("{who} with another CODEX_SHIM_HOME answers on {at}"), by.remedy())
            }
            Answerer::Daemon { pid } | Answerer::Server { pid } => {
                self.unshared(format!("{who} answers on {at}{}", version(version_of(*pid))), &by.remedy())
            }
            Answerer::Other { .. } => self.unshared(format!("{who} answers on {at}"), &by.remedy()),
        }
    }

    /// Nothing listens on the socket.
    fn silent(&self, socket: &Path, hub: Option<&Found>) -> Check {
        let at = socket.display();
        match hub {
            Some(hub) => {
                let found = format!("nothing answers on {at}; the hub (session {}) listens only in its folder", hub.id);
                Check::ok(SERVER, found)
            }
            None => self.unshared(format!("nothing answers on {at}"), ""),
        }
    }

    /// No hub answers, which is a finding if something needs one.
    fn unshared(&self, found: String, remedy: &str) -> Check {
        match self.is_wanted() {
            false => Check::ok(SERVER, found),
            true if remedy.is_empty() => Check::note(SERVER, format!("{found}; it is set up for a hub"), START),
            true => Check::note(SERVER, format!("{found}; it is set up for a hub"), format!("{remedy}, and {START}")),
        }
    }

    /// A client whose commands are looked up on another `PATH` than it has itself.
    fn other_path(&self, hub: &Found) -> Option<Check> {
        let passes = |name: &&String| *name == "PATH";
        if self.settings.hub.environment.value.iter().flatten().any(|name| passes(&name)) {
            return None;
        }
        let path = |pid| Environment::of_variables(&processes::environment(pid)?).get("PATH");
        let hub = document(&hub.dir)?.hub?;
        let of_server = path(hub.server.pid)?;
        let other = hub
            .connections
            .iter()
            .find(|connection| connection.pid.and_then(path).is_some_and(|path| path != of_server))?;
        let client = other.client.name.as_deref().unwrap_or("a client");
        let place = other.terminal.as_ref().map(|terminal| format!(" ({terminal})")).unwrap_or_default();
        Some(Check::note(
            ENVIRONMENT,
            format!("commands of {client}{place} run with the PATH of the server, which is another one"),
            "`environment = [\"PATH\", \"VIRTUAL_ENV\"]` below `[hub]` in config.toml passes that of the client, and rules then accept nothing in such threads; see `codex-shim docs hub`",
        ))
    }

    /// The clients that have a server of their own beside the shared one.
    fn bypasses(&self, unrecorded: Vec<Bypass>) -> Vec<Check> {
        let is_shared = self.settings.server.value == ServerChoice::Shared;
        let wraps = self.wraps.iter().filter_map(|look| match look {
            Look::AsMade(made) if !made.is_shared && !is_shared => Some(Check::note(
                BYPASS,
                format!("{}: each client there has a server of its own", made.place),
                format!("`codex-shim wrap {} --shared` lets them join the hub", made.name),
            )),
            Look::AsMade(_) | Look::AtLogin(..) | Look::Broken(_) | Look::Changed(..) => None,
        });
        let mut checks: Vec<Check> = wraps.collect();
        let is_own = |session: &&Found| {
            let place = session.holder.as_ref().map(|holder| &holder.place);
            session.live
                && place.is_some_and(|place| {
                    let is_app_server = place.server.iter().any(|word| word == "app-server");
                    is_app_server
                        && !hub::is_hub(place)
                        && !is_served(session)
                        && place.codex_home_resolved() == self.codex_home
                })
        };
        let own: Vec<String> = self.sessions.iter().filter(is_own).map(label).collect();
        if let Some(count) =
            counted(own.len() as u64, "client has a server of its own", "clients have a server of their own")
        {
            checks.push(Check::note(
                BYPASS,
                format!("{count}: {}", named(&own)),
                "restart them to join the hub; one with options such as `-c` always has its own server",
            ));
        }
        let unrecorded = unrecorded.iter().take(NAMED_MAX);
        checks.extend(unrecorded.map(|bypass| {
            let found = format!("no record has the threads of {}", bypass_line(bypass, None));
            Check::note(BYPASS, found, &*bypass.remedy)
        }));
        if checks.is_empty() {
            checks.push(Check::ok(BYPASS, "no client that codex-shim knows of has a server of its own"));
        }
        checks
    }
}

/// Whether a session is one of `serve`, which no hub can replace: clients attach to its server through codex-shim.
fn is_served(session: &Found) -> bool {
    let Some(holder) = &session.holder else { return false };
    let command = ProcessIdentity::of(holder.pid).map(|process| process.arguments()).unwrap_or_default();
    // While nobody is attached, codex-shim itself is the client.
    holder.client.as_deref() == Some(OWN_NAME) || command.get(1).is_some_and(|tool| tool == "serve")
}

/// The first names, and how many more there are.
fn named(names: &[String]) -> String {
    let first = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// The clients that are connected to a hub.
fn connected(hub: &Found) -> Check {
    let Some(document) = document(&hub.dir) else {
        return Check::note(CLIENTS, "the hub does not say who is connected", "see `codex-shim hub status`");
    };
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for connection in document.hub.iter().flat_map(|hub| &hub.connections) {
        let ClientDocument { name, version } = &connection.client;
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        let name = format!("{} {}", word(name), word(version)).trim().to_owned();
        *counts.entry(format!("{name} over {}", connection.transport)).or_default() += 1;
    }
    let names: Vec<String> = counts.into_iter().map(|(name, count)| format!("{count} × {name}")).collect();
    match names.is_empty() {
        true => Check::ok(CLIENTS, "none is connected"),
        false => Check::ok(CLIENTS, named(&names)),
    }
}

/// The state of a hub, by its control socket.
fn document(session: &Path) -> Option<SessionDocument> {
    client::ask(session, &api::State, client::ANSWER_WAIT_MAX).ok()
}

/// The outlook for the clients if another codex was installed since the server started.
fn drift(hub: &Found, settings: &Settings, environment: &Environment) -> Option<Check> {
    let outlook = Outlook::of(&document(&hub.dir)?.hub?.server.version?, settings, environment)?;
    let told = outlook.in_one_line();
    Some(match outlook.breaks() {
        true => Check::note("drift", told, "`codex-shim drift` says which calls fail; update these clients"),
        false => Check::ok("drift", told),
    })
}

/// The version of the codex that runs in a process.
fn version_of(pid: u32) -> Option<String> {
    let program = ProcessIdentity::of(pid)?.program()?;
    match codex::run(Command::new(program).arg("--version"), VERSION_WAIT_MAX) {
        Ran::Well(version) => Some(version),
        Ran::Badly(_) | Ran::TooSlow => None,
    }
}
