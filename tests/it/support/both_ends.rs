//! A relay with the test as both sides: the test writes the client's lines, reads the server's input, and writes the
//! server's lines. Also helpers shared by such tests of context.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use codex_shim::testing::control::{self, client};
use rustix::fs::OFlags;
use serde_json::{Value, json};

use super::shim::Home;
use super::{PATIENCE, eventually, make_fifo};

/// A server whose stdin and stdout are the FIFOs `$UP` and `$DOWN`. It exits with 0 once `$DOWN` has no writer. One that is started
/// again when the test is over waits for a reader of `$UP`, and must not hold the relay's stderr open.
pub const SERVER: &str = r#"exec 3<&0; cat 2>/dev/null <&3 >"$UP" 3<&- & exec cat "$DOWN" 3<&- </dev/null"#;

/// A server that reads nothing until `$DOWN` has no writer; then it copies its stdin to `$UP`.
const DEAF_SERVER: &str = r#"cat "$DOWN"; cat >"$UP""#;

pub const CONTEXT: &str = "/sessions/self/context";
const DELIVERIES: &str = "/sessions/self/context/deliveries";

/// An envelope of another run, as it appears in a line of the server.
pub const OTHERS: &str = concat!(
    r#"\u001eCODEX_META {\"v\":1,\"type\":\"user_cmd_context\",\"conversation_id\":\"t\",\"shell_id\":null,"#,
    r#"\"total_commands_run\":1,\"kept\":1,\"dropped\":0,\"commands\":[],\"mcp\":[]}\u001f"#
);

const INITIALIZE: &str = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"ide","version":"1"}}}"#;

/// A relay in session `s`, and both ends of it.
pub struct Live {
    pub home: Home,
    pub session: PathBuf,
    pub relay: Child,
    pub stdin: Option<ChildStdin>,
    /// Lines that the client received.
    pub client: Receiver<Vec<u8>>,
    /// Lines that the server received.
    pub server: Receiver<Vec<u8>>,
    pub down: Option<File>,
}

impl Live {
    pub fn start() -> Live {
        Live::start_in(Home::new())
    }

    pub fn configured(config: &str) -> Live {
        let home = Home::new();
        fs::create_dir_all(home.path()).expect("a folder");
        fs::write(home.path().join("config.toml"), config).expect("a file");
        Live::start_in(home)
    }

    /// A server without a client, played by the test and not initialized yet.
    pub fn served() -> Live {
        Live::start_as(Home::new(), "serve", "s")
    }

    pub fn served_with(config: &str) -> Live {
        let home = Home::new();
        fs::create_dir_all(home.path()).expect("a folder");
        fs::write(home.path().join("config.toml"), config).expect("a file");
        Live::start_as(home, "serve", "s")
    }

    pub fn start_in(home: Home) -> Live {
        Live::start_as(home, "run", "s")
    }

    /// A relay whose server reads nothing until [`Live::down`] is closed.
    pub fn deaf() -> Live {
        Live::start_served(Home::new(), ("run", "s"), DEAF_SERVER, |_| {})
    }

    /// A relay in the session of this name.
    pub fn start_in_session(home: Home, session: &str) -> Live {
        Live::start_as(home, "run", session)
    }

    /// A relay that inherits an extra descriptor, [`super::launch::INHERITED`], from its launcher.
    pub fn start_inheriting(home: Home, end: OwnedFd) -> Live {
        Live::start_launched(home, "run", "s", |command| {
            super::launch::inherits(command, end);
        })
    }

    /// A relay that finds a defect in itself once this file exists.
    pub fn with_defect(config: &str, file: &Path) -> Live {
        let home = Home::new();
        fs::create_dir_all(home.path()).expect("a folder");
        fs::write(home.path().join("config.toml"), config).expect("a file");
        Live::start_launched(home, "run", "s", |command| {
            command.env("CODEX_SHIM_FINDS_DEFECT", file);
        })
    }

    fn start_as(home: Home, how: &str, session: &str) -> Live {
        Live::start_launched(home, how, session, |_| {})
    }

    fn start_launched(home: Home, how: &str, session: &str, launch: impl FnOnce(&mut Command)) -> Live {
        Live::start_served(home, (how, session), SERVER, launch)
    }

