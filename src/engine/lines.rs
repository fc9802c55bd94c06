//! Processes one line of a side: judges its secrecy, records it, and forwards, replaces or withholds it.

use super::api_calls::{outcome, turn_of};
use super::assembly::thread_of;
use super::attached_client::{OnCall, Passing, answer_without_client};
use super::context::OnTurn;
use super::open_calls::{CallKey, OpenCall};
use super::recording::{form, kept_answer, own_line};
use super::requests::{OnRequest, Pass};
use super::secrets::{Judged, Verdict};
use super::{Effect, Engine, Note, Now};
use crate::protocol::{Event, Method, RequestKind, RequestPlace};
use crate::wire::{Body, Line, RpcId, Side};

impl Engine {
    pub(super) fn line(&mut self, now: Now, from: Side, line: Line<'_>, effects: &mut Vec<Effect>) {
        let body = Body::parse(line.bytes);
        if from == Side::Client && self.hold_if_needed(now, line, &body, effects) {
            return;
        }
        self.process_line(now, from, line.bytes, &body, effects);
    }

    /// Records a line and forwards, replaces or withholds it.
    pub(super) fn process_line(
        &mut self,
        now: Now,
        from: Side,
        line: &[u8],
        body: &Body<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let event = event_in(body);
        let Judged { verdict, opened, completed } = self.secrets.judge(from, event.as_ref(), line, &mut self.calls);
        let answers = completed.as_ref().and_then(|call| call.method);
        let seen = Seen { now, line, verdict, body, opened };
        match (&event, from) {
            (Some(event), Side::Client) => self.client_line(&seen, event, effects),
            (Some(event), Side::Server) => self.server_line(&seen, event, completed, effects),
            (None, Side::Client) => {
                effects.extend([seen.record(), Effect::Forward]);
            }
            (None, Side::Server) => {
                effects.push(seen.record());
                forward_if_passing(self.current_client.passing_of_other(), effects);
            }
        }
        effects.extend(self.secrets.take_warning().map(Effect::Warn));
        if let Some(event) = &event
            && let Some(learned) = self.version.learn(from, event, answers)
        {
            if let Effect::Introduce(client) = &learned {
                self.client.clone_from(&client.name);
            }
            if let Effect::Note(Note::CodexVersion { version: Some(version), .. }) = &learned {
                self.context.server_is(version);
            }
            effects.push(learned);
        }
    }

    fn client_line(&mut self, seen: &Seen<'_>, event: &Event<'_>, effects: &mut Vec<Effect>) {
        if event.name().is_none() {
            let client = self.client.as_deref().unwrap_or("client").to_owned();
            let kept = || kept_answer(&seen.verdict, seen.line, event);
            let on_request = self.requests.client_answers(seen.now, seen.line, event, kept, client, effects);
            record_and_forward(seen, Effect::Forward, on_request, effects);
            return;
        }
        match self.current_client.on_client_call(seen.now.elapsed, event, seen.opened, &mut self.calls.to_server) {
            OnCall::PassOn => {}
            OnCall::PassAmbiguous => {
                if let Some(call) = seen.opened {
                    for other in self.calls.to_server.same_id(call) {
                        self.context.is_ambiguous(other, effects);
                    }
                }
                effects.extend([seen.record(), Effect::Forward]);
                return;
            }
            OnCall::Greet => {
                effects.push(seen.record());
                self.greet(event, effects);
                return;
            }
            OnCall::Withhold => {
                effects.push(seen.record());
                return;
            }
        }
        let mut projection = None;
        if event.method == Some(Method::TurnStart) {
            if let Some(bytes) = thread_of(event).and_then(|thread_id| self.reasons_ahead(&thread_id)) {
                effects.push(Engine::ahead(seen, bytes));
            }
            let prepared = self.assembly.at_hand.take();
            if self.assembly.is_set() {
                let (call, shown) = self.before_turn(event, prepared);
                effects.extend(call.map(|call| Engine::ahead(seen, call)));
                projection = shown;
            }
        }
        let instructed = self.client_thread_call(seen.line, event, seen.opened);
        let (ahead, instead) = match seen.opened {
            Some(call) => {
                let on_turn = self.context.client_message(seen.now, seen.line, event, projection, effects);
                self.carry(call, on_turn)
            }
            None => (None, None),
        };
        effects.extend(ahead.map(|call| Engine::ahead(seen, call)));
        effects.push(seen.record());
        effects.push(match instead.or(instructed) {
            Some(bytes) => Effect::Replace(own_line(Side::Server, &seen.verdict, seen.body, bytes)),
            None => Effect::Forward,
        });
    }

