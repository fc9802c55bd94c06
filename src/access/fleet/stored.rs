//! Reads messages that a stream has stored, in pages: one question to the server, which sends the page to the inbox of the user.
//!
//! Reads are batched direct gets (NATS 2.11 and later). They need no consumer, so read-only credentials cannot make the
//! server deliver messages to another subject.

use std::time::{Duration, SystemTime};

use async_nats::HeaderMap;
use async_nats::Message;
use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::time::timeout;

use super::connection::Connection;

/// Most messages of a page.
pub(super) const PAGE_MESSAGES_MAX: u64 = 256;

/// Most bytes of a page.
const PAGE_BYTES_MAX: u64 = 4 << 20;

/// How long the server may take for the next message of a page.
const MESSAGE_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long it may take for a whole page.
const PAGE_WAIT_MAX: Duration = Duration::from_secs(20);

/// Header with the number of messages that follow.
const PENDING: &str = "Nats-Num-Pending";

/// Statuses of the messages that end a page. Source: the direct get API of JetStream.
const END_OF_PAGE: u16 = 204;
const NO_MESSAGE: u16 = 404;
const NO_STREAM: u16 = 503;

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub subject: String,
    /// Its number in the stream.
    pub number: u64,
    /// When the server stored it.
    pub at: Option<SystemTime>,
    pub payload: Vec<u8>,
    /// How many more messages the server has behind it.
    pub more: u64,
}

/// The beginning of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// After the message with this number.
    After(u64),
    /// At this time.
    Time(SystemTime),
}

/// Why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the server has no stream {0}, or these credentials may not read it; see `codex-shim fleet check`")]
    NoStream(String),
    #[error("the server does not let this user read {stream}: {why}")]
    Refused { stream: String, why: String },
    #[error("read {stream}: {why}")]
    Failed { stream: String, why: String },
}

/// The API's question.
#[derive(Serialize)]
struct Wanted<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<String>,
    next_by_subj: &'a str,
    batch: u64,
    max_bytes: u64,
}

/// The messages of a stream whose subjects match a filter.
#[derive(Clone, Copy)]
pub(super) struct Messages<'a> {
    pub(super) connection: &'a Connection,
    pub(super) stream: &'a str,
    pub(super) filter: &'a str,
}

