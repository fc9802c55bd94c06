//! `doctor` on the server that all clients can share.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::doctor::{check, told};
use crate::support::codex::installed_or_skip;
use crate::support::release::{Ability, Release};
use crate::support::shim::{SHIM, put_program};
use crate::support::{eventually, stop};
use crate::wrap_hub::Bench;

const SERVER: &str = "shared server";

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn socket(bench: &Bench) -> PathBuf {
    bench.0.user.join(".codex/app-server-control/app-server-control.sock")
}

/// A client on pipes that has an answer to `initialize`, or the first line of its own server.
fn client(bench: &Bench, server: &str) -> Running {
    client_with(bench, server, &[])
}

/// The same with variables.
fn client_with(bench: &Bench, server: &str, variables: &[(&str, &str)]) -> Running {
    let mut command = bench.0.home.shim(&["app-server"]);
    command.env("CODEX_SHIM_SERVER", server).env("CODEX_SHIM_CODEX", bench.0.user.join("real/codex"));
    command.env("HOME", &bench.0.user).env_remove("CODEX_HOME").current_dir(&bench.0.user);
    command.envs(variables.iter().copied());
    let mut client = Running(command.spawn().unwrap());
    let info = r#"{"clientInfo":{"name":"editor","version":"1.0"}}"#;
    // Its stdin stays open as long as it runs.
    let stdin = client.0.stdin.as_mut().unwrap();
    writeln!(stdin, r#"{{"id":0,"method":"initialize","params":{info}}}"#).unwrap();
    let mut first = String::new();
    BufReader::new(client.0.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert!(!first.is_empty());
    client
}

/// The check that passes over all others.
#[track_caller]
fn expect(told: &Value, name: &str, status: &str, words: &str) {
    let found = check(told, name);
    assert!(found.0 == status && found.1.contains(words), "{name}: {found:?}");
}

#[test]
fn doctor_misses_a_hub_only_where_one_is_wanted() {
    let bench = Bench::new();
    let report = told(&bench.0);
    expect(&report, SERVER, "ok", &format!("nothing answers on {}", socket(&bench).display()));
    assert!(!report["checks"].as_array().unwrap().iter().any(|check| check["name"] == "bypass"), "{report}");
    bench.0.well(&["wrap", "codex", "--yes"]);
    let report = told(&bench.0);
    expect(&report, SERVER, "note", "it is set up for a hub");
    assert!(report.to_string().contains("start a hub with `codex-shim hub start`"), "{report}");
    assert!(!socket(&bench).exists() && !socket(&bench).with_file_name("").exists(), "it has made nothing");
}

#[test]
fn doctor_names_the_clients_of_a_hub() {
    let bench = Bench::new();
    bench.0.well(&["hub", "start"]);
    let report = told(&bench.0);
    expect(&report, SERVER, "ok", "a codex-shim hub (session ");
    expect(&report, SERVER, "ok", &format!("answers on {}, codex 0.169.0", socket(&bench).display()));
    expect(&report, "hub clients", "ok", "none is connected");
    expect(&report, "bypass", "ok", "no client");
    let _clients = [client(&bench, "shared"), client(&bench, "shared")];
    let known = eventually("two clients", || {
        let known = check(&told(&bench.0), "hub clients");
        known.1.contains('2').then_some(known)
    });
    assert_eq!(known, ("ok".to_owned(), "2 × editor 1.0 over stdio".to_owned()));
    // A look leaves no trace.
    let journal = bench.0.home.journal();
    let opened = journal.events.iter().filter(|(name, _)| name == "conn_open").count();
    assert_eq!(opened, 2, "{:#?}", journal.texts);
}

/// Commands of a terminal in a virtual environment run with the server's PATH, unless it is passed.
#[test]
fn doctor_names_a_client_with_another_path() {
    let bench = Bench::new();
    bench.0.well(&["hub", "start"]);
    let named = |report: &Value| {
        report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "environment").cloned()
    };
    let connected = |count: &str| {
        eventually("the clients", || {
            let report = told(&bench.0);
            check(&report, "hub clients").1.starts_with(count).then_some(report)
        })
    };
    // That of the server, and another one.
    let user = bench.0.user.display();
    let path = format!("{user}/bin:{user}/real:/usr/bin:/bin");
    let _same = client_with(&bench, "shared", &[("PATH", &path)]);
    assert_eq!(named(&connected("1 ×")), None);
    let _other = client_with(&bench, "shared", &[("PATH", "/nowhere:/usr/bin:/bin")]);
    let found = named(&connected("2 ×")).expect("the check");
    assert_eq!(found["status"], "note", "{found}");
    assert!(found["found"].as_str().unwrap().starts_with("commands of editor"), "{found}");
    assert!(found["remedy"].as_str().unwrap().contains("environment = [\"PATH\""), "{found}");
    let config = bench.0.home.path().join("config.toml");
    let before = fs::read_to_string(&config).unwrap_or_default();
    fs::write(&config, format!("{before}\n[hub]\nenvironment = [\"PATH\"]\n")).unwrap();
    assert_eq!(named(&told(&bench.0)), None);
}

#[test]
fn doctor_names_what_bypasses_the_hub() {
    let bench = Bench::new();
    bench.0.well(&["hub", "start"]);
    let _own = client(&bench, "own");
    bench.0.well(&["wrap", "path", "--yes"]);
    let report = told(&bench.0);
    let found: Vec<&Value> =
        report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == "bypass").collect();
    assert_eq!(found.len(), 2, "{report}");
    assert!(found[0]["found"].as_str().unwrap().contains("each client there has a server of its own"), "{report}");
    let link = bench.0.user.join("bin/codex");
    assert_eq!(found[0]["remedy"], format!("`codex-shim wrap {} --shared` lets them join the hub", link.display()));
    assert!(found[1]["found"].as_str().unwrap().starts_with("1 client has a server of its own: user"), "{report}");
    bench.0.well(&["wrap", link.to_str().unwrap(), "--shared", "--yes"]);
    let found = check(&told(&bench.0), "bypass");
    assert!(found.1.starts_with("1 client has"), "{found:?}");
    let text = String::from_utf8(bench.0.shim(&["doctor"]).stdout).unwrap();
    assert!(text.contains("\nnote    bypass"), "{text}");
}

