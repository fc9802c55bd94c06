//! The files of a socket of ours, recognized again: one that another program has put in their place is never removed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The files of a socket: the socket itself, and the link to it, if any.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[must_use = "the files stay until they are removed"]
pub struct SocketFiles {
    files: Vec<OwnFile>,
    /// Whether all of them were found when they had just been created.
    are_all: bool,
}

/// A file that we have created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OwnFile {
    path: PathBuf,
    identity: SocketIdentity,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum SocketIdentity {
    /// As long as the socket is open its number is not used again.
    Socket { device: u64, inode: u64 },
    /// The number of a removed link may be used again at once, but nobody else links to our socket.
    Link { target: PathBuf },
}

impl SocketFiles {
    /// The files at these paths, which were just created.
    pub(super) fn of(paths: &[&Path]) -> SocketFiles {
        let files: Vec<OwnFile> = paths.iter().filter_map(|path| OwnFile::at(path)).collect();
        SocketFiles { are_all: files.len() == paths.len(), files }
    }

    #[cfg(test)]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    /// Whether clients still find the socket.
    pub fn are_in_place(&self) -> bool {
        self.are_all && self.files.iter().all(OwnFile::is_in_place)
    }

    /// Removes those that are in place. Open connections stay open.
    pub fn remove(self) {
        for file in self.files.iter().filter(|file| file.is_in_place()) {
            if let Err(error) = std::fs::remove_file(&file.path) {
                tracing::info!(%error, file = %file.path.display(), "remove a socket");
            }
        }
    }
}

impl OwnFile {
    fn at(path: &Path) -> Option<OwnFile> {
        let there: Metadata = std::fs::symlink_metadata(path).ok()?;
        let identity = match there.is_symlink() {
            true => SocketIdentity::Link { target: std::fs::read_link(path).ok()? },
            false => SocketIdentity::Socket { device: there.dev(), inode: there.ino() },
        };
        Some(OwnFile { path: path.to_owned(), identity })
    }

    fn is_in_place(&self) -> bool {
        OwnFile::at(&self.path).as_ref() == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_never_found_are_not_in_place() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let [there, gone] = ["there", "gone"].map(|name| dir.path().join(name));
        std::fs::write(&there, "").expect("write");
        for (paths, expect) in [(vec![&*there], true), (vec![&there, &gone], false), (vec![&gone], false)] {
            assert_eq!(SocketFiles::of(&paths).are_in_place(), expect, "{paths:?}");
        }
        assert!(!SocketFiles::default().are_in_place());
    }
}
