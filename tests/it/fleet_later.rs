//! Decisions that wait for a host that is away: which can wait, and what became of them.

use std::fs;

use serde_json::json;

use super::support::both_ends::{Live, failed};
use super::support::eventually;
use super::support::fleet::{Agent, Fleet, set_up};
use super::support::requests::{command_asked, question_asked};

/// Waits until the host has taken a decision on a request, and returns what became of it.
fn became(fleet: &Fleet, id: &str) -> String {
    eventually("the outcome", || {
        let host = fleet.ann.document(&["hosts", "--json"])["hosts"][0].clone();
        let waited = host["waited"].as_array()?.iter().find(|waited| waited["request"] == id)?.clone();
        assert_eq!(waited["user"], "ann");
        waited["outcome"].as_str().map(str::to_owned)
    })
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
