//! The request tools: list, show, respond, send, interrupt and wait; and which request a name means.
//!
//! If a relay is running it is queried, and only it can decide. Otherwise requests can still be read from the ledger.
//!
//! An ambiguous name is an error. A beginning must be unique among all requests, including answered ones, so that a request that the
//! user has not seen is never taken for the one they named.

mod respond;
mod send;
mod show;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::offline::{self, answered, settle};
use super::{CliError, Done};
use super::{NO_SUCH_REQUEST, screen, select_session};
use crate::config::Environment;
use crate::control::answer::{self as body, kind_of};
use crate::control::client::{Answer, ClientError};
use crate::control::with_choices;
use crate::store::{Found, LEDGER_FILE, OfflineLedger, Otherwise, WhichRequests};
pub(super) use respond::{RespondArguments, run_respond};
pub(super) use send::{InterruptArguments, SendArguments, WaitArguments, run_interrupt, run_send, run_wait};
pub(super) use show::{RequestsArguments, ShowRequestArguments, run_requests, run_show};

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
    let is_whole = looks_whole(name);
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
    let (session, request_id) = find_in(name, &rows).map_err(|error| {
        let is_none_pending = error == NotNamed::NothingWaits;
        let error = CliError::from(error);
        // Without `--session`, this folder finds the same sessions again.
        let at = flag.and(rows.first()).map(|(session, _)| select_session::argument_for(session, flag, environment));
        let remedy = format!("`codex-shim requests --all{}` lists answered ones", at.unwrap_or_default());
        if is_none_pending { error.with_remedy(remedy) } else { error }
    })?;
    let unknown = NotNamed::Gone(request_id.clone());
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

/// The newest pending request.
const LATEST: &str = "latest";

/// Most ids that an error lists.
const TOLD_MAX: usize = 8;

/// Where a name was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Among {
    OneSession,
    Sessions,
}

/// Why a name is not resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotNamed {
    /// `latest`, but no request is pending.
    NothingWaits,
    /// No match; these requests exist, pending ones first.
    Unknown { name: String, there_are: Vec<String>, among: Among },
    /// It was found and has been deleted since.
    Gone(String),
    /// Several match.
    Ambiguous { name: String, matching: Vec<String> },
}

impl fmt::Display for NotNamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotNamed::NothingWaits => {
                write!(f, "no requests are pending")
            }
            NotNamed::Unknown { name, there_are, among } if there_are.is_empty() => match among {
                Among::OneSession => write!(f, "unknown request `{name}`: this session has had no requests"),
                Among::Sessions => write!(f, "unknown request `{name}`: these sessions have had no requests"),
            },
            NotNamed::Unknown { name, there_are, among } => {
                let place = match among {
                    Among::OneSession => "this session",
                    Among::Sessions => "these sessions",
                };
                write!(f, "unknown request `{name}`; requests in {place}: {}", listed(there_are))
            }
            NotNamed::Gone(id) => write!(f, "request {id} is gone; see `codex-shim requests --all`"),
            NotNamed::Ambiguous { name, matching } => {
                write!(f, "`{name}` matches several requests: {}; give more of the id", listed(matching))
            }
        }
    }
}

