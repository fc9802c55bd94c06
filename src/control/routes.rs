//! The routes, and the checks that apply to all of them.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use serde::Serialize;

use super::refusal::{Refusal, json};
use super::state::{AppState, ThisSession};
use super::{attach, body, calls, context, fragments, history, host, metrics, requests, stream};

pub(super) fn router(app: AppState) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics::metrics))
        .route("/sessions/{id}", get(session))
        .route("/sessions/{id}/context", get(context::show).post(context::push).delete(context::clear))
        .route("/sessions/{id}/context/deliveries", get(context::deliveries))
        .route("/sessions/{id}/context/{command}", delete(context::drop_one))
        .route("/sessions/{id}/fragments", get(fragments::show))
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
        .route("/sessions/{id}/attach", post(attach::attach))
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
    let body = body::take(body).await;
    if head.headers.contains_key(header::ORIGIN) {
        return Refusal::Origin.into_response();
    }
    if !host::is_a_tools(&head.uri, &head.headers) {
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
