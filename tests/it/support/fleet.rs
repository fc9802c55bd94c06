//! A fleet on one machine: a NATS server with its streams, homes of hosts with agents and sessions, and a console.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use codex_shim::testing::control::client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::both_ends::{http, lines_of, next, told, tool};
use super::nats::{Admin, Cluster, Nats};
use super::patience::within;
use super::shim::Home;
use super::{PATIENCE, eventually};

/// A console of a user.
pub struct Console(pub Home);

impl Console {
    pub fn ask(&self, args: &[&str]) -> Output {
        tool(&self.0, &[&["fleet"], args].concat())
    }

    /// What it prints for a question, or for an answer. A host on a busy machine may not reply in time, and is asked anew: nothing is
    /// done twice by that.
    pub fn document(&self, args: &[&str]) -> Value {
        let output = eventually("a reply", || {
            let output = self.ask(args);
            let is_late = String::from_utf8_lossy(&output.stderr).contains("no reply in");
            (!is_late).then_some(output)
        });
        told(&output)
    }

    /// The stored messages of events; `None` if the server is away.
    pub fn messages(&self) -> Option<Vec<Value>> {
        let output = self.ask(&["tail", "--json", "--since", "1d"]);
        let lines = String::from_utf8(output.stdout).expect("it is text");
        let messages = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        output.status.success().then_some(messages)
    }

    /// The numbers of the stored events by host, session and epoch. No number may come twice.
    pub fn numbers(&self) -> Option<BTreeMap<(String, String, String), BTreeSet<u64>>> {
        let mut numbers: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
        for message in self.messages()?.iter().filter(|message| message["event"].is_object()) {
            let text = |member: &str| message[member].as_str().expect("a text").to_owned();
            let seq = message["seq"].as_u64().expect("a number");
            assert_eq!(message["event"]["seq"], seq);
            let is_new = numbers.entry((text("host"), text("session"), text("epoch"))).or_default().insert(seq);
            assert!(is_new, "{message} comes twice");
        }
        Some(numbers)
    }

    /// Waits until the server has exactly what the sessions of a host have.
    pub fn has_all_of(&self, host: &str, sessions: &[&Session]) {
        sessions.iter().for_each(|session| session.is_indexed());
        eventually("every event once", || {
            let numbers = self.numbers()?;
            let has = |session: &&Session| {
                let (epoch, expect) = session.recorded();
                numbers.get(&(host.to_owned(), session.name.clone(), epoch)) == Some(&expect)
            };
            sessions.iter().all(has).then_some(())
        });
    }
}

/// The epoch and the numbers of the events that a session has.
pub type Recorded = (String, BTreeSet<u64>);

/// Checks the stream itself: it has each event of these histories once, and each event of any other once too.
pub fn stream_has(admin: &Admin, host: &str, sessions: &[(&str, &Recorded)]) {
    let events = eventually("the stream", || admin.events());
    let mut numbers: BTreeMap<(String, String, String), BTreeSet<u64>> = BTreeMap::new();
    for message in events.iter().filter(|message| message["event"].is_object()) {
        let text = |member: &str| message[member].as_str().expect("a text").to_owned();
        let seq = message["seq"].as_u64().expect("a number");
        let is_new = numbers.entry((text("host"), text("session"), text("epoch"))).or_default().insert(seq);
        assert!(is_new, "{message} is in the stream twice");
    }
    for (name, (epoch, expect)) in sessions {
        let found = numbers.get(&(host.to_owned(), (*name).to_owned(), epoch.clone()));
        assert_eq!(found, Some(expect), "{host}/{name} {epoch}");
    }
    let gaps = events.iter().filter(|message| message["gap"].is_object());
    let untold = gaps.filter(|gap| gap["gap"]["reason"] != "new_epoch").collect::<Vec<_>>();
    assert!(untold.is_empty(), "nothing was lost, and yet there are gaps: {untold:?}");
}

/// Makes the streams, with the administrator's credentials.
pub fn set_up(admin: &Console, replicas: &str) {
    // A cluster elects a leader first.
    eventually("the streams", || {
        admin.ask(&["check", "--set-up", "--replicas", replicas]).status.success().then_some(())
    });
}

/// A server with its streams.
pub struct Fleet {
    pub nats: Nats,
    pub ann: Console,
}

impl Fleet {
    pub fn start(test: &str) -> Option<Fleet> {
        let nats = Nats::start(test)?;
        let admin = Console(Home::new());
        nats.configures(&admin.0, "admin", "user = \"admin\"\n");
        set_up(&admin, "1");
        let ann = Console(Home::new());
        nats.configures(&ann.0, "ann", "user = \"ann\"\n");
        Some(Fleet { nats, ann })
    }

    /// The home of host `build-7` or `build-8`.
    pub fn host(&self, number: u8, level: &str) -> Home {
        let home = Home::new();
        self.nats.configures(&home, &format!("build_{number}"), &of_host(number, level));
        home
    }

