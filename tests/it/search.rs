//! `codex-shim search` through the real binary: what it finds in live and stopped sessions, and that nothing of a redacted
//! secret stays in the search index.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, text, told, tool};
use crate::support::eventually;
use crate::support::pane::Pane;
use crate::support::shim::{Home, SHIM};

/// A relay in session `session` whose server runs turn `u1` in thread `t`.
fn in_turn(home: Home, session: &str) -> Live {
    Live::start_in_session(home, session).in_turn()
}

/// The server reports a finished item of this second of 2026-01-02.
fn ends(live: &mut Live, second: u64, mut item: Value) {
    item["completedAtMs"] = json!(1_767_312_000_000_u64 + second * 1_000);
    let params = json!({ "threadId": "t", "turnId": "u1", "item": item });
    live.say_plainly(&json!({ "method": "item/completed", "params": params }).to_string());
}

fn command(id: &str, command: &str, output: &str) -> Value {
    json!({
        "type": "commandExecution", "id": id, "command": format!("/bin/bash -lc '{command}'"), "cwd": "/w",
        "status": "completed", "exitCode": 0, "aggregatedOutput": output,
    })
}

fn message(id: &str, words: &str) -> Value {
    json!({ "type": "agentMessage", "id": id, "text": words })
}

fn matches(home: &Home, args: &[&str]) -> Vec<Value> {
    let document = told(&tool(home, &[&["search", "--json"], args].concat()));
    document["matches"].as_array().expect("a list").clone()
}

/// The lines that a search finds.
fn lines(home: &Home, args: &[&str]) -> Vec<String> {
    matches(home, args).iter().map(|found| text(&found["line"])).collect()
}

#[test]
fn search_finds_each_kind_newest_first() {
    let mut live = in_turn(Home::new(), "s");
    ends(&mut live, 1, command("c1", "rm -rf build/out", "one\ncannot remove it\n"));
    ends(&mut live, 3, message("m1", "Deleted build/out.\nAnything else?"));
    let changes = json!([{"path": "/w/src/build.rs", "kind": {"type": "update"}, "diff": "@@ -1 +1 @@\n-old\n+newName\n same\n"}]);
    ends(&mut live, 2, json!({"type": "fileChange", "id": "f1", "status": "completed", "changes": changes}));
    live.say(
        r#"{"id":9,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u1","itemId":"c2","command":"build install","cwd":"/w","reason":"needs root"}}"#,
    );
    live.send(r#"{"id":9,"result":{"decision":"decline"}}"#);
    let home = live.end_quietly();

    let found = matches(&home, &["build"]);
    let kinds: Vec<String> = found.iter().map(|found| text(&found["kind"])).collect();
    assert_eq!(kinds, ["request", "message", "diff", "command"], "{found:?}");
    let newest = &found[3];
    assert_eq!(
        [&newest["session_id"], &newest["thread_id"], &newest["turn_id"], &newest["item_id"], &newest["at"]],
        [&json!("s"), &json!("t"), &json!("u1"), &json!("c1"), &json!("2026-01-02T00:00:01.000Z")]
    );
    assert_eq!((&newest["matched"], &newest["of"]), (&json!(["build"]), &Value::Null));

    assert_eq!(lines(&home, &["rm", "out"]), ["rm -rf build/out"]);
    assert_eq!(lines(&home, &["\"cannot remove\""]), ["cannot remove it"]);
    assert_eq!(matches(&home, &["\"cannot remove\""])[0]["of"], "rm -rf build/out");
    assert_eq!(
        lines(&home, &["BUILD", "--kind", "diff", "--kind", "message"]),
        ["Deleted build/out.", "/w/src/build.rs"]
    );
    assert_eq!(lines(&home, &["name"]), ["+newName"]);
    assert_eq!(lines(&home, &["newN*"]), ["+newName"]);
    assert_eq!(lines(&home, &["same"]), [""; 0]);
    assert_eq!(lines(&home, &["root", "--kind", "request"]), ["needs root"]);
    assert_eq!(lines(&home, &["build", "--since", "2026-01-02T00:00:02Z", "--kind", "diff"]), ["/w/src/build.rs"]);
    assert_eq!(lines(&home, &["build", "--since", "1d", "--kind", "command"]), [""; 0]);
    assert_eq!(lines(&home, &["--regex", "rm +-[a-z]*f"]), ["rm -rf build/out"]);
    assert_eq!(lines(&home, &["--regex", "^Any.*\\?$"]), ["Anything else?"]);
    let two = told(&tool(&home, &["search", "build", "-n", "2", "--json"]));
    assert_eq!((two["matches"].as_array().map(Vec::len), &two["has_more"]), (Some(2), &json!(true)));
}

#[test]
fn search_covers_live_and_stopped_sessions() {
    let mut first = in_turn(Home::new(), "first");
    ends(&mut first, 2, message("m1", "one needle"));
    let home = first.kill();
    let mut second = in_turn(home, "second");
    ends(&mut second, 1, message("m1", "another needle"));
    assert_eq!(lines(&second.home, &["needle"]), ["one needle", "another needle"]);
    assert_eq!(lines(&second.home, &["needle", "--session", "first"]), ["one needle"]);
    ends(&mut second, 3, message("m2", "a third needle"));
    assert_eq!(lines(&second.home, &["needle", "-n", "2"]), ["a third needle", "one needle"]);
    let shown = tool(&second.home, &["search", "needle", "--utc"]);
    let shown = String::from_utf8(shown.stdout).expect("it is text");
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["second", "2026-01-02T00:00:03Z", "message", "a", "third", "needle"]);
    assert_eq!(rows.len(), 3);
    failed(&tool(&second.home, &["search", "needle", "--session", "other"]), 3, "other");
    let none = tool(&second.home, &["search", "missing"]);
    assert_eq!((none.status.code(), &*none.stdout), (Some(0), &b""[..]), "{none:?}");
    assert!(String::from_utf8_lossy(&none.stderr).contains("no matches in 2 sessions"));
    second.kill();
}

