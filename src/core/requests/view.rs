//! One view of a request for every place that shows it: everything there is to decide on, what is risky about it, its possible
//! answers with the body of each, and its outcome, in words.
//!
//! Pure. Members that are not known by name are shown too, so that no one approves something unseen: their names as words, and
//! below the second level as JSON, because that is data and not protocol. The texts are untrusted; the caller escapes them
//! before they reach a terminal.

use std::path::{Component, Path};

use serde_json::{Value, json};

pub use super::until::answer_until;

use super::answer::{
    DECLINED_FOR_GOOD, declining_for_good, in_words, of_word, offers, persist_in_words, persisting, takes_reason,
};
use super::form::{self, Field};
use crate::api::Request;
use crate::engine::{
    Persist, RequestKind, RequestType, answers_nothing, command_line, one_line, permissions_in_words,
    without_system_shell,
};
use crate::protocol::change::{self, ChangeSize, FileChange, Form, LineKind, Listed, Text};
use crate::protocol::{CommandText, Word, renamed};

/// How to display a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meant {
    /// The text of a question.
    Asked,
    Plain,
    Added,
    Removed,
    /// The position of a hunk in a diff, or a line that names a file.
    Place,
}

/// A text with a label; lines of a diff have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub label: String,
    /// One line or several.
    pub text: String,
    pub meant: Meant,
}

/// A changed file of a request or of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// `add`, `delete`, `update`, or `change` if it is unknown.
    pub kind: String,
    pub path: String,
    pub moved_to: Option<String>,
    /// The diff, the whole text of an added or deleted file, or the reason why there is none.
    pub text: String,
    pub has_diff: bool,
}

/// A question to a person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    pub id: String,
    pub text: String,
    /// Labels, and their descriptions.
    pub options: Vec<(String, String)>,
    /// Whether a text may be typed in place of an option.
    pub takes_text: bool,
    pub is_secret: bool,
}

/// One way to answer a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The key or letter that chooses it; decisions that only this request offers have a digit.
    pub key: char,
    /// The answer in words.
    pub label: String,
    pub gives: Gives,
    /// The reason for a confirmation, if one is needed.
    pub danger: Option<String>,
}

/// The effect of a choice.
#[derive(Debug, Clone, PartialEq)]
pub enum Gives {
    /// Sends this body.
    Body(Value),
    /// Declines with a reason that is still to be given.
    Reason,
    /// Accepts a form that is still to be filled in.
    Form,
}

/// The whole view of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestView {
    pub kind: RequestKind,
    pub members: Vec<Row>,
    pub files: Vec<ChangedFile>,
    /// Everything in the request that makes it riskier than it looks.
    pub warnings: Vec<String>,
    pub questions: Vec<Question>,
    pub fields: Vec<Field>,
    /// The answers that need no text, in the order of a list; empty for questions and unknown kinds.
    pub choices: Vec<Choice>,
    /// The folder in which its thread works, if it is known.
    pub folder: Option<String>,
    /// The warnings because of which accepting it is asked about once more.
    pub dangers: Vec<String>,
}

/// What is risky about a request.
struct Risks {
    files: Vec<ChangedFile>,
    dangers: Vec<String>,
    warnings: Vec<String>,
}

impl Risks {
    fn of(row: &Request) -> Risks {
        let payload = &row.request_payload;
        let files = files(change::of_request(payload, &row.changes));
        let dangers = super::again::dangers(row, row.kind(), &files);
        let mut warnings = dangers.clone();
        warnings.extend(unfitting(&files));
        if payload["url"].is_string() {
            warnings.push("open that address only if you trust who asks".to_owned());
        }
        Risks { files, dangers, warnings }
    }
}

/// The warnings about a request, without the rest of its view.
pub fn warnings_of(row: &Request) -> Vec<String> {
    Risks::of(row).warnings
}

impl RequestView {
    /// The view of a ledger row.
    pub fn of(row: &Request) -> RequestView {
        let (kind, payload) = (row.kind(), &row.request_payload);
        let Risks { files, dangers, warnings } = Risks::of(row);
        let fields = form::fields(row);
        let choices = choices(row, kind, !fields.is_empty(), &dangers);
        let folder = super::again::folder_of(row).map(str::to_owned);
        let questions = payload["questions"].as_array().into_iter().flatten().map(Question::of).collect();
        RequestView { kind, members: members(payload), files, warnings, questions, fields, choices, folder, dangers }
    }
}

/// A warning if a change to decide on is not on record.
pub(super) fn unseen(files: &[ChangedFile]) -> Option<String> {
    let (lacking, them) = match (files.len(), lacking_diffs(files)) {
        (0, _) | (1, 1) => ("the diff is".to_owned(), "it"),
        (_, 0) => return None,
        (all, 1) => (format!("1 of {all} diffs is"), "it"),
        (all, many) => (format!("{many} of {all} diffs are"), "them"),
    };
    Some(format!("{lacking} not on record: look at {them} in the client before you accept"))
}

/// A warning if a diff says something else about its hunks than what they are.
fn unfitting(files: &[ChangedFile]) -> Option<String> {
    let misfits: usize = files.iter().map(|file| file.size().misfits).sum();
    let (count, are) = if misfits == 1 { ("1 part".to_owned(), "is") } else { (format!("{misfits} parts"), "are") };
    (misfits > 0).then(|| format!("{count} of the diff {are} longer or shorter than the diff says: read all its lines"))
}

