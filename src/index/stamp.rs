//! Whether a database file is still the one that was opened.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::files::{self, Access};
use crate::store::BESIDE;

/// The first bytes of a SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The identity of a file when it was opened.
#[derive(Debug)]
pub(super) struct Stamp {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// SQLite never shrinks such a file unasked, so a shorter one was truncated or vacuumed.
    bytes: u64,
    /// The files beside it, by device and inode.
    beside: [Option<(u64, u64)>; 2],
}

/// The state of the file now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    InPlace,
    /// The file was removed or replaced.
    Gone,
    /// The file was truncated or overwritten.
    Broken,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> io::Result<Stamp> {
        let file = std::fs::metadata(path)?;
        let beside = BESIDE.map(|suffix| identity(path, suffix));
        Ok(Stamp { path: path.to_owned(), device: file.dev(), inode: file.ino(), bytes: file.len(), beside })
    }

    /// Suffixes of its files that are still beside it, even if it is gone.
    pub(super) fn files_beside(&self) -> Vec<&'static str> {
        let is_left = |(suffix, was): &(&'static str, Option<_>)| was.is_some() && *was == identity(&self.path, suffix);
        BESIDE.into_iter().zip(self.beside).filter(is_left).map(|(suffix, _)| suffix).collect()
    }

    /// Checks the file.
    pub(super) fn fate(&mut self) -> Fate {
        let Ok(file) = std::fs::metadata(&self.path) else { return Fate::Gone };
        if (file.dev(), file.ino()) != (self.device, self.inode) {
            return Fate::Gone;
        }
        let is_shorter = file.len() < self.bytes && !is_complete(&self.path, file.len());
        if is_shorter || !begins_well(&self.path, &file) {
            return Fate::Broken;
        }
        self.bytes = file.len();
        Fate::InPlace
    }
}

/// Whether a file has all the pages that its header declares, as a vacuumed one has. Source: SQLite's file format, page
/// size at byte 16, number of pages at byte 28.
fn is_complete(path: &Path, bytes: u64) -> bool {
    let mut head = [0; 32];
    if files::open(path, Access::Read).and_then(|file| file.read_exact_at(&mut head, 0)).is_err() {
        return false;
    }
    let page_bytes = match u16::from_be_bytes([head[16], head[17]]) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    let pages = u64::from(u32::from_be_bytes([head[28], head[29], head[30], head[31]]));
    pages > 0 && page_bytes > 0 && pages * page_bytes <= bytes
}

/// Device and inode of a file beside the database.
fn identity(path: &Path, suffix: &str) -> Option<(u64, u64)> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    std::fs::metadata(name).ok().map(|file| (file.dev(), file.ino()))
}

/// Whether a file starts like a SQLite file; it is empty before the first checkpoint.
fn begins_well(path: &Path, metadata: &Metadata) -> bool {
    let mut magic = [0; MAGIC.len()];
    let read = files::open(path, Access::Read).and_then(|file| file.read_exact_at(&mut magic, 0));
    metadata.len() == 0 || (read.is_ok() && magic == *MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_notices_changed_files() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("x.db");
        let write = |text: &[u8]| std::fs::write(&path, text).expect("write");
        write(b"SQLite format 3\0 and more");
        let mut stamp = Stamp::of(&path).expect("it is there");
        assert_eq!(stamp.fate(), Fate::InPlace);
        write(b"SQLite format 3\0 and more and more");
        assert_eq!(stamp.fate(), Fate::InPlace);
        write(b"SQLite format 3\0 and more");
        assert_eq!(stamp.fate(), Fate::Broken);
        write(&[b'x'; 99]);
        assert_eq!(stamp.fate(), Fate::Broken);
        std::fs::rename(&path, dir.path().join("y.db")).expect("rename");
        assert_eq!(stamp.fate(), Fate::Gone);
        write(b"SQLite format 3\0 and more");
        assert_eq!(stamp.fate(), Fate::Gone);
    }

    #[test]
    fn files_beside_are_compared_by_inode() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = |name: &str| dir.path().join(name);
        for name in ["x.db", "x.db-wal", "x.db-shm"] {
            std::fs::write(path(name), "x").expect("write");
        }
        let stamp = Stamp::of(&path("x.db")).expect("it is there");
        std::fs::remove_file(path("x.db")).expect("remove");
        assert_eq!(stamp.files_beside(), ["-wal", "-shm"]);
        std::fs::write(path("y"), "y").expect("write");
        std::fs::rename(path("y"), path("x.db-wal")).expect("rename");
        assert_eq!(stamp.files_beside(), ["-shm"]);
    }
}
