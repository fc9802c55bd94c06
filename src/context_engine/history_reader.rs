//! The thread that reads conversations. It waits for the index to catch up, so that its callers need not.
//!
//! Readings run sequentially. That delays no one: the journal only grows, so a later reading needs at least what an
//! earlier one waits for. A reading whose deadline has passed is dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::conversation::Conversation;
use crate::index::{HISTORY_FILE, History, Index, IndexState};
use crate::journal::{Position, end_of};

/// Limit of queued readings.
pub(super) const READINGS_MAX: usize = 32;

/// Limit of a conversation in bytes of its newest entries; older entries are left out.
const ENTRIES_BYTES_MAX: usize = 2 << 20;

const STACK_BYTES: usize = 1 << 20;

/// The source of conversations.
#[derive(Debug)]
pub(crate) struct Conversations {
    index: Option<Index>,
    history: History,
    journal_dir: PathBuf,
}

/// A handle of the thread.
#[derive(Debug)]
pub(super) struct Reader {
    readings: SyncSender<Reading>,
    journal_dir: PathBuf,
}

/// A conversation to read.
#[derive(Debug)]
struct Reading {
    number: u64,
    thread_id: String,
    /// The end of the journal at the time of the request.
    end: Option<Position>,
    due: Instant,
}

/// The queue is full.
#[derive(Debug)]
pub(super) struct QueueFull;

impl Conversations {
    /// The conversations of the session in `session_dir`. Without an index, nothing is recorded or can be read.
    #[must_use]
    pub(crate) fn new(session_dir: &Path, journal_dir: &Path, index: Option<Index>) -> Conversations {
        let history = History::new(&session_dir.join(HISTORY_FILE));
        Conversations { index, history, journal_dir: journal_dir.to_owned() }
    }

    /// Starts the thread, which passes each result to `post`. The thread ends with the [`Reader`].
    pub(super) fn start(self, post: impl Fn(u64, Result<Conversation, String>) + Send + 'static) -> io::Result<Reader> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (readings, to_read) = sync_channel(READINGS_MAX);
        let journal_dir = self.journal_dir.clone();
        let thread = std::thread::Builder::new().name("engine-history".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || self.read_all(&to_read, &runtime, &post))?;
        Ok(Reader { readings, journal_dir })
    }

    fn read_all(
        &self,
        to_read: &Receiver<Reading>,
        runtime: &Runtime,
        post: &impl Fn(u64, Result<Conversation, String>),
    ) {
        for reading in to_read {
            let number = reading.number;
            post(number, self.read(&reading, runtime));
        }
    }

    fn read(&self, reading: &Reading, runtime: &Runtime) -> Result<Conversation, String> {
        let Some(index) = &self.index else { return Err("nothing is recorded in this session".to_owned()) };
        let Reading { thread_id, end, due, number: _ } = reading;
        let mut state = index.state();
        let is_there = |state: &IndexState| end.is_none() || state.position >= *end;
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("the deadline has passed".to_owned());
        }
        if !is_there(&state.borrow()) {
            index.wake();
            let settled = state.wait_for(|state| is_there(state) || state.fault.is_some());
            // The state below shows whether it caught up in time.
            drop(runtime.block_on(async { timeout(left, settled).await }));
        }
        let (is_behind, fault, epoch) = {
            let state = state.borrow();
            (!is_there(&state), state.fault.clone(), state.opened)
        };
        if let Some(fault) = fault {
            return Err(fault);
        }
        if is_behind {
            return Err("the index did not catch up in time".to_owned());
        }
        let entries = self.history.transcript_end(thread_id, ENTRIES_BYTES_MAX, epoch).map_err(|error| {
            if error.is_broken() {
                index.rebuild(epoch);
            }
            error.to_string()
        })?;
        Ok(Conversation::of(&entries))
    }
}

impl Reader {
    /// Queues a reading of the thread's conversation as of now, to be completed by `due`. Never waits.
    pub(super) fn read(&self, number: u64, thread_id: &str, due: Instant) -> Result<(), QueueFull> {
        let end = end_of(&self.journal_dir);
        let reading = Reading { number, thread_id: thread_id.to_owned(), end, due };
        self.readings.try_send(reading).map_err(|_| QueueFull)
    }
}
