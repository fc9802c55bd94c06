//! Masks secrets in files, keeping each file's length and modification time.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::pieces::in_segment;
use crate::engine::Masker;
use crate::files::{self, Access};
use crate::journal::Record;
use crate::store::RunMode;

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
        Line::Whole(line) => match std::str::from_utf8(line) {
            Ok(record) if Record::parse(line).is_ok() => {
                let in_delta = pieces.get(&number).map_or(&[][..], Vec::as_slice);
                masker.record(record, in_delta).map(String::into_bytes)
            }
            // Not a record: the file was changed by hand.
            Ok(_) | Err(_) => masker.bytes(line),
        },
        // Never forwarded, and half a secret has no recognizable shape.
        Line::Torn(line) => line.iter().any(|byte| *byte != b'*').then(|| vec![b'*'; line.len()]),
    })
}

/// Masks the secrets in a transcript's file. Returns how many lines had any.
pub(super) fn redact_transcript(path: &Path, masker: &Masker, how: How, mode: RunMode) -> io::Result<u64> {
    let before = read(path)?;
    rewrite_lines(path, &before, how, mode, |_, line| match line {
        Line::Whole(line) | Line::Torn(line) => match std::str::from_utf8(line) {
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
enum Line<'a> {
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
    masked: impl Fn(u64, Line<'_>) -> Option<Vec<u8>>,
) -> io::Result<u64> {
    let (mut after, mut at, mut changed) = (Vec::new(), 0, 0);
    for number in 0.. {
        let rest = &before[at..];
        if rest.is_empty() {
            break;
        }
        let newline = memchr::memchr(b'\n', rest);
        let line = &rest[..newline.unwrap_or(rest.len())];
        let instead = masked(number, if newline.is_some() { Line::Whole(line) } else { Line::Torn(line) });
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
        file.sync_all()
    });
    let put = written.and_then(|()| std::fs::rename(&beside, path));
    if put.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    put?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
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
    file.sync_all()
}
