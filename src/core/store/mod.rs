//! The stored state of a session besides its journal: folder, lock, ledger, log.
//!
//! [`Session::open`] finds or creates the folder for a start, and holds its lock until it is dropped. Commands list
//! sessions with [`Found::all`] and select one with [`choose`].
//!
//! This room never writes into the folder of a session whose lock another process holds, except for context that a command
//! pushes into the ledger, under the ledger's own lock.

mod audit;
mod context_table;
mod database;
mod found;
mod ledger;
mod ledger_writer;
mod log;
mod overruling_table;
mod removal;
mod request_table;
mod session;
mod snapshot;
mod sums;
#[cfg(test)]
mod tests;
mod wal;
mod witness;

pub use audit::{AuditEntry, AuditKind, AuditLedger, AuditPlace};
pub use context_table::{Keep, NewCommand, WhichCommands};
pub use database::{
    BESIDE, DatabaseError, DatabaseForm, MaskedTable, Opened, RunMode, SetAside, check as check_database,
    connect as connect_database, empty_log, is_corrupt, mask_tables, open as open_database, redact_ledger, set_aside,
    set_aside_beside, wipe,
};
pub use database::{Life, at_once, open_for};
pub use found::{
    Choice, ChoiceError, Found, OpenThread, Otherwise, Survey, ThreadChoice, ThreadUse, choose, choose_all,
    choose_thread, full_name, in_scope, label, repository_of, share_repository, short, short_id, shown_from_elsewhere,
};
pub use ledger::OfflineLedger;
pub use ledger::{LEDGER_FILE, Ledger, LedgerError, budget_answers, past_requests, requests_of_items, rule_uses};
pub use ledger_writer::LEDGER_FORM;
pub use log::open_log;
pub use removal::{PLACES_DIR, REDACTED_FILE, expired_sessions, remove_expired, remove_leftovers};
pub use request_table::{PastRow, RuleUse};
pub use session::IndexLock;
pub use session::{Holder, LOCK_FILE, Place, Session, StoreError};
pub use snapshot::{SnapshotError, fault_of_snapshot, snapshot};
pub use sums::{Compared, SUMMED_DATABASE_BYTES_MAX, SUMS_FILE, Sums, add_sum, renew_sum};
pub use witness::{SeqMark, SeqWish};
pub use witness::{Witness, WitnessFile, WitnessRead};
