//! Runs of a conversation, compared stream by stream: the messages of each item, turn and answer in order, without ids
//! and times.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The messages of a run, by the item, turn or call that they belong to; order matters within a stream.
pub type Streams = BTreeMap<String, Vec<Value>>;

/// Runs of a conversation that should be alike.
pub struct Runs<R> {
    pub direct: Vec<R>,
    pub relayed: Vec<R>,
}

impl<R> Runs<R> {
    /// Checks that each stream of a relayed run is also seen directly, and returns how many are the same in all runs.
    /// If one is not, both kinds run again, up to `runs_max` times: codex itself varies between runs, and more so on a
    /// busy machine.
    pub fn compare(
        &mut self,
        name: &str,
        runs_max: usize,
        streams: fn(&R) -> &Streams,
        run: impl Fn(Way) -> R,
    ) -> (usize, usize) {
        let names = self.direct.iter().chain(&self.relayed).flat_map(|run| streams(run).keys().cloned());
        let names: BTreeSet<String> = names.collect();
        let mut the_same = 0;
        for stream in &names {
            let seen = |run: &R| streams(run).get(stream).cloned();
            let agree = |runs: &Runs<R>| {
                runs.relayed.iter().any(|relayed| runs.direct.iter().any(|direct| seen(direct) == seen(relayed)))
            };
            while !agree(self) {
                let difference = first_difference(seen(&self.relayed[0]), seen(&self.direct[0]));
                assert!(self.relayed.len() < runs_max, "{name}: {stream}\n{difference}");
                self.direct.push(run(Way::Direct));
                self.relayed.push(run(Way::Relayed));
            }
            let first = seen(&self.direct[0]);
            the_same += usize::from(self.direct.iter().chain(&self.relayed).all(|run| seen(run) == first));
        }
        (the_same, names.len())
    }
}

/// How a client is connected to codex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Direct,
    Relayed,
}

/// Messages by stream, without values that differ from run to run; `root` is the lab's folder.
pub fn streams_of(raw: &[Value], root: &str) -> Streams {
    let mut streams = Streams::new();
    for message in raw {
        let message = settled(message, root);
        let stream = streams.entry(stream_of(&message)).or_default();
        // codex sends it some time after it has loaded a thread: the number before the end depends on timing.
        if message["method"] == "thread/goal/cleared" && stream.last() == Some(&message) {
            continue;
        }
        stream.push(message);
    }
    streams
}

/// The item, turn or call that a message belongs to; order matters within it.
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

/// Suffixes of member names with a time, a duration or a process, in the spelling of codex and of its clients.
const OF_THE_RUN: [&str; 9] = ["At", "Ms", "_at", "_ms", "_time", "timestamp", "processId", "process_id", "duration"];

/// Removes values that differ from run to run: ids, times, and the lab's folder.
pub fn settled(value: &Value, root: &str) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| {
                let is_of_the_run = OF_THE_RUN.iter().any(|end| key.ends_with(end));
                let value = if is_of_the_run && !value.is_null() { Value::from("TIME") } else { settled(value, root) };
                (settled_text(&key.replace(root, "LAB")), value)
            })
            .collect(),
        Value::Array(values) => values.iter().map(|value| settled(value, root)).collect(),
        Value::String(text) => {
            let measured = |line: &&str| line.starts_with("Wall time: ") || line.starts_with("Chunk ID: ");
            // Some clients forward items as text.
            if let Ok(inner @ Value::Object(_)) = serde_json::from_str(text) {
                return Value::String(settled(&inner, root).to_string());
            }
            let text: Vec<&str> = text.split('\n').filter(|line| !measured(line)).collect();
            Value::String(settled_text(&text.join("\n").replace(root, "LAB")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Replaces every UUID, and the dates in the paths of rollouts.
fn settled_text(text: &str) -> String {
    // A counter of background work in servers of early 2026.
    if text.starts_with("auto-compact-") {
        return "auto-compact-N".to_owned();
    }
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

/// Whether a text has a digit for each `0` of `shape`, and otherwise equals `shape`.
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

/// Where and how a relayed stream first differs from a direct one.
fn first_difference(relayed: Option<Vec<Value>>, direct: Option<Vec<Value>>) -> String {
    let (relayed, direct) = (Value::from(relayed.unwrap_or_default()), Value::from(direct.unwrap_or_default()));
    let (mut at, mut pair) = (String::new(), (&relayed, &direct));
    loop {
        let next = match pair {
            (Value::Object(relayed), Value::Object(direct)) => {
                let names: BTreeSet<&String> = relayed.keys().chain(direct.keys()).collect();
                let name = names.into_iter().find(|name| relayed.get(*name) != direct.get(*name));
                name.map(|name| (name.clone(), (&pair.0[name], &pair.1[name])))
            }
            (Value::Array(relayed), Value::Array(direct)) => {
                let index = relayed.iter().zip(direct).position(|(relayed, direct)| relayed != direct);
                index.map(|index| (index.to_string(), (&pair.0[index], &pair.1[index])))
            }
            _ => None,
        };
        let Some((step, inner)) = next else { break };
        at = format!("{at}/{step}");
        pair = inner;
    }
    format!("at {at}\nrelayed: {}\ndirect:  {}", pair.0, pair.1)
}
