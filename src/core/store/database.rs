//! Opens SQLite files of the session, migrates them to the current schema, and masks secrets in their rows.
//!
//! *Migrations* are an append-only list; `user_version` is the number of them that a file has.
//!
//! *Compatibility.* A file with a newer schema is not changed; opening it is an error that says so.
//!
//! *Recovery.* A corrupt file is renamed, never deleted, and a new one is created.
//!
//! *Locking.* SQLite's own, in WAL mode: readers never wait for a writer, and every wait for a lock is bounded. Rows are read
//! and masked without a lock. Changes are written in short transactions, each row only if it still has the value that was
//! read. In a live session that is all; in a stopped one the file is then rebuilt, so that no deleted or overwritten data
//! stays in it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior, params_from_iter};

use super::ledger::LEDGER_FILE;
use super::ledger_writer::form;
use super::wal;
use crate::files::{self, Access, Refused};
use crate::secrets::{InPieces, Masker, Pieces};

/// Whether a relay runs in the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Live,
    Stopped,
}

#[derive(Debug)]
pub enum DatabaseError {
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
    /// The file is damaged in a way that SQLite does not notice.
    Damaged { path: PathBuf, problem: &'static str },
    /// The log beside the file is damaged, so that SQLite would leave out what was committed.
    Log { path: PathBuf, problem: String },
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
            DatabaseError::Damaged { path, problem } => write!(f, "use {}: {problem}", path.display()),
            DatabaseError::Log { path, problem } => write!(
                f,
                "use {}: its log beside it, {}, is damaged: {problem}; the next relay in this session keeps the log under \
                 another name, and goes on without the rest",
                path.display(),
                wal::of(path).display()
            ),
        }
    }
}

impl DatabaseError {
    /// Whether the file is corrupt.
    pub fn is_broken(&self) -> bool {
        match self {
            DatabaseError::Sqlite { source, .. } => is_corrupt(source),
            DatabaseError::Damaged { .. } => true,
            DatabaseError::File { .. } | DatabaseError::Newer { .. } | DatabaseError::Log { .. } => false,
        }
    }
}

impl std::error::Error for DatabaseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DatabaseError::File { source, .. } => Some(source),
            DatabaseError::Sqlite { source, .. } => Some(source),
            DatabaseError::Newer { .. } | DatabaseError::Damaged { .. } | DatabaseError::Log { .. } => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct DatabaseForm {
    /// The migrations, from an empty file on.
    pub migrations: &'static [&'static str],
    /// The `synchronous` pragma: `FULL` or `NORMAL`.
    pub synchronous: &'static str,
    /// The longest wait for a lock.
    pub busy_wait_max: Duration,
}

#[derive(Debug)]
pub struct Opened {
    pub connection: Connection,
    pub set_aside: Option<SetAside>,
}

/// The corrupt file, by its new path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetAside {
    /// The file, which was replaced by an empty one.
    Database(PathBuf),
    /// A copy of its log. The database goes on with what SQLite reads of it.
    Log(PathBuf),
}

/// Opens the database at `path`, creating it if it is missing. A corrupt file is set aside and replaced.
pub fn open(path: &Path, form: DatabaseForm) -> Result<Opened, DatabaseError> {
    match open_as_is(path, form) {
        Ok(connection) => Ok(Opened { connection, set_aside: None }),
        Err(error) if error.is_broken() => {
            let set_aside = Some(SetAside::Database(set_aside(path)?));
            Ok(Opened { connection: open_as_is(path, form)?, set_aside })
        }
        Err(DatabaseError::Log { .. }) => {
            let set_aside = Some(SetAside::Log(copy_log(path)?));
            Ok(Opened { connection: open_unchecked(path, form)?, set_aside })
        }
        Err(error) => Err(error),
    }
}

