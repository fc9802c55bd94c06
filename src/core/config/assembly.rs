//! The settings of the added context: `[context_engine]` and `[[fragments]]`.
//!
//! An invalid fragment is left out, with a message that says how to correct it; the others remain in effect.

use std::time::Duration;

use toml::{Table, Value};

use super::kind::{bounded, command, list, optional_count, quoted};
use super::sources::{Sources, article};
use super::{Complaint, Setting, SettingRow, Source, section};
use crate::engine::{ContextEngineSettings, Fragment, FragmentRole, FragmentSource, FragmentThreads};

const DEFAULT_DEADLINE_MS: usize = 2_000;
const DEFAULT_PROJECTION_CHARS_MAX: usize = 24_000;
const DEFAULT_FRAGMENT_BYTES_MAX: usize = 2_000;

/// Limit of the time that lines may wait for a context engine.
const DEADLINE_MS_MAX: usize = 60_000;

/// Limit of a projection, in characters. Source: the ancestor's bounds.
const CHARS_MAX: usize = 1_000_000;

/// Limit of a fragment, in bytes.
const FRAGMENT_BYTES_MAX: usize = 64 << 10;

const FRAGMENTS_MAX: usize = 32;

const NAME_BYTES_MAX: usize = 64;

/// Names that codex or codex-shim uses for something else.
const RESERVED_NAMES: [&str; 20] = [
    "user_cmd_context",
    "assembled_context",
    "developer_addition",
    "environment_context",
    "user_shell_command",
    "user_instructions",
    "skill",
    "turn_aborted",
    "subagent_notification",
    "codex_internal_context",
    "extension_context",
    "goal_context",
    "conversation_context",
    "permissions",
    "model_switch",
    "personality_spec",
    "token_budget",
    "rollout_budget",
    "collaboration_mode",
    "hook_prompt",
];

const MEMBERS: [&str; 7] = ["name", "role", "command", "file", "text", "threads", "bytes_max"];

section! {
    pub struct ContextEngineChoice of "context_engine", such as "command = [\"PROGRAM\"]" {
        /// A program and its arguments; empty without an engine.
        command: Vec<String> = command(), "CODEX_SHIM_CONTEXT_ENGINE";
        /// How long lines of a thread wait for it, in milliseconds.
        deadline_ms: usize = bounded::<1, DEADLINE_MS_MAX>(DEFAULT_DEADLINE_MS), "CODEX_SHIM_CONTEXT_ENGINE_DEADLINE_MS";
        /// The token budget that the engine gets.
        token_budget: Option<usize> = optional_count(), "CODEX_SHIM_CONTEXT_ENGINE_TOKEN_BUDGET";
        /// Limit of the projection, in characters.
        projection_chars_max: usize = bounded::<0, CHARS_MAX>(DEFAULT_PROJECTION_CHARS_MAX), "CODEX_SHIM_CONTEXT_ENGINE_PROJECTION_CHARS_MAX";
    }
}

impl ContextEngineChoice {
    /// The settings in the engine's form; `None` without a context engine.
    pub(super) fn settings(&self) -> Option<ContextEngineSettings> {
        (!self.command.value.is_empty()).then(|| ContextEngineSettings {
            command: self.command.value.clone(),
            deadline: Duration::from_millis(self.deadline_ms.value as u64),
            token_budget: self.token_budget.value.map(|tokens| tokens as u64),
            projection_chars_max: self.projection_chars_max.value,
        })
    }
}

pub(super) fn row(setting: &Setting<Vec<Fragment>>) -> SettingRow {
    let shown = |fragment: &Fragment| format!("{} ({}, {})", fragment.name, fragment.role.name(), fragment.source);
    SettingRow {
        name: "fragments",
        value: Some(setting.value.iter().map(shown).collect::<Vec<_>>().join("; ")),
        toml: Some(format!("[{}]", setting.value.iter().map(inline_table).collect::<Vec<_>>().join(", "))),
        source: setting.source.clone(),
    }
}

/// A fragment as a TOML inline table.
fn inline_table(fragment: &Fragment) -> String {
    let (name, role) = (quoted(&fragment.name), quoted(fragment.role.name()));
    let source = match &fragment.source {
        FragmentSource::Command(words) => format!("command = {}", list(words)),
        FragmentSource::File(path) => format!("file = {}", quoted(&path.display().to_string())),
        FragmentSource::Text(text) => format!("text = {}", quoted(text)),
    };
    let threads = fragment.threads.name();
    let bytes_max = fragment.bytes_max;
    format!("{{ name = {name}, role = {role}, {source}, threads = \"{threads}\", bytes_max = {bytes_max} }}")
}

