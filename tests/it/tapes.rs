//! Tapes of the real codex, played as a server: the same conversations as with the real one, without it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::both_ends::Live;
use crate::support::codex::Lab;
use crate::support::conversations::{ALL, COMMAND_APPROVAL, PLAIN_TURN, start_thread, start_turn};
use crate::support::eventually;
use crate::support::hub_tapes;
use crate::support::journal::Journal;
use crate::support::peer::Peer;
use crate::support::requests::{command_asked, parsed, resolved, turn_completed};
use crate::support::shim::{Home, SHIM};

fn tape(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/tapes/{name}.jsonl"))
}

/// The number of server lines on a tape that can be played.
fn lines_of_server(tape: &Path) -> usize {
    let text = fs::read_to_string(tape).expect("the tape is there");
    text.lines().filter(|line| line.contains("\"from\":\"server\",\"line\":")).count()
}

fn replay(lab: &Lab, args: &[&str], tape: &Path) -> Command {
    let mut command = lab.command(SHIM);
    command.arg("replay").args(args).arg(tape).stderr(Stdio::piped());
    command
}

/// Runs a tool to its end.
fn tool(home: &Home, args: &[&str]) -> Output {
    home.shim(args).stdin(Stdio::null()).output().expect("the shim runs")
}

#[test]
fn every_conversation_is_played_to_the_client_that_was_recorded() {
    for (name, conversation) in ALL {
        let (lab, tape) = (Lab::bare(), tape(name));
        let mut peer = Peer::start(&mut replay(&lab, &["--strict"], &tape));
        (conversation.drive)(&mut peer, &lab);
        let mut stderr = peer.child.stderr.take().expect("stderr is piped");
        let (said, status) = peer.finish();
        let told = std::io::read_to_string(&mut stderr).expect("stderr can be read");
        assert!(status.success() && told.is_empty(), "{name}: {told}");
        assert_eq!(said.len(), lines_of_server(&tape), "{name}");
    }
}

/// Exports the session `s` of a relay; returns the tape.
fn exported(home: &Home, more: &[&str]) -> PathBuf {
    let tape = home.beside().join("exported.jsonl");
    let args = [&["tape", "export", "s", "-o", tape.to_str().expect("the path is UTF-8")], more].concat();
    let exported = tool(home, &args);
    assert!(exported.status.success(), "{exported:?}");
    tape
}

/// Plays a tape strictly to a client that writes `lines`; returns the exit status, stdout and stderr.
fn played(home: &Home, tape: &Path, lines: &[&str]) -> (Option<i32>, String, String) {
    let mut command = home.shim(&["replay", "--strict", tape.to_str().expect("the path is UTF-8")]);
    let mut player = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = player.stdin.take().expect("stdin is piped");
    for line in lines {
        // A strict player may have exited already.
        let _ = writeln!(stdin, "{line}");
    }
    drop(stdin);
    let played = player.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (played.status.code(), text(&played.stdout), text(&played.stderr))
}

