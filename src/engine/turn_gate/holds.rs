//! Lines of a thread that wait until it is known what the model is to be shown with the first of them.
//!
//! Bounded in time by a deadline, and in bytes: what is over goes on as it is. Nothing is decided here on what the lines say.

use std::collections::VecDeque;
use std::time::Duration;

use crate::engine::assembly::Assembled;
use crate::engine::token::{ApiCallId, Token};
use crate::wire::LineEnd;

/// Longest line that lines wait behind, in bytes; a longer one goes on as it is.
pub(in crate::engine) const LINE_BYTES_MAX: usize = 4 << 20;

/// Bytes of all lines that wait; with more, those of the thread that has brought the last one go on at once.
const HELD_BYTES_MAX: usize = 8 << 20;

/// Something that waits.
#[derive(Debug)]
pub(in crate::engine) enum Queued {
    /// A line of the client's.
    ClientLine(Vec<u8>, LineEnd),
    /// What somebody at the side says to the model.
    ApiInput { api_call: ApiCallId, text: String },
    /// That somebody at the side wants a turn interrupted.
    Interrupt { api_call: ApiCallId },
    /// A call of somebody at the side. The parameters are JSON.
    Rpc { api_call: ApiCallId, method: String, params: Option<String> },
}

/// Something that waits, and when it was read.
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

/// What is known for a turn once its line goes on.
#[derive(Debug, Default)]
pub(in crate::engine) struct Prepared {
    /// What the context engine has assembled.
    pub(in crate::engine) assembled: Option<Assembled>,
    /// What fragments say now, in the order of the settings; `None` where that could not be had.
    pub(in crate::engine) states: Option<Vec<Option<String>>>,
    /// Where they were read, where that is known to be elsewhere than the relay.
    pub(in crate::engine) cwd: Option<String>,
}

/// Lines of one thread that wait.
#[derive(Debug)]
pub(in crate::engine) struct Hold {
    pub(in crate::engine) token: Token,
    pub(in crate::engine) thread_id: String,
    pub(in crate::engine) queue: VecDeque<Held>,
    pub(in crate::engine) prepared: Prepared,
    /// What has not come yet.
    awaited: Awaited,
    /// Nothing of it waits any more, whatever is known.
    pub(in crate::engine) is_given_up: bool,
    /// It was said that it goes on.
    is_released: bool,
}

/// What the first line of a hold waits for, each until its own time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Awaited {
    /// Until when it waits for the context engine; `None` is not at all, or not any more.
    pub(in crate::engine) engine_due: Option<Duration>,
    /// The same for the fragments.
    pub(in crate::engine) fragments_due: Option<Duration>,
}

impl Awaited {
    /// What of it there is time for.
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

/// All that waits.
#[derive(Debug, Default)]
pub(in crate::engine) struct Holds {
    holds: Vec<Hold>,
    bytes: usize,
    last_token: Token,
}

impl Holds {
    /// Nothing waits yet; tokens go on behind `tokens_before`, which those before have used.
    pub(in crate::engine) fn new(tokens_before: Token) -> Holds {
        Holds { last_token: tokens_before, ..Holds::default() }
    }

    /// The last token that was given.
    pub(in crate::engine) fn last_token(&self) -> Token {
        self.last_token
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Lines of a thread wait from now on, behind the first of them. Where that is too much they are ready at once.
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

    /// Whether what waits under a token is too much to wait.
    pub(in crate::engine) fn is_given_up(&self, token: Token) -> bool {
        self.holds.iter().any(|hold| hold.token == token && hold.is_given_up)
    }

    /// Whether lines of a thread wait.
    pub(in crate::engine) fn holds(&self, thread_id: &str) -> bool {
        self.holds.iter().any(|hold| hold.thread_id == thread_id)
    }

    /// One more waits behind what waits of its thread.
    pub(in crate::engine) fn push(&mut self, thread_id: &str, held: Held) {
        let bytes = held.bytes();
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.thread_id == thread_id) else { return };
        hold.queue.push_back(held);
        self.bytes += bytes;
        if self.bytes > HELD_BYTES_MAX {
            hold.is_given_up = true;
        }
    }

    /// The context engine has answered, or will not. What comes too late is as if it had not, though the fragments are still
    /// waited for.
    pub(in crate::engine) fn consulted(&mut self, elapsed: Duration, token: Token, assembled: Option<Assembled>) {
        if let Some(hold) = self.of(token)
            && let Some(due) = hold.awaited.engine_due.take()
        {
            hold.prepared.assembled = assembled.filter(|_| elapsed <= due);
        }
    }

    /// The fragments are read in this folder.
    pub(in crate::engine) fn reads_in(&mut self, token: Token, cwd: Option<String>) {
        if let Some(hold) = self.of(token) {
            hold.prepared.cwd = cwd;
        }
    }

    /// The fragments are known.
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

    /// Nothing waits any longer: whoever wrote it is gone.
    pub(in crate::engine) fn give_up_all(&mut self) {
        self.holds.iter_mut().for_each(|hold| hold.is_given_up = true);
    }

    /// What goes on now; each is told once.
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

    /// All that waits, in the order in which it began to.
    pub(in crate::engine) fn tokens(&self) -> Vec<Token> {
        self.holds.iter().map(|hold| hold.token).collect()
    }

    /// When the next one goes on at the latest.
    pub(in crate::engine) fn due(&self) -> Option<Duration> {
        self.holds.iter().filter(|hold| !hold.is_released).map(Hold::due_at).min()
    }

    /// Takes out what goes on.
    pub(in crate::engine) fn take(&mut self, token: Token) -> Option<Hold> {
        let index = self.holds.iter().position(|hold| hold.token == token)?;
        let hold = self.holds.remove(index);
        self.bytes -= hold.queue.iter().map(Held::bytes).sum::<usize>();
        Some(hold)
    }

    /// Takes out all of it: the server has ended.
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
