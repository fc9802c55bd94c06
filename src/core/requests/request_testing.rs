//! Requests of all kinds, for tests of those who show them.

use serde_json::{Value, json};

use crate::api::Request;

/// A request of each kind, with every member of codex's schema. Names with two words are only those of members.
pub fn one_of_each_kind() -> Vec<Request> {
    let ids = json!({ "threadId": "t", "turnId": "u", "itemId": "i", "startedAtMs": 1, "environmentId": "far" });
    let row = |(number, (method, payload)): (usize, (&str, Value))| {
        let mut payload = payload;
        for (name, value) in ids.as_object().into_iter().flatten() {
            payload[name] = value.clone();
        }
        let row = json!({
            "request_id": format!("g-{number}"), "request_method": method, "request_payload": payload, "status": "pending",
            "requested_at": "2026-01-02T03:04:05.000Z", "thread_id": "t", "summary": "s",
        });
        Request::from(row).with_choices()
    };
    payloads().into_iter().enumerate().map(row).collect()
}

/// Methods with payloads, without the ids that all have.
fn payloads() -> Vec<(&'static str, Value)> {
    let permissions = json!({
        "network": { "enabled": true },
        "fileSystem": { "read": ["/r"], "write": null, "globScanMaxDepth": 3, "entries": [
            { "access": "write", "path": { "type": "special", "value": { "kind": "project_roots" } } },
            { "access": "read", "path": { "type": "glob_pattern", "pattern": "/g/*" } },
        ] },
    });
    let rule = json!(["touch", "x"]);
    let host = json!({ "host": "a.b", "action": "allow" });
    vec![
        (
            "item/commandExecution/requestApproval",
            json!({
                "approvalId": "a", "command": "ls", "cwd": "/w", "kind": "writeStdin", "reason": "why",
                "commandActions": [{ "type": "listFiles", "command": "ls", "path": null }],
                "networkApprovalContext": { "host": "a.b", "protocol": "socks5Tcp" },
                "proposedExecpolicyAmendment": rule, "proposedNetworkPolicyAmendments": [host],
                "additionalPermissions": permissions, "skillMetadata": { "pathToSkillsMd": "/s" },
                "availableDecisions": ["accept", { "acceptWithExecpolicyAmendment": { "execpolicy_amendment": rule } },
                    { "applyNetworkPolicyAmendment": { "network_policy_amendment": host } }],
            }),
        ),
        (
            "item/commandExecution/requestApproval",
            json!({
                "command": "ls", "proposedExecpolicyAmendment": rule, "proposedNetworkPolicyAmendments": [host],
            }),
        ),
        ("item/fileChange/requestApproval", json!({ "reason": "why", "grantRoot": "/w" })),
        (
            "execCommandApproval",
            json!({
                "conversationId": "c", "callId": "i", "approvalId": null, "command": ["ls"], "cwd": "/w", "reason": "why",
                "parsedCmd": [{ "type": "list_files", "cmd": "ls" }], "risk": { "description": "d", "riskLevel": "high" },
            }),
        ),
        (
            "applyPatchApproval",
            json!({
                "conversationId": "c", "callId": "i", "reason": null, "grantRoot": null,
                "fileChanges": { "/a": { "type": "update", "unified_diff": "@@ -1 +1 @@\n-x\n+y", "move_path": null } },
            }),
        ),
        ("item/permissions/requestApproval", json!({ "cwd": "/w", "permissions": permissions, "reason": "why" })),
        (
            "item/tool/requestUserInput",
            json!({ "autoResolutionMs": 1, "isBlocking": true, "questions": [{
        "id": "q", "header": "h", "question": "Which?", "isOther": true, "isSecret": false,
        "options": [{ "label": "Red", "description": "warm" }],
    }] }),
        ),
        (
            "mcpServer/elicitation/request",
            json!({
                "serverName": "lab", "mode": "form", "message": "Deploy?", "elicitationId": "e",
                "_meta": { "codex_approval_kind": "mcp_tool_call", "toolParams": { "dry": true } },
                "requestedSchema": { "type": "object", "required": ["env"], "properties": {
                    "env": { "type": "string", "enum": ["dev"], "enumNames": ["Dev"], "minLength": 1 } } },
            }),
        ),
        (
            "mcpServer/elicitation/request",
            json!({
                "serverName": "lab", "mode": "openai/form", "message": "Go there?", "url": "https://a.b", "requestedSchema": null,
            }),
        ),
        ("item/tool/call", json!({ "callId": "i", "tool": "t", "namespace": "n", "arguments": { "dry": true } })),
        ("account/chatgptAuthTokens/refresh", json!({ "previousAccountId": "p", "reason": "unauthorized" })),
    ]
}

/// The names of members of two words in a value that occur in a text.
pub fn raw_names(value: &Value, text: &str) -> Vec<String> {
    let of_members = value.as_object().into_iter().flatten().flat_map(|(name, value)| {
        let is_raw = name.contains('_') || name.chars().any(|char| char.is_ascii_uppercase());
        let found = Some(name.clone()).filter(|name| is_raw && text.contains(&**name));
        found.into_iter().chain(raw_names(value, text))
    });
    of_members.chain(value.as_array().into_iter().flatten().flat_map(|value| raw_names(value, text))).collect()
}
