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

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::query::{History, HistoryError};
use super::search;
use crate::files::{Access, Folder};
use crate::history::{EntryRow, EntryRows};

pub const TRANSCRIPTS_DIR: &str = "transcripts";

/// The migration that gives each entry a place in its thread.
pub(super) const PLACES: &str = "
    ALTER TABLE codex_transcript_entries ADD COLUMN place_us INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX codex_transcript_entries_in_order ON codex_transcript_entries (thread_id, place_us, id)";

/// The migration that places the entries of before by their times, and keeps the order of their arrival.
pub(super) const PLACES_OF_BEFORE: &str = "
    UPDATE codex_transcript_entries SET place_us = placed.place_us FROM (
        SELECT id, MAX(at_us) OVER (PARTITION BY thread_id ORDER BY id) AS place_us FROM (
            SELECT id, thread_id, 1000000 * CAST(strftime('%s', ts) AS INTEGER) + 1000 * CAST(substr(ts, 21, 3) AS INTEGER) AS at_us
            FROM (
                SELECT id, thread_id, CASE WHEN json_valid(entry) THEN json_extract(entry, '$.ts') END AS ts
                FROM codex_transcript_entries WHERE place_us = 0
            )
        )
    ) AS placed WHERE placed.id = codex_transcript_entries.id AND placed.place_us > 0";

/// Longest part of a file's name taken from a thread's name, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Most files whose line counts are cached; lines of others are counted again.
const COUNTED_MAX: usize = 256;

/// Most bytes that are read or appended at a time.
const CHUNK_BYTES: usize = 256 << 10;

const INSERT_ENTRY: &str = "
    INSERT OR IGNORE INTO codex_transcript_entries (session_id, thread_id, identity, entry, place_us)
    VALUES (?1, ?2, ?3, ?4, ?5)";

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
struct TranscriptLines {
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
            let lines = TranscriptLines::of(&file).map_err(failed)?;
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

impl TranscriptLines {
    fn of(file: &File) -> io::Result<TranscriptLines> {
        let mut lines = TranscriptLines::default();
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

/// Stores entries that the history lacks, and their words.
pub(super) fn insert(transaction: &Transaction<'_>, session_id: &str, entries: &EntryRows) -> rusqlite::Result<()> {
    let mut stored = Vec::new();
    for EntryRow { thread_id, identity, place_us, json } in entries.iter() {
        let row = params![session_id, thread_id, identity, json, place_us as i64];
        if transaction.prepare_cached(INSERT_ENTRY)?.execute(row)? > 0 {
            stored.push((transaction.last_insert_rowid(), json));
        }
    }
    search::add(transaction, stored.into_iter())
}

/// Most journal gaps that are returned.
const GAPS_MAX: i64 = 100;

pub(super) const LINES_BEFORE: &str = "
    SELECT id, thread_id, entry FROM codex_transcript_entries WHERE id < ?1 ORDER BY id DESC LIMIT ?2";

pub(super) const LINES_AFTER: &str = "
    SELECT id, thread_id, entry FROM codex_transcript_entries WHERE id > ?1 AND id < ?3 ORDER BY id LIMIT ?2";

pub(super) const LAST_LINE: &str = "SELECT MAX(id) FROM codex_transcript_entries";

pub(super) const LINE_FROM: &str = "
    SELECT id, json_extract(entry, '$.ts') FROM codex_transcript_entries WHERE id >= ?1 ORDER BY id LIMIT 1";

pub(super) const AFTER_SEQ: &str = "SELECT after_seq FROM codex_event_epochs WHERE cause <> 'start_lost'";

pub(super) const FIRST_EVENT: &str = "SELECT MIN(seq) FROM codex_events";

/// Each gap, with the time of the last event before it.
pub(super) const JOURNAL_GAPS: &str = "
    SELECT lines, reason, (SELECT timestamp FROM codex_events WHERE seq <= after_seq ORDER BY seq DESC LIMIT 1)
    FROM codex_event_gaps ORDER BY id DESC LIMIT ?1";

/// Among the first entries only, because lists are read often.
pub(super) const FIRST_WORDS: &str = "
    SELECT json_extract(entry, '$.text') FROM (
        SELECT entry FROM codex_transcript_entries WHERE thread_id = ?1 ORDER BY place_us, id LIMIT 20
    ) WHERE json_valid(entry) AND json_extract(entry, '$.role') = 'user' LIMIT 1";

/// Longest beginning of a thread that lists show, in characters.
const FIRST_WORDS_CHARS_MAX: usize = 200;

/// A line of a transcript, numbered across all threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptLine {
    pub id: u64,
    pub thread_id: String,
    /// The line, as JSON.
    pub entry: String,
}

/// A stretch that the journal lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalGap {
    /// The number of the last transcript line before it; 0 if there is none.
    pub after_id: u64,
    /// The number of lost lines; 0 if unknown.
    pub lines: u64,
    pub reason: String,
    /// The time of the last event before it, RFC 3339.
    pub at: String,
}

/// The direction to read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Towards older lines.
    Before,
    /// Towards newer lines.
    After,
}

