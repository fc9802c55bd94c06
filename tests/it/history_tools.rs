//! The history tools through the real binary: events, tool calls and messages, while a relay runs, across its restarts,
//! and after it has stopped.

use std::fs::{self, File};
use std::process::{Child, Output, Stdio};
use std::sync::mpsc::Receiver;

use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, lines_of, next, text, told, tool};
use crate::support::eventually;
use crate::support::pane::Pane;
use crate::support::shim::{Home, SHIM};

/// A relay whose server runs turn `u1` in thread `t`.
fn in_turn() -> Live {
    Live::start().in_turn()
}

fn item(event: &str, item: &Value) -> String {
    json!({ "method": format!("item/{event}"), "params": { "threadId": "t", "turnId": "u1", "item": item } })
        .to_string()
}

fn command_begins(live: &mut Live, id: &str, command: &str) {
    let one = json!({"type": "commandExecution", "id": id, "command": command, "cwd": "/w", "status": "inProgress"});
    live.say_plainly(&item("started", &one));
}

fn command_ends(live: &mut Live, id: &str, command: &str, exit: i64) {
    let status = if exit == 0 { "completed" } else { "failed" };
    let one = json!({
        "type": "commandExecution", "id": id, "command": command, "cwd": "/w", "status": status, "exitCode": exit,
        "aggregatedOutput": "one\ntwo\n",
    });
    live.say_plainly(&item("completed", &one));
}

fn says(live: &mut Live, id: &str, words: &str) {
    live.say_plainly(&item("completed", &json!({"type": "agentMessage", "id": id, "text": words})));
}

fn asks(live: &mut Live, id: u32, command: &str) {
    live.say_plainly(&format!(
        r#"{{"id":{id},"method":"item/commandExecution/requestApproval","params":{{"threadId":"t","turnId":"u1","itemId":"i{id}","command":"{command}","cwd":"/work"}}}}"#
    ));
}

/// A tool's output for a person.
fn shown(output: &Output) -> String {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("it is text")
}

fn documents(output: &Output) -> Vec<Value> {
    shown(output).lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

fn types(document: &Value) -> Vec<String> {
    document["events"].as_array().expect("an array").iter().map(|event| text(&event["event_type"])).collect()
}

/// All events of a session, as a tool prints them.
fn all(home: &Home) -> Vec<Value> {
    let document = told(&tool(home, &["events", "--session", "s", "--since", "0", "--json"]));
    assert_eq!(document["history_gap"], false, "{document}");
    document["events"].as_array().expect("an array").clone()
}

/// A tool that follows until it is stopped.
struct Follower {
    tool: Child,
    lines: Receiver<Vec<u8>>,
}

impl Follower {
    fn start(home: &Home, args: &[&str]) -> Follower {
        let mut command = home.shim(args);
        let mut tool = command.current_dir(home.beside()).stdin(Stdio::null()).spawn().expect("the tool runs");
        let lines = lines_of(tool.stdout.take().expect("stdout is piped"));
        Follower { tool, lines }
    }

    fn line(&self) -> String {
        next(&self.lines, "a line of a tool")
    }

    fn document(&self) -> Value {
        serde_json::from_str(&self.line()).expect("it is JSON")
    }

    /// Lines up to one that contains `words`.
    fn until(&self, words: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            lines.push(self.line());
            if lines.last().is_some_and(|line| line.contains(words)) {
                return lines;
            }
        }
    }

    /// Interrupts the tool as a person does; returns the remaining lines.
    fn end(mut self) -> Vec<String> {
        let pid = rustix::process::Pid::from_child(&self.tool);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        self.tool.wait().expect("it is ours");
        self.lines.iter().map(|line| String::from_utf8(line).expect("it is text")).collect()
    }
}

