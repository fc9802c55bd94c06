//! Gives the answers that were left while this host was away, each once and in order.
//!
//! The file of the cursors has the number of the last one. After a crash the agent may give an answer twice; the ledger has it already then.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::{Shared, answers};
use crate::fleet::connection::Link;
use crate::fleet::stored::{self, ReadError, Start, Stored};
use crate::fleet::subject::{self, LATER_STREAM};
use crate::fleet::wire::{Failure, Later, Question, VERSION};

/// How often the stream is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long a request may take to arrive in the ledger of a host that has just come back.
const FAILED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Attempts at an answer whose relay does not reply.
const TRIES_MAX: u32 = 3;

/// Gives answers until the process ends.
pub(super) async fn give(shared: &Arc<Shared>) {
    let mut link = shared.connection.link.clone();
    loop {
        let _ = link.wait_for(|link| *link == Link::Up).await;
        match give_all(shared).await {
            // A server without this stream has no such answers.
            Ok(()) | Err(ReadError::NoStream(_)) => {}
            Err(error) => tracing::debug!(%error, "answers that have waited"),
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn give_all(shared: &Arc<Shared>) -> Result<(), ReadError> {
    let filter = subject::later_of_host(&shared.member.host);
    loop {
        let after = shared.cursors().later;
        let page = stored::page(&shared.connection, LATER_STREAM, &filter, &Start::After(after)).await?;
        if page.is_empty() {
            return Ok(());
        }
        for message in page {
            let number = message.number;
            give_one(shared, message).await;
            shared.cursors().later = number;
            shared.cursors_changed.notify_one();
        }
    }
}

async fn give_one(shared: &Arc<Shared>, message: Stored) {
    let Some(user) = subject::left_by(&message.subject, &shared.member.host) else { return };
    let outcome = match due(&message.payload, SystemTime::now()) {
        Ok(later) => {
            let question = Question::Respond { v: VERSION, session: None, request: later.request, given: later.given };
            retried(shared, &question, &user).await
        }
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(()) => (shared.say)(&format!("an answer of {user} that had waited was given")),
        Err(failure) => {
            (shared.say)(&format!("an answer of {user} that had waited was not given: {}", failure.message))
        }
    }
}

async fn retried(shared: &Arc<Shared>, question: &Question, user: &str) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        let (own, asked, by) = (Arc::clone(shared), question.clone(), user.to_owned());
        let answered = tokio::task::spawn_blocking(move || answers::answer(&own, &asked, &by)).await;
        let answered = answered.unwrap_or_else(|_| Err(Failure::new("failed", "it could not be given")));
        tries += 1;
        match answered {
            Ok(_) => return Ok(()),
            Err(failure) if tries < TRIES_MAX && ["session_silent", "timeout"].contains(&&*failure.code) => {
                sleep(FAILED_AGAIN_AFTER).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// The answer in a message, unless it is not valid or too old.
fn due(payload: &[u8], now: SystemTime) -> Result<Later, Failure> {
    let later: Later = serde_json::from_slice(payload)
        .map_err(|error| Failure::new("invalid_question", format!("it is not valid: {error}")))?;
    let expires_at = humantime::parse_rfc3339(&later.expires_at)
        .map_err(|_| Failure::new("invalid_question", "its `expires_at` is not a time"))?;
    match (later.v, expires_at > now) {
        (VERSION, true) => Ok(later),
        (VERSION, false) => Err(Failure::new("expired", format!("it was valid until {}", later.expires_at))),
        (other, _) => Err(Failure::new("unknown_version", format!("its version is {other}, not {VERSION}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_answers_are_not_given() {
        let now = humantime::parse_rfc3339("2026-01-02T03:04:05Z").expect("a time");
        let check = |expires_at: &str, v: u8, expect: Option<&str>| {
            let json = format!(r#"{{"v":{v},"request":"r","given":{{"word":"accept"}},"expires_at":"{expires_at}"}}"#);
            assert_eq!(due(json.as_bytes(), now).err().map(|failure| failure.code).as_deref(), expect, "{json}");
        };
        check("2026-01-02T03:04:06Z", 1, None);
        check("2026-01-02T03:04:05Z", 1, Some("expired"));
        check("2026-01-02T03:04:06Z", 2, Some("unknown_version"));
        check("soon", 1, Some("invalid_question"));
        assert!(due(b"{}", now).is_err());
    }
}