/// Whether an error means that the file is corrupt or not a database.
pub fn is_corrupt(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

/// Damage that SQLite does not notice, as an error.
pub fn check(path: &Path) -> Result<(), DatabaseError> {
    let failed = |source| DatabaseError::File { path: path.to_owned(), source };
    if let Some(problem) = wal::damage_of_log(path).map_err(failed)? {
        return Err(DatabaseError::Log { path: path.to_owned(), problem });
    }
    Ok(())
}

const NO_VERSION: &str = "it has tables and no version, so its first page is damaged";

/// Copies the log of a database. Returns the path of the copy.
fn copy_log(path: &Path) -> Result<PathBuf, DatabaseError> {
    let log = wal::of(path);
    let copy = aside(path, "-wal");
    let copied = || -> io::Result<()> {
        let (mut from, mut to) = (files::open(&log, Access::Read)?, files::open(&copy, Access::Create)?);
        io::copy(&mut from, &mut to).map(drop)
    };
    copied().map_err(|source| DatabaseError::File { path: log, source })?;
    Ok(copy)
}

/// Like [`open`], but a corrupt file is an error.
pub(super) fn open_as_is(path: &Path, form: DatabaseForm) -> Result<Connection, DatabaseError> {
    check(path)?;
    open_unchecked(path, form)
}

fn open_unchecked(path: &Path, form: DatabaseForm) -> Result<Connection, DatabaseError> {
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

fn open_once(path: &Path, form: DatabaseForm) -> Result<Connection, DatabaseError> {
    let failed = |source| DatabaseError::Sqlite { path: path.to_owned(), source };
    // Created here, so that only the owner has access from the start; SQLite copies the mode to its other files.
    let made = files::open(path, Access::Create).and_then(|_| files::repair_beside_database(path));
    made.map_err(|source| DatabaseError::File { path: path.to_owned(), source })?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags)?;
    connection.busy_timeout(form.busy_wait_max).map_err(failed)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    connection.pragma_update(None, "synchronous", form.synchronous).map_err(failed)?;
    // On macOS a plain `fsync` does not reach the disk. The pragma does nothing elsewhere.
    connection.pragma_update(None, "fullfsync", form.synchronous == "FULL").map_err(failed)?;
    connection.pragma_update(None, "cache_size", CACHE_KIB_NEGATED).map_err(failed)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT).map_err(failed)?;
    // What is deleted or replaced may be a secret, or hold copies of one that `redact` masks later.
    connection.pragma_update(None, "secure_delete", "ON").map_err(failed)?;
    let found = version(&connection).map_err(failed)?;
    let known = form.migrations.len() as i64;
    if found > known {
        return Err(DatabaseError::Newer { path: path.to_owned(), found, known });
    }
    if found == 0 && has_tables(&connection).map_err(failed)? {
        return Err(DatabaseError::Damaged { path: path.to_owned(), problem: NO_VERSION });
    }
    if found < known {
        migrate(&mut connection, form.migrations).map_err(failed)?;
    }
    Ok(connection)
}

fn has_tables(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

/// Opens a database read-only; `None` if it is missing or empty. Creates nothing, and in a stopped session leaves every
/// file with content unchanged.
pub(super) fn open_read_only(
    path: &Path,
    life: Life,
    busy_wait_max: Duration,
) -> Result<Option<Connection>, DatabaseError> {
    let failed = |source| DatabaseError::Sqlite { path: path.to_owned(), source };
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    check(path)?;
    let is_at_rest = std::fs::metadata(wal::of(path)).map_or(true, |wal| wal.len() == 0);
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
    if version(&connection).map_err(failed)? > 0 {
        return Ok(Some(connection));
    }
    match has_tables(&connection).map_err(failed)? {
        true => Err(DatabaseError::Damaged { path: path.to_owned(), problem: NO_VERSION }),
        false => Ok(None),
    }
}

/// Opens a database for maintenance; `None` if it is missing.
pub fn open_for(
    path: &Path,
    form: DatabaseForm,
    life: Life,
    mode: RunMode,
) -> Result<Option<Connection>, DatabaseError> {
    match mode {
        RunMode::Apply if !path.exists() => Ok(None),
        RunMode::Apply => open_as_is(path, form).map(Some),
        RunMode::DryRun => open_read_only(path, life, form.busy_wait_max),
    }
}

/// Carries out work in one transaction.
pub fn at_once<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let value = work(&transaction)?;
    transaction.commit()?;
    Ok(value)
}

