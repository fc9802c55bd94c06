//! A hub that becomes another program goes on with all connections: no client and no server notices, and nothing is missing in what
//! they get, in the journal or in the ledger.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::http;
use crate::support::eventually;
use crate::support::hub::{Hub, answers_at, ask, is_asked, pid_of, recorded, resume};
use crate::support::requests::{decision, respond_path};
use crate::support::shim::{Home, SHIM, out_of_reach, put_program};
use crate::support::websocket::Client;

fn restart(hub: &Hub) -> Output {
    hub.tool(&["hub", "restart"])
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Restarts the hub; it has to go on with all clients.
fn handed_over(hub: &Hub) {
    let output = restart(hub);
    assert!(said(&output).contains("goes on, with all clients"), "{}", said(&output));
}

/// The number of a delta; `None` for any other message.
fn delta_in(text: &str) -> Option<u64> {
    let message: Value = serde_json::from_str(text).expect("a message is JSON");
    message["params"]["delta"].as_str()?.parse().ok()
}

/// The deltas of a client up to the last one, whose number is known once it has been sent.
fn deltas_of(client: &mut Client, last: &AtomicU64) -> Vec<u64> {
    let mut deltas = Vec::new();
    while deltas.last().is_none_or(|delta| *delta < last.load(Ordering::SeqCst)) {
        deltas.extend(delta_in(&client.receive().expect("the connection lasts")));
    }
    deltas
}

/// A server that sends without a pause, three clients, and a hub that becomes another program again and again.
#[test]
fn nothing_is_missing_after_handovers_under_load() {
    let hub = Hub::new();
    let mut server = hub.server();
    let mut clients = [hub.client("one"), hub.client("two"), hub.client("three")];
    clients.iter_mut().for_each(resume);
    hub.own_connection(&mut server);
    let before = server.connections();
    let (is_over, last) = (AtomicBool::new(false), AtomicU64::new(u64::MAX));
    let got: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let readers: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| deltas_of(client, &last))).collect();
        let sender = scope.spawn(|| {
            let mut server = hub.server();
            let mut number = 0;
            while !is_over.load(Ordering::SeqCst) {
                server.notify("t", &delta(number));
                number += 1;
            }
            last.store(number, Ordering::SeqCst);
            server.notify("t", &delta(number));
            number
        });
        (0..3).for_each(|_| handed_over(&hub));
        is_over.store(true, Ordering::SeqCst);
        let sent = sender.join().unwrap();
        let got: Vec<Vec<u64>> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        got.iter().for_each(|got| assert!(got.iter().copied().eq(0..=sent), "{} of {sent}", got.len()));
        got
    });
    assert_eq!(server.connections(), before);
    let journal = hub.journal();
    assert_eq!(recorded(&journal, "/delta"), 3 * got[0].len());
    assert!(journal.gaps.is_empty());
}

fn delta(number: u64) -> String {
    let params = json!({"threadId": "t", "itemId": "item", "delta": number.to_string()});
    json!({"method": "item/agentMessage/delta", "params": params}).to_string()
}

