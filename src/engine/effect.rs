//! What a relay can be told to do.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::assembly::consultation::Consultation;
use super::ledger::LedgerEntry;
use super::requests::answer::InvalidAnswer;
use super::shutdown::{Exit, Signal};
use super::token::{ApiCallId, Token};
use super::version::ClientName;
use crate::protocol::RequestType;
use crate::wire::{LineEnd, Side};

/// Everything that a relay can be told to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Put the line at hand on record.
    Record(Form),
    /// Pass the line at hand, or the piece of one, on as it was read. A line that is to be withheld has no such effect.
    Forward,
    /// Pass this on in the place of the line at hand, and put it on record behind that.
    Replace(OwnLine),
    /// Send a line of ours, ahead of the line at hand, and put it on record.
    Send(OwnLine),
    /// Put on record something that we did or learned ourselves.
    Note(Note),
    /// Have this kept in the ledger. The relay does not wait for it.
    Keep(LedgerEntry),
    /// Have this kept in the ledger, and tell whether it is; where it is not, it is tried again, ahead of all that comes
    /// later, and not told of again.
    KeepFirst(Token, LedgerEntry),
    /// Have this kept in the ledger or not at all, and tell which.
    Commit(Token, LedgerEntry),
    /// Let nothing more go on in the direction of the line at hand until this is released.
    Hold(Token),
    /// Let go on what was held.
    Release(Token),
    /// Tell when all that was let go on so far in the direction of the line at hand has been written.
    Mark(Token),
    /// Ask the context engine, or tell it.
    Consult(Box<Consultation>),
    /// Find out what fragments say now in this folder, else in the relay's own.
    RunFragments(Token, Option<String>),
    /// Say so at once, before anything else is read, so that lines that have waited go on.
    ReleaseHeld(Token),
    /// Pass lines of the client's on that have waited, each as if it had been read now.
    PassHeld(Vec<LateLine>),
    /// Send the server a line of ours between two lines, and put it on record.
    Inject(Injection),
    /// Send the client a line of ours between two lines, and put it on record.
    Answer(OwnLine),
    /// Pass a line of the server's on that was withheld, as it was written; it is on record already.
    PassLate(Vec<u8>),
    /// Tell somebody at the side.
    Reply(ApiCallId, ApiReply),
    /// Run what the user has set for a request that waits.
    NotifyPending(String),
    /// Run what the user has set for when no turn runs any more, with the outcome of the last one, as JSON.
    NotifyIdle(String),
    /// Tell the user something.
    Warn(Warning),
    /// Tell whoever asks who the client is. The record has its `initialize` anyway.
    Introduce(Box<ClientName>),
    /// Close the child's stdin.
    CloseServerInput,
    /// Close our stdout.
    CloseClientOutput,
    /// Send the child a signal.
    SignalServer(Signal),
    /// Kill the child.
    KillServer,
    /// Take the server's side as closed once it has been silent for `quiet_max`, or once the client has taken nothing
    /// for `stall_max` of what waits for it.
    DrainServer {
        /// How long a silence counts as the end.
        quiet_max: Duration,
        /// How long the client may take nothing; `None` is as long as it likes.
        stall_max: Option<Duration>,
    },
    /// End as the child did.
    Finish(Exit),
}

/// A line that we made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnLine {
    /// Who it is for.
    pub to: Side,
    /// How it is put on record.
    pub form: Form,
    /// Its bytes, without a `\n`.
    pub bytes: Vec<u8>,
}

/// A line of the client's that has waited, and what is done with it.
#[derive(Debug, Clone, PartialEq)]
pub struct LateLine {
    /// Its bytes, without a `\n`.
    pub bytes: Vec<u8>,
    /// How it ended.
    pub end: LineEnd,
    /// What is done, with it as the line at hand.
    pub effects: Vec<Effect>,
}

/// Lines of ours to the server that stand by themselves, and go out in one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    /// The lines.
    pub lines: Vec<OwnLine>,
    /// What is told once they have been written.
    pub mark: Option<Token>,
}

