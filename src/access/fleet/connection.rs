//! The connection to the NATS server: its address, TLS, credentials, and the pauses between attempts.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, publish::PublishAck};
use async_nats::{ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use tokio::sync::watch;

use super::credentials::Credentials;
use super::subject;
use crate::config::{FleetChoice, FleetLevel};
use crate::files;
use crate::os::identity::host_name;
use crate::os::random::bytes;

/// How long one attempt to connect may take.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a console may take to connect to one of the servers.
const CONNECT_ALL_WAIT_MAX: Duration = Duration::from_secs(20);

/// Interval of the pings that notice a dead connection: two without an answer end it.
const PING_EVERY: Duration = Duration::from_secs(10);

/// The first pause after a failure.
const BACKOFF_MIN: Duration = Duration::from_millis(100);

/// The longest pause between attempts to connect or to ship.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Commands that wait in the client for the connection.
const COMMANDS_MAX: usize = 256;

/// Messages of one subscription that wait in the client.
const RECEIVED_MAX: usize = 1_024;

/// This machine or user in the fleet, from the settings.
#[derive(Debug, Clone)]
pub struct Member {
    pub url: String,
    /// The name of this machine.
    pub host: String,
    pub level: FleetLevel,
    /// The NATS user, whose token stands in the subjects of a console.
    user: Option<String>,
    servers: Vec<ServerAddr>,
    credentials: Option<Credentials>,
    ca: Option<PathBuf>,
    has_tls: bool,
}

/// Why this machine cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no fleet is configured; set `url` and `creds` in `[fleet]` of config.toml, see `codex-shim docs fleet`")]
    NotConfigured,
    #[error("fleet.url is not a valid address of a NATS server; write tls://HOST:4222")]
    Address,
    #[error("fleet.url has a user or password; put them in a file, and its path in fleet.creds")]
    SecretInAddress,
    #[error("{0} would be reached without TLS; write tls:// in fleet.url, or set fleet.allow_plain = true")]
    Plain(String),
    #[error("read fleet.creds {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("fleet.creds {}: {why}", .path.display())]
    Malformed { path: PathBuf, why: &'static str },
    #[error(
        "fleet.creds does not name its user; set fleet.user to the name that the server's configuration has for it"
    )]
    NoUser,
    #[error("connect to {url}: {why}")]
    Failed { url: String, why: String },
    /// No server listens at this address, or it has not answered. It may answer later.
    #[error("connect to {url}: {why}")]
    NotReached { url: String, why: String },
}

/// Whether the server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Up,
    Down,
}

/// A connection, and whether it is up.
#[derive(Clone)]
pub struct Connection {
    pub client: async_nats::Client,
    pub link: watch::Receiver<Link>,
    /// The last refusal of the server, such as a permission that these credentials lack.
    pub refusal: watch::Receiver<Option<String>>,
    /// Why the last attempt to connect has failed.
    pub trouble: watch::Receiver<Option<String>>,
}

/// How long the server may take to acknowledge a message.
pub(super) const ACK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Has a message stored; `None` if the server does not acknowledge it in time.
pub(super) async fn stored(
    jetstream: &jetstream::Context,
    subject: String,
    message: PublishMessage,
) -> Option<Result<PublishAck, PublishError>> {
    let stored = async { jetstream.send_publish(subject, message).await?.await };
    tokio::time::timeout(ACK_WAIT_MAX, stored).await.ok()
}

/// Why a message was not stored.
pub(super) fn in_words(error: &PublishError, stream: &str) -> String {
    match error.kind() {
        PublishErrorKind::StreamNotFound => {
            format!("the server has no stream {stream}; run `codex-shim fleet check --set-up` once")
        }
        PublishErrorKind::TimedOut => {
            "the server does not acknowledge; see `codex-shim fleet check` for what these credentials may do".to_owned()
        }
        PublishErrorKind::WrongLastMessageId
        | PublishErrorKind::WrongLastSequence
        | PublishErrorKind::BrokenPipe
        | PublishErrorKind::MaxAckPending
        | PublishErrorKind::MaxPayloadExceeded
        | PublishErrorKind::Other => error.to_string(),
    }
}

