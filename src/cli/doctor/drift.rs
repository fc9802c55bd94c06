//! What we touch of codex's protocol, held against the schema that a codex writes of itself.

use std::cell::Cell;
use std::path::Path;

use serde_json::Value;

/// A message that we look into, change or make ourselves.
struct Touched {
    /// The file of the schema that has it, without `.json`.
    file: &'static str,
    /// Its method in the files that list kinds of messages; `None` in those of one answer.
    method: Option<&'static str>,
    /// Paths of the fields that we use, in `params` or in the answer. A list is passed through without a step of its own.
    fields: &'static [&'static str],
}

/// A message with a method.
const fn message(file: &'static str, method: &'static str, fields: &'static [&'static str]) -> Touched {
    Touched { file, method: Some(method), fields }
}

/// An answer.
const fn answer(file: &'static str, fields: &'static [&'static str]) -> Touched {
    Touched { file, method: None, fields }
}

const CALL: &str = "ClientRequest";
const ASK: &str = "ServerRequest";
const TELL: &str = "ServerNotification";

/// All that we touch and a schema can have; `rawResponseItem/completed` stands in that of no release.
const TOUCHED: [Touched; 47] = [
    message(CALL, "initialize", &["clientInfo.name", "capabilities.optOutNotificationMethods"]),
    message(CALL, "thread/start", &["developerInstructions", "dynamicTools.name"]),
    message(CALL, "thread/resume", &["threadId", "developerInstructions"]),
    message(CALL, "thread/fork", &["threadId"]),
    message(CALL, "thread/read", &["threadId", "includeTurns"]),
    message(CALL, "thread/list", &["cursor"]),
    message(CALL, "thread/inject_items", &["threadId", "items.type", "items.role", "items.content.text"]),
    message(CALL, "thread/compact/start", &["threadId"]),
    message(CALL, "turn/start", &["threadId", "input.type", "input.text", "input.text_elements"]),
    message(CALL, "turn/steer", &["threadId", "expectedTurnId", "input.type", "input.text", "input.text_elements"]),
    message(CALL, "turn/interrupt", &["threadId", "turnId"]),
    message(
        ASK,
        "item/commandExecution/requestApproval",
        &["threadId", "turnId", "itemId", "command", "reason", "availableDecisions", "networkApprovalContext.host"],
    ),
    message(ASK, "item/fileChange/requestApproval", &["threadId", "turnId", "itemId", "reason", "grantRoot"]),
    message(ASK, "item/permissions/requestApproval", &["threadId", "turnId", "itemId", "permissions", "reason"]),
    message(
        ASK,
        "item/tool/requestUserInput",
        &[
            "threadId",
            "turnId",
            "itemId",
            "questions.id",
            "questions.question",
            "questions.isSecret",
            "questions.options.label",
        ],
    ),
    message(ASK, "item/tool/call", &["threadId", "turnId", "callId", "tool", "arguments"]),
    message(
        ASK,
        "mcpServer/elicitation/request",
        &["threadId", "serverName", "mode", "message", "requestedSchema", "url"],
    ),
    message(ASK, "currentTime/read", &[]),
    message(TELL, "error", &["threadId", "turnId", "willRetry", "error.message", "error.codexErrorInfo"]),
    message(TELL, "thread/started", &["thread.id", "thread.preview"]),
    message(TELL, "thread/status/changed", &["threadId", "status.type", "status.activeFlags"]),
    message(TELL, "thread/compacted", &["threadId"]),
    message(
        TELL,
        "thread/tokenUsage/updated",
        &[
            "threadId",
            "turnId",
            "tokenUsage.total.totalTokens",
            "tokenUsage.total.inputTokens",
            "tokenUsage.total.cachedInputTokens",
            "tokenUsage.total.outputTokens",
            "tokenUsage.last.totalTokens",
            "tokenUsage.modelContextWindow",
        ],
    ),
    message(TELL, "turn/started", &["threadId", "turn.id", "turn.status"]),
    message(
        TELL,
        "turn/completed",
        &["threadId", "turn.id", "turn.status", "turn.error.message", "turn.error.codexErrorInfo"],
    ),
    message(TELL, "turn/plan/updated", &["threadId", "turnId", "explanation", "plan.step", "plan.status"]),
    message(TELL, "turn/diff/updated", &["threadId", "turnId", "diff"]),
    message(
        TELL,
        "item/started",
        &[
            "threadId",
            "turnId",
            "item.id",
            "item.type",
            "item.status",
            "item.command",
            "item.changes.path",
            "item.changes.kind",
            "item.tool",
            "item.server",
            "item.arguments",
            "item.content.text",
        ],
    ),
    message(
        TELL,
        "item/completed",
        &[
            "threadId",
            "turnId",
            "item.id",
            "item.type",
            "item.status",
            "item.text",
            "item.exitCode",
            "item.durationMs",
            "item.aggregatedOutput",
            "item.changes.diff",
            "item.error",
            "item.result",
        ],
    ),
    message(TELL, "item/agentMessage/delta", &["threadId", "turnId", "itemId", "delta"]),
    message(TELL, "item/plan/delta", &["itemId", "delta"]),
    message(TELL, "item/reasoning/textDelta", &["itemId", "delta", "contentIndex"]),
    message(TELL, "item/reasoning/summaryTextDelta", &["itemId", "delta", "summaryIndex"]),
    message(TELL, "item/commandExecution/outputDelta", &["itemId", "delta"]),
    message(TELL, "item/commandExecution/terminalInteraction", &["itemId", "stdin"]),
    message(TELL, "serverRequest/resolved", &["threadId", "requestId"]),
    answer("CommandExecutionRequestApprovalResponse", &["decision"]),
    answer("FileChangeRequestApprovalResponse", &["decision"]),
    answer("PermissionsRequestApprovalResponse", &["permissions", "scope"]),
    answer("ToolRequestUserInputResponse", &["answers"]),
    answer("McpServerElicitationRequestResponse", &["action", "content"]),
    answer("v2/ThreadStartResponse", &["thread.id"]),
    answer("v2/ThreadResumeResponse", &["thread.id", "thread.preview", "thread.turns.items.content.text"]),
    answer("v2/ThreadReadResponse", &["thread.preview", "thread.turns.items.content.text"]),
    answer("v2/ThreadListResponse", &["data.id", "data.preview"]),
    answer("v2/TurnStartResponse", &["turn.id", "turn.items"]),
    answer("v2/TurnSteerResponse", &["turnId"]),
];

/// How many schemas are looked at for one field, and how deep: in those of codex it takes a few hundred and less than twenty.
/// One may refer to itself.
const STEPS_MAX: usize = 10_000;
const DEPTH_MAX: usize = 40;

/// What we touch: (methods, fields).
pub(super) fn touched() -> (usize, usize) {
    let methods = TOUCHED.iter().filter(|touched| touched.method.is_some()).count();
    (methods, TOUCHED.iter().map(|touched| touched.fields.len()).sum())
}

/// What the schema in `folder` lacks, as methods and as `METHOD: FIELD`; `None` where there is no schema.
pub(super) fn missing(folder: &Path) -> Option<Vec<String>> {
    let mut missing = Vec::new();
    let mut last: Option<(&str, Value)> = None;
    for touched in &TOUCHED {
        if last.as_ref().is_none_or(|(file, _)| *file != touched.file) {
            last = read(folder, touched.file).map(|schema| (touched.file, schema));
        }
        match (&last, touched.method) {
            (Some((_, schema)), method) => lacks(schema, touched, method, &mut missing),
            // An answer that has no file is that of a call which is told already.
            (None, None) => {}
            (None, Some(_)) => return None,
        }
    }
    Some(missing)
}

fn read(folder: &Path, file: &str) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(folder.join(format!("{file}.json"))).ok()?).ok()
}

