//! Decisions that wait for a host that is away: which can wait, and what became of them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::support::both_ends::{Live, failed};
use super::support::eventually;
use super::support::fleet::{Agent, Fleet, set_up};
use super::support::hub::{Hub, answers_at, ask, is_asked, resume};
use super::support::requests::{command_asked, question_asked};
use super::support::shim::Home;
use super::support::stop::stop;
use super::support::websocket::{Client, FakeServer};

/// The description of the host.
fn described(fleet: &Fleet) -> Value {
    fleet.ann.document(&["hosts", "--json"])["hosts"][0].clone()
}

/// What a description says of the decisions on a request.
fn outcomes(host: &Value, id: &str) -> Vec<String> {
    let all = host["waited"].as_array().into_iter().flatten().filter(|waited| waited["request"] == id);
    all.map(|waited| {
        assert_eq!(waited["user"], "ann");
        waited["outcome"].as_str().expect("a text").to_owned()
    })
    .collect()
}

/// What the host says of the first decision on a request.
fn outcome(fleet: &Fleet, id: &str) -> Option<String> {
    outcomes(&described(fleet), id).into_iter().next()
}

/// Waits until the host says that it cannot give a decision yet.
fn waits(fleet: &Fleet, id: &str) {
    assert_eq!(eventually("a word of the host", || outcome(fleet, id)), "waits");
}

/// Waits until a decision is settled, and returns what became of it.
fn became(fleet: &Fleet, id: &str) -> String {
    eventually("the outcome", || outcome(fleet, id).filter(|outcome| outcome != "waits"))
}

/// The decisions that the agent of a home holds, by its file.
fn held(home: &Home) -> Vec<Value> {
    let cursors = fs::read_to_string(home.path().join("fleet/cursors.json")).expect("a file");
    let cursors: Value = serde_json::from_str(&cursors).expect("JSON");
    cursors["held"].as_array().cloned().unwrap_or_default()
}

fn pid(live: &Live) -> Pid {
    Pid::from_raw(i32::try_from(live.relay.id()).expect("an id")).expect("an id")
}

/// Waits until so many requests of the fleet are pending.
fn pending(fleet: &Fleet, count: usize) {
    eventually("the requests", || {
        let document = fleet.ann.document(&["requests", "--json"]);
        (document["requests"].as_array().map(Vec::len) == Some(count)).then_some(())
    });
}

/// What `fleet show` prints of a request.
fn shown(fleet: &Fleet, id: &str) -> String {
    String::from_utf8(fleet.ann.ask(&["show", &format!("build-7/{id}")]).stdout).expect("it is text")
}

fn leaves(fleet: &Fleet, id: &str, word: &str) {
    let left = fleet.ann.ask(&["respond", &format!("build-7/{id}"), word, "--when-back"]);
    assert!(left.status.success(), "{left:?}");
    assert!(String::from_utf8_lossy(&left.stderr).contains("then says what became of it"), "{left:?}");
}

