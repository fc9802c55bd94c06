//! The control socket: HTTP/1.1 on a Unix socket in the session's folder, and the client that tools use for it.
//!
//! The relay stores what it has done in [`Published`]; requests are answered from there and from the journal's files by
//! one thread of its own, started once the child runs. The socket is bound by the relay, as its session is opened, so that
//! it is the relay too that removes it at the end, and waits for nobody to do so.
//!
//! It never makes the relay wait: the two share counters that the relay alone writes, and a lock that is held for the
//! time of a copy, when something rare has happened or somebody asks. It never stops the relay: a socket that cannot be
//! had is a fault like any other. It never serves another user, nor a page in a browser.

pub(crate) mod answer;
mod ask;
mod attach;
mod body;
mod calls;
pub(crate) mod client;
mod context;
mod document;
pub(crate) mod form;
mod fragments;
mod historian;
mod history;
mod host;
mod known;
mod lag;
mod listener;
pub(crate) mod local_time;
mod metrics;
mod peer;
mod places;
mod published;
mod refusal;
mod requests;
mod routes;
mod server;
pub(crate) mod shown;
mod socket;
mod stall;
mod stream;
#[cfg(test)]
mod stream_tests;
mod subject;

pub(crate) use ask::{Ask, Errand, Reply};
pub use context::new_commands;
pub(crate) use context::{ContextCommand, ContextDocument, DeliveriesDocument, WaitingDocument, not_waiting};
pub(crate) use document::{
    ChildDocument, ClientDocument, ConfigDocument, ContextEngineDocument, Counters, Fault, IndexDocument,
    JournalDocument, SessionDocument, ThreadDocument,
};
pub(crate) use fragments::FragmentsDocument;
pub(crate) use listener::{Heard, Listener, Listening};
pub(crate) use published::{Passed, Published};
pub use requests::with_choices;
pub(crate) use server::start;
pub use socket::resolve;
pub(crate) use socket::{SOCKET_FILE, SocketFiles};
pub(crate) use subject::{Beside, Subject};
