//! A request that is open, and those that have ended and are remembered.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::OMITTED;
use super::answer::CheckedAnswer;
use crate::engine::credentials::Carrier;
use crate::engine::ledger::{GivenRow, RequestRow, RequestSource};
use crate::engine::secrets::{Verdict, asks_secret};
use crate::engine::token::{ApiCallId, Token};
use crate::protocol::RequestKind;
use crate::wire::{Message, RpcId};

/// Requests that have ended and are remembered, so that a later answer is known for one.
const ENDED_MAX: usize = 4_096;

/// Answered rows of one request that wait for the server's word; of a server that asks more often the oldest are forgotten.
const ANSWERED_BEFORE_MAX: usize = 16;

/// Why a request is heard of again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Why {
    /// The server sent `serverRequest/resolved`.
    Confirmed,
    /// Its item is completed.
    ItemCompleted,
    /// Its turn is over.
    TurnOver,
    /// The server has ended.
    ServerExited,
}

/// A code and what it means.
pub(super) type ErrorText = (&'static str, &'static str);

/// Nobody has answered in time.
pub(super) const EXPIRED: ErrorText = ("request_expired", "nobody answered in time");

/// A request that is open.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) row: RequestRow,
    pub(super) kind: RequestKind,
    pub(super) params: Option<Box<RawValue>>,
    pub(super) hides: Hides,
    pub(super) expires_at: Option<Duration>,
    /// It is not shown to the client; its line, until it is kept.
    pub(super) withheld: Option<Withheld>,
    /// When the user's command is run for it, unless it was.
    pub(super) notify_at: Option<Duration>,
    /// Rows of the same request that were answered, and whose answers the server has not confirmed; the oldest first.
    pub(super) answered_before: VecDeque<String>,
    pub(super) state: State,
}

/// The secret part of an answer, which goes to the server from memory and never to the record or the ledger.
#[derive(Debug, Clone)]
pub(super) enum Hides {
    Nothing,
    All,
    /// Fields of a form.
    Fields(Carrier),
}

impl Hides {
    pub(super) fn of(kind: RequestKind, params: &str) -> Hides {
        match kind {
            RequestKind::UserInput if asks_secret(params) => Hides::All,
            RequestKind::Elicitation => Hides::Fields(Carrier::of_form(params)),
            RequestKind::UserInput
            | RequestKind::Command
            | RequestKind::FileChange
            | RequestKind::Permissions
            | RequestKind::OldCommand
            | RequestKind::OldPatch
            | RequestKind::Other => Hides::Nothing,
        }
    }

    /// How much of a line with the answer may stand in the record.
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Hides::Nothing => Verdict::Open,
            Hides::All => Verdict::Secret,
            Hides::Fields(carrier) => Verdict::Masked(carrier.clone()),
        }
    }

    /// The result for the ledger.
    pub(super) fn kept(&self, result: &Value) -> String {
        match self {
            Hides::Nothing => result.to_string(),
            Hides::All => OMITTED.to_owned(),
            Hides::Fields(carrier) => {
                let answer = serde_json::json!({ "result": result }).to_string();
                let masked = match carrier.masked(&answer) {
                    Ok(masked) => serde_json::from_str::<Value>(&masked.unwrap_or(answer)).ok(),
                    Err(_) => None,
                };
                masked.map_or(OMITTED.to_owned(), |answer| answer["result"].to_string())
            }
        }
    }
}

/// A request that the client is not shown.
#[derive(Debug)]
pub(super) enum Withheld {
    /// Unless it cannot be kept: then nobody else could answer it.
    Until(Vec<u8>),
    /// For good.
    Kept,
}

/// How far one has come.
#[derive(Debug)]
pub(super) enum State {
    /// Nobody has answered.
    Pending,
    /// An answer at the side is being kept.
    Deciding(Box<Deciding>),
    /// An answer is on its way to the server.
    Answered,
    /// An answer was written to the server.
    Sent,
    /// Nobody has answered in time; policy does.
    Expired,
}

/// An answer at the side that is being kept.
#[derive(Debug)]
pub(super) struct Deciding {
    pub(super) api_call: ApiCallId,
    pub(super) source: RequestSource,
    pub(super) answer: CheckedAnswer,
    /// The client has answered meanwhile; it is sent if the other one cannot be kept.
    pub(super) runner_up: Option<(Vec<u8>, GivenRow)>,
    /// The server does not want an answer any more, and why.
    pub(super) over: Option<Why>,
}

/// What a commit is about.
#[derive(Debug)]
pub(super) enum Commit {
    /// A row, whose request goes on whatever becomes of the commit.
    Opens { request_id: String },
    /// The client's answer to one, likewise.
    GoesOn { request_id: String },
    /// An answer at the side.
    Decides(RpcId),
    /// Its expiry.
    Expires(RpcId),
}

/// What is done with a line that asks or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum OnRequest {
    /// It goes on.
    Forward(Pass),
    /// It goes no further.
    Withhold,
}

/// How a line goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::engine) struct Pass {
    /// Once this was released.
    pub(in crate::engine) hold: Option<Token>,
    /// And this is told when it has been written.
    pub(in crate::engine) mark: Option<Token>,
}

impl OnRequest {
    /// It goes on at once.
    pub(in crate::engine) const AT_ONCE: OnRequest = OnRequest::Forward(Pass { hold: None, mark: None });
}

/// The path of a client's answer to a request that has ended. The ledger keeps the answer as lost in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LateAnswer {
    Withhold,
    /// The server may still wait: it asked twice, and said only once that it is done.
    Forward,
}

/// Requests that have ended, by their ids.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) names: HashMap<RpcId, (String, LateAnswer)>,
    pub(super) oldest_first: VecDeque<RpcId>,
}

impl Ended {
    pub(super) fn add(&mut self, id: RpcId, request_id: String, late_answer: LateAnswer) {
        if self.names.insert(id.clone(), (request_id, late_answer)).is_none() {
            self.oldest_first.push_back(id);
        }
        if self.oldest_first.len() > ENDED_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    pub(super) fn forget(&mut self, id: &RpcId) {
        if self.names.remove(id).is_some() {
            self.oldest_first.retain(|ended| ended != id);
        }
    }
}

impl Request {
    /// Whether a line with the same id repeats this request, so that one answer serves both: the request has no answer yet, or
    /// the server will read the answer after this line.
    pub(super) fn is_same_as(&self, message: &Message<'_>) -> bool {
        match self.state {
            State::Pending | State::Deciding(_) | State::Expired => true,
            State::Answered => self.is_repeated_by(message),
            State::Sent => false,
        }
    }

    /// The rows that a request with this id and these parameters follows, this one included.
    pub(super) fn followed_by(mut self, message: &Message<'_>) -> VecDeque<String> {
        if !matches!(self.state, State::Sent) || !self.is_repeated_by(message) {
            return VecDeque::new();
        }
        self.answered_before.push_back(self.row.request_id);
        if self.answered_before.len() > ANSWERED_BEFORE_MAX {
            self.answered_before.pop_front();
        }
        self.answered_before
    }

    fn is_repeated_by(&self, message: &Message<'_>) -> bool {
        message.method.as_deref() == Some(&*self.row.method)
            && message.params.map(RawValue::get) == self.row.payload.as_deref()
    }

    /// Whether it waits for an answer that nobody has given yet, or that is not kept yet.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.state, State::Pending | State::Deciding(_) | State::Expired)
    }
}
