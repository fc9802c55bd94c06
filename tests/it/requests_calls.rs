//! Around requests: settings that change their handling, secrets, reasons, and codex-shim's own calls.

use serde_json::{Value, json};

use crate::support::both_ends::{Live, command, next, turn};
use crate::support::eventually;
use crate::support::requests::{
    answer, assert_nowhere, command_asked, decision, elicitation_asked, parsed, permissions_asked, question_asked,
    refused, resolved, turn_completed, turn_started,
};

// Expiry.

const EXPIRES: &str = r#"
[expiry]
request_approval = "50ms"
request_permissions = "50ms"
request_user_input = "50ms"
request_elicitation = "50ms"
"#;

#[test]
fn requests_expire_and_policy_answers() {
    let mut live = Live::initialized(EXPIRES);
    let generation = live.generation();
    let old = |id: &str| format!(r#"{{"method":"applyPatchApproval","id":{id},"params":{{"conversationId":"c"}}}}"#);
    let asked = [
        (command_asked("0", "t"), decision("decline")),
        (question_asked("1", false), json!({"answers": {}})),
        (elicitation_asked("2"), json!({"action": "decline"})),
        (permissions_asked("3"), json!({"permissions": {}})),
        (old("4"), decision("denied")),
    ];
    for (number, (line, expect)) in asked.iter().enumerate() {
        live.say_plainly(line);
        let got = parsed(&live.at_server());
        assert_eq!(got["id"], number);
        for (name, value) in expect.as_object().expect("an object") {
            assert_eq!(&got["result"][name], value, "{got}");
        }
        let request_id = format!("{generation}-{number}");
        let row = live.row_with(&request_id, "dispatched_at");
        let told = ["status", "resolution_source", "error_code", "resolved_payload"].map(|name| row[name].clone());
        assert_eq!(told, [json!("resolved"), json!("policy"), json!("request_expired"), got["result"].clone()]);
        assert!(row["expires_at"].as_str() > row["requested_at"].as_str(), "{row:#}");
        live.say_plainly(&resolved(&number.to_string()));
        live.row_with(&request_id, "confirmed_at");
    }
    // The client's answer after that is too late.
    live.write(&format!("{}\n", answer("0", &decision("accept"))));
    live.nothing_at_server();
    let answers = live.answers(&format!("{generation}-0"), 2);
    let told: Vec<(&Value, &Value)> = answers.iter().map(|answer| (&answer["source"], &answer["won"])).collect();
    assert_eq!(told, [(&json!("policy"), &json!(true)), (&json!("client"), &json!(false))]);
}

#[test]
fn requests_of_unknown_methods_and_of_types_without_expiry_wait() {
    let mut live = Live::initialized("[expiry]\nrequest_approval = \"50ms\"\n");
    let unknown = live.asked(r#"{"method":"new/thing","id":0,"params":{"threadId":"t"}}"#, "0");
    let question = live.asked(&question_asked("1", false), "1");
    live.say_plainly(&command_asked("2", "t"));
    // A request that came later has expired.
    assert_eq!(parsed(&live.at_server())["id"], 2);
    for request_id in [unknown, question] {
        let row = live.row(&request_id);
        assert_eq!((&row["status"], &row["expires_at"]), (&json!("pending"), &Value::Null));
    }
}

#[test]
fn requests_answered_in_time_do_not_expire() {
    let mut live = Live::initialized("[expiry]\nrequest_approval = \"1h\"\n");
    let request_id = live.asked(&command_asked("0", "t"), "0");
    assert!(live.row(&request_id)["expires_at"].is_string());
    live.answer_plainly(&answer("0", &decision("accept")));
    assert_eq!(live.row(&request_id)["error_code"], Value::Null);
}

// Hold.

#[test]
fn requests_that_are_held_are_answered_at_the_side_only() {
    let mut live = Live::initialized("hold = true\n");
    live.say_unseen(&command_asked("0", "t"));
    live.say_unseen(&question_asked("1", false));
    // The client's next line is the one after them: lines that are not for a human pass.
    live.say_plainly(r#"{"method":"item/tool/call","id":2,"params":{"threadId":"t"}}"#);
    live.say_plainly(r#"{"method":"new/thing","id":3,"params":{}}"#);
    live.say_plainly(&turn_started("t", "u"));
    let rows = eventually("the rows", || Some(live.pending()).filter(|rows| rows.len() == 3));
    let request_id = rows[0]["request_id"].as_str().expect("a name").to_owned();
    live.responded(&request_id, &decision("accept"));
    assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("accept"))));
}

#[test]
fn requests_that_are_held_expire_too() {
    let mut live = Live::initialized("hold = true\n[expiry]\nrequest_approval = \"50ms\"\n");
    live.say_unseen(&command_asked("0", "t"));
    assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("decline"))));
    live.nothing_at_client();
}

