//! `kill -9` of a hub between the commit of an answer and its sending: the next hub sends that answer, and the request has one row
//! and one winner.

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::both_ends::{http_asked, http_told, told};
use crate::support::eventually;
use crate::support::hub::{Hub, answers_at, ask, asked, is_asked, resume};
use crate::support::requests::{decision, question_asked, respond_path};
use crate::support::websocket::{Client, FakeServer};

/// An answer of an API caller is stored, and then the hub has no connection over which it could send it: the ledger is locked while
/// the server cuts all connections. Returns the request's id and name.
fn stored_and_not_sent(hub: &Hub, server: &mut FakeServer, answer: &Value) -> (Value, String) {
    let id = json!(server.ask("t", APPROVAL, asked()));
    let name = answered_and_not_sent(hub, server, answer);
    assert_eq!(answers_at(server, &id), [Value::Null; 0]);
    (id, name)
}

/// The same for a request that the server has asked. Returns its name.
fn answered_and_not_sent(hub: &Hub, server: &mut FakeServer, answer: &Value) -> String {
    let mut client = hub.client("tui");
    resume(&mut client);
    hub.own_connection(server);
    client.wait_for("the request", |message| message["params"]["itemId"].is_string());
    let name = hub.row("pending")["request_id"].as_str().unwrap().to_owned();
    eventually("an answer that is stored and not sent", || {
        let ledger = Connection::open(hub.session().join("ledger.db")).unwrap();
        ledger.execute_batch("BEGIN IMMEDIATE").ok()?;
        let line = format!("POST {}", respond_path(&name));
        let asked = http_asked(&hub.session(), &line, answer.to_string().as_bytes());
        server.refuse(Some(503));
        for connection in server.connections() {
            server.cut(connection["number"].as_u64().unwrap());
        }
        // The hub has noticed, so it sends nothing more.
        eventually("no connections", || {
            (hub.get("/sessions/self")["connections"] == json!([]) && server.connections().is_empty()).then_some(())
        });
        ledger.execute_batch("ROLLBACK").unwrap();
        let (status, document) = http_told(asked)?;
        if status == 200 {
            return Some(());
        }
        // The answer came after the connections were gone, or the ledger was locked for too long: once more.
        assert!(
            ["not_ready", "ledger_unavailable"].map(Value::from).contains(&document["detail"]["error_code"]),
            "{document}"
        );
        server.refuse(None);
        resume(&mut hub.client("tui"));
        hub.own_connection(server);
        None
    });
    let row = hub.row("resolved");
    assert!(row["dispatched_at"].is_null(), "{row:#}");
    name
}

const APPROVAL: &str = "item/commandExecution/requestApproval";

/// The only row, once the server has confirmed its end, and the answers to it.
fn confirmed(hub: &Hub) -> (Value, Vec<Value>) {
    confirmed_after(hub, 1)
}

/// The same after so many answers.
fn confirmed_after(hub: &Hub, count: usize) -> (Value, Vec<Value>) {
    let row = eventually("the end", || Some(hub.row("resolved")).filter(|row| row["confirmed_at"].is_string()));
    let answers = hub.answers(&row, count);
    (row, answers)
}

#[test]
fn answer_stored_before_a_kill_is_sent_by_the_next_hub() {
    let mut hub = Hub::new();
    let mut server = hub.server();
    let (id, name) = stored_and_not_sent(&hub, &mut server, &decision("accept"));
    hub.kill();
    server.refuse(None);
    hub.start();
    let mut client: Client = hub.client("tui");
    resume(&mut client);
    let (row, answers) = confirmed(&hub);
    // The client is asked only if it was there before the answer; an answer of its own loses.
    client.answer(&id, decision("decline"));
    client.call("marker", json!({}));
    assert_eq!(answers_at(&mut server, &id), [json!({"id": id, "result": {"decision": "accept"}})]);
    assert_eq!((&row["request_id"], &row["resolution_source"]), (&json!(name), &json!("api")), "{row:#}");
    assert!(row["dispatched_at"].is_string() && row["error_code"].is_null(), "{row:#}");
    let won: Vec<&Value> = answers.iter().filter(|answer| answer["won"] == true).collect();
    assert_eq!((answers.len(), won[0]["payload"].clone()), (1, decision("accept")), "{answers:#?}");
}

