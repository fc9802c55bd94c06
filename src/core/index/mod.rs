//! The index: the queryable history, in `history.db` of the session's folder.
//!
//! One thread follows the journal's files from a checkpoint that it commits together with the rows that lead to it, so each
//! record is indexed exactly once, however the process ends. It has no queue: unread records wait in the journal. The relay
//! never wakes it and never waits for it.
//!
//! *Failure.* An unusable database is expected. The journal continues, new events are sent live as not indexed, and the
//! index continues at its checkpoint once the database can be used again. A corrupt or missing database is rebuilt from the
//! journal.
//!
//! *Numbers.* Events have consecutive numbers from 1. All numbers of a history belong to one epoch. A rebuild continues the
//! epoch if the journal proves that each event gets its old number; any other history begins a new epoch above every issued
//! number. The evidence is the mark in the ledger and a witness outside the session's folder (`epochs`).
//!
//! *Locking.* SQLite's own; readers and the index never wait for each other. A process that indexes a session or rewrites
//! its stored data holds its [`crate::store::IndexLock`]; a relay's index starts once it has that lock.

mod answer;
mod budget;
#[cfg(test)]
mod checkpoint_tests;
mod client_uses;
mod database;
mod epochs;
mod file_changes;
mod follow;
mod indexer;
mod maintenance;
mod model;
mod pace;
mod query;
mod reviews;
mod search;
mod shared;
mod sums;
#[cfg(test)]
mod tests;
mod threads;
mod transcripts;
mod usage;
#[cfg(test)]
mod usage_tests;

pub use answer::{HistoryQuery, ReadAt};
pub use budget::{BudgetState, budget_state, local_day};
pub use database::HISTORY_FORM;
pub use file_changes::{ChangeContext, ChangePlace};
pub use follow::shown_line;
pub use follow::{Follower, Next, Patience};
pub use indexer::Index;
#[cfg(any(test, feature = "testing"))]
pub use indexer::Stepped;
pub use maintenance::{indexed_before, prune_history, read_to, redact_history};
pub use model::Pruned;
pub use query::History;
pub use query::HistoryError;
pub use search::{Hit, Hits, Search, fill_stored_search};
pub use shared::{HISTORY_FILE, IndexSettings};
pub use shared::{IndexNotice, IndexState, LiveEvent, Marks, Notify};
pub use transcripts::TranscriptFiles;
pub use transcripts::{JournalGap, Side, TRANSCRIPTS_DIR, TranscriptLine};
