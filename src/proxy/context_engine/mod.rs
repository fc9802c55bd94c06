//! Context for the model from the user's programs: the context engine and the fragments.
//!
//! A [`ContextEngine`] is a process of the user's choice that exchanges lines of JSON on stdio. One worker thread
//! ([`worker`]) calls it in the order that [`protocol`] defines for each thread of codex, with a deadline for every
//! call, and reads the conversations from the session's history. [`FragmentReader`] runs commands and reads files with
//! a time limit.
//!
//! The results go to the relay as [`crate::engine::Input`]s. Nothing here ever makes the relay wait. A fault of a
//! user's program costs no more than its contribution: a line, a wait, a queue or a process beyond its limit is given
//! up, and an event says why.

mod calls;
mod conversation;
mod fragments;
mod permit;
mod process;
mod protocol;
mod silence;
mod worker;

pub use conversation::Conversations;
pub use fragments::FragmentReader;
pub use permit::{Permit, Subject};
pub use worker::{ContextEngine, WorkerSettings};
