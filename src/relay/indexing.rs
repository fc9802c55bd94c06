//! The index beside a relay: what it needs of the ledger, and what the user is told of it.

use std::sync::Arc;
use std::time::Duration;

use super::notices::Notices;
use super::opening::Opening;
use crate::control::Published;
use crate::engine::Input;
use crate::index::{Index, IndexSettings, Marks, Tell, Tidings};
use crate::store::{Ledger, Session};

/// How long the index waits for the ledger to reserve numbers.
const RESERVE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Has a thread index the session's journal, and waits for nothing of it.
pub(super) fn start(
    opening: &Opening,
    session: &Session,
    ledger: Option<Ledger>,
    published: &Arc<Published>,
    notices: &Notices,
) -> Option<Index> {
    let settings = IndexSettings {
        session_id: session.id.clone(),
        session_dir: session.dir.clone(),
        journal_dir: session.journal_dir.clone(),
        retention: opening.retention,
        transcript_files: opening.transcript_files,
        home: opening.home.clone(),
        indexed_to: opening.indexed_to.clone(),
    };
    let marks: Marks = Box::new(move |wish| {
        let ledger = ledger.as_ref().ok_or_else(|| "there is no ledger to reserve numbers in".to_owned())?;
        ledger.reserve_seq(wish, RESERVE_WAIT_MAX).map_err(|error| error.to_string())
    });
    let outbox = opening.outbox.try_clone().ok()?;
    let for_thread = Arc::clone(published);
    let tell: Tell = Box::new(move |tidings| match tidings {
        Tidings::Failed(why) => Notices::new(Arc::clone(&for_thread))
            .say(&format!("{why}; relaying and recording go on, and what happens is indexed once it can be")),
        // Of the ledger it is said already.
        Tidings::AwaitsLedger(why) => tracing::warn!("the index waits: {why}"),
        Tidings::SetAside(kept) => Notices::new(Arc::clone(&for_thread)).say(&format!(
            "history.db was no database any more; it is kept as {}, and built again from the journal",
            kept.display()
        )),
        Tidings::TranscriptFailed(why) => Notices::new(Arc::clone(&for_thread))
            .say(&format!("{why}; the file is completed once it can be, and nothing else lacks anything")),
        Tidings::Recovered => outbox.tell(Input::IndexRecovered),
    });
    Index::start(settings, marks, tell)
        .map_err(|error| {
            notices.say(&format!("start a thread for the index: {error}; there is no history of this run"))
        })
        .ok()
}
