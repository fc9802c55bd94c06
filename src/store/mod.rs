//! What is kept of a session besides its journal: its folder, its lock, its log.
//!
//! [`Session::open`] finds or makes the folder that a start belongs to, and holds its lock until it is dropped.
//!
//! It never writes into the folder of a session whose lock another process holds.

mod log;
mod session;

pub use log::open_log;
pub use session::{Place, Session, StoreError};
