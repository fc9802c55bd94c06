//! What kinds of request a server makes, how they are called in the ledger, and what of one is for a human.

use std::fmt;

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::wire::{Members, RpcId};

/// Longest text of an id that is used in a name as it is. Source: the contract of the ledger.
const PLAIN_ID_CHARS_MAX: usize = 40;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestType {
    /// To run a command or change files.
    Approval,
    /// Wider permissions.
    Permissions,
    /// An answer to a question.
    UserInput,
    /// Something that a tool server wants to know.
    Elicitation,
    /// A method that we do not know: passed on and kept, and never answered by us unless we are told to.
    Other,
}

impl RequestType {
    /// All of them.
    pub const ALL: [RequestType; 5] = [
        RequestType::Approval,
        RequestType::Permissions,
        RequestType::UserInput,
        RequestType::Elicitation,
        RequestType::Other,
    ];

    /// Its name in the ledger.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RequestType::Approval => "request_approval",
            RequestType::Permissions => "request_permissions",
            RequestType::UserInput => "request_user_input",
            RequestType::Elicitation => "request_elicitation",
            RequestType::Other => "server_request",
        }
    }

    /// Whether a human is waited for: it stops chat, can expire, and can be held.
    #[must_use]
    pub fn is_for_human(self) -> bool {
        self != RequestType::Other
    }
}

impl fmt::Display for RequestType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the answer to a method looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// `item/commandExecution/requestApproval`
    Command,
    /// `item/fileChange/requestApproval`
    FileChange,
    /// `execCommandApproval`, until early 2026.
    OldCommand,
    /// `applyPatchApproval`, until early 2026.
    OldPatch,
    /// `item/permissions/requestApproval`
    Permissions,
    /// `item/tool/requestUserInput`
    UserInput,
    /// `mcpServer/elicitation/request`
    Elicitation,
    /// Anything else.
    Other,
}

impl RequestKind {
    /// That of a method; `None` where it is the client's business alone.
    #[must_use]
    pub fn of(method: &str) -> Option<RequestKind> {
        Some(match method {
            "item/commandExecution/requestApproval" => RequestKind::Command,
            "item/fileChange/requestApproval" => RequestKind::FileChange,
            "execCommandApproval" => RequestKind::OldCommand,
            "applyPatchApproval" => RequestKind::OldPatch,
            "item/permissions/requestApproval" => RequestKind::Permissions,
            "item/tool/requestUserInput" => RequestKind::UserInput,
            "mcpServer/elicitation/request" => RequestKind::Elicitation,
            "item/tool/call" | "currentTime/read" => return None,
            _ if method.starts_with("account/") || method.starts_with("attestation/") => return None,
            _ => RequestKind::Other,
        })
    }

    /// What it asks for.
    #[must_use]
    pub fn request_type(self) -> RequestType {
        match self {
            RequestKind::Command | RequestKind::FileChange | RequestKind::OldCommand | RequestKind::OldPatch => {
                RequestType::Approval
            }
            RequestKind::Permissions => RequestType::Permissions,
            RequestKind::UserInput => RequestType::UserInput,
            RequestKind::Elicitation => RequestType::Elicitation,
            RequestKind::Other => RequestType::Other,
        }
    }
}

/// Where in a conversation a request stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestPlace {
    /// Its thread.
    pub thread_id: Option<String>,
    /// Its turn.
    pub turn_id: Option<String>,
    /// Its item.
    pub item_id: Option<String>,
}

impl RequestPlace {
    /// As the parameters of a request name it, by its names of now and of early 2026.
    pub(in crate::engine) fn of(params: Option<&RawValue>) -> RequestPlace {
        let Some(params) = params.and_then(Members::of) else { return RequestPlace::default() };
        let first = |names: [&str; 2]| names.iter().find_map(|name| params.text(name));
        RequestPlace {
            thread_id: first(["threadId", "conversationId"]),
            turn_id: first(["turnId", "turn_id"]),
            item_id: first(["itemId", "callId"]),
        }
    }
}

/// The name of a request in the ledger, before it is made one of its own: `raw` is its id as it was written.
pub(super) fn request_name(generation: &str, id: &RpcId, raw: &str) -> String {
    let is_plain = |text: &str| {
        (1..=PLAIN_ID_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    match id {
        RpcId::Integer(number) => format!("{generation}-{number}"),
        RpcId::Text(text) if is_plain(text) => format!("{generation}-s.{text}"),
        RpcId::Text(_) | RpcId::Other(_) => {
            let digest = Sha256::digest(raw.as_bytes());
            let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("{generation}-h.{hex}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_type_of_an_id() {
        let check = |raw: &str, expect: &str| {
            let id = RpcId::from_raw(serde_json::from_str(raw).expect("BUG: test ids are JSON"));
            assert_eq!(request_name("g", &id, raw), expect);
        };
        check("0", "g-0");
        check("-7", "g--7");
        check("\"a_B-9\"", "g-s.a_B-9");
        check("\"0\"", "g-s.0");
        check("\"a b\"", "g-h.5e229e245c3e5252");
        check("\"\"", "g-h.12ae32cb1ec02d01");
        check("1.5", "g-h.9f29a130438b8117");
    }

    #[test]
    fn what_is_for_a_human() {
        for method in ["item/tool/call", "currentTime/read", "account/x/refresh", "attestation/generate"] {
            assert_eq!(RequestKind::of(method), None);
        }
        let types: Vec<RequestType> = ["applyPatchApproval", "item/tool/requestUserInput", "new/method"]
            .into_iter()
            .filter_map(|method| RequestKind::of(method).map(RequestKind::request_type))
            .collect();
        assert_eq!(types, [RequestType::Approval, RequestType::UserInput, RequestType::Other]);
    }

    #[test]
    fn places() {
        let place = |params: &str| RequestPlace::of(serde_json::from_str(params).ok());
        let told = place(r#"{"threadId":"t","turnId":"u","itemId":"i"}"#);
        assert_eq!((told.thread_id.as_deref(), told.item_id.as_deref()), (Some("t"), Some("i")));
        let old = place(r#"{"conversationId":"c","callId":"k"}"#);
        assert_eq!((old.thread_id.as_deref(), old.turn_id, old.item_id.as_deref()), (Some("c"), None, Some("k")));
    }
}
