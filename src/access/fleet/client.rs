//! The client of a fleet, for tools: what the server has stored, and questions to hosts. Each call blocks within a limit.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_nats::Message;
use async_nats::client::{Request, RequestErrorKind};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, ErrorCode};
use futures_util::StreamExt as _;
use futures_util::stream;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::connection::{self, ACK_WAIT_MAX, AtFirst, ConnectError, Connection, Member, in_words};
use super::stored::{Messages, ReadError, Start, Stored};
use super::subject::{self, EVENTS_STREAM, HOSTS_BUCKET, LATER_STREAM, PENDING_BUCKET};
use super::wire::{self, EventMessage, Failure, HostDocument, Later, PendingDocument, Question, Reply};
use crate::config::FleetLevel;

/// How long a host may take to reply.
pub(super) const QUESTION_WAIT_MAX: Duration = Duration::from_secs(5);

/// A host that was not seen for this long is offline: three times the interval at which it describes itself.
const OFFLINE_AFTER: Duration = Duration::from_secs(30);

/// Questions that are under way at the same time.
const QUESTIONS_MAX: usize = 64;

/// Most hosts that are listed.
const HOSTS_MAX: usize = 50_000;

/// A connection of a user to the fleet.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    connection: Connection,
    user: String,
    complaints: Mutex<Complaints>,
}

/// Messages of hosts that are not allowed or cannot be read. The user hears of each complaint once.
#[derive(Debug, Default)]
struct Complaints {
    known: BTreeSet<String>,
    untold: Vec<String>,
}

/// Complaints that are remembered.
const COMPLAINTS_MAX: usize = 1_000;

/// A host, as the server knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    pub document: HostDocument,
    /// When the server stored its description. The clock of the host does not matter.
    pub seen_at: String,
    pub is_online: bool,
}

impl Host {
    pub fn name(&self) -> &str {
        &self.document.host
    }

    /// Whether it sends no texts.
    pub fn is_summary(&self) -> bool {
        self.document.level == FleetLevel::Summary.to_string()
    }

    /// Since when it is away, in words.
    pub fn offline(&self) -> String {
        format!("host {} is offline since {}", self.name(), self.seen_at)
    }
}

/// An event that the server has stored.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    /// Its number in the stream.
    pub number: u64,
    /// When the server stored it.
    pub at: Option<SystemTime>,
    /// How many more messages the server has behind it.
    pub more: u64,
    /// `None` if it is not valid.
    pub message: Option<EventMessage>,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No agent of this host is connected.
    #[error("nobody answers for this host")]
    Offline,
    #[error("no reply in {} s", QUESTION_WAIT_MAX.as_secs())]
    TooSlow,
    /// The server does not let this user ask.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The host has refused.
    #[error("{}", .0.message)]
    Failed(Failure),
    #[error("ask: {0}")]
    Broken(String),
}

/// Why a tool of the fleet cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("set up a runtime: {0}")]
    SetUp(#[from] std::io::Error),
}

