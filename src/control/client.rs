//! Asks a relay through its control socket. For tools: each call blocks, at most for [`ANSWER_WAIT_MAX`] or as long as it
//! is told to.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::socket;
use crate::wire::LINE_BYTES_MAX;

/// How long a relay may take to answer.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Longest answer that is taken, in bytes: a request, and what was answered to it, may each be as long as a line.
const ANSWER_BYTES_MAX: usize = 2 * LINE_BYTES_MAX;

/// What a relay answered.
#[derive(Debug)]
pub struct Answer {
    /// The status of HTTP.
    pub status: StatusCode,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The document that was asked for.
    ///
    /// # Errors
    ///
    /// What the relay says against it, or that it is none.
    pub fn document<T: DeserializeOwned>(&self) -> Result<T, String> {
        #[derive(Deserialize)]
        struct Refused {
            detail: Detail,
        }
        #[derive(Deserialize)]
        struct Detail {
            message: String,
        }
        if self.status.is_success() {
            return serde_json::from_slice(&self.body)
                .map_err(|error| format!("its answer is none that we know: {error}"));
        }
        Err(match serde_json::from_slice::<Refused>(&self.body) {
            Ok(refused) => refused.detail.message,
            Err(_) => format!("it answered {}: {}", self.status, String::from_utf8_lossy(&self.body).trim_end()),
        })
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub struct ClientError {
    socket: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Connect(io::Error),
    /// The socket is another user's.
    Stranger(u32),
    Talk(Box<dyn std::error::Error + Send + Sync>),
    /// There was no answer in this time.
    TooSlow(Duration),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.socket.display();
        match &self.cause {
            Cause::Connect(error) => write!(f, "connect to {socket}: {error}"),
            Cause::Stranger(uid) => write!(f, "connect to {socket}: it is served by another user (uid {uid})"),
            Cause::Talk(error) => write!(f, "ask at {socket}: {error}"),
            Cause::TooSlow(wait_max) => write!(f, "ask at {socket}: no answer in {} s", wait_max.as_secs()),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Connect(error) => Some(error),
            Cause::Talk(error) => Some(&**error),
            Cause::Stranger(_) | Cause::TooSlow(_) => None,
        }
    }
}

/// `GET`s a path, such as `/healthz`, from the relay whose session's folder is `dir`.
///
/// # Errors
///
/// [`ClientError`] where there is no whole answer; an answer that refuses is one.
pub fn get(dir: &Path, path: &str) -> Result<Answer, ClientError> {
    ask_at(dir, Method::GET, path, Bytes::new(), ANSWER_WAIT_MAX)
}

/// `POST`s a JSON text likewise.
///
/// # Errors
///
/// [`ClientError`], as of [`get`].
pub fn post(dir: &Path, path: &str, json: String) -> Result<Answer, ClientError> {
    ask_at(dir, Method::POST, path, json.into(), ANSWER_WAIT_MAX)
}

/// `POST`s what the relay itself may have to wait for, such as an answer of the server.
///
/// # Errors
///
/// [`ClientError`], as of [`get`].
pub fn post_within(dir: &Path, path: &str, json: String, wait_max: Duration) -> Result<Answer, ClientError> {
    ask_at(dir, Method::POST, path, json.into(), wait_max)
}

/// `DELETE`s likewise.
///
/// # Errors
///
/// [`ClientError`], as of [`get`].
pub fn delete(dir: &Path, path: &str) -> Result<Answer, ClientError> {
    ask_at(dir, Method::DELETE, path, Bytes::new(), ANSWER_WAIT_MAX)
}

fn ask_at(dir: &Path, method: Method, path: &str, body: Bytes, wait_max: Duration) -> Result<Answer, ClientError> {
    let socket = socket::resolve(dir)
        .map_err(|error| ClientError { socket: dir.join(socket::SOCKET_FILE), cause: Cause::Connect(error) })?;
    let failed = |cause| ClientError { socket: socket.clone(), cause };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(Cause::Connect(error)))?;
    runtime.block_on(async {
        match timeout(wait_max, ask(&socket, method, path, body)).await {
            Ok(answer) => answer.map_err(failed),
            Err(_) => Err(failed(Cause::TooSlow(wait_max))),
        }
    })
}

async fn ask(socket: &Path, method: Method, path: &str, body: Bytes) -> Result<Answer, Cause> {
    let stream = UnixStream::connect(socket).await.map_err(Cause::Connect)?;
    let server = stream.peer_cred().map_err(Cause::Connect)?;
    if server.uid() != 0 && server.uid() != rustix::process::geteuid().as_raw() {
        return Err(Cause::Stranger(server.uid()));
    }
    let request = Request::builder().method(method).uri(path).header(header::HOST, "shim");
    let request = request.header(header::CONTENT_TYPE, "application/json").body(Full::new(body)).map_err(talk)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(talk)?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(talk)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(Cause::Talk)?;
    connection.abort();
    Ok(Answer { status, body: body.to_bytes() })
}

fn talk(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Cause {
    Cause::Talk(error.into())
}
