//! Context with the real codex: the model sees it, and the client does not.
//!
//! One conversation that requests the user's words in every way codex offers runs directly without context and relayed
//! with context; the test compares the two stream by stream.

use std::fs;
use std::path::Path;

use codex_shim::testing::control::client;
use serde_json::{Value, json};

use crate::support::both_ends::text;
use crate::support::codex::{Lab, installed_or_skip};
use crate::support::conversations::{start_thread, turn_completed};
use crate::support::eventually;
use crate::support::model::{Item, Model};
use crate::support::peer::Peer;
use crate::support::release::{Ability, Release};
use crate::support::shim::{Home, SHIM};
use crate::support::streams::{Runs, Streams, Way, settled, streams_of};

/// Forms of the markers in codex's JSON.
const MARKS: [&str; 3] = ["CODEX_META", "\\u001e", "\\u001f"];

const IMAGE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Limit on repeated runs of either kind, because codex itself varies between runs.
const RUNS_MAX: usize = 4;

/// One run: the client's messages, the requests to the model, and the deliveries.
struct Run {
    raw: Vec<Value>,
    streams: Streams,
    asked: Vec<Value>,
    /// The same without context and without values that differ from run to run.
    asked_without: Vec<Value>,
    deliveries: Vec<Value>,
}

/// Whether codex counts the same records: an item injected into a thread's history counts as one.
#[derive(Clone, Copy)]
enum Counts {
    Same,
    Other,
}

/// How the client is connected, and which text precedes its words.
enum Connection<'a> {
    Direct,
    Relayed { home: &'a Home, carrier: &'a str },
}

