//! Finds out what credentials may do, and sets up the streams. No probe leaves a message in a stream: each names a stream that does
//! not exist in the header `Nats-Expected-Stream`, so JetStream refuses what the permissions have admitted.

use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::client::Request;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::client::{AskError, ClientError, QUESTION_WAIT_MAX as ANSWER_WAIT_MAX, reply_to};
use super::connection::{AtFirst, Connection, Member};
use super::subject::{self, ALL_EVENTS, ALL_LATER, EVENTS_STREAM, HOSTS_BUCKET, LATER_STREAM, Mode, PENDING_BUCKET};
use super::wire::{Failure, MESSAGE_BYTES_MAX};

/// How long a refusal of a subscription may come after the answer to a later question: the client reports it by another way.
const REFUSAL_WAIT_MAX: Duration = Duration::from_secs(1);

/// Pause between two attempts at what a server that has just started cannot do yet.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The name that stands for any other host, user or session. Nobody has it.
const OTHER: &str = "fleet-check";

/// How long the server recognizes a message by its id.
const DUPLICATES_FOR: Duration = Duration::from_secs(600);

/// The longest time that an answer waits for a host that is away.
const LATER_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a host is named that has not come back.
const HOST_FOR: Duration = Duration::from_secs(90 * 24 * 3600);

/// Room for headers beside the payload of a message, in bytes.
const HEADERS_BYTES_MAX: usize = 4 << 10;

/// Answers that wait for one host from one user.
const LATER_MAX: u32 = 1_000;

/// Error code of JetStream: the message expects another stream. Source: errors.json of nats-server.
const OTHER_STREAM_EXPECTED: u64 = 10_060;

/// Whose credentials they are, by what the server lets them do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// May change streams.
    Administrator,
    Host,
    /// May ask and answer.
    Operator,
    /// May ask.
    Viewer,
    /// May do nothing of a fleet.
    Nobody,
}

/// The outcome of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The permissions have refused it.
    Refused,
    /// The permissions admit it: JetStream or a subscriber has answered, or the server has accepted the subscription.
    Admitted,
    /// The server admits it, but nobody subscribes to its subject.
    Nobody,
    /// The answer was missing or not usable.
    Failed(String),
}

/// Whether credentials must be able to do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Needed,
    Forbidden,
}

/// What is tried.
enum Attempt {
    Publish(String),
    Ask(Mode),
    Read(String),
    Listen(String),
    ChangeStream,
}

/// A stream of the fleet: its configuration in the API of JetStream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamPlan {
    pub name: String,
    config: Value,
}

/// The administrator's choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// Copies of each stream in a cluster.
    pub replicas: u8,
    /// The time for which the stream keeps events.
    pub events: Duration,
}

/// The state of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamState {
    AsPlanned,
    Missing,
    /// A member of its configuration is another than planned.
    Different(String),
    Failed(String),
}

#[derive(Deserialize)]
struct ApiAnswer {
    error: Option<ApiError>,
    config: Option<Value>,
}

