//! Golden files of a hub and of `serve`: their control sockets, and all tools beside them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use regex::Regex;
use serde_json::json;

use crate::golden::{Golden, Shell, quoted};
use crate::golden_house::House;
use crate::golden_text::Names;
use crate::request_tools::finish;
use crate::support::both_ends::{http_asked, lines_of, next};
use crate::support::eventually;
use crate::support::page::Page;
use crate::support::shim::Home;

const SELF: &str = "/sessions/self";

const ACCEPT: &str = r#"{"decision":"accept"}"#;

/// Members of a request whose answer is being sent.
const ON_ITS_WAY: &[&str] = &["confirmed_at", "dispatched_at"];

/// The end of what the hub has on record.
const MARKER: &str = "the marker";

fn house(name: &'static str) -> (House, Golden) {
    let house = House::start(Home::new());
    let mut golden = Golden::new(name, None);
    house.named(&mut golden);
    (house, golden)
}

/// A caller of the control socket of a session.
struct Caller<'a> {
    golden: &'a mut Golden,
    who: &'static str,
    dir: PathBuf,
}

impl Caller<'_> {
    fn get(&mut self, paths: &[&str]) {
        for path in paths {
            self.golden.ask(self.who, &self.dir, &format!("GET {SELF}{path}"), "");
        }
    }

    fn post(&mut self, path: &str, body: &str) {
        self.golden.ask(self.who, &self.dir, &format!("POST {SELF}/{path}"), body);
    }
}

