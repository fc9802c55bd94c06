//! `codex-shim web`: access, and the refusals of all other requests.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::{Live, failed, told, tool};
use crate::support::page::{Answered, Browser, Page, asked, links};
use crate::support::requests::{assert_nowhere, command_asked};
use crate::support::shim::{Home, put_program};
use crate::support::{PATIENCE, eventually};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn pid_of(page: &Page) -> Pid {
    Pid::from_child(&page.child)
}

/// A relay that waits for an answer, and a browser; returns the request's name.
fn waiting() -> (Live, Page, Browser, String) {
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("7", "t"), "7");
    let page = Page::start(&live.home, &[]);
    let browser = page.browser();
    (live, page, browser, request_id)
}

/// The request still waits.
#[track_caller]
fn is_untouched(live: &Live, request_id: &str) {
    assert_eq!(live.row(request_id)["status"], "pending");
}

#[test]
fn link_signs_in_once() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let (origin, token) = (page.origin(), json!({ "token": page.token }).to_string());
    let sign_in = || page.asked("POST /api/sign-in", &[("Host", &origin[7..]), ("Origin", &origin), JSON], &token);
    let first = sign_in();
    assert_eq!(first.status, 200, "{first:?}");
    let cookie = first.header("set-cookie").expect("a cookie").to_owned();
    let base = first.json()["base"].as_str().expect("a path").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", &format!("Path={base}/")] {
        assert!(cookie.split("; ").any(|found| found == part), "{part}: {cookie}");
    }
    assert!(!cookie.contains("Secure") && !cookie.contains(&page.token), "{cookie}");
    assert_eq!(sign_in().error(), (403, "token_refused".to_owned()));
}

