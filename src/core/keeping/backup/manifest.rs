//! The manifest of a copy: which files belong to it, how much of each, and up to when it is complete.
//!
//! A copy is what its manifest says. Other files in its folder, and what follows the named bytes of a file, do not count. The manifest is
//! replaced by a rename once everything that it names has reached the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::BackupError;
use super::register::new_id;
use crate::config::SessionName;
use crate::files::Folder;
use crate::history::{micros_of, rfc3339_millis};
use crate::journal::{Position, SegmentName};
use crate::store::{Holder, Witness};

pub const MANIFEST_FILE: &str = "backup.json";

/// The form of a manifest. Another one says what this program does not know; the first one was never released.
const FORM: u32 = 2;

/// A file that was changed more recently may change again without another time of change: file systems have coarse clocks.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);

/// A time in microseconds since 1970; in JSON as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Moment(pub u64);

impl Moment {
    #[must_use]
    pub fn now() -> Moment {
        Moment::of(SystemTime::now())
    }

    #[must_use]
    pub fn of(time: SystemTime) -> Moment {
        Moment(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64)
    }

    #[must_use]
    pub fn time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.0)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rfc3339_millis(self.0))
    }
}

impl From<Moment> for String {
    fn from(moment: Moment) -> String {
        moment.to_string()
    }
}

impl TryFrom<String> for Moment {
    type Error = String;

    fn try_from(text: String) -> Result<Moment, String> {
        micros_of(&text).map(Moment).ok_or_else(|| format!("{text:?} is not a time"))
    }
}

/// Whether a file of the home is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    pub device: u64,
    pub inode: u64,
    pub changed_ns: i64,
    pub bytes: u64,
}

impl FileState {
    /// The state of a file that was looked at before it was read; `None` if it may change without notice.
    #[must_use]
    pub fn settled(file: &std::fs::Metadata, now: SystemTime) -> Option<FileState> {
        FileState::of(file).if_settled(now)
    }

    fn if_settled(self, now: SystemTime) -> Option<FileState> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
        (now.saturating_sub(self.changed_ns) > SETTLES_WITHIN.as_nanos() as i64).then_some(self)
    }

    /// The state of a file of SQLite by its last write: SQLite itself may change the owner of a log when it opens it.
    #[must_use]
    pub fn written(file: &std::fs::Metadata, now: SystemTime) -> Option<FileState> {
        let changed_ns = file.mtime().saturating_mul(1_000_000_000).saturating_add(file.mtime_nsec());
        FileState { changed_ns, ..FileState::of(file) }.if_settled(now)
    }

    #[must_use]
    pub fn of(file: &std::fs::Metadata) -> FileState {
        let changed_ns = file.ctime().saturating_mul(1_000_000_000).saturating_add(file.ctime_nsec());
        FileState { device: file.dev(), inode: file.ino(), changed_ns, bytes: file.len() }
    }
}

/// A file of the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// Its path in the folder of the copy.
    pub file: String,
    /// The bytes that belong to the copy, from its beginning.
    pub bytes: u64,
    /// SHA-256 of these bytes.
    pub sha256: String,
}

/// A file of whole lines that only grows: a segment of the journal, or a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinesCopy {
    /// Its name in its folder of the home.
    pub name: String,
    #[serde(flatten)]
    pub stored: StoredFile,
    /// When the original was last written.
    pub modified: Moment,
    /// The original when it was copied; `None` if it has to be looked at again.
    pub original: Option<FileState>,
    /// How much of it the home still has.
    #[serde(default, skip_serializing_if = "InHome::is_whole")]
    pub in_home: InHome,
}

/// How much the home still has of a file of the copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InHome {
    /// All that the copy has, perhaps more.
    #[default]
    Whole,
    /// Less: the end of it is lost, or a restore has brought an earlier state.
    Shorter,
    /// Other bytes, although nothing was masked.
    Differs,
    /// Nothing.
    Gone,
}

impl InHome {
    fn is_whole(&self) -> bool {
        *self == InHome::Whole
    }
}

/// A database that may be in use: its file and its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseState {
    pub file: FileState,
    pub log: Option<FileState>,
}

