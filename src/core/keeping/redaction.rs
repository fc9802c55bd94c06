//! The mark of a session's last redaction, which changes with each one, so that a copy of the session is made anew.
//!
//! It is written before anything is masked, and again afterwards: a redaction that was killed has left its mark, too.

use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::files::{self, Folder};
use crate::store::REDACTED_FILE;

/// The mark of a session; `None` if nothing was ever masked in it.
pub(super) fn redaction_of(session_dir: &Path) -> Option<String> {
    let mark = files::read(&session_dir.join(REDACTED_FILE)).ok()?;
    Some(String::from_utf8_lossy(&mark).trim_end().replace('\n', " "))
}

/// Whether a mark is that of a redaction that has not ended: it runs, or was killed.
pub(super) fn is_begun(mark: &str) -> bool {
    mark.ends_with(BEGUN)
}

/// The end of the mark of a redaction in progress.
const BEGUN: &str = " begun";

/// A redaction in progress.
#[derive(Debug)]
pub(super) struct Redaction {
    session_dir: PathBuf,
    before: Option<Vec<u8>>,
}

impl Redaction {
    pub(super) fn begin(session_dir: &Path) -> io::Result<Redaction> {
        let before = match files::read(&session_dir.join(REDACTED_FILE)) {
            Ok(before) => Some(before),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let begun = format!("{}{BEGUN}\n", Uuid::now_v7());
        Folder::at(session_dir)?.put(REDACTED_FILE, begun.as_bytes())?;
        Ok(Redaction { session_dir: session_dir.to_owned(), before })
    }

    /// Without any masked secret the mark is again the one before, and copies stay as they are.
    pub(super) fn end(self, has_masked: bool) -> io::Result<()> {
        let folder = Folder::at(&self.session_dir)?;
        // A redaction that was killed may have masked something.
        let is_known = |before: &[u8]| !is_begun(String::from_utf8_lossy(before).trim_end());
        match self.before {
            Some(before) if !has_masked && is_known(&before) => folder.put(REDACTED_FILE, &before),
            None if !has_masked => std::fs::remove_file(self.session_dir.join(REDACTED_FILE)),
            Some(_) | None => folder.put(REDACTED_FILE, format!("{}\n", Uuid::now_v7()).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_changes_if_something_was_masked() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let dir = dir.path();
        let redact = |has_masked| {
            Redaction::begin(dir).expect("it is ours").end(has_masked).expect("it is ours");
            redaction_of(dir)
        };
        assert_eq!(redaction_of(dir), None);
        assert_eq!(redact(false), None);
        let first = redact(true);
        assert!(first.is_some() && redact(false) == first);
        let second = redact(true);
        assert!(second.is_some() && second != first);
        // Killed in the middle, and repeated.
        drop(Redaction::begin(dir).expect("it is ours"));
        let killed = redaction_of(dir);
        assert!(killed != second);
        let repeated = redact(false);
        assert!(repeated != second && repeated != killed);
    }
}
