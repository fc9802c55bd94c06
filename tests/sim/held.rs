//! What waits for the context of its thread: a turn, and everything that comes behind it in that thread.

use std::collections::VecDeque;
use std::time::Duration;

use codex_shim::testing::engine::{ApiCallId, ApiRequest, Effect, Input, LinkEffect, Token};
use codex_shim::testing::wire::Conn;
use serde_json::Value;

use super::lines::Message;

/// How long a line waits for fragments, from when it was read.
const CONTEXT_MAX: Duration = Duration::from_millis(1_250);

/// An API call about one thread: with input to its model, or not.
pub type CallAboutThread = (ApiCallId, String, bool);

pub fn call_about_thread(input: &Input) -> Option<CallAboutThread> {
    let Input::ApiRequest { api_call, request, .. } = input else { return None };
    match request {
        ApiRequest::Input { thread_id: Some(thread), .. } => Some((*api_call, thread.clone(), true)),
        ApiRequest::Interrupt { thread_id: Some(thread) } => Some((*api_call, thread.clone(), false)),
        _ => None,
    }
}

#[derive(Debug, Default)]
pub struct Held(Vec<Waiting>);

/// The queue of a thread.
#[derive(Debug)]
struct Waiting {
    thread: String,
    /// The read of the fragments that it waits for, once that has begun.
    token: Option<Token>,
    queue: VecDeque<One>,
    /// It waits for nothing more.
    is_given_up: bool,
}

#[derive(Debug)]
struct One {
    read_at: Duration,
    needs_context: bool,
    /// `None` for a message of an API caller.
    line: Option<(Conn, Vec<u8>)>,
}

impl Held {
    /// Whether a client's line has to wait; it is queued then.
    pub fn takes(&mut self, now: Duration, conn: Conn, line: &[u8], message: &Message<'_>) -> bool {
        let Some(method) = message.method.as_deref() else { return false };
        let Some(thread) = message.params["threadId"].as_str().filter(|thread| !thread.is_empty()) else {
            return false;
        };
        let has_id = matches!(message.id, Some(Value::Number(_) | Value::String(_)));
        let needs_context = method == "turn/start" && has_id;
        let one = One { read_at: now, needs_context, line: Some((conn, line.to_vec())) };
        match self.of(thread) {
            Some(waiting) => waiting.queue.push_back(one),
            None if needs_context => self.begin(thread, None, VecDeque::from([one])),
            None => return false,
        }
        true
    }

    /// An API caller has called about a thread, with these effects: unless it has its reply, the call waits behind held lines, or
    /// for its own context.
    pub fn called(&mut self, now: Duration, (of, thread, is_input): &CallAboutThread, effects: &[Effect]) {
        let token = effects.iter().find_map(|effect| match effect {
            Effect::RunFragments(token, _) => Some(*token),
            _ => None,
        });
        let is_its = |effect: &Effect| matches!(effect, Effect::Link(LinkEffect::Reply(api_call, _)) if api_call == of);
        if effects.iter().any(is_its) {
            return;
        }
        let one = One { read_at: now, needs_context: *is_input, line: None };
        match (self.of(thread), token) {
            (Some(waiting), _) => waiting.queue.push_back(one),
            (None, Some(token)) => self.begin(thread, Some(token), VecDeque::from([one])),
            (None, None) => {}
        }
    }

    fn begin(&mut self, thread: &str, token: Option<Token>, queue: VecDeque<One>) {
        self.0.push(Waiting { thread: thread.to_owned(), token, queue, is_given_up: false });
    }

    fn of(&mut self, thread: &str) -> Option<&mut Waiting> {
        self.0.iter_mut().find(|waiting| waiting.thread == thread)
    }

    /// The fragments are read for the queue that has begun last.
    pub fn reads(&mut self, token: Token) {
        if let Some(waiting) = self.0.iter_mut().rev().find(|waiting| waiting.token.is_none()) {
            waiting.token = Some(token);
        }
    }

    /// The lines of a queue that go on now: the first one, and those behind it up to the next turn that still waits.
    pub fn release(&mut self, now: Duration, token: Token) -> Vec<(Conn, Vec<u8>)> {
        let Some(at) = self.0.iter().position(|waiting| waiting.token == Some(token)) else { return Vec::new() };
        let Waiting { thread, mut queue, is_given_up, .. } = self.0.remove(at);
        let mut lines: Vec<_> = queue.pop_front().into_iter().filter_map(|one| one.line).collect();
        let is_due = |one: &mut One| is_given_up || !one.needs_context || one.read_at + CONTEXT_MAX <= now;
        while let Some(one) = queue.pop_front_if(|one| is_due(one)) {
            lines.extend(one.line);
        }
        if !queue.is_empty() {
            self.begin(&thread, None, queue);
        }
        lines
    }

    /// Nothing waits any more: whoever has written it is gone.
    pub fn give_up(&mut self) {
        self.0.iter_mut().for_each(|waiting| waiting.is_given_up = true);
    }

    /// All lines, which go on at once.
    pub fn take_all(&mut self) -> Vec<(Conn, Vec<u8>)> {
        std::mem::take(&mut self.0).into_iter().flat_map(|waiting| waiting.queue).filter_map(|one| one.line).collect()
    }

    pub fn lines(&self) -> impl Iterator<Item = &(Conn, Vec<u8>)> {
        self.0.iter().flat_map(|waiting| &waiting.queue).filter_map(|one| one.line.as_ref())
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn nothing_is_overdue(&self, now: Duration) -> Result<(), String> {
        let is_overdue = |waiting: &&Waiting| waiting.queue.front().is_some_and(|one| one.read_at + CONTEXT_MAX <= now);
        match self.0.iter().find(is_overdue) {
            Some(waiting) => Err(format!("6: waits too long for its context: a turn of {}", waiting.thread)),
            None => Ok(()),
        }
    }
}
