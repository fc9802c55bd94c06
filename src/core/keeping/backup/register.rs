//! `backups.json` in the home: the identity of the home, and which folders have a copy of it.
//!
//! A copy stores the identity of its home, so another home at the same path cannot continue it. A folder in the list had a copy: if the
//! copy is missing, its disk may not be mounted, and no other copy may begin there.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::BackupError;
use crate::files::Folder;

const REGISTER_FILE: &str = "backups.json";

/// Most folders that are remembered; the oldest ones are forgotten.
const COPIES_MAX: usize = 256;

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Register {
    /// The identity of the home, which no other home has.
    pub(super) home: String,
    /// In the order of their first runs.
    copies: Vec<KnownCopy>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KnownCopy {
    folder: PathBuf,
    copy: String,
}

impl Register {
    /// Reads the register of a home; `None` before its first backup.
    pub(super) fn read(home: &Path) -> Result<Option<Register>, BackupError> {
        let path = home.join(REGISTER_FILE);
        let bytes = match Folder::home(home).and_then(|folder| folder.read(REGISTER_FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BackupError::io("read", &path, &error)),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            BackupError::new(format!("{} is damaged: {error}", path.display()))
                .with_remedy("move it away, and name another folder for the backup")
        })
    }

    /// The register of a home, which is created if it is missing. Another process may do so at the same time.
    pub(super) fn make(home: &Path) -> Result<Register, BackupError> {
        if let Some(register) = Register::read(home)? {
            return Ok(register);
        }
        let register = Register { home: new_id(), copies: Vec::new() };
        let beside = format!("{REGISTER_FILE}.{}", std::process::id());
        let made = Folder::home(home).and_then(|folder| {
            folder.put(&beside, &register.bytes())?;
            let made = folder.rename_to_new(&beside, REGISTER_FILE);
            if made.is_err() {
                let _ = std::fs::remove_file(home.join(&beside));
            }
            made.and_then(|()| folder.sync())
        });
        match made {
            Ok(()) => Ok(register),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Register::make(home),
            Err(error) => Err(BackupError::io("write", &home.join(REGISTER_FILE), &error)),
        }
    }

    /// The copy that a folder had.
    pub(super) fn copy_in(&self, folder: &Path) -> Option<&str> {
        self.copies.iter().find(|known| known.folder == folder).map(|known| &*known.copy)
    }

    /// Remembers the copy in a folder.
    pub(super) fn remember(home: &Path, folder: &Path, copy: &str) -> Result<(), BackupError> {
        let mut register = Register::make(home)?;
        if register.copy_in(folder) == Some(copy) {
            return Ok(());
        }
        register.copies.retain(|known| known.folder != folder);
        register.copies.push(KnownCopy { folder: folder.to_owned(), copy: copy.to_owned() });
        let excess = register.copies.len().saturating_sub(COPIES_MAX);
        register.copies.drain(..excess);
        let put = Folder::home(home).and_then(|folder| folder.put(REGISTER_FILE, &register.bytes()));
        put.map_err(|error| BackupError::io("write", &home.join(REGISTER_FILE), &error))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("BUG: plain data is JSON");
        bytes.push(b'\n');
        bytes
    }
}

/// An identity that nothing else has.
pub(super) fn new_id() -> String {
    Uuid::now_v7().to_string()
}

/// The spelling of a folder by which it is known: no link on the way to it, and no slash behind it.
pub(super) fn known_as(dir: &Path) -> PathBuf {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let parent = dir.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, dir.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        (_, _) => dir.canonicalize().unwrap_or(dir),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_keeps_its_identity_and_its_copies() {
        let dir = tempfile::tempdir().expect("a folder");
        let home = dir.path().join("home");
        Folder::make_home(&home).expect("a folder");
        assert_eq!(Register::read(&home), Ok(None));
        let made = Register::make(&home).expect("it can be made");
        assert_eq!(Register::make(&home).as_ref(), Ok(&made));
        let copies: Vec<String> = (0..COPIES_MAX + 2).map(|_| new_id()).collect();
        for (number, copy) in copies.iter().enumerate() {
            Register::remember(&home, &PathBuf::from(format!("/c/{number}")), copy).expect("it is ours");
        }
        let register = Register::make(&home).expect("it is there");
        assert_eq!(register.home, made.home);
        let known = |number: usize| register.copy_in(&PathBuf::from(format!("/c/{number}")));
        assert_eq!((known(1), known(2), register.copies.len()), (None, Some(&*copies[2]), COPIES_MAX));
        std::fs::write(home.join(REGISTER_FILE), "{").expect("it is ours");
        assert!(Register::make(&home).expect_err("it is damaged").remedy.is_some());
    }

    #[test]
    fn folder_is_known_by_one_spelling() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("it is there");
        std::os::unix::fs::symlink(&root, root.join("alias")).expect("a link");
        for spelling in ["copy", "alias/copy", "./copy"] {
            assert_eq!(known_as(&root.join(spelling)), root.join("copy"), "{spelling}");
        }
    }
}
