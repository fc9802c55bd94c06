//! What a hub costs a client: the same server is reached at its own socket and through the hub, in turns.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use crate::support::{self, SHIM, Table, median, percentile};

const CALLS: usize = 3_000;
const DELTAS: u64 = 100_000;
const RESTARTS: usize = 20;

/// The time between two messages of the server whose absence is measured.
const TICK: Duration = Duration::from_millis(1);

/// Round trips of a cheap call, and a long answer of the model.
pub fn hub(table: &mut Table) {
    let scripted = |dir: &Path| {
        let path = dir.join("codex");
        let this = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'codex-cli 0.169.0' && exit\n\
             exec '{}' server websocket \"${{3#unix://}}\"\n",
            this.display()
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        path
    };
    let hub = Hub::start(scripted);
    let (sockets, _least) = hub.sockets();
    let mut p50s = [const { Vec::new() }; 3];
    let mut deltas = [const { Vec::new() }; 3];
    for _ in 0..support::rounds() {
        for (index, socket) in sockets.iter().enumerate() {
            p50s[index].push(percentile(&mut calls(socket, "x/cheap", CALLS), 50));
            deltas[index].push(receive_deltas(socket));
        }
    }
    let [direct, through, least] = p50s.map(|times| median(&times));
    // This server answers in a tenth of the time of the real one; the call of the real one below has the target.
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let times = format!("{:.1} µs; {:.1} µs; {:.1} µs", micros(direct), micros(through), micros(least));
    table.figure(
        "hub: round trip of a call that costs nothing, p50; direct, through the hub, through the least one",
        times,
    );
    let [direct, through, least] = deltas.map(|times| median(&times));
    table.pair_beside_least("hub: 100,000 deltas to one client, time", [direct, through], Some(least), 1.05);
    let mut silences = silences(&hub);
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    table.at_most("hub: silence of a client in a restart, p50", millis(percentile(&mut silences, 50)), "ms", 100.0);
    table.at_most("hub: the longest of these silences", millis(percentile(&mut silences, 100)), "ms", 100.0);
    drop(hub);
    let Some(codex) = support::codex() else {
        println!("codex: not installed (make codex), its measurement behind a hub is left out");
        return;
    };
    let hub = Hub::start(|_| codex);
    let (sockets, _least) = hub.sockets();
    let mut p50s = [const { Vec::new() }; 3];
    for _ in 0..support::rounds().max(3) {
        for (index, socket) in sockets.iter().enumerate() {
            p50s[index].push(percentile(&mut calls(socket, "thread/loaded/list", 600), 50));
        }
    }
    let [direct, through, least] = p50s.map(|times| median(&times));
    table.pair_beside_least("hub: thread/loaded/list of the real codex, p50", [direct, through], Some(least), 1.15);
}

/// A hub and its server, which end with it.
struct Hub {
    dir: tempfile::TempDir,
}

impl Hub {
    fn start(codex: impl FnOnce(&Path) -> PathBuf) -> Hub {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let codex = codex(dir.path());
        // It returns once the hub listens.
        let mut start = Hub::command(dir.path(), &["hub", "start", "--no-default-socket"]);
        let started = start.env("CODEX_SHIM_CODEX", codex).stdout(Stdio::null()).status().unwrap();
        assert!(started.success(), "the hub does not start");
        Hub { dir }
    }

    fn command(dir: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(&*SHIM);
        command.args(args).args(["--session", "bench"]).env("HOME", dir).env("CODEX_HOME", dir);
        command.env("CODEX_SHIM_HOME", dir.join("home")).current_dir(dir);
        command
    }

    /// The sockets of the server, the hub and the least hub. The least hub ends with the returned value.
    fn sockets(&self) -> ([PathBuf; 3], LeastHub) {
        let [server, hub] = ["server.sock", "codex.sock"].map(|name| self.session().join(name));
        let least = self.dir.path().join("least.sock");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("least-hub").args([&least, &server]).current_dir(self.dir.path());
        let process = LeastHub(command.spawn().unwrap());
        while UnixStream::connect(&least).is_err() {
            std::thread::yield_now();
        }
        ([server, hub, least], process)
    }

    fn session(&self) -> PathBuf {
        self.dir.path().join("home/sessions/bench")
    }
}

struct LeastHub(Child);

impl Drop for LeastHub {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let mut stop = Hub::command(self.dir.path(), &["hub", "stop", "--yes"]);
        let _ = stop.stdout(Stdio::null()).status();
    }
}