/// The number of files whose diff is not on record.
fn lacking_diffs(files: &[ChangedFile]) -> usize {
    files.iter().filter(|file| !file.has_diff).count()
}

/// The size of all changes: `303 files +602 -304`. `None` if nothing is changed.
pub fn size_of_changes(files: &[ChangedFile]) -> Option<String> {
    let counts = files.iter().map(ChangedFile::size).fold(ChangeSize::default(), ChangeSize::plus);
    let ChangeSize { added, removed, .. } = counts;
    let lacking = match lacking_diffs(files) {
        0 => String::new(),
        1 => ", 1 diff not on record".to_owned(),
        many => format!(", {many} diffs not on record"),
    };
    match files.len() {
        0 => None,
        1 => Some(format!("1 file +{added} -{removed}{lacking}")),
        many => Some(format!("{many} files +{added} -{removed}{lacking}")),
    }
}

impl Question {
    fn of(question: &Value) -> Question {
        let text = |value: &Value, member: &str| value[member].as_str().unwrap_or_default().to_owned();
        let options = question["options"].as_array().into_iter().flatten();
        let options: Vec<(String, String)> =
            options.map(|option| (text(option, "label"), text(option, "description"))).collect();
        let is_secret = question["isSecret"] == true;
        Question {
            id: text(question, "id"),
            text: text(question, "question"),
            takes_text: options.is_empty() || question["isOther"] == true || is_secret,
            options,
            is_secret,
        }
    }
}

/// The choices of a request, in the order of a list.
fn choices(row: &Request, kind: RequestKind, has_fields: bool, dangers: &[String]) -> Vec<Choice> {
    let choice = |key, label: &str, gives: Gives| {
        let danger = match &gives {
            Gives::Body(body) => super::again::asked_again(row, kind, dangers, body),
            Gives::Reason => None,
            Gives::Form => super::again::asked_again(row, kind, dangers, &json!({ "action": Word::Accept.decision() })),
        };
        Choice { key, label: label.to_owned(), gives, danger }
    };
    let word = |word: Word| {
        let body = Gives::Body(of_word(row, word, None).ok()?);
        Some(match word {
            Word::Accept if has_fields => choice('a', "accept, and fill in the form", Gives::Form),
            Word::Accept => choice('a', "accept", body),
            Word::AcceptForSession => choice('s', "accept for the session", body),
            Word::Decline => choice('d', "decline", body),
            Word::Cancel if kind.request_type() == RequestType::Elicitation => choice('c', "cancel", body),
            Word::Cancel => choice('c', "cancel, which ends the turn", body),
        })
    };
    let decisions = row.available_decisions.iter().flatten().filter(|offer| offer.is_object());
    let decisions = decisions.map(|offer| (offered(offer), json!({ "decision": offer })));
    let always = offers(row).contains(&Persist::Always).then_some(Persist::Always);
    let always = always.map(|always| (persist_in_words(always).to_owned(), persisting(always)));
    let never = declining_for_good(row).map(|body| (DECLINED_FOR_GOOD.to_owned(), body));
    let offers = ('1'..='9').zip(decisions.chain(always).chain(never));
    let offers = offers.map(|(key, (label, body))| choice(key, &label, Gives::Body(body)));
    let reason = takes_reason(kind).then(|| choice('r', "decline with a reason", Gives::Reason));
    let (accepts, declines) = ([Word::Accept, Word::AcceptForSession], [Word::Decline]);
    let all = accepts.into_iter().filter_map(word).chain(offers).chain(declines.into_iter().filter_map(word));
    all.chain(reason).chain(word(Word::Cancel)).collect()
}

/// Whether a path of a permission is surely inside a folder.
pub(super) fn is_inside(path: &Value, cwd: &str) -> bool {
    if path["value"]["kind"].as_str().or(path["kind"].as_str()) == Some("project_roots") {
        return true;
    }
    let named = path.as_str().or(path["path"].as_str()).map(Path::new);
    let is_plain = |path: &Path| path.components().all(|part| part != Component::ParentDir);
    named.is_some_and(|named| !cwd.is_empty() && named.starts_with(cwd) && is_plain(named))
}

/// Members that come first, under their own names.
const FIRST: [&str; 4] = ["command", "message", "cwd", "reason"];

/// Members that are shown elsewhere (ids, choices, questions, forms, diffs) or tell a person nothing.
const ELSEWHERE: [&str; 15] = [
    "threadId",
    "turnId",
    "itemId",
    "approvalId",
    "elicitationId",
    "challenge",
    "startedAtMs",
    "autoResolutionMs",
    "availableDecisions",
    "proposedExecpolicyAmendment",
    "proposedNetworkPolicyAmendments",
    "commandActions",
    "questions",
    "requestedSchema",
    "isBlocking",
];

/// Longest JSON on one line, in bytes.
const JSON_LINE_BYTES_MAX: usize = 100;

