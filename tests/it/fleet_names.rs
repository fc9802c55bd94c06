//! Who speaks as which host: two agents with one name, and a host that names another.

use async_nats::ConnectOptions;
use serde_json::{Value, json};

use super::support::fleet::{Agent, Fleet, Session, of_host, stream_has};
use super::support::{PATIENCE, eventually};

/// Names of the sessions in the stream.
fn shipped(fleet: &Fleet) -> Vec<String> {
    let numbers = fleet.ann.numbers().expect("the server is there");
    numbers.into_keys().map(|(_, session, _)| session).collect()
}

#[test]
fn two_agents_with_one_name_notice_each_other() {
    let Some(fleet) = Fleet::start("two_agents_with_one_name_notice_each_other") else { return };
    let homes = [fleet.host(7, "full"), fleet.host(7, "full")];
    let mut first = Session::start(&homes[0], "s");
    let mut second = Session::start(&homes[1], "t");
    let works = Agent::start(&homes[0]);
    fleet.ann.has_all_of("build-7", &[&first]);
    let waits = Agent::start(&homes[1]);
    waits.says("host build-7 was described by another agent: waiting");
    first.passes(20);
    second.passes(20);
    // Each notices the other, and only the first one works.
    waits.says("another agent runs as host build-7: this one ships and answers nothing");
    works.says("another agent runs as host build-7: it ships and answers nothing while this one runs");
    fleet.ann.has_all_of("build-7", &[&first]);
    assert_eq!(shipped(&fleet), ["s"]);
    let sessions = fleet.ann.document(&["sessions", "build-7", "--json"]);
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1), "{sessions}");
    assert_eq!(sessions["sessions"][0]["session_id"], "s");
    eventually("the tools say so", || {
        let hosts = fleet.ann.ask(&["hosts"]);
        let (table, told) = (String::from_utf8_lossy(&hosts.stdout), String::from_utf8_lossy(&hosts.stderr));
        (table.contains("two agents") && told.contains("two agents run as host build-7")).then_some(())
    });
    for home in [&homes[0], &homes[1], &fleet.ann.0] {
        let checked = super::support::both_ends::tool(home, &["fleet", "check", "--json"]);
        let document: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
        let checks = document["checks"].as_array().expect("a list");
        let one = checks.iter().find(|check| check["name"] == "each host has one agent").expect("the check");
        assert!(!checked.status.success() && one["ok"] == false, "{one}");
    }
    // The other takes the name once the first one is gone, and ships all that it has.
    works.kill();
    waits.says("no other agent uses the name of this host any more");
    fleet.ann.has_all_of("build-7", &[&second]);
    first.end();
    second.end();
}

#[test]
fn host_is_named_by_its_subject() {
    let Some(fleet) = Fleet::start("host_is_named_by_its_subject") else { return };
    let seed = std::fs::read_to_string(fleet.nats.seed("build_8")).expect("a file").trim().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let options = ConnectOptions::with_nkey(seed).custom_inbox_prefix("_INBOX.build-8").request_timeout(Some(PATIENCE));
    let evil = runtime.block_on(options.connect(fleet.nats.url())).expect("it connects");
    let event = |host: &str, seq: u64| {
        json!({ "v": 1, "host": host, "session": "s", "epoch": "e", "seq": seq,
            "event": { "seq": seq, "timestamp": "2026-01-02T03:04:05.000Z", "event_type": "turn/started" } })
    };
    let view = |host: &str| {
        json!({ "v": 1, "host": host, "version": "0", "level": "full", "since": "", "seen_at": "", "agent": "",
            "sessions": 0, "pending": 1 })
    };
    let list = json!({ "v": 1, "host": "build-7", "requests": [{ "session_id": "s", "session_name": "s",
        "request_id": "6b02d1a90c4e-0", "request_method": "m", "requested_at": "2026-01-02T03:04:05Z", "summary": "forged" }] });
    for (subject, payload) in [
        ("cshim.ev.build-8.s", event("build-7", 1)),
        ("cshim.ev.build-8.s", event("build-8", 2)),
        ("cshim.ev.build-8.t", event("build-8", 3)),
        ("$KV.cshim_pending.build-8", list),
        ("$KV.cshim_hosts.build-8", view("build-7")),
    ] {
        runtime.block_on(evil.request(subject, payload.to_string().into())).expect("it is stored");
    }
    let tail = fleet.ann.ask(&["tail", "--json", "--since", "1d"]);
    let lines = String::from_utf8(tail.stdout).expect("it is text");
    let messages: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(messages.len(), 1, "{lines}");
    assert_eq!((&messages[0]["host"], &messages[0]["seq"]), (&json!("build-8"), &json!(2)));
    let told = String::from_utf8_lossy(&tail.stderr).into_owned();
    assert!(told.contains("host build-8 has sent an event in the name of host build-7"), "{told}");
    assert!(told.contains("names another session"), "{told}");
    let hosts = fleet.ann.ask(&["hosts", "--json"]);
    let told = String::from_utf8_lossy(&hosts.stderr).into_owned();
    assert!(told.contains("host build-8 has sent a description in the name of host build-7"), "{told}");
    assert_eq!(serde_json::from_slice::<Value>(&hosts.stdout).expect("JSON")["hosts"], json!([]));
    let requests = fleet.ann.ask(&["requests", "--json"]);
    assert!(!String::from_utf8_lossy(&requests.stdout).contains("forged"), "{requests:?}");
    let told = String::from_utf8_lossy(&requests.stderr).into_owned();
    assert!(told.contains("a list of requests in the name of host build-7"), "{told}");
}

#[test]
fn renamed_host_ships_what_has_ended_since_it_joined() {
    let Some(fleet) = Fleet::start("renamed_host_ships_what_has_ended_since_it_joined") else { return };
    let home = fleet.host(7, "full");
    let before = Session::start(&home, "before");
    before.end();
    let agent = Agent::start(&home);
    let mut session = Session::start(&home, "s");
    session.passes(20);
    fleet.ann.has_all_of("build-7", &[&session]);
    let (epoch, before_end) = session.recorded();
    session.end();
    let of = |host: &str| {
        let key = (host.to_owned(), "s".to_owned(), epoch.clone());
        fleet.ann.numbers().expect("the server is there").remove(&key).unwrap_or_default()
    };
    // Its end is an event too.
    let all = eventually("its end", || Some(of("build-7")).filter(|all| all.len() > before_end.len()));
    agent.kill();
    fleet.nats.configures(&home, "build_8", &of_host(8, "full"));
    let _agent = Agent::start(&home);
    eventually("all of it under the new name", || (of("build-8") == all).then_some(()));
    stream_has(&fleet.nats.admin(), "build-8", &[("s", &(epoch.clone(), all))]);
    assert!(shipped(&fleet).iter().all(|session| session == "s"), "what ended before it joined stays");
}
