//! Clients of a hub, with the scripted server in the place of codex: the real binary, real sockets, real journal and ledger.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use codex_shim::testing::control::client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::faults::SmallDisk;
use crate::support::both_ends::{told, turn};
use crate::support::eventually;
use crate::support::journal::Journal;
use crate::support::requests::{command_asked, decision};
use crate::support::shim::Home;
use crate::support::websocket::{Client, FakeServer};

/// A hub in session `h`, and its scripted server. At the end of a test neither runs.
struct Hub {
    home: Home,
    codex: PathBuf,
    process: Option<Child>,
}

impl Hub {
    fn new() -> Hub {
        Hub::at(Home::new())
    }

    fn at(home: Home) -> Hub {
        let codex = FakeServer::program(home.beside());
        fs::create_dir(home.beside().join("codex-home")).unwrap();
        let mut hub = Hub { home, codex, process: None };
        hub.start();
        hub
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.shim(args);
        command.current_dir(self.home.beside()).env("CODEX_HOME", self.home.beside().join("codex-home"));
        command.env("HOME", self.home.beside()).env("CODEX_SHIM_CODEX", &self.codex);
        command.stdin(Stdio::null());
        command
    }

    /// Starts a hub and waits until its control socket answers.
    fn start(&mut self) {
        let mut command = self.command(&["hub", "--session", "h"]);
        let log = fs::File::create(self.home.beside().join("hub.log")).unwrap();
        let mut process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        eventually("the hub", || {
            if let Some(status) = process.try_wait().unwrap() {
                panic!("the hub ended: {status}: {}", self.said());
            }
            let answers = client::get(&self.session(), "/sessions/self").is_ok();
            let answers = answers && !self.get("/sessions/self")["server"].is_null();
            (answers && UnixStream::connect(self.socket()).is_ok()).then_some(())
        });
        self.process = Some(process);
    }

    /// The hub's stderr.
    fn said(&self) -> String {
        fs::read_to_string(self.home.beside().join("hub.log")).unwrap_or_default()
    }

    fn kill(&mut self) {
        let mut process = self.process.take().expect("a hub runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().expect("a hub runs").id()
    }

    fn session(&self) -> PathBuf {
        self.home.path().join("sessions/h")
    }

    /// The socket for clients in the session folder.
    fn socket(&self) -> PathBuf {
        self.session().join("codex.sock")
    }

    /// The socket at which codex looks for a server.
    fn default_socket(&self) -> PathBuf {
        self.home.beside().join("codex-home/app-server-control/app-server-control.sock")
    }

    fn client(&self, name: &str) -> Client {
        let mut client = Client::connect(&self.socket());
        client.initialize(name);
        client
    }

    fn server(&self) -> FakeServer {
        FakeServer::at(&self.session().join("server.sock"))
    }

    fn tool(&self, args: &[&str]) -> Output {
        let output = self.command(args).args(["--session", "h"]).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        output
    }

    fn get(&self, path: &str) -> Value {
        let (_, document) = crate::support::both_ends::http(&self.session(), &format!("GET {path}"), b"");
        document
    }

    /// All rows of the ledger.
    fn rows(&self) -> Vec<Value> {
        told(&self.tool(&["requests", "--all", "--json"]))["requests"].as_array().unwrap().clone()
    }

    /// The only row of the ledger, once it has this status.
    fn row(&self, status: &str) -> Value {
        eventually(status, || {
            let rows = self.rows();
            assert!(rows.len() < 2, "{rows:#?}");
            rows.into_iter().find(|row| row["status"] == status)
        })
    }

    /// The answers to a request, once there are `count` of them.
    fn answers(&self, row: &Value, count: usize) -> Vec<Value> {
        let path = format!("/sessions/self/codex-requests/{}", row["request_id"].as_str().unwrap());
        eventually("the answers", || {
            let answers = self.get(&path)["answers"].as_array().unwrap().clone();
            (answers.len() >= count).then_some(answers)
        })
    }

    fn journal(&self) -> Journal {
        Journal::read(&self.session())
    }

    /// Waits until the hub has a connection of its own to the server; returns its number there.
    fn own_connection(&self, server: &mut FakeServer) -> u64 {
        eventually("the hub's own connection", || {
            let connections = server.connections();
            let own = connections.iter().find(|connection| connection["name"] == "codex-shim")?;
            own["number"].as_u64()
        })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "stderr of the hub: {}", self.said());
        }
        let Some(pid) = server_pid(self) else { return };
        let is_ours = fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("scripted_server")
        });
        if is_ours {
            let _ = kill_process(pid_of(pid), Signal::KILL);
        }
    }
}

/// The process id of the server that the hub has recorded.
fn server_pid(hub: &Hub) -> Option<u64> {
    let bytes = fs::read(hub.session().join("server.json")).ok()?;
    let record = serde_json::from_slice::<Value>(&bytes).ok()?;
    record["server"]["pid"].as_u64().or_else(|| record["launcher"]["pid"].as_u64())
}

fn pid_of(pid: u64) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

fn is_asked(message: &Value) -> bool {
    message["method"] == "item/commandExecution/requestApproval"
}

fn is_resolved(message: &Value) -> bool {
    message["method"] == "serverRequest/resolved"
}

