//! The messages of the fleet. Pure.
//!
//! All are JSON. A reader of events and documents skips members that it does not know, so that hosts of different versions can be in
//! one fleet. A question with an unknown member is refused: it may change what the answer means.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::subject::Mode;
use crate::api::{EventDocument, Used};
use crate::requests::given::{Decision, Given};

/// The version of all messages.
pub const VERSION: u8 = 1;

/// Longest message, in bytes. Source: `max_payload` of a NATS server, less the headers.
pub(super) const MESSAGE_BYTES_MAX: usize = (1 << 20) - (8 << 10);

/// Longest question, in bytes.
pub(super) const QUESTION_BYTES_MAX: usize = 64 << 10;

/// Longest id of a session, a request or a thread in a question, in bytes.
pub(super) const ID_BYTES_MAX: usize = 256;

/// An event of a session, or a gap in the place of events that are lost.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventMessage {
    pub v: u8,
    pub host: String,
    pub session: String,
    pub epoch: String,
    /// The number of the event; of a gap, the last number before the next event.
    pub seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
}

impl EventMessage {
    /// The id by which the server drops a message that it has.
    pub fn id(&self) -> String {
        let EventMessage { host, session, epoch, seq, .. } = self;
        format!("{host}/{session}/{epoch}/{seq}")
    }

    /// The event, if this is not a gap.
    pub fn document(&self) -> Option<EventDocument> {
        serde_json::from_str(self.event.as_ref()?.get()).ok()
    }
}

/// Events that were not shipped and never will be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// `retention`, `new_epoch` or `cursor_ahead`, as in a page of events.
    pub reason: String,
    /// The last number that was shipped before.
    pub after_seq: u64,
    /// The epoch of `after_seq`, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_epoch: Option<String>,
}

/// A host, as it describes itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDocument {
    pub v: u8,
    pub host: String,
    /// The version of codex-shim.
    pub version: String,
    pub level: String,
    /// When its agent started.
    pub since: String,
    /// When it last wrote this.
    pub seen_at: String,
    /// Identifies the agent, so that two with one name are noticed.
    pub agent: String,
    /// Live sessions.
    pub sessions: u64,
    /// Pending requests.
    pub pending: u64,
    /// Another agent with this name of a host was noticed.
    #[serde(default)]
    pub others: bool,
    /// The outcomes of the last answers that had waited for this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<Waited>,
}

/// The outcome of an answer that had waited for its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    pub user: String,
    pub request: String,
    /// When the host has taken it.
    pub at: String,
    /// `given`; `answered_before`, if another answer counts; `waits`, if the host tries again; `too_late`; `withdrawn`,
    /// if the server does not have it any more; `too_many`, if too many others wait; `unknown`, if the relay may have
    /// got it; if the request takes no answer, its state, such as `orphaned`; or the code of a failure.
    pub outcome: String,
}

/// The pending requests of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingDocument {
    pub v: u8,
    pub host: String,
    /// Oldest first.
    pub requests: Vec<PendingRow>,
    /// Further requests that are not listed.
    #[serde(default)]
    pub more: u64,
}

/// A pending request, in brief: members of its row in the ledger, and its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingRow {
    pub session_id: String,
    pub session_name: String,
    pub request_id: String,
    pub request_method: String,
    #[serde(default)]
    pub request_type: Value,
    #[serde(default)]
    pub thread_id: Option<String>,
    pub requested_at: String,
    #[serde(default)]
    pub expires_at: Option<String>,
    pub summary: String,
}

/// The use of a session on one day in UTC, by one client and with one model. A day that is not known is `null`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
pub(super) struct UsageSum {
    #[serde(flatten)]
    pub used: Used,
    pub session_id: String,
    pub session_name: String,
    pub day: Option<String>,
    pub client: Option<String>,
    pub model: Option<String>,
}

/// A question to a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// Its sessions.
    Sessions { v: u8 },
    /// Its requests.
    Requests {
        v: u8,
        #[serde(default)]
        all: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
    },
    /// A request in full.
    Request {
        v: u8,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        request: String,
    },
    /// The use of its sessions.
    Usage {
        v: u8,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<String>,
    },
    /// Answers a request.
    Respond {
        v: u8,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        request: String,
        given: Given,
    },
    /// Messages the model.
    Send {
        v: u8,
        session: String,
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
    },
    /// Stops the running turn.
    Interrupt {
        v: u8,
        session: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
    },
}