#[test]
fn events_are_listed_and_chosen() {
    let mut live = in_turn();
    command_begins(&mut live, "c1", "make");
    command_ends(&mut live, "c1", "make", 2);
    let document = told(&live.tool(&["events", "--since", "0", "--json"]));
    let asked = live.get("/sessions/self/codex-events?since_seq=0");
    for member in ["events", "earliest_seq", "latest_seq", "next_seq", "history_gap", "gap_reason"] {
        assert_eq!(document[member], asked[member], "{member}");
    }
    let items = told(&live.tool(&["events", "--type", "item/*", "--json"]));
    assert_eq!(types(&items), ["item/started", "item/completed"]);
    assert_eq!(items["next_seq"], asked["next_seq"]);
    let one =
        told(&live.tool(&["events", "--type", "item/*", "--type", "turn/start", "-n", "2", "--since", "0", "--json"]));
    assert_eq!(types(&one), ["turn/start", "item/started"]);
    // A reader that continues there misses nothing.
    let next_seq = one["next_seq"].as_u64().expect("a number").to_string();
    let rest = told(&live.tool(&[
        "events",
        "--since",
        &(next_seq.parse::<u64>().expect("a number") - 1).to_string(),
        "--type",
        "item/*",
        "--json",
    ]));
    assert_eq!(types(&rest), ["item/completed"]);
    assert_eq!(types(&told(&live.tool(&["events", "--thread", "x", "--json"]))), [""; 0]);

    let list = shown(&live.tool(&["events", "-n", "1"]));
    let words: Vec<&str> = list.split_whitespace().skip(1).collect();
    let seq = asked["latest_seq"].to_string();
    assert_eq!(words, [&*seq, "item/completed", "t", "ran", "make", "(exit", "2)"]);
    assert_eq!(live.tool(&["events", "-n", "0"]).status.code(), Some(2));
    failed(&live.tool(&["events", "--session", "other"]), 3, "other");
    live.kill();
}

#[test]
fn a_follower_misses_nothing_across_a_restart_and_is_told_nothing_twice() {
    let mut live = in_turn();
    let follower = Follower::start(&live.home, &["events", "--session", "s", "--since", "0", "-f", "--json"]);
    follower.until("turn/started");
    says(&mut live, "m1", "one");
    assert_eq!(follower.document()["event_type"], "item/completed");
    // A record may exist that the stream has not reached yet.
    says(&mut live, "m2", "two");
    let home = live.kill();
    follower.until("two");
    let mut live = Live::start_in(home);
    says(&mut live, "m3", "three");
    follower.until("three");
    let home = live.end_quietly();
    follower.until("generation_ended");
    assert_eq!(follower.end(), [""; 0]);

    let again = Follower::start(&home, &["events", "--session", "s", "--since", "0", "-f", "--json"]);
    let lines = again.until("three");
    let seqs: Vec<u64> = lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).expect("it is JSON")["seq"].as_u64().expect("a number"))
        .collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    again.end();
}

#[test]
fn what_follows_is_chosen_and_counted_too() {
    let mut live = in_turn();
    let mut follower =
        Follower::start(&live.home, &["events", "--since", "0", "-n", "2", "-f", "--type", "item/completed"]);
    command_begins(&mut live, "c1", "make");
    says(&mut live, "m1", "one");
    command_ends(&mut live, "c1", "make", 0);
    assert!(follower.line().trim_end().ends_with("agentMessage one"));
    assert!(follower.line().trim_end().ends_with("ran make"));
    assert!(follower.tool.wait().expect("it is ours").success());
    live.kill();
}

#[test]
fn what_a_killed_relay_has_left_is_indexed_and_its_requests_are_orphaned() {
    let mut live = in_turn();
    says(&mut live, "m1", "one");
    asks(&mut live, 0, "make");
    says(&mut live, "m2", "two");
    let session = live.session.clone();
    let home = live.kill();
    // As if the index had not reached it.
    for file in ["history.db", "history.db-wal", "history.db-shm"] {
        drop(fs::remove_file(session.join(file)));
    }
    let events = all(&home);
    assert!(events.last().expect("events").to_string().contains("two"), "{events:#?}");
    let rows = told(&tool(&home, &["requests", "--all", "--session", "s", "--json"]));
    assert_eq!(
        (&rows["requests"][0]["status"], &rows["requests"][0]["error_code"]),
        (&json!("orphaned"), &json!("server_restarted"))
    );
    let status = shown(&tool(&home, &["status", "--session", "s"]));
    assert!(status.starts_with("stopped") && status.contains("up to date"), "{status}");

    // A relay continues the session after the tool's index; a rebuild gives the same result.
    let mut live = Live::start_in(home);
    assert_eq!(live.session, session);
    says(&mut live, "m3", "three");
    let home = live.kill();
    let events = all(&home);
    for file in ["history.db", "history.db-wal", "history.db-shm"] {
        drop(fs::remove_file(session.join(file)));
    }
    assert_eq!(all(&home), events);
    assert_eq!(events.iter().filter(|event| event["event_type"] == "generation_started").count(), 2, "{events:#?}");
}

