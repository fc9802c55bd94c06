//! The answers to questions, from the relays of this host by their control sockets. They block.
//!
//! The relay decides. [`level`] decides how much of its answer leaves the machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Shared;
use crate::api::{
    Command, InputBody, InterruptBody, OneRequest, Request, RequestDocument, RequestSession, Requests, Responded,
    State, WhichRequests,
};
use crate::control::client::{self, Caller, Unanswered};
use crate::control::{listed_session, session_of_request};
use crate::fleet::level::{self, Leaving};
use crate::fleet::subject::token;
use crate::fleet::wire::{Failure, Question};
use crate::history::Activity;
use crate::requests::answer::is_stored;
use crate::requests::given::Given;
use crate::sessions::request_names::{
    IsHere, LATEST, Looked, NotNamed, find_anywhere, find_here, has_short_form, is_whole,
};
use crate::sessions::stopped::stored_request;
use crate::sessions::{at_once, inbox, read_each};
use crate::store::{Choice, ChoiceError, Found, Otherwise, choose};

/// How long a relay may take to act: less than the client waits for the host.
const RELAY_WAIT_MAX: Duration = Duration::from_millis(4_000);

/// How long a relay may take to answer a look.
const LOOK_WAIT_MAX: Duration = Duration::from_millis(2_000);

/// How long stopped sessions are searched for a request.
const SEARCH_MAX: Duration = Duration::from_millis(2_000);

/// Most requests in a reply.
const ROWS_MAX: usize = 500;

/// The code of a failure to read sessions.
const UNREADABLE: &str = "sessions_unreadable";

type Answered = Result<Leaving, Failure>;

/// Answers a question of `user`.
pub(super) fn answer(shared: &Shared, question: &Question, user: &str) -> Answered {
    match question {
        Question::Sessions { .. } => sessions(shared),
        Question::Requests { all, session, .. } => requests(shared, *all, session.as_deref()),
        Question::Request { session, request, .. } => {
            let (session, document) = find(shared, session.as_deref(), request)?;
            Ok(level::shown(&session, &document, shared.member.level))
        }
        Question::Usage { since, .. } => super::usage::usage(shared, since.as_deref()),
        Question::Respond { session, request, given, .. } => {
            let asked = find(shared, session.as_deref(), request)?;
            Ok(level::answered(&respond(shared, &asked, given, user)?, shared.member.level))
        }
        Question::Send { session, text, thread, .. } => {
            let message = InputBody { text: text.clone(), thread_id: thread.clone() };
            send(shared, &live(shared, session)?, &Command::Input(message))
        }
        Question::Interrupt { session, thread, .. } => {
            let turn = InterruptBody { thread_id: thread.clone() };
            send(shared, &live(shared, session)?, &Command::Interrupt(turn))
        }
    }
}

/// The name under which the ledger keeps an answer of this user.
pub(super) fn by(user: &str, host: &str) -> String {
    let is_plain = host.bytes().all(|byte| byte.is_ascii_graphic());
    format!("fleet:{}@{}", token(user), if is_plain { host.to_owned() } else { token(host) })
}

/// The sessions, with the members of `codex-shim sessions --json`.
fn sessions(shared: &Shared) -> Answered {
    let all = all_sessions(shared)?;
    let rows = at_once(&all, |session| json!(listed_session(session, &all, state(session))));
    Ok(level::sessions(&rows, shared.member.level))
}

/// The sessions of the host. A list that cannot be read is not an empty one.
pub(super) fn all_sessions(shared: &Shared) -> Result<Vec<Found>, Failure> {
    shared.all_sessions().map_err(|why| Failure::quoted(UNREADABLE, why))
}

/// The activity of a session; `None` if its relay does not answer.
fn state(session: &Found) -> Option<Activity> {
    if !session.live {
        return Some(Activity::Stopped);
    }
    client::ask(&session.dir, &State, LOOK_WAIT_MAX).ok().map(|document| document.state)
}

/// The rows of the requests of live sessions, oldest first.
fn requests(shared: &Shared, all: bool, session: Option<&str>) -> Answered {
    let sessions = match session {
        Some(name) => vec![live(shared, name)?],
        None => all_sessions(shared)?.into_iter().filter(|session| session.live).collect(),
    };
    let which = if all { WhichRequests::All } else { WhichRequests::Pending };
    let (listed, silent) = inbox(&sessions, |session| rows(&session.dir, which));
    let left_out = listed.len().saturating_sub(ROWS_MAX);
    let with_session = |(session, row): (Found, Request)| {
        let of_session = session_of_request(&session, &row);
        (row, RequestSession { session_id: Some(session.id), ..of_session })
    };
    let rows: Vec<(Request, RequestSession)> = listed.into_iter().skip(left_out).map(with_session).collect();
    Ok(level::requests(&rows, left_out, &silent, shared.member.level))
}

