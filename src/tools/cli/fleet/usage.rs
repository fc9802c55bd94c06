//! `codex-shim fleet usage`: the tokens, time, commands and requests of turns, over all hosts.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::requests::print_json;
use super::super::screen::{self, Screen, Tone};
use super::super::since::SinceFlag;
use super::super::table::{Cell, Column, Table};
use super::super::{Done, say, usage_tool};
use super::list::rows_of;
use super::{Format, connect, text};
use crate::api::Used;
use crate::config::Environment;
use crate::fleet::{Question, VERSION};

/// Show the tokens, time and requests of turns on all hosts
///
/// Each host adds its turns up by day in UTC, client and model. Hosts that are offline are named on stderr and not counted.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  codex-shim fleet usage
  codex-shim fleet usage --by model --since 30d
  codex-shim fleet usage build-7 --by session
  codex-shim fleet usage --json | jq .total.total_tokens")]
pub(in crate::cli) struct UsageArguments {
    /// Only this host
    #[arg(value_name = "HOST", add = super::complete::hosts())]
    host: Option<String>,
    /// One row for each of these
    #[arg(long, value_enum, value_name = "WHAT", default_value = "host")]
    by: By,
    #[command(flatten)]
    since: SinceFlag,
    #[command(flatten)]
    format: Format,
}

/// The meaning of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum By {
    Host,
    Session,
    Day,
    Client,
    Model,
}

pub(super) fn run(arguments: &UsageArguments, environment: &Environment) -> Done {
    let client = connect(environment)?;
    let since = arguments.since.get().map(|since| since.rfc3339());
    let question = Question::Usage { v: VERSION, since: since.clone() };
    let (rows, status) = rows_of(&client, arguments.host.as_deref(), &question, "rows")?;
    let groups = groups(&rows, arguments.by);
    let mut total = Used::default();
    groups.values().for_each(|used| total.add(used));
    if arguments.format.as_json {
        let rows: Vec<Value> = groups.iter().map(|(name, used)| document(arguments.by, name, used)).collect();
        let document = json!({ "by": arguments.by, "since": since, "rows": rows, "total": total });
        return Ok(status.max(print_json(&document)));
    }
    if groups.is_empty() && status == 0 {
        say("no turns are on record");
    }
    let to = Screen::of_stdout(environment);
    Ok(status.max(screen::print(&table(&groups, &total, arguments.by, to))))
}

/// The names of a group: the host first, if it is one of a host.
type Name = Vec<String>;

/// The members that name a group, and the columns that have them.
fn members(by: By) -> &'static [(&'static str, &'static str)] {
    match by {
        By::Host => &[("host", "HOST")],
        By::Session => &[("host", "HOST"), ("session_id", "SESSION")],
        By::Day => &[("day", "DAY (UTC)")],
        By::Client => &[("client", "CLIENT")],
        By::Model => &[("model", "MODEL")],
    }
}

fn groups(rows: &[Value], by: By) -> BTreeMap<Name, Used> {
    let mut groups: BTreeMap<Name, Used> = BTreeMap::new();
    for (row, used) in rows.iter().filter_map(|row| Some((row, Used::deserialize(row).ok()?))) {
        let name = members(by).iter().map(|(member, _)| text(row, member).to_owned());
        groups.entry(name.collect()).or_default().add(&used);
    }
    groups
}

fn document(by: By, name: &Name, used: &Used) -> Value {
    let mut row = json!(used);
    for ((member, _), value) in members(by).iter().zip(name) {
        row[*member] = json!(Some(value).filter(|value| !value.is_empty()));
    }
    row
}

fn table(groups: &BTreeMap<Name, Used>, total: &Used, by: By, to: Screen) -> String {
    let head = |(member, head): &(&str, &str)| match *member {
        "day" | "session_id" => Column::whole(*head),
        _ => Column::text(*head),
    };
    let mut columns: Vec<Column> = members(by).iter().map(head).collect();
    columns.extend(usage_tool::columns());
    let mut rows: Vec<Vec<Cell>> = groups.iter().map(|(name, used)| cells(name, used, to)).collect();
    if to != Screen::None && rows.len() > 1 {
        let mut name = vec![String::new(); members(by).len()];
        name[0] = "total".to_owned();
        rows.push(cells(&name, total, to));
    }
    Table::of(columns, rows, to)
}

fn cells(name: &Name, used: &Used, to: Screen) -> Vec<Cell> {
    let names = name.iter().map(|name| (Tone::Strong, if name.is_empty() { "-".to_owned() } else { name.clone() }));
    names.chain(usage_tool::cells(used, to)).collect()
}