// Secrets.

const SECRET: &str = "hunter2-is-nowhere";

#[test]
fn requests_for_a_secret_get_it_and_nothing_keeps_it() {
    let mut live = Live::initialized("");
    let given = json!({"answers": {"color": {"answers": [SECRET]}}});
    let by_client = live.asked(&question_asked("0", true), "0");
    live.answer_plainly(&answer("0", &given));
    let by_side = live.asked(&question_asked("1", true), "1");
    live.responded(&by_side, &given);
    assert_eq!(parsed(&live.at_server()), json!({"id": 1, "result": given}));
    // Late answers and an invalid answer contain the secret as well.
    live.write(&format!("{}\n{}\n", answer("0", &given), answer("1", &given)));
    live.nothing_at_server();
    live.respond(&by_client, &given);
    live.respond(&by_side, &given);
    let asked = live.asked(&question_asked("2", true), "2");
    refused(live.respond(&asked, &json!({"answers": {SECRET: SECRET}})), (422, "invalid_response"));
    for (request_id, count) in [(&by_client, 3), (&by_side, 3)] {
        assert_eq!(live.row(request_id)["resolved_payload"], json!({"omitted": "secret"}));
        for answer in live.answers(request_id, count) {
            assert_eq!(answer["payload"], json!({"omitted": "secret"}));
        }
    }
    assert_nowhere(&live.session, SECRET);
    let session = live.session.clone();
    let _home = live.end_quietly();
    assert_nowhere(&session, SECRET);
}

