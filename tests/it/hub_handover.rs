//! A hub that becomes another program goes on with all connections: no client and no server notices, and nothing is missing in what
//! they get, in the journal or in the ledger.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use serde_json::{Value, json};

use crate::golden::Golden;
use crate::support::both_ends::http;
use crate::support::eventually;
use crate::support::hub::{Hub, answers_at, ask, is_asked, recorded, resume};
use crate::support::requests::{decision, respond_path};
use crate::support::websocket::Client;

/// Deltas between two handovers.
const DELTAS: u64 = 2_000;

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

/// The number of a delta.
fn delta_in(text: &str) -> Option<u64> {
    let message: Value = serde_json::from_str(text).expect("a message is JSON");
    message["params"]["delta"].as_str()?.parse().ok()
}

/// All deltas of a client until it has the last one.
fn deltas_of(client: &mut Client) -> Vec<u64> {
    let mut deltas = Vec::new();
    while deltas.last() != Some(&(DELTAS - 1)) {
        deltas.extend(delta_in(&client.receive().expect("the connection lasts")));
    }
    deltas
}

#[test]
fn nothing_is_missing_after_handovers_under_load() {
    let hub = Hub::new();
    let mut server = hub.server();
    let mut clients = [hub.client("one"), hub.client("two"), hub.client("three")];
    clients.iter_mut().for_each(resume);
    hub.own_connection(&mut server);
    let before = server.connections();
    let pid = hub.pid();
    for round in 0..3 {
        let got: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let readers: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| deltas_of(client))).collect();
            server.deltas("t", DELTAS);
            handed_over(&hub);
            readers.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        got.iter().for_each(|got| assert!(got.iter().copied().eq(0..DELTAS), "round {round}: {}", got.len()));
        assert_eq!((hub.pid(), server.connections()), (pid, before.clone()), "round {round}");
    }
    let journal = hub.journal();
    assert_eq!(recorded(&journal, "/delta") as u64, 3 * 3 * DELTAS);
    assert!(journal.gaps.is_empty());
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

/// A program that cannot go on with the state, whatever is wrong with it: the hub says why, and no client notices.
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
        (program("hangs", "exec sleep 600"), "has not read the state of this hub within 2s"),
        (folder.path().join("missing"), "start "),
    ];
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

/// Maps whose keys are ids or numbers.
const MAPS: [&str; 9] =
    ["links", "others", "by_key", "threads", "texts", "names", "dispatches", "by_policy", "unstarted"];

/// The paths of a state, with `*` for ids and list indexes.
fn paths(at: &str, value: &Value, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let is_map = MAPS.iter().any(|map| at.rsplit('.').next() == Some(map)) && !members.contains_key("links");
            for (name, member) in members {
                self::paths(&format!("{at}.{}", if is_map { "*" } else { name }), member, paths);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            elements.iter().for_each(|element| self::paths(&format!("{at}.*"), element, paths));
        }
        _ => drop(paths.insert(at.to_owned())),
    }
}

/// What the state of a hub is made of. If this changes so that a program of before cannot read it, or one of now that of before, it is of
/// another form: raise `FORM`.
#[test]
fn state_has_its_form() {
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
    let (program, state) = (folder.path().join("keeps"), folder.path().join("state"));
    let script = format!("#!/bin/sh\ncat >'{}'; exit 1\n", state.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let body = json!({ "program": program }).to_string();
    assert_eq!(http(&hub.session(), "POST /sessions/self/handover", body.as_bytes()).0, 409);
    let written = fs::read_to_string(&state).unwrap();
    let mut found = BTreeSet::new();
    paths("", &serde_json::from_str(&written).unwrap(), &mut found);
    let text: String = found.into_iter().map(|path| format!("{}\n", path.trim_start_matches('.'))).collect();
    let mut golden = Golden::new("handover", None);
    golden.entry("the state of a hub");
    golden.add(&text);
    golden.check();
}

/// The record of the server is gone, which only the program that has taken over notices.
#[test]
fn program_that_ends_after_it_has_taken_over_is_replaced() {
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
        said(&output).contains("the program that has taken over has ended; its clients connect again"),
        "{output:?}"
    );
    assert!(client.receive().is_none());
    assert!(hub.said().contains("the server of the hub before is not known"), "{}", hub.said());
    assert!(!hub.process.take().expect("one was started").wait().unwrap().success());
    fs::write(&record, kept).unwrap();
    hub.start();
    resume(&mut hub.client("later"));
}

/// Whoever asks for other options gets a new hub.
#[test]
fn other_options_begin_anew() {
    let hub = Hub::new();
    let mut client = hub.client("tui");
    resume(&mut client);
    let output = hub.tool(&["hub", "restart", "--no-default-socket"]);
    assert!(said(&output).contains("runs with other options, so its clients connect again"), "{}", said(&output));
    assert!(client.receive().is_none());
}
