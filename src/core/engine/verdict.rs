//! Decides what the record omits: a whole line, or some of its values.
//!
//! A line is secret because of its method, because of the keys it writes, because it answers a secret request, or because
//! the server repeats such an answer of the user. Other lines carry credentials in some members ([`Carrier`]);
//! only these are masked. An ambiguous line (a batch, a label, a repeated member) is left out if it may be secret, and so are
//! the answers to the ids in it: a gap in the record is easier to mend than a leaked key.
//!
//! Never changes the forwarded bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::model::Verdict;
use super::open_calls::{CallKey, Calls, Completed, Ids, OpenCall, OpenCalls, ids_in};
use super::requests::answer::asks_secret;
use super::{Form, Omitted, OmittedReason, Warning};
use crate::invariants::holds;
use crate::protocol::{
    Event, Method, Secrecy, may_ask_for_secret, may_write_config, names_method_with_secret_answer,
    names_method_with_secret_members, names_secret_method,
};
use crate::secrets::{Carrier, Values, may_name_credential, names_secret, unescaped, writes_credential};
use crate::wire::{Body, Conn, Members, Message, RpcId, Side};

/// Most items with a secret question that are to recognize the answer when the server repeats it as tool output.
const ASKING_ITEMS_MAX: usize = 256;

/// Longest id of such an item, in bytes of JSON.
const ITEM_ID_BYTES_MAX: usize = 1_024;

/// Longest method or id in the record of an omitted line, in bytes.
const NAMED_BYTES_MAX: usize = 200;

/// Decides on lines, and remembers what later lines repeat.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Secrets {
    /// Items that ask the user for a secret, oldest first, as their ids were written.
    asking_items: VecDeque<String>,
    #[serde(skip)]
    warning: Option<Warning>,
    #[serde(skip)]
    told: Vec<Warning>,
}

/// The secret part of an expected response.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Awaited {
    /// All of it.
    Secret,
    /// Its result carries credentials, or an error repeats those of the request.
    Carries { result: Option<Carrier>, values: Option<Arc<Values>> },
}

/// How much of a line may be recorded, and the call that it opens or completes.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) opened: Option<CallKey>,
    pub(super) completed: Option<Box<OpenCall>>,
}

impl Awaited {
    /// The secret part of a response that may answer any of several calls.
    pub(super) fn of_all(mut each: impl Iterator<Item = Awaited>) -> Option<Awaited> {
        let first = each.next()?;
        Some(each.fold(first, |both, other| match (both, other) {
            (Awaited::Carries { result, .. }, Awaited::Carries { result: other, values: _ }) => {
                Awaited::Carries { result: result.or(other), values: Some(Arc::new(Values::Any)) }
            }
            (_, _) => Awaited::Secret,
        }))
    }

    /// How much of the response may be recorded.
    pub(super) fn verdict(self, response: &Message<'_>) -> Verdict {
        match self {
            Awaited::Secret => Verdict::Secret,
            Awaited::Carries { result, values } => match (response.refusal(), result, values) {
                (Some(_), _, Some(values)) => Verdict::Masked(Carrier::Error(values)),
                (_, Some(result), _) => Verdict::Masked(result),
                (_, None, _) => Verdict::Open,
            },
        }
    }
}

impl Secrets {
    /// Judges a line that `from` wrote, and opens or completes its call.
    pub(super) fn judge(
        &mut self,
        conn: Conn,
        from: Side,
        event: Option<&Event<'_>>,
        line: &[u8],
        calls: &mut Calls,
    ) -> Judged {
        let (own, others) = match from {
            Side::Client => (&mut calls.to_server, &mut calls.to_client),
            Side::Server => (&mut calls.to_client, &mut calls.to_server),
        };
        let mut judged = Judged { verdict: Verdict::Open, opened: None, completed: None };
        match event {
            Some(event) if event.name().is_none() && !event.repeated_member => {
                let Completed { call, verdict } = others.complete(conn, event);
                (judged.completed, judged.verdict) = (call, verdict);
            }
            Some(event) if !event.repeated_member => {
                if event.method == Some(Method::RequestResolved)
                    && let Some(id) = event.params.and_then(Members::of).and_then(|params| params.get("requestId"))
                {
                    own.withdraw(conn, &RpcId::from_raw(id));
                }
                let (verdict, secret) = self.request(event, line);
                let is_secret = secret.is_some();
                judged.verdict = verdict;
                judged.opened = own.open(conn, event, secret);
                if is_secret && own.has_overflowed(conn) {
                    self.warning = Some(Warning::AnswersNotRecorded(from));
                }
            }
            Some(_) | None => {
                judged.verdict = self.unread(conn, from, line, own, others);
                judged.opened =
                    event.filter(|event| event.name().is_some()).and_then(|event| own.open(conn, event, None));
            }
        }
        if from == Side::Server && self.tells_answer(line) {
            judged.verdict = Verdict::Secret;
        }
        judged
    }

