//! The protocol of a context engine: its methods, the order of the calls for a thread, the calls and the reading of their answers.
//!
//! Pure. Source: docs/context-engines.md and the ancestor's lifecycle. An engine's answers are untrusted: anything unexpected in
//! them becomes an error value.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use crate::engine::{Assembled, QuotedMessage, project};

/// A method of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Initialize,
    Bootstrap,
    Maintain,
    Assemble,
    AfterTurn,
    IngestBatch,
    Ingest,
    Compact,
    Dispose,
}

impl Method {
    pub(super) const ALL: [Method; 9] = [
        Method::Initialize,
        Method::Bootstrap,
        Method::Maintain,
        Method::Assemble,
        Method::AfterTurn,
        Method::IngestBatch,
        Method::Ingest,
        Method::Compact,
        Method::Dispose,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Initialize => "initialize",
            Method::Bootstrap => "bootstrap",
            Method::Maintain => "maintain",
            Method::Assemble => "assemble",
            Method::AfterTurn => "afterTurn",
            Method::IngestBatch => "ingestBatch",
            Method::Ingest => "ingest",
            Method::Compact => "compact",
            Method::Dispose => "dispose",
        }
    }
}

/// The methods that an engine supports, and whether it owns compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    pub(super) methods: Vec<Method>,
    pub(super) owns_compaction: bool,
}

impl Abilities {
    pub(super) fn has(&self, method: Method) -> bool {
        self.methods.contains(&method)
    }

    fn then(&self, method: Method, step: OccasionStep) -> Option<OccasionStep> {
        self.has(method).then_some(step)
    }
}

/// An event of a thread that leads to calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The thread is new to this engine process, and it has older messages.
    NewThread,
    TurnBegins,
    /// A turn is over; `messages` is the number of its messages.
    TurnCompleted {
        messages: usize,
    },
    /// The client compacts the thread.
    Compaction,
}

/// A call in the sequence of an occasion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OccasionStep {
    Bootstrap,
    MaintainAfterBootstrap,
    Assemble,
    AfterTurn,
    IngestBatch,
    /// With the turn's message of this number.
    Ingest(usize),
    MaintainAfterTurn,
    Compact,
}

impl OccasionStep {
    pub(super) fn method(self) -> Method {
        match self {
            OccasionStep::Bootstrap => Method::Bootstrap,
            OccasionStep::MaintainAfterBootstrap | OccasionStep::MaintainAfterTurn => Method::Maintain,
            OccasionStep::Assemble => Method::Assemble,
            OccasionStep::AfterTurn => Method::AfterTurn,
            OccasionStep::IngestBatch => Method::IngestBatch,
            OccasionStep::Ingest(_) => Method::Ingest,
            OccasionStep::Compact => Method::Compact,
        }
    }
}

/// The first call of an occasion.
pub(super) fn first(occasion: Occasion, can: &Abilities) -> Option<OccasionStep> {
    match occasion {
        Occasion::NewThread => can.then(Method::Bootstrap, OccasionStep::Bootstrap),
        Occasion::TurnBegins => can.then(Method::Assemble, OccasionStep::Assemble),
        // The turn has no messages, for example because codex compacted the thread.
        Occasion::TurnCompleted { messages: 0 } => None,
        Occasion::TurnCompleted { .. } => can
            .then(Method::AfterTurn, OccasionStep::AfterTurn)
            .or_else(|| can.then(Method::IngestBatch, OccasionStep::IngestBatch))
            .or_else(|| can.then(Method::Ingest, OccasionStep::Ingest(0)))
            .or_else(|| can.then(Method::Maintain, OccasionStep::MaintainAfterTurn)),
        Occasion::Compaction if can.owns_compaction => can.then(Method::Compact, OccasionStep::Compact),
        Occasion::Compaction => None,
    }
}

