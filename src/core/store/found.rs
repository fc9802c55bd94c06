//! Lists the sessions of a home, and selects the one that a command applies to.
//!
//! *Locking.* A session is live if its lock is held. The check takes the lock shared for an instant, through a read-only
//! descriptor; a relay that starts at that instant retries.
//!
//! This module never writes or creates anything.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fmt, io};

use super::session::{Holder, StoreError, io_error};
use crate::config::{ContextScope, SessionName};
use crate::engine::one_line;
use crate::files::{self, Access, Folder, Refused};
use crate::history::client_name;
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
    /// The open threads of a hub, if its relay was asked for them: a hub works where they do. `None` is any other session.
    pub threads: Option<Vec<OpenThread>>,
    /// The last write to its journal or its lock.
    pub last_used: SystemTime,
}

/// A thread of a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenThread {
    pub id: String,
    /// Its name in messages.
    pub name: String,
    pub cwd: PathBuf,
    /// The repository of its folder, see [`repository_of`].
    pub repository: Option<PathBuf>,
    /// A client has it open, or something happens in it.
    pub is_open: bool,
    pub runs: bool,
    /// Others may send it messages.
    pub takes_messages: bool,
    /// When somebody last spoke in it or opened it, RFC 3339.
    pub last_used: String,
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

    /// Its current holder, or its last one.
    pub fn holder_now(&self) -> Option<Holder> {
        Holder::read(&self.open_lock().ok()?)
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

    /// Its name in a message, unique among all sessions of its home: see [`full_name`].
    #[must_use]
    pub fn name(&self) -> String {
        full_name(self, &self.of_home())
    }

    /// The shortest name that selects it among all sessions of its home: see [`short`].
    #[must_use]
    pub fn argument(&self) -> String {
        short(self, &self.of_home()).to_owned()
    }

    fn of_home(&self) -> Vec<Found> {
        let home = self.dir.parent().and_then(Path::parent);
        home.and_then(|home| Found::all(home).ok()).unwrap_or_default()
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
        let last_used = SystemTime::UNIX_EPOCH;
        let mut session = Found { id, dir, live, holder, repository, threads: None, last_used };
        let written = |path: PathBuf| std::fs::symlink_metadata(path).and_then(|file| file.modified()).ok();
        let segment = session.last_segment().map(|name| session.journal_dir().join(name.to_string()));
        let times = [written(session.dir.join("lock")), segment.and_then(written)];
        session.last_used = times.into_iter().flatten().max()?;
        Some(session)
    }
}

/// All entries in the folder of the sessions.
#[derive(Debug, Default)]
pub struct Survey {
    /// The sessions, in the order of [`Found::all`].
    pub found: Vec<Found>,
    /// Ids of sessions that were skipped, and why.
    pub refused: Vec<(String, Refused)>,
}

impl Survey {
    pub fn of(home: &Path) -> Result<Survey, StoreError> {
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

/// The repository that contains a folder: the nearest ancestor with a `.git`. A folder to which everybody can write, such as
/// `/tmp`, is none: anybody can put a `.git` there, and a sandbox of codex that is killed leaves one.
#[must_use]
pub fn repository_of(dir: &Path) -> Option<PathBuf> {
    let is_private = |dir: &Path| std::fs::metadata(dir).is_ok_and(|dir| dir.mode() & WRITABLE_BY_ALL == 0);
    dir.ancestors().find(|dir| dir.join(".git").exists() && is_private(dir)).map(Path::to_owned)
}

const WRITABLE_BY_ALL: u32 = 0o002;

/// How to select a session.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// An id, a unique prefix or suffix of one, `latest`, or the name of a folder.
    pub named: Option<&'a str>,
    /// The user's working directory.
    pub cwd: &'a Path,
    /// The fallback if no name was given and no live session matches.
    pub otherwise: Otherwise,
}

/// Selects the session that was used last.
const LATEST: &str = "latest";

/// Most sessions that an error lists.
const LISTED_MAX: usize = 8;

/// The remedy if there are no sessions.
const NO_SESSIONS: &str = "no sessions yet; start your tool through codex-shim first (see `codex-shim wrap --help`)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// The session that was used last, for commands that read.
    Latest,
    /// No session, for commands that act on a relay.
    None,
}

