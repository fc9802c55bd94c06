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
pub(crate) use api::{OverruleFor, Unready};
pub use effect::{ChildEffect, Decision, Effect, LinkEffect, OwnLine, Passage};
pub(crate) use effect::{Injection, LateLine};
pub use exit::Exit;
pub(crate) use exit::Signal;
pub use ids::{ApiCallId, Now, Token};
pub use input::{Incoming, Input};
pub use ledger::{ContextChange, LedgerEntry, Order, RequestSource, RequestStatus, WaitingCommand};
pub(crate) use ledger::{Delivery, GivenRow, Outcome, OverruledRow, RequestEnd, RequestRow, RowId};
pub use note::Note;
pub(in crate::engine) use note::RateLimit;
pub(crate) use peer::RefusedPeer;
pub use peer::{ClientName, Peer, ServerOwner, Transport};
pub(crate) use record::{Form, Omitted, OmittedReason};
pub(in crate::engine) use record::{MaskedLine, Verdict};
pub(crate) use warning::Warning;
