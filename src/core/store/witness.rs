//! The witness of a session's event numbers: `marks/<session>` in the home, outside the session's folder.
//!
//! It names the last number that a history issued and the record that got it, so a session folder that was restored from a
//! copy, or a journal that has lost its end, cannot give the same numbers to other events unnoticed. The index writes it
//! after each commit, without a sync: the page cache outlives the process, and [`Witness::boot`] shows whether the machine
//! was restarted since.
//!
//! *A restored home* brings an old witness back. The file names its own inode and time of birth, and gets new ones with the
//! first commit after each start, so a copy of it is recognized ([`WitnessRead::Copied`]). A snapshot of a whole file system or
//! machine cannot be recognized.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rusqlite::{OptionalExtension as _, Transaction, params};
use serde::{Deserialize, Serialize};

use crate::files::{self, Access, Folder};
use crate::journal::Position;
use crate::os::fs::sync_data;

const MARKS_DIR: &str = "marks";

const SESSIONS_DIR: &str = "sessions";

/// Most bytes of a witness that are read.
const WITNESS_BYTES_MAX: u64 = 4 << 10;

/// The last issued number of a session, and its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// The epoch of the history.
    pub epoch: String,
    /// The number before the first one of that epoch.
    pub after_seq: u64,
    /// Why that epoch began.
    pub cause: String,
    /// The last number that was issued.
    pub seq: u64,
    /// The first record of that event, if it belongs to this epoch.
    pub key: Option<Position>,
    /// A digest of all events of the epoch up to that one, in the order of their numbers.
    pub digest: Option<u64>,
    /// The journal position up to which the index had read.
    pub read_to: Option<Position>,
    /// No number above this one was ever issued.
    pub reserved: u64,
    /// The run whose first record got the first number of the epoch.
    pub first_generation: Option<String>,
    /// The boot id at the time of writing; `None` if the system has none.
    pub boot: Option<String>,
    /// No row of tools or turns ever had a higher number.
    #[serde(default)]
    pub highest_row: u64,
    /// The version of the fold that gave all rows of tools and turns their numbers; 0 if it is unknown, or several did.
    #[serde(default)]
    pub form: u32,
    /// Ends of runs that the journal once had, although its headers may not name them; oldest first.
    #[serde(default)]
    pub known_ends: Vec<Position>,
}

impl Witness {
    /// A witness that knows no number. As a copy it only says that the numbers of a history cannot be vouched for.
    #[must_use]
    pub fn unknown() -> Witness {
        Witness {
            epoch: String::new(),
            after_seq: 0,
            cause: String::new(),
            seq: 0,
            key: None,
            digest: None,
            read_to: None,
            reserved: 0,
            first_generation: None,
            boot: None,
            highest_row: 0,
            form: 0,
            known_ends: Vec::new(),
        }
    }
}

/// A witness as stored in its file.
#[derive(Serialize, Deserialize)]
struct Signed {
    #[serde(flatten)]
    witness: Witness,
    file: Identity,
}

/// Identifies a file, so that a copy in its place is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    inode: u64,
    /// Nanoseconds since the Unix epoch, if the file system records it.
    born_ns: Option<u64>,
}

impl Identity {
    /// That of no file.
    const NONE: Identity = Identity { inode: 0, born_ns: None };

    fn of(file: &Metadata) -> Identity {
        let born = file.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Identity { inode: file.ino(), born_ns: born.map(|born| born.as_nanos() as u64) }
    }

    /// Times of birth take precedence: a file system may assign new inodes each time it is mounted.
    fn is_same(self, other: Identity) -> bool {
        match (self.born_ns, other.born_ns) {
            (Some(own), Some(other)) => own == other,
            (Some(_) | None, _) => self.inode == other.inode,
        }
    }
}

/// The result of [`WitnessFile::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WitnessRead {
    /// The file is missing or not a valid witness.
    Nothing,
    /// The file that was originally written there.
    Original(Witness),
    /// A copy of that file, which may be older.
    Copied(Witness),
}

/// The file of a session's witness.
#[derive(Debug)]
pub struct WitnessFile {
    path: PathBuf,
    /// The file that this process has created there.
    own: Option<(File, Identity)>,
}

