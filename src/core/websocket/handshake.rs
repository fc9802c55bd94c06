//! The handshakes: a client's with us, and ours with the server.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::{client, derive_accept_key, server};
use tungstenite::http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use super::Role;
use super::end::End;
use crate::os::descriptors::{append, never_block, retry_on_intr, write};
use crate::os::{self, Errno};

/// Limit on a request or a response, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// How codex offers compression, besides the extensions of a WebSocket.
const CODEX_COMPRESSION: HeaderName = HeaderName::from_static("x-codex-app-server-compression");

/// The request of a client's handshake.
#[derive(Debug, Clone)]
pub struct UpgradeRequest {
    /// The path and query, as sent.
    pub path: String,
    /// All headers. Names are in lower case, and their order is kept.
    pub headers: HeaderMap,
}

impl UpgradeRequest {
    /// A request of our own.
    pub fn of_path(path: &str) -> UpgradeRequest {
        UpgradeRequest { path: path.to_owned(), headers: HeaderMap::new() }
    }
}

/// The answer of the server to a handshake.
#[derive(Debug, Clone)]
pub struct Response {
    /// 101, or the status of a refusal.
    pub status: u16,
    pub headers: HeaderMap,
}

impl Response {
    /// A response of our own that accepts, with these headers.
    pub fn accepting(headers: &[(&'static str, &'static str)]) -> Response {
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        Response { status: 101, headers: headers.iter().map(header).collect() }
    }

    pub fn is_accepted(&self) -> bool {
        self.status == 101
    }
}

/// Why a client does not become an [`End`]. Its connection is to be closed at once, as codex closes it. A client with an
/// `Origin` has been sent a response with status 403.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A probe: no event and no log.
    #[error("the client closed the connection before its handshake")]
    Eof,
    #[error("the client does not speak HTTP")]
    NotHttp,
    #[error("the request is not a WebSocket handshake")]
    NotWebSocket,
    /// A web page sent this request.
    #[error("the handshake has an `Origin`")]
    Origin,
    #[error("the request is over {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("read the request")]
    Broken(#[source] io::Error),
}

/// Why the connection to the server does not become an [`End`].
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the server closed the connection during the handshake")]
    Eof,
    #[error("the server's response is not a WebSocket handshake")]
    NotWebSocket,
    #[error("the server's response is over {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("connection to the server")]
    Broken(#[source] io::Error),
}

/// A client that has connected and whose request is not answered.
#[derive(Debug)]
pub struct Accepting {
    socket: UnixStream,
    head: Vec<u8>,
    /// The accept key for its request.
    accept_key: String,
}

impl Accepting {
    /// Makes the socket non-blocking.
    pub fn new(socket: UnixStream) -> io::Result<Accepting> {
        never_block(&socket)?;
        Ok(Accepting { socket, head: Vec::new(), accept_key: String::new() })
    }

    /// Reads on. Returns the request once it is complete: stop polling then until [`Accepting::accept`].
    pub fn read(&mut self) -> Result<Option<UpgradeRequest>, Refusal> {
        loop {
            match read_head(&self.socket, &mut self.head) {
                Ok(0) => return Err(Refusal::Eof),
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(Refusal::Broken(errno.into())),
            }
            if let Some(request) = self.parse()? {
                return Ok(Some(request));
            }
        }
    }

    fn parse(&mut self) -> Result<Option<UpgradeRequest>, Refusal> {
        let method = b"GET ";
        if !self.head.iter().zip(method).all(|(sent, expected)| sent == expected) {
            return Err(Refusal::NotHttp);
        }
        if !is_complete(&self.head) {
            return if self.head.len() < HEAD_BYTES_MAX { Ok(None) } else { Err(Refusal::TooLong) };
        }
        let parsed = server::Request::try_parse(&self.head).map_err(|_| Refusal::NotHttp)?;
        let Some((length, request)) = parsed else { return Err(Refusal::NotHttp) };
        let response = server::create_response(&request).map_err(|_| Refusal::NotWebSocket)?;
        if request.headers().contains_key(ORIGIN) {
            write_refusal(&self.socket, 403, "");
            return Err(Refusal::Origin);
        }
        let path = request.uri().path_and_query().ok_or(Refusal::NotHttp)?.to_string();
        let accept_key = response.headers().get(SEC_WEBSOCKET_ACCEPT).ok_or(Refusal::NotWebSocket)?;
        accept_key.to_str().map_err(|_| Refusal::NotWebSocket)?.clone_into(&mut self.accept_key);
        self.head.drain(..length);
        Ok(Some(UpgradeRequest { path, headers: request.into_parts().0.headers }))
    }

    /// Accepts the client with the headers of the server's response, after [`Accepting::read`] returned the request.
    /// The response is queued: flush the end.
    pub fn accept(self, response: &Response) -> End {
        let mut answer = b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n".to_vec();
        write_header(&mut answer, &SEC_WEBSOCKET_ACCEPT, self.accept_key.as_bytes());
        write_end_to_end(&mut answer, &response.headers);
        answer.extend_from_slice(b"\r\n");
        End::new(Role::Server, self.socket, self.head, answer)
    }

    /// Answers with an HTTP status, such as that of the server's refusal, and closes the connection.
    pub fn refuse(self, status: u16) {
        write_refusal(&self.socket, status, "");
    }

    /// Answers with an HTTP status and a document that says why, and closes the connection.
    pub fn refuse_with(self, status: u16, document: &str) {
        write_refusal(&self.socket, status, document);
    }
}

