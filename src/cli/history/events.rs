//! `codex-shim events`: recorded and new events.

use std::collections::VecDeque;

use clap::Args;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::clock::{Clock, Times};
use super::super::error::{CliError, Done};
use super::super::offline::Read;
use super::super::requests::{Common, print_json};
use super::super::screen::Screen;
use super::super::session_args::{positive, whole};
use super::super::table::Table;
use super::super::{complete, say, screen};
use super::words::{Event, table};
use super::{FollowedEvent, Following, Page, put, threads};
use crate::config::Environment;

/// Print what happened, one event per line
///
/// Each line has the time, the number, the type and the thread of an event, and what matters of it. Events that belong
/// together, such as the pieces of a message, are one. A line says where something is missing.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With -f it keeps printing, also after the relay restarts, until you interrupt
it. With --json it prints what `GET /sessions/self/codex-events` returns; with
-f and --json, one event per line.

Exit status: 0, or 1 if events cannot be read, or 3 if there is no such
session.

Examples:
  codex-shim events                            the last 50
  codex-shim events work -f
  codex-shim events -f --type 'item/*' --type turn/completed
  codex-shim events --since 0 --thread latest --json | jq .events")]
pub(in crate::cli) struct EventsArguments {
    #[command(flatten)]
    common: Common,
    /// Start after event number N; 0 starts at the first
    #[arg(long, value_name = "N", value_parser = whole)]
    since: Option<u64>,
    /// Number of events [default: 50, with -f 10, with --since all]
    #[arg(short = 'n', value_name = "COUNT", value_parser = positive)]
    limit: Option<u64>,
    /// Keep printing events as they happen
    #[arg(short, long)]
    follow: bool,
    /// Only events of type T; `item/*` matches a beginning; repeatable
    #[arg(long = "type", value_name = "T")]
    types: Vec<String>,
    /// Only this thread: its id, a unique beginning of it, or `latest`
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    thread: Option<String>,
    #[command(flatten)]
    times: Times,
}

/// Events per request. Source: the contract.
const PAGE: u64 = 500;

/// Default number of events.
const LAST: u64 = 50;

/// Default number of events with `--follow`.
const LAST_BEFORE_FOLLOWING: u64 = 10;

/// The message for a cursor from an earlier epoch.
const NEW_EPOCH: &str = "event numbers have restarted, because the history could no longer vouch for the old numbers; these are \
     all events that it has";

/// Most keys of unnumbered events that are remembered.
const UNNUMBERED_MAX: usize = 10_000;

/// Prints events.
pub(in crate::cli) fn run_events(arguments: &EventsArguments, environment: &Environment) -> Done {
    let session = arguments.common.session.name();
    let mut read = match threads::read_of(session, arguments.thread.as_deref(), environment)? {
        Ok(read) => read,
        // A filter may match several threads, and threads without messages.
        Err(_) => Read::chosen(session, environment)?,
    };
    let thread = arguments.thread.as_ref().map(|name| threads::thread_or_beginning(&mut read, name)).transpose()?;
    let wanted = Wanted { types: arguments.types.clone(), thread };
    let shown = match (arguments.since, arguments.limit) {
        (Some(since), limit) => first(&mut read, since, limit.unwrap_or(u64::MAX), &wanted)?,
        (None, limit) => {
            let usual = if arguments.follow { LAST_BEFORE_FOLLOWING } else { LAST };
            last(&mut read, limit.unwrap_or(usual), &wanted)?
        }
    };
    if arguments.common.as_json && !arguments.follow {
        return Ok(print_json(&shown.document()));
    }
    shown.say_gap();
    let mut printer = Printer::new(arguments, environment);
    printer.print(shown.events.iter().map(|event| event.get()))?;
    if !arguments.follow {
        return Ok(0);
    }
    // With --since, the limit is the total number.
    let mut left = arguments.since.and(arguments.limit).map(|limit| limit.saturating_sub(shown.events.len() as u64));
    let mut following = Following::new(&mut read, shown.cursor);
    while left != Some(0) {
        let Some(FollowedEvent { json, event }) = following.next(None)? else { continue };
        if wanted.has(&event) {
            printer.print([&*json])?;
            left = left.map(|left| left - 1);
        }
    }
    Ok(0)
}

/// The filter.
#[derive(Debug, Default)]
struct Wanted {
    types: Vec<String>,
    thread: Option<String>,
}

