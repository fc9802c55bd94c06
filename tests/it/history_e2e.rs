//! The history of the real codex: tools, turns, threads and messages.

use serde_json::{Value, json};

use crate::support::both_ends::{text, tool};
use crate::support::conversations::start_turn;
use crate::support::eventually;
use crate::support::history::{all_indexed_once, rows};
use crate::support::model::Item;
use crate::support::real::{COMMAND, Real, run, says};
use crate::support::release::{Ability, Release};
use crate::support::shim::Home;

fn told(real: &Real, path: &str, member: &str) -> Vec<Value> {
    real.get(&format!("/sessions/self/{path}"))[member].as_array().expect("an array").clone()
}

/// Events of a tool or a turn in order, without those of other items.
fn kinds(rows: &[Value], is_meant: impl Fn(&Value) -> bool) -> Vec<String> {
    rows.iter().filter(|row| is_meant(row)).map(|row| text(&row["event_type"])).collect()
}

fn state(real: &Real) -> String {
    text(&real.get("/sessions/self/activity")["activity_state"])
}

fn roles(real: &Real, thread: &str) -> Vec<String> {
    let entries = told(real, &format!("threads/{thread}/transcript"), "entries");
    entries.iter().map(|entry| text(&entry["role"])).collect()
}

#[test]
fn e2e_history_of_a_long_answer() {
    let pieces: Vec<&'static str> =
        std::iter::repeat_n(["Lorem ", "ipsum ", "dolor ", "sit\u{2028}amet "], 100).flatten().collect();
    let said = pieces.concat();
    let Some(mut real) = Real::start("e2e_history_of_a_long_answer", "", vec![vec![Item::Text(pieces)]]) else {
        return;
    };
    start_turn(&mut real.peer, &real.thread, "talk");
    real.completed("completed");
    let session = real.home.path().join("sessions/s");
    let rows = all_indexed_once(&session);
    let pieces: usize =
        rows.iter().filter(|row| row.event_type == "item/agentMessage/delta").filter_map(|row| row.pieces).sum();
    let seen = real.peer.seen.iter().filter(|message| message["method"] == "item/agentMessage/delta").count();
    assert_eq!((pieces, seen > 100), (seen, true));
    let turns = told(&real, "turn-events", "events");
    let last = turns.last().expect("a row");
    assert_eq!(
        (&last["event_type"], &last["status"], &last["delta_chars"], &last["output_tokens"]),
        (&json!("completed"), &json!("completed"), &json!(said.chars().count()), &json!(5)),
        "{turns:#?}"
    );
    let entries = told(&real, &format!("threads/{}/transcript", real.thread), "entries");
    let words = |role: &str| {
        entries.iter().filter(|entry| entry["role"] == role).map(|entry| text(&entry["text"])).collect::<Vec<_>>()
    };
    assert_eq!((words("user"), words("assistant")), (vec!["talk".to_owned()], vec![said]));
    eventually("the turn's end", || (state(&real) == "idle").then_some(()));
    real.end();
}

#[test]
fn e2e_history_of_a_command_that_waits_for_a_human() {
    let Some(mut real) = Real::start("e2e_history_of_a_command", "", vec![run(), says()]) else { return };
    let (asked, row) = real.asked_by_turn(COMMAND);
    let item = &asked["params"]["itemId"];
    let activity = real.get("/sessions/self/activity");
    assert_eq!(activity["activity_state"], "waiting_permission", "{activity:#}");
    assert_eq!(activity["threads"][0]["thread_id"], real.thread.as_str());
    assert_eq!(activity["threads"][0]["pending"], 1);
    // The request stays pending until it is answered; nothing else ends it.
    real.responded(&row, &json!({"decision": "accept"}));
    real.completed("completed");
    eventually("the turn's end", || (state(&real) == "idle").then_some(()));
    let tools = told(&real, "tool-events", "events");
    let of_item = kinds(&tools, |row| row["item_id"] == *item && row["event_type"] != "output_delta");
    let mut sorted = of_item.clone();
    sorted.sort();
    assert_eq!(sorted, ["approval_decision", "completed", "request_approval", "started"], "{tools:#?}");
    let completed = tools.iter().find(|row| row["event_type"] == "completed").expect("a row");
    assert_eq!(
        (&completed["exit_code"], &completed["item_type"]),
        (&json!(0), &json!("commandExecution")),
        "{completed:#}"
    );
    let decided = tools.iter().find(|row| row["event_type"] == "approval_decision").expect("a row");
    assert_eq!((&decided["approval_decision"], &decided["request_id"]), (&json!("accept"), &row["request_id"]));
    let actions = told(&real, "activity-actions", "actions");
    let kinds: Vec<(String, String)> =
        actions.iter().map(|action| (text(&action["action_kind"]), text(&action["status"]))).collect();
    assert!(kinds.contains(&("command".to_owned(), "completed".to_owned())), "{actions:#?}");
    let roles = roles(&real, &real.thread);
    for role in ["user", "command", "assistant", "approval"] {
        assert_eq!(roles.iter().filter(|found| *found == role).count(), 1, "{role}: {roles:?}");
    }
    all_indexed_once(&real.home.path().join("sessions/s"));
    real.end();
}

