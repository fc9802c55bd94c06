//! The tools of the ledger: what waits for an answer, giving one, and speaking to the model from the side.
//!
//! Where a relay runs it is asked, and it alone decides; where none does, what was can still be read from the ledger's file.

mod args;
mod list;
mod name;
mod respond;
mod send;
mod show;
mod sight;
mod terminal;
mod turn_end;
mod wait;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::chosen::{self, NotChosen};
use super::history::NotAThread;
use super::past::{NoPast, settle};
use super::{FAILED, NO_SUCH_REQUEST, NOT_RUNNING, USAGE, say, screen};
use crate::config::Environment;
use crate::control::answer::{self as body, kind_name, kind_of};
use crate::control::client::{self, Answer, ClientError};
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

/// Why one of these tools cannot do what it was asked for.
#[derive(Debug)]
pub(super) enum Stop {
    NotChosen(NotChosen),
    /// No relay runs in the session of this id.
    NotRunning(String),
    #[expect(private_interfaces, reason = "made and told here alone")]
    NotNamed(NotNamed),
    NoSuchThread(NotAThread),
    /// The arguments do not fit the request.
    Usage(String),
    Failed(String),
}

impl Stop {
    /// Tells the user, and gives the status to exit with.
    pub(super) fn told(&self) -> i32 {
        match self {
            Stop::NotChosen(error) => return error.told(),
            Stop::NotRunning(_) | Stop::NotNamed(_) | Stop::NoSuchThread(_) | Stop::Usage(_) | Stop::Failed(_) => {}
        }
        say(&screen::plain(&self.to_string()));
        match self {
            Stop::NotRunning(_) => NOT_RUNNING,
            Stop::NotNamed(_) => NO_SUCH_REQUEST,
            Stop::Usage(_) => USAGE,
            Stop::NotChosen(_) | Stop::NoSuchThread(_) | Stop::Failed(_) => FAILED,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::NotChosen(error) => error.fmt(f),
            Stop::NotRunning(id) => {
                write!(f, "session {id} is not running; start your tool in its folder, or run `codex-shim sessions`")
            }
            Stop::NotNamed(error) => error.fmt(f),
            Stop::NoSuchThread(error) => error.fmt(f),
            Stop::Usage(why) | Stop::Failed(why) => f.write_str(why),
        }
    }
}

/// What a tool has come to, as the status to exit with.
pub(super) fn status(done: Result<i32, Stop>) -> i32 {
    done.unwrap_or_else(|stop| stop.told())
}

/// The session that a tool reads, live or not.
pub(super) fn readable(flag: Option<&str>, environment: &Environment) -> Result<Found, Stop> {
    chosen::latest(flag, Otherwise::Latest, environment).map_err(Stop::NotChosen)
}

/// The sessions whose requests a tool reads, live or not: all those of one folder.
fn readable_all(flag: Option<&str>, environment: &Environment) -> Result<Vec<Found>, Stop> {
    chosen::several(flag, Otherwise::Latest, environment).map_err(Stop::NotChosen)
}

/// The session whose relay a tool needs.
fn running(flag: Option<&str>, environment: &Environment) -> Result<Found, Stop> {
    let session = chosen::one(flag, Otherwise::None, environment).map_err(Stop::NotChosen)?;
    if session.live { Ok(session) } else { Err(Stop::NotRunning(session.id)) }
}

/// The answer of a relay that is needed.
fn needed(session: &Found, asked: Result<Answer, ClientError>) -> Result<Answer, Stop> {
    answered(session, asked)?.ok_or_else(|| Stop::NotRunning(session.id.clone()))
}

/// The answer of a relay; `None` where it has ended since it was found.
pub(super) fn answered(session: &Found, asked: Result<Answer, ClientError>) -> Result<Option<Answer>, Stop> {
    match asked {
        Ok(answer) => Ok(Some(answer)),
        Err(_) if !session.is_still_live() => Ok(None),
        Err(error) => Err(Stop::Failed(error.told(session))),
    }
}

/// What a relay said against something.
pub(super) struct Refused {
    code: String,
    pub(super) message: String,
    /// All of it.
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

/// What a relay says of the requests that there are.
#[derive(Deserialize)]
struct RowsDocument {
    requests: Vec<Value>,
}

/// Rows of requests, oldest first.
fn rows(session: &Found, which: WhichRequests) -> Result<Vec<Value>, Stop> {
    let path = match which {
        WhichRequests::Pending => "/sessions/self/codex-pending-requests",
        WhichRequests::PendingAndOrphaned => "/sessions/self/codex-pending-requests?include_orphaned=true",
        WhichRequests::All => "/sessions/self/codex-pending-requests?all=true",
    };
    if session.live
        && let Some(answer) = answered(session, client::get(&session.dir, path))?
    {
        return answer.document().map(|RowsDocument { requests }| requests).map_err(Stop::Failed);
    }
    let Some(mut ledger) = ledger(session)? else { return Ok(Vec::new()) };
    let rows = ledger.requests(which).map_err(|error| Stop::Failed(error.to_string()))?;
    Ok(rows.into_iter().map(with_choices).collect())
}

/// The ledger's file, where there is one; what runs that are over have left open is orphaned first.
fn ledger(session: &Found) -> Result<Option<OfflineLedger>, Stop> {
    if !session.dir.join(LEDGER_FILE).exists() {
        return Ok(None);
    }
    match settle(session) {
        // A relay that runs by now does that itself.
        Ok(()) | Err(NoPast::Live | NoPast::NothingRecorded) => {}
        Err(NoPast::Failed(why)) => return Err(Stop::Failed(why)),
    }
    OfflineLedger::open(&session.dir).map(Some).map_err(|error| Stop::Failed(error.to_string()))
}

/// The request that is meant, and its session: one of those in our folder, else of any live session. `latest` and the
/// short names of a list never leave our folder, since they mean another request elsewhere.
fn named(flag: Option<&str>, name: &str, environment: &Environment) -> Result<(Found, Value), Stop> {
    let here = readable_all(flag, environment)?;
    // A whole id is asked for at once: it may be older than what a list has.
    if name::looks_whole(name) {
        let anywhere = if flag.is_some() { Vec::new() } else { chosen::all(environment).map_err(Stop::NotChosen)? };
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
    let (session, request_id) = name::find_in(name, &rows).map_err(Stop::NotNamed)?;
    let unknown = NotNamed::Unknown { name: request_id.clone(), there_are: Vec::new() };
    let document = one(&session, &request_id)?.ok_or(Stop::NotNamed(unknown))?;
    Ok((session, document))
}

/// The document of one request; `None` where there is none of that id.
fn one(session: &Found, request_id: &str) -> Result<Option<Value>, Stop> {
    if session.live {
        let path = format!("/sessions/self/codex-requests/{request_id}");
        if let Some(answer) = answered(session, client::get(&session.dir, &path))? {
            return match answer.status.as_u16() {
                404 => Ok(None),
                _ => answer.document().map(Some).map_err(Stop::Failed),
            };
        }
    }
    let Some(mut ledger) = ledger(session)? else { return Ok(None) };
    let kept = ledger.request(request_id).map_err(|error| Stop::Failed(error.to_string()))?;
    Ok(kept.map(|kept| json!({ "request": with_choices(kept.row), "answers": kept.answers })))
}

/// The text of a member, nothing where it is none.
fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

pub(super) fn print_json(document: &impl Serialize) -> i32 {
    let text = serde_json::to_string(document).expect("BUG: plain data is JSON");
    screen::print(&format!("{text}\n"))
}
