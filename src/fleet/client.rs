//! The client of a fleet, for tools: what the server has stored, and questions to hosts. Each call blocks within a limit.

use std::time::{Duration, SystemTime};

use async_nats::client::{Request, RequestErrorKind};
use async_nats::jetstream;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::connection::{AtFirst, ConnectError, Connection, Member};
use super::stored::{self, ReadError, Start, Stored};
use super::subject::{self, EVENTS_STREAM, HOSTS_BUCKET, PENDING_BUCKET};
use super::wire::{self, Failure, HostDocument, Later, PendingDocument, Question, Reply};

/// How long a host may take to reply.
pub(crate) const QUESTION_WAIT_MAX: Duration = Duration::from_secs(5);

/// A host that was not seen for this long is offline: three times the interval at which it describes itself.
const OFFLINE_AFTER: Duration = Duration::from_secs(30);

/// Questions that are under way at the same time.
const QUESTIONS_MAX: usize = 64;

/// Most hosts that are listed.
const HOSTS_MAX: usize = 50_000;

/// How long the server may take to store an answer for later.
const STORE_WAIT_MAX: Duration = Duration::from_secs(5);

/// A connection of a user to the fleet.
pub(crate) struct Client {
    runtime: Runtime,
    connection: Connection,
    user: String,
}

/// A host, as the server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) document: HostDocument,
    /// When the server stored its description. The clock of the host does not matter.
    pub(crate) seen_at: String,
    pub(crate) is_online: bool,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
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
pub(crate) enum ClientError {
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
    pub(crate) fn connect(member: &Member) -> Result<Client, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let user = member.user()?.to_owned();
        let connection = runtime.block_on(member.connect(&user, AtFirst::Fail))?;
        Ok(Client { runtime, connection, user })
    }

    /// All hosts that were ever seen, by name.
    ///
    /// # Errors
    ///
    /// The bucket cannot be read.
    pub(crate) fn hosts(&self) -> Result<Vec<Host>, ClientError> {
        let now = SystemTime::now();
        let stored = self.bucket(HOSTS_BUCKET)?;
        let mut hosts: Vec<Host> = stored.into_iter().filter_map(|stored| host(stored, now)).collect();
        hosts.sort_by(|one, other| one.document.host.cmp(&other.document.host));
        Ok(hosts)
    }

    /// The pending requests of all hosts.
    ///
    /// # Errors
    ///
    /// The bucket cannot be read.
    pub(crate) fn pending(&self) -> Result<Vec<PendingDocument>, ClientError> {
        let read = |stored: Stored| serde_json::from_slice(&stored.payload).ok();
        Ok(self.bucket(PENDING_BUCKET)?.into_iter().filter_map(read).collect())
    }

    /// The last message of each key of a bucket.
    fn bucket(&self, bucket: &str) -> Result<Vec<Stored>, ClientError> {
        let (stream, keys) = (subject::stream_of(bucket), subject::keys(bucket));
        let all = self.runtime.block_on(stored::all(&self.connection, &stream, &keys, HOSTS_MAX))?;
        Ok(last_of_each(all))
    }

    /// Sends a question to a host, and waits for its reply.
    ///
    /// # Errors
    ///
    /// The reason for a missing reply, or the host's failure.
    pub(crate) fn ask(&self, host: &str, question: &Question) -> Result<Value, AskError> {
        self.runtime.block_on(self.asked(host, question))
    }

    /// Sends a question to several hosts at once. The answers are in the order of the hosts.
    pub(crate) fn ask_all(&self, hosts: &[String], question: &Question) -> Vec<Result<Value, AskError>> {
        let asked = stream::iter(hosts).map(|host| self.asked(host, question)).buffered(QUESTIONS_MAX);
        self.runtime.block_on(asked.collect())
    }

    async fn asked(&self, host: &str, question: &Question) -> Result<Value, AskError> {
        let mut refusal = self.connection.refusal.clone();
        refusal.mark_unchanged();
        let subject = subject::question(host, question.mode(), &self.user);
        let request = Request::new().payload(wire::bytes(question).into()).timeout(Some(QUESTION_WAIT_MAX));
        let replied = tokio::select! {
            replied = self.connection.client.send_request(subject, request) => replied,
            _ = refusal.changed() => return Err(AskError::Refused(refusal.borrow().clone().unwrap_or_default())),
        };
        let message = replied.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => AskError::Offline,
            RequestErrorKind::TimedOut => AskError::TooSlow,
            RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::Other => {
                AskError::Broken(error.to_string())
            }
        })?;
        Reply::read(&message.payload).map_err(AskError::Failed)
    }

    /// Leaves an answer for a host that is away.
    ///
    /// # Errors
    ///
    /// Why the server has not stored it.
    pub(crate) fn leave(&self, host: &str, later: &Later) -> Result<(), String> {
        let subject = subject::later(host, &self.user);
        self.runtime.block_on(async {
            let jetstream = jetstream::context::ContextBuilder::new()
                .ack_timeout(STORE_WAIT_MAX)
                .timeout(STORE_WAIT_MAX)
                .build(self.connection.client.clone());
            let sent =
                jetstream.publish(subject, wire::bytes(later).into()).await.map_err(|error| error.to_string())?;
            sent.await.map(drop).map_err(|error| error.to_string())
        })
    }

    /// Reads a page of the stored events of a host, or of all hosts; the page after the last event is empty.
    ///
    /// # Errors
    ///
    /// The stream cannot be read.
    pub(crate) fn events(&self, host: Option<&str>, start: &Start) -> Result<Vec<Stored>, ClientError> {
        let filter = host.map_or_else(|| subject::ALL_EVENTS.to_owned(), subject::events_of_host);
        Ok(self.runtime.block_on(stored::page(&self.connection, EVENTS_STREAM, &filter, start))?)
    }

    /// The same of one session.
    ///
    /// # Errors
    ///
    /// The stream cannot be read.
    pub(crate) fn events_of(&self, host: &str, session: &str, start: &Start) -> Result<Vec<Stored>, ClientError> {
        let filter = subject::events_of(host, session);
        Ok(self.runtime.block_on(stored::page(&self.connection, EVENTS_STREAM, &filter, start))?)
    }
}

