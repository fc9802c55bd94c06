//! What goes in and out of the engine, and what its features say to each other: plain data.

mod api;
mod effect;
mod exit;
mod ids;
mod input;
mod ledger;
mod note;
mod peer;
mod record;
mod warning;

pub use api::{ApiReply, ApiRequest};
pub use api::{OverruleFor, Unready};
pub use effect::{ChildEffect, Decision, Effect, LinkEffect, OwnLine, Passage};
pub use effect::{Injection, LateLine};
pub use exit::Exit;
pub use exit::Signal;
pub use ids::{ApiCallId, Now, Token};
pub use input::{Incoming, Input};
pub use ledger::{ContextChange, LedgerEntry, Order, RequestSource, RequestStatus, WaitingCommand};
pub use ledger::{Delivery, GivenRow, Outcome, OverruledRow, RequestEnd, RequestRow, RowId};
pub use note::Note;
pub(in crate::engine) use note::RateLimit;
pub use peer::RefusedPeer;
pub use peer::{ClientName, GivenVariables, Peer, ServerOwner, Transport, Variables};
pub use record::{Form, Omitted, OmittedReason};
pub(in crate::engine) use record::{MaskedLine, Verdict};
pub use warning::Warning;
