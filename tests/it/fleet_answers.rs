//! Answers from consoles while something fails: each request has one answer at the end, and no console has said of an answer that it was not
//! given if it was.

use std::collections::BTreeMap;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::support::both_ends::{Live, next, told};
use super::support::fleet::{Agent, Console, Fleet};
use super::support::nats::Link;
use super::support::requests::{command_asked, parsed, question_asked};
use super::support::{PATIENCE, eventually};

const REQUESTS: usize = 24;

const OPERATORS: usize = 3;

/// Faults in a row: the server is killed, the agent is killed, the link is cut, and again.
const FAULTS: usize = 4;

/// What a console claims about its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Counts,
    /// Another answer counts.
    Lost,
    /// It was not sent.
    NotSent,
    Unknown,
}

/// An answer that no other attempt gives, and what became of it.
#[derive(Debug)]
struct Attempt {
    request: usize,
    text: String,
    claim: Claim,
    said: String,
}

fn claim(output: &Output) -> (Claim, String) {
    let said = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat();
    let not_sent = ["is offline since", "connect to nats://", "nothing was sent", "not sent"];
    let claim = match output.status.code() {
        Some(0) => Claim::Counts,
        Some(1) if said.contains("your answer was not sent") => Claim::Lost,
        Some(1 | 4) if not_sent.iter().any(|words| said.contains(words)) => Claim::NotSent,
        Some(1) => Claim::Unknown,
        _ => panic!("{output:?}"),
    };
    (claim, said)
}

/// What the operators share.
#[derive(Default)]
struct Shared {
    attempts: Mutex<Vec<Attempt>>,
    failures: AtomicUsize,
    has_given_up: AtomicBool,
}

/// Answers one request after another, each until it has an answer.
fn operates(ann: &Console, ids: &[String], operator: usize, shared: &Shared) {
    for (request, id) in ids.iter().enumerate() {
        let began = Instant::now();
        for number in 0.. {
            if began.elapsed() >= PATIENCE || shared.has_given_up.load(Ordering::SeqCst) {
                return shared.has_given_up.store(true, Ordering::SeqCst);
            }
            let text = format!("operator {operator}, request {request}, attempt {number}");
            let given = format!("color={text}");
            let (claim, said) = claim(&ann.ask(&["respond", &format!("build-7/{id}"), "--answer", &given]));
            shared.attempts.lock().expect("no thread panics with it").push(Attempt { request, text, claim, said });
            match claim {
                Claim::Counts | Claim::Lost => break,
                Claim::NotSent | Claim::Unknown => shared.failures.fetch_add(1, Ordering::SeqCst),
            };
        }
    }
}

/// The text of the answer to each request that the server has received.
fn received(live: &mut Live) -> BTreeMap<u64, String> {
    let mut all = BTreeMap::new();
    live.write("{\"method\":\"marker\"}\n");
    loop {
        let line = parsed(&next(&live.server, "the marker"));
        let Some(id) = line["id"].as_u64() else { return all };
        let text = line["result"]["answers"]["color"]["answers"][0].as_str().expect("a text").to_owned();
        assert_eq!(all.insert(id, text), None, "request {id} is answered twice");
    }
}

