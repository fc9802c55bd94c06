//! A hub that becomes another program goes on with all connections: no client and no server notices, and nothing is missing in what
//! they get, in the journal or in the ledger.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use serde_json::{Value, json};

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
