//! `kill -9` of the shim at any step of an answer: the rows of the next start match the steps that were completed.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kills::spread;
use crate::support::PATIENCE;
use crate::support::both_ends::{Live, http_asked, http_told};
use crate::support::requests::{PENDING, answer, command_asked, decision, parsed, resolved, respond_path};
use crate::support::shim::Home;

const KILLS: u64 = 200;

/// Requests that are open when the answers begin.
const OPEN: u64 = 6;

/// The state around a killed run.
struct Killed {
    home: Home,
    generation: String,
    /// The answers that the server has received, by request id.
    received: BTreeMap<u64, Value>,
    /// The responses to API callers, if they received one.
    told: Vec<(u64, (u16, Value))>,
    /// Requests that the server has reported as resolved.
    said_done: Vec<u64>,
    /// The time from the requests to the kill was long enough for the shim to give up on storing one of them or an answer,
    /// and to forward it all the same.
    may_be_late: bool,
}

/// How long the shim waits for its ledger to store a request or an answer before it forwards that line unstored.
const LEDGER_DEADLINE: Duration = Duration::from_millis(250);

/// Sends requests, answers some, and kills. `chance` decides who answers which request, and when the kill comes.
fn kill_once(home: Home, chance: u64) -> Killed {
    let mut live = Live::start_in(home).initialize();
    let generation = live.generation();
    let asking = Instant::now();
    let asked: Vec<String> = (0..OPEN).map(|id| command_asked(&id.to_string(), "t")).collect();
    live.say_unseen(&asked.join("\n"));
    asked.iter().for_each(|line| assert_eq!(live.at_client(), format!("{line}\n")));
    let mut streams: Vec<(u64, UnixStream)> = Vec::new();
    let mut received = BTreeMap::new();
    let mut said_done = Vec::new();
    let mut receive = |line: &str| {
        let line = parsed(line);
        let id = line["id"].as_u64().expect("nothing but answers to requests");
        assert_eq!(received.insert(id, line["result"].clone()), None, "{chance}: {id} is answered twice");
        id
    };
    for id in 0..=chance % OPEN {
        let (by_client, by_side) = [(true, false), (false, true), (true, true)][spread(chance + id) as usize % 3];
        if by_side {
            let line = format!("POST {}", respond_path(&format!("{generation}-{id}")));
            streams.push((id, http_asked(&live.session, &line, decision("decline").to_string().as_bytes())));
        }
        if by_client {
            live.write(&format!("{}\n", answer(&id.to_string(), &decision("accept"))));
        }
        // In every other run the server has the answer before the next one is given, and may confirm it.
        if chance.is_multiple_of(2) {
            let id = receive(&live.at_server());
            if spread(chance).is_multiple_of(2) {
                live.say_unseen(&resolved(&id.to_string()));
                said_done.push(id);
            }
        }
    }
    // From immediately to long after the end.
    (0..spread(chance) % 200_000).for_each(|_| std::hint::spin_loop());
    live.relay.kill().expect("it runs");
    live.relay.wait().expect("it was killed");
    let may_be_late = asking.elapsed() >= LEDGER_DEADLINE;
    // Lines written before the kill are still readable.
    live.server.iter().filter(|line| line.ends_with(b"\n")).for_each(|line| {
        receive(&String::from_utf8(line).expect("it is text"));
    });
    let told = streams.into_iter().filter_map(|(id, stream)| Some((id, http_told(stream)?))).collect();
    Killed { home: live.home, generation, received, told, said_done, may_be_late }
}