/// Why no single session was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChoiceError {
    /// No session matches the name.
    UnknownName {
        named: String,
        /// All sessions.
        sessions: Vec<String>,
    },
    /// Several sessions match.
    Ambiguous {
        by: Clue,
        /// Their ids.
        candidates: Vec<String>,
    },
    /// There are no sessions.
    NoSessions,
    /// No session is live.
    NoLiveSession {
        /// All sessions.
        sessions: Vec<String>,
    },
}

/// The selector that several sessions match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clue {
    /// The name that the user gave.
    Name(String),
    /// The user's working directory.
    Place(PathBuf),
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChoiceError::UnknownName { named, sessions } if sessions.is_empty() => {
                write!(f, "unknown session `{named}`: {NO_SESSIONS}")
            }
            ChoiceError::UnknownName { named, sessions } => {
                write!(f, "unknown session `{named}`; sessions: {}", listed(sessions))
            }
            ChoiceError::Ambiguous { by: Clue::Name(name), candidates } => {
                write!(f, "`{name}` matches several sessions: {}; name one by its id", listed(candidates))?;
                let id = candidates.first().and_then(|candidate| candidate.rsplit(' ').next());
                id.map_or(Ok(()), |id| write!(f, ", for example `{id}`"))
            }
            ChoiceError::Ambiguous { by: Clue::Place(dir), candidates } => {
                let (dir, candidates) = (dir.display(), listed(candidates));
                write!(f, "several sessions are live in {dir}: {candidates}; name one with --session")
            }
            ChoiceError::NoSessions => f.write_str(NO_SESSIONS),
            ChoiceError::NoLiveSession { sessions } if sessions.is_empty() => f.write_str(NO_SESSIONS),
            ChoiceError::NoLiveSession { sessions } => write!(
                f,
                "no session is live in this folder; start your tool in it, or name a session with --session: {}",
                listed(sessions)
            ),
        }
    }
}

/// Joins names for an error, at most [`LISTED_MAX`] of them.
fn listed(names: &[String]) -> String {
    let first = names.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED_MAX) {
        0 => first,
        more => format!("{first} and {more} more (see `codex-shim sessions`)"),
    }
}

impl std::error::Error for ChoiceError {}

/// Fewest characters of the end of an id that select its session.
const SHORT_CHARS_MIN: usize = 4;

/// Selects one session from `found`, which is in the order of [`Found::all`].
///
/// A name wins, then the live session whose working directory or repository contains ours, then the only live session.
pub fn choose<'a>(found: &'a [Found], choice: Choice<'_>) -> Result<&'a Found, ChoiceError> {
    let chosen = choose_all(found, choice)?;
    match &chosen[..] {
        [only] => Ok(only),
        several => Err(ambiguous(Clue::Place(choice.cwd.to_owned()), several, found)),
    }
}

/// Like [`choose`], but returns all sessions that are live in one folder, the last used first: two clients in one folder
/// have a session each. Never empty.
pub fn choose_all<'a>(found: &'a [Found], choice: Choice<'_>) -> Result<Vec<&'a Found>, ChoiceError> {
    if let Some(named) = choice.named {
        return by_name(found, named).map(|session| vec![session]);
    }
    let live: Vec<&Found> = found.iter().filter(|session| session.live).collect();
    let here = by_place(&live, choice.cwd);
    if !here.is_empty() {
        return Ok(here);
    }
    match (&live[..], choice.otherwise) {
        ([only], Otherwise::Latest | Otherwise::None) => Ok(vec![only]),
        (_, Otherwise::Latest) => found
            .iter()
            .max_by_key(|session| session.last_used)
            .map(|latest| vec![latest])
            .ok_or(ChoiceError::NoSessions),
        (_, Otherwise::None) => Err(ChoiceError::NoLiveSession { sessions: names(found) }),
    }
}