fn lacks(schema: &Value, touched: &Touched, method: Option<&str>, missing: &mut Vec<String>) {
    let within = match method {
        None => Some(schema),
        Some(method) => kind(schema, method).map(|kind| kind.get("params").unwrap_or(&Value::Bool(true))),
    };
    let name = method.unwrap_or_else(|| touched.file.trim_start_matches("v2/"));
    let Some(within) = within else {
        missing.push(name.to_owned());
        return;
    };
    for field in touched.fields {
        let path: Vec<&str> = field.split('.').collect();
        if !Search::of(schema).finds(within, &path, DEPTH_MAX) {
            missing.push(format!("{name}: {field}"));
        }
    }
}

/// The properties of the kind of message that has this method: `{"method": {"enum": [NAME]}, "params": …}`.
fn kind<'a>(schema: &'a Value, method: &str) -> Option<&'a Value> {
    let kinds = schema["oneOf"].as_array()?;
    kinds.iter().map(|kind| &kind["properties"]).find(|properties| {
        properties["method"]["enum"].as_array().is_some_and(|names| names.iter().any(|n| n == method))
    })
}

/// The look for one field.
struct Search<'a> {
    root: &'a Value,
    steps_left: Cell<usize>,
}

impl<'a> Search<'a> {
    fn of(root: &'a Value) -> Search<'a> {
        Search { root, steps_left: Cell::new(STEPS_MAX) }
    }

    /// Whether what `schema` describes may have a field at `path`.
    fn finds(&self, schema: &Value, path: &[&str], depth: usize) -> bool {
        let Some((first, rest)) = path.split_first() else { return true };
        let (Some(depth), Some(steps)) = (depth.checked_sub(1), self.steps_left.get().checked_sub(1)) else {
            return false;
        };
        self.steps_left.set(steps);
        // `true` is the schema of anything.
        let Some(object) = schema.as_object() else { return schema == &Value::Bool(true) };
        let says_nothing = !["$ref", "allOf", "anyOf", "oneOf", "items", "properties", "type", "enum"]
            .iter()
            .any(|keyword| object.contains_key(*keyword));
        let refers = object.get("$ref").and_then(Value::as_str);
        let referred = refers.and_then(|to| self.root.pointer(to.trim_start_matches('#')));
        let parts = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|of| object.get(of)?.as_array()).flatten();
        let within = object.get("properties").and_then(|fields| fields.get(first));
        says_nothing
            || within.is_some_and(|within| self.finds(within, rest, depth))
            || parts.chain(referred).chain(object.get("items")).any(|part| self.finds(part, path, depth))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A schema that has all that we touch, but for what `without` says.
    fn written(without: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("BUG: a temporary folder");
        std::fs::create_dir(folder.path().join("v2")).expect("create");
        for touched in &TOUCHED {
            let alike = TOUCHED.iter().filter(|other| other.file == touched.file);
            let kinds: Vec<Value> = alike
                .filter(|other| other.method.is_some_and(|method| method != without))
                .map(|other| json!({"properties": {"method": {"enum": [other.method]}, "params": object(other, without)}}))
                .collect();
            let schema = if touched.method.is_some() { json!({ "oneOf": kinds }) } else { object(touched, without) };
            std::fs::write(folder.path().join(format!("{}.json", touched.file)), schema.to_string()).expect("write");
        }
        folder
    }

    fn object(touched: &Touched, without: &str) -> Value {
        let mut schema = json!({"type": "object"});
        for field in touched.fields.iter().filter(|field| **field != without) {
            let mut at = &mut schema;
            for step in field.split('.') {
                at = &mut at["properties"][step];
            }
            at["type"] = json!("string");
        }
        schema
    }

    #[test]
    fn what_a_schema_lacks_is_named() {
        let none = tempfile::tempdir().expect("BUG: a temporary folder");
        assert_eq!(missing(none.path()), None);
        assert_eq!(missing(written("").path()), Some(Vec::new()));
        assert_eq!(missing(written("turn/steer").path()), Some(vec!["turn/steer".to_owned()]));
        assert_eq!(
            missing(written("questions.isSecret").path()),
            Some(vec!["item/tool/requestUserInput: questions.isSecret".to_owned()])
        );
        assert_eq!(missing(written("data.preview").path()), Some(vec!["ThreadListResponse: data.preview".to_owned()]));
    }

    #[test]
    fn a_field_is_found_behind_references_kinds_and_lists() {
        let root = json!({"definitions": {
            "Turn": {"type": "object", "properties": {"items": {"type": "array", "items": {"$ref": "#/definitions/Item"}}}},
            "Item": {"oneOf": [
                {"type": "object", "properties": {"command": {"type": "string"}}},
                {"anyOf": [{"type": "null"}, {"allOf": [{"type": "object", "properties": {"text": {}}}]}]},
            ]},
            "Round": {"oneOf": [{"$ref": "#/definitions/Round"}, {"$ref": "#/definitions/Round"}]},
        }});
        let turn = json!({"$ref": "#/definitions/Turn"});
        let found = |path: &str| Search::of(&root).finds(&turn, &path.split('.').collect::<Vec<_>>(), DEPTH_MAX);
        assert!(found("items.command"));
        assert!(found("items.text"));
        assert!(found("items.text.anything"), "a field of which the schema says nothing");
        assert!(!found("items.command.deeper"));
        assert!(!found("items.no"));
        assert!(!Search::of(&root).finds(&json!({"$ref": "#/definitions/Round"}), &["x"], DEPTH_MAX));
        assert!(!Search::of(&root).finds(&json!({"$ref": "#/definitions/None"}), &["x"], DEPTH_MAX));
    }
}
