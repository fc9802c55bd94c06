//! Turn rows: one for the start of a turn and one for its end, which is its own, that of the child, or the start of
//! another turn in its thread.
//!
//! A turn is identified by thread and turn, because servers of early 2026 number turns per thread. A thread runs one
//! turn at a time.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::bounded::{Bounded, Weigh};
use super::event::{BEYOND_CUT_BYTES, EXCERPT_CHARS_MAX, masked_start, preview};
use super::failure::{OUTCOME_UNKNOWN, STREAM_CLOSED};
use super::masked::{masked_so_far, masked_text};
use super::record_event::{MethodMessage, Params, Place, RecordEvent, Seen};
use super::time::latency_ms;
use crate::journal::Position;
use crate::protocol::Method;
use crate::wire::{Members, text};

/// Longest start of an answer stored with a turn, in characters.
const OUTPUT_CHARS_MAX: usize = 400;

/// Bytes of an answer held to compute that.
const OUTPUT_BYTES_MAX: usize = 4 * OUTPUT_CHARS_MAX + BEYOND_CUT_BYTES;

/// Notifications about a turn.
const TELLING: [Method; 7] = [
    Method::TurnStarted,
    Method::TurnCompleted,
    Method::ItemStarted,
    Method::ItemCompleted,
    Method::AgentMessageDelta,
    Method::TokenUsageUpdated,
    Method::Error,
];

/// An event of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEvent {
    Started,
    Completed,
    Failed,
    Interrupted,
}

impl TurnEvent {
    /// The name in a row. Source: the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TurnEvent::Started => "started",
            TurnEvent::Completed => "completed",
            TurnEvent::Failed => "failed",
            TurnEvent::Interrupted => "interrupted",
        }
    }
}

/// A row of `codex_turn_events` without its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// Microseconds since the Unix epoch.
    pub at_us: u64,
    pub thread_id: Option<String>,
    pub turn_id: Option<String>,
    pub event_type: TurnEvent,
    /// The protocol's word for the event.
    pub status: String,
    /// Milliseconds from its start to its end.
    pub latency_ms: Option<u64>,
    /// Characters of streamed answers.
    pub delta_chars: u64,
    /// The start of its last answer, masked.
    pub output_preview: Option<String>,
    /// Input tokens, as far as reported.
    pub input_tokens: Option<u64>,
    /// Output tokens, as far as reported.
    pub output_tokens: Option<u64>,
    /// The kind of failure in one word.
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    /// An excerpt of the recorded payload, as masked JSON; `None` if the payload was not recorded.
    pub raw_payload_json: Option<String>,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnEnd {
    pub(super) event: TurnEvent,
    pub(super) status: String,
    pub(super) error_code: Option<String>,
    pub(super) error_message: Option<String>,
}

impl TurnEnd {
    /// An end that the server did not report.
    fn unreported(error_code: &str) -> TurnEnd {
        TurnEnd {
            event: TurnEvent::Failed,
            status: TurnEvent::Failed.name().to_owned(),
            error_code: Some(error_code.to_owned()),
            error_message: None,
        }
    }

