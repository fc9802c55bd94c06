//! `codex-shim events`: recorded and new events, each on one line with its time, number, type, thread and the important part of its
//! payload.

use std::collections::VecDeque;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::super::filter::FilterFlag;
use super::super::offline::{self, Read};
use super::super::requests::print_json;
use super::super::screen::{Clock, Times};
use super::super::screen::{Screen, Tone};
use super::super::select_session::Common;
use super::super::select_session::{positive, whole};
use super::super::table::{Cell, Column, Table};
use super::super::{CliError, Done};
use super::super::{complete, say, screen, select_session};
use super::{FollowedEvent, Following, read_of, thread_or_beginning};
use crate::api::{EVENTS_MAX, EventDocument, EventPage, GapPayload, GapReason};
use crate::config::Environment;
use crate::engine::{RequestKind, one_line, without_shell};
use crate::history::{
    EventFacts, Filter, FilterStatus, HIDDEN, KnownFacts, Thing, action_in_words, beginning, hides, mended, micros_of,
};
use crate::protocol::{Method, OTHER_THREAD_ID};
use crate::sessions::search::known_facts;
use crate::store::Found;

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
  codex-shim events --filter 'kind:command status:failed'
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
    #[command(flatten)]
    filter: FilterFlag,
    /// Only this thread: its id, a unique beginning of it, or `latest`
    #[arg(long, value_name = "THREAD", add = complete::threads())]
    thread: Option<String>,
    #[command(flatten)]
    times: Times,
}

/// Default number of events.
const LAST: u64 = 50;

/// Default number of events with `--follow`.
const LAST_BEFORE_FOLLOWING: u64 = 10;

/// The message for a cursor from an earlier epoch.
const NEW_EPOCH: &str = "event numbers have restarted, because the history could no longer vouch for the old numbers; these are \
     all events that it has";

/// How often the ledger is read for the end of a request, and the pause between two reads.
const LEDGER_READS_MAX: u32 = 10;
const LEDGER_WAIT: Duration = Duration::from_millis(50);

/// Most keys of unnumbered events that are remembered.
const UNNUMBERED_MAX: usize = 10_000;

