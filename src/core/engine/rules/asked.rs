//! The facts of a request that rules match, and the reasons that bar a rule from accepting it.
//!
//! A command is accepted only if every member of its request is listed here and asks for nothing more than to run it. A member
//! that a newer codex adds may widen what an approval allows, so it bars.

use serde_json::Value;
use serde_json::value::RawValue;

use super::command_line::{LINE_BYTES_MAX, PlainCommand, Unclear, plain_command, plain_words, rough_words};
use super::is_whole_path;
use crate::engine::requests::{RequestKind, Subject};
use crate::protocol::change::FileChange;
use crate::protocol::{CommandText, approval_member};
use crate::wire::{Members, repeats_member};

/// A request on which a rule may decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
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
pub struct AskedCommand {
    /// The command if it is known to the last word.
    pub plain: Result<PlainCommand, Unclear>,
    /// Its words as far as they can be read.
    pub words: Option<Vec<String>>,
    pub cwd: Option<String>,
    /// Why no rule may accept it, whatever the command is.
    pub bar: Option<String>,
    pub in_thread: InThread,
}

/// The thread and the server of a command, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InThread {
    /// `Err` says why no rule may accept commands of this thread.
    pub workspace: Result<Workspace, String>,
    /// Codex asks before the model types into a running program.
    pub asks_about_input: bool,
}

/// The folders of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    pub cwd: String,
    /// Folders in which a model may have written.
    pub places: Vec<String>,
}

impl Asked {
    /// The facts of a request; `None` if no rule may decide on it. `shown` are its parameters, completed from its item.
    pub fn of(kind: RequestKind, params: Option<&RawValue>, shown: &Value, changes: Option<&Value>) -> Option<Asked> {
        // Input for a running program, and commands for a person, are not a rule's to decide.
        if kind.needs_person() || !matches!(&shown["kind"], Value::Null) && shown["kind"] != "command" {
            return None;
        }
        Some(match kind.subject()? {
            Subject::Command => Asked::Command(command(params, shown)),
            Subject::Diff => Asked::FileChange { paths: paths(shown, changes) },
            Subject::Permissions => Asked::Permissions { cwd: shown["cwd"].as_str().map(str::to_owned) },
            Subject::Questions => Asked::Questions,
            Subject::Elicitation => Asked::Elicitation,
        })
    }

    /// Sets the thread of a command.
    pub fn is_in(&mut self, in_thread: impl FnOnce() -> InThread) {
        if let Asked::Command(command) = self {
            command.in_thread = in_thread();
        }
    }

    /// Bars every rule from accepting it.
    pub fn bar(&mut self, why: &str) {
        if let Asked::Command(command) = self {
            command.bar.get_or_insert_with(|| why.to_owned());
        }
    }
}

fn command(params: Option<&RawValue>, shown: &Value) -> AskedCommand {
    let (plain, words) = match CommandText::of(&shown["command"]) {
        Some(CommandText::Line(line)) => {
            let words = if line.len() <= LINE_BYTES_MAX { shlex::split(line) } else { None };
            (plain_command(line), words)
        }
        Some(CommandText::Words(words)) => {
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            (plain_words(&words), Some(words))
        }
        None => (Err(Unclear::NotGiven), None),
    };
    let cwd = shown["cwd"].as_str().map(str::to_owned);
    let argv = plain.as_ref().map_or(&[][..], |plain| &plain.argv);
    let bar = bar(params, (argv, words.as_deref().unwrap_or_default())).or_else(|| {
        let is_clear = cwd.as_deref().is_none_or(is_whole_path);
        (!is_clear).then(|| "the folder has `.`, `..` or a doubled slash".to_owned())
    });
    let in_thread = InThread { workspace: Err("the thread is not known".to_owned()), asks_about_input: false };
    AskedCommand { plain, words: words.and_then(rough_words), cwd, bar, in_thread }
}

/// The words of a command, and those of its whole line, which may begin with a shell.
type AskedWords<'a> = (&'a [String], &'a [String]);

