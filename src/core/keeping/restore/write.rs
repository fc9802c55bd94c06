//! Writes restored sessions into a home.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::super::backup::{BackupError, LinesCopy, Moment, Span, StoredFile, hex};
use super::{Plan, Plans, StoredBackup};
use crate::files::{self, Access, Folder};
use crate::index::{HISTORY_FILE, TRANSCRIPTS_DIR};
use crate::os::fs::sync_data;
use crate::store::{Holder, IndexLock, LEDGER_FILE, OfflineLedger, PLACES_DIR, REDACTED_FILE, Witness, WitnessFile};

const SETTINGS_FILE: &str = "config.toml";

/// Whether the settings of a copy are restored. They name programs, so only the user decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedSettings {
    Leave,
    Restore,
}

/// Prefix of folders that are being restored. No session's name can contain its first character.
const RESTORING: &str = "~restoring.";

/// Bytes that are read and written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The source of the events of a restored session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HistorySource {
    /// The copy of the history; the index adds newer events from the journal.
    Copied,
    /// The journal alone.
    Journal,
}

/// A restored session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    pub session_id: String,
    /// Everything that happened before this time is there.
    pub restored_to: Moment,
    pub segments: u64,
    pub bytes: u64,
    /// How many requests waited for an answer, which their server cannot get any more; `None` before it is restored.
    pub orphaned: Option<u64>,
    pub history: HistorySource,
    /// Data of the copy that the restored session lacks, in words.
    pub left_out: Vec<String>,
    /// The times to which the copy can restore it.
    pub points: Vec<Span>,
}

impl Restored {
    /// The result of a plan.
    #[must_use]
    pub fn of(plan: &Plan, orphaned: Option<u64>) -> Restored {
        Restored {
            session_id: plan.session.clone(),
            restored_to: plan.restored_to,
            segments: plan.journal.len() as u64,
            bytes: plan.amount().bytes,
            orphaned,
            history: if plan.history.is_some() { HistorySource::Copied } else { HistorySource::Journal },
            left_out: plan.left_out.clone(),
            points: plan.copy.spans(),
        }
    }
}

impl StoredBackup {
    /// Restores one session of a checked plan into a home. `advance` gets the bytes written since its last call.
    ///
    /// # Errors
    ///
    /// Nothing of the session is in the home then.
    pub fn restore(&self, plan: &Plan, home: &Path, advance: &dyn Fn(u64)) -> Result<Restored, BackupError> {
        Folder::make_home(home).map_err(|error| BackupError::io("create", home, &error))?;
        let sessions = home.join("sessions");
        let folder = Folder::make(&sessions).map_err(|error| BackupError::io("create", &sessions, &error))?;
        remove_leftovers(&sessions);
        let name = format!("{RESTORING}{}.{}", plan.session, std::process::id());
        let dir = sessions.join(&name);
        // The lock is held until the session has its name: another restore leaves the folder alone.
        let restored = self.lay(plan, &dir, advance).and_then(|(orphaned, _lock)| {
            let place = sessions.join(&plan.session);
            let failed = |error: &io::Error| BackupError::io("restore", &place, error);
            leave_witness(plan, &place).map_err(|error| failed(&error))?;
            let renamed = folder.rename_to_new(&name, &plan.session).and_then(|()| folder.sync());
            renamed.map_err(|error| failed(&error))?;
            Ok(Restored::of(plan, Some(orphaned)))
        });
        if restored.is_err() {
            let _ = fs::remove_dir_all(&dir);
        }
        restored
    }

    /// Writes the files of a session into a new folder. Returns how many requests were orphaned, and the lock of the folder.
    fn lay(&self, plan: &Plan, dir: &Path, advance: &dyn Fn(u64)) -> Result<(u64, Option<IndexLock>), BackupError> {
        let failed = |error: &io::Error| BackupError::io("write", dir, error);
        let make = |path: &Path| Folder::make(path).map_err(|error| failed(&error));
        let folder = make(dir)?;
        let index_lock = IndexLock::try_take(dir).map_err(|error| failed(&error))?;
        let journal = dir.join("journal");
        let journal_folder = make(&journal)?;
        for lines in &plan.journal {
            self.put_lines(&lines.copy, lines.bytes, &journal, advance)?;
        }
        journal_folder.sync().map_err(|error| failed(&error))?;
        if !plan.transcripts.is_empty() {
            let transcripts = dir.join(TRANSCRIPTS_DIR);
            let transcripts_folder = make(&transcripts)?;
            for lines in &plan.transcripts {
                self.put_lines(lines, lines.stored.bytes, &transcripts, advance)?;
            }
            transcripts_folder.sync().map_err(|error| failed(&error))?;
        }
        if let Some(history) = &plan.history {
            self.put(&history.stored, history.stored.bytes, &dir.join(HISTORY_FILE), advance)?;
        }
        let ledger = plan.point.as_ref().and_then(|point| point.ledger.as_ref());
        if let Some(stored) = ledger {
            self.put(stored, stored.bytes, &dir.join(LEDGER_FILE), advance)?;
        }
        // By the mark, a backup knows that nothing was masked since.
        if let Some(mark) = plan.copy.redactions.last() {
            folder.put(REDACTED_FILE, format!("{mark}\n").as_bytes()).map_err(|error| failed(&error))?;
        }
        // Written just now, the ledger also keeps a session that was unused for long from being deleted at once.
        let orphaned = orphan(dir, plan.restored_to)?;
        let lock = dir.join("lock");
        Holder::leave_lock(plan.copy.holder.as_ref(), dir)
            .and_then(|()| files::open(&lock, Access::Write)?.set_modified(plan.copy.last_used.time()))
            .map_err(|error| BackupError::io("write", &lock, &error))?;
        folder.sync().map_err(|error| failed(&error))?;
        Ok((orphaned, index_lock))
    }

