//! The answers to questions, from the relays of this host by their control sockets. They block.
//!
//! The relay decides. What it says leaves the machine as [`level`] allows.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Shared;
use crate::control::SessionDocument;
use crate::control::answer::{is_stored, of_answers, of_word};
use crate::control::client::{self, Answer, ClientError};
use crate::control::form::in_one_line;
use crate::control::request_name::{is_short_name, is_whole};
use crate::fleet::level;
use crate::fleet::subject::token;
use crate::fleet::wire::{Decision, Failure, Given, PendingRow, Question, Texts, Whole};
use crate::history::Activity;
use crate::store::{Choice, ChoiceError, Found, Otherwise, choose, label, short};

/// How long a relay may take to act: less than the client waits for the host.
const RELAY_WAIT_MAX: Duration = Duration::from_millis(4_000);

/// How long a relay may take to answer a look.
const LOOK_WAIT_MAX: Duration = Duration::from_millis(2_000);

/// Relays that one question calls at the same time.
const LOOKS_MAX: usize = 8;

/// Most pending requests of a session in the description of the host.
const PENDING_OF_SESSION_MAX: usize = 100;

/// Most requests in a reply.
const ROWS_MAX: usize = 500;

/// Longest summary in the description of the host, in bytes.
const SUMMARY_BYTES_MAX: usize = 300;

/// The newest pending request.
const LATEST: &str = "latest";

type Answered = Result<Value, Failure>;

/// Answers a question of `user`.
pub(super) fn answer(shared: &Shared, question: &Question, user: &str) -> Answered {
    match question {
        Question::Sessions { .. } => Ok(sessions(shared)),
        Question::Requests { all, session, .. } => requests(shared, *all, session.as_deref()),
        Question::Request { session, request, .. } => {
            let (_, mut document) = find(shared, session.as_deref(), request)?;
            let row = document["request"].take();
            Ok(shown(shared, &row, &document["answers"]))
        }
        Question::Usage { since, .. } => super::usage::usage(shared, since.as_deref()),
        Question::Respond { session, request, given, .. } => respond(shared, session.as_deref(), request, given, user),
        Question::Send { session, text, thread, .. } => {
            let body = with_thread(json!({ "text": text }), thread.as_deref());
            post(&live(shared, session)?, "/sessions/self/input", &body)
        }
        Question::Interrupt { session, thread, .. } => {
            post(&live(shared, session)?, "/sessions/self/interrupt", &with_thread(json!({}), thread.as_deref()))
        }
    }
}

/// The name under which the ledger keeps an answer of this user.
pub(super) fn by(user: &str, host: &str) -> String {
    let is_plain = host.bytes().all(|byte| byte.is_ascii_graphic());
    format!("fleet:{}@{}", token(user), if is_plain { host.to_owned() } else { token(host) })
}

/// The sessions, with the members of `codex-shim sessions --json`.
fn sessions(shared: &Shared) -> Value {
    let all = shared.all_sessions();
    let rows = each(&all, |session| {
        let holder = session.holder.as_ref();
        let last_used = || humantime::format_rfc3339_seconds(session.last_used).to_string();
        let started = holder.filter(|_| session.live).map(|holder| holder.started_at.clone());
        json!({
            "session_id": session.id,
            "short_id": short(session, &all),
            "name": label(session),
            "live": session.live,
            "state": state(session),
            "since": started.unwrap_or_else(last_used),
            "cwd": holder.map(|holder| &holder.place.cwd),
            "pid": holder.filter(|_| session.live).map(|holder| holder.pid),
        })
    });
    level::masked(&json!({ "sessions": rows }))
}

/// The activity of a session; `None` if its relay does not answer.
fn state(session: &Found) -> Option<Activity> {
    if !session.live {
        return Some(Activity::Stopped);
    }
    let answer = client::get_within(&session.dir, "/sessions/self", LOOK_WAIT_MAX).ok()?;
    answer.document::<SessionDocument>().ok().map(|document| document.state)
}

