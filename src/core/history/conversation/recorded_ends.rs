//! Ends of requests that are on record.
//!
//! A hub that sends an answer which an earlier one has stored records the request and its end again, because it does not know
//! whether the earlier one has. An answer that is not sent after all, because it was taken back or because the next hub could not
//! send it, leaves a first end that is not the last one: the request then ends a second time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::bounded::Weigh as _;
use super::super::request::{End, Request};
use super::{Change, Conversation};

/// Ends remembered; the oldest is evicted first.
const ENDS_MAX: usize = 256;

/// Answered requests remembered, and their limit in bytes; the oldest are evicted first.
const ANSWERED_MAX: usize = 64;
const ANSWERED_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::history) struct RecordedEnds {
    /// The ledger names of the requests, oldest first.
    names: VecDeque<String>,
    /// Those of them that had an answer, oldest first.
    answered: VecDeque<AnswerOnWay>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AnswerOnWay {
    request: Request,
    answer: String,
}

/// The part of a note that tells whether it may repeat one.
#[derive(Deserialize)]
struct Told {
    request_id: String,
    #[serde(default)]
    again: bool,
}

/// The note that the ledger has another name for a request.
#[derive(Deserialize)]
struct Renamed {
    request_id: String,
    before: String,
}

impl Conversation {
    pub(super) fn renamed<'a>(&mut self, note: Option<&RawValue>) -> Change<'a> {
        let renamed = note.and_then(|note| serde_json::from_str(note.get()).ok());
        if let Some(Renamed { request_id, before }) = renamed {
            self.requests.change_all(|request| {
                if request.request_id.as_ref() == Some(&before) {
                    request.request_id = Some(request_id.clone());
                }
            });
        }
        Change::None
    }
}

/// The name of the request in a note of our own.
pub(super) fn request_id(note: &RawValue) -> Option<String> {
    serde_json::from_str::<Told>(note.get()).ok().map(|told| told.request_id)
}

impl RecordedEnds {
    /// Adds the end of a request, and returns the request; `None` if it is not known. If it has ended before, with an answer, that
    /// was not sent, and `end` says so.
    pub(super) fn add(&mut self, open: Option<Request>, request_id: &str, end: &mut End) -> Option<Request> {
        self.names.push_back(request_id.to_owned());
        if self.names.len() > ENDS_MAX {
            self.names.pop_front();
        }
        let answer = end.answer();
        // A hub that has not read its ledger may give another request the same name; the same answer twice is one end.
        let is_before = |of: &AnswerOnWay| {
            let is_named = of.request.request_id.as_deref() == Some(request_id);
            let is_same = open.as_ref().is_none_or(|open| open.asks_the_same(&of.request));
            is_named && is_same && answer.as_ref() != Some(&of.answer)
        };
        let before = self.answered.iter().position(is_before).and_then(|at| self.answered.remove(at));
        end.not_sent = before.as_ref().map(|of| of.answer.clone());
        let request = open.or_else(|| before.map(|of| of.request))?;
        if let Some(answer) = answer {
            self.answered.push_back(AnswerOnWay { request: request.clone(), answer });
        }
        let weight = |all: &VecDeque<AnswerOnWay>| all.iter().map(|of| of.request.weight()).sum::<usize>();
        while self.answered.len() > ANSWERED_MAX || weight(&self.answered) > ANSWERED_BYTES_MAX {
            self.answered.pop_front();
        }
        Some(request)
    }

    /// Whether a note of a request or its end repeats that of an earlier hub.
    pub(in crate::history) fn repeats(&self, note: &RawValue) -> bool {
        let told = serde_json::from_str::<Told>(note.get());
        told.is_ok_and(|told| told.again && self.names.contains(&told.request_id))
    }
}
