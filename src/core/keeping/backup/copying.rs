//! Copies files of a home to the folder of a copy: those of whole lines, which grow, and databases, which may be in use.
//!
//! Nothing that the manifest names is ever overwritten. A file that grows is continued behind the bytes that the manifest names, and
//! anything else gets a new name, so an interrupted run leaves the copy as it was.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use super::folder::Target;
use super::manifest::{DatabaseState, FileState, InHome, LinesCopy, Manifest, Moment, StoredFile, hex};
use crate::files::{self, Access};
use crate::os::fs::sync_data;
use crate::store::{Found, Life, SnapshotError, snapshot};

/// Bytes that are read and written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes between two syncs: a ledger's commit may wait behind what a disk has to write.
const SYNC_BYTES: u64 = 8 << 20;

/// How much is read at once to find the end of the last line.
const TAIL_BYTES: u64 = 64 << 10;

/// Attempts to copy the database of a session that starts meanwhile.
const TRIES_MAX: u32 = 3;

/// Why a file was not copied.
#[derive(Debug)]
pub(super) enum CopyError {
    /// The file was deleted.
    Gone,
    /// Redactions of the session change it during each attempt.
    Redacted,
    Interrupted,
    /// A fault, as text for the user.
    Failed(String),
}

/// The action on a file of the home; a missing one was deleted.
const READ: &str = "read";

impl CopyError {
    fn of(action: &str, path: &Path, error: &io::Error) -> CopyError {
        if action == READ && error.kind() == io::ErrorKind::NotFound {
            return CopyError::Gone;
        }
        CopyError::Failed(format!("{action} {}: {error}", path.display()))
    }
}

/// The digests of files that grow, as far as they were copied, so that the next run need not read them from the beginning.
#[derive(Debug, Default)]
pub(super) struct Digests(HashMap<PathBuf, ((u64, u64), StoredFile, Sha256)>);

impl Digests {
    /// Forgets files that the copy does not have.
    pub(super) fn keep_those_of(&mut self, manifest: &Manifest) {
        let named: HashSet<&str> = manifest.files().map(|stored| &*stored.file).collect();
        self.0.retain(|_, (_, stored, _)| named.contains(&*stored.file));
    }
}

/// Copies the files of one session.
pub(super) struct Copying<'a> {
    pub(super) target: &'a Target,
    pub(super) session: &'a str,
    /// The number of this run, which no file of an earlier one has in its name.
    pub(super) run: u64,
    pub(super) digests: &'a mut Digests,
    /// Told of the bytes that were read since; says whether to continue.
    pub(super) goes_on: &'a dyn Fn(u64) -> bool,
    /// Bytes that were written.
    pub(super) written: u64,
    /// Files of the home that differ from their copies, and damaged copies, as messages for the user.
    pub(super) faults: Vec<String>,
    pub(super) trust: Trust,
}

/// By what a file of the copy counts as whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    Length,
    /// Also by its digest: it is read.
    Content,
}