impl Client {
    /// # Errors
    ///
    /// The server cannot be reached, or refuses the credentials.
    pub fn connect(member: &Member) -> Result<Client, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let user = member.user()?.to_owned();
        let connection = runtime.block_on(member.connect(&user, AtFirst::Fail))?;
        Ok(Client { runtime, connection, user, complaints: Mutex::default() })
    }

    /// All hosts that were ever seen, by name.
    ///
    /// # Errors
    ///
    /// The bucket cannot be read.
    pub fn hosts(&self) -> Result<Vec<Host>, ClientError> {
        let read = self.runtime.block_on(hosts(&self.connection))?;
        let mut hosts: Vec<Host> = read.into_iter().filter_map(|host| self.kept(host)).collect();
        hosts.sort_by(|one, other| one.document.host.cmp(&other.document.host));
        Ok(hosts)
    }

    /// The pending requests of all hosts.
    ///
    /// # Errors
    ///
    /// The bucket cannot be read.
    pub fn pending(&self) -> Result<Vec<PendingDocument>, ClientError> {
        let read = |stored: Stored| self.kept(pending(&stored));
        let keys = self.runtime.block_on(bucket(&self.connection, PENDING_BUCKET))?;
        Ok(keys.into_iter().filter_map(read).collect())
    }

    /// One host; `None` if it was never seen.
    ///
    /// # Errors
    ///
    /// The bucket cannot be read.
    pub fn host(&self, name: &str) -> Result<Option<Host>, ClientError> {
        let (stream, key) = (subject::stream_of(HOSTS_BUCKET), subject::key(HOSTS_BUCKET, name));
        let keys = Messages { connection: &self.connection, stream: &stream, filter: &key };
        let read = self.runtime.block_on(keys.all(HOSTS_MAX))?;
        Ok(read.into_iter().next_back().and_then(|stored| self.kept(host(stored, SystemTime::now()))))
    }

    /// Returns the value, or notes a complaint.
    fn kept<T>(&self, read: Result<T, String>) -> Option<T> {
        read.inspect_err(|why| {
            let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
            if complaints.known.len() < COMPLAINTS_MAX && complaints.known.insert(why.clone()) {
                complaints.untold.push(why.clone());
            }
        })
        .ok()
    }

    /// Complaints since the last call: messages in which a host speaks as another, or that cannot be read. They were dropped.
    pub fn complaints(&self) -> Vec<String> {
        std::mem::take(&mut self.complaints.lock().unwrap_or_else(PoisonError::into_inner).untold)
    }

    /// Sends a question to a host, and waits for its reply.
    ///
    /// # Errors
    ///
    /// The reason for a missing reply, or the host's failure.
    pub fn ask(&self, host: &str, question: &Question) -> Result<Value, AskError> {
        self.runtime.block_on(self.asked(host, question))
    }

    /// Sends a question to several hosts at once. The answers are in the order of the hosts.
    pub fn ask_all(&self, hosts: &[String], question: &Question) -> Vec<Result<Value, AskError>> {
        let asked = stream::iter(hosts).map(|host| self.asked(host, question)).buffered(QUESTIONS_MAX);
        self.runtime.block_on(asked.collect())
    }

    async fn asked(&self, host: &str, question: &Question) -> Result<Value, AskError> {
        let subject = subject::question(host, question.mode(), &self.user);
        let request = Request::new().payload(wire::bytes(question).into());
        let message = reply_to(&self.connection, subject, request).await?;
        let document = Reply::read(&message.payload).map_err(AskError::Failed)?;
        match document.is_object() {
            true => Ok(document),
            false => Err(AskError::Broken("its reply is not a JSON object".to_owned())),
        }
    }

    /// Leaves an answer for a host that is away.
    ///
    /// # Errors
    ///
    /// Why the server has not stored it.
    pub fn leave(&self, host: &str, later: &Later) -> Result<(), String> {
        let subject = subject::later(host, &self.user);
        let refused = self.connection.refusal_of(&subject);
        self.runtime.block_on(async {
            let jetstream = self.connection.jetstream(1);
            let message = PublishMessage::build().payload(wire::bytes(later).into());
            tokio::select! {
                left = connection::stored(&jetstream, subject, message) => match left {
                    Some(left) => left.map(drop).map_err(|error| not_left(&error)),
                    None => Err(not_acknowledged()),
                },
                why = refused => Err(format!("the server refuses: {why}; nothing was left")),
            }
        })
    }

    /// Reads a page of the stored events of a host, or of all hosts; the last one says how many follow. An event that names another host
    /// or session than its subject has no message.
    ///
    /// # Errors
    ///
    /// The stream cannot be read.
    pub fn events(&self, host: Option<&str>, start: &Start) -> Result<Vec<StoredEvent>, ClientError> {
        let filter = host.map_or_else(|| subject::ALL_EVENTS.to_owned(), subject::events_of_host);
        self.page(&filter, start, |stored| self.kept(own_event(stored)))
    }

    /// The same of one session.
    ///
    /// # Errors
    ///
    /// The stream cannot be read.
    pub fn events_of(&self, host: &str, session: &str, start: &Start) -> Result<Vec<StoredEvent>, ClientError> {
        // A message that cannot be read is of a later version.
        self.page(&subject::events_of(host, session), start, |stored| serde_json::from_slice(&stored.payload).ok())
    }

    fn page(
        &self,
        filter: &str,
        start: &Start,
        read: impl Fn(&Stored) -> Option<EventMessage>,
    ) -> Result<Vec<StoredEvent>, ClientError> {
        let page = self
            .runtime
            .block_on(Messages { connection: &self.connection, stream: EVENTS_STREAM, filter }.page(start))?;
        let event = |stored: Stored| {
            let message = read(&stored);
            StoredEvent { number: stored.number, at: stored.at, more: stored.more, message }
        };
        Ok(page.into_iter().map(event).collect())
    }
}

