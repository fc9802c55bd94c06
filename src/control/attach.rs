//! The route by which a client attaches itself to a server that runs without one.
//!
//! HTTP ends with the answer 101; from then on the connection carries lines as a server's stdin and stdout do. The socket
//! itself is handed to the relay, and nothing of ours stands in between any more. It has to come with nothing read from
//! it: who sends lines before the 101 is not taken.

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

use super::ask::{Errand, PROTOCOL};
use super::calls::refused;
use super::known::{Known, ThisSession};
use super::refusal::Refusal;
use super::stall::Unstalled;
use crate::engine::{ApiReply, ApiRequest};

/// How long the relay may take to let a client in.
const ADMISSION_WAIT_MAX: Duration = Duration::from_secs(10);

pub(super) async fn attach(
    State(known): State<Arc<Known>>,
    _: ThisSession,
    request: Request,
) -> Result<Response, Refusal> {
    if !asks_to_attach(request.headers()) {
        return Err(Refusal::UpgradeRequired);
    }
    let upgrade = hyper::upgrade::on(request);
    let (reply, replied) = oneshot::channel();
    // By itself, since this route ends with its connection: whoever was let in is handed over, or given up, whatever happens.
    tokio::spawn(admit(known, upgrade, reply));
    match replied.await.ok().flatten() {
        Some(ApiReply::Admitted { .. }) => {
            let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, PROTOCOL)];
            Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
        }
        reply => Err(refused(reply)),
    }
}

/// Whether a connection is to be upgraded to lines.
fn asks_to_attach(headers: &HeaderMap) -> bool {
    names(headers, header::CONNECTION, "upgrade") && names(headers, header::UPGRADE, PROTOCOL)
}

/// Whether a header with a list has this in it.
fn names(headers: &HeaderMap, header: HeaderName, wanted: &str) -> bool {
    let lists = headers.get_all(header).into_iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|named| named.trim().eq_ignore_ascii_case(wanted))
}

async fn admit(known: Arc<Known>, upgrade: OnUpgrade, answer: oneshot::Sender<Option<ApiReply>>) {
    let reply = known.ask(ApiRequest::Attach, ADMISSION_WAIT_MAX).await;
    // One that replies to nobody has let nobody in.
    let admission = if let Some(ApiReply::Admitted { admission }) = &reply { Some(*admission) } else { None };
    // The connection may be gone; the upgrade then fails.
    let _ = answer.send(reply);
    if let Some(admission) = admission {
        known.run(Errand::Client { admission, client: client(upgrade).await });
    }
}

/// The socket of a connection that was upgraded, and that nothing was read from.
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
    fn an_upgrade_is_asked_for_by_two_headers() {
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
