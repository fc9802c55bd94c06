//! What other threads tell the relay, and how they wake it.
//!
//! Bounded: who tells more than the relay has taken waits for it, and the relay waits for nobody.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::engine::ContextChange;

/// Changes that may lie in the inbox.
const CHANGES_MAX: usize = 256;

/// The relay's end.
#[derive(Debug)]
pub(super) struct Inbox(Receiver<ContextChange>);

/// Another thread's end.
#[derive(Debug)]
pub(super) struct Outbox {
    changes: SyncSender<ContextChange>,
    /// A byte into this wakes the loop.
    wake: UnixStream,
}

/// An inbox, and who puts something into it; `wake` is a stream that the loop polls the other end of.
pub(super) fn inbox(wake: UnixStream) -> (Outbox, Inbox) {
    let (changes, taken) = sync_channel(CHANGES_MAX);
    (Outbox { changes, wake }, Inbox(taken))
}

impl Inbox {
    /// The next change, where there is one.
    pub(super) fn take(&self) -> Option<ContextChange> {
        self.0.try_recv().ok()
    }
}

impl Outbox {
    /// Another end of the same.
    pub(super) fn try_clone(&self) -> io::Result<Outbox> {
        Ok(Outbox { changes: self.changes.clone(), wake: self.wake.try_clone()? })
    }

    /// Tells the relay something, and wakes it.
    pub(super) fn put(&self, change: ContextChange) {
        use std::io::Write as _;
        // A relay that has ended takes nothing; a stream that is full of wake-ups wakes as well.
        if self.changes.send(change).is_ok() {
            let _ = (&self.wake).write(&[0]);
        }
    }
}