    /// Parses `turn/completed`.
    pub(super) fn of(params: Params<'_>) -> TurnEnd {
        let turn = params.written().and_then(Members::of).and_then(|params| Members::of(params.get("turn")?));
        let status = turn.as_ref().and_then(|turn| turn.text("status"));
        let event = match status.as_deref() {
            Some("failed") => TurnEvent::Failed,
            Some("interrupted") => TurnEvent::Interrupted,
            Some(_) | None => TurnEvent::Completed,
        };
        let error = turn.and_then(|turn| turn.get("error").map(TurnError::of)).unwrap_or_default();
        TurnEnd {
            event,
            status: status.unwrap_or_else(|| event.name().to_owned()),
            error_code: error.code,
            error_message: error.message,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TurnError {
    code: Option<String>,
    message: Option<String>,
}

impl TurnError {
    /// Parses `{message, codexErrorInfo}`; the latter is a word, or an object with that word as its only member.
    fn of(error: &RawValue) -> TurnError {
        let Some(error) = Members::of(error) else { return TurnError::default() };
        let code = error
            .get("codexErrorInfo")
            .and_then(|info| text(info).or_else(|| Members::of(info)?.iter().next().map(|(name, _)| name.to_owned())));
        let message = error.text("message").map(|message| masked_start(&message, EXCERPT_CHARS_MAX));
        TurnError { code, message }
    }
}

/// Running turns by thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turns(Bounded<Option<String>, Thread>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Thread {
    turn: Option<Turn>,
    /// The last turn that ended: its late records do not start a turn.
    ended: Option<String>,
    /// The thread's total token usage as last reported.
    total: Option<Tokens>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Turn {
    turn_id: Option<String>,
    /// `None` if the start was not recorded.
    started_us: Option<u64>,
    delta_chars: u64,
    /// The start of the last answer, and its item.
    #[serde(serialize_with = "without_secrets")]
    output: String,
    output_item: Option<String>,
    /// The start of the answer that is being streamed.
    #[serde(default)]
    streamed: Option<Streamed>,
    spent: Option<Tokens>,
    error: TurnError,
}

/// The start of an answer that is being streamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Streamed {
    /// The position of its first record, from which [`super::recall`] reads it again.
    from: Position,
    /// Stored in masked form, in case the journal is no longer readable.
    #[serde(serialize_with = "so_far_without_secrets")]
    text: String,
}

fn without_secrets<S: serde::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&masked_text(text))
}

fn so_far_without_secrets<S: serde::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&masked_so_far(text))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tokens {
    input: u64,
    output: u64,
}

impl Turns {
    /// Processes the record at `at`, and appends its turn rows.
    pub(super) fn take(&mut self, at: &Position, seen: &Seen<'_>, rows: &mut Vec<TurnRow>) {
        match &seen.event {
            RecordEvent::Notification(message) => {
                if message.known == Some(Method::TurnStarted) {
                    rows.extend(self.replaced(seen.at_us, &message.place));
                }
                self.message(at, seen.at_us, message, rows);
            }
            RecordEvent::Generation(_)
            | RecordEvent::ServerRequest { .. }
            | RecordEvent::ClientRequest { .. }
            | RecordEvent::Response { .. }
            | RecordEvent::ShimEvent { .. }
            | RecordEvent::Gap { .. }
            | RecordEvent::Other => {}
        }
    }

    /// The running turn that the turn starting at `place` replaces.
    pub(super) fn replaced_by(&self, place: &Place<'_>) -> Option<&str> {
        let turn_id = place.turn_id.as_deref()?;
        let runs = self.0.get(&place.thread_id.as_deref().map(str::to_owned))?.turn.as_ref()?;
        runs.turn_id.as_deref().filter(|runs| *runs != turn_id)
    }

    /// The position of the first record whose text is not stored.
    pub(super) fn streamed_since(&self) -> Option<&Position> {
        let turns = self.0.iter().filter_map(|(_, thread)| thread.turn.as_ref());
        turns.filter_map(|turn| turn.streamed.as_ref()).map(|streamed| &streamed.from).min()
    }

    /// Takes the text of a record that was processed before the turns were stored.
    pub(super) fn recall(&mut self, at: &Position, message: &MethodMessage<'_>, met: &mut Vec<Position>) {
        if message.known != Some(Method::AgentMessageDelta) {
            return;
        }
        let thread_id = message.place.thread_id.as_deref().map(str::to_owned);
        self.0.change(&thread_id, |thread| {
            let turn = message.place.turn_id.as_deref().and_then(|turn_id| thread.running(turn_id));
            let turn = turn.filter(|turn| turn.output_item.as_deref() == message.place.item_id.as_deref());
            let Some(streamed) = turn.and_then(|turn| turn.streamed.as_mut()) else { return };
            if streamed.from == *at {
                streamed.text.clear();
                met.push(at.clone());
            }
            if met.contains(&streamed.from) {
                append(&mut streamed.text, message.place.delta.as_deref().unwrap_or_default());
            }
        });
    }

    /// The child has ended.
    pub(super) fn run_ended(&mut self, at_us: u64, rows: &mut Vec<TurnRow>) {
        for (thread_id, thread) in self.0.take_all() {
            let Some(turn) = thread.turn else { continue };
            rows.push(TurnRow { thread_id, ..turn.ends(at_us, TurnEnd::unreported(STREAM_CLOSED)) });
        }
    }