impl WitnessFile {
    /// The witness of the session in the folder `dir`; `None` if that is not below a home.
    #[must_use]
    pub fn of_session(dir: &Path) -> Option<WitnessFile> {
        let sessions = dir.parent().filter(|sessions| sessions.ends_with(SESSIONS_DIR))?;
        Some(WitnessFile { path: path_of(sessions.parent()?, dir.file_name()?.to_str()?), own: None })
    }

    /// Whether a file that should have a witness has none that can be read.
    #[must_use]
    pub fn is_damaged(path: &Path) -> bool {
        let file = WitnessFile { path: path.to_owned(), own: None };
        path.symlink_metadata().is_ok() && file.read() == WitnessRead::Nothing
    }

    #[must_use]
    pub fn read(&self) -> WitnessRead {
        let read = || -> io::Result<(Signed, Identity)> {
            let file = files::open(&self.path, Access::Read)?;
            let identity = Identity::of(&file.metadata()?);
            let mut text = Vec::new();
            file.take(WITNESS_BYTES_MAX).read_to_end(&mut text)?;
            // A longer line may have been there before.
            let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
            Ok((serde_json::from_slice(line)?, identity))
        };
        match read() {
            Ok((Signed { witness, file }, identity)) if file.is_same(identity) => WitnessRead::Original(witness),
            Ok((Signed { witness, .. }, _)) => WitnessRead::Copied(witness),
            Err(_) => WitnessRead::Nothing,
        }
    }

    /// Writes it, the first time to a new file. On an error the old file may still be there.
    pub fn write(&mut self, witness: &Witness) -> io::Result<()> {
        match &self.own {
            Some((file, identity)) => put(file, witness, *identity),
            None => self.replace(witness),
        }
    }

    /// Puts a witness of another home here, which is recognized as a copy, unless the session has one already.
    pub fn put_copy(&self, witness: &Witness) -> io::Result<()> {
        if self.path.symlink_metadata().is_ok() {
            return Ok(());
        }
        let (Some(dir), Some(name)) = (self.path.parent(), self.path.file_name()) else { return Ok(()) };
        let signed = Signed { witness: witness.clone(), file: Identity::NONE };
        let mut text = serde_json::to_vec(&signed).expect("BUG: plain data is JSON");
        text.push(b'\n');
        Folder::make(dir)?.put(name, &text)
    }

    /// Whether [`WitnessFile::write`] has created the file.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.own.is_some()
    }

    fn replace(&mut self, witness: &Witness) -> io::Result<()> {
        if let Some(dir) = self.path.parent() {
            Folder::make(dir)?;
        }
        let beside = self.path.with_added_extension("new");
        let _ = std::fs::remove_file(&beside);
        let file = files::open(&beside, Access::Create)?;
        let identity = Identity::of(&file.metadata()?);
        put(&file, witness, identity)?;
        // A loss of power then leaves either the old file or the new one.
        sync_data(&file)?;
        std::fs::rename(&beside, &self.path)?;
        self.own = Some((file, identity));
        Ok(())
    }
}

fn put(file: &File, witness: &Witness, identity: Identity) -> io::Result<()> {
    let signed = Signed { witness: witness.clone(), file: identity };
    let mut text = serde_json::to_vec(&signed).expect("BUG: plain data is JSON");
    text.push(b'\n');
    file.write_all_at(&text, 0)
}

/// The path of a session's witness within the home.
#[must_use]
pub(super) fn path_in_home(session_id: &str) -> PathBuf {
    Path::new(MARKS_DIR).join(session_id)
}

fn path_of(home: &Path, session_id: &str) -> PathBuf {
    home.join(path_in_home(session_id))
}

// Reserves event numbers of a session, so that none is issued twice.

pub(super) const SEQ_TABLES: &str = "
    CREATE TABLE codex_seq_marks (
        session_id TEXT PRIMARY KEY,
        reserved INTEGER NOT NULL,
        first_generation TEXT
    ) STRICT;
";

/// The epoch for which a witness was written outside the session's folder.
pub(super) const EPOCH_COLUMN: &str = "ALTER TABLE codex_seq_marks ADD COLUMN epoch TEXT";

const RESERVE: &str = "
    INSERT INTO codex_seq_marks (session_id, reserved, first_generation, epoch) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (session_id) DO UPDATE SET
        reserved = MAX(reserved, excluded.reserved),
        first_generation = COALESCE(first_generation, excluded.first_generation),
        epoch = COALESCE(excluded.epoch, epoch)";

