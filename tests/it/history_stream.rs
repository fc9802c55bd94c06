//! Cursors and streams: no holes and no duplicates for clients that reconnect, and a correct answer for every cursor.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::kills::spread;
use crate::support::both_ends::{Live, http};
use crate::support::eventually;
use crate::support::history::{EVENTS, Echo, Recorded, Sent, Stream, all_indexed_once, key_of, line, page, rows};
use crate::support::requests::{command_asked, turn_completed, turn_started};
use crate::support::shim::Home;

const LINES: u64 = 6_000;

fn lines(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(line).collect()
}

/// Reads `count` numbered events from `cursor` on, in order; returns the new cursor.
fn read_on(stream: &mut Stream, mut cursor: u64, count: u64) -> u64 {
    let until = cursor + count;
    while cursor < until {
        let sent = stream.next();
        let Some(seq) = sent.seq() else {
            assert_eq!(sent.id, None, "{sent:?}");
            continue;
        };
        assert_eq!(seq, cursor + 1, "a hole or a double: {sent:?}");
        assert_eq!(sent.id, Some(seq.to_string()));
        assert_eq!(sent.json()["persisted"], true);
        cursor = seq;
    }
    cursor
}

#[test]
fn readers_that_come_and_go_miss_nothing() {
    let mut echo = Echo::start(Home::new());
    let session = echo.session.clone();
    let storms = AtomicBool::new(true);
    let asleep = Stream::open(&session, "since_seq=0", None);
    let total = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3u64)
            .map(|reader| {
                let (session, storms) = (&session, &storms);
                scope.spawn(move || {
                    let (mut cursor, mut visits) = (0, 0);
                    while storms.load(Ordering::SeqCst) {
                        visits += 1;
                        let chance = spread(reader * 1_000 + visits);
                        let mut stream = match chance % 2 {
                            0 => Stream::open(session, &format!("since_seq={cursor}"), None),
                            // The header overrides the query.
                            _ => Stream::open(session, "since_seq=3&mode=events", Some(&cursor.to_string())),
                        }
                        .begun();
                        let latest = page(session, "limit=1")["latest_seq"].as_u64().unwrap_or_default();
                        let count = (chance >> 8) % 400;
                        cursor = read_on(&mut stream, cursor, count.min(latest.saturating_sub(cursor)));
                    }
                    cursor
                })
            })
            .collect();
        for from in (0..LINES).step_by(200) {
            echo.pass(&lines(from..from + 200));
        }
        let total = all_indexed_once(&session).len() as u64;
        storms.store(false, Ordering::SeqCst);
        for reader in readers {
            let cursor = reader.join().expect("no hole and no double");
            let mut stream = Stream::open(&session, &format!("since_seq={cursor}"), None).begun();
            assert_eq!(read_on(&mut stream, cursor, total - cursor), total);
        }
        total
    });
    assert_eq!(read_on(&mut asleep.begun(), 0, total), total);
    echo.end();
}

/// Everything that a stream has to send by now.
fn all_of(session: &std::path::Path, query: &str, last_id: Option<&str>, is_last: impl Fn(&Sent) -> bool) -> Vec<Sent> {
    let mut stream = Stream::open(session, query, last_id).begun();
    let mut sent = Vec::new();
    loop {
        sent.push(stream.next());
        if sent.last().is_some_and(&is_last) {
            return sent;
        }
    }
}

