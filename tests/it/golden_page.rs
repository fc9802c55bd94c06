//! Golden file of the web page: every path that it fetches, over a house with pending requests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use crate::golden::Golden;
use crate::golden_house::House;
use crate::support::page::{Answered, Browser, Page, asked};
use crate::support::shim::Home;
use crate::support::{PATIENCE, eventually};

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// A browser, and what it is told.
pub struct Tab<'a> {
    pub golden: &'a mut Golden,
    pub browser: &'a Browser,
}

impl Tab<'_> {
    fn put(&mut self, line: &str, body: &str, answered: &Answered) {
        self.golden.answer("the page", line, body, &format!("{}\r\n\r\n{}", answered.head, answered.body));
    }

    pub fn get(&mut self, path: &str) {
        let answered = self.browser.asked("GET", path, "");
        self.put(&format!("GET {}{path}", self.browser.base), "", &answered);
    }

    pub fn post(&mut self, path: &str, body: &str) {
        let answered = self.browser.asked("POST", path, body);
        self.put(&format!("POST {}{path}", self.browser.base), body, &answered);
    }

    /// A request with exactly these headers.
    fn bare(&mut self, line: &str, headers: &[(&str, &str)], body: &str) {
        let host = format!("127.0.0.1:{}", self.browser.port);
        let headers = [&[("Host", &*host)], headers].concat();
        let answered = asked(self.browser.port, line, &headers, body).expect("it is answered");
        self.put(line, body, &answered);
    }

    /// The events of these names of a stream, the first one of each, in their order.
    pub fn stream(&mut self, path: &str, names: &[&str]) {
        let Browser { port, base, cookie } = self.browser;
        let mut to = TcpStream::connect(("127.0.0.1", *port)).expect("it listens");
        to.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        write!(to, "GET {base}{path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n")
            .expect("it reads");
        self.golden.entry(&format!("GET {base}{path}   of the page"));
        let (mut wanted, mut name, mut id) = (names.to_vec(), String::new(), String::new());
        for line in BufReader::new(to).lines() {
            let line = line.expect("an event");
            match line.split_once(": ") {
                Some(("event", value)) => name = value.to_owned(),
                Some(("id", value)) => id = value.to_owned(),
                Some(("data", value)) if wanted.contains(&&*name) => {
                    wanted.retain(|wanted| *wanted != name);
                    self.golden.add(&format!("event: {name}\nid: {id}\n"));
                    self.golden.add(&format!("{value}\n"));
                    id.clear();
                }
                _ => {}
            }
            if wanted.is_empty() {
                return;
            }
        }
        panic!("the stream ended before {wanted:?}");
    }
}

/// A browser that has opened the link of a page.
pub fn signed_in(golden: &mut Golden, page: &Page) -> Browser {
    golden.names.know_number(page.port.into(), "port");
    golden.names.know(page.token.clone(), "token");
    let browser = page.browser();
    let (_, cookie) = browser.cookie.split_once('=').expect("a cookie");
    golden.names.know(cookie, "cookie");
    golden.names.know(browser.base.trim_start_matches("/api/"), "door");
    browser
}

/// The inbox once it has so many requests, and knows the state and the clients of each session.
pub fn inbox(browser: &Browser, count: usize) -> Value {
    eventually("the inbox", || {
        let inbox = browser.get("/inbox");
        let has_clients = |session: &Value| session["clients"].as_array().is_some_and(|all| !all.is_empty());
        let is_known =
            |session: &Value| session["is_live"] != true || session["state"].is_string() && has_clients(session);
        let is_all = inbox["sessions"].as_array()?.iter().all(is_known);
        (is_all && inbox["requests"].as_array()?.len() == count).then_some(inbox)
    })
}

fn sign_in(tab: &mut Tab<'_>, page: &Page) {
    let origin = page.origin();
    let headers = [("Origin", &*origin), JSON];
    for body in ["", "[]", r#"{"token":1}"#, r#"{"token":"0123456789abcdef0123456789abcdef"}"#] {
        tab.bare("POST /api/sign-in", &headers, body);
    }
    tab.bare("POST /api/sign-in", &headers[..1], "{}");
    tab.bare("POST /api/sign-in", &[("Origin", "http://evil.example"), JSON], "{}");
    for path in ["/", "/app.css", "/app.js"] {
        // Their content is no document.
        let host = format!("127.0.0.1:{}", page.port);
        let mut answered = page.asked(&format!("GET {path}"), &[("Host", &host)], "");
        assert!(answered.body.len() > 1_000, "{answered:?}");
        answered.body.clear();
        tab.put(&format!("GET {path}"), "", &answered);
    }
    tab.bare("GET /favicon.ico", &[], "");
    tab.bare("GET /nowhere", &[], "");
    tab.bare("GET /api/nobody/inbox", &[], "");
    tab.bare("GET /", &[("Sec-Fetch-Site", "cross-site")], "");
}

