//! A server without a client: initialized by the shim, driven through the control socket, stopped, started, and
//! restarted when it dies.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use codex_shim::testing::control::client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::{lines_of, next};
use crate::support::codex::{Lab, installed_or_skip};
use crate::support::eventually;
use crate::support::journal::Journal;
use crate::support::model::{Item, Model};
use crate::support::shim::{Home, SHIM, put_program};

/// Answers every request with the request's own line.
const ECHO: &str = r#"while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
  [ -n "$id" ] && printf '{"id":"%s","result":{"userAgent":"x/0.169.0 (x)","asked":%s}}\n' "$id" "$line"
done"#;

struct Served {
    home: Home,
    session: PathBuf,
    shim: Child,
}

impl Served {
    fn start() -> Served {
        let served = Served::start_with(Home::new(), ECHO);
        served.await_ready();
        served
    }

    fn start_with(home: Home, script: &str) -> Served {
        let shim = home.shim(&["serve", "--session", "s", "--", "sh", "-c", script]).spawn().expect("the shim starts");
        Served { session: home.path().join("sessions/s"), home, shim }
    }

    fn document(&self) -> Option<Value> {
        serde_json::from_slice(&client::get(&self.session, "/sessions/self").ok()?.body).ok()
    }

    fn await_ready(&self) -> Value {
        eventually("a server that is initialized", || {
            self.document()
                .filter(|document| document["child"]["codex_version"].is_string() && document["state"] == "idle")
        })
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = client::post(&self.session, &format!("/sessions/self/{path}"), body.to_string());
        let answer = answer.expect("it answers");
        (answer.status.as_u16(), serde_json::from_slice(&answer.body).expect("it is JSON"))
    }

    /// Stops it as a service manager does; it must have written nothing to stdout.
    fn end(mut self) -> Journal {
        let pid = i32::try_from(self.shim.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::TERM).expect("it runs");
        let mut out = String::new();
        self.shim.stdout.take().expect("stdout is piped").read_to_string(&mut out).expect("it is text");
        assert_eq!(out, "");
        self.shim.wait().expect("it is ours");
        Journal::read(&self.home.path().join("sessions/s"))
    }
}

#[test]
fn serve_initializes_the_server_and_takes_calls() {
    let served = Served::start();
    assert_eq!(served.await_ready()["client"]["name"], "codex-shim");
    let (status, answer) = served.post("rpc", &json!({"method": "a/b", "params": {"x": [1]}}));
    assert_eq!((status, &answer["result"]["asked"]["params"]), (200, &json!({"x": [1]})));
    let journal = served.end();
    let methods: Vec<Value> = journal
        .own
        .iter()
        .filter_map(|(_, _, line)| serde_json::from_slice::<Value>(line.as_deref()?).ok())
        .map(|line| line["method"].clone())
        .collect();
    assert_eq!(methods, ["initialize", "initialized", "a/b"]);
}

#[test]
fn serve_says_which_name_it_got_and_how_to_reach_it() {
    let home = Home::new();
    let start = || {
        let mut shim = home.shim(&["serve", "--session", "bot", "--", "sh", "-c", ECHO]).spawn().expect("it starts");
        let stderr = lines_of(shim.stderr.take().expect("stderr is piped"));
        (shim, stderr)
    };
    let ready = |name: &str| {
        eventually("its socket", || client::get(&home.path().join("sessions").join(name), "/healthz").ok());
    };
    let (mut first, said) = start();
    let line = next(&said, "the first line");
    assert!(line.starts_with("codex-shim: serving session bot; ") && line.contains("tui bot"), "{line}");
    assert!(line.contains("codex-shim send --session bot "), "{line}");
    ready("bot");
    let (mut second, said) = start();
    let line = next(&said, "the first line");
    assert!(line.contains("session bot is already in use") && line.contains("this one is session bot.2"), "{line}");
    let line = next(&said, "the second line");
    assert!(line.starts_with("codex-shim: serving session bot.2; "), "{line}");
    ready("bot.2");
    let status = home.shim(&["status", "bot.2", "--json"]).output().expect("it runs");
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    // Neither line is a fault.
    assert_eq!((&status["session_id"], &status["faults"]), (&json!("bot.2"), &json!([])));
    for shim in [&mut first, &mut second] {
        shim.kill().expect("it runs");
        shim.wait().expect("it is ours");
    }
}

