//! The uses of the server's protocol by clients.

use serde::{Deserialize, Serialize};

use super::parameter::{Moment, query};
use crate::history::ClientUseKind;

query! {
    /// The methods used at a time or later.
    ClientUsesQuery -> ClientUsesDocument = "client-uses" {
        since: Moment,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientUsesDocument {
    pub uses: Vec<ClientUse>,
}

/// Something that a client uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientUse {
    pub client: String,
    /// Empty if it has not told one.
    pub version: String,
    pub kind: ClientUseKind,
    pub method: String,
    /// The path of a member, such as `input[].type`; empty for the method itself.
    pub member: String,
    /// The type of its value in JSON, or a constant in quotes. Of the method itself: empty, or `error` for a refusal.
    pub value: String,
    pub count: u64,
    pub last_used_at: String,
}