/// A program called `codex` that has the file of a thread open to write, as codex has, and does nothing.
fn codex_with_a_thread(bench: &Bench, codex_home: &str, thread: &str) -> Running {
    named_with_a_thread(bench, "codex", codex_home, thread, |file| fs::File::create(file).unwrap())
}

fn named_with_a_thread(
    bench: &Bench,
    name: &str,
    codex_home: &str,
    thread: &str,
    open: impl FnOnce(PathBuf) -> fs::File,
) -> Running {
    let folder = bench.0.user.join(codex_home).join("sessions/2026/11/30");
    fs::create_dir_all(&folder).unwrap();
    let file = open(folder.join(format!("rollout-2026-11-30T20-42-37-{thread}.jsonl")));
    let program = bench.0.user.join("other").join(name);
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    if !program.exists() {
        put_program(&program, &fs::read("/bin/sleep").unwrap());
    }
    // The name of a folder may be anything.
    let cwd = bench.0.user.join(OsStr::from_bytes(b"not \xff UTF-8"));
    fs::create_dir_all(&cwd).unwrap();
    Running(Command::new(program).arg("600").stdin(file).current_dir(cwd).spawn().unwrap())
}

#[test]
fn what_goes_past_the_hub_is_named_once() {
    let bench = Bench::new();
    let told_of = bench.0.user.join("told");
    let hook = format!("on_bypass = [\"sh\", \"-c\", 'cat >> {0}']\n", told_of.display());
    bench.0.well(&["hub", "start"]);
    let status = || -> Value { serde_json::from_str(&bench.0.well(&["hub", "status", "--json"])).unwrap() };
    assert_eq!(status()["bypasses"], json!([]));
    let [ours, theirs] = ["01a22e31-fc3b-7752-acb9-ed867e003fbb", "01a22e31-fc4a-7402-b336-a113a0e73845"];
    let _other_home = codex_with_a_thread(&bench, "work/.codex", theirs);
    let past = codex_with_a_thread(&bench, ".codex", ours);
    // Those that only read, or are called otherwise, run no thread.
    let reads = |file: PathBuf| fs::File::open(file).unwrap();
    let _reader = named_with_a_thread(&bench, "codex-reader", ".codex", ours, reads);
    let _other = named_with_a_thread(&bench, "codexbar", ".codex", ours, |file| fs::File::create(file).unwrap());
    let found = eventually("what goes past the hub", || {
        let found = status()["bypasses"].as_array().unwrap().clone();
        (!found.is_empty()).then_some(found)
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (&found[0]["pid"], &found[0]["thread_ids"], &found[0]["reason"]),
        (&json!(past.0.id()), &json!([ours]), &json!("unknown")),
    );
    assert!(found[0]["folder"].as_str().unwrap().ends_with("/not \u{fffd} UTF-8"), "{found:?}");
    let shown = bench.0.well(&["hub", "status"]);
    assert!(shown.contains(&format!("past it   pid {}, ", past.0.id())), "{shown}");
    expect(&told(&bench.0), "bypass", "note", &format!("no record has the threads of pid {}", past.0.id()));
    // The hook is run once for it, also if it is set later, and never for what stays behind the hub.
    fs::write(bench.0.home.path().join("config.toml"), hook).unwrap();
    let lines = || fs::read_to_string(&told_of).unwrap_or_default();
    eventually("the hook", || lines().ends_with("}\n").then_some(()));
    let next = codex_with_a_thread(&bench, ".codex", theirs);
    eventually("the hook again", || (lines().lines().count() == 2).then_some(()));
    let pids: Vec<Value> =
        lines().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["pid"].clone()).collect();
    assert_eq!(pids, [json!(past.0.id()), json!(next.0.id())]);
    drop((past, next));
    eventually("nothing", || (status()["bypasses"] == json!([])).then_some(()));
}

