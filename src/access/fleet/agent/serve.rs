//! Accepts questions, checks them, and replies.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Message;
use futures_util::StreamExt as _;
use tokio::time::{sleep, timeout};

use super::claim::Standing;
use super::told::Trouble;
use super::{Shared, answers};
use crate::fleet::connection::backoff;
use crate::fleet::level::{self, Leaving};
use crate::fleet::subject::{self, Mode};
use crate::fleet::wire::{Failure, Question};

/// Pause after a subscription has ended.
const SUBSCRIBE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long the client may take to send a subscription or a reply.
const SEND_WAIT_MAX: Duration = Duration::from_secs(5);

/// The header that the server adds to a question from another account.
const REQUEST_INFO: &str = "Nats-Request-Info";

/// A question that was admitted: who has asked it, and where the reply goes.
#[derive(Debug)]
struct Admitted {
    mode: Mode,
    user: String,
    reply: String,
}

/// Serves questions until the process ends. While another agent has the name of the host, it does not subscribe.
pub(super) async fn serve(shared: &Arc<Shared>) {
    let (mut failures, mut standing) = (0, shared.standing.subscribe());
    loop {
        let _ = standing.wait_for(|standing| *standing == Standing::Only).await;
        let subject = subject::questions_of_host(&shared.member.host);
        let why = match timeout(SEND_WAIT_MAX, shared.connection.client.subscribe(subject)).await {
            Ok(Ok(mut questions)) => {
                failures = 0;
                shared.mended(&Trouble::Questions);
                loop {
                    let message = tokio::select! {
                        message = questions.next() => message,
                        _ = standing.wait_for(|standing| *standing == Standing::Waits) => None,
                    };
                    let Some(message) = message else { break };
                    accept(shared, message).await;
                }
                sleep(SUBSCRIBE_AGAIN_AFTER).await;
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the connection takes no subscription".to_owned(),
        };
        shared.tell(Trouble::Questions, &format!("questions are not accepted: {why}; trying again"));
        failures += 1;
        sleep(backoff(failures)).await;
    }
}

async fn accept(shared: &Arc<Shared>, message: Message) {
    let reply_to = message.reply.as_ref().map(|reply| reply.as_str());
    let mut names = message.headers.iter().flat_map(|headers| headers.iter().map(|(name, _)| name.to_string()));
    let has_headers = names.any(|name| name != REQUEST_INFO);
    let Some(admitted) = admit(&message.subject, reply_to, has_headers, &shared.member.host) else {
        // A reply would be published in the host's name wherever the sender wants it.
        tracing::warn!(subject = %message.subject, "a question is dropped: its subject, reply or headers are not those of a user");
        return;
    };
    let question =
        Question::read(&message.payload).and_then(|question| may_ask(&question, admitted.mode).map(|()| question));
    let permit = Arc::clone(&shared.questions).try_acquire_owned();
    let (question, permit) = match (question, permit) {
        (Ok(question), Ok(permit)) => (question, permit),
        (Err(failure), _) => return reply(shared, &admitted.reply, Err(failure)).await,
        (Ok(_), Err(_)) => {
            let failure = Failure::new("busy", "this host answers too many questions now; try again");
            return reply(shared, &admitted.reply, Err(failure)).await;
        }
    };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let (own, user) = (Arc::clone(&shared), admitted.user);
        let answered = tokio::task::spawn_blocking(move || answers::answer(&own, &question, &user)).await;
        let answered = answered.unwrap_or_else(|_| Err(Failure::new("failed", "the question could not be answered")));
        reply(&shared, &admitted.reply, answered).await;
        drop(permit);
    });
}

async fn reply(shared: &Shared, to: &str, answered: Result<Leaving, Failure>) {
    let bytes = level::reply(answered, shared.member.level);
    let sent = timeout(SEND_WAIT_MAX, shared.connection.client.publish(to.to_owned(), bytes.into())).await;
    if !matches!(sent, Ok(Ok(()))) {
        tracing::debug!("a reply was not sent");
    }
}

/// Admits a question by everything but its payload. JetStream and other services publish with headers of their own, or ask for
/// replies that are not in the inbox of the user whom the subject names.
fn admit(subject: &str, reply: Option<&str>, has_headers: bool, host: &str) -> Option<Admitted> {
    let (mode, user) = subject::asked_by(subject, host)?;
    let reply = reply.filter(|reply| subject::is_reply_to(reply, &user))?.to_owned();
    (!has_headers).then_some(Admitted { mode, user, reply })
}

/// Whether the mode admits the question. The mode `write` admits all: a user who may change something may also look.
fn may_ask(question: &Question, mode: Mode) -> Result<(), Failure> {
    match (question.mode(), mode) {
        (Mode::Read, Mode::Read | Mode::Write) | (Mode::Write, Mode::Write) => Ok(()),
        (Mode::Write, Mode::Read) => {
            Err(Failure::new("not_allowed", "this question changes something, and was asked to read"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_questions_of_users_are_admitted() {
        let check = |subject: &str, reply: Option<&str>, has_headers: bool, expect: bool| {
            assert_eq!(admit(subject, reply, has_headers, "h").is_some(), expect, "{subject} {reply:?} {has_headers}");
        };
        check("cshim.req.h.read.ann", Some("_INBOX.ann.x"), false, true);
        check("cshim.req.h.write.ann", Some("_INBOX.ann.x"), false, true);
        check("cshim.req.h.write.ann", Some("_INBOX.ann.x"), true, false);
        check("cshim.req.h.write.ann", Some("_R_.Ya1.x"), false, true);
        check("cshim.req.h.write.ann", Some("_INBOX.bob.x"), false, false);
        check("cshim.req.h.write.ann", Some("$JS.API.STREAM.DELETE.CSHIM_EV"), false, false);
        check("cshim.req.h.write.ann", None, false, false);
        check("cshim.req.other.read.ann", Some("_INBOX.ann.x"), false, false);
    }

    #[test]
    fn changes_need_the_mode_write() {
        let read = Question::Sessions { v: 1 };
        let write = Question::Interrupt { v: 1, session: "s".to_owned(), thread: None };
        assert!(may_ask(&read, Mode::Read).is_ok() && may_ask(&read, Mode::Write).is_ok());
        assert!(may_ask(&write, Mode::Write).is_ok() && may_ask(&write, Mode::Read).is_err());
    }
}
