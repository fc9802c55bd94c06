//! Answers from API callers: validated against the request and converted to the server's format.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::OMITTED;
use super::kind::{RequestKind, RequestType};
use crate::engine::budget;
use crate::engine::model::{ApiCallId, RequestSource, Verdict};
use crate::protocol::{Method, Word, named, of_name};
use crate::secrets::Carrier;

named! {
    /// How long an accepted elicitation holds, if for more than this one.
    pub enum Persist {
        /// Codex runs the tool without asking until its thread ends.
        Session = "session",
        /// Codex writes into its settings that the tool runs without asking.
        Always = "always",
    }
}

impl Persist {
    /// What an elicitation offers. The real server (0.171) lists it in `_meta.persist`, and reads the answer there too; only those
    /// that ask for the call of an MCP server's tool hold when they are accepted.
    pub fn offered(params: &Value) -> Vec<Persist> {
        match params["_meta"]["codex_approval_kind"] == "mcp_tool_call" {
            true => Persist::listed(params),
            false => Vec::new(),
        }
    }

    /// What a suggestion to install or enable a tool offers: the server reads it in an answer that declines, and only `always`.
    pub fn offered_to_decline(params: &Value) -> Option<Persist> {
        let is_suggestion = params["_meta"]["codex_approval_kind"] == "tool_suggestion";
        Persist::listed(params).into_iter().find(|persist| is_suggestion && *persist == Persist::Always)
    }

    /// What a request lists, whoever reads it.
    pub fn listed(params: &Value) -> Vec<Persist> {
        let offers = &params["_meta"]["persist"];
        let listed = offers.as_array().map_or(std::slice::from_ref(offers), Vec::as_slice);
        let is_listed = |wanted: &Persist| listed.iter().filter_map(Value::as_str).any(|name| name == wanted.name());
        [Persist::Session, Persist::Always].into_iter().filter(is_listed).collect()
    }
}

/// Longest recorded decision, in bytes; a client may send anything.
const DECIDED_BYTES_MAX: usize = 100;

/// The decision of an answer to questions that has no answer to any of them. Codex's terminal UI gives it after 2 minutes, and so does
/// the expiry.
pub const UNANSWERED: &str = "unanswered";

/// Whether an answer to questions answers none of them.
pub fn answers_nothing(answer: &Value) -> bool {
    let is_given = |answer: &Value| answer["answers"].as_array().is_some_and(|texts| !texts.is_empty());
    let is_empty = |answers: &Value| !answers.as_object().is_some_and(|given| given.values().any(is_given));
    answer.get("answers").is_some_and(is_empty)
}

/// The decision of an answer as one word: of an approval or elicitation, the name of an offered object, or whether any
/// permission was granted; [`UNANSWERED`] of questions. `None` if the answer decides nothing, such as the answer to a question.
pub(in crate::engine) fn decided(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let mut word = match (&answer["decision"], &answer["action"], &answer["permissions"]) {
        (Value::String(word), ..) | (Value::Null, Value::String(word), _) => Some(word.clone()),
        (Value::Object(offered), ..) => offered.keys().next().cloned(),
        (_, _, Value::Object(granted)) => Some(if granted.is_empty() { "decline" } else { "accept" }.to_owned()),
        (_, _, _) if answers_nothing(&answer) => Some(UNANSWERED.to_owned()),
        (_, _, _) => answer.get("error").map(|_| "error".to_owned()),
    }?;
    word.truncate(word.floor_char_boundary(DECIDED_BYTES_MAX));
    Some(word)
}

/// Whether an answer to a request of this kind and method ends the turn.
pub(super) fn is_cancel(kind: RequestKind, method: &str, answer: &str) -> bool {
    decided(answer).and_then(|word| kind.word_of(method, &word)) == Some(Word::Cancel)
}

