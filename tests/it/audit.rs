//! Audit files through the real binary: every request and answer is in them, the chain is that of the documentation, and every change of
//! the file or of a ledger is found.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, text, told, tool};
use crate::support::requests::{
    answer, change_asked, change_started, command_asked, decision, question_asked, resolved,
};
use crate::support::shim::Home;

/// A command that a spreadsheet would run, and a key with a known shape.
const FORMULA: &str = "=cmd|' /C calc'!A0";
const KEY: &str = "sk-abcdefghijklmnopqrst";

fn asked_to_run(id: &str, command: &str) -> String {
    let params = json!({
        "kind": "command", "threadId": "t", "turnId": "u", "itemId": "i", "command": command, "cwd": "/w", "reason": FORMULA,
    });
    json!({ "method": "item/commandExecution/requestApproval", "id": id.parse::<u32>().unwrap(), "params": params })
        .to_string()
}

/// A home with a stopped session of every kind of entry, and a second one.
fn home() -> Home {
    let mut live = Live::initialized("");
    let first = live.asked(&command_asked("0", "t"), "0");
    live.responded(&first, &decision("accept"));
    live.at_server();
    // The client's answer comes too late.
    live.write(&format!("{}\n", answer("0", &json!({ "decision": "cancel" }))));
    assert_eq!(live.answers(&first, 2)[1]["won"], false);
    live.say_plainly(&change_started());
    live.asked(&change_asked("1"), "1");
    live.answer_plainly(&answer("1", &json!({ "decision": "decline" })));
    let question = live.asked(&question_asked("2", true), "2");
    live.responded(&question, &json!({ "answers": { "color": ["hunter22"] } }));
    live.at_server();
    live.asked(&asked_to_run("3", &format!("curl -H 'Authorization: Bearer {KEY}' x")), "3");
    live.say_plainly(&resolved("3"));
    live.asked(&asked_to_run("4", FORMULA), "4");
    let home = live.kill();
    let mut second = Live::start_in_session(home, "z").initialize();
    let open = second.asked(&command_asked("0", "t"), "0");
    second.responded(&open, &decision("accept"));
    second.at_server();
    let home = second.kill();
    // The first tool marks open requests as orphaned.
    assert!(tool(&home, &["requests", "--all", "--session", "s"]).status.success());
    home
}

