//! The purposes of our own calls to the server.

use serde::{Deserialize, Serialize};

use super::assembly::SentFragment;
use super::model::{ApiCallId, ApiReply, Effect, LinkEffect, Unready};

/// The purpose of a call of our own.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// Context before a turn.
    Context,
    /// Fragments before a turn.
    Fragments { thread_id: String, sent: Vec<SentFragment> },
    /// An API caller receives the response unchanged.
    #[serde(skip)]
    Rpc(ApiCallId),
    /// An API caller receives the ids of the turn.
    #[serde(skip)]
    Turn {
        api_call: ApiCallId,
        thread_id: String,
        /// The turn that was running at the time of the call.
        running: Option<String>,
    },
    /// An API caller interrupts a turn of this thread.
    #[serde(skip)]
    Interrupt { api_call: ApiCallId, thread_id: String },
    /// An API caller overrules a denial.
    #[serde(skip)]
    Overrule {
        api_call: ApiCallId,
        thread_id: String,
        /// The turn of the denial, if it was running at the time of the call.
        turn_id: Option<String>,
    },
    /// A decline reason for a running turn; if rejected, it goes to the next turn.
    Reason { thread_id: String, reason: String },
    /// A decline reason before a turn; if rejected, it is lost.
    ReasonAhead,
    /// The relay initializes the server.
    Initialize,
    /// The hub subscribes to a thread.
    Watch { thread_id: String },
    /// The hub ends such a subscription.
    Unwatch,
    /// The hub reads the state of a thread.
    Look,
}

impl Purpose {
    /// The caller of the control socket that waits for the answer.
    pub(super) fn caller(&self) -> Option<ApiCallId> {
        match self {
            Purpose::Rpc(api_call)
            | Purpose::Turn { api_call, .. }
            | Purpose::Interrupt { api_call, .. }
            | Purpose::Overrule { api_call, .. } => Some(*api_call),
            Purpose::Context
            | Purpose::Fragments { .. }
            | Purpose::Reason { .. }
            | Purpose::ReasonAhead
            | Purpose::Initialize
            | Purpose::Watch { .. }
            | Purpose::Unwatch
            | Purpose::Look => None,
        }
    }

    /// Rejects the API caller, if any: the server has ended.
    pub(super) fn server_ended(self, effects: &mut Vec<Effect>) {
        if let Some(api_call) = self.caller() {
            effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotReady(Unready::Ended))));
        }
    }
}
