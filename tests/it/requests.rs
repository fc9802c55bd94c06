//! The ledger of requests through the real binary: the server's request, its answer, and its row.

use regex::Regex;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::both_ends::Live;
use crate::support::eventually;
use crate::support::requests::{
    CHANGES, CLIENT, answer, assert_nowhere, change_asked, change_started, command_asked, decision, elicitation_asked,
    parsed, permissions_asked, question_asked, refused, resolved, respond_path, turn_completed,
};

fn is_time(value: &Value) -> bool {
    let form = Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$").expect("it is a pattern");
    value.as_str().is_some_and(|text| form.is_match(text))
}

fn hashed(raw: &str) -> String {
    let digest = Sha256::digest(raw.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("h.{}", &hex[..16])
}

// Rows.

#[test]
fn requests_have_a_row_each_with_all_that_is_needed_to_decide() {
    let mut live = Live::initialized("");
    let generation = live.generation();
    let old_command = r#"{"method":"execCommandApproval","id":5,"params":{"conversationId":"c","callId":"k","command":["touch","x"],"cwd":"/w","reason":null,"parsedCmd":[]}}"#;
    let old_patch = r#"{"method":"applyPatchApproval","id":6,"params":{"conversationId":"c","callId":"k2","fileChanges":{"/w/a":{"add":{"content":"b"}}},"reason":null,"grantRoot":null}}"#;
    let asked = [
        (command_asked("0", "t"), "request_approval", "t/u/i", "touch x"),
        (change_asked("1"), "request_approval", "t/u/f", "files"),
        (permissions_asked("2"), "request_permissions", "t/u/p", "network"),
        (question_asked("3", false), "request_user_input", "t/u/q", "Which?"),
        (elicitation_asked("4"), "request_elicitation", "t/u/-", "Your name?"),
        (old_command.to_owned(), "request_approval", "c/-/k", "touch x"),
        (old_patch.to_owned(), "request_approval", "c/-/k2", "/w/a"),
        (
            r#"{"method":"new/thing","id":7,"params":{"threadId":"t"}}"#.to_owned(),
            "server_request",
            "t/-/-",
            "new/thing",
        ),
    ];
    asked.iter().for_each(|(line, ..)| live.say_plainly(line));
    let rows = live.pending();
    assert_eq!(rows.len(), asked.len(), "{rows:#?}");
    for (number, ((line, request_type, place, summary), row)) in asked.iter().zip(&rows).enumerate() {
        let asked = parsed(line);
        assert_eq!(row["request_id"], format!("{generation}-{number}"));
        assert_eq!(
            (&row["session_id"], &row["process_generation"]),
            (&live.get("/sessions/self")["session_id"], &json!(generation))
        );
        assert_eq!((&row["request_type"], &row["request_method"]), (&json!(request_type), &asked["method"]));
        assert_eq!((&row["rpc_request_id"], &row["request_payload"]), (&json!(number), &asked["params"]));
        let told = ["thread_id", "turn_id", "item_id"].map(|name| row[name].as_str().unwrap_or("-")).join("/");
        assert_eq!(told, *place, "{row:#}");
        assert!(row["summary"].as_str().is_some_and(|told| told.contains(summary)), "{row:#}");
        assert!(is_time(&row["requested_at"]), "{row:#}");
        assert_eq!((&row["status"], &row["late"]), (&json!("pending"), &json!(false)));
        for none in [
            "expires_at",
            "resolved_at",
            "resolved_payload",
            "resolution_source",
            "resolved_by",
            "dispatched_at",
            "confirmed_at",
            "error_code",
            "error_message",
        ] {
            assert_eq!(row.get(none), Some(&Value::Null), "{none}: {row:#}");
        }
    }
    let decisions = rows[0]["available_decisions"].as_array().expect("an array");
    let offered = parsed(&asked[0].0)["params"]["availableDecisions"].as_array().expect("an array").clone();
    assert!(decisions.starts_with(&offered), "{decisions:?}");
    assert!(["decline", "acceptForSession"].iter().all(|word| decisions.contains(&json!(word))), "{decisions:?}");
    assert_eq!(rows[1]["available_decisions"], json!(["accept", "acceptForSession", "decline", "cancel"]));
    assert_eq!(rows[4]["available_decisions"], json!(["accept", "decline", "cancel"]));
    assert_eq!(rows[6]["changes"], json!({"/w/a": {"add": {"content": "b"}}}));
}

#[test]
fn requests_that_are_not_for_a_human_have_no_row() {
    let mut live = Live::initialized("");
    for (id, method) in
        ["item/tool/call", "currentTime/read", "account/chatgptAuthTokens/refresh", "attestation/generate"]
            .iter()
            .enumerate()
    {
        live.say_plainly(&format!(r#"{{"method":"{method}","id":{id},"params":{{"threadId":"t"}}}}"#));
        live.answer_plainly(&answer(&id.to_string(), &json!({})));
    }
    assert_eq!(live.get("/sessions/self/codex-pending-requests?all=true"), json!({"requests": []}));
    live.end_quietly();
}

#[test]
fn requests_are_named_after_their_ids_and_types_of_ids_are_told_apart() {
    let mut live = Live::initialized("");
    let generation = live.generation();
    let forty = format!("\"{}\"", "x".repeat(40));
    let long = format!("\"{}\"", "x".repeat(41));
    let names = [
        ("0", "0".to_owned()),
        ("\"0\"", "s.0".to_owned()),
        ("-3", "-3".to_owned()),
        ("9007199254740993", "9007199254740993".to_owned()),
        ("\"a_B-9\"", "s.a_B-9".to_owned()),
        (&forty, format!("s.{}", "x".repeat(40))),
        (&long, hashed(&long)),
        ("\"a b\"", hashed("\"a b\"")),
        ("\"é\"", hashed("\"é\"")),
        ("1.5", hashed("1.5")),
    ];
    names.iter().for_each(|(id, _)| live.say_plainly(&command_asked(id, "t")));
    let rows = live.pending();
    assert_eq!(rows.len(), names.len());
    for ((id, name), row) in names.iter().zip(&rows) {
        assert_eq!(row["request_id"], format!("{generation}-{name}"));
        assert_eq!(row["rpc_request_id"], parsed(id));
        // Answered under the exact id of the request.
        live.responded(&format!("{generation}-{name}"), &decision("accept"));
        assert_eq!(live.at_server(), format!("{}\n", answer(id, &decision("accept"))));
    }
}

#[test]
fn requests_for_files_show_what_changes_whichever_is_told_first() {
    let mut live = Live::initialized("");
    live.say_plainly(&change_started());
    let before = live.asked(&change_asked("1"), "1");
    assert_eq!(live.pending()[0]["changes"], parsed(CHANGES));
    assert!(live.row(&before)["summary"].as_str().is_some_and(|told| told.contains("/w/new.txt")));
    let later = change_asked("2").replace(r#""f""#, r#""g""#);
    let after = live.asked(&later, "2");
    assert_eq!(live.row(&after)["changes"], Value::Null);
    live.say_plainly(&change_started().replace(r#""id":"f""#, r#""id":"g""#));
    let row = live.row_with(&after, "changes");
    assert_eq!(row["changes"], parsed(CHANGES));
    assert!(row["summary"].as_str().is_some_and(|told| told.contains("/w/new.txt")), "{row:#}");
}

#[test]
fn requests_are_committed_when_the_client_has_them() {
    let mut live = Live::initialized("");
    for number in 0..20 {
        live.say_plainly(&command_asked(&number.to_string(), "t"));
        // A new connection, so that only the file can answer.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let ledger = Connection::open_with_flags(live.session.join("ledger.db"), flags).expect("it is there");
        let rows: i64 = ledger
            .query_row("SELECT count(*) FROM codex_pending_requests WHERE status = 'pending' AND late = 0", [], |row| {
                row.get(0)
            })
            .expect("it can be read");
        assert_eq!(rows, number + 1);
    }
}

#[test]
fn requests_asked_again_while_they_are_open_are_one_row_and_later_another() {
    let mut live = Live::initialized("");
    let first = live.asked(&command_asked("0", "t"), "0");
    live.say_plainly(&command_asked("0", "t"));
    assert_eq!(live.pending().len(), 1);
    live.answer_plainly(&answer("0", &decision("accept")));
    live.say_plainly(&resolved("0"));
    live.row_with(&first, "confirmed_at");
    for name in ["0.2", "0.3"] {
        let again = live.asked(&command_asked("0", "t"), name);
        live.responded(&again, &decision("cancel"));
        assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("cancel"))));
        live.say_plainly(&resolved("0"));
    }
    assert_eq!(live.row(&first)["resolved_payload"], decision("accept"));
}

/// The server repeats the request after the answer was written to it, and never reports it as resolved.
#[test]
fn request_asked_again_after_dispatch_is_answered_again() {
    let mut live = Live::initialized("");
    let mut names = vec![live.asked(&command_asked("0", "t"), "0")];
    live.answer_plainly(&answer("0", &decision("accept")));
    live.row_with(&names[0], "dispatched_at");
    // By the client, whatever else the server sends between the two.
    names.push(live.asked(&command_asked("0", "t"), "0.2"));
    live.answer_plainly(&answer("0", &decision("accept")));
    live.row_with(&names[1], "dispatched_at");
    live.say_plainly(r#"{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"u","delta":"x"}}"#);
    // By an API caller.
    names.push(live.asked(&command_asked("0", "t"), "0.3"));
    assert_eq!(live.pending().len(), 1);
    live.responded(&names[2], &decision("decline"));
    assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("decline"))));
    live.row_with(&names[2], "dispatched_at");
    // Each of them has one answer, and the end of its item confirms them all.
    live.say_plainly(
        r#"{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"commandExecution","id":"i"}}}"#,
    );
    for (name, word) in names.iter().zip(["accept", "accept", "decline"]) {
        let row = live.row_with(name, "confirmed_at");
        assert_eq!((&row["resolved_payload"], &row["error_code"]), (&decision(word), &Value::Null));
        assert_eq!(live.answers(name, 1)[0]["won"], true);
    }
    live.end_quietly();
}

/// A server of today repeats an open request to a client that resumes, while the answer is on its way.
#[test]
fn replayed_request_ends_with_the_first_answer() {
    let mut live = Live::initialized("");
    let first = live.asked(&command_asked("0", "t"), "0");
    live.responded(&first, &decision("accept"));
    assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("accept"))));
    live.row_with(&first, "dispatched_at");
    let replay = live.asked(&command_asked("0", "t"), "0.2");
    live.say_plainly(&resolved("0"));
    live.row_with(&first, "confirmed_at");
    let row = live.row_with(&replay, "resolved_at");
    assert_eq!((&row["status"], &row["error_code"]), (&json!("resolved"), &json!("withdrawn_by_server")));
    assert_eq!(live.pending(), [Value::Null; 0]);
    // The server may wait for a second answer: the ledger keeps the client's as lost, and the relay forwards it.
    live.answer_plainly(&answer("0", &decision("decline")));
    assert_eq!(live.answers(&replay, 1)[0]["won"], false);
    live.end_quietly();
}

