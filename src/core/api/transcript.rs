//! The transcript of a thread: the response to `GET /sessions/{id}/threads/{thread}/transcript`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TranscriptDocument {
    #[serde(default)]
    pub thread_id: String,
    /// Each as it is stored, oldest first; [`super::Entry`] reads one.
    pub entries: Vec<Box<RawValue>>,
}

impl TranscriptDocument {
    /// The document of stored entries. One that is not JSON is `null`.
    pub fn of(thread_id: String, entries: Vec<String>) -> TranscriptDocument {
        let read = |entry: String| RawValue::from_string(entry).unwrap_or_else(|_| RawValue::NULL.to_owned());
        TranscriptDocument { thread_id, entries: entries.into_iter().map(read).collect() }
    }
}
