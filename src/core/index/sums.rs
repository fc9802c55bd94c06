//! Checksums of the files of a session: of a segment of the journal once it is complete, and of the other files once the index
//! ends. [`crate::store::Sums`] says when they count. A history that differs from its own is built again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::indexer::{Indexer, Lock, Progress};
use super::shared::HISTORY_FILE;
use crate::journal::SegmentName;
use crate::store::{
    Compared, DatabaseError, LOCK_FILE, SUMMED_DATABASE_BYTES_MAX, Sums, add_sum, renew_sum, set_aside,
};

/// The interval between two searches for segments without a checksum.
const SUMS_EVERY: Duration = Duration::from_secs(60);

/// The delay of the first checksum: the start of a session has other work.
const SUMS_FIRST_AFTER: Duration = Duration::from_secs(10);

/// The state of the checksums of a session.
pub(super) struct SumsOfSession {
    /// When to look for files without one.
    due_at: Instant,
    /// The history was compared with its own.
    is_history_compared: bool,
}

impl SumsOfSession {
    pub(super) fn new(now: Instant) -> SumsOfSession {
        SumsOfSession { due_at: now + SUMS_FIRST_AFTER, is_history_compared: false }
    }

    /// Renames a history that differs from its checksum, before it is opened for the first time. Returns its new path.
    pub(super) fn set_damaged_aside(&mut self, session_dir: &Path) -> Result<Option<PathBuf>, DatabaseError> {
        if std::mem::replace(&mut self.is_history_compared, true) {
            return Ok(None);
        }
        let sums = Sums::read(session_dir).unwrap_or_default();
        match sums.compare(session_dir, HISTORY_FILE, &|_| {}) {
            Ok(Compared::Differs) => set_aside(&session_dir.join(HISTORY_FILE)).map(Some),
            Ok(Compared::Same | Compared::Unknown) | Err(_) => Ok(None),
        }
    }
}

/// The path of a segment in the folder of its session.
fn in_session(segment: &SegmentName) -> String {
    format!("journal/{segment}")
}

impl Indexer {
    /// From time to time, adds the checksum of one complete segment that has none.
    pub(super) fn add_sum(&mut self) -> Progress {
        if Instant::now() < self.sums.due_at || !matches!(self.lock, Lock::Held(_)) {
            return Progress::Nothing;
        }
        let dir = &self.settings.session_dir;
        let mut segments = SegmentName::list(&self.settings.journal_dir).unwrap_or_default();
        // The last one is being written.
        segments.pop();
        let sums = Sums::read(dir).unwrap_or_default();
        let files = segments.iter().map(in_session).chain([LOCK_FILE.to_owned()]);
        match files.into_iter().find(|file| !sums.knows(dir, file)) {
            Some(file) => {
                add_sum(dir, &file, u64::MAX);
                // The next one, unless this one can have none.
                let is_added = Sums::read(dir).is_ok_and(|sums| sums.knows(dir, &file));
                self.sums.due_at = if is_added { self.sums.due_at } else { Instant::now() + SUMS_EVERY };
                Progress::All
            }
            None => {
                Sums::compact(dir);
                self.sums.due_at = Instant::now() + SUMS_EVERY;
                Progress::Nothing
            }
        }
    }

    /// Adds the checksums of the files that are complete once this thread ends.
    pub(super) fn add_last_sums(&self) {
        if !matches!(self.lock, Lock::Held(_)) {
            return;
        }
        let dir = &self.settings.session_dir;
        if let Some(last) = SegmentName::list(&self.settings.journal_dir).unwrap_or_default().last() {
            add_sum(dir, &in_session(last), SUMMED_DATABASE_BYTES_MAX);
        }
        renew_sum(dir, HISTORY_FILE);
        add_sum(dir, LOCK_FILE, u64::MAX);
    }
}
