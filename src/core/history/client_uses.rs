//! The uses of the server's protocol by clients: calls, their members and constants, and answers to the server's requests. `drift`
//! compares them with another version of the protocol.
//!
//! Only names and types are stored, and constants of members that are constants in every version of the protocol: no free text, no id
//! and no secret.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::identity::Identities;
use super::record_event::{MethodMessage, RecordEvent, Seen};
use crate::journal::Origin;
use crate::protocol::{Method, named};
use crate::secrets::redacted;
use crate::wire::Side;

/// Most members of one message that are stored.
const MEMBERS_MAX: usize = 256;

/// How deep members are looked at.
const DEPTH_MAX: usize = 8;

/// Elements of a list that are looked at; the others are like them.
const ELEMENTS_MAX: usize = 16;

/// Longest name and constant that is stored, in bytes.
const NAME_BYTES_MAX: usize = 48;

/// Longest path of a member that is looked at, in bytes.
const PATH_BYTES_MAX: usize = 200;

/// Open requests of the server whose methods are remembered; the oldest is forgotten.
const ASKED_MAX: usize = 64;

/// Different uses in one batch of rows.
const USES_MAX: usize = 4_096;

/// Members with strings that are constants wherever codex 0.77 to 0.171 take them from a client.
const CONSTANTS: [&str; 43] = [
    "access",
    "action",
    "appBrand",
    "approvalPolicy",
    "approvalsReviewer",
    "audience",
    "clientRegistration",
    "codexResponseHandoffMode",
    "creditType",
    "cyberAccessProgram",
    "decision",
    "delivery",
    "detail",
    "discoverability",
    "format",
    "historyMode",
    "itemType",
    "itemsView",
    "kind",
    "match_type",
    "mergeStrategy",
    "method",
    "mode",
    "multiAgentMode",
    "networkAccess",
    "network_access",
    "order",
    "origin",
    "outputModality",
    "personality",
    "phase",
    "principalType",
    "protectionPolicy",
    "protocol",
    "reasoningEffort",
    "sandbox",
    "scope",
    "sessionStartSource",
    "sortDirection",
    "sortKey",
    "summary",
    "type",
    "voice",
];

/// Members whose own members a client, a user or a server of tools chooses: maps, and JSON of any form. Source: as above.
const FREE: [&str; 23] = [
    "_meta",
    "additionalContext",
    "answers",
    "arguments",
    "codexResponseHandoffChannelPrefixes",
    "config",
    "content",
    "enablement",
    "env",
    "event",
    "extensions",
    "fileChanges",
    "headers",
    "inputSchema",
    "items",
    "metadata",
    "outputSchema",
    "payload",
    "properties",
    "responsesapiClientMetadata",
    "responsesapiClientMetadataPatch",
    "tags",
    "value",
];

named! {
    /// The role of a method.
    #[derive(PartialOrd, Ord, Hash)]
    pub open enum ClientUseKind {
        /// It calls the method.
        Call = "call",
        /// It answers a request of the method.
        Answer = "answer",
        /// It wants no notification of the method.
        OptOut = "opt_out",
    }
}

/// Something that a client uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientUseKey {
    pub client: String,
    /// Empty if it has not told one.
    pub version: String,
    pub kind: ClientUseKind,
    pub method: String,
    /// The path of a member, such as `input[].type`; empty for the method itself.
    pub member: String,
    /// The type of its value in JSON, or a constant in quotes. Of the method itself: empty, or `error` for a refusal.
    pub value: String,
}

/// How often, and when last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientUsed {
    pub count: u64,
    /// In microseconds since the Unix epoch.
    pub last_us: u64,
}

pub type ClientUseRows = BTreeMap<ClientUseKey, ClientUsed>;

/// State between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClientUses {
    /// The ids and methods of the server's open requests, oldest first.
    asked: VecDeque<(String, String)>,
}

