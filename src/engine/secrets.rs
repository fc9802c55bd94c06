//! What is kept off the record.
//!
//! A line is secret by its method, by the keys it writes, or as the answer to a request that was secret. Where the
//! answer cannot be known (a line that cannot be read, too many open requests to remember), the line is taken as secret:
//! a gap in the record is mended more easily than a leaked key.
//!
//! Nothing here touches what is forwarded.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Form, Omitted, OmittedReason};
use crate::wire::{Body, Message, MethodClass, RpcId, SECRET_METHOD_MARKS, Side};

/// Secret requests of one side that may wait for an answer at once; beyond it every answer to that side is left out.
const SECRETS_OPEN_MAX: usize = 1_024;

/// Longest id, in bytes of JSON, that is remembered; a longer one counts as one too many.
const ID_BYTES_MAX: usize = 1_024;

/// Longest method or id that is named in the record of an omitted line, in bytes.
const NAMED_BYTES_MAX: usize = 200;

/// Whether a line may stand in the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may.
    Open,
    /// It may not.
    Secret,
}

/// Secret requests that wait for their answers.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    asked_by_client: Asked,
    asked_by_server: Asked,
}

#[derive(Debug, Default)]
struct Asked {
    open: HashSet<RpcId>,
    overflowed: bool,
}

impl Secrets {
    /// Judges a line that `from` wrote, and remembers what its answer will be.
    pub(super) fn judge(&mut self, from: Side, body: &Body<'_>, line: &[u8]) -> Verdict {
        let (asked_here, asked_there) = match from {
            Side::Client => (&mut self.asked_by_client, &mut self.asked_by_server),
            Side::Server => (&mut self.asked_by_server, &mut self.asked_by_client),
        };
        let message = match body {
            Body::Message(message) if !message.repeated_member => message,
            Body::Message(_) | Body::OtherJson | Body::Text | Body::Bytes => {
                return unread(line, asked_there);
            }
        };
        if message.method.is_none() {
            return if asked_there.settles(message) { Verdict::Secret } else { Verdict::Open };
        }
        let (line_secret, answer_secret) = classes(message);
        if answer_secret && let Some(id) = message.id {
            asked_here.remember(id);
        }
        if line_secret { Verdict::Secret } else { Verdict::Open }
    }
}

impl Asked {
    fn remember(&mut self, id: &RawValue) {
        if self.open.len() < SECRETS_OPEN_MAX && id.get().len() <= ID_BYTES_MAX {
            self.open.insert(RpcId::from_raw(id));
        } else {
            self.overflowed = true;
        }
    }

    /// Whether `answer` belongs to a secret request.
    fn settles(&mut self, answer: &Message<'_>) -> bool {
        if self.open.is_empty() {
            return self.overflowed;
        }
        let known =
            answer.id.is_some_and(|id| id.get().len() <= ID_BYTES_MAX && self.open.remove(&RpcId::from_raw(id)));
        known || self.overflowed
    }

    fn any(&self) -> bool {
        self.overflowed || !self.open.is_empty()
    }
}

/// Whether the message itself is secret, and whether the answer to it will be.
fn classes(message: &Message<'_>) -> (bool, bool) {
    let method = message.method.as_deref().unwrap_or_default();
    match MethodClass::of(method) {
        MethodClass::Secret => (true, true),
        MethodClass::ConfigWrite => {
            let secret = message.params.is_some_and(|params| writes_secret(params.get()));
            (secret, secret)
        }
        MethodClass::AskUser => (false, message.params.is_some_and(|params| asks_secret(params.get()))),
        MethodClass::Initialize | MethodClass::Ordinary => (false, false),
    }
}

/// A line that is no message, or one that could be read in two ways.
fn unread(line: &[u8], asked: &Asked) -> Verdict {
    let has = |mark: &str| memmem::find(line, mark.as_bytes()).is_some();
    let names_one = SECRET_METHOD_MARKS.iter().any(|mark| has(mark) || has(&mark.replace('/', "\\/")));
    let writes_one = has("config/") && names_secret(&String::from_utf8_lossy(line));
    let may_answer_one = asked.any() && line.contains(&b'{');
    if names_one || writes_one || may_answer_one { Verdict::Secret } else { Verdict::Open }
}

/// Whether a question to the user has `isSecret`.
fn asks_secret(params: &str) -> bool {
    #[derive(Deserialize)]
    struct Params {
        questions: Vec<Question>,
    }
    #[derive(Deserialize)]
    struct Question {
        #[serde(rename = "isSecret", default)]
        is_secret: Option<bool>,
    }
    match serde_json::from_str::<Params>(params) {
        Ok(params) => params.questions.iter().any(|question| question.is_secret == Some(true)),
        Err(_) => memmem::find(params.as_bytes(), b"ecret").is_some(),
    }
}

/// Whether a configuration write has a value under a key that names a secret.
fn writes_secret(params: &str) -> bool {
    match serde_json::from_str::<Value>(params) {
        Ok(params) => under_secret_key(&params),
        Err(_) => true,
    }
}

fn under_secret_key(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(key, value)| {
            let path = key == "keyPath" && value.as_str().is_none_or(names_secret);
            path || names_secret(key) || under_secret_key(value)
        }),
        Value::Array(values) => values.iter().any(under_secret_key),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether the name of a setting, or a dotted path of names, is that of a secret.
fn names_secret(name: &str) -> bool {
    const WORDS: [&str; 11] = [
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "apikey",
        "credential",
        "authorization",
        "bearer",
        "privatekey",
        "cookie",
    ];
    let plain: String = name.chars().filter(|char| !matches!(char, '_' | '-')).flat_map(char::to_lowercase).collect();
    // Sizes and limits that are counted in tokens are no secrets.
    let counts_tokens = plain.ends_with("tokens") || plain.contains("tokenlimit") || plain.contains("tokenbudget");
    WORDS.iter().any(|word| plain.contains(word) && !(*word == "token" && counts_tokens))
}

