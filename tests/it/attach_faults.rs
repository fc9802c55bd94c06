//! Attached clients, and servers behind them, that read nothing, write nothing, or die halfway.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::RecvTimeoutError;

use codex_shim::testing::control::client;
use codex_shim::testing::wire::Side;
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::attach::{Client, attach_tool};
use crate::support::both_ends::{Live, failed, lines_of};
use crate::support::requests::parsed;
use crate::support::shim::Home;
use crate::support::{PATIENCE, eventually, stop};

/// A shell script as the server, initialized by the shim.
struct Scripted {
    home: Home,
    session: PathBuf,
    shim: Child,
}

/// Takes our `initialize`, answers it, and takes our `initialized`.
const INITIALIZED: &str = r#"read -r line; id=$(printf %s "$line" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
printf '{"id":"%s","result":{"userAgent":"x/0.169.0 (x)"}}\n' "$id"; read -r line; "#;

impl Scripted {
    fn start(config: &str, then: &str) -> Scripted {
        let home = Home::new();
        std::fs::create_dir_all(home.path()).expect("a folder");
        std::fs::write(home.path().join("config.toml"), config).expect("a file");
        let script = format!("{INITIALIZED}{then}");
        let shim = home.shim(&["serve", "--session", "s", "--", "sh", "-c", &script]).spawn().expect("the shim starts");
        let scripted = Scripted { session: home.path().join("sessions/s"), home, shim };
        eventually("a server that is initialized", || {
            scripted.document().filter(|document| document["child"]["codex_version"].is_string())
        });
        scripted
    }

    fn document(&self) -> Option<Value> {
        serde_json::from_slice(&client::get(&self.session, "/sessions/self").ok()?.body).ok()
    }

    fn await_client(&self, name: &Value) -> Value {
        eventually("who the client is", || self.document().filter(|document| document["client"]["name"] == *name))
    }

    /// An attached client that has written `writes`, and a reader of its output.
    fn attached(&self, writes: &str) -> (Child, std::process::ChildStdin) {
        let mut tool = attach_tool(&self.home).spawn().expect("the tool starts");
        let mut stdin = tool.stdin.take().expect("stdin is piped");
        stdin.write_all(writes.as_bytes()).expect("the tool reads");
        (tool, stdin)
    }

    fn kill(mut self) {
        self.shim.kill().expect("it runs");
        self.shim.wait().expect("it is ours");
    }
}

#[test]
fn attached_client_that_takes_nothing_is_cut_off() {
    let scripted = Scripted::start("exit_grace = \"100ms\"", r#"read -r line; exec yes '{"method":"x"}'"#);
    let (mut tool, stdin) = scripted.attached("{\"id\":0,\"method\":\"initialize\"}\n{\"method\":\"go\"}\n");
    // The tool's output is not read, so every buffer up to the relay's is full.
    let document = eventually("that it is disconnected", || {
        scripted
            .document()
            .filter(|document| document["client"]["name"] == "codex-shim" && document["faults"] != json!([]))
    });
    assert_eq!(document["faults"][0]["what"], "the attached client has read nothing for 100ms; it is disconnected");
    let lines = |document: &Value| document["counters"]["server_lines"].as_u64();
    eventually("that the server goes on", || (lines(&scripted.document()?) > lines(&document)).then_some(()));
    let rest = lines_of(tool.stdout.take().expect("stdout is piped"));
    while rest.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Disconnected) {}
    failed(&tool.wait_with_output().expect("it is ours"), 1, "the server or its relay has exited");
    drop(stdin);
    scripted.kill();
}

#[test]
fn attached_client_that_dies_while_the_server_reads_nothing_makes_room() {
    let scripted = Scripted::start("", "exec sleep 600");
    let long = "x".repeat(1 << 20);
    let (mut tool, _stdin) = scripted.attached(&format!(
        "{{\"id\":0,\"method\":\"initialize\",\"params\":{{\"clientInfo\":{{\"name\":\"ide\"}}}}}}\n{{\"method\":\"{long}\"}}\n"
    ));
    eventually("a line that the server does not take", || {
        (scripted.document()?["counters"]["client_lines"] == 2).then_some(())
    });
    tool.kill().expect("it runs");
    tool.wait().expect("it is ours");
    scripted.await_client(&json!("codex-shim"));
    // The second client connects; its lines wait behind those of the first.
    let (mut other, _stdin) = scripted.attached("{\"id\":0,\"method\":\"initialize\"}\n");
    scripted.await_client(&Value::Null);
    other.kill().expect("it runs");
    other.wait().expect("it is ours");
    scripted.await_client(&json!("codex-shim"));
    scripted.kill();
}

