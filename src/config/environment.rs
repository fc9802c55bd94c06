//! The environment: the only module that reads its variables.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::{Setting, Source};

/// The variables of the settings. A process that must ignore the user's settings removes them.
pub const SETTING_VARIABLES: [&str; 32] = [
    "CODEX_SHIM_OFF",
    "CODEX_SHIM_CODEX",
    "CODEX_SHIM_SESSION",
    "CODEX_SHIM_RECORD",
    "CODEX_SHIM_EXIT_GRACE",
    "CODEX_SHIM_JOURNAL_BYTES_MAX",
    "CODEX_SHIM_JOURNAL_AGE_MAX",
    "CODEX_SHIM_CARRIER",
    "CODEX_SHIM_CONTEXT_COMMANDS_MAX",
    "CODEX_SHIM_CONTEXT_PREVIEW_LINES_MAX",
    "CODEX_SHIM_CONTEXT_PREVIEW_BYTES_MAX",
    "CODEX_SHIM_CONTEXT_CMD_BYTES_MAX",
    "CODEX_SHIM_CONTEXT_CWD_BYTES_MAX",
    "CODEX_SHIM_CONTEXT_BYTES_MAX",
    "CODEX_SHIM_MCP",
    "CODEX_SHIM_HOLD",
    "CODEX_SHIM_EXPIRY",
    "CODEX_SHIM_ON_PENDING",
    "CODEX_SHIM_ON_PENDING_AFTER",
    "CODEX_SHIM_ON_IDLE",
    "CODEX_SHIM_EVENTS_MAX",
    "CODEX_SHIM_TOOL_EVENTS_MAX",
    "CODEX_SHIM_TURN_EVENTS_MAX",
    "CODEX_SHIM_HISTORY_AGE_MAX",
    "CODEX_SHIM_SESSION_AGE_MAX",
    "CODEX_SHIM_TRANSCRIPT_FILES",
    "CODEX_SHIM_AGENT_PTY",
    "CODEX_SHIM_AGENT_PTY_ALL",
    "CODEX_SHIM_CONTEXT_ENGINE",
    "CODEX_SHIM_CONTEXT_ENGINE_DEADLINE_MS",
    "CODEX_SHIM_CONTEXT_ENGINE_TOKEN_BUDGET",
    "CODEX_SHIM_CONTEXT_ENGINE_PROJECTION_CHARS_MAX",
];

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