/// Prints events.
pub(in crate::cli) fn run_events(arguments: &EventsArguments, environment: &Environment) -> Done {
    let session = arguments.common.session.name();
    let mut read = match read_of(session, arguments.thread.as_deref(), environment)? {
        Ok(read) => read,
        // A filter may match several threads, and threads without messages.
        Err(_) => offline::chosen(session, environment)?,
    };
    let thread = arguments.thread.as_ref().map(|name| thread_or_beginning(&mut read, name)).transpose()?;
    let filter = arguments.filter.get(environment)?;
    let mut wanted = Wanted { types: arguments.types.clone(), thread, ..Wanted::default() };
    if !filter.is_empty() {
        wanted.known = known_facts(&read.session)?;
        wanted.filter = filter;
    }
    let shown = match (arguments.since, arguments.limit) {
        (Some(since), limit) => first(&mut read, since, limit.unwrap_or(u64::MAX), &wanted)?,
        (None, limit) => {
            let usual = if arguments.follow { LAST_BEFORE_FOLLOWING } else { LAST };
            last(&mut read, limit.unwrap_or(usual), &wanted)?
        }
    };
    if arguments.common.as_json && !arguments.follow {
        // Its members are sorted by name.
        return Ok(print_json(&json!(shown.document())));
    }
    shown.say_gap(&select_session::argument_for(&read.session, session, environment));
    let mut printer = Printer::new(arguments, environment);
    printer.print(&shown.events)?;
    if !arguments.follow {
        return Ok(0);
    }
    // With --since, the limit is the total number.
    let mut left = arguments.since.and(arguments.limit).map(|limit| limit.saturating_sub(shown.events.len() as u64));
    let mut following = Following::new(&mut read, shown.cursor);
    while left != Some(0) {
        let Some(event) = following.next(None)? else { continue };
        wanted.learn(&following.read().session, &event.document)?;
        if wanted.has(&event.document) {
            printer.print([&event])?;
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
    filter: Filter,
    known: KnownFacts,
}

impl Wanted {
    fn has_all(&self) -> bool {
        self.types.is_empty() && self.thread.is_none() && self.filter.is_empty()
    }

    /// Reads the facts of the session again after an event that may change them. The ledger stores an answer a little later.
    fn learn(&mut self, session: &Found, event: &EventDocument) -> Result<(), CliError> {
        let ends = event.event_type == "request_resolved";
        if self.filter.is_empty() || !(ends || Method::of(&event.event_type).is_some_and(is_of_thread)) {
            return Ok(());
        }
        let request_id = Payload::of(event).text("request_id").filter(|_| ends).unwrap_or_default();
        for _ in 0..LEDGER_READS_MAX {
            self.known = known_facts(session)?;
            let end = self.known.requests.get(&request_id).map(|request| request.end.status);
            if end != Some(Some(FilterStatus::Pending)) {
                break;
            }
            std::thread::park_timeout(LEDGER_WAIT);
        }
        Ok(())
    }

    fn passes(&self, event: &EventDocument) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        let EventFacts { entry, text } = EventFacts::of(&event.event_type, &mended(event.payload(), ""));
        let at_us = micros_of(&event.timestamp).unwrap_or_default();
        self.known
            .passes(&self.filter, &Thing { entry: &entry, thread_id: event.thread_id.as_deref(), at_us, text: &text })
    }

    /// Gap events always pass.
    fn has(&self, event: &EventDocument) -> bool {
        let is_type = |wanted: &String| match wanted.strip_suffix('*') {
            Some(beginning) => event.event_type.starts_with(beginning),
            None => event.event_type == *wanted,
        };
        let is_thread =
            |wanted: &String| event.thread_id.as_ref().is_some_and(|thread| thread.starts_with(wanted.as_str()));
        event.is_gap()
            || ((self.types.is_empty() || self.types.iter().any(is_type))
                && self.thread.iter().all(is_thread)
                && self.passes(event))
    }
}

/// Whether a notification has facts of a thread.
fn is_of_thread(method: Method) -> bool {
    matches!(method, Method::ThreadStarted | Method::ThreadNameUpdated | Method::TurnStarted)
}

/// Events from the history.
#[derive(Debug, Default)]
struct Shown {
    events: VecDeque<FollowedEvent>,
    /// Everything up to here was examined.
    cursor: u64,
    earliest_seq: Option<u64>,
    latest_seq: Option<u64>,
    epoch: Option<String>,
    gap_reason: Option<GapReason>,
    /// The number after which the search began.
    since: Option<u64>,
}

impl Shown {
    fn learn(&mut self, page: &EventPage<FollowedEvent>) {
        self.earliest_seq = page.earliest_seq;
        self.latest_seq = page.latest_seq;
        self.epoch.clone_from(&page.epoch);
        self.gap_reason = self.gap_reason.or(page.gap_reason);
    }

    fn document(self) -> EventPage<FollowedEvent> {
        EventPage {
            events: self.events.into(),
            earliest_seq: self.earliest_seq,
            latest_seq: self.latest_seq,
            next_seq: self.cursor.saturating_add(1),
            history_gap: self.gap_reason.is_some(),
            gap_reason: self.gap_reason,
            epoch: self.epoch,
        }
    }

    /// Reports missing events that no event reports. Stretches missing from the journal are events themselves. `at` names the
    /// session in a suggested command.
    fn say_gap(&self, at: &str) {
        match (self.gap_reason, self.earliest_seq) {
            (Some(GapReason::Retention), Some(earliest)) => {
                let since = self.since.unwrap_or(0);
                say(&format!("events {} to {} have been deleted (retention)", since + 1, earliest.saturating_sub(1)));
            }
            (Some(GapReason::Retention), None) => say("all events have been deleted (retention)"),
            (Some(GapReason::NewEpoch), _) => say(NEW_EPOCH),
            (Some(GapReason::CursorAhead), _) => {
                let since = self.since.unwrap_or(0);
                say(&format!("event {since} does not belong to this history; these are all of its events"));
            }
            (Some(GapReason::PersistenceError), _) => {
                say(&format!("some recorded messages are not indexed yet; see `codex-shim status{at}`"));
            }
            (Some(GapReason::Newer(reason)), _) => say(&format!("some events are missing ({})", reason.name())),
            (Some(GapReason::JournalGap) | None, _) => {}
        }
    }
}

/// The first wanted events after `since`.
fn first(read: &mut Read, since: u64, limit: u64, wanted: &Wanted) -> Result<Shown, CliError> {
    let mut shown = Shown { cursor: since, since: Some(since), ..Shown::default() };
    loop {
        let page = read.events(Some(shown.cursor), EVENTS_MAX)?;
        shown.learn(&page);
        let is_last = (page.events.len() as u64) < EVENTS_MAX;
        if page.gap_reason.is_some_and(GapReason::is_other_history) {
            shown.cursor = page.next_seq.saturating_sub(1);
        }
        for event in page.events {
            shown.cursor = event.document.seq.unwrap_or(shown.cursor);
            if wanted.has(&event.document) {
                shown.events.push_back(event);
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
    let at_first = if wanted.has_all() { limit.min(EVENTS_MAX) } else { EVENTS_MAX };
    let mut page = read.events(None, at_first)?;
    let mut shown = Shown { cursor: page.latest_seq.unwrap_or(0), ..Shown::default() };
    // Numbers from here on were examined.
    let mut from = u64::MAX;
    loop {
        shown.learn(&page);
        let mut lowest = from;
        for event in page.events.into_iter().rev() {
            let Some(seq) = event.document.seq.filter(|seq| *seq < from) else { continue };
            lowest = lowest.min(seq);
            if wanted.has(&event.document) {
                shown.events.push_front(event);
            }
            if shown.events.len() as u64 == limit {
                return Ok(shown);
            }
        }
        let earliest = page.earliest_seq.unwrap_or(u64::MAX);
        // If no number was below, the stretch was never assigned.
        from = if lowest < from { lowest } else { from.saturating_sub(EVENTS_MAX) };
        if from <= earliest {
            return Ok(shown);
        }
        page = read.events(Some(from.saturating_sub(EVENTS_MAX + 1).max(earliest.saturating_sub(1))), EVENTS_MAX)?;
    }
}

/// Prints events as they come: one document or one row each.
pub(in crate::cli) struct EventPrinter {
    as_json: bool,
    to: Screen,
    clock: Clock,
    table: Table,
}

impl EventPrinter {
    pub(in crate::cli) fn new(
        as_json: bool,
        times: &Times,
        table: fn(&Clock, Screen) -> Table,
        environment: &Environment,
    ) -> EventPrinter {
        let (to, clock) = (Screen::of_stdout(environment), Clock::of(times));
        EventPrinter { as_json, to, table: table(&clock, to), clock }
    }

    pub(in crate::cli) fn print<T>(
        &mut self,
        events: impl Iterator<Item = T>,
        json: impl Fn(&T) -> String,
        cells: impl Fn(&T, &Clock, Screen) -> Option<Vec<Cell>>,
    ) -> Result<(), CliError> {
        if self.as_json {
            return screen::put(&events.map(|event| format!("{}\n", json(&event))).collect::<String>());
        }
        self.clock.go_on();
        let rows = events.filter_map(|event| cells(&event, &self.clock, self.to)).collect();
        screen::put(&self.table.add(rows))
    }
}

/// Prints each event once.
struct Printer {
    printer: EventPrinter,
    /// Keys of events that were printed without a number.
    unnumbered: VecDeque<String>,
}

impl Printer {
    fn new(arguments: &EventsArguments, environment: &Environment) -> Printer {
        let printer = EventPrinter::new(arguments.common.as_json, &arguments.times, table, environment);
        Printer { printer, unnumbered: VecDeque::new() }
    }

    fn print<'a>(&mut self, events: impl IntoIterator<Item = &'a FollowedEvent>) -> Result<(), CliError> {
        let as_json = self.printer.as_json;
        let new: Vec<_> = events.into_iter().filter(|event| as_json || !self.is_known(&event.document)).collect();
        let json = |event: &&FollowedEvent| event.text.to_string();
        self.printer.print(new.into_iter(), json, |event, clock, to| Some(cells(&event.document, clock, to)))
    }

    /// Whether an event was already printed without its number.
    fn is_known(&mut self, event: &EventDocument) -> bool {
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

/// Longest shown part of a payload, in characters.
const WORDS_CHARS_MAX: usize = 100;

/// Shown characters of a thread's id: the time part of a UUIDv7.
const THREAD_CHARS: usize = 13;

/// Members that are shown elsewhere on the line, or tell a person nothing.
const ELSEWHERE: [&str; 6] = ["threadId", "turnId", "itemId", OTHER_THREAD_ID, "thread_id", "turn_id"];

/// An empty table of events.
pub(super) fn table(clock: &Clock, to: Screen) -> Table {
    table_of(Vec::new(), clock, to)
}

/// An empty table of the events of several hosts, for rows that have their host and session behind the time.
#[cfg(feature = "fleet")]
pub(in crate::cli) fn table_of_hosts(clock: &Clock, to: Screen) -> Table {
    table_of(vec![Column::whole("HOST"), Column::text("SESSION").spare()], clock, to)
}

fn table_of(whose: Vec<Column>, clock: &Clock, to: Screen) -> Table {
    let number = Column::number("NUMBER");
    let mut columns = vec![
        Column::whole(clock.head("TIME")).spare(),
        if whose.is_empty() { number } else { number.spare() },
        // A cut type cannot be given to --type.
        Column::whole("TYPE"),
        Column::whole("THREAD").spare(),
        Column::text("DETAILS"),
    ];
    columns.splice(1..1, whose);
    Table::new(columns, to)
}

/// The cells of an event: time, number, type, thread, important part.
pub(in crate::cli) fn cells(event: &EventDocument, clock: &Clock, to: Screen) -> Vec<Cell> {
    let thread: String = event.thread_id.as_deref().unwrap_or("-").chars().take(THREAD_CHARS).collect();
    let payload = Payload::of(event);
    vec![
        (Tone::Faint, clock.cell(&event.timestamp, to)),
        (Tone::Faint, event.seq.map_or_else(|| "-".to_owned(), |seq| seq.to_string())),
        (Tone::Plain, event.event_type.clone()),
        (Tone::Faint, thread),
        (tone(event, &payload), words(event, &payload)),
    ]
}

fn tone(event: &EventDocument, payload: &Payload) -> Tone {
    match Method::of(&event.event_type) {
        Some(Method::Error) => Tone::Bad,
        _ if event.is_gap() => Tone::Bad,
        Some(Method::TurnCompleted) if payload.text("turn.status").as_deref() == Some("failed") => Tone::Bad,
        _ if is_request(&event.event_type) => Tone::Warning,
        _ => Tone::Strong,
    }
}

/// The important part of the payload.
fn words(event: &EventDocument, payload: &Payload) -> String {
    let quoted = |text: String| format!("“{text}”");
    let words = match (Method::of(&event.event_type), &*event.event_type) {
        _ if event.is_gap() => Some(gap(&event.payload())),
        (Some(Method::ItemStarted | Method::ItemCompleted), _) => Some(item(payload)),
        (Some(Method::TurnStart | Method::TurnSteer), _) => payload.text("input.0.text").map(quoted),
        (Some(Method::TurnStarted), _) => payload.text("turn.id").map(|id| format!("turn {id}")),
        (Some(Method::TurnCompleted), _) => payload.text("turn.status").map(|status| {
            let error = payload.text("turn.error.message");
            error.map_or(status.clone(), |error| format!("{status}: {error}"))
        }),
        (Some(Method::Error), _) => payload.text("error.message").or_else(|| payload.text("message")),
        (Some(Method::ThreadStatusChanged), _) => payload.text("status.type").map(|status| {
            let flags = payload.at("status.activeFlags").and_then(Value::as_array);
            let flags: Vec<&str> = flags.into_iter().flatten().filter_map(Value::as_str).collect();
            if flags.is_empty() { status } else { format!("{status}: {}", flags.join(", ")) }
        }),
        (_, "request_resolved") => Some(resolved(payload)),
        (_, asked) if is_request(asked) => asked_for(payload),
        _ if event.delta_count.is_some() => payload.text("delta").map(quoted),
        _ => None,
    };
    let words = words.filter(|words| !words.is_empty());
    let words = short(&words.unwrap_or_else(|| members(payload, 3)));
    match event.delta_count {
        Some(count) if count > 1 => format!("{words} ({count} pieces)"),
        Some(_) | None => words,
    }
}

fn is_request(event_type: &str) -> bool {
    event_type.ends_with("/requestApproval") || RequestKind::of(event_type).is_some_and(RequestKind::is_for_human)
}

/// A payload, or the beginning of one that was cut.
struct Payload {
    members: Value,
    /// That beginning as it is.
    start: Option<String>,
}

impl Payload {
    fn of(event: &EventDocument) -> Payload {
        let payload: Value = event.payload();
        let start = beginning(&payload).map(str::to_owned);
        Payload { members: mended(payload, ""), start }
    }

    fn at(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.members, |value, name| match value {
            Value::Array(all) => all.get(name.parse::<usize>().ok()?),
            Value::Object(members) => members.get(name),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }

    /// The text at a path.
    fn text(&self, path: &str) -> Option<String> {
        match self.at(path) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
        }
    }
}

fn gap(GapPayload { after_seq, lines, reason, up_to_seq }: &GapPayload) -> String {
    let reason = reason.as_deref().unwrap_or("unknown");
    match reason {
        "new_epoch" => return "the numbering has begun anew: all events that are kept follow".to_owned(),
        "cursor_ahead" => {
            let after = after_seq.unwrap_or(0);
            return format!("event {after} does not belong to this history; all of its events follow");
        }
        _ => {}
    }
    match (after_seq, up_to_seq, lines) {
        (Some(after), Some(up_to), _) if reason == "retention" => {
            format!("events {} to {up_to} have been deleted", after + 1)
        }
        (Some(after), Some(up_to), _) => format!("events {} to {up_to} come late ({reason})", after + 1),
        (_, _, Some(1)) => format!("1 line is missing here ({reason})"),
        (_, _, Some(lines)) if *lines > 0 => format!("{lines} lines are missing here ({reason})"),
        (_, _, Some(_) | None) => format!("lines are missing here ({reason})"),
    }
}

fn item(payload: &Payload) -> String {
    let text = |name: &str| payload.text(&format!("item.{name}"));
    let kind = text("type").unwrap_or_default();
    let what = match &*kind {
        "commandExecution" => text("command").map(|command| without_shell(&command)),
        "fileChange" => text("changes.0.path").or_else(|| text("path")),
        "userMessage" => text("content.0.text"),
        "agentMessage" if hides(text("moderation.display.mode").as_deref()) => Some(HIDDEN.to_owned()),
        _ => text("tool").or_else(|| text("text")).or_else(|| text("query")),
    };
    let exit = text("exitCode").filter(|code| code != "0").map(|code| format!(" (exit {code})")).unwrap_or_default();
    // The end of the line must survive the cut.
    let what = format!("{}{exit}", what.map(|what| short(&what)).unwrap_or_default());
    match (action_kind(&kind), text("status").as_deref()) {
        (Some(action), Some("inProgress")) => action_in_words(action, "running", &what),
        (Some(action), Some(status)) => action_in_words(action, status, &what),
        (_, Some("completed" | "inProgress") | None) => format!("{kind} {what}").trim_end().to_owned(),
        (None, Some(status)) => format!("{} [{status}]", format!("{kind} {what}").trim_end()),
    }
}

/// The name of an item type in [`action_in_words`]; `None` for items that are not actions.
fn action_kind(item_type: &str) -> Option<&'static str> {
    match item_type {
        "commandExecution" => Some("command"),
        "fileChange" => Some("file_change"),
        "mcpToolCall" | "dynamicToolCall" | "collabAgentToolCall" => Some("tool"),
        _ => None,
    }
}

fn resolved(payload: &Payload) -> String {
    let text = |name: &str| payload.text(name);
    let status = text("error_code").or_else(|| text("status")).unwrap_or_default();
    let decision = text("decision").map(|decision| format!(": {decision}")).unwrap_or_default();
    let source = text("source").map(|source| format!(" by {source}")).unwrap_or_default();
    format!("{} {status}{decision}{source}", text("request_id").unwrap_or_default())
}

fn asked_for(payload: &Payload) -> Option<String> {
    let what = payload.text("command").map(|command| without_shell(&command));
    let what = what.or_else(|| payload.text("questions.0.question")).or_else(|| payload.text("message"));
    let reason = payload.text("reason");
    match (what, reason) {
        (Some(what), Some(reason)) => Some(format!("{what} ({reason})")),
        (what, reason) => what.or(reason),
    }
}

/// The first scalar members of an object.
fn members(payload: &Payload, most: usize) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    let told = |(name, value): (&String, &Value)| match (ELSEWHERE.contains(&&**name), plain(value)) {
        (false, Some(text)) if !text.is_empty() => Some(format!("{name}={text}")),
        (false, _) | (true, _) => None,
    };
    match (&payload.start, &payload.members) {
        (Some(start), _) => start.clone(),
        (None, Value::Object(members)) => members.iter().filter_map(told).take(most).collect::<Vec<_>>().join(" "),
        (None, value) => plain(value).unwrap_or_default(),
    }
}

/// Text on one line, cut to a limit.
pub(super) fn short(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(WORDS_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(json: Value) -> EventDocument {
        serde_json::from_value(json).expect("an event")
    }

    #[test]
    fn filters_select_events() {
        let wanted = |types: &[&str], thread: Option<&str>| Wanted {
            types: types.iter().map(|one| (*one).to_owned()).collect(),
            thread: thread.map(str::to_owned),
            ..Wanted::default()
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
        let printer = EventPrinter { as_json: false, to: Screen::None, clock, table };
        let mut printer = Printer { printer, unnumbered: VecDeque::new() };
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

#[cfg(test)]
mod words_tests {
    use serde_json::json;

    use super::*;

    fn event(event_type: &str, payload: Value, delta_count: Option<u64>) -> EventDocument {
        let event = json!({
            "seq": 7, "timestamp": "2026-01-02T03:04:05.000Z", "event_type": event_type,
            "thread_id": "0192abcd-1234-7000", "payload_preview": payload, "delta_count": delta_count,
        });
        serde_json::from_value(event).expect("an event")
    }

    fn words_of(event: &EventDocument) -> String {
        words(event, &Payload::of(event))
    }

    /// The words of a message that codex hides.
    const HIDES: &str = "agentMessage (codex hides this message)";

    fn check(event_type: &str, payload: Value, expect: &str) {
        assert_eq!(words_of(&event(event_type, payload, None)), expect, "{event_type}");
    }

    #[test]
    fn lines_are_aligned_and_escaped() {
        let clock = Clock::stopped("2026-01-02T03:04:07Z");
        let told = |event: &EventDocument| table(&clock, Screen::None).add(vec![cells(event, &clock, Screen::None)]);
        let line = event("turn/start", json!({"input": [{"type": "text", "text": "a\u{1b}[1m\nb"}]}), None);
        assert_eq!(told(&line), "2026-01-02T03:04:05Z  7  turn/start  0192abcd-1234  “a [1m b”\n");
        let bare = EventDocument { seq: None, thread_id: None, payload_preview: Box::default(), ..line };
        assert_eq!(told(&bare), "2026-01-02T03:04:05Z  -  turn/start  -\n");
    }

    #[test]
    fn important_part_of_payload_is_shown() {
        let command = json!({"item": {"type": "commandExecution", "command": "/bin/bash -lc 'cargo test'", "exitCode": 101, "status": "failed"}});
        check("item/completed", command, "ran cargo test (exit 101)");
        let command =
            |status: &str| json!({"item": {"type": "commandExecution", "command": "rm -rf build", "status": status}});
        check("item/completed", command("declined"), "declined: rm -rf build");
        check("item/started", command("inProgress"), "runs rm -rf build");
        let tool = json!({"item": {"type": "mcpToolCall", "tool": "lookup", "status": "failed"}});
        check("item/completed", tool, "failed: call lookup");
        check("item/completed", json!({"item": {"type": "agentMessage", "text": "hi\nyou"}}), "agentMessage hi you");
        for (mode, expect) in [("show", "agentMessage hi"), ("hide", HIDES), ("block", HIDES)] {
            let moderation = json!({"moderated": true, "display": {"mode": mode}});
            let item = json!({"type": "agentMessage", "moderation": moderation, "id": "m", "text": "hi"});
            check("item/completed", json!({ "item": item }), expect);
        }
        check("item/started", json!({"item": {"type": "userMessage", "content": [{"text": "go"}]}}), "userMessage go");
        check("turn/completed", json!({"turn": {"status": "failed", "error": {"message": "no"}}}), "failed: no");
        let asked = json!({"command": "make", "reason": "to see"});
        check("item/commandExecution/requestApproval", asked, "make (to see)");
        let resolved = json!({"request_id": "g-0", "status": "resolved", "source": "cli", "decision": "accept"});
        check("request_resolved", resolved, "g-0 resolved: accept by cli");
        check("event_gap", json!({"lines": 2, "reason": "disk full"}), "2 lines are missing here (disk full)");
        let gap = json!({"reason": "retention", "after_seq": 0, "up_to_seq": 9});
        check("event_gap", gap, "events 1 to 9 have been deleted");
        check("new/thing", json!({"threadId": "t", "a": 1, "b": {}, "c": "x"}), "a=1 c=x");
        let delta = event("item/agentMessage/delta", json!({"delta": "abc"}), Some(3));
        assert_eq!(words_of(&delta), "“abc” (3 pieces)");
    }

    #[test]
    fn cut_payload_still_gives_members() {
        let cut = |preview: &str| json!({"truncated": true, "preview": preview, "original_chars": 9_999});
        let start = r#"{"item":{"type":"commandExecution","command":"echo \"a\"","output":"xx\u00"#;
        check("item/completed", cut(start), "commandExecution echo \"a\"");
        let start =
            r#"{"item":{"type":"agentMessage","moderation":{"moderated":true,"display":{"mode":"block"}},"text":"one"#;
        check("item/completed", cut(start), HIDES);
        let start = r#"{"item":{"type":"agentMessage","text":"one \"two\" \u00"#;
        check("item/completed", cut(start), "agentMessage one \"two\"");
        check("other", cut("{\"a\":[1"), "{\"a\":[1");
    }
}
