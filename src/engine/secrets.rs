//! What is kept off the record.
//!
//! A line is secret by its method, by the keys it writes, as the answer to a request that was secret, or where the server
//! tells such an answer of the user's again. Where that cannot be known (a line that cannot be read, too many open requests
//! to remember), the line is taken as secret: a gap in the record is mended more easily than a leaked key.
//!
//! Nothing here touches what is forwarded.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::redaction::{names_secret, secret_spans};
use super::{Form, Omitted, OmittedReason};
use crate::wire::{Body, Members, Message, MethodClass, RpcId, SECRET_METHOD_MARKS, Side};

/// Secret requests of one side that may wait for an answer at once; beyond it every answer to that side is left out.
const SECRETS_OPEN_MAX: usize = 1_024;

/// Secret requests of one side whose answers are known, and whose ids are remembered until they are used again.
const SECRETS_ANSWERED_MAX: usize = 256;

/// Items that ask for a secret and are remembered, so that the output of their tool is known when it is told.
const ASKING_ITEMS_MAX: usize = 256;

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
    /// Items that ask the user for a secret, oldest first, as their ids were written.
    asking_items: VecDeque<String>,
}

#[derive(Debug, Default)]
struct Asked {
    /// Ids of secret requests that were not answered yet.
    open: HashSet<RpcId>,
    /// Ids of those that were, oldest first: a second answer is as secret as the first.
    answered: VecDeque<RpcId>,
    /// There were more than can be remembered, or one that could not be read.
    overflowed: bool,
}

impl Secrets {
    /// Judges a line that `from` wrote, and remembers what its answer will be.
    pub(super) fn judge(&mut self, from: Side, body: &Body<'_>, line: &[u8]) -> Verdict {
        let verdict = self.judge_message(from, body, line);
        // A client may have asked for the model's own items, and what the user has answered is one of them.
        let tells_answer = from == Side::Server
            && !self.asking_items.is_empty()
            && memmem::find(line, b"call_output").is_some()
            && self.asking_items.iter().any(|item| memmem::find(line, item.as_bytes()).is_some());
        if tells_answer { Verdict::Secret } else { verdict }
    }

