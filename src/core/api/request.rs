//! Requests of the server that wait for an answer, and the answers that were given.
//!
//! Members are in alphabetical order, as they are written.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::query::Query;
use super::session::ThreadIdentityDocument;
use crate::engine::{RequestKind, decisions};
use crate::history::WITHDRAWN;
use crate::protocol::own_changes;

/// A request: its row in the ledger, and what is known of it besides. What codex says itself stays JSON. Relays of older versions leave
/// members out, and so do rows that are not listed; unknown members of newer ones are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Until when it can be answered, RFC 3339; `Some(None)` if for ever.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub answer_until: Option<Option<String>>,
    /// The decisions that it allows: words, and objects that only this request offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_decisions: Option<Vec<Value>>,
    /// The changes of files that it asks about.
    pub changes: Value,
    pub confirmed_at: Option<String>,
    pub dispatched_at: Option<String>,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    pub expires_at: Option<String>,
    /// The names of the fields of its form, in the order of the schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_order: Option<Vec<String>>,
    /// The item that it is about.
    pub item: Value,
    pub item_id: Option<String>,
    /// It was forwarded before it was stored.
    pub late: bool,
    /// Of a request on another machine: which part of it has stayed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// In a list of a tool: its short name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub process_generation: String,
    /// The file of the program that a rule has accepted. Ledgers of older versions have no such column, nor the next ones.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub program: Option<Option<String>>,
    /// Why it was declined, for the model.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Option<String>>,
    pub request_id: String,
    pub request_method: String,
    /// What codex asks.
    pub request_payload: Value,
    #[serde(deserialize_with = "text_or_null")]
    pub request_type: String,
    #[serde(deserialize_with = "text_or_null")]
    pub requested_at: String,
    pub resolution_source: Option<String>,
    pub resolved_at: Option<String>,
    pub resolved_by: Option<String>,
    /// The answer that counts, as codex gets it.
    pub resolved_payload: Value,
    pub rpc_request_id: Value,
    /// The rule that decides on it.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub rule: Option<Option<String>>,
    /// In a list of a tool: the session that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<RequestSession>,
    pub session_id: String,
    #[serde(deserialize_with = "text_or_null")]
    pub status: String,
    /// What it asks, on one line.
    #[serde(deserialize_with = "text_or_null")]
    pub summary: String,
    /// Who the thread is; `Some(None)` if nothing on record says it.
    #[serde(deserialize_with = "present", serialize_with = "sorted", skip_serializing_if = "Option::is_none")]
    pub thread: Option<Option<ThreadIdentityDocument>>,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    /// Everything in it that is risky.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<Vec<String>>,
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A row of a fleet may have `null` for what its host does not send.
fn text_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// A member that is there, if only as `null`.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Writes the members of a document in alphabetical order.
fn sorted<S: Serializer>(value: &impl Serialize, to: S) -> Result<S::Ok, S::Error> {
    serde_json::to_value(value).map_err(serde::ser::Error::custom)?.serialize(to)
}

/// The session of a request in a list, with the folder and the client of its thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestSession {
    pub client: Option<String>,
    pub cwd: Option<String>,
    pub live: bool,
    pub name: String,
    /// In a list of a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

impl Request {
    #[must_use]
    pub fn kind(&self) -> RequestKind {
        RequestKind::asked(&self.request_method, &self.request_payload).unwrap_or(RequestKind::Other)
    }

    /// The same with the decisions that it allows, and the changes that it names itself.
    #[must_use]
    pub fn with_choices(mut self) -> Request {
        let kind = self.kind();
        self.available_decisions = Some(decisions(kind, &self.request_payload));
        if kind == RequestKind::FileChange && self.changes.is_null() {
            self.changes = own_changes(&self.request_payload).clone();
        }
        self
    }

    pub fn is_pending(&self) -> bool {
        self.status == "pending"
    }

    pub fn is_resolved(&self) -> bool {
        self.status == "resolved"
    }

    /// The server took it back before there was an answer.
    pub fn is_withdrawn(&self) -> bool {
        self.error_code.as_deref() == Some(WITHDRAWN)
    }

    /// Who its thread is, if that is known.
    pub fn thread(&self) -> Option<&ThreadIdentityDocument> {
        self.thread.as_ref()?.as_ref()
    }

    /// Whether something about it makes it riskier than it looks.
    pub fn has_warnings(&self) -> bool {
        self.warnings.as_ref().is_some_and(|warnings| !warnings.is_empty())
    }

    /// The schema of its form; `null` if it has none.
    pub fn form(&self) -> &Value {
        &self.request_payload["requestedSchema"]
    }

    /// Forgets that large members were left out of a list; false if none was.
    pub fn drop_left_out(&mut self) -> bool {
        let is_cut = self.is_cut();
        let large = [&mut self.request_payload, &mut self.changes, &mut self.item];
        large.into_iter().filter(|value| is_left_out(value)).for_each(|value| *value = Value::Null);
        is_cut
    }