#[test]
fn serve_stops_and_starts_the_server() {
    let served = Served::start();
    let before = served.await_ready();
    assert_eq!(served.post("start", &json!({})).0, 200);
    assert_eq!(served.document().expect("it answers")["generation"], before["generation"], "it ran already");
    assert_eq!(served.post("stop", &json!({})), (200, json!({"ok": true})));
    assert_eq!(served.document().expect("it answers")["state"], "stopped");
    let detail = &served.post("rpc", &json!({"method": "x"})).1["detail"];
    assert_eq!(detail["error_code"], "not_ready");
    assert!(detail["message"].as_str().is_some_and(|message| message.contains("/sessions/self/start")), "{detail}");
    let status = served.home.shim(&["status", "s"]).output().expect("it runs");
    let status = String::from_utf8(status.stdout).expect("UTF-8");
    assert!(status.starts_with("stopped: the server was stopped; "), "{status}");
    assert_eq!(served.post("context", &json!({"cmd": "make"})), (200, json!({"waiting": 1})));
    assert_eq!(served.post("start", &json!({})), (200, json!({"ok": true})));
    let after = served.await_ready();
    assert_ne!(after["generation"], before["generation"]);
    assert_eq!(after["context_waiting"], 1, "what was pushed meanwhile is not forgotten");
    assert_eq!(served.post("rpc", &json!({"method": "x"})).0, 200);
    let generations: Vec<String> = served.end().headers.into_iter().map(|header| header.generation).collect();
    assert_eq!(generations, [before["generation"].clone(), after["generation"].clone()]);
}

