//! Requests of the real codex, answered by the client, by an API caller, by policy, or not at all: codex behaves as the
//! row says.

use serde_json::{Value, json};

use crate::support::both_ends::text;
use crate::support::conversations::{start_thread, start_turn, start_turn_with_questions};
use crate::support::eventually;
use crate::support::model::Item;
use crate::support::real::{COMMAND, QUESTION, Real, run, says};
use crate::support::release::{Ability, Release};
use crate::support::requests::{PENDING, refused};

const CHANGE: &str = "item/fileChange/requestApproval";

/// Checks how often the command ran and how its turn ended, after the decision of the client or of an API caller.
fn check_decision(test: &str, word: &str, (ran, status): (usize, &str)) {
    for by_client in [true, false] {
        let Some(mut real) = Real::start(test, "", vec![run(), says()]) else { return };
        let (asked, row) = real.asked_by_turn(COMMAND);
        match by_client {
            true => real.peer.answer(&asked, json!({"decision": word})),
            false => real.responded(&row, &json!({"decision": word})),
        }
        real.completed(status);
        assert_eq!(real.ran(), ran, "{word}");
        let row = real.confirmed(&row);
        let source = if by_client { "client" } else { "api" };
        let told = ["status", "resolution_source", "error_code"].map(|name| row[name].clone());
        assert_eq!(told, [json!("resolved"), json!(source), Value::Null], "{row:#}");
        assert_eq!(row["resolved_payload"], json!({"decision": word}));
        assert!(row["dispatched_at"].is_string(), "{row:#}");
        real.end();
    }
}

#[test]
fn e2e_requests_accepted() {
    check_decision("e2e_requests_accepted", "accept", (1, "completed"));
}

#[test]
fn e2e_requests_declined() {
    check_decision("e2e_requests_declined", "decline", (0, "completed"));
}

#[test]
fn e2e_requests_cancelled() {
    check_decision("e2e_requests_cancelled", "cancel", (0, "interrupted"));
}

#[test]
fn e2e_requests_accepted_for_the_session_are_not_made_again() {
    let script = vec![run(), says(), run(), says()];
    let Some(mut real) = Real::start("e2e_requests_accepted_for_the_session", "", script) else { return };
    let (_, row) = real.asked_by_turn(COMMAND);
    real.responded(&row, &json!({"decision": "acceptForSession"}));
    real.completed("completed");
    start_turn(&mut real.peer, &real.thread, "again");
    real.completed("completed");
    assert_eq!(
        (real.ran(), real.get(&format!("{PENDING}?all=true"))["requests"].as_array().map(Vec::len)),
        (2, Some(1))
    );
    real.end();
}

/// If the release supports reasons, the model has received it; otherwise nothing changes.
fn heard(real: &Real, test: &str) {
    let asked = real.model.requests();
    let heard = asked.last().is_some_and(|last| last.to_string().contains("not on a friday"));
    assert_eq!(heard, !real.lab.release.lacks(test, Ability::Steering), "{asked:#?}");
}

#[test]
fn e2e_requests_declined_with_a_reason_that_the_model_then_sees() {
    let Some(mut real) = Real::start("e2e_requests_declined_with_a_reason", "", vec![run(), says()]) else { return };
    let (_, row) = real.asked_by_turn(COMMAND);
    real.responded(&row, &json!({"decision": "decline", "reason": "not on a friday"}));
    real.completed("completed");
    assert_eq!(real.ran(), 0);
    heard(&real, "e2e_requests_declined_with_a_reason");
    real.end();
}

#[test]
fn e2e_requests_cancelled_with_a_reason_that_the_model_sees_in_the_next_turn() {
    let Some(mut real) = Real::start("e2e_requests_cancelled_with_a_reason", "", vec![run(), says()]) else { return };
    let (_, row) = real.asked_by_turn(COMMAND);
    real.responded(&row, &json!({"decision": "cancel", "reason": "not on a friday"}));
    real.completed("interrupted");
    start_turn(&mut real.peer, &real.thread, "what now");
    real.completed("completed");
    heard(&real, "e2e_requests_cancelled_with_a_reason");
    real.end();
}

