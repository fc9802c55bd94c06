//! Queues of lines, one per thread, that wait until the context of the first line is known.
//!
//! A deadline bounds the wait, and a byte limit bounds the queues; beyond either, lines continue without context.

use std::collections::VecDeque;
use std::time::Duration;

use crate::engine::assembly::Assembled;
use crate::engine::token::{ApiCallId, Token};
use crate::wire::LineEnd;

/// Longest line that can be held, in bytes; a longer line passes at once.
pub(in crate::engine) const LINE_BYTES_MAX: usize = 4 << 20;

/// Bytes of all held lines. Beyond this, the thread that added the last line is released at once.
const HELD_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
pub(in crate::engine) enum Queued {
    ClientLine(Vec<u8>, LineEnd),
    /// Input from an API caller to the model.
    ApiInput {
        api_call: ApiCallId,
        text: String,
    },
    /// An API caller's request to interrupt a turn.
    Interrupt {
        api_call: ApiCallId,
    },
    /// A call of an API caller; `params` is JSON.
    Rpc {
        api_call: ApiCallId,
        method: String,
        params: Option<String>,
    },
}

/// A queued message and the time it was read.
#[derive(Debug)]
pub(in crate::engine) struct Held {
    pub(in crate::engine) queued: Queued,
    pub(in crate::engine) read_at: Duration,
}

impl Held {
    fn bytes(&self) -> usize {
        match &self.queued {
            Queued::ClientLine(line, _) => line.len(),
            Queued::ApiInput { text, .. } => text.len(),
            Queued::Interrupt { .. } => 0,
            Queued::Rpc { method, params, .. } => method.len() + params.as_ref().map_or(0, String::len),
        }
    }
}

/// The context known when a turn is released.
#[derive(Debug, Default)]
pub(in crate::engine) struct Prepared {
    /// The context engine's answer.
    pub(in crate::engine) assembled: Option<Assembled>,
    /// Current fragment states, in the order of the settings; an entry is `None` if it could not be read.
    pub(in crate::engine) states: Option<Vec<Option<String>>>,
    /// The folder in which fragments were read, if known to differ from the relay's.
    pub(in crate::engine) cwd: Option<String>,
}

/// The held lines of one thread.
#[derive(Debug)]
pub(in crate::engine) struct Hold {
    pub(in crate::engine) token: Token,
    pub(in crate::engine) thread_id: String,
    pub(in crate::engine) queue: VecDeque<Held>,
    pub(in crate::engine) prepared: Prepared,
    /// Answers still missing.
    awaited: Awaited,
    /// Release without waiting for missing answers.
    pub(in crate::engine) is_given_up: bool,
    /// The release effect was emitted.
    is_released: bool,
}

/// Deadlines of the answers that the first line of a hold waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Awaited {
    /// For the context engine; `None` if its answer is not expected or has arrived.
    pub(in crate::engine) engine_due: Option<Duration>,
    /// For the fragments, likewise.
    pub(in crate::engine) fragments_due: Option<Duration>,
}

impl Awaited {
    /// The answers whose deadline has not passed.
    pub(in crate::engine) fn not_overdue(self, elapsed: Duration) -> Awaited {
        Awaited {
            engine_due: self.engine_due.filter(|due| *due > elapsed),
            fragments_due: self.fragments_due.filter(|due| *due > elapsed),
        }
    }

    pub(in crate::engine) fn is_nothing(self) -> bool {
        self.engine_due.is_none() && self.fragments_due.is_none()
    }
}

#[derive(Debug, Default)]
pub(in crate::engine) struct Holds {
    holds: Vec<Hold>,
    bytes: usize,
    last_token: Token,
}

impl Holds {
    /// Tokens continue after `tokens_before`, the last one of the previous engine.
    pub(in crate::engine) fn new(tokens_before: Token) -> Holds {
        Holds { last_token: tokens_before, ..Holds::default() }
    }

