//! Compares the files of a session with what they should be: with their checksums, and with what each kind of file says of itself. It
//! reads every byte and changes nothing.
//!
//! *Journal.* Each record can be read, times never decrease, and each header names its own segment and the end of the one before.
//! *Databases.* SQLite's own check, their logs, and the JSON in their rows.
//! *Requests.* The ledger has each request that the journal says was stored.
//!
//! Without a checksum, another letter in a text cannot be noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::engine::RequestStatus;
use crate::files::{self, Access};
use crate::index::HISTORY_FILE;
use crate::journal::{Header, Position, Record, SegmentName};
use crate::store::{
    Compared, DatabaseError, DatabaseForm, Found, Holder, LEDGER_FILE, LOCK_FILE, Life, RunMode, SUMS_FILE, Sums,
    WitnessFile, WitnessRead, open_for,
};

/// The longest wait for another process's lock.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Limit of the findings of SQLite for one file.
const FINDINGS_MAX: u32 = 3;

/// Columns with JSON, by their table.
const JSON_COLUMNS: [(&str, &str); 9] = [
    ("codex_pending_requests", "request_payload_json"),
    ("codex_pending_requests", "resolved_payload_json"),
    ("codex_pending_requests", "changes_json"),
    ("codex_pending_requests", "item_json"),
    ("codex_request_answers", "payload_json"),
    ("codex_context_commands", "command_json"),
    ("codex_events", "payload_preview"),
    ("codex_tool_events", "raw_payload_json"),
    ("codex_turn_events", "raw_payload_json"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredKind {
    Journal,
    Ledger,
    History,
    /// Any other file.
    Other,
}

/// A file that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    pub kind: StoredKind,
    pub path: PathBuf,
    pub problem: String,
}

/// The result of [`check_files`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilesReport {
    pub faults: Vec<FileFault>,
    /// How many files were read.
    pub files: usize,
    /// How many of them have no checksum that counts.
    pub unsummed: usize,
}

impl FilesReport {
    fn add(&mut self, kind: StoredKind, path: &Path, problem: impl Into<String>) {
        self.faults.push(FileFault { kind, path: path.to_owned(), problem: problem.into() });
    }
}

/// The size of the files that [`check_files`] reads, in bytes.
#[must_use]
pub fn stored_bytes(session: &Found) -> u64 {
    let size = |path: &PathBuf| path.symlink_metadata().map_or(0, |file| file.len());
    [segments(session), others(session), databases(session).map(|(_, path)| path).to_vec()]
        .iter()
        .flatten()
        .map(size)
        .sum()
}

fn segments(session: &Found) -> Vec<PathBuf> {
    let dir = session.journal_dir();
    SegmentName::list(&dir).unwrap_or_default().iter().map(|name| dir.join(name.to_string())).collect()
}

fn databases(session: &Found) -> [(StoredKind, PathBuf); 2] {
    [(StoredKind::Ledger, session.dir.join(LEDGER_FILE)), (StoredKind::History, session.dir.join(HISTORY_FILE))]
}

/// The other files of a session with content that is read again: JSON, or a document of it on each line.
fn others(session: &Found) -> Vec<PathBuf> {
    let transcripts = std::fs::read_dir(session.dir.join("transcripts")).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = transcripts.map(|entry| entry.path()).collect();
    files.sort();
    files.extend([LOCK_FILE, "server.json"].map(|name| session.dir.join(name)));
    files.retain(|path| path.symlink_metadata().is_ok_and(|file| file.is_file()));
    files
}

