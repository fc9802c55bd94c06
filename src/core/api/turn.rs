//! What a session says of a message that it has passed on, and of a turn that it has interrupted.

use serde::{Deserialize, Serialize};

/// The turn that takes a message or was interrupted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnReply {
    /// The message has joined a running turn.
    pub steered: bool,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
}
