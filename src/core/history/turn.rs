//! A thread and its turn: what the records say about them, and the protocol's reports of usage, failure and end.
//!
//! A turn is identified by thread and turn, because a server may number turns per thread. A thread runs one turn at a time.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::bounded::{
    BEYOND_CUT_BYTES, EXCERPT_CHARS_MAX, PREVIEW_CHARS_MAX, Recent, Weigh, masked_so_far, masked_start, masked_text,
};
use super::diffs::Diffs;
use super::entry::{EndDocument, PlanDocument, PlanStep, Tokens, Usage};
use super::item::{ItemKind, ThreadItem};
use super::record_event::{Params, name};
use crate::engine::Need;
use crate::journal::Position;
use crate::protocol::named;
use crate::wire::{Members, elements, text};

/// The error code of work left open when the child ended. Source: the contract of the history.
pub(super) const STREAM_CLOSED: &str = "app_server_stream_closed";

/// The error code of work that was replaced without a reported end.
pub(super) const OUTCOME_UNKNOWN: &str = "outcome_unknown";

/// Longest start of an answer stored with a turn, in characters.
pub(super) const OUTPUT_CHARS_MAX: usize = 400;

/// Bytes of an answer held to compute that.
const OUTPUT_BYTES_MAX: usize = 4 * OUTPUT_CHARS_MAX + BEYOND_CUT_BYTES;

/// Turns of a thread remembered as over.
const OVER_MAX: usize = 8;

/// A thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Thread {
    /// The last turn, until its end is reported.
    pub(super) turn: Option<Box<Turn>>,
    /// The turn that the server accepted, until it is reported.
    pub(super) accepted: Option<Box<Turn>>,
    /// The last turn whose end was reported.
    ended: Option<String>,
    /// The last turns that ended or were replaced: their late records do not start a turn.
    over: Recent<OVER_MAX>,
    /// When a turn last began or ended.
    pub(super) turn_us: u64,
    /// When the server last reported anything about it.
    pub(super) heard_us: u64,
    /// The server reports that it waits, for what, and since when.
    pub(super) waits: Option<(Need, u64)>,
    /// The tokens of all calls as last reported.
    total: Option<Tokens>,
    /// The last turn that reported its compaction by an item, so other reports are ignored.
    compacting: Option<String>,
    pub(super) diffs: Diffs,
}

/// A turn without a reported end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    /// `None` while the server has only reported that its thread is active.
    pub(super) id: Option<String>,
    pub(super) state: TurnState,
    /// The time of its first record.
    pub(super) began_us: u64,
    /// `None` if the start was not recorded.
    pub(super) started_us: Option<u64>,
    pub(super) known: Known,
    /// Number of its items so far.
    pub(super) items: u64,
    /// The place of the record of the last of them.
    #[serde(default)]
    pub(super) item_place_us: u64,
    pub(super) usage: Option<Usage>,
    /// Tokens of its calls.
    pub(super) spent: Option<Tokens>,
    pub(super) error: Failure,
    /// Characters of streamed answers.
    pub(super) delta_chars: u64,
    /// The start of the last answer, and its item.
    #[serde(serialize_with = "without_secrets")]
    output: String,
    output_item: Option<String>,
    /// The start of the answer that is being streamed.
    streamed: Option<Streamed>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TurnState {
    /// The server accepted the turn but has not reported its start.
    Accepted,
    #[default]
    Running,
    /// Its thread is idle, so it has ended; the outcome is not known yet.
    Over,
    /// Its thread has failed; neither the end nor the outcome is known yet.
    Broken,
}

/// How much of a turn was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Known {
    Whole,
    /// Something is missing.
    #[default]
    Part,
}

/// The start of an answer that is being streamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Streamed {
    /// The position of its first record, from which [`super::Recall`] reads it again.
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

impl Weigh for Thread {
    fn weight(&self) -> usize {
        let Thread { turn, accepted, ended, over, compacting, diffs, .. } = self;
        let turns: usize = turn.iter().chain(accepted).map(|turn| turn.weight()).sum();
        size_of::<Thread>() + turns + ended.weight() + over.weight() + compacting.weight() + diffs.weight()
    }

    const HAS_SPARE: bool = true;

    fn lighten(&mut self) {
        self.diffs = Diffs::default();
    }

    fn is_spare(&self) -> bool {
        self.turn.is_none() && self.accepted.is_none()
    }
}

