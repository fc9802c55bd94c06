//! The recordings of a TUI's WebSocket traffic in `fixtures/websocket`: facts about the real codex that the hub relies on.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// The records of a recording, oldest first.
fn recording(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/websocket/{name}.jsonl"));
    let text = fs::read_to_string(&path).expect("the recording can be read");
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a record is JSON")).collect();
    assert!(records.len() > 10, "{}: {} records", path.display(), records.len());
    records
}

/// The messages of `side` on connection `conn`, or on all of them.
fn messages(records: &[Value], side: &str, conn: Option<i64>) -> Vec<Value> {
    records
        .iter()
        .filter(|record| record["from"] == side && record["kind"] == "text")
        .filter(|record| conn.is_none_or(|conn| record["conn"] == conn))
        .map(|record| serde_json::from_str(record["text"].as_str().expect("a text")).expect("a message is JSON"))
        .collect()
}

/// The one message of `messages` that has `method`.
fn only<'a>(messages: &'a [Value], method: &str) -> &'a Value {
    let found: Vec<&Value> = messages.iter().filter(|message| message["method"] == method).collect();
    assert_eq!(found.len(), 1, "{method}: {found:#?}");
    found[0]
}

const ALL: [&str; 2] = ["tui-0.169-approval", "tui-0.169-reconnect"];

#[test]
fn each_text_message_is_one_object_in_one_frame() {
    for name in ALL {
        let records = recording(name);
        for record in records.iter().filter(|record| record["kind"] == "text") {
            let text = record["text"].as_str().expect("a text");
            let message: Value = serde_json::from_str(text).expect("a message is JSON");
            let members = message.as_object().expect("a message is an object");
            assert!(!members.contains_key("jsonrpc"), "{name}: {text}");
            assert!(members.contains_key("method") || members.contains_key("id"), "{name}: {text}");
            assert_eq!(record["frames"], serde_json::json!([text.len()]), "{name}: {text}");
        }
        assert!(records.iter().all(|record| record["kind"] != "binary" && record["kind"] != "ping"), "{name}");
    }
}

#[test]
fn probes_begin_like_the_real_connection() {
    let records = recording("tui-0.169-approval");
    let client_names: Vec<Value> = (1..=4)
        .map(|conn| {
            let sent = messages(&records, "client", Some(conn));
            sent.first().map_or(Value::Null, |first| first["params"]["clientInfo"]["name"].clone())
        })
        .collect();
    assert_eq!(client_names, [Value::Null, "codex_app_server_daemon".into(), "codex-tui".into(), "codex-tui".into()]);
    for probe in 2..=3 {
        let sent = messages(&records, "client", Some(probe));
        assert_eq!(sent.len(), 2, "{sent:#?}");
        assert_eq!(sent[1]["method"], "initialized");
    }
}

#[test]
fn reconnecting_tui_is_asked_again_with_the_same_id() {
    let records = recording("tui-0.169-reconnect");
    let sent = messages(&records, "client", None);
    let received = messages(&records, "server", None);
    let resume = only(&sent, "thread/resume");
    let request = only(&received, "item/commandExecution/requestApproval");
    assert_eq!(request["params"]["threadId"], resume["params"]["threadId"]);
    assert_eq!(request["id"], 1);
    let at = |method: &str| received.iter().position(|message| message["method"] == method).expect(method);
    let resumed = received.iter().position(|message| message["id"] == resume["id"] && message.get("result").is_some());
    assert!(resumed.expect("the resume is answered") < at("item/commandExecution/requestApproval"));
    let answer = sent.iter().find(|message| message.get("method").is_none()).expect("an answer");
    assert_eq!((&answer["id"], &answer["result"]["decision"]), (&request["id"], &Value::from("accept")));
    assert_eq!(only(&received, "serverRequest/resolved")["params"]["requestId"], request["id"]);
}