/// The record of a secret line.
pub(super) fn omitted(body: &Body<'_>, line_bytes: usize) -> Form {
    let short = |text: &str| (text.len() <= NAMED_BYTES_MAX).then(|| text.to_owned());
    let (method, id) = match body {
        Body::Message(message) => {
            (message.method.as_deref().and_then(short), message.id.map(RawValue::get).and_then(short))
        }
        Body::OtherJson | Body::Text | Body::Bytes => (None, None),
    };
    Form::Omitted(Box::new(Omitted { reason: OmittedReason::Secret, line_bytes: line_bytes as u64, method, id }))
}

/// A command line as it may stand in a record: the value of `KEY=VALUE` goes where the key names a secret.
#[must_use]
pub fn masked_args(args: &[OsString]) -> Vec<String> {
    args.iter().map(|arg| masked(arg)).collect()
}

fn masked(arg: &OsStr) -> String {
    let arg = arg.to_string_lossy();
    match arg.split_once('=') {
        Some((key, _)) if names_secret(key) => format!("{key}=[secret]"),
        Some(_) | None => arg.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `>` client, `<` server; returns `S` for secret and `.` for open, a letter a line.
    fn check(script: &[&str], expect: &str) {
        let mut secrets = Secrets::default();
        let verdicts: String = script
            .iter()
            .map(|step| {
                let from = if step.starts_with('>') { Side::Client } else { Side::Server };
                let line = &step.as_bytes()[1..];
                match secrets.judge(from, &Body::parse(line), line) {
                    Verdict::Secret => 'S',
                    Verdict::Open => '.',
                }
            })
            .collect();
        assert_eq!(verdicts, expect);
    }

    #[test]
    fn both_directions_have_their_own_ids() {
        check(
            &[
                r#"<{"id":0,"method":"account/chatgptAuthTokens/refresh"}"#,
                r#">{"id":0,"method":"thread/list"}"#,
                r#"<{"id":0,"result":{}}"#,
                r#">{"id":0,"result":{"accessToken":"x"}}"#,
            ],
            "S..S",
        );
    }

    #[test]
    fn a_secret_question_has_a_secret_answer() {
        let ask = |secret: &str| {
            format!(r#"<{{"id":2,"method":"item/tool/requestUserInput","params":{{"questions":[{secret}]}}}}"#)
        };
        let answer = r#">{"id":2,"result":{"answers":{"a":{"answers":["x"]}}}}"#;
        check(&[&ask(r#"{"id":"b"},{"id":"a","isSecret":true}"#), answer], ".S");
        check(&[&ask(r#"{"id":"a","isSecret":false},{"isSecret":null}"#), answer], "..");
        check(&[&ask(r#"{"isSecret":"yes"}"#), answer], ".S");
    }

    #[test]
    fn configuration_is_secret_by_its_keys() {
        let write = |params: &str| format!(r#">{{"id":1,"method":"config/value/write","params":{params}}}"#);
        check(&[&write(r#"{"keyPath":"model","value":"gpt"}"#), r#"<{"id":1,"result":{}}"#], "..");
        check(&[&write(r#"{"keyPath":"p.x.bearer_token","value":"t"}"#), r#"<{"id":1,"result":{}}"#], "SS");
        check(&[&write(r#"{"keyPath":"env","value":{"API_KEY":"t"}}"#)], "S");
        check(&[&write(r#"{"keyPath":"tool_output_max_tokens","value":1}"#)], ".");
        check(
            &[r#">{"id":1,"method":"config/batchWrite","params":{"edits":[{"keyPath":"a.password","value":"t"}]}}"#],
            "S",
        );
    }

    #[test]
    fn what_cannot_be_read_is_judged_by_its_marks() {
        check(
            &[
                r#"> {"id":1,"method":"account/login/start","params":{"apiKey":"k"}} x"#,
                r#">[{"id":1,"method":"account\/login\/start"}]"#,
                r#">{"method":"account/read","method":"x"}"#,
                r#">label thread/started"#,
                "<noise",
            ],
            "SSS..",
        );
    }

    #[test]
    fn an_unreadable_line_is_left_out_while_a_secret_answer_is_awaited() {
        check(
            &[
                r#">{"id":1,"method":"getAuthStatus"}"#,
                "<plain noise",
                r#"<label {"id":1,"result":{"authToken":"t"}}"#,
                r#"<{"id":1,"result":{"authToken":"t"}}"#,
                r#"<label {"x":1}"#,
            ],
            "S.SS.",
        );
    }

    #[test]
    fn too_many_open_secrets_close_the_record_rather_than_leak() {
        let mut script: Vec<String> =
            (0..=SECRETS_OPEN_MAX).map(|id| format!(r#">{{"id":{id},"method":"getAuthStatus"}}"#)).collect();
        script.push(format!(r#"<{{"id":{SECRETS_OPEN_MAX},"result":{{}}}}"#));
        let mut expect = "S".repeat(script.len());
        script.push(r#"<{"method":"turn/started"}"#.to_owned());
        expect.push('.');
        check(&script.iter().map(String::as_str).collect::<Vec<_>>(), &expect);
    }

    #[test]
    fn command_lines_are_masked() {
        let args = ["codex", "-c", "x.api_key=sk-1", "model=gpt", "max_tokens=5"].map(OsString::from);
        assert_eq!(masked_args(&args), ["codex", "-c", "x.api_key=[secret]", "model=gpt", "max_tokens=5"]);
    }
}
