//! Opens SQLite files of the session and migrates them to the current schema.
//!
//! *Migrations* are an append-only list; `user_version` is the number of them that a file has.
//!
//! *Compatibility.* A file with a newer schema is not changed; opening it is an error that says so.
//!
//! *Recovery.* A corrupt file is renamed, never deleted, and a new one is created.
//!
//! *Locking.* SQLite's own, in WAL mode: readers never wait for a writer, and every wait for a lock is bounded.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::files::{self, Access, Refused};

/// Whether a relay runs in the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Live,
    Stopped,
}

#[derive(Debug)]
pub(crate) enum DatabaseError {
    /// The file cannot be created or reached.
    File { path: PathBuf, source: io::Error },
    /// A newer version wrote the file.
    Newer {
        path: PathBuf,
        /// The schema version of the file.
        found: i64,
        /// The newest schema version that this program knows.
        known: i64,
    },
    /// SQLite returned an error.
    Sqlite { path: PathBuf, source: rusqlite::Error },
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The source names the path and the remedy.
            DatabaseError::File { source, .. } if Refused::behind(source).is_some() => source.fmt(f),
            DatabaseError::File { path, source } => write!(f, "open {}: {source}", path.display()),
            DatabaseError::Newer { path, found, known } => write!(
                f,
                "open {}: it was written by a newer codex-shim (form {found}, this one knows {known}); use that one, or \
                 move the file away",
                path.display()
            ),
            DatabaseError::Sqlite { path, source } => write!(f, "use {}: {source}", path.display()),
        }
    }
}

impl DatabaseError {
    /// Whether the file is corrupt.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, DatabaseError::Sqlite { source, .. } if is_corrupt(source))
    }
}

impl std::error::Error for DatabaseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DatabaseError::File { source, .. } => Some(source),
            DatabaseError::Sqlite { source, .. } => Some(source),
            DatabaseError::Newer { .. } => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// The migrations, from an empty file on.
    pub(crate) migrations: &'static [&'static str],
    /// The `synchronous` pragma: `FULL` or `NORMAL`.
    pub(crate) synchronous: &'static str,
    /// The longest wait for a lock.
    pub(crate) busy_wait_max: Duration,
}

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// The new path of a corrupt file that was replaced.
    pub(crate) set_aside: Option<PathBuf>,
}

/// Opens the database at `path`, creating it if it is missing. A corrupt file is set aside and replaced.
pub(crate) fn open(path: &Path, form: Form) -> Result<Opened, DatabaseError> {
    match open_as_is(path, form) {
        Ok(connection) => Ok(Opened { connection, set_aside: None }),
        Err(DatabaseError::Sqlite { source, .. }) if is_corrupt(&source) => {
            let set_aside = Some(set_aside(path)?);
            Ok(Opened { connection: open_as_is(path, form)?, set_aside })
        }
        Err(error) => Err(error),
    }
}

/// Whether an error means that the file is corrupt or not a database.
pub(crate) fn is_corrupt(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

/// Like [`open`], but a corrupt file is an error.
pub(crate) fn open_as_is(path: &Path, form: Form) -> Result<Connection, DatabaseError> {
    // SQLite sets the mode of the files beside a database after it has created them. Under a umask that takes away the owner's
    // rights, another connection cannot open them for that instant.
    for _ in 1..OPEN_TRIES_MAX {
        match open_once(path, form) {
            Err(DatabaseError::Sqlite { source, .. }) if source.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
                std::thread::park_timeout(OPEN_RETRY_PAUSE);
            }
            opened => return opened,
        }
    }
    open_once(path, form)
}

fn open_once(path: &Path, form: Form) -> Result<Connection, DatabaseError> {
    let failed = |source| DatabaseError::Sqlite { path: path.to_owned(), source };
    // Created here, so that only the owner has access from the start; SQLite copies the mode to its other files.
    let made = files::open(path, Access::Create).and_then(|_| files::repair_beside_database(path));
    made.map_err(|source| DatabaseError::File { path: path.to_owned(), source })?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags)?;
    connection.busy_timeout(form.busy_wait_max).map_err(failed)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    connection.pragma_update(None, "synchronous", form.synchronous).map_err(failed)?;
    connection.pragma_update(None, "cache_size", CACHE_KIB_NEGATED).map_err(failed)?;
    let found = version(&connection).map_err(failed)?;
    let known = form.migrations.len() as i64;
    if found > known {
        return Err(DatabaseError::Newer { path: path.to_owned(), found, known });
    }
    if found < known {
        migrate(&mut connection, form.migrations).map_err(failed)?;
    }
    Ok(connection)
}

