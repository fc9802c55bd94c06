//! The tools from five folders, in each state of a terminal on one hub: each names the thread that its user means. Three are those of
//! terminals, one is that of an editor on pipes, and one is that of a session of `serve` beside the hub.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::hub_threads::{TITLE, Three};
use crate::support::bench::{DIALOG, TUI, says_to};
use crate::support::conversations::{start_turn, turn_completed};
use crate::support::eventually;
use crate::support::model::Item;
use crate::support::peer::Peer;
use crate::support::real::run;
use crate::support::release::Ability;
use crate::support::release::Release;
use crate::support::shim::SHIM;

/// What the first terminal does while the tools run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its first prompt, and beside it the thread that codex opens for the title.
    FirstPrompt,
    Prompt,
    Approval,
    Question,
    Idle,
}

use State::{Approval, FirstPrompt, Idle, Prompt, Question};

const QUESTION: &str = "Which colour?";

/// The client of a server without one. `status` does not name it at a thread.
const OWN: &str = "codex-shim";

impl State {
    /// The activities of its thread.
    fn activities(self) -> &'static [&'static str] {
        match self {
            FirstPrompt | Prompt => &["thinking", "working"],
            Approval => &["waiting_permission"],
            Question => &["waiting_input"],
            Idle => &["idle"],
        }
    }

    fn is_pending(self) -> bool {
        matches!(self, Approval | Question)
    }

    fn enter(self, three: &Three) {
        let Three { bench, terminals, session: _ } = three;
        let tui = &terminals[0].tui;
        match self {
            FirstPrompt => {
                bench.model.holds_titles(true);
                bench.model.then(vec![vec![Item::Hang]]);
                says_to(tui, "begin alpha");
            }
            Prompt => {
                bench.model.then(vec![vec![Item::Hang]]);
                says_to(tui, "go on");
            }
            Approval => {
                bench.model.then(vec![run()]);
                says_to(tui, "do it");
                tui.shows(DIALOG);
            }
            Question => {
                let options = json!([{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]);
                let question = json!({"id": "c", "header": "Colour", "question": QUESTION, "options": options});
                let arguments = json!({ "questions": [question] });
                bench.model.then(vec![vec![Item::Call { name: "request_user_input", arguments }]]);
                says_to(tui, "ask me");
                tui.shows(QUESTION);
            }
            Idle => {}
        }
    }
}

/// A folder with a thread in which a person speaks.
#[derive(Debug, Clone)]
struct Place {
    name: &'static str,
    folder: PathBuf,
    thread: String,
    /// The session of its thread.
    session: String,
    /// Folder and client.
    of: String,
    /// The name of the thread in words, as far as it is the same in each run.
    words: String,
    has_title: bool,
}

impl Place {
    fn said(&self) -> String {
        let greeting = if self.name == "alpha" { "begin" } else { "hello" };
        format!("{greeting} {}", self.name)
    }
}

/// The clients beside the terminals, each with a place of its own.
struct Beside {
    /// It is gone once this is dropped.
    _editor: Peer,
    serve: Child,
    places: Vec<Place>,
}

impl Beside {
    fn start(three: &Three) -> Beside {
        let bench = &three.bench;
        let folder = |name: &str| {
            let folder = bench.lab.root().join(name);
            fs::create_dir_all(folder.join("src")).expect("a folder");
            folder
        };
        let place = |name: &'static str, folder: &Path, thread: String, session: String, client: &str| Place {
            name,
            folder: folder.to_owned(),
            thread,
            session,
            of: format!("{name} ({client})"),
            words: if client == OWN { name.to_owned() } else { format!("{name} ({client}") },
            has_title: false,
        };
        let delta = folder("delta");
        let mut editor = bench.editor();
        let started = editor.call("thread/start", json!({ "cwd": delta }));
        let thread = started["thread"]["id"].as_str().expect("an id").to_owned();
        start_turn(&mut editor, &thread, "hello delta");
        turn_completed(&mut editor, "completed");
        let of_editor = place("delta", &delta, thread, three.session.clone(), "test-client");
        let epsilon = folder("epsilon");
        let mut serve = bench.lab.command(SHIM);
        bench.home.adopt(&mut serve).env("CODEX_SHIM_CODEX", &bench.codex).current_dir(&epsilon);
        let serve = serve.args(["serve", "--session", "served"]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let serve = serve.expect("it starts");
        let sent = eventually("a thread of the server", || {
            let output =
                three.tool(&epsilon, &["send", "--session", "served", "--new", "--wait", "--json", "hello epsilon"]);
            output.status.success().then_some(output.stdout)
        });
        let sent: Value = serde_json::from_slice(&sent).expect("it is JSON");
        let thread = sent["thread_id"].as_str().expect("an id").to_owned();
        let of_serve = place("epsilon", &epsilon, thread, "served".to_owned(), OWN);
        Beside { _editor: editor, serve, places: vec![of_editor, of_serve] }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let pid = i32::try_from(self.serve.id()).ok().and_then(Pid::from_raw).expect("an id");
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.serve.wait();
    }
}

