//! The hub: one server for all clients of a machine. Clients connect over WebSocket on Unix sockets; each gets a connection of its
//! own to the server, which is a process of its own and outlives the hub.

mod arrival;
mod event_loop;
mod front;
mod link;
mod peer;
pub(crate) mod process;
mod published;
mod run;
pub(crate) mod sockets;

use std::path::Path;

pub(crate) use front::Front;
pub(crate) use peer::ProcessIdentity;
pub(crate) use run::{DefaultSocket, HubOptions, run};

use crate::config::SessionName;
use crate::socket::connect;
use crate::store::Place;

/// The server command in the place of every hub. It names no program, so another codex does not mean another session.
const SERVER_OF_HUBS: [&str; 2] = ["codex", "app-server --listen"];

/// The place of a hub: one per `CODEX_HOME`, and one for each name that the user gives. A hub is found again by it, so it does
/// not depend on where it was started, and a hub with a name leaves the one without a name alone.
#[must_use]
pub(crate) fn place(codex_home: &Path, session: Option<&SessionName>) -> Place {
    let home = codex_home.to_string_lossy().into_owned();
    let named = session.map(|name| format!("--session {name}"));
    let server = SERVER_OF_HUBS.map(str::to_owned).into_iter().chain(named).collect();
    Place { cwd: home.clone(), codex_home: home, server }
}

/// Whether a session of this place is that of a hub.
#[must_use]
pub(crate) fn is_hub(place: &Place) -> bool {
    place.server.starts_with(&SERVER_OF_HUBS.map(str::to_owned))
}