#[test]
fn no_text_breaks_a_search() {
    let mut live = in_turn(Home::new(), "s");
    ends(
        &mut live,
        1,
        message("m1", "a'b \"c\" -> d; DROP TABLE codex_events; NEAR(x y) {e} ^f col:g +h \\ % _ ü 请删"),
    );
    let home = live.end_quietly();
    for text in [
        "'", "a'b", "\"c\"", "->", "NEAR(x", "NOT", "AND OR", "{e}", "^f", "col:g", "+h", "\\", "%", "_", "Ü", "删",
        "; DROP",
    ] {
        let found = lines(&home, &["--", text]);
        let has_it = !matches!(text, "NOT" | "AND OR");
        assert_eq!(found.len(), usize::from(has_it), "{text}: {found:?}");
    }
    assert_eq!(lines(&home, &["--", "*"]), [""; 0]);
    for (args, words) in [
        (&["search", ""][..], "nothing to search for"),
        (&["search", "\"\""], "nothing to search for"),
        (&["search", "--regex", "("], "not a valid regular expression"),
        (&["search", "--regex", "(a{999}){999}"], "too long"),
    ] {
        let output = tool(&home, args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(words), "{output:?}");
    }
}

/// Whether the bytes of a history, its log included, have this text.
fn has_bytes(session: &Path, word: &str) -> bool {
    let files = ["history.db", "history.db-wal"].map(|name| fs::read(session.join(name)).unwrap_or_default());
    files.iter().any(|bytes| memchr::memmem::find(bytes, word.as_bytes()).is_some())
}

/// A secret only by a pattern, and its parts: in its texts, and in the index of words, which has them in lower case.
const SECRET: &str = "Zq7kornblumeXylophon";
const PARTS_IN_TEXTS: [&str; 2] = ["kornblume", "Xylophon"];
const PART_IN_INDEX: &str = "xylophon";

