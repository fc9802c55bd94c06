//! The relay: the child, the pipes, the signals, and the one loop that moves lines between them.
//!
//! Lines flow from a [`pipes::Source`] through the engine into the journal and on to a [`pipes::Sink`]. The thread that
//! started the process owns all of it.
//!
//! The relay decides nothing about lines or shutdown; the engine does. It blocks only in its own poll.

mod attach;
mod child;
mod command;
mod delivery;
mod direction;
mod event_loop;
mod follow_pty;
mod hooks;
mod inbox;
mod indexing;
pub(crate) mod locate;
mod notices;
mod opening;
mod own_lines;
mod pipes;
mod recorder;
mod reload;
mod serve_loop;
mod signals;
mod start;
mod turn_context;

pub(crate) use command::ServerCommand;
pub(crate) use hooks::supervise_hook;
pub(crate) use start::{RelayError, become_server, run, serve};