#[derive(Deserialize)]
struct ApiError {
    /// As a status of HTTP.
    #[serde(default)]
    code: u64,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl ApiError {
    /// Whether the server may be able to do it later.
    fn may_pass(&self) -> bool {
        self.code == UNAVAILABLE || self.err_code == NO_PEERS
    }
}

/// A status of JetStream: something is not available now.
const UNAVAILABLE: u64 = 503;

/// The error code of JetStream: no suitable servers for a stream. A cluster that has just started does not know them yet.
const NO_PEERS: u64 = 10_005;

/// The error code of JetStream: the stream does not exist.
const NO_SUCH_STREAM: u64 = 10_059;

/// The streams of a fleet.
pub fn plans(keeping: Keeping) -> [StreamPlan; 4] {
    let nanos = |time: Duration| json!(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let plan = |name: String, subjects: String, more: Value| {
        let mut config = json!({
            "name": name,
            "subjects": [subjects],
            "retention": "limits",
            "storage": "file",
            "discard": "old",
            "num_replicas": keeping.replicas,
            "allow_direct": true,
            "max_msg_size": MESSAGE_BYTES_MAX + HEADERS_BYTES_MAX,
        });
        more.as_object().into_iter().flatten().for_each(|(name, value)| config[name] = value.clone());
        StreamPlan { name, config }
    };
    let events = json!({ "max_age": nanos(keeping.events), "duplicate_window": nanos(DUPLICATES_FOR) });
    // A full one refuses the next answer. It must not drop the oldest answer, because its user has a report that it
    // waits.
    let later = json!({
        "max_age": nanos(LATER_FOR),
        "max_msgs_per_subject": LATER_MAX,
        "discard": "new",
        "discard_new_per_subject": true,
    });
    let bucket = || json!({ "max_msgs_per_subject": 1, "max_age": nanos(HOST_FOR) });
    [
        plan(EVENTS_STREAM.to_owned(), ALL_EVENTS.to_owned(), events),
        plan(LATER_STREAM.to_owned(), ALL_LATER.to_owned(), later),
        plan(subject::stream_of(HOSTS_BUCKET), subject::keys(HOSTS_BUCKET), bucket()),
        plan(subject::stream_of(PENDING_BUCKET), subject::keys(PENDING_BUCKET), bucket()),
    ]
}

impl StreamPlan {
    /// The first member of `config` that is another than planned.
    fn difference(&self, config: &Value) -> Option<String> {
        // The administrator chooses these.
        let is_free = |name: &str| ["max_age", "num_replicas"].contains(&name);
        let members = self.config.as_object().into_iter().flatten();
        members
            .filter(|(name, _)| !is_free(name))
            .find(|(name, value)| config[name.as_str()] != **value)
            .map(|(name, _)| name.clone())
    }
}

/// A connection whose permissions are tried out.
#[derive(Debug)]
pub struct Probe {
    runtime: Runtime,
    connection: Connection,
    /// The user of a console. For credentials of a host, the host's name.
    pub user: String,
    host: String,
}

impl Probe {
    /// # Errors
    ///
    /// The server cannot be reached, or refuses the credentials.
    pub fn connect(member: &Member) -> Result<Probe, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let user = member.user().unwrap_or(&member.host).to_owned();
        let connection = runtime.block_on(member.connect(&user, AtFirst::Fail))?;
        Ok(Probe { runtime, connection, user, host: member.host.clone() })
    }

    /// Runs what needs the connection.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Waits until JetStream answers, which a server that has just started may not do yet, and a cluster only with a leader.
    pub async fn waits_for_jetstream(&self, wait_max: Duration) {
        let began = Instant::now();
        while began.elapsed() < wait_max {
            match self.request("$JS.API.INFO", HeaderMap::new(), b"{}".to_vec()).await {
                Err(Outcome::Refused) => return,
                Ok(payload) => match serde_json::from_slice::<ApiAnswer>(&payload) {
                    Ok(ApiAnswer { error: Some(error), .. }) if error.may_pass() => {}
                    Ok(_) | Err(_) => return,
                },
                Err(Outcome::Nobody | Outcome::Failed(_) | Outcome::Admitted) => {}
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// The version of the server.
    pub fn version(&self) -> String {
        self.connection.client.server_info().version
    }

    /// Finds out whose credentials they are.
    pub async fn role(&self) -> Role {
        if self.may_administrate().await {
            return Role::Administrator;
        }
        if self.publishes(&subject::key(HOSTS_BUCKET, &self.host)).await != Outcome::Refused {
            return Role::Host;
        }
        if self.asks(Mode::Read).await == Outcome::Refused {
            return Role::Nobody;
        }
        if self.asks(Mode::Write).await == Outcome::Refused { Role::Viewer } else { Role::Operator }
    }

    async fn may_administrate(&self) -> bool {
        let answered = self.api("INFO", &json!({})).await;
        answered.is_ok_and(|answer| answer.error.is_none())
    }

    /// Publishes to a subject of a stream.
    async fn publishes(&self, to: &str) -> Outcome {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Stream", OTHER);
        match self.request(to, headers, Vec::new()).await {
            Err(outcome) => outcome,
            Ok(payload) => match serde_json::from_slice::<ApiAnswer>(&payload) {
                Ok(ApiAnswer { error: Some(error), .. }) if error.err_code == OTHER_STREAM_EXPECTED => {
                    Outcome::Admitted
                }
                Ok(ApiAnswer { error: Some(error), .. }) => Outcome::Failed(error.description),
                Ok(ApiAnswer { error: None, .. }) | Err(_) => Outcome::Admitted,
            },
        }
    }

    /// Asks a host as this user. No agent admits a question with this header.
    async fn asks(&self, mode: Mode) -> Outcome {
        self.publishes(&subject::question(OTHER, mode, &self.user)).await
    }

    /// Reads the first message of a stream by direct get.
    async fn reads(&self, stream: &str) -> Outcome {
        let get = format!("$JS.API.DIRECT.GET.{stream}");
        match self.request(&get, HeaderMap::new(), br#"{"seq":1}"#.to_vec()).await {
            Ok(_) => Outcome::Admitted,
            Err(outcome) => outcome,
        }
    }

    /// Subscribes to the subjects of others.
    async fn listens(&self, to: &str) -> Outcome {
        let mut refusal = self.connection.refusal.clone();
        refusal.mark_unchanged();
        let subscribed = self.connection.client.subscribe(to.to_owned()).await;
        let _messages = match subscribed {
            Ok(messages) => messages,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        match timeout(ANSWER_WAIT_MAX, self.connection.client.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Outcome::Failed(error.to_string()),
            Err(_) => return Outcome::Failed(format!("no answer in {} s", ANSWER_WAIT_MAX.as_secs())),
        }
        match timeout(REFUSAL_WAIT_MAX, refusal.changed()).await {
            Ok(_) => Outcome::Refused,
            Err(_) => Outcome::Admitted,
        }
    }

    /// Tries what credentials with this role must be able to do, and what they must not.
    pub async fn tries(&self, role: Role) -> Vec<(Permission, &'static str, Outcome)> {
        use Attempt::{Ask, ChangeStream, Listen, Publish, Read};
        use Permission::{Forbidden, Needed};
        let mut tries = match role {
            Role::Host => vec![
                (Needed, "ship events", Publish(subject::events_of(&self.host, OTHER))),
                (Needed, "describe this host", Publish(subject::key(HOSTS_BUCKET, &self.host))),
                (Needed, "list its requests", Publish(subject::key(PENDING_BUCKET, &self.host))),
                (Needed, "read the answers that wait for it", Read(LATER_STREAM.to_owned())),
                (Forbidden, "read the events of others", Read(EVENTS_STREAM.to_owned())),
            ],
            Role::Operator | Role::Viewer => {
                let rule = if role == Role::Operator { Needed } else { Forbidden };
                vec![
                    (Needed, "read events", Read(EVENTS_STREAM.to_owned())),
                    (Needed, "read the list of hosts", Read(subject::stream_of(HOSTS_BUCKET))),
                    (Needed, "read pending requests", Read(subject::stream_of(PENDING_BUCKET))),
                    (Needed, "ask a host", Ask(Mode::Read)),
                    (rule, "answer a request", Ask(Mode::Write)),
                    (rule, "leave an answer", Publish(subject::later(OTHER, &self.user))),
                ]
            }
            Role::Administrator | Role::Nobody => return Vec::new(),
        };
        let of_role = tries.iter().filter(|(rule, ..)| *rule == Needed).count();
        let of_nobody = [
            (Forbidden, "publish another host's events", Publish(subject::events_of(OTHER, OTHER))),
            (Forbidden, "describe another host", Publish(subject::key(HOSTS_BUCKET, OTHER))),
            (Forbidden, "list another host's requests", Publish(subject::key(PENDING_BUCKET, OTHER))),
            (Forbidden, "ask in another user's name", Publish(subject::question(OTHER, Mode::Read, OTHER))),
            (Forbidden, "answer in another user's name", Publish(subject::question(OTHER, Mode::Write, OTHER))),
            (Forbidden, "leave an answer in another user's name", Publish(subject::later(OTHER, OTHER))),
            (Forbidden, "change a stream", ChangeStream),
            (Forbidden, "receive another user's replies", Listen(format!("{}.>", subject::inbox(OTHER)))),
            (Forbidden, "receive another host's questions", Listen(subject::questions_of_host(OTHER))),
        ];
        tries.splice(of_role..of_role, of_nobody);
        let mut tried = Vec::new();
        for (rule, name, attempt) in tries {
            let outcome = match attempt {
                Publish(to) => self.publishes(&to).await,
                Ask(mode) => {
                    let outcome = self.asks(mode).await;
                    // No agent has the name that the probe used.
                    if outcome == Outcome::Nobody { Outcome::Admitted } else { outcome }
                }
                Read(stream) => self.reads(&stream).await,
                Listen(to) => self.listens(&to).await,
                ChangeStream => self.changes_a_stream().await,
            };
            tried.push((rule, name, outcome));
        }
        tried
    }

    /// The hosts whose name two agents use.
    ///
    /// # Errors
    ///
    /// The list of hosts cannot be read.
    pub async fn hosts_with_others(&self) -> Result<Vec<String>, String> {
        let hosts = super::client::hosts(&self.connection).await.map_err(|error| error.to_string())?;
        let doubled = hosts.into_iter().filter_map(Result::ok).filter(|host| host.is_online && host.document.others);
        Ok(doubled.map(|host| host.document.host).collect())
    }

    /// Deletes a stream that does not exist.
    async fn changes_a_stream(&self) -> Outcome {
        match self.request(&format!("$JS.API.STREAM.DELETE.{OTHER}"), HeaderMap::new(), Vec::new()).await {
            Ok(_) => Outcome::Admitted,
            Err(outcome) => outcome,
        }
    }

    /// The state of a stream.
    pub async fn state(&self, plan: &StreamPlan) -> StreamState {
        match self.api(&format!("STREAM.INFO.{}", plan.name), &json!({})).await {
            Ok(ApiAnswer { error: Some(error), .. }) if error.err_code == NO_SUCH_STREAM => StreamState::Missing,
            Ok(ApiAnswer { error: Some(error), .. }) => StreamState::Failed(error.description),
            Ok(ApiAnswer { error: None, config: Some(config) }) => {
                plan.difference(&config).map_or(StreamState::AsPlanned, StreamState::Different)
            }
            Ok(ApiAnswer { error: None, config: None }) => {
                StreamState::Failed("the answer has no configuration".to_owned())
            }
            Err(why) => StreamState::Failed(why),
        }
    }

    /// Creates a stream, or changes it to the planned configuration. A cluster that has just started may take a while
    /// until it can.
    ///
    /// # Errors
    ///
    /// Why the server has not done it.
    pub async fn sets_up(&self, plan: &StreamPlan, wait_max: Duration) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match self.tries_to_set_up(plan).await {
                Err(error) if error.may_pass() && began.elapsed() < wait_max => sleep(LOOK_EVERY).await,
                done => return done.map_err(|error| error.description),
            }
        }
    }

    async fn tries_to_set_up(&self, plan: &StreamPlan) -> Result<(), ApiError> {
        let lasting = |description: String| ApiError { code: 0, err_code: 0, description };
        let action = match self.state(plan).await {
            StreamState::Missing => "CREATE",
            StreamState::AsPlanned | StreamState::Different(_) => "UPDATE",
            StreamState::Failed(description) => return Err(ApiError { code: UNAVAILABLE, err_code: 0, description }),
        };
        let answer = self.api(&format!("STREAM.{action}.{}", plan.name), &plan.config).await.map_err(lasting)?;
        answer.error.map_or(Ok(()), Err)
    }

    async fn api(&self, call: &str, body: &Value) -> Result<ApiAnswer, String> {
        let body = super::wire::bytes(body);
        let payload =
            self.request(&format!("$JS.API.{call}"), HeaderMap::new(), body).await.map_err(
                |outcome| match outcome {
                    Outcome::Refused => "the server refuses it".to_owned(),
                    Outcome::Nobody => "the server has no JetStream".to_owned(),
                    Outcome::Failed(why) => why,
                    Outcome::Admitted => "there was no answer".to_owned(),
                },
            )?;
        serde_json::from_slice(&payload).map_err(|error| format!("the answer is not valid: {error}"))
    }

    /// Sends a message; returns its answer or its outcome.
    async fn request(&self, to: &str, headers: HeaderMap, body: Vec<u8>) -> Result<Vec<u8>, Outcome> {
        let request = Request::new().headers(headers).payload(body.into());
        match reply_to(&self.connection, to.to_owned(), request).await {
            Ok(message) => Ok(message.payload.to_vec()),
            Err(AskError::Refused(_)) => Err(Outcome::Refused),
            Err(AskError::Offline) => Err(Outcome::Nobody),
            Err(AskError::TooSlow) => Err(Outcome::Failed(format!("no answer in {} s", ANSWER_WAIT_MAX.as_secs()))),
            Err(AskError::Broken(why) | AskError::Failed(Failure { message: why, .. })) => Err(Outcome::Failed(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_configuration_is_noticed() {
        let [events, ..] = plans(Keeping { replicas: 1, events: Duration::from_secs(60) });
        let mut config = events.config.clone();
        config["first_seq"] = json!(1);
        config["num_replicas"] = json!(3);
        assert_eq!(events.difference(&config), None);
        config["allow_direct"] = json!(false);
        assert_eq!(events.difference(&config), Some("allow_direct".to_owned()));
    }

    #[test]
    fn full_stream_of_answers_refuses() {
        let [_, later, ..] = plans(Keeping { replicas: 1, events: Duration::from_secs(60) });
        let mut config = later.config.clone();
        assert_eq!((&config["discard"], &config["discard_new_per_subject"]), (&json!("new"), &json!(true)));
        // The configuration of an earlier version; the server omits members that are false.
        config["discard"] = json!("old");
        assert_eq!(later.difference(&config), Some("discard".to_owned()));
        config["discard"] = json!("new");
        config.as_object_mut().expect("an object").remove("discard_new_per_subject");
        assert_eq!(later.difference(&config), Some("discard_new_per_subject".to_owned()));
    }
}