/// The call after `worked` has succeeded. Nothing follows a call that failed.
pub(super) fn next(occasion: Occasion, worked: OccasionStep, can: &Abilities) -> Option<OccasionStep> {
    let after_turn = || can.then(Method::Maintain, OccasionStep::MaintainAfterTurn);
    match (occasion, worked) {
        (Occasion::NewThread, OccasionStep::Bootstrap) => {
            can.then(Method::Maintain, OccasionStep::MaintainAfterBootstrap)
        }
        (Occasion::TurnCompleted { messages }, OccasionStep::Ingest(number)) if number + 1 < messages => {
            Some(OccasionStep::Ingest(number + 1))
        }
        (
            Occasion::TurnCompleted { .. },
            OccasionStep::AfterTurn | OccasionStep::IngestBatch | OccasionStep::Ingest(_),
        ) => after_turn(),
        (Occasion::NewThread | Occasion::TurnBegins | Occasion::TurnCompleted { .. } | Occasion::Compaction, _) => None,
    }
}

// The calls, and the reading of their answers.

/// The version of the protocol.
const PROTOCOL: u32 = 1;

/// Limit of an engine's text in an event or the log, in characters.
const TEXT_CHARS_MAX: usize = 300;

/// The details of a turn that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnStart {
    pub(super) prompt: String,
    pub(super) room_chars: usize,
    pub(super) model: Option<String>,
    pub(super) tools: Vec<String>,
}

/// The parameters that all calls have.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallContext<'a> {
    pub(super) session_id: &'a str,
    pub(super) thread_id: &'a str,
    pub(super) token_budget: Option<u64>,
}

/// An engine's answer to `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EngineInfo {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) version: Option<String>,
    pub(super) abilities: Abilities,
}

/// An engine's answer to `compact`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Compaction {
    pub(super) ok: bool,
    pub(super) compacted: bool,
    pub(super) reason: Option<String>,
}

/// The JSON line of a call.
pub(super) fn line(id: u64, method: Method, params: &Value) -> Vec<u8> {
    let mut line = json!({ "id": id, "method": method.name(), "params": params }).to_string().into_bytes();
    line.push(b'\n');
    line
}

pub(super) fn initialize(session_id: &str) -> Value {
    json!({ "protocol": PROTOCOL, "session_id": session_id, "shim_version": env!("CARGO_PKG_VERSION") })
}

/// The parameters of a step. `turn_start` is set for a turn that begins, `turn_id` for one that is over.
pub(super) fn params(
    step: OccasionStep,
    context: CallContext<'_>,
    conversation: &Conversation,
    turn_start: Option<&TurnStart>,
    turn_id: &str,
) -> Value {
    let mut params = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            params.insert(name.to_owned(), value);
        }
    };
    put("sessionId", json!(context.session_id));
    put("sessionKey", json!(context.thread_id));
    let own_range = conversation.of_turn(turn_id);
    let own = conversation.messages.get(own_range.clone()).unwrap_or_default();
    match step {
        OccasionStep::Bootstrap => put("messages", json!(conversation.messages)),
        OccasionStep::MaintainAfterBootstrap => put("reason", json!("bootstrap")),
        OccasionStep::MaintainAfterTurn => put("reason", json!("turn")),
        OccasionStep::Assemble => {
            put("messages", json!(conversation.messages));
            put("tokenBudget", json!(context.token_budget));
            if let Some(TurnStart { prompt, model, tools, room_chars: _ }) = turn_start {
                put("availableTools", json!(tools));
                put("model", json!(model));
                put("prompt", json!(prompt));
            }
        }
        OccasionStep::AfterTurn => {
            put("messages", json!(conversation.messages.get(..own_range.end).unwrap_or_default()));
            put("prePromptMessageCount", json!(own_range.start));
            put("tokenBudget", json!(context.token_budget));
            put("runtimeContext", json!({ "usage": conversation.usage(turn_id) }));
        }
        OccasionStep::IngestBatch => put("messages", json!(own)),
        OccasionStep::Ingest(number) => put("message", own.get(number).cloned().unwrap_or_default()),
        OccasionStep::Compact => {
            put("messages", json!(conversation.messages));
            put("tokenBudget", json!(context.token_budget));
        }
    }
    Value::Object(params)
}

/// Reads the answer to `initialize`.
pub(super) fn read_info(result: &RawValue) -> Result<EngineInfo, String> {
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
    let Answer { info, methods } = serde_json::from_str(result.get())
        .map_err(|error| format!("its answer to initialize is not valid: {error}"))?;
    let listed = Method::ALL.into_iter().filter(|method| methods.iter().any(|name| name == method.name()));
    let abilities = Abilities { methods: listed.collect(), owns_compaction: info.owns_compaction };
    let name = info.name.unwrap_or_else(|| info.id.clone());
    Ok(EngineInfo {
        id: printable(&info.id),
        name: printable(&name),
        version: info.version.as_deref().map(printable),
        abilities,
    })
}

