//! The client side of the control socket, for tools. Each call blocks for at most [`ANSWER_WAIT_MAX`] or the given time.
//!
//! A hung or stopped relay still has a socket that accepts connections. A call that changes something is therefore sent only
//! after the relay has answered `GET /healthz`, which needs no disk and no server. If that probe fails, nothing was sent and
//! the caller can say so. A call that only reads is sent at once, and given up as soon as `/healthz` gets no answer either.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, io};

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

pub use super::reply::{Answer, PendingRequest, RawReply, Refused, Unanswered};
use super::requests::{BY_HEADER, SOURCE_HEADER};
use super::routes::PROTOCOL;
use crate::api::{Command, CommandCall, Query, Verbatim};
use crate::os::identity::own_uid;
use crate::os::sockets;
use crate::socket::{LOOK_EVERY, Occupant, Peer};
use crate::store::{Found, Holder};
use crate::wire::LINE_BYTES_MAX;

/// How long a relay may take to answer.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long to wait for an answer before probing `/healthz`.
const PROBE_AFTER: Duration = Duration::from_secs(2);

/// How long a relay may take to answer `/healthz`.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(2);

/// How long a relay may take to admit a client: it decides at once, but may wait for room in its inbox.
const ATTACH_WAIT_MAX: Duration = Duration::from_secs(15);

/// Longest accepted answer, in bytes: a request and its answer may each be as long as a line.
const ANSWER_BYTES_MAX: usize = 2 * LINE_BYTES_MAX;

/// Why a call got no answer.
#[derive(Debug)]
pub struct ClientError {
    pub(super) socket: PathBuf,
    pub(super) cause: Cause,
    pub(super) reached: Reached,
}

/// How far a failed call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// Nothing that changes anything was sent.
    Unsent,
    /// The call was sent; the relay may still carry it out.
    Sent,
}

#[derive(Debug)]
pub(super) enum Cause {
    Connect(io::Error),
    /// The socket belongs to the user with this uid.
    Stranger(u32),
    Talk(Box<dyn std::error::Error + Send + Sync>),
    /// No answer within this time.
    TooSlow(Duration),
    /// No answer within this time, and none from `/healthz` either.
    Silent(Duration),
    /// The session is on another machine, which cannot be asked now; the reason.
    Away(String),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.socket.display();
        match &self.cause {
            Cause::Connect(error) => write!(f, "connect to {socket}: {error}"),
            Cause::Stranger(uid) => write!(f, "connect to {socket}: it belongs to another user (uid {uid})"),
            Cause::Talk(error) => write!(f, "ask at {socket}: {error}"),
            Cause::TooSlow(wait_max) | Cause::Silent(wait_max) => {
                write!(f, "ask at {socket}: no answer in {} s", wait_max.as_secs_f32().ceil())
            }
            Cause::Away(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Connect(error) => Some(error),
            Cause::Talk(error) => Some(&**error),
            Cause::Stranger(_) | Cause::TooSlow(_) | Cause::Silent(_) | Cause::Away(_) => None,
        }
    }
}

impl ClientError {
    /// The failure of a call to a session on another machine: nothing was sent.
    pub fn of_host(why: String) -> ClientError {
        ClientError { socket: PathBuf::new(), cause: Cause::Away(why), reached: Reached::Unsent }
    }

    /// The same for a call that was sent, so that it may still count.
    pub fn of_host_after_sending(why: String) -> ClientError {
        ClientError { reached: Reached::Sent, ..ClientError::of_host(why) }
    }

    /// Why the machine of the session cannot be asked, if that is the cause.
    pub fn away(&self) -> Option<&str> {
        match &self.cause {
            Cause::Away(why) => Some(why),
            Cause::Connect(_) | Cause::Stranger(_) | Cause::Talk(_) | Cause::TooSlow(_) | Cause::Silent(_) => None,
        }
    }

