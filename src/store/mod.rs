//! What is kept of a session besides its journal: its folder, its lock, its ledger, its log.
//!
//! [`Session::open`] finds or makes the folder that a start belongs to, and holds its lock until it is dropped. Tools look
//! through [`Found::all`], and [`choose`] the one that is meant.
//!
//! It never writes into the folder of a session whose lock another process holds, but for what a tool pushes into the
//! ledger, under that one's own lock.

mod choice;
mod context_table;
mod database;
mod found;
mod ledger;
mod ledger_job;
mod ledger_keeper;
mod log;
mod offline;
mod request_table;
mod seq_mark;
mod session;

pub use choice::{Choice, ChoiceError, Clue, Otherwise, choose};
pub use context_table::{Keep, KeptDelivery, NewCommand};
pub(crate) use database::{DatabaseError, Form, Opened, open as open_database, put_aside};
pub use found::{Found, repository_of};
pub use ledger::{LEDGER_FILE, Ledger};
pub use ledger_job::{KeptRequest, LedgerError, Order};
pub use log::open_log;
pub use offline::OfflineLedger;
pub use request_table::WhichRequests;
pub use seq_mark::{SeqMark, SeqWish};
pub use session::{Holder, Place, Session, StoreError};