impl Copying<'_> {
    /// Copies a file of whole lines in the folder `inner` of the session, or its new lines. Lines that the copy has already stay in it.
    pub(super) fn lines(
        &mut self,
        original: &Path,
        inner: &str,
        before: Option<&LinesCopy>,
    ) -> Result<LinesCopy, CopyError> {
        let file = files::open(original, Access::Read).map_err(|error| CopyError::of(READ, original, &error))?;
        let found = file.metadata().map_err(|error| CopyError::of(READ, original, &error))?;
        let name = original.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let (state, settled) = (FileState::of(&found), FileState::settled(&found, SystemTime::now()));
        let modified = found.modified().map(Moment::of).unwrap_or(Moment(0));
        let copied = before.filter(|before| self.has(&before.stored));
        if let Some(before) = copied
            && before.original == Some(state)
            && before.in_home != InHome::Gone
        {
            self.note(original, before.in_home, before.in_home);
            return Ok(before.clone());
        }
        let (digest, in_home) = match copied {
            Some(before) => self.compare(&file, original, before, state)?,
            None => (Sha256::new(), InHome::Whole),
        };
        self.note(original, before.map_or(InHome::Whole, |before| before.in_home), in_home);
        if let Some(before) = copied.filter(|before| before.stored.bytes > state.bytes || in_home == InHome::Shorter) {
            return Ok(LinesCopy { original: settled, in_home, ..before.clone() });
        }
        let from = copied.map_or(0, |before| before.stored.bytes);
        let end = end_of_lines(&file, from, state.bytes).and_then(|end| match in_home {
            InHome::Differs if !is_line_end(&file, from)? => Ok(from),
            InHome::Whole | InHome::Shorter | InHome::Differs | InHome::Gone => Ok(end),
        });
        let end = end.map_err(|error| CopyError::of(READ, original, &error))?;
        let relative = copied.map_or_else(
            || format!("sessions/{}/{inner}/{name}.{}", self.session, self.run),
            |before| before.stored.file.clone(),
        );
        let mut digest = digest;
        if end > from || copied.is_none() {
            let path = self.target.dir.join(&relative);
            let made = self.target.make_below(self.session, Some(inner));
            made.map_err(|error| CopyError::of("write", &path, &error))?;
            self.append((&file, original), &path, (from, end), &mut digest)?;
        }
        let stored = StoredFile { file: relative, bytes: end, sha256: hex(&digest.clone().finalize()) };
        self.digests.0.insert(original.to_owned(), ((state.device, state.inode), stored.clone(), digest));
        Ok(LinesCopy { name, stored, modified, original: settled, in_home })
    }

    /// Compares the home's file with the bytes of its copy. Returns the digest of these bytes, too.
    fn compare(
        &self,
        file: &File,
        original: &Path,
        before: &LinesCopy,
        state: FileState,
    ) -> Result<(Sha256, InHome), CopyError> {
        let stored = &before.stored;
        if let Some((identity, known, digest)) = self.digests.0.get(original)
            && *identity == (state.device, state.inode)
            && known == stored
            && state.bytes >= stored.bytes
        {
            let in_home = if before.in_home == InHome::Differs { InHome::Differs } else { InHome::Whole };
            return Ok((digest.clone(), in_home));
        }
        let own = self.digest((file, original), stored.bytes.min(state.bytes))?;
        if state.bytes >= stored.bytes && hex(&own.clone().finalize()) == stored.sha256 {
            return Ok((own, InHome::Whole));
        }
        let path = self.target.dir.join(&stored.file);
        let unread = |error: io::Error| CopyError::Failed(format!("read {}: {error}", path.display()));
        let copy = files::open(&path, Access::Read).map_err(unread)?;
        if state.bytes < stored.bytes {
            let begin = self.digest((&copy, &path), state.bytes)?;
            let is_same = begin.clone().finalize() == own.finalize();
            return Ok((begin, if is_same { InHome::Shorter } else { InHome::Differs }));
        }
        let whole = self.digest((&copy, &path), stored.bytes)?;
        match hex(&whole.clone().finalize()) == stored.sha256 {
            true => Ok((whole, InHome::Differs)),
            false => Err(CopyError::Failed(format!(
                "{} and {} differ, and the copy is damaged, too",
                original.display(),
                path.display()
            ))),
        }
    }

    /// The digest of the first bytes of a file.
    fn digest(&self, from: (&File, &Path), bytes: u64) -> Result<Sha256, CopyError> {
        let mut digest = Sha256::new();
        self.each_chunk(from, (0, bytes), |chunk| {
            digest.update(chunk);
            Ok(())
        })?;
        Ok(digest)
    }

    /// Names a file of the home that has lost something. One that became shorter is named once: a restore of an earlier state does it, too.
    fn note(&mut self, original: &Path, before: InHome, now: InHome) {
        let (session, original) = (self.session, original.display());
        match now {
            InHome::Differs => self.faults.push(format!(
                "session {session}: {original} differs from its copy, and was not redacted; the copy keeps its lines"
            )),
            InHome::Shorter if before != InHome::Shorter => self
                .faults
                .push(format!("session {session}: {original} is shorter than its copy; the copy keeps its lines")),
            InHome::Whole | InHome::Shorter | InHome::Gone => {}
        }
    }

    /// Appends a stretch of a file to its copy.
    fn append(
        &mut self,
        original: (&File, &Path),
        path: &Path,
        (from, end): (u64, u64),
        digest: &mut Sha256,
    ) -> Result<(), CopyError> {
        let failed = |error: &io::Error| CopyError::of("write", path, error);
        let access = if from == 0 { Access::Replace } else { Access::Write };
        let mut copy = files::open(path, access).map_err(|error| failed(&error))?;
        // An interrupted run may have written more.
        copy.set_len(from).and_then(|()| copy.seek(SeekFrom::Start(from))).map_err(|error| failed(&error))?;
        let (mut unsynced, mut written) = (0, 0);
        let copied = self.each_chunk(original, (from, end), |chunk| {
            digest.update(chunk);
            copy.write_all(chunk).map_err(|error| failed(&error))?;
            unsynced += chunk.len() as u64;
            written += chunk.len() as u64;
            if unsynced >= SYNC_BYTES {
                sync_data(&copy).map_err(|error| failed(&error))?;
                unsynced = 0;
            }
            Ok(())
        });
        self.written += written;
        let done = copied.and_then(|()| sync_data(&copy).map_err(|error| failed(&error)));
        if done.is_err() {
            // A full disk needs the room for the manifest.
            let _ = if from == 0 { std::fs::remove_file(path) } else { copy.set_len(from) };
        }
        done
    }

    fn each_chunk(
        &self,
        (file, path): (&File, &Path),
        (from, end): (u64, u64),
        mut take: impl FnMut(&[u8]) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = from;
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let read = file.read_at(&mut chunk[..wanted], at).map_err(|error| CopyError::of(READ, path, &error))?;
            if read == 0 {
                return Err(CopyError::Failed(format!("read {}: it became shorter meanwhile", path.display())));
            }
            take(&chunk[..read])?;
            at += read as u64;
            if !(self.goes_on)(read as u64) {
                return Err(CopyError::Interrupted);
            }
        }
        Ok(())
    }

    /// Whether the copy has all bytes of a file that its manifest names.
    pub(super) fn has(&self, stored: &StoredFile) -> bool {
        let path = self.target.dir.join(&stored.file);
        let found = path.symlink_metadata();
        let is_there = found.is_ok_and(|found| found.is_file() && found.len() >= stored.bytes);
        let is_whole = || digest_of(&path, Some(stored.bytes)).is_ok_and(|(_, sha256)| sha256 == stored.sha256);
        is_there && (self.trust == Trust::Length || is_whole())
    }

    /// Copies a database of the session as it is now; `None` without a database.
    pub(super) fn database(&mut self, found: &Found, name: &str) -> Result<Option<StoredFile>, CopyError> {
        let original = found.dir.join(name);
        let relative = format!("sessions/{}/{name}.{}", self.session, self.run);
        let path = self.target.dir.join(&relative);
        let made = self.target.make_below(self.session, None);
        made.map_err(|error| CopyError::of("write", &path, &error))?;
        for number in 1..=TRIES_MAX {
            let before = settled_state(&original);
            // Without a log that is in use the file alone is complete, and nothing is created beside it.
            let is_at_rest = before.is_some() && number < TRIES_MAX && !found.is_still_live();
            let life = if is_at_rest { Life::Stopped } else { Life::Live };
            let copied = snapshot(&original, life, &path, self.goes_on);
            if copied.is_err() {
                // A full disk needs the room for the manifest.
                let _ = std::fs::remove_file(&path);
            }
            match copied {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(SnapshotError::Interrupted) => return Err(CopyError::Interrupted),
                Err(_) if life == Life::Stopped && settled_state(&original) != before => continue,
                // A process that ends empties the log of its database, and a reader cannot do so in its place.
                Err(SnapshotError::Database(_)) if number < TRIES_MAX => continue,
                Err(_) if original.symlink_metadata().is_err() => return Err(CopyError::Gone),
                Err(error) => return Err(CopyError::Failed(error.to_string())),
            }
            // A relay that has started may have written to the file while it was copied.
            if life == Life::Live || (settled_state(&original) == before && !found.is_still_live()) {
                return self.whole(&path, relative).map(Some);
            }
        }
        Err(CopyError::Failed(format!("copy {}: its session keeps starting", original.display())))
    }

    /// The entry of a file that was just written.
    fn whole(&mut self, path: &Path, relative: String) -> Result<StoredFile, CopyError> {
        let (bytes, sha256) = digest_of(path, None).map_err(|error| CopyError::of("check", path, &error))?;
        self.written += bytes;
        Ok(StoredFile { file: relative, bytes, sha256 })
    }
}