#[test]
fn secret_fields_of_a_form_are_kept_nowhere() {
    let asked = |id: &str| {
        let schema = json!({"type": "object", "properties": {
            "user": {"type": "string"}, "a": {"type": "string", "format": "password"}, "api_key": {"type": "string"},
        }});
        json!({"method": "mcpServer/elicitation/request", "id": id.parse::<u64>().expect("a number"), "params": {
            "threadId": "t", "turnId": "u", "serverName": "s", "mode": "form", "message": "Who?", "requestedSchema": schema,
        }})
        .to_string()
    };
    let content = json!({"user": "me", "a": SECRET, "api_key": SECRET});
    let given = json!({"action": "accept", "content": content});
    let mut live = Live::initialized("");
    let by_client = live.asked(&asked("0"), "0");
    live.answer_plainly(&answer("0", &given));
    let by_side = live.asked(&asked("1"), "1");
    live.responded(&by_side, &given);
    assert_eq!(parsed(&live.at_server())["result"]["content"], content);
    // The ledger stores late answers as well.
    live.write(&format!("{}\n{}\n", answer("0", &given), answer("1", &given)));
    live.nothing_at_server();
    live.respond(&by_client, &given);
    live.respond(&by_side, &given);
    for request_id in [&by_client, &by_side] {
        let kept = live.row(request_id)["resolved_payload"].clone();
        assert_eq!((&kept["action"], &kept["content"]["user"]), (&json!("accept"), &json!("me")), "{kept}");
        assert_eq!(live.answers(request_id, 3).len(), 3);
    }
    let (session, journal) = (live.session.clone(), crate::support::journal::Journal::read(&live.session));
    let masked = journal.texts.iter().filter(|text| text.ends_with(r#","masked":true}"#)).count();
    assert_eq!(masked, 4, "{:#?}", journal.texts);
    assert_nowhere(&session, SECRET);
    let _home = live.end_quietly();
    assert_nowhere(&session, SECRET);
}

// Reasons.

/// Checks the server's view of a reason that precedes a turn.
fn assert_ahead_of_turn(live: &mut Live, thread: &str, reason: &str) {
    let sent = turn(90, thread, "hi");
    let ahead = parsed(&live.send(&sent));
    assert_eq!((&ahead["method"], &ahead["params"]["threadId"]), (&json!("thread/inject_items"), &json!(thread)));
    assert!(ahead["id"].as_str().is_some_and(|id| id.starts_with("codex-shim:")), "{ahead}");
    assert!(ahead["params"]["items"].to_string().contains(reason), "{ahead}");
    assert_eq!(live.at_server(), format!("{sent}\n"));
    live.say_unseen(&format!(r#"{{"id":{},"result":{{}}}}"#, ahead["id"]));
    // A client that subscribes to raw events sees every message that goes into a history, except this one.
    let raw = |item: &Value| json!({"method": "rawResponseItem/completed", "params": {"threadId": thread, "turnId": "u90", "item": item}});
    live.say_unseen(&raw(&ahead["params"]["items"][0]).to_string());
    live.take_turn(90);
    // The same text from a user in a later turn is forwarded.
    live.say_plainly(&turn_completed(thread, "u90"));
    live.say_plainly(&raw(&ahead["params"]["items"][0]).to_string());
    // The relay suppresses it only once.
    live.answer_plainly(&turn(91, thread, "hi"));
}

#[test]
fn requests_declined_with_a_reason_tell_it_in_the_same_breath() {
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("t", "u"));
    let request_id = live.asked(&command_asked("0", "t"), "0");
    let row = live.responded(&request_id, &json!({"decision": "decline", "reason": "not on a friday"}));
    assert_eq!(row["resolved_payload"], decision("decline"));
    assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("decline"))));
    let steer = parsed(&live.at_server());
    assert_eq!((&steer["method"], &steer["params"]["threadId"]), (&json!("turn/steer"), &json!("t")));
    assert_eq!(steer["params"]["expectedTurnId"], "u");
    assert_eq!(steer["params"]["input"][0]["text"], "not on a friday");
    live.say_unseen(&format!(r#"{{"id":{},"result":{{"turnId":"u"}}}}"#, steer["id"]));
    live.nothing_at_client();
    live.answer_plainly(&turn(9, "t", "hi"));
}

#[test]
fn requests_whose_reason_is_refused_tell_it_ahead_of_the_next_turn() {
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("t", "u"));
    let request_id = live.asked(&command_asked("0", "t"), "0");
    live.responded(&request_id, &json!({"decision": "decline", "reason": "not on a friday"}));
    live.at_server();
    let steer = parsed(&live.at_server());
    live.say_unseen(&format!(r#"{{"id":{},"error":{{"code":-32600,"message":"no active turn"}}}}"#, steer["id"]));
    live.nothing_at_client();
    // A turn of another thread does not carry the reason.
    live.answer_plainly(&turn(8, "elsewhere", "hi"));
    assert_ahead_of_turn(&mut live, "t", "not on a friday");
}

#[test]
fn requests_cancelled_with_a_reason_tell_it_ahead_of_the_next_turn() {
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("t", "u"));
    let request_id = live.asked(&command_asked("0", "t"), "0");
    live.responded(&request_id, &json!({"decision": "cancel", "reason": "not on a friday"}));
    assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("cancel"))));
    live.nothing_at_server();
    live.say_plainly(&turn_completed("t", "u"));
    assert_ahead_of_turn(&mut live, "t", "not on a friday");
}

