//! Denials of codex's own reviewer in this run, which a person may overrule.
//!
//! The engine keeps them as the server wrote them, because codex compares the approved action with the next one word by word, and a record
//! may be masked. A denial of an earlier run is unknown here: its turn is gone with the server.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::model::{ApiCallId, ApiReply, OverruleFor, OverruledRow, RequestSource};
use super::purpose::Purpose;
use super::{Effect, Engine, LinkEffect, free_line, inject};
use crate::invariants::holds;
use crate::protocol::{Denial, Method, overruled_review};
use crate::wire::Conn;

/// Most denials that are remembered; the oldest is forgotten first.
const DENIALS_MAX: usize = 32;

/// Longest call of a remembered denial, in bytes. Commands of models are far shorter.
const CALL_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Denials(VecDeque<KnownDenial>);

#[derive(Debug, Serialize, Deserialize)]
struct KnownDenial {
    denial: Denial,
    state: DenialState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum DenialState {
    Stands,
    /// A call that overrules it has no answer yet.
    Called,
    Overruled,
}

impl Denials {
    pub(super) fn check(&self) {
        holds!("denials.within-limit", self.0.len() <= DENIALS_MAX);
        holds!("denials.calls-within-limit", self.0.iter().all(|known| known.denial.call.len() <= CALL_BYTES_MAX));
        let reviews: BTreeSet<&String> = self.0.iter().map(|known| &known.denial.review_id).collect();
        holds!("denials.known-once", reviews.len() == self.0.len());
    }

    /// A review has ended. A hub reads the same on each connection.
    pub(super) fn reviewed(&mut self, params: &RawValue) {
        let Some(denial) = Denial::of(params).filter(|denial| denial.call.len() <= CALL_BYTES_MAX) else { return };
        if self.0.iter().any(|known| known.denial.review_id == denial.review_id) {
            return;
        }
        if self.0.len() >= DENIALS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(KnownDenial { denial, state: DenialState::Stands });
    }

    /// A client overrules a denial itself. If the server refuses, only the client can call again.
    pub(super) fn called_by_client(&mut self, params: &RawValue) {
        if let Some(known) = overruled_review(params).and_then(|(review_id, _)| self.of(&review_id)) {
            known.state = DenialState::Overruled;
        }
    }

    pub(super) fn server_ended(&mut self) {
        self.0.clear();
    }

    fn of(&mut self, review_id: &str) -> Option<&mut KnownDenial> {
        self.0.iter_mut().find(|known| known.denial.review_id == review_id)
    }

    /// The server has answered the call that overrules a denial.
    pub(super) fn answered(&mut self, review_id: &str, is_refused: bool) {
        if let Some(known) = self.of(review_id) {
            known.state = if is_refused { DenialState::Stands } else { DenialState::Overruled };
        }
    }
}

impl OverruledRow {
    /// The row of a call that overrules a denial; `None` if it names no review.
    pub(super) fn of(params: &RawValue, source: RequestSource, by: &str) -> Option<OverruledRow> {
        let (review_id, place) = overruled_review(params)?;
        let payload = Some(params.get().to_owned()).filter(|payload| payload.len() <= CALL_BYTES_MAX);
        Some(OverruledRow { review_id, place, at_us: 0, source, by: by.to_owned(), payload })
    }
}

impl Engine {
    /// Overrules a denial for an API caller.
    pub(super) fn overrule(
        &mut self,
        api_call: ApiCallId,
        review_id: String,
        applies: OverruleFor,
        (source, by): (RequestSource, &str),
        effects: &mut Vec<Effect>,
    ) {
        let Some(KnownDenial { denial, state }) = self.denials.of(&review_id) else {
            return effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::ReviewNotFound)));
        };
        let turn_runs = self.threads.turn_in(&denial.thread_id) == Some(&*denial.turn_id);
        let refused = match (*state, turn_runs, applies) {
            (DenialState::Called | DenialState::Overruled, _, _) => Some(ApiReply::AlreadyOverruled),
            (DenialState::Stands, false, OverruleFor::ThisTurn) => {
                Some(ApiReply::TurnOver { thread_id: denial.thread_id.clone() })
            }
            (DenialState::Stands, _, _) => None,
        };
        if let Some(refused) = refused {
            return effects.push(Effect::Link(LinkEffect::Reply(api_call, refused)));
        }
        *state = DenialState::Called;
        let Denial { thread_id, turn_id, call, .. } = denial.clone();
        // The server takes the call only for a thread that it has loaded.
        self.watch(&thread_id, effects);
        let turn_id = turn_runs.then_some(turn_id);
        let purpose = Purpose::Overrule { api_call, thread_id, turn_id };
        let name = Method::ThreadApproveDenied.name();
        let (key, line) = self.calls.call_server(Conn::OWN, name, Some(&call), purpose);
        let row = serde_json::from_str(&call).ok().and_then(|params| OverruledRow::of(params, source, by));
        self.calls.to_server.overrules(Some(key), row);
        effects.push(inject(Conn::OWN, vec![free_line(line)]));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn params(review_id: &str, command: &str) -> Box<RawValue> {
        let action = json!({"type": "command", "source": "shell", "command": command, "cwd": "/"});
        let params = json!({"threadId": "t", "turnId": "u", "reviewId": review_id, "review": {"status": "denied"},
            "action": action});
        RawValue::from_string(params.to_string()).expect("BUG: it is JSON")
    }

    #[test]
    fn denials_are_bounded_and_known_once() {
        let mut denials = Denials::default();
        for number in 0..=DENIALS_MAX {
            denials.reviewed(&params(&number.to_string(), "ls"));
            denials.reviewed(&params(&number.to_string(), "ls"));
        }
        assert_eq!(denials.0.len(), DENIALS_MAX);
        assert!(denials.of("0").is_none() && denials.of("1").is_some());
        denials.reviewed(&params("long", &"x".repeat(CALL_BYTES_MAX)));
        assert!(denials.of("long").is_none());
        let call = r#"{"threadId":"t","event":{"id":"1","status":"denied"}}"#.to_owned();
        denials.called_by_client(&RawValue::from_string(call).expect("BUG: it is JSON"));
        assert_eq!(denials.of("1").map(|known| known.state), Some(DenialState::Overruled));
        denials.server_ended();
        assert!(denials.of("1").is_none());
    }
}
