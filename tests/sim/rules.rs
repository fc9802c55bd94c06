//! The rules and the fragment in the settings of some worlds, and what the rules do by their documentation.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

use codex_shim::testing::config::{Environment, Flags, Settings};
use codex_shim::testing::engine::Token;
use serde_json::Value;

use super::lines::Message;
use super::world::HOLD_MAX;

/// A rule of each kind, and a fragment that a command gives, for which turns wait.
const FILE: &str = r#"
[[rules]]
name = "list"
match = { kind = "command", argv = ["/bin/ls", "-l"], cwd = "/w" }
action = "accept"

[[rules]]
name = "no rm"
match = { kind = "command", argv_prefix = ["rm"] }
action = "decline"

[[rules]]
name = "make"
match = { kind = "command", argv_prefix = ["make"] }
action = "hold"

[[fragments]]
name = "branch"
role = "developer"
command = ["/bin/branch"]
"#;

/// The settings, as the relay reads them.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::write(home.path().join("config.toml"), FILE).expect("a file");
        let path = home.path().as_os_str().to_owned();
        let environment = Environment::of(move |name| (name == "CODEX_SHIM_HOME").then(|| path.clone()));
        let (settings, complaints) = Settings::load(Flags::default(), &environment);
        let complaints: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        assert!(complaints.is_empty(), "{complaints:?}");
        settings
    })
}

/// A command that a rule declines at once.
pub const DECLINED: &str = "rm x";

/// Commands that the server asks about.
pub const COMMANDS: [&str; 12] = [
    "touch x",
    "touch y",
    "cp x y",
    "mv x y",
    "/bin/ls -l",
    "/bin/bash -lc '/bin/ls -l'",
    "/bin/ls -l",
    "/bin/ls -l; rm x",
    "/bin/ls -la",
    DECLINED,
    "/bin/bash -lc 'rm -rf x'",
    "make all",
];

/// What a rule does about a request that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    Accept,
    Decline,
    Hold,
}

impl Does {
    /// The name of the rule, as the ledger has it.
    pub fn by(self) -> &'static str {
        match self {
            Does::Accept => "rule:list",
            Does::Decline => "rule:no rm",
            Does::Hold => "rule:make",
        }
    }

    /// Its answer.
    pub fn payload(self) -> &'static str {
        match self {
            Does::Accept => r#"{"decision":"accept"}"#,
            Does::Decline | Does::Hold => r#"{"decision":"decline"}"#,
        }
    }
}

/// What the rules say about a request.
#[derive(Debug, Default)]
pub struct Ruling {
    /// What the first rule that matches does.
    pub does: Option<Does>,
    /// A rule names its command, but nothing is known of its thread.
    pub is_unknown: bool,
    /// The check of its program has succeeded in time.
    pub is_checked: bool,
}

impl Ruling {
    pub fn of(params: &Value, threads: &Threads) -> Ruling {
        let is_known = params["threadId"].as_str().is_some_and(|thread| threads.are_known(thread));
        match matching(params) {
            Some(Does::Accept) if !is_known => Ruling { is_unknown: true, ..Ruling::default() },
            does => Ruling { does, ..Ruling::default() },
        }
    }

    /// Whether a rule may answer.
    pub fn answers(&self) -> bool {
        matches!(self.does, Some(Does::Accept | Does::Decline))
    }

    /// Whether this answer of a rule to the request `name` is right. A rule may accept only the command that it names, in a thread of
    /// which everything is known, once its program is checked.
    pub fn allows(&self, name: &str, by: &str, payload: Option<&str>) -> Result<(), String> {
        match self.does.filter(|does| does.by() == by) {
            None if self.is_unknown => Err(format!("3: a rule accepts in a thread of which nothing is known: {name}")),
            None => Err(format!("3: a rule answers what it does not match: {by} and {name}")),
            Some(Does::Hold) => Err(format!("3: a rule that holds has answered: {name}")),
            Some(Does::Accept) if !self.is_checked => {
                Err(format!("3: a rule accepts what was not checked in time: {name}"))
            }
            Some(does) if payload != Some(does.payload()) => {
                Err(format!("3: a rule answers otherwise than it says: {name} with {payload:?}"))
            }
            Some(_) => Ok(()),
        }
    }
}

/// A rule that is at work.
#[derive(Debug)]
pub struct Ruled {
    /// The program of the command is being checked.
    pub is_checking: bool,
    pub check: Option<Token>,
    /// Where models may write has changed since the check began.
    pub is_moved: bool,
    /// When it gives up.
    pub due: Duration,
}

impl Ruled {
    pub fn new(now: Duration, ruling: &Ruling) -> Option<Ruled> {
        let is_checking = ruling.does == Some(Does::Accept);
        ruling.answers().then_some(Ruled { is_checking, check: None, is_moved: false, due: now + HOLD_MAX })
    }
}

/// The threads whose sandbox the server has described, and the places where models may write.
#[derive(Debug, Default)]
pub struct Threads {
    known: BTreeSet<String>,
    places: BTreeSet<String>,
    /// The hub has taken over a server, and does not know its earlier threads.
    is_adopted: bool,
}

impl Threads {
    pub fn of(is_adopted: bool) -> Threads {
        Threads { is_adopted, ..Threads::default() }
    }

    pub fn are_known(&self, thread: &str) -> bool {
        self.known.contains(thread) && !self.is_adopted
    }

    /// The server answers a call. Returns whether models may write in more places than before.
    pub fn learn(&mut self, message: &Message<'_>) -> bool {
        let Some((thread, folder)) = message.thread_with_sandbox() else { return false };
        self.known.insert(thread);
        self.places.insert(folder)
    }
}

/// The rule that matches a request, by the words of its command. Only the whole command in its own folder is accepted, if nothing
/// more is asked for.
fn matching(params: &Value) -> Option<Does> {
    let command = params["command"].as_str()?;
    let words = command.strip_prefix("/bin/bash -lc '").and_then(|rest| rest.strip_suffix('\'')).unwrap_or(command);
    let asks_for_more = params.get("networkApprovalContext").is_some();
    match words.split(' ').next() {
        Some("/bin/ls") => {
            let is_its = words == "/bin/ls -l" && params["cwd"] == "/w" && !asks_for_more;
            is_its.then_some(Does::Accept)
        }
        Some("rm") => Some(Does::Decline),
        Some("make") => Some(Does::Hold),
        Some(_) | None => None,
    }
}