/// The reason of a decline goes to the model with the answer, and the history tells the end of the request once.
#[test]
fn reason_stored_before_a_kill_is_sent_by_the_next_hub() {
    let mut hub = Hub::new();
    let mut server = hub.server();
    let answer = json!({"decision": "decline", "reason": "use make clean"});
    let (id, name) = stored_and_not_sent(&hub, &mut server, &answer);
    hub.kill();
    server.refuse(None);
    // No client comes: the hub itself resumes the thread.
    hub.start();
    let (_, steer) = server.wait_for("turn/steer");
    assert!(steer.contains("use make clean"), "{steer}");
    let (row, _) = confirmed(&hub);
    assert_eq!((&row["request_id"], &row["reason"]), (&json!(name), &json!("use make clean")), "{row:#}");
    assert_eq!(answers_at(&mut server, &id), [json!({"id": id, "result": {"decision": "decline"}})]);
    assert_eq!(server.seen().iter().filter(|(_, text)| text.contains("turn/steer")).count(), 1);
    let ends = || {
        let events = told(&hub.tool(&["events", "--json", "--since", "0", "--type", "request_resolved"]));
        let events = events["events"].as_array().unwrap().clone();
        events.into_iter().filter(|event| event.to_string().contains(&name)).count()
    };
    eventually("the resolved event", || (ends() > 0).then_some(()));
    assert_eq!(ends(), 1);
}

/// The ledger does not have the answer to a secret question whole, so the next hub cannot send it, and asks again. The history ends
/// with the answer that the server got.
#[test]
fn history_tells_that_the_answer_of_a_killed_hub_was_not_sent() {
    let mut hub = Hub::new();
    let mut server = hub.server();
    let question: Value = serde_json::from_str(&question_asked("0", true)).unwrap();
    let id = json!(server.ask("t", "item/tool/requestUserInput", question["params"].clone()));
    let with = |answer: &str| json!({"answers": {"color": {"answers": [answer]}}});
    let name = answered_and_not_sent(&hub, &mut server, &with("Red"));
    hub.kill();
    server.refuse(None);
    hub.start();
    let mut client = hub.client("tui");
    resume(&mut client);
    client.wait_for("the question", |message| message["id"] == id && message["method"].is_string());
    eventually("the row", || (hub.rows().len() == 1 && hub.rows()[0]["status"] == "pending").then_some(()));
    client.answer(&id, with("Blue"));
    let (row, answers) = confirmed_after(&hub, 2);
    assert_eq!((&row["request_id"], &row["resolution_source"]), (&json!(name), &json!("client")), "{row:#}");
    assert_eq!(answers.iter().filter(|answer| answer["won"] == true).count(), 1, "{answers:#?}");
    let told = eventually("both ends", || {
        let lines = hub.tool(&["transcript", "t", "--json"]).stdout;
        let lines = String::from_utf8_lossy(&lines).into_owned();
        let entries = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ends: Vec<Value> = entries.filter(|entry| entry["request_id"] == *name).collect();
        (ends.len() == 2).then_some(ends)
    });
    let ends: Vec<[&Value; 2]> = told.iter().map(|end| [&end["source"], &end["not_sent"]]).collect();
    assert_eq!(ends, [[&json!("api"), &Value::Null], [&json!("client"), &json!("answered by api")]], "{told:#?}");
    let text = hub.tool(&["transcript", "t"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("(the earlier answer, answered by api, was not sent)"), "{text}");
}

/// An approval lives as long as its server: after ten kills of hubs and three upgrades it still has its first name. One answer reaches the
/// server.
#[test]
fn approval_keeps_its_name_through_kills_and_upgrades() {
    let mut hub = Hub::new();
    let mut server = hub.server();
    let mut client = hub.client("tui");
    resume(&mut client);
    let id = ask(&mut server);
    client.wait_for("the request", is_asked);
    let name = hub.row("pending")["request_id"].clone();
    for step in 1..=13 {
        if step % 4 == 0 {
            let output = hub.tool(&["hub", "restart"]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains("goes on, with all clients"), "{said}");
        } else {
            hub.kill();
            hub.start();
            client = hub.client("tui");
            resume(&mut client);
            client.wait_for("the request", is_asked);
        }
        assert_eq!(hub.row("pending")["request_id"], name, "step {step}");
    }
    let answered = hub.tool(&["respond", name.as_str().unwrap(), "accept"]);
    assert!(answered.status.success());
    let (row, answers) = confirmed(&hub);
    assert_eq!((&row["request_id"], answers.len()), (&name, 1), "{row:#}");
    assert_eq!(answers_at(&mut server, &id), [json!({"id": id, "result": {"decision": "accept"}})]);
}
