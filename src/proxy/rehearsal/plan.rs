//! The plan for a playback: the client's lines, the messages that each waits for, and the model's part. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::heard::Heard;
use crate::protocol::{Method, PlayedItem, declared_tools, leave_harmless, may_be_played};
use crate::replay::{EntryKind, TapeEntry};
use crate::wire::{RpcId, Side};

/// A conversation to be played.
#[derive(Debug, Default)]
pub struct Plan {
    /// The client's lines, in order.
    pub(super) steps: Vec<PlanStep>,
    /// The turns that steps begin.
    pub(super) turns: Vec<PlannedTurn>,
    /// The client's answers to requests of the server, by method, in order.
    pub(super) answers: BTreeMap<String, VecDeque<Value>>,
    /// The messages that the client received in the recording.
    pub heard: Heard,
    /// The threads of its calls.
    pub(super) threads: BTreeSet<String>,
    /// Numbers of turns that have ended and of items that have begun, as for the steps.
    pub(super) done: usize,
    pub(super) items: usize,
}

/// A line of the client.
#[derive(Debug)]
pub(super) struct PlanStep {
    pub message: Value,
    pub id: Option<RpcId>,
    /// Number of steps before which its response came; `None` if it has no response.
    pub answered_before: Option<usize>,
    /// The thread in its response, and the file of that.
    pub opens: Option<String>,
    pub file: Option<String>,
    /// The turn that it begins, by its response.
    pub turn: Option<TurnKey>,
    /// Numbers of turns of the client's threads that had begun and ended before it.
    pub after_begun: usize,
    pub after_done: usize,
    /// Number of items of the model that had begun before it.
    pub after_items: usize,
}

impl PlanStep {
    pub(super) fn method(&self) -> Option<&str> {
        self.message["method"].as_str()
    }
}

/// A turn by its thread and its id: some releases number the turns of each thread from 0. Source: 0.77, 0.98.
pub(super) type TurnKey = (String, String);

/// A turn that a step begins.
#[derive(Debug, Default)]
pub(super) struct PlannedTurn {
    /// Its names in the recording.
    pub key: TurnKey,
    pub items: Vec<PlannedItem>,
    pub end: TurnEnd,
}

