//! The real codex cannot be told from the relayed one.
//!
//! Each conversation is driven twice direct and once through a relay. What the two direct runs have in common, the
//! relayed one has too, stream by stream: the messages of each item, each turn, each answer, in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitStatus;

use serde_json::Value;

use crate::support::codex::{Lab, installed_or_skip};
use crate::support::conversations::{
    COMMAND_APPROVAL, Conversation, END_IN_MID_TURN, FILE_CHANGE_APPROVAL, INTERRUPT, LIST_READ_RESUME, PLAIN_TURN,
    QUESTION, REASONING, STREAMED_DELTAS,
};
use crate::support::journal::Journal;
use crate::support::model::Model;
use crate::support::peer::Peer;
use crate::support::shim::{Home, SHIM};

/// A run of a conversation, as streams of messages without what differs from run to run.
struct Run {
    streams: BTreeMap<String, Vec<Value>>,
    raw: Vec<Value>,
    status: ExitStatus,
    /// What the model was asked, one list of inputs a request.
    asked: Vec<Value>,
    journal: Option<Journal>,
}

fn run(conversation: Conversation, codex: &std::path::Path, relayed: bool) -> Run {
    let model = Model::start((conversation.script)());
    let lab = Lab::new(&model);
    let home = Home::new();
    let mut command = if relayed { lab.command(SHIM) } else { lab.command(codex) };
    command.arg("app-server");
    if relayed {
        home.adopt(&mut command).env("CODEX_SHIM_CODEX", codex);
    }
    let mut peer = Peer::start(&mut command);
    (conversation.drive)(&mut peer, &lab);
    let (raw, status) = peer.finish();
    let root = lab.root().to_string_lossy().into_owned();
    let mut streams: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for message in &raw {
        let message = settled(message, &root);
        streams.entry(stream_of(&message)).or_default().push(message);
    }
    let asked = model.requests().iter().map(|request| settled(&request["input"], &root)).collect();
    Run { streams, raw, status, asked, journal: relayed.then(|| home.journal()) }
}

/// What a message belongs to: order is held within it.
fn stream_of(message: &Value) -> String {
    let params = &message["params"];
    let item = params["itemId"].as_str().or_else(|| params["item"]["id"].as_str());
    let turn = params["turnId"].as_str().or_else(|| params["turn"]["id"].as_str());
    match (message["method"].as_str(), item, turn) {
        (None, ..) => format!("answer {}", message["id"]),
        (Some(_), Some(item), _) => format!("item {item}"),
        (Some(method), None, Some(turn)) if method.starts_with("turn/") => format!("turn {turn}"),
        (Some(method), None, Some(turn)) => format!("turn {turn} {method}"),
        (Some(method), None, None) => format!("notification {method}"),
    }
}

