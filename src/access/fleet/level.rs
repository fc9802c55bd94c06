//! Decides what leaves the machine at each level. Pure. An agent publishes only values from this module.
//!
//! With [`FleetLevel::Summary`] only the members in the lists here ([`MayLeave`]) leave it: what happened, when and where, but no
//! output, no diff and no message text. A member that is not listed stays, so that a new one of codex leaves only once it is listed.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::wire::{self, Failure, HostDocument, MESSAGE_BYTES_MAX, PendingDocument, Reply};
use crate::api::{Request, RequestDocument, RequestSession, Responded, StoredAnswer};
use crate::config::FleetLevel;
use crate::engine::{answers_nothing, one_line, without_shell};
use crate::requests::view::files;
use crate::secrets::{redacted, redacted_json};
use crate::store::{Found, label};

/// How the text of a member leaves. Numbers and truth values leave as they are; objects and arrays stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    /// If it is an id, a time or a state.
    Word,
    /// The same; `null` stays.
    Fact,
    /// The same; another text becomes empty, because the reader needs the member.
    Needed,
    /// If it is short: the name of a user or a client may have any character.
    Name,
    /// The beginning of its first line.
    Line,
}

/// The members of a document that may leave at the level `summary`, by their paths. Each other member stays.
type MayLeave = &'static [(As, &'static str)];

const EVENT: MayLeave = &[(
    As::Word,
    "seq session_id generation timestamp event_type thread_id turn_id item_id delta_count persisted epoch",
)];

/// Of an event's payload.
const PAYLOAD: MayLeave = &[(
    As::Fact,
    "adopted item.type item.id item.status item.exitCode item.durationMs turn.id turn.status status.type status request_id source \
     error_code lines after_seq up_to_seq version exit_code conn tokenUsage.total.totalTokens",
)];

const REQUEST: MayLeave = &[
    (
        As::Word,
        "request_id session_id process_generation request_method request_type thread_id turn_id item_id requested_at expires_at \
         dispatched_at confirmed_at resolved_at status error_code resolution_source",
    ),
    (As::Name, "resolved_by"),
];

/// Of a request's payload.
const REQUEST_PAYLOAD: MayLeave = &[(As::Word, "itemId"), (As::Line, "command cwd")];

const ANSWER: MayLeave = &[(As::Word, "at source won"), (As::Name, "by")];

const SESSION: MayLeave = &[(As::Word, "session_id short_id live state since pid"), (As::Line, "name cwd")];

/// Of the session of a request, in a list and alone.
const SESSION_OF_REQUEST: MayLeave = &[(As::Word, "session_id live"), (As::Line, "name cwd client")];
const SESSION_OF_ONE: MayLeave = &[(As::Needed, "session_id"), (As::Line, "name")];

/// Of what a relay says of a message or an interrupted turn.
const DONE: MayLeave = &[(As::Word, "ok turn_id thread_id steered")];

/// Of the description of the host, and of an outcome in it.
const HOST: MayLeave =
    &[(As::Needed, "since"), (As::Line, "v host version level seen_at agent sessions pending others")];
const WAITED: MayLeave = &[(As::Needed, "request at outcome"), (As::Line, "user")];

/// Of the list of its pending requests, and of a row in it.
const PENDING: MayLeave = &[(As::Line, "v host more")];
const PENDING_ROW: MayLeave = &[
    (As::Needed, "session_id request_id request_method request_type thread_id requested_at expires_at"),
    (As::Line, "session_name summary"),
];

/// Of a sum of the usage.
const USAGE: MayLeave = &[
    (As::Needed, "session_id"),
    (
        As::Line,
        "session_name day client model turns input_tokens cached_input_tokens output_tokens reasoning_output_tokens total_tokens \
         working_ms waiting_ms commands requests answered_by.client answered_by.tui answered_by.web answered_by.cli \
         answered_by.api answered_by.policy answered_by.nobody",
    ),
];

/// Longest text of a member that stays, in bytes. Ids, names and states are short; a longer text may be a message.
const TEXT_BYTES_MAX: usize = 128;

/// Longest command, folder, line about a request or failure, in bytes.
const LINE_BYTES_MAX: usize = 300;

/// A document of a reply that may leave the machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Leaving(Value);

/// The bytes of a reply.
pub(super) fn reply(answered: Result<Leaving, Failure>, level: FleetLevel) -> Vec<u8> {
    Reply::of(answered.map(|Leaving(document)| document).map_err(|failure| self::failure(failure, level))).to_bytes()
}