/// The server confirms the first answer only after it has asked again.
#[test]
fn late_confirmation_is_that_of_the_first_answer() {
    let mut live = Live::initialized("");
    let names = ["0", "0.2"].map(|name| {
        let name = live.asked(&command_asked("0", "t"), name);
        live.answer_plainly(&answer("0", &decision("accept")));
        live.row_with(&name, "dispatched_at");
        name
    });
    live.say_plainly(&resolved("0"));
    live.row_with(&names[0], "confirmed_at");
    assert_eq!(live.row(&names[1])["confirmed_at"], Value::Null);
    live.say_plainly(&resolved("0"));
    live.row_with(&names[1], "confirmed_at");
    live.end_quietly();
}

#[test]
fn secret_question_asked_again_is_answered_and_kept_secret() {
    let mut live = Live::initialized("");
    let secret = json!({"answers": {"color": {"answers": ["cornflower"]}}});
    for name in ["0", "0.2"] {
        let name = live.asked(&question_asked("0", true), name);
        live.answer_plainly(&answer("0", &secret));
        assert_eq!(live.row_with(&name, "dispatched_at")["resolved_payload"], json!({"omitted": "secret"}));
    }
    let home = live.end_quietly();
    assert_nowhere(&home.path(), "cornflower");
}

#[test]
fn held_request_asked_again_is_answered_at_the_socket() {
    let mut live = Live::initialized("hold = true");
    for name in ["0", "0.2"] {
        live.say_unseen(&command_asked("0", "t"));
        let row = eventually("the request", || live.pending().into_iter().next());
        let request_id = format!("{}-{name}", live.generation());
        assert_eq!(row["request_id"], request_id.as_str());
        live.responded(&request_id, &decision("accept"));
        assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("accept"))));
        live.row_with(&request_id, "dispatched_at");
    }
    live.end_quietly();
}

