//! A request as the referee sees it: its progress, and the end it must have.

use std::time::Duration;

use codex_shim::testing::engine::{ApiCallId, RequestSource, RequestStatus, Token};
use serde_json::Value;

use super::rows::Rows;
use super::rules::{Does, Ruled, Ruling};

/// Whether the client sees a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Shown {
    Yes,
    /// As soon as the request turns out to be unstorable, or a rule has given up.
    NotYet,
    Never,
}

#[derive(Debug)]
pub enum State {
    Pending,
    /// The ledger is storing an answer of an API caller or a rule.
    Deciding(Box<Deciding>),
    Answered,
    /// Policy answers.
    Expired,
    /// Policy's answer is on its way, and not written yet.
    PolicySpoke,
}

/// Who has given an answer that is stored before it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider {
    Caller(ApiCallId),
    Rule(Does),
}

impl Decider {
    pub fn source(self) -> RequestSource {
        match self {
            Decider::Caller(_) => RequestSource::Api,
            Decider::Rule(_) => RequestSource::Policy,
        }
    }

    pub fn caller(self) -> Option<ApiCallId> {
        match self {
            Decider::Caller(api_call) => Some(api_call),
            Decider::Rule(_) => None,
        }
    }
}

#[derive(Debug)]
pub struct Deciding {
    pub by: Decider,
    pub payload: String,
    /// The client's answer and its line.
    pub runner_up: Option<(Vec<u8>, String)>,
    /// When the client's answer has waited long enough.
    pub due: Option<Duration>,
    pub over: Option<Over>,
}

impl Deciding {
    pub fn new(by: Decider, payload: String) -> Deciding {
        Deciding { by, payload, runner_up: None, due: None, over: None }
    }
}

/// Why a request is over without an answer.
#[derive(Debug, Clone, Copy)]
pub enum Over {
    /// By `serverRequest/resolved`.
    Resolved,
    /// With its turn.
    Withdrawn,
    ServerGone,
}

/// An answer that goes to the server.
#[derive(Debug)]
pub struct Sent {
    pub payload: String,
    /// Nobody has answered in time.
    pub is_expiry: bool,
    /// The answer may be sent before it is stored.
    pub is_excused: bool,
}

/// An answer to a withdrawn request, on its way to the server.
#[derive(Debug)]
pub struct PassedLate {
    /// Its number among all of the run.
    pub number: u64,
    pub mark: Option<Token>,
    /// A part of it was written.
    pub is_begun: bool,
}

/// How a request ends.
#[derive(Debug, PartialEq, Eq)]
pub struct End {
    pub status: RequestStatus,
    pub source: RequestSource,
    pub payload: Option<String>,
}

#[derive(Debug)]
pub struct Asked {
    /// Its name in the ledger.
    pub name: String,
    /// Its place in the order of arrival.
    pub arrival: usize,
    pub turn: Value,
    pub line: Vec<u8>,
    pub expires_at: Option<Duration>,
    pub shown: Shown,
    /// The client is not asked at all.
    pub is_held: bool,
    pub ruling: Ruling,
    pub rule: Option<Ruled>,
    pub state: State,
    /// As far as is known, the server still wants an answer.
    pub is_open: bool,
    /// The request may be shown before it is stored.
    pub is_excused: bool,
    pub sent: Option<Sent>,
    /// The API caller of the answer that holds.
    pub told: Option<ApiCallId>,
    /// A part of the answer was written to the server.
    pub is_begun: bool,
    /// The answer was written to the server.
    pub is_written: bool,
    pub has_reached_server: bool,
    /// Answers to earlier rows of the same request that the server has not confirmed.
    pub unconfirmed: usize,
    /// Withdrawn, but the server may still wait for an answer.
    pub may_wait: bool,
    /// Answers that go to the server because it may still wait.
    pub passed_late: Vec<PassedLate>,
    /// A side has received the request, or its answer, before it was stored.
    pub was_late: bool,
    /// Earlier answers that the ledger was slow to store: after a kill, the row may have one of them.
    pub overtaken: Vec<String>,
    pub end: Option<End>,
}

impl Asked {
    pub fn is_overdue(&self, now: Duration) -> bool {
        self.is_open && matches!(self.state, State::Pending) && self.expires_at.is_some_and(|at| at <= now)
    }

    /// Whether a repetition of the line is still this request: no answer to it has reached the server.
    pub fn is_repeatable(&self) -> bool {
        self.is_open && !(matches!(self.state, State::Answered) && self.is_written)
    }

    /// The answer of this source wins.
    pub fn wins(&mut self, source: RequestSource, payload: String, is_excused: bool) {
        self.state = State::Answered;
        self.end = Some(End { status: RequestStatus::Resolved, source, payload: Some(payload.clone()) });
        self.sent = Some(Sent { payload, is_expiry: false, is_excused });
    }

    /// Whether somebody may still answer, as far as is known.
    pub fn waits(&self) -> bool {
        self.is_open && !matches!(self.state, State::Answered)
    }

    /// The server receives an answer: it must be the winner, for the first time, and stored.
    pub fn answer_arrives(&mut self, payload: &str, rows: &Rows) -> Result<(), String> {
        if std::mem::replace(&mut self.has_reached_server, true) {
            return Err(format!("3: answered twice: {}, now with {payload}", self.name));
        }
        let Some(sent) = self.sent.as_ref().filter(|sent| sent.payload == payload) else {
            return Err(format!("3: not the first answer: {} with {payload}, and {:?} was", self.name, self.sent));
        };
        let row = rows.get(&self.name);
        let is_kept = row.is_some_and(|row| row.payload.as_deref() == Some(payload));
        // Policy's answer is stored once it is written; before it is sent, the ledger stores that policy answers. The
        // server may withdraw the request meanwhile.
        let is_policys = sent.is_expiry
            && row.is_some_and(|row| row.status == RequestStatus::Expired || row.source == Some(RequestSource::Server));
        if !is_kept && !is_policys {
            if !sent.is_excused {
                return Err(format!("3: the server gets {payload} for {} before it is kept: {row:?}", self.name));
            }
            self.was_late |= !sent.is_expiry;
        }
        Ok(())
    }
}