/// A failure. At [`FleetLevel::Summary`] the words of a relay, a request or a file stay, because they may quote anything.
fn failure(failure: Failure, level: FleetLevel) -> Failure {
    let Failure { code, message, is_quoted } = failure;
    let message = match (level, is_quoted) {
        (FleetLevel::Summary, true) => in_own_words(&code),
        (FleetLevel::Summary, false) => line(&message, LINE_BYTES_MAX),
        (FleetLevel::Full, _) => hidden(&message),
    };
    Failure { code: if is_word(&code) { code } else { "failed".to_owned() }, message, is_quoted }
}

fn in_own_words(code: &str) -> String {
    let known = match code {
        "request_unavailable" => "the request takes no answer any more",
        "invalid_response" => "this is not a valid answer to the request",
        "thread_not_found" => "the server does not know the thread",
        "pending_structured_request" => "a request of the session waits for an answer",
        "sessions_unreadable" => "the sessions of this host cannot be listed now",
        other if is_word(other) => return format!("the host refuses ({other}); its reason stays there"),
        _ => "the host refuses; its reason stays there",
    };
    known.to_owned()
}

/// A text with its secrets masked.
fn hidden(text: &str) -> String {
    redacted(text).unwrap_or_else(|| text.to_owned())
}

/// The beginning of the first line of a text, masked before it is cut. Further lines of a command may be the content of
/// a file.
fn line(text: &str, bytes_max: usize) -> String {
    let whole = hidden(text);
    let first = whole.trim_start().lines().next().unwrap_or_default();
    let mut line = one_line(first);
    let is_cut = line.len() > bytes_max || whole.trim().lines().count() > 1;
    line.truncate(line.floor_char_boundary(bytes_max));
    if is_cut {
        line.push('…');
    }
    line
}

impl As {
    /// The value as it leaves; `None` if it stays.
    fn leaves(self, value: &Value) -> Option<Value> {
        let left = match (value, self) {
            (Value::String(text), As::Line) => Value::from(line(text, LINE_BYTES_MAX)),
            (Value::String(text), As::Name) if text.len() <= TEXT_BYTES_MAX => value.clone(),
            (Value::String(text), As::Word | As::Fact | As::Needed) if is_word(text) => Value::from(hidden(text)),
            (Value::String(_), As::Needed) => Value::from(""),
            (Value::Null, As::Fact) | (Value::String(_) | Value::Array(_) | Value::Object(_), _) => return None,
            (Value::Null | Value::Bool(_) | Value::Number(_), _) => value.clone(),
        };
        Some(left)
    }
}

/// The members that may leave.
fn picked(document: &Value, members: MayLeave) -> Map<String, Value> {
    let mut left = Map::new();
    for (how, paths) in members {
        paths.split_ascii_whitespace().for_each(|path| put(&mut left, document, path, *how));
    }
    left
}

/// Puts the member at a path, with the objects above it.
fn put(left: &mut Map<String, Value>, from: &Value, path: &str, how: As) {
    let Some((name, path)) = path.split_once('.') else {
        left.extend(from.get(path).and_then(|value| how.leaves(value)).map(|value| (path.to_owned(), value)));
        return;
    };
    let Some(from) = from.get(name) else { return };
    let mut below = left.remove(name).unwrap_or_else(|| json!({}));
    if let Value::Object(members) = &mut below {
        put(members, from, path, how);
    }
    left.extend(Some(below).filter(|below| *below != json!({})).map(|below| (name.to_owned(), below)));
}

fn at_level(document: &impl Serialize, members: MayLeave, level: FleetLevel) -> Value {
    let document = json!(document);
    match level {
        FleetLevel::Full => masked(&document),
        FleetLevel::Summary => Value::Object(picked(&document, members)),
    }
}

/// [`at_level`] of a document with the rows `name`.
fn with_rows(
    document: &impl Serialize,
    members: MayLeave,
    (name, of_row): (&str, MayLeave),
    level: FleetLevel,
) -> Value {
    let document = json!(document);
    let mut left = at_level(&document, members, level);
    if let (FleetLevel::Summary, Some(Value::Array(rows))) = (level, document.get(name)) {
        left[name] = rows.iter().map(|row| at_level(row, of_row, level)).collect();
    }
    left
}