impl Weigh for Turn {
    fn weight(&self) -> usize {
        let Failure { message, code } = &self.error;
        size_of::<Turn>()
            + self.output.weight()
            + self.streamed.as_ref().map_or(0, |streamed| size_of::<Streamed>() + streamed.text.weight())
            + [&self.id, &self.output_item, code, message].map(Weigh::weight).iter().sum::<usize>()
    }
}

impl Thread {
    /// A thread that was not heard of before `at_us`.
    pub(super) fn new(at_us: u64) -> Thread {
        Thread { turn_us: at_us, ..Thread::default() }
    }

    /// The turn with this id, if the server reported any of it.
    pub(super) fn running(&self, turn_id: &str) -> Option<&Turn> {
        self.turn.as_deref().filter(|turn| turn.id.as_deref() == Some(turn_id))
    }

    pub(super) fn running_mut(&mut self, turn_id: &str) -> Option<&mut Turn> {
        self.turn.as_deref_mut().filter(|turn| turn.id.as_deref() == Some(turn_id))
    }

    /// The turn that the thread works on.
    fn at_work(&self) -> Option<&Turn> {
        [&self.turn, &self.accepted].into_iter().filter_map(Option::as_deref).find(|turn| turn.is_at_work())
    }

    /// The id of the turn that the thread works on; `None` if it rests or the id is not known.
    pub(super) fn works_on(&self) -> Option<&str> {
        self.at_work()?.id.as_deref()
    }

    pub(super) fn is_at_work(&self) -> bool {
        self.at_work().is_some()
    }

    /// A turn starts; returns the turn that it replaces, and whether its start is new.
    pub(super) fn starts(&mut self, turn_id: Option<&str>, at_us: u64) -> (Option<Box<Turn>>, bool) {
        let Some(turn_id) = turn_id else {
            self.becomes_active(at_us);
            return (None, false);
        };
        if !self.is_at_work() {
            self.turn_us = at_us;
        }
        (self.accepted, self.ended) = (None, None);
        self.over.forget(&[turn_id]);
        let gone = self.turn.take_if(|turn| turn.id.as_deref() != Some(turn_id));
        let turn = self.turn.get_or_insert_with(|| {
            let id = Some(turn_id.to_owned());
            Box::new(Turn { id, began_us: at_us, known: Known::Whole, ..Turn::default() })
        });
        turn.state = TurnState::Running;
        let is_new = turn.started_us.is_none();
        turn.started_us.get_or_insert(at_us);
        (self.replaced(gone), is_new)
    }

    /// A record of a turn, possibly the first one seen; returns the turn that it replaces.
    pub(super) fn continues(&mut self, turn_id: &str, at_us: u64) -> Option<Box<Turn>> {
        // A turn that was recorded whole is replaced only by the start of another one.
        let is_begun =
            self.turn.as_ref().filter(|turn| turn.is_reported()).is_some_and(|turn| {
                turn.id.as_deref() == Some(turn_id) || turn.is_at_work() || turn.known == Known::Whole
            });
        let is_accepted = self.accepted.as_ref().is_some_and(|turn| turn.id.as_deref() == Some(turn_id));
        if !is_accepted && (is_begun || self.over.knows(&[turn_id])) {
            return None;
        }
        if !self.is_at_work() {
            self.turn_us = at_us;
        }
        self.accepted.take_if(|_| is_accepted);
        let turn = Turn { id: Some(turn_id.to_owned()), began_us: at_us, ..Turn::default() };
        let gone = self.turn.replace(Box::new(turn));
        self.replaced(gone)
    }

    /// The last turn whose end was reported, if no other one has started since.
    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    fn replaced(&mut self, turn: Option<Box<Turn>>) -> Option<Box<Turn>> {
        let turn = turn.filter(|turn| turn.is_reported());
        if let Some(Turn { id: Some(id), .. }) = turn.as_deref() {
            self.over.meet(&[id]);
        }
        turn
    }

    /// The server accepted a turn: a new one, or the running one that takes the message. An earlier turn may still lack
    /// its end.
    pub(super) fn accepts(&mut self, turn_id: String, at_us: u64) {
        if !self.is_at_work() && self.running(&turn_id).is_none() && !self.over.knows(&[&turn_id]) {
            (self.turn_us, self.heard_us) = (at_us, at_us);
            let turn = Turn { id: Some(turn_id), state: TurnState::Accepted, ..Turn::default() };
            self.accepted = Some(Box::new(turn));
        }
    }

