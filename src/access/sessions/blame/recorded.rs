//! The recorded changes of a file, from the histories of all sessions.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::api::{Entry, GapReason};
use crate::control::recorded_threads;
use crate::history::micros_of;
use crate::index::{HISTORY_FILE, History, HistoryError};
use crate::protocol::Method;
use crate::protocol::change::FileChange;
use crate::sessions::door::{Door, NOT_RECORDED, SessionError};
use crate::sessions::stopped::{Read, history_of};
use crate::store::Found;

/// A change of a file in a session.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    /// Its place in the list of sessions.
    pub(super) session: usize,
    pub(super) entry_id: u64,
    pub(super) thread_id: String,
    pub(super) turn_id: Option<String>,
    pub(super) item_id: Option<String>,
    pub(super) at: String,
    pub(super) at_us: u64,
    /// The relay recorded it when it happened; others come from codex's own history.
    pub(super) is_live: bool,
    /// codex made it, and in the file that has this path now.
    pub(super) is_done: bool,
    pub(super) kind: String,
    /// The names as they are recorded.
    pub(super) path: String,
    pub(super) moved_to: Option<String>,
    /// The same without links.
    pub(super) file: PathBuf,
    pub(super) moved_file: Option<PathBuf>,
    pub(super) text: Option<String>,
}

/// Has everything indexed that a session has recorded; `None` if it has no history, and a note if some of it is not indexed.
pub(super) fn ready(session: &Found, door: Door) -> Result<Option<Option<String>>, SessionError> {
    // A history outlives the journal that it was made of.
    let as_it_is = || Ok(session.dir.join(HISTORY_FILE).exists().then_some(None));
    if session.last_segment().is_none() {
        return as_it_is();
    }
    match Read::through(door, session.clone()).events(None, 1) {
        Ok(page) => Ok(Some((page.gap_reason == Some(GapReason::PersistenceError)).then(|| {
            format!("some recorded messages of session {} are not indexed yet, and are not looked at", session.name())
        }))),
        Err(error) if error.code() == NOT_RECORDED => as_it_is(),
        Err(error) => Err(error),
    }
}

/// The changes of files in a session, without their diffs.
pub(super) fn changes_of(session: &Found) -> Result<Vec<Recorded>, SessionError> {
    let failed = |error: HistoryError| SessionError::new(error.to_string());
    let (history, mut found) = (history_of(session), Vec::new());
    history
        .file_changes(|entry_id, thread_id, json| {
            let changes = Entry::read(json).map(|entry| changes_in(entry_id, thread_id, &entry)).unwrap_or_default();
            // The diffs of all files together may be large.
            found.extend(changes.into_iter().map(|change| Recorded { text: None, ..change }));
        })
        .map_err(failed)?;
    let is_relative = |path: &str| !path.starts_with('/');
    let relative: BTreeSet<String> =
        found.iter().filter(|change| is_relative(&change.path)).map(|change| change.thread_id.clone()).collect();
    let threads = recorded_threads(&session.dir, &relative.into_iter().collect::<Vec<_>>());
    for change in &mut found {
        let cwd = threads.get(&change.thread_id).and_then(|thread| thread.cwd.as_deref()).unwrap_or_default();
        let absolute = |path: &str| if is_relative(path) { Path::new(cwd).join(path) } else { PathBuf::from(path) };
        (change.file, change.moved_file) = (absolute(&change.path), change.moved_to.as_deref().map(absolute));
    }
    // The times of a session never go back, whatever the clock was set to.
    found.sort_by_key(|change| change.entry_id);
    let mut last_us = 0;
    for change in found.iter_mut().filter(|change| change.is_live) {
        last_us = change.at_us.max(last_us);
        change.at_us = last_us;
    }
    Ok(found)
}