#[test]
fn masked_tape_plays_strictly_to_its_client() {
    let asked =
        r#"{"id":1,"method":"thread/start","params":{"config":{"mcp_servers.a.env":{"PLAIN":"hunter2-of-nobody"}}}}"#;
    let answer = r#"{"id":1,"result":{"thread":{"id":"t"}}}"#;
    let mut live = Live::start();
    assert_eq!(live.send(asked), format!("{asked}\n"));
    live.say_plainly(answer);
    let home = live.end_quietly();
    let tape = exported(&home, &[]);
    assert!(fs::read_to_string(&tape).expect("a tape").contains(r#","masked":true}"#));
    assert_eq!(played(&home, &tape, &[asked]), (Some(0), format!("{answer}\n"), String::new()));
}

#[test]
fn exported_tape_plays_strictly_to_the_same_lines() {
    let beside = tempfile::tempdir().expect("a folder");
    let text = format!(
        "compare {}/über/a.txt with /home/jane/other/b.txt, ../c.txt, ~/d.txt, C:\\\\Users\\\\jane and file:///Users/ann/e%20f; \
         then curl http://127.0.0.1:40123/v1 and use sk-abcdefghijklmnopqrst for \
         01a2004a-5c25-7460-9c08-e1221ad2ce90 since 2026-11-21T22:46:44",
        beside.path().display()
    );
    let start = concat!(
        r#"{"id":1,"method":"thread/start","params":{"cwd":"/home/jane/my project","since":1795301203,"#,
        r#""config":{"projects":{"/home/jane/my project":{"trust_level":"trusted"}},"api_key":"hunter22","token":""}}}"#
    );
    let turn = format!(
        r#"{{"id":2,"method":"turn/start","params":{{"threadId":"t","input":[{{"type":"text","text":"{text}"}}]}}}}"#
    );
    let echo = format!(r#"{{"method":"item/started","params":{{"threadId":"t","text":"{text}"}}}}"#);
    let mut live = Live::start();
    assert_eq!(live.send(start), format!("{start}\n"));
    live.say_plainly(r#"{"id":1,"result":{"thread":{"id":"t"}}}"#);
    assert_eq!(live.send(&turn), format!("{turn}\n"));
    live.say_plainly(r#"{"id":2,"result":{"turn":{"id":"u"}}}"#);
    live.say_plainly(&echo);
    let home = live.end_quietly();
    for more in [&[][..], &["--redact"]] {
        let tape = exported(&home, more);
        let recorded = fs::read_to_string(&tape).expect("a tape");
        assert!(!recorded.contains("jane/other"), "{recorded}");
        let (status, said, told) = played(&home, &tape, &[start, &turn]);
        assert_eq!((status, told.as_str()), (Some(0), ""), "{more:?}");
        let echoed: Value = serde_json::from_str(said.lines().last().expect("an echo")).expect("a message");
        assert_eq!(echoed, serde_json::from_str::<Value>(&echo).expect("a message"), "{more:?}");
        let other = turn.replace("other/b.txt", "other/z.txt");
        assert_eq!(played(&home, &tape, &[start, &other]).0, Some(1), "{more:?}");
    }
}

#[test]
fn request_answered_at_the_socket_resolves_itself() {
    let start = r#"{"id":1,"method":"thread/start","params":{}}"#;
    let initialize = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"tester","version":"1"}}}"#;
    let mut live = Live::initialized("");
    live.answer_plainly(start);
    live.say_plainly(r#"{"id":1,"result":{"thread":{"id":"t"}}}"#);
    let request = live.asked(&command_asked("0", "t"), "0");
    live.responded(&request, &json!({"decision": "accept"}));
    assert_eq!(parsed(&live.at_server()), json!({"id": 0, "result": {"decision": "accept"}}));
    // The client's answer is late and is not forwarded.
    live.write("{\"id\":0,\"result\":{\"decision\":\"decline\"}}\n");
    live.nothing_at_server();
    live.say_plainly(&resolved("0"));
    live.say_plainly(&turn_completed("t", "u"));
    let home = live.end_quietly();
    let tape = exported(&home, &[]);
    let checked = tool(&home, &["tape", "check", "--json", tape.to_str().expect("UTF-8")]);
    let survey: Value = serde_json::from_slice(&checked.stdout).expect("one document");
    assert_eq!(survey["unanswered_by_client"], json!([]));

    let marker = r#"{"method":"marker/client"}"#;
    let answer = |word: &str| format!(r#"{{"id":0,"result":{{"decision":"{word}"}}}}"#);
    let (status, said, told) = played(&home, &tape, &[initialize, start, marker]);
    assert_eq!((status, told.as_str()), (Some(0), ""));
    assert!(said.contains("requestApproval") && said.contains("turn/completed"), "{said}");
    let (status, again, told) = played(&home, &tape, &[initialize, start, &answer("accept"), marker]);
    assert_eq!((status, told.as_str(), again), (Some(0), "", said));
    let (status, _, told) = played(&home, &tape, &[initialize, start, &answer("cancel"), marker]);
    assert_eq!(status, Some(1));
    assert!(told.contains("request 0, which codex-shim answered on the tape"), "{told}");
    assert!(told.contains("  - \"accept\"\n  + \"cancel\""), "{told}");
}

#[test]
fn held_requests_are_not_played_to_the_client() {
    let initialize = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"tester","version":"1"}}}"#;
    let start = r#"{"id":1,"method":"thread/start","params":{}}"#;
    let mut live = Live::initialized("hold = true");
    live.answer_plainly(start);
    live.say_plainly(r#"{"id":1,"result":{"thread":{"id":"t"}}}"#);
    live.say_unseen(&command_asked("0", "t"));
    let row = eventually("the request", || live.pending().into_iter().next());
    live.responded(row["request_id"].as_str().expect("a name"), &json!({"decision": "accept"}));
    assert_eq!(parsed(&live.at_server()), json!({"id": 0, "result": {"decision": "accept"}}));
    live.say_plainly(&resolved("0"));
    live.say_plainly(&turn_completed("t", "u"));
    let home = live.end_quietly();
    let tape = exported(&home, &[]);
    let (status, said, told) = played(&home, &tape, &[initialize, start]);
    assert_eq!((status, told.as_str()), (Some(0), ""));
    assert!(said.contains("turn/completed"), "{said}");
    assert!(!said.contains("requestApproval"), "the client was never asked: {said}");
}

#[test]
fn a_relay_in_front_of_a_tape_records_what_was_recorded() {
    let (lab, home, tape) = (Lab::bare(), Home::new(), tape("command_approval"));
    let mut command = lab.command(SHIM);
    home.adopt(&mut command).args(["run", "--session", "s", "--", SHIM, "replay", "--strict"]).arg(&tape);
    let mut peer = Peer::start(&mut command);
    (COMMAND_APPROVAL.drive)(&mut peer, &lab);
    let (said, status) = peer.finish();
    assert!(status.success());
    let journal: Journal = home.journal();
    assert_eq!(journal.server.len(), said.len());
    assert_eq!(said.len(), lines_of_server(&tape));
}

#[test]
fn the_same_lines_get_the_same_answers_every_time() {
    let tape = tape("list_read_resume");
    let play = || {
        let text = fs::read_to_string(&tape).expect("the tape is there");
        let sent: Vec<String> = text
            .lines()
            .filter_map(|line| {
                let record: Value = serde_json::from_str(line).expect("a record is JSON");
                (record["from"] == "client").then(|| record["line"].to_string() + "\n")
            })
            .collect();
        let mut child = Command::new(SHIM)
            .arg("replay")
            .arg(&tape)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shim starts");
        child.stdin.take().expect("stdin is piped").write_all(sent.concat().as_bytes()).expect("it is read");
        let output = child.wait_with_output().expect("the shim ends");
        assert!(output.status.success());
        output.stdout
    };
    let first = play();
    assert!(first.len() > 10_000);
    assert_eq!(first, play());
}

#[test]
fn another_folder_and_other_words_are_taken_and_only_a_strict_player_minds() {
    let (lab, tape) = (Lab::bare(), tape("plain_turn"));
    let mut peer = Peer::start(&mut replay(&lab, &[], &tape));
    peer.initialize();
    let thread = start_thread(&mut peer, &lab, "read-only");
    start_turn(&mut peer, &thread, "other words");
    peer.wait_for_method("turn/completed");
    let started = peer.seen.iter().find(|message| message["id"] == 1).expect("the thread was started");
    assert_eq!(started["result"]["cwd"], json!(lab.cwd()));
    assert!(peer.finish().1.success());

    let mut peer = Peer::start(&mut replay(&lab, &["--strict"], &tape));
    peer.initialize();
    let thread = start_thread(&mut peer, &lab, "read-only");
    let params = json!({"threadId": thread, "input": [{"type": "text", "text": "other words", "text_elements": []}]});
    peer.request("turn/start", params);
    let refused = peer.wait_for("a refusal", |message| message["id"] == 2);
    assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("no turn/start like this one")));
    let mut stderr = peer.child.stderr.take().expect("stderr is piped");
    assert_eq!(peer.finish().1.code(), Some(1));
    let told = std::io::read_to_string(&mut stderr).expect("stderr can be read");
    assert!(told.contains("turn/start at params.input[0].text\n  - \"hi\"\n  + \"other words\"\n"), "{told}");
}

