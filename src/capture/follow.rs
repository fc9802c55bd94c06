//! Follows a file that another process appends to, truncates, or replaces.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use crate::files;

/// Size of one read, in bytes.
const READ_BYTES: usize = 256 << 10;

/// How much of the last read text is remembered, in bytes: a rewritten file of the same or greater length differs there.
const REMEMBERED_BYTES_MAX: usize = 256;

/// Longest line, in bytes; longer ones are skipped.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Follows a file from its beginning.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    file: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    file: File,
    /// Device and inode, so a renamed file is recognized.
    identity: (u64, u64),
    offset: u64,
    /// The start of an incomplete line.
    incomplete: Vec<u8>,
    is_too_long: bool,
    /// The bytes right before the offset.
    before: Vec<u8>,
}

impl Follower {
    pub(super) fn new(path: PathBuf) -> Follower {
        Follower { path, file: None }
    }

    /// Passes each newly completed line to `emit`. A missing file is not an error.
    pub(super) fn poll(&mut self, mut emit: impl FnMut(&[u8])) -> io::Result<()> {
        let now = match std::fs::metadata(&self.path) {
            Ok(now) if now.is_file() => Some(now),
            Ok(_) => return Err(io::Error::other("not a regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(opened) = &mut self.file {
            // Also reads the last lines of a file that was renamed.
            opened.read(&mut emit)?;
            if now.as_ref().is_some_and(|now| (now.dev(), now.ino()) == opened.identity) {
                return Ok(());
            }
        }
        if now.is_none() {
            // The old file may still grow until it is replaced.
            return Ok(());
        }
        let file = files::open_named(&self.path)?;
        let about = file.metadata()?;
        let identity = (about.dev(), about.ino());
        let opened =
            Opened { file, identity, offset: 0, incomplete: Vec::new(), is_too_long: false, before: Vec::new() };
        let opened = self.file.insert(opened);
        opened.read(&mut emit)
    }
}

impl Opened {
    fn read(&mut self, emit: &mut impl FnMut(&[u8])) -> io::Result<()> {
        if self.file.metadata()?.len() < self.offset || !self.is_unchanged()? {
            // Truncated or rewritten: all of its content is new.
            (self.offset, self.is_too_long) = (0, false);
            self.incomplete.clear();
            self.before.clear();
        }
        self.file.seek(SeekFrom::Start(self.offset))?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = self.file.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            self.offset += read as u64;
            self.remember(&buffer[..read]);
            self.take(&buffer[..read], emit);
        }
    }

    /// Whether the last read bytes are still at their place.
    fn is_unchanged(&self) -> io::Result<bool> {
        let mut there = vec![0; self.before.len()];
        match self.file.read_exact_at(&mut there, self.offset - self.before.len() as u64) {
            Ok(()) => Ok(there == self.before),
            // Truncated just now.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remember(&mut self, read: &[u8]) {
        self.before.extend_from_slice(&read[read.len().saturating_sub(REMEMBERED_BYTES_MAX)..]);
        let too_many = self.before.len().saturating_sub(REMEMBERED_BYTES_MAX);
        self.before.drain(..too_many);
    }

    fn take(&mut self, read: &[u8], emit: &mut impl FnMut(&[u8])) {
        let mut rest = read;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.incomplete.extend_from_slice(&rest[..end]);
            if !std::mem::take(&mut self.is_too_long) {
                emit(&self.incomplete);
            }
            self.incomplete.clear();
            rest = &rest[end + 1..];
        }
        self.incomplete.extend_from_slice(rest);
        if self.incomplete.len() > LINE_BYTES_MAX {
            self.is_too_long = true;
            self.incomplete.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn polled(follower: &mut Follower) -> Vec<String> {
        let mut lines = Vec::new();
        follower.poll(|line| lines.push(String::from_utf8_lossy(line).into_owned())).expect("it can be read");
        lines
    }

    #[test]
    fn lines_are_passed_once_complete() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("events");
        let mut follower = Follower::new(path.clone());
        assert_eq!(polled(&mut follower), [""; 0]);
        let mut file = File::create(&path).expect("a file");
        file.write_all(b"one\ntw").expect("it is written");
        assert_eq!(polled(&mut follower), ["one"]);
        assert_eq!(polled(&mut follower), [""; 0]);
        file.write_all(b"o\nthree\n").expect("it is written");
        assert_eq!(polled(&mut follower), ["two", "three"]);
    }

    #[test]
    fn truncated_or_replaced_file_is_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("events");
        std::fs::write(&path, "first line\nhalf").expect("a file");
        let mut follower = Follower::new(path.clone());
        assert_eq!(polled(&mut follower), ["first line"]);
        std::fs::write(&path, "cut\n").expect("a file");
        assert_eq!(polled(&mut follower), ["cut"]);
        let mut file = File::options().append(true).open(&path).expect("it opens");
        std::fs::rename(&path, dir.path().join("events.1")).expect("it moves");
        file.write_all(b"last of the old\n").expect("it is written");
        assert_eq!(polled(&mut follower), ["last of the old"]);
        std::fs::write(&path, "of the new\n").expect("a file");
        assert_eq!(polled(&mut follower), ["of the new"]);
    }

    #[test]
    fn longer_rewritten_file_is_read_from_its_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("events");
        std::fs::write(&path, "one\nhalf").expect("a file");
        let mut follower = Follower::new(path.clone());
        assert_eq!(polled(&mut follower), ["one"]);
        std::fs::write(&path, "another one\nand more\n").expect("a file");
        assert_eq!(polled(&mut follower), ["another one", "and more"]);
        // However long the last read was, only its end is remembered.
        let long = "x".repeat(3 * REMEMBERED_BYTES_MAX);
        let mut file = File::options().append(true).open(&path).expect("it opens");
        file.write_all(format!("{long}\n").as_bytes()).expect("it is written");
        assert_eq!(polled(&mut follower), [long.as_str()]);
        file.write_all(b"last\n").expect("it is written");
        assert_eq!(polled(&mut follower), ["last"]);
    }
}