#[test]
fn doctor_does_not_want_serve_to_join() {
    let bench = Bench::new();
    bench.0.well(&["hub", "start"]);
    let mut command = bench.0.home.shim(&["serve", "--session", "served"]);
    command.env("CODEX_SHIM_CODEX", bench.0.user.join("real/codex")).env("HOME", &bench.0.user);
    let _served = Running(command.env_remove("CODEX_HOME").current_dir(&bench.0.user).spawn().unwrap());
    eventually("the session", || {
        let sessions: Value = serde_json::from_str(&bench.0.well(&["sessions", "--json"])).unwrap();
        let sessions = sessions["sessions"].as_array().unwrap();
        sessions.iter().any(|session| session["session_id"] == "served" && session["live"] == true).then_some(())
    });
    expect(&told(&bench.0), "bypass", "ok", "no client");
}

#[test]
fn doctor_finds_a_listener_that_is_silent() {
    let bench = Bench::new();
    fs::create_dir(socket(&bench).with_file_name("")).unwrap();
    let theirs = UnixListener::bind(socket(&bench)).unwrap();
    let report = told(&bench.0);
    expect(&report, SERVER, "broken", "listens on");
    expect(&report, SERVER, "broken", "does not answer; codex waits there for 15 s, and exits");
    drop(theirs);
    // It is stale now.
    expect(&told(&bench.0), SERVER, "ok", "nothing answers on");
    bench.0.well(&["hub", "start"]);
    let status: Value = serde_json::from_str(&bench.0.well(&["hub", "status", "--json"])).unwrap();
    let pid = Pid::from_raw(i32::try_from(status["pid"].as_i64().unwrap()).unwrap()).unwrap();
    stop(pid);
    let report = told(&bench.0);
    kill_process(pid, Signal::CONT).unwrap();
    expect(&report, SERVER, "broken", "a codex-shim hub (session ");
}

#[test]
fn e2e_doctor_names_a_server_that_is_not_a_hub() {
    let test = "e2e_doctor_names_a_server_that_is_not_a_hub";
    let Some(codex) = installed_or_skip(test) else { return };
    if Release::under_test().lacks(test, Ability::SharedServer) {
        return;
    }
    let bench = Bench::new();
    let version = Command::new(&codex).arg("--version").output().unwrap().stdout;
    let mut command = Command::new(&codex);
    command.args(["app-server", "--listen", "unix://"]).env("CODEX_HOME", bench.0.user.join(".codex"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    eventually("its socket", || UnixStream::connect(socket(&bench)).ok().map(drop));
    let report = told(&bench.0);
    let found = check(&report, SERVER);
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    server.wait().unwrap();
    assert_eq!(found.0, "ok", "{report}");
    assert!(found.1.starts_with("a codex app-server (pid "), "{found:?}");
    assert!(found.1.ends_with(&format!(", {}", String::from_utf8(version).unwrap().trim())), "{found:?}");
}

#[test]
fn doctor_without_a_home_skips_the_hub() {
    let output =
        Command::new(SHIM).args(["doctor", "--json"]).env_clear().env("PATH", "/usr/bin:/bin").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["checks"].is_array(), "{report}");
}
