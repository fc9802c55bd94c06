//! The engine of a hub, and the ledger that an earlier hub has left: whoever answers before the ledger is read, a request has one
//! row, and its winner is the answer that the server got.

use std::time::Duration;

use serde_json::{Value, json};

use crate::engine::{
    Does, ExactCommand, GivenRow, LedgerEntry, Matcher, RequestEnd, RequestKind, RequestRow, RequestSource,
    RequestStatus, RequestType, Rule, ServerOwner, Trust, Words,
};
use crate::protocol::ItemPlace;
use crate::wire::Side;

mod world;

use world::{COMMAND, HOLD_MS, QUESTION, World, answer, params};

/// The state of the request in the ledger of the earlier hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    Open,
    Answer,
    SentAnswer,
}

/// The side that answers before the ledger is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Nobody,
    /// Its answer waits for the ledger.
    Client,
    /// The ledger takes so long that the answer goes to the server.
    HastyClient,
    /// The server has even confirmed it.
    ConfirmedClient,
    Api,
    /// The ledger takes so long that a client, which has answered next, is heard instead.
    ApiThenClient,
    Rule,
    /// The ledger takes so long that the rule gives up.
    AcceptRule,
    Expiry,
    /// The server needs no answer any more.
    Server,
}

fn before(method: &str, stored: Stored, name: &str) -> Vec<LedgerEntry> {
    let kind = RequestKind::of(method).expect("BUG: a known method");
    let row = RequestRow {
        request_id: name.to_owned(),
        rpc_request_id: "5".to_owned(),
        place: ItemPlace { thread_id: Some("t".to_owned()), turn_id: Some("u".to_owned()), item_id: None },
        kind,
        method: method.to_owned(),
        requested_at_us: 1_000,
        expires_at_us: None,
        payload: Some(params(method, "i")),
        changes: None,
        item: None,
        summary: "ls -l".to_owned(),
        late: false,
        rule: None,
    };
    let payload = if method == QUESTION { r#"{"omitted":"secret"}"#.to_owned() } else { answer(method, "cancel") };
    let (request_id, source, by) = (name.to_owned(), RequestSource::Api, "earlier".to_owned());
    let given = GivenRow { request_id, at_us: 2_000, source, by, payload };
    let ended = LedgerEntry::RequestEnded(Box::new(RequestEnd::answered(given, RequestStatus::Resolved)));
    let sent = LedgerEntry::RequestDispatched { request_id: name.to_owned(), at_us: 3_000 };
    let entries = [LedgerEntry::RequestOpened(Box::new(row)), ended, sent];
    let count = match stored {
        Stored::Open => 1,
        Stored::Answer => 2,
        Stored::SentAnswer => 3,
    };
    entries.into_iter().take(count).collect()
}

/// A hub was killed; the server asks the next one under the same id, and somebody answers before its ledger is read.
fn taken_over(method: &str, stored: Stored, who: Who, item: &str) -> World {
    let of = Matcher::Command { argv: Some(Words::First(vec!["/bin/ls".to_owned()])), cwd: None };
    let decline = Rule { name: "no list".to_owned(), does: Does::Decline { of, reason: None } };
    let words = vec!["/bin/ls".to_owned(), "-l".to_owned()];
    let list = ExactCommand::new(words, "/p".to_owned(), Trust::default(), None).expect("BUG: acceptable");
    let accept = Rule { name: "list".to_owned(), does: Does::Accept(list) };
    let rules = match who {
        Who::Rule => vec![decline],
        Who::AcceptRule => vec![accept],
        Who::Nobody
        | Who::Client
        | Who::HastyClient
        | Who::ConfirmedClient
        | Who::Api
        | Who::ApiThenClient
        | Who::Expiry
        | Who::Server => Vec::new(),
    };
    let expiry = vec![(RequestType::Approval, Duration::from_millis(100))];
    let mut world = World::new(rules, if who == Who::Expiry { expiry } else { Vec::new() });
    world.stored(&before(method, stored, "g-5"));
    world.server_asks(1, method, item);
    match who {
        Who::Nobody | Who::Rule => {}
        Who::Client => world.client_answers(1, method, "accept"),
        Who::HastyClient | Who::ConfirmedClient => {
            world.client_answers(1, method, "accept");
            world.time_passes(HOLD_MS);
            if who == Who::ConfirmedClient {
                world.server_resolves();
            }
        }
        Who::Api => world.api_answers("g-5", method, "decline"),
        Who::ApiThenClient => {
            world.api_answers("g-5", method, "decline");
            world.client_answers(1, method, "accept");
            world.time_passes(HOLD_MS);
        }
        Who::AcceptRule => world.time_passes(HOLD_MS),
        Who::Expiry => {
            world.time_passes(100);
            world.time_passes(HOLD_MS);
        }
        Who::Server => world.server_resolves(),
    }
    world.ledger_is_read();
    world.time_passes(HOLD_MS);
    world.ledger_works();
    world
}

const EVERYBODY: [Who; 10] = [
    Who::Nobody,
    Who::Client,
    Who::HastyClient,
    Who::ConfirmedClient,
    Who::Api,
    Who::ApiThenClient,
    Who::Rule,
    Who::AcceptRule,
    Who::Expiry,
    Who::Server,
];

/// The cases: the method tells whether the ledger has the stored answer whole.
fn cases() -> Vec<(&'static str, Stored, Who)> {
    let mut cases = Vec::new();
    for method in [COMMAND, QUESTION] {
        for stored in [Stored::Open, Stored::Answer, Stored::SentAnswer] {
            let can = |who: &&Who| method == COMMAND || !matches!(who, Who::Rule | Who::AcceptRule | Who::Expiry);
            cases.extend(EVERYBODY.iter().filter(can).map(|who| (method, stored, *who)));
        }
    }
    cases
}

fn won(answers: &[Value]) -> Vec<&Value> {
    answers.iter().filter(|answer| answer["won"] == true).map(|answer| &answer["payload"]).collect()
}

/// One row, and its winner is the one answer that the server got.
#[test]
fn request_asked_again_has_one_row_and_one_winner() {
    for (method, stored, who) in cases() {
        let mut world = taken_over(method, stored, who, "i");
        let (got, rows) = (world.got.clone(), world.rows());
        let what = format!("{method} {stored:?} {who:?}: {got:?} {rows:#?}");
        let [(row, answers)] = &rows[..] else { panic!("{what}") };
        assert_eq!(row["request_id"], "g-5", "{what}");
        let is_whole = method == COMMAND;
        let results: Vec<Value> = got.iter().map(|line| line["result"].clone()).collect();
        let [stored_answer, accept, decline] =
            ["cancel", "accept", "decline"].map(|word| parsed(&answer(method, word)));
        let is_stored = stored != Stored::Open;
        // The answers that the server must get.
        let expect = match who {
            // The client has written it to the server, or will have, whatever the ledger has.
            Who::Client | Who::HastyClient | Who::ConfirmedClient | Who::ApiThenClient => Some(accept),
            Who::Expiry => Some(decline.clone()),
            Who::Server => None,
            Who::Nobody | Who::Api | Who::Rule | Who::AcceptRule if is_stored && is_whole => Some(stored_answer),
            Who::Rule | Who::Api => Some(decline.clone()),
            Who::Nobody | Who::AcceptRule => None,
        };
        assert_eq!(results, expect.clone().into_iter().collect::<Vec<_>>(), "{what}");
        let kept = |payload: &Value| if is_whole { payload.clone() } else { json!({"omitted": "secret"}) };
        match (&expect, who) {
            (Some(expect), _) => {
                assert_eq!((&row["status"], &row["resolved_payload"]), (&json!("resolved"), &kept(expect)), "{what}");
                assert_eq!(won(answers), [&kept(expect)], "{what}");
                assert!(
                    row["dispatched_at"].is_string() && row["dispatched_at"] != "1970-01-01T00:00:00.003Z",
                    "{what}"
                );
                assert_eq!(row["confirmed_at"].is_string(), who == Who::ConfirmedClient, "{what}");
                let code = if who == Who::Expiry {
                    json!("request_expired")
                } else if is_stored && row["resolved_by"] != "earlier" && (is_whole || who != Who::Api) {
                    json!("answer_replaced")
                } else {
                    Value::Null
                };
                assert_eq!(row["error_code"], code, "{what}");
            }
            // The server got the stored answer of the earlier hub, or has withdrawn the request.
            (None, Who::Server) if is_stored => {
                assert_eq!((&row["status"], &row["resolved_by"]), (&json!("resolved"), &json!("earlier")), "{what}");
                // An answer that was not sent cannot have been confirmed.
                let end = (row["confirmed_at"].is_string(), &row["error_code"]);
                let sent = stored == Stored::SentAnswer;
                assert_eq!(end, (sent, &if sent { Value::Null } else { json!("outcome_unknown") }), "{what}");
                assert_eq!(won(answers).len(), 1, "{what}");
            }
            (None, Who::Server) => assert_eq!(row["error_code"], "withdrawn_by_server", "{what}"),
            (None, _) => {
                assert_eq!((&row["status"], won(answers).len()), (&json!("pending"), 0), "{what}");
                assert!(row["dispatched_at"].is_null() && world.engine.requests_pending() == 1, "{what}");
            }
        }
        assert!(!world.replies.iter().any(|reply| reply == "Kept") || results.contains(&decline), "{what}");
    }
}

/// The same once the ledger is read, also if the name has a number.
#[test]
fn request_asked_again_after_the_ledger_is_read_keeps_its_row() {
    for method in [COMMAND, QUESTION] {
        for stored in [Stored::Open, Stored::Answer, Stored::SentAnswer] {
            for times in 1..3 {
                let mut world = World::new(Vec::new(), Vec::new());
                for _ in 1..times {
                    world.ledger_is_read();
                    world.server_asks(1, method, "i");
                    world.client_answers(1, method, "decline");
                    world.ledger_works();
                    world.server_resolves();
                    world.ledger_works();
                }
                let name = if times == 1 { "g-5" } else { "g-5.2" };
                let gets = world.got.len();
                let mut next = World::new(Vec::new(), Vec::new());
                std::mem::swap(&mut next.ledger, &mut world.ledger);
                next.stored(&before(method, stored, name));
                next.ledger_is_read();
                next.server_asks(1, method, "i");
                next.client_answers(1, method, "accept");
                next.ledger_works();
                let (got, rows) = (next.got.clone(), next.rows());
                let what = format!("{method} {stored:?} {name}: {got:?} {rows:#?}");
                assert_eq!((gets, got.len(), rows.len()), (times - 1, 1, times), "{what}");
                let (row, answers) = rows.iter().find(|(row, _)| row["request_id"] == name).expect(&what);
                let word = if stored != Stored::Open && method == COMMAND { "cancel" } else { "accept" };
                assert_eq!(got[0]["result"], parsed(&answer(method, word)), "{what}");
                assert_eq!((&row["status"], won(answers).len()), (&json!("resolved"), 1), "{what}");
            }
        }
    }
}

/// A row that a request had before the ledger was read is not given to the next request of the same id.
#[test]
fn row_of_a_request_that_has_ended_is_not_given_again() {
    for stored in [Stored::Open, Stored::Answer, Stored::SentAnswer] {
        let mut world = World::new(Vec::new(), Vec::new());
        world.stored(&before(COMMAND, stored, "g-5"));
        world.server_asks(1, COMMAND, "i");
        world.client_answers(1, COMMAND, "accept");
        world.time_passes(HOLD_MS);
        world.server_resolves();
        world.server_asks(1, COMMAND, "other");
        world.ledger_is_read();
        world.ledger_works();
        let (got, rows) = (world.got.clone(), world.rows());
        let what = format!("{stored:?}: {got:?} {rows:#?}");
        let row =
            |name: &str| rows.iter().find(|(row, _)| row["request_id"] == name).unwrap_or_else(|| panic!("{what}"));
        let ((first, answers), (second, none)) = (row("g-5"), row("g-5.2"));
        assert_eq!((got.len(), rows.len()), (1, 2), "{what}");
        assert_eq!(
            (&first["status"], won(answers)),
            (&json!("resolved"), vec![&parsed(&answer(COMMAND, "accept"))]),
            "{what}"
        );
        assert!(first["dispatched_at"].is_string() && first["confirmed_at"].is_string(), "{what}");
        assert_eq!((&second["status"], none.len()), (&json!("pending"), 0), "{what}");
    }
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).expect("BUG: our own JSON")
}

