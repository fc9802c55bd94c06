//! Error responses, and JSON responses.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use super::routes::{BODY_BYTES_MAX, BodyError};
use super::state::PROTOCOL;
use crate::store::LedgerError;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    SessionNotFound,
    MethodNotAllowed,
    Origin,
    Host,
    UpgradeRequired,
    Body(BodyError),
    /// The body is not valid JSON, or does not have the form that the path takes.
    Unreadable(String),
    /// A value in the body is not valid.
    Impossible(String),
    Ledger(LedgerError),
    /// Any other error, with members besides its code and message.
    Other {
        status: StatusCode,
        error_code: &'static str,
        message: String,
        more: Map<String, Value>,
    },
}

impl Refusal {
    /// An error with only a code and a message.
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
            Refusal::Origin | Refusal::Host => StatusCode::FORBIDDEN,
            Refusal::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
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
            Refusal::NotFound => ("not_found", "unknown path; docs/control.md lists the paths"),
            Refusal::SessionNotFound => {
                ("session_not_found", "this socket belongs to another session; use its id, or `self`")
            }
            Refusal::MethodNotAllowed => {
                ("method_not_allowed", "this path does not take that method; the header `Allow` lists its methods")
            }
            Refusal::Origin => {
                ("origin_refused", "a request with an `Origin` header comes from a browser and is refused")
            }
            Refusal::Host => (
                "host_refused",
                "a `Host` with a dot could be the name of a web page and is refused; use `localhost` or any one word",
            ),
            Refusal::UpgradeRequired => (
                "upgrade_required",
                "attach with `Connection: Upgrade` and `Upgrade: codex-shim-attach`, or use `codex-shim attach`",
            ),
            Refusal::Body(BodyError::TooBig) => {
                return told("body_too_large", &format_args!("the body is over {BODY_BYTES_MAX} bytes"));
            }
            Refusal::Body(BodyError::TooSlow) => ("body_timeout", "the body did not arrive in time"),
            Refusal::Body(BodyError::Broken) => ("body_broken", "the body ended early, or is not valid HTTP"),
        };
        told(error_code, &message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json(self.status(), &RefusalDocument { detail: self.detail() });
        if self == Refusal::UpgradeRequired {
            response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
        }
        response
    }
}

pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Response {
    let mut text = serde_json::to_vec(document).expect("BUG: plain data is JSON");
    text.push(b'\n');
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}
