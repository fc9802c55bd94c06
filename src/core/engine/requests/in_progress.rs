//! Work for requests that others do: the ledger stores, or the program of a command is checked.

use super::Requests;
use super::open::{Request, RequestState};
use super::ruled::Ruled;

impl Requests {
    /// Whether no request waits for the ledger or for a check.
    pub(in crate::engine) fn are_at_rest(&self) -> bool {
        let is_checked = |request: &Request| request.rule.as_deref().is_some_and(Ruled::waits_for_check);
        let waits = |request: &Request| matches!(request.state, RequestState::Deciding(_)) || is_checked(request);
        let holds_nothing = self.commits.is_empty()
            && self.holds.is_empty()
            && self.explanations.is_empty()
            && self.own_outcomes.is_empty();
        holds_nothing && self.unread.is_empty() && !self.open.values().any(waits)
    }
}
