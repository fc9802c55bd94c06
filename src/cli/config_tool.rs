//! `codex-shim config`: every setting with its source.

use serde_json::json;

use super::args::ConfigArguments;
use super::screen::print;
use super::{FAILED, say};
use crate::config::{Environment, Flags, Settings};
use crate::files::{Folder, Refused};

/// Prints the settings; what cannot be used makes it fail, after the rest has been printed.
pub(super) fn run(arguments: &ConfigArguments, environment: &Environment) -> i32 {
    let (settings, complaints) = Settings::load(Flags::default(), environment);
    let text = if arguments.json { as_json(&settings) } else { as_table(&settings) };
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

fn as_table(settings: &Settings) -> String {
    let rows = settings.rows();
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let name_width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let value_width = rows.iter().map(|row| shown(&row.value).chars().count()).max().unwrap_or(0);
    rows.iter()
        .map(|row| format!("{:name_width$}  {:value_width$}  {}\n", row.name, shown(&row.value), row.source))
        .collect()
}
