//! The conversations of a session, folded from its records: threads with their turns, items in progress, open requests and calls.
//!
//! This is the only place that decides what a record changes. A [`Step`] says what has changed; the rows, transcripts,
//! UI events and activities are views of a step and of this state, and have no tables of these things.

mod calls;
mod recorded_ends;
mod views;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::bounded::{Bounded, Weigh, masked_json};
use super::diffs::Snapshot;
use super::entry::Usage;
use super::identity::Identities;
use super::item::{ThreadItem, ToolCall, ToolDetails};
use super::record_event::{MethodMessage, RecordEvent, Seen, call_key, is_adopted};
use super::request::{End, Request, RequestState};
use super::review::Review;
use super::turn::{
    Failure, Known, OUTCOME_UNKNOWN, Plan, STREAM_CLOSED, StatusKind, Thread, Turn, TurnEnd, TurnEvent, number,
};
use crate::journal::Position;
use crate::protocol::{ItemPlace, Method};
use crate::wire::{Members, RpcId};

pub(super) use calls::Call;

/// Longest plan stored until the end of its turn, in bytes; a longer one is left out.
const PLAN_BYTES_MAX: usize = 64 << 10;

/// Limit of all tools in progress with their changes, in bytes.
const UI_TOOLS_BYTES_MAX: usize = 8 << 20;

/// Least distance between the places of two records: what a response shows of the past has room before the next record.
const PLACES_APART: u64 = 2;

/// What a fold is for, which decides what it remembers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// Rows, of the record at this position: everything that is stored is masked.
    Rows(&'a Position),
    /// UI events: details are whole, and nothing is stored.
    Ui,
}

/// State between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Conversation {
    /// The place of the last record, as [`Step::place_us`].
    #[serde(default)]
    place_us: u64,
    pub(super) generation: Option<String>,
    pub(super) child_runs: bool,
    /// When the child started or ended.
    pub(super) child_since_us: u64,
    /// Messages may name no thread.
    threads: Bounded<Option<String>, Thread>,
    /// The plans of running turns, by thread. They are larger than threads, and have a limit of their own.
    plans: Bounded<Option<String>, Plan>,
    /// In progress, by their items.
    tools: Bounded<ItemPlace, Tool>,
    /// By the server's id.
    requests: Bounded<String, Request>,
    /// The ledger name of the next request.
    next_request: Option<String>,
    /// The end of the next request is on record already.
    #[serde(default)]
    has_next_ended: bool,
    #[serde(default)]
    pub(super) recorded_ends: recorded_ends::RecordedEnds,
    /// Unanswered calls, by connection and id.
    calls: Bounded<String, Call>,
    #[serde(default)]
    pub(super) identities: Identities,
}

/// A tool in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tool {
    pub(super) started_us: u64,
    pub(super) does: ToolCall,
    /// It ended with its turn, and may still be reported as completed.
    is_ended: bool,
    /// The command, working folder and changes, for the UI: an approval request names only its item.
    #[serde(skip)]
    pub(super) details: Option<ToolDetails>,
}

/// What a record has changed.
pub(super) struct Step<'a> {
    pub(super) at_us: u64,
    /// Its place in the order of all records of the session: its time, unless a clock that was set back makes that earlier than
    /// the record before. The next record's place is at least [`PLACES_APART`] higher.
    pub(super) place_us: u64,
    /// The server's message, if the record has one.
    pub(super) message: Option<&'a MethodMessage<'a>>,
    pub(super) change: Change<'a>,
    /// Work that has ended without a report of its own.
    pub(super) lost: Lost,
    /// The thread of which more is known now.
    pub(super) identified: Option<String>,
    /// Plans of turns that have ended, and evicted ones.
    pub(super) plans: Vec<(Option<String>, Plan)>,
}

#[derive(Default)]
pub(super) struct Lost {
    pub(super) turns: Vec<(Option<String>, Box<Turn>)>,
    pub(super) tools: Vec<(ItemPlace, Tool)>,
    pub(super) requests: Vec<Request>,
}

