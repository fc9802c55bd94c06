//! API calls: answering a request, sending input to the model, interrupting a turn, calling the server.
//!
//! Lines from API callers take the same path as client lines. No call blocks here.

use super::input::{ApiRequest, Now};
use super::requests::{Caller, Explanation};
use super::secrets::Verdict;
use super::token::ApiCallId;
use super::turn_gate::{Prepared, Queued};
use super::turns::{Purpose, Turns};
use super::{ApiReply, Effect, Engine, Injection, OwnLine, event_in, free_line, own_line};
use crate::protocol::Method;
use crate::wire::{Body, Members, Side};

impl Engine {
    /// Sends the reason for a decline to the model, in the same write as the decline if the turn continues.
    pub(super) fn explain(&mut self, effects: &mut Vec<Effect>) {
        for Explanation { thread_id, turn_id, reason } in self.requests.take_explanations() {
            let Some(bytes) = self.turns.reason_line(&mut self.calls, thread_id, turn_id, reason) else { continue };
            let last = effects
                .iter_mut()
                .rev()
                .find_map(|effect| if let Effect::Inject(injection) = effect { Some(injection) } else { None });
            match last {
                Some(injection) => injection.lines.push(free_line(bytes)),
                None => effects.push(Effect::Inject(Injection { lines: vec![free_line(bytes)], mark: None })),
            }
        }
    }

    /// Builds the call that delivers queued decline reasons before a thread's next turn.
    pub(super) fn reasons_ahead(&mut self, thread_id: &str) -> Option<Vec<u8>> {
        let call = self.turns.ahead_of_turn(&mut self.calls, thread_id)?;
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
        let call = match request {
            ApiRequest::Respond { request_id, given, source, by } => {
                let caller = Caller { api_call, source, by, server_listens };
                self.requests.api_answers(now, caller, &request_id, &given, effects);
                return;
            }
            ApiRequest::Attach | ApiRequest::Stop | ApiRequest::Start if !self.current_client.is_served() => {
                effects.push(Effect::Reply(api_call, ApiReply::NotServed));
                return;
            }
            ApiRequest::Attach => {
                let reply = self.attach(api_call, server_listens, effects);
                effects.push(Effect::Reply(api_call, reply));
                return;
            }
            ApiRequest::Stop | ApiRequest::Start => {
                effects.push(Effect::Reply(api_call, ApiReply::NotServed));
                return;
            }
            ApiRequest::Rpc { .. } | ApiRequest::Interrupt { .. } | ApiRequest::Input { .. }
                if !server_listens || !self.version.is_initialized() =>
            {
                effects.push(Effect::Reply(api_call, ApiReply::NotReady));
                return;
            }
            ApiRequest::Rpc { method, params } => {
                match params.as_deref().and_then(thread_in).filter(|thread_id| self.assembly.holds.holds(thread_id)) {
                    Some(thread_id) => {
                        self.hold_api_request(now, &thread_id, Queued::Rpc { api_call, method, params }, effects);
                    }
                    None => self.call_server(api_call, &method, params.as_deref(), effects),
                }
                return;
            }
            ApiRequest::Interrupt { thread_id } => match self.interrupted(now, api_call, thread_id, effects) {
                Ok(None) => return,
                Ok(Some(line)) => line,
                Err(reply) => {
                    effects.push(Effect::Reply(api_call, reply));
                    return;
                }
            },
            ApiRequest::Input { text, thread_id } => {
                self.hold_or_send_input(now, api_call, &text, thread_id, effects);
                return;
            }
        };
        effects.push(Effect::Inject(Injection { lines: vec![free_line(call)], mark: None }));
    }

