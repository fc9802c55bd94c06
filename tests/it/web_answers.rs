//! The page of `codex-shim web`: what it shows, and answers, messages and timelines through it.

use std::fs;
use std::process::{Child, Stdio};

use codex_shim::testing::control::client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::{Live, told};
use crate::support::page::{Browser, Page, Stream};
use crate::support::requests::{
    change_asked, change_started, command_asked, decision, parsed, permissions_asked, question_asked, turn_started,
};
use crate::support::shim::Home;
use crate::support::websocket::{Client, FakeServer};
use crate::support::{eventually, stop};

/// A relay with its client, and a browser.
fn opened(config: &str) -> (Live, Page, Browser) {
    let live = Live::initialized(config);
    let page = Page::start(&live.home, &[]);
    let browser = page.browser();
    (live, page, browser)
}

/// The only pending request.
fn only(browser: &Browser) -> Value {
    let inbox = browser.get("/inbox");
    let requests = inbox["requests"].as_array().expect("an array");
    assert_eq!(requests.len(), 1, "{inbox}");
    requests[0].clone()
}

/// The body of the choice with this word.
fn offered(request: &Value, word: &str) -> Value {
    let choices = request["choices"].as_array().expect("an array");
    let choice = choices.iter().find(|choice| choice["word"] == word);
    json!({ "body": choice.unwrap_or_else(|| panic!("no {word}: {request}"))["body"] })
}

/// Codex says this in thread `t`.
fn said(id: &str, text: &str) -> String {
    let item = json!({ "id": id, "type": "agentMessage", "text": text });
    json!({ "method": "item/completed", "params": { "threadId": "t", "turnId": "u", "item": item } }).to_string()
}

#[test]
fn command_is_approved_from_the_page() {
    let (mut live, _page, browser) = opened("");
    let mut tab = browser.stream("/stream", None);
    assert_eq!(tab.wait_for("inbox")["requests"], json!([]));
    let request_id = live.asked(&command_asked("7", "t"), "7");
    let request = tab.wait_for("request");
    let member = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (member("session"), member("request_id"), member("client")),
        ("s".into(), request_id.clone(), "tester".into())
    );
    assert_eq!(
        (member("kind"), member("type"), member("thread_id")),
        ("command".into(), "request_approval".into(), "t".into())
    );
    let rows: Vec<(&Value, &Value)> =
        request["rows"].as_array().expect("an array").iter().map(|row| (&row["label"], &row["text"])).collect();
    assert!(
        rows.contains(&(&json!("Command"), &json!("touch x"))) && rows.contains(&(&json!("Folder"), &json!("/w"))),
        "{request}"
    );
    let words: Vec<&Value> =
        request["choices"].as_array().expect("an array").iter().map(|choice| &choice["word"]).collect();
    assert_eq!(words, ["accept", "accept_for_session", "offer", "decline", "reason", "cancel"], "{request}");
    assert_eq!(only(&browser), request);

    let (status, answer) = browser.respond("s", &request_id, &offered(&request, "accept"));
    assert_eq!((status, &answer["won"], &answer["outcome"]), (200, &json!(true), &json!("accepted")), "{answer}");
    assert_eq!(parsed(&live.at_server()), json!({ "id": 7, "result": decision("accept") }));
    let row = live.row(&request_id);
    assert_eq!((&row["status"], &row["resolution_source"]), (&json!("resolved"), &json!("web")), "{row}");
    let ended = tab.wait_for("ended");
    assert_eq!((&ended["request_id"], &ended["source"]), (&json!(request_id), &json!("web")), "{ended}");
    assert!(ended["ending"].as_str().is_some_and(|words| words.starts_with("answered by the web page: ")), "{ended}");
    assert_eq!(browser.get("/inbox")["requests"], json!([]));
    live.kill();
}

