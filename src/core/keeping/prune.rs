//! Deletes data over the bounds.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::held::{Held, HeldError};
use crate::config::RetentionBounds;
use crate::index::{TranscriptFiles, prune_history};
use crate::journal::{self, over_bounds};
use crate::store::{Found, RunMode, expired_sessions, remove_expired, remove_leftovers};

/// The bounds.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub journal: journal::Bounds,
    /// For histories, and for whole sessions.
    pub retention: RetentionBounds,
}

impl Bounds {
    /// Replaces every age bound.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Bounds {
        self.journal.journal_age_max = age;
        self.retention.age_max = age;
        self.retention.session_age_max = age;
        self
    }
}

/// Data that was deleted, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deleted {
    pub session_id: String,
    pub what: DataKind,
    /// The number of segments, rows or sessions.
    pub count: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The deleted files, as paths in the home; empty for rows of a database.
    pub files: Vec<String>,
}

/// A kind of stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DataKind {
    /// A whole session.
    Session,
    /// Segments of its journal.
    JournalSegments,
    /// Events of its history.
    Events,
    ToolEvents,
    TurnEvents,
}

impl DataKind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DataKind::Session => "session",
            DataKind::JournalSegments => "journal segments",
            DataKind::Events => "events",
            DataKind::ToolEvents => "tool events",
            DataKind::TurnEvents => "turn events",
        }
    }
}

/// The outcome of [`prune_sessions`].
#[derive(Debug, Default)]
pub struct PrunedSessions {
    /// Deleted data, or data that would be deleted.
    pub went: Vec<Deleted>,
    /// Files that stay in the folders of these sessions because codex-shim did not create them, as paths in the home.
    pub left: Vec<String>,
    /// Failures, as messages for the user.
    pub faults: Vec<String>,
}

/// Deletes the expired sessions of `home`, or only `only`.
#[must_use]
pub fn prune_sessions(home: &Path, only: Option<&str>, bounds: &Bounds, mode: RunMode) -> PrunedSessions {
    let (now, age_max) = (SystemTime::now(), bounds.retention.session_age_max);
    if mode == RunMode::Apply {
        remove_leftovers(home);
    }
    let found = match expired_sessions(home, now, age_max) {
        Ok(found) => found,
        Err(error) => {
            let faults = vec![format!("read {}: {error}", home.join("sessions").display())];
            return PrunedSessions { faults, ..PrunedSessions::default() };
        }
    };
    let mut pruned = PrunedSessions::default();
    for session in found.into_iter().filter(|session| only.is_none_or(|only| only == session.id)) {
        let gone = match mode {
            RunMode::DryRun => Ok(Ok(session.foreign)),
            RunMode::Apply => remove_expired(home, &session.id, now, age_max),
        };
        match gone {
            Ok(Ok(left)) => {
                let in_home = |path: &PathBuf| format!("sessions/{}/{}", session.id, path.display());
                pruned.left.extend(left.iter().map(in_home));
                let beside = session.beside.iter().map(|path| path.display().to_string());
                let (files, bytes) = (session.files.iter().map(in_home).chain(beside).collect(), session.bytes);
                pruned.went.push(Deleted { session_id: session.id, what: DataKind::Session, count: 1, bytes, files });
            }
            Ok(Err(_used)) => {}
            Err(error) => pruned.faults.push(format!("remove session {}: {error}", session.id)),
        }
    }
    pruned
}

/// Deletes data over the bounds in one session; returns what was deleted.
///
/// # Errors
///
/// Some of it could not be deleted.
pub fn prune(
    session: &Found,
    bounds: &Bounds,
    transcript_files: TranscriptFiles,
    mode: RunMode,
) -> Result<Vec<Deleted>, String> {
    let held = Held::take(session, mode).map_err(|error| error.to_string())?;
    let mut went = Vec::new();
    let mut add = |what, count, bytes, files| {
        if count > 0 {
            went.push(Deleted { session_id: session.id.clone(), what, count, bytes, files });
        }
    };
    let (files, bytes) = prune_journal(&held, bounds, transcript_files).map_err(|error| error.to_string())?;
    add(DataKind::JournalSegments, files.len() as u64, bytes, files);
    let now_us = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros() as u64;
    let over = prune_history(&held.history(), &bounds.retention, now_us, held.life, mode)?;
    for (what, over) in [DataKind::Events, DataKind::ToolEvents, DataKind::TurnEvents].into_iter().zip(over) {
        add(what, over.rows, over.bytes, Vec::new());
    }
    Ok(went)
}

/// Returns the deleted segments, by their paths in the home, and their size in bytes.
fn prune_journal(
    held: &Held,
    bounds: &Bounds,
    transcript_files: TranscriptFiles,
) -> Result<(Vec<String>, u64), HeldError> {
    let Some(indexed) = held.index(transcript_files)? else { return Ok((Vec::new(), 0)) };
    let dir = held.session.journal_dir();
    let over = over_bounds(&dir, bounds.journal, &indexed, SystemTime::now());
    let over = over.map_err(|source| HeldError::Io { path: dir.clone(), source })?;
    let (mut files, mut bytes) = (Vec::new(), 0);
    for segment in over {
        let path = dir.join(segment.name.to_string());
        match held.mode {
            RunMode::DryRun => {}
            RunMode::Apply => match std::fs::remove_file(&path) {
                Ok(()) => {}
                // The relay's own background thread deleted it first.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(HeldError::Io { path, source }),
            },
        }
        files.push(format!("sessions/{}/journal/{}", held.session.id, segment.name));
        bytes += segment.bytes;
    }
    Ok((files, bytes))
}