/// The parameters of an approval.
fn asked() -> Value {
    serde_json::from_str::<Value>(&command_asked("0", "t")).unwrap()["params"].take()
}

/// Asks all subscribers of thread `t`; returns the id.
fn ask(server: &mut FakeServer) -> Value {
    json!(server.ask("t", "item/commandExecution/requestApproval", asked()))
}

fn resume(client: &mut Client) {
    client.call("thread/resume", json!({"threadId": "t"}));
}

/// The answers with this id that have reached the server.
fn answers_at(server: &mut FakeServer, id: &Value) -> Vec<Value> {
    let seen = server.seen().into_iter().filter_map(|(_, text)| serde_json::from_str::<Value>(&text).ok());
    seen.filter(|message| message["id"] == *id && message["result"]["decision"].is_string()).collect()
}

#[test]
fn first_answer_of_two_clients_wins() {
    let hub = Hub::new();
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    resume(&mut first);
    resume(&mut second);
    let mut server = hub.server();
    let id = ask(&mut server);
    let requests = [&mut first, &mut second].map(|client| client.wait_for("the approval", is_asked));
    assert_eq!(requests[0], requests[1]);
    assert_eq!(requests[0]["id"], id);
    first.answer(&id, decision("accept"));
    for client in [&mut first, &mut second] {
        assert_eq!(client.wait_for("the end", is_resolved)["params"]["requestId"], id);
    }
    second.answer(&id, decision("decline"));
    second.call("marker", json!({}));
    let answers = answers_at(&mut server, &id);
    assert_eq!(answers, [json!({"id": id, "result": {"decision": "accept"}})]);
    let row = hub.row("resolved");
    assert_eq!((&row["resolution_source"], &row["resolved_by"]), (&json!("client"), &json!("first")), "{row:#}");
    let answers = hub.answers(&row, 2);
    let of = |by: &str| answers.iter().find(|answer| answer["by"] == by).unwrap();
    assert_eq!((answers.len(), &of("first")["won"], &of("second")["won"]), (2, &json!(true), &json!(false)));
}

/// A report of tokens of a turn in thread `t`: the last call, and all of them.
fn tokens(turn: &str, last: u64, total: u64) -> String {
    let counts = |input: u64| {
        json!({"inputTokens": input, "cachedInputTokens": 0, "outputTokens": 1, "reasoningOutputTokens": 0,
            "totalTokens": input + 1})
    };
    let usage = json!({"last": counts(last), "total": counts(total)});
    json!({"method": "thread/tokenUsage/updated", "params": {"threadId": "t", "turnId": turn, "tokenUsage": usage}})
        .to_string()
}

#[test]
fn usage_counts_what_two_clients_hear_once() {
    let hub = Hub::new();
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    resume(&mut first);
    resume(&mut second);
    let mut server = hub.server();
    let mut turn = |client: &mut Client, reports: &[String]| {
        let started = client.call("turn/start", json!({"threadId": "t", "input": []}));
        let turn = started["turn"]["id"].clone();
        for report in reports {
            server.notify("t", report);
        }
        let ended = json!({"id": turn, "status": "completed", "items": []});
        let ended = json!({"method": "turn/completed", "params": {"threadId": "t", "turn": ended}});
        server.notify("t", &ended.to_string());
        client.wait_for("the end of the turn", |message| message["method"] == "turn/completed");
    };
    turn(&mut first, &[tokens("turn-1", 10, 10), tokens("turn-1", 20, 30)]);
    turn(&mut second, &[tokens("turn-2", 5, 35)]);
    // A client that resumes gets the last report again, alone.
    let mut third = hub.client("third");
    resume(&mut third);
    let is_third = |connection: &Value| connection["name"] == "third";
    let number = hub.server().connections().into_iter().find(is_third).and_then(|it| it["number"].as_u64());
    hub.server().say(number.expect("it is connected"), &tokens("turn-2", 5, 35));
    third.wait_for("the report", |message| message["method"] == "thread/tokenUsage/updated");
    let usage = |by: &str| told(&hub.tool(&["usage", "--json", "--by", by]));
    let rows = |document: &Value, name: &str| -> Vec<(Value, Value, Value)> {
        let rows = document["rows"].as_array().unwrap().iter();
        rows.map(|row| (row[name].clone(), row["turns"].clone(), row["input_tokens"].clone())).collect()
    };
    let by_client = usage("client");
    let expect =
        [("first", 1, 30), ("second", 1, 5)].map(|(name, turns, input)| (json!(name), json!(turns), json!(input)));
    assert_eq!(rows(&by_client, "client"), expect, "{by_client:#}");
    let thread = &by_client["sessions"][0]["threads"][0];
    assert_eq!((&thread["adds_up"], &thread["codex_total"]["input_tokens"]), (&json!(true), &json!(35)), "{thread:#}");
    let by_turn = usage("turn");
    let expect =
        [("turn-1", 1, 30), ("turn-2", 1, 5)].map(|(name, turns, input)| (json!(name), json!(turns), json!(input)));
    assert_eq!(rows(&by_turn, "turn_id"), expect, "{by_turn:#}");
    // A request that both clients see is one, and so is its answer.
    let mut params = asked();
    params["turnId"] = json!("turn-2");
    let id = json!(hub.server().ask("t", "item/commandExecution/requestApproval", params));
    for client in [&mut first, &mut second] {
        client.wait_for("the approval", is_asked);
    }
    first.answer(&id, decision("accept"));
    second.wait_for("the end", is_resolved);
    second.answer(&id, decision("decline"));
    second.call("marker", json!({}));
    let total = usage("day")["total"].clone();
    assert_eq!((&total["requests"], &total["answered_by"]["client"]), (&json!(1), &json!(1)), "{total:#}");
    assert_eq!((&total["turns"], &total["input_tokens"]), (&json!(2), &json!(35)), "{total:#}");
}

