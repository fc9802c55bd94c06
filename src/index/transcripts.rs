//! Transcripts as files, `transcripts/<thread>.jsonl` in the session's folder: the committed entries of a thread, one per
//! line.
//!
//! The file itself is the only record of its progress: it has as many rows as complete lines. A torn last line is removed,
//! and missing lines are appended when the thread changes next, and for all threads when a history is opened. If the lines
//! are not the first rows (a history that was rebuilt from a shorter journal, two threads whose names map to one file), the
//! rows that are not yet lines are appended. So a crash at any instant leaves neither duplicates nor gaps.
//!
//! A fault affects only the files, and the next change repairs it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::files::{Access, Folder};

pub(crate) const TRANSCRIPTS_DIR: &str = "transcripts";

/// Longest part of a file's name taken from a thread's name, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Most files whose line counts are cached; lines of others are counted again.
const COUNTED_MAX: usize = 256;

/// Most bytes that are read or appended at a time.
const CHUNK_BYTES: usize = 256 << 10;

const THREADS: &str = "SELECT DISTINCT thread_id FROM codex_transcript_entries";

const ENTRIES_FROM: &str =
    "SELECT entry FROM codex_transcript_entries WHERE thread_id = ?1 ORDER BY id LIMIT -1 OFFSET ?2";

pub(super) const ENTRY_AT: &str =
    "SELECT entry FROM codex_transcript_entries WHERE thread_id = ?1 ORDER BY id LIMIT 1 OFFSET ?2";

/// Whether transcripts are also written as files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptFiles {
    Kept,
    None,
}

/// The transcript files of a session.
#[derive(Debug)]
pub(super) struct Transcripts {
    dir: PathBuf,
    /// Length in bytes and number of lines of each file after our last write, by thread.
    counted: HashMap<String, (u64, u64)>,
}

/// Why a file is incomplete.
#[derive(Debug)]
pub(super) enum TranscriptError {
    File(PathBuf, io::Error),
    Sqlite(rusqlite::Error),
}

impl std::fmt::Display for TranscriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TranscriptError::File(path, error) => write!(f, "write {}: {error}", path.display()),
            TranscriptError::Sqlite(error) => write!(f, "read transcript entries: {error}"),
        }
    }
}

impl From<rusqlite::Error> for TranscriptError {
    fn from(error: rusqlite::Error) -> TranscriptError {
        TranscriptError::Sqlite(error)
    }
}

/// The content of a file so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    count: u64,
    last: Vec<u8>,
    /// Bytes of complete lines.
    bytes: u64,
}

impl Transcripts {
    pub(super) fn new(session_dir: &Path) -> Transcripts {
        Transcripts { dir: session_dir.join(TRANSCRIPTS_DIR), counted: HashMap::new() }
    }

    /// Completes all files. Returns the first fault; the others are completed all the same.
    pub(super) fn complete_all(&mut self, connection: &Connection) -> Result<(), TranscriptError> {
        let threads: Vec<String> = {
            let mut select = connection.prepare_cached(THREADS)?;
            select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?
        };
        self.complete(connection, threads.iter().map(String::as_str))
    }

    /// Completes the files of these threads.
    pub(super) fn complete<'a>(
        &mut self,
        connection: &Connection,
        threads: impl Iterator<Item = &'a str>,
    ) -> Result<(), TranscriptError> {
        let mut done = HashSet::new();
        let mut first_fault = Ok(());
        for thread_id in threads.filter(|thread_id| done.insert(*thread_id)) {
            let completed = self.complete_one(connection, thread_id);
            if let Err(fault) = completed {
                self.counted.remove(thread_id);
                first_fault = first_fault.and(Err(fault));
            }
        }
        first_fault
    }

    fn complete_one(&mut self, connection: &Connection, thread_id: &str) -> Result<(), TranscriptError> {
        let path = self.dir.join(file_name(thread_id));
        let failed = |error| TranscriptError::File(path.clone(), error);
        let folder = Folder::make(&self.dir).map_err(failed)?;
        let mut file = folder.open(path.file_name().unwrap_or_default(), Access::Append).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let known = self.counted.get(thread_id).filter(|(bytes, _)| *bytes == length).map(|(_, count)| *count);
        let (mut bytes, mut count) = (length, known.unwrap_or(0));
        let mut there: Option<HashSet<Vec<u8>>> = None;
        if known.is_none() {
            let lines = Lines::of(&file).map_err(failed)?;
            if lines.bytes < length {
                file.set_len(lines.bytes).map_err(failed)?;
            }
            (bytes, count) = (lines.bytes, lines.count);
            if count > 0 {
                let last: Option<String> = connection
                    .prepare_cached(ENTRY_AT)?
                    .query_row(params![thread_id, count as i64 - 1], |row| row.get(0))
                    .optional()?;
                if last.is_none_or(|last| last.as_bytes() != lines.last) {
                    there = Some(all_lines(&mut file).map_err(failed)?);
                }
            }
        }
        let is_plain = there.is_none();
        let from = if is_plain { count as i64 } else { 0 };
        let mut select = connection.prepare_cached(ENTRIES_FROM)?;
        let mut rows = select.query(params![thread_id, from])?;
        let (mut chunk, mut more) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let entry: String = row.get(0)?;
            if there.as_ref().is_some_and(|there| there.contains(entry.as_bytes())) {
                continue;
            }
            chunk.extend_from_slice(entry.as_bytes());
            chunk.push(b'\n');
            more += 1;
            if chunk.len() >= CHUNK_BYTES {
                append(&file, &mut bytes, &mut chunk).map_err(failed)?;
            }
        }
        append(&file, &mut bytes, &mut chunk).map_err(failed)?;
        if self.counted.len() >= COUNTED_MAX {
            self.counted.clear();
        }
        if is_plain {
            self.counted.insert(thread_id.to_owned(), (bytes, count + more));
        }
        Ok(())
    }
}

