//! The parts of a conversation that another codex can be sent without an account, the network or an effect outside of its folder.

use serde_json::{Value, json};

/// Calls and notifications of a client that concern threads and turns, or read lists. Others, such as those for files, processes,
/// accounts and plugins, would act on the machine.
const PLAYED: [&str; 38] = [
    "collaborationMode/list",
    "config/read",
    "configRequirements/read",
    "experimentalFeature/list",
    "getUserAgent",
    "hooks/list",
    "initialize",
    "initialized",
    "mcpServerStatus/list",
    "model/list",
    "modelProvider/capabilities/read",
    "permissionProfile/list",
    "review/start",
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

/// Notifications with this prefix repeat others. Source: 0.77 to 0.98, the last releases with them.
const REPEATED: &str = "codex/event/";

/// Whether a client loses nothing without a notification.
#[must_use]
pub fn is_dispensable(method: &str) -> bool {
    NOTICES.contains(&method) || method.starts_with(REPEATED)
}

/// Members that choose settings of the user's own codex, such as programs that it starts; what a thread may do; and places in lists of
/// another server.
const LEFT_OUT: [&str; 7] = ["config", "cursor", "model", "modelProvider", "permissions", "sandbox", "sandboxPolicy"];

/// Removes from parameters what could have an effect outside of the folder of their thread, and what only the user's codex understands. Of
/// a message only the texts stay: images, skills and mentions name files.
pub fn leave_harmless(params: &mut Value) {
    let Some(params) = params.as_object_mut() else { return };
    params.retain(|name, _| !LEFT_OUT.contains(&&**name));
    if let Some(settings) = params.get_mut("collaborationMode").and_then(|mode| mode["settings"].as_object_mut()) {
        settings.retain(|name, _| !LEFT_OUT.contains(&&**name));
    }
    if let Some(parts) = params.get_mut("input").and_then(Value::as_array_mut) {
        parts.retain(|part| part["type"] == "text");
        if parts.is_empty() {
            parts.push(json!({"type": "text", "text": "a message without words", "text_elements": []}));
        }
    }
}

/// Members whose texts are paths, whatever these look like.
const PATHS: [&str; 6] = ["cwd", "cwds", "path", "root", "runtimeWorkspaceRoots", "writableRoots"];

/// Whether a text in a member is the path of a file or a folder.
#[must_use]
pub fn is_path(member: &str, text: &str) -> bool {
    PATHS.contains(&member) || text.starts_with('/') || text.starts_with('~')
}

/// The tools that a client declares in parameters, by name. The server asks the client to run these.
pub fn declared_tools(params: &Value) -> impl Iterator<Item = &str> {
    let declared = params["dynamicTools"].as_array().map(Vec::as_slice).unwrap_or_default();
    declared.iter().filter_map(|tool| tool["name"].as_str())
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
        assert!(PLAYED.is_sorted() && LEFT_OUT.is_sorted() && PATHS.is_sorted());
    }

    #[test]
    fn settings_and_files_are_left_out() {
        let mut params = json!({"cwd": "/w", "config": {"mcp_servers": {"x": {"command": "evil"}}}, "model": "m", "modelProvider": "mine",
            "sandbox": "danger-full-access", "sandboxPolicy": {"type": "dangerFullAccess"}, "permissions": "mine", "cursor": "c",
            "collaborationMode": {"mode": "plan", "settings": {"model": "m", "developer_instructions": "d"}},
            "input": [{"type": "localImage", "path": "/home/me/secret.png"}, {"type": "text", "text": "see"}]});
        leave_harmless(&mut params);
        let mode = json!({"mode": "plan", "settings": {"developer_instructions": "d"}});
        assert_eq!(params, json!({"cwd": "/w", "collaborationMode": mode, "input": [{"type": "text", "text": "see"}]}));
        let mut only_files = json!({"input": [{"type": "skill", "path": "/x"}]});
        leave_harmless(&mut only_files);
        assert_eq!(only_files["input"].as_array().map(Vec::len), Some(1));
        assert_eq!(only_files["input"][0]["type"], "text");
    }

    #[test]
    fn paths_are_known_by_their_members_and_by_their_looks() {
        for (member, text, expect) in [
            ("cwd", "../../..", true),
            ("cwds", ".", true),
            ("writableRoots", "x", true),
            ("anything", "/etc", true),
            ("anything", "~/x", true),
            ("name", "a/b", false),
        ] {
            assert_eq!(is_path(member, text), expect, "{member} {text}");
        }
    }
}