    fn put_lines(&self, copy: &LinesCopy, bytes: u64, folder: &Path, advance: &dyn Fn(u64)) -> Result<(), BackupError> {
        let path = folder.join(&copy.name);
        self.put(&copy.stored, bytes, &path, advance)?;
        let file = files::open(&path, Access::Write).and_then(|file| file.set_modified(copy.modified.time()));
        file.map_err(|error| BackupError::io("write", &path, &error))
    }

    /// Copies the first bytes of a file; all of them have to be as the manifest says.
    fn put(&self, stored: &StoredFile, bytes: u64, to: &Path, advance: &dyn Fn(u64)) -> Result<(), BackupError> {
        let from = self.target.dir.join(&stored.file);
        let unread = |error: io::Error| BackupError::io("read", &from, &error);
        let unwritten = |error: io::Error| BackupError::io("write", to, &error);
        let mut rest = files::open(&from, Access::Read).map_err(unread)?.take(bytes);
        let mut copy = files::open(to, Access::Replace).map_err(unwritten)?;
        let (mut digest, mut chunk, mut written) = (Sha256::new(), vec![0; CHUNK_BYTES], 0);
        loop {
            let read = rest.read(&mut chunk).map_err(unread)?;
            if read == 0 {
                break;
            }
            digest.update(&chunk[..read]);
            copy.write_all(&chunk[..read]).map_err(unwritten)?;
            written += read as u64;
            advance(read as u64);
        }
        sync_data(&copy).map_err(unwritten)?;
        let is_whole = bytes < stored.bytes || hex(&digest.finalize()) == stored.sha256;
        if written < bytes || !is_whole {
            return Err(BackupError::new(format!("{} has changed since it was checked", from.display())));
        }
        Ok(())
    }

    /// The file of the copy that has the settings.
    #[must_use]
    pub fn settings(&self) -> Option<PathBuf> {
        self.manifest.config.as_ref().map(|stored| self.target.dir.join(&stored.file))
    }

    /// Writes the settings of the copy into a home without settings; false if the home has settings, or the copy lacks them.
    ///
    /// # Errors
    ///
    /// They cannot be written. The home then has no settings.
    pub fn restore_settings(&self, home: &Path) -> Result<bool, BackupError> {
        let Some(stored) = &self.manifest.config else { return Ok(false) };
        let path = home.join(SETTINGS_FILE);
        if path.symlink_metadata().is_ok() {
            return Ok(false);
        }
        let from = self.target.dir.join(&stored.file);
        let text = files::read(&from).map_err(|error| BackupError::io("read", &from, &error))?;
        if text.len() as u64 != stored.bytes || hex(&Sha256::digest(&text)) != stored.sha256 {
            return Err(BackupError::new(format!("{} has changed since it was checked", from.display())));
        }
        let put =
            Folder::make_home(home).and_then(|folder| folder.put(SETTINGS_FILE, &text).and_then(|()| folder.sync()));
        put.map_err(|error| BackupError::io("write", &path, &error))?;
        Ok(true)
    }

    /// Has the places of restored sessions lead to them again, unless they lead to another session by now.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn restore_places(&self, plans: &Plans, home: &Path) -> Result<(), BackupError> {
        let path = home.join(PLACES_DIR);
        let is_restored = |id: &String| plans.plans.iter().any(|plan| plan.session == *id);
        let put = || -> io::Result<()> {
            let folder = Folder::make(&path)?;
            for (place, id) in self.manifest.places.iter().filter(|(_, id)| is_restored(id)) {
                if path.join(place).symlink_metadata().is_err() {
                    folder.put(place, id.as_bytes())?;
                }
            }
            Ok(())
        };
        put().map_err(|error| BackupError::io("write", &path, &error))
    }
}

/// Orphans the open requests of the ledger in a folder, which is created if it is missing.
fn orphan(dir: &Path, restored_to: Moment) -> Result<u64, BackupError> {
    let failed = |error: crate::store::LedgerError| BackupError::new(error.to_string());
    let mut ledger = OfflineLedger::open(dir).map_err(failed)?;
    let orphaned = ledger.orphan_restored(&restored_to.to_string()).map_err(failed)?;
    ledger.close();
    Ok(orphaned as u64)
}

/// Gives a session the witness of the copy, or one that knows nothing, so that its numbers begin a new epoch.
fn leave_witness(plan: &Plan, place: &Path) -> io::Result<()> {
    let Some(file) = WitnessFile::of_session(place) else { return Ok(()) };
    file.put_copy(plan.copy.witness.as_ref().unwrap_or(&Witness::unknown()))
}

/// Removes what restores left that were killed.
fn remove_leftovers(sessions: &Path) {
    for entry in fs::read_dir(sessions).into_iter().flatten().flatten() {
        let is_rest = entry.file_name().to_str().is_some_and(|name| name.starts_with(RESTORING));
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // Its lock is held while it is written.
        if is_rest && is_folder && IndexLock::try_take(&entry.path()).is_ok_and(|lock| lock.is_some()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