#[test]
fn e2e_history_of_a_command_that_fails() {
    let fails = vec![Release::under_test().command("echo no >&2; exit 7")];
    let Some(mut real) = Real::start("e2e_history_of_a_command_that_fails", "", vec![fails, says()]) else { return };
    start_turn(&mut real.peer, &real.thread, "go on");
    real.completed("completed");
    // Codex calls the model again if a command is slow, so the command may end after its turn.
    let last = eventually("its end", || {
        let tools = told(&real, "tool-events", "events");
        tools.iter().rfind(|row| row["phase"] == "post").cloned()
    });
    assert_eq!((&last["event_type"], &last["exit_code"]), (&json!("failed"), &json!(7)), "{last:#}");
    let actions = told(&real, "activity-actions", "actions");
    assert_eq!(actions.last().map(|action| action["status"].clone()), Some(json!("failed")), "{actions:#?}");
    real.end();
}

#[test]
fn e2e_history_of_an_interrupted_turn() {
    let script = vec![vec![Item::Text(vec!["I begin"]), Item::Hang], says()];
    let Some(mut real) = Real::start("e2e_history_of_an_interrupted_turn", "", script) else { return };
    let turn = start_turn(&mut real.peer, &real.thread, "go on");
    real.peer.wait_for_method("item/completed");
    let is_busy = state(&real);
    assert!(["working", "thinking"].contains(&is_busy.as_str()), "{is_busy}");
    real.peer.call("turn/interrupt", json!({"threadId": real.thread, "turnId": turn}));
    real.completed("interrupted");
    eventually("the turn's end", || (state(&real) == "idle").then_some(()));
    let turns = told(&real, "turn-events", "events");
    let last = turns.last().expect("a row");
    assert_eq!((&last["status"], &last["turn_id"]), (&json!("interrupted"), &json!(turn)), "{turns:#?}");
    real.end();
}

#[test]
fn e2e_history_of_a_change_of_files() {
    let patch = vec![Item::Patch("*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch")];
    let Some(mut real) = Real::start("e2e_history_of_a_change_of_files", "", vec![patch, says()]) else { return };
    let (asked, _) = real.asked_by_turn("item/fileChange/requestApproval");
    real.peer.answer(&asked, json!({"decision": "accept"}));
    real.completed("completed");
    assert!(real.lab.cwd().join("new.txt").exists());
    let tools = told(&real, "tool-events", "events");
    let ended = tools.iter().find(|row| row["event_type"] == "completed").unwrap_or_else(|| panic!("{tools:#?}"));
    assert_eq!(
        (&ended["item_type"], &ended["diff_summary"]),
        (&json!("fileChange"), &json!("+1 -0 in 1 file")),
        "{ended:#}"
    );
    assert!(ended["file_path"].as_str().is_some_and(|path| path.ends_with("new.txt")), "{ended:#}");
    let roles = roles(&real, &real.thread);
    for role in ["file_change", "diff"] {
        assert_eq!(roles.iter().filter(|found| *found == role).count(), 1, "{roles:?}");
    }
    real.end();
}

/// A new file that reads like a diff, from its first line on.
const LOOKALIKE: &str =
    "*** Begin Patch\n*** Add File: post.md\n+--- a/x\n++++ b/x\n+@@ -1 +1 @@\n+title: x\u{2028}y\n*** End Patch";

