//! What is over its bounds goes.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::held::{Held, HeldError};
use crate::config::RetentionBounds;
use crate::index::{TranscriptFiles, prune_history};
use crate::journal::{self, over_bounds};
use crate::store::{Deed, Found, outlived, remove_outlived, remove_rests};

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Of journals.
    pub journal: journal::Bounds,
    /// Of histories, and of sessions.
    pub retention: RetentionBounds,
}

impl Bounds {
    /// The same, with another age for everything.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Bounds {
        self.journal.journal_age_max = age;
        self.retention.age_max = age;
        self.retention.session_age_max = age;
        self
    }
}

/// What went, or would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Went {
    /// The session that it was of.
    pub session_id: String,
    /// What it is.
    pub what: Kind,
    /// How many.
    pub count: u64,
    /// How much of it, in bytes.
    pub bytes: u64,
}

/// What can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A whole session.
    Session,
    /// Segments of its journal.
    JournalSegments,
    /// Events of its history.
    Events,
    /// Rows of tools.
    ToolEvents,
    /// Rows of turns.
    TurnEvents,
}

impl Kind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Session => "session",
            Kind::JournalSegments => "journal segments",
            Kind::Events => "events",
            Kind::ToolEvents => "tool events",
            Kind::TurnEvents => "turn events",
        }
    }
}

/// Removes the sessions of `home` that nobody uses any more, or only the one called `only`. Gives what went, and what could
/// not go, as a person is told.
#[must_use]
pub fn prune_sessions(home: &Path, only: Option<&str>, bounds: &Bounds, deed: Deed) -> (Vec<Went>, Vec<String>) {
    let (now, age_max) = (SystemTime::now(), bounds.retention.session_age_max);
    if deed == Deed::Done {
        remove_rests(home);
    }
    let found = match outlived(home, now, age_max) {
        Ok(found) => found,
        Err(error) => return (Vec::new(), vec![format!("read {}: {error}", home.join("sessions").display())]),
    };
    let (mut went, mut faults) = (Vec::new(), Vec::new());
    for session in found.into_iter().filter(|session| only.is_none_or(|only| only == session.id)) {
        let gone = match deed {
            Deed::Looked => Ok(Ok(())),
            Deed::Done => remove_outlived(home, &session.id, now, age_max),
        };
        match gone {
            Ok(Ok(())) => {
                let (session_id, bytes) = (session.id, session.bytes);
                went.push(Went { session_id, what: Kind::Session, count: 1, bytes });
            }
            Ok(Err(_used)) => {}
            Err(error) => faults.push(format!("remove session {}: {error}", session.id)),
        }
    }
    (went, faults)
}

/// Removes what is over the bounds in one session. Gives what went.
///
/// # Errors
///
/// Why not all of it went that should.
pub fn prune(
    session: &Found,
    bounds: &Bounds,
    transcript_files: TranscriptFiles,
    deed: Deed,
) -> Result<Vec<Went>, String> {
    let held = Held::take(session, deed).map_err(|error| error.to_string())?;
    let mut went = Vec::new();
    let mut add = |what, count, bytes| {
        if count > 0 {
            went.push(Went { session_id: session.id.clone(), what, count, bytes });
        }
    };
    let (count, bytes) = prune_journal(&held, bounds, transcript_files).map_err(|error| error.to_string())?;
    add(Kind::JournalSegments, count, bytes);
    let now_us = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros() as u64;
    let over = prune_history(&held.history(), &bounds.retention, now_us, held.life, deed)?;
    for (what, over) in [Kind::Events, Kind::ToolEvents, Kind::TurnEvents].into_iter().zip(over) {
        add(what, over.rows, over.bytes);
    }
    Ok(went)
}

fn prune_journal(held: &Held, bounds: &Bounds, transcript_files: TranscriptFiles) -> Result<(u64, u64), HeldError> {
    let Some(indexed) = held.index(transcript_files)? else { return Ok((0, 0)) };
    let dir = held.session.journal_dir();
    let over = over_bounds(&dir, bounds.journal, &indexed, SystemTime::now());
    let over = over.map_err(|source| HeldError::Io { path: dir.clone(), source })?;
    let (mut count, mut bytes) = (0, 0);
    for segment in over {
        let path = dir.join(segment.name.to_string());
        match held.deed {
            Deed::Looked => {}
            Deed::Done => match std::fs::remove_file(&path) {
                Ok(()) => {}
                // The relay's own keeper was first.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(HeldError::Io { path, source }),
            },
        }
        count += 1;
        bytes += segment.bytes;
    }
    Ok((count, bytes))
}
