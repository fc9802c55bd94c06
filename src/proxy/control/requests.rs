//! Routes of the ledger: pending requests, one request with its answers, and answering.

use std::time::{Duration, SystemTime};

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::calls::broken;
use super::routes::{AppState, Refusal, Responded, ThisSession, ok};
use crate::api::{self, Request, RequestDocument, RequestList, WhichRequests};
use crate::engine::{ApiReply, ApiRequest, GivenAnswer, GivenRow, RequestKind, RequestSource, valid};
use crate::requests::answer::takes;
use crate::requests::form;
use crate::socket::Peer;
use crate::store::LedgerError;

/// How long the relay may take to decide on an answer and store it.
const DECISION_WAIT_MAX: Duration = Duration::from_secs(10);

/// The header by which our own tools name themselves.
pub(super) const SOURCE_HEADER: &str = "x-codex-shim-source";

/// The header by which the agent of a fleet names the user who has answered: `fleet:USER@HOST`. Callers are trusted with it, because
/// they run as our user and could write the ledger itself.
pub(super) const BY_HEADER: &str = "x-codex-shim-by";

/// Longest name in it, in bytes.
const BY_BYTES_MAX: usize = 512;

/// The user in [`BY_HEADER`].
fn on_behalf_of(headers: &HeaderMap) -> Option<String> {
    let by = headers.get(BY_HEADER)?.to_str().ok()?;
    let is_user =
        by.starts_with("fleet:") && by.len() <= BY_BYTES_MAX && by.bytes().all(|byte| byte.is_ascii_graphic());
    is_user.then(|| by.to_owned())
}

pub(super) async fn pending(ThisSession(app): ThisSession, RawQuery(query): RawQuery) -> Responded {
    let which = which(query.as_deref().unwrap_or_default())?;
    let rows = app.ledger()?.requests(which).await?;
    let mut requests: Vec<Request> = rows.into_iter().map(Request::with_choices).collect();
    if let Ok(historian) = app.historian() {
        historian.identify(&mut requests).await;
    }
    app.warnings.add_members(&mut requests);
    ok(&RequestList { requests })
}

fn which(query: &str) -> Result<WhichRequests, Refusal> {
    let mut which = WhichRequests::Pending;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        which = match (name, value) {
            ("include_orphaned", "true" | "1") => WhichRequests::PendingAndOrphaned,
            ("include_orphaned", "false" | "0") => WhichRequests::Pending,
            ("all", "true" | "1") => WhichRequests::All,
            (_, _) => {
                let message =
                    format!("unknown parameter `{pair}`; this path takes `include_orphaned=true` and `all=true`");
                return Err(Refusal::bad("invalid_parameter", message));
            }
        };
    }
    Ok(which)
}

pub(super) async fn one(ThisSession(app): ThisSession, Path((_, request_id)): Path<(String, String)>) -> Responded {
    let RequestDocument { request, answers } = kept(&app, request_id).await?;
    let mut request = request.with_choices();
    if let Ok(historian) = app.historian() {
        historian.identify(std::slice::from_mut(&mut request)).await;
    }
    app.warnings.add_members(std::slice::from_mut(&mut request));
    ok(&RequestDocument { answers, request })
}

async fn kept(app: &AppState, request_id: String) -> Result<RequestDocument, Refusal> {
    app.ledger()?.request(request_id).await?.ok_or_else(not_found)
}

fn not_found() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "request_not_found",
        "unknown request; `…/codex-pending-requests?all=true` lists the requests of this session",
    )
}

/// Which of our own tools calls, if any.
pub(super) fn source_of(headers: &HeaderMap) -> RequestSource {
    match headers.get(SOURCE_HEADER).map(|source| source.as_bytes()) {
        Some(b"cli") => RequestSource::Cli,
        Some(b"tui") => RequestSource::Tui,
        Some(b"web") => RequestSource::Web,
        Some(_) | None => RequestSource::Api,
    }
}