/// The results for all sessions, several at once, so that a silent relay hides no other.
fn each<T: Send>(sessions: &[Found], look: impl Fn(&Found) -> T + Sync) -> Vec<T> {
    let look = &look;
    let some = |some: &[Found]| {
        std::thread::scope(|scope| {
            let looks: Vec<_> = some.iter().map(|session| scope.spawn(move || look(session))).collect();
            let results = looks.into_iter().map(|look| look.join().unwrap_or_else(|panic| resume_unwind(panic)));
            results.collect::<Vec<T>>()
        })
    };
    sessions.chunks(LOOKS_MAX).flat_map(some).collect()
}

/// The rows of the requests of live sessions, oldest first.
fn requests(shared: &Shared, all: bool, session: Option<&str>) -> Answered {
    let sessions = match session {
        Some(name) => vec![live(shared, name)?],
        None => shared.all_sessions().into_iter().filter(|session| session.live).collect(),
    };
    let mut listed = Vec::new();
    let mut silent = Vec::new();
    let looked = each(&sessions, |session| rows(&session.dir, all));
    for (session, rows) in sessions.iter().zip(looked) {
        match rows {
            Ok(rows) => listed.extend(rows.into_iter().map(|row| (session.clone(), row))),
            Err(why) => silent.push(format!("session {}: {}", session.id, why.message)),
        }
    }
    listed.sort_by(|(_, one), (_, other)| text(one, "requested_at").cmp(text(other, "requested_at")));
    let left_out = listed.len().saturating_sub(ROWS_MAX);
    let rows: Vec<Value> = listed
        .iter()
        .skip(left_out)
        .map(|(session, row)| {
            let mut row = level::request(row, shared.member.level);
            row["session"] = of_session(session);
            row
        })
        .collect();
    Ok(json!({ "requests": rows, "left_out": left_out, "problems": silent }))
}

/// A session, as in the list of requests.
fn of_session(session: &Found) -> Value {
    let holder = session.holder.as_ref();
    json!({
        "session_id": session.id,
        "name": label(session),
        "cwd": holder.map(|holder| &holder.place.cwd),
        "client": holder.and_then(|holder| holder.client.as_ref()),
        "live": session.live,
    })
}

fn rows(dir: &Path, all: bool) -> Result<Vec<Value>, Failure> {
    let path = match all {
        true => "/sessions/self/codex-pending-requests?all=true",
        false => "/sessions/self/codex-pending-requests",
    };
    let answer = client::get_within(dir, path, LOOK_WAIT_MAX).map_err(|error| no_answer(&error))?;
    let mut document: Value = answer.document().map_err(|why| Failure::new("session_failed", why))?;
    match document["requests"].take() {
        Value::Array(rows) => Ok(rows),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => Ok(Vec::new()),
    }
}

/// The live session with this name.
fn live(shared: &Shared, name: &str) -> Result<Found, Failure> {
    let all = shared.all_sessions();
    let choice = Choice { named: Some(name), cwd: Path::new("/"), otherwise: Otherwise::None };
    let session = choose(&all, choice).map_err(|error| match error {
        ChoiceError::Ambiguous { .. } => Failure::new("ambiguous_session", error.to_string()),
        ChoiceError::UnknownName { .. } | ChoiceError::NoSessions | ChoiceError::NoLiveSession { .. } => {
            let host = &shared.member.host;
            Failure::new(
                "session_not_found",
                format!("host {host} has no session `{name}`; see `codex-shim fleet sessions`"),
            )
        }
    })?;
    match session.live {
        true => Ok(session.clone()),
        false => {
            let (host, name) = (&shared.member.host, session.name());
            Err(Failure::new("session_stopped", format!("session {name} of host {host} is not running")))
        }
    }
}