    /// Adds context to a turn. Returns the call to send ahead of it and the line to send in its place.
    pub(super) fn carry(&mut self, turn: CallKey, on_turn: OnTurn) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let (ahead, instead) = self.calls.carry(turn, on_turn);
        ahead.iter().for_each(|call| self.own_items.expect(call));
        (ahead, instead)
    }

    fn server_line(
        &mut self,
        seen: &Seen<'_>,
        event: &Event<'_>,
        mut completed: Option<Box<OpenCall>>,
        effects: &mut Vec<Effect>,
    ) {
        self.context.server_message(seen.now, event, completed.as_deref_mut(), &mut self.threads, effects);
        self.track_threads(seen.now, event, completed.as_deref_mut(), effects);
        let stripped = self.context.stripped(seen.line, event, &self.threads);
        // This includes late responses to calls that are no longer open: the client never sees responses to our calls.
        if event.is_response() && event.id.map(RpcId::from_raw).is_some_and(|id| self.calls.is_own(&id)) {
            effects.push(seen.record());
            let Some(purpose) = completed.and_then(|call| call.purpose) else { return };
            match stripped.as_deref().map(Body::parse) {
                Some(Body::Message(event)) => self.own_call_answered(purpose, &event, effects),
                Some(Body::OtherJson | Body::Text | Body::Bytes) | None => {
                    self.own_call_answered(purpose, event, effects);
                }
            }
            return;
        }
        let passing = self.current_client.passing_of(event, completed.as_deref());
        if let (Some(id), Some(method)) = (event.id, event.name()) {
            if passing == Passing::Withheld && RequestKind::of(method).is_none() {
                effects.push(answer_without_client(id));
            }
            if self.current_client.answers_alone(method)
                && let Some(call) = seen.opened.and_then(|call| self.calls.to_client.get_mut(call))
            {
                call.for_client_alone = Some(id.to_owned());
            }
        }
        // The record keeps the echo of an item that we injected; the client does not see it.
        let passing = if self.own_items.is_echo(event) { Passing::Withheld } else { passing };
        let on_request = match (self.server_message(seen.now, seen.line, event, effects), passing) {
            (on_request, Passing::Passes) => on_request,
            (OnRequest::Forward(_) | OnRequest::Withhold, Passing::Withheld) => OnRequest::Withhold,
        };
        match stripped {
            Some(bytes) => {
                let replace = Effect::Replace(own_line(Side::Client, &seen.verdict, seen.body, bytes));
                record_and_forward(seen, replace, on_request, effects);
            }
            None => record_and_forward(seen, Effect::Forward, on_request, effects),
        }
    }

    /// Tracks threads, turns and items from notifications, and opens requests.
    fn server_message(&mut self, now: Now, line: &[u8], event: &Event<'_>, effects: &mut Vec<Effect>) -> OnRequest {
        if event.name().is_none() {
            return OnRequest::AT_ONCE;
        }
        if event.id.is_some() {
            let place = RequestPlace::of(event.params);
            let (about, audience) = (self.items.of(&place), self.current_client.audience());
            return self.requests.opened(now, line, event, about, audience, effects);
        }
        match (event.method, event.params) {
            (Some(Method::TurnStarted), _) => self.turn_started(event, effects),
            (Some(Method::TurnCompleted), _) => {
                if let Some((thread_id, turn_id)) = turn_of(event) {
                    self.threads.turn_completed(&thread_id, &turn_id);
                    self.own_items.turn_is_over(&thread_id);
                    let place = RequestPlace { thread_id: Some(thread_id), turn_id: Some(turn_id), item_id: None };
                    self.requests.turn_completed(now, &place, effects);
                    if self.threads.are_idle() {
                        effects.extend(outcome(event).map(Effect::NotifyIdle));
                    }
                }
            }
            (Some(Method::ItemStarted), Some(params)) => {
                if let Some((place, changes)) = self.items.started(params) {
                    self.requests.shown(&place, changes, effects);
                }
            }
            (Some(Method::ItemCompleted), Some(params)) => {
                if !(self.requests.is_empty() && self.items.is_empty())
                    && let Some(place) = self.items.completed(params)
                {
                    self.requests.item_completed(now, &place, effects);
                }
            }
            (Some(Method::RequestResolved), Some(params)) => self.requests.server_resolved(now, params, effects),
            _ => {}
        }
        OnRequest::AT_ONCE
    }
}

pub(super) fn event_in<'a>(body: &'a Body<'_>) -> Option<Event<'a>> {
    match body {
        Body::Message(message) => Some(Event::of(message)),
        Body::OtherJson | Body::Text | Body::Bytes => None,
    }
}

/// A line being processed.
pub(super) struct Seen<'a> {
    pub(super) now: Now,
    pub(super) line: &'a [u8],
    pub(super) verdict: Verdict,
    pub(super) body: &'a Body<'a>,
    /// The call that this line opens.
    pub(super) opened: Option<CallKey>,
}

impl Seen<'_> {
    fn record(&self) -> Effect {
        Effect::Record(form(&self.verdict, self.body, self.line))
    }
}

/// Records a line, then forwards it (or its replacement) if allowed.
fn record_and_forward(seen: &Seen<'_>, forward: Effect, on_request: OnRequest, effects: &mut Vec<Effect>) {
    effects.push(seen.record());
    if let OnRequest::Forward(Pass { hold, mark }) = on_request {
        effects.extend(hold.map(Effect::Hold));
        effects.push(forward);
        effects.extend(mark.map(Effect::Mark));
    }
}

/// Forwards a line or a piece of one, if it passes.
pub(super) fn forward_if_passing(passing: Passing, effects: &mut Vec<Effect>) {
    match passing {
        Passing::Passes => effects.push(Effect::Forward),
        Passing::Withheld => {}
    }
}
