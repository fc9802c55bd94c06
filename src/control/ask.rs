//! Requests of the routes to the relay thread.

use std::os::unix::net::UnixStream;

use tokio::sync::oneshot;

use crate::engine::{ApiCallId, ApiReply, ApiRequest};

pub(crate) type Reply = oneshot::Sender<ApiReply>;

/// A request to the relay.
#[derive(Debug)]
pub(crate) enum RelayRequest {
    /// A call of an API caller. The relay drops the sender if it takes no more calls.
    Call(ApiRequest, Reply),
    /// Hands over an admitted client.
    Client {
        admission: ApiCallId,
        /// `None` if the connection failed before the upgrade.
        client: Option<UnixStream>,
    },
}

/// Sends a request to the relay. A question never blocks; handing over a client blocks until the relay's inbox has room.
pub(crate) type Ask = Box<dyn Fn(RelayRequest) + Send + Sync>;

/// The protocol in the `Upgrade` header.
pub(super) const PROTOCOL: &str = "codex-shim-attach";
