//! Masks secrets in stored data. Each file keeps its length and modification time.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::held::Held;
use super::redaction::Redaction;
use crate::files::{self, Access};
use crate::index::{HISTORY_FILE, TRANSCRIPTS_DIR, TranscriptFiles, redact_history};
use crate::journal::{Record, SegmentName};
use crate::os::fs::sync;
use crate::protocol::{Encoding, piece_stream};
use crate::secrets::{InPieces, Masker, Pieces};
use crate::store::{Found as Session, LEDGER_FILE, Life, REDACTED_FILE, RunMode, redact_ledger};
use crate::wire::Body;

/// Where secrets were masked, and how many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Masked {
    pub session_id: String,
    pub place: Storage,
    /// Records, rows or lines that had a secret.
    pub masked: u64,
}

/// A kind of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// Records of the journal.
    Journal,
    /// Rows of `history.db`.
    History,
    /// Rows of `ledger.db`.
    Ledger,
    /// Lines of transcripts.
    Transcripts,
    /// Lines of our log, and of databases that were set aside.
    Log,
}

impl Storage {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Storage::Journal => "journal records",
            Storage::History => "history rows",
            Storage::Ledger => "ledger rows",
            Storage::Transcripts => "transcript lines",
            Storage::Log => "log lines",
        }
    }
}

/// The size of the segments and databases of a session, which [`redact`] reads.
pub fn bytes_to_read(session: &Session) -> u64 {
    let dir = session.journal_dir();
    let segments = SegmentName::list(&dir).unwrap_or_default();
    let segments = segments.into_iter().map(|segment| size(&dir.join(segment.to_string())));
    segments.sum::<u64>() + databases(session).iter().map(|path| size(path)).sum::<u64>()
}

fn databases(session: &Session) -> [PathBuf; 2] {
    [HISTORY_FILE, LEDGER_FILE].map(|name| session.dir.join(name))
}

fn size(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).map(|file| file.len()).unwrap_or_default()
}

/// Masks the secrets in all stored data of a session. Returns where there were any, how many segments were skipped because
/// the relay is using them, and failures as messages for the user. `advance` is told of the bytes of [`bytes_to_read`] that are
/// done.
#[must_use]
pub fn redact(
    session: &Session,
    masker: &Masker,
    transcript_files: TranscriptFiles,
    mode: RunMode,
    advance: &dyn Fn(u64),
) -> (Vec<Masked>, u64, Vec<String>) {
    let held = match Held::take(session, mode) {
        Ok(held) => held,
        Err(error) => return (Vec::new(), 0, vec![error.to_string()]),
    };
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    let begun = (mode == RunMode::Apply).then(|| Redaction::begin(&session.dir));
    let mut add = |place, masked: Result<u64, String>| match masked {
        Ok(0) => {}
        Ok(masked) => found.push(Masked { session_id: session.id.clone(), place, masked }),
        Err(fault) => faults.push(fault),
    };
    let mut left = 0;
    add(Storage::Journal, redact_journal(&held, masker, transcript_files, &mut left, advance));
    let [history, ledger] = databases(session).map(|path| size(&path));
    add(Storage::History, redact_history(&held.history(), masker, held.life, mode));
    advance(history);
    add(Storage::Ledger, redact_ledger(&session.dir, masker, held.life, mode));
    advance(ledger);
    add(Storage::Transcripts, redact_transcripts(&held, masker));
    add(Storage::Log, redact_logs(&held, masker));
    let has_masked = !found.is_empty() || !faults.is_empty();
    let marked = begun.map_or(Ok(()), |begun| begun.and_then(|redaction| redaction.end(has_masked)));
    if let Err(error) = marked {
        let path = session.dir.join(REDACTED_FILE);
        faults.push(format!("write {}, by which backups notice the redaction: {error}", path.display()));
    }
    (found, left, faults)
}

fn told(path: &std::path::Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("use {}: {error}", path.display())
}

fn redact_journal(
    held: &Held,
    masker: &Masker,
    transcript_files: TranscriptFiles,
    left: &mut u64,
    advance: &dyn Fn(u64),
) -> Result<u64, String> {
    let dir = held.session.journal_dir();
    let indexed = held.index(transcript_files).map_err(|error| error.to_string())?;
    if held.mode == RunMode::Apply {
        remove_leftovers(&dir).map_err(told(&dir))?;
    }
    let mut masked = 0;
    for segment in &held.segments {
        if indexed.as_ref().is_none_or(|indexed| segment >= indexed) {
            *left += 1;
            continue;
        }
        let path = dir.join(segment.to_string());
        let bytes = size(&path);
        match redact_segment(&path, masker, held.mode) {
            Ok(records) => {
                masked += records;
                advance(bytes);
            }
            // Retention has deleted it meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(told(&path)(error)),
        }
    }
    Ok(masked)
}

