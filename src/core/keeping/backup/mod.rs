//! Backups: a copy of a home in another folder, made while relays and hubs run.
//!
//! [`Backup::run`] brings the copy up to date. It reads what relays write, and they never wait for it: segments of journals and
//! transcripts are read without a lock, up to the last whole line, and databases in a transaction that no writer waits for.
//!
//! *Order.* Of each session the history is copied first, then the ledger, then the journal. So the journal's copy has every record that
//! the other two refer to: what a ledger stores was recorded before, and the rest of a history is indexed from the journal after a restore.
//!
//! *Crashes.* The copy is what its manifest says ([`manifest`]), which is replaced last. Until then all files that the former manifest
//! names are unchanged, so an interrupted run leaves the former copy.
//!
//! *Redaction.* A copy of a session that was redacted since is made anew, without anything of before. Only the mark of the redaction proves
//! it: other bytes in the home without one, and fewer bytes, are a fault, and what the copy has stays.
//!
//! *Identity.* A copy names its home by an identity, and the home knows in which folders it has copies ([`register`]). So a home never
//! continues the copy of another one, and no copy begins in a folder that has lost its copy.
//!
//! In the home this module writes only that register. It never follows a link, and removes no file that a manifest of its own does not
//! name, except for those with the number of an interrupted run.

mod copying;
mod folder;
mod manifest;
mod points;
mod register;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::SessionName;
use crate::files::{self, Access, Folder, Refused};
use crate::index::HISTORY_FILE;
use crate::journal::SegmentName;
use crate::store::{Found, LEDGER_FILE, PLACES_DIR, Survey};
use copying::{CopyError, Copying, Digests, Trust};
use register::{Register, known_as};
use session::copy_session;

pub(super) use copying::digest_of;
use folder::Start;
pub(super) use folder::{Target, apart};
pub(super) use manifest::hex;
pub use manifest::{
    HistoryCopy, InHome, LinesCopy, MANIFEST_FILE, Manifest, Moment, Point, SessionCopy, Span, StoredFile,
};

/// Why a backup was not made or cannot be used, and what to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupError {
    pub problem: String,
    pub remedy: Option<String>,
    pub kind: BackupErrorKind,
}

/// The kind of a [`BackupError`], for callers that handle it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackupErrorKind {
    #[default]
    Failed,
    /// The folder can be read, but not written.
    Unwritable,
    NoSuchSession,
}

impl BackupError {
    pub(super) fn new(problem: impl Into<String>) -> BackupError {
        BackupError { problem: problem.into(), ..BackupError::default() }
    }

    pub(super) fn with_remedy(self, remedy: impl Into<String>) -> BackupError {
        BackupError { remedy: Some(remedy.into()), ..self }
    }