/// Sends a request, and waits for its reply.
pub(super) async fn reply_to(connection: &Connection, subject: String, request: Request) -> Result<Message, AskError> {
    let refused = connection.refusal_of(&subject);
    let request = request.timeout(Some(QUESTION_WAIT_MAX));
    let replied = tokio::select! {
        replied = timeout(QUESTION_WAIT_MAX, connection.client.send_request(subject.clone(), request)) => replied,
        why = refused => return Err(AskError::Refused(why)),
    };
    replied.map_err(|_| AskError::TooSlow)?.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => AskError::Offline,
        RequestErrorKind::TimedOut => AskError::TooSlow,
        RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::Other => {
            AskError::Broken(error.to_string())
        }
    })
}

/// Why an answer was not left, or may not have been.
fn not_left(error: &PublishError) -> String {
    let full = [ErrorCode::STREAM_STORE_FAILED, ErrorCode::INSUFFICIENT_RESOURCES];
    let refusal = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    match (error.kind(), refusal) {
        (PublishErrorKind::StreamNotFound, _) => format!("{}; nothing was left", in_words(error, LATER_STREAM)),
        (_, Some(refusal)) if full.contains(&refusal.error_code()) => format!(
            "the stream {LATER_STREAM} is full, so nothing was left: {refusal}; it forgets an answer after 7 days, or if the \
             administrator deletes it; answer when the host is back"
        ),
        (_, Some(refusal)) => format!("the server refuses it, so nothing was left: {refusal}"),
        (PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe, None) => not_acknowledged(),
        (PublishErrorKind::MaxPayloadExceeded | PublishErrorKind::MaxAckPending, None) => {
            format!("{error}; nothing was left")
        }
        (_, None) => error.to_string(),
    }
}

/// An answer may be stored, and only the acknowledgment of it be lost.
fn not_acknowledged() -> String {
    format!(
        "the server has not acknowledged it in {} s, and it may wait for the host all the same",
        ACK_WAIT_MAX.as_secs()
    )
}

/// Checks that an event is of the host and the session in its subject, which the server has checked.
fn own_event(stored: &Stored) -> Result<EventMessage, String> {
    let (host, session) = subject::event_of(&stored.subject)
        .ok_or_else(|| format!("{} is not the subject of an event", stored.subject))?;
    let event: EventMessage = serde_json::from_slice(&stored.payload)
        .map_err(|error| format!("host {host}: an event of session {session} is not valid: {error}; it is left out"))?;
    match (event.host == host, event.session == session) {
        (true, true) => Ok(event),
        (false, _) => Err(foreign(&host, "an event", &event.host)),
        (true, false) => {
            Err(format!("host {host}: an event of session {session} names another session; it is left out"))
        }
    }
}

/// The complaint about a host that names another.
fn foreign(host: &str, what: &str, named: &str) -> String {
    format!("host {host} has sent {what} in the name of host {named}; it is left out")
}

/// A document of the host whose key it is; `what` it is, and how that begins a complaint.
fn own_document<T: DeserializeOwned>(
    stored: &Stored,
    bucket: &str,
    (what, its): (&str, &str),
    named: impl Fn(&T) -> &str,
) -> Result<T, String> {
    let host = subject::host_of_key(&stored.subject, bucket)
        .ok_or_else(|| format!("{} is not the key of a host", stored.subject))?;
    let document: T = serde_json::from_slice(&stored.payload)
        .map_err(|error| format!("host {host}: {its} is not valid: {error}; it is left out"))?;
    match named(&document) {
        named if named == host => Ok(document),
        named => Err(foreign(&host, what, named)),
    }
}

/// The pending requests of a host.
fn pending(stored: &Stored) -> Result<PendingDocument, String> {
    let words = ("a list of requests", "the list of its requests");
    own_document(stored, PENDING_BUCKET, words, |document: &PendingDocument| &document.host)
}

