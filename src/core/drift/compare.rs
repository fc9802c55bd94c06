//! Compares the uses of clients with two protocols.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::schema::{Fit, Node, Schema};
use crate::api::ClientUse;
use crate::history::ClientUseKind;
use crate::protocol::named;

/// How deep results are compared.
const RESULT_DEPTH_MAX: usize = 4;

/// Methods that codex serves although its schemas lack them. Source: 0.125 to 0.171.
const UNLISTED: [&str; 1] = ["gitDiffToRemote"];

/// Most values that an advice lists.
const LISTED_MAX: usize = 8;

named! {
    /// The fate of a use, the worst first.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum FindingKind {
        /// The call fails.
        Rejected = "rejected",
        /// Codex asks something new, which this client does not answer.
        Unanswered = "unanswered",
        /// A result has lost a member, or its type.
        Changed = "changed",
        /// A member has no effect any more.
        Ignored = "ignored",
        /// A method that codex-shim itself does not know.
        UnknownToUs = "unknown_to_us",
    }
}

/// Something that another codex takes otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub client: String,
    pub version: String,
    pub kind: FindingKind,
    pub method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// How often it was used.
    pub count: u64,
    pub last_used_at: Option<String>,
    pub advice: String,
}

impl Finding {
    /// Whether a call fails that the client makes.
    pub fn breaks(&self) -> bool {
        self.kind == FindingKind::Rejected
    }

    /// Whether it depends on the client: on what it reads of a result, or whether it answers what it was never asked.
    pub fn may_break(&self) -> bool {
        matches!(self.kind, FindingKind::Unanswered | FindingKind::Changed)
    }
}

/// How often, and when last.
#[derive(Debug, Clone, Default)]
struct Used {
    count: u64,
    last_at: Option<String>,
}

impl Used {
    fn add(&mut self, count: u64, last_at: &str) {
        self.count += count;
        if self.last_at.as_deref().is_none_or(|before| before < last_at) {
            self.last_at = Some(last_at.to_owned());
        }
    }
}

/// The uses of one method by one client, by member and value.
type OfMethod = BTreeMap<(String, String), Used>;

/// The uses of all clients, summed over sessions.
#[derive(Debug, Clone, Default)]
pub struct Uses(BTreeMap<(String, String), BTreeMap<(ClientUseName, String), OfMethod>>);

/// Kinds of uses that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ClientUseName {
    Call,
    Answer,
}

impl Uses {
    pub fn add(&mut self, uses: Vec<ClientUse>) {
        for ClientUse { client, version, kind, method, member, value, count, last_used_at } in uses {
            let name = match kind {
                ClientUseKind::Call => ClientUseName::Call,
                ClientUseKind::Answer => ClientUseName::Answer,
                ClientUseKind::OptOut | ClientUseKind::Newer(_) => continue,
            };
            let of_client = self.0.entry((client, version)).or_default();
            let of_method = of_client.entry((name, method)).or_default();
            of_method.entry((member, value)).or_default().add(count, &last_used_at);
        }
    }

    /// Leaves the clients of this name.
    pub fn retain_client(&mut self, name: &str) {
        self.0.retain(|(client, _), _| client == name);
    }

