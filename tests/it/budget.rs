//! Token budgets through the real binary: a turn beyond one waits for a person, whoever wants it and whatever happens meanwhile.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::both_ends::{Live, http, told};
use crate::support::codex::installed_or_skip;
use crate::support::conversations::start_turn;
use crate::support::eventually;
use crate::support::hub::{Hub, resume};

use crate::support::real::{Real, says};
use crate::support::release::Release;
use crate::support::requests::respond_path;
use crate::support::shim::Home;
use crate::support::websocket::Client;

const INITIALIZE: &str = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"ide","version":"1"}}}"#;

fn home_with(config: &str) -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path()).unwrap();
    fs::write(home.path().join("config.toml"), config).unwrap();
    home
}

fn initialized(mut live: Live) -> Live {
    assert_eq!(live.send(INITIALIZE), format!("{INITIALIZE}\n"));
    live.say_plainly(r#"{"id":0,"result":{"userAgent":"x/0.169.0 (Debian; x86_64) dumb"}}"#);
    live
}

fn start_of(id: u32, thread: &str) -> String {
    json!({"id": id, "method": "turn/start", "params": {"threadId": thread, "input": [{"type": "text", "text": "do it"}]}})
        .to_string()
}

/// The server takes turn `id` of thread `t`, which uses tokens, and ends it. `total` are those of the thread.
fn passes_turn(live: &mut Live, id: u32, used: u64, total: u64) {
    begins_and_ends(live, id, used, total);
    is_counted(&live.session, total);
}

/// The same; the tokens may not be counted yet.
fn begins_and_ends(live: &mut Live, id: u32, used: u64, total: u64) {
    live.take_turn(id);
    let turn = format!("u{id}");
    let counts = |input: u64| json!({"inputTokens": input, "cachedInputTokens": 0, "outputTokens": 0, "reasoningOutputTokens": 0, "totalTokens": input});
    let usage = json!({"last": counts(used), "total": counts(total), "modelContextWindow": 9});
    for (method, params) in [
        ("turn/started", json!({"threadId": "t", "turn": {"id": turn, "items": []}})),
        ("thread/tokenUsage/updated", json!({"threadId": "t", "turnId": turn, "tokenUsage": usage})),
        ("turn/completed", json!({"threadId": "t", "turn": {"id": turn, "status": "completed"}})),
    ] {
        live.say_plainly(&json!({"method": method, "params": params}).to_string());
    }
}

/// Waits until the tokens of thread `t` are in the history: on a busy machine a look does not wait for them without end.
fn is_counted(session: &Path, total: u64) {
    eventually("the tokens in the history", || {
        let (_, usage) = http(session, "GET /sessions/self/usage", b"");
        let threads = usage["threads"].as_array()?.clone();
        threads.iter().any(|thread| thread["codex_total"]["total_tokens"] == total).then_some(())
    });
}

fn pending(session: &Path) -> Vec<Value> {
    let (_, document) = http(session, "GET /sessions/self/codex-pending-requests", b"");
    document["requests"].as_array().unwrap().clone()
}

/// The only question about the budget, once it is asked.
fn question(session: &Path) -> Value {
    eventually("the question about the budget", || {
        let rows = pending(session);
        assert!(rows.len() < 2, "{rows:#?}");
        rows.into_iter().next()
    })
}

fn answer(session: &Path, row: &Value, text: &str) -> (u16, Value) {
    let body = json!({"answers": {"budget": text}}).to_string();
    http(session, &format!("POST {}", respond_path(row["request_id"].as_str().unwrap())), body.as_bytes())
}

fn row_of(session: &Path, row: &Value) -> Value {
    let path = format!("GET /sessions/self/codex-requests/{}", row["request_id"].as_str().unwrap());
    http(session, &path, b"").1["request"].clone()
}

fn usage(home: &Home) -> Value {
    told(&crate::support::both_ends::tool(home, &["usage", "--json"]))
}

#[test]
fn a_turn_beyond_the_budget_waits_for_a_person() {
    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 1000\n")));
    assert_eq!(live.send(&start_of(1, "t")), format!("{}\n", start_of(1, "t")));
    passes_turn(&mut live, 1, 999, 999);
    assert_eq!(live.send(&start_of(2, "t")), format!("{}\n", start_of(2, "t")));
    passes_turn(&mut live, 2, 1, 1000);

    // Beyond it: the server gets nothing, and everything else goes on.
    live.write(&format!("{}\n", start_of(3, "t")));
    let row = question(&live.session);
    let asked = &row["request_payload"]["questions"][0];
    assert_eq!((&row["request_type"], &row["thread_id"]), (&json!("request_user_input"), &json!("t")), "{row:#}");
    let text = asked["question"].as_str().unwrap();
    assert!(text.contains("1,000 of the 1,000 tokens for today are used") && text.contains("do it"), "{text}");
    let other = r#"{"id":9,"method":"thread/list","params":{}}"#;
    assert_eq!(live.send(other), format!("{other}\n"));
    live.say_plainly(r#"{"id":9,"result":{}}"#);
    // The end of a turn in its thread is no answer.
    live.say_plainly(
        r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u9","status":"completed"}}}"#,
    );
    assert_eq!(pending(&live.session).len(), 1);

    // Nonsense is no answer, in none of its forms.
    for body in [
        json!({"answers": {"budget": "yes"}}),
        json!({"answers": {"budget": ["continue once", "stop"]}}),
        json!({"answers": {"budget": "0"}}),
        json!({"answers": {"budget": "-5"}}),
        json!({"answers": {"budget": "1000"}}),
        json!({"result": {"answers": {"budget": {"answers": ["999"]}}}}),
        json!({"result": {"answers": {}}}),
        json!({"decision": "accept"}),
    ] {
        let path = format!("POST {}", respond_path(row["request_id"].as_str().unwrap()));
        let (status, document) = http(&live.session, &path, body.to_string().as_bytes());
        assert_eq!(status, 422, "{body}: {document}");
    }
    // Nor is a line of the client with its id.
    let id = &row["rpc_request_id"];
    live.write(&format!("{}\n", json!({"id": id, "result": {"answers": {"budget": {"answers": ["continue once"]}}}})));

    let (status, document) = answer(&live.session, &row, "continue once");
    assert_eq!(status, 200, "{document}");
    assert_eq!(live.at_server(), format!("{}\n", start_of(3, "t")));
    let row = row_of(&live.session, &row);
    assert_eq!((&row["status"], &row["resolution_source"]), (&json!("resolved"), &json!("api")), "{row:#}");
    assert!(row["dispatched_at"].is_string() && row["confirmed_at"].is_string(), "{row:#}");
    passes_turn(&mut live, 3, 10, 1010);

    // Once is once. Stopped, the client gets an error, and the server nothing.
    live.write(&format!("{}\n", start_of(4, "t")));
    let row = question(&live.session);
    assert_eq!(answer(&live.session, &row, "stop").0, 200);
    let error: Value = serde_json::from_str(&live.at_client()).unwrap();
    assert_eq!(error["id"], 4);
    assert!(error["error"]["message"].as_str().unwrap().contains("the token budget is spent"), "{error}");

    // A higher limit holds for the rest of the day.
    live.write(&format!("{}\n", start_of(5, "t")));
    let row = question(&live.session);
    assert_eq!(answer(&live.session, &row, "2,000").0, 200);
    assert_eq!(live.at_server(), format!("{}\n", start_of(5, "t")));
    passes_turn(&mut live, 5, 900, 1910);
    assert_eq!(live.send(&start_of(6, "t")), format!("{}\n", start_of(6, "t")));
    passes_turn(&mut live, 6, 90, 2000);
    live.write(&format!("{}\n", start_of(7, "t")));
    let row = question(&live.session);
    assert!(row["request_payload"]["questions"][0]["question"].as_str().unwrap().contains("of the 2,000"), "{row:#}");

    let budget = &usage(&live.home)["budget"];
    assert_eq!((&budget[0]["used_tokens"], &budget[0]["limit_tokens"]), (&json!(2000), &json!(2000)), "{budget:#}");
    live.kill();
}

#[test]
fn a_budget_outlives_its_relay_and_counts_all_sessions() {
    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 1000\n")));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 600, 600);
    let home = live.end_quietly();
    let mut live = initialized(Live::start_in_session(home, "other"));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 400, 400);
    live.write(&format!("{}\n", start_of(2, "t")));
    let row = question(&live.session);
    assert_eq!(answer(&live.session, &row, "1500").0, 200);
    live.at_server();
    let home = live.kill();
    // The raised limit is in the ledger of another session, whose relay was killed.
    let mut live = initialized(Live::start_in(home));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 499, 1099);
    live.send(&start_of(2, "t"));
    passes_turn(&mut live, 2, 1, 1100);
    live.write(&format!("{}\n", start_of(3, "t")));
    let row = question(&live.session);
    // A client that closes its end waits for nothing any more.
    drop(live.stdin.take());
    let (home, stderr) = live.server_ends();
    assert_eq!(stderr, "");
    let all = told(&crate::support::both_ends::tool(&home, &["requests", "--all", "--json"]));
    let ended = all["requests"].as_array().unwrap().iter().find(|of| of["request_id"] == row["request_id"]).unwrap();
    assert_eq!((&ended["status"], &ended["error_code"]), (&json!("orphaned"), &json!("client_gone")), "{ended:#}");
}

