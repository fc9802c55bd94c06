//! Describes the host in two buckets: itself, and its pending requests. Nothing is decided by them, and they are written again after
//! every loss.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{sleep, timeout};

use super::Shared;
use crate::fleet::connection::Link;
use crate::fleet::subject::{HOSTS_BUCKET, PENDING_BUCKET, key};
use crate::fleet::wire::{self, HostDocument, MESSAGE_BYTES_MAX, PendingDocument, PendingRow, VERSION};

/// How often the host is described, if nothing changes.
pub(crate) const SEEN_EVERY: Duration = Duration::from_secs(10);

/// Pause after a change, in which further ones are collected.
const SETTLES_AFTER: Duration = Duration::from_millis(100);

/// Pause after the description could not be stored.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Most pending requests in the description.
const PENDING_MAX: usize = 1_000;

/// Describes the host until the process ends.
pub(super) async fn announce(shared: &Arc<Shared>) {
    let mut link = shared.connection.link.clone();
    let mut told = None;
    loop {
        let _ = link.wait_for(|link| *link == Link::Up).await;
        match describe(shared).await {
            Ok(()) => {
                told = None;
                let _ = timeout(SEEN_EVERY, shared.pending_changed.notified()).await;
                sleep(SETTLES_AFTER).await;
            }
            Err(error) => {
                if told.as_ref() != Some(&error) {
                    (shared.say)(&format!("this host is not described: {error}; trying again"));
                    told = Some(error);
                }
                sleep(AGAIN_AFTER).await;
            }
        }
    }
}

async fn describe(shared: &Shared) -> Result<(), String> {
    let host = &shared.member.host;
    let rows: Vec<PendingRow> = shared.pending().values().flatten().cloned().collect();
    let count = rows.len() as u64;
    let pending = bounded(host, rows);
    let document = HostDocument {
        v: VERSION,
        host: host.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        level: shared.member.level.to_string(),
        since: humantime::format_rfc3339_seconds(shared.started_at).to_string(),
        seen_at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        agent: shared.id.clone(),
        sessions: shared.found().iter().filter(|session| session.live).count() as u64,
        pending: count,
    };
    for (bucket, bytes) in [(PENDING_BUCKET, wire::bytes(&pending)), (HOSTS_BUCKET, wire::bytes(&document))] {
        let sent =
            shared.jetstream.publish(key(bucket, host), bytes.into()).await.map_err(|error| error.to_string())?;
        sent.await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The description of pending requests, the oldest first, in at most one message.
fn bounded(host: &str, mut rows: Vec<PendingRow>) -> PendingDocument {
    rows.sort_by(|one, other| one.requested_at.cmp(&other.requested_at));
    let all = rows.len();
    rows.truncate(PENDING_MAX);
    let mut document = PendingDocument { v: VERSION, host: host.to_owned(), requests: rows, more: 0 };
    loop {
        document.more = (all - document.requests.len()) as u64;
        if wire::bytes(&document).len() <= MESSAGE_BYTES_MAX || document.requests.is_empty() {
            return document;
        }
        document.requests.truncate(document.requests.len() / 2);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn row(number: usize, summary: &str) -> PendingRow {
        PendingRow {
            session_id: "s".to_owned(),
            session_name: "s".to_owned(),
            request_id: format!("g-{number}"),
            request_method: "m".to_owned(),
            request_type: Value::Null,
            thread_id: None,
            requested_at: format!("{number:05}"),
            expires_at: None,
            summary: summary.to_owned(),
        }
    }

    #[test]
    fn pending_requests_fit_one_message() {
        let few = bounded("h", vec![row(2, "b"), row(1, "a")]);
        assert_eq!((few.requests[0].request_id.as_str(), few.requests.len(), few.more), ("g-1", 2, 0));
        let many = bounded("h", (0..PENDING_MAX + 7).map(|number| row(number, "x")).collect());
        assert_eq!((many.requests.len(), many.more), (PENDING_MAX, 7));
        let long = bounded("h", (0..PENDING_MAX).map(|number| row(number, &"x".repeat(4 << 10))).collect());
        assert!(wire::bytes(&long).len() <= MESSAGE_BYTES_MAX);
        assert_eq!(long.requests.len() as u64 + long.more, PENDING_MAX as u64);
    }
}
