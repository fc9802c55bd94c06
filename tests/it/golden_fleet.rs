//! Golden file of a fleet: what leaves a host at each level, the messages of consoles and hosts, and the tools of a console.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use async_nats::jetstream;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::golden::{Golden, Shell, a_millisecond_later, a_second_later, quoted};
use crate::golden_page::{Tab, inbox, signed_in};
use crate::golden_text::Names;
use crate::request_tools::finish;
use crate::support::both_ends::Live;
use crate::support::eventually;
use crate::support::fleet::{Agent, Console, Fleet};
use crate::support::nats::Admin;
use crate::support::page::Page;
use crate::support::requests::{command_asked, parsed, question_asked};
use crate::support::shim::Home;

/// A subject, and the text of a message.
type Message = (String, String);

/// All messages of a stream, in their order.
fn stored(admin: &Admin, stream: &str) -> Option<Vec<Message>> {
    admin.with(async |client| {
        let stream = jetstream::new(client).get_stream(stream).await.ok()?;
        let state = stream.get_info().await.ok()?.state;
        let mut all = Vec::new();
        for number in state.first_sequence..=state.last_sequence {
            // A newer one may have taken its place.
            let Ok(message) = stream.get_raw_message(number).await else { continue };
            all.push((message.subject.to_string(), String::from_utf8(message.payload.to_vec()).expect("it is UTF-8")));
        }
        Some(all)
    })
}

/// The last message of each subject.
fn last(admin: &Admin, stream: &str) -> Option<BTreeMap<String, String>> {
    stored(admin, stream).map(|all| all.into_iter().collect())
}

/// Hears what a user of the server may hear: its own messages, and not those of JetStream.
struct Tap(Arc<Mutex<Vec<Message>>>);

impl Tap {
    fn start(url: String, seed: String, subjects: &'static str) -> Tap {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&messages);
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let options = async_nats::ConnectOptions::with_nkey(seed);
                let client = options.connect(url).await.expect("the server is there");
                let mut subscription = client.subscribe(subjects).await.expect("it may hear them");
                client.flush().await.expect("the server is there");
                ready.send(()).expect("the test waits");
                while let Some(message) = subscription.next().await {
                    let is_of_store = message.headers.iter().any(|headers| headers.get("Nats-Stream").is_some());
                    let text = String::from_utf8_lossy(&message.payload).into_owned();
                    if !is_of_store && text.starts_with('{') {
                        all.lock().expect("no thread panics with it").push((message.subject.to_string(), text));
                    }
                }
            });
        });
        is_ready.recv().expect("it is ready");
        Tap(messages)
    }

    fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.0.lock().expect("no thread panics with it"))
    }

    /// The next message.
    fn one(&self) -> Message {
        let first = |messages: &mut Vec<Message>| (!messages.is_empty()).then(|| messages.remove(0));
        eventually("a message", || first(&mut self.0.lock().expect("no thread panics with it")))
    }
}

/// Two hosts, one at each level, on which the same happens.
struct Hosts {
    fleet: Fleet,
    golden: Golden,
    full: Live,
    summary: Live,
    questions: Tap,
    replies: Tap,
}

/// A message of the server in turn `u1` of thread `t`.
fn says(live: &mut Live, method: &str, more: Value) {
    let mut params = json!({ "threadId": "t", "turnId": "u1" });
    more.as_object().expect("members").iter().for_each(|(name, value)| params[name] = value.clone());
    live.say_plainly(&json!({ "method": method, "params": params }).to_string());
}