/// Something that the model does.
#[derive(Debug, Clone)]
pub(super) struct PlannedItem {
    pub id: String,
    pub does: ModelDoes,
    /// The model waits until so many steps were made.
    pub after_steps: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ModelDoes {
    Say(String),
    Think(String),
    /// A command, which needs an approval or not.
    Run {
        is_asked: bool,
    },
    /// A patch, which needs an approval or not.
    Change {
        is_asked: bool,
    },
    /// A tool that the client has declared. Its arguments are left out, because they could be a command.
    Call {
        tool: String,
        namespace: Value,
    },
    /// A question to the user.
    Ask {
        questions: Value,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TurnEnd {
    #[default]
    Completed,
    /// The model never comes to its end.
    Interrupted,
    Failed,
}

impl Plan {
    /// Reads the lines of one client, and of the server to it.
    #[must_use]
    pub fn of(entries: &[TapeEntry]) -> Plan {
        let mut reading = PlanReading::default();
        entries.iter().for_each(|entry| reading.add(entry));
        let PlanReading { mut plan, mut turns, begun, done, begun_items, tools, .. } = reading;
        let ours: BTreeSet<TurnKey> = plan.steps.iter().filter_map(|step| step.turn.clone()).collect();
        turns.retain(|turn| ours.contains(&turn.key));
        let interrupts = |step: &PlanStep| step.method() == Some(Method::TurnInterrupt.name());
        let has_interrupts = plan.steps.iter().any(interrupts);
        for turn in &mut turns {
            let is_known = |does: &ModelDoes| !matches!(does, ModelDoes::Call { tool, .. } if !tools.contains(tool));
            turn.items.retain(|item| is_known(&item.does));
            // A turn that somebody else has interrupted ends all the same.
            if !has_interrupts && turn.end == TurnEnd::Interrupted {
                turn.end = TurnEnd::Completed;
            }
        }
        // Others, such as those of sub-agents, are not awaited.
        let count = |keys: &[TurnKey]| keys.iter().filter(|(thread, _)| plan.threads.contains(thread)).count();
        let caused: BTreeSet<&str> = turns.iter().flat_map(|turn| &turn.items).map(|item| &*item.id).collect();
        let items = |ids: &[String]| ids.iter().filter(|id| caused.contains(&***id)).count();
        for step in &mut plan.steps {
            step.after_begun = count(&begun[..step.after_begun]);
            step.after_done = count(&done[..step.after_done]);
            step.after_items = items(&begun_items[..step.after_items]);
        }
        (plan.done, plan.items) = (count(&done), items(&begun_items));
        plan.turns = turns;
        plan
    }

    /// Whether the client has talked to a model.
    #[must_use]
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }
}

#[derive(Default)]
struct PlanReading {
    plan: Plan,
    turns: Vec<PlannedTurn>,
    /// The steps of calls without a response.
    calls: BTreeMap<RpcId, usize>,
    /// Open requests of the server, with their methods.
    asked: BTreeMap<RpcId, String>,
    /// The turns that have begun and ended, of any client.
    begun: Vec<TurnKey>,
    done: Vec<TurnKey>,
    /// The items that have begun.
    begun_items: Vec<String>,
    /// The tools that the client has declared.
    tools: BTreeSet<String>,
}

impl PlanReading {
    fn add(&mut self, entry: &TapeEntry) {
        let message = || -> Option<Value> { serde_json::from_slice(entry.bytes.as_deref()?).ok() };
        match (entry.from, &entry.kind) {
            (Side::Client, EntryKind::Request { method, id }) => match message() {
                Some(message) if may_be_played(method) && !entry.masked => self.step(Some(id), message),
                // The next response with this id is not that to an earlier call.
                Some(_) | None => drop(self.calls.remove(id)),
            },
            (Side::Client, EntryKind::Notification { method }) => match message() {
                Some(message) if may_be_played(method) && !entry.masked => self.step(None, message),
                Some(_) | None => {}
            },
            (Side::Client, EntryKind::Response { id }) => {
                if let (Some(method), Some(answer), false) = (self.asked.remove(id), message(), entry.masked) {
                    self.plan.answers.entry(method).or_default().push_back(answer);
                }
            }
            (Side::Server, EntryKind::Response { id }) => {
                if let Some(step) = self.calls.remove(id) {
                    self.answered(step, message().unwrap_or_default());
                }
            }
            (Side::Server, EntryKind::Request { method, id }) => {
                self.asks(method, message().unwrap_or_default());
                self.asked.insert(id.clone(), method.clone());
                if let Some(answer) = entry.shim_answer.as_ref().and_then(|answer| answer.bytes.as_deref()) {
                    let answer = serde_json::from_slice(answer).unwrap_or_default();
                    self.plan.answers.entry(method.clone()).or_default().push_back(answer);
                    self.asked.remove(id);
                }
            }
            (Side::Server, EntryKind::Notification { method }) => {
                let message = message().unwrap_or_default();
                self.plan.heard.notification(method, &message);
                self.told(Method::of(method), &message["params"]);
            }
            (Side::Client | Side::Server, EntryKind::Other) => {}
        }
    }

    fn step(&mut self, id: Option<&RpcId>, mut message: Value) {
        if let Some(params) = message.get_mut("params") {
            self.tools.extend(declared_tools(params).map(str::to_owned));
            self.plan.threads.extend(params["threadId"].as_str().map(str::to_owned));
            leave_harmless(params);
        }
        if let Some(id) = id {
            self.calls.insert(id.clone(), self.plan.steps.len());
        }
        self.plan.steps.push(PlanStep {
            message,
            id: id.cloned(),
            answered_before: None,
            opens: None,
            file: None,
            turn: None,
            after_begun: self.begun.len(),
            after_done: self.done.len(),
            after_items: self.begun_items.len(),
        });
    }

    fn answered(&mut self, step: usize, response: Value) {
        let steps = self.plan.steps.len();
        let step = &mut self.plan.steps[step];
        let method = step.method().unwrap_or_default().to_owned();
        step.answered_before = Some(steps);
        let text = |at: &str| response.pointer(at).and_then(Value::as_str).map(str::to_owned);
        step.opens = text("/result/thread/id");
        step.file = text("/result/thread/path");
        self.plan.threads.extend(step.opens.clone());
        let thread = text("/result/reviewThreadId");
        let thread = thread.or_else(|| step.message.pointer("/params/threadId")?.as_str().map(str::to_owned));
        let turn = text("/result/turn/id").filter(|_| method != Method::TurnSteer.name());
        step.turn = thread.zip(turn);
        if let Some(turn) = step.turn.clone() {
            self.turn(&turn);
        }
        self.plan.heard.response(&method, &response);
    }

    /// A turn. Its first message may come before the response to the call that begins it.
    fn turn(&mut self, key: &TurnKey) -> &mut PlannedTurn {
        let at = self.turns.iter().rposition(|turn| turn.key == *key).unwrap_or_else(|| {
            self.turns.push(PlannedTurn { key: key.clone(), ..PlannedTurn::default() });
            self.turns.len() - 1
        });
        &mut self.turns[at]
    }

    fn asks(&mut self, method: &str, message: Value) {
        self.plan.heard.request(method);
        let (params, steps) = (&message["params"], self.plan.steps.len());
        let (Some(turn), Some(item)) = (turn_of_item(params), params["itemId"].as_str()) else { return };
        let is_of_item = |planned: &&mut PlannedItem| planned.id == item;
        let turn = self.turn(&turn);
        match Method::of(method) {
            Some(Method::UserInput) => {
                let does = ModelDoes::Ask { questions: params["questions"].clone() };
                turn.items.push(PlannedItem { id: item.to_owned(), does, after_steps: steps });
            }
            Some(Method::CommandApproval | Method::FileChangeApproval) => {
                if let Some(planned) = turn.items.iter_mut().find(is_of_item) {
                    match &mut planned.does {
                        ModelDoes::Run { is_asked } | ModelDoes::Change { is_asked } => *is_asked = true,
                        ModelDoes::Say(_) | ModelDoes::Think(_) | ModelDoes::Call { .. } | ModelDoes::Ask { .. } => {}
                    }
                }
            }
            Some(_) | None => {}
        }
    }

    fn told(&mut self, method: Option<Method>, params: &Value) {
        match method {
            Some(Method::TurnStarted) => self.begun.extend(turn_of(params)),
            Some(Method::TurnCompleted) => {
                let Some(key) = turn_of(params) else { return };
                self.done.push(key.clone());
                let status = params.pointer("/turn/status").and_then(Value::as_str);
                self.turn(&key).end = match status {
                    Some("interrupted") => TurnEnd::Interrupted,
                    Some("failed") => TurnEnd::Failed,
                    Some(_) | None => TurnEnd::Completed,
                };
            }
            Some(Method::ItemStarted | Method::ItemCompleted) => self.item(params),
            Some(_) | None => {}
        }
    }

    fn item(&mut self, params: &Value) {
        let steps = self.plan.steps.len();
        let Some(key) = turn_of_item(params) else { return };
        let item = &params["item"];
        let Some(id) = item["id"].as_str() else { return };
        let Some(does) = does(item) else { return };
        let turn = self.turn(&key);
        match turn.items.iter_mut().find(|planned| planned.id == id) {
            // The whole text comes with the end.
            Some(planned) => {
                if let (
                    ModelDoes::Say(said) | ModelDoes::Think(said),
                    ModelDoes::Say(whole) | ModelDoes::Think(whole),
                ) = (&mut planned.does, does)
                {
                    *said = whole;
                    planned.after_steps = steps;
                }
            }
            None => {
                turn.items.push(PlannedItem { id: id.to_owned(), does, after_steps: steps });
                self.begun_items.push(id.to_owned());
            }
        }
    }
}

/// The turn that a notification of its begin or end names.
pub(super) fn turn_of(params: &Value) -> Option<TurnKey> {
    Some((params["threadId"].as_str()?.to_owned(), params.pointer("/turn/id")?.as_str()?.to_owned()))
}

/// The turn of an item.
pub(super) fn turn_of_item(params: &Value) -> Option<TurnKey> {
    let turn = params["turnId"].as_str().filter(|turn| !turn.is_empty())?;
    Some((params["threadId"].as_str()?.to_owned(), turn.to_owned()))
}

/// Whether an item is one that the model causes.
pub(super) fn is_caused(item: &Value) -> bool {
    does(item).is_some()
}

/// The action of a model that causes an item; `None` for items that are not played.
fn does(item: &Value) -> Option<ModelDoes> {
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    match PlayedItem::of(item["type"].as_str()?)? {
        PlayedItem::Message => Some(ModelDoes::Say(text("text"))),
        PlayedItem::Reasoning => {
            let parts = item["summary"].as_array().map(Vec::as_slice).unwrap_or_default();
            Some(ModelDoes::Think(parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")))
        }
        PlayedItem::Command => Some(ModelDoes::Run { is_asked: false }),
        PlayedItem::Change => Some(ModelDoes::Change { is_asked: false }),
        PlayedItem::ClientTool => Some(ModelDoes::Call { tool: text("tool"), namespace: item["namespace"].clone() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::{Conn, LineEnd};

    fn line(from: Side, message: &Value) -> TapeEntry {
        let bytes = message.to_string().into_bytes();
        let kind = EntryKind::of(&bytes);
        TapeEntry {
            at_us: 0,
            conn: Conn::OWN,
            from,
            bytes: Some(bytes),
            masked: false,
            end: LineEnd::Newline,
            kind,
            thread: None,
            shim_answer: None,
        }
    }

    fn client(message: Value) -> TapeEntry {
        line(Side::Client, &message)
    }

    fn server(message: Value) -> TapeEntry {
        line(Side::Server, &message)
    }

    fn item(event: &str, item: Value) -> TapeEntry {
        server(json!({"method": format!("item/{event}"), "params": {"threadId": "T", "turnId": "0", "item": item}}))
    }

    /// A turn with a command that is approved, a message that joins it, a tool of the client, and an answer.
    fn conversation() -> Vec<TapeEntry> {
        let tools = json!([{"name": "look_up"}]);
        let tool = |tool: &str, id: &str| json!({"id": id, "type": "dynamicToolCall", "tool": tool, "arguments": {"cmd": "rm -rf /"}});
        vec![
            client(json!({"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "c"}}})),
            server(json!({"id": 1, "result": {}})),
            client(json!({"method": "initialized"})),
            client(json!({"id": 2, "method": "fs/remove", "params": {"path": "/x"}})),
            server(json!({"id": 2, "result": {}})),
            client(json!({"id": 3, "method": "thread/start",
                "params": {"cwd": "/w", "config": {"notify": ["evil"]}, "sandbox": "danger-full-access", "dynamicTools": tools}})),
            server(json!({"id": 3, "result": {"thread": {"id": "T", "path": "/r/T.jsonl"}}})),
            client(json!({"id": 4, "method": "turn/start", "params": {"threadId": "T", "input": []}})),
            // The server may tell of the turn before it answers.
            server(json!({"method": "turn/started", "params": {"threadId": "T", "turn": {"id": "0"}}})),
            server(json!({"id": 4, "result": {"turn": {"id": "0"}}})),
            // A turn of a sub-agent, with the same number.
            server(json!({"method": "turn/started", "params": {"threadId": "S", "turn": {"id": "0"}}})),
            server(
                json!({"method": "turn/completed", "params": {"threadId": "S", "turn": {"id": "0", "status": "failed"}}}),
            ),
            item("started", json!({"id": "i1", "type": "commandExecution", "command": "rm -rf /"})),
            server(json!({"id": 0, "method": "item/commandExecution/requestApproval",
                "params": {"threadId": "T", "turnId": "0", "itemId": "i1"}})),
            client(json!({"id": 0, "result": {"decision": "accept"}})),
            item("completed", json!({"id": "i1", "type": "commandExecution"})),
            item("completed", tool("look_up", "i2")),
            item("completed", tool("exec_command", "i3")),
            client(json!({"id": 5, "method": "turn/steer", "params": {"threadId": "T", "expectedTurnId": "0"}})),
            server(json!({"id": 5, "result": {"turnId": "0"}})),
            item("started", json!({"id": "i4", "type": "agentMessage", "text": ""})),
            item("completed", json!({"id": "i4", "type": "agentMessage", "text": "Done."})),
            server(
                json!({"method": "turn/completed", "params": {"threadId": "T", "turn": {"id": "0", "status": "interrupted"}}}),
            ),
            client(json!({"id": 6, "method": "thread/read", "params": {"threadId": "T"}})),
        ]
    }

    #[test]
    fn the_plan_has_the_steps_and_the_part_of_the_model() {
        let plan = Plan::of(&conversation());
        let methods: Vec<&str> = plan.steps.iter().filter_map(PlanStep::method).collect();
        assert_eq!(methods, ["initialize", "initialized", "thread/start", "turn/start", "turn/steer", "thread/read"]);
        assert_eq!(plan.steps[2].message["params"], json!({"cwd": "/w", "dynamicTools": [{"name": "look_up"}]}));
        let waits: Vec<_> = plan
            .steps
            .iter()
            .map(|step| (step.answered_before, step.after_begun, step.after_done, step.after_items))
            .collect();
        let none = (None, 0, 0, 0);
        assert_eq!(
            waits,
            [(Some(1), 0, 0, 0), none, (Some(3), 0, 0, 0), (Some(4), 0, 0, 0), (Some(5), 1, 0, 2), (None, 1, 1, 3)]
        );
        assert_eq!((plan.turns.len(), plan.done, plan.items), (1, 1, 3));
        let does: Vec<_> = plan.turns[0].items.iter().map(|item| (item.does.clone(), item.after_steps)).collect();
        let tool = ModelDoes::Call { tool: "look_up".to_owned(), namespace: Value::Null };
        assert_eq!(does, [(ModelDoes::Run { is_asked: true }, 4), (tool, 4), (ModelDoes::Say("Done.".to_owned()), 5)]);
        // No step interrupts it.
        assert_eq!(plan.turns[0].end, TurnEnd::Completed);
        assert_eq!(plan.answers["item/commandExecution/requestApproval"][0]["result"]["decision"], "accept");
    }

    #[test]
    fn answers_of_a_turn_end_with_tools() {
        let plan = Plan::of(&conversation());
        let answers = super::super::responses::responses(&plan.turns[0]);
        let waits: Vec<_> = answers.iter().map(|answer| (answer.does.len(), answer.after_steps)).collect();
        assert_eq!(waits, [(1, 4), (1, 4), (1, 5)]);
    }

    /// Neither as a command nor as the arguments of any tool.
    #[test]
    fn no_command_of_the_recording_is_given_to_the_model() {
        let plan = Plan::of(&conversation());
        let tools = ["exec_command", "apply_patch", "look_up"].map(|name| json!({"type": "function", "name": name}));
        let mut texts = super::super::responses::responses(&plan.turns[0]);
        let text: String =
            texts.drain(..).map(|answer| super::super::responses::stream(1, &answer, &tools).text).collect();
        assert!(text.contains("exec_command") && text.contains("look_up") && !text.contains("rm -rf"), "{text}");
        let steps: String = plan.steps.iter().map(|step| step.message.to_string()).collect();
        assert!(!steps.contains("evil") && !steps.contains("danger"), "{steps}");
    }
}
