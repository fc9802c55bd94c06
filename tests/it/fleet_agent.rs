//! An agent and the tools of the fleet, with a real NATS server: what is shipped, listed, shown and answered.

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::request_tools::{REMOVES, REMOVES_WHY, command, finish, read_until, run_at_a_terminal};
use crate::support::both_ends::{Live, failed, told};
use crate::support::eventually;
use crate::support::fleet::{Agent, Console, Fleet, Session, stream_has};
use crate::support::hub::{Hub, answers_at, ask, is_asked, is_resolved, resume};
use crate::support::nats::Link;
use crate::support::requests::{command_asked, question_asked, turn_completed, turn_started};
use crate::support::shim::Home;

/// The numbers of the events that the server has of a session.
fn shipped(fleet: &Fleet, session: &str) -> Vec<u64> {
    let numbers = fleet.ann.numbers().expect("the server is there");
    numbers.into_iter().filter(|((_, name, _), _)| name == session).flat_map(|(_, numbers)| numbers).collect()
}

/// The numbers of the events that the host itself has.
fn recorded(live: &Live) -> Vec<u64> {
    let page = live.get("/sessions/self/codex-events?since_seq=0&limit=500");
    page["events"].as_array().expect("a list").iter().map(|event| event["seq"].as_u64().expect("a number")).collect()
}

/// The only pending request of the fleet.
fn pending(fleet: &Fleet) -> Value {
    eventually("the pending request", || {
        let document = fleet.ann.document(&["requests", "--json"]);
        document["requests"].as_array().filter(|rows| !rows.is_empty()).map(|rows| rows[0].clone())
    })
}

fn shown(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("it is text")
}

#[test]
fn request_is_answered_from_another_machine() {
    let Some(fleet) = Fleet::start("request_is_answered_from_another_machine") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let _agent = Agent::start(&live.home);
    let id = live.asked(&command_asked("0", "t"), "0");
    let row = pending(&fleet);
    let name = row["name"].as_str().expect("a name");
    assert_eq!((&row["host"], &row["request_id"]), (&json!("build-7"), &json!(id)));
    assert!(name.starts_with("build-7/") && id.ends_with(&name["build-7/".len()..]), "{name}");

    let whole = shown(&fleet.ann.ask(&["show", name]));
    assert!(whole.contains("touch x") && whole.contains("why not"), "{whole}");
    assert!(whole.contains("\n\nhost        build-7\nsession     ") && whole.contains("\nrequest     "), "{whole}");
    let document = fleet.ann.document(&["show", name, "--json"]);
    assert_eq!((&document["host"], &document["session"]["session_id"]), (&json!("build-7"), &json!("s")), "{document}");
    assert!(whole.contains(&format!("codex-shim fleet respond build-7/{id} accept")), "{whole}");

    let done = fleet.ann.document(&["respond", name, "accept", "--json"]);
    assert_eq!((&done["ok"], &done["idempotent"], &done["host"]), (&json!(true), &json!(false), &json!("build-7")));
    assert_eq!(live.at_server(), format!("{}\n", json!({ "id": 0, "result": { "decision": "accept" } })));
    let row = live.row(&id);
    assert_eq!((&row["resolved_by"], &row["resolution_source"]), (&json!("fleet:ann@build-7"), &json!("api")));

    let again = fleet.ann.ask(&["respond", &format!("build-7/s/{id}"), "decline"]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stdout).contains("your answer was not sent"), "{again:?}");
    eventually("an empty list", || {
        fleet.ann.document(&["requests", "--json"])["requests"].as_array().is_some_and(Vec::is_empty).then_some(())
    });
    live.kill();
}