#[test]
fn a_tool_that_is_at_it_does_not_turn_a_start_away() {
    let home = in_turn().kill();
    let session = home.path().join("sessions/s");
    let lock = File::options().read(true).write(true).create(true).truncate(false).open(session.join("index.lock"));
    let lock = lock.expect("a file");
    lock.try_lock().expect("nobody has it");
    // The second tool waits for the first.
    let mut waiting = Follower::start(&home, &["events", "--session", "s", "--since", "0", "--json"]);
    let mut live = Live::start_in(home);
    assert_eq!(live.home.sessions(), std::slice::from_ref(&session));
    says(&mut live, "m1", "late");
    let page = live.get("/sessions/self/codex-events?since_seq=0");
    assert_eq!((&page["history_gap"], &page["gap_reason"]), (&json!(true), &json!("persistence_error")), "{page}");
    drop(lock);
    eventually("the index", || {
        let page = live.get("/sessions/self/codex-events?since_seq=0");
        (page["history_gap"] == false && page.to_string().contains("late")).then_some(())
    });
    // The tool has called the relay instead.
    let page = waiting.document();
    assert!(page["history_gap"] == true || page.to_string().contains("turn/started"), "{page}");
    assert!(waiting.tool.wait().expect("it is ours").success());
    assert!(live.end_quietly().sessions().len() == 1);
}

#[test]
fn actions_are_listed_and_followed() {
    let mut live = in_turn();
    assert_eq!(shown(&live.tool(&["tail"])), "no actions in session s yet\n");
    command_begins(&mut live, "c1", "ls");
    command_ends(&mut live, "c1", "ls", 0);
    command_begins(&mut live, "c2", "make");
    let actions = told(&live.tool(&["tail", "--json"]));
    assert_eq!(actions, live.get("/sessions/self/activity-actions"));
    // Without the age, or the time in a followed list.
    let lines = |text: &str| -> Vec<String> {
        let row = |line: &str| line.split_once("  ").expect("several cells").1.trim_start().to_owned();
        text.lines().map(row).collect()
    };
    let listed = shown(&live.tool(&["tail"]));
    assert_eq!(lines(&listed), ["completed  ran ls", "running    runs make"]);
    assert!(listed.lines().all(|line| line.contains("s ago  ")), "{listed}");

    let follower = Follower::start(&live.home, &["tail", "s", "-n", "1", "-f", "--utc"]);
    let first = follower.line();
    assert_eq!(lines(&first), ["running  runs make"]);
    assert!(first.starts_with("20") && first.contains("Z  "), "{first}");
    command_ends(&mut live, "c2", "make", 2);
    assert_eq!(lines(&follower.line()), ["failed   ran make (exit 2)"]);
    asks(&mut live, 0, "rm x");
    assert_eq!(lines(&follower.line()), ["pending  Approval requested: rm x"]);
    let home = live.kill();
    let live = Live::start_in(home).in_turn();
    // The request that ended with the relay is reported as soon as the next relay reports it.
    assert_eq!(lines(&follower.line()).len(), 1);
    follower.end();
    let home = live.kill();
    let last = shown(&tool(&home, &["tail", "--session", "s", "-n", "3"]));
    assert_eq!(lines(&last)[..2], ["completed  ran ls", "failed     ran make (exit 2)"]);
}