    /// The names and versions of the clients.
    pub fn clients(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.keys().map(|(client, version)| (&**client, &**version))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The differences between `from` and `to` that concern a client: the worst client first. Without `from`, all uses count as taken before.
#[must_use]
pub fn findings(uses: &Uses, from: Option<&Schema>, to: &Schema) -> Vec<Finding> {
    let mut all = Vec::new();
    for ((client, version), methods) in &uses.0 {
        let compared = Compared { client, version, from, to };
        let mut found: Vec<Finding> =
            methods.iter().flat_map(|((name, method), used)| compared.method(*name, method, used)).collect();
        found.extend(compared.unanswered(methods));
        found.sort_by(|a, b| (a.kind, &a.method, &a.member, &a.value).cmp(&(b.kind, &b.method, &b.member, &b.value)));
        all.extend(found);
    }
    worst_first(all)
}

/// Adds the findings of a playback that are not known yet.
#[must_use]
pub fn with_played(mut all: Vec<Finding>, played: Vec<Finding>) -> Vec<Finding> {
    for finding in played {
        let is_same = |known: &Finding| {
            (&known.client, &known.version, &known.method) == (&finding.client, &finding.version, &finding.method)
                && known.kind == finding.kind
                && (known.member == finding.member || finding.breaks())
        };
        if !all.iter().any(is_same) {
            all.push(finding);
        }
    }
    worst_first(all)
}

/// The clients with the worst findings come first.
fn worst_first(all: Vec<Finding>) -> Vec<Finding> {
    let worst = |finding: &Finding| (finding.client.clone(), finding.version.clone());
    let mut by_client: BTreeMap<(String, String), Vec<Finding>> = BTreeMap::new();
    all.into_iter().for_each(|finding| by_client.entry(worst(&finding)).or_default().push(finding));
    let mut clients: Vec<Vec<Finding>> = by_client.into_values().collect();
    let weight = |findings: &Vec<Finding>| {
        let count = |kind| findings.iter().filter(|finding| finding.kind == kind).count();
        FindingKind::ALL.map(count)
    };
    clients.sort_by_key(|findings| std::cmp::Reverse(weight(findings)));
    clients.into_iter().flatten().collect()
}

/// A client between two protocols.
struct Compared<'c> {
    client: &'c str,
    version: &'c str,
    from: Option<&'c Schema>,
    to: &'c Schema,
}

impl Compared<'_> {
    fn finding(&self, kind: FindingKind, method: &str, used: &Used, advice: String) -> Finding {
        Finding {
            client: self.client.to_owned(),
            version: self.version.to_owned(),
            kind,
            method: method.to_owned(),
            member: None,
            value: None,
            count: used.count,
            last_used_at: used.last_at.clone(),
            advice,
        }
    }

    /// The findings of one method.
    fn method(&self, name: ClientUseName, method: &str, used: &OfMethod) -> Vec<Finding> {
        let (before, after) = match name {
            ClientUseName::Call => (self.from.and_then(|from| from.call(method)), self.to.call(method)),
            // The other codex never asks it.
            ClientUseName::Answer if self.to.asked(method).is_none() => return Vec::new(),
            ClientUseName::Answer => (self.from.and_then(|from| from.result_of(method)), self.to.result_of(method)),
        };
        let is_known = self.from.is_none() || before.is_some();
        let Some(after) = after else {
            let is_gone = is_known && name == ClientUseName::Call && !UNLISTED.contains(&method);
            return is_gone.then(|| self.gone(method, used)).into_iter().collect();
        };
        let mut found: Vec<Finding> = Vec::new();
        // Codex ignores parameters where the schema declares none.
        for ((member, value), of_value) in used.iter().filter(|((member, _), _)| !member.is_empty()) {
            let is_outer =
                |finding: &&mut Finding| finding.member.as_deref().is_some_and(|outer| is_below(member, outer));
            if let Some(outer) = found.iter_mut().find(is_outer) {
                // Another value of a member that has no effect at all.
                if outer.kind == FindingKind::Ignored && outer.member.as_ref() == Some(member) {
                    outer.count += of_value.count;
                }
                if outer.kind == FindingKind::Ignored || outer.member.as_ref() != Some(member) {
                    continue;
                }
            }
            let fit = after.fit(member, value);
            let fit_before = before.map_or(Fit::Taken, |before| before.fit(member, value));
            let kind = match fit {
                Fit::Rejected if fit_before > fit => FindingKind::Rejected,
                // Without the schema of before, it may have been so always. A member without a value has no effect anywhere.
                Fit::Ignored if before.is_some() && fit_before > fit && value != "null" => FindingKind::Ignored,
                Fit::Rejected | Fit::Ignored | Fit::Taken => continue,
            };
            let advice = advice(kind, after, member, value);
            let mut finding = self.finding(kind, method, of_value, advice);
            finding.member = Some(member.clone());
            finding.value = (kind == FindingKind::Rejected).then(|| value.trim_matches('"').to_owned());
            found.push(finding);
        }
        found.extend(self.lacking(method, used, before, after));
        if name == ClientUseName::Call {
            found.extend(self.changed(method, used));
        }
        found
    }

    fn gone(&self, method: &str, used: &OfMethod) -> Finding {
        let whole = used.get(&(String::new(), String::new())).cloned().unwrap_or_default();
        let advice = "this codex has no such method: update the client first".to_owned();
        self.finding(FindingKind::Rejected, method, &whole, advice)
    }

