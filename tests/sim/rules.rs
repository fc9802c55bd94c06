//! The rules and the fragment in the settings of some worlds, and what the rules do by their documentation.

use std::sync::OnceLock;

use codex_shim::testing::config::{Environment, Flags, Settings};
use serde_json::Value;

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

/// Commands that the server asks about.
pub const COMMANDS: [&str; 9] = [
    "touch x",
    "/bin/ls -l",
    "/bin/bash -lc '/bin/ls -l'",
    "/bin/ls -l",
    "/bin/ls -l; rm x",
    "/bin/ls -la",
    "rm x",
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

/// The rule that matches a request, by the words of its command. Only the whole command in its own folder is accepted, if nothing
/// more is asked for.
pub fn matching(params: &Value) -> Option<Does> {
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
