//! The answers of the scripted model in a turn, and their event stream. Pure.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::plan::{ModelDoes, PlannedItem, PlannedTurn, TurnEnd};

/// One answer of the model.
#[derive(Debug, Clone, Default)]
pub(super) struct PlannedResponse {
    pub does: Vec<ModelDoes>,
    /// The model waits until the client has made so many steps.
    pub after_steps: usize,
    pub end: TurnEnd,
}

/// The answers of a turn: all but the last end with the call of a tool.
pub(super) fn responses(turn: &PlannedTurn) -> VecDeque<PlannedResponse> {
    let mut all = VecDeque::new();
    let mut next = PlannedResponse::default();
    for PlannedItem { does, after_steps, .. } in &turn.items {
        next.does.push(does.clone());
        next.after_steps = next.after_steps.max(*after_steps);
        let is_tool = !matches!(does, ModelDoes::Say(_) | ModelDoes::Think(_));
        if is_tool {
            all.push_back(std::mem::take(&mut next));
        }
    }
    next.end = turn.end;
    all.push_back(next);
    all
}

/// The answer to a request that no script has foreseen.
pub(super) fn unforeseen(wants_json: bool) -> PlannedResponse {
    let text = if wants_json { r#"{"title":"A conversation"}"# } else { "done" };
    PlannedResponse { does: vec![ModelDoes::Say(text.to_owned())], ..PlannedResponse::default() }
}

/// A model's tool calls of commands, by the names that releases of codex have had for them. Source: 0.77 to 0.171.
const COMMAND_TOOLS: [&str; 3] = ["exec_command", "shell_command", "shell"];

const PATCH_TOOL: &str = "apply_patch";
const QUESTION_TOOL: &str = "request_user_input";

/// A command without an effect, and one whose effect is a file in the working folder.
const NOTHING: &str = "true";
const SOMETHING: &str = "touch played && echo played";

/// The tools that codex offers in a request to the model.
struct Offered<'a>(&'a [Value]);

impl Offered<'_> {
    fn tool(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|tool| tool["name"] == name)
    }

    fn command(&self, command: &str, is_asked: bool) -> Option<Value> {
        let name = COMMAND_TOOLS.into_iter().find(|name| self.tool(name).is_some())?;
        let mut arguments = match name {
            "exec_command" => json!({"cmd": command}),
            "shell" => json!({"command": ["sh", "-c", command]}),
            _ => json!({"command": command}),
        };
        if is_asked {
            arguments["sandbox_permissions"] = "require_escalated".into();
            arguments["justification"] = "May it run?".into();
        }
        Some(call(name, None, &arguments))
    }

    /// A patch outside of the working folder needs an approval.
    fn patch(&self, is_asked: bool, number: u32) -> Option<Value> {
        let folder = if is_asked { "../" } else { "" };
        let patch = format!("*** Begin Patch\n*** Add File: {folder}played-{number}.txt\n+played\n*** End Patch\n");
        match self.tool(PATCH_TOOL) {
            Some(tool) if tool["type"] == "function" => Some(call(PATCH_TOOL, None, &json!({"input": patch}))),
            Some(_) => Some(json!({"type": "custom_tool_call", "name": PATCH_TOOL, "input": patch})),
            None => self.command(&format!("{PATCH_TOOL} <<'EOF'\n{patch}EOF"), is_asked),
        }
    }

    fn question(&self, questions: &Value) -> Option<Value> {
        self.tool(QUESTION_TOOL)?;
        let known = |question: &Value| {
            let members = ["id", "header", "question", "options"].into_iter();
            members
                .filter(|name| !question[*name].is_null())
                .map(|name| (name.to_owned(), question[name].clone()))
                .collect()
        };
        let questions: Vec<Value> = questions.as_array()?.iter().map(|it| Value::Object(known(it))).collect();
        Some(call(QUESTION_TOOL, None, &json!({ "questions": questions })))
    }
}

fn call(name: &str, namespace: Option<&Value>, arguments: &Value) -> Value {
    let mut call = json!({"type": "function_call", "name": name, "arguments": arguments.to_string()});
    if let Some(namespace) = namespace {
        call["namespace"] = namespace.clone();
    }
    call
}

fn text(words: &str) -> Value {
    let content = json!([{"type": "output_text", "text": words, "annotations": []}]);
    json!({"type": "message", "role": "assistant", "status": "completed", "content": content})
}

/// The item of an answer, and its delta; `None` if codex does not offer the tool.
fn item(does: &ModelDoes, offered: &Offered<'_>, number: u32, index: usize) -> Option<(Value, Option<Value>)> {
    Some(match does {
        ModelDoes::Say(words) => {
            let delta = json!({"type": "response.output_text.delta", "output_index": index, "content_index": 0, "delta": words});
            (text(words), Some(delta))
        }
        ModelDoes::Think(words) => {
            let summary = json!([{"type": "summary_text", "text": words}]);
            let thought = json!({"type": "reasoning", "summary": summary, "content": null, "encrypted_content": null});
            let delta = json!({"type": "response.reasoning_summary_text.delta", "output_index": index, "summary_index": 0, "delta": words});
            (thought, Some(delta))
        }
        ModelDoes::Run { is_asked } => {
            let command = if *is_asked { SOMETHING } else { NOTHING };
            (offered.command(command, *is_asked)?, None)
        }
        ModelDoes::Change { is_asked } => (offered.patch(*is_asked, number)?, None),
        ModelDoes::Call { tool, namespace } => {
            (call(tool, Some(namespace).filter(|it| it.is_string()), &json!({})), None)
        }
        ModelDoes::Ask { questions } => (offered.question(questions)?, None),
    })
}

/// The event stream of an answer.
#[derive(Debug)]
pub(super) struct Streamed {
    pub text: String,
    /// A call is missing in it, because codex does not offer the tool.
    pub lacks_tools: bool,
}

/// The stream of an answer, without an end if it never ends.
pub(super) fn stream(number: u32, response: &PlannedResponse, tools: &[Value]) -> Streamed {
    let response_id = format!("resp_{number}");
    let mut events = vec![json!({"type": "response.created", "response": {"id": response_id}})];
    let mut output = Vec::new();
    let mut lacks_tools = false;
    for (index, does) in response.does.iter().enumerate() {
        let Some((mut item, delta)) = item(does, &Offered(tools), number, index) else {
            lacks_tools = true;
            continue;
        };
        let id = format!("item_{number}_{index}");
        if item["type"] == "function_call" || item["type"] == "custom_tool_call" {
            item["call_id"] = format!("call_{number}_{index}").into();
        }
        item["id"] = id.clone().into();
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
        events.extend(delta.map(|mut delta| {
            delta["item_id"] = id.into();
            delta
        }));
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        output.push(item);
    }
    match response.end {
        TurnEnd::Completed => {
            let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15});
            let response = json!({"id": response_id, "status": "completed", "output": output, "usage": usage});
            events.push(json!({"type": "response.completed", "response": response}));
        }
        TurnEnd::Failed => {
            // An error that codex does not retry.
            let error = json!({"code": "invalid_prompt", "message": "no"});
            let response = json!({"id": response_id, "status": "failed", "error": error});
            events.push(json!({"type": "response.failed", "response": response}));
        }
        TurnEnd::Interrupted => {}
    }
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    Streamed { text: events.iter().map(event).collect(), lacks_tools }
}