/// The sessions of the host.
pub(super) fn sessions(rows: &[Value], level: FleetLevel) -> Leaving {
    let rows: Vec<Value> = rows.iter().map(|row| at_level(row, SESSION, level)).collect();
    Leaving(json!({ "sessions": rows }))
}

/// Rows of requests with their sessions, the number of further ones, and the sessions whose requests could not be read.
pub(super) fn requests(
    rows: &[(Request, RequestSession)],
    left_out: usize,
    silent: &[(Found, Failure)],
    level: FleetLevel,
) -> Leaving {
    let rows: Vec<Value> = rows
        .iter()
        .map(|(row, session)| {
            let mut row = request(row, level);
            row["session"] = at_level(session, SESSION_OF_REQUEST, level);
            row
        })
        .collect();
    Leaving(json!({ "requests": rows, "left_out": left_out, "problems": problems(silent, level) }))
}

/// Why sessions are not in a reply.
fn problems(silent: &[(Found, Failure)], level: FleetLevel) -> Vec<String> {
    silent
        .iter()
        .map(|(Found { id, .. }, why)| {
            line(&format!("session {id}: {}", failure(why.clone(), level).message), LINE_BYTES_MAX)
        })
        .collect()
}

/// A request with its answers, and its session: the id and the name.
pub(super) fn shown(session: &Found, document: &RequestDocument, level: FleetLevel) -> Leaving {
    let answers: Vec<Value> = document.answers.iter().map(|given| answer(given, level)).collect();
    let session = json!({ "session_id": session.id, "name": label(session) });
    let session = at_level(&session, SESSION_OF_ONE, level);
    let request = request(&document.request, level);
    Leaving(json!({ "session": session, "request": request, "answers": answers, "level": level.to_string() }))
}

/// The row of a request after an answer.
pub(super) fn answered(responded: &Responded, level: FleetLevel) -> Leaving {
    let Responded { idempotent, ok, request: row } = responded;
    Leaving(json!({ "ok": ok, "idempotent": idempotent, "request": request(row, level) }))
}

/// A relay's answer to a message or an interruption.
pub(super) fn done(document: &Value, level: FleetLevel) -> Leaving {
    Leaving(at_level(document, DONE, level))
}

/// Sums of the usage, the number of sessions that were left out, and the unreadable ones. A sum has only numbers and
/// names.
pub(super) fn usage(rows: &[Value], left_out: u64, silent: &[(Found, Failure)], level: FleetLevel) -> Leaving {
    let rows: Vec<Value> = rows.iter().map(|row| at_level(row, USAGE, level)).collect();
    Leaving(json!({ "rows": rows, "left_out": left_out, "problems": problems(silent, level) }))
}

/// The bytes of the description of the host, in at most one message: the oldest outcomes of decisions are left out if it is too long.
pub(super) fn host(document: &HostDocument, level: FleetLevel) -> Vec<u8> {
    let mut document = with_rows(document, HOST, ("waited", WAITED), level);
    let mut bytes_over = wire::bytes(&document).len().saturating_sub(MESSAGE_BYTES_MAX);
    if let Some(waited) = document.get_mut("waited").and_then(Value::as_array_mut) {
        waited.retain(|outcome| {
            let is_left = bytes_over == 0;
            bytes_over = bytes_over.saturating_sub(wire::bytes(outcome).len());
            is_left
        });
    }
    wire::bytes(&document)
}

/// The bytes of its list of pending requests.
pub(super) fn pending(document: &PendingDocument, level: FleetLevel) -> Vec<u8> {
    wire::bytes(&with_rows(document, PENDING, ("requests", PENDING_ROW), level))
}

/// An event of the history, as it leaves the machine.
pub(super) fn event(event: &str, level: FleetLevel) -> String {
    let event = redacted_json(event).unwrap_or_else(|| event.to_owned());
    match level {
        FleetLevel::Full => event,
        FleetLevel::Summary => {
            let Ok(whole) = serde_json::from_str::<Value>(&event) else { return "{}".to_owned() };
            let payload = picked(&whole["payload_preview"], PAYLOAD);
            let mut left = picked(&whole, EVENT);
            left.insert("payload_preview".to_owned(), Value::Object(payload));
            Value::Object(left).to_string()
        }
    }
}

/// Whether a text is an id, a time or a state, and no sentence.
fn is_word(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./:".contains(&byte))
}

