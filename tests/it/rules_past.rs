//! `rules backtest` and `rules suggest` over ledgers whose rows a test has written itself.

use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::support::both_ends::Live;
use crate::support::shim::Home;

const RULES: &str = r#"
[[rules]]
name = "list"
match = { kind = "command", argv = ["/bin/ls", "-l"], cwd = "/p" }
action = "accept"
[[rules]]
name = "no rm"
match = { kind = "command", argv_prefix = ["rm", "-rf"] }
action = "decline"
[[rules]]
name = "make"
match = { kind = "command", argv_prefix = ["make"] }
action = "hold"
[[rules]]
name = "workflows"
match = { kind = "file_change", path_below = "/p/.github" }
action = "decline"
[[rules]]
name = "never met"
match = { kind = "elicitation" }
action = "decline"
"#;

/// A row: method and parameters, and the answer with its source and its giver.
struct Row(&'static str, Value, Option<(&'static str, &'static str, Value)>);

fn command(line: &str, answer: Option<(&'static str, &'static str, &'static str)>) -> Row {
    let line = shlex::try_join(["/bin/bash", "-lc", line]).expect("BUG: no NUL");
    let params = json!({
        "kind": "command", "threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1, "environmentId": "local",
        "command": line, "cwd": "/p", "commandActions": [], "availableDecisions": ["accept", "cancel"],
    });
    let answer = answer.map(|(source, by, word)| (source, by, json!({ "decision": word })));
    Row("item/commandExecution/requestApproval", params, answer)
}

/// Ten kinds of rows.
fn rows() -> Vec<Row> {
    let change = json!({"threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1,
        "changes": [{"path": "/p/.github/ci.yml", "kind": {"type": "update"}, "diff": "+x"}]});
    let questions = json!({"threadId": "t", "questions": [{"id": "q", "question": "Which?"}]});
    vec![
        command("/bin/ls -l", Some(("client", "editor", "accept"))),
        command("/bin/ls -l", Some(("tui", "ann", "acceptForSession"))),
        command("rm -rf build", Some(("client", "editor", "decline"))),
        command("rm -rf /tmp/x", Some(("api", "bot", "accept"))),
        command("make test", Some(("client", "editor", "accept"))),
        Row("item/fileChange/requestApproval", change, Some(("web", "ann", json!({"decision": "cancel"})))),
        Row(
            "item/permissions/requestApproval",
            json!({"threadId": "t", "permissions": {}, "cwd": "/p"}),
            Some(("cli", "ann", json!({"permissions": {}, "scope": "turn"}))),
        ),
        Row(
            "item/tool/requestUserInput",
            questions,
            Some(("client", "editor", json!({"answers": {"q": {"answers": ["a"]}}}))),
        ),
        command("/bin/ls -l", Some(("policy", "rule:list", "accept"))),
        command("rm -rf y", None),
    ]
}

/// A home with these rules, and a session that has ended.
fn home(rules: &str) -> Home {
    let live = Live::start();
    let (home, _) = live.end();
    std::fs::write(home.path().join("config.toml"), rules).expect("a file");
    home
}

fn insert(home: &Home, number: usize, Row(method, asked, answer): &Row) {
    let session = std::fs::read_dir(home.path().join("sessions")).expect("a folder").next().expect("a session");
    let ledger = session.expect("it can be read").path().join("ledger.db");
    let connection = Connection::open(ledger).expect("a ledger");
    let sql = "INSERT INTO codex_pending_requests (request_id, session_id, process_generation, rpc_request_id, request_type,
        request_method, requested_at, status, request_payload_json, resolved_payload_json, resolved_at, resolution_source,
        resolved_by, summary, changes_json) VALUES (?1, 's', 'g', '1', 'request_approval', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
        ?11)";
    let at = format!("2026-11-{:02}T{:02}:{:02}:00.000Z", 1 + number / 100, number % 100 / 10, number % 10);
    let status = if answer.is_some() { "resolved" } else { "orphaned" };
    let (source, by, payload) = match answer {
        Some((source, by, payload)) => (Some(*source), Some(*by), Some(payload.to_string())),
        None => (None, None, None),
    };
    let summary = asked["command"].as_str().unwrap_or(method).to_owned();
    let id = format!("r{number}");
    // The changes stand in the item, which has a column of its own.
    let (mut asked, changes) = (asked.clone(), asked.get("changes").map(Value::to_string));
    asked.as_object_mut().expect("an object").remove("changes");
    connection
        .execute(sql, params![id, method, at, status, asked.to_string(), payload, at, source, by, summary, changes])
        .expect("a row");
}

fn document(home: &Home, words: &[&str]) -> Value {
    let output = home.shim(&[&["rules"], words, &["--json"]].concat()).output().expect("the shim runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn said(home: &Home, words: &[&str]) -> (String, String, Option<i32>) {
    let output = home.shim(&[&["rules"], words].concat()).output().expect("the shim runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code())
}

fn result(name: &str, action: &str, [matched, answers, unknown, same, otherwise]: [u64; 5]) -> Value {
    json!({"name": name, "action": action, "matched": matched, "answers": answers, "unknown": unknown, "same": same,
        "otherwise": otherwise})
}

#[test]
fn rules_are_compared_with_a_thousand_answers() {
    let home = home(RULES);
    let kinds = rows();
    (0..1000).for_each(|number| insert(&home, number, &kinds[number % 10]));
    let told = document(&home, &["backtest"]);
    assert_eq!(told["requests"], 1000);
    let expect = json!([
        result("list", "accept", [300, 0, 300, 200, 0]),
        result("no rm", "decline", [300, 300, 0, 100, 100]),
        result("make", "hold", [100, 0, 0, 0, 0]),
        result("workflows", "decline", [100, 100, 0, 100, 0]),
        result("never met", "decline", [0, 0, 0, 0, 0]),
    ]);
    assert_eq!(told["rules"], expect, "{:#}", told["rules"]);
    let otherwise = told["otherwise"].as_array().expect("a list");
    let ids: Vec<&str> = otherwise.iter().filter_map(|it| it["request_id"].as_str()).collect();
    let expect: Vec<String> = (0..100).map(|number| format!("r{}", 10 * number + 3)).collect();
    assert_eq!(ids, expect);
    let first = &otherwise[0];
    assert_eq!(
        (&first["rule"], &first["certain"], &first["answer"], &first["by"], &first["cwd"], &first["at"]),
        (
            &json!("no rm"),
            &json!(true),
            &json!("accept"),
            &json!("bot"),
            &json!("/p"),
            &json!("2026-11-01T00:03:00.000Z")
        )
    );
    // Only a period, and one rule alone.
    let told = document(&home, &["backtest", "--since", "2026-11-10T00:00:00Z", "--rule", "no rm"]);
    assert_eq!(
        (&told["requests"], &told["rules"]),
        (&json!(100), &json!([result("no rm", "decline", [30, 30, 0, 10, 10])]))
    );
    let (text, _, status) = said(&home, &["backtest", "--rule", "no rm", "--since", "2026-11-10T00:00:00Z"]);
    assert!(text.contains("would have declined it; bot said accept") && status == Some(0), "{text}");
    let (_, why, status) = said(&home, &["backtest", "--rule", "other"]);
    assert!(why.contains("no rule is called `other`") && why.contains("`no rm`") && status == Some(2), "{why}");
}

#[test]
fn proposed_rules_are_compared_without_being_set() {
    let home = home("");
    let kinds = rows();
    (0..20).for_each(|number| insert(&home, number, &kinds[number % 10]));
    let proposed = home.beside().join("proposed.toml");
    let write = |text: &str| std::fs::write(&proposed, text).expect("a file");
    let path = proposed.to_str().expect("UTF-8");
    write(RULES);
    let told = document(&home, &["backtest", "--with", path]);
    assert_eq!(told["rules"][1], result("no rm", "decline", [6, 6, 0, 2, 2]));
    for (text, part) in [
        ("", "has no rules"),
        ("[[rules", "proposed.toml: "),
        ("[[rules]]\nname = 'x'\naction = 'accept'\nmatch = { kind = 'command', argv = ['ls'] }", "needs `cwd`"),
    ] {
        write(text);
        let (_, why, status) = said(&home, &["backtest", "--with", path]);
        assert!(why.contains(part) && status == Some(2), "{text}: {why}");
    }
    let (_, why, status) = said(&home, &["backtest", "--with", "/no/file"]);
    assert!(why.contains("/no/file") && status == Some(2), "{why}");
}

#[test]
fn what_was_answered_alike_is_suggested() {
    let home = home("");
    let kinds = rows();
    (0..50).for_each(|number| insert(&home, number, &kinds[number % 10]));
    let names = |told: &Value| -> Vec<String> {
        let rules = told["rules"].as_array().expect("a list");
        rules
            .iter()
            .map(|rule| format!("{} {}: {}", rule["action"], rule["count"], rule["name"]).replace('"', ""))
            .collect()
    };
    let told = document(&home, &["suggest"]);
    let expect = [
        "accept 10: /bin/ls -l",
        "accept 5: make test",
        "decline 5: no rm -rf build",
        "decline 5: no changes in /p/.github",
        "decline 5: no wider permissions",
    ];
    assert_eq!(names(&told), expect, "{told:#}");
    assert_eq!(told["rules"][0]["by"], json!(["ann", "editor"]));
    // More than there are.
    assert_eq!(names(&document(&home, &["suggest", "--min", "6"])), expect[..1]);
    assert_eq!(
        (&told["rules"][0]["runs_files_of_model"], &told["rules"][1]["runs_files_of_model"]),
        (&json!(false), &json!(true))
    );
    // The output is a file of rules, which agree with all answers. A rule that would run files of the model is off.
    let (text, ..) = said(&home, &["suggest"]);
    assert!(text.contains("# accepted 10 times by ann, editor, "), "{text}");
    let proposed = home.beside().join("proposed.toml");
    std::fs::write(&proposed, &text).expect("a file");
    let told = document(&home, &["backtest", "--with", proposed.to_str().expect("UTF-8")]);
    assert_eq!(told["otherwise"], json!([]), "{told:#}");
    let names_of: Vec<&str> =
        told["rules"].as_array().expect("a list").iter().filter_map(|rule| rule["name"].as_str()).collect();
    assert_eq!(names_of, ["/bin/ls -l", "no rm -rf build", "no changes in /p/.github", "no wider permissions"]);
    assert!(!home.path().join("config.toml").metadata().is_ok_and(|file| file.len() > 0), "nothing is set");
    // One other answer is enough against it.
    insert(&home, 60, &command("/bin/ls -l", Some(("client", "editor", "decline"))));
    insert(&home, 61, &command("rm -rf build", Some(("client", "editor", "accept"))));
    assert_eq!(names(&document(&home, &["suggest"])), [1, 3, 4].map(|at| expect[at]));
}

#[test]
fn home_without_requests_has_nothing_to_compare() {
    let home = home(RULES);
    let (text, _, status) = said(&home, &["backtest"]);
    assert_eq!((text.as_str(), status), ("no request is on record in this period\n", Some(0)));
    let (text, _, status) = said(&home, &["suggest"]);
    assert!(text.starts_with("# no request was answered 3 times") && status == Some(0), "{text}");
}
