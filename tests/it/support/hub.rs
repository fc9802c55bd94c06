//! A hub with the scripted server in the place of codex: the real binary, real sockets, real journal and ledger.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use codex_shim::testing::control::client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::both_ends::{http, told};
use super::eventually;
use super::journal::Journal;
use super::requests::command_asked;
use super::shim::Home;
use super::websocket::{Client, FakeServer};

/// A hub in session `h`, and its scripted server. At the end of a test neither runs.
pub struct Hub {
    pub home: Home,
    pub codex: PathBuf,
    pub process: Option<Child>,
}

impl Hub {
    pub fn new() -> Hub {
        Hub::at(Home::new())
    }

    pub fn at(home: Home) -> Hub {
        let codex = FakeServer::program(home.beside());
        fs::create_dir(home.beside().join("codex-home")).unwrap();
        let mut hub = Hub { home, codex, process: None };
        hub.start();
        hub
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.shim(args);
        command.current_dir(self.home.beside()).env("CODEX_HOME", self.home.beside().join("codex-home"));
        command.env("HOME", self.home.beside()).env("CODEX_SHIM_CODEX", &self.codex);
        command.stdin(Stdio::null());
        command
    }

    /// Starts a hub and waits until its control socket answers.
    pub fn start(&mut self) {
        let mut command = self.command(&["hub", "--session", "h"]);
        let log = fs::File::create(self.home.beside().join("hub.log")).unwrap();
        let mut process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        eventually("the hub", || {
            if let Some(status) = process.try_wait().unwrap() {
                panic!("the hub ended: {status}: {}", self.said());
            }
            let answers = client::get(&self.session(), "/sessions/self").is_ok();
            let answers = answers && !self.get("/sessions/self")["server"].is_null();
            (answers && UnixStream::connect(self.socket()).is_ok()).then_some(())
        });
        self.process = Some(process);
    }

    /// The hub's stderr.
    pub fn said(&self) -> String {
        fs::read_to_string(self.home.beside().join("hub.log")).unwrap_or_default()
    }

    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("a hub runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a hub runs").id()
    }

    pub fn session(&self) -> PathBuf {
        self.home.path().join("sessions/h")
    }

    /// The socket for clients in the session folder.
    pub fn socket(&self) -> PathBuf {
        self.session().join("codex.sock")
    }

    /// The socket at which codex looks for a server.
    pub fn default_socket(&self) -> PathBuf {
        self.home.beside().join("codex-home/app-server-control/app-server-control.sock")
    }

    pub fn client(&self, name: &str) -> Client {
        let mut client = Client::connect(&self.socket());
        client.initialize(name);
        client
    }

    pub fn server(&self) -> FakeServer {
        FakeServer::at(&self.session().join("server.sock"))
    }

    pub fn tool(&self, args: &[&str]) -> Output {
        self.tool_with(&[], args)
    }

    /// The same with variables.
    pub fn tool_with(&self, variables: &[(&str, &str)], args: &[&str]) -> Output {
        let mut command = self.command(args);
        let output = command.envs(variables.iter().copied()).args(["--session", "h"]).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        output
    }

    pub fn get(&self, path: &str) -> Value {
        let (_, document) = http(&self.session(), &format!("GET {path}"), b"");
        document
    }

    /// All rows of the ledger.
    pub fn rows(&self) -> Vec<Value> {
        told(&self.tool(&["requests", "--all", "--json"]))["requests"].as_array().unwrap().clone()
    }

    /// The only row of the ledger, once it has this status.
    pub fn row(&self, status: &str) -> Value {
        eventually(status, || {
            let rows = self.rows();
            assert!(rows.len() < 2, "{rows:#?}");
            rows.into_iter().find(|row| row["status"] == status)
        })
    }

    /// The answers to a request, once there are `count` of them.
    pub fn answers(&self, row: &Value, count: usize) -> Vec<Value> {
        let path = format!("/sessions/self/codex-requests/{}", row["request_id"].as_str().unwrap());
        eventually("the answers", || {
            let answers = self.get(&path)["answers"].as_array().unwrap().clone();
            (answers.len() >= count).then_some(answers)
        })
    }

    pub fn journal(&self) -> Journal {
        Journal::read(&self.session())
    }

    /// Waits until the hub has a connection of its own to the server; returns its number there.
    pub fn own_connection(&self, server: &mut FakeServer) -> u64 {
        eventually("the hub's own connection", || {
            let connections = server.connections();
            let own = connections.iter().find(|connection| connection["name"] == "codex-shim")?;
            own["number"].as_u64()
        })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "stderr of the hub: {}", self.said());
        }
        let Some(pid) = server_pid(self) else { return };
        let is_ours = fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("scripted_server")
        });
        if is_ours {
            let _ = kill_process(pid_of(pid), Signal::KILL);
        }
    }
}

/// The process id of the server that the hub has recorded.
pub fn server_pid(hub: &Hub) -> Option<u64> {
    let bytes = fs::read(hub.session().join("server.json")).ok()?;
    let record = serde_json::from_slice::<Value>(&bytes).ok()?;
    record["server"]["pid"].as_u64().or_else(|| record["launcher"]["pid"].as_u64())
}

pub fn pid_of(pid: u64) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

pub fn is_asked(message: &Value) -> bool {
    message["method"] == "item/commandExecution/requestApproval"
}

pub fn is_resolved(message: &Value) -> bool {
    message["method"] == "serverRequest/resolved"
}

/// The parameters of an approval.
pub fn asked() -> Value {
    serde_json::from_str::<Value>(&command_asked("0", "t")).unwrap()["params"].take()
}

/// Asks all subscribers of thread `t`; returns the id.
pub fn ask(server: &mut FakeServer) -> Value {
    json!(server.ask("t", "item/commandExecution/requestApproval", asked()))
}

pub fn resume(client: &mut Client) {
    client.call("thread/resume", json!({"threadId": "t"}));
}

/// The answers with this id that have reached the server.
pub fn answers_at(server: &mut FakeServer, id: &Value) -> Vec<Value> {
    let seen = server.seen().into_iter().filter_map(|(_, text)| serde_json::from_str::<Value>(&text).ok());
    seen.filter(|message| message["id"] == *id && message["result"]["decision"].is_string()).collect()
}

/// Lines of the server on record with this text in them.
pub fn recorded(journal: &Journal, part: &str) -> usize {
    let part = memchr::memmem::Finder::new(part);
    journal.server.iter().flatten().filter(|line| part.find(line).is_some()).count()
}