#[test]
fn stalled_turn_of_a_hub_runs_the_hook() {
    let home = Home::new();
    let file = home.beside().join("stalled");
    let hook = format!("cat > {0}.new; mv {0}.new {0}", file.display());
    let config = format!("on_stalled = [\"sh\", \"-c\", \"{hook}\"]\nstalled_after = \"200ms\"\n");
    fs::create_dir_all(home.path()).unwrap();
    fs::write(home.path().join("config.toml"), config).unwrap();
    let hub = Hub::at(home);
    let mut client = hub.client("first");
    resume(&mut client);
    let started = json!({"method": "turn/started", "params": {"threadId": "t", "turn": {"id": "u", "items": []}}});
    hub.server().broadcast(&started.to_string());
    let document = eventually("the hook", || serde_json::from_slice::<Value>(&fs::read(&file).ok()?).ok());
    assert_eq!((&document["thread_id"], &document["turn_id"]), (&json!("t"), &json!("u")), "{document}");
}

#[test]
fn answer_of_a_tool_reaches_all_clients() {
    let hub = Hub::new();
    // The first connection of all; no answer may take it.
    let _silent = Client::connect(&hub.socket());
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    resume(&mut first);
    resume(&mut second);
    let mut server = hub.server();
    let own = hub.own_connection(&mut server);
    let id = ask(&mut server);
    for client in [&mut first, &mut second] {
        client.wait_for("the approval", is_asked);
    }
    let name = hub.row("pending")["request_id"].as_str().unwrap().to_owned();
    hub.tool(&["respond", &name, "accept"]);
    for client in [&mut first, &mut second] {
        assert_eq!(client.wait_for("the end", is_resolved)["params"]["requestId"], id);
    }
    assert_eq!(hub.row("resolved")["resolution_source"], "cli");

    // Without a connection of the hub's own, answers take those of the clients.
    server.refuse(Some(503));
    server.cut(own);
    eventually("the end of the connection", || {
        server.connections().iter().all(|connection| connection["number"] != own).then_some(())
    });
    for by_tool in [true, false] {
        let id = ask(&mut server);
        for client in [&mut first, &mut second] {
            client.wait_for("the approval", is_asked);
        }
        if by_tool {
            hub.tool(&["respond", "latest", "decline"]);
        } else {
            second.answer(&id, decision("decline"));
        }
        for client in [&mut first, &mut second] {
            assert_eq!(client.wait_for("the end", is_resolved)["params"]["requestId"], id);
        }
        let (conn, text) = server.wait_for(&format!(r#"{{"id":{id},"result""#));
        let sender = server.connections().into_iter().find(|connection| connection["number"] == conn);
        assert!(sender.is_some_and(|sender| sender["name"].is_string()), "{conn}: {text}");
        assert_eq!(answers_at(&mut server, &id).len(), 1);
    }
    let sources: Vec<Value> =
        eventually("the rows", || Some(hub.rows()).filter(|rows| rows.iter().all(|row| row["status"] == "resolved")))
            .iter()
            .map(|row| row["resolution_source"].clone())
            .collect();
    assert_eq!(sources.iter().filter(|source| **source == "cli").count(), 2, "{sources:?}");
    assert_eq!(sources.iter().filter(|source| **source == "client").count(), 1, "{sources:?}");
}

#[test]
fn answer_of_a_client_that_leaves_counts() {
    let hub = Hub::new();
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    resume(&mut first);
    resume(&mut second);
    let mut server = hub.server();
    for _ in 0..5 {
        let id = ask(&mut server);
        first.wait_for("the approval", is_asked);
        first.answer(&id, decision("accept"));
        drop(first);
        assert_eq!(second.wait_for("the end", is_resolved)["params"]["requestId"], id);
        assert_eq!(answers_at(&mut server, &id).len(), 1);
        first = hub.client("first");
        resume(&mut first);
    }
    let rows = eventually("the rows", || {
        let rows = hub.rows();
        rows.iter().all(|row| row["status"] == "resolved" && !row["dispatched_at"].is_null()).then_some(rows)
    });
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| row["resolved_by"] == "first"), "{rows:#?}");
}

