//! `codex-shim fleet check` and `fleet key`, the commands of docs/fleet.md, and what leaves a machine.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::support::both_ends::{Live, failed, told, tool};
use super::support::eventually;
use super::support::fleet::{Agent, Console, Fleet, of_host};
use super::support::nats::{Link, Nats, USERS, configure, free_port, installed_or_skip};
use super::support::requests::{change_asked, change_started, command_asked, question_asked};
use super::support::shim::{Home, SHIM};

const PAGE: &str = include_str!("../../docs/fleet.md");

/// The result of `fleet check --json` for a user, and whether it has exited with 0.
fn checked(nats: &Nats, key: &str, more: &str) -> (Value, bool) {
    let console = Console(Home::new());
    nats.configures(&console.0, key, more);
    let output = console.ask(&["check", "--json"]);
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"));
    (document, output.status.success())
}

fn broken(document: &Value) -> Vec<&str> {
    let checks = document["checks"].as_array().expect("a list");
    checks.iter().filter(|check| check["ok"] == false).map(|check| check["name"].as_str().expect("a name")).collect()
}

#[test]
fn check_knows_whose_credentials_they_are() {
    let Some(fleet) = Fleet::start("check_knows_whose_credentials_they_are") else { return };
    for (key, more, role) in [
        ("admin", "user = \"admin\"\n", "administrator"),
        ("build_7", "host = \"build-7\"\n", "host"),
        ("ann", "user = \"ann\"\n", "operator"),
        ("ben", "user = \"ben\"\n", "viewer"),
    ] {
        let (document, is_ok) = checked(&fleet.nats, key, more);
        assert_eq!((document["role"].as_str(), is_ok), (Some(role), true), "{document}");
    }
    let (document, is_ok) = checked(&fleet.nats, "build_7", "host = \"build-8\"\nuser = \"build-7\"\n");
    assert_eq!((document["role"].as_str(), is_ok), (Some("none"), false), "{document}");
    failed(&fleet.ann.ask(&["check", "--set-up"]), 1, "not the administrator");
    // It has left nothing behind.
    assert_eq!(fleet.ann.messages().map(|messages| messages.len()), Some(0));
    assert_eq!(fleet.ann.document(&["hosts", "--json"])["hosts"], serde_json::json!([]));
}

#[test]
fn check_finds_permissions_that_are_too_wide() {
    let widened = |accounts: String| {
        accounts
            .replace("\"cshim.req.*.read.ben\"", "\"cshim.req.*.read.*\"")
            .replace("\"_INBOX.ben.>\"", "\"_INBOX.>\"")
    };
    let Some(nats) = Nats::start_with("check_finds_permissions_that_are_too_wide", &USERS, widened) else { return };
    let admin = Console(Home::new());
    nats.configures(&admin.0, "admin", "user = \"admin\"\n");
    let (document, _) = checked(&nats, "admin", "user = \"admin\"\n");
    assert_eq!(broken(&document).len(), 4, "{document}");
    assert!(admin.ask(&["check", "--set-up"]).status.success());
    let (document, is_ok) = checked(&nats, "ben", "user = \"ben\"\n");
    assert!(!is_ok);
    assert_eq!(broken(&document), ["ask in another user's name", "receive another user's replies"], "{document}");
}

#[test]
fn check_says_how_permissions_write_a_name() {
    let test = "check_says_how_permissions_write_a_name";
    let renamed =
        |accounts: String| accounts.replace("build-7", "build~2Eexample~2Eorg").replace(".ann", ".ann~40example~2Eorg");
    let Some(nats) = Nats::start_with(test, &USERS, renamed) else { return };
    let admin = Console(Home::new());
    nats.configures(&admin.0, "admin", "user = \"admin\"\n");
    assert!(admin.ask(&["check", "--set-up"]).status.success());
    let host = "host = \"build.example.org\"\n";
    for (key, settings, role, is_ok, told) in [
        (
            "build_7",
            host,
            "host",
            true,
            "host build.example.org; the server's permissions write `build.example.org` as `build~2Eexample~2Eorg`",
        ),
        (
            "ann",
            "user = \"ann@example.org\"\n",
            "operator",
            true,
            "operator ann@example.org; the server's permissions write `ann@example.org` as `ann~40example~2Eorg`",
        ),
        ("ben", "user = \"ben\"\n", "viewer", true, "viewer ben"),
        // Its permissions have another name.
        (
            "build_8",
            host,
            "none",
            false,
            "; the server's permissions write `build.example.org` as `build~2Eexample~2Eorg`",
        ),
    ] {
        let (document, all_hold) = checked(&nats, key, settings);
        assert_eq!((document["role"].as_str(), all_hold), (Some(role), is_ok), "{document}");
        let belongs = "these credentials belong to this fleet";
        let checks = document["checks"].as_array().expect("a list");
        let detail = checks.iter().find(|check| check["name"] == belongs).expect("the check")["detail"].as_str();
        assert!(detail.is_some_and(|detail| detail.ends_with(told)), "{told}: {detail:?}");
    }
}