    pub(super) fn check(&self) {
        holds!("secrets.asking-items-within-limit", self.asking_items.len() <= ASKING_ITEMS_MAX);
        holds!("secrets.asking-items-are-short", self.asking_items.iter().all(|item| item.len() <= ITEM_ID_BYTES_MAX));
        holds!("secrets.warnings-are-taken", self.warning.is_none());
        // Two kinds of warning for each of two sides.
        holds!("secrets.user-is-warned-once", self.told.len() <= 4);
    }

    /// Whether nothing is remembered that a notification could repeat or that the user has to be told.
    pub(super) fn is_quiet(&self) -> bool {
        self.asking_items.is_empty() && self.warning.is_none()
    }

    /// Whether a line repeats the answer to a secret question: a client may have asked for the model's raw items.
    fn tells_answer(&self, line: &[u8]) -> bool {
        !self.asking_items.is_empty()
            && memmem::find(line, b"call_output").is_some()
            && self.asking_items.iter().any(|item| memmem::find(line, item.as_bytes()).is_some())
    }

    /// A warning for the user; each is returned once per run.
    pub(super) fn take_warning(&mut self) -> Option<Warning> {
        let warning = self.warning.take()?;
        if self.told.contains(&warning) {
            return None;
        }
        self.told.push(warning);
        Some(warning)
    }

    /// How much of a request or a notification may be recorded, and the secret part of the response.
    pub(super) fn request(&mut self, message: &Event<'_>, line: &[u8]) -> (Verdict, Option<Awaited>) {
        let (verdict, awaited) = classes(message, line);
        if matches!((message.id, &awaited), (Some(_), Some(Awaited::Secret))) {
            let item = message.params.and_then(Members::of).and_then(|params| params.get("itemId"));
            if let Some(item) = item.map(RawValue::get).filter(|item| item.len() <= ITEM_ID_BYTES_MAX) {
                if self.asking_items.len() == ASKING_ITEMS_MAX {
                    self.asking_items.pop_front();
                }
                self.asking_items.push_back(item.to_owned());
            }
        }
        (verdict, awaited)
    }

    /// Judges a line that is not a message, or is ambiguous. The other side may read it differently, and answer it.
    fn unread(&mut self, conn: Conn, from: Side, line: &[u8], own: &mut OpenCalls, others: &OpenCalls) -> Verdict {
        let may_answer_one =
            line.contains(&b'{') && (others.awaits_secret(conn) || may_answer_again(conn, line, others));
        if !asks_for_secret(line) {
            return if may_answer_one { Verdict::Secret } else { Verdict::Open };
        }
        match ids_in(line) {
            Ids::These(ids) if ids.is_empty() => {}
            Ids::These(ids) => {
                // A server that cannot read a line may quote it in an error with the id `null`.
                let are_remembered = ids.into_iter().chain([RpcId::null()]).all(|id| own.suspect(conn, id));
                self.warning = Some(match are_remembered {
                    true => Warning::AmbiguousSecret(from),
                    false => Warning::AnswersNotRecorded(from),
                });
            }
            Ids::Unknown => {
                own.suspect_all(conn);
                self.warning = Some(Warning::AnswersNotRecorded(from));
            }
        }
        Verdict::Secret
    }
}

/// Whether an unreadable line may be a second response to a secret call.
fn may_answer_again(conn: Conn, line: &[u8], calls: &OpenCalls) -> bool {
    calls.answered(conn).next().is_some()
        && match ids_in(line) {
            Ids::These(ids) => calls.answered(conn).any(|answered| ids.contains(answered)),
            Ids::Unknown => true,
        }
}