#[test]
fn risky_answers_to_a_host_are_confirmed() {
    let Some(fleet) = Fleet::start("risky_answers_to_a_host_are_confirmed") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).in_turn();
    let _agent = Agent::start(&live.home);
    let asked = |live: &mut Live, number: u32, line: &str| live.asked(&command(number, line), &number.to_string());
    let at_terminal = |id: &str, words: &[&str], typed: Option<&str>| {
        let target = format!("build-7/{id}");
        let (tool, mut terminal) =
            run_at_a_terminal(&fleet.ann.0, &[&["fleet", "respond", &target], words].concat(), "");
        let mut seen = String::new();
        if let Some(typed) = typed {
            read_until(&mut terminal, &mut seen, 0, "Really?");
            terminal.write_all(typed.as_bytes()).expect("it is typed");
        }
        let output = finish(tool);
        seen.push_str(&String::from_utf8_lossy(&output.stderr));
        (output.status.code(), seen)
    };
    let id = asked(&mut live, 0, REMOVES);
    eventually("the host", || fleet.ann.ask(&["sessions", "build-7"]).status.success().then_some(()));
    let (code, seen) = at_terminal(&id, &["accept-for-session"], Some("n\n"));
    assert!(code == Some(1) && seen.contains("nothing was sent"), "{seen}");
    let expect = [&format!("build-7/{id}: "), "sudo rm -rf build", &format!("{REMOVES_WHY}; it holds for")];
    assert!(expect.iter().all(|words| seen.contains(words)), "{seen}");
    assert_eq!(live.row(&id)["status"], "pending");
    assert_eq!(at_terminal("latest", &["accept"], Some("y\n")).0, Some(0));
    assert_eq!(live.row(&id)["resolved_payload"], json!({ "decision": "accept" }));
    // Nothing is asked about a decline, about what looks harmless, or of somebody who is sure.
    for (number, line, words) in
        [(1, REMOVES, &["accept", "--yes"][..]), (2, REMOVES, &["decline"]), (3, "make", &["accept"])]
    {
        let id = asked(&mut live, number, line);
        let (code, seen) = at_terminal(&id, words, None);
        assert!(code == Some(0) && !seen.contains(REMOVES_WHY), "{words:?}: {seen}");
        assert_eq!(live.row(&id)["resolved_payload"]["decision"], words[0]);
    }
    // A script gets the reasons, and has decided.
    let id = asked(&mut live, 4, REMOVES);
    let output = fleet.ann.ask(&["respond", &format!("build-7/{id}"), "accept", "--json"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains(&format!("request build-7/{id}: {REMOVES_WHY}")), "{output:?}");
    live.kill();
}

