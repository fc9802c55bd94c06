//! Running turns by thread, queued reasons and interrupts, and the purposes of our own calls.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::assembly::Delivered;
use super::open_calls::Calls;
use super::{ApiCallId, ApiReply, ClientName, Effect, Form, Injection, OwnLine, Warning, free_line};
use crate::protocol::{Method, inject_items_params, notification_line};
use crate::wire::{Members, Message, Side};

/// Tracked threads.
const THREADS_MAX: usize = 4_096;

/// Decline reasons waiting for a turn.
const REASONS_MAX: usize = 64;

/// Interrupts waiting for a turn to begin.
const INTERRUPTS_MAX: usize = 64;

/// How long an interrupt waits for the turn of the `turn/start` forwarded just before it.
const INTERRUPT_WAIT_MAX: Duration = Duration::from_secs(2);

/// Running turns, and queued reasons and interrupts.
#[derive(Debug, Default)]
pub(super) struct Turns {
    turns: HashMap<String, String>,
    threads: HashSet<String>,
    last_thread: Option<String>,
    /// Decline reasons for a thread's next turn: thread and reason.
    reasons: VecDeque<(String, String)>,
    /// Interrupts for a thread's next turn: caller, thread and deadline, oldest first.
    interrupts: VecDeque<(ApiCallId, String, Duration)>,
    initialized_with: Option<Box<RawValue>>,
}

#[derive(Debug)]
pub(super) enum Purpose {
    /// Context before a turn.
    Context,
    /// Fragments before a turn.
    Fragments(Delivered),
    /// An API caller receives the response unchanged.
    Rpc(ApiCallId),
    /// An API caller receives the ids of the turn.
    Turn {
        api_call: ApiCallId,
        thread_id: String,
        /// The turn that was running at the time of the call.
        running: Option<String>,
    },
    /// A decline reason for a running turn; if rejected, it goes to the next turn.
    Reason { thread_id: String, reason: String },
    /// A decline reason before a turn; if rejected, it is lost.
    ReasonAhead,
    /// The relay initializes the server.
    Initialize,
}

impl Turns {
    /// Parameters of a turn with user input.
    pub(super) fn turn_params(thread_id: &str, says: &str) -> String {
        json!({ "threadId": thread_id, "input": [{ "type": "text", "text": says }] }).to_string()
    }

    /// Sends a reason to the running turn, or queues it for the next one.
    pub(super) fn reason_line(
        &mut self,
        calls: &mut Calls,
        thread_id: String,
        turn_id: Option<String>,
        reason: String,
    ) -> Option<Vec<u8>> {
        let Some(turn_id) = turn_id else {
            self.keep_reason(thread_id, reason);
            return None;
        };
        let input = json!([{ "type": "text", "text": reason }]);
        let params = json!({ "threadId": thread_id, "input": input, "expectedTurnId": turn_id }).to_string();
        Some(calls.call_server(Method::TurnSteer.name(), Some(&params), Purpose::Reason { thread_id, reason }).1)
    }

    fn keep_reason(&mut self, thread_id: String, reason: String) {
        if self.reasons.len() >= REASONS_MAX {
            self.reasons.pop_front();
        }
        self.reasons.push_back((thread_id, reason));
    }

    /// The call that delivers queued reasons before a turn of this thread.
    pub(super) fn ahead_of_turn(&mut self, calls: &mut Calls, thread_id: &str) -> Option<Vec<u8>> {
        let (due_now, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.reasons).into_iter().partition(|(of, _)| of == thread_id);
        self.reasons = kept;
        if due_now.is_empty() {
            return None;
        }
        let reasons = due_now.iter().map(|(_, reason)| reason.as_str()).collect();
        let params = inject_items_params(thread_id, &[("user", reasons)]);
        Some(calls.call_server(Method::ThreadInjectItems.name(), Some(&params), Purpose::ReasonAhead).1)
    }

    pub(super) fn interrupt_line(calls: &mut Calls, api_call: ApiCallId, thread_id: &str, turn_id: &str) -> Vec<u8> {
        let params = json!({ "threadId": thread_id, "turnId": turn_id }).to_string();
        calls.call_server(Method::TurnInterrupt.name(), Some(&params), Purpose::Rpc(api_call)).1
    }