    fn start_served(home: Home, (how, session): (&str, &str), server: &str, launch: impl FnOnce(&mut Command)) -> Live {
        let fifos = tempfile::tempdir_in(home.beside()).expect("a folder").keep();
        let (up, down) = (fifos.join("up"), fifos.join("down"));
        for path in [&up, &down] {
            make_fifo(path);
        }
        // The tools run there too, so that it is the session of their folder.
        let mut command = home.shim(&[how, "--session", session, "--", "sh", "-c", server]);
        command.current_dir(home.beside());
        launch(&mut command);
        let mut relay = command.env("UP", &up).env("DOWN", &down).spawn().expect("the shim starts");
        let client = lines_of(relay.stdout.take().expect("stdout is piped"));
        let server = lines_of_file(up);
        // Opened without blocking, so that a shim that starts no server fails a test instead of blocking it.
        let down = eventually("the server", || {
            OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&down).ok()
        });
        rustix::fs::fcntl_setfl(&down, OFlags::empty()).expect("a FIFO can block");
        let session = home.path().join("sessions").join(session);
        let stdin = relay.stdin.take();
        let live = Live { session, stdin, relay, client, server, down: Some(down), home };
        // The ledger answers or has reported its failure, so the relay knows its contents.
        eventually("the control socket", || client::get(&live.session, CONTEXT).ok());
        live
    }

    pub fn write(&mut self, bytes: &str) {
        self.stdin.as_mut().expect("stdin is open").write_all(bytes.as_bytes()).expect("the relay reads");
    }

    /// Sends a line of the client; returns the next line that the server receives.
    pub fn send(&mut self, line: &str) -> String {
        self.write(&format!("{line}\n"));
        self.at_server()
    }

    pub fn at_server(&self) -> String {
        next(&self.server, "a line at the server")
    }

    pub fn at_client(&self) -> String {
        next(&self.client, "a line at the client")
    }

    /// Sends a line of the server; returns the next line that the client receives.
    pub fn say(&mut self, line: &str) -> String {
        self.say_unseen(line);
        self.at_client()
    }

    pub fn say_unseen(&mut self, line: &str) {
        writeln!(self.down.as_mut().expect("the server runs"), "{line}").expect("the relay reads");
    }

    /// Sends a server line that the client must receive unchanged.
    pub fn say_plainly(&mut self, line: &str) {
        assert_eq!(self.say(line), format!("{line}\n"));
    }

    /// Initializes the server for the client `ide`, and begins turn `u1` in thread `t`.
    pub fn in_turn(mut self) -> Live {
        assert_eq!(self.send(INITIALIZE), format!("{INITIALIZE}\n"));
        self.say_plainly(r#"{"id":0,"result":{"userAgent":"x/0.169.0 (Debian; x86_64) dumb"}}"#);
        assert!(self.turn(1, "t").is_empty());
        self.take_turn(1);
        self.say_plainly(r#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u1","items":[]}}}"#);
        self
    }

    pub fn take_turn(&mut self, id: u32) {
        self.say_plainly(&format!(r#"{{"id":{id},"result":{{"turn":{{"id":"u{id}","items":[]}}}}}}"#));
    }

    pub fn refuse_turn(&mut self, id: u32, code: i32) {
        self.say_plainly(&format!(r#"{{"error":{{"code":{code},"message":"no"}},"id":{id}}}"#));
    }

    /// Sends a turn; returns the commands that it carried to the server.
    pub fn turn(&mut self, id: u32, thread: &str) -> Vec<String> {
        let sent = turn(id, thread, "hi");
        let got = self.send(&sent);
        match got == format!("{sent}\n") {
            true => Vec::new(),
            false => names(&envelope(&carried(&got, &sent))),
        }
    }

    pub fn http(&self, line: &str, body: &[u8]) -> (u16, Value) {
        http(&self.session, line, body)
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, document) = self.http(&format!("GET {path}"), b"");
        assert_eq!(status, 200, "{document}");
        document
    }

    pub fn post(&self, body: &[u8]) -> (u16, Value) {
        self.http(&format!("POST {CONTEXT}"), body)
    }

    /// Pushes commands, an object or an array; `waiting` of them wait then.
    pub fn push(&self, commands: &Value, waiting: u64) {
        assert_eq!(self.post(commands.to_string().as_bytes()), (200, json!({ "waiting": waiting })));
    }

    pub fn refused(&self, body: &[u8], status: u16, code: &str) {
        let told = String::from_utf8_lossy(&body[..body.len().min(60)]);
        let (got, document) = self.post(body);
        let detail = &document["detail"];
        assert_eq!((got, detail["error_code"].as_str()), (status, Some(code)), "{told}: {document}");
        assert!(detail["message"].as_str().is_some_and(|message| !message.is_empty()), "{told}: {document}");
    }

    /// The waiting commands.
    pub fn waiting(&self) -> Vec<String> {
        names(&self.get(CONTEXT))
    }

    pub fn deliveries(&self) -> Vec<Value> {
        self.get(DELIVERIES)["deliveries"].as_array().expect("an array").clone()
    }

    /// The outcomes of the deliveries.
    pub fn outcomes(&self) -> Vec<String> {
        self.deliveries().iter().map(|delivery| text(&delivery["outcome"])).collect()
    }

    pub fn tool(&self, args: &[&str]) -> Output {
        tool(&self.home, args)
    }

    /// Closes the client's stdin; returns the relay's stderr. Both sides must have no unread line.
    pub fn end(mut self) -> (Home, String) {
        drop(self.stdin.take());
        assert_eq!(self.server.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        self.server_ends()
    }

    /// Ends the server, whatever it still owes.
    pub fn server_ends(mut self) -> (Home, String) {
        drop(self.down.take());
        assert_eq!(self.client.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        let output = self.relay.wait_with_output().expect("the shim ends");
        assert!(output.status.success(), "{output:?}");
        (self.home, String::from_utf8(output.stderr).expect("it is text"))
    }

    /// Ends the relay, which must have nothing on stderr; returns the home.
    pub fn end_quietly(self) -> Home {
        let (home, stderr) = self.end();
        assert_eq!(stderr, "");
        home
    }

    pub fn kill(mut self) -> Home {
        self.relay.kill().expect("it runs");
        self.relay.wait().expect("it was killed");
        self.home
    }
}

/// A request to the control socket of a session. Headers may follow `line`.
pub fn http(session: &Path, line: &str, body: &[u8]) -> (u16, Value) {
    http_answer(http_asked(session, line, body))
}

/// The first half of [`http`]: writes the request.
pub fn http_asked(session: &Path, line: &str, body: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(control::resolve(session).expect("a socket")).expect("it answers");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let (line, headers) =
        line.split_once("\r\n").map_or((line, String::new()), |(line, rest)| (line, format!("{rest}\r\n")));
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nHost: shim\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).expect("it is read");
    stream
}

/// The second half of [`http`]: reads the response.
pub fn http_answer(stream: UnixStream) -> (u16, Value) {
    http_told(stream).expect("it is answered")
}

/// The same for a response that may be missing or incomplete.
pub fn http_told(mut stream: UnixStream) -> Option<(u16, Value)> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Some((status, serde_json::from_str(body).ok()?))
}

pub fn lines_of(from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (lines, taken) = sync_channel(1_000);
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        loop {
            let mut line = Vec::new();
            if !from.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) || lines.send(line).is_err() {
                return;
            }
        }
    });
    taken
}

/// The lines of a FIFO; opening it waits for the other side.
fn lines_of_file(path: PathBuf) -> Receiver<Vec<u8>> {
    pub struct Late(PathBuf, Option<File>);
    impl Read for Late {
        fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
            match &mut self.1 {
                Some(file) => file.read(bytes),
                none @ None => none.insert(File::open(&self.0)?).read(bytes),
            }
        }
    }
    lines_of(Late(path, None))
}

