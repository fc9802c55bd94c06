//! The meter: what each record adds to the usage of its turn. A view of steps, with the little state that this needs.
//!
//! Codex reports the tokens of the last model call and the total of the thread. The total decides: a report whose total was
//! reported before is a repetition, as a client gets it that resumes a thread. The growth of the total belongs to the running turn; if
//! reports may be missing in between, only the last call does.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::bounded::{Bounded, Met, Recent, Weigh};
use super::conversation::{Change, Conversation, Step};
use super::identity::short;
use super::item::ItemKind;
use super::record_event::{MethodMessage, RecordEvent, Seen};
use super::request::{End, Request};
use super::rows_of_record::Rows;
use super::turn::{Turn, TurnEvent, accepted_turn};
use super::usage::{AnsweredBy, Counts, LimitRow, Report, UsageRow};
use crate::protocol::Method;
use crate::wire::{Conn, Members, RpcId};

/// Totals of a thread that are remembered to recognize repetitions.
const TOTALS_MAX: usize = 8;

/// State between two records.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meter {
    has_begun: bool,
    /// Those of the current run of the child.
    threads: Bounded<String, Metered>,
}

/// The metered state of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Metered {
    model: Option<String>,
    /// The total in the last report of this run.
    total: Option<Counts>,
    /// The last totals.
    reported: Recent<TOTALS_MAX>,
    /// Reports may be missing after the last one.
    may_lack: bool,
    /// A request to a human is open: its turn, and since when.
    waits: Option<(Option<String>, u64)>,
}

impl Weigh for Metered {
    fn weight(&self) -> usize {
        let waits = self.waits.as_ref().map_or(0, |(turn_id, _)| turn_id.weight());
        size_of::<Metered>() + self.model.weight() + self.reported.weight() + waits
    }
}

/// How the server treats the turn that a report names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfTurn {
    Running,
    /// The last turn that ended.
    JustEnded,
    /// Any other turn, which the report only repeats.
    Other,
}

impl Metered {
    /// The tokens of a report that belong to its turn; `None` if it is a repetition.
    fn spent(&mut self, Report { last, total }: Report, turn: OfTurn) -> Option<Counts> {
        let counts: [u64; 5] = total.into();
        if self.reported.meet(&[&format!("{counts:?}")]) == Met::Again {
            return None;
        }
        let before = self.total.replace(total);
        let may_lack = std::mem::take(&mut self.may_lack);
        let last = if last.are_of_call() { last } else { Counts::default() };
        let grown = before.filter(|before| total.has_all_of(*before)).map(|before| total.minus(before));
        Some(match (turn, grown) {
            (OfTurn::Running, Some(grown)) if !may_lack => grown,
            (OfTurn::Running, Some(grown)) => last.at_most(grown),
            // The first report of a run, or codex has set its count back.
            (OfTurn::Running, None) => last.at_most(total),
            (OfTurn::JustEnded, Some(grown)) if !may_lack && grown == last => grown,
            (OfTurn::JustEnded | OfTurn::Other, _) => Counts::default(),
        })
    }
}

impl Meter {
    /// Whether this is the first record.
    pub(super) fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// Records are missing.
    pub(super) fn gap(&mut self) {
        self.threads.change_all(|thread| thread.may_lack = true);
    }

    /// Processes a step. `before_us` is the time of the record before it.
    pub(super) fn take(
        &mut self,
        seen: &Seen<'_>,
        before_us: u64,
        step: &Step<'_>,
        conversation: &Conversation,
        rows: &mut Rows,
    ) {
        let is_over = matches!(step.change, Change::RunEnded);
        let until_us = if is_over { before_us } else { step.at_us };
        for (thread_id, turn) in &step.lost.turns {
            rows.usage.extend(ended(until_us, thread_id.as_deref(), turn, TurnEvent::Failed));
        }
        if is_over {
            for (thread_id, thread) in self.threads.take_all() {
                rows.usage.extend(thread.waits.map(|waits| waited(&thread_id, waits, until_us)));
            }
        }
        if let RecordEvent::ClientRequest { message, id: _ } = &seen.event {
            self.called(message);
        } else if let RecordEvent::ShimEvent { event, data } = &seen.event {
            self.noted(event, *data, step.at_us, &mut rows.limits);
        }
        self.changed(seen, step, conversation, &mut rows.usage);
        self.waits_over(step, conversation, &mut rows.usage);
    }

    /// A client calls the server.
    fn called(&mut self, message: &MethodMessage<'_>) {
        if message.known == Some(Method::TurnStart)
            && let (Some(params), Some(thread_id)) = (message.params.members(), &message.place.thread_id)
        {
            // In a mode such as planning, the settings of the mode count.
            let in_mode = |mode: &RawValue| Members::of(Members::of(mode)?.get("settings")?)?.text("model");
            let model = params.get("collaborationMode").and_then(in_mode).or_else(|| params.text("model"));
            if let Some(model) = model {
                self.thread(thread_id, |thread| thread.model = Some(short(&model)));
            }
        }
    }