    /// Queues an interrupt for the next turn of a thread. Returns the caller if the queue is full.
    pub(super) fn interrupt_next(
        &mut self,
        elapsed: Duration,
        api_call: ApiCallId,
        thread_id: String,
    ) -> Option<ApiCallId> {
        if self.interrupts.len() >= INTERRUPTS_MAX {
            return Some(api_call);
        }
        self.interrupts.push_back((api_call, thread_id, elapsed + INTERRUPT_WAIT_MAX));
        None
    }

    /// The deadline of the oldest interrupt.
    pub(super) fn due(&self) -> Option<Duration> {
        self.interrupts.front().map(|(.., due)| *due)
    }

    /// Rejects interrupts whose turn has not begun in time.
    pub(super) fn tick(&mut self, elapsed: Duration, effects: &mut Vec<Effect>) {
        while let Some((api_call, ..)) = self.interrupts.pop_front_if(|(.., due)| *due <= elapsed) {
            effects.push(Effect::Reply(api_call, ApiReply::NoActiveTurn));
        }
    }

    /// Whether decline reasons are queued, so client turns must be inspected.
    pub(super) fn has_reasons(&self) -> bool {
        !self.reasons.is_empty()
    }

    /// The named thread, or else the thread of the last turn.
    pub(super) fn thread(&self, named: Option<String>) -> Option<String> {
        named.or_else(|| self.last_thread.clone())
    }

    /// Whether a thread was seen.
    pub(super) fn knows(&self, thread_id: &str) -> bool {
        self.threads.contains(thread_id)
    }

    /// The running turn of a thread.
    pub(super) fn turn_in(&self, thread_id: &str) -> Option<&str> {
        self.turns.get(thread_id).map(String::as_str)
    }

