//! Context through the real binary: what is pushed, how it reaches the server, and what the client sees of it.
//!
//! The test is both sides: it writes the client's lines, reads what the server got, and says what the server says.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Output};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use codex_shim::control::{self, client};
use codex_shim::wire::Side;
use rustix::fs::{FileType, Mode, OFlags};
use serde_json::{Value, json};

use crate::support::shim::Home;
use crate::support::{PATIENCE, eventually};

/// A server whose stdin and stdout are the FIFOs `$UP` and `$DOWN`. It ends with 0 once nobody writes to `$DOWN`.
const SERVER: &str = r#"exec 3<&0; cat <&3 >"$UP" 3<&- & exec cat "$DOWN" 3<&- </dev/null"#;

const CONTEXT: &str = "/sessions/self/context";
const DELIVERIES: &str = "/sessions/self/context/deliveries";

/// An envelope of some other run, as it stands in a line of the server.
const OTHERS: &str = concat!(
    r#"\u001eCODEX_META {\"v\":1,\"type\":\"user_cmd_context\",\"conversation_id\":\"t\",\"shell_id\":null,"#,
    r#"\"total_commands_run\":1,\"kept\":1,\"dropped\":0,\"commands\":[],\"mcp\":[]}\u001f"#
);

/// A relay in session `s`, and both ends of it.
struct Live {
    home: Home,
    session: PathBuf,
    relay: Child,
    stdin: Option<ChildStdin>,
    /// What the client got.
    client: Receiver<Vec<u8>>,
    /// What the server got.
    server: Receiver<Vec<u8>>,
    down: Option<File>,
}

impl Live {
    fn start() -> Live {
        Live::start_in(Home::new())
    }

    fn configured(config: &str) -> Live {
        let home = Home::new();
        fs::create_dir_all(home.path()).expect("a folder");
        fs::write(home.path().join("config.toml"), config).expect("a file");
        Live::start_in(home)
    }

