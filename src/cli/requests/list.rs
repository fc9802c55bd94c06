//! `codex-shim requests`: lists pending requests, or all of them with their outcomes.

use serde_json::{Value, json};

use super::super::clock::Clock;
use super::super::screen::{self, Screen, Tone};
use super::super::table::{Column, Table};
use super::args::RequestsArguments;
use super::{Done, body, kind_name, kind_of, name, print_json, readable_all, rows, text};
use crate::config::Environment;
use crate::control::request_view::who;
use crate::store::{Found, WhichRequests, label, short};

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
            let name = format!("{} {}", label(session), short(session, &sessions));
            text.push_str(&format!("{}\n", screen.paint(Tone::Faint, &screen::plain(&name))));
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
            (Tone::Faint, kind_name(kind_of(row)).to_owned()),
            (Tone::Strong, text(row, "summary").to_owned()),
        ]
    });
    Table::of(columns, cells.collect(), to)
}

/// All requests with their outcomes.
fn history(rows: &[Value], clock: &Clock, to: Screen) -> String {
    let columns = vec![
        Column::whole("AGE").spare(),
        Column::whole("REQUEST"),
        Column::whole("KIND").spare(),
        Column::text("OUTCOME"),
        Column::text("BY").spare(),
        Column::whole(clock.head("AT")).spare(),
        Column::text("WHAT IT ASKS"),
    ];
    let cells = rows.iter().map(|row| {
        let (outcome, tone) = outcome(row);
        vec![
            (Tone::Faint, age(row, clock)),
            (Tone::Warning, name::short(row, rows).to_owned()),
            (Tone::Faint, kind_name(kind_of(row)).to_owned()),
            (tone, outcome),
            (Tone::Faint, who(row)),
            (Tone::Faint, clock.cell(row["resolved_at"].as_str().unwrap_or("-"), to)),
            (Tone::Strong, text(row, "summary").to_owned()),
        ]
    });
    Table::of(columns, cells.collect(), to)
}

/// The status of a row, with its answer.
pub(super) fn outcome(row: &Value) -> (String, Tone) {
    let code = text(row, "error_code");
    match (text(row, "status"), code) {
        ("pending", _) => ("pending".to_owned(), Tone::Warning),
        ("resolved", "withdrawn_by_server") => ("resolved: withdrawn".to_owned(), Tone::Faint),
        ("resolved", _) => {
            let mut words = body::in_words(&row["resolved_payload"]);
            // `show` prints the whole answer; here it would hide the other columns.
            if words.starts_with('{') {
                words = "answered".to_owned();
            }
            (format!("resolved: {words}"), Tone::Good)
        }
        (status, "") => (status.to_owned(), Tone::Bad),
        (status, code) => (format!("{status}: {code}"), Tone::Bad),
    }
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
1m 2s  0  command      pending            -            -                     run x\u{fffd}[31m
2s     1  file change  resolved: decline  cli (uid 0)  2026-01-02T03:04:06Z  change a
";
        assert_eq!(history(&rows(), &now(), Screen::None), expect);
    }

    #[test]
    fn outcome_names_status_and_answer() {
        let check = |row: Value, expect: &str| assert_eq!(outcome(&row).0, expect);
        check(json!({ "status": "orphaned", "error_code": "server_exited" }), "orphaned: server_exited");
        check(json!({ "status": "resolved", "error_code": "withdrawn_by_server" }), "resolved: withdrawn");
        check(json!({ "status": "resolved", "resolved_payload": { "answers": {} } }), "resolved: answered");
    }
}
