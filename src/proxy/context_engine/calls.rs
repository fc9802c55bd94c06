//! Makes the worker's calls: sequentially for each thread of codex, and in parallel for several threads while the
//! engine reads.
//!
//! Nothing here waits. Each call starts with a read of the conversation; the results of both come back as events.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::conversation::{Conversation, READINGS_MAX};
use super::protocol::{self, CallContext, Compaction, Method, Occasion, OccasionStep, TurnStart};
use super::silence::Wait;
use super::worker::{Phase, Worker, log_engine_error};
use crate::engine::{Assembled, Input, Note, Token};

/// Limit of calls in flight; each holds a conversation.
const CALLS_MAX: usize = 32;

/// Number of unread lines at which no more calls are made.
const UNREAD_MAX: usize = 8;

/// Limit of a call that no held line waits for.
const CALL_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long to wait for the history if no held line waits. Later tasks of the same thread need this history anyway.
const HISTORY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Delay before `bootstrap` is retried for a thread whose history was unavailable.
const NEW_THREAD_RETRY_AFTER: Duration = Duration::from_secs(1);

impl Worker {
    /// Starts as many tasks as possible.
    pub(super) fn pump(&mut self) {
        match &self.phase {
            // The engine may become ready in time.
            Phase::Starting { .. } => {}
            Phase::Down { .. } => {
                for (thread_id, thread) in &mut self.threads {
                    for task in std::mem::take(&mut thread.tasks) {
                        self.reporter.refuse(thread_id, &task, "not_running");
                    }
                }
            }
            Phase::Ready { .. } => {
                let waiting = self.threads.iter().filter(|(_, thread)| !thread.is_busy && !thread.tasks.is_empty());
                let mut free: Vec<(u64, String)> =
                    waiting.map(|(thread_id, thread)| (thread.queued_as, thread_id.clone())).collect();
                free.sort_unstable();
                for (_, thread_id) in free {
                    if !self.has_room() {
                        return;
                    }
                    self.begin(&thread_id);
                }
            }
        }
    }

    /// Whether another call can be made.
    fn has_room(&self) -> bool {
        let Phase::Ready { process, .. } = &self.phase else { return false };
        let begun = self.readings.len();
        self.readings_open < READINGS_MAX
            && self.calls.len() + begun < CALLS_MAX
            && process.unread() as usize + begun < UNREAD_MAX
    }

    /// Starts the tasks of a thread, up to the first one that needs its conversation.
    fn begin(&mut self, thread_id: &str) {
        let now = Instant::now();
        loop {
            let Phase::Ready { can, .. } = &self.phase else { return };
            let Some(thread) = self.threads.get_mut(thread_id).filter(|thread| !thread.is_busy) else { return };
            let Some(task) = thread.next(can.has(Method::Bootstrap), now) else { return };
            if matches!(task, Task::Compaction { .. }) && !can.owns_compaction {
                self.reporter.answer_without(&task);
                continue;
            }
            thread.is_busy = true;
            self.last_reading += 1;
            let due = task.due(None).unwrap_or(now + HISTORY_WAIT_MAX);
            if self.reader.read(self.last_reading, thread_id, due).is_ok() {
                self.readings_open += 1;
                self.readings.insert(self.last_reading, (thread_id.to_owned(), task));
                return;
            }
            self.history_unavailable(thread_id, &task, "too many conversations wait to be read");
        }
    }

