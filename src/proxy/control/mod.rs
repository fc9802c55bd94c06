//! The control socket: HTTP/1.1 on a Unix socket in the session folder, and the client that tools use for it.
//!
//! The relay writes its state to [`Published`]. One thread, started once the child runs, answers requests from that state and
//! from the journal's files. The relay itself binds the socket when it opens its session, so that it can remove the socket at
//! exit without waiting for that thread.
//!
//! It never blocks the relay: the two share counters that only the relay writes, and a lock that is held for the length of a
//! copy. It never stops the relay: a socket that cannot be created is a fault like any other. It never serves another user or a
//! web page, nor a process that is confined more than the relay ([`crate::socket::Callers`]).

mod arrival;
mod calls;
pub mod client;
mod context;
mod history;
mod lasting;
mod listed;
pub mod local_time;
mod metrics;
mod open_threads;
mod places;
mod published;
mod reply;
mod request_members;
mod requests;
mod routes;
mod server;
mod stream;

pub use arrival::sort_by_arrival;
pub use calls::HANDS_OVER;
pub use client::{Listener, Listening, Received};
pub use context::new_commands;
pub use context::not_waiting;
pub use history::{identify_offline, recorded_threads, with_thread};
pub use lasting::{LastingListener, SharedEndpoint, SocketFault};
pub use listed::{RequestOrigin, listed_session, session_of_request};
pub use open_threads::open_threads;
pub use places::{Places, Stream};
pub use published::{Published, PublishedState};
pub use request_members::add_computed_members;
pub use routes::{
    Ask, BODY_BYTES_MAX, BodyError, Message, Refusal, Reply, Responded, SessionInfo, Stores, ok, take_body,
};
pub use server::{ACCEPT_AGAIN_AFTER, ControlSocket, refused_peer, routes_of_peer, runtime_of_calls, serve, start};

/// File name in the session folder.
pub const SOCKET_FILE: &str = "control.sock";

/// The path to connect to for the control socket of the session folder `dir`.
///
/// # Errors
///
/// As [`crate::socket::resolve_at`].
pub fn resolve(dir: &std::path::Path) -> std::io::Result<std::path::PathBuf> {
    crate::socket::resolve_at(&dir.join(SOCKET_FILE))
}