/// The members of a request as rows.
fn members(payload: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut some = |label: &str, value: &Value, meant: Meant| {
        if let Some(text) = in_text(value) {
            rows.push(Row { label: label.to_owned(), text, meant });
        }
    };
    match CommandText::of(&payload["command"]) {
        Some(CommandText::Line(line)) => some("command", &without_system_shell(line).into(), Meant::Asked),
        Some(CommandText::Words(words)) => some("command", &command_line(&words).into(), Meant::Asked),
        None => some("command", &payload["command"], Meant::Asked),
    }
    some("message", &payload["message"], Meant::Asked);
    some("cwd", &payload["cwd"], Meant::Plain);
    some("reason", &payload["reason"], Meant::Plain);
    match payload.as_object() {
        Some(members) => {
            let is_known = |name: &str| FIRST.contains(&name) || ELSEWHERE.contains(&name) || renamed(name).is_some();
            let call = tool_call(payload).or_else(|| suggestion(payload));
            for (label, text) in call.iter().flatten() {
                some(label, text, Meant::Asked);
            }
            let is_told = |name: &String| call.is_some() && matches!(name.as_str(), "_meta" | "serverName");
            for (name, value) in members.iter().filter(|(name, _)| !is_known(name) && !is_told(name)) {
                if let Some((label, text)) = member_in_words(name, value) {
                    some(&label, &text, Meant::Plain);
                }
            }
            some("proposes", &Value::String(proposals(payload).join("\n")), Meant::Plain);
        }
        None => some("payload", payload, Meant::Plain),
    }
    rows
}

/// The tool call that an elicitation asks to approve, with its parameters and everything else that is said about it.
fn tool_call(payload: &Value) -> Option<Vec<(&'static str, Value)>> {
    let meta = &payload["_meta"];
    if meta["codex_approval_kind"] != "mcp_tool_call" {
        return None;
    }
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    let server = payload["serverName"]
        .as_str()
        .map_or("an unknown MCP server".to_owned(), |name| format!("the MCP server `{name}`"));
    let titled = ["tool_title", "toolTitle", "tool_name", "toolName"].into_iter().find(|name| meta[*name].is_string());
    let tool = titled.and_then(|name| meta[name].as_str());
    let tool = tool.map_or("a tool".to_owned(), |name| format!("the tool `{name}`"));
    let given = ["tool_params", "toolParams"].into_iter().find(|name| !is_empty(&meta[*name]));
    let parameters = given.map(|name| &meta[name]);
    // Offers become choices.
    let is_offered = |value: &Value| {
        let listed = value.as_array().map_or(1, Vec::len);
        Persist::offered(payload).len() == listed
    };
    let is_told = |name: &str, value: &Value| {
        name == "codex_approval_kind"
            || name == "persist" && is_offered(value)
            || name == "tool_params_display" && parameters.is_some_and(|given| repeats(value, given))
            || [titled, given].contains(&Some(name))
            || name.starts_with("tool") && is_empty(value)
    };
    let mut rows = vec![("runs", Value::String(format!("{tool} of {server}")))];
    let display = &meta["tool_params_display"];
    rows.push(("with", parameters.map_or("no parameters".into(), |given| named_parameters(given, display))));
    rows.extend(others(meta, is_told));
    Some(rows)
}

/// The tool that an elicitation suggests to install or enable, and everything else that is said about it. What it is, its names and
/// the offer for an answer no are in words.
fn suggestion(payload: &Value) -> Option<Vec<(&'static str, Value)>> {
    let meta = &payload["_meta"];
    if meta["codex_approval_kind"] != "tool_suggestion" {
        return None;
    }
    let text = |name: &str| meta[name].as_str().map(one_line).filter(|text| !text.is_empty());
    let does = text("suggest_type").unwrap_or_else(|| "use".to_owned());
    let kind = text("tool_type").unwrap_or_else(|| "tool".to_owned());
    let (name, id) = (text("tool_name"), text("tool_id"));
    let is_same = name == id;
    let named = match (name, id) {
        (Some(name), Some(id)) if !is_same => format!("`{name}` ({id})"),
        (Some(name), _) | (None, Some(name)) => format!("`{name}`"),
        (None, None) => "without a name".to_owned(),
    };
    let mut rows = vec![("suggests", Value::String(format!("to {does} the {kind} {named}")))];
    // The message may be the same text.
    let reason = text("suggest_reason").filter(|reason| payload["message"] != **reason);
    rows.extend(reason.map(|reason| ("because", Value::String(reason))));
    rows.extend(text("install_url").map(|address| ("address", Value::String(address))));
    rows.extend(payload["serverName"].as_str().map(|server| ("asked by", Value::String(one_line(server)))));
    // An offer that an answer no can take is a choice; accepting takes none.
    let listed = meta["persist"].as_array().map_or(1, Vec::len);
    let is_told = |name: &str, value: &Value| match name {
        "codex_approval_kind" => true,
        "persist" => Persist::listed(payload).len() == listed,
        "suggest_type" | "tool_type" | "tool_name" | "tool_id" | "suggest_reason" | "install_url" => value.is_string(),
        _ => false,
    };
    rows.extend(others(meta, |name, value| value.is_null() || is_told(name, value)));
    Some(rows)
}

/// Everything that is not told elsewhere.
fn others(meta: &Value, is_told: impl Fn(&str, &Value) -> bool) -> Option<(&'static str, Value)> {
    let others = meta.as_object().into_iter().flatten().filter(|(name, value)| !is_told(name, value));
    let others: serde_json::Map<String, Value> = others.map(|(name, value)| (name.clone(), value.clone())).collect();
    (!others.is_empty()).then(|| ("more", members_in_words(&Value::Object(others))))
}

/// Whether a list of parameters for display has no other values than the parameters themselves.
fn repeats(display: &Value, parameters: &Value) -> bool {
    let repeats = |entry: &Value| {
        let name = entry["name"].as_str().unwrap_or_default();
        let is_known = |(member, value): (&String, &Value)| match &**member {
            "name" | "display_name" => value.is_string(),
            "value" => parameters.get(name) == Some(value),
            _ => false,
        };
        entry.as_object().is_some_and(|members| members.iter().all(is_known))
    };
    display.as_array().is_some_and(|entries| entries.iter().all(repeats))
}

