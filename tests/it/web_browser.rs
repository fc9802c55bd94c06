//! The page of `codex-shim web` in a real browser, with the test as the client and the server of the relay.
//!
//! A script in `tests/browser` drives the browser. It asks for what happens outside of the page with a line of JSON, and gets
//! the result as a line of JSON. `make browser` installs what it needs; without it the test is skipped, and says so.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::{Live, lines_of, next};
use crate::support::requests::{parsed, respond_path};
use crate::support::shim::Home;

/// Paths of Chromium on Debian and other distributions.
const CHROMIUM: [&str; 3] = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/chromium-browser"];

/// `codex-shim web`, which ends with the test.
struct Web(Child);

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The relay of the session `s`, which may be killed meanwhile.
enum Stage {
    Up(Box<Live>),
    Down(Home),
}

fn signal(pid: u32, signal: Signal) -> Value {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, signal).expect("it is there");
    Value::Null
}

/// A second session, whose folder has this name. It asks for this command.
struct Second(Child);

impl Second {
    fn start(home: &Home, asked: &Value) -> Second {
        let text = |member: &str| asked[member].as_str().expect("a text");
        let folder = home.beside().join(text("folder"));
        std::fs::create_dir(&folder).expect("a folder");
        let script =
            r#"read -r line; printf '%s\n' '{"id":0,"result":{"userAgent":"x/0.150.0 (x)"}}' "$ASKED"; cat >/dev/null"#;
        let mut command = home.shim(&["run", "--session", "b", "--", "sh", "-c", script]);
        command.current_dir(folder).env("ASKED", text("line")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the shim starts");
        let initialize = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"second","version":"1"}}}"#;
        writeln!(child.stdin.as_mut().expect("it is piped"), "{initialize}").expect("it reads");
        Second(child)
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stage {
    fn live(&mut self) -> &mut Live {
        match self {
            Stage::Up(live) => live,
            Stage::Down(_) => panic!("the relay was killed"),
        }
    }

    fn home(&self) -> &Home {
        match self {
            Stage::Up(live) => &live.home,
            Stage::Down(home) => home,
        }
    }

    /// Does what a script asks for; returns the next stage and the result.
    fn does(mut self, asked: &Value, web: &Web, second: &mut Option<Second>) -> (Stage, Value) {
        let text = |member: &str| asked[member].as_str().expect("a text").to_owned();
        let result = match asked["does"].as_str().expect("a name") {
            "second" => {
                *second = Some(Second::start(self.home(), asked));
                Value::Null
            }
            "end_second" => {
                *second = None;
                Value::Null
            }
            "hang_second" => signal(second.as_ref().expect("it runs").0.id(), Signal::STOP),
            "hang_web" => signal(web.0.id(), Signal::STOP),
            "continue_web" => signal(web.0.id(), Signal::CONT),
            "kill_web" => signal(web.0.id(), Signal::KILL),
            "say" => Value::String(self.live().say(&text("line"))),
            "at_server" => Value::String(self.live().at_server()),
            // The client sees no reply to a call of the relay.
            "reply" => {
                self.live().say_unseen(&json!({ "id": asked["id"], "result": asked["result"] }).to_string());
                Value::Null
            }
            "answer" => answer(self.live(), &asked["id"], &asked["body"]),
            "flood" => flood(self.live(), asked),
            "link" => new_link(self.home()),
            "kill" => match self {
                Stage::Up(live) => return (Stage::Down(live.kill()), Value::Null),
                Stage::Down(_) => panic!("the relay was killed"),
            },
            "start" => match self {
                Stage::Down(home) => return (Stage::Up(Box::new(Live::start_in(home).initialize())), Value::Null),
                Stage::Up(_) => panic!("the relay runs"),
            },
            other => panic!("{other}: the test does not know this"),
        };
        (self, result)
    }
}

/// Answers a request as the terminal UI would.
fn answer(live: &Live, id: &Value, body: &Value) -> Value {
    let request_id = format!("{}-{id}", live.generation());
    let line = format!("POST {}\r\nX-Codex-Shim-Source: tui", respond_path(&request_id));
    let (status, document) = live.http(&line, body.to_string().as_bytes());
    assert_eq!(status, 200, "{document}");
    document
}

/// Many commands have ended. The server writes all of them in one go, as a client reads them.
fn flood(live: &mut Live, asked: &Value) -> Value {
    let number = |member: &str| asked[member].as_u64().expect("a number");
    let line_of = |number: u64| {
        let item = json!({ "type": "commandExecution", "id": format!("n{number}"), "command": format!("echo {number}"), "cwd": "/w",
            "status": "completed", "aggregatedOutput": format!("{number}\n"), "exitCode": 0 });
        let params = json!({ "threadId": "t", "turnId": "u", "item": item });
        format!("{}\n", json!({ "method": "item/completed", "params": params }))
    };
    let (from, to) = (number("from"), number("to"));
    let burst: String = (from..to).map(line_of).collect();
    let mut down = live.down.take().expect("the server runs");
    let writing = std::thread::spawn(move || {
        down.write_all(burst.as_bytes()).expect("the relay reads");
        down
    });
    (from..to).for_each(|_| drop(live.at_client()));
    live.down = Some(writing.join().expect("all is written"));
    Value::Null
}