#[test]
fn wrong_tokens_are_refused_and_counted() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let origin = page.origin();
    let sign_in =
        |body: &str| page.asked("POST /api/sign-in", &[("Host", &origin[7..]), ("Origin", &origin), JSON], body);
    for body in [r#"{"token":""}"#, r#"{"token":"0123456789abcdef0123456789abcdef"}"#] {
        assert_eq!(sign_in(body).error(), (403, "token_refused".to_owned()), "{body}");
    }
    for body in ["", "[]", r#"["x"]"#, "{}", r#"{"token":1}"#, r#"{"token":"x","more":1}"#] {
        assert_eq!(sign_in(body).error(), (400, "invalid_body".to_owned()), "{body}");
    }
    let refused = eventually("a limit", || Some(sign_in(r#"{"token":"x"}"#)).filter(|answered| answered.status == 429));
    assert!(refused.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().is_ok()), "{refused:?}");
    // The user's own link still works.
    Browser::signed_in(page.port, &page.token);
}

#[test]
fn nothing_is_told_without_cookie_and_door() {
    let (live, page, browser, request_id) = waiting();
    let host = format!("127.0.0.1:{}", page.port);
    let other = {
        let link = links(&tool(&live.home, &["web", "--new-link", "--json"])).remove(0);
        Browser::signed_in(page.port, link.split_once("/#").expect("a token").1)
    };
    let door = &browser.base["/api/".len()..];
    let check = |base: &str, cookie: &str| {
        let diff = format!("/sessions/s/requests/{request_id}/diff?file=0&from=0");
        let paths = ["/inbox", "/stream", "/stream?session=s", "/sessions/s/timeline", &diff, "/nothing"];
        for path in paths {
            let answered = page.asked(&format!("GET {base}{path}"), &[("Host", &host), ("Cookie", cookie)], "");
            assert_eq!(answered.error(), (401, "signed_out".to_owned()), "{base}{path} {cookie}");
        }
        let respond = format!("POST {base}/sessions/s/requests/{request_id}/respond");
        let origin = page.origin();
        let headers = [("Host", &*host), ("Cookie", cookie), ("Origin", &origin), JSON];
        let answered = page.asked(&respond, &headers, r#"{"body":{"decision":"accept"}}"#);
        assert_eq!(answered.error(), (401, "signed_out".to_owned()), "{base} {cookie}");
    };
    check(&browser.base, "");
    check(&browser.base, "codex-shim-web=");
    check(&browser.base, &format!("codex-shim-web={door}"));
    check(&browser.base, &other.cookie);
    check("/api/x", &browser.cookie);
    check("/api/", &browser.cookie);
    check(&other.base, &browser.cookie);
    is_untouched(&live, &request_id);
    // Further cookies, which a page on another port can set, do not sign the browser out.
    let both = format!("codex-shim-web=x; {}; codex-shim-web=y", browser.cookie);
    let answered = page.asked(&format!("GET {}/inbox", browser.base), &[("Host", &host), ("Cookie", &both)], "");
    assert_eq!(answered.status, 200, "{answered:?}");
    live.kill();
}

#[test]
fn other_pages_can_neither_answer_nor_read() {
    let (live, page, browser, request_id) = waiting();
    let (own, host) = (page.origin(), format!("127.0.0.1:{}", page.port));
    let line = format!("POST {}/sessions/s/requests/{request_id}/respond", browser.base);
    let accept = r#"{"body":{"decision":"accept"}}"#;
    let with = |changed: &[(&str, Option<&str>)]| {
        let usual = [("Host", &*host), ("Origin", &own), ("Cookie", &browser.cookie), JSON];
        let left = usual.into_iter().filter(|(name, _)| !changed.iter().any(|(other, _)| other == name));
        let headers: Vec<(&str, &str)> =
            left.chain(changed.iter().filter_map(|(name, value)| Some((*name, (*value)?)))).collect();
        page.asked(&line, &headers, accept).error()
    };
    let other_port = format!("http://127.0.0.1:{}", page.port - 1);
    for origin in [None, Some("null"), Some("http://evil.example"), Some(&*other_port), Some("https://127.0.0.1")] {
        assert_eq!(with(&[("Origin", origin)]), (403, "origin_refused".to_owned()), "{origin:?}");
    }
    for host in ["evil.example", "127.0.0.1", "localhost", "127.0.0.1.nip.io", &other_port[7..]] {
        assert_eq!(with(&[("Host", Some(host))]), (403, "host_refused".to_owned()), "{host}");
    }
    assert_eq!(with(&[("Host", None)]), (403, "host_refused".to_owned()));
    // A rebound name is its own origin.
    let rebound = [("Host", Some("evil.example")), ("Origin", Some("http://evil.example"))];
    assert_eq!(with(&rebound), (403, "host_refused".to_owned()));
    for site in ["cross-site", "same-site", "none"] {
        assert_eq!(with(&[("Sec-Fetch-Site", Some(site))]), (403, "site_refused".to_owned()), "{site}");
    }
    for kind in
        [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("text/plain; application/json")]
    {
        assert_eq!(with(&[("Content-Type", kind)]), (415, "json_only".to_owned()), "{kind:?}");
    }
    let read = |headers: &[(&str, &str)]| {
        let headers = [&[("Host", &*host), ("Cookie", &*browser.cookie)], headers].concat();
        page.asked(&format!("GET {}/inbox", browser.base), &headers, "").status
    };
    assert_eq!((read(&[("Origin", "http://evil.example")]), read(&[("Sec-Fetch-Site", "same-site")])), (403, 403));
    is_untouched(&live, &request_id);
    assert_eq!(read(&[("Sec-Fetch-Site", "same-origin")]), 200);
    live.kill();
}

#[test]
fn every_response_has_its_headers() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let browser = page.browser();
    let host = format!("127.0.0.1:{}", page.port);
    let check = |answered: &Answered, kept: &str| {
        let policy = answered.header("content-security-policy").expect("a policy");
        for part in ["default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"] {
            assert!(policy.contains(part), "{part}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        let has = |name: &str, value: &str| assert_eq!(answered.header(name), Some(value), "{answered:?}");
        has("x-frame-options", "DENY");
        has("referrer-policy", "no-referrer");
        has("x-content-type-options", "nosniff");
        has("cross-origin-resource-policy", "same-origin");
        has("cross-origin-opener-policy", "same-origin");
        has("cache-control", kept);
        assert!(!answered.head.to_lowercase().contains("access-control"), "{answered:?}");
    };
    let get = |path: &str| page.asked(&format!("GET {path}"), &[("Host", &host)], "");
    let kinds = [("/", "text/html"), ("/app.css", "text/css"), ("/app.js", "text/javascript")];
    for (path, kind) in kinds {
        let answered = get(path);
        assert_eq!(answered.status, 200, "{answered:?}");
        assert!(answered.header("content-type").is_some_and(|found| found.starts_with(kind)), "{answered:?}");
        check(&answered, "no-cache");
        let tag = answered.header("etag").expect("a tag");
        let again = page.asked(&format!("GET {path}"), &[("Host", &host), ("If-None-Match", tag)], "");
        assert_eq!((again.status, &*again.body), (304, ""));
    }
    check(&browser.asked("GET", "/inbox", ""), "no-store");
    check(&browser.asked("GET", "/nothing", ""), "no-store");
    check(&get("/api/x/inbox"), "no-store");
    check(&page.asked("GET /", &[("Host", "evil.example")], ""), "no-store");
    let preflight = [("Host", &*host), ("Origin", "http://evil.example"), ("Access-Control-Request-Method", "POST")];
    let answered = page.asked("OPTIONS /api/sign-in", &preflight, "");
    assert_eq!(answered.status, 403);
    check(&answered, "no-store");
}

#[test]
fn only_the_page_itself_is_there_without_cookie() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let host = format!("127.0.0.1:{}", page.port);
    for path in ["/index.html", "/app.js/", "/../Cargo.toml", "/%2e%2e/x", "//app.js", "/page/index.html", "/web.sock"]
    {
        let answered = page.asked(&format!("GET {path}"), &[("Host", &host)], "");
        assert_eq!(answered.error(), (404, "not_found".to_owned()), "{path}");
    }
    let post = [("Host", &*host), ("Origin", &page.origin()), JSON];
    assert_eq!(page.asked("POST /", &post, "{}").error(), (405, "method_not_allowed".to_owned()));
}

#[test]
fn paths_cannot_leave_their_session() {
    let (live, _page, browser, request_id) = waiting();
    let accept = r#"{"body":{"decision":"accept"}}"#;
    for session in ["..", "%2e%2e", "..%2fsessions%2fs", "s%2f..%2fs", "s%00", "S", "x", "self", "."] {
        let path = format!("/sessions/{session}/requests/{request_id}/respond");
        let answered = browser.asked("POST", &path, accept);
        assert_eq!(answered.status, 404, "{session}: {answered:?}");
        let diff = format!("/sessions/{session}/requests/{request_id}/diff?file=0&from=0");
        for path in [format!("/sessions/{session}/timeline"), diff] {
            let answered = browser.asked("GET", &path, "");
            assert_eq!(answered.status, 404, "{path}: {answered:?}");
        }
        let answered = browser.asked("GET", &format!("/stream?session={session}"), "");
        assert_eq!(answered.error(), (404, "session_not_found".to_owned()), "{session}");
    }
    let elsewhere = [
        "..%2f..%2finput".to_owned(),
        "%2e%2e".to_owned(),
        format!("{request_id}%2frespond%3f"),
        format!("{request_id}%0d%0aX:%20y"),
        format!("x%2f..%2f{request_id}"),
    ];
    for request_id in elsewhere {
        let answered = browser.asked("POST", &format!("/sessions/s/requests/{request_id}/respond"), accept);
        assert_eq!(answered.error(), (404, "request_not_found".to_owned()), "{request_id}");
        let answered = browser.asked("GET", &format!("/sessions/s/requests/{request_id}/diff?file=0&from=0"), "");
        assert_eq!(answered.error(), (404, "request_not_found".to_owned()), "{request_id}");
    }
    for query in ["before=../../x", "before=k.1", "limit=0", "limit=501", "limit=x", "limit=-1", "other=1"] {
        let answered = browser.asked("GET", &format!("/sessions/s/timeline?{query}"), "");
        assert_eq!(answered.error(), (400, "invalid_parameter".to_owned()), "{query}");
    }
    let answered = browser.asked("GET", "/sessions/s/entry?key=../../x", "");
    assert_eq!(answered.error(), (404, "entry_not_found".to_owned()));
    is_untouched(&live, &request_id);
    live.kill();
}

#[test]
fn large_bodies_and_heads_are_refused() {
    let (live, page, browser, request_id) = waiting();
    let long = "x".repeat((1 << 20) + 1);
    let answered = browser.asked("POST", "/sessions/s/input", &json!({ "text": long }).to_string());
    assert_eq!(answered.error(), (413, "body_too_large".to_owned()));
    let host = format!("127.0.0.1:{}", page.port);
    let header = "y".repeat(1 << 20);
    // hyper may close the connection while the head is still being written.
    let answered = asked(page.port, "GET /", &[("Host", &host), ("X", &header)], "");
    assert!(answered.is_none_or(|answered| answered.status == 431 || answered.status == 400));
    is_untouched(&live, &request_id);
    assert_eq!(browser.asked("GET", "/inbox", "").status, 200);
    live.kill();
}

/// Sends only the head of a POST that announces a long body; returns the status of the response.
fn status_before_body(page: &Page, line: &str, headers: &[(&str, &str)]) -> u16 {
    let mut stream = TcpStream::connect(("127.0.0.1", page.port)).expect("it listens");
    stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("it can be set");
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("{line} HTTP/1.1\r\n{headers}Content-Length: 1000000\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("a response to the head");
    String::from_utf8_lossy(&status[9..]).parse().expect("a status")
}

#[test]
fn refused_bodies_are_not_waited_for() {
    let (live, page, browser, request_id) = waiting();
    let (own, host) = (page.origin(), format!("127.0.0.1:{}", page.port));
    let line = format!("POST {}/sessions/s/requests/{request_id}/respond", browser.base);
    let usual = [("Host", &*host), ("Origin", &*own), ("Cookie", &*browser.cookie), JSON];
    for (index, wrong, status) in [
        (0, ("Host", "evil.example"), 403),
        (1, ("Origin", "http://evil.example"), 403),
        (2, ("Cookie", "codex-shim-web=x"), 401),
        (3, ("Content-Type", "text/plain"), 415),
    ] {
        let mut headers = usual;
        headers[index] = wrong;
        assert_eq!(status_before_body(&page, &line, &headers), status, "{wrong:?}");
    }
    // A client that writes all of a short body first still reads the refusal.
    let answered = page.asked(&line, &[usual[0], ("Origin", "null"), JSON], &" ".repeat(40_000));
    assert_eq!(answered.error(), (403, "origin_refused".to_owned()));
    is_untouched(&live, &request_id);
    live.kill();
}

#[test]
fn only_a_short_body_is_read_without_a_cookie() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let origin = page.origin();
    let headers = [("Host", &origin[7..]), ("Origin", &*origin), JSON];
    let long = json!({ "token": "x".repeat(2_000) }).to_string();
    for line in ["POST /api/sign-in", "POST /", "POST /app.js"] {
        assert_eq!(page.asked(line, &headers, &long).error(), (413, "body_too_large".to_owned()), "{line}");
    }
    page.browser();
}

#[test]
fn slow_heads_and_idle_connections_block_nobody() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let browser = page.browser();
    let open = || TcpStream::connect(("127.0.0.1", page.port)).expect("it listens");
    let slow: Vec<TcpStream> = (0..100)
        .map(|number| {
            let mut stream = open();
            if number % 2 == 0 {
                // It may be closed already in favour of a later one.
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: 127");
            }
            stream
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(browser.asked("GET", "/inbox", "").status, 200);
    }
    drop(slow);
}

#[test]
fn head_that_never_ends_is_given_up() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let mut stream = TcpStream::connect(("127.0.0.1", page.port)).expect("it listens");
    stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("it can be set");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: 127").expect("it reads");
    let mut rest = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "{rest:?}");
}

