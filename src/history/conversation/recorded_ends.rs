//! Ends of requests that are on record. A hub that sends an answer which an earlier one has stored records the request and its end
//! again, because it does not know whether the earlier one has.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Ends remembered; the oldest is evicted first.
const ENDS_MAX: usize = 256;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::history) struct RecordedEnds {
    /// The ledger names of the requests, oldest first.
    names: VecDeque<String>,
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
pub(super) struct Renamed {
    pub(super) request_id: String,
    pub(super) before: String,
}

impl Renamed {
    pub(super) fn of(note: &RawValue) -> Option<Renamed> {
        serde_json::from_str(note.get()).ok()
    }
}

/// The name of the request in a note of our own.
pub(super) fn request_id(note: &RawValue) -> Option<String> {
    serde_json::from_str::<Told>(note.get()).ok().map(|told| told.request_id)
}

impl RecordedEnds {
    pub(super) fn add(&mut self, request_id: &str) {
        self.names.push_back(request_id.to_owned());
        if self.names.len() > ENDS_MAX {
            self.names.pop_front();
        }
    }

    /// Whether a note of a request or its end repeats that of an earlier hub.
    pub(in crate::history) fn repeats(&self, note: &RawValue) -> bool {
        let told = serde_json::from_str::<Told>(note.get());
        told.is_ok_and(|told| told.again && self.names.contains(&told.request_id))
    }
}
