//! The request tools: list, show, respond, send, interrupt and wait.
//!
//! If a relay is running it is queried, and only it can decide. Otherwise requests can still be read from the ledger.

mod args;
mod list;
mod name;
mod respond;
mod send;
mod show;
mod wait;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::{CliError, Done};
use super::offline::{self, answered, settle};
use super::{NO_SUCH_REQUEST, screen, select_session};
use crate::config::Environment;
use crate::control::answer::{self as body, kind_name, kind_of};
use crate::control::client::{Answer, ClientError};
use crate::control::with_choices;
use crate::store::{Found, LEDGER_FILE, OfflineLedger, Otherwise, WhichRequests};
use name::NotNamed;

pub(super) use args::{
    Common, InterruptArguments, RequestsArguments, RespondArguments, SendArguments, ShowRequestArguments, WaitArguments,
};
pub(super) use list::run_requests;
pub(super) use respond::run_respond;
pub(super) use send::{run_interrupt, run_send};
pub(super) use show::run_show;
pub(super) use wait::run_wait;

/// A session to read from, live or stopped.
pub(super) fn readable(flag: Option<&str>, environment: &Environment) -> Result<Found, CliError> {
    select_session::latest(flag, Otherwise::Latest, environment)
}

/// The sessions to read requests from, live or stopped: all of one folder.
fn readable_all(flag: Option<&str>, environment: &Environment) -> Result<Vec<Found>, CliError> {
    select_session::several(flag, Otherwise::Latest, environment)
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

impl From<NotNamed> for CliError {
    fn from(error: NotNamed) -> CliError {
        CliError::exits(NO_SUCH_REQUEST, error.to_string())
    }
}

/// A refusal of a relay.
pub(super) struct Refused {
    code: String,
    pub(super) message: String,
    /// The whole error document.
    detail: Value,
}

impl Refused {
    pub(super) fn of(answer: &Answer) -> Refused {
        let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let detail = document["detail"].clone();
        let code = detail["error_code"].as_str().unwrap_or_default().to_owned();
        let message = match detail["message"].as_str() {
            Some(message) => message.to_owned(),
            None => format!("it answered {}: {}", answer.status, String::from_utf8_lossy(&answer.body).trim_end()),
        };
        Refused { code, message, detail }
    }
}

/// The relay's list of requests.
#[derive(Default, Deserialize)]
struct RowsDocument {
    requests: Vec<Value>,
}

/// Rows of requests, oldest first.
fn rows(session: &Found, which: WhichRequests) -> Result<Vec<Value>, CliError> {
    let path = match which {
        WhichRequests::Pending => "/sessions/self/codex-pending-requests",
        WhichRequests::PendingAndOrphaned => "/sessions/self/codex-pending-requests?include_orphaned=true",
        WhichRequests::All => "/sessions/self/codex-pending-requests?all=true",
    };
    let RowsDocument { requests } = offline::ask(session, path, || {
        let Some(mut ledger) = ledger(session)? else { return Ok(Some(RowsDocument::default())) };
        let rows = ledger.requests(which).map_err(|error| error.to_string())?;
        Ok(Some(RowsDocument { requests: rows.into_iter().map(with_choices).collect() }))
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

/// The named request and its session: in the sessions of this folder, or else in any live one. `latest` and short names are
/// resolved only in this folder, because elsewhere they mean another request.
fn named(flag: Option<&str>, name: &str, environment: &Environment) -> Result<(Found, Value), CliError> {
    let is_whole = name::looks_whole(name);
    let here = match is_whole {
        true => select_session::several_quietly(flag, Otherwise::Latest, environment)?,
        false => readable_all(flag, environment)?,
    };
    // A whole id is looked up directly, because it may be older than the list.
    if is_whole {
        let anywhere = if flag.is_some() { Vec::new() } else { select_session::all(environment)? };
        let elsewhere = anywhere.into_iter().filter(|session| session.live && !here.contains(session));
        for session in here.iter().cloned().chain(elsewhere) {
            if let Some(document) = one(&session, name)? {
                return Ok((session, document));
            }
        }
    }
    let rows: Vec<(Found, Vec<Value>)> = here
        .into_iter()
        .map(|session| rows(&session, WhichRequests::All).map(|rows| (session, rows)))
        .collect::<Result<_, _>>()?;
    let (session, request_id) = name::find_in(name, &rows).map_err(|error| {
        let is_none_pending = error == NotNamed::NothingWaits;
        let error = CliError::from(error);
        // Without `--session`, this folder finds the same sessions again.
        let at = flag.and(rows.first()).map(|(session, _)| select_session::argument_for(session, flag, environment));
        let remedy = format!("`codex-shim requests --all{}` lists answered ones", at.unwrap_or_default());
        if is_none_pending { error.with_remedy(remedy) } else { error }
    })?;
    let unknown = NotNamed::Unknown { name: request_id.clone(), there_are: Vec::new() };
    let document = one(&session, &request_id)?.ok_or(unknown)?;
    Ok((session, document))
}

/// The document of a request; `None` if the id is unknown.
fn one(session: &Found, request_id: &str) -> Result<Option<Value>, CliError> {
    let path = format!("/sessions/self/codex-requests/{request_id}");
    if let Some(answer) = offline::relay_answer(session, &path)? {
        return match answer.status.as_u16() {
            404 => Ok(None),
            _ => Ok(Some(answer.document()?)),
        };
    }
    let Some(mut ledger) = ledger(session)? else { return Ok(None) };
    let kept = ledger.request(request_id).map_err(|error| CliError::failed(error.to_string()))?;
    Ok(kept.map(|kept| json!({ "request": with_choices(kept.row), "answers": kept.answers })))
}

/// The text of a member; empty if it is not a string.
fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

pub(super) fn print_json(document: &impl Serialize) -> i32 {
    let text = serde_json::to_string(document).expect("BUG: plain data is JSON");
    screen::print_exactly(&format!("{text}\n"))
}