/// Each host's description of itself, or the reason why it does not count.
pub(super) async fn hosts(connection: &Connection) -> Result<Vec<Result<Host, String>>, ReadError> {
    let now = SystemTime::now();
    Ok(bucket(connection, HOSTS_BUCKET).await?.into_iter().map(|stored| host(stored, now)).collect())
}

/// The last message of each key of a bucket.
async fn bucket(connection: &Connection, bucket: &str) -> Result<Vec<Stored>, ReadError> {
    let (stream, keys) = (subject::stream_of(bucket), subject::keys(bucket));
    Ok(last_of_each(Messages { connection, stream: &stream, filter: &keys }.all(HOSTS_MAX).await?))
}

/// The last message of each subject. While a bucket is read, a key may be written again.
fn last_of_each(all: Vec<Stored>) -> Vec<Stored> {
    let mut last = std::collections::BTreeMap::new();
    for stored in all {
        last.insert(stored.subject.clone(), stored);
    }
    last.into_values().collect()
}

fn host(stored: Stored, now: SystemTime) -> Result<Host, String> {
    let words = ("a description", "its description");
    let document = own_document(&stored, HOSTS_BUCKET, words, |document: &HostDocument| &document.host)?;
    // A clock that is behind the server's makes no host offline.
    let is_online = stored.at.is_some_and(|at| now.duration_since(at).is_ok_and(|age| age < OFFLINE_AFTER) || at > now);
    let seen_at = stored.at.map(|at| humantime::format_rfc3339_seconds(at).to_string()).unwrap_or_default();
    Ok(Host { document, seen_at, is_online })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(subject: &str, number: u64, at: &str) -> Stored {
        let document = HostDocument { host: "h".to_owned(), ..HostDocument::default() };
        let payload = wire::bytes(&document);
        Stored {
            subject: format!("$KV.cshim_hosts.{subject}"),
            number,
            at: humantime::parse_rfc3339(at).ok(),
            payload,
            more: 0,
        }
    }

    #[test]
    fn host_cannot_speak_as_another() {
        let now = SystemTime::UNIX_EPOCH;
        assert_eq!(host(stored("h", 1, ""), now).expect("its own").document.host, "h");
        assert_eq!(
            host(stored("evil", 1, ""), now),
            Err("host evil has sent a description in the name of host h; it is left out".to_owned())
        );
        let list = |key: &str| {
            let document = PendingDocument { v: 1, host: "h".to_owned(), requests: Vec::new(), more: 0 };
            let subject = subject::key(PENDING_BUCKET, key);
            pending(&Stored { subject, payload: wire::bytes(&document), ..stored("h", 1, "") })
        };
        assert!(list("h").is_ok() && list("evil").is_err());
        let event = |of: (&str, &str)| {
            let (host, session, epoch) = ("h".to_owned(), "s".to_owned(), "e".to_owned());
            let message = EventMessage { v: 1, host, session, epoch, seq: 1, event: None, gap: None };
            let subject = subject::events_of(of.0, of.1);
            own_event(&Stored { subject, payload: wire::bytes(&message), ..stored("h", 1, "") })
        };
        assert!(event(("h", "s")).is_ok());
        assert_eq!(
            event(("evil", "s")).map(drop),
            Err("host evil has sent an event in the name of host h; it is left out".to_owned())
        );
        assert!(event(("h", "t")).is_err());
    }

    #[test]
    fn hosts_are_offline_after_half_a_minute() {
        let now = humantime::parse_rfc3339("2026-01-02T03:05:00Z").expect("a time");
        let is_online = |at: &str| host(stored("h", 1, at), now).expect("a host").is_online;
        assert!(is_online("2026-01-02T03:04:45.5Z") && is_online("2026-01-02T03:06:00Z"));
        assert!(!is_online("2026-01-02T03:04:30Z") && !is_online("2025-01-02T03:04:45Z") && !is_online(""));
        assert!(host(Stored { payload: b"{}".to_vec(), ..stored("h", 1, "") }, now).is_err());
    }

    #[test]
    fn newer_message_of_a_key_counts() {
        let numbers = |all: Vec<Stored>| last_of_each(all).iter().map(|stored| stored.number).collect::<Vec<_>>();
        assert_eq!(numbers(vec![stored("a", 1, ""), stored("b", 2, ""), stored("a", 3, "")]), [3, 2]);
    }
}
