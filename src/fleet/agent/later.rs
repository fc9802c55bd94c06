//! Gives the decisions that were left while this host was away, each once and in order, and notes what became of each.
//!
//! The file of the cursors has the last one. After a crash the agent may give one twice; the ledger has it already then.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::time::sleep;

use super::answers::{Responded, text};
use super::told::Trouble;
use super::{Shared, answers};
use crate::control::request_name::is_whole;
use crate::fleet::stored::{self, ReadError, Start, Stored};
use crate::fleet::subject::{self, LATER_STREAM};
use crate::fleet::wire::{Failure, Given, Later, QUESTION_BYTES_MAX, VERSION, Waited};

/// How often the stream is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Pause after a relay has not answered: it may have just come back.
const FAILED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Attempts at an answer whose relay does not reply.
const TRIES_MAX: u32 = 3;

/// The outcome of an answer that counts.
const GIVEN: &str = "given";

/// The outcome of an answer after another.
const ANSWERED_BEFORE: &str = "answered_before";

/// Gives answers until the process ends.
pub(super) async fn give(shared: &Arc<Shared>) {
    loop {
        shared.is_only().await;
        match give_all(shared).await {
            // A server without this stream has no such answers.
            Ok(()) | Err(ReadError::NoStream(_)) => shared.mended(&Trouble::Answers),
            Err(error) => shared.tell(Trouble::Answers, &format!("answers that wait: {error}; trying again")),
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn give_all(shared: &Arc<Shared>) -> Result<(), ReadError> {
    let filter = subject::later_of_host(&shared.member.host);
    loop {
        let cursor = shared.cursors().later;
        // By number and by time: the numbers of a stream that was made anew begin again.
        let by_time = cursor.at.map(|at| Start::Time(humantime::format_rfc3339_nanos(at).to_string()));
        let page = async |start| stored::page(&shared.connection, LATER_STREAM, &filter, &start).await;
        let mut pages = match by_time {
            Some(start) => vec![page(start).await?],
            None => Vec::new(),
        };
        // In a new stream the page by time has all, oldest first.
        if !pages.iter().flatten().any(|message| cursor.is_of_new_stream(message.number, time_of(message))) {
            pages.insert(0, page(Start::After(cursor.number)).await?);
        }
        let mut has_taken = false;
        for page in pages {
            for message in page {
                let (number, at) = (message.number, time_of(&message));
                if !shared.cursors().later.is_new(number, at) {
                    continue;
                }
                let outcome = give_one(shared, message).await;
                let mut cursors = shared.cursors();
                cursors.later.takes(number, at);
                outcome.into_iter().for_each(|outcome| cursors.note(outcome));
                drop(cursors);
                shared.cursors_changed.notify_one();
                shared.host_changed.notify_one();
                has_taken = true;
            }
        }
        if !has_taken {
            return Ok(());
        }
    }
}

/// When the server stored it.
fn time_of(message: &Stored) -> Option<SystemTime> {
    humantime::parse_rfc3339(&message.at).ok()
}

/// Gives an answer; what became of it, unless nobody has left it.
async fn give_one(shared: &Arc<Shared>, message: Stored) -> Option<Waited> {
    let user = subject::left_by(&message.subject, &shared.member.host)?;
    let (request, given) = match due(&message.payload, SystemTime::now()) {
        Ok(later) => (later.request.clone(), retried(shared, &later, &user).await),
        Err((request, failure)) => (request, Err(failure)),
    };
    let (outcome, words) = match given {
        Ok(()) => (GIVEN.to_owned(), "was given".to_owned()),
        Err(failure) => (failure.code, format!("was not given: {}", failure.message)),
    };
    (shared.say)(&format!("the answer of {user} to request {request}, which had waited, {words}"));
    let at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    Some(Waited { user, request, at, outcome })
}

async fn retried(shared: &Arc<Shared>, later: &Later, user: &str) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        let (own, later, by) = (Arc::clone(shared), later.clone(), user.to_owned());
        let given = tokio::task::spawn_blocking(move || give_now(&own, &later, &by)).await;
        tries += 1;
        match given.unwrap_or_else(|_| Err(Failure::new("failed", "it could not be given"))) {
            Err(failure)
                if tries < TRIES_MAX
                    && ["session_silent", "timeout", "sessions_unreadable"].contains(&&*failure.code) =>
            {
                sleep(FAILED_AGAIN_AFTER).await;
            }
            given => return given,
        }
    }
}

/// Gives an answer; the failure says which answer counts, or how the request has ended.
fn give_now(shared: &Shared, later: &Later, user: &str) -> Result<(), Failure> {
    let given = Given::Decision(later.given.clone());
    match answers::respond(shared, None, &later.request, &given, user) {
        Ok(Responded { is_ours: true, .. }) => Ok(()),
        Ok(Responded { row, .. }) => Err(Failure::new(ANSWERED_BEFORE, before(&row))),
        Err(failure) if failure.code == "request_unavailable" => {
            let (_, document) = answers::find(shared, None, &later.request)?;
            let status = text(&document["request"], "status");
            Err(Failure::new(status, format!("the request is {status}")))
        }
        Err(failure) => Err(failure),
    }
}

fn before(row: &Value) -> String {
    format!("the answer of {} holds", row["resolved_by"].as_str().unwrap_or("another"))
}

/// The answer in a message, unless it is not valid or too old. Only a decision on one request can wait.
fn due(payload: &[u8], now: SystemTime) -> Result<Later, (String, Failure)> {
    let invalid = |why: String| (String::new(), Failure::new("invalid_question", why));
    if payload.len() > QUESTION_BYTES_MAX {
        return Err(invalid("it is too long".to_owned()));
    }
    let later: Later = serde_json::from_slice(payload)
        .map_err(|error| invalid(format!("it is not a decision on a request: {error}")))?;
    if !is_whole(&later.request) {
        return Err(invalid("it does not name its request by the whole id".to_owned()));
    }
    if later.given.word().is_none() {
        return Err((later.request, Failure::new("invalid_response", "it is not a decision")));
    }
    let expires_at = humantime::parse_rfc3339(&later.expires_at)
        .map_err(|_| invalid("its `expires_at` is not a time".to_owned()))?;
    match (later.v, expires_at > now) {
        (VERSION, true) => Ok(later),
        (VERSION, false) => {
            let why = format!("it was valid until {}", later.expires_at);
            Err((later.request, Failure::new("too_late", why)))
        }
        (other, _) => {
            let why = format!("its version is {other}, not {VERSION}");
            Err((later.request, Failure::new("unknown_version", why)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "6b02d1a90c4e-0";

    fn code(json: &str) -> Option<String> {
        let now = humantime::parse_rfc3339("2026-01-02T03:04:05Z").expect("a time");
        due(json.as_bytes(), now).err().map(|(_, failure)| failure.code)
    }

    #[test]
    fn old_answers_are_not_given() {
        let check = |expires_at: &str, v: u8, expect: Option<&str>| {
            let json =
                format!(r#"{{"v":{v},"request":"{ID}","given":{{"word":"accept"}},"expires_at":"{expires_at}"}}"#);
            assert_eq!(code(&json).as_deref(), expect, "{json}");
        };
        check("2026-01-02T03:04:06Z", 1, None);
        check("2026-01-02T03:04:05Z", 1, Some("too_late"));
        check("2026-01-02T03:04:06Z", 2, Some("unknown_version"));
        check("soon", 1, Some("invalid_question"));
    }

    #[test]
    fn only_decisions_wait() {
        let check = |request: &str, given: &str, expect: Option<&str>| {
            let json =
                format!(r#"{{"v":1,"request":"{request}","given":{given},"expires_at":"2026-01-02T03:04:06Z"}}"#);
            assert_eq!(code(&json).as_deref(), expect, "{json}");
        };
        check(ID, r#"{"word":"decline","reason":"no"}"#, None);
        check(ID, r#"{"answers":[["q","x"]]}"#, Some("invalid_question"));
        check(ID, r#"{"body":{"decision":"accept"}}"#, Some("invalid_question"));
        check(ID, r#"{"word":"accept","body":{}}"#, Some("invalid_question"));
        check(ID, r#"{"word":"erase"}"#, Some("invalid_response"));
        check("latest", r#"{"word":"accept"}"#, Some("invalid_question"));
        check("0c4e-0", r#"{"word":"accept"}"#, Some("invalid_question"));
        assert_eq!(code(r#"{"v":1,"ask":"send","session":"s","text":"t"}"#).as_deref(), Some("invalid_question"));
        assert_eq!(code("[]").as_deref(), Some("invalid_question"));
    }
}
