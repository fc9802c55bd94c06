//! How a refusal reads, and how a document is sent.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use super::ask::PROTOCOL;
use super::body::{BODY_BYTES_MAX, BodyError};
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
            Refusal::NotFound => ("not_found", "there is no such path; docs/control.md lists those that there are"),
            Refusal::SessionNotFound => {
                ("session_not_found", "another session runs here; ask for its id, or for `self`")
            }
            Refusal::MethodNotAllowed => {
                ("method_not_allowed", "this path does not take that method; `Allow` has those that it takes")
            }
            Refusal::Origin => ("origin_refused", "a request with an `Origin` comes from a browser and is not served"),
            Refusal::Host => (
                "host_refused",
                "a `Host` with a dot in it is a name that a page in a browser can have; say `localhost` or any one word",
            ),
            Refusal::UpgradeRequired => (
                "upgrade_required",
                "a client attaches with `Connection: Upgrade` and `Upgrade: codex-shim-attach`; `codex-shim attach` does so",
            ),
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
