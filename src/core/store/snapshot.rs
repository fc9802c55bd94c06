//! Copies a database that may be in use to another file, as it was at one instant.
//!
//! *Locking.* The copy reads in one transaction, so it is of one instant, and no commit makes it begin again. In WAL mode a reader
//! never makes a writer wait, and nothing here asks for a lock that excludes one: the source is opened read-only, and its log is left
//! alone. Meanwhile the log cannot be emptied and grows with each commit, so the transaction has a limit.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, io};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::database::{DatabaseError, Life, connect, open_read_only};
use crate::files::{self, Access};
use crate::os::fs::sync_data;

/// Pages of one step: a quarter of a MiB.
const STEP_PAGES: i32 = 64;

/// Bytes between two syncs, so that the disk never has much to write at once: a ledger's commit may wait behind it.
const SYNC_BYTES: u64 = 8 << 20;

/// The longest time for which nobody can empty the log of a database.
const READ_MAX: Duration = Duration::from_secs(60);

/// The longest wait for SQLite's own recovery after a crash.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Why a database was not copied.
#[derive(Debug)]
pub enum SnapshotError {
    /// A database cannot be read, or its copy cannot be written.
    Database(DatabaseError),
    /// The copy cannot be written.
    Io { path: PathBuf, source: io::Error },
    /// It took longer than its log may grow.
    TooSlow { path: PathBuf },
    /// The caller has ended it.
    Interrupted,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Database(error) => error.fmt(f),
            SnapshotError::Io { path, source } => write!(f, "write {}: {source}", path.display()),
            SnapshotError::TooSlow { path } => {
                write!(f, "copy {}: it took more than {} s", path.display(), READ_MAX.as_secs())
            }
            SnapshotError::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SnapshotError::Database(error) => Some(error),
            SnapshotError::Io { source, .. } => Some(source),
            SnapshotError::TooSlow { .. } | SnapshotError::Interrupted => None,
        }
    }
}

impl From<DatabaseError> for SnapshotError {
    fn from(error: DatabaseError) -> SnapshotError {
        SnapshotError::Database(error)
    }
}

/// Copies the database at `source` to the new file `to`; false if it does not exist or is empty. `goes_on` gets the bytes
/// copied since its last call, and returns whether to continue.
///
/// With [`Life::Stopped`] the caller has to check afterwards that the file has not changed.
///
/// # Errors
///
/// The copy is then partial.
pub fn snapshot(source: &Path, life: Life, to: &Path, goes_on: &dyn Fn(u64) -> bool) -> Result<bool, SnapshotError> {
    let Some(from) = open_read_only(source, life, BUSY_WAIT_MAX)? else { return Ok(false) };
    let unwritten = |error| SnapshotError::Io { path: to.to_owned(), source: error };
    let file = files::open(to, Access::Replace).map_err(unwritten)?;
    let failed = |error| DatabaseError::Sqlite { path: source.to_owned(), source: error };
    // The transaction begins with its first read.
    let page_bytes = from
        .execute_batch("BEGIN; SELECT COUNT(*) FROM sqlite_schema")
        .and_then(|()| from.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0)))
        .map_err(failed)?;
    let mut copy = connect(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    let began = Instant::now();
    {
        prepare(&copy).map_err(|error| DatabaseError::Sqlite { path: to.to_owned(), source: error })?;
        let backup = Backup::new(&from, &mut copy).map_err(failed)?;
        let (mut done, mut unsynced) = (0, 0);
        while backup.step(STEP_PAGES).map_err(failed)? != StepResult::Done {
            if began.elapsed() > READ_MAX {
                return Err(SnapshotError::TooSlow { path: source.to_owned() });
            }
            let progress = backup.progress();
            let copied = u64::try_from(progress.pagecount - progress.remaining).unwrap_or(0) * u64::from(page_bytes);
            let more = copied.saturating_sub(done);
            (done, unsynced) = (copied, unsynced + more);
            if unsynced >= SYNC_BYTES {
                sync_data(&file).map_err(unwritten)?;
                unsynced = 0;
            }
            if !goes_on(more) {
                return Err(SnapshotError::Interrupted);
            }
        }
    }
    copy.close().map_err(|(_, error)| DatabaseError::Sqlite { path: to.to_owned(), source: error })?;
    sync_data(&file).map_err(unwritten)?;
    Ok(true)
}

