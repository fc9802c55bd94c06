//! Leave to start a program of the user, or to read a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is about to be started, or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Command(Vec<String>),
    File(PathBuf),
}

type Check = dyn Fn(&str, Subject, Option<&Path>) -> Result<(), String> + Send + Sync;

/// Is asked each time, on the thread that starts the program, and may look at files.
#[derive(Clone)]
pub struct Permit(Arc<Check>);

impl Permit {
    pub fn new(check: impl Fn(&str, Subject, Option<&Path>) -> Result<(), String> + Send + Sync + 'static) -> Permit {
        Permit(Arc::new(check))
    }

    /// Whether this very command of this name may start in `cwd`, or in our own folder.
    ///
    /// # Errors
    ///
    /// Why it must not.
    pub(super) fn check(&self, name: &str, subject: Subject, cwd: Option<&Path>) -> Result<(), String> {
        (self.0)(name, subject, cwd)
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}