/// The length and the digest of a file, or of its first bytes.
pub(in crate::keeping) fn digest_of(path: &Path, bytes_max: Option<u64>) -> io::Result<(u64, String)> {
    let file = files::open(path, Access::Read)?;
    let (mut digest, mut chunk, mut at) = (Sha256::new(), vec![0; CHUNK_BYTES], 0);
    loop {
        let left = bytes_max.map_or(u64::MAX, |bytes_max| bytes_max - at);
        let wanted = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let read = file.read_at(&mut chunk[..wanted], at)?;
        if read == 0 {
            return Ok((at, hex(&digest.finalize())));
        }
        digest.update(&chunk[..read]);
        at += read as u64;
    }
}

/// The state of a database and its log; `None` if it is not there or may change without notice.
pub(super) fn settled_state(path: &Path) -> Option<DatabaseState> {
    let now = SystemTime::now();
    let file = FileState::written(&path.symlink_metadata().ok()?, now)?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = match PathBuf::from(log).symlink_metadata() {
        // A reader creates an empty log. It means the same as a missing one.
        Ok(log) if log.len() == 0 => None,
        Ok(log) => Some(FileState::written(&log, now)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) => return None,
    };
    Some(DatabaseState { file, log })
}

/// The end of the last whole line between two offsets.
fn end_of_lines(file: &File, from: u64, to: u64) -> io::Result<u64> {
    let mut end = to;
    while end > from {
        let begin = end.saturating_sub(TAIL_BYTES).max(from);
        let mut tail = vec![0; (end - begin) as usize];
        file.read_exact_at(&mut tail, begin)?;
        if let Some(newline) = memchr::memrchr(b'\n', &tail) {
            return Ok(begin + newline as u64 + 1);
        }
        end = begin;
    }
    Ok(from)
}

