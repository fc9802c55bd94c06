//! A hub with many clients, slow clients and large messages, and after a failure, with the scripted server in the place of codex.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::faults::SmallDisk;
use crate::support::eventually;
use crate::support::hub::{Hub, answers_at, ask, is_asked, is_resolved, pid_of, recorded, resume};
use crate::support::requests::decision;
use crate::support::shim::Home;
use crate::support::websocket::Client;

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
fn changed_codex_is_reported_once() {
    let hub = Hub::new();
    let script = fs::read(&hub.codex).unwrap();
    assert!(!hub.said().contains("has changed"));
    fs::write(&hub.codex, script).unwrap();
    eventually("the report", || hub.said().contains("codex has changed since its server started").then_some(()));
    assert_eq!(hub.said().matches("has changed").count(), 1);
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

#[test]
fn bare_connections_hold_up_no_client() {
    let hub = Hub::new();
    // Each of them could take ten seconds, and 64 at a time are served.
    let mut bare = Vec::new();
    for socket in [hub.socket(), hub.default_socket()] {
        bare.extend((0..320).map(|_| UnixStream::connect(&socket).expect("it listens")));
    }
    let mut client = hub.client("a client");
    client.call("marker", json!({}));
    // The latest ones have time to ask.
    let last = bare.last_mut().expect("there are some");
    last.set_nonblocking(true).expect("it can be set");
    let read = std::io::Read::read(last, &mut [0]);
    assert_eq!(read.expect_err("it is open").kind(), std::io::ErrorKind::WouldBlock);
}