/// Checks the files of a session. `advance` gets the bytes that were read since its last call.
#[must_use]
pub fn check_files(session: &Found, advance: &dyn Fn(u64)) -> FilesReport {
    let mut report = FilesReport::default();
    let sums = Sums::read(&session.dir).unwrap_or_else(|error| {
        report.add(StoredKind::Other, &session.dir.join(SUMS_FILE), error.to_string());
        Sums::default()
    });
    if sums.damaged > 0 {
        let problem = format!("{} of its lines are damaged, so their files have no checksum", sums.damaged);
        report.add(StoredKind::Other, &session.dir.join(SUMS_FILE), problem);
    }
    let compare = |kind: StoredKind, path: &Path, report: &mut FilesReport, advance: &dyn Fn(u64)| -> bool {
        report.files += 1;
        let name = path.strip_prefix(&session.dir).unwrap_or(path).to_string_lossy().into_owned();
        match sums.compare(&session.dir, &name, advance) {
            Ok(Compared::Same) => {}
            Ok(Compared::Unknown) => report.unsummed += 1,
            Ok(Compared::Differs) => report.add(kind, path, "its content differs from its checksum"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => report.add(kind, path, error.to_string()),
        }
        report.faults.iter().all(|fault| fault.path != path)
    };
    let mut told = Told::default();
    let mut before: Option<Segment> = None;
    let ends = known_ends(session);
    for path in segments(session) {
        let is_same = compare(StoredKind::Journal, &path, &mut report, &|_| {});
        let segment = read_segment(&path, &mut told, advance);
        // The checksum says it all.
        if is_same && let Some(problem) = segment.problem() {
            report.add(StoredKind::Journal, &path, problem);
        }
        if let Some((path, problem)) = before.and_then(|before| before.end_by(&segment)) {
            report.add(StoredKind::Journal, &path, problem);
        }
        if let Some(end) =
            ends.iter().find(|end| segment.name.as_ref() == Some(&end.segment) && end.offset > segment.bytes)
        {
            let problem = format!("it has {} bytes, and {} were read earlier", segment.bytes, end.offset);
            report.add(StoredKind::Journal, &path, problem);
        }
        before = Some(segment);
    }
    for (kind, path) in databases(session) {
        if path.symlink_metadata().is_err() {
            continue;
        }
        let bytes = path.symlink_metadata().map_or(0, |file| file.len());
        let is_same = compare(kind, &path, &mut report, &|_| {});
        let life = if session.is_still_live() { Life::Live } else { Life::Stopped };
        let found = check_database(&path, life, if kind == StoredKind::Ledger { Some(&told) } else { None });
        report.faults.extend(found.into_iter().filter(|_| is_same).map(|problem| FileFault {
            kind,
            path: path.clone(),
            problem,
        }));
        advance(bytes);
    }
    for path in others(session) {
        if compare(StoredKind::Other, &path, &mut report, &|_| {})
            && let Some(problem) = check_lines(&path)
        {
            report.add(StoredKind::Other, &path, problem);
        }
        advance(path.symlink_metadata().map_or(0, |file| file.len()));
    }
    report
}

/// Positions that the journal had reached, as the witness outside of the folder says.
fn known_ends(session: &Found) -> Vec<Position> {
    match WitnessFile::of_session(&session.dir).map(|file| file.read()) {
        Some(WitnessRead::Original(witness)) => witness.read_to.into_iter().chain(witness.known_ends).collect(),
        Some(WitnessRead::Copied(_) | WitnessRead::Nothing) | None => Vec::new(),
    }
}

/// Requests in the journal.
#[derive(Debug, Default)]
struct Told {
    /// Requests that the ledger has stored.
    stored: BTreeSet<String>,
    /// Those that were answered.
    resolved: BTreeSet<String>,
}

#[derive(Deserialize)]
struct RequestNote {
    request_id: String,
    #[serde(default)]
    status: Option<RequestStatus>,
}

impl Told {
    /// Requests and answers that such a ledger lacks, although the journal says that they were stored.
    fn lost(&self, rows: &BTreeMap<String, String>) -> Vec<String> {
        let open = [RequestStatus::Pending, RequestStatus::Orphaned].map(RequestStatus::name);
        let lost: Vec<&String> = self.stored.iter().filter(|id| !rows.contains_key(*id)).collect();
        let is_open = |id: &&String| rows.get(*id).is_some_and(|status| open.contains(&status.as_str()));
        let unanswered: Vec<&String> = self.resolved.iter().filter(is_open).collect();
        let mut found = Vec::new();
        if let Some(first) = lost.first() {
            let requests = if lost.len() == 1 { "request" } else { "requests" };
            found.push(format!("it lacks {} {requests} that it had stored, the first is {first}", lost.len()));
        }
        if let Some(first) = unanswered.first() {
            let requests = if unanswered.len() == 1 { "request" } else { "requests" };
            found.push(format!("it lacks the answers of {} {requests}, the first is {first}", unanswered.len()));
        }
        found
    }

    fn take(&mut self, event: &str, data: Option<&RawValue>) {
        let note = || serde_json::from_str::<RequestNote>(data?.get()).ok();
        match event {
            "request_committed" => self.stored.extend(note().map(|note| note.request_id)),
            "request_resolved" => {
                let Some(RequestNote { request_id, status }) = note() else { return };
                match status == Some(RequestStatus::Resolved) {
                    true => drop(self.resolved.insert(request_id)),
                    false => drop(self.resolved.remove(&request_id)),
                }
            }
            _ => {}
        }
    }
}

/// Facts about a segment.
#[derive(Debug)]
struct Segment {
    path: PathBuf,
    name: Option<SegmentName>,
    bytes: u64,
    header: Option<Header>,
    /// How many of its lines are not valid records, and where the first one begins.
    unreadable: Option<(u64, u64)>,
    /// The place of a time that goes back.
    earlier_at: Option<u64>,
    error: Option<String>,
}

fn read_segment(path: &Path, told: &mut Told, advance: &dyn Fn(u64)) -> Segment {
    let name = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
    let (path, header, unreadable, earlier_at, error) = (path.to_owned(), None, None, None, None);
    let mut segment = Segment { path, name, bytes: 0, header, unreadable, earlier_at, error };
    if let Err(error) = segment.read(told, advance) {
        segment.error = Some(error.to_string());
    }
    segment
}

impl Segment {
    fn read(&mut self, told: &mut Told, advance: &dyn Fn(u64)) -> io::Result<()> {
        let file = files::open(&self.path, Access::Read)?;
        self.bytes = file.metadata()?.len();
        let (mut lines, mut line, mut at, mut last_us) = (BufReader::with_capacity(1 << 20, file), Vec::new(), 0, 0);
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line)? as u64;
            // A kill can cut off the last record.
            let Some(record) = line.strip_suffix(b"\n") else { return Ok(()) };
            match Record::parse(record) {
                Ok(record) => {
                    let at_us = self.take(record, at, told);
                    if at_us < last_us {
                        self.earlier_at.get_or_insert(at);
                    }
                    last_us = at_us;
                }
                Err(_) => {
                    let (count, first) = self.unreadable.unwrap_or((0, at));
                    self.unreadable = Some((count + 1, first));
                }
            }
            at += read;
            advance(read);
        }
    }

    /// Takes a record that begins at byte `at`; returns its time.
    fn take(&mut self, record: Record<'_>, at: u64, told: &mut Told) -> u64 {
        match record {
            Record::Header(header) => {
                let at_us = header.at;
                if at == 0 {
                    self.header = Some(header);
                }
                at_us
            }
            Record::Event { at_us, event, data } => {
                told.take(&event, data);
                at_us
            }
            Record::Line { at_us, .. } | Record::Gap { at_us, .. } => at_us,
        }
    }

    fn problem(&self) -> Option<String> {
        if let Some(error) = &self.error {
            return Some(error.clone());
        }
        if let Some((count, first)) = self.unreadable {
            return Some(format!("{count} of its records cannot be read, the first at byte {first}"));
        }
        let is_own = |header: &Header| {
            self.name
                .as_ref()
                .is_some_and(|name| header.generation == name.generation.as_str() && header.segment == name.number)
        };
        match &self.header {
            None => return Some("it has no header".to_owned()),
            Some(header) if !is_own(header) => {
                return Some(format!("its header is that of {}-{:03}", header.generation, header.segment));
            }
            Some(_) => {}
        }
        self.earlier_at.map(|at| format!("the record at byte {at} is earlier than the one before it"))
    }

    /// The problem if the header of the next segment names another end of this one.
    fn end_by(self, next: &Segment) -> Option<(PathBuf, String)> {
        let previous = next.header.as_ref()?.previous.as_ref()?;
        let name = self.name.as_ref()?;
        if previous.generation != name.generation.as_str() || previous.segment != name.number {
            let problem = format!("the segment before it, {}-{:03}, is missing", previous.generation, previous.segment);
            return Some((next.path.clone(), problem));
        }
        let problem = format!("it has {} bytes, and had {} when the next one began", self.bytes, previous.bytes);
        (self.bytes != previous.bytes).then_some((self.path, problem))
    }
}

