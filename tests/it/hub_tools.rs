//! The tools from three folders, in each state of a terminal on one hub: each names the thread that its user means.

use std::path::Path;

use serde_json::{Value, json};

use crate::hub_threads::{TITLE, Terminal, Three};
use crate::support::bench::{DIALOG, TUI, says_to};
use crate::support::eventually;
use crate::support::model::Item;
use crate::support::real::run;
use crate::support::release::Ability;
use crate::support::release::Release;

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
        let Three { bench, terminals } = three;
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

/// The tools in one state.
struct Seen<'a> {
    three: &'a Three,
    state: State,
}

impl Seen<'_> {
    fn alpha(&self) -> &Terminal {
        &self.three.terminals[0]
    }

    fn others(&self) -> &[Terminal] {
        &self.three.terminals[1..]
    }

    #[track_caller]
    fn fails(&self, folder: &Path, args: &[&str], exit: i32, words: &str) {
        let output = self.three.tool(folder, args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{:?} {args:?}: {output:?}", self.state);
        assert!(stderr.contains(words), "{:?} {args:?}: {stderr}", self.state);
    }

    /// The name of a terminal's thread in words, as far as it is the same in each run.
    fn words(terminal: &Terminal) -> String {
        format!("{} ({TUI}, pts/", terminal.name)
    }

    /// `status` tells of the hub, and first of the thread of the folder.
    fn status(&self) {
        for terminal in &self.three.terminals {
            let below = terminal.folder.join("src");
            let document = self.three.document(&below, &["status", "--json"]);
            let threads = document["threads"].as_array().expect("an array");
            let alpha = threads.iter().find(|thread| thread["thread_id"] == json!(self.alpha().thread));
            let activity = alpha.expect("the thread of alpha")["activity_state"].as_str().unwrap_or_default();
            assert!(self.state.activities().contains(&activity), "{:?}: {document:#}", self.state);
            assert_eq!(document["state"], json!(activity), "{:?}: {document:#}", self.state);
            let text = self.three.says(&below, &["status"]);
            let first = text.lines().find(|line| line.starts_with("threads")).expect("a line of threads");
            assert!(first.contains(&Self::words(terminal)), "{:?} in {}: {text}", self.state, terminal.name);
            let children = self.three.document(&below, &["children", "--json"]);
            let activity = children["children"][0]["activity_state"].as_str().unwrap_or_default();
            assert!(self.state.activities().contains(&activity), "{:?}: {children:#}", self.state);
        }
    }

    /// `requests` and `show` name the thread that asks, and `requests --here` lists those of the folder.
    fn requests(&self) {
        let count = usize::from(self.state.is_pending());
        let place = format!("alpha ({TUI})");
        for terminal in &self.three.terminals {
            let listed = |args: &[&str]| {
                let document = self.three.document(&terminal.folder, &[&["requests", "--json"], args].concat());
                document["requests"].as_array().cloned().expect("an array")
            };
            let all = listed(&[]);
            assert_eq!(all.len(), count, "{:?}: {all:#?}", self.state);
            assert!(all.iter().all(|row| row["session"]["name"] == json!(place)), "{all:#?}");
            let here = if terminal.name == "alpha" { count } else { 0 };
            assert_eq!(listed(&["--here"]).len(), here, "{:?} in {}", self.state, terminal.name);
            if count == 0 {
                self.fails(&terminal.folder, &["show", "latest"], 3, "no requests");
                continue;
            }
            let shown = self.three.says(&terminal.folder, &["show", "latest"]);
            assert!(shown.contains(&Self::words(self.alpha())) && !shown.contains("codex-home"), "{shown}");
        }
    }

    /// `wait` looks at the threads of the folder; the others are idle.
    fn wait(&self) {
        for terminal in &self.three.terminals {
            let wait = |goal: &str| {
                let output = self.three.tool(&terminal.folder, &["wait", "--for", goal, "--timeout", "1ms"]);
                output.status.code()
            };
            let is_alpha = terminal.name == "alpha";
            let (idle, pending) = (self.state == Idle || !is_alpha, self.state.is_pending() && is_alpha);
            let expect = [idle, pending].map(|holds| Some(i32::from(!holds)));
            assert_eq!([wait("idle"), wait("pending")], expect, "{:?} in {}", self.state, terminal.name);
        }
    }

    /// `transcript`, `search` and `usage`: what was said where, and whose it is.
    fn history(&self) {
        for terminal in &self.three.terminals {
            let said =
                if terminal.name == "alpha" { "begin alpha".to_owned() } else { format!("hello {}", terminal.name) };
            let head = eventually("what was said", || {
                let output = self.three.tool(&terminal.folder, &["transcript", "--format", "md"]);
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                text.contains(&said).then_some(text)
            });
            let head = head.rsplit_once(&said).expect("it was said").0.to_owned();
            assert!(head.contains(&terminal.thread) && head.contains(terminal.name), "{head}");
            // Nobody has given the first one a title; codex may take its first prompt.
            assert!(head.contains(TITLE) || terminal.name == "alpha", "{head}");
            let found = self.three.document(&terminal.folder, &["search", &format!("\"{said}\""), "--json"]);
            let matches = found["matches"].as_array().expect("an array");
            assert_eq!(matches.len(), 1, "{found:#}");
            let of = (&matches[0]["name"], &matches[0]["thread"]["cwd"]);
            assert_eq!(of, (&json!(format!("{} ({TUI})", terminal.name)), &json!(terminal.folder)), "{found:#}");
            let usage = self.three.document(&terminal.folder, &["usage", "--by", "thread", "--json"]);
            let rows = usage["rows"].as_array().expect("rows");
            let row = rows.iter().find(|row| row["thread_id"] == json!(terminal.thread)).expect("its row");
            let name = json!(format!("{} ({TUI})", terminal.name));
            assert_eq!((&row["name"], &row["kind"], &row["cwd"]), (&name, &json!("user"), &json!(terminal.folder)));
            let of_titles = rows.iter().filter(|row| row["kind"] == "title").count();
            assert_eq!(of_titles, 3, "{usage:#}");
        }
    }

    /// `send` reaches the thread of its folder, and nothing is sent to a thread that waits.
    fn send(&self) {
        let alpha = self.alpha();
        for terminal in self.others() {
            let waited = self.three.says(&terminal.folder, &["send", "--wait", "and you?"]);
            assert_eq!(waited, "done\n", "{:?} in {}", self.state, terminal.name);
        }
        match self.state {
            Approval | Question => self.fails(&alpha.folder, &["send", "hurry"], 1, "is pending in this thread"),
            FirstPrompt | Prompt => {
                self.three.bench.model.hangs_on(Some("hurry"));
                let sent = self.three.says(&alpha.folder, &["send", "hurry"]);
                assert!(sent.contains(&Self::words(alpha)) && sent.contains("sent to running turn"), "{sent}");
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
        for terminal in self.others() {
            self.fails(&terminal.folder, &["interrupt"], 1, "nothing to interrupt");
        }
        if self.state == Idle {
            return self.fails(&self.alpha().folder, &["interrupt"], 1, "nothing to interrupt");
        }
        let output = self.three.tool(&self.alpha().folder, &["interrupt"]);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{:?}: {output:?}", self.state);
        assert!(told.starts_with(&format!("interrupted {}", Self::words(self.alpha()))), "{told}");
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
        let seen = Seen { three: &three, state };
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