#[test]
fn a_long_turn_stops_the_next_one() {
    let mut live = initialized(Live::start_in(home_with("[budget]\nper_turn = 500\n")));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 499, 499);
    live.send(&start_of(2, "t"));
    passes_turn(&mut live, 2, 500, 999);
    // Another thread has had no turn.
    assert_eq!(live.send(&start_of(3, "v")), format!("{}\n", start_of(3, "v")));
    live.take_turn(3);
    for starts in ["turn/start", "review/start", "thread/compact/start", "thread/queue/add", "thread/goal/set"] {
        let line = json!({"id": 4, "method": starts, "params": {"threadId": "t"}}).to_string();
        live.write(&format!("{line}\n"));
        let row = question(&live.session);
        let text = &row["request_payload"]["questions"][0]["question"];
        assert!(text.as_str().unwrap().contains("used 500 tokens, and the limit is 500"), "{row:#}");
        assert_eq!(answer(&live.session, &row, "stop").0, 200);
        assert!(live.at_client().contains("\"error\""));
    }
    live.kill();
}

#[test]
fn input_of_the_control_socket_has_no_way_past() {
    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 100\n")));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 100, 100);
    let send = |live: &Live| {
        live.http("POST /sessions/self/input", json!({"text": "go on", "thread_id": "t"}).to_string().as_bytes())
    };
    let (status, document) = send(&live);
    let row = question(&live.session);
    assert_eq!((status, &document["detail"]["pending_request"]["request_id"]), (409, &row["request_id"]), "{document}");
    assert_eq!(send(&live).0, 409);
    let rpc = json!({"method": "turn/start", "params": {"threadId": "t", "input": []}}).to_string();
    let (status, document) = live.http("POST /sessions/self/rpc", rpc.as_bytes());
    assert_eq!(status, 409, "{document}");
    assert_eq!(pending(&live.session).len(), 1);
    assert_eq!(answer(&live.session, &row, "continue once").0, 200);
    // One turn may begin now, and only one.
    let asked = crate::support::both_ends::http_asked(
        &live.session,
        "POST /sessions/self/input",
        json!({"text": "go on", "thread_id": "t"}).to_string().as_bytes(),
    );
    let line: Value = serde_json::from_str(&live.at_server()).unwrap();
    assert_eq!(
        (&line["method"], &line["params"]["input"][0]["text"]),
        (&json!("turn/start"), &json!("go on")),
        "{line}"
    );
    live.say_unseen(&json!({"id": line["id"], "result": {"turn": {"id": "u2", "items": []}}}).to_string());
    assert_eq!(crate::support::both_ends::http_answer(asked).0, 200);
    assert_eq!(send(&live).0, 409);
    live.kill();
}

