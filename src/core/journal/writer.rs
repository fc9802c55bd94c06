//! Appends batches to the current segment, each with one write.
//!
//! Each read yields one [`Batch`]. [`Writer::commit`] puts it into the page cache, where it survives the death of the
//! process, before the caller forwards any of it.
//!
//! *Failure.* After a failed append the segment is truncated to its last complete record, so a reader never sees a record
//! that is removed later. Missing lines are counted, the next commit retries, and the first one that succeeds begins with a
//! record of the gap. If a segment can be neither appended to nor truncated, it is left as it is, and the next one begins.
//!
//! *Locking.* None: one thread owns the writer. The background thread learns of new segments through a bounded channel, and
//! of growth through a counter.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::background::{Background, Bounds, IndexedTo};
use super::record::{self, Header, Written};
use super::segment::{Generation, NoGeneration, Previous, SegmentName};
use super::shared::SharedLines;
use crate::engine::{Form, Note, Now, OwnLine};
use crate::files::{self, Access};
use crate::invariants::holds;
use crate::wire::{Conn, Line, LineEnd, Side};

/// Size at which a segment is closed and the next one begins, in bytes. A single longer batch makes a longer segment.
pub(super) const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Lines of at least this length, in bytes, are written from the read buffer; shorter ones are copied into the batch, which
/// is cheaper than another slice for the kernel.
const SLICED_LINE_BYTES_MIN: usize = 16 << 10;

/// Most slices of one `writev` (`IOV_MAX` on Linux and macOS).
const SLICES_MAX: usize = 1_024;

/// The pause after a segment could not be created.
const REOPEN_AFTER: Duration = Duration::from_millis(100);

/// Why something could not be recorded.
#[derive(Debug)]
pub struct JournalError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.action, self.path.display(), self.source)
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Records that are committed together.
#[derive(Debug)]
pub struct Batch<'a> {
    at_us: u64,
    /// [`record::start`] of this time.
    start: record::Short,
    own: Vec<u8>,
    parts: Vec<BatchPart<'a>>,
    /// The start in `own` of the last part.
    own_from: usize,
    records: Vec<RecordEnd>,
    bytes: u64,
    conn: Conn,
    shared: Option<Sharing>,
}

/// The lines that a batch shares with earlier ones, and those that later ones may share with it.
#[derive(Debug)]
struct Sharing {
    lines: SharedLines,
    /// The connection, the offset within the batch and the line of records in full.
    added: Vec<(Conn, u64, Box<[u8]>)>,
    /// A record of the batch refers to the open segment.
    refers: bool,
}

#[derive(Debug)]
enum BatchPart<'a> {
    Own(Range<usize>),
    Line(&'a [u8]),
}

#[derive(Debug, Clone, Copy)]
struct RecordEnd {
    /// Bytes of the batch up to and including this record.
    bytes: u64,
    holds_line: bool,
}

impl<'a> Batch<'a> {
    /// Sets the connection of the lines that are added from now on.
    pub fn on(&mut self, conn: Conn) {
        self.start = record::start(self.at_us, conn);
        self.conn = conn;
    }

    /// Adds the record of a side's line.
    pub fn push_line(&mut self, from: Side, form: &Form, line: Line<'a>) {
        let before = self.own.len();
        if let (Some(shared), Side::Server, Form::Verbatim | Form::Text) = (&mut self.shared, from, form)
            && line.end == LineEnd::Newline
            && SharedLines::takes(line.bytes)
        {
            if let Some(offset) = shared.lines.find(self.conn, line.bytes) {
                shared.refers = true;
                record::append_reference(&mut self.own, &self.start, offset);
                self.end_record(self.own.len() - before, true);
                return;
            }
            shared.added.push((self.conn, self.bytes, line.bytes.into()));
        }
        record::append_head(&mut self.own, &self.start, Written::By(from), form, line.bytes);
        let mut sliced_bytes = 0;
        if *form == Form::Verbatim {
            if line.bytes.len() < SLICED_LINE_BYTES_MIN {
                self.own.extend_from_slice(line.bytes);
            } else {
                self.parts.push(BatchPart::Own(self.own_from..self.own.len()));
                self.parts.push(BatchPart::Line(line.bytes));
                self.own_from = self.own.len();
                sliced_bytes = line.bytes.len();
            }
        }
        record::append_tail(&mut self.own, line.end);
        self.end_record(self.own.len() - before + sliced_bytes, true);
    }