impl Connection {
    /// JetStream, with at most so many messages that are not acknowledged.
    pub fn jetstream(&self, unacknowledged_max: usize) -> jetstream::Context {
        jetstream::context::ContextBuilder::new()
            .ack_timeout(ACK_WAIT_MAX)
            .timeout(ACK_WAIT_MAX)
            .max_ack_inflight(unacknowledged_max)
            .build(self.client.clone())
    }

    /// The next refusal, from this call on, of a message with this subject or of the way back of a reply. One connection has many
    /// questions under way.
    pub fn refusal_of(&self, subject: &str) -> impl Future<Output = String> + use<> {
        let subject = subject.to_lowercase();
        let mut refusal = self.refusal.clone();
        refusal.mark_unchanged();
        let is_ours = move |why: &str| {
            let why = why.to_lowercase();
            why.contains(&subject) || why.contains("subscription")
        };
        async move {
            while refusal.changed().await.is_ok() {
                let why = refusal.borrow_and_update().clone().unwrap_or_default();
                if is_ours(&why) {
                    return why;
                }
            }
            // The connection is gone, and the question has a limit of its own.
            std::future::pending().await
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("link", &*self.link.borrow()).finish_non_exhaustive()
    }
}

/// Behaviour if the first attempt to connect fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtFirst {
    Fail,
    /// The connection is made later.
    Wait,
}

impl Member {
    /// # Errors
    ///
    /// The settings are incomplete or not allowed.
    pub fn of(settings: &FleetChoice) -> Result<Member, ConnectError> {
        let url = settings.url.value.clone().ok_or(ConnectError::NotConfigured)?;
        let (servers, has_tls) = servers(&url, settings.allow_plain.value)?;
        let credentials = settings.creds.value.as_deref().map(|path| {
            let text = files::read_secret(path)
                .map_err(|source| ConnectError::Unreadable { path: path.to_owned(), source })?;
            Credentials::read(&text).map_err(|why| ConnectError::Malformed { path: path.to_owned(), why })
        });
        let credentials = credentials.transpose()?;
        let user = settings.user.value.as_deref().or_else(|| credentials.as_ref()?.user()).map(str::to_owned);
        let host = settings.host.value.clone().unwrap_or_else(host_name);
        Ok(Member {
            url,
            host,
            level: settings.level.value,
            user,
            servers,
            credentials,
            ca: settings.ca.value.clone(),
            has_tls,
        })
    }

    /// The user of a console.
    ///
    /// # Errors
    ///
    /// Neither the settings nor the credentials name one.
    pub fn user(&self) -> Result<&str, ConnectError> {
        self.user.as_deref().ok_or(ConnectError::NoUser)
    }

