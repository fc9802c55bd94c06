//! Events of our own.

use serde::{Deserialize, Serialize};

use super::peer::{RefusedPeer, Transport};
use crate::wire::Conn;

/// A recorded event of our own: `event` is the name, `data` the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum Note {
    GenerationStarted {
        pid: u32,
        /// A hub has taken over a server that runs since an earlier generation.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        adopted: bool,
        /// The server has several connections: that of the hub itself, and one for each client.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        hub: bool,
    },
    GenerationEnded {
        /// `None` if a signal ended the child.
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
    /// The server named its version in its response to `initialize`.
    CodexVersion {
        /// The version, such as `0.169.0`, if readable.
        version: Option<String>,
        /// The full user agent.
        user_agent: String,
    },
    /// A client of a hub wrote its first line.
    ConnOpen {
        conn: Conn,
        /// The client's name for itself.
        name: Option<String>,
        version: Option<String>,
        transport: Transport,
        pid: Option<u32>,
        /// The terminal of that process, such as `pts/3`.
        #[serde(skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
    },
    /// A client of a hub, or its connection to the server, is gone.
    ConnClose { conn: Conn, name: Option<String>, version: Option<String> },
    /// A client attached and completed `initialize`.
    ClientAttached { name: Option<String> },
    /// The attached client disconnected.
    ClientLeft { name: Option<String> },
    /// The server accepted a turn of an API caller, and its thread rests again without a turn.
    TurnNotStarted { thread_id: String, turn_id: String, status: String, error: Option<String> },
    /// The server asked for a decision. The request line follows in the record.
    RequestOpened {
        request_id: String,
        request_type: &'static str,
        /// The client is not asked: `hold`.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        held: bool,
        /// An earlier hub has stored the answer, and may have recorded the end.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// The hub has read its ledger, and a request that it has opened before has another name there.
    RequestRenamed { request_id: String, before: String },
    /// The ledger has stored a request.
    RequestCommitted { request_id: String },
    /// A request ended.
    RequestResolved {
        request_id: String,
        status: &'static str,
        source: &'static str,
        /// The decision as one word, if it can be expressed as one.
        decision: Option<String>,
        /// Why there was no answer.
        error_code: Option<&'static str>,
        /// An earlier hub has stored this end, and may have recorded it.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// A rule of the user decided on a request.
    RuleApplied {
        request_id: String,
        rule: String,
        action: &'static str,
        /// The file of the program that the rule accepted.
        #[serde(skip_serializing_if = "Option::is_none")]
        program: Option<String>,
    },
    /// A rule of the user names the command of a request, and did not decide on it.
    RuleRefused { request_id: String, rule: String, reason: String },
    /// Something that decides for the user, or a program of the user, lies where a model may write.
    InReach {
        /// `config.toml`, `home`, a setting that names a program, or a fragment.
        what: String,
        reason: String,
    },
    /// The server reported other limits of the account. A window is absent until it is reported.
    RateLimits { primary: Option<RateLimit>, secondary: Option<RateLimit> },
    /// A process that is confined, as a command of the model is, has called at one of our sockets. It was refused.
    SandboxedPeer {
        #[serde(flatten)]
        peer: RefusedPeer,
        /// How many were refused since the last such event, this one included.
        count: u64,
    },
    /// The index caught up with the journal after an outage.
    EventPersistRecovered {
        /// Always `persistence_recovered`.
        reason: &'static str,
    },
    /// The server accepted the user's terminal commands.
    ContextDelivered {
        thread_id: String,
        /// The turn, if known by then.
        turn_id: Option<String>,
        carrier: &'static str,
        /// Number of commands, including those omitted for lack of room.
        commands: u64,
        /// Length of the text that the model saw.
        bytes: u64,
    },
    /// The server accepted a turn with a projection of the context engine.
    ContextProjected {
        thread_id: String,
        /// The turn, if the server named it.
        turn_id: Option<String>,
        /// Length from marker to marker.
        bytes: u64,
        /// The epoch of a projection that is shown only once.
        epoch: Option<String>,
    },
    /// The server accepted or rejected fragments.
    #[serde(rename = "fragments_told")]
    FragmentsSent {
        thread_id: String,
        /// Names of the fragments.
        fragments: Vec<String>,
        /// Total length of the fragments.
        bytes: u64,
        carrier: &'static str,
        /// `delivered` or `refused`.
        outcome: &'static str,
    },
    /// A fragment could not be read; its last state stays in use.
    FragmentFailed { name: String, reason: String },
    /// A context engine started and identified itself.
    ContextEngineStarted {
        pid: u32,
        id: String,
        /// The display name.
        name: String,
        version: Option<String>,
        /// The methods it supports.
        methods: Vec<String>,
        #[serde(rename = "ownsCompaction")]
        owns_compaction: bool,
    },
    /// A context engine ended or failed to start.
    ContextEngineEnded {
        reason: String,
        /// Milliseconds until the next start.
        restart_in_ms: u64,
    },
    /// A call to the context engine, made or skipped.
    ContextEngineCall {
        method: &'static str,
        thread_id: Option<String>,
        /// Duration in milliseconds.
        ms: u64,
        request_bytes: u64,
        response_bytes: u64,
        /// `ok`, `error`, `timeout`, `invalid`, `not_running`, `not_reading`, `ended`, `no_history` or `line_too_long`.
        outcome: &'static str,
    },
    /// A context engine compacted a thread, or failed to.
    ContextEngineCompacted {
        thread_id: String,
        /// The call succeeded.
        ok: bool,
        /// The engine compacted the thread.
        compacted: bool,
        /// Why it did not.
        reason: Option<String>,
        /// Always true when the engine was called.
        #[serde(rename = "ownsCompaction")]
        owns_compaction: bool,
    },
    /// Codex compacted a thread, or failed to.
    NativeCompaction {
        thread_id: String,
        /// The turn of the compaction.
        turn_id: Option<String>,
        /// Always `codex-app-server`.
        backend: &'static str,
        /// Whether a context engine owns compaction.
        #[serde(rename = "ownsCompaction")]
        owns_compaction: bool,
        /// `client` if the client requested it, `codex` if codex started it.
        trigger: &'static str,
        /// `completed` or `failed`.
        outcome: &'static str,
    },
}

/// How much of a window is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    pub used_percent: u64,
    pub window_minutes: Option<u64>,
    /// Seconds since the Unix epoch.
    pub resets_at: Option<u64>,
}