    /// Whether the relay does not even answer `/healthz`, so that a retry would only time out again.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        matches!(self.cause, Cause::Silent(_))
    }

    /// Whether no change can have reached the relay.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        self.reached == Reached::Unsent
    }

    /// Whether nobody listens at the socket.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        let nobody = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
        matches!(&self.cause, Cause::Connect(error) if nobody.contains(&error.kind()))
    }

    /// The message for the user: the session, its process, how far the call came, and the remedy.
    #[must_use]
    pub fn message(&self, session: &Found) -> String {
        if let Some(why) = self.away() {
            return why.to_owned();
        }
        let pid =
            session.holder.as_ref().map_or_else(|| "pid unknown".to_owned(), |holder| format!("pid {}", holder.pid));
        format!("session {} ({pid}) is live but does not answer: {}", session.name(), self.why(session))
    }

    /// The message without the session, for a user who already sees which one it is.
    #[must_use]
    pub fn why(&self, session: &Found) -> String {
        if let Some(why) = self.away() {
            return why.to_owned();
        }
        let remedy = match &session.holder {
            Some(Holder { pid, .. }) => displaced(session, *pid).unwrap_or_else(|| {
                format!(
                    "`kill -CONT {pid}` if it was stopped, else end it with `kill {pid}` and start its client again"
                )
            }),
            None => format!("see which process it is (`fuser {}`), and end it", session.dir.join("lock").display()),
        };
        let sent = match self.reached {
            Reached::Unsent => "nothing was sent",
            Reached::Sent => "the relay may still carry out the call",
        };
        format!("{self}; {sent}; {remedy}")
    }
}

/// What has happened to the control socket of a relay that runs in the process `pid`, and the remedy; `None` if the socket is there.
fn displaced(session: &Found, pid: u32) -> Option<String> {
    let what = match Occupant::of(&session.dir.join(super::SOCKET_FILE)).ok()? {
        Occupant::Nothing | Occupant::Stale => {
            return Some(format!(
                "its socket is gone, and is back within {LOOK_EVERY:?}; if it stays away, end it with `kill {pid}` and start its \
                 client again"
            ));
        }
        Occupant::Other(what) => what.to_owned(),
        Occupant::Listener(stream) => {
            let other = Peer::of(&stream?).ok()?.pid.filter(|other| *other != pid)?;
            format!("a socket of another process (pid {other})")
        }
    };
    Some(format!("{what} is in the place of its socket; move it away, and the socket is back within {LOOK_EVERY:?}"))
}

/// `GET`s a path, such as `/healthz`, from the relay whose session folder is `dir`.
///
/// # Errors
///
/// No complete response. A refusal is a response.
pub fn get(dir: &Path, path: &str) -> Result<Answer, ClientError> {
    ask_at(dir, Method::GET, path, Bytes::new(), Caller::Tool, ANSWER_WAIT_MAX)
}

/// Checks that a relay answers.
///
/// # Errors
///
/// It does not.
pub fn check(dir: &Path) -> Result<(), ClientError> {
    get(dir, "/healthz").map(drop)
}

/// `POST`s JSON to it.
///
/// # Errors
///
/// As for [`get`].
pub fn post(dir: &Path, path: &str, json: String) -> Result<Answer, ClientError> {
    ask_at(dir, Method::POST, path, json.into(), Caller::Tool, ANSWER_WAIT_MAX)
}

/// Asks the relay whose session folder is `dir`.
pub fn ask<Q: Query>(dir: &Path, query: &Q, wait_max: Duration) -> Result<Q::Document, Unanswered> {
    asked(dir, query, wait_max)?.document()
}

/// [`ask`] that keeps the text of the document.
pub fn ask_verbatim<Q: Query>(dir: &Path, query: &Q, wait_max: Duration) -> Result<Verbatim<Q::Document>, Unanswered> {
    asked(dir, query, wait_max)?.document()
}

fn asked(dir: &Path, query: &impl Query, wait_max: Duration) -> Result<RawReply, Unanswered> {
    ask_at(dir, Method::GET, &query.path(), Bytes::new(), Caller::Tool, wait_max)?.reply()
}

/// Sends a command to the relay whose session folder is `dir`.
pub fn command(dir: &Path, command: &Command, caller: Caller<'_>) -> Result<RawReply, Unanswered> {
    send_call(dir, command.call(), caller)
}

/// [`command`] with another timeout.
pub fn command_within(
    dir: &Path,
    command: &Command,
    caller: Caller<'_>,
    wait_max: Duration,
) -> Result<RawReply, Unanswered> {
    send_call(dir, CommandCall { wait_max, ..command.call() }, caller)
}

fn send_call(dir: &Path, call: CommandCall, caller: Caller<'_>) -> Result<RawReply, Unanswered> {
    let CommandCall { method, path, body, wait_max } = call;
    ask_at(dir, method, &path, body.into(), caller, wait_max)?.reply()
}

