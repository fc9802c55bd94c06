//! Keeping: what of stored sessions goes, and what of it is masked, when a person asks for that.
//!
//! [`prune`] removes what is over the bounds, as the background of a relay does; [`redact`] masks secrets in all that is stored.
//! Both take stopped sessions and live ones.
//!
//! *Locking.* Of a stopped session they hold the [`crate::store::IndexLock`], never its own lock: a relay that starts meanwhile
//! runs and records, and its index waits. Of a live one they touch nothing that its relay has in hand: segments that are closed
//! and indexed, rows in short transactions.
//!
//! *Crashes.* Each step leaves every file readable; what was not come to is done the next time.
//!
//! It never takes what is not indexed yet, never follows a link, and where it is only to look it changes no byte.

mod files;
mod held;
mod pieces;
mod prune;
mod redact;

pub(crate) use pieces::add_piece;
pub(crate) use prune::{Bounds, Kind, PrunedSessions, Went, prune, prune_sessions};
pub(crate) use redact::{Found as Masked, redact};
