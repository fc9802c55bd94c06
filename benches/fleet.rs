//! A fleet on one machine with a real NATS server: how fast events come from a host to a console, the memory of an agent, and a
//! thousand hosts that are simulated.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, HeaderMap};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::{self, Process, SHIM, Table, percentile};

/// Events that wait when the agent starts.
const BACKLOG: u64 = 100_000;

/// Events that come one by one, and their rate in a second.
const PACED: u64 = 20_000;
const RATE: u64 = 1_000;

/// The simulated fleet.
const HOSTS: usize = 1_000;
const SESSIONS: usize = 5;
const EVENTS: usize = 40;

/// Events of a session on a working day, for the storage of a day.
const EVENTS_A_DAY: f64 = 5_000.0;

/// Messages of a simulated host that are not acknowledged.
const WINDOW: usize = 64;

pub fn fleet(table: &mut Table) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/nats/nats-server");
    if !program.exists() {
        println!("SKIPPED: fleet: nats-server is not installed; `make nats` installs it");
        return;
    }
    one_host(table, &program);
    many_hosts(table, &program);
}

/// A server with the configuration of docs/fleet.md, and a further user for the simulated hosts.
struct Nats {
    folder: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Nats {
    fn start(program: &Path) -> Nats {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut keys = String::new();
        for user in ["admin", "build_7", "build_8", "ann", "ben", "sim"] {
            let seed = folder.path().join(format!("{user}.nk"));
            let made = Command::new(&*SHIM).args(["fleet", "key"]).arg(seed).output().unwrap();
            keys.push_str(&format!("KEY_{user}: {}", String::from_utf8(made.stdout).unwrap()));
        }
        std::fs::write(folder.path().join("keys.conf"), keys).unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/fleet");
        let simulated = "  HOSTS {\n    users: [\n      { nkey: $KEY_sim }\n";
        for name in ["single.conf", "accounts.conf"] {
            let text = std::fs::read_to_string(fixtures.join(name)).unwrap();
            std::fs::write(folder.path().join(name), text.replace("  HOSTS {\n    users: [\n", simulated)).unwrap();
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(["-c", "single.conf", "-a", "127.0.0.1", "-p", &port.to_string()]).current_dir(folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the NATS server", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        let nats = Nats { folder, port, child };
        assert!(nats.tool("admin", &["check", "--set-up"]).status().unwrap().success());
        nats
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    fn seed(&self, user: &str) -> PathBuf {
        self.folder.path().join(format!("{user}.nk"))
    }

    /// `codex-shim fleet …` with the credentials of a user.
    fn tool(&self, user: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&*SHIM);
        command
            .env("CODEX_SHIM_HOME", self.folder.path().join("home"))
            .env("CODEX_SHIM_FLEET_URL", self.url())
            .env("CODEX_SHIM_FLEET_USER", user)
            .env("CODEX_SHIM_FLEET_CREDS", self.seed(user))
            .arg("fleet")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn agent(&self, home: &Path) -> Child {
        let mut command = self.tool("build_7", &["agent"]);
        command
            .env("CODEX_SHIM_HOME", home)
            .env("CODEX_SHIM_FLEET_HOST", "build-7")
            .env("CODEX_SHIM_FLEET_LEVEL", "full");
        command.stderr(Stdio::null()).spawn().unwrap()
    }

    async fn connect(&self, user: &str, inbox: &str) -> Client {
        let seed = std::fs::read_to_string(self.seed(user)).unwrap().trim().to_owned();
        ConnectOptions::with_nkey(seed).custom_inbox_prefix(inbox).connect(self.url()).await.unwrap()
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of `fleet tail -f --json`.
struct Tail {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Tail {
    fn start(nats: &Nats) -> Tail {
        let mut command = nats.tool("ann", &["tail", "-f", "--json", "--since", "1d"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Tail { child, lines }
    }

    fn next(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "the tool has ended");
        line
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for another process, which nothing else announces, for at most a minute.
fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn memory_mib(id: u32, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// One host and one console: a backlog as fast as it goes, and then events at a rate.
fn one_host(table: &mut Table, program: &Path) {
    let backlog = if support::is_quick() { BACKLOG / 10 } else { BACKLOG };
    let paced = if support::is_quick() { PACED / 10 } else { PACED };
    let nats = Nats::start(program);
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // The agent joins before there is anything, so that it ships what comes.
    let mut agent = nats.agent(home.path());
    wait_for("the agent", || {
        ["cursors.json", "agent.lock"].iter().any(|name| home.path().join("fleet").join(name).exists())
    });
    agent.kill().unwrap();
    agent.wait().unwrap();
    let mut relay = support::start_in(home.path(), "s", &["paced", "10000000", &backlog.to_string()]);
    drained(&mut relay, support::NUMBERED_BYTES * backlog as usize);
    let mut tail = Tail::start(&nats);
    let began = Instant::now();
    let mut agent = nats.agent(home.path());
    let mut first = None;
    for _ in 0..backlog {
        tail.next();
        first.get_or_insert_with(Instant::now);
    }
    let took = first.unwrap_or(began).elapsed();
    table.figure(
        "fleet: a backlog of one host to one console, 200-byte lines",
        format!("{:.0} events/s", backlog as f64 / took.as_secs_f64()),
    );
    table.figure("fleet: peak memory of the agent meanwhile", format!("{:.1} MiB", memory_mib(agent.id(), "VmHWM:")));
    relay.end();
    let mut relay = support::start_in(home.path(), "p", &["paced", &RATE.to_string(), &paced.to_string()]);
    relay.ready();
    let mut output = std::fs::File::from(std::os::fd::AsFd::as_fd(&relay.stdout).try_clone_to_owned().unwrap());
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    relay.stdin.write_all(b"go\n").unwrap();
    let began = Instant::now();
    let mut behind = Vec::new();
    while (behind.len() as u64) < paced {
        let line = tail.next();
        let Some((_, rest)) = line.split_once("\"number\":") else { continue };
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let due = Duration::from_nanos(digits.parse::<u64>().unwrap() * 1_000_000_000 / RATE);
        behind.push(began.elapsed().saturating_sub(due));
    }
    for percent in [50, 99] {
        let ms = percentile(&mut behind, percent).as_secs_f64() * 1e3;
        table.figure(&format!("fleet: console behind at {RATE} events/s, p{percent}"), format!("{ms:.0} ms"));
    }
    table.figure("fleet: memory of the agent after it", format!("{:.1} MiB", memory_mib(agent.id(), "VmRSS:")));
    drop(tail);
    agent.kill().unwrap();
    agent.wait().unwrap();
    relay.end();
}

fn drained(relay: &mut Process, bytes: usize) {
    use std::io::Read as _;
    relay.ready();
    relay.stdin.write_all(b"go\n").unwrap();
    let mut chunk = vec![0; 256 << 10];
    let mut left = bytes;
    while left > 0 {
        left -= relay.stdout.read(&mut chunk).unwrap();
    }
}

/// A thousand hosts with five sessions each, in this process, on one server with one copy of each stream.
fn many_hosts(table: &mut Table, program: &Path) {
    let hosts = if support::is_quick() { HOSTS / 10 } else { HOSTS };
    let nats = Nats::start(program);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (took, bytes) = runtime.block_on(async {
        let mut clients = Vec::new();
        for host in 0..hosts {
            clients.push(nats.connect("sim", &format!("_INBOX.h{host}")).await);
        }
        let began = Instant::now();
        let all = clients.iter().enumerate().map(|(host, client)| simulated(client.clone(), host));
        futures_util::stream::iter(all).buffer_unordered(hosts).for_each(|()| std::future::ready(())).await;
        (began.elapsed(), stored_bytes(&nats).await)
    });
    let events = (hosts * SESSIONS * EVENTS) as f64;
    let name = format!("fleet: {hosts} hosts x {SESSIONS} sessions on one server");
    table.figure(&format!("{name}, events stored"), format!("{:.0} events/s", events / took.as_secs_f64()));
    let each = bytes / events;
    table.figure(&format!("{name}, storage of an event"), format!("{each:.0} bytes"));
    let a_day = each * EVENTS_A_DAY * (hosts * SESSIONS) as f64 / f64::from(1 << 30);
    table.figure(&format!("{name}, storage of a day with {EVENTS_A_DAY} events a session"), format!("{a_day:.1} GiB"));
    table.figure(&format!("{name}, memory of the server"), format!("{:.0} MiB", memory_mib(nats.child.id(), "VmRSS:")));
    let mut times: Vec<Duration> = (0..5)
        .map(|_| {
            let began = Instant::now();
            let listed = nats.tool("ann", &["requests", "--json"]).stdout(Stdio::piped()).output().unwrap();
            let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
            assert_eq!(listed["requests"].as_array().unwrap().len(), hosts * 2);
            began.elapsed()
        })
        .collect();
    let ms = percentile(&mut times, 50).as_secs_f64() * 1e3;
    table.figure(&format!("{name}, list of {} pending requests", hosts * 2), format!("{ms:.0} ms"));
}

/// A host: it describes itself, and publishes the events of its sessions with acknowledgments.
async fn simulated(client: Client, host: usize) {
    let name = format!("h{host}");
    let inbox = client.new_inbox();
    let mut acks = client.subscribe(inbox.clone()).await.unwrap();
    let time = "2026-01-02T03:04:05Z";
    let row = |number: usize| {
        json!({ "session_id": format!("s{number}"), "session_name": "api", "request_id": format!("0c4e-{number}"),
            "request_method": "item/commandExecution/requestApproval", "request_type": "approval", "thread_id": "t",
            "requested_at": time, "summary": "run: make test" })
    };
    let about = json!({ "v": 1, "host": name, "version": "0.1.0", "level": "summary", "since": time, "seen_at": time,
        "agent": "sim", "sessions": SESSIONS, "pending": 2 });
    let pending = json!({ "v": 1, "host": name, "requests": [row(0), row(1)], "more": 0 });
    let mut waiting = 0;
    for (bucket, document) in [("cshim_hosts", about), ("cshim_pending", pending)] {
        let key = format!("$KV.{bucket}.{name}");
        client.publish_with_reply(key, inbox.clone(), document.to_string().into()).await.unwrap();
        waiting += 1;
    }
    for seq in 1..=EVENTS {
        for session in 0..SESSIONS {
            let event = json!({ "v": 1, "host": name, "session": format!("s{session}"), "epoch": "0c4e1b2a3d", "seq": seq,
                "event": { "seq": seq, "session_id": format!("s{session}"), "generation": "0c4e1b2a3d4f", "timestamp": time,
                    "event_type": "item/completed", "thread_id": "0199a213-81c0-7800-8aa1-bbab2a035a53", "turn_id": "u1",
                    "item_id": "i1", "payload_preview": { "item": { "type": "commandExecution", "status": "completed", "exitCode": 0 } } } });
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", format!("{name}/s{session}/0c4e1b2a3d/{seq}"));
            let subject = format!("cshim.ev.{name}.s{session}");
            client
                .publish_with_reply_and_headers(subject, inbox.clone(), headers, event.to_string().into())
                .await
                .unwrap();
            waiting += 1;
            if waiting >= WINDOW {
                acks.next().await.unwrap();
                waiting -= 1;
            }
        }
    }
    for _ in 0..waiting {
        acks.next().await.unwrap();
    }
}

/// The bytes of the stream of events.
async fn stored_bytes(nats: &Nats) -> f64 {
    let admin = nats.connect("admin", "_INBOX.admin").await;
    let info = admin.request("$JS.API.STREAM.INFO.CSHIM_EV", "".into()).await.unwrap();
    let info: Value = serde_json::from_slice(&info.payload).unwrap();
    info["state"]["bytes"].as_f64().unwrap()
}
