//! Maintenance by the index: transcript files, retention, expired sessions.

use std::time::{Duration, Instant, SystemTime};

use super::indexer::{Failure, Indexer, Progress, SESSIONS_EVERY};
use super::retention::{Pruned, prune};
use super::settings::IndexNotice;
use crate::config::RetentionBounds;
use crate::history::Entry;
use crate::store::{expired_sessions, remove_expired, remove_leftovers};

/// The interval between two prunings; while rows are left over, batches follow each other at once.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

impl Indexer {
    /// Completes the transcript files of the threads in `touched`, or of all threads.
    pub(super) fn complete_transcripts(&mut self, touched: Option<&[Entry]>) {
        let (Some(transcripts), Some(indexed)) = (&mut self.transcripts, &mut self.indexed) else { return };
        let connection = indexed.database.connection();
        let completed = match touched {
            Some(entries) => transcripts.complete(connection, entries.iter().map(|entry| &*entry.thread_id)),
            None => transcripts.complete_all(connection),
        };
        if let Err(error) = completed
            && !std::mem::replace(&mut self.transcript_fault_reported, true)
        {
            (self.notify)(IndexNotice::TranscriptFailed(error.to_string()));
        }
    }

    /// From time to time, deletes one expired session.
    pub(super) fn remove_session(&mut self) {
        let Some(home) = &self.settings.home else { return };
        if Instant::now() < self.sessions_at {
            return;
        }
        self.sessions_at = Instant::now() + SESSIONS_EVERY;
        let (began, now, age_max) = (Instant::now(), SystemTime::now(), self.retention().session_age_max);
        remove_leftovers(home);
        let found = expired_sessions(home, now, age_max).unwrap_or_default();
        // This relay's own session is held, so it is spared.
        let removed = found.iter().find(|session| match remove_expired(home, &session.id, now, age_max) {
            Ok(Ok(left)) => {
                if !left.is_empty() {
                    tracing::info!(session = %session.id, ?left, "left in its folder: codex-shim did not create it");
                }
                true
            }
            Ok(Err(_used)) => false,
            Err(error) => {
                tracing::warn!(%error, session = %session.id, "delete an expired session");
                false
            }
        });
        if let Some(session) = removed {
            tracing::info!(session = %session.id, bytes = session.bytes, "expired session deleted");
            let took_ms = began.elapsed().as_millis() as u64;
            let pruned = Pruned { sessions: 1, session_bytes: session.bytes, took_ms, ..Pruned::default() };
            self.shared.state.send_modify(|state| state.pruned.add(pruned));
        }
    }

    /// The current bounds.
    fn retention(&self) -> RetentionBounds {
        self.shared.retention().unwrap_or(self.settings.retention)
    }

    /// Deletes one batch of rows beyond the bounds.
    pub(super) fn prune(&mut self) -> Result<Progress, Failure> {
        let retention = self.retention();
        let Some(indexed) = &mut self.indexed else { return Ok(Progress::Nothing) };
        if Instant::now() < self.prune_at {
            return Ok(Progress::Nothing);
        }
        let pruned = prune(indexed.database.connection(), &retention, now_us());
        let pruned = pruned.map_err(|source| indexed.database.error(source).to_string())?;
        if pruned.rows() == 0 {
            self.prune_at = Instant::now() + PRUNE_EVERY;
            return Ok(Progress::Nothing);
        }
        self.shared.state.send_modify(|state| state.pruned.add(pruned));
        Ok(Progress::All)
    }
}

/// The wall clock, in microseconds since the Unix epoch.
fn now_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}
