//! Clients of a hub, with the scripted server in the place of codex: requests, history, context.

use std::fs;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::support::both_ends::{told, turn};
use crate::support::eventually;
use crate::support::hub::{Hub, answers_at, ask, asked, is_asked, is_resolved, recorded, resume};
use crate::support::requests::decision;
use crate::support::shim::Home;
use crate::support::websocket::Client;

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
    let by_session = &usage("session")["rows"];
    assert_eq!(
        (&by_session[0]["name"], by_session.as_array().map(Vec::len)),
        (&json!("hub"), Some(1)),
        "{by_session:#}"
    );
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
fn thread_gets_the_named_variables_of_its_client_and_no_others() {
    let home = Home::new();
    fs::create_dir_all(home.path()).unwrap();
    // Those of this process, which is the client. Not each variable that it has is passed.
    let config = "[hub]\nenvironment = [\"PATH\", \"HOME\", \"ABSENT_EVERYWHERE\"]\n";
    fs::write(home.path().join("config.toml"), config).unwrap();
    let hub = Hub::at(home);
    let mut client = hub.client("first");
    let ours = |name: &str| {
        let printed = std::process::Command::new("printenv").arg(name).output().unwrap().stdout;
        json!(String::from_utf8(printed).unwrap().trim_end_matches('\n'))
    };
    let policy = "shell_environment_policy.set";
    client.request("thread/start", json!({"cwd": "/w", "config": {policy: {"HOME": "/mine"}}}));
    let (_, line) = hub.server().wait_for("thread/start");
    let sent: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(sent["params"]["config"], json!({ policy: { "PATH": ours("PATH"), "HOME": "/mine" } }));
    client.request("thread/fork", json!({"threadId": "t"}));
    let (_, line) = hub.server().wait_for("thread/fork");
    let sent: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(sent["params"]["config"], json!({ policy: { "PATH": ours("PATH"), "HOME": ours("HOME") } }));
    // What the client wrote is on record, and so is what we have made of it.
    let texts = hub.journal().texts;
    let starts: Vec<&String> = texts.iter().filter(|text| text.contains("thread/start")).collect();
    let value = ours("PATH").as_str().unwrap().to_owned();
    assert!(!starts[0].contains("PATH") && starts[1].contains("PATH"), "{starts:#?}");
    let forks = texts.iter().filter(|text| text.contains("thread/fork"));
    assert!(starts.into_iter().chain(forks).all(|text| !text.contains(&value)), "{texts:#?}");
}

#[test]
fn tools_tell_whose_variables_commands_get() {
    let home = Home::new();
    fs::create_dir_all(home.path()).unwrap();
    fs::write(home.path().join("config.toml"), "[hub]\nenvironment = [\"PATH\", \"HOME\"]\n").unwrap();
    let hub = Hub::at(home);
    let mut client = hub.client("first");
    resume(&mut client);
    let mut server = hub.server();
    ask(&mut server);
    client.wait_for("the approval", is_asked);
    let name = hub.row("pending")["request_id"].as_str().unwrap().to_owned();
    let told = |words: &[&str]| String::from_utf8(hub.tool(words).stdout).unwrap();
    let status =
        eventually("the thread's variables", || Some(told(&["hub", "status"])).filter(|told| told.contains("passes")));
    let passes = status.lines().find(|line| line.starts_with("passes")).unwrap();
    assert!(passes.contains("PATH, HOME of first") && passes.ends_with("to the commands of 1 thread"), "{status}");
    let shown = told(&["show", &name]);
    assert!(shown.lines().any(|line| line.starts_with("variables   PATH, HOME of first")), "{shown}");
    hub.tool(&["respond", &name, "accept"]);
    hub.row("resolved");
    assert!(!told(&["show", &name]).contains("variables"), "{}", told(&["show", &name]));
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
    hub.tool_with(&[("CODEX_SHIM_CONTEXT_SCOPE", "session")], &["context", "push", "--cmd", "make-it"]);
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

#[test]
fn envelope_of_a_client_is_shown_to_all() {
    const ENVELOPE: &str = "\u{1e}CODEX_META {\"v\":1,\"type\":\"user_cmd_context\",\"commands\":[],\"mcp\":[]}\u{1f}";
    let hub = Hub::new();
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    resume(&mut first);
    resume(&mut second);
    let mut server = hub.server();
    let item = |words: &str| {
        let content = json!([{"type": "text", "text": words}]);
        json!({"method": "item/started", "params": {"threadId": "t", "turnId": "turn-1",
            "item": {"type": "userMessage", "id": "i", "content": content}}})
    };
    let shown = |client: &mut Client| {
        let echo = client.wait_for("the echo", |message| message["method"] == "item/started");
        echo["params"]["item"]["content"][0]["text"].clone()
    };
    // One that nobody here has written: of a thread from another run.
    server.notify("t", &item(&format!("{ENVELOPE}hi")).to_string());
    assert_eq!([shown(&mut first), shown(&mut second)], ["hi", "hi"]);
    let words = format!("{ENVELOPE}do it");
    first.call("turn/start", json!({"threadId": "t", "input": [{"type": "text", "text": words}]}));
    server.notify("t", &item(&words).to_string());
    assert_eq!([shown(&mut first), shown(&mut second)], [&*words, &*words]);
}