/// A time to which a session can be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Everything that happened before this time is in the ledger's copy.
    pub at: Moment,
    /// The ledger was still the same at this time.
    pub until: Moment,
    /// `None` for a session without a ledger.
    pub ledger: Option<StoredFile>,
    /// The end of the journal after `until`.
    pub journal_end: Option<Position>,
}

/// The copy of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryCopy {
    #[serde(flatten)]
    pub stored: StoredFile,
    pub at: Moment,
    /// How much of the journal it has; the rest is added from the journal's copy.
    pub read_to: Option<Position>,
    pub original: Option<DatabaseState>,
}

/// The copy of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCopy {
    /// Everything that happened before this time is in the copy.
    pub complete_to: Moment,
    /// The first run that did not find the session in the home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_since: Option<Moment>,
    /// The last holder of its lock, with 0 for the pid, which means nothing elsewhere.
    pub holder: Option<Holder>,
    pub last_used: Moment,
    /// The marks of its redactions, the last one at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redactions: Vec<String>,
    /// Oldest first.
    pub journal: Vec<LinesCopy>,
    pub transcripts: Vec<LinesCopy>,
    /// Oldest first; never empty.
    pub points: Vec<Point>,
    /// The ledger when the last point was made.
    pub ledger_original: Option<DatabaseState>,
    pub history: Option<HistoryCopy>,
    pub witness: Option<Witness>,
}

/// Times to which a session can be restored: any of these, because its ledger did not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    pub from: Moment,
    pub until: Moment,
}

impl SessionCopy {
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.points.iter().map(|point| Span { from: point.at, until: point.until }).collect()
    }

    /// All its files.
    pub fn files(&self) -> impl Iterator<Item = &StoredFile> {
        let lines = self.journal.iter().chain(&self.transcripts).map(|lines| &lines.stored);
        let ledgers = self.points.iter().filter_map(|point| point.ledger.as_ref());
        lines.chain(ledgers).chain(self.history.as_ref().map(|history| &history.stored))
    }
}

/// A copy of a home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub form: u32,
    /// The version of codex-shim that wrote it.
    pub version: String,
    /// The identity of the copy.
    pub id: String,
    /// The identity of its home.
    pub home_id: String,
    pub home: String,
    /// How many runs have completed.
    pub runs: u64,
    /// When the last one began.
    pub began_at: Moment,
    pub config: Option<StoredFile>,
    /// The session that last ran in each place, as the home names the places.
    pub places: BTreeMap<String, String>,
    pub sessions: BTreeMap<String, SessionCopy>,
    /// Sessions of the home that could not be copied yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<String>,
    /// Files of earlier runs that no longer count, and may still be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
}

/// The file: the manifest with its digest.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    sha256: String,
    #[serde(borrow)]
    backup: &'a RawValue,
}

/// The first member of any manifest.
#[derive(Deserialize)]
struct AnyForm {
    form: u32,
}

impl Manifest {
    #[must_use]
    pub fn new(home_id: String, home: String) -> Manifest {
        Manifest {
            form: FORM,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            id: new_id(),
            home_id,
            home,
            runs: 0,
            began_at: Moment(0),
            config: None,
            places: BTreeMap::new(),
            sessions: BTreeMap::new(),
            lacking: Vec::new(),
            replaced: Vec::new(),
        }
    }

    /// Everything that happened before this time in a session that the home still has is in the copy.
    #[must_use]
    pub fn complete_to(&self) -> Moment {
        let current = self.sessions.values().filter(|session| session.gone_since.is_none());
        current.map(|session| session.complete_to).min().unwrap_or(self.began_at)
    }

    /// All files of the copy.
    pub fn files(&self) -> impl Iterator<Item = &StoredFile> {
        // Points whose ledger did not differ share a file.
        let mut seen = BTreeSet::new();
        let of_sessions = self.sessions.values().flat_map(SessionCopy::files);
        of_sessions.chain(&self.config).filter(move |stored| seen.insert(&*stored.file))
    }

