//! Copies one session: its history, then its ledger, then its journal.

use std::io;
use std::time::Duration;

use super::BackupOptions;
use super::copying::{CopyError, Copying, settled_state};
use super::manifest::{HistoryCopy, InHome, LinesCopy, Moment, Point, SessionCopy, StoredFile};
use super::points::thin;
use crate::index::{HISTORY_FILE, TRANSCRIPTS_DIR, read_to};
use crate::journal::{Position, SegmentName};
use crate::keeping::redact::files_of;
use crate::keeping::redaction::{is_begun, redaction_of};
use crate::store::{Found, Holder, LEDGER_FILE, WitnessFile, WitnessRead, fault_of_snapshot};

/// Attempts to copy a session that is redacted meanwhile.
const TRIES_MAX: u32 = 3;

/// Most marks of redactions that a copy knows.
const REDACTIONS_MAX: usize = 256;

/// Copies a session; returns the copy and the faults that it has nevertheless.
pub(super) fn copy_session(
    found: &Found,
    before: Option<&SessionCopy>,
    options: BackupOptions<'_>,
    copying: &mut Copying<'_>,
) -> Result<(SessionCopy, Vec<String>), CopyError> {
    let mut is_new = false;
    for _ in 0..TRIES_MAX {
        let mark = redaction_of(&found.dir);
        // Without a mark, or with an earlier one, the session was restored, which masks nothing.
        let known = before.map_or(&[][..], |before| &before.redactions);
        let mut redactions = known.to_vec();
        if let Some(mark) = mark.iter().find(|mark| !known.contains(mark)) {
            // Nobody knows yet whether it masks anything, and what the copy has of before would be lost.
            if before.is_some() && is_begun(mark) {
                let remedy = "if no `codex-shim redact` is running, run it again for this session";
                return Err(CopyError::Failed(format!("its redaction has not ended, so it was not copied; {remedy}")));
            }
            is_new |= before.is_some();
            redactions.push(mark.clone());
            redactions.drain(..redactions.len().saturating_sub(REDACTIONS_MAX));
        }
        let mut session = SessionRun { found, before, is_new, options, at: Moment::now(), faults: Vec::new() };
        copying.faults.clear();
        let copied = session.copy(redactions, copying);
        // Else it was redacted while it was copied.
        if mark == redaction_of(&found.dir) {
            session.faults.append(&mut copying.faults);
            return copied.map(|copy| (copy, session.faults));
        }
        is_new = true;
    }
    Err(CopyError::Redacted)
}

struct SessionRun<'a> {
    found: &'a Found,
    before: Option<&'a SessionCopy>,
    /// Nothing of the copy before is used.
    is_new: bool,
    options: BackupOptions<'a>,
    /// Everything before this time will be in the copy.
    at: Moment,
    faults: Vec<String>,
}

impl<'a> SessionRun<'a> {
    fn copy(&mut self, redactions: Vec<String>, copying: &mut Copying<'_>) -> Result<SessionCopy, CopyError> {
        let history = self.history(copying)?;
        let (mut points, ledger_original, complete_to) = match (self.points(copying), self.kept()) {
            (Ok((points, original)), _) => (points, original, self.at),
            // The journal goes on being copied. What else the copy has is as old as its last ledger.
            (Err(CopyError::Failed(why)), Some(kept)) => {
                self.faults.push(format!("session {}: its ledger was not copied: {why}", self.found.id));
                (kept.points.clone(), None, kept.complete_to)
            }
            (Err(error), _) => return Err(error),
        };
        let journal = self.journal(copying)?;
        let transcripts = self.transcripts(copying)?;
        if let Some(last) = points.last_mut().filter(|_| complete_to == self.at) {
            last.journal_end = end_of(&journal);
        }
        // A session that was deleted meanwhile has lost its files one by one.
        if self.found.dir.join("lock").symlink_metadata().is_err() {
            return Err(CopyError::Gone);
        }
        thin(&mut points, self.at);
        let witness = WitnessFile::of_session(&self.found.dir).map(|file| file.read());
        let witness = match witness {
            Some(WitnessRead::Original(witness) | WitnessRead::Copied(witness)) => Some(witness),
            Some(WitnessRead::Nothing) | None => self.kept().and_then(|kept| kept.witness.clone()),
        };
        Ok(SessionCopy {
            complete_to,
            gone_since: None,
            holder: self.found.holder.clone().map(|holder| Holder { pid: 0, ..holder }),
            last_used: Moment::of(self.found.last_used),
            redactions,
            journal,
            transcripts,
            points,
            ledger_original,
            history,
            witness,
        })
    }

