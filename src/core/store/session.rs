//! The folder of a session: finding or creating it for a start, and holding its lock.
//!
//! *Locking.* `lock` is an flock, close-on-exec. Its holder owns every generation in the folder. Its content names the
//! holder and the place it runs in, for display and to find the session again; the content alone proves nothing. Commands
//! that check whether it is held share it for an instant; a start that meets one of them retries.
//!
//! *Performance.* A start reads one file of `places` and one lock, however many sessions there are.
//!
//! *Filesystems.* flock must work in our home. If it does not, no session can be opened, and the relay runs without one.

use std::fs::{File, Metadata, TryLockError};
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::config::{SESSION_NAME_BYTES_MAX, SessionName, resolved};
use crate::files::{self, Access, Folder, Refused};
use crate::journal::{Generation, NoGeneration, SegmentName};
use crate::os;
use crate::os::descriptors::{inherited, share};

/// Most relays that may run under one session name at once.
const SAME_NAME_MAX: u32 = 999;

/// Most bytes of a lock's content that are read.
const LOCK_BYTES_MAX: u64 = 64 << 10;

/// Attempts to take a lock that commands are checking.
const LOCK_TRIES_MAX: u32 = 100;

/// The pause between two attempts. No bounded wait exists: `flock` either fails at once or waits forever, and a command
/// that was stopped in the middle of its check would then block the start for good.
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(1);

/// The key under which a session is found again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub cwd: String,
    pub codex_home: String,
    /// The server command, secrets masked.
    pub server: Vec<String>,
}

impl Place {
    /// The home of codex as [`crate::config::Environment::codex_home_resolved`] returns it.
    #[must_use]
    pub fn codex_home_resolved(&self) -> PathBuf {
        resolved(&Path::new(&self.cwd).join(&self.codex_home))
    }
}

#[derive(Debug)]
pub enum StoreError {
    /// A file or folder could not be created or opened.
    Io {
        /// The operation that failed.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Relays hold all names that were tried.
    AllNamesTaken(SessionName),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The source names the path and the remedy.
            StoreError::Io { source, .. } if Refused::behind(source).is_some() => source.fmt(f),
            StoreError::Io { action, path, source } => write!(f, "{action} {}: {source}", path.display()),
            StoreError::AllNamesTaken(name) => write!(
                f,
                "session {name}: {SAME_NAME_MAX} relays already use that name; choose another one with --session"
            ),
        }
    }
}

impl StoreError {
    /// The state of the process before, of the session in this folder, makes no sense.
    pub fn taken_over(dir: &Path, error: NoGeneration) -> StoreError {
        io_error("take over", dir)(io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StoreError::Io { source, .. } => Some(source),
            StoreError::AllNamesTaken(_) => None,
        }
    }
}

/// A session whose lock we hold.
#[derive(Debug)]
pub struct Session {
    /// The name of its folder.
    pub id: String,
    pub dir: PathBuf,
    pub journal_dir: PathBuf,
    lock: File,
}

/// The file of a session's lock, in its folder.
pub const LOCK_FILE: &str = "lock";

/// The content of a lock: its holder, or its last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// When it took the lock, RFC 3339.
    pub started_at: String,
    /// The client's name, once it has sent `initialize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    #[serde(flatten)]
    pub place: Place,
}

impl Holder {
    /// Reads a lock through a descriptor that was already used.
    fn read_from_start(lock: &File) -> Option<Holder> {
        let mut text = vec![0; LOCK_BYTES_MAX as usize];
        let length = lock.read_at(&mut text, 0).ok()?;
        serde_json::from_slice(text[..length].split(|byte| *byte == b'\n').next()?).ok()
    }

    /// Reads a lock; `None` if it has no valid content.
    pub(super) fn read(lock: &File) -> Option<Holder> {
        let mut text = Vec::new();
        lock.take(LOCK_BYTES_MAX).read_to_end(&mut text).ok()?;
        serde_json::from_slice(text.split(|byte| *byte == b'\n').next()?).ok()
    }
}

impl Holder {
    /// Writes the lock of a session whose files were restored, as its last holder left it. No process has its pid.
    ///
    /// # Errors
    ///
    /// As [`Folder::put`].
    pub fn leave_lock(holder: Option<&Holder>, session_dir: &Path) -> io::Result<()> {
        let mut text = holder.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        text.push(b'\n');
        Folder::at(session_dir)?.put("lock", &text)
    }
}