    /// Ends the running turn of a thread when another one starts: its own end was not reported, so the outcome is
    /// unknown. If an end arrives later, it gets another row.
    fn replaced(&mut self, at_us: u64, place: &Place<'_>) -> Option<TurnRow> {
        let (thread_id, turn_id) = (place.thread_id.as_deref().map(str::to_owned), place.turn_id.as_deref()?);
        let is_other = |turn: &mut Turn| turn.turn_id.as_deref() != Some(turn_id);
        let (turn, _) = self.0.change(&thread_id, |thread| thread.turn.take_if(is_other))?;
        Some(TurnRow { thread_id, ..turn?.ends(at_us, TurnEnd::unreported(OUTCOME_UNKNOWN)) })
    }

    fn message(&mut self, at: &Position, at_us: u64, message: &MethodMessage<'_>, rows: &mut Vec<TurnRow>) {
        if message.known.is_none_or(|method| !TELLING.contains(&method)) {
            return;
        }
        let thread_id = message.place.thread_id.as_deref().map(str::to_owned);
        let mut gone = match self.0.get(&thread_id) {
            Some(_) => Vec::new(),
            None => self.0.insert(thread_id.clone(), Thread::default()),
        };
        if let Some((row, more)) = self.0.change(&thread_id, |thread| thread.message(at, at_us, message)) {
            rows.extend(row.map(|row| TurnRow { thread_id, ..row }));
            gone.extend(more);
        }
        // Too many threads are remembered: the running turn of an evicted thread gets a row.
        rows.extend(gone.into_iter().filter_map(|(thread_id, thread)| {
            Some(TurnRow { thread_id, ..thread.turn?.ends(at_us, TurnEnd::unreported(OUTCOME_UNKNOWN)) })
        }));
    }
}

impl Weigh for Thread {
    fn weight(&self) -> usize {
        let turn = self.turn.as_ref().map_or(0, |turn| {
            let Turn { turn_id, started_us: _, delta_chars: _, output, output_item, streamed, spent: _, error } = turn;
            output.weight()
                + streamed.as_ref().map_or(0, |streamed| size_of::<Streamed>() + streamed.text.weight())
                + [turn_id, output_item, &error.code, &error.message].map(Weigh::weight).iter().sum::<usize>()
        });
        size_of::<Thread>() + turn + self.ended.weight()
    }
}

impl Thread {
    fn message(&mut self, at: &Position, at_us: u64, message: &MethodMessage<'_>) -> Option<TurnRow> {
        let turn_id = message.place.turn_id.as_deref();
        let with_payload =
            |row: TurnRow| TurnRow { raw_payload_json: Some(preview(message.params, EXCERPT_CHARS_MAX)), ..row };
        match message.known {
            Some(Method::TurnStarted) => return self.starts(turn_id?, at_us).map(with_payload),
            Some(Method::TurnCompleted) => {
                return self.ends(turn_id?, at_us, TurnEnd::of(message.params)).map(with_payload);
            }
            Some(Method::ItemStarted) => drop(self.continued(turn_id?)),
            Some(Method::AgentMessageDelta) => {
                let turn = self.continued(turn_id?)?;
                turn.add_delta(
                    at,
                    message.place.item_id.as_deref(),
                    message.place.delta.as_deref().unwrap_or_default(),
                );
            }
            // It may arrive long after its turn.
            Some(Method::ItemCompleted) => self.running(turn_id?)?.item_completed(message),
            Some(Method::TokenUsageUpdated) => self.add_usage(turn_id, message.params),
            Some(Method::Error) => {
                let params = message.params.written().and_then(Members::of)?;
                let is_final = params.get("willRetry").is_none_or(|retries| retries.get() != "true");
                let turn = self.running(turn_id?).filter(|_| is_final)?;
                turn.error = params.get("error").map(TurnError::of).unwrap_or_default();
            }
            _ => {}
        }
        None
    }

    /// The running turn with this id.
    fn running(&mut self, turn_id: &str) -> Option<&mut Turn> {
        self.turn.as_mut().filter(|turn| turn.turn_id.as_deref() == Some(turn_id))
    }

    /// A record of a turn, possibly the first one seen.
    fn continued(&mut self, turn_id: &str) -> Option<&mut Turn> {
        if self.turn.is_none() && self.ended.as_deref() != Some(turn_id) {
            self.turn = Some(Turn { turn_id: Some(turn_id.to_owned()), ..Turn::default() });
        }
        self.running(turn_id)
    }