    /// The server has not begun the turn that it accepted; returns that.
    pub(super) fn never_started(&mut self, turn_id: &str, why: String, at_us: u64) -> Option<Box<Turn>> {
        let is_known = self.over.knows(&[turn_id]) || self.running(turn_id).is_some();
        let accepted = self.accepted.take_if(|turn| turn.id.as_deref() == Some(turn_id));
        // The thread may have been active before the turn was accepted.
        let unseen = || Box::new(Turn { id: Some(turn_id.to_owned()), began_us: at_us, ..Turn::default() });
        let mut turn = accepted.or_else(|| (!is_known).then(unseen))?;
        // All that was heard of it is that the thread was active.
        self.turn.take_if(|turn| turn.id.is_none());
        self.over.meet(&[turn_id]);
        self.turn_us = at_us;
        turn.state = TurnState::Running;
        turn.error = Failure { message: Some(why), code: None };
        Some(turn)
    }

    /// The end of a turn is reported; returns the turn, if it is known, and whether its end is new. The end of a replaced
    /// turn may arrive late.
    pub(super) fn ends(&mut self, turn_id: Option<&str>, at_us: u64) -> (Option<Box<Turn>>, bool) {
        let is_meant = |turn: &mut Box<Turn>| turn.id.is_none() || turn_id.is_none() || turn.id.as_deref() == turn_id;
        let turn = self.turn.take_if(is_meant);
        self.accepted.take_if(is_meant);
        if !self.is_at_work() {
            (self.turn_us, self.waits) = (at_us, None);
        }
        let is_new = turn_id.is_some() && self.ended.as_deref() != turn_id;
        if let Some(turn_id) = turn_id {
            self.over.meet(&[turn_id]);
            self.ended = Some(turn_id.to_owned());
        }
        (turn.filter(|turn| turn.is_reported()), is_new)
    }

    /// The server reports the thread's status.
    pub(super) fn has_status(&mut self, status: &StatusKind, at_us: u64) {
        if status.kind == "active" {
            self.becomes_active(at_us);
            if self.waits.map(|(waits, _)| waits) != status.waits {
                self.waits = status.waits.map(|waits| (waits, at_us));
            }
            return;
        }
        self.waits = None;
        // A status from before an accepted turn does not end that one.
        let was_at_work = self.is_at_work();
        let Some(turn) = &mut self.turn else { return };
        turn.state = match status.kind.as_str() {
            "idle" | "notLoaded" => TurnState::Over,
            _ => TurnState::Broken,
        };
        self.turn.take_if(|turn| turn.id.is_none());
        if was_at_work && !self.is_at_work() {
            self.turn_us = at_us;
        }
    }

    fn becomes_active(&mut self, at_us: u64) {
        if !self.is_at_work() {
            self.turn_us = at_us;
            self.turn.get_or_insert_default().state = TurnState::Running;
        }
    }

    /// Counts the reported usage for a turn. The server repeats it without a call of the model, for example with new
    /// limits; the total reveals that.
    pub(super) fn uses(&mut self, turn_id: Option<&str>, usage: Usage) {
        let is_again = usage.all.is_some() && usage.all == self.total;
        self.total = usage.all.or(self.total);
        let Some(turn) = turn_id.and_then(|turn_id| self.running_mut(turn_id)) else { return };
        turn.usage = Some(Usage { all: None, ..usage });
        if let Some((input, output)) = usage.input_tokens.zip(usage.output_tokens).filter(|_| !is_again) {
            let before = turn.spent.unwrap_or_default();
            let (input, output) = (before.input.saturating_add(input), before.output.saturating_add(output));
            turn.spent = Some(Tokens { input, output });
        }
    }

    /// An item of a turn is complete.
    pub(super) fn has_item(&mut self, turn_id: &str, item: &ThreadItem, item_id: Option<&str>, place_us: u64) {
        self.compacts(turn_id, item);
        if let Some(turn) = self.running_mut(turn_id) {
            turn.items += 1;
            turn.item_place_us = place_us;
            // An answer is final.
            if item.kind == ItemKind::Assistant
                && let Some(said) = item.text()
            {
                turn.output = said[..said.floor_char_boundary(OUTPUT_BYTES_MAX)].to_owned();
                turn.streamed = None;
                turn.output_item = item_id.map(str::to_owned);
            }
        }
    }

    /// Notes whether an item is the compaction of its turn.
    pub(super) fn compacts(&mut self, turn_id: &str, item: &ThreadItem) {
        if item.kind == ItemKind::Compaction {
            self.compacting = Some(turn_id.to_owned());
        }
    }

