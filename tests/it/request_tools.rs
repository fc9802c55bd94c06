//! The request tools through the real binary: requests are listed, shown and answered from a second terminal.

use std::io::{Read as _, Write as _};
use std::process::{Child, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, lines_of, next, text, told, tool};
use crate::support::requests::command_asked;
use crate::support::shim::Home;
use crate::support::{eventually, stop};

/// A server's request to run a command.
pub fn command(id: u32, command: &str) -> String {
    format!(
        r#"{{"id":{id},"method":"item/commandExecution/requestApproval","params":{{"threadId":"t","turnId":"u1","itemId":"i{id}","command":"{command}","cwd":"/work","reason":"to see","availableDecisions":["accept",{{"x":["y"]}}]}}}}"#
    )
}

const QUESTION: &str = r#"{"id":7,"method":"item/tool/requestUserInput","params":{"threadId":"t","turnId":"u1","itemId":"i7","questions":[{"id":"color","header":"Color","question":"Which?","isSecret":false,"options":[{"label":"Red","description":"warm"}]}]}}"#;

/// A relay whose server is initialized and runs turn `u1` in thread `t`.
pub fn in_turn() -> Live {
    Live::start().in_turn()
}

pub fn end_turn(live: &mut Live) {
    live.say_plainly(
        r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u1","items":[],"status":"completed"}}}"#,
    );
}

/// A tool's output for a person.
fn shown(output: &Output) -> String {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("it is text")
}

/// The output of a tool that warns and does what it was told to.
fn warned(output: &Output, why: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.lines().count() == 1 && said.contains(why), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("it is text")
}

/// Starts a tool that waits.
pub fn begin(live: &Live, args: &[&str]) -> Child {
    begin_with(live, args, Stdio::piped())
}

/// The same with this output.
pub fn begin_with(live: &Live, args: &[&str], stdout: Stdio) -> Child {
    let mut command = live.home.shim(args);
    command.current_dir(live.home.beside()).stdin(Stdio::null()).stdout(stdout).spawn().expect("the tool runs")
}

pub fn finish(mut tool: Child) -> Output {
    eventually("the tool has not ended", || tool.try_wait().expect("it is our child"));
    tool.wait_with_output().expect("the tool ends")
}

/// The ids of pending requests, or of all.
fn ids(document: &Value) -> Vec<String> {
    document["requests"].as_array().expect("an array").iter().map(|row| text(&row["request_id"])).collect()
}

pub fn sent(live: &Live) -> Value {
    serde_json::from_str(&live.at_server()).expect("it is JSON")
}

#[test]
fn what_waits_is_listed_and_shown() {
    let mut live = in_turn();
    assert_eq!(shown(&live.tool(&["requests"])), "no requests are pending\n");
    assert_eq!(shown(&live.tool(&["requests", "s"])), "no requests are pending in session s\n");
    live.say_plainly(&command(0, "make"));
    live.say_plainly(QUESTION);
    let document = told(&live.tool(&["requests", "--json"]));
    let id = ids(&document)[0].clone();
    let name = &id[8..];
    assert_eq!(document["requests"][0]["name"], name);
    let session = &document["requests"][0]["session"];
    assert_eq!((&session["client"], &session["live"]), (&json!("ide"), &json!(true)), "{session}");
    let list = shown(&live.tool(&["requests", "s"]));
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().skip(1).collect()).collect();
    let run = name[..4].to_owned();
    let question = format!("{run}-7");
    assert_eq!(lines, [vec![name, "command", "run", "make", "(to", "see)"], vec![&question, "question", "Which?"]]);
    let list = shown(&live.tool(&["requests"]));
    assert!(list.lines().all(|line| line.contains(" (ide)  ")), "{list}");
    let bare = |mut row: Value| {
        let members = row.as_object_mut().expect("an object");
        members.retain(|name, _| name != "name" && name != "session");
        row
    };
    let rows = document["requests"].as_array().expect("an array").iter().cloned().map(bare).collect::<Vec<_>>();
    assert_eq!(json!({ "requests": rows }), live.get("/sessions/self/codex-pending-requests"));
    assert!(shown(&live.tool(&["show", name])).contains("run make"));

    let whole = shown(&live.tool(&["show", "0"]));
    for words in
        ["run make", "cwd         /work", "reason      to see", "status      pending", &format!("respond {id} accept")]
    {
        assert!(whole.contains(words), "{words} is not in\n{whole}");
    }
    let question = shown(&live.tool(&["show", "latest"]));
    assert!(question.contains("color: Which?") && question.contains("1. Red  warm"), "{question}");
    let as_json = told(&live.tool(&["show", &id, "--json"]));
    assert_eq!(as_json, live.get(&format!("/sessions/self/codex-requests/{id}")));
    live.kill();
}