impl AsFd for Accepting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A connection to the server during our handshake.
#[derive(Debug)]
pub struct Connecting {
    socket: UnixStream,
    request: Vec<u8>,
    written: usize,
    head: Vec<u8>,
    accept_key: String,
}

impl Connecting {
    /// Makes the socket non-blocking, and asks what the client asks for. Headers of the client's connection are replaced
    /// by our own, and an offer to compress is left out: the hub reads the messages.
    pub fn new(socket: UnixStream, request: &UpgradeRequest) -> io::Result<Connecting> {
        never_block(&socket)?;
        let key = client::generate_key();
        let mut head = format!("GET {} HTTP/1.1\r\n", request.path).into_bytes();
        if !request.headers.contains_key(HOST) {
            write_header(&mut head, &HOST, b"localhost");
        }
        head.extend_from_slice(b"connection: Upgrade\r\nupgrade: websocket\r\n");
        write_header(&mut head, &SEC_WEBSOCKET_VERSION, b"13");
        write_header(&mut head, &SEC_WEBSOCKET_KEY, key.as_bytes());
        write_end_to_end(&mut head, &request.headers);
        head.extend_from_slice(b"\r\n");
        let accept_key = derive_accept_key(key.as_bytes());
        Ok(Connecting { socket, request: head, written: 0, head: Vec::new(), accept_key })
    }

    /// Whether the request is not written whole: poll for writing, too.
    pub fn wants_write(&self) -> bool {
        self.written < self.request.len()
    }

    /// Writes and reads on. Returns the response once it is complete: see [`Response::is_accepted`].
    pub fn advance(&mut self) -> Result<Option<Response>, ConnectError> {
        while self.wants_write() {
            match retry_on_intr(|| write(&self.socket, &self.request[self.written..])) {
                Ok(written) => self.written += written,
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(ConnectError::Broken(errno.into())),
            }
        }
        loop {
            match read_head(&self.socket, &mut self.head) {
                Ok(0) => return Err(ConnectError::Eof),
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(ConnectError::Broken(errno.into())),
            }
            if let Some(response) = self.parse()? {
                return Ok(Some(response));
            }
        }
    }

    fn parse(&mut self) -> Result<Option<Response>, ConnectError> {
        if !is_complete(&self.head) {
            return if self.head.len() < HEAD_BYTES_MAX { Ok(None) } else { Err(ConnectError::TooLong) };
        }
        let parsed = client::Response::try_parse(&self.head).map_err(|_| ConnectError::NotWebSocket)?;
        let Some((length, response)) = parsed else { return Err(ConnectError::NotWebSocket) };
        let response = response.into_parts().0;
        let response = Response { status: response.status.as_u16(), headers: response.headers };
        let key = response.headers.get(SEC_WEBSOCKET_ACCEPT).map(|key| key.as_bytes());
        // An extension that was not asked for would change the frames.
        let has_extension =
            response.headers.contains_key(SEC_WEBSOCKET_EXTENSIONS) || response.headers.contains_key(CODEX_COMPRESSION);
        if response.is_accepted() && (key != Some(self.accept_key.as_bytes()) || has_extension) {
            return Err(ConnectError::NotWebSocket);
        }
        self.head.drain(..length);
        Ok(Some(response))
    }

    /// The connection, after [`Connecting::advance`] returned a response that accepts.
    pub fn into_end(self) -> End {
        End::new(Role::Client, self.socket, self.head, Vec::new())
    }
}

impl AsFd for Connecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reads what has come, up to [`HEAD_BYTES_MAX`] in all.
fn read_head(socket: &UnixStream, head: &mut Vec<u8>) -> os::Result<usize> {
    head.reserve_exact(HEAD_BYTES_MAX.saturating_sub(head.len()).max(1));
    retry_on_intr(|| append(socket, head))
}

/// Whether there is an empty line, the end of the headers.
fn is_complete(head: &[u8]) -> bool {
    memchr::memmem::find(head, b"\n\r\n").is_some() || memchr::memmem::find(head, b"\n\n").is_some()
}

fn write_header(output: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    output.extend_from_slice(name.as_str().as_bytes());
    output.extend_from_slice(b": ");
    output.extend_from_slice(value);
    output.extend_from_slice(b"\r\n");
}

/// Writes the headers that are not of one connection only.
fn write_end_to_end(output: &mut Vec<u8>, headers: &HeaderMap) {
    let named: Vec<&[u8]> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    for (name, value) in headers {
        let is_named = named.iter().any(|named| named.eq_ignore_ascii_case(name.as_str().as_bytes()));
        if !is_named && !OF_ONE_CONNECTION.contains(name) {
            write_header(output, name, value.as_bytes());
        }
    }
}

const OF_ONE_CONNECTION: [HeaderName; 12] = [
    CONNECTION,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    CONTENT_LENGTH,
    SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION,
    SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_EXTENSIONS,
    CODEX_COMPRESSION,
];

/// Writes a response whose body is a document in JSON, or empty. Nothing has been written before, so that the socket has room for
/// it; if it has not, the client sees a closed connection.
fn write_refusal(socket: &UnixStream, status: u16, body: &str) {
    let reason = tungstenite::http::StatusCode::from_u16(status).ok();
    let reason = reason.and_then(|status| status.canonical_reason()).unwrap_or("Refused");
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    let response =
        format!("HTTP/1.1 {status} {reason}\r\nconnection: close\r\n{kind}content-length: {length}\r\n\r\n{body}");
    let _ = retry_on_intr(|| write(socket, response.as_bytes()));
}