#[test]
fn change_is_shown_and_declined_with_a_reason() {
    let (mut live, _page, browser) = opened("");
    live.say_plainly(&change_started());
    let request_id = live.asked(&change_asked("8"), "8");
    let request = only(&browser);
    let file = &request["files"][0];
    assert_eq!((&file["kind"], &file["path"], &file["added"]), (&json!("add"), &json!("/w/new.txt"), &json!(1)));
    assert_eq!(file["lines"], json!([{ "type": "added", "text": "+hello" }]));
    let (status, answer) = browser.respond("s", &request_id, &json!({ "reason": "use <b>make</b>" }));
    assert_eq!((status, &answer["won"], &answer["outcome"]), (200, &json!(true), &json!("declined")), "{answer}");
    assert_eq!(parsed(&live.at_server()), json!({ "id": 8, "result": decision("decline") }));
    let steer = parsed(&live.at_server());
    assert!(steer.to_string().contains("use <b>make</b>"), "{steer}");
    live.kill();
}

/// The list of pending requests has one budget for large columns: the second change is not in it.
#[test]
fn second_large_change_shows_its_files() {
    let (mut live, _page, browser) = opened("");
    let diff = format!("@@ -0,0 +1,300000 @@\n{}", "+a line of a file\n".repeat(300_000));
    for (id, item) in [("7", "f7"), ("8", "f8")] {
        let change = json!({ "path": format!("/w/{item}.txt"), "kind": { "type": "update" }, "diff": diff });
        let item_started = json!({ "type": "fileChange", "id": item, "changes": [change], "status": "inProgress" });
        let params = json!({ "threadId": "t", "turnId": "u", "item": item_started });
        live.say_plainly(&json!({ "method": "item/started", "params": params }).to_string());
        live.asked(&change_asked(id).replace(r#""itemId":"f""#, &format!(r#""itemId":"{item}""#)), id);
    }
    let requests = eventually("two requests", || {
        let requests = browser.get("/inbox")["requests"].take();
        (requests.as_array().map(Vec::len) == Some(2)).then_some(requests)
    });
    let files = |index: usize| &requests[index]["files"][0];
    assert_eq!((&files(0)["path"], &files(1)["path"]), (&json!("/w/f7.txt"), &json!("/w/f8.txt")));
    assert_eq!((&files(0)["added"], &files(1)["added"]), (&json!(300_000), &json!(300_000)));
    live.kill();
}

#[test]
fn lines_of_a_diff_are_served_while_it_waits() {
    let (mut live, _page, browser) = opened("");
    live.say_plainly(&change_started());
    let request_id = live.asked(&change_asked("8"), "8");
    let asked = |query: &str| browser.asked("GET", &format!("/sessions/s/requests/{request_id}/diff{query}"), "");
    let part = asked("?file=0&from=0");
    assert_eq!(part.json(), json!({ "lines": [{ "type": "added", "text": "+hello" }], "cut_lines": 0 }));
    for query in ["", "?file=0", "?from=0", "?file=x&from=0", "?file=0&from=-1", "?file=0&from=0&more=1"] {
        assert_eq!(asked(query).error(), (400, "invalid_parameter".to_owned()), "{query}");
    }
    for query in ["?file=0&from=1", "?file=1&from=0"] {
        assert_eq!(asked(query).error(), (404, "line_not_found".to_owned()), "{query}");
    }
    told(&live.tool(&["respond", &request_id, "--json", r#"{"decision":"decline"}"#]));
    assert_eq!(asked("?file=0&from=0").error(), (404, "request_unavailable".to_owned()));
    live.kill();
}

#[test]
fn command_for_a_person_is_approved_here() {
    let (mut live, _page, browser) = opened("");
    let asked = command_asked("7", "t").replace(r#""kind":"command""#, r#""kind":"humanCommand""#);
    let request_id = live.asked(&asked, "7");
    let request = only(&browser);
    let is_told = |row: &Value| row["text"] == "must be decided by a person, each time";
    assert!(request["rows"].as_array().is_some_and(|rows| rows.iter().any(is_told)), "{request}");
    let (status, answer) = browser.respond("s", &request_id, &offered(&request, "accept"));
    assert_eq!((status, &answer["won"]), (200, &json!(true)), "{answer}");
    assert_eq!(parsed(&live.at_server()), json!({ "id": 7, "result": decision("accept") }));
    live.kill();
}

#[test]
fn wrong_values_of_a_form_are_named() {
    let (mut live, _page, browser) = opened("");
    let schema = json!({ "type": "object", "required": ["env", "n"], "properties": {
        "env": { "type": "string", "enum": ["dev", "prod"], "enumNames": ["Development", "Production, east"] },
        "n": { "type": "integer", "minimum": 1, "maximum": 9 } } });
    let params = json!({ "threadId": "t", "turnId": "u", "serverName": "srv", "mode": "form", "message": "Deploy?", "requestedSchema": schema });
    let asked = json!({ "method": "mcpServer/elicitation/request", "id": 9, "params": params });
    let request_id = live.asked(&asked.to_string(), "9");
    let request = only(&browser);
    let fields = &request["fields"];
    assert_eq!(
        (&fields[1]["name"], &fields[1]["hint"], &fields[1]["is_required"]),
        (&json!("n"), &json!("integer 1 to 9"), &json!(true))
    );
    assert_eq!(fields[0]["options"], json!([{ "label": "Development" }, { "label": "Production, east" }]));
    let wrong = json!({ "answers": { "env": ["Mars"], "n": ["99"] } });
    let (status, refused) = browser.respond("s", &request_id, &wrong);
    assert_eq!((status, &refused["detail"]["error_code"]), (422, &json!("invalid_response")), "{refused}");
    let told = &refused["detail"]["fields"];
    assert_eq!(told["n"], "99 is greater than the maximum of 9", "{refused}");
    assert!(told["env"].as_str().is_some_and(|words| words.starts_with("`Mars` is not one of")), "{refused}");
    assert_eq!(live.row(&request_id)["status"], "pending");
    let right = json!({ "answers": { "env": ["Production, east"], "n": ["3"] } });
    let (status, answer) = browser.respond("s", &request_id, &right);
    assert_eq!((status, &answer["won"]), (200, &json!(true)), "{answer}");
    let sent = parsed(&live.at_server());
    assert_eq!(sent["result"]["content"], json!({ "env": "prod", "n": 3 }));
    live.kill();
}

#[test]
fn questions_take_options_and_hide_secrets() {
    let (mut live, _page, browser) = opened("");
    let request_id = live.asked(&question_asked("5", true), "5");
    let request = only(&browser);
    assert_eq!(
        (&request["fields"][0]["is_secret"], &request["choices"][0]["word"]),
        (&json!(true), &json!("answer")),
        "{request}"
    );
    let (status, answer) = browser.respond("s", &request_id, &json!({ "answers": { "color": ["hunter2"] } }));
    assert_eq!(status, 200, "{answer}");
    assert!(!answer.to_string().contains("hunter2"), "{answer}");
    assert_eq!(parsed(&live.at_server())["result"]["answers"]["color"], json!({ "answers": ["hunter2"] }));
    live.kill();
}

#[test]
fn what_is_not_offered_is_not_sent() {
    let (mut live, _page, browser) = opened("");
    let request_id = live.asked(&permissions_asked("6"), "6");
    let request = only(&browser);
    let danger = request["choices"][0]["confirm"].as_str().expect("a danger");
    assert!(danger.contains("it reaches the network"), "{request}");
    let more = json!({ "body": { "permissions": { "network": { "enabled": true }, "fileSystem": { "write": ["/"] } }, "scope": "session" } });
    for body in [more, json!({ "body": { "decision": "accept" } }), json!({ "body": null }), json!({ "reason": "no" })]
    {
        let (status, refused) = browser.respond("s", &request_id, &body);
        assert_eq!(status, 422, "{body}: {refused}");
    }
    for body in [json!({}), json!({ "decision": "accept" }), json!({ "body": {}, "reason": "" }), json!([])] {
        let (status, refused) = browser.respond("s", &request_id, &body);
        assert_eq!(status, 400, "{body}: {refused}");
    }
    assert_eq!(live.row(&request_id)["status"], "pending");
    live.kill();
}

#[test]
fn loser_of_a_race_sees_who_won() {
    let (mut live, _page, browser) = opened("");
    let request_id = live.asked(&command_asked("7", "t"), "7");
    let request = only(&browser);
    told(&live.tool(&["respond", &request_id, "--json", r#"{"decision":"decline"}"#]));
    let (status, lost) = browser.respond("s", &request_id, &offered(&request, "accept"));
    assert_eq!((status, &lost["won"], &lost["outcome"]), (200, &json!(false), &json!("declined")), "{lost}");
    assert!(
        lost["ending"].as_str().is_some_and(|words| words.starts_with("answered by `codex-shim respond`: ")),
        "{lost}"
    );
    let (status, same) = browser.respond("s", &request_id, &offered(&request, "decline"));
    assert_eq!((status, &same["won"]), (200, &json!(true)), "{same}");
    let answers = live.answers(&request_id, 3);
    let of_page: Vec<&Value> = answers.iter().filter(|answer| answer["source"] == "web").collect();
    assert!(of_page.len() == 2 && of_page.iter().all(|answer| answer["won"] == false), "{answers:?}");
    let (status, unknown) = browser.respond("s", "000000000000-1", &offered(&request, "accept"));
    assert_eq!((status, &unknown["detail"]["error_code"]), (404, &json!("request_not_found")), "{unknown}");
    live.kill();
}

#[test]
fn killed_relay_is_noticed_and_so_is_the_next() {
    let (mut live, _page, browser) = opened("");
    live.asked(&command_asked("7", "t"), "7");
    let mut tab = browser.stream("/stream?session=s", None);
    let request = tab.wait_for("inbox")["requests"][0].clone();
    let request_id = request["request_id"].as_str().expect("an id").to_owned();
    tab.wait_for("timeline");
    let home = live.kill();
    let ended = tab.wait_for("ended");
    assert_eq!((&ended["request_id"], &ended["outcome"]), (&json!(request_id), &json!("unknown")), "{ended}");
    let (status, refused) = browser.respond("s", &request_id, &offered(&request, "accept"));
    assert_eq!((status, &refused["detail"]["error_code"]), (409, &json!("session_stopped")), "{refused}");
    let mut live = Live::start_in(home).initialize();
    let next = live.asked(&command_asked("7", "t"), "7");
    let request = tab.wait_for("request");
    assert_eq!(request["request_id"], json!(next));
    let (_, answer) = browser.respond("s", &next, &offered(&request, "accept"));
    assert_eq!(answer["won"], true, "{answer}");
    // The timeline goes on in the next run.
    live.say_plainly(&said("a", "after the restart"));
    wait_for_body(&mut tab, "after the restart");
    live.kill();
}

/// Reads entries until one has this body.
fn wait_for_body(tab: &mut Stream, body: &str) {
    loop {
        let entries = tab.wait_for("entries");
        if entries["entries"].as_array().expect("an array").iter().any(|entry| entry["body"] == body) {
            return;
        }
    }
}

#[test]
fn stopped_session_has_a_timeline_and_takes_nothing() {
    let (mut live, _page, browser) = opened("");
    live.say_plainly(&said("a", "before the end"));
    live.say_plainly(&said("b", "the last words"));
    let _home = live.kill();
    let inbox = browser.get("/inbox");
    let session = &inbox["sessions"][0];
    assert_eq!(
        (&session["id"], &session["state"], &session["is_live"]),
        (&json!("s"), &json!("stopped"), &json!(false))
    );
    let mut tab = browser.stream("/stream?session=s", None);
    let entries = tab.wait_for("timeline")["entries"].clone();
    let bodies: Vec<&Value> = entries.as_array().expect("an array").iter().map(|entry| &entry["body"]).collect();
    assert!(bodies.ends_with(&[&json!("before the end"), &json!("the last words")]), "{bodies:?}");
    let page = browser.get("/sessions/s/timeline?limit=1");
    assert_eq!((&page["entries"][0]["body"], &page["has_older"]), (&json!("the last words"), &json!(true)));
    let key = page["entries"][0]["key"].as_str().expect("a key");
    let older = browser.get(&format!("/sessions/s/timeline?before={key}&limit=500"));
    let last = older["entries"].as_array().and_then(|entries| entries.last()).expect("an entry");
    assert_eq!((&last["body"], &older["has_older"]), (&json!("before the end"), &json!(false)), "{older}");
    assert_eq!(browser.get(&format!("/sessions/s/entry?key={key}")), page["entries"][0]);
    for path in ["input", "interrupt"] {
        let body = if path == "input" { json!({ "text": "hi" }) } else { json!({}) };
        let (status, refused) = browser.post(&format!("/sessions/s/{path}"), &body);
        assert_eq!((status, &refused["detail"]["error_code"]), (409, &json!("session_stopped")), "{refused}");
    }
}

#[test]
fn reconnect_neither_misses_nor_repeats() {
    let (mut live, _page, browser) = opened("");
    live.say_plainly(&said("a", "first"));
    let mut tab = browser.stream("/stream?session=s", None);
    let first = tab.wait_for("timeline");
    let key = first["entries"].as_array().and_then(|entries| entries.last()).expect("an entry")["key"].clone();
    live.say_plainly(&said("b", "second"));
    wait_for_body(&mut tab, "second");
    let last_id = tab.last_id.clone().expect("an id");
    drop(tab);
    live.say_plainly(&said("c", "third"));
    let mut again = browser.stream("/stream?session=s", Some(&last_id));
    let entries = again.wait_for("entries")["entries"].clone();
    let bodies: Vec<&Value> = entries.as_array().expect("an array").iter().map(|entry| &entry["body"]).collect();
    assert_eq!(bodies, [&json!("third")]);
    assert!(entries[0]["key"].as_str() > key.as_str(), "{entries}");
    // An id of another follower starts from the window.
    for unknown in ["1.1", "x", "", "99999999999999999999.7"] {
        let mut other = browser.stream("/stream?session=s", Some(unknown));
        let all = other.wait_for("timeline")["entries"].clone();
        assert_eq!(all.as_array().and_then(|all| all.last()).expect("an entry")["body"], "third", "{unknown}");
    }
    live.kill();
}

#[test]
fn long_storms_leave_a_bounded_window() {
    let (mut live, _page, browser) = opened("");
    let mut tab = browser.stream("/stream?session=s", None);
    tab.wait_for("timeline");
    for number in 0..3_000 {
        live.say_plainly(&said(&format!("i{number}"), &format!("m{number}")));
    }
    wait_for_body(&mut tab, "m2999");
    let mut late = browser.stream("/stream?session=s", None);
    let window = late.wait_for("timeline");
    assert_eq!((window["entries"].as_array().map(Vec::len), &window["has_older"]), (Some(200), &json!(true)));
    let mut key = window["entries"][0]["key"].as_str().expect("a key").to_owned();
    let mut seen = 200;
    loop {
        let page = browser.get(&format!("/sessions/s/timeline?before={key}&limit=500"));
        let entries = page["entries"].as_array().expect("an array");
        assert!(entries.iter().all(|entry| entry["key"].as_str() < Some(&key)));
        seen += entries.iter().filter(|entry| entry["kind"] == "codex").count();
        if page["has_older"] == false {
            break;
        }
        key = entries[0]["key"].as_str().expect("a key").to_owned();
    }
    assert_eq!(seen, 3_000);
    live.kill();
}

#[test]
fn messages_and_interruptions_reach_codex() {
    let (mut live, _page, browser) = opened("");
    live.say_plainly(&turn_started("t", "u"));
    let post = |path: &'static str, body: Value| {
        let (port, base, cookie) = (browser.port, browser.base.clone(), browser.cookie.clone());
        std::thread::spawn(move || Browser { port, base, cookie }.post(&format!("/sessions/s/{path}"), &body))
    };
    let stopping = post("interrupt", json!({ "thread_id": "t" }));
    let call = parsed(&live.at_server());
    assert_eq!((&call["method"], &call["params"]["turnId"]), (&json!("turn/interrupt"), &json!("u")));
    live.say_unseen(&json!({ "id": call["id"], "result": {} }).to_string());
    assert_eq!(stopping.join().expect("it ends"), (200, json!({ "ok": true, "thread_id": "t" })));
    live.asked(&command_asked("7", "t"), "7");
    let (status, gated) = browser.post("/sessions/s/input", &json!({ "text": "hi", "thread_id": "t" }));
    assert_eq!((status, &gated["detail"]["error_code"]), (409, &json!("pending_structured_request")), "{gated}");
    live.kill();
}

#[test]
fn message_starts_a_turn_in_the_chosen_thread() {
    let (mut live, _page, browser) = opened("");
    for thread in ["t", "other"] {
        live.say_plainly(&turn_started(thread, "u"));
        live.say_plainly(&format!(
            r#"{{"method":"turn/completed","params":{{"threadId":"{thread}","turn":{{"id":"u","status":"completed"}}}}}}"#
        ));
    }
    let threads = eventually("two threads", || {
        let threads = browser.get("/inbox")["sessions"][0]["threads"].take();
        (threads.as_array().map(Vec::len) == Some(2)).then_some(threads)
    });
    assert!(threads.as_array().is_some_and(|all| all.iter().all(|one| one["words"] == "Idle")), "{threads}");
    // The last turn that started was in the other thread.
    for (named, expect) in [(json!({ "thread_id": "t" }), "t"), (json!({}), "other")] {
        let mut body = json!({ "text": "run <b>it</b>" });
        body.as_object_mut().expect("an object").extend(named.as_object().expect("an object").clone());
        let (port, base, cookie) = (browser.port, browser.base.clone(), browser.cookie.clone());
        let sending = std::thread::spawn(move || Browser { port, base, cookie }.post("/sessions/s/input", &body));
        let call = parsed(&live.at_server());
        assert_eq!((&call["method"], &call["params"]["threadId"]), (&json!("turn/start"), &json!(expect)), "{call}");
        assert!(call["params"]["input"].to_string().contains("run <b>it</b>"), "{call}");
        let result = json!({ "id": call["id"], "result": { "turn": { "id": "v", "items": [] } } });
        live.say_unseen(&result.to_string());
        let (status, told) = sending.join().expect("it ends");
        assert_eq!((status, &told["thread_id"], &told["turn_id"]), (200, &json!(expect), &json!("v")), "{told}");
        live.say_plainly(&format!(
            r#"{{"method":"turn/completed","params":{{"threadId":"{expect}","turn":{{"id":"v","status":"completed"}}}}}}"#
        ));
    }
    live.kill();
}

#[test]
fn silent_relay_is_named_and_nothing_is_sent() {
    let (mut live, _page, browser) = opened("");
    let request_id = live.asked(&command_asked("7", "t"), "7");
    let request = only(&browser);
    let pid = Pid::from_child(&live.relay);
    stop(pid);
    let (status, refused) = browser.respond("s", &request_id, &offered(&request, "accept"));
    assert_eq!((status, &refused["detail"]["error_code"]), (502, &json!("session_silent")), "{refused}");
    let session = || browser.get("/inbox")["sessions"][0].clone();
    let problem = || Some(session()).filter(|session| !session["problem"].is_null());
    let told = eventually("a problem", problem);
    let session_now = session;
    let session = told;
    assert_eq!(session["state"], "unknown", "{session}");
    assert!(session["problem"].as_str().is_some_and(|words| words.contains("does not answer")), "{session}");
    kill_process(pid, Signal::CONT).expect("it is there");
    eventually("an answer", || session_now()["problem"].is_null().then_some(()));
    // Nothing has come between: the request still waits.
    assert_eq!(only(&browser)["request_id"], json!(request_id));
    live.kill();
}

/// A stopped session has a timeline too.
#[test]
fn timeline_appears_once_another_tab_closes() {
    let (mut live, page, browser) = opened("");
    live.say_plainly(&said("a", "in every session"));
    let home = live.kill();
    let sessions = home.path().join("sessions");
    let names: Vec<String> = (0..17).map(|number| format!("s{number}")).collect();
    for name in &names {
        let copied =
            std::process::Command::new("cp").arg("-r").args([sessions.join("s"), sessions.join(name)]).status();
        assert!(copied.expect("it starts").success());
    }
    let open = |name: &String| browser.stream(&format!("/stream?session={name}"), None);
    let mut tabs: Vec<Stream> = names[..16].iter().map(open).collect();
    tabs.iter_mut().for_each(|tab| drop(tab.wait_for("timeline")));
    let mut late = open(&names[16]);
    let problem = late.wait_for("problem");
    assert_eq!(problem["session"], names[16].as_str());
    assert!(problem["message"].as_str().is_some_and(|words| words.starts_with("too many sessions")), "{problem}");
    late.wait_for("inbox");
    tabs.pop();
    // The stream of a tab without a timeline has an event every few seconds, without end.
    let found = (0..10).find_map(|_| late.next().filter(|(name, _)| name == "timeline"));
    let (_, timeline) = found.expect("a timeline");
    let last = timeline["entries"].as_array().and_then(|all| all.last()).expect("an entry");
    assert_eq!(last["body"], "in every session");
    drop(page);
}

#[test]
fn two_sessions_stand_in_one_inbox() {
    let mut live = Live::initialized("");
    live.asked(&command_asked("7", "t"), "7");
    let page = Page::start(&live.home, &[]);
    let browser = page.browser();
    let mut tab = browser.stream("/stream", None);
    tab.wait_for("inbox");
    let script = format!(
        "read -r line; printf '%s\\n' '{}'; printf '%s\\n' '{}'; cat > /dev/null",
        r#"{"id":0,"result":{"userAgent":"x/0.150.0 (x)"}}"#,
        command_asked("3", "other").replace('\'', "")
    );
    let mut other = live
        .home
        .shim(&["run", "--session", "b", "--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the shim starts");
    let initialize = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"second","version":"1"}}}"#;
    let stdin = other.stdin.as_mut().expect("it is piped");
    std::io::Write::write_all(stdin, format!("{initialize}\n").as_bytes()).expect("it reads");
    let request = tab.wait_for("request");
    assert_eq!((&request["session"], &request["thread_id"]), (&json!("b"), &json!("other")), "{request}");
    assert_eq!(browser.get("/inbox")["requests"].as_array().map(Vec::len), Some(2));
    other.kill().expect("it runs");
    other.wait().expect("it is ours");
    live.kill();
}

/// A hub in session `h` with the scripted server; both end with the test.
struct Hub {
    home: Home,
    process: Child,
}

impl Hub {
    fn start() -> Hub {
        let home = Home::new();
        let codex = FakeServer::program(home.beside());
        let codex_home = home.beside().join("codex-home");
        fs::create_dir(&codex_home).expect("a folder");
        let mut command = home.shim(&["hub", "--session", "h"]);
        command.current_dir(home.beside()).env("CODEX_HOME", codex_home).env("HOME", home.beside());
        command.env("CODEX_SHIM_CODEX", &codex).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("the shim starts");
        let hub = Hub { home, process };
        eventually("the hub", || {
            let answer = client::get(&hub.session(), "/sessions/self").ok()?;
            let document: Value = serde_json::from_slice(&answer.body).ok()?;
            (!document["server"].is_null()).then_some(())
        });
        hub
    }

    fn session(&self) -> std::path::PathBuf {
        self.home.path().join("sessions/h")
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let record = fs::read(self.session().join("server.json")).unwrap_or_default();
        let record: Value = serde_json::from_slice(&record).unwrap_or_default();
        let pid = [&record["server"]["pid"], &record["launcher"]["pid"]].into_iter().find_map(Value::as_i64);
        let is_ours = |pid: &i64| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("scripted_server")
        };
        if let Some(pid) = pid.filter(is_ours).and_then(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn request_of_a_hub_is_answered_from_the_page() {
    let hub = Hub::start();
    let mut client = Client::connect(&hub.session().join("codex.sock"));
    client.initialize("terminal");
    client.call("thread/resume", json!({ "threadId": "t" }));
    let mut server = FakeServer::at(&hub.session().join("server.sock"));
    let asked = parsed(&command_asked("0", "t"))["params"].take();
    let id = json!(server.ask("t", "item/commandExecution/requestApproval", asked));
    client.wait_for("the approval", |message| message["method"] == "item/commandExecution/requestApproval");
    let page = Page::start(&hub.home, &[]);
    let browser = page.browser();
    let request =
        eventually("the request", || browser.get("/inbox")["requests"].as_array().and_then(|all| all.first().cloned()));
    // The hub publishes its clients a moment after they have come.
    eventually("the client", || {
        let session = browser.get("/inbox")["sessions"][0].take();
        assert_eq!(session["is_hub"], true, "{session}");
        (session["clients"][0].as_str()?.starts_with("terminal")).then_some(())
    });
    let request_id = request["request_id"].as_str().expect("an id");
    let (status, answer) = browser.respond("h", request_id, &offered(&request, "accept"));
    assert_eq!((status, &answer["won"]), (200, &json!(true)), "{answer}");
    let resolved = client.wait_for("the end", |message| message["method"] == "serverRequest/resolved");
    assert_eq!(resolved["params"]["requestId"], id);
}