impl ClientUses {
    /// Processes a record, which the identities know already.
    pub(super) fn take(&mut self, seen: &Seen<'_>, identities: &Identities, rows: &mut ClientUseRows) {
        let is_clients = seen.by == Origin::Side(Side::Client);
        let found = match &seen.event {
            RecordEvent::ServerRequest { message, id } => {
                self.asked.push_back((id.to_string(), message.method.clone().into_owned()));
                if self.asked.len() > ASKED_MAX {
                    self.asked.pop_front();
                }
                return;
            }
            RecordEvent::ClientRequest { message, id: _ } if is_clients => Found::of_call(message),
            // Somebody else may have been faster: it is what this client answers all the same.
            RecordEvent::Answer { id, result } if is_clients => match self.answered(&id.to_string()) {
                Some(method) => Found::of_answer(&method, *result),
                None => return,
            },
            RecordEvent::ClientRequest { .. }
            | RecordEvent::Answer { .. }
            | RecordEvent::Generation(_)
            | RecordEvent::Notification(_)
            | RecordEvent::Response { .. }
            | RecordEvent::ShimEvent { .. }
            | RecordEvent::Gap { .. }
            | RecordEvent::Other => return,
        };
        let (client, version) = identities.named(seen.conn);
        for (kind, method, member, value) in found.uses {
            let (client, version) = (client.to_owned(), version.to_owned());
            let used = ClientUsed { count: 1, last_us: seen.at_us };
            add_use(rows, USES_MAX, ClientUseKey { client, version, kind, method, member, value }, used);
        }
    }

    /// The method of a request that is answered now.
    fn answered(&mut self, id: &str) -> Option<String> {
        let at = self.asked.iter().position(|(asked, _)| asked == id)?;
        self.asked.remove(at).map(|(_, method)| method)
    }
}

/// Adds to a use, if it is there or `uses_max` are not.
pub fn add_use(rows: &mut ClientUseRows, uses_max: usize, key: ClientUseKey, used: ClientUsed) {
    if rows.len() >= uses_max && !rows.contains_key(&key) {
        return;
    }
    let sum = rows.entry(key).or_default();
    (sum.count, sum.last_us) = (sum.count + used.count, sum.last_us.max(used.last_us));
}

/// The uses in one message, without repetitions.
#[derive(Debug, Default)]
struct Found {
    uses: Vec<(ClientUseKind, String, String, String)>,
}

impl Found {
    fn of_call(message: &MethodMessage<'_>) -> Found {
        let (mut found, method) = (Found::default(), &*message.method);
        if !is_constant(method) {
            return found;
        }
        found.add(ClientUseKind::Call, method, "", "");
        if let Some(params) = message.params.written() {
            found.add_all(ClientUseKind::Call, method, params);
        }
        if message.known == Some(Method::Initialize) {
            for method in opted_out(message).unwrap_or_default() {
                found.add(ClientUseKind::OptOut, &method, "", "");
            }
        }
        found
    }

    fn of_answer(method: &str, result: Option<&RawValue>) -> Found {
        let mut found = Found::default();
        if !is_constant(method) {
            return found;
        }
        found.add(ClientUseKind::Answer, method, "", if result.is_none() { "error" } else { "" });
        if let Some(result) = result {
            found.add_all(ClientUseKind::Answer, method, result.get());
        }
        found
    }

    fn add(&mut self, kind: ClientUseKind, method: &str, member: &str, value: &str) {
        self.uses.push((kind, method.to_owned(), member.to_owned(), value.to_owned()));
    }

    fn add_all(&mut self, kind: ClientUseKind, method: &str, json: &str) {
        for (member, value) in members(json) {
            self.add(kind, method, &member, &value);
        }
    }
}

/// The methods of which a client wants no notifications.
fn opted_out(message: &MethodMessage<'_>) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Initialize {
        capabilities: Option<Capabilities>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Capabilities {
        opt_out_notification_methods: Option<Vec<String>>,
    }
    let mut methods = message.params.read::<Initialize>()?.capabilities?.opt_out_notification_methods?;
    methods.truncate(MEMBERS_MAX);
    methods.retain(|method| is_constant(method));
    Some(methods)
}

/// The members of a value with the types and constants of theirs; the value itself has no name.
fn members(json: &str) -> BTreeSet<(String, String)> {
    let (mut path, mut found) = (String::new(), BTreeSet::new());
    let look = Look { path: &mut path, found: &mut found, depth: 0, is_constant: false };
    // After a syntax error the members so far count.
    let _ = look.deserialize(&mut serde_json::Deserializer::from_str(json));
    found
}

fn is_name(name: &str) -> bool {
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_of_names)
}