fn redact_transcripts(held: &Held, masker: &Masker) -> Result<u64, String> {
    let dir = held.session.dir.join(TRANSCRIPTS_DIR);
    let how = match held.life {
        Life::Live => How::InPlace,
        Life::Stopped => How::Beside,
    };
    if held.mode == RunMode::Apply {
        remove_leftovers(&dir).map_err(told(&dir))?;
    }
    let files = files_of(&dir, |name| name.ends_with(".jsonl")).map_err(told(&dir))?;
    sum(files, |path| redact_transcript(path, masker, how, held.mode))
}

fn redact_logs(held: &Held, masker: &Masker) -> Result<u64, String> {
    let dir = &held.session.dir;
    let is_meant = |name: &str| name.starts_with("shim.log") || name.contains(".corrupt-");
    let files = files_of(dir, is_meant).map_err(told(dir))?;
    sum(files, |path| redact_text(path, masker, held.mode))
}

fn sum(files: Vec<PathBuf>, mask: impl Fn(&std::path::Path) -> std::io::Result<u64>) -> Result<u64, String> {
    files.iter().map(|path| mask(path).map_err(told(path))).sum()
}

/// Suffix of a file that is being rewritten.
const REWRITING: &str = "redacting";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Written to a new file, which then replaces it.
    Beside,
    /// A process may append to it meanwhile, so only the changed bytes are overwritten.
    InPlace,
}

/// Masks the secrets in a segment of a journal. Returns how many records had any.
pub(super) fn redact_segment(path: &Path, masker: &Masker, mode: RunMode) -> io::Result<u64> {
    let before = read(path)?;
    let pieces = in_segment(&before, masker);
    rewrite_lines(path, &before, How::Beside, mode, |number, line| match line {
        FileLine::Whole(line) => match std::str::from_utf8(line) {
            Ok(record) if Record::parse(line).is_ok() => {
                let in_delta = pieces.get(&number).map_or(&[][..], Vec::as_slice);
                masker.record(record, in_delta).map(String::into_bytes)
            }
            // Not a record: the file was changed by hand.
            Ok(_) | Err(_) => masker.bytes(line),
        },
        // Never forwarded, and half a secret has no recognizable shape.
        FileLine::Torn(line) => line.iter().any(|byte| *byte != b'*').then(|| vec![b'*'; line.len()]),
    })
}

/// Masks the secrets in a transcript's file. Returns how many lines had any.
pub(super) fn redact_transcript(path: &Path, masker: &Masker, how: How, mode: RunMode) -> io::Result<u64> {
    let before = read(path)?;
    rewrite_lines(path, &before, how, mode, |_, line| match line {
        FileLine::Whole(line) | FileLine::Torn(line) => match std::str::from_utf8(line) {
            Ok(entry) => masker.json(entry).map(String::into_bytes),
            Err(_) => masker.bytes(line),
        },
    })
}

/// Masks the secrets in a file of any format. Returns how many lines had any.
pub(super) fn redact_text(path: &Path, masker: &Masker, mode: RunMode) -> io::Result<u64> {
    let before = read(path)?;
    let Some(after) = masker.bytes(&before) else { return Ok(0) };
    let mut lines = 0;
    let pairs = before.split(|byte| *byte == b'\n').zip(after.split(|byte| *byte == b'\n'));
    pairs.for_each(|(before, after)| lines += u64::from(before != after));
    if mode == RunMode::Apply {
        write_over(path, &before, &after)?;
    }
    Ok(lines)
}