/// How much of a request or a notification may be recorded, and the secret part of its response.
fn classes(message: &Event<'_>, line: &[u8]) -> (Verdict, Option<Awaited>) {
    let method = message.name().unwrap_or_default();
    let params = message.params.map(RawValue::get);
    match Secrecy::of_resolved(message.method, method) {
        Secrecy::Secret => (Verdict::Secret, Some(Awaited::Secret)),
        Secrecy::ConfigWrite => match params.is_some_and(writes_secret) {
            true => (Verdict::Secret, Some(Awaited::Secret)),
            false => (Verdict::Open, None),
        },
        Secrecy::Question => (Verdict::Open, params.is_some_and(asks_secret).then_some(Awaited::Secret)),
        Secrecy::Form => {
            let form = Carrier::of_form(params.unwrap_or_default());
            (Verdict::Open, Some(Awaited::Carries { result: Some(form), values: None }))
        }
        Secrecy::Members => {
            let carrier = Carrier::of_params(method);
            let values = carrier.values(line);
            let verdict = if values.is_some() { Verdict::Masked(carrier) } else { Verdict::Open };
            let result = Carrier::of_result(method);
            let is_awaited = values.is_some() || result.is_some();
            (verdict, is_awaited.then_some(Awaited::Carries { result, values }))
        }
        Secrecy::Open => (Verdict::Open, None),
    }
}

/// Whether an unreadable line may carry a credential, or ask for one.
fn asks_for_secret(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let text = unescaped(&text);
    names_secret_method(&text)
        || (may_write_config(&text) && (names_secret(&text) || may_name_credential(&text)))
        || (names_method_with_secret_members(&text) && may_name_credential(&text))
        || names_method_with_secret_answer(&text)
        || may_ask_for_secret(&text)
}

/// Whether a configuration write has a value under a key that names a secret, or at a path for credentials.
fn writes_secret(params: &str) -> bool {
    match serde_json::from_str::<Value>(params) {
        Ok(params) => under_secret_key(&params),
        Err(_) => true,
    }
}

fn under_secret_key(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            let at_place = members
                .get("keyPath")
                .and_then(Value::as_str)
                .is_some_and(|path| writes_credential(path, members.get("value").unwrap_or(&Value::Null)));
            at_place
                || members.iter().any(|(key, value)| {
                    let path = key == "keyPath" && value.as_str().is_none_or(names_secret);
                    path || names_secret(key) || under_secret_key(value)
                })
        }
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

#[cfg(test)]
mod tests {
    use super::super::open_calls::CALLS_MAX;
    use super::*;