impl Question {
    /// Reads a question.
    ///
    /// # Errors
    ///
    /// Why it is not valid.
    pub fn read(bytes: &[u8]) -> Result<Question, Failure> {
        if bytes.len() > QUESTION_BYTES_MAX {
            return Err(Failure::new("too_large", format!("a question has at most {QUESTION_BYTES_MAX} bytes")));
        }
        // serde would read an array as the members in order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(Failure::new("invalid_question", "a question is a JSON object"));
        }
        let question: Question = serde_json::from_slice(bytes)
            .map_err(|error| Failure::new("invalid_question", format!("the question is not valid: {error}")))?;
        let is_short = |id: &&str| (1..=ID_BYTES_MAX).contains(&id.len());
        match question.version() {
            VERSION if question.ids().iter().all(is_short) => Ok(question),
            VERSION => Err(Failure::new("invalid_question", format!("an id has 1 to {ID_BYTES_MAX} bytes"))),
            other => {
                let message =
                    format!("this host reads version {VERSION} of questions, not {other}; update codex-shim there");
                Err(Failure::new("unknown_version", message))
            }
        }
    }

    fn version(&self) -> u8 {
        match self {
            Question::Sessions { v }
            | Question::Requests { v, .. }
            | Question::Request { v, .. }
            | Question::Usage { v, .. }
            | Question::Respond { v, .. }
            | Question::Send { v, .. }
            | Question::Interrupt { v, .. } => *v,
        }
    }

    fn ids(&self) -> Vec<&str> {
        let (ids, optional) = match self {
            Question::Sessions { .. } => (vec![], [None, None]),
            Question::Requests { session, .. } => (vec![], [session.as_deref(), None]),
            Question::Usage { since, .. } => (vec![], [since.as_deref(), None]),
            Question::Request { session, request, .. } | Question::Respond { session, request, .. } => {
                (vec![request.as_str()], [session.as_deref(), None])
            }
            Question::Send { session, thread, .. } | Question::Interrupt { session, thread, .. } => {
                (vec![session.as_str()], [thread.as_deref(), None])
            }
        };
        ids.into_iter().chain(optional.into_iter().flatten()).collect()
    }

    /// The mode that its subject must have.
    pub fn mode(&self) -> Mode {
        match self {
            Question::Respond { .. } | Question::Send { .. } | Question::Interrupt { .. } => Mode::Write,
            Question::Sessions { .. }
            | Question::Requests { .. }
            | Question::Request { .. }
            | Question::Usage { .. } => Mode::Read,
        }
    }
}

/// A decision for a host that is away. Nothing else waits: all other answers depend on what the request says by then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Later {
    pub v: u8,
    pub request: String,
    pub given: Decision,
    /// RFC 3339. The host drops an answer that it gets later.
    pub expires_at: String,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub code: String,
    pub message: String,
    /// The message has words of a relay, a request or a file.
    #[serde(skip)]
    pub is_quoted: bool,
}

impl Failure {
    pub fn new(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.to_owned(), message: message.into(), is_quoted: false }
    }

    /// A failure in the words of a relay, a request or a file.
    pub fn quoted(code: &str, message: impl Into<String>) -> Failure {
        Failure { is_quoted: true, ..Failure::new(code, message) }
    }
}

/// A host's reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Reply {
    pub v: u8,
    pub ok: bool,
    /// The same document that the local tool prints with `--json`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub document: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl Reply {
    pub(super) fn of(answered: Result<Value, Failure>) -> Reply {
        match answered {
            Ok(document) => Reply { v: VERSION, ok: true, document, error: None },
            Err(error) => Reply { v: VERSION, ok: false, document: Value::Null, error: Some(error) },
        }
    }

    /// The message, at most [`MESSAGE_BYTES_MAX`] long.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let bytes = bytes(self);
        if bytes.len() <= MESSAGE_BYTES_MAX {
            return bytes;
        }
        let shorter = Reply { document: cut(&self.document, MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX), ..self.clone() };
        self::bytes(&shorter)
    }

    /// Reads a reply.
    ///
    /// # Errors
    ///
    /// The failure of the host, or why the reply is not valid.
    pub(super) fn read(bytes: &[u8]) -> Result<Value, Failure> {
        let reply: Reply = serde_json::from_slice(bytes)
            .map_err(|error| Failure::new("invalid_reply", format!("the reply is not valid: {error}")))?;
        match reply {
            Reply { ok: true, document, .. } => Ok(document),
            Reply { error: Some(error), .. } => Err(error),
            Reply { .. } => Err(Failure::new("invalid_reply", "the reply has neither a document nor an error")),
        }
    }
}

/// Room for the members of a reply around its document, in bytes.
const ENVELOPE_BYTES_MAX: usize = 256;

pub(super) fn bytes(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("BUG: plain data is JSON")
}

/// Lengths to which texts are cut, one after the other, until a document fits.
const TEXT_BYTES: [usize; 4] = [64 << 10, 8 << 10, 1 << 10, 128];

/// The document in at most `bytes_max` bytes: long texts are cut, with a mark. A document that is too long even so is replaced by a mark.
pub(super) fn cut(document: &Value, bytes_max: usize) -> Value {
    let length = |document: &Value| bytes(document).len();
    let mut shorter = document.clone();
    for text_bytes in TEXT_BYTES {
        if length(&shorter) <= bytes_max {
            return shorter;
        }
        cut_texts(&mut shorter, text_bytes);
    }
    match length(&shorter) <= bytes_max {
        true => shorter,
        false => json!({ "cut": true, "bytes": length(document) }),
    }
}