    pub(super) fn io(action: &str, path: &Path, error: &io::Error) -> BackupError {
        BackupError::new(format!("{action} {}: {error}", path.display()))
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for BackupError {}

/// The extent of a run.
#[derive(Debug, Clone, Copy)]
pub struct BackupOptions<'a> {
    /// Only this session; the others stay as they were copied.
    pub only: Option<&'a str>,
    /// Removes from the copy what the home no longer has.
    pub deletes: bool,
    /// How old the copy of a history may become; `None` copies each that has changed.
    pub history_age_max: Option<Duration>,
    /// Begins a copy in a folder that has lost its copy.
    pub begins_anew: bool,
    /// Reads the copy, and makes damaged files of it anew.
    pub verifies: bool,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct BackupRun {
    pub manifest: Manifest,
    /// The bytes that were written for each session.
    pub written: BTreeMap<String, u64>,
    /// The bytes of files that were removed from the copy.
    pub removed: u64,
    /// Failures, as messages for the user.
    pub faults: Vec<String>,
}

/// Copies a home to a folder, once or again and again.
#[derive(Debug)]
pub struct Backup {
    home: PathBuf,
    dir: PathBuf,
    digests: Digests,
    /// Files of interrupted runs were removed.
    is_swept: bool,
    /// The identity of the copy that an earlier run has updated. The folder must still have this copy.
    copy: Option<String>,
}

impl Backup {
    #[must_use]
    pub fn new(home: &Path, dir: &Path) -> Backup {
        let dir = without_slash(dir);
        Backup { home: home.to_owned(), dir, digests: Digests::default(), is_swept: false, copy: None }
    }

    /// How many bytes a run reads, more or less.
    #[must_use]
    pub fn bytes_to_read(&self, options: BackupOptions<'_>) -> u64 {
        let Ok(Survey { found, .. }) = Survey::of(&self.home) else { return 0 };
        let before = Folder::at(&self.dir).ok().and_then(|folder| Manifest::read(&folder, &self.dir).ok().flatten());
        let sessions = found.iter().filter(|session| options.only.is_none_or(|only| only == session.id));
        sessions.map(|session| unread(session, before.as_ref())).sum()
    }

    /// Brings the copy up to date. `goes_on` gets the bytes read since its last call, and returns whether to continue; `None` means
    /// that it returned false, and the copy is as before.
    ///
    /// # Errors
    ///
    /// The copy is then as before.
    pub fn run(
        &mut self,
        options: BackupOptions<'_>,
        goes_on: &dyn Fn(u64) -> bool,
    ) -> Result<Option<BackupRun>, BackupError> {
        let home = self.home.canonicalize().map_err(|error| match error.kind() == io::ErrorKind::NotFound {
            true => BackupError::new(format!("{} does not exist, so there is nothing to copy", self.home.display()))
                .with_remedy(
                    "start your tool through codex-shim first, or set CODEX_SHIM_HOME to the home that you mean",
                ),
            false => BackupError::io("use", &self.home, &error),
        })?;
        let (target, before) = self.opened(&home, options)?;
        let Survey { found, refused } = Survey::of(&self.home).map_err(|error| BackupError::new(error.to_string()))?;
        if options.deletes && found.is_empty() && !before.sessions.is_empty() {
            let problem = format!("{} has no session, and the backup has {}", before.home, before.sessions.len());
            return Err(BackupError::new(problem).with_remedy("nothing was removed; without --delete they stay"));
        }
        let unread = unreadable(&home, &found, &refused, &before)?;
        let begun = Manifest::new(before.home_id.clone(), before.home.clone());
        let manifest = Manifest { id: before.id.clone(), runs: before.runs + 1, began_at: Moment::now(), ..begun };
        let (written, faults) = (BTreeMap::new(), Vec::new());
        let mut run = Run { target: &target, manifest, before, options, goes_on, written, faults };
        let is_wanted = |id: &str| options.only.is_none_or(|only| only == id);
        let refused = refused.iter().map(|(id, refused)| (id, format!("was not copied: {refused}")));
        for (id, why) in refused.chain(unread.iter().map(|(id, why)| (id, why.clone()))).filter(|(id, _)| is_wanted(id))
        {
            run.keep_before(id, format!("session {id} {why}"));
        }
        for session in found.iter().filter(|session| is_wanted(&session.id)) {
            if !run.session(session, &mut self.digests) {
                return Ok(None);
            }
        }
        run.keep_others(&home);
        run.home_files(&home)?;
        self.complete(run, &home).map(Some)
    }

    /// Opens the folder, and the manifest of before, or one that names nothing yet.
    fn opened(&self, home: &Path, options: BackupOptions<'_>) -> Result<(Target, Manifest), BackupError> {
        let register = Register::read(home)?;
        let known = register.as_ref().and_then(|register| register.copy_in(&known_as(&self.dir)));
        // The user gives up an earlier copy, never the one of this process.
        let known = self.copy.as_deref().or(known.filter(|_| !options.begins_anew));
        let start = if known.is_some() { Start::Continue } else { Start::Any };
        let (target, before) = Target::make(&self.dir, &self.home, start)?;
        let Some(before) = before else {
            let register = Register::make(home)?;
            return Ok((target, Manifest::new(register.home, home.display().to_string())));
        };
        let dir = self.dir.display();
        let refused = if register.as_ref().is_none_or(|register| register.home != before.home_id) {
            let (was, is) = (&before.home, home.display());
            let other = if *was == is.to_string() { format!("another home that was at {was}") } else { was.clone() };
            format!("{dir} has a backup of {other}, not of {is}")
        } else if before.home != home.display().to_string() {
            format!("{dir} has a backup of {}, not of {}", before.home, home.display())
        } else if known.is_some_and(|known| known != before.id) {
            format!("{dir} has another backup of this home than before")
        } else if options.begins_anew && self.copy.is_none() {
            format!("{dir} has a backup, so --new begins none there")
        } else {
            return Ok((target, before));
        };
        Err(BackupError::new(refused).with_remedy("name another folder"))
    }

    /// Makes everything durable, then the manifest, and removes what it no longer names.
    fn complete(&mut self, run: Run<'_>, home: &Path) -> Result<BackupRun, BackupError> {
        let Run { target, before, mut manifest, written, faults, .. } = run;
        for id in written.iter().filter(|(_, bytes)| **bytes > 0).map(|(id, _)| id) {
            target.sync(id).map_err(|error| BackupError::io("sync", &self.dir, &error))?;
        }
        manifest.replaced = replaced(&before, &manifest, &target.dir);
        manifest.write(&target.folder, &self.dir)?;
        self.copy = Some(manifest.id.clone());
        let mut run = BackupRun { manifest, written, removed: 0, faults };
        if let Err(error) = target.has_begun() {
            run.faults.push(format!("finish the first run in {}: {error}", self.dir.display()));
        }
        if let Err(error) = Register::remember(home, &known_as(&self.dir), &run.manifest.id) {
            run.faults.push(format!("a later run will not notice that {} is lost: {error}", self.dir.display()));
        }
        let has_changed = !self.is_swept || !run.manifest.replaced.is_empty();
        if has_changed || run.written.values().any(|bytes| *bytes > 0) {
            self.digests.keep_those_of(&run.manifest);
            match target.sweep(&run.manifest) {
                Ok(removed) => (run.removed, self.is_swept) = (removed, true),
                Err(error) => run.faults.push(format!("remove old files from {}: {error}", self.dir.display())),
            }
        }
        Ok(run)
    }
}

/// The files of earlier manifests that this one does not name, as far as they are there.
fn replaced(before: &Manifest, now: &Manifest, dir: &Path) -> Vec<String> {
    let named: BTreeSet<&str> = now.files().map(|stored| &*stored.file).collect();
    let earlier = before.replaced.iter().chain(before.files().map(|stored| &stored.file));
    let unnamed: BTreeSet<&String> = earlier.filter(|file| !named.contains(&***file)).collect();
    let is_there = |file: &&String| dir.join(file).symlink_metadata().is_ok();
    unnamed.into_iter().filter(is_there).cloned().collect()
}

/// Sessions that are neither found nor refused and may not have been deleted, each with the reason: everything in the folder of the
/// sessions that cannot be looked at, and what the copy has and the home has in part.
fn unreadable(
    home: &Path,
    found: &[Found],
    refused: &[(String, Refused)],
    before: &Manifest,
) -> Result<Vec<(String, String)>, BackupError> {
    let sessions = home.join("sessions");
    let list = || std::fs::read_dir(&sessions)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
    let names = match list() {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(BackupError::io("read", &sessions, &error)),
    };
    let is_known = |id: &str| found.iter().any(|found| found.id == id) || refused.iter().any(|(other, _)| other == id);
    let mut unread = Vec::new();
    for id in names.iter().filter_map(|name| name.to_str()).filter(|id| id.parse::<SessionName>().is_ok()) {
        if is_known(id) {
            continue;
        }
        let lock = sessions.join(id).join("lock");
        match files::open(&lock, Access::Read) {
            // A folder without a lock is not a session, or begins to be one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if before.sessions.contains_key(id) {
                    let folder = sessions.join(id);
                    let why = format!(
                        "has no `lock` any more, so its copy stays as it was; if it is deleted, remove {}",
                        folder.display()
                    );
                    unread.push((id.to_owned(), why));
                }
            }
            Err(error) => unread.push((id.to_owned(), format!("was not copied: use {}: {error}", lock.display()))),
            // It began meanwhile.
            Ok(_) => {}
        }
    }
    Ok(unread)
}