    /// Reads the manifest of a copy; `None` before the first run has completed.
    pub(super) fn read(folder: &Folder, dir: &Path) -> Result<Option<Manifest>, BackupError> {
        let path = dir.join(MANIFEST_FILE);
        match folder.read(MANIFEST_FILE) {
            Ok(bytes) => Manifest::parse(&bytes, &path).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BackupError::io("read", &path, &error)),
        }
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Manifest, BackupError> {
        let damaged = |why: &str| {
            BackupError::new(format!("{} is damaged: {why}", path.display())).with_remedy(
                "run `codex-shim backup` into another folder; the segments of the journal in `sessions` are plain text, and each can \
                 be read with `codex-shim tape show`",
            )
        };
        let sealed: Sealed<'_> = serde_json::from_slice(bytes).map_err(|error| damaged(&error.to_string()))?;
        let text = sealed.backup.get();
        if digest(text.as_bytes()) != sealed.sha256 {
            return Err(damaged("its content differs from its checksum"));
        }
        let AnyForm { form } = serde_json::from_str(text).map_err(|error| damaged(&error.to_string()))?;
        if form != FORM {
            let age = if form > FORM { "a newer codex-shim" } else { "a build of codex-shim that was never released" };
            let problem = format!("{} was written by {age} (form {form})", path.display());
            return Err(BackupError::new(problem).with_remedy("use that one, or name another folder"));
        }
        let manifest: Manifest = serde_json::from_str(text).map_err(|error| damaged(&error.to_string()))?;
        manifest.fault().map_or(Ok(manifest), |fault| Err(damaged(&fault)))
    }

    /// A name that would lead out of the folder of the copy, or of a session.
    fn fault(&self) -> Option<String> {
        let leads_out = |path: &str| {
            path.is_empty() || Path::new(path).components().any(|part| !matches!(part, Component::Normal(_)))
        };
        let is_segment = |lines: &LinesCopy| SegmentName::parse(&lines.name).is_some();
        let is_one_name = |name: &str| !leads_out(name) && Path::new(name).components().count() == 1;
        let mut files = self.files().map(|stored| &stored.file).chain(&self.replaced);
        let path = files.find(|file| leads_out(file)).map(|file| format!("{file:?}"));
        let id = self.sessions.keys().find(|id| id.parse::<SessionName>().is_err());
        let segment = self.sessions.values().flat_map(|session| &session.journal).find(|lines| !is_segment(lines));
        let mut transcripts = self.sessions.values().flat_map(|session| &session.transcripts);
        let transcript = transcripts.find(|lines| !is_one_name(&lines.name));
        let place = self.places.keys().find(|place| !is_one_name(place));
        let empty = self.sessions.iter().find(|(_, session)| session.points.is_empty()).map(|(id, _)| id);
        let name = path
            .or(id.cloned())
            .or(segment.or(transcript).map(|lines| lines.name.clone()))
            .or(place.cloned())
            .or(empty.cloned());
        name.map(|name| format!("{name} is not a valid entry"))
    }

    /// Makes the copy what this manifest says.
    pub(super) fn write(&self, folder: &Folder, dir: &Path) -> Result<(), BackupError> {
        let failed = |error: &std::io::Error| BackupError::io("write", &dir.join(MANIFEST_FILE), error);
        let text = serde_json::to_string(self).expect("BUG: plain data is JSON");
        let sha256 = digest(text.as_bytes());
        let backup = RawValue::from_string(text).expect("BUG: it is JSON");
        let mut bytes = serde_json::to_vec(&Sealed { sha256, backup: &backup }).expect("BUG: plain data is JSON");
        bytes.push(b'\n');
        folder.put(MANIFEST_FILE, &bytes).and_then(|()| folder.sync()).map_err(|error| failed(&error))
    }
}