#[test]
fn sessions_that_wait_for_somebody_come_first() {
    let mut live = in_turn();
    command_begins(&mut live, "c1", "ls");
    let stopped = ["run", "--session", "z", "--", "true"];
    assert!(live.home.shim(&stopped).stdin(Stdio::null()).output().expect("the shim runs").status.success());
    let list = shown(&live.tool(&["children"]));
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        (lines[0][0], lines[0][3], lines[0][4], lines[1][..2].to_vec()),
        ("s", "runs", "ls", vec!["z", "stopped"]),
        "{list}"
    );
    asks(&mut live, 0, "make");
    asks(&mut live, 1, "make x");
    let list = shown(&live.tool(&["children"]));
    let first = list.lines().next().expect("a line");
    assert!(first.starts_with("s  waiting_permission"), "{list}");
    assert!(first.ends_with("run make, and 1 more"), "{list}");
    let document = told(&live.tool(&["children", "--json"]));
    let children = document["children"].as_array().expect("an array");
    let names: Vec<&str> = children.iter().filter_map(|child| child["session_id"].as_str()).collect();
    assert_eq!(names, ["s", "z"]);
    assert_eq!(
        (&children[0]["activity_state"], &children[0]["pending_requests"]),
        (&json!("waiting_permission"), &json!(2))
    );
    assert_eq!(children[0]["waits_for"][1]["summary"], "run make x");
    assert_eq!(
        (&children[1]["live"], &children[1]["activity_state"], &children[1]["error"]),
        (&json!(false), &json!("stopped"), &Value::Null)
    );
    live.kill();
}

#[test]
fn a_conversation_is_printed() {
    let mut live = in_turn();
    failed(&live.tool(&["transcript", "latest"]), 1, "no messages in thread t yet");
    live.say_plainly(&item(
        "completed",
        &json!({"type": "userMessage", "id": "m0", "content": [{"type": "text", "text": "hi"}]}),
    ));
    command_begins(&mut live, "c1", "make");
    command_ends(&mut live, "c1", "make", 2);
    says(&mut live, "m1", "it does not\nbuild");
    live.say_plainly(
        r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u1","items":[],"status":"completed"}}}"#,
    );
    let check = |output: &Output| {
        let text = shown(output);
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        let said = ["  hi", "  $ make (exit 2)", "    one", "    two", "  it does not", "  build", "  turn completed"];
        let is_head = |line: &str, of: &str| {
            line.strip_prefix(of).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        };
        assert!(is_head(lines[0], "user  ") && is_head(lines[5], "assistant  "), "{text}");
        assert_eq!([&lines[1..5], &lines[6..]].concat(), said, "{text}");
    };
    check(&live.tool(&["transcript", "latest"]));
    // Its siblings take a session as their first word.
    check(&live.tool(&["transcript", "s"]));
    let entries = documents(&live.tool(&["transcript", "t", "--json"]));
    assert_eq!(json!(entries), live.get("/sessions/self/threads/t/transcript")["entries"]);
    failed(&live.tool(&["transcript", "nope"]), 3, "unknown thread `nope`; threads in this session, latest first: t");
    let home = live.kill();
    check(&tool(&home, &["transcript", "t", "--session", "s"]));
    check(&tool(&home, &["transcript", "s"]));
    failed(&tool(&home, &["transcript", "s", "--session", "s"]), 3, "unknown thread `s`");
    assert_eq!(documents(&tool(&home, &["transcript", "latest", "--session", "s", "--json"])), entries);
}

#[test]
fn status_tells_what_is_done_and_what_waits() {
    let mut live = in_turn();
    command_begins(&mut live, "c1", "make");
    let document = told(&live.tool(&["status", "--json"]));
    let thread = &document["threads"][0];
    assert_eq!((&thread["thread_id"], &thread["last_action"]), (&json!("t"), &json!("Started: make")), "{document:#}");
    assert!(document["state_since"].is_string(), "{document:#}");
    let asked = live.get("/sessions/self");
    for member in ["session_id", "threads", "state_since", "pending_requests", "child", "index"] {
        // A silent turn becomes `thinking` after a while.
        if !matches!(member, "threads" | "state_since") || asked["state"] == document["state"] {
            assert_eq!(document[member], asked[member], "{member}");
        }
    }
    asks(&mut live, 0, "rm x");
    let screen = shown(&live.tool(&["status"]));
    let row = |label: &str| -> String {
        let line = screen.lines().find(|line| line.starts_with(label));
        line.unwrap_or_else(|| panic!("no {label} in\n{screen}"))[label.len()..].trim().to_owned()
    };
    assert!(screen.starts_with("healthy, and waiting for you\n"), "{screen}");
    assert!(row("state").starts_with("waiting_permission for "), "{screen}");
    assert!(row("threads").starts_with("t  waiting_permission for "), "{screen}");
    assert!(screen.contains("\n            Approval requested: rm x\n"), "{screen}");
    assert!(row("waiting").starts_with("1 request is pending"), "{screen}");
    assert_eq!((&*row("index"), &*row("faults")), ("up to date", "none"), "{screen}");
    assert!(screen.lines().count() <= 24, "{screen}");
    live.kill();
}

