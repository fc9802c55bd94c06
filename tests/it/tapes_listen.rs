//! Tapes of a hub, played on a Unix socket: to scripted clients and to the real TUI.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tungstenite::Message;

use crate::support::codex::{Lab, installed_or_skip};
use crate::support::eventually;
use crate::support::hub_tapes::{self, TUI, TWO_CLIENTS, is_asked, is_completed, is_resolved};
use crate::support::model::Model;
use crate::support::release::{Ability, Release};
use crate::support::shim::Home;
use crate::support::tmux::Tmux;
use crate::support::websocket::Client;

fn tape(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/tapes/{name}.jsonl"))
}

/// `codex-shim replay --listen`, once it listens.
struct Listening {
    home: Home,
    process: Child,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Listening {
    fn start(tape: &Path, args: &[&str]) -> Listening {
        let home = Home::new();
        let listen = format!("unix://{}", home.beside().join("t.sock").display());
        let args = [&["replay", "--listen", &listen, tape.to_str().expect("UTF-8")], args].concat();
        let mut process = home.shim(&args).stdin(Stdio::null()).spawn().expect("the shim starts");
        let mut stderr = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("it says something");
        assert_eq!(line, format!("codex-shim: plays the tape at {listen}\n"));
        Listening { home, process, stderr }
    }

    fn socket(&self) -> PathBuf {
        self.home.beside().join("t.sock")
    }

    fn client(&self, name: &str) -> Client {
        let mut client = Client::connect(&self.socket());
        client.initialize(name);
        client
    }

    /// Ends it with a signal; returns its exit status and what it has said.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
        self.ended()
    }

