//! The thread that reads what was said: it waits until the index has come so far, so that whoever asks does not have to.
//!
//! Readings are given one after the other. What is asked later waits for nothing less: the journal only grows, so nobody waits
//! here for somebody else whom they would not have waited for anyway. Nothing is kept of one that is over its time.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::conversation::Conversation;
use crate::index::{HISTORY_FILE, History, Index, IndexState};
use crate::journal::{Position, end_of};

/// Readings that may wait.
pub(super) const READINGS_MAX: usize = 32;

/// Bytes of a thread's newest entries that are read; what is older is left out.
const ENTRIES_BYTES_MAX: usize = 2 << 20;

/// Stack of the thread, in bytes.
const STACK_BYTES: usize = 1 << 20;

/// Where conversations are read from.
#[derive(Debug)]
pub(crate) struct Conversations {
    index: Option<Index>,
    history: History,
    journal_dir: PathBuf,
}

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Reader {
    readings: SyncSender<Reading>,
    journal_dir: PathBuf,
}

/// A conversation that is to be read.
#[derive(Debug)]
struct Reading {
    number: u64,
    thread_id: String,
    /// What was recorded by then is in it.
    end: Option<Position>,
    due: Instant,
}

/// More is to be read than may wait.
#[derive(Debug)]
pub(super) struct TooMuch;

impl Conversations {
    /// Those of the session in `session_dir`. Without an index nothing is recorded, and nothing can be read.
    #[must_use]
    pub(crate) fn new(session_dir: &Path, journal_dir: &Path, index: Option<Index>) -> Conversations {
        let history = History::new(&session_dir.join(HISTORY_FILE));
        Conversations { index, history, journal_dir: journal_dir.to_owned() }
    }

    /// Has a thread read them; what comes of each reading is told by its number, from that thread. It ends with the reader.
    pub(super) fn start(self, tell: impl Fn(u64, Result<Conversation, String>) + Send + 'static) -> io::Result<Reader> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (readings, to_read) = sync_channel(READINGS_MAX);
        let journal_dir = self.journal_dir.clone();
        let thread = std::thread::Builder::new().name("engine-history".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || self.read_all(&to_read, &runtime, &tell))?;
        Ok(Reader { readings, journal_dir })
    }

    fn read_all(
        &self,
        to_read: &Receiver<Reading>,
        runtime: &Runtime,
        tell: &impl Fn(u64, Result<Conversation, String>),
    ) {
        for reading in to_read {
            let number = reading.number;
            tell(number, self.read(&reading, runtime));
        }
    }

    fn read(&self, reading: &Reading, runtime: &Runtime) -> Result<Conversation, String> {
        let Some(index) = &self.index else { return Err("nothing is recorded in this session".to_owned()) };
        let Reading { thread_id, end, due, number: _ } = reading;
        let mut state = index.state();
        let is_there = |state: &IndexState| end.is_none() || state.position >= *end;
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("its time was over".to_owned());
        }
        if !is_there(&state.borrow()) {
            index.look();
            let settled = state.wait_for(|state| is_there(state) || state.fault.is_some());
            // Late or not, the state tells.
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
            return Err("the index has not come so far in time".to_owned());
        }
        let entries = self.history.transcript_end(thread_id, ENTRIES_BYTES_MAX, epoch).map_err(|error| {
            if error.is_broken() {
                index.build_again(epoch);
            }
            error.to_string()
        })?;
        Ok(Conversation::of(&entries))
    }
}

impl Reader {
    /// Has the conversation of a thread read as it is now, where that can be had until `due`. Never waits.
    pub(super) fn read(&self, number: u64, thread_id: &str, due: Instant) -> Result<(), TooMuch> {
        let end = end_of(&self.journal_dir);
        let reading = Reading { number, thread_id: thread_id.to_owned(), end, due };
        self.readings.try_send(reading).map_err(|_| TooMuch)
    }
}
