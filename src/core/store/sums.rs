//! Checksums of a session's files: the file `sums` in its folder, with a line of JSON for each.
//!
//! A line is written while nobody writes to its file: for a segment of the journal once it is complete, for a database once
//! it is closed. It counts as long as the file has the time of modification that the line names. Whoever writes to a file gives
//! it another time, and a failing disk does not. So nothing has to be taken back before a file is changed, and a file that an
//! older version has written has no checksum that counts.
//!
//! *Locking.* Lines are only appended, each with one write, and the last one of a file counts. A file with too many lines is
//! replaced as a whole; a line that another thread adds at that instant is lost, and then its file has no checksum.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::wal;
use crate::files::{self, Access, Folder};

pub const SUMS_FILE: &str = "sums";

/// A file that was written less than this ago may be written again without another time, because clocks of file systems tick.
const TICK: Duration = Duration::from_millis(50);

/// Size of one read, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Length at which the file is written anew, in bytes.
const SUMS_BYTES_MAX: u64 = 256 << 10;

/// Longest database that gets a checksum, in bytes: a relay that ends, and a tool, have little time.
pub const SUMMED_DATABASE_BYTES_MAX: u64 = 8 << 20;

/// Digits of the check of a line.
const CHECK_DIGITS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sum {
    /// Its path in the folder of the session.
    file: String,
    bytes: u64,
    /// The time of modification of the file, in nanoseconds since the Unix epoch.
    written_ns: u64,
    sha256: String,
    /// Of the other members.
    check: String,
}

impl Sum {
    fn checked(self) -> Sum {
        let Sum { file, bytes, written_ns, sha256, .. } = &self;
        let mut check = hex(&Sha256::digest(format!("{sha256} {bytes} {written_ns} {file}")));
        check.truncate(CHECK_DIGITS);
        Sum { check, ..self }
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The time of modification, in nanoseconds since the Unix epoch.
fn written_ns(metadata: &Metadata) -> io::Result<u64> {
    let since = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since.as_nanos()).unwrap_or_default())
}

/// The SHA-256 of a file; `advance` gets the bytes of each read.
fn sha256_of(file: &File, advance: &dyn Fn(u64)) -> io::Result<String> {
    let (mut digest, mut chunk, mut at) = (Sha256::new(), vec![0; CHUNK_BYTES], 0);
    loop {
        let read = file.read_at(&mut chunk, at)?;
        if read == 0 {
            return Ok(hex(&digest.finalize()));
        }
        digest.update(&chunk[..read]);
        advance(read as u64);
        at += read as u64;
    }
}

/// Adds the checksum of a file in the folder of a session, unless it is longer than `bytes_max`. Nobody else may be writing to it.
/// Without a checksum, damage is noticed less often, so a failure is only logged.
pub fn add_sum(session_dir: &Path, file: &str, bytes_max: u64) {
    if let Err(error) = add(session_dir, file, bytes_max) {
        tracing::debug!(%error, file, "add a checksum");
    }
}

/// Adds the checksum of a database that was closed, if it was written to since its last one, and has no log.
pub fn renew_sum(session_dir: &Path, database: &str) {
    let log = std::fs::symlink_metadata(wal::of(&session_dir.join(database)));
    if log.map_or(true, |log| log.len() == 0)
        && !Sums::read(session_dir).is_ok_and(|sums| sums.knows(session_dir, database))
    {
        add_sum(session_dir, database, SUMMED_DATABASE_BYTES_MAX);
    }
}

fn add(session_dir: &Path, name: &str, bytes_max: u64) -> io::Result<()> {
    let file = files::open(&session_dir.join(name), Access::Read)?;
    let metadata = file.metadata()?;
    if metadata.len() > bytes_max {
        return Ok(());
    }
    if SystemTime::now().duration_since(metadata.modified()?).is_ok_and(|age| age < TICK) {
        // The clock of the system is finer than that of the file system, so the next write gives the file another time.
        file.set_modified(SystemTime::now())?;
    }
    let before = (file.metadata()?.len(), written_ns(&file.metadata()?)?);
    let sha256 = sha256_of(&file, &|_| {})?;
    if before != (file.metadata()?.len(), written_ns(&file.metadata()?)?) {
        return Ok(());
    }
    let (bytes, written_ns) = before;
    let sum = Sum { file: name.to_owned(), bytes, written_ns, sha256, check: String::new() }.checked();
    let mut line = serde_json::to_vec(&sum)?;
    line.push(b'\n');
    files::open(&session_dir.join(SUMS_FILE), Access::Append)?.write_all(&line)
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// The file has no checksum, or was written since.
    Unknown,
    Same,
    Differs,
}

/// The checksums of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    of: BTreeMap<String, Sum>,
    /// Lines that are not as they were written.
    pub damaged: usize,
}