#[test]
fn each_request_has_one_answer_whatever_fails() {
    let Some(mut fleet) = Fleet::start("each_request_has_one_answer_whatever_fails") else { return };
    let link = Link::to(fleet.nats.server.port);
    let mut live = Live::start_in(fleet.host_behind(link.port, "full")).initialize();
    let (server, ann) = (&mut fleet.nats.server, &fleet.ann);
    let ids: Vec<String> = (0..REQUESTS)
        .map(|number| live.asked(&question_asked(&number.to_string(), false), &number.to_string()))
        .collect();
    let mut agent = Some(Agent::start(&live.home));
    eventually("the host", || ann.ask(&["sessions", "build-7"]).status.success().then_some(()));
    let shared = Shared::default();
    std::thread::scope(|scope| {
        for operator in 0..OPERATORS {
            let (ids, shared) = (&ids, &shared);
            scope.spawn(move || operates(ann, ids, operator, shared));
        }
        for fault in 0..FAULTS {
            let left = REQUESTS - (fault + 1) * REQUESTS / (FAULTS + 1);
            eventually("answers", || (live.pending().len() <= left).then_some(()));
            let before = shared.failures.load(Ordering::SeqCst);
            let fails = || eventually("a failure", || (shared.failures.load(Ordering::SeqCst) > before).then_some(()));
            match fault % 3 {
                0 => {
                    server.kill();
                    fails();
                    server.start_again();
                }
                1 => {
                    agent.take().expect("it runs").kill();
                    fails();
                    agent = Some(Agent::start(&live.home));
                }
                _ => {
                    link.cut();
                    fails();
                    link.mend();
                }
            }
        }
    });
    let attempts = shared.attempts.into_inner().expect("no thread panics with it");
    let has_given_up = shared.has_given_up.into_inner();
    let said = agent.map(|agent| agent.said());
    assert!(!has_given_up, "the agent: {said:?}; the last attempt: {:?}", attempts.last());
    let received = received(&mut live);
    assert_eq!(received.len(), REQUESTS);
    for Attempt { request, text, claim, said } in attempts {
        let counts = received[&(request as u64)] == text;
        let is_true = match claim {
            Claim::Counts => counts,
            Claim::Lost | Claim::NotSent => !counts,
            Claim::Unknown => true,
        };
        assert!(is_true, "{text} {}: {said}", if counts { "counts" } else { "does not count" });
    }
    for (number, id) in ids.iter().enumerate() {
        let row = live.row(id);
        let text = &row["resolved_payload"]["answers"]["color"]["answers"][0];
        assert_eq!(
            (text.as_str(), &row["resolved_by"]),
            (received[&(number as u64)].as_str().into(), &json!("fleet:ann@build-7"))
        );
    }
    live.kill();
}

/// The host has the question and gives the answer, and its reply is lost.
#[test]
fn answer_whose_reply_is_lost_may_count() {
    let Some(fleet) = Fleet::start("answer_whose_reply_is_lost_may_count") else { return };
    let link = Link::to(fleet.nats.server.port);
    let mut live = Live::start_in(fleet.host_behind(link.port, "full")).initialize();
    let _agent = Agent::start(&live.home);
    let id = live.asked(&command_asked("0", "t"), "0");
    eventually("the host", || fleet.ann.ask(&["sessions", "build-7"]).status.success().then_some(()));
    link.mute();
    let target = format!("build-7/{id}");
    let (claim, said) = claim(&fleet.ann.ask(&["respond", &target, "accept"]));
    assert_eq!(claim, Claim::Unknown, "{said}");
    assert!(said.contains("no reply in 5 s") && said.contains("shows which answer won"), "{said}");
    assert_eq!(live.at_server(), format!("{}\n", json!({ "id": 0, "result": { "decision": "accept" } })));
    link.mend();
    // The agent may have been away for so long that it counts as offline.
    let again = eventually("the same answer", || {
        let output = fleet.ann.ask(&["respond", &target, "accept", "--json"]);
        output.status.success().then(|| told(&output))
    });
    assert_eq!((&again["ok"], &again["idempotent"]), (&Value::from(true), &Value::from(true)), "{again}");
    live.nothing_at_server();
    live.kill();
}

/// A decision that is left for later, and the acknowledgment of the server is lost.
#[test]
fn decision_that_is_not_acknowledged_may_wait() {
    let Some(fleet) = Fleet::start("decision_that_is_not_acknowledged_may_wait") else { return };
    let mut live = Live::start_in(fleet.host(7, "full")).initialize();
    let agent = Agent::start(&live.home);
    let id = live.asked(&command_asked("0", "t"), "0");
    eventually("the host", || fleet.ann.ask(&["sessions", "build-7"]).status.success().then_some(()));
    agent.kill();
    // A stream that acknowledges nothing.
    let admin = fleet.nats.admin();
    let mut config = admin.api("STREAM.INFO.CSHIM_LATER", &json!({}))["config"].clone();
    config["no_ack"] = json!(true);
    assert!(admin.api("STREAM.UPDATE.CSHIM_LATER", &config)["error"].is_null());
    let (claim, said) = claim(&fleet.ann.ask(&["respond", &format!("build-7/{id}"), "accept", "--when-back"]));
    assert_eq!(claim, Claim::Unknown, "{said}");
    assert!(said.contains("it may wait for the host all the same"), "{said}");
    let _agent = Agent::start(&live.home);
    assert_eq!(live.at_server(), format!("{}\n", json!({ "id": 0, "result": { "decision": "accept" } })));
    live.kill();
}
