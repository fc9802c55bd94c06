//! Published clients, unmodified: each has the same conversation with the real codex directly and through a relay, and
//! sees the same, although the relay shows the model the terminal commands.
//!
//! `make clients` installs them into `target/clients`; `tests/clients` has a driver for each, in its own language.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use serde_json::Value;

use crate::support::codex::{Lab, installed_or_skip};
use crate::support::journal::Journal;
use crate::support::model::{Item, Model, Script};
use crate::support::release::Release;
use crate::support::shim::{Home, SHIM};
use crate::support::streams::{Runs, Streams, Way, settled};

/// Texts that no client may see: the markers as JSON escapes them, and a word of the terminal command.
const TRACES: [&str; 4] = ["CODEX_META", "\\u001e", "\\u001f", "zebra"];

/// Limit on runs of either kind, because codex itself varies between runs.
const RUNS_MAX: usize = 5;

/// A published client.
pub struct Client {
    /// Its package's import name.
    pub package: &'static str,
    /// Its driver in `tests/clients`.
    driver: &'static str,
    /// The name that it sends in `initialize`.
    pub name: &'static str,
    /// The parts of the conversation that it must report, in its own words.
    sees: &'static [&'static str],
    /// How many streams are the same in all runs.
    streams_min: usize,
}

impl Client {
    fn run(&self, codex: &Path, way: Way) -> Run {
        let run = self.run_with(Release::under_test(), codex, way);
        assert!(run.status.success(), "{} {way:?}: {}\n{}", self.driver, run.status, run.text);
        run
    }

    /// Whether it is installed.
    pub fn is_installed(&self) -> bool {
        is_installed(self.package)
    }

    /// Whether a run was the whole conversation.
    pub fn has_succeeded(&self, run: &Run) -> bool {
        run.status.success() && self.sees.iter().all(|words| run.text.contains(words)) && run.left == [true, false]
    }

    /// The conversation with any release, however it ends.
    pub fn run_with(&self, release: Release, codex: &Path, way: Way) -> Run {
        let model = Model::start(script(release));
        let lab = Lab::of_release(release, &model, "");
        let home = Home::new();
        let output = lab.cwd().join("output.txt");
        fs::write(&output, "zebra\n").expect("a file");
        let driver = tests().join(self.driver);
        let interpreter = if driver.extension().is_some_and(|extension| extension == "py") {
            installed("python/bin/python")
        } else {
            PathBuf::from("node")
        };
        let mut command = lab.command(interpreter);
        command.arg(driver).env("NODE_MODULES", installed("node_modules")).env("MODEL", lab.release.model_name());
        match way {
            Way::Direct => command.arg(codex).env("BESIDE", "true"),
            Way::Relayed => {
                // A client may check the file name before it accepts the program as codex.
                let link = home.beside().join("codex");
                std::os::unix::fs::symlink(SHIM, &link).expect("a link");
                // Some clients start the server with their first turn.
                let session = home.path().join("sessions/s");
                let push = format!("{SHIM} context push --session s --cmd make --output-file {output:?} >&2");
                let beside = format!("test ! -d {session:?} || {push}");
                home.adopt(&mut command).env("CODEX_SHIM_CODEX", codex).env("CODEX_SHIM_SESSION", "s");
                command.arg(link).env("BESIDE", beside)
            }
        };
        let told = command.stdin(Stdio::null()).output().expect("the interpreter starts");
        let text = String::from_utf8(told.stdout).expect("a driver writes text");
        let root = lab.root().to_string_lossy().into_owned();
        let mut streams = Streams::new();
        for line in text.lines() {
            let Ok(seen) = serde_json::from_str::<(String, Value)>(line) else {
                assert!(!told.status.success(), "{}: {line}", self.driver);
                continue;
            };
            streams.entry(settled_name(&seen.0)).or_default().push(settled(&seen.1, &root));
        }
        let asked = model.requests().iter().map(|request| request["input"].to_string()).collect();
        let left = [lab.cwd().join("ran.txt").exists(), lab.cwd().join("new.txt").exists()];
        Run { status: told.status, streams, text, asked, left, home }
    }