impl History {
    /// The number of the first transcript line with a time of `at` (RFC 3339) or later, if any. Lines are assumed to be in
    /// order of time; a line that arrived late stands where it arrived.
    pub fn first_line_from(&self, at: &str, opened: u64) -> Result<Option<u64>, HistoryError> {
        self.read(opened, |connection| first_line_from(connection, at).map(|found| found.map(i64::unsigned_abs)))
    }

    /// The beginning of the first message of its user in each of `threads`. A history of an older version knows none.
    pub fn first_words(&self, threads: &[String], opened: u64) -> Result<Vec<Option<String>>, HistoryError> {
        self.read(opened, |connection| {
            let mut select = connection.prepare_cached(FIRST_WORDS)?;
            let words = |thread_id: &String| {
                let words: Option<String> = select.query_row([thread_id], |row| row.get(0)).optional()?.flatten();
                Ok(words.map(|words| words.chars().take(FIRST_WORDS_CHARS_MAX).collect()))
            };
            threads.iter().map(words).collect()
        })
    }

    /// At most `limit` transcript lines on one side of the number `id`, the nearest to it, all below the number `end`;
    /// oldest first.
    pub fn transcript_lines(
        &self,
        side: Side,
        id: u64,
        end: u64,
        limit: u64,
        opened: u64,
    ) -> Result<Vec<TranscriptLine>, HistoryError> {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.read(opened, |connection| {
            let transcript_lines = |row: &Row<'_>| {
                let id: i64 = row.get(0)?;
                Ok(TranscriptLine { id: id.unsigned_abs(), thread_id: row.get(1)?, entry: row.get(2)? })
            };
            let (id, end, limit) = (whole(id), whole(end), whole(limit));
            match side {
                Side::Before => {
                    let mut select = connection.prepare_cached(LINES_BEFORE)?;
                    let mut found: Vec<TranscriptLine> =
                        select.query_map(params![id.min(end), limit], transcript_lines)?.collect::<Result<_, _>>()?;
                    found.reverse();
                    Ok(found)
                }
                Side::After => {
                    let mut select = connection.prepare_cached(LINES_AFTER)?;
                    select.query_map(params![id, limit, end], transcript_lines)?.collect()
                }
            }
        })
    }

    /// The stretches that the journal lacks, oldest first; only the most recent if there are many. Stretches whose time is
    /// no longer known are left out.
    pub fn journal_gaps(&self, opened: u64) -> Result<Vec<JournalGap>, HistoryError> {
        self.read(opened, |connection| {
            let journal_gaps = |row: &Row<'_>| {
                Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, String>(1)?, row.get::<_, Option<String>>(2)?))
            };
            let mut select = connection.prepare_cached(JOURNAL_GAPS)?;
            let rows = select.query_map([GAPS_MAX], journal_gaps)?.collect::<rusqlite::Result<Vec<_>>>()?;
            let mut found = Vec::new();
            for (lines, reason, at) in rows.into_iter().rev() {
                let Some(at) = at else { continue };
                // Lines of that same time also precede the gap.
                let behind = first_line_from(connection, &format!("{at}~"))?;
                let after_id = match behind {
                    Some(behind) => behind.saturating_sub(1),
                    None => last_said(connection)?.unwrap_or_default(),
                };
                found.push(JournalGap { after_id: after_id.unsigned_abs(), lines, reason, at });
            }
            Ok(found)
        })
    }

    /// The position of the first stored event in its epoch; 1 if every event is stored.
    pub fn first_seq(&self, opened: u64) -> Result<Option<u64>, HistoryError> {
        self.read(opened, |connection| {
            let first: Option<i64> = connection.prepare_cached(FIRST_EVENT)?.query_row([], |row| row.get(0))?;
            // A history that another version wrote has no epoch.
            let after: Option<i64> = connection.query_row(AFTER_SEQ, [], |row| row.get(0)).optional().unwrap_or(None);
            Ok(first.map(|first| first.saturating_sub(after.unwrap_or(0)).unsigned_abs()))
        })
    }
}

