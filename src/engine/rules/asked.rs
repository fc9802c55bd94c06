//! The facts of a request that rules match, and the reasons that bar a rule from accepting it.
//!
//! A command is accepted only if every member of its request is listed here and asks for nothing more than to run it. A member
//! that a newer codex adds may widen what an approval allows, so it bars.

use serde_json::Value;
use serde_json::value::RawValue;

use super::command_line::{LINE_BYTES_MAX, PlainCommand, Unclear, plain_command, plain_words, rough_words};
use super::is_whole_path;
use crate::engine::requests::{RequestKind, Subject};
use crate::wire::Members;

/// A request on which a rule may decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Command(AskedCommand),
    FileChange {
        /// The files that change; empty if the request came before its item.
        paths: Vec<String>,
    },
    Permissions {
        cwd: Option<String>,
    },
    Questions,
    Elicitation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedCommand {
    /// The command if it is known to the last word.
    pub(crate) plain: Result<PlainCommand, Unclear>,
    /// Its words as far as they can be read.
    pub(crate) words: Option<Vec<String>>,
    pub(crate) cwd: Option<String>,
    /// Why no rule may accept it, whatever the command is.
    pub(crate) bar: Option<String>,
}

impl Asked {
    /// The facts of a request; `None` if no rule may decide on it. `shown` are its parameters, completed from its item.
    pub(crate) fn of(
        kind: RequestKind,
        params: Option<&RawValue>,
        shown: &Value,
        changes: Option<&Value>,
    ) -> Option<Asked> {
        // Input for a running program, and commands for a person, are not a rule's to decide.
        if kind.needs_person() || !matches!(&shown["kind"], Value::Null) && shown["kind"] != "command" {
            return None;
        }
        let cwd = || shown["cwd"].as_str().map(str::to_owned);
        Some(match kind.subject()? {
            Subject::Command => Asked::Command(command(kind, params, shown)),
            Subject::Diff => Asked::FileChange { paths: paths(shown, changes) },
            Subject::Permissions => Asked::Permissions { cwd: cwd() },
            Subject::Questions => Asked::Questions,
            Subject::Elicitation => Asked::Elicitation,
        })
    }
}

fn command(kind: RequestKind, params: Option<&RawValue>, shown: &Value) -> AskedCommand {
    let (plain, words) = match &shown["command"] {
        Value::String(line) => {
            let words = if line.len() <= LINE_BYTES_MAX { shlex::split(line) } else { None };
            (plain_command(line), words)
        }
        Value::Array(words) => {
            match words.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>() {
                Some(words) => (plain_words(&words), Some(words)),
                None => (Err(Unclear::NotGiven), None),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => (Err(Unclear::NotGiven), None),
    };
    let cwd = shown["cwd"].as_str().map(str::to_owned);
    let argv = plain.as_ref().map_or(&[][..], |plain| &plain.argv);
    let bar = bar(kind, params, argv).or_else(|| {
        let is_clear = cwd.as_deref().is_none_or(is_whole_path);
        (!is_clear).then(|| "the folder has `.`, `..` or a doubled slash".to_owned())
    });
    AskedCommand { plain, words: words.and_then(rough_words), cwd, bar }
}

/// The member of a request for a command that bars a rule from accepting it, if there is one.
fn bar(kind: RequestKind, params: Option<&RawValue>, argv: &[String]) -> Option<String> {
    let Some(members) = params.and_then(Members::of) else {
        return Some("its parameters are not an object".to_owned());
    };
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in members.iter() {
        if seen.contains(&name) {
            return Some(format!("the member `{name}` is repeated"));
        }
        seen.push(name);
        let value: Value = serde_json::from_str(value.get()).unwrap_or_default();
        if !is_harmless(kind, name, &value, argv) {
            return Some(match is_known(kind, name) {
                false => format!("the member `{name}` is not known"),
                true => format!("the value of `{name}` asks for more than this command, or is not known"),
            });
        }
    }
    None
}

/// Members of a command approval since 0.77. Source: the schemas of 0.77, 0.125 and 0.169.
const MEMBERS: [&str; 16] = [
    "additionalPermissions",
    "approvalId",
    "availableDecisions",
    "command",
    "commandActions",
    "cwd",
    "environmentId",
    "itemId",
    "kind",
    "networkApprovalContext",
    "proposedExecpolicyAmendment",
    "proposedNetworkPolicyAmendments",
    "reason",
    "startedAtMs",
    "threadId",
    "turnId",
];

/// Members of the approval of early 2026. Source: the same schemas.
const OLD_MEMBERS: [&str; 7] = ["approvalId", "callId", "command", "conversationId", "cwd", "parsedCmd", "reason"];

fn is_known(kind: RequestKind, name: &str) -> bool {
    match kind {
        RequestKind::Command => MEMBERS.contains(&name),
        RequestKind::OldCommand => OLD_MEMBERS.contains(&name),
        RequestKind::HumanCommand
        | RequestKind::FileChange
        | RequestKind::OldPatch
        | RequestKind::Permissions
        | RequestKind::UserInput
        | RequestKind::Elicitation
        | RequestKind::Other => false,
    }
}

fn is_harmless(kind: RequestKind, name: &str, value: &Value, argv: &[String]) -> bool {
    if !is_known(kind, name) {
        return false;
    }
    let count = value.as_array().map(Vec::len);
    match name {
        "threadId" | "turnId" | "itemId" | "callId" | "conversationId" => value.is_string(),
        "startedAtMs" => value.is_number() || value.is_null(),
        "command" => value.is_string() || value.is_null() || value.is_array(),
        "cwd" | "reason" => value.is_string() || value.is_null(),
        "kind" => value == "command" || value.is_null(),
        "environmentId" => value == "local" || value.is_null(),
        // A part of another command, or an answer for another program.
        "approvalId" => value.is_null(),
        "additionalPermissions" | "networkApprovalContext" => value.is_null(),
        "proposedNetworkPolicyAmendments" => value.is_null() || count == Some(0),
        // Codex reads the line as well: it must have found one command, and the same.
        "commandActions" | "parsedCmd" => value.is_null() || count.is_some_and(|count| count <= 1),
        "proposedExecpolicyAmendment" => value.as_array().map_or(value.is_null(), |words| {
            words.len() <= argv.len() && words.iter().zip(argv).all(|(word, of_argv)| word == of_argv)
        }),
        "availableDecisions" => {
            value.as_array().map_or(value.is_null(), |offered| offered.iter().any(|decision| decision == "accept"))
        }
        _ => false,
    }
}

/// The files that change, with the places that they move to.
fn paths(shown: &Value, changes: Option<&Value>) -> Vec<String> {
    let of_now =
        changes.and_then(Value::as_array).into_iter().flatten().flat_map(|change| {
            [&change["path"], &change["kind"]["move_path"]].map(Value::as_str).into_iter().flatten()
        });
    let of_old = shown["fileChanges"].as_object().into_iter().flatten();
    let of_old = of_old.flat_map(|(path, change)| std::iter::once(path.as_str()).chain(change["move_path"].as_str()));
    of_now.chain(of_old).map(str::to_owned).collect()
}
