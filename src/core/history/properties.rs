//! Recorded conversations with the real server, for tests, and properties of the fold for every recording: it can be
//! stored and resumed between any two records, and silence produces only rows that the next record would have produced.
//!
//! Test recordings in a short notation, one record per line: `MS < METHOD THREAD/TURN/ITEM {…}` is a notification, `MS
//! << METHOD PARAMETERS` one whose parameters are exactly these, `MS ?ID METHOD …` a server request, `MS >ID METHOD …` a
//! client call, `MS =ID RESULT` its result, `MS =ID !ERROR` its refusal, `MS ! EVENT {…}` our own event, `MS # REASON` a gap, and `MS generation G`
//! the first record of a run. `@CONN` after an id names its connection. `~` is a missing name; the object is placed in the turn of `turn/*` (but of a `turn/start` without a turn in its parameters), in the item of
//! `item/started` and `item/completed`, and otherwise in the parameters.

use serde_json::{Map, Value, json};

use super::conversation::{Conversation, Purpose};
use super::entry::EntryRole;
use super::entry_rows::EntryRows;
use super::rows::ToolEvent;
use super::transcript::Transcript;
use super::turn::TurnEvent;
use super::ui::UiEvent;
use super::{Fold, Rows, Seen, *};
use crate::journal::{Generation, Position, Record, SegmentName};
use crate::protocol::of_name;

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
    let (kind, conn) = kind.split_once('@').unwrap_or((kind, ""));
    let mut record = match kind.split_at(1) {
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
            let (name, answer) = rest.strip_prefix('!').map_or(("result", rest), |error| ("error", error));
            let answer: Value = serde_json::from_str(answer).expect("BUG: an answer is JSON");
            json!({"at": at, "from": "server", "line": {"id": id, name: answer}})
        }
        ("!", _) => json!({"at": at, "from": "shim", "event": name, "data": object(more)}),
        ("#", _) => json!({"at": at, "gap": {"lines": 1, "reason": rest}}),
        ("g", _) => json!({"journal": 1, "session": "s", "generation": rest, "segment": 1, "at": at, "argv": [],
            "cwd": "/", "codex": {"path": "codex"}, "shim": "0"}),
        _ => panic!("BUG: {line:?} is no line of a playbook"),
    };
    if let Ok(conn) = conn.parse::<u32>() {
        record["conn"] = json!(conn);
    }
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
    if method.starts_with("turn/") && !(method == "turn/start" && turn_id.is_none()) {
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

/// Loads a tape by name.
macro_rules! tapes {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../../fixtures/tapes/", $name, ".jsonl")))),*]
    };
}

const TAPES: &[(&str, &str)] = tapes![
    "auto_review",
    "command_approval",
    "end_in_mid_turn",
    "file_change_approval",
    "hub_tui",
    "hub_two_clients",
    "interrupt",
    "list_read_resume",
    "plain_turn",
    "question",
    "reasoning",
    "streamed_deltas"
];

fn tape(name: &str) -> &'static str {
    TAPES.iter().find(|(of, _)| *of == name).expect("BUG: a test names a tape that is there").1
}

/// Adds the notes of a current journal: requests are opened, and resolved by the client.
fn with_notes(tape: &str) -> String {
    let mut lines = Vec::new();
    let mut open: Option<String> = None;
    for line in tape.lines() {
        let record: Value = serde_json::from_str(line).expect("a tape holds JSON");
        let (said, at) = (&record["line"], &record["at"]);
        let note = |event: &str, data: Value| {
            serde_json::json!({ "at": at, "from": "shim", "event": event, "data": data }).to_string()
        };
        let is_request = record["from"] == "server" && !said["id"].is_null() && !said["method"].is_null();
        if is_request {
            let request_id = format!("000000000001-{}", said["id"]);
            lines.push(note("request_opened", serde_json::json!({ "request_id": request_id, "request_type": "x" })));
            open = Some(request_id);
        }
        lines.push(line.to_owned());
        let is_answer = record["from"] == "client" && !said["result"].is_null();
        if is_answer && let Some(request_id) = open.take() {
            let decision = &said["result"]["decision"];
            lines.push(note(
                "request_resolved",
                serde_json::json!({ "request_id": request_id, "status": "resolved", "source": "client",
                    "decision": decision, "error_code": null }),
            ));
        }
    }
    lines.join("\n")
}

