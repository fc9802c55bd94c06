//! The environment: the only module that reads its variables.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::{Setting, Source};

/// The variable that counts the nested codex-shim processes.
pub(crate) const DEPTH_VARIABLE: &str = "CODEX_SHIM_DEPTH";

/// The variables of the environment; tests bring their own.
pub struct Environment(Lookup);

type Lookup = Box<dyn Fn(&str) -> Option<OsString>>;

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where the environment is read")]
    pub fn of_process() -> Environment {
        Environment(Box::new(|name| std::env::var_os(name)))
    }

    /// An environment with another lookup.
    #[must_use]
    pub fn of(lookup: impl Fn(&str) -> Option<OsString> + 'static) -> Environment {
        Environment(Box::new(lookup))
    }

    /// The value of a variable that is set and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<OsString> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// The number of codex-shim processes in front of this one; 0 if the count is missing or invalid.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.get(DEPTH_VARIABLE).and_then(|depth| depth.to_str()?.parse().ok()).unwrap_or(0)
    }

    /// The home of codex: `CODEX_HOME`, else `~/.codex`.
    #[must_use]
    pub fn codex_home(&self) -> PathBuf {
        match self.get("CODEX_HOME") {
            // Removes trailing slashes, so that the same folder is the same text.
            Some(home) => Path::new(&home).components().collect(),
            None => self.user_home().unwrap_or_default().join(".codex"),
        }
    }

    /// The folder for the user's sockets: `XDG_RUNTIME_DIR`, if it is an absolute path.
    #[must_use]
    pub fn runtime_dir(&self) -> Option<PathBuf> {
        self.get("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute())
    }

    fn user_home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from).or_else(std::env::home_dir)
    }

    /// Our home, and where its path came from.
    #[must_use]
    pub fn shim_home(&self) -> Setting<Option<PathBuf>> {
        if let Some(home) = self.get("CODEX_SHIM_HOME") {
            let home = std::path::absolute(&home).unwrap_or_else(|_| PathBuf::from(&home));
            return Setting { value: Some(home), source: Source::Variable("CODEX_SHIM_HOME") };
        }
        let state = self.get("XDG_STATE_HOME").map(PathBuf::from).filter(|state| state.is_absolute());
        match state {
            Some(state) => {
                Setting { value: Some(state.join("codex-shim")), source: Source::Variable("XDG_STATE_HOME") }
            }
            None => Setting {
                value: self.user_home().map(|home| home.join(".local/state/codex-shim")),
                source: Source::Default,
            },
        }
    }
}
