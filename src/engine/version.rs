//! Identifies the peers: the client by `clientInfo` in `initialize`, the server by the version in its response.

use serde::Deserialize;

use super::{Effect, Note};
use crate::protocol::{Event, Method};
use crate::wire::{Message, Side};

/// Longest recorded user agent, in bytes; a real server sends about 100.
const USER_AGENT_BYTES_MAX: usize = 1_000;

/// Longest stored name or version of a client, in bytes; the rest is cut off.
const CLIENT_NAME_BYTES_MAX: usize = 200;

/// A client's name for itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientName {
    /// `clientInfo.name`, cut off at 200 bytes.
    pub name: Option<String>,
    /// `clientInfo.version`, likewise.
    pub version: Option<String>,
}

/// Watches for the first accepted `initialize` and its response.
#[derive(Debug, Default)]
pub(super) enum VersionWatch {
    /// No `initialize` yet.
    #[default]
    Before,
    /// The request has no response yet.
    Asked,
    /// The response arrived.
    Done,
}

#[derive(Deserialize)]
struct Question {
    #[serde(rename = "clientInfo")]
    client_info: ClientInfo,
}

#[derive(Deserialize)]
struct ClientInfo {
    name: Option<String>,
    version: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "userAgent")]
    user_agent: String,
}

impl VersionWatch {
    /// The server has answered `initialize`.
    pub(super) fn is_initialized(&self) -> bool {
        matches!(self, VersionWatch::Done)
    }

    /// Inspects a message and returns the effect of what it reveals.
    pub(super) fn learn(&mut self, from: Side, event: &Event<'_>, completed: Option<Method>) -> Option<Effect> {
        match (&*self, from) {
            (VersionWatch::Before, Side::Client) => {
                if event.method != Some(Method::Initialize) {
                    return None;
                }
                event.id?;
                *self = VersionWatch::Asked;
                Some(Effect::Introduce(Box::new(introduced(event)?)))
            }
            (VersionWatch::Asked, Side::Server) => {
                if completed != Some(Method::Initialize) {
                    return None;
                }
                if event.error.is_some() {
                    *self = VersionWatch::Before;
                    return None;
                }
                *self = VersionWatch::Done;
                let Answer { user_agent } = serde_json::from_str(event.result?.get()).ok()?;
                let version = version_in(&user_agent).map(str::to_owned);
                let bounded = user_agent.len() <= USER_AGENT_BYTES_MAX;
                bounded.then_some(Effect::Note(Note::CodexVersion { version, user_agent }))
            }
            (VersionWatch::Before, Side::Server)
            | (VersionWatch::Asked, Side::Client)
            | (VersionWatch::Done, Side::Client | Side::Server) => None,
        }
    }
}

/// Reads `clientInfo` from `initialize`.
pub(super) fn introduced(initialize: &Message<'_>) -> Option<ClientName> {
    let Question { client_info } = serde_json::from_str(initialize.params?.get()).ok()?;
    Some(client_info.bounded())
}

impl ClientInfo {
    fn bounded(self) -> ClientName {
        let cut = |text: Option<String>| {
            text.map(|mut text| {
                text.truncate(text.floor_char_boundary(CLIENT_NAME_BYTES_MAX));
                text
            })
        };
        ClientName { name: cut(self.name), version: cut(self.version) }
    }
}

/// Reads the version from a user agent such as `some-client/0.169.0 (Debian 12; x86_64) …`: the text between a `/` and
/// the first parenthesis after it. The client's own name comes first and may contain a version and parentheses too.
/// Without a parenthesis, the version follows the first `/` before a digit and ends at white space.
fn version_in(user_agent: &str) -> Option<&str> {
    let is_version = |text: &&str| text.starts_with(|first: char| first.is_ascii_digit());
    let ahead = user_agent.match_indices(" (").find_map(|(at, _)| {
        let (_, last) = user_agent[..at].rsplit_once('/')?;
        Some(last).filter(is_version).filter(|last| !last.contains(char::is_whitespace))
    });
    ahead.or_else(|| user_agent.split('/').skip(1).find(is_version)?.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::super::open_calls::OpenCalls;
    use super::*;
    use crate::wire::Body;

    /// Plays lines, `>` from the client and `<` from the server, and returns the effects.
    fn learned(script: &[&str]) -> Vec<Effect> {
        let (mut watch, mut calls) = (VersionWatch::default(), OpenCalls::default());
        let learn = |step: &&str| {
            let (side, line) = step.split_at(1);
            let from = if side == ">" { Side::Client } else { Side::Server };
            match Body::parse(line.as_bytes()) {
                Body::Message(message) => {
                    let event = Event::of(&message);
                    let completed = match from {
                        Side::Client => calls.open(&event, None).and(None),
                        Side::Server => calls.complete(&event).call.and_then(|call| call.method),
                    };
                    watch.learn(from, &event, completed)
                }
                Body::OtherJson | Body::Text | Body::Bytes => panic!("{line}: no message"),
            }
        };
        script.iter().filter_map(learn).collect()
    }

    fn introduced(client_info: &str) -> Vec<Effect> {
        learned(&[&format!(">{{\"id\":0,\"method\":\"initialize\",\"params\":{{\"clientInfo\":{client_info}}}}}")])
    }

    fn client(name: Option<&str>, version: Option<&str>) -> Vec<Effect> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        vec![Effect::Introduce(Box::new(ClientName { name: owned(name), version: owned(version) }))]
    }

    #[test]
    fn clients_name_themselves() {
        assert_eq!(introduced(r#"{"name":"ide","title":null,"version":"1.2"}"#), client(Some("ide"), Some("1.2")));
        assert_eq!(introduced(r#"{"version":null}"#), client(None, None));
        assert_eq!(introduced("7"), []);
        let long = "ä".repeat(300);
        assert_eq!(introduced(&format!(r#"{{"name":"{long}"}}"#)), client(Some(&"ä".repeat(100)), None));
    }

    #[test]
    fn rejected_initialize_is_retried() {
        let asked = r#">{"id":0,"method":"initialize"}"#;
        let refused = r#"<{"id":0,"error":{"code":-1,"message":"no"}}"#;
        let answered = r#"<{"id":0,"result":{"userAgent":"x/1.2.3 y"}}"#;
        assert_eq!(learned(&[asked, refused, answered]), []);
        assert_eq!(learned(&[asked, refused, asked, answered, asked, answered]).len(), 1);
    }

    #[test]
    fn versions() {
        assert_eq!(version_in("codex_vscode/0.169.0 (Linux; x86_64) vscode/1.99"), Some("0.169.0"));
        assert_eq!(version_in("a/b client/1.2.3-alpha.4 x"), Some("1.2.3-alpha.4"));
        assert_eq!(version_in("acme/0.9/0.169.0 (Linux; x86_64) acme/0.9"), Some("0.169.0"));
        assert_eq!(version_in("My IDE (beta)/0.130.0 (Debian 12; x86_64) x"), Some("0.130.0"));
        assert_eq!(version_in("9 lives (of 9)"), None);
        assert_eq!(version_in("nothing"), None);
        assert_eq!(version_in("x/"), None);
    }
}