/// Two hundred times: requests are answered by the client, by an API caller or by both, and the shim is killed before
/// an answer is committed, between the commit and the write, between the write and the server's confirmation, or after
/// everything. For each request the next start may then report one of these states, and nothing else:
///
/// - `orphaned` (`server_restarted`): the server has received no answer, no API caller was told of success, and the
///   ledger has no answer. The kill came before the commit.
/// - `resolved`, not dispatched: the stored answer won. The server has received this answer or none: the kill came
///   between the commit and the record of the write.
/// - `resolved` and dispatched: the server has received exactly this answer.
/// - confirmed: as before, and the server had confirmed it.
///
/// So an answer that the server has received always belongs to a resolved row. The response to an API caller agrees with the
/// row. No request of an earlier run is pending, and every request that the client has seen has a row.
///
/// What the ledger does not store within 250 ms is forwarded late, with a row or without. Only that nothing is pending is
/// checked of a run that took that long, as on a busy machine. There are more runs until each state was seen.
#[test]
fn requests_tell_the_truth_after_two_hundred_kills() {
    let mut home = Home::new();
    let mut seen = BTreeMap::<&str, u64>::new();
    let began = Instant::now();
    for number in 0.. {
        if number >= KILLS && states(&seen).iter().all(|count| *count > 0) {
            break;
        }
        assert!(number < KILLS || began.elapsed() < 2 * PATIENCE, "not all of it was seen to happen: {seen:?}");
        let killed = kill_once(home, spread(number) >> 8);
        let live = Live::start_in(killed.home);
        assert_eq!(live.get(PENDING)["requests"], json!([]), "{number}");
        if killed.may_be_late {
            *seen.entry("late").or_default() += 1;
            home = live.kill();
            continue;
        }
        for id in 0..OPEN {
            let (row, answers) = live.kept(&format!("{}-{id}", killed.generation));
            let received = killed.received.get(&id);
            let what = format!("kill {number}, {received:?} is received: {row:#} {answers:#?}");
            let won: Vec<&Value> = answers.iter().filter(|answer| answer["won"] == true).collect();
            let has = |member: &str| row[member].is_string();
            let state = match (row["status"] == "resolved", has("dispatched_at"), has("confirmed_at"), received) {
                (false, ..) => "orphaned, the server got nothing",
                (true, _, true, _) => "confirmed",
                (true, true, false, _) => "resolved and dispatched",
                (true, false, false, Some(_)) => "resolved and received, the write not kept",
                (true, false, false, None) => "resolved and not received",
            };
            *seen.entry(state).or_default() += 1;
            match row["status"].as_str() {
                Some("orphaned") => {
                    assert_eq!(row["error_code"], "server_restarted", "{what}");
                    assert!(received.is_none(), "{what}");
                    assert!(
                        row["resolved_payload"].is_null() && !has("dispatched_at") && !has("confirmed_at"),
                        "{what}"
                    );
                    assert!(answers.is_empty(), "{what}");
                }
                Some("resolved") => {
                    let payload = &row["resolved_payload"];
                    assert!(won.len() == 1 && won[0]["payload"] == *payload, "{what}");
                    assert_eq!(won[0]["source"], row["resolution_source"], "{what}");
                    let by_client = *payload == decision("accept");
                    assert_eq!(row["resolution_source"], if by_client { "client" } else { "api" }, "{what}");
                    assert!(received.is_none_or(|received| received == payload), "{what}");
                    assert!(!has("dispatched_at") || received.is_some(), "{what}");
                    assert!(!has("confirmed_at") || killed.said_done.contains(&id), "{what}");
                    assert!(row["error_code"].is_null(), "{what}");
                }
                _ => panic!("{what}"),
            }
            for (_, (status, document)) in killed.told.iter().filter(|(of, _)| *of == id) {
                if row["status"] == "orphaned" {
                    assert_ne!(*status, 200, "{document} {what}");
                    continue;
                }
                let told = &document["request"]["resolved_payload"];
                assert_eq!((*status, told), (200, &row["resolved_payload"]), "{document} {what}");
                assert_eq!(document["idempotent"], row["resolution_source"] == "client", "{document} {what}");
            }
        }
        home = live.kill();
    }
}

/// How often a request was seen before, after and at its answer's commit.
fn states(seen: &BTreeMap<&str, u64>) -> [u64; 3] {
    let count = |state: &str| seen.get(state).copied().unwrap_or_default();
    let between = count("resolved and received, the write not kept") + count("resolved and not received");
    [count("orphaned, the server got nothing"), count("resolved and dispatched"), between]
}