/// The changes of an entry that were made, or were perhaps made in part.
fn changes_in(entry_id: u64, thread_id: &str, entry: &Entry<'_>) -> Vec<Recorded> {
    let Some(item) = entry.content.item() else { return Vec::new() };
    let is_done = match item.status.as_deref() {
        Some("completed") => true,
        Some("failed") => false,
        Some(_) | None => return Vec::new(),
    };
    let own = |text: Option<&str>| text.map(str::to_owned);
    let recorded = |change: FileChange<'_>| {
        Some(Recorded {
            session: 0,
            entry_id,
            thread_id: thread_id.to_owned(),
            turn_id: own(entry.turn_id.as_deref()),
            item_id: own(entry.item_id.as_deref()),
            at: entry.ts.to_string(),
            at_us: micros_of(&entry.ts).unwrap_or_default(),
            // The event of an entry that was read from codex's own history is another one.
            is_live: Method::of(&entry.event) == Some(Method::ItemCompleted),
            is_done,
            kind: change.kind.unwrap_or_default().to_owned(),
            path: change.path?.to_owned(),
            moved_to: own(change.moved_to),
            file: PathBuf::new(),
            moved_file: None,
            text: own(change.diff),
        })
    };
    let changes = item.changes.as_ref().unwrap_or(&Value::Null);
    FileChange::all(changes).into_iter().filter_map(recorded).collect()
}

/// The names that the file has had.
struct Names {
    /// Its name now.
    path: PathBuf,
    /// The name in the question, which may be a link.
    given: PathBuf,
    /// Folders without links, by their names, and when the newest of the links on the way was made.
    folders: HashMap<PathBuf, (PathBuf, u64)>,
}

/// Links that are followed on one way. Source: as many as Linux follows.
const LINKS_MAX: usize = 40;

impl Names {
    fn of(path: &Path) -> Names {
        let mut names = Names { path: PathBuf::new(), given: PathBuf::new(), folders: HashMap::new() };
        names.given = names.resolved(path).0;
        names.path = std::fs::canonicalize(path).unwrap_or_else(|_| names.given.clone());
        names
    }

    /// A path whose folder has no links, and the time of the newest link on the way, in microseconds since the Unix epoch.
    fn resolved(&mut self, path: &Path) -> (PathBuf, u64) {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return (plain(path), 0) };
        let known = self.folders.entry(folder.to_owned());
        // A `..` behind a link leads to another folder than its name.
        let (folder, linked_us) = known.or_insert_with(|| match std::fs::canonicalize(folder) {
            Ok(real) => (real, newest_link(folder, LINKS_MAX)),
            Err(_) => (plain(folder), 0),
        });
        (folder.join(name), *linked_us)
    }

    /// The name of the file that a recorded path means now, and whether it did so at a time.
    fn name(&mut self, path: &Path, at_us: u64) -> (PathBuf, bool) {
        let (resolved, linked_us) = self.resolved(path);
        let name = if resolved == self.given { self.path.clone() } else { resolved };
        (name, linked_us <= at_us)
    }
}

/// When the newest link in a path was made, in microseconds since the Unix epoch; 0 without links.
fn newest_link(path: &Path, links_max: usize) -> u64 {
    let (mut way, mut newest) = (PathBuf::new(), 0);
    for part in path.components() {
        way.push(part);
        let Ok(there) = std::fs::symlink_metadata(&way) else { break };
        if there.is_symlink() && links_max > 0 {
            let made_us = there.ctime().max(0).unsigned_abs() * 1_000_000 + there.ctime_nsec().unsigned_abs() / 1_000;
            let target = std::fs::read_link(&way).map(|to| way.parent().unwrap_or(Path::new("/")).join(to));
            let beyond = target.map_or(0, |to| newest_link(&to, links_max - 1));
            newest = newest.max(made_us).max(beyond);
        }
    }
    newest
}

