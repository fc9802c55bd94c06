//! The terminal UI: lists sessions, shows the events of one, and lets the user answer requests and send messages.
//!
//! ```text
//! keys, mouse ──┐                        ┌─▶ commands ─▶ control socket, journal, terminal
//! journal ──────┼─▶ Event ─▶ update(Model)                    │
//! control socket┘      ▲                 └─▶ view ─▶ screen    │
//!                      └───────────────────────────────────────┘
//! ```
//!
//! *Source of the timeline.* The journal's files, read here with the fold behind `mode=ui`. They are complete: they exist while
//! no relay is running and across restarts, and they record gaps, which that stream does not. One follower reads the end of the
//! journal and every later record, so nothing is lost between the two. An entry's name is the position of its record, so
//! entries that are read again later fit in without duplicates. Pending requests and answers use only the control socket,
//! because the relay decides.
//!
//! *Bounds.* The window holds a limited number of entries and bytes; the journal is read again if someone scrolls beyond it.
//! Every channel is bounded. Drawing wraps only visible lines, and only the end of a message that is being written.
//!
//! *Purity.* Everything is pure except [`mod@run`], `reader`, `poller`, [`source`] and `terminal`.
//!
//! Neither chat nor a click ever answers a request, nor does a key that was pressed before the request could be read. Untrusted
//! text reaches the terminal only through [`text::plain`].

pub(crate) mod ask;
mod browse;
mod deciding;
pub(crate) mod diff;
pub(crate) mod doc;
pub(crate) mod entry;
mod folds;
pub(crate) mod form;
pub(crate) mod inbox;
pub(crate) mod keys;
mod layout;
pub(crate) mod list;
mod markdown;
pub(crate) mod model;
pub(crate) mod mouse;
pub(crate) mod names;
pub(crate) mod poller;
mod pressed;
pub(crate) mod reader;
mod respond;
mod review;
mod run;
pub(crate) mod source;
mod terminal;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod threads;
pub(crate) mod timeline;
mod update;
mod view;

pub(crate) use model::Ending;
pub(crate) use names::short_id;
pub(crate) use run::{Bell, Setup, Start, run};
pub(crate) use terminal::Pager;
pub(crate) use view::view;