/// The rows of the table in the page, asked of `fleet key`.
#[test]
fn key_says_how_permissions_write_a_name() {
    let (_, rest) = PAGE.split_once("| name | in permissions |\n").expect("the table");
    let rows = rest.lines().skip(1).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split('`').skip(1).step_by(2).collect()).collect();
    assert!(rows.len() > 3, "{rows:?}");
    let home = Home::new();
    for (number, row) in rows.iter().enumerate() {
        let [name, token] = row[..] else { panic!("{row:?}") };
        let file = home.beside().join(format!("{number}.nk"));
        let output = tool(&home, &["fleet", "key", file.to_str().expect("UTF-8"), "--for", name]);
        assert!(output.status.success(), "{output:?}");
        let written = if name == token { "it is".to_owned() } else { format!("`{token}`") };
        let told = format!("codex-shim: the server's permissions write `{name}` as {written}\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), told);
    }
}

#[test]
fn key_is_for_its_owner_alone() {
    let home = Home::new();
    let file = home.beside().join("ann.nk");
    let output = tool(&home, &["fleet", "key", file.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{output:?}");
    let public = String::from_utf8(output.stdout).expect("it is text");
    let seed = fs::read_to_string(&file).expect("a file");
    let pair = nkeys::KeyPair::from_seed(seed.trim()).expect("a seed");
    assert_eq!(format!("{}\n", pair.public_key()), public);
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    failed(&tool(&home, &["fleet", "key", file.to_str().expect("UTF-8")]), 1, "exists");
    assert_eq!(fs::read_to_string(&file).expect("a file"), seed);
}

#[test]
fn page_quotes_the_configurations() {
    for name in ["single", "accounts", "cluster"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/fleet/{name}.conf"));
        let text = fs::read_to_string(path).expect("a fixture");
        assert!(PAGE.contains(text.trim_end()), "docs/fleet.md does not quote {name}.conf");
    }
}

/// The first block of commands of the page, in a folder with the configurations.
#[test]
fn commands_of_the_page_work() {
    let Some(server) = installed_or_skip("commands_of_the_page_work") else { return };
    let (_, rest) = PAGE.split_once("in ten commands").expect("the section");
    let (_, rest) = rest.split_once("```sh\n").expect("the commands");
    let (commands, _) = rest.split_once("```").expect("they end");
    assert_eq!(commands.lines().count(), 10);
    let home = Home::new();
    let folder = home.beside().join("fleet");
    fs::create_dir(&folder).expect("a folder");
    // Other tests may have the usual port.
    let port = free_port().to_string();
    for name in ["single.conf", "accounts.conf"] {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/fleet").join(name);
        let text = fs::read_to_string(fixture).expect("a fixture");
        fs::write(folder.join(name), text.replace("4222", &port)).expect("a file");
    }
    let commands = commands.replace("4222", &port);
    let lines: Vec<String> = commands
        .lines()
        .map(|line| match line.ends_with('&') {
            // What runs on is ended by its number.
            true => format!("{line}\nrunning=\"$running $!\""),
            false => line.to_owned(),
        })
        .collect();
    let script = format!("set -e; PATH=$PROGRAMS:$PATH; trap 'kill $running; wait' EXIT\n{}\n", lines.join("\n"));
    let path = std::env::join_paths([Path::new(SHIM).parent().expect("a folder"), server.parent().expect("a folder")])
        .expect("two folders");
    let mut command = std::process::Command::new("sh");
    let output = home
        .adopt(&mut command)
        .args(["-c", &script])
        .current_dir(&folder)
        .env("PROGRAMS", path)
        .stdin(Stdio::null())
        .output()
        .expect("sh runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("refused, as it should be"), "{output:?}");
}

#[test]
fn set_up_and_agent_wait_for_their_server() {
    let Some(mut nats) = Nats::start("set_up_and_agent_wait_for_their_server") else { return };
    nats.server.kill();
    let (admin, ann, host) = (Console(Home::new()), Console(Home::new()), Home::new());
    nats.configures(&admin.0, "admin", "user = \"admin\"\n");
    nats.configures(&ann.0, "ann", "user = \"ann\"\n");
    nats.configures(&host, "build_7", &of_host(7, "full"));
    failed(&ann.ask(&["hosts"]), 1, "connect to nats://127.0.0.1");
    let agent = Agent::start(&host);
    agent.says("the server is not reached");
    let mut command = admin.0.shim(&["fleet", "check", "--set-up"]);
    let setting_up = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the tool runs");
    let (told, mut lines) = (Arc::new(Mutex::new(String::new())), setting_up);
    let stderr = lines.stderr.take().expect("it is piped");
    let heard = Arc::clone(&told);
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            heard.lock().expect("no thread panics with it").push_str(&line);
        }
    });
    eventually("a word", || told.lock().expect("no thread panics with it").contains("waiting up to").then_some(()));
    nats.server.start_again();
    assert!(lines.wait().expect("it ends").success());
    eventually("the host", || (ann.document(&["hosts", "--json"])["hosts"][0]["online"] == true).then_some(()));
}