#[test]
fn idlest_of_too_many_streams_ends() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let browser = page.browser();
    let mut streams: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = browser.stream("/stream", None);
            stream.wait_for("inbox");
            stream
        })
        .collect();
    let mut late = browser.stream("/stream", None);
    late.wait_for("inbox");
    streams.remove(0).ends();
    assert_eq!(browser.asked("GET", "/inbox", "").status, 200);
}

#[test]
fn signing_out_ends_cookies_links_and_streams() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let browser = page.browser();
    let [unused, second] =
        [(); 2].map(|()| links(&tool(&home, &["web", "--new-link", "--json"])).remove(0)).map(|link| token_of(&link));
    let other = Browser::signed_in(page.port, &second);
    let mut stream = browser.stream("/stream", None);
    stream.wait_for("inbox");
    assert_eq!(other.sign_out(2).status, 204);
    assert_eq!((other.asked("GET", "/inbox", "").status, browser.asked("GET", "/inbox", "").status), (401, 200));
    let output = tool(&home, &["web", "--sign-out", "--json"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "{\"signed_out\":1}\n");
    stream.ends();
    assert_eq!(browser.asked("GET", "/inbox", "").status, 401);
    let origin = page.origin();
    let body = json!({ "token": unused }).to_string();
    let answered = page.asked("POST /api/sign-in", &[("Host", &origin[7..]), ("Origin", &origin), JSON], &body);
    assert_eq!(answered.error(), (403, "token_refused".to_owned()));
}