#[test]
fn what_the_tape_lacks_is_said_and_the_rest_goes_on() {
    let lab = Lab::bare();
    let mut peer = Peer::start(&mut replay(&lab, &[], &tape("plain_turn")));
    let id = peer.request("model/list", json!({}));
    let refused = peer.wait_for("a refusal", |message| message["id"] == id);
    assert_eq!(refused["error"]["message"], "codex-shim replay: the tape has no model/list");
    peer.request("initialize", json!({"clientInfo": {"name": "other", "version": "2"}}));
    peer.wait_for("an answer", |message| message["id"] == 1 && message.get("result").is_some());
    assert!(peer.finish().1.success());
}

#[test]
fn a_turn_waits_for_an_answer_that_never_comes() {
    let lab = Lab::bare();
    let mut peer = Peer::start(&mut replay(&lab, &[], &tape("command_approval")));
    peer.initialize();
    let thread = start_thread(&mut peer, &lab, "read-only");
    start_turn(&mut peer, &thread, "run it");
    peer.wait_for_method("item/commandExecution/requestApproval");
    let (said, status) = peer.finish();
    assert!(status.success());
    assert!(!said.iter().any(|message| message["method"] == "turn/completed"));
}

#[test]
fn a_tape_that_was_cut_off_plays_as_far_as_it_goes_and_says_so() {
    let (home, lab) = (Home::new(), Lab::bare());
    let whole = fs::read(tape("plain_turn")).expect("the tape is there");
    let cut = home.beside().join("cut.jsonl");
    fs::write(&cut, &whole[..whole.len() * 3 / 4]).expect("a file");
    let checked = tool(&home, &["tape", "check", cut.to_str().expect("UTF-8")]);
    assert_eq!(checked.status.code(), Some(1));
    let told = String::from_utf8_lossy(&checked.stdout);
    assert!(told.starts_with("NOT whole\n") && told.contains("last record            cut off"), "{told}");
    let mut peer = Peer::start(&mut replay(&lab, &[], &cut));
    peer.initialize();
    start_thread(&mut peer, &lab, "read-only");
    assert!(peer.finish().1.success());
}

