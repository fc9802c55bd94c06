//! Routes that call the server: send input, interrupt a turn, any other method, stop and start.

use std::os::unix::net::UnixStream as BlockingStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse as _;
use hyper::upgrade::{OnUpgrade, Parts};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::requests::source_of;
use super::routes::{AppState, Message, PROTOCOL, Refusal, Responded, ThisSession, ok};
use super::server::Unstalled;
use crate::api::{HandoverBody, InputBody, InterruptBody, OverruleBody, OverruledDocument};
use crate::engine::{ApiReply, ApiRequest, OverruleFor, Unready, broken_in_words};
use crate::history::rfc3339_millis;
use crate::protocol::Method;
use crate::socket::Peer;

/// How long the server may take to start or interrupt a turn.
const TURN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Timeout of a call without `timeout_ms`.
const RPC_WAIT: Duration = Duration::from_secs(30);

/// Longest timeout of a call.
const RPC_WAIT_MAX: Duration = Duration::from_secs(600);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RpcBody {
    method: String,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // serde would read an array as the members in order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal::body("the body must be a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| Refusal::body(format!("the body is not valid: {error}")))
}

pub(super) async fn input(ThisSession(app): ThisSession, body: Bytes) -> Responded {
    let InputBody { text, thread_id } = read(&body)?;
    match app.call(ApiRequest::Input { text, thread_id }, TURN_WAIT_MAX).await {
        Some(ApiReply::Turn { thread_id, turn_id, steered }) => {
            ok(&json!({ "turn_id": turn_id, "thread_id": thread_id, "steered": steered }))
        }
        reply => Err(refused(&app, reply)),
    }
}

pub(super) async fn interrupt(ThisSession(app): ThisSession, body: Bytes) -> Responded {
    let InterruptBody { thread_id } = if body.is_empty() { InterruptBody::default() } else { read(&body)? };
    match app.call(ApiRequest::Interrupt { thread_id }, TURN_WAIT_MAX).await {
        Some(ApiReply::Interrupted { thread_id }) => ok(&json!({ "ok": true, "thread_id": thread_id })),
        reply => Err(refused(&app, reply)),
    }
}

pub(super) async fn overrule(
    ThisSession(app): ThisSession,
    Path((_, review_id)): Path<(String, String)>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Responded {
    let OverruleBody { next_turn } = if body.is_empty() { OverruleBody::default() } else { read(&body)? };
    let applies = if next_turn { OverruleFor::NextTurn } else { OverruleFor::ThisTurn };
    let question = ApiRequest::Overrule {
        review_id: review_id.clone(),
        applies,
        source: source_of(&headers),
        by: peer.to_string(),
    };
    match app.call(question, TURN_WAIT_MAX).await {
        Some(ApiReply::Overruled { thread_id, turn_id }) => {
            ok(&OverruledDocument { ok: true, review_id, thread_id, turn_id })
        }
        reply => Err(refused(&app, reply)),
    }
}

pub(super) async fn rpc(ThisSession(app): ThisSession, Extension(peer): Extension<Peer>, body: Bytes) -> Responded {
    let RpcBody { method, params, timeout_ms } = read(&body)?;
    if Method::of(&method) == Some(Method::Initialize) {
        let message = "only the client can initialize the server, once";
        return Err(Refusal::bad("initialize_refused", message));
    }
    let wait_max = timeout_ms.map_or(RPC_WAIT, Duration::from_millis).min(RPC_WAIT_MAX);
    let params = params.map(|params| one_line(params.get()));
    match app.call(ApiRequest::Rpc { method, params, by: peer.to_string() }, wait_max).await {
        Some(ApiReply::Answered(answer)) => {
            let answer: &RawValue = serde_json::from_str(&answer).expect("BUG: an answer is JSON");
            ok(&answer)
        }
        reply => Err(refused(&app, reply)),
    }
}

pub(super) async fn stop(ThisSession(app): ThisSession) -> Responded {
    done(&app, ApiRequest::Stop).await
}

pub(super) async fn start(ThisSession(app): ThisSession) -> Responded {
    done(&app, ApiRequest::Start).await
}

/// The error of a second wish to hand a hub over.
pub const HANDS_OVER: &str = "hands_over";

/// Has a hub become another program.
pub(super) async fn hand_over(ThisSession(app): ThisSession, body: Bytes) -> Responded {
    let program = PathBuf::from(read::<HandoverBody>(&body)?.program);
    if !program.is_absolute() {
        return Err(Refusal::bad("invalid_body", "`program` is not an absolute path"));
    }
    match app.ask(ApiRequest::HandOver { program }, TURN_WAIT_MAX).await {
        Some(ApiReply::Done) => ok(&json!({ "ok": true })),
        Some(ApiReply::HandsOver) => {
            Err(Refusal::new(StatusCode::CONFLICT, HANDS_OVER, "the hub is about to become another program already"))
        }
        Some(ApiReply::NotHandedOver(why)) => {
            Err(Refusal::new(StatusCode::CONFLICT, "not_handed_over", format!("the hub goes on as it is: {why}")))
        }
        reply => Err(refused(&app, reply)),
    }
}

async fn done(app: &AppState, question: ApiRequest) -> Responded {
    match app.ask(question, TURN_WAIT_MAX).await {
        Some(ApiReply::Done) => ok(&json!({ "ok": true })),
        reply => Err(refused(app, reply)),
    }
}

/// JSON on one line. Line breaks inside strings are escaped already.
fn one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

/// The refusal for any reply other than the expected one.
fn refused(app: &AppState, reply: Option<ApiReply>) -> Refusal {
    match reply {
        None => Refusal::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout",
            "the server did not answer in time; its answer may still come",
        ),
        Some(ApiReply::NotReady(unready)) => not_ready(app, unready),
        Some(ApiReply::Broken(name)) => broken(&name),
        Some(ApiReply::ThreadNotFound) => {
            let message = "unknown thread; name one of this session, or start one with `codex-shim send --new`";
            Refusal::new(StatusCode::NOT_FOUND, "thread_not_found", message)
        }
        Some(ApiReply::NotServed) => {
            let message = "this server belongs to its client or to a hub; only a server of `codex-shim serve` can be stopped, started and attached to";
            Refusal::new(StatusCode::CONFLICT, "not_served", message)
        }
        Some(ApiReply::ClientAttached { name }) => {
            let who = name.map_or_else(|| "a client".to_owned(), |name| format!("the client `{name}`"));
            let message = format!("{who} is attached already, and only one can be at a time");
            Refusal::new(StatusCode::CONFLICT, "client_attached", message)
        }
        Some(ApiReply::NoActiveTurn) => {
            Refusal::new(StatusCode::CONFLICT, "no_active_turn", "no turn is running in this thread")
        }
        Some(ApiReply::ReviewNotFound) => {
            let message = "no review with this id has denied anything since the server started; a denial of an earlier run \
                           cannot be overruled";
            Refusal::new(StatusCode::NOT_FOUND, "review_not_found", message)
        }
        Some(ApiReply::AlreadyOverruled) => {
            Refusal::new(StatusCode::CONFLICT, "already_overruled", "this denial was overruled before")
        }
        Some(ApiReply::TurnOver { thread_id }) => {
            let message = "the turn of this denial is over, so nothing would happen now; with `next_turn` the model learns of \
                           the approval in the next turn of the thread";
            Refusal::new(StatusCode::CONFLICT, "turn_over", message).with("thread_id", thread_id.into())
        }
        Some(ApiReply::Gated { request_id, request_type, requested_at_us }) => {
            let pending = json!({
                "request_id": request_id,
                "request_type": request_type.name(),
                "requested_at": rfc3339_millis(requested_at_us),
            });
            let message = "a request is pending in this thread; answer it first";
            Refusal::new(StatusCode::CONFLICT, "pending_structured_request", message).with("pending_request", pending)
        }
        Some(ApiReply::Answered(answer)) => {
            let mut answer: Value = serde_json::from_str(&answer).unwrap_or_default();
            let error = answer["error"].take();
            let message = error["message"].as_str().unwrap_or("the server refused the call").to_owned();
            Refusal::new(StatusCode::BAD_GATEWAY, "server_refused", message).with("error", error)
        }
        Some(
            ApiReply::Done
            | ApiReply::Admitted { .. }
            | ApiReply::Kept
            | ApiReply::NotKept
            | ApiReply::HandsOver
            | ApiReply::NotHandedOver(_)
            | ApiReply::NotOpen
            | ApiReply::Invalid(_)
            | ApiReply::Interrupted { .. }
            | ApiReply::Overruled { .. }
            | ApiReply::Turn { .. },
        ) => not_ready(app, Unready::Stopped),
    }
}