/// The same folder without a slash behind its name, by which a link would be followed.
pub(super) fn without_slash(dir: &Path) -> PathBuf {
    dir.components().collect()
}

/// A run in progress.
struct Run<'a> {
    target: &'a Target,
    before: Manifest,
    manifest: Manifest,
    options: BackupOptions<'a>,
    goes_on: &'a dyn Fn(u64) -> bool,
    written: BTreeMap<String, u64>,
    faults: Vec<String>,
}

impl Run<'_> {
    /// Copies a session; false if the run was interrupted.
    fn session(&mut self, found: &Found, digests: &mut Digests) -> bool {
        let mut copying = Copying {
            target: self.target,
            session: &found.id,
            run: self.manifest.runs,
            digests,
            goes_on: self.goes_on,
            written: 0,
            faults: Vec::new(),
            trust: if self.options.verifies { Trust::Content } else { Trust::Length },
        };
        let before = self.before.sessions.get(&found.id);
        match copy_session(found, before, self.options, &mut copying) {
            Ok((copy, faults)) => {
                self.written.insert(found.id.clone(), copying.written);
                self.manifest.sessions.insert(found.id.clone(), copy);
                self.faults.extend(faults);
            }
            Err(CopyError::Interrupted) => return false,
            // The session was deleted meanwhile.
            Err(CopyError::Gone | CopyError::Redacted) if is_gone(&found.dir) => {}
            Err(CopyError::Gone) => {
                self.keep_before(&found.id, format!("session {}: its files vanish while they are copied", found.id));
            }
            Err(CopyError::Redacted) => {
                self.keep_before(&found.id, format!("session {} is redacted while it is copied", found.id));
            }
            Err(CopyError::Failed(why)) => self.keep_before(&found.id, format!("session {}: {why}", found.id)),
        }
        true
    }

    /// Keeps a session as it was copied before, because it cannot be copied now.
    fn keep_before(&mut self, id: &str, fault: String) {
        self.faults.push(fault);
        match self.before.sessions.get(id) {
            Some(before) => drop(self.manifest.sessions.insert(id.to_owned(), before.clone())),
            None => self.manifest.lacking.push(id.to_owned()),
        }
    }

    /// Carries over the sessions that this run does not copy, and deleted sessions.
    fn keep_others(&mut self, home: &Path) {
        let sessions = home.join("sessions");
        let is_readable = std::fs::read_dir(&sessions).is_ok();
        for (id, before) in &self.before.sessions {
            if self.manifest.sessions.contains_key(id) {
                continue;
            }
            let is_looked_at = self.options.only.is_none();
            let is_gone = is_looked_at && is_readable && is_gone(&sessions.join(id));
            if is_gone && self.options.deletes {
                self.written.entry(id.clone()).or_default();
                continue;
            }
            let gone_since = before.gone_since.or(is_gone.then_some(self.manifest.began_at));
            self.manifest.sessions.insert(id.clone(), SessionCopy { gone_since, ..before.clone() });
        }
        if self.options.only.is_some() {
            let others = self.before.lacking.iter().filter(|id| !self.manifest.sessions.contains_key(*id));
            self.manifest.lacking.extend(others.cloned());
        }
        self.manifest.lacking.sort();
        self.manifest.lacking.dedup();
    }

    /// Copies the settings, and which session belongs to which place.
    fn home_files(&mut self, home: &Path) -> Result<(), BackupError> {
        self.manifest.places = self.places(home);
        let path = home.join("config.toml");
        self.manifest.config = self.before.config.clone();
        let text = match files::read_trusted(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.options.deletes {
                    self.manifest.config = None;
                }
                return Ok(());
            }
            Err(error) => {
                self.faults.push(format!("config.toml was not copied: {error}"));
                return Ok(());
            }
        };
        let sha256 = manifest::digest(text.as_bytes());
        let stored = |stored: &StoredFile| digest_of(&self.target.dir.join(&stored.file), Some(stored.bytes));
        let is_there = |before: &StoredFile| stored(before).is_ok_and(|(_, found)| found == before.sha256);
        if self.before.config.as_ref().is_some_and(|before| before.sha256 == sha256 && is_there(before)) {
            return Ok(());
        }
        let file = format!("config.toml.{}", self.manifest.runs);
        let path = self.target.dir.join(&file);
        let put = self.target.folder.put(&file, text.as_bytes());
        put.map_err(|error| BackupError::io("write", &path, &error))?;
        self.manifest.config = Some(StoredFile { file, bytes: text.len() as u64, sha256 });
        Ok(())
    }

    /// The places of the home whose sessions the copy has.
    fn places(&self, home: &Path) -> BTreeMap<String, String> {
        let places = home.join(PLACES_DIR);
        let entries = match Folder::at(&places).and_then(|_| std::fs::read_dir(&places)) {
            Ok(entries) => entries,
            Err(_) => return self.before.places.clone(),
        };
        let read = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry.ok()?;
            let id = String::from_utf8(files::read(&entry.path()).ok()?).ok()?;
            Some((entry.file_name().into_string().ok()?, id))
        };
        let now: BTreeMap<String, String> = entries.filter_map(read).collect();
        let kept = self.before.places.iter().filter(|(place, _)| !now.contains_key(*place));
        let all = kept.map(|(place, id)| (place.clone(), id.clone())).chain(now.clone());
        all.filter(|(_, id)| self.manifest.sessions.contains_key(id)).collect()
    }
}