#[test]
fn e2e_requests_to_change_a_file_show_the_change() {
    let patch = Item::Patch("*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch");
    let Some(mut real) = Real::start("e2e_requests_to_change_a_file", "", vec![vec![patch], says()]) else { return };
    let (_, row) = real.asked_by_turn(CHANGE);
    assert!(row["changes"][0]["path"].as_str().is_some_and(|path| path.ends_with("new.txt")), "{row:#}");
    assert!(row["changes"][0]["diff"].as_str().is_some_and(|diff| diff.contains("hello")), "{row:#}");
    real.responded(&row, &json!({"decision": "accept"}));
    real.completed("completed");
    assert!(real.lab.cwd().join("new.txt").exists());
    real.confirmed(&row);
    real.end();
}

#[test]
fn e2e_requests_say_what_is_risky() {
    const TEST: &str = "e2e_requests_say_what_is_risky";
    let command = Release::under_test().command_to_be_approved("rm -rf build && echo x > /etc/codex-shim-beside");
    let patch = "*** Begin Patch\n*** Delete File: old.txt\n*** Add File: ../beside.txt\n+x\n*** End Patch";
    let script = vec![vec![command], says(), vec![Item::Patch(patch)], says()];
    let Some(mut real) = Real::start(TEST, "", script) else { return };
    std::fs::write(real.lab.cwd().join("old.txt"), "old\n").expect("a file");
    let (_, row) = real.asked_by_turn(COMMAND);
    let expect = json!(["it deletes folders with all that is in them", "it writes a file outside the folder"]);
    assert_eq!(row["warnings"], expect, "{row:#}");
    real.responded(&row, &json!({"decision": "decline"}));
    real.completed("completed");
    let (_, row) = real.asked_by_turn(CHANGE);
    assert_eq!(row["warnings"], json!(["it deletes a file", "it changes a file outside the folder"]), "{row:#}");
    real.responded(&row, &json!({"decision": "decline"}));
    real.completed("completed");
    real.end();
}

fn question() -> Vec<Item> {
    let arguments = json!({"questions": [{"id": "color", "header": "Color", "question": "Which?",
        "options": [{"label": "Red", "description": "red"}, {"label": "Blue", "description": "blue"}]}]});
    vec![Item::Call { name: "request_user_input", arguments }]
}

#[test]
fn e2e_requests_that_ask_a_question_are_answered_at_the_side() {
    if Release::under_test().lacks("e2e_requests_that_ask_a_question", Ability::Questions) {
        return;
    }
    let Some(mut real) = Real::start("e2e_requests_that_ask_a_question", "", vec![question(), says()]) else { return };
    let (_, row) = real.asked_by_turn(QUESTION);
    refused(real.respond(&row, &json!({"answers": {"size": "Red"}})), (422, "invalid_response"));
    real.responded(&row, &json!({"answers": {"color": "Vermilion"}}));
    real.completed("completed");
    let asked = real.model.requests();
    assert!(asked.last().is_some_and(|last| last.to_string().contains("Vermilion")), "{asked:#?}");
    real.end();
}

#[test]
fn e2e_requests_are_withdrawn_by_an_interruption() {
    let Some(mut real) = Real::start("e2e_requests_are_withdrawn", "", vec![run(), says()]) else { return };
    let (asked, row) = real.asked_by_turn(COMMAND);
    let gated = real.http("POST /sessions/self/input", &json!({"text": "hi"}));
    refused(gated, (409, "pending_structured_request"));
    let (status, document) = real.http("POST /sessions/self/interrupt", &Value::Null);
    assert_eq!(status, 200, "{document}");
    real.completed("interrupted");
    let row = eventually("its end", || Some(real.row(&row)).filter(|row| row["status"] != "pending"));
    let told = ["status", "resolution_source", "error_code"].map(|name| row[name].clone());
    assert_eq!(told, ["resolved", "server", "withdrawn_by_server"].map(Value::from), "{row:#}");
    // The client's answer after the withdrawal has no effect.
    real.peer.answer(&asked, json!({"decision": "accept"}));
    start_turn(&mut real.peer, &real.thread, "go on");
    real.completed("completed");
    assert_eq!(real.ran(), 0);
    real.end();
}