fn connect(socket: &Path) -> WebSocket<UnixStream> {
    let stream = UnixStream::connect(socket).unwrap();
    let (mut client, _) = tungstenite::client("ws://localhost/rpc", stream).unwrap();
    let info = json!({"clientInfo": {"name": "bench", "version": "1"}});
    call(&mut client, 0, "initialize", &info);
    client.send(Message::text(r#"{"method":"initialized"}"#)).unwrap();
    client
}

fn call(client: &mut WebSocket<UnixStream>, id: usize, method: &str, params: &Value) {
    let call = format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#);
    client.send(Message::text(call)).unwrap();
    let answer = format!(r#"{{"id":{id},"#);
    while !text(client).starts_with(&answer) {}
}

fn text(client: &mut WebSocket<UnixStream>) -> tungstenite::Utf8Bytes {
    loop {
        if let Message::Text(text) = client.read().unwrap() {
            return text;
        }
    }
}

fn calls(socket: &Path, method: &str, count: usize) -> Vec<Duration> {
    let mut client = connect(socket);
    let mut times = Vec::with_capacity(count);
    for turn in 0..count + 200 {
        let began = Instant::now();
        call(&mut client, turn + 1, method, &json!({}));
        if turn >= 200 {
            times.push(began.elapsed());
        }
    }
    times
}

fn receive_deltas(socket: &Path) -> Duration {
    let mut client = connect(socket);
    let began = Instant::now();
    client.send(Message::text(r#"{"id":1,"method":"x/deltas"}"#)).unwrap();
    for number in 0..DELTAS {
        let came = text(&mut client);
        assert!(came.ends_with(&format!("{number}}}")), "a delta is missing: {came}");
    }
    began.elapsed()
}

/// The longest silence of a client in each of some restarts of the hub, while the server says something each millisecond.
fn silences(hub: &Hub) -> Vec<Duration> {
    let mut client = connect(&hub.session().join("codex.sock"));
    client.send(Message::text(r#"{"id":1,"method":"x/ticks"}"#)).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut came = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                text(&mut client);
                came.push(Instant::now());
            }
            came
        });
        let restarts: Vec<[Instant; 2]> = (0..RESTARTS)
            .map(|_| {
                let began = Instant::now();
                let output = Hub::command(hub.dir.path(), &["hub", "restart", "--no-default-socket"]).output().unwrap();
                assert!(String::from_utf8_lossy(&output.stdout).contains("goes on"), "{output:?}");
                [began, Instant::now()]
            })
            .collect();
        is_over.store(true, Ordering::SeqCst);
        let came = reader.join().unwrap();
        let silence = |[began, ended]: &[Instant; 2]| {
            let pairs = came.windows(2).filter(|pair| pair[1] >= *began && pair[0] <= *ended);
            pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or(*ended - *began)
        };
        restarts.iter().map(silence).collect()
    })
}

fn delta(number: u64) -> String {
    let ids = r#""threadId":"01a208f9-090e-71a1-bd9a-d2c30188af7e","turnId":"01a208f9-090e-71a1","itemId":"msg_1""#;
    let params = format!(r#"{{{ids},"delta":" forty or so letters of some long answer"}}"#);
    format!(r#"{{"method":"item/agentMessage/delta","params":{params},"emittedAtMs":{number}}}"#)
}

/// The server: answers each call, and sends the deltas, one frame each with a write of its own, as codex does.
pub fn serve(socket: &str) {
    let listener = UnixListener::bind(socket).unwrap();
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        std::thread::spawn(move || {
            let Ok(mut client) = tungstenite::accept(stream) else { return };
            while let Some(asked) = received(&mut client) {
                let asked: Value = serde_json::from_str(&asked).unwrap();
                let Some(id) = asked["id"].as_u64() else { continue };
                if asked["method"] == "x/ticks" {
                    let mut number = 0;
                    while client.send(Message::text(delta(number))).is_ok() {
                        number += 1;
                        std::thread::sleep(TICK);
                    }
                    return;
                }
                if asked["method"] == "x/deltas" {
                    for number in 0..DELTAS {
                        if client.send(Message::text(delta(number))).is_err() {
                            return;
                        }
                    }
                }
                let result = json!({"userAgent": "bench/0.169.0 (a text of about as many bytes as codex has here)"});
                if client.send(Message::text(format!(r#"{{"id":{id},"result":{result}}}"#))).is_err() {
                    return;
                }
            }
        });
    }
}

fn received(client: &mut WebSocket<UnixStream>) -> Option<String> {
    loop {
        match client.read() {
            Ok(Message::Text(text)) => return Some(text.to_string()),
            Ok(_) => {}
            Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}