/// The member of a request for a command that bars a rule from accepting it, if there is one.
fn bar(params: Option<&RawValue>, words: AskedWords<'_>) -> Option<String> {
    let Some(members) = params.and_then(Members::of) else {
        return Some("its parameters are not an object".to_owned());
    };
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in members.iter() {
        if seen.contains(&name) {
            return Some(format!("the member `{name}` is repeated"));
        }
        seen.push(name);
        let raw = value;
        let Ok(value) = serde_json::from_str::<Value>(raw.get()) else {
            return Some(format!("the value of `{name}` cannot be read"));
        };
        if repeats_member(raw) {
            return Some(format!("a member within `{name}` is repeated"));
        }
        let why = match approval_member(&members, name).and_then(|known| is_harmless(known, &value, words)) {
            Some(true) => continue,
            Some(false) => format!("the value of `{name}` asks for more than this command, or is not known"),
            None => format!("the member `{name}` is not known"),
        };
        return Some(why);
    }
    None
}

/// Whether a member of a command approval asks for nothing more than to run the command; `None` if it is not known. Source: the schemas
/// of 0.77, 0.125 and 0.169.
fn is_harmless(name: &str, value: &Value, (argv, line): AskedWords<'_>) -> Option<bool> {
    let count = value.as_array().map(Vec::len);
    Some(match name {
        "threadId" | "turnId" | "itemId" => value.is_string(),
        "startedAtMs" => value.is_number() || value.is_null(),
        // A request that says `null` is not about its item's command.
        "command" => value.is_string() || value.is_array(),
        "cwd" => value.is_string(),
        "reason" => value.is_string() || value.is_null(),
        "kind" => value == "command" || value.is_null(),
        "environmentId" => value == "local" || value.is_null(),
        // A part of another command, or an answer for another program.
        "approvalId" => value.is_null(),
        "additionalPermissions" | "networkApprovalContext" => value.is_null(),
        "proposedNetworkPolicyAmendments" => value.is_null() || count == Some(0),
        // Codex reads the line as well: it must have found one command, and the same.
        "commandActions" => {
            let is_this = |action: &Value| action_command(action).is_some_and(|words| words == argv || words == line);
            value.is_null() || value.as_array().is_some_and(|actions| actions.len() <= 1 && actions.iter().all(is_this))
        }
        "proposedExecpolicyAmendment" => value.as_array().map_or(value.is_null(), |words| {
            words.len() <= argv.len() && words.iter().zip(argv).all(|(word, of_argv)| word == of_argv)
        }),
        "availableDecisions" => {
            value.as_array().map_or(value.is_null(), |offered| offered.iter().any(|decision| decision == "accept"))
        }
        _ => return None,
    })
}

/// Kinds of what codex reads in a command line. Source: the schemas of 0.77, 0.125 and 0.169.
const ACTIONS: [&str; 8] = ["read", "listFiles", "list_files", "search", "unknown", "format", "lint", "test"];

/// Their members.
const ACTION_MEMBERS: [&str; 6] = ["type", "command", "cmd", "name", "path", "query"];

/// The words of an action of which everything is known.
fn action_command(action: &Value) -> Option<Vec<String>> {
    let members = action.as_object()?;
    let is_text = |value: &Value| value.is_string() || value.is_null();
    let is_known = members.iter().all(|(name, value)| ACTION_MEMBERS.contains(&name.as_str()) && is_text(value));
    let kind = members.get("type").and_then(Value::as_str)?;
    let command = match (members.get("command"), members.get("cmd")) {
        (Some(command), None) | (None, Some(command)) => command.as_str(),
        (Some(_), Some(_)) | (None, None) => None,
    };
    shlex::split(command.filter(|_| is_known && ACTIONS.contains(&kind))?)
}

/// The files that change, with the places that they move to.
fn paths(shown: &Value, changes: Option<&Value>) -> Vec<String> {
    let files = FileChange::all_of_request(shown, changes).into_iter();
    files.flat_map(|change| [change.path, change.moved_to]).flatten().map(str::to_owned).collect()
}