fn reads(tab: &mut Tab<'_>, change: &str) {
    inbox(tab.browser, 4);
    tab.get("/browsers");
    tab.get("/inbox");
    tab.post("/search", r#"{"query":"kind:message client:editor"}"#);
    tab.post("/search", r#"{"query":"kind:paint"}"#);
    tab.post("/search/complete", r#"{"query":"red kind:c"}"#);
    tab.stream("/stream", &["alive", "inbox"]);
    tab.stream("/stream?session=h", &["inbox", "timeline"]);
    tab.stream("/stream?session=h&thread=thread-red", &["timeline"]);
    tab.stream("/stream?session=bot", &["timeline"]);
    for path in [
        "/sessions/h/timeline",
        "/sessions/h/timeline?all",
        "/sessions/h/timeline?limit=2",
        "/sessions/h/timeline?thread=thread-blue",
        "/sessions/h/timeline?limit=0",
        "/sessions/h/timeline?before=x",
        "/sessions/h/timeline?nope=1",
        "/sessions/nope/timeline",
        "/sessions/done/timeline",
        "/sessions/bot/timeline",
        "/sessions/h/entry?key=x",
        "/sessions/h/entry",
        &format!("/sessions/h/requests/{change}/diff?file=0&from=1"),
        &format!("/sessions/h/requests/{change}/diff?file=1&from=0"),
        &format!("/sessions/h/requests/{change}/diff?file=x&from=0"),
        "/sessions/h/requests/nope/diff?file=0&from=0",
        "/stream?session=nope",
        "/stream?nope=1",
        "/nowhere",
    ] {
        tab.get(path);
    }
    let timeline = tab.browser.get("/sessions/h/timeline?all");
    for entry in timeline["entries"].as_array().expect("a list") {
        tab.get(&format!("/sessions/h/entry?key={}", entry["key"].as_str().expect("a key")));
    }
}

fn answers(tab: &mut Tab<'_>, house: &House) {
    let [command, question, change, form] =
        ["run rm", "Which?", "change ", "Your name?"].map(|part| house.request(part));
    let respond = |request: &str| {
        let session = if request == form { "bot" } else { "h" };
        format!("/sessions/{session}/requests/{request}/respond")
    };
    for body in
        ["", r#"{"decision":"accept"}"#, r#"{"body":{"decision":"perhaps"}}"#, r#"{"answers":{"color":["Red"]}}"#]
    {
        tab.post(&respond(&command), body);
    }
    tab.post("/sessions/h/requests/nope/respond", r#"{"reason":""}"#);
    tab.post("/sessions/nope/requests/nope/respond", r#"{"reason":""}"#);
    tab.post("/sessions/done/requests/nope/respond", r#"{"reason":""}"#);
    tab.post("/sessions/h/input", r#"{"text":"not now","thread_id":"thread-red"}"#);
    tab.post("/sessions/h/input", r#"{"words":"not now"}"#);
    tab.post("/sessions/h/interrupt", r#"{"thread_id":"thread-title"}"#);
    tab.post("/sessions/done/input", r#"{"text":"hello"}"#);
    tab.post(&respond(&command), r#"{"body":{"decision":"accept"}}"#);
    tab.post(&respond(&command), r#"{"body":{"decision":"accept"}}"#);
    tab.post(&respond(&command), r#"{"reason":"too late"}"#);
    tab.post(&respond(&question), r#"{"answers":{"color":[]}}"#);
    tab.post(&respond(&question), r#"{"answers":{"color":["Blue"]}}"#);
    tab.post(&respond(&change), r#"{"body":{"decision":"decline"}}"#);
    tab.get(&format!("/sessions/h/requests/{change}/diff?file=0&from=0"));
    for request in [&command, &question, &change] {
        let path = format!("/sessions/self/codex-requests/{request}");
        eventually("the end of the request", || {
            house.hub.get(&path)["request"]["confirmed_at"].is_string().then_some(())
        });
    }
    // The session that is used last is the first one.
    house.is_later();
    tab.post(&respond(&form), r#"{"answers":{"name":[""]}}"#);
    tab.post(&respond(&form), r#"{"answers":{"name":["Ada"]}}"#);
    // Turns that are silent for some seconds are thinking.
    eventually("silent turns", || {
        let inbox = inbox(tab.browser, 0);
        let mut live = inbox["sessions"].as_array()?.iter().filter(|session| session["is_live"] == true);
        let is_silent = |row: &Value| row["state"] == "thinking";
        live.all(|session| {
            is_silent(session) && session["threads"].as_array().is_none_or(|all| all.iter().all(is_silent))
        })
        .then_some(())
    });
    tab.get("/inbox");
    tab.post("/sessions/h/input", r#"{"text":"go on","thread_id":"thread-red"}"#);
    tab.get("/browsers/1/sign-out");
    tab.post("/browsers/7/sign-out", "{}");
    tab.post("/browsers/x/sign-out", "{}");
    tab.post("/browsers/1/sign-out", "{}");
    tab.get("/inbox");
}

#[test]
fn page_answers_as_before() {
    let house = House::start(Home::new());
    let mut golden = Golden::new("page", None);
    house.named(&mut golden);
    let page = Page::start(&house.hub.home, &[]);
    let browser = signed_in(&mut golden, &page);
    let mut tab = Tab { golden: &mut golden, browser: &browser };
    sign_in(&mut tab, &page);
    let change = house.request("change ");
    reads(&mut tab, &change);
    answers(&mut tab, &house);
    golden.check();
}