/// Calls, requests and subscriptions from before go on after.
#[test]
fn state_of_before_counts_after_a_handover() {
    let hub = Hub::new();
    let mut server = hub.server();
    let mut client = hub.client("tui");
    resume(&mut client);
    hub.own_connection(&mut server);
    let id = ask(&mut server);
    client.wait_for("the request", is_asked);
    let name = hub.row("pending")["request_id"].as_str().unwrap().to_owned();
    let follows = || {
        let document = hub.get("/sessions/self");
        (document["connections"][0]["threads"] == json!(["t"])).then_some(document)
    };
    let before = eventually("the thread of the client", follows);
    handed_over(&hub);
    let after = eventually("the thread of the client", follows);
    for same in ["generation", "server", "child", "pending_requests"] {
        assert_eq!(after[same], before[same], "{same}");
    }
    assert!(after["counters"]["server_lines"].as_u64() >= before["counters"]["server_lines"].as_u64());
    // The request is open under its name, and answered once.
    let (status, document) =
        http(&hub.session(), &format!("POST {}", respond_path(&name)), decision("accept").to_string().as_bytes());
    assert_eq!(status, 200, "{document}");
    client.wait_for("the end", |message| message["method"] == "serverRequest/resolved");
    assert_eq!(answers_at(&mut server, &id), [json!({"id": id, "result": {"decision": "accept"}})]);
    let row = hub.row("resolved");
    assert_eq!((&row["request_id"], &row["resolution_source"]), (&json!(name), &json!("api")), "{row:#}");
    // A client that comes later is served as before.
    let mut second = hub.client("later");
    resume(&mut second);
    server.notify("t", r#"{"method":"x","params":{}}"#);
    second.wait_for("a message", |message| message["method"] == "x");
}

/// Bytes that wait for a client that does not read, and a frame of which half has been written, are not lost.
#[test]
fn slow_client_gets_all_that_waited() {
    let hub = Hub::new();
    let mut server = hub.server();
    let mut slow = hub.client("slow");
    resume(&mut slow);
    hub.own_connection(&mut server);
    for _ in 0..4 {
        server.notify_long("t", 3 << 20);
    }
    eventually("bytes that wait", || {
        (hub.get("/sessions/self")["connections"][0]["waiting_bytes"].as_u64()? > 8 << 20).then_some(())
    });
    handed_over(&hub);
    let mut long = 0;
    while long < 4 {
        long += usize::from(slow.receive().expect("the connection lasts").len() > 3 << 20);
    }
    slow.call("marker", json!({}));
}

/// The other program cannot go on with the state, for several reasons: the hub says why, and no client notices.
#[test]
fn hub_goes_on_if_the_other_program_cannot() {
    let hub = Hub::new();
    let mut server = hub.server();
    let mut client = hub.client("tui");
    resume(&mut client);
    hub.own_connection(&mut server);
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let program = |name: &str, script: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let cases = [
        (program("refuses", "cat >/dev/null; echo 'codex-shim: no such form' >&2; exit 1"), "no such form"),
        (program("dies", "exit 3"), "cannot go on with the state of this hub"),
        (program("hangs", "exec sleep 600"), "has not read the state of this hub within 5s"),
        (folder.path().join("missing"), "start "),
    ];
    let relative = br#"{"program":"codex-shim"}"#;
    assert_eq!(http(&hub.session(), "POST /sessions/self/handover", relative).0, 400);
    for (program, expect) in cases {
        let body = json!({ "program": program }).to_string();
        let (status, document) = http(&hub.session(), "POST /sessions/self/handover", body.as_bytes());
        assert_eq!((status, &document["detail"]["error_code"]), (409, &json!("not_handed_over")), "{document}");
        assert!(document.to_string().contains(expect), "{expect}: {document}");
        server.notify("t", &json!({ "method": "x", "params": { "is": expect } }).to_string());
        client.wait_for("a message", |message| message["params"]["is"] == expect);
    }
    handed_over(&hub);
    client.call("marker", json!({}));
}

/// A change of a state.
type Change = fn(&mut Value);

/// The output of a program that reads a state in order to go on with it.
fn keeps(hub: &Hub, state: &str) -> Output {
    let mut command = hub.command(&["hub", "--session", "h", "--keep-state"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may have ended before it has read all.
    let _ = child.stdin.take().expect("it is piped").write_all(state.as_bytes());
    child.wait_with_output().unwrap()
}

/// A program goes on only with a state that it understands as a whole, so that nothing of another version is lost in silence.
#[test]
fn state_of_another_version_is_refused() {
    let hub = Hub::new();
    let mut server = hub.server();
    let mut client = hub.client("tui");
    resume(&mut client);
    hub.own_connection(&mut server);
    ask(&mut server);
    client.wait_for("the request", is_asked);
    hub.row("pending");
    assert_eq!(http(&hub.session(), "POST /sessions/self/context", br#"{"cmd":"make","exit_code":2}"#).0, 200);
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let (program, written) = (folder.path().join("keeps"), folder.path().join("state"));
    fs::write(&program, format!("#!/bin/sh\ncat >'{}'; exit 1\n", written.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let body = json!({ "program": program }).to_string();
    assert_eq!(http(&hub.session(), "POST /sessions/self/handover", body.as_bytes()).0, 409);
    let state = fs::read_to_string(&written).unwrap();
    let kept = keeps(&hub, &state);
    assert_eq!(String::from_utf8_lossy(&kept.stdout), format!("read\n{state}"), "{}", said(&kept));
    let changed = |change: Change| {
        let mut changed: Value = serde_json::from_str(&state).unwrap();
        change(&mut changed);
        said(&keeps(&hub, &changed.to_string()))
    };
    let cases: [(Change, &str); 5] = [
        (|state| state["form"] = json!(2), "has form 2, and this version reads 1"),
        (|state| state["state"]["core"]["engine"]["newer"] = json!(0), "members that this version does not have"),
        (
            |state| {
                drop(state["state"]["core"]["engine"]["clients"]["own"].as_object_mut().unwrap().remove("introduction"))
            },
            "or lacks some",
        ),
        (|state| state["state"]["links"]["own"] = json!("Newer"), "has something unknown at byte"),
        (|state| state["state"]["core"]["session"]["writer"] = json!(null), "the setting `record` has changed"),
    ];
    for (change, expect) in cases {
        let told = changed(change);
        assert!(told.contains(expect), "{expect}: {told}");
    }
}

/// A server that is started after a handover inherits none of the descriptors that the hub has inherited itself.
#[test]
fn next_server_inherits_nothing_of_the_hub() {
    let hub = Hub::new();
    let mut server = hub.server();
    let mut client = hub.client("tui");
    resume(&mut client);
    hub.own_connection(&mut server);
    handed_over(&hub);
    let first = server.pid();
    kill_process(pid_of(first), Signal::KILL).unwrap();
    let next = eventually("the next server", || {
        let next = hub.get("/sessions/self")["server"]["pid"].as_u64()?;
        (next != first).then_some(next)
    });
    let open =
        fs::read_dir(format!("/proc/{next}/fd")).unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let open: Vec<PathBuf> = open.collect();
    // The lock was made under another name than it has.
    let is_lock = |path: &PathBuf| path.to_string_lossy().contains("lock");
    assert!(!open.is_empty() && !open.iter().any(is_lock), "{open:?}");
}

/// The record of the server is gone, which only the program that has taken over notices.
#[test]
fn program_that_ends_is_replaced() {
    let mut hub = Hub::new();
    let mut server = hub.server();
    let mut client = hub.client("tui");
    resume(&mut client);
    hub.own_connection(&mut server);
    let record = hub.session().join("server.json");
    let kept = fs::read(&record).unwrap();
    fs::remove_file(&record).unwrap();
    let output = hub.command(&["hub", "restart", "--session", "h"]).output().unwrap();
    assert!(
        said(&output)
            .contains("the program that has taken over has ended; another hub starts, and the clients connect again"),
        "{output:?}"
    );
    assert!(client.receive().is_none());
    assert!(hub.said().contains("the record of the server is missing"), "{}", hub.said());
    assert!(!hub.process.take().expect("one was started").wait().unwrap().success());
    fs::write(&record, kept).unwrap();
    hub.start();
    resume(&mut hub.client("later"));
}

/// A restart with other options starts a new hub.
#[test]
fn other_options_begin_anew() {
    let hub = Hub::new();
    let mut client = hub.client("tui");
    resume(&mut client);
    let output = hub.tool(&["hub", "restart", "--no-default-socket"]);
    assert!(
        said(&output).contains("runs with other options; another one starts, and the clients connect again"),
        "{}",
        said(&output)
    );
    assert!(client.receive().is_none());
    hub.tool(&["hub", "stop", "--yes"]);
}

/// A second restart begins during the first one: both tools report the true result, and no client notices.
#[test]
fn two_restarts_at_once_disconnect_nobody() {
    let hub = Hub::new();
    let mut server = hub.server();
    let mut client = hub.client("tui");
    resume(&mut client);
    hub.own_connection(&mut server);
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let (slow, begun) = (folder.path().join("slow"), folder.path().join("begun"));
    let script = format!("#!/bin/sh\n: >'{}'\nsleep 0.3\nexec '{SHIM}' \"$@\"\n", begun.display());
    put_program(&slow, script.as_bytes());
    let body = json!({ "program": slow }).to_string();
    let pid = hub.pid();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| http(&hub.session(), "POST /sessions/self/handover", body.as_bytes()));
        eventually("the first attempt", || begun.exists().then_some(()));
        handed_over(&hub);
        let (status, document) = first.join().expect("it does not panic");
        assert_eq!((status, &document), (200, &json!({"ok": true})));
    });
    client.call("marker", json!({}));
    // The second one has followed the first.
    let program = fs::read_link(format!("/proc/{pid}/exe")).expect("it runs");
    assert_eq!(program, fs::canonicalize(SHIM).expect("it is there"));
}

/// A folder that a model could write to earlier still counts after a handover.
#[test]
fn hook_in_reach_stays_refused_after_a_handover() {
    let home = Home::new();
    let ws = out_of_reach();
    let ws = ws.path().canonicalize().expect("it is there");
    let (hook, ran) = (ws.join("hook"), home.path().join("ran"));
    put_program(&hook, format!("#!/bin/sh\necho >> {}\n", ran.display()).as_bytes());
    fs::create_dir_all(home.path()).unwrap();
    fs::write(home.path().join("config.toml"), format!("on_pending = {hook:?}\non_pending_after = \"0s\"\n")).unwrap();
    let hub = Hub::at(home);
    let mut server = hub.server();
    let mut client = hub.client("tui");
    resume(&mut client);
    hub.own_connection(&mut server);
    for policy in ["workspaceWrite", "readOnly"] {
        let params = json!({"threadId": "t", "cwd": ws, "sandboxPolicy": {"type": policy}});
        client.call("thread/settings/update", params);
    }
    let is_refused =
        || hub.get("/sessions/self")["faults"].to_string().contains("on_pending can be changed by a model");
    eventually("the fault", || is_refused().then_some(()));
    handed_over(&hub);
    ask(&mut server);
    client.wait_for("the request", is_asked);
    hub.row("pending");
    eventually("the fault", || is_refused().then_some(()));
    assert!(!ran.exists());
}