#[test]
fn attached_client_is_told_all_by_a_server_that_reads_no_more() {
    let mut live = Live::ready();
    let mut client = Client::named(&live, "ide");
    let stopped = live.posted("stop", &json!({}));
    assert_eq!(live.server.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "its stdin is closed");
    let lines = |live: &Live| live.get("/sessions/self")["counters"]["client_lines"].as_u64();
    let before = lines(&live);
    for number in 1..=3 {
        client.write(&format!("{{\"id\":{number},\"method\":\"x\"}}\n"));
        // The first line is recorded, like any line read for the server; the rest is discarded.
        eventually("that it is read", || (lines(&live) > before).then_some(()));
        client.gets(&mut live, &format!(r#"{{"method":"last/{number}"}}"#));
        assert_eq!(live.get("/sessions/self")["client"]["name"], "ide");
    }
    drop(live.down.take());
    let stdin = client.stdin.take();
    failed(&client.end(), 1, "the server or its relay has exited");
    drop(stdin);
    assert_eq!(stopped.join().expect("it is answered"), (200, json!({"ok": true})));
    live.signal_end();
}

#[test]
fn attached_client_may_leave_a_server_that_reads_no_more() {
    let mut live = Live::ready();
    let mut client = Client::named(&live, "ide");
    let stopped = live.posted("stop", &json!({}));
    assert_eq!(live.server.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected), "its stdin is closed");
    client.write("{\"id\":1,\"method\":\"x\"}\n");
    client.gets(&mut live, r#"{"method":"last"}"#);
    client.leave(&live);
    drop(live.down.take());
    assert_eq!(stopped.join().expect("it is answered"), (200, json!({"ok": true})));
    live.signal_end();
}

#[test]
fn attached_clients_own_requests_are_answered_for_it_while_it_is_not_there() {
    let mut live = Live::ready();
    let asked = |id: u32| format!(r#"{{"id":{id},"method":"item/tool/call","params":{{}}}}"#);
    let refused = |id: u32| json!({"id": id, "error": {"code": -32601, "message": "no client is attached"}});
    live.say_unseen(&asked(1));
    assert_eq!(parsed(&live.at_server()), refused(1));
    let mut client = Client::named(&live, "ide");
    client.gets(&mut live, &asked(2));
    client.gets(&mut live, &asked(3));
    client.send(&live, r#"{"id":2,"result":{}}"#);
    client.leave(&live);
    assert_eq!(parsed(&live.at_server()), refused(3));
    let (journal, _) = live.signal_end();
    let ours: Vec<Value> = journal
        .own
        .iter()
        .filter_map(|(to, _, line)| line.as_ref().filter(|_| *to == Side::Server))
        .map(|line| serde_json::from_slice(line).expect("it is JSON"))
        .collect();
    assert!(ours.contains(&refused(1)) && ours.contains(&refused(3)), "{ours:?}");
}

#[test]
fn attached_client_that_is_stopped_freezes_nobody() {
    let mut live = Live::served_with("exit_grace = \"200ms\"");
    let asked = parsed(&live.at_server());
    live.say_unseen(&format!(r#"{{"id":{},"result":{{"userAgent":"x/0.169.0 (x)"}}}}"#, asked["id"]));
    assert_eq!(parsed(&live.at_server()), json!({"method": "initialized"}));
    let mut client = Client::start(&live);
    client.write("{\"id\":0,\"method\":\"initialize\"}\n");
    client.next();
    let stopped = i32::try_from(client.tool.id()).ok().and_then(Pid::from_raw).expect("a process id");
    stop(stopped);
    let line = format!("{{\"method\":\"x\",\"params\":\"{}\"}}", "x".repeat(1 << 20));
    (0..4).for_each(|_| live.say_unseen(&line));
    live.await_client("codex-shim");
    live.in_step();
    client.tool.kill().expect("it runs");
    client.tool.wait().expect("it is ours");
    let (_, stderr) = live.signal_end();
    let faults: Vec<&str> = stderr.lines().filter(|line| !line.contains(": serving session ")).collect();
    assert_eq!(faults, ["codex-shim: the attached client has read nothing for 200ms; it is disconnected"]);
}
