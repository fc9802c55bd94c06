//! The engine's interface: inputs, besides lines, and the decisions and effects that answer them.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::LiveSettings;
use super::api_calls::Unready;
use super::assembly::{Assembled, Remembered};
use super::connections::{Peer, Transport};
use super::effect::Effect;
use super::ledger::{ContextChange, RequestSource};
use super::rate_limits::RateLimit;
use super::refused_peers::RefusedPeer;
use super::requests::RequestType;
use super::requests::answer::{GivenAnswer, InvalidAnswer};
use super::shutdown::{Exit, Signal};
use crate::wire::{Conn, Line, LineEnd, Side};

/// Input from a side.
#[derive(Debug, Clone, Copy)]
pub enum Incoming<'a> {
    Line(Line<'a>),
    /// A piece (not the last) of a line over [`crate::wire::LINE_BYTES_MAX`].
    Piece,
    /// The last piece of such a line.
    LastPiece {
        /// Length of the whole line in bytes, without the `\n`.
        line_bytes: u64,
    },
}

/// What happens to a line, or to a piece of one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Lines of ours, recorded and sent ahead of it.
    pub before: Vec<OwnLine>,
    /// How it is recorded; a piece is not.
    pub record: Option<Form>,
    /// Its direction waits here until the token is released.
    pub hold: Option<Token>,
    pub line: Passage,
    /// Report this token once it is written.
    pub mark: Option<Token>,
    /// Effects that follow it.
    pub then: Vec<Effect>,
}

/// Whether a line goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Passage {
    /// Unchanged.
    #[default]
    Forward,
    /// This goes on instead, and is recorded after it.
    Replace(OwnLine),
    Withhold,
}

impl Decision {
    pub(super) fn is_withheld(&self) -> bool {
        matches!(self.line, Passage::Withhold)
    }
}

/// A line that we wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnLine {
    pub to: Side,
    /// How to record the line.
    pub form: Form,
    /// Without the `\n`.
    pub bytes: Vec<u8>,
}

/// A client line that was held.
#[derive(Debug, Clone, PartialEq)]
pub struct LateLine {
    pub conn: Conn,
    /// Without the `\n`.
    pub bytes: Vec<u8>,
    pub end: LineEnd,
    pub decision: Decision,
}

/// Lines to the server that go out in one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    pub conn: Conn,
    pub lines: Vec<OwnLine>,
    /// Report this token once the lines are written.
    pub mark: Option<Token>,
}

/// Reply to an API caller.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiReply {
    /// The answer is stored and will be sent.
    Kept,
    /// The answer could not be stored, so it was not sent.
    NotKept,
    Done,
    /// The client owns the server, so only the client can start or stop it.
    NotServed,
    /// The request is not open, or somebody else has just answered it.
    NotOpen,
    /// The body is not a valid answer.
    Invalid(InvalidAnswer),
    /// The server cannot take the call, or has not answered it.
    NotReady(Unready),
    /// The thread is unknown, or there is no thread yet.
    ThreadNotFound,
    /// No turn is in progress in the thread.
    NoActiveTurn,
    /// A pending request blocks the thread.
    Gated {
        request_id: String,
        request_type: RequestType,
        /// Microseconds since the Unix epoch.
        requested_at_us: u64,
    },
    /// A turn started, or a running turn took the input.
    Turn {
        thread_id: String,
        turn_id: String,
        /// The turn was already running.
        steered: bool,
    },
    /// The server interrupts the running turn of this thread.
    Interrupted {
        thread_id: String,
    },
    /// A client may attach; its socket comes next.
    Admitted {
        /// The API call that identifies its socket.
        admission: ApiCallId,
    },
    /// Another client is attached.
    ClientAttached {
        /// The client's name for itself, if known.
        name: Option<String>,
    },
    /// The server's response, as JSON: `{"result":…}` or `{"error":…}`.
    Answered(String),
    /// The server accepted that a denial is overruled.
    Overruled {
        thread_id: String,
        /// The turn of the denial, if it was running.
        turn_id: Option<String>,
    },
    /// No review of this run with this id has denied anything.
    ReviewNotFound,
    /// The denial is overruled already.
    AlreadyOverruled,
    /// The turn of the denial is over.
    TurnOver {
        thread_id: String,
    },
}

