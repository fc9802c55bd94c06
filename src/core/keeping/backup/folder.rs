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
use crate::index::TRANSCRIPTS_DIR;

/// Held while a process uses the copy. It also marks the folder of a copy whose first run was interrupted.
const LOCK_FILE: &str = "backup.lock";

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
    /// Opens the folder of a copy of `home`, or creates it.
    pub(super) fn make(dir: &Path, home: &Path) -> Result<Target, BackupError> {
        apart(dir, home)?;
        let folder = Folder::make(dir).map_err(|error| unusable(dir, &error))?;
        let is_ours = dir.join(LOCK_FILE).symlink_metadata().is_ok();
        if !is_ours && !is_empty(dir).map_err(|error| unusable(dir, &error))? {
            let problem = format!("{} is not empty and has no backup", dir.display());
            return Err(BackupError::new(problem).with_remedy("name a folder that is empty or does not exist"));
        }
        let lock = locked(&folder, dir)?;
        Ok(Target { dir: dir.to_owned(), folder, _lock: Some(lock) })
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
            let remedy = "run `codex-shim backup` again";
            let problem = format!("{}: the first backup into it was not completed", dir.display());
            return Err(BackupError::new(problem).with_remedy(remedy));
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

    /// Removes the files of ours that the manifest does not name. Returns how many bytes they had.
    pub(super) fn sweep(&self, manifest: &Manifest) -> io::Result<u64> {
        let named: BTreeSet<PathBuf> = manifest.files().map(|stored| self.dir.join(&stored.file)).collect();
        let mut bytes = 0;
        for entry in entries(&self.dir)? {
            let of_writer = entry.file_name().to_str().and_then(files::named_later) == Some(MANIFEST_FILE);
            if of_writer || is_numbered(&entry, "config.toml") {
                bytes += remove_unnamed(&entry, &named)?;
            }
        }
        for session in entries(&self.dir.join(SESSIONS_DIR))? {
            if !session.file_type()?.is_dir() {
                continue;
            }
            for entry in entries(&session.path())? {
                let name = entry.file_name();
                if entry.file_type()?.is_dir() && (name == "journal" || name == TRANSCRIPTS_DIR) {
                    for lines in entries(&entry.path())?.into_iter().filter(is_of_lines) {
                        bytes += remove_unnamed(&lines, &named)?;
                    }
                    let _ = std::fs::remove_dir(entry.path());
                } else if ["ledger.db", "history.db"].iter().any(|database| is_numbered(&entry, database)) {
                    bytes += remove_unnamed(&entry, &named)?;
                }
            }
            // Only a folder that is empty goes.
            let _ = std::fs::remove_dir(session.path());
        }
        Ok(bytes)
    }
}

/// Removes a file unless the copy has it.
fn remove_unnamed(entry: &DirEntry, named: &BTreeSet<PathBuf>) -> io::Result<u64> {
    let kind = entry.file_type()?;
    if named.contains(&entry.path()) || kind.is_dir() {
        return Ok(0);
    }
    let bytes = entry.metadata()?.len();
    std::fs::remove_file(entry.path())?;
    Ok(bytes)
}

/// Whether it is `name`, or `name` with the number of a run or another suffix of digits, or a file that SQLite keeps beside it.
fn is_numbered(entry: &DirEntry, name: &str) -> bool {
    let file = entry.file_name();
    let Some(rest) = file.to_str().and_then(|file| file.strip_prefix(name)) else { return false };
    let rest = ["-wal", "-shm", "-journal"].iter().find_map(|suffix| rest.strip_suffix(suffix)).unwrap_or(rest);
    rest.is_empty() || rest.strip_prefix('.').is_some_and(is_digits)
}

fn is_of_lines(entry: &DirEntry) -> bool {
    let file = entry.file_name();
    let Some(file) = file.to_str() else { return false };
    file.ends_with(".jsonl") || file.rsplit_once(".jsonl.").is_some_and(|(_, run)| is_digits(run))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The entries of a folder; empty for a missing folder.
fn entries(dir: &Path) -> io::Result<Vec<DirEntry>> {
    match std::fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_empty(dir: &Path) -> io::Result<bool> {
    Ok(entries(dir)?.is_empty())
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
        let error = Target::make(&root.join(dir), &root.join("home")).expect_err("it is refused");
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
        assert!(Target::make(&root.join("homes"), &root.join("home")).is_ok());
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

    #[test]
    fn only_files_of_a_copy_are_swept() {
        let (_lab, root) = lab();
        let target = Target::make(&root.join("copy"), &root.join("home")).expect("it can be made");
        let journal = target.make_below("s", Some("journal")).expect("folders");
        let session = target.make_below("s", None).expect("a folder");
        let mine = ["notes.txt", "ledger.db.bak", "config.toml.x"];
        let ours = ["ledger.db.3", "ledger.db.4-journal", "history.db"];
        for name in mine.iter().chain(&ours) {
            fs::write(session.join(name), "x").expect("write");
        }
        for name in ["a.jsonl", "a.jsonl.7", "a.txt"] {
            fs::write(journal.join(name), "x").expect("write");
        }
        fs::write(root.join("copy/backup.json.77.new"), "x").expect("write");
        symlink(root.join("home"), journal.join("b.jsonl")).expect("a link");
        target.sweep(&Manifest::new(String::new())).expect("it works");
        let names = |dir: &Path| {
            let mut names: Vec<String> = entries(dir)
                .expect("it is there")
                .iter()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(&session), ["config.toml.x", "journal", "ledger.db.bak", "notes.txt"]);
        assert_eq!(
            (names(&journal), names(&root.join("copy"))),
            (vec!["a.txt".to_owned()], vec!["backup.lock".to_owned(), "sessions".to_owned()])
        );
        assert!(root.join("home").is_dir());
    }
}