    /// Connects; replies come to the inbox with this name: that of the host for an agent, that of the user for a console.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or refuses the credentials.
    pub async fn connect(&self, inbox: &str, at_first: AtFirst) -> Result<Connection, ConnectError> {
        let failed = |why: String| ConnectError::Failed { url: self.url.clone(), why };
        let (link_is, link) = watch::channel(Link::Down);
        let (refused, refusal) = watch::channel(None);
        let (troubled, trouble) = watch::channel(None);
        let on_event = move |event: Event| {
            match event {
                Event::Connected => drop(link_is.send_replace(Link::Up)),
                Event::Disconnected | Event::Closed => drop(link_is.send_replace(Link::Down)),
                Event::ServerError(error) => {
                    tracing::warn!(%error, "the NATS server has refused something");
                    refused.send_replace(Some(error.to_string()));
                }
                Event::ClientError(error) => {
                    tracing::warn!(%error, "the connection to the NATS server");
                    troubled.send_replace(Some(error.to_string()));
                }
                Event::LameDuckMode | Event::Draining | Event::SlowConsumer(_) => {}
            }
            std::future::ready(())
        };
        let mut options = ConnectOptions::new()
            .name(format!("codex-shim {}", env!("CARGO_PKG_VERSION")))
            .custom_inbox_prefix(subject::inbox(inbox))
            .connection_timeout(CONNECT_WAIT_MAX)
            .ping_interval(PING_EVERY)
            .client_capacity(COMMANDS_MAX)
            .subscription_capacity(RECEIVED_MAX)
            .require_tls(self.has_tls)
            // A server could name addresses that the settings do not have, and the credentials would go there.
            .ignore_discovered_servers()
            .reconnect_delay_callback(move |attempts| match (at_first, attempts) {
                (AtFirst::Fail, 0 | 1) => Duration::ZERO,
                (AtFirst::Fail | AtFirst::Wait, _) => {
                    backoff(u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX))
                }
            })
            .event_callback(on_event);
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone());
        }
        options = match &self.credentials {
            Some(Credentials::Jwt { whole, .. }) => {
                options.credentials(whole).map_err(|_| failed("the credentials are not valid".to_owned()))?
            }
            Some(Credentials::Seed(seed)) => options.nkey(seed.clone()),
            Some(Credentials::Password { user, password }) => options.user_and_password(user.clone(), password.clone()),
            None => options,
        };
        if at_first == AtFirst::Wait {
            options = options.retry_on_initial_connect();
        }
        let not_reached = |why: String| ConnectError::NotReached { url: self.url.clone(), why };
        let connected = tokio::time::timeout(CONNECT_ALL_WAIT_MAX, options.connect(self.servers.clone())).await;
        let connected =
            connected.map_err(|_| not_reached(format!("no answer in {} s", CONNECT_ALL_WAIT_MAX.as_secs())))?;
        let client = connected.map_err(|error| match error.kind() {
            ConnectErrorKind::TimedOut | ConnectErrorKind::Io | ConnectErrorKind::Dns => not_reached(error.to_string()),
            kind @ (ConnectErrorKind::ServerParse
            | ConnectErrorKind::Authentication
            | ConnectErrorKind::AuthorizationViolation
            | ConnectErrorKind::Tls
            | ConnectErrorKind::MaxReconnects) => failed(not_connected(kind, &error)),
        })?;
        Ok(Connection { client, link, refusal, trouble })
    }
}

fn not_connected(kind: ConnectErrorKind, error: &impl fmt::Display) -> String {
    match kind {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            "the server refuses these credentials; check fleet.creds and fleet.user".to_owned()
        }
        ConnectErrorKind::Tls => format!("{error}; is the server's certificate signed by fleet.ca?"),
        ConnectErrorKind::ServerParse
        | ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => error.to_string(),
    }
}

/// The servers of a list separated by commas, and whether TLS is required.
fn servers(urls: &str, allow_plain: bool) -> Result<(Vec<ServerAddr>, bool), ConnectError> {
    let mut servers = Vec::new();
    let mut has_tls = true;
    for url in urls.split(',').map(str::trim) {
        has_tls &= check_url(url, allow_plain)?;
        servers.push(url.parse().map_err(|_| ConnectError::Address)?);
    }
    Ok((servers, has_tls))
}