/// Another request under the id has a row of its own; the first keeps its end, or is withdrawn, and no answer to it is sent.
#[test]
fn other_request_under_an_id_leaves_the_first_alone() {
    for (method, stored, who) in cases() {
        let mut first = World::new(Vec::new(), Vec::new());
        first.stored(&before(method, stored, "g-5"));
        let first = first.rows().remove(0);
        let mut world = taken_over(method, stored, who, "other");
        let (got, rows) = (world.got.clone(), world.rows());
        let what = format!("{method} {stored:?} {who:?}: {got:?} {rows:#?}");
        let [(kept, kept_answers), (row, answers)] = &rows[..] else { panic!("{what}") };
        if stored == Stored::Open {
            let end = (&kept["status"], &kept["error_code"], &kept["dispatched_at"]);
            assert_eq!(end, (&json!("resolved"), &json!("withdrawn_by_server"), &Value::Null), "{what}");
            assert!(kept["resolved_payload"].is_null() && won(kept_answers).is_empty(), "{what}");
        } else {
            let mut expect = first.0.clone();
            if stored == Stored::Answer {
                // The answer was never sent.
                for (name, value) in
                    [("error_code", json!("outcome_unknown")), ("error_message", kept["error_message"].clone())]
                {
                    expect[name] = value;
                }
            }
            assert_eq!((kept, kept_answers), (&expect, &first.1), "{what}");
        }
        assert_eq!(
            (&row["request_id"], &row["request_payload"]["itemId"]),
            (&json!("g-5.2"), &json!("other")),
            "{what}"
        );
        let results: Vec<Value> = got.iter().map(|line| line["result"].clone()).collect();
        let is_answered = match who {
            Who::Client | Who::HastyClient | Who::ConfirmedClient | Who::ApiThenClient | Who::Rule | Who::Expiry => {
                true
            }
            // Its caller has read the first request.
            Who::Nobody | Who::Api | Who::AcceptRule | Who::Server => false,
        };
        assert_eq!(results.len(), usize::from(is_answered), "{what}");
        assert_ne!(results.first(), Some(&parsed(&answer(method, "cancel"))), "{what}");
        match (is_answered, who) {
            (true, _) => {
                assert_eq!((row["status"].as_str(), won(answers).len()), (Some("resolved"), 1), "{what}");
                assert!(row["dispatched_at"].is_string(), "{what}");
                assert_eq!(row["confirmed_at"].is_string(), who == Who::ConfirmedClient, "{what}");
            }
            (false, Who::Server) => assert_eq!(row["error_code"], "withdrawn_by_server", "{what}"),
            (false, _) => {
                // The row keeps the answer that a rule has given up.
                let given_up = usize::from(who == Who::AcceptRule);
                let end = (row["status"].as_str(), won(answers).len(), answers.len());
                assert_eq!(end, (Some("pending"), 0, given_up), "{what}");
            }
        }
    }
}

