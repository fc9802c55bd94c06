//! The demo, a newcomer's first screen.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::shim::Home;

#[test]
fn the_demo_shows_what_it_promises_and_leaves_nothing_behind() {
    let home = Home::new();
    let temporary = home.beside().join("tmp");
    std::fs::create_dir(&temporary).expect("a folder");
    let mut command = home.shim(&["demo"]);
    // The demo ignores the user's settings.
    command
        .env("TMPDIR", &temporary)
        .env("CODEX_SHIM_RECORD", "false")
        .env("CODEX_SHIM_OFF", "1")
        .env("PATH", "/usr/bin:/bin");
    let output = command.stdin(Stdio::null()).output().expect("the shim runs");
    let screen = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{screen}{}", String::from_utf8_lossy(&output.stderr));
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(!screen.contains('\x1b'), "{screen}");
    for shown in [
        "model  sees: $ cargo test   (exit 101)",
        "model  sees:   test a ... FAILED",
        "codex  asks to run: echo relayed",
        "codex-shim wrap vscode ",
        "codex-shim doctor ",
        "turn completed",
        "to the model 1 time, to the client 0 times",
        "approval                  Approval given: echo relayed\n",
        "missing on record         0\n",
    ] {
        assert!(screen.contains(shown), "{shown}: {screen}");
    }
    assert_eq!(std::fs::read_dir(&temporary).expect("it can be read").count(), 0);
    assert!(home.sessions().is_empty());
}

#[test]
fn a_program_is_told_what_the_demo_has_shown() {
    let home = Home::new();
    let output = home.shim(&["demo", "--json"]).stdin(Stdio::null()).output().expect("the shim runs");
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!((&document["held"], &document["error"]), (&json!(true), &Value::Null), "{document}");
    let parts = document["parts"].as_array().expect("parts");
    let said = parts[0]["said"].as_array().expect("what was said");
    assert!(said.iter().any(|said| said["who"] == "codex" && said["what"] == "turn completed"), "{document}");
    let missing = parts.iter().flat_map(|part| part["rows"].as_array().expect("rows"));
    let missing: Vec<&Value> = missing.filter(|row| row["name"] == "missing on record").collect();
    assert_eq!(missing, [&json!({ "name": "missing on record", "value": "0" })]);
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_behind_either() {
    let home = Home::new();
    let temporary = home.beside().join("tmp");
    std::fs::create_dir(&temporary).expect("a folder");
    let mut command = home.shim(&["demo"]);
    let mut demo = command.env("TMPDIR", &temporary).stdin(Stdio::null()).spawn().expect("the shim starts");
    let files = || std::fs::read_dir(&temporary).expect("it can be read").count();
    eventually("the demo's folder", || (files() > 0).then_some(()));
    let pid = rustix::process::Pid::from_child(&demo);
    // After its first output it has installed its handlers.
    let mut said = [0; 1];
    std::io::Read::read_exact(demo.stdout.as_mut().expect("stdout is piped"), &mut said).expect("it begins");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let status = demo.wait_with_output().expect("it ends").status;
    assert_eq!(status.code(), Some(1));
    assert_eq!(files(), 0);
}