/// Appends whole lines; truncates a partial write.
fn append(mut file: &File, bytes: &mut u64, chunk: &mut Vec<u8>) -> io::Result<()> {
    let written = io::Write::write_all(&mut file, chunk);
    match written {
        Ok(()) => *bytes += chunk.len() as u64,
        Err(_) => file.set_len(*bytes)?,
    }
    chunk.clear();
    written
}

impl Lines {
    fn of(file: &File) -> io::Result<Lines> {
        let mut lines = Lines::default();
        let (mut line, mut chunk, mut at) = (Vec::new(), vec![0; CHUNK_BYTES], 0);
        loop {
            let read = match file.read_at(&mut chunk, at) {
                Ok(0) => return Ok(lines),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut from = 0;
            for newline in memchr::memchr_iter(b'\n', &chunk[..read]) {
                line.extend_from_slice(&chunk[from..newline]);
                std::mem::swap(&mut lines.last, &mut line);
                line.clear();
                lines.count += 1;
                lines.bytes = at + newline as u64 + 1;
                from = newline + 1;
            }
            line.extend_from_slice(&chunk[from..read]);
            at += read as u64;
        }
    }
}

fn all_lines(file: &mut File) -> io::Result<HashSet<Vec<u8>>> {
    let mut text = Vec::new();
    io::Seek::rewind(file)?;
    file.read_to_end(&mut text)?;
    Ok(text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
}

/// The name of a thread's file. Any character other than a letter, digit, `.`, `_` or `-` becomes `_`.
fn file_name(thread_id: &str) -> String {
    let safe = |char: char| if char.is_ascii_alphanumeric() || "._-".contains(char) { char } else { '_' };
    let mut name: String = thread_id.chars().take(NAME_BYTES_MAX).map(safe).collect();
    if name.bytes().all(|byte| byte == b'.') {
        name = "_".repeat(name.len().max(1));
    }
    name + ".jsonl"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Connection {
        let connection = Connection::open_in_memory().expect("a database");
        let table = "CREATE TABLE codex_transcript_entries (id INTEGER PRIMARY KEY, thread_id TEXT, entry TEXT)";
        connection.execute_batch(table).expect("a table");
        connection
    }

    fn add(connection: &Connection, thread: &str, entries: &[&str]) {
        for entry in entries {
            let insert = "INSERT INTO codex_transcript_entries (thread_id, entry) VALUES (?1, ?2)";
            connection.execute(insert, [thread, entry]).expect("a row");
        }
    }

    #[test]
    fn names_are_safe() {
        let check = |thread: &str, expect: &str| assert_eq!(file_name(thread), expect);
        check("0192-aB_c.d", "0192-aB_c.d.jsonl");
        check("../x/\0 é", ".._x____.jsonl");
        check(".", "_.jsonl");
        check("..", "__.jsonl");
        check("", "_.jsonl");
        check(&"x".repeat(999), &format!("{}.jsonl", "x".repeat(200)));
    }

    #[test]
    fn transcripts_are_completed_after_a_crash() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("transcripts/t.jsonl");
        let connection = database();
        add(&connection, "t", &["1", "2"]);
        add(&connection, "u", &["x"]);
        let full = "1\n2\n3\n4\n";
        let mut transcripts = Transcripts::new(dir.path());
        transcripts.complete_all(&connection).expect("it works");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "1\n2\n");
        assert!(dir.path().join("transcripts/u.jsonl").exists());
        add(&connection, "t", &["3", "4"]);
        for cut in 0..=full.len() {
            for is_new in [true, false] {
                if is_new {
                    transcripts = Transcripts::new(dir.path());
                }
                std::fs::write(&path, &full[..cut]).expect("write");
                transcripts.complete(&connection, ["t", "t"].into_iter()).expect("it works");
                assert_eq!(std::fs::read_to_string(&path).expect("it is there"), full, "cut at {cut}");
            }
        }
        transcripts.complete(&connection, ["t"].into_iter()).expect("it works");
        std::fs::write(&path, "1\n2\n3").expect("write");
        transcripts.complete(&connection, ["t"].into_iter()).expect("it works");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), full);
    }

    #[test]
    fn odd_transcript_lines_are_neither_doubled_nor_missed() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let path = dir.path().join("transcripts/a_b.jsonl");
        let mut transcripts = Transcripts::new(dir.path());
        let connection = database();
        add(&connection, "a/b", &["1", "2"]);
        add(&connection, "a_b", &["x"]);
        transcripts.complete_all(&connection).expect("it works");
        add(&connection, "a/b", &["3"]);
        add(&connection, "a_b", &["y"]);
        transcripts.complete_all(&connection).expect("it works");
        let text = std::fs::read_to_string(&path).expect("it is there");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["1", "2", "3", "x", "y"]);
        // A history that was rebuilt from a shorter journal.
        let connection = database();
        add(&connection, "a/b", &["3", "4"]);
        transcripts.complete_all(&connection).expect("it works");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), text + "4\n");
    }

    #[test]
    fn transcript_link_is_not_followed() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let connection = database();
        add(&connection, "t", &["1"]);
        std::os::unix::fs::symlink(dir.path(), dir.path().join("transcripts")).expect("a link");
        assert!(Transcripts::new(dir.path()).complete_all(&connection).is_err());
        assert!(!dir.path().join("t.jsonl").exists());
    }
}