/// Connects to the database at `path`. Opens only regular files and follows no links.
pub fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, DatabaseError> {
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

/// Length of a database's log once it is written back. It is longer only while a reader holds an old state.
const LOG_BYTES_KEPT: i64 = 4 << 20;

/// Empties the log of a database that is about to be closed, unless a reader uses it. SQLite does so only for the last of its
/// connections, and a reader of ours cannot.
pub fn empty_log(connection: &Connection) {
    let emptied = connection
        .busy_timeout(Duration::ZERO)
        .and_then(|()| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0)));
    match emptied {
        Ok(false) => {}
        Ok(true) => tracing::debug!("a reader keeps the log of a database"),
        Err(error) => tracing::debug!(%error, "empty the log of a database"),
    }
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    at_once(connection, |transaction| {
        // Another process may have migrated it meanwhile.
        let seen = usize::try_from(version(transaction)?).unwrap_or(0);
        for migration in migrations.iter().skip(seen) {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "user_version", migrations.len().max(seen) as i64)
    })
}

/// Suffixes of the files beside a database: its log and its shared memory.
pub const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// Renames a corrupt database and the files beside it. Returns the new path.
pub fn set_aside(path: &Path) -> Result<PathBuf, DatabaseError> {
    let kept = set_aside_beside(path, &BESIDE)?;
    std::fs::rename(path, &kept).map_err(|source| DatabaseError::File { path: path.to_owned(), source })?;
    Ok(kept)
}

/// Renames the files beside a database with these suffixes (of [`BESIDE`]). Returns the path that the database itself would
/// get.
pub fn set_aside_beside(path: &Path, suffixes: &[&str]) -> Result<PathBuf, DatabaseError> {
    let kept = aside(path, "");
    for beside in suffixes {
        match std::fs::rename(with(path, beside), with(&kept, beside)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DatabaseError::File { path: with(path, beside), source: error });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(kept)
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The path that a database, or the file beside it with this suffix, gets when it is set aside.
fn aside(path: &Path, suffix: &str) -> PathBuf {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    with(path, &format!(".corrupt-{}{suffix}", since_epoch.as_micros()))
}

/// Most rows that one transaction changes.
const BATCH_ROWS: usize = 100;

/// The longest wait for a relay's lock, which it holds for a commit: seconds on a busy machine.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest that a relay may wait while the log of a database is truncated.
const WIPE_WAIT_MAX: Duration = Duration::from_millis(50);

/// Attempts to truncate it.
const WIPE_TRIES: u32 = 20;

/// Whether to change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    Apply,
    /// Only count.
    DryRun,
}

pub struct MaskedTable {
    pub name: &'static str,
    pub json: &'static [&'static str],
    pub text: &'static [&'static str],
    /// An SQL condition that selects the rows.
    pub only: &'static str,
    /// For pieces of a longer text in the first JSON column: SQL for the condition that selects their rows, and for what
    /// they belong to.
    pub pieces: Option<(&'static str, &'static str)>,
}

