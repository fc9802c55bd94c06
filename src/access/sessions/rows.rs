//! The rows of lists of sessions.

use crate::control::RequestOrigin;
use crate::history::Activity;
use crate::sessions::ask::Ask;

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub id: String,
    pub live: bool,
    /// Why it cannot answer, if that is known: its host is offline, or its hub is down.
    pub away: Option<String>,
    /// Its activity; `None` if it does not answer.
    pub state: Option<Activity>,
    pub pending: u64,
    /// The requests that wait for a human, oldest first.
    pub waiting: Vec<Waiting>,
    pub cwd: String,
    pub client: Option<String>,
    /// When it was last used, in microseconds since the Unix epoch.
    pub used_us: u64,
    /// The threads that have a row of their own.
    pub threads: Vec<ThreadLine>,
}

/// A thread in the list of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadLine {
    pub id: String,
    /// `proj (codex-tui)`, with the terminal where two would be alike.
    pub name: String,
    /// The same without the client.
    pub short_name: String,
    pub state: Activity,
    /// Start of the state, in microseconds since the Unix epoch.
    pub since_us: Option<u64>,
    /// Its title, or what its user said first.
    pub about: String,
}

/// A request that waits for a human.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub id: String,
    pub summary: String,
    /// When it arrived, in microseconds since the Unix epoch.
    pub asked_us: u64,
    pub thread_id: Option<String>,
    /// The thread that asks, if it is not that of the session.
    pub origin: Option<RequestOrigin>,
    /// What makes it riskier than it looks.
    pub warnings: Vec<String>,
}

impl Waiting {
    /// A request of a session in this folder.
    pub fn of(ask: &Ask, cwd: &str) -> Waiting {
        Waiting {
            id: ask.id.clone(),
            summary: ask.summary(),
            asked_us: ask.asked_us,
            thread_id: ask.thread_id().map(str::to_owned),
            origin: ask.origin(cwd),
            warnings: ask.view.warnings.clone(),
        }
    }
}