pub fn next(lines: &Receiver<Vec<u8>>, what: &str) -> String {
    let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what}: {error}"));
    String::from_utf8(line).expect("it is text")
}

pub fn turn(id: u32, thread: &str, words: &str) -> String {
    // Members, blanks and escapes that reserialization would lose.
    format!(
        r#"{{"id": {id},"method":"turn/start", "params":{{"x":1.0e0,"threadId":"{thread}","input":[{{"type":"image","url":"\u0061"}},{{"text":"{words}","type":"text"}}],"y":null}}}}"#
    )
}

pub fn command(name: &str) -> Value {
    json!({"cmd": name, "exit_code": 0, "cwd": "/w", "ts": 7, "output": format!("{name}!\n")})
}

/// The text before the first text of a line; every other byte of the line must be as in `sent`.
pub fn carried(got: &str, sent: &str) -> String {
    let at = sent.find(r#""text":""#).expect("a text") + r#""text":""#.len();
    let (before, after) = sent.split_at(at);
    let got = got.strip_suffix('\n').unwrap_or(got);
    let added = got.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    let added = added.unwrap_or_else(|| panic!("more than was added is different:\n{got}\n{sent}"));
    serde_json::from_str(&format!("\"{added}\"")).expect("it is a JSON string")
}

/// The JSON of an envelope.
pub fn envelope(text: &str) -> Value {
    let json = text.strip_prefix("\u{1e}CODEX_META ").and_then(|text| text.strip_suffix('\u{1f}'));
    serde_json::from_str(json.unwrap_or_else(|| panic!("no envelope: {text}"))).expect("it is JSON")
}

/// The commands in an envelope, or in a response of the socket.
pub fn names(document: &Value) -> Vec<String> {
    document["commands"].as_array().expect("an array").iter().map(|command| text(&command["cmd"])).collect()
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no string: {value}")).to_owned()
}

pub fn tool(home: &Home, args: &[&str]) -> Output {
    home.shim(args).current_dir(home.beside()).output().expect("the tool runs")
}

/// The JSON document that a tool prints.
pub fn told(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

/// A tool's failure: its exit code, and a single line that contains `words`.
pub fn failed(output: &Output, code: i32, words: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(stderr.starts_with("codex-shim: ") && stderr.contains(words), "{stderr}");
    assert_eq!((stderr.lines().count(), &*output.stdout), (1, &b""[..]), "{output:?}");
}
