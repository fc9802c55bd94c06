//! The safe state, which begins when an invariant of codex-shim has failed.
//!
//! From then on everything is passed on and recorded, and nothing is decided. No rule and no expiry answers a request, no turn waits for a
//! budget or for its context, and no context is put in front of words. Requests go to their clients, who answer them as ever. An answer
//! that is stored or being stored is sent, unless it is a rule's: half an answer would be worse than one more. API callers get an error for
//! all that would write to the server.
//!
//! The rules that keep messages apart stay: the ids of our own calls, the removal of context from echoes, and the order of held lines. So do the
//! connection of a hub that follows threads for the record, and the errors for requests that no client can answer.
//!
//! The state ends with this engine's process. A hub hands it over, because the next program goes on with the state that has failed.

use super::model::{ApiCallId, ApiRequest};
use super::{ApiReply, Effect, Engine, LinkEffect, Now};

/// The fault that a failed invariant is, for people.
pub fn broken_in_words(name: &str) -> String {
    format!(
        "codex-shim has found a defect in itself (`{name}`): messages are passed on and recorded, and nothing else is done; rules, expiry, \
         budgets, context and answers by API callers are off until the client is started again, or the hub with `codex-shim hub restart --anew`"
    )
}

impl Engine {
    /// The first invariant that has failed.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    pub(super) fn is_safe(&self) -> bool {
        self.broken.is_some()
    }

    /// Begins the safe state: held messages go on, and the engine decides nothing any more.
    pub(super) fn breaks(&mut self, now: Now, name: String, effects: &mut Vec<Effect>) {
        if self.is_safe() {
            return;
        }
        self.broken = Some(name);
        self.requests.decide_nothing(now, &self.clients, effects);
        self.interrupts.take_all().into_iter().for_each(|api_call| self.refuse_caller(api_call, effects));
        self.let_turns_begin(now, effects);
        self.assembly.stop();
        self.release_all_held(now, effects);
    }

    /// Tells an API caller that nothing is done for it any more.
    pub(super) fn refuse_caller(&self, api_call: ApiCallId, effects: &mut Vec<Effect>) {
        let name = self.broken.clone().unwrap_or_default();
        effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::Broken(name))));
    }
}

impl ApiRequest {
    /// Whether it would have us write to the server.
    pub(super) fn writes(&self) -> bool {
        match self {
            ApiRequest::Respond { .. }
            | ApiRequest::Input { .. }
            | ApiRequest::Interrupt { .. }
            | ApiRequest::Overrule { .. }
            | ApiRequest::Rpc { .. } => true,
            ApiRequest::Attach | ApiRequest::Stop | ApiRequest::Start | ApiRequest::HandOver { .. } => false,
        }
    }
}
