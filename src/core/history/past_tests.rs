//! What readings of a thread add to its transcript.

use serde_json::Value;

use super::properties::{entries, records};
use super::transcript::check;
use super::{Fold, Rows, Seen};
use crate::journal::{Position, Record, SegmentName};

/// A reading: the call with its parameters beyond the thread, and the result.
fn read(method: &str, params: &str, result: &str) -> String {
    let result = result.replace(['\n', '\r'], "");
    format!(
        ">> {{\"id\":\"r\",\"method\":\"{method}\",\"params\":{{\"threadId\":\"t\"{params}}}}}\n<< {{\"id\":\"r\",\"result\":{result}}}\n"
    )
}

/// The roles and texts of the thread `t` in the order in which a reader gets them. Lines are recorded from second 9,000 on, ten in a
/// second.
fn told(playbook: &str) -> Vec<String> {
    let later = |(number, line): (usize, &str)| {
        let (at, now) = (1_000 + number, 9_000_000_000 + 100_000 * number);
        line.replacen(&format!("{{\"at\":{at},"), &format!("{{\"at\":{now},"), 1)
    };
    let lines: Vec<String> = records(playbook).lines().enumerate().map(later).collect();
    let entries = entries(&lines.join("\n"));
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|entry| entry.place_us);
    let told = entries.iter().map(|entry| {
        let json: Value = serde_json::from_str(entry.json).expect("it is JSON");
        let word = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(entry.thread_id, "t");
        match &*word("role") {
            "status" => format!("{} {}", word("turn_id"), word("status")),
            "command" => format!("$ {}", word("command")),
            role => format!("{role}: {}", word("text")),
        }
    });
    told.collect()
}

/// The turns `u` and `v`, which ended in second 100 and 101, in the four forms in which a server shows them.
mod shown {
    pub(super) const ALL: [&str; 8] = [
        "user: one",
        "$ ls",
        "assistant: first",
        "u completed",
        "user: two",
        "assistant: second",
        "assistant: third",
        "v failed",
    ];

    const U: [&str; 3] = [
        r#"{"type":"userMessage","id":"a","content":[{"type":"text","text":"one"}],"startedAtMs":100100,"completedAtMs":100100}"#,
        r#"{"type":"commandExecution","id":"b","command":"ls","status":"completed","startedAtMs":100200,"completedAtMs":100400}"#,
        r#"{"type":"agentMessage","id":"c","text":"first","startedAtMs":100500,"completedAtMs":100600}"#,
    ];
    const V: [&str; 3] = [
        r#"{"type":"userMessage","id":"d","content":[{"type":"text","text":"two"}],"startedAtMs":100700,"completedAtMs":100700}"#,
        r#"{"type":"agentMessage","id":"e","text":"second","startedAtMs":100800,"completedAtMs":101100}"#,
        r#"{"type":"agentMessage","id":"f","text":"third","startedAtMs":101200,"completedAtMs":101300}"#,
    ];

    pub(super) fn turn(id: &str, view: &str) -> String {
        let (status, at, items) = match id {
            "u" => ("completed", 100, U.join(",")),
            _ => ("failed", 101, V.join(",")),
        };
        let items = if view == "notLoaded" { String::new() } else { items };
        format!(
            r#"{{"id":"{id}","items":[{items}],"itemsView":"{view}","status":"{status}","startedAt":100,"completedAt":{at},"durationMs":900}}"#
        )
    }

    /// All items, oldest first, as a page has them.
    pub(super) fn items() -> Vec<String> {
        let entry = |turn: &'static str| {
            move |item: &&str| format!(r#"{{"turnId":"{turn}","item":{item},"startedAtMs":1,"completedAtMs":1}}"#)
        };
        U.iter().map(entry("u")).chain(V.iter().map(entry("v"))).collect()
    }

