//! Exports of transcripts through the real binary: they hold no secret and no home, whole outputs come from the journal, and the
//! file is private and never replaced by accident.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Output;

use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed};
use crate::support::history::history_path;
use crate::support::shim::Home;

const HOME: &str = "/home/ann";

/// A key with a known shape.
const KEY: &str = "sk-abcdefghijklmnopqrst";

fn in_turn() -> Live {
    Live::start().in_turn()
}

fn completes(live: &mut Live, item: &Value) {
    let params = json!({ "threadId": "t", "turnId": "u1", "item": item });
    live.say_plainly(&json!({ "method": "item/completed", "params": params }).to_string());
}

/// An output that is longer than what the history stores, with a secret and a home in its first part.
fn long_output() -> String {
    format!("first {HOME}/x {KEY}\n{}last\n", "0123456789abcde\n".repeat(6_000))
}

/// A thread with all that an export has to clean.
fn thread(live: &mut Live) {
    let text = format!("# hi <b>\nsee {HOME}/notes, {KEY} and /home/bob\n```\n<script>x</script>\n```");
    completes(live, &json!({"type": "agentMessage", "id": "m", "text": text}));
    let command = format!("cat {HOME}/a");
    completes(
        live,
        &json!({
            "type": "commandExecution", "id": "c", "command": command, "cwd": format!("{HOME}/p"), "status": "completed",
            "exitCode": 0, "aggregatedOutput": long_output(),
        }),
    );
    let diff = format!("@@ -1 +1 @@\n-{HOME}\n+{KEY}\n");
    let changes = json!([{"path": format!("{HOME}/p/f"), "kind": {"type": "update"}, "diff": diff}]);
    completes(live, &json!({"type": "fileChange", "id": "f", "changes": changes, "status": "completed"}));
    completes(
        live,
        &json!({
            "type": "mcpToolCall", "id": "k", "server": "s", "tool": "w", "status": "completed",
            "arguments": {"json": format!("{{\"path\":\"x\\n{HOME}/y\"}}")}, "result": {"content": [HOME]},
        }),
    );
}

fn tool(home: &Home, args: &[&str]) -> Output {
    home.shim(args).current_dir(home.beside()).env("HOME", HOME).output().expect("the tool runs")
}