    fn ended(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).expect("it is UTF-8");
        let status = self.process.wait().expect("it ends");
        assert!(fs::symlink_metadata(self.socket()).is_err(), "the socket is left behind");
        (status.code(), said)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A tape of these records of lines, each with its connection and its side, 1 ms apart.
fn written(home: &Home, lines: &[(u32, &str, Value)]) -> PathBuf {
    let header = json!({"journal": 1, "session": "tape", "generation": "000000000001", "segment": 1, "at": 1, "argv": [],
        "cwd": "/", "codex": {"path": "codex"}, "shim": "0"});
    let record = |(number, (conn, from, line)): (usize, &(u32, &str, Value))| {
        format!(r#"{{"at":{},"conn":{conn},"from":"{from}","line":{line}}}"#, number * 1000)
    };
    let records: Vec<String> = lines.iter().enumerate().map(record).collect();
    let path = home.beside().join("written.jsonl");
    fs::write(&path, format!("{header}\n{}\n", records.join("\n"))).expect("a file");
    path
}

#[test]
fn recorded_clients_play_against_their_tape() {
    let listening = Listening::start(&tape(TWO_CLIENTS), &["--strict"]);
    // The folder may be entered by others, so the socket is in one that may not.
    let socket = fs::canonicalize(listening.socket()).expect("it listens");
    let metadata = |path: &Path| fs::symlink_metadata(path).expect("it is there");
    assert!(metadata(&socket).file_type().is_socket());
    assert_eq!(metadata(&socket).mode() & 0o777, 0o600);
    assert_eq!(metadata(socket.parent().expect("a folder")).mode() & 0o777, 0o700);
    // Twice: the second round begins anew.
    for _ in 0..2 {
        hub_tapes::two_clients(&listening.socket(), listening.home.beside());
    }
    assert_eq!(listening.end(Signal::TERM), (Some(0), String::new()));
}

#[test]
fn handshake_is_that_of_codex() {
    let listening = Listening::start(&tape(TWO_CLIENTS), &[]);
    let socket = listening.socket();
    drop(UnixStream::connect(&socket).expect("it listens"));
    // A probe gets its answer and takes no connection of the tape.
    for (path, name) in [("/", "codex_app_server_daemon"), ("/rpc", "editor")] {
        let offer =
            [("sec-websocket-extensions", "permessage-deflate"), ("x-codex-app-server-compression", "zstd-stream-v1")];
        let mut probe = Client::connect_to(&socket, path, &offer);
        assert_eq!(probe.headers["x-codex-websocket-max-unfragmented-message-bytes"], "16777216");
        assert!(!probe.headers.contains_key("sec-websocket-extensions"));
        assert!(probe.initialize(name)["userAgent"].as_str().is_some_and(|agent| agent.starts_with("editor/")));
        probe.send_message(Message::Ping("are you there".into()));
        let pong = eventually("a pong", || probe.receive_message().filter(Message::is_pong));
        assert_eq!(pong.into_data(), "are you there");
        probe.close();
    }
    hub_tapes::two_clients(&socket, listening.home.beside());
    let mut other = UnixStream::connect(&socket).expect("it listens");
    other.write_all(b"{\"id\":0,\"method\":\"initialize\"}\n").expect("it is read");
    assert_eq!(other.read(&mut [0; 1]).unwrap_or(0), 0);
    assert_eq!(listening.end(Signal::INT), (Some(0), String::new()));
}

#[test]
fn first_answer_wins_and_another_has_no_effect() {
    let listening = Listening::start(&tape(TWO_CLIENTS), &[]);
    let (mut editor, mut terminal) = (listening.client("editor"), listening.client("terminal"));
    let params = json!({"cwd": "/", "approvalPolicy": "on-request", "sandbox": "read-only"});
    let thread = editor.call("thread/start", params)["thread"]["id"].clone();
    editor.call(
        "turn/start",
        json!({"threadId": thread, "input": [{"type": "text", "text": "run it", "text_elements": []}]}),
    );
    let asked = editor.wait_for("the request", is_asked);
    terminal.call("thread/resume", json!({"threadId": thread, "excludeTurns": true}));
    assert_eq!(terminal.wait_for("the request", is_asked), asked);
    // On the tape, the other one has answered.
    editor.answer(&asked["id"], json!({"decision": "accept"}));
    for client in [&mut editor, &mut terminal] {
        let resolved = client.wait_for("its end", is_resolved);
        assert_eq!(resolved["params"]["requestId"], asked["id"]);
    }
    terminal.answer(&asked["id"], json!({"decision": "decline"}));
    terminal.wait_for("the end of the turn", is_completed);
    let (status, said) = listening.end(Signal::TERM);
    assert_eq!(status, Some(0));
    assert!(!said.contains("decline"), "{said}");
}

#[test]
fn client_without_its_peer_is_not_held_up_for_ever() {
    let home = Home::new();
    let greet = |conn: u32, name: &str| {
        [
            (conn, "client", json!({"id": 0, "method": "initialize", "params": {"clientInfo": {"name": name}}})),
            (conn, "server", json!({"id": 0, "result": {"userAgent": "a/1"}})),
        ]
    };
    let turn = |id: u32| json!({"id": id, "method": "turn/start", "params": {"threadId": "T", "input": [id]}});
    let note = |words: &str| json!({"method": "note", "params": {"threadId": "T", "words": words}});
    let result = |id: u32| json!({"id": id, "result": {}});
    let mut lines = [greet(1, "one"), greet(2, "two")].concat();
    lines.extend([
        (1, "client", json!({"id": 1, "method": "thread/start", "params": {}})),
        (1, "server", json!({"id": 1, "result": {"thread": {"id": "T"}}})),
        (1, "client", turn(2)),
        (1, "server", result(2)),
        (1, "server", note("of one")),
        (2, "client", turn(1)),
        (2, "server", result(1)),
        (1, "server", note("of two")),
        (1, "client", turn(3)),
        (1, "server", result(3)),
        (1, "server", note("of one again")),
    ]);
    let listening = Listening::start(&written(&home, &lines), &[]);
    let mut one = listening.client("one");
    one.call("thread/start", json!({}));
    one.call("turn/start", json!({"threadId": "T", "input": [2]}));
    one.wait_for("its turn", |message| message["params"]["words"] == "of one");
    // The other turn needs the other client, unless that never comes: the answer to another call comes without it.
    one.call("thread/start", json!({}));
    assert!(!one.seen.iter().any(|text| text.contains("of two")), "{:?}", one.seen);
    one.call("turn/start", json!({"threadId": "T", "input": [3]}));
    one.wait_for("its turn", |message| message["params"]["words"] == "of one again");
    let words: Vec<&String> = one.seen.iter().filter(|text| text.contains("words")).collect();
    assert!(words.len() == 3 && words[1].contains("of two"), "{words:?}");
    one.close();
    let mut one = listening.client("one");
    let mut two = listening.client("two");
    one.call("thread/start", json!({}));
    one.call("turn/start", json!({"threadId": "T", "input": [2]}));
    two.call("turn/start", json!({"threadId": "T", "input": [1]}));
    one.wait_for("the other turn", |message| message["params"]["words"] == "of two");
    assert_eq!(listening.end(Signal::TERM).0, Some(0));
}

#[test]
fn strict_server_ends_at_the_first_difference() {
    let mut listening = Listening::start(&tape(TWO_CLIENTS), &["--strict"]);
    let mut editor = listening.client("editor");
    let id = editor.request("thread/start", json!({"cwd": "/", "sandbox": "danger-full-access"}));
    let refused = editor.wait_for("a refusal", |message| message["id"] == id && message.get("method").is_none());
    assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("no thread/start like this one")));
    let (status, said) = listening.ended();
    assert_eq!(status, Some(1));
    assert!(said.starts_with("codex-shim: editor differs from the tape in 2 places\n"), "{said}");
    assert!(said.contains("thread/start at params.sandbox\n  - \"read-only\"\n  + \"danger-full-access\"\n"), "{said}");
}

