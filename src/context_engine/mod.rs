//! What stands beside a relay for the model: the user's context engine, and what fragments say.
//!
//! A [`ContextEngine`] is a process of the user's choice that speaks lines of JSON on stdio. One thread ([`speaker`]) speaks to
//! it, in the order that [`lifecycle`] gives for each thread of codex, with a deadline for every call; it reads the conversation
//! from the session's history. [`FragmentReader`] runs commands and reads files, each for a bounded time.
//!
//! What comes of it is told to the relay as [`crate::engine::Input`]s. Nothing here ever makes the relay wait, and no fault of
//! the user's programs costs more than what they would have said: a line, a wait, a queue and a process that are over their
//! bounds are given up, and an event says why.

mod call;
mod calling;
mod conversation;
mod fragments;
mod late;
mod lifecycle;
mod parent;
mod process;
mod reading;
mod silence;
mod speaker;
mod task;

pub(crate) use fragments::FragmentReader;
pub(crate) use reading::Conversations;
pub(crate) use speaker::{ContextEngine, SpeakerSettings};