/// What somebody at the side is told.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiReply {
    /// The answer is kept, and on its way.
    Kept,
    /// The answer could not be kept, so it was not sent.
    NotKept,
    /// It is done.
    Done,
    /// The server is the client's to start and to end.
    NotServed,
    /// The request is not open, or was answered by somebody else a moment ago.
    NotOpen,
    /// The answer is none.
    Invalid(InvalidAnswer),
    /// The server has not been initialized, or has ended.
    NotReady,
    /// There is no such thread, or no thread at all.
    ThreadNotFound,
    /// No turn runs in the thread.
    NoActiveTurn,
    /// A request waits in the thread.
    Gated {
        /// Which.
        request_id: String,
        /// What it asks for.
        request_type: RequestType,
        /// Microseconds since the Unix epoch.
        requested_at_us: u64,
    },
    /// A turn was started, or goes on with what was said.
    Turn {
        /// The thread.
        thread_id: String,
        /// The turn.
        turn_id: String,
        /// It ran already.
        steered: bool,
    },
    /// A client may attach itself: its socket is waited for.
    Admitted {
        /// By which name its socket is known when it comes: that of who asked.
        admission: ApiCallId,
    },
    /// A client is there already.
    ClientAttached {
        /// What it calls itself, where it has said so.
        name: Option<String>,
    },
    /// The server's answer, as JSON: `{"result":…}` or `{"error":…}`.
    Answered(String),
}

/// What the user is told, once a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// The server does not take context by a call of our own; another way is taken.
    InjectRefusedFallsBack,
    /// The server does not take context by a call of our own, and no other way is allowed.
    InjectRefusedWaits,
    /// The settings leave no room for any context.
    ContextDoesNotFit,
    /// The server takes no fragments by a call of our own.
    FragmentsRefused,
    /// The server takes no reason of a decline, neither in its turn nor ahead of the next.
    ReasonNotSent,
    /// A line of this side names a method that carries credentials and can be read in more than one way: it is not recorded,
    /// and neither are the answers to its ids.
    AmbiguousSecret(Side),
    /// Any answer to this side may carry credentials: the relay stops recording answers to it.
    AnswersNotRecorded(Side),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write_about = |f: &mut fmt::Formatter<'_>, side: Side, before: &str, after: &str| {
            write!(f, "{before} the {} {after}", side.name())
        };
        f.write_str(match self {
            Warning::AmbiguousSecret(side) => {
                let after = "names a method that carries credentials, but is a batch, has a label or repeats a member: that \
                             line is not recorded, and neither are answers to the ids in it";
                return write_about(f, *side, "a line from", after);
            }
            Warning::AnswersNotRecorded(side) => {
                let after = "is recorded any more in this run: a line that names a method that carries credentials has ids \
                             that cannot be read, or too many requests of that kind are open";
                return write_about(f, *side, "no answer to", after);
            }
            Warning::InjectRefusedFallsBack => {
                "this codex does not take `thread/inject_items`: context goes in front of the user's words from now on"
            }
            Warning::ContextDoesNotFit => {
                "`context_bytes_max` or `context_commands_max` leaves no room for a single command: context waits"
            }
            Warning::FragmentsRefused => {
                "this codex does not take `thread/inject_items`: fragments of the developer go with the next thread that is \
                 started or resumed, others not at all"
            }
            Warning::ReasonNotSent => {
                "this codex does not take `thread/inject_items`: the model was not told why something was declined"
            }
            Warning::InjectRefusedWaits => {
                "this codex does not take `thread/inject_items`: context waits; `carrier = \"auto\"` would put it in front \
                 of the user's words"
            }
        })
    }
}

/// How a line is put on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// As it was written: the line is one JSON value.
    Verbatim,
    /// As a JSON string: the line is UTF-8.
    Text,
    /// As base64: the line is not UTF-8.
    Base64,
    /// As it was written or as a JSON string, with the values overwritten that are credentials.
    Masked(Box<MaskedLine>),
    /// Not at all, only that it was there.
    Omitted(Box<Omitted>),
}

/// A line with its credentials overwritten; it is as long as the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedLine {
    /// Its text.
    pub text: String,
    /// It can stand in the record as it is.
    pub is_verbatim: bool,
}

/// What is on record of a line that is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omitted {
    /// Why.
    pub reason: OmittedReason,
    /// Its length in bytes, without the `\n`.
    pub line_bytes: u64,
    /// The method it named, where one could be read.
    pub method: Option<String>,
    /// Its id as raw JSON, where one could be read.
    pub id: Option<String>,
}

/// Why a line is left out of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OmittedReason {
    /// It carries a credential.
    Secret,
    /// It is over [`crate::wire::LINE_BYTES_MAX`].
    Size,
}

