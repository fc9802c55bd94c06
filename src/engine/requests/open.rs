//! Open requests, and recently ended ones.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::OMITTED;
use super::answer::CheckedAnswer;
use crate::engine::credentials::Carrier;
use crate::engine::ledger::{GivenRow, RequestRow, RequestSource};
use crate::engine::secrets::{Verdict, asks_secret};
use crate::engine::token::ApiCallId;
use crate::protocol::RequestKind;
use crate::wire::{Message, RpcId};

/// Ended requests remembered, to recognize late answers.
const ENDED_MAX: usize = 4_096;

/// Unconfirmed answered rows of one request; the oldest is evicted first.
const ANSWERED_BEFORE_MAX: usize = 16;

/// Why a request ended, or was mentioned after its end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Why {
    /// The server sent `serverRequest/resolved`.
    Confirmed,
    /// Its item completed.
    ItemCompleted,
    /// Its turn ended.
    TurnOver,
    ServerExited,
}

/// An error code and its explanation.
pub(super) type ErrorText = (&'static str, &'static str);

/// The error of a request without a timely answer.
pub(super) const EXPIRED: ErrorText = ("request_expired", "nobody answered in time");

#[derive(Debug)]
pub(super) struct Request {
    pub(super) row: RequestRow,
    pub(super) kind: RequestKind,
    pub(super) params: Option<Box<RawValue>>,
    pub(super) hides: Hides,
    pub(super) expires_at: Option<Duration>,
    /// Set if the client has not received the request; holds its line until the row is stored.
    pub(super) withheld: Option<Withheld>,
    /// When the user's hook runs; `None` if it already ran.
    pub(super) notify_at: Option<Duration>,
    /// Earlier rows of the same request whose answers the server has not confirmed, oldest first.
    pub(super) answered_before: VecDeque<String>,
    pub(super) state: State,
}

/// The secret part of an answer, which goes to the server from memory and never to the record or the ledger.
#[derive(Debug, Clone)]
pub(super) enum Hides {
    Nothing,
    All,
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

    /// How much of a line with the answer may be recorded.
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

/// A request that the client has not received.
#[derive(Debug)]
pub(super) enum Withheld {
    /// Withheld unless its row cannot be stored: then only the client could answer.
    Until(Vec<u8>),
    /// Withheld permanently.
    Kept,
}

/// The state of an open request.
#[derive(Debug)]
pub(super) enum State {
    Pending,
    /// An API answer is being stored.
    Deciding(Box<Deciding>),
    /// An answer will be sent to the server.
    Answered,
    Sent,
    /// No timely answer; policy will answer.
    Expired,
}

/// An API answer that is being stored.
#[derive(Debug)]
pub(super) struct Deciding {
    pub(super) api_call: ApiCallId,
    pub(super) source: RequestSource,
    pub(super) answer: CheckedAnswer,
    /// A later answer of the client, sent if the first cannot be stored.
    pub(super) runner_up: Option<(Vec<u8>, GivenRow)>,
    /// Why the server no longer needs an answer, if so.
    pub(super) over: Option<Why>,
}

/// The purpose of a commit.
#[derive(Debug)]
pub(super) enum Commit {
    /// A new row; its request is forwarded whatever the result.
    Opens {
        request_id: String,
    },
    /// The client's answer, likewise.
    GoesOn {
        request_id: String,
    },
    Decides(RpcId),
    /// The expiry of a request.
    Expires(RpcId),
}

/// The path of a client's answer to a request that has ended. The ledger keeps the answer as lost in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LateAnswer {
    Withhold,
    /// The server may still wait: it asked twice and confirmed only once.
    Forward,
}

/// Ended requests by id.
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
    /// Whether a request line with the same id repeats this request, so that one answer serves both: the request has no
    /// answer yet, or the server will read the answer after this line.
    pub(super) fn is_same_as(&self, message: &Message<'_>) -> bool {
        match self.state {
            State::Pending | State::Deciding(_) | State::Expired => true,
            State::Answered => self.is_repeated_by(message),
            State::Sent => false,
        }
    }

    /// The rows before a request with this id and these parameters, including this one.
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

    /// Whether no answer has been given, or it is not yet stored.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self.state, State::Pending | State::Deciding(_) | State::Expired)
    }
}