impl Session {
    /// Opens the session called `wanted`, else the one that last ran at `place`, else a new one, and takes its lock. If the
    /// lock of a named session is held, `NAME.2`, `NAME.3`, … follow; if that of the place's session is held, a new session
    /// is created. A new one gets the name `fresh_id`, so that a retried start does not leave a folder per attempt.
    pub fn open(
        home: &Path,
        wanted: Option<&SessionName>,
        place: &Place,
        fresh_id: Uuid,
    ) -> Result<Session, StoreError> {
        make_home(home)?;
        let sessions = home.join("sessions");
        make_dir(&sessions)?;
        let places = Places(home.join("places"));
        let session = match wanted {
            Some(name) => Session::named(&sessions, name)?,
            None => Session::of_place(&sessions, &places, place, fresh_id)?,
        };
        session.sign(place)?;
        // `places` is only an index: without the entry, the next start at this place begins a new session.
        if let Err(error) = places.remember(place, &session.id) {
            tracing::warn!(%error, "remember where this session runs");
        }
        Ok(session)
    }

    /// The session of the program that ran in this process before, by the descriptor of its lock, which it has left open.
    ///
    /// # Errors
    ///
    /// There is no such descriptor, or the lock cannot be written.
    pub fn taken_over(home: &Path, id: String, lock: RawFd, place: &Place) -> Result<Session, StoreError> {
        let dir = home.join("sessions").join(&id);
        let lock =
            inherited(lock).ok_or(io::ErrorKind::NotFound.into()).map_err(io_error("take over", &dir.join("lock")))?;
        let journal_dir = dir.join("journal");
        let session = Session { id, dir, journal_dir, lock: lock.into() };
        session.sign(place)?;
        Ok(session)
    }

    /// The number of the descriptor that holds the lock.
    pub fn lock(&self) -> RawFd {
        self.lock.as_raw_fd()
    }

    /// Has the program that this process becomes inherit the lock.
    pub fn share(&self) -> os::Result<()> {
        share(&self.lock)
    }

    /// The generation for a child that starts now; it sorts after all earlier ones of this session.
    pub fn next_generation(&self) -> Result<Generation, StoreError> {
        let segments = SegmentName::list(&self.journal_dir).map_err(io_error("read", &self.journal_dir))?;
        let last = segments.last().map(|segment| &segment.generation);
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // The low 16 bits of a UUIDv7 are random.
        let salt = Uuid::now_v7().as_u128() as u16;
        Ok(Generation::after(last, since_epoch.as_secs() as u32, salt))
    }

    fn named(sessions: &Path, name: &SessionName) -> Result<Session, StoreError> {
        for number in 1..=SAME_NAME_MAX {
            let id = if number == 1 { name.to_string() } else { numbered(name, number) };
            if let Some(session) = Session::try_hold(sessions, id)? {
                return Ok(session);
            }
        }
        Err(StoreError::AllNamesTaken(name.clone()))
    }

    fn of_place(sessions: &Path, places: &Places, place: &Place, fresh_id: Uuid) -> Result<Session, StoreError> {
        if let Some(id) = places.last_at(sessions, place)
            && let Some(session) = Session::try_hold(sessions, id)?
        {
            return Ok(session);
        }
        let mut id = fresh_id;
        loop {
            match Session::try_hold(sessions, id.to_string())? {
                Some(session) => return Ok(session),
                None => id = Uuid::now_v7(),
            }
        }
    }

