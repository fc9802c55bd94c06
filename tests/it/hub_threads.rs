//! Three terminals of codex in three folders on one hub: each tool finds the thread that its user means, and says which it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::bench::{Bench, DIALOG, TUI, says_to};
use crate::support::eventually;
use crate::support::model::Item;
use crate::support::real::run;
use crate::support::release::Ability;
use crate::support::shim::SHIM;
use crate::support::tmux::Tmux;

/// The title that the scripted model gives each thread.
pub const TITLE: &str = "A talk";

/// The terminals, each in a folder of its own: two repositories and a plain folder.
pub struct Three {
    pub bench: Bench,
    /// The hub's session.
    pub session: String,
    pub terminals: Vec<Terminal>,
}

pub struct Terminal {
    pub name: &'static str,
    pub folder: PathBuf,
    pub tui: Tmux,
    /// Its thread; empty until somebody has spoken.
    pub thread: String,
}

impl Three {
    /// Three terminals in each of which somebody has spoken, so that codex has opened a thread for its title. `None` if the test is
    /// skipped.
    pub fn start(test: &'static str) -> Option<Three> {
        Three::start_with(test, &["alpha", "beta", "gamma"])
    }

    /// The same, if only in some terminals somebody has spoken.
    pub fn start_with(test: &'static str, spoken: &[&str]) -> Option<Three> {
        let script = vec![vec![Item::Text(vec!["Here."])]; spoken.len()];
        let bench = Bench::start(test, &[Ability::ShownTitles], script)?;
        let mut terminals = Vec::new();
        for (name, is_repository) in [("alpha", true), ("beta", true), ("gamma", false)] {
            let folder = bench.lab.root().join(name);
            fs::create_dir_all(folder.join("src")).expect("a folder");
            if is_repository {
                let made = Command::new("git").args(["init", "-q"]).current_dir(&folder).status();
                assert!(made.expect("git runs").success());
            }
            bench.trusts(&folder);
            let tui = bench.tui_in(&folder, "")?;
            if spoken.contains(&name) {
                says_to(&tui, &format!("hello {name}"));
                tui.shows_all(&["Here.", TITLE]);
            }
            terminals.push(Terminal { name, folder, tui, thread: String::new() });
        }
        let session = bench.session().file_name().expect("a name").to_string_lossy().into_owned();
        let mut three = Three { bench, session, terminals };
        eventually("threads with titles", || {
            let threads = three.threads();
            let titled = threads.iter().filter(|thread| thread["title"] == TITLE).count();
            (titled == spoken.len()).then_some(())
        });
        for number in 0..three.terminals.len() {
            if spoken.contains(&three.terminals[number].name) {
                three.finds_thread(number);
            }
        }
        Some(three)
    }

    /// Looks up the thread of a terminal, in which somebody has spoken.
    pub fn finds_thread(&mut self, number: usize) {
        let folder = json!(self.terminals[number].folder);
        let threads = eventually("the thread of a terminal", || {
            let threads = self.threads();
            threads.iter().any(|thread| thread["cwd"] == folder).then_some(threads)
        });
        let is_of = |thread: &&Value| thread["cwd"] == folder && thread["kind"] == "user";
        let of_terminal: Vec<&Value> = threads.iter().filter(is_of).collect();
        assert_eq!(of_terminal.len(), 1, "{threads:#?}");
        self.terminals[number].thread = of_terminal[0]["thread_id"].as_str().expect("an id").to_owned();
    }

    /// The threads in the document of the hub's session.
    pub fn threads(&self) -> Vec<Value> {
        let status: Value = self.document(&self.bench.lab.cwd(), &["status", &self.session, "--json"]);
        status["threads"].as_array().cloned().unwrap_or_default()
    }

    /// A tool that its user starts in a folder.
    pub fn tool(&self, folder: &Path, args: &[&str]) -> Output {
        let mut command = self.bench.lab.command(SHIM);
        let command = self.bench.home.adopt(&mut command).current_dir(folder).args(args).stdin(Stdio::null());
        command.stderr(Stdio::piped()).output().expect("the tool runs")
    }

    #[track_caller]
    pub fn says(&self, folder: &Path, args: &[&str]) -> String {
        let output = self.tool(folder, args);
        assert!(output.status.success(), "{args:?} in {}: {output:?}", folder.display());
        String::from_utf8(output.stdout).expect("it is UTF-8")
    }

