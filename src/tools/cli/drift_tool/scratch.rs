//! Folders for a moment, below the home: in a folder for temporary files a model could write settings, which codex would obey.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::Folder;
use crate::os::processes::ProcessIdentity;

const PREFIX: &str = ".drift.";
const SUFFIX: &str = ".new";

/// A new folder, which is removed with this value.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder of this process, and removes those of processes that were killed.
    ///
    /// # Errors
    ///
    /// A message.
    pub(super) fn new(home: &Path) -> Result<Scratch, String> {
        let failed = |error: io::Error| format!("create a folder in {}: {error}", home.display());
        Folder::make_home(home).map_err(failed)?;
        for entry in std::fs::read_dir(home).map_err(failed)?.filter_map(Result::ok) {
            let name = entry.file_name();
            let pid =
                name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse::<u32>().ok());
            if pid.is_some_and(|pid| pid == std::process::id() || ProcessIdentity::of(pid).is_none()) {
                remove(&entry.path());
            }
        }
        let folder = home.join(format!("{PREFIX}{}{SUFFIX}", std::process::id()));
        Folder::make(&folder).map_err(failed)?;
        Ok(Scratch(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// A program that is killed may still write for a moment.
fn remove(folder: &Path) {
    let removed = std::fs::remove_dir_all(folder).or_else(|_| std::fs::remove_dir_all(folder));
    if let Err(error) = removed {
        tracing::warn!(folder = %folder.display(), %error, "remove a folder");
    }
}
