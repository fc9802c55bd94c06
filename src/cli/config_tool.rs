//! `codex-shim config`: every setting with its source.

use serde_json::json;

use super::args::ConfigArguments;
use unicode_width::UnicodeWidthStr as _;

use super::screen::{Screen, Tone, print};
use super::{FAILED, say};
use crate::config::{Environment, Flags, Row, Settings};
use crate::engine::one_line;
use crate::files::{Folder, Refused};

/// Widest setting that pushes the comments of all others to the right.
const COMMENT_COLUMN_MAX: usize = 48;

/// Prints the settings; what cannot be used makes it fail, after the rest has been printed.
pub(super) fn run(arguments: &ConfigArguments, environment: &Environment) -> i32 {
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    let to = Screen::of_stdout(environment);
    let text = if arguments.json { as_json(&settings) } else { as_toml(&settings, to) };
    let printed = print(&text);
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

fn as_json(settings: &Settings) -> String {
    let rows: serde_json::Map<String, serde_json::Value> = settings
        .rows()
        .into_iter()
        .map(|row| (row.name.to_owned(), json!({ "value": row.value, "source": row.source.to_string() })))
        .collect();
    format!("{}\n", serde_json::Value::Object(rows))
}

/// The settings as a `config.toml`. A comment behind each setting names its source.
fn as_toml(settings: &Settings, to: Screen) -> String {
    let lines: Vec<(String, String)> = settings.rows().into_iter().map(line).collect();
    let width = lines.iter().map(|(line, _)| line.width()).filter(|width| *width <= COMMENT_COLUMN_MAX).max();
    let width = width.unwrap_or(0);
    let comment = |(line, comment): &(String, String)| {
        let padding = " ".repeat(width.saturating_sub(line.width()));
        format!("{line}{padding}  {}\n", to.paint(Tone::Faint, comment))
    };
    lines.iter().map(comment).collect()
}

/// A setting and its comment.
fn line(row: Row) -> (String, String) {
    let comment = format!("# {}", row.source);
    match (row.toml, row.value) {
        (Some(toml), _) => (format!("{} = {toml}", row.name), comment),
        (None, Some(value)) if !value.is_empty() => (format!("# {} is {}", row.name, one_line(&value)), comment),
        (None, Some(_) | None) => (format!("# {} is not set", row.name), comment),
    }
}
