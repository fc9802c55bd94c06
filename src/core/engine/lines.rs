//! One line of a side: the only place that decides whether it goes on, what goes ahead of it, and how it is recorded.
//!
//! A line is judged for secrets first, which also opens or completes its call. Then one `match` over its event, its call and
//! its thread makes the [`Decision`].

use super::api_calls::{outcome, turn_of, turn_status};
use super::assembly::thread_of;
use super::attached_client::{HandshakeStage, answer_without_client};
use super::config_warning::ConfigWarning;
use super::context::Projection;
use super::model::{
    Decision, Form, Incoming, Injection, LedgerEntry, MaskedLine, OverruledRow, OwnLine, Passage, RequestSource,
    Verdict,
};
use super::open_calls::{CallKey, Caller, OpenCall};
use super::purpose::Purpose;
use super::requests::RequestKind;
use super::turn_gate::Prepared;
use super::verdict::{self, Judged};
use super::{Effect, Engine, LinkEffect, Now, Omitted, OmittedReason, requests};
use crate::invariants::holds;
use crate::protocol::{Event, ItemPlace, Method};
use crate::wire::{Body, Conn, Message, RpcId, Side, stands_verbatim};

/// A line being processed.
pub(super) struct Seen<'a> {
    pub(super) now: Now,
    pub(super) conn: Conn,
    pub(super) line: &'a [u8],
    pub(super) verdict: Verdict,
    pub(super) body: &'a Body<'a>,
    /// The call that this line opens.
    pub(super) opened: Option<CallKey>,
}

