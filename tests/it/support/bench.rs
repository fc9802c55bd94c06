//! A hub with real TUIs of codex in tmux, an editor on pipes, and a scripted model.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::both_ends::text;
use super::codex::{Lab, installed_or_skip};
use super::eventually;
use super::model::{Model, Script};
use super::peer::Peer;
use super::release::{Ability, Release};
use super::shim::{Home, SHIM};
use super::tmux::Tmux;
use super::websocket::Client;

/// The approval's dialog.
pub const DIALOG: &str = "Would you like to run the following command?";

/// The mark before the TUI's input, and before the choice in a dialog.
const PROMPT: &str = "›";

/// A TUI of 0.150 shows it until it has a thread.
const LOADING: &str = "loading";

/// The name of the TUI in `initialize`.
pub const TUI: &str = "codex-tui";

/// The end of a turn in a conversation.
pub const COMPLETED: (&str, &str) = ("turn", "completed");

/// Answers of the TUI to the screens of its first start: without them it waits for a person.
const FIRST_START: &str = r#"
[tui]
screen_reader_detection_done = true
[tui.model_availability_nux]
"gpt-6.1-sol" = 2
[notice.model_migrations]
"gpt-5.5" = "gpt-6-sol"
"#;

/// A hub that runs, with a scripted model behind its server. At its end it runs no longer.
pub struct Bench {
    test: &'static str,
    pub model: Model,
    pub lab: Lab,
    pub home: Home,
    pub codex: PathBuf,
}

impl Bench {
    /// `None` if the test is skipped.
    pub fn start(test: &'static str, abilities: &[Ability], script: Script) -> Option<Bench> {
        Bench::start_with(test, abilities, "", script)
    }

    /// The same, with more of codex's own configuration: features first.
    pub fn start_with(test: &'static str, abilities: &[Ability], of_codex: &str, script: Script) -> Option<Bench> {
        let release = Release::under_test();
        if [&[Ability::SharedServer], abilities].concat().iter().any(|ability| release.lacks(test, *ability)) {
            return None;
        }
        let codex = installed_or_skip(test)?;
        let model = Model::start(script);
        let lab = Lab::with(&model, of_codex);
        let mut config =
            fs::OpenOptions::new().append(true).open(lab.codex_home().join("config.toml")).expect("a file");
        config.write_all(FIRST_START.as_bytes()).expect("a file");
        let bench = Bench { test, model, lab, home: Home::new(), codex };
        bench.trusts(&bench.lab.cwd());
        bench.shim(&["hub", "start"]);
        Some(bench)
    }

    /// Codex asks no question about a folder.
    pub fn trusts(&self, folder: &Path) {
        let path = self.lab.codex_home().join("config.toml");
        let mut config = fs::OpenOptions::new().append(true).open(path).expect("a file");
        let trust = format!("[projects.\"{}\"]\ntrust_level = \"trusted\"\n", folder.display());
        config.write_all(trust.as_bytes()).expect("a file");
    }

    /// `codex ARG…` in a terminal, with no flag that names a server. `None` if the test is skipped.
    pub fn tui(&self, args: &str) -> Option<Tmux> {
        self.tui_in(&self.lab.cwd(), args)
    }

    /// The same with variables.
    pub fn tui_with(&self, variables: &str, args: &str) -> Option<Tmux> {
        self.tui_of(&self.lab.cwd(), variables, args)
    }

    /// The same in a folder.
    pub fn tui_in(&self, cwd: &Path, args: &str) -> Option<Tmux> {
        self.tui_of(cwd, "", args)
    }

    fn tui_of(&self, cwd: &Path, variables: &str, args: &str) -> Option<Tmux> {
        let (lab, codex) = (&self.lab, self.codex.display());
        let (codex_home, home) = (lab.codex_home(), lab.root());
        let script = format!(
            "cd '{}'; export CODEX_HOME='{}' HOME='{}' {variables}; exec '{codex}' {args} 2>'{}'",
            cwd.display(),
            codex_home.display(),
            home.display(),
            home.join("tui.err").display(),
        );
        let tui = Tmux::start(self.test, &self.home, &script)?;
        tui.shows(PROMPT);
        // Until then 0.150 ignores an Enter.
        tui.shows_no(LOADING);
        Some(tui)
    }

