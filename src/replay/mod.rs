//! Tapes: a recording is exported, looked at, checked, and played as a server.
//!
//! A tape is a journal file. [`Anonymizer`] takes out of its records what is of one machine, [`TapeReader`] reads them,
//! [`Survey`] tells what they hold, and [`Player`] decides what a server that repeats them says to a client.
//!
//! Nothing here changes a recording, and the player knows no clock: what it says and when is told to [`serve`].

mod anonymizer;
mod mapping;
mod placeholders;
mod player;
mod selection;
mod server;
mod survey;
mod tape;

pub(crate) use anonymizer::{Anonymizer, Machine, Redaction};
pub(crate) use mapping::Difference;
pub use player::{Player, Strictness};
pub(crate) use selection::Selection;
pub(crate) use server::{Pace, serve};
pub(crate) use survey::{Summary, Survey, summary_of};
pub use tape::Tape;
pub(crate) use tape::{TapeError, TapeReader, TapeStep};