    /// Processes one of our notes.
    fn noted(&mut self, event: &str, data: Option<&RawValue>, at_us: u64, limits: &mut Vec<LimitRow>) {
        #[derive(Deserialize)]
        struct Limits {
            primary: Option<Limit>,
            secondary: Option<Limit>,
        }
        #[derive(Deserialize)]
        struct Limit {
            used_percent: u64,
            window_minutes: Option<u64>,
            resets_at: Option<u64>,
        }
        let Some(data) = data.map(RawValue::get) else { return };
        if event == "rate_limits" {
            let Some(Limits { primary, secondary }) = serde_json::from_str(data).ok() else { return };
            let told = [("primary", primary), ("secondary", secondary)];
            limits.extend(told.into_iter().filter_map(|(name, limit)| {
                let Limit { used_percent, window_minutes, resets_at } = limit?;
                Some(LimitRow { name, at_us, used_percent, window_minutes, resets_at })
            }));
        }
    }

    /// The rows of a change.
    fn changed(&mut self, seen: &Seen<'_>, step: &Step<'_>, conversation: &Conversation, rows: &mut Vec<UsageRow>) {
        if let Change::Answered { id, call: Some(call), result: Some(result), error: _ } = &step.change {
            let (method, thread_id) = (Method::of(&call.method), call.thread_id.as_deref());
            if method == Some(Method::TurnStart) {
                rows.extend(self.accepted(seen.conn, id, thread_id, result, step, conversation));
            } else if method.is_some_and(Method::opens_thread) {
                self.opened(thread_id, result);
            }
            return;
        }
        if let Change::Asked(id) = &step.change {
            let request = conversation.request(id);
            rows.extend(request.map(|request| self.asked(request, step.at_us, conversation)));
            return;
        }
        if let Change::Resolved(request, end) = &step.change {
            // The first end was counted.
            if end.not_sent.is_some() {
                return;
            }
            rows.push(self.resolved(request, end, step.at_us, conversation));
            return;
        }
        let Some(message) = step.message else { return };
        let (thread_id, turn_id) = (message.place.thread_id.as_deref(), message.place.turn_id.as_deref());
        let row = UsageRow {
            at_us: step.at_us,
            thread_id: thread_id.map(str::to_owned),
            turn_id: turn_id.map(str::to_owned),
            ..UsageRow::default()
        };
        if let Change::TurnStarted { is_new: true } = step.change {
            let begins_in = Some(conversation.generation.as_deref().unwrap_or_default().to_owned());
            rows.push(UsageRow { begins_in, model: self.model(thread_id), ..row });
        } else if let Change::TurnEnded { end, turn, is_new: true, tools: _ } = &step.change {
            let turn_id = row.turn_id.clone().or_else(|| turn.as_ref()?.id.clone());
            let began_us = turn.as_ref().map(|turn| turn.started_us.unwrap_or(turn.began_us));
            rows.push(UsageRow { turn_id, began_us, outcome: Some(end.event), ..row });
        } else if let Change::ItemCompleted { item, .. } = &step.change {
            if item.kind == ItemKind::Command && item.status() != Some("declined") {
                rows.push(UsageRow { commands: 1, ..row });
            }
        } else if let Some((report, turn_id)) = Report::of(message.known, message.params) {
            let turn_id = turn_id.or_else(|| row.turn_id.clone());
            rows.extend(self.reported(report, UsageRow { turn_id, ..row }, conversation));
        }
    }

    /// The server accepted a turn of a client.
    fn accepted(
        &self,
        conn: Conn,
        id: &RpcId,
        thread_id: Option<&str>,
        result: &RawValue,
        step: &Step<'_>,
        conversation: &Conversation,
    ) -> Option<UsageRow> {
        let (thread_id, turn_id) = (thread_id?, accepted_turn(result)?);
        let client = conversation.identities.caller(conn, id);
        // It may have started already, or be a running turn that takes another message.
        let accepted = conversation.thread_of(thread_id)?.accepted.as_ref();
        let is_new = accepted.is_some_and(|turn| turn.id.as_ref() == Some(&turn_id));
        let begins_in = is_new.then(|| conversation.generation.as_deref().unwrap_or_default().to_owned());
        let (at_us, model) = (step.at_us, self.model(Some(thread_id)));
        let (thread_id, turn_id) = (Some(thread_id.to_owned()), Some(turn_id));
        Some(UsageRow { at_us, thread_id, turn_id, begins_in, client, model, ..UsageRow::default() })
    }

    /// The server started, resumed or forked a thread. Others may have worked on it meanwhile.
    fn opened(&mut self, thread_id: Option<&str>, result: &RawValue) {
        let Some(result) = Members::of(result) else { return };
        let opened = result.get("thread").and_then(Members::of).and_then(|thread| thread.text("id"));
        let Some(thread_id) = opened.as_deref().or(thread_id) else { return };
        let model = result.text("model").as_deref().map(short);
        self.thread(thread_id, |thread| {
            thread.may_lack = true;
            thread.model = model.or(thread.model.take());
        });
    }

