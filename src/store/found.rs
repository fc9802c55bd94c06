//! Lists the sessions of a home, for commands.
//!
//! *Locking.* A session is live if its lock is held. The check takes the lock shared for an instant, through a read-only
//! descriptor; a relay that starts at that instant retries.
//!
//! This module never writes or creates anything.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::session::{Holder, StoreError, io_error};
use crate::config::SessionName;
use crate::files::{self, Access, Folder, Refused};
use crate::journal::SegmentName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub id: String,
    pub dir: PathBuf,
    /// A relay runs in it.
    pub live: bool,
    /// The current holder of its lock, or the last one; `None` if that cannot be read.
    pub holder: Option<Holder>,
    /// The repository of its working directory, see [`repository_of`].
    pub repository: Option<PathBuf>,
    /// The last write to its journal or its lock.
    pub last_used: SystemTime,
}

impl Found {
    /// All sessions in `home`: live ones first, then by last use, most recent first. A missing sessions folder means no
    /// sessions.
    pub fn all(home: &Path) -> Result<Vec<Found>, StoreError> {
        Survey::of(home).map(|survey| survey.found)
    }

    /// Whether a relay runs in it now.
    #[must_use]
    pub fn is_still_live(&self) -> bool {
        self.open_lock().is_ok_and(|lock| is_held(&lock))
    }

    /// Calls `look` if no relay runs in the session, else returns `None`. No relay can start during the call, so it has to
    /// return at once.
    pub fn while_stopped<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let lock = self.open_lock().ok()?;
        lock.try_lock_shared().ok()?;
        let seen = look();
        // Closing the file would release the lock too, but later.
        let _ = lock.unlock();
        Some(seen)
    }

    #[must_use]
    pub fn journal_dir(&self) -> PathBuf {
        self.dir.join("journal")
    }

    #[must_use]
    pub fn last_segment(&self) -> Option<SegmentName> {
        SegmentName::list(&self.journal_dir()).ok()?.pop()
    }

    fn open_lock(&self) -> io::Result<File> {
        files::open(&self.dir.join("lock"), Access::Read)
    }

    fn at(id: String, dir: PathBuf, lock: &File) -> Option<Found> {
        let live = is_held(lock);
        let holder = Holder::read(lock);
        let repository = holder.as_ref().and_then(|holder| repository_of(Path::new(&holder.place.cwd)));
        let mut session = Found { id, dir, live, holder, repository, last_used: SystemTime::UNIX_EPOCH };
        let written = |path: PathBuf| std::fs::symlink_metadata(path).and_then(|file| file.modified()).ok();
        let segment = session.last_segment().map(|name| session.journal_dir().join(name.to_string()));
        let times = [written(session.dir.join("lock")), segment.and_then(written)];
        session.last_used = times.into_iter().flatten().max()?;
        Some(session)
    }
}

/// All entries in the folder of the sessions.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The sessions, in the order of [`Found::all`].
    pub found: Vec<Found>,
    /// Ids of sessions that were skipped, and why.
    pub refused: Vec<(String, Refused)>,
}

impl Survey {
    pub(crate) fn of(home: &Path) -> Result<Survey, StoreError> {
        let sessions = home.join("sessions");
        let read = || -> io::Result<std::fs::ReadDir> {
            Folder::home(home)?;
            Folder::at(&sessions)?;
            std::fs::read_dir(&sessions)
        };
        let entries = match read() {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Survey::default()),
            Err(error) => return Err(io_error("read", &sessions)(error)),
        };
        let mut survey = Survey::default();
        for entry in entries.filter_map(Result::ok) {
            let (id, dir) = (entry.file_name(), entry.path());
            // A session that is being deleted has a name that no session can have.
            let Some(id) = id.to_str().filter(|id| id.parse::<SessionName>().is_ok()) else { continue };
            match files::open(&dir.join("lock"), Access::Read) {
                Ok(lock) => survey.found.extend(Found::at(id.to_owned(), dir, &lock)),
                Err(error) => {
                    // A folder without a lock is not a session, or is being deleted.
                    let refused = Refused::behind(&error).filter(|_| dir.join("lock").symlink_metadata().is_ok());
                    survey.refused.extend(refused.map(|refused| (id.to_owned(), refused.clone())));
                }
            }
        }
        survey.found.sort_by_key(|session| (!session.live, std::cmp::Reverse(session.last_used), session.id.clone()));
        survey.refused.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(survey)
    }
}

/// Whether a relay holds a lock.
fn is_held(lock: &File) -> bool {
    match lock.try_lock_shared() {
        Ok(()) => {
            // Closing the file would release the lock too, but later.
            let _ = lock.unlock();
            false
        }
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => false,
    }
}

/// The repository that contains a folder: the nearest ancestor with a `.git`.
#[must_use]
pub(crate) fn repository_of(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|dir| dir.join(".git").exists()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Place, Session};

    #[test]
    fn session_is_live_while_its_lock_is_held() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        assert_eq!(Found::all(home.path()).expect("nothing is no error"), []);
        let place = Place { cwd: "/a".to_owned(), codex_home: "/c".to_owned(), server: vec!["codex".to_owned()] };
        let open = |name: &str| {
            let name = name.parse().expect("BUG: a test names a session well");
            Session::open(home.path(), Some(&name), &place, uuid::Uuid::now_v7()).expect("BUG: the folder is ours")
        };
        let first = open("first");
        drop(open("second"));
        std::fs::create_dir(home.path().join("sessions/no-session")).expect("a folder");
        let listed = || -> Vec<(String, bool)> {
            let found = Found::all(home.path()).expect("it can be read");
            found.into_iter().map(|session| (session.id, session.live)).collect()
        };
        let named = |name: &str, live| (name.to_owned(), live);
        assert_eq!(listed(), [named("first", true), named("second", false)]);
        let looked = Found::all(home.path())
            .expect("it can be read")
            .iter()
            .map(|found| found.while_stopped(|| ()))
            .collect::<Vec<_>>();
        assert_eq!(looked, [None, Some(())]);
        drop(first);
        assert!(listed().iter().all(|(_, live)| !live));
        assert_eq!(Found::all(home.path()).expect("it can be read")[0].holder.clone().expect("signed").place, place);
    }

    #[test]
    fn nearest_repository_upward_wins() {
        let root = tempfile::tempdir().expect("BUG: a temporary folder");
        let inner = root.path().join("a/b/c");
        std::fs::create_dir_all(&inner).expect("folders");
        std::fs::create_dir(root.path().join("a/.git")).expect("a folder");
        assert_eq!(repository_of(&inner), Some(root.path().join("a")));
        assert_eq!(repository_of(&root.path().join("a")), Some(root.path().join("a")));
    }
}
