//! Ensures that one process at a time indexes a session or rewrites its stored data.
//!
//! *Locking.* `index.lock` is an flock beside `lock`, close-on-exec, taken exclusively. A relay's index holds it while it
//! runs; a command holds it while it indexes a stopped session or rewrites stored data. A relay that starts meanwhile
//! relays and records, and only its index waits. Nothing waits for this lock while it holds another one.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use crate::files::{self, Access};

pub(crate) const INDEX_LOCK_FILE: &str = "index.lock";

#[derive(Debug)]
pub(crate) struct IndexLock {
    _file: File,
}

impl IndexLock {
    /// Takes the lock of the session in `session_dir`; `None` if another process holds it.
    pub(crate) fn try_take(session_dir: &Path) -> io::Result<Option<IndexLock>> {
        let file = files::open(&session_dir.join(INDEX_LOCK_FILE), Access::Create)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(IndexLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
