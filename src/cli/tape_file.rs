//! Resolves a tape argument: a file, or `latest` for the newest recording.

use std::path::{Path, PathBuf};

use super::select_session;
use crate::config::Environment;
use crate::journal::SegmentName;
use crate::store::Otherwise;

/// The word for the newest recording.
const LATEST: &str = "latest";

/// Finds a tape.
///
/// # Errors
///
/// The exit status; the reason has been printed.
pub(super) fn find(file: &Path, environment: &Environment) -> Result<PathBuf, i32> {
    if file != Path::new(LATEST) || file.exists() {
        return Ok(file.to_owned());
    }
    let session = select_session::one(Some(LATEST), Otherwise::Latest, environment).map_err(|error| error.report())?;
    let journal = session.journal_dir();
    let segments = SegmentName::list(&journal).unwrap_or_default();
    match segments.last() {
        Some(last) => Ok(journal.join(last.to_string())),
        None => {
            super::say(&format!("session {} has no recording; see `codex-shim status {}`", session.id, session.id));
            Err(super::FAILED)
        }
    }
}