    /// Members that are required now, and that this client leaves out.
    fn lacking(&self, method: &str, used: &OfMethod, before: Option<Node<'_>>, after: Node<'_>) -> Vec<Finding> {
        let mut found = Vec::new();
        let objects = used.iter().filter(|((_, value), _)| value == "object");
        for ((object, _), of_object) in objects {
            let required_before = before.map(|before| before.required(object)).unwrap_or_default();
            for name in after.required(object).into_iter().filter(|name| !required_before.contains(name)) {
                let member = if object.is_empty() { name.to_owned() } else { format!("{object}.{name}") };
                let given: u64 =
                    used.iter().filter(|((given, _), _)| *given == member).map(|(_, used)| used.count).sum();
                if given < of_object.count {
                    let lacks = Used { count: of_object.count - given, ..of_object.clone() };
                    let advice = "this codex needs this member, which the client leaves out: update the client first";
                    let mut finding = self.finding(FindingKind::Rejected, method, &lacks, advice.to_owned());
                    finding.member = Some(member);
                    found.push(finding);
                }
            }
        }
        found
    }

    /// Members that the result of a call had always, and that are gone or have another type.
    fn changed(&self, method: &str, used: &OfMethod) -> Vec<Finding> {
        let before = self.from.and_then(|from| from.result_of(method));
        let (Some(before), Some(after)) = (before, self.to.result_of(method)) else { return Vec::new() };
        let mut members = Vec::new();
        differing(before, after, "", RESULT_DEPTH_MAX, &mut members);
        let whole = used.get(&(String::new(), String::new())).cloned().unwrap_or_default();
        let finding = |(member, how): (String, String)| {
            let advice = format!("{how} in the result; see whether the client reads it");
            let mut finding = self.finding(FindingKind::Changed, method, &whole, advice);
            finding.member = Some(member);
            finding
        };
        members.into_iter().map(finding).collect()
    }

    /// Requests that only `to` makes, for a client that answers others.
    fn unanswered(&self, methods: &BTreeMap<(ClientUseName, String), OfMethod>) -> Vec<Finding> {
        let Some(from) = self.from else { return Vec::new() };
        let answers = |(name, _): &&(ClientUseName, String)| *name == ClientUseName::Answer;
        if !methods.keys().any(|key| answers(&key)) {
            return Vec::new();
        }
        let known: BTreeSet<&str> = from.requests().collect();
        let is_answered = |method: &str| {
            let used = methods.get(&(ClientUseName::Answer, method.to_owned()));
            used.is_some_and(|used| used.keys().any(|(member, value)| member.is_empty() && value.is_empty()))
        };
        let new = self.to.requests().filter(|method| !known.contains(method) && !is_answered(method));
        let advice = "this codex may ask it, and waits for an answer that this client has never given";
        new.map(|method| self.finding(FindingKind::Unanswered, method, &Used::default(), advice.to_owned())).collect()
    }
}