/// The API caller of an answer.
#[derive(Debug)]
pub(in crate::engine) struct Caller {
    pub(in crate::engine) api_call: ApiCallId,
    pub(in crate::engine) source: RequestSource,
    pub(in crate::engine) by: String,
    /// Our lines can reach the server.
    pub(in crate::engine) server_listens: bool,
}

/// An answer as received; exactly one member is set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenAnswer {
    /// The decision on an approval: a word or one of the offered objects.
    #[serde(default, deserialize_with = "present")]
    decision: Option<Value>,
    /// Why it is declined; only with `decision`.
    #[serde(default)]
    reason: Option<String>,
    /// Answers to questions, by question id.
    #[serde(default, deserialize_with = "present")]
    answers: Option<Value>,
    /// The action of an elicitation.
    #[serde(default, deserialize_with = "present")]
    action: Option<Value>,
    /// The content for `action`.
    #[serde(default, deserialize_with = "present")]
    content: Option<Value>,
    /// How long `accept` holds, if the elicitation offers it: `session` or `always`.
    #[serde(default)]
    persist: Option<String>,
    /// Granted permissions.
    #[serde(default, deserialize_with = "present")]
    permissions: Option<Value>,
    /// The scope of `permissions`: `turn` or `session`.
    #[serde(default)]
    scope: Option<String>,
    /// A raw result for the server, not validated.
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A valid answer.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedAnswer {
    pub result: Value,
    /// Text for the model.
    pub reason: Option<String>,
    /// The answer ends the turn.
    pub is_cancel: bool,
}

/// Why an answer is invalid, with valid examples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidAnswer {
    pub message: String,
    pub valid: Value,
}

type Checked<E = InvalidAnswer> = Result<CheckedAnswer, E>;

impl GivenAnswer {
    /// The content of an accepted form; `None` for any other answer.
    pub fn accepted_content(&self) -> Option<Value> {
        let is_accepted = self.action.as_ref().is_some_and(|action| action == "accept");
        is_accepted.then(|| self.content.clone().unwrap_or_default())
    }

    /// Validates the answer for a request of this kind and method with these parameters.
    pub fn check(&self, kind: RequestKind, method: &str, params: Option<&RawValue>) -> Checked {
        let params: Value = params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
        let invalid = |message: String| InvalidAnswer { message, valid: valid(kind, &params) };
        let given = [
            ("decision", self.decision.is_some()),
            ("answers", self.answers.is_some()),
            ("action", self.action.is_some()),
            ("permissions", self.permissions.is_some()),
            ("result", self.result.is_some()),
        ];
        let names: Vec<&str> = given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect();
        let [name] = names[..] else {
            let got = if names.is_empty() { "none".to_owned() } else { names.join(" and ") };
            return Err(invalid(format!(
                "give exactly one of decision, answers, action, permissions and result, not {got}"
            )));
        };
        for (extra, is_given, owner) in [
            ("reason", self.reason.is_some(), "decision"),
            ("content", self.content.is_some(), "action"),
            ("persist", self.persist.is_some(), "action"),
            ("scope", self.scope.is_some(), "permissions"),
        ] {
            if is_given && name != owner {
                return Err(invalid(format!("`{extra}` goes with `{owner}`, not with `{name}`")));
            }
        }
        let plain = |result| Ok(CheckedAnswer { result, reason: None, is_cancel: false });
        let decided = |decision: Option<Value>| {
            self.decided(decision.unwrap_or_default(), kind, method, &params).map_err(invalid)
        };
        match (name, kind.request_type()) {
            ("result", _) if kind.needs_person() => {
                decided(self.result.as_ref().map(|result| result["decision"].clone()))
            }
            ("result", _) if method == Method::BudgetQuestion.name() => {
                decides_budget(self.result.clone().unwrap_or_default(), &params).map_err(invalid).and_then(plain)
            }
            ("result", _) => plain(self.result.clone().unwrap_or_default()),
            ("decision", RequestType::Approval) => decided(self.decision.clone()),
            ("answers", RequestType::UserInput) => {
                let given = answers(self.answers.as_ref(), &params);
                let of_budget = method == Method::BudgetQuestion.name();
                given
                    .and_then(|given| if of_budget { decides_budget(given, &params) } else { Ok(given) })
                    .map_err(invalid)
                    .and_then(plain)
            }
            ("action", RequestType::Elicitation) => self.elicited(&params).map_err(invalid).and_then(plain),
            ("permissions", RequestType::Permissions) => self.granted().map_err(invalid).and_then(plain),
            (_, _) => Err(invalid(format!("`{name}` does not answer this request"))),
        }
    }

