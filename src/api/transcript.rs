//! The transcript of a thread: the response to `GET /sessions/{id}/threads/{thread}/transcript`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::query::Query;

/// The finished entries of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transcript {
    pub thread_id: String,
}

impl Query for Transcript {
    type Document = TranscriptDocument;

    fn path(&self) -> String {
        format!("/sessions/self/threads/{}/transcript", self.thread_id)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TranscriptDocument {
    #[serde(default)]
    pub thread_id: String,
    /// Each as it is stored, oldest first; [`super::Entry`] reads one.
    pub entries: Vec<Box<RawValue>>,
}

impl TranscriptDocument {
    /// The document of stored entries. One that is not JSON is `null`.
    pub(crate) fn of(thread_id: String, entries: Vec<String>) -> TranscriptDocument {
        let read = |entry: String| RawValue::from_string(entry).unwrap_or_else(|_| RawValue::NULL.to_owned());
        TranscriptDocument { thread_id, entries: entries.into_iter().map(read).collect() }
    }
}