    /// Each line starts with its sender: `>` client, `<` server. `expect` has a character for each: `S` secret, `M` masked,
    /// `.` open.
    fn check(script: &[&str], expect: &str) {
        let (mut secrets, mut calls) = (Secrets::default(), Calls::new("own:".to_owned()));
        let verdicts: String = script
            .iter()
            .map(|step| {
                let from = if step.starts_with('>') { Side::Client } else { Side::Server };
                let line = &step.as_bytes()[1..];
                match secrets
                    .judge(Conn::OWN, from, super::super::event_in(&Body::parse(line)).as_ref(), line, &mut calls)
                    .verdict
                {
                    Verdict::Secret => 'S',
                    Verdict::Masked(_) => 'M',
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
            (0..=CALLS_MAX).map(|id| format!(r#">{{"id":{id},"method":"getAuthStatus"}}"#)).collect();
        script.push(format!(r#"<{{"id":{CALLS_MAX},"result":{{}}}}"#));
        let mut expect = "S".repeat(script.len());
        script.push(r#"<{"method":"turn/started"}"#.to_owned());
        expect.push('.');
        check(&script.iter().map(String::as_str).collect::<Vec<_>>(), &expect);
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
    fn ambiguous_line_hides_only_its_own_answers() {
        let plain = [r#">{"id":8,"method":"thread/list"}"#, r#"<{"id":8,"result":{}}"#];
        let check = |asks: &str, answer: &str| check(&[asks, plain[0], plain[1], answer, plain[0], plain[1]], "S..S..");
        let answer = r#"<{"id":1,"result":{"token":"t"}}"#;
        check(r#">[{"id":1,"method":"account/read","params":{"id":8}}]"#, answer);
        check(r#">[{"id":1,"method":"acc\u006funt/read"}]"#, answer);
        check(r#">{"id":7,"method":"account/read","id":1}"#, answer);
        check(r#">{"id":1,"method":"x","method":"account\/read"}"#, answer);
        check(r#">{"\u0069d":1,"method":"account/read","method":"x"}"#, answer);
        check(r#">label {"id":1,"method":"account/read"}"#, answer);
        check(r#">{"id":1,"method":"account/read"} tail"#, answer);
        check(r#">[{"id":1.0,"method":"account/read"}]"#, answer);
        check(r#">[{"id":1,"method":"config/read"}]"#, r#"<[{"id":1,"result":{"env":{"A":"t"}}}]"#);
        check(r#">[{"id":1,"method":"account/read"}]"#, r#"<{"id":null,"error":{"message":"in {token}"}}"#);
    }

    #[test]
    fn ambiguous_question_hides_its_answer() {
        let asks = |params: &str| format!(r#"<[{{"id":1,"method":"item/tool/requestUserInput","params":{params}}}]"#);
        let answer = r#">{"id":1,"result":{"answers":{}}}"#;
        check(&[&asks(r#"{"questions":[{"isSecret":true}]}"#), answer, r#">{"id":2,"result":{}}"#], "SS.");
        check(&[r#"<[{"id":1,"method":"mcpServer/elicitation/request"}]"#, answer, r#">{"id":2,"result":{}}"#], "SS.");
    }

    #[test]
    fn ids_that_cannot_be_read_hide_every_answer() {
        let script = [r#">{'id': 'a', 'method': 'account/read'}"#, r#"<{"id":8,"result":{}}"#];
        check(&script, "SS");
        let warnings = |script: &[&str]| {
            let (mut secrets, mut calls) = (Secrets::default(), Calls::new("own:".to_owned()));
            let judged = script.iter().filter_map(|line| {
                let bytes = line.as_bytes();
                let body = Body::parse(&bytes[1..]);
                secrets.judge(Conn::OWN, Side::Client, super::super::event_in(&body).as_ref(), &bytes[1..], &mut calls);
                secrets.take_warning()
            });
            judged.collect::<Vec<_>>()
        };
        assert_eq!(warnings(&[script[0], script[0]]), [Warning::AnswersNotRecorded(Side::Client)]);
        let batch = r#">[{"id":1,"method":"account/read"}]"#;
        assert_eq!(warnings(&[batch, batch]), [Warning::AmbiguousSecret(Side::Client)]);
        assert_eq!(warnings(&[r#">label account/read"#, r#">[{"id":1,"method":"turn/start"}]"#]), []);
    }

    #[test]
    fn withdrawn_forms_do_not_fill_the_memory() {
        let ask = |id: usize| format!(r#"<{{"id":{id},"method":"mcpServer/elicitation/request","params":{{}}}}"#);
        let resolved = |id: usize| format!(r#"<{{"method":"serverRequest/resolved","params":{{"requestId":{id}}}}}"#);
        let mut script: Vec<String> = (0..=CALLS_MAX).flat_map(|id| [ask(id), resolved(id)]).collect();
        let mut expect = ".".repeat(script.len());
        // A late answer to the last form is still masked; any other answer is recorded whole.
        script.push(format!(r#">{{"id":{CALLS_MAX},"result":{{"content":{{}}}}}}"#));
        script.push(r#">{"id":"x","result":{}}"#.to_owned());
        expect.push_str("M.");
        check(&script.iter().map(String::as_str).collect::<Vec<_>>(), &expect);
    }

    #[test]
    fn second_unreadable_answer_is_left_out_too() {
        check(
            &[
                r#">{"id":1,"method":"getAuthStatus"}"#,
                r#"<{"id":1,"result":{"authToken":"t"}}"#,
                r#"<label {"id":1,"result":{"authToken":"t"}}"#,
                r#"<label {"id":2}"#,
            ],
            "SSS.",
        );
    }

    #[test]
    fn the_answer_to_a_secret_request_that_could_not_be_read_is_left_out() {
        check(&[r#">[{"id":1,"method":"getAuthStatus"}]"#, r#"<{"id":1,"result":{"authToken":"t"}}"#], "SS");
        check(&[r#"<label {"method":"account/updated"}"#, r#">{"id":1,"result":{}}"#], "S.");
    }
}
