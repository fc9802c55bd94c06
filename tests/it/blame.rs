//! `codex-shim blame` through the real binary: changes of live and stopped sessions, people and clients who approved them, files that
//! were changed outside, deleted and moved; and the real codex.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, told, tool};
use crate::support::conversations::start_turn;
use crate::support::model::Item;
use crate::support::real::{Real, says};
use crate::support::release::{Ability, Release};
use crate::support::shim::Home;

/// A relay in session `session` whose server runs turn `u1` in thread `t`, in which its user has said this.
fn in_turn(home: Home, session: &str, said: &str) -> Live {
    let mut live = Live::start_in_session(home, session).in_turn();
    let content = json!([{"type": "text", "text": said}]);
    ends(&mut live, 0, json!({"type": "userMessage", "id": "said", "content": content}));
    live
}

/// The server reports a finished item of this second of 2026-01-02.
fn ends(live: &mut Live, second: u64, mut item: Value) {
    item["completedAtMs"] = json!(1_767_312_000_000_u64 + second * 1_000);
    let params = json!({ "threadId": "t", "turnId": "u1", "item": item });
    live.say_plainly(&json!({ "method": "item/completed", "params": params }).to_string());
}

/// The server reports these changes.
fn changes(live: &mut Live, second: u64, id: &str, changes: Value) {
    ends(live, second, json!({"type": "fileChange", "id": id, "status": "completed", "changes": changes}));
}

fn add(path: &Path, text: &str) -> Value {
    json!({"path": path, "kind": {"type": "add"}, "diff": text})
}

fn update(path: &Path, diff: &str) -> Value {
    json!({"path": path, "kind": {"type": "update", "move_path": null}, "diff": diff})
}

