//! How a route asks the relay something, and how it hands a client over.

use std::os::unix::net::UnixStream;

use tokio::sync::oneshot;

use crate::engine::{ApiCallId, ApiReply, ApiRequest};

/// Where a reply goes.
pub(crate) type Reply = oneshot::Sender<ApiReply>;

/// What a route has for the relay.
#[derive(Debug)]
pub(crate) enum Errand {
    /// Somebody wants something. Where the relay does not take any more, the reply is dropped.
    Asked(ApiRequest, Reply),
    /// A client that was let in.
    Client {
        /// By which admission.
        admission: ApiCallId,
        /// Its socket, or nothing where it is gone before it came.
        client: Option<UnixStream>,
    },
}

/// Hands an errand to the relay. A question never waits; a client waits for room in the relay's inbox.
pub(crate) type Ask = Box<dyn Fn(Errand) + Send + Sync>;

/// What the connection is upgraded to.
pub(super) const PROTOCOL: &str = "codex-shim-attach";