#[test]
fn other_files_are_named_in_one_line() {
    let home = Home::new();
    let file = home.beside().join("file.jsonl");
    let path = file.to_str().expect("UTF-8");
    let line = r#"{"at":1,"from":"client","line":{}}"#;
    let many = format!("{line}\n").repeat(40);
    for text in [
        "hello\n",
        "hello",
        "",
        "\n",
        "{}\n",
        "[1]",
        "\0\u{1}\n",
        "{\"journal\":",
        "{\"journal\":1}\n",
        &many,
        line,
        "{\"journal\":2,\"at\":1}\n",
    ] {
        fs::write(&file, text).expect("a file");
        let expect = match text.starts_with("{\"journal\":2") {
            true => "line 1: record format 2 is newer than 1",
            false => "is not a tape: ",
        };
        for args in [
            &["replay", path][..],
            &["tape", "check", path],
            &["tape", "check", "--json", path],
            &["tape", "show", path],
        ] {
            let output = tool(&home, args);
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), told.lines().count()), (Some(1), 1), "{args:?} {text}: {told}");
            assert!(told.contains(path) && told.contains(expect), "{args:?} {text}: {told}");
            assert!(output.stdout.is_empty(), "{args:?} {text}: {output:?}");
        }
    }
}

#[test]
fn a_gap_is_counted_and_an_older_member_is_no_harm() {
    let home = Home::new();
    let text = fs::read_to_string(tape("plain_turn")).expect("the tape is there");
    let file = home.beside().join("gap.jsonl");
    fs::write(&file, text + "{\"at\":1867225600000000,\"gap\":{\"lines\":7,\"reason\":\"full\"},\"later\":1}\n")
        .expect("a file");
    let checked = tool(&home, &["tape", "check", "--json", file.to_str().expect("UTF-8")]);
    assert_eq!(checked.status.code(), Some(1));
    let survey: Value = serde_json::from_slice(&checked.stdout).expect("one document");
    assert_eq!((&survey["whole"], &survey["gap_lines"], &survey["ended"]), (&json!(false), &json!(7), &json!(true)));
}