/// The server asks for a change, and the client accepts it.
fn accepts(live: &mut Live, item_id: &str) {
    let params = json!({"threadId": "t", "turnId": "u1", "itemId": item_id, "startedAtMs": 1});
    live.say(&json!({"id": 9, "method": "item/fileChange/requestApproval", "params": params}).to_string());
    live.send(r#"{"id":9,"result":{"decision":"accept"}}"#);
}

/// A file in the folder of the tools.
fn file(home: &Home, name: &str, text: &str) -> PathBuf {
    let path = fs::canonicalize(home.beside()).expect("a folder").join(name);
    fs::write(&path, text).expect("a file");
    path
}

fn blame(home: &Home, words: &[&str]) -> Value {
    told(&tool(home, &[&["blame", "--json"], words].concat()))
}

/// The kind of each line, with the item of its change.
fn kinds(document: &Value) -> Vec<String> {
    let line = |line: &Value| {
        let change = line["change"].as_u64().map(|number| &document["changes"][number as usize]["item_id"]);
        let change = change.and_then(Value::as_str).unwrap_or("-");
        format!("{} {change}", line["kind"].as_str().expect("a kind"))
    };
    document["lines"].as_array().expect("lines").iter().map(line).collect()
}

const MAIN: &str = "fn main() {\n    let answer = compute(41);\n    println!(\"{answer}\");\n}\n";
const FIXED: &str = "@@ -1,3 +1,3 @@\n fn main() {\n-    let answer = compute(41);\n+    let answer = compute(42);\n     println!(\"{answer}\");\n";

/// Session `first` adds a file, `second` updates it, and somebody appends a line.
fn two_sessions() -> Live {
    let home = Home::new();
    let path = file(&home, "main.rs", &format!("{}// mine\n", MAIN.replace("41", "42")));
    let mut first = in_turn(home, "first", "write a\nprogram");
    accepts(&mut first, "f1");
    changes(&mut first, 1, "f1", json!([add(&path, MAIN), add(&path.with_file_name("other.rs"), "x\n")]));
    let mut second = in_turn(first.kill(), "second", "fix the answer");
    changes(&mut second, 2, "f2", json!([update(&path, FIXED)]));
    let declined = json!({"type": "fileChange", "id": "f3", "status": "declined", "changes": [add(&path, "no\n")]});
    ends(&mut second, 3, declined);
    second
}

#[test]
fn lines_of_all_sessions_name_their_turns() {
    let live = two_sessions();
    let document = blame(&live.home, &["main.rs"]);
    let expect = ["codex f1", "codex f2", "codex f1", "codex f1", "outside f1"];
    assert_eq!(kinds(&document), expect, "{document:#}");
    let [first, second] = [0, 1].map(|number| &document["changes"][number]);
    let words =
        |change: &Value| ["session_id", "thread_id", "turn_id", "prompt", "client"].map(|name| change[name].clone());
    assert_eq!(words(first), ["first", "t", "u1", "write a\nprogram", "ide"].map(Value::from));
    assert_eq!(words(second), ["second", "t", "u1", "fix the answer", "ide"].map(Value::from));
    let approval = &first["approval"];
    assert_eq!(
        ["kind", "outcome", "source", "by"].map(|name| &approval[name]),
        ["person", "accepted", "client", "ide"]
    );
    assert!(approval["at"].is_string() && approval["request_id"].is_string(), "{approval}");
    assert_eq!(second["approval"]["kind"], "not_asked");
    assert_eq!((&document["changes_on_record"], &document["notes"]), (&json!(2), &json!([])));
    // The same from stopped sessions.
    let home = live.end_quietly();
    assert_eq!(blame(&home, &["main.rs"]), document);
}

#[test]
fn one_line_is_answered_in_one_line() {
    let live = two_sessions();
    let say = |place: &str| {
        let output = live.tool(&["blame", place, "--utc"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let first = say("main.rs:1");
    assert!(first.starts_with("main.rs:1: thread t in ") && first.ends_with("\n"), "{first}");
    assert!(
        first.contains("2026-01-02 00:00") && first.contains(": \"write a program\"; accepted by client (ide) "),
        "{first}"
    );
    assert!(say("main.rs:2").ends_with(": \"fix the answer\"; codex did not ask\n"));
    assert!(say("main.rs:5").starts_with("main.rs:5: changed outside codex, after thread t in "));
    let rows = say("main.rs:1,2");
    let fields: Vec<Vec<&str>> = rows.lines().map(|row| row.split_whitespace().take(5).collect()).collect();
    assert_eq!(fields[0], ["1", "codex", "2026-01-02T00:00:01Z", "t", "person"], "{rows}");
    assert_eq!((fields[1][4], fields.len()), ("not_asked", 2), "{rows}");
    live.end_quietly();
}

#[test]
fn flags_choose_the_changes_that_are_named() {
    let live = two_sessions();
    let kinds_with = |words: &[&str]| kinds(&blame(&live.home, &[&["main.rs"], words].concat()));
    let of_second = ["other -", "codex f2", "other -", "other -", "outside f1"];
    assert_eq!(kinds_with(&["--session", "second"]), of_second);
    assert_eq!(kinds_with(&["--since", "2026-01-02T00:00:02Z"]), of_second);
    assert_eq!(kinds_with(&["--since", "1h"])[..2], ["other -", "other -"]);
    failed(&live.tool(&["blame", "main.rs", "--session", "none"]), 3, "none");
    let line = live.tool(&["blame", "main.rs:1", "--session", "second"]);
    assert!(String::from_utf8_lossy(&line.stdout).contains("--session leaves out"), "{line:?}");
    live.end_quietly();
}

#[test]
fn moved_deleted_and_linked_files_are_found() {
    let home = Home::new();
    let path = file(&home, "new.txt", "one\nTWO\n");
    let folder = path.parent().expect("a folder").to_owned();
    let [old, gone, lost] = ["old.txt", "gone.txt", "lost.txt"].map(|name| folder.join(name));
    let mut live = in_turn(home, "s", "go on");
    changes(&mut live, 1, "f1", json!([add(&old, "one\ntwo\n"), add(&gone, "was\nhere\n"), add(&lost, "x\n")]));
    let diff = format!("@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n\n\nMoved to: {}", path.display());
    let moved = json!({"path": old, "kind": {"type": "update", "move_path": path}, "diff": diff});
    changes(&mut live, 2, "f2", json!([moved]));
    changes(&mut live, 3, "f3", json!([{"path": gone, "kind": {"type": "delete"}, "diff": "was\nhere\n"}]));
    let home = live.end_quietly();
    assert_eq!(kinds(&blame(&home, &["new.txt"])), ["codex f1", "codex f2"]);
    symlink("new.txt", folder.join("link.txt")).expect("a link");
    assert_eq!(kinds(&blame(&home, &["link.txt"])), ["codex f1", "codex f2"]);
    let deleted = blame(&home, &["gone.txt"]);
    assert_eq!(kinds(&deleted), ["codex f1", "codex f1"]);
    assert_eq!(deleted["changes"][deleted["deleted_by"].as_u64().expect("a change") as usize]["item_id"], "f3");
    let shown = tool(&home, &["blame", "gone.txt:2"]);
    let told = [&shown.stdout, &shown.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(told[0].starts_with("gone.txt:2: thread t in ") && told[1].contains("gone.txt is deleted"), "{told:?}");
    failed(&tool(&home, &["blame", "old.txt"]), 1, "was moved to");
    failed(&tool(&home, &["blame", "lost.txt"]), 1, "deleted or moved outside codex");
}

#[test]
fn link_gives_a_change_to_no_other_file() {
    let home = Home::new();
    let beside = fs::canonicalize(home.beside()).expect("a folder");
    for folder in ["r1", "r2", "work/src", "far/deep/work/src", "far/deep/away"] {
        fs::create_dir_all(beside.join(folder)).expect("a folder");
    }
    symlink("r2", beside.join("current")).expect("a link");
    let text = "one line of the file\n";
    for name in ["r1/a.rs", "r2/a.rs", "work/src/b.rs", "far/deep/work/src/b.rs", "r2/c.rs"] {
        file(&home, name, text);
    }
    let mut live = in_turn(home, "s", "write");
    // The link is younger than the first change and older than the last one.
    changes(&mut live, 1, "a", json!([add(&beside.join("current/a.rs"), text)]));
    changes(&mut live, 1, "b", json!([add(&beside.join("work/src/b.rs"), text)]));
    changes(&mut live, 400_000_000, "c", json!([add(&beside.join("current/c.rs"), text)]));
    let line = |name: &str| kinds(&blame(&live.home, &[name])).remove(0);
    assert_eq!(line("r2/a.rs"), "unknown a");
    assert_eq!(line("r1/a.rs"), "unrecorded -");
    assert_eq!(line("r2/c.rs"), "codex c");
    assert_eq!(line("current/c.rs"), "codex c");
    // The folder above a link is that above its target.
    symlink("far/deep/away", beside.join("link")).expect("a link");
    assert_eq!(line("work/src/b.rs"), "codex b");
    let document = blame(&live.home, &["link/../work/src/b.rs"]);
    assert_eq!(kinds(&document), ["unrecorded -"]);
    assert_eq!(document["path"], json!(beside.join("far/deep/work/src/b.rs")));
    live.kill();
}

#[test]
fn what_cannot_be_read_is_refused_in_words() {
    let home = Home::new();
    file(&home, "binary", "a\0b");
    file(&home, "mine.txt", "mine\n");
    let check = |words: &[&str], code: i32, why: &str| failed(&tool(&home, words), code, why);
    check(&["blame", "nowhere.txt"], 1, "no change of it is on record");
    check(&["blame", "."], 1, "it is a folder");
    check(&["blame", "binary"], 1, "it is not UTF-8 text");
    check(&["blame", "mine.txt:2"], 2, "has 1 line, and no line 2");
    check(&["blame", "mine.txt:0"], 2, "`0` is not a line");
    check(&["blame", "mine.txt:3,1"], 2, "`3,1` is not a line");
    let untouched = tool(&home, &["blame", "mine.txt"]);
    assert_eq!(String::from_utf8_lossy(&untouched.stdout).split_whitespace().collect::<Vec<_>>()[1], "unrecorded");
    assert!(String::from_utf8_lossy(&untouched.stderr).contains("no change of mine.txt is on record"));
}

#[test]
fn masked_lines_are_unknown() {
    let home = Home::new();
    let text = "# settings\nexport TOKEN=abcdefghijkl\nexport NAME=x\n";
    let path = file(&home, "env.sh", text);
    let mut live = in_turn(home, "s", "go on");
    changes(&mut live, 1, "f1", json!([add(&path, text)]));
    let home = live.end_quietly();
    let document = blame(&home, &["env.sh"]);
    assert_eq!(kinds(&document), ["codex f1", "unknown f1", "codex f1"], "{document:#}");
    assert_eq!(document["lines"][1]["why"], "a secret may be masked in this line");
}

#[test]
fn a_damaged_session_hides_no_other() {
    let live = two_sessions();
    let home = live.end_quietly();
    // From then on everything is indexed.
    assert_eq!(kinds(&blame(&home, &["main.rs"]))[1], "codex f2");
    let sessions = home.path().join("sessions");
    // Nobody else may write there.
    fs::set_permissions(sessions.join("second/journal"), fs::Permissions::from_mode(0o777)).expect("a folder");
    let output = tool(&home, &["blame", "main.rs", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("the journal of session "), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    // Nobody knows what the other session has written.
    let expect = ["codex f1", "unknown f1", "codex f1", "codex f1", "unknown f1"];
    assert_eq!(kinds(&document), expect, "{document:#}");
    // A history outlives its journal.
    fs::remove_dir_all(sessions.join("second/journal")).expect("a folder");
    assert_eq!(kinds(&blame(&home, &["main.rs"]))[1], "codex f2");
}

#[test]
fn changes_that_are_read_again_are_not_new() {
    let home = Home::new();
    let path = file(&home, "a.txt", "one\ntwo\nthree\n");
    let changed =
        |id: &str, change: Value| json!({"type": "fileChange", "id": id, "status": "completed", "changes": [change]});
    let [first, second] =
        [changed("f0", add(&path, "one\n")), changed("f1", update(&path, "@@ -1 +1,2 @@\n one\n+two\n"))];
    let mut live = in_turn(home, "s", "go on");
    changes(&mut live, 1, "f1", second["changes"].clone());
    // A fork repeats the changes of its thread, and has one that was made without codex-shim.
    live.send(r#"{"id":7,"method":"thread/fork","params":{"threadId":"t"}}"#);
    let turn = json!({"id": "u1", "status": "completed", "items": [first, second]});
    let thread = json!({"id": "fork", "cwd": "/w", "turns": [turn]});
    live.say(&json!({"id": 7, "result": {"thread": thread}}).to_string());
    let home = live.end_quietly();
    let document = blame(&home, &["a.txt"]);
    assert_eq!(kinds(&document), ["codex f0", "codex f1", "outside f1"], "{document:#}");
    assert_eq!(document["changes_on_record"], 2);
    let changes = document["changes"].as_array().expect("changes").iter();
    let told: Vec<_> =
        changes.map(|change| (change["thread_id"].clone(), change["approval"]["kind"].clone())).collect();
    assert_eq!(told, [(json!("t"), json!("not_asked")), (json!("fork"), json!("unknown"))]);
}

#[test]
fn e2e_blame_follows_patches_of_codex() {
    const TEST: &str = "e2e_blame_follows_patches_of_codex";
    let patches = [
        "*** Begin Patch\n*** Add File: new.txt\n+one\n+two\n+three\n*** Update File: old.txt\n@@\n line 4\n-line 5\n+LINE FIVE\n line 6\n*** End Patch",
        "*** Begin Patch\n*** Update File: old.txt\n*** Move to: moved.txt\n@@\n line 8\n+line 8a\n line 9\n*** Update File: new.txt\n@@\n one\n-two\n+TWO\n three\n*** End Patch",
    ];
    let script = patches.map(|patch| vec![vec![Item::Patch(patch)], says()]).concat();
    let Some(mut real) = Real::start(TEST, "", script) else { return };
    let cwd = real.lab.cwd();
    let lines: String = (1..=9).map(|number| format!("line {number}\n")).collect();
    fs::write(cwd.join("old.txt"), lines).expect("a file");
    for prompt in ["begin it", "go on with it"] {
        start_turn(&mut real.peer, &real.thread, prompt);
        let asked = real.peer.wait_for_method("item/fileChange/requestApproval");
        real.peer.answer(&asked, json!({"decision": "accept"}));
        real.completed("completed");
    }
    let path = |name: &str| cwd.join(name).to_str().expect("UTF-8").to_owned();
    let prompts = |document: &Value| -> Vec<String> {
        let prompt = |line: &Value| match line["change"].as_u64() {
            Some(number) => document["changes"][number as usize]["prompt"].as_str().unwrap_or_default().to_owned(),
            None => line["kind"].as_str().unwrap_or_default().to_owned(),
        };
        document["lines"].as_array().expect("lines").iter().map(prompt).collect()
    };
    let document = blame(&real.home, &[&path("new.txt")]);
    assert_eq!(prompts(&document), ["begin it", "go on with it", "begin it"], "{document:#}");
    let approval = &document["changes"][1]["approval"];
    assert_eq!((&approval["kind"], &approval["source"]), (&json!("person"), &json!("client")), "{document:#}");
    assert_eq!(document["changes"][0]["model"], real.lab.release.model_name(), "{document:#}");
    // A fork repeats all changes under its own name. Releases that read no threads fork none.
    if !Release::under_test().lacks(TEST, Ability::ThreadRead) {
        real.peer.call("thread/fork", json!({"threadId": real.thread}));
        assert_eq!(blame(&real.home, &[&path("new.txt")]), document);
    }
    let moved = blame(&real.home, &[&path("moved.txt")]);
    let none = "unrecorded";
    let expect = [none, none, none, none, "begin it", none, none, none, "go on with it", none];
    assert_eq!(prompts(&moved), expect, "{moved:#}");
    // Somebody changes one line of codex, and adds one above all.
    let text = fs::read_to_string(cwd.join("moved.txt")).expect("a file");
    fs::write(cwd.join("moved.txt"), format!("mine\n{}", text.replace("LINE FIVE", "mine, too"))).expect("a file");
    let moved = blame(&real.home, &[&path("moved.txt")]);
    let found = kinds(&moved);
    let kinds: Vec<&str> = found.iter().map(|kind| kind.split(' ').next().unwrap_or_default()).collect();
    let expect = [none, none, none, none, none, "outside", none, none, none, "codex", none];
    assert_eq!(kinds, expect, "{moved:#}");
    real.end();
}