    #[track_caller]
    pub fn document(&self, folder: &Path, args: &[&str]) -> Value {
        serde_json::from_str(&self.says(folder, args)).expect("it is JSON")
    }
}

#[test]
fn e2e_messages_reach_the_thread_of_their_folder() {
    let Some(three) = Three::start("e2e_messages_reach_the_thread_of_their_folder") else { return };
    for (number, terminal) in three.terminals.iter().enumerate() {
        let words = format!("message {number}");
        // The place below a repository is its own, and so is a folder below a plain one.
        let sent = three.says(&terminal.folder.join("src"), &["send", &words]);
        let expect = format!("sent to {} ({TUI}, pts/", terminal.name);
        assert!(sent.starts_with(&expect) && sent.contains(&format!("): \"{TITLE}\"\n")), "{sent}");
        assert!(sent.contains(&terminal.thread), "{sent}");
        terminal.tui.shows(&words);
        for other in three.terminals.iter().filter(|other| other.name != terminal.name) {
            assert!(!other.tui.screen().contains(&words), "{}", other.name);
        }
    }
    // Anywhere else three are possible, and nothing is sent.
    let refused = three.tool(&three.bench.lab.cwd(), &["send", "to whom?"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{why}");
    for terminal in &three.terminals {
        assert!(why.contains(&terminal.thread) && why.contains(&format!("{} ({TUI}", terminal.name)), "{why}");
        let waited = three.says(&terminal.folder, &["send", "--wait", "and now?"]);
        assert_eq!(waited, "done\n");
    }
    let said = three.bench.model.requests().iter().filter(|request| request.to_string().contains("to whom?")).count();
    assert_eq!(said, 0);
}

#[test]
fn e2e_interruptions_find_the_turn_that_is_meant() {
    let Some(three) = Three::start("e2e_interruptions_find_the_turn_that_is_meant") else { return };
    let [alpha, beta, _] = &three.terminals[..] else { panic!("three terminals") };
    for from in [&alpha.folder, &three.bench.lab.cwd()] {
        three.bench.model.then(vec![vec![Item::Hang]]);
        says_to(&alpha.tui, "work on it");
        eventually("a running turn", || {
            let threads = three.threads();
            threads
                .iter()
                .any(|thread| thread["thread_id"] == json!(alpha.thread) && !thread["turn_id"].is_null())
                .then_some(())
        });
        let status: Value = three.document(&beta.folder, &["status", "--json"]);
        assert!(status["state"] == "working" || status["state"] == "thinking", "{status:#}");
        let refused = three.tool(&beta.folder, &["interrupt"]);
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && why.contains("nothing to interrupt"), "{refused:?}");
        let interrupted = three.says(from, &["interrupt"]);
        assert!(interrupted.starts_with(&format!("interrupted alpha ({TUI}, pts/")), "{interrupted}");
        alpha.tui.shows("interrupted");
        eventually("an idle session", || {
            let status: Value = three.document(&beta.folder, &["status", "--json"]);
            (status["state"] == "idle").then_some(())
        });
    }
}

#[test]
fn e2e_threads_say_who_and_where_they_are() {
    let Some(three) = Three::start("e2e_threads_say_who_and_where_they_are") else { return };
    let threads = three.threads();
    let kinds = |kind: &str| threads.iter().filter(|thread| thread["kind"] == kind).count();
    assert_eq!((kinds("user"), kinds("title"), threads.len()), (3, 3, 6), "{threads:#?}");
    for terminal in &three.terminals {
        let thread = threads.iter().find(|thread| thread["thread_id"] == json!(terminal.thread)).expect("it is there");
        let repository = if terminal.name == "gamma" { Value::Null } else { json!(terminal.folder) };
        assert_eq!(
            (&thread["place"]["folder"], &thread["place"]["repository"], &thread["title"]),
            (&json!(terminal.name), &repository, &json!(TITLE))
        );
        let client = &thread["client"];
        let tty = terminal.tui.run(&["display-message", "-p", "#{pane_tty}"]);
        assert_eq!(
            (&client["name"], &client["terminal"]),
            (&json!(TUI), &json!(tty.trim().trim_start_matches("/dev/")))
        );
        assert_eq!(client["pid"], json!(terminal.tui.pid().as_raw_nonzero().get()));
        let hub = three.bench.status();
        let connections = hub["connections"].as_array().expect("an array");
        let its = connections.iter().find(|connection| connection["pid"] == client["pid"]).expect("its connection");
        assert_eq!((&its["folders"], &its["terminal"]), (&json!([terminal.name]), &client["terminal"]));
        // A tool in its folder finds the hub, whichever folder that has.
        let status: Value = three.document(&terminal.folder.join("src"), &["status", "--json"]);
        assert_eq!(status["threads"].as_array().map(Vec::len), Some(6), "{status:#}");
        let told = three.says(&terminal.folder, &["status"]);
        let words =
            format!("{} ({TUI}, {}): \"{TITLE}\"", terminal.name, client["terminal"].as_str().unwrap_or_default());
        assert!(told.contains(&words), "{told}");
    }
}

#[test]
fn e2e_requests_say_which_terminal_asks() {
    let Some(three) = Three::start("e2e_requests_say_which_terminal_asks") else { return };
    let [alpha, beta, gamma] = &three.terminals[..] else { panic!("three terminals") };
    // A command that asks in one, a question of the same kind in another.
    for terminal in [alpha, beta] {
        three.bench.model.then(vec![run()]);
        says_to(&terminal.tui, "do it");
        terminal.tui.shows(DIALOG);
    }
    let rows = |args: &[&str]| {
        let document = three.document(&three.bench.lab.cwd(), args);
        document["requests"].as_array().cloned().expect("an array")
    };
    let pending = eventually("two requests", || Some(rows(&["requests", "--json"])).filter(|rows| rows.len() == 2));
    for (terminal, row) in [alpha, beta].iter().zip(&pending) {
        let name = format!("{} ({TUI})", terminal.name);
        let session = &row["session"];
        assert_eq!((&session["name"], &session["cwd"]), (&json!(name), &json!(terminal.folder)), "{row:#}");
        assert_eq!((&row["thread"]["title"], &row["thread"]["kind"]), (&json!(TITLE), &json!("user")), "{row:#}");
    }
    let listed = three.says(&gamma.folder, &["requests"]);
    assert!(listed.contains("alpha (codex-tui)") && listed.contains("beta (codex-tui)"), "{listed}");
    assert!(!listed.contains("codex-home"), "{listed}");
    // Whoever waits in a folder gets what its threads ask, and elsewhere all of it.
    let waited = |folder: &Path| {
        let document = three.document(folder, &["wait", "--for", "pending", "--json", "--timeout", "1ms"]);
        let requests = document["requests"].as_array().expect("an array").iter();
        requests.map(|row| row["request_id"].clone()).collect::<Vec<_>>()
    };
    let ids: Vec<Value> = pending.iter().map(|row| row["request_id"].clone()).collect();
    assert_eq!(waited(&alpha.folder), ids[..1]);
    assert_eq!(waited(&beta.folder.join("src")), ids[1..]);
    assert_eq!(waited(&three.bench.lab.cwd()), ids);
    // A second terminal in one folder is told apart by its terminal.
    let Some(twin) = three.bench.tui_in(&alpha.folder, "") else { return };
    three.bench.model.then(vec![run()]);
    says_to(&twin, "do it too");
    twin.shows(DIALOG);
    eventually("a third request", || (rows(&["requests", "--json"]).len() == 3).then_some(()));
    let listed = three.says(&gamma.folder, &["requests"]);
    assert_eq!(listed.matches("alpha (codex-tui, pts/").count(), 2, "{listed}");
    assert_eq!(listed.matches("beta (codex-tui)").count(), 1, "{listed}");
}

#[test]
fn e2e_unseen_answers_stay_in_their_folder() {
    let Some(three) = Three::start("e2e_unseen_answers_stay_in_their_folder") else { return };
    let [alpha, beta, _] = &three.terminals[..] else { panic!("three terminals") };
    three.bench.model.then(vec![run()]);
    says_to(&beta.tui, "do it");
    beta.tui.shows(DIALOG);
    let pending = || three.document(&alpha.folder, &["requests", "--json"])["requests"].clone();
    let asked = eventually("a request", || Some(pending()[0]["request_id"].as_str()?.to_owned()));
    // Somebody may have answered the request of alpha just before: the only one that is left is of another project.
    for answer in [&["accept"][..], &["--json", r#"{"decision":"accept"}"#]] {
        let refused = three.tool(&alpha.folder, &[&["respond", "latest"], answer].concat());
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(3) && why.contains(&format!("another folder: {asked}")), "{refused:?}");
    }
    assert_eq!(pending()[0]["status"], "pending");
    assert!(three.says(&alpha.folder, &["show", "latest"]).contains("beta (codex-tui"));
    // What the agents of several projects do says where.
    let told = three.says(&alpha.folder, &["tail"]);
    assert!(told.lines().any(|line| line.contains("beta (codex-tui)") && line.contains("echo ran")), "{told}");
    // No thread is open here, and so the only request is meant.
    three.says(&three.bench.lab.cwd(), &["respond", "latest", "decline"]);
    eventually("its end", || (pending() == json!([])).then_some(()));
    assert_eq!(three.bench.ran(), 0);
}

#[test]
fn e2e_context_stays_in_its_repository() {
    let Some(three) = Three::start("e2e_context_stays_in_its_repository") else { return };
    let [alpha, beta, gamma] = &three.terminals[..] else { panic!("three terminals") };
    let elsewhere = three.bench.lab.cwd();
    // A repository inside another one is not the other one.
    let inner = alpha.folder.join("vendor/inner");
    fs::create_dir_all(inner.join(".git")).expect("a folder");
    let link = three.bench.lab.root().join("link");
    std::os::unix::fs::symlink(&beta.folder, &link).expect("a link");
    let exec = |folder: &Path, word: &str| {
        let output = three.tool(folder, &["exec", "echo", word]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (folder, word) in
        [(alpha.folder.join("src"), "of-alpha"), (link.join("src"), "of-beta"), (gamma.folder.join("src"), "of-gamma")]
    {
        assert_eq!(exec(&folder, word), "", "{word}");
    }
    for (folder, word) in [(&inner, "of-inner"), (&elsewhere, "of-nobody")] {
        assert!(exec(folder, word).contains("no thread of this repository is open"), "{word}");
    }
    let pushed = three.tool(&elsewhere, &["context", "push", "--cmd", "pushed-for-nobody"]);
    assert_eq!(pushed.status.code(), Some(1), "{pushed:?}");
    let commands = three.document(&elsewhere, &["context", "show", "latest", "--json"]);
    let of_thread = |terminal: &Terminal| {
        let commands = commands["commands"].as_array().expect("an array").iter();
        let of_thread = commands.filter(|command| command["thread_id"] == json!(terminal.thread));
        of_thread.map(|command| command["cmd"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(commands["commands"].as_array().map(Vec::len), Some(3), "{commands:#}");
    for terminal in [gamma, beta, alpha] {
        let own = format!("of-{}", terminal.name);
        assert_eq!(of_thread(terminal), [format!("echo {own}")]);
        says_to(&terminal.tui, "what did I run?");
        let asked = eventually("the model's request", || {
            let (requests, _) = three.bench.asked();
            requests
                .into_iter()
                .map(|request| request.to_string())
                .find(|text| text.contains("what did I run?") && text.contains(&own))
        });
        for other in ["of-alpha", "of-beta", "of-gamma", "of-inner", "of-nobody"].iter().filter(|word| **word != own) {
            assert!(!asked.contains(other), "{other} was shown in {}: {asked}", terminal.name);
        }
        terminal.tui.shows("done");
    }
    // A new thread works in the folder of its caller.
    three.says(&elsewhere, &["send", "--new", "--wait", "begin here"]);
    let threads = three.threads();
    assert!(threads.iter().any(|thread| thread["cwd"] == json!(elsewhere)), "{threads:#?}");
}

#[test]
fn e2e_words_of_title_threads_are_not_the_user_s() {
    let Some(three) = Three::start("e2e_words_of_title_threads_are_not_the_user_s") else { return };
    let everywhere = three.bench.lab.cwd();
    for terminal in &three.terminals {
        let said = three.says(&terminal.folder, &["transcript", "latest", "--json"]);
        assert!(said.contains(&format!("hello {}", terminal.name)) && !said.contains("User prompt"), "{said}");
    }
    // Somewhere else it is the thread of a person that was used last.
    let said = three.says(&everywhere, &["transcript", "latest", "--json"]);
    assert!(said.contains("hello gamma") && !said.contains("User prompt"), "{said}");
    let hits = |args: &[&str]| {
        let document = three.document(&everywhere, args);
        document["matches"].as_array().map(Vec::len)
    };
    assert_eq!(hits(&["search", "\"User prompt\"", "--json"]), Some(0));
    assert_eq!(hits(&["search", "\"User prompt\"", "--json", "--all-threads"]), Some(3));
    assert_eq!(hits(&["search", "hello", "--json"]), Some(3));
}