/// The copy counts only once it is whole, so it needs no journal of its own.
fn prepare(copy: &Connection) -> rusqlite::Result<()> {
    copy.pragma_update(None, "journal_mode", "OFF")?;
    copy.pragma_update(None, "synchronous", "OFF")
}

/// The first fault in the structure of an unused database; `None` if it is sound.
///
/// # Errors
///
/// It cannot be opened.
pub fn fault_of_snapshot(path: &Path) -> Result<Option<String>, DatabaseError> {
    let Some(connection) = open_read_only(path, Life::Stopped, BUSY_WAIT_MAX)? else { return Ok(None) };
    let found = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    match found {
        Ok(found) if found == "ok" => Ok(None),
        Ok(fault) => Ok(Some(fault)),
        Err(source) => Err(DatabaseError::Sqlite { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::store::RunMode;
    use crate::store::database::{DatabaseForm, open_for};

    const FORM: DatabaseForm = DatabaseForm {
        migrations: &["CREATE TABLE numbers (number INTEGER, filler BLOB) STRICT"],
        synchronous: "FULL",
        busy_wait_max: Duration::ZERO,
    };

    fn add(writer: &Connection, count: usize) {
        for _ in 0..count {
            writer
                .execute("INSERT INTO numbers SELECT COUNT(*), zeroblob(9000) FROM numbers", [])
                .expect("nobody makes it wait");
        }
    }

    fn count(path: &Path) -> i64 {
        let reader = open_for(path, FORM, Life::Stopped, RunMode::DryRun).expect("it opens").expect("it is there");
        reader.query_row("SELECT COUNT(*) FROM numbers", [], |row| row.get(0)).expect("it can be read")
    }

    #[test]
    fn snapshot_is_of_one_instant_and_delays_no_writer() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let (source, to) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let writer = super::super::database::open_as_is(&source, FORM).expect("it opens");
        add(&writer, 500);
        let steps = Cell::new(0);
        // A commit between any two steps, with a timeout of zero, and a checkpoint of what can be written back.
        let goes_on = |_| {
            steps.set(steps.get() + 1);
            add(&writer, 1);
            writer.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(0)).expect("it can be asked")
                == 0
        };
        assert!(snapshot(&source, Life::Live, &to, &goes_on).expect("it can be copied"));
        assert!(steps.get() > 3, "{}", steps.get());
        assert_eq!(count(&to), 500);
        assert_eq!(fault_of_snapshot(&to).expect("it opens"), None);
        // The next one has the rest.
        assert!(snapshot(&source, Life::Live, &to, &|_| true).expect("it can be copied"));
        assert_eq!(count(&to), 500 + steps.get() as i64);
    }

    #[test]
    fn missing_database_has_no_snapshot() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let to = dir.path().join("b.db");
        assert!(!snapshot(&dir.path().join("a.db"), Life::Stopped, &to, &|_| true).expect("it is no error"));
        assert!(!to.exists());
    }

    #[test]
    fn interrupted_and_damaged_snapshots_are_noticed() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let (source, to) = (dir.path().join("a.db"), dir.path().join("b.db"));
        let writer = super::super::database::open_as_is(&source, FORM).expect("it opens");
        add(&writer, 200);
        let stopped = snapshot(&source, Life::Live, &to, &|_| false);
        assert!(matches!(stopped, Err(SnapshotError::Interrupted)), "{stopped:?}");
        assert!(snapshot(&source, Life::Live, &to, &|_| true).expect("it can be copied"));
        let mut bytes = std::fs::read(&to).expect("it is there");
        bytes[4_096..8_192].fill(0xff);
        std::fs::write(&to, &bytes).expect("it is ours");
        assert!(fault_of_snapshot(&to).map_or(true, |fault| fault.is_some()));
    }
}