/// A session by its id, a unique prefix or suffix of it, the name of its folder, or its full name.
fn by_name<'a>(found: &'a [Found], named: &str) -> Result<&'a Found, ChoiceError> {
    if let Some(exact) = found.iter().find(|session| session.id == named) {
        return Ok(exact);
    }
    if named == LATEST {
        let latest = found.iter().max_by_key(|session| (session.live, session.last_used));
        return latest.ok_or(ChoiceError::NoSessions);
    }
    let is_end = |session: &&Found| named.len() >= SHORT_CHARS_MIN && session.id.ends_with(named);
    let is_folder = |session: &&Found| label(session) == named || folder(session) == Some(named);
    let is_full_name = |session: &&Found| full_name(session, found) == named;
    let ways: [&dyn Fn(&&Found) -> bool; 4] =
        [&|session| !named.is_empty() && session.id.starts_with(named), &is_end, &is_folder, &is_full_name];
    for way in ways {
        let candidates: Vec<&Found> = found.iter().filter(way).collect();
        let live: Vec<&Found> = candidates.iter().copied().filter(|session| session.live).collect();
        match (&candidates[..], &live[..]) {
            ([], _) => {}
            ([only], _) => return Ok(only),
            // A folder usually has more sessions than live ones; the live one wins.
            (_, [only]) if is_folder(only) => return Ok(only),
            (several, _) => return Err(ambiguous(Clue::Name(named.to_owned()), several, found)),
        }
    }
    Err(ChoiceError::UnknownName { named: named.to_owned(), sessions: names(found) })
}

fn names(found: &[Found]) -> Vec<String> {
    found.iter().map(|session| full_name(session, found)).collect()
}

/// The note for a command that shows a session of another folder because this folder has none. `None` if the user named a
/// session, or if the one that is shown belongs to this folder.
pub fn shown_from_elsewhere(found: &[Found], choice: Choice<'_>, shown: &Found) -> Option<String> {
    let is_here = |session: &Found| nearest_around(session, choice.cwd).is_some();
    if choice.named.is_some() || choice.otherwise == Otherwise::None || is_here(shown) {
        return None;
    }
    let session = if found.iter().any(is_here) { "live session" } else { "session" };
    Some(format!("no {session} in this folder; showing `{}`", full_name(shown, found)))
}

/// The live sessions in the nearest directory that contains `cwd`, the last used first.
fn by_place<'a>(live: &[&'a Found], cwd: &Path) -> Vec<&'a Found> {
    let around: Vec<(&Path, &Found)> =
        live.iter().filter_map(|session| Some((nearest_around(session, cwd)?, *session))).collect();
    let Some(nearest) = around.iter().map(|(dir, _)| *dir).max_by_key(|dir| dir.components().count()) else {
        return Vec::new();
    };
    let mut there: Vec<&Found> =
        around.iter().filter(|(dir, _)| *dir == nearest).map(|(_, session)| *session).collect();
    there.sort_by_key(|session| std::cmp::Reverse(session.last_used));
    there
}

/// The session's working directory, else its repository, whichever contains `cwd`; of a hub the nearest one of its threads.
fn nearest_around<'a>(session: &'a Found, cwd: &Path) -> Option<&'a Path> {
    if let Some(threads) = &session.threads {
        let around = threads.iter().filter(|thread| thread.is_open).filter_map(|thread| thread.around(cwd));
        return around.max_by_key(|dir| dir.components().count());
    }
    let own = session.holder.as_ref().map(|holder| Path::new(&holder.place.cwd));
    [own, session.repository.as_deref()].into_iter().flatten().find(|dir| cwd.starts_with(dir))
}

/// What a command that names no thread is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThreadChoice<'a> {
    Thread(&'a OpenThread),
    /// No thread is nearer than another; the user has to name one of these.
    Several(Vec<&'a OpenThread>),
    /// The relay decides: its session has one folder, or no thread is open.
    OfRelay,
}

/// How a command uses the thread that it chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadUse {
    /// It sends a message.
    Speak,
    /// It ends a turn: a thread with one comes first.
    Interrupt,
    Read,
}