    /// Whether a list has left out a part of it that was too large.
    pub fn is_cut(&self) -> bool {
        [&self.request_payload, &self.changes, &self.item].into_iter().any(is_left_out)
    }
}

/// The value in place of one that was too large for a list.
pub const LEFT_OUT_FOR_SIZE: &str = "size";

/// Whether a large member was left out of a list.
pub(super) fn is_left_out(value: &Value) -> bool {
    value.get("omitted").is_some_and(|why| why == LEFT_OUT_FOR_SIZE)
}

/// An answer to a request, given by anybody.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredAnswer {
    /// RFC 3339.
    pub at: String,
    pub by: String,
    pub payload: Value,
    pub source: String,
    /// It is the one that counts.
    pub won: bool,
}

/// A request with its answers, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestDocument {
    #[serde(default)]
    pub answers: Vec<StoredAnswer>,
    pub request: Request,
}

/// Requests, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestList {
    pub requests: Vec<Request>,
}

/// The reply to an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Responded {
    /// The request had an answer before.
    pub idempotent: bool,
    /// From a relay: it has taken the call. From a tool: the answer counts.
    pub ok: bool,
    pub request: Request,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichRequests {
    /// Pending ones.
    Pending,
    /// Pending and orphaned ones.
    PendingAndOrphaned,
    /// The newest ones, whatever their status.
    All,
}

/// The requests of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests(pub WhichRequests);

impl Query for Requests {
    type Document = RequestList;

    fn path(&self) -> String {
        let which = match self.0 {
            WhichRequests::Pending => "",
            WhichRequests::PendingAndOrphaned => "?include_orphaned=true",
            WhichRequests::All => "?all=true",
        };
        format!("/sessions/self/codex-pending-requests{which}")
    }
}

/// One request, with its answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneRequest(String);

/// Longest id of a request, in bytes. Those that a relay gives are shorter.
const ID_BYTES_MAX: usize = 128;

impl OneRequest {
    /// `None` if the text is not an id: it could change the path.
    pub fn of(id: &str) -> Option<OneRequest> {
        let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let is_id = is_plain && !id.is_empty() && !id.starts_with('.') && id.len() <= ID_BYTES_MAX;
        is_id.then(|| OneRequest(id.to_owned()))
    }

    pub fn id(&self) -> &str {
        &self.0
    }
}

impl Query for OneRequest {
    type Document = RequestDocument;

    fn path(&self) -> String {
        format!("/sessions/self/codex-requests/{}", self.0)
    }
}

#[cfg(any(test, feature = "testing"))]
impl From<Value> for Request {
    fn from(row: Value) -> Request {
        serde_json::from_value(row).expect("BUG: it is a request")
    }
}

#[cfg(any(test, feature = "testing"))]
impl From<&Value> for Request {
    fn from(row: &Value) -> Request {
        row.clone().into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_only_another_version_says_hides_no_request() {
        let row = json!({ "request_id": "r", "request_type": null, "summary": null, "thread": { "kind": "of-tomorrow" }, "x": 1 });
        let read: Request = serde_json::from_value(row).expect("it can be read");
        assert_eq!((&*read.request_id, &*read.request_type), ("r", ""));
        assert_eq!(
            read.thread.flatten().map(|thread| thread.kind),
            Some(crate::protocol::ThreadKind::Newer(crate::protocol::NewerName::of("of-tomorrow")))
        );
        assert_eq!(read.more["x"], 1);
    }

    #[test]
    fn rows_are_written_as_they_were_read() {
        let check = |row: Value| {
            let mut whole = serde_json::to_value(Request::default()).expect("BUG: plain data is JSON");
            row.as_object().into_iter().flatten().for_each(|(name, value)| whole[name] = value.clone());
            let read: Request = serde_json::from_value(whole.clone()).expect("it can be read");
            assert_eq!(serde_json::to_string(&read).expect("BUG: plain data is JSON"), whole.to_string());
        };
        check(json!({}));
        check(json!({ "thread": null, "answer_until": null, "rule": null, "late": true }));
        check(json!({ "thread": ThreadIdentityDocument::default(), "session": RequestSession::default() }));
        check(json!({ "request_payload": { "b": 1, "a": [1.5, -3] }, "warnings": [], "rpc_request_id": "x" }));
        // A member that only a newer relay knows.
        let read = Request::from(json!({ "new": { "x": 1 } }));
        assert_eq!(serde_json::to_value(&read).expect("BUG: plain data is JSON")["new"], json!({ "x": 1 }));
    }

    #[test]
    fn ids_cannot_leave_their_path() {
        let path = OneRequest::of("0a1b2c3d4e5f-s.TEXT_1.2").map(|one| one.path());
        assert_eq!(path.as_deref(), Some("/sessions/self/codex-requests/0a1b2c3d4e5f-s.TEXT_1.2"));
        for wrong in ["", ".", "..", "../x", "a/b", "a?b", "a#b", "a%2fb", "a b", "a\r\nX: y", "é", &"x".repeat(129)] {
            assert_eq!(OneRequest::of(wrong), None, "{wrong}");
        }
    }
}
