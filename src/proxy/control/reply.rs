//! What a session replies to a query or a command: a document, or why there is none.

use axum::body::Bytes;
use hyper::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::client::ClientError;
use crate::store::Found;

/// Codes with which a relay refuses a path or a method that it does not know.
const UNKNOWN_CALL: [&str; 2] = ["not_found", "method_not_allowed"];

/// What a tool says when the relay refuses with such a code.
const OLDER_RELAY: &str = "the relay was started by an older codex-shim, which cannot do this; start its client again \
                           (`codex-shim status` names both versions)";

/// An HTTP response of a relay.
#[derive(Debug, Default)]
pub struct Answer {
    pub status: StatusCode,
    pub body: Bytes,
}

impl Answer {
    pub(super) fn reply(self) -> Result<RawReply, Unanswered> {
        if self.status.is_success() { Ok(RawReply(self.body)) } else { Err(Unanswered::Refused(Refused::of(self))) }
    }
}

/// The document of a success, as it was sent.
#[derive(Debug, Clone)]
pub struct RawReply(pub Bytes);

impl RawReply {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// It is not such a document.
    pub fn document<T: DeserializeOwned>(&self) -> Result<T, Unanswered> {
        let of_another = "if another codex-shim started the relay, start its client again (`codex-shim status` names both \
                          versions)";
        let invalid = |error| Unanswered::Invalid(format!("its answer is not valid: {error}; {of_another}"));
        serde_json::from_slice(&self.0).map_err(invalid)
    }
}

/// A refusal of a session.
#[derive(Debug, Default, Deserialize)]
pub struct Refused {
    /// What kind it is, as `docs/control.md` lists them; empty if the response does not say it.
    #[serde(default, rename = "error_code")]
    pub code: String,
    #[serde(default)]
    pub message: String,
    /// The request that has to be answered first.
    #[serde(default, rename = "pending_request", deserialize_with = "of_this_form")]
    pub pending: Option<Box<PendingRequest>>,
    /// The response as it was sent.
    #[serde(skip)]
    pub answer: Answer,
}

/// A request that has to be answered before a message can be sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PendingRequest {
    pub request_id: String,
    /// RFC 3339.
    pub requested_at: String,
}

/// A value of another form is left out, so that it hides no other member.
fn of_this_form<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(from)?).ok())
}

impl Refused {
    /// A refusal with this code, the message `m` and further members.
    #[cfg(any(test, feature = "testing"))]
    pub fn coded(code: &str, more: &serde_json::Value) -> Refused {
        let mut document = serde_json::json!({ "detail": { "error_code": code, "message": "m" } });
        more.as_object().into_iter().flatten().for_each(|(name, value)| document["detail"][name] = value.clone());
        Refused::of(Answer { status: StatusCode::CONFLICT, body: document.to_string().into() })
    }

    /// Reads the response with a refusal.
    pub fn of(answer: Answer) -> Refused {
        #[derive(Deserialize)]
        struct RefusalDocument {
            detail: Refused,
        }
        let text = || String::from_utf8_lossy(&answer.body).trim_end().to_owned();
        let read = serde_json::from_slice(&answer.body).map(|RefusalDocument { detail }| detail);
        let mut refused = read.unwrap_or_default();
        if refused.message.is_empty() {
            refused.message = format!("it answered {}: {}", answer.status, text());
        }
        // Our tools ask only for what a relay of their own version has.
        if UNKNOWN_CALL.contains(&&*refused.code) {
            refused.message = OLDER_RELAY.to_owned();
        }
        Refused { answer, ..refused }
    }
}

/// Why a query or a command has no document.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    #[error(transparent)]
    NoAnswer(#[from] ClientError),
    #[error("{}", .0.message)]
    Refused(Refused),
    /// The document is of another version; in words.
    #[error("{0}")]
    Invalid(String),
}

impl Unanswered {
    fn no_answer(&self) -> Option<&ClientError> {
        if let Unanswered::NoAnswer(error) = self { Some(error) } else { None }
    }

    /// The message for a user who already sees which session it is.
    pub fn why(&self, session: &Found) -> String {
        self.no_answer().map_or_else(|| self.to_string(), |error| error.why(session))
    }

    /// The message for the user: the session too if it does not answer.
    pub fn message(&self, session: &Found) -> String {
        self.no_answer().map_or_else(|| self.to_string(), |error| error.message(session))
    }

    /// Why the machine of the session cannot be asked, if that is the cause.
    pub fn away(&self) -> Option<&str> {
        self.no_answer()?.away()
    }

    /// The code of a refusal; empty if there is none.
    pub fn code(&self) -> &str {
        if let Unanswered::Refused(refused) = self { &refused.code } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn code_of_a_refusal_is_read_alone() {
        for more in [json!({}), json!({ "pending_request": {} }), json!({ "pending_request": 7, "new": [] })] {
            assert_eq!(Refused::coded("thread_not_found", &more).code, "thread_not_found", "{more}");
        }
        let of = |body: &'static [u8]| Refused::of(Answer { status: StatusCode::CONFLICT, body: Bytes::from(body) });
        let bare = of(br#"{"detail":{"error_code":"turn_over"}}"#);
        assert_eq!(bare.code, "turn_over");
        assert!(bare.message.starts_with("it answered 409"), "{}", bare.message);
        assert_eq!(of(b"<html>").message, "it answered 409 Conflict: <html>");
    }
}
