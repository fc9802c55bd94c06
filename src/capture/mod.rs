//! What the user does in a terminal, caught where it happens: a command that we run, a shell's hook, a shell in a terminal
//! of ours, the events of an `agent_pty`.
//!
//! What flows through: the bytes of a program, untouched, to the user's terminal, with a bounded tail of them kept beside
//! ([`Tail`]); then one [`crate::engine::PushedCommand`] a command, handed to the relay that runs or put in the ledger of the
//! one that will ([`keep`]).
//!
//! What it never does: change a byte on its way to the terminal, keep more than a tail in memory, leave a terminal in
//! another mode than it was in, or fail a program because what it did cannot be kept.

mod ahead;
mod blocks;
mod follow;
mod hooks;
mod keep;
mod leader;
mod outputs;
mod piped;
mod scan;
mod screen;
mod signals;
mod tail;
mod terminal;
mod watch;
mod words;

pub use blocks::Whose;
pub(crate) use hooks::{Hooked, ShellKind, Told, answers_privately, script};
pub(crate) use keep::{keep, tell_started};
pub(crate) use leader::lead;
pub(crate) use outputs::{Outputs, output_of};
pub(crate) use piped::run_piped;
pub(crate) use screen::{Ran, run_in_terminal};
pub(crate) use tail::Tail;
pub(crate) use terminal::Terminal;
pub use watch::Watch;
pub(crate) use words::as_typed;
