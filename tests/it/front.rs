//! Clients on stdin and stdout that join a hub: the real binary, with the scripted server in the place of codex.

use std::fs;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::both_ends::lines_of;
use crate::support::requests::{command_asked, decision};
use crate::support::shim::{Home, put_program};
use crate::support::websocket::FakeServer;
use crate::support::{PATIENCE, eventually, stop};

const INITIALIZE: &str = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"editor","version":"1.0"}}}"#;
const INITIALIZED: &str = r#"{"method":"initialized"}"#;

/// Homes of codex and of codex-shim, with a codex that is the scripted server for a hub. Its own server for a client on stdio
/// says so and repeats its input. At the end of a test no hub and no server runs.
pub struct Bench {
    pub home: Home,
    codex: PathBuf,
}

impl Bench {
    pub fn new() -> Bench {
        let home = Home::new();
        let fakes = home.beside().join("fakes");
        for folder in [&fakes, &home.beside().join("codex-home")] {
            fs::create_dir(folder).unwrap();
        }
        let fake = FakeServer::program(&fakes);
        let codex = home.beside().join("codex");
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in --version|*unix://*) exec '{}' \"$@\";; esac\necho \"own: $*\"; exec cat\n",
            fake.display()
        );
        put_program(&codex, script.as_bytes());
        Bench { home, codex }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.shim(args);
        command.current_dir(self.home.beside()).env("CODEX_HOME", self.home.beside().join("codex-home"));
        command.env("HOME", self.home.beside()).env("CODEX_SHIM_CODEX", &self.codex).env("CODEX_SHIM_SERVER", "shared");
        command
    }

    pub fn hub(&self, args: &[&str]) -> String {
        let output = self.command(&[&["hub"], args].concat()).stdin(Stdio::null()).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    pub fn started(self) -> Bench {
        let said = self.hub(&["start"]);
        assert!(said.contains("listens"), "{said}");
        self
    }

    pub fn status(&self) -> Value {
        let said = self.hub(&["status", "--json"]);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    pub fn connections(&self) -> Vec<Value> {
        self.status()["connections"].as_array().cloned().unwrap_or_default()
    }

    pub fn server(&self) -> FakeServer {
        let status = self.status();
        FakeServer::at(status["server"]["socket"].as_str().unwrap_or_else(|| panic!("{status:#}")).as_ref())
    }

    pub fn kill_hub(&self) {
        signal(self.status()["pid"].as_u64().unwrap(), Signal::KILL);
        eventually("the end of the hub", || (self.status()["running"] == false).then_some(()));
    }

    fn front(&self, args: &[&str]) -> Front {
        Front::start(&mut self.command(args))
    }

    /// A client that has initialized.
    pub fn client(&self) -> Front {
        let mut client = self.front(&["app-server"]);
        client.initialize();
        client
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.hub(&["stop", "--yes"]);
    }
}

pub fn signal(pid: u64, signal: Signal) {
    let _ = kill_process(process(pid), signal);
}

fn process(pid: u64) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// A client on pipes.
pub struct Front {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
}

impl Front {
    pub fn start(command: &mut Command) -> Front {
        let mut child = command.spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        Front { stdin: child.stdin.take(), child, lines }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn send(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => String::from_utf8(line).unwrap(),
            Err(error) => {
                let _ = self.child.kill();
                let mut said = String::new();
                let _ = self.child.stderr.take().unwrap().read_to_string(&mut said);
                panic!("no line: {error}: {said}");
            }
        }
    }

    fn wait_for(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = serde_json::from_str(&self.line()).unwrap();
            if is_it(&message) {
                return message;
            }
        }
    }

    fn call(&mut self, id: &str, method: &str, params: &Value) -> Value {
        self.send(&format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#));
        self.answer_to(id)
    }

    fn answer_to(&mut self, id: &str) -> Value {
        let id: Value = serde_json::from_str(id).unwrap();
        self.wait_for(|message| message["method"].is_null() && message["id"] == id)
    }

    pub fn initialize(&mut self) {
        self.send(INITIALIZE);
        self.answer_to("0");
        self.send(INITIALIZED);
    }

    fn resume(&mut self) {
        self.call("1", "thread/resume", &json!({"threadId": "t"}));
    }

    /// Closes stdin. Returns the lines that were not read, the exit status and stderr.
    fn finish(mut self) -> (Vec<String>, ExitStatus, String) {
        self.stdin = None;
        self.ended()
    }

    /// The same of a client that ends by itself.
    fn ended(mut self) -> (Vec<String>, ExitStatus, String) {
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => rest.push(String::from_utf8(line).unwrap()),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("stdout stays open: {rest:?}"),
            }
        }
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (rest, self.child.wait().unwrap(), said)
    }

    /// Ends it, and expects that it had nothing more to say.
    fn finish_quietly(self) {
        let (rest, status, said) = self.finish();
        assert_eq!((rest, status.code(), &*said), (Vec::new(), Some(0), ""));
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_asked(message: &Value) -> bool {
    message["method"] == "item/commandExecution/requestApproval"
}

/// Asks all subscribers of thread `t`; returns the id.
fn ask(server: &mut FakeServer) -> Value {
    let params = serde_json::from_str::<Value>(&command_asked("0", "t")).unwrap()["params"].take();
    json!(server.ask("t", "item/commandExecution/requestApproval", params))
}

#[test]
fn lines_pass_unchanged_both_ways() {
    let bench = Bench::new().started();
    let mut client = bench.client();
    client.resume();
    let mut server = bench.server();
    let lines = [
        "{ \"id\": \"a\\u0062\",\t\"method\":\"x/odd\", \"x\":1.0e0, \"params\": {\"s\":\"\u{2028}\\ud83d\\ude00\"} }\r",
        r#"{"method":"x/note","jsonrpc":"2.0"}"#,
        "",
        "label",
        r#"[{"id":1}]"#,
        r#"{"id":2,"method":"x/last","params":{}}"#,
    ];
    for line in lines {
        client.send(line);
    }
    client.answer_to("2");
    let (number, _) = server.wait_for("x/last");
    let seen: Vec<String> = server.seen().into_iter().filter(|(of, _)| *of == number).map(|(_, text)| text).collect();
    assert_eq!(seen[0], INITIALIZE);
    assert_eq!(seen[seen.len() - lines.len()..], lines);
    let down = "{\"x\":1.0e0,\t\"method\" : \"x/down\",\"params\":{\"s\":\"\u{2028}\\u0061\"}} ";
    server.say(number, down);
    assert_eq!(client.line(), format!("{down}\n"));
    // White space of JSON may hold a line end; as a line it cannot.
    server.say(number, "{\"method\":\"x\",\n\"params\":{}}");
    assert_eq!(client.line(), "{\"method\":\"x\", \"params\":{}}\n");
    client.finish_quietly();
}

#[test]
fn hub_knows_the_client_on_pipes() {
    let bench = Bench::new().started();
    let mut client = bench.client();
    client.resume();
    let mut server = bench.server();
    let connection = eventually("its connection", || bench.connections().pop());
    assert_eq!((&connection["transport"], &connection["client"]["name"]), (&json!("stdio"), &json!("editor")));
    let of_server = server.connections().into_iter().find(|connection| connection["name"] == "editor").unwrap();
    assert!(!of_server["headers"].to_string().contains("codex-shim"), "{of_server:#}");
    let session = bench.home.sessions();
    assert_eq!(session.len(), 1, "the client has no session of its own");
    let opened: Vec<_> = bench.home.journal().events.into_iter().filter(|(name, _)| name == "conn_open").collect();
    assert_eq!(opened[0].1["transport"], "stdio");
    assert_eq!(opened[0].1["pid"], client.child.id());
    client.finish_quietly();
    eventually("the end of the connection", || bench.connections().is_empty().then_some(()));
}

#[test]
fn clients_without_a_hub_start_one() {
    let bench = Bench::new();
    let clients: Vec<Front> = (0..3).map(|_| bench.front(&["app-server", "--listen", "stdio://"])).collect();
    let clients: Vec<Front> = clients
        .into_iter()
        .map(|mut client| {
            client.initialize();
            client
        })
        .collect();
    eventually("three connections", || (bench.connections().len() == 3).then_some(()));
    assert_eq!(bench.home.sessions().len(), 1);
    // It outlives the client that has started it.
    clients.into_iter().for_each(Front::finish_quietly);
    assert_eq!(bench.status()["running"], true);
}

#[test]
fn large_messages_pass_byte_for_byte() {
    let bench = Bench::new().started();
    let mut client = bench.client();
    client.resume();
    let up = format!(r#"{{"id":7,"method":"x/up","params":{{"x":"{}"}}}}"#, "x".repeat(20 << 20));
    client.send(&up);
    client.answer_to("7");
    let mut server = bench.server();
    let (_, seen) = server.seen().into_iter().find(|(_, text)| text.contains("x/up")).unwrap();
    assert!(seen == up, "{} bytes became {}", up.len(), seen.len());
    let down = json!({"method": "x/long", "params": {"x": "y".repeat(40 << 20)}}).to_string();
    server.notify_long("t", 40 << 20);
    let line = client.line();
    assert!(line.strip_suffix('\n') == Some(&down), "{} bytes became {}", down.len(), line.len());
    client.finish_quietly();
}

#[test]
fn line_over_the_limit_is_left_out() {
    let bench = Bench::new().started();
    let mut client = bench.client();
    let limit = 64 << 20;
    let frame = r#"{"id":7,"method":"x/up","params":""}"#;
    client.send(&frame.replace("\"\"", &format!("\"{}\"", "x".repeat(limit - frame.len() + 1))));
    client.send(&frame.replace("\"\"", &format!("\"{}\"", "x".repeat(limit - frame.len()))).replace(":7", ":8"));
    client.answer_to("8");
    let (rest, status, said) = client.finish();
    assert_eq!((rest.len(), status.code()), (0, Some(0)), "{said}");
    assert!(said.contains("a line of 64.0 MiB is not passed on"), "{said}");
    assert!(!bench.server().seen().iter().any(|(_, text)| text.contains("\"id\":7")));
}

/// A client whose stdout is read only when the test does.
struct Sleeper {
    front: Front,
    stdout: ChildStdout,
}

impl Sleeper {
    fn start(bench: &Bench) -> Sleeper {
        let mut child = bench.command(&["app-server"]).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let lines = lines_of(std::io::empty());
        let mut front = Front { stdin: child.stdin.take(), child, lines };
        front.send(INITIALIZE);
        front.send(INITIALIZED);
        front.send(r#"{"id":1,"method":"thread/resume","params":{"threadId":"t"}}"#);
        Sleeper { front, stdout }
    }
}

#[test]
fn slow_reader_stalls_the_hub_and_not_memory() {
    let bench = Bench::new().started();
    let mut sleeper = Sleeper::start(&bench);
    let mut awake = bench.client();
    awake.resume();
    let mut server = bench.server();
    eventually("two subscribers", || {
        let connections = server.connections();
        (connections.iter().filter(|connection| connection["threads"] == json!(["t"])).count() == 2).then_some(())
    });
    let text = |number: usize| format!(r#"{{"method":"x/n","params":{{"n":{number},"x":"{}"}}}}"#, "z".repeat(100_000));
    for number in 0..400 {
        assert_eq!(server.notify("t", &text(number)), 2);
        awake.wait_for(|message| message["params"]["n"] == number);
    }
    // The hub holds what the sleeping client has not read, and the front in between holds little of it.
    let waiting = eventually("the hub's count", || {
        let waiting = bench.connections().iter().filter_map(|connection| connection["waiting_bytes"].as_u64()).max()?;
        (waiting > 30 << 20).then_some(waiting)
    });
    assert!(waiting < 40_000_000, "{waiting}");
    let lines = std::io::BufReader::new(&mut sleeper.stdout).lines().map(|line| line.unwrap());
    let numbers = lines.filter_map(|line| serde_json::from_str::<Value>(&line).unwrap()["params"]["n"].as_u64());
    assert!(numbers.take(400).eq(0..400));
    drop(sleeper.front.stdin.take());
    assert_eq!(sleeper.front.child.wait().unwrap().code(), Some(0));
    awake.finish_quietly();
}

#[test]
fn end_of_input_waits_for_answers() {
    let bench = Bench::new().started();
    let mut client = bench.front(&["app-server"]);
    // The last line lacks its end.
    client.write(format!("{INITIALIZE}\n{INITIALIZED}\n{{\"id\":5,\"method\":\"x/last\"}}").as_bytes());
    let (rest, status, said) = client.finish();
    let answers: Vec<Value> = rest.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 2, "{rest:?} {said}");
    assert_eq!((&answers[0]["id"], &answers[1]), (&json!(0), &json!({"id": 5, "result": {}})));
    assert_eq!((status.code(), &*said), (Some(0), ""));
}

#[test]
fn call_without_an_answer_does_not_keep_it() {
    let bench = Bench::new().started();
    let mut client = bench.client();
    let pid = bench.server().pid();
    stop(process(pid));
    client.send(r#"{"id":5,"method":"x/never"}"#);
    let ended = client.finish();
    signal(pid, Signal::CONT);
    assert_eq!((ended.1.code(), ended.0), (Some(0), Vec::new()));
}

#[test]
fn line_that_is_not_text_ends_the_input() {
    let bench = Bench::new().started();
    let mut client = bench.client();
    client.write(b"{\"id\":5,\"method\":\"x/before\"}\n{\"method\":\"\xff\"}\n{\"id\":6,\"method\":\"x/after\"}\n");
    let (rest, status, said) = client.ended();
    assert_eq!((rest.len(), status.code()), (1, Some(0)), "{rest:?} {said}");
    assert!(said.contains("not UTF-8"), "{said}");
}

#[test]
fn signals_end_the_client_as_codex_does() {
    let bench = Bench::new().started();
    for (sent, status) in [(Signal::TERM, 0), (Signal::INT, 130), (Signal::HUP, 129)] {
        let client = bench.client();
        signal(u64::from(client.child.id()), sent);
        let ended = client.ended();
        assert_eq!((ended.1.code(), &*ended.2), (Some(status), ""), "{sent:?}");
    }
    // One that reads nothing cannot prevent it.
    let mut sleeper = Sleeper::start(&bench);
    let mut server = bench.server();
    eventually("a subscriber", || (server.notify("t", r#"{"method":"x"}"#) == 1).then_some(()));
    server.notify("t", &format!(r#"{{"method":"x","params":"{}"}}"#, "x".repeat(1 << 20)));
    for _ in 0..2 {
        signal(u64::from(sleeper.front.child.id()), Signal::TERM);
        std::thread::yield_now();
    }
    eventually("its end", || {
        signal(u64::from(sleeper.front.child.id()), Signal::TERM);
        sleeper.front.child.try_wait().unwrap()
    });
    assert_eq!(bench.status()["running"], true);
}

#[test]
fn closed_stdout_does_not_stop_the_input() {
    let bench = Bench::new().started();
    let Sleeper { mut front, stdout } = Sleeper::start(&bench);
    drop(stdout);
    let mut server = bench.server();
    eventually("a subscriber", || (server.notify("t", r#"{"method":"x"}"#) == 1).then_some(()));
    front.send(r#"{"id":9,"method":"x/late"}"#);
    server.wait_for("x/late");
    drop(front.stdin.take());
    assert_eq!(front.child.wait().unwrap().code(), Some(0));
}

/// A client with these arguments gets a server of its own, and is told why.
#[track_caller]
fn check_own(mut client: Front, expect: &str) -> String {
    let first = client.line();
    assert!(first.starts_with("own: "), "{first}");
    client.send("echo");
    assert_eq!(client.line(), "echo\n");
    let (rest, status, said) = client.finish();
    assert_eq!((rest, status.code()), (Vec::new(), Some(0)));
    assert!(said.contains(expect) && said.contains("this client gets a server of its own"), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("server of its own")).count(), 1, "{said}");
    first
}

#[test]
fn options_for_one_client_mean_its_own_server() {
    let bench = Bench::new().started();
    for (args, option) in [
        (&["-c", "a=b", "app-server"][..], "`-c`"),
        (&["app-server", "--config=a=b"], "`--config`"),
        (&["app-server", "--enable", "x"], "`--enable`"),
        (&["app-server", "--disable=x"], "`--disable`"),
        (&["--profile", "p", "app-server"], "`--profile`"),
    ] {
        let first = check_own(bench.front(args), &format!("the shared server cannot take {option} from one client"));
        assert_eq!(first, format!("own: {}\n", args.join(" ")));
    }
    assert!(bench.connections().is_empty());
}

#[test]
fn hub_of_another_codex_home_is_not_joined() {
    let bench = Bench::new().started();
    let session = bench.status()["session_id"].as_str().unwrap().to_owned();
    let other = bench.home.beside().join("other-codex");
    fs::create_dir(&other).unwrap();
    let mut command = bench.command(&["app-server"]);
    command.env("CODEX_HOME", &other).env("CODEX_SHIM_SESSION", &session);
    check_own(Front::start(&mut command), "has another CODEX_HOME");
    // The session of a hub by its name.
    bench.hub(&["start", "--session", "named", "--no-default-socket"]);
    let mut command = bench.command(&["app-server"]);
    let mut client = Front::start(command.env("CODEX_SHIM_SESSION", "named"));
    client.initialize();
    let named = || serde_json::from_str::<Value>(&bench.hub(&["status", "--session", "named", "--json"])).unwrap();
    eventually("a client of the named hub", || (named()["connections"][0]["client"]["name"] == "editor").then_some(()));
    client.finish_quietly();
    bench.hub(&["stop", "--session", "named"]);
}

#[test]
fn hub_that_cannot_start_means_its_own_server() {
    let bench = Bench::new();
    let folder = bench.home.beside().join("codex-home/app-server-control");
    fs::create_dir(&folder).unwrap();
    let theirs = UnixListener::bind(folder.join("app-server-control.sock")).unwrap();
    check_own(bench.front(&["app-server"]), "no hub could be started: ");
    drop(theirs);
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'codex-cli 0.98.0' && exit\necho \"own: $*\"; exec cat\n";
    put_program(&bench.codex, script.as_bytes());
    check_own(bench.front(&["app-server"]), "a hub needs 0.135.0 or later");
}

#[test]
fn hub_that_is_silent_means_its_own_server() {
    let bench = Bench::new().started();
    let pid = bench.status()["pid"].as_u64().unwrap();
    stop(process(pid));
    let client = bench.front(&["app-server"]);
    check_own(client, "did not answer in time");
    signal(pid, Signal::CONT);
}

#[test]
fn own_server_is_the_default() {
    let bench = Bench::new().started();
    for (variable, value) in [("CODEX_SHIM_SERVER", "own"), ("CODEX_SHIM_OFF", "1")] {
        let mut client = Front::start(bench.command(&["app-server"]).env(variable, value));
        assert_eq!(client.line(), "own: app-server\n");
        client.finish_quietly();
    }
    assert!(bench.connections().is_empty());
}

#[test]
fn client_survives_a_killed_hub() {
    let bench = Bench::new().started();
    let mut client = bench.client();
    client.resume();
    let mut server = bench.server();
    let pid = server.pid();
    let id = ask(&mut server);
    client.wait_for(is_asked);
    // A call that the server does not read before the hub is gone.
    stop(process(pid));
    client.send(r#"{"id":"in flight","method":"x/lost"}"#);
    bench.kill_hub();
    let error = client.answer_to(r#""in flight""#);
    assert_eq!(error["error"]["code"], -32000);
    assert!(
        error["error"]["message"].as_str().unwrap().contains("the connection to the shared server broke"),
        "{error}"
    );
    signal(pid, Signal::CONT);
    bench.hub(&["start"]);
    eventually("its connection", || bench.connections().iter().any(|now| now["threads"] == json!(["t"])).then_some(()));
    assert_eq!(bench.connections()[0]["transport"], "stdio");
    // The request is open and not asked again; neither are answers shown to calls that the client did not make.
    assert_eq!(server.notify("t", r#"{"method":"x/after"}"#), 1);
    assert_eq!(client.line(), "{\"method\":\"x/after\"}\n");
    client.send(&json!({"id": id, "result": decision("accept")}).to_string());
    let resolved = client.wait_for(|message| message["method"] == "serverRequest/resolved");
    assert_eq!(resolved["params"]["requestId"], id);
    assert_eq!(client.call("8", "x/next", &json!({}))["result"], json!({}));
    client.finish_quietly();
}

#[test]
fn client_survives_restarts_of_the_hub() {
    let bench = Bench::new().started();
    let mut client = bench.client();
    let thread = client.call("1", "thread/start", &json!({}))["result"]["thread"]["id"].clone();
    let thread = thread.as_str().unwrap();
    let mut server = bench.server();
    for run in 0..3 {
        bench.hub(&["restart"]);
        eventually("its connection", || {
            bench.connections().iter().any(|now| now["threads"] == json!([thread])).then_some(())
        });
        let note = format!(r#"{{"method":"x/run","params":{run}}}"#);
        assert_eq!(server.notify(thread, &note), 1);
        client.wait_for(|message| message["method"] == "x/run" && message["params"] == run);
        client.call(&format!("{}", run + 10), "x/call", &json!({}));
    }
    client.finish_quietly();
}

#[test]
fn client_without_a_hub_can_still_end() {
    let bench = Bench::new().started();
    let clients = [bench.client(), bench.client()];
    bench.hub(&["stop"]);
    let [closes, is_told] = clients;
    closes.finish_quietly();
    signal(u64::from(is_told.child.id()), Signal::TERM);
    let ended = is_told.ended();
    assert_eq!((ended.0.len(), ended.1.code(), &*ended.2), (0, Some(0), ""));
}

#[test]
fn connection_that_cannot_be_restored_ends_the_client() {
    let bench = Bench::new().started();
    let mut client = bench.front(&["app-server"]);
    // More than is remembered.
    client.send(&INITIALIZE.replace("{\"clientInfo\"", &format!("{{\"x\":\"{}\",\"clientInfo\"", "x".repeat(1 << 20))));
    client.answer_to("0");
    bench.kill_hub();
    let (rest, status, said) = client.ended();
    assert_eq!((rest.len(), status.code(), said.lines().count()), (0, Some(1), 1), "{said}");
    assert!(said.contains("the connection to the shared server broke; see `codex-shim hub status`"), "{said}");
}

#[test]
fn every_call_is_answered_once_whenever_the_hub_is_killed() {
    let bench = Bench::new().started();
    let mut client = bench.client();
    client.resume();
    let mut id = 100;
    for kill in 0..3 {
        let pid = bench.status()["pid"].as_u64().unwrap();
        // A burst that a pipe holds, with the kill somewhere in it.
        let first = id;
        for call in 0..40 {
            if call == kill * 15 {
                signal(pid, Signal::KILL);
            }
            client.send(&format!(r#"{{"id":{id},"method":"x/call","params":{{"x":"{}"}}}}"#, "x".repeat(1_000)));
            id += 1;
        }
        eventually("the end of the hub", || (bench.status()["running"] == false).then_some(()));
        bench.hub(&["start"]);
        let mut answered: Vec<i64> = (first..id)
            .map(|_| {
                let answer: Value = serde_json::from_str(&client.line()).unwrap();
                let is_answer = answer["result"] == json!({}) || answer["error"]["code"] == -32000;
                assert!(is_answer && answer["method"].is_null(), "{answer}");
                answer["id"].as_i64().unwrap()
            })
            .collect();
        answered.sort_unstable();
        assert!(answered.iter().copied().eq(first..id), "{answered:?}");
        eventually("its thread", || bench.connections().iter().any(|now| now["threads"] == json!(["t"])).then_some(()));
    }
    client.finish_quietly();
}
