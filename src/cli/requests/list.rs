//! `codex-shim requests`: lists pending requests, or all of them with their outcomes.

use serde_json::{Value, json};

use super::super::clock::Clock;
use super::super::screen::{self, Screen, Tone};
use super::super::table::{Cell, Column, Table};
use super::args::RequestsArguments;
use super::{Done, kind_of, name, print_json, readable_all, rows, select_session, text};
use crate::config::Environment;
use crate::control::answer::outcome_word;
use crate::store::{Found, WhichRequests};

pub(in crate::cli) fn run_requests(arguments: &RequestsArguments, environment: &Environment) -> Done {
    let sessions = readable_all(arguments.common.session.name(), environment)?;
    let which = if arguments.all { WhichRequests::All } else { WhichRequests::Pending };
    let listed: Vec<(&Found, Vec<Value>)> =
        sessions.iter().map(|session| rows(session, which).map(|rows| (session, rows))).collect::<Result<_, _>>()?;
    if arguments.common.as_json {
        let rows: Vec<Value> = listed.into_iter().flat_map(|(_, rows)| rows).collect();
        return Ok(print_json(&json!({ "requests": rows })));
    }
    let (clock, screen) = (Clock::of(&arguments.times), Screen::of_stdout(environment));
    let mut text = String::new();
    for (session, rows) in &listed {
        if sessions.len() > 1 {
            text.push_str(&select_session::section(session, &sessions, screen));
        }
        text.push_str(&match which {
            // The heading names the session.
            WhichRequests::Pending | WhichRequests::PendingAndOrphaned if rows.is_empty() && sessions.len() > 1 => {
                "no requests are pending\n".to_owned()
            }
            WhichRequests::Pending | WhichRequests::PendingAndOrphaned if rows.is_empty() => {
                format!("no requests are pending in session {}\n", session.id)
            }
            WhichRequests::All if rows.is_empty() && sessions.len() > 1 => "no requests yet\n".to_owned(),
            WhichRequests::All if rows.is_empty() => format!("session {} has had no requests\n", session.id),
            WhichRequests::Pending | WhichRequests::PendingAndOrphaned => to_do(rows, &clock, screen),
            WhichRequests::All => history(rows, &clock, screen),
        });
    }
    Ok(screen::print(&text))
}

/// How long a pending request has waited, or the age of a resolved one.
fn age(row: &Value, clock: &Clock) -> String {
    clock.age(text(row, "requested_at")).unwrap_or_else(|| "-".to_owned())
}

/// Pending requests: age, name, kind, summary.
fn to_do(rows: &[Value], clock: &Clock, to: Screen) -> String {
    let columns = vec![
        Column::whole("AGE"),
        Column::whole("REQUEST"),
        Column::whole("KIND").spare(),
        Column::text("WHAT IT ASKS"),
    ];
    let cells = rows.iter().map(|row| {
        vec![
            (Tone::Faint, age(row, clock)),
            (Tone::Warning, name::short(row, rows).to_owned()),
            (Tone::Faint, kind_of(row).name().to_owned()),
            (Tone::Strong, text(row, "summary").to_owned()),
        ]
    });
    Table::of(columns, cells.collect(), to)
}

/// All requests with their outcomes.
fn history(rows: &[Value], clock: &Clock, to: Screen) -> String {
    let (columns, cells) = history_table(rows, clock, to);
    Table::of(columns, cells, to)
}

fn history_table(rows: &[Value], clock: &Clock, to: Screen) -> (Vec<Column>, Vec<Vec<Cell>>) {
    let columns = vec![
        Column::whole("AGE").spare(),
        Column::whole("REQUEST"),
        Column::whole("KIND").spare(),
        Column::whole("OUTCOME"),
        Column::whole("BY").spare(),
        Column::whole(clock.head("AT")).spare(),
        Column::text("WHAT IT ASKS"),
    ];
    let cells = rows.iter().map(|row| {
        vec![
            (Tone::Faint, age(row, clock)),
            (Tone::Warning, name::short(row, rows).to_owned()),
            (Tone::Faint, kind_of(row).name().to_owned()),
            outcome(row),
            (Tone::Faint, by(row)),
            (Tone::Faint, clock.cell(row["resolved_at"].as_str().unwrap_or("-"), to)),
            (Tone::Strong, text(row, "summary").to_owned()),
        ]
    });
    (columns, cells.collect())
}

/// The outcome in one word, which fits the narrowest terminal; `show` prints the whole answer.
fn outcome(row: &Value) -> (Tone, String) {
    let tone = match (text(row, "status"), text(row, "error_code")) {
        ("pending", _) => Tone::Warning,
        ("resolved", "withdrawn_by_server") => Tone::Faint,
        ("resolved", _) => Tone::Good,
        _ => Tone::Bad,
    };
    (tone, outcome_word(row).to_owned())
}

/// Who answered, without the process; `show` prints both.
fn by(row: &Value) -> String {
    row["resolution_source"].as_str().unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Value> {
        let row = |id: &str, at: &str, method: &str, summary: &str| {
            json!({
                "request_id": format!("6b02d1a90c4e-{id}"), "process_generation": "6b02d1a90c4e", "status": "pending",
                "requested_at": at, "request_method": method, "summary": summary,
            })
        };
        let mut done = row("1", "2026-01-02T03:04:05.000Z", "item/fileChange/requestApproval", "change a");
        for (name, value) in [
            ("status", json!("resolved")),
            ("resolved_payload", json!({ "decision": "decline" })),
            ("resolution_source", json!("cli")),
            ("resolved_by", json!("uid 0")),
            ("resolved_at", json!("2026-01-02T03:04:06.000Z")),
        ] {
            done[name] = value;
        }
        vec![row("0", "2026-01-02T03:03:05.000Z", "item/commandExecution/requestApproval", "run x\u{1b}[31m"), done]
    }

    fn now() -> Clock {
        Clock::stopped("2026-01-02T03:04:07Z")
    }

    #[test]
    fn pending_requests_are_listed() {
        let expect = "1m 2s  0  command      run x\u{fffd}[31m\n2s     1  file change  change a\n";
        assert_eq!(to_do(&rows(), &now(), Screen::None), expect);
    }

    #[test]
    fn outcomes_of_all_requests_are_listed() {
        let expect = "\
1m 2s  0  command      pending   -    -                     run x\u{fffd}[31m
2s     1  file change  declined  cli  2026-01-02T03:04:06Z  change a
";
        assert_eq!(history(&rows(), &now(), Screen::None), expect);
    }

    #[test]
    fn outcomes_stay_whole_on_narrow_terminals() {
        let mut rows = rows();
        rows[1]["summary"] = json!("change ".repeat(20));
        rows[1]["resolved_by"] = json!("uid 0, pid 12345");
        for columns_max in [40, 80] {
            let (columns, cells) = history_table(&rows, &now(), Screen::Plain);
            let shown = Table::within(columns, Screen::Plain, Some(columns_max)).add(cells);
            assert!(shown.contains("declined") && !shown.contains("uid"), "{shown}");
        }
    }
}
