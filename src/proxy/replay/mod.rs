//! Tapes: recordings that are exported, listed, checked, and played as a server.
//!
//! A tape is a journal file. [`Anonymizer`] removes machine-specific data from its records, [`TapeReader`] reads them,
//! [`Survey`] summarizes them, [`Script`] says which lines belong together, and [`Player`] decides the replies of a server
//! that repeats them.
//!
//! Nothing here changes a recording. The player has no clock: [`serve`] on pipes and [`listen`] on a socket send its lines at
//! their times.

mod anonymizer;
mod clients;
mod homes;
mod listen;
mod mapping;
mod player;
mod script;
mod server;
mod socket;
mod survey;
mod tape;

pub use anonymizer::{Anonymizer, Machine, Redaction};
pub use homes::Homes;
pub use listen::{ListenNews, ListenOptions, listen};
pub use mapping::Difference;
pub use player::{Player, Strictness};
pub use script::Script;
pub use server::{Pace, serve};
pub use survey::{Summary, Survey, summary_of};
pub use tape::{EntryKind, Tape, TapeEntry};
pub use tape::{Selection, TapeError, TapeReader, TapeStep};