#[test]
fn raw_is_the_journal_wherever_it_is_resumed() {
    let mut echo = Echo::start(Home::new());
    echo.pass(&lines(0..300));
    // A stream's framing ends a line here, JSON does not.
    echo.pass(&["{\"method\":\"cr\",\r\"params\":{\"a\":\r1}}\r".to_owned()]);
    echo.pass(&[r#"{"method":"last"}"#.to_owned()]);
    let session = echo.session.clone();
    let seqs = all_indexed_once(&session);
    let recorded = Recorded::read(&session).records;
    let expect: Vec<(String, Value)> =
        recorded.iter().map(|(place, text)| (key_of(place), serde_json::from_str(text).expect("JSON"))).collect();
    let (last, _) = expect.last().expect("records").clone();
    let raw = |query: &str, last_id: Option<&str>| {
        let sent = all_of(&session, query, last_id, |sent| sent.id.as_ref() == Some(&last));
        sent.iter().map(|sent| (sent.id.clone().expect("an id"), sent.json())).collect::<Vec<_>>()
    };
    assert_eq!(raw("mode=raw", None), expect);
    for number in (0..expect.len() - 1).step_by(97) {
        assert_eq!(raw("mode=raw", Some(&expect[number].0)), expect[number + 1..], "behind {}", expect[number].0);
    }
    // The number of an event names its record.
    let event = seqs.iter().filter(|row| row.pieces.is_none()).nth(70).expect("events");
    let at = expect.iter().position(|(id, _)| *id == key_of(&event.place)).expect("its record");
    assert_eq!(raw(&format!("mode=raw&since_seq={}", event.seq), None), expect[at + 1..]);
    // A number that was never issued leads to a gap and the whole journal.
    let mut future = Stream::open(&session, "mode=raw&since_seq=999999", None).begun();
    let gap = future.next().json();
    assert_eq!((&gap["type"], &gap["reason"]), (&json!("event_gap"), &json!("cursor_ahead")));
    assert_eq!(future.next().id.as_ref(), Some(&expect[0].0));
    echo.pass(&[r#"{"method":"next"}"#.to_owned()]);
    // An event with such bytes is still one event.
    let events = all_of(&session, "since_seq=0", None, |sent| sent.json()["event_type"] == "next");
    let odd: Vec<Value> = events.iter().map(Sent::json).filter(|event| event["event_type"] == "cr").collect();
    assert_eq!(odd.len(), 1);
    assert_eq!(odd[0]["payload_preview"], json!({"a": 1}));
    echo.end();
}

#[test]
fn a_ui_that_comes_back_is_told_the_rest() {
    let mut live = Live::initialized("");
    live.say_plainly(&turn_started("t", "u"));
    for piece in ["One ", "two ", "three."] {
        live.say_plainly(&format!(
            r#"{{"method":"item/agentMessage/delta","params":{{"threadId":"t","turnId":"u","itemId":"m","delta":"{piece}"}}}}"#
        ));
    }
    live.say_plainly(
        r#"{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"agentMessage","id":"m","text":"One two three."}}}"#,
    );
    let request_id = live.asked(&command_asked("7", "t"), "7");
    live.responded(&request_id, &json!({"decision": "accept"}));
    live.at_server();
    live.say_plainly(&turn_completed("t", "u"));
    live.say_plainly(&turn_started("t", "end"));
    let is_last = |sent: &Sent| sent.json()["turn_id"] == "end";
    let whole = all_of(&live.session, "mode=ui", None, is_last);
    assert!(whole.len() > 8, "{whole:#?}");
    let kinds: Vec<Value> = whole.iter().map(|sent| sent.json()["type"].clone()).collect();
    for kind in ["activity", "assistant_delta", "assistant_finalize", "approval"] {
        assert!(kinds.contains(&json!(kind)), "{kind}: {kinds:?}");
    }
    for (number, sent) in whole.iter().enumerate().take(whole.len() - 1) {
        let id = sent.id.as_deref().expect("an id");
        let rest = all_of(&live.session, "mode=ui", Some(id), is_last);
        let texts = |sent: &[Sent]| sent.iter().map(|sent| sent.text.clone()).collect::<Vec<_>>();
        assert_eq!(texts(&rest), texts(&whole[number + 1..]), "behind {number}: {id}");
    }
    live.end_quietly();
}

#[test]
fn every_cursor_is_told_the_truth() {
    let mut echo = Echo::start(Home::new());
    echo.pass(&lines(0..500));
    let session = echo.session.clone();
    let last = all_indexed_once(&session).len() as u64;
    let check = |query: &str, first: Option<u64>, count: u64, next: u64| {
        let page = page(&session, query);
        let events = page["events"].as_array().expect("an array");
        assert_eq!(
            (events.first().and_then(|event| event["seq"].as_u64()), events.len() as u64),
            (first, count),
            "{query}"
        );
        let told =
            ["earliest_seq", "latest_seq", "next_seq", "history_gap", "gap_reason"].map(|name| page[name].clone());
        assert_eq!(told, [json!(1), json!(last), json!(next), json!(false), Value::Null], "{query}");
    };
    assert!(last > 200 && last < 500, "{last}");
    check("", Some(last - 199), 200, last + 1);
    check("limit=500", Some(1), last, last + 1);
    check("since_seq=0&limit=1", Some(1), 1, 2);
    check(&format!("since_seq={last}"), None, 0, last + 1);
    check(&format!("since_seq={}", last - 1), Some(last), 1, last + 1);
    for ahead in [&*(last + 1).to_string(), "1000000", "99999999999999999999999999"] {
        let page = page(&session, &format!("since_seq={ahead}&limit=1"));
        assert_eq!((&page["events"][0]["seq"], &page["next_seq"]), (&json!(1), &json!(2)), "{ahead}");
        assert_eq!((&page["history_gap"], &page["gap_reason"]), (&json!(true), &json!("cursor_ahead")), "{ahead}");
    }
    for wrong in [
        "since_seq=-1",
        "since_seq=x",
        "since_seq=",
        "since_seq=1.5",
        "limit=0",
        "limit=501",
        "limit=-1",
        "limit=x",
        "what=1",
        "since_seq=1&since_epoch=x",
        "since_seq=1&since_epoch=",
    ] {
        let (status, document) = http(&session, &format!("GET {EVENTS}?{wrong}"), b"");
        assert_eq!((status, &document["detail"]["error_code"]), (400, &json!("invalid_parameter")), "{wrong}");
    }
    for wrong in ["since_seq=-1", "since_seq=x", "mode=x", "limit=1"] {
        assert_eq!(Stream::open(&session, wrong, None).status(), 400, "{wrong}");
    }
    for (mode, wrong) in [("events", "x"), ("events", "-1"), ("events", "+1"), ("raw", "7"), ("ui", "1:2")] {
        assert_eq!(Stream::open(&session, &format!("mode={mode}"), Some(wrong)).status(), 400, "{mode} {wrong}");
    }
    echo.end();
}

#[test]
fn what_is_not_kept_is_told_as_a_gap() {
    const KEPT: u64 = 50;
    let settings = [("CODEX_SHIM_EVENTS_MAX", "50")];
    let mut echo = Echo::start(Home::new());
    echo.pass(&lines(0..1_500));
    let session = echo.session.clone();
    let total = all_indexed_once(&session).len() as u64;
    let echo = Echo::start_with(echo.end(), &settings);
    let earliest = eventually("the oldest to go", || {
        let rows = rows(&session).expect("it can be read");
        (rows.len() as u64 <= KEPT).then(|| rows[0].seq)
    });
    let gap = |query: &str| {
        let page = page(&session, query);
        let first =
            page["events"].as_array().expect("an array").first().map_or(Value::Null, |event| event["seq"].clone());
        (first, page["history_gap"] == true, page["gap_reason"].clone())
    };
    assert!(earliest > total - KEPT, "{earliest} of {total}");
    assert_eq!(gap("since_seq=0"), (json!(earliest), true, json!("retention")));
    assert_eq!(gap(&format!("since_seq={}", earliest - 2)), (json!(earliest), true, json!("retention")));
    assert_eq!(gap(&format!("since_seq={}", earliest - 1)), (json!(earliest), false, Value::Null));
    let mut stream = Stream::open(&session, "since_seq=3", None).begun();
    let told = stream.next().json();
    assert_eq!((&told["event_type"], &told["payload_preview"]["reason"]), (&json!("event_gap"), &json!("retention")));
    assert_eq!(stream.next().seq(), Some(earliest));
    // The stream sends the records that still exist, from their beginning.
    let mut raw = Stream::open(&session, "mode=raw&since_seq=3", None).begun();
    let first = rows(&session).expect("it can be read")[0].place.clone();
    assert_eq!(raw.next().id, Some(key_of(&first)));
    echo.end();
}
