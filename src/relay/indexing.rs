//! Starts the session's index, reserves its numbers in the ledger, and reports its faults to the user.

use std::sync::Arc;
use std::time::Duration;

use super::notices::Notices;
use super::opening::Opening;
use crate::control::Published;
use crate::engine::Input;
use crate::index::{Index, IndexNotice, IndexSettings, Marks, Notify};
use crate::store::{Ledger, Session};

const RESERVE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Starts the index thread without waiting for it.
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
    let marks: Marks = Box::new(move |wanted_numbers| {
        let ledger = ledger.as_ref().ok_or_else(|| "there is no ledger to reserve numbers in".to_owned())?;
        ledger.reserve_seq(wanted_numbers, RESERVE_WAIT_MAX).map_err(|error| error.to_string())
    });
    let outbox = opening.outbox.try_clone().ok()?;
    let for_thread = Arc::clone(published);
    let tell: Notify = Box::new(move |notice| match notice {
        IndexNotice::Failed(why) => Notices::new(Arc::clone(&for_thread))
            .report(&format!("{why}; relaying and recording go on, and the index catches up once it can")),
        // The ledger reports its own fault.
        IndexNotice::AwaitsLedger(why) => tracing::warn!("the index waits: {why}"),
        IndexNotice::SetAside(kept) => Notices::new(Arc::clone(&for_thread))
            .report(&format!("history.db was damaged; it is kept as {} and rebuilt from the journal", kept.display())),
        IndexNotice::TranscriptFailed(why) => Notices::new(Arc::clone(&for_thread))
            .report(&format!("{why}; the file is completed once that is possible; nothing else is affected")),
        IndexNotice::Recovered => outbox.post(Input::IndexRecovered),
    });
    Index::start(settings, marks, tell)
        .map_err(|error| notices.report(&format!("start a thread for the index: {error}; this run has no history")))
        .ok()
}