// Answers.

#[test]
fn requests_are_answered_by_the_client() {
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("0", "t"), "0");
    // With blanks and members that reserialization would lose.
    live.answer_plainly(r#"{ "jsonrpc":"2.0","id":0, "result":{"decision": "accept"}}"#);
    let row = live.row_with(&request_id, "dispatched_at");
    assert_eq!(
        (&row["status"], &row["resolution_source"], &row["resolved_by"]),
        (&json!("resolved"), &json!("client"), &json!(CLIENT))
    );
    assert_eq!((&row["resolved_payload"], &row["error_code"]), (&decision("accept"), &Value::Null));
    assert!(is_time(&row["resolved_at"]) && is_time(&row["dispatched_at"]) && row["confirmed_at"].is_null(), "{row:#}");
    live.say_plainly(&resolved("0"));
    assert!(is_time(&live.row_with(&request_id, "confirmed_at")["confirmed_at"]));
    let answers = live.answers(&request_id, 1);
    let told = ["source", "by", "payload", "won"].map(|name| answers[0][name].clone());
    assert_eq!(told, [json!("client"), json!(CLIENT), decision("accept"), json!(true)]);
    assert!(is_time(&answers[0]["at"]));
    assert_eq!(live.pending(), [Value::Null; 0]);
    live.end_quietly();
}