#[test]
fn a_request_is_answered_by_any_of_its_names() {
    let mut live = in_turn();
    live.say_plainly(&command(0, "a"));
    let all = ids(&told(&live.tool(&["requests", "--json"])));
    let done = shown(&live.tool(&["respond", &all[0][..5], "accept"]));
    assert_eq!(done, format!("request {} answered: accept\n", all[0]));
    assert_eq!(sent(&live), json!({ "id": 0, "result": { "decision": "accept" } }));

    live.say_plainly(&command(1, "b"));
    live.say_plainly(&command(2, "c"));
    warned(&live.tool(&["respond", "latest", "accept-for-session"]), ": it holds for the whole session");
    assert_eq!(sent(&live), json!({ "id": 2, "result": { "decision": "acceptForSession" } }));
    shown(&live.tool(&["respond", "1", "cancel"]));
    assert_eq!(sent(&live), json!({ "id": 1, "result": { "decision": "cancel" } }));

    live.say_plainly(&command(3, "d"));
    let given = live.tool(&["respond", "3", "--json", r#"{"decision":{"x":["y"]}}"#]);
    let document: Value = serde_json::from_str(&warned(&given, "it changes what is asked about")).expect("a document");
    assert_eq!((&document["ok"], &document["request"]["status"]), (&json!(true), &json!("resolved")));
    assert_eq!(sent(&live), json!({ "id": 3, "result": { "decision": { "x": ["y"] } } }));

    live.say_plainly(QUESTION);
    shown(&live.tool(&["respond", "7", "--answer", "color=Red"]));
    assert_eq!(sent(&live), json!({ "id": 7, "result": { "answers": { "color": { "answers": ["Red"] } } } }));
    let history = shown(&live.tool(&["requests", "--all"]));
    assert_eq!(history.lines().count(), 5, "{history}");
    assert!(history.contains("accepted   cli  "), "{history}");
    live.kill();
}

#[test]
fn permissions_and_elicitations_take_the_same_words() {
    let mut live = in_turn();
    live.say_plainly(r#"{"id":0,"method":"item/permissions/requestApproval","params":{"threadId":"t","turnId":"u1","itemId":"i","cwd":"/w","permissions":{"network":{"enabled":true},"fileSystem":null}}}"#);
    warned(
        &live.tool(&["respond", "latest", "accept-for-session"]),
        "it reaches the network; it holds for the whole session",
    );
    let granted = json!({ "permissions": { "network": { "enabled": true } }, "scope": "session" });
    assert_eq!(sent(&live), json!({ "id": 0, "result": granted }));
    live.say_plainly(r#"{"id":1,"method":"mcpServer/elicitation/request","params":{"threadId":"t","turnId":"u1","serverName":"lab","mode":"form","message":"Sure?","requestedSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}}"#);
    failed(&live.tool(&["respond", "latest", "accept"]), 2, "n: a value is required");
    failed(&live.tool(&["respond", "latest", "accept-for-session"]), 2, "accept, decline or cancel");
    shown(&live.tool(&["respond", "latest", "--answer", "n=3"]));
    let accepted = json!({ "action": "accept", "content": { "n": 3 }, "_meta": null });
    assert_eq!(sent(&live), json!({ "id": 1, "result": accepted }));
    live.kill();
}

/// A form that deploys something.
const FORM: &str = r#"{"id":4,"method":"mcpServer/elicitation/request","params":{"threadId":"t","turnId":"u1","serverName":"lab","mode":"form","message":"Deploy?","requestedSchema":{"type":"object","properties":{"replicas":{"type":"integer","minimum":1,"maximum":9,"default":2},"env":{"type":"string","enum":["dev","prod"]},"owner":{"type":"string","format":"email"}},"required":["replicas","env"]}}}"#;

#[test]
fn forms_that_break_their_schema_are_not_sent() {
    let mut live = in_turn();
    live.say_plainly(FORM);
    let shown_form = shown(&live.tool(&["show", "latest"]));
    let fields: Vec<&str> = shown_form.lines().filter(|line| line.starts_with("field")).collect();
    let expect = [
        "field       replicas  (required · integer 1 to 9 · default 2)",
        "field       env  (required · dev, prod)",
        "field       owner  (an email address)",
    ];
    assert_eq!(fields, expect, "{shown_form}");
    let wrong = ["respond", "latest", "--answer", "env=mars", "--answer", "replicas=99"];
    failed(&live.tool(&wrong), 2, "env: `mars` is not one of dev, prod; replicas: 99 is greater than the maximum of 9");
    failed(&live.tool(&["respond", "latest", "--answer", "owner=ada"]), 2, "owner: `ada` is not an email address");
    failed(&live.tool(&["respond", "latest", "--answer", "planet=mars"]), 2, "planet: unknown field");
    let raw = r#"{"action":"accept","content":{"env":"dev","replicas":99}}"#;
    failed(&live.tool(&["respond", "latest", "--json", raw]), 2, "replicas: 99 is greater than the maximum of 9");
    assert_eq!(ids(&told(&live.tool(&["requests", "--json"]))).len(), 1, "the request is still pending");
    shown(&live.tool(&["respond", "latest", "--answer", "env=dev"]));
    let accepted = json!({ "action": "accept", "content": { "env": "dev", "replicas": 2 }, "_meta": null });
    assert_eq!(sent(&live), json!({ "id": 4, "result": accepted }));
    live.kill();
}

/// `codex-shim respond latest` at a terminal, with each answer `typed` at its prompt.
fn respond_typing(live: &Live, typed: &[(&str, &str)]) -> String {
    let (status, seen) = respond_ending(live, typed);
    assert!(status.success(), "{seen}");
    seen
}

/// The same, with the exit status, and with the message on stderr at the end.
fn respond_ending(live: &Live, typed: &[(&str, &str)]) -> (ExitStatus, String) {
    let (tool, mut terminal) = at_a_terminal(live);
    let mut seen = String::new();
    for (prompt, answer) in typed {
        let from = seen.len();
        read_until(&mut terminal, &mut seen, from, prompt);
        terminal.write_all(format!("{answer}\n").as_bytes()).expect("it is typed");
    }
    let output = finish(tool);
    seen.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status, seen)
}

pub const REMOVES: &str = "/bin/bash -lc 'make; sudo rm -rf build'";
pub const REMOVES_WHY: &str = "it deletes folders with all that is in them as root";

#[test]
fn risky_answers_without_a_terminal_say_why() {
    let mut live = in_turn();
    live.say_plainly(&command(0, REMOVES));
    live.say_plainly(&command(1, "make"));
    let listed = told(&live.tool(&["requests", "--json"]));
    let warnings: Vec<&Value> =
        listed["requests"].as_array().expect("an array").iter().map(|row| &row["warnings"]).collect();
    assert_eq!(warnings, [&json!([REMOVES_WHY]), &json!([])]);
    let whole = shown(&live.tool(&["show", "0"]));
    assert!(whole.contains(&format!("warning     {REMOVES_WHY}\n")), "{whole}");
    let done = warned(&live.tool(&["respond", "0", "accept"]), &format!("-0: {REMOVES_WHY}"));
    assert!(done.ends_with("answered: accept\n"), "{done}");
    assert_eq!(sent(&live), json!({ "id": 0, "result": { "decision": "accept" } }));
    shown(&live.tool(&["respond", "1", "accept"]));
    assert_eq!(sent(&live), json!({ "id": 1, "result": { "decision": "accept" } }));
    for (id, words) in [(2, &["accept", "--yes"][..]), (3, &["decline"])] {
        live.say_plainly(&command(id, REMOVES));
        shown(&live.tool(&[&["respond", "latest"], words].concat()));
        assert_eq!(sent(&live)["id"], id);
    }
    live.kill();
}

#[test]
fn risky_answers_at_a_terminal_are_confirmed() {
    let mut live = in_turn();
    live.say_plainly(&command(0, REMOVES));
    for typed in ["n", "", "a"] {
        let (status, seen) = respond_ending(&live, &[("Your answer", "a"), ("Really?", typed)]);
        assert_eq!(status.code(), Some(1), "{seen}");
        assert!(seen.contains(&format!("{REMOVES_WHY}.")) && seen.contains("nothing was sent"), "{seen}");
    }
    respond_typing(&live, &[("Your answer", "a"), ("Really?", "y")]);
    assert_eq!(sent(&live), json!({ "id": 0, "result": { "decision": "accept" } }));

    // The same if the answer is on the command line; then the request is named.
    live.say_plainly(&command(1, REMOVES));
    let asked = |typed: Option<&str>, words: &[&str]| {
        let (tool, mut terminal) = run_at_a_terminal(&live.home, &[&["respond", "1"], words].concat(), "");
        let mut seen = String::new();
        if let Some(typed) = typed {
            read_until(&mut terminal, &mut seen, 0, "Really?");
            terminal.write_all(typed.as_bytes()).expect("it is typed");
        }
        (finish(tool).status.code(), seen)
    };
    let (code, seen) = asked(Some("n\n"), &["accept-for-session"]);
    assert_eq!(code, Some(1));
    assert!(seen.contains("sudo rm -rf build") && seen.contains(&format!("{REMOVES_WHY}; it holds for")), "{seen}");
    assert_eq!(asked(None, &["accept", "--yes"]).0, Some(0));
    assert_eq!(sent(&live), json!({ "id": 1, "result": { "decision": "accept" } }));
    live.kill();
}

#[test]
fn time_left_for_a_question_is_listed() {
    let mut live = in_turn();
    live.say_plainly(&QUESTION.replace("\"questions\"", "\"autoResolutionMs\":86400000,\"questions\""));
    live.say_plainly(&command(8, "make"));
    let listed = shown(&live.tool(&["requests"]));
    let left: Vec<bool> = listed.lines().map(|line| line.contains(" left)")).collect();
    assert_eq!(left, [true, false], "{listed}");
    let rows = told(&live.tool(&["requests", "--json"]));
    let until = |index: usize| &rows["requests"][index]["answer_until"];
    assert!(until(0).is_string() && until(1).is_null(), "{rows}");
    assert!(
        shown(&live.tool(&["show", "7"]))
            .lines()
            .any(|line| line.starts_with("left        23h ") && line.contains(", until "))
    );
    live.kill();
}

#[test]
fn text_typed_before_the_question_answers_nothing() {
    let mut live = in_turn();
    let asked = live.asked(&command_asked("7", "t"), "7");
    let (tool, mut terminal) = at_a_terminal_after(&live, "a\n");
    let mut seen = String::new();
    read_until(&mut terminal, &mut seen, 0, "Your answer");
    terminal.write_all(b"d\n").expect("it is typed");
    let output = finish(tool);
    assert!(output.status.success(), "{seen}");
    assert_eq!(live.row(&asked)["resolved_payload"], json!({"decision": "decline"}));
    assert_eq!(sent(&live), json!({"id": 7, "result": {"decision": "decline"}}));
    live.kill();
}

#[test]
fn invalid_fields_are_asked_for_again_at_once() {
    let mut live = in_turn();
    live.say_plainly(FORM);
    let typed = [
        ("Your answer", "x"),
        ("Your answer", "a"),
        ("replicas", "15"),
        ("replicas", "5"),
        ("env", "mars"),
        ("env", "2"),
        ("owner", ""),
    ];
    let seen = respond_typing(&live, &typed);
    assert!(seen.contains("`x` is not a choice; type 1 to 3 or one of a, d, c"), "{seen}");
    assert!(seen.contains("env: `mars` is not one of dev, prod") && seen.contains("  2  prod"), "{seen}");
    assert!(seen.contains("owner (an email address · Enter skips it): "), "{seen}");
    assert!(seen.find("replicas: 15 is") < seen.find("  1  dev"), "a mistake is told at once: {seen}");
    let accepted = json!({ "action": "accept", "content": { "env": "prod", "replicas": 5 }, "_meta": null });
    assert_eq!(sent(&live), json!({ "id": 4, "result": accepted }));
    live.kill();
}

#[test]
fn skipped_questions_are_listed_before_sending() {
    let questions = json!([
        {"id": "color", "header": "Color", "question": "Which?", "isSecret": false, "options": [{"label": "Red", "description": "warm"}]},
        {"id": "size", "header": "Size", "question": "How large?", "isSecret": false, "options": null},
        {"id": "pin", "header": "Pin", "question": "Which pin?", "isSecret": true, "options": null},
    ]);
    let asked = json!({"id": 7, "method": "item/tool/requestUserInput",
        "params": {"threadId": "t", "turnId": "u1", "itemId": "i7", "questions": questions}});
    let mut live = in_turn();
    live.say_plainly(&asked.to_string());
    let pending = || ids(&told(&live.tool(&["requests", "--json"]))).len();
    let skips = "(Enter skips it)";
    let (color, size, pin) = (format!("color {skips}"), format!("size {skips}"), format!("pin {skips}"));
    let sends = "Enter sends them, n leaves the request pending";
    // Without any answer nothing is confirmed or sent.
    let (status, seen) = respond_ending(&live, &[(&color, ""), (&size, ""), (&pin, "")]);
    assert!(!status.success() && seen.contains("nothing was sent; the request is still pending"), "{seen}");
    assert!(!seen.contains(sends), "{seen}");
    let (status, seen) = respond_ending(&live, &[(&color, "1"), (&size, ""), (&pin, ""), (sends, "n")]);
    assert!(!status.success() && seen.contains("nothing was sent; the request is still pending"), "{seen}");
    assert!(
        seen.contains("Your answers:\r\n  color: Red\r\n  size: not answered\r\n  pin: not answered\r\n"),
        "{seen}"
    );
    assert_eq!(pending(), 1);
    let (status, seen) = respond_ending(&live, &[(&color, ""), (&size, "L"), (&pin, "hunter2"), (sends, "")]);
    assert!(status.success(), "{seen}");
    assert!(seen.contains("  color: not answered\r\n  size: L\r\n  pin: (not shown)\r\n"), "{seen}");
    assert!(!seen.contains("hunter2"), "{seen}");
    let answers = json!({ "size": { "answers": ["L"] }, "pin": { "answers": ["hunter2"] } });
    assert_eq!(sent(&live)["result"]["answers"], answers);
    live.kill();
}

#[test]
fn declining_without_a_reason_is_announced() {
    let mut live = in_turn();
    live.say_plainly(&command(0, "a"));
    respond_typing(&live, &[("Your answer", "r"), ("Why not (Enter alone declines without a reason)", "")]);
    assert_eq!(sent(&live), json!({ "id": 0, "result": { "decision": "decline" } }));
    live.kill();
}

#[test]
fn long_diffs_are_shown_on_request() {
    let mut live = in_turn();
    let changes: Value = (0..90)
        .map(|number| {
            let path = live.home.beside().join(format!("f{number}.rs"));
            json!({"path": path, "kind": {"type": "update"}, "diff": "@@ -1 +1 @@\n-old\n+new\n+more\n"})
        })
        .collect();
    let item = json!({"type": "fileChange", "id": "i1", "status": "inProgress", "changes": changes});
    let started = json!({"method": "item/started", "params": {"threadId": "t", "turnId": "u1", "item": item}});
    live.say_plainly(&started.to_string());
    let asked = json!({"id": 7, "method": "item/fileChange/requestApproval", "params": {"threadId": "t", "turnId": "u1", "itemId": "i1"}});
    live.say_plainly(&asked.to_string());
    let seen = respond_typing(&live, &[("v  view the whole diff", "v"), ("Your answer", "d")]);
    let (head, rest) = seen.split_once("view the whole diff").expect("the choice is listed");
    assert!(head.contains("90 files +180 -90") && !head.contains("+more"), "{head}");
    assert!(head.contains(" f0.rs") && head.contains(" more\r\n"), "{head}");
    assert!(rest.contains("+more") && rest.contains("\n90 files +180 -90\r\n"), "{rest}");
    assert_eq!(sent(&live), json!({ "id": 7, "result": { "decision": "decline" } }));
    live.kill();
}

#[test]
fn a_letter_answers_an_approval() {
    let mut live = in_turn();
    live.say_plainly(&command(0, "a"));
    respond_typing(&live, &[("Your answer", "d")]);
    assert_eq!(sent(&live), json!({ "id": 0, "result": { "decision": "decline" } }));
    live.kill();
}

#[test]
fn who_comes_second_is_told_who_was_first() {
    let mut live = in_turn();
    live.say_plainly(&command(0, "a"));
    live.send(r#"{"id":0,"result":{"decision":"decline"}}"#);
    let same = shown(&live.tool(&["respond", "0", "decline"]));
    assert!(
        same.contains("was answered by client (ide): decline") && same.contains("the same as your answer"),
        "{same}"
    );
    let lost = live.tool(&["respond", "0", "accept", "--json"]);
    let document: Value = serde_json::from_slice(&lost.stdout).expect("it is JSON");
    assert_eq!((lost.status.code(), &document["ok"]), (Some(1), &json!(false)), "{document}");
    let other = live.tool(&["respond", "0", "accept"]);
    let line = String::from_utf8_lossy(&other.stdout);
    assert_eq!(other.status.code(), Some(1), "{other:?}");
    assert!(line.contains("by client (ide): decline") && line.contains("not sent"), "{line}");
    let whole = shown(&live.tool(&["show", "0"]));
    assert_eq!(whole.lines().filter(|line| line.starts_with("came later")).count(), 3, "{whole}");
    // None of it has reached the server.
    live.end_quietly();
}

#[test]
fn what_cannot_be_is_told_with_what_can() {
    let mut live = in_turn();
    failed(&live.tool(&["respond", "latest", "accept"]), 3, "no requests are pending; `codex-shim requests --all` ");
    let named = live.tool(&["show", "latest", "--session", "s"]);
    failed(&named, 3, "no requests are pending; `codex-shim requests --all --session s` ");
    live.say_plainly(&command(0, "a"));
    live.say_plainly(&command(1, "b"));
    let all = ids(&told(&live.tool(&["requests", "--json"])));
    failed(&live.tool(&["show", "nope"]), 3, &all[1]);
    failed(&live.tool(&["respond", &all[0][..4], "accept"]), 3, "give more of the id");
    failed(&live.tool(&["respond", "0"]), 2, &format!("`codex-shim respond {} accept-for-session`", all[0]));
    let shown = shown(&live.tool(&["show", "0"]));
    assert!(shown.contains(&format!("codex-shim respond {} decline\n", all[0])) && !shown.contains('|'), "{shown}");
    failed(&live.tool(&["respond", "0", "--answer", "a=b"]), 2, "accept-for-session");
    failed(&live.tool(&["respond", "0", "--json", "[]"]), 2, "a JSON object");
    failed(&live.tool(&["respond", "0", "--json", r#"{"decision":"maybe"}"#]), 2, "codex-shim show");
    failed(&live.tool(&["respond", "0", "accept", "--reason", "x"]), 2, "a reason goes with");
    assert_eq!(live.tool(&["respond", "0", "maybe"]).status.code(), Some(2));
    let home = live.kill();
    failed(&tool(&home, &["respond", "0", "accept", "--session", "s"]), 4, "not running");
    failed(&tool(&home, &["send", "hi", "--session", "s"]), 4, "not running");
    failed(&tool(&home, &["interrupt", "--session", "s"]), 4, "not running");
    failed(&tool(&home, &["wait", "--for", "idle"]), 4, "not running");
    failed(&tool(&home, &["requests", "--session", "other"]), 3, "other");
}

#[test]
fn a_stopped_session_can_be_read() {
    let mut live = in_turn();
    live.say_plainly(&command(0, "a"));
    let (home, stderr) = live.server_ends();
    assert_eq!(stderr, "");
    assert!(shown(&tool(&home, &["requests"])).contains("no requests are pending"));
    let document = told(&tool(&home, &["requests", "--all", "--json"]));
    assert_eq!(document["requests"][0]["status"], "orphaned");
    assert!(shown(&tool(&home, &["requests", "--all"])).contains("  orphaned  "));
    assert!(shown(&tool(&home, &["show", "0"])).contains("status      orphaned: server_exited"));
    assert_eq!(told(&tool(&home, &["show", "0", "--json"]))["answers"], json!([]));
    failed(&tool(&home, &["show", "latest"]), 3, "no requests are pending");
}

#[test]
fn a_session_without_a_ledger_has_no_requests() {
    let home = Home::new();
    assert!(home.shell("exit 0").output().expect("the shim runs").status.success());
    let _ = std::fs::remove_file(home.path().join("sessions/s/ledger.db"));
    assert_eq!(told(&tool(&home, &["requests", "--json"])), json!({ "requests": [] }));
    assert!(!home.path().join("sessions/s/ledger.db").exists());
    failed(&tool(&home, &["show", "0", "--session", "s"]), 3, "has had no requests");
}

#[test]
fn something_can_be_said_and_stopped_from_the_side() {
    let mut live = in_turn();
    let saying = begin(&live, &["send", "and the tests"]);
    let call = sent(&live);
    assert_eq!((&call["method"], &call["params"]["threadId"]), (&json!("turn/start"), &json!("t")));
    assert_eq!(call["params"]["input"][0]["text"], "and the tests");
    live.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": "u1" } } }).to_string());
    assert_eq!(shown(&finish(saying)), "sent to running turn u1 in thread t\n");

    let stopping = begin(&live, &["interrupt", "--thread", "t"]);
    let call = sent(&live);
    assert_eq!((&call["method"], &call["params"]["turnId"]), (&json!("turn/interrupt"), &json!("u1")));
    live.say_unseen(&json!({ "id": call["id"], "result": {} }).to_string());
    assert_eq!(shown(&finish(stopping)), "interrupted\n");

    end_turn(&mut live);
    failed(&live.tool(&["interrupt"]), 1, "no turn is running");
    let saying = begin(&live, &["send", "again", "--thread", "t", "--json"]);
    let call = sent(&live);
    live.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": "u2" } } }).to_string());
    assert_eq!(told(&finish(saying)), json!({ "turn_id": "u2", "thread_id": "t", "steered": false }));
    failed(&live.tool(&["send", " "]), 2, "empty");

    let say = |live: &Live, message: &[u8]| {
        let mut command = live.home.shim(&["send", "-"]);
        let mut saying = command.current_dir(live.home.beside()).spawn().expect("the tool runs");
        // The tool need not read all of it.
        let _ = saying.stdin.take().expect("stdin is piped").write_all(message);
        saying
    };
    let saying = say(&live, b"two\nlines\n");
    let call = sent(&live);
    assert_eq!(call["params"]["input"][0]["text"], "two\nlines");
    live.say_unseen(&json!({ "id": call["id"], "error": { "code": -32600, "message": "not now" } }).to_string());
    failed(&finish(saying), 1, "not now");
    let saying = say(&live, b"caf\xe9\n");
    let call = sent(&live);
    assert_eq!(call["params"]["input"][0]["text"], "caf\u{fffd}");
    live.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": "u9" } } }).to_string());
    let sent_anyway = finish(saying);
    assert!(sent_anyway.status.success());
    assert!(String::from_utf8_lossy(&sent_anyway.stderr).contains("not UTF-8"), "{sent_anyway:?}");
    for too_long in [vec![b'x'; (1 << 20) + 1], vec![b'"'; 600_000]] {
        failed(&finish(say(&live, &too_long)), 2, "the message is too long");
    }
    live.end_quietly();
}

#[test]
fn send_wait_exits_as_its_turn_ends() {
    let mut live = in_turn();
    end_turn(&mut live);
    let say = |live: &mut Live, turn: &str, method: &str, more: &Value| {
        let mut params = json!({ "threadId": "t", "turnId": turn });
        more.as_object().into_iter().flatten().for_each(|(name, value)| params[name] = value.clone());
        live.say_plainly(&json!({ "method": method, "params": params }).to_string());
    };
    let accepted = |live: &mut Live, turn: &str| {
        let call = sent(live);
        live.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": turn } } }).to_string());
        say(live, turn, "turn/started", &json!({ "turn": { "id": turn, "items": [] } }));
    };
    for (turn, status, error, exit, told) in [
        ("u2", "completed", Value::Null, 0, ""),
        ("u3", "failed", json!({ "message": "no quota" }), 1, "codex-shim: the turn failed: no quota\n"),
        ("u4", "interrupted", Value::Null, 1, "codex-shim: the turn was interrupted\n"),
    ] {
        let saying = begin(&live, &["send", "go", "--thread", "t", "--wait"]);
        accepted(&mut live, turn);
        let message = json!({ "type": "agentMessage", "id": format!("m{turn}"), "text": format!("said in {turn}") });
        say(&mut live, turn, "item/completed", &json!({ "item": message }));
        let end = json!({ "id": turn, "items": [], "status": status, "error": error });
        say(&mut live, turn, "turn/completed", &json!({ "turn": end }));
        let output = finish(saying);
        let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert_eq!((output.status.code(), &said), (Some(exit), &[format!("said in {turn}\n"), told.to_owned()]));
    }
    let saying = begin(&live, &["send", "go", "--thread", "t", "--wait", "--timeout", "3s"]);
    accepted(&mut live, "u5");
    failed(&finish(saying), 1, "timed out; the turn is still running");
    live.kill();
}

#[test]
fn nothing_is_said_while_a_request_waits() {
    let mut live = in_turn();
    live.say_plainly(&command(0, "a"));
    let id = ids(&told(&live.tool(&["requests", "--json"])))[0].clone();
    failed(&live.tool(&["send", "hi"]), 1, &format!("codex-shim respond {id}"));
    live.kill();
}

/// `respond latest` at a terminal of its own, and our end of the terminal.
fn at_a_terminal(live: &Live) -> (Child, std::fs::File) {
    at_a_terminal_after(live, "")
}

/// The same, with text that was typed before.
fn at_a_terminal_after(live: &Live, typed: &str) -> (Child, std::fs::File) {
    run_at_a_terminal(&live.home, &["respond", "latest"], typed)
}

/// Any tool at a terminal of its own.
pub fn run_at_a_terminal(home: &Home, words: &[&str], typed: &str) -> (Child, std::fs::File) {
    let ours =
        rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).expect("a terminal");
    rustix::pty::grantpt(&ours).and_then(|()| rustix::pty::unlockpt(&ours)).expect("it can be used");
    let name = rustix::pty::ptsname(&ours, Vec::new()).expect("it has a name").into_string().expect("UTF-8");
    let theirs = std::fs::File::options().read(true).write(true).open(name).expect("it opens");
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&ours, size).expect("it has a size");
    let mut ours = std::fs::File::from(ours);
    ours.write_all(typed.as_bytes()).expect("it is typed");
    let mut command = home.shim(words);
    command.env("PAGER", "cat").stdin(theirs.try_clone().expect("it is open")).stdout(theirs).stderr(Stdio::piped());
    (command.current_dir(home.beside()).spawn().expect("the tool runs"), ours)
}

/// Reads the terminal until `prompt` and a colon appear after `from`.
pub fn read_until(terminal: &mut std::fs::File, seen: &mut String, from: usize, prompt: &str) {
    let is_there = |seen: &str| seen[from..].find(prompt).is_some_and(|at| seen[from + at..].contains(": "));
    while !is_there(seen) {
        let mut ready = [rustix::event::PollFd::new(&*terminal, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut ready, Some(&limit)), Ok(1), "no {prompt} in {seen}");
        let mut bytes = [0; 4096];
        let count = terminal.read(&mut bytes).expect("the terminal is there");
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

/// The same, once the terminal no longer echoes input.
fn respond_at_a_terminal(live: &Live) -> (Child, std::fs::File) {
    let (child, terminal) = at_a_terminal(live);
    let echoes = || {
        let mode = rustix::termios::tcgetattr(&terminal).expect("its mode");
        mode.local_modes.contains(rustix::termios::LocalModes::ECHO)
    };
    eventually("the terminal shows nothing", || (!echoes()).then_some(()));
    (child, terminal)
}

#[test]
fn a_secret_is_typed_unseen_and_the_terminal_is_given_back() {
    let mut live = in_turn();
    live.say_plainly(&QUESTION.replace("\"isSecret\":false", "\"isSecret\":true"));
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let (tool, terminal) = respond_at_a_terminal(&live);
        rustix::process::kill_process(rustix::process::Pid::from_child(&tool), signal).expect("it runs");
        assert!(!finish(tool).status.success());
        let mode = rustix::termios::tcgetattr(&terminal).expect("its mode");
        assert!(mode.local_modes.contains(rustix::termios::LocalModes::ECHO));
    }
    assert_eq!(ids(&told(&live.tool(&["requests", "--json"]))).len(), 1);
    let (tool, mut terminal) = respond_at_a_terminal(&live);
    terminal.write_all(b"hunter2\n").expect("it is typed");
    assert!(finish(tool).status.success());
    assert_eq!(sent(&live)["result"]["answers"]["color"]["answers"][0], "hunter2");
}

#[test]
fn a_relay_that_hangs_is_waited_for_no_longer_than_there_is_time() {
    let live = in_turn();
    let relay = Pid::from_child(&live.relay);
    stop(relay);
    let output = live.tool(&["wait", "--for", "pending", "--timeout", "10ms"]);
    kill_process(relay, Signal::CONT).expect("it runs");
    // It has used one of its five seconds.
    failed(&output, 1, "no answer in 1 s");
    live.end();
}

#[test]
fn one_can_wait_for_either() {
    let mut live = in_turn();
    failed(&live.tool(&["wait", "--for", "idle", "--timeout", "10ms"]), 1, "the session is working");
    failed(&live.tool(&["wait", "--for", "pending", "--timeout", "10ms"]), 1, "timed out: ");
    let waiting = begin(&live, &["wait", "--for", "pending", "--json"]);
    live.say_plainly(&command(0, "a"));
    let document = told(&finish(waiting));
    assert_eq!((&document["pending_requests"], &document["requests"][0]["status"]), (&json!(1), &json!("pending")));
    let told = "the session waits for permission, with 1 pending request";
    failed(&live.tool(&["wait", "--for", "idle", "--timeout", "1ms"]), 1, told);
    let waiting = begin(&live, &["wait", "--for", "idle"]);
    shown(&live.tool(&["respond", "0", "decline"]));
    sent(&live);
    end_turn(&mut live);
    assert_eq!(shown(&finish(waiting)), "idle\n");
    assert_eq!(shown(&live.tool(&["wait", "--for", "idle"])), "idle\n");
    let waiting = begin(&live, &["wait", "--for", "pending"]);
    let home = live.end_quietly();
    failed(&finish(waiting), 4, "not running");
    drop(home);
}

/// The pending requests of all sessions, once there are `count` of them.
fn inbox(home: &Home, count: usize) -> Vec<Value> {
    eventually("the requests", || {
        let listed = tool_in(home, home.beside(), &["requests", "--json"]);
        let document: Value = serde_json::from_slice(&listed.stdout).ok()?;
        let rows = document["requests"].as_array()?.clone();
        (rows.len() == count).then_some(rows)
    })
}

fn end_all(relays: &mut [Child]) {
    for relay in relays {
        drop(relay.stdin.take());
        eventually("the relay has not ended", || relay.try_wait().expect("it is our child"));
    }
}

/// Two relays in different folders, each with a request; and their folders.
fn two_folders(home: &Home) -> [Child; 2] {
    [("proj", "one", "vscode"), ("other", "two", "zed")].map(|(folder, session, client)| {
        let folder = home.beside().join(folder);
        std::fs::create_dir(&folder).expect("a folder");
        client_in(home, &folder, session, client, &format!("make {session}"))
    })
}

#[test]
fn requests_of_all_folders_are_answered_by_name() {
    let home = Home::new();
    let mut relays = two_folders(&home);
    let rows = inbox(&home, 2);
    let elsewhere = |arguments: &[&str]| tool_in(&home, home.beside(), arguments);
    let listed = shown(&elsewhere(&["requests"]));
    let names: Vec<String> = rows.iter().map(|row| text(&row["name"])).collect();
    for (name, place) in names.iter().zip(rows.iter().map(|row| text(&row["session"]["name"]))) {
        let line = listed.lines().find(|line| line.contains(name.as_str())).unwrap_or_else(|| panic!("{listed}"));
        assert!(line.contains(&place) && line.contains("run make"), "{line}");
    }
    // The user cannot tell which of the two an unclear name means.
    failed(&elsewhere(&["respond", "9", "accept"]), 3, "matches several requests");
    failed(&elsewhere(&["respond", "latest", "accept"]), 3, &names[0]);
    let there = tool_in(&home, &home.beside().join("proj"), &["show", "latest"]);
    assert!(shown(&there).contains("run make one"));
    assert_eq!(inbox(&home, 2).len(), 2);
    shown(&elsewhere(&["respond", &names[0], "decline"]));
    assert_eq!(inbox(&home, 1)[0]["name"], names[1].as_str());
    end_all(&mut relays);
    // Stopped sessions are listed with --all, and their requests have the same names.
    let all = told(&elsewhere(&["requests", "--all", "--json"]));
    assert_eq!(ids(&all).len(), 2);
    assert!(shown(&elsewhere(&["show", &names[0]])).contains("resolved: decline"));
    assert_eq!(ids(&told(&elsewhere(&["requests", "--all", "--since", "1h", "--json"]))).len(), 2);
    assert_eq!(ids(&told(&elsewhere(&["requests", "--all", "--since", "0s", "--json"]))).len(), 0);
    failed(&elsewhere(&["requests", "--since", "1h"]), 2, "--since goes with --all");
    assert_eq!(shown(&elsewhere(&["requests"])), "no requests are pending\n");
}

#[test]
fn hung_relay_hides_no_request_of_others() {
    let home = Home::new();
    let mut relays = two_folders(&home);
    let rows = inbox(&home, 2);
    let names: Vec<String> = rows.iter().map(|row| text(&row["name"])).collect();
    let hung = rows.iter().position(|row| row["session_id"] == "two").expect("it has a request");
    let relay = Pid::from_child(&relays[1]);
    stop(relay);
    let elsewhere = |arguments: &[&str]| tool_in(&home, home.beside(), arguments);
    let listed = elsewhere(&["requests", "--json"]);
    let document: Value = serde_json::from_slice(&listed.stdout).expect("it is JSON");
    let answer = elsewhere(&["respond", &names[1 - hung], "accept"]);
    let unclear = elsewhere(&["respond", "latest", "accept"]);
    kill_process(relay, Signal::CONT).expect("it runs");
    assert_eq!((listed.status.code(), ids(&document).len()), (Some(1), 1), "{listed:?}");
    assert!(String::from_utf8_lossy(&listed.stderr).contains("does not answer"), "{listed:?}");
    assert_eq!(answer.status.code(), Some(0), "{answer:?}");
    failed(&unclear, 1, "does not answer");
    end_all(&mut relays);
}

/// A relay that does not answer may have a request that a number or the beginning of an id means, too.
#[test]
fn silent_session_leaves_only_ids_and_their_ends_as_names() {
    let home = Home::new();
    let mut relays = two_folders(&home);
    let rows = inbox(&home, 2);
    let row = rows.iter().find(|row| row["session_id"] == "one").expect("it has a request");
    let (id, end) = (text(&row["request_id"]), text(&row["name"]));
    let relay = Pid::from_child(&relays[1]);
    stop(relay);
    let ends = [("proj", "9", 0), ("proj", &id[..11], 1), ("other", "9", 1), (".", "9", 1), (".", &id[..11], 1)];
    let names = ["proj", "other", "."].into_iter().flat_map(|folder| [(folder, &*id, 0), (folder, &*end, 0)]);
    let shown = std::thread::scope(|scope| {
        let show = |(folder, name, exit)| {
            let home = &home;
            scope.spawn(move || (folder, name, exit, tool_in(home, &home.beside().join(folder), &["show", name])))
        };
        let shown: Vec<_> = ends.into_iter().chain(names).map(show).collect();
        shown.into_iter().map(|shown| shown.join().expect("a tool ran")).collect::<Vec<_>>()
    });
    kill_process(relay, Signal::CONT).expect("it runs");
    for (folder, name, exit, output) in shown {
        match exit {
            0 => assert!(
                output.status.success() && String::from_utf8_lossy(&output.stdout).contains("run make one"),
                "{name} in {folder}: {output:?}"
            ),
            exit => failed(&output, exit, "does not answer"),
        }
    }
    end_all(&mut relays);
}

#[test]
fn followed_requests_are_printed_until_they_end() {
    let home = Home::new();
    let mut follower = home.shim(&["requests", "-f", "--json"]);
    let mut follower = follower.current_dir(home.beside()).stdin(Stdio::null()).spawn().expect("the tool runs");
    let lines = lines_of(follower.stdout.take().expect("stdout is piped"));
    let next_row = || -> Value { serde_json::from_str(&next(&lines, "a line of the follower")).expect("it is JSON") };
    let mut relays = two_folders(&home);
    let rows = [next_row(), next_row()];
    assert!(rows.iter().all(|row| row["status"] == "pending"), "{rows:?}");
    let first = text(&rows[0]["name"]);
    shown(&tool_in(&home, home.beside(), &["respond", &first, "decline"]));
    let ended = next_row();
    assert_eq!((text(&ended["name"]), text(&ended["status"])), (first, "resolved".to_owned()));
    end_all(&mut relays);
    let orphaned = next_row();
    assert_eq!((&orphaned["request_id"], &orphaned["status"]), (&rows[1]["request_id"], &json!("orphaned")));
    // The next relay of the session is followed, too.
    let mut next_relay = [client_in(&home, &home.beside().join("proj"), "one", "vscode", "make again")];
    let again = next_row();
    assert_eq!((text(&again["summary"]), text(&again["status"])), ("run make again".to_owned(), "pending".to_owned()));
    end_all(&mut next_relay);
    assert_eq!(next_row()["status"], "orphaned");
    follower.kill().expect("it runs");
    follower.wait().expect("it ends");
}

#[test]
fn follower_ends_with_its_reader() {
    let home = Home::new();
    let mut follower = home.shim(&["requests", "-f"]);
    let mut follower = follower.current_dir(home.beside()).stdin(Stdio::null()).spawn().expect("the tool runs");
    drop(follower.stdout.take());
    let status = eventually("the end of the follower", || follower.try_wait().expect("it is our child"));
    assert_eq!(status.code(), Some(0));
}

/// A relay in `folder` with a client named `client`, whose server asks to run `command`.
fn client_in(home: &Home, folder: &std::path::Path, session: &str, client: &str, command: &str) -> Child {
    let asks = format!(
        r#"read -r line; printf '{{"id":9,"method":"item/commandExecution/requestApproval","params":{{"threadId":"t","command":"{command}"}}}}\n'; cat >/dev/null"#
    );
    let mut relay = home.shim(&["run", "--session", session, "--", "sh", "-c", &asks]);
    let mut relay = relay.current_dir(folder).spawn().expect("the shim starts");
    let line =
        format!(r#"{{"id":0,"method":"initialize","params":{{"clientInfo":{{"name":"{client}","version":"1"}}}}}}"#);
    writeln!(relay.stdin.as_mut().expect("stdin is piped"), "{line}").expect("the relay reads");
    relay
}

/// A tool run in `folder`.
fn tool_in(home: &Home, folder: &std::path::Path, arguments: &[&str]) -> Output {
    let mut command = home.shim(arguments);
    finish(command.current_dir(folder).stdin(Stdio::null()).spawn().expect("the tool runs"))
}

#[test]
fn two_clients_in_one_folder_are_both_shown() {
    let home = Home::new();
    let folder = home.beside().join("proj");
    std::fs::create_dir(&folder).expect("a folder");
    let mut relays = [
        client_in(&home, &folder, "one", "vscode", "make first"),
        client_in(&home, &folder, "two", "zed", "make second"),
    ];
    let here = |arguments: &[&str]| tool_in(&home, &folder, arguments);
    let rows = eventually("two requests", || {
        let document: Value = serde_json::from_slice(&here(&["requests", "--json"]).stdout).ok()?;
        let rows = document["requests"].as_array()?.clone();
        (rows.len() == 2).then_some(rows)
    });
    let listed = shown(&here(&["requests"]));
    for part in ["proj (vscode)  command", "proj (zed)     command", "run make first", "run make second"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let status = told(&here(&["status", "--json"]));
    assert_eq!(status["sessions"].as_array().map(Vec::len), Some(2), "{status}");
    // A short name matches two requests here; a whole id matches one from any folder.
    let ids: Vec<&str> = rows.iter().filter_map(|row| row["request_id"].as_str()).collect();
    let both = here(&["respond", "9", "decline"]);
    failed(&both, 3, ids[0]);
    failed(&both, 3, ids[1]);
    let elsewhere = |arguments: &[&str]| tool_in(&home, home.beside(), arguments);
    assert!(shown(&elsewhere(&["show", ids[0]])).contains("run make"));
    shown(&elsewhere(&["respond", ids[0], "decline"]));
    // Nothing of this folder waits, so the only request that waits elsewhere is the latest one.
    assert!(shown(&elsewhere(&["requests"])).contains("proj ("));
    assert!(shown(&elsewhere(&["show"])).contains(ids[1]));
    // Commands in the folder become context for both; a message needs the session's name.
    shown(&here(&["exec", "--", "true"]));
    for session in ["one", "two"] {
        let context = told(&here(&["context", "show", "--session", session, "--json"]));
        assert_eq!(context["commands"][0]["cmd"], "true", "{session}: {context}");
    }
    failed(&here(&["send", "hi"]), 3, "proj (vscode) one");
    failed(&here(&["send", "hi"]), 3, "--session");
    for relay in &mut relays {
        drop(relay.stdin.take());
        eventually("the relay has not ended", || relay.try_wait().expect("it is our child"));
    }
    // The client's name outlives its relay.
    let named = tool_in(&home, &folder, &["status", "--session", "proj (zed)", "--json"]);
    assert_eq!(told(&named)["session_id"], "two");
}
