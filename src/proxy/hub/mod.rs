//! The hub: one server for all clients of a machine. Clients connect over WebSocket on Unix sockets; each gets a connection of its
//! own to the server, which is a process of its own and outlives the hub.

mod arrival;
pub mod bypass;
pub mod down;
mod entrances;
mod front;
mod handover;
mod link;
pub mod links;
mod on_sockets;
mod options;
pub mod process;
mod published;
mod run;
pub mod sockets;

use std::path::Path;

pub use down::{Down, command};
pub use front::Front;
pub use handover::{KEEP_STATE, TAKE_OVER, keep_state};
pub use link::{Link, LinkEnd};
pub use options::{DefaultSocket, HubOptions};
pub use run::run;

use crate::config::SessionName;
use crate::os::sockets::connect;
use crate::store::Place;

/// The server command in the place of every hub. It names no program, so another codex does not mean another session.
const SERVER_OF_HUBS: [&str; 2] = ["codex", "app-server --listen"];

/// The place of a hub: one per home of codex, which is resolved, and one for each name that the user gives. A hub is found again by
/// it, so it does not depend on where it was started, and a hub with a name leaves the one without a name alone.
#[must_use]
pub fn place(codex_home: &Path, session: Option<&SessionName>) -> Place {
    let home = codex_home.to_string_lossy().into_owned();
    let named = session.map(|name| format!("--session {name}"));
    let server = SERVER_OF_HUBS.map(str::to_owned).into_iter().chain(named).collect();
    Place { cwd: home.clone(), codex_home: home, server }
}

/// Whether a session of this place is that of a hub.
#[must_use]
pub fn is_hub(place: &Place) -> bool {
    place.server.starts_with(&SERVER_OF_HUBS.map(str::to_owned))
}

/// Whether a session of this place is that of a hub for this home of codex, which is resolved.
#[must_use]
pub fn is_hub_for(place: &Place, codex_home: &Path) -> bool {
    is_hub(place) && place.codex_home_resolved() == codex_home
}

/// Whether the user has given the hub of this place a name.
#[must_use]
pub fn has_name(place: &Place) -> bool {
    place.server.len() > SERVER_OF_HUBS.len()
}

/// A server that is shutting down, in words, and the remedy: `restart` is the command that replaces it.
pub fn draining(pid: u32, restart: &str) -> String {
    format!(
        "the server (pid {pid}) is shutting down: it finishes its turns and takes no new ones; `{restart}` replaces it at once"
    )
}

/// A server whose program has changed since it started, in words: `restart` is the command that replaces it.
pub fn outdated(restart: &str) -> String {
    format!("codex has changed since its server started; `{restart}` starts the new one")
}
