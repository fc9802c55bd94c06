//! The routes, and the checks that apply to all of them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use http_body_util::BodyExt as _;
use serde::Serialize;
use tokio::time::timeout;

use super::refusal::{Refusal, json};
use super::state::{AppState, ThisSession};
use super::{calls, context, history, metrics, requests, stream};

pub(super) fn router(app: AppState) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics::metrics))
        .route("/sessions/{id}", get(session))
        .route("/sessions/{id}/context", get(context::show).post(context::push).delete(context::clear))
        .route("/sessions/{id}/context/deliveries", get(context::deliveries))
        .route("/sessions/{id}/context/{command}", delete(context::drop_one))
        .route("/sessions/{id}/fragments", get(context::show_fragments))
        .route("/sessions/{id}/codex-pending-requests", get(requests::pending))
        .route("/sessions/{id}/codex-requests/{request_id}", get(requests::one))
        .route("/sessions/{id}/codex-requests/{request_id}/respond", post(requests::respond))
        .route("/sessions/{id}/codex-events", get(history::events))
        .route("/sessions/{id}/codex-events/stream", get(stream::stream))
        .route("/sessions/{id}/activity", get(history::activity))
        .route("/sessions/{id}/activity-actions", get(history::actions))
        .route("/sessions/{id}/tool-events", get(history::tools))
        .route("/sessions/{id}/turn-events", get(history::turns))
        .route("/sessions/{id}/threads/{thread}/transcript", get(history::transcript))
        .route("/sessions/{id}/input", post(calls::input))
        .route("/sessions/{id}/interrupt", post(calls::interrupt))
        .route("/sessions/{id}/rpc", post(calls::rpc))
        .route("/sessions/{id}/attach", post(calls::attach))
        .route("/sessions/{id}/stop", post(calls::stop))
        .route("/sessions/{id}/start", post(calls::start))
        .fallback(|| async { Refusal::NotFound })
        .method_not_allowed_fallback(|| async { Refusal::MethodNotAllowed })
        .layer(middleware::from_fn(admit))
        .with_state(Arc::new(app))
}

/// Rejects requests that could come from a web page.
async fn admit(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    // The body is read even if the request is refused, so that a client that writes it all first can read the reason.
    let body = take_body(body).await;
    if head.headers.contains_key(header::ORIGIN) {
        return Refusal::Origin.into_response();
    }
    if !is_a_tools(&head.uri, &head.headers) {
        return Refusal::Host.into_response();
    }
    match body {
        Ok(bytes) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        Err(error) => Refusal::Body(error).into_response(),
    }
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

async fn healthz() -> Response {
    json(StatusCode::OK, &Health { status: "ok" })
}

async fn session(State(app): State<Arc<AppState>>, _: ThisSession) -> Response {
    json(StatusCode::OK, &app.document().await)
}

// Reads a request body whole before the route runs, bounded in size and time.
//
// A body over the limit is read and dropped up to a second limit, so that a client that writes everything before it reads
// still gets its response.

/// Longest accepted body, in bytes.
pub(super) const BODY_BYTES_MAX: u64 = 1 << 20;

/// How much of a body over the limit is read and dropped, in bytes.
const BODY_BYTES_READ_AWAY_MAX: u64 = 16 << 20;

const BODY_WAIT_MAX: Duration = Duration::from_secs(30);

/// Why a body was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// Longer than [`BODY_BYTES_MAX`].
    TooBig,
    TooSlow,
    /// The connection broke, or the framing is invalid.
    Broken,
}

/// Reads a whole body.
pub(super) async fn take_body(body: Body) -> Result<Bytes, BodyError> {
    match timeout(BODY_WAIT_MAX, take_unhurried(body)).await {
        Ok(taken) => taken,
        Err(_) => Err(BodyError::TooSlow),
    }
}

async fn take_unhurried(mut body: Body) -> Result<Bytes, BodyError> {
    let mut kept = Vec::new();
    let mut seen_bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyError::Broken)?;
        let Some(data) = frame.data_ref() else { continue };
        seen_bytes += data.len() as u64;
        if seen_bytes <= BODY_BYTES_MAX {
            kept.extend_from_slice(data);
        } else {
            kept = Vec::new();
        }
        if seen_bytes > BODY_BYTES_READ_AWAY_MAX {
            break;
        }
    }
    if seen_bytes > BODY_BYTES_MAX { Err(BodyError::TooBig) } else { Ok(kept.into()) }
}