/// A warning for the user, shown once a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// The server rejects injected context; the relay uses another carrier.
    InjectRefusedFallsBack,
    /// The server rejects injected context, and the settings allow no other carrier.
    InjectRefusedWaits,
    /// The settings leave no room for context.
    ContextDoesNotFit,
    /// The server rejects injected fragments.
    FragmentsRefused,
    /// The server rejects decline reasons, both during the turn and before the next.
    ReasonNotSent,
    /// The ledger of a hub could not be read for so long that requests which have ended since are not stored.
    RequestsNotStored,
    /// A line of this side names a method with credentials and can be parsed in more than one way, so neither it nor
    /// the responses to its ids are recorded.
    AmbiguousSecret(Side),
    /// Any response to this side may carry credentials, so the relay stops recording responses to it.
    AnswersNotRecorded(Side),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write_about = |f: &mut fmt::Formatter<'_>, side: Side, before: &str, after: &str| {
            write!(f, "{before} the {} {after}", side.name())
        };
        f.write_str(match self {
            Warning::AmbiguousSecret(side) => {
                let after = "names a method that carries credentials, but is a batch, has text before it or repeats a member: \
                             neither the line nor responses to its ids are recorded";
                return write_about(f, *side, "a line from", after);
            }
            Warning::AnswersNotRecorded(side) => {
                let after = "are not recorded for the rest of this run: a line that names a method with credentials has \
                             unreadable ids, or too many such requests are open";
                return write_about(f, *side, "responses to", after);
            }
            Warning::InjectRefusedFallsBack => {
                "this codex does not support `thread/inject_items`: context now goes in front of the user's words"
            }
            Warning::ContextDoesNotFit => {
                "`context_bytes_max` or `context_commands_max` leaves no room for a single command: raise it to send context"
            }
            Warning::FragmentsRefused => {
                "this codex does not support `thread/inject_items`: developer fragments are sent only when a thread starts \
                 or resumes, others not at all"
            }
            Warning::ReasonNotSent => {
                "this codex does not support `thread/inject_items`: the reason of a decline did not reach the model"
            }
            Warning::RequestsNotStored => {
                "the ledger cannot be read: the oldest requests of this run that have ended will not be in it; the journal has them"
            }
            Warning::InjectRefusedWaits => {
                "this codex does not support `thread/inject_items`: context stays queued; set `carrier = \"auto\"` to put it \
                 in front of the user's words"
            }
        })
    }
}

/// How a line is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// As written: the line is one JSON value.
    Verbatim,
    /// As a JSON string: the line is UTF-8.
    Text,
    /// As base64: the line is not UTF-8.
    Base64,
    /// As written or as a JSON string, with credentials masked.
    Masked(Box<MaskedLine>),
    /// Omitted; only its presence is recorded.
    Omitted(Box<Omitted>),
}

/// A line with masked credentials; the length is unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedLine {
    pub text: String,
    /// The text can be recorded as written.
    pub is_verbatim: bool,
}

/// The recorded facts of an omitted line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omitted {
    pub reason: OmittedReason,
    /// Length in bytes, without the `\n`.
    pub line_bytes: u64,
    /// The method, if readable.
    pub method: Option<String>,
    /// The id as raw JSON, if readable.
    pub id: Option<String>,
}

/// Why a line is omitted from the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OmittedReason {
    /// It carries a credential.
    Secret,
    /// The line exceeds [`crate::wire::LINE_BYTES_MAX`].
    Size,
}

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

/// Identifies something that the engine waits for.
pub type Token = u64;

/// Identifies an API call that waits for a reply.
pub type ApiCallId = u64;

/// The time of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the Unix epoch, for the record; the wall clock may jump.
    pub unix_us: u64,
    /// Monotonic time since the relay started, for deadlines.
    pub elapsed: Duration,
}

