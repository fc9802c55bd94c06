//! A conversation on record, played to another codex: its client's lines in their order, before a model that repeats what the recorded
//! one did.
//!
//! [`Plan`] reads the conversation, [`play`] runs a codex and plays it, [`Heard`] is what a server has said, by kind, and
//! [`differences`] compares two. The codex has a home and a working folder of its own, no account and no way to the network, and its
//! model asks for harmless commands in place of those on record.

mod heard;
mod model;
mod plan;
mod play;
mod responses;

pub use heard::{Heard, HeardDifference, HeardKind, Surroundings, differences};
pub use plan::Plan;
pub use play::{Play, PlayError, play};
