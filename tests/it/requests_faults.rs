//! Requests under faults and load: ends, kills, an unusable ledger, storms, races.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::both_ends::{Live, http_answer, http_asked, text, told};
use crate::support::requests::{
    PENDING, answer, command_asked, decision, parsed, question_asked, refused, resolved, respond_path,
};
use crate::support::shim::Home;
use crate::support::{PATIENCE, eventually};

/// Columns of the only row of a ledger that no process has open.
fn columns<const N: usize>(session: &Path, names: [&str; N]) -> [Option<String>; N] {
    let ledger = Connection::open(session.join("ledger.db")).expect("it is there");
    let sql = format!("SELECT {} FROM codex_pending_requests", names.join(", "));
    let row = |row: &rusqlite::Row<'_>| Ok(std::array::from_fn(|index| row.get(index).expect("a text")));
    ledger.query_row(&sql, [], row).expect("there is one row")
}

// Ends.

#[test]
fn requests_open_when_the_server_exits_are_orphaned() {
    let mut live = Live::initialized("");
    live.asked(&command_asked("0", "t"), "0");
    let session = live.session.clone();
    let (_home, stderr) = live.server_ends();
    assert_eq!(stderr, "");
    let told = columns(&session, ["status", "error_code", "resolved_payload_json", "dispatched_at"]);
    assert_eq!(told, [Some("orphaned".to_owned()), Some("server_exited".to_owned()), None, None]);
}

