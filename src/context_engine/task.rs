//! Tasks for threads of codex, and the reports to the relay.
//!
//! Every task that held lines wait for gets a result in the end. Nothing is decided here.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use super::conversation::Conversation;
use super::lifecycle::{Method, Occasion, Step};
use super::protocol::{Compaction, TurnStart};
use super::silence::Wait;
use crate::engine::{Assembled, Input, Note, Token};

/// Posts an input to the relay; may block until the relay accepts it.
pub(crate) type Post = Box<dyn Fn(Input) + Send>;

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
pub(super) struct Call {
    pub(super) thread_id: String,
    pub(super) work: Work,
    pub(super) step: Step,
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
    pub(super) fn note(&self, call: &Call, response_bytes: usize, outcome: &'static str) {
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