/// The document of a request, and its session. Without the name of a session all live ones are searched.
fn find(shared: &Shared, session: Option<&str>, request: &str) -> Result<(Found, Value), Failure> {
    let sessions = match session {
        Some(name) => vec![live(shared, name)?],
        None => shared.all_sessions().into_iter().filter(|session| session.live).collect(),
    };
    let (mut found, mut silent) = (Vec::new(), None);
    let looked = each(&sessions, |session| {
        let ids = match is_whole(request) {
            true => vec![request.to_owned()],
            false => ids_of(&session.dir, request)?,
        };
        ids.iter().map(|id| one(&session.dir, id)).collect::<Result<Vec<_>, Failure>>()
    });
    for (session, documents) in sessions.iter().zip(looked) {
        match documents {
            Ok(documents) => found.extend(documents.into_iter().flatten().map(|document| (session.clone(), document))),
            Err(why) => silent = Some(why),
        }
    }
    if request == LATEST {
        found.sort_by(|(_, one), (_, other)| {
            text(&one["request"], "requested_at").cmp(text(&other["request"], "requested_at"))
        });
        found.drain(..found.len().saturating_sub(1));
    }
    let (first, others) = (found.pop(), found.len());
    match (first, others, silent) {
        (Some(found), 0, _) => Ok(found),
        (Some(_), others, _) => {
            let message = format!(
                "`{request}` names {} requests of host {}; use a longer part of the id",
                others + 1,
                shared.member.host
            );
            Err(Failure::new("ambiguous_request", message))
        }
        (None, _, Some(why)) => Err(why),
        (None, _, None) => {
            let message = format!("no live session of host {} has a request `{request}`", shared.member.host);
            Err(Failure::new("request_not_found", format!("{message}; see `codex-shim fleet requests --all`")))
        }
    }
}

/// The ids of the requests that a name may mean.
fn ids_of(dir: &Path, name: &str) -> Result<Vec<String>, Failure> {
    let rows = rows(dir, name != LATEST)?;
    let mut ids = rows.iter().map(|row| text(row, "request_id").to_owned());
    Ok(match name {
        LATEST => ids.next_back().into_iter().collect(),
        _ => ids.filter(|id| id == name || is_short_name(name, id)).collect(),
    })
}

fn one(dir: &Path, id: &str) -> Result<Option<Value>, Failure> {
    let answer = client::get_within(dir, &path_of(id)?, LOOK_WAIT_MAX).map_err(|error| no_answer(&error))?;
    match answer.error_code().as_deref() {
        Some("request_not_found") => Ok(None),
        Some(_) | None => answer.document().map(Some).map_err(|why| Failure::new("session_failed", why)),
    }
}

/// The path of a request at the control socket. An id that could change the path is refused.
fn path_of(id: &str) -> Result<String, Failure> {
    let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match is_plain && !id.starts_with('.') && !id.is_empty() {
        true => Ok(format!("/sessions/self/codex-requests/{id}")),
        false => Err(Failure::new("request_not_found", "this is not the id of a request")),
    }
}

/// A request with its answers, as it leaves the machine.
fn shown(shared: &Shared, row: &Value, answers: &Value) -> Value {
    let level = shared.member.level;
    let answers = answers.as_array().into_iter().flatten().map(|answer| level::answer(answer, level));
    json!({ "request": level::request(row, level), "answers": answers.collect::<Vec<_>>(), "level": level.to_string() })
}

/// Answers a request: the ledger's row, and whether the given answer is the one that counts.
fn respond(shared: &Shared, session: Option<&str>, request: &str, given: &Given, user: &str) -> Answered {
    let (found, document) = find(shared, session, request)?;
    let row = &document["request"];
    let body = body(row, given)?;
    let path = format!("{}/respond", path_of(text(row, "request_id"))?);
    let by = by(user, &shared.member.host);
    let answer = client::post_by_fleet(&found.dir, &path, body.to_string(), &by, RELAY_WAIT_MAX);
    let mut document: Value = accepted(answer)?;
    let row = document["request"].take();
    let is_ours = document["idempotent"] == json!(false) || is_stored(&row, &body);
    Ok(json!({
        "ok": is_ours,
        "idempotent": document["idempotent"],
        "request": level::request(&row, shared.member.level),
    }))
}

/// The body for the relay.
fn body(row: &Value, given: &Given) -> Answered {
    let invalid = |why: String| Failure::new("invalid_response", why);
    match given {
        Given::Whole(Whole { body }) => Ok(body.clone()),
        Given::Texts(Texts { answers }) => of_answers(row, answers).map_err(|errors| invalid(in_one_line(&errors))),
        Given::Decision(decision @ Decision { reason, .. }) => {
            let word = decision.word().ok_or_else(|| invalid("unknown decision".to_owned()))?;
            of_word(row, word, reason.as_deref()).map_err(invalid)
        }
    }
}