/// Commands whose outputs have the secret among so many words that the index is merged several times.
fn says_secret(live: &mut Live) {
    for number in 0..50_u64 {
        let words: Vec<String> =
            (0..300_u64).map(|word| format!("{:x}", (word * 977 + number * 7_919) % 60_013)).collect();
        let output = format!("{}\n{SECRET} {number}\n", words.join(" "));
        ends(live, number, command(&format!("c{number}"), &format!("echo {number}"), &output));
    }
    ends(live, 60, message("m1", "the end"));
}

/// Redacts the secret; the bytes of the history have none of these parts of it any more.
fn check_redacted(home: &Home, parts: &[&str]) {
    let session = home.path().join("sessions/s");
    // A running session is indexed in the background.
    eventually("all lines in the index", || (lines(home, &[SECRET, "-n", "100"]).len() == 50).then_some(()));
    assert!(parts.iter().all(|word| has_bytes(&session, word)), "the test could not fail");
    let output = tool(home, &["redact", "--session", "s", "--pattern", "Zq7[A-Za-z]+"]);
    assert!(output.status.success(), "{output:?}");
    let left = || parts.iter().copied().filter(|word| has_bytes(&session, word)).collect::<Vec<_>>();
    assert_eq!(left(), [""; 0]);
    assert_eq!(lines(home, &[SECRET]), [""; 0]);
    assert_eq!(lines(home, &["echo", "-n", "100"]).len(), 50);
    assert_eq!(left(), [""; 0]);
}

#[test]
fn redacted_words_leave_the_index_of_a_stopped_session() {
    let mut live = in_turn(Home::new(), "s");
    says_secret(&mut live);
    let home = live.end_quietly();
    check_redacted(&home, &[&PARTS_IN_TEXTS[..], &[PART_IN_INDEX]].concat());
    assert_eq!(unfilled_to(&home.path().join("sessions/s")), 0);
}

#[test]
fn redacted_words_leave_the_index_of_a_live_session() {
    let mut live = in_turn(Home::new(), "s");
    says_secret(&mut live);
    // The state in memory of a running index is not redacted, but its index of words is.
    check_redacted(&live.home, &[PART_IN_INDEX]);
    let session = live.home.path().join("sessions/s");
    ends(&mut live, 61, message("m2", "another end"));
    eventually("the index is filled again", || (unfilled_to(&session) == 0).then_some(()));
    assert_eq!(lines(&live.home, &["end"]), ["another end", "the end"]);
    live.kill();
}

fn unfilled_to(session: &Path) -> i64 {
    let history = Connection::open(session.join("history.db")).expect("it opens");
    history.query_row("SELECT unfilled_to FROM codex_search_state", [], |row| row.get(0)).expect("a number")
}

#[test]
fn rebuilt_history_finds_the_same() {
    let mut live = in_turn(Home::new(), "s");
    for number in 0..30 {
        ends(&mut live, number * 7 % 30, command(&format!("c{number}"), &format!("make target{number}"), "done\n"));
    }
    let home = live.end_quietly();
    let before = matches(&home, &["make", "-n", "100"]);
    assert_eq!(before.len(), 30);
    fs::remove_file(home.path().join("sessions/s/history.db")).expect("it is there");
    assert_eq!(matches(&home, &["make", "-n", "100"]), before);
    assert_eq!(lines(&home, &["target7"]), ["make target7"]);
}

#[test]
fn matches_are_marked_on_a_narrow_terminal() {
    let mut live = in_turn(Home::new(), "s");
    ends(&mut live, 1, command("c1", "git push --force origin main", "one\nrejected by the server\n"));
    let home = live.end_quietly();
    let script =
        format!("stty cols 40; {SHIM} search --utc force; {SHIM} search --utc rejected; echo so that ''is all");
    let shown = Pane::start(&home, &["sh", "-c", &script]).shows("so that is all");
    let marked = |word: &str| format!("\u{1b}[33m{word}\u{1b}[0m");
    assert!(shown.contains(&format!("$ git push --{} origin main", marked("force"))), "{shown}");
    assert!(shown.contains(&format!("    {} by the server", marked("rejected"))), "{shown}");
    assert!(shown.contains("command") && shown.contains("00:00:01"), "{shown}");
}