    /// Makes the first call of a task, now that its conversation was read or could not be.
    pub(super) fn handle_reading(&mut self, number: u64, read: Result<Conversation, String>) {
        self.readings_open = self.readings_open.saturating_sub(1);
        let Some((thread_id, task)) = self.readings.remove(&number) else { return };
        if task.is_overdue(None, Instant::now()) {
            self.reporter.refuse(&thread_id, &task, "timeout");
            return self.release_thread(&thread_id);
        }
        let mut conversation = match read {
            Ok(conversation) => conversation,
            Err(why) => return self.history_unavailable(&thread_id, &task, &why),
        };
        self.release_thread(&thread_id);
        let occasion = match &task {
            Task::NewThread => {
                // Completed turns that are still queued get calls of their own.
                let queued_turns = self.threads.get(&thread_id).map(|thread| thread.completed_turns());
                conversation.leave_out(&queued_turns.unwrap_or_default());
                if conversation.messages.is_empty() {
                    return;
                }
                Occasion::NewThread
            }
            Task::TurnBegins { .. } => Occasion::TurnBegins,
            Task::TurnCompleted { turn_id } => {
                Occasion::TurnCompleted { messages: conversation.of_turn(turn_id).len() }
            }
            Task::Compaction { .. } => Occasion::Compaction,
        };
        let Phase::Ready { can, .. } = &self.phase else {
            return self.reporter.refuse(&thread_id, &task, "not_running");
        };
        match protocol::first(occasion, can) {
            Some(step) => self.call(&thread_id, Work { task, occasion, conversation: Rc::new(conversation) }, step),
            None => self.reporter.answer_without(&task),
        }
    }

    fn history_unavailable(&mut self, thread_id: &str, task: &Task, why: &str) {
        tracing::warn!(thread_id, why, "skip the context engine: the history is unavailable");
        self.reporter.refuse(thread_id, task, "no_history");
        self.release_thread(thread_id);
        if let (Task::NewThread, Some(thread)) = (task, self.threads.get_mut(thread_id)) {
            (thread.is_known, thread.retry_at) = (false, Some(Instant::now() + NEW_THREAD_RETRY_AFTER));
        }
    }

    fn call(&mut self, thread_id: &str, work: Work, step: OccasionStep) {
        let Phase::Ready { process, .. } = &mut self.phase else { return };
        let (turn_start, turn_id) = match &work.task {
            Task::TurnBegins { turn_start, .. } => (Some(&**turn_start), ""),
            Task::TurnCompleted { turn_id } => (None, turn_id.as_str()),
            Task::NewThread | Task::Compaction { .. } => (None, ""),
        };
        let token_budget = self.settings.engine.token_budget;
        let context = CallContext { session_id: &self.settings.session_id, thread_id, token_budget };
        let params = protocol::params(step, context, &work.conversation, turn_start, turn_id);
        self.last_call += 1;
        let line = protocol::line(self.last_call, step.method(), &params);
        let (bytes, sent_at) = (line.len(), Instant::now());
        let due = match &work.task {
            Task::TurnBegins { wait, .. } => wait.due,
            Task::NewThread | Task::TurnCompleted { .. } | Task::Compaction { .. } => sent_at + CALL_WAIT_MAX,
        };
        let sent = process.send(self.last_call, line);
        self.silence.sent(self.last_call, thread_id, step.method(), due.saturating_duration_since(sent_at), sent_at);
        let line = *sent.as_ref().unwrap_or(&u64::MAX);
        let call = PendingCall { thread_id: thread_id.to_owned(), work, step, line, sent_at, due, bytes };
        if let Some(thread) = self.threads.get_mut(thread_id) {
            thread.is_busy = true;
        }
        self.calls.insert(self.last_call, call);
        if sent.is_err() {
            self.fail("it does not read its input", "not_reading");
        }
    }

    pub(super) fn answered(&mut self, call: PendingCall, answer: Result<Box<RawValue>, String>, bytes: usize) {
        let read = match answer {
            Err(error) => Err(("error", error)),
            Ok(result) => self.read_answer(&call, &result).map_err(|why| ("invalid", why)),
        };
        match read {
            Ok(assembled) => {
                self.reporter.note(&call, bytes, "ok");
                let Phase::Ready { can, .. } = &self.phase else { return };
                match protocol::next(call.work.occasion, call.step, can) {
                    Some(step) => {
                        let PendingCall { thread_id, work, .. } = call;
                        self.call(&thread_id, work, step);
                    }
                    None => {
                        self.release_thread(&call.thread_id);
                        self.reporter.consulted(&call.work.task, assembled);
                    }
                }
            }
            Err((outcome, why)) => {
                log_engine_error(call.step.method().name(), &why);
                self.reporter.note(&call, bytes, outcome);
                self.give_up(call);
            }
        }
    }