pub(super) fn fragments(sources: &mut Sources<'_>) -> Setting<Vec<Fragment>> {
    let Some(listed) = sources.tables("fragments") else {
        return Setting { value: Vec::new(), source: Source::Default };
    };
    let mut kept: Vec<Fragment> = Vec::new();
    for (index, value) in listed.into_iter().enumerate() {
        let read = fragment(value, sources, &kept);
        match read {
            Ok(fragment) => kept.push(fragment),
            Err((named, why)) => {
                let named = named.map(|name| format!(" (`{name}`)")).unwrap_or_default();
                sources
                    .complaints
                    .push(Complaint(format!("config.toml: fragment {}{named}: {why}; it is left out", index + 1)));
            }
        }
    }
    Setting { value: kept, source: Source::File }
}

/// Why a fragment is invalid, and its name if it has a valid one.
type FragmentError = (Option<String>, String);

fn fragment(value: Value, sources: &Sources<'_>, others: &[Fragment]) -> Result<Fragment, FragmentError> {
    let Value::Table(table) = value else {
        return Err((
            None,
            format!(
                "{} {} is not valid here; use a table: `[[fragments]]`",
                article(value.type_str()),
                value.type_str()
            ),
        ));
    };
    let named = table.get("name").and_then(Value::as_str).map(str::to_owned);
    read(&table, sources, others).map_err(|why| (named, why))
}

fn read(table: &Table, sources: &Sources<'_>, others: &[Fragment]) -> Result<Fragment, String> {
    if let Some(unknown) = table.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(format!("unknown member `{unknown}`; the members are {}", MEMBERS.join(", ")));
    }
    let name = text(table, "name")?.ok_or("it has no name: add `name = \"…\"`")?;
    check_name(&name, others)?;
    if others.len() >= FRAGMENTS_MAX {
        return Err(format!("the limit is {FRAGMENTS_MAX} fragments"));
    }
    let role = match text(table, "role")?.as_deref() {
        Some("developer") => FragmentRole::Developer,
        Some("contextual_user") => FragmentRole::ContextualUser,
        Some(other) => return Err(format!("role: `{other}` is neither `developer` nor `contextual_user`")),
        None => return Err("it has no role: add `role = \"developer\"` or `role = \"contextual_user\"`".to_owned()),
    };
    let threads = match text(table, "threads")?.as_deref() {
        Some("all") | None => FragmentThreads::All,
        Some("new") => FragmentThreads::New,
        Some(other) => return Err(format!("threads: `{other}` is neither `all` nor `new`")),
    };
    let bytes_max = match table.get("bytes_max") {
        None => DEFAULT_FRAGMENT_BYTES_MAX,
        Some(value) => value
            .as_integer()
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| (1..=FRAGMENT_BYTES_MAX).contains(number))
            .ok_or_else(|| format!("bytes_max: it must be a number from 1 to {FRAGMENT_BYTES_MAX}"))?,
    };
    let source = match (command_of(table)?, text(table, "file")?, text(table, "text")?) {
        (Some(words), None, None) => FragmentSource::Command(words),
        (None, Some(path), None) if path.is_empty() => return Err("file: the path is empty".to_owned()),
        (None, Some(path), None) => FragmentSource::File(sources.beside_file.join(path)),
        (None, None, Some(text)) => FragmentSource::Text(text),
        (None, None, None) => return Err("it has no content: add one of `command`, `file` and `text`".to_owned()),
        _ => return Err("it has more than one of `command`, `file` and `text`: keep one".to_owned()),
    };
    Ok(Fragment { name, role, source, threads, bytes_max })
}

fn check_name(name: &str, others: &[Fragment]) -> Result<(), String> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_tag = name.len() <= NAME_BYTES_MAX
        && name.bytes().all(is_word)
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic());
    if !is_tag {
        return Err(format!("a name begins with a letter and has 1 to {NAME_BYTES_MAX} letters, digits, `_` and `-`"));
    }
    if RESERVED_NAMES.iter().any(|taken| taken.eq_ignore_ascii_case(name)) {
        return Err("the name is reserved: choose another one".to_owned());
    }
    if others.iter().any(|other| other.name == name) {
        return Err("an earlier fragment has this name: choose another one".to_owned());
    }
    Ok(())
}

fn text(table: &Table, name: &str) -> Result<Option<String>, String> {
    match table.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => {
            Err(format!("{name}: it must be a string, not {} {}", article(other.type_str()), other.type_str()))
        }
    }
}

fn command_of(table: &Table) -> Result<Option<Vec<String>>, String> {
    let wrong = || "command: it must be a program and its arguments, such as [\"git\", \"status\", \"-sb\"]".to_owned();
    let words = match table.get("command") {
        None => return Ok(None),
        Some(Value::String(program)) => vec![program.clone()],
        Some(Value::Array(words)) => {
            words.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(wrong)?
        }
        Some(_) => return Err(wrong()),
    };
    match words.first() {
        Some(program) if !program.is_empty() => Ok(Some(words)),
        Some(_) | None => Err(wrong()),
    }
}