#[test]
fn requests_may_be_answered_with_an_error() {
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("\"x\"", "t"), "s.x");
    live.answer_plainly(r#"{"error":{"code":-1,"message":"no"},"id":"x"}"#);
    let row = live.row(&request_id);
    assert_eq!(
        (&row["status"], &row["resolved_payload"]),
        (&json!("resolved"), &json!({"error": {"code": -1, "message": "no"}}))
    );
}

#[test]
fn requests_are_answered_at_the_side_and_the_clients_later_answer_goes_nowhere() {
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("\"x\"", "t"), "s.x");
    let row = live.responded(&request_id, &decision("acceptForSession"));
    assert_eq!((&row["status"], &row["resolution_source"]), (&json!("resolved"), &json!("api")));
    assert_eq!(row["resolved_payload"], decision("acceptForSession"));
    let by = row["resolved_by"].as_str().expect("a text").to_owned();
    for part in [rustix::process::getuid().as_raw().to_string(), std::process::id().to_string()] {
        assert!(by.contains(&part), "{by}: {part}");
    }
    assert_eq!(live.at_server(), format!("{}\n", answer("\"x\"", &decision("acceptForSession"))));
    live.write(&format!("{}\n", answer("\"x\"", &decision("decline"))));
    live.nothing_at_server();
    let (status, document) = live.respond(&request_id, &decision("cancel"));
    assert_eq!((status, &document["idempotent"]), (200, &json!(true)), "{document}");
    assert_eq!(document["request"]["resolved_payload"], decision("acceptForSession"));
    live.say_plainly(&resolved("\"x\""));
    // After the server has confirmed it, too.
    live.write(&format!("{}\n", answer("\"x\"", &decision("accept"))));
    live.nothing_at_server();
    let answers = live.answers(&request_id, 4);
    let told = |name: &str| answers.iter().map(|answer| answer[name].clone()).collect::<Vec<_>>();
    assert_eq!(told("won"), [true, false, false, false].map(Value::from));
    assert_eq!(told("source"), ["api", "client", "api", "client"].map(Value::from));
    assert_eq!(told("payload"), ["acceptForSession", "decline", "cancel", "accept"].map(decision));
    live.end_quietly();
}

#[test]
fn requests_answered_by_the_client_stay_so() {
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("0", "t"), "0");
    live.answer_plainly(&answer("0", &decision("accept")));
    let (status, document) = live.respond(&request_id, &decision("decline"));
    assert_eq!((status, &document["ok"], &document["idempotent"]), (200, &json!(true), &json!(true)));
    let row = &document["request"];
    assert_eq!((&row["resolution_source"], &row["resolved_payload"]), (&json!("client"), &decision("accept")));
    // The client answers again, and the relay withholds its answer like any late one.
    live.write(&format!("{}\n", answer("0", &decision("cancel"))));
    live.nothing_at_server();
    let won: Vec<Value> = live.answers(&request_id, 3).iter().map(|answer| answer["won"].clone()).collect();
    assert_eq!(won, [true, false, false].map(Value::from));
}

