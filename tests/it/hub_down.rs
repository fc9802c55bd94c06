//! A hub that is down while its server runs, with a request open; and a server that is shutting down below its hub.

use std::process::Output;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::http;
use crate::support::codex::{Lab, installed_or_skip};
use crate::support::eventually;
use crate::support::hub::{Hub, answers_at, ask, pid_of, resume, server_pid};
use crate::support::model::Model;
use crate::support::page::Page;
use crate::support::real::{run, says};
use crate::support::release::{Ability, Release};
use crate::support::shim::{Home, SHIM};
use crate::support::websocket::Client;

/// All that a tool prints, and its status.
fn said(hub: &Hub, args: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } = hub.command(args).output().unwrap();
    (status.code().unwrap(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

fn end(hub: &mut Hub, signal: Signal) {
    kill_process(pid_of(hub.pid().into()), signal).unwrap();
    hub.process.take().unwrap().wait().unwrap();
}

#[test]
fn tools_find_a_request_that_waits_without_a_hub() {
    for signal in [Signal::KILL, Signal::TERM] {
        let mut hub = Hub::new();
        let mut client = hub.client("client");
        resume(&mut client);
        let mut server = hub.server();
        let id = ask(&mut server);
        let request_id = hub.row("pending")["request_id"].as_str().unwrap().to_owned();
        let server_pid = server_pid(&hub).unwrap();
        end(&mut hub, signal);
        let down = format!("no hub is running, but its server (pid {server_pid}) is");
        let back = "`codex-shim hub start --session h` takes the server over";
        let waits = "1 request waits in session";
        for (args, status, parts) in [
            (&["requests"][..], 0, &[&request_id[8..], waits, &down, back][..]),
            (&["requests", "h"], 0, &[&request_id[8..], waits, &down, back]),
            (&["requests", "--all"], 0, &[&request_id[8..], waits, &down, back]),
            (&["requests", "--json"], 0, &[&request_id, "\"status\":\"pending\"", back]),
            (&["show", "latest"], 0, &["pending", waits, &down, back]),
            (&["respond", "latest", "accept"], 4, &["nothing was sent", &down, back, "then answer again"]),
            (&["respond", &request_id, "decline"], 4, &[&request_id, "nothing was sent", &down, back]),
            (&["status"], 0, &[&down, back, "1 request is pending"]),
            (&["status", "--json"], 0, &["\"pending_requests\":1"]),
            (&["send", "hello"], 3, &[&down, back]),
            (&["interrupt"], 3, &[&down, back]),
            (&["send", "hello", "--session", "h"], 4, &[&down, back]),
            (&["wait", "--for", "idle", "--session", "h"], 4, &[&down, back]),
            (&["hub", "status", "--session", "h"], 4, &[&down, "1 request waits there", back]),
            (&["hub", "status", "--session", "h", "--json"], 4, &["\"pending_requests\":1"]),
            (&["hub", "stop", "--session", "h"], 1, &["1 request is open; stopping the server interrupts", "--yes"]),
        ] {
            let (code, text) = said(&hub, args);
            assert_eq!(code, status, "{signal:?} {args:?}: {text}");
            parts.iter().for_each(|part| assert!(text.contains(part), "{signal:?} {args:?}: no `{part}` in: {text}"));
        }
        let page = Page::start(&hub.home, &[]);
        let inbox = page.browser().get("/inbox").to_string();
        // The page has another CODEX_HOME.
        let home = hub.home.beside().join("codex-home").canonicalize().unwrap();
        let home = format!("its hub is down; `CODEX_HOME={} ", home.display());
        assert!(inbox.contains(&back.replacen('`', &home, 1)), "{inbox}");
        hub.start();
        eventually("the answer", || (said(&hub, &["respond", &request_id, "accept"]).0 == 0).then_some(()));
        eventually("the answer at the server", || (!answers_at(&mut server, &id).is_empty()).then_some(()));
    }
}

#[test]
fn second_server_of_a_home_is_refused() {
    let mut hub = Hub::new();
    let server = server_pid(&hub).unwrap();
    // Beside a hub with a name that runs, another one may be started.
    let beside = ["hub", "start", "--no-default-socket"];
    let (code, text) = said(&hub, &beside);
    assert_eq!(code, 0, "{text}");
    assert_eq!(said(&hub, &["hub", "stop", "--yes"]).0, 0);
    end(&mut hub, Signal::KILL);
    for args in [&["hub", "start"][..], &beside, &["hub", "restart"], &["hub"]] {
        let (code, text) = said(&hub, args);
        assert_eq!(code, 1, "{args:?}: {text}");
        for part in [
            &*format!("no hub is running, but its server (pid {server}) is"),
            "`codex-shim hub start --session h` takes the server over",
            "`codex-shim hub stop --session h` ends it",
        ] {
            assert!(text.contains(part), "{args:?}: no `{part}` in: {text}");
        }
    }
    hub.start();
    assert_eq!(server_pid(&hub), Some(server));
    // In a shell with another home.
    end(&mut hub, Signal::KILL);
    let home = hub.home.beside().join("codex-home").canonicalize().unwrap();
    let command = format!("CODEX_HOME={} codex-shim hub start --session h", home.display());
    let status = hub.command(&["status", "h"]).env("CODEX_HOME", hub.home.beside()).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains(&command), "{status}");
    assert_eq!(said(&hub, &["hub", "stop", "--session", "h"]).0, 0);
    assert_eq!(said(&hub, &beside).0, 0);
    assert_eq!(said(&hub, &["hub", "stop", "--yes"]).0, 0);
}

#[test]
fn call_before_the_first_client_is_refused() {
    let hub = Hub::new();
    let call = || http(&hub.session(), "POST /sessions/self/rpc", br#"{"method":"x","timeout_ms":1000}"#);
    let (status, answer) = call();
    let detail = &answer["detail"];
    assert_eq!((status, &detail["error_code"]), (503, &json!("not_ready")), "{answer}");
    assert!(detail["message"].as_str().unwrap().ends_with("connect a client first"), "{answer}");
    // The server knows its name from then on, also for the next hub.
    drop(hub.client("client"));
    eventually("a call at the server", || (call().1["detail"]["error_code"] != "not_ready").then_some(()));
}

#[test]
fn doctor_looks_at_the_hub_of_the_clients() {
    let mut hub = Hub::new();
    assert_eq!(said(&hub, &["hub", "start", "--no-default-socket"]).0, 0);
    // The one with a name is the last one that was started.
    hub.kill();
    hub.start();
    let _client = hub.client("of-the-other");
    let (_, text) = said(&hub, &["doctor"]);
    assert!(text.contains("none is connected") && !text.contains("of-the-other"), "{text}");
    assert_eq!(said(&hub, &["hub", "stop", "--yes"]).0, 0);
    let (_, text) = said(&hub, &["doctor"]);
    assert!(text.contains("of-the-other"), "{text}");
}

#[test]
fn nothing_waits_once_the_server_has_ended_too() {
    let mut hub = Hub::new();
    let mut client = hub.client("client");
    resume(&mut client);
    ask(&mut hub.server());
    let request_id = hub.row("pending")["request_id"].as_str().unwrap().to_owned();
    let server = server_pid(&hub).unwrap();
    end(&mut hub, Signal::KILL);
    kill_process(pid_of(server), Signal::KILL).unwrap();
    eventually("the end of the server", || {
        let (code, text) = said(&hub, &["requests"]);
        (code == 0 && text == "no requests are pending\n").then_some(())
    });
    for (args, status, part) in [
        (&["status"][..], 0, "no hub is running; `codex-shim hub start --session h` starts it again"),
        (
            &["respond", &request_id, "accept"],
            4,
            "no hub is running; `codex-shim hub start --session h` starts it again",
        ),
        (&["hub", "status", "--session", "h"], 4, "no hub is running"),
    ] {
        let (code, text) = said(&hub, args);
        assert!(code == status && text.contains(part), "{args:?}: {text}");
    }
}

const REFUSAL: &str = r#"{"code":-32600,"data":{"reason":"serverShuttingDown"},"message":"Server is draining; retry after reconnecting"}"#;

#[test]
fn server_that_refuses_turns_is_named() {
    let hub = Hub::new();
    let _client = hub.client("client");
    let mut server = hub.server();
    let number = server.connections().iter().find(|one| one["name"] == "client").unwrap()["number"].as_u64().unwrap();
    let is_draining = |hub: &Hub| hub.get("/sessions/self")["server"]["draining"] == true;
    for other in [
        r#"{"id":90,"error":{"code":-32600,"message":"Server is draining; retry after reconnecting"}}"#.to_owned(),
        r#"{"id":91,"error":{"code":-32600,"data":{"reason":"busy"},"message":"m"}}"#.to_owned(),
        format!(r#"{{"id":92,"result":{{"error":{REFUSAL}}}}}"#),
        format!(r#"{{"method":"x/note","params":{{"error":{REFUSAL}}}}}"#),
        format!(r#"{{"id":93,"error":{REFUSAL},"method":"x/asked"}}"#),
    ] {
        server.say(number, &other);
    }
    server.say(number, r#"{"method":"x/last"}"#);
    eventually("the last one", || {
        let journal = hub.journal();
        journal.server.iter().flatten().any(|line| line.windows(6).any(|part| part == b"x/last")).then_some(())
    });
    assert!(!is_draining(&hub) && said(&hub, &["hub", "status", "--session", "h"]).0 == 0);
    server.say(number, &format!(r#"{{"id":94,"error":{REFUSAL}}}"#));
    eventually("it is known", || is_draining(&hub).then_some(()));
    let what = "is shutting down: it finishes its turns and takes no new ones";
    let remedy = "`codex-shim hub restart --server --session h` replaces it at once";
    for (args, status) in
        [(&["hub", "status", "--session", "h"][..], 1), (&["hub", "start", "--session", "h"], 1), (&["doctor"], 1)]
    {
        let (code, text) = said(&hub, args);
        assert!(code == status && text.contains(what) && text.contains(remedy), "{args:?}: {text}");
    }
    // The next server takes turns again.
    kill_process(pid_of(server.pid()), Signal::KILL).unwrap();
    eventually("another server", || {
        let (code, text) = said(&hub, &["hub", "status", "--session", "h"]);
        (code == 0 && text.starts_with("running\n")).then_some(())
    });
    assert_eq!(hub.get("/sessions/self")["server"]["draining"], false);
}

#[test]
fn e2e_server_after_sigterm_is_named_until_it_ends() {
    let test = "e2e_server_after_sigterm_is_named_until_it_ends";
    let Some(codex) = installed_or_skip(test) else { return };
    if [Ability::SharedServer, Ability::Draining].iter().any(|ability| Release::under_test().lacks(test, *ability)) {
        return;
    }
    let model = Model::start(vec![run(), says()]);
    let (lab, home) = (Lab::new(&model), Home::new());
    let shim = |args: &[&str]| {
        let mut command = lab.command(SHIM);
        let output = home.adopt(&mut command).env("CODEX_SHIM_CODEX", &codex).args(args).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let status = || -> Value { serde_json::from_str(&shim(&["hub", "status", "--json"]).1).unwrap() };
    assert_eq!(shim(&["hub", "start"]).0, 0);
    let mut client = Client::connect(status()["sockets"][0].as_str().unwrap().as_ref());
    client.initialize("client");
    let options = json!({"cwd": lab.cwd(), "approvalPolicy": "on-request", "sandbox": "read-only"});
    let thread = client.call("thread/start", options.clone())["thread"]["id"].clone();
    let input = json!([{"type": "text", "text": "go", "text_elements": []}]);
    client.call("turn/start", json!({"threadId": thread, "input": input}));
    let asked = client.wait_for("the approval", |message| message["method"].as_str().is_some_and(is_approval));
    let server = status()["server"]["pid"].as_u64().unwrap();
    kill_process(pid_of(server), Signal::TERM).unwrap();
    eventually("the refusal", || {
        let id = client.request("thread/start", options.clone());
        let answer = client.wait_for("the answer", |message| message["method"].is_null() && message["id"] == id);
        answer.get("error").is_some().then_some(())
    });
    let text = eventually("the server is named", || {
        let (code, text) = shim(&["hub", "status"]);
        (code == 1).then_some(text)
    });
    assert!(text.contains(&format!("(pid {server}) is shutting down")), "{text}");
    assert!(text.contains("`codex-shim hub restart --server` replaces it at once"), "{text}");
    assert_eq!(shim(&["hub", "start"]).0, 1);
    // It ends with its last turn, and the hub starts another one.
    client.answer(&asked["id"], json!({"decision": "cancel"}));
    eventually("another server", || {
        let (code, _) = shim(&["hub", "status"]);
        (code == 0 && status()["server"]["pid"] != server).then_some(())
    });
    drop(client);
    assert_eq!(shim(&["hub", "stop", "--yes"]).0, 0);
}

fn is_approval(method: &str) -> bool {
    method == "item/commandExecution/requestApproval"
}