    fn decided(&self, decision: Value, kind: RequestKind, method: &str, params: &Value) -> Checked<String> {
        let word = decision.as_str().and_then(|given| kind.word_of(method, given));
        let sent = match word {
            Some(word) => json!(word.in_answer_to(method)),
            None if offered(params).contains(&decision) && !kind.needs_person() => decision,
            None => return Err(format!("{decision} is not one of the offered decisions")),
        };
        let is_refusal = matches!(word, Some(Word::Decline | Word::Cancel));
        if self.reason.is_some() && !is_refusal {
            return Err("a reason goes with `decline` or `cancel`".to_owned());
        }
        let reason = self.reason.clone().filter(|reason| !reason.trim().is_empty());
        let is_cancel = word == Some(Word::Cancel);
        Ok(CheckedAnswer { result: json!({ "decision": sent }), reason, is_cancel })
    }

    fn elicited(&self, params: &Value) -> Result<Value, String> {
        let action = self.action.as_ref().and_then(Value::as_str).unwrap_or_default();
        let content = self.content.clone().unwrap_or_default();
        match action {
            "accept" => {
                if !content.is_object() && !content.is_null() {
                    return Err("`content` must be an object".to_owned());
                }
            }
            "decline" | "cancel" if content.is_null() => {}
            "decline" | "cancel" => return Err("`content` goes with `accept`".to_owned()),
            _ => return Err("`action` must be accept, decline or cancel".to_owned()),
        }
        let persist = self.persist.as_deref();
        let is_offered = |wanted: &Persist| match action {
            "accept" => Persist::offered(params).contains(wanted),
            "decline" => Persist::offered_to_decline(params).as_ref() == Some(wanted),
            _ => false,
        };
        let offered = |name| of_name(name).filter(is_offered);
        let meta = match (persist, persist.and_then(offered)) {
            (None, _) => Value::Null,
            (Some(_), Some(offered)) => json!({ "persist": offered }),
            (Some(name), None) => return Err(format!("the request does not offer `persist` {name} with {action}")),
        };
        Ok(json!({ "action": action, "content": content, "_meta": meta }))
    }

    fn granted(&self) -> Result<Value, String> {
        let permissions = self.permissions.clone().unwrap_or_default();
        if !permissions.is_object() {
            return Err("`permissions` must be an object, such as that of the request".to_owned());
        }
        let scope = self.scope.as_deref().unwrap_or("turn");
        if !matches!(scope, "turn" | "session") {
            return Err(format!("`scope` must be turn or session, not {scope}"));
        }
        Ok(json!({ "permissions": permissions, "scope": scope }))
    }
}

/// An answer to our own question about the budget, which only has meaning if it is one of three.
fn decides_budget(given: Value, params: &Value) -> Result<Value, String> {
    let used = params["budget"]["used"].as_u64().unwrap_or(0);
    match budget::decided(&given) {
        Some((_, Some(raised))) if raised <= used => {
            Err(format!("the limit must be more than the {} tokens that are used", budget::grouped(used)))
        }
        Some(_) => Ok(given),
        None => Err("the answer must be `continue once`, `stop` or a number of tokens".to_owned()),
    }
}

