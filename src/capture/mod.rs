//! Captures what the user does in a terminal: commands run through us, shell hooks, shells in a terminal of ours, and the
//! events of an `agent_pty`.
//!
//! A program's bytes pass unchanged to the user's terminal while a bounded tail is kept ([`Tail`]). Each command becomes
//! one [`crate::engine::PushedCommand`], handed to the running relay or to the ledger for the next one ([`keep`]).
//!
//! This room never changes a byte on its way to the terminal, never keeps more than a tail in memory, never leaves a
//! terminal in another mode, and never fails a program because its command cannot be stored.

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
mod type_ahead;
mod watch;
mod words;

pub use blocks::Whose;
pub(crate) use hooks::{HookOutcome, HookReport, ShellKind, answers_privately, script};
pub(crate) use keep::{keep, notify_started};
pub(crate) use leader::lead;
pub(crate) use outputs::{Outputs, output_of};
pub(crate) use piped::run_piped;
pub(crate) use screen::{Ran, run_in_terminal};
pub(crate) use tail::Tail;
pub(crate) use terminal::Terminal;
pub use watch::Watch;
pub(crate) use words::as_typed;
