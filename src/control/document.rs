//! What is told of a session: the answer to `GET /sessions/{id}`, which is also what `status --json` prints.
//!
//! Pure: plain data.

use serde::{Deserialize, Serialize};

use crate::history::Activity;

/// A session as it is now. What a stopped one no longer tells is `null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionDocument {
    /// The session's id.
    pub session_id: String,
    /// What the session does: that of its threads which a person has to know of first.
    pub state: Activity,
    /// The same under the name that it has for a thread.
    pub activity_state: Activity,
    /// Since when, RFC 3339, where that is on record.
    #[serde(default)]
    pub state_since: Option<String>,
    /// The run of the child, or the last one.
    pub generation: Option<String>,
    /// Where the control socket really is, links resolved.
    pub socket: Option<String>,
    /// The server.
    pub child: ChildDocument,
    /// The client.
    pub client: ClientDocument,
    /// Its threads, as far as anything was heard of them in this run.
    pub threads: Vec<ThreadDocument>,
    /// Requests that wait for an answer.
    pub pending_requests: u64,
    /// Commands of the user that wait to be shown to the model, or are on their way to it.
    pub context_waiting: u64,
    /// The journal.
    pub journal: JournalDocument,
    /// How far the index is behind the journal.
    pub index: IndexDocument,
    /// The user's context engine, where one was started in this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_engine: Option<ContextEngineDocument>,
    /// The settings that the relay runs with; a relay of an older version does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigDocument>,
    /// What has gone wrong in this run and cost the user nothing.
    pub faults: Vec<Fault>,
    /// What has passed in this run.
    pub counters: Counters,
    /// When the relay started, RFC 3339.
    pub started_at: Option<String>,
}

/// A thread as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ThreadDocument {
    /// The thread.
    pub thread_id: String,
    /// What it does.
    pub activity_state: Activity,
    /// Since when, RFC 3339.
    pub since: String,
    /// The turn that runs.
    pub turn_id: Option<String>,
    /// Requests of it that wait for an answer.
    pub pending: u64,
    /// What was done in it last, in a few words.
    pub last_action: Option<String>,
    /// Since when its turn has been silent, where that is too long, RFC 3339.
    pub stalled_since: Option<String>,
}

/// The server, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildDocument {
    /// Its process id.
    pub pid: Option<u32>,
    /// Its version, once it has answered `initialize`.
    pub codex_version: Option<String>,
}

/// The client, once it has sent `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClientDocument {
    /// `clientInfo.name`
    pub name: Option<String>,
    /// `clientInfo.version`
    pub version: Option<String>,
}

/// The journal of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalDocument {
    /// Size of all its segments.
    pub bytes: u64,
    /// Stretches of lines in this run that could not be written.
    pub gaps: Option<u64>,
}

/// How the settings of a relay and the config file differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigDocument {
    /// When the relay started, or took over a change of the file last, RFC 3339.
    pub loaded_at: Option<String>,
    /// Settings whose new values wait for a restart of the relay.
    pub restart_needed: Vec<String>,
    /// Why the file as it is now is not applied.
    pub error: Option<String>,
}

/// A context engine as it is now, and what it was asked in this run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ContextEngineDocument {
    /// It runs, and has said who it is.
    pub running: bool,
    /// What it calls itself.
    pub id: Option<String>,
    /// The same for people.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Its process id.
    pub pid: Option<u32>,
    /// How often it has ended, or could not be started.
    pub ends: u64,
    /// Why it has last.
    pub last_end: Option<String>,
    /// What it was asked, by method and outcome.
    pub calls: Vec<CallCount>,
}

/// How often a context engine was asked something, with this outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallCount {
    /// What it was asked.
    pub method: String,
    /// What came of it.
    pub outcome: String,
    /// How often.
    pub count: u64,
    /// How long that took together, in milliseconds.
    pub ms: u64,
}

/// How far the index is behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexDocument {
    /// The epoch of the numbers of events; `null` if no history was opened.
    #[serde(default)]
    pub epoch: Option<String>,
    /// Lines that are recorded and not indexed.
    pub lag_lines: u64,
    /// Age of the oldest of them in milliseconds.
    pub lag_ms: u64,
    /// Whether what has happened can be looked up in a history.
    pub persisted: bool,
    /// Commits of this run that failed.
    #[serde(default)]
    pub event_persist_error: u64,
    /// What went in this run because there was more than is kept.
    #[serde(default)]
    pub pruned: PrunedDocument,
}

/// What is not kept any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PrunedDocument {
    /// Events.
    pub events: u64,
    /// Rows of tools.
    pub tool_events: u64,
    /// Rows of turns.
    pub turn_events: u64,
    /// How long that took, in milliseconds.
    pub took_ms: u64,
}

impl IndexDocument {
    /// No index at all.
    pub(crate) const NONE: IndexDocument = IndexDocument {
        epoch: None,
        lag_lines: 0,
        lag_ms: 0,
        persisted: false,
        event_persist_error: 0,
        pruned: PrunedDocument { events: 0, tool_events: 0, turn_events: 0, took_ms: 0 },
    };
}

/// Something that went wrong with us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// What, as it was said on stderr.
    pub what: String,
    /// When it was first seen, RFC 3339.
    pub since: String,
}

/// What one run has done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Counters {
    /// Lines of the client.
    pub client_lines: u64,
    /// Their bytes, newlines included.
    pub client_bytes: u64,
    /// Lines of the server.
    pub server_lines: u64,
    /// Their bytes, newlines included.
    pub server_bytes: u64,
    /// Lines that passed and were left out of the record on purpose.
    pub omitted_lines: u64,
    /// Bytes that were appended to the journal.
    pub journal_appended_bytes: u64,
    /// Lines that passed and could not be written.
    pub journal_missed_lines: u64,
    /// Turns with what a context engine has assembled in front of the user's words.
    pub turns_projected: u64,
    /// Fragments that threads were told.
    pub fragments_told: u64,
    /// Fragments of which it could not be found out what they say.
    pub fragments_failed: u64,
    /// Faults that are not listed because there were too many.
    pub faults_unlisted: u64,
}