#[test]
fn e2e_changes_that_look_like_diffs_are_whole() {
    let sql = "*** Begin Patch\n*** Update File: q.sql\n@@\n--- old\n+++ new\n select 1;\n*** End Patch";
    let delete = "*** Begin Patch\n*** Delete File: old.md\n*** End Patch";
    const TEST: &str = "e2e_changes_that_look_like_diffs_are_whole";
    let count = if Release::under_test().lacks(TEST, Ability::Deletion) { 2 } else { 3 };
    let patches = [LOOKALIKE, sql, delete].map(|patch| vec![Item::Patch(patch)]).into_iter().take(count);
    let Some(mut real) = Real::start(TEST, "", patches.chain([says()]).collect()) else { return };
    std::fs::write(real.lab.cwd().join("q.sql"), "-- old\nselect 1;\n").expect("a file");
    std::fs::write(real.lab.cwd().join("old.md"), "--- x\r\n@@ -1 +1 @@\r\ny").expect("a file");
    let shown = [
        &["+--- a/x", "++++ b/x", "+@@ -1 +1 @@", "+title: x\\u{2028}y"][..],
        &["@@ -1,2 +1,2 @@", "--- old", "+++ new", " select 1;"],
        &["---- x\u{fffd}", "-@@ -1 +1 @@\u{fffd}", "-y", "\\ No newline at end of file"],
    ];
    let sizes = ["1 file +4 -0", "1 file +1 -1", "1 file +0 -3"];
    start_turn(&mut real.peer, &real.thread, "go on");
    for (lines, size) in shown.iter().zip(sizes).take(count) {
        let (asked, row) = real.asked("item/fileChange/requestApproval");
        let output = tool(&real.home, &["show", &text(&row["request_id"])]);
        let printed = String::from_utf8(output.stdout).expect("it is text");
        assert!(printed.lines().any(|line| line == format!("changes     {size}")), "{printed}");
        let lines: Vec<String> = lines.iter().map(|line| format!("            {line}\n")).collect();
        assert!(printed.contains(&lines.concat()), "{printed}");
        let warnings: Vec<&str> = printed.lines().filter(|line| line.starts_with("warning")).collect();
        let expect = if size.ends_with("+0 -3") { &["warning     it deletes a file"][..] } else { &[] };
        assert_eq!(warnings, expect, "{printed}");
        real.peer.answer(&asked, json!({"decision": "accept"}));
    }
    real.completed("completed");
    let ended = |row: &Value| row["item_type"] == "fileChange" && row["event_type"] == "completed";
    let tools = told(&real, "tool-events", "events");
    let sizes: Vec<String> = tools.iter().filter(|row| ended(row)).map(|row| text(&row["diff_summary"])).collect();
    assert_eq!(sizes, ["+4 -0 in 1 file", "+1 -1 in 1 file", "+0 -3 in 1 file"][..count], "{tools:#?}");
    let diffs = said_of(&real, "diff of the turn so far");
    assert!(diffs[0].contains("post.md (+4 -0)"), "{diffs:?}");
    assert!(diffs.iter().any(|line| line.contains("q.sql (+1 -1)")), "{diffs:?}");
    assert!(count < 3 || diffs.iter().any(|line| line.contains("old.md (+0 -3)")), "{diffs:?}");
    let export = tool(&real.home, &["transcript", &real.thread, "--diff", "--format", "html"]);
    let page = String::from_utf8(export.stdout).expect("it is text");
    let marked = ["add\">+--- a/x", "add\">++++ b/x", "add\">+@@ -1", "del\">--- old", "add\">+++ new", "del\">---- x"];
    for line in &marked[..count + 3] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    real.end();
}

/// The lines of the transcript with these words.
fn said_of(real: &Real, words: &str) -> Vec<String> {
    let output = tool(&real.home, &["transcript", &real.thread]);
    let printed = String::from_utf8(output.stdout).expect("it is text");
    printed.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
}

#[test]
fn e2e_history_of_a_compaction_and_of_a_thread_that_is_resumed() {
    let script = vec![says(), says(), vec![Item::Text(vec!["Again."])]];
    let Some(mut real) = Real::start("e2e_history_of_a_compaction", "", script) else { return };
    start_turn(&mut real.peer, &real.thread, "one");
    real.completed("completed");
    let compacts = !real.lab.release.lacks("e2e_history_of_a_compaction", Ability::Compaction);
    if compacts {
        real.peer.call("thread/compact/start", json!({"threadId": real.thread}));
        real.completed("completed");
    }
    let before = roles(&real, &real.thread);
    let compactions = before.iter().filter(|role| *role == "context_compacted").count();
    assert_eq!(compactions, usize::from(compacts), "{before:?}");
    // A second run of the same thread.
    let Real { lab, model, home, peer, thread } = real;
    assert!(peer.finish().1.success());
    let mut real = Real::start_again(lab, model, home, thread);
    real.peer.call("thread/resume", json!({"threadId": real.thread}));
    assert_eq!(roles(&real, &real.thread), before);
    start_turn(&mut real.peer, &real.thread, "two");
    real.completed("completed");
    let after = roles(&real, &real.thread);
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(after.iter().filter(|role| *role == "user").count(), 2, "{after:?}");
    all_indexed_once(&real.home.path().join("sessions/s"));
    real.end();
}