/// Parses `{ID:{answers:[…]}}`; `{ID:"text"}` and `{ID:["text"]}` are also accepted.
fn answers(given: Option<&Value>, params: &Value) -> Result<Value, String> {
    let asked: Vec<&str> = params["questions"]
        .as_array()
        .map(|questions| questions.iter().filter_map(|question| question["id"].as_str()).collect())
        .unwrap_or_default();
    let Some(given) = given.and_then(Value::as_object) else {
        return Err("`answers` must be an object with a member for each question".to_owned());
    };
    let mut sent = Map::new();
    for (id, answer) in given {
        if !asked.contains(&id.as_str()) {
            return Err(format!("unknown question {id}"));
        }
        let texts = match answer {
            Value::String(_) => vec![answer.clone()],
            Value::Array(texts) => texts.clone(),
            Value::Object(members) => match members.get("answers") {
                Some(Value::Array(texts)) if members.len() == 1 => texts.clone(),
                Some(_) | None => return Err(format!("the answer to {id} must be a text or a list of texts")),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                return Err(format!("the answer to {id} must be a text or a list of texts"));
            }
        };
        if !texts.iter().all(Value::is_string) {
            return Err(format!("the answer to {id} must be a text or a list of texts"));
        }
        sent.insert(id.clone(), json!({ "answers": texts }));
    }
    if sent.is_empty() && !asked.is_empty() {
        return Err("`answers` has no answer".to_owned());
    }
    Ok(json!({ "answers": sent }))
}

/// Examples of valid answers.
pub fn valid(kind: RequestKind, params: &Value) -> Value {
    match kind.request_type() {
        RequestType::Approval => {
            json!({ "decision": decisions(kind, params), "reason": "a text, with decline or cancel" })
        }
        RequestType::Permissions => json!({ "permissions": params["permissions"], "scope": ["turn", "session"] }),
        RequestType::UserInput => {
            let ids = params["questions"].as_array().into_iter().flatten().filter_map(|question| {
                let options: Vec<&Value> =
                    question["options"].as_array().into_iter().flatten().map(|option| &option["label"]).collect();
                Some((question["id"].as_str()?.to_owned(), json!(options)))
            });
            json!({ "answers": ids.collect::<Map<String, Value>>() })
        }
        RequestType::Elicitation => {
            let mut valid = json!({ "action": decisions(kind, params), "content": params["requestedSchema"] });
            let offered: Vec<Persist> =
                Persist::offered(params).into_iter().chain(Persist::offered_to_decline(params)).collect();
            if !offered.is_empty() {
                valid["persist"] = json!(offered);
            }
            valid
        }
        RequestType::Other => json!({ "result": "whatever this method takes" }),
    }
}

fn offered(params: &Value) -> &[Value] {
    params["availableDecisions"].as_array().map_or(&[], Vec::as_slice)
}

/// The possible decisions: those offered, and the words that are always accepted.
pub fn decisions(kind: RequestKind, params: &Value) -> Vec<Value> {
    let words = kind.words().iter().map(|word| json!(word.decision()));
    match kind.request_type() {
        RequestType::Approval if kind.needs_person() => words.collect(),
        RequestType::Approval => {
            let offered = offered(params);
            offered.iter().cloned().chain(words.filter(|word| !offered.contains(word))).collect()
        }
        RequestType::Elicitation => words.collect(),
        RequestType::Permissions | RequestType::UserInput | RequestType::Other => Vec::new(),
    }
}

/// Whether a question to the user has `isSecret`.
pub(in crate::engine) fn asks_secret(params: &str) -> bool {
    #[derive(Deserialize)]
    struct Params {
        questions: Vec<AnsweredQuestion>,
    }
    #[derive(Deserialize)]
    struct AnsweredQuestion {
        #[serde(rename = "isSecret", default)]
        is_secret: Option<bool>,
    }
    match serde_json::from_str::<Params>(params) {
        Ok(params) => params.questions.iter().any(|question| question.is_secret == Some(true)),
        Err(_) => memmem::find(params.as_bytes(), b"ecret").is_some(),
    }
}