    /// Reads the result of a call.
    fn read_answer(&self, call: &PendingCall, result: &RawValue) -> Result<Option<Assembled>, String> {
        match (&call.work.task, call.step) {
            (Task::TurnBegins { turn_start, .. }, OccasionStep::Assemble) => {
                protocol::read_assembled(result, turn_start, self.settings.engine.projection_chars_max).map(Some)
            }
            (Task::Compaction { .. }, OccasionStep::Compact) => {
                let compaction = protocol::read_compaction(result)?;
                if let Some(reason) = &compaction.reason {
                    log_engine_error("compact", reason);
                }
                self.reporter.compacted(&call.thread_id, Some(compaction));
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Ends a call without a result: no further step follows, and nothing waits for it any more.
    pub(super) fn give_up(&mut self, call: PendingCall) {
        self.release_thread(&call.thread_id);
        if let (Task::Compaction { .. }, OccasionStep::Compact) = (&call.work.task, call.step) {
            self.reporter.compacted(&call.thread_id, None);
        }
        self.reporter.answer_without(&call.work.task);
    }

    /// Lets the thread's next task start, behind the threads that already wait.
    pub(super) fn release_thread(&mut self, thread_id: &str) {
        if let Some(thread) = self.threads.get_mut(thread_id) {
            self.waited += 1;
            (thread.is_busy, thread.queued_as) = (false, self.waited);
        }
    }
}

// Tasks for threads of codex, and the reports to the relay.
//
// Every task that held lines wait for gets a result in the end. Nothing is decided here.

/// Posts an input to the relay; may block until the relay accepts it.
pub(super) type Post = Box<dyn Fn(Input) + Send>;

/// A task for a thread.
#[derive(Debug)]
pub(super) enum Task {
    /// The thread is new to this engine process.
    NewThread,
    TurnBegins {
        token: Token,
        turn_start: Rc<TurnStart>,
        wait: Wait,
    },
    TurnCompleted {
        turn_id: String,
    },
    Compaction {
        token: Token,
        wait: Wait,
    },
}

impl Task {
    /// When the held lines go on without the engine, if lines wait for this task.
    pub(super) fn due(&self, silent_since: Option<Instant>) -> Option<Instant> {
        match self {
            Task::TurnBegins { wait, .. } | Task::Compaction { wait, .. } => Some(wait.until(silent_since)),
            Task::NewThread | Task::TurnCompleted { .. } => None,
        }
    }

    pub(super) fn is_overdue(&self, silent_since: Option<Instant>, now: Instant) -> bool {
        self.due(silent_since).is_some_and(|due| due <= now)
    }
}

/// A thread of codex and its tasks.
#[derive(Debug, Default)]
pub(super) struct ThreadQueue {
    pub(super) tasks: VecDeque<Task>,
    /// This engine process knows the thread.
    pub(super) is_known: bool,
    /// When to retry [`Task::NewThread`] after its history was unavailable.
    pub(super) retry_at: Option<Instant>,
    /// A call is in flight, or its conversation is being read.
    pub(super) is_busy: bool,
    /// Orders the threads: the lowest value goes first.
    pub(super) queued_as: u64,
    /// Since when the engine is silent for this thread: a turn waited in vain, and no call for the thread was answered
    /// since.
    pub(super) silent_since: Option<Instant>,
}

impl ThreadQueue {
    /// The earlier of the silence for this thread and the engine's.
    pub(super) fn silent_since(&self, engine_silent_since: Option<Instant>) -> Option<Instant> {
        self.silent_since.into_iter().chain(engine_silent_since).min()
    }

    /// The next task.
    pub(super) fn next(&mut self, can_bootstrap: bool, now: Instant) -> Option<Task> {
        if !self.is_known && self.retry_at.is_none_or(|at| at <= now) {
            self.is_known = true;
            if can_bootstrap {
                return Some(Task::NewThread);
            }
        }
        // The engine knows the thread already.
        while let Some(Task::NewThread) = self.tasks.front() {
            self.tasks.pop_front();
        }
        self.tasks.pop_front()
    }

    /// The completed turns in the queue.
    pub(super) fn completed_turns(&self) -> Vec<&str> {
        let completed = self.tasks.iter().filter_map(|task| match task {
            Task::TurnCompleted { turn_id } => Some(turn_id.as_str()),
            Task::NewThread | Task::TurnBegins { .. } | Task::Compaction { .. } => None,
        });
        completed.collect()
    }
}

/// A call in flight.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) thread_id: String,
    pub(super) work: Work,
    pub(super) step: OccasionStep,
    /// The number of its line.
    pub(super) line: u64,
    pub(super) sent_at: Instant,
    pub(super) due: Instant,
    pub(super) bytes: usize,
}

/// The task that a call belongs to.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) task: Task,
    pub(super) occasion: Occasion,
    pub(super) conversation: Rc<Conversation>,
}

/// Reports results and events to the relay.
pub(super) struct Reporter(pub(super) Post);

impl Reporter {
    pub(super) fn post(&self, input: Input) {
        (self.0)(input);
    }