fn listed(ids: &[String]) -> String {
    let told = ids.iter().take(TOLD_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match ids.len().saturating_sub(TOLD_MAX) {
        0 => told,
        more => format!("{told} and {more} more"),
    }
}

/// The id of the request called `name` among all rows, which are sorted oldest first.
pub(super) fn find(name: &str, rows: &[Value]) -> Result<String, NotNamed> {
    if name == LATEST {
        let latest = rows.iter().rev().find(|row| waits(row)).ok_or(NotNamed::NothingWaits)?;
        return Ok(id_of(latest).to_owned());
    }
    if let Some(row) = rows.iter().find(|row| id_of(row) == name) {
        return Ok(id_of(row).to_owned());
    }
    // The part after the generation prefers the last run, because each server counts from the beginning.
    let in_last_run = rows.iter().find(|row| is_of_last_run(row, rows) && behind_generation(row) == name);
    if let Some(row) = in_last_run {
        return Ok(id_of(row).to_owned());
    }
    let ids = |rows: Vec<&Value>| rows.into_iter().map(|row| id_of(row).to_owned()).collect::<Vec<_>>();
    let behind = ids(rows.iter().filter(|row| behind_generation(row) == name).collect());
    let begin = ids(rows.iter().filter(|row| !name.is_empty() && id_of(row).starts_with(name)).collect());
    let matching = if behind.is_empty() { begin } else { behind };
    match &matching[..] {
        [one] => Ok(one.clone()),
        [] => {
            let (waiting, rest): (Vec<&Value>, Vec<&Value>) = rows.iter().rev().partition(|row| waits(row));
            let there_are = [ids(waiting), ids(rest)].concat();
            Err(NotNamed::Unknown { name: name.to_owned(), there_are, among: Among::OneSession })
        }
        _ => Err(NotNamed::Ambiguous { name: name.to_owned(), matching }),
    }
}

/// The session and id of the request called `name` in several sessions, which are sorted by last use. `latest` is the newest
/// pending request of all.
pub(super) fn find_in<S: Clone>(name: &str, sessions: &[(S, Vec<Value>)]) -> Result<(S, String), NotNamed> {
    if let [(session, rows)] = sessions {
        return Ok((session.clone(), find(name, rows)?));
    }
    let all = || sessions.iter().flat_map(|(session, rows)| rows.iter().map(move |row| (session, row)));
    if name == LATEST {
        let pending = all().filter(|(_, row)| waits(row));
        let latest = pending.max_by_key(|(_, row)| row["requested_at"].as_str().unwrap_or_default());
        let (session, row) = latest.ok_or(NotNamed::NothingWaits)?;
        return Ok((session.clone(), id_of(row).to_owned()));
    }
    let (mut found, mut matching, mut there_are) = (Vec::new(), Vec::new(), Vec::new());
    for (session, rows) in sessions {
        match find(name, rows) {
            Ok(id) => found.push((session.clone(), id)),
            Err(NotNamed::Ambiguous { matching: some, .. }) => matching.extend(some),
            Err(NotNamed::Unknown { there_are: some, .. }) => there_are.extend(some),
            Err(NotNamed::NothingWaits | NotNamed::Gone(_)) => {}
        }
    }
    matching.extend(found.iter().map(|(_, id)| id.clone()));
    match (&found[..], matching.len()) {
        ([only], 1) => Ok(only.clone()),
        (_, 0) => Err(NotNamed::Unknown { name: name.to_owned(), there_are, among: Among::Sessions }),
        (_, _) => Err(NotNamed::Ambiguous { name: name.to_owned(), matching }),
    }
}

/// The name of a row in a list: enough of its id for [`find`].
pub(super) fn short<'a>(row: &'a Value, rows: &[Value]) -> &'a str {
    if is_of_last_run(row, rows) { behind_generation(row) } else { id_of(row) }
}

/// Whether a name is a whole id, which can be looked up directly.
pub(super) fn looks_whole(name: &str) -> bool {
    const GENERATION_CHARS: usize = 12;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.bytes().all(is_plain) && name.find('-') == Some(GENERATION_CHARS)
}

pub(super) fn id_of(row: &Value) -> &str {
    row["request_id"].as_str().unwrap_or_default()
}

fn behind_generation(row: &Value) -> &str {
    let generation = row["process_generation"].as_str().unwrap_or_default();
    id_of(row).strip_prefix(generation).and_then(|rest| rest.strip_prefix('-')).unwrap_or(id_of(row))
}

fn is_of_last_run(row: &Value, rows: &[Value]) -> bool {
    rows.last().is_some_and(|last| last["process_generation"] == row["process_generation"])
}

