//! The source of a command, and facts about it that the model does not see.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The source of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// `context push`, or a program at the control socket.
    #[default]
    Push,
    Exec,
    /// A shell hook.
    Hook,
    /// A `codex-shim shell`.
    Shell,
    /// The events of an `agent_pty`.
    WatchPty,
}

impl Origin {
    /// The name in settings and output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Origin::Push => "push",
            Origin::Exec => "exec",
            Origin::Hook => "hook",
            Origin::Shell => "shell",
            Origin::WatchPty => "watch-pty",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Facts about a command that the model does not see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    #[serde(default)]
    pub source: Origin,
    /// Run time in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The pusher's name for the conversation; the model sees it instead of the thread id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
}