    /// Calls the server for an API caller.
    pub(super) fn call_server(
        &mut self,
        api_call: ApiCallId,
        method: &str,
        params: Option<&str>,
        effects: &mut Vec<Effect>,
    ) {
        let (key, line) = self.calls.call_server(method, params, Purpose::Rpc(api_call));
        // Secrecy rules apply as for the client's own call, and to the response too.
        let body = Body::parse(&line);
        let mut verdict = Verdict::Open;
        if let (Some(event), Some(call)) = (event_in(&body), self.calls.to_server.get_mut(key)) {
            (verdict, call.secret) = self.secrets.request(&event, &line);
        }
        let line = own_line(Side::Server, &verdict, &body, line.clone());
        effects.push(Effect::Inject(Injection { lines: vec![line], mark: None }));
    }

    /// Builds the call that interrupts a turn. Returns `None` if it was queued behind held lines of its thread.
    fn interrupted(
        &mut self,
        now: Now,
        api_call: ApiCallId,
        thread_id: Option<String>,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Vec<u8>>, ApiReply> {
        let thread_id = self.turns.thread(thread_id).ok_or(ApiReply::ThreadNotFound)?;
        if self.assembly.holds.holds(&thread_id) {
            self.hold_api_request(now, &thread_id, Queued::Interrupt { api_call }, effects);
            return Ok(None);
        }
        let Some(turn_id) = self.turns.turn_in(&thread_id) else {
            let is_known = self.turns.knows(&thread_id) || self.context.knows_thread(&thread_id);
            return Err(if is_known { ApiReply::NoActiveTurn } else { ApiReply::ThreadNotFound });
        };
        let turn_id = turn_id.to_owned();
        Ok(Some(Turns::interrupt_line(&mut self.calls, api_call, &thread_id, &turn_id)))
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
        match self.turns.turn_in(&thread_id).map(str::to_owned) {
            Some(turn_id) => {
                let line = Turns::interrupt_line(&mut self.calls, api_call, &thread_id, &turn_id);
                effects.push(Effect::Inject(Injection { lines: vec![free_line(line)], mark: None }));
            }
            None => {
                if let Some(refused) = self.turns.interrupt_next(now.elapsed, api_call, thread_id) {
                    effects.push(Effect::Reply(refused, ApiReply::NoActiveTurn));
                }
            }
        }
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
        let Some(thread_id) = self.turns.thread(thread_id) else {
            effects.push(Effect::Reply(api_call, ApiReply::ThreadNotFound));
            return;
        };
        if let Some(row) = self.requests.gate(&thread_id) {
            let gated = ApiReply::Gated {
                request_id: row.request_id.clone(),
                request_type: row.kind.request_type(),
                requested_at_us: row.requested_at_us,
            };
            effects.push(Effect::Reply(api_call, gated));
            return;
        }
        let queued = Queued::ApiInput { api_call, text: text.to_owned() };
        if self.hold_api_request(now, &thread_id, queued, effects).is_some() {
            self.send_input(now, api_call, text, thread_id, None, effects);
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
        let mut lines: Vec<OwnLine> = self.reasons_ahead(&thread_id).map(free_line).into_iter().collect();
        let running = self.turns.turn_in(&thread_id).map(str::to_owned);
        let params = Turns::turn_params(&thread_id, text);
        let purpose = Purpose::Turn { api_call, thread_id: thread_id.clone(), running };
        let (key, line) = self.calls.call_server(Method::TurnStart.name(), Some(&params), purpose);
        if let Some(call) = self.calls.to_server.get_mut(key) {
            call.thread_id = Some(thread_id);
        }
        let body = Body::parse(&line);
        if let Some(message) = event_in(&body) {
            let (call, projection) = match self.assembly.is_set() {
                true => self.before_turn(&message, Some(key), prepared),
                false => (None, None),
            };
            let on_turn = self.context.client_message(now, &line, &message, projection.as_deref(), effects);
            let (ahead, instead) = self.carry(key, on_turn);
            lines.extend(call.into_iter().chain(ahead).map(free_line));
            lines.push(free_line(instead.unwrap_or_else(|| line.clone())));
        }
        effects.push(Effect::Inject(Injection { lines, mark: None }));
    }
}

fn thread_in(params: &str) -> Option<String> {
    let params: &serde_json::value::RawValue = serde_json::from_str(params).ok()?;
    Members::of(params)?.text("threadId")
}