impl Wanted {
    fn has_all(&self) -> bool {
        self.types.is_empty() && self.thread.is_none()
    }

    /// Gap events always pass.
    fn has(&self, event: &Event) -> bool {
        let is_type = |wanted: &String| match wanted.strip_suffix('*') {
            Some(beginning) => event.event_type.starts_with(beginning),
            None => event.event_type == *wanted,
        };
        let is_thread =
            |wanted: &String| event.thread_id.as_ref().is_some_and(|thread| thread.starts_with(wanted.as_str()));
        event.is_gap()
            || ((self.types.is_empty() || self.types.iter().any(is_type)) && self.thread.iter().all(is_thread))
    }
}

/// Events from the history.
#[derive(Debug, Default)]
struct Shown {
    events: VecDeque<Box<RawValue>>,
    /// Everything up to here was examined.
    cursor: u64,
    earliest_seq: Option<u64>,
    latest_seq: Option<u64>,
    epoch: Option<String>,
    gap_reason: Option<String>,
    /// The number after which the search began.
    since: Option<u64>,
}

impl Shown {
    fn learn(&mut self, page: &Page) {
        self.earliest_seq = page.earliest_seq;
        self.latest_seq = page.latest_seq;
        self.epoch.clone_from(&page.epoch);
        if page.history_gap && self.gap_reason.is_none() {
            self.gap_reason.clone_from(&page.gap_reason);
        }
    }

    fn document(&self) -> Value {
        json!({
            "events": self.events, "earliest_seq": self.earliest_seq, "latest_seq": self.latest_seq,
            "next_seq": self.cursor.saturating_add(1), "history_gap": self.gap_reason.is_some(),
            "gap_reason": self.gap_reason, "epoch": self.epoch,
        })
    }

    /// Reports missing events that no event reports. Stretches missing from the journal are events themselves.
    fn say_gap(&self) {
        match (self.gap_reason.as_deref(), self.earliest_seq) {
            (Some("retention"), Some(earliest)) => {
                let since = self.since.unwrap_or(0);
                say(&format!("events {} to {} have been deleted (retention)", since + 1, earliest.saturating_sub(1)));
            }
            (Some("retention"), None) => say("all events have been deleted (retention)"),
            (Some("new_epoch"), _) => say(NEW_EPOCH),
            (Some("cursor_ahead"), _) => {
                let since = self.since.unwrap_or(0);
                say(&format!("event {since} does not belong to this history; these are all of its events"));
            }
            (Some("persistence_error"), _) => {
                say("some recorded messages are not indexed yet; see `codex-shim status`");
            }
            (Some("journal_gap") | None, _) => {}
            (Some(other), _) => say(&format!("events are missing: {}", screen::plain(other))),
        }
    }
}

/// The first wanted events after `since`.
fn first(read: &mut Read, since: u64, limit: u64, wanted: &Wanted) -> Result<Shown, CliError> {
    let mut shown = Shown { cursor: since, since: Some(since), ..Shown::default() };
    loop {
        let page = read.events(Some(shown.cursor), PAGE)?;
        shown.learn(&page);
        let is_last = (page.events.len() as u64) < PAGE;
        if matches!(page.gap_reason.as_deref(), Some("new_epoch" | "cursor_ahead")) {
            shown.cursor = page.next_seq.saturating_sub(1);
        }
        for json in page.events {
            let Ok(event) = serde_json::from_str::<Event>(json.get()) else { continue };
            shown.cursor = event.seq.unwrap_or(shown.cursor);
            if wanted.has(&event) {
                shown.events.push_back(json);
            }
            if shown.events.len() as u64 == limit {
                return Ok(shown);
            }
        }
        if is_last {
            return Ok(shown);
        }
    }
}

