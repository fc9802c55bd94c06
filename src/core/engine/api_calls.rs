//! API calls: answering a request, sending input to the model, interrupting a turn, calling the server; and the purposes of
//! our own calls to the server.
//!
//! Lines from API callers take the same path as client lines. No call blocks here.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use super::model::{ApiCallId, ApiRequest, Now, OverruledRow, RequestSource, Unready, Verdict};
use super::purpose::Purpose;
use super::requests::{Caller, Explanation};
use super::turn_gate::{Prepared, Queued};
use super::{
    ApiReply, Decision, Effect, Engine, Form, LinkEffect, OwnLine, Passage, Seen, Warning, event_in, free_line, inject,
    own_line,
};
use crate::invariants::holds;
use crate::protocol::{Method, inject_items_params, notification_line};
use crate::wire::{Body, Conn, Members, Message, Side};

/// Interrupts waiting for a turn to begin.
const INTERRUPTS_MAX: usize = 64;

/// How long an interrupt waits for the turn of the `turn/start` forwarded just before it.
const INTERRUPT_WAIT_MAX: Duration = Duration::from_secs(2);

/// Interrupts for the next turns of threads: caller, thread and deadline, oldest first.
#[derive(Debug, Default)]
pub(super) struct Interrupts(VecDeque<(ApiCallId, String, Duration)>);

impl Interrupts {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn check(&self) {
        holds!("interrupts.within-limit", self.0.len() <= INTERRUPTS_MAX);
        let callers: BTreeSet<ApiCallId> = self.0.iter().map(|(api_call, ..)| *api_call).collect();
        holds!("interrupts.caller-waits-once", callers.len() == self.0.len());
    }

    /// Queues an interrupt. Returns the caller if the queue is full.
    fn push(&mut self, elapsed: Duration, api_call: ApiCallId, thread_id: String) -> Option<ApiCallId> {
        if self.0.len() >= INTERRUPTS_MAX {
            return Some(api_call);
        }
        self.0.push_back((api_call, thread_id, elapsed + INTERRUPT_WAIT_MAX));
        None
    }

    /// The callers that wait for a turn of this thread.
    fn take(&mut self, thread_id: &str) -> Vec<ApiCallId> {
        let (waited, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.0).into_iter().partition(|(_, of, _)| of == thread_id);
        self.0 = kept;
        waited.into_iter().map(|(api_call, ..)| api_call).collect()
    }

    /// All callers that wait.
    pub(super) fn take_all(&mut self) -> Vec<ApiCallId> {
        self.0.drain(..).map(|(api_call, ..)| api_call).collect()
    }

    /// The deadline of the oldest interrupt.
    pub(super) fn due(&self) -> Option<Duration> {
        self.0.front().map(|(.., due)| *due)
    }

    /// Rejects interrupts whose turn has not begun in time.
    pub(super) fn tick(&mut self, elapsed: Duration, effects: &mut Vec<Effect>) {
        while let Some((api_call, ..)) = self.0.pop_front_if(|(.., due)| *due <= elapsed) {
            effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::NoActiveTurn)));
        }
    }

    /// Rejects all interrupts: the server has ended.
    pub(super) fn server_ended(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(
            self.0
                .drain(..)
                .map(|(api_call, ..)| Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotReady(Unready::Ended)))),
        );
    }
}

