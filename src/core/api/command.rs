//! The calls to a session that change something: one type for all of them, and the bodies that its relay reads.

use std::path::PathBuf;
use std::time::Duration;

use http::Method as Http;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::request::OneRequest;
use crate::engine::{OverruleFor, PushedCommand, RowId};
use crate::protocol::Method;

/// How long a relay may take to store an answer: it allows itself 10 s.
const DECISION_WAIT_MAX: Duration = Duration::from_secs(15);

/// How long a relay may take if it waits for the server: longer than it waits itself.
const TURN_WAIT_MAX: Duration = Duration::from_secs(35);

/// How long a relay may take to store a command: it answers after the commit to disk, which takes seconds on a machine busy
/// with a build.
const KEEP_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a relay may take to remove a command.
const REMOVE_WAIT_MAX: Duration = Duration::from_secs(5);

/// A call to a session that changes something.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Answers a request. Its document is [`super::Responded`].
    Respond(OneRequest, Value),
    /// Messages the model. Its document is [`super::TurnReply`].
    Input(InputBody),
    /// Stops a turn. Its document is [`super::TurnReply`].
    Interrupt(InterruptBody),
    /// Overrules the denial with this id. Its document is [`super::OverruledDocument`].
    Overrule(String, OverruleFor),
    /// Starts a thread in a folder. Its document is the answer of the server.
    StartThread(Option<PathBuf>),
    /// Has commands shown to the model. Its document is [`super::WaitingDocument`], as for the next two.
    Push(Vec<PushedCommand>),
    /// Removes a command that waits.
    Drop(RowId),
    /// Removes all commands that wait.
    Clear,
    /// Have a hub become this program.
    HandOver(PathBuf),
}

/// A message to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputBody {
    pub text: String,
    /// `None` is the thread of the last turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// The turn to stop.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterruptBody {
    /// `None` is the thread of the last turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// The program that a hub becomes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandoverBody {
    /// An absolute path.
    pub program: String,
}

/// When an approval that overrules a denial applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverruleBody {
    /// The approval may wait for the next turn of the thread.
    #[serde(default)]
    pub next_turn: bool,
}

/// A command as it is sent to the control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandCall {
    pub method: Http,
    pub path: String,
    /// JSON, or nothing.
    pub body: String,
    /// How long the relay may take to answer.
    pub wait_max: Duration,
}

impl Command {
    pub fn call(&self) -> CommandCall {
        let (method, path, body, wait_max) = match self {
            Command::Respond(request, answer) => {
                let path = format!("codex-requests/{}/respond", request.id());
                (Http::POST, path, answer.to_string(), DECISION_WAIT_MAX)
            }
            Command::Input(body) => (Http::POST, "input".to_owned(), in_json(body), TURN_WAIT_MAX),
            Command::Interrupt(body) => (Http::POST, "interrupt".to_owned(), in_json(body), TURN_WAIT_MAX),
            Command::Overrule(review_id, applies) => {
                let path = format!("codex-reviews/{}/overrule", encoded(review_id));
                let body = OverruleBody { next_turn: *applies == OverruleFor::NextTurn };
                (Http::POST, path, in_json(&body), TURN_WAIT_MAX)
            }
            Command::StartThread(folder) => {
                let mut params = json!({});
                folder.iter().for_each(|folder| params["cwd"] = json!(folder.to_string_lossy()));
                let body = json!({ "method": Method::ThreadStart.name(), "params": params });
                (Http::POST, "rpc".to_owned(), body.to_string(), TURN_WAIT_MAX)
            }
            Command::Push(commands) => (Http::POST, "context".to_owned(), in_json(commands), KEEP_WAIT_MAX),
            Command::Drop(id) => (Http::DELETE, format!("context/{id}"), String::new(), REMOVE_WAIT_MAX),
            Command::HandOver(program) => {
                let body = HandoverBody { program: program.to_string_lossy().into_owned() };
                (Http::POST, "handover".to_owned(), in_json(&body), TURN_WAIT_MAX)
            }
            Command::Clear => (Http::DELETE, "context".to_owned(), String::new(), REMOVE_WAIT_MAX),
        };
        CommandCall { method, path: format!("/sessions/self/{path}"), body, wait_max }
    }
}

fn in_json(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("BUG: plain data is JSON")
}

/// A text as a part of a path.
fn encoded(text: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let encoded = |byte: u8| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_calls() {
        let check = |command: Command, method: &str, path: &str, body: &str| {
            let call = command.call();
            assert_eq!((call.method.as_str(), &*call.path, &*call.body), (method, path, body), "{command:?}");
        };
        let request = OneRequest::of("0c4e-0").expect("BUG: it is an id");
        let answer = json!({ "decision": "accept" });
        let path = "/sessions/self/codex-requests/0c4e-0/respond";
        check(Command::Respond(request, answer), "POST", path, r#"{"decision":"accept"}"#);
        let input = |thread: Option<&str>| InputBody { text: "x".to_owned(), thread_id: thread.map(str::to_owned) };
        check(Command::Input(input(None)), "POST", "/sessions/self/input", r#"{"text":"x"}"#);
        check(Command::Input(input(Some("t"))), "POST", "/sessions/self/input", r#"{"text":"x","thread_id":"t"}"#);
        check(Command::Interrupt(InterruptBody::default()), "POST", "/sessions/self/interrupt", "{}");
        let body = r#"{"method":"thread/start","params":{"cwd":"/w"}}"#;
        check(Command::StartThread(Some("/w".into())), "POST", "/sessions/self/rpc", body);
        check(Command::Push(Vec::new()), "POST", "/sessions/self/context", "[]");
        check(Command::Drop(7), "DELETE", "/sessions/self/context/7", "");
        check(Command::HandOver("/bin/x".into()), "POST", "/sessions/self/handover", r#"{"program":"/bin/x"}"#);
        check(Command::Clear, "DELETE", "/sessions/self/context", "");
    }

    #[test]
    fn ids_cannot_leave_their_path() {
        let path = |id: &str| Command::Overrule(id.to_owned(), OverruleFor::ThisTurn).call().path;
        assert_eq!(path("8adf-b_.~"), "/sessions/self/codex-reviews/8adf-b_.~/overrule");
        assert_eq!(path("a/b?ä"), "/sessions/self/codex-reviews/a%2Fb%3F%C3%A4/overrule");
    }
}