    /// Adds the record of a line of ours that precedes the current one.
    pub fn push_own_line(&mut self, line: &OwnLine) {
        self.push_own(Written::For(line.to), line, LineEnd::Newline);
    }

    /// Adds the record of a line of ours that replaces the last added one and has the same line end.
    pub fn push_replacement(&mut self, line: &OwnLine, end: LineEnd) {
        self.push_own(Written::InPlaceFor(line.to), line, end);
    }

    fn push_own(&mut self, written: Written, line: &OwnLine, end: LineEnd) {
        let before = self.own.len();
        record::append_head(&mut self.own, &self.start, written, &line.form, &line.bytes);
        if line.form == Form::Verbatim {
            self.own.extend_from_slice(&line.bytes);
        }
        record::append_tail(&mut self.own, end);
        self.end_record(self.own.len() - before, true);
    }

    /// Adds the record of an action or observation of codex-shim.
    pub fn push_note(&mut self, note: &Note) {
        let before = self.own.len();
        record::append_note(&mut self.own, self.at_us, note);
        self.end_record(self.own.len() - before, false);
    }

    fn push_gap(&mut self, missed: &Missed) {
        let before = self.own.len();
        record::append_gap(&mut self.own, self.at_us, missed.lines, &missed.reason);
        self.end_record(self.own.len() - before, false);
    }

    fn end_record(&mut self, record_bytes: usize, holds_line: bool) {
        self.bytes += record_bytes as u64;
        self.records.push(RecordEnd { bytes: self.bytes, holds_line });
    }

    fn lines(&self) -> u64 {
        self.records.iter().filter(|record| record.holds_line).count() as u64
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        let last = self.own_from..self.own.len();
        self.parts
            .iter()
            .map(|part| match part {
                BatchPart::Own(range) => &self.own[range.clone()],
                BatchPart::Line(line) => line,
            })
            .chain([&self.own[last]])
            .filter(|slice| !slice.is_empty())
            .map(IoSlice::new)
            .collect()
    }
}

/// Writes a session's journal during one run of the server.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    header: Header,
    generation: Generation,
    segment_bytes_max: u64,
    open: Option<Segment>,
    reopen_at: Duration,
    elapsed: Duration,
    missed: Option<Missed>,
    tally: Tally,
    last_at_us: u64,
    /// The buffers of the batch before.
    spare: (Vec<u8>, Vec<RecordEnd>),
    /// `None` if each line is recorded in full, or while a batch holds the lines.
    shared: Option<SharedLines>,
    background: Background,
}

/// A writer as another process has written it down.
#[derive(Debug, Serialize, Deserialize)]
pub struct WriterState {
    /// That of the last segment, but for its end.
    header: Header,
    missed: Option<Missed>,
    tally: Tally,
    last_at_us: u64,
    elapsed: Duration,
}

/// The totals of a writer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Appended bytes, without the headers of segments.
    pub appended_bytes: u64,
    /// Stretches of lines that could not be written.
    pub gaps: u64,
    /// The lines in them.
    pub missed_lines: u64,
}

