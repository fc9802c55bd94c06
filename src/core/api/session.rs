//! The state of a session: the response to `GET /sessions/{id}`, also printed by `status --json`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::thread_list::ListedThread;
use crate::engine::{ContextSettings, Transport, one_line};
use crate::history::{Activity, ThreadClient, ThreadIdentity, rfc3339_millis};
use crate::protocol::ThreadKind;
use crate::wire::Conn;

/// The current state of a session. Members that a stopped session does not have are `null`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionDocument {
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
    /// What codex has said about its configuration since it started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_warnings: Vec<ConfigWarningDocument>,
    /// Of a hub: its server and its clients.
    #[serde(default, flatten)]
    pub hub: Option<HubDocument>,
    /// Faults of codex-shim in this run. None of them affected the user's session.
    pub faults: Vec<Fault>,
    pub counters: Counters,
    /// RFC 3339.
    pub started_at: Option<String>,
}

/// The current state of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadDocument {
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
    /// The beginning of its first message, if it has no title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_words: Option<String>,
    /// If the turn has stalled: since when, RFC 3339.
    pub stalled_since: Option<String>,
    /// Who it is; relays of older versions omit it.
    #[serde(flatten)]
    pub identity: ThreadIdentityDocument,
}

impl ThreadDocument {
    /// A turn runs, or waits for a person.
    pub fn runs(&self) -> bool {
        !matches!(self.activity_state, Activity::Idle | Activity::Stopped)
    }

    /// Its title, or what its user said first.
    pub fn about(&self) -> Option<&str> {
        self.identity.title.as_deref().or(self.first_words.as_deref())
    }
}

/// Who a thread is. Members are `null` if nothing on record says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadIdentityDocument {
    #[serde(deserialize_with = "kind_or_null")]
    pub kind: ThreadKind,
    pub title: Option<String>,
    /// The working folder.
    pub cwd: Option<String>,
    pub place: Option<PlaceDocument>,
    pub client: Option<ThreadClientDocument>,
    pub model: Option<String>,
    /// The thread whose model has started it.
    pub parent: Option<String>,
    pub forked_from: Option<String>,
    /// The server takes no message for it.
    pub refuses_input: bool,
    /// RFC 3339.
    pub started_at: Option<String>,
    /// When somebody last spoke in it or opened it, RFC 3339.
    pub last_used_at: Option<String>,
}

/// Where a thread works.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlaceDocument {
    /// The name of its folder.
    pub folder: String,
    /// The folder of the repository.
    pub repository: Option<String>,
    /// The branch at its start.
    pub branch: Option<String>,
    /// The host and the path of the repository from which its own was cloned.
    pub remote: Option<String>,
}

/// The client that started a thread, or spoke in it last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadClientDocument {
    pub name: String,
    pub version: Option<String>,
    /// The terminal of its process, such as `pts/3`.
    pub terminal: Option<String>,
    pub pid: Option<u32>,
}

impl SessionDocument {
    /// The name of the client of a session that has one; none for a hub.
    pub fn only_client(&self) -> Option<&str> {
        self.client.name.as_deref().filter(|_| self.hub.is_none())
    }

    /// The threads that a client of the hub has open.
    pub fn held(&self) -> BTreeSet<&String> {
        let connections = self.hub.iter().flat_map(|hub| &hub.connections);
        connections.flat_map(|connection| &connection.threads).collect()
    }

    /// The threads of persons that a client has open, or in which something happens.
    fn threads_of_persons(&self) -> Vec<&ThreadDocument> {
        let held = self.held();
        let is_meant = |thread: &&ThreadDocument| thread.identity.kind.is_user() && is_open(thread, &held);
        self.threads.iter().filter(is_meant).collect()
    }