    /// Ends a task without a result and reports why.
    pub(super) fn refuse(&self, thread_id: &str, task: &Task, outcome: &'static str) {
        let method = match task {
            // It is retried once the engine runs.
            Task::NewThread => return,
            Task::TurnBegins { .. } => Method::Assemble,
            Task::TurnCompleted { .. } => Method::AfterTurn,
            Task::Compaction { .. } => Method::Compact,
        };
        self.emit(Note::ContextEngineCall {
            method: method.name(),
            thread_id: Some(thread_id.to_owned()),
            ms: 0,
            request_bytes: 0,
            response_bytes: 0,
            outcome,
        });
        self.answer_without(task);
    }

    /// Gives a task an empty result.
    pub(super) fn answer_without(&self, task: &Task) {
        self.consulted(task, None);
    }

    pub(super) fn consulted(&self, task: &Task, assembled: Option<Assembled>) {
        match task {
            Task::TurnBegins { token, .. } | Task::Compaction { token, .. } => {
                (self.0)(Input::Consulted { token: *token, assembled: assembled.map(Box::new) });
            }
            Task::NewThread | Task::TurnCompleted { .. } => {}
        }
    }

    /// Reports the outcome of a call. The event excludes the engine's own words, which may be the user's.
    pub(super) fn note(&self, call: &PendingCall, response_bytes: usize, outcome: &'static str) {
        self.emit(Note::ContextEngineCall {
            method: call.step.method().name(),
            thread_id: Some(call.thread_id.clone()),
            ms: call.sent_at.elapsed().as_millis() as u64,
            request_bytes: call.bytes as u64,
            response_bytes: response_bytes as u64,
            outcome,
        });
    }

    /// Reports a compaction; `None` if the engine did not answer.
    pub(super) fn compacted(&self, thread_id: &str, compaction: Option<Compaction>) {
        let unanswered = || "the context engine did not answer".to_owned();
        let reason = compaction.is_none().then(unanswered);
        let Compaction { ok, compacted, reason: _ } = compaction.unwrap_or_default();
        let thread_id = thread_id.to_owned();
        self.emit(Note::ContextEngineCompacted { thread_id, ok, compacted, reason, owns_compaction: true });
    }

    pub(super) fn emit(&self, note: Note) {
        (self.0)(Input::Noted(Box::new(note)));
    }
}
