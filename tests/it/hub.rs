//! `codex-shim hub`: its command, its sockets and its server process, with the real codex where it is installed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::codex::{Lab, installed_or_skip};
use crate::support::model::Model;
use crate::support::patience::{PATIENCE, eventually};
use crate::support::release::{Ability, Release};
use crate::support::shim::{Home, SHIM, put_program};

/// Homes of codex and of codex-shim. At its end, no hub and no server runs in them.
struct Bench {
    lab: Lab,
    home: Home,
    codex: PathBuf,
}

impl Bench {
    fn new(codex: PathBuf) -> Bench {
        Bench { lab: Lab::new(&Model::start(Vec::new())), home: Home::new(), codex }
    }

    /// With a program in the place of codex.
    fn with_program(script: &str) -> Bench {
        let mut bench = Bench::new(PathBuf::new());
        bench.codex = bench.home.beside().join("codex");
        put_program(&bench.codex, format!("#!/bin/sh\n{script}\n").as_bytes());
        bench
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.lab.command(SHIM);
        self.home.adopt(&mut command).env("CODEX_SHIM_CODEX", &self.codex).arg("hub").args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `codex-shim hub ARG…` to its end. Returns its status and all that it prints.
    fn hub(&self, args: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = self.command(args).output().expect("the shim runs");
        let printed = [stdout, stderr].concat();
        (status.code().expect("it exits"), String::from_utf8(printed).expect("it is UTF-8"))
    }

    /// The same, and it has to succeed.
    #[track_caller]
    fn done(&self, args: &[&str]) -> String {
        let (status, printed) = self.hub(args);
        assert_eq!(status, 0, "hub {args:?}: {printed}");
        printed
    }

    /// The document of `hub status --json`.
    fn status(&self) -> Value {
        let (_, printed) = self.hub(&["status", "--json"]);
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
    }

    fn default_socket(&self) -> PathBuf {
        self.lab.codex_home().join("app-server-control/app-server-control.sock")
    }

    fn session(&self) -> PathBuf {
        let sessions = self.home.sessions();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        sessions[0].clone()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.hub(&["stop", "--yes"]);
    }
}

/// Whether a WebSocket server answers the handshake of a client.
fn answers(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    let hello = "GET /rpc HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    stream.set_read_timeout(Some(PATIENCE)).expect("it can be set");
    let mut first = [0; 12];
    stream.write_all(hello.as_bytes()).is_ok() && stream.read_exact(&mut first).is_ok() && first == *b"HTTP/1.1 101"
}

fn kill(pid: &Value) {
    let pid = pid.as_u64().expect("a process id").to_string();
    assert!(Command::new("kill").args(["-KILL", &pid]).status().expect("kill runs").success());
}

/// What `doctor` says of a server, with its remedy. It may also tell of those of other tests.
fn told_of(bench: &Bench, pid: &str) -> Option<String> {
    told_in(&bench.home, bench, pid)
}

/// The same for somebody with another home.
fn told_in(home: &Home, bench: &Bench, pid: &str) -> Option<String> {
    let mut command = bench.lab.command(SHIM);
    home.adopt(&mut command).env("CODEX_SHIM_CODEX", &bench.codex).args(["doctor", "--json"]);
    let document: Value = serde_json::from_slice(&command.output().expect("the shim runs").stdout).expect("JSON");
    let checks = document["checks"].as_array().expect("a list");
    let text = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
    let of_servers = checks.iter().filter(|check| check["name"] == "servers");
    let mut told = of_servers.map(|check| format!("{} → {}", text(check, "found"), text(check, "remedy")));
    told.find(|told| told.split([' ', ':']).any(|word| word == pid))
}

/// The real codex, if it can be the server of a hub.
fn shared_server_or_skip(test: &'static str) -> Option<PathBuf> {
    let codex = installed_or_skip(test)?;
    (!Release::under_test().lacks(test, Ability::SharedServer)).then_some(codex)
}

#[test]
fn e2e_hub_starts_a_server_and_stops_it() {
    let Some(codex) = shared_server_or_skip("e2e_hub_starts_a_server_and_stops_it") else { return };
    let bench = Bench::new(codex);
    assert_eq!(bench.hub(&["status"]).0, 4);
    let told = bench.done(&["start"]);
    assert!(told.contains(&bench.default_socket().display().to_string()), "{told}");
    let status = bench.status();
    assert!(answers(Path::new(status["server"]["socket"].as_str().expect("a path"))), "{status}");
    assert!(UnixStream::connect(bench.default_socket()).is_ok());
    assert!(UnixStream::connect(bench.session().join("codex.sock")).is_ok());
    assert!(bench.done(&["start"]).contains("runs already"));
    let told = bench.done(&["stop"]);
    assert!(told.contains("stopped the server"), "{told}");
    assert!(bench.default_socket().symlink_metadata().is_err());
    let left: Vec<_> =
        fs::read_dir(bench.session()).expect("a folder").map(|entry| entry.expect("one").file_name()).collect();
    let has = |name: &str| left.iter().any(|left| left == name);
    assert!(!has("server.json") && !has("server.sock") && !has("codex.sock"), "{left:?}");
    assert_eq!(bench.done(&["stop"]), "no hub is running\n");
    let (status, told) = bench.hub(&["stop", "--session", "nope"]);
    assert!(status == 3 && told.contains("no session is called `nope`"), "{told}");
}

#[test]
fn e2e_next_hub_adopts_the_server() {
    let Some(codex) = shared_server_or_skip("e2e_next_hub_adopts_the_server") else { return };
    let bench = Bench::new(codex);
    bench.done(&["start"]);
    let first = bench.status();
    let told = bench.done(&["restart"]);
    assert!(told.ends_with("goes on, with all clients\n"), "{told}");
    assert_eq!([&bench.status()["pid"], &bench.status()["server"]["pid"]], [&first["pid"], &first["server"]["pid"]]);
    bench.done(&["restart", "--anew"]);
    let second = bench.status();
    assert_ne!(second["pid"], first["pid"]);
    assert_eq!(second["server"]["pid"], first["server"]["pid"]);
    // A killed hub leaves its sockets.
    kill(&second["pid"]);
    eventually("the hub has not ended", || (bench.hub(&["status"]).0 == 4).then_some(()));
    assert!(bench.default_socket().symlink_metadata().is_ok());
    let pid = first["server"]["pid"].to_string();
    let told = told_of(&bench, &pid).expect("it is told");
    assert!(told.starts_with(&format!("pid {pid}: the server of a hub that has ended")), "{told}");
    assert!(told.contains("→ `codex-shim hub start` takes it over"), "{told}");
    let elsewhere = Home::new();
    let told = told_in(&elsewhere, &bench, &pid).expect("it is told");
    let remedy = format!("→ `CODEX_SHIM_HOME={} codex-shim hub start` takes it over", bench.home.path().display());
    assert!(told.contains(&remedy), "{told}");
    bench.done(&["start"]);
    let third = bench.status();
    assert_eq!(told_of(&bench, &pid), None);
    assert_eq!(told_in(&elsewhere, &bench, &pid), None);
    assert_eq!(third["server"]["pid"], first["server"]["pid"]);
    assert!(answers(Path::new(third["server"]["socket"].as_str().expect("a path"))), "{third}");
    bench.done(&["restart", "--server"]);
    assert_ne!(bench.status()["server"]["pid"], first["server"]["pid"]);
}

#[test]
fn e2e_server_that_nobody_watches_is_not_replaced_unasked() {
    let Some(codex) = shared_server_or_skip("e2e_server_that_nobody_watches_is_not_replaced_unasked") else { return };
    let bench = Bench::new(codex);
    fs::create_dir_all(bench.home.path()).expect("a folder");
    fs::write(bench.home.path().join("config.toml"), "record = false\n").expect("a file");
    bench.done(&["start"]);
    let first = bench.status();
    let refused = |why: &str| {
        let (status, told) = bench.hub(&["restart", "--server"]);
        assert_eq!(status, 1, "{told}");
        assert!(told.contains(why) && told.contains("--yes"), "{told}");
    };
    refused("the hub keeps no history, so turns may be running");
    kill(&first["pid"]);
    eventually("the hub has not ended", || (bench.hub(&["status"]).0 == 4).then_some(()));
    refused("no hub watches the server, so turns may be running");
    bench.done(&["restart", "--server", "--yes"]);
    assert_ne!(bench.status()["server"]["pid"], first["server"]["pid"]);
}

#[test]
fn e2e_two_hubs_at_once_are_one() {
    let Some(codex) = shared_server_or_skip("e2e_two_hubs_at_once_are_one") else { return };
    let bench = Bench::new(codex);
    let starts: Vec<_> = (0..3).map(|_| bench.command(&["start"]).spawn().expect("the shim runs")).collect();
    for start in starts {
        let Output { status, stderr, .. } = start.wait_with_output().expect("it ends");
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    }
    bench.session();
    let (status, told) = bench.hub(&[]);
    assert_eq!(status, 1, "{told}");
    assert!(told.contains("runs already; stop it with `codex-shim hub stop`"), "{told}");
}

#[test]
fn e2e_named_hub_runs_beside_a_codex_server() {
    let Some(codex) = shared_server_or_skip("e2e_named_hub_runs_beside_a_codex_server") else { return };
    let bench = Bench::new(codex);
    let theirs = UnixListener::bind({
        fs::create_dir(bench.default_socket().with_file_name("")).expect("a folder");
        bench.default_socket()
    });
    let _theirs = theirs.expect("it can be bound");
    let told = bench.done(&["start", "--no-default-socket", "--session", "test"]);
    assert!(told.contains("hub (session test, pid "), "{told}");
    assert_eq!(bench.hub(&["status"]).0, 4, "the hub without a name does not run");
    assert!(bench.done(&["stop", "--session", "test"]).contains("stopped the server"));
    assert!(UnixStream::connect(bench.default_socket()).is_ok());
}

/// `hub` and `hub start` fail alike, with `expect` on stderr and no session that runs.
#[track_caller]
fn check_refused(bench: &Bench, expect: &str) {
    for args in [&[][..], &["start"]] {
        let (status, told) = bench.hub(args);
        assert_eq!(status, 1, "{told}");
        assert!(told.contains(expect), "{told}");
    }
    assert_eq!(bench.hub(&["status"]).0, 4);
}

#[test]
fn codex_that_cannot_serve_is_refused() {
    check_refused(&Bench::with_program("echo codex-cli 0.98.0"), "is codex 0.98.0; a hub needs 0.135.0 or later");
    check_refused(&Bench::with_program("echo codex-shim 0.1.0"), "leads back to codex-shim");
    check_refused(&Bench::with_program("exit 3"), "--version failed (exit status: 3)");
    let serves = "[ \"$1\" = --version ] && echo codex-cli 0.169.0 && exit; echo 'Error: no way' >&2; exit 7";
    check_refused(&Bench::with_program(serves), "the server exited (exit status: 7): Error: no way; see ");
}

#[test]
fn socket_that_answers_is_not_taken() {
    let bench = Bench::with_program("echo codex-cli 0.169.0");
    fs::create_dir(bench.default_socket().with_file_name("")).expect("a folder");
    let _theirs = UnixListener::bind(bench.default_socket()).expect("it can be bound");
    check_refused(&bench, &format!("(pid {}) listens on {}", std::process::id(), bench.default_socket().display()));
    assert!(UnixStream::connect(bench.default_socket()).is_ok());
    assert!(bench.home.sessions().is_empty(), "nothing was started");
}

#[test]
fn session_of_a_relay_is_left_alone() {
    let bench = Bench::with_program("echo codex-cli 0.169.0");
    let mut relay = bench.home.shell("cat");
    let mut relay = relay.spawn().expect("the shim runs");
    eventually("the relay has not started", || bench.home.sessions().first().map(|_| ()));
    eventually("the relay is not live", || {
        let (status, told) = bench.hub(&["stop", "--session", "s"]);
        (status == 1 && told.contains("session s is not the session of a hub")).then_some(())
    });
    assert!(relay.try_wait().expect("it is ours").is_none());
    drop(relay.stdin.take());
    relay.wait().expect("it ends");
}