fn with_thread(mut body: Value, thread: Option<&str>) -> Value {
    thread.into_iter().for_each(|thread| body["thread_id"] = json!(thread));
    body
}

fn post(session: &Found, path: &str, body: &Value) -> Answered {
    accepted(client::post_within(&session.dir, path, body.to_string(), RELAY_WAIT_MAX))
}

/// The document of a success, or the relay's refusal.
fn accepted(answer: Result<Answer, ClientError>) -> Answered {
    let answer = answer.map_err(|error| no_answer(&error))?;
    match answer.error_code() {
        Some(code) => {
            let message = answer.document::<Value>().err().unwrap_or_default();
            Err(Failure::new(&code, message))
        }
        None => answer.document().map_err(|why| Failure::new("session_failed", why)),
    }
}

fn no_answer(error: &ClientError) -> Failure {
    match (error.is_nobody(), error.is_unsent()) {
        (true, _) => Failure::new("session_stopped", "the session has just ended"),
        (false, true) => Failure::new("session_silent", "the relay does not answer; nothing was sent"),
        (false, false) => Failure::new("timeout", "the relay has not replied in time; it may still carry out the call"),
    }
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

/// Asks a live session for its pending requests.
pub(super) async fn refresh_pending(shared: &Arc<Shared>, found: &Found) {
    let session = found.clone();
    let asked = tokio::task::spawn_blocking(move || rows(&session.dir, false)).await;
    // A relay that does not answer may still have them.
    if let Ok(Ok(rows)) = asked {
        // The client names itself after the start of the session.
        let name = shared.found().iter().find(|session| session.id == found.id).map_or_else(|| label(found), label);
        let rows = rows.iter().take(PENDING_OF_SESSION_MAX).map(|row| pending(shared, &found.id, &name, row)).collect();
        shared.put_pending(&found.id, rows);
    }
}

fn pending(shared: &Shared, session: &str, name: &str, row: &Value) -> PendingRow {
    let own = |member: &str| row[member].as_str().map(str::to_owned);
    let mut summary = level::summary(row, shared.member.level);
    if summary.len() > SUMMARY_BYTES_MAX {
        summary.truncate(summary.floor_char_boundary(SUMMARY_BYTES_MAX));
        summary.push('…');
    }
    PendingRow {
        session_id: session.to_owned(),
        session_name: name.to_owned(),
        request_id: text(row, "request_id").to_owned(),
        request_method: text(row, "request_method").to_owned(),
        request_type: row["request_type"].clone(),
        thread_id: own("thread_id"),
        requested_at: text(row, "requested_at").to_owned(),
        expires_at: own("expires_at"),
        summary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Word;

    #[test]
    fn ledger_names_user_and_host() {
        assert_eq!(by("ann", "build-7.example"), "fleet:ann@build-7.example");
        assert_eq!(by("a b", "ä"), "fleet:a~20b@~C3~A4");
    }

    #[test]
    fn ids_cannot_leave_their_path() {
        assert!(path_of("0a1b2c3d4e5f-s.T_1").is_ok());
        for wrong in ["", "..", "a/b", "a?b", "a b", "a%2f", "é"] {
            assert!(path_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn host_makes_the_body_of_an_answer() {
        let row = json!({ "request_method": "item/commandExecution/requestApproval", "request_payload": { "command": "ls" } });
        let decline = Given::Decision(Decision::new(Word::Decline, Some("no")));
        assert_eq!(body(&row, &decline), Ok(json!({ "decision": "decline", "reason": "no" })));
        let texts = Given::Texts(Texts { answers: vec![("q".to_owned(), "x".to_owned())] });
        assert_eq!(body(&row, &texts).map_err(|failure| failure.code), Err("invalid_response".to_owned()));
        let whole = Given::Whole(Whole { body: json!({ "decision": "accept" }) });
        assert_eq!(body(&row, &whole), Ok(json!({ "decision": "accept" })));
    }
}