/// Files in a folder whose names match, without links; empty if the folder does not exist.
pub(super) fn files_of(dir: &Path, is_meant: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    if !std::fs::symlink_metadata(dir).is_ok_and(|file| file.is_dir()) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_str().is_some_and(&is_meant) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Deletes temporary files that a crash left behind.
pub(super) fn remove_leftovers(dir: &Path) -> io::Result<()> {
    for rest in files_of(dir, |name| name.ends_with(&format!(".jsonl.{REWRITING}")))? {
        let file = files::open(&rest, Access::Write)?;
        if file.try_lock().is_ok() {
            std::fs::remove_file(&rest)?;
        }
    }
    Ok(())
}

/// A line of a file, without its `\n`.
enum FileLine<'a> {
    Whole(&'a [u8]),
    /// The last line, if it has no `\n`.
    Torn(&'a [u8]),
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    files::read(path)
}

fn rewrite_lines(
    path: &Path,
    before: &[u8],
    how: How,
    mode: RunMode,
    masked: impl Fn(u64, FileLine<'_>) -> Option<Vec<u8>>,
) -> io::Result<u64> {
    let (mut after, mut at, mut changed) = (Vec::new(), 0, 0);
    for number in 0.. {
        let rest = &before[at..];
        if rest.is_empty() {
            break;
        }
        let newline = memchr::memchr(b'\n', rest);
        let line = &rest[..newline.unwrap_or(rest.len())];
        let instead = masked(number, if newline.is_some() { FileLine::Whole(line) } else { FileLine::Torn(line) });
        if let Some(instead) = instead.filter(|instead| instead.len() == line.len() && instead != line) {
            if changed == 0 {
                after = before.to_vec();
            }
            after[at..at + line.len()].copy_from_slice(&instead);
            changed += 1;
        }
        at += line.len() + usize::from(newline.is_some());
    }
    match (mode, how) {
        (RunMode::DryRun, How::Beside | How::InPlace) => {}
        (RunMode::Apply, _) if changed == 0 => {}
        (RunMode::Apply, How::Beside) => put(path, &after)?,
        (RunMode::Apply, How::InPlace) => write_over(path, before, &after)?,
    }
    Ok(changed)
}

/// Replaces a file, keeping its times.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let metadata = std::fs::symlink_metadata(path)?;
    let beside = path.with_added_extension(REWRITING);
    let mut file = files::open(&beside, Access::Create)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(io::Error::other("another codex-shim is rewriting it")),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // Another process may have finished with it before we locked it.
    let there = std::fs::symlink_metadata(&beside)?;
    let ours = file.metadata()?;
    if (there.dev(), there.ino()) != (ours.dev(), ours.ino()) {
        return Err(io::Error::other("another codex-shim is rewriting it"));
    }
    let written = file.set_len(0).and_then(|()| {
        file.write_all(bytes)?;
        file.set_modified(metadata.modified()?)?;
        sync(&file)
    });
    let put = written.and_then(|()| std::fs::rename(&beside, path));
    if put.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    put?;
    path.parent().map_or(Ok(()), |dir| sync(&File::open(dir)?))
}

/// Overwrites the bytes of a file that differ.
fn write_over(path: &Path, before: &[u8], after: &[u8]) -> io::Result<()> {
    let file = files::open(path, Access::Write)?;
    let modified = file.metadata()?.modified()?;
    let mut at = 0;
    while let Some(from) = (at..after.len()).find(|at| before[*at] != after[*at]) {
        let to = (from..after.len()).find(|at| before[*at] == after[*at]).unwrap_or(after.len());
        file.write_all_at(&after[from..to], from as u64)?;
        at = to;
    }
    file.set_modified(modified)?;
    sync(&file)
}

/// The spans to mask in the pieces of a segment, by record number.
pub(super) fn in_segment(segment: &[u8], masker: &Masker) -> InPieces {
    let mut pieces = Pieces::default();
    for (number, record) in (0..).zip(segment.split(|byte| *byte == b'\n')) {
        add_piece(&mut pieces, number, record);
    }
    masker.in_pieces(&pieces)
}

/// Adds the piece of a text in a journal record, if it has one.
pub fn add_piece(pieces: &mut Pieces, number: u64, record: &[u8]) {
    let has = |encoding: Encoding| memchr::memmem::find(record, encoding.member().as_bytes()).is_some();
    if !has(Encoding::Plain) && !has(Encoding::Base64) {
        return;
    }
    let (Ok(Record::Line { from, content, .. }), Ok(text)) = (Record::parse(record), std::str::from_utf8(record))
    else {
        return;
    };
    let Body::Message(message) = Body::parse(content.bytes().unwrap_or_default()) else { return };
    if let (Some(method), Some(params)) = (message.method, message.params) {
        pieces.add(format!("{from:?} {method} {:?}", piece_stream(params)), number, text);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn all_bytes_are_reported_as_done() {
        let dir = tempfile::tempdir().expect("BUG: a temporary folder");
        let journal = dir.path().join("journal");
        std::fs::create_dir(&journal).expect("BUG: a folder");
        for number in 1..3 {
            let path = journal.join(format!("0a1b2c3d4e5f-00{number}.jsonl"));
            std::fs::write(path, "x".repeat(number * 100)).expect("BUG: a file");
        }
        let session = Session {
            id: "s".to_owned(),
            dir: dir.path().to_owned(),
            live: false,
            holder: None,
            repository: None,
            threads: None,
            last_used: SystemTime::UNIX_EPOCH,
        };
        let masker = Masker::new(&[]).expect("BUG: there is no pattern");
        let (done, total) = (Cell::new(0), bytes_to_read(&session));
        let advance = |bytes| done.set(done.get() + bytes);
        let (_, _, faults) = redact(&session, &masker, TranscriptFiles::None, RunMode::DryRun, &advance);
        assert_eq!((done.get(), total, faults), (300, 300, Vec::new()));
    }
}