/// Lets a turn of thread `t` pass at the hub's server and end.
fn turn_at_hub(hub: &Hub, client: &mut Client, used: u64, total: u64) {
    let started = client.call("turn/start", json!({"threadId": "t", "input": []}));
    let turn = &started["turn"]["id"];
    let mut server = hub.server();
    let counts = |input: u64| json!({"inputTokens": input, "cachedInputTokens": 0, "outputTokens": 0, "reasoningOutputTokens": 0, "totalTokens": input});
    let usage = json!({"last": counts(used), "total": counts(total)});
    let report = json!({"method": "thread/tokenUsage/updated", "params": {"threadId": "t", "turnId": turn, "tokenUsage": usage}});
    server.notify("t", &report.to_string());
    let ended = json!({"method": "turn/completed", "params": {"threadId": "t", "turn": {"id": turn, "status": "completed", "items": []}}});
    server.notify("t", &ended.to_string());
    client.wait_for("the end of the turn", |message| message["method"] == "turn/completed");
    is_counted(&hub.session(), total);
}

#[test]
fn each_client_of_a_hub_has_its_own_budget_also_after_a_handover() {
    let mut hub = Hub::at(home_with("[budget]\nper_client = 100\n"));
    let mut server = hub.server();
    let [mut first, mut second] = ["first", "second"].map(|name| hub.client(name));
    resume(&mut first);
    resume(&mut second);
    hub.own_connection(&mut server);
    turn_at_hub(&hub, &mut first, 100, 100);
    let waits = first.request("turn/start", json!({"threadId": "t", "input": []}));
    let row = question(&hub.session());
    let text = &row["request_payload"]["questions"][0]["question"];
    assert!(text.as_str().unwrap().contains("Client first has used 100 of its 100 tokens for today"), "{row:#}");
    // The program that the hub becomes still holds it.
    let restarted = hub.tool(&["hub", "restart"]);
    assert!(String::from_utf8_lossy(&restarted.stdout).contains("goes on, with all clients"), "{restarted:?}");
    assert_eq!(question(&hub.session())["request_id"], row["request_id"]);
    assert_eq!(answer(&hub.session(), &row, "continue once").0, 200);
    let begun = first.wait_for("the turn", |message| message["id"] == waits);
    assert!(begun["result"]["turn"]["id"].is_string(), "{begun}");
    let ended = json!({"method": "turn/completed", "params": {"threadId": "t", "turn": {"id": begun["result"]["turn"]["id"], "status": "completed", "items": []}}});
    server.notify("t", &ended.to_string());
    second.wait_for("the end of the turn", |message| message["method"] == "turn/completed");
    // The other client has its own, in the same thread.
    turn_at_hub(&hub, &mut second, 1, 101);
    // A client that leaves takes its turn with it, and so does a hub that is killed.
    first.request("turn/start", json!({"threadId": "t", "input": []}));
    let row = question(&hub.session());
    first.close();
    eventually("the end of the question", || pending(&hub.session()).is_empty().then_some(()));
    assert_eq!(row_of(&hub.session(), &row)["error_code"], "client_gone");
    let mut first = hub.client("first");
    resume(&mut first);
    first.request("turn/start", json!({"threadId": "t", "input": []}));
    let row = question(&hub.session());
    hub.kill();
    hub.start();
    eventually("the end of the question", || pending(&hub.session()).is_empty().then_some(()));
    assert_eq!(row_of(&hub.session(), &row)["error_code"], "client_gone");
}