#[test]
fn an_export_has_nothing_of_this_machine_in_it() {
    let home = Home::new();
    let work = home.beside().join("my-work");
    fs::create_dir(&work).expect("a folder");
    let mut command = home.shim(&["run", "--session", "private-name", "--", "cat"]);
    let mut relay = command.current_dir(&work).env("HOME", home.beside()).spawn().expect("the shim starts");
    let line = json!({"id": 1, "method": "thread/start", "params": {"cwd": work, "key": "sk-abcdefghijklmnopqrst"}});
    writeln!(relay.stdin.take().expect("stdin is piped"), "{line}").expect("it is read");
    assert!(relay.wait().expect("the shim ends").success());
    let file = home.beside().join("tape.jsonl");
    let mut export = home.shim(&["tape", "export", "priv", "--redact", "-o", file.to_str().expect("UTF-8")]);
    let exported = export.env("HOME", home.beside()).output().expect("the shim runs");
    assert!(exported.status.success(), "{exported:?}");
    let text = fs::read_to_string(&file).expect("the tape is there");
    for ours in ["my-work", "private-name", "sk-abc", home.beside().to_str().expect("UTF-8"), "/bin/cat"] {
        assert!(!text.contains(ours), "{ours} is in {text}");
    }
    assert!(text.contains(r#""cwd":"/home/user/project""#), "{text}");
    assert!(tool(&home, &["tape", "check", file.to_str().expect("UTF-8")]).status.success());
    let missing = tool(&home, &["tape", "export", "nobody", "-o", "x"]);
    assert_eq!(missing.status.code(), Some(3));
}

#[test]
fn a_tape_is_for_its_owner_alone_and_never_written_through_what_stands_in_the_way() {
    let home = Home::new();
    let relayed = home.shim(&["run", "--session", "s", "--", "echo", "x"]).output().expect("the shim runs");
    assert!(relayed.status.success(), "{relayed:?}");
    let folder = home.beside().join("tapes");
    fs::create_dir(&folder).expect("a folder");
    let export = |name: &str| {
        let mut command = Command::new("sh");
        // A link waits under the temporary name, which contains this export's process id.
        let script = r#"umask 0 && ln -s "$1" "$2.$$.partial" && shift 2 && exec "$@""#;
        let (file, victim) = (folder.join(name), home.beside().join("victim"));
        fs::write(&victim, "mine").expect("a file");
        home.adopt(&mut command).args(["-c", script, "sh"]).args([&victim, &file]);
        command.args([SHIM, "tape", "export", "s", "-o"]).arg(&file);
        let output = command.output().expect("sh runs");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "mine");
        file
    };
    let mode = |file: &Path| file.metadata().expect("it is there").permissions().mode() & 0o777;
    let new = export("new.jsonl");
    assert_eq!(mode(&new), 0o600);
    // A tape that others could read becomes private; the target of a link keeps its own mode.
    for (name, expect) in [("new.jsonl", 0o600), ("link.jsonl", 0o644)] {
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).expect("a mode");
        if name == "link.jsonl" {
            symlink(&new, folder.join(name)).expect("a link");
        }
        let file = export(name);
        assert_eq!(mode(&file), expect, "{name}");
        assert!(tool(&home, &["tape", "check", file.to_str().expect("UTF-8")]).status.success(), "{name}");
    }
    let left: Vec<_> =
        fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("a name").file_name()).collect();
    assert_eq!(left.iter().filter(|name| *name != "new.jsonl" && *name != "link.jsonl").count(), 1, "{left:?}");
    // A target that is not a file is written directly.
    let piped = tool(&home, &["tape", "export", "s", "-o", "/dev/stdout"]);
    assert!(piped.status.success() && piped.stdout.starts_with(b"{\"journal\":"), "{piped:?}");
}