    /// The threads that have a row of their own in lists: none of a session with a single thread and without a hub.
    pub fn listed_threads(&self) -> Vec<ListedThread<'_>> {
        let threads = self.user_threads();
        if self.hub.is_some() || threads.len() > 1 { threads } else { Vec::new() }
    }

    /// The threads of persons, those that wait for one first, then those that were used last: the open ones of a hub, and all of this run
    /// in another session.
    pub fn user_threads(&self) -> Vec<ListedThread<'_>> {
        let mut threads = match &self.hub {
            Some(_) => self.threads_of_persons(),
            None => self.threads.iter().filter(|thread| thread.identity.kind.is_user()).collect(),
        };
        threads.sort_by_key(|thread| (thread.pending == 0, Reverse(&thread.identity.last_used_at)));
        ListedThread::all(&threads)
    }
}

pub fn is_open(thread: &ThreadDocument, held: &BTreeSet<&String>) -> bool {
    held.contains(&thread.thread_id) || thread.runs()
}

/// A kind that may be `null`.
fn kind_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ThreadKind, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Settings that only a newer relay has count as left out.
fn known_settings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ContextSettings>, D::Error> {
    let settings: Value = Deserialize::deserialize(deserializer)?;
    Ok(serde_json::from_value(settings).ok())
}

impl ThreadIdentityDocument {
    /// Where it is and whose: `proj (codex-tui)`; `None` if its folder is not known.
    pub fn folder_and_client(&self) -> Option<String> {
        self.named(|client| vec![&client.name])
    }

    /// The same with the client's terminal: `proj (codex-tui, pts/3)`.
    pub fn whereabouts(&self) -> Option<String> {
        self.named(|client| [Some(&client.name), client.terminal.as_ref()].into_iter().flatten().collect())
    }

    fn named<'a>(&'a self, parts: impl FnOnce(&'a ThreadClientDocument) -> Vec<&'a String>) -> Option<String> {
        let folder = one_line(&self.place.as_ref()?.folder);
        let parts = self.client.as_ref().map(parts).unwrap_or_default();
        let client: Vec<String> = parts.iter().filter(|part| !part.is_empty()).map(|part| one_line(part)).collect();
        Some(match client.is_empty() {
            true => folder,
            false => format!("{folder} ({})", client.join(", ")),
        })
    }

    /// The same with its title: `proj (codex-tui, pts/3): "Fix the build"`.
    pub fn in_words(&self) -> Option<String> {
        let whereabouts = self.whereabouts()?;
        Some(match &self.title {
            Some(title) => format!("{whereabouts}: \"{}\"", one_line(title)),
            None => whereabouts,
        })
    }

    /// The document of a thread, with only what is on record: the repository is not known.
    pub fn recorded(identity: ThreadIdentity) -> ThreadIdentityDocument {
        let ThreadIdentity { description, client, last_used_us } = identity;
        let name = |cwd: &str| Path::new(cwd).file_name().map(|name| name.to_string_lossy().into_owned());
        let (branch, remote) = (description.branch, description.remote);
        let place = description.cwd.as_deref().map(|cwd| PlaceDocument {
            folder: name(cwd).unwrap_or_else(|| cwd.to_owned()),
            repository: None,
            branch,
            remote,
        });
        let client = client.map(|ThreadClient { name, version, terminal, pid }| ThreadClientDocument {
            name,
            version,
            terminal,
            pid,
        });
        ThreadIdentityDocument {
            kind: description.kind,
            title: description.title,
            cwd: description.cwd,
            place,
            client,
            model: description.model,
            parent: description.parent,
            forked_from: description.forked_from,
            refuses_input: description.refuses_input,
            started_at: description.started_at_s.map(|at| rfc3339_millis(at.saturating_mul(1_000_000))),
            last_used_at: (last_used_us > 0).then(|| rfc3339_millis(last_used_us)),
        }
    }
}

/// The server process; members are `None` until known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildDocument {
    pub pid: Option<u32>,
    /// From the server's answer to `initialize`.
    pub codex_version: Option<String>,
}

/// The client's identity from its `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientDocument {
    /// `clientInfo.name`
    pub name: Option<String>,
    /// `clientInfo.version`
    pub version: Option<String>,
}