fn waits(row: &Value) -> bool {
    row["status"] == "pending"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows() -> Vec<Value> {
        let row = |generation: &str, id: &str, status: &str| json!({"request_id": format!("{generation}-{id}"), "process_generation": generation, "status": status});
        vec![
            row("1a00aaaaaaaa", "0", "orphaned"),
            row("1a00aaaaaaaa", "7", "resolved"),
            row("bb00bbbbbbbb", "7", "resolved"),
            row("c000cccccccc", "0", "pending"),
            row("c000cccccccc", "1", "pending"),
            row("c000cccccccc", "s.x", "resolved"),
        ]
    }

    #[test]
    fn requests_have_several_names() {
        let check = |name: &str, expect: &str| assert_eq!(find(name, &rows()).as_deref(), Ok(expect), "{name}");
        check("latest", "c000cccccccc-1");
        check("c000cccccccc-0", "c000cccccccc-0");
        check("0", "c000cccccccc-0");
        check("1", "c000cccccccc-1");
        check("s.x", "c000cccccccc-s.x");
        check("bb", "bb00bbbbbbbb-7");
        check("1a00aaaaaaaa-7", "1a00aaaaaaaa-7");
        check("c000cccccccc-s", "c000cccccccc-s.x");
    }

    #[test]
    fn requests_of_several_sessions_are_distinguished() {
        let row = |id: &str, status: &str, at: &str| {
            let generation = id.split('-').next();
            json!({"request_id": id, "process_generation": generation, "status": status, "requested_at": at})
        };
        let sessions = [
            (
                "vscode",
                vec![row("aa00aaaaaaaa-0", "pending", "2026-01-01"), row("aa00aaaaaaaa-1", "pending", "2026-01-03")],
            ),
            ("zed", vec![row("bb00bbbbbbbb-0", "pending", "2026-01-02")]),
        ];
        let found = |name| find_in(name, &sessions);
        assert_eq!(found("latest"), Ok(("vscode", "aa00aaaaaaaa-1".to_owned())));
        assert_eq!(found("1"), Ok(("vscode", "aa00aaaaaaaa-1".to_owned())));
        assert_eq!(found("bb"), Ok(("zed", "bb00bbbbbbbb-0".to_owned())));
        let both = found("0").expect_err("two have that name").to_string();
        assert!(both.contains("aa00aaaaaaaa-0, bb00bbbbbbbb-0"), "{both}");
        let unknown = found("9").expect_err("none has that name").to_string();
        assert_eq!(unknown.split_once(": ").expect("a list").0, "unknown request `9`; requests in these sessions");
        assert_eq!(unknown.matches("aaaa-").count() + unknown.matches("bbbb-").count(), 3, "{unknown}");
    }

    #[test]
    fn ambiguous_names_are_refused() {
        let check = |name: &str, expect: &[&str]| match find(name, &rows()) {
            Err(NotNamed::Ambiguous { matching, .. }) => assert_eq!(matching, expect, "{name}"),
            other => panic!("{name}: {other:?}"),
        };
        check("7", &["1a00aaaaaaaa-7", "bb00bbbbbbbb-7"]);
        check("1a", &["1a00aaaaaaaa-0", "1a00aaaaaaaa-7"]);
        check("c", &["c000cccccccc-0", "c000cccccccc-1", "c000cccccccc-s.x"]);
    }

    #[test]
    fn unknown_name_lists_existing_requests() {
        let told = |name: &str, rows: &[Value]| find(name, rows).expect_err("there is none").to_string();
        assert_eq!(
            told("9", &rows()),
            "unknown request `9`; requests in this session: c000cccccccc-1, c000cccccccc-0, c000cccccccc-s.x, bb00bbbbbbbb-7, \
             1a00aaaaaaaa-7, 1a00aaaaaaaa-0"
        );
        assert!(told("", &rows()).contains("unknown request ``"));
        assert!(told("x", &[]).contains("has had no requests"));
        assert!(told("latest", &rows()[..3]) == "no requests are pending");
    }

    #[test]
    fn short_names_are_found_again() {
        let rows = rows();
        for row in &rows {
            assert_eq!(find(short(row, &rows), &rows).as_deref(), Ok(id_of(row)));
        }
        assert_eq!(short(&rows[3], &rows), "0");
    }

    #[test]
    fn whole_ids_are_recognised() {
        assert!(looks_whole("c000cccccccc-0") && looks_whole("c000cccccccc-s.a_b-c"));
        assert!(!looks_whole("0") && !looks_whole("c000cccccccc-/") && !looks_whole("-7"));
    }
}