/// The parameters of a tool call, one a line: `where to: prod`, or `Calendar (calendar id): primary` if they have names for display.
fn named_parameters(parameters: &Value, display: &Value) -> Value {
    let name_of = |name: &str| {
        let entry = display.as_array().into_iter().flatten().find(|entry| entry["name"] == name);
        let shown = entry.and_then(|entry| entry["display_name"].as_str()).map(one_line);
        let words = name_in_words(name);
        match shown.filter(|shown| shown != name && *shown != words) {
            Some(shown) => format!("{shown} ({words})"),
            None => words,
        }
    };
    members_named(parameters, name_of)
}

/// The label and text of a member; `None` if it tells a person nothing.
fn member_in_words(name: &str, value: &Value) -> Option<(String, Value)> {
    let lines = |words: Vec<String>| Value::String(words.join("\n"));
    let (label, text) = match (name, value.as_str()) {
        ("kind", Some("writeStdin")) => ("kind", "input for a command that is already running".into()),
        ("kind", Some("humanCommand")) => ("kind", "must be decided by a person, each time".into()),
        ("kind", Some("command")) | ("environmentId", Some("local")) => return None,
        ("mode", Some("form" | "openai/form" | "openaiForm" | "url")) => return None,
        ("environmentId", _) => ("environment", value.clone()),
        ("serverName", _) => ("asked by", value.clone()),
        ("url", _) => ("address", value.clone()),
        ("_meta", _) => ("more", members_in_words(value)),
        ("grantRoot", Some(root)) => ("allows", format!("writing anywhere below {root}").into()),
        ("additionalPermissions", _) if value.is_object() => ("also wants", lines(permissions_in_words(value))),
        ("permissions", _) if value.is_object() => ("wants", lines(permissions_in_words(value))),
        ("networkApprovalContext", _) if value["host"].is_string() => {
            let host = value["host"].as_str().unwrap_or_default();
            let protocol = value["protocol"].as_str().map(|protocol| match protocol {
                "socks5Tcp" => " (SOCKS5, TCP)".to_owned(),
                "socks5Udp" => " (SOCKS5, UDP)".to_owned(),
                other => format!(" ({other})"),
            });
            ("network", format!("{host}{}", protocol.unwrap_or_default()).into())
        }
        (_, _) => return Some((name_in_words(name), members_in_words(value))),
    };
    Some((label.to_owned(), text))
}

/// An object as lines of names and values; any other value as it is.
fn members_in_words(value: &Value) -> Value {
    members_named(value, name_in_words)
}

fn members_named(value: &Value, name_of: impl Fn(&str) -> String) -> Value {
    let Some(members) = value.as_object().filter(|members| !members.is_empty()) else { return value.clone() };
    let line = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), one_line);
        format!("{}: {text}", name_of(name))
    };
    Value::String(members.iter().filter(|(_, value)| !value.is_null()).map(line).collect::<Vec<_>>().join("\n"))
}

/// The words of a member's name: `risk level` of `riskLevel` and of `risk_level`.
fn name_in_words(name: &str) -> String {
    let name = one_line(name);
    let mut words = String::new();
    let mut was_upper = true;
    for char in name.trim_start_matches('_').chars() {
        if char == '_' || char.is_ascii_uppercase() && !was_upper {
            words.push(' ');
        }
        was_upper = char.is_ascii_uppercase();
        words.extend((char != '_').then(|| char.to_ascii_lowercase()));
    }
    words
}

/// The rules that the server proposes, if it does not offer them as decisions.
fn proposals(payload: &Value) -> Vec<String> {
    let is_offered = payload["availableDecisions"].as_array().into_iter().flatten().any(Value::is_object);
    let command = in_text(&payload["proposedExecpolicyAmendment"]).map(|words| format!("no longer ask for `{words}`"));
    let hosts = payload["proposedNetworkPolicyAmendments"].as_array().into_iter().flatten();
    let hosts = hosts.filter_map(|rule| {
        let does = if rule["action"] == "deny" { "always refuse" } else { "no longer ask for" };
        Some(format!("{does} {}", rule["host"].as_str()?))
    });
    if is_offered { Vec::new() } else { command.into_iter().chain(hosts).collect() }
}

/// A decision that is an object, in words; as JSON if it is unknown.
pub fn offered(offer: &Value) -> String {
    let always = &offer["acceptWithExecpolicyAmendment"]["execpolicy_amendment"];
    let network = &offer["applyNetworkPolicyAmendment"]["network_policy_amendment"];
    let words = always.as_array().filter(|words| !words.is_empty()).and_then(|_| in_text(always));
    match (words, network["host"].as_str(), network["action"].as_str()) {
        (Some(words), _, _) => format!("accept, and do not ask again for `{words}`"),
        (None, Some(host), Some("allow")) => format!("accept, and do not ask again for {host}"),
        (None, Some(host), Some("deny")) => format!("decline, and always refuse {host}"),
        (None, _, _) => offer.to_string(),
    }
}

/// A value as text; `None` if it is null or empty.
pub fn in_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Array(words) if words.iter().all(Value::is_string) => {
            Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let line = value.to_string();
            let is_short = line.len() <= JSON_LINE_BYTES_MAX;
            Some(if is_short { line } else { serde_json::to_string_pretty(value).expect("BUG: JSON can be written") })
        }
    }
}