/// The answer that policy gives after a timeout.
pub(super) fn by_policy(kind: RequestKind, method: &str) -> Option<Value> {
    Some(match kind.request_type() {
        RequestType::Approval if kind.needs_person() => return None,
        RequestType::Approval => json!({ "decision": Word::Decline.in_answer_to(method) }),
        RequestType::Permissions => json!({ "permissions": {}, "scope": "turn" }),
        RequestType::UserInput => json!({ "answers": {} }),
        RequestType::Elicitation => json!({ "action": "decline", "content": null, "_meta": null }),
        RequestType::Other => return None,
    })
}

/// How much of an answer may be recorded. The rest goes to the server from memory, and never to the record or the ledger.
pub(super) fn verdict(kind: RequestKind, params: &str) -> Verdict {
    match kind.request_type() {
        RequestType::UserInput if asks_secret(params) => Verdict::Secret,
        RequestType::Elicitation => Verdict::Masked(Carrier::of_form(params)),
        RequestType::Approval | RequestType::Permissions | RequestType::UserInput | RequestType::Other => Verdict::Open,
    }
}

/// Whether a result is that of questions without any answer.
fn holds_nothing(result: &str) -> bool {
    serde_json::from_str::<Value>(result).is_ok_and(|result| result == json!({ "answers": {} }))
}