#[test]
fn silent_server_is_given_up() {
    let Some(fleet) = Fleet::start("silent_server_is_given_up") else { return };
    let link = Link::to(fleet.nats.server.port);
    let console = Console(Home::new());
    let url = format!("nats://127.0.0.1:{}", link.port);
    configure(&console.0, &url, &fleet.nats.seed("ann"), "user = \"ann\"\n");
    assert!(console.ask(&["hosts"]).status.success());
    // It takes connections and says nothing.
    link.stall();
    failed(&console.ask(&["hosts"]), 1, "connect to nats://127.0.0.1");
    link.mend();
    // A host whose link is silent does not answer in time.
    let host = fleet.host_behind(link.port, "full");
    let agent = Agent::start(&host);
    eventually("the host", || fleet.ann.ask(&["sessions", "build-7"]).status.success().then_some(()));
    link.stall();
    failed(&fleet.ann.ask(&["sessions", "build-7"]), 1, "no reply in 5 s");
    // It ends at once on a signal.
    agent.ends();
}

/// The messages that a client has sent to the server: subject and payload.
fn published(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut messages = Vec::new();
    let mut rest = bytes;
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 2..];
        let words: Vec<&str> = line.split(' ').collect();
        let lengths: Vec<usize> = words.iter().rev().map_while(|word| word.parse().ok()).collect();
        let (headers, total) = match (words[0], &lengths[..]) {
            ("PUB", [total, ..]) => (0, *total),
            ("HPUB", [total, headers, ..]) => (*headers, *total),
            _ => continue,
        };
        // The last message may be on its way.
        if rest.len() < total {
            break;
        }
        messages.push((words[1].to_owned(), rest[headers..total].to_vec()));
        rest = &rest[total..];
    }
    messages
}

/// The paths of all members of a document, without the places in lists.
fn paths(document: &Value, path: &str, all: &mut BTreeSet<String>) {
    match document {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            paths(value, &path, all);
        }),
        Value::Array(values) => values.iter().for_each(|value| paths(value, path, all)),
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => drop(all.insert(path.to_owned())),
    }
}