    /// Takes the lock of a session, creating its folder if necessary; `None` if another process holds it.
    fn try_hold(sessions: &Path, id: String) -> Result<Option<Session>, StoreError> {
        let dir = sessions.join(&id);
        let path = dir.join("lock");
        let mut tries = 0;
        let lock = loop {
            make_dir(&dir)?;
            let lock = match files::open(&path, Access::Create) {
                // The folder was deleted meanwhile, as that of an expired session.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < LOCK_TRIES_MAX => {
                    tries += 1;
                    continue;
                }
                opened => opened.map_err(io_error("open", &path))?,
            };
            if !take(&lock, || std::thread::sleep(LOCK_RETRY_PAUSE)).map_err(io_error("lock", &path))? {
                return Ok(None);
            }
            tries += 1;
            if is_at(&lock, &path) || tries > LOCK_TRIES_MAX {
                break lock;
            }
        };
        lock.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(io_error("protect", &path))?;
        let journal_dir = dir.join("journal");
        make_dir(&journal_dir)?;
        Ok(Some(Session { id, dir, journal_dir, lock }))
    }

    /// Writes our identity into the lock.
    fn sign(&self, place: &Place) -> Result<(), StoreError> {
        let started_at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        self.write_lock(&Holder { pid: std::process::id(), started_at, client: None, place: place.clone() })
    }

    /// Writes the client's name into the lock, so that commands can tell sessions in one folder apart. The lock stays held
    /// even if this fails.
    pub fn name_client(&self, client: Option<&str>) -> Result<(), StoreError> {
        match Holder::read_from_start(&self.lock) {
            Some(holder) if holder.client.as_deref() != client => {
                self.write_lock(&Holder { client: client.map(str::to_owned), ..holder })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn write_lock(&self, holder: &Holder) -> Result<(), StoreError> {
        let mut text = serde_json::to_vec(holder).expect("BUG: plain data is JSON");
        text.push(b'\n');
        // Overwritten first, then truncated: a concurrent reader finds the old line or the new one.
        let written = self.lock.write_all_at(&text, 0).and_then(|()| self.lock.set_len(text.len() as u64));
        written.map_err(io_error("write", &self.dir.join("lock")))
    }
}

/// Whether a file is the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |here: &Metadata, there: &Metadata| (here.dev(), here.ino()) == (there.dev(), there.ino());
    matches!((file.metadata(), std::fs::symlink_metadata(path)), (Ok(here), Ok(there)) if same(&here, &there))
}

/// Takes a lock exclusively; false if another relay holds it. `let_look` passes the time while a command checks it.
fn take(lock: &File, mut let_look: impl FnMut()) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES_MAX {
        match lock.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // A relay's lock is exclusive, so a shared one belongs to a command, which releases it at once.
        match lock.try_lock_shared() {
            Ok(()) => lock.unlock()?,
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let_look();
    }
    Ok(false)
}

/// Maps a place to the session that last ran there: one small file per place, so that a lookup does not slow down as
/// sessions accumulate.
struct Places(PathBuf);

impl Places {
    /// The file of a place, named by a hash of the place.
    fn file(&self, place: &Place) -> PathBuf {
        let text = serde_json::to_vec(place).expect("BUG: plain data is JSON");
        self.0.join(Uuid::new_v5(&Uuid::NAMESPACE_OID, &text).to_string())
    }

    /// The session that last ran at `place`, if it still exists and was last held from there.
    fn last_at(&self, sessions: &Path, place: &Place) -> Option<String> {
        let id = String::from_utf8(files::read(&self.file(place)).ok()?).ok()?;
        id.parse::<SessionName>().ok()?;
        let holder = Holder::read(&files::open(&sessions.join(&id).join("lock"), Access::Read).ok()?)?;
        (holder.place == *place).then_some(id)
    }

    fn remember(&self, place: &Place, id: &str) -> Result<(), StoreError> {
        make_dir(&self.0)?;
        let file = self.file(place);
        let kept = || {
            let (folder, name) = (Folder::at(&self.0)?, file.file_name().unwrap_or_default());
            match folder.read(name) {
                Ok(known) if known == id.as_bytes() => Ok(()),
                Ok(_) | Err(_) => folder.put(name, id.as_bytes()),
            }
        };
        kept().map_err(io_error("write", &file))
    }
}

/// Creates the home, unless it exists. An existing one keeps its mode, and is an error if it cannot be trusted.
fn make_home(home: &Path) -> Result<(), StoreError> {
    Folder::make_home(home).map(drop).map_err(io_error("create", home))
}

/// Creates a folder below the home that only we can enter, unless it exists.
fn make_dir(dir: &Path) -> Result<(), StoreError> {
    Folder::make(dir).map(drop).map_err(io_error("create", dir))
}

/// The name of a further session under a name in use, truncated to leave room for the number.
fn numbered(name: &SessionName, number: u32) -> String {
    let (mut name, suffix) = (name.to_string(), format!(".{number}"));
    // Truncation is safe: names are ASCII.
    name.truncate(SESSION_NAME_BYTES_MAX - suffix.len());
    name + &suffix
}

pub(super) fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::Io { action, path: path.to_owned(), source }
}

// Ensures that one process at a time indexes a session or rewrites its stored data.
//
// *Locking.* `index.lock` is an flock beside `lock`, close-on-exec, taken exclusively. A relay's index holds it while it
// runs; a command holds it while it indexes a stopped session or rewrites stored data. A relay that starts meanwhile
// relays and records, and only its index waits. Nothing waits for this lock while it holds another one.

pub(super) const INDEX_LOCK_FILE: &str = "index.lock";

#[derive(Debug)]
pub struct IndexLock {
    _file: File,
}

