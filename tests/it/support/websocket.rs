//! WebSocket over Unix sockets: a blocking client, and a scripted `codex app-server --listen unix://PATH`.
//!
//! The scripted server is a process of its own, as the real one is: this test binary, which [`FakeServer::program`] starts
//! again. A test steers it over a connection to the path `/control`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::http::HeaderMap;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, WebSocket};

use super::{PATIENCE, eventually};

/// How often a waiting client checks its patience.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Limit on a message to a client, in bytes, as in the TUI of codex.
const MESSAGE_BYTES_MAX: usize = 128 << 20;

/// The path at which a test steers the scripted server.
const CONTROL: &str = "/control";

/// The variable that makes this test binary a scripted server, with the path of its socket.
const LISTEN: &str = "CODEX_SHIM_TEST_LISTEN";

/// The version that the scripted server names.
pub const FAKE_VERSION: &str = "0.169.0";

/// A WebSocket client.
pub struct Client {
    socket: WebSocket<UnixStream>,
    /// The headers of the server's handshake.
    pub headers: HeaderMap,
    /// All text messages so far.
    pub seen: Vec<String>,
    /// The test has already waited for messages up to here.
    cursor: usize,
    next_id: i64,
}

impl Client {
    /// Connects once something listens at this path.
    pub fn connect(socket: &Path) -> Client {
        Client::connect_to(socket, "/rpc", &[])
    }

