//! `codex-shim fleet tail`: the events of all hosts, as the server has stored them.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::super::history::{event_cells, table_of_hosts};
use super::super::screen::{self, Clock, Screen, Times, Tone};
use super::super::since::SinceFlag;
use super::super::table::{Cell, Table};
use super::super::{CliError, Done, say};
use super::{complain, connect, not_read};
use crate::config::Environment;
use crate::engine::one_line;
use crate::fleet::{Client, EventMessage, Reader, Start};

/// How far back it begins, if the user does not say.
const BEGINS_AGO: Duration = Duration::from_secs(600);

/// Where the last events are looked for, one after the other: from so long ago on, or everywhere.
const LOOKED_FOR_SINCE: [Option<Duration>; 4] =
    [Some(BEGINS_AGO), Some(Duration::from_secs(6 * 3_600)), Some(Duration::from_secs(7 * 86_400)), None];

/// Most events of `-n`, so that they fit into memory.
const LAST_MAX: u64 = 10_000;

/// Polling interval of `--follow`.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Pause after a failed attempt.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Print what happens on all hosts, one event per line
///
/// The events come as the server has stored them. Each line names the host and the session. A host with `fleet.level =
/// \"summary\"` ships no output, no diff and no message text.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Without --since and -n it begins ten minutes ago. -n prints the last events,
however old they are, or the last ones since --since.

Examples:
  codex-shim fleet tail
  codex-shim fleet tail -f
  codex-shim fleet tail build-7 -n 20 -f
  codex-shim fleet tail build-7 --since 2h
  codex-shim fleet tail -f --json | jq -r .event.event_type")]
pub(in crate::cli) struct TailArguments {
    /// Only the events of this host
    #[arg(value_name = "HOST", add = super::complete::hosts())]
    host: Option<String>,
    /// Only the last so many events, 1 to 10,000
    #[arg(short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=LAST_MAX))]
    last: Option<u64>,
    /// Keep printing events as they are stored
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    since: SinceFlag,
    /// Print one JSON document per line
    #[arg(long = "json")]
    as_json: bool,
    #[command(flatten)]
    times: Times,
}