/// Checks an address; returns whether TLS is required.
fn check_url(url: &str, allow_plain: bool) -> Result<bool, ConnectError> {
    let address: ServerAddr = url.parse().map_err(|_| ConnectError::Address)?;
    if address.has_user_pass() || address.username().is_some() {
        return Err(ConnectError::SecretInAddress);
    }
    let host = address.host();
    match address.scheme() {
        _ if host.is_empty() => Err(ConnectError::Address),
        "tls" => Ok(true),
        "nats" if allow_plain || is_loopback(host) => Ok(false),
        "nats" => Err(ConnectError::Plain(host.to_owned())),
        _ => Err(ConnectError::Address),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The pause after so many failures in a row: it doubles from [`BACKOFF_MIN`] to [`BACKOFF_MAX`], and is random in its upper half,
/// so that the hosts of a fleet do not all come at once.
pub(super) fn backoff(failures: u32) -> Duration {
    jittered(failures, random())
}

fn jittered(failures: u32, random: u32) -> Duration {
    let whole = BACKOFF_MIN.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX);
    whole / 2 + (whole / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// A random number. If the system has no random bytes, the pauses are alike, and nothing else changes.
fn random() -> u32 {
    u32::from_le_bytes(bytes().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn plain_connections_stay_on_this_machine() {
        let check = |url: &str, allow_plain: bool, expect: Result<bool, &str>| {
            let checked = check_url(url, allow_plain).map_err(|error| error.to_string());
            match (checked, expect) {
                (Ok(has_tls), Ok(expect)) => assert_eq!(has_tls, expect, "{url}"),
                (Err(error), Err(expect)) => assert!(error.contains(expect), "{url}: {error}"),
                (checked, _) => panic!("{url}: {checked:?}"),
            }
        };
        check("tls://nats.example.org:4222", false, Ok(true));
        check("nats://127.0.0.1:4222", false, Ok(false));
        check("nats://localhost:4222", false, Ok(false));
        check("nats://[::1]:4222", false, Ok(false));
        check("nats://nats.example.org:4222", true, Ok(false));
        check("nats://nats.example.org:4222", false, Err("without TLS"));
        check("nats://127.0.0.1.example.org:4222", false, Err("without TLS"));
        check("nats.example.org:4222", false, Err("without TLS"));
        check("tls://ann:pw@n:4222", false, Err("has a user or password"));
        check("ws://n:80", true, Err("not a valid address"));
        check("", true, Err("not a valid address"));
    }

    #[test]
    fn cluster_has_several_addresses() {
        let (all, has_tls) = servers("tls://a:1, tls://b:2", false).expect("valid");
        assert_eq!((all.len(), has_tls), (2, true));
        assert!(servers("tls://a:1,nats://b:2", false).is_err() && servers("tls://a:1,", false).is_err());
    }

    /// A server that names another address in its greeting, and ends each connection after its first answer.
    async fn serve_and_name(listener: &TcpListener, other: u16, times: usize) {
        for _ in 0..times {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let info = format!(
                "INFO {{\"server_id\":\"a\",\"server_name\":\"a\",\"version\":\"2.11.0\",\"go\":\"\",\"host\":\"127.0.0.1\",\
                 \"port\":1,\"headers\":true,\"max_payload\":1048576,\"proto\":1,\"client_id\":1,\
                 \"connect_urls\":[\"127.0.0.1:{other}\"]}}\r\n"
            );
            stream.write_all(info.as_bytes()).await.expect("it is sent");
            let (mut seen, mut chunk) = (Vec::new(), [0; 512]);
            while !seen.windows(4).any(|four| four == b"PING") {
                match stream.read(&mut chunk).await {
                    Ok(count @ 1..) => seen.extend_from_slice(&chunk[..count]),
                    Ok(0) | Err(_) => break,
                }
            }
            let _ = stream.write_all(b"PONG\r\n").await;
        }
    }

    #[tokio::test]
    async fn only_addresses_of_the_settings_are_connected_to() {
        let (named, other) = (TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await);
        let (named, other) = (named.expect("loopback has a port"), other.expect("loopback has a port"));
        let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
        let url = format!("nats://127.0.0.1:{}", port(&named));
        let (servers, has_tls) = servers(&url, false).expect("valid");
        let member = Member {
            url,
            host: "h".to_owned(),
            level: FleetLevel::Summary,
            user: None,
            servers,
            credentials: None,
            ca: None,
            has_tls,
        };
        let _connection = member.connect("h", AtFirst::Wait).await.expect("it is made later");
        let served = async {
            tokio::select! {
                () = serve_and_name(&named, port(&other), 6) => true,
                _ = other.accept() => false,
            }
        };
        let is_faithful = tokio::time::timeout(Duration::from_secs(60), served).await.expect("it connects");
        assert!(is_faithful, "it went to an address that the settings do not have");
    }

    #[test]
    fn pauses_grow_up_to_their_limit() {
        assert_eq!(jittered(0, 0), BACKOFF_MIN / 2);
        assert_eq!(jittered(0, u32::MAX), BACKOFF_MIN);
        assert_eq!(jittered(3, u32::MAX), BACKOFF_MIN * 8);
        assert_eq!((jittered(40, 0), jittered(u32::MAX, u32::MAX)), (BACKOFF_MAX / 2, BACKOFF_MAX));
    }
}