/// The ledger could not be used for a while and is read once more, in the middle of a run.
#[test]
fn ledger_that_is_read_again_opens_no_row() {
    for steps in 0..4 {
        let mut world = World::new(Vec::new(), Vec::new());
        world.ledger_is_read();
        world.server_asks(1, COMMAND, "i");
        if steps > 0 {
            world.client_answers(1, COMMAND, "accept");
        }
        if steps > 1 {
            world.ledger_works();
        }
        if steps > 2 {
            world.server_resolves();
        }
        world.ledger_works();
        world.ledger_is_read();
        let rows = world.rows();
        assert_eq!((rows.len(), world.got.len()), (1, usize::from(steps > 0)), "{steps}: {rows:#?}");
        world.server_asks(2, COMMAND, "i");
        world.ledger_works();
        assert_eq!(world.rows().len(), 1, "{steps}");
    }
}

/// How far the first request has come when the server asks for something else under its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Pending,
    /// An answer of a client waits for the ledger.
    Answered,
    /// The ledger is storing the answer of an API caller.
    Deciding,
    /// Likewise, and a client has answered too.
    RunnerUp,
    /// The ledger is storing its expiry.
    Expiring,
    Sent,
    /// The server has confirmed the answer.
    Confirmed,
    /// The server has withdrawn it.
    Withdrawn,
}