/// Opens a database read-only; `None` if it is missing or empty. Creates nothing, and in a stopped session leaves every
/// file with content unchanged.
pub(crate) fn open_read_only(
    path: &Path,
    life: Life,
    busy_wait_max: Duration,
) -> Result<Option<Connection>, DatabaseError> {
    let failed = |source| DatabaseError::Sqlite { path: path.to_owned(), source };
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let is_at_rest = std::fs::metadata(wal).map_or(true, |wal| wal.len() == 0);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = if life == Life::Stopped && is_at_rest {
        // Without a log, the file alone is complete.
        let file = files::database(path).map_err(|source| DatabaseError::File { path: path.to_owned(), source })?;
        let uri: String = file.as_os_str().as_encoded_bytes().iter().map(|byte| percent_encoded(*byte)).collect();
        let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        Connection::open_with_flags(format!("file:{uri}?immutable=1"), flags).map_err(failed)?
    } else {
        connect(path, flags)?
    };
    connection.busy_timeout(busy_wait_max).map_err(failed)?;
    let is_empty = version(&connection).map_err(failed)? == 0;
    Ok((!is_empty).then_some(connection))
}

/// Connects to the database at `path`. Opens only regular files and follows no links.
pub(crate) fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, DatabaseError> {
    let file = files::database(path).map_err(|source| DatabaseError::File { path: path.to_owned(), source })?;
    Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NOFOLLOW)
        .map_err(|source| DatabaseError::Sqlite { path: path.to_owned(), source })
}

/// A byte of a path, percent-encoded for a `file:` URI if necessary.
fn percent_encoded(byte: u8) -> String {
    match byte {
        b'/' | b'.' | b'-' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    }
}

/// Most attempts to open a database.
const OPEN_TRIES_MAX: u32 = 5;

/// The pause between two attempts.
const OPEN_RETRY_PAUSE: Duration = Duration::from_millis(2);

/// SQLite's cache size; a negative number is in KiB.
const CACHE_KIB_NEGATED: i64 = -512;

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have migrated it meanwhile.
    let seen = usize::try_from(version(&transaction)?).unwrap_or(0);
    for migration in migrations.iter().skip(seen) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", migrations.len().max(seen) as i64)?;
    transaction.commit()
}

/// Suffixes of the files beside a database: its log and its shared memory.
pub(crate) const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// Renames a corrupt database and the files beside it. Returns the new path.
pub(crate) fn set_aside(path: &Path) -> Result<PathBuf, DatabaseError> {
    let kept = set_aside_beside(path, &BESIDE)?;
    std::fs::rename(path, &kept).map_err(|source| DatabaseError::File { path: path.to_owned(), source })?;
    Ok(kept)
}

/// Renames the files beside a database with these suffixes (of [`BESIDE`]). Returns the path that the database itself would
/// get.
pub(crate) fn set_aside_beside(path: &Path, suffixes: &[&str]) -> Result<PathBuf, DatabaseError> {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let with = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let aside = format!(".corrupt-{}", since_epoch.as_micros());
    for beside in suffixes {
        match std::fs::rename(with(beside), with(&format!("{aside}{beside}"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DatabaseError::File { path: with(beside), source: error });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(with(&aside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const FORM: Form = Form {
        migrations: &["CREATE TABLE a (x INTEGER)", "ALTER TABLE a ADD COLUMN y TEXT"],
        synchronous: "FULL",
        busy_wait_max: Duration::from_millis(10),
    };

    #[test]
    fn new_file_is_private_and_migrated() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        let first = Form { migrations: &FORM.migrations[..1], ..FORM };
        drop(open(&path, first).expect("it can be made"));
        let opened = open(&path, FORM).expect("it can be opened");
        opened.connection.execute("INSERT INTO a VALUES (1, 'y')", []).expect("both columns are there");
        for file in std::fs::read_dir(dir.path()).expect("a folder") {
            let mode = file.expect("a file").metadata().expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn newer_file_is_not_changed() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        drop(open(&path, FORM).expect("it can be made"));
        let older = Form { migrations: &FORM.migrations[..1], ..FORM };
        let error = open(&path, older).expect_err("it is newer").to_string();
        assert!(error.contains("x.db: it was written by a newer codex-shim (form 2, this one knows 1)"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1);
    }

    #[test]
    fn corrupt_file_is_set_aside() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        std::fs::write(&path, "no database at all, and long enough to be seen as none".repeat(99)).expect("write");
        let opened = open(&path, FORM).expect("a new one is begun");
        let kept = std::fs::read(opened.set_aside.expect("it is told")).expect("it is there");
        assert!(kept.starts_with(b"no database"));
    }
}