#[test]
fn open_approval_survives_the_hub() {
    let mut hub = Hub::new();
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    resume(&mut first);
    resume(&mut second);
    let mut server = hub.server();
    let pid = server.pid();
    let id = ask(&mut server);
    for client in [&mut first, &mut second] {
        client.wait_for("the approval", is_asked);
    }
    let name = hub.row("pending")["request_id"].clone();
    hub.kill();
    assert_eq!((first.receive(), second.receive()), (None, None));

    hub.start();
    let of_server = hub.get("/sessions/self")["server"].take();
    assert_eq!((&of_server["pid"], &of_server["adopted"]), (&json!(pid), &json!(true)));
    assert_eq!(server.pid(), pid);
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    for client in [&mut first, &mut second] {
        resume(client);
        assert_eq!(client.wait_for("the approval", is_asked)["id"], id);
    }
    assert_eq!(hub.row("pending")["request_id"], name);
    second.answer(&id, decision("accept"));
    for client in [&mut first, &mut second] {
        client.wait_for("the end", is_resolved);
    }
    first.answer(&id, decision("decline"));
    first.call("marker", json!({}));
    assert_eq!(answers_at(&mut server, &id).len(), 1);
    let row = hub.row("resolved");
    assert_eq!((&row["request_id"], &row["resolved_by"]), (&name, &json!("second")));
    assert_eq!(hub.answers(&row, 2).len(), 2);
}

#[test]
fn hundred_kills_lose_no_line_and_no_request() {
    let mut hub = Hub::new();
    let mut seen: HashMap<String, u64> = HashMap::new();
    let mut asked: Vec<Value> = Vec::new();
    // A fixed sequence of moments, in deltas that the client has received.
    let mut moment: u64 = 17;
    for run in 0..100 {
        if run > 0 {
            hub.start();
        }
        let mut client = hub.client("tui");
        resume(&mut client);
        let mut server = hub.server();
        if asked.last().is_none_or(|id| !answers_at(&mut server, id).is_empty()) {
            asked.push(ask(&mut server));
        }
        client.wait_for("the open approval", |message| is_asked(message) && message["id"] == *asked.last().unwrap());
        let sender = std::thread::spawn(move || server.deltas("t", 600));
        moment = (moment * 31 + 7) % 500;
        let last = moment.to_string();
        client.wait_for("a delta", |message| message["params"]["delta"] == *last);
        // The answer is on its way, or was never given.
        if run % 3 > 0 {
            client.answer(asked.last().unwrap(), decision("accept"));
        }
        match run % 3 {
            1 if moment.is_multiple_of(2) => drop(hub.server()),
            2 => drop(client.wait_for("the end", is_resolved)),
            _ => {}
        }
        hub.kill();
        while client.receive().is_some() {}
        sender.join().unwrap();
        for text in client.seen {
            *seen.entry(text).or_default() += 1;
        }
    }
    hub.start();
    let mut server = hub.server();
    let mut client = hub.client("last");
    resume(&mut client);
    if answers_at(&mut server, asked.last().unwrap()).is_empty() {
        client.wait_for("the open approval", |message| is_asked(message) && message["id"] == *asked.last().unwrap());
        client.answer(asked.last().unwrap(), decision("accept"));
        client.wait_for("the end", is_resolved);
    }
    let mut recorded: HashMap<String, u64> = HashMap::new();
    for line in hub.journal().server.into_iter().flatten() {
        let line = String::from_utf8(line).unwrap();
        *recorded.entry(line.trim_end_matches('\n').to_owned()).or_default() += 1;
    }
    for (text, count) in seen {
        let of = recorded.get(&text).copied().unwrap_or_default();
        assert!(of >= count, "received {count} times, recorded {of} times: {text}");
    }
    let answers: Vec<usize> = asked.iter().map(|id| answers_at(&mut server, id).len()).collect();
    assert_eq!(answers, vec![1; asked.len()]);
    assert!(asked.len() > 30, "{}", asked.len());
    let rows = eventually("no open request", || {
        let rows = hub.rows();
        rows.iter().all(|row| row["status"] != "pending").then_some(rows)
    });
    for id in &asked {
        let of_request: Vec<&Value> = rows.iter().filter(|row| row["rpc_request_id"] == *id).collect();
        assert!(!of_request.is_empty() && of_request.iter().all(|row| row["status"] == "resolved"), "{of_request:#?}");
    }
}