/// A home whose budget of 1000 tokens a day only warns, and the documents that `on_budget` has got so far.
fn home_that_warns() -> (Home, impl Fn() -> Vec<Value>) {
    let home = home_with("");
    let told_file = home.beside().join("told");
    let hook = home.beside().join("hook");
    fs::write(&hook, format!("#!/bin/sh\ncat >>'{0}'; echo >>'{0}'\n", told_file.display())).unwrap();
    fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
    let config = format!("on_budget = [\"{}\"]\n[budget]\ntokens_per_day = 1000\naction = \"warn\"\n", hook.display());
    fs::write(home.path().join("config.toml"), config).unwrap();
    let told = move || {
        let text = fs::read_to_string(&told_file).unwrap_or_default();
        text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    (home, told)
}

#[test]
fn on_budget_runs_once_for_each_share() {
    let (home, told) = home_that_warns();
    let mut live = initialized(Live::start_in(home));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 799, 799);
    live.send(&start_of(2, "t"));
    passes_turn(&mut live, 2, 1, 800);
    eventually("the hook at 80 %", || (told().len() == 1).then_some(()));
    live.send(&start_of(3, "t"));
    passes_turn(&mut live, 3, 50, 850);
    let home = live.end_quietly();
    // Another relay of the same day has nothing new to tell, until all is used. No turn waits.
    let mut live = initialized(Live::start_in(home));
    live.send(&start_of(4, "t"));
    passes_turn(&mut live, 4, 150, 1000);
    eventually("the hook at 100 %", || (told().len() == 2).then_some(()));
    assert_eq!(live.send(&start_of(5, "t")), format!("{}\n", start_of(5, "t")));
    passes_turn(&mut live, 5, 1, 1001);
    let percents: Vec<u64> = told().iter().map(|told| told["percent"].as_u64().unwrap()).collect();
    assert_eq!(percents, [80, 100], "{:#?}", told());
    assert_eq!(told()[0]["limit"], "tokens_per_day");
    live.kill();
}

