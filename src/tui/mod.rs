//! The terminal UI: sessions, what happens in one, pending requests, and a place to answer and to write.
//!
//! ```text
//! keys, mouse ──┐                        ┌─▶ commands ─▶ control socket, journal, terminal
//! journal ──────┼─▶ Event ─▶ update(Model)                    │
//! control socket┘      ▲                 └─▶ view ─▶ screen    │
//!                      └───────────────────────────────────────┘
//! ```
//!
//! *Source of the timeline.* The journal's files, read here with the fold that makes `mode=ui`. They are complete: they
//! exist while no relay runs and across restarts, and they record gaps, which that stream does not. One follower reads the
//! end of the journal and every later record, so nothing is lost between the two. An entry is named by the position of
//! its record, so entries that are read again further back fit in without duplicates. Pending requests and answers use the
//! control socket only: the relay decides.
//!
//! *Bounds.* The window holds a fixed number of entries and bytes; the journal is read again if someone scrolls beyond it.
//! Every channel is bounded. Drawing breaks only the lines that are visible, and of a message that is being written only its
//! end.
//!
//! *Purity.* Everything is pure except [`run`], `reader`, `poller` and `terminal`.
//!
//! Neither chat nor a click ever answers a request, nor does a key that was pressed before the request could be read. Text of others reaches the terminal only through [`text::plain`].

pub(crate) mod ask;
mod attention;
mod browse;
pub(crate) mod diff;
pub(crate) mod doc;
pub(crate) mod entry;
pub(crate) mod events;
mod facts;
pub(crate) mod field;
pub(crate) mod form;
pub(crate) mod keys;
mod layout;
mod markdown;
pub(crate) mod model;
mod names;
mod old_entries;
mod pointed;
pub(crate) mod pointing;
mod poller;
mod pressed;
mod reader;
mod respond;
mod review;
mod run;
mod steps;
mod terminal;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod threads;
pub(crate) mod timeline;
mod update;
mod view;
pub(crate) mod zone;

pub(crate) use events::Ending;
pub(crate) use run::{Setup, Start, run};
pub(crate) use view::view;
