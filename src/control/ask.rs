//! How a route asks the relay something.

use tokio::sync::oneshot;

use crate::engine::{Question, SideReply};

/// Where a reply goes.
pub type Reply = oneshot::Sender<SideReply>;

/// Hands a question to the relay, and never waits. Where the relay does not take any more, the reply is dropped.
pub type Ask = Box<dyn Fn(Question, Reply) + Send + Sync>;
