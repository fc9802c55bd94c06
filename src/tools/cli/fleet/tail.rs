//! `codex-shim fleet tail`: the events of all hosts, as the server has stored them.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::super::history::{EventPrinter, event_cells, table_of_hosts};
use super::super::screen::{Clock, Screen, Times, Tone};
use super::super::since::{Since, SinceFlag};
use super::super::table::Cell;
use super::super::{CliError, Done, say};
use super::{complain, connect, not_read};
use crate::config::Environment;
use crate::engine::one_line;
use crate::fleet::{Client, EventMessage, Gap, Reader, Start, StoredEvent};

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
    let printer = EventPrinter::new(arguments.as_json, &arguments.times, table_of_hosts, environment);
    let mut printer = Printer { printer, reader: Reader::default() };
    let (host, since) = (arguments.host.as_deref(), arguments.since.get().map(Since::time));
    let mut start = Start::Time(since.unwrap_or_else(|| ago(BEGINS_AGO)));
    if let Some(count) = arguments.last {
        let starts = match since {
            Some(_) => vec![start],
            None => {
                LOOKED_FOR_SINCE.map(|before| before.map_or(Start::After(0), |before| Start::Time(ago(before)))).into()
            }
        };
        let (last, end) = last_events(&client, host, starts, count)?;
        complain(&client);
        printer.print(last.iter())?;
        // What was stored meanwhile follows only on request.
        if !arguments.follow {
            return Ok(0);
        }
        start = end;
    }
    let mut has_failed = false;
    loop {
        let page = match client.events(host, &start).map_err(not_read) {
            Err(error) if arguments.follow => {
                if !std::mem::replace(&mut has_failed, true) {
                    say(&format!("{error}; trying again"));
                }
                std::thread::park_timeout(AGAIN_AFTER);
                continue;
            }
            page => page?,
        };
        has_failed = false;
        complain(&client);
        printer.print(page.iter().filter_map(|stored| stored.message.as_ref()))?;
        if let Some(last) = page.last() {
            start = Start::After(last.number);
        }
        if page.last().is_some_and(|last| last.more > 0) {
            continue;
        }
        if !arguments.follow {
            return Ok(0);
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

fn ago(before: Duration) -> SystemTime {
    SystemTime::now() - before
}

/// The last `count` events, and the start of the following ones. Uses the first start with so many events behind it.
fn last_events(
    client: &Client,
    host: Option<&str>,
    starts: Vec<Start>,
    count: u64,
) -> Result<(VecDeque<EventMessage>, Start), CliError> {
    let (mut last, mut end) = (VecDeque::new(), Start::After(0));
    for start in starts {
        let mut reader = Reader::default();
        (last, end) = (VecDeque::new(), start);
        loop {
            let page = client.events(host, &end).map_err(not_read)?;
            let Some(more) = page.last().map(|stored| stored.more) else { break };
            for StoredEvent { number, message, .. } in page {
                end = Start::After(number);
                last.extend(message.filter(|message| reader.is_new(message)));
                if last.len() as u64 > count {
                    last.pop_front();
                }
            }
            if more == 0 {
                break;
            }
        }
        if last.len() as u64 >= count {
            break;
        }
    }
    Ok((last, end))
}

struct Printer {
    printer: EventPrinter,
    reader: Reader,
}

impl Printer {
    fn print<'a>(&mut self, messages: impl Iterator<Item = &'a EventMessage>) -> Result<(), CliError> {
        let new = messages.filter(|message| self.reader.is_new(message));
        let json = |message: &&EventMessage| serde_json::to_string(message).expect("BUG: plain data is JSON");
        self.printer.print(new, json, |message, clock, to| cells(message, clock, to))
    }
}

fn cells(message: &EventMessage, clock: &Clock, to: Screen) -> Option<Vec<Cell>> {
    let mut cells = match &message.gap {
        Some(Gap { reason, .. }) if reason == "new_epoch" => {
            gap_cells(message, "the numbering has begun anew: all events that are kept follow".to_owned())
        }
        Some(Gap { reason, after_seq, .. }) => {
            let (first, reason) = (after_seq.saturating_add(1), one_line(reason));
            gap_cells(message, format!("events {first} to {} are missing ({reason})", message.seq))
        }
        None => event_cells(&message.document()?, clock, to),
    };
    cells.splice(1..1, [(Tone::Strong, message.host.clone()), (Tone::Plain, message.session.clone())]);
    Some(cells)
}

fn gap_cells(message: &EventMessage, words: String) -> Vec<Cell> {
    let faint = |text: String| (Tone::Faint, text);
    let (number, none) = (message.seq.to_string(), || faint("-".to_owned()));
    vec![none(), faint(number), (Tone::Bad, "gap".to_owned()), none(), (Tone::Bad, words)]
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