#[test]
fn hub_answers_as_before() {
    let (mut house, mut golden) = house("hub");
    let [command, question, change] = ["run rm", "Which?", "change "].map(|part| house.request(part));
    // The list of connections is published a little later than what they have said.
    eventually("the threads of both clients", || {
        let connections = house.hub.get(SELF)["connections"].take();
        let threads = connections.as_array()?.iter().map(|one| one["threads"].as_array().map_or(0, Vec::len));
        (threads.collect::<Vec<_>>() == [2, 2]).then_some(())
    });
    let mut hub = Caller { golden: &mut golden, who: "the hub", dir: house.hub.session() };
    hub.get(&[
        "",
        "/context",
        "/context/deliveries",
        "/fragments",
        "/codex-pending-requests",
        "/codex-pending-requests?include_orphaned=true",
        &format!("/codex-requests/{change}"),
        "/codex-events?since_seq=0&limit=500",
        "/codex-events?limit=2",
        "/activity",
        "/activity-actions",
        "/tool-events",
        "/turn-events?limit=3",
        "/usage",
        "/codex-reviews?all=true",
        "/threads/thread-red/transcript",
        "/threads/thread-blue/transcript",
        "/threads/thread-title/transcript",
        "/threads/thread-agent/transcript",
        "/threads/nope/transcript",
    ]);
    let dir = hub.dir.clone();
    hub.golden.ask("the hub", &dir, "GET /metrics", "");
    for query in ["since_seq=0", "mode=ui", "mode=ui&since_seq=30"] {
        hub.golden.stream("the hub", &dir, (query, None), MARKER);
    }
    for path in ["stop", "start", "attach"] {
        hub.post(path, "{}");
    }
    hub.post("context", r#"{"cmd":"make","exit_code":0,"cwd":"/w","ts":7,"thread_id":"thread-blue"}"#);
    hub.post("context", r#"{"cmd":"make","thread_id":"nope"}"#);
    hub.post("input", r#"{"text":"not now","thread_id":"thread-red"}"#);
    hub.post("input", r#"{"text":"not to an agent","thread_id":"thread-agent"}"#);
    hub.post("interrupt", r#"{"thread_id":"thread-title"}"#);
    hub.post("rpc", r#"{"method":"thread/loaded/list","params":{}}"#);
    hub.post("rpc", r#"{"method":"initialize"}"#);
    let respond = |request: &str| format!("codex-requests/{request}/respond");
    hub.golden.names.either(ON_ITS_WAY);
    hub.post(&respond(&command), r#"{"decision":"perhaps"}"#);
    hub.post(&respond(&command), ACCEPT);
    hub.post(&respond(&command), r#"{"decision":"decline"}"#);
    hub.post(&respond(&question), r#"{"answers":{"color":"Blue"}}"#);
    hub.golden.names.either(&[]);
    for request in [&command, &question] {
        let path = format!("{SELF}/codex-requests/{request}");
        eventually("the end of the request", || {
            house.hub.get(&path)["request"]["confirmed_at"].is_string().then_some(())
        });
        hub.get(&[&path[SELF.len()..]]);
    }
    // The client that has the thread answers.
    let asked = house.hub.get(&format!("{SELF}/codex-requests/{change}"))["request"]["rpc_request_id"].clone();
    house.editor.answer(&asked, json!({ "decision": "decline" }));
    let path = format!("{SELF}/codex-requests/{change}");
    eventually("the end of the request", || house.hub.get(&path)["request"]["confirmed_at"].is_string().then_some(()));
    hub.get(&[&path[SELF.len()..], "/codex-pending-requests", "/context"]);
    golden.check();
}

#[test]
fn served_session_answers_as_before() {
    let (mut house, mut golden) = house("serve");
    let form = house.request("Your name?");
    let dir = house.bot.dir.clone();
    let mut bot = Caller { golden: &mut golden, who: "bot", dir: dir.clone() };
    bot.get(&[
        "",
        "/codex-pending-requests",
        "/codex-events?since_seq=0",
        "/activity-actions",
        "/usage",
        "/threads/thread-green/transcript",
    ]);
    for query in ["mode=raw", "mode=ui"] {
        bot.golden.stream("bot", &dir, (query, None), "Your name?");
    }
    bot.post("context", r#"{"cmd":"make","exit_code":0,"cwd":"/w","ts":7}"#);
    bot.post("input", r#"{"text":"not now"}"#);
    bot.post("attach", "");
    bot.golden.names.either(ON_ITS_WAY);
    bot.post(&format!("codex-requests/{form}/respond"), r#"{"action":"accept","content":{"name":1}}"#);
    bot.post(&format!("codex-requests/{form}/respond"), r#"{"action":"accept","content":{"name":"Ada"}}"#);
    bot.golden.names.either(&[]);
    let got = house.bot.at_server();
    bot.golden.entry("what the server gets");
    bot.golden.add(&got);
    house.bot.says(r#"{"method":"serverRequest/resolved","params":{"threadId":"thread-green","requestId":"form-1"}}"#);
    let path = format!("/codex-requests/{form}");
    eventually("the end of the request", || house.bot.get(&path)["request"]["confirmed_at"].is_string().then_some(()));
    bot.get(&[&path]);
    // A client that attaches, and leaves.
    let line = format!("POST {SELF}/attach\r\nUpgrade: codex-shim-attach");
    let mut stream = http_asked(&dir, &line.replacen("\r\n", "\r\nConnection: Upgrade\r\n", 1), b"");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("it is answered");
        head.extend(byte);
    }
    bot.golden.answer("bot", &line, "", &String::from_utf8(head).expect("it is text"));
    let initialize = r#"{"id":1,"method":"initialize","params":{"clientInfo":{"name":"ide","version":"1"}}}"#;
    writeln!(stream, "{initialize}").expect("the relay reads");
    let lines = lines_of(stream.try_clone().expect("a socket"));
    bot.golden.entry("what the client gets");
    bot.golden.add(&next(&lines, "the answer"));
    eventually("the client", || (house.bot.get("")["client"]["name"] == "ide").then_some(()));
    bot.get(&[""]);
    bot.post("attach\r\nUpgrade: codex-shim-attach\r\nConnection: Upgrade", "");
    drop(stream.shutdown(std::net::Shutdown::Both));
    eventually("no client", || (house.bot.get("")["client"]["name"] == "codex-shim").then_some(()));
    bot.post("start", "{}");
    bot.post("stop", "{}");
    bot.get(&["", "/activity"]);
    bot.post("rpc", r#"{"method":"model/list"}"#);
    bot.post("codex-requests/nope/respond", ACCEPT);
    golden.check();
}

/// Tools that only read, from a folder.
fn reads(golden: &mut Golden, shell: &Shell<'_>) {
    for words in [
        &["status", "--json"][..],
        &["status"],
        &["status", "bot"],
        &["status", "done", "--json"],
        &["sessions", "--json"],
        &["sessions", "--utc"],
        &["children", "--json"],
        &["children"],
        &["requests", "--json"],
        &["requests"],
        &["requests", "--here", "--json"],
        &["requests", "--here"],
        &["requests", "bot", "--json"],
        &["requests", "--all", "--json"],
        &["show", "--json"],
        &["show"],
        &["wait", "--for", "pending", "--json"],
        &["wait", "--for", "idle", "--timeout", "1ms", "--json"],
        &["usage", "--by", "session", "--json"],
        &["usage", "--by", "thread"],
        &["usage", "--by", "folder"],
        &["usage", "--by", "project", "--json"],
        &["usage", "--by", "branch"],
        &["events", "-n", "3", "--json"],
        &["events", "h", "--thread", "thread-red", "--since", "0", "--json"],
        &["tail", "-n", "5", "--json"],
        &["tail", "h"],
        &["transcript", "--json"],
        &["transcript", "thread-red"],
        &["transcript", "thread-red", "--session", "h"],
        &["search", "paint", "--json"],
        &["search", "count"],
        &["search", "kind:message", "folder:red", "--json"],
        &["search", "kind:paint"],
        &["events", "h", "--filter", "kind:request status:declined", "--json"],
        &["requests", "--all", "--filter", "kind:questions", "--json"],
        &["reviews", "--json"],
        &["fragments", "--json"],
        &["context", "show", "--json"],
        &["rules", "--json"],
        &["interrupt", "nope", "--json"],
        &["overrule", "latest", "--json"],
    ] {
        golden.tool(shell, words);
    }
}

/// Tools whose answer depends on the folder in which they are run.
fn in_folders(golden: &mut Golden, house: &House) {
    for folder in ["red/src", "blue", "green"] {
        golden.entry(&format!("from here on in {folder}"));
        let shell = house.shell(folder);
        for words in [
            &["requests", "--here", "--json"][..],
            &["show", "latest"],
            &["send", "not now", "--json"],
            &["send", "not now"],
            &["context", "push", "--cmd", "make", "--ts", "1000", "--json"],
            &["context", "show", "--json"],
            &["context", "clear", "--json"],
            &["wait", "--for", "pending", "--json"],
            &["transcript"],
            &["interrupt", "--thread", "nope", "--json"],
        ] {
            golden.tool(&shell, words);
        }
    }
}

/// A block of a terminal is kept, and printed.
fn block(golden: &mut Golden, shell: &Shell<'_>) {
    let id = "user:1:1";
    let begins =
        json!({ "block_id": id, "ts_begin": 1_768_000_000_000_i64, "cwd": "/p", "cmd": "make", "status": "running" });
    let ends = json!({ "block_id": id, "exit_code": 0, "ts_end": 1_768_000_000_421_i64, "status": "completed" });
    let begins = json!({ "type": "agent_block_begin", "conversation_id": "C", "block": begins });
    let ends = json!({ "type": "agent_block_end", "conversation_id": "C", "block": ends });
    fs::write(shell.cwd.join("events.jsonl"), format!("{begins}\n{ends}\n")).expect("a file");
    let words = ["watch-pty", "--json", "--session", "bot", "events.jsonl"];
    let mut watch = begin(shell, &words);
    let lines = lines_of(watch.stdout.take().expect("it is piped"));
    golden.entry(&format!("codex-shim {}", quoted(&words)));
    golden.add(&next(&lines, "a command"));
    watch.kill().and_then(|()| watch.wait()).expect("it ends");
    golden.tool(shell, &["context", "show", "--session", "bot", "--json"]);
}

fn begin(shell: &Shell<'_>, words: &[&str]) -> Child {
    let mut command = shell.command(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool runs")
}

/// A backup beside the sessions, and what becomes of it elsewhere.
fn copies(golden: &mut Golden, shell: &Shell<'_>) {
    for words in [
        &["backup", "copy", "--json"][..],
        &["backup", "copy"],
        &["restore", "copy", "--dry-run", "--json"],
        &["restore", "copy", "--json"],
        &["restore", "copy", "--session", "nope"],
        &["restore", "copy", "--at", "2020-01-01"],
        &["restore", "copy", "--to", "other", "--json"],
        &["restore", "copy", "--to", "another"],
    ] {
        golden.tool(shell, words);
    }
}

#[test]
fn tools_beside_live_sessions_are_as_before() {
    let (house, mut golden) = house("live-tools");
    let shell = house.shell("");
    reads(&mut golden, &shell);
    in_folders(&mut golden, &house);
    block(&mut golden, &shell);
    // Answers with the names of the list.
    golden.names.either(ON_ITS_WAY);
    let [command, question, change, form] =
        ["run rm", "Which?", "change ", "Your name?"].map(|part| house.request(part));
    copies(&mut golden, &shell);
    for words in [
        &["respond", &command, "--answer", "color=Red", "--json"][..],
        &["respond", &command, "accept", "--json"],
        &["respond", &command, "decline", "--json"],
        &["respond", &question[8..], "--answer", "color=Blue", "--json"],
        &["respond", &change, "--json", r#"{"decision":"decline"}"#],
        &["respond", &form, "--answer", "name=Ada", "--json"],
        &["respond", &form, "decline"],
    ] {
        golden.tool(&shell, words);
    }
    golden.names.either(&[]);
    for request in [&command, &question, &change] {
        let path = format!("{SELF}/codex-requests/{request}");
        eventually("the end of the request", || {
            house.hub.get(&path)["request"]["confirmed_at"].is_string().then_some(())
        });
    }
    golden.tool(&shell, &["requests", "--all", "--json", "--session", "h"]);
    golden.tool(&shell, &["show", &command]);
    let send = ["send", "go on", "--thread", "thread-red", "--session", "h", "--json"];
    let sending = begin(&shell, &send);
    golden.output(&quoted(&send), &finish(sending), Names::body);
    // They connect to the sockets of the hub, which may take note of it.
    for words in [
        &["hub", "status", "--json"][..],
        &["hub", "status"],
        &["hub", "status", "--session", "h", "--json"],
        &["hub", "status", "--session", "h"],
    ] {
        golden.tool(&shell, words);
    }
    golden.check();
}

/// What the demo has measured, without its numbers.
fn demo(golden: &mut Golden, shell: &Shell<'_>) {
    let mut output = shell.command(&["demo", "--json"]).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("it is UTF-8");
    let text = Regex::new(r"\d+").expect("BUG: it is valid").replace_all(&text, "0").into_owned();
    output.stdout = Regex::new("0 (µs|ms)").expect("BUG: it is valid").replace_all(&text, "0 ms").into_owned().into();
    golden.output("demo --json", &output, Names::exact);
}

#[test]
fn other_tools_are_as_before() {
    let home = Home::new();
    let mut golden = Golden::new("other-tools", None);
    golden.know_home(&home);
    let mut shell = Shell::beside(&home);
    fs::write(home.beside().join("mine.txt"), "one\ntwo\n").expect("a file");
    // Nothing is there yet.
    for words in [
        &["status", "--json"][..],
        &["sessions", "--json"],
        &["children", "--json"],
        &["requests", "--json"],
        &["usage", "--json"],
        &["search", "x", "--json"],
        &["blame", "mine.txt", "--json"],
        &["blame", "mine.txt:2"],
        &["hub", "status", "--json"],
        &["prune", "--json"],
        &["backup", "copy", "--json"],
        &["restore", "copy", "--json"],
        &["redact", "--all", "--json"],
        &["audit", "export"],
        &["tape", "check", "latest", "--json"],
        &["unwrap", "--json"],
        &["web", "--browsers", "--json"],
        &["tui"],
    ] {
        golden.tool(&shell, words);
    }
    shell.variables = vec![
        ("CODEX_SHIM_ON_PENDING", r#"["sh", "-c", "cat"]"#.to_owned()),
        ("CODEX_SHIM_ON_IDLE", r#"["false"]"#.to_owned()),
    ];
    golden.tool(&shell, &["notify", "test", "--json"]);
    golden.tool(&shell, &["notify", "test", "idle"]);
    shell.variables = Vec::new();
    demo(&mut golden, &shell);
    // The page's own tools.
    let page = Page::start(&home, &[]);
    golden.names.know_number(page.port.into(), "port");
    golden.names.know(page.token.clone(), "token");
    let _browser = page.browser();
    for words in [
        &["web", "--json"][..],
        &["web", "--browsers", "--json"],
        &["web", "--browsers"],
        &["web", "--sign-out", "7", "--json"],
        &["web", "--sign-out", "1", "--json"],
        &["web", "--sign-out", "--json"],
    ] {
        golden.tool(&shell, words);
    }
    let links = shell.command(&["web", "--new-link", "--json"]).output().expect("it runs");
    let document: serde_json::Value = serde_json::from_slice(&links.stdout).expect("JSON");
    let (_, token) = document["links"][0].as_str().and_then(|link| link.split_once("/#")).expect("a token");
    golden.names.know(token, "token");
    golden.output("web --new-link --json", &links, Names::body);
    golden.check();
}