const MARK: &str = "SELECT reserved, first_generation, epoch FROM codex_seq_marks WHERE session_id = ?1";

/// Numbers to reserve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeqWish {
    /// Reserves all numbers up to this one; 0 only reads the mark.
    pub up_to: u64,
    /// The run whose first record got number 1, if known.
    pub first_generation: Option<String>,
    /// The epoch of the history, if its witness was written.
    pub epoch: Option<String>,
}

/// The reserved numbers of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeqMark {
    /// No number above this one was ever issued.
    pub reserved: u64,
    /// The run whose first record got number 1.
    pub first_generation: Option<String>,
    /// The last epoch with a witness.
    pub epoch: Option<String>,
}

pub(super) fn reserve_seq(
    transaction: &Transaction<'_>,
    session_id: &str,
    wish: &SeqWish,
) -> rusqlite::Result<SeqMark> {
    if wish.up_to > 0 {
        let up_to = i64::try_from(wish.up_to).unwrap_or(i64::MAX);
        transaction.prepare_cached(RESERVE)?.execute(params![session_id, up_to, wish.first_generation, wish.epoch])?;
    }
    let read = |row: &rusqlite::Row<'_>| {
        let reserved = row.get::<_, i64>(0)?.try_into().unwrap_or(0);
        Ok(SeqMark { reserved, first_generation: row.get(1)?, epoch: row.get(2)? })
    };
    Ok(transaction.prepare_cached(MARK)?.query_row([session_id], read).optional()?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(seq: u64) -> Witness {
        Witness {
            epoch: "e".to_owned(),
            after_seq: 0,
            cause: "first".to_owned(),
            seq,
            key: None,
            digest: None,
            read_to: None,
            reserved: 10_000,
            first_generation: None,
            boot: None,
            highest_row: 0,
            form: 0,
            known_ends: Vec::new(),
        }
    }

    #[test]
    fn copy_of_a_witness_is_recognized() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let session = home.path().join("sessions/s");
        let open = || WitnessFile::of_session(&session).expect("it is below a home");
        assert_eq!(open().read(), WitnessRead::Nothing);
        let mut file = open();
        file.write(&witness(1_000)).expect("it can be written");
        file.write(&witness(7)).expect("it can be written");
        assert_eq!(open().read(), WitnessRead::Original(witness(7)));
        let path = home.path().join("marks/s");
        let copy = std::fs::read(&path).expect("it is there");
        // In place, once it was written by another start.
        open().write(&witness(8)).expect("it can be written");
        std::fs::write(&path, &copy).expect("it can be written over");
        assert_eq!(open().read(), WitnessRead::Copied(witness(7)));
        // And as another file.
        open().write(&witness(9)).expect("it can be written");
        let kept = home.path().join("kept");
        std::fs::copy(&path, &kept).expect("it can be copied");
        std::fs::rename(&kept, &path).expect("it can be put there");
        assert_eq!(open().read(), WitnessRead::Copied(witness(9)));
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(open().read(), WitnessRead::Nothing);
    }

    #[test]
    fn witness_of_another_home_is_a_copy() {
        let home = tempfile::tempdir().expect("BUG: a temporary folder");
        let open = || WitnessFile::of_session(&home.path().join("sessions/s")).expect("it is below a home");
        open().put_copy(&witness(7)).expect("it can be written");
        assert_eq!(open().read(), WitnessRead::Copied(witness(7)));
        // One that is there knows more.
        open().write(&witness(9)).expect("it can be written");
        open().put_copy(&witness(8)).expect("it can be written");
        assert_eq!(open().read(), WitnessRead::Original(witness(9)));
    }

    #[test]
    fn moved_home_keeps_its_witness() {
        let parent = tempfile::tempdir().expect("BUG: a temporary folder");
        let home = parent.path().join("a");
        Folder::make_home(&home).expect("it can be created");
        let open = |home: &Path| WitnessFile::of_session(&home.join("sessions/s")).expect("it is below a home");
        open(&home).write(&witness(7)).expect("it can be written");
        std::fs::rename(&home, parent.path().join("b")).expect("it can be moved");
        assert_eq!(open(&parent.path().join("b")).read(), WitnessRead::Original(witness(7)));
        assert!(WitnessFile::of_session(parent.path()).is_none());
    }
}