/// Sends a request without a body to a socket that is not that of a session.
///
/// # Errors
///
/// No complete response. A refusal is a response.
pub fn ask_socket(socket: &Path, method: Method, path: &str) -> Result<RawReply, Unanswered> {
    let failed = |cause| ClientError { socket: socket.to_owned(), cause, reached: Reached::Sent };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(Cause::Connect(error)))?;
    let ask = async { whole(send(socket, Request::builder().method(method).uri(path), Bytes::new()).await?).await };
    let asked = runtime.block_on(async { timeout(ANSWER_WAIT_MAX, ask).await });
    asked.unwrap_or(Err(Cause::TooSlow(ANSWER_WAIT_MAX))).map_err(failed)?.reply()
}

/// The result of [`attach`].
#[derive(Debug)]
pub enum Attached {
    /// Admitted: the connection now carries lines.
    Lines(std::os::unix::net::UnixStream),
    /// The relay's reason for the refusal.
    Refused(Refused),
}

/// Attaches the caller as the client of the server at the session folder `dir`.
///
/// # Errors
///
/// As for [`get`].
pub fn attach(dir: &Path) -> Result<Attached, ClientError> {
    at(dir, ATTACH_WAIT_MAX, Reached::Sent, async |socket| {
        let request = Request::builder().method(Method::POST).uri("/sessions/self/attach");
        let request = request.header(header::CONNECTION, "upgrade").header(header::UPGRADE, PROTOCOL);
        let response = send(socket, request, Bytes::new()).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Attached::Refused(Refused::of(whole(response).await?)));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(talk)?;
        let parts =
            upgraded.downcast::<TokioIo<UnixStream>>().map_err(|_| talk("the connection is of another kind"))?;
        if !parts.read_buf.is_empty() {
            return Err(talk("the relay sent data too early"));
        }
        let stream = parts.io.into_inner().into_std().map_err(Cause::Connect)?;
        stream.set_nonblocking(false).map_err(Cause::Connect)?;
        Ok(Attached::Lines(stream))
    })
}

/// Who calls. The ledger records it as the source of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller<'a> {
    Tool,
    Tui,
    Web,
    /// The agent of a fleet, on behalf of this user.
    Fleet(&'a str),
}

fn ask_at(
    dir: &Path,
    method: Method,
    path: &str,
    body: Bytes,
    caller: Caller<'_>,
    wait_max: Duration,
) -> Result<Answer, ClientError> {
    let reached = if method == Method::GET { Reached::Unsent } else { Reached::Sent };
    at(dir, wait_max, reached, async |socket| {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let request = match caller {
            Caller::Tool => request.header(SOURCE_HEADER, "cli"),
            Caller::Tui => request.header(SOURCE_HEADER, "tui"),
            Caller::Web => request.header(SOURCE_HEADER, "web"),
            Caller::Fleet(by) => request.header(BY_HEADER, by),
        };
        whole(send(socket, request, body).await?).await
    })
}

/// Runs `ask` with the socket of the session folder `dir`. If it fails, the error carries `reached`.
fn at<T>(
    dir: &Path,
    wait_max: Duration,
    reached: Reached,
    talk: impl AsyncFnOnce(&Path) -> Result<T, Cause>,
) -> Result<T, ClientError> {
    let (runtime, socket) = begin(dir)?;
    let failed = |cause, reached| ClientError { socket: socket.clone(), cause, reached };
    runtime.block_on(async {
        match reached {
            Reached::Unsent => within(&socket, wait_max, talk(&socket)).await.map_err(|cause| failed(cause, reached)),
            Reached::Sent => {
                let probed = probe(&socket, PROBE_AFTER + PROBE_WAIT_MAX).await;
                probed.map_err(|cause| failed(cause, Reached::Unsent))?;
                let done = timeout(wait_max, talk(&socket)).await;
                done.unwrap_or(Err(Cause::TooSlow(wait_max))).map_err(|cause| failed(cause, reached))
            }
        }
    })
}