pub(super) enum Change<'a> {
    /// Nothing that views show.
    None,
    /// The child has ended: work in progress has no end of its own.
    RunEnded,
    TurnStarted {
        is_new: bool,
    },
    TurnEnded {
        end: TurnEnd,
        /// The turn, if it was running.
        turn: Option<Box<Turn>>,
        is_new: bool,
        /// The open tools that end with it.
        tools: Vec<(ItemPlace, Tool)>,
    },
    /// A piece of an item.
    Piece(&'a str),
    ItemStarted {
        item: Box<ThreadItem>,
        is_new: bool,
    },
    ItemCompleted {
        item: Box<ThreadItem>,
        /// The tool, if it was in progress.
        tool: Option<Tool>,
        /// It has ended before, with its turn.
        is_late: bool,
    },
    /// A new part of a summary, except the first.
    SummaryPart,
    /// Progress of a tool, with its parameters.
    Progress(Value),
    Diff {
        text: String,
        snapshot: Snapshot,
    },
    Plan,
    Usage(Usage),
    Compacted {
        /// An item reports the same.
        by_item: bool,
    },
    Error {
        failure: Failure,
        will_retry: bool,
    },
    /// A review has begun or ended.
    Review {
        review: Box<Review>,
        /// The review in progress, if it was known.
        tool: Option<Tool>,
        /// Its rows tell this already.
        is_told: bool,
    },
    /// The request with this id is new.
    Asked(String),
    Resolved(Box<Request>, End),
    Answered {
        id: &'a RpcId,
        call: Option<Call>,
        result: Option<&'a RawValue>,
        error: Option<&'a RawValue>,
    },
}

impl Step<'_> {
    /// The error code of its lost work.
    pub(super) fn lost_code(&self) -> &'static str {
        if matches!(self.change, Change::RunEnded) { STREAM_CLOSED } else { OUTCOME_UNKNOWN }
    }
}

impl Weigh for Tool {
    fn weight(&self) -> usize {
        size_of::<u64>() + self.does.weight() + self.details.weight()
    }
}

impl Conversation {
    /// The state of a UI, which remembers the changes of files.
    pub(super) fn of_ui() -> Conversation {
        Conversation { tools: Bounded::with_bytes_max(UI_TOOLS_BYTES_MAX), ..Conversation::default() }
    }

    /// Whether the child has ended by this record.
    pub(super) fn ends_run(&self, event: &RecordEvent<'_>) -> bool {
        if let RecordEvent::ShimEvent { event, data } = event {
            // A previous run may have ended without a note.
            return *event == "generation_ended" || *event == "generation_started" && !is_adopted(*data);
        }
        matches!(event, RecordEvent::Generation(generation) if self.generation.as_ref() != Some(generation))
    }