#[test]
fn accepting_a_summary_is_confirmed() {
    let Some(fleet) = Fleet::start("accepting_a_summary_is_confirmed") else { return };
    let mut live = Live::start_in(fleet.host(7, "summary")).in_turn();
    let _agent = Agent::start(&live.home);
    let permissions = json!({ "threadId": "t", "turnId": "u1", "itemId": "i", "cwd": "/work", "permissions": { "fileSystem": { "write": ["/work/x"] } } });
    let ask = json!({ "id": 1, "method": "item/permissions/requestApproval", "params": permissions });
    for (id, line) in [("0", command(0, "make")), ("1", ask.to_string())] {
        let target = format!("build-7/{}", live.asked(&line, id));
        eventually("the host", || fleet.ann.ask(&["sessions", "build-7"]).status.success().then_some(()));
        let output = fleet.ann.ask(&["respond", &target, "accept"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && told.contains("sends only a summary of the request"), "{output:?}");
    }
    live.kill();
}

#[test]
fn viewer_may_look_and_not_answer() {
    let Some(fleet) = Fleet::start("viewer_may_look_and_not_answer") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let _agent = Agent::start(&live.home);
    let id = live.asked(&command_asked("0", "t"), "0");
    let target = format!("build-7/{id}");
    pending(&fleet);
    let ben = Console(Home::new());
    fleet.nats.configures(&ben.0, "ben", "user = \"ben\"\n");
    assert!(ben.ask(&["show", &target]).status.success());
    failed(&ben.ask(&["respond", &target, "accept"]), 1, "the server refuses");
    assert_eq!(live.row(&id)["status"], "pending");
    live.kill();
}

#[test]
fn events_are_shipped_whole_and_once() {
    let Some(fleet) = Fleet::start("events_are_shipped_whole_and_once") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let agent = Agent::start(&live.home);
    for turn in 0..20 {
        live.say_plainly(&turn_started("t", &format!("u{turn}")));
        live.say_plainly(&turn_completed("t", &format!("u{turn}")));
    }
    let all = recorded(&live);
    eventually("every event", || (shipped(&fleet, "s") == all).then_some(()));
    // An agent that was killed may ship again what it has shipped; nobody sees it twice.
    agent.kill();
    for turn in 20..40 {
        live.say_plainly(&turn_started("t", &format!("u{turn}")));
    }
    let _agent = Agent::start(&live.home);
    let all = recorded(&live);
    eventually("every event after a kill", || (shipped(&fleet, "s") == all).then_some(()));
    // The rest of a relay that was killed is read from its files.
    live.say_plainly(&turn_started("t", "last"));
    let count = recorded(&live).len();
    let _home = live.kill();
    eventually("the rest", || (shipped(&fleet, "s").len() >= count).then_some(()));
}

#[test]
fn last_events_are_printed_first() {
    let Some(fleet) = Fleet::start("last_events_are_printed_first") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let _agent = Agent::start(&live.home);
    // More than a page of the stream.
    for turn in 0..150 {
        live.say_plainly(&turn_started("t", &format!("u{turn}")));
        live.say_plainly(&turn_completed("t", &format!("u{turn}")));
    }
    let all = recorded(&live);
    eventually("every event", || (shipped(&fleet, "s") == all).then_some(()));
    let numbers = |args: &[&str]| -> Vec<u64> {
        let output = fleet.ann.ask(&[&["tail", "--json"], args].concat());
        let text = String::from_utf8(output.stdout).expect("it is text");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let events = lines.filter(|line| line["event"].is_object());
        events.map(|line| line["seq"].as_u64().expect("a number")).collect()
    };
    for args in [&["-n", "3"][..], &["-n", "3", "build-7"], &["-n", "3", "--since", "1d"]] {
        assert_eq!(numbers(args), all[all.len() - 3..], "{args:?}");
    }
    assert_eq!(numbers(&["-n", "290"]), all[all.len() - 290..]);
    assert_eq!(numbers(&["-n", "10000"]), all);
    for wrong in ["0", "-1", "10001", "x"] {
        let output = fleet.ann.ask(&["tail", "-n", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {output:?}");
    }
    live.kill();
}

#[test]
fn summary_ships_no_text() {
    let Some(fleet) = Fleet::start("summary_ships_no_text") else { return };
    let mut live = Live::start_in(fleet.host(7, "summary")).initialize();
    let _agent = Agent::start(&live.home);
    live.say_plainly(r#"{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"agentMessage","id":"m","text":"SECRETWORD"}}}"#);
    let id = live.asked(&question_asked("7", false), "7");
    let all = recorded(&live);
    eventually("every event", || (shipped(&fleet, "s") == all).then_some(()));
    let events = json!(fleet.ann.messages()).to_string();
    assert!(
        events.contains("agentMessage") && !events.contains("SECRETWORD") && !events.contains("Which?"),
        "{events}"
    );
    let row = pending(&fleet);
    assert!(row["summary"] != "" && !row.to_string().contains("Which?"), "{row}");
    let asked = fleet.ann.document(&["show", &format!("build-7/{id}"), "--json"]);
    assert!(!asked.to_string().contains("Which?"), "{asked}");
    live.kill();
}

#[test]
fn host_that_is_away_is_named() {
    let Some(fleet) = Fleet::start("host_that_is_away_is_named") else { return };
    failed(&fleet.ann.ask(&["show", "build-7/latest"]), 3, "no host `build-7` was ever in this fleet");
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let agent = Agent::start(&live.home);
    let id = live.asked(&command_asked("0", "t"), "0");
    pending(&fleet);
    let hosts = fleet.ann.document(&["hosts", "--json"]);
    assert_eq!((&hosts["hosts"][0]["online"], &hosts["hosts"][0]["pending"]), (&json!(true), &json!(1)), "{hosts}");
    agent.kill();
    let target = format!("build-7/{id}");
    failed(&fleet.ann.ask(&["show", &target]), 4, "host build-7 is offline since 2");
    failed(&fleet.ann.ask(&["respond", &target, "accept"]), 4, "is offline since");
    // The answer waits, and is given once the agent is back.
    assert!(fleet.ann.ask(&["respond", &target, "decline", "--when-back"]).status.success());
    let _agent = Agent::start(&live.home);
    assert_eq!(live.at_server(), format!("{}\n", json!({ "id": 0, "result": { "decision": "decline" } })));
    let row = live.row_with(&id, "resolved_by");
    assert_eq!(row["resolved_by"], "fleet:ann@build-7");
    live.kill();
}

#[test]
fn sessions_take_messages_from_another_machine() {
    let Some(fleet) = Fleet::start("sessions_take_messages_from_another_machine") else { return };
    let live = Live::start_in(fleet.host(7, "full")).initialize();
    let _agent = Agent::start(&live.home);
    let sessions = eventually("the session", || {
        let document = fleet.ann.document(&["sessions", "--json"]);
        document["sessions"].as_array().filter(|rows| !rows.is_empty()).cloned()
    });
    assert_eq!((&sessions[0]["host"], &sessions[0]["session_id"]), (&json!("build-7"), &json!("s")));
    let local = told(&live.tool(&["sessions", "--json"]));
    let names = |row: &Value| row.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let shipped: Vec<String> = names(&sessions[0]).into_iter().filter(|name| name != "host").collect();
    // The titles of threads are words of a user.
    let may_leave: Vec<String> = names(&local["sessions"][0]).into_iter().filter(|name| name != "threads").collect();
    assert_eq!(shipped, may_leave);
    failed(&fleet.ann.ask(&["send", "build-7/s", "go on"]), 1, "no turn has run in this session yet");
    failed(&fleet.ann.ask(&["interrupt", "build-7/other"]), 3, "has no session `other`");
    let used = fleet.ann.document(&["usage", "--json"]);
    assert_eq!(used["by"], "host");
    live.kill();
}

#[test]
fn message_joins_a_turn_on_another_machine() {
    let Some(fleet) = Fleet::start("message_joins_a_turn_on_another_machine") else { return };
    let mut live = Live::start_in(fleet.host(7, "summary")).in_turn();
    let _agent = Agent::start(&live.home);
    eventually("the session", || {
        let document = fleet.ann.document(&["sessions", "--json"]);
        document["sessions"].as_array().is_some_and(|rows| !rows.is_empty()).then_some(())
    });
    let mut command = fleet.ann.0.shim(&["fleet", "send", "build-7/s", "and the tests", "--json"]);
    let sending = command.stdin(Stdio::null()).spawn().expect("the tool runs");
    let call: Value = serde_json::from_str(&live.at_server()).expect("JSON");
    assert_eq!(call["params"]["input"][0]["text"], "and the tests");
    live.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": "u1" } } }).to_string());
    let turn = told(&sending.wait_with_output().expect("the tool ends"));
    assert_eq!(turn, json!({ "host": "build-7", "turn_id": "u1", "thread_id": "t", "steered": true }));
    live.kill();
}

/// The number of attempts to ship events that an agent has sent over a link.
fn attempts(link: &Link) -> usize {
    String::from_utf8_lossy(&link.sent()).matches("PUB cshim.ev.").count()
}

/// A stream of events that is full, and a request meanwhile.
#[test]
fn full_stream_delays_no_request() {
    let Some(fleet) = Fleet::start("full_stream_delays_no_request") else { return };
    let link = Link::to(fleet.nats.server.port);
    let mut live = Live::start_in(fleet.host_behind(link.port, "full")).initialize();
    let agent = Agent::start(&live.home);
    let admin = fleet.nats.admin();
    let mut config = admin.api("STREAM.INFO.CSHIM_EV", &json!({}))["config"].clone();
    config["max_msgs"] = json!(1);
    config["discard"] = json!("new");
    let updated = admin.api("STREAM.UPDATE.CSHIM_EV", &config);
    assert!(updated["error"].is_null(), "{updated}");
    live.say_plainly(&turn_started("t", "u"));
    agent.says("events are not shipped now");
    let before = attempts(&link);
    eventually("several attempts", || (attempts(&link) >= before + 6).then_some(()));
    // The pauses between attempts are long by now: a request comes without waiting for the next one.
    let mut has_come_between = false;
    for number in 0..5 {
        let id = live.asked(&command_asked(&number.to_string(), "t"), &number.to_string());
        let before = attempts(&link);
        eventually("the request", || {
            let document = fleet.ann.document(&["requests", "--json"]);
            document["requests"].as_array()?.iter().any(|row| row["request_id"] == id.as_str()).then_some(())
        });
        has_come_between |= attempts(&link) == before;
    }
    assert!(has_come_between, "each request has waited for an attempt to ship");
    // It was told once, and that it is over once.
    let said = agent.said();
    assert_eq!(said.matches("events are not shipped now").count(), 1, "{said}");
    config["max_msgs"] = json!(-1);
    config["discard"] = json!("old");
    admin.api("STREAM.UPDATE.CSHIM_EV", &config);
    agent.says("events are shipped again");
    let all = recorded(&live);
    eventually("every event", || (shipped(&fleet, "s") == all).then_some(()));
    live.kill();
}

#[test]
fn failed_list_of_sessions_forgets_no_cursor() {
    let Some(fleet) = Fleet::start("failed_list_of_sessions_forgets_no_cursor") else { return };
    let home = fleet.host(7, "full");
    let agent = Agent::start(&home);
    let stopped = Session::start(&home, "stopped");
    fleet.ann.has_all_of("build-7", &[&stopped]);
    let (epoch, before) = stopped.recorded();
    stopped.end();
    // Its end is an event too.
    let expect = eventually("the end of the session", || {
        let numbers = fleet.ann.numbers()?.remove(&("build-7".to_owned(), "stopped".to_owned(), epoch.clone()))?;
        (numbers.len() > before.len()).then(|| (epoch.clone(), numbers))
    });
    let mut live = Session::start(&home, "live");
    fleet.ann.has_all_of("build-7", &[&live]);
    let cursors = || {
        let text = std::fs::read_to_string(home.path().join("fleet/cursors.json")).expect("a file");
        serde_json::from_str::<Value>(&text).expect("JSON")["sessions"].clone()
    };
    eventually("both cursors", || (cursors()["stopped"].is_object() && cursors()["live"].is_object()).then_some(()));
    let (own, away) = (home.path().join("sessions"), home.path().join("away"));
    // Once the folder is another thing, and once it is not there.
    std::fs::rename(&own, &away).expect("it is ours");
    std::fs::write(&own, "no folder").expect("a file");
    agent.says("the sessions of this host cannot be listed");
    failed(&fleet.ann.ask(&["sessions", "build-7"]), 1, "");
    std::fs::remove_file(&own).expect("it is ours");
    agent.says("the sessions of this host can be listed again");
    eventually("a list without sessions", || {
        (fleet.ann.document(&["hosts", "--json"])["hosts"][0]["sessions"] == 0).then_some(())
    });
    std::fs::rename(&away, &own).expect("it is ours");
    live.passes(20);
    fleet.ann.has_all_of("build-7", &[&live]);
    eventually("both cursors", || (cursors()["stopped"].is_object() && cursors()["live"].is_object()).then_some(()));
    // After a restart too, nothing comes twice or as a gap.
    agent.kill();
    let _agent = Agent::start(&home);
    live.passes(20);
    fleet.ann.has_all_of("build-7", &[&live]);
    stream_has(&fleet.nats.admin(), "build-7", &[("stopped", &expect), ("live", &live.recorded())]);
    live.end();
}

#[test]
fn session_of_a_hub_is_shipped_and_answered() {
    let Some(fleet) = Fleet::start("session_of_a_hub_is_shipped_and_answered") else { return };
    let hub = Hub::at(fleet.host(7, "full"));
    let _agent = Agent::start(&hub.home);
    let mut client = hub.client("first");
    resume(&mut client);
    let mut server = hub.server();
    let id = ask(&mut server);
    client.wait_for("the approval", is_asked);
    let row = pending(&fleet);
    assert_eq!((&row["host"], &row["session_id"]), (&json!("build-7"), &json!("h")));
    let name = row["name"].as_str().expect("a name");
    let done = fleet.ann.document(&["respond", name, "accept", "--json"]);
    assert_eq!((&done["ok"], &done["idempotent"]), (&json!(true), &json!(false)));
    client.wait_for("the end", is_resolved);
    assert_eq!(answers_at(&mut server, &id).len(), 1);
    assert_eq!(hub.row("resolved")["resolved_by"], "fleet:ann@build-7");
    let numbers = |page: &Value| -> Vec<u64> {
        page["events"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|event| event["seq"].as_u64().expect("a number"))
            .collect()
    };
    eventually("every event", || {
        let all = numbers(&hub.get("/sessions/self/codex-events?since_seq=0&limit=500"));
        (!all.is_empty() && shipped(&fleet, "h") == all).then_some(())
    });
}
