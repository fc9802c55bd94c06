//! The terminal UI: sessions, what happens in one, what waits for an answer, and a place to answer and to speak.
//!
//! ```text
//! keys ─────────┐                        ┌─▶ commands ─▶ control socket, journal, terminal
//! journal ──────┼─▶ Event ─▶ update(Model)                    │
//! control socket┘      ▲                 └─▶ view ─▶ screen    │
//!                      └───────────────────────────────────────┘
//! ```
//!
//! *Where the timeline comes from.* From the journal's files, read here with the fold that makes `mode=ui`. They are the
//! one source without a hole: they are there while no relay runs, across its restarts, and tell of gaps, which that stream
//! does not. The end of the journal and what is appended to it are read by one follower, so nothing lies between them; an
//! entry is named by its record's position, so what is read again further back fits in front without a double. What waits
//! and what is answered goes through the control socket alone: the relay decides.
//!
//! *Bounds.* The window holds so many entries and bytes; the rest is read again when somebody goes there. Every channel has
//! a bound, and nothing that happens is waited for by looking again and again but the journal's files, as everywhere.
//!
//! *Purity.* All but [`run`], `reader`, `poller` and `terminal` is pure.
//!
//! It never answers a request by what is typed in chat, nor one that has just come under the user's fingers. It never
//! writes to the terminal what others wrote without [`text::plain`].

pub mod ask;
mod browse;
pub mod entry;
pub mod keys;
pub mod model;
mod poller;
mod pressed;
mod reader;
mod run;
mod said;
mod steps;
mod terminal;
#[cfg(test)]
mod tests;
pub mod text;
mod threads;
pub mod timeline;
mod told;
mod update;
mod view;

pub use model::Ending;
pub use run::{Start, run};
pub use steps::attach;
pub use update::update;
pub use view::view;