fn cut_texts(value: &mut Value, bytes_max: usize) {
    match value {
        Value::String(text) if text.len() > bytes_max => {
            let end = text.floor_char_boundary(bytes_max);
            *text = format!("{}… (cut: {} bytes in all)", &text[..end], text.len());
        }
        Value::Array(values) => values.iter_mut().for_each(|value| cut_texts(value, bytes_max)),
        Value::Object(members) => members.values_mut().for_each(|value| cut_texts(value, bytes_max)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::Word;

    fn read(json: &str) -> Result<Question, String> {
        Question::read(json.as_bytes()).map_err(|failure| failure.code)
    }

    #[test]
    fn questions_are_read_back() {
        let decision = Given::Decision(Decision::new(Word::AcceptForSession, None));
        let all = [
            Question::Sessions { v: 1 },
            Question::Requests { v: 1, all: true, session: Some("s".to_owned()) },
            Question::Request { v: 1, session: None, request: "r".to_owned() },
            Question::Usage { v: 1, since: None },
            Question::Respond { v: 1, session: None, request: "r".to_owned(), given: decision },
            Question::Send { v: 1, session: "s".to_owned(), text: "t".to_owned(), thread: None },
            Question::Interrupt { v: 1, session: "s".to_owned(), thread: Some("t".to_owned()) },
        ];
        for question in all {
            assert_eq!(Question::read(&bytes(&question)), Ok(question));
        }
    }

    #[test]
    fn unknown_members_and_asks_are_refused() {
        assert!(read(r#"{"v":1,"ask":"sessions"}"#).is_ok());
        let wrong = [
            "",
            "[]",
            r#"["sessions",1]"#,
            r#"{"v":1}"#,
            r#"{"ask":"sessions"}"#,
            r#"{"v":1,"ask":"erase"}"#,
            r#"{"v":1,"ask":"sessions","more":1}"#,
            r#"{"v":1,"ask":"request","request":""}"#,
            r#"{"v":1,"ask":"respond","request":"r","given":{"word":"accept","body":{}}}"#,
            r#"{"v":1,"ask":"respond","request":"r","given":{}}"#,
            r#"{"v":1,"ask":"send","session":"s","text":"t","user":"root"}"#,
        ];
        for wrong in wrong {
            assert_eq!(read(wrong), Err("invalid_question".to_owned()), "{wrong}");
        }
        assert_eq!(read(r#"{"v":2,"ask":"sessions"}"#), Err("unknown_version".to_owned()));
        let long = format!(r#"{{"v":1,"ask":"send","session":"s","text":"{}"}}"#, "x".repeat(QUESTION_BYTES_MAX));
        assert_eq!(read(&long), Err("too_large".to_owned()));
        let long_id = format!(r#"{{"v":1,"ask":"request","request":"{}"}}"#, "x".repeat(ID_BYTES_MAX + 1));
        assert_eq!(read(&long_id), Err("invalid_question".to_owned()));
    }

    #[test]
    fn words_are_those_of_the_tools() {
        for word in Word::ALL {
            assert_eq!(Decision::new(word, None).word(), Some(word));
        }
        assert_eq!(Decision { word: "allow".to_owned(), reason: None }.word(), None);
    }

    #[test]
    fn long_replies_are_cut_with_a_mark() {
        let long = Reply::of(Ok(json!({ "id": "r-1", "diff": "ä".repeat(MESSAGE_BYTES_MAX) })));
        let bytes = long.to_bytes();
        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        let document = Reply::read(&bytes).expect("it is valid");
        assert_eq!(document["id"], "r-1");
        assert!(document["diff"].as_str().is_some_and(|text| text.ends_with(" bytes in all)")), "{document}");
        let many = Reply::of(Ok(json!({ "rows": vec![0; MESSAGE_BYTES_MAX] })));
        assert_eq!(Reply::read(&many.to_bytes()).expect("it is valid")["cut"], true);
        let short = Reply::of(Ok(json!([1])));
        assert_eq!(Reply::read(&short.to_bytes()), Ok(json!([1])));
    }

    proptest! {
        #[test]
        fn no_bytes_break_a_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Question::read(&bytes);
            let _ = Reply::read(&bytes);
            let _ = serde_json::from_slice::<EventMessage>(&bytes);
            let _ = serde_json::from_slice::<Later>(&bytes);
        }

        #[test]
        fn every_text_is_cut_to_the_limit(text in "\\PC{0,4000}", bytes_max in 200_usize..3_000) {
            let document = json!({ "a": [text, { "b": text }] });
            prop_assert!(bytes(&cut(&document, bytes_max)).len() <= bytes_max);
        }
    }

    #[test]
    fn failures_are_read_back() {
        let failure = Failure::new("busy", "try again");
        assert_eq!(Reply::read(&Reply::of(Err(failure.clone())).to_bytes()), Err(failure));
        assert_eq!(Reply::read(b"{}").map_err(|failure| failure.code), Err("invalid_reply".to_owned()));
    }
}
