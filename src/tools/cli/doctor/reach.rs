//! Checks whether a model can change what decides for the user: as the running relays have found, and for the folders in which
//! sessions were started.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::Check;
use crate::api;
use crate::config::{Environment, Settings};
use crate::control::client;
use crate::files::{Reach, Whose};
use crate::relay::{Deciders, Exposed, ServerEnvironment, is_exposure, locate};
use crate::store::{Found, short};

const NAME: &str = "reach";

/// How long the files may take to look at: one may be on a dead network drive.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(5);

const REMEDY: &str = "move it out of the folders in which models work; see `codex-shim docs rules`";

/// A row for each exposed file, or a single row that says that all is well.
pub(super) fn checks(settings: &Settings, environment: &Environment) -> Vec<Check> {
    let Some(home) = &settings.home.value else { return Vec::new() };
    let sessions = Found::all(home).unwrap_or_default();
    let mut checks: Vec<Check> =
        sessions.iter().filter(|session| session.live).flat_map(|of| live(of, &sessions)).collect();
    if checks.is_empty() {
        checks.extend(possible(settings, environment, &sessions));
    }
    if checks.is_empty() {
        checks.push(Check::ok(NAME, "no model can change what decides for you, as far as sessions tell"));
    }
    checks
}

/// The faults of a running relay.
fn live(session: &Found, all: &[Found]) -> Vec<Check> {
    let document = client::ask(&session.dir, &api::State, client::ANSWER_WAIT_MAX).ok();
    let faults = document.map(|document| document.faults).unwrap_or_default();
    let texts = faults.iter().map(|fault| &*fault.what);
    let found = |text: &str| format!("session {}: {text}", short(session, all));
    texts.filter(|text| is_exposure(text)).map(|text| Check::broken(NAME, found(text), REMEDY)).collect()
}

/// Files that a model could change which may write to a folder in which a session was started.
fn possible(settings: &Settings, environment: &Environment, sessions: &[Found]) -> Vec<Check> {
    let cwds =
        sessions.iter().filter_map(|session| session.holder.as_ref()).map(|holder| PathBuf::from(&holder.place.cwd));
    // A session that was started in `/` says nothing about its threads.
    let places: BTreeSet<PathBuf> = cwds.filter(|cwd| cwd.is_absolute() && cwd != Path::new("/")).collect();
    let codex = locate::codex(settings, environment).ok();
    let (codex, path) = codex.map(|codex| (codex.program, codex.path)).unzip();
    let (settings, ours) = (settings.clone(), ServerEnvironment::of(environment, None));
    let server = ServerEnvironment::of(environment, path.flatten());
    let (done, looked) = sync_channel(1);
    let look = move || {
        let reach = Reach::new(places, Whose::Models);
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let own = std::env::current_exe().ok();
        let (settings, codex, own) = (&settings, codex.as_deref(), own.as_deref());
        let deciders = Deciders { settings, codex, own, server: &server, ours: &ours, cwd: &cwd };
        let _ = done.send(deciders.exposed(&reach, |_| {}));
    };
    let started = std::thread::Builder::new().name("look".to_owned()).spawn(look);
    let exposed = started.ok().and_then(|_| looked.recv_timeout(LOOK_WAIT_MAX).ok());
    let note = |exposed: Exposed| {
        let Exposed { name, why, .. } = exposed;
        let found =
            format!("{name} lies where a session was started: {why}; a sandbox that writes there ends all accepts");
        Check::note(NAME, found, REMEDY)
    };
    match exposed {
        Some(exposed) => exposed.into_iter().map(note).collect(),
        None => vec![Check::note(NAME, "the files could not be looked at in time", "run `doctor` again")],
    }
}