    pub(super) fn timeline() -> Vec<String> {
        let entry = |turn: &'static str| {
            move |item: &&str| format!(r#"{{"type":"item","position":1,"turnId":"{turn}","item":{item}}}"#)
        };
        let end = |turn: &str, status: &str, at: u64| {
            vec![format!(
                r#"{{"type":"turnCompleted","turnId":"{turn}","status":"{status}","startedAt":100,"completedAt":{at}}}"#
            )]
        };
        let began = vec![r#"{"type":"turnStarted","turnId":"u","startedAt":100}"#.to_owned()];
        let (of_u, of_v) = (U.iter().map(entry("u")).collect(), V.iter().map(entry("v")).collect());
        [began, of_u, end("u", "completed", 100), of_v, end("v", "failed", 101)].concat()
    }
}

fn page(entries: &[String]) -> String {
    format!(r#"{{"data":[{}],"nextCursor":"x","backwardsCursor":"y"}}"#, entries.join(","))
}

const DESC: &str = r#","sortDirection":"desc""#;

#[test]
fn each_reading_gives_the_same_transcript() {
    let (u, v) = (shown::turn("u", "full"), shown::turn("v", "full"));
    let newest_first = |mut entries: Vec<String>| {
        entries.reverse();
        page(&entries)
    };
    let ends = [shown::turn("v", "notLoaded"), shown::turn("u", "notLoaded")];
    let (items, timeline) = (shown::items(), shown::timeline());
    let list = |params: &str, result: String| read("thread/items/list", params, &result);
    let turns = |params: &str, result: String| read("thread/turns/list", params, &result);
    let whole = format!(r#"{{"thread":{{"id":"t","turns":[{u},{v}]}}}}"#);
    let resumed = format!(r#"{{"thread":{{"id":"t","turns":[]}},"initialTurnsPage":{{"data":[{v},{u}]}}}}"#);
    let readings = [
        read("thread/read", "", &whole),
        read("thread/resume", "", &whole),
        read("thread/fork", "", &whole),
        read("thread/resume", r#","excludeTurns":true,"initialTurnsPage":{"itemsView":"full"}"#, &resumed),
        turns("", page(&[v.clone(), u.clone()])),
        turns(r#","sortDirection":"asc""#, page(&[u.clone(), v.clone()])),
        // A page for each turn, the last turn first.
        turns(DESC, page(std::slice::from_ref(&v))) + &turns(DESC, page(std::slice::from_ref(&u))),
        // The ends first, and the items after them in pages of four, and the other way round.
        turns(DESC, page(&ends))
            + &list(DESC, newest_first(items[2..].to_vec()))
            + &list(DESC, newest_first(items[..2].to_vec())),
        list(DESC, newest_first(items.clone())) + &turns(DESC, page(&ends)),
        // As the terminal UI of codex does it: the first ends, the items, the other ends.
        turns(DESC, page(&ends[..1])) + &list(DESC, newest_first(items.clone())) + &turns(DESC, page(&ends[1..])),
        list("", page(&items)) + &turns("", page(&ends)),
        // A part of a turn in each page.
        list("", page(&items[..2])) + &list("", page(&items[2..])) + &turns("", page(&ends)),
        turns("", page(&ends))
            + &read("thread/items/read", r#","turnId":"v""#, &page(&items[3..]))
            + &list("", page(&items[..3])),
        read("thread/timeline/list", "", &page(&timeline)),
        read("thread/timeline/list", "", &page(&timeline[..4]))
            + &read("thread/timeline/list", "", &page(&timeline[4..])),
        // The summary of the last turn first.
        turns("", page(std::slice::from_ref(&v)))
            + &turns(DESC, page(&ends))
            + &list(DESC, newest_first(items.clone())),
    ];
    for reading in &readings {
        assert_eq!(told(reading), shown::ALL, "{reading}");
    }
    // Whoever reads it again adds nothing.
    assert_eq!(told(&readings.concat()), shown::ALL);
}

#[test]
fn pages_of_each_size_give_the_same_transcript() {
    let ends = [shown::turn("v", "notLoaded"), shown::turn("u", "notLoaded")];
    let ends = read("thread/turns/list", "", &page(&ends));
    for (params, mut items) in [("", shown::items()), (DESC, shown::items())] {
        if params == DESC {
            items.reverse();
        }
        for size in 1..=items.len() {
            let pages: String =
                items.chunks(size).map(|items| read("thread/items/list", params, &page(items))).collect();
            assert_eq!(told(&format!("{ends}{pages}")), shown::ALL, "pages of {size}, {params}");
            assert_eq!(told(&format!("{pages}{ends}")), shown::ALL, "pages of {size}, {params}, the ends last");
        }
    }
}

#[test]
fn items_without_times_precede_their_end() {
    let end = r#"{"id":"u","items":[],"itemsView":"notLoaded","status":"completed"}"#.to_owned();
    let item = |text: &str| {
        page(&[format!(r#"{{"turnId":"u","item":{{"type":"agentMessage","id":"{text}","text":"{text}"}}}}"#)])
    };
    let pages: String = ["a", "b", "c"].map(|text| read("thread/items/list", "", &item(text))).concat();
    let said = r#"<< {"method":"item/completed","params":{"threadId":"t","turnId":"w","item":{"type":"plan","id":"p","text":"p"}}}"#;
    let playbook = format!("{}{pages}{said}", read("thread/turns/list", "", &page(&[end])));
    assert_eq!(told(&playbook), ["assistant: a", "assistant: b", "assistant: c", "u completed", "plan: p"]);
}

#[test]
fn stored_end_is_bounded() {
    let long = "x ".repeat(100_000);
    let end = |turn: usize| {
        format!(
            r#"{{"id":"{turn}x","items":[],"itemsView":"notLoaded","status":"{long}","durationMs":"{long}","error":{{"message":"{long}","codexErrorInfo":"{long}"}}}}"#
        )
    };
    let (mut fold, mut rows) = (Fold::default(), Rows::default());
    let playbook = (0..300).map(|turn| read("thread/turns/list", "", &page(&[end(turn)]))).collect::<String>();
    for (number, record) in records(&playbook).lines().enumerate() {
        let record = Record::parse(record.as_bytes()).expect("BUG: a playbook gives records");
        let segment = SegmentName::parse("000000000001-001.jsonl").expect("BUG: the name is one");
        fold.take(&Position { segment, offset: number as u64 }, &Seen::of(&record, None), &mut rows);
    }
    let stored = serde_json::to_string(&fold).expect("plain data");
    assert!(stored.len() < 1 << 20, "{}", stored.len());
    assert!(stored.contains("299x"));
}

#[test]
fn missing_answer_is_read_between_what_was_heard() {
    let live = r#"
        << {"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}
        << {"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"userMessage","id":"a","content":[{"type":"text","text":"one"}]}}}
        generation_started {"adopted":true,"hub":true}
    "#;
    let next = r#"
        << {"method":"turn/started","params":{"threadId":"t","turn":{"id":"w"}}}
        << {"method":"item/completed","params":{"threadId":"t","turnId":"w","item":{"type":"userMessage","id":"z","content":[{"type":"text","text":"next"}]}}}
        << {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"w","status":"completed"}}}
    "#;
    let item = r#"{"turnId":"u","item":{"type":"agentMessage","id":"c","text":"first"},"startedAtMs":9000150,"completedAtMs":9000150}"#;
    let end = r#"{"id":"u","items":[],"itemsView":"notLoaded","status":"completed","completedAt":9000}"#;
    let [items, ends] = [
        read("thread/items/list", "", &page(&[item.to_owned()])),
        read("thread/turns/list", "", &page(&[end.to_owned()])),
    ];
    let expect = ["user: one", "assistant: first", "u completed", "user: next", "w completed"];
    for reading in [format!("{ends}{items}"), format!("{items}{ends}")] {
        assert_eq!(told(&format!("{live}{reading}{next}")), expect, "{reading}");
    }
    // The answer was heard, and the end was not.
    let heard = format!(
        "{live}<< {}",
        r#"{"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"agentMessage","id":"c","text":"first"}}}"#
    );
    assert_eq!(told(&format!("{heard}\n{ends}{items}{next}")), expect);
}

#[test]
fn turn_over_which_a_hub_was_killed_is_not_whole() {
    let live = r#"
        << {"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}
        << {"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"userMessage","id":"a","content":[{"type":"text","text":"one"}]}}}
        generation_started {"adopted":true,"hub":true}
        << {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"completed"}}}
    "#;
    let item = r#"{"turnId":"u","item":{"type":"agentMessage","id":"c","text":"first","completedAtMs":9000150}}"#;
    let items = read("thread/items/list", "", &page(&[item.to_owned()]));
    assert_eq!(told(&format!("{live}{items}")), ["user: one", "assistant: first", "u completed"]);
}

#[test]
fn unfinished_items_are_not_read() {
    let entry = |item: &str, times: &str| format!(r#"{{"turnId":"u","item":{{{item}}}{times}}}"#);
    let command = |status: &str| format!(r#""type":"commandExecution","id":"b","command":"ls","status":"{status}""#);
    let (began, ended) = (r#","startedAtMs":1"#, r#","startedAtMs":1,"completedAtMs":2"#);
    let list = |entries: &[String]| read("thread/items/list", "", &page(entries));
    let words = r#""type":"agentMessage","id":"c","text":"first""#;
    assert_eq!(told(&list(&[entry(&command("inProgress"), began), entry(words, began)])), [""; 0]);
    assert_eq!(told(&list(&[entry(&command("completed"), ended), entry(words, "")])), ["$ ls", "assistant: first"]);
    // The turn goes on, and reports the rest itself.
    let turn = format!(
        r#"{{"id":"u","status":"inProgress","items":[{{{},"completedAtMs":5}},{{{words}}}]}}"#,
        r#""type":"userMessage","id":"a","content":[{"type":"text","text":"one"}]"#
    );
    let said =
        format!(r#"<< {{"method":"item/completed","params":{{"threadId":"t","turnId":"u","item":{{{words}}}}}}}"#);
    for method in ["thread/resume", "thread/turns/list"] {
        let result = match method {
            "thread/resume" => format!(r#"{{"thread":{{"id":"t","turns":[{turn}]}}}}"#),
            _ => page(std::slice::from_ref(&turn)),
        };
        assert_eq!(told(&format!("{}{said}", read(method, "", &result))), ["user: one", "assistant: first"]);
    }
}

#[test]
fn summary_counts_only_in_a_thread_of_the_session() {
    let summary = page(&[shown::turn("u", "summary")]);
    let look = read("thread/turns/list", r#","limit":1"#, &summary);
    assert_eq!(told(&look), [""; 0]);
    let heard = r#"<< {"method":"thread/status/changed","params":{"threadId":"t","status":{"type":"idle"}}}"#;
    assert_eq!(told(&format!("{heard}\n{look}")), shown::ALL[..4]);
}

#[test]
fn turns_read_in_parts_are_bounded() {
    let ends: Vec<String> = (0..999)
        .map(|turn| format!(r#"{{"id":"{turn}x","items":[],"itemsView":"notLoaded","status":"completed"}}"#))
        .collect();
    let item = |turn: &str| format!(r#"{{"turnId":"{turn}","item":{{"type":"agentMessage","id":"c","text":"a"}}}}"#);
    let list = read("thread/turns/list", r#","sortDirection":"asc""#, &page(&ends));
    let items = read("thread/items/list", "", &page(&[item("0x"), item("998x")]));
    assert_eq!(told(&format!("{list}{items}")), ["assistant: a", "assistant: a", "998x completed"]);
}

#[test]
fn approval_of_an_earlier_hub_ends_once() {
    let asked = r#"<< {"id":0,"method":"item/commandExecution/requestApproval","params":{"threadId":"t","turnId":"u","itemId":"i","command":"ls","cwd":"/"}}"#;
    let end = |name: &str| {
        format!(
            r#"request_resolved {{"request_id":"{name}","status":"resolved","source":"client","decision":"accept","error_code":null}}"#
        )
    };
    let begins = format!(
        "generation_started {{\"hub\":true}}\nrequest_opened {{\"request_id\":\"g-0\",\"request_type\":\"request_approval\"}}\n{asked}\ngeneration_started {{\"adopted\":true,\"hub\":true}}"
    );
    let opened = |name: &str| format!(r#"request_opened {{"request_id":"{name}","request_type":"request_approval"}}"#);
    let renamed = r#"request_renamed {"request_id":"g-0","before":"h-0"}"#;
    let accepted = |name: &str| {
        format!(
            r#"/{name}/approval {{"command":"ls","cwd":"/","decision":"accept","kind":"command","request_id":"{name}","source":"client","status":"resolved"}}"#
        )
    };
    // The next hub knows its name, learns it later, or never does.
    check(&format!("{begins}\n{}\n{asked}\n{}", opened("g-0"), end("g-0")), &accepted("g-0"));
    check(&format!("{begins}\n{}\n{asked}\n{renamed}\n{}", opened("h-0"), end("g-0")), &accepted("g-0"));
    check(&format!("{begins}\n{}\n{asked}\n{}", opened("h-0"), end("h-0")), &accepted("h-0"));
    check(&format!("{begins}\n{asked}\n{}", end("g-0")), &accepted("g-0"));
    // Another request under its id ends it.
    let other = asked.replace(r#""itemId":"i""#, r#""itemId":"j""#);
    check(
        &format!("{begins}\n{}\n{other}\n{}", opened("h-0"), end("h-0")),
        &format!(
            "{}\n{}",
            r#"/g-0/approval {"command":"ls","cwd":"/","error_code":"outcome_unknown","kind":"command","request_id":"g-0","status":"unknown"}"#,
            accepted("h-0")
        ),
    );
}

const SAID: &str = r#"{"type":"userMessage","id":"i","content":[{"type":"text","text":"a"}],"completedAtMs":5}"#;

#[test]
fn reading_a_thread_adds_finished_turns() {
    let read = |method: &str, thread: &str| read(method, "", &format!(r#"{{"thread":{thread}}}"#));
    let turns = format!(
        r#"{{"id":"t","turns":[{{"id":"u","status":"completed","completedAt":2,"items":[{SAID}]}},
        {{"id":"v","status":"inProgress","items":[{SAID}]}}]}}"#
    )
    .replace('\n', "");
    // A message with the time of its end is final, even if its turn goes on.
    let expect = r#"
        u/i/user {"text":"a"}
        u//status {"status":"completed"}
        v/i/user {"text":"a"}
    "#;
    for method in ["thread/resume", "thread/read", "thread/fork"] {
        check(&read(method, &turns), expect);
    }
    check(&read("thread/list", &turns), "");
    check(&format!("{}\n{}", read("thread/read", &turns), read("thread/resume", &turns)), expect);
    check(&read("thread/read", r#"{"id":"t","turns":null}"#), "");
    check(&read("thread/read", "7"), "");
    // A fork's entries belong to the fork.
    let fork = turns.replace(r#"{"id":"t""#, r#"{"id":"f""#);
    check(&format!("{}\n{}", read("thread/read", &turns), read("thread/fork", &fork)), &format!("{expect}{expect}"));
    let actual = entries(&records(&read("thread/read", &turns)));
    let times: Vec<&str> = actual.iter().map(|entry| &entry.json[7..31]).collect();
    assert_eq!(times[..2], ["1970-01-01T00:00:00.005Z", "1970-01-01T00:00:02.000Z"]);
}

#[test]
fn page_of_turns_is_emitted_oldest_first() {
    let turn = |id: &str, began: u64| format!(r#"{{"id":"{id}","status":"completed","startedAt":{began},"items":[]}}"#);
    check(
        &format!(
            r#">> {{"id":"r","method":"thread/resume","params":{{"threadId":"t"}}}}
            << {{"id":"r","result":{{"thread":{{"id":"t","turns":[]}},"initialTurnsPage":{{"data":[{},{}]}}}}}}"#,
            turn("v", 2),
            turn("u", 1)
        ),
        r#"
        u//status {"status":"completed"}
        v//status {"status":"completed"}
        "#,
    );
}

#[test]
fn renamed_items_are_recognized_when_read_again() {
    let live = r#"
        << {"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}
        << {"method":"item/completed","params":{"threadId":"t","turnId":"u","item":{"type":"agentMessage","id":"msg_1","text":"a"}}}
        << {"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"completed"}}}"#;
    let read = |turn: &str, id: &str| {
        format!(
            r#"{live}
            >> {{"id":1,"method":"thread/resume","params":{{}}}}
            << {{"id":1,"result":{{"thread":{{"id":"t","turns":[{{"id":"{turn}","status":"completed","items":[{{"type":"agentMessage","id":"{id}","text":"a"}}]}}]}}}}}}"#
        )
    };
    let once = "u/msg_1/assistant {\"text\":\"a\"}\nu//status {\"status\":\"completed\"}";
    check(&read("u", "x"), once);
    check(&read("turn-1", "item-1"), once);
    // After a gap, the missing entries come from the thread read.
    let gap = read("u", "x").replacen("\n        << {\"method\":\"item", "\ngap\n<< {\"method\":\"item", 1);
    check(
        &gap,
        "u/msg_1/assistant {\"text\":\"a\"}\nu//status {\"status\":\"completed\"}\nu/x/assistant {\"text\":\"a\"}",
    );
}