/// Records all that an agent sends while a session has everything that could leave, and tools ask for it.
#[test]
fn summary_sends_only_what_the_page_lists() {
    let Some(fleet) = Fleet::start("summary_sends_only_what_the_page_lists") else { return };
    let link = Link::to(fleet.nats.server.port);
    let mut live = Live::start_in(fleet.host_behind(link.port, "summary")).initialize();
    let _agent = Agent::start(&live.home);
    for line in [
        r#"{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"userMessage","id":"m0","content":[{"type":"text","text":"SECRETWORD0"}]}}}"#,
        r#"{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"agentMessage","id":"m","text":"SECRETWORD1"}}}"#,
        r#"{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"reasoning","id":"m2","summary":["SECRETWORD2"],"content":[]}}}"#,
        r#"{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"commandExecution","id":"c","command":"echo SECRETWORD3","cwd":"/w","status":"completed","aggregatedOutput":"SECRETWORD4","exitCode":0,"durationMs":3}}}"#,
        r#"{"method":"item/agentMessage/delta","params":{"threadId":"t","turnId":"u","itemId":"m3","delta":"SECRETWORD5"}}"#,
        r#"{"method":"turn/diff/updated","params":{"threadId":"t","turnId":"u","diff":"SECRETWORD6"}}"#,
        r#"{"method":"turn/plan/updated","params":{"threadId":"t","turnId":"u","explanation":"SECRETWORD7","plan":[{"step":"SECRETWORD7","status":"pending"}]}}"#,
        r#"{"method":"thread/name/updated","params":{"threadId":"t","threadName":"SECRETWORD8"}}"#,
        r#"{"method":"error","params":{"threadId":"t","turnId":"u","error":{"message":"SECRETWORD9"},"willRetry":false}}"#,
        r#"{"method":"an/unknown","params":{"text":"SECRETWORD10","status":"SECRETWORD11 is here"}}"#,
    ] {
        live.say_plainly(line);
    }
    live.say_plainly(&change_started().replace("hello", "SECRETWORD12"));
    let change = live.asked(&change_asked("1"), "1");
    let question = live.asked(&question_asked("2", false).replace("Which?", "SECRETWORD13"), "2");
    let command = live.asked(&command_asked("3", "t").replace("why not", "SECRETWORD14"), "3");
    eventually("the pending requests", || {
        let listed = fleet.ann.document(&["requests", "--json"]);
        (listed["requests"].as_array().map(Vec::len) == Some(3)).then_some(())
    });
    for id in [&change, &question, &command] {
        fleet.ann.document(&["show", &format!("build-7/{id}"), "--json"]);
    }
    for args in
        [&["sessions", "--json"][..], &["requests", "--all", "--json"], &["usage", "--json"], &["hosts", "--json"]]
    {
        fleet.ann.document(args);
    }
    // What a relay or a request says of a failure stays on the host.
    let wrong = ["respond", &format!("build-7/{question}"), "--json", r#"{"decision":"SECRETWORD-given"}"#];
    failed(&fleet.ann.ask(&wrong), 2, "not a valid answer");
    failed(&fleet.ann.ask(&["send", "build-7/s", "a message"]), 1, "host build-7");
    told(&fleet.ann.ask(&["respond", &format!("build-7/{command}"), "decline", "--reason", "no", "--json"]));
    let all = live.get("/sessions/self/codex-events?since_seq=0&limit=500")["events"].as_array().expect("a list").len();
    eventually("every event", || (fleet.ann.messages()?.len() >= all).then_some(()));

    let sent = link.sent();
    let text = String::from_utf8_lossy(&sent);
    assert!(!text.contains("SECRETWORD"), "{}", &text[text.find("SECRETWORD").expect("it has").saturating_sub(300)..]);
    let (_, list) = PAGE.split_once("<!-- members at level summary -->").expect("the list");
    let (list, _) = list.split_once("<!-- end -->").expect("it ends");
    let listed: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
    let mut found = BTreeSet::new();
    let messages = published(&sent);
    assert!(messages.len() >= all);
    for (subject, payload) in messages {
        if let Ok(document) = serde_json::from_slice::<Value>(&payload) {
            let kind = match subject.split('.').next().expect("a word") {
                "cshim" => "event",
                "$KV" => "view",
                "_R_" => "reply",
                _ => "call",
            };
            paths(&document, kind, &mut found);
        }
    }
    // The documents of replies have names of methods and hosts as members of the use.
    let unlisted: Vec<&String> = found.iter().filter(|path| !listed.contains(path.as_str())).collect();
    assert!(unlisted.is_empty(), "docs/fleet.md does not list {unlisted:#?}");
    live.kill();
}
