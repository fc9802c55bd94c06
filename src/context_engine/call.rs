//! What a context engine is sent, and how its answers are read.
//!
//! Pure. What an engine answers is a stranger's: anything that is not what it should be is a value that says so.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::lifecycle::{Abilities, Method, Step};
use crate::engine::{Assembled, QuotedMessage, project};

/// The version of the protocol.
const PROTOCOL: u32 = 1;

/// Longest text of an engine's that is told of, or logged, in characters.
const TOLD_CHARS_MAX: usize = 300;

/// What a turn begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Beginning {
    pub(super) prompt: String,
    pub(super) room_chars: usize,
    pub(super) model: Option<String>,
    pub(super) tools: Vec<String>,
}

/// Where a call belongs, and what every one of them carries.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) session_id: &'a str,
    pub(super) thread_id: &'a str,
    pub(super) token_budget: Option<u64>,
}

/// Who an engine says it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Introduced {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) version: Option<String>,
    pub(super) abilities: Abilities,
}

/// What a compaction has come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Compaction {
    pub(super) ok: bool,
    pub(super) compacted: bool,
    pub(super) reason: Option<String>,
}

/// The line of a call.
pub(super) fn line(id: u64, method: Method, params: &Value) -> Vec<u8> {
    let mut line = json!({ "id": id, "method": method.name(), "params": params }).to_string().into_bytes();
    line.push(b'\n');
    line
}

pub(super) fn initialize(session_id: &str) -> Value {
    json!({ "protocol": PROTOCOL, "session_id": session_id, "shim_version": env!("CARGO_PKG_VERSION") })
}

/// The parameters of a step. `beginning` is there where a turn begins, `turn_id` where one is over.
pub(super) fn params(
    step: Step,
    about: About<'_>,
    conversation: &Conversation,
    beginning: Option<&Beginning>,
    turn_id: &str,
) -> Value {
    let mut params = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            params.insert(name.to_owned(), value);
        }
    };
    put("sessionId", json!(about.session_id));
    put("sessionKey", json!(about.thread_id));
    let own_range = conversation.of_turn(turn_id);
    let own = conversation.messages.get(own_range.clone()).unwrap_or_default();
    match step {
        Step::Bootstrap => put("messages", json!(conversation.messages)),
        Step::MaintainAfterBootstrap => put("reason", json!("bootstrap")),
        Step::MaintainAfterTurn => put("reason", json!("turn")),
        Step::Assemble => {
            put("messages", json!(conversation.messages));
            put("tokenBudget", json!(about.token_budget));
            if let Some(Beginning { prompt, model, tools, room_chars: _ }) = beginning {
                put("availableTools", json!(tools));
                put("model", json!(model));
                put("prompt", json!(prompt));
            }
        }
        Step::AfterTurn => {
            put("messages", json!(conversation.messages.get(..own_range.end).unwrap_or_default()));
            put("prePromptMessageCount", json!(own_range.start));
            put("tokenBudget", json!(about.token_budget));
            put("runtimeContext", json!({ "usage": conversation.usage(turn_id) }));
        }
        Step::IngestBatch => put("messages", json!(own)),
        Step::Ingest(number) => put("message", own.get(number).cloned().unwrap_or_default()),
        Step::Compact => {
            put("messages", json!(conversation.messages));
            put("tokenBudget", json!(about.token_budget));
        }
    }
    Value::Object(params)
}

/// What an engine answers to `initialize`.
pub(super) fn introduced(result: &RawValue) -> Result<Introduced, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Info {
        id: String,
        name: Option<String>,
        version: Option<String>,
        #[serde(default)]
        owns_compaction: bool,
    }
    #[derive(Deserialize)]
    struct Answer {
        info: Info,
        methods: Vec<String>,
    }
    let Answer { info, methods } =
        serde_json::from_str(result.get()).map_err(|error| format!("its answer to initialize is none: {error}"))?;
    let listed = Method::ALL.into_iter().filter(|method| methods.iter().any(|name| name == method.name()));
    let abilities = Abilities { methods: listed.collect(), owns_compaction: info.owns_compaction };
    let name = info.name.unwrap_or_else(|| info.id.clone());
    Ok(Introduced { id: told(&info.id), name: told(&name), version: info.version.as_deref().map(told), abilities })
}

/// What an engine has assembled for a turn, with a projection of at most `chars_max` characters.
pub(super) fn assembled(result: &RawValue, beginning: &Beginning, chars_max: usize) -> Result<Assembled, String> {
    let result: Value = serde_json::from_str(result.get()).map_err(|error| error.to_string())?;
    let messages = QuotedMessage::read_all(&result["messages"])
        .ok_or_else(|| "its `messages` are no list of messages with a role and content".to_owned())?;
    let addition = match &result["systemPromptAddition"] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            return Err("its `systemPromptAddition` is no text".to_owned());
        }
    };
    let shown = &result["contextProjection"];
    let epoch = match shown["mode"].as_str() {
        None | Some("per_turn") => None,
        Some("thread_bootstrap") => Some(match &shown["epoch"] {
            Value::String(epoch) => told(epoch),
            Value::Null => String::new(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                told(&other.to_string())
            }
        }),
        Some(other) => {
            return Err(format!("`{}` is no mode of a projection: per_turn, thread_bootstrap", told(other)));
        }
    };
    let projection = project(&messages, &beginning.prompt, chars_max.min(beginning.room_chars));
    Ok(Assembled { projection, epoch, addition })
}