impl Messages<'_> {
    /// Reads a page, oldest first. The last message gives the number of messages that follow the page; an empty page has no message.
    pub(super) async fn page(self, start: &Start) -> Result<Vec<Stored>, ReadError> {
        self.at_most(PAGE_MESSAGES_MAX, start).await
    }

    /// Reads the message with this number, if it is one of these.
    pub(super) async fn one(self, number: u64) -> Result<Option<Stored>, ReadError> {
        let found = self.at_most(1, &Start::After(number.saturating_sub(1))).await?;
        Ok(found.into_iter().find(|message| message.number == number))
    }

    /// Reads every message, at most `most` of them.
    pub(super) async fn all(self, most: usize) -> Result<Vec<Stored>, ReadError> {
        let mut all: Vec<Stored> = Vec::new();
        loop {
            let after = all.last().map_or(0, |last| last.number);
            let page = self.page(&Start::After(after)).await?;
            // Messages that were to follow may have gone meanwhile.
            let is_empty = page.is_empty();
            all.extend(page);
            if is_empty || all.last().is_none_or(|last| last.more == 0) || all.len() >= most {
                return Ok(all);
            }
        }
    }

    async fn at_most(self, messages_max: u64, start: &Start) -> Result<Vec<Stored>, ReadError> {
        let late = || self.failed(format!("not all of a page came in {} s", PAGE_WAIT_MAX.as_secs()));
        timeout(PAGE_WAIT_MAX, self.unbounded_page(messages_max, start)).await.unwrap_or_else(|_| Err(late()))
    }

    fn failed(self, why: String) -> ReadError {
        ReadError::Failed { stream: self.stream.to_owned(), why }
    }

    async fn unbounded_page(self, messages_max: u64, start: &Start) -> Result<Vec<Stored>, ReadError> {
        let Messages { connection, stream, filter } = self;
        let failed = |why: String| self.failed(why);
        let (seq, start_time) = match start {
            Start::After(number) => (Some(number.saturating_add(1)), None),
            Start::Time(at) => {
                (None, Some(humantime::format_rfc3339_nanos((*at).max(SystemTime::UNIX_EPOCH)).to_string()))
            }
        };
        let wanted = Wanted { seq, start_time, next_by_subj: filter, batch: messages_max, max_bytes: PAGE_BYTES_MAX };
        let inbox = connection.client.new_inbox();
        let mut received =
            connection.client.subscribe(inbox.clone()).await.map_err(|error| failed(error.to_string()))?;
        let subject = format!("$JS.API.DIRECT.GET.{stream}");
        let mut refused = std::pin::pin!(connection.refusal_of(&subject));
        let asked = connection.client.publish_with_reply(subject, inbox, super::wire::bytes(&wanted).into()).await;
        asked.map_err(|error| failed(error.to_string()))?;
        let mut all = Vec::new();
        loop {
            let message = tokio::select! {
                message = timeout(MESSAGE_WAIT_MAX, received.next()) => message,
                why = &mut refused => return Err(ReadError::Refused { stream: stream.to_owned(), why }),
            };
            let message = message.map_err(|_| failed(format!("no answer in {} s", MESSAGE_WAIT_MAX.as_secs())))?;
            let message = message.ok_or_else(|| failed("the connection has ended".to_owned()))?;
            match message.status.map(|status| status.as_u16()) {
                None => all.push(stored(&message).ok_or_else(|| failed("a message has no number".to_owned()))?),
                Some(END_OF_PAGE) => return ended(all, message.headers.as_ref()).map_err(failed),
                Some(NO_MESSAGE) => return Ok(all),
                Some(NO_STREAM) => return Err(ReadError::NoStream(stream.to_owned())),
                Some(status) => {
                    return Err(failed(format!("status {status} {}", message.description.unwrap_or_default())));
                }
            }
        }
    }
}

/// The messages of a page whose end says how many follow.
fn ended(mut all: Vec<Stored>, end: Option<&HeaderMap>) -> Result<Vec<Stored>, String> {
    let more = end.and_then(|headers| header(headers, PENDING)?.parse().ok()).ok_or("a page has no valid end")?;
    match all.last_mut() {
        Some(last) => last.more = more,
        // Asking again would not end.
        None if more > 0 => return Err(format!("the server has {more} messages and sends none")),
        None => {}
    }
    Ok(all)
}

fn stored(message: &Message) -> Option<Stored> {
    let headers = message.headers.as_ref()?;
    let text = |name: &str| header(headers, name);
    Some(Stored {
        subject: text("Nats-Subject")?,
        number: text("Nats-Sequence")?.parse().ok()?,
        at: text("Nats-Time-Stamp").and_then(|at| humantime::parse_rfc3339(&at).ok()),
        payload: message.payload.to_vec(),
        more: text(PENDING)?.parse().ok()?,
    })
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_page_says_what_follows() {
        let page = |count: u64| {
            let message =
                |number| Stored { subject: "s".to_owned(), number, at: None, payload: Vec::new(), more: u64::MAX };
            (1..=count).map(message).collect::<Vec<_>>()
        };
        let check = |count: u64, pending: Option<&str>, expect: Result<Option<u64>, &str>| {
            let mut headers = HeaderMap::new();
            pending.into_iter().for_each(|pending| headers.insert(PENDING, pending));
            let more = ended(page(count), Some(&headers)).map(|all| all.last().map(|last| last.more));
            assert_eq!(more, expect.map_err(str::to_owned), "{count} {pending:?}");
        };
        check(2, Some("7"), Ok(Some(7)));
        check(2, Some("0"), Ok(Some(0)));
        check(0, Some("0"), Ok(None));
        check(0, Some("7"), Err("the server has 7 messages and sends none"));
        check(2, None, Err("a page has no valid end"));
        check(2, Some("x"), Err("a page has no valid end"));
    }
}
