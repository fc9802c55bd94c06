//! Who indexes a session, or rewrites what is stored of it: one at a time.
//!
//! *Locking.* `index.lock` is an flock beside `lock`, close-on-exec, taken exclusively. The index of a relay holds it while it
//! runs, a tool while it indexes a stopped session or rewrites what is stored. A relay that starts meanwhile relays and
//! records; only its index waits. Nobody waits for this lock while another one is held.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use crate::files::{self, Access};

/// Its name in the session's folder.
pub(crate) const INDEX_LOCK_FILE: &str = "index.lock";

/// The lock, held until this is dropped.
#[derive(Debug)]
pub(crate) struct IndexLock {
    _file: File,
}

impl IndexLock {
    /// Takes the lock of the session in `session_dir`; `None` where somebody else holds it.
    ///
    /// # Errors
    ///
    /// That of making or locking the file.
    pub(crate) fn try_take(session_dir: &Path) -> io::Result<Option<IndexLock>> {
        let file = files::open(&session_dir.join(INDEX_LOCK_FILE), Access::Create)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(IndexLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