impl Engine {
    /// Sends the reason for a decline to the model, in the same write as the decline if the turn continues.
    pub(super) fn explain(&mut self, effects: &mut Vec<Effect>) {
        for Explanation { thread_id, turn_id, reason } in self.requests.take_explanations() {
            // Without a connection of the hub, nobody would get the response to the call.
            let Some(turn_id) = turn_id.filter(|_| self.may_call() && !self.is_safe()) else {
                self.threads.keep_reason(&thread_id, reason);
                continue;
            };
            let input = json!([{ "type": "text", "text": reason }]);
            let params = json!({ "threadId": thread_id, "input": input, "expectedTurnId": turn_id }).to_string();
            let purpose = Purpose::Reason { thread_id, reason };
            let (_, bytes) = self.calls.call_server(Conn::OWN, Method::TurnSteer.name(), Some(&params), purpose);
            let is_own = |effect: &&mut Effect| matches!(effect, Effect::Link(LinkEffect::Inject(last)) if last.conn == Conn::OWN);
            let last = match effects.iter_mut().rev().find(is_own) {
                Some(Effect::Link(LinkEffect::Inject(injection))) => Some(injection),
                Some(_) | None => None,
            };
            match last {
                Some(injection) => injection.lines.push(free_line(bytes)),
                None => effects.push(inject(Conn::OWN, vec![free_line(bytes)])),
            }
        }
    }

    /// Builds the call that delivers queued decline reasons before a thread's next turn.
    pub(super) fn reasons_ahead(&mut self, conn: Conn, thread_id: &str) -> Option<Vec<u8>> {
        let reasons = self.threads.take_reasons(thread_id);
        if reasons.is_empty() {
            return None;
        }
        let params = inject_items_params(thread_id, &[("user", reasons.iter().map(String::as_str).collect())]);
        let name = Method::ThreadInjectItems.name();
        let (_, call) = self.calls.call_server(conn, name, Some(&params), Purpose::ReasonAhead);
        self.own_items.expect_plain(thread_id, &call);
        Some(call)
    }