/// Selects the thread of a session that a command in `cwd` means: of those in the nearest folder the one in which somebody spoke
/// last, else the only one. A thread here that is closed comes before those that are open elsewhere.
pub fn choose_thread<'a>(session: &'a Found, cwd: &Path, used: ThreadUse) -> ThreadChoice<'a> {
    let Some(threads) = &session.threads else { return ThreadChoice::OfRelay };
    let fits = |thread: &&OpenThread| thread.takes_messages || used == ThreadUse::Read;
    let nearest = |is_open: bool| {
        let here = threads.iter().filter(|thread| fits(thread) && thread.is_open == is_open);
        here.filter_map(|thread| thread.around(cwd)).max_by_key(|dir| dir.components().count())
    };
    let has_open = threads.iter().any(|thread| fits(&thread) && thread.is_open);
    let (nearest, is_open) = match (nearest(true), nearest(false)) {
        (None, Some(closed)) => (Some(closed), false),
        (open, _) => (open, has_open),
    };
    let meant = |thread: &&OpenThread| {
        fits(thread) && thread.is_open == is_open && (nearest.is_none() || thread.around(cwd) == nearest)
    };
    let meant: Vec<&OpenThread> = threads.iter().filter(meant).collect();
    let running: Vec<&OpenThread> = meant.iter().copied().filter(|thread| thread.runs).collect();
    let meant = if used == ThreadUse::Interrupt && !running.is_empty() { running } else { meant };
    match (&meant[..], nearest) {
        ([], _) => ThreadChoice::OfRelay,
        ([only], _) => ThreadChoice::Thread(only),
        (several, Some(_)) => {
            let last = several.iter().max_by_key(|thread| (&thread.last_used, &thread.id));
            last.map_or(ThreadChoice::OfRelay, |last| ThreadChoice::Thread(last))
        }
        (several, None) => ThreadChoice::Several(several.to_vec()),
    }
}

/// The threads that get a command which ran in `cwd`, which is resolved. A hub has threads in many folders, and what was run in one
/// project is not shown to the model of another.
pub fn in_scope<'a>(
    threads: &'a [OpenThread],
    cwd: &Path,
    scope: ContextScope,
) -> impl Iterator<Item = &'a OpenThread> {
    threads.iter().filter(|thread| thread.is_open).filter(move |thread| match scope {
        ContextScope::Folder => thread.contains(cwd),
        ContextScope::Repository => thread.shares_repository(cwd),
        ContextScope::Session => true,
    })
}

impl OpenThread {
    /// Whether its model may be shown what was run in a folder: both are in one repository, or neither is in one and it ran in the
    /// folder of the thread or below.
    pub fn shares_repository(&self, cwd: &Path) -> bool {
        share_repository(cwd, &self.cwd, self.repository.as_deref())
    }

    /// Whether a folder is its own or below it.
    pub fn contains(&self, cwd: &Path) -> bool {
        is_below(cwd, &self.cwd)
    }

    /// Its folder, else its repository, whichever contains `cwd`.
    fn around(&self, cwd: &Path) -> Option<&Path> {
        [Some(&*self.cwd), self.repository.as_deref()].into_iter().flatten().find(|dir| is_below(cwd, dir))
    }
}

