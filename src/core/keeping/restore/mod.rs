//! Restores sessions from a copy that [`super::backup`] has made.
//!
//! Everything that a restore will write is compared with the manifest first, so a damaged copy changes nothing. A session is written beside
//! its place and then renamed, so no process ever sees part of it.
//!
//! *Numbers.* A restored session never gives the numbers of its events to others: unless the home has the session's own witness, it gets the
//! witness of the copy, which the index recognizes as one, and then it begins a new epoch.
//!
//! *Requests.* The server that has asked is not there. Open requests of the copy are orphaned before anybody can see the session.
//!
//! This module never replaces anything in a home.

mod check;
mod cut;
mod write;

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::backup::{
    BackupError, BackupErrorKind, HistoryCopy, LinesCopy, Manifest, Moment, Point, SessionCopy, Target, apart,
    without_slash,
};
use crate::journal::SegmentName;
use crate::store::{Choice, Found, Otherwise, choose};

pub use check::Damage;
pub use write::{CopiedSettings, HistorySource, Restored};

/// A copy that is read.
#[derive(Debug)]
pub struct StoredBackup {
    target: Target,
    manifest: Manifest,
}

/// A file of whole lines, as far as it is restored.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lines {
    copy: LinesCopy,
    bytes: u64,
}

/// How a session is restored.
#[derive(Debug, Clone)]
pub struct Plan {
    pub session: String,
    /// Everything that happened before this time.
    pub restored_to: Moment,
    copy: SessionCopy,
    point: Option<Point>,
    journal: Vec<Lines>,
    transcripts: Vec<LinesCopy>,
    history: Option<HistoryCopy>,
    /// Data of the copy that the restored session will lack, in words.
    pub left_out: Vec<String>,
}

/// Plans for sessions, and the sessions without one.
#[derive(Debug, Clone)]
pub struct Plans {
    pub plans: Vec<Plan>,
    /// Sessions that the copy does not have at that time, in words.
    pub skipped: Vec<String>,
    /// Sessions that were deleted from the home before the last run. The user has not named them.
    pub deleted: Vec<String>,
}

/// Whether sessions that were deleted from the home are restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletedSessions {
    /// Only those that the user names.
    Leave,
    Restore,
}

/// The amount of data of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    pub files: u64,
    pub bytes: u64,
}