#[test]
fn requests_answered_before_the_server_exits_keep_their_answer() {
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("0", "t"), "0");
    live.answer_plainly(&answer("0", &decision("accept")));
    live.row_with(&request_id, "dispatched_at");
    let session = live.session.clone();
    let (_home, _) = live.server_ends();
    let [status, payload, confirmed] = columns(&session, ["status", "resolved_payload_json", "confirmed_at"]);
    assert_eq!(
        (status.as_deref(), payload.as_deref(), confirmed),
        (Some("resolved"), Some(r#"{"decision":"accept"}"#), None)
    );
}

#[test]
fn requests_open_when_the_shim_is_killed_are_orphaned_at_the_next_start() {
    let mut live = Live::initialized("");
    let open = live.asked(&command_asked("0", "t"), "0");
    let asked = live.row(&open);
    let answered = live.asked(&command_asked("1", "t"), "1");
    live.answer_plainly(&answer("1", &decision("accept")));
    live.row_with(&answered, "dispatched_at");
    let mut live = Live::start_in(live.kill()).initialize();
    assert_eq!(live.pending(), [Value::Null; 0]);
    let orphans = live.get(&format!("{PENDING}?include_orphaned=true"));
    assert_eq!(orphans["requests"].as_array().map(Vec::len), Some(1), "{orphans:#}");
    let row = &orphans["requests"][0];
    let told = ["request_id", "status", "error_code"].map(|name| row[name].clone());
    assert_eq!(told, [json!(open), json!("orphaned"), json!("server_restarted")]);
    for same in ["request_payload", "requested_at", "process_generation", "summary"] {
        assert_eq!(row[same], asked[same], "{same}");
    }
    refused(live.respond(&open, &decision("accept")), (404, "request_unavailable"));
    let row = live.row(&answered);
    assert_eq!((&row["status"], &row["resolved_payload"]), (&json!("resolved"), &decision("accept")));
    // The same id in another generation is another request.
    let anew = live.asked(&command_asked("0", "t"), "0");
    assert_ne!(anew, open);
    let orphans = live.get(&format!("{PENDING}?include_orphaned=true"));
    assert_eq!(orphans["requests"].as_array().map(Vec::len), Some(2), "{orphans:#}");
    live.nothing_at_server();
}

// An unusable ledger.

/// A home whose session has something else in the place of the ledger.
fn home_where_the_ledger_is(make: impl Fn(&Path)) -> Home {
    let home = Home::new();
    let session = home.path().join("sessions/s");
    fs::create_dir_all(&session).expect("a folder");
    make(&session.join("ledger.db"));
    home
}

fn check_unusable(make: impl Fn(&Path)) {
    let mut live = Live::start_in(home_where_the_ledger_is(make)).initialize();
    let request_id = format!("{}-0", live.generation());
    live.say_plainly(&command_asked("0", "t"));
    refused(live.http(&format!("GET {PENDING}"), b""), (503, "ledger_unavailable"));
    refused(live.http(&format!("GET /sessions/self/codex-requests/{request_id}"), b""), (503, "ledger_unavailable"));
    refused(live.respond(&request_id, &decision("decline")), (503, "ledger_unavailable"));
    // The answer was not sent, and the request is still open.
    live.answer_plainly(&answer("0", &decision("accept")));
    live.say_plainly(&resolved("0"));
    live.say_plainly(&command_asked("1", "t"));
    live.answer_plainly(&answer("1", &decision("cancel")));
    let (_home, stderr) = live.end();
    assert_eq!((stderr.lines().count(), stderr.starts_with("codex-shim: ")), (1, true), "{stderr}");
    assert!(stderr.contains("ledger.db"), "{stderr}");
}

#[test]
fn requests_pass_where_the_ledger_is_a_folder() {
    check_unusable(|ledger| fs::create_dir(ledger).expect("a folder"));
}

#[test]
fn requests_pass_where_the_ledger_is_newer() {
    check_unusable(|ledger| {
        let connection = Connection::open(ledger).expect("it can be made");
        connection.pragma_update(None, "user_version", 1_000).expect("it can be written");
    });
}

#[test]
fn requests_are_late_where_the_ledger_is_locked_and_are_kept_once_it_is_not() {
    let mut live = Live::initialized("");
    // The ledger works, and has stored a row in time.
    let in_time = live.asked(&command_asked("8", "t"), "8");
    let other = Connection::open(live.session.join("ledger.db")).expect("it is there");
    other.execute_batch("BEGIN EXCLUSIVE").expect("nobody else writes");
    let generation = live.generation();
    live.say_plainly(&command_asked("0", "t"));
    live.say_plainly(&command_asked("1", "t"));
    refused(live.respond(&format!("{generation}-1"), &decision("accept")), (503, "ledger_unavailable"));
    live.answer_plainly(&answer("0", &decision("decline")));
    other.execute_batch("ROLLBACK").expect("it is ours");
    let row = |id: &str| {
        let path = format!("GET /sessions/self/codex-requests/{generation}-{id}");
        eventually("the row", || {
            let (status, document) = live.http(&path, b"");
            (status == 200).then(|| document["request"].clone())
        })
    };
    let answered = eventually("the answer", || Some(row("0")).filter(|row| row["status"] == "resolved"));
    assert_eq!((&answered["late"], &answered["resolved_payload"]), (&json!(true), &decision("decline")));
    assert_eq!(answered["resolution_source"], "client");
    let open = row("1");
    assert_eq!((&open["late"], &open["status"]), (&json!(true), &json!("pending")));
    assert_eq!(row("8")["late"], false);
    assert_eq!(in_time, format!("{generation}-8"));
    // API callers can answer it.
    live.responded(&format!("{generation}-1"), &decision("accept"));
    assert_eq!(live.at_server(), format!("{}\n", answer("1", &decision("accept"))));
    // After a commit has worked, the next one is in time again.
    let after = live.asked(&command_asked("2", "t"), "2");
    assert_eq!(live.row(&after)["late"], false);
}

/// Somebody answers while the server does not read, and then the server wants another answer or none.
fn check_taken_back(server_says: &str) {
    let mut live = Live::deaf();
    let request_id = live.asked(&command_asked("0", "t"), "0");
    // More than a pipe holds, and read as a whole before any of it is written.
    let long = format!(r#"{{"method":"client/says","params":"{}"}}"#, "x".repeat(1 << 20));
    live.write(&format!("{long}\n"));
    eventually("that it is read", || (live.get("/sessions/self")["counters"]["client_lines"] == 1).then_some(()));
    live.responded(&request_id, &decision("accept"));
    live.say_plainly(server_says);
    let row =
        eventually("the end", || Some(live.row(&request_id)).filter(|row| row["error_code"] == "withdrawn_by_server"));
    let told = ["status", "resolution_source", "resolved_payload", "dispatched_at"].map(|name| row[name].clone());
    assert_eq!(told, [json!("resolved"), json!("server"), Value::Null, Value::Null], "{server_says}");
    assert_eq!(live.answers(&request_id, 1)[0]["won"], false);
    // Now the server reads.
    drop(live.down.take());
    live.write("{\"method\":\"last\"}\n");
    assert_eq!(live.at_server(), format!("{long}\n"));
    assert_eq!(live.at_server(), "{\"method\":\"last\"}\n", "{server_says}");
    live.kill();
}

#[test]
fn requests_that_change_or_go_before_their_answer_is_written_do_not_get_it() {
    check_taken_back(&command_asked("0", "other"));
    check_taken_back(&resolved("0"));
    check_taken_back(
        r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"interrupted","items":[]}}}"#,
    );
}