#[test]
fn what_is_not_kept_any_more_is_said() {
    let mut live = in_turn();
    says(&mut live, "m1", "one");
    let home = live.kill();
    let latest = all(&home).len();
    let history = rusqlite::Connection::open(home.path().join("sessions/s/history.db")).expect("it is there");
    history.execute("DELETE FROM codex_events WHERE seq < ?1", [latest as i64]).expect("rows go");
    let output = tool(&home, &["events", "--session", "s", "--since", "0"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, format!("codex-shim: events 1 to {} have been deleted (retention)\n", latest - 1));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1, "{output:?}");
    let document = told(&tool(&home, &["events", "--session", "s", "--since", "0", "--json"]));
    assert_eq!((&document["history_gap"], &document["gap_reason"]), (&json!(true), &json!("retention")));
    // A follower sees it as an event.
    let follower = Follower::start(&home, &["events", "--session", "s", "--since", "1", "-n", "99", "-f"]);
    assert!(follower.line().contains("agentMessage one"));
    follower.end();
}

#[test]
fn a_history_that_cannot_be_used_is_a_failure_that_says_why() {
    let live = in_turn();
    let home = live.kill();
    let path = home.path().join("sessions/s/history.db");
    let history = rusqlite::Connection::open(&path).expect("it is there");
    history.pragma_update(None, "user_version", 99).expect("a number");
    drop(history);
    for tool_args in [&["events"][..], &["tail"], &["transcript", "latest"]] {
        let args = [tool_args, &["--session", "s"]].concat();
        failed(&tool(&home, &args), 1, "newer codex-shim");
    }
    let children = told(&tool(&home, &["children", "--json"]));
    assert!(text(&children["children"][0]["error"]).contains("newer codex-shim"), "{children}");
    let status = tool(&home, &["status", "--session", "s"]);
    assert!(shown(&status).contains("newer codex-shim"), "{status:?}");
    fs::remove_file(&path).expect("it is there");
    assert!(!all(&home).is_empty());
}

#[test]
fn a_session_without_a_journal_has_no_history() {
    let live = Live::configured("record = false\n");
    failed(&live.tool(&["events"]), 1, "has no history");
    let home = live.kill();
    failed(&tool(&home, &["tail", "--session", "s"]), 1, "has no recording");
}