/// The changed files of an item or a request.
pub fn files(changes: &Value) -> Vec<ChangedFile> {
    FileChange::all(changes).into_iter().map(ChangedFile::of).collect()
}

impl ChangedFile {
    fn of(FileChange { path, kind, moved_to, diff, value }: FileChange<'_>) -> ChangedFile {
        let text = diff.map(str::to_owned).or_else(|| too_large(value)).or_else(|| in_text(value));
        ChangedFile {
            kind: kind.unwrap_or("change").to_owned(),
            path: path.unwrap_or_default().to_owned(),
            moved_to: moved_to.map(str::to_owned),
            text: text.unwrap_or_default(),
            has_diff: diff.is_some(),
        }
    }

    /// The kind of the change, the file and its new path, if it is moved; paths below a folder without that folder.
    pub fn heading(&self, below: &str) -> String {
        let shown = |path| Path::new(path).strip_prefix(below).unwrap_or(Path::new(path)).display().to_string();
        let moved = self.moved_to.as_ref().map(|to| format!(" → {}", shown(to))).unwrap_or_default();
        format!("{} {}{moved}", self.kind, shown(&self.path))
    }

    /// Whether it changes a file outside a folder, or moves one out of it. An unknown folder has no outside.
    pub fn is_outside(&self, folder: Option<&str>) -> bool {
        let Some(folder) = folder.map(Path::new) else { return false };
        let is_outside =
            |path: &String| super::danger::resolved(Some(folder), path).is_some_and(|path| !path.starts_with(folder));
        [Some(&self.path), self.moved_to.as_ref()].into_iter().flatten().any(is_outside)
    }

    /// Its rows: a heading, and the lines of its diff.
    pub fn rows(&self) -> Vec<Row> {
        let heading = Row { label: "file".to_owned(), text: self.heading(""), meant: Meant::Asked };
        std::iter::once(heading).chain(self.lines()).collect()
    }

    /// The lines of its diff; those of an added or deleted file have signs too. Without a diff, the reason.
    pub fn lines(&self) -> impl Iterator<Item = Row> {
        let row = |text: &str, meant| Row { label: String::new(), text: text.to_owned(), meant };
        let (diff, missing) = if self.has_diff { (Some(&*self.text), "") } else { (None, &*self.text) };
        let form = Form::of_kind(&self.kind);
        let lines = diff.into_iter().flat_map(move |diff| change::shown(form, diff));
        lines
            .map(move |(kind, text)| row(&text, meant(kind)))
            .chain(missing.lines().map(move |text| row(text, Meant::Plain)))
    }

    /// The lines that it adds and removes.
    pub fn size(&self) -> ChangeSize {
        if self.has_diff { ChangeSize::of(Form::of_kind(&self.kind), &self.text) } else { ChangeSize::default() }
    }

    /// Appends it to a text of several changes.
    pub fn list(&self, out: &mut String) {
        let text = if self.has_diff { Text::Diff(&self.text) } else { Text::Missing(&self.text) };
        change::list(Listed { kind: &self.kind, path: &self.path, moved_to: self.moved_to.as_deref(), text }, out);
    }
}

/// The text in place of a diff that was too large to store.
fn too_large(change: &Value) -> Option<String> {
    let size = change["diff_bytes"].as_u64().map(|bytes| format!(" of {}", bytesize::ByteSize(bytes)));
    let told = format!("(this diff{} is too large to keep: see it in the client)", size.unwrap_or_default());
    (change["omitted"] == "size").then_some(told)
}

/// How to display a line of a diff.
fn meant(kind: LineKind) -> Meant {
    match kind {
        LineKind::Added => Meant::Added,
        LineKind::Removed => Meant::Removed,
        LineKind::File | LineKind::Header | LineKind::Hunk => Meant::Place,
        LineKind::Context | LineKind::Remark | LineKind::Outside => Meant::Plain,
    }
}

/// A stored answer: the decision, or each question or field with the text given for it.
pub fn answer_in_words(payload: &Value) -> String {
    if payload["decision"].is_object() {
        return offered(&payload["decision"]);
    }
    let given = |(name, value): (&String, &Value)| {
        let texts = if value["answers"].is_array() { &value["answers"] } else { value };
        format!("{name}: {}", in_text(texts).unwrap_or_else(|| "nothing".to_owned()))
    };
    let of_questions = payload["answers"].as_object().into_iter().flatten().map(given);
    let of_form = payload["content"].as_object().into_iter().flatten().map(given);
    let fields = of_questions.chain(of_form).collect::<Vec<_>>().join("; ");
    match (fields.is_empty(), payload["action"].as_str()) {
        (true, _) => in_words(payload),
        (false, Some(_)) => format!("{}; {fields}", in_words(payload)),
        (false, None) => fields,
    }
}

/// Who resolved a ledger row.
pub fn who(row: &Request) -> String {
    match (row.resolution_source.as_deref(), row.resolved_by.as_deref()) {
        (Some(source), Some(by)) => format!("{source} ({by})"),
        (Some(source), None) => source.to_owned(),
        (None, _) => "-".to_owned(),
    }
}

/// Who answered, in words: the tool, without its process, or whatever else is known.
fn answerer(row: &Request) -> String {
    let by = row.resolved_by.as_deref().unwrap_or_default();
    match (row.resolution_source.as_deref(), by.strip_prefix("fleet:")) {
        (Some("tui"), _) => "the terminal UI".to_owned(),
        (Some("web"), _) => "the web page".to_owned(),
        (Some("cli"), _) => "`codex-shim respond`".to_owned(),
        (Some("api"), Some(user)) => user.to_owned(),
        (_, _) => who(row),
    }
}