#[derive(Debug)]
struct Segment {
    file: Arc<File>,
    path: PathBuf,
    bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Missed {
    lines: u64,
    reason: String,
}

impl Writer {
    /// Writes into the folder `dir`, which must exist. `header` describes the run and names the end of the run before it;
    /// its `segment`, its `at` and, from the second segment on, its `previous` are set for each segment. The first commit
    /// creates the first segment.
    #[must_use]
    pub fn new(dir: PathBuf, generation: Generation, header: Header, bounds: Bounds, indexed: IndexedTo) -> Writer {
        let background = Background::start(dir.clone(), bounds, indexed);
        Writer {
            dir,
            header: Header { segment: 0, ..header },
            generation,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            open: None,
            reopen_at: Duration::ZERO,
            elapsed: Duration::ZERO,
            missed: None,
            tally: Tally::default(),
            last_at_us: 0,
            spare: Default::default(),
            shared: None,
            background,
        }
    }

    /// The state of this writer, for one of another process that goes on with the same generation.
    pub fn state(&self) -> WriterState {
        let previous = self.open.as_ref().map(|open| self.end_at(open.bytes)).or_else(|| self.header.previous.clone());
        WriterState {
            header: Header { previous, ..self.header.clone() },
            missed: self.missed.clone(),
            tally: self.tally,
            last_at_us: self.last_at_us,
            elapsed: self.elapsed,
        }
    }

    /// Goes on where a writer of another process has stopped, with the next segment.
    ///
    /// # Errors
    ///
    /// The state names no generation.
    pub fn taken_over(
        dir: PathBuf,
        state: WriterState,
        bounds: Bounds,
        indexed: IndexedTo,
    ) -> Result<Writer, NoGeneration> {
        let WriterState { header, missed, tally, last_at_us, elapsed } = state;
        let generation = Generation::try_from(header.generation.clone())?;
        let mut writer = Writer::new(dir, generation, header.clone(), bounds, indexed);
        writer.header = Header { shim: env!("CARGO_PKG_VERSION").to_owned(), ..header };
        (writer.missed, writer.tally, writer.last_at_us, writer.elapsed) = (missed, tally, last_at_us, elapsed);
        writer.check_totals();
        Ok(writer)
    }

    /// What is missing now is a part of all that is missing.
    fn check_totals(&self) {
        let (lines, gaps) = self.missed.as_ref().map_or((0, 0), |missed| (missed.lines, 1));
        holds!("journal.gap-is-in-the-totals", lines <= self.tally.missed_lines && gaps <= self.tally.gaps);
    }

