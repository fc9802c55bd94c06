//! The relay: the child, the pipes, the signals, and the one loop that moves lines between them.
//!
//! Lines flow from a [`pipes::Source`] through the engine into the journal and on to a [`pipes::Sink`]. The thread that
//! started the process owns all of it.
//!
//! The relay decides nothing about lines or shutdown; the engine does. It blocks only in its own poll.

mod budget;
mod checks;
mod child;
mod core;
mod deciders;
mod direction;
pub mod event_loop;
mod first_line;
mod guard;
mod hook_watch;
mod hooks;
mod inbox;
mod interpreters;
mod invocation;
pub mod locate;
mod notices;
mod on_pipes;
mod pair;
pub mod pipes;
mod program_check;
mod recorder;
mod reload;
mod serve;
mod server_environment;
mod session;
mod stalled;
mod start;
mod words;

pub use child::ServerCommand;
pub use core::own_ids;
pub use core::{Clock, Core, CoreState};
pub use deciders::{Deciders, Exposed, is_exposure};
pub use direction::Direction;
pub use guard::Checking;
pub use hook_watch::HookWatch;
pub use hooks::{HookTried, Outcome as HookOutcome, supervise_hook, try_hook};
pub use notices::Notices;
pub use pair::Pair;
pub use pipes::{Broken, ReadEnd, ReadOutcome, WriteEnd};
pub use program_check::program_in_time;
pub use serve::serve;
pub use server_environment::{ServerEnvironment, decides};
pub use start::{OfHub, RelayError, Start, become_server, run};
