//! The names and kinds of the files that codex-shim creates in a session's folder. Nothing else is deleted.

use std::fs::{DirEntry, FileType};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::ledger::LEDGER_FILE;
use super::session::INDEX_LOCK_FILE;
use crate::files;
use crate::journal::SegmentName;

/// Files of ours in the folder itself, besides databases.
const FILES: [&str; 4] = ["lock", INDEX_LOCK_FILE, "shim.log", "shim.log.old"];

const SOCKET: &str = "control.sock";

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
                    let is_ours = is_file_name(&name) && is_file_kind(kind) || name == SOCKET && is_socket_kind(kind);
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

    #[test]
    fn own_file_names_are_recognized() {
        for ours in [
            "lock",
            "ledger.db",
            "ledger.db-wal",
            "history.db.corrupt-17",
            "history.db.corrupt-17-shm",
            ".lock.12-3.new",
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
