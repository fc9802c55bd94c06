//! The state of a session: the response to `GET /sessions/{id}`, also printed by `status --json`.
//!
//! Pure: plain data.

use serde::{Deserialize, Serialize};

use crate::engine::ContextSettings;
use crate::history::Activity;

/// The current state of a session. Members that a stopped session does not have are `null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionDocument {
    pub session_id: String,
    /// The activity of the session: that of the thread that needs a person most.
    pub state: Activity,
    /// `state` under the name that threads use.
    pub activity_state: Activity,
    /// RFC 3339; `null` if not recorded.
    #[serde(default)]
    pub state_since: Option<String>,
    /// Id of the current or the last run of the server.
    pub generation: Option<String>,
    /// Path of the control socket, links resolved.
    pub socket: Option<String>,
    pub child: ChildDocument,
    pub client: ClientDocument,
    /// Threads seen in this run.
    pub threads: Vec<ThreadDocument>,
    /// Requests that wait for an answer.
    pub pending_requests: u64,
    /// Commands that wait for the model or are being delivered.
    pub context_waiting: u64,
    pub journal: JournalDocument,
    pub index: IndexDocument,
    /// The user's context engine, if one was started in this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_engine: Option<ContextEngineDocument>,
    /// The relay's settings; relays of older versions omit them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigDocument>,
    /// Faults of codex-shim in this run. None of them affected the user's session.
    pub faults: Vec<Fault>,
    pub counters: Counters,
    /// RFC 3339.
    pub started_at: Option<String>,
}

/// The current state of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadDocument {
    pub thread_id: String,
    pub activity_state: Activity,
    /// RFC 3339.
    pub since: String,
    /// The running turn.
    pub turn_id: Option<String>,
    /// Requests of the thread that wait for an answer.
    pub pending: u64,
    /// The last action, in a few words.
    pub last_action: Option<String>,
    /// If the turn has stalled: since when, RFC 3339.
    pub stalled_since: Option<String>,
}

/// The server process; members are `None` until known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildDocument {
    pub pid: Option<u32>,
    /// From the server's answer to `initialize`.
    pub codex_version: Option<String>,
}

/// The client's identity from its `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientDocument {
    /// `clientInfo.name`
    pub name: Option<String>,
    /// `clientInfo.version`
    pub version: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalDocument {
    /// Total size of the segments.
    pub bytes: u64,
    /// Number of gaps in this run: stretches of lines that could not be written.
    pub gaps: Option<u64>,
}

/// Differences between the relay's settings and the config file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigDocument {
    /// When the relay last loaded the file, RFC 3339.
    pub loaded_at: Option<String>,
    /// Changed settings that need a restart of the relay.
    pub restart_needed: Vec<String>,
    /// Why the current file is not applied.
    pub error: Option<String>,
    /// The context settings that the relay applies; relays of older versions omit them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextSettings>,
}

/// A context engine: its state now, and its calls in this run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ContextEngineDocument {
    /// Running and initialized.
    pub running: bool,
    pub id: Option<String>,
    /// The name for users.
    pub name: Option<String>,
    pub version: Option<String>,
    pub pid: Option<u32>,
    /// How many times it exited or could not be started.
    pub ends: u64,
    /// The reason for the last of these.
    pub last_end: Option<String>,
    /// Calls by method and outcome.
    pub calls: Vec<CallCount>,
}

/// Number of calls of one method with one outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallCount {
    pub method: String,
    pub outcome: String,
    pub count: u64,
    /// Total duration in milliseconds.
    pub ms: u64,
}

/// How far the index is behind the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexDocument {
    /// The epoch of the event numbers; `null` if no history was opened.
    #[serde(default)]
    pub epoch: Option<String>,
    /// Lines that are recorded but not indexed.
    pub lag_lines: u64,
    /// Age of the oldest such line in milliseconds.
    pub lag_ms: u64,
    /// Whether the history can be queried.
    pub persisted: bool,
    /// Failed commits in this run.
    #[serde(default)]
    pub event_persist_error: u64,
    /// Rows deleted in this run because of retention limits.
    #[serde(default)]
    pub pruned: PrunedDocument,
}

/// Number of deleted rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PrunedDocument {
    pub events: u64,
    pub tool_events: u64,
    pub turn_events: u64,
    /// Total duration in milliseconds.
    pub took_ms: u64,
}

impl IndexDocument {
    /// The document if there is no index.
    pub(crate) const NONE: IndexDocument = IndexDocument {
        epoch: None,
        lag_lines: 0,
        lag_ms: 0,
        persisted: false,
        event_persist_error: 0,
        pruned: PrunedDocument { events: 0, tool_events: 0, turn_events: 0, took_ms: 0 },
    };
}

/// A fault of codex-shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// The message as printed on stderr.
    pub what: String,
    /// When it first occurred, RFC 3339.
    pub since: String,
}

/// Counters of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Counters {
    pub client_lines: u64,
    /// Newlines included.
    pub client_bytes: u64,
    pub server_lines: u64,
    /// Newlines included.
    pub server_bytes: u64,
    /// Lines that were forwarded and left out of the record on purpose.
    pub omitted_lines: u64,
    pub journal_appended_bytes: u64,
    /// Lines that were forwarded but could not be recorded.
    pub journal_missed_lines: u64,
    /// Turns that a context engine's text was put in front of.
    pub turns_projected: u64,
    /// Fragments sent to threads.
    pub fragments_told: u64,
    /// Fragments whose text could not be determined.
    pub fragments_failed: u64,
    /// Faults that are not listed because the list is full.
    pub faults_unlisted: u64,
}
