//! Clients that attach one after the other to a server without a client of its own: they connect, get answers, and
//! leave.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use codex_shim::testing::control::{self, client};
use codex_shim::testing::wire::Side;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, http, lines_of, next, text};
use crate::support::codex::{Lab, installed_or_skip};
use crate::support::conversations::{start_thread, start_turn, turn_completed};
use crate::support::journal::Journal;
use crate::support::model::{Item, Model};
use crate::support::peer::Peer;
use crate::support::real::run;
use crate::support::release::Ability;
use crate::support::requests::{answer, command_asked, decision, parsed, refused, resolved};
use crate::support::shim::{Home, SHIM};
use crate::support::{PATIENCE, eventually, stop};

/// The server's answer to our `initialize`, with blanks and escapes that reserialization would lose.
const RESULT: &str = r#"{"userAgent": "codex-shim/0.150.0 \u0028x)","codexHome":"/h", "x":1.0e0}"#;

const ATTACH: &str = "/sessions/self/attach";
const UPGRADE: &str = "\r\nConnection: upgrade\r\nUpgrade: codex-shim-attach";

/// An attached client.
pub struct Client {
    pub tool: Child,
    pub stdin: Option<ChildStdin>,
    pub lines: Receiver<Vec<u8>>,
}

impl Client {
    /// Starts the tool, which may not be attached when this returns.
    pub fn start(live: &Live) -> Client {
        let mut tool = attach_tool(&live.home).spawn().expect("the tool starts");
        let lines = lines_of(tool.stdout.take().expect("stdout is piped"));
        Client { stdin: tool.stdin.take(), tool, lines }
    }

    /// A client whose `initialize` was answered.
    pub fn named(live: &Live, name: &str) -> Client {
        let mut client = Client::start(live);
        let info = format!(r#"{{"clientInfo":{{"name":"{name}","version":"2"}},"capabilities":{{"#);
        let params = format!(r#"{info}"optOutNotificationMethods":["item/delta"]}}}}"#);
        client.write(&format!("{{\"id\": \"i\",\"method\":\"initialize\",\"params\":{params}}}\n"));
        assert_eq!(client.next(), format!("{{\"id\":\"i\",\"result\":{RESULT}}}\n"));
        client.write("{\"method\":\"initialized\"}\n");
        client
    }

    pub fn write(&mut self, bytes: &str) {
        self.stdin.as_mut().expect("stdin is open").write_all(bytes.as_bytes()).expect("the tool reads");
    }

    pub fn next(&self) -> String {
        next(&self.lines, "a line at the attached client")
    }

    /// Sends a line; the server receives it unchanged.
    pub fn send(&mut self, live: &Live, line: &str) {
        self.write(&format!("{line}\n"));
        assert_eq!(live.at_server(), format!("{line}\n"));
    }

    /// The server sends a line; the client receives it unchanged, and nothing before it.
    pub fn gets(&self, live: &mut Live, line: &str) {
        live.say_unseen(line);
        assert_eq!(self.next(), format!("{line}\n"));
    }

    /// Closes stdin and checks that the tool exits as on request.
    pub fn leave(mut self, live: &Live) {
        drop(self.stdin.take());
        let output = self.end();
        assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]), "{output:?}");
        live.await_client("codex-shim");
    }

    pub fn kill(mut self, live: &Live) {
        self.tool.kill().expect("it runs");
        self.tool.wait().expect("it is ours");
        live.await_client("codex-shim");
    }

    /// Waits for the tool to exit; it has written nothing else.
    pub fn end(self) -> Output {
        assert_eq!(self.lines.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        self.tool.wait_with_output().expect("it is ours")
    }
}

pub fn attach_tool(home: &Home) -> Command {
    let mut tool = home.shim(&["attach", "--session", "s"]);
    tool.current_dir(home.beside());
    tool
}

/// Output of a tool that fails to attach.
fn attach_fails(home: &Home) -> Output {
    attach_tool(home).stdin(Stdio::null()).output().expect("the tool runs")
}