    /// The copy before, as far as it still holds.
    fn kept(&self) -> Option<&'a SessionCopy> {
        self.before.filter(|_| !self.is_new)
    }

    fn history(&mut self, copying: &mut Copying<'_>) -> Result<Option<HistoryCopy>, CopyError> {
        let path = self.found.dir.join(HISTORY_FILE);
        let kept = self.kept().and_then(|kept| kept.history.as_ref()).filter(|kept| copying.has(&kept.stored));
        // What is not settled differs from any state before.
        let original = settled_state(&path);
        if let Some(kept) = kept
            && (original.is_some() && kept.original == original || !self.is_history_due(kept))
        {
            return Ok(Some(kept.clone()));
        }
        let copied = match copying.database(self.found, HISTORY_FILE) {
            Ok(Some(stored)) => {
                let read_to = read_to(&copying.target.dir.join(&stored.file));
                read_to.map(|read_to| HistoryCopy { stored, at: self.at, read_to, original })
            }
            Ok(None) | Err(CopyError::Gone) => return Ok(kept.cloned()),
            Err(CopyError::Failed(why)) => Err(why),
            Err(error @ (CopyError::Interrupted | CopyError::Redacted)) => return Err(error),
        };
        // Without it a restored session has what the journal has.
        Ok(copied.map_or_else(
            |why| {
                self.faults.push(format!("session {}: its history was not copied: {why}", self.found.id));
                kept.cloned()
            },
            Some,
        ))
    }

    /// Whether a history has to be copied again if it has changed: what is newer is in the journal's copy.
    fn is_history_due(&self, kept: &HistoryCopy) -> bool {
        let Some(age_max) = self.options.history_age_max else { return true };
        let age = Duration::from_micros(self.at.0.abs_diff(kept.at.0));
        let read_to = kept.read_to.as_ref().map(|position| position.segment.to_string());
        // The copy is about to lose a segment that this history has not read to its end.
        let loses = || {
            let there = SegmentName::list(&self.found.journal_dir()).unwrap_or_default();
            let is_there = |lines: &LinesCopy| there.iter().any(|name| name.to_string() == lines.name);
            let journal = self.kept().map_or(&[][..], |kept| &kept.journal);
            journal.iter().any(|lines| !is_there(lines) && read_to.as_ref().is_none_or(|to| lines.name >= *to))
        };
        age >= age_max || self.options.deletes && loses()
    }

    /// The times to which the session can be restored, with one for now.
    fn points(
        &mut self,
        copying: &mut Copying<'_>,
    ) -> Result<(Vec<Point>, Option<super::manifest::DatabaseState>), CopyError> {
        let path = self.found.dir.join(LEDGER_FILE);
        let has = |point: &Point| point.ledger.as_ref().is_none_or(|ledger| copying.has(ledger));
        let kept = self.kept().map_or(&[][..], |kept| &kept.points);
        let is_last_whole = kept.last().is_some_and(has);
        let (whole, lost): (Vec<&Point>, Vec<&Point>) = kept.iter().partition(|point| has(point));
        for file in lost.iter().filter_map(|point| point.ledger.as_ref()) {
            let file = copying.target.dir.join(&file.file);
            copying.faults.push(format!("{} is damaged: --at cannot take it any more", file.display()));
        }
        let mut points: Vec<Point> = whole.into_iter().cloned().collect();
        let original = settled_state(&path);
        let is_same = original.is_some() && self.kept().is_some_and(|kept| kept.ledger_original == original);
        if is_same
            && is_last_whole
            && let Some(last) = points.last_mut()
        {
            last.until = self.at;
            return Ok((points, original));
        }
        let ledger = match copying.database(self.found, LEDGER_FILE) {
            Ok(ledger) => ledger,
            Err(CopyError::Gone) => None,
            Err(error @ (CopyError::Failed(_) | CopyError::Interrupted | CopyError::Redacted)) => return Err(error),
        };
        // A relay that ends at once creates no ledger.
        if ledger.is_none() && kept.iter().any(|point| point.ledger.is_some()) {
            return Err(CopyError::Failed(format!("{} is missing or empty", path.display())));
        }
        if let Some(StoredFile { file, .. }) = &ledger {
            let fault = fault_of_snapshot(&copying.target.dir.join(file)).map_err(|error| error.to_string());
            if let Some(fault) = fault.unwrap_or_else(Some) {
                return Err(CopyError::Failed(format!("{} is damaged: {fault}", path.display())));
            }
        }
        let digest = |ledger: &Option<StoredFile>| ledger.as_ref().map(|ledger| ledger.sha256.clone());
        match points.last_mut() {
            Some(last) if is_last_whole && digest(&last.ledger) == digest(&ledger) => last.until = self.at,
            Some(_) | None => points.push(Point { at: self.at, until: self.at, ledger, journal_end: None }),
        }
        Ok((points, original))
    }

    fn journal(&mut self, copying: &mut Copying<'_>) -> Result<Vec<LinesCopy>, CopyError> {
        let dir = self.found.journal_dir();
        let names = match SegmentName::list(&dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Retention deletes segments and not their folder.
                if self.kept().is_some_and(|kept| !kept.journal.is_empty()) {
                    let fault = format!("session {}: {} is missing; its copy stays", self.found.id, dir.display());
                    self.faults.push(fault);
                    self.options.deletes = false;
                }
                Vec::new()
            }
            Err(error) => return Err(CopyError::Failed(format!("read {}: {error}", dir.display()))),
        };
        let paths = names.iter().map(|name| dir.join(name.to_string()));
        let before = self.before.map_or(&[][..], |before| &before.journal);
        let mut journal = self.lines(paths, "journal", before, copying)?;
        journal.sort_by_key(|lines| SegmentName::parse(&lines.name));
        Ok(journal)
    }

    fn transcripts(&self, copying: &mut Copying<'_>) -> Result<Vec<LinesCopy>, CopyError> {
        let dir = self.found.dir.join(TRANSCRIPTS_DIR);
        let paths = files_of(&dir, |name| name.ends_with(".jsonl") && !name.starts_with('.'));
        let paths = paths.map_err(|error| CopyError::Failed(format!("read {}: {error}", dir.display())))?;
        let before = self.before.map_or(&[][..], |before| &before.transcripts);
        self.lines(paths.into_iter(), TRANSCRIPTS_DIR, before, copying)
    }

    /// Copies files of whole lines, and keeps those that the session no longer has.
    fn lines(
        &self,
        paths: impl Iterator<Item = std::path::PathBuf>,
        inner: &str,
        before: &[LinesCopy],
        copying: &mut Copying<'_>,
    ) -> Result<Vec<LinesCopy>, CopyError> {
        let mut copies: Vec<LinesCopy> = Vec::new();
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let known = before.iter().find(|lines| lines.name == name);
            match copying.lines(&path, inner, known.filter(|_| !self.is_new)) {
                Ok(copy) => copies.push(copy),
                // Retention has deleted it meanwhile.
                Err(CopyError::Gone) => {}
                Err(error) => return Err(error),
            }
        }
        if !self.is_new && !self.options.deletes {
            let is_gone = |lines: &&LinesCopy| !copies.iter().any(|copy| copy.name == lines.name);
            for gone in before.iter().filter(is_gone).cloned().collect::<Vec<LinesCopy>>() {
                if !copying.has(&gone.stored) {
                    let file = copying.target.dir.join(&gone.stored.file);
                    copying.faults.push(format!("{} is damaged, and the home no longer has it", file.display()));
                }
                copies.push(LinesCopy { in_home: InHome::Gone, ..gone });
            }
        }
        Ok(copies)
    }
}

/// The end of a journal's copy.
fn end_of(journal: &[LinesCopy]) -> Option<Position> {
    let last = journal.last()?;
    Some(Position { segment: SegmentName::parse(&last.name)?, offset: last.stored.bytes })
}