#[test]
fn signed_in_browsers_are_listed_and_signed_out_one_by_one() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    assert_eq!(told(&tool(&home, &["web", "--browsers", "--json"])), json!({ "browsers": [] }));
    let agents =
        ["Mozilla/5.0 (Android 14; Mobile; rv:133.0) Gecko/133.0 Firefox/133.0", "\"><script>alert(1)</script>", ""];
    let all = agents.map(|agent| {
        let link = links(&tool(&home, &["web", "--new-link", "--json"])).remove(0);
        Browser::signed_in_as(page.port, &token_of(&link), agent)
    });
    let [one, two, three] = &all;
    let listed = one.get("/browsers");
    let told_of = |listed: &Value, name: &str| -> Vec<Value> {
        listed["browsers"].as_array().expect("an array").iter().map(|one| one[name].clone()).collect()
    };
    assert_eq!((told_of(&listed, "number"), &listed["own"]), (vec![json!(1), json!(2), json!(3)], &json!(1)));
    assert_eq!(
        told_of(&listed, "device"),
        ["Firefox on Android", "Unknown browser", "Unknown browser"].map(Value::from)
    );
    assert_eq!(told_of(&listed, "address"), vec![json!(page.origin()); 3]);
    let secrets = all
        .iter()
        .flat_map(|browser| [&browser.base["/api/".len()..], browser.cookie.split_once('=').expect("a pair").1]);
    let of_tool = told(&tool(&home, &["web", "--browsers", "--json"]));
    assert_eq!(told_of(&of_tool, "device"), told_of(&listed, "device"));
    for secret in secrets {
        assert!(!listed.to_string().contains(secret) && !of_tool.to_string().contains(secret));
    }
    for name in ["signed_in_at", "last_used_at"] {
        let times = told_of(&of_tool, name);
        assert!(times.iter().all(|at| at.as_str().is_some_and(|at| at.ends_with('Z'))), "{times:?}");
    }
    let text = String::from_utf8(tool(&home, &["web", "--browsers", "--utc"]).stdout).expect("it is text");
    assert!(
        text.lines().count() == 3 && text.contains("Firefox on Android") && text.contains(&page.origin()),
        "{text}"
    );

    let mut stream = two.stream("/stream", None);
    stream.wait_for("inbox");
    assert_eq!(one.sign_out(2).status, 204);
    stream.ends();
    let statuses = || all.each_ref().map(|browser| browser.asked("GET", "/inbox", "").status);
    assert_eq!(statuses(), [200, 401, 200]);
    assert_eq!(one.sign_out(2).error(), (404, "browser_not_found".to_owned()));
    assert_eq!(told(&tool(&home, &["web", "--sign-out", "3", "--json"])), json!({ "signed_out": 1 }));
    assert_eq!((statuses(), three.sign_out(1).status), ([200, 401, 401], 401));
    failed(&tool(&home, &["web", "--sign-out", "3"]), 1, "no signed-in browser has this number");
    assert_eq!(one.sign_out(1).status, 204);
    assert_eq!(String::from_utf8_lossy(&tool(&home, &["web", "--browsers"]).stdout), "no browser is signed in\n");
}

