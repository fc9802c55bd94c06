//! Expired sessions: which ones they are, and how they are deleted.
//!
//! *Locking.* A session is deleted while its index lock is held and its own lock is shared, as by a command that looks: a
//! relay that starts meanwhile retries, and finds that the folder is gone. The folder is renamed first, to a name that no
//! session can have, so no process ever sees a partial session.
//!
//! This module never follows a link: only real folders below `sessions` are sessions, and a link is deleted without its
//! target. It deletes only the files that codex-shim creates, known by name and kind ([`Contents`]); a folder that holds
//! others stays, with those in it.

use std::fs::{DirEntry, File, FileType};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::ledger::LEDGER_FILE;
use super::session::{INDEX_LOCK_FILE, IndexLock};
use super::sums::SUMS_FILE;
use super::witness;
use crate::config::SessionName;
use crate::files::{self, Access};
use crate::journal::SegmentName;
use crate::socket::remove_target;

/// Prefix of folders that are being deleted. No session's name can contain its first character.
const DELETING: &str = "~going.";

/// The folder of the home whose files name the session that last ran in a place.
pub const PLACES_DIR: &str = "places";

/// The last use of a session: the newest modification time of its lock, journal segments and ledger. `None` if
/// none of these files exists.
#[must_use]
pub(super) fn last_use(written: impl IntoIterator<Item = SystemTime>) -> Option<SystemTime> {
    written.into_iter().max()
}

/// Whether a session was unused for longer than `age_max`. A time in the future counts as recent use.
#[must_use]
pub(super) fn is_expired(last_use: Option<SystemTime>, now: SystemTime, age_max: Duration) -> bool {
    last_use.is_some_and(|last_use| now.duration_since(last_use).is_ok_and(|age| age > age_max))
}

/// A session that is due for deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredSession {
    pub id: String,
    /// Size of its files, in bytes.
    pub bytes: u64,
    /// Its files, by their paths in its folder.
    pub files: Vec<PathBuf>,
    /// Files in its folder that codex-shim did not create; they stay.
    pub foreign: Vec<PathBuf>,
    /// Files of it outside its folder, by their paths in the home; they are deleted with it.
    pub beside: Vec<PathBuf>,
}

/// Why an expired session was not deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skipped {
    /// It is in use, or was used since it was listed.
    InUse,
}

/// The sessions in `home` that were unused for longer than `age_max` and that no process holds. A missing sessions folder
/// means none.
pub fn expired_sessions(home: &Path, now: SystemTime, age_max: Duration) -> io::Result<Vec<ExpiredSession>> {
    let sessions = home.join("sessions");
    let entries = match std::fs::read_dir(&sessions) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        // The type of the entry itself, not of a link's target.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let Some(id) = entry.file_name().to_str().map(str::to_owned) else { continue };
        if !is_folder || id.parse::<SessionName>().is_err() {
            continue;
        }
        let dir = entry.path();
        if is_expired(last_use(times_of(&dir)), now, age_max) && shared_lock(&dir).is_ok_and(|lock| lock.is_some()) {
            let Contents { files, foreign, bytes, .. } = Contents::of(&dir)?;
            let beside = beside(home, &id);
            let size = |path: &PathBuf| std::fs::symlink_metadata(home.join(path)).map_or(0, |file| file.len());
            let bytes = bytes + beside.iter().map(size).sum::<u64>();
            found.push(ExpiredSession { id, bytes, files, foreign, beside });
        }
    }
    found.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(found)
}

/// Deletes the session `id` of `home`, and its places, if it is still expired and unused. Returns the files that stay
/// because codex-shim did not create them.
///
/// # Errors
///
/// The session is then still whole, or its deletion is finished the next time.
pub fn remove_expired(
    home: &Path,
    id: &str,
    now: SystemTime,
    age_max: Duration,
) -> io::Result<Result<Vec<PathBuf>, Skipped>> {
    if id.parse::<SessionName>().is_err() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a valid session name"));
    }
    let dir = home.join("sessions").join(id);
    if !std::fs::symlink_metadata(&dir)?.is_dir() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a folder"));
    }
    let Some(_index) = IndexLock::try_take(&dir)? else { return Ok(Err(Skipped::InUse)) };
    let Some(_lock) = shared_lock(&dir)? else { return Ok(Err(Skipped::InUse)) };
    if !is_expired(last_use(times_of(&dir)), now, age_max) {
        return Ok(Err(Skipped::InUse));
    }
    let deleting = home.join("sessions").join(format!("{DELETING}{id}.{}", std::process::id()));
    std::fs::rename(&dir, &deleting)?;
    for path in beside(home, id) {
        // The session it names is gone; the next start in that place writes it again.
        let _ = std::fs::remove_file(home.join(path));
    }
    let contents = Contents::of(&deleting)?;
    if !contents.delete(&deleting)? {
        // The user looks for the rest under the old name. If a new session has taken the name, the rest stays under the other one.
        let _ = std::fs::rename(&deleting, &dir);
    }
    Ok(Ok(contents.foreign))
}