#[test]
fn requests_whose_reason_nobody_takes_say_that_it_was_not_told() {
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("t", "u"));
    let request_id = live.asked(&command_asked("0", "t"), "0");
    live.responded(&request_id, &json!({"decision": "cancel", "reason": "not on a friday"}));
    live.at_server();
    let ahead = parsed(&live.send(&turn(9, "t", "hi")));
    live.at_server();
    live.say_unseen(&format!(r#"{{"id":{},"error":{{"code":-32600,"message":"unknown variant"}}}}"#, ahead["id"]));
    live.take_turn(9);
    // The reason is sent only once.
    live.answer_plainly(&turn(10, "t", "hi"));
    let (_home, stderr) = live.end();
    assert!(stderr.starts_with("codex-shim: ") && stderr.contains("did not reach the model"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn requests_are_refused_a_reason_with_anything_but_a_refusal() {
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("0", "t"), "0");
    let given = json!({"decision": "accept", "reason": "because"});
    refused(live.respond(&request_id, &given), (422, "invalid_response"));
}

#[test]
fn requests_answered_by_another_tell_no_reason_of_who_came_later() {
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("t", "u"));
    let request_id = live.asked(&command_asked("0", "t"), "0");
    live.answer_plainly(&answer("0", &decision("accept")));
    let (status, document) = live.respond(&request_id, &json!({"decision": "decline", "reason": "not on a friday"}));
    assert_eq!((status, &document["idempotent"]), (200, &json!(true)), "{document}");
    live.nothing_at_server();
    live.answer_plainly(&turn(9, "t", "hi"));
}

// Our own calls.

/// Answers a call of ours; the client receives none of it.
fn answer_own(live: &mut Live, call: &Value, outcome: &str) {
    assert!(call["id"].as_str().is_some_and(|id| id.starts_with("codex-shim:")), "{call}");
    live.say_unseen(&format!(r#"{{"id":{},{outcome}}}"#, call["id"]));
    live.nothing_at_client();
}

#[test]
fn requests_gate_input_to_their_thread_and_to_no_other() {
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("t", "u"));
    let request_id = live.asked(&command_asked("0", "t"), "0");
    for body in [json!({"text": "hi", "thread_id": "t"}), json!({"text": "hi"})] {
        let detail = refused(live.post_to("input", &body), (409, "pending_structured_request"));
        let pending = &detail["pending_request"];
        assert_eq!(
            (&pending["request_id"], &pending["request_type"]),
            (&json!(request_id), &json!("request_approval"))
        );
        assert_eq!(pending["requested_at"], live.row(&request_id)["requested_at"]);
    }
    live.nothing_at_server();
    let posted = live.posted("input", &json!({"text": "hi", "thread_id": "elsewhere"}));
    let call = parsed(&live.at_server());
    answer_own(&mut live, &call, r#""result":{"turn":{"id":"v"}}"#);
    let told = json!({"turn_id": "v", "thread_id": "elsewhere", "steered": false});
    assert_eq!(posted.join().expect("it is answered"), (200, told));
    // The client's own calls and an interruption are not gated, nor is input after the answer.
    live.answer_plainly(&turn(9, "t", "hi"));
    let posted = live.posted("interrupt", &json!({"thread_id": "t"}));
    let call = parsed(&live.at_server());
    assert_eq!(
        (&call["method"], &call["params"]),
        (&json!("turn/interrupt"), &json!({"threadId": "t", "turnId": "u"}))
    );
    answer_own(&mut live, &call, r#""result":{}"#);
    assert_eq!(posted.join().expect("it is answered").0, 200);
    live.responded(&request_id, &decision("decline"));
    live.at_server();
    let posted = live.posted("input", &json!({"text": "hi"}));
    let call = parsed(&live.at_server());
    answer_own(&mut live, &call, r#""result":{"turn":{"id":"u"}}"#);
    let told = json!({"turn_id": "u", "thread_id": "t", "steered": true});
    assert_eq!(posted.join().expect("it is answered"), (200, told));
}

#[test]
fn requests_of_unknown_methods_gate_nothing() {
    let mut live = Live::initialized("");
    live.asked(r#"{"method":"new/thing","id":0,"params":{"threadId":"t"}}"#, "0");
    let posted = live.posted("input", &json!({"text": "hi", "thread_id": "t"}));
    let call = parsed(&live.at_server());
    assert_eq!(call["params"]["input"][0]["text"], "hi");
    answer_own(&mut live, &call, r#""result":{"turn":{"id":"v"}}"#);
    assert_eq!(posted.join().expect("it is answered").0, 200);
}

#[test]
fn requests_beside_input_that_carries_context() {
    let mut live = Live::initialized("");
    live.push(&command("make"), 1);
    let posted = live.posted("input", &json!({"text": "hi", "thread_id": "t"}));
    let call = parsed(&live.at_server());
    assert_eq!((&call["method"], &call["params"]["threadId"]), (&json!("turn/start"), &json!("t")));
    let says = call["params"]["input"][0]["text"].as_str().expect("a text");
    assert!(says.starts_with("\u{1e}CODEX_META {") && says.ends_with("\u{1f}hi") && says.contains("make!"), "{says}");
    answer_own(&mut live, &call, r#""result":{"turn":{"id":"v"}}"#);
    assert_eq!(posted.join().expect("it is answered").0, 200);
    eventually("its delivery", || live.waiting().is_empty().then_some(()));
    assert_eq!(live.outcomes(), ["delivered"]);
}

#[test]
fn requests_beside_input_and_interruption_that_cannot_be() {
    let mut live = Live::start();
    for path in ["input", "interrupt", "rpc"] {
        let body = if path == "rpc" { json!({"method": "x"}) } else { json!({"text": "hi", "thread_id": "t"}) };
        let body = if path == "interrupt" { json!({"thread_id": "t"}) } else { body };
        refused(live.post_to(path, &body), (503, "not_ready"));
    }
    live = live.initialize();
    refused(live.post_to("input", &json!({"text": "hi"})), (404, "thread_not_found"));
    refused(live.http("POST /sessions/self/interrupt", b""), (404, "thread_not_found"));
    refused(live.post_to("interrupt", &json!({"thread_id": "t"})), (404, "thread_not_found"));
    live.say_plainly(&turn_started("t", "u"));
    live.say_plainly(&turn_completed("t", "u"));
    refused(live.post_to("interrupt", &json!({"thread_id": "t"})), (409, "no_active_turn"));
    refused(live.http("POST /sessions/self/interrupt", b""), (409, "no_active_turn"));
    for words in ["thread not found: gone", "conversation not found: gone"] {
        let posted = live.posted("input", &json!({"text": "hi", "thread_id": "gone"}));
        let call = parsed(&live.at_server());
        answer_own(&mut live, &call, &format!(r#""error":{{"code":-32600,"message":"{words}"}}"#));
        refused(posted.join().expect("it is answered"), (404, "thread_not_found"));
    }
}

#[test]
fn requests_beside_calls_of_any_method() {
    let mut live = Live::initialized("");
    for outcome in [r#""result":{"any":[1,null]}"#, r#""error":{"code":-32601,"message":"no such method"}"#] {
        let posted = live.posted("rpc", &json!({"method": "x/y", "params": {"a": 1}}));
        let call = parsed(&live.at_server());
        assert_eq!((&call["method"], &call["params"]), (&json!("x/y"), &json!({"a": 1})));
        answer_own(&mut live, &call, outcome);
        let told = parsed(&format!("{{{outcome}}}"));
        assert_eq!(posted.join().expect("it is answered"), (200, told));
    }
    refused(live.post_to("rpc", &json!({"method": "x/y", "timeout_ms": 1})), (504, "timeout"));
    let call = parsed(&live.at_server());
    assert_eq!(call.get("params"), None, "{call}");
    // A later answer has no receiver.
    answer_own(&mut live, &call, r#""result":{}"#);
    let (status, document) = live.post_to("rpc", &json!({"method": "initialize", "params": {}}));
    assert!((400..500).contains(&status), "{document}");
    live.nothing_at_server();
    // No call waits forever for a server that has ended.
    let posted = live.posted("rpc", &json!({"method": "x/y"}));
    next(&live.server, "the call");
    drop(live.server_ends());
    let (status, document) = posted.join().expect("it is answered");
    assert_eq!(status, 503, "{document}");
}