impl MaskedTable {
    /// All rows of a table.
    pub const fn new(name: &'static str, json: &'static [&'static str], text: &'static [&'static str]) -> MaskedTable {
        MaskedTable { name, json, text, only: "1", pieces: None }
    }
}

const LEDGER: [MaskedTable; 7] = [
    MaskedTable::new(
        "codex_pending_requests",
        &["request_payload_json", "resolved_payload_json", "changes_json", "item_json"],
        &["error_message", "summary", "reason"],
    ),
    MaskedTable::new("codex_request_answers", &["payload_json"], &[]),
    MaskedTable::new("codex_overrulings", &["payload_json"], &[]),
    MaskedTable::new("codex_context_commands", &["command_json"], &[]),
    MaskedTable::new("codex_context_deliveries", &[], &["text"]),
    MaskedTable::new("codex_threads", &[], &["beginning"]),
    MaskedTable::new("codex_fragment_states", &[], &["text"]),
];

/// A relay decides open requests by their stored rows, so these stay unchanged.
const OF_A_LIVE_LEDGER: &str = "status NOT IN ('pending', 'expired')";

/// Masks the secrets in the ledger in `session_dir`. Returns how many rows had any. A missing ledger is not an error.
///
/// # Errors
///
/// The fault of the ledger, as text for the user.
pub fn redact_ledger(session_dir: &Path, masker: &Masker, life: Life, mode: RunMode) -> Result<u64, String> {
    let path = session_dir.join(LEDGER_FILE);
    let opened = open_for(&path, form(BUSY_WAIT_MAX), life, mode).map_err(|error| error.to_string())?;
    let Some(mut connection) = opened else { return Ok(0) };
    let [mut requests, rest @ ..] = LEDGER;
    if life == Life::Live {
        requests.only = OF_A_LIVE_LEDGER;
    }
    // A file that is only read may have an older schema without some of the tables.
    let is_there = |table: &MaskedTable| connection.table_exists(None, table.name).unwrap_or(true);
    let tables: Vec<MaskedTable> = [requests].into_iter().chain(rest).filter(is_there).collect();
    let masked = mask_tables(&mut connection, &tables, masker, mode);
    let done = masked.and_then(|rows| {
        if mode == RunMode::Apply {
            wipe(&connection, life)?;
        }
        Ok(rows)
    });
    done.map_err(|source| DatabaseError::Sqlite { path, source }.to_string())
}

/// Masks the secrets in some tables; returns how many rows had any.
pub fn mask_tables(
    connection: &mut Connection,
    tables: &[MaskedTable],
    masker: &Masker,
    mode: RunMode,
) -> rusqlite::Result<u64> {
    let mut rows = 0;
    for table in tables {
        let pieces = pieces(connection, table, masker)?;
        rows += mask_table(connection, table, masker, &pieces, mode)?;
    }
    Ok(rows)
}

/// Finds the secrets that span several pieces of a longer text.
fn pieces(connection: &Connection, table: &MaskedTable, masker: &Masker) -> rusqlite::Result<InPieces> {
    let (Some((only, whole)), Some(column)) = (table.pieces, table.json.first()) else { return Ok(InPieces::new()) };
    let select = format!("SELECT rowid, {whole}, {column} FROM {} WHERE {only} ORDER BY rowid", table.name);
    let mut select = connection.prepare(&select)?;
    let mut rows = select.query([])?;
    let mut pieces = Pieces::default();
    while let Some(row) = rows.next()? {
        let (number, whole, json): (i64, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        pieces.add(whole, number as u64, json.as_deref().unwrap_or_default());
    }
    Ok(masker.in_pieces(&pieces))
}

struct Change {
    rowid: i64,
    before: Vec<Option<String>>,
    after: Vec<Option<String>>,
}

fn mask_table(
    connection: &mut Connection,
    table: &MaskedTable,
    masker: &Masker,
    pieces: &InPieces,
    mode: RunMode,
) -> rusqlite::Result<u64> {
    let columns: Vec<&str> = table.json.iter().chain(table.text).copied().collect();
    let select = format!(
        "SELECT rowid, {} FROM {} WHERE rowid > ?1 AND ({}) ORDER BY rowid LIMIT {BATCH_ROWS}",
        columns.join(", "),
        table.name,
        table.only
    );
    let sets = columns.iter().map(|column| format!("{column} = ?")).collect::<Vec<_>>().join(", ");
    let wheres = columns.iter().map(|column| format!("{column} IS ?")).collect::<Vec<_>>().join(" AND ");
    let update = format!("UPDATE {} SET {sets} WHERE rowid = ? AND {wheres}", table.name);
    let (mut last, mut changed) = (i64::MIN, 0);
    loop {
        let mut read = 0;
        let mut changes = Vec::new();
        {
            let mut select = connection.prepare_cached(&select)?;
            let mut rows = select.query([last])?;
            while let Some(row) = rows.next()? {
                (last, read) = (row.get(0)?, read + 1);
                let before: Vec<Option<String>> =
                    (1..=columns.len()).map(|index| row.get(index)).collect::<rusqlite::Result<_>>()?;
                let in_piece = pieces.get(&(last as u64)).map_or(&[][..], Vec::as_slice);
                let masked = |(index, text): (usize, &String)| match index {
                    0 if !table.json.is_empty() => masker.json_piece(text, in_piece),
                    index if index < table.json.len() => masker.json(text),
                    _ => masker.text(text),
                };
                let after: Vec<Option<String>> = before
                    .iter()
                    .enumerate()
                    .map(|(index, text)| {
                        text.as_ref().map(|text| masked((index, text)).unwrap_or_else(|| text.clone()))
                    })
                    .collect();
                if after != before {
                    changes.push(Change { rowid: last, before, after });
                }
            }
        }
        changed += changes.len() as u64;
        if mode == RunMode::Apply && !changes.is_empty() {
            at_once(connection, |transaction| {
                for Change { rowid, before, after } in changes {
                    let values = after.into_iter().chain([Some(rowid.to_string())]).chain(before);
                    transaction.prepare_cached(&update)?.execute(params_from_iter(values))?;
                }
                Ok(())
            })?;
        }
        if read < BATCH_ROWS {
            return Ok(changed);
        }
    }
}

/// Removes overwritten data from a database's files.
pub fn wipe(connection: &Connection, life: Life) -> rusqlite::Result<()> {
    if life == Life::Stopped {
        connection.execute_batch("VACUUM")?;
    }
    // Readers of the database finish quickly.
    connection.busy_timeout(WIPE_WAIT_MAX)?;
    let mut is_busy = true;
    for _ in 0..WIPE_TRIES {
        is_busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        if !is_busy {
            break;
        }
        // SQLite does not signal the end of a read, and a checkpoint may fail at once if it meets a reader.
        std::thread::sleep(WIPE_WAIT_MAX);
    }
    connection.busy_timeout(BUSY_WAIT_MAX)?;
    if is_busy {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        return Err(rusqlite::Error::SqliteFailure(
            busy,
            Some("a reader uses it, so its log still holds old values; try again".to_owned()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const FORM: DatabaseForm = DatabaseForm {
        migrations: &["CREATE TABLE a (x INTEGER)", "ALTER TABLE a ADD COLUMN y TEXT"],
        synchronous: "FULL",
        busy_wait_max: Duration::from_millis(10),
    };

    #[test]
    fn new_file_is_private_and_migrated() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        let first = DatabaseForm { migrations: &FORM.migrations[..1], ..FORM };
        drop(open(&path, first).expect("it can be made"));
        let opened = open(&path, FORM).expect("it can be opened");
        opened.connection.execute("INSERT INTO a VALUES (1, 'y')", []).expect("both columns are there");
        for file in std::fs::read_dir(dir.path()).expect("a folder") {
            let mode = file.expect("a file").metadata().expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn log_shrinks_once_its_reader_has_gone() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        let writer = open(&path, FORM).expect("it can be made").connection;
        let writes = || writer.execute("INSERT INTO a VALUES (1, ?1)", ["y".repeat(100_000)]).expect("it is written");
        let log = || std::fs::metadata(dir.path().join("x.db-wal")).expect("it is there").len();
        writes();
        let reader = open_read_only(&path, Life::Live, Duration::ZERO).expect("it can be read").expect("it has rows");
        reader.execute_batch("BEGIN; SELECT * FROM a").expect("it is read");
        while log() < 3 * LOG_BYTES_KEPT as u64 {
            writes();
        }
        reader.execute_batch("ROLLBACK").expect("it is read");
        // The first writes the log back, and the second begins it anew.
        (0..2).for_each(|_| assert_eq!(writes(), 1));
        assert!(log() <= LOG_BYTES_KEPT as u64, "{}", log());
        // The reader is still connected.
        empty_log(&writer);
        assert_eq!(log(), 0);
    }

    #[test]
    fn newer_file_is_not_changed() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        drop(open(&path, FORM).expect("it can be made"));
        let older = DatabaseForm { migrations: &FORM.migrations[..1], ..FORM };
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
        let Some(SetAside::Database(kept)) = opened.set_aside else { panic!("it is told: {opened:?}") };
        let kept = std::fs::read(kept).expect("it is there");
        assert!(kept.starts_with(b"no database"));
    }
}