/// The row of a request, as it leaves the machine.
fn request(row: &Request, level: FleetLevel) -> Value {
    let masked = masked(&json!(row));
    if level == FleetLevel::Full {
        return masked;
    }
    let mut left = Value::Object(picked(&masked, REQUEST));
    let Ok(row) = serde_json::from_value::<Request>(masked) else { return json!({}) };
    left["request_payload"] = at_level(&row.request_payload, REQUEST_PAYLOAD, level);
    left["summary"] = Value::from(summary(&row, level));
    let answer = &row.resolved_payload;
    let decision = answer.get("decision").and_then(Value::as_str).filter(|word| is_word(word));
    left["resolved_payload"] = match (decision, answer) {
        (Some(word), _) => json!({ "decision": word }),
        (None, Value::Null) => Value::Null,
        (None, answer) if answers_nothing(answer) => json!({ "answers": {} }),
        (None, _) => json!({}),
    };
    let offered = row.available_decisions.into_iter().flatten();
    left["available_decisions"] = offered.filter(|offer| offer.as_str().is_some_and(is_word)).collect();
    left
}

/// The line about a request. At [`FleetLevel::Summary`] it names the command or the files, and has no reason and no question,
/// which the model or a tool has written.
pub(super) fn summary(row: &Request, level: FleetLevel) -> String {
    let line = match level {
        FleetLevel::Full => row.summary.clone(),
        FleetLevel::Summary => {
            let command = row.request_payload["command"].as_str();
            let command = command.map(|command| format!("run {}", without_shell(&hidden(command))));
            let files = files(&row.changes);
            let changes = match &files[..] {
                [] => None,
                [one] => Some(format!("change {}", one.path)),
                several => Some(format!("change {} files", several.len())),
            };
            line(&command.or(changes).unwrap_or_else(|| row.kind().name().to_owned()), LINE_BYTES_MAX)
        }
    };
    hidden(&line)
}

/// An answer to a request, as it leaves the machine. Its secrets are masked first, since a name has any character.
fn answer(answer: &StoredAnswer, level: FleetLevel) -> Value {
    at_level(&masked(&json!(answer)), ANSWER, level)
}