/// Whether a folder belongs to a thread that works in `of_thread`, in this repository: both are in one repository, or neither is in
/// one and the folder is that of the thread or below.
pub fn share_repository(cwd: &Path, of_thread: &Path, repository: Option<&Path>) -> bool {
    match (repository_of(cwd), repository) {
        (Some(of_folder), Some(repository)) => of_folder == repository,
        (None, None) => is_below(cwd, of_thread),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn is_below(cwd: &Path, of_thread: &Path) -> bool {
    !of_thread.as_os_str().is_empty() && cwd.starts_with(of_thread)
}

fn ambiguous(by: Clue, candidates: &[&Found], all: &[Found]) -> ChoiceError {
    let candidates = candidates.iter().map(|session| full_name(session, all)).collect();
    ChoiceError::Ambiguous { by, candidates }
}

fn folder(session: &Found) -> Option<&str> {
    Path::new(&session.holder.as_ref()?.place.cwd).file_name()?.to_str()
}

/// A session's name for display: its folder and client, `proj (vscode)`, or its id if the folder is unknown.
#[must_use]
pub fn label(session: &Found) -> String {
    let client = session.holder.as_ref().and_then(|holder| holder.client.as_deref()).map(client_name).map(one_line);
    match (folder(session).map(one_line), client) {
        (Some(folder), Some(client)) => format!("{folder} ({client})"),
        (Some(folder), None) => folder,
        (None, _) => session.id.clone(),
    }
}

/// A session's name in messages and headings: the label and the short id, `proj (vscode) ab01`; only one of them if they are
/// equal.
#[must_use]
pub fn full_name(session: &Found, all: &[Found]) -> String {
    let (label, short) = (label(session), short(session, all));
    if label == session.id || label == short { label } else { format!("{label} {short}") }
}

/// The shortest name that selects this session among `all`: the end of a UUID, else the whole id.
#[must_use]
pub fn short<'a>(session: &'a Found, all: &[Found]) -> &'a str {
    short_id(&session.id, all.iter().map(|other| (&*other.id, folder(other))))
}

