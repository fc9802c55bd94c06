//! A message of codex, with the members that the demo looks at.

use serde::Deserialize;
use serde_json::Value;

use super::DemoResult;
use crate::protocol::Method;

/// A message as a client gets it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub(super) id: Value,
    method: Option<String>,
    pub(super) params: Params,
    pub(super) result: Option<CallResult>,
    pub(super) error: CallError,
    /// All of it.
    #[serde(skip)]
    whole: Value,
}

/// The parameters of requests and notifications.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Params {
    pub(super) command: String,
    pub(super) request_id: Value,
    pub(super) turn: Turn,
    pub(super) item: SaidItem,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Turn {
    pub(super) status: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct SaidItem {
    r#type: String,
    pub(super) text: String,
}

/// The result of a call of the client.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct CallResult {
    user_agent: String,
    pub(super) thread: StartedThread,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct StartedThread {
    pub(super) id: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct CallError {
    pub(super) message: String,
}

impl Message {
    pub(super) fn parse(text: &str) -> DemoResult<Message> {
        let failed = |error| format!("a message is not JSON: {error}");
        let whole: Value = serde_json::from_str(text).map_err(failed)?;
        let message = Message::deserialize(&whole).map_err(failed)?;
        Ok(Message { whole, ..message })
    }

    pub(super) fn is(&self, method: Method) -> bool {
        self.method.as_deref() == Some(method.name())
    }

    /// Whether it answers the call of the client with this id.
    pub(super) fn answers(&self, id: u64) -> bool {
        self.method.is_none() && self.id == id
    }

    /// Whether the model has said something whole.
    pub(super) fn is_said(&self) -> bool {
        self.is(Method::ItemCompleted) && self.params.item.r#type == "agentMessage"
    }

    /// Whether another client got the same message, also in members that the demo does not look at.
    pub(super) fn is_same(&self, other: &Message) -> bool {
        self.whole == other.whole
    }
}

impl CallResult {
    /// The version of codex in the result of `initialize`.
    pub(super) fn version(&self) -> Option<&str> {
        self.user_agent.split(' ').next().and_then(|name| name.split('/').nth(1))
    }
}