fn export(home: &Home, name: &str, args: &[&str]) -> PathBuf {
    let path = home.beside().join(name);
    let output = tool(home, &[&["audit", "export", "--force", "-o", path.to_str().unwrap()], args].concat());
    assert!(output.status.success(), "{output:?}");
    path
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("it is text");
    text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

fn verify(home: &Home, path: &Path) -> Output {
    tool(home, &["audit", "verify", path.to_str().unwrap()])
}

fn verified(home: &Home, path: &Path) -> Value {
    let output = tool(home, &["audit", "verify", path.to_str().unwrap(), "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(output.status.code(), Some(if document["intact"] == true { 0 } else { 1 }), "{document}");
    document
}

fn is_intact(home: &Home, path: &Path) {
    let document = verified(home, path);
    assert_eq!((&document["intact"], &document["problems"]), (&json!(true), &json!([])), "{document}");
}

/// The problems that are found, as `line problem`.
fn problems(home: &Home, path: &Path) -> Vec<String> {
    let document = verified(home, path);
    assert_eq!(document["first_broken"], Value::Null, "{document}");
    let told = |problem: &Value| format!("{} {}", problem["line"], text(&problem["problem"]));
    document["problems"].as_array().expect("an array").iter().map(told).collect()
}

fn ledger(home: &Home, session: &str) -> Connection {
    Connection::open(home.path().join("sessions").join(session).join("ledger.db")).expect("it is there")
}

fn change(home: &Home, session: &str, sql: &str) {
    assert!(ledger(home, session).execute(sql, []).expect("it can be changed") > 0, "{sql}");
}

#[test]
fn every_request_and_answer_is_exported() {
    let home = home();
    let all = lines(&export(&home, "a.jsonl", &[]));
    let kinds: Vec<String> = all
        .iter()
        .map(|line| format!("{}{}", text(&line["session"].as_str().unwrap_or("-").into()), text(&line["kind"])))
        .collect();
    assert_eq!((&*kinds[0], &*kinds[kinds.len() - 1]), ("-header", "-footer"));
    assert_eq!((&all[0]["sessions"], &all[0]["format"]), (&json!(["s", "z"]), &json!(1)));
    let count = |kind: &str| kinds.iter().filter(|found| *found == kind).count();
    assert_eq!(
        [count("srequest"), count("sanswer"), count("send"), count("zrequest"), count("zanswer")],
        [5, 4, 2, 1, 1]
    );
    let times: Vec<String> = all[1..all.len() - 1].iter().map(|line| text(&line["at"])).collect();
    assert!(times.is_sorted(), "{times:?}");

    let of = |kind: &str, request: usize| -> Vec<&Value> {
        let ending = format!("-{request}");
        let is_meant =
            |line: &&Value| line["session"] == "s" && line["kind"] == kind && text(&line["request"]).ends_with(&ending);
        all.iter().filter(is_meant).collect()
    };
    let asked = of("request", 0)[0];
    assert_eq!(
        (&asked["command"], &asked["cwd"], &asked["type"]),
        (&json!("/bin/bash -lc 'touch x'"), &json!("/w"), &json!("request_approval"))
    );
    assert_eq!((&asked["thread"], &asked["folder"]), (&json!("t"), &json!(home.beside().to_str())));
    let answers = of("answer", 0);
    assert_eq!(
        (&answers[0]["won"], &answers[0]["source"], &answers[0]["answer"]),
        (&json!(true), &json!("api"), &decision("accept"))
    );
    assert_eq!(answers[0]["uid"], json!(rustix::process::getuid().as_raw()));
    assert_eq!(
        (&answers[1]["won"], &answers[1]["source"], &answers[1]["by"]),
        (&json!(false), &json!("client"), &json!("tester"))
    );
    let files = json!([{"change": "add", "path": "/w/new.txt", "moved_to": null, "added": 1, "removed": 0}]);
    assert_eq!(of("request", 1)[0]["files"], files);
    assert_eq!(of("end", 4)[0]["status"], "orphaned");
    let one = lines(&export(&home, "one.jsonl", &["--session", "z"]));
    assert_eq!((one.len(), &one[0]["only_session"]), (4, &json!("z")));
    assert_eq!(lines(&export(&home, "none.jsonl", &["--since", "2100-01-01"])).len(), 2);
}

#[test]
fn secrets_are_in_no_audit_file() {
    let home = home();
    for name in ["a.jsonl", "a.csv"] {
        let text = fs::read_to_string(export(&home, name, &[])).expect("it is text");
        assert!(!text.contains("sk-abc") && !text.contains("hunter22"), "{text}");
        assert!(text.contains("[redacted]") && text.contains("omitted"), "{text}");
    }
}

#[test]
fn audit_files_are_verified_in_both_formats() {
    let home = home();
    for name in ["a.jsonl", "a.csv"] {
        let path = export(&home, name, &[]);
        is_intact(&home, &path);
        let told = String::from_utf8(verify(&home, &path).stdout).expect("it is text");
        assert!(told.contains("is intact: 15 lines, 13 compared with ledgers\nlast hash: "), "{told}");
    }
    let last = |path: &Path| text(&verified(&home, path)["last_hash"]);
    let (json, csv) = (home.beside().join("a.jsonl"), home.beside().join("a.csv"));
    assert_eq!(last(&json), text(&lines(&json).last().expect("a footer")["hash"]));
    let output = tool(&home, &["audit", "verify", json.to_str().unwrap(), "--last-hash", &last(&json)]);
    assert_eq!(output.status.code(), Some(0));
    let output = tool(&home, &["audit", "verify", json.to_str().unwrap(), "--last-hash", &last(&csv)]);
    assert_eq!(output.status.code(), Some(1));
    failed(
        &tool(&home, &["audit", "export", "-o", csv.to_str().unwrap()]),
        1,
        "it exists already; --force replaces it",
    );
}

#[test]
fn cells_of_csv_are_no_formulas() {
    let home = home();
    let text = fs::read_to_string(export(&home, "a.csv", &[])).expect("it is text");
    assert!(text.contains(&format!(",'{FORMULA},")), "{text}");
    for line in text.lines() {
        let begins = ["=", "+", "-", "@"].iter().any(|sign| {
            line.starts_with(sign) || line.contains(&format!(",{sign}")) || line.contains(&format!(",\"{sign}"))
        });
        assert!(!begins, "{line}");
    }
}

#[test]
fn changed_lines_are_found() {
    let home = home();
    for name in ["a.jsonl", "a.csv"] {
        let path = export(&home, name, &[]);
        let whole = fs::read_to_string(&path).expect("it is text");
        let rows: Vec<&str> = whole.lines().collect();
        // A CSV file has a row of names first.
        let first = usize::from(name.ends_with("csv"));
        let check = |changed: String, line: u64, why: &str| {
            fs::write(&path, changed).expect("it is ours");
            let document = verified(&home, &path);
            let broken = &document["first_broken"];
            assert_eq!((&broken["line"], text(&broken["why"]).contains(why)), (&json!(line), true), "{document}");
        };
        let joined = |rows: &[&str]| rows.join("\n") + "\n";
        check(whole.replacen("touch x", "touch y", 1), 2, "its hash is not that of its text");
        check(joined(&[&rows[..first + 2], &rows[first + 3..]].concat()), 3, "`prev`");
        let mut swapped = rows.clone();
        swapped.swap(first + 1, first + 2);
        check(joined(&swapped), 2, "`prev`");
        check(joined(&rows[..rows.len() - 1]), 15, "the file was cut off");
        check(whole[..whole.len() - 1].to_owned(), 15, "it has no end");
        check(whole.clone() + rows[first + 1] + "\n", 16, "`prev`");
        check(rows[..first].iter().map(|row| format!("{row}\n")).collect(), 1, "the file is empty");
        check(joined(&[&rows[..first], &rows[first + 1..]].concat()), 1, "`prev`");
    }
    let path = home.beside().join("other.jsonl");
    fs::write(&path, "hello\n").expect("it is ours");
    failed(&verify(&home, &path), 1, "it is not a file of `codex-shim audit export`");
    failed(&verify(&home, &home.beside().join("none")), 1, "none");
}

#[test]
fn changed_ledgers_are_found() {
    let home = home();
    let path = export(&home, "a.jsonl", &[]);
    change(
        &home,
        "s",
        "UPDATE codex_pending_requests SET request_payload_json = replace(request_payload_json, 'touch x', 'touch y')",
    );
    assert_eq!(problems(&home, &path), ["2 this line differs from the ledger"]);
    change(
        &home,
        "s",
        "UPDATE codex_pending_requests SET request_payload_json = replace(request_payload_json, 'touch y', 'touch x')",
    );
    is_intact(&home, &path);
    change(&home, "z", "UPDATE codex_request_answers SET payload_json = '{\"decision\":\"decline\"}'");
    assert_eq!(problems(&home, &path), ["13 this line differs from the ledger"]);
    change(&home, "z", "DELETE FROM codex_request_answers");
    let found = problems(&home, &path);
    // Without its answer the request has an end, which the file lacks.
    assert!(found.contains(&"13 the ledger lacks this line".to_owned()), "{found:?}");
}

#[test]
fn lacking_entries_are_found() {
    let home = home();
    let path = export(&home, "a.jsonl", &[]);
    let sql = |at: &str| {
        format!(
            "INSERT INTO codex_request_answers (request_id, at, source, by, payload_json, won) VALUES ('x-1', '{at}', 'api', 'me', '{{}}', 0)"
        )
    };
    change(&home, "s", &sql("2020-01-01T00:00:00.000Z"));
    change(&home, "z", &sql("2100-01-01T00:00:00.000Z"));
    assert_eq!(problems(&home, &path), ["null the file lacks an entry of its period"]);
    // A session that did not exist for the file.
    change(&home, "s", "DELETE FROM codex_request_answers WHERE request_id = 'x-1'");
    let one = export(&home, "z.jsonl", &["--session", "z"]);
    is_intact(&home, &one);
}

/// Entries from before the clock was set back have times in the future.
#[test]
fn entries_with_times_in_the_future_are_exported() {
    let home = home();
    let before = lines(&export(&home, "before.jsonl", &[])).len();
    let at = "2100-01-01T00:00:00.000Z";
    change(&home, "s", &format!("UPDATE codex_pending_requests SET requested_at = '{at}' WHERE rowid = 1"));
    for (args, expect) in [(&[][..], before), (&["--since", "2099-01-01"], 3)] {
        let path = export(&home, &format!("{expect}.jsonl"), args);
        let lines = lines(&path);
        assert_eq!((lines.len(), &lines[0]["until"]), (expect, &json!(at)), "{args:?}");
        is_intact(&home, &path);
    }
}

#[test]
fn deleted_and_redacted_sessions_are_no_fault() {
    let home = home();
    let path = export(&home, "a.jsonl", &[]);
    let output = tool(&home, &["redact", "s", "--yes", "--pattern", "touch"]);
    assert!(output.status.success(), "{output:?}");
    let document = verified(&home, &path);
    assert_eq!((&document["intact"], &document["redacted_lines"]), (&json!(true), &json!(1)), "{document}");
    fs::remove_dir_all(home.path().join("sessions/s")).expect("it is ours");
    let document = verified(&home, &path);
    assert_eq!((&document["intact"], &document["deleted_sessions"]), (&json!(true), &json!({"s": 11})), "{document}");
    let told = String::from_utf8(verify(&home, &path).stdout).expect("it is text");
    assert!(told.contains("session s was deleted since; not compared: 11 lines"), "{told}");
}

#[test]
fn open_requests_may_end_after_the_export() {
    let mut live = Live::initialized("");
    let request = live.asked(&command_asked("0", "t"), "0");
    let path = export(&live.home, "a.jsonl", &[]);
    assert_eq!(lines(&path).len(), 3);
    is_intact(&live.home, &path);
    live.responded(&request, &decision("accept"));
    live.at_server();
    is_intact(&live.home, &path);
    let home = live.kill();
    change(&home, "s", "UPDATE codex_pending_requests SET summary = 'known later'");
    is_intact(&home, &path);
}

#[test]
fn documented_recipe_checks_the_chain() {
    let has =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !has("jq") || !has("sha256sum") {
        // The harness captures stdout, so write to stderr directly: a skipped test must be visible.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: documented_recipe_checks_the_chain: jq or sha256sum is not installed"
        );
        return;
    }
    let home = home();
    let path = export(&home, "audit.jsonl", &[]);
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/audit.md")).expect("it is there");
    let recipe = page.split("```sh\n").find_map(|block| block.strip_prefix("check() {")).expect("the recipe is there");
    let recipe = format!("check() {{{}", recipe.split("```").next().unwrap());
    let run = || Command::new("sh").args(["-c", &recipe]).current_dir(home.beside()).output().expect("a shell");
    let output = run();
    let last = text(&lines(&path).last().expect("a footer")["hash"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("15 lines, last hash {last}\n"), "{output:?}");
    let whole = fs::read_to_string(&path).expect("it is text");
    fs::write(&path, whole.replacen("touch x", "touch y", 1)).expect("it is ours");
    assert_eq!(String::from_utf8_lossy(&run().stdout), "line 2 is broken\n");
}

#[test]
fn export_tells_the_last_hash() {
    let home = home();
    let path = home.beside().join("a.jsonl");
    let document = told(&tool(&home, &["audit", "export", "--json", "-o", path.to_str().unwrap()]));
    let all = lines(&path);
    assert_eq!((&document["lines"], &document["last_hash"]), (&json!(15), &all[14]["hash"]));
    let piped = tool(&home, &["audit", "export"]);
    assert_eq!(piped.stdout.iter().filter(|byte| **byte == b'\n').count(), 15);
}