/// The tools in one state.
struct Seen<'a> {
    three: &'a Three,
    places: Vec<Place>,
    state: State,
}

impl Seen<'_> {
    fn alpha(&self) -> &Place {
        &self.places[0]
    }

    fn others(&self) -> &[Place] {
        &self.places[1..]
    }

    #[track_caller]
    fn fails(&self, folder: &Path, args: &[&str], exit: i32, words: &str) {
        let output = self.three.tool(folder, args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{:?} {args:?}: {output:?}", self.state);
        assert!(stderr.contains(words), "{:?} {args:?}: {stderr}", self.state);
    }

    /// `status` tells of the session of the folder's thread, and first of that thread.
    fn status(&self) {
        for place in &self.places {
            let below = place.folder.join("src");
            let document = self.three.document(&below, &["status", "--json"]);
            let threads = document["threads"].as_array().expect("an array");
            let has = |place: &Place| threads.iter().find(|thread| thread["thread_id"] == json!(place.thread));
            let activities = if place.session == self.three.session { self.state.activities() } else { &["idle"] };
            let busiest = if place.session == self.three.session { self.alpha() } else { place };
            let activity = has(busiest).expect("its thread")["activity_state"].as_str().unwrap_or_default();
            assert!(activities.contains(&activity), "{:?} in {}: {document:#}", self.state, place.name);
            assert_eq!(document["state"], json!(activity), "{:?} in {}: {document:#}", self.state, place.name);
            for other in &self.places {
                assert_eq!(has(other).is_some(), other.session == place.session, "{} in {}", other.name, place.name);
            }
            let text = self.three.says(&below, &["status"]);
            let first = text.lines().find(|line| line.starts_with("threads")).expect("a line of threads");
            assert!(first.contains(&place.words), "{:?} in {}: {text}", self.state, place.name);
            let children = self.three.document(&below, &["children", "--json"]);
            let children = children["children"].as_array().expect("an array");
            let child = children.iter().find(|child| child["session_id"] == json!(place.session)).expect("its session");
            let activity = child["activity_state"].as_str().unwrap_or_default();
            assert!(activities.contains(&activity), "{:?} in {}: {children:#?}", self.state, place.name);
        }
    }

    /// `requests` and `show` name the thread that asks, and `requests --here` lists those of the folder.
    fn requests(&self) {
        let count = usize::from(self.state.is_pending());
        for place in &self.places {
            let listed = |args: &[&str]| {
                let document = self.three.document(&place.folder, &[&["requests", "--json"], args].concat());
                document["requests"].as_array().cloned().expect("an array")
            };
            let all = listed(&[]);
            assert_eq!(all.len(), count, "{:?}: {all:#?}", self.state);
            assert!(all.iter().all(|row| row["session"]["name"] == json!(self.alpha().of)), "{all:#?}");
            let here = if place.name == "alpha" { count } else { 0 };
            assert_eq!(listed(&["--here"]).len(), here, "{:?} in {}", self.state, place.name);
            if count == 0 {
                self.fails(&place.folder, &["show", "latest"], 3, "no requests");
                continue;
            }
            let shown = self.three.says(&place.folder, &["show", "latest"]);
            assert!(shown.contains(&self.alpha().words) && !shown.contains("codex-home"), "{shown}");
        }
    }

    /// `wait` looks at the threads of the folder; the others are idle.
    fn wait(&self) {
        for place in &self.places {
            let wait = |goal: &str| {
                let output = self.three.tool(&place.folder, &["wait", "--for", goal, "--timeout", "1ms"]);
                output.status.code()
            };
            let is_alpha = place.name == "alpha";
            let (idle, pending) = (self.state == Idle || !is_alpha, self.state.is_pending() && is_alpha);
            let expect = [idle, pending].map(|holds| Some(i32::from(!holds)));
            assert_eq!([wait("idle"), wait("pending")], expect, "{:?} in {}", self.state, place.name);
        }
    }

    /// `transcript`, `search` and `usage`: what was said where, and whose it is.
    fn history(&self) {
        for place in &self.places {
            let said = place.said();
            let head = eventually("what was said", || {
                let output = self.three.tool(&place.folder, &["transcript", "--format", "md"]);
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                text.contains(&said).then_some(text)
            });
            let head = head.rsplit_once(&said).expect("it was said").0.to_owned();
            assert!(head.contains(&place.thread) && head.contains(place.name), "{head}");
            // Nobody has given the first one a title; codex may take its first prompt.
            assert!(head.contains(TITLE) || !place.has_title, "{head}");
            let found = self.three.document(&place.folder, &["search", &format!("\"{said}\""), "--json"]);
            let matches = found["matches"].as_array().expect("an array");
            assert_eq!(matches.len(), 1, "{found:#}");
            let of = (&matches[0]["name"], &matches[0]["thread"]["cwd"]);
            assert_eq!(of, (&json!(place.of), &json!(place.folder)), "{found:#}");
            let usage = self.three.document(&place.folder, &["usage", "--by", "thread", "--json"]);
            let rows = usage["rows"].as_array().expect("rows");
            let row = rows.iter().find(|row| row["thread_id"] == json!(place.thread)).expect("its row");
            let of = (&row["name"], &row["kind"], &row["cwd"]);
            assert_eq!(of, (&json!(place.of), &json!("user"), &json!(place.folder)), "{usage:#}");
            // Codex 0.169 asks again for a title that it did not get.
            let count = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).count();
            assert!(count("title") >= 3 && count("title") + count("user") == rows.len(), "{usage:#}");
            assert_eq!(count("user"), self.places.len(), "{usage:#}");
        }
    }

    /// `send` reaches the thread of its folder, and nothing is sent to a thread that waits.
    fn send(&self) {
        let alpha = self.alpha();
        for place in self.others() {
            let waited = self.three.says(&place.folder, &["send", "--wait", "and you?"]);
            assert_eq!(waited, "done\n", "{:?} in {}", self.state, place.name);
        }
        match self.state {
            Approval | Question => self.fails(&alpha.folder, &["send", "hurry"], 1, "is pending in this thread"),
            FirstPrompt | Prompt => {
                self.three.bench.model.hangs_on(Some("hurry"));
                let sent = self.three.says(&alpha.folder, &["send", "hurry"]);
                assert!(sent.contains(&alpha.words) && sent.contains("sent to running turn"), "{sent}");
                assert!(sent.contains(&alpha.thread), "{sent}");
            }
            Idle => {
                self.three.bench.model.hangs_on(None);
                assert_eq!(self.three.says(&alpha.folder, &["send", "--wait", "again"]), "done\n");
            }
        }
    }

    /// `interrupt` ends the turn of its folder. The state is over with it.
    fn interrupt(&self) {
        for place in self.others() {
            self.fails(&place.folder, &["interrupt"], 1, "nothing to interrupt");
        }
        if self.state == Idle {
            return self.fails(&self.alpha().folder, &["interrupt"], 1, "nothing to interrupt");
        }
        let output = self.three.tool(&self.alpha().folder, &["interrupt"]);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{:?}: {output:?}", self.state);
        assert!(told.starts_with(&format!("interrupted {}", self.alpha().words)), "{told}");
        eventually("an idle session", || {
            let status: Value = self.three.document(&self.alpha().folder, &["status", "--json"]);
            (status["state"] == "idle" && status["pending_requests"] == 0).then_some(())
        });
    }
}