fn works(live: &mut Live) {
    says(live, "thread/name/updated", json!({ "threadName": "A secret title" }));
    let text = json!([{ "type": "text", "text": "the user's words" }]);
    says(live, "item/completed", json!({ "item": { "type": "userMessage", "id": "i0", "content": text } }));
    let command = json!({ "type": "commandExecution", "id": "i1", "command": "/bin/bash -lc 'make TOKEN=hunter22'", "cwd": "/w" });
    let with = |more: Value| {
        let mut item = command.clone();
        more.as_object().expect("members").iter().for_each(|(name, value)| item[name] = value.clone());
        json!({ "item": item })
    };
    says(live, "item/started", with(json!({ "status": "inProgress" })));
    says(live, "item/commandExecution/outputDelta", json!({ "itemId": "i1", "delta": "some output\n" }));
    says(
        live,
        "item/completed",
        with(json!({ "status": "completed", "exitCode": 0, "aggregatedOutput": "some output\n", "durationMs": 12 })),
    );
    let changes = json!([{ "path": "/w/new.txt", "kind": { "type": "add" }, "diff": "hello\n" }]);
    says(
        live,
        "item/started",
        json!({ "item": { "type": "fileChange", "id": "f", "changes": changes, "status": "inProgress" } }),
    );
    says(live, "turn/diff/updated", json!({ "diff": "--- a\n+++ b\n+hello\n" }));
    says(live, "item/completed", json!({ "item": { "type": "agentMessage", "id": "m", "text": "It is done." } }));
    let tokens = json!({ "totalTokens": 40, "inputTokens": 35, "cachedInputTokens": 2, "outputTokens": 5, "reasoningOutputTokens": 1 });
    says(live, "thread/tokenUsage/updated", json!({ "tokenUsage": { "last": tokens, "total": tokens } }));
    live.asked(&command_asked("7", "t"), "7");
    a_millisecond_later();
    live.asked(&question_asked("8", false), "8");
}

/// The numbers of a session's events.
fn recorded(live: &Live) -> usize {
    let page = live.get("/sessions/self/codex-events?since_seq=0&limit=500");
    page["events"].as_array().expect("a list").len()
}

impl Hosts {
    fn start(test: &str) -> Option<Hosts> {
        let fleet = Fleet::start(test)?;
        let mut golden = Golden::new("fleet", None);
        golden.names.know_number(fleet.nats.server.port.into(), "port");
        golden.know_home_of("", &fleet.ann.0);
        let mut hosts = [(7, "full"), (8, "summary")].map(|(number, level)| {
            // Sessions are listed by the second in which they have begun.
            a_second_later();
            let mut live = Live::start_in(fleet.host(number, level)).in_turn();
            golden.know_home_of(&format!("-{number}"), &live.home);
            golden.names.know_run(&live.generation(), &format!("run-{number}"));
            golden.names.know_number(live.relay.id(), "pid");
            works(&mut live);
            live
        });
        let seed = |user: &str| std::fs::read_to_string(fleet.nats.seed(user)).expect("a file").trim().to_owned();
        let questions = Tap::start(fleet.nats.url(), seed("build_7"), "cshim.req.build-7.>");
        let replies = Tap::start(fleet.nats.url(), seed("ann"), "_INBOX.ann.>");
        hosts.rotate_left(1);
        let [summary, full] = hosts;
        Some(Hosts { fleet, golden, full, summary, questions, replies })
    }

    fn shell(&self) -> Shell<'_> {
        Shell::beside(&self.fleet.ann.0)
    }

    fn begin(&self, words: &[&str]) -> Child {
        let mut command = self.shell().command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool runs")
    }

    /// A tool of the console. A host on a busy machine may not reply in time, and is asked anew.
    fn tool(&mut self, words: &[&str]) {
        let words = [&["fleet"], words].concat();
        let output = eventually("a reply", || {
            self.questions.take();
            self.replies.take();
            let output = finish(self.begin(&words));
            (!String::from_utf8_lossy(&output.stderr).contains("no reply in")).then_some(output)
        });
        self.golden.output(&quoted(&words), &output, Names::body);
    }

    /// The same for a tool that asks host `build-7` so many times: the questions and replies, too. `play` is what the server does
    /// meanwhile.
    fn asking(&mut self, words: &[&str], times: usize, play: impl FnOnce(&mut Live)) {
        let words = [&["fleet"], words].concat();
        self.questions.take();
        self.replies.take();
        let tool = self.begin(&words);
        play(&mut self.full);
        let output = finish(tool);
        self.golden.output(&quoted(&words), &output, Names::body);
        for _ in 0..times {
            let (subject, text) = self.questions.one();
            self.golden.entry(&format!("question on {subject}"));
            self.golden.add(&text);
            let (_, text) = self.replies.one();
            self.golden.entry("reply");
            self.golden.add(&text);
        }
        assert_eq!((self.questions.take(), self.replies.take()), (Vec::new(), Vec::new()));
    }

    /// What the server has of both hosts, once it has all.
    fn stored(&mut self) {
        let admin = self.fleet.nats.admin();
        let count = recorded(&self.full) + recorded(&self.summary);
        let events = eventually("every event", || stored(&admin, "CSHIM_EV").filter(|all| all.len() == count));
        for host in ["build-7", "build-8"] {
            let of_host = format!("cshim.ev.{host}.");
            for (subject, text) in events.iter().filter(|(subject, _)| subject.starts_with(&of_host)) {
                self.golden.entry(&format!("event on {subject}"));
                self.golden.add(text);
            }
        }
        for (bucket, member) in [("KV_cshim_hosts", "pending"), ("KV_cshim_pending", "requests")] {
            let of_both = eventually("both hosts", || {
                let both = last(&admin, bucket)?;
                let has_two = |text: &String| {
                    let document = parsed(text);
                    document[member] == 2 || document[member].as_array().is_some_and(|all| all.len() == 2)
                };
                (both.len() == 2 && both.values().all(has_two)).then_some(both)
            });
            for (subject, text) in of_both {
                self.golden.entry(&format!("value on {subject}"));
                self.golden.add(&text);
            }
        }
    }
}

