//! What is to be done for threads of codex, and what the relay is told of it.
//!
//! Whoever waits for something is told of its end, whatever that is. Nothing is decided here.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use super::call::{Beginning, Compaction};
use super::conversation::Conversation;
use super::lifecycle::{Method, Occasion, Step};
use super::silence::Wait;
use crate::engine::{Assembled, Input, Note, Token};

/// Tells the relay something; may wait until that takes it.
pub(crate) type Tell = Box<dyn Fn(Input<'static>) + Send>;

/// Something that is to be done for a thread.
#[derive(Debug)]
pub(super) enum Task {
    /// It is there.
    Met,
    TurnBegins {
        token: Token,
        beginning: Rc<Beginning>,
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
    /// When the client's lines no longer wait for it, if some do. The engine may be silent since some time.
    pub(super) fn due(&self, silent_since: Option<Instant>) -> Option<Instant> {
        match self {
            Task::TurnBegins { wait, .. } | Task::Compaction { wait, .. } => Some(wait.until(silent_since)),
            Task::Met | Task::TurnCompleted { .. } => None,
        }
    }

    pub(super) fn is_overdue(&self, silent_since: Option<Instant>, now: Instant) -> bool {
        self.due(silent_since).is_some_and(|due| due <= now)
    }
}

/// One thread of codex.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) tasks: VecDeque<Task>,
    /// This run of the engine has been told of it.
    pub(super) is_met: bool,
    /// It could not be told of it, and can be again from then on.
    pub(super) is_met_again_at: Option<Instant>,
    /// A call is open, or what was said is being read for one.
    pub(super) is_busy: bool,
    /// Counts who has waited, so that the first is the first to go on.
    pub(super) waits_since: u64,
    /// Since when the engine is silent in this thread: a turn has waited in vain, and no call for the thread was answered since.
    pub(super) silent_since: Option<Instant>,
}

impl Line {
    /// The engine is silent in this thread if it is silent at all.
    pub(super) fn silent_since(&self, engine_silent_since: Option<Instant>) -> Option<Instant> {
        self.silent_since.into_iter().chain(engine_silent_since).min()
    }

    /// What is to be done next.
    pub(super) fn next(&mut self, is_told_of_threads: bool, now: Instant) -> Option<Task> {
        if !self.is_met && self.is_met_again_at.is_none_or(|at| at <= now) {
            self.is_met = true;
            if is_told_of_threads {
                return Some(Task::Met);
            }
        }
        // It is there, and that is known.
        while let Some(Task::Met) = self.tasks.front() {
            self.tasks.pop_front();
        }
        self.tasks.pop_front()
    }

    /// The turns that it will be told of.
    pub(super) fn completed_turns(&self) -> Vec<&str> {
        let completed = self.tasks.iter().filter_map(|task| match task {
            Task::TurnCompleted { turn_id } => Some(turn_id.as_str()),
            Task::Met | Task::TurnBegins { .. } | Task::Compaction { .. } => None,
        });
        completed.collect()
    }
}

/// A call that is open.
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

/// What a call is one step of.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) task: Task,
    pub(super) occasion: Occasion,
    pub(super) conversation: Rc<Conversation>,
}

/// Tells the relay what has become of it.
pub(super) struct Reporter(pub(super) Tell);

impl Reporter {
    pub(super) fn tell(&self, input: Input<'static>) {
        (self.0)(input);
    }

    /// Something cannot be done, and an event says why.
    pub(super) fn refuse(&self, thread_id: &str, task: &Task, outcome: &'static str) {
        let method = match task {
            // It is made up for once the engine is there.
            Task::Met => return,
            Task::TurnBegins { .. } => Method::Assemble,
            Task::TurnCompleted { .. } => Method::AfterTurn,
            Task::Compaction { .. } => Method::Compact,
        };
        self.say(Note::ContextEngineCall {
            method: method.name(),
            thread_id: Some(thread_id.to_owned()),
            ms: 0,
            request_bytes: 0,
            response_bytes: 0,
            outcome,
        });
        self.answer_without(task);
    }

    /// Lets go on whoever waits for a task, with nothing.
    pub(super) fn answer_without(&self, task: &Task) {
        self.consulted(task, None);
    }

    pub(super) fn consulted(&self, task: &Task, assembled: Option<Assembled>) {
        match task {
            Task::TurnBegins { token, .. } | Task::Compaction { token, .. } => {
                (self.0)(Input::Consulted { token: *token, assembled: assembled.map(Box::new) });
            }
            Task::Met | Task::TurnCompleted { .. } => {}
        }
    }

    /// What a call has come to. An engine's own words may be a user's, and are in no event.
    pub(super) fn note(&self, call: &Call, response_bytes: usize, outcome: &'static str) {
        self.say(Note::ContextEngineCall {
            method: call.step.method().name(),
            thread_id: Some(call.thread_id.clone()),
            ms: call.sent_at.elapsed().as_millis() as u64,
            request_bytes: call.bytes as u64,
            response_bytes: response_bytes as u64,
            outcome,
        });
    }

    /// What has become of a compaction; `None` where the engine has not answered.
    pub(super) fn compacted(&self, thread_id: &str, compaction: Option<Compaction>) {
        let unanswered = || "the context engine has not done it".to_owned();
        let reason = compaction.is_none().then(unanswered);
        let Compaction { ok, compacted, reason: _ } = compaction.unwrap_or_default();
        let thread_id = thread_id.to_owned();
        self.say(Note::ContextEngineCompacted { thread_id, ok, compacted, reason, owns_compaction: true });
    }

    pub(super) fn say(&self, note: Note) {
        (self.0)(Input::Noted(Box::new(note)));
    }
}