    fn starts(&mut self, turn_id: &str, at_us: u64) -> Option<TurnRow> {
        self.ended = None;
        let turn = self.turn.take().unwrap_or_else(|| Turn { turn_id: Some(turn_id.to_owned()), ..Turn::default() });
        let is_told = turn.started_us.is_some();
        let started_us = turn.started_us.or(Some(at_us));
        self.turn = Some(Turn { started_us, ..turn });
        (!is_told)
            .then(|| Turn::default().row(at_us, TurnEvent::Started, "inProgress"))
            .map(|row| TurnRow { turn_id: Some(turn_id.to_owned()), ..row })
    }

    fn ends(&mut self, turn_id: &str, at_us: u64, end: TurnEnd) -> Option<TurnRow> {
        if self.ended.as_deref() == Some(turn_id) {
            return None;
        }
        let turn = match self.running(turn_id) {
            Some(turn) => {
                let turn = std::mem::take(turn);
                self.turn = None;
                turn
            }
            None => Turn { turn_id: Some(turn_id.to_owned()), ..Turn::default() },
        };
        self.ended = Some(turn_id.to_owned());
        Some(turn.ends(at_us, end))
    }

    /// `{tokenUsage:{total,last}}`: `last` is one call of the model. The server repeats it without a call, for example
    /// with new limits; `total` reveals that.
    fn add_usage(&mut self, turn_id: Option<&str>, params: Params<'_>) {
        let usage = params.written().and_then(Members::of).and_then(|params| Members::of(params.get("tokenUsage")?));
        let Some(usage) = usage else { return };
        let total = usage.get("total").and_then(Tokens::of);
        let is_again = total.is_some() && total == self.total;
        self.total = total.or(self.total);
        if let Some(last) = usage.get("last").and_then(Tokens::of).filter(|_| !is_again)
            && let Some(turn) = turn_id.and_then(|turn_id| self.running(turn_id))
        {
            let Tokens { input, output } = turn.spent.unwrap_or_default();
            turn.spent =
                Some(Tokens { input: input.saturating_add(last.input), output: output.saturating_add(last.output) });
        }
    }
}

impl Turn {
    /// A piece of an answer.
    fn add_delta(&mut self, at: &Position, item_id: Option<&str>, delta: &str) {
        self.delta_chars += delta.chars().count() as u64;
        if self.output_item.as_deref() != item_id || (self.output.is_empty() && self.streamed.is_none()) {
            self.output.clear();
            self.output_item = item_id.map(str::to_owned);
            self.streamed = Some(Streamed { from: at.clone(), text: String::new() });
        }
        let text = self.streamed.as_mut().map_or(&mut self.output, |streamed| &mut streamed.text);
        append(text, delta);
        // No more text is stored, so it can be masked now.
        if let Some(whole) = self.streamed.take_if(|streamed| streamed.text.len() == OUTPUT_BYTES_MAX) {
            self.output = whole.text;
        }
    }

    /// An item is complete: its text is the final answer.
    fn item_completed(&mut self, message: &MethodMessage<'_>) {
        let item = message.params.written().and_then(Members::of).and_then(|params| Members::of(params.get("item")?));
        let Some(item) = item.filter(|item| item.text("type").as_deref() == Some("agentMessage")) else { return };
        if let Some(said) = item.text("text").filter(|said| !said.is_empty()) {
            self.output = said[..said.floor_char_boundary(OUTPUT_BYTES_MAX)].to_owned();
            self.streamed = None;
            self.output_item = message.place.item_id.as_deref().map(str::to_owned);
        }
    }

    fn ends(self, at_us: u64, end: TurnEnd) -> TurnRow {
        let TurnEnd { event, status, error_code, error_message } = end;
        let row = self.row(at_us, event, &status);
        // The last error is reported only for a turn that failed.
        let error = if event == TurnEvent::Failed { self.error } else { TurnError::default() };
        TurnRow {
            latency_ms: self.started_us.map(|started_us| latency_ms(started_us, at_us)),
            error_code: error_code.or(error.code),
            error_message: error_message.or(error.message),
            ..row
        }
    }