impl IndexLock {
    /// Takes the lock of the session in `session_dir`; `None` if another process holds it.
    pub fn try_take(session_dir: &Path) -> io::Result<Option<IndexLock>> {
        let locked = Folder::at(session_dir)?.lock(INDEX_LOCK_FILE)?;
        Ok(locked.map(|_file| IndexLock { _file }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cwd: &str) -> Place {
        Place { cwd: cwd.to_owned(), codex_home: "/c".to_owned(), server: vec!["codex".to_owned()] }
    }

    fn open(home: &Path, wanted: Option<&str>, cwd: &str) -> Session {
        let wanted = wanted.map(|name| name.parse().expect("BUG: a test names a session well"));
        Session::open(home, wanted.as_ref(), &place(cwd), Uuid::now_v7()).expect("BUG: the folder is ours")
    }

    #[test]
    fn name_in_use_gets_a_number() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let first = open(home.path(), Some("work"), "/a");
        let second = open(home.path(), Some("work"), "/a");
        let third = open(home.path(), Some("work"), "/a");
        assert_eq!((&*first.id, &*second.id, &*third.id), ("work", "work.2", "work.3"));
        drop(first);
        assert_eq!(open(home.path(), Some("work"), "/a").id, "work");
    }

    #[test]
    fn long_name_in_use_keeps_a_visible_number() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        for long in ["n".repeat(64), "m".repeat(63), "k".repeat(62)] {
            let first = open(home.path(), Some(&long), "/a");
            let second = open(home.path(), Some(&long), "/a");
            assert_eq!((&first.id, &*second.id), (&long, &*format!("{}.2", &long[..62])));
            let found: Vec<String> = crate::store::Found::all(home.path())
                .expect("it can be read")
                .into_iter()
                .map(|found| found.id)
                .collect();
            assert!(found.contains(&first.id) && found.contains(&second.id), "{found:?}");
        }
    }

    #[test]
    fn start_waits_for_commands_that_check_the_lock() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        drop(open(home.path(), Some("desk"), "/a"));
        let lock = || File::open(home.path().join("sessions/desk/lock")).expect("it is there");
        let mut looking = vec![lock(), lock()];
        looking.iter().for_each(|tool| tool.try_lock_shared().expect("nobody holds it"));
        let starting = lock();
        assert!(take(&starting, || drop(looking.pop())).expect("it can be locked"));
        assert!(!take(&lock(), || panic!("a shim holds it")).expect("it can be locked"));
    }

    #[test]
    fn place_leads_back_to_its_last_session() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let first = open(home.path(), None, "/a").id;
        assert_ne!(open(home.path(), None, "/b").id, first);
        let again = open(home.path(), None, "/a");
        assert_eq!(again.id, first);
        let beside = open(home.path(), None, "/a");
        assert_ne!(beside.id, first);
        assert_eq!(Uuid::parse_str(&beside.id).expect("a new id is a UUID").get_version_num(), 7);
    }

    #[test]
    fn unwritable_places_do_not_prevent_a_start() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::write(home.path().join("places"), "in the way").expect("write");
        let first = open(home.path(), None, "/a").id;
        assert_ne!(open(home.path(), None, "/a").id, first);
    }

    #[test]
    fn retried_start_uses_the_same_folder() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let fresh_id = Uuid::now_v7();
        let journal = home.path().join("sessions").join(fresh_id.to_string()).join("journal");
        std::fs::create_dir_all(journal.parent().expect("it has one")).expect("mkdir");
        std::fs::write(&journal, "in the way").expect("write");
        let open = || Session::open(home.path(), None, &place("/a"), fresh_id);
        assert!(open().is_err() && open().is_err());
        std::fs::remove_file(&journal).expect("remove");
        assert_eq!(open().expect("nothing is in the way").id, fresh_id.to_string());
        assert_eq!(std::fs::read_dir(home.path().join("sessions")).expect("it can be read").count(), 1);
    }

    #[test]
    fn session_files_are_private() {
        let parent = tempfile::tempdir().expect("BUG: a temporary folder");
        let home = parent.path().join("deep/home");
        let session = open(&home, Some("s"), "/a");
        let mode = |path: &Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        for dir in [&home, &home.join("sessions"), &session.dir, &session.journal_dir] {
            assert_eq!(mode(dir), 0o700, "{}", dir.display());
        }
        assert_eq!(mode(&session.dir.join("lock")), 0o600);
    }

    #[test]
    fn generations_follow_one_another() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let session = open(home.path(), Some("s"), "/a");
        let far = Generation::parse("ffff00000000").expect("12 digits");
        let name = SegmentName { generation: far.clone(), number: 1 };
        std::fs::write(session.journal_dir.join(name.to_string()), "").expect("write");
        assert!(session.next_generation().expect("it can be read") > far);
    }

    #[test]
    fn home_that_is_a_file_is_named() {
        let file = tempfile::NamedTempFile::new().expect("BUG: a temporary file");
        let error = Session::open(&file.path().join("home"), None, &place("/a"), Uuid::now_v7())
            .expect_err("a file is no folder");
        assert!(error.to_string().contains("home: Not a directory"), "{error}");
    }
}