/// Reads the answer to `assemble`, with a projection of at most `chars_max` characters.
pub(super) fn read_assembled(result: &RawValue, turn_start: &TurnStart, chars_max: usize) -> Result<Assembled, String> {
    let result: Value = serde_json::from_str(result.get()).map_err(|error| error.to_string())?;
    let messages = QuotedMessage::read_all(&result["messages"])
        .ok_or_else(|| "its `messages` is not a list of messages with a role and content".to_owned())?;
    let addition = match &result["systemPromptAddition"] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            return Err("its `systemPromptAddition` is not a string".to_owned());
        }
    };
    let shown = &result["contextProjection"];
    let epoch = match shown["mode"].as_str() {
        None | Some("per_turn") => None,
        Some("thread_bootstrap") => Some(match &shown["epoch"] {
            Value::String(epoch) => printable(epoch),
            Value::Null => String::new(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                printable(&other.to_string())
            }
        }),
        Some(other) => {
            return Err(format!(
                "`{}` is not a valid projection mode; use per_turn or thread_bootstrap",
                printable(other)
            ));
        }
    };
    let projection = project(&messages, &turn_start.prompt, chars_max.min(turn_start.room_chars));
    Ok(Assembled { projection, epoch, addition })
}

/// Reads the answer to `compact`.
pub(super) fn read_compaction(result: &RawValue) -> Result<Compaction, String> {
    #[derive(Deserialize)]
    struct Answer {
        ok: bool,
        #[serde(default)]
        compacted: bool,
        reason: Option<String>,
    }
    let Answer { ok, compacted, reason } =
        serde_json::from_str(result.get()).map_err(|error| format!("its answer to compact is not valid: {error}"))?;
    Ok(Compaction { ok, compacted, reason: reason.as_deref().map(printable) })
}

