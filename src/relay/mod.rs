//! The relay: the child, the pipes, the signals, and the one loop that moves lines between them.
//!
//! Lines flow from a [`pipes::Source`] through the engine into the journal and on to a [`pipes::Sink`]. The thread that
//! started the process owns all of it.
//!
//! The relay decides nothing about lines or shutdown; the engine does. It blocks only in its own poll.

mod checks;
mod child;
mod core;
mod deciders;
mod direction;
pub(crate) mod event_loop;
mod first_line;
mod guard;
mod hooks;
mod inbox;
mod interpreters;
mod invocation;
pub(crate) mod locate;
mod notices;
mod on_pipes;
mod pair;
pub(crate) mod pipes;
mod program_check;
mod recorder;
mod reload;
mod serve;
mod server_environment;
mod session;
mod stalled;
mod start;
mod words;

pub(crate) use child::ServerCommand;
pub(crate) use core::own_ids;
pub(crate) use core::{Clock, Core};
pub(crate) use deciders::{Deciders, Exposed, is_exposure};
pub use direction::Direction;
pub(crate) use hooks::{HookTried, Outcome as HookOutcome, supervise_hook, try_hook};
pub(crate) use notices::Notices;
pub use pair::Pair;
pub use pipes::{Broken, ReadEnd, ReadOutcome, WriteEnd};
pub(crate) use program_check::program_in_time;
pub(crate) use serve::serve;
pub(crate) use server_environment::ServerEnvironment;
pub(crate) use start::{OfHub, RelayError, Start, become_server, run};
