//! What is to be done for threads of codex, and what the relay is told of it.
//!
//! Whoever waits for something is told of its end, whatever that is. Nothing is decided here.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use super::call::{Beginning, Compaction};
use super::conversation::Conversation;
use super::lifecycle::{Method, Occasion, Step};
use crate::engine::{Assembled, Input, Note, Token};

/// Tells the relay something; may wait until that takes it.
pub type Tell = Box<dyn Fn(Input<'static>) + Send>;

/// Something that is to be done for a thread.
#[derive(Debug)]
pub(super) enum Task {
    /// It is there.
    Met,
    TurnBegins {
        token: Token,
        beginning: Rc<Beginning>,
        due: Instant,
    },
    TurnCompleted {
        turn_id: String,
    },
    Compaction {
        token: Token,
    },
}

/// One thread of codex.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) tasks: VecDeque<Task>,
    /// This run of the engine has been told of it.
    pub(super) is_met: bool,
    /// A call is open.
    pub(super) is_busy: bool,
}

/// A call that is open.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) thread_id: String,
    pub(super) work: Work,
    pub(super) step: Step,
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
    pub(super) fn refuse(&self, thread_id: &str, task: &Task, outcome: &'static str, error: Option<String>) {
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
            error,
        });
        self.answer_without(task);
    }

    /// Lets go on whoever waits for a task, with nothing.
    pub(super) fn answer_without(&self, task: &Task) {
        self.consulted(task, None);
    }

    pub(super) fn consulted(&self, task: &Task, assembled: Option<Assembled>) {
        match task {
            Task::TurnBegins { token, .. } | Task::Compaction { token } => {
                (self.0)(Input::Consulted { token: *token, assembled: assembled.map(Box::new) });
            }
            Task::Met | Task::TurnCompleted { .. } => {}
        }
    }

    pub(super) fn note(&self, call: &Call, response_bytes: usize, outcome: &'static str, error: Option<String>) {
        self.say(Note::ContextEngineCall {
            method: call.step.method().name(),
            thread_id: Some(call.thread_id.clone()),
            ms: call.sent_at.elapsed().as_millis() as u64,
            request_bytes: call.bytes as u64,
            response_bytes: response_bytes as u64,
            outcome,
            error,
        });
    }

    /// What has become of a compaction.
    pub(super) fn compacted(&self, thread_id: &str, compaction: Compaction) {
        let Compaction { ok, compacted, reason } = compaction;
        let thread_id = thread_id.to_owned();
        self.say(Note::ContextEngineCompacted { thread_id, ok, compacted, reason, owns_compaction: true });
    }

    pub(super) fn say(&self, note: Note) {
        (self.0)(Input::Noted(Box::new(note)));
    }
}
