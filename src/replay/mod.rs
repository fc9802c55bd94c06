//! Tapes: recordings that are exported, listed, checked, and played as a server.
//!
//! A tape is a journal file. [`Anonymizer`] removes machine-specific data from its records, [`TapeReader`] reads them,
//! [`Survey`] summarizes them, and [`Player`] decides the replies of a server that repeats them.
//!
//! Nothing here changes a recording. The player has no clock: [`serve`] sends its lines at their times.

mod anonymizer;
mod mapping;
mod player;
mod server;
mod survey;
mod tape;

pub(crate) use anonymizer::{Anonymizer, Machine, Redaction};
pub(crate) use mapping::Difference;
pub use player::{Player, Strictness};
pub(crate) use server::{Pace, serve};
pub(crate) use survey::{Summary, Survey, summary_of};
pub(crate) use tape::Selection;
pub use tape::Tape;
pub(crate) use tape::{TapeError, TapeReader, TapeStep};
