//! The folder of a copy: who may use it, and which files in it are ours.
//!
//! The same checks apply as for the home: the folder belongs to us or to root, nobody else can write to it, and no link in it is followed.

use std::collections::BTreeSet;
use std::fs::{DirEntry, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::manifest::{MANIFEST_FILE, Manifest};
use super::{BackupError, BackupErrorKind};
use crate::files::{self, Folder, Refused};
use crate::index::{HISTORY_FILE, TRANSCRIPTS_DIR};
use crate::store::LEDGER_FILE;

/// Held while a process uses the copy.
const LOCK_FILE: &str = "backup.lock";

/// There until the first run has completed, so that a folder whose manifest is lost is known from one that never had any.
const FIRST_RUN_FILE: &str = "backup.first-run";

const SESSIONS_DIR: &str = "sessions";

/// The longest wait for another process that uses the copy.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);

/// The pause between two attempts, because `flock` has no limit of its own.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The folder of a copy in use.
#[derive(Debug)]
pub(in crate::keeping) struct Target {
    pub(in crate::keeping) dir: PathBuf,
    pub(in crate::keeping) folder: Folder,
    _lock: Option<File>,
}

impl Target {
    /// Opens the folder of a copy of `home`, to continue it or to begin one. A folder that has to have a copy is never created.
    pub(super) fn make(dir: &Path, home: &Path, start: Start) -> Result<(Target, Option<Manifest>), BackupError> {
        apart(dir, home)?;
        let opened = match start {
            Start::Any => Folder::make(dir),
            Start::Continue => Folder::at(dir),
        };
        let folder = opened.map_err(|error| match (start, error.kind() == io::ErrorKind::NotFound) {
            (Start::Continue, true) => lost(dir),
            (Start::Any | Start::Continue, _) => unusable(dir, &error),
        })?;
        let has = |name: &str| dir.join(name).symlink_metadata().is_ok();
        if !has(MANIFEST_FILE) {
            let is_free = has(FIRST_RUN_FILE) || is_empty(dir).map_err(|error| unusable(dir, &error))?;
            match start {
                Start::Continue => return Err(lost(dir)),
                Start::Any if has(LOCK_FILE) && !is_free => return Err(without_manifest(dir)),
                Start::Any if !is_free => {
                    let problem = format!("{} is not empty and has no backup", dir.display());
                    return Err(BackupError::new(problem).with_remedy("name a folder that is empty or does not exist"));
                }
                Start::Any => {}
            }
        }
        let lock = locked(&folder, dir)?;
        let manifest = Manifest::read(&folder, dir)?;
        if manifest.is_none() {
            let marked = folder.put(FIRST_RUN_FILE, b"").and_then(|()| folder.sync());
            marked.map_err(|error| BackupError::io("write", &dir.join(FIRST_RUN_FILE), &error))?;
        }
        Ok((Target { dir: dir.to_owned(), folder, _lock: Some(lock) }, manifest))
    }

    /// The first run has completed.
    pub(super) fn has_begun(&self) -> io::Result<()> {
        match std::fs::remove_file(self.dir.join(FIRST_RUN_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Opens the folder of a copy to read it. It may be on a disk that cannot be written.
    pub(in crate::keeping) fn read(dir: &Path) -> Result<(Target, Manifest), BackupError> {
        let none = || {
            let remedy = "name the folder that `codex-shim backup` has written";
            BackupError::new(format!("{} has no backup", dir.display())).with_remedy(remedy)
        };
        let folder = Folder::at(dir).map_err(|error| match error.kind() == io::ErrorKind::NotFound {
            true => none(),
            false => unusable(dir, &error),
        })?;
        if dir.join(LOCK_FILE).symlink_metadata().is_err() && dir.join(MANIFEST_FILE).symlink_metadata().is_err() {
            return Err(none());
        }
        let lock = match locked(&folder, dir) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind == BackupErrorKind::Unwritable => None,
            Err(error) => return Err(error),
        };
        let Some(manifest) = Manifest::read(&folder, dir)? else {
            if dir.join(FIRST_RUN_FILE).symlink_metadata().is_err() {
                return Err(without_manifest(dir));
            }
            let problem = format!("{}: the first backup into it was not completed", dir.display());
            return Err(BackupError::new(problem).with_remedy("run `codex-shim backup` again"));
        };
        Ok((Target { dir: dir.to_owned(), folder, _lock: lock }, manifest))
    }

    /// The folder of a session in the copy, or one in it.
    pub(super) fn make_below(&self, session: &str, inner: Option<&str>) -> io::Result<PathBuf> {
        let mut path = self.dir.join(SESSIONS_DIR);
        Folder::make(&path)?;
        for part in [Some(session), inner].into_iter().flatten() {
            path.push(part);
            Folder::make(&path)?;
        }
        Ok(path)
    }

    /// Has the names of all new files reach the disk.
    pub(super) fn sync(&self, session: &str) -> io::Result<()> {
        let sessions = self.dir.join(SESSIONS_DIR);
        let session = sessions.join(session);
        for folder in [session.join("journal"), session.join(TRANSCRIPTS_DIR), session, sessions] {
            match Folder::at(&folder) {
                Ok(folder) => folder.sync()?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes the files that the manifest names as replaced, and those of interrupted runs, which had the same number as this run.
    /// Returns how many bytes they had.
    pub(super) fn sweep(&self, manifest: &Manifest) -> io::Result<u64> {
        let named: BTreeSet<&str> = manifest.files().map(|stored| &*stored.file).collect();
        let mut unneeded: BTreeSet<String> = manifest.replaced.iter().cloned().collect();
        unneeded.extend(self.of_run(manifest.runs)?);
        let mut bytes = 0;
        for file in unneeded.iter().filter(|file| !named.contains(&***file)) {
            let path = self.dir.join(file);
            let there = match path.symlink_metadata() {
                Ok(there) if there.is_dir() => continue,
                Ok(there) => there,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            std::fs::remove_file(&path)?;
            bytes += there.len();
            // Only a folder that is empty goes.
            let folders = Path::new(file).ancestors().skip(1).take_while(|folder| folder.starts_with(SESSIONS_DIR));
            let _ = folders.map(|folder| std::fs::remove_dir(self.dir.join(folder))).find(Result::is_err);
        }
        Ok(bytes)
    }

    /// The files that a run with this number has made. No file of another run has its number.
    fn of_run(&self, run: u64) -> io::Result<Vec<String>> {
        let suffix = format!(".{run}");
        let mut found = Vec::new();
        let mut add = |folder: String, is_ours: &dyn Fn(&str) -> bool| -> io::Result<()> {
            for entry in entries(&self.dir.join(&folder))? {
                let name = entry.file_name();
                if let Some(name) = name.to_str().filter(|name| is_ours(name)) {
                    found.push(if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") });
                }
            }
            Ok(())
        };
        let is_database = |name: &str| {
            let file = ["-wal", "-shm", "-journal"].iter().find_map(|beside| name.strip_suffix(beside)).unwrap_or(name);
            let database = file.strip_suffix(&*suffix);
            database.is_some_and(|database| [LEDGER_FILE, HISTORY_FILE].contains(&database))
        };
        let is_of_lines = |name: &str| name.strip_suffix(&*suffix).is_some_and(|name| name.ends_with(".jsonl"));
        let is_of_writer = |name: &str| files::named_later(name) == Some(MANIFEST_FILE);
        add(String::new(), &|name| is_of_writer(name) || name.strip_suffix(&*suffix) == Some("config.toml"))?;
        for session in entries(&self.dir.join(SESSIONS_DIR))? {
            if let Some(id) =
                session.file_name().to_str().filter(|_| session.file_type().is_ok_and(|kind| kind.is_dir()))
            {
                add(format!("{SESSIONS_DIR}/{id}"), &is_database)?;
                for inner in ["journal", TRANSCRIPTS_DIR] {
                    if session.path().join(inner).symlink_metadata().is_ok_and(|there| there.is_dir()) {
                        add(format!("{SESSIONS_DIR}/{id}/{inner}"), &is_of_lines)?;
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Whether a run may begin a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// In an empty folder, or one that does not exist.
    Any,
    /// The folder had a copy. Without one, its disk is not mounted, or it was deleted.
    Continue,
}

/// The error of a folder that had a copy.
pub(super) fn lost(dir: &Path) -> BackupError {
    let problem = format!("{} had a backup of this home, and has none now; nothing was copied", dir.display());
    BackupError::new(problem)
        .with_remedy("mount the disk that it is on; if the backup is lost for good, begin another one there with --new")
}

/// The error of a folder whose files belong to a copy that cannot be known any more.
fn without_manifest(dir: &Path) -> BackupError {
    let problem = format!("{} has files of a backup, and its {MANIFEST_FILE} is missing", dir.display());
    BackupError::new(problem).with_remedy(format!(
        "put {MANIFEST_FILE} back if you have it, or name another folder; the segments of the journal in `sessions` are plain text, and \
         each can be read with `codex-shim tape show`"
    ))
}

/// The entries of a folder; empty for a missing folder.
fn entries(dir: &Path) -> io::Result<Vec<DirEntry>> {
    match std::fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether a folder has nothing, or only the lock of a first run that was interrupted at once.
fn is_empty(dir: &Path) -> io::Result<bool> {
    Ok(entries(dir)?.iter().all(|entry| entry.file_name() == LOCK_FILE))
}

fn locked(folder: &Folder, dir: &Path) -> Result<File, BackupError> {
    let began = Instant::now();
    loop {
        match folder.lock(LOCK_FILE) {
            Ok(Some(lock)) => return Ok(lock),
            Ok(None) if began.elapsed() < LOCK_WAIT_MAX => std::thread::sleep(LOCK_PAUSE),
            Ok(None) => {
                let problem = format!("another codex-shim uses {}", dir.display());
                return Err(BackupError::new(problem).with_remedy("try again when it has ended"));
            }
            Err(error) => {
                let is_unwritable =
                    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
                        && Refused::behind(&error).is_none();
                let kind = if is_unwritable { BackupErrorKind::Unwritable } else { BackupErrorKind::Failed };
                return Err(BackupError { kind, ..unusable(&dir.join(LOCK_FILE), &error) });
            }
        }
    }
}

/// The error of a folder that cannot be used; other words than for the home.
pub(in crate::keeping) fn unusable(path: &Path, error: &io::Error) -> BackupError {
    match Refused::behind(error) {
        Some(refused) => {
            let remedy = format!("make {} a folder of your own that nobody else can write to", path.display());
            BackupError::new(refused.problem()).with_remedy(remedy)
        }
        None if error.kind() == io::ErrorKind::NotFound => {
            let problem = format!("{} does not exist, or the folder above it does not", path.display());
            BackupError::new(problem).with_remedy("create the folder above it, or name another one")
        }
        None => BackupError::io("use", path, error),
    }
}

/// Checks that neither folder is in the other one, by whatever names.
pub(in crate::keeping) fn apart(dir: &Path, home: &Path) -> Result<(), BackupError> {
    let refused = |inner: &Path, outer: &Path| {
        let problem = format!("{} is in {}", inner.display(), outer.display());
        BackupError::new(problem).with_remedy("the backup and the home must be apart: name another folder")
    };
    if is_within(dir, home) {
        return Err(refused(dir, home));
    }
    if is_within(home, dir) {
        return Err(refused(home, dir));
    }
    Ok(())
}

/// Whether `inner`, which may not exist yet, is `outer` or in it.
fn is_within(inner: &Path, outer: &Path) -> bool {
    let Ok(outer) = outer.metadata() else { return false };
    let absolute = std::path::absolute(inner).unwrap_or_else(|_| inner.to_owned());
    let existing = absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    let Some(existing) = existing else { return false };
    let is_outer = |there: std::fs::Metadata| (there.dev(), there.ino()) == (outer.dev(), outer.ino());
    existing.ancestors().any(|ancestor| ancestor.metadata().is_ok_and(is_outer))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn lab() -> (tempfile::TempDir, PathBuf) {
        let lab = tempfile::tempdir().expect("a folder");
        let root = lab.path().canonicalize().expect("it is there");
        Folder::make_home(&root.join("home")).expect("a folder");
        (lab, root)
    }

    fn refusal(root: &Path, dir: &str) -> String {
        let error = Target::make(&root.join(dir), &root.join("home"), Start::Any).expect_err("it is refused");
        assert!(error.remedy.is_some(), "{error:?}");
        error.problem
    }

    #[test]
    fn copy_and_home_are_apart() {
        let (_lab, root) = lab();
        fs::create_dir(root.join("other")).expect("a folder");
        symlink(root.join("home"), root.join("alias")).expect("a link");
        for (dir, expect) in [
            ("home", "home is in "),
            ("home/copy", "home/copy is in "),
            ("home/a/b", "home/a/b is in "),
            ("alias/copy", "alias/copy is in "),
            ("other/../home/copy", "is in "),
            (".", "home is in "),
        ] {
            let problem = refusal(&root, dir);
            assert!(problem.contains(expect), "{dir}: {problem}");
        }
        assert!(Target::make(&root.join("homes"), &root.join("home"), Start::Any).is_ok());
    }

    #[test]
    fn folder_of_others_is_refused() {
        let (_lab, root) = lab();
        for folder in ["full", "shared"] {
            fs::create_dir(root.join(folder)).expect("a folder");
        }
        fs::write(root.join("full/notes.txt"), "mine").expect("write");
        fs::write(root.join("file"), "mine").expect("write");
        fs::set_permissions(root.join("shared"), fs::Permissions::from_mode(0o777)).expect("it is ours");
        symlink(root.join("full"), root.join("link")).expect("a link");
        for (dir, expect) in [
            ("full", "full is not empty and has no backup"),
            ("shared", "can write to"),
            ("link", "link is a symbolic link, not a folder"),
            ("file", "file is a file, not a folder"),
            ("missing/deep", "missing/deep does not exist, or the folder above it does not"),
        ] {
            let problem = refusal(&root, dir);
            assert!(problem.contains(expect), "{dir}: {problem}");
        }
        assert_eq!(fs::read_to_string(root.join("full/notes.txt")).expect("it is there"), "mine");
    }

    /// Each state of a folder, at a first run and at a later one.
    #[test]
    fn copy_begins_only_where_none_was() {
        type Find = fn(&Path);
        let (nothing, made): (Find, Find) = (|_| {}, |dir| fs::create_dir(dir).expect("a folder"));
        let locked: Find = |dir| {
            fs::create_dir(dir).expect("a folder");
            fs::write(dir.join(LOCK_FILE), "").expect("write");
        };
        let interrupted: Find = |dir| {
            fs::create_dir_all(dir.join("sessions/s")).expect("folders");
            fs::write(dir.join(FIRST_RUN_FILE), "").expect("write");
            fs::write(dir.join(LOCK_FILE), "").expect("write");
        };
        let without: Find = |dir| {
            fs::create_dir_all(dir.join("sessions/s")).expect("folders");
            fs::write(dir.join(LOCK_FILE), "").expect("write");
        };
        let unlocked: Find = |dir| {
            fs::create_dir(dir).expect("a folder");
            let folder = Folder::at(dir).expect("it is ours");
            Manifest::new(String::new(), String::new()).write(&folder, dir).expect("write");
        };
        let had = "had a backup of this home, and has none now";
        for (find, any, again) in [
            (nothing, None, Some(had)),
            (made, None, Some(had)),
            (locked, None, Some(had)),
            (interrupted, None, Some(had)),
            (without, Some("backup.json is missing"), Some(had)),
            // A copy without its lock, as some programs copy it.
            (unlocked, None, None),
        ] {
            for (start, expect) in [(Start::Any, any), (Start::Continue, again)] {
                let (_lab, root) = lab();
                let dir = root.join("copy");
                find(&dir);
                let before = entries(&dir).map_or(0, |found| found.len());
                let made = Target::make(&dir, &root.join("home"), start).map(drop);
                let said = made.as_ref().err().map(|error| error.problem.clone());
                assert_eq!(said.is_some(), expect.is_some(), "{start:?}: {said:?}");
                assert!(expect.is_none_or(|words| said.is_some_and(|said| said.contains(words))), "{made:?}");
                // A refusal leaves everything as it was.
                assert!(made.is_ok() || entries(&dir).map_or(0, |found| found.len()) == before);
            }
        }
    }

    #[test]
    fn only_files_of_a_copy_are_swept() {
        let (_lab, root) = lab();
        let (target, _) = Target::make(&root.join("copy"), &root.join("home"), Start::Any).expect("it can be made");
        target.has_begun().expect("it is ours");
        let journal = target.make_below("s", Some("journal")).expect("folders");
        let session = target.make_below("s", None).expect("a folder");
        fs::create_dir(root.join("copy/sessions/mine")).expect("a folder");
        // Those of somebody else look much like ours.
        let of_session = ["notes.txt", "ledger.db", "ledger.db.3", "ledger.db.bak", "history.db", "config.toml.4"];
        for name in of_session.iter().chain(&["ledger.db.4", "ledger.db.4-journal", "ledger.db.2"]) {
            fs::write(session.join(name), "x").expect("write");
        }
        let of_journal = ["a.jsonl", "a.jsonl.7", "a.txt", "a.txt.4"];
        for name in of_journal.iter().chain(&["b.jsonl.1"]) {
            fs::write(journal.join(name), "x").expect("write");
        }
        for name in ["config.toml", "config.toml.3", "config.toml.4", "backup.json.77.new"] {
            fs::write(root.join("copy").join(name), "x").expect("write");
        }
        symlink(root.join("home"), journal.join("b.jsonl.4")).expect("a link");
        let mut manifest = Manifest { runs: 4, ..Manifest::new(String::new(), String::new()) };
        manifest.replaced = ["sessions/s/ledger.db.2", "sessions/s/journal/b.jsonl.1", "sessions/t/gone", "sessions/s"]
            .map(str::to_owned)
            .to_vec();
        target.sweep(&manifest).expect("it works");
        let names = |dir: &Path| {
            let names = entries(dir).expect("it is there");
            names.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<BTreeSet<String>>()
        };
        let expect = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        assert_eq!(names(&session), expect(&[&of_session[..], &["journal"]].concat()));
        assert_eq!(names(&journal), expect(&of_journal));
        assert_eq!(names(&root.join("copy")), expect(&["backup.lock", "config.toml", "config.toml.3", "sessions"]));
        assert!(root.join("home").is_dir() && root.join("copy/sessions/mine").is_dir());
    }
}