fn each_seen(lines: &str, mut take: impl FnMut(&Seen<'_>)) {
    for line in lines.lines() {
        let record = Record::parse(line.as_bytes()).expect("a tape holds records");
        take(&Seen::of(&record, None));
    }
}

/// Transcript entries of the whole fold, stored and resumed between any two records.
pub(super) fn entries(lines: &str) -> EntryRows {
    let (mut fold, mut rows) = (Fold::default(), Rows::default());
    let segment = SegmentName { generation: Generation::after(None, 1, 1), number: 1 };
    let mut at = Position { segment, offset: 0 };
    each_seen(lines, |seen| {
        fold.take(&at, seen, &mut rows);
        at.offset += 1;
        let stored = serde_json::to_string(&fold).expect("plain data");
        let mut recall = Recall::of(serde_json::from_str(&stored).expect("as it was stored"));
        if recall.begins().is_some() {
            let mut before = Position { offset: 0, ..at.clone() };
            each_seen(lines, |seen| {
                if before < at {
                    recall.take(&before, seen);
                }
                before.offset += 1;
            });
        }
        let again = recall.finish();
        assert_eq!(again, fold);
        fold = again;
    });
    rows.entries
}

pub(super) fn ui_events(lines: &str) -> Vec<UiEvent> {
    let (mut fold, mut events) = (UiFold::default(), Vec::new());
    each_seen(lines, |seen| fold.take(seen, &mut events));
    events
}

fn json(event: &UiEvent) -> String {
    serde_json::to_string(event).expect("plain data")
}

/// Records from `who line` notation, one microsecond apart, starting at one millisecond.
pub(super) fn records(playbook: &str) -> String {
    let lines = playbook.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate().map(|(number, line)| {
        let at = 1_000 + number;
        let (who, said) = line.split_once(' ').unwrap_or((line, ""));
        match who {
            ">>" => format!(r#"{{"at":{at},"from":"client","line":{said}}}"#),
            "<<" => format!(r#"{{"at":{at},"from":"server","line":{said}}}"#),
            "gap" => format!(r#"{{"at":{at},"gap":{{"lines":1,"reason":"x"}}}}"#),
            event => {
                let data = if said.is_empty() { "null" } else { said };
                format!(r#"{{"at":{at},"from":"shim","event":"{event}","data":{data}}}"#)
            }
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn rebuild_gives_same_entries_once() {
    for &(name, tape) in TAPES {
        for lines in [tape.to_owned(), with_notes(tape)] {
            let once = entries(&lines);
            let count = once.iter().count();
            assert!(count >= 3, "{name}: {once:?}");
            assert_eq!(entries(&lines), once, "{name}");
            let identities: std::collections::BTreeSet<_> =
                once.iter().map(|entry| (entry.thread_id, entry.identity)).collect();
            assert_eq!(identities.len(), count, "{name}: {once:?}");
            let twice = entries(&format!("{}\n{}", lines.trim_end(), lines));
            assert_eq!(twice, once, "{name}");
            // A transcript without memory produces the same identities.
            let (mut given, mut conversation) = (EntryRows::default(), Conversation::default());
            let segment = SegmentName { generation: Generation::after(None, 1, 1), number: 1 };
            let at = Position { segment, offset: 0 };
            each_seen(&format!("{}\n{}", lines.trim_end(), lines), |seen| {
                let step = conversation.take(Purpose::Rows(&at), seen);
                Transcript::default().take(&step, &conversation, &mut given);
                if matches!(seen.event, super::RecordEvent::ShimEvent { event: "generation_ended", .. }) {
                    conversation = Conversation::default();
                }
            });
            let again: std::collections::BTreeSet<_> =
                given.iter().map(|entry| (entry.thread_id, entry.identity)).collect();
            assert_eq!(again, identities, "{name}");
        }
    }
}

#[test]
fn entries_and_events_are_self_describing_json() {
    for &(name, tape) in TAPES {
        for entry in entries(&with_notes(tape)).iter() {
            let json: Value = serde_json::from_str(entry.json).expect("an entry is JSON");
            let role: Option<EntryRole> = json["role"].as_str().and_then(of_name);
            assert!(role.is_some(), "{name}: {json}");
            assert!(entry.json.starts_with(r#"{"ts":"2026-01-01T00:00:0"#), "{name}: {json}");
            assert!(json["event"].is_string() && json["turn_id"].is_string(), "{name}: {json}");
        }
        for event in ui_events(&with_notes(tape)) {
            let json: Value = serde_json::from_str(&json(&event)).expect("an event is JSON");
            assert_eq!(json["type"], serde_json::to_value(event.kind).expect("plain data"), "{name}");
            assert!(json["ts"].is_string(), "{name}: {json}");
        }
    }
}

#[test]
fn rereading_a_thread_adds_nothing() {
    let lines = tape("list_read_resume");
    let texts = |lines: &str| {
        let entries = entries(lines);
        let texts = entries.iter().filter_map(|entry| {
            let json: Value = serde_json::from_str(entry.json).expect("an entry is JSON");
            Some(format!("{} {} {}", json["event"].as_str()?, json["role"].as_str()?, json["text"].as_str()?))
        });
        texts.collect::<Vec<_>>()
    };
    let live = ["item/completed user one", "item/completed assistant First."];
    assert_eq!(texts(lines)[..2], live);
    assert_eq!(texts(lines).len(), 4, "{:?}", texts(lines));
    // A recording that missed the conversation learns it from a thread read, once.
    let from_read: Vec<&str> = lines.lines().filter(|line| !line.contains(r#""method":"item/"#)).collect();
    assert_eq!(texts(&from_read.join("\n")), ["thread/read user one", "thread/read assistant First."]);
    // The entries are the same: equal names, equal times.
    let named = |lines: &str| {
        let entries = entries(lines);
        let message = entries.iter().take_while(|entry| !entry.json.contains("\"two\""));
        let message = message.filter(|entry| entry.json.contains("\"text\""));
        message.map(|entry| (entry.identity.to_owned(), entry.json[..34].to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(named(lines), named(&from_read.join("\n")));
}

/// `expect` is a file under `fixtures/history`.
fn check_golden(name: &str, transcript: &str, ui: &str) {
    let lines = with_notes(tape(name));
    let message: String =
        entries(&lines).iter().map(|entry| format!("{}\n  {}\n", entry.identity, entry.json)).collect();
    assert!(message == transcript, "{name}.transcript is now:\n{message}");
    let message: String = ui_events(&lines).iter().map(|event| format!("{}\n", json(event))).collect();
    assert!(message == ui, "{name}.ui is now:\n{message}");
}

#[test]
fn approved_command_matches_golden_files() {
    check_golden(
        "command_approval",
        include_str!("../../../fixtures/history/command_approval.transcript"),
        include_str!("../../../fixtures/history/command_approval.ui"),
    );
}

#[test]
fn declined_change_matches_golden_files() {
    check_golden(
        "file_change_approval",
        include_str!("../../../fixtures/history/file_change_approval.transcript"),
        include_str!("../../../fixtures/history/file_change_approval.ui"),
    );
}

/// The tapes, a recording of an older server, and cases that no tape has.
pub(super) fn recordings() -> impl Iterator<Item = (&'static str, &'static str)> {
    let early = include_str!("../../../fixtures/history/early_2026.jsonl");
    TAPES.iter().copied().chain([("early_2026", early), ("busy", BUSY)])
}

/// Cases that no tape has: requests with our notes, an item cut short by its turn, interleaved pieces of two items,
/// lost lines, and a child that dies.
const BUSY: &str = r#"{"journal":1,"session":"s","generation":"000000000001","segment":1,"at":1,"argv":[],"cwd":"/","codex":{"path":"codex"},"shim":"0"}
{"at":1000,"from":"shim","event":"generation_started","data":{"pid":1}}
{"at":2000,"from":"server","line":{"method":"turn/started","params":{"threadId":"t","turn":{"id":"0"}}}}
{"at":3000,"from":"server","line":{"method":"item/started","params":{"threadId":"t","turnId":"0","item":{"type":"commandExecution","id":"a","command":"ls","cwd":"/w"}}}}
{"at":3500,"from":"shim","event":"request_opened","data":{"request_id":"g-0","request_type":"request_approval"}}
{"at":4000,"from":"server","line":{"method":"item/commandExecution/requestApproval","id":0,"params":{"threadId":"t","turnId":"0","itemId":"a"}}}
{"at":5000,"from":"shim","event":"request_resolved","data":{"request_id":"g-0","status":"resolved","source":"client","decision":"accept","error_code":null}}
{"at":5000,"from":"client","line":{"id":0,"result":{"decision":"accept"}}}
{"at":6000,"from":"server","line":{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":0}}}
{"at":7000,"from":"server","line":{"method":"item/commandExecution/outputDelta","params":{"threadId":"t","turnId":"0","itemId":"a","delta":"one "}}}
{"at":7001,"from":"server","line":{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"0","itemId":"m","delta":"Hel"}}}
{"at":7002,"from":"server","line":{"method":"item/commandExecution/outputDelta","params":{"threadId":"t","turnId":"0","itemId":"a","delta":"two"}}}
{"at":7003,"from":"server","line":{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"0","itemId":"m","delta":"lo"}}}
{"at":400000,"from":"server","line":{"method":"item/commandExecution/outputDelta","params":{"threadId":"t","turnId":"0","itemId":"a","delta":"three"}}}
{"at":401000,"from":"server","line":{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"0","status":"interrupted","error":null}}}}
{"at":402000,"from":"server","line":{"method":"item/completed","params":{"threadId":"t","turnId":"0","item":{"type":"commandExecution","id":"a","status":"failed"}}}}
{"at":403000,"from":"shim","gap":{"lines":2,"reason":"disk full"}}
{"at":404000,"from":"server","line":{"method":"turn/started","params":{"threadId":"t","turn":{"id":"1"}}}}
{"at":405000,"from":"server","line":{"method":"item/started","params":{"threadId":"t","turnId":"1","item":{"type":"fileChange","id":"b","changes":[{"path":"/a","kind":{"type":"add"},"diff":"x\n"}]}}}}
{"at":406000,"from":"server","line":{"method":"item/fileChange/outputDelta","params":{"threadId":"t","turnId":"1","itemId":"b","delta":"x"}}}
{"at":406500,"from":"shim","event":"request_opened","data":{"request_id":"g-1","request_type":"request_approval"}}
{"at":407000,"from":"server","line":{"method":"item/fileChange/requestApproval","id":1,"params":{"threadId":"t","turnId":"1","itemId":"b"}}}
{"at":999000,"from":"shim","event":"generation_ended","data":{"exit_code":null,"signal":9}}
"#;

fn fold_with(tape: &str, mut between: impl FnMut(&mut Fold, u64, &mut Rows)) -> (Fold, Rows) {
    fold_after(tape, |fold, _, at_us, rows| between(fold, at_us, rows))
}

/// Folds a tape; `between` gets the fold and the records so far.
fn fold_after(tape: &str, mut between: impl FnMut(&mut Fold, &str, u64, &mut Rows)) -> (Fold, Rows) {
    let (mut fold, mut rows) = (Fold::default(), Rows::default());
    let mut taken = 0;
    for line in tape.lines() {
        let record = Record::parse(line.as_bytes()).expect("a tape holds records");
        let seen = Seen::of(&record, None);
        between(&mut fold, &tape[..taken], seen.at_us, &mut rows);
        fold.take(&at(taken), &seen, &mut rows);
        taken += line.len() + 1;
    }
    (fold, rows)
}

fn at(offset: usize) -> Position {
    let segment = SegmentName::parse("000000000001-001.jsonl").expect("BUG: a test gives a name");
    Position { segment, offset: offset as u64 }
}

/// Restores a stored fold, with the records it had processed.
fn taken_up(json: &str, taken: &str) -> Fold {
    let mut recall = Recall::of(serde_json::from_str(json).expect("it is as it was stored"));
    let Some(from) = recall.begins().cloned() else { return recall.finish() };
    let mut offset = 0;
    for line in taken.lines() {
        if at(offset) >= from {
            let record = Record::parse(line.as_bytes()).expect("a tape holds records");
            recall.take(&at(offset), &Seen::of(&record, None));
        }
        offset += line.len() + 1;
    }
    recall.finish()
}

fn fold_whole(tape: &str) -> (Fold, Rows) {
    fold_with(tape, |_, _, _| {})
}

/// A restored fold continues unchanged; each record is tried as a cut.
#[test]
fn fold_resumes_identically_at_any_cut() {
    for (name, tape) in recordings() {
        let (whole, rows) = fold_whole(tape);
        assert!(!rows.events.is_empty() && !rows.turns.is_empty(), "{name} leads to something");
        let mut at_record = 0;
        let (stored, stored_rows) = fold_after(tape, |fold, taken, _, _| {
            let json = serde_json::to_string(fold).expect("a fold is plain data");
            let again = taken_up(&json, taken);
            assert_eq!(again, *fold, "{name} cut at record {at_record}");
            *fold = again;
            at_record += 1;
        });
        assert_eq!(stored_rows, rows, "{name}");
        assert_eq!(stored, whole, "{name}");
    }
}

/// All kinds of text that a fold holds temporarily, each with a key; one key is streamed in pieces.
const KEYS: &str = r#"{"at":1000,"from":"shim","event":"generation_started","data":{"pid":1}}
{"at":1001,"from":"server","line":{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}}
{"at":1002,"from":"server","line":{"method":"turn/plan/updated","params":{"threadId":"t","turnId":"u","explanation":"KEY","plan":[{"step":"use KEY","status":"pending"}]}}}
{"at":1003,"from":"server","line":{"method":"item/started","params":{"threadId":"t","turnId":"u","item":{"type":"commandExecution","id":"c","command":"curl -H KEY","cwd":"/w"}}}}
{"at":1004,"from":"shim","event":"request_opened","data":{"request_id":"g-0","request_type":"request_approval"}}
{"at":1005,"from":"server","line":{"method":"item/commandExecution/requestApproval","id":0,"params":{"threadId":"t","turnId":"u","itemId":"c","command":["use","KEY"],"reason":"KEY"}}}
{"at":1006,"from":"server","line":{"method":"item/commandExecution/outputDelta","params":{"threadId":"t","turnId":"u","itemId":"c","delta":"a key: HALF"}}}
{"at":1007,"from":"server","line":{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"u","itemId":"m","delta":"I see HALF"}}}
{"at":1008,"from":"server","line":{"method":"item/commandExecution/outputDelta","params":{"threadId":"t","turnId":"u","itemId":"c","delta":"REST and more"}}}
{"at":1009,"from":"server","line":{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"u","itemId":"m","delta":"REST there"}}}
{"at":1010,"from":"server","line":{"method":"error","params":{"threadId":"t","turnId":"u","willRetry":false,"error":{"message":"no KEY"}}}}
{"at":1011,"from":"server","line":{"method":"turn/diff/updated","params":{"threadId":"t","turnId":"u","diff":"+ KEY"}}}
{"at":900000,"from":"shim","event":"request_resolved","data":{"request_id":"g-0","status":"resolved","source":"client","decision":"accept","error_code":null}}
{"at":900001,"from":"server","line":{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"commandExecution","id":"c","command":"curl -H KEY","aggregatedOutput":"FILLERKEY","status":"completed"}}}}
{"at":900002,"from":"server","line":{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"mcpToolCall","id":"n","tool":"x","arguments":{"password":"PLAIN"},"result":{"text":"KEY"},"status":"completed"}}}}
{"at":900003,"from":"server","line":{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"userMessage","id":"o","content":[{"type":"text","text":"my KEY"}]}}}}
{"at":900004,"from":"server","line":{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"failed","error":{"message":"no KEY"}}}}}
"#;

#[test]
fn stored_fold_never_contains_a_key() {
    let (key, plain) = ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "hunter2-of-nobody");
    let (half, rest) = key.split_at(30);
    // The output is cut inside the key.
    let filler = "x".repeat((64 << 10) - 20) + " ";
    let tape = KEYS.replace("HALF", half).replace("REST", rest).replace("PLAIN", plain);
    let tape = tape.replace("FILLERKEY", &format!("{key} {filler}")).replace("KEY", key);
    let (whole, rows) = fold_whole(&tape);
    let (stored, stored_rows) = fold_after(&tape, |fold, taken, _, _| {
        let json = serde_json::to_string(fold).expect("a fold is plain data");
        for hidden in [key, half, plain] {
            assert!(!json.contains(hidden), "{hidden} in {json}");
        }
        *fold = taken_up(&json, taken);
    });
    assert_eq!((&stored, &stored_rows), (&whole, &rows));
    assert_eq!(rows.entries.iter().count(), 8);
    let message = format!("{rows:?}").replace(&filler, "");
    for hidden in [key, half, plain, &key[20..]] {
        assert!(!message.contains(hidden), "{message}");
    }
    assert!(rows.entries.iter().any(|entry| entry.json.contains("my [redacted]")), "{message}");
}

#[test]
fn silence_only_emits_rows_early() {
    let mut brought = 0;
    for (name, tape) in recordings() {
        let (_, rows) = fold_whole(tape);
        let (_, with_silence) = fold_with(tape, |fold, at_us, rows| {
            let before = rows.events.len();
            fold.silence(at_us, rows);
            brought += rows.events.len() - before;
        });
        assert_eq!(with_silence, rows, "{name}");
    }
    assert!(brought > 0, "no tape was silent for long enough");
}

#[test]
fn tapes_match_expected_rows() {
    let check = |name: &str, expect: &[&str]| {
        let tape = recordings().find(|(of, _)| *of == name).expect("BUG: there is no such tape").1;
        let (_, rows) = fold_whole(tape);
        let part = |part: &Option<String>| part.clone().unwrap_or("~".to_owned());
        let tools = rows.tools.iter().map(|row| {
            let request = part(&row.request_id);
            let status = part(&row.final_status);
            format!("{} {} {request} {status} {}", row.event_type.name(), row.phase.name(), part(&row.item_type))
        });
        let turns = rows.turns.iter().map(|row| {
            let tokens = row.input_tokens.zip(row.output_tokens).map_or("~".to_owned(), |(i, o)| format!("{i}+{o}"));
            let (chars, preview, code) = (row.delta_chars, part(&row.output_preview), part(&row.error_code));
            format!("turn {} {tokens} {chars} {preview} {code}", row.event_type.name())
        });
        assert_eq!(tools.chain(turns).collect::<Vec<_>>(), expect, "{name}");
    };
    check(
        "command_approval",
        &[
            "started running ~ ~ commandExecution",
            "request_approval pre ~ ~ commandExecution",
            "completed post ~ completed commandExecution",
            "turn started ~ 0 ~ ~",
            "turn completed 20+10 7 It ran. ~",
        ],
    );
    check(
        "file_change_approval",
        &[
            "started running ~ ~ fileChange",
            "request_approval pre ~ ~ fileChange",
            "declined post ~ declined fileChange",
            "turn started ~ 0 ~ ~",
            "turn completed 20+10 11 Left alone. ~",
        ],
    );
    check(
        "question",
        &["request_user_input pre ~ ~ ~", "turn started ~ 0 ~ ~", "turn completed 20+10 10 Red it is. ~"],
    );
    check("interrupt", &["turn started ~ 0 ~ ~", "turn interrupted ~ 7 I begin ~"]);
    check("end_in_mid_turn", &["turn started ~ 0 ~ ~", "turn failed ~ 7 I begin app_server_stream_closed"]);
    check(
        "busy",
        &[
            "started running ~ ~ commandExecution",
            "request_approval pre g-0 ~ commandExecution",
            "approval_decision pre g-0 completed commandExecution",
            "output_delta running ~ ~ commandExecution",
            "interrupted post ~ interrupted commandExecution",
            "output_delta running ~ ~ commandExecution",
            "started running ~ ~ fileChange",
            "output_delta running ~ ~ fileChange",
            "request_approval pre g-1 ~ fileChange",
            "failed post ~ failed fileChange",
            "failed pre g-1 failed fileChange",
            "turn started ~ 0 ~ ~",
            "turn interrupted ~ 5 Hello ~",
            "turn started ~ 0 ~ ~",
            "turn failed ~ 0 ~ app_server_stream_closed",
        ],
    );
}

/// With any number and length of names in progress, a fold stays small and every evicted item gets an end.
#[test]
fn in_progress_state_is_bounded_and_evictions_recorded() {
    const BYTES_MAX: usize = 6 << 20;
    let text = "x".repeat(4_000);
    // Counts ends: some come before the run ends, the rest with it, none twice.
    let check = |what: &str, count: usize, lines: &dyn Fn(usize) -> String, ends: &dyn Fn(&Rows) -> usize| {
        let (mut fold, mut rows) = (Fold::default(), Rows::default());
        for number in 0..count {
            lines(number).lines().for_each(|line| take(&mut fold, number as u64, line, &mut rows));
        }
        let bytes = serde_json::to_string(&fold).expect("plain data").len();
        assert!(bytes <= BYTES_MAX, "{what}: {bytes} bytes");
        let message = ends(&rows);
        take(&mut fold, count as u64, "9 ! generation_ended", &mut rows);
        assert_eq!(ends(&rows), count, "{what}: {message} went before the end");
        message
    };
    let failed_tools = |rows: &Rows| rows.tools.iter().filter(|row| row.event_type == ToolEvent::Failed).count();
    let failed_turns = |rows: &Rows| rows.turns.iter().filter(|row| row.event_type == TurnEvent::Failed).count();
    let plans = |rows: &Rows| rows.entries.iter().filter(|entry| entry.identity.ends_with("//plan")).count();
    let tool = |id: usize| format!(r#"5 < item/started t/u/{id} {{"type":"commandExecution","command":"{text}"}}"#);
    assert!(check("tools", 700, &tool, &failed_tools) > 0);
    let ask = |id: usize| format!(r#"5 ?{id} item/commandExecution/requestApproval t/u/{id} {{"command":"{text}"}}"#);
    assert!(check("requests", 700, &ask, &failed_tools) > 0);
    let turn = |thread: usize| {
        format!("5 < turn/started {thread}/u\n5 < item/agentMessage/delta {thread}/u/m {{\"delta\":\"{text}\"}}")
    };
    assert!(check("turns", 900, &turn, &failed_turns) > 0);
    let plan = serde_json::json!([{ "step": "x".repeat(60_000), "status": "pending" }]);
    let plan =
        |thread: usize| format!("5 < turn/started {thread}/u\n5 < turn/plan/updated {thread}/u {{\"plan\":{plan}}}");
    assert!(check("plans", 60, &plan, &plans) > 0);
    // Each long name is bounded, so nothing is evicted.
    let name = "n".repeat(100_000);
    let named = |thread: usize| format!("5 < turn/started {name}{thread}/{name}");
    assert_eq!(check("names", 40, &named, &failed_turns), 0);
}