#[test]
fn only_decisions_wait_for_a_host() {
    let Some(fleet) = Fleet::start("only_decisions_wait_for_a_host") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let agent = Agent::start(&live.home);
    let id = live.asked(&question_asked("0", false), "0");
    eventually("the request", || {
        let document = fleet.ann.document(&["requests", "--json"]);
        document["requests"].as_array().is_some_and(|rows| !rows.is_empty()).then_some(())
    });
    agent.kill();
    let target = format!("build-7/{id}");
    for answer in [&["--answer", "color=Red"][..], &["--json", r#"{"answers":{}}"#]] {
        let args = [&["respond", &target], answer, &["--when-back"]].concat();
        failed(&fleet.ann.ask(&args), 2, "only a decision can wait for a host");
    }
    // Something else in the stream, by other means, is not taken for one.
    let question = json!({ "v": 1, "ask": "send", "session": "s", "text": "t" });
    let other = json!({ "v": 1, "request": id, "given": { "answers": [["color", "Red"]] }, "expires_at": "2999-01-02T03:04:05Z" });
    for wrong in [question, other] {
        let stored = fleet
            .nats
            .admin()
            .with(async |client| client.request("cshim.later.build-7.ann", wrong.to_string().into()).await.ok());
        assert!(stored.is_some());
    }
    let agent = Agent::start(&live.home);
    eventually("both are refused", || {
        (agent.said().matches("it is not a decision on a request").count() == 2).then_some(())
    });
    assert_eq!(live.row(&id)["status"], "pending");
    live.nothing_at_server();
    live.kill();
}

#[test]
fn short_name_means_a_request_that_was_pending() {
    let Some(fleet) = Fleet::start("short_name_means_a_request_that_was_pending") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let agent = Agent::start(&live.home);
    let [first, second] = ["0", "1"].map(|id| live.asked(&command_asked(id, "t"), id));
    pending(&fleet, 2);
    let rows = fleet.ann.document(&["requests", "--json"])["requests"].clone();
    let name = |id: &str| {
        let row = rows.as_array().expect("a list").iter().find(|row| row["request_id"] == id).expect("it is listed");
        row["name"].as_str().expect("a name").to_owned()
    };
    agent.kill();
    let leave = |target: &str| fleet.ann.ask(&["respond", target, "accept", "--when-back"]);
    failed(&leave("build-7/ffff-0"), 3, &format!("there were {first}, {second}"));
    failed(&leave(&name(&first).replace('/', "/other/")), 3, "had no pending request");
    let left = leave(&name(&first));
    assert!(left.status.success(), "{left:?}");
    // What became of it is named by the whole id.
    assert!(String::from_utf8_lossy(&left.stderr).contains(&format!("fleet show build-7/{first}`")), "{left:?}");
    assert!(leave(&name(&second).replace('/', "/s/")).status.success());
    let _agent = Agent::start(&live.home);
    assert_eq!((became(&fleet, &first), became(&fleet, &second)), ("given".to_owned(), "given".to_owned()));
    live.kill();
}

#[test]
fn giver_learns_what_became_of_a_decision() {
    let Some(fleet) = Fleet::start("giver_learns_what_became_of_a_decision") else { return };
    let mut live = Live::start_in(fleet.host(7, "summary")).initialize();
    let agent = Agent::start(&live.home);
    let [given, overtaken, orphaned] = ["0", "1", "2"].map(|id| live.asked(&command_asked(id, "t"), id));
    eventually("the requests", || {
        let document = fleet.ann.document(&["requests", "--json"]);
        (document["requests"].as_array().map(Vec::len) == Some(3)).then_some(())
    });
    agent.kill();
    leaves(&fleet, &given, "accept");
    leaves(&fleet, &overtaken, "accept");
    assert!(live.tool(&["respond", &overtaken, "decline"]).status.success());
    let agent = Agent::start(&live.home);
    assert_eq!(became(&fleet, &given), "given");
    assert_eq!(became(&fleet, &overtaken), "answered_before");
    assert!(shown(&fleet, &overtaken).contains("not given: another answer holds"), "{}", shown(&fleet, &overtaken));
    assert_eq!(live.row_with(&given, "resolved_by")["resolved_by"], "fleet:ann@build-7");
    assert_eq!(live.row(&overtaken)["resolved_payload"]["decision"], "decline");
    // The relay ends, and with it the server that has asked.
    agent.kill();
    leaves(&fleet, &orphaned, "accept");
    let home = live.kill();
    let _agent = Agent::start(&home);
    assert_eq!(became(&fleet, &orphaned), "orphaned");
    assert!(shown(&fleet, &orphaned).contains("not given: the request was orphaned"), "{}", shown(&fleet, &orphaned));
    failed(&fleet.ann.ask(&["respond", &format!("build-7/{orphaned}"), "accept"]), 1, "the request is orphaned");
}

#[test]
fn decision_in_a_new_stream_is_given() {
    let Some(fleet) = Fleet::start("decision_in_a_new_stream_is_given") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let agent = Agent::start(&live.home);
    let [first, second] = ["0", "1"].map(|id| live.asked(&command_asked(id, "t"), id));
    eventually("the requests", || {
        let document = fleet.ann.document(&["requests", "--json"]);
        (document["requests"].as_array().map(Vec::len) == Some(2)).then_some(())
    });
    agent.kill();
    leaves(&fleet, &first, "accept");
    let agent = Agent::start(&live.home);
    assert_eq!(became(&fleet, &first), "given");
    eventually("the cursor on disk", || {
        let cursors = fs::read_to_string(live.home.path().join("fleet/cursors.json")).ok()?;
        let cursors: serde_json::Value = serde_json::from_str(&cursors).ok()?;
        (cursors["later"]["number"] == 1).then_some(())
    });
    agent.kill();
    assert_eq!(fleet.nats.admin().api("STREAM.DELETE.CSHIM_LATER", &json!({}))["success"], true);
    let admin = super::support::fleet::Console(super::support::shim::Home::new());
    fleet.nats.configures(&admin.0, "admin", "user = \"admin\"\n");
    set_up(&admin, "1");
    // Its number is that of the first one.
    leaves(&fleet, &second, "decline");
    let _agent = Agent::start(&live.home);
    assert_eq!(became(&fleet, &second), "given");
    assert_eq!(live.row_with(&second, "resolved_by")["resolved_payload"]["decision"], "decline");
    live.kill();
}

#[test]
fn decision_waits_for_a_relay_that_does_not_reply() {
    let Some(fleet) = Fleet::start("decision_waits_for_a_relay_that_does_not_reply") else { return };
    let mut gone = Live::start_in_session(fleet.host(7, "full"), "gone").initialize();
    let orphaned = gone.asked(&command_asked("0", "t"), "0");
    let mut live = Live::start_in(gone.kill()).initialize();
    let id = live.asked(&command_asked("1", "t"), "1");
    let agent = Agent::start(&live.home);
    pending(&fleet, 1);
    agent.kill();
    for (request, word) in [(&id, "accept"), (&id, "decline"), (&id, "cancel"), (&id, "decline"), (&id, "accept")] {
        leaves(&fleet, request, word);
    }
    leaves(&fleet, &orphaned, "accept");
    stop(pid(&live));
    let agent = Agent::start(&live.home);
    // The fifth one for a request is not held.
    eventually("both words of the host", || (outcomes(&described(&fleet), &id) == ["too_many", "waits"]).then_some(()));
    let words = shown(&fleet, &id);
    assert!(words.contains("could not be given yet") && words.contains("too many decisions"), "{words}");
    agent.says("was not given: 4 decisions on this request wait already");
    // The relay that does not reply delays no decision on a request of another session.
    assert_eq!(became(&fleet, &orphaned), "orphaned");
    // A killed agent loses no decision, and the order stays the same.
    let before = described(&fleet)["agent"].clone();
    agent.kill();
    let numbers = held(&live.home).iter().map(|held| held["number"].as_u64().expect("a number")).collect::<Vec<_>>();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let agent = Agent::start(&live.home);
    // The description of the killed agent is still in the server.
    let host = eventually("a description of the new agent", || {
        Some(described(&fleet)).filter(|host| host["agent"].is_string() && host["agent"] != before)
    });
    assert_eq!(outcomes(&host, &id), ["too_many", "waits"]);
    kill_process(pid(&live), Signal::CONT).expect("it runs");
    assert_eq!(live.at_server(), format!("{}\n", json!({ "id": 1, "result": { "decision": "accept" } })));
    assert_eq!(live.row_with(&id, "resolved_by")["resolved_by"], "fleet:ann@build-7");
    // The first one counts, and the others learn that.
    let expect = ["too_many", "given", "answered_before", "answered_before", "answered_before"];
    eventually("all outcomes", || (outcomes(&described(&fleet), &id) == expect).then_some(()));
    eventually("nothing is held", || held(&live.home).is_empty().then_some(()));
    agent.kill();
    let agent = Agent::start(&live.home);
    agent.says("connected");
    pending(&fleet, 0);
    live.nothing_at_server();
    live.kill();
}

#[test]
fn decision_that_expires_or_is_withdrawn_is_not_given() {
    let Some(fleet) = Fleet::start("decision_that_expires_or_is_withdrawn_is_not_given") else { return };
    let mut live = Live::start_in(fleet.host(7, "summary")).initialize();
    let [late, withdrawn] = ["0", "1"].map(|id| live.asked(&command_asked(id, "t"), id));
    let agent = Agent::start(&live.home);
    pending(&fleet, 2);
    agent.kill();
    stop(pid(&live));
    leaves(&fleet, &withdrawn, "accept");
    let target = format!("build-7/{late}");
    let left = fleet.ann.ask(&["respond", &target, "accept", "--when-back", "--valid-for", "8s"]);
    assert!(left.status.success(), "{left:?}");
    let _agent = Agent::start(&live.home);
    assert_eq!(became(&fleet, &late), "too_late");
    waits(&fleet, &withdrawn);
    assert_eq!(fleet.nats.admin().api("STREAM.PURGE.CSHIM_LATER", &json!({}))["success"], true);
    assert_eq!(became(&fleet, &withdrawn), "withdrawn");
    kill_process(pid(&live), Signal::CONT).expect("it runs");
    eventually("the host", || fleet.ann.ask(&["show", &target]).status.success().then_some(()));
    for id in [&late, &withdrawn] {
        assert_eq!(live.row(id)["status"], "pending");
    }
    live.nothing_at_server();
    live.kill();
}

/// A request of a hub that is pending in the fleet when the agent of its host is killed: its client, its server, the id of the server, and that of the ledger.
fn leaves_a_request(fleet: &Fleet, hub: &Hub) -> (Client, FakeServer, Value, String) {
    let agent = Agent::start(&hub.home);
    let mut client = hub.client("first");
    resume(&mut client);
    let mut server = hub.server();
    let asked = ask(&mut server);
    client.wait_for("the approval", is_asked);
    pending(fleet, 1);
    let id = hub.row("pending")["request_id"].as_str().expect("an id").to_owned();
    agent.kill();
    (client, server, asked, id)
}

#[test]
fn decision_waits_for_a_hub_that_is_away() {
    let Some(fleet) = Fleet::start("decision_waits_for_a_hub_that_is_away") else { return };
    let mut hub = Hub::at(fleet.host(7, "full"));
    let (_client, _server, asked, id) = leaves_a_request(&fleet, &hub);
    hub.kill();
    leaves(&fleet, &id, "accept");
    let _agent = Agent::start(&hub.home);
    // Its server runs on, and the request with it.
    waits(&fleet, &id);
    hub.start();
    let mut client = hub.client("second");
    resume(&mut client);
    assert_eq!(became(&fleet, &id), "given");
    let mut server = hub.server();
    eventually("the answer", || (!answers_at(&mut server, &asked).is_empty()).then_some(()));
    // A second answer would reach the server before this.
    client.request("marker", json!({}));
    server.wait_for("marker");
    assert_eq!(answers_at(&mut server, &asked).len(), 1);
}

/// A hub that has just started takes no answer to a request of its earlier run until the server has sent it again.
#[test]
fn decision_waits_until_a_hub_has_the_request() {
    let Some(fleet) = Fleet::start("decision_waits_until_a_hub_has_the_request") else { return };
    let mut hub = Hub::at(fleet.host(7, "full"));
    let (_client, mut server, asked, id) = leaves_a_request(&fleet, &hub);
    server.refuse(Some(503));
    hub.kill();
    leaves(&fleet, &id, "accept");
    hub.start();
    let agent = Agent::start(&hub.home);
    waits(&fleet, &id);
    agent.says("its session takes no answer to it yet");
    server.refuse(None);
    assert_eq!(became(&fleet, &id), "given");
    eventually("the answer", || (!answers_at(&mut server, &asked).is_empty()).then_some(()));
    assert_eq!(answers_at(&mut server, &asked).len(), 1);
}

/// Decisions whose ids are as long as a message admits leave the host its description.
#[test]
fn long_ids_do_not_fill_the_description() {
    let Some(fleet) = Fleet::start("long_ids_do_not_fill_the_description") else { return };
    let home = fleet.host(7, "full");
    let admin = fleet.nats.admin();
    for number in 0..20 {
        let request = format!("6b02d1a90c4e-{number:060000}");
        let later =
            json!({ "v": 1, "request": request, "given": { "word": "accept" }, "expires_at": "2999-01-02T03:04:05Z" });
        let stored =
            admin.with(async |client| client.request("cshim.later.build-7.ann", later.to_string().into()).await.ok());
        assert!(stored.is_some());
    }
    let agent = Agent::start(&home);
    let host = eventually("their outcomes", || {
        let host = described(&fleet);
        (host["waited"].as_array().map(Vec::len) == Some(20)).then_some(host)
    });
    for waited in host["waited"].as_array().expect("a list") {
        assert!(waited["request"].as_str().is_some_and(|id| id.len() < 300), "{waited}");
        assert_eq!(waited["outcome"], "invalid_question");
    }
    assert!(!agent.said().contains("is not described"), "{}", agent.said());
}

#[test]
fn full_stream_drops_no_decision_that_waits() {
    let Some(fleet) = Fleet::start("full_stream_drops_no_decision_that_waits") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let [first, second] = ["0", "1"].map(|id| live.asked(&command_asked(id, "t"), id));
    let agent = Agent::start(&live.home);
    pending(&fleet, 2);
    agent.kill();
    let admin = fleet.nats.admin();
    let config = admin.api("STREAM.INFO.CSHIM_LATER", &json!({}))["config"].clone();
    assert_eq!((&config["discard"], &config["discard_new_per_subject"]), (&json!("new"), &json!(true)));
    let mut small = config.clone();
    small["max_msgs_per_subject"] = json!(1);
    assert!(admin.api("STREAM.UPDATE.CSHIM_LATER", &small)["error"].is_null());
    leaves(&fleet, &first, "accept");
    let refused = fleet.ann.ask(&["respond", &format!("build-7/{second}"), "accept", "--when-back"]);
    failed(&refused, 1, "the stream CSHIM_LATER is full");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("nothing was left") && said.contains("host build-7"), "{said}");
    let _agent = Agent::start(&live.home);
    assert_eq!(became(&fleet, &first), "given");
    assert_eq!(live.row(&second)["status"], "pending");
    live.kill();
}