    pub(in crate::engine) fn last_token(&self) -> Token {
        self.last_token
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Starts a hold with `queue`. If that exceeds the byte limit, the hold is ready at once.
    pub(in crate::engine) fn begin(&mut self, thread_id: &str, awaited: Awaited, queue: VecDeque<Held>) -> Token {
        self.last_token += 1;
        self.bytes += queue.iter().map(Held::bytes).sum::<usize>();
        let is_given_up = self.bytes > HELD_BYTES_MAX;
        self.holds.push(Hold {
            token: self.last_token,
            thread_id: thread_id.to_owned(),
            queue,
            prepared: Prepared::default(),
            awaited,
            is_given_up,
            is_released: false,
        });
        self.last_token
    }

    /// Whether a hold was given up.
    pub(in crate::engine) fn is_given_up(&self, token: Token) -> bool {
        self.holds.iter().any(|hold| hold.token == token && hold.is_given_up)
    }

    /// Whether lines of a thread are held.
    pub(in crate::engine) fn holds(&self, thread_id: &str) -> bool {
        self.holds.iter().any(|hold| hold.thread_id == thread_id)
    }

    /// Queues one more message of a held thread.
    pub(in crate::engine) fn push(&mut self, thread_id: &str, held: Held) {
        let bytes = held.bytes();
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.thread_id == thread_id) else { return };
        hold.queue.push_back(held);
        self.bytes += bytes;
        if self.bytes > HELD_BYTES_MAX {
            hold.is_given_up = true;
        }
    }

    /// The context engine answered or failed. A late answer is dropped, but the hold still waits for its fragments.
    pub(in crate::engine) fn consulted(&mut self, elapsed: Duration, token: Token, assembled: Option<Assembled>) {
        if let Some(hold) = self.of(token)
            && let Some(due) = hold.awaited.engine_due.take()
        {
            hold.prepared.assembled = assembled.filter(|_| elapsed <= due);
        }
    }

    /// Sets the folder in which the fragments of a hold are read.
    pub(in crate::engine) fn reads_in(&mut self, token: Token, cwd: Option<String>) {
        if let Some(hold) = self.of(token) {
            hold.prepared.cwd = cwd;
        }
    }

    pub(in crate::engine) fn fragments_read(&mut self, token: Token, states: Vec<Option<String>>) {
        if let Some(hold) = self.of(token)
            && hold.awaited.fragments_due.take().is_some()
        {
            hold.prepared.states = Some(states);
        }
    }

    /// Discards fragment states and stops waiting for them.
    pub(in crate::engine) fn forget_fragments(&mut self) {
        for hold in &mut self.holds {
            hold.awaited.fragments_due = None;
            hold.prepared.states = None;
        }
    }

    /// Gives up all holds: their writer is gone.
    pub(in crate::engine) fn give_up_all(&mut self) {
        self.holds.iter_mut().for_each(|hold| hold.is_given_up = true);
    }

    /// The holds that are ready now; each is returned once.
    pub(in crate::engine) fn ready(&mut self, elapsed: Duration) -> Vec<Token> {
        let is_ready = |hold: &&mut Hold| !hold.is_released && hold.due_at() <= elapsed;
        let ready = self.holds.iter_mut().filter(is_ready);
        ready
            .map(|hold| {
                hold.is_released = true;
                hold.token
            })
            .collect()
    }

    /// All tokens, oldest hold first.
    pub(in crate::engine) fn tokens(&self) -> Vec<Token> {
        self.holds.iter().map(|hold| hold.token).collect()
    }

    /// The next deadline.
    pub(in crate::engine) fn due(&self) -> Option<Duration> {
        self.holds.iter().filter(|hold| !hold.is_released).map(Hold::due_at).min()
    }

    /// Removes a hold.
    pub(in crate::engine) fn take(&mut self, token: Token) -> Option<Hold> {
        let index = self.holds.iter().position(|hold| hold.token == token)?;
        let hold = self.holds.remove(index);
        self.bytes -= hold.queue.iter().map(Held::bytes).sum::<usize>();
        Some(hold)
    }

    /// Removes all holds: the server has ended.
    pub(in crate::engine) fn take_all(&mut self) -> Vec<Hold> {
        self.bytes = 0;
        std::mem::take(&mut self.holds)
    }

    fn of(&mut self, token: Token) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.token == token)
    }
}

impl Hold {
    fn due_at(&self) -> Duration {
        let due = self.awaited.engine_due.max(self.awaited.fragments_due).filter(|_| !self.is_given_up);
        due.unwrap_or_default()
    }
}
