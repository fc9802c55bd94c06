//! A request as the referee of a hub sees it: one row of the ledger, its progress, and the end that it must have.

use std::time::Duration;

use codex_shim::testing::engine::{ApiCallId, RequestSource, RequestStatus};

use super::super::asked::{Decider, End, Shown};
use super::super::rules::{Does, Ruled, Ruling};

#[derive(Debug)]
pub enum State {
    Pending,
    /// The ledger is storing an answer of an API caller or a rule.
    Deciding {
        by: Decider,
        payload: String,
        runner_up: Option<(Vec<u8>, String)>,
        /// When the client's answer has waited long enough.
        due: Option<Duration>,
        is_over: Option<Over>,
    },
    Answered,
    Expired,
    /// Policy's answer is on its way.
    PolicySpoke,
}

impl State {
    pub fn deciding(by: Decider, payload: String) -> State {
        State::Deciding { by, payload, runner_up: None, due: None, is_over: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    ByServer,
    ServerGone,
}

#[derive(Debug)]
pub struct Asked {
    pub id: u64,
    /// Its name in the ledger, once that is ordered.
    pub name: Option<String>,
    pub line: Vec<u8>,
    pub turn: String,
    /// The connections on which the server has asked.
    pub conns: Vec<u32>,
    pub expires_at: Option<Duration>,
    /// Whether clients get it.
    pub shown: Shown,
    /// Clients are not asked at all.
    pub is_held: bool,
    pub ruling: Ruling,
    pub rule: Option<Ruled>,
    pub state: State,
    /// The newest connection when it was answered.
    pub answered_at: u32,
    /// The connection that carries the answer.
    pub over: Option<u32>,
    /// The API caller of the answer that holds.
    pub told: Option<ApiCallId>,
    /// Nothing shows that the server got the answer, and its connection is gone.
    pub may_be_lost: bool,
    /// The answer has left the hub.
    pub is_written: bool,
    /// The answer has left an earlier hub.
    pub was_sent: bool,
    /// The request may be passed on before it is stored.
    pub is_excused: bool,
    /// Its answer may.
    pub is_answer_excused: bool,
    pub payload: Option<String>,
    /// The server asked before the ledger was open.
    pub is_early: bool,
    /// The hub itself has got it first: nothing waits for the row.
    pub is_for_hub: bool,
    pub has_reached_server: bool,
    pub was_late: bool,
    /// Earlier answers that the ledger was slow to store: after a kill, the row may have one of them.
    pub overtaken: Vec<String>,
    pub end: Option<End>,
}

impl Asked {
    pub fn new(id: u64, line: Vec<u8>, turn: String) -> Asked {
        Asked {
            id,
            name: None,
            line,
            turn,
            conns: Vec::new(),
            expires_at: None,
            shown: Shown::Yes,
            is_held: false,
            ruling: Ruling::default(),
            rule: None,
            state: State::Pending,
            answered_at: 0,
            over: None,
            told: None,
            may_be_lost: false,
            is_written: false,
            was_sent: false,
            is_excused: false,
            is_answer_excused: false,
            payload: None,
            is_early: false,
            is_for_hub: false,
            has_reached_server: false,
            was_late: false,
            overtaken: Vec::new(),
            end: None,
        }
    }

    /// A request on which these rules decide: it is hidden as long as one of them is at work.
    pub fn ruled(self, now: Duration, ruling: Ruling) -> Asked {
        let is_held = ruling.does == Some(Does::Hold);
        let declined = ruling.does.filter(|does| *does == Does::Decline);
        let deciding = declined.map(|does| State::deciding(Decider::Rule(does), does.payload().to_owned()));
        Asked {
            shown: if is_held || ruling.answers() { Shown::NotYet } else { Shown::Yes },
            is_held,
            rule: Ruled::new(now, &ruling),
            ruling,
            state: deciding.unwrap_or(State::Pending),
            ..self
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Pending | State::Deciding { .. } | State::Expired | State::PolicySpoke)
    }

    /// Policy or a rule has answered.
    pub fn is_by_policy(&self) -> bool {
        let has_ended =
            self.end.as_ref().is_some_and(|end| end.source == RequestSource::Policy && end.payload.is_some());
        matches!(self.state, State::PolicySpoke) || has_ended
    }

    /// The ledger is storing an answer of an API caller or a rule.
    pub fn is_deciding(&self) -> bool {
        matches!(self.state, State::Deciding { .. })
    }

    pub fn is_overdue(&self, now: Duration) -> bool {
        self.end.is_none() && matches!(self.state, State::Pending) && self.expires_at.is_some_and(|at| at <= now)
    }

    pub fn ends(&mut self, status: RequestStatus, source: RequestSource, payload: Option<String>) {
        self.end = Some(End { status, source, payload });
    }

    /// The answer of this source wins.
    pub fn wins(&mut self, source: RequestSource, payload: String, is_excused: bool, newest: u32) {
        self.state = State::Answered;
        self.ends(RequestStatus::Resolved, source, Some(payload.clone()));
        (self.payload, self.is_answer_excused, self.answered_at) = (Some(payload), is_excused, newest);
    }
}