pub(super) async fn respond(
    ThisSession(app): ThisSession,
    Path((_, request_id)): Path<(String, String)>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Responded {
    let value: Value = serde_json::from_slice(&body)
        .map_err(|error| Refusal::body(format!("the body is not an answer in JSON: {error}")))?;
    let source = source_of(&headers);
    let by = on_behalf_of(&headers).unwrap_or_else(|| peer.to_string());
    let given: Result<GivenAnswer, _> = match value.is_object() {
        true => serde_json::from_value(value.clone()).map_err(|error| error.to_string()),
        // serde would read an array as the members in order.
        false => Err("it is an object".to_owned()),
    };
    let given = match given {
        Ok(given) => given,
        Err(why) => return Err(unreadable(&app, request_id, &why).await?),
    };
    if let Some(content) = given.accepted_content() {
        check_form(&app, request_id.clone(), &content).await?;
    }
    let question =
        ApiRequest::Respond { request_id: request_id.clone(), given: Box::new(given), source, by: by.clone() };
    match app.ask(question, DECISION_WAIT_MAX).await {
        Some(ApiReply::Kept) => {
            let request = kept(&app, request_id).await?.request;
            ok(&api::Responded { idempotent: false, ok: true, request })
        }
        Some(ApiReply::NotOpen) => answered_before(&app, request_id, value, source, by).await,
        Some(ApiReply::Invalid(invalid)) => Err(invalid_response(invalid.message, invalid.valid)),
        Some(ApiReply::Broken(name)) => Err(broken(&name)),
        Some(ApiReply::NotReady(_)) => {
            let message = "the server has exited or is not reading, so no answer can reach it";
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message))
        }
        None => {
            let message = "the answer may not have been stored yet; look at the request again";
            Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, "timeout", message))
        }
        Some(_) => {
            let why = "the answer could not be stored, so it was not sent; the request is still pending";
            Err(LedgerError::Unavailable(why.to_owned()).into())
        }
    }
}

/// Refuses form content that violates the schema of a pending request. It runs outside the relay thread.
async fn check_form(app: &AppState, request_id: String, content: &Value) -> Result<(), Refusal> {
    let request = kept(app, request_id).await?.request;
    let errors = if request.is_pending() { form::check(request.form(), content) } else { Vec::new() };
    if errors.is_empty() {
        return Ok(());
    }
    let named = errors.iter().filter_map(|error| Some((error.field.clone()?, json!(error.message))));
    let valid = valid(RequestKind::Elicitation, &request.request_payload);
    Err(invalid_response(form::in_one_line(&errors), valid).with("fields", Value::Object(named.collect())))
}

/// The refusal for an invalid answer; `valid` says what would be valid.
fn invalid_response(message: String, valid: Value) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_response", message).with("valid", valid)
}

/// The refusal for a malformed answer; it says what would be valid.
async fn unreadable(app: &AppState, request_id: String, why: &str) -> Result<Refusal, Refusal> {
    let request = kept(app, request_id).await?.request;
    let message = format!("the body is not a valid answer: {}; {}", without_members(why), takes(&request));
    Ok(invalid_response(message, valid(request.kind(), &request.request_payload)))
}

/// An error of serde without its list of all members of all kinds of requests.
fn without_members(why: &str) -> &str {
    why.split(", expected one of").next().unwrap_or(why)
}

/// The response if the request is no longer pending, or unknown.
async fn answered_before(
    app: &AppState,
    request_id: String,
    value: Value,
    source: RequestSource,
    by: String,
) -> Responded {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at_us = since_epoch.as_micros() as u64;
    let given = GivenRow { request_id, at_us, source, by, payload: value.to_string() };
    let request = app.ledger()?.answer_late(given).await?.ok_or_else(not_found)?;
    match request.is_resolved() {
        true => ok(&api::Responded { idempotent: true, ok: true, request }),
        false => {
            let message = format!("the request is {}", request.status);
            Err(Refusal::new(StatusCode::NOT_FOUND, "request_unavailable", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_users_of_a_fleet_are_named() {
        let check = |by: &str, expect: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(BY_HEADER, HeaderValue::from_bytes(by.as_bytes()).expect("a value"));
            assert_eq!(on_behalf_of(&headers).as_deref(), expect, "{by}");
        };
        check("fleet:ann@build-7", Some("fleet:ann@build-7"));
        check("uid 0, pid 1", None);
        check("rule:list", None);
        check("fleet:ann smith@h", None);
        check("fleet:ä@h", None);
        check(&format!("fleet:{}", "x".repeat(BY_BYTES_MAX)), None);
        assert_eq!(on_behalf_of(&HeaderMap::new()), None);
    }
}
