//! A request as the referee sees it: how far it has come, and how it has to end.

use std::time::Duration;

use codex_shim::testing::engine::{AskerId, RequestSource, RequestStatus};
use serde_json::Value;

use super::rows::Rows;

/// Whether the client is shown a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Shown {
    Yes,
    /// Once it cannot be kept.
    NotYet,
    Never,
}

#[derive(Debug)]
pub enum State {
    Pending,
    /// An answer from the side is being kept.
    Deciding(Box<Deciding>),
    Answered,
    /// Policy answers.
    Expired,
    /// Its answer is on its way, and not written yet.
    PolicySpoke,
}

#[derive(Debug)]
pub struct Deciding {
    pub asker: AskerId,
    pub payload: String,
    /// The client's, and its line.
    pub runner_up: Option<(Vec<u8>, String)>,
    pub over: Option<Over>,
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
    pub source: RequestSource,
    /// It may go before it is kept.
    pub is_excused: bool,
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
    pub turn: Value,
    pub line: Vec<u8>,
    pub expires_at: Option<Duration>,
    pub shown: Shown,
    pub state: State,
    /// The server still wants an answer, as far as is known.
    pub is_open: bool,
    /// It may be shown before it is kept.
    pub is_excused: bool,
    pub sent: Option<Sent>,
    /// The answer was written to the server.
    pub is_written: bool,
    pub has_reached_server: bool,
    /// Answers to the same request, before this row, that the server has not confirmed.
    pub unconfirmed: usize,
    /// Withdrawn, but the server may still wait for an answer.
    pub may_wait: bool,
    /// A side has got it, or its answer, before that was kept.
    pub was_late: bool,
    pub end: Option<End>,
}

impl Asked {
    pub fn is_overdue(&self, now: Duration) -> bool {
        self.is_open && matches!(self.state, State::Pending) && self.expires_at.is_some_and(|at| at <= now)
    }

    /// Whether the same line once more is this request: whatever answers it has not reached the server.
    pub fn is_repeatable(&self) -> bool {
        self.is_open && !(matches!(self.state, State::Answered) && self.is_written)
    }

    /// Somebody's answer is the one.
    pub fn wins(&mut self, source: RequestSource, payload: String, is_excused: bool) {
        self.state = State::Answered;
        self.end = Some(End { status: RequestStatus::Resolved, source, payload: Some(payload.clone()) });
        self.sent = Some(Sent { payload, source, is_excused });
    }

    /// An answer reaches the server: the one that won, once, and kept.
    pub fn answer_arrives(&mut self, payload: &str, rows: &Rows) -> Result<(), String> {
        if std::mem::replace(&mut self.has_reached_server, true) {
            return Err(format!("3: answered twice: {}, now with {payload}", self.name));
        }
        let Some(sent) = self.sent.as_ref().filter(|sent| sent.payload == payload) else {
            return Err(format!("3: not the first answer: {} with {payload}, and {:?} was", self.name, self.sent));
        };
        let row = rows.get(&self.name);
        let is_kept = row.is_some_and(|row| row.payload.as_deref() == Some(payload));
        // Policy's answer is kept once it is written; before it is sent, that it is policy's to answer. The server may not want
        // one any more meanwhile.
        let is_policys = sent.source == RequestSource::Policy
            && row.is_some_and(|row| row.status == RequestStatus::Expired || row.source == Some(RequestSource::Server));
        if !is_kept && !is_policys {
            if !sent.is_excused {
                return Err(format!("3: the server gets {payload} for {} before it is kept: {row:?}", self.name));
            }
            self.was_late |= sent.source != RequestSource::Policy;
        }
        Ok(())
    }
}