    fn row(&self, at_us: u64, event_type: TurnEvent, status: &str) -> TurnRow {
        let output = self.streamed.as_ref().map_or(&self.output, |streamed| &streamed.text);
        TurnRow {
            at_us,
            thread_id: None,
            turn_id: self.turn_id.clone(),
            event_type,
            status: status.to_owned(),
            latency_ms: None,
            delta_chars: self.delta_chars,
            output_preview: (!output.is_empty()).then(|| masked_start(output, OUTPUT_CHARS_MAX)),
            input_tokens: self.spent.map(|spent| spent.input),
            output_tokens: self.spent.map(|spent| spent.output),
            error_code: None,
            error_message: None,
            raw_payload_json: None,
        }
    }
}

/// Appends to the start of an answer, up to the limit.
fn append(output: &mut String, delta: &str) {
    let room = OUTPUT_BYTES_MAX.saturating_sub(output.len());
    output.push_str(&delta[..delta.floor_char_boundary(room)]);
}

impl Tokens {
    fn of(usage: &RawValue) -> Option<Tokens> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Usage {
            input_tokens: u64,
            output_tokens: u64,
        }
        let Usage { input_tokens, output_tokens } = serde_json::from_str(usage.get()).ok()?;
        Some(Tokens { input: input_tokens, output: output_tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::playbook::play;

    /// Rows as `MS EVENT THREAD/TURN STATUS LATENCY CHARS PREVIEW TOKENS`, and the error.
    fn check(actual: &str, expect: &[&str]) {
        let (_, rows) = play(actual);
        let part = |part: &Option<String>| part.clone().unwrap_or("~".to_owned());
        let say = |row: &TurnRow| {
            let latency = row.latency_ms.map_or("~".to_owned(), |ms| ms.to_string());
            let tokens = row.input_tokens.zip(row.output_tokens).map_or("~".to_owned(), |(i, o)| format!("{i}+{o}"));
            let (at_ms, event, status) = (row.at_us / 1_000, row.event_type.name(), &row.status);
            let (thread_id, turn_id) = (part(&row.thread_id), part(&row.turn_id));
            let (chars, preview) = (row.delta_chars, part(&row.output_preview));
            let mut said =
                format!("{at_ms} {event} {thread_id}/{turn_id} {status} {latency} {chars} {preview} {tokens}");
            [&row.error_code, &row.error_message].into_iter().flatten().for_each(|part| said += &format!(" {part}"));
            said
        };
        assert_eq!(rows.turns.iter().map(say).collect::<Vec<_>>(), expect, "{actual}");
    }

    const STARTED: &str = "5 < turn/started t/u {\"status\":\"inProgress\"}\n";
    const BEGAN: &str = "5 started t/u inProgress ~ 0 ~ ~";
    const COMPLETED: &str = "9 < turn/completed t/u {\"status\":\"completed\",\"error\":null}\n";

    fn check_end(actual: &str, expect: &str) {
        check(&format!("{STARTED}{actual}"), &[BEGAN, expect]);
    }

    #[test]
    fn ends() {
        check_end(COMPLETED, "9 completed t/u completed 4 0 ~ ~");
        check_end("9 < turn/completed t/u {\"status\":\"interrupted\"}", "9 interrupted t/u interrupted 4 0 ~ ~");
        check_end("9 < turn/completed t/u {\"status\":\"weird\"}", "9 completed t/u weird 4 0 ~ ~");
        check_end("9 < turn/completed t/u", "9 completed t/u completed 4 0 ~ ~");
        let failed = |error: &str| format!("9 < turn/completed t/u {{\"status\":\"failed\",\"error\":{error}}}");
        check_end(
            &failed(r#"{"message":"Bearer abcdefghij","codexErrorInfo":"usageLimitExceeded"}"#),
            "9 failed t/u failed 4 0 ~ ~ usageLimitExceeded Bearer [redacted]",
        );
        check_end(
            &failed(r#"{"message":"no","codexErrorInfo":{"httpConnectionFailed":{"httpStatusCode":500}}}"#),
            "9 failed t/u failed 4 0 ~ ~ httpConnectionFailed no",
        );
        check_end(&failed("null"), "9 failed t/u failed 4 0 ~ ~");
        let gone = "9 failed t/u failed 4 0 ~ ~ app_server_stream_closed";
        check_end("9 ! generation_ended", gone);
        check_end("9 generation 00000000000a\n10 ! generation_ended", gone);
    }

    #[test]
    fn an_end_comes_once() {
        check_end(&format!("{COMPLETED}{COMPLETED}"), "9 completed t/u completed 4 0 ~ ~");
        check_end(&format!("{COMPLETED}10 ! generation_ended"), "9 completed t/u completed 4 0 ~ ~");
        check(&format!("{STARTED}{STARTED}"), &[BEGAN]);
        // A late record of it starts no turn.
        let late = "10 < item/agentMessage/delta t/u/m {\"delta\":\"a\"}
                    10 < item/completed t/a/m {\"type\":\"agentMessage\",\"text\":\"a\"}
                    11 ! generation_ended";
        check_end(&format!("{COMPLETED}{late}"), "9 completed t/u completed 4 0 ~ ~");
    }

    #[test]
    fn turns_without_recorded_start_get_rows() {
        check(COMPLETED, &["9 completed t/u completed ~ 0 ~ ~"]);
        check(
            &format!("6 < item/agentMessage/delta t/u/m {{\"delta\":\"Hi\"}}\n{COMPLETED}"),
            &["9 completed t/u completed ~ 2 Hi ~"],
        );
        check(
            "6 < item/started t/u/m {\"type\":\"reasoning\"}\n9 ! generation_ended",
            &["9 failed t/u failed ~ 0 ~ ~ app_server_stream_closed"],
        );
    }

    #[test]
    fn turns_of_several_threads() {
        let actual = "5 < turn/started a/0
                    6 < turn/started b/0
                    7 < item/agentMessage/delta b/0/m {\"delta\":\"Hi\"}
                    8 < turn/completed a/0 {\"status\":\"completed\"}
                    9 < turn/completed b/0 {\"status\":\"completed\"}
                    10 < turn/started a/0";
        check(
            actual,
            &[
                "5 started a/0 inProgress ~ 0 ~ ~",
                "6 started b/0 inProgress ~ 0 ~ ~",
                "8 completed a/0 completed 3 0 ~ ~",
                "9 completed b/0 completed 3 2 Hi ~",
                "10 started a/0 inProgress ~ 0 ~ ~",
            ],
        );
    }

    #[test]
    fn next_turn_ends_turn_without_end() {
        let next = "7 started t/v inProgress ~ 0 ~ ~";
        let lost = "7 failed t/u failed 2 0 ~ ~ outcome_unknown";
        check(
            &format!("{STARTED}7 < turn/started t/v\n9 ! generation_ended"),
            &[BEGAN, lost, next, "9 failed t/v failed 2 0 ~ ~ app_server_stream_closed"],
        );
        // Earlier facts are kept even if its start was not recorded.
        check(
            "6 < item/agentMessage/delta t/u/m {\"delta\":\"Hi\"}\n7 < turn/started t/v",
            &["7 failed t/u failed ~ 2 Hi ~ outcome_unknown", next],
        );
        // A repeated start, a turn of another thread, and an ended turn replace nothing.
        check(&format!("{STARTED}7 < turn/started t/u\n7 < turn/started s/v"), &[BEGAN, &next.replace("t/v", "s/v")]);
        let completed = "9 completed t/u completed 4 0 ~ ~";
        check(&format!("{STARTED}{COMPLETED}7 < turn/started t/v"), &[BEGAN, completed, next]);
        // The end may be reported late.
        check(
            &format!("{STARTED}7 < turn/started t/v\n{COMPLETED}"),
            &[BEGAN, lost, next, "9 completed t/u completed ~ 0 ~ ~"],
        );
    }

    #[test]
    fn answers() {
        let delta =
            |item: &str, text: &str| format!("6 < item/agentMessage/delta t/u/{item} {{\"delta\":\"{text}\"}}\n");
        let message =
            |text: &str| format!("7 < item/completed t/u/m {{\"type\":\"agentMessage\",\"text\":\"{text}\"}}\n");
        let check = |actual: &[&str], expect: &str| check_end(&format!("{}{COMPLETED}", actual.concat()), expect);
        check(&[&delta("m", "Hé"), &delta("m", "llo")], "9 completed t/u completed 4 5 Héllo ~");
        check(&[&delta("m", "a"), &delta("n", "b")], "9 completed t/u completed 4 2 b ~");
        check(&[&delta("m", "a"), &message("all")], "9 completed t/u completed 4 1 all ~");
        check(&[&message("all"), &message("")], "9 completed t/u completed 4 0 all ~");
        check(&[&message("all"), &delta("n", "b")], "9 completed t/u completed 4 1 b ~");
        check(&["6 < item/reasoning/textDelta t/u/r {\"delta\":\"a\"}\n"], "9 completed t/u completed 4 0 ~ ~");
        check(&["6 < item/completed t/u/r {\"type\":\"plan\",\"text\":\"a\"}\n"], "9 completed t/u completed 4 0 ~ ~");
        // A secret may span pieces.
        check(&[&delta("m", "Bearer abcd"), &delta("m", "efgh")], "9 completed t/u completed 4 15 Bearer [redacted] ~");
        let long = "ä".repeat(3_000);
        let cut = "ä".repeat(400);
        check(&[&message(&long)], &format!("9 completed t/u completed 4 0 {cut} ~"));
        check(&[&delta("m", &long)], &format!("9 completed t/u completed 4 3000 {cut} ~"));
    }

    #[test]
    fn turn_usage_is_summed() {
        let usage = |turn: &str, total: u64, last: u64| {
            let tokens = |count: u64| format!("{{\"inputTokens\":{count},\"outputTokens\":{}}}", count / 10);
            let usage = format!("{{\"total\":{},\"last\":{}}}", tokens(total), tokens(last));
            format!("6 < thread/tokenUsage/updated t/{turn} {{\"tokenUsage\":{usage}}}\n")
        };
        let check = |actual: &[String], expect: &str| check_end(&format!("{}{COMPLETED}", actual.concat()), expect);
        check(&[usage("u", 110, 10)], "9 completed t/u completed 4 0 ~ 10+1");
        // A turn calls the model several times.
        check(&[usage("u", 110, 10), usage("u", 130, 20)], "9 completed t/u completed 4 0 ~ 30+3");
        // A repetition without a call does not count; earlier usage is reported on resume.
        check(&[usage("u", 110, 10), usage("u", 110, 10)], "9 completed t/u completed 4 0 ~ 10+1");
        check(&[usage("z", 100, 50), usage("u", 100, 50), usage("u", 110, 10)], "9 completed t/u completed 4 0 ~ 10+1");
        let odd =
            "6 < thread/tokenUsage/updated t/u {\"tokenUsage\":{\"last\":{\"inputTokens\":1,\"outputTokens\":2}}}\n";
        check(&[odd.to_owned(), odd.to_owned()], "9 completed t/u completed 4 0 ~ 2+4");
        check(&["6 < thread/tokenUsage/updated t/u\n".to_owned()], "9 completed t/u completed 4 0 ~ ~");
    }

    #[test]
    fn errors_do_not_end_a_turn() {
        let error = |retries: &str| {
            format!("6 < error t/u {{\"error\":{{\"message\":\"no\",\"codexErrorInfo\":\"other\"}}{retries}}}\n")
        };
        let failed = "9 < turn/completed t/u {\"status\":\"failed\",\"error\":null}";
        check(&format!("{STARTED}{}", error("")), &[BEGAN]);
        check_end(&format!("{}{COMPLETED}", error("")), "9 completed t/u completed 4 0 ~ ~");
        check_end(&format!("{}{failed}", error(",\"willRetry\":false")), "9 failed t/u failed 4 0 ~ ~ other no");
        check_end(&format!("{}{failed}", error(",\"willRetry\":true")), "9 failed t/u failed 4 0 ~ ~");
    }

    #[test]
    fn rows_have_payload_excerpts() {
        let (_, rows) = play(&format!("{STARTED}{COMPLETED}{}", STARTED.replace("t/u", "t/v")));
        let raw = |row: &TurnRow| row.raw_payload_json.clone().unwrap_or_default();
        assert!(raw(&rows.turns[0]).contains("\"inProgress\"") && raw(&rows.turns[1]).contains("\"completed\""));
        let (_, rows) = play(&format!("{STARTED}9 ! generation_ended"));
        assert_eq!(rows.turns[1].raw_payload_json, None);
    }
}
