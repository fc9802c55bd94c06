//! What can be asked for, and how a refusal reads.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde_json::{Map, Value};

use super::ask::Ask;
use super::body::{self, BODY_BYTES_MAX, BodyError};
use super::document::{IndexDocument, JournalDocument, SessionDocument};
use super::published::Published;
use super::subject::Subject;
use super::{calls, context, requests};
use crate::store::{Ledger, LedgerError};

/// What the routes answer from.
pub(super) struct Known {
    pub(super) subject: Subject,
    pub(super) published: Arc<Published>,
    pub(super) ledger: Option<Ledger>,
    pub(super) ask: Option<Ask>,
    /// Where the socket really is.
    pub(super) socket: PathBuf,
}

/// The routes, and what holds for all of them.
pub(super) fn router(known: Known) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/sessions/{id}", get(session))
        .route("/sessions/{id}/context", get(context::show).post(context::push).delete(context::clear))
        .route("/sessions/{id}/context/deliveries", get(context::deliveries))
        .route("/sessions/{id}/codex-pending-requests", get(requests::pending))
        .route("/sessions/{id}/codex-requests/{request_id}", get(requests::one))
        .route("/sessions/{id}/codex-requests/{request_id}/respond", post(requests::respond))
        .route("/sessions/{id}/input", post(calls::input))
        .route("/sessions/{id}/interrupt", post(calls::interrupt))
        .route("/sessions/{id}/rpc", post(calls::rpc))
        .route("/sessions/{id}/stop", post(calls::stop))
        .route("/sessions/{id}/start", post(calls::start))
        .fallback(|| async { Refusal::NotFound })
        .method_not_allowed_fallback(|| async { Refusal::MethodNotAllowed })
        .layer(middleware::from_fn(admit))
        .with_state(Arc::new(known))
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    SessionNotFound,
    MethodNotAllowed,
    Origin,
    Body(BodyError),
    /// The body is no JSON, or not what goes there.
    Unreadable(String),
    /// Something in it cannot be.
    Impossible(String),
    Ledger(LedgerError),
    /// Anything else, with what it tells besides its code and its message.
    Other {
        status: StatusCode,
        error_code: &'static str,
        message: String,
        more: Map<String, Value>,
    },
}

impl Refusal {
    /// One that tells no more than its code and its message.
    pub(super) fn plain(status: StatusCode, error_code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal::Other { status, error_code, message: message.into(), more: Map::new() }
    }
}

#[derive(Serialize)]
struct RefusalDocument {
    detail: Detail,
}

#[derive(Serialize)]
struct Detail {
    error_code: &'static str,
    message: String,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::NotFound | Refusal::SessionNotFound => StatusCode::NOT_FOUND,
            Refusal::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Origin => StatusCode::FORBIDDEN,
            Refusal::Body(BodyError::TooBig) => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Body(BodyError::TooSlow) => StatusCode::REQUEST_TIMEOUT,
            Refusal::Body(BodyError::Broken) | Refusal::Unreadable(_) | Refusal::Impossible(_) => {
                StatusCode::BAD_REQUEST
            }
            Refusal::Ledger(LedgerError::ThreadNotFound(_)) => StatusCode::NOT_FOUND,
            Refusal::Ledger(LedgerError::Unavailable(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Other { status, .. } => *status,
        }
    }

    fn detail(&self) -> Detail {
        let told = |error_code, message: &dyn std::fmt::Display| Detail {
            error_code,
            message: message.to_string(),
            more: Map::new(),
        };
        let (error_code, message) = match self {
            Refusal::Other { status: _, error_code, message, more } => {
                return Detail { error_code, message: message.clone(), more: more.clone() };
            }
            Refusal::Unreadable(why) => return told("invalid_body", why),
            Refusal::Impossible(why) => return told("invalid_command", why),
            Refusal::Ledger(error @ LedgerError::ThreadNotFound(_)) => return told("thread_not_found", error),
            Refusal::Ledger(error @ LedgerError::Unavailable(_)) => return told("ledger_unavailable", error),
            Refusal::NotFound => ("not_found", "there is no such path; docs/control.md lists those that there are"),
            Refusal::SessionNotFound => {
                ("session_not_found", "another session runs here; ask for its id, or for `self`")
            }
            Refusal::MethodNotAllowed => {
                ("method_not_allowed", "this path does not take that method; `Allow` has those that it takes")
            }
            Refusal::Origin => ("origin_refused", "a request with an `Origin` comes from a browser and is not served"),
            Refusal::Body(BodyError::TooBig) => {
                return told("body_too_large", &format_args!("a body has at most {BODY_BYTES_MAX} bytes"));
            }
            Refusal::Body(BodyError::TooSlow) => ("body_timeout", "the body did not come in time"),
            Refusal::Body(BodyError::Broken) => ("body_broken", "the body broke off, or is none as HTTP has them"),
        };
        told(error_code, &message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        json(self.status(), &RefusalDocument { detail: self.detail() })
    }
}

pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Response {
    let mut text = serde_json::to_vec(document).expect("BUG: plain data is JSON");
    text.push(b'\n');
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Lets a request through that may be answered at all.
async fn admit(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    // Also that of a request that is refused, so that a client that writes all of it first gets to read why.
    let body = body::take(body).await;
    if head.headers.contains_key(header::ORIGIN) {
        return Refusal::Origin.into_response();
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

async fn session(State(known): State<Arc<Known>>, _: ThisSession) -> Response {
    json(StatusCode::OK, &known.document())
}

/// Lets only those requests through to a route whose path names the session that runs here.
pub(super) struct ThisSession;

impl FromRequestParts<Arc<Known>> for ThisSession {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, known: &Arc<Known>) -> Result<ThisSession, Refusal> {
        match Path::<HashMap<String, String>>::from_request_parts(parts, known).await {
            Ok(Path(named)) if named.get("id").is_some_and(|id| known.answers_to(id)) => Ok(ThisSession),
            Ok(_) | Err(_) => Err(Refusal::SessionNotFound),
        }
    }
}

impl Known {
    fn answers_to(&self, id: &str) -> bool {
        id == "self" || id == self.subject.session_id
    }

    fn document(&self) -> SessionDocument {
        let Known { subject, published, ledger: _, ask: _, socket } = self;
        let state = published.activity();
        let bytes = crate::journal::size_bytes(&subject.journal_dir).unwrap_or_default();
        SessionDocument {
            session_id: subject.session_id.clone(),
            state,
            activity_state: state,
            generation: published.generation(),
            socket: Some(socket.to_string_lossy().into_owned()),
            child: published.child(),
            client: published.client(),
            threads: Vec::new(),
            pending_requests: published.pending(),
            context_waiting: published.waiting(),
            journal: JournalDocument { bytes, gaps: Some(published.gaps()) },
            index: IndexDocument::NONE,
            faults: published.faults(),
            counters: published.counters(),
            started_at: Some(humantime::format_rfc3339_millis(subject.started_at).to_string()),
        }
    }
}