    /// Processes a record.
    pub(super) fn take<'a>(&mut self, purpose: Purpose<'_>, seen: &'a Seen<'a>) -> Step<'a> {
        let (change, lost, plans) = (Change::None, Lost::default(), Vec::new());
        let call = if let RecordEvent::Response { id, .. } = &seen.event
            && !self.calls.is_empty()
        {
            self.calls.remove(&call_key(seen.conn, id))
        } else {
            None
        };
        let identified = self.identities.take(seen, call.as_ref());
        self.place_us = seen.at_us.max(self.place_us.saturating_add(PLACES_APART));
        let (at_us, place_us) = (seen.at_us, self.place_us);
        let mut step = Step { at_us, place_us, message: None, change, lost, identified, plans };
        step.change = match &seen.event {
            RecordEvent::Generation(generation) if self.generation.as_ref() != Some(generation) => {
                self.generation = Some(generation.clone());
                self.run_ended(&mut step)
            }
            RecordEvent::Notification(message) => {
                step.message = Some(message);
                self.runs(seen.at_us);
                self.notification(purpose, message, &mut step)
            }
            RecordEvent::ServerRequest { message, id } => {
                step.message = Some(message);
                self.runs(seen.at_us);
                self.asked(purpose, message, id.to_string(), &mut step)
            }
            RecordEvent::ClientRequest { message, id } => {
                self.calls.insert(call_key(seen.conn, id), Call::of(message));
                Change::None
            }
            RecordEvent::Response { id, result, error } => {
                self.accepted(call.as_ref(), *result, &mut step);
                Change::Answered { id, call, result: *result, error: *error }
            }
            RecordEvent::ShimEvent { event, data } => self.noted(event, *data, &mut step),
            RecordEvent::Gap { .. } => {
                self.gap();
                Change::None
            }
            RecordEvent::Generation(_) | RecordEvent::Answer { .. } | RecordEvent::Other => Change::None,
        };
        if !step.lost.turns.is_empty() || matches!(step.change, Change::TurnEnded { .. }) {
            let threads = &self.threads;
            let runs = |id: &_, plan: &Plan| threads.get(id).is_some_and(|it| it.running(&plan.turn_id).is_some());
            step.plans.extend(self.plans.take_if(|id, plan| !runs(id, plan)));
        }
        step
    }

    /// Records are missing.
    pub(super) fn gap(&mut self) {
        // The request line of the note may be lost.
        (self.next_request, self.has_next_ended) = (None, false);
        self.threads.change_all(|thread| thread.turn.iter_mut().for_each(|turn| turn.known = Known::Part));
    }

    /// Any server message shows that the child is running, even if the note of its start is missing.
    fn runs(&mut self, at_us: u64) {
        if !std::mem::replace(&mut self.child_runs, true) {
            self.child_since_us = at_us;
        }
    }

    fn run_ended<'a>(&mut self, step: &mut Step<'_>) -> Change<'a> {
        (self.child_runs, self.child_since_us) = (false, step.at_us);
        for (id, Thread { turn, accepted, .. }) in self.threads.take_all() {
            step.lost.turns.extend(turn.into_iter().chain(accepted).map(|turn| (id.clone(), turn)));
        }
        step.lost.tools.extend(self.tools.take_all().into_iter().filter(|(_, tool)| !tool.is_ended));
        step.lost.requests.extend(self.requests.iter().map(|(_, request)| request).filter(|r| r.is_open()).cloned());
        // Notes about them may follow.
        self.requests.change_all(|request| request.state = RequestState::Cut);
        (self.next_request, self.has_next_ended) = (None, false);
        // Call ids start over.
        self.calls.take_all();
        Change::RunEnded
    }

    /// Processes one of our notes.
    fn noted<'a>(&mut self, event: &str, data: Option<&RawValue>, step: &mut Step<'_>) -> Change<'a> {
        match event {
            "generation_ended" => self.run_ended(step),
            "generation_started" if is_adopted(data) => {
                self.calls.take_all();
                self.requests.change_all(Request::outlives_hub);
                // Nobody recorded what the server did without a hub.
                self.gap();
                Change::None
            }
            "generation_started" => {
                let calls = std::mem::take(&mut self.calls);
                let change = self.run_ended(step);
                // The client may have called already, and request ids start over.
                self.calls = calls;
                self.requests.take_all();
                self.runs(step.at_us);
                change
            }
            "request_opened" => {
                self.has_next_ended = data.is_some_and(|data| self.recorded_ends.repeats(data));
                self.next_request = data.and_then(recorded_ends::request_id);
                Change::None
            }
            "request_renamed" => self.renamed(data),
            "turn_not_started" => self.not_started(data, step),
            "request_resolved" => {
                let Some(mut end) = data.and_then(End::of) else { return Change::None };
                let named = self.requests.take_if(|_, request| request.request_id.as_ref() == Some(&end.request_id));
                if data.is_some_and(|data| self.recorded_ends.repeats(data)) {
                    return Change::None;
                }
                let open = named.into_iter().next().map(|(_, request)| request);
                let request_id = end.request_id.clone();
                let request = self.recorded_ends.add(open, &request_id, &mut end);
                request.map_or(Change::None, |request| Change::Resolved(Box::new(request), end))
            }
            _ => Change::None,
        }
    }

    /// Processes a server request.
    fn asked<'a>(
        &mut self,
        purpose: Purpose<'_>,
        message: &MethodMessage<'_>,
        id: String,
        step: &mut Step<'_>,
    ) -> Change<'a> {
        let request_id = self.next_request.take();
        if std::mem::take(&mut self.has_next_ended) {
            return Change::None;
        }
        let item = self.tool_at(&message.place.owned()).map(|tool| &tool.does);
        let Some(request) = Request::of(request_id, step.at_us, message, item, purpose) else { return Change::None };
        if request.place.thread_id.is_some() {
            self.heard(&message.place.owned(), step, |_| ());
        }
        if self.requests.get(&id).is_some_and(|open| request.is_again(open)) {
            // Our note about its end has the name of now, or that of before if a note says so.
            self.requests.change(&id, |open| open.request_id = request.request_id.or(open.request_id.take()));
            return Change::None;
        }
        // Its id is reused, or too many requests are open.
        let gone = self.requests.insert(id.clone(), request);
        step.lost.requests.extend(gone.into_iter().map(|(_, request)| request));
        Change::Asked(id)
    }

    /// Changes a thread, which may be new. Beyond the limit, idle threads are forgotten first.
    fn thread<R>(
        &mut self,
        place: &ItemPlace,
        step: &mut Step<'_>,
        change: impl FnOnce(&mut Thread) -> R,
    ) -> Option<R> {
        let key = &place.thread_id;
        let mut gone = match self.threads.get(key) {
            Some(_) => Vec::new(),
            None => self.threads.insert(key.clone(), Thread::new(step.at_us)),
        };
        let changed = self.threads.change(key, change);
        let given = changed.map(|(given, more)| {
            gone.extend(more);
            given
        });
        step.lost.turns.extend(gone.into_iter().filter_map(|(id, thread)| Some((id, thread.turn?))));
        given
    }
}

