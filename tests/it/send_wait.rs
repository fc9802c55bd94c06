//! `send --wait`: it ends with the turn that its message started or joined, whatever other turns and relays do meanwhile.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::request_tools::{begin, end_turn, finish, in_turn, sent};
use crate::support::both_ends::Live;
use crate::support::hub::{self, Hub};
use crate::support::requests::{turn_completed, turn_started};
use crate::support::{eventually, stop};

/// Sends a message and waits; the server takes it into this turn.
fn say(live: &mut Live, thread: &str, turn: &str, more: &[&str]) -> Child {
    let saying = begin(live, &[&["send", "go", "--thread", thread, "--wait"], more].concat());
    let call = sent(live);
    assert_eq!((&call["method"], &call["params"]["threadId"]), (&json!("turn/start"), &json!(thread)));
    live.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": turn } } }).to_string());
    saying
}

pub fn start(live: &mut Live, thread: &str, turn: &str) {
    live.say_plainly(&turn_started(thread, turn));
}

/// The model says something in a turn.
pub fn speak(live: &mut Live, thread: &str, turn: &str) {
    live.say_plainly(&said(thread, turn));
}

fn said(thread: &str, turn: &str) -> String {
    let item = json!({ "type": "agentMessage", "id": format!("m{turn}"), "text": format!("said in {turn}") });
    json!({ "method": "item/completed", "params": { "threadId": thread, "turnId": turn, "item": item } }).to_string()
}

pub fn fail(live: &mut Live, thread: &str, turn: &str) {
    live.say_plainly(&failed(thread, turn));
}

fn failed(thread: &str, turn: &str) -> String {
    let end = json!({ "id": turn, "status": "failed", "error": { "message": "no quota" } });
    json!({ "method": "turn/completed", "params": { "threadId": thread, "turn": end } }).to_string()
}

pub fn check(output: &Output, exit: i32, stdout: &str, stderr: &str) {
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!((output.status.code(), said), (Some(exit), [stdout.to_owned(), stderr.to_owned()]));
}

/// Has the caller report a request of the turn, which shows that it waits for the end of the turn.
pub fn waits(live: &mut Live, saying: &mut Child, turn: &str) {
    let params = json!({ "threadId": "t", "turnId": turn, "itemId": "i", "command": "make", "cwd": "/w" });
    live.say_plainly(
        &json!({ "id": 9, "method": "item/commandExecution/requestApproval", "params": params }).to_string(),
    );
    reports(saying, "waiting for an answer to: run make");
}

/// Reads the caller's next line on stderr.
fn reports(saying: &mut Child, expect: &str) {
    let mut line = String::new();
    let stderr = saying.stderr.as_mut().expect("it is piped");
    BufReader::with_capacity(1, stderr).read_line(&mut line).expect("it is text");
    assert!(line.contains(expect), "{line}");
}

pub const CLOSED: &str = "codex-shim: the turn failed: app_server_stream_closed\n";

#[test]
fn send_wait_follows_the_turn_it_joined() {
    let mut live = in_turn();
    start(&mut live, "other", "x1");
    let saying = say(&mut live, "t", "u1", &["--json"]);
    // A turn of another thread ends first.
    speak(&mut live, "other", "x1");
    fail(&mut live, "other", "x1");
    speak(&mut live, "t", "u1");
    end_turn(&mut live);
    let output = finish(saying);
    let end: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let told = [&end["steered"], &end["turn_id"], &end["status"], &end["message"]];
    assert_eq!(told, [&json!(true), &json!("u1"), &json!("completed"), &json!("said in u1")], "{end}");
    live.end_quietly();
}

#[test]
fn send_wait_of_two_callers_ends_apart() {
    let mut live = in_turn();
    end_turn(&mut live);
    start(&mut live, "other", "x1");
    live.say_plainly(&turn_completed("other", "x1"));
    let first = say(&mut live, "t", "u2", &[]);
    start(&mut live, "t", "u2");
    let second = say(&mut live, "other", "x2", &[]);
    start(&mut live, "other", "x2");
    // A third one joins the turn of the first.
    let third = say(&mut live, "t", "u2", &[]);
    speak(&mut live, "other", "x2");
    fail(&mut live, "other", "x2");
    check(&finish(second), 1, "said in x2\n", "codex-shim: the turn failed: no quota\n");
    speak(&mut live, "t", "u2");
    live.say_plainly(&turn_completed("t", "u2"));
    check(&finish(first), 0, "said in u2\n", "");
    check(&finish(third), 0, "said in u2\n", "");
    live.end_quietly();
}

#[test]
fn send_wait_fails_if_its_relay_is_killed() {
    let mut live = in_turn();
    end_turn(&mut live);
    let mut saying = say(&mut live, "t", "u2", &[]);
    start(&mut live, "t", "u2");
    speak(&mut live, "t", "u2");
    waits(&mut live, &mut saying, "u2");
    let _home = live.kill();
    check(&finish(saying), 1, "said in u2\n", CLOSED);
}

