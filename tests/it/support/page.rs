//! The web page without a browser: `codex-shim web`, HTTP as a browser sends it, and the event stream of a tab.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Output};

use serde_json::{Value, json};

use super::PATIENCE;
use super::both_ends::lines_of;
use super::shim::Home;

/// A page that is served; it ends with the test.
pub struct Page {
    pub child: Child,
    pub port: u16,
    pub token: String,
}

/// An HTTP response.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// A browser that is signed in.
pub struct Browser {
    pub port: u16,
    pub base: String,
    pub cookie: String,
}

impl Page {
    pub fn start(home: &Home, args: &[&str]) -> Page {
        let mut child = home.shim(&[&["web", "--json"], args].concat()).spawn().expect("the shim starts");
        let lines = lines_of(child.stdout.take().expect("stdout is piped"));
        let Ok(told) = lines.recv_timeout(PATIENCE) else {
            let _ = child.kill();
            panic!("the page has not started: {:?}", child.wait_with_output());
        };
        let told: Value = serde_json::from_slice(&told).expect("it is JSON");
        let link = told["links"][0].as_str().expect("a link").to_owned();
        let (address, token) = link.split_once("/#").expect("a token");
        let port = address.strip_prefix("http://127.0.0.1:").expect("it is local").parse().expect("a port");
        Page { child, port, token: token.to_owned() }
    }

    /// A browser that has opened the link.
    pub fn browser(&self) -> Browser {
        Browser::signed_in(self.port, &self.token)
    }

    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A request with exactly these headers.
    pub fn asked(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Answered {
        asked(self.port, line, headers, body).expect("it is answered")
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answered {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The status and the code of an error.
    pub fn error(&self) -> (u16, String) {
        let detail = &self.json()["detail"];
        assert!(detail["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        (self.status, detail["error_code"].as_str().unwrap_or_default().to_owned())
    }
}

impl Browser {
    pub fn signed_in(port: u16, token: &str) -> Browser {
        Browser::signed_in_as(port, token, "")
    }

    pub fn signed_in_as(port: u16, token: &str, user_agent: &str) -> Browser {
        let origin = format!("http://127.0.0.1:{port}");
        let body = json!({ "token": token }).to_string();
        let json = ("Content-Type", "application/json");
        let headers = [("Host", &origin[7..]), ("Origin", &origin), json, ("User-Agent", user_agent)];
        let answered = asked(port, "POST /api/sign-in", &headers, &body).expect("it is answered");
        assert_eq!(answered.status, 200, "{answered:?}");
        let cookie = answered.header("set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
        let base = answered.json()["base"].as_str().expect("a path").to_owned();
        Browser { port, base, cookie }
    }

    /// A request of the page.
    pub fn asked(&self, method: &str, path: &str, body: &str) -> Answered {
        let origin = format!("http://127.0.0.1:{}", self.port);
        let mut headers = vec![("Host", &origin[7..]), ("Cookie", &self.cookie), ("Sec-Fetch-Site", "same-origin")];
        if method == "POST" {
            headers.extend([("Origin", &*origin), ("Content-Type", "application/json")]);
        }
        asked(self.port, &format!("{method} {}{path}", self.base), &headers, body).expect("it is answered")
    }

    /// Signs a browser out by its number.
    pub fn sign_out(&self, number: u64) -> Answered {
        self.asked("POST", &format!("/browsers/{number}/sign-out"), "{}")
    }

    pub fn get(&self, path: &str) -> Value {
        let answered = self.asked("GET", path, "");
        assert_eq!(answered.status, 200, "{answered:?}");
        answered.json()
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answered = self.asked("POST", path, &body.to_string());
        (answered.status, answered.json())
    }

    pub fn respond(&self, session: &str, request_id: &str, body: &Value) -> (u16, Value) {
        self.post(&format!("/sessions/{session}/requests/{request_id}/respond"), body)
    }

    /// The stream of a tab; `path` begins with `/stream`.
    pub fn stream(&self, path: &str, last_id: Option<&str>) -> Stream {
        let mut to = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        to.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        let last_id = last_id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let head = format!(
            "GET {}{path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nCookie: {}\r\n{last_id}\r\n",
            self.base, self.port, self.cookie
        );
        to.write_all(head.as_bytes()).expect("it reads");
        Stream { from: BufReader::new(to), last_id: None }
    }
}

/// The events of a tab.
pub struct Stream {
    from: BufReader<TcpStream>,
    /// The id of the last event that had one.
    pub last_id: Option<String>,
}

impl Stream {
    /// The next event; `None` at the end of the stream.
    pub fn next(&mut self) -> Option<(String, Value)> {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line).expect("an event") == 0 {
                return None;
            }
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim_end().to_owned();
            } else if let Some(id) = line.strip_prefix("id: ") {
                self.last_id = Some(id.trim_end().to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data).expect("it is JSON")));
            }
        }
    }

    /// The next event of this name.
    pub fn wait_for(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.next().unwrap_or_else(|| panic!("the stream ended before {wanted}"));
            if name == wanted {
                return data;
            }
        }
    }

    /// Reads until the stream ends.
    pub fn ends(mut self) {
        while self.next().is_some() {}
    }
}

/// Sends a request; `None` if the connection breaks.
pub fn asked(port: u16, line: &str, headers: &[(&str, &str)], body: &str) -> Option<Answered> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("{line} HTTP/1.1\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).ok()?;
    // A refused body may not be read to its end.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answered { status, head: head.to_owned(), body: body.to_owned() })
}

/// The links that `codex-shim web` has printed.
pub fn links(output: &Output) -> Vec<String> {
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"));
    told["links"].as_array().expect("an array").iter().map(|link| link.as_str().expect("a link").to_owned()).collect()
}
