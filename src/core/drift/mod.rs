//! Drift: what another version of codex makes of the clients on record.
//!
//! [`Schema`] is the protocol of one codex, as that codex tells it. [`findings`] compares two of them by what clients really used.
//!
//! Pure. A finding has to be sure: whatever a schema does not say counts as allowed, and only what has become worse is found.

mod compare;
mod own;
mod schema;

pub use compare::{Finding, FindingKind, Uses, findings, with_played};
pub use own::unknown_to_us;
pub use schema::Schema;
