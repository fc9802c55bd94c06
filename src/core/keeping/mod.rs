//! Maintenance of stored sessions at the user's request.
//!
//! [`prune`] deletes data over the bounds, as a relay does in the background; [`redact`] masks secrets in all stored data.
//! Both work on stopped and live sessions.
//!
//! *Locking.* For a stopped session they hold the [`crate::store::IndexLock`], never its own lock: a relay that starts
//! meanwhile runs and records, and its index waits. In a live one they leave alone what its relay is using, and change only
//! segments that are closed and indexed, and rows in short transactions.
//!
//! *Crashes.* Each step leaves every file readable; the next run does the rest.
//!
//! [`backup`] copies the sessions of a home to a folder while relays run, and [`restore`] puts them into a home again.
//!
//! [`check_files`] compares the files of a session with what they should be, and changes nothing.
//!
//! This room never deletes unindexed data, never follows a link, and changes no byte in a dry run.

pub mod backup;
mod check;
mod held;
mod prune;
mod redact;
mod redaction;
pub mod restore;

pub use check::{FileFault, FilesReport, StoredKind, check_files, stored_bytes};
pub use prune::{Bounds, DataKind, Deleted, PrunedSessions, prune, prune_sessions};
pub use redact::{Masked, add_piece, bytes_to_read, redact};
