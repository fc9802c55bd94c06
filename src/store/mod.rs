//! The stored state of a session besides its journal: folder, lock, ledger, log.
//!
//! [`Session::open`] finds or creates the folder for a start, and holds its lock until it is dropped. Commands list
//! sessions with [`Found::all`] and select one with [`choose`].
//!
//! This room never writes into the folder of a session whose lock another process holds, except for context that a command
//! pushes into the ledger, under the ledger's own lock.

mod assembly_table;
mod choice;
mod contents;
mod context_table;
mod database;
mod found;
mod ledger;
mod ledger_writer;
mod log;
mod masked_rows;
mod removal;
mod request_table;
mod session;
mod witness;

pub(crate) use assembly_table::KeptFragment;
pub(crate) use choice::{
    Choice, ChoiceError, Otherwise, choose, choose_all, client_name, full_name, label, short, short_id,
    shown_from_elsewhere,
};
pub(crate) use context_table::{Keep, KeptDelivery, NewCommand, WhichCommands};
pub(crate) use database::Life;
pub(crate) use database::{
    BESIDE, DatabaseError, Form, Opened, connect as connect_database, is_corrupt, open as open_database,
    open_as_is as open_database_as_is, open_read_only, set_aside, set_aside_beside,
};
pub(crate) use found::{Found, Survey};
pub use ledger::OfflineLedger;
pub(crate) use ledger::{KeptRequest, LEDGER_FILE, Ledger, LedgerError};
pub(crate) use ledger_writer::LEDGER_FORM;
pub(crate) use log::open_log;
pub(crate) use masked_rows::{MaskedTable, mask_tables, wipe};
pub(crate) use masked_rows::{RunMode, redact_ledger};
pub(crate) use removal::{expired_sessions, remove_expired, remove_leftovers};
pub(crate) use request_table::WhichRequests;
pub(crate) use session::IndexLock;
pub(crate) use session::{Holder, Place, Session, StoreError};
pub(crate) use witness::{Found as FoundWitness, Witness, WitnessFile, boot_id, booted_unix_s};
pub use witness::{SeqMark, SeqWish};