    /// Whether the turn reports its compaction by an item.
    pub(super) fn compacts_by_item(&self, turn_id: Option<&str>) -> bool {
        self.compacting.is_some() && self.compacting.as_deref() == turn_id
    }
}

impl Turn {
    /// Whether the server reported the turn itself.
    pub(super) fn is_reported(&self) -> bool {
        self.id.is_some() && self.state != TurnState::Accepted
    }

    pub(super) fn is_at_work(&self) -> bool {
        matches!(self.state, TurnState::Accepted | TurnState::Running)
    }

    /// The start of its last answer.
    pub(super) fn output(&self) -> &str {
        self.streamed.as_ref().map_or(&self.output, |streamed| &streamed.text)
    }

    /// A piece of an answer.
    pub(super) fn add_delta(&mut self, at: &Position, item_id: Option<&str>, delta: &str) {
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

    /// The position of the first record whose text is not stored.
    pub(super) fn streamed_since(&self) -> Option<&Position> {
        self.streamed.as_ref().map(|streamed| &streamed.from)
    }

    /// Takes the text of a piece that was processed before the turn was stored.
    pub(super) fn recall(&mut self, at: &Position, item_id: Option<&str>, delta: &str, met: &mut Vec<Position>) {
        let Some(streamed) = self.streamed.as_mut().filter(|_| self.output_item.as_deref() == item_id) else { return };
        if streamed.from == *at {
            streamed.text.clear();
            met.push(at.clone());
        }
        if met.contains(&streamed.from) {
            append(&mut streamed.text, delta);
        }
    }
}

/// Appends to the start of an answer, up to the limit.
fn append(output: &mut String, delta: &str) {
    let room = OUTPUT_BYTES_MAX.saturating_sub(output.len());
    output.push_str(&delta[..delta.floor_char_boundary(room)]);
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnEnd {
    pub(super) event: TurnEvent,
    pub(super) status: String,
    pub(super) duration_ms: Option<Value>,
    pub(super) failure: Failure,
}

named! {
    /// An event of a turn.
    pub enum TurnEvent {
        Started = "started",
        Completed = "completed",
        Failed = "failed",
        Interrupted = "interrupted",
    }
}

impl TurnEnd {
    /// Reads it from an ended turn. A member that cannot be parsed hides no other.
    pub(super) fn of(turn: Option<&Members<'_>>) -> TurnEnd {
        let member = |name: &str| turn?.get(name);
        let status = member("status").and_then(text);
        let event = match status.as_deref() {
            Some("failed") => TurnEvent::Failed,
            Some("interrupted") => TurnEvent::Interrupted,
            Some(_) | None => TurnEvent::Completed,
        };
        let status = status.unwrap_or_else(|| event.name().to_owned());
        let duration_ms = member("durationMs").and_then(|raw| serde_json::from_str(raw.get()).ok());
        let duration_ms = duration_ms.filter(|duration: &Value| !duration.is_null());
        TurnEnd { event, status, duration_ms, failure: member("error").map(Failure::of).unwrap_or_default() }
    }

    pub(super) fn document(&self) -> EndDocument {
        let TurnEnd { event: _, status, duration_ms, failure } = self.clone();
        EndDocument { subject: None, status, duration_ms, error_code: failure.code, error_message: failure.message }
    }

    /// An end that the server did not report.
    pub(super) fn unreported(error_code: &str) -> TurnEnd {
        TurnEnd {
            event: TurnEvent::Failed,
            status: TurnEvent::Failed.name().to_owned(),
            duration_ms: None,
            failure: Failure { message: None, code: Some(error_code.to_owned()) },
        }
    }
}

impl EndDocument {
    /// The same with its keys masked and each member bounded, to be stored.
    pub(super) fn stored(self) -> EndDocument {
        let named = |text: String| name(text.into()).into_owned();
        EndDocument {
            subject: self.subject,
            status: named(self.status),
            duration_ms: self.duration_ms.filter(Value::is_number),
            error_code: self.error_code.map(named),
            error_message: self.error_message.map(|message| masked_start(&message, PREVIEW_CHARS_MAX)),
        }
    }

    /// A status without details.
    pub fn of_status(status: &str) -> EndDocument {
        EndDocument {
            subject: None,
            status: status.to_owned(),
            duration_ms: None,
            error_code: None,
            error_message: None,
        }
    }
}

/// The last plan of a running turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) turn_id: String,
    /// The time of the turn's first record.
    pub(super) began_us: u64,
    /// The parameters that report it, masked.
    pub(super) json: String,
}

impl Weigh for Plan {
    fn weight(&self) -> usize {
        self.turn_id.weight() + size_of::<u64>() + self.json.weight()
    }
}

impl PlanDocument {
    /// Reads `turn/plan/updated`.
    pub(super) fn of(plan: &Value) -> PlanDocument {
        let status = |status: &Value| match status.as_str() {
            Some("inProgress") => Value::from("in_progress"),
            Some(_) | None => status.clone(),
        };
        let step = |step: &Value| PlanStep { status: status(&step["status"]), step: step["step"].clone() };
        PlanDocument {
            text: None,
            steps: Some(plan["plan"].as_array().into_iter().flatten().map(step).collect()),
            explanation: plan["explanation"].as_str().map(str::to_owned),
        }
    }
}

/// An error reported by the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) message: Option<String>,
    /// The kind of the error.
    pub(super) code: Option<String>,
}