impl Engine {
    /// Decides on what a side of a connection wrote, and appends the effects that come before it. `None` if the engine holds the line.
    pub fn read(
        &mut self,
        now: Now,
        conn: Conn,
        from: Side,
        incoming: Incoming<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<Decision> {
        let (record, passes) = match (incoming, from) {
            (Incoming::Line(line), Side::Server) if self.is_inert(conn, line.bytes) => {
                return Some(Decision { record: Some(Form::Verbatim), ..Decision::default() });
            }
            (Incoming::Line(line), _) => {
                let body = Body::parse(line.bytes);
                if from == Side::Client
                    && (self.hold_for_budget(now, conn, line, &body, effects)
                        || self.hold_if_needed(now, conn, line, &body, effects))
                {
                    return None;
                }
                return Some(self.decide(now, (conn, from), line.bytes, &body, None, effects));
            }
            (Incoming::Piece, Side::Client) => (None, true),
            (Incoming::Piece, Side::Server) => (None, self.clients.of_mut(conn).receives_piece()),
            (Incoming::LastPiece { line_bytes }, _) => {
                self.requests.workspaces.line_skipped();
                let omitted = Omitted { reason: OmittedReason::Size, line_bytes, method: None, id: None };
                let passes = from == Side::Client || self.clients.of_mut(conn).receives_last_piece();
                (Some(Form::Omitted(Box::new(omitted))), passes)
            }
        };
        let line = if passes { Passage::Forward } else { Passage::Withhold };
        Some(Decision { record, line, ..Decision::default() })
    }

    /// Whether nothing here depends on what this line of the server says, so that it need not be parsed. Most lines of a busy
    /// session are such.
    fn is_inert(&mut self, conn: Conn, line: &[u8]) -> bool {
        self.clients.of(conn).is_owner()
            && self.is_on_record(conn)
            && self.secrets.is_quiet()
            && self.context.hides_only_envelopes()
            && self.glance.is_plain_notification(line, |method| Method::of(method).is_some_and(Method::is_inert))
    }

    /// Decides on a whole line of a side of a connection that waits for nothing more.
    pub(super) fn decide(
        &mut self,
        now: Now,
        (conn, from): (Conn, Side),
        line: &[u8],
        body: &Body<'_>,
        prepared: Option<Prepared>,
        effects: &mut Vec<Effect>,
    ) -> Decision {
        let event = event_in(body);
        let Judged { verdict, opened, completed } =
            self.secrets.judge(conn, from, event.as_ref(), line, &mut self.calls);
        let mut decision = Decision { record: Some(form(&verdict, body, line)), ..Decision::default() };
        self.put_on_record(conn, from, event.as_ref(), &mut decision, effects);
        let seen = Seen { now, conn, line, verdict, body, opened };
        match (from, &event) {
            (Side::Client, None) => {}
            (Side::Client, Some(event)) if event.name().is_none() => {
                let client = self.clients.of(conn).name.name.as_deref().unwrap_or("client");
                self.requests.client_answers(&seen, event, client, &mut decision, effects);
            }
            (Side::Client, Some(event)) => self.client_calls(&seen, event, prepared, &mut decision, effects),
            (Side::Server, None) => {
                if !self.clients.listens(conn) {
                    decision.line = Passage::Withhold;
                }
            }
            (Side::Server, Some(event)) => self.server_writes(&seen, event, completed, &mut decision, effects),
        }
        decision.then.extend(self.secrets.take_warning().map(Effect::Warn));
        self.requests.keep_unread(effects);
        self.requests.keep_unread(&mut decision.then);
        self.check_decision((conn, from), &seen.verdict, &decision);
        self.line_decided();
        decision
    }

    /// Checks the decision about a line.
    fn check_decision(&self, (conn, from): (Conn, Side), verdict: &Verdict, decision: &Decision) {
        let Decision { before, record, hold, line, mark, .. } = decision;
        let is_withheld = decision.is_withheld();
        holds!("lines.on-record-with-their-connection", record.is_some() == self.is_on_record(conn));
        holds!("lines.nothing-waits-for-a-withheld-line", !is_withheld || hold.is_none());
        holds!("lines.marks-follow-lines", mark.is_none() || !is_withheld);
        holds!("lines.marks-are-about-answers-of-clients", mark.is_none() || from == Side::Client);
        holds!("lines.ahead-only-of-clients-lines", before.is_empty() || (from == Side::Client && !is_withheld));
        if let Passage::Replace(own) = line {
            holds!("lines.replaced-on-their-way", own.to != from);
            holds!("lines.replaced-with-something", !own.bytes.is_empty());
        }
        if matches!(verdict, Verdict::Secret) {
            let is_omitted = |form: &Form| matches!(form, Form::Omitted(_));
            holds!("lines.secrets-are-not-recorded", record.as_ref().is_none_or(is_omitted));
            holds!("lines.secrets-are-not-recorded-ahead", before.iter().all(|own| is_omitted(&own.form)));
            if let Passage::Replace(own) = line {
                holds!("lines.secrets-are-not-recorded-changed", is_omitted(&own.form));
            }
        }
    }

    /// A call or a notification of the client.
    fn client_calls(
        &mut self,
        seen: &Seen<'_>,
        event: &Event<'_>,
        prepared: Option<Prepared>,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) {
        self.requests.settings_called(event);
        match (self.clients.of(seen.conn).stage(), event.id, event.method) {
            (Some(HandshakeStage::Attached), Some(id), Some(Method::Initialize)) => {
                decision.line = Passage::Withhold;
                self.greet(id, event, seen.opened, &mut decision.then);
            }
            (Some(HandshakeStage::Answered), None, Some(Method::Initialized)) => {
                decision.line = Passage::Withhold;
                self.clients.own_mut().has_initialized();
            }
            (Some(_), _, _) if self.calls.to_server.is_ambiguous(seen.opened, seen.now.elapsed) => {
                for other in self.calls.to_server.same_id(seen.opened) {
                    self.context.is_ambiguous(other, effects);
                }
            }
            (None, Some(_), Some(Method::Initialize)) => self.client_initializes(seen.conn, event, &mut decision.then),
            (_, _, Some(Method::TurnStart)) => self.start_turn(seen, event, prepared, decision, effects),
            // On pipes a steered turn stays as it is written.
            (_, _, Some(Method::TurnSteer)) if self.owner.has_many_clients() => {
                self.steer_turn(seen, event, decision, effects)
            }
            (
                _,
                _,
                Some(Method::ThreadStart | Method::ThreadResume | Method::ThreadFork | Method::ThreadCompactStart),
            ) => {
                if !self.is_safe() {
                    self.call_about_thread(seen, event, decision);
                    self.give_variables(seen, event, decision);
                }
            }
            (_, _, Some(Method::ThreadApproveDenied)) => {
                if let Some(params) = event.params {
                    self.denials.called_by_client(params);
                    let client = self.clients.of(seen.conn).name.name.as_deref().unwrap_or("client");
                    let row = OverruledRow::of(params, RequestSource::Client, client);
                    self.calls.to_server.overrules(seen.opened, row);
                }
            }
            (_, _, _) => {}
        }
    }

    /// Puts the context of a thread in front of the words that join its running turn.
    fn steer_turn(&mut self, seen: &Seen<'_>, event: &Event<'_>, decision: &mut Decision, effects: &mut Vec<Effect>) {
        if !self.is_safe() && !self.is_aside(thread_of(event).as_deref()) {
            self.load_context(seen, event, None, decision, effects);
        }
    }

    /// Whether a client uses a thread for work of its own, such as a title, which the user's context is not for.
    pub(super) fn is_aside(&self, thread_id: Option<&str>) -> bool {
        let thread = thread_id.and_then(|thread_id| self.threads.find(thread_id));
        thread.is_some_and(|thread| !thread.description().kind.is_user())
    }

    /// Sends the context of a thread along with a turn: ahead of it, and in front of its words.
    pub(super) fn start_turn(
        &mut self,
        seen: &Seen<'_>,
        event: &Event<'_>,
        prepared: Option<Prepared>,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) {
        let thread = thread_of(event);
        if self.is_safe() || self.is_aside(thread.as_deref()) {
            return;
        }
        let own = |bytes| own_line(Side::Server, &seen.verdict, seen.body, bytes);
        let reasons = thread.and_then(|thread_id| self.reasons_ahead(seen.conn, &thread_id));
        decision.before.extend(reasons.map(own));
        let (fragments, projection) = match self.assembly.is_set() {
            true => self.before_turn(seen.conn, event, prepared),
            false => (None, None),
        };
        decision.before.extend(fragments.into_iter().map(own));
        self.load_context(seen, event, projection, decision, effects);
    }

    fn load_context(
        &mut self,
        seen: &Seen<'_>,
        event: &Event<'_>,
        projection: Option<Projection>,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) {
        if self.owner.has_many_clients() {
            self.context.words_given(seen.line, event);
        }
        let own = |bytes| own_line(Side::Server, &seen.verdict, seen.body, bytes);
        let loaded = self.context.load(seen, event, projection, &mut self.calls, effects).unwrap_or_default();
        loaded.ahead.iter().for_each(|call| self.own_items.expect(call));
        decision.before.extend(loaded.ahead.into_iter().map(own));
        if let Some(bytes) = loaded.instead {
            decision.line = Passage::Replace(own(bytes));
        }
    }

    /// A message of the server.
    fn server_writes(
        &mut self,
        seen: &Seen<'_>,
        event: &Event<'_>,
        completed: Option<Box<OpenCall>>,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) {
        self.has_had_client |= seen.conn != Conn::OWN && self.client(seen.conn).is_some();
        if !self.clients.of(seen.conn).receives(event, completed.as_deref()) || self.is_about_own_call(seen.conn, event)
        {
            decision.line = Passage::Withhold;
        }
        match (event.id, event.name()) {
            (_, None) => {
                self.is_draining |= self.owner.outlives_us() && event.is_refused_by_draining_server();
                // This includes late responses to calls that are no longer open: the client never sees responses to ours.
                let is_ours = event.is_response() && event.id.is_some_and(|id| self.calls.is_own(&RpcId::from_raw(id)));
                let purpose = completed.and_then(|call| self.call_answered(seen, call, event, decision, effects));
                if is_ours {
                    decision.line = Passage::Withhold;
                    let stripped = self.context.stripped(seen.line, event, &self.threads);
                    match (purpose, stripped.as_deref().map(Body::parse)) {
                        (Some(purpose), Some(Body::Message(event))) => {
                            self.own_call_answered(purpose, &event, &mut decision.then)
                        }
                        (Some(purpose), _) => self.own_call_answered(purpose, event, &mut decision.then),
                        (None, _) => {}
                    }
                }
            }
            (Some(id), Some(method)) => {
                self.requests.server_asks(method, event.params);
                if event.method == Some(Method::CurrentTimeRead) {
                    self.time_is_asked(event.params, &mut decision.then);
                }
                if decision.is_withheld() && RequestKind::of(method).is_none() && !self.owner.has_many_clients() {
                    effects.push(answer_without_client(id));
                }
                if self.clients.of(seen.conn).answers_alone(method)
                    && let Some(call) = seen.opened.and_then(|call| self.calls.to_client.get_mut(call))
                {
                    call.for_client_alone = Some(id.to_owned());
                }
                let about = self.items.of(&ItemPlace::of(event.params));
                self.requests.opened(seen, event, about, decision, effects);
                self.explain(effects);
            }
            (None, Some(_)) => self.server_notifies(seen, event, decision, effects),
        }
        if matches!(decision.line, Passage::Forward)
            && let Some(bytes) = self.context.stripped(seen.line, event, &self.threads)
        {
            decision.line = Passage::Replace(own_line(Side::Client, &seen.verdict, seen.body, bytes));
        }
    }

    /// Whether a notification is about a call of ours, which the client knows nothing of.
    fn is_about_own_call(&mut self, conn: Conn, event: &Event<'_>) -> bool {
        match event.method {
            Some(Method::DeprecationNotice) => {
                self.calls.to_server.deprecated(conn, event.params) == Some(Caller::Relay)
            }
            _ => event.named_request().is_some_and(|id| self.calls.is_own(&RpcId::from_raw(id))),
        }
    }

    /// The server responds to a call: settles what depends on it. Returns the purpose of a call of our own.
    fn call_answered(
        &mut self,
        seen: &Seen<'_>,
        mut call: Box<OpenCall>,
        event: &Event<'_>,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) -> Option<Purpose> {
        self.subscribed(seen.conn, &call, event, &mut decision.then);
        if call.method == Some(Method::ThreadRead)
            && let Some(result) = event.result
        {
            self.threads.described_in(result);
        }
        if self.owner.watches_threads() && matches!(call.method, Some(Method::ThreadResume | Method::ThreadRead)) {
            self.thread_reported(seen.now, seen.conn, event, &mut decision.then);
        }
        if call.method.is_some_and(Method::opens_thread) {
            self.requests.thread_opened(event.result);
            if let Some(result) = event.result {
                self.variables_taken(seen.conn, call.method, call.gives.take(), result);
            }
        }
        if let (Some(chosen), Some(_)) = (call.chosen.take(), event.result) {
            let (thread_id, settings) = *chosen;
            self.threads.set(&thread_id, settings);
        }
        if call.method == Some(Method::Initialize) {
            self.server_initialized(seen.conn, event, &mut decision.then);
        }
        if let Some(row) = call.overrules.take() {
            let is_refused = event.refusal().is_some();
            self.denials.answered(&row.review_id, is_refused);
            if !is_refused {
                let row = OverruledRow { at_us: seen.now.unix_us, ..*row };
                effects.push(Effect::keep(LedgerEntry::DenialOverruled(Box::new(row))));
            }
        }
        self.context.answered(seen.now, event, &mut call, &mut self.threads, effects);
        if let Some(asked) = call.asked.take() {
            self.answered_about_thread(seen.now, call.key, asked, event, effects);
        }
        match call.purpose {
            Some(Purpose::Fragments { thread_id, sent }) => {
                self.fragments_answered(seen.now, call.key, thread_id, sent, event, effects);
                None
            }
            other => other,
        }
    }

    /// Tracks threads, turns and items.
    fn server_notifies(
        &mut self,
        seen: &Seen<'_>,
        event: &Event<'_>,
        decision: &mut Decision,
        effects: &mut Vec<Effect>,
    ) {
        let now = seen.now;
        match (event.method.map(Method::current), event.params) {
            (Some(Method::ThreadStarted), Some(params)) => {
                self.threads.mentioned_in(params, effects);
            }
            (Some(Method::ThreadSettingsUpdated), Some(params)) => {
                self.threads.settings_reported(params);
                self.requests.workspaces.settings_reported(params);
            }
            (Some(Method::ThreadClosed), Some(params)) => self.thread_closed(params, effects),
            (Some(Method::ThreadStatusChanged), Some(params)) => {
                self.thread_status_changed(seen.now, params, &mut decision.then);
                self.unstarted_status(seen.conn, params, &mut decision.then);
            }
            (Some(Method::Error), Some(params)) => self.unstarted_error(params),
            (Some(Method::ThreadCompacted), Some(params)) => self.is_compacted(params, effects),
            (Some(Method::TurnStarted), _) => {
                self.turn_started(event, effects);
                self.turn_watched(seen.conn, event, &mut decision.then);
                self.look_at_budget(seen.now, true, &mut decision.then);
            }
            (Some(Method::TurnCompleted), _) => self.turn_completed(now, event, effects),
            (Some(Method::ItemStarted), Some(params)) => {
                if let Some((place, changes)) = self.items.started(params) {
                    self.requests.shown(&place, changes, effects);
                }
            }
            (Some(Method::ItemCompleted), Some(params)) => {
                self.threads.spawned_in(params);
                self.item_completed(params, effects);
                if !(self.requests.is_empty() && self.items.is_empty())
                    && let Some(place) = self.items.completed(params)
                {
                    self.requests.item_completed(now, &place, effects);
                }
            }
            (Some(Method::ReviewStarted), Some(params)) => self.requests.workspaces.reviewed(params),
            (Some(Method::ReviewCompleted), Some(params)) => {
                self.requests.workspaces.reviewed(params);
                self.denials.reviewed(params);
            }
            (Some(Method::RateLimitsUpdated), Some(params)) => {
                decision.then.extend(self.rate_limits.reported(params).map(Effect::Note));
            }
            (Some(Method::ConfigWarning), Some(params)) => {
                let warning = ConfigWarning::of(params).map(Box::new);
                decision.then.extend(warning.map(Effect::PublishConfigWarning));
            }
            (Some(Method::RequestResolved), Some(params)) => self.requests.server_resolved(now, params, effects),
            (Some(Method::RawResponseItemCompleted), _) => {
                // The record keeps the echo of an item that we injected; the client does not see it.
                if self.own_items.is_echo(seen.conn, event) {
                    decision.line = Passage::Withhold;
                }
            }
            (_, _) => {}
        }
    }

    fn turn_completed(&mut self, now: Now, event: &Event<'_>, effects: &mut Vec<Effect>) {
        let Some((thread_id, turn_id)) = turn_of(event) else { return };
        self.unstarted.forget(&thread_id);
        if !self.threads.turn_completed(&thread_id, &turn_id) {
            return;
        }
        self.consult_about_turn(event, &thread_id, &turn_id, effects);
        let is_completed = turn_status(event).as_deref() == Some("completed");
        self.context.turn_ended(&turn_id, is_completed, effects);
        self.own_items.turn_is_over(&thread_id);
        self.watched_turn_completed(&thread_id, effects);
        self.look_at_budget(now, !self.threads.are_idle(), effects);
        let is_of_user = self.threads.find(&thread_id).is_none_or(|thread| thread.description().kind.is_user());
        let place = ItemPlace { thread_id: Some(thread_id), turn_id: Some(turn_id), item_id: None };
        self.requests.turn_completed(now, &place, effects);
        if is_of_user && self.threads.of_users_are_idle() {
            effects.extend(outcome(event).map(Effect::NotifyIdle));
        }
    }
}

pub(super) fn event_in<'a>(body: &'a Body<'_>) -> Option<Event<'a>> {
    match body {
        Body::Message(message) => Some(Event::of(message)),
        Body::OtherJson | Body::Text | Body::Bytes => None,
    }
}

/// How a line is put on record.
pub(super) fn form(verdict: &Verdict, body: &Body<'_>, line: &[u8]) -> Form {
    match (verdict, body) {
        (Verdict::Secret, _) => verdict::omitted(body, line.len()),
        (Verdict::Masked(carrier), _) => match std::str::from_utf8(line).map(|line| carrier.masked(line)) {
            Ok(Ok(None)) => form(&Verdict::Open, body, line),
            Ok(Ok(Some(text))) => {
                let is_verbatim = stands_verbatim(text.as_bytes());
                Form::Masked(Box::new(MaskedLine { text, is_verbatim }))
            }
            Ok(Err(_)) | Err(_) => verdict::omitted(body, line.len()),
        },
        (Verdict::Open, Body::Message(_) | Body::OtherJson) if stands_verbatim(line) => Form::Verbatim,
        (Verdict::Open, Body::Message(_) | Body::OtherJson | Body::Text) => Form::Text,
        (Verdict::Open, Body::Bytes) => Form::Base64,
    }
}

/// Sends lines of ours to the server in one write.
pub(super) fn inject(conn: Conn, lines: Vec<OwnLine>) -> Effect {
    Effect::Link(LinkEffect::Inject(Injection { conn, lines, mark: None }))
}

/// A line of ours to the server that goes with no line of the client.
pub(super) fn free_line(bytes: Vec<u8>) -> OwnLine {
    own_free_line(Side::Server, bytes)
}

/// The same to either side.
pub(super) fn own_free_line(to: Side, bytes: Vec<u8>) -> OwnLine {
    let form = if stands_verbatim(&bytes) { Form::Verbatim } else { Form::Text };
    OwnLine { to, form, bytes }
}

/// A line of ours that goes with a line of this verdict and kind.
pub(super) fn own_line(to: Side, verdict: &Verdict, body: &Body<'_>, bytes: Vec<u8>) -> OwnLine {
    OwnLine { to, form: form(verdict, body, &bytes), bytes }
}

/// The answer for the ledger: as much of it as may stand in the record.
pub(super) fn kept_answer(seen: &Seen<'_>, message: &Message<'_>) -> String {
    match &seen.verdict {
        Verdict::Open => requests::answered(message),
        Verdict::Secret => requests::OMITTED.to_owned(),
        Verdict::Masked(carrier) => match std::str::from_utf8(seen.line).map(|line| carrier.masked(line)) {
            Ok(Ok(None)) => requests::answered(message),
            Ok(Ok(Some(masked))) => match Body::parse(masked.as_bytes()) {
                Body::Message(message) => requests::answered(&message),
                Body::OtherJson | Body::Text | Body::Bytes => requests::OMITTED.to_owned(),
            },
            Ok(Err(_)) | Err(_) => requests::OMITTED.to_owned(),
        },
    }
}
