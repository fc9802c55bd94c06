//! The relay: the child, the pipes, the signals, and the one loop that moves lines between them.
//!
//! Lines flow from a [`pipes::Source`] through the engine into the journal and on to a [`pipes::Sink`]. One thread, the
//! one that started the process, owns all of it.
//!
//! It decides nothing about a line or an end: that is the engine's. It never waits for anything but its own poll.

mod assembling;
mod attach;
mod child;
mod command;
mod delivery;
mod direction;
mod event_loop;
mod hooks;
mod inbox;
mod indexing;
mod lifecycle;
pub(crate) mod locate;
mod notices;
mod opening;
mod own_lines;
mod pipes;
mod recorder;
mod reload;
mod rest;
mod signals;
mod start;
mod watching;

pub(crate) use command::ServerCommand;
pub(crate) use hooks::keep_hook;
pub(crate) use start::{RelayError, become_server, run, serve};