#[test]
fn answers_name_the_tool_that_gave_them() {
    let mut live = Live::initialized("");
    for (id, header, source) in [("0", "tui", "tui"), ("1", "cli", "cli"), ("2", "client", "api"), ("3", "CLI", "api")]
    {
        let request_id = live.asked(&command_asked(id, "t"), id);
        let line = format!("POST {}\r\nX-Codex-Shim-Source: {header}", respond_path(&request_id));
        let (status, document) = live.http(&line, decision("decline").to_string().as_bytes());
        assert_eq!((status, &document["request"]["resolution_source"]), (200, &json!(source)), "{document}");
        assert_eq!(live.answers(&request_id, 1)[0]["source"], source);
        live.at_server();
    }
}

/// The server's line for an answer through the API.
#[track_caller]
fn check_answer(asked: impl Fn(&str) -> String, given: &Value, expect: &Value) {
    let mut live = Live::initialized("");
    let request_id = live.asked(&asked("8"), "8");
    let row = live.responded(&request_id, given);
    let got = live.at_server();
    assert!(got.starts_with(r#"{"id":8,"#), "{got}");
    assert_eq!((&parsed(&got)["result"], &row["resolved_payload"]), (expect, expect));
}

#[test]
fn requests_of_each_kind_are_answered_at_the_side() {
    let amendment = json!({"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "x"]}}});
    check_answer(|id| command_asked(id, "t"), &amendment, &amendment);
    check_answer(change_asked, &decision("cancel"), &decision("cancel"));
    let red = json!({"answers": {"color": {"answers": ["Red"]}}});
    for given in [json!({"answers": {"color": "Red"}}), json!({"answers": {"color": ["Red"]}}), red.clone()] {
        check_answer(|id| question_asked(id, false), &given, &red);
    }
    let granted = json!({"permissions": {"network": {"enabled": true}}, "scope": "session"});
    check_answer(permissions_asked, &granted, &granted);
    let given = json!({"action": "accept", "content": {"name": "n"}});
    check_answer(elicitation_asked, &given, &json!({"action": "accept", "content": {"name": "n"}, "_meta": null}));
    let other = |id: &str| format!(r#"{{"method":"new/thing","id":{id}}}"#);
    check_answer(other, &json!({"result": {"any": [1.5, null]}}), &json!({"any": [1.5, null]}));
    let old = |id: &str| format!(r#"{{"method":"execCommandApproval","id":{id},"params":{{"command":["x"]}}}}"#);
    check_answer(old, &decision("approved"), &decision("approved"));
}

#[test]
fn requests_are_not_answered_by_what_is_no_answer_to_them() {
    let mut live = Live::initialized("");
    let command = live.asked(&command_asked("0", "t"), "0");
    let question = live.asked(&question_asked("1", false), "1");
    let permissions = live.asked(&permissions_asked("2"), "2");
    let elicitation = live.asked(&elicitation_asked("3"), "3");
    let other = live.asked(r#"{"method":"new/thing","id":4}"#, "4");
    let bad = [
        (&command, json!({})),
        (&command, json!([])),
        (&command, json!({"decision": "accept", "answers": {}})),
        (&command, json!({"decision": "accept", "result": {}})),
        (&command, json!({"answers": {"color": "Red"}})),
        (&command, json!({"action": "accept"})),
        (&command, json!({"decision": "maybe"})),
        (&command, json!({"decision": null})),
        (&command, json!({"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["rm"]}}})),
        (&command, json!({"decision": "accept", "other": 1})),
        (&question, decision("accept")),
        (&question, json!({"answers": {"size": "Red"}})),
        (&question, json!({"answers": "Red"})),
        (&question, json!({"answers": {"color": 1}})),
        (&question, json!({"answers": {"color": [1]}})),
        (&permissions, decision("accept")),
        (&permissions, json!({"permissions": "all"})),
        (&permissions, json!({"permissions": {}, "scope": "ever"})),
        (&elicitation, decision("accept")),
        (&elicitation, json!({"action": "perhaps"})),
        (&elicitation, json!({"action": "accept", "content": {}})),
        (&elicitation, json!({"action": "accept", "content": "n"})),
        (&other, decision("accept")),
    ];
    for (request_id, given) in bad {
        let (status, document) = live.respond(request_id, &given);
        let detail = &document["detail"];
        assert_eq!((status, &detail["error_code"]), (422, &json!("invalid_response")), "{given}: {document}");
        // The message lists the valid answers, or the known members if one is unknown.
        let lists_members = detail["message"].as_str().is_some_and(|message| message.contains("expected"));
        assert!(!detail["valid"].is_null() || lists_members, "{given}: {document}");
    }
    // The request is still open, and the server has received nothing.
    live.nothing_at_server();
    assert_eq!(live.pending().len(), 5);
    assert_eq!(live.kept(&command).1, [Value::Null; 0]);
}

#[test]
fn requests_are_not_answered_by_what_cannot_be_read() {
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("0", "t"), "0");
    let post = |body: &[u8]| live.http(&format!("POST {}", respond_path(&request_id)), body);
    let (status, document) = post(b"{\"decision\":");
    assert_eq!(status, 400, "{document}");
    assert_eq!(post(b"").0, 400);
    assert_eq!(post(&vec![b' '; 2 << 20]).0, 413);
    assert_eq!(live.pending().len(), 1);
}

#[test]
fn requests_that_there_are_not_cannot_be_answered() {
    let mut live = Live::initialized("");
    let generation = live.generation();
    for request_id in ["nope", "000000000000-0", &format!("{generation}-0"), &format!("{generation}-s.0")] {
        refused(live.respond(request_id, &decision("accept")), (404, "request_not_found"));
        let path = format!("GET /sessions/self/codex-requests/{request_id}");
        refused(live.http(&path, b""), (404, "request_not_found"));
    }
    let request_id = live.asked(&command_asked("0", "t"), "0");
    let path = respond_path(&request_id).replace("self", "other");
    refused(live.http(&format!("POST {path}"), b"{\"decision\":\"accept\"}"), (404, "session_not_found"));
}

// Ends without an answer.

#[test]
fn requests_that_the_server_withdraws_are_resolved_by_it() {
    let mut live = Live::initialized("");
    let one = live.asked(&command_asked("0", "t"), "0");
    let two = live.asked(&command_asked("\"0\"", "t"), "s.0");
    let elsewhere = live.asked(&command_asked("1", "elsewhere"), "1");
    live.say_plainly(&resolved("0"));
    live.row_with(&one, "resolved_at");
    // The same id as a string is another request.
    assert_eq!(live.row(&two)["status"], "pending");
    live.say_plainly(&turn_completed("t", "u"));
    live.row_with(&two, "resolved_at");
    for request_id in [&one, &two] {
        let row = live.row(request_id);
        let told = ["status", "resolution_source", "error_code"].map(|name| row[name].clone());
        assert_eq!(told, ["resolved", "server", "withdrawn_by_server"].map(Value::from));
        assert_eq!((&row["resolved_payload"], &row["dispatched_at"]), (&Value::Null, &Value::Null));
        let (status, document) = live.respond(request_id, &decision("accept"));
        assert_eq!((status, &document["idempotent"]), (200, &json!(true)), "{document}");
    }
    live.write(&format!("{}\n", answer("0", &decision("accept"))));
    live.nothing_at_server();
    assert_eq!(live.row(&elsewhere)["status"], "pending");
}

#[test]
fn requests_answered_in_a_turn_that_ends_before_they_are_confirmed_are_uncertain() {
    let mut live = Live::initialized("");
    let by_client = live.asked(&command_asked("0", "t"), "0");
    let by_side = live.asked(&command_asked("1", "t"), "1");
    live.answer_plainly(&answer("0", &decision("accept")));
    live.responded(&by_side, &decision("accept"));
    live.at_server();
    live.say_plainly(&turn_completed("t", "u"));
    for request_id in [&by_client, &by_side] {
        let row = live.row_with(request_id, "error_code");
        assert_eq!((&row["status"], &row["error_code"]), (&json!("resolved"), &json!("outcome_unknown")), "{row:#}");
        assert_eq!((&row["resolved_payload"], &row["confirmed_at"]), (&decision("accept"), &Value::Null));
    }
}
