//! `attach`: connects a client to a server that runs without one.
//!
//! HTTP ends with the response 101. After it the connection carries lines, like the stdin and stdout of a server, and the relay
//! owns the socket. A client that sends lines before the 101 is rejected, because bytes that hyper has buffered would be lost.

use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::upgrade::{OnUpgrade, Parts};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::ask::{PROTOCOL, RelayRequest};
use super::calls::refused;
use super::refusal::Refusal;
use super::stall::Unstalled;
use super::state::{AppState, ThisSession};
use crate::engine::{ApiReply, ApiRequest};

/// How long the relay may take to admit a client.
const ADMISSION_WAIT_MAX: Duration = Duration::from_secs(10);

pub(super) async fn attach(
    State(app): State<Arc<AppState>>,
    _: ThisSession,
    request: Request,
) -> Result<Response, Refusal> {
    if !asks_to_attach(request.headers()) {
        return Err(Refusal::UpgradeRequired);
    }
    let upgrade = hyper::upgrade::on(request);
    let (reply, replied) = oneshot::channel();
    // A task of its own, because hyper drops this handler with its connection. An admission is always completed or given up.
    tokio::spawn(admit(app, upgrade, reply));
    match replied.await.ok().flatten() {
        Some(ApiReply::Admitted { .. }) => {
            let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, PROTOCOL)];
            Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
        }
        reply => Err(refused(reply)),
    }
}

/// Whether the headers ask for an upgrade to our protocol.
fn asks_to_attach(headers: &HeaderMap) -> bool {
    names(headers, header::CONNECTION, "upgrade") && names(headers, header::UPGRADE, PROTOCOL)
}

/// Whether a comma-separated header contains `wanted`.
fn names(headers: &HeaderMap, header: HeaderName, wanted: &str) -> bool {
    let lists = headers.get_all(header).into_iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|named| named.trim().eq_ignore_ascii_case(wanted))
}

async fn admit(app: Arc<AppState>, upgrade: OnUpgrade, answer: oneshot::Sender<Option<ApiReply>>) {
    let reply = app.ask(ApiRequest::Attach, ADMISSION_WAIT_MAX).await;
    // Without a receiver the admission counts as refused.
    let admission = if let Some(ApiReply::Admitted { admission }) = &reply { Some(*admission) } else { None };
    // If the connection is gone, the upgrade fails below.
    let _ = answer.send(reply);
    if let Some(admission) = admission {
        app.run(RelayRequest::Client { admission, client: client(upgrade).await });
    }
}

/// The socket behind an upgraded connection; `None` if bytes were already read from it.
async fn client(upgrade: OnUpgrade) -> Option<BlockingStream> {
    let upgraded = upgrade.await.inspect_err(|error| tracing::debug!(%error, "a client did not attach")).ok()?;
    let Parts { io, read_buf, .. } = upgraded.downcast::<TokioIo<Unstalled<UnixStream>>>().ok()?;
    if !read_buf.is_empty() {
        tracing::warn!("a client sent lines before it was attached: closed");
        return None;
    }
    io.into_inner().into_inner().into_std().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn an_upgrade_needs_two_headers() {
        let check = |connection: &'static str, upgrade: &'static str| {
            let headers = [(header::CONNECTION, connection), (header::UPGRADE, upgrade)];
            asks_to_attach(&headers.map(|(name, value)| (name, HeaderValue::from_static(value))).into_iter().collect())
        };
        assert!(check("Upgrade", "codex-shim-attach"));
        assert!(check("keep-alive, upgrade", "websocket, Codex-Shim-Attach"));
        assert!(!check("close", "codex-shim-attach"));
        assert!(!check("Upgrade", "websocket"));
    }
}