// DNS rebinding protection: rejects requests made under a host name that a web page could have.
//
// The author of a page can point the page's own name at this machine after it has loaded. Its requests are then same-origin
// and carry no `Origin` header. Such a name is a registered one, which contains a dot. Tools send any host, because a Unix
// socket has none: `shim`, `localhost`, `x`.

/// Whether the host is absent or one that only a tool would send.
pub(super) fn is_a_tools(uri: &Uri, headers: &HeaderMap) -> bool {
    // An absolute URI takes precedence over the header.
    let asked = uri.authority().map(|authority| authority.as_str());
    asked.is_none_or(is_harmless)
        && headers.get_all(header::HOST).iter().all(|host| host.to_str().is_ok_and(|host| is_harmless(host.trim())))
}

/// Whether no web page from elsewhere can have this host name.
fn is_harmless(host: &str) -> bool {
    if let Some(bracketed) = host.strip_prefix('[') {
        let address = bracketed.split_once(']').and_then(|(address, port)| is_port(port).then_some(address));
        return address.and_then(|address| address.parse().ok()).is_some_and(|address: Ipv6Addr| address.is_loopback());
    }
    let name = match host.find(':') {
        Some(colon) if is_port(&host[colon..]) => &host[..colon],
        Some(_) => return false,
        None => host,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.%".contains(&byte);
    if !name.bytes().all(plain) {
        return false;
    }
    // Names below `.localhost` never reach DNS (RFC 6761, section 6.3). Docker's tools send `api.moby.localhost`.
    let is_local = name.to_ascii_lowercase().ends_with(".localhost");
    !name.contains('.') || is_local || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
}

/// Whether `text` is empty, or a colon and a number.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body of `bytes` bytes; `expect` is the number read.
    fn check(bytes: u64, expect: Result<u64, BodyError>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let taken = runtime.block_on(take_body(Body::from(vec![b'x'; bytes as usize])));
        assert_eq!(taken.map(|taken| taken.len() as u64), expect);
    }

    #[test]
    fn bodies_are_bounded() {
        check(0, Ok(0));
        check(BODY_BYTES_MAX, Ok(BODY_BYTES_MAX));
        check(BODY_BYTES_MAX + 1, Err(BodyError::TooBig));
        check(BODY_BYTES_READ_AWAY_MAX + 1, Err(BodyError::TooBig));
    }

    #[test]
    fn registered_names_are_refused() {
        let tools = [
            "",
            "x",
            "shim",
            "codex-shim",
            "localhost",
            "LocalHost:8080",
            "localhost:",
            "127.0.0.1",
            "127.1.2.3:1",
            "[::1]",
            "[::1]:80",
            "api.moby.localhost",
            "2f746d702f73",
            "%2Ftmp%2Fs",
        ];
        for host in tools {
            assert!(is_harmless(host), "{host}");
        }
        let pages = [
            "evil.example",
            "EVIL.example:80",
            "evil.",
            ".",
            "127.0.0.1.nip.io",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "[fe80::1]",
            "[::ffff:127.0.0.1]",
            "[::1].evil.example",
            "[::1",
            "localhost:80.evil.example",
            "evil.example:x",
            "a:b@c",
            "a b",
            "localhost.evil.example",
            "xlocalhost.",
            "localhost/evil.example",
            "machine.local",
        ];
        for host in pages {
            assert!(!is_harmless(host), "{host}");
        }
    }

    #[test]
    fn uri_and_host_header_both_count() {
        let check = |uri: &str, hosts: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, host.to_vec().try_into().expect("it may be said"));
            }
            is_a_tools(&uri.parse().expect("an address"), &headers)
        };
        assert!(check("/healthz", &[]) && check("/healthz", &[b"shim"]) && check("http://shim/healthz", &[b"shim"]));
        assert!(!check("/healthz", &[b"shim", b"evil.example"]) && !check("/healthz", &[b"\xff"]));
        assert!(!check("http://evil.example/healthz", &[b"shim"]) && !check("http://evil.example/healthz", &[]));
    }
}