pub(super) fn run(arguments: &TailArguments, environment: &Environment) -> Done {
    let client = connect(environment)?;
    let mut printer = Printer::new(arguments, environment);
    let mut start = match arguments.last {
        Some(count) => {
            let (last, start) = last_events(&client, arguments, count)?;
            complain(&client);
            printer.print(last.into_iter().map(Some))?;
            start
        }
        None => Start::Time(arguments.since.get().map_or_else(|| ago(BEGINS_AGO), |since| since.rfc3339())),
    };
    // What was stored meanwhile follows only on request.
    if arguments.last.is_some() && !arguments.follow {
        return Ok(0);
    }
    let mut has_failed = false;
    loop {
        let page = match client.events(arguments.host.as_deref(), &start).map_err(not_read) {
            Ok(page) => page,
            Err(error) if arguments.follow => {
                if !has_failed {
                    say(&format!("{error}; trying again"));
                }
                has_failed = true;
                std::thread::park_timeout(AGAIN_AFTER);
                continue;
            }
            Err(error) => return Err(error),
        };
        has_failed = false;
        complain(&client);
        let more = page.last().map_or(0, |last| last.more);
        if let Some(last) = page.last() {
            start = Start::After(last.number);
        }
        printer.print(page.iter().map(|stored| serde_json::from_slice(&stored.payload).ok()))?;
        if more > 0 {
            continue;
        }
        if !arguments.follow {
            return Ok(0);
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

fn ago(before: Duration) -> String {
    humantime::format_rfc3339_millis(SystemTime::now() - before).to_string()
}

/// The last events, and the start of those that follow.
fn last_events(
    client: &Client,
    arguments: &TailArguments,
    count: u64,
) -> Result<(VecDeque<EventMessage>, Start), CliError> {
    let starts: Vec<Start> = match arguments.since.get() {
        Some(since) => vec![Start::Time(since.rfc3339())],
        None => LOOKED_FOR_SINCE
            .iter()
            .map(|before| before.map_or(Start::After(0), |before| Start::Time(ago(before))))
            .collect(),
    };
    let mut found = (VecDeque::new(), Start::After(0));
    for start in starts {
        found = events_from(client, arguments.host.as_deref(), start, count)?;
        if found.0.len() as u64 >= count {
            break;
        }
    }
    Ok(found)
}

/// The last `count` events from `start` on, and the start of those that follow.
fn events_from(
    client: &Client,
    host: Option<&str>,
    mut start: Start,
    count: u64,
) -> Result<(VecDeque<EventMessage>, Start), CliError> {
    let (mut last, mut reader) = (VecDeque::new(), Reader::default());
    loop {
        let page = client.events(host, &start).map_err(not_read)?;
        let Some(end) = page.last() else { return Ok((last, start)) };
        start = Start::After(end.number);
        let messages = page.iter().filter_map(|stored| serde_json::from_slice::<EventMessage>(&stored.payload).ok());
        for message in messages.filter(|message| reader.is_new(message)) {
            if last.len() as u64 >= count {
                last.pop_front();
            }
            last.push_back(message);
        }
        if end.more == 0 {
            return Ok((last, start));
        }
    }
}

struct Printer {
    as_json: bool,
    to: Screen,
    clock: Clock,
    table: Table,
    reader: Reader,
}

impl Printer {
    fn new(arguments: &TailArguments, environment: &Environment) -> Printer {
        let (to, clock) = (Screen::of_stdout(environment), Clock::of(&arguments.times));
        let table = table_of_hosts(&clock, to);
        Printer { as_json: arguments.as_json, to, clock, table, reader: Reader::default() }
    }

    fn print(&mut self, messages: impl Iterator<Item = Option<EventMessage>>) -> Result<(), CliError> {
        self.clock.go_on();
        let (mut lines, mut rows) = (String::new(), Vec::new());
        for message in messages.flatten() {
            if !self.reader.is_new(&message) {
                continue;
            }
            match self.as_json {
                true => {
                    lines.push_str(&serde_json::to_string(&message).expect("BUG: plain data is JSON"));
                    lines.push('\n');
                }
                false => rows.extend(cells(&message, &self.clock, self.to)),
            }
        }
        let text = if self.as_json { lines } else { self.table.add(rows) };
        screen::put(&text)
    }
}

fn cells(message: &EventMessage, clock: &Clock, to: Screen) -> Option<Vec<Cell>> {
    let (host, session) = ((Tone::Strong, message.host.clone()), (Tone::Plain, message.session.clone()));
    if let Some(gap) = &message.gap {
        let words = match gap.reason.as_str() {
            "new_epoch" => "the numbering has begun anew: all events that are kept follow".to_owned(),
            _ => format!(
                "events {} to {} are missing ({})",
                gap.after_seq.saturating_add(1),
                message.seq,
                one_line(&gap.reason)
            ),
        };
        let faint = |text: &str| (Tone::Faint, text.to_owned());
        let number = faint(&message.seq.to_string());
        return Some(vec![
            faint("-"),
            host,
            session,
            number,
            (Tone::Bad, "gap".to_owned()),
            faint("-"),
            (Tone::Bad, words),
        ]);
    }
    let mut cells = event_cells(&message.document()?, clock, to);
    cells.splice(1..1, [host, session]);
    Some(cells)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(message: serde_json::Value) -> Vec<String> {
        let message: EventMessage = serde_json::from_value(message).expect("a message");
        let clock = Clock::stopped("2026-01-02T03:04:07Z");
        cells(&message, &clock, Screen::None).expect("cells").into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn lines_name_host_and_session() {
        let event = json!({ "seq": 7, "timestamp": "2026-01-02T03:04:05.000Z", "event_type": "turn/started", "thread_id": "t",
            "payload_preview": { "turn": { "id": "u" } } });
        let message = json!({ "v": 1, "host": "h", "session": "s", "epoch": "e", "seq": 7, "event": event });
        assert_eq!(shown(message), ["2026-01-02T03:04:05Z", "h", "s", "7", "turn/started", "t", "turn u"]);
        let gap = json!({ "v": 1, "host": "h", "session": "s", "epoch": "e", "seq": 9, "gap": { "reason": "retention", "after_seq": 4 } });
        assert_eq!(shown(gap)[6], "events 5 to 9 are missing (retention)");
    }
}