/// What an engine's compaction has come to.
pub(super) fn compaction(result: &RawValue) -> Result<Compaction, String> {
    #[derive(Deserialize)]
    struct Answer {
        ok: bool,
        #[serde(default)]
        compacted: bool,
        reason: Option<String>,
    }
    let Answer { ok, compacted, reason } =
        serde_json::from_str(result.get()).map_err(|error| format!("its answer to compact is none: {error}"))?;
    Ok(Compaction { ok, compacted, reason: reason.as_deref().map(told) })
}

/// An engine's text as it may be told of.
pub(super) fn told(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(TOLD_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &Value) -> Box<RawValue> {
        RawValue::from_string(json.to_string()).expect("BUG: it is JSON")
    }

    fn beginning() -> Beginning {
        let (prompt, tools) = ("go on".to_owned(), vec!["lookup".to_owned()]);
        Beginning { prompt, room_chars: 10_000, model: Some("m".to_owned()), tools }
    }

    #[test]
    fn parameters_have_the_names_of_the_ancestor() {
        let said = |turn: &str| json!({ "role": "user", "content": [], "turnId": turn });
        let conversation =
            Conversation { messages: ["t1", "t2", "t2", "t3"].map(said).to_vec(), ..Conversation::default() };
        let about = About { session_id: "s", thread_id: "t", token_budget: Some(9) };
        let check = |step: Step, more: Value| {
            let mut expect = json!({ "sessionId": "s", "sessionKey": "t" });
            expect.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            assert_eq!(params(step, about, &conversation, Some(&beginning()), "t2"), expect, "{step:?}");
        };
        let all = &conversation.messages;
        check(Step::Bootstrap, json!({ "messages": all }));
        check(Step::MaintainAfterBootstrap, json!({ "reason": "bootstrap" }));
        check(Step::MaintainAfterTurn, json!({ "reason": "turn" }));
        check(
            Step::Assemble,
            json!({ "messages": all, "tokenBudget": 9, "availableTools": ["lookup"], "model": "m", "prompt": "go on" }),
        );
        check(
            Step::AfterTurn,
            json!({ "messages": all[..3], "prePromptMessageCount": 1, "tokenBudget": 9, "runtimeContext": { "usage": null } }),
        );
        check(Step::IngestBatch, json!({ "messages": all[1..3] }));
        check(Step::Ingest(1), json!({ "message": all[2] }));
        check(Step::Compact, json!({ "messages": all, "tokenBudget": 9 }));
        assert_eq!(line(7, Method::Dispose, &json!({})), b"{\"id\":7,\"method\":\"dispose\",\"params\":{}}\n");
    }

    #[test]
    fn an_engine_says_who_it_is_or_what_is_wrong() {
        let answer =
            json!({ "info": { "id": "e", "version": "2", "ownsCompaction": true }, "methods": ["assemble", "x"] });
        let introduced_as = introduced(&raw(&answer)).expect("it is one");
        let abilities = Abilities { methods: vec![Method::Assemble], owns_compaction: true };
        assert_eq!(
            introduced_as,
            Introduced { id: "e".to_owned(), name: "e".to_owned(), version: Some("2".to_owned()), abilities }
        );
        for bad in [json!({}), json!({ "info": {}, "methods": [] }), json!({ "info": { "id": "e" } }), json!(7)] {
            assert!(introduced(&raw(&bad)).is_err_and(|why| why.starts_with("its answer to initialize")), "{bad}");
        }
    }

    #[test]
    fn what_is_assembled_is_checked() {
        let read = |answer: Value| assembled(&raw(&answer), &beginning(), 24_000);
        let messages = json!([{ "role": "user", "content": "a" }]);
        let plain = read(json!({ "messages": messages, "estimatedTokens": 1 })).expect("it is one");
        assert!(plain.projection.is_some_and(|text| text.contains("[user]\na\n")));
        assert_eq!((plain.epoch, plain.addition), (None, None));
        let once = json!({ "mode": "thread_bootstrap", "epoch": 3 });
        let whole = json!({ "messages": [], "systemPromptAddition": "be brief", "contextProjection": once });
        let expect = Assembled { projection: None, epoch: Some("3".to_owned()), addition: Some("be brief".to_owned()) };
        assert_eq!(read(whole), Ok(expect));
        for bad in [
            json!({}),
            json!({ "messages": [1] }),
            json!({ "messages": [], "systemPromptAddition": 1 }),
            json!({ "messages": [], "contextProjection": { "mode": "never" } }),
            json!("x"),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_compaction_has_come_to() {
        let read = |answer: Value| compaction(&raw(&answer));
        let done = Compaction { ok: true, compacted: true, reason: None };
        assert_eq!(read(json!({ "ok": true, "compacted": true, "result": { "tokensBefore": 1 } })), Ok(done));
        let not = Compaction { ok: false, compacted: false, reason: Some("no".to_owned()) };
        assert_eq!(read(json!({ "ok": false, "reason": "n\no" })), Ok(not));
        assert!(read(json!({ "compacted": true })).is_err());
    }
}