/// [`short`] for an id among the ids and folder names of all sessions.
#[must_use]
pub fn short_id<'a, 'b>(id: &'a str, all: impl Iterator<Item = (&'b str, Option<&'b str>)> + Clone) -> &'a str {
    if uuid::Uuid::try_parse(id).is_err() {
        return id;
    }
    let names_only_it = |from: &usize| {
        let end = &id[*from..];
        !all.clone().any(|(other, folder)| {
            other != id && (other.ends_with(end) || other.starts_with(end) || folder == Some(end))
        })
    };
    let from = (0..=id.len() - SHORT_CHARS_MIN).rev().find(names_only_it).unwrap_or(0);
    &id[from..]
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::store::{Holder, Place, Session};

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
        std::fs::set_permissions(root.path().join("a"), Permissions::from_mode(0o1777)).expect("it is ours");
        assert_eq!(repository_of(&inner), None);
    }

    /// Sessions from lines `id cwd`: a `*` before the id marks a live one, `@repository` after the directory adds a
    /// repository. Later lines were used later.
    fn sessions(lines: &[&str]) -> Vec<Found> {
        let session = |(number, line): (usize, &&str)| {
            let mut words = line.trim_start_matches('*').split([' ', '@']).map(str::to_owned);
            let mut word = || words.next();
            let (id, cwd) = (word().expect("an id"), word().expect("a cwd"));
            let place = Place { cwd, codex_home: String::new(), server: Vec::new() };
            Found {
                dir: PathBuf::from(&id),
                id,
                live: line.starts_with('*'),
                holder: Some(Holder { pid: 1, started_at: String::new(), client: None, place }),
                repository: word().map(PathBuf::from),
                threads: None,
                last_used: SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64),
            }
        };
        lines.iter().enumerate().map(session).collect()
    }

    fn check(lines: &[&str], named: Option<&str>, cwd: &str, expect: &str) {
        let found = sessions(lines);
        let chosen = |otherwise| match choose(&found, Choice { named, cwd: Path::new(cwd), otherwise }) {
            Ok(session) => session.id.clone(),
            Err(ChoiceError::UnknownName { .. }) => "none named".to_owned(),
            Err(ChoiceError::Ambiguous { candidates, .. }) => format!("one of {}", candidates.join(" ")),
            Err(ChoiceError::NoSessions) => "none at all".to_owned(),
            Err(ChoiceError::NoLiveSession { .. }) => "none live".to_owned(),
        };
        let (reads, acts) = (chosen(Otherwise::Latest), chosen(Otherwise::None));
        let shown = if reads == acts { reads } else { format!("{reads}, {acts}") };
        assert_eq!(shown, expect, "{named:?} at {cwd}");
    }

    #[test]
    fn name_or_prefix_wins() {
        let found = ["*work /a", "work.2 /a", "*play /b"];
        check(&found, Some("work"), "/b", "work");
        check(&found, Some("work."), "/b", "work.2");
        check(&found, Some("p"), "/a", "play");
        check(&found, Some("wo"), "/a", "one of a work a work.2");
        check(&found, Some("x"), "/a", "none named");
        check(&found, Some(""), "/a", "none named");
    }

    #[test]
    fn latest_is_the_session_used_last() {
        check(&["*work /a", "*play /b", "dead /c"], Some("latest"), "/a", "play");
        check(&["old /a", "new /b"], Some("latest"), "/a", "new");
        check(&["*latest /a", "*play /b"], Some("latest"), "/b", "latest");
        check(&[], Some("latest"), "/a", "none at all");
    }

    #[test]
    fn errors_name_the_sessions_that_exist() {
        let shown = |found: &[Found], named, otherwise| {
            let error = choose(found, Choice { named, cwd: Path::new("/x"), otherwise }).expect_err("there is none");
            error.to_string()
        };
        let found = sessions(&["*one /a", "*two /b"]);
        assert_eq!(shown(&found, Some("x"), Otherwise::None), "unknown session `x`; sessions: a one, b two");
        assert!(shown(&found, None, Otherwise::None).ends_with("with --session: a one, b two"));
        assert_eq!(shown(&[], None, Otherwise::None), NO_SESSIONS);
        assert_eq!(shown(&[], None, Otherwise::Latest), NO_SESSIONS);
        assert_eq!(shown(&[], Some("x"), Otherwise::None), format!("unknown session `x`: {NO_SESSIONS}"));
        let many: Vec<String> = (0..12).map(|number| format!("s{number} /a")).collect();
        let many = sessions(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(shown(&many, Some("x"), Otherwise::None).ends_with("a s7 and 4 more (see `codex-shim sessions`)"));
    }

    #[test]
    fn nearest_live_session_is_selected() {
        let found = ["*outer /r", "*inner /r/in", "*beside /q/sub@/q", "dead /z"];
        check(&found, None, "/r/in/deep", "inner");
        check(&found, None, "/r/inside", "outer");
        check(&found, None, "/q/other", "beside");
        check(&found, None, "/z", "dead, none live");
        check(&["*one /r", "*two /r"], None, "/r/x", "one of r two r one");
    }

    #[test]
    fn only_live_session_then_latest_is_selected() {
        check(&["*live /a", "dead /b"], None, "/x", "live");
        check(&["dead /a", "later /b"], None, "/x", "later, none live");
        check(&["*one /a", "*two /b"], None, "/x", "two, none live");
        check(&[], None, "/x", "none at all, none live");
    }

    #[test]
    fn session_of_another_folder_is_announced() {
        let check = |lines: &[&str], named: Option<&str>, cwd: &str, expect: Option<&str>| {
            let found = sessions(lines);
            let choice = Choice { named, cwd: Path::new(cwd), otherwise: Otherwise::Latest };
            let shown = choose(&found, choice).expect("one is shown");
            assert_eq!(shown_from_elsewhere(&found, choice, shown).as_deref(), expect, "{lines:?} at {cwd}");
            let acts = Choice { otherwise: Otherwise::None, ..choice };
            assert_eq!(shown_from_elsewhere(&found, acts, shown), None);
        };
        check(&["*work /w/proj"], None, "/x", Some("no session in this folder; showing `proj work`"));
        check(&["dead /w/proj"], None, "/x", Some("no session in this folder; showing `proj dead`"));
        check(&["dead /x", "*work /w/proj"], None, "/x", Some("no live session in this folder; showing `proj work`"));
        check(&["*work /w/proj"], None, "/w/proj/src", None);
        check(&["*work /w/proj"], Some("work"), "/x", None);
    }

    #[test]
    fn clients_in_one_folder_have_names() {
        let ids = ["0192aaaa-0000-7000-8000-00000000ab01", "0192aaaa-0000-7000-8000-00000000cb01", "named"];
        let mut found =
            sessions(&[&format!("*{} /w/proj", ids[0]), &format!("*{} /w/proj", ids[1]), "*named /w/other"]);
        for (session, client) in found.iter_mut().zip(["vscode", "zed", "cli"]) {
            session.holder.as_mut().expect("it is signed").client = Some(client.to_owned());
        }
        let names: Vec<(String, &str)> = found.iter().map(|session| (label(session), short(session, &found))).collect();
        let name = |label: &str, short: &'static str| (label.to_owned(), short);
        assert_eq!(names, [name("proj (vscode)", "ab01"), name("proj (zed)", "cb01"), name("other (cli)", "named")]);
        let named = |name: &str| {
            choose(&found, Choice { named: Some(name), cwd: Path::new("/"), otherwise: Otherwise::None })
                .map(|session| session.id.clone())
        };
        assert_eq!(named("ab01").as_deref(), Ok(ids[0]));
        assert_eq!(named("proj (zed)").as_deref(), Ok(ids[1]));
        assert_eq!(named("other").as_deref(), Ok("named"));
        for session in &found {
            assert_eq!(named(&full_name(session, &found)).as_deref(), Ok(&*session.id));
        }
        let message = named("proj").expect_err("there are two").to_string();
        assert!(message.contains("proj (vscode) ab01") && message.contains("proj (zed) cb01"), "{message}");
        found[1].holder.as_mut().expect("it is signed").client = Some("vscode".to_owned());
        let choice = Choice { named: Some("proj (vscode)"), cwd: Path::new("/"), otherwise: Otherwise::None };
        let message = choose(&found, choice).expect_err("there are two").to_string();
        let expect = "`proj (vscode)` matches several sessions: proj (vscode) ab01, proj (vscode) cb01; name one by its id, for example `ab01`";
        assert_eq!(message, expect);
        let here = Choice { named: None, cwd: Path::new("/w/proj/src"), otherwise: Otherwise::None };
        let all: Vec<&str> =
            choose_all(&found, here).expect("both").iter().map(|session| session.id.as_str()).collect();
        assert_eq!(all, [ids[1], ids[0]]);
    }

    #[test]
    fn names_have_label_and_short_id() {
        let mut found = sessions(&["*0192aaaa-0000-7000-8000-00000000ab01 /w/proj", "work /w"]);
        found[0].holder.as_mut().expect("it is signed").client = Some("vscode".to_owned());
        found[1].holder = None;
        assert_eq!(names(&found), ["proj (vscode) ab01", "work"]);
    }

    /// Threads as `ID FOLDER[@REPOSITORY] LAST_USED`: a `*` before the id marks one that runs, and a `!` one that takes no messages.
    fn hub(threads: &[&str]) -> Found {
        let thread = |line: &&str| {
            let mut words = line.split(' ').map(str::to_owned);
            let mut word = || words.next().expect("BUG: three words");
            let (id, folder, last_used) = (word(), word(), word());
            let (cwd, repository) = folder.split_once('@').unwrap_or((&folder, ""));
            OpenThread {
                id: id.trim_start_matches(['*', '!', '-']).to_owned(),
                name: id.clone(),
                cwd: PathBuf::from(cwd),
                repository: (!repository.is_empty()).then(|| PathBuf::from(repository)),
                is_open: !id.starts_with('-'),
                runs: id.starts_with('*'),
                takes_messages: !id.starts_with('!'),
                last_used,
            }
        };
        let place =
            Place { cwd: "/home/me/.codex".to_owned(), codex_home: "/home/me/.codex".to_owned(), server: Vec::new() };
        Found {
            id: "hub".to_owned(),
            dir: PathBuf::new(),
            live: true,
            holder: Some(Holder { pid: 1, started_at: String::new(), client: None, place }),
            repository: None,
            threads: Some(threads.iter().map(thread).collect()),
            last_used: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn command_means_the_thread_of_its_folder() {
        use ThreadUse::{Interrupt, Read, Speak};
        let three = ["a /p/a@/p/a 1", "b /p/b@/p/b 2", "c /q/c 3"];
        let cases: [(&[&str], &str, ThreadUse, &str); 24] = [
            (&three, "/p/a", Speak, "a"),
            (&three, "/p/b/src", Speak, "b"),
            (&three, "/q/c", Interrupt, "c"),
            // Neither the folder above nor one beside it.
            (&three, "/p", Speak, "a b c"),
            (&three, "/q/cc", Speak, "a b c"),
            (&three, "/home/me/.codex", Speak, "a b c"),
            (&three[..1], "/elsewhere", Speak, "a"),
            (&[], "/p/a", Speak, "-"),
            // Two in one folder: the one that was used last.
            (&["a /p 1", "b /p 2"], "/p", Speak, "b"),
            (&["*a /p 1", "b /p 2"], "/p", Interrupt, "a"),
            (&["*a /p 1", "b /p 2"], "/p", Speak, "b"),
            // The nearest folder wins, and the repository of another thread counts.
            (&["a /p 1", "b /p/sub 2"], "/p/sub/x", Speak, "b"),
            (&["a /p/src@/p 1"], "/p/docs", Speak, "a"),
            // A running turn elsewhere is not meant here, but it is if nothing is here.
            (&["*a /p/a 1", "b /p/b 2"], "/p/b", Interrupt, "b"),
            (&["*a /p/a 1", "b /p/b 2"], "/elsewhere", Interrupt, "a"),
            (&["a /p 1", "!b /p 2"], "/p", Speak, "a"),
            (&["a /p 1", "!b /p 2"], "/p", Read, "b"),
            // A closed one (`-`) here comes before an open one elsewhere, and after an open one here.
            (&["-a /p/a 1", "b /p/b 2"], "/p/a", Speak, "a"),
            (&["-a /p/a 9", "b /p/a 2"], "/p/a", Speak, "b"),
            (&["-a /p/a 1", "b /p/b 2"], "/elsewhere", Speak, "b"),
            (&["-a /p/a 1", "-b /p/b 2"], "/elsewhere", Speak, "a b"),
            (&["-a /p/a 1", "-b /p/a 2"], "/p/a", Read, "b"),
            // A thread whose folder nobody knows is nowhere.
            (&["a  1", "b /p/b 2"], "/p/b", Speak, "b"),
            (&["a  1", "b /p/b 2"], "/p/c", Speak, "a b"),
        ];
        for (threads, cwd, used, expect) in cases {
            let hub = hub(threads);
            let chosen = match choose_thread(&hub, Path::new(cwd), used) {
                ThreadChoice::Thread(thread) => thread.id.clone(),
                ThreadChoice::Several(threads) => {
                    threads.iter().map(|thread| thread.id.as_str()).collect::<Vec<_>>().join(" ")
                }
                ThreadChoice::OfRelay => "-".to_owned(),
            };
            assert_eq!(chosen, expect, "{threads:?} at {cwd} {used:?}");
        }
        let relay = Found { threads: None, ..hub(&[]) };
        assert_eq!(choose_thread(&relay, Path::new("/p"), Speak), ThreadChoice::OfRelay);
    }

    #[test]
    fn hub_is_where_its_threads_are() {
        let hub = hub(&["a /p/a@/p 1", "b /q 2", "-c /r 3"]);
        let around = |cwd: &str| nearest_around(&hub, Path::new(cwd)).map(|dir| dir.to_string_lossy().into_owned());
        assert_eq!(around("/p/a/x").as_deref(), Some("/p/a"));
        assert_eq!(around("/p/b").as_deref(), Some("/p"));
        assert_eq!(around("/q").as_deref(), Some("/q"));
        assert_eq!(around("/home/me/.codex"), None);
        assert_eq!(around("/r"), None);
    }
}
