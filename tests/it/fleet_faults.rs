//! Faults of a fleet: killed servers, agents and relays, cut links, restored homes, a lost node, and races for one request. At the
//! end the server has each event once, and each request has one answer.

use std::fs;

use async_nats::{Client, ConnectOptions};
use serde_json::{Value, json};

use super::support::both_ends::{Live, next};
use super::support::fleet::{Agent, Fleet, Session, cluster, copy, of_host, stream_has};
use super::support::nats::Link;
use super::support::requests::command_asked;
use super::support::shim::Home;
use super::support::{PATIENCE, eventually};

/// Requests for which two consoles race.
const RACES: usize = 300;

#[test]
fn two_hosts_are_shipped_and_listed() {
    let Some(fleet) = Fleet::start("two_hosts_are_shipped_and_listed") else { return };
    let homes = [7, 8].map(|number| (number, fleet.host(number, "full")));
    let mut sessions: Vec<(u8, Session)> =
        homes.iter().flat_map(|(number, home)| ["s", "t"].map(|name| (*number, Session::start(home, name)))).collect();
    let _agents = homes.each_ref().map(|(_, home)| Agent::start(home));
    for (_, session) in &mut sessions {
        session.passes(30);
    }
    for number in [7, 8] {
        let of_host: Vec<&Session> =
            sessions.iter().filter(|(host, _)| *host == number).map(|(_, session)| session).collect();
        fleet.ann.has_all_of(&format!("build-{number}"), &of_host);
    }
    let listed = fleet.ann.document(&["sessions", "--json"]);
    let mut names: Vec<String> = listed["sessions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| format!("{}/{}", row["host"].as_str().expect("a host"), row["session_id"].as_str().expect("an id")))
        .collect();
    names.sort();
    assert_eq!(names, ["build-7/s", "build-7/t", "build-8/s", "build-8/t"]);
    sessions.into_iter().for_each(|(_, session)| session.end());
}

/// A question of ann, from a connection of its own.
async fn responds(client: Client, request: String, word: &'static str) -> Value {
    let question = json!({ "ask": "respond", "v": 1, "request": request, "given": { "word": word } });
    let subject = "cshim.req.build-7.write.ann";
    loop {
        let reply = client.request(subject, question.to_string().into()).await.expect("the host replies");
        let reply: Value = serde_json::from_slice(&reply.payload).expect("JSON");
        // A relay on a busy machine may take longer than a host waits. The same answer may be given again.
        if !["timeout", "session_silent"].iter().any(|code| reply["error"]["code"] == *code) {
            return reply;
        }
    }
}

#[test]
fn one_console_wins_each_race() {
    let Some(fleet) = Fleet::start("one_console_wins_each_race") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let _agent = Agent::start(&live.home);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let seed = fs::read_to_string(fleet.nats.seed("ann")).expect("a file").trim().to_owned();
    let connect = || {
        let options = ConnectOptions::with_nkey(seed.clone()).custom_inbox_prefix("_INBOX.ann");
        runtime.block_on(options.request_timeout(Some(PATIENCE)).connect(fleet.nats.url())).expect("it connects")
    };
    let consoles = [connect(), connect()];
    eventually("the host", || fleet.ann.ask(&["sessions", "build-7"]).status.success().then_some(()));
    let mut won = [0, 0];
    for race in 0..RACES {
        let id = live.asked(&command_asked(&race.to_string(), "t"), &race.to_string());
        // Each begins first in every other race.
        let words = if race % 2 == 0 { ["accept", "cancel"] } else { ["cancel", "accept"] };
        let [one, other] = &consoles;
        let replies = runtime.block_on(async {
            tokio::join!(responds(one.clone(), id.clone(), words[0]), responds(other.clone(), id.clone(), words[1]))
        });
        let replies = [replies.0, replies.1];
        let winners: Vec<usize> = (0..2).filter(|index| replies[*index]["document"]["ok"] == true).collect();
        assert_eq!(winners.len(), 1, "{replies:?}");
        let word = words[winners[0]];
        won[winners[0]] += 1;
        for reply in &replies {
            assert_eq!(reply["document"]["request"]["resolved_payload"]["decision"], word, "{reply}");
        }
        // The server gets this answer, and no other one before the next request.
        assert_eq!(live.at_server(), format!("{}\n", json!({ "id": race, "result": { "decision": word } })));
    }
    live.nothing_at_server();
    assert_eq!(won.iter().sum::<usize>(), RACES);
    live.kill();
}

#[test]
fn killed_server_loses_no_event() {
    let Some(mut fleet) = Fleet::start("killed_server_loses_no_event") else { return };
    let home = fleet.host(7, "full");
    let mut session = Session::start(&home, "s");
    let _agent = Agent::start(&home);
    session.passes(50);
    fleet.ann.has_all_of("build-7", &[&session]);
    for _ in 0..3 {
        session.passes(20);
        fleet.nats.server.kill();
        session.passes(300);
        fleet.nats.server.start_again();
        session.passes(20);
    }
    fleet.ann.has_all_of("build-7", &[&session]);
    stream_has(&fleet.nats.admin(), "build-7", &[("s", &session.recorded())]);
    eventually("the host", || (fleet.ann.document(&["hosts", "--json"])["hosts"][0]["online"] == true).then_some(()));
    session.end();
}

#[test]
fn killed_agents_and_relays_lose_no_event() {
    let Some(fleet) = Fleet::start("killed_agents_and_relays_lose_no_event") else { return };
    let home = fleet.host(7, "full");
    let mut agent = Agent::start(&home);
    for round in 0..4 {
        let mut session = Session::start(&home, "s");
        session.passes(40);
        agent.kill();
        session.passes(100);
        agent = Agent::start(&home);
        session.passes(40);
        if round % 2 == 0 {
            session.kill();
        } else {
            session.end();
        }
    }
    let session = Session::start(&home, "s");
    fleet.ann.has_all_of("build-7", &[&session]);
    stream_has(&fleet.nats.admin(), "build-7", &[("s", &session.recorded())]);
    session.end();
}

#[test]
fn cut_link_loses_no_event() {
    let Some(fleet) = Fleet::start("cut_link_loses_no_event") else { return };
    let link = Link::to(fleet.nats.server.port);
    let home = fleet.host_behind(link.port, "full");
    let mut session = Session::start(&home, "s");
    let _agent = Agent::start(&home);
    session.passes(50);
    fleet.ann.has_all_of("build-7", &[&session]);
    link.cut();
    session.passes(600);
    // The agent tries, and the pauses grow.
    eventually("attempts", || (link.refused() >= 4).then_some(()));
    link.mend();
    session.passes(10);
    fleet.ann.has_all_of("build-7", &[&session]);
    stream_has(&fleet.nats.admin(), "build-7", &[("s", &session.recorded())]);
    session.end();
}

/// A link that passes nothing and tells nobody: the client has to notice it by the answers to its pings that do not come, and each new
/// connection is silent too. This takes a minute or more.
#[test]
fn silent_link_loses_no_event() {
    let Some(fleet) = Fleet::start("silent_link_loses_no_event") else { return };
    let link = Link::to(fleet.nats.server.port);
    let home = fleet.host_behind(link.port, "full");
    let mut session = Session::start(&home, "s");
    let agent = Agent::start(&home);
    session.passes(50);
    fleet.ann.has_all_of("build-7", &[&session]);
    let before = link.accepted();
    link.stall();
    session.passes(600);
    agent.says("the connection to the server is lost");
    eventually("attempts over silent connections", || (link.accepted() >= before + 2).then_some(()));
    agent.says("the server is not reached");
    eventually("further attempts", || (link.accepted() >= before + 5).then_some(()));
    session.passes(10);
    // What was on its way comes late.
    link.mend();
    session.passes(10);
    fleet.ann.has_all_of("build-7", &[&session]);
    stream_has(&fleet.nats.admin(), "build-7", &[("s", &session.recorded())]);
    assert_eq!(agent.said().matches("the connection to the server is lost").count(), 1, "{}", agent.said());
    session.end();
}

#[test]
fn restored_host_ships_a_new_epoch() {
    let Some(fleet) = Fleet::start("restored_host_ships_a_new_epoch") else { return };
    let home = fleet.host(7, "full");
    let run = |count: usize| {
        let mut session = Session::start(&home, "s");
        let agent = Agent::start(&home);
        session.passes(count);
        fleet.ann.has_all_of("build-7", &[&session]);
        let recorded = session.recorded();
        agent.kill();
        session.end();
        recorded
    };
    run(30);
    let backup = home.beside().join("copy");
    copy(&home.path(), &backup);
    let before = run(50);
    fs::remove_dir_all(home.path()).expect("it goes");
    copy(&backup, &home.path());
    let after = run(20);
    assert_ne!(before.0, after.0);
    stream_has(&fleet.nats.admin(), "build-7", &[("s", &before), ("s", &after)]);
    let ((first, _), (second, _)) = (before, after);
    // Both are there, with the gap between them.
    let messages = fleet.ann.messages().expect("the server is there");
    let gaps: Vec<&Value> =
        messages.iter().filter(|message| message["epoch"] == second && message["gap"].is_object()).collect();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!((&gaps[0]["gap"]["reason"], &gaps[0]["gap"]["after_epoch"]), (&json!("new_epoch"), &json!(first)));
}

#[test]
fn cluster_without_a_node_loses_nothing() {
    let Some((mut cluster, ann)) = cluster("cluster_without_a_node_loses_nothing") else { return };
    let home = Home::new();
    cluster.configures(&home, "build_7", &of_host(7, "full"));
    let mut live = Live::start_in(home).initialize();
    let home = &live.home;
    let mut session = Session::start(home, "x");
    let _agent = Agent::start(home);
    session.passes(50);
    ann.has_all_of("build-7", &[&session]);
    for node in 0..3 {
        cluster.nodes[node].kill();
        session.passes(200);
        let race = node.to_string();
        let id = live.asked(&command_asked(&race, "t"), &race);
        let target = format!("build-7/{id}");
        eventually("an answer", || ann.ask(&["respond", &target, "accept"]).status.success().then_some(()));
        let answer = next(&live.server, "the answer");
        assert_eq!(answer, format!("{}\n", json!({ "id": node, "result": { "decision": "accept" } })));
        ann.has_all_of("build-7", &[&session]);
        cluster.nodes[node].start_again();
        cluster.waits_for_copies();
    }
    stream_has(&cluster.admin(), "build-7", &[("x", &session.recorded())]);
    live.nothing_at_server();
    session.end();
    live.kill();
}