/// Other parameters make another row in every state of the first request, and late copies of the first change nothing.
#[test]
fn other_request_under_a_used_id_is_another_row() {
    use First::{Answered, Confirmed, Deciding, Expiring, Pending, RunnerUp, Sent, Withdrawn};
    for first in [Pending, Answered, Deciding, RunnerUp, Expiring, Sent, Confirmed, Withdrawn] {
        for (owner, by_api) in
            [ServerOwner::Client, ServerOwner::Hub].into_iter().flat_map(|owner| [(owner, false), (owner, true)])
        {
            let is_hub = owner == ServerOwner::Hub;
            let conn = u32::from(is_hub);
            let expiry = vec![(RequestType::Approval, Duration::from_millis(100))];
            let mut world = World::of(owner, Vec::new(), if first == Expiring { expiry } else { Vec::new() });
            if is_hub {
                world.ledger_is_read();
            }
            world.server_asks(conn, COMMAND, "i");
            world.ledger_works();
            match first {
                Pending => {}
                Answered => world.client_answers(conn, COMMAND, "decline"),
                Deciding => world.api_answers("g-5", COMMAND, "decline"),
                RunnerUp => {
                    world.api_answers("g-5", COMMAND, "decline");
                    world.client_answers(conn, COMMAND, "decline");
                }
                Expiring => world.time_passes(100),
                Sent | Confirmed => {
                    world.client_answers(conn, COMMAND, "decline");
                    world.ledger_works();
                    if first == Confirmed {
                        world.server_resolves_on(conn);
                    }
                }
                Withdrawn => world.server_resolves_on(conn),
            }
            let before = world.got.len();
            world.server_asks(conn, COMMAND, "other");
            if is_hub {
                // A slow client hears of the first one only now, and then of the other.
                world.server_asks(2, COMMAND, "i");
                world.client_answers(2, COMMAND, "decline");
                world.server_asks(2, COMMAND, "other");
            }
            world.ledger_works();
            world.time_passes(50);
            let (rows, got) = (world.rows(), world.got.clone());
            let what = format!("{first:?} {owner:?}: {got:?} {rows:#?}");
            let [(kept, _), (row, _)] = &rows[..] else { panic!("{what}") };
            assert_eq!(got.len(), before, "{what}");
            let is_answered = matches!(first, Sent | Confirmed);
            assert_eq!((&kept["status"], is_answered), (&json!("resolved"), kept["error_code"].is_null()), "{what}");
            assert_eq!(kept["confirmed_at"].is_string(), first == Confirmed, "{what}");
            assert_eq!((&row["request_id"], &row["status"]), (&json!("g-5.2"), &json!("pending")), "{what}");
            // The other one can be answered, by whoever has got it.
            if by_api {
                world.api_answers("g-5.2", COMMAND, "accept");
            } else {
                world.client_answers(if is_hub { 2 } else { 0 }, COMMAND, "accept");
            }
            world.ledger_works();
            let (rows, got) = (world.rows(), world.got.clone());
            let what = format!("{first:?} {owner:?} {by_api}: {got:?} {rows:#?}");
            assert_eq!(got.len(), before + 1, "{what}");
            assert_eq!(got.last().map(|line| &line["result"]), Some(&parsed(&answer(COMMAND, "accept"))), "{what}");
            assert_eq!(rows[1].0["resolved_payload"], parsed(&answer(COMMAND, "accept")), "{what}");
            assert!(rows.len() == 2 && rows[1].0["dispatched_at"].is_string(), "{what}");
        }
    }
}

