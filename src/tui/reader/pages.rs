//! The thread that reads pages for scrolling and searching, one command at a time.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use super::super::events::{Command, News};
use super::Teller;
use super::pager::Pager;

/// Reads pages while a session is attached.
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

    /// Queues a read. It may skip earlier reads that have not started.
    pub(in crate::tui) fn read(&self, command: Command) {
        // If the queue is full, this read is no longer needed.
        let _ = self.jobs.try_send(command);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.wanted.store(false, Ordering::Relaxed);
    }
}