/// Whether a member is `outer` or below it.
fn is_below(member: &str, outer: &str) -> bool {
    member.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn advice(kind: FindingKind, after: Node<'_>, member: &str, value: &str) -> String {
    if kind == FindingKind::Ignored {
        return "this codex does not know the member, and ignores it".to_owned();
    }
    let constants = after.constants_at(member);
    if value.starts_with('"') && !constants.is_empty() {
        let listed = constants.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
        let more = if constants.len() > LISTED_MAX { ", …" } else { "" };
        return format!("this codex takes {listed}{more}: update the client, or its settings, first");
    }
    match after.types_at(member) {
        Some(types) if !types.is_empty() => format!("this codex takes {}: update the client first", types.join(" or ")),
        Some(_) | None => "this codex refuses the member: update the client first".to_owned(),
    }
}

/// Adds the members that `before` always has, and that are gone or have no type in common in `after`.
fn differing(before: Node<'_>, after: Node<'_>, path: &str, depth: usize, found: &mut Vec<(String, String)>) {
    for (name, member) in before.certain() {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match after.member(name) {
            Err(()) => found.push((path, "it is gone".to_owned())),
            Ok(None) => {}
            Ok(Some(now)) => {
                let (Some(types), Some(types_now)) = (member.all_types(), now.all_types()) else { continue };
                if !types.iter().any(|of| types_now.contains(of)) {
                    found.push((path, format!("it is {} instead of {}", types_now.join(" or "), types.join(" or "))));
                } else if depth > 1 {
                    differing(member, now, &path, depth - 1, found);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn schema(calls: Value, asks: Value, definitions: Value, results: &[(&str, Value)]) -> Schema {
        let union = |messages: &Value| {
            let messages = messages.as_object().expect("BUG: a test gives an object").iter();
            let message = |(method, params): (&String, &Value)| json!({"properties": {"method": {"enum": [method]}, "params": params}});
            json!({"oneOf": messages.map(message).collect::<Vec<_>>(), "definitions": definitions})
        };
        let mut files = vec![
            ("ClientRequest.json".to_owned(), union(&calls).to_string().into_bytes()),
            ("ServerRequest.json".to_owned(), union(&asks).to_string().into_bytes()),
            ("ServerNotification.json".to_owned(), union(&json!({"told": {}})).to_string().into_bytes()),
        ];
        files.extend(results.iter().map(|(name, result)| (format!("v2/{name}.json"), result.to_string().into_bytes())));
        Schema::of(files.into_iter()).expect("BUG: a test gives a protocol")
    }

    /// A client that calls or answers a method this way, so many times.
    fn uses(rows: &[(ClientUseKind, &str, &str, &str, u64)]) -> Uses {
        let of = |(kind, method, member, value, count): &(ClientUseKind, &str, &str, &str, u64)| ClientUse {
            client: "c".to_owned(),
            version: "1".to_owned(),
            kind: *kind,
            method: (*method).to_owned(),
            member: (*member).to_owned(),
            value: (*value).to_owned(),
            count: *count,
            last_used_at: "2026".to_owned(),
        };
        let mut uses = Uses::default();
        uses.add(rows.iter().map(of).collect());
        uses
    }

    fn check(uses: &Uses, from: Option<&Schema>, to: &Schema, expect: &[&str]) {
        let found = findings(uses, from, to);
        let found: Vec<String> = found
            .iter()
            .map(|found| {
                let [member, value] = [&found.member, &found.value].map(|it| it.as_deref().unwrap_or("-"));
                format!("{} {} {member} {value} {}", found.kind.name(), found.method, found.count)
            })
            .collect();
        assert_eq!(found, expect);
    }

    const CALL: ClientUseKind = ClientUseKind::Call;
    const ANSWER: ClientUseKind = ClientUseKind::Answer;

    #[test]
    fn what_has_become_worse_is_found() {
        let policy = |values: &[&str]| json!({"oneOf": [{"type": "string", "enum": values}, {"type": "object", "additionalProperties": false, "properties": {"granular": {"type": "boolean"}}}]});
        let input = json!({"type": "object", "properties": {"kind": {"enum": ["text"]}, "text": {"type": "string"}}});
        let params = |more: Value| {
            let mut properties = json!({
                "policy": {"anyOf": [{"$ref": "#/definitions/Policy"}, {"type": "null"}]},
                "input": {"type": "array", "items": {"$ref": "#/definitions/v2/Input"}},
                "any": true,
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
            });
            properties
                .as_object_mut()
                .expect("BUG: it is one")
                .extend(more.as_object().expect("BUG: it is one").clone());
            json!({"type": "object", "properties": properties})
        };
        let from = schema(
            json!({"start": params(json!({"old": {"type": "string"}, "id": {"type": "integer"}})), "gone": {}, "none": {"type": "null"}}),
            json!({"ask": {"$ref": "#/definitions/AskParams"}}),
            json!({"Policy": policy(&["a", "b"]), "Input": input.clone(), "AskParams": {}}),
            &[("AskResponse", json!({"type": "object", "properties": {"decision": {"enum": ["yes", "no"]}}}))],
        );
        let mut now = params(json!({"id": {"type": ["string", "null"]}, "new": {"type": "string"}}));
        now["required"] = json!(["new"]);
        let to = schema(
            json!({"start": now, "none": {"type": "null"}}),
            json!({"ask": {"$ref": "#/definitions/AskParams"}, "ask/more": {}}),
            json!({"Policy": policy(&["a"]), "Input": input, "AskParams": {}}),
            &[("AskResponse", json!({"type": "object", "properties": {"decision": {"enum": ["yes"]}}}))],
        );
        let used = uses(&[
            (CALL, "gone", "", "", 3),
            (CALL, "never", "", "", 3),
            (CALL, "start", "", "", 9),
            (CALL, "start", "", "object", 9),
            (CALL, "none", "", "object", 9),
            (CALL, "none", "x", "string", 9),
            (CALL, "start", "policy", "\"a\"", 4),
            (CALL, "start", "policy", "\"b\"", 5),
            (CALL, "start", "policy", "null", 1),
            (CALL, "start", "policy", "object", 1),
            (CALL, "start", "policy.granular", "boolean", 1),
            (CALL, "start", "input", "array", 9),
            (CALL, "start", "input[]", "object", 9),
            (CALL, "start", "input[].kind", "\"text\"", 9),
            (CALL, "start", "input[].own", "string", 9),
            (CALL, "start", "any", "object", 9),
            (CALL, "start", "any.x", "number", 9),
            (CALL, "start", "map.x", "string", 9),
            (CALL, "start", "old", "string", 2),
            (CALL, "start", "id", "integer", 6),
            (CALL, "start", "new", "string", 2),
            (ANSWER, "ask", "", "", 2),
            (ANSWER, "ask", "", "object", 2),
            (ANSWER, "ask", "decision", "\"no\"", 1),
            (ANSWER, "ask", "decision", "\"yes\"", 1),
        ]);
        check(
            &used,
            Some(&from),
            &to,
            &[
                "rejected ask decision no 1",
                "rejected gone - - 3",
                "rejected start id integer 6",
                "rejected start new - 7",
                "rejected start policy b 5",
                "unanswered ask/more - - 0",
                "ignored start old - 2",
            ],
        );
        // Nothing is found between the same ones, nor in a step back of what only the newer one has.
        check(&used, Some(&from), &from, &[]);
        check(&used, Some(&to), &to, &[]);
        // Without the earlier schema, only rejections are certain.
        check(
            &used,
            None,
            &to,
            &[
                "rejected ask decision no 1",
                "rejected gone - - 3",
                "rejected never - - 3",
                "rejected start id integer 6",
                "rejected start new - 7",
                "rejected start policy b 5",
            ],
        );
    }

    #[test]
    fn results_that_lose_a_member_or_its_type_are_found() {
        let result = |thread: Value| json!({"type": "object", "required": ["thread", "n"], "properties": {"n": {"type": "integer"}, "thread": thread}});
        let of = |result: Value| {
            schema(
                json!({"start": {"$ref": "#/definitions/StartParams"}}),
                json!({}),
                json!({"StartParams": {}}),
                &[("StartResponse", result)],
            )
        };
        let thread = |properties: Value, required: &[&str]| json!({"type": "object", "required": required, "properties": properties});
        let before = of(result(thread(
            json!({"id": {"type": "integer"}, "name": {"type": "string"}, "may": {"type": "string"}}),
            &["id", "name"],
        )));
        let after = of(result(thread(json!({"id": {"type": "string"}}), &["id"])));
        let used = uses(&[(CALL, "start", "", "", 2)]);
        check(&used, Some(&before), &after, &["changed start thread.id - 2", "changed start thread.name - 2"]);
        check(&used, Some(&after), &before, &["changed start thread.id - 2"]);
        check(&used, Some(&before), &before, &[]);
    }

    #[test]
    fn clients_with_the_worst_findings_come_first() {
        let from = schema(
            json!({"a": {"type": "object", "properties": {"x": {"type": "string"}}}, "b": {}}),
            json!({}),
            json!({}),
            &[],
        );
        let to = schema(json!({"a": {"type": "object", "properties": {}}}), json!({}), json!({}), &[]);
        let mut all = uses(&[(CALL, "a", "", "", 1), (CALL, "a", "x", "string", 1)]);
        let mut other = uses(&[(CALL, "b", "", "", 1)]);
        let rows = other.0.remove(&("c".to_owned(), "1".to_owned())).expect("BUG: it is there");
        all.0.insert(("d".to_owned(), "1".to_owned()), rows);
        let order: Vec<String> = findings(&all, Some(&from), &to).into_iter().map(|found| found.client).collect();
        assert_eq!(order, ["d", "c"]);
    }

    #[test]
    fn definitions_that_refer_to_themselves_end() {
        let list = json!({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/definitions/List"}, {"type": "null"}]}, "self": {"$ref": "#/definitions/Loop"}}});
        let of = schema(
            json!({"a": list.clone()}),
            json!({}),
            json!({"List": list, "Loop": {"$ref": "#/definitions/Loop"}}),
            &[],
        );
        let deep = vec!["next"; 100].join(".");
        assert_eq!(of.call("a").expect("BUG: it is there").fit(&deep, "object"), Fit::Taken);
        assert_eq!(of.call("a").expect("BUG: it is there").fit("self", "object"), Fit::Taken);
        assert!(of.members().count() > 0);
    }
}