/// A client that comes after an answer gets a copy of the request as long as the server cannot have read the answer.
#[test]
fn request_whose_answer_is_still_here_is_copied_to_a_newer_client() {
    for (is_held, rows) in [(true, 1), (false, 2)] {
        let mut world = World::new(Vec::new(), Vec::new());
        world.ledger_is_read();
        world.server_asks(1, COMMAND, "i");
        world.ledger_works();
        world.client_answers(1, COMMAND, "accept");
        if !is_held {
            world.ledger_works();
        }
        world.client_joins(3);
        world.server_asks(3, COMMAND, "i");
        world.client_answers(3, COMMAND, "decline");
        world.ledger_works();
        let (got, all) = (world.got.clone(), world.rows());
        let what = format!("{is_held}: {got:?} {all:#?}");
        assert_eq!((got.len(), all.len()), (rows, rows), "{what}");
        assert_eq!(got[0]["result"], parsed(&answer(COMMAND, "accept")), "{what}");
        assert_eq!(all[0].0["resolved_payload"], parsed(&answer(COMMAND, "accept")), "{what}");
    }
}

/// The model gets the reason of a decline with the answer, as it would have got it from the earlier hub.
#[test]
fn reason_of_a_stored_decline_goes_with_it() {
    for (word, is_early, is_steered) in
        [("decline", true, true), ("decline", false, true), ("cancel", true, false), ("cancel", false, false)]
    {
        let mut world = World::new(Vec::new(), Vec::new());
        let mut entries = before(COMMAND, Stored::Answer, "g-5");
        if let Some(LedgerEntry::RequestEnded(end)) = entries.last_mut() {
            end.reason = Some("use make clean".to_owned());
            end.payload = Some(answer(COMMAND, word));
        }
        world.stored(&entries);
        if !is_early {
            world.ledger_is_read();
        }
        world.server_asks(1, COMMAND, "i");
        if is_early {
            world.ledger_is_read();
        }
        world.ledger_works();
        let steers: Vec<&String> = world.calls.iter().filter(|call| call.starts_with("turn/steer")).collect();
        assert_eq!(steers.len(), usize::from(is_steered), "{word} {is_early}: {:?}", world.calls);
        assert!(steers.iter().all(|steer| steer.contains("use make clean")), "{steers:?}");
    }
}