/// How a request ended that the reader has answered, to follow "it was".
pub fn own_ending(row: &Request) -> String {
    format!("answered: {}", answer_in_words(&row.resolved_payload))
}

/// How it was resolved, to follow "it was": by whom, and with which answer.
pub fn ending(row: &Request) -> String {
    match &*row.status {
        "resolved" if row.is_withdrawn() => "withdrawn by the server before there was an answer".to_owned(),
        "resolved" if answers_nothing(&row.resolved_payload) => format!("left unanswered by {}", answerer(row)),
        "resolved" => format!("answered by {}: {}", answerer(row), answer_in_words(&row.resolved_payload)),
        status => format!("{status}: {}", row.error_message.as_deref().unwrap_or("unknown reason")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_of_files(row: &Request) -> Vec<Row> {
        RequestView::of(row).files.iter().flat_map(ChangedFile::rows).collect()
    }

    #[test]
    fn too_large_diff_is_named_with_its_size() {
        let row =
            json!({"changes": [{"path": "/a", "kind": {"type": "add"}, "omitted": "size", "diff_bytes": 9 << 20}]});
        let told: Vec<String> = rows_of_files(&Request::from(&row)).into_iter().map(|row| row.text).collect();
        assert_eq!(told, ["add /a", "(this diff of 9.0 MiB is too large to keep: see it in the client)"]);
    }

    #[test]
    fn diffs_not_on_record_are_dangerous() {
        let stored = json!({"path": "/a", "kind": {"type": "update"}, "diff": "@@ -1 +1 @@\n-x\n+y\n"});
        let large = json!({"path": "/b", "kind": {"type": "update"}, "omitted": "size", "diff_bytes": 9 << 20});
        let check = |changes: Value, size: Option<&str>, expect: Option<&str>| {
            let row = json!({ "request_method": "item/fileChange/requestApproval", "changes": changes });
            let view = RequestView::of(&Request::from(&row));
            assert_eq!(size_of_changes(&view.files).as_deref(), size);
            let told = expect.map(|lacking| format!("{lacking} in the client before you accept"));
            assert_eq!(view.warnings.first(), told.as_ref());
            assert_eq!(view.choices[0].danger, told);
        };
        check(json!([stored]), Some("1 file +1 -1"), None);
        check(
            json!([large]),
            Some("1 file +0 -0, 1 diff not on record"),
            Some("the diff is not on record: look at it"),
        );
        let both = json!([stored, large]);
        check(both, Some("2 files +1 -1, 1 diff not on record"), Some("1 of 2 diffs is not on record: look at it"));
        let many = json!([stored, large, large]);
        check(many, Some("3 files +1 -1, 2 diffs not on record"), Some("2 of 3 diffs are not on record: look at them"));
        check(Value::Null, None, Some("the diff is not on record: look at it"));
    }

    #[test]
    fn tool_call_shows_every_member() {
        let rows = |meta: Value| -> Vec<(String, String)> {
            let row = json!({ "request_method": "mcpServer/elicitation/request",
                "request_payload": { "serverName": "lab", "_meta": meta } });
            RequestView::of(&Request::from(&row)).members.into_iter().map(|row| (row.label, row.text)).collect()
        };
        let check = |meta: Value, runs: &str, with: &str, more: Option<&str>| {
            let mut meta = meta;
            meta["codex_approval_kind"] = json!("mcp_tool_call");
            let row = |label: &str, text: &str| (label.to_owned(), text.to_owned());
            let mut expect = vec![row("runs", &format!("{runs} of the MCP server `lab`")), row("with", with)];
            expect.extend(more.map(|more| row("more", more)));
            assert_eq!(rows(meta), expect);
        };
        check(
            json!({ "tool_title": "Read", "tool_name": "wipe", "tool_params": { "a": 1 }, "toolParams": { "b": 2 } }),
            "the tool `Read`",
            "a: 1",
            Some("tool params: {\"b\":2}\ntool name: wipe"),
        );
        check(
            json!({ "tool_title": 7, "toolName": "wipe", "tool_params": {}, "toolParams": { "b": 2 }, "tool_fake_name": "x" }),
            "the tool `wipe`",
            "b: 2",
            Some("tool fake name: x\ntool title: 7"),
        );
        check(json!({ "tool_name": "wipe", "tool_params": {} }), "the tool `wipe`", "no parameters", None);
        let display = |value: &str, more: Value| {
            let mut entry = json!({ "name": "where_to", "value": value, "display_name": "Target" });
            more.as_object().into_iter().flatten().for_each(|(name, value)| entry[name] = value.clone());
            json!({ "tool_name": "go", "tool_params": { "where_to": "prod" }, "tool_params_display": [entry], "persist": "ever" })
        };
        let persist = "persist: ever";
        check(display("prod", json!({})), "the tool `go`", "Target (where to): prod", Some(persist));
        check(display("prod", json!({ "display_name": "where_to" })), "the tool `go`", "where to: prod", Some(persist));
        let raw = r#"[{"display_name":"Target","name":"where_to","value":"dev"}]"#;
        let told = format!("{persist}\ntool params display: {raw}");
        check(display("dev", json!({})), "the tool `go`", "Target (where to): prod", Some(&told));
    }

    #[test]
    fn suggestion_of_a_tool_is_readable() {
        let view = |meta: Value| {
            let mut meta = meta;
            meta["codex_approval_kind"] = json!("tool_suggestion");
            let payload = json!({ "serverName": "codex_apps", "mode": "form", "message": "Install it?", "_meta": meta,
                "requestedSchema": { "type": "object", "properties": {} } });
            RequestView::of(
                &json!({ "request_method": "mcpServer/elicitation/request", "request_payload": payload }).into(),
            )
        };
        let calendar = |persist: Value| {
            json!({ "persist": persist, "tool_type": "connector", "suggest_type": "install",
                "suggest_reason": "it reads\nyour calendar", "tool_id": "connector_2f", "tool_name": "Calendar",
                "install_url": "https://a.b/c" })
        };
        let rows = |meta: Value| -> Vec<(String, String)> {
            view(meta).members.into_iter().map(|row| (row.label, row.text)).collect()
        };
        let expect = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            let all = std::iter::once(&("message", "Install it?")).chain(all);
            all.map(|(label, text)| ((*label).to_owned(), (*text).to_owned())).collect()
        };
        let whole = [
            ("suggests", "to install the connector `Calendar` (connector_2f)"),
            ("because", "it reads your calendar"),
            ("address", "https://a.b/c"),
            ("asked by", "codex_apps"),
        ];
        let never = ('1', DECLINED_FOR_GOOD.to_owned());
        for (persist, offers) in [
            (json!("always"), Some(never.clone())),
            (json!(["always"]), Some(never.clone())),
            (json!(["session", "always"]), Some(never)),
            (json!("session"), None),
        ] {
            assert_eq!(rows(calendar(persist.clone())), expect(&whole), "{persist}");
            let choices = view(calendar(persist)).choices.into_iter().map(|choice| (choice.key, choice.label));
            let accept = [('a', "accept".to_owned())].into_iter();
            let no = [('d', "decline".to_owned()), ('c', "cancel".to_owned())];
            assert_eq!(choices.collect::<Vec<_>>(), accept.chain(offers).chain(no).collect::<Vec<_>>());
        }
        // What is not known stays in sight.
        let more = [
            ("suggests", "to use the tool `x`"),
            ("asked by", "codex_apps"),
            ("more", "persist: ever\nplan: [1]\ntool type: 7"),
        ];
        let unknown = json!({ "persist": "ever", "tool_id": "x", "tool_name": "x", "tool_type": 7, "plan": [1], "install_url": null });
        assert_eq!(rows(unknown), expect(&more));
    }

    #[test]
    fn tool_call_offers_to_hold_for_longer() {
        // As 0.171 sends it.
        let asked = |persist: Value| {
            let meta = json!({ "codex_approval_kind": "mcp_tool_call", "persist": persist, "tool_name": "confirm", "tool_title": "Confirm it",
                "tool_description": "asks", "tool_params": { "where_to": "prod" },
                "tool_params_display": [{ "name": "where_to", "value": "prod", "display_name": "where_to" }] });
            let payload = json!({ "threadId": "t", "turnId": "u", "serverName": "lab", "mode": "form", "_meta": meta,
                "message": "Allow it?", "requestedSchema": { "type": "object", "properties": {} } });
            RequestView::of(
                &json!({ "request_method": "mcpServer/elicitation/request", "request_payload": payload }).into(),
            )
        };
        let check = |persist: Value, expect: &[(char, &str, Option<&str>)]| {
            let view = asked(persist);
            let choices: Vec<_> =
                view.choices.iter().map(|one| (one.key, &*one.label, one.danger.as_deref())).collect();
            assert_eq!(choices, expect);
            let texts: Vec<&str> = view.members.iter().map(|row| &*row.text).collect();
            let runs = "the tool `Confirm it` of the MCP server `lab`";
            assert_eq!(texts, ["Allow it?", runs, "where to: prod", "tool description: asks\ntool name: confirm"]);
        };
        let session = ('s', "accept for the session", Some("it holds for the whole session"));
        let always = ('1', "accept, and do not ask again", Some("it changes what is asked about from now on"));
        let (accept, decline, cancel) = (('a', "accept", None), ('d', "decline", None), ('c', "cancel", None));
        check(json!(["session", "always"]), &[accept, session, always, decline, cancel]);
        check(json!("session"), &[accept, session, decline, cancel]);
        check(json!(["always"]), &[accept, always, decline, cancel]);
        check(json!([]), &[accept, decline, cancel]);
    }

    #[test]
    fn every_member_is_shown() {
        let row = json!({
            "request_payload": {"command": ["ls", "-l"], "cwd": "/w", "reason": null, "threadId": "t",
                "new": {"x": 1}, "long": {"y": "z".repeat(100)}},
            "changes": {"/a": {"type": "add", "content": "x\n-y\n"}, "/b": {"odd": 1}},
        });
        let rows = |rows: &[Row]| -> Vec<String> {
            rows.iter().map(|row| format!("{:?} {}: {}", row.meant, row.label, row.text)).collect()
        };
        let long = format!("Plain long: y: {}", "z".repeat(100));
        assert_eq!(
            rows(&RequestView::of(&Request::from(&row)).members),
            ["Asked command: ls -l", "Plain cwd: /w", &long, "Plain new: x: 1"]
        );
        let expect =
            ["Asked file: add /a", "Added : +x", "Added : +-y", "Asked file: change /b", "Plain : {\"odd\":1}"];
        assert_eq!(rows(&rows_of_files(&Request::from(&row))), expect);
    }

    #[test]
    fn lines_that_look_like_a_diff_are_lines() {
        let check = |kind: &str, diff: &str, size: &str, warnings: usize| {
            let row = json!({ "request_method": "item/fileChange/requestApproval",
                "changes": [{ "path": "/a", "kind": { "type": kind }, "diff": diff }] });
            let view = RequestView::of(&Request::from(&row));
            assert_eq!(
                (size_of_changes(&view.files).as_deref(), view.warnings.len()),
                (Some(size), warnings),
                "{diff}"
            );
            let shown: Vec<String> = view.files[0].lines().map(|row| row.text).collect();
            let missing = diff.lines().find(|line| !shown.iter().any(|shown| shown.ends_with(line)));
            assert_eq!(missing, None, "{shown:?}");
        };
        let front = "--- a\n+++ b\n@@ -1 +1 @@\nx\n";
        check("add", front, "1 file +4 -0", 0);
        check("delete", front, "1 file +0 -4", 1);
        check("update", "@@ -1,2 +1,2 @@\n--- x\n+++ y\n @@\n", "1 file +1 -1", 0);
        check("update", "@@ -1 +1 @@\n-x\n+y\n+z\n", "1 file +2 -1", 1);
    }

    #[test]
    fn structured_decisions_are_put_in_words() {
        let check = |offer: Value, expect: &str| assert_eq!(offered(&offer), expect);
        let always = json!({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "x"]}});
        check(always, "accept, and do not ask again for `touch x`");
        let network = |action: &str| json!({"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": "a.b", "action": action}}});
        check(network("allow"), "accept, and do not ask again for a.b");
        check(network("deny"), "decline, and always refuse a.b");
        check(json!({"new": {"x": 1}}), "{\"new\":{\"x\":1}}");
    }

    #[test]
    fn further_permissions_are_dangerous() {
        // As 0.169.0 sends it; it has no field for a command that the model wants outside the sandbox.
        let asked = |permissions: Value| {
            let payload = json!({
                "kind": "command", "threadId": "t", "turnId": "u", "itemId": "call_1", "startedAtMs": 1_795_293_220_151_u64,
                "environmentId": "local", "reason": "May I?", "command": "/bin/bash -lc 'make'", "cwd": "/w",
                "commandActions": [{ "type": "unknown", "command": "make" }], "proposedExecpolicyAmendment": ["make"],
                "additionalPermissions": permissions,
            });
            RequestView::of(&json!({ "request_payload": payload }).into()).warnings
        };
        assert_eq!(asked(Value::Null), [""; 0]);
        let more = json!({ "network": { "enabled": true }, "fileSystem": null });
        assert_eq!(asked(more), ["it is given more than the sandbox allows"]);
    }

    #[test]
    fn non_objects_are_shown_too() {
        let row = json!({ "request_payload": [1, 2], "changes": null });
        assert_eq!(RequestView::of(&Request::from(&row)).members[0].text, "[1,2]");
        assert_eq!(RequestView::of(&json!({}).into()).members, []);
    }

    #[test]
    fn answers_are_in_words() {
        let check = |payload: Value, expect: &str| assert_eq!(answer_in_words(&payload), expect);
        check(json!({"answers": {"color": {"answers": ["Red"]}}}), "color: Red");
        check(json!({"action": "accept", "content": {"n": 3, "s": "x"}}), "accept; n: 3; s: x");
        check(json!({"action": "decline"}), "decline");
        check(json!({"permissions": {}}), "nothing granted");
        let always = json!({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "x"]}});
        check(json!({ "decision": always }), "accept, and do not ask again for `touch x`");
    }

    #[test]
    fn tools_are_named_without_their_process() {
        let check = |source: &str, by: &str, expect: &str| {
            let row = json!({ "status": "resolved", "resolution_source": source, "resolved_by": by,
                "resolved_payload": { "decision": "accept" } });
            assert_eq!(ending(&Request::from(&row)), format!("answered by {expect}: accept"));
            assert_eq!(own_ending(&Request::from(&row)), "answered: accept");
        };
        let peer = "uid 0, pid 14322";
        check("tui", peer, "the terminal UI");
        check("web", peer, "the web page");
        check("cli", peer, "`codex-shim respond`");
        check("api", peer, "api (uid 0, pid 14322)");
        check("api", "fleet:ann@build", "ann@build");
        check("client", "ide", "client (ide)");
        check("policy", "rule:no-network", "policy (rule:no-network)");
    }

    #[test]
    fn names_become_words() {
        let names = ["riskLevel", "risk_level", "_meta", "isURL", "x"].map(name_in_words);
        assert_eq!(names, ["risk level", "risk level", "meta", "is url", "x"]);
    }

    #[test]
    fn proposals_are_shown_unless_they_are_offered() {
        let payload = json!({ "proposedExecpolicyAmendment": ["touch", "x"],
            "proposedNetworkPolicyAmendments": [{ "host": "a.b", "action": "deny" }, { "host": "c.d", "action": "allow" }] });
        let of = |payload: &Value| RequestView::of(&json!({ "request_payload": payload }).into()).members;
        let expect = "no longer ask for `touch x`\nalways refuse a.b\nno longer ask for c.d";
        assert_eq!(of(&payload), [Row { label: "proposes".to_owned(), text: expect.to_owned(), meant: Meant::Plain }]);
        let mut offered = payload;
        offered["availableDecisions"] = json!(["accept", { "acceptWithExecpolicyAmendment": {} }]);
        assert_eq!(of(&offered), []);
    }
}
