//! Who writes a history: one process at a time.
//!
//! *Locking.* `index.lock` is an flock, close-on-exec, beside the session's own lock and apart from it. The index of a relay
//! holds it as long as it runs; a tool that indexes what a relay has left does for the time of that. So two tools wait for
//! each other, and the index of a relay that starts meanwhile waits for a tool. The start itself waits for neither: it takes
//! the session's lock, which no tool holds for longer than a look.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The lock's name in the session's folder.
pub(super) const LOCK_FILE: &str = "index.lock";

/// The right to write a history, as long as this is there.
#[derive(Debug)]
pub struct IndexLock {
    _held: File,
}

impl IndexLock {
    /// Takes it for the session in `session_dir`; `None` where another process has it.
    ///
    /// # Errors
    ///
    /// That of making or locking the file.
    pub fn try_take(session_dir: &Path) -> io::Result<Option<IndexLock>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(session_dir.join(LOCK_FILE))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(IndexLock { _held: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let take = || IndexLock::try_take(dir.path()).expect("it can be locked");
        let held = take();
        assert!(held.is_some() && take().is_none());
        drop(held);
        assert!(take().is_some());
        assert!(IndexLock::try_take(&dir.path().join("nowhere")).is_err());
    }
}