    /// Whether a line of the server that several connections deliver is recorded once in full, and then as a reference. At first
    /// each is recorded in full, which costs less as long as there is one connection. Call it while there is no batch.
    pub fn share_lines(&mut self, share: bool) {
        match (share, &self.shared) {
            (true, None) => self.shared = Some(SharedLines::default()),
            (false, Some(_)) => self.shared = None,
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Replaces the bounds.
    pub fn bound(&self, bounds: Bounds) {
        self.background.bound(bounds);
    }

    /// Begins with a gap: `lines` lines passed before the journal existed.
    pub fn begin_with_gap(&mut self, lines: u64, reason: String) {
        self.tally.gaps += 1;
        self.tally.missed_lines += lines;
        self.missed = Some(Missed { lines, reason });
    }

    /// Skips the retry pauses in the next commit, which may be the last one.
    pub fn try_at_once(&mut self) {
        self.reopen_at = Duration::ZERO;
    }

    /// Whether all commits are recorded, or marked as a gap.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.missed.is_none()
    }

    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// An empty batch for events at `now`. Recorded times never decrease, whatever the clock does.
    pub fn batch<'a>(&mut self, now: Now) -> Batch<'a> {
        // After the clock was set back, recorded time runs at half speed until the clock catches up: joining depends on
        // times, and must give the same result live and from the journal.
        let passed_us = now.elapsed.saturating_sub(self.elapsed).as_micros() as u64;
        let at_least_us = if self.last_at_us == 0 { 0 } else { self.last_at_us + passed_us / 2 };
        self.last_at_us = at_least_us.max(now.unix_us);
        self.elapsed = now.elapsed;
        let (mut own, mut records) = std::mem::take(&mut self.spare);
        own.clear();
        records.clear();
        let (at_us, start) = (self.last_at_us, record::start(self.last_at_us, Conn::OWN));
        // References keep a segment open, so a full one takes no more of them.
        if let (Some(lines), Some(open)) = (&mut self.shared, &self.open)
            && open.bytes > self.segment_bytes_max
        {
            lines.clear();
        }
        let shared = self.shared.take().map(|lines| Sharing { lines, added: Vec::new(), refers: false });
        let parts = Vec::new();
        let mut batch = Batch { at_us, start, own, parts, own_from: 0, records, bytes: 0, conn: Conn::OWN, shared };
        if let Some(missed) = &self.missed {
            batch.push_gap(missed);
        }
        batch
    }

    /// Appends a batch. Once this returns without an error, the batch survives the death of the process.
    ///
    /// # Errors
    ///
    /// Records that were not written are counted, and the first commit that succeeds marks them as a gap.
    pub fn commit(&mut self, batch: &mut Batch<'_>) -> Result<(), JournalError> {
        if batch.records.is_empty() {
            self.shared = batch.shared.take().map(|sharing| sharing.lines);
            self.spare = (std::mem::take(&mut batch.own), std::mem::take(&mut batch.records));
            return Ok(());
        }
        let segment = self.header.segment;
        let result = self.append(batch);
        let refers = batch.shared.as_ref().is_some_and(|shared| shared.refers);
        holds!("journal.references-stay-in-their-segment", !refers || self.header.segment == segment);
        if let Some(Sharing { mut lines, added, .. }) = batch.shared.take() {
            if self.open.is_none() || self.header.segment != segment {
                lines.clear();
            }
            if let (Ok(()), Some(open)) = (&result, &self.open) {
                let from = open.bytes - batch.bytes;
                added.into_iter().for_each(|(conn, offset, line)| lines.remember(conn, from + offset, line));
            }
            self.shared = Some(lines);
        }
        match &result {
            Ok(()) => self.missed = None,
            Err(failure) => {
                // If a gap record exists, it is the batch's first; if it was not written, its gap grows.
                let earlier = self.missed.take().filter(|_| failure.records_written == 0);
                let was_missing = earlier.is_some();
                let (missed_before, reason) = earlier
                    .map_or_else(|| (0, failure.error.source.to_string()), |missed| (missed.lines, missed.reason));
                let written =
                    batch.records[..failure.records_written].iter().filter(|record| record.holds_line).count();
                holds!("journal.missed-lines-were-in-the-batch", written as u64 <= batch.lines());
                let lines = missed_before + batch.lines().saturating_sub(written as u64);
                // If only notes are missing, the gap has 0 lines and is recorded all the same.
                let is_missing = failure.records_written < batch.records.len();
                self.tally.gaps += u64::from(is_missing && !was_missing);
                self.tally.missed_lines += lines - missed_before;
                self.missed = is_missing.then_some(Missed { lines, reason });
                self.check_totals();
            }
        }
        if batch.own.capacity() <= 2 * (SLICED_LINE_BYTES_MIN + (64 << 10)) {
            self.spare = (std::mem::take(&mut batch.own), std::mem::take(&mut batch.records));
        }
        result.map_err(|failure| failure.error)
    }

    fn append(&mut self, batch: &Batch<'_>) -> Result<(), WriteFailure> {
        let unwritten = |error| WriteFailure { error, records_written: 0 };
        let full = self
            .open
            .as_ref()
            .is_some_and(|segment| segment.bytes > 0 && segment.bytes + batch.bytes > self.segment_bytes_max);
        // References name an offset in this segment, so they stay in it.
        let full = full && !batch.shared.as_ref().is_some_and(|shared| shared.refers);
        if self.open.is_none() || full {
            match self.open_next() {
                Ok(()) => {}
                // A segment that is too long is better than a gap.
                Err(_) if self.open.is_some() => {}
                Err(error) => return Err(unwritten(error)),
            }
        }
        let Some(segment) = &mut self.open else {
            return Ok(());
        };
        let mut slices = batch.slices();
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        holds!("journal.batch-is-as-long-as-its-records", bytes as u64 == batch.bytes);
        match write_all(&segment.file, &mut slices) {
            Ok(()) => {
                segment.bytes += batch.bytes;
                self.tally.appended_bytes += batch.bytes;
                self.background.grew();
                Ok(())
            }
            Err((source, written)) => {
                let whole = batch.records.iter().take_while(|record| record.bytes <= written).count();
                holds!("journal.failed-append-wrote-less", written < batch.bytes || batch.bytes == 0);
                let kept = whole.checked_sub(1).map_or(0, |last| batch.records[last].bytes);
                let error = JournalError { action: "append to", path: segment.path.clone(), source };
                segment.bytes += kept;
                self.tally.appended_bytes += kept;
                let cut_back = segment.file.set_len(segment.bytes).is_ok();
                // A file that may not grow is left as it is; a new one may have room.
                if !cut_back || error.source.kind() == io::ErrorKind::FileTooLarge {
                    let bytes = segment.bytes;
                    self.header.previous = Some(self.end_at(bytes));
                    self.open = None;
                }
                Err(WriteFailure { error, records_written: whole })
            }
        }
    }

    /// The open segment, if it ends after `bytes` bytes.
    fn end_at(&self, bytes: u64) -> Previous {
        Previous { generation: self.generation.to_string(), segment: self.header.segment, bytes, ended: false }
    }

    fn open_next(&mut self) -> Result<(), JournalError> {
        let name = SegmentName { generation: self.generation.clone(), number: self.header.segment + 1 };
        let path = self.dir.join(name.to_string());
        let failed = |source| JournalError { action: "create", path: path.clone(), source };
        if self.elapsed < self.reopen_at {
            return Err(failed(io::Error::other("it could not be created a moment ago")));
        }
        self.reopen_at = self.elapsed + REOPEN_AFTER;
        // It is renamed once it has its header, so that a reader never finds one without.
        let unnamed = self.dir.join(format!(".{name}.new"));
        let file = files::open(&unnamed, Access::Replace).map_err(failed)?;
        let previous = match &self.open {
            Some(full) => Some(self.end_at(full.bytes)),
            None => self.header.previous.clone(),
        };
        let follows =
            |previous: &Previous| previous.generation != *self.generation.to_string() || previous.segment < name.number;
        holds!("journal.segments-follow-each-other", previous.as_ref().is_none_or(follows));
        let header = Header { segment: name.number, at: self.last_at_us, previous, ..self.header.clone() };
        let mut bytes = Vec::new();
        record::append_header(&mut bytes, &header);
        let written = write_all(&file, &mut [IoSlice::new(&bytes)]).map_err(|(error, _)| error);
        if let Err(error) = written.and_then(|()| std::fs::rename(&unnamed, &path)) {
            let _ = std::fs::remove_file(&unnamed);
            return Err(failed(error));
        }
        let file = Arc::new(file);
        self.background.opened(name.clone(), Arc::clone(&file));
        self.header.segment = name.number;
        self.reopen_at = Duration::ZERO;
        self.open = Some(Segment { file, path, bytes: bytes.len() as u64 });
        Ok(())
    }
}

struct WriteFailure {
    error: JournalError,
    records_written: usize,
}

/// Writes all slices; on failure also returns how many bytes were written before it.
fn write_all(mut file: &File, mut slices: &mut [IoSlice<'_>]) -> Result<(), (io::Error, u64)> {
    let mut written = 0;
    while !slices.is_empty() {
        let at_once = slices.len().min(SLICES_MAX);
        match file.write_vectored(&slices[..at_once]) {
            Ok(0) => return Err((io::ErrorKind::WriteZero.into(), written)),
            Ok(bytes) => {
                written += bytes as u64;
                IoSlice::advance_slices(&mut slices, bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((error, written)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::reader::Step;
    use crate::journal::{FORMAT, ServerOrigin};
    use crate::wire::LineEnd;
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    fn writer(dir: &Path, segment_bytes_max: u64) -> Writer {
        let header = Header {
            journal: FORMAT,
            session: "s".to_owned(),
            generation: "000000010000".to_owned(),
            segment: 0,
            at: 0,
            argv: Vec::new(),
            cwd: String::new(),
            codex: ServerOrigin { path: String::new() },
            adopted: false,
            shim: String::new(),
            previous: None,
        };
        let bounds = Bounds { journal_bytes_max: u64::MAX, journal_age_max: Duration::MAX };
        let writer = Writer::new(dir.to_owned(), Generation::after(None, 1, 0), header, bounds, IndexedTo::default());
        Writer { segment_bytes_max, ..writer }
    }

    fn commit(writer: &mut Writer, unix_us: u64, lines: &[&str]) -> Result<(), JournalError> {
        let mut batch = writer.batch(Now { unix_us, elapsed: Duration::ZERO });
        for line in lines {
            let line = Line { bytes: line.as_bytes(), end: LineEnd::Newline };
            batch.push_line(Side::Client, &Form::Verbatim, line);
        }
        writer.commit(&mut batch)
    }

    /// The records of all segments, headers shortened.
    fn read(dir: &Path) -> Vec<String> {
        let names = SegmentName::list(dir).expect("it can be read");
        let texts = names.iter().map(|name| fs::read_to_string(dir.join(name.to_string())).expect("it can be read"));
        let short = |line: &str| if line.starts_with("{\"journal\"") { "header".to_owned() } else { line.to_owned() };
        texts.flat_map(|text| text.lines().map(short).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn full_segment_is_followed_by_the_next() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let mut writer = writer(dir.path(), 300);
        for number in 1..=4 {
            commit(&mut writer, number, &[&format!("{{\"id\":{number},\"x\":\"{}\"}}", "y".repeat(60))])
                .expect("it works");
        }
        let records = read(dir.path());
        assert_eq!(records.iter().filter(|record| *record == "header").count(), 4, "{records:?}");
        assert_eq!(records.len(), 8);
    }

    #[test]
    fn recorded_time_never_decreases() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let mut writer = writer(dir.path(), SEGMENT_BYTES_MAX);
        for unix_us in [7, 5, 9] {
            commit(&mut writer, unix_us, &["1"]).expect("it works");
        }
        let record = |at| format!("{{\"at\":{at},\"from\":\"client\",\"line\":1}}");
        assert_eq!(read(dir.path()), ["header".to_owned(), record(7), record(7), record(9)]);
    }

    #[test]
    fn unwritten_lines_become_a_gap() {
        let parent = tempfile::tempdir().expect("BUG: a temporary folder");
        let dir = parent.path().join("journal");
        let mut writer = writer(&dir, SEGMENT_BYTES_MAX);
        let error = commit(&mut writer, 1, &["1", "2"]).expect_err("there is no folder");
        assert!(error.to_string().starts_with("create "), "{error}");
        commit(&mut writer, 2, &["3"]).expect_err("it is not tried again at once");
        fs::create_dir(&dir).expect("mkdir");
        commit(&mut writer, 3, &["4"]).expect_err("it still is not");
        writer.try_at_once();
        commit(&mut writer, 4, &["5"]).expect("now it works");
        commit(&mut writer, 5, &["6"]).expect("it still works");
        let records = read(&dir);
        assert_eq!(records.len(), 4, "{records:?}");
        assert_eq!((writer.tally().gaps, writer.tally().missed_lines), (1, 4));
        assert!(records[1].starts_with("{\"at\":4,\"gap\":{\"lines\":4,\"reason\":\"No such file"), "{records:?}");
    }

    #[test]
    fn long_line_is_written_without_a_copy() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let mut writer = writer(dir.path(), SEGMENT_BYTES_MAX);
        let long = format!("\"{}\"", "z".repeat(SLICED_LINE_BYTES_MIN));
        commit(&mut writer, 1, &["1", &long, "2", &long]).expect("it works");
        let record = |line: &str| format!("{{\"at\":1,\"from\":\"client\",\"line\":{line}}}");
        assert_eq!(read(dir.path()), ["header".to_owned(), record("1"), record(&long), record("2"), record(&long)]);
    }

    /// The records of lines as a reader returns them, and how many segments there are.
    fn lines_read(dir: &Path) -> (Vec<String>, usize) {
        let mut reader = super::super::reader::Reader::new(dir, None);
        let (mut lines, mut segments) = (Vec::new(), 0);
        loop {
            match reader.step().expect("it can be read") {
                Step::Record { bytes, .. } if bytes.starts_with(b"{\"journal\"") => segments += 1,
                Step::Record { bytes, .. } => lines.push(String::from_utf8_lossy(bytes).into_owned()),
                Step::Lost { at } => panic!("a segment is missing: {at:?}"),
                Step::End => return (lines, segments),
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

        /// Each delivery is a batch of one connection with some messages, long and short ones among them.
        #[test]
        fn shared_lines_are_read_like_whole_ones(
            deliveries in proptest::collection::vec((0..4_u32, proptest::collection::vec(0..12_usize, 1..6)), 1..60),
            segment_bytes_max in 500..20_000_u64,
        ) {
            let message = |number: usize| {
                let text = "x".repeat(if number % 4 == 3 { 9_000 } else { number * 40 });
                format!("{{\"method\":\"m{number}\",\"params\":\"{text}\",\"same\":{number}}}")
            };
            let dirs = [(); 2].map(|()| tempfile::tempdir().expect("BUG: a temporary folder"));
            let mut writers = dirs.each_ref().map(|dir| writer(dir.path(), segment_bytes_max));
            writers[1].share_lines(true);
            for (now, (conn, numbers)) in (1..).zip(&deliveries) {
                let messages: Vec<String> = numbers.iter().map(|number| message(*number)).collect();
                for writer in &mut writers {
                    let mut batch = writer.batch(Now { unix_us: now, elapsed: Duration::ZERO });
                    batch.on(Conn(*conn));
                    for message in &messages {
                        let line = Line { bytes: message.as_bytes(), end: LineEnd::Newline };
                        batch.push_line(Side::Server, &Form::Verbatim, line);
                    }
                    writer.commit(&mut batch).expect("there is room");
                }
            }
            let [whole, shared] = dirs.each_ref().map(|dir| lines_read(dir.path()));
            proptest::prop_assert_eq!(&whole.0, &shared.0);
            proptest::prop_assert!(shared.1 <= whole.1);
        }
    }

    #[test]
    fn line_of_three_connections_is_stored_once() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let mut writer = writer(dir.path(), 1 << 20);
        writer.share_lines(true);
        let message = format!("{{\"method\":\"m\",\"params\":\"{}\"}}", "x".repeat(10_000));
        for conn in 1..=3 {
            let mut batch = writer.batch(Now { unix_us: 7, elapsed: Duration::ZERO });
            batch.on(Conn(conn));
            batch.push_line(Side::Server, &Form::Verbatim, Line { bytes: message.as_bytes(), end: LineEnd::Newline });
            writer.commit(&mut batch).expect("there is room");
        }
        let stored = read(dir.path());
        let offset =
            fs::read(dir.path().join(SegmentName { generation: Generation::after(None, 1, 0), number: 1 }.to_string()))
                .expect("a file");
        let offset = memchr::memchr(b'\n', &offset).expect("it has a header") + 1;
        assert_eq!(stored[2], format!(r#"{{"at":7,"conn":2,"from":"server","same":{offset}}}"#));
        assert_eq!(stored[3], format!(r#"{{"at":7,"conn":3,"from":"server","same":{offset}}}"#));
        assert!(lines_read(dir.path()).0[2].ends_with(&format!("{message}}}")));
    }
}