fn new_link(home: &Home) -> Value {
    let told = home.shim(&["web", "--new-link", "--json"]).output().expect("the shim starts");
    assert!(told.status.success(), "{told:?}");
    parsed(&String::from_utf8(told.stdout).expect("it is text"))
}

pub(crate) fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The browser and the folder of the packages that drive it; `None` says that the test is skipped.
pub(crate) fn installed_or_skip(test: &str) -> Option<(&'static str, PathBuf)> {
    let modules = project().join("target/browser");
    let browser = CHROMIUM.into_iter().find(|path| Path::new(path).exists());
    let is_there = ["playwright-core", "axe-core"].iter().all(|name| modules.join("node_modules").join(name).exists());
    if browser.is_none() || !is_there {
        let what = if browser.is_none() { "Chromium" } else { "playwright-core or axe-core" };
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {what} is not installed; `make browser` does that");
        return None;
    }
    Some((browser?, modules))
}

/// Plays a script against a relay and `codex-shim web`.
fn plays(test: &str, script: &str) {
    let Some((browser, modules)) = installed_or_skip(test) else { return };
    let stage = Stage::Up(Box::new(Live::initialized("")));
    let mut web = Web(stage.home().shim(&["web", "--json"]).spawn().expect("the shim starts"));
    next(&lines_of(web.0.stdout.take().expect("it is piped")), "a link");
    let (mut stage, mut second) = (Some(stage), None);
    drives(script, browser, &modules, |asked| {
        let (next, result) = stage.take().expect("one call at a time").does(asked, &web, &mut second);
        stage = Some(next);
        result
    });
    drop(web);
}

/// Runs a script, and does what it asks for.
pub(crate) fn drives(script: &str, browser: &str, modules: &Path, mut does: impl FnMut(&Value) -> Value) {
    // Kept, because a test that waits in vain for the script fails without it.
    let log = modules.join(script).with_extension("log");
    let mut driver = Command::new("node")
        .arg(project().join("tests/browser").join(script))
        .envs([("CHROMIUM", Path::new(browser)), ("MODULES", modules)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(&log).expect("a file"))
        .spawn()
        .expect("node starts");
    let asked = lines_of(driver.stdout.take().expect("it is piped"));
    let mut told = driver.stdin.take().expect("it is piped");
    // Each wait of the script has a limit, so it ends.
    for line in asked {
        let result = does(&parsed(&String::from_utf8(line).expect("it is text")));
        // A script that has failed reads nothing more; its status tells.
        let _ = writeln!(told, "{result}");
    }
    let status = driver.wait().expect("it was started");
    let log = std::fs::read_to_string(log).expect("it was written");
    assert!(status.success(), "{script}: {status}\n{log}");
}

#[cfg(feature = "fleet")]
#[test]
fn page_of_a_fleet_answers_another_host_in_a_browser() {
    use crate::support::fleet::{Agent, Fleet};

    let test = "page_of_a_fleet_answers_another_host_in_a_browser";
    let Some((browser, modules)) = installed_or_skip(test) else { return };
    let Some(fleet) = Fleet::start(test) else { return };
    let first = Live::start_in(fleet.host(7, "full")).in_turn();
    let mut second = Live::start_in(fleet.host(8, "full")).in_turn();
    let _agents = [&first, &second].map(|live| Agent::start(&live.home));
    let mut web = Web(fleet.ann.0.shim(&["web", "--fleet", "--json"]).spawn().expect("the shim starts"));
    next(&lines_of(web.0.stdout.take().expect("it is piped")), "a link");
    drives("fleet.mjs", browser, &modules, |asked| match asked["does"].as_str().expect("a name") {
        "link" => new_link(&fleet.ann.0),
        "say" => Value::String(second.say(asked["line"].as_str().expect("a text"))),
        "at_server" => Value::String(second.at_server()),
        other => panic!("{other}: the test does not know this"),
    });
    drop(web);
    first.kill();
    second.kill();
}

#[test]
fn page_answers_requests_in_a_browser() {
    plays("page_answers_requests_in_a_browser", "page.mjs");
}

#[test]
fn page_searches_in_a_browser() {
    plays("page_searches_in_a_browser", "search.mjs");
}

#[test]
fn page_has_its_pictures() {
    plays("page_has_its_pictures", "pictures.mjs");
}

#[test]
fn page_is_small_and_loads_nothing_from_elsewhere() {
    let folder = project().join("src/tools/web/page");
    let files =
        ["index.html", "app.css", "app.js"].map(|name| std::fs::read_to_string(folder.join(name)).expect("a file"));
    let bytes: usize = files.iter().map(String::len).sum();
    assert!(bytes < 80_000, "{bytes}");
    for file in &files {
        let elsewhere = ["https:", "@import", "url(", "innerHTML", "eval("].map(|word| file.contains(word));
        assert_eq!(elsewhere, [false; 5]);
    }
    let [page, ..] = files;
    assert!(!page.contains(" style=") && !page.contains(" onclick="), "inline styles and scripts are refused");
}