pub(super) fn rows(dir: &Path, which: WhichRequests) -> Result<Vec<Request>, Failure> {
    let listed = client::ask(dir, &Requests(which), LOOK_WAIT_MAX);
    listed.map(|list| list.requests).map_err(|error| unread(&error))
}

/// The live session with this name.
fn live(shared: &Shared, name: &str) -> Result<Found, Failure> {
    let all = all_sessions(shared)?;
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

/// The document of a request, and its session. Without the name of a session all live ones are searched, and for a whole id the stopped
/// ones too.
pub(super) fn find(shared: &Shared, session: Option<&str>, request: &str) -> Result<(Found, RequestDocument), Failure> {
    // One list for both: a session that starts meanwhile would be missing in the live ones of one and the stopped ones of another.
    let (sessions, stopped): (Vec<Found>, Vec<Found>) = match session {
        Some(name) => (vec![live(shared, name)?], Vec::new()),
        None => all_sessions(shared)?.into_iter().partition(|session| session.live),
    };
    let unknown = || {
        let message = format!("no live session of host {} has a request `{request}`", shared.member.host);
        Failure::new("request_not_found", format!("{message}; see `codex-shim fleet requests --all`"))
    };
    if !is_whole(request) {
        let (session, id) = named(&sessions, request)?.ok_or_else(unknown)?;
        let document = one(&session.dir, &id)?.ok_or_else(unknown)?;
        return Ok((session, document));
    }
    let (mut found, mut silent) = read_each(&sessions, |session| one(&session.dir, request));
    match (found.pop(), found.is_empty()) {
        (Some(found), true) => return Ok(found),
        // A copy of a session's folder has its requests too.
        (Some(_), false) => {
            let message = format!("several sessions of host {} have a request `{request}`", shared.member.host);
            return Err(Failure::new("ambiguous_request", message));
        }
        (None, _) => {}
    }
    match (in_stopped(&stopped, request), silent.pop()) {
        (Ok(Some(found)), _) => Ok(found),
        // A relay that does not answer hides no stopped session.
        (Ok(None) | Err(_), Some((_, why))) | (Err(why), None) => Err(why),
        (Ok(None), None) => Err(unknown()),
    }
}

/// The session and the id of the request that a name means, if there is one.
fn named(sessions: &[Found], name: &str) -> Result<Option<(Found, String)>, Failure> {
    // The newest request may be in any session. A number alone would soon name a request that the user has not seen.
    let (which, is_here) = match name {
        LATEST => (WhichRequests::Pending, IsHere::Yes),
        _ if has_short_form(name) => (WhichRequests::All, IsHere::No),
        _ => return Ok(None),
    };
    let (read, mut silent) = read_each(sessions, |session| rows(&session.dir, which).map(Some));
    let looked = |(session, rows)| Looked { session, is_here, of_others: BTreeSet::new(), rows };
    let read: Vec<Looked<Found>> = read.into_iter().map(looked).collect();
    let found = find_here(name, &read).and_then(|found| found.map_or_else(|| find_anywhere(name, &read), Ok));
    match (found, silent.pop()) {
        (Ok(found), _) => Ok(Some(found)),
        (Err(error @ NotNamed::Ambiguous { .. }), _) => Err(Failure::new("ambiguous_request", error.to_string())),
        (Err(_), Some((_, why))) => Err(why),
        (Err(_), None) => Ok(None),
    }
}

/// A request of a stopped session, by its whole id.
fn in_stopped(stopped: &[Found], request: &str) -> Result<Option<(Found, RequestDocument)>, Failure> {
    let (began, mut is_unreadable) = (Instant::now(), false);
    for session in stopped {
        if began.elapsed() >= SEARCH_MAX {
            let message = "the request is not in a live session, and this host has too many stopped ones to search";
            return Err(Failure::new("timeout", message));
        }
        // A session that cannot be read hides no other. Its relay may be starting.
        match stored_request(session, request) {
            Ok(Some(document)) => return Ok(Some((session.clone(), document))),
            Ok(None) => {}
            Err(_) => is_unreadable = true,
        }
    }
    match is_unreadable {
        true => {
            let message =
                "the request is not in a live session, and this host has stopped ones that cannot be read now";
            Err(Failure::new(UNREADABLE, message))
        }
        false => Ok(None),
    }
}

fn one(dir: &Path, id: &str) -> Result<Option<RequestDocument>, Failure> {
    match client::ask(dir, &query(id)?, LOOK_WAIT_MAX) {
        Err(error) if error.code() == "request_not_found" => Ok(None),
        answered => answered.map(Some).map_err(|error| unread(&error)),
    }
}

fn query(id: &str) -> Result<OneRequest, Failure> {
    OneRequest::of(id).ok_or_else(|| Failure::new("request_not_found", "this is not the id of a request"))
}

/// Answers a request; `ok` says whether the given answer counts.
pub(super) fn respond(
    shared: &Shared,
    (found, RequestDocument { request: row, .. }): &(Found, RequestDocument),
    given: &Given,
    user: &str,
) -> Result<Responded, Failure> {
    let body = body(row, given)?;
    if !found.live {
        return match &*row.status {
            "resolved" => Ok(Responded { idempotent: true, ok: is_stored(row, &body), request: row.clone() }),
            // The server of a hub outlives it.
            "pending" => Err(Failure::new("session_stopped", "the session of this request is not running")),
            status => Err(Failure::new("request_unavailable", format!("the request is {status}"))),
        };
    }
    let by = by(user, &shared.member.host);
    let command = Command::Respond(query(&row.request_id)?, body.clone());
    let replied: Responded = commanded(found, &command, Caller::Fleet(&by))?;
    Ok(Responded { ok: !replied.idempotent || is_stored(&replied.request, &body), ..replied })
}

/// Whether the answer that counts for a request is this one.
pub(super) fn holds(row: &Request, given: &Given) -> bool {
    body(row, given).is_ok_and(|body| is_stored(row, &body))
}

/// Whether a failure may be over later: a relay that is away, that does not answer, or that has just started.
pub(super) fn may_pass(failure: &Failure) -> bool {
    let passing = [
        UNREADABLE,
        "session_silent",
        "session_stopped",
        "session_failed",
        "timeout",
        "not_ready",
        "ledger_unavailable",
        "failed",
    ];
    passing.contains(&&*failure.code)
}

/// Whether an answer that has failed so surely did not reach the relay.
pub(super) fn is_unsent(failure: &Failure) -> bool {
    ["session_silent", "session_stopped", "not_ready"].contains(&&*failure.code)
}

/// The body for the relay.
fn body(row: &Request, given: &Given) -> Result<Value, Failure> {
    given.body(row).map_err(|why| Failure::quoted("invalid_response", why))
}

fn send(shared: &Shared, session: &Found, command: &Command) -> Answered {
    let document = commanded(session, command, Caller::Tool)?;
    Ok(level::done(&document, shared.member.level))
}

/// The document of a command, or the relay's refusal.
fn commanded<T: DeserializeOwned>(session: &Found, command: &Command, caller: Caller<'_>) -> Result<T, Failure> {
    let sent = client::command_within(&session.dir, command, caller, RELAY_WAIT_MAX);
    sent.and_then(|reply| reply.document()).map_err(|error| match error.code() {
        "" => unread(&error),
        code => Failure::quoted(code, error.to_string()),
    })
}

fn unread(error: &Unanswered) -> Failure {
    let Unanswered::NoAnswer(silence) = error else {
        return Failure::quoted("session_failed", error.to_string());
    };
    match (silence.is_nobody(), silence.is_unsent()) {
        (true, _) => Failure::new("session_stopped", "the session has just ended"),
        (false, true) => Failure::new("session_silent", "the relay does not answer; nothing was sent"),
        (false, false) => Failure::new("timeout", "the relay has not replied in time; it may still carry out the call"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Word;
    use crate::requests::given::Decision;

    #[test]
    fn ledger_names_user_and_host() {
        assert_eq!(by("ann", "build-7.example"), "fleet:ann@build-7.example");
        assert_eq!(by("a b", "ä"), "fleet:a~20b@~C3~A4");
    }

    #[test]
    fn host_makes_the_body_of_an_answer() {
        let row = json!({ "request_method": "item/commandExecution/requestApproval", "request_payload": { "command": "ls" } });
        let row = Request::from(row);
        let decline = Given::Decision(Decision::new(Word::Decline, Some("no")));
        assert_eq!(body(&row, &decline), Ok(json!({ "decision": "decline", "reason": "no" })));
        let texts = Given::Texts { answers: vec![("q".to_owned(), "x".to_owned())] };
        assert_eq!(body(&row, &texts).map_err(|failure| failure.code), Err("invalid_response".to_owned()));
        let whole = Given::Whole { body: json!({ "decision": "accept" }) };
        assert_eq!(body(&row, &whole), Ok(json!({ "decision": "accept" })));
    }
}
