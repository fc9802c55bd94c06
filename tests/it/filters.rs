//! One query in all places: the same filter finds the same things by `search`, `requests`, `events`, in the timeline of the
//! terminal UI, and on the page. The home has two sessions, each with a thread of another client in another folder.

use std::collections::{BTreeMap, BTreeSet};

use codex_shim::testing::sessions::found_in_timeline;
use regex::Regex;
use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, text, told, tool};
use crate::support::page::{Browser, Page};
use crate::support::pane::Pane;
use crate::support::requests::respond_path;
use crate::support::shim::Home;

/// A session whose client has one thread.
struct Thread {
    live: Live,
    id: &'static str,
    requests: u64,
}

impl Thread {
    fn start(home: Home, session: &str, client: &str, id: &'static str, folder: &str) -> Thread {
        let mut live = Live::start_in_session(home, session);
        let info = json!({ "name": client, "version": "1" });
        live.send(&json!({ "id": 0, "method": "initialize", "params": { "clientInfo": info } }).to_string());
        live.say_plainly(r#"{"id":0,"result":{"userAgent":"x/0.169.0 (Debian; x86_64) dumb"}}"#);
        live.send(r#"{"id":1,"method":"thread/start","params":{}}"#);
        let thread = json!({ "id": id, "cwd": folder, "threadSource": "user", "createdAt": 7 });
        live.say_plainly(&json!({ "id": 1, "result": { "thread": thread, "model": "m", "cwd": folder } }).to_string());
        live.turn(2, id);
        live.take_turn(2);
        let turn = json!({ "id": "u2", "items": [] });
        let mut thread = Thread { live, id, requests: 10 };
        thread.tells("turn/started", json!({ "turn": turn }));
        thread
    }

    fn tells(&mut self, method: &str, mut params: Value) {
        params["threadId"] = json!(self.id);
        self.live.say_plainly(&json!({ "method": method, "params": params }).to_string());
    }

    fn ends(&mut self, item: Value) {
        self.tells("item/completed", json!({ "turnId": "u2", "item": item }));
    }

    fn command(&mut self, name: &str, status: &str, exit_code: u64) {
        self.ends(json!({
            "type": "commandExecution", "id": name, "command": format!("/bin/bash -lc 'make {name}'"), "cwd": "/w",
            "status": status, "exitCode": exit_code, "aggregatedOutput": "some output\n",
        }));
    }

    /// The server asks; returns the id of its request.
    fn asks(&mut self, method: &str, mut params: Value) -> u64 {
        self.requests += 1;
        params["threadId"] = json!(self.id);
        params["turnId"] = json!("u2");
        self.live.say(&json!({ "id": self.requests, "method": method, "params": params }).to_string());
        self.requests
    }

    fn asks_for_command(&mut self, name: &str) -> u64 {
        let params = json!({ "itemId": name, "command": format!("/bin/bash -lc 'make {name}'"), "cwd": "/w" });
        self.asks("item/commandExecution/requestApproval", params)
    }

    fn client_answers(&mut self, id: u64, result: &Value) {
        self.live.send(&json!({ "id": id, "result": result }).to_string());
    }
}

/// The home. Each thing has a name that stands in its words and is the id of its item.
fn filled() -> Home {
    let mut one = Thread::start(Home::new(), "one", "codex_vscode", "t1", "/w/alpha");
    one.tells("thread/name/updated", json!({ "threadName": "Fix the build" }));
    one.ends(json!({ "type": "agentMessage", "id": "m1", "text": "I will make m1" }));
    one.command("c1ok", "completed", 0);
    one.command("c1fail", "failed", 2);
    one.command("c1no", "declined", 0);
    let changes = json!([{ "path": "/w/alpha/f1.rs", "kind": { "type": "add" }, "diff": "make\n" }]);
    one.ends(json!({ "type": "fileChange", "id": "f1", "status": "completed", "changes": changes }));
    let yes = one.asks_for_command("r1yes");
    one.client_answers(yes, &json!({ "decision": "accept" }));
    let no = one.asks_for_command("r1no");
    one.client_answers(no, &json!({ "decision": "decline" }));
    let cancelled = one.asks_for_command("r1stop");
    one.client_answers(cancelled, &json!({ "decision": "cancel" }));
    let tui = one.asks_for_command("r1tui");
    let line =
        format!("POST {}\r\nX-Codex-Shim-Source: tui", respond_path(&format!("{}-{tui}", one.live.generation())));
    assert_eq!(one.live.http(&line, br#"{"decision":"accept"}"#).0, 200);
    one.live.at_server();
    let question = json!({ "id": "q", "header": "Q", "question": "Shall I make r1ask?", "options": null });
    let params = json!({ "itemId": "r1ask", "questions": [question] });
    let asked = one.asks("item/tool/requestUserInput", params);
    one.client_answers(asked, &json!({ "answers": { "q": { "answers": ["now"] } } }));
    let gone = one.asks_for_command("r1gone");
    one.tells("serverRequest/resolved", json!({ "requestId": gone }));
    let home = one.live.end_quietly();
    let mut two = Thread::start(home, "two", "codex-tui", "t2", "/w/beta/sub");
    two.command("c2ok", "completed", 0);
    let yes = two.asks_for_command("r2yes");
    two.client_answers(yes, &json!({ "decision": "accept" }));
    two.asks_for_command("r2left");
    two.live.kill()
}

/// The names in a text, of which each thing has one.
fn name_in(text: &str) -> Option<String> {
    let names = Regex::new(r"\b[mcfr][12][a-z]*\b").expect("BUG: it is valid");
    names.find(text).map(|found| found.as_str().to_owned())
}

type Names = BTreeSet<String>;

/// The things that each place finds.
fn found(home: &Home, query: &str, browser: &Browser) -> BTreeMap<&'static str, Names> {
    let listed = |document: &Value, list: &str| document[list].as_array().expect("a list").clone();
    let of_search = |document: &Value| -> Names {
        let matches = listed(document, "matches");
        matches.iter().filter_map(|hit| name_in(&format!("{} {}", hit["of"], hit["line"]))).collect()
    };
    let search = of_search(&told(&tool(home, &["search", "--json", "-n", "500", "--", query])));
    let rows = listed(&told(&tool(home, &["requests", "--all", "--json", "--filter", query])), "requests");
    let requests = rows.iter().filter_map(|row| name_in(&text(&row["summary"]))).collect();
    let all = listed(&told(&tool(home, &["requests", "--all", "--json"])), "requests");
    let (mut events, mut timeline) = (Names::new(), Names::new());
    for session in ["one", "two"] {
        let document = told(&tool(home, &["events", session, "--json", "-n", "1000", "--filter", query]));
        for event in listed(&document, "events") {
            let of_request = all.iter().find(|row| row["request_id"] == event["payload_preview"]["request_id"]);
            events.extend(match text(&event["event_type"]).as_str() {
                "request_resolved" => of_request.and_then(|row| name_in(&text(&row["summary"]))),
                "item/completed" => event["item_id"].as_str().map(str::to_owned),
                method if method.starts_with("item/") => event["item_id"].as_str().map(str::to_owned),
                _ => None,
            });
        }
        let entries = found_in_timeline(&home.path(), session, query).expect("it is valid");
        timeline.extend(entries.iter().filter_map(|entry| name_in(entry)));
    }
    let (status, document) = browser.post("/search", &json!({ "query": query, "limit": 500 }));
    assert_eq!((status, &document["errors"]), (200, &json!([])), "{document}");
    let page = of_search(&document);
    BTreeMap::from([
        ("search", search),
        ("requests", requests),
        ("events", events),
        ("timeline", timeline),
        ("page", page),
    ])
}

/// Queries, what they mean, and the requests among it that have no end on record, which only some places have.
const QUERIES: &[(&str, &str)] = &[
    ("kind:message", "m1"),
    ("kind:diff", "f1"),
    ("kind:questions", "r1ask"),
    ("kind:request kind:message", "m1 r1yes r1no r1stop r1tui r1ask r1gone r2yes r2left"),
    ("kind:command", "c1ok c1fail c1no c2ok r1yes r1no r1stop r1tui r1gone r2yes r2left"),
    ("kind:permissions", ""),
    ("status:completed", "c1ok f1 c2ok"),
    ("status:failed", "c1fail"),
    ("STATUS:Declined", "c1no r1no"),
    ("status:declined kind:request", "r1no"),
    ("status:accepted", "r1yes r1tui r2yes"),
    ("status:cancelled status:answered", "r1stop r1ask"),
    ("status:withdrawn", "r1gone"),
    ("status:orphaned", "r2left"),
    ("status:pending", ""),
    ("by:tui", "r1tui"),
    ("by:client", "r1yes r1no r1stop r1ask r2yes"),
    ("by:codex_vscode", "r1yes r1no r1stop r1ask"),
    ("by:server", "r1gone"),
    ("by:nobody", "r1gone r2left"),
    ("client:vscode status:failed", "c1fail"),
    ("client:codex-tui kind:command", "c2ok r2yes r2left"),
    ("client:nobody kind:command", ""),
    ("folder:/w/beta kind:command", "c2ok r2yes r2left"),
    ("folder:/w/be kind:command", ""),
    ("folder:sub status:accepted", "r2yes"),
    ("folder:/w status:accepted", "r1yes r1tui r2yes"),
    ("thread:t2 status:completed", "c2ok"),
    ("thread:\"the build\" kind:diff", "f1"),
    ("since:1d status:failed", "c1fail"),
    ("since:2100-01-01 status:failed", ""),
    ("make status:completed", "c1ok f1 c2ok"),
    ("make r1*", "r1yes r1no r1stop r1tui r1ask r1gone"),
    ("\"make c1ok\"", "c1ok"),
    ("\"kind:command\"", ""),
];

#[test]
fn query_means_the_same_everywhere() {
    let home = filled();
    let page = Page::start(&home, &[]);
    let browser = page.browser();
    let mut wrong = Vec::new();
    for (query, expect) in QUERIES {
        let expect: Names = expect.split_whitespace().map(str::to_owned).collect();
        for (place, found) in found(&home, query, &browser) {
            let of_place = |name: &&String| match place {
                "requests" => name.starts_with('r'),
                // The relay was killed: only the ledger knows how the request ended.
                "search" | "page" => *name != "r2left",
                "events" => *name != "r2left" || !["status:", "by:"].iter().any(|key| query.contains(key)),
                _ => true,
            };
            let expect: Names = expect.iter().filter(of_place).cloned().collect();
            if found != expect {
                wrong.push(format!("{query} by {place}: {found:?}, not {expect:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn wrong_filters_are_refused_everywhere() {
    let mut one = Thread::start(Home::new(), "one", "ide", "t1", "/w");
    one.command("c1", "completed", 0);
    let home = one.live.end_quietly();
    let why = "kind:foo: there is no such kind; kinds are message, command";
    for args in [
        &["search", "x", "kind:foo"][..],
        &["events", "one", "--filter", "kind:foo"],
        &["requests", "--all", "--filter", "kind:foo"],
    ] {
        failed(&tool(&home, args), 2, why);
    }
    let page = Page::start(&home, &[]);
    let browser = page.browser();
    for (query, code) in [("kind:foo", "invalid_filter"), (" ", "invalid_filter"), ("folder:./x", "invalid_filter")] {
        let refused = browser.asked("POST", "/search", &json!({ "query": query }).to_string());
        assert_eq!(refused.error(), (400, code.to_owned()));
    }
    let refused = browser.asked("POST", "/search", &json!({ "query": "x", "limit": 0 }).to_string());
    assert_eq!(refused.error(), (400, "invalid_parameter".to_owned()));
    let (status, offered) = browser.post("/search/complete", &json!({ "query": "x client:" }));
    assert_eq!((status, offered), (200, json!({ "completions": ["x client:ide"] })));
    let stranger = page.asked("POST /api/nodoor/search", &[("Host", &page.origin()[7..])], "{}");
    assert!(matches!(stranger.status, 401 | 403 | 415), "{stranger:?}");
}

#[test]
fn line_of_the_terminal_ui_takes_filters() {
    let mut one = Thread::start(Home::new(), "one", "ide", "t1", "/w/proj");
    one.command("c1fail", "failed", 2);
    one.command("c1ok", "completed", 0);
    let home = one.live.end_quietly();
    let mut pane = Pane::start(&home, &[crate::support::shim::SHIM, "tui", "one"]);
    pane.shows("c1ok");
    pane.types("\t");
    pane.shows("timeline");
    pane.types("/sta\tf\t");
    pane.shows("status:failed");
    pane.types("x\r");
    pane.shows("there is no such status");
    pane.types("\u{7f} folder:other\r");
    pane.shows("matches `status:failed folder:other`");
    assert_eq!(pane.leaves(), 0);
}