/// Notifications.
impl Conversation {
    fn notification<'a>(
        &mut self,
        purpose: Purpose<'_>,
        message: &'a MethodMessage<'a>,
        step: &mut Step<'a>,
    ) -> Change<'a> {
        if message.known == Some(Method::RequestResolved) {
            return self.request_resolved(message, step);
        }
        if let Some(delta) = message.piece() {
            return self.piece(purpose, message, delta, step);
        }
        let place = message.place.owned();
        let turn_id = place.turn_id.as_deref();
        let at_us = step.at_us;
        match message.known {
            Some(Method::TurnStarted) => self.turn_started(&place, step),
            Some(Method::TurnCompleted) => self.turn_completed(&place, message, step),
            Some(Method::ItemStarted) => self.item_started(purpose, place, message, step),
            Some(Method::ItemCompleted) => self.item_completed(place, message, step),
            Some(Method::ThreadStatusChanged) => {
                let status = StatusKind::of(message.params);
                self.heard(&place, step, |thread| status.iter().for_each(|status| thread.has_status(status, at_us)));
                Change::None
            }
            Some(Method::PlanUpdated) => self.plan(purpose, &place, message, step),
            Some(Method::TokenUsageUpdated) => {
                let usage = Usage::of(message.params);
                self.heard(&place, step, |thread| usage.iter().for_each(|usage| thread.uses(turn_id, *usage)));
                usage.map_or(Change::None, Change::Usage)
            }
            Some(Method::DiffUpdated) => self.diff(&place, message, step),
            Some(Method::ReviewStarted | Method::ReviewCompleted) => self.reviewed(purpose, place, message, step),
            Some(Method::ThreadCompacted) => {
                let by_item = self.heard(&place, step, |thread| thread.compacts_by_item(turn_id));
                Change::Compacted { by_item: by_item.unwrap_or_default() }
            }
            Some(Method::Error) => {
                let change = error(message);
                self.heard(&place, step, |thread| {
                    let turn = turn_id.and_then(|turn_id| thread.running_mut(turn_id));
                    if let (Some(turn), Change::Error { failure, will_retry: false }) = (turn, &change) {
                        turn.error = failure.excerpt();
                    }
                });
                change
            }
            _ => match (progress(message), message.place.delta.as_deref()) {
                (None, Some(delta)) => self.piece(purpose, message, delta, step),
                (change, _) => {
                    self.heard(&place, step, |_| ());
                    change.unwrap_or(Change::None)
                }
            },
        }
    }

    /// Changes the thread of a message of the server.
    fn heard<R>(&mut self, place: &ItemPlace, step: &mut Step<'_>, change: impl FnOnce(&mut Thread) -> R) -> Option<R> {
        let at_us = step.at_us;
        self.thread(place, step, |thread| {
            thread.heard_us = at_us;
            change(thread)
        })
    }

    fn piece<'a>(
        &mut self,
        purpose: Purpose<'_>,
        message: &MethodMessage<'_>,
        delta: &'a str,
        step: &mut Step<'_>,
    ) -> Change<'a> {
        let (at_us, spot) = (step.at_us, &message.place);
        // Most messages are pieces, and only the thread's id has to be owned.
        let place = ItemPlace { thread_id: spot.thread_id.as_deref().map(str::to_owned), ..ItemPlace::default() };
        let gone = self.heard(&place, step, |thread| {
            // Any other piece may come long after its turn, as the output of a background command does.
            let turn_id = spot.turn_id.as_deref().filter(|_| message.known == Some(Method::AgentMessageDelta))?;
            let gone = thread.continues(turn_id, at_us);
            if let (Purpose::Rows(at), Some(turn)) = (purpose, thread.running_mut(turn_id)) {
                turn.add_delta(at, spot.item_id.as_deref(), delta);
            }
            gone
        });
        self.replaced(&place, gone.flatten(), step);
        Change::Piece(delta)
    }

    /// A turn was replaced by another one of its thread without a reported end, so its open tools get no end of their
    /// own.
    fn replaced(&mut self, place: &ItemPlace, turn: Option<Box<Turn>>, step: &mut Step<'_>) {
        let Some(turn) = turn else { return };
        let is_meant = |key: &ItemPlace| key.thread_id == place.thread_id && key.turn_id == turn.id;
        step.lost.tools.extend(self.tools.take_if(|key, tool| !tool.is_ended && is_meant(key)));
        step.lost.turns.push((place.thread_id.clone(), turn));
    }

    fn turn_started<'a>(&mut self, place: &ItemPlace, step: &mut Step<'_>) -> Change<'a> {
        let at_us = step.at_us;
        let (gone, is_new) =
            self.heard(place, step, |thread| thread.starts(place.turn_id.as_deref(), at_us)).unwrap_or_default();
        self.replaced(place, gone, step);
        self.tools.take_if(|key, tool| tool.is_ended && key.thread_id == place.thread_id);
        Change::TurnStarted { is_new }
    }

    fn turn_completed<'a>(
        &mut self,
        place: &ItemPlace,
        message: &MethodMessage<'_>,
        step: &mut Step<'_>,
    ) -> Change<'a> {
        let at_us = step.at_us;
        let params = message.params.members();
        let end = TurnEnd::of(params.and_then(|params| Members::of(params.get("turn")?)).as_ref());
        // An end that names no turn is that of the running one.
        let running = || self.threads.get(&place.thread_id)?.turn.as_ref()?.id.clone();
        let place = ItemPlace { turn_id: place.turn_id.clone().or_else(running), ..place.clone() };
        let ended = self.heard(&place, step, |thread| thread.ends(place.turn_id.as_deref(), at_us));
        let (turn, is_new) = ended.unwrap_or_default();
        self.requests_over(|request| request.is_of_turn(&place));
        let tools = match end.event {
            TurnEvent::Interrupted | TurnEvent::Failed => self.tools_over(&place),
            // Open tools are reported as completed later, possibly much later, as a background command is.
            TurnEvent::Completed | TurnEvent::Started => Vec::new(),
        };
        Change::TurnEnded { end, turn, is_new, tools }
    }

    /// Ends the open tools of a turn.
    fn tools_over(&mut self, place: &ItemPlace) -> Vec<(ItemPlace, Tool)> {
        let is_meant = |key: &ItemPlace| key.thread_id == place.thread_id && key.turn_id == place.turn_id;
        let over = self.tools.take_if(|key, tool| !tool.is_ended && is_meant(key));
        for (key, Tool { started_us, .. }) in &over {
            let ended = Tool { started_us: *started_us, does: ToolCall::default(), is_ended: true, details: None };
            self.tools.insert(key.clone(), ended);
        }
        over
    }

    fn item_started<'a>(
        &mut self,
        purpose: Purpose<'_>,
        place: ItemPlace,
        message: &MethodMessage<'_>,
        step: &mut Step<'_>,
    ) -> Change<'a> {
        let at_us = step.at_us;
        let item = ThreadItem::read(message.params);
        let gone = self.heard(&place, step, |thread| {
            let turn_id = place.turn_id.as_deref()?;
            item.iter().for_each(|item| thread.compacts(turn_id, item));
            thread.continues(turn_id, at_us)
        });
        self.replaced(&place, gone.flatten(), step);
        let Some(item) = item else { return Change::None };
        if !item.kind.is_tool() || place.item_id.is_none() {
            return Change::ItemStarted { item: Box::new(item), is_new: false };
        }
        let (does, details) = match purpose {
            Purpose::Rows(_) => (ToolCall::of_item(&item), None),
            Purpose::Ui => (ToolCall::default(), ToolDetails::of(&item)),
        };
        // It may be running already; the new record has more details.
        let changed = self.tools.change(&place, |tool| {
            tool.does = does.clone().or(&tool.does);
            tool.details.clone_from(&details);
        });
        let is_new = changed.is_none();
        let gone = match changed {
            Some(((), gone)) => gone,
            None => self.tools.insert(place, Tool { started_us: at_us, does, is_ended: false, details }),
        };
        // Too many tools are in progress.
        step.lost.tools.extend(gone.into_iter().filter(|(_, tool)| !tool.is_ended));
        Change::ItemStarted { item: Box::new(item), is_new }
    }

    fn item_completed<'a>(&mut self, place: ItemPlace, message: &MethodMessage<'_>, step: &mut Step<'_>) -> Change<'a> {
        let (item, place_us) = (ThreadItem::read(message.params), step.place_us);
        self.heard(&place, step, |thread| {
            if let (Some(item), Some(turn_id)) = (&item, place.turn_id.as_deref()) {
                thread.has_item(turn_id, item, place.item_id.as_deref(), place_us);
            }
        });
        // A server may report nothing more specific about the end of a request.
        self.requests_over(|request| request.is_about(&place));
        let Some(item) = item else { return Change::None };
        let tool = if item.kind.is_tool() { self.tools.remove(&place) } else { None };
        let is_late = tool.as_ref().is_some_and(|tool| tool.is_ended);
        Change::ItemCompleted { item: Box::new(item), tool, is_late }
    }

    /// A review is kept as a tool in progress under its own id, so that it ends with its turn or with the child if nothing reports
    /// its end.
    fn reviewed<'a>(
        &mut self,
        purpose: Purpose<'_>,
        place: ItemPlace,
        message: &MethodMessage<'_>,
        step: &mut Step<'_>,
    ) -> Change<'a> {
        let started_us = step.at_us;
        self.heard(&place, step, |_| ());
        let Some(review) = Review::of(message.params, purpose) else { return Change::None };
        let place = ItemPlace { item_id: Some(review.id().to_owned()), ..place };
        let tool = if review.is_over() { self.tools.remove(&place) } else { None };
        let is_told = match review.is_over() {
            true => tool.as_ref().is_some_and(|tool| tool.is_ended),
            false => self.tools.get(&place).is_some(),
        };
        if !review.is_over() && !is_told {
            let does = review.does.clone();
            let gone = self.tools.insert(place, Tool { started_us, does, is_ended: false, details: None });
            step.lost.tools.extend(gone.into_iter().filter(|(_, tool)| !tool.is_ended));
        }
        Change::Review { review: Box::new(review), tool, is_told }
    }

    fn plan<'a>(
        &mut self,
        purpose: Purpose<'_>,
        place: &ItemPlace,
        message: &MethodMessage<'_>,
        step: &mut Step<'_>,
    ) -> Change<'a> {
        let began_us = self.heard(place, step, |thread| Some(thread.running(place.turn_id.as_deref()?)?.began_us));
        let (Purpose::Rows(_), Some(Some(began_us)), Some(turn_id)) = (purpose, began_us, place.turn_id.clone()) else {
            return Change::Plan;
        };
        self.plans.remove(&place.thread_id);
        let json = message.params.written().map(|params| masked_json(params.to_owned()));
        if let Some(json) = json.filter(|json| json.len() <= PLAN_BYTES_MAX) {
            step.plans.extend(self.plans.insert(place.thread_id.clone(), Plan { turn_id, began_us, json }));
        }
        Change::Plan
    }

    fn diff<'a>(&mut self, place: &ItemPlace, message: &MethodMessage<'_>, step: &mut Step<'_>) -> Change<'a> {
        let text = message.params.members().and_then(|params| params.text("diff"));
        let snapshot = self.heard(place, step, |thread| {
            let (thread_id, turn_id) = (place.thread_id.as_deref()?, place.turn_id.as_deref()?);
            thread.diffs.take(thread_id, turn_id, text.as_deref()?)
        });
        match (snapshot.flatten(), text) {
            (Some(snapshot), Some(text)) => Change::Diff { text, snapshot },
            (_, _) => Change::None,
        }
    }

    /// The server reports that a request is resolved. If it has a name, our note of its end follows.
    fn request_resolved<'a>(&mut self, message: &MethodMessage<'_>, step: &mut Step<'_>) -> Change<'a> {
        if message.place.thread_id.is_some() {
            self.heard(&message.place.owned(), step, |_| ());
        }
        let id = message.params.members().and_then(|params| params.get("requestId"));
        let Some(id) = id.map(|id| RpcId::from_raw(id).to_string()) else { return Change::None };
        match self.requests.get(&id).map(|request| request.request_id.is_some()) {
            Some(true) => {
                self.requests.change(&id, over);
                Change::None
            }
            Some(false) => {
                self.requests.remove(&id).map_or(Change::None, |it| Change::Resolved(Box::new(it), End::unknown()))
            }
            None => Change::None,
        }
    }

    fn requests_over(&mut self, is_meant: impl Fn(&Request) -> bool) {
        if !self.requests.is_empty() {
            self.requests.change_all(|request| {
                if is_meant(request) {
                    over(request);
                }
            });
        }
    }
}

/// The server is done with a request.
fn over(request: &mut Request) {
    if request.is_open() {
        request.state = RequestState::Over;
    }
}

fn error<'a>(message: &MethodMessage<'_>) -> Change<'a> {
    let params = message.params.members();
    let member = |name: &str| params.as_ref()?.get(name);
    let failure = member("error").map(Failure::of).unwrap_or_default();
    Change::Error { failure, will_retry: member("willRetry").is_some_and(|retries| retries.get() == "true") }
}

/// Messages that change no state; `None` for any other.
fn progress<'a>(message: &MethodMessage<'_>) -> Option<Change<'a>> {
    match message.known {
        Some(Method::ReasoningSummaryPartAdded) => {
            let params = message.params.members();
            let is_later = params.and_then(|params| number(&params, "summaryIndex")).is_some_and(|index| index > 0);
            Some(if is_later { Change::SummaryPart } else { Change::None })
        }
        Some(Method::ToolCallProgress | Method::TerminalInteraction | Method::PatchUpdated) => {
            Some(Change::Progress(message.params.read().unwrap_or_default()))
        }
        _ => None,
    }
}