fn last_said(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(LAST_LINE)?.query_row([], |row| row.get(0))
}

/// Binary search by time; each step reads one row.
fn first_line_from(connection: &Connection, at: &str) -> rusqlite::Result<Option<i64>> {
    let Some(last) = last_said(connection)? else { return Ok(None) };
    let mut select = connection.prepare_cached(LINE_FROM)?;
    // Lines below `low` are earlier, lines from `high` on are not.
    let (mut low, mut high) = (0, last.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        let looked = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?));
        let found = select.query_row([middle], looked).optional()?;
        match found.filter(|(id, _)| *id < high) {
            Some((id, said_at)) if said_at.as_deref().is_none_or(|said_at| said_at < at) => low = id.saturating_add(1),
            Some(_) | None => high = middle,
        }
    }
    Ok((low <= last).then_some(low))
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
    fn entries_of_before_are_placed_by_their_times() {
        let connection = database();
        let entry = |at: &str, text: &str| format!(r#"{{"ts":"1970-01-01T00:00:{at}Z","text":"{text}"}}"#);
        let arrived = [entry("05.250", "a"), entry("02.000", "b"), "odd".to_owned(), entry("07.001", "c")];
        add(&connection, "t", &arrived.each_ref().map(String::as_str));
        add(&connection, "u", &["{}", &entry("01.000", "d")]);
        [PLACES, PLACES_OF_BEFORE].iter().for_each(|sql| connection.execute_batch(sql).expect("our own SQL"));
        let late = "INSERT INTO codex_transcript_entries (thread_id, entry, place_us) VALUES ('t', 'late', 6000000)";
        connection.execute(late, []).expect("a row");
        let places = |thread: &str| {
            let select =
                "SELECT entry, place_us FROM codex_transcript_entries WHERE thread_id = ?1 ORDER BY place_us, id";
            let mut select = connection.prepare(select).expect("our own SQL");
            let row = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
            select.query_map([thread], row).expect("rows").collect::<rusqlite::Result<Vec<_>>>().expect("rows")
        };
        let [a, b, odd, c] = arrived;
        let late = ("late".to_owned(), 6_000_000);
        assert_eq!(places("t"), [(a, 5_250_000), (b, 5_250_000), (odd, 5_250_000), late, (c, 7_001_000)]);
        assert_eq!(places("u"), [("{}".to_owned(), 0), (entry("01.000", "d"), 1_000_000)]);
        // A second time it changes nothing.
        let before = places("t");
        connection.execute_batch(PLACES_OF_BEFORE).expect("our own SQL");
        assert_eq!(places("t"), before);
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