/// Whether a folder is known to be deleted; any other error may pass.
fn is_gone(dir: &Path) -> bool {
    dir.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The bytes of a session that a run reads: of files that have changed.
fn unread(session: &Found, before: Option<&Manifest>) -> u64 {
    let before = before.and_then(|manifest| manifest.sessions.get(&session.id));
    let size = |path: &Path| path.symlink_metadata().map_or(0, |file| file.len());
    let has_changed = |name: &SegmentName| {
        let known = before.and_then(|before| before.journal.iter().find(|lines| lines.name == name.to_string()));
        let now = session.journal_dir().join(name.to_string()).symlink_metadata().ok();
        known.and_then(|known| known.original) != now.map(|now| manifest::FileState::of(&now))
    };
    let segments = SegmentName::list(&session.journal_dir()).unwrap_or_default();
    let changed = segments.iter().filter(|name| has_changed(name));
    let journal: u64 = changed.map(|name| size(&session.journal_dir().join(name.to_string()))).sum();
    let is_same = |name: &str| {
        let known = match name {
            LEDGER_FILE => before.and_then(|before| before.ledger_original),
            _ => before.and_then(|before| before.history.as_ref()?.original),
        };
        known.is_some() && known == copying::settled_state(&session.dir.join(name))
    };
    let databases = [HISTORY_FILE, LEDGER_FILE].into_iter().filter(|name| !is_same(name));
    journal + databases.map(|name| size(&session.dir.join(name))).sum::<u64>()
}
