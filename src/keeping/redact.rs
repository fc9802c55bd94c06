//! Masks secrets in stored data.

use std::path::PathBuf;

use serde::Serialize;

use super::files::{self, How};
use super::held::Held;
use crate::engine::Masker;
use crate::index::{TRANSCRIPTS_DIR, TranscriptFiles, redact_history};
use crate::store::{Found as Session, Life, RunMode, redact_ledger};

/// Where secrets were masked, and how many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Found {
    pub session_id: String,
    pub place: Place,
    /// Records, rows or lines that had a secret.
    pub masked: u64,
}

/// A kind of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// Records of the journal.
    Journal,
    /// Rows of `history.db`.
    History,
    /// Rows of `ledger.db`.
    Ledger,
    /// Lines of transcripts.
    Transcripts,
    /// Lines of our log, and of databases that were set aside.
    Log,
}

impl Place {
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Journal => "journal records",
            Place::History => "history rows",
            Place::Ledger => "ledger rows",
            Place::Transcripts => "transcript lines",
            Place::Log => "log lines",
        }
    }
}

/// Masks the secrets in all stored data of a session. Returns where there were any, how many segments were skipped because
/// the relay is using them, and failures as messages for the user.
#[must_use]
pub(crate) fn redact(
    session: &Session,
    masker: &Masker,
    transcript_files: TranscriptFiles,
    mode: RunMode,
) -> (Vec<Found>, u64, Vec<String>) {
    let held = match Held::take(session, mode) {
        Ok(held) => held,
        Err(error) => return (Vec::new(), 0, vec![error.to_string()]),
    };
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    let mut add = |place, masked: Result<u64, String>| match masked {
        Ok(0) => {}
        Ok(masked) => found.push(Found { session_id: session.id.clone(), place, masked }),
        Err(fault) => faults.push(fault),
    };
    let mut left = 0;
    add(Place::Journal, redact_journal(&held, masker, transcript_files, &mut left));
    add(Place::History, redact_history(&held.history(), masker, held.life, mode));
    add(Place::Ledger, redact_ledger(&session.dir, masker, held.life, mode));
    add(Place::Transcripts, redact_transcripts(&held, masker));
    add(Place::Log, redact_logs(&held, masker));
    (found, left, faults)
}

fn told(path: &std::path::Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("use {}: {error}", path.display())
}

fn redact_journal(
    held: &Held,
    masker: &Masker,
    transcript_files: TranscriptFiles,
    left: &mut u64,
) -> Result<u64, String> {
    let dir = held.session.journal_dir();
    let indexed = held.index(transcript_files).map_err(|error| error.to_string())?;
    if held.mode == RunMode::Apply {
        files::remove_leftovers(&dir).map_err(told(&dir))?;
    }
    let mut masked = 0;
    for segment in &held.segments {
        if indexed.as_ref().is_none_or(|indexed| segment >= indexed) {
            *left += 1;
            continue;
        }
        let path = dir.join(segment.to_string());
        match files::redact_segment(&path, masker, held.mode) {
            Ok(records) => masked += records,
            // Retention has deleted it meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(told(&path)(error)),
        }
    }
    Ok(masked)
}

fn redact_transcripts(held: &Held, masker: &Masker) -> Result<u64, String> {
    let dir = held.session.dir.join(TRANSCRIPTS_DIR);
    let how = match held.life {
        Life::Live => How::InPlace,
        Life::Stopped => How::Beside,
    };
    if held.mode == RunMode::Apply {
        files::remove_leftovers(&dir).map_err(told(&dir))?;
    }
    let files = files::files_of(&dir, |name| name.ends_with(".jsonl")).map_err(told(&dir))?;
    sum(files, |path| files::redact_transcript(path, masker, how, held.mode))
}

fn redact_logs(held: &Held, masker: &Masker) -> Result<u64, String> {
    let dir = &held.session.dir;
    let is_meant = |name: &str| name.starts_with("shim.log") || name.contains(".corrupt-");
    let files = files::files_of(dir, is_meant).map_err(told(dir))?;
    sum(files, |path| files::redact_text(path, masker, held.mode))
}

fn sum(files: Vec<PathBuf>, mask: impl Fn(&std::path::Path) -> std::io::Result<u64>) -> Result<u64, String> {
    files.iter().map(|path| mask(path).map_err(told(path))).sum()
}
