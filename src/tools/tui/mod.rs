//! The terminal UI: lists sessions, shows the events of one, and lets the user answer requests and send messages.
//!
//! ```text
//! keys, mouse ──┐                        ┌─▶ commands ─▶ control socket, journal, terminal
//! journal ──────┼─▶ Event ─▶ update(Model)                    │
//! control socket┘      ▲                 └─▶ view ─▶ screen    │
//!                      └───────────────────────────────────────┘
//! ```
//!
//! *Bounds.* The window holds a limited number of entries and bytes; the journal is read again if someone scrolls beyond it.
//! Every channel is bounded. Drawing wraps only visible lines, and only the end of a message that is being written.
//!
//! *Purity.* Everything is pure except [`mod@run`] and `terminal`. What a session is asked and tells, [`crate::sessions`] knows.
//!
//! Neither chat nor a click ever answers a request, nor does a key that was pressed before the request could be read. Untrusted
//! text reaches the terminal only through [`crate::text::plain`].

mod browse;
mod deciding;
mod folds;
pub(crate) mod form;
pub(crate) mod inbox;
mod key_times;
pub(crate) mod keys;
mod layout;
pub(crate) mod list;
mod lists;
pub(crate) mod model;
pub(crate) mod mouse;
pub(crate) mod names;
mod pointing;
mod pressed;
mod respond;
mod review;
mod run;
mod searching;
mod terminal;
#[cfg(test)]
mod tests;
mod threads;
mod update;
mod view;

pub(crate) use model::UiEnd;
pub(crate) use run::{Bell, FirstScreen, Setup, run};
pub(crate) use searching::Folders;
pub(crate) use terminal::Pager;
pub(crate) use view::view;
