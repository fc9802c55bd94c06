//! `fleet send --wait`: the end of a turn on a host, from the stored events.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Output, Stdio};

use serde_json::{Value, json};

use crate::request_tools::{end_turn, finish, sent};
use crate::send_wait::{CLOSED, check, fail, speak, start, waits};
use crate::support::both_ends::Live;
use crate::support::eventually;
use crate::support::fleet::{Agent, Fleet};
use crate::support::requests::turn_completed;

/// A session of a host whose last turn has ended.
fn host(fleet: &Fleet, level: &str) -> (Live, Agent) {
    let mut live = Live::start_in(fleet.host(7, level)).in_turn();
    end_turn(&mut live);
    let agent = Agent::start(&live.home);
    eventually("the session", || {
        let rows = fleet.ann.document(&["sessions", "--json"]);
        (rows["sessions"][0]["session_id"] == "s").then_some(())
    });
    (live, agent)
}

/// Sends a message and waits; the server takes it into this turn.
fn say(fleet: &Fleet, live: &mut Live, turn: &str, more: &[&str]) -> Child {
    let args = [&["fleet", "send", "build-7/s", "go", "--thread", "t", "--wait"], more].concat();
    let saying = fleet.ann.0.shim(&args).stdin(Stdio::null()).spawn().expect("the tool runs");
    let call = sent(live);
    assert_eq!((&call["method"], &call["params"]["threadId"]), (&json!("turn/start"), &json!("t")));
    live.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": turn } } }).to_string());
    start(live, "t", turn);
    saying
}

#[test]
fn fleet_send_wait_prints_the_end_of_the_turn() {
    let Some(fleet) = Fleet::start("fleet_send_wait_prints_the_end_of_the_turn") else { return };
    let (mut live, agent) = host(&fleet, "full");
    let mut saying = say(&fleet, &mut live, "u2", &[]);
    let params = json!({ "threadId": "t", "turnId": "u2", "itemId": "i", "command": "make", "cwd": "/w" });
    live.say_plainly(
        &json!({ "id": 9, "method": "item/commandExecution/requestApproval", "params": params }).to_string(),
    );
    let mut line = String::new();
    let stderr = saying.stderr.as_mut().expect("it is piped");
    BufReader::with_capacity(1, stderr).read_line(&mut line).expect("it is text");
    let asks = "waiting for an answer to: run make; answer with `codex-shim fleet respond build-7/";
    assert!(line.contains(asks), "{line}");
    speak(&mut live, "t", "u2");
    live.say_plainly(&turn_completed("t", "u2"));
    check(&finish(saying), 0, "said in u2\n", "");

    let saying = say(&fleet, &mut live, "u3", &["--json"]);
    fail(&mut live, "t", "u3");
    let output = finish(saying);
    let end: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let told = [&end["host"], &end["turn_id"], &end["status"], &end["error"]];
    assert_eq!(told, [&json!("build-7"), &json!("u3"), &json!("failed"), &json!("no quota")], "{end}");
    assert_eq!(output.status.code(), Some(1));

    let saying = say(&fleet, &mut live, "u4", &[]);
    fail_at_length(&mut live, "u4");
    unknown(&finish(saying), "");
    agent.ends();
    live.kill();
}

/// The server ends a turn with an error that the history cuts, and its status comes behind that.
fn fail_at_length(live: &mut Live, turn: &str) {
    let error = "no quota ".repeat(400);
    let end = format!(r#"{{"id":"{turn}","error":{{"message":"{error}"}},"status":"failed"}}"#);
    live.say_plainly(&format!(r#"{{"method":"turn/completed","params":{{"threadId":"t","turn":{end}}}}}"#));
}

fn unknown(output: &Output, before: &str) {
    let told = format!(
        "{before}codex-shim: the message was sent; host build-7: the turn has ended, and its event was cut before it says how; \
         see `codex-shim transcript t` on that host\n"
    );
    check(output, 1, "", &told);
}

#[test]
fn fleet_send_wait_ends_without_an_end_of_the_turn() {
    let Some(fleet) = Fleet::start("fleet_send_wait_ends_without_an_end_of_the_turn") else { return };
    let (mut live, _agent) = host(&fleet, "full");
    let late = say(&fleet, &mut live, "u2", &["--timeout", "1ms"]);
    let output = finish(late);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("timed out; the turn is still running: `codex-shim fleet tail build-7 -f`"), "{told}");
    assert_eq!(output.status.code(), Some(1));
    live.say_plainly(&turn_completed("t", "u2"));

    let mut saying = say(&fleet, &mut live, "u3", &[]);
    speak(&mut live, "t", "u3");
    waits(&mut live, &mut saying, "u3");
    let _home = live.kill();
    check(&finish(saying), 1, "said in u3\n", CLOSED);
}

#[test]
fn fleet_send_wait_says_what_stays_on_the_host() {
    let Some(fleet) = Fleet::start("fleet_send_wait_says_what_stays_on_the_host") else { return };
    let (mut live, _agent) = host(&fleet, "summary");
    let saying = say(&fleet, &mut live, "u2", &[]);
    speak(&mut live, "t", "u2");
    live.say_plainly(&turn_completed("t", "u2"));
    let told =
        "codex-shim: turn completed; the messages of the turn stay on host build-7: `codex-shim transcript t` there\n";
    check(&finish(saying), 0, "", told);

    let saying = say(&fleet, &mut live, "u3", &[]);
    fail_at_length(&mut live, "u3");
    let stays =
        "codex-shim: turn ended; the messages of the turn stay on host build-7: `codex-shim transcript t` there\n";
    unknown(&finish(saying), stays);

    // At this level it is not known whether the session is a hub.
    let mut saying = say(&fleet, &mut live, "u4", &[]);
    waits(&mut live, &mut saying, "u4");
    let _home = live.kill();
    let output = finish(saying);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("the message was sent, and its turn may still run; host build-7: session s is not running"),
        "{told}"
    );
    assert!(told.contains("start the hub again") && output.status.code() == Some(4), "{told}");
}