fn reads(hosts: &mut Hosts) {
    let (command, question) = (hosts.name(7, "7"), hosts.name(8, "8"));
    for words in [
        &["hosts", "--json"][..],
        &["hosts", "--utc"],
        &["sessions", "--json"],
        &["sessions", "--utc"],
        &["sessions", "build-9", "--json"],
        &["requests", "--json"],
        &["requests"],
        &["requests", "--all", "--json"],
        &["usage", "--json"],
        &["usage", "--by", "model"],
        &["tail", "build-7", "-n", "100", "--json"],
        &["tail", "build-7", "-n", "100", "--utc"],
        &["tail", "build-8", "-n", "100", "--utc"],
        &["tail", "build-9", "--json"],
        &["show", &command],
        &["show", &question],
        &["show", &question, "--json"],
        &["show", "build-9/0", "--json"],
        &["show", "nope", "--json"],
    ] {
        hosts.tool(words);
    }
    for words in [
        &["sessions", "build-7", "--json"][..],
        &["requests", "build-7", "--all", "--json"],
        &["usage", "build-7", "--by", "session", "--json"],
        &["show", &command, "--json"],
        &["show", "build-7/nope", "--json"],
        &["show", "build-7/other/0", "--json"],
        &["interrupt", "build-7/other", "--json"],
        &["send", "build-7/s", "not now", "--json"],
    ] {
        hosts.asking(words, 1, |_| {});
    }
    // The request is looked at before it is answered.
    for words in [
        &["respond", &command, "--json", r#"{"decision":"perhaps"}"#][..],
        &["respond", &command, "--answer", "color=Red", "--json"],
    ] {
        hosts.asking(words, 2, |_| {});
    }
}

impl Hosts {
    /// The name of a request: its host, and its id by the id that the server gave it.
    fn name(&self, host: u8, id: &str) -> String {
        let live = if host == 7 { &self.full } else { &self.summary };
        format!("build-{host}/{}-{id}", live.generation())
    }
}

fn writes(hosts: &mut Hosts) {
    let (command, question) = (hosts.name(7, "7"), hosts.name(7, "8"));
    hosts.golden.names.either(&["dispatched_at"]);
    hosts.asking(&["respond", &command, "accept", "--json"], 2, |live| drop(live.at_server()));
    hosts.asking(&["respond", &command, "decline", "--json"], 1, |_| {});
    hosts.asking(&["respond", &question, "--answer", "color=Red"], 2, |live| drop(live.at_server()));
    hosts.golden.names.either(&[]);
    hosts.asking(&["send", "build-7/s", "go on", "--thread", "t", "--json"], 1, |live| {
        let call = parsed(live.at_server().trim_end());
        live.say_unseen(&json!({ "id": call["id"], "result": { "turn": { "id": "u1" } } }).to_string());
    });
    hosts.asking(&["interrupt", "build-7/s", "--json"], 1, |live| {
        let call = parsed(live.at_server().trim_end());
        live.say_unseen(&json!({ "id": call["id"], "result": {} }).to_string());
    });
    hosts.asking(&["interrupt", "build-7/s", "--thread", "nope", "--json"], 1, |_| {});
    // A viewer may not answer.
    let ben = Console(Home::new());
    hosts.fleet.nats.configures(&ben.0, "ben", "user = \"ben\"\n");
    let question = hosts.name(8, "8");
    let words = ["fleet", "respond", &question, "decline", "--json"];
    let output = Shell::beside(&ben.0).command(&words).output().expect("it runs");
    hosts.golden.output(&quoted(&words), &output, Names::body);
}

/// Entries of the timeline of each session.
const ENTRIES: usize = 8;

const ENTRIES_OF_SUMMARY: usize = 6;

fn page(hosts: &mut Hosts) {
    let page = Page::start(&hosts.fleet.ann.0, &["--fleet"]);
    let browser = signed_in(&mut hosts.golden, &page);
    let (first, second) = (hosts.name(7, "7"), hosts.name(8, "8"));
    let (_, first) = first.split_once('/').expect("a host");
    let (_, second) = second.split_once('/').expect("a host");
    inbox(&browser, 4);
    let mut tab = Tab { golden: &mut hosts.golden, browser: &browser };
    tab.get("/inbox");
    let whole = |path: &str, count: usize| {
        eventually("the timeline", || {
            let timeline = browser.get(path);
            (timeline["entries"].as_array()?.len() == count).then_some(timeline)
        })
    };
    let (seven, eight) = ("/sessions/build-7%2Fs/timeline?all", "/sessions/build-8%2Fs/timeline?all");
    let timeline = whole(seven, ENTRIES);
    tab.get(seven);
    whole(eight, ENTRIES_OF_SUMMARY);
    tab.get(eight);
    tab.stream("/stream?session=build-8%2Fs", &["timeline"]);
    let key = timeline["entries"][1]["key"].as_str().expect("a key");
    tab.get(&format!("/sessions/build-7%2Fs/entry?key={key}"));
    tab.get(&format!("/sessions/build-7%2Fs/requests/{first}/diff?file=0&from=0"));
    tab.post(&format!("/sessions/build-8%2Fs/requests/{second}/respond"), r#"{"answers":{"color":["Red"]}}"#);
    tab.post(&format!("/sessions/build-7%2Fs/requests/{first}/respond"), r#"{"body":{"decision":"perhaps"}}"#);
    tab.post("/sessions/build-7%2Fs/input", r#"{"text":"not now","thread_id":"t"}"#);
}

/// An answer for a host that is away, and what becomes of it.
fn later(hosts: &mut Hosts, agent: Agent) {
    agent.ends();
    let admin = hosts.fleet.nats.admin();
    eventually("a host that is offline", || {
        let document = hosts.fleet.ann.document(&["hosts", "--json"]);
        let rows = document["hosts"].as_array()?;
        let is =
            |host: &str, member: &str, value: Value| rows.iter().any(|row| row["host"] == host && row[member] == value);
        (is("build-8", "online", json!(false)) && is("build-7", "pending", json!(0))).then_some(())
    });
    let command = hosts.name(8, "7");
    hosts.tool(&["hosts"]);
    hosts.tool(&["respond", &command, "accept", "--json"]);
    hosts.tool(&["respond", &command, "accept", "--when-back", "--valid-for", "30m", "--json"]);
    for (subject, text) in eventually("the answer", || stored(&admin, "CSHIM_LATER").filter(|all| !all.is_empty())) {
        hosts.golden.entry(&format!("answer on {subject}"));
        hosts.golden.add(&text);
    }
    let _agent = Agent::start(&hosts.summary.home);
    hosts.summary.at_server();
    let of_host = eventually("its outcome", || {
        let all = last(&admin, "KV_cshim_hosts")?;
        all.into_iter()
            .find(|(_, text)| parsed(text)["waited"][0]["outcome"] == "given" && parsed(text)["pending"] == 1)
    });
    hosts.golden.entry(&format!("value on {}", of_host.0));
    hosts.golden.add(&of_host.1);
}

#[test]
fn fleet_is_as_before() {
    let Some(mut hosts) = Hosts::start("fleet_is_as_before") else { return };
    // Before the first agent.
    hosts.tool(&["sessions", "--json"]);
    hosts.tool(&["hosts", "--json"]);
    let _agent = Agent::start(&hosts.full.home);
    let other = Agent::start(&hosts.summary.home);
    hosts.stored();
    hosts.tool(&["check", "--json"]);
    reads(&mut hosts);
    page(&mut hosts);
    writes(&mut hosts);
    later(&mut hosts, other);
    let Hosts { golden, full, summary, .. } = hosts;
    full.kill();
    summary.kill();
    golden.check();
}
