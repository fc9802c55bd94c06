//! The facts of a request in the ledger, for filters.

use super::answer::outcome_word;
use crate::api::Request;
use crate::history::{EndFacts, FilterKind, RequestFacts, micros_of, request_text};
use crate::protocol::of_name;

impl Request {
    /// Its facts. A request that a list has cut has no text.
    pub fn for_filter(&self) -> RequestFacts {
        let kind = self.kind();
        let (source, name) = (self.resolution_source.as_deref(), self.resolved_by.as_deref());
        RequestFacts {
            kinds: [FilterKind::Request].into_iter().chain(kind.subject().map(FilterKind::from)).collect(),
            end: EndFacts::of(of_name(outcome_word(self)), source, name),
            thread_id: self.thread_id.clone(),
            text: if self.is_cut() { String::new() } else { request_text(kind, &self.request_payload) },
        }
    }

    /// When it ended, or else arrived, in microseconds since 1970.
    pub fn last_us(&self) -> u64 {
        let at = self.resolved_at.as_deref().unwrap_or(&self.requested_at);
        micros_of(at).unwrap_or_default()
    }
}