impl Connection<'_> {
    fn start(&self, lab: &Lab, codex: &Path) -> Peer {
        match self {
            Connection::Direct => Peer::start(lab.command(codex).arg("app-server")),
            Connection::Relayed { home, carrier } => {
                let mut command = lab.command(SHIM);
                home.adopt(&mut command).env("CODEX_SHIM_CODEX", codex).env("CODEX_SHIM_CARRIER", carrier);
                Peer::start(command.env("CODEX_SHIM_SESSION", "s").arg("app-server"))
            }
        }
    }

    /// Runs a command in a terminal beside the client.
    fn work_in_terminal(&self, cmd: &str) {
        if let Connection::Relayed { home, .. } = self {
            let pushed =
                json!({"cmd": cmd, "exit_code": 101, "cwd": "/w", "output": "\u{1b}[1mzebra\u{1b}[0m $HOME ä\n"});
            let answer = client::post(&home.path().join("sessions/s"), "/sessions/self/context", pushed.to_string());
            let answer = answer.expect("it answers");
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
}

/// A turn with this input, after a terminal command.
fn turn(peer: &mut Peer, way: &Connection<'_>, thread: &str, input: Value) -> Value {
    way.work_in_terminal("cargo test");
    let turn = peer.call("turn/start", json!({"threadId": thread, "input": input}))["turn"]["id"].clone();
    turn_completed(peer, "completed");
    turn
}

/// A call that some releases do not know; the test compares the answers, including errors.
fn ask(peer: &mut Peer, method: &str, params: Value) {
    let id = peer.request(method, params);
    peer.wait_for(method, |message| message.get("method").is_none() && message["id"] == id);
}

/// Sends messages of every shape, and requests them in every way.
fn converse(way: &Connection<'_>, lab: &Lab, codex: &Path) -> Vec<Value> {
    let mut peer = way.start(lab, codex);
    peer.initialize();
    let thread = start_thread(&mut peer, lab, "read-only");
    let says = "ä 😀 please look at the giraffe";
    let at = says.find("look").expect("it is there");
    let spans = json!([{"byteRange": {"start": at, "end": at + 4}, "placeholder": "x"}]);
    let first_turn = turn(&mut peer, way, &thread, json!([{"type": "text", "text": says, "text_elements": spans}]));
    let image = json!({"type": "image", "url": IMAGE});
    turn(
        &mut peer,
        way,
        &thread,
        json!([image, {"type": "text", "text": "and this giraffe"}, {"type": "text", "text": "more"}]),
    );
    turn(&mut peer, way, &thread, json!([image]));
    way.work_in_terminal("make");
    peer.call_as_written(&format!(
        r#"{{"params":{{"input":[{{"te\u0078t":"writt\u0065n \"so\"","type":"text"}}], "threadId":"{thread}"}},"method":"turn/start" ,"id":ID}}"#
    ));
    turn_completed(&mut peer, "completed");
    let other = start_thread(&mut peer, lab, "read-only");
    turn(&mut peer, way, &other, json!([image]));
    for (method, params) in [
        ("thread/list", json!({})),
        ("thread/turns/list", json!({"threadId": thread})),
        ("thread/read", json!({"threadId": thread, "includeTurns": true})),
        ("thread/items/list", json!({"threadId": thread})),
        ("thread/items/read", json!({"threadId": thread, "turnId": first_turn, "itemIds": []})),
        ("thread/timeline/list", json!({"threadId": thread})),
        ("thread/search", json!({"searchTerm": "giraffe"})),
        ("thread/searchOccurrences", json!({"threadId": thread, "searchTerm": "giraffe"})),
        ("thread/queue/list", json!({"threadId": thread})),
        ("getConversationSummary", json!({"conversationId": thread})),
        ("thread/fork", json!({"threadId": thread})),
        ("thread/resume", json!({"threadId": thread})),
        ("thread/resume", json!({"threadId": other})),
    ] {
        ask(&mut peer, method, params);
    }
    if lab.release.has(Ability::UsageOnResume) {
        // It follows the answer, and codex drops it if stdin ends before.
        peer.wait_for("the usage of the thread resumed last", |message| {
            message["method"] == "thread/tokenUsage/updated" && message["params"]["threadId"] == other.as_str()
        });
    }
    let (mut raw, status) = peer.finish();
    assert!(status.success());
    // Another client of the same codex, later.
    let mut peer = way.start(lab, codex);
    peer.initialize();
    for (method, params) in [
        ("thread/list", json!({})),
        ("thread/resume", json!({"threadId": thread})),
        ("thread/resume", json!({"threadId": other})),
        ("thread/turns/list", json!({"threadId": thread})),
    ] {
        ask(&mut peer, method, params);
    }
    turn(&mut peer, way, &thread, json!([{"type": "text", "text": "once more"}]));
    raw.extend(peer.finish().0.into_iter().map(|message| renumbered(message, 1_000)));
    raw
}

/// The message with another id, so that ids of two processes stay apart.
fn renumbered(mut message: Value, by: i64) -> Value {
    if message.get("method").is_none()
        && let Some(id) = message["id"].as_i64()
    {
        message["id"] = json!(id + by);
    }
    message
}

fn run(codex: &Path, carrier: Option<&str>, counts: Counts) -> Run {
    let model = Model::start((0..9).map(|_| vec![Item::Text(vec!["Hello."])]).collect());
    let lab = Lab::new(&model);
    let home = Home::new();
    let way = match carrier {
        None => Connection::Direct,
        Some(carrier) => Connection::Relayed { home: &home, carrier },
    };
    let raw = converse(&way, &lab, codex);
    let deliveries = match way {
        Connection::Direct => Vec::new(),
        Connection::Relayed { .. } => deliveries(&home),
    };
    let root = lab.root().to_string_lossy().into_owned();
    let streams = match counts {
        Counts::Same => streams_of(&raw, &root),
        Counts::Other => streams_of(&raw, &root).into_iter().map(|(name, stream)| (name, uncounted(stream))).collect(),
    };
    let asked: Vec<Value> = model.requests().iter().map(|request| request["input"].clone()).collect();
    let asked_without = asked.iter().map(|input| settled(&without_context(input), &root)).collect();
    Run { raw, streams, asked, asked_without, deliveries }
}

/// The deliveries that the tool prints after the relay has ended.
fn deliveries(home: &Home) -> Vec<Value> {
    let mut ledger =
        codex_shim::testing::store::OfflineLedger::open(&home.path().join("sessions/s")).expect("a ledger");
    let kept = ledger.deliveries().expect("it can be read");
    kept.iter().map(|delivery| serde_json::to_value(delivery).expect("it is plain data")).collect()
}

/// Without the counts of records in a thread's history, and without thread names derived from them.
fn uncounted(stream: Vec<Value>) -> Vec<Value> {
    fn without(value: &mut Value) {
        let names = !Release::under_test().has(Ability::NamesWithoutInjections);
        match value {
            Value::Object(members) => {
                for (name, value) in members.iter_mut() {
                    if name == "position" || name.ends_with("Cursor") || (names && name == "name") {
                        *value = Value::Null;
                    }
                    without(value);
                }
            }
            Value::Array(values) => values.iter_mut().for_each(without),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    stream
        .into_iter()
        .map(|mut message| {
            without(&mut message);
            message
        })
        .collect()
}

/// Compares a relayed run with context to direct runs without.
fn check(name: &str, carrier: &str, counts: Counts) {
    let Some(codex) = installed_or_skip(name) else { return };
    let run = |way| run(&codex, (way == Way::Relayed).then_some(carrier), counts);
    let mut runs = Runs { direct: vec![run(Way::Direct)], relayed: vec![run(Way::Relayed)] };
    for message in &runs.relayed[0].raw {
        let text = message.to_string();
        assert!(MARKS.iter().all(|mark| !text.contains(mark)), "{name}: {text}");
    }
    let (_, all) = runs.compare(name, RUNS_MAX, |run| &run.streams, run);
    assert!(all > 40, "{name}: only {all} streams");
    check_model_knows(name, &Shown::by(name, carrier), &runs.relayed[0], &runs.direct[0]);
}

/// The terminal commands that the model saw.
struct Shown {
    /// The outcome of each delivery.
    outcomes: &'static [&'static str],
    /// The deliveries in the last request: all that arrived, except that of the other thread.
    deliveries: &'static [usize],
}

impl Shown {
    /// Everything, unless the release refuses the carrier's call; `auto` recognises such a release by its version.
    fn by(name: &str, carrier: &str) -> Shown {
        const ARRIVED: &str = "delivered";
        let refuses = carrier != "envelope" && Release::under_test().lacks(name, Ability::InjectItems);
        match (refuses, carrier) {
            (true, "inject_items") => Shown { outcomes: &["refused", "refused"], deliveries: &[] },
            (true | false, _) => Shown { outcomes: &[ARRIVED; 6], deliveries: &[0, 1, 2, 3, 5] },
        }
    }
}

/// The model saw each delivery byte for byte, and otherwise the same as without context.
fn check_model_knows(name: &str, shown: &Shown, relayed: &Run, direct: &Run) {
    let outcomes: Vec<_> = relayed.deliveries.iter().map(|delivery| text(&delivery["outcome"])).collect();
    assert_eq!(outcomes, shown.outcomes, "{name}: {:?}", relayed.deliveries);
    let last = relayed.asked.last().expect("the model was asked").as_array().expect("a list").clone();
    let mut texts: Vec<String> = Vec::new();
    for delivery in &relayed.deliveries {
        assert!(delivery["outcome"] == "refused" || delivery["turn_id"].is_string(), "{name}: {delivery}");
        let text = text(&delivery["text"]);
        assert!(text.len() <= 4_096 && text.contains(r#""zebra \u0024HOME ä""#), "{name}: {text}");
        texts.push(text);
    }
    // The last request has all deliveries except that of the other thread, in order.
    let seen: Vec<&str> = last
        .iter()
        .filter_map(|item| item["content"].as_array())
        .flatten()
        .filter_map(|content| content["text"].as_str())
        .filter(|text| text.starts_with('\u{1e}'))
        .collect();
    assert_eq!(seen.len(), shown.deliveries.len(), "{name}: {seen:?}");
    for (seen, delivery) in seen.iter().zip(shown.deliveries) {
        assert!(seen.starts_with(texts[*delivery].as_str()), "{name}:\n{seen}\n{}", texts[*delivery]);
    }
    // Without the deliveries, the requests equal those of a direct run.
    assert_eq!(relayed.asked_without, direct.asked_without, "{name}");
}

fn without_context(input: &Value) -> Value {
    let strip = |content: &Value| {
        let mut content = content.clone();
        if let Some(text) = content["text"].as_str()
            && let Some((_, words)) = text.strip_prefix('\u{1e}').and_then(|text| text.split_once('\u{1f}'))
        {
            let words = words.to_owned();
            content["text"] = json!(words);
            return (!words.is_empty()).then_some(content);
        }
        Some(content)
    };
    let items = input.as_array().expect("a list").iter().filter_map(|item| {
        let mut item = item.clone();
        if let Some(content) = item["content"].as_array() {
            let content: Vec<Value> = content.iter().filter_map(strip).collect();
            if content.is_empty() {
                return None;
            }
            item["content"] = content.into();
        }
        Some(item)
    });
    items.collect()
}

#[test]
fn e2e_context_in_an_envelope() {
    check("e2e_context_in_an_envelope", "envelope", Counts::Same);
}

#[test]
fn e2e_context_by_a_call_of_our_own() {
    check("e2e_context_by_a_call_of_our_own", "inject_items", Counts::Other);
}

#[test]
fn e2e_context_by_whatever_works() {
    check("e2e_context_by_whatever_works", "auto", Counts::Other);
}

#[test]
fn e2e_context_waits_where_it_is_off() {
    let Some(codex) = installed_or_skip("e2e_context_waits_where_it_is_off") else { return };
    let relayed = run(&codex, Some("off"), Counts::Same);
    assert_eq!(relayed.deliveries, Vec::<Value>::new());
    assert!(relayed.asked.iter().all(|input| !input.to_string().contains("CODEX_META")));
}

/// A search finds the words of an envelope too, because codex has it on record.
#[test]
fn e2e_search_shows_nothing_of_an_envelope() {
    const TEST: &str = "e2e_search_shows_nothing_of_an_envelope";
    let Some(codex) = installed_or_skip(TEST) else { return };
    let release = Release::under_test();
    if release.lacks(TEST, Ability::Search) {
        return;
    }
    let finds_occurrences = !release.lacks(TEST, Ability::Occurrences);
    let model = Model::start(vec![vec![Item::Text(vec!["Hello."])]]);
    let lab = Lab::new(&model);
    let config = lab.codex_home().join("config.toml");
    let settings = fs::read_to_string(&config).expect("a file");
    fs::write(&config, settings.replace("[features]\n", "[features]\nthread_search = true\n")).expect("a file");
    let home = Home::new();
    let way = Connection::Relayed { home: &home, carrier: "envelope" };
    let mut peer = way.start(&lab, &codex);
    peer.initialize();
    let thread = start_thread(&mut peer, &lab, "read-only");
    turn(&mut peer, &way, &thread, json!([{"type": "text", "text": "please look at the giraffe"}]));
    // A search that finds nothing shows nothing either.
    for (method, params) in [
        ("thread/search", json!({"searchTerm": "giraffe"})),
        ("thread/searchOccurrences", json!({"threadId": thread, "searchTerm": "giraffe"})),
    ] {
        if method == "thread/searchOccurrences" && !finds_occurrences {
            continue;
        }
        eventually("a hit for the user's own words", || {
            let id = peer.request(method, params.clone());
            let hits = peer.wait_for(method, |message| message.get("method").is_none() && message["id"] == id);
            hits["result"].to_string().contains("giraffe").then_some(())
        });
    }
    for term in ["CODEX_META", "user_cmd_context", "zebra", "giraffe"] {
        ask(&mut peer, "thread/search", json!({"searchTerm": term}));
        if finds_occurrences {
            ask(&mut peer, "thread/searchOccurrences", json!({"threadId": thread, "searchTerm": term}));
        }
    }
    for message in peer.finish().0 {
        let text = message.to_string();
        assert!(MARKS.iter().all(|mark| !text.contains(mark)), "{text}");
    }
}
