//! The real codex cannot be told from the relayed one.
//!
//! Each conversation is driven twice direct and once through a relay, and compared stream by stream: the messages of each
//! item, each turn, each answer, in their order, without ids and times. Where codex itself is not the same every time, it is
//! run some more times either way, until a relayed stream is one that is also seen direct.

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
    let streams = streams_of(&raw, &root);
    let asked = model.requests().iter().map(|request| settled(&request["input"], &root)).collect();
    Run { streams, raw, status, asked, journal: relayed.then(|| home.journal()) }
}

/// Messages by what they belong to, without what differs from run to run; `root` is the lab's folder.
pub fn streams_of(raw: &[Value], root: &str) -> BTreeMap<String, Vec<Value>> {
    let mut streams: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for message in raw {
        let message = settled(message, root);
        streams.entry(stream_of(&message)).or_default().push(message);
    }
    streams
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
pub fn settled(value: &Value, root: &str) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| {
                let is_time = key.ends_with("At") || key.ends_with("Ms") || key == "processId";
                let value = if is_time && !value.is_null() { Value::from("TIME") } else { settled(value, root) };
                (settled_text(key), value)
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
        } else if rest.get(..24).is_some_and(|text| has_shape(text, "0000-00-00T00:00:00.000Z")) {
            ("TIME", 24)
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

/// Runs of either kind that are made, where a stream differs, to see whether it always does: codex itself is not the same
/// every time, and less so on a busy machine.
const RUNS_MAX: usize = 5;

/// Runs a conversation direct and relayed and compares. `streams_min` is how many streams all runs must agree in, so that
/// the comparison cannot pass for lack of anything to compare.
fn check(name: &str, conversation: Conversation, streams_min: usize) {
    let Some(codex) = installed_or_skip(name) else { return };
    let mut direct_runs = vec![run(conversation, &codex, false), run(conversation, &codex, false)];
    let mut relayed_runs = vec![run(conversation, &codex, true)];
    let of_all = |runs: &[Run]| runs.iter().flat_map(|run| run.streams.keys().cloned()).collect::<Vec<_>>();
    let streams: BTreeSet<String> = of_all(&direct_runs).into_iter().chain(of_all(&relayed_runs)).collect();
    let mut compared = 0;
    for stream in &streams {
        let seen = |run: &Run| run.streams.get(stream).cloned();
        let agree = |direct_runs: &[Run], relayed_runs: &[Run]| {
            relayed_runs.iter().any(|relayed| direct_runs.iter().any(|direct| seen(direct) == seen(relayed)))
        };
        while !agree(&direct_runs, &relayed_runs) {
            let difference = first_difference(seen(&relayed_runs[0]), seen(&direct_runs[0]));
            assert!(relayed_runs.len() < RUNS_MAX, "{name}: {stream}\n{difference}");
            direct_runs.push(run(conversation, &codex, false));
            relayed_runs.push(run(conversation, &codex, true));
        }
        let first = seen(&direct_runs[0]);
        compared += usize::from(direct_runs.iter().chain(&relayed_runs).all(|run| seen(run) == first));
    }
    assert!(compared >= streams_min, "{name}: only {compared} of {} streams are always the same", streams.len());
    assert!(
        relayed_runs.iter().any(|relayed| direct_runs.iter().any(|direct| direct.asked == relayed.asked)),
        "{name}: what the model was asked differs"
    );
    let relayed = relayed_runs.swap_remove(0);
    let direct = &direct_runs[0];
    assert_eq!(relayed.status, direct.status, "{name}");
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

pub fn first_difference(relayed: Option<Vec<Value>>, direct: Option<Vec<Value>>) -> String {
    let (relayed, direct) = (relayed.unwrap_or_default(), direct.unwrap_or_default());
    let at = relayed.iter().zip(&direct).take_while(|(relayed, direct)| relayed == direct).count();
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