impl Live {
    /// An initialized server without a client.
    pub fn ready() -> Live {
        let mut live = Live::served();
        let asked = parsed(&live.at_server());
        assert_eq!(asked["method"], "initialize");
        live.say_unseen(&format!(r#"{{"id":{},"result":{RESULT}}}"#, asked["id"]));
        assert_eq!(parsed(&live.at_server()), json!({"method": "initialized"}));
        live
    }

    pub fn await_client(&self, name: &str) {
        eventually("who the client is", || (self.get("/sessions/self")["client"]["name"] == name).then_some(()));
    }

    /// Makes an API call to the server, so that the relay has read all its earlier output.
    pub fn in_step(&mut self) {
        let called = self.posted("rpc", &json!({"method": "x/y"}));
        let id = parsed(&self.at_server())["id"].clone();
        self.say_unseen(&format!(r#"{{"id":{id},"result":7}}"#));
        assert_eq!(called.join().expect("it is answered"), (200, json!({"result": 7})));
    }

    /// Stops the relay as a service manager does.
    pub fn signal_end(self) -> (Journal, String) {
        let pid = i32::try_from(self.relay.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::TERM).expect("it runs");
        assert_eq!(self.client.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "on our stdout");
        let output = self.relay.wait_with_output().expect("it is ours");
        (Journal::read(&self.session), String::from_utf8(output.stderr).expect("it is text"))
    }
}

#[test]
fn attached_client_is_the_client() {
    let mut live = Live::ready();
    live.say_unseen(r#"{"method":"before/anybody"}"#);
    live.in_step();
    let mut client = Client::named(&live, "ide");
    assert_eq!(live.get("/sessions/self")["client"], json!({"name": "ide", "version": "2"}));
    client.send(&live, r#"{"id":1,"method":"thread/list","params":{"x":1.0e0}}"#);
    client.gets(&mut live, r#"{"id":1,"result":{"y": 1}}"#);
    client.gets(&mut live, r#"{"method":"thread/started","params":{}}"#);
    live.say_unseen(r#"{"method":"item/delta","params":{}}"#);
    client.gets(&mut live, &command_asked("0", "t"));
    let request_id = format!("{}-0", live.generation());
    client.send(&live, &answer("0", &decision("accept")));
    client.gets(&mut live, &resolved("0"));
    let row = live.row_with(&request_id, "confirmed_at");
    assert_eq!((&row["resolution_source"], &row["resolved_by"]), (&json!("client"), &json!("ide")));
    client.leave(&live);
    live.say_unseen(r#"{"method":"after/it"}"#);
    live.in_step();
    let (journal, stderr) = live.signal_end();
    assert!(stderr.starts_with("codex-shim: serving session s; ") && stderr.lines().count() == 1, "{stderr}");
    let said: Vec<_> = journal.server.iter().flatten().map(|line| String::from_utf8_lossy(line)).collect();
    assert!(
        said.iter().any(|line| line.contains("before/anybody")) && said.iter().any(|line| line.contains("after/it"))
    );
    let ours: Vec<_> = journal.own.iter().filter(|(to, ..)| *to == Side::Client).collect();
    let greeted = format!("{{\"id\":\"i\",\"result\":{RESULT}}}\n").into_bytes();
    assert_eq!(ours, [&(Side::Client, false, Some(greeted))]);
    assert_eq!(journal.client.len(), 4, "what it wrote is on record, `initialized` too");
    let came_and_went = ["client_attached", "client_left"].map(|event| (event.to_owned(), json!({"name": "ide"})));
    let events: Vec<_> = journal.events.into_iter().filter(|(event, _)| event.starts_with("client_")).collect();
    assert_eq!(events, came_and_went);
}

#[test]
fn attached_clients_tape_can_be_played() {
    let mut live = Live::ready();
    let mut client = Client::named(&live, "ide");
    client.send(&live, r#"{"id":1,"method":"thread/list"}"#);
    client.gets(&mut live, r#"{"id":1,"result":{"y":1}}"#);
    client.leave(&live);
    let mut segments = std::fs::read_dir(live.session.join("journal")).expect("a folder");
    let segment = segments.next().expect("a segment").expect("an entry").path();
    let tape = live.home.beside().join("tape.jsonl");
    std::fs::copy(segment, &tape).expect("it can be read");
    let mut player = live.home.shim(&["replay", tape.to_str().expect("a path is text")]).spawn().expect("it starts");
    let lines = lines_of(player.stdout.take().expect("stdout is piped"));
    let mut stdin = player.stdin.take().expect("stdin is piped");
    writeln!(stdin, r#"{{"id":5,"method":"initialize","params":{{}}}}"#).expect("it reads");
    let answered = parsed(&next(&lines, "an answer"));
    assert_eq!((&answered["id"], &answered["result"]["codexHome"]), (&json!(5), &json!("/h")));
    drop(stdin);
    player.wait().expect("it is ours");
    live.signal_end();
}

#[test]
fn attached_clients_come_and_go() {
    let mut live = Live::ready();
    let mut first = Client::named(&live, "first");
    first.send(&live, r#"{"id":7,"method":"slow"}"#);
    first.leave(&live);
    let mut second = Client::named(&live, "second");
    second.send(&live, r#"{"id":8,"method":"slow"}"#);
    live.say_unseen(r#"{"id":7,"result":"of the first"}"#);
    second.gets(&mut live, r#"{"id":8,"result":"of the second"}"#);
    second.send(&live, r#"{"id":9,"method":"slow"}"#);
    second.kill(&live);
    let third = Client::named(&live, "third");
    live.say_unseen(r#"{"id":9,"result":"of the second"}"#);
    third.gets(&mut live, r#"{"method":"marker"}"#);
    third.leave(&live);
    // The next client uses the same ids, and an earlier call may stay unanswered forever.
    for name in ["fourth", "fifth"] {
        let mut client = Client::named(&live, name);
        client.send(&live, r#"{"id":1,"method":"never"}"#);
        client.leave(&live);
    }
    let mut sixth = Client::named(&live, "sixth");
    sixth.send(&live, r#"{"id":1,"method":"quick"}"#);
    sixth.gets(&mut live, r#"{"id":1,"result":"of the sixth"}"#);
    live.say_unseen(r#"{"id":1,"result":"of the fourth"}"#);
    sixth.gets(&mut live, r#"{"method":"marker"}"#);
    sixth.leave(&live);
    live.signal_end();
}

#[test]
fn attached_one_at_a_time() {
    let live = Live::ready();
    let client = Client::named(&live, "ide");
    failed(&attach_fails(&live.home), 1, "the client `ide` is attached already");
    let at = format!("POST {ATTACH}{UPGRADE}");
    refused(http(&live.session, &at, b""), (409, "client_attached"));
    client.leave(&live);
    Client::named(&live, "other").leave(&live);
    live.signal_end();

    let relay = Live::start();
    refused(http(&relay.session, &at, b""), (409, "not_served"));
    let relay = relay.initialize();
    failed(&attach_fails(&relay.home), 1, "this server belongs to its client");
    refused(http(&relay.session, &at, b""), (409, "not_served"));
    relay.end_quietly();
}

#[test]
fn attach_says_why_it_cannot() {
    let home = Home::new();
    failed(&attach_fails(&home), 3, "unknown session `s`: no sessions yet");

    let live = Live::served();
    refused(http(&live.session, &format!("POST {ATTACH}{UPGRADE}"), b""), (503, "not_ready"));
    failed(&attach_fails(&live.home), 1, "has not finished starting");
    refused(http(&live.session, &format!("POST {ATTACH}"), b""), (426, "upgrade_required"));
    let home = {
        let mut relay = live;
        relay.relay.kill().expect("it runs");
        relay.relay.wait().expect("it is ours");
        relay.home
    };
    failed(&attach_fails(&home), 4, "s is not running");
}

#[test]
fn attached_client_that_is_killed_leaves_nothing_behind() {
    let mut live = Live::ready();
    let mut first = Client::named(&live, "first");
    // The client reads nothing more, so the server's output fills every buffer up to the relay's.
    let stopped = i32::try_from(first.tool.id()).ok().and_then(Pid::from_raw).expect("a process id");
    stop(stopped);
    let mut down = live.down.as_ref().expect("the server runs").try_clone().expect("a file");
    let line = format!("{{\"method\":\"old\",\"params\":\"{}\"}}\n", "x".repeat(1 << 20));
    let writer = std::thread::spawn(move || (0..4).for_each(|_| down.write_all(line.as_bytes()).expect("it is read")));
    eventually("a line that was read, behind the answer to our own call", || {
        (live.get("/sessions/self")["counters"]["server_lines"] == 2).then_some(())
    });
    assert!(!writer.is_finished());
    first.tool.kill().expect("it runs");
    first.tool.wait().expect("it is ours");
    writer.join().expect("the relay reads on");
    live.await_client("codex-shim");
    live.in_step();
    drop(first.stdin.take());
    let second = Client::named(&live, "second");
    second.gets(&mut live, r#"{"method":"new"}"#);
    second.leave(&live);
    live.signal_end();
}

#[test]
fn attached_client_gets_what_it_is_owed_when_the_server_ends() {
    let mut live = Live::ready();
    let mut client = Client::named(&live, "ide");
    let long = format!(r#"{{"method":"last","params":"{}"}}"#, "x".repeat(1 << 20));
    client.gets(&mut live, &long);
    let mut down = live.down.take().expect("the server runs");
    write!(down, "{long}\nno end").expect("it is read");
    drop(down);
    assert_eq!(client.next(), format!("{long}\n"));
    assert_eq!(client.next(), "no end");
    // The client's stdin is still open.
    let stdin = client.stdin.take();
    failed(&client.end(), 1, "the server or its relay has exited");
    drop(stdin);
    live.await_client("codex-shim");
    // Before the restart.
    live.signal_end();
}

#[test]
fn attached_client_sees_that_the_server_is_stopped() {
    let mut live = Live::ready();
    let mut client = Client::named(&live, "ide");
    let stopped = live.posted("stop", &json!({}));
    assert_eq!(live.server.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "its stdin is closed");
    client.gets(&mut live, r#"{"method":"goodbye"}"#);
    drop(live.down.take());
    let stdin = client.stdin.take();
    failed(&client.end(), 1, "the server or its relay has exited");
    drop(stdin);
    assert_eq!(stopped.join().expect("it is answered"), (200, json!({"ok": true})));
    failed(&attach_fails(&live.home), 1, "the server has ended; `POST /sessions/self/start`");
    live.signal_end();
}

#[test]
fn attached_client_sees_that_the_shim_is_killed() {
    let mut live = Live::ready();
    let mut client = Client::named(&live, "ide");
    let stdin = client.stdin.take();
    live.relay.kill().expect("it runs");
    live.relay.wait().expect("it is ours");
    failed(&client.end(), 1, "the server or its relay has exited");
    drop(stdin);
}

#[test]
fn attached_clients_last_line_is_ended() {
    let mut live = Live::ready();
    let mut first = Client::named(&live, "first");
    first.write(r#"{"method":"half"#);
    first.leave(&live);
    assert_eq!(live.at_server(), "{\"method\":\"half\n");
    live.in_step();
    let mut second = Client::named(&live, "second");
    second.write("half");
    second.leave(&live);
    assert_eq!(live.at_server(), "half\n");
    let mut third = Client::named(&live, "third");
    third.send(&live, r#"{"method":"whole"}"#);
    third.leave(&live);
    // A notification that is not forwarded needs no end.
    let mut fourth = Client::start(&live);
    fourth.write(r#"{"id":0,"method":"initialize"}"#);
    drop(fourth.stdin.take());
    assert_eq!(parsed(&fourth.next())["id"], 0);
    assert!(fourth.end().status.success());
    live.await_client("codex-shim");
    live.in_step();
    live.signal_end();
}

#[test]
fn attached_client_may_close_our_stdout() {
    let mut live = Live::ready();
    let mut tool = attach_tool(&live.home).spawn().expect("the tool starts");
    drop(tool.stdout.take());
    let mut stdin = tool.stdin.take().expect("stdin is piped");
    stdin.write_all(b"{\"id\":0,\"method\":\"initialize\"}\n").expect("the tool reads");
    let output = tool.wait_with_output().expect("it ends");
    failed(&output, 1, "the client closed stdout");
    drop(stdin);
    live.await_client("codex-shim");
    live.in_step();
    live.signal_end();
}

#[test]
fn attached_client_may_not_speak_before_it_is_let_in() {
    let live = Live::ready();
    let mut stream = UnixStream::connect(control::resolve(&live.session).expect("a socket")).expect("it answers");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let head = format!("POST {ATTACH} HTTP/1.1\r\nHost: shim{UPGRADE}\r\n\r\n");
    stream.write_all(format!("{head}{{\"id\":0,\"method\":\"initialize\"}}\n").as_bytes()).expect("it is read");
    let mut answer = Vec::new();
    // The connection may end with a reset, depending on the unread bytes.
    let _ = stream.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("userAgent"), "{answer:?}");
    live.await_client("codex-shim");
    Client::named(&live, "ide").leave(&live);
    live.signal_end();
}

#[test]
fn e2e_attach_to_the_real_codex() {
    let Some(codex) = installed_or_skip("e2e_attach_to_the_real_codex") else { return };
    let says = |what| vec![Item::Text(vec![what])];
    let model = Model::start(vec![run(), says("Well."), run(), says("Better.")]);
    let (lab, home) = (Lab::new(&model), Home::new());
    let session = home.path().join("sessions/s");
    let mut command = lab.command(SHIM);
    home.adopt(&mut command).env("CODEX_SHIM_CODEX", &codex).args(["serve", "--session", "s"]);
    let mut shim = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the shim starts");
    let get = |path: &str| {
        let answer = client::get(&session, path).ok()?;
        serde_json::from_slice::<Value>(&answer.body).ok()
    };
    eventually("a server that is initialized", || {
        get("/sessions/self").filter(|document| document["child"]["codex_version"].is_string())
    });

    let mut first = Peer::start(&mut attach_tool(&home));
    let result = first.initialize();
    let server = Journal::read(&session).server.into_iter().flatten().next().expect("it has answered");
    assert_eq!(result, serde_json::from_slice::<Value>(&server).expect("it is JSON")["result"]);
    let thread = start_thread(&mut first, &lab, "read-only");
    start_turn(&mut first, &thread, "go on");
    let asked = first.wait_for_method("item/commandExecution/requestApproval");
    failed(&attach_fails(&home), 1, "the client `test-client` is attached already");
    first.answer(&asked, json!({"decision": "accept"}));
    turn_completed(&mut first, "completed");
    let (_, status) = first.finish();
    assert!(status.success());
    eventually("that it has left", || {
        get("/sessions/self").filter(|document| document["client"]["name"] == "codex-shim")
    });

    let said = json!({"text": "and again", "thread_id": thread}).to_string();
    let (status, turn) = http(&session, "POST /sessions/self/input", said.as_bytes());
    assert_eq!(status, 200, "{turn}");
    let pending = || get("/sessions/self/codex-pending-requests")?["requests"].as_array()?.first().cloned();
    let row = eventually("a request", pending);

    let mut second = Peer::start(&mut attach_tool(&home));
    assert_eq!(second.initialize(), result);
    let resumed = second.call("thread/resume", json!({"threadId": thread}));
    assert!(resumed["thread"]["turns"].to_string().contains("Well."), "{resumed:#}");
    let path = format!("/sessions/self/codex-requests/{}", text(&row["request_id"]));
    let by = if lab.release.lacks("e2e_attach_to_the_real_codex", Ability::AskingAgain) {
        let accepted = json!({"decision": "accept"}).to_string();
        let (status, told) = http(&session, &format!("POST {path}/respond"), accepted.as_bytes());
        assert_eq!(status, 200, "{told}");
        "api"
    } else {
        // codex repeats the request under the same id.
        let asked = second.wait_for_method("item/commandExecution/requestApproval");
        assert_eq!(asked["id"], row["rpc_request_id"]);
        assert_eq!(pending().expect("it is open")["request_id"], row["request_id"]);
        second.answer(&asked, json!({"decision": "accept"}));
        "client"
    };
    turn_completed(&mut second, "completed");
    let row = eventually("its confirmation", || {
        get(&path).map(|kept| kept["request"].clone()).filter(|row| !row["confirmed_at"].is_null())
    });
    assert_eq!(row["resolution_source"], by, "{row:#}");
    assert!(by == "api" || row["resolved_by"] == "test-client", "{row:#}");
    let ran = std::fs::read_to_string(lab.cwd().join("ran.txt")).expect("it ran");
    assert_eq!(ran.lines().count(), 2);
    let (_, status) = second.finish();
    assert!(status.success());
    let pid = i32::try_from(shim.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, Signal::TERM).expect("it runs");
    shim.wait().expect("it is ours");
}