#[test]
fn e2e_tools_name_the_thread_of_their_folder_in_every_state() {
    let test = "e2e_tools_name_the_thread_of_their_folder_in_every_state";
    if Release::under_test().lacks(test, Ability::Titles) {
        return;
    }
    let Some(mut three) = Three::start_with(test, &["beta", "gamma"]) else { return };
    let beside = Beside::start(&three);
    for state in [FirstPrompt, Prompt, Approval, Question, Idle] {
        state.enter(&three);
        if state == FirstPrompt {
            three.finds_thread(0);
        }
        let alpha = json!(three.terminals[0].thread);
        eventually("the state", || {
            let threads = three.threads();
            let thread = threads.iter().find(|thread| thread["thread_id"] == alpha)?;
            state.activities().contains(&thread["activity_state"].as_str()?).then_some(())
        });
        if state == FirstPrompt {
            eventually("a thread for the title that runs too", || {
                let runs = |thread: &Value| thread["kind"] == "title" && !thread["turn_id"].is_null();
                three.threads().iter().any(runs).then_some(())
            });
        }
        let of_terminals = three.terminals.iter().map(|terminal| Place {
            name: terminal.name,
            folder: terminal.folder.clone(),
            thread: terminal.thread.clone(),
            session: three.session.clone(),
            of: format!("{} ({TUI})", terminal.name),
            words: format!("{} ({TUI}, pts/", terminal.name),
            has_title: terminal.name != "alpha",
        });
        let seen = Seen { three: &three, places: of_terminals.chain(beside.places.iter().cloned()).collect(), state };
        seen.status();
        seen.requests();
        seen.wait();
        seen.history();
        seen.send();
        seen.interrupt();
    }
    let audit = three.says(&three.bench.lab.cwd(), &["audit", "export"]);
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let asked: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "request").collect();
    assert_eq!(asked.len(), 2, "{audit}");
    for line in asked {
        let of = [&line["thread_name"], &line["thread_folder"], &line["thread_kind"]];
        let alpha = &three.terminals[0];
        assert_eq!(of, [&json!(format!("alpha ({TUI})")), &json!(alpha.folder), &json!("user")], "{line:#}");
    }
}
