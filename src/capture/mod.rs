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
pub use hooks::{Hooked, ShellKind, Told, answers_privately, as_private, script};
pub use keep::{KEEP_WAIT_MAX, keep, tell_started};
pub use leader::lead;
pub use outputs::{Outputs, output_of};
pub use piped::run_piped;
pub use screen::{Ran, run_in_terminal};
pub use tail::Tail;
pub use terminal::Terminal;
pub use watch::Watch;
pub use words::as_typed;