fn token_of(link: &str) -> String {
    link.split_once("/#").expect("a token").1.to_owned()
}

#[test]
fn proxy_with_tls_gets_a_secure_cookie() {
    let home = Home::new();
    let page = Page::start(&home, &["--host", "laptop.tail.ts.net"]);
    let output = tool(&home, &["web", "--new-link", "--json"]);
    let link = links(&output).pop().expect("a link");
    let token = link.strip_prefix("https://laptop.tail.ts.net/#").expect("a link for the name").to_owned();
    let host = ("Host", "laptop.tail.ts.net");
    let origin = ("Origin", "https://laptop.tail.ts.net");
    let https = ("X-Forwarded-Proto", "https");
    let body = json!({ "token": token }).to_string();
    let plain = [host, ("Origin", "http://laptop.tail.ts.net"), https, JSON];
    assert_eq!(page.asked("POST /api/sign-in", &plain, &body).error(), (403, "origin_refused".to_owned()));
    let answered = page.asked("POST /api/sign-in", &[host, origin, https, JSON], &body);
    let cookie = answered.header("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.starts_with("__Secure-codex-shim-web=") && cookie.ends_with("; Secure"), "{cookie}");
    let pair = cookie.split(';').next().expect("a pair");
    let base = answered.json()["base"].as_str().expect("a path").to_owned();
    let inbox = page.asked(&format!("GET {base}/inbox"), &[host, https, ("Cookie", pair)], "");
    assert_eq!(inbox.status, 200, "{inbox:?}");
    // A cookie works only at the origin of its sign-in.
    let own = page.origin();
    let headers = [("Host", &own[7..]), ("Origin", &*own), JSON, ("Cookie", pair)];
    assert_eq!(
        page.asked(&format!("POST {base}/browsers/1/sign-out"), &headers, "{}").error(),
        (401, "signed_out".to_owned())
    );
}

#[test]
fn names_without_tls_need_http_in_host() {
    let home = Home::new();
    let page = Page::start(&home, &["--host", "laptop"]);
    let sign_in = |page: &Page| {
        let headers = [("Host", "laptop"), ("Origin", "http://laptop"), JSON];
        page.asked("POST /api/sign-in", &headers, &json!({ "token": page.token }).to_string())
    };
    assert_eq!(sign_in(&page).error(), (403, "origin_refused".to_owned()));
    // The link has not been used up.
    page.browser();
    drop(page);
    let page = Page::start(&home, &["--host", "http://laptop"]);
    let answered = sign_in(&page);
    let cookie = answered.header("set-cookie").expect("a cookie");
    assert!(cookie.starts_with("codex-shim-web=") && !cookie.contains("Secure"), "{cookie}");
    drop(page);
    let mut child = home.shim(&["web", "--json", "--host", "http://laptop"]).spawn().expect("the shim starts");
    let stderr = crate::support::both_ends::lines_of(child.stderr.take().expect("it is piped"));
    let warning = crate::support::both_ends::next(&stderr, "a warning");
    assert!(warning.contains("can read the cookie"), "{warning}");
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
}

#[test]
fn second_page_says_where_the_first_is() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let told = format!("http://127.0.0.1:{}/ (pid {})", page.port, page.child.id());
    failed(&tool(&home, &["web"]), 1, &told);
    let link = links(&tool(&home, &["web", "--new-link", "--json"])).remove(0);
    Browser::signed_in(page.port, &token_of(&link));
    drop(page);
    // The socket of a killed page is left over.
    failed(&tool(&home, &["web", "--new-link"]), 4, "start one with `codex-shim web`");
    failed(&tool(&home, &["web", "--sign-out"]), 4, "no web page is being served");
    failed(&tool(&home, &["web", "--browsers"]), 4, "no web page is being served");
    let next = Page::start(&home, &[]);
    next.browser();
}

