//! What a session replies to a query or a command: a document, or why there is none.

use std::fmt;

use axum::body::Bytes;
use hyper::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::client::ClientError;
use crate::store::Found;

/// Codes with which a relay refuses a path or a method that it does not know.
const UNKNOWN_CALL: [&str; 2] = ["not_found", "method_not_allowed"];

/// What a tool says when the relay refuses with such a code.
const OLDER_RELAY: &str = "the relay was started by an older codex-shim, which cannot do this; start its client again \
                           (`codex-shim status` names both versions)";

/// An HTTP response of a relay.
#[derive(Debug)]
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
pub(crate) struct RawReply(pub(crate) Bytes);

impl RawReply {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// It is not such a document.
    pub(crate) fn document<T: DeserializeOwned>(&self) -> Result<T, Unanswered> {
        let of_another = "if another codex-shim started the relay, start its client again (`codex-shim status` names both \
                          versions)";
        let invalid = |error| Unanswered::Invalid(format!("its answer is not valid: {error}; {of_another}"));
        serde_json::from_slice(&self.0).map_err(invalid)
    }
}

/// A refusal of a session.
#[derive(Debug)]
pub(crate) struct Refused {
    /// What kind it is, as `docs/control.md` lists them; empty if the response does not say it.
    pub code: String,
    pub message: String,
    /// The request that has to be answered first.
    pub pending: Option<Box<PendingRequest>>,
    /// The response as it was sent.
    pub answer: Answer,
}

/// A request that has to be answered before a message can be sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct PendingRequest {
    pub request_id: String,
    /// RFC 3339.
    pub requested_at: String,
}

impl Refused {
    /// A refusal with this code, the message `m` and further members.
    #[cfg(test)]
    pub(crate) fn coded(code: &str, more: &serde_json::Value) -> Refused {
        let mut document = serde_json::json!({ "detail": { "error_code": code, "message": "m" } });
        more.as_object().into_iter().flatten().for_each(|(name, value)| document["detail"][name] = value.clone());
        Refused::of(Answer { status: StatusCode::CONFLICT, body: document.to_string().into() })
    }

    /// Reads the response with a refusal.
    pub(crate) fn of(answer: Answer) -> Refused {
        #[derive(Deserialize)]
        struct Document {
            detail: Detail,
        }
        #[derive(Deserialize)]
        struct Detail {
            #[serde(default)]
            error_code: String,
            message: String,
            #[serde(default)]
            pending_request: Option<Box<PendingRequest>>,
        }
        let Ok(Document { detail }) = serde_json::from_slice(&answer.body) else {
            let text = String::from_utf8_lossy(&answer.body);
            let message = format!("it answered {}: {}", answer.status, text.trim_end());
            return Refused { code: String::new(), message, pending: None, answer };
        };
        // Our tools ask only for what a relay of their own version has.
        let is_older = UNKNOWN_CALL.contains(&&*detail.error_code);
        let message = if is_older { OLDER_RELAY.to_owned() } else { detail.message };
        Refused { code: detail.error_code, message, pending: detail.pending_request, answer }
    }
}

/// Why a query or a command has no document.
#[derive(Debug)]
pub(crate) enum Unanswered {
    NoAnswer(ClientError),
    Refused(Refused),
    /// The document is of another version; in words.
    Invalid(String),
}

impl From<ClientError> for Unanswered {
    fn from(error: ClientError) -> Unanswered {
        Unanswered::NoAnswer(error)
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unanswered::NoAnswer(error) => error.fmt(f),
            Unanswered::Refused(refused) => f.write_str(&refused.message),
            Unanswered::Invalid(why) => f.write_str(why),
        }
    }
}

impl Unanswered {
    /// The message for a user who already sees which session it is.
    pub(crate) fn why(&self, session: &Found) -> String {
        match self {
            Unanswered::NoAnswer(error) => error.why(session),
            Unanswered::Refused(_) | Unanswered::Invalid(_) => self.to_string(),
        }
    }

    /// The message for the user: the session too if it does not answer.
    pub(crate) fn message(&self, session: &Found) -> String {
        match self {
            Unanswered::NoAnswer(error) => error.message(session),
            Unanswered::Refused(_) | Unanswered::Invalid(_) => self.to_string(),
        }
    }

    /// Why the machine of the session cannot be asked, if that is the cause.
    pub(crate) fn away(&self) -> Option<&str> {
        match self {
            Unanswered::NoAnswer(error) => error.away(),
            Unanswered::Refused(_) | Unanswered::Invalid(_) => None,
        }
    }

    /// The code of a refusal; empty if there is none.
    pub(crate) fn code(&self) -> &str {
        match self {
            Unanswered::Refused(refused) => &refused.code,
            Unanswered::NoAnswer(_) | Unanswered::Invalid(_) => "",
        }
    }
}
