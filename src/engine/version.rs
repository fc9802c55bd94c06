//! Which codex answers: read from the answer to `initialize`.

use serde::Deserialize;

use super::Note;
use crate::wire::{Message, MethodClass, RpcId, Side};

/// Longest user agent that is put on record, in bytes; what a real server sends has about 100.
const USER_AGENT_BYTES_MAX: usize = 1_000;

/// Waits for the answer to the first `initialize`.
#[derive(Debug, Default)]
pub(super) enum VersionWatch {
    /// No `initialize` was seen yet.
    #[default]
    Before,
    /// The request with this id waits for its answer.
    Asked(RpcId),
    /// The answer was seen.
    Done,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "userAgent")]
    user_agent: String,
}

impl VersionWatch {
    /// Looks at a message; returns what is to be noted.
    pub(super) fn learn(&mut self, from: Side, message: &Message<'_>) -> Option<Note> {
        match (&*self, from) {
            (VersionWatch::Before, Side::Client) => {
                if message.method.as_deref().map(MethodClass::of) == Some(MethodClass::Initialize) {
                    *self = VersionWatch::Asked(RpcId::from_raw(message.id?));
                }
                None
            }
            (VersionWatch::Asked(asked), Side::Server) => {
                if !message.is_response() || RpcId::from_raw(message.id?) != *asked {
                    return None;
                }
                *self = VersionWatch::Done;
                let Answer { user_agent } = serde_json::from_str(message.result?.get()).ok()?;
                let version = version_in(&user_agent).map(str::to_owned);
                (user_agent.len() <= USER_AGENT_BYTES_MAX).then_some(Note::CodexVersion { version, user_agent })
            }
            (VersionWatch::Before, Side::Server)
            | (VersionWatch::Asked(_), Side::Client)
            | (VersionWatch::Done, Side::Client | Side::Server) => None,
        }
    }
}

/// The version in a text such as `some-client/0.169.0 (Debian 12; x86_64) …`: what follows the first `/` that a digit
/// follows, up to white space.
fn version_in(user_agent: &str) -> Option<&str> {
    user_agent
        .split('/')
        .skip(1)
        .find(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        .and_then(|rest| rest.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::version_in;

    #[test]
    fn versions() {
        assert_eq!(version_in("codex_vscode/0.169.0 (Linux; x86_64) vscode/1.99"), Some("0.169.0"));
        assert_eq!(version_in("a/b client/1.2.3-alpha.4 x"), Some("1.2.3-alpha.4"));
        assert_eq!(version_in("nothing"), None);
        assert_eq!(version_in("x/"), None);
    }
}