    /// Handles a request of an API caller.
    pub(super) fn api_request(
        &mut self,
        now: Now,
        api_call: ApiCallId,
        request: ApiRequest,
        server_listens: bool,
        effects: &mut Vec<Effect>,
    ) {
        if self.is_safe() && request.writes() {
            return self.refuse_caller(api_call, effects);
        }
        match request {
            ApiRequest::Respond { request_id, given, source, by } => {
                let caller = Caller { api_call, source, by, server_listens };
                self.requests.api_answers(now, caller, &request_id, &given, effects);
            }
            ApiRequest::Attach | ApiRequest::Stop | ApiRequest::Start
                if !self.clients.own().is_served() || self.owner.outlives_us() =>
            {
                effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotServed)));
            }
            ApiRequest::Attach => {
                let reply = self.attach(api_call, server_listens, effects);
                effects.push(Effect::Link(LinkEffect::Reply(api_call, reply)));
            }
            ApiRequest::Stop | ApiRequest::Start | ApiRequest::HandOver { .. } => {
                effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotServed)));
            }
            ApiRequest::Rpc { .. }
            | ApiRequest::Interrupt { .. }
            | ApiRequest::Input { .. }
            | ApiRequest::Overrule { .. }
                if !server_listens || !self.is_initialized(Conn::OWN) =>
            {
                effects
                    .push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::NotReady(self.unready(server_listens)))));
            }
            ApiRequest::Rpc { method, params, by } => {
                if let Some(thread_id) = Self::turn_of_api_call(&method, params.as_deref()) {
                    let queued = Queued::Rpc { api_call, method, params, by };
                    if let Some(queued) = self.hold_api_call_for_budget(now, &thread_id, queued, effects) {
                        self.api_turn(now, &thread_id, queued, effects);
                    }
                    return;
                }
                match params.as_deref().and_then(thread_in).filter(|thread_id| self.assembly.holds.holds(thread_id)) {
                    Some(thread_id) => {
                        self.hold_api_request(now, &thread_id, Queued::Rpc { api_call, method, params, by }, effects);
                    }
                    None => self.call_server(api_call, (&method, params.as_deref()), &by, effects),
                }
            }
            ApiRequest::Interrupt { thread_id } => self.interrupt(now, api_call, thread_id, effects),
            ApiRequest::Overrule { review_id, applies, source, by } => {
                self.overrule(api_call, review_id, applies, (source, &by), effects);
            }
            ApiRequest::Input { text, thread_id } => {
                self.hold_or_send_input(now, api_call, &text, thread_id, effects);
            }
        }
    }

    /// Whether the connection on which we call is ready; the one of a client is, or the client waits for it.
    fn may_call(&self) -> bool {
        !self.owner.watches_threads() || self.is_initialized(Conn::OWN)
    }

    /// Why the server takes no call now.
    pub(super) fn unready(&self, server_listens: bool) -> Unready {
        match (server_listens, self.clients.own().is_served()) {
            (true, false) => Unready::NotInitialized,
            (true, true) => Unready::Starting,
            // A hub connects to its server again.
            (false, true) if !self.may_call() => match self.has_had_client {
                true => Unready::Starting,
                false => Unready::WithoutClient,
            },
            (false, _) => Unready::NotReading,
        }
    }

    /// Calls the server for an API caller.
    pub(super) fn call_server(
        &mut self,
        api_call: ApiCallId,
        (method, params): (&str, Option<&str>),
        by: &str,
        effects: &mut Vec<Effect>,
    ) {
        let (key, line) = self.calls.call_server(Conn::OWN, method, params, Purpose::Rpc(api_call));
        // Secrecy rules apply as for the client's own call, and to the response too.
        let body = Body::parse(&line);
        let mut verdict = Verdict::Open;
        if let (Some(event), Some(call)) = (event_in(&body), self.calls.to_server.get_mut(key)) {
            (verdict, call.secret) = self.secrets.request(&event, &line);
            self.requests.settings_called(&event);
            if let (Some(Method::ThreadApproveDenied), Some(params)) = (event.method, event.params) {
                self.denials.called_by_client(params);
                call.overrules = OverruledRow::of(params, RequestSource::Api, by).map(Box::new);
            }
        }
        let line = own_line(Side::Server, &verdict, &body, line.clone());
        effects.push(inject(Conn::OWN, vec![line]));
    }

    /// Interrupts the running turn, or waits behind the held lines of its thread.
    fn interrupt(&mut self, now: Now, api_call: ApiCallId, thread_id: Option<String>, effects: &mut Vec<Effect>) {
        let Some(thread_id) = self.threads.named_or_running(thread_id) else {
            effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::ThreadNotFound)));
            return;
        };
        if self.assembly.holds.holds(&thread_id) {
            self.hold_api_request(now, &thread_id, Queued::Interrupt { api_call }, effects);
        } else if let Some(turn_id) = self.threads.turn_in(&thread_id).map(str::to_owned) {
            self.interrupt_turn(api_call, &thread_id, &turn_id, effects);
        } else if self.withdraw_turn(now, &thread_id, effects) {
            effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::Interrupted { thread_id })));
        } else {
            let is_known = self.threads.knows(&thread_id);
            let reply = if is_known { ApiReply::NoActiveTurn } else { ApiReply::ThreadNotFound };
            effects.push(Effect::Link(LinkEffect::Reply(api_call, reply)));
        }
    }

    fn interrupt_turn(&mut self, api_call: ApiCallId, thread_id: &str, turn_id: &str, effects: &mut Vec<Effect>) {
        let params = json!({ "threadId": thread_id, "turnId": turn_id }).to_string();
        let purpose = Purpose::Interrupt { api_call, thread_id: thread_id.to_owned() };
        let name = Method::TurnInterrupt.name();
        let (_, line) = self.calls.call_server(Conn::OWN, name, Some(&params), purpose);
        effects.push(inject(Conn::OWN, vec![free_line(line)]));
    }

    /// Interrupts a turn after the held lines of its thread were released: the running turn, or the one those lines
    /// start, as soon as the server names it.
    pub(super) fn interrupt_behind(
        &mut self,
        now: Now,
        api_call: ApiCallId,
        thread_id: String,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(turn_id) = self.threads.turn_in(&thread_id).map(str::to_owned) {
            self.interrupt_turn(api_call, &thread_id, &turn_id, effects);
        } else if let Some(refused) = self.interrupts.push(now.elapsed, api_call, thread_id) {
            effects.push(Effect::Link(LinkEffect::Reply(refused, ApiReply::NoActiveTurn)));
        }
    }

    /// A turn started: interrupts it if an API caller asked for that.
    pub(super) fn turn_started(&mut self, message: &Message<'_>, effects: &mut Vec<Effect>) {
        let Some((thread_id, turn_id)) = turn_of(message) else { return };
        for api_call in self.interrupts.take(&thread_id) {
            self.interrupt_turn(api_call, &thread_id, &turn_id, effects);
        }
        self.unstarted.forget(&thread_id);
        self.threads.turn_started(&thread_id, turn_id);
    }

    /// Sends input to the model with pending context, or queues it behind held lines.
    fn hold_or_send_input(
        &mut self,
        now: Now,
        api_call: ApiCallId,
        text: &str,
        thread_id: Option<String>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(thread_id) = self.threads.named_or_last(thread_id) else {
            effects.push(Effect::Link(LinkEffect::Reply(api_call, ApiReply::ThreadNotFound)));
            return;
        };
        if let Some(row) = self.requests.gate(&thread_id) {
            let gated = ApiReply::Gated {
                request_id: row.request_id.clone(),
                request_type: row.kind.request_type(),
                requested_at_us: row.requested_at_us,
            };
            effects.push(Effect::Link(LinkEffect::Reply(api_call, gated)));
            return;
        }
        let queued = Queued::ApiInput { api_call, text: text.to_owned() };
        if let Some(queued) = self.hold_api_call_for_budget(now, &thread_id, queued, effects) {
            self.api_turn(now, &thread_id, queued, effects);
        }
    }

    /// Sends input to the model now, with pending context and `prepared`.
    pub(super) fn send_input(
        &mut self,
        now: Now,
        api_call: ApiCallId,
        text: &str,
        thread_id: String,
        prepared: Option<Prepared>,
        effects: &mut Vec<Effect>,
    ) {
        self.load(&thread_id, effects);
        let running = self.threads.turn_in(&thread_id).map(str::to_owned);
        let params = json!({ "threadId": thread_id, "input": [{ "type": "text", "text": text }] }).to_string();
        let purpose = Purpose::Turn { api_call, thread_id: thread_id.clone(), running };
        let (key, line) = self.calls.call_server(Conn::OWN, Method::TurnStart.name(), Some(&params), purpose);
        if let Some(call) = self.calls.to_server.get_mut(key) {
            call.thread_id = Some(thread_id);
        }
        let body = Body::parse(&line);
        let mut decision = Decision::default();
        if let Some(event) = event_in(&body) {
            let (conn, verdict) = (Conn::OWN, Verdict::Open);
            let seen = Seen { now, conn, line: &line, verdict, body: &body, opened: Some(key) };
            self.start_turn(&seen, &event, prepared, &mut decision, effects);
        }
        let mut lines = decision.before;
        lines.push(match decision.line {
            Passage::Replace(own) => own,
            Passage::Forward | Passage::Withhold => free_line(line.clone()),
        });
        effects.push(inject(Conn::OWN, lines));
    }

    /// The server responds to one of our own calls. `message` is the response as an API caller may see it.
    pub(super) fn own_call_answered(&mut self, purpose: Purpose, message: &Message<'_>, effects: &mut Vec<Effect>) {
        let reply = match (purpose, message.refusal(), message.result) {
            (Purpose::ReasonAhead, Some(_), _) => return effects.push(Effect::Warn(Warning::ReasonNotSent)),
            (Purpose::ReasonAhead, None, _)
            | (Purpose::Initialize, Some(_), _)
            | (Purpose::Context | Purpose::Fragments { .. } | Purpose::Unwatch | Purpose::Look, _, _)
            | (Purpose::Watch { .. }, None, _) => return,
            (Purpose::Watch { thread_id }, Some(_), _) => return self.watched.refused(&thread_id),
            (Purpose::Initialize, None, result) => {
                self.clients.own_mut().initialized_with = result.map(ToOwned::to_owned);
                let bytes = notification_line(Method::Initialized);
                let line = OwnLine { to: Side::Server, form: Form::Verbatim, bytes };
                effects.push(inject(Conn::OWN, vec![line]));
                self.watch_all(effects);
                return;
            }
            (Purpose::Reason { thread_id, reason }, Some(_), _) => return self.threads.keep_reason(&thread_id, reason),
            (Purpose::Reason { .. }, None, _) => return,
            (Purpose::Rpc(api_call), Some(error), _) => {
                (api_call, ApiReply::Answered(format!("{{\"error\":{}}}", error.get())))
            }
            (Purpose::Rpc(api_call), None, result) => {
                let result = result.map_or("null", |result| result.get());
                (api_call, ApiReply::Answered(format!("{{\"result\":{result}}}")))
            }
            (Purpose::Interrupt { api_call, thread_id }, None, _) => (api_call, ApiReply::Interrupted { thread_id }),
            (Purpose::Interrupt { api_call, .. } | Purpose::Overrule { api_call, .. }, Some(error), _) => {
                (api_call, ApiReply::Answered(format!("{{\"error\":{}}}", error.get())))
            }
            (Purpose::Overrule { api_call, thread_id, turn_id }, None, _) => {
                (api_call, ApiReply::Overruled { thread_id, turn_id })
            }
            (Purpose::Turn { api_call, thread_id, .. }, Some(error), _) => {
                self.turn_refused(&thread_id, effects);
                let message = Members::of(error).and_then(|error| error.text("message")).unwrap_or_default();
                // Releases word it differently.
                let words = ["thread not found", "invalid thread id", "conversation not found"];
                let not_found = words.iter().any(|words| message.contains(words));
                let refused = ApiReply::Answered(format!("{{\"error\":{}}}", error.get()));
                (api_call, if not_found { ApiReply::ThreadNotFound } else { refused })
            }
            (Purpose::Turn { api_call, thread_id, running }, None, result) => {
                let turn = result.and_then(Members::of).and_then(|result| result.get("turn")).and_then(Members::of);
                let turn_id = turn.and_then(|turn| turn.text("id")).unwrap_or_default();
                let steered = running.as_ref() == Some(&turn_id);
                self.turn_accepted(&thread_id, &turn_id);
                (api_call, ApiReply::Turn { thread_id, turn_id, steered })
            }
        };
        effects.push(Effect::Link(LinkEffect::Reply(reply.0, reply.1)));
    }
}

/// The outcome of a completed turn, as JSON.
pub(super) fn outcome(message: &Message<'_>) -> Option<String> {
    let (thread_id, turn_id) = turn_of(message)?;
    let turn = Members::of(Members::of(message.params?)?.get("turn")?)?;
    let read = |name: &str| turn.get(name).and_then(|value| serde_json::from_str::<Value>(value.get()).ok());
    let (status, error) = (read("status"), read("error"));
    Some(json!({ "thread_id": thread_id, "turn_id": turn_id, "status": status, "error": error }).to_string())
}

/// The status of the turn in a notification.
pub(super) fn turn_status(message: &Message<'_>) -> Option<String> {
    Members::of(Members::of(message.params?)?.get("turn")?)?.text("status")
}

/// The thread and turn of a notification.
pub(super) fn turn_of(message: &Message<'_>) -> Option<(String, String)> {
    let params = Members::of(message.params?)?;
    let turn_id = Members::of(params.get("turn")?)?.text("id")?;
    Some((params.text("threadId")?, turn_id))
}

fn thread_in(params: &str) -> Option<String> {
    let params: &serde_json::value::RawValue = serde_json::from_str(params).ok()?;
    Members::of(params)?.text("threadId")
}
