//! `codex-shim app-server` with `server = "shared"`: joins the hub of this `CODEX_HOME`, and starts one if none runs. A client
//! that a shared server does not suit, or that finds no hub, gets a server of its own, and a line on stderr says why.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use super::hub_tool::{Hub, HubFlags, LOOK_PAUSE, said_by, spawn};
use super::{CliError, Done, FAILED, relay_tools, say};
use crate::config::{Environment, Flags, ServerChoice, SessionName, Settings, Source};
use crate::hub::sockets::{CODEX_SOCKET, answerer};
use crate::hub::{self, Front, process};
use crate::relay::locate::Codex;
use crate::relay::{self, locate};

/// How long a client waits for a hub that starts.
const HUB_WAIT_MAX: Duration = Duration::from_secs(5);

/// Words that a shared server need not know: which transport this client uses, and a default for its analytics.
const WITHOUT_EFFECT: [&str; 4] = ["app-server", "--stdio", "--listen=stdio://", "--analytics-default-enabled"];

/// Options with a value of their own that a shared server need not know.
const WITHOUT_EFFECT_WITH_VALUE: [&str; 1] = ["--listen"];

/// Gives a client on stdin and stdout its server.
pub(super) fn run(codex_args: Vec<OsString>, environment: &Environment) -> Done {
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    if settings.off.value || choice(&settings, environment) == ServerChoice::Own {
        return relay_tools::relay_codex(codex_args, Flags::default(), relay::run, environment);
    }
    match join(&codex_args, &settings, environment) {
        Ok(front) => {
            complaints.iter().for_each(|complaint| say(&complaint.to_string()));
            front.run().map_err(|error| CliError::exits(FAILED, format!("set up stdin and stdout: {error}")))
        }
        Err(why) => {
            say(&format!("{why}; this client gets a server of its own"));
            relay_tools::relay_codex(codex_args, Flags::default(), relay::run, environment)
        }
    }
}

/// The server of this client: by a variable, by its wrap, or by the config file.
fn choice(settings: &Settings, environment: &Environment) -> ServerChoice {
    match settings.server.source {
        Source::Flag(_) | Source::Variable(_) => settings.server.value,
        Source::File | Source::Default if locate::is_shared(settings, environment) => ServerChoice::Shared,
        Source::File | Source::Default => settings.server.value,
    }
}

/// Joins the hub, or says why that is impossible.
fn join(codex_args: &[OsString], settings: &Settings, environment: &Environment) -> Result<Front, String> {
    if let Some(option) = option_of_own_server(codex_args) {
        return Err(format!("the shared server cannot take `{option}` from one client"));
    }
    let until = Instant::now() + HUB_WAIT_MAX;
    // An editor that was started from the desktop may have no PATH that leads to the codex pinned for it.
    let codex = locate::codex(settings, environment).map_err(|error| error.to_string())?;
    let (socket, started) = joinable(settings.session.value.as_ref(), codex, environment, until)?;
    Front::join(&socket, started, settings.exit_grace.value, until).map_err(|error| error.to_string())
}

/// The socket of the hub that a client on stdio joins, and the hub if this has started it. `session` may name one; otherwise it
/// is that of this `CODEX_HOME`. A hub that is started runs `codex`.
fn joinable(
    session: Option<&SessionName>,
    codex: Codex,
    environment: &Environment,
    until: Instant,
) -> Result<(PathBuf, Option<Child>), String> {
    let told = |error: CliError| error.to_string();
    if let Some(socket) = session.and_then(|session| named(session, environment)) {
        return socket.map(|socket| (socket, None));
    }
    let mut child: Option<Child> = None;
    loop {
        let running = running(environment).map_err(told)?;
        if let Some(hub) = running.as_ref().filter(|hub| hub.listening().is_some()) {
            // Its later notices are in its log.
            drop(child.as_mut().and_then(|child| child.stderr.take()));
            return Ok((hub.found.dir.join(CODEX_SOCKET), child));
        }
        match &mut child {
            None if running.is_none() => {
                let flags = flags_of_start(codex.program.clone(), environment).map_err(told)?;
                child = Some(spawn(&flags, codex.path.as_deref(), environment).map_err(told)?);
            }
            None => {}
            Some(started) => {
                let exited = started.try_wait().map_err(|error| format!("wait for the hub: {error}"))?;
                if let Some(status) = exited.filter(|_| running.is_none()) {
                    let told = said_by(started.stderr.as_mut());
                    let why = if told.is_empty() { format!("the hub exited ({status})") } else { told };
                    return Err(format!("no hub could be started: {why}"));
                }
            }
        }
        if Instant::now() >= until {
            return Err("the hub that starts does not listen yet".to_owned());
        }
        std::thread::park_timeout(LOOK_PAUSE);
    }
}

