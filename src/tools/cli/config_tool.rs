//! `codex-shim config`: every setting with its source, and the running sessions that need a restart.

use std::fmt;

use clap::Args;
use serde_json::json;
use unicode_width::UnicodeWidthStr as _;

use super::offline;
use super::screen::{self, Screen, Tone};
use super::{FAILED, say, select_session};
use crate::api::ConfigDocument;
use crate::config::{Environment, Flags, SettingRow, Settings};
use crate::engine::one_line;
use crate::files::{Folder, Refused};
use crate::store::{Found, full_name};

/// Print every setting and where it comes from
///
/// The output can be pasted into config.toml. A comment names the source of each setting.
#[derive(Debug, Args)]
#[command(after_long_help = "\
A setting comes from a flag, else a CODEX_SHIM_* variable, else config.toml in
$CODEX_SHIM_HOME, else its default.

Exit status: 0, or 1 if a setting is not valid.

Examples:
  codex-shim config
  CODEX_SHIM_EXIT_GRACE=3s codex-shim config --json | jq .exit_grace")]
pub(super) struct ConfigArguments {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Widest setting that the comment column makes room for.
const COMMENT_COLUMN_MAX: usize = 48;

/// Prints the settings. If one is not usable, it fails after it has printed everything.
pub(super) fn run(arguments: &ConfigArguments, environment: &Environment) -> i32 {
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    let (to, waiting) = (Screen::of_stdout(environment), waiting(environment));
    let text = if arguments.json { as_json(&settings, &waiting) } else { as_toml(&settings, to) };
    let printed = screen::print_exactly(&text);
    if !arguments.json {
        waiting.iter().for_each(|waiting| say(&waiting.to_string()));
    }
    if let Some(home) = &settings.home.value
        && let Err(error) = Folder::home(home)
        && let Some(refused) = Refused::behind(&error)
    {
        say(&format!("config.toml is not read: {refused}"));
        return FAILED;
    }
    for complaint in &complaints {
        say(&complaint.to_string());
    }
    if complaints.is_empty() { printed } else { FAILED }
}

/// A running session that has not applied the whole config file.
struct LaggingSession {
    session_id: String,
    /// Its name in messages.
    name: String,
    config: ConfigDocument,
}

impl fmt::Display for LaggingSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        if self.config.error.is_some() {
            write!(f, "session {name} keeps its previous settings: config.toml has a mistake")?;
        }
        let between = if self.config.error.is_some() { "; " } else { "" };
        match self.config.restart_needed.join(", ") {
            settings if settings.is_empty() => Ok(()),
            settings => write!(f, "{between}restart session {name} to apply: {settings}"),
        }
    }
}

/// The running sessions that have not applied the whole config file. Sessions that do not answer are reported on stderr.
fn waiting(environment: &Environment) -> Vec<LaggingSession> {
    let mut live = select_session::listed(None, environment).unwrap_or_default();
    live.retain(|session| session.live);
    select_session::at_once(&live, |session| waits(session, &live)).into_iter().flatten().collect()
}

/// What of the config file a session has not applied; `None` if there is nothing, or if it does not answer.
fn waits(session: &Found, all: &[Found]) -> Option<LaggingSession> {
    let config = match offline::live_state(session) {
        Ok(document) => document?.config?,
        Err(error) => {
            say(&error.to_string());
            return None;
        }
    };
    let is_waiting = config.error.is_some() || !config.restart_needed.is_empty();
    is_waiting.then(|| LaggingSession { session_id: session.id.clone(), name: full_name(session, all), config })
}

fn as_json(settings: &Settings, waiting: &[LaggingSession]) -> String {
    let in_json = |row: SettingRow| {
        let is_of = |waiting: &&LaggingSession| waiting.config.restart_needed.iter().any(|name| name == row.name);
        let sessions: Vec<&str> = waiting.iter().filter(is_of).map(|waiting| waiting.session_id.as_str()).collect();
        let of_row = json!({ "value": row.value, "source": row.source.to_string(), "restart_needed": sessions });
        (row.name.to_owned(), of_row)
    };
    let rows: serde_json::Map<String, serde_json::Value> = settings.rows().into_iter().map(in_json).collect();
    format!("{}\n", serde_json::Value::Object(rows))
}

/// The settings as a `config.toml`, with the source of each in a comment.
fn as_toml(settings: &Settings, to: Screen) -> String {
    toml_within(settings, to, screen::columns(to))
}

fn toml_within(settings: &Settings, to: Screen, columns_max: Option<usize>) -> String {
    let lines: Vec<(String, String)> = settings.rows().into_iter().map(line).collect();
    let width = lines.iter().map(|(line, _)| line.width()).filter(|width| *width <= COMMENT_COLUMN_MAX).max();
    let width = width.unwrap_or(0);
    let longest = lines.iter().map(|(_, comment)| comment.width()).max().unwrap_or(0);
    // On a narrow terminal a comment stands above its setting. Comments are wrapped; a setting is not, because it is copied.
    let is_narrow = columns_max.is_some_and(|columns_max| width + 2 + longest > columns_max);
    let wrapped = |line: &str| match (line.strip_prefix("# "), columns_max) {
        (Some(text), Some(columns_max)) => {
            format!("# {}", screen::wrapped(text, 0, columns_max.saturating_sub(2).max(1)).replace('\n', "\n# "))
        }
        (_, _) => line.to_owned(),
    };
    let text = |(line, comment): &(String, String)| {
        let padding = " ".repeat(width.saturating_sub(line.width()));
        match is_narrow {
            true => format!("{}\n{}\n", to.paint(Tone::Faint, &wrapped(comment)), wrapped(line)),
            false => format!("{line}{padding}  {}\n", to.paint(Tone::Faint, comment)),
        }
    };
    lines.iter().map(text).collect()
}

fn line(row: SettingRow) -> (String, String) {
    let comment = format!("# {}", row.source);
    match (row.toml, row.value) {
        (Some(toml), _) => (format!("{} = {toml}", row.name), comment),
        (None, Some(value)) if !value.is_empty() => (format!("# {} is {}", row.name, one_line(&value)), comment),
        (None, Some(_) | None) => (format!("# {} is not set", row.name), comment),
    }
}