    /// Runs a tool of codex-shim with an input. It has to succeed.
    pub fn shim_with(&self, args: &[&str], input: &str) -> String {
        let mut command = self.lab.command(SHIM);
        self.home.adopt(&mut command).env("CODEX_SHIM_CODEX", &self.codex).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the shim runs");
        child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it is read");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it is UTF-8")
    }

    pub fn shim(&self, args: &[&str]) -> String {
        self.shim_with(args, "")
    }

    /// The same in the hub's session.
    pub fn tool(&self, args: &[&str]) -> String {
        let session = self.session().file_name().expect("a name").to_string_lossy().into_owned();
        self.shim(&[args, &["--session", &session]].concat())
    }

    pub fn document(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.tool(&[args, &["--json"]].concat())).expect("it is JSON")
    }

    pub fn session(&self) -> PathBuf {
        let sessions = self.home.sessions();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        sessions[0].clone()
    }

    /// The document of `hub status --json`.
    pub fn status(&self) -> Value {
        let mut command = self.lab.command(SHIM);
        let output = self.home.adopt(&mut command).args(["hub", "status", "--json"]).output().expect("the shim runs");
        serde_json::from_slice(&output.stdout).expect("it is JSON")
    }

    pub fn default_socket(&self) -> PathBuf {
        self.lab.codex_home().join("app-server-control/app-server-control.sock")
    }

    /// The thread that a TUI has started, and its connection.
    pub fn joined(&self) -> (String, Value) {
        eventually("a client with a thread", || {
            let status = self.status();
            let connections = status["connections"].as_array()?;
            let joined = connections.iter().find(|connection| connection["threads"][0].is_string())?;
            Some((text(&joined["threads"][0]), joined.clone()))
        })
    }

    /// A client that knows nothing of codex's TUI, in a thread.
    pub fn watcher(&self, thread: &str) -> Client {
        let mut watcher = Client::connect(&self.session().join("codex.sock"));
        watcher.initialize("watcher");
        watcher.call("thread/resume", json!({"threadId": thread}));
        watcher
    }

    /// An editor on pipes, which joins the hub through codex-shim.
    pub fn editor(&self) -> Peer {
        let mut command = self.lab.command(SHIM);
        self.home.adopt(&mut command).env("CODEX_SHIM_CODEX", &self.codex).env("CODEX_SHIM_SERVER", "shared");
        let mut editor = Peer::start(command.arg("app-server"));
        editor.initialize();
        editor
    }

    /// The stored requests, as soon as the last one is confirmed.
    pub fn confirmed(&self, count: usize) -> Vec<Value> {
        eventually("confirmed requests", || {
            let rows = self.rows();
            assert!(rows.len() <= count, "{rows:#?}");
            (rows.len() == count && rows.iter().all(|row| !row["confirmed_at"].is_null())).then_some(rows)
        })
    }

    /// The requests, without their session, which says whether a hub runs.
    pub fn rows(&self) -> Vec<Value> {
        let mut rows = self.document(&["requests", "--all"])["requests"].as_array().expect("an array").clone();
        for row in &mut rows {
            row.as_object_mut().expect("an object").remove("session").expect("each names its session");
        }
        rows
    }

    /// The roles and texts of a thread and the outcomes of its turns, in order, as soon as this many turns have ended.
    pub fn conversation(&self, thread: &str, turns: usize) -> Vec<(String, String)> {
        eventually("the ends of the turns", || (self.counts(thread, ["turn/completed"]) == [turns]).then_some(()));
        self.recorded(thread).expect("the thread is on record")
    }

    /// The same as it is on record now; `None` if the thread is not.
    pub fn recorded(&self, thread: &str) -> Option<Vec<(String, String)>> {
        let mut command = self.lab.command(SHIM);
        let output = self.home.adopt(&mut command).args(["transcript", thread, "--json"]).output();
        let output = output.expect("the shim runs");
        let lines = String::from_utf8(output.stdout).expect("it is UTF-8");
        let lines = lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
        let said = lines.filter_map(|line: Value| match line["role"].as_str()? {
            role @ ("user" | "assistant") => Some((role.to_owned(), text(&line["text"]))),
            "status" => Some(("turn".to_owned(), text(&line["status"]))),
            _ => None,
        });
        output.status.success().then(|| said.collect())
    }

    /// How often each of these events happened in a thread.
    pub fn counts<const N: usize>(&self, thread: &str, types: [&str; N]) -> [usize; N] {
        let events = self.document(&["events", "--since", "0", "-n", "1000", "--thread", thread]);
        let events = events["events"].as_array().expect("an array");
        types.map(|wanted| events.iter().filter(|event| event["event_type"] == wanted).count())
    }

    /// The requests that the model has answered, without and with a special form of the answer.
    pub fn asked(&self) -> (Vec<Value>, Vec<Value>) {
        self.model.requests().into_iter().partition(|request| !request["text"]["format"].is_object())
    }

    /// How often the model's command has run.
    pub fn ran(&self) -> usize {
        fs::read_to_string(self.lab.cwd().join("ran.txt")).unwrap_or_default().lines().count()
    }

    pub fn kill_hub(&self) {
        let pid = self.status()["pid"].to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().expect("kill runs").success());
        eventually("the end of the hub", || (self.status()["running"] == false).then_some(()));
    }

    /// Waits until every one of these terminals has a connection in its thread again.
    pub fn joined_again(&self, count: usize) {
        eventually("connections in a thread", || {
            let status = self.status();
            let connections = status["connections"].as_array()?;
            let joined = connections.iter().filter(|connection| connection["threads"][0].is_string()).count();
            (joined == count).then_some(())
        });
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let mut command = self.lab.command(SHIM);
        let _ = self.home.adopt(&mut command).args(["hub", "stop", "--yes"]).stdout(Stdio::null()).status();
    }
}

/// Types a message and sends it. An Enter in the same burst as the text would be a line break of the message.
pub fn says_to(tui: &Tmux, words: &str) {
    tui.types(words);
    tui.shows(words);
    tui.keys(&["Enter"]);
}

/// Approves in a dialog. Codex ignores keys in the first moments of a dialog, so an arrow is repeated until it has moved the mark of
/// the choice. The key that counts is sent once: a second one could come after the dialog, and be text.
pub fn approves(tui: &Tmux) {
    // Messages before it have the same mark.
    let choice = || tui.screen().lines().rfind(|line| line.trim_start().starts_with(PROMPT)).map(str::to_owned);
    tui.shows(DIALOG);
    let first = eventually("a choice", choice);
    eventually("a dialog that takes keys", || {
        tui.keys(&["Down"]);
        choice().filter(|choice| *choice != first)
    });
    tui.types("y");
    tui.shows_no(DIALOG);
}

pub fn said(conversation: &[(&str, &str)]) -> Vec<(String, String)> {
    conversation.iter().map(|(role, words)| ((*role).to_owned(), (*words).to_owned())).collect()
}