/// What we did or learned ourselves, as it goes on record: `event` is the name, `data` the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum Note {
    /// A child was started.
    GenerationStarted {
        /// Its process id.
        pid: u32,
    },
    /// The child has ended.
    GenerationEnded {
        /// Its exit status, unless a signal ended it.
        exit_code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// The server named its version when it answered `initialize`.
    CodexVersion {
        /// The version, such as `0.169.0`, where one could be read.
        version: Option<String>,
        /// The text that it stood in.
        user_agent: String,
    },
    /// A client that has attached itself is the client from here on; it was answered, and has named itself.
    ClientAttached {
        /// What it calls itself.
        name: Option<String>,
    },
    /// It has left.
    ClientLeft {
        /// What it called itself.
        name: Option<String>,
    },
    /// A human is asked, by the line of the server's that is on record behind this.
    RequestOpened {
        /// What the request is called.
        request_id: String,
        /// What it asks for.
        request_type: &'static str,
    },
    /// A request is kept in the ledger.
    RequestCommitted {
        /// Which.
        request_id: String,
    },
    /// A request has come to an end.
    RequestResolved {
        /// Which.
        request_id: String,
        /// What it is now.
        status: &'static str,
        /// Where its end came from.
        source: &'static str,
        /// What was decided, in a word, where that can be said.
        decision: Option<String>,
        /// Why there was no answer.
        error_code: Option<&'static str>,
    },
    /// What is recorded is all indexed again, after a time in which it could not be.
    EventPersistRecovered {
        /// Always `persistence_recovered`.
        reason: &'static str,
    },
    /// The server has taken what the user did in a terminal.
    ContextDelivered {
        /// The thread.
        thread_id: String,
        /// Its turn, where that is known by then.
        turn_id: Option<String>,
        /// How it was sent.
        carrier: &'static str,
        /// How many commands it told of, those that were left out for want of room included.
        commands: u64,
        /// How long it was, as the model saw it.
        bytes: u64,
    },
    /// The server has taken a turn with what a context engine has assembled in front of it.
    ContextProjected {
        /// The thread.
        thread_id: String,
        /// Its turn, where that was named.
        turn_id: Option<String>,
        /// How long it was, from marker to marker.
        bytes: u64,
        /// The epoch that it is of, where it is shown once.
        epoch: Option<String>,
    },
    /// A thread was told fragments, or was not.
    FragmentsSent {
        /// The thread.
        thread_id: String,
        /// Which, by name.
        fragments: Vec<String>,
        /// How long they were together.
        bytes: u64,
        /// How they were sent.
        carrier: &'static str,
        /// `delivered` or `refused`.
        outcome: &'static str,
    },
    /// What a fragment says now could not be found out; it says what it said last.
    FragmentFailed {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A context engine was started, and has said who it is.
    ContextEngineStarted {
        /// Its process id.
        pid: u32,
        /// What it calls itself.
        id: String,
        /// The same for people.
        name: String,
        /// Its version.
        version: Option<String>,
        /// What it can be asked.
        methods: Vec<String>,
        /// Compaction is its affair.
        #[serde(rename = "ownsCompaction")]
        owns_compaction: bool,
    },
    /// A context engine has ended, or could not be started.
    ContextEngineEnded {
        /// Why.
        reason: String,
        /// When it is started again, in milliseconds.
        restart_in_ms: u64,
    },
    /// A context engine was asked or told something, or was to be.
    ContextEngineCall {
        /// What.
        method: &'static str,
        /// About which thread.
        thread_id: Option<String>,
        /// How long that took, in milliseconds.
        ms: u64,
        /// How much it was told.
        request_bytes: u64,
        /// How much it has answered.
        response_bytes: u64,
        /// `ok`, `error`, `timeout`, `invalid`, `not_running`, `not_reading`, `ended`, `no_history` or `line_too_long`.
        outcome: &'static str,
    },
    /// A context engine has compacted a thread, or has tried.
    ContextEngineCompacted {
        /// The thread.
        thread_id: String,
        /// It could.
        ok: bool,
        /// It did.
        compacted: bool,
        /// Why not.
        reason: Option<String>,
        /// Always, where it was asked.
        #[serde(rename = "ownsCompaction")]
        owns_compaction: bool,
    },
    /// Codex has compacted a thread, or has tried.
    NativeCompaction {
        /// The thread.
        thread_id: String,
        /// The turn in which it did.
        turn_id: Option<String>,
        /// Always `codex-app-server`.
        backend: &'static str,
        /// Whether a context engine owns compaction.
        #[serde(rename = "ownsCompaction")]
        owns_compaction: bool,
        /// `client` where the client has asked for it, `codex` where codex began it.
        trigger: &'static str,
        /// `completed` or `failed`.
        outcome: &'static str,
    },
}