/// Takes out of a message what differs from run to run: ids, times, and the lab's folder.
fn settled(value: &Value, root: &str) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| {
                let is_time = key.ends_with("At") || key.ends_with("Ms") || key == "processId";
                let value = if is_time && !value.is_null() { Value::from("TIME") } else { settled(value, root) };
                (key.clone(), value)
            })
            .collect(),
        Value::Array(values) => values.iter().map(|value| settled(value, root)).collect(),
        Value::String(text) => {
            let measured = |line: &&str| line.starts_with("Wall time: ") || line.starts_with("Chunk ID: ");
            let text: Vec<&str> = text.split('\n').filter(|line| !measured(line)).collect();
            Value::String(settled_text(&text.join("\n").replace(root, "LAB")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Replaces every UUID, and the dates in the paths of rollouts.
fn settled_text(text: &str) -> String {
    let mut settled = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (name, length) = if rest.get(..36).is_some_and(is_uuid) {
            ("ID", 36)
        } else if rest.get(..19).is_some_and(|text| has_shape(text, "0000-00-00T00-00-00")) {
            ("TIME", 19)
        } else if rest.get(..10).is_some_and(|text| has_shape(text, "0000/00/00")) {
            ("DATE", 10)
        } else {
            settled.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        settled.push_str(name);
        rest = &rest[length..];
    }
    settled
}

/// Whether a text has a digit where `shape` has a `0`, and else what `shape` has.
fn has_shape(text: &str, shape: &str) -> bool {
    text.bytes()
        .zip(shape.bytes())
        .all(|(byte, shape)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape })
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// Runs of the real codex alone that are asked, where a stream differs, whether it always is the same.
const DIRECT_RUNS_MAX: usize = 5;

/// Runs a conversation direct and relayed and compares. `streams_min` is how many streams the direct runs must agree in,
/// so that the comparison cannot pass for lack of anything to compare.
fn check(name: &str, conversation: Conversation, streams_min: usize) {
    let Some(codex) = installed_or_skip(name) else { return };
    let mut direct_runs = vec![run(conversation, &codex, false), run(conversation, &codex, false)];
    let relayed = run(conversation, &codex, true);
    let streams: BTreeSet<String> = direct_runs[0].streams.keys().chain(relayed.streams.keys()).cloned().collect();
    let mut compared = 0;
    for stream in &streams {
        let in_relayed = relayed.streams.get(stream);
        while direct_runs.iter().all(|direct| direct.streams.get(stream) != in_relayed) {
            let in_direct = direct_runs[0].streams.get(stream);
            if direct_runs.iter().any(|direct| direct.streams.get(stream) != in_direct) {
                break;
            }
            assert!(
                direct_runs.len() < DIRECT_RUNS_MAX,
                "{name}: {stream}\n{}",
                first_difference(in_relayed, in_direct)
            );
            direct_runs.push(run(conversation, &codex, false));
        }
        compared += usize::from(direct_runs.iter().all(|direct| direct.streams.get(stream) == in_relayed));
    }
    assert!(compared >= streams_min, "{name}: only {compared} of {} streams are always the same", streams.len());
    let direct = &direct_runs[0];
    assert_eq!(relayed.status, direct.status, "{name}");
    assert!(direct_runs.iter().any(|direct| direct.asked == relayed.asked), "{name}: what the model was asked differs");
    let journal = relayed.journal.expect("a relayed run has a journal");
    assert_eq!(journal.server.len(), relayed.raw.len(), "{name}: what the client received is what is on record");
    for (recorded, received) in journal.server.iter().zip(&relayed.raw) {
        match recorded {
            Some(line) => assert_eq!(&serde_json::from_slice::<Value>(line).expect("codex writes JSON"), received),
            None => assert!(received["method"].as_str().is_some_and(|method| method.starts_with("account/"))),
        }
    }
    let version = journal.events.iter().find(|(event, _)| event == "codex_version").map(|(_, data)| &data["version"]);
    assert_eq!(version, Some(&Value::from("0.169.0")), "{name}");
    assert_eq!(journal.event_names().last(), Some(&"generation_ended"), "{name}");
}

fn first_difference(relayed: Option<&Vec<Value>>, direct: Option<&Vec<Value>>) -> String {
    let (relayed, direct) = (relayed.map_or(&[][..], Vec::as_slice), direct.map_or(&[][..], Vec::as_slice));
    let at = relayed.iter().zip(direct).take_while(|(relayed, direct)| relayed == direct).count();
    format!("message {at}\nrelayed: {:?}\ndirect:  {:?}", relayed.get(at), direct.get(at))
}

#[test]
fn e2e_plain_turn() {
    check("e2e_plain_turn", PLAIN_TURN, 10);
}

#[test]
fn e2e_reasoning() {
    check("e2e_reasoning", REASONING, 10);
}

#[test]
fn e2e_streamed_deltas() {
    check("e2e_streamed_deltas", STREAMED_DELTAS, 10);
}

#[test]
fn e2e_command_approval() {
    check("e2e_command_approval", COMMAND_APPROVAL, 10);
}

#[test]
fn e2e_file_change_approval() {
    check("e2e_file_change_approval", FILE_CHANGE_APPROVAL, 10);
}

#[test]
fn e2e_question() {
    check("e2e_question", QUESTION, 10);
}

#[test]
fn e2e_interrupt() {
    check("e2e_interrupt", INTERRUPT, 10);
}

#[test]
fn e2e_list_read_resume() {
    check("e2e_list_read_resume", LIST_READ_RESUME, 10);
}

#[test]
fn e2e_end_in_mid_turn() {
    check("e2e_end_in_mid_turn", END_IN_MID_TURN, 8);
}