    fn judge_message(&mut self, from: Side, body: &Body<'_>, line: &[u8]) -> Verdict {
        let (asked_here, asked_there) = match from {
            Side::Client => (&mut self.asked_by_client, &mut self.asked_by_server),
            Side::Server => (&mut self.asked_by_server, &mut self.asked_by_client),
        };
        let message = match body {
            Body::Message(message) if !message.repeated_member => message,
            Body::Message(_) | Body::OtherJson | Body::Text | Body::Bytes => {
                return unread(line, asked_here, asked_there);
            }
        };
        if message.method.is_none() {
            return if asked_there.settles(message) { Verdict::Secret } else { Verdict::Open };
        }
        let (line_secret, answer_secret) = classes(message);
        if let Some(id) = message.id {
            if answer_secret {
                asked_here.remember(id);
                let item = message.params.and_then(Members::of).and_then(|params| params.get("itemId"));
                if let Some(item) = item.map(RawValue::get).filter(|item| item.len() <= ID_BYTES_MAX) {
                    if self.asking_items.len() == ASKING_ITEMS_MAX {
                        self.asking_items.pop_front();
                    }
                    self.asking_items.push_back(item.to_owned());
                }
            } else {
                asked_here.reuse(id);
            }
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

    /// A request that is not secret has taken an id for itself.
    fn reuse(&mut self, id: &RawValue) {
        if !self.answered.is_empty() {
            let id = RpcId::from_raw(id);
            self.answered.retain(|answered| *answered != id);
        }
    }

    /// Whether `answer` belongs to a secret request.
    fn settles(&mut self, answer: &Message<'_>) -> bool {
        if self.open.is_empty() && self.answered.is_empty() {
            return self.overflowed;
        }
        let Some(id) = answer.id.filter(|id| id.get().len() <= ID_BYTES_MAX).map(RpcId::from_raw) else {
            return self.overflowed;
        };
        if self.open.remove(&id) {
            if self.answered.len() == SECRETS_ANSWERED_MAX {
                self.answered.pop_front();
            }
            self.answered.push_back(id);
            return true;
        }
        self.overflowed || self.answered.contains(&id)
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

/// What names a secret method in a line however broken, as it is written and with `\/`.
static METHOD_MARKS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let marks = SECRET_METHOD_MARKS.iter().flat_map(|mark| [(*mark).to_owned(), mark.replace('/', "\\/")]);
    AhoCorasick::new(marks).expect("BUG: the marks are few and short")
});

/// A line that is no message, or one that could be read in two ways.
fn unread(line: &[u8], asked_here: &mut Asked, asked_there: &Asked) -> Verdict {
    let has = |mark: &str| memmem::find(line, mark.as_bytes()).is_some();
    let names_one = METHOD_MARKS.is_match(line);
    let writes_one = has("config/") && names_secret(&String::from_utf8_lossy(line));
    let may_answer_one = asked_there.any() && line.contains(&b'{');
    // A server may read it otherwise than we do, and answer with an id that we do not know.
    asked_here.overflowed |= (names_one || writes_one) && has("\"id\"");
    if names_one || writes_one || may_answer_one { Verdict::Secret } else { Verdict::Open }
}

/// Whether a question to the user has `isSecret`.
pub(super) fn asks_secret(params: &str) -> bool {
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

/// A command line as it may stand in a record: what belongs to a name that names a secret is masked, and so is what
/// looks like a key.
#[must_use]
pub fn masked_args(args: &[OsString]) -> Vec<String> {
    let has_secret = |text: &str| !secret_spans(text.as_bytes()).is_empty();
    let mut after_secret_option = false;
    args.iter()
        .map(|arg| {
            let arg = arg.to_string_lossy();
            let is_value = std::mem::replace(&mut after_secret_option, arg.starts_with('-') && names_secret(&arg));
            match arg.split_once('=') {
                // `-c env={API_KEY="…"}` names it in the value.
                Some((name, value)) if names_secret(name) || names_secret(value) || has_secret(value) => {
                    after_secret_option = false;
                    format!("{name}={MASK}")
                }
                Some(_) => arg.into_owned(),
                None if is_value || has_secret(&arg) => MASK.to_owned(),
                // `Authorization: Bearer …`
                None if arg.contains([':', ' ']) && names_secret(&arg) => MASK.to_owned(),
                None => arg.into_owned(),
            }
        })
        .collect()
}

/// What stands for what was masked.
const MASK: &str = "[secret]";

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
    fn a_secret_answer_is_as_secret_among_the_items_of_the_model() {
        let ask = |is_secret: bool| {
            format!(
                r#"<{{"id":2,"method":"item/tool/requestUserInput","params":{{"itemId":"c1","questions":[{{"isSecret":{is_secret}}}]}}}}"#
            )
        };
        let item = |kind: &str, call: &str| {
            format!(
                r#"<{{"method":"rawResponseItem/completed","params":{{"item":{{"type":"{kind}","call_id":"{call}"}}}}}}"#
            )
        };
        let call = item("function_call", "c1");
        let outputs = [item("function_call_output", "c1"), item("function_call_output", "c10")];
        check(&[&call, &ask(true), &outputs[0], &outputs[1], &call, &outputs[0]], "..S..S");
        check(&[&ask(false), &outputs[0]], "..");
    }

    #[test]
    fn configuration_is_secret_by_its_keys() {
        let write = |params: &str| format!(r#">{{"id":1,"method":"config/value/write","params":{params}}}"#);
        check(&[&write(r#"{"keyPath":"model","value":"gpt"}"#), r#"<{"id":1,"result":{}}"#], "..");
        check(&[&write(r#"{"keyPath":"p.x.bearer_token","value":"t"}"#), r#"<{"id":1,"result":{}}"#], "SS");
        check(&[&write(r#"{"keyPath":"env","value":{"API_KEY":"t"}}"#)], "S");
        for open in ["tool_output_max_tokens", "token_limit", "keymap", "tui.key", "monkey", "model_provider"] {
            check(&[&write(&format!(r#"{{"keyPath":"{open}","value":1}}"#))], ".");
        }
        for secret in
            ["x.api_tokens", "access_tokens", "limits.token", "OPENAI_KEY", "a.access-key", "GH_PAT", "DB_PASS"]
        {
            check(&[&write(&format!(r#"{{"keyPath":"{secret}","value":1}}"#))], "S");
        }
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
        let check = |arg: &str, expect: &str| assert_eq!(masked_args(&[OsString::from(arg)]), [expect]);
        check("x.api_key=sk-1", "x.api_key=[secret]");
        check("model=gpt", "model=gpt");
        check("max_tokens=5", "max_tokens=5");
        check(r#"mcp_servers.x.env={API_KEY="k"}"#, "mcp_servers.x.env=[secret]");
        check("Authorization: Bearer abc", "[secret]");
        check("sk-abcdefghijklmnopqrst", "[secret]");
        check("--token=t", "--token=[secret]");
        check("AWS_SECRET_ACCESS_KEY=x", "AWS_SECRET_ACCESS_KEY=[secret]");
        check("--listen=postgres://u:pw@h/db", "--listen=[secret]");
        check("密钥ghp_abcdefghijklmnopqrst", "[secret]");
        let args = ["--api-key", "k", "--verbose", "k"].map(OsString::from);
        assert_eq!(masked_args(&args), ["--api-key", "[secret]", "--verbose", "k"]);
    }

    #[test]
    fn a_second_answer_is_as_secret_as_the_first_until_the_id_is_used_again() {
        check(
            &[
                r#">{"id":1,"method":"getAuthStatus"}"#,
                r#"<{"id":1,"result":{}}"#,
                r#"<{"id":1,"result":{}}"#,
                r#">{"id":1,"method":"thread/list"}"#,
                r#"<{"id":1,"result":{}}"#,
            ],
            "SSS..",
        );
    }

    #[test]
    fn the_answer_to_a_secret_request_that_could_not_be_read_is_left_out() {
        check(&[r#">[{"id":1,"method":"getAuthStatus"}]"#, r#"<{"id":1,"result":{"authToken":"t"}}"#], "SS");
        check(&[r#"<label {"method":"account/updated"}"#, r#">{"id":1,"result":{}}"#], "S.");
    }
}