/// The last wanted events, searched backwards.
fn last(read: &mut Read, limit: u64, wanted: &Wanted) -> Result<Shown, CliError> {
    let at_first = if wanted.has_all() { limit.min(PAGE) } else { PAGE };
    let mut page = read.events(None, at_first)?;
    let mut shown = Shown { cursor: page.latest_seq.unwrap_or(0), ..Shown::default() };
    // Numbers from here on were examined.
    let mut from = u64::MAX;
    loop {
        shown.learn(&page);
        let mut lowest = from;
        for json in page.events.into_iter().rev() {
            let Ok(event) = serde_json::from_str::<Event>(json.get()) else { continue };
            let Some(seq) = event.seq.filter(|seq| *seq < from) else { continue };
            lowest = lowest.min(seq);
            if wanted.has(&event) {
                shown.events.push_front(json);
            }
            if shown.events.len() as u64 == limit {
                return Ok(shown);
            }
        }
        let earliest = page.earliest_seq.unwrap_or(u64::MAX);
        // If no number was below, the stretch was never assigned.
        from = if lowest < from { lowest } else { from.saturating_sub(PAGE) };
        if from <= earliest {
            return Ok(shown);
        }
        page = read.events(Some(from.saturating_sub(PAGE + 1).max(earliest.saturating_sub(1))), PAGE)?;
    }
}

/// Prints each event once.
struct Printer {
    as_json: bool,
    screen: Screen,
    clock: Clock,
    table: Table,
    /// Keys of events that were printed without a number.
    unnumbered: VecDeque<String>,
}

impl Printer {
    fn new(arguments: &EventsArguments, environment: &Environment) -> Printer {
        let (screen, clock) = (Screen::of_stdout(environment), Clock::of(&arguments.times));
        let table = table(&clock, screen);
        Printer { as_json: arguments.common.as_json, screen, clock, table, unnumbered: VecDeque::new() }
    }

    fn print<'a>(&mut self, events: impl IntoIterator<Item = &'a str>) -> Result<(), CliError> {
        if self.as_json {
            return events.into_iter().try_for_each(|json| put(&format!("{json}\n")));
        }
        self.clock.go_on();
        let mut rows = Vec::new();
        for json in events {
            let Ok(event) = serde_json::from_str::<Event>(json) else { continue };
            if !self.is_known(&event) {
                rows.push(event.cells(&self.clock, self.screen));
            }
        }
        put(&self.table.add(rows))
    }

    /// Whether an event was already printed without its number.
    fn is_known(&mut self, event: &Event) -> bool {
        let Some(key) = &event.key else { return false };
        match (event.seq, self.unnumbered.iter().position(|known| known == key)) {
            (Some(_), Some(at)) => {
                self.unnumbered.remove(at);
                true
            }
            (None, Some(_)) => true,
            (None, None) => {
                self.unnumbered.push_back(key.clone());
                if self.unnumbered.len() > UNNUMBERED_MAX {
                    self.unnumbered.pop_front();
                }
                false
            }
            (Some(_), None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(json: Value) -> Event {
        serde_json::from_value(json).expect("an event")
    }

    #[test]
    fn filters_select_events() {
        let wanted = |types: &[&str], thread: Option<&str>| Wanted {
            types: types.iter().map(|one| (*one).to_owned()).collect(),
            thread: thread.map(str::to_owned),
        };
        let check = |wanted: Wanted, event_type: &str, thread: Option<&str>, expect: bool| {
            let event = event(json!({"seq": 1, "event_type": event_type, "thread_id": thread}));
            assert_eq!(wanted.has(&event), expect, "{wanted:?} {event_type} {thread:?}");
        };
        check(wanted(&[], None), "a", None, true);
        check(wanted(&["item/*", "b"], None), "item/started", None, true);
        check(wanted(&["item/*", "b"], None), "b", None, true);
        check(wanted(&["item/*", "b"], None), "bc", None, false);
        check(wanted(&["item"], None), "item/started", None, false);
        check(wanted(&[], Some("0192")), "a", Some("0192-x"), true);
        check(wanted(&[], Some("0192")), "a", Some("0193-x"), false);
        check(wanted(&[], Some("0192")), "a", None, false);
        check(wanted(&["b"], Some("0192")), "event_gap", None, true);
    }

    #[test]
    fn late_numbered_event_is_printed_once() {
        let clock = Clock::stopped("2026-01-02T03:04:05Z");
        let table = table(&clock, Screen::None);
        let mut printer = Printer { as_json: false, screen: Screen::None, clock, table, unnumbered: VecDeque::new() };
        let mut check = |seq: Option<u64>, key: &str, expect: bool| {
            let event = event(json!({"seq": seq, "event_type": "a", "key": key}));
            assert_eq!(printer.is_known(&event), expect, "{seq:?} {key}");
        };
        check(None, "k", false);
        check(None, "l", false);
        check(Some(1), "j", false);
        check(Some(2), "k", true);
        check(Some(2), "k", false);
        check(Some(3), "l", true);
    }
}
