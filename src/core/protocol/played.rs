//! What of a conversation can be played to another codex without an account, the network or an effect outside of its folder.

use serde_json::{Value, json};

/// Calls and notifications of a client that concern threads and turns, or read lists. Others, such as those for files, processes,
/// accounts and plugins, would act on the machine.
const PLAYED: [&str; 48] = [
    "addConversationListener",
    "archiveConversation",
    "collaborationMode/list",
    "config/read",
    "configRequirements/read",
    "experimentalFeature/list",
    "getConversationSummary",
    "getUserAgent",
    "hooks/list",
    "initialize",
    "initialized",
    "interruptConversation",
    "listConversations",
    "mcpServerStatus/list",
    "model/list",
    "modelProvider/capabilities/read",
    "newConversation",
    "permissionProfile/list",
    "removeConversationListener",
    "resumeConversation",
    "review/start",
    "sendUserMessage",
    "sendUserTurn",
    "skills/list",
    "thread/archive",
    "thread/compact/start",
    "thread/fork",
    "thread/goal/clear",
    "thread/goal/get",
    "thread/goal/set",
    "thread/inject_items",
    "thread/items/list",
    "thread/list",
    "thread/loaded/list",
    "thread/memoryMode/set",
    "thread/metadata/update",
    "thread/name/set",
    "thread/read",
    "thread/resume",
    "thread/rollback",
    "thread/settings/update",
    "thread/start",
    "thread/turns/list",
    "thread/unarchive",
    "thread/unsubscribe",
    "turn/interrupt",
    "turn/start",
    "turn/steer",
];

/// Whether a client's message can be played.
#[must_use]
pub fn may_be_played(method: &str) -> bool {
    PLAYED.contains(&method)
}

/// Notices for people: what they say depends on the settings and the machine, and a client loses nothing without them.
const NOTICES: [&str; 4] = ["configWarning", "deprecationNotice", "guardianWarning", "warning"];

/// Whether a notification is a notice for people.
#[must_use]
pub fn is_notice(method: &str) -> bool {
    NOTICES.contains(&method)
}

/// Members that choose settings of the user's own codex, such as programs that it starts.
const SETTINGS: [&str; 3] = ["config", "model", "modelProvider"];

/// Removes from parameters what names settings of the user's codex or its model, and leaves the texts of a message alone: images, skills and mentions
/// name files.
pub fn leave_harmless(params: &mut Value) {
    let Some(params) = params.as_object_mut() else { return };
    params.retain(|name, _| !SETTINGS.contains(&&**name));
    if let Some(parts) = params.get_mut("input").and_then(Value::as_array_mut) {
        parts.retain(|part| part["type"] == "text");
        if parts.is_empty() {
            parts.push(json!({"type": "text", "text": "a message without words", "text_elements": []}));
        }
    }
}

/// An item that a scripted model can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayedItem {
    Message,
    Reasoning,
    Command,
    Change,
    /// A call of a tool that the client has.
    ClientTool,
}

impl PlayedItem {
    /// The kind of an item by its `type`; `None` if no script can cause it.
    #[must_use]
    pub fn of(item_type: &str) -> Option<PlayedItem> {
        match item_type {
            "agentMessage" => Some(PlayedItem::Message),
            "reasoning" => Some(PlayedItem::Reasoning),
            "commandExecution" => Some(PlayedItem::Command),
            "fileChange" => Some(PlayedItem::Change),
            "dynamicToolCall" => Some(PlayedItem::ClientTool),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_act_on_the_machine_are_never_played() {
        for method in [
            "command/exec",
            "process/spawn",
            "fs/writeFile",
            "fs/remove",
            "account/login/start",
            "account/logout",
            "loginApiKey",
            "config/batchWrite",
            "plugin/install",
            "thread/shellCommand",
            "execOneOffCommand",
            "gitDiffToRemote",
            "environment/add",
            "feedback/upload",
            "mcpServer/tool/call",
            "thread/realtime/start",
            "thread/delete",
            "",
        ] {
            assert!(!may_be_played(method), "{method}");
        }
        assert!(PLAYED.is_sorted());
    }

    #[test]
    fn settings_and_files_are_left_out() {
        let mut params = json!({"cwd": "/w", "config": {"mcp_servers": {"x": {"command": "evil"}}}, "model": "m", "modelProvider": "mine",
            "input": [{"type": "localImage", "path": "/home/me/secret.png"}, {"type": "text", "text": "see"}]});
        leave_harmless(&mut params);
        assert_eq!(params, json!({"cwd": "/w", "input": [{"type": "text", "text": "see"}]}));
        let mut only_files = json!({"input": [{"type": "skill", "path": "/x"}]});
        leave_harmless(&mut only_files);
        assert_eq!(only_files["input"].as_array().map(Vec::len), Some(1));
        assert_eq!(only_files["input"][0]["type"], "text");
    }
}