/// The refusal of everything that would write to the server.
pub(super) fn broken(name: &str) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "broken", broken_in_words(name)).with("invariant", name.into())
}

fn not_ready(app: &AppState, unready: Unready) -> Refusal {
    let message = match unready {
        Unready::Ended if app.published.child_runs() => {
            "the server ended before it answered, and runs again; the call may have had an effect"
        }
        Unready::Busy => "too many calls wait for the server; try again",
        _ if !app.published.child_runs() => {
            "the server has ended; `POST /sessions/self/start` starts a server of `codex-shim serve` again"
        }
        Unready::WithoutClient => {
            "the server has had no client yet, and takes its name from the first one; connect a client first"
        }
        Unready::NotInitialized => "the client of this server has not initialized it yet; try again",
        Unready::NotReading => "the server does not read what it is sent; try again",
        Unready::Stopped => "the session ends, or its server may not be started; `codex-shim status` says which",
        Unready::Starting | Unready::Ended => "the server has not finished starting; try again",
    };
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message)
}

// `attach`: connects a client to a server that runs without one.
//
// HTTP ends with the response 101. After it the connection carries lines, like the stdin and stdout of a server, and the relay
// owns the socket. A client that sends lines before the 101 is rejected, because bytes that hyper has buffered would be lost.

/// How long the relay may take to admit a client.
const ADMISSION_WAIT_MAX: Duration = Duration::from_secs(10);

pub(super) async fn attach(ThisSession(app): ThisSession, request: Request) -> Responded {
    if !asks_to_attach(request.headers()) {
        return Err(Refusal::upgrade_required());
    }
    let upgrade = hyper::upgrade::on(request);
    let (reply, replied) = oneshot::channel();
    // A task of its own, because hyper drops this handler with its connection. An admission is always completed or given up.
    tokio::spawn(admit(Arc::clone(&app), upgrade, reply));
    match replied.await.ok().flatten() {
        Some(ApiReply::Admitted { .. }) => {
            let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, PROTOCOL)];
            Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
        }
        reply => Err(refused(&app, reply)),
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
        app.run(Message::Client { admission, client: client(upgrade).await });
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
    use axum::http::HeaderValue;

    use super::*;

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
