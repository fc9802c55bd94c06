//! Errors reported by the server.

use serde_json::Value;

/// The error code of work left open when the child ended. Source: the contract of the history.
pub(super) const STREAM_CLOSED: &str = "app_server_stream_closed";

/// The error code of work that was replaced without a reported end.
pub(super) const OUTCOME_UNKNOWN: &str = "outcome_unknown";

/// An error reported by the server.
#[derive(Debug, Default)]
pub(super) struct Failure {
    pub(super) message: Option<String>,
    /// The kind of the error.
    pub(super) code: Option<String>,
}

impl Failure {
    /// Parses `turn.error` or the `error` of a notification; its kind is a word, or an object with that word as its
    /// member.
    pub(super) fn of(error: &Value) -> Failure {
        let message = error.as_str().or_else(|| error["message"].as_str()).map(str::to_owned);
        let code = match &error["codexErrorInfo"] {
            Value::String(code) => Some(code.clone()),
            Value::Object(members) => members.keys().next().cloned(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
        };
        Failure { message, code }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_words() {
        let check = |error: &str, message: Option<&str>, code: Option<&str>| {
            let failure = Failure::of(&serde_json::from_str(error).expect("BUG: a test gives JSON"));
            assert_eq!((failure.message.as_deref(), failure.code.as_deref()), (message, code));
        };
        check(r#"{"message":"m","codexErrorInfo":"serverOverloaded"}"#, Some("m"), Some("serverOverloaded"));
        check(r#"{"message":"m","codexErrorInfo":{"x":{"httpStatusCode":1}}}"#, Some("m"), Some("x"));
        check(r#""m""#, Some("m"), None);
        check("null", None, None);
    }
}