#[test]
fn send_wait_is_told_of_its_turn_by_the_next_relay() {
    let mut live = in_turn();
    end_turn(&mut live);
    let mut saying = say(&mut live, "t", "u2", &[]);
    start(&mut live, "t", "u2");
    waits(&mut live, &mut saying, "u2");
    let mut live = Live::start_in(live.kill()).initialize();
    // The same thread goes on in another turn, which is not the one.
    start(&mut live, "t", "u3");
    check(&finish(saying), 1, "", CLOSED);
    live.kill();
}

#[test]
fn send_wait_fails_if_the_server_never_begins_its_turn() {
    let status = |kind: &str| {
        let params = json!({ "threadId": "t", "status": { "type": kind } });
        json!({ "method": "thread/status/changed", "params": params }).to_string()
    };
    let error = |retries: bool, message: &str| {
        let params = json!({ "threadId": "t", "willRetry": retries, "error": { "message": message } });
        json!({ "method": "error", "params": params }).to_string()
    };
    let failed = "codex-shim: the turn failed: the server has not begun it";
    // The order of the server's messages, where `=` is its response to the message, and what the caller is told.
    let cases: [(&[&str], &str); 3] = [
        (&["=", "active", "idle"], ""),
        (&["=", "active", "!no such model", "notLoaded"], ": no such model"),
        (&["=", "!no such provider", "systemError"], ": no such provider"),
    ];
    let mut live = in_turn();
    end_turn(&mut live);
    for (number, (steps, why)) in cases.into_iter().enumerate() {
        let turn = format!("v{number}");
        let saying = begin(&live, &["send", "go", "--thread", "t", "--wait"]);
        let call = sent(&live);
        for step in steps {
            match step.strip_prefix('!') {
                Some(message) => live.say_plainly(&error(false, message)),
                None if *step == "=" => {
                    live.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": turn } } }).to_string());
                }
                None => live.say_plainly(&status(step)),
            }
        }
        check(&finish(saying), 1, "", &format!("{failed}{why}\n"));
        assert_eq!(live.get("/sessions/self")["state"], "idle", "{steps:?}");
    }
    let events = live.get("/sessions/self/codex-events?limit=500");
    let of_type = |event: &&Value| event["event_type"] == "turn_not_started";
    assert_eq!(events["events"].as_array().expect("events").iter().filter(of_type).count(), 3, "{events:#}");
    // A status of before, and an error that the server mends.
    let saying = say(&mut live, "t", "u2", &[]);
    live.say_plainly(&status("idle"));
    live.say_plainly(&error(true, "reconnecting"));
    live.say_plainly(&status("active"));
    start(&mut live, "t", "u2");
    speak(&mut live, "t", "u2");
    live.say_plainly(&status("idle"));
    live.say_plainly(&turn_completed("t", "u2"));
    check(&finish(saying), 0, "said in u2\n", "");
    live.end_quietly();
}

#[test]
fn send_wait_fails_if_its_turn_never_began() {
    let mut live = in_turn();
    end_turn(&mut live);
    let mut saying = say(&mut live, "t", "u2", &[]);
    waits(&mut live, &mut saying, "u2");
    let _home = live.kill();
    check(&finish(saying), 1, "", CLOSED);
}

/// The server of a hub goes on when the hub is killed, and so does a turn. That of another thread may have the same id.
#[test]
fn send_wait_in_a_hub_follows_its_thread_into_the_next_hub() {
    let open = |hub: &Hub| {
        let mut client = hub.client("tui");
        hub::resume(&mut client);
        client.call("thread/resume", json!({ "threadId": "other" }));
        client
    };
    let has_ended = |hub: &Hub, outcome: &str| {
        eventually("the end of a turn", || {
            let rows = hub.get("/sessions/self/turn-events?limit=500");
            rows["events"].as_array()?.iter().any(|row| row["event_type"] == outcome).then_some(())
        });
    };
    let mut hub = Hub::new();
    let (mut server, mut client) = (hub.server(), open(&hub));
    hub.own_connection(&mut server);
    // A first turn, so that the thread has a name in the history.
    client.call("turn/start", json!({ "threadId": "t", "input": [] }));
    server.notify("t", &said("t", "turn-1"));
    server.notify("t", &turn_completed("t", "turn-1"));
    has_ended(&hub, "completed");
    let mut command = hub.command(&["send", "go", "--thread", "t", "--wait", "--session", "h"]);
    let mut saying = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool runs");
    server.wait_for("\"go\"");
    hub::ask(&mut server);
    reports(&mut saying, "waiting for an answer to: ");
    stop(Pid::from_child(&saying));
    drop(client);
    hub.kill();
    hub.start();
    let _client = open(&hub);
    server.notify("t", &failed("other", "turn-2"));
    has_ended(&hub, "failed");
    server.notify("t", &said("t", "turn-2"));
    kill_process(Pid::from_child(&saying), Signal::CONT).expect("it is there");
    server.notify("t", &turn_completed("t", "turn-2"));
    check(&finish(saying), 0, "said in turn-2\n", "");
}