/// The server of a hub, and the clients connected to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubDocument {
    pub server: ServerDocument,
    /// The sockets for clients; hubs of older versions omit them.
    #[serde(default)]
    pub sockets: Vec<SocketDocument>,
    pub connections: Vec<ConnectionDocument>,
    /// The threads whose commands get variables of a client's process; hubs of older versions omit them.
    #[serde(default)]
    pub environments: Vec<EnvironmentDocument>,
}

/// The server process of a hub, which outlives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerDocument {
    pub pid: u32,
    /// As `codex --version` printed it.
    pub version: Option<String>,
    /// The path at which the server listens for the hub.
    pub socket: String,
    /// RFC 3339.
    pub started_at: String,
    /// An earlier hub has started it.
    pub adopted: bool,
    /// It finishes its turns, and refuses new ones.
    #[serde(default, rename = "draining")]
    pub is_draining: bool,
}

/// A socket for the clients of a hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketDocument {
    pub path: String,
    /// Why the hub does not listen there.
    pub fault: Option<String>,
}

/// A client of a hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionDocument {
    /// The number of the connection in this run, as in the journal.
    pub conn: Conn,
    pub client: ClientDocument,
    pub transport: Transport,
    /// RFC 3339.
    pub since: String,
    /// The threads that it has subscribed to.
    pub threads: Vec<String>,
    /// How many bytes the client has not read yet.
    pub waiting_bytes: u64,
    /// The client's process; `null` if the kernel does not tell, and hubs of older versions omit it.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The terminal of that process, such as `pts/3`.
    #[serde(default)]
    pub terminal: Option<String>,
}

/// Whose variables the commands of a thread get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentDocument {
    pub thread_id: String,
    pub client: ClientDocument,
    /// The terminal of the client that has opened the thread.
    pub terminal: Option<String>,
    /// The names of the variables.
    pub variables: Vec<String>,
}

impl EnvironmentDocument {
    /// The variables, and whose they are.
    pub fn in_words(&self) -> String {
        let client = self.client.name.as_deref().unwrap_or("a client");
        let place = self.terminal.as_ref().map(|terminal| format!(" ({terminal})")).unwrap_or_default();
        format!("{} of {client}{place}", self.variables.join(", "))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalDocument {
    /// Total size of the segments.
    pub bytes: u64,
    /// Number of gaps in this run: stretches of lines that could not be written.
    pub gaps: Option<u64>,
}

/// Differences between the relay's settings and the config file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigDocument {
    /// When the relay last loaded the file, RFC 3339.
    pub loaded_at: Option<String>,
    /// Changed settings that need a restart of the relay.
    pub restart_needed: Vec<String>,
    /// Why the current file is not applied.
    pub error: Option<String>,
    /// The context settings that the relay applies; relays of older versions omit them.
    #[serde(deserialize_with = "known_settings", skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextSettings>,
}

/// A context engine: its state now, and its calls in this run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextEngineDocument {
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
pub struct CallCount {
    pub method: String,
    pub outcome: String,
    pub count: u64,
    /// Total duration in milliseconds.
    pub ms: u64,
}

/// How far the index is behind the journal; the default is that there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDocument {
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
pub struct PrunedDocument {
    pub events: u64,
    pub tool_events: u64,
    pub turn_events: u64,
    /// Total duration in milliseconds.
    pub took_ms: u64,
}

/// A warning of codex about its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigWarningDocument {
    pub what: String,
    /// The file, if `what` does not name it.
    pub path: Option<String>,
    /// Codex cannot use its configuration, and starts no thread.
    pub is_broken: bool,
    /// When codex said it first, RFC 3339.
    pub since: String,
}

impl ConfigWarningDocument {
    /// The lines of the warning, and the file.
    pub fn in_words(&self) -> String {
        match &self.path {
            Some(path) => format!("{} ({path})", self.what),
            None => self.what.clone(),
        }
    }
}

/// A fault of codex-shim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The message as printed on stderr.
    pub what: String,
    /// When it first occurred, RFC 3339.
    pub since: String,
}

/// Counters of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
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
