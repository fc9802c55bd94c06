//! Reading what somebody scrolls or searches to: one thing at a time, in a thread of its own.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use super::super::events::{Command, News};
use super::Teller;
use super::pager::Pager;

/// What reads pages, for as long as a session is attached to.
#[derive(Debug)]
pub(in crate::tui) struct Pages {
    jobs: SyncSender<Command>,
    wanted: Arc<AtomicBool>,
}

impl Pages {
    pub(in crate::tui) fn start(session_dir: &Path, teller: Teller) -> io::Result<Pages> {
        let (jobs, taken) = sync_channel::<Command>(4);
        let wanted = Arc::new(AtomicBool::new(true));
        let pager = Pager::new(session_dir, Arc::clone(&wanted));
        std::thread::Builder::new().name("pages".to_owned()).spawn(move || {
            while let Ok(command) = taken.recv() {
                let news = match pager.read(&command) {
                    Ok(Some(news)) => news,
                    Ok(None) => continue,
                    Err(error) => News::Unreadable(format!("read the journal: {error}")),
                };
                if teller.tell(news).is_err() {
                    return;
                }
            }
        })?;
        Ok(Pages { jobs, wanted })
    }

    /// Reads something. What was asked for before and has not been read yet may be left.
    pub(in crate::tui) fn read(&self, command: Command) {
        // Where so much waits that there is no room, nobody waits for this one.
        let _ = self.jobs.try_send(command);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
    }
}