/// The stream as an earlier version has set it up.
#[test]
fn stream_of_an_earlier_version_is_used_and_updated() {
    let Some(fleet) = Fleet::start("stream_of_an_earlier_version_is_used_and_updated") else { return };
    let admin = fleet.nats.admin();
    let config = || admin.api("STREAM.INFO.CSHIM_LATER", &json!({}))["config"].clone();
    let mut old = config();
    old["discard"] = json!("old");
    old["discard_new_per_subject"] = json!(false);
    assert!(admin.api("STREAM.UPDATE.CSHIM_LATER", &old)["error"].is_null());
    assert_eq!(config()["discard"], "old");
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let id = live.asked(&command_asked("0", "t"), "0");
    let agent = Agent::start(&live.home);
    pending(&fleet, 1);
    agent.kill();
    leaves(&fleet, &id, "accept");
    let administrator = super::support::fleet::Console(Home::new());
    fleet.nats.configures(&administrator.0, "admin", "user = \"admin\"\n");
    let checked = administrator.ask(&["check"]);
    let table = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(!checked.status.success() && table.contains("use --set-up"), "{table}");
    set_up(&administrator, "1");
    assert_eq!((&config()["discard"], &config()["discard_new_per_subject"]), (&json!("new"), &json!(true)));
    assert!(administrator.ask(&["check"]).status.success());
    // What has waited is still there.
    let _agent = Agent::start(&live.home);
    assert_eq!(became(&fleet, &id), "given");
    live.kill();
}
