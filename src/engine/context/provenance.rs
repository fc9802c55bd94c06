//! Where a command came from, and what is known of it beside what the model is shown.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who has told of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Somebody pushed it: `context push`, or a program at the control socket.
    #[default]
    Push,
    /// `codex-shim exec` ran it.
    Exec,
    /// The hook of a shell.
    Hook,
    /// The shell in a terminal of ours.
    Shell,
    /// The events of an `agent_pty`.
    WatchPty,
}

impl Origin {
    /// As it is written and told.
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

/// What is known of a command beside what the model is shown of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Where it came from.
    #[serde(default)]
    pub source: Origin,
    /// How long it ran, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// What the pusher calls the conversation that it belongs to; the model is shown that in the place of the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
}