#[test]
fn e2e_requests_of_two_threads_wait_apart() {
    let script = vec![run(), run(), says(), says()];
    let Some(mut real) = Real::start("e2e_requests_of_two_threads", "", script) else { return };
    let (_, first) = real.asked_by_turn(COMMAND);
    let other = start_thread(&mut real.peer, &real.lab, "read-only");
    start_turn(&mut real.peer, &other, "go on");
    real.peer.wait_for_method(COMMAND);
    let rows = real.pending();
    let threads: Vec<String> = rows.iter().map(|row| text(&row["thread_id"])).collect();
    assert_eq!(threads, [real.thread.clone(), other]);
    real.responded(&rows[1], &json!({"decision": "decline"}));
    real.completed("completed");
    assert_eq!((real.row(&first)["status"].clone(), real.ran()), (json!("pending"), 0));
    real.responded(&first, &json!({"decision": "accept"}));
    real.completed("completed");
    assert_eq!(real.ran(), 1);
    real.end();
}

#[test]
fn e2e_requests_expire() {
    let config = "[expiry]\nrequest_approval = \"50ms\"\nrequest_user_input = \"50ms\"\n";
    let script = vec![run(), says(), question(), says()];
    let Some(mut real) = Real::start("e2e_requests_expire", config, script) else { return };
    for method in [COMMAND, QUESTION] {
        match method {
            QUESTION if real.lab.release.lacks("e2e_requests_expire", Ability::Questions) => continue,
            QUESTION => start_turn_with_questions(&mut real.peer, &real.lab, &real.thread, "go on"),
            _ => start_turn(&mut real.peer, &real.thread, "go on"),
        };
        real.peer.wait_for_method(method);
        real.completed("completed");
    }
    assert_eq!(real.ran(), 0);
    for row in real.get(&format!("{PENDING}?all=true"))["requests"].as_array().expect("an array") {
        let is_question = row["request_method"] == QUESTION;
        let (row, error_code) = match is_question && !real.lab.release.has(Ability::Confirmation) {
            // A question is not an item, so only the end of its turn reports its end.
            true => (row.clone(), "outcome_unknown"),
            false => (real.confirmed(row), "request_expired"),
        };
        let told = ["status", "resolution_source", "error_code"].map(|name| row[name].clone());
        assert_eq!(told, ["resolved", "policy", error_code].map(Value::from), "{row:#}");
    }
    real.end();
}

#[test]
fn e2e_requests_that_are_held_are_not_seen_by_the_client() {
    let Some(mut real) = Real::start("e2e_requests_that_are_held", "hold = true\n", vec![run(), says()]) else {
        return;
    };
    start_turn(&mut real.peer, &real.thread, "go on");
    let rows = eventually("the row", || Some(real.pending()).filter(|rows| !rows.is_empty()));
    real.responded(&rows[0], &json!({"decision": "accept"}));
    real.completed("completed");
    assert_eq!(real.ran(), 1);
    assert!(real.peer.seen.iter().all(|message| message["method"] != COMMAND));
    real.end();
}

#[test]
fn e2e_requests_beside_calls_at_the_side() {
    let Some(mut real) = Real::start("e2e_requests_beside_calls", "", vec![says(), says()]) else { return };
    start_turn(&mut real.peer, &real.thread, "hi");
    real.completed("completed");
    let (status, told) = real.http("POST /sessions/self/input", &json!({"text": "from the side"}));
    assert_eq!((status, &told["thread_id"], &told["steered"]), (200, &json!(real.thread), &json!(false)), "{told}");
    real.completed("completed");
    let asked = real.model.requests();
    assert!(asked.last().is_some_and(|last| last.to_string().contains("from the side")), "{asked:#?}");
    let (status, told) = real.http("POST /sessions/self/rpc", &json!({"method": "thread/loaded/list", "params": {}}));
    if real.lab.release.lacks("e2e_requests_beside_calls", Ability::ThreadRead) {
        assert_eq!((status, &told["error"]["code"]), (200, &json!(-32600)), "{told}");
    } else {
        assert_eq!((status, &told["result"]["data"]), (200, &json!([real.thread])), "{told}");
    }
    let (status, told) = real.http("POST /sessions/self/rpc", &json!({"method": "nope"}));
    assert!(status == 200 && told["error"]["code"].is_number(), "{told}");
    refused(real.http("POST /sessions/self/interrupt", &Value::Null), (409, "no_active_turn"));
    let gone = json!({"text": "hi", "thread_id": "01997af4-0000-7000-8000-000000000000"});
    refused(real.http("POST /sessions/self/input", &gone), (404, "thread_not_found"));
    real.end();
}
