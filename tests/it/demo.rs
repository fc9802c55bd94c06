//! The demo, a newcomer's first screen.

use std::path::Path;
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

/// The command lines of processes that name a file below this folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&folder)).collect()
}

#[test]
fn demo_of_the_hub_keeps_its_promises_and_leaves_nothing() {
    let home = Home::new();
    let temporary = home.beside().join("tmp");
    std::fs::create_dir(&temporary).expect("a folder");
    let mut command = home.shim(&["demo", "--hub"]);
    command
        .env("TMPDIR", &temporary)
        .env("CODEX_SHIM_HOLD", "true")
        .env("CODEX_SHIM_OFF", "1")
        .env("PATH", "/usr/bin:/bin");
    let output = command.stdin(Stdio::null()).output().expect("the shim runs");
    let screen = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{screen}{}", String::from_utf8_lossy(&output.stderr));
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    for shown in [
        "codex  asks both to run: echo relayed   (request 0)\n",
        "terminal  accepts\n",
        "editor  closes its dialog: answered elsewhere\n",
        "in the ledger             1 request, answered by the terminal\n",
        "$ kill -9 of the hub\n",
        " as before, taken over by a new hub\n",
        "the request               id 1 as before, in the ledger as ",
        "in the ledger             1 row, answered 1 time by the editor\n",
        "missing on record         0\n",
    ] {
        assert!(screen.contains(shown), "{shown}: {screen}");
    }
    assert_eq!(screen.matches("asks both to run: echo relayed   (request 1)").count(), 2, "{screen}");
    assert_eq!(std::fs::read_dir(&temporary).expect("it can be read").count(), 0);
    assert_eq!(processes_of(&temporary), Vec::<String>::new());
    assert!(home.sessions().is_empty());
}

#[test]
fn demo_of_the_hub_that_is_interrupted_leaves_no_process() {
    // Before the hub runs, with its clients, and after it was killed.
    for until in ["1  Two clients", "the user writes: run it", "the connections of both end"] {
        let home = Home::new();
        let temporary = home.beside().join("tmp");
        std::fs::create_dir(&temporary).expect("a folder");
        let mut demo =
            home.shim(&["demo", "--hub"]).env("TMPDIR", &temporary).stdin(Stdio::null()).spawn().expect("it starts");
        let pid = rustix::process::Pid::from_child(&demo);
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(demo.stdout.take().expect("stdout is piped")));
        lines
            .find(|line| line.as_ref().is_ok_and(|line| line.contains(until)))
            .expect("it comes so far")
            .expect("a line");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        lines.for_each(drop);
        let output = demo.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.contains("interrupted")), (Some(1), true), "{until}: {said}");
        assert_eq!(std::fs::read_dir(&temporary).expect("it can be read").count(), 0, "{until}");
        assert_eq!(processes_of(&temporary), Vec::<String>::new(), "{until}");
    }
}

#[test]
fn program_is_told_what_the_demo_of_the_hub_has_shown() {
    let home = Home::new();
    let output = home.shim(&["demo", "--hub", "--json"]).stdin(Stdio::null()).output().expect("the shim runs");
    assert!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!((&document["held"], &document["error"]), (&json!(true), &Value::Null), "{document}");
    let parts = document["parts"].as_array().expect("parts");
    let asked =
        |part: &Value| part["said"].as_array().is_some_and(|said| said.iter().any(|said| said["who"] == "codex"));
    assert_eq!(parts.iter().filter(|part| asked(part)).count(), 3, "{document}");
}