/// The SHA-256 of bytes, as a manifest names it.
#[must_use]
pub(super) fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Bytes in hex digits.
#[must_use]
pub(in crate::keeping) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let stored = StoredFile { file: "sessions/s/ledger.db.1".to_owned(), bytes: 7, sha256: hex(&[1, 2]) };
        let point = Point { at: Moment(1_000), until: Moment(2_000), ledger: Some(stored), journal_end: None };
        let session = SessionCopy {
            complete_to: Moment(2_000),
            gone_since: None,
            holder: None,
            last_used: Moment(1_000),
            redactions: Vec::new(),
            journal: Vec::new(),
            transcripts: Vec::new(),
            points: vec![point.clone(), point],
            ledger_original: None,
            history: None,
            witness: None,
        };
        let mut manifest = Manifest::new("home".to_owned(), "/h".to_owned());
        manifest.began_at = Moment(9_000);
        manifest.sessions.insert("s".to_owned(), session);
        manifest
    }

    fn read(change: impl Fn(String) -> String) -> Result<Option<Manifest>, BackupError> {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let folder = Folder::at(dir.path()).expect("it is ours");
        let written = Manifest { id: "copy".to_owned(), ..manifest() };
        written.write(&folder, dir.path()).expect("it can be written");
        let text = std::fs::read_to_string(dir.path().join(MANIFEST_FILE)).expect("it is there");
        std::fs::write(dir.path().join(MANIFEST_FILE), change(text)).expect("it is ours");
        Manifest::read(&folder, dir.path())
    }

    #[test]
    fn manifest_is_read_as_written() {
        assert_eq!(read(|text| text), Ok(Some(Manifest { id: "copy".to_owned(), ..manifest() })));
        assert_eq!((manifest().complete_to(), manifest().files().count()), (Moment(2_000), 1));
    }

    #[test]
    fn damaged_manifest_is_no_copy() {
        let check = |old: &'static str, new: &'static str, expect: &str| {
            let error = read(|text| {
                assert!(text.contains(old), "{text}");
                text.replacen(old, new, 1)
            });
            let error = error.expect_err("it is damaged");
            assert!(error.problem.contains(expect) && error.remedy.is_some(), "{error:?}");
        };
        check("\"bytes\":7", "\"bytes\":8", "its content differs from its checksum");
        check("}}\n", "", "is damaged: ");
        check("{", "", "is damaged: ");
    }

    #[test]
    fn other_forms_are_refused_by_name() {
        for (form, words) in [(1, "a build of codex-shim that was never released"), (3, "a newer codex-shim")] {
            let dir = tempfile::tempdir().expect("BUG: a temporary folder");
            let folder = Folder::at(dir.path()).expect("it is ours");
            Manifest { form, ..manifest() }.write(&folder, dir.path()).expect("it can be written");
            let error = Manifest::read(&folder, dir.path()).expect_err("it is refused");
            assert!(error.problem.contains(words) && error.remedy.is_some(), "{error:?}");
        }
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        let check = |change: fn(&mut Manifest)| {
            let mut changed = manifest();
            assert_eq!(changed.fault(), None);
            change(&mut changed);
            assert!(changed.fault().is_some_and(|fault| fault.ends_with("is not a valid entry")), "{changed:?}");
        };
        let stored = |file: &str| Some(StoredFile { file: file.to_owned(), bytes: 0, sha256: String::new() });
        check(|manifest| manifest.places = BTreeMap::from([("../x".to_owned(), "s".to_owned())]));
        check(|manifest| manifest.sessions.extend([("..".to_owned(), manifest.sessions["s"].clone())]));
        check(|manifest| manifest.replaced = vec!["sessions/../../x".to_owned()]);
        check(|manifest| manifest.sessions.values_mut().for_each(|session| session.points.clear()));
        for file in ["/etc/passwd", "../x", "sessions/../../x", ""] {
            let changed = Manifest { config: stored(file), ..manifest() };
            assert!(changed.fault().is_some(), "{file}");
        }
    }

    #[test]
    fn recent_changes_are_looked_at_again() {
        let file = tempfile::NamedTempFile::new().expect("BUG: a temporary file");
        let file = file.as_file().metadata().expect("it is there");
        let changed = SystemTime::UNIX_EPOCH + Duration::from_nanos(FileState::of(&file).changed_ns as u64);
        let check = |now: SystemTime, expect: bool| assert_eq!(FileState::settled(&file, now).is_some(), expect);
        check(changed + Duration::from_secs(1), false);
        check(changed + Duration::from_secs(3), true);
        // The clock was set back.
        check(changed - Duration::from_secs(3_600), false);
    }
}