/// Whether a text looks like a constant or a method, and like no secret.
fn is_constant(text: &str) -> bool {
    let is_of_constants = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/');
    let begins = text.starts_with(|char: char| char.is_ascii_alphabetic());
    begins && text.len() <= NAME_BYTES_MAX && text.bytes().all(is_of_constants) && redacted(text).is_none()
}

/// Looks at one value.
struct Look<'l> {
    path: &'l mut String,
    found: &'l mut BTreeSet<(String, String)>,
    depth: usize,
    /// Its strings are constants.
    is_constant: bool,
}

impl Look<'_> {
    fn add(&mut self, value: &str) {
        if self.found.len() < MEMBERS_MAX {
            self.found.insert((self.path.clone(), value.to_owned()));
        }
    }

    fn within<R>(&mut self, part: &str, is_constant: bool, look: impl FnOnce(Look<'_>) -> R) -> R {
        let before = self.path.len();
        if before > 0 && part != "[]" {
            self.path.push('.');
        }
        self.path.push_str(part);
        let looked = look(Look { path: self.path, found: self.found, depth: self.depth + 1, is_constant });
        self.path.truncate(before);
        looked
    }
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(mut self, _: bool) -> Result<(), E> {
        self.add("boolean");
        Ok(())
    }

    fn visit_i64<E>(mut self, _: i64) -> Result<(), E> {
        self.add("integer");
        Ok(())
    }

    fn visit_u64<E>(mut self, _: u64) -> Result<(), E> {
        self.add("integer");
        Ok(())
    }

    fn visit_f64<E>(mut self, _: f64) -> Result<(), E> {
        self.add("number");
        Ok(())
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        self.add("null");
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        match self.is_constant && is_constant(text) {
            true => self.add(&format!("\"{text}\"")),
            false => self.add("string"),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        self.add("array");
        let (mut count, is_constant) = (0, self.is_constant);
        while count < ELEMENTS_MAX && self.depth < DEPTH_MAX {
            let looked = self.within("[]", is_constant, |look| elements.next_element_seed(look))?;
            if looked.is_none() {
                return Ok(());
            }
            count += 1;
        }
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        self.add("object");
        let name = self.path.rsplit('.').next().map(|name| name.trim_end_matches("[]"));
        let is_free = name.is_some_and(|name| FREE.contains(&name)) || self.path.len() > PATH_BYTES_MAX;
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            if is_free || self.depth >= DEPTH_MAX || !is_name(&name) {
                members.next_value::<IgnoredAny>()?;
            } else {
                let is_constant = CONSTANTS.contains(&&*name);
                self.within(&name, is_constant, |look| members.next_value_seed(look))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fold, Rows};
    use super::*;
    use crate::journal::{Position, Record, SegmentName};

    fn check(json: &str, expect: &[&str]) {
        let found: Vec<String> = members(json).iter().map(|(member, value)| format!("{member}={value}")).collect();
        assert_eq!(found, expect, "{json}");
    }

    #[test]
    fn members_have_types_and_constants_and_no_text() {
        check(
            r#"{"threadId":"t","input":[{"type":"text","text":"never"},{"type":"image","url":"data:"}],"approvalPolicy":"on-request"}"#,
            &[
                "=object",
                "approvalPolicy=\"on-request\"",
                "input=array",
                "input[]=object",
                "input[].text=string",
                "input[].type=\"image\"",
                "input[].type=\"text\"",
                "input[].url=string",
                "threadId=string",
            ],
        );
        // Other strings are text.
        check(r#"{"mode":"my dog","type":"x\ny"}"#, &["=object", "mode=string", "type=string"]);
        // Names chosen by users, and the fields of a form, do not belong to the protocol.
        check(
            r#"{"config":{"a.b":1,"env":{"SECRET":"x"}},"a b":1,"env":{"PASSWORD":"x"}}"#,
            &["=object", "config=object", "env=object"],
        );
        check(
            r#"{"action":"accept","content":{"access":"hunter2"}}"#,
            &["=object", "action=\"accept\"", "content=object"],
        );
        check(
            r#"{"edits":[{"value":{"ACME":1},"mergeStrategy":"replace"}],"items":[{"role":"user"}]}"#,
            &[
                "=object",
                "edits=array",
                "edits[]=object",
                "edits[].mergeStrategy=\"replace\"",
                "edits[].value=object",
                "items=array",
                "items[]=object",
            ],
        );
        let secret = format!("sk-proj-{}", "Ab9".repeat(12));
        check(
            &format!(r#"{{"mode":"{secret}","kind":"/root/x","type":"a.b"}}"#),
            &["=object", "kind=string", "mode=string", "type=string"],
        );
        check(
            r#"{"a":{"b":[1,2.5,null,true]}}"#,
            &["=object", "a=object", "a.b=array", "a.b[]=boolean", "a.b[]=integer", "a.b[]=null", "a.b[]=number"],
        );
        check("null", &["=null"]);
        check("{\"a\":", &["=object"]);
    }

    #[test]
    fn members_are_bounded() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100));
        assert_eq!(members(&deep).len(), DEPTH_MAX + 1);
        let long = format!("{}1{}", format!("{{\"{}\":", "n".repeat(NAME_BYTES_MAX)).repeat(100), "}".repeat(100));
        assert!(members(&long).iter().all(|(member, _)| member.len() <= PATH_BYTES_MAX + NAME_BYTES_MAX + 1));
        let wide: Vec<String> = (0..5_000).map(|number| format!("\"m{number}\":1")).collect();
        assert_eq!(members(&format!("{{{}}}", wide.join(","))).len(), MEMBERS_MAX);
        let long = format!("[{}1]", "1,".repeat(100_000));
        assert_eq!(members(&long).len(), 2);
    }

    /// The uses in these records, with counts.
    fn uses(records: &[&str]) -> Vec<String> {
        let (mut fold, mut rows) = (Fold::default(), Rows::default());
        let segment = SegmentName::parse("000000000001-001.jsonl").expect("BUG: the name is one");
        for (offset, record) in (0..).zip(records) {
            let record = Record::parse(record.as_bytes()).expect("BUG: a test gives records");
            fold.take(&Position { segment: segment.clone(), offset }, &Seen::of(&record, None), &mut rows);
        }
        let row = |(key, used): (&ClientUseKey, &ClientUsed)| {
            let ClientUseKey { client, version, kind, method, member, value } = key;
            format!("{client} {version} {} {method} {member} {value} {}", kind.name(), used.count)
        };
        rows.uses.iter().map(row).collect()
    }

    #[test]
    fn uses_belong_to_their_client() {
        let initialize = r#"{"at":1,"from":"client","line":{"id":0,"method":"initialize","params":{"clientInfo":{"name":"ed","version":"1"},"capabilities":{"optOutNotificationMethods":["a/b"]}}}}"#;
        let records = [
            r#"{"at":1,"from":"client","line":{"id":9,"method":"early"}}"#,
            initialize,
            r#"{"at":2,"from":"client","line":{"id":1,"method":"x","params":{"a":1}}}"#,
            r#"{"at":3,"from":"client","line":{"id":2,"method":"x","params":{"a":1}}}"#,
            r#"{"at":4,"from":"server","line":{"id":0,"method":"ask","params":{}}}"#,
            r#"{"at":5,"from":"client","line":{"id":0,"result":{"decision":"accept"}}}"#,
            r#"{"at":6,"from":"server","line":{"id":1,"method":"other"}}"#,
            r#"{"at":7,"from":"client","line":{"id":1,"error":{"code":-32601,"message":"no"}}}"#,
            // Ours, and an answer to nothing.
            r#"{"at":8,"from":"shim","to":"server","line":{"id":"codex-shim:1","method":"y"}}"#,
            r#"{"at":9,"from":"client","line":{"id":77,"result":{}}}"#,
        ];
        let uses = uses(&records);
        let of_ed: Vec<&str> = uses.iter().filter_map(|row| row.strip_prefix("ed 1 ")).collect();
        assert_eq!(
            of_ed,
            [
                "call initialize   1",
                "call initialize  object 1",
                "call initialize capabilities object 1",
                "call initialize capabilities.optOutNotificationMethods array 1",
                "call initialize capabilities.optOutNotificationMethods[] string 1",
                "call initialize clientInfo object 1",
                "call initialize clientInfo.name string 1",
                "call initialize clientInfo.version string 1",
                "call x   2",
                "call x  object 2",
                "call x a integer 2",
                "answer ask   1",
                "answer ask  object 1",
                "answer ask decision \"accept\" 1",
                "answer other  error 1",
                "opt_out a/b   1",
            ]
        );
        assert_eq!(uses.len() - of_ed.len(), 1, "{uses:?}");
    }
}