/// The problems of a database. `told` is what it has to contain, if it is a ledger.
fn check_database(path: &Path, life: Life, told: Option<&Told>) -> Vec<String> {
    let form = DatabaseForm { migrations: &[], synchronous: "FULL", busy_wait_max: BUSY_WAIT_MAX };
    let connection = match open_for(path, form, life, RunMode::DryRun) {
        Ok(Some(connection)) => connection,
        // A relay that ended at once leaves an empty file.
        Ok(None) => return told.map(|told| told.lost(&BTreeMap::new())).unwrap_or_default(),
        Err(DatabaseError::Damaged { problem, .. }) => return vec![problem.to_owned()],
        Err(DatabaseError::Log { problem, .. }) => return vec![format!("its log is damaged: {problem}")],
        Err(error) => return vec![error.to_string()],
    };
    let found = findings(&connection).and_then(|mut found| {
        found.extend(odd_json(&connection)?);
        if let Some(told) = told {
            found.extend(lost_requests(&connection, told)?);
        }
        Ok(found)
    });
    found.unwrap_or_else(|error| vec![error.to_string()])
}

/// What SQLite finds.
fn findings(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut check = connection.prepare(&format!("PRAGMA integrity_check({FINDINGS_MAX})"))?;
    let found: Vec<String> = check.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(found.into_iter().filter(|finding| finding != "ok").collect())
}