#[test]
fn probes_leave_no_trace() {
    let hub = Hub::new();
    let mut server = hub.server();
    drop(UnixStream::connect(hub.default_socket()).unwrap());
    let mut probe = Client::connect_to(&hub.default_socket(), "/", &[]);
    let info = json!({"name": "codex_app_server_daemon", "title": "Codex App Server Daemon", "version": "0.169.0"});
    probe.call("initialize", json!({"clientInfo": info}));
    probe.send(r#"{"method":"initialized"}"#);
    probe.close();
    // The hub has handled all of that once it has connected another client.
    let mut client = Client::connect(&hub.socket());
    eventually("the end of the probe", || {
        let connections = server.connections();
        connections.iter().all(|connection| connection["name"] != "codex_app_server_daemon").then_some(())
    });
    // The server would take its name from a connection of the hub, were that the first.
    assert_eq!(server.connections().len(), 1);
    let before = hub.journal();
    assert!(before.client.is_empty() && before.server.is_empty() && before.own.is_empty(), "{:#?}", before.texts);
    assert!(!before.texts.iter().any(|text| text.contains("daemon") || text.contains("conn_")), "{:#?}", before.texts);
    assert_eq!(hub.get("/sessions/self")["connections"], json!([]));
    client.initialize("tui");
    hub.own_connection(&mut server);
    let journal = hub.journal();
    let opened: Vec<_> = journal.events.iter().filter(|(name, _)| name == "conn_open").collect();
    assert_eq!(opened.len(), 1, "{opened:?}");
    assert_eq!(opened[0].1["name"], "tui");
    // The scripted server's user agent has the name; the real one's has not.
    let of_probe = r#""name":"codex_app_server_daemon""#;
    assert!(!journal.texts.iter().any(|text| text.contains(of_probe)), "{:#?}", journal.texts);
    let events = told(&hub.tool(&["events", "--json", "--since", "0"])).to_string();
    assert!(!events.contains(of_probe), "{events}");
}

/// Lines of the server on record with this text in them.
fn recorded(journal: &Journal, part: &str) -> usize {
    let part = memchr::memmem::Finder::new(part);
    journal.server.iter().flatten().filter(|line| part.find(line).is_some()).count()
}

#[test]
fn client_that_never_reads_is_disconnected_alone() {
    let hub = Hub::new();
    let [mut awake, mut asleep] = ["awake", "asleep"].map(|name| hub.client(name));
    let mut server = hub.server();
    resume(&mut awake);
    resume(&mut asleep);
    // The server repeats an open request to a client that resumes its thread, and to no other.
    server.ask("big", "x/big", json!({"x": "x".repeat(8 << 20)}));
    for _ in 0..10 {
        asleep.request("thread/resume", json!({"threadId": "big"}));
    }
    eventually("the sleeping client is connected", || {
        awake.call("marker", json!({}));
        let connections = server.connections();
        connections.iter().all(|connection| connection["name"] != "asleep").then_some(())
    });
    assert_eq!(server.notify("t", r#"{"method":"x/after"}"#), 1);
    awake.wait_for("a notification", |message| message["method"] == "x/after");
    let mut received = 0;
    while let Some(text) = asleep.receive() {
        received += usize::from(text.contains("x/big"));
    }
    let journal = hub.journal();
    let recorded_big = recorded(&journal, r#""method":"x/big""#);
    assert!(received < recorded_big && recorded_big > 7, "{received} received, {recorded_big} recorded");
    assert_eq!(recorded(&journal, "x/after"), 1);
    let said = hub.said();
    assert!(said.contains("a client has left 64.0 MiB unread"), "{said}");
}

#[test]
fn sleeping_client_holds_up_nobody_and_misses_nothing() {
    const DELTAS: u64 = 150_000;
    let hub = Hub::new();
    let [mut awake, mut asleep] = ["awake", "asleep"].map(|name| hub.client(name));
    resume(&mut awake);
    resume(&mut asleep);
    let mut server = hub.server();
    let sender = std::thread::spawn(move || server.deltas("t", DELTAS));
    for client in [&mut awake, &mut asleep] {
        let mut received = 0;
        while received < DELTAS {
            let text = client.receive().expect("the connection is open");
            if text.contains("agentMessage/delta") {
                assert!(text.contains(&format!(r#""delta":"{received}""#)), "{received}: {text}");
                received += 1;
            }
        }
    }
    sender.join().unwrap();
    let peak = peak_mib(hub.pid());
    assert!(peak < 128, "{peak} MiB");
}

#[test]
fn hundred_clients_at_once() {
    let hub = Hub::new();
    let mut clients: Vec<Client> = (0..100).map(|number| hub.client(&format!("client{number}"))).collect();
    let mut server = hub.server();
    clients.iter_mut().for_each(resume);
    let id = ask(&mut server);
    for client in &mut clients {
        assert_eq!(client.wait_for("the approval", is_asked)["id"], id);
    }
    clients.iter_mut().for_each(|client| client.answer(&id, decision("accept")));
    for client in &mut clients {
        client.wait_for("the end", is_resolved);
        client.call("marker", json!({}));
    }
    assert_eq!(answers_at(&mut server, &id).len(), 1);
    let row = hub.row("resolved");
    assert_eq!(hub.answers(&row, 100).len(), 100);
    assert_eq!(hub.get("/sessions/self")["connections"].as_array().unwrap().len(), 100);
    let peak = peak_mib(hub.pid());
    assert!(peak < 96, "{peak} MiB");
}

#[test]
fn large_messages_pass_byte_for_byte() {
    let hub = Hub::new();
    let mut client = hub.client("tui");
    let mut server = hub.server();
    let up = format!("{{\"method\":\"x/up\",\n \"id\":\t7,\r\n\"params\":{{\"x\":\"{}\"}}\n}}\n", "x".repeat(20 << 20));
    for _ in 0..2 {
        client.send(&up);
        client.wait_for("the response", |message| message["id"] == 7);
    }
    // The control path of the scripted server answers with all that it has seen: once directly, once through the hub.
    let seen = |socket: PathBuf| {
        let mut control = Client::connect_to(&socket, "/control", &[]);
        control.send(r#"{"do":"seen"}"#);
        control.receive().unwrap()
    };
    let direct = seen(hub.session().join("server.sock"));
    assert!(direct.len() > 40 << 20, "{}", direct.len());
    let escaped = serde_json::to_string(&up).unwrap();
    assert_eq!(memchr::memmem::find_iter(direct.as_bytes(), &escaped).count(), 2);
    let through = seen(hub.socket());
    assert!(through == direct, "{} bytes became {}", direct.len(), through.len());
    let text = format!("{{\"method\":\"x/down\",\r\n\"params\":{{\"x\":\"{}\"}}\n}}\n", "y".repeat(4 << 20));
    resume(&mut client);
    server.notify("t", &text);
    assert!(client.receive().as_ref() == Some(&text));
    // Every line of the journal is a record: the reader parses each.
    let journal = hub.journal();
    let has = |lines: &[Option<Vec<u8>>], text: &str| {
        lines.iter().flatten().any(|line| line.strip_suffix(b"\n") == Some(text.as_bytes()))
    };
    assert!(has(&journal.client, &up), "the message to the server is not on record");
    assert!(has(&journal.server, &through), "the message without newlines is not on record");
    assert!(has(&journal.server, &text), "the message with newlines is not on record");
    let peak = peak_mib(hub.pid());
    assert!(peak < 256, "{peak} MiB");
}

#[test]
fn killed_server_is_restarted() {
    let hub = Hub::new();
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    resume(&mut first);
    resume(&mut second);
    let mut server = hub.server();
    ask(&mut server);
    for client in [&mut first, &mut second] {
        client.wait_for("the approval", is_asked);
    }
    hub.row("pending");
    let pid = server.pid();
    let inode = fs::symlink_metadata(hub.default_socket()).unwrap().ino();
    drop(server);
    kill_process(pid_of(pid), Signal::KILL).unwrap();
    assert_eq!((first.receive(), second.receive()), (None, None));
    // The socket goes, or another one is already there.
    eventually("the end of the socket", || {
        let there = fs::symlink_metadata(hub.default_socket());
        there.map_or(true, |there| there.ino() != inode).then_some(())
    });
    let mut again = Client::connect(&hub.default_socket());
    again.initialize("again");
    let restarted = hub.server().pid();
    assert_ne!(restarted, pid);
    assert_eq!(hub.get("/sessions/self")["server"]["pid"], restarted);
    let row = hub.row("orphaned");
    assert_eq!(row["resolved_by"], Value::Null, "{row:#}");
}

#[test]
fn server_without_its_socket_is_replaced() {
    let hub = Hub::new();
    let mut stays = hub.client("stays");
    let pid = hub.server().pid();
    fs::remove_file(hub.session().join("server.sock")).unwrap();
    let mut late = Client::try_connect(&hub.socket(), "/rpc", &[]);
    assert!(late.is_err(), "{:?}", late.as_mut().map(Client::receive));
    // Codex would exit if something listened there.
    eventually("the end of the socket", || fs::symlink_metadata(hub.default_socket()).is_err().then_some(()));
    stays.call("marker", json!({}));
    assert_eq!(hub.get("/sessions/self")["server"]["pid"], pid);
    stays.close();
    let mut again = Client::connect(&hub.default_socket());
    again.initialize("again");
    assert_ne!(hub.server().pid(), pid);
    let said = hub.said();
    assert!(said.contains("its socket") && !said.contains("the server has ended"), "{said}");
}

#[test]
fn full_disk_of_a_hub_disturbs_no_client() {
    let home = Home::new();
    let Some(disk) = SmallDisk::mount(&home.path()) else { return };
    let hub = Hub::at(home);
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    resume(&mut first);
    resume(&mut second);
    let mut server = hub.server();
    hub.own_connection(&mut server);
    let filler = disk.path.join("filler");
    let _ = fs::write(&filler, vec![0; 8 << 20]);
    let text = |number: u32| format!(r#"{{"method":"x/{number}","params":"{}"}}"#, "x".repeat(10_000));
    for number in 0..10 {
        server.notify("t", &text(number));
    }
    let id = ask(&mut server);
    for client in [&mut first, &mut second] {
        for number in 0..10 {
            client.wait_for("a message", |message| message["method"] == format!("x/{number}"));
        }
        client.wait_for("the approval", is_asked);
    }
    second.answer(&id, decision("accept"));
    first.wait_for("the end", is_resolved);
    assert_eq!(answers_at(&mut server, &id).len(), 1);
    assert!(hub.said().contains("No space left on device"), "{}", hub.said());
    fs::remove_file(filler).unwrap();
    server.notify("t", &text(10));
    first.wait_for("a message", |message| message["method"] == "x/10");
    let journal = eventually("the record goes on", || {
        let journal = hub.journal();
        (recorded(&journal, r#""method":"x/10""#) > 0).then_some(journal)
    });
    assert!(!journal.gaps.is_empty());
}

#[test]
fn what_a_dead_server_wrote_reaches_a_slow_client() {
    let mut hub = Hub::new();
    let mut client = hub.client("slow");
    resume(&mut client);
    let mut server = hub.server();
    let texts: Vec<String> =
        (0..3).map(|n| format!(r#"{{"method":"x/{n}","params":"{}"}}"#, "x".repeat(8 << 20))).collect();
    for text in &texts {
        server.notify("t", text);
    }
    eventually("the messages on record", || (recorded(&hub.journal(), r#""method":"x/2""#) == 1).then_some(()));
    let pid = server.pid();
    drop(server);
    kill_process(pid_of(pid), Signal::KILL).unwrap();
    eventually("the end of the server", || hub.said().contains("the server has ended").then_some(()));
    let received: Vec<String> = std::iter::from_fn(|| client.receive()).collect();
    assert!(received == texts, "{} messages", received.len());
    hub.kill();
}

#[test]
fn answer_by_policy_waits_for_a_connection() {
    let home = Home::new();
    let expiry = "[expiry]\nrequest_approval = \"5s\"\n";
    fs::create_dir_all(home.path()).unwrap();
    fs::write(home.path().join("config.toml"), expiry).unwrap();
    let hub = Hub::at(home);
    let mut client = hub.client("tui");
    resume(&mut client);
    let mut server = hub.server();
    let own = hub.own_connection(&mut server);
    server.refuse(Some(503));
    let id = ask(&mut server);
    client.wait_for("the approval", is_asked);
    server.cut(own);
    client.close();
    eventually("the end of the wait", || {
        let rows = hub.rows();
        matches!(rows[0]["status"].as_str(), Some("expired")).then_some(())
    });
    server.refuse(None);
    let answers = eventually("an answer", || Some(answers_at(&mut server, &id)).filter(|answers| !answers.is_empty()));
    assert_eq!(answers.iter().map(|answer| &answer["result"]["decision"]).collect::<Vec<_>>(), ["decline"]);
    assert_eq!(hub.row("resolved")["resolved_by"], "expiry");
}

#[test]
fn changed_codex_is_reported_once() {
    let hub = Hub::new();
    let script = fs::read(&hub.codex).unwrap();
    assert!(!hub.said().contains("has changed"));
    fs::write(&hub.codex, script).unwrap();
    eventually("the report", || hub.said().contains("codex has changed since its server started").then_some(()));
    assert_eq!(hub.said().matches("has changed").count(), 1);
}

#[test]
fn clients_with_one_id_get_their_own_responses() {
    let hub = Hub::new();
    let mut clients: Vec<Client> = (0..100).map(|number| hub.client(&format!("client {number}"))).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client
            .send(&json!({"id": 1, "method": "thread/resume", "params": {"threadId": number.to_string()}}).to_string());
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let response = client.wait_for("the response", |message| message["id"] == 1);
        assert_eq!(response["result"]["thread"]["id"], number.to_string());
    }
}

#[test]
fn connections_leave_nothing() {
    let hub = Hub::new();
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", hub.pid())).unwrap().count();
    let mut server = hub.server();
    let _stays = hub.client("stays");
    hub.own_connection(&mut server);
    let settled = || eventually("the end of the connections", || (hub.server().connections().len() == 2).then_some(()));
    settled();
    // The control socket's connections come and go.
    let before = descriptors();
    let mut resident = 0;
    for number in 0..1_000 {
        if number == 500 {
            resident = resident_kib(hub.pid());
        }
        let mut client = Client::connect(&hub.socket());
        match number % 3 {
            0 => client.close(),
            1 => {
                client.initialize("short");
                client.close();
            }
            _ => {
                client.initialize("cut");
                drop(client);
            }
        }
    }
    settled();
    eventually("the descriptors are closed", || (descriptors() <= before).then_some(()));
    // Five hundred connections that left 8 KiB each would be 4 MiB.
    let grown = resident_kib(hub.pid()).saturating_sub(resident);
    assert!(grown < 4 << 10, "{grown} KiB more");
}

fn resident_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmRSS:")
}

/// Most memory that a process ever had, in MiB.
fn peak_mib(pid: u32) -> u64 {
    memory_kib(pid, "VmHWM:") >> 10
}

fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn item(method: &str, item: &Value) -> String {
    json!({"method": method, "params": {"threadId": "t", "turnId": "turn-1", "item": item}}).to_string()
}

#[test]
fn subscribers_see_history_once() {
    let hub = Hub::new();
    let [mut first, mut second, mut third] = ["first", "second", "third"].map(|name| hub.client(name));
    for client in [&mut first, &mut second, &mut third] {
        resume(client);
    }
    let mut server = hub.server();
    let input = json!([{"type": "text", "text": "What is it?"}]);
    second.call("turn/start", json!({"threadId": "t", "input": input}));
    server.notify("t", &item("item/started", &json!({"type": "userMessage", "id": "u", "content": input})));
    server.notify("t", &item("item/completed", &json!({"type": "userMessage", "id": "u", "content": input})));
    server.notify("t", &item("item/started", &json!({"type": "agentMessage", "id": "a", "text": ""})));
    let delta = json!({"threadId": "t", "turnId": "turn-1", "itemId": "a", "delta": "ha"});
    let delta = json!({"method": "item/agentMessage/delta", "params": delta}).to_string();
    server.notify("t", &delta);
    server.notify("t", &delta);
    first.wait_for("a delta", |message| message["params"]["delta"] == "ha");
    // The first client leaves in the middle of the turn, and another one comes.
    first.close();
    let mut fourth = hub.client("fourth");
    resume(&mut fourth);
    server.notify("t", &delta);
    server.notify("t", &item("item/completed", &json!({"type": "agentMessage", "id": "a", "text": "hahaha"})));
    let ended = json!({"threadId": "t", "turn": {"id": "turn-1", "status": "completed", "items": []}});
    server.notify("t", &json!({"method": "turn/completed", "params": ended}).to_string());
    for client in [&mut second, &mut third, &mut fourth] {
        client.wait_for("the end of the turn", |message| message["method"] == "turn/completed");
    }
    let events = told(&hub.tool(&["events", "--json", "--since", "0"]));
    let events = events["events"].as_array().unwrap();
    for (kind, count) in [("turn/started", 1), ("turn/completed", 1), ("item/started", 2), ("item/completed", 2)] {
        let of_kind: Vec<_> = events.iter().filter(|event| event["event_type"] == kind).collect();
        assert_eq!(of_kind.len(), count, "{kind}: {events:#?}");
    }
    let output = hub.tool(&["transcript", "t", "--json"]);
    let lines = String::from_utf8(output.stdout).unwrap();
    for words in ["What is it?", "hahaha"] {
        assert_eq!(lines.matches(words).count(), 1, "{words}: {lines}");
    }
    let found = told(&hub.tool(&["search", "hahaha", "--json"]));
    assert_eq!(found["matches"].as_array().map(Vec::len), Some(1), "{found}");
    // Each client got the end of the item; the journal has it once.
    let segments = fs::read_dir(hub.session().join("journal")).unwrap();
    let stored: String = segments.map(|segment| fs::read_to_string(segment.unwrap().path()).unwrap()).collect();
    assert_eq!(recorded(&hub.journal(), "hahaha"), 3);
    assert_eq!((stored.matches("hahaha").count(), stored.contains(r#","from":"server","same":"#)), (1, true));
}

#[test]
fn context_goes_to_the_model_and_to_no_client() {
    let hub = Hub::new();
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    resume(&mut first);
    resume(&mut second);
    hub.tool(&["context", "push", "--cmd", "make-it"]);
    // A thread that the client makes for a title takes none.
    let mut server = hub.server();
    let title = json!({"threadSource": "thread_title", "ephemeral": true});
    let title = second.call("thread/start", title)["thread"]["id"].as_str().unwrap().to_owned();
    let of_title = turn(90, &title, "name it");
    second.send(&of_title);
    second.wait_for("the response", |message| message["id"] == 90);
    assert_eq!(server.wait_for("name it").1, of_title);

    let sent = turn(91, "t", "go on");
    second.send(&sent);
    second.wait_for("the response", |message| message["id"] == 91);
    let (_, got) = server.wait_for("go on");
    assert!(got.contains("CODEX_META") && got.contains("make-it"), "{got}");
    let input = serde_json::from_str::<Value>(&got).unwrap()["params"]["input"].take();
    let echo = json!({"type": "userMessage", "id": "u", "content": input});
    for method in ["item/started", "item/completed"] {
        server.notify("t", &item(method, &echo));
        for client in [&mut first, &mut second] {
            let seen = client.wait_for("the echo", |message| message["method"] == method);
            assert_eq!(seen["params"]["item"]["content"][1]["text"], "go on", "{seen}");
        }
    }
    for client in [&first, &second] {
        assert!(!client.seen.iter().any(|text| text.contains("make-it")), "{:#?}", client.seen);
    }
    for (tool, args) in
        [("events", &["events", "--json", "--since", "0"][..]), ("transcript", &["transcript", "t", "--json"])]
    {
        let told = String::from_utf8(hub.tool(args).stdout).unwrap();
        assert!(told.contains("go on") && !told.contains("make-it"), "{tool}: {told}");
    }
    // It was carried once.
    let sent = turn(92, "t", "and on");
    first.send(&sent);
    first.wait_for("the response", |message| message["id"] == 92);
    assert_eq!(server.wait_for("and on").1, sent);
}

#[test]
fn session_document_has_server_and_connections() {
    let hub = Hub::new();
    let [mut first, _second] = ["first", "second"].map(|name| hub.client(name));
    for thread in ["b", "a"] {
        first.call("thread/resume", json!({"threadId": thread}));
    }
    let mut server = hub.server();
    let document = eventually("the threads", || {
        let document = hub.get("/sessions/self");
        (document["connections"][0]["threads"] == json!(["a", "b"])).then_some(document)
    });
    let of_server = &document["server"];
    assert_eq!((&of_server["pid"], &of_server["adopted"]), (&json!(server.pid()), &json!(false)));
    assert!(of_server["version"].as_str().unwrap().contains("0.169.0"), "{of_server}");
    assert!(UnixStream::connect(of_server["socket"].as_str().unwrap()).is_ok());
    assert!(of_server["started_at"].as_str().unwrap().ends_with('Z'), "{of_server}");
    let connections = document["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 2, "{connections:#?}");
    for (connection, (conn, name)) in connections.iter().zip([(1, "first"), (2, "second")]) {
        assert_eq!(connection["conn"], conn);
        assert_eq!(connection["client"], json!({"name": name, "version": "1.0"}));
        assert_eq!((&connection["transport"], &connection["waiting_bytes"]), (&json!("websocket"), &json!(0)));
        assert!(connection["since"].as_str().unwrap().ends_with('Z'), "{connection}");
    }
    assert_eq!(connections[1]["threads"], json!([]));
    first.call("thread/unsubscribe", json!({"threadId": "a"}));
    eventually("the end of a subscription", || {
        (hub.get("/sessions/self")["connections"][0]["threads"] == json!(["b"])).then_some(())
    });
    first.close();
    eventually("the end of the connection", || {
        (hub.get("/sessions/self")["connections"].as_array().unwrap().len() == 1).then_some(())
    });
}