#[test]
fn what_went_because_there_was_too_much_is_told_by_status() {
    let mut live = Live::start();
    for number in 0..20 {
        live.say_plainly(&format!(r#"{{"method":"x/happened","params":{{"number":{number}}}}}"#));
    }
    let (home, _) = live.end();
    fs::write(home.path().join("config.toml"), "events_max = 5\n").expect("a file");
    let mut live = Live::start_in(home);
    let pruned = eventually("what went", || {
        let document = told(&live.tool(&["status", "--json"]));
        (document["index"]["pruned"]["events"].as_u64() > Some(0)).then(|| document["index"]["pruned"].clone())
    });
    assert_eq!((&pruned["tool_events"], &pruned["turn_events"]), (&json!(0), &json!(0)), "{pruned}");
    let page = told(&live.tool(&["events", "--json", "--since", "0"]));
    assert_eq!((&page["history_gap"], &page["gap_reason"]), (&json!(true), &json!("retention")), "{page}");
    let screen = live.tool(&["status"]);
    assert!(String::from_utf8_lossy(&screen.stdout).contains("old events pruned"), "{screen:?}");
    live.say_plainly(r#"{"method":"x/happened","params":{}}"#);
    live.end();
}

#[test]
fn sessions_are_named_by_position_prefix_and_latest() {
    let live = Live::start();
    let beside = live.home.shim(&["run", "--session", "other", "--", "true"]).stdin(Stdio::null()).status();
    assert!(beside.expect("the shim runs").success());
    let tools: [&[&str]; 12] = [
        &["status"],
        &["sessions"],
        &["children"],
        &["events"],
        &["tail"],
        &["requests"],
        &["fragments"],
        &["context", "show"],
        &["context", "clear"],
        &["prune", "--dry-run"],
        &["redact", "--dry-run"],
        &["tape", "show"],
    ];
    for words in tools {
        for name in [&["s"][..], &["--session", "s"], &["--session=s"], &["latest"]] {
            let args = [words, name].concat();
            let output = live.tool(&args);
            assert!(output.status.success(), "{args:?}: {output:?}");
        }
        let args = [words, &["nope"]].concat();
        failed(&live.tool(&args), 3, "unknown session `nope`; sessions: ");
        let args = [words, &["s", "--session", "s"]].concat();
        failed_usage(&live.tool(&args));
    }
    assert_eq!(told(&live.tool(&["status", "oth", "--json"]))["session_id"], "other");
    // A live session is in use now.
    assert_eq!(told(&live.tool(&["status", "latest", "--json"]))["session_id"], "s");
    failed(&live.tool(&["interrupt", "other"]), 4, " other is not running");
    failed(&live.tool(&["wait", "other", "--for", "idle"]), 4, " other is not running");
    failed(&live.tool(&["attach", "other"]), 4, " other is not running");
    live.end();
}

#[track_caller]
fn failed_usage(output: &Output) {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn latest_names_threads_runs_and_recordings() {
    let mut live = in_turn();
    command_begins(&mut live, "c1", "ls");
    let of_latest = told(&live.tool(&["events", "--thread", "latest", "--json"]));
    assert!(!of_latest["events"].as_array().expect("an array").is_empty(), "{of_latest}");
    let tape = live.home.beside().join("tape.jsonl");
    let tape = tape.to_str().expect("UTF-8");
    let exported = live.tool(&["tape", "export", "s", "--thread", "latest", "--generation", "latest", "-o", tape]);
    assert!(exported.status.success(), "{exported:?}");
    let generation = live.generation();
    let exported = live.tool(&["tape", "export", "--generation", &generation[..6], "-o", tape, "--json"]);
    assert!(told(&exported)["records"].as_u64() > Some(1), "{exported:?}");
    failed(&live.tool(&["tape", "export", "--generation", "zz", "-o", tape]), 1, &generation);
    let checked = live.tool(&["tape", "check", "latest"]);
    assert!(String::from_utf8_lossy(&checked.stdout).contains("records"), "{checked:?}");
    let shown = shown(&live.tool(&["tape", "show", "latest", "--thread", "latest"]));
    assert!(shown.contains("item/started"), "{shown}");
    failed(&live.tool(&["tape", "show", "./gone.jsonl"]), 1, "./gone.jsonl does not exist");
    failed(&live.tool(&["tape", "check", "gone.jsonl"]), 1, "gone.jsonl does not exist");
    failed(&live.tool(&["replay", "gone.jsonl"]), 1, "gone.jsonl does not exist");
    live.kill();
}

#[test]
fn times_are_local_unless_utc_is_asked_for() {
    let mut live = in_turn();
    command_begins(&mut live, "c1", "ls");
    command_ends(&mut live, "c1", "ls", 0);
    says(&mut live, "m1", "done");
    asks(&mut live, 1, "true");
    live.say_plainly(r#"{"method":"serverRequest/resolved","params":{"threadId":"t","requestId":1}}"#);
    asks(&mut live, 0, "make");
    live.push(&json!({"cmd": "make"}), 1);
    eventually("the resolved request", || {
        let all = told(&live.tool(&["requests", "--all", "--json"]));
        (all["requests"][0]["resolved_at"].is_string()).then_some(())
    });
    let printed = |args: &[&str]| {
        let mut command = live.home.shim(args);
        // A zone that needs no zone file.
        let output = command.current_dir(live.home.beside()).env("TZ", "<+0545>-5:45").output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let tools: [(&[&str], &str, &str); 8] = [
        (&["sessions"], "+05:45  ", "Z  "),
        (&["status"], " UTC+0545 (", " UTC ("),
        (&["events"], "+05:45  ", "Z  "),
        (&["tail", "-n", "1"], "ago  ", "Z  "),
        (&["requests", "--all"], "+05:45  run true", "Z  run true"),
        (&["show", "latest"], " UTC+0545 (", " UTC ("),
        (&["context", "show"], " UTC+0545  ", " UTC  "),
        (&["transcript", "latest"], " UTC+0545\n  done", " UTC\n  done"),
    ];
    for (args, local, utc) in tools {
        let shown = printed(args);
        assert!(shown.contains(local), "{args:?}: {shown}");
        let shown = printed(&[args, &["--utc"]].concat());
        assert!(shown.contains(utc) && !shown.contains("+05:45") && !shown.contains("+0545"), "{args:?}: {shown}");
        // Programs get the same output in any zone.
        let as_json = printed(&[args, &["--json"]].concat());
        assert!(!as_json.contains("+05:45"), "{as_json}");
    }
    live.kill();
}

#[test]
fn tables_fit_the_terminal_and_have_heads() {
    let mut live = in_turn();
    let tape = live.home.beside().join("tape.jsonl");
    let tape = tape.to_str().expect("UTF-8");
    let secret = format!("echo sk-proj-{}", "abcdefgh1234".repeat(4));
    command_begins(&mut live, "c1", &"long ".repeat(14));
    asks(&mut live, 0, &"make ".repeat(14));
    live.push(&json!({"cmd": "cargo ".repeat(40), "output": secret}), 1);
    assert!(live.tool(&["tape", "export", "s", "-o", tape]).status.success());
    let (show, show_tape) = ("tape show s".to_owned(), format!("tape show {tape}"));
    for (args, head) in [
        ("sessions", "SESSION  NAME"),
        ("children", "SESSION  NAME"),
        ("requests", "AGE  REQUEST  WHO ASKS"),
        ("requests --all", "AGE  REQUEST  WHO ASKS"),
        ("events", "TIME ("),
        ("tail", "WHEN"),
        ("prune --dry-run --older-than 0s", "SESSION  NAME"),
        ("redact --dry-run --pattern long", "1 journal segment of "),
        (&show, "RECORD"),
        (&show_tape, "RECORD"),
    ] {
        for columns in [40, 80, 120] {
            let script = format!("stty cols {columns}; {SHIM} {args}; echo so that ''is all");
            let mut pane = Pane::start_with(&live.home, &["sh", "-c", &script], &[("NO_COLOR", "1")]);
            pane.shows("so that is all");
            let shown = pane.shown().replace("so that is all", "");
            let mut lines = shown.lines();
            // On a narrow terminal nothing is cut; the type of an event takes the place of the time.
            let head_here = if args == "events" && columns < 80 { "NUMBER" } else { head };
            assert!(lines.next().is_some_and(|line| line.trim_start().starts_with(&head_here[..4])), "{args}: {shown}");
            assert!(columns >= 80 || !shown.contains('…'), "{args}: {shown}");
            assert!(columns < 80 || shown.trim_start().starts_with(head) || args == "sessions", "{args}: {shown}");
            assert!(shown.lines().all(|line| line.chars().count() <= columns), "{args} at {columns}:\n{shown}");
            assert!(!shown.contains('\u{1b}'), "{args}: {shown:?}");
        }
    }
    for columns in [40, 80, 120] {
        let script = format!("stty cols {columns}; {SHIM} status; echo so that ''is all");
        let mut pane = Pane::start_with(&live.home, &["sh", "-c", &script], &[("NO_COLOR", "1")]);
        let shown = pane.shows("so that is all");
        let threads = shown.lines().skip_while(|line| !line.starts_with("threads   t  waits for"));
        let threads: Vec<&str> = threads.take_while(|line| !line.starts_with("waiting")).collect();
        let words = threads.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("t waits for permission for ") && words.contains(": make"), "{shown}");
        assert!(threads.iter().all(|line| line.trim_end().chars().count() <= columns), "at {columns}:\n{shown}");
    }
    live.kill();
}
