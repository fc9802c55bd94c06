//! The request tools: list, show, respond, send, interrupt and wait.
//!
//! If a relay is running it is queried, and only it can decide. Otherwise requests can still be read from the ledger.

mod follow;
mod list;
mod names;
mod respond;
mod send;
mod show;

use serde::Serialize;
use serde_json::Value;

use super::offline::{self, answered, settle};
use super::{CliError, Done};
use super::{screen, select_session};
use crate::api::{OneRequest, Query as _, Request, RequestDocument, RequestList, Requests, WhichRequests};
use crate::config::Environment;
use crate::control::client::{Answer, ClientError};
use crate::control::{identify_offline, with_warnings};
use crate::index::{HISTORY_FILE, History};
use crate::requests::answer as body;
use crate::store::{Found, LEDGER_FILE, OfflineLedger, Otherwise};
#[cfg(feature = "fleet")]
pub(super) use list::{HasSession, table};
pub(super) use list::{RequestsArguments, asks_cell, run_requests};
pub(super) use names::named;
#[cfg(feature = "fleet")]
pub(super) use respond::{By, SureFlag, make_sure, parse_answer, verdict, whole_answer};
pub(super) use respond::{RespondArguments, run_respond};
#[cfg(feature = "fleet")]
pub(super) use send::TurnEnd;
pub(super) use send::{InterruptArguments, SendArguments, WaitArguments, run_interrupt, run_send, run_wait};
pub(super) use show::{ShowRequestArguments, run_show};
#[cfg(feature = "fleet")]
pub(super) use show::{outcome, question};

/// A session to read from, live or stopped.
pub(super) fn readable(flag: Option<&str>, environment: &Environment) -> Result<Found, CliError> {
    select_session::latest(flag, Otherwise::Latest, environment)
}

/// A session with a running relay.
fn running(flag: Option<&str>, environment: &Environment) -> Result<Found, CliError> {
    let session = select_session::one(flag, Otherwise::None, environment)?;
    if session.live { Ok(session) } else { Err(CliError::not_running(&session)) }
}

/// The response of a relay that the tool cannot do without.
fn needed(session: &Found, asked: Result<Answer, ClientError>) -> Result<Answer, CliError> {
    answered(session, asked)?.ok_or_else(|| CliError::not_running(session))
}

/// A refusal of a relay.
pub(super) struct Refused {
    code: String,
    pub(super) message: String,
    /// The whole error document.
    detail: Value,
}

impl Refused {
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    #[cfg(test)]
    pub(super) fn with_code(code: &str) -> Refused {
        Refused { code: code.to_owned(), message: "m".to_owned(), detail: Value::Null }
    }

    pub(super) fn of(answer: &Answer) -> Refused {
        let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let detail = document["detail"].clone();
        let code = detail["error_code"].as_str().unwrap_or_default().to_owned();
        Refused { code, message: answer.refusal(), detail }
    }
}

/// Requests, oldest first.
fn rows(session: &Found, which: WhichRequests) -> Result<Vec<Request>, CliError> {
    let RequestList { requests } = offline::ask(session, &Requests(which).path(), || {
        let Some(mut ledger) = ledger(session)? else { return Ok::<_, CliError>(Some(RequestList::default())) };
        let rows = ledger.requests(which).map_err(|error| error.to_string())?;
        let mut requests: Vec<Request> = rows.into_iter().map(Request::with_choices).collect();
        identify(session, &mut requests);
        Ok(Some(RequestList { requests }))
    })?;
    Ok(requests)
}

/// The ledger of a stopped session; open requests of runs that are over are orphaned first.
fn ledger(session: &Found) -> Result<Option<OfflineLedger>, CliError> {
    if !session.dir.join(LEDGER_FILE).exists() {
        return Ok(None);
    }
    settle(session)?;
    OfflineLedger::open(&session.dir).map(Some).map_err(|error| CliError::failed(error.to_string()))
}

/// The document of a request; `None` if the id is unknown.
fn one(session: &Found, request_id: &str) -> Result<Option<RequestDocument>, CliError> {
    let Some(query) = OneRequest::of(request_id) else { return Ok(None) };
    if let Some(answer) = offline::relay_answer(session, &query.path())? {
        return match answer.status.as_u16() {
            404 => Ok(None),
            _ => Ok(Some(answer.document()?)),
        };
    }
    kept_request(session, request_id)
}

/// The document of a request in the ledger of a stopped session; `None` if the id is unknown.
pub(super) fn kept_request(session: &Found, request_id: &str) -> Result<Option<RequestDocument>, CliError> {
    let Some(mut ledger) = ledger(session)? else { return Ok(None) };
    let kept = ledger.request(request_id).map_err(|error| CliError::failed(error.to_string()))?;
    Ok(kept.map(|RequestDocument { request, answers }| {
        let mut request = request.with_choices();
        identify(session, std::slice::from_mut(&mut request));
        RequestDocument { answers, request }
    }))
}

/// Adds who the threads of these rows are, as the history of a session says that has no relay, and what is risky about the requests.
fn identify(session: &Found, rows: &mut [Request]) {
    let path = session.dir.join(HISTORY_FILE);
    if path.exists() {
        identify_offline(&History::new(&path), rows);
    }
    with_warnings(rows);
}

/// The text of a member; empty if it is not a string.
pub(super) fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

#[must_use = "a tool whose output is lost ends with this status"]
pub(super) fn print_json(document: &impl Serialize) -> i32 {
    let text = serde_json::to_string(document).expect("BUG: plain data is JSON");
    screen::print_exactly(&format!("{text}\n"))
}