/// Until the ledger is read, it gets nothing under a name that may be that of another row, whatever is to be stored.
#[test]
fn nothing_is_stored_under_the_name_of_another_row() {
    for stored in [Stored::Open, Stored::Answer, Stored::SentAnswer] {
        let mut world = World::new(Vec::new(), Vec::new());
        world.stored(&before(COMMAND, stored, "g-5"));
        let first = world.rows();
        world.server_asks(1, COMMAND, "other");
        world.client_answers(1, COMMAND, "accept");
        world.client_answers(1, COMMAND, "decline");
        world.time_passes(HOLD_MS);
        world.server_resolves();
        world.client_answers(1, COMMAND, "decline");
        world.ledger_works();
        assert_eq!(world.rows(), first, "{stored:?}");
        world.ledger_is_read();
        let rows = world.rows();
        let (kept, (row, answers)) = (&rows[0], &rows[1]);
        assert_eq!((kept.1.len(), answers.len()), (first[0].1.len(), 3), "{stored:?}: {rows:#?}");
        assert!(row["confirmed_at"].is_string() && row["late"] == true, "{rows:#?}");
        world.client_answers(2, COMMAND, "cancel");
        world.ledger_works();
        assert_eq!(world.rows()[1].1.len(), 4, "a late answer is one to the second request");
    }
}

/// A row that is open again has no error of the answer that was given up.
#[test]
fn row_that_is_open_again_has_no_error() {
    for is_early in [true, false] {
        let mut world = World::new(Vec::new(), Vec::new());
        let mut entries = before(QUESTION, Stored::Answer, "g-5");
        if let Some(LedgerEntry::RequestEnded(end)) = entries.last_mut() {
            end.error = Some(("answer_replaced", "an error"));
        }
        world.stored(&entries);
        if !is_early {
            world.ledger_is_read();
        }
        world.server_asks(1, QUESTION, "i");
        world.ledger_is_read();
        world.ledger_works();
        let (row, _) = world.rows().remove(0);
        assert_eq!((&row["status"], &row["error_code"]), (&json!("pending"), &Value::Null), "{row:#}");
    }
}

/// What is kept until the ledger is read is bounded in bytes; the oldest requests that have ended go first.
#[test]
fn requests_before_the_ledger_is_read_are_bounded_in_bytes() {
    let mut world = World::new(Vec::new(), Vec::new());
    let ask = |world: &mut World, id: u32| {
        let (words, place) = ("x".repeat(1 << 20), r#""threadId":"t","turnId":"u""#);
        let params = format!(r#"{{{place},"itemId":"{id}","command":"{words}","cwd":"/p"}}"#);
        world.read(1, Side::Server, &format!(r#"{{"id":{id},"method":"{COMMAND}","params":{params}}}"#));
    };
    ask(&mut world, 100);
    for id in 101..140 {
        ask(&mut world, id);
        let resolved = format!(r#"{{"threadId":"t","requestId":{id}}}"#);
        world.read(1, Side::Server, &format!(r#"{{"method":"serverRequest/resolved","params":{resolved}}}"#));
    }
    world.ledger_is_read();
    let names: Vec<String> = world.rows().iter().map(|(row, _)| row["rpc_request_id"].to_string()).collect();
    assert!((8..17).contains(&names.len()), "{names:?}");
    assert!(names.contains(&"100".to_owned()) && names.contains(&"139".to_owned()), "{names:?}");
    assert_eq!(world.warnings, 1);
}