/// A document with all secrets masked.
fn masked(document: &Value) -> Value {
    match redacted_json(&document.to_string()) {
        Some(json) => serde_json::from_str(&json).unwrap_or_default(),
        // There is no secret in the document.
        None => document.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::super::found::found;
    use super::super::wire::{PendingRow, UsageSum};
    use super::*;
    use crate::api::ListedSession;

    fn kept(payload: Value) -> Value {
        let whole =
            json!({ "seq": 7, "event_type": "item/completed", "thread_id": "t", "payload_preview": payload, "new": 1 });
        let left: Value = serde_json::from_str(&event(&whole.to_string(), FleetLevel::Summary)).expect("JSON");
        assert_eq!((&left["seq"], left.get("new")), (&json!(7), None));
        left["payload_preview"].clone()
    }

    #[test]
    fn summary_has_no_output_and_no_text() {
        let command = json!({ "item": { "type": "commandExecution", "command": "echo SECRETWORD", "aggregatedOutput": "SECRETWORD",
            "status": "completed", "exitCode": 0 } });
        assert_eq!(
            kept(command),
            json!({ "item": { "type": "commandExecution", "status": "completed", "exitCode": 0 } })
        );
        assert_eq!(kept(json!({ "delta": "SECRETWORD" })), json!({}));
        assert_eq!(kept(json!({ "adopted": true, "server": "SECRETWORD" })), json!({ "adopted": true }));
        assert_eq!(
            kept(json!({ "item": { "type": "agentMessage", "text": "SECRETWORD" } })),
            json!({ "item": { "type": "agentMessage" } })
        );
        assert_eq!(kept(json!({ "truncated": true, "preview": "{\"item\":\"SECRETWORD" })), json!({}));
        assert_eq!(
            kept(json!({ "turn": { "status": "failed", "error": { "message": "SECRETWORD" } } })),
            json!({ "turn": { "status": "failed" } })
        );
        // A state that is a sentence is not a state.
        assert_eq!(kept(json!({ "status": "the SECRETWORD is here" })), json!({}));
        assert_eq!(kept(json!("SECRETWORD")), json!({}));
    }

    /// A text that the mask knows as a secret.
    const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

    #[test]
    fn long_commands_are_cut_to_their_first_line() {
        let script = format!("bash -lc 'cat > notes.md <<EOF\nSECRETWORD\nEOF\n# {}'", "x".repeat(500));
        let row = json!({ "request_method": "item/commandExecution/requestApproval",
            "request_payload": { "command": script, "cwd": format!("/p/{}", "y".repeat(900)) } });
        let left = request(&Request::from(&row), FleetLevel::Summary).to_string();
        assert!(left.contains("cat > notes.md") && !left.contains("SECRETWORD"), "{left}");
        assert!(left.len() < 3 * LINE_BYTES_MAX, "{left}");
        assert!(request(&Request::from(&row), FleetLevel::Full).to_string().contains("SECRETWORD"));
        // A secret at the place of the cut is masked as a whole.
        let row = json!({ "request_method": "item/commandExecution/requestApproval",
            "request_payload": { "command": format!("echo {} {TOKEN}", "x".repeat(LINE_BYTES_MAX - 14)) } });
        assert!(!request(&Request::from(&row), FleetLevel::Summary).to_string().contains("ghp_"), "{row}");
    }

    #[test]
    fn failures_quote_nothing_under_summary() {
        let quoted = || Failure::quoted("invalid_response", "expected SECRETWORD");
        let left = |failure: Failure, level: FleetLevel| String::from_utf8(reply(Err(failure), level)).expect("UTF-8");
        assert!(!left(quoted(), FleetLevel::Summary).contains("SECRETWORD"));
        assert!(left(quoted(), FleetLevel::Summary).contains("not a valid answer"));
        assert!(left(quoted(), FleetLevel::Full).contains("SECRETWORD"));
        let odd = Failure::quoted("a SECRETWORD", "SECRETWORD");
        assert!(!left(odd, FleetLevel::Summary).contains("SECRETWORD"));
        for level in [FleetLevel::Summary, FleetLevel::Full] {
            let own = Failure::new("session_not_found", format!("no session `{TOKEN}`"));
            assert!(!left(own, level).contains("ghp_"));
        }
        let silent = [(found("h", &ListedSession::default()), quoted())];
        let Leaving(listed) = requests(&[], 0, &silent, FleetLevel::Summary);
        assert!(!listed.to_string().contains("SECRETWORD"), "{listed}");
    }

    fn waited(user: &str, request: &str) -> wire::Waited {
        let (at, outcome) = (String::new(), "given".to_owned());
        wire::Waited { user: user.to_owned(), request: request.to_owned(), at, outcome }
    }

    fn described(level: FleetLevel, waited: Vec<wire::Waited>) -> HostDocument {
        HostDocument {
            v: 1,
            host: "h".to_owned(),
            version: "1".to_owned(),
            level: level.to_string(),
            since: String::new(),
            seen_at: String::new(),
            agent: String::new(),
            sessions: 1,
            pending: 0,
            others: false,
            waited,
        }
    }

    #[test]
    fn description_fits_one_message() {
        for level in [FleetLevel::Summary, FleetLevel::Full] {
            let all = |bytes: usize| (0..100).map(|number| waited("ann", &format!("{number:0bytes$}"))).collect();
            let left = |bytes: usize| {
                let description = host(&described(level, all(bytes)), level);
                assert!(description.len() <= MESSAGE_BYTES_MAX, "{}", description.len());
                serde_json::from_slice::<HostDocument>(&description).expect("it is valid").waited
            };
            assert_eq!(left(64).len(), 100);
            let (left, newest) = (left(60_000), format!("{:060000}", 99));
            assert!(level == FleetLevel::Summary || left.last().is_some_and(|waited| waited.request == newest));
            assert_eq!(left.len(), if level == FleetLevel::Full { 17 } else { 100 });
        }
    }

    #[test]
    fn names_and_folders_are_masked_and_cut() {
        let long = "n".repeat(2 * LINE_BYTES_MAX);
        let session = json!({ "session_id": TOKEN, "name": format!("work {TOKEN}"), "cwd": format!("/p/{TOKEN}/x"),
            "client": format!("ide {TOKEN}\n{long}"), "live": true, "new": "SECRETWORD" });
        let of_request: RequestSession = serde_json::from_value(session.clone()).expect("BUG: it is a session");
        for level in [FleetLevel::Summary, FleetLevel::Full] {
            let Leaving(all) = sessions(std::slice::from_ref(&session), level);
            let Leaving(listed) = requests(&[(Request::default(), of_request.clone())], 0, &[], level);
            let Leaving(used) = usage(
                &[json!({ "session_id": TOKEN, "session_name": format!("x {TOKEN}"), "turns": 1 })],
                0,
                &[],
                level,
            );
            let Leaving(said) = done(&json!({ "ok": true, "turn_id": TOKEN, "thread_id": TOKEN }), level);
            let waited = vec![waited(TOKEN, TOKEN)];
            let document = described(level, waited);
            let view = String::from_utf8(host(&document, level)).expect("UTF-8");
            for left in [all.to_string(), listed.to_string(), used.to_string(), said.to_string(), view] {
                assert!(!left.contains("ghp_"), "{left}");
                assert!(level == FleetLevel::Full || !(left.contains("SECRETWORD") || left.contains(&long)), "{left}");
            }
        }
        let Leaving(turn) =
            done(&json!({ "turn_id": "u", "steered": true, "text": "SECRETWORD" }), FleetLevel::Summary);
        assert_eq!(turn, json!({ "turn_id": "u", "steered": true }));
    }

    /// Every number of a document is 1.
    fn counted<T: Serialize + DeserializeOwned + Default>() -> T {
        fn fill(value: &mut Value) {
            match value {
                Value::Number(_) => *value = json!(1),
                Value::Object(members) => members.values_mut().for_each(fill),
                Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) => {}
            }
        }
        let mut value = json!(T::default());
        fill(&mut value);
        serde_json::from_value(value).expect("BUG: it was written so")
    }

    #[test]
    fn documents_that_are_read_elsewhere_leave_whole() {
        let host_document = HostDocument {
            since: "2026-01-02T03:04:05.000Z".to_owned(),
            ..described(FleetLevel::Summary, vec![waited("u", "r")])
        };
        let left: HostDocument =
            serde_json::from_slice(&host(&host_document, FleetLevel::Summary)).expect("it is read");
        assert_eq!(left, host_document);
        let row = PendingRow {
            session_id: "s".to_owned(),
            session_name: "work".to_owned(),
            request_id: "g-0".to_owned(),
            request_method: "item/commandExecution/requestApproval".to_owned(),
            request_type: json!("approval"),
            thread_id: Some("t".to_owned()),
            requested_at: "2026-01-02T03:04:05.000Z".to_owned(),
            expires_at: Some("2026-01-02T03:05:05.000Z".to_owned()),
            summary: "run ls".to_owned(),
        };
        let document = PendingDocument { v: 1, host: "h".to_owned(), requests: vec![row], more: 1 };
        let left: PendingDocument =
            serde_json::from_slice(&pending(&document, FleetLevel::Summary)).expect("it is read");
        assert_eq!(left, document);
        let name = |name: &str| Some(name.to_owned());
        let (session_id, session_name) = ("s".to_owned(), "work".to_owned());
        let (day, client, model) = (name("2026-01-02"), name("ide"), name("m"));
        let sum = UsageSum { used: counted(), session_id, session_name, day, client, model };
        let Leaving(left) = usage(&[json!(sum)], 0, &[], FleetLevel::Summary);
        assert_eq!(serde_json::from_value::<UsageSum>(left["rows"][0].clone()).expect("it is read"), sum);
    }

    proptest! {
        #[test]
        fn no_json_like_text_leaves_under_summary(text in "\\PC{0,40}", name in "[a-zA-Z.]{1,12}") {
            let secret = format!("a secret sentence {text}");
            let payload = json!({ &name: secret, "item": { &name: secret, "text": secret }, "list": [secret] });
            let whole = json!({ "seq": 1, "event_type": "e", "payload_preview": payload });
            let left = event(&whole.to_string(), FleetLevel::Summary);
            prop_assert!(!left.contains("secret sentence"), "{}", left);
            let _ = event(&text, FleetLevel::Full);
            let _ = event(&text, FleetLevel::Summary);
        }
    }

    #[test]
    fn full_events_are_masked() {
        let whole = json!({ "seq": 1, "payload_preview": { "password": "hunter2hunter2" } }).to_string();
        let left = event(&whole, FleetLevel::Full);
        assert!(left.contains("payload_preview") && !left.contains("hunter2"), "{left}");
    }

    #[test]
    fn summary_of_request_has_no_diff_and_no_question() {
        let row = json!({ "request_id": "g-0", "request_method": "item/fileChange/requestApproval", "summary": "change a.rs",
            "changes": [{ "path": "a.rs", "diff": "SECRETWORD" }], "request_payload": { "reason": "SECRETWORD" },
            "available_decisions": ["accept", { "acceptWithExecpolicyAmendment": ["SECRETWORD"] }] });
        let left = request(&Request::from(&row), FleetLevel::Summary);
        assert_eq!((&left["summary"], &left["available_decisions"]), (&json!("change a.rs"), &json!(["accept"])));
        assert!(!left.to_string().contains("SECRETWORD"), "{left}");
        let asked = json!({ "request_id": "g-1", "request_method": "item/tool/requestUserInput", "summary": "SECRETWORD?",
            "request_payload": { "questions": [{ "id": "q", "question": "SECRETWORD?" }] } });
        let left = request(&Request::from(&asked), FleetLevel::Summary);
        assert!(!left.to_string().contains("SECRETWORD") && left["summary"] != "", "{left}");
        assert!(request(&Request::from(&asked), FleetLevel::Full).to_string().contains("SECRETWORD"));
    }

    #[test]
    fn summary_of_command_names_the_command() {
        let row = json!({ "request_method": "item/commandExecution/requestApproval", "summary": "run make (to see)",
            "request_payload": { "command": "make", "cwd": "/p", "reason": "to see" } });
        let left = request(&Request::from(&row), FleetLevel::Summary);
        assert_eq!(
            (&left["summary"], &left["request_payload"]),
            (&json!("run make"), &json!({ "command": "make", "cwd": "/p" }))
        );
        let given =
            json!({ "at": "T", "source": "cli", "by": "uid 0", "won": true, "payload": { "text": "SECRETWORD" } });
        let given: StoredAnswer = serde_json::from_value(given).expect("BUG: it is an answer");
        assert_eq!(
            answer(&given, FleetLevel::Summary),
            json!({ "at": "T", "source": "cli", "by": "uid 0", "won": true })
        );
    }

    #[test]
    fn sentences_in_the_place_of_ids_stay() {
        let sentence = "a SECRETWORD here";
        let named = |members: MayLeave| {
            let names = members.iter().flat_map(|(_, names)| names.split_ascii_whitespace());
            Value::Object(names.map(|name| (name.to_owned(), json!(sentence))).collect())
        };
        let left_event: Value =
            serde_json::from_str(&event(&named(EVENT).to_string(), FleetLevel::Summary)).expect("JSON");
        assert_eq!(left_event, json!({ "payload_preview": {} }));
        let mut row = request(&Request::from(&named(REQUEST)), FleetLevel::Summary);
        // The name of a user.
        assert_eq!(row["resolved_by"].take(), sentence);
        assert!(!row.to_string().contains("SECRETWORD"), "{row}");
        let (at, source, by) = (sentence.to_owned(), sentence.to_owned(), sentence.to_owned());
        let given = StoredAnswer { at, source, by, ..StoredAnswer::default() };
        assert_eq!(answer(&given, FleetLevel::Summary), json!({ "by": sentence, "won": false }));
        let given = StoredAnswer { by: format!("ann {TOKEN}"), ..StoredAnswer::default() };
        assert!(!answer(&given, FleetLevel::Summary).to_string().contains("ghp_"));
        let Leaving(turn) = done(&named(DONE), FleetLevel::Summary);
        assert_eq!(turn, json!({}));
        let Leaving(listed) = sessions(&[named(SESSION)], FleetLevel::Summary);
        assert_eq!(listed["sessions"][0], json!({ "name": sentence, "cwd": sentence }));
        let row = wire::PendingRow {
            session_id: "s".to_owned(),
            session_name: "my work".to_owned(),
            request_id: sentence.to_owned(),
            request_method: sentence.to_owned(),
            request_type: json!(sentence),
            thread_id: Some(sentence.to_owned()),
            requested_at: sentence.to_owned(),
            expires_at: Some(sentence.to_owned()),
            summary: "run make".to_owned(),
        };
        let list = PendingDocument { v: 1, host: "h".to_owned(), requests: vec![row], more: 0 };
        let left = pending(&list, FleetLevel::Summary);
        let left = String::from_utf8(left).expect("UTF-8");
        assert!(!left.contains("SECRETWORD") && left.contains("my work") && left.contains("run make"), "{left}");
        assert!(serde_json::from_str::<PendingDocument>(&left).is_ok(), "{left}");
    }
}