    fn start_in(home: Home) -> Live {
        let fifos = tempfile::tempdir_in(home.beside()).expect("a folder").keep();
        let (up, down) = (fifos.join("up"), fifos.join("down"));
        for path in [&up, &down] {
            rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
        }
        let mut command = home.shell(SERVER);
        let mut relay = command.env("UP", &up).env("DOWN", &down).spawn().expect("the shim starts");
        let client = lines_of(relay.stdout.take().expect("stdout is piped"));
        let server = lines_of_file(up);
        // Opened without waiting, so that a shim that starts no server fails a test and does not hang it.
        let down = eventually("the server", || {
            OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&down).ok()
        });
        rustix::fs::fcntl_setfl(&down, OFlags::empty()).expect("a FIFO can block");
        let session = home.path().join("sessions/s");
        let stdin = relay.stdin.take();
        let live = Live { session, stdin, relay, client, server, down: Some(down), home };
        // The ledger answers, or has said why it does not: what it held is known to the relay.
        eventually("the control socket", || client::get(&live.session, CONTEXT).ok());
        live
    }

    fn write(&mut self, bytes: &str) {
        self.stdin.as_mut().expect("stdin is open").write_all(bytes.as_bytes()).expect("the relay reads");
    }

    /// Sends a line of the client; returns the next one that the server got.
    fn send(&mut self, line: &str) -> String {
        self.write(&format!("{line}\n"));
        self.at_server()
    }

    fn at_server(&self) -> String {
        next(&self.server, "a line at the server")
    }

    /// Sends a line of the server; returns the next one that the client got.
    fn say(&mut self, line: &str) -> String {
        self.say_unseen(line);
        next(&self.client, "a line at the client")
    }

    fn say_unseen(&mut self, line: &str) {
        writeln!(self.down.as_mut().expect("the server runs"), "{line}").expect("the relay reads");
    }

    /// A server line that the client gets as it is.
    fn say_plainly(&mut self, line: &str) {
        assert_eq!(self.say(line), format!("{line}\n"));
    }

    fn take_turn(&mut self, id: u32) {
        self.say_plainly(&format!(r#"{{"id":{id},"result":{{"turn":{{"id":"u{id}","items":[]}}}}}}"#));
    }

    fn refuse_turn(&mut self, id: u32, code: i32) {
        self.say_plainly(&format!(r#"{{"error":{{"code":{code},"message":"no"}},"id":{id}}}"#));
    }

    /// Sends a turn; returns the commands that it carried to the server.
    fn turn(&mut self, id: u32, thread: &str) -> Vec<String> {
        let sent = turn(id, thread, "hi");
        let got = self.send(&sent);
        match got == format!("{sent}\n") {
            true => Vec::new(),
            false => names(&envelope(&carried(&got, &sent))),
        }
    }

    fn http(&self, line: &str, body: &[u8]) -> (u16, Value) {
        let mut stream = UnixStream::connect(control::resolve(&self.session).expect("a socket")).expect("it answers");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let length = body.len();
        let head = format!("{line} HTTP/1.1\r\nHost: shim\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is answered");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {body}")))
    }

    fn get(&self, path: &str) -> Value {
        let (status, document) = self.http(&format!("GET {path}"), b"");
        assert_eq!(status, 200, "{document}");
        document
    }

    fn post(&self, body: &[u8]) -> (u16, Value) {
        self.http(&format!("POST {CONTEXT}"), body)
    }

    /// Pushes commands, an object or an array; `waiting` wait then.
    fn push(&self, commands: &Value, waiting: u64) {
        assert_eq!(self.post(commands.to_string().as_bytes()), (200, json!({ "waiting": waiting })));
    }

    fn refused(&self, body: &[u8], status: u16, code: &str) {
        let told = String::from_utf8_lossy(&body[..body.len().min(60)]);
        let (got, document) = self.post(body);
        let detail = &document["detail"];
        assert_eq!((got, detail["error_code"].as_str()), (status, Some(code)), "{told}: {document}");
        assert!(detail["message"].as_str().is_some_and(|message| !message.is_empty()), "{told}: {document}");
    }

    /// The commands that wait.
    fn waiting(&self) -> Vec<String> {
        names(&self.get(CONTEXT))
    }

    fn deliveries(&self) -> Vec<Value> {
        self.get(DELIVERIES)["deliveries"].as_array().expect("an array").clone()
    }

    /// What became of the deliveries.
    fn outcomes(&self) -> Vec<String> {
        self.deliveries().iter().map(|delivery| text(&delivery["outcome"])).collect()
    }

    fn tool(&self, args: &[&str]) -> Output {
        tool(&self.home, args)
    }

    /// Ends the relay as a client does; returns its stderr. Neither side has got anything that was not looked at.
    fn end(mut self) -> (Home, String) {
        drop(self.stdin.take());
        assert_eq!(self.server.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        self.server_ends()
    }

    /// Has the server end, whatever it owes.
    fn server_ends(mut self) -> (Home, String) {
        drop(self.down.take());
        assert_eq!(self.client.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        let output = self.relay.wait_with_output().expect("the shim ends");
        assert!(output.status.success(), "{output:?}");
        (self.home, String::from_utf8(output.stderr).expect("it is text"))
    }

    /// Ends it where nothing was to be told; returns the home.
    fn end_quietly(self) -> Home {
        let (home, stderr) = self.end();
        assert_eq!(stderr, "");
        home
    }

    fn kill(mut self) -> Home {
        self.relay.kill().expect("it runs");
        self.relay.wait().expect("it was killed");
        self.home
    }
}

fn lines_of(from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
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

/// The lines of a FIFO, whose opening waits for the other side.
fn lines_of_file(path: PathBuf) -> Receiver<Vec<u8>> {
    struct Late(PathBuf, Option<File>);
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

fn next(lines: &Receiver<Vec<u8>>, what: &str) -> String {
    let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what}: {error}"));
    String::from_utf8(line).expect("it is text")
}

fn turn(id: u32, thread: &str, words: &str) -> String {
    // Members, blanks and escapes that a line written anew would not have.
    format!(
        r#"{{"id": {id},"method":"turn/start", "params":{{"x":1.0e0,"threadId":"{thread}","input":[{{"type":"image","url":"\u0061"}},{{"text":"{words}","type":"text"}}],"y":null}}}}"#
    )
}

fn command(name: &str) -> Value {
    json!({"cmd": name, "exit_code": 0, "cwd": "/w", "ts": 7, "output": format!("{name}!\n")})
}

/// What stands in front of the first text of a line, every other byte of which is as it was `sent`.
fn carried(got: &str, sent: &str) -> String {
    let at = sent.find(r#""text":""#).expect("a text") + r#""text":""#.len();
    let (before, after) = sent.split_at(at);
    let got = got.strip_suffix('\n').unwrap_or(got);
    let added = got.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    let added = added.unwrap_or_else(|| panic!("more than was added is different:\n{got}\n{sent}"));
    serde_json::from_str(&format!("\"{added}\"")).expect("it is a JSON string")
}

/// The JSON of an envelope.
fn envelope(text: &str) -> Value {
    let json = text.strip_prefix("\u{1e}CODEX_META ").and_then(|text| text.strip_suffix('\u{1f}'));
    serde_json::from_str(json.unwrap_or_else(|| panic!("no envelope: {text}"))).expect("it is JSON")
}

/// The commands in an envelope, or in the answer of the socket.
fn names(document: &Value) -> Vec<String> {
    document["commands"].as_array().expect("an array").iter().map(|command| text(&command["cmd"])).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no string: {value}")).to_owned()
}

fn tool(home: &Home, args: &[&str]) -> Output {
    home.shim(args).current_dir(home.beside()).output().expect("the tool runs")
}

/// The JSON document that a tool prints.
fn told(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

/// A tool's failure: its exit code, and one line that has `words` in it.
fn failed(output: &Output, code: i32, words: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(stderr.starts_with("codex-shim: ") && stderr.contains(words), "{stderr}");
    assert_eq!((stderr.lines().count(), &*output.stdout), (1, &b""[..]), "{output:?}");
}

// 1, 2, 12: in front of the words, and nowhere else.

#[test]
fn context_stands_in_front_of_the_first_text_and_changes_nothing_else() {
    let mut live = Live::start();
    live.push(&command("make é$HOME"), 1);
    live.push(&json!([command("two"), command("three")]), 3);
    let sent = turn(1, "t", r"h\u0069");
    let got = live.send(&sent);
    let text = carried(&got, &sent);
    let expect = |name: &str| {
        format!(
            r#"{{"cmd":"{name}","exit_code":0,"cwd":"/w","block_id":null,"ts":7,"preview":{{"lines":["{name}!"],"truncated":false}}}}"#
        )
    };
    let commands = [expect(r"make é\u0024HOME"), expect("two"), expect("three")].join(",");
    let json = format!(
        r#"{{"v":1,"type":"user_cmd_context","conversation_id":"t","shell_id":null,"total_commands_run":3,"kept":3,"dropped":0,"commands":[{commands}],"mcp":[]}}"#
    );
    assert_eq!(text, format!("\u{1e}CODEX_META {json}\u{1f}"));
    live.take_turn(1);
    let journal = live.end_quietly().journal();
    assert_eq!(journal.client, [Some(format!("{sent}\n").into_bytes())]);
    assert_eq!(journal.own, [(Side::Server, true, Some(got.into_bytes()))]);
    // The replacement is the record right behind the client's line.
    let at = journal.texts.iter().position(|record| record.contains(r#""from":"client""#)).expect("it is there");
    let record: Value = serde_json::from_str(&journal.texts[at + 1]).expect("it is JSON");
    assert_eq!((&record["from"], &record["to"]), (&json!("shim"), &json!("server")));
    let delivered = journal.events.iter().find(|(name, _)| name == "context_delivered").expect("it is an event");
    assert_eq!((&delivered.1["thread_id"], &delivered.1["turn_id"]), (&json!("t"), &json!("u1")));
}

#[test]
fn context_moves_the_ranges_of_what_it_precedes() {
    let mut live = Live::start();
    live.push(&command("é"), 1);
    let line = |start: usize| {
        turn(1, "t", "hi").replace(
            r#""type":"text""#,
            &format!(r#""type":"text","text_elements":[{{"byteRange":{{"start":{start},"end":{}}}}}]"#, start + 2),
        )
    };
    let got = live.send(&line(0));
    let got_json: Value = serde_json::from_str(&got).expect("it is JSON");
    let text = text(&got_json["params"]["input"][1]["text"]);
    let bytes = text.strip_suffix("hi").expect("the words").len();
    assert_eq!(carried(&got, &line(bytes)) + "hi", text);
    live.end_quietly();
}

#[test]
fn context_makes_a_text_of_its_own_where_there_is_none() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    let image = r#"{"type":"image","url":"u"}"#;
    let sent = |input: &str| {
        format!(r#"{{"id":1,"method":"turn/start","params":{{"threadId":"t","input":[{input}],"z":1}}}}"#)
    };
    let got: Value = serde_json::from_str(&live.send(&sent(image))).expect("it is JSON");
    let own = &got["params"]["input"][0];
    assert_eq!((&own["type"], names(&envelope(&text(&own["text"])))), (&json!("text"), vec!["one".to_owned()]));
    let mut rest = got.clone();
    rest["params"]["input"].as_array_mut().expect("an array").remove(0);
    assert_eq!(rest, serde_json::from_str::<Value>(&sent(image)).expect("it is JSON"));
    let echo = |content: &str| {
        format!(r#"{{"method":"item/started","params":{{"item":{{"type":"userMessage","content":[{content}]}}}}}}"#)
    };
    assert_eq!(live.say(&echo(&format!("{own},{image}"))), echo(image) + "\n");
    live.end_quietly();
}

#[test]
fn context_that_is_not_there_changes_nothing() {
    let mut live = Live::start();
    assert_eq!(live.turn(1, "t"), [""; 0]);
    live.take_turn(1);
    live.push(&json!([]), 0);
    live.push(&json!({"cmd": "secret", "private": true}), 0);
    assert_eq!(live.turn(2, "t"), [""; 0]);
    assert_eq!(live.deliveries(), [Value::Null; 0]);
    let journal = live.end_quietly().journal();
    assert_eq!(journal.own, []);
}

#[test]
fn context_reaches_a_last_line_without_its_end() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    let sent = turn(1, "t", "hi");
    live.write(&sent);
    drop(live.stdin.take());
    let got = live.at_server();
    assert!(!got.ends_with('\n'));
    assert_eq!(names(&envelope(&carried(&got, &sent))), ["one"]);
    // The other way likewise.
    let echo = |words: &str| format!(r#"{{"id":9,"result":{{"thread":{{"preview":"{words}"}}}}}}"#);
    let last = echo(&format!("{OTHERS}x"));
    live.down.as_mut().expect("the server runs").write_all(last.as_bytes()).expect("the relay reads");
    drop(live.down.take());
    assert_eq!(next(&live.client, "the last line"), echo("x"));
    let (home, stderr) = live.end();
    assert_eq!(stderr, "");
    let own = [(Side::Server, true, Some(got.into_bytes())), (Side::Client, true, Some(echo("x").into_bytes()))];
    assert_eq!(home.journal().own, own);
}

#[test]
fn context_waits_where_codex_would_refuse_so_much() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    let sent = turn(1, "t", &"x".repeat(1_048_570));
    assert_eq!(live.send(&sent), format!("{sent}\n"));
    live.take_turn(1);
    assert_eq!(live.waiting(), ["one"]);
    assert_eq!(live.turn(2, "t"), ["one"]);
    live.end_quietly();
}

// 3, 4: the lease.

#[test]
fn context_is_deleted_by_a_result() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    let sent = turn(1, "t", "hi");
    let got = carried(&live.send(&sent), &sent);
    assert_eq!((live.waiting(), live.outcomes()), (vec!["one".to_owned()], vec!["sent".to_owned()]));
    live.take_turn(1);
    assert_eq!(live.get(CONTEXT), json!({"commands": [], "total_commands_run": 0}));
    assert_eq!(live.get("/sessions/self")["context_waiting"], 0);
    let delivery = live.deliveries().remove(0);
    let expect = json!({"at": delivery["at"], "thread_id": "t", "turn_id": "u1", "carrier": "envelope",
        "outcome": "delivered", "text": got});
    assert_eq!(delivery, expect);
    assert_eq!(live.turn(2, "t"), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_that_was_refused_goes_in_front_of_what_came_since() {
    let mut live = Live::start();
    for (id, code) in [(1, -32_600), (2, -32_001)] {
        live.push(&command(&id.to_string()), u64::from(id));
        assert_eq!(live.turn(id, "t").len(), id as usize);
        live.refuse_turn(id, code);
    }
    assert_eq!(live.waiting(), ["1", "2"]);
    assert_eq!(live.outcomes(), ["refused", "refused"]);
    live.push(&command("3"), 3);
    assert_eq!(live.turn(3, "t"), ["1", "2", "3"]);
    live.take_turn(3);
    assert_eq!(live.waiting(), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_outlives_a_server_that_did_not_answer() {
    let mut live = Live::start();
    live.push(&json!([command("one"), command("two")]), 2);
    assert_eq!(live.turn(1, "t"), ["one", "two"]);
    let (home, stderr) = live.server_ends();
    assert_eq!(stderr, "");
    let mut live = Live::start_in(home);
    assert_eq!(live.turn(1, "t"), ["one", "two"]);
    live.take_turn(1);
    assert_eq!(live.waiting(), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_outlives_a_relay_that_was_killed() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), ["one"]);
    assert_eq!(live.outcomes(), ["sent"]);
    let mut live = Live::start_in(live.kill());
    assert_eq!(live.outcomes(), ["unknown"]);
    assert_eq!(live.turn(1, "t"), ["one"]);
    live.take_turn(1);
    assert_eq!(live.outcomes(), ["unknown", "delivered"]);
    live.end_quietly();
}

#[test]
fn context_is_leased_to_one_turn_at_a_time() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), ["one"]);
    assert_eq!(live.turn(2, "t"), [""; 0]);
    live.push(&command("two"), 2);
    assert_eq!(live.turn(3, "t"), ["two"]);
    live.refuse_turn(1, -32_600);
    live.take_turn(3);
    assert_eq!(live.waiting(), ["one"]);
    live.take_turn(2);
    assert_eq!(live.turn(4, "t"), ["one"]);
    live.end_quietly();
}

#[test]
fn context_that_was_cleared_on_its_way_does_not_come_back() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), ["one"]);
    assert_eq!(live.http(&format!("DELETE {CONTEXT}"), b"").0, 200);
    live.refuse_turn(1, -32_600);
    assert_eq!(live.turn(2, "t"), [""; 0]);
    live.end_quietly();
}

// 5: threads.

#[test]
fn context_for_a_thread_waits_for_that_thread() {
    let mut live = Live::start();
    let bound = |thread: &str| json!({"cmd": thread, "thread_id": thread});
    live.refused(bound("a").to_string().as_bytes(), 404, "thread_not_found");
    live.refused(json!([command("one"), bound("a")]).to_string().as_bytes(), 404, "thread_not_found");
    assert_eq!(live.waiting(), [""; 0]);
    // Each way in which a thread becomes known, from the moment at which the client sees it.
    let start = r#"{"id":1,"method":"thread/start","params":{}}"#;
    assert_eq!(live.send(start), format!("{start}\n"));
    live.say_plainly(r#"{"id":1,"result":{"thread":{"id":"a","preview":""}}}"#);
    live.push(&bound("a"), 1);
    live.say_plainly(r#"{"method":"thread/started","params":{"thread":{"id":"b"}}}"#);
    live.push(&bound("b"), 2);
    assert_eq!(live.turn(2, "refused"), [""; 0]);
    live.refuse_turn(2, -32_600);
    live.refused(bound("refused").to_string().as_bytes(), 404, "thread_not_found");
    assert_eq!(live.turn(3, "c"), [""; 0]);
    live.take_turn(3);
    live.push(&json!([bound("c"), command("any")]), 4);
    assert_eq!(live.turn(4, "b"), ["b", "any"]);
    live.take_turn(4);
    assert_eq!(live.turn(5, "d"), [""; 0]);
    let mut live = Live::start_in(live.end_quietly());
    live.push(&bound("b"), 3);
    assert_eq!(live.turn(1, "c"), ["c"]);
    assert_eq!(live.turn(2, "a"), ["a"]);
    live.end_quietly();
}

// 6: other carriers.

/// Sends a turn ahead of which a call of our own is expected; returns its id as JSON, and what it tells of.
fn turn_behind_a_call(live: &mut Live, id: u32) -> (Value, String) {
    let sent = turn(id, "t", "hi");
    let call: Value = serde_json::from_str(&live.send(&sent)).expect("it is JSON");
    assert_eq!(live.at_server(), format!("{sent}\n"));
    assert_eq!((&call["method"], &call["params"]["threadId"]), (&json!("thread/inject_items"), &json!("t")));
    assert!(text(&call["id"]).starts_with("codex-shim:"), "{call}");
    let item = &call["params"]["items"][0];
    assert_eq!((&item["type"], &item["role"]), (&json!("message"), &json!("user")));
    assert_eq!(item["content"][0]["type"], "input_text");
    (call["id"].clone(), text(&item["content"][0]["text"]))
}

fn refuse_call(live: &mut Live, id: &Value) {
    live.say_unseen(&format!(r#"{{"error":{{"code":-32601,"message":"unknown variant"}},"id":{id}}}"#));
}

#[test]
fn context_by_a_call_of_its_own_is_settled_by_its_own_answer() {
    let mut live = Live::configured("carrier = \"inject_items\"");
    live.push(&command("one"), 1);
    let (id, shown) = turn_behind_a_call(&mut live, 1);
    assert_eq!(names(&envelope(&shown)), ["one"]);
    live.say_unseen(&format!(r#"{{"id":{id},"result":{{}}}}"#));
    live.refuse_turn(1, -32_600);
    assert_eq!(live.waiting(), [""; 0]);
    let delivery = live.deliveries().remove(0);
    assert_eq!(
        (&delivery["carrier"], &delivery["outcome"], &delivery["text"]),
        (&json!("inject_items"), &json!("delivered"), &json!(shown))
    );
    assert_eq!(live.turn(2, "t"), [""; 0]);
    let journal = live.end_quietly().journal();
    let [(Side::Server, false, Some(call))] = &journal.own[..] else { panic!("{:?}", journal.own) };
    assert!(call.starts_with(b"{") && call.ends_with(b"\n"));
    assert_eq!(journal.server.len(), 2, "the answer to our call is on record too");
}

#[test]
fn context_by_a_call_that_is_refused_waits_and_says_so_once() {
    let mut live = Live::configured("carrier = \"inject_items\"");
    live.push(&command("one"), 1);
    for turn in [1, 2] {
        let (id, _) = turn_behind_a_call(&mut live, turn);
        refuse_call(&mut live, &id);
        live.take_turn(turn);
        assert_eq!(live.waiting(), ["one"]);
    }
    assert_eq!(live.outcomes(), ["refused", "refused"]);
    let (_, stderr) = live.end();
    assert!(stderr.starts_with("codex-shim: ") && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn context_falls_back_to_the_envelope_for_good() {
    let mut live = Live::configured("carrier = \"auto\"");
    live.push(&command("one"), 1);
    let (id, _) = turn_behind_a_call(&mut live, 1);
    refuse_call(&mut live, &id);
    live.take_turn(1);
    for turn in [2, 3] {
        assert_eq!(live.turn(turn, "t"), ["one"]);
        live.refuse_turn(turn, -32_600);
    }
    live.end();
}

#[test]
fn context_that_is_off_stays_where_it_is() {
    let mut live = Live::configured("carrier = \"off\"");
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), [""; 0]);
    live.take_turn(1);
    assert_eq!((live.waiting(), live.deliveries().len()), (vec!["one".to_owned()], 0));
    live.end_quietly();
}

// 7: the way back.

#[test]
fn context_is_taken_out_of_what_the_client_sees() {
    let mut live = Live::start();
    live.push(&command("a \"b\" é"), 1);
    let sent = turn(1, "t", "hi");
    let shown = serde_json::to_string(&carried(&live.send(&sent), &sent)).expect("it is JSON");
    let shown = shown.trim_matches('"');
    let lines = [
        r#"{"method":"item/started","params":{"item":{"type":"userMessage","id":"i","content":[{"type":"text","text":"@hi"}]},"x": 1.0}}"#,
        r#"{"id":1,"result":{"turn":{"id":"u1","items":[{"type":"userMessage","content":[{"type":"text","text":"@hi"}]}]}}}"#,
        r#"{"id":2,"result":{"data":[{"id":"t","preview":"@hi"},{"id":"o","preview":"plain"}]}}"#,
    ];
    let mut own = Vec::new();
    for line in lines {
        for envelope in [shown, OTHERS] {
            let stripped = line.replace('@', "") + "\n";
            assert_eq!(live.say(&line.replace('@', envelope)), stripped);
            own.push((Side::Client, true, Some(stripped.into_bytes())));
        }
    }
    for line in [
        r#"{"method":"item/completed","params":{"item":{"type":"agentMessage","text":"@hi"}}}"#,
        r#"{"method":"item/started","params":{"item":{"type":"userMessage","content":[{"type":"text","text":"see @"}]}}}"#,
    ] {
        live.say_plainly(&line.replace('@', shown));
    }
    let journal = live.end_quietly().journal();
    assert_eq!(journal.own[1..], own);
    assert_eq!(journal.server[0], Some(format!("{}\n", lines[0].replace('@', shown)).into_bytes()));
    let at = journal.texts.iter().position(|record| record.contains(r#""from":"server""#)).expect("it is there");
    assert!(journal.texts[at + 1].contains(r#""to":"client""#), "{}", journal.texts[at + 1]);
}

#[test]
fn context_is_taken_out_of_a_long_answer() {
    let mut live = Live::start();
    let user = r#"{"type":"userMessage","content":[{"type":"text","text":"@hi \u001f \u001eCODEX_META "}]}"#;
    let agent = format!(r#"{{"type":"agentMessage","text":"{}@"}}"#, r"long \n\u00e9é ".repeat(50_000));
    let turns = vec![format!(r#"{{"items":[{user},{}]}}"#, agent.replace('@', OTHERS)); 8].join(",");
    let line = format!(r#"{{"id":1,"result":{{"thread":{{"id":"t","preview":"@hi","turns":[{turns}]}}}}}}"#);
    assert!(line.len() > 5 << 20);
    let got = live.say(&line.replace('@', OTHERS));
    assert!(got == line.replace('@', "") + "\n", "{} bytes, not {}", got.len(), line.len());
    live.end_quietly();
}

/// A list of threads with one preview.
fn listed(preview: &str) -> String {
    format!(r#"{{"id":9,"result":{{"data":[{{"id":"t","preview":"{preview}"}}]}}}}"#)
}

#[test]
fn context_that_cuts_off_a_preview_gives_way_to_what_the_user_wrote() {
    const CUT: &str = r#"\u001eCODEX_META {\"v\":1,\"type\":\"user_cmd"#;
    let mut live = Live::start();
    assert_eq!(live.say(&listed(CUT)), listed("") + "\n");
    live.push(&command("one"), 1);
    live.send(&turn(1, "t", "fix it"));
    live.take_turn(1);
    assert_eq!(live.say(&listed(CUT)), listed("fix it") + "\n");
    let mut live = Live::start_in(live.end_quietly());
    assert_eq!(live.say(&listed(CUT)), listed("fix it") + "\n");
    live.end_quietly();
}

#[test]
fn context_of_a_turn_that_was_refused_is_no_preview() {
    let mut live = Live::start();
    live.push(&command("one"), 1);
    live.send(&turn(1, "t", "never said"));
    live.refuse_turn(1, -32_600);
    live.send(&turn(2, "t", "fix it"));
    live.take_turn(2);
    assert_eq!(live.say(&listed(r"\u001eCODEX_META {\u0022v\u0022:1,\u0022ty")), listed("fix it") + "\n");
    live.end_quietly();
}

// 8: without a relay.

#[test]
fn context_is_kept_where_no_relay_runs() {
    let home = Live::start().end_quietly();
    let push = ["context", "push", "--session", "s", "--json", "--exit-code", "-1", "--cmd"];
    assert_eq!(told(&tool(&home, &[&push[..], &["one"]].concat())), json!({"waiting": 1}));
    assert_eq!(told(&tool(&home, &[&push[..], &["--two"]].concat())), json!({"waiting": 2}));
    let shown = told(&tool(&home, &["context", "show", "--json"]));
    assert_eq!((names(&shown), &shown["total_commands_run"]), (vec!["one".into(), "--two".into()], &json!(2)));
    assert_eq!(shown["commands"][0]["exit_code"], -1);
    let cwd = fs::canonicalize(home.beside()).expect("it is there");
    assert_eq!(shown["commands"][0]["cwd"], json!(cwd));
    failed(&tool(&home, &["context", "show", "--last"]), 1, "nothing");
    failed(&tool(&home, &["context", "push", "--session", "s", "--cmd", "x", "--thread", "n"]), 1, "n");

    let mut live = Live::start_in(home);
    assert_eq!(live.turn(1, "t"), ["one", "--two"]);
    live.take_turn(1);
    assert_eq!(told(&live.tool(&["context", "show", "--json"])), json!({"commands": [], "total_commands_run": 0}));
    let delivery = live.deliveries().remove(0);
    for home in [None, Some(())] {
        // Once while it runs, and once without it.
        let show = |args: &[&str]| tool(&live.home, &[&["context", "show", "--last"], args].concat());
        assert_eq!(told(&show(&["--json"])), delivery, "{home:?}");
        assert_eq!(show(&[]).stdout, text(&delivery["text"]).into_bytes(), "{home:?}");
        if home.is_none() {
            drop(live.stdin.take());
            drop(live.down.take());
            assert!(live.relay.wait().expect("the shim ends").success());
        }
    }
    let home = live.home;
    assert_eq!(told(&tool(&home, &[&push[..], &["three"]].concat())), json!({"waiting": 1}));
    assert!(tool(&home, &["context", "clear", "--session", "s"]).status.success());
    let mut live = Live::start_in(home);
    assert_eq!(live.turn(1, "t"), [""; 0]);
    live.push(&command("four"), 1);
    told(&live.tool(&["context", "clear", "--json"]));
    assert_eq!(live.turn(2, "t"), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_is_no_secret_push_behind_a_relay_that_does_not_answer() {
    let home = Live::start().end_quietly();
    let lock = File::open(home.path().join("sessions/s/lock")).expect("it is there");
    lock.lock().expect("nobody has it");
    failed(&tool(&home, &["context", "push", "--session", "s", "--cmd", "x"]), 1, "runs, but does not answer");
    failed(&tool(&home, &["context", "clear", "--session", "s"]), 1, "runs, but does not answer");
    drop(lock);
    let shown = told(&tool(&home, &["context", "show", "--json"]));
    assert_eq!(names(&shown), [""; 0]);
}

#[test]
fn context_of_no_session_at_all_is_an_error_of_its_own() {
    let home = Home::new();
    for args in [&["show"][..], &["push", "--cmd", "x"], &["clear"], &["show", "--session", "s"]] {
        let output = tool(&home, &[&["context"], args].concat());
        failed(&output, 3, "session");
    }
    assert!(!home.path().join("sessions").exists());
}

// 9: what cannot be.

#[test]
fn context_that_is_none_is_refused_and_not_kept() {
    let live = Live::start();
    let good = r#"{"cmd":"good"}"#;
    let in_array = |bad: &str| format!("[{good},{bad}]");
    for bad in ["", "x", "{", "[", "null", "7", r#""x""#, r#"{"cmd":"a"} {}"#, "{\"cmd\":\"a\0b\"}", "\0"] {
        live.refused(bad.as_bytes(), 400, "invalid_body");
    }
    for bad in [
        "{}",
        "null",
        r#"{"cmd":null}"#,
        r#"{"cmd":7}"#,
        r#"{"cmd":"a","exit_code":"0"}"#,
        r#"{"cmd":"a","cwd":[]}"#,
        r#"{"cmd":"a","ts":"now"}"#,
        r#"{"cmd":"a","output":{}}"#,
        r#"{"cmd":"a","preview":"x"}"#,
        r#"{"cmd":"a","thread_id":1}"#,
    ] {
        live.refused(bad.as_bytes(), 400, "invalid_body");
        live.refused(in_array(bad).as_bytes(), 400, "invalid_body");
    }
    for bad in [r#"{"cmd":""}"#, r#"{"cmd":"a\u0000b"}"#, r#"{"cmd":"a","ts":-1}"#] {
        live.refused(bad.as_bytes(), 400, "invalid_command");
        live.refused(in_array(bad).as_bytes(), 400, "invalid_command");
    }
    live.refused(b"{\"cmd\":\"\xff\"}", 400, "invalid_body");
    let big = json!({"cmd": "a", "output": "x".repeat(5 << 20)}).to_string();
    live.refused(big.as_bytes(), 413, "body_too_large");
    assert_eq!(live.waiting(), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_by_the_tool_takes_what_terminals_give() {
    let live = Live::start();
    let file = live.home.beside().join("output");
    let push = |cmd: &[u8], file: &Path| {
        let mut command = live.home.shim(&["context", "push", "--session", "s", "--cmd"]);
        command.arg(OsStr::from_bytes(cmd)).arg("--output-file").arg(file).output().expect("the tool runs")
    };
    failed(&push(b"x", &file), 1, &file.display().to_string());
    fs::write(&file, b"a\xffb\n").expect("a file");
    assert!(push(b"one \xff", &file).status.success());
    fs::write(&file, [b"first\n".repeat(1 << 20), b"last\n".to_vec()].concat()).expect("a file");
    assert!(push(b"two", &file).status.success());
    let shown = live.get(CONTEXT);
    assert_eq!(names(&shown), ["one \u{fffd}", "two"]);
    assert_eq!(shown["commands"][0]["preview"], json!({"lines": ["a\u{fffd}b"], "truncated": false}));
    let preview = &shown["commands"][1]["preview"];
    let lines = preview["lines"].as_array().expect("an array");
    assert_eq!((lines.len(), &lines[18], &lines[19]), (20, &json!("first"), &json!("last")));
    assert_eq!(preview["truncated"], true);
    live.end_quietly();
}

// 10: bounds.

#[test]
fn context_is_bounded() {
    let mut live = Live::start();
    let output = "é\"\\ ".repeat(60) + "\n";
    let commands: Vec<Value> =
        (1..=12).map(|number| json!({"cmd": format!("c{number}"), "output": output.repeat(30)})).collect();
    live.push(&json!(commands), 12);
    assert_eq!(live.get(CONTEXT)["total_commands_run"], 12);
    let sent = turn(1, "t", "hi");
    let shown = carried(&live.send(&sent), &sent);
    assert!(shown.len() <= 4_096, "{} bytes", shown.len());
    let json = envelope(&shown);
    let counts = [&json["total_commands_run"], &json["kept"], &json["dropped"]];
    assert_eq!(counts, [&json!(12), &json!(10), &json!(2)]);
    assert_eq!(names(&json), ["c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12"]);
    assert_eq!(json["commands"][9]["preview"]["truncated"], true);
    live.take_turn(1);
    assert_eq!(live.waiting(), [""; 0]);
    live.end_quietly();
}

#[test]
fn context_keeps_to_the_settings() {
    let mut live = Live::configured("context_commands_max = 3\ncontext_preview_lines_max = 1\n");
    let commands: Vec<Value> = (1..=5).map(|number| json!({"cmd": number.to_string(), "output": "a\nb\n"})).collect();
    live.push(&json!(commands), 5);
    let sent = turn(1, "t", "hi");
    let json = envelope(&carried(&live.send(&sent), &sent));
    assert_eq!((names(&json), &json["dropped"]), (["3", "4", "5"].map(str::to_owned).to_vec(), &json!(2)));
    assert_eq!(json["commands"][0]["preview"], json!({"lines": ["b"], "truncated": true}));
    live.end_quietly();
}

// 11: a ledger that is none.

/// A home whose session has a ledger that `make` puts there.
fn home_with_ledger(make: impl Fn(&Path)) -> Home {
    let home = Home::new();
    let session = home.path().join("sessions/s");
    fs::create_dir_all(&session).expect("a folder");
    make(&session.join("ledger.db"));
    home
}

#[test]
fn context_begins_anew_beside_a_ledger_that_is_corrupt() {
    let broken = "no database, and long enough to be seen as none".repeat(200);
    let mut live = Live::start_in(home_with_ledger(|ledger| fs::write(ledger, &broken).expect("a file")));
    live.push(&command("one"), 1);
    assert_eq!(live.turn(1, "t"), ["one"]);
    let files = fs::read_dir(&live.session).expect("a folder").map(|file| file.expect("a file").path());
    let aside: Vec<PathBuf> = files.filter(|path| path.to_string_lossy().contains("/ledger.db.corrupt-")).collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert_eq!(fs::read_to_string(&aside[0]).expect("it is there"), broken);
    assert!(text(&live.get("/sessions/self")["faults"][0]["what"]).contains("ledger.db.corrupt-"));
    let (_, stderr) = live.end();
    assert!(stderr.lines().count() == 1 && stderr.contains("ledger.db.corrupt-"), "{stderr}");
}

#[test]
fn context_is_unavailable_where_the_ledger_is_newer() {
    let newer = |ledger: &Path| {
        let connection = rusqlite::Connection::open(ledger).expect("it can be made");
        connection.pragma_update(None, "user_version", 1_000).expect("it can be written");
    };
    let mut live = Live::start_in(home_with_ledger(newer));
    live.refused(br#"{"cmd":"x"}"#, 503, "ledger_unavailable");
    assert_eq!(live.http(&format!("GET {CONTEXT}"), b"").0, 503);
    assert_eq!(live.turn(1, "t"), [""; 0]);
    live.take_turn(1);
    let status = live.get("/sessions/self");
    assert!(text(&status["faults"][0]["what"]).contains("newer"), "{status}");
    let (home, stderr) = live.end();
    assert!(stderr.starts_with("codex-shim: ") && stderr.lines().count() == 1, "{stderr}");
    failed(&tool(&home, &["context", "push", "--session", "s", "--cmd", "x"]), 1, "newer");
}