/// The last message of each subject. While a bucket is read, a key may be written again.
fn last_of_each(all: Vec<Stored>) -> Vec<Stored> {
    let mut last = std::collections::BTreeMap::new();
    for stored in all {
        last.insert(stored.subject.clone(), stored);
    }
    last.into_values().collect()
}

fn host(stored: Stored, now: SystemTime) -> Option<Host> {
    let document: HostDocument = serde_json::from_slice(&stored.payload).ok()?;
    let seen_at = humantime::parse_rfc3339(&stored.at).ok();
    // A clock that is behind the server's makes no host offline.
    let is_online = seen_at.is_some_and(|at| now.duration_since(at).is_ok_and(|age| age < OFFLINE_AFTER) || at > now);
    let seen_at = seen_at.map_or(stored.at, |at| humantime::format_rfc3339_seconds(at).to_string());
    Some(Host { document, seen_at, is_online })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(subject: &str, number: u64, at: &str) -> Stored {
        let document = HostDocument {
            v: 1,
            host: "h".to_owned(),
            version: "0".to_owned(),
            level: "full".to_owned(),
            since: String::new(),
            seen_at: String::new(),
            agent: String::new(),
            sessions: 0,
            pending: 0,
        };
        Stored { subject: subject.to_owned(), number, at: at.to_owned(), payload: wire::bytes(&document) }
    }

    #[test]
    fn hosts_are_offline_after_half_a_minute() {
        let now = humantime::parse_rfc3339("2026-01-02T03:05:00Z").expect("a time");
        let is_online = |at: &str| host(stored("a", 1, at), now).expect("a host").is_online;
        assert!(is_online("2026-01-02T03:04:45.5Z") && is_online("2026-01-02T03:06:00Z"));
        assert!(!is_online("2026-01-02T03:04:30Z") && !is_online("2025-01-02T03:04:45Z") && !is_online(""));
        assert_eq!(host(Stored { payload: b"{}".to_vec(), ..stored("a", 1, "") }, now), None);
    }

    #[test]
    fn newer_message_of_a_key_counts() {
        let numbers = |all: Vec<Stored>| last_of_each(all).iter().map(|stored| stored.number).collect::<Vec<_>>();
        assert_eq!(numbers(vec![stored("a", 1, ""), stored("b", 2, ""), stored("a", 3, "")]), [3, 2]);
    }
}