// Load.

#[test]
fn requests_come_to_the_client_in_order_three_hundred_at_once() {
    let mut live = Live::initialized("");
    let asked: Vec<String> = (0..300).map(|id| command_asked(&id.to_string(), "t")).collect();
    live.say_unseen(&asked.join("\n"));
    for line in &asked {
        assert_eq!(live.at_client(), format!("{line}\n"));
    }
    let rows = live.pending();
    let ids: Vec<&Value> = rows.iter().map(|row| &row["rpc_request_id"]).collect();
    let expect: Vec<Value> = (0..300).map(Value::from).collect();
    assert_eq!(ids, expect.iter().collect::<Vec<_>>());
    assert_eq!(live.get("/sessions/self")["pending_requests"], 300);
    let answers: Vec<String> = (0..300).map(|id| answer(&id.to_string(), &decision("accept")) + "\n").collect();
    live.write(&answers.concat());
    for line in &answers {
        assert_eq!(&live.at_server(), line);
    }
    eventually("every answer", || live.pending().is_empty().then_some(()));
}

#[test]
fn requests_keep_their_place_among_other_lines_and_the_other_direction_flows() {
    let mut live = Live::initialized("");
    let delta = |number: u32| format!(r#"{{"method":"item/agentMessage/delta","params":{{"delta":"{number}"}}}}"#);
    let mut lines = Vec::new();
    for number in 0..60 {
        lines.push(delta(number));
        lines.push(match number % 3 {
            0 => command_asked(&number.to_string(), "t"),
            1 => question_asked(&number.to_string(), false),
            _ => format!("no JSON {number}"),
        });
    }
    live.say_unseen(&lines.join("\n"));
    for number in 0..60 {
        live.answer_plainly(&format!(r#"{{"method":"client/says","params":{{"number":{number}}}}}"#));
    }
    for line in &lines {
        assert_eq!(live.at_client(), format!("{line}\n"));
    }
    assert_eq!(live.pending().len(), 40);
    live.end_quietly();
}

#[test]
fn requests_that_wait_for_a_locked_ledger_keep_what_follows_behind_them() {
    let mut live = Live::initialized("");
    live.asked(&command_asked("8", "t"), "8");
    let other = Connection::open(live.session.join("ledger.db")).expect("it is there");
    other.execute_batch("BEGIN EXCLUSIVE").expect("nobody else writes");
    let lines =
        [command_asked("0", "t"), r#"{"method":"after"}"#.to_owned(), command_asked("1", "t"), "last".to_owned()];
    live.say_unseen(&lines.join("\n"));
    // The client's lines are not blocked by it.
    live.answer_plainly(r#"{"method":"client/says"}"#);
    for line in &lines {
        assert_eq!(live.at_client(), format!("{line}\n"));
    }
    other.execute_batch("ROLLBACK").expect("it is ours");
}

#[test]
fn requests_come_to_the_client_in_order_three_hundred_at_once_while_the_ledger_is_locked() {
    let mut live = Live::initialized("");
    let generation = live.generation();
    live.asked(&command_asked("900", "t"), "900");
    let other = Connection::open(live.session.join("ledger.db")).expect("it is there");
    other.execute_batch("BEGIN EXCLUSIVE").expect("nobody else writes");
    let asked: Vec<String> = (0..300).map(|id| command_asked(&id.to_string(), "t")).collect();
    live.say_unseen(&asked.join("\n"));
    for line in &asked {
        assert_eq!(live.at_client(), format!("{line}\n"));
    }
    // Half of them are answered before any has a row.
    let answers: Vec<String> = (0..150).map(|id| answer(&id.to_string(), &decision("accept")) + "\n").collect();
    live.write(&answers.concat());
    for line in &answers {
        assert_eq!(&live.at_server(), line);
    }
    assert_eq!(live.get("/sessions/self")["pending_requests"], 151);
    other.execute_batch("ROLLBACK").expect("it is ours");
    let waiting = eventually("every row", || {
        let (status, document) = live.http(&format!("GET {PENDING}"), b"");
        let rows = document["requests"].as_array()?;
        (status == 200 && rows.len() == 151).then(|| rows.clone())
    });
    let ids: Vec<&Value> = waiting.iter().map(|row| &row["rpc_request_id"]).collect();
    let expect: Vec<Value> = [900].into_iter().chain(150..300).map(Value::from).collect();
    assert_eq!(ids, expect.iter().collect::<Vec<_>>());
    assert!(waiting[1..].iter().all(|row| row["late"] == true), "{waiting:#?}");
    for id in 0..150 {
        let row = eventually("the answer", || {
            Some(live.row(&format!("{generation}-{id}"))).filter(|row| row["status"] == "resolved")
        });
        assert_eq!((&row["late"], &row["resolved_payload"]), (&json!(true), &decision("accept")), "{row:#}");
    }
    live.nothing_at_client();
    live.nothing_at_server();
}

const RACES: usize = 1_000;

/// Number of concurrent races.
const RACES_TOGETHER: usize = 100;

/// Who answers a request first, as far as a test can control it: the client, an API caller, an API caller with a
/// varying head start, or certainly an API caller.
fn race(live: &mut Live, id: usize) -> JoinHandle<(u16, Value)> {
    let line = format!("POST {}", respond_path(&format!("{}-{id}", live.generation())));
    let of_client = format!("{}\n", answer(&id.to_string(), &decision("accept")));
    if id.is_multiple_of(4) {
        live.write(&of_client);
    }
    let stream = http_asked(&live.session, &line, decision("decline").to_string().as_bytes());
    let told = std::thread::spawn(move || http_answer(stream));
    match id % 4 {
        0 => return told,
        1 => {}
        2 => (0..(id * 7_919) % 20_000).for_each(|_| std::hint::spin_loop()),
        _ => {
            let told = told.join().expect("it is answered");
            live.write(&of_client);
            return std::thread::spawn(move || told);
        }
    }
    live.write(&of_client);
    told
}

#[test]
fn requests_answered_by_both_at_once_have_one_answer_and_all_agree_which() {
    let mut live = Live::initialized("");
    let generation = live.generation();
    for first in (0..RACES).step_by(RACES_TOGETHER) {
        let ids = first..first + RACES_TOGETHER;
        let asked: Vec<String> = ids.clone().map(|id| command_asked(&id.to_string(), "t")).collect();
        live.say_unseen(&asked.join("\n"));
        asked.iter().for_each(|line| assert_eq!(live.at_client(), format!("{line}\n")));
        let told: Vec<_> = ids.clone().map(|id| race(&mut live, id)).collect();
        let told = told.into_iter().map(|told| told.join().expect("it is answered"));
        let mut sent = BTreeMap::new();
        for _ in ids.clone() {
            let got = parsed(&live.at_server());
            let id = got["id"].as_u64().expect("a number") as usize;
            assert!(sent.insert(id, got["result"].clone()).is_none(), "two answers to {id}");
        }
        live.nothing_at_server();
        for (id, (status, document)) in ids.zip(told) {
            let request_id = format!("{generation}-{id}");
            let sent = &sent[&id];
            let is_client = *sent == decision("accept");
            assert!(!is_client || id % 4 != 3, "{id}: the side was first");
            let answers = live.answers(&request_id, 2);
            let row = live.row(&request_id);
            assert_eq!((&row["status"], &row["resolved_payload"]), (&json!("resolved"), sent), "{row:#}");
            assert_eq!(row["resolution_source"], if is_client { "client" } else { "api" });
            let won: Vec<&Value> =
                answers.iter().filter(|answer| answer["won"] == true).map(|answer| &answer["payload"]).collect();
            assert_eq!(won, [sent], "{answers:#?}");
            assert_eq!((status, &document["idempotent"]), (200, &json!(is_client)), "{document}");
            assert_eq!(&document["request"]["resolved_payload"], sent, "{document}");
        }
    }
}

#[test]
fn requests_all_have_rows_in_a_storm() {
    let mut live = Live::initialized("");
    let asked: Vec<String> = (0..5_000).map(|id| command_asked(&id.to_string(), "t")).collect();
    let mut down = live.down.as_ref().expect("the server runs").try_clone().expect("a second end");
    let lines = asked.join("\n") + "\n";
    let server = std::thread::spawn(move || down.write_all(lines.as_bytes()).expect("the relay reads"));
    for line in &asked {
        assert_eq!(live.at_client(), format!("{line}\n"));
    }
    server.join().expect("it has written");
    let ledger = Connection::open(live.session.join("ledger.db")).expect("it is there");
    let count = || -> i64 {
        ledger.query_row("SELECT count(*) FROM codex_pending_requests", [], |row| row.get(0)).expect("it can be read")
    };
    eventually("every row", || (count() == 5_000).then_some(()));
    live.nothing_at_server();
}

#[test]
fn requests_answered_right_before_the_client_ends_are_answered() {
    let mut live = Live::initialized("");
    live.asked(&command_asked("0", "t"), "0");
    live.write(&format!("{}\n", answer("0", &decision("accept"))));
    drop(live.stdin.take());
    assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("accept"))));
    let session = live.session.clone();
    let _home = live.end_quietly();
    let [status, source, dispatched] = columns(&session, ["status", "resolution_source", "dispatched_at"]);
    assert_eq!((status.as_deref(), source.as_deref(), dispatched.is_some()), (Some("resolved"), Some("client"), true));
}

#[test]
fn requests_that_no_answer_can_reach_any_more_are_not_answered() {
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("0", "t"), "0");
    drop(live.stdin.take());
    let closed = live.server.recv_timeout(PATIENCE);
    assert_eq!(closed, Err(RecvTimeoutError::Disconnected));
    let (status, document) = live.respond(&request_id, &decision("accept"));
    assert_ne!(status, 200, "{document}");
    let session = live.session.clone();
    let (_home, _) = live.server_ends();
    let told = columns(&session, ["status", "error_code"]);
    assert_eq!(told, ["orphaned", "server_exited"].map(|text| Some(text.to_owned())));
}

#[test]
fn requests_and_their_answers_are_kept_when_the_other_side_has_them_and_the_shim_is_killed() {
    let mut live = Live::initialized("");
    live.say_plainly(&command_asked("0", "t"));
    let session = live.session.clone();
    let home = live.kill();
    assert_eq!(columns(&session, ["status"]), [Some("pending".to_owned())]);
    fs::remove_file(session.join("ledger.db")).expect("it is there");
    let mut live = Live::start_in(home).initialize();
    live.say_plainly(&command_asked("0", "t"));
    live.answer_plainly(&answer("0", &decision("accept")));
    let _home = live.kill();
    let [status, payload] = columns(&session, ["status", "resolved_payload_json"]);
    assert_eq!((status.as_deref(), payload.as_deref()), (Some("resolved"), Some(r#"{"decision":"accept"}"#)));
}

#[test]
fn requests_have_rows_where_nothing_else_is_recorded() {
    let mut live = Live::initialized("record = false\n");
    let request_id = live.asked(&command_asked("0", "t"), "0");
    live.responded(&request_id, &decision("accept"));
    assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("accept"))));
}

#[test]
fn requests_that_expire_where_policy_cannot_be_written_are_orphaned() {
    let mut live = Live::initialized("[expiry]\nrequest_approval = \"50ms\"\n");
    let generation = live.generation();
    drop(live.stdin.take());
    assert_eq!(live.server.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    // The server asks at a time when nothing can be sent to it any more.
    live.say_plainly(&command_asked("0", "t"));
    let row = live.row_with(&format!("{generation}-0"), "error_code");
    assert_eq!((&row["status"], &row["error_code"]), (&json!("expired"), &json!("request_expired")), "{row:#}");
    refused(live.respond(&format!("{generation}-0"), &decision("accept")), (404, "request_unavailable"));
    let session = live.session.clone();
    let (_home, _) = live.server_ends();
    let told = columns(&session, ["status", "resolved_payload_json"]);
    assert_eq!(told, [Some("orphaned".to_owned()), None]);
}

#[test]
fn requests_that_wait_are_all_listed() {
    let mut live = Live::initialized("");
    let asked: Vec<String> = (0..1_100).map(|id| command_asked(&id.to_string(), "t")).collect();
    for some in asked.chunks(100) {
        live.say_unseen(&some.join("\n"));
        some.iter().for_each(|line| assert_eq!(live.at_client(), format!("{line}\n")));
    }
    let rows = live.pending();
    assert_eq!((rows.len(), &rows[0]["rpc_request_id"]), (1_100, &json!(0)));
}

#[test]
fn requests_that_are_large_are_listed_and_shown_whole_one_by_one() {
    const COUNT: usize = 12;
    let mut live = Live::initialized("");
    let generation = live.generation();
    let command = "x".repeat(1 << 20);
    let asked = |id: usize| command_asked(&id.to_string(), "t").replace("touch x", &command);
    (0..COUNT).for_each(|id| live.say_plainly(&asked(id)));
    for path in [PENDING.to_owned(), format!("{PENDING}?all=true")] {
        let rows = live.get(&path)["requests"].as_array().expect("an array").clone();
        let names: Vec<String> = rows.iter().map(|row| text(&row["request_id"])).collect();
        assert_eq!(names, (0..COUNT).map(|id| format!("{generation}-{id}")).collect::<Vec<_>>());
        assert_eq!(rows[0]["request_payload"], json!({"omitted": "size"}));
        assert!(rows.iter().all(|row| row["summary"].as_str().is_some_and(|told| told.starts_with("run xxx"))));
        let newest = &rows[COUNT - 1]["request_payload"];
        assert!(newest == &parsed(&asked(COUNT - 1))["params"], "the newest is whole");
        assert!(serde_json::to_vec(&rows).expect("it is JSON").len() < 9 << 20);
    }
    // A tool waits for 4 s, in which a busy machine may not have read 12 MB.
    let patiently = |args: &[&str]| {
        eventually("a reply in time", || {
            Some(live.tool(args)).filter(|output| output.status.success()).map(|output| told(&output))
        })
    };
    let listed = patiently(&["requests", "--all", "--json"]);
    assert_eq!(listed["requests"].as_array().map(Vec::len), Some(COUNT));
    let shown = patiently(&["show", "0", "--json"]);
    assert!(shown["request"]["request_payload"] == parsed(&asked(0))["params"], "the oldest is whole");
    // Repeating an answer has no effect.
    eventually("a reply in time", || live.tool(&["respond", "0", "accept"]).status.success().then_some(()));
    assert_eq!(live.at_server(), format!("{}\n", answer("0", &decision("accept"))));
    live.kill();
}
