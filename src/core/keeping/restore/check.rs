//! Compares the files of a copy with its manifest, and leaves out what differs if asked to.

use std::io;
use std::path::Path;

use serde::Serialize;

use super::super::backup::{StoredFile, digest_of};
use super::{CopiedSettings, Plan, Plans, StoredBackup};

/// A file of a copy that is not as the manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Its session; `None` for the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Its path in the folder of the copy.
    pub file: String,
    pub problem: String,
}

impl StoredBackup {
    /// Compares all files that the plans need, and with [`CopiedSettings::Restore`] the settings. `advance` gets the bytes read since its last
    /// call.
    #[must_use]
    pub fn check(&self, plans: &Plans, settings: CopiedSettings, advance: &dyn Fn(u64)) -> Vec<Damage> {
        let mut found = Vec::new();
        for plan in &plans.plans {
            let journal = plan.journal.iter().map(|lines| &lines.copy.stored);
            let transcripts = plan.transcripts.iter().map(|lines| &lines.stored);
            for stored in journal.chain(transcripts).chain(plan.databases()) {
                found.extend(self.compare(Some(&plan.session), stored));
                advance(stored.bytes);
            }
        }
        let settings = self.manifest.config.iter().filter(|_| settings == CopiedSettings::Restore);
        found.extend(settings.filter_map(|stored| self.compare(None, stored)));
        found
    }

    fn compare(&self, session: Option<&String>, stored: &StoredFile) -> Option<Damage> {
        let problem = problem(&self.target.dir.join(&stored.file), stored)?;
        Some(Damage { session_id: session.cloned(), file: stored.file.clone(), problem })
    }

    /// Changes the plans so that they need no damaged file: a segment is left out, of the ledgers the newest one that is whole is taken,
    /// and a history is built again from the journal.
    pub fn salvage(&self, plans: &mut Plans, damages: &[Damage]) {
        let is_damaged = |stored: &StoredFile| damages.iter().any(|damage| damage.file == stored.file);
        for plan in &mut plans.plans {
            plan.leave_out(&is_damaged);
            let needs_other = plan.point.as_ref().and_then(|point| point.ledger.as_ref()).is_some_and(is_damaged);
            if needs_other {
                self.take_earlier_ledger(plan);
            }
        }
    }

    /// Takes the newest ledger before the damaged one that is as its digest says.
    fn take_earlier_ledger(&self, plan: &mut Plan) {
        let Some(damaged) = plan.point.take() else { return };
        let mut earlier = plan.copy.points.iter().rev().filter(|point| point.at < damaged.at);
        let is_whole = |stored: &StoredFile| problem(&self.target.dir.join(&stored.file), stored).is_none();
        let whole = earlier.find(|point| point.ledger.as_ref().is_none_or(is_whole));
        plan.left_out.push(match whole {
            Some(point) => format!("requests and answers after {}, because the later ledger is damaged", point.until),
            None => "all requests and answers, because no ledger is whole".to_owned(),
        });
        // Up to then the requests are known. The journal goes further.
        plan.restored_to = whole.map_or(plan.restored_to, |point| point.until.min(plan.restored_to));
        plan.point = whole.cloned();
    }
}

impl Plan {
    fn leave_out(&mut self, is_damaged: &dyn Fn(&StoredFile) -> bool) {
        let left_out = &mut self.left_out;
        self.journal.retain(|lines| {
            let is_whole = !is_damaged(&lines.copy.stored);
            if !is_whole {
                left_out.push(format!("the journal's segment {}, which is damaged", lines.copy.name));
            }
            is_whole
        });
        self.transcripts.retain(|lines| {
            let is_whole = !is_damaged(&lines.stored);
            if !is_whole {
                left_out.push(format!("the transcript {}, which is damaged and written again", lines.name));
            }
            is_whole
        });
        if self.history.as_ref().is_some_and(|history| is_damaged(&history.stored)) {
            self.history = None;
            self.left_out.push("events from before the journal, because the copy of the history is damaged".to_owned());
        }
    }
}

/// The difference between a file and its entry; `None` if it has the bytes that the manifest says.
fn problem(path: &Path, stored: &StoredFile) -> Option<String> {
    match digest_of(path, Some(stored.bytes)) {
        Ok((bytes, _)) if bytes < stored.bytes => Some(format!("it has {bytes} bytes and not {}", stored.bytes)),
        Ok((_, sha256)) if sha256 != stored.sha256 => Some("its content differs from its checksum".to_owned()),
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some("it is missing".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}