#[test]
fn live_socket_is_left_alone_and_a_stale_one_replaced() {
    let listening = Listening::start(&tape(TWO_CLIENTS), &[]);
    let listen = format!("unix://{}", listening.socket().display());
    let again =
        listening.home.shim(&["replay", "--listen", &listen, tape(TWO_CLIENTS).to_str().unwrap()]).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    let expect =
        format!("another program (pid {}) listens on {}; ", listening.process.id(), listening.socket().display());
    assert!(said.contains(&expect), "{said}");
    listening.client("editor").close();
    assert_eq!(listening.end(Signal::TERM), (Some(0), String::new()));

    let home = Home::new();
    drop(UnixListener::bind(home.beside().join("t.sock")).expect("it can be bound"));
    for wrong in ["unix://", "ws://127.0.0.1:1", "t.sock"] {
        let refused = home.shim(&["replay", "--listen", wrong, "x"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
    }
    let mut process = home
        .shim(&["replay", "--listen", &format!("unix://{}", home.beside().join("t.sock").display())])
        .arg(tape(TWO_CLIENTS))
        .spawn()
        .unwrap();
    Client::connect(&home.beside().join("t.sock")).close();
    kill_process(Pid::from_child(&process), Signal::TERM).expect("it runs");
    assert!(process.wait().unwrap().success());
}

#[test]
fn one_client_can_be_exported_alone() {
    // A hub's session is made of its journal: the tape itself is one.
    let home = Home::new();
    let session = home.path().join("sessions/h");
    let (lab, text) = (Lab::bare(), fs::read_to_string(tape(TWO_CLIENTS)).expect("the tape is there"));
    let mut run = home.shim(&["run", "--session", "h", "--", "true"]);
    assert!(run.stdin(Stdio::null()).status().expect("the shim runs").success());
    for segment in fs::read_dir(session.join("journal")).expect("a journal") {
        fs::remove_file(segment.expect("an entry").path()).expect("it is there");
    }
    fs::write(session.join("journal/000000000001-001.jsonl"), &text).expect("a file");
    let alone = home.beside().join("alone.jsonl");
    let export = |conn: &str| {
        let args = ["tape", "export", "h", "--conn", conn, "-o", alone.to_str().expect("UTF-8")];
        home.shim(&args).stdin(Stdio::null()).output().expect("the shim runs")
    };
    let missing = export("9");
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        said.contains("this run has no connection 9; it has 1 (editor), 2 (terminal), 3 (editor), 4 (terminal)"),
        "{said}"
    );
    assert!(export("1").status.success());
    let records = fs::read_to_string(&alone).expect("a tape");
    assert!(records.contains(r#""conn":1,"#) && !records.contains(r#""conn":2,"#), "{records}");

    // Another client has answered, so the request resolves itself.
    let listening = Listening::start(&alone, &["--strict"]);
    let mut editor = listening.client("editor");
    let params = json!({"cwd": lab.cwd(), "approvalPolicy": "on-request", "sandbox": "read-only"});
    let thread = editor.call("thread/start", params)["thread"]["id"].clone();
    editor.call(
        "turn/start",
        json!({"threadId": thread, "input": [{"type": "text", "text": "run it", "text_elements": []}]}),
    );
    editor.wait_for("the request", is_asked);
    editor.wait_for("its end", is_resolved);
    editor.wait_for("the end of the turn", is_completed);
    editor.call(
        "turn/start",
        json!({"threadId": thread, "input": [{"type": "text", "text": "once more", "text_elements": []}]}),
    );
    editor.wait_for("the request", is_asked);
    editor.close();
    assert_eq!(listening.end(Signal::TERM), (Some(0), String::new()));

    let mut show =
        home.shim(&["tape", "show", tape(TWO_CLIENTS).to_str().unwrap(), "--conn", "2", "--method", "resume"]);
    let shown = show.output().expect("the shim runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.lines().count() == 1 && shown.contains("→ 2"), "{shown}");
}

#[test]
fn client_that_does_not_read_is_disconnected() {
    let home = Home::new();
    let big = "x".repeat(1 << 20);
    let lines = [
        (1, "client", json!({"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "one"}}})),
        (1, "server", json!({"id": 0, "result": {}})),
        (1, "client", json!({"id": 1, "method": "thing/read", "params": {}})),
        (1, "server", json!({"id": 1, "result": {"text": big}})),
    ];
    let mut listening = Listening::start(&written(&home, &lines), &[]);
    let mut slow = listening.client("one");
    let mut other = listening.client("one");
    for _ in 0..80 {
        slow.request("thing/read", json!({}));
    }
    let mut said = String::new();
    listening.stderr.read_line(&mut said).expect("it says why");
    assert_eq!(said, "codex-shim: one does not read its messages: disconnected\n");
    assert_eq!(other.call("thing/read", json!({}))["text"], big);
    assert_eq!(listening.end(Signal::TERM).0, Some(0));
}

#[test]
fn clients_at_once_are_limited() {
    let listening = Listening::start(&tape(TWO_CLIENTS), &[]);
    let mut bare: Vec<UnixStream> =
        (0..65).map(|_| UnixStream::connect(listening.socket()).expect("it listens")).collect();
    let last = bare.last_mut().expect("there are some");
    assert_eq!(last.read(&mut [0; 1]).expect("it is closed"), 0);
    drop(bare);
    eventually("room for a client", || Client::try_connect(&listening.socket(), "/rpc", &[]).ok()).close();
    let (status, said) = listening.end(Signal::TERM);
    assert_eq!(status, Some(0));
    assert!(said.contains("too many clients: the new one is disconnected"), "{said}");
}

#[test]
fn account_that_is_not_on_record_is_not_needed() {
    let listening = Listening::start(&tape(TUI), &[]);
    let mut client = listening.client("codex-tui");
    // The second time it is not on the tape.
    for _ in 0..3 {
        let result = client.call("account/read", json!({}));
        assert_eq!((&result["account"], &result["requiresOpenaiAuth"]), (&Value::Null, &json!(false)));
    }
    assert_eq!(listening.end(Signal::TERM).0, Some(0));
}

#[test]
fn e2e_real_tui_plays_against_its_tape() {
    let test = "e2e_real_tui_plays_against_its_tape";
    // The tape is that of the newest release, and its TUI reads what it says.
    if Release::under_test().to_string() != Release::newest().to_string()
        || Release::under_test().lacks(test, Ability::SharedServer)
    {
        return;
    }
    let Some(codex) = installed_or_skip(test) else { return };
    let model = Model::start(Vec::new());
    let lab = Lab::new(&model);
    let config = lab.codex_home().join("config.toml");
    let trust = format!("[projects.\"{}\"]\ntrust_level = \"trusted\"\n", lab.cwd().display());
    let text = fs::read_to_string(&config).expect("it is there");
    fs::write(&config, [&text, &trust, hub_tapes::FIRST_START].concat()).expect("a file");
    let listening = Listening::start(&tape(TUI), &[]);
    // Twice against one server.
    for _ in 0..2 {
        let program = hub_tapes::remote(&codex, &listening.socket(), &lab);
        let Some(tui) = Tmux::start(test, &listening.home, &program) else { return };
        tui.shows(hub_tapes::PROMPT);
        tui.types(hub_tapes::WORDS);
        tui.shows(hub_tapes::WORDS);
        tui.keys(&["Enter"]);
        tui.shows(hub_tapes::DIALOG);
        eventually("the answer", || {
            let screen = tui.screen();
            if screen.contains(hub_tapes::DIALOG) {
                tui.types("y");
            }
            screen.contains("It ran.").then_some(())
        });
        tui.shows_no(hub_tapes::DIALOG);
    }
    assert_eq!(model.requests(), Vec::<Value>::new());
    assert_eq!(listening.end(Signal::TERM).0, Some(0));
}