/// The hub that runs for this `CODEX_HOME`. One with a name counts, so that a home never has two servers because of a client; the one
/// without a name comes first.
fn running(environment: &Environment) -> Result<Option<Hub>, CliError> {
    let mut running = Hub::of_home(environment)?;
    running.retain(|hub| hub.found.live);
    running.sort_by_key(Hub::has_name);
    Ok(running.into_iter().next())
}

/// The options with which a hub is started: under the name of the one that has left a server of this home running, if that had one.
fn flags_of_start(codex: PathBuf, environment: &Environment) -> Result<HubFlags, CliError> {
    let mut left = Hub::of_home(environment)?;
    left.retain(|hub| process::recorded(&hub.found.dir).is_some());
    left.sort_by_key(Hub::has_name);
    let named = left.into_iter().next().filter(Hub::has_name);
    let session = named.and_then(|hub| hub.found.id.parse().ok());
    // A hub with a name may have run beside a daemon of codex.
    let no_default_socket = session.is_some()
        && environment
            .shim_home()
            .value
            .is_some_and(|home| !matches!(answerer(&environment.codex_home_resolved(), &home), Ok(None)));
    Ok(HubFlags { session, codex: Some(codex), no_default_socket })
}

/// The socket of the hub that runs in this session; none if it is not the session of a hub that runs.
fn named(session: &SessionName, environment: &Environment) -> Option<Result<PathBuf, String>> {
    let hub = Hub::running(Some(session), environment).ok().flatten()?;
    let place = &hub.found.holder.as_ref()?.place;
    Some(match hub::is_hub_for(place, &environment.codex_home_resolved()) {
        true => Ok(hub.found.dir.join(CODEX_SOCKET)),
        false => Err(format!("the {} has another CODEX_HOME, {}", hub.name(), place.codex_home)),
    })
}

/// The first argument that needs a server of its own. Options that are not known count as such, so that none is ignored.
fn option_of_own_server(codex_args: &[OsString]) -> Option<String> {
    let mut words = codex_args.iter();
    while let Some(word) = words.next() {
        let is_one_of = |known: &[&str]| known.iter().any(|known| word == OsStr::new(known));
        if is_one_of(&WITHOUT_EFFECT_WITH_VALUE) {
            words.next();
        } else if !is_one_of(&WITHOUT_EFFECT) {
            // A value may be a secret.
            let word = word.to_string_lossy();
            let is_short = !word.starts_with("--") && word.starts_with('-');
            let option = if is_short { word.chars().take(2).collect() } else { word.split('=').next()?.to_owned() };
            return Some(option);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_for_one_client_need_its_own_server() {
        let check = |line: &str, expect: Option<&str>| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(option_of_own_server(&words).as_deref(), expect, "{line}");
        };
        check("app-server", None);
        check("app-server --listen stdio:// --analytics-default-enabled", None);
        check("app-server --listen=stdio:// --stdio", None);
        check("-c a=b app-server", Some("-c"));
        check("-ctoken=secret app-server", Some("-c"));
        check("app-server --config=token=secret", Some("--config"));
        check("app-server --enable x", Some("--enable"));
        check("app-server --disable=x", Some("--disable"));
        check("--profile p app-server", Some("--profile"));
        check("-p p app-server", Some("-p"));
        check("app-server --of-a-later-version", Some("--of-a-later-version"));
    }
}