/// The names without folders that the file may have had.
fn file_names(names: &Names, recorded: &[Recorded]) -> HashSet<OsString> {
    let own = |path: &Path| path.file_name().map(ToOwned::to_owned);
    let mut known: HashSet<OsString> = [&names.path, &names.given].into_iter().filter_map(|path| own(path)).collect();
    loop {
        let is_to = |change: &&Recorded| {
            change.moved_file.as_deref().and_then(Path::file_name).is_some_and(|to| known.contains(to))
        };
        let from: Vec<OsString> = recorded.iter().filter(is_to).filter_map(|change| own(&change.file)).collect();
        let before = known.len();
        known.extend(from);
        if known.len() == before {
            return known;
        }
    }
}

/// The present name of the file at a path, and the changes of the file under all names that it may have had.
pub(super) fn of_file(path: &Path, mut recorded: Vec<Recorded>) -> (PathBuf, Vec<Recorded>) {
    let mut names = Names::of(path);
    // Only folders of such files are looked up.
    let known = file_names(&names, &recorded);
    let has_name = |path: &PathBuf| path.file_name().is_some_and(|name| known.contains(name));
    recorded.retain(|change| has_name(&change.file) || change.moved_file.as_ref().is_some_and(has_name));
    for change in &mut recorded {
        let (file, was_it) = names.name(&change.file, change.at_us);
        let moved = change.moved_file.as_deref().map(|to| names.name(to, change.at_us));
        change.is_done &= was_it && moved.as_ref().is_none_or(|(_, was_it)| *was_it);
        (change.file, change.moved_file) = (file, moved.map(|(file, _)| file));
    }
    let mut all = HashSet::from([names.path.clone()]);
    loop {
        let is_to = |change: &&Recorded| change.moved_file.as_ref().is_some_and(|to| all.contains(to));
        let from: Vec<PathBuf> = recorded.iter().filter(is_to).map(|change| change.file.clone()).collect();
        let before = all.len();
        all.extend(from);
        if all.len() == before {
            break;
        }
    }
    let has = |path: &PathBuf| all.contains(path);
    recorded.retain(|change| has(&change.file) || change.moved_file.as_ref().is_some_and(has));
    (names.path, recorded)
}

/// A path without `.` and `..`.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

/// Reads the diffs of these changes. A deleted entry has no diff.
pub(super) fn read_texts(changes: &mut [Recorded], sessions: &[Found]) {
    let mut histories: HashMap<usize, History> = HashMap::new();
    for change in changes {
        let Some(session) = sessions.get(change.session) else { continue };
        let history = histories.entry(change.session).or_insert_with(|| history_of(session));
        let entry = history.transcript_entry(change.entry_id).ok().flatten();
        let entry = entry.as_deref().and_then(Entry::read);
        let of_entry = entry.map(|entry| changes_in(change.entry_id, &change.thread_id, &entry)).unwrap_or_default();
        change.text = of_entry.into_iter().find(|of| of.path == change.path).and_then(|of| of.text);
    }
}

/// Oldest first, each once: a forked thread, and one that is read again, repeat changes.
pub(super) fn in_order(mut changes: Vec<Recorded>) -> Vec<Recorded> {
    // A live record comes before its repetitions.
    changes.sort_by_key(|change| (!change.is_live, change.at_us, change.session, change.entry_id));
    let mut kept: Vec<Recorded> = Vec::new();
    let mut known: HashMap<String, Vec<usize>> = HashMap::new();
    for change in changes {
        if let Some(item_id) = &change.item_id {
            let same = known.entry(item_id.clone()).or_default();
            if same.iter().any(|at| repeats(&change, &kept[*at])) {
                continue;
            }
            same.push(kept.len());
        }
        kept.push(change);
    }
    kept.sort_by_key(|change| (change.at_us, change.session, change.entry_id));
    kept
}

/// Whether a change of the same item is another one again.
fn repeats(change: &Recorded, known: &Recorded) -> bool {
    let is_equal = (&change.kind, &change.path, &change.moved_to, &change.text)
        == (&known.kind, &known.path, &known.moved_to, &known.text);
    let is_same_turn = change.thread_id == known.thread_id && change.turn_id == known.turn_id;
    is_equal && (!change.is_live || is_same_turn)
}