#[test]
fn tapes_in_this_repository_are_whole_small_and_of_no_machine() {
    let home = Home::new();
    // Codex tells a TUI its configuration and its models.
    let of_hub = [(hub_tapes::TWO_CLIENTS, 64 << 10), (hub_tapes::TUI, 128 << 10)];
    for (name, bytes_max) in ALL.iter().map(|(name, _)| (*name, 64 << 10)).chain(of_hub) {
        let path = tape(name);
        let text = fs::read_to_string(&path).expect("the tape is there");
        assert!(text.len() < bytes_max, "{name}");
        let here = [env!("CARGO_MANIFEST_DIR"), env!("CARGO_TARGET_TMPDIR"), "/tmp/.tmp", "node_modules"];
        for mark in here {
            assert!(!text.contains(mark), "{name}: {mark}");
        }
        let checked = tool(&home, &["tape", "check", path.to_str().expect("UTF-8")]);
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn latest_names_the_last_thread_of_a_tape() {
    let (home, path) = (Home::new(), tape("command_approval"));
    let show = |args: &[&str]| tool(&home, &[&["tape", "show", path.to_str().expect("UTF-8")], args].concat());
    let of_thread = show(&["--thread", "latest", "--method", "APPROVAL"]);
    let listed = String::from_utf8_lossy(&of_thread.stdout).into_owned();
    assert_eq!((of_thread.status.code(), listed.lines().count()), (Some(0), 1), "{of_thread:?}");
    let none = show(&["--method", "nothing"]);
    assert!(none.stdout.is_empty() && String::from_utf8_lossy(&none.stderr).contains("none of the "), "{none:?}");
    let unknown = show(&["--thread", "zz"]);
    let told = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!((unknown.status.code(), &*unknown.stdout), (Some(3), &b""[..]), "{unknown:?}");
    assert!(told.contains("unknown thread `zz`; threads in this recording: "), "{told}");
}

#[test]
fn a_list_can_be_filtered_and_one_record_shown_in_full() {
    let home = Home::new();
    let path = tape("command_approval");
    let show = |args: &[&str]| {
        let args = [&["tape", "show", path.to_str().expect("UTF-8")], args].concat();
        let output = tool(&home, &args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let all = show(&[]);
    assert!(all.contains("←  request       item/commandExecution/requestApproval"), "{all}");
    assert!(all.lines().all(|line| line.chars().count() <= 110), "{all}");
    let answers = show(&["--from", "client", "--kind", "response"]);
    assert_eq!(answers.lines().count(), 1, "{answers}");
    let number = answers.split_whitespace().next().expect("it begins with the record's number");
    assert_eq!(show(&["--record", number]), "{\"id\":0,\"result\":{\"decision\":\"accept\"}}\n");
    let document: Value = serde_json::from_str(&show(&["--json", "--record", number])).expect("one document");
    assert_eq!((document["record"].to_string().as_str(), &document["kind"]), (number, &json!("response")));
    assert_eq!(document["content"]["line"], json!({"id": 0, "result": {"decision": "accept"}}));
    let first: Value = serde_json::from_str(&show(&["--json", "--record", "1"])).expect("one document");
    assert_eq!((&first["kind"], &first["content"]["journal"]), (&json!("header"), &json!(1)), "{first}");
    for missing in [&["--record", "0"][..], &["--record", "10000"], &["--record", "10000", "--json"]] {
        let args = [&["tape", "show", path.to_str().expect("UTF-8")], missing].concat();
        let output = tool(&home, &args);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{missing:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(&format!("1 to {}", all.lines().count())), "{told}");
    }
    let listed: Value = serde_json::from_str(&show(&["--json", "--method", "requestApproval"])).expect("one document");
    assert_eq!((&listed["kind"], &listed["id"]), (&json!("request"), &json!("0")));
}

#[test]
fn a_live_session_can_be_followed() {
    let home = Home::new();
    let mut relay = home.shim(&["run", "--session", "s", "--", "cat"]).spawn().expect("the shim starts");
    let mut stdin = relay.stdin.take().expect("stdin is piped");
    writeln!(stdin, "{}", json!({"method": "first"})).expect("it is read");
    let mut back = BufReader::new(relay.stdout.take().expect("stdout is piped")).lines();
    back.next().expect("the line comes back").expect("a line");
    let mut follow =
        home.shim(&["tape", "show", "s", "--follow", "--from", "server"]).spawn().expect("the shim starts");
    let mut seen = BufReader::new(follow.stdout.take().expect("stdout is piped")).lines();
    let mut next = || seen.next().expect("a line comes").expect("a line");
    assert!(next().contains("first"));
    writeln!(stdin, "{}", json!({"method": "second"})).expect("it is read");
    assert!(next().contains("second"));
    follow.kill().expect("it runs");
    follow.wait().expect("it was killed");
    drop(stdin);
    assert!(relay.wait().expect("the shim ends").success());
}

#[test]
fn a_tape_can_be_played_as_slowly_as_it_was_recorded() {
    let lab = Lab::bare();
    let mut peer = Peer::start(&mut replay(&lab, &["--speed", "10"], &tape("plain_turn")));
    (PLAIN_TURN.drive)(&mut peer, &lab);
    assert!(peer.finish().1.success());
    let refused = tool(&Home::new(), &["replay", "--speed", "fast", "x"]);
    assert_eq!(refused.status.code(), Some(2));
}
