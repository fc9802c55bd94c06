//! What is asked of a session, and what comes back while it is looked at.

use std::sync::Arc;

use crate::api::{Request, SessionDocument};
use crate::engine::OverruleFor;
use crate::history::KnownFacts;
use crate::sessions::ask::Ask;
use crate::sessions::entry::{Entry, Key, Matcher};
use crate::sessions::timeline::{SessionEvent, Timeline};

/// How a session can be reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Link {
    /// The relay was not queried yet.
    New,
    /// The relay answers.
    Up(Box<Live>),
    /// A relay is running but does not answer; the reason.
    Silent(String),
    /// No relay is running.
    Stopped,
}

/// A session whose relay answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    pub document: SessionDocument,
    /// Start of the current state, in microseconds since the Unix epoch.
    pub since_us: Option<u64>,
}

/// What a session that is looked at tells.
#[derive(Debug, Clone)]
pub enum News {
    Placed(String),
    /// How it can be reached now.
    Linked(Link),
    /// Its pending requests, and the rows of requests that ended.
    Pending {
        /// The requests, oldest first.
        asks: Vec<Arc<Ask>>,
        /// Rows of requests that are not pending any more.
        ended: Vec<Request>,
    },
    /// The last entries of a long journal, shown until the rest is read.
    Glanced(u64, Box<Timeline>),
    /// The window at the end of the journal.
    Restored {
        epoch: u64,
        timeline: Box<Timeline>,
    },
    Events {
        epoch: u64,
        events: Vec<SessionEvent>,
    },
    /// The journal cannot be read.
    Unreadable(String),
    /// The first entries of the session.
    Start(Page),
    /// A page before the window.
    Older(Page),
    /// A page after the window.
    Newer(Page),
    Found(Sought),
    Opened(Option<Box<Entry>>),
    /// The result of an answer.
    Responded {
        request_id: String,
        /// The row and whose answer won, or the error.
        result: Result<(Box<Request>, First), String>,
    },
    Said(Result<Sent, String>),
    /// The thread whose turn it was, if the relay says it.
    Interrupted(Result<Option<String>, String>),
    /// The facts of the session for filters.
    Facts(Box<KnownFacts>),
    Overruled {
        asked: Overruling,
        /// What happens next, or why nothing does.
        result: Result<String, NotOverruled>,
    },
}

/// Entries to read.
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    /// The first entries of the session.
    Start,
    /// The entries before one.
    Older(Key),
    /// The entries after one.
    Newer(Key),
    /// The next match.
    Find {
        matcher: Matcher,
        /// Where the search begins.
        from: Key,
        way: Way,
    },
    /// An entry in full.
    Open(Key),
}

/// Entries that were read again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// Whether there are no further entries in that direction.
    pub is_last: bool,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Sought {
    /// A match, and the entries around it.
    At(Key, Page),
    Nothing,
    /// Nothing among so many events next to the place where the search began. Those beyond them were not searched.
    NothingAmong(u64),
}

/// A direction in the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Towards the past.
    Back,
    /// Towards the present.
    Forward,
}

/// A message that the server has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Where it went, if the relay says it.
    pub thread_id: Option<String>,
    pub into: SentInto,
}

/// What a message became part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentInto {
    RunningTurn,
    NewTurn,
}

/// Whose answer won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Ours.
    We,
    /// Another one, which is the same as ours.
    Same,
    Other,
}

/// A denial of codex's own reviewer that the user is about to overrule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overruling {
    pub review_id: String,
    pub applies: OverruleFor,
}

/// Why a denial stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotOverruled {
    /// Its turn is over; the approval could wait for the next one.
    TurnOver,
    Other(String),
}
