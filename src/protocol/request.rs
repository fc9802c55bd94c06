//! The kinds of server requests, and which of them are for a human.

use std::fmt;

use super::method::Method;
use crate::wire::Members;
use serde_json::value::RawValue;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestType {
    /// Permission to run a command or change files.
    Approval,
    Permissions,
    UserInput,
    /// Input for a tool server.
    Elicitation,
    /// An unknown method: forwarded and stored, and answered by us only on an API caller's order.
    Other,
}

impl RequestType {
    pub const ALL: [RequestType; 5] = [
        RequestType::Approval,
        RequestType::Permissions,
        RequestType::UserInput,
        RequestType::Elicitation,
        RequestType::Other,
    ];

    /// The name in the ledger.
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

    /// Whether it waits for a human: such a request blocks chat, can expire, and can be held.
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

/// The shape of the answer.
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
    /// Any other method.
    Other,
}

impl RequestKind {
    /// The kind of a method; `None` if only the client can answer it.
    #[must_use]
    pub fn of(method: &str) -> Option<RequestKind> {
        Some(match Method::of(method) {
            Some(Method::CommandApproval) => RequestKind::Command,
            Some(Method::FileChangeApproval) => RequestKind::FileChange,
            Some(Method::OldCommandApproval) => RequestKind::OldCommand,
            Some(Method::OldPatchApproval) => RequestKind::OldPatch,
            Some(Method::PermissionsApproval) => RequestKind::Permissions,
            Some(Method::UserInput) => RequestKind::UserInput,
            Some(Method::Elicitation) => RequestKind::Elicitation,
            Some(Method::ToolCall | Method::CurrentTimeRead) => return None,
            _ if ["account/", "attestation/"].iter().any(|prefix| method.starts_with(prefix)) => return None,
            _ => RequestKind::Other,
        })
    }

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

/// The thread, turn and item of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestPlace {
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub item_id: Option<String>,
}

impl RequestPlace {
    /// Reads the place from parameters, by current names and those of early 2026.
    pub(crate) fn of(params: Option<&RawValue>) -> RequestPlace {
        let Some(params) = params.and_then(Members::of) else { return RequestPlace::default() };
        let first = |names: [&str; 2]| names.iter().find_map(|name| params.text(name));
        RequestPlace {
            thread_id: first(["threadId", "conversationId"]),
            turn_id: first(["turnId", "turn_id"]),
            item_id: first(["itemId", "callId"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_humans_are_recognized() {
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