    /// The same behind a port that leads to the server.
    pub fn host_behind(&self, port: u16, level: &str) -> Home {
        let home = Home::new();
        let url = format!("nats://127.0.0.1:{port}");
        super::nats::configure(&home, &url, &self.nats.seed("build_7"), &of_host(7, level));
        home
    }
}

pub fn of_host(number: u8, level: &str) -> String {
    format!("host = \"build-{number}\"\nlevel = \"{level}\"\n")
}

/// A cluster with its streams, three copies of each.
pub fn cluster(test: &str) -> Option<(Cluster, Console)> {
    let cluster = Cluster::start(test)?;
    let (admin, ann) = (Console(Home::new()), Console(Home::new()));
    cluster.configures(&admin.0, "admin", "user = \"admin\"\n");
    cluster.configures(&ann.0, "ann", "user = \"ann\"\n");
    set_up(&admin, "3");
    Some((cluster, ann))
}

/// A running agent.
pub struct Agent {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Agent {
    pub fn start(home: &Home) -> Agent {
        let mut command = home.shim(&["fleet", "agent"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the agent runs");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("it says something");
        assert!(line.contains("build-"), "{line}");
        let said = Arc::new(Mutex::new(line));
        // It must not block on a full pipe.
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                heard.lock().expect("no thread panics with it").push_str(&format!("{line}\n"));
            }
        });
        Agent { child, said }
    }

    /// All that it has told its user.
    pub fn said(&self) -> String {
        self.said.lock().expect("no thread panics with it").clone()
    }

    /// Waits until it says something.
    pub fn says(&self, expect: &str) {
        // An agent that waits for the name of its host watches for half a minute, and perhaps once more.
        within(3 * PATIENCE, expect, || self.said().contains(expect).then_some(()));
    }

    /// Ends it with a signal that it handles.
    pub fn ends(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("an id")).expect("an id");
        kill_process(pid, Signal::TERM).expect("it runs");
        let status = eventually("its end", || self.child.try_wait().expect("it is ours"));
        assert!(status.success(), "{status}");
    }

    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A relay whose server sends every line back.
pub struct Session {
    pub name: String,
    dir: PathBuf,
    relay: Child,
    stdin: Option<ChildStdin>,
    client: Receiver<Vec<u8>>,
    /// Events that the session must have: those before, and one of each line.
    events_min: usize,
}

impl Session {
    pub fn start(home: &Home, name: &str) -> Session {
        let mut command = home.shim(&["run", "--session", name, "--", "cat"]);
        command.current_dir(home.beside()).stderr(Stdio::null());
        let mut relay = command.spawn().expect("the relay starts");
        let client = lines_of(relay.stdout.take().expect("it is piped"));
        let stdin = relay.stdin.take();
        let dir = home.path().join("sessions").join(name);
        let mut session = Session { name: name.to_owned(), dir, relay, stdin, client, events_min: 0 };
        session.pass(r#"{"method":"begins"}"#);
        eventually("the control socket", || client::get(&session.dir, "/sessions/self").ok());
        session.events_min = session.recorded().1.len();
        session
    }

    /// Passes a line to the server and back.
    pub fn pass(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("it is open"), "{line}").expect("the relay reads");
        assert_eq!(next(&self.client, "the line"), format!("{line}\n"));
        self.events_min += 1;
    }

    /// Passes so many lines.
    pub fn passes(&mut self, count: usize) {
        for number in 0..count {
            self.pass(&format!(
                r#"{{"method":"turn/started","params":{{"threadId":"t","turn":{{"id":"u{number}"}}}}}}"#
            ));
        }
    }

    /// The epoch and the numbers of all events that the session has.
    pub fn recorded(&self) -> Recorded {
        let (mut numbers, mut epoch, mut after) = (BTreeSet::new(), String::new(), 0);
        loop {
            let path = format!("GET /sessions/self/codex-events?since_seq={after}&limit=500");
            let (status, page) = http(&self.dir, &path, b"");
            assert_eq!(status, 200, "{page}");
            let events = page["events"].as_array().expect("a list");
            epoch = page["epoch"].as_str().unwrap_or(&epoch).to_owned();
            let Some(last) = events.last() else { return (epoch, numbers) };
            after = last["seq"].as_u64().expect("a number");
            numbers.extend(events.iter().map(|event| event["seq"].as_u64().expect("a number")));
        }
    }

    /// Waits until the history has an event of each line.
    pub fn is_indexed(&self) {
        let mut before = BTreeSet::new();
        eventually("an event of each line", || {
            let (_, numbers) = self.recorded();
            let is_all = numbers.len() >= self.events_min && numbers == before;
            before = numbers;
            is_all.then_some(())
        });
    }

    pub fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.relay.wait().expect("it ends").success());
    }

    pub fn kill(mut self) {
        self.relay.kill().expect("it runs");
        self.relay.wait().expect("it was killed");
    }
}

/// Copies a folder as it is.
pub fn copy(from: &std::path::Path, to: &std::path::Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs").success());
}
