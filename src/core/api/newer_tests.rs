//! Documents of a newer relay: a word that this version does not know hides nothing, wherever it stands.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

const WORD: &str = "of-tomorrow";

/// The paths of all texts in a document.
fn texts(document: &Value, path: &str, found: &mut Vec<String>) {
    match document {
        Value::String(_) => found.push(path.to_owned()),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| texts(item, &format!("{path}/{at}"), found));
        }
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| texts(member, &format!("{path}/{name}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads a document with the word in the place of each of its texts, and checks that nothing is lost.
fn check<T: DeserializeOwned + Serialize>(document: &Value) {
    let read = |document: &Value| {
        let read: T = serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{error}: {document:#}"));
        json!(read)
    };
    assert_eq!(read(document), *document, "the sample is whole");
    let mut paths = Vec::new();
    texts(document, "", &mut paths);
    for path in paths {
        let mut newer = document.clone();
        *newer.pointer_mut(&path).expect("BUG: it is there") = json!(WORD);
        // Settings of a delivery are read whole or not at all.
        if path == "/config/context/carrier" {
            newer["config"].as_object_mut().expect("BUG: it is one").remove("context");
        }
        let mut sent = document.clone();
        *sent.pointer_mut(&path).expect("BUG: it is there") = json!(WORD);
        assert_eq!(read(&sent), newer, "{path}");
    }
}

fn thread() -> Value {
    json!({
        "thread_id": "t", "activity_state": "working", "since": "2026", "turn_id": "u", "pending": 1, "last_action": "a",
        "first_words": "w", "stalled_since": "2026", "kind": "user", "title": "x", "cwd": "/w",
        "place": { "folder": "w", "repository": "/w", "branch": "main", "remote": "example.org/w" },
        "client": { "name": "tui", "version": "1", "terminal": "pts/3", "pid": 7 }, "model": "m", "parent": "p",
        "forked_from": "f", "refuses_input": false, "started_at": "2026", "last_used_at": "2026",
    })
}

fn session() -> Value {
    let counted = json!(Counters::default());
    let engine = json!({
        "running": true, "id": "e", "name": "n", "version": "1", "pid": 7, "ends": 1, "last_end": "why",
        "calls": [{ "method": "m", "outcome": "o", "count": 1, "ms": 2 }],
    });
    let context = json!(crate::engine::ContextSettings { mcp: Some(vec!["m".to_owned()]), ..Default::default() });
    json!({
        "session_id": "s", "state": "idle", "activity_state": "idle", "state_since": "2026", "generation": "g",
        "socket": "/s", "child": { "pid": 7, "codex_version": "1" }, "client": { "name": "tui", "version": "1" },
        "threads": [thread()], "pending_requests": 1, "context_waiting": 0, "journal": { "bytes": 1, "gaps": 0 },
        "index": json!(IndexDocument { epoch: Some("e".to_owned()), ..IndexDocument::default() }), "context_engine": engine,
        "config": { "loaded_at": "2026", "restart_needed": ["s"], "error": "e", "context": context },
        "config_warnings": [{ "what": "w", "path": "/p", "is_broken": false, "since": "2026" }],
        "server": { "pid": 7, "version": "1", "socket": "/s", "started_at": "2026", "adopted": true, "draining": false },
        "sockets": [{ "path": "/s", "fault": "f" }],
        "connections": [{
            "conn": 1, "client": { "name": "tui", "version": "1" }, "transport": "websocket", "since": "2026",
            "threads": ["t"], "waiting_bytes": 0, "pid": 7, "terminal": "pts/3",
        }],
        "environments": [{
            "thread_id": "t", "client": { "name": "tui", "version": "1" }, "terminal": "pts/3", "variables": ["PATH"],
        }],
        "faults": [{ "what": "w", "since": "2026" }], "counters": counted, "started_at": "2026",
    })
}

#[test]
fn words_of_a_newer_relay_hide_no_session() {
    check::<SessionDocument>(&session());
    check::<ActivityDocument>(&json!({ "activity_state": "idle", "since": "2026", "threads": [thread()] }));
    check::<ListedSession>(&json!({
        "session_id": "s", "short_id": "s", "name": "n", "live": true, "state": "idle", "since": "2026", "cwd": "/w",
        "pid": 7,
    }));
}

#[test]
fn words_of_a_newer_relay_hide_no_action() {
    check::<ActionsDocument>(&json!({ "actions": [{
        "action_kind": "command", "ended_at": "2026", "item_id": "i", "session_id": "s", "source_provider": "p",
        "started_at": "2026", "status": "running", "summary_text": "Started: x", "thread_id": "t", "turn_id": "u",
    }] }));
    let page = |rows: Value| {
        json!({
            "events": [rows], "earliest_id": 1, "latest_id": 2, "next_id": 3, "history_gap": true,
            "gap_reason": "retention", "epoch": "e",
        })
    };
    check::<RowPage<ToolRowDocument>>(&page(json!({
        "approval_decision": "accept", "command": "c", "created_at": "2026", "cwd": "/w", "diff_summary": "d",
        "error_code": "e", "error_message": "m", "event_type": "started", "exit_code": 1, "file_path": "/p",
        "final_status": "s", "id": 1, "item_id": "i", "item_type": "t", "latency_ms": 1, "phase": "p",
        "raw_payload": { "x": "y" }, "request_id": "r", "session_id": "s", "thread_id": "t", "turn_id": "u",
    })));
    check::<RowPage<TurnRowDocument>>(&page(json!({
        "created_at": "2026", "delta_chars": 1, "error_code": "e", "error_message": "m", "event_type": "started",
        "id": 1, "input_tokens": 1, "latency_ms": 1, "output_preview": "p", "output_tokens": 1,
        "raw_payload": { "x": "y" }, "session_id": "s", "status": "s", "thread_id": "t", "turn_id": "u",
    })));
}

#[test]
fn words_of_a_newer_relay_hide_no_event() {
    let event = json!({
        "session_id": "s", "seq": 1, "timestamp": "2026", "event_type": "turn/started", "thread_id": "t",
        "turn_id": "u", "item_id": "i", "payload_preview": { "x": "y" }, "generation": "g", "delta_count": 1,
        "key": "k", "persisted": true, "epoch": "e",
    });
    let page = json!({
        "events": [event], "earliest_seq": 1, "latest_seq": 2, "next_seq": 3, "history_gap": true,
        "gap_reason": "new_epoch", "epoch": "e",
    });
    check::<EventPage<EventDocument>>(&page);
    check::<EventPage<Verbatim<EventDocument>>>(&page);
    let entry = |role: &str, members: Value| {
        let mut entry = json!({ "ts": "2026", "role": role, "item_id": "i", "event": "e", "turn_id": "u" });
        members.as_object().into_iter().flatten().for_each(|(name, value)| entry[name] = value.clone());
        entry
    };
    let review = json!({ "review_id": "r", "status": "denied", "action": "a", "subject": "s", "risk_level": "high" });
    let approval = entry("approval", json!({ "kind": "auto_review", "status": "denied", "review": review }));
    let mut paths = Vec::new();
    texts(&approval, "", &mut paths);
    for path in paths.into_iter().filter(|path| path != "/role") {
        let mut newer = approval.clone();
        *newer.pointer_mut(&path).expect("BUG: it is there") = json!(WORD);
        let read = Entry::read(&newer.to_string()).expect("it can be read");
        assert!(matches!(read.content, Content::Approval(_)), "{path}: {read:?}");
        assert_eq!(json!(read).pointer(&path), Some(&json!(WORD)), "{path}");
    }
}

#[test]
fn words_of_a_newer_relay_hide_no_request() {
    let request = json!(Request::from(json!({
        "request_id": "r", "request_method": "m", "request_type": "t", "status": "pending", "summary": "s",
        "process_generation": "g", "requested_at": "2026", "session_id": "s", "item_id": "i", "resolved_by": "b",
        "resolution_source": "api", "error_code": "e", "thread_id": "t", "turn_id": "u", "left_out": "x", "name": "n",
        "thread": json!(serde_json::from_value::<ThreadIdentityDocument>(thread()).expect("BUG: it is one")),
        "session": { "client": "c", "cwd": "/w", "live": true, "name": "n", "session_id": "s" },
    })));
    let answers = json!([{ "at": "2026", "by": "b", "payload": { "x": "y" }, "source": "api", "won": true }]);
    check::<RequestDocument>(&json!({ "answers": answers, "request": request }));
    check::<Responded>(&json!({ "idempotent": true, "ok": true, "request": request }));
    check::<ContextDocument>(&json!({ "commands": [{
        "id": 1, "cmd": "c", "exit_code": 1, "cwd": "/w", "block_id": "b", "ts": 1,
        "preview": { "lines": ["l"], "truncated": true }, "shell_id": "s", "source": "hook", "duration_ms": 1,
        "conversation_id": "c", "thread_id": "t",
    }], "total_commands_run": 1 }));
    check::<ReviewsDocument>(&json!({ "reviews": [{
        "cwd": "/w", "decided_at": "2026", "file_path": "/p", "item_id": "i", "overruled_at": "2026", "reason": "r",
        "review_id": "r", "risk_level": "high", "session_id": "s", "started_at": "2026", "status": "denied",
        "subject": "s", "thread_id": "t", "turn_id": "u",
    }] }));
    check::<TurnReply>(&json!({ "steered": true, "thread_id": "t", "turn_id": "u" }));
}

#[test]
fn words_of_a_newer_relay_hide_no_uses_of_clients() {
    check::<ClientUsesDocument>(&json!({ "uses": [{
        "client": "c", "version": "1", "kind": "call", "method": "turn/start", "member": "input[].type", "value": "\"text\"",
        "count": 7, "last_used_at": "2026",
    }] }));
}

#[test]
fn words_of_a_newer_relay_hide_no_usage() {
    let (tokens, used) = (json!(Tokens::default()), json!(Used::default()));
    let mut turn = json!({
        "thread_id": "t", "turn_id": "u", "client": "c", "model": "m", "began_at": "2026", "outcome": "completed", "older": false,
    });
    turn.as_object_mut().expect("BUG: it is one").extend(used.as_object().expect("BUG: it is one").clone());
    check::<UsageDocument>(&json!({
        "counted_since": "2026", "from_start": true, "turns": [turn],
        "threads": [{
            "thread_id": "t", "codex_total": tokens, "turns": tokens, "before_record": tokens, "not_on_record": tokens,
            "set_back": tokens, "adds_up": true,
        }],
        "rate_limits": [{
            "name": "n", "told_at": "2026", "used_percent": 7, "window_minutes": 300, "resets_at": "2026",
        }],
        "identities": json!(Identities::default()),
    }));
    let carried = json!({ "at": "2026", "thread_id": "t", "carrier": "envelope", "text": "x" });
    let with = |more: Value| {
        let mut document = carried.clone();
        document.as_object_mut().expect("BUG: it is one").extend(more.as_object().expect("BUG: it is one").clone());
        document
    };
    let delivery = with(json!({ "turn_id": "u", "outcome": "sent" }));
    check::<DeliveriesDocument>(&json!({ "deliveries": [delivery] }));
    let fragment = with(json!({ "name": "n", "role": "user", "stale": true }));
    check::<FragmentsDocument>(&json!({ "threads": [{ "thread_id": "t", "fragments": [fragment] }] }));
}