    fn check(&self, test: &str) {
        let Some(codex) = installed_or_skip(test) else { return };
        if !is_installed(self.package) {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: it is not installed; `make clients` does that");
            return;
        }
        let run = |way| self.run(&codex, way);
        let mut runs = Runs { direct: vec![run(Way::Direct), run(Way::Direct)], relayed: vec![run(Way::Relayed)] };
        let (compared, all) = runs.compare(test, RUNS_MAX, |run| &run.streams, run);
        assert!(compared >= self.streams_min, "{test}: only {compared} of {all} streams are always the same");
        for run in runs.direct.iter().chain(&runs.relayed) {
            let unseen: Vec<_> = self.sees.iter().filter(|words| !run.text.contains(**words)).collect();
            assert!(unseen.is_empty(), "{test}: {unseen:?} in\n{}", run.text);
            assert_eq!(run.left, [true, false], "{test}: the command was accepted, and the change was not");
        }
        for run in &runs.relayed {
            for trace in TRACES {
                assert!(!run.text.contains(trace), "{test}: {trace} in\n{}", run.text);
            }
            let knows = run.asked.iter().any(|input| input.contains("CODEX_META") && input.contains("zebra"));
            assert!(knows, "{test}: {:#?}", run.asked);
            self.check_kept(test, &run.home);
        }
    }

    /// Checks that the ledger has its requests and answers, and that the journal is complete.
    fn check_kept(&self, test: &str, home: &Home) {
        let told = home.shim(&["requests", "--all", "--json", "--session", "s"]).output().expect("the shim runs");
        let told: Value = serde_json::from_slice(&told.stdout).unwrap_or_else(|_| panic!("{test}: {told:?}"));
        let rows = told["requests"].as_array().unwrap_or_else(|| panic!("{test}: {told:#}"));
        assert_eq!(rows.len(), 2, "{test}: {told:#}");
        for row in rows {
            let told = ["status", "resolution_source", "resolved_by"].map(|name| row[name].as_str());
            assert_eq!(told, [Some("resolved"), Some("client"), Some(self.name)], "{test}: {row:#}");
        }
        let journal = Journal::read(&home.path().join("sessions/s"));
        assert_eq!((journal.gaps.len(), journal.event_names().last()), (0, Some(&"generation_ended")), "{test}");
    }
}

/// The result of a run.
pub struct Run {
    status: ExitStatus,
    streams: Streams,
    /// Everything the client printed.
    text: String,
    /// The requests to the model, as JSON.
    asked: Vec<String>,
    /// Whether the command ran, and whether the file was changed.
    left: [bool; 2],
    pub home: Home,
}

/// A message, a command that the client accepts, and a change that it declines.
fn script(release: Release) -> Script {
    let says = |words| vec![Item::Text(vec![words])];
    let patch = Item::Patch("*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch");
    vec![
        vec![Item::Text(vec!["Hello ", "there."])],
        vec![release.command_to_be_approved("echo ran >> ran.txt")],
        says("It ran."),
        vec![patch],
        says("Left alone."),
    ]
}

fn settled_name(name: &str) -> String {
    settled(&Value::from(name), "/nowhere").as_str().expect("text stays text").to_owned()
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

fn installed(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients").join(path)
}

fn is_installed(package: &str) -> bool {
    let of_python = fs::read_dir(installed("python/lib")).into_iter().flatten().flatten();
    let mut folders = of_python.map(|python| python.path().join("site-packages"));
    installed("node_modules").join(package).exists() || folders.any(|folder| folder.join(package).exists())
}

/// The clients, by their drivers.
pub fn all() -> [Client; 4] {
    [
        Client {
            package: "openai_codex",
            driver: "openai_codex_sdk.py",
            name: "codex_python_sdk",
            sees: &["Hello there.", "It ran.", "Left alone.", "declined", "fileChange"],
            streams_min: 12,
        },
        Client {
            package: "codex_app_server_sdk",
            driver: "codex_app_server_sdk_client.py",
            name: "codex-app-server-sdk",
            sees: &["Hello there.", "It ran.", "Left alone.", "declined", "fileChange"],
            streams_min: 8,
        },
        Client {
            package: "ai-sdk-provider-codex-cli",
            driver: "ai_sdk_provider.mjs",
            name: "ai-sdk-provider-codex-cli",
            sees: &["Hello ", "It ran.", "Left alone.", "declined", "fileChange"],
            streams_min: 12,
        },
        Client {
            package: "@agentclientprotocol/codex-acp",
            driver: "codex_acp.py",
            name: "@agentclientprotocol/codex-acp",
            sees: &["Hello ", "It ran.", "allow_once", "end_turn", "cancelled"],
            streams_min: 6,
        },
    ]
}

#[test]
fn clients_openai_codex() {
    all()[0].check("clients_openai_codex");
}

#[test]
fn clients_codex_app_server_sdk() {
    all()[1].check("clients_codex_app_server_sdk");
}

#[test]
fn clients_ai_sdk_provider_codex_cli() {
    all()[2].check("clients_ai_sdk_provider_codex_cli");
}

#[test]
fn clients_codex_acp() {
    all()[3].check("clients_codex_acp");
}