    fn asked(&mut self, request: &Request, at_us: u64, conversation: &Conversation) -> UsageRow {
        let thread_id = request.place.thread_id.as_deref();
        let turn_id = request.place.turn_id.clone().or_else(|| running(thread_id, conversation));
        if let Some(thread_id) = thread_id {
            self.thread(thread_id, |thread| thread.waits = thread.waits.take().or(Some((turn_id.clone(), at_us))));
        }
        UsageRow { at_us, thread_id: thread_id.map(str::to_owned), turn_id, asked: 1, ..UsageRow::default() }
    }

    fn resolved(&self, request: &Request, end: &End, at_us: u64, conversation: &Conversation) -> UsageRow {
        let thread_id = request.place.thread_id.as_deref();
        let turn_id = request.place.turn_id.clone().or_else(|| running(thread_id, conversation));
        let answered = AnsweredBy::of(end.status.as_deref(), end.source.as_deref());
        UsageRow { at_us, thread_id: thread_id.map(str::to_owned), turn_id, answered, ..UsageRow::default() }
    }

    /// A report of tokens, in the row of its turn.
    fn reported(&mut self, report: Report, row: UsageRow, conversation: &Conversation) -> Option<UsageRow> {
        let thread_id = row.thread_id.as_deref()?;
        let thread = conversation.thread_of(thread_id);
        let of_turn = match (thread, row.turn_id.as_deref()) {
            (Some(thread), Some(turn_id)) if thread.running(turn_id).is_some() => OfTurn::Running,
            (Some(thread), Some(turn_id)) if thread.ended() == Some(turn_id) => OfTurn::JustEnded,
            (_, _) => OfTurn::Other,
        };
        let spent = self.thread(thread_id, |thread| thread.spent(report, of_turn))??;
        let model = self.model(Some(thread_id));
        // Tokens of no recorded turn are only in the account of the thread.
        let (turn_id, model) = if spent == Counts::default() { (None, None) } else { (row.turn_id.clone(), model) };
        Some(UsageRow { turn_id, model, spent, total: Some(report.total), ..row })
    }

    /// Ends the wait of a thread whose requests are all over.
    fn waits_over(&mut self, step: &Step<'_>, conversation: &Conversation, rows: &mut Vec<UsageRow>) {
        let thread_id = match &step.change {
            Change::Resolved(request, _) => request.place.thread_id.as_deref(),
            Change::TurnEnded { .. } | Change::ItemCompleted { .. } | Change::None => {
                step.message.and_then(|message| message.place.thread_id.as_deref())
            }
            Change::RunEnded
            | Change::TurnStarted { .. }
            | Change::Piece(_)
            | Change::ItemStarted { .. }
            | Change::SummaryPart
            | Change::Progress(_)
            | Change::Diff { .. }
            | Change::Plan
            | Change::Usage(_)
            | Change::Compacted { .. }
            | Change::Error { .. }
            | Change::Review { .. }
            | Change::Asked(_)
            | Change::Answered { .. } => None,
        };
        let Some(thread_id) = thread_id else { return };
        let key = thread_id.to_owned();
        let waits = self.threads.get(&key).is_some_and(|thread| thread.waits.is_some());
        let is_open = |request: &Request| request.place.thread_id.as_deref() == Some(thread_id);
        if waits && !conversation.open_requests().any(is_open) {
            let over = self.threads.change(&key, |thread| thread.waits.take());
            rows.extend(over.and_then(|(waits, _)| waits).map(|waits| waited(thread_id, waits, step.at_us)));
        }
    }

    fn model(&self, thread_id: Option<&str>) -> Option<String> {
        self.threads.get(&thread_id?.to_owned())?.model.clone()
    }

    /// Changes a thread, which may be new. An evicted thread counts as new at its next record.
    fn thread<R>(&mut self, thread_id: &str, change: impl FnOnce(&mut Metered) -> R) -> Option<R> {
        let key = thread_id.to_owned();
        if self.threads.get(&key).is_none() {
            self.threads.insert(key.clone(), Metered::default());
        }
        self.threads.change(&key, change).map(|(changed, _)| changed)
    }
}

/// The turn that a thread works on.
fn running(thread_id: Option<&str>, conversation: &Conversation) -> Option<String> {
    conversation.thread_of(thread_id?)?.works_on().map(str::to_owned)
}

fn waited(thread_id: &str, (turn_id, since_us): (Option<String>, u64), until_us: u64) -> UsageRow {
    let waited_us = until_us.saturating_sub(since_us);
    UsageRow { at_us: until_us, thread_id: Some(thread_id.to_owned()), turn_id, waited_us, ..UsageRow::default() }
}

/// The row of a turn without a reported end.
fn ended(at_us: u64, thread_id: Option<&str>, turn: &Turn, outcome: TurnEvent) -> Option<UsageRow> {
    let (thread_id, turn_id) = (thread_id.map(str::to_owned), Some(turn.id.clone()?));
    let began_us = turn.is_reported().then(|| turn.started_us.unwrap_or(turn.began_us));
    Some(UsageRow { at_us, thread_id, turn_id, began_us, outcome: Some(outcome), ..UsageRow::default() })
}