impl Failure {
    /// Parses `turn.error` or the `error` of a notification; its kind is a word, or an object with that word as its
    /// member.
    pub(super) fn of(error: &RawValue) -> Failure {
        let members = Members::of(error);
        let member = |name: &str| members.as_ref()?.get(name);
        let first = |info: &RawValue| Members::of(info)?.iter().next().map(|(name, _)| name.to_owned());
        let code = member("codexErrorInfo").and_then(|info| text(info).or_else(|| first(info)));
        Failure { message: text(error).or_else(|| text(member("message")?)), code }
    }

    /// The start of its message, masked.
    pub(super) fn excerpt(&self) -> Failure {
        let message = self.message.as_deref().map(|message| masked_start(message, EXCERPT_CHARS_MAX));
        Failure { message, code: self.code.clone() }
    }
}

/// A thread status reported by the server.
pub(super) struct StatusKind {
    kind: String,
    waits: Option<Need>,
}

impl StatusKind {
    /// Parses `thread/status/changed`. Invalid flags are ignored.
    pub(super) fn of(params: Params<'_>) -> Option<StatusKind> {
        let params = params.members()?;
        let status = Members::of(params.get("status")?)?;
        let flags = status.get("activeFlags").and_then(elements);
        let waits = flags.unwrap_or_default().into_iter().find_map(|flag| match text(flag)?.as_str() {
            "waitingOnApproval" => Some(Need::Permission),
            "waitingOnUserInput" => Some(Need::Input),
            _ => None,
        });
        Some(StatusKind { kind: status.text("type")?, waits })
    }
}

impl Usage {
    /// Parses `thread/tokenUsage/updated`.
    pub(super) fn of(params: Params<'_>) -> Option<Usage> {
        let usage = Members::of(params.members()?.get("tokenUsage")?)?;
        let [last, all] = ["last", "total"].map(|name| usage.get(name).and_then(Members::of));
        let last = |name: &str| number(last.as_ref()?, name);
        let all = |name: &str| number(all.as_ref()?, name);
        Some(Usage {
            total: last("totalTokens"),
            input_tokens: last("inputTokens"),
            cached_input_tokens: last("cachedInputTokens"),
            output_tokens: last("outputTokens"),
            reasoning_output_tokens: last("reasoningOutputTokens"),
            context_window: number(&usage, "modelContextWindow"),
            thread_total: all("totalTokens"),
            all: all("inputTokens").zip(all("outputTokens")).map(|(input, output)| Tokens { input, output }),
        })
    }
}

/// The member of this name, if it is a non-negative integer.
pub(super) fn number(members: &Members<'_>, name: &str) -> Option<u64> {
    members.get(name)?.get().parse().ok()
}

/// The turn in the result of a `turn/start`, unless it has ended already.
pub(super) fn accepted_turn(result: &RawValue) -> Option<String> {
    let turn = Members::of(result).and_then(|result| result.get("turn")).and_then(Members::of)?;
    let is_over = turn.text("status").is_some_and(|status| status != "inProgress");
    if is_over { None } else { turn.text("id") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_words() {
        let check = |error: &str, message: Option<&str>, code: Option<&str>| {
            let failure = Failure::of(serde_json::from_str(error).expect("BUG: a test gives JSON"));
            assert_eq!((failure.message.as_deref(), failure.code.as_deref()), (message, code));
        };
        check(r#"{"message":"m","codexErrorInfo":"serverOverloaded"}"#, Some("m"), Some("serverOverloaded"));
        check(r#"{"message":"m","codexErrorInfo":{"x":{"httpStatusCode":1}}}"#, Some("m"), Some("x"));
        check(r#""m""#, Some("m"), None);
        check("null", None, None);
    }
}