/// A program that may only read the file can lock it.
#[test]
fn on_budget_runs_also_if_its_file_is_locked() {
    let (home, told) = home_that_warns();
    let locked = home.path().join("budget-told");
    fs::write(&locked, "").unwrap();
    fs::set_permissions(&locked, PermissionsExt::from_mode(0o600)).unwrap();
    let locked = fs::File::open(locked).unwrap();
    locked.lock_shared().unwrap();
    let percents = || -> Vec<u64> { told().iter().map(|told| told["percent"].as_u64().unwrap()).collect() };
    let mut live = initialized(Live::start_in(home));
    for (id, used, total, expect) in [(1, 800, 800, &[80][..]), (2, 10, 810, &[80]), (3, 190, 1000, &[80, 100])] {
        live.send(&start_of(id, "t"));
        passes_turn(&mut live, id, used, total);
        eventually("the hook", || (percents() == expect).then_some(()));
    }
    live.kill();
}

#[test]
fn a_changed_budget_applies_at_once_and_none_holds_nothing() {
    let mut live = initialized(Live::start());
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 100, 100);
    assert_eq!(live.send(&start_of(2, "t")), format!("{}\n", start_of(2, "t")));
    passes_turn(&mut live, 2, 1, 101);
    fs::write(live.home.path().join("config.toml"), "[budget]\ntokens_per_day = 50\n").unwrap();
    eventually("the settings are read", || {
        let config = told(&live.tool(&["status", "--json"]))["config"].clone();
        config["loaded_at"].as_str().is_some().then_some(())
    });
    let mut id = 3;
    // A turn that is sent before the relay knows passes.
    let row = eventually("a turn that waits", || {
        live.write(&format!("{}\n", start_of(id, "t")));
        id += 1;
        pending(&live.session).into_iter().next()
    });
    assert_eq!(row["request_method"], "codexShim/budget");
    live.kill();
}

/// All turns that are sent in one write wait, each for an answer of its own.
#[test]
fn no_crowd_of_turns_gets_past() {
    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 100\n")));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 100, 100);
    let turns: Vec<String> = (0..20).map(|number| start_of(10 + number, &format!("thread-{number}"))).collect();
    live.write(&format!("{}\n", turns.join("\n")));
    let rows = eventually("the questions", || {
        let rows = pending(&live.session);
        (rows.len() == turns.len()).then_some(rows)
    });
    // A higher limit lets all of them begin, whichever was asked about.
    assert_eq!(answer(&live.session, &rows[7], "200").0, 200);
    let mut begun: Vec<String> = (0..turns.len()).map(|_| live.at_server().trim_end().to_owned()).collect();
    begun.sort_unstable();
    assert_eq!(begun, turns);
    eventually("the end of the questions", || pending(&live.session).is_empty().then_some(()));
    let ended = row_of(&live.session, &rows[0]);
    assert_eq!((&ended["status"], &ended["error_code"]), (&json!("orphaned"), &json!("budget_allows")), "{ended:#}");
    live.kill();
}

