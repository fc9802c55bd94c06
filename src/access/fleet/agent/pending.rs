//! The pending requests of a live session. The agent reads them independently of the events, so that a server that
//! accepts no events does not delay a request.

use std::sync::Arc;

use super::answers::rows;
use super::ship::{Traffic, is_live};
use super::{Shared, locked};
use crate::api::{Request, WhichRequests};
use crate::fleet::level;
use crate::fleet::wire::PendingRow;
use crate::store::{Found, label};

/// Most pending requests of a session in the list.
const PENDING_OF_SESSION_MAX: usize = 100;

/// Longest summary in the list, in bytes.
const SUMMARY_BYTES_MAX: usize = 300;

/// Keeps the list of a session current until it has stopped.
pub(super) async fn watch(shared: Arc<Shared>, found: Found) {
    let mut traffic = Traffic::default();
    loop {
        traffic.look(&found);
        if !is_live(&found).await {
            return shared.put_pending(&found.id, Vec::new());
        }
        refresh(&shared, &found).await;
        traffic.wait(&found).await;
    }
}

async fn refresh(shared: &Arc<Shared>, found: &Found) {
    let session = found.clone();
    let asked = tokio::task::spawn_blocking(move || rows(&session.dir, WhichRequests::Pending)).await;
    // A relay that does not answer may still have them.
    if let Ok(Ok(rows)) = asked {
        // The client names itself after the start of the session.
        let name =
            locked(&shared.found).iter().find(|session| session.id == found.id).map_or_else(|| label(found), label);
        let rows = rows.iter().take(PENDING_OF_SESSION_MAX).map(|row| pending(shared, &found.id, &name, row)).collect();
        shared.put_pending(&found.id, rows);
    }
}

fn pending(shared: &Shared, session: &str, name: &str, row: &Request) -> PendingRow {
    let mut summary = level::summary(row, shared.member.level);
    if summary.len() > SUMMARY_BYTES_MAX {
        summary.truncate(summary.floor_char_boundary(SUMMARY_BYTES_MAX));
        summary.push('…');
    }
    PendingRow {
        session_id: session.to_owned(),
        session_name: name.to_owned(),
        request_id: row.request_id.clone(),
        request_method: row.request_method.clone(),
        request_type: row.request_type.clone().into(),
        thread_id: row.thread_id.clone(),
        requested_at: row.requested_at.clone(),
        expires_at: row.expires_at.clone(),
        summary,
    }
}