/// Everything that can happen to a relay, besides [`super::Incoming`] lines.
#[derive(Debug)]
pub enum Input {
    /// The server is running.
    ServerStarted {
        pid: u32,
        /// It was started by another hub.
        adopted: bool,
    },
    /// A side closed its stream, and its output has been forwarded or is lost.
    Closed {
        from: Side,
    },
    /// The client disconnected while some of its output was still queued.
    ClientDisconnected,
    /// Server output became blocked on the client (reading from the server stops), or unblocked.
    OutputWaits(bool),
    /// The attached client disconnected, or an admitted client never connected.
    Detached,
    ServerExited(Exit),
    /// A client of the hub connected, or, for [`Conn::OWN`], the hub itself.
    Connected {
        conn: Conn,
        peer: Peer,
    },
    /// A client of the hub or its connection to the server is gone.
    Disconnected {
        conn: Conn,
    },
    /// We received a signal.
    Signalled(Signal),
    /// The session directory is open for this run of the child.
    SessionOpened {
        /// 12 hex digits.
        generation: String,
    },
    /// A peer at one of our sockets was refused, because it is confined.
    PeerRefused(RefusedPeer),
    /// The buffer of the user's terminal commands changed.
    Context(ContextChange),
    Configured(Box<LiveSettings>),
    /// Context that earlier runs sent to threads.
    Remembered(Box<Remembered>),
    OwnsCompaction(bool),
    /// The context engine answered, or will not answer, for a hold.
    Consulted {
        token: Token,
        assembled: Option<Box<Assembled>>,
    },
    /// Current fragment states, in the order of the settings; an entry is `None` if it could not be read.
    FragmentsRead {
        token: Token,
        states: Vec<Option<String>>,
    },
    /// The path of a checked program, or why a rule may not accept it.
    ProgramChecked {
        token: Token,
        checked: Result<String, String>,
    },
    /// Release a hold; no line was read since [`super::Effect::ReleaseHeld`].
    ReleaseHeld(Token),
    /// Release all holds: their writer is gone.
    ReleaseAllHeld,
    /// An event outside the engine that goes on record.
    Noted(Box<Note>),
    /// A commit succeeded or failed.
    Committed {
        token: Token,
        /// Whether it succeeded.
        done: bool,
    },
    /// An answer of ours, with this mark, goes to the server of a hub over this connection.
    SentOver {
        mark: Token,
        conn: Conn,
    },
    /// Everything up to a mark has been written.
    Written(Token),
    /// The connection with this mark has ended before the mark was reached.
    NotWritten(Token),
    /// The answer before this mark was taken back; nothing of it has been written.
    Recalled(Token),
    /// An API call arrived.
    ApiRequest {
        api_call: ApiCallId,
        request: ApiRequest,
        /// Our lines can reach the server.
        server_listens: bool,
    },
    /// The index caught up with the journal again.
    IndexRecovered,
    /// A deadline passed.
    Tick,
}

/// When the model may act on an approval that overrules a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverruleFor {
    /// In the turn of the denial, which must be running.
    ThisTurn,
    /// In that turn, or in the next one of its thread.
    NextTurn,
}

/// The request of an API caller.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiRequest {
    /// Answer a request of the server.
    Respond {
        request_id: String,
        given: Box<GivenAnswer>,
        source: RequestSource,
        /// The name of the person or tool that answers.
        by: String,
    },
    /// Send input to the model.
    Input {
        text: String,
        /// `None` is the thread of the last turn.
        thread_id: Option<String>,
    },
    /// Interrupt a turn.
    Interrupt {
        /// `None` is the thread of the last turn.
        thread_id: Option<String>,
    },
    /// Overrule a denial of codex's own reviewer.
    Overrule {
        review_id: String,
        applies: OverruleFor,
        source: RequestSource,
        /// The name of the person or tool that overrules it.
        by: String,
    },
    /// Attach as the client of a server that the relay owns.
    Attach,
    /// Stop the server and keep it stopped.
    Stop,
    /// Start the server.
    Start,
    /// Call a method of the server.
    Rpc {
        method: String,
        /// The parameters, as JSON.
        params: Option<String>,
        /// The name of the person or tool that calls.
        by: String,
    },
}