/// Finds the socket of the session folder `dir` and creates the runtime for the call.
pub(super) fn begin(dir: &Path) -> Result<(Runtime, PathBuf), ClientError> {
    let failed = |socket, error| ClientError { socket, cause: Cause::Connect(error), reached: Reached::Unsent };
    let socket = super::resolve(dir).map_err(|error| failed(dir.join(super::SOCKET_FILE), error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok((runtime.map_err(|error| failed(socket.clone(), error))?, socket))
}

/// Awaits a call that changes nothing, and gives up early if `/healthz` gets no answer either.
pub(super) async fn within<T>(
    socket: &Path,
    wait_max: Duration,
    call: impl Future<Output = Result<T, Cause>>,
) -> Result<T, Cause> {
    let mut call = std::pin::pin!(call);
    if let Ok(done) = timeout(wait_max.min(PROBE_AFTER), &mut call).await {
        return done;
    }
    let Some(left) = wait_max.checked_sub(PROBE_AFTER).filter(|left| !left.is_zero()) else {
        return Err(Cause::TooSlow(wait_max));
    };
    let alive = async {
        match probe(socket, PROBE_WAIT_MAX).await {
            Ok(()) => std::future::pending().await,
            Err(_) => Cause::Silent(PROBE_AFTER + PROBE_WAIT_MAX.min(left)),
        }
    };
    tokio::select! {
        done = timeout(left, call) => done.unwrap_or(Err(Cause::TooSlow(wait_max))),
        silent = alive => Err(silent),
    }
}

/// Waits for an answer to `GET /healthz`.
async fn probe(socket: &Path, wait_max: Duration) -> Result<(), Cause> {
    let ask = async {
        let request = Request::builder().method(Method::GET).uri("/healthz");
        whole(send(socket, request, Bytes::new()).await?).await.map(drop)
    };
    timeout(wait_max, ask).await.unwrap_or(Err(Cause::Silent(wait_max)))
}

/// Waits until the relay whose session folder is `dir` answers at all. Blocks no thread.
///
/// # Errors
///
/// It does not.
pub async fn probed(dir: &Path) -> Result<(), ClientError> {
    let failed = |socket, cause| ClientError { socket, cause, reached: Reached::Unsent };
    let socket = super::resolve(dir);
    let socket = socket.map_err(|error| failed(dir.join(super::SOCKET_FILE), Cause::Connect(error)))?;
    probe(&socket, PROBE_WAIT_MAX).await.map_err(|cause| failed(socket, cause))
}

/// Sends a request and returns the response head. The connection lives as long as the runtime.
pub(super) async fn send(socket: &Path, request: Builder, body: Bytes) -> Result<Response<Incoming>, Cause> {
    let stream = sockets::connect(socket).and_then(UnixStream::from_std).map_err(Cause::Connect)?;
    let server = stream.peer_cred().map_err(Cause::Connect)?;
    if server.uid() != 0 && server.uid() != own_uid() {
        return Err(Cause::Stranger(server.uid()));
    }
    let request = request.header(header::HOST, "shim").body(Full::new(body)).map_err(talk)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(talk)?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(talk)
}

/// Reads the body of a response.
pub(super) async fn whole(response: Response<Incoming>) -> Result<Answer, Cause> {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(Cause::Talk)?;
    Ok(Answer { status, body: body.to_bytes() })
}

pub(super) fn talk(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Cause {
    Cause::Talk(error.into())
}

// Reads one of the relay's event streams (Server-Sent Events), for tools. Each call blocks.

/// How long a relay may be silent: it sends a keep-alive every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Longest pause before a reconnect that a relay can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Longest accepted event, in bytes.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    /// The id to send as `Last-Event-ID`.
    pub id: Option<String>,
    pub data: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    Event(StreamEvent),
    /// No event within the time limit.
    Nothing,
    /// The relay ended the stream.
    End,
}

/// An open stream.
#[derive(Debug)]
pub struct Listener {
    runtime: Runtime,
    socket: std::path::PathBuf,
    body: Incoming,
    pieces: Pieces,
    /// When the last complete event or keep-alive arrived.
    received_at: Instant,
}

impl Listener {
    /// The pause before a reconnect that the relay asked for, if any.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.pieces.retry_after
    }
}

/// The result of [`Listener::start`].
#[derive(Debug)]
pub enum Listening {
    Begun(Listener),
    /// The relay's reason for the refusal.
    Refused(Refused),
}

impl Listener {
    /// Opens the stream at `path` of the relay whose session folder is `dir`, after the event `last_id`.
    ///
    /// # Errors
    ///
    /// The relay did not answer.
    pub fn start(dir: &Path, path: &str, last_id: Option<&str>) -> Result<Listening, ClientError> {
        let (runtime, socket) = begin(dir)?;
        let failed = |cause| ClientError { socket: socket.clone(), cause, reached: Reached::Unsent };
        let ask = async {
            let mut request = Request::builder().method(Method::GET).uri(path);
            if let Some(last_id) = last_id {
                request = request.header("last-event-id", last_id);
            }
            let response = send(&socket, request, Bytes::new()).await?;
            if response.status().is_success() { Ok(Ok(response.into_body())) } else { Ok(Err(whole(response).await?)) }
        };
        match runtime.block_on(within(&socket, ANSWER_WAIT_MAX, ask)) {
            Ok(Ok(body)) => {
                let received_at = Instant::now();
                Ok(Listening::Begun(Listener { runtime, socket, body, pieces: Pieces::default(), received_at }))
            }
            Ok(Err(answer)) => Ok(Listening::Refused(Refused::of(answer))),
            Err(cause) => Err(failed(cause)),
        }
    }

    /// Waits for the next event, for at most `wait_max`.
    ///
    /// # Errors
    ///
    /// The stream broke off, or the relay was silent for too long.
    pub fn next(&mut self, wait_max: Option<Duration>) -> Result<Received, ClientError> {
        let Listener { runtime, socket, body, pieces, received_at } = self;
        let failed = |cause| ClientError { socket: socket.clone(), cause, reached: Reached::Unsent };
        let began = Instant::now();
        loop {
            let (event, took) = pieces.take();
            if took == Took::Some {
                *received_at = Instant::now();
            }
            if let Some(event) = event {
                return Ok(Received::Event(event));
            }
            if pieces.bytes.len() > EVENT_BYTES_MAX {
                return Err(failed(talk("the event is too long")));
            }
            let silence_left = SILENCE_MAX.saturating_sub(received_at.elapsed());
            let wait =
                wait_max.map_or(silence_left, |wait_max| wait_max.saturating_sub(began.elapsed()).min(silence_left));
            let frame = runtime.block_on(async { timeout(wait, body.frame()).await });
            match frame {
                Ok(None) => return Ok(Received::End),
                Ok(Some(Ok(frame))) => pieces.bytes.extend(frame.into_data().unwrap_or_default()),
                Ok(Some(Err(error))) => return Err(failed(talk(error))),
                Err(_) if received_at.elapsed() >= SILENCE_MAX => return Err(failed(Cause::TooSlow(SILENCE_MAX))),
                Err(_) => return Ok(Received::Nothing),
            }
        }
    }
}

/// Whether anything complete has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Took {
    Some,
    Nothing,
}