impl StoredBackup {
    /// Opens the copy in a folder.
    ///
    /// # Errors
    ///
    /// The folder has no backup, another user can write to it, or another process keeps using it.
    pub fn open(dir: &Path) -> Result<StoredBackup, BackupError> {
        let (target, manifest) = Target::read(&without_slash(dir))?;
        Ok(StoredBackup { target, manifest })
    }

    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The sessions with these names, or all, at a time or as they were last. No file is read yet.
    ///
    /// # Errors
    ///
    /// A name is unknown, or the copy begins after that time.
    pub fn plans(
        &self,
        named: &[String],
        at: Option<Moment>,
        deleted_sessions: DeletedSessions,
    ) -> Result<Plans, BackupError> {
        let (mut plans, mut skipped, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        for id in self.chosen(named)? {
            let copy = &self.manifest.sessions[&id];
            if named.is_empty() && deleted_sessions == DeletedSessions::Leave && copy.gone_since.is_some() {
                deleted.push(id);
                continue;
            }
            match plan(&id, copy, at) {
                Some(plan) => plans.push(plan),
                None => {
                    let first = copy.points.first().map_or(copy.complete_to, |point| point.at);
                    skipped.push(format!("session {id}: the backup has it from {first} on"));
                }
            }
        }
        match (plans.is_empty(), at) {
            (true, Some(at)) if !skipped.is_empty() => {
                let problem = format!("the backup has no session as it was at {at}: {}", skipped.join("; "));
                Err(BackupError::new(problem).with_remedy("name a later time with --at"))
            }
            (_, _) => Ok(Plans { plans, skipped, deleted }),
        }
    }

    fn chosen(&self, named: &[String]) -> Result<Vec<String>, BackupError> {
        if named.is_empty() {
            return Ok(self.manifest.sessions.keys().cloned().collect());
        }
        let found = |(id, copy): (&String, &SessionCopy)| Found {
            id: id.clone(),
            dir: PathBuf::from(id),
            live: false,
            holder: copy.holder.clone(),
            repository: None,
            threads: None,
            last_used: copy.last_used.time(),
        };
        let all: Vec<Found> = self.manifest.sessions.iter().map(found).collect();
        let mut ids = Vec::new();
        for name in named {
            let choice = Choice { named: Some(name), cwd: Path::new("/"), otherwise: Otherwise::None };
            let id = choose(&all, choice).map(|found| found.id.clone()).map_err(|error| BackupError {
                kind: BackupErrorKind::NoSuchSession,
                ..BackupError::new(format!("the backup in {}: {error}", self.target.dir.display()))
            })?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// Limits the journals of plans to their times, which reads some of their segments.
    ///
    /// # Errors
    ///
    /// A segment cannot be read.
    pub fn cut(&self, plans: &mut Plans, at: Option<Moment>) -> Result<(), BackupError> {
        if at.is_some() {
            for plan in &mut plans.plans {
                plan.cut(&self.target.dir)?;
            }
        }
        Ok(())
    }
}

impl Plan {
    /// How much is restored.
    #[must_use]
    pub fn amount(&self) -> Amount {
        let journal = self.journal.iter().map(|lines| lines.bytes);
        let transcripts = self.transcripts.iter().map(|lines| lines.stored.bytes);
        let databases = self.databases().map(|stored| stored.bytes);
        journal
            .chain(transcripts)
            .chain(databases)
            .fold(Amount::default(), |amount, bytes| Amount { files: amount.files + 1, bytes: amount.bytes + bytes })
    }

    fn databases(&self) -> impl Iterator<Item = &super::backup::StoredFile> {
        let ledger = self.point.as_ref().and_then(|point| point.ledger.as_ref());
        ledger.into_iter().chain(self.history.as_ref().map(|history| &history.stored))
    }

    /// Limits the journal to the time, and leaves out what reaches beyond it.
    fn cut(&mut self, dir: &Path) -> Result<(), BackupError> {
        let end = self.point.as_ref().and_then(|point| point.journal_end.clone());
        self.journal = cut::cut(dir, std::mem::take(&mut self.journal), self.restored_to, end.as_ref())?;
        let last = self.journal.last();
        let has_read_more = |history: &HistoryCopy| {
            history.read_to.as_ref().is_some_and(|read_to| {
                last.is_none_or(|last| {
                    let segment = SegmentName::parse(&last.copy.name);
                    segment.is_none_or(|segment| (&read_to.segment, read_to.offset) > (&segment, last.bytes))
                })
            })
        };
        if self.history.as_ref().is_some_and(has_read_more) {
            self.history = None;
            self.left_out.push("events from before the journal, because the copy of the history is newer".to_owned());
        }
        // Their lines have no positions. Those of entries that are indexed again are written again.
        if !self.transcripts.is_empty() {
            self.transcripts.clear();
            self.left_out.push("transcripts as files, which are written again".to_owned());
        }
        Ok(())
    }
}

/// How a session is restored as it was at a time, or last; `None` if the copy does not go back so far.
fn plan(id: &str, copy: &SessionCopy, at: Option<Moment>) -> Option<Plan> {
    let last = copy.points.last()?;
    let (point, restored_to) = match at {
        None => (last, copy.complete_to),
        Some(at) => {
            let point = copy.points.iter().rev().find(|point| point.at <= at)?;
            (point, at.min(point.until))
        }
    };
    let whole = |copy: &LinesCopy| Lines { copy: copy.clone(), bytes: copy.stored.bytes };
    Some(Plan {
        session: id.to_owned(),
        restored_to,
        point: Some(point.clone()),
        journal: copy.journal.iter().map(whole).collect(),
        transcripts: copy.transcripts.clone(),
        history: copy.history.clone(),
        left_out: Vec::new(),
        copy: copy.clone(),
    })
}

/// The sessions that a home has already.
#[must_use]
pub fn present(home: &Path, plans: &Plans) -> Vec<String> {
    let sessions = home.join("sessions");
    let is_there = |plan: &&Plan| sessions.join(&plan.session).symlink_metadata().is_ok();
    plans.plans.iter().filter(is_there).map(|plan| plan.session.clone()).collect()
}

impl Plans {
    /// Leaves out the sessions that a home has already.
    pub fn leave_present(&mut self, home: &Path) {
        let there = present(home, self);
        self.plans.retain(|plan| !there.contains(&plan.session));
    }
}

/// Checks that a home is apart from the copy and lacks all of these sessions.
///
/// # Errors
///
/// The home cannot take them.
pub fn check_home(home: &Path, dir: &Path, plans: &Plans) -> Result<(), BackupError> {
    apart(dir, home)?;
    let there = present(home, plans);
    let Some(first) = there.first() else { return Ok(()) };
    let problem = format!("{} has these sessions already: {}; nothing was restored", home.display(), there.join(", "));
    let remedy = format!(
        "restore only the others with --missing, or into another home with --to, or end their relays and move them away, such as {}",
        home.join("sessions").join(first).display()
    );
    Err(BackupError::new(problem).with_remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::super::backup::StoredFile;
    use super::*;

    fn point(at: u64, until: u64) -> Point {
        let file = format!("ledger.db.{at}");
        let ledger = Some(StoredFile { file, bytes: 0, sha256: String::new() });
        Point { at: Moment(at), until: Moment(until), ledger, journal_end: None }
    }

    #[test]
    fn newest_ledger_not_after_the_time_is_restored() {
        let copy = SessionCopy {
            complete_to: Moment(60),
            gone_since: None,
            holder: None,
            last_used: Moment(0),
            redactions: Vec::new(),
            journal: Vec::new(),
            transcripts: Vec::new(),
            points: vec![point(10, 20), point(30, 30), point(50, 60)],
            ledger_original: None,
            history: None,
            witness: None,
        };
        let check = |at: Option<u64>, expect: Option<(u64, u64)>| {
            let planned = plan("s", &copy, at.map(Moment));
            let found = planned.map(|plan| (plan.point.expect("it has one").at.0, plan.restored_to.0));
            assert_eq!(found, expect, "{at:?}");
        };
        check(None, Some((50, 60)));
        check(Some(9), None);
        check(Some(10), Some((10, 10)));
        // The ledger was the same until 20, so any time up to then is exact.
        check(Some(15), Some((10, 15)));
        check(Some(29), Some((10, 20)));
        check(Some(40), Some((30, 30)));
        check(Some(55), Some((50, 55)));
        check(Some(99), Some((50, 60)));
    }
}