/// Columns with JSON in which a row has something else.
fn odd_json(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    for (table, column) in JSON_COLUMNS {
        if !connection.column_exists(None, table, column)? {
            continue;
        }
        let count = format!("SELECT count(*) FROM {table} WHERE {column} IS NOT NULL AND NOT json_valid({column})");
        let count: i64 = connection.query_row(&count, [], |row| row.get(0))?;
        if count > 0 {
            found.push(format!("{count} rows of {table} have no valid JSON in {column}"));
        }
    }
    Ok(found)
}

/// The requests and answers that the ledger lacks.
fn lost_requests(connection: &Connection, told: &Told) -> rusqlite::Result<Vec<String>> {
    if !connection.table_exists(None, "codex_pending_requests")? {
        return Ok(told.lost(&BTreeMap::new()));
    }
    let mut select = connection.prepare("SELECT request_id, status FROM codex_pending_requests")?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    let rows = select.query_map([], row)?.collect::<rusqlite::Result<BTreeMap<String, String>>>()?;
    Ok(told.lost(&rows))
}

/// The problem of a file of JSON documents, one on each line.
fn check_lines(path: &Path) -> Option<String> {
    let lines = match files::open(path, Access::Read) {
        Ok(file) => BufReader::new(file).split(b'\n'),
        Err(error) => return Some(error.to_string()),
    };
    let is_lock = path.ends_with(LOCK_FILE);
    if is_lock && path.symlink_metadata().is_ok_and(|file| file.len() == 0) {
        return Some("it is empty".to_owned());
    }
    for (number, line) in (1..).zip(lines) {
        let Ok(line) = line else { return Some("it cannot be read".to_owned()) };
        let is_valid = match is_lock {
            // A longer line may have been there before.
            true if number > 1 => return None,
            true => serde_json::from_slice::<Holder>(&line).is_ok(),
            false => line.is_empty() || serde_json::from_slice::<IgnoredAny>(&line).is_ok(),
        };
        if !is_valid {
            return Some(format!("line {number} cannot be read"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::journal::Generation;
    use crate::store::{OfflineLedger, add_sum};

    /// A session with two runs, and a ledger without requests.
    struct Lab {
        home: tempfile::TempDir,
    }

    impl Lab {
        fn new() -> Lab {
            let lab = Lab { home: tempfile::tempdir().expect("BUG: a temporary folder") };
            fs::create_dir_all(lab.session().join("journal")).expect("a folder");
            let lock =
                r#"{"pid":1,"started_at":"2026-01-01T00:00:00.000Z","cwd":"/","codex_home":"/","server":["codex"]}"#;
            fs::write(lab.session().join(LOCK_FILE), format!("{lock}\n")).expect("write");
            let first = lab.segment(1, None);
            let previous =
                format!(r#","previous":{{"generation":"000000010000","segment":1,"bytes":{first},"ended":false}}"#);
            lab.segment(2, Some(previous));
            OfflineLedger::open(&lab.session()).expect("it can be made").close();
            lab
        }

        fn session(&self) -> PathBuf {
            self.home.path().join("sessions/s")
        }

        fn path(&self, generation: u32) -> PathBuf {
            let name = SegmentName { generation: Generation::after(None, generation, 0), number: 1 };
            self.session().join("journal").join(name.to_string())
        }

        /// Writes a segment; returns its length.
        fn segment(&self, generation: u32, previous: Option<String>) -> u64 {
            let header = format!(
                r#"{{"journal":1,"session":"s","generation":"{}","segment":1,"at":1,"argv":[],"cwd":"/","codex":{{"path":"c"}},"shim":"0"{}}}"#,
                Generation::after(None, generation, 0),
                previous.unwrap_or_default()
            );
            let line = |at: u64| format!(r#"{{"at":{at},"from":"server","line":{{"method":"m{at}"}}}}"#);
            let text = [header, line(2), line(3)].map(|line| line + "\n").concat();
            fs::write(self.path(generation), &text).expect("write");
            text.len() as u64
        }

        fn change(&self, path: &Path, old: &str, new: &str) {
            let text = fs::read_to_string(path).expect("it is there");
            assert!(text.contains(old), "{text}");
            fs::write(path, text.replacen(old, new, 1)).expect("write");
        }

        fn found(&self) -> Vec<String> {
            let all = Found::all(self.home.path()).expect("it can be read");
            let report = check_files(&all[0], &|_| {});
            let name = |fault: FileFault| {
                let name = fault.path.file_name().expect("a name").to_string_lossy().into_owned();
                format!("{name}: {}", fault.problem)
            };
            report.faults.into_iter().map(name).collect()
        }
    }

    #[track_caller]
    fn check(damage: impl FnOnce(&Lab), expect: &[&str]) {
        let lab = Lab::new();
        assert_eq!(lab.found(), [""; 0]);
        damage(&lab);
        assert_eq!(lab.found(), expect);
    }

    const FIRST: &str = "000000010000-001.jsonl";
    const SECOND: &str = "000000020000-001.jsonl";

    #[test]
    fn damaged_journal_is_named() {
        let told = |name: &str, problem: &str| format!("{name}: {problem}");
        check(
            |lab| lab.change(&lab.path(1), "\"from\"", "\"fron\""),
            &[&told(FIRST, "1 of its records cannot be read, the first at byte 127")],
        );
        check(
            |lab| lab.change(&lab.path(2), "000000020000", "000000030000"),
            &[&told(SECOND, "its header is that of 000000030000-001")],
        );
        check(
            |lab| lab.change(&lab.path(2), "\"at\":2,", "\"at\":9,"),
            &[&told(SECOND, "the record at byte 254 is earlier than the one before it")],
        );
        check(|lab| fs::write(lab.path(2), "").expect("write"), &[&told(SECOND, "it has no header")]);
        check(|lab| fs::remove_file(lab.path(1)).expect("it is there"), &[]);
        let longer = |lab: &Lab| {
            let text = fs::read_to_string(lab.path(1)).expect("it is there");
            let (rest, last) = text.trim_end().rsplit_once('\n').expect("lines");
            fs::write(lab.path(1), format!("{rest}\n{last}\n{last}\n")).expect("write");
        };
        check(longer, &[&told(FIRST, "it has 271 bytes, and had 223 when the next one began")]);
    }

    #[test]
    fn request_that_the_ledger_lacks_is_named() {
        let note = |event: &str, more: &str| {
            format!(r#"{{"at":4,"from":"shim","event":"{event}","data":{{"request_id":"g-0"{more}}}}}"#) + "\n"
        };
        let append = |lab: &Lab, text: &str| {
            let before = fs::read_to_string(lab.path(2)).expect("it is there");
            fs::write(lab.path(2), before + text).expect("write");
        };
        check(
            |lab| append(lab, &note("request_committed", "")),
            &["ledger.db: it lacks 1 request that it had stored, the first is g-0"],
        );
        let told = Told { stored: BTreeSet::new(), resolved: ["a".to_owned(), "b".to_owned()].into() };
        let rows = [("a", "orphaned"), ("b", "resolved")].map(|(id, status)| (id.to_owned(), status.to_owned()));
        assert_eq!(told.lost(&rows.into()), ["it lacks the answers of 1 request, the first is a"]);
    }

    #[test]
    fn file_that_differs_from_its_checksum_is_named() {
        let lab = Lab::new();
        for file in ["ledger.db", "lock"] {
            add_sum(&lab.session(), file, u64::MAX);
            assert_eq!(lab.found(), [""; 0]);
            let path = lab.session().join(file);
            let (mut bytes, written) =
                (fs::read(&path).expect("it is there"), path.metadata().and_then(|file| file.modified()));
            // Nothing reads this place.
            let at = bytes.len() - 1;
            bytes[at] ^= 1;
            fs::write(&path, &bytes).expect("write");
            fs::File::open(&path).and_then(|file| file.set_modified(written?)).expect("it is ours");
            assert_eq!(lab.found(), [format!("{file}: its content differs from its checksum")]);
            bytes[at] ^= 1;
            fs::write(&path, &bytes).expect("write");
        }
    }

    #[test]
    fn other_damaged_files_are_named() {
        check(|lab| fs::write(lab.session().join("lock"), "").expect("write"), &["lock: it is empty"]);
        check(|lab| fs::write(lab.session().join("lock"), "{\n").expect("write"), &["lock: line 1 cannot be read"]);
        check(
            |lab| fs::write(lab.session().join("sums"), "{}\n").expect("write"),
            &["sums: 1 of its lines are damaged, so their files have no checksum"],
        );
        check(
            |lab| {
                let ledger = Connection::open(lab.session().join("ledger.db")).expect("it opens");
                let row = "INSERT INTO codex_context_commands (command_json) VALUES ('{')";
                ledger.execute_batch(row).expect("our own SQL");
            },
            &["ledger.db: 1 rows of codex_context_commands have no valid JSON in command_json"],
        );
    }
}