#[test]
fn e2e_history_of_a_sub_agent() {
    if Release::under_test().lacks("e2e_history_of_a_sub_agent", Ability::SubAgents) {
        return;
    }
    let script = vec![vec![Release::under_test().sub_agent()], says(), says(), says()];
    let Some(mut real) = Real::start_as("e2e_history_of_a_sub_agent", "some-model", script) else { return };
    start_turn(&mut real.peer, &real.thread, "go on");
    let thread = real.thread.clone();
    let child = real.peer.wait_for("a turn of another thread", |message| {
        message["method"] == "turn/completed" && message["params"]["threadId"] != thread.as_str()
    });
    let child = text(&child["params"]["threadId"]);
    let threads = real.get("/sessions/self/activity")["threads"].clone();
    assert!(threads.as_array().expect("an array").iter().any(|thread| thread["thread_id"] == child), "{threads:#}");
    assert!(roles(&real, &child).contains(&"assistant".to_owned()));
    eventually("all turns' ends", || (state(&real) == "idle").then_some(()));
    let turns = told(&real, "turn-events", "events");
    assert!(turns.iter().any(|row| row["thread_id"] == child && row["event_type"] == "completed"), "{turns:#?}");
    let session = real.home.path().join("sessions/s");
    all_indexed_once(&session);
    assert!(!rows(&session).expect("rows").is_empty());
    real.end();
}

/// What a reader gets of the thread: words, commands, and the ends of turns.
fn said(real: &Real) -> Vec<String> {
    let (status, document) = real.http(&format!("GET /sessions/self/threads/{}/transcript", real.thread), &Value::Null);
    let entries = document["entries"].as_array().cloned().unwrap_or_default();
    assert!(status == 200 || entries.is_empty(), "{document:#}");
    let line = |entry: &Value| match &*text(&entry["role"]) {
        role @ ("user" | "assistant") => Some(format!("{role}: {}", text(&entry["text"]))),
        "command" => Some(format!("$ {} {}", text(&entry["command"]), entry["exit_code"])),
        "status" => Some(text(&entry["status"])),
        _ => None,
    };
    entries.iter().filter_map(line).collect()
}

/// Reads pages of a thread from the newest to the oldest.
fn read_pages(real: &mut Real, method: &str, more: &Value, pages_max: usize) {
    let mut cursor = Value::Null;
    for _ in 0..pages_max {
        let mut params = json!({"threadId": real.thread, "cursor": cursor, "sortDirection": "desc"});
        params.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        cursor = real.peer.call(method, params)["nextCursor"].clone();
        if cursor.is_null() {
            return;
        }
    }
}

#[test]
fn e2e_history_of_a_thread_that_is_read() {
    let test = "e2e_history_of_a_thread_that_is_read";
    if Release::under_test().lacks(test, Ability::Pages) {
        return;
    }
    let script = vec![says(), run(), says(), vec![Item::Text(vec!["At last."])]];
    let Some(mut real) = Real::start(test, "", script) else { return };
    start_turn(&mut real.peer, &real.thread, "one");
    real.completed("completed");
    let (asked, _) = real.asked_by_turn(COMMAND);
    real.peer.answer(&asked, json!({"decision": "accept"}));
    real.completed("completed");
    start_turn(&mut real.peer, &real.thread, "three");
    real.completed("completed");
    let expect = eventually("the whole thread", || Some(said(&real)).filter(|said| said.len() == 10));
    let readings: [fn(&mut Real); 5] = [
        |real| drop(real.peer.call("thread/read", json!({"threadId": real.thread, "includeTurns": true}))),
        |real| drop(real.peer.call("thread/resume", json!({"threadId": real.thread}))),
        |real| {
            read_pages(real, "thread/turns/list", &json!({"itemsView": "notLoaded", "limit": 1}), 1);
            read_pages(real, "thread/items/list", &json!({"limit": 3}), 9);
            read_pages(real, "thread/turns/list", &json!({"itemsView": "notLoaded", "limit": 2}), 9);
        },
        |real| read_pages(real, "thread/turns/list", &json!({"itemsView": "full", "limit": 2}), 9),
        |real| drop(real.peer.call("thread/timeline/list", json!({"threadId": real.thread}))),
    ];
    for (number, reading) in readings.iter().enumerate() {
        let Real { lab, model, peer, thread, .. } = real;
        assert!(peer.finish().1.success());
        real = Real::start_again(lab, model, Home::new(), thread);
        reading(&mut real);
        eventually(&format!("reading {number}"), || (said(&real) == expect).then_some(()));
        // Another reading adds nothing.
        real.peer.call("thread/read", json!({"threadId": real.thread, "includeTurns": true}));
        assert_eq!(said(&real), expect, "reading {number}");
        all_indexed_once(&real.home.path().join("sessions/s"));
    }
    real.end();
}