#[test]
fn taken_port_is_named() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    failed(&tool(&home, &["web", "--port", &port]), 1, &format!("127.0.0.1:{port}: "));
}

#[test]
fn signals_end_the_page_cleanly() {
    for signal in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        let mut page = Page::start(&home, &[]);
        let mut stream = page.browser().stream("/stream", None);
        stream.wait_for("inbox");
        kill_process(pid_of(&page), signal).expect("it runs");
        let status = eventually("the end", || page.child.try_wait().expect("it is our child"));
        assert_eq!(status.code(), Some(0));
        assert!(!home.path().join("web.sock").exists());
    }
}

#[test]
fn page_listens_on_loopback_only() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let listening = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    if listening.is_empty() {
        return;
    }
    let of_port = format!(":{:04X} 00000000:0000 0A", page.port);
    let found: Vec<&str> = listening.lines().filter(|line| line.contains(&of_port)).collect();
    assert!(found.len() == 1 && found[0].contains(&format!("0100007F{of_port}")), "{found:?}");
    let on_six = fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    let six = format!(":{:04X} 00000000000000000000000000000000:0000 0A", page.port);
    assert!(!on_six.lines().any(|line| line.contains(&six)));
}

#[test]
fn token_is_nowhere_but_in_the_link() {
    let home = Home::new();
    let page = Page::start(&home, &[]);
    let browser = page.browser();
    browser.get("/inbox");
    for secret in [&*page.token, browser.cookie.split_once('=').expect("a pair").1] {
        assert_nowhere(&home.path(), secret);
        let line = fs::read_to_string(format!("/proc/{}/cmdline", page.child.id())).unwrap_or_default();
        assert!(!line.contains(secret), "{line}");
    }
    let mode = fs::metadata(home.path().join("web.sock")).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn opened_browser_gets_no_token_as_argument() {
    let home = Home::new();
    let (opener, seen) = (home.beside().join("bin/xdg-open"), home.beside().join("seen"));
    fs::create_dir(home.beside().join("bin")).expect("a folder");
    put_program(&opener, format!("#!/bin/sh\necho \"$@\" > {0}.new; mv {0}.new {0}\n", seen.display()).as_bytes());
    let path = format!("{}:/usr/bin:/bin", home.beside().join("bin").display());
    // A page that was killed has left its file behind.
    fs::create_dir_all(home.path()).expect("a folder");
    let left = home.path().join("web-open.html");
    fs::write(&left, "an ended token").expect("a file");
    let mut other = home.shim(&["web", "--json"]).spawn().expect("the shim starts");
    eventually("its removal", || (!left.exists()).then_some(()));
    other.kill().expect("it runs");
    other.wait().expect("it is ours");
    let mut child = home.shim(&["web", "--json", "--open"]).env("PATH", path).spawn().expect("the shim starts");
    let file = eventually("the opener", || fs::read_to_string(&seen).ok());
    let file = Path::new(file.trim());
    assert_eq!(fs::metadata(file).expect("a file").permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(file).expect("a file");
    let link = text.split("url=").nth(1).and_then(|rest| rest.split('"').next()).expect("a link").to_owned();
    let (address, token) = link.split_once("/#").expect("a token");
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    Browser::signed_in(port, token);
    assert!(!file.exists());
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
}

#[test]
fn one_session_can_be_shown_alone() {
    let live = Live::start_in(Live::start_in_session(Home::new(), "elsewhere").kill());
    let page = Page::start(&live.home, &["--session", "s"]);
    let browser = page.browser();
    let ids: Vec<Value> = browser.get("/inbox")["sessions"].as_array().expect("an array").clone();
    assert_eq!(ids.iter().map(|session| &session["id"]).collect::<Vec<_>>(), [&json!("s")]);
    assert_eq!(browser.asked("GET", "/sessions/elsewhere/timeline", "").status, 404);
    let unknown = tool(&live.home, &["web", "--session", "nope"]);
    failed(&unknown, 3, "unknown session `nope`");
    live.kill();
}

#[test]
fn sign_out_counts_while_a_body_arrives() {
    let mut live = Live::initialized("");
    let request_id = live.asked(&command_asked("0", "t"), "0");
    let page = Page::start(&live.home, &[]);
    let decision = r#"{"decision":"accept"}"#;
    for (path, body) in [
        (format!("/sessions/s/requests/{request_id}/respond"), decision),
        ("/sessions/s/input".to_owned(), r#"{"text":"go on"}"#),
        ("/sessions/s/interrupt".to_owned(), "{}"),
        ("/browsers/1/sign-out".to_owned(), "{}"),
    ] {
        let link = links(&tool(&live.home, &["web", "--new-link", "--json"])).remove(0);
        let browser = Browser::signed_in(page.port, link.split_once("/#").expect("a token").1);
        let mut to = std::net::TcpStream::connect(("127.0.0.1", page.port)).expect("it listens");
        to.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        let head = format!(
            "POST {}{path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nOrigin: {}\r\nCookie: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            browser.base,
            page.port,
            page.origin(),
            browser.cookie,
            body.len()
        );
        to.write_all(head.as_bytes()).expect("it is read");
        // The page asks for the body, so it has admitted the head.
        let mut first = [0; 12];
        to.read_exact(&mut first).expect("it is answered");
        assert_eq!(&first, b"HTTP/1.1 100");
        assert_eq!(told(&tool(&live.home, &["web", "--sign-out", "--json"]))["signed_out"], 1);
        to.write_all(body.as_bytes()).expect("it is read");
        let mut answer = String::new();
        to.read_to_string(&mut answer).expect("it is answered");
        assert!(answer.contains("HTTP/1.1 401 ") && answer.contains("signed_out"), "{path}: {answer}");
    }
    assert_eq!(live.row(&request_id)["status"], "pending");
    live.kill();
}