/// Received bytes of a stream that were not parsed yet.
#[derive(Debug, Default)]
struct Pieces {
    bytes: Vec<u8>,
    retry_after: Option<Duration>,
}

impl Pieces {
    /// The next event, and whether anything complete has arrived. A keep-alive is complete but not an event.
    fn take(&mut self) -> (Option<StreamEvent>, Took) {
        let mut took = Took::Nothing;
        while let Some(end) = memchr::memmem::find(&self.bytes, b"\n\n") {
            took = Took::Some;
            let block: Vec<u8> = self.bytes.drain(..end + 2).collect();
            let block = String::from_utf8_lossy(&block);
            let member = |name: &str| {
                let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
                Some(line.strip_prefix(' ').unwrap_or(line).to_owned())
            };
            if let Some(retry) = member("retry").and_then(|retry| retry.parse().ok()) {
                self.retry_after = Some(Duration::from_millis(retry).min(RETRY_AFTER_MAX));
            }
            if let Some(data) = member("data") {
                return (Some(StreamEvent { id: member("id"), data }), took);
            }
        }
        (None, took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_any_chunking() {
        let stream = ": alive\n\nid: 7\ndata: {\"a\":\"b: c\"}\n\n: alive\n\ndata: {}\n\nid: 8\nda";
        for bytes_each in [1, 2, 3, 7, 1_000] {
            let mut pieces = Pieces::default();
            let mut taken = Vec::new();
            for piece in stream.as_bytes().chunks(bytes_each) {
                pieces.bytes.extend(piece);
                taken.extend(std::iter::from_fn(|| pieces.take().0));
            }
            let sent = |id: Option<&str>, data: &str| StreamEvent { id: id.map(str::to_owned), data: data.to_owned() };
            assert_eq!(taken, [sent(Some("7"), "{\"a\":\"b: c\"}"), sent(None, "{}")], "{bytes_each}");
            assert_eq!(pieces.bytes, b"id: 8\nda");
            pieces.bytes.extend(b"ta: 1\n\n: closed\nretry: 5000\n\n");
            assert_eq!((pieces.take().0, pieces.take().0), (Some(sent(Some("8"), "1")), None));
            assert_eq!(pieces.retry_after, Some(Duration::from_secs(5)));
        }
    }
}