/// A result for the ledger.
pub(super) fn kept(verdict: &Verdict, result: &str) -> String {
    match verdict {
        Verdict::Open => result.to_owned(),
        // It holds no secret, and tells that nobody has answered.
        Verdict::Secret if holds_nothing(result) => result.to_owned(),
        Verdict::Secret => OMITTED.to_owned(),
        Verdict::Masked(carrier) => {
            let answer = format!("{{\"result\":{result}}}");
            let masked = carrier.masked(&answer).map(|masked| masked.unwrap_or(answer));
            let masked = masked.ok().and_then(|masked| serde_json::from_str::<Value>(&masked).ok());
            masked.map_or(OMITTED.to_owned(), |answer| answer["result"].to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_summarized_in_one_word() {
        let check = |answer: &str, expect: Option<&str>| assert_eq!(decided(answer).as_deref(), expect, "{answer}");
        check(r#"{"decision":"accept"}"#, Some("accept"));
        check(r#"{"decision":{"acceptWithX":{"y":1}}}"#, Some("acceptWithX"));
        check(r#"{"action":"decline","content":null}"#, Some("decline"));
        check(r#"{"permissions":{},"scope":"turn"}"#, Some("decline"));
        check(r#"{"permissions":{"network":{}},"scope":"turn"}"#, Some("accept"));
        check(r#"{"error":{"code":1}}"#, Some("error"));
        for none in ["{}", r#"{"q":{"answers":[]}}"#, r#"{"q":7}"#, "[]", "null"] {
            check(&format!(r#"{{"answers":{none}}}"#), Some(UNANSWERED));
        }
        check(r#"{"answers":{"q":{"answers":[]},"r":{"answers":["x"]}}}"#, None);
        check(r#"{"omitted":"secret"}"#, None);
        let long = format!("x{}", "\u{e9}".repeat(100));
        check(&format!(r#"{{"decision":"{long}"}}"#), Some(&long[..99]));
        check(&format!(r#"{{"decision":{{"{long}":1}}}}"#), Some(&long[..99]));
    }

    #[test]
    fn secret_answers_are_not_stored() {
        for (result, expect) in [
            (r#"{"answers":{"q":{"answers":["pw"]}}}"#, OMITTED),
            (r#"{"answers":{"q":"pw"}}"#, OMITTED),
            (r#"{"answers":{},"q":"pw"}"#, OMITTED),
            (r#"{"answers":{}}"#, r#"{"answers":{}}"#),
        ] {
            assert_eq!(kept(&Verdict::Secret, result), expect);
        }
    }

    fn check(kind: RequestKind, params: &str, given: &str) -> Result<String, String> {
        let given: GivenAnswer = serde_json::from_str(given).map_err(|error| error.to_string())?;
        let params: &RawValue = serde_json::from_str(params).expect("BUG: test parameters are JSON");
        let checked = given.check(kind, "new/method", Some(params));
        checked.map(|checked| checked.result.to_string()).map_err(|invalid| invalid.message)
    }

    #[test]
    fn decisions_are_known_words_or_offered_objects() {
        let offered = r#"{"availableDecisions":["accept",{"acceptWithX":{"y":["z"]}}]}"#;
        let command = |given: &str| check(RequestKind::Command, offered, given);
        assert_eq!(command(r#"{"decision":"accept"}"#), Ok(r#"{"decision":"accept"}"#.to_owned()));
        assert_eq!(command(r#"{"decision":"acceptForSession"}"#), Ok(r#"{"decision":"acceptForSession"}"#.to_owned()));
        assert!(command(r#"{"decision":{"acceptWithX":{"y":["z"]}}}"#).is_ok());
        for bad in [
            r#"{"decision":"maybe"}"#,
            r#"{"decision":{"acceptWithX":{"y":[]}}}"#,
            r#"{"decision":null}"#,
            r#"{"decision":"accept","reason":"no"}"#,
            r#"{"answers":{}}"#,
            r#"{"decision":"accept","answers":{}}"#,
            r#"{"reason":"no"}"#,
            r#"{"decision":"approved"}"#,
            "{}",
            r#"{"decision":"accept","x":1}"#,
        ] {
            assert!(command(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn command_for_a_person_is_decided_once() {
        let offered = r#"{"kind":"humanCommand","availableDecisions":["acceptForSession",{"acceptWithX":{}}]}"#;
        let given = |given: &str| check(RequestKind::HumanCommand, offered, given);
        for word in ["accept", "decline", "cancel"] {
            let result = format!(r#"{{"decision":"{word}"}}"#);
            assert_eq!(given(&result), Ok(result.clone()));
            assert_eq!(given(&format!(r#"{{"result":{result}}}"#)), Ok(result));
        }
        for grant in [r#"{"decision":"acceptForSession"}"#, r#"{"decision":{"acceptWithX":{}}}"#] {
            assert!(given(grant).is_err(), "{grant}");
            assert!(given(&format!(r#"{{"result":{grant}}}"#)).is_err(), "{grant}");
        }
        assert_eq!(decisions(RequestKind::HumanCommand, &json!({"availableDecisions": ["acceptForSession"]})).len(), 3);
        assert_eq!(by_policy(RequestKind::HumanCommand, "new/method"), None);
    }

    #[test]
    fn answers_have_the_words_of_the_method() {
        const METHOD: &str = "applyPatchApproval";
        let check = |word: &str, expect: &str| {
            let given: GivenAnswer = serde_json::from_value(json!({ "decision": word })).expect("BUG: a test answer");
            let checked = given.check(RequestKind::FileChange, METHOD, None).map(|checked| checked.result);
            assert_eq!(checked, Ok(json!({ "decision": expect })));
        };
        check("decline", "denied");
        check("approved", "approved");
        assert_eq!(by_policy(RequestKind::FileChange, METHOD), Some(json!({ "decision": "denied" })));
        let is_cancel = |method: &str| is_cancel(RequestKind::FileChange, method, r#"{"decision":"abort"}"#);
        assert!(is_cancel(METHOD) && !is_cancel("new/method"));
    }

    #[test]
    fn answers_must_match_the_request() {
        let asked = r#"{"questions":[{"id":"a"},{"id":"b"}]}"#;
        let input = |given: &str| check(RequestKind::UserInput, asked, given);
        let sent = Ok(r#"{"answers":{"a":{"answers":["x"]}}}"#.to_owned());
        for good in [r#"{"answers":{"a":"x"}}"#, r#"{"answers":{"a":["x"]}}"#, r#"{"answers":{"a":{"answers":["x"]}}}"#]
        {
            assert_eq!(input(good), sent, "{good}");
        }
        for bad in [r#"{"answers":{"c":"x"}}"#, r#"{"answers":{"a":1}}"#, r#"{"answers":["x"]}"#, r#"{"answers":{}}"#] {
            assert!(input(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn elicitations_and_permissions() {
        let schema = r#"{"requestedSchema":{"required":["name"]}}"#;
        let elicit = |given: &str| check(RequestKind::Elicitation, schema, given);
        assert!(elicit(r#"{"action":"accept","content":{"name":"x"}}"#).is_ok());
        assert!(elicit(r#"{"action":"decline"}"#).is_ok());
        for bad in [r#"{"action":"accept","content":[]}"#, r#"{"action":"go"}"#, r#"{"action":"cancel","content":{}}"#]
        {
            assert!(elicit(bad).is_err(), "{bad}");
        }
        let grant = |given: &str| check(RequestKind::Permissions, "{}", given);
        assert_eq!(grant(r#"{"permissions":{}}"#), Ok(r#"{"permissions":{},"scope":"turn"}"#.to_owned()));
        for bad in [r#"{"permissions":[]}"#, r#"{"permissions":{},"scope":"ever"}"#, r#"{"decision":"accept"}"#] {
            assert!(grant(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tool_calls_are_accepted_for_as_long_as_offered() {
        let offers = |kind: &str, persist: &str| {
            format!(r#"{{"_meta":{{"codex_approval_kind":"{kind}","persist":{persist}}}}}"#)
        };
        let sent = |action: &str, persist: &str| {
            Ok(format!(r#"{{"_meta":{{"persist":"{persist}"}},"action":"{action}","content":null}}"#))
        };
        let (both, one) = (offers("mcp_tool_call", r#"["session","always"]"#), offers("mcp_tool_call", r#""session""#));
        for (params, action, persist, is_taken) in [
            (&both, "accept", "session", true),
            (&both, "accept", "always", true),
            (&both, "accept", "ever", false),
            (&both, "decline", "always", false),
            (&both, "cancel", "session", false),
            (&one, "accept", "session", true),
            (&one, "accept", "always", false),
            (&offers("mcp_tool_call", "null"), "accept", "session", false),
            (&offers("mcp_tool_call", r#"{"session":true}"#), "accept", "session", false),
            // Codex takes it to a suggestion only with the answer no.
            (&offers("tool_suggestion", r#""always""#), "accept", "always", false),
            (&offers("tool_suggestion", r#""always""#), "decline", "always", true),
            (&offers("tool_suggestion", r#"["session","always"]"#), "decline", "always", true),
            (&offers("tool_suggestion", r#"["session","always"]"#), "decline", "session", false),
            (&offers("tool_suggestion", r#""always""#), "cancel", "always", false),
            (&"{}".to_owned(), "accept", "session", false),
        ] {
            let given = format!(r#"{{"action":"{action}","persist":"{persist}"}}"#);
            let checked = check(RequestKind::Elicitation, params, &given);
            assert_eq!(checked.is_ok(), is_taken, "{params} {given}: {checked:?}");
            assert!(checked.is_err() || checked == sent(action, persist), "{checked:?}");
        }
        assert!(check(RequestKind::Command, "{}", r#"{"decision":"accept","persist":"session"}"#).is_err());
        let valid =
            valid(RequestKind::Elicitation, &serde_json::from_str(&both).expect("BUG: test parameters are JSON"));
        assert_eq!(valid["persist"], json!(["session", "always"]));
    }

    #[test]
    fn a_result_is_taken_as_it_is() {
        assert_eq!(check(RequestKind::Other, "{}", r#"{"result":null}"#), Ok("null".to_owned()));
        assert!(check(RequestKind::Other, "{}", r#"{"decision":"accept"}"#).is_err());
    }
}