/// An engine's text without control characters, cut for an event or the log.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the calls of an occasion, of which only `fails` fails.
    fn check(occasion: Occasion, methods: &str, fails: Option<OccasionStep>, expect: &[OccasionStep]) {
        let listed = Method::ALL.into_iter().filter(|method| methods.split(' ').any(|name| name == method.name()));
        let can = Abilities { methods: listed.collect(), owns_compaction: methods.contains("owns") };
        let mut steps = Vec::new();
        let mut step = first(occasion, &can);
        while let Some(now) = step {
            steps.push(now);
            step = if Some(now) == fails { None } else { next(occasion, now, &can) };
        }
        assert_eq!(steps, expect, "{occasion:?} {methods}");
    }

    const ALL: &str = "bootstrap maintain assemble afterTurn ingestBatch ingest compact owns";

    #[test]
    fn calls_follow_documented_order() {
        use OccasionStep::*;
        let over = Occasion::TurnCompleted { messages: 2 };
        check(Occasion::NewThread, ALL, None, &[Bootstrap, MaintainAfterBootstrap]);
        check(Occasion::TurnBegins, ALL, None, &[Assemble]);
        check(over, ALL, None, &[AfterTurn, MaintainAfterTurn]);
        check(over, "ingestBatch ingest maintain", None, &[IngestBatch, MaintainAfterTurn]);
        check(over, "ingest maintain", None, &[Ingest(0), Ingest(1), MaintainAfterTurn]);
        check(over, "maintain", None, &[MaintainAfterTurn]);
        check(Occasion::Compaction, ALL, None, &[Compact]);
    }

    #[test]
    fn failed_call_ends_the_sequence() {
        use OccasionStep::*;
        let over = Occasion::TurnCompleted { messages: 2 };
        check(Occasion::NewThread, ALL, Some(Bootstrap), &[Bootstrap]);
        check(over, ALL, Some(AfterTurn), &[AfterTurn]);
        check(over, "ingestBatch ingest maintain", Some(IngestBatch), &[IngestBatch]);
        check(over, "ingest maintain", Some(Ingest(0)), &[Ingest(0)]);
    }

    #[test]
    fn unlisted_methods_are_not_called() {
        for occasion in [Occasion::NewThread, Occasion::TurnBegins, Occasion::TurnCompleted { messages: 1 }] {
            check(occasion, "", None, &[]);
        }
        check(Occasion::NewThread, "maintain", None, &[]);
        check(Occasion::Compaction, "compact", None, &[]);
        check(Occasion::Compaction, "owns", None, &[]);
        check(Occasion::TurnCompleted { messages: 0 }, ALL, None, &[]);
    }

    fn raw(json: &Value) -> Box<RawValue> {
        RawValue::from_string(json.to_string()).expect("BUG: it is JSON")
    }

    fn turn_start() -> TurnStart {
        let (prompt, tools) = ("go on".to_owned(), vec!["lookup".to_owned()]);
        TurnStart { prompt, room_chars: 10_000, model: Some("m".to_owned()), tools }
    }

    #[test]
    fn parameters_have_the_ancestor_protocol_names() {
        let said = |turn: &str| json!({ "role": "user", "content": [], "turnId": turn });
        let conversation =
            Conversation { messages: ["t1", "t2", "t2", "t3"].map(said).to_vec(), ..Conversation::default() };
        let context = CallContext { session_id: "s", thread_id: "t", token_budget: Some(9) };
        let check = |step: OccasionStep, more: Value| {
            let mut expect = json!({ "sessionId": "s", "sessionKey": "t" });
            expect.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            assert_eq!(params(step, context, &conversation, Some(&turn_start()), "t2"), expect, "{step:?}");
        };
        let all = &conversation.messages;
        check(OccasionStep::Bootstrap, json!({ "messages": all }));
        check(OccasionStep::MaintainAfterBootstrap, json!({ "reason": "bootstrap" }));
        check(OccasionStep::MaintainAfterTurn, json!({ "reason": "turn" }));
        check(
            OccasionStep::Assemble,
            json!({ "messages": all, "tokenBudget": 9, "availableTools": ["lookup"], "model": "m", "prompt": "go on" }),
        );
        check(
            OccasionStep::AfterTurn,
            json!({ "messages": all[..3], "prePromptMessageCount": 1, "tokenBudget": 9, "runtimeContext": { "usage": null } }),
        );
        check(OccasionStep::IngestBatch, json!({ "messages": all[1..3] }));
        check(OccasionStep::Ingest(1), json!({ "message": all[2] }));
        check(OccasionStep::Compact, json!({ "messages": all, "tokenBudget": 9 }));
        assert_eq!(line(7, Method::Dispose, &json!({})), b"{\"id\":7,\"method\":\"dispose\",\"params\":{}}\n");
    }

    #[test]
    fn initialize_answer_is_read_and_checked() {
        let answer =
            json!({ "info": { "id": "e", "version": "2", "ownsCompaction": true }, "methods": ["assemble", "x"] });
        let info = read_info(&raw(&answer)).expect("it is one");
        let abilities = Abilities { methods: vec![Method::Assemble], owns_compaction: true };
        assert_eq!(
            info,
            EngineInfo { id: "e".to_owned(), name: "e".to_owned(), version: Some("2".to_owned()), abilities }
        );
        for bad in [json!({}), json!({ "info": {}, "methods": [] }), json!({ "info": { "id": "e" } }), json!(7)] {
            assert!(read_info(&raw(&bad)).is_err_and(|why| why.starts_with("its answer to initialize")), "{bad}");
        }
    }

    #[test]
    fn assemble_answer_is_read_and_checked() {
        let read = |answer: Value| read_assembled(&raw(&answer), &turn_start(), 24_000);
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
    fn compact_answer_is_read_and_checked() {
        let read = |answer: Value| read_compaction(&raw(&answer));
        let done = Compaction { ok: true, compacted: true, reason: None };
        assert_eq!(read(json!({ "ok": true, "compacted": true, "result": { "tokensBefore": 1 } })), Ok(done));
        let not = Compaction { ok: false, compacted: false, reason: Some("no".to_owned()) };
        assert_eq!(read(json!({ "ok": false, "reason": "n\no" })), Ok(not));
        assert!(read(json!({ "compacted": true })).is_err());
    }
}
