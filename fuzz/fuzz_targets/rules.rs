//! Arbitrary lines and arbitrary requests: a rule accepts only its own command, in its own folder, and nothing that asks for more.

#![no_main]

use std::time::Duration;

use codex_shim::testing::config::{Environment, Flags, Settings};
use codex_shim::testing::engine::{
    AssemblySettings, ContextSettings, Effect, Engine, EngineSettings, Incoming, Input, Now, RequestSettings, Rule,
    ServerOwner, acceptable_words,
};
use codex_shim::testing::wire::{Conn, Line, LineEnd, Side};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const RULE: &str = r#"
[[rules]]
name = "r"
match = { kind = "command", argv = ["/bin/ls", "-l"], cwd = "/p" }
action = "accept"
"#;

/// Tells the version of the server and the sandbox of thread `t`.
const OPENS: [(Side, &str); 4] = [
    (Side::Client, r#"{"id":1,"method":"initialize","params":{"clientInfo":{"name":"x"}}}"#),
    (Side::Server, r#"{"id":1,"result":{"userAgent":"x/0.169.0"}}"#),
    (Side::Client, r#"{"id":2,"method":"thread/start","params":{}}"#),
    (Side::Server, r#"{"id":2,"result":{"thread":{"id":"t"},"cwd":"/p","sandbox":{"type":"readOnly"}}}"#),
];

/// Members that an accepted request may have.
const HARMLESS: [&str; 13] = [
    "kind",
    "threadId",
    "turnId",
    "itemId",
    "startedAtMs",
    "environmentId",
    "reason",
    "command",
    "cwd",
    "commandActions",
    "proposedExecpolicyAmendment",
    "availableDecisions",
    "approvalId",
];

/// Members that say nothing if they are null or empty.
const EMPTY: [&str; 3] = ["additionalPermissions", "networkApprovalContext", "proposedNetworkPolicyAmendments"];

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(words) = acceptable_words(text) {
        assert!(!words.is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text:?}");
        assert!(words.iter().all(|word| text.contains(word.as_str())), "{text:?}");
    }
    let params = match serde_json::from_str::<Value>(text) {
        Ok(params @ Value::Object(_)) => params,
        _ => json!({ "threadId": "t", "command": text, "cwd": "/p" }),
    };
    if is_accepted(&params) {
        let line = params["command"].as_str().expect("a command is text");
        assert_eq!(acceptable_words(line).expect("it is clear"), ["/bin/ls", "-l"], "{params}");
        assert_eq!((&params["cwd"], &params["threadId"]), (&json!("/p"), &json!("t")), "{params}");
        for (name, value) in params.as_object().expect("an object") {
            let says_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            assert!(HARMLESS.contains(&name.as_str()) || (EMPTY.contains(&name.as_str()) && says_nothing), "{params}");
        }
    }
});

fn is_accepted(params: &Value) -> bool {
    let mut engine = Engine::new(EngineSettings {
        budget: Default::default(),
        exit_grace: Duration::from_secs(10),
        context: ContextSettings::default(),
        assembly: AssemblySettings::default(),
        requests: RequestSettings { rules: rules(), ..RequestSettings::default() },
        server_owner: ServerOwner::Client,
        own_ids: "codex-shim:0:".to_owned(),
        tokens_before: 0,
    });
    let now = Now { unix_us: 1, elapsed: Duration::ZERO };
    let mut effects = Vec::new();
    let read = |engine: &mut Engine, from: Side, line: &str, effects: &mut Vec<Effect>| {
        let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
        let _ = engine.read(now, Conn::OWN, from, Incoming::Line(line), effects);
    };
    engine.handle(now, Input::SessionOpened { generation: "000000010000".to_owned() }, &mut effects);
    for (from, line) in OPENS {
        read(&mut engine, from, line, &mut effects);
    }
    effects.clear();
    let line = json!({ "id": 0, "method": "item/commandExecution/requestApproval", "params": params }).to_string();
    read(&mut engine, Side::Server, &line, &mut effects);
    effects.iter().any(|effect| matches!(effect, Effect::CheckProgram(..)))
}

/// The rules of [`RULE`], read as the relay reads them.
fn rules() -> Vec<Rule> {
    static RULES: std::sync::OnceLock<Vec<Rule>> = std::sync::OnceLock::new();
    let read = || {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::write(home.path().join("config.toml"), RULE).expect("a file");
        let path = home.path().as_os_str().to_owned();
        let environment = Environment::of(move |name| (name == "CODEX_SHIM_HOME").then(|| path.clone()));
        Settings::load(Flags::default(), &environment).0.requests().rules
    };
    RULES.get_or_init(read).clone()
}