#[test]
fn serve_starts_a_server_again_that_died() {
    let served = Served::start();
    let before = served.await_ready();
    let pid = before["child"]["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    kill_process(pid.expect("a process id"), Signal::KILL).expect("it runs");
    eventually("another run", || served.document().filter(|document| document["generation"] != before["generation"]));
    served.await_ready();
    assert_eq!(served.post("rpc", &json!({"method": "x"})).0, 200);
    let ends = served.end().events.into_iter().filter(|(name, _)| name == "generation_ended").count();
    assert_eq!(ends, 2);
}

#[test]
fn serve_starts_a_server_at_once_where_it_is_told_to_while_it_would_wait() {
    let home = Home::new();
    let gate = home.beside().join("gate");
    let served = Served::start_with(home, &format!("[ -e {} ] || exit 1\n{ECHO}", gate.display()));
    // By then the backoff is several seconds.
    let resting = eventually("a server that has died three times", || {
        let document = served.document()?;
        let faults = document["faults"].to_string();
        // The fault of each end replaces that of the one before.
        let waits = faults.contains("it restarts in 4s") && faults.matches("ended with exit status 1").count() == 1;
        (waits && document["state"] == "stopped").then_some(document)
    });
    std::fs::write(&gate, "").expect("a file");
    assert_eq!(served.post("start", &json!({})), (200, json!({"ok": true})));
    let started = served.document().expect("it answers");
    assert_ne!(started["generation"], resting["generation"], "it is started once that is answered");
    served.await_ready();
    served.end();
}

#[test]
fn server_that_a_model_can_change_is_not_started_again() {
    let home = Home::new();
    let program = home.beside().join("codex");
    put_program(&program, format!("#!/bin/sh\n{ECHO}\n").as_bytes());
    let mut command = home.shim(&["serve", "--session", "s", "--"]);
    let shim = command.arg(&program).spawn().expect("the shim starts");
    let served = Served { session: home.path().join("sessions/s"), home, shim };
    let before = served.await_ready();
    let params = json!({"threadId": "t", "cwd": served.home.beside(), "sandboxPolicy": {"type": "workspaceWrite"}});
    assert_eq!(served.post("rpc", &json!({"method": "thread/settings/update", "params": params})).0, 200);
    let pid = before["child"]["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    kill_process(pid.expect("a process id"), Signal::KILL).expect("it runs");
    let resting = eventually("why it rests", || {
        let document = served.document()?;
        let faults = document["faults"].to_string();
        // The fault may be known before the end of the server is.
        let rests = document["state"] == "stopped" && faults.contains("codex can be changed by a model");
        rests.then_some(document)
    });
    assert_eq!(resting["generation"], before["generation"]);
    assert_ne!(served.post("start", &json!({})).0, 200);
    served.end();
}

#[test]
fn a_relay_does_not_stop_its_clients_server() {
    let home = Home::new();
    let mut relay = home.shim(&["run", "--session", "s", "--", "cat"]).spawn().expect("the shim starts");
    let session = home.path().join("sessions/s");
    for path in ["/sessions/self/stop", "/sessions/self/start"] {
        let answer = eventually("an answer", || client::post(&session, path, String::new()).ok());
        let answer: Value = serde_json::from_slice(&answer.body).expect("it is JSON");
        assert_eq!(answer["detail"]["error_code"], "not_served");
    }
    drop(relay.stdin.take());
    assert!(relay.wait().expect("it is ours").success());
}

#[test]
fn e2e_serve_talks_to_the_model() {
    let Some(codex) = installed_or_skip("e2e_serve_talks_to_the_model") else { return };
    let model = Model::start(vec![vec![Item::Text(vec!["Hello."])]]);
    let lab = Lab::new(&model);
    let home = Home::new();
    let mut command = lab.command(SHIM);
    home.adopt(&mut command).env("CODEX_SHIM_CODEX", &codex).args(["serve", "--session", "s"]);
    let shim = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the shim starts");
    let served = Served { session: home.path().join("sessions/s"), home, shim };
    served.await_ready();
    let params = json!({"cwd": lab.cwd()});
    let (status, started) = served.post("rpc", &json!({"method": "thread/start", "params": params}));
    assert_eq!(status, 200, "{started}");
    let thread = &started["result"]["thread"]["id"];
    assert_eq!(served.post("context", &json!({"cmd": "make", "exit_code": 2})).0, 200);
    let (status, turn) = served.post("input", &json!({"text": "hi", "thread_id": thread}));
    assert_eq!((status, &turn["steered"]), (200, &json!(false)), "{turn}");
    let asked = eventually("the model is asked", || model.requests().first().cloned());
    assert!(asked["input"].to_string().contains("CODEX_META"), "{asked}");
    let transcript = format!("/sessions/self/threads/{}/transcript", thread.as_str().expect("an id"));
    let told = eventually("codex repeats the message", || {
        let answer = client::get(&served.session, &transcript).ok()?;
        let told: Value = serde_json::from_slice(&answer.body).ok()?;
        told["entries"].as_array().is_some_and(|entries| !entries.is_empty()).then_some(told)
    });
    assert_eq!((&told["entries"][0]["role"], &told["entries"][0]["text"]), (&json!("user"), &json!("hi")), "{told}");
    let events = client::get(&served.session, "/sessions/self/codex-events?limit=500").expect("it answers");
    let events = String::from_utf8_lossy(&events.body).into_owned();
    assert!(events.contains("\"turn/start\"") && !events.contains("CODEX_META"), "{events}");
    served.end();
}

#[test]
fn e2e_old_thread_goes_on_after_a_start() {
    let Some(codex) = installed_or_skip("e2e_old_thread_goes_on_after_a_start") else { return };
    let model = Model::start(["One.", "Two.", "Three."].map(|text| vec![Item::Text(vec![text])]).to_vec());
    let lab = Lab::new(&model);
    // A model that could write to the folders of this test would keep the server from being started again.
    lab.only_reads();
    let home = Home::new();
    let mut command = lab.command(SHIM);
    home.adopt(&mut command).env("CODEX_SHIM_CODEX", &codex).args(["serve", "--session", "s"]);
    let shim = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the shim starts");
    let served = Served { session: home.path().join("sessions/s"), home, shim };
    served.await_ready();
    let params = json!({"cwd": lab.cwd()});
    let (status, started) = served.post("rpc", &json!({"method": "thread/start", "params": params}));
    assert_eq!(status, 200, "{started}");
    let thread = &started["result"]["thread"]["id"];
    let says = |words: &str, turns: usize| {
        let (status, turn) = served.post("input", &json!({"text": words, "thread_id": thread}));
        assert_eq!((status, &turn["thread_id"]), (200, thread), "{turn}");
        eventually("the end of the turn", || {
            let events = client::get(&served.session, "/sessions/self/codex-events?limit=500").ok()?;
            let events: Value = serde_json::from_slice(&events.body).ok()?;
            let ends = events["events"].as_array()?.iter().filter(|event| event["event_type"] == "turn/completed");
            (ends.count() == turns).then_some(())
        });
    };
    says("first", 1);
    // Nothing waits for the server in between.
    for call in ["stop", "start"] {
        assert_eq!(served.post(call, &json!({})), (200, json!({"ok": true})), "{call}");
    }
    says("second", 2);
    let pid = served.await_ready()["child"]["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let generation = served.document().expect("it answers")["generation"].clone();
    kill_process(pid.expect("a process id"), Signal::KILL).expect("it runs");
    eventually("another run", || served.document().filter(|document| document["generation"] != generation));
    says("third", 3);
    let resumes = |(_, _, line): &(_, _, Option<Vec<u8>>)| {
        line.as_deref().is_some_and(|line| String::from_utf8_lossy(line).contains("thread/resume"))
    };
    assert_eq!(served.end().own.iter().filter(|own| resumes(own)).count(), 2, "once for each run");
}

/// Runs a tool in the session's home, beside the session.
fn tool(served: &Served, arguments: &[&str]) -> std::process::Output {
    let mut child = served.home.shim(arguments).stdin(Stdio::null()).spawn().expect("the tool runs");
    eventually("the tool has not ended", || child.try_wait().expect("it is our child"));
    child.wait_with_output().expect("the tool ends")
}

#[test]
fn e2e_send_waits_for_the_end_of_its_turn() {
    let Some(codex) = installed_or_skip("e2e_send_waits_for_the_end_of_its_turn") else { return };
    let replies = ["One.", "Two.", "Three."].map(|text| vec![Item::Text(vec![text])]);
    let model = Model::start(replies.to_vec());
    let lab = Lab::new(&model);
    let home = Home::new();
    let mut command = lab.command(SHIM);
    home.adopt(&mut command).env("CODEX_SHIM_CODEX", &codex).args(["serve", "--session", "s"]);
    let shim = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the shim starts");
    let served = Served { session: home.path().join("sessions/s"), home, shim };
    served.await_ready();
    let nowhere = tool(&served, &["send", "--session", "s", "hi"]);
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("--new"), "{nowhere:?}");
    let first = tool(&served, &["send", "--session", "s", "--new", "--wait", "--timeout", "60s", "hi"]);
    assert_eq!((first.status.code(), &*first.stdout), (Some(0), &b"One.\n"[..]), "{first:?}");
    // A caller that waits for idle after an accepted message returns after its turn.
    let second = tool(&served, &["send", "--session", "s", "again", "--json"]);
    let turn: Value = serde_json::from_slice(&second.stdout).expect("it is JSON");
    let idle = tool(&served, &["wait", "--session", "s", "--for", "idle", "--timeout", "60s"]);
    assert_eq!(idle.status.code(), Some(0), "{idle:?}");
    let thread_id = turn["thread_id"].as_str().expect("a thread");
    let said = tool(&served, &["transcript", "--session", "s", thread_id]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("Two."), "{said:?}");
    // A prefix of its id and `latest` name a thread; the error for an unknown name lists the threads.
    for name in [&thread_id[..30], "latest"] {
        let sent = tool(
            &served,
            &["send", "--session", "s", "--thread", name, "--wait", "--timeout", "60s", "--json", "more"],
        );
        let end: Value = serde_json::from_slice(&sent.stdout).expect("it is JSON");
        assert_eq!((&end["thread_id"], &end["status"]), (&turn["thread_id"], &json!("completed")), "{end}");
    }
    let unknown = tool(&served, &["send", "--session", "s", "--thread", "nope", "more"]);
    let told = String::from_utf8_lossy(&unknown.stderr);
    assert!(told.contains("unknown thread `nope`") && told.contains(thread_id), "{told}");
    assert_eq!(unknown.status.code(), Some(3), "{unknown:?}");
    served.end();
}