    pub fn connect_to(socket: &Path, path: &str, headers: &[(&'static str, &str)]) -> Client {
        eventually("a listener", || UnixStream::connect(socket).ok().map(drop));
        Client::try_connect(socket, path, headers).expect("the handshake succeeds")
    }

    /// The error of a refused handshake is [`Error::Http`].
    pub fn try_connect(socket: &Path, path: &str, headers: &[(&'static str, &str)]) -> Result<Client, Error> {
        Client::over(UnixStream::connect(socket)?, path, headers)
    }

    /// The same over a stream that leads to a server.
    pub fn over(stream: UnixStream, path: &str, headers: &[(&'static str, &str)]) -> Result<Client, Error> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut request = format!("ws://localhost{path}").into_client_request()?;
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().expect("a header"));
        }
        let limits = limits(MESSAGE_BYTES_MAX);
        let connected = tungstenite::client::client_with_config(request, stream, Some(limits));
        let (socket, response) = connected.map_err(|error| match error {
            tungstenite::HandshakeError::Failure(error) => error,
            tungstenite::HandshakeError::Interrupted(_) => Error::Io(ErrorKind::TimedOut.into()),
        })?;
        socket.get_ref().set_read_timeout(Some(CHECK_EVERY))?;
        Ok(Client { socket, headers: response.into_parts().0.headers, seen: Vec::new(), cursor: 0, next_id: 0 })
    }

    /// Sends a text message as it is.
    pub fn send(&mut self, text: &str) {
        self.socket.send(Message::text(text)).expect("the server reads");
    }

    /// Sends a message of another kind.
    pub fn send_message(&mut self, message: Message) {
        self.socket.send(message).expect("the server reads");
    }

    /// Waits for the next message of any kind. `None` is the end of the connection.
    ///
    /// # Panics
    ///
    /// After [`PATIENCE`].
    pub fn receive_message(&mut self) -> Option<Message> {
        let came = self.receive_within(PATIENCE);
        came.unwrap_or_else(|| panic!("no message came; seen: {:#?}", self.seen))
    }

    /// Waits for the next text message. `None` is the end of the connection.
    pub fn receive(&mut self) -> Option<String> {
        loop {
            match self.receive_message()? {
                Message::Text(text) => {
                    self.seen.push(text.to_string());
                    return Some(text.to_string());
                }
                Message::Close(_) => return None,
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    /// The next message, `Some(None)` at the end of the connection, or `None` if nothing comes in this time.
    fn receive_within(&mut self, patience: Duration) -> Option<Option<Message>> {
        let began = Instant::now();
        loop {
            match self.socket.read() {
                Ok(message) => return Some(Some(message)),
                Err(Error::Io(error)) if is_wait(&error) && began.elapsed() < patience => {}
                Err(Error::Io(error)) if is_wait(&error) => return None,
                Err(_) => return Some(None),
            }
        }
    }

    /// Waits for a message, and passes over those before it. A later call continues after it.
    pub fn wait_for(&mut self, what: &str, mut is_it: impl FnMut(&Value) -> bool) -> Value {
        loop {
            while let Some(text) = self.seen.get(self.cursor) {
                self.cursor += 1;
                let message = serde_json::from_str(text).unwrap_or(Value::Null);
                if is_it(&message) {
                    return message;
                }
            }
            assert!(self.receive().is_some(), "{what}: the connection ended; seen: {:#?}", self.seen);
        }
    }

    /// Sends a request; returns its id.
    pub fn request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"id": id, "method": method, "params": params}).to_string());
        id
    }

    /// Sends a request and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        let answer = self.wait_for(&format!("the answer to {method}"), |message| {
            message.get("method").is_none() && message["id"] == id
        });
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// `initialize` and `initialized`, as a client of this name.
    pub fn initialize(&mut self, name: &str) -> Value {
        let info = json!({"name": name, "title": null, "version": "1.0"});
        let capabilities = json!({"experimentalApi": true, "requiredHumanApproval": true});
        let result = self.call("initialize", json!({"clientInfo": info, "capabilities": capabilities}));
        self.send(r#"{"method":"initialized"}"#);
        result
    }

    /// Answers a request of the server.
    pub fn answer(&mut self, id: &Value, result: Value) {
        self.send(&json!({"id": id, "result": result}).to_string());
    }

    /// The socket, to be shut down or filled.
    pub fn stream(&self) -> &UnixStream {
        self.socket.get_ref()
    }

    /// Ends the connection with a close frame.
    pub fn close(mut self) {
        let _ = self.socket.close(None);
        while !matches!(self.receive_within(PATIENCE), Some(None) | None) {}
    }
}

/// codex takes frames of 16 MiB and messages of 64 MiB, tungstenite's own limits; its clients take more.
fn limits(bytes_max: usize) -> WebSocketConfig {
    WebSocketConfig::default().max_frame_size(Some(bytes_max)).max_message_size(Some(bytes_max))
}

fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// A connection to the scripted server that steers it.
///
/// The server answers `initialize`, `thread/start`, `thread/resume`, `thread/unsubscribe`, `thread/loaded/list` and
/// `turn/start` as the real one does, as far as subscriptions go, and any other request with `{}`.
pub struct FakeServer {
    control: Client,
    /// The process, if the test started it itself.
    process: Option<Child>,
}

impl FakeServer {
    /// Writes a program to this folder that answers `--version` and `app-server --listen unix://PATH` as codex does.
    pub fn program(folder: &Path) -> PathBuf {
        let path = folder.join("codex");
        let tests = std::env::current_exe().expect("this program has a path");
        let script = format!(
            "#!/bin/sh\n\
             [ \"$1\" = --version ] && echo 'codex-cli {FAKE_VERSION}' && exit\n\
             [ \"$1 $2\" = 'app-server --listen' ] || {{ echo \"unexpected arguments: $*\" >&2; exit 2; }}\n\
             {LISTEN}=${{3#unix://}} exec '{}' support::websocket::scripted_server --exact --nocapture\n",
            tests.display()
        );
        fs::write(&path, script).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("our own file");
        path
    }

    /// Starts the server at this path.
    pub fn start(socket: &Path) -> FakeServer {
        let program = FakeServer::program(socket.parent().expect("a socket is in a folder"));
        let listen = format!("unix://{}", socket.display());
        let output = || Stdio::null();
        let process = Command::new(program).args(["app-server", "--listen", &listen]).stdout(output()).spawn();
        let mut server = FakeServer::at(socket);
        server.process = Some(process.expect("the server starts"));
        server
    }

    /// Steers a server that something else starts.
    pub fn at(socket: &Path) -> FakeServer {
        FakeServer { control: Client::connect_to(socket, CONTROL, &[]), process: None }
    }

    fn steer(&mut self, order: &Value) -> Value {
        self.control.send(&order.to_string());
        serde_json::from_str(&self.control.receive().expect("the server runs")).expect("JSON")
    }

    pub fn pid(&mut self) -> u64 {
        self.steer(&json!({"do": "pid"}))["pid"].as_u64().expect("a number")
    }

    /// Sends this text to each subscriber of a thread; returns how many there are.
    pub fn notify(&mut self, thread: &str, text: &str) -> u64 {
        self.steer(&json!({"do": "notify", "thread": thread, "text": text}))["sent"].as_u64().expect("a number")
    }

    /// Sends a message to each subscriber of a thread that has `bytes` times `y` in it: more than an order can have.
    pub fn notify_long(&mut self, thread: &str, bytes: usize) {
        self.steer(&json!({"do": "notify_long", "thread": thread, "bytes": bytes}));
    }

    /// Sends `count` deltas, numbered from 0, to each subscriber of a thread.
    pub fn deltas(&mut self, thread: &str, count: u64) {
        self.steer(&json!({"do": "deltas", "thread": thread, "count": count}));
    }

    /// Sends this text to each initialized connection; returns how many there are.
    pub fn broadcast(&mut self, text: &str) -> u64 {
        self.steer(&json!({"do": "broadcast", "text": text}))["sent"].as_u64().expect("a number")
    }

    /// Sends this text to one connection.
    pub fn say(&mut self, connection: u64, text: &str) {
        self.steer(&json!({"do": "say", "connection": connection, "text": text}));
    }

    /// Asks each subscriber of a thread, now and later ones; returns the id of the request.
    pub fn ask(&mut self, thread: &str, method: &str, mut params: Value) -> u64 {
        params["threadId"] = json!(thread);
        let asked = self.steer(&json!({"do": "ask", "thread": thread, "method": method, "params": params}));
        asked["id"].as_u64().expect("a number")
    }

    /// All messages that clients sent: the number of the connection and the text.
    pub fn seen(&mut self) -> Vec<(u64, String)> {
        serde_json::from_value(self.steer(&json!({"do": "seen"}))["seen"].take()).expect("what the server writes")
    }

    /// Waits for a message of a client with this text within it; returns its connection and the whole text.
    pub fn wait_for(&mut self, part: &str) -> (u64, String) {
        eventually(part, || self.seen().into_iter().find(|(_, text)| text.contains(part)))
    }

    /// The open connections in the order of their numbers, each with `number`, `name`, `threads`, `path` and `headers`.
    pub fn connections(&mut self) -> Vec<Value> {
        self.steer(&json!({"do": "connections"}))["connections"].as_array().expect("a list").clone()
    }

    /// Ends a connection without a close frame.
    pub fn cut(&mut self, connection: u64) {
        self.steer(&json!({"do": "cut", "connection": connection}));
    }

    /// Ends a connection with a close frame.
    pub fn close(&mut self, connection: u64, code: u16, reason: &str) {
        self.steer(&json!({"do": "close", "connection": connection, "code": code, "reason": reason}));
    }

    /// Refuses the handshakes that follow with an HTTP status, or accepts them again.
    pub fn refuse(&mut self, status: Option<u16>) {
        self.steer(&json!({"do": "refuse", "status": status}));
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Not a test: the scripted server, if the variable says so.
#[test]
fn scripted_server() {
    #[expect(clippy::disallowed_methods, reason = "a test has no settings")]
    if let Some(socket) = std::env::var_os(LISTEN) {
        Server::run(Path::new(&socket));
    }
}

struct Connection {
    number: u64,
    socket: WebSocket<UnixStream>,
    path: String,
    headers: Vec<(String, String)>,
    name: Option<String>,
    is_initialized: bool,
    threads: BTreeSet<String>,
    has_ended: bool,
    wants_write: bool,
}

impl Connection {
    fn send(&mut self, text: &str) {
        let sent = self.socket.send(Message::text(text));
        self.note(sent);
    }

    fn flush(&mut self) {
        let flushed = self.socket.flush();
        self.note(flushed);
    }

    fn note(&mut self, result: Result<(), Error>) {
        match result {
            Ok(()) => self.wants_write = false,
            Err(Error::Io(error)) if is_wait(&error) => self.wants_write = true,
            Err(_) => self.has_ended = true,
        }
    }
}

/// A request that no client has answered.
struct OpenRequest {
    id: u64,
    thread: String,
    text: String,
}

/// The scripted server.
struct Server {
    listener: UnixListener,
    connections: Vec<Connection>,
    open: Vec<OpenRequest>,
    seen: Vec<(u64, String)>,
    threads: BTreeSet<String>,
    /// The name of the first client, of which the server makes its user agent.
    originator: Option<String>,
    refusal: Option<u16>,
    next_connection: u64,
    next_request: u64,
    next_turn: u64,
}

impl Server {
    fn run(socket: &Path) -> ! {
        let listener = UnixListener::bind(socket).expect("nothing is there");
        listener.set_nonblocking(true).expect("a socket");
        let mut server = Server {
            listener,
            connections: Vec::new(),
            open: Vec::new(),
            seen: Vec::new(),
            threads: BTreeSet::new(),
            originator: None,
            refusal: None,
            next_connection: 0,
            next_request: 0,
            next_turn: 0,
        };
        loop {
            server.wait();
            server.accept();
            for index in 0..server.connections.len() {
                server.serve(index);
            }
            server.connections.retain(|connection| !connection.has_ended);
        }
    }

    fn wait(&self) {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        for connection in &self.connections {
            let out = if connection.wants_write { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(connection.socket.get_ref(), PollFlags::IN | out));
        }
        let _ = poll(&mut fds, None);
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(false).expect("a socket");
            stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket");
            let (mut path, mut headers) = (String::new(), Vec::new());
            let refusal = self.refusal;
            #[expect(clippy::result_large_err, reason = "the error is tungstenite's")]
            let callback = |request: &Request, mut response: Response| {
                path = request.uri().to_string();
                let text =
                    |value: &tungstenite::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
                headers = request.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
                if let Some(status) = refusal.filter(|_| path != CONTROL) {
                    let mut refused = ErrorResponse::new(None);
                    *refused.status_mut() = status.try_into().expect("a status");
                    return Err(refused);
                }
                let limit = "16777216".parse().expect("a header");
                response.headers_mut().insert("x-codex-websocket-max-unfragmented-message-bytes", limit);
                Ok(response)
            };
            let Ok(socket) = tungstenite::accept_hdr(stream, callback) else { continue };
            socket.get_ref().set_nonblocking(true).expect("a socket");
            let number = if path == CONTROL { u64::MAX } else { self.next_connection };
            self.next_connection += u64::from(path != CONTROL);
            self.connections.push(Connection {
                number,
                socket,
                path,
                headers,
                name: None,
                is_initialized: false,
                threads: BTreeSet::new(),
                has_ended: false,
                wants_write: false,
            });
        }
    }

    fn serve(&mut self, index: usize) {
        self.connections[index].flush();
        while !self.connections[index].has_ended {
            match self.connections[index].socket.read() {
                Ok(Message::Text(text)) if self.connections[index].path == CONTROL => {
                    let order = serde_json::from_str(&text).expect("an order is JSON");
                    let done = self.obey(&order);
                    self.connections[index].send(&done.to_string());
                }
                Ok(Message::Text(text)) => {
                    self.seen.push((self.connections[index].number, text.to_string()));
                    if let Ok(message) = serde_json::from_str(&text) {
                        self.handle(index, &message);
                    }
                }
                Ok(_) => {}
                Err(Error::Io(error)) if is_wait(&error) => return,
                Err(_) => self.connections[index].has_ended = true,
            }
        }
    }

    fn handle(&mut self, index: usize, message: &Value) {
        let params = &message["params"];
        let thread = params["threadId"].as_str().unwrap_or_default().to_owned();
        let mut later = Vec::new();
        let result = match message["method"].as_str() {
            None => return self.settle(message),
            Some("initialized") => return,
            Some("initialize") => {
                let name = params["clientInfo"]["name"].as_str().unwrap_or_default().to_owned();
                let originator = self.originator.get_or_insert_with(|| name.clone());
                let agent = format!("{originator}/{FAKE_VERSION}");
                self.connections[index].name = Some(name);
                // As with codex, broadcasts come from now on, before `initialized`.
                self.connections[index].is_initialized = true;
                json!({"userAgent": agent})
            }
            Some("thread/start") => {
                let thread = format!("thread-{}", self.threads.len());
                self.threads.insert(thread.clone());
                self.connections[index].threads.insert(thread.clone());
                let source = params.get("threadSource").cloned().unwrap_or(json!("user"));
                let described = json!({"id": thread, "threadSource": source, "ephemeral": params["ephemeral"] == true});
                let started = json!({"method": "thread/started", "params": {"thread": described}});
                self.broadcast(&started.to_string());
                json!({"thread": described})
            }
            Some("thread/resume") => {
                later = self.open.iter().filter(|open| open.thread == thread).map(|open| open.text.clone()).collect();
                self.connections[index].threads.insert(thread.clone());
                json!({"thread": {"id": thread}})
            }
            Some("thread/unsubscribe") => {
                self.connections[index].threads.remove(&thread);
                json!({"status": "unsubscribed"})
            }
            Some("thread/loaded/list") => json!({"data": self.threads}),
            Some("turn/start") => {
                self.next_turn += 1;
                let turn = json!({"id": format!("turn-{}", self.next_turn), "status": "inProgress", "items": []});
                let started = json!({"method": "turn/started", "params": {"threadId": thread, "turn": turn}});
                later.push(json!({"id": message["id"], "result": {"turn": turn}}).to_string());
                later.iter().for_each(|text| self.connections[index].send(text));
                self.notify(&thread, &started.to_string());
                return;
            }
            Some(_) => json!({}),
        };
        if let Some(id) = message.get("id") {
            self.connections[index].send(&json!({"id": id, "result": result}).to_string());
        }
        later.iter().for_each(|text| self.connections[index].send(text));
    }

    /// The first answer to a request wins; a later one is ignored.
    fn settle(&mut self, answer: &Value) {
        let Some(place) = self.open.iter().position(|open| answer["id"] == open.id) else { return };
        let open = self.open.remove(place);
        let params = json!({"threadId": open.thread, "requestId": open.id});
        self.notify(&open.thread, &json!({"method": "serverRequest/resolved", "params": params}).to_string());
    }

    fn notify(&mut self, thread: &str, text: &str) -> u64 {
        self.send_to(text, |connection| connection.threads.contains(thread))
    }

    fn broadcast(&mut self, text: &str) -> u64 {
        self.send_to(text, |connection| connection.is_initialized)
    }

    fn send_to(&mut self, text: &str, is_meant: impl Fn(&Connection) -> bool) -> u64 {
        let meant = self.connections.iter_mut().filter(|connection| is_meant(connection));
        meant.map(|connection| connection.send(text)).count() as u64
    }

    fn obey(&mut self, order: &Value) -> Value {
        let word = |name: &str| order[name].as_str().unwrap_or_default();
        let number = |name: &str| order[name].as_u64().unwrap_or_default();
        match word("do") {
            "pid" => json!({"pid": std::process::id()}),
            "notify" => json!({"sent": self.notify(word("thread"), word("text"))}),
            "notify_long" => {
                let filling = "y".repeat(usize::try_from(number("bytes")).expect("it fits"));
                self.notify(word("thread"), &json!({"method": "x/long", "params": {"x": filling}}).to_string());
                json!({})
            }
            "broadcast" => json!({"sent": self.broadcast(word("text"))}),
            "say" => {
                json!({"sent": self.send_to(word("text"), |connection| connection.number == number("connection"))})
            }
            "deltas" => {
                for delta in 0..number("count") {
                    let params = json!({"threadId": word("thread"), "itemId": "item", "delta": delta.to_string()});
                    let text = json!({"method": "item/agentMessage/delta", "params": params}).to_string();
                    self.notify(word("thread"), &text);
                }
                json!({})
            }
            "ask" => {
                let id = self.next_request;
                self.next_request += 1;
                let text = json!({"method": order["method"], "id": id, "params": order["params"]}).to_string();
                self.notify(word("thread"), &text);
                self.open.push(OpenRequest { id, thread: word("thread").to_owned(), text });
                json!({"id": id})
            }
            "seen" => json!({"seen": self.seen}),
            "connections" => {
                let clients =
                    self.connections.iter().filter(|connection| connection.path != CONTROL && !connection.has_ended);
                let view = |connection: &Connection| {
                    json!({"number": connection.number, "name": connection.name, "threads": connection.threads,
                        "path": connection.path, "headers": connection.headers})
                };
                json!({"connections": clients.map(view).collect::<Vec<_>>()})
            }
            "cut" | "close" => {
                let found = self.connections.iter_mut().find(|connection| connection.number == number("connection"));
                let connection = found.expect("the connection is open");
                if word("do") == "cut" {
                    let _ = connection.socket.get_ref().shutdown(std::net::Shutdown::Both);
                } else {
                    let code = u16::try_from(number("code")).expect("a code").into();
                    let close = tungstenite::protocol::CloseFrame { code, reason: word("reason").into() };
                    let closed = connection.socket.close(Some(close));
                    connection.note(closed);
                }
                json!({})
            }
            "refuse" => {
                self.refusal = order["status"].as_u64().map(|status| u16::try_from(status).expect("a status"));
                json!({})
            }
            other => panic!("unknown order {other}"),
        }
    }
}