    /// No turn is running.
    pub(super) fn is_idle(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn thread_seen(&mut self, thread_id: &str) {
        if self.threads.len() < THREADS_MAX {
            self.threads.insert(thread_id.to_owned());
        }
    }

    /// Tracks a turn that started, and interrupts it if an API caller asked for that.
    pub(super) fn turn_started(&mut self, calls: &mut Calls, message: &Message<'_>, effects: &mut Vec<Effect>) {
        let Some((thread_id, turn_id)) = turn_of(message) else { return };
        self.thread_seen(&thread_id);
        self.last_thread = Some(thread_id.clone());
        let (waited, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.interrupts).into_iter().partition(|(_, of, _)| *of == thread_id);
        self.interrupts = kept;
        for (api_call, ..) in waited {
            let line = free_line(Turns::interrupt_line(calls, api_call, &thread_id, &turn_id));
            effects.push(Effect::Inject(Injection { lines: vec![line], mark: None }));
        }
        if self.turns.len() < THREADS_MAX {
            self.turns.insert(thread_id, turn_id);
        }
    }

    /// Tracks the end of a turn; returns its thread and id.
    pub(super) fn turn_completed(&mut self, message: &Message<'_>) -> Option<(String, String)> {
        let (thread_id, turn_id) = turn_of(message)?;
        if self.turns.get(&thread_id) == Some(&turn_id) {
            self.turns.remove(&thread_id);
        }
        Some((thread_id, turn_id))
    }

    /// The server responds to one of our own calls. `message` is the response as an API caller may see it.
    pub(super) fn completed(&mut self, purpose: Purpose, message: &Message<'_>, effects: &mut Vec<Effect>) {
        let reply = match (purpose, message.refusal(), message.result) {
            (Purpose::ReasonAhead, Some(_), _) => return effects.push(Effect::Warn(Warning::ReasonNotSent)),
            (Purpose::ReasonAhead, None, _)
            | (Purpose::Initialize, Some(_), _)
            | (Purpose::Context | Purpose::Fragments(_), _, _) => return,
            (Purpose::Initialize, None, result) => {
                self.initialized_with = result.map(ToOwned::to_owned);
                let bytes = notification_line(Method::Initialized);
                let line = OwnLine { to: Side::Server, form: Form::Verbatim, bytes };
                effects.push(Effect::Inject(Injection { lines: vec![line], mark: None }));
                return;
            }
            (Purpose::Reason { thread_id, reason }, Some(_), _) => return self.keep_reason(thread_id, reason),
            (Purpose::Reason { .. }, None, _) => return,
            (Purpose::Rpc(api_call), Some(error), _) => {
                (api_call, ApiReply::Answered(format!("{{\"error\":{}}}", error.get())))
            }
            (Purpose::Rpc(api_call), None, result) => {
                let result = result.map_or("null", |result| result.get());
                (api_call, ApiReply::Answered(format!("{{\"result\":{result}}}")))
            }
            (Purpose::Turn { api_call, .. }, Some(error), _) => {
                let message = Members::of(error).and_then(|error| error.text("message")).unwrap_or_default();
                // The last wording is that of 2025.
                let words = ["thread not found", "invalid thread id", "conversation not found"];
                let not_found = words.iter().any(|words| message.contains(words));
                let refused = ApiReply::Answered(format!("{{\"error\":{}}}", error.get()));
                (api_call, if not_found { ApiReply::ThreadNotFound } else { refused })
            }
            (Purpose::Turn { api_call, thread_id, running }, None, result) => {
                let turn = result.and_then(Members::of).and_then(|result| result.get("turn")).and_then(Members::of);
                let turn_id = turn.and_then(|turn| turn.text("id")).unwrap_or_default();
                let steered = running.as_ref() == Some(&turn_id);
                (api_call, ApiReply::Turn { thread_id, turn_id, steered })
            }
        };
        effects.push(Effect::Reply(reply.0, reply.1));
    }

    /// The server's response to our `initialize`, if it has arrived.
    pub(super) fn initialized_with(&self) -> Option<&RawValue> {
        self.initialized_with.as_deref()
    }

    /// Rejects queued interrupts: the server has ended.
    pub(super) fn server_ended(&mut self, effects: &mut Vec<Effect>) {
        self.initialized_with = None;
        self.turns.clear();
        for (api_call, ..) in self.interrupts.drain(..) {
            effects.push(Effect::Reply(api_call, ApiReply::NotReady));
        }
    }
}

impl Purpose {
    pub(super) fn is_fragments(&self) -> bool {
        matches!(self, Purpose::Fragments(_))
    }

    /// Rejects the API caller, if any: the server has ended.
    pub(super) fn server_ended(self, effects: &mut Vec<Effect>) {
        match self {
            Purpose::Rpc(api_call) | Purpose::Turn { api_call, .. } => {
                effects.push(Effect::Reply(api_call, ApiReply::NotReady));
            }
            Purpose::Reason { .. }
            | Purpose::ReasonAhead
            | Purpose::Initialize
            | Purpose::Context
            | Purpose::Fragments(_) => {}
        }
    }
}

/// The relay's client name when it initializes the server itself.
pub(super) fn own_name() -> ClientName {
    ClientName { name: Some("codex-shim".to_owned()), version: Some(env!("CARGO_PKG_VERSION").to_owned()) }
}

pub(super) fn initialize_params() -> String {
    let ClientName { name, version } = own_name();
    let client = json!({ "name": name, "title": null, "version": version });
    json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } }).to_string()
}

/// The outcome of a completed turn, as JSON.
pub(super) fn outcome(message: &Message<'_>) -> Option<String> {
    let (thread_id, turn_id) = turn_of(message)?;
    let turn = Members::of(Members::of(message.params?)?.get("turn")?)?;
    let read = |name: &str| turn.get(name).and_then(|value| serde_json::from_str::<Value>(value.get()).ok());
    let (status, error) = (read("status"), read("error"));
    Some(json!({ "thread_id": thread_id, "turn_id": turn_id, "status": status, "error": error }).to_string())
}

/// The thread and turn of a notification.
fn turn_of(message: &Message<'_>) -> Option<(String, String)> {
    let params = Members::of(message.params?)?;
    let turn_id = Members::of(params.get("turn")?)?.text("id")?;
    Some((params.text("threadId")?, turn_id))
}
