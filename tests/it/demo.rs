//! `make demo`: one turn with an approval through a relay, and what is on record of it.
//!
//! In front of the real codex with a scripted model on loopback; where that is not installed, in front of a small
//! stand-in, and then it says so. Every figure is of this run.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "shares its support with the tests, prints, may fail where it stands, and is no library"
)]

#[path = "support"]
mod support {
    pub mod codex;
    pub mod conversations;
    pub mod journal;
    pub mod model;
    pub mod patience;
    pub mod peer;

    pub use patience::{PATIENCE, eventually};
}

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};

use codex_shim::wire::Side;
use serde_json::{Value, json};

use support::codex::{Lab, installed_or_skip};
use support::conversations::{COMMAND_APPROVAL, start_thread, start_turn};
use support::journal::Journal;
use support::model::Model;
use support::peer::Peer;

/// Where the demo keeps its journal, so that it can be looked at afterwards.
const HOME: &str = "target/demo";

/// Columns of a line that is shown.
const COLUMNS: usize = 78;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("stand-in") {
        stand_in();
        return;
    }
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join(HOME);
    let _ = std::fs::remove_dir_all(&home);
    let model = Model::start((COMMAND_APPROVAL.script)());
    let lab = Lab::new(&model);
    let this = std::env::current_exe().expect("this program has a path");
    let shim: PathBuf = this.parent().and_then(Path::parent).expect("it stands in examples/").join("codex-shim");
    let mut command = lab.command(&shim);
    command.env("CODEX_SHIM_HOME", &home).env_remove("CODEX_SHIM_OFF").env_remove("CODEX_SHIM_DEPTH");
    match installed_or_skip("demo with the real codex") {
        Some(codex) => {
            println!("A client, codex-shim, and the real codex with a scripted model behind it.\n");
            command.env("CODEX_SHIM_CODEX", codex).arg("app-server");
        }
        None => {
            println!("A client, codex-shim, and a stand-in for codex, since the real one is not installed.\n");
            command.args(["run", "--"]).arg(&this).arg("stand-in");
        }
    }
    let mut peer = Peer::start(&mut command);
    converse(&mut peer, &lab);
    let (received, status) = peer.finish();
    report(&home, &received, status.success());
}

fn converse(peer: &mut Peer, lab: &Lab) {
    let initialized = peer.initialize();
    said("server", &format!("I am {}", initialized["userAgent"].as_str().unwrap_or("unnamed")));
    let thread = start_thread(peer, lab, "read-only");
    said("client", "turn/start: run it");
    start_turn(peer, &thread, "run it");
    let request = peer.wait_for_method("item/commandExecution/requestApproval");
    said("server", &format!("may I run  {}  ?", request["params"]["command"].as_str().unwrap_or("something")));
    said("client", "accept");
    peer.answer(&request, json!({"decision": "accept"}));
    let completed = peer.wait_for("the assistant's message", |message| {
        message["method"] == "item/completed" && message["params"]["item"]["type"] == "agentMessage"
    });
    said("server", completed["params"]["item"]["text"].as_str().unwrap_or_default());
    let completed = peer.wait_for_method("turn/completed");
    said("server", &format!("turn {}", completed["params"]["turn"]["status"].as_str().unwrap_or("over")));
}

fn said(who: &str, what: &str) {
    println!("  {who:>6}  {}", cut(what, COLUMNS - 10));
}

fn report(home: &Path, received: &[Value], ended_well: bool) {
    let session = std::fs::read_dir(home.join("sessions")).expect("there is a session").next().expect("there is one");
    let session = session.expect("it can be read").path();
    let journal = Journal::read(&session);
    let bytes = |side: Side| {
        let lines = if side == Side::Client { &journal.client } else { &journal.server };
        let bytes: usize = lines.iter().flatten().map(Vec::len).sum();
        format!("{:>3} lines, {bytes:>6} bytes", lines.len())
    };
    let recorded = journal.server.iter().zip(received).filter(|(recorded, received)| match recorded {
        Some(line) => serde_json::from_slice::<Value>(line).is_ok_and(|line| line == **received),
        None => true,
    });
    let recorded = recorded.count();
    println!("\nOn record before it was passed on:");
    println!("  from the client  {}", bytes(Side::Client));
    println!("  from the server  {}", bytes(Side::Server));
    println!("  received by the client {}, of these on record as received {recorded}", received.len());
    println!("\nThe journal, deltas left out:");
    let records: Vec<Value> =
        journal.texts.iter().map(|text| serde_json::from_str(text).expect("it is JSON")).collect();
    let began = records.iter().find_map(|record| record["at"].as_u64()).unwrap_or_default();
    for (after_us, from, what) in records.iter().filter_map(|record| shown(record, began)) {
        println!("  {:>7.1} ms  {from:>6}  {}", after_us as f64 / 1e3, cut(&what, COLUMNS - 22));
    }
    let path = session.join("journal");
    let shown = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(&path);
    println!("\nAll of it: {}", shown.display());
    assert!(ended_well && recorded == received.len(), "the relay did not do its job");
}

/// A record for the list: microseconds since the first one, whose it is, and what.
fn shown(record: &Value, began: u64) -> Option<(u64, &str, String)> {
    let line = &record["line"];
    let what = match (record["event"].as_str(), record["omitted"].as_str(), line["method"].as_str()) {
        (Some(event), ..) => format!("{event} {}", record["data"]),
        (None, Some(reason), _) => format!("{} (left out: {reason})", record["method"].as_str().unwrap_or("a line")),
        (None, None, Some(method)) if method.ends_with("elta") => return None,
        (None, None, Some(method)) if line["id"].is_null() => method.to_owned(),
        (None, None, Some(method)) => format!("{method}, request {}", line["id"]),
        (None, None, None) => format!("answer to {}", line["id"]),
    };
    Some((record["at"].as_u64()? - began, record["from"].as_str()?, what))
}

fn cut(text: &str, columns: usize) -> String {
    let plain: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    if plain.chars().count() <= columns {
        return plain;
    }
    plain.chars().take(columns - 1).chain(['…']).collect()
}

/// Says what codex would say, as far as the demo's client listens.
fn stand_in() {
    let mut stdout = std::io::stdout().lock();
    let mut tell = |message: Value| writeln!(stdout, "{message}").expect("the relay reads");
    let call = json!({"threadId": "t", "turnId": "u", "itemId": "call_1", "command": "echo relayed"});
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.expect("a line")).unwrap_or(Value::Null);
        let id = &message["id"];
        match message["method"].as_str() {
            Some("initialize") => tell(json!({"id": id, "result": {"userAgent": "stand-in/0.0.0"}})),
            Some("thread/start") => tell(json!({"id": id, "result": {"thread": {"id": "t"}}})),
            Some("turn/start") => {
                tell(json!({"id": id, "result": {"turn": {"id": "u", "status": "inProgress"}}}));
                tell(json!({"id": 0, "method": "item/commandExecution/requestApproval", "params": call}));
            }
            None if *id == 0 => {
                let item = json!({"type": "agentMessage", "id": "item_1", "text": "It ran."});
                tell(json!({"method": "item/completed", "params": {"threadId": "t", "turnId": "u", "item": item}}));
                let turn = json!({"id": "u", "status": "completed"});
                tell(json!({"method": "turn/completed", "params": {"threadId": "t", "turn": turn}}));
            }
            Some(_) | None => {}
        }
    }
}