fn exported(home: &Home, args: &[&str]) -> String {
    let output = tool(home, &[&["transcript"], args].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

const FORMATS: [&str; 4] = ["text", "md", "html", "json"];

#[test]
fn exports_hold_no_secret_and_no_home() {
    let mut live = in_turn();
    thread(&mut live);
    let check = |home: &Home| {
        for format in FORMATS {
            let text = exported(home, &["--format", format, "--full", "--diff"]);
            for word in ["sk-abc", HOME, "ann", "bob", "<script>x</script>\n```\nx"] {
                assert!(!text.contains(word), "{word} is in {text}");
            }
            for word in ["~/notes", "/home/user", "cat ~/a", "last", "first ~/x [redacted]"] {
                assert!(text.contains(word), "{word} is not in {format}: {text}");
            }
            let with_paths = exported(home, &["--format", format, "--paths"]);
            assert!(with_paths.contains("/home/ann/notes") && with_paths.contains("/home/bob"), "{with_paths}");
            assert!(!with_paths.contains("sk-abc"), "{with_paths}");
        }
    };
    check(&live.home);
    let home = live.kill();
    check(&home);
    let html = exported(&home, &["--format", "html"]);
    assert!(html.contains("&lt;script&gt;x&lt;/script&gt;") && !html.contains("<script"), "{html}");
    let markdown = exported(&home, &["--format", "md"]);
    assert!(markdown.contains("\n### hi \\<b\\>\n"), "{markdown}");
}

#[test]
fn secrets_stored_before_their_shape_was_known_are_masked() {
    let mut live = in_turn();
    completes(&mut live, &json!({"type": "agentMessage", "id": "m", "text": "the key is QQQ, yes"}));
    assert!(exported(&live.home, &[]).contains("QQQ"));
    let home = live.kill();
    // The first tool indexes the rest of the journal.
    exported(&home, &[]);
    let database = rusqlite::Connection::open(history_path(&home.sessions()[0])).expect("it is there");
    let replaced = database
        .execute("UPDATE codex_transcript_entries SET entry = replace(entry, 'QQQ', ?1)", [KEY])
        .expect("it can be changed");
    assert!(replaced > 0);
    drop(database);
    assert!(exported(&home, &[]).contains(KEY));
    for format in FORMATS {
        let text = exported(&home, &["--format", format]);
        assert!(text.contains("redacted") && !text.contains("sk-abc"), "{text}");
    }
}

#[test]
fn whole_outputs_come_from_the_journal() {
    let mut live = in_turn();
    thread(&mut live);
    let home = live.kill();
    let document = |args: &[&str]| -> Value {
        serde_json::from_str(&exported(&home, &[&["--format", "json"], args].concat())).expect("it is JSON")
    };
    let command = |document: &Value| -> Value {
        let entries = document["entries"].as_array().expect("an array").iter();
        entries.clone().find(|entry| entry["role"] == "command").expect("there is one").clone()
    };
    let whole = document(&["--full"]);
    let mask = format!("[redacted]{}", "*".repeat(KEY.len() - "[redacted]".len()));
    assert_eq!(command(&whole)["output"], long_output().replace(HOME, "~").replace(KEY, &mask));
    assert_eq!((&whole["missing"], &command(&whole)["output_truncated_by_bytes"]), (&Value::Null, &Value::Null));
    let cut = document(&[]);
    assert!(command(&cut)["output_truncated_by_bytes"].is_u64(), "{cut}");

    // The history outlives the journal.
    for segment in fs::read_dir(home.sessions()[0].join("journal")).expect("a folder") {
        let path = segment.expect("an entry").path();
        let record = fs::read_to_string(&path).expect("it is text");
        let rest: Vec<&str> = record.lines().filter(|line| !line.contains("0123456789abcde")).collect();
        fs::write(&path, rest.join("\n") + "\n").expect("it is ours");
    }
    let output = tool(&home, &["transcript", "--format", "json", "--full"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("1 output is cut, because the journal no longer has it whole"), "{stderr}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(document["missing"], "1 output is cut, because the journal no longer has it whole");
    for format in ["md", "html", "text"] {
        let text = exported(&home, &["--format", format, "--full"]);
        assert!(text.contains("bytes before this are no longer on record"), "{text}");
        assert_eq!(text.contains("the journal no longer has it whole"), format != "text", "{text}");
    }
}

#[test]
fn terminal_output_and_json_lines_stay_as_they_were() {
    let mut live = in_turn();
    thread(&mut live);
    let text = exported(&live.home, &[]);
    assert!(text.contains("/home/ann/notes") && text.contains(" more above"), "{text}");
    let lines = exported(&live.home, &["--json"]);
    let entries: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    assert_eq!(entries.len(), 4, "{lines}");
    failed_usage(&tool(&live.home, &["transcript", "--json", "--full"]));
    failed_usage(&tool(&live.home, &["transcript", "--force"]));
    live.kill();
}

fn failed_usage(output: &Output) {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn export_file_is_private_and_never_replaced_by_accident() {
    let mut live = in_turn();
    thread(&mut live);
    let path = live.home.beside().join("report.html");
    let name = path.to_str().expect("UTF-8");
    let output = tool(&live.home, &["transcript", "-o", name]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("codex-shim: wrote 4 entries to {name}\n"));
    assert!(fs::read_to_string(&path).expect("it is text").starts_with("<!DOCTYPE html>"));
    assert_eq!(path.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
    failed(&tool(&live.home, &["transcript", "-o", name]), 1, "it exists already; --force replaces it");
    assert!(tool(&live.home, &["transcript", "-o", name, "--force", "--format", "md"]).status.success());
    assert!(fs::read_to_string(&path).expect("it is text").starts_with("# Codex conversation"));

    let link = live.home.beside().join("link.md");
    symlink(&path, &link).expect("a link");
    let link = link.to_str().expect("UTF-8");
    failed(&tool(&live.home, &["transcript", "-o", link]), 1, "it is a link");
    live.kill();
}