/// A program that locks the memory that a database of the session shares, which needs no more than reading it. `None` without Python.
fn reader_that_locks(session: &Path, database: &str) -> Option<Locker> {
    let script = "import fcntl, sys, time\n\
                  f = open(sys.argv[1], 'rb'); fcntl.lockf(f, fcntl.LOCK_SH, 8, 120)\n\
                  print('locked', flush=True); time.sleep(600)";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(session.join(format!("{database}-shm"))).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: a reader that locks a database: there is no python3");
        return None;
    };
    let mut locked = [0; 7];
    child.stdout.as_mut().unwrap().read_exact(&mut locked).unwrap();
    Some(Locker(child))
}

struct Locker(Child);

impl Drop for Locker {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A command in the sandbox of codex may read the home, and so lock what it reads.
#[test]
fn a_locked_ledger_lets_no_turn_past() {
    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 100\n")));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 100, 100);
    let Some(locker) = reader_that_locks(&live.session, "ledger.db") else { return };
    live.write(&format!("{}\n", start_of(2, "t")));
    let error: Value = serde_json::from_str(&live.at_client()).unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains("cannot be stored"), "{error}");
    let status = told(&live.tool(&["status", "--json"]));
    assert!(status["faults"].to_string().contains("a turn was refused"), "{status:#}");
    drop(locker);
    live.write(&format!("{}\n", start_of(3, "t")));
    let row = eventually("the question", || pending(&live.session).into_iter().next());
    assert_eq!(answer(&live.session, &row, "continue once").0, 200);
    assert_eq!(live.at_server(), format!("{}\n", start_of(3, "t")));
    live.kill();
}

#[test]
fn a_locked_history_lets_no_turn_past() {
    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 100\n")));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 50, 50);
    let Some(locker) = reader_that_locks(&live.session, "history.db") else { return };
    live.send(&start_of(2, "t"));
    begins_and_ends(&mut live, 2, 60, 110);
    // The history lacks its tokens.
    live.write(&format!("{}\n", start_of(3, "t")));
    let row = question(&live.session);
    let text = row["request_payload"]["questions"][0]["question"].as_str().unwrap();
    assert!(text.contains("cannot be read now"), "{text}");
    drop(locker);
    is_counted(&live.session, 110);
    assert_eq!(answer(&live.session, &row, "stop").0, 200);
    assert!(live.at_client().contains("has stopped this turn"));
    live.write(&format!("{}\n", start_of(4, "t")));
    let text = question(&live.session)["request_payload"]["questions"][0]["question"].to_string();
    assert!(text.contains("110 of the 100 tokens"), "{text}");
    live.kill();
}

