//! The rows of lists of sessions: those of the tools, and those that a host sends to its fleet.

use serde::{Deserialize, Serialize};

use crate::history::Activity;

/// A session in a list. A host that sends only summaries leaves members out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListedSession {
    pub session_id: String,
    /// The shortest name that every tool takes.
    pub short_id: String,
    /// The folder and the client: `proj (vscode)`.
    pub name: String,
    pub live: bool,
    /// The state that a live relay reports; `null` if it does not answer.
    pub state: Option<Activity>,
    /// Start of a live session; last use of a stopped one.
    pub since: String,
    pub cwd: Option<String>,
    /// The relay's process id while it runs.
    pub pid: Option<u32>,
}

impl ListedSession {
    /// Whether no turn runs in it.
    pub fn is_at_rest(&self) -> bool {
        !self.live || self.state == Some(Activity::Idle)
    }
}
