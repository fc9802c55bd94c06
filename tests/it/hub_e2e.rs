//! A hub with real TUIs of codex in tmux, which join it by themselves, and with a plain WebSocket client beside them.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::bench::{Bench, COMPLETED, DIALOG, TUI, approves, said, says_to};
use crate::support::both_ends::text;
use crate::support::conversations::{start_thread, start_turn, turn_completed};
use crate::support::model::{Item, Script};
use crate::support::patience::{PATIENCE, eventually, poll};
use crate::support::peer::Peer;
use crate::support::real::{COMMAND, run, says};
use crate::support::release::{Ability, Release};
use crate::support::shim::SHIM;
use crate::support::websocket::Client;

#[test]
fn e2e_tui_joins_the_hub_by_itself() {
    let test = "e2e_tui_joins_the_hub_by_itself";
    let Some(bench) = Bench::start(test, &[], vec![vec![Item::Text(vec!["Hel", "lo, ", "you."])]]) else { return };
    let Some(tui) = bench.tui("") else { return };
    says_to(&tui, "good morning");
    tui.shows("Hello, you.");
    let (thread, connection) = bench.joined();
    assert_eq!((&connection["client"]["name"], &connection["transport"]), (&json!(TUI), &json!("websocket")));
    assert_eq!(connection["client"]["version"], Release::under_test().to_string());
    // The server is named after the TUI, not after a probe before it or after the hub's own connection.
    let of_server = bench.home.journal().events;
    let (_, version) = of_server.iter().find(|(event, _)| event == "codex_version").expect("the server has a version");
    assert!(version["user_agent"].as_str().is_some_and(|agent| agent.starts_with("codex-tui/")), "{version}");
    let expect = said(&[("user", "good morning"), ("assistant", "Hello, you."), COMPLETED]);
    assert_eq!(bench.conversation(&thread, 1), expect);
    assert_eq!(bench.counts(&thread, ["turn/started", "turn/completed", "item/completed"]), [1, 1, 2]);
    let records = bench.home.journal().texts;
    let of_client = format!(r#""conn":{},"from":"client""#, connection["conn"]);
    let sent: Vec<&String> = records.iter().filter(|record| record.contains("good morning")).collect();
    let turn: Vec<&&String> =
        sent.iter().filter(|record| record.contains(&thread) && record.contains("turn/start\"")).collect();
    assert!(turn.len() == 1 && turn[0].contains(&of_client), "{turn:#?}");
}

#[test]
fn e2e_approval_shows_everywhere_and_closes_everywhere() {
    let test = "e2e_approval_shows_everywhere_and_closes_everywhere";
    let words = |words| vec![Item::Text(vec![words])];
    let Some(bench) = Bench::start(test, &[], vec![run(), words("First."), run(), words("Second.")]) else { return };
    let Some(first) = bench.tui("") else { return };
    says_to(&first, "do one");
    first.shows(DIALOG);
    let (thread, _) = bench.joined();
    let mut watcher = bench.watcher(&thread);
    let Some(second) = bench.tui(&format!("resume {thread}")) else { return };
    second.shows(DIALOG);
    let is_asked = |message: &Value| message["method"] == "item/commandExecution/requestApproval";
    let is_resolved = |message: &Value| message["method"] == "serverRequest/resolved";
    let asked = watcher.wait_for("the approval", is_asked);
    approves(&second);
    for tui in [&first, &second] {
        tui.shows("First.");
        tui.shows_no(DIALOG);
    }
    let resolved = watcher.wait_for("its end", is_resolved);
    assert_eq!(resolved["params"]["requestId"], asked["id"]);
    assert_eq!(bench.confirmed(1)[0]["resolved_by"], TUI);
    // This time the client without a terminal is faster.
    says_to(&first, "do two");
    [&first, &second].iter().for_each(|tui| drop(tui.shows(DIALOG)));
    let asked = watcher.wait_for("the next approval", is_asked);
    watcher.answer(&asked["id"], json!({"decision": "accept"}));
    for tui in [&first, &second] {
        tui.shows("Second.");
        tui.shows_no(DIALOG);
    }
    let mut winners: Vec<String> = bench.confirmed(2).iter().map(|row| text(&row["resolved_by"])).collect();
    winners.sort();
    assert_eq!(winners, [TUI, "watcher"]);
    assert_eq!(bench.ran(), 2);
    let expect = said(&[
        ("user", "do one"),
        ("assistant", "First."),
        COMPLETED,
        ("user", "do two"),
        ("assistant", "Second."),
        COMPLETED,
    ]);
    assert_eq!(bench.conversation(&thread, 2), expect);
    assert_eq!(bench.counts(&thread, ["turn/started", "turn/completed", "item/completed"]), [2, 2, 6]);
}

/// What the desktop app runs on the far side of an SSH connection, as its users have reported it: it starts a server on the default socket,
/// which the hub has, and then speaks through the proxy.
#[test]
fn e2e_desktop_app_joins_over_ssh() {
    let test = "e2e_desktop_app_joins_over_ssh";
    let Some(bench) = Bench::start(test, &[], vec![run(), says()]) else { return };
    let codex = |args: &[&str]| {
        let mut command = bench.lab.command(&bench.codex);
        command.args(args).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let listens = ["-c", "features.code_mode_host=true", "app-server", "--listen", "unix://"];
    let booted = codex(&listens).output().expect("codex runs");
    let said = String::from_utf8_lossy(&booted.stderr).into_owned();
    assert!(!booted.status.success() && said.contains("already in use"), "{said}");
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let both = || Stdio::from(std::os::fd::OwnedFd::from(theirs.try_clone().expect("a descriptor")));
    let mut proxy = codex(&["app-server", "proxy"]).stdin(both()).stdout(both()).spawn().expect("codex runs");
    drop(theirs);
    let mut desktop = Client::over(ours, "/rpc", &[]).expect("the handshake succeeds");
    desktop.initialize("Codex Desktop");
    let params = json!({"cwd": bench.lab.cwd(), "approvalPolicy": "on-request", "sandbox": "read-only"});
    let thread = text(&desktop.call("thread/start", params)["thread"]["id"]);
    let input = json!([{"type": "text", "text": "do it", "text_elements": []}]);
    desktop.call("turn/start", json!({"threadId": thread, "input": input}));
    desktop.wait_for("the approval", |message| message["method"] == COMMAND);
    // What is shown of the connections may be a little older.
    let is_it = |status: &Value| status["connections"][0]["client"]["name"] == "Codex Desktop";
    let status = eventually("the app among the clients", || Some(bench.status()).filter(is_it));
    let mut doctor = bench.lab.command(SHIM);
    let told = bench.home.adopt(&mut doctor).args(["doctor", "--json"]).output().expect("it runs").stdout;
    let told = String::from_utf8(told).expect("UTF-8");
    assert!(told.contains("1 × Codex Desktop"), "{told}");
    assert_eq!(status["bypasses"], json!([]));
    bench.shim(&["respond", "latest", "accept"]);
    desktop.wait_for("the end of the turn", |message| message["method"] == "turn/completed");
    assert_eq!((bench.ran(), bench.confirmed(1).len()), (1, 1));
    drop(desktop);
    assert!(proxy.wait().expect("it is ours").success());
}

/// The variables of each client reach the commands of its threads: a terminal's, and those of a program on pipes.
#[test]
fn e2e_commands_run_in_the_environment_of_their_client() {
    let test = "e2e_commands_run_in_the_environment_of_their_client";
    let shows = || vec![Release::under_test().command_to_be_approved("echo $MARK-$UNNAMED >> $HOME/marks.txt")];
    let script = vec![shows(), says(), shows(), says(), shows(), says()];
    let Some(bench) = Bench::start(test, &[], script) else { return };
    fs::write(bench.home.path().join("config.toml"), "[hub]\nenvironment = [\"MARK\"]\n").expect("a file");
    // The server must not have the variable from whoever starts it.
    let mut restart = bench.lab.command(SHIM);
    bench.home.adopt(&mut restart).env("CODEX_SHIM_CODEX", &bench.codex).env("MARK", "of-the-server");
    assert!(restart.args(["hub", "restart", "--server"]).output().expect("it runs").status.success());
    let marks = |count: usize| {
        eventually("the marks", || {
            let marks = fs::read_to_string(bench.lab.root().join("marks.txt")).unwrap_or_default();
            (marks.lines().count() == count).then_some(marks)
        })
    };
    let mut started = Vec::new();
    for (count, mark) in [(1, "of-an-editor"), (2, "of-another")] {
        let mut command = bench.lab.command(SHIM);
        bench.home.adopt(&mut command).env("CODEX_SHIM_CODEX", &bench.codex).env("CODEX_SHIM_SERVER", "shared");
        let mut editor = Peer::start(command.env("MARK", mark).env("UNNAMED", "no").arg("app-server"));
        editor.initialize();
        let thread = start_thread(&mut editor, &bench.lab, "read-only");
        start_turn(&mut editor, &thread, "mark it");
        let asked = editor.wait_for_method(COMMAND);
        editor.answer(&asked, json!({"decision": "accept"}));
        turn_completed(&mut editor, "completed");
        assert_eq!(marks(count).lines().last(), Some(&*format!("{mark}-")));
        started.push((editor, thread));
    }
    let status = bench.status();
    let given = status["environments"].as_array().expect("an array");
    assert_eq!(given.len(), 2, "{status}");
    assert!(given.iter().all(|given| given["variables"] == json!(["MARK"])), "{status}");
    let Some(tui) = bench.tui_with("MARK=of-the-terminal", "") else { return };
    says_to(&tui, "mark it");
    tui.shows(DIALOG);
    approves(&tui);
    assert_eq!(marks(3).lines().last(), Some("of-the-terminal-"));
}

#[test]
fn e2e_client_on_pipes_shares_a_thread_with_terminals() {
    let test = "e2e_client_on_pipes_shares_a_thread_with_terminals";
    let words = |words| vec![Item::Text(vec![words])];
    let Some(bench) = Bench::start(test, &[], vec![run(), words("First."), run(), words("Second.")]) else { return };
    let Some(first) = bench.tui("") else { return };
    says_to(&first, "do one");
    first.shows(DIALOG);
    let (thread, _) = bench.joined();
    let Some(second) = bench.tui(&format!("resume {thread}")) else { return };
    second.shows(DIALOG);
    let mut editor = bench.editor();
    editor.call("thread/resume", json!({"threadId": thread}));
    let asked = editor.wait_for_method(COMMAND);
    let names = eventually("three connections", || {
        let status = bench.status();
        let connections = status["connections"].as_array()?;
        let name = |now: &Value| (text(&now["transport"]), text(&now["client"]["name"]));
        Some(connections.iter().map(name).collect::<Vec<_>>()).filter(|names| names.len() == 3)
    });
    let name = |transport: &str, name: &str| (transport.to_owned(), name.to_owned());
    assert_eq!(names, [name("websocket", TUI), name("websocket", TUI), name("stdio", "test-client")]);
    approves(&second);
    let resolved = editor.wait_for_method("serverRequest/resolved");
    assert_eq!(resolved["params"]["requestId"], asked["id"]);
    for tui in [&first, &second] {
        tui.shows("First.");
        tui.shows_no(DIALOG);
    }
    turn_completed(&mut editor, "completed");
    assert_eq!(bench.confirmed(1)[0]["resolved_by"], TUI);
    // This time the editor begins, and answers.
    start_turn(&mut editor, &thread, "do two");
    [&first, &second].iter().for_each(|tui| drop(tui.shows_all(&["do two", DIALOG])));
    let asked = editor.wait_for_method(COMMAND);
    editor.answer(&asked, json!({"decision": "accept"}));
    turn_completed(&mut editor, "completed");
    for tui in [&first, &second] {
        tui.shows("Second.");
        tui.shows_no(DIALOG);
    }
    let rows = bench.confirmed(2);
    assert!(rows.iter().any(|row| row["resolved_by"] == "test-client"), "{rows:#?}");
    assert_eq!(bench.ran(), 2);
    let expect = said(&[
        ("user", "do one"),
        ("assistant", "First."),
        COMPLETED,
        ("user", "do two"),
        ("assistant", "Second."),
        COMPLETED,
    ]);
    assert_eq!(bench.conversation(&thread, 2), expect);
    let (seen, status) = editor.finish();
    assert!(status.success(), "{status}");
    assert!(!seen.iter().any(|message| message.to_string().contains("codex-shim:")), "{seen:#?}");
}

#[test]
fn e2e_client_on_pipes_keeps_its_turn_without_the_hub() {
    let test = "e2e_client_on_pipes_keeps_its_turn_without_the_hub";
    let Some(bench) = Bench::start(test, &[], vec![run(), says()]) else { return };
    let mut editor = bench.editor();
    let thread = start_thread(&mut editor, &bench.lab, "read-only");
    start_turn(&mut editor, &thread, "do it");
    let asked = editor.wait_for_method(COMMAND);
    for _ in 0..2 {
        bench.kill_hub();
        bench.shim(&["hub", "start"]);
        bench.joined_again(1);
    }
    editor.answer(&asked, json!({"decision": "accept"}));
    turn_completed(&mut editor, "completed");
    let row = &bench.confirmed(1)[0];
    assert_eq!((&row["resolved_by"], bench.ran()), (&json!("test-client"), 1));
    assert_eq!(bench.conversation(&thread, 1), said(&[("user", "do it"), ("assistant", "Well."), COMPLETED]));
    let (seen, status) = editor.finish();
    assert!(status.success(), "{status}");
    let count = |is_it: &dyn Fn(&&Value) -> bool| seen.iter().filter(is_it).count();
    assert_eq!(count(&|message| message["method"] == COMMAND), 1, "the request is asked again: {seen:#?}");
    assert_eq!(count(&|message| message["result"].get("userAgent").is_some()), 1, "{seen:#?}");
    assert_eq!(count(&|message| message.get("error").is_some() || message.to_string().contains("codex-shim:")), 0);
}

#[test]
fn e2e_client_on_pipes_hears_of_a_turn_that_ended_meanwhile() {
    let test = "e2e_client_on_pipes_hears_of_a_turn_that_ended_meanwhile";
    let Some(bench) = Bench::start(test, &[], vec![run(), says()]) else { return };
    let mut editor = bench.editor();
    let thread = start_thread(&mut editor, &bench.lab, "read-only");
    let turn = start_turn(&mut editor, &thread, "do it");
    let asked = editor.wait_for_method(COMMAND);
    let status = bench.status();
    // Somebody at the server itself answers while no hub runs.
    let mut direct = Client::connect(Path::new(status["server"]["socket"].as_str().expect("a path")));
    direct.initialize("direct");
    direct.call("thread/resume", json!({"threadId": thread}));
    bench.kill_hub();
    direct.answer(&asked["id"], json!({"decision": "accept"}));
    direct.wait_for("the end of the turn", |message| message["method"] == "turn/completed");
    bench.shim(&["hub", "start"]);
    let completed = editor.wait_for_method("turn/completed");
    let ended = &completed["params"]["turn"];
    assert_eq!(
        (&completed["params"]["threadId"], &ended["id"], &ended["status"]),
        (&json!(thread), &json!(turn), &json!("completed"))
    );
    assert!(ended["items"].to_string().contains("Well."), "{completed:#}");
    let (seen, status) = editor.finish();
    // The server tells nothing of calls that the client has not made.
    assert!(seen.iter().all(|message| message["method"] != "deprecationNotice"), "{seen:#?}");
    assert!(status.success());
}

#[test]
fn e2e_client_on_pipes_outlives_the_server() {
    let test = "e2e_client_on_pipes_outlives_the_server";
    let Some(bench) = Bench::start(test, &[], vec![says(), run(), run(), says()]) else { return };
    let mut editor = bench.editor();
    let thread = start_thread(&mut editor, &bench.lab, "read-only");
    start_turn(&mut editor, &thread, "hello");
    turn_completed(&mut editor, "completed");
    let turn = start_turn(&mut editor, &thread, "do it");
    editor.wait_for_method(COMMAND);
    let pid = bench.status()["server"]["pid"].to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().expect("kill runs").success());
    // The turn has died with the server; the next server knows it only by its record.
    let completed = editor.wait_for_method("turn/completed");
    assert_eq!(completed["params"]["turn"]["id"], turn, "{completed:#}");
    assert_ne!(completed["params"]["turn"]["status"], "completed", "{completed:#}");
    start_turn(&mut editor, &thread, "do it again");
    // Its ids begin anew.
    let asked = editor.wait_for_method(COMMAND);
    editor.answer(&asked, json!({"decision": "accept"}));
    turn_completed(&mut editor, "completed");
    assert_eq!(bench.ran(), 1);
    assert!(editor.finish().1.success());
}

#[test]
fn e2e_approval_returns_after_the_hub_was_killed() {
    let test = "e2e_approval_returns_after_the_hub_was_killed";
    let Some(bench) = Bench::start(test, &[Ability::Reconnection], vec![run(), says()]) else { return };
    let Some(tui) = bench.tui("") else { return };
    says_to(&tui, "do it");
    tui.shows(DIALOG);
    let before = bench.status();
    let (thread, _) = bench.joined();
    let asked = bench.rows();
    bench.kill_hub();
    tui.shows("Reconnecting");
    // Whoever looks meanwhile changes nothing: the server still waits for the answer.
    assert_eq!(bench.rows(), asked);
    bench.shim(&["hub", "start"]);
    bench.joined_again(1);
    tui.shows_no("Reconnecting");
    tui.shows(DIALOG);
    let after = bench.status();
    assert_ne!(after["pid"], before["pid"]);
    assert_eq!(after["server"]["pid"], before["server"]["pid"]);
    let rows = bench.rows();
    let names =
        |rows: &[Value]| rows.iter().map(|row| (row["request_id"].clone(), row["status"].clone())).collect::<Vec<_>>();
    assert_eq!((names(&rows), rows.len()), (names(&asked), 1), "{rows:#?}");
    bench.tool(&["respond", &text(&asked[0]["request_id"]), "accept"]);
    tui.shows("Well.");
    tui.shows_no(DIALOG);
    let row = &bench.confirmed(1)[0];
    assert_ne!(row["resolved_by"], TUI, "{row:#}");
    assert_eq!(bench.ran(), 1);
    assert_eq!(bench.conversation(&thread, 1), said(&[("user", "do it"), ("assistant", "Well."), COMPLETED]));
}

#[test]
fn e2e_words_of_a_turn_without_a_hub_are_on_record() {
    let test = "e2e_words_of_a_turn_without_a_hub_are_on_record";
    let script = vec![says(), run(), vec![Item::Text(vec!["Unheard."])], says()];
    let Some(bench) = Bench::start(test, &[Ability::Reconnection, Ability::Pages], script) else { return };
    let Some(tui) = bench.tui("") else { return };
    says_to(&tui, "good morning");
    tui.shows("Well.");
    says_to(&tui, "do it");
    tui.shows(DIALOG);
    let (thread, _) = bench.joined();
    // Somebody at the server itself answers while no hub runs.
    let mut direct = Client::connect(Path::new(bench.status()["server"]["socket"].as_str().expect("a path")));
    direct.initialize("direct");
    direct.call("thread/resume", json!({"threadId": thread, "excludeTurns": true}));
    let asked = direct.wait_for("the approval", |message| message["method"] == COMMAND);
    bench.kill_hub();
    tui.shows("Reconnecting");
    direct.answer(&asked["id"], json!({"decision": "accept"}));
    direct.wait_for("the end of the turn", |message| message["method"] == "turn/completed");
    bench.shim(&["hub", "start"]);
    bench.joined_again(1);
    tui.shows("Unheard.");
    says_to(&tui, "go on");
    let expect = said(&[
        ("user", "good morning"),
        ("assistant", "Well."),
        COMPLETED,
        ("user", "do it"),
        ("assistant", "Unheard."),
        COMPLETED,
        ("user", "go on"),
        ("assistant", "Well."),
        COMPLETED,
    ]);
    let is_whole = || bench.recorded(&thread).filter(|recorded| recorded.len() >= expect.len());
    let recorded = poll(PATIENCE, is_whole);
    assert_eq!(recorded.or_else(|| bench.recorded(&thread)), Some(expect), "{}", tui.screen());
}

#[test]
fn e2e_resumed_thread_has_its_earlier_words() {
    let test = "e2e_resumed_thread_has_its_earlier_words";
    let words: [&'static str; 7] = ["One.", "Two.", "Three.", "Four.", "Five.", "Six.", "Seven."];
    let mut script: Script = words.iter().map(|word| vec![Item::Text(vec![word])]).collect();
    script.push(run());
    script.push(says());
    let Some(bench) = Bench::start(test, &[Ability::Pages], script) else { return };
    let mut bot = Client::connect(&bench.session().join("codex.sock"));
    bot.initialize("bot");
    let started = bot.call("thread/start", json!({"cwd": bench.lab.cwd()}));
    let thread = text(&started["thread"]["id"]);
    for (number, word) in words.iter().chain(["last"].iter()).enumerate() {
        let input = json!([{"type": "text", "text": format!("after {word}")}]);
        bot.call("turn/start", json!({"threadId": thread, "input": input}));
        if number == words.len() {
            let asked = bot.wait_for("the approval", |message| message["method"] == COMMAND);
            bot.answer(&asked["id"], json!({"decision": "accept"}));
        }
        bot.wait_for("the end of the turn", |message| message["method"] == "turn/completed");
    }
    let before = bench.conversation(&thread, 8);
    assert_eq!(before.len(), 24, "{before:#?}");
    bot.close();
    bench.shim(&["hub", "stop"]);
    fs::remove_dir_all(bench.session()).expect("the record is deleted");
    bench.shim(&["hub", "start"]);
    assert_eq!(bench.recorded(&thread), None);
    let Some(tui) = bench.tui(&format!("resume {thread}")) else { return };
    tui.shows("after last");
    eventually("the earlier words", || bench.recorded(&thread).filter(|recorded| *recorded == before));
    // The next turn follows them, and nothing is there twice.
    says_to(&tui, "and now");
    let expect = [&before[..], &said(&[("user", "and now"), ("assistant", "done"), COMPLETED])].concat();
    eventually("the next turn", || bench.recorded(&thread).filter(|recorded| *recorded == expect));
    // Words of before the record began are found like all others.
    let found = bench.document(&["search", "\"after Three\""]);
    assert_eq!(found["matches"].as_array().map(Vec::len), Some(1), "{found:#}");
}

/// Two turns, of which the second runs a command.
const GREETED_AND_DONE: [(&str, &str); 6] =
    [("user", "good morning"), ("assistant", "Well."), COMPLETED, ("user", "do it"), ("assistant", "Well."), COMPLETED];

#[test]
fn e2e_restarted_hub_loses_no_turn() {
    let test = "e2e_restarted_hub_loses_no_turn";
    let Some(bench) = Bench::start(test, &[Ability::Reconnection], vec![says(), run(), says()]) else { return };
    let Some(first) = bench.tui("") else { return };
    says_to(&first, "good morning");
    first.shows("Well.");
    let (thread, _) = bench.joined();
    let Some(second) = bench.tui(&format!("resume {thread}")) else { return };
    second.shows("Well.");
    let mut editor = bench.editor();
    editor.call("thread/resume", json!({"threadId": thread}));
    says_to(&second, "do it");
    let asked = editor.wait_for_method(COMMAND);
    [&first, &second].iter().for_each(|tui| drop(tui.shows(DIALOG)));
    eventually("the turn and its request", || {
        let session = bench.document(&["status"]);
        let running = session["threads"].as_array()?.iter().filter(|thread| thread["activity_state"] != "idle");
        (running.count() == 1 && session["pending_requests"] == 1).then_some(())
    });
    let before = bench.status();
    for args in [&["restart", "--server"][..], &["stop"]] {
        let mut command = bench.lab.command(SHIM);
        let ends = bench.home.adopt(&mut command).arg("hub").args(args).stderr(Stdio::piped());
        let refused = ends.output().expect("the shim runs");
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(told.contains("1 turn is running, 1 request is open") && told.contains("--yes"), "{refused:?}");
        assert_eq!((refused.status.code(), &bench.status()["pid"]), (Some(1), &before["pid"]));
    }
    bench.shim(&["hub", "restart", "--anew"]);
    bench.joined_again(3);
    let after = bench.status();
    assert_ne!(after["pid"], before["pid"]);
    assert_eq!(after["server"]["pid"], before["server"]["pid"]);
    [&first, &second].iter().for_each(|tui| drop(tui.shows_no("Reconnecting")));
    first.shows(DIALOG);
    approves(&first);
    [&first, &second].iter().for_each(|tui| drop(tui.shows_no(DIALOG)));
    let resolved = editor.wait_for_method("serverRequest/resolved");
    assert_eq!(resolved["params"]["requestId"], asked["id"]);
    turn_completed(&mut editor, "completed");
    assert_eq!(bench.confirmed(1)[0]["resolved_by"], TUI);
    assert_eq!(bench.conversation(&thread, 2), said(&GREETED_AND_DONE));
    assert_eq!(bench.ran(), 1);
    assert!(editor.finish().1.success());
}

/// The hub becomes another program amid a turn and with an open dialog: no client notices.
#[test]
fn e2e_restart_goes_unnoticed() {
    let test = "e2e_restart_goes_unnoticed";
    let Some(bench) = Bench::start(test, &[], vec![says(), run(), says()]) else { return };
    let Some(first) = bench.tui("") else { return };
    says_to(&first, "good morning");
    first.shows("Well.");
    let (thread, _) = bench.joined();
    let Some(second) = bench.tui(&format!("resume {thread}")) else { return };
    second.shows("Well.");
    let mut editor = bench.editor();
    editor.call("thread/resume", json!({"threadId": thread}));
    bench.joined_again(3);
    let before = bench.status();
    let goes_on = || {
        let told = bench.shim(&["hub", "restart"]);
        assert!(told.ends_with("goes on, with all clients\n"), "{told}");
    };
    goes_on();
    says_to(&second, "do it");
    let asked = editor.wait_for_method(COMMAND);
    [&first, &second].iter().for_each(|tui| drop(tui.shows(DIALOG)));
    goes_on();
    approves(&first);
    [&first, &second].iter().for_each(|tui| drop(tui.shows_no(DIALOG)));
    let resolved = editor.wait_for_method("serverRequest/resolved");
    assert_eq!(resolved["params"]["requestId"], asked["id"]);
    turn_completed(&mut editor, "completed");
    goes_on();
    let after = bench.status();
    for same in ["pid", "server", "sockets"] {
        assert_eq!(after[same], before[same], "{same}");
    }
    let numbers = |status: &Value| -> Vec<Value> {
        status["connections"].as_array().expect("a list").iter().map(|connection| connection["conn"].clone()).collect()
    };
    assert_eq!(numbers(&after), numbers(&before));
    assert_eq!(bench.confirmed(1)[0]["resolved_by"], TUI);
    assert_eq!(bench.conversation(&thread, 2), said(&GREETED_AND_DONE));
    assert_eq!(bench.ran(), 1);
    assert!(editor.finish().1.success());
}

#[test]
fn e2e_turn_goes_on_without_clients() {
    let test = "e2e_turn_goes_on_without_clients";
    let words = |words| vec![Item::Text(vec![words])];
    let Some(bench) = Bench::start(test, &[], vec![run(), words("First."), words("Second.")]) else { return };
    let bot = |name| {
        let mut bot = Client::connect(&bench.session().join("codex.sock"));
        bot.initialize(name);
        bot
    };
    let mut first = bot("first");
    let started = first.call("thread/start", json!({"cwd": bench.lab.cwd()}));
    let thread = text(&started["thread"]["id"]);
    first.call("turn/start", json!({"threadId": thread, "input": [{"type": "text", "text": "do it"}]}));
    first.wait_for("the approval", |message| message["method"] == "item/commandExecution/requestApproval");
    first.close();
    eventually("the departure", || bench.status()["connections"].as_array()?.is_empty().then_some(()));
    let request = eventually("the request", || Some(text(&bench.rows().first()?["request_id"])));
    bench.tool(&["respond", &request, "accept"]);
    let mut expect = said(&[("user", "do it"), ("assistant", "First."), COMPLETED]);
    assert_eq!(bench.conversation(&thread, 1), expect);
    // The next server has not loaded the thread.
    bench.shim(&["hub", "stop"]);
    bench.shim(&["hub", "start"]);
    let _second = bot("second");
    let lines = || bench.home.journal().texts;
    let count = |part: &str| lines().iter().filter(|line| line.contains(part)).count();
    // Both servers have initialized a client and the hub.
    eventually("the hub's own connection", || (count(r#""method":"initialized""#) == 4).then_some(()));
    bench.tool(&["send", "--thread", &thread, "go on"]);
    expect.extend(said(&[("user", "go on"), ("assistant", "Second."), COMPLETED]));
    assert_eq!(bench.conversation(&thread, 2), expect);
    assert_eq!(bench.counts(&thread, ["turn/started", "turn/completed"]), [2, 2]);
    // The hub does not stay subscribed.
    eventually("the end of the subscription", || (count(r#""method":"thread/unsubscribe""#) == 2).then_some(()));
}

#[test]
fn e2e_approval_of_a_queued_turn_is_listed_while_others_are_connected() {
    let test = "e2e_approval_of_a_queued_turn_is_listed_while_others_are_connected";
    let script = vec![vec![Item::Text(vec!["Hello."])], run(), vec![Item::Text(vec!["Done."])]];
    let Some(bench) = Bench::start(test, &[Ability::Queue], script) else { return };
    let bot = |name| {
        let mut bot = Client::connect(&bench.session().join("codex.sock"));
        bot.initialize(name);
        bot
    };
    let _bystander = bot("bystander");
    let mut first = bot("first");
    let started = first.call("thread/start", json!({"cwd": bench.lab.cwd()}));
    let thread = text(&started["thread"]["id"]);
    first.call("turn/start", json!({"threadId": thread, "input": [{"type": "text", "text": "hi"}]}));
    first.wait_for("the end of the turn", |message| message["method"] == "turn/completed");
    first.close();
    eventually("the departure", || (bench.status()["connections"].as_array()?.len() == 1).then_some(()));
    let mut queue = bench.lab.command(&bench.codex);
    let output = queue.args(["queue", "--thread", &thread, "--message", "do it"]).output().expect("codex runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let request = eventually("the request", || Some(text(&bench.rows().first()?["request_id"])));
    bench.tool(&["respond", &request, "accept"]);
    let expect =
        [("user", "hi"), ("assistant", "Hello."), COMPLETED, ("user", "do it"), ("assistant", "Done."), COMPLETED];
    assert_eq!(bench.conversation(&thread, 2), said(&expect));
    assert_eq!(bench.ran(), 1);
}

#[test]
fn e2e_next_hub_looks_after_open_approvals() {
    let test = "e2e_next_hub_looks_after_open_approvals";
    let Some(bench) = Bench::start(test, &[], vec![run(), run(), says(), says()]) else { return };
    let is_asked = |message: &Value| message["method"] == "item/commandExecution/requestApproval";
    let mut bot = Client::connect(&bench.session().join("codex.sock"));
    bot.initialize("bot");
    let threads = [(); 2].map(|()| {
        let started = bot.call("thread/start", json!({"cwd": bench.lab.cwd()}));
        let thread = text(&started["thread"]["id"]);
        bot.call("turn/start", json!({"threadId": thread, "input": [{"type": "text", "text": "do it"}]}));
        bot.wait_for("the approval", is_asked);
        thread
    });
    let rows = eventually("both requests", || Some(bench.rows()).filter(|rows| rows.len() == 2));
    let of_thread = |rows: &[Value], thread: &String| {
        rows.iter().find(|row| row["thread_id"] == **thread).expect("each thread has one").clone()
    };
    bench.kill_hub();
    drop(bot);
    // The first one is answered while no hub hears it.
    let mut direct = Client::connect(&bench.session().join("server.sock"));
    direct.initialize("direct");
    direct.call("thread/resume", json!({"threadId": threads[0]}));
    let asked = direct.wait_for("the approval", is_asked);
    direct.answer(&asked["id"], json!({"decision": "accept"}));
    direct.wait_for("the end", |message| message["method"] == "turn/completed");
    direct.close();
    bench.shim(&["hub", "start"]);
    let over = eventually("the end of the first request", || {
        let row = of_thread(&bench.rows(), &threads[0]);
        (row["status"] == "resolved").then_some(row)
    });
    assert_eq!(over["error_code"], "withdrawn_by_server", "{over:#}");
    // Nothing more is expected there.
    let left = format!(r#""method":"thread/unsubscribe","params":{{"threadId":"{}"}}"#, threads[0]);
    eventually("the end of the subscription", || {
        bench.home.journal().texts.iter().any(|line| line.contains(&left)).then_some(())
    });
    // The second one is answered although no client is there.
    let second = of_thread(&rows, &threads[1]);
    let id = text(&second["request_id"]);
    eventually("the server asks the hub", || {
        let mut command = bench.lab.command(SHIM);
        let respond = bench.home.adopt(&mut command).args(["respond", &id, "accept", "--session", "latest"]);
        respond.output().expect("the shim runs").status.success().then_some(())
    });
    assert_eq!(bench.conversation(&threads[1], 1).last().map(|(_, status)| status.as_str()), Some("completed"));
    assert_eq!(bench.rows().len(), 2);
}

#[test]
fn e2e_stopped_hub_does_not_block_codex() {
    let test = "e2e_stopped_hub_does_not_block_codex";
    let Some(bench) = Bench::start(test, &[], vec![run(), says()]) else { return };
    let Some(tui) = bench.tui("") else { return };
    says_to(&tui, "do it");
    tui.shows(DIALOG);
    let server = bench.status()["server"]["socket"].clone();
    let server = Path::new(server.as_str().expect("a path"));
    assert!(UnixStream::connect(server).is_ok());
    let told = bench.shim(&["hub", "stop", "--yes"]);
    // It was told to end, and did so although the request is open.
    assert!(told.contains("stopped the server"), "{told}");
    assert!(bench.default_socket().symlink_metadata().is_err() && UnixStream::connect(server).is_err());
    let status = bench.status();
    assert_eq!((&status["running"], &status["server"]), (&json!(false), &Value::Null));
    for args in [&["--version"][..], &["exec", "--skip-git-repo-check", "hello"]] {
        let output = bench.lab.command(&bench.codex).args(args).stdin(Stdio::null()).output().expect("codex runs");
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
}

#[test]
fn e2e_tui_carries_context_to_the_model() {
    let test = "e2e_tui_carries_context_to_the_model";
    let Some(bench) = Bench::start(test, &[], vec![says()]) else { return };
    let Some(tui) = bench.tui("") else { return };
    bench.joined();
    let session = text(&bench.status()["session_id"]);
    let push =
        ["context", "push", "--cmd", "make zebra", "--exit-code", "2", "--output-file", "-", "--session", &session];
    bench.shim_with(&push, "no stripes\n");
    says_to(&tui, "what now");
    tui.shows("Well.");
    let marks = ["make zebra", "no stripes"];
    let hides = |shown: &str| {
        assert!(shown.contains("what now"), "{shown}");
        assert!(!marks.into_iter().chain(["CODEX_META"]).any(|mark| shown.contains(mark)), "{shown}");
    };
    let (thread, _) = bench.joined();
    bench.conversation(&thread, 1);
    hides(&tui.screen());
    let has_titles = Release::under_test().has(Ability::Titles);
    let titles = eventually("the request for a title", || {
        Some(bench.asked().1).filter(|titles| titles.len() == usize::from(has_titles))
    });
    let (turns, _) = bench.asked();
    assert_eq!(turns.len(), 1);
    let turn = turns[0]["input"].to_string();
    assert!(marks.iter().all(|mark| turn.contains(mark)) && turn.contains("what now"), "{turn}");
    titles.iter().for_each(|title| hides(&title["input"].to_string()));
    // The thread's history is free of it as well.
    let Some(again) = bench.tui(&format!("resume {thread}")) else { return };
    hides(&again.shows_all(&["what now", "Well."]));
}

#[test]
fn e2e_rule_decides_for_all_clients_of_a_hub() {
    let test = "e2e_rule_decides_for_all_clients_of_a_hub";
    let Some(bench) = Bench::start(test, &[], vec![run(), says()]) else { return };
    bench.shim(&["hub", "stop"]);
    let rule = "[[rules]]\nname = \"no echo\"\nmatch = { kind = \"command\", argv_prefix = [\"echo\"] }\naction = \"decline\"\n";
    fs::write(bench.home.path().join("config.toml"), rule).expect("a file");
    bench.shim(&["hub", "start"]);
    let mut first = Client::connect(&bench.session().join("codex.sock"));
    first.initialize("first");
    let started = first.call("thread/start", json!({"cwd": bench.lab.cwd()}));
    let thread = text(&started["thread"]["id"]);
    first.call("turn/start", json!({"threadId": thread, "input": [{"type": "text", "text": "do it"}]}));
    let is_over = |message: &Value| {
        assert_ne!(message["method"], COMMAND, "no client is asked");
        message["method"] == "turn/completed"
    };
    first.wait_for("the end of the turn", is_over);
    let rows = bench.confirmed(1);
    assert_eq!((&rows[0]["resolved_by"], &rows[0]["rule"]), (&json!("rule:no echo"), &json!("no echo")), "{rows:#?}");
    assert_eq!(bench.ran(), 0);
}

#[test]
fn e2e_steered_words_carry_context() {
    let test = "e2e_steered_words_carry_context";
    let Some(bench) = Bench::start(test, &[], vec![run(), says(), says()]) else { return };
    let mut first = Client::connect(&bench.session().join("codex.sock"));
    first.initialize("first");
    let started = first.call("thread/start", json!({"cwd": bench.lab.cwd()}));
    let thread = text(&started["thread"]["id"]);
    let turn = first.call("turn/start", json!({"threadId": thread, "input": [{"type": "text", "text": "do it"}]}));
    first.wait_for("the approval", |message| message["method"] == COMMAND);
    let mut second = bench.watcher(&thread);
    bench.tool(&["context", "push", "--cmd", "make zebra", "--exit-code", "2"]);
    let input = json!([{"type": "text", "text": "and look at that"}]);
    let steered =
        second.call("turn/steer", json!({"threadId": thread, "expectedTurnId": turn["turn"]["id"], "input": input}));
    assert_eq!(steered["turnId"], turn["turn"]["id"]);
    let request = eventually("the request", || Some(text(&bench.rows().first()?["request_id"])));
    bench.tool(&["respond", &request, "decline"]);
    let hides = |message: &Value| {
        let shown = message.to_string();
        assert!(!shown.contains("make zebra") && !shown.contains("CODEX_META"), "{shown}");
        message["method"] == "turn/completed"
    };
    first.wait_for("the end of the turn", hides);
    second.wait_for("the end of the turn", hides);
    // Only the end of the turn tells whether the model got what was steered.
    eventually("the delivery", || {
        let waiting = bench.document(&["context", "show"]);
        (!waiting.to_string().contains("make zebra")).then_some(())
    });
    let told: Vec<String> = bench.asked().0.iter().map(|request| request["input"].to_string()).collect();
    let has_both = |input: &&String| input.contains("make zebra") && input.contains("and look at that");
    assert!(told.iter().any(|input| has_both(&input)), "{told:#?}");
}
