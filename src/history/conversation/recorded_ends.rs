//! Ends of requests that are on record. A hub that sends an answer which an earlier one has stored records the request and its end
//! again, because it does not know whether the earlier one has.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Change, Conversation};

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