#[test]
fn what_is_no_new_turn_goes_on() {
    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 100\n")));
    // A long line, which nobody would hold for its context.
    let long = json!({"id": 1, "method": "turn/start", "params": {"threadId": "t", "input": [{"type": "text", "text": "x".repeat(5 << 20)}]}});
    assert_eq!(live.send(&long.to_string()).len(), long.to_string().len() + 1);
    live.take_turn(1);
    live.say_plainly(r#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u1","items":[]}}}"#);
    let counts = json!({"inputTokens": 100, "cachedInputTokens": 0, "outputTokens": 0, "reasoningOutputTokens": 0, "totalTokens": 100});
    let usage = json!({"last": counts, "total": counts, "modelContextWindow": 9});
    let report = json!({"method": "thread/tokenUsage/updated", "params": {"threadId": "t", "turnId": "u1", "tokenUsage": usage}});
    live.say_plainly(&report.to_string());
    is_counted(&live.session, 100);
    // Words for the turn that runs join it.
    assert_eq!(live.send(&start_of(2, "t")), format!("{}\n", start_of(2, "t")));
    live.take_turn(2);
    live.say_plainly(
        r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u1","status":"completed"}}}"#,
    );
    live.say_plainly(
        r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u2","status":"completed"}}}"#,
    );
    // An order in one thread stays: what follows a turn that is looked at comes after it, or goes on without it.
    let name = r#"{"id":4,"method":"thread/name/set","params":{"threadId":"t","name":"n"}}"#;
    live.write(&format!("{}\n{name}\n", start_of(3, "t")));
    assert_eq!(live.at_server(), format!("{name}\n"));
    let row = question(&live.session);
    // An interrupt withdraws the turn that waits.
    let (status, document) = live.http("POST /sessions/self/interrupt", br#"{"thread_id":"t"}"#);
    assert_eq!(status, 200, "{document}");
    assert!(live.at_client().contains("interrupted before it began"));
    assert_eq!(row_of(&live.session, &row)["error_code"], "turn_interrupted");
    live.kill();
}

/// The terminal UI of codex opens a thread of its own for the title of each new one.
#[test]
fn a_thread_for_a_title_asks_nobody() {
    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 100\n")));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 100, 100);
    let start = r#"{"id":2,"method":"thread/start","params":{"ephemeral":true,"threadSource":"thread_title"}}"#;
    live.send(start);
    live.say_plainly(r#"{"id":2,"result":{"thread":{"id":"title","ephemeral":true,"threadSource":"thread_title"}}}"#);
    assert_eq!(live.send(&start_of(3, "title")), format!("{}\n", start_of(3, "title")));
    live.take_turn(3);
    live.write(&format!("{}\n", start_of(4, "t")));
    question(&live.session);
    live.kill();
}

#[test]
fn a_question_ends_once_the_budget_allows_its_turn() {
    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 100\n")));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 100, 100);
    live.write(&format!("{}\n", start_of(2, "t")));
    let row = question(&live.session);
    fs::write(live.home.path().join("config.toml"), "[budget]\ntokens_per_day = 1000\n").unwrap();
    assert_eq!(live.at_server(), format!("{}\n", start_of(2, "t")));
    assert_eq!(row_of(&live.session, &row)["error_code"], "budget_allows");
    live.kill();
}

#[test]
fn secrets_in_a_prompt_are_not_in_the_question() {
    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 100\n")));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 100, 100);
    let secret = format!("sk-proj-{}", "a1B2c3D4".repeat(5));
    let line = json!({"id": 2, "method": "turn/start", "params": {"threadId": "t", "input": [{"type": "text", "text": format!("use {secret} now")}]}});
    live.write(&format!("{line}\n"));
    let row = question(&live.session).to_string();
    assert!(row.contains("use ") && row.contains(" now") && !row.contains(&secret), "{row}");
    live.kill();
}

/// The real codex: two turns of 15 tokens, a budget of 20, and a third turn that is stopped, then one that goes on.
#[test]
fn e2e_budget_holds_the_next_turn_of_the_real_codex() {
    let test = "e2e_budget_holds_the_next_turn_of_the_real_codex";
    let script = vec![says(), says(), says()];
    let Some(mut real) = Real::start(test, "[budget]\ntokens_per_day = 20\n", script) else { return };
    let thread = real.thread.clone();
    for _ in 0..2 {
        start_turn(&mut real.peer, &thread, "go on");
        real.completed("completed");
    }
    let session = real.home.path().join("sessions/s");
    let params = json!({"threadId": thread, "input": [{"type": "text", "text": "once more", "text_elements": []}]});
    let stopped = real.peer.request("turn/start", params.clone());
    let row = question(&session);
    let asked = real.model.requests().len();
    assert!(row["summary"].as_str().unwrap().contains("30 of the 20 tokens for today are used"), "{row:#}");
    assert_eq!(answer(&session, &row, "stop").0, 200);
    let error = real.peer.wait_for("the error", |message| message["id"] == stopped);
    assert!(error["error"]["message"].as_str().unwrap().contains("has stopped this turn"), "{error}");
    assert_eq!(real.model.requests().len(), asked);
    let waits = real.peer.request("turn/start", params);
    let row = question(&session);
    assert_eq!(answer(&session, &row, "continue once").0, 200);
    real.peer.wait_for("the turn", |message| message["id"] == waits && message["result"].is_object());
    real.completed("completed");
    real.peer.finish();
}

/// First parts of the names of calls that ask no model.
const ASK_NO_MODEL: &str = "account accountSession app collaborationMode command config configRequirements environment \
    experimentalFeature externalAgentConfig feedback fs fuzzyFileSearch hooks initialize marketplace mcpServer mcpServerStatus memory mock \
    model modelProvider permissionProfile plugin process project remoteControl rollout server skills threadSection userVerification \
    windowsSandbox";

/// The same for calls about threads; some of them go on with a turn.
const OF_THREADS: &str = "thread/approveGuardianDeniedAction thread/archive thread/attachment/add thread/attachment/list \
    thread/attachment/remove thread/attachmentOwner/list thread/backgroundTerminals/clean thread/backgroundTerminals/list \
    thread/backgroundTerminals/terminate thread/decrement_elicitation thread/delete thread/fork thread/goal/clear thread/goal/get \
    thread/increment_elicitation thread/inject_items thread/items/list thread/items/read thread/list thread/loaded/list thread/memory/read \
    thread/memoryMode/set thread/metadata/update thread/name/set thread/prepareApprovedPlan thread/queue/delete thread/queue/list \
    thread/queue/reorder thread/read thread/readState/update thread/realtime/appendAudio thread/realtime/appendSpeech \
    thread/realtime/appendText thread/realtime/list thread/realtime/listVoices thread/realtime/stop thread/resume thread/revert \
    thread/sample/cancel thread/search thread/search/cancel thread/search/stream thread/search/stream/cancel thread/searchOccurrences \
    thread/section/move thread/settings/update thread/shellCommand thread/start thread/timeline/list thread/turns/list thread/unarchive \
    thread/unsubscribe turn/interrupt turn/settings/update turn/steer";

/// Each call of the newest codex either waits for the budget or is known to ask no model. A new one has to be looked at.
#[test]
fn e2e_every_call_of_codex_is_known_to_the_budget() {
    if Release::under_test() != Release::newest() {
        return;
    }
    let Some(codex) = installed_or_skip("e2e_every_call_of_codex_is_known_to_the_budget") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(codex);
    command.args(["app-server", "generate-json-schema", "--experimental", "--out"]).arg(folder.path());
    let written =
        command.env("HOME", folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(written.unwrap().success());
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("ClientRequest.json")).unwrap()).unwrap();
    let name = |call: &Value| call["properties"]["method"]["enum"][0].as_str().unwrap().to_owned();
    let calls: Vec<String> = schema["oneOf"].as_array().unwrap().iter().map(name).collect();
    assert!(calls.len() > 50, "{calls:?}");

    let mut live = initialized(Live::start_in(home_with("[budget]\ntokens_per_day = 100\n")));
    live.send(&start_of(1, "t"));
    passes_turn(&mut live, 1, 100, 100);
    for (number, call) in calls.iter().enumerate() {
        let params = json!({"threadId": format!("t{number}"), "input": [{"type": "text", "text": "x"}]});
        live.write(&format!("{}\n", json!({"id": 100 + number, "method": call, "params": params})));
    }
    live.write("{\"id\":9999,\"method\":\"thread/list\",\"params\":{}}\n");
    let mut passed = std::collections::BTreeSet::new();
    loop {
        let line: Value = serde_json::from_str(&live.at_server()).unwrap();
        if line["id"] == 9999 {
            break;
        }
        passed.insert(line["method"].as_str().unwrap().to_owned());
    }
    let is_known = |call: &str| {
        let family = call.split('/').next().unwrap();
        ASK_NO_MODEL.split_whitespace().any(|known| known == family)
            || OF_THREADS.split_whitespace().any(|known| known == call)
    };
    for call in &calls {
        assert_eq!(passed.contains(call), is_known(call), "{call}: does it have the model called?");
    }
    live.kill();
}