impl Sums {
    /// Reads the checksums of a session. It has none if the file is missing.
    pub fn read(session_dir: &Path) -> io::Result<Sums> {
        let bytes = match files::read(&session_dir.join(SUMS_FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Sums::default()),
            Err(error) => return Err(error),
        };
        let mut sums = Sums::default();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Sum>(line) {
                Ok(sum) if sum.clone().checked() == sum => drop(sums.of.insert(sum.file.clone(), sum)),
                Ok(_) | Err(_) => sums.damaged += 1,
            }
        }
        Ok(sums)
    }

    /// Whether a file has a checksum that counts.
    #[must_use]
    pub fn knows(&self, session_dir: &Path, file: &str) -> bool {
        let metadata = std::fs::symlink_metadata(session_dir.join(file));
        let written = metadata.and_then(|metadata| written_ns(&metadata)).ok();
        self.of.get(file).is_some_and(|sum| written == Some(sum.written_ns))
    }

    /// Compares a file with its checksum; `advance` gets the bytes of each read.
    pub fn compare(&self, session_dir: &Path, name: &str, advance: &dyn Fn(u64)) -> io::Result<Compared> {
        let Some(sum) = self.of.get(name) else { return Ok(Compared::Unknown) };
        let file = files::open(&session_dir.join(name), Access::Read)?;
        let is_written_since = || Ok::<_, io::Error>(written_ns(&file.metadata()?)? != sum.written_ns);
        if is_written_since()? {
            return Ok(Compared::Unknown);
        }
        let is_same = file.metadata()?.len() == sum.bytes && sha256_of(&file, advance)? == sum.sha256;
        Ok(match (is_same, is_written_since()?) {
            (true, _) => Compared::Same,
            (false, true) => Compared::Unknown,
            (false, false) => Compared::Differs,
        })
    }

    /// Removes the lines that do not count from a file that has become long.
    pub fn compact(session_dir: &Path) {
        let is_long =
            std::fs::symlink_metadata(session_dir.join(SUMS_FILE)).is_ok_and(|file| file.len() > SUMS_BYTES_MAX);
        if !is_long {
            return;
        }
        let compacted = || -> io::Result<()> {
            let sums = Sums::read(session_dir)?;
            let mut text = Vec::new();
            for sum in sums.of.values().filter(|sum| sums.knows(session_dir, &sum.file)) {
                serde_json::to_writer(&mut text, sum)?;
                text.push(b'\n');
            }
            Folder::at(session_dir)?.put(SUMS_FILE, &text)
        };
        if let Err(error) = compacted() {
            tracing::debug!(%error, "remove old checksums");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Lab(tempfile::TempDir);

    impl Lab {
        fn new() -> Lab {
            let lab = Lab(tempfile::tempdir().expect("BUG: a temporary folder"));
            fs::write(lab.path("a"), "as it was").expect("write");
            lab
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.0.path().join(name)
        }

        fn compare(&self) -> Compared {
            let sums = Sums::read(self.0.path()).expect("it can be read");
            sums.compare(self.0.path(), "a", &|_| {}).expect("it can be read")
        }

        /// Changes the file without anybody writing to it.
        fn rot(&self, text: &str) {
            let written = fs::metadata(self.path("a")).and_then(|file| file.modified()).expect("a time");
            fs::write(self.path("a"), text).expect("write");
            File::open(self.path("a")).and_then(|file| file.set_modified(written)).expect("it is ours");
        }
    }

    #[test]
    fn damage_differs_and_a_write_does_not() {
        let lab = Lab::new();
        assert_eq!(lab.compare(), Compared::Unknown);
        add_sum(lab.0.path(), "a", 9);
        assert_eq!(lab.compare(), Compared::Same);
        for damaged in ["as it waz", "as it", "as it was as it was"] {
            lab.rot(damaged);
            assert_eq!(lab.compare(), Compared::Differs, "{damaged}");
        }
        // A write within the tick of the checksum has another time.
        fs::write(lab.path("a"), "as it is!").expect("write");
        assert_eq!(lab.compare(), Compared::Unknown);
        add_sum(lab.0.path(), "a", 9);
        assert_eq!(lab.compare(), Compared::Same);
    }

    #[test]
    fn long_file_gets_no_checksum() {
        let lab = Lab::new();
        add_sum(lab.0.path(), "a", 8);
        assert_eq!(lab.compare(), Compared::Unknown);
    }

    #[test]
    fn damaged_line_does_not_count() {
        let lab = Lab::new();
        add_sum(lab.0.path(), "a", 9);
        let text = fs::read_to_string(lab.path(SUMS_FILE)).expect("it is there");
        for (old, new) in [("\"a\"", "\"b\""), (":9,", ":8,"), ("sha256", "sha255"), ("}", "")] {
            fs::write(lab.path(SUMS_FILE), text.replacen(old, new, 1)).expect("write");
            let sums = Sums::read(lab.0.path()).expect("it can be read");
            assert_eq!((sums.damaged, sums.of.len()), (1, 0), "{new}");
        }
    }

    #[test]
    fn lines_that_do_not_count_go() {
        let lab = Lab::new();
        fs::write(lab.path("b"), "another").expect("write");
        (0..2).for_each(|_| add_sum(lab.0.path(), "a", 9));
        add_sum(lab.0.path(), "b", 9);
        fs::remove_file(lab.path("b")).expect("it is there");
        let mut text = fs::read_to_string(lab.path(SUMS_FILE)).expect("it is there");
        text.push_str(&"no line\n".repeat(SUMS_BYTES_MAX as usize / 8));
        fs::write(lab.path(SUMS_FILE), text).expect("write");
        Sums::compact(lab.0.path());
        let text = fs::read_to_string(lab.path(SUMS_FILE)).expect("it is there");
        assert_eq!((text.lines().count(), lab.compare()), (1, Compared::Same));
    }
}