/// Finishes deletions that were interrupted.
pub fn remove_leftovers(home: &Path) {
    let Ok(entries) = std::fs::read_dir(home.join("sessions")) else { return };
    for entry in entries.flatten() {
        let is_rest = entry.file_name().to_str().is_some_and(|name| name.starts_with(DELETING));
        if is_rest && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // Another process may be deleting it too.
            let _ = Contents::of(&entry.path()).and_then(|contents| contents.delete(&entry.path()));
        }
    }
}

/// Modification times of the files that show a session's use. The ledger's log counts too.
fn times_of(dir: &Path) -> Vec<SystemTime> {
    let journal = dir.join("journal");
    let is_folder = std::fs::symlink_metadata(&journal).is_ok_and(|file| file.is_dir());
    let segments = if is_folder { SegmentName::list(&journal).unwrap_or_default() } else { Vec::new() };
    let segments = segments.iter().map(|segment| journal.join(segment.to_string()));
    let others = ["lock", LEDGER_FILE, "ledger.db-wal"].map(|name| dir.join(name));
    let written = segments.chain(others).filter_map(|path| std::fs::symlink_metadata(path).ok());
    written.filter_map(|file| file.modified().ok()).collect()
}

/// The lock of a session, shared as by a command that looks; `None` if a relay holds it.
fn shared_lock(dir: &Path) -> io::Result<Option<File>> {
    let lock = files::open(&dir.join("lock"), Access::Read)?;
    match lock.try_lock_shared() {
        Ok(()) => Ok(Some(lock)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// The files of the session `id` outside its folder that are deleted with it, by their paths in the home: its entries in
/// `places`, and its witness if the id is a UUID. A session with another kind of name may be created again, and its readers
/// continue then.
fn beside(home: &Path, id: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let places = home.join(PLACES_DIR);
    if std::fs::symlink_metadata(&places).is_ok_and(|file| file.is_dir()) {
        for entry in std::fs::read_dir(places).into_iter().flatten().flatten() {
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && files::read(&entry.path()).is_ok_and(|known| known == id.as_bytes()) {
                found.push(Path::new(PLACES_DIR).join(entry.file_name()));
            }
        }
    }
    let witness = witness::path_in_home(id);
    if uuid::Uuid::try_parse(id).is_ok() && std::fs::symlink_metadata(home.join(&witness)).is_ok() {
        found.push(witness);
    }
    found.sort();
    found
}

/// Files of ours in the folder itself, besides databases.
const FILES: [&str; 8] =
    ["lock", INDEX_LOCK_FILE, REDACTED_FILE, SUMS_FILE, "shim.log", "shim.log.old", "server.json", "server.log"];

/// Changes whenever `redact` has masked something, so that a copy of the session is made anew.
pub const REDACTED_FILE: &str = "redacted";

/// The sockets of the relay or hub: links to sockets elsewhere, which a killed process leaves behind.
const OWN_SOCKETS: [&str; 2] = ["control.sock", "codex.sock"];

/// The socket of a hub's server. Its target belongs to codex.
const SERVER_SOCKET: &str = "server.sock";

const DATABASES: [&str; 2] = [LEDGER_FILE, "history.db"];

/// Suffix of a file that `redact` is rewriting.
const REDACTING: &str = ".redacting";

/// The contents of a session's folder.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Contents {
    /// Files of ours, by their paths in the folder.
    pub(super) files: Vec<PathBuf>,
    /// Folders of ours.
    folders: Vec<PathBuf>,
    /// Files and folders that codex-shim did not create.
    pub(super) foreign: Vec<PathBuf>,
    /// Size of our files, in bytes.
    pub(super) bytes: u64,
}

impl Contents {
    /// Looks at the folder of a session.
    pub(super) fn of(dir: &Path) -> io::Result<Contents> {
        let mut contents = Contents::default();
        for (entry, name, kind) in entries(dir)? {
            let of_folder: fn(&str) -> bool = match &*name {
                "journal" => is_of_journal,
                "transcripts" => is_transcript,
                _ => {
                    let is_ours =
                        is_file_name(&name) && is_file_kind(kind) || is_socket_name(&name) && is_socket_kind(kind);
                    contents.add(&entry, name.into(), is_ours);
                    continue;
                }
            };
            if !kind.is_dir() {
                // A link under one of our names is deleted, its target is not.
                contents.add(&entry, name.into(), kind.is_symlink());
                continue;
            }
            for (entry, inner, kind) in entries(&entry.path())? {
                contents.add(&entry, Path::new(&name).join(&inner), of_folder(&inner) && is_file_kind(kind));
            }
            contents.folders.push(name.into());
        }
        contents.files.sort();
        contents.foreign.sort();
        Ok(contents)
    }

    fn add(&mut self, entry: &DirEntry, path: PathBuf, is_ours: bool) {
        if is_ours {
            self.bytes += entry.metadata().map_or(0, |file| file.len());
            self.files.push(path);
        } else {
            self.foreign.push(path);
        }
    }

    /// Deletes our files in `dir`, and `dir` itself if nothing else is left. Returns whether `dir` is gone.
    pub(super) fn delete(&self, dir: &Path) -> io::Result<bool> {
        OWN_SOCKETS.iter().for_each(|socket| remove_target(&dir.join(socket)));
        for file in &self.files {
            gone(std::fs::remove_file(dir.join(file)))?;
        }
        for folder in &self.folders {
            gone(std::fs::remove_dir(dir.join(folder)))?;
        }
        gone(std::fs::remove_dir(dir))
    }
}

/// Whether the entry is gone; a folder that is not empty is still there.
fn gone(removed: io::Result<()>) -> io::Result<bool> {
    match removed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(error) => Err(error),
    }
}

/// The entries of a folder. Names that are not UTF-8 are converted lossily: no file of ours has such a name.
fn entries(dir: &Path) -> io::Result<Vec<(DirEntry, String, FileType)>> {
    let entry = |entry: io::Result<DirEntry>| {
        let entry = entry?;
        let (name, kind) = (entry.file_name().to_string_lossy().into_owned(), entry.file_type()?);
        Ok((entry, name, kind))
    };
    std::fs::read_dir(dir)?.map(entry).collect()
}

fn is_file_kind(kind: FileType) -> bool {
    kind.is_file() || kind.is_symlink()
}

fn is_socket_name(name: &str) -> bool {
    OWN_SOCKETS.contains(&name) || name == SERVER_SOCKET
}

fn is_socket_kind(kind: FileType) -> bool {
    kind.is_socket() || kind.is_symlink()
}

fn is_file_name(name: &str) -> bool {
    let name = files::named_later(name).unwrap_or(name);
    FILES.contains(&name) || DATABASES.iter().any(|database| name.strip_prefix(database).is_some_and(is_of_database))
}

/// Whether this suffix of a database's name is one that SQLite or codex-shim uses.
fn is_of_database(rest: &str) -> bool {
    let is_beside = |rest: &str| matches!(rest, "" | "-wal" | "-shm" | "-journal");
    let aside = |rest: &str| is_beside(rest.trim_start_matches(|char: char| char.is_ascii_digit()));
    is_beside(rest) || rest.strip_prefix(".corrupt-").is_some_and(aside)
}

fn is_of_journal(name: &str) -> bool {
    let name = files::named_later(name).unwrap_or(name);
    let begun = name.strip_prefix('.').and_then(|name| name.strip_suffix(".new"));
    let name = begun.unwrap_or_else(|| name.strip_suffix(REDACTING).unwrap_or(name));
    SegmentName::parse(name).is_some()
}

fn is_transcript(name: &str) -> bool {
    let name = files::named_later(name).unwrap_or(name);
    name.strip_suffix(REDACTING).unwrap_or(name).ends_with(".jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Found, Place, Session};

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn last_use_is_the_newest_time() {
        let day = |number: u32| SystemTime::UNIX_EPOCH + DAY * number;
        let check = |days: &[u32], age_days, expect| {
            let last_use = last_use(days.iter().map(|number| day(*number)));
            assert_eq!(is_expired(last_use, day(100), DAY * age_days), expect, "{days:?}");
        };
        check(&[], 0, false);
        check(&[69], 30, true);
        check(&[70], 30, false);
        check(&[1, 70, 69], 30, false);
        check(&[1, 2], 30, true);
        check(&[200], 30, false);
        check(&[100], 0, false);
    }

    fn session(home: &Path, name: &str) -> Session {
        let place = Place { cwd: format!("/{name}"), codex_home: "/c".to_owned(), server: vec!["codex".to_owned()] };
        let name = name.parse().expect("BUG: a test names a session well");
        Session::open(home, Some(&name), &place, uuid::Uuid::now_v7()).expect("BUG: the folder is ours")
    }

    #[test]
    fn removal_spares_used_sessions_and_follows_no_link() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let (home, outside) = (home.path(), home.path().join("outside"));
        drop(session(home, "old"));
        drop(session(home, "other"));
        let live = session(home, "live");
        std::fs::create_dir(&outside).expect("a folder");
        std::fs::write(outside.join("lock"), "mine").expect("write");
        std::os::unix::fs::symlink(&outside, home.join("sessions/link")).expect("a link");
        std::os::unix::fs::symlink(&outside, home.join("sessions/old/transcripts")).expect("a link");
        let later = SystemTime::now() + DAY * 31;
        let ids = |age| -> Vec<String> {
            expired_sessions(home, later, age).expect("it can be read").into_iter().map(|found| found.id).collect()
        };
        assert_eq!(ids(DAY * 32), Vec::<String>::new());
        assert_eq!(ids(DAY * 30), ["old", "other"]);
        assert_eq!(std::fs::read_dir(home.join("places")).expect("a folder").count(), 3);
        let remove = |id: &str| remove_expired(home, id, later, DAY * 30);
        assert_eq!(remove("old").expect("it works"), Ok(Vec::new()));
        assert_eq!(remove("live").expect("it works"), Err(Skipped::InUse));
        let held = IndexLock::try_take(&home.join("sessions/other")).expect("a lock").expect("nobody holds it");
        assert_eq!(remove("other").expect("it works"), Err(Skipped::InUse));
        drop(held);
        assert!(remove("link").is_err() && remove("..").is_err() && remove("a/b").is_err());
        assert_eq!(std::fs::read_to_string(outside.join("lock")).expect("it is there"), "mine");
        assert_eq!(std::fs::read_dir(home.join("places")).expect("a folder").count(), 2);
        std::fs::create_dir(home.join("sessions/~going.x.1")).expect("a folder");
        std::fs::write(home.join("sessions/~going.x.1/lock"), "").expect("write");
        remove_leftovers(home);
        let left: Vec<String> = Found::all(home).expect("it can be read").into_iter().map(|one| one.id).collect();
        assert!(left.contains(&"live".to_owned()) && left.contains(&"other".to_owned()) && left.len() == 2, "{left:?}");
        drop(live);
    }

    #[test]
    fn start_during_removal_gets_a_new_folder() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        drop(session(home.path(), "old"));
        let later = SystemTime::now() + DAY * 31;
        std::thread::scope(|scope| {
            let removing = scope.spawn(|| {
                let removed = remove_expired(home.path(), "old", later, DAY * 30);
                removed.is_ok()
            });
            let started = session(home.path(), "old");
            removing.join().expect("it ends");
            assert_eq!(started.id, "old");
            assert!(started.dir.join("lock").exists() && started.journal_dir.exists());
        });
    }

    #[test]
    fn own_file_names_are_recognized() {
        for ours in [
            "lock",
            "ledger.db",
            "ledger.db-wal",
            "history.db.corrupt-17",
            "history.db.corrupt-17-shm",
            ".lock.12-3.new",
            "server.json",
            "server.json.12.new",
            "server.log",
            "redacted",
        ] {
            assert!(is_file_name(ours), "{ours}");
        }
        for foreign in [
            "notes.txt",
            "lock.bak",
            "ledger.db.bak",
            "history.db.corrupt-x",
            "ledger.dbx",
            "shim.log.1",
            ".lock.x.new",
        ] {
            assert!(!is_file_name(foreign), "{foreign}");
        }
        for ours in ["0a1b2c3d4e5f-001.jsonl", ".0a1b2c3d4e5f-001.jsonl.new", "0a1b2c3d4e5f-001.jsonl.redacting"] {
            assert!(is_of_journal(ours), "{ours}");
        }
        for foreign in ["copy-of-0a1b2c3d4e5f-001.jsonl", "0a1b2c3d4e5f-001.jsonl.gz", "x.jsonl"] {
            assert!(!is_of_journal(foreign), "{foreign}");
        }
    }

    #[test]
    fn foreign_files_are_kept_and_named() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let dir = dir.path();
        std::fs::create_dir_all(dir.join("journal/mine")).expect("folders");
        for file in ["lock", "notes.txt", "journal/0a1b2c3d4e5f-001.jsonl", "journal/notes.txt", "journal/mine/x"] {
            std::fs::write(dir.join(file), "four").expect("write");
        }
        let contents = Contents::of(dir).expect("it can be read");
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(contents.files, paths(&["journal/0a1b2c3d4e5f-001.jsonl", "lock"]));
        assert_eq!(contents.foreign, paths(&["journal/mine", "journal/notes.txt", "notes.txt"]));
        assert_eq!(contents.bytes, 8);
        assert!(!contents.delete(dir).expect("it can be deleted"));
        assert!(dir.join("journal/mine/x").exists() && dir.join("notes.txt").exists() && !dir.join("lock").exists());
    }
}
