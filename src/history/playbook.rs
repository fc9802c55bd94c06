//! Test recordings in a short notation, one record per line: `MS < METHOD THREAD/TURN/ITEM {…}` is a notification, `MS
//! << METHOD PARAMETERS` one whose parameters are exactly these, `MS ?ID METHOD …` a server request, `MS >ID METHOD …` a
//! client call, `MS =ID RESULT` its result, `MS ! EVENT {…}` our own event, `MS # REASON` a gap, and `MS generation G`
//! the first record of a run. `~` is a missing name; the object is placed in the turn of `turn/*`, in the item of
//! `item/started` and `item/completed`, and otherwise in the parameters.

use serde_json::{Map, Value, json};

use super::{Fold, Rows, Seen};
use crate::journal::{Position, Record, SegmentName};

/// Plays a whole recording.
pub(super) fn play(message: &str) -> (Fold, Rows) {
    let (mut fold, mut rows) = (Fold::default(), Rows::default());
    for (number, line) in message.lines().filter(|line| !line.trim().is_empty()).enumerate() {
        take(&mut fold, number as u64, line, &mut rows);
    }
    (fold, rows)
}

/// Plays one record.
pub(super) fn take(fold: &mut Fold, offset: u64, line: &str, rows: &mut Rows) {
    let segment = SegmentName::parse("000000000001-001.jsonl").expect("BUG: the name is one");
    let record = record(line.trim());
    let record = Record::parse(record.as_bytes()).expect("BUG: a playbook gives records");
    fold.take(&Position { segment, offset }, &Seen::of(&record, None), rows);
}

fn record(line: &str) -> String {
    let mut parts = line.splitn(3, ' ');
    let mut next = || parts.next().unwrap_or_default();
    let (at, kind, rest) = (next(), next(), next());
    let at = at.parse::<u64>().expect("BUG: a line begins with a time") * 1_000;
    let (name, more) = rest.split_once(' ').unwrap_or((rest, "~"));
    let record = match kind.split_at(1) {
        ("<", "<") => {
            json!({"at": at, "from": "server", "text": format!("{{\"method\":\"{name}\",\"params\":{more}}}")})
        }
        ("<", _) => json!({"at": at, "from": "server", "line": {"method": name, "params": params(name, more)}}),
        ("?", id) => {
            let id: Value = serde_json::from_str(id).expect("BUG: an id is JSON");
            json!({"at": at, "from": "server", "line": {"method": name, "id": id, "params": params(name, more)}})
        }
        (">", id) => {
            let id: Value = serde_json::from_str(id).expect("BUG: an id is JSON");
            json!({"at": at, "from": "client", "line": {"method": name, "id": id, "params": params(name, more)}})
        }
        ("=", id) => {
            let id: Value = serde_json::from_str(id).expect("BUG: an id is JSON");
            let result: Value = serde_json::from_str(rest).expect("BUG: a result is JSON");
            json!({"at": at, "from": "server", "line": {"id": id, "result": result}})
        }
        ("!", _) => json!({"at": at, "from": "shim", "event": name, "data": object(more)}),
        ("#", _) => json!({"at": at, "gap": {"lines": 1, "reason": rest}}),
        ("g", _) => json!({"journal": 1, "session": "s", "generation": rest, "segment": 1, "at": at, "argv": [],
            "cwd": "/", "codex": {"path": "codex"}, "shim": "0"}),
        _ => panic!("BUG: {line:?} is no line of a playbook"),
    };
    record.to_string()
}

fn params(method: &str, message: &str) -> Value {
    let (place, body) = message.split_once(' ').unwrap_or((message, "~"));
    let mut names = place.split('/').map(|name| Some(name).filter(|name| *name != "~"));
    let mut next = || names.next().flatten();
    let (thread_id, turn_id, item_id) = (next(), next(), next());
    let mut params = Map::new();
    let mut put = |name: &str, value: Option<Value>| drop(value.map(|value| params.insert(name.to_owned(), value)));
    put("threadId", thread_id.map(Value::from));
    let mut body = object(body);
    if method.starts_with("turn/") {
        turn_id.map(|turn_id| body.insert("id".to_owned(), Value::from(turn_id)));
        put("turn", Some(Value::Object(body)));
    } else if matches!(method, "item/started" | "item/completed") {
        put("turnId", turn_id.map(Value::from));
        item_id.map(|item_id| body.insert("id".to_owned(), Value::from(item_id)));
        put("item", Some(Value::Object(body)));
    } else {
        put("turnId", turn_id.map(Value::from));
        put("itemId", item_id.map(Value::from));
        params.extend(body);
    }
    Value::Object(params)
}

fn object(json: &str) -> Map<String, Value> {
    match json {
        "~" => Map::new(),
        _ => serde_json::from_str(json).expect("BUG: a playbook gives objects"),
    }
}