/// Whether a line ends before an offset.
fn is_line_end(file: &File, at: u64) -> io::Result<bool> {
    let mut last = [b'\n'];
    file.read_exact_at(&mut last, at.saturating_sub(1))?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::super::folder::Start;
    use super::*;
    use crate::files::Folder;

    struct Lab {
        _dir: tempfile::TempDir,
        original: PathBuf,
        target: Target,
        digests: Digests,
        run: u64,
        /// Those of the last copy.
        faults: Vec<String>,
        trust: Trust,
    }

    impl Lab {
        fn new() -> Lab {
            let dir = tempfile::tempdir().expect("a folder");
            let home = dir.path().join("home");
            Folder::make_home(&home).expect("a folder");
            let (target, _) = Target::make(&dir.path().join("copy"), &home, Start::Any).expect("it can be made");
            Lab {
                original: home.join("0a1b2c3d4e5f-001.jsonl"),
                target,
                _dir: dir,
                digests: Digests::default(),
                run: 0,
                faults: Vec::new(),
                trust: Trust::Length,
            }
        }

        fn put(&self, text: &str) {
            std::fs::write(&self.original, text).expect("it is ours");
        }

        fn copy(&mut self, before: Option<&LinesCopy>) -> Result<(LinesCopy, u64), CopyError> {
            self.run += 1;
            let Lab { target, digests, run, original, faults, trust, .. } = self;
            let none = Vec::new();
            let (run, goes_on, trust) = (*run, &|_| true, *trust);
            let mut copying = Copying { target, session: "s", run, digests, goes_on, written: 0, faults: none, trust };
            let copied = copying.lines(original, "journal", before)?;
            *faults = copying.faults;
            Ok((copied, copying.written))
        }

        fn text(&self, copy: &LinesCopy) -> String {
            let bytes = std::fs::read(self.target.dir.join(&copy.stored.file)).expect("it is there");
            let counted = &bytes[..copy.stored.bytes as usize];
            assert_eq!(hex(&Sha256::digest(counted)), copy.stored.sha256);
            String::from_utf8(counted.to_vec()).expect("text")
        }
    }

    #[test]
    fn only_added_lines_are_copied() {
        for forgets in [false, true] {
            let mut lab = Lab::new();
            lab.put("one\ntwo\nthr");
            let (first, written) = lab.copy(None).expect("it can be copied");
            assert_eq!((&*lab.text(&first), written), ("one\ntwo\n", 8));
            lab.put("one\ntwo\nthree\nfour\n");
            // A run that was killed has left more.
            let path = lab.target.dir.join(&first.stored.file);
            std::fs::write(&path, "one\ntwo\nthree\nfour\nfive and more").expect("it is ours");
            if forgets {
                lab.digests = Digests::default();
            }
            let (second, written) = lab.copy(Some(&first)).expect("it can be copied");
            assert_eq!((&*lab.text(&second), written), ("one\ntwo\nthree\nfour\n", 11));
            assert_eq!(first.stored.file, second.stored.file);
            // The earlier manifest still holds.
            assert_eq!(lab.text(&first), "one\ntwo\n");
            let (third, written) = lab.copy(Some(&second)).expect("it can be copied");
            assert_eq!((third.stored, written), (second.stored, 0));
        }
    }

    #[test]
    fn redacted_lines_are_copied_anew() {
        let mut lab = Lab::new();
        lab.put("one\nsecret\n");
        let (first, _) = lab.copy(None).expect("it can be copied");
        lab.put("one\n******\n");
        let (second, _) = lab.copy(None).expect("it can be copied");
        assert_ne!(first.stored.file, second.stored.file);
        assert_eq!((lab.text(&first), lab.text(&second)), ("one\nsecret\n".to_owned(), "one\n******\n".to_owned()));
    }

    /// The copy keeps lines that the home has lost, and the fault names the file. A process that goes on with a file does not read it again.
    #[test]
    fn damage_of_the_home_takes_nothing_from_the_copy() {
        use InHome::{Differs, Shorter, Whole};
        const LONG: &str = "one\ntwo\nthree\n";
        for (now, copied, expect) in [
            // A changed byte, at the same length, with more lines, and with fewer.
            ("one\ntwx\nthree\n", LONG, Differs),
            ("one\ntwx\nthree\nfour\n", "one\ntwo\nthree\nfour\n", Differs),
            ("one\ntwx\n", LONG, Differs),
            // Its lines are others: nothing is added in the middle of one.
            ("another file altogether\nfour\n", LONG, Differs),
            // The end is lost, at the end of a line, in one, and from the beginning.
            ("one\n", LONG, Shorter),
            ("one\nt", LONG, Shorter),
            ("", LONG, Shorter),
            (LONG, LONG, Whole),
        ] {
            let mut lab = Lab::new();
            lab.put(LONG);
            let (first, _) = lab.copy(None).expect("it can be copied");
            lab.digests = Digests::default();
            lab.put(now);
            let (second, _) = lab.copy(Some(&first)).expect("it can be copied");
            assert_eq!((&*lab.text(&second), second.in_home), (copied, expect), "{now:?}");
            assert_eq!(lab.text(&first), LONG);
            let name = lab.original.display().to_string();
            let is_named = lab.faults.iter().any(|fault| fault.contains(&name));
            assert_eq!(is_named, expect != Whole, "{:?}", lab.faults);
            // Named again: a home that differs is damaged, and one that is shorter may have been restored.
            let again = LinesCopy { original: lab.original.metadata().ok().map(|file| FileState::of(&file)), ..second };
            let (third, written) = lab.copy(Some(&again)).expect("it can be copied");
            assert_eq!((third.in_home, written, lab.faults.len()), (expect, 0, usize::from(expect == Differs)));
            // The home has all of it again.
            lab.put(&format!("{copied}five\n"));
            lab.digests = Digests::default();
            let (last, _) = lab.copy(Some(&third)).expect("it can be copied");
            assert_eq!((last.in_home, lab.faults.len(), lab.text(&last)), (Whole, 0, format!("{copied}five\n")));
        }
    }

    /// A copy that lacks bytes is made anew; one with other bytes only if it is read.
    #[test]
    fn damaged_copy_is_made_anew() {
        type Harm = fn(&Path);
        let harms: [(Harm, Trust, bool); 4] = [
            (|path| std::fs::remove_file(path).expect("it is there"), Trust::Length, true),
            (|path| std::fs::write(path, "one\n").expect("it is ours"), Trust::Length, true),
            (|path| std::fs::write(path, "one\ntwx\n").expect("it is ours"), Trust::Length, false),
            (|path| std::fs::write(path, "one\ntwx\n").expect("it is ours"), Trust::Content, true),
        ];
        for (harm, trust, heals) in harms {
            let mut lab = Lab { trust, ..Lab::new() };
            lab.put("one\ntwo\n");
            let (first, _) = lab.copy(None).expect("it can be copied");
            harm(&lab.target.dir.join(&first.stored.file));
            let (second, _) = lab.copy(Some(&first)).expect("it can be copied");
            assert_eq!(second.stored.file != first.stored.file, heals, "{trust:?}");
            assert!(!heals || lab.text(&second) == "one\ntwo\n");
        }
        let mut lab = Lab::new();
        lab.put("one\n");
        let (first, _) = lab.copy(None).expect("it can be copied");
        // Neither is whole.
        lab.put("onx\ntwo\n");
        std::fs::write(lab.target.dir.join(&first.stored.file), "oxe\n").expect("it is ours");
        lab.digests = Digests::default();
        let both = lab.copy(Some(&first));
        assert!(matches!(&both, Err(CopyError::Failed(why)) if why.contains("damaged, too")), "{both:?}");
        std::fs::remove_file(&lab.original).expect("it is there");
        assert!(matches!(lab.copy(Some(&first)), Err(CopyError::Gone)));
    }

    #[test]
    fn last_whole_line_is_found_behind_a_long_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("file");
        let check = |text: String, from: u64, expect: u64| {
            std::fs::write(&path, &text).expect("it is ours");
            let file = files::open(&path, Access::Read).expect("it is there");
            assert_eq!(end_of_lines(&file, from, text.len() as u64).expect("it can be read"), expect);
        };
        let long = "x".repeat(200_000);
        check(String::new(), 0, 0);
        check("a".to_owned(), 0, 0);
        check("a\n".to_owned(), 0, 2);
        check(format!("a\n{long}"), 0, 2);
        check(format!("a\n{long}"), 2, 2);
        check(format!("a\n{long}\n"), 0, 200_003);
    }
}
